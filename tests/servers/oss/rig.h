/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An object server and two clients, three contexts over shm in one thread, on virtual time.
 */
#pragma once

#include "causeway/server.h"
#include "ptlrpc/proto/ost.h"

#define RIG_CLIENTS     2u
#define RIG_REPLY_BYTES 8448u
#define RIG_BUFFER      (UINT64_C(16) << 20)

struct rig_options {
    const char *store; /* NULL: mem */
    uint64_t bytes_max;
    uint32_t no_lease;
    uint32_t reactors;  /* as the server believes; 0: 1 */
    uint32_t bulk_path; /* enum bulk_path of all */
    uint32_t xfers_max; /* of the server's bulk */
};

struct rig_client {
    struct lnet *ctx;
    struct bulk *bulk;
    struct ptlrpc *rpc;
    struct ptlrpc_import *import;
    unsigned char *buffer; /* RIG_BUFFER bytes of pool memory */
};

struct rig_call {
    bool is_done;
    int status;
    uint32_t bytes;
    union {
        struct ost_io_rep io;
        struct ost_attr attr;
        struct ost_statfs_rep statfs;
        uint64_t u64;
        unsigned char raw[RIG_REPLY_BYTES];
    } reply;
};

/* Opens all; both clients are connected. */
void rig_open(const struct rig_options *options);
/* Closes all in the right order. */
void rig_close(void);
/* Kills a client's context: its connection breaks without a word. */
void rig_client_kill(uint32_t client);

struct oss *rig_oss(void);
struct rig_client *rig_client(uint32_t client);
struct oss_stats rig_stats(void);
struct ptlrpc_op_stats rig_op_stats(uint16_t opc);

/* Sends a request; rig_wait() for its end. */
void rig_send(uint32_t client, uint16_t opc, const void *body, uint32_t bytes,
              struct rig_call *call);
void rig_wait(struct rig_call *call);
/* Both; returns the status. */
int rig_do(uint32_t client, uint16_t opc, const void *body, uint32_t bytes, struct rig_call *call);
/* Polls all for a while of virtual time. */
void rig_run(uint64_t duration_ns);

/* The @i-th object of OST 0. */
struct ost_object rig_object(uint32_t i);

/* READ or WRITE of @length bytes of the client's buffer (from its start), as @flags say. */
void rig_io_send(uint32_t client, uint16_t opc, uint32_t object, uint64_t offset, uint64_t length,
                 uint32_t flags, struct rig_call *call, struct bulk_export **export_out);
int rig_io(uint32_t client, uint16_t opc, uint32_t object, uint64_t offset, uint64_t length,
           uint32_t flags, struct rig_call *call);
/* Moves @length bytes between the lease of @call and the client's buffer; returns bulk's status. */
int rig_lease_move(uint32_t client, const struct rig_call *lease, bool is_write, uint64_t length);
int rig_commit(uint32_t client, uint32_t object, uint64_t lease, uint64_t length,
               struct rig_call *call);
int rig_release(uint32_t client, uint64_t lease);
