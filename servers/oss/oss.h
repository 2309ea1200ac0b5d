/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The object server of one reactor: its own header.
 *
 * A READ or WRITE is a `struct oss_io` from a pool, which has room for one of each request and each
 * lease: so taking one never fails.
 *
 *   MAPPING   the store was asked for memory, and is waited for
 *   MOVING    bulk moves a piece
 *   PAUSED    bulk had no room for the transfer
 *   ENDING    the store was asked to commit or to sync, and is waited for
 *   LENT      answered; the client has the memory
 *   CLOSING   the lease ended; a client may still be in the middle of its copy
 *   SIMPLE    another op than READ, WRITE and COMMIT: the store is waited for
 *
 *   MAPPING -> MOVING <-> PAUSED -> ENDING -> MAPPING (the next piece) or free
 *   MAPPING -> LENT -> CLOSING -> ENDING (COMMIT) or free
 *
 * A store that completes at once makes an io pass through several in one call.
 */
#pragma once

#include "base/list.h"
#include "base/log.h"
#include "base/pool.h"
#include "causeway/server.h"
#include "ptlrpc/proto/ost.h"
#include "servers/store_ost.h"

#define OSS_RQS_MAX             1024u
#define OSS_LEASES_MAX          2048u
#define OSS_IOS_MAX             (OSS_RQS_MAX + OSS_LEASES_MAX + 1) /* one for oss_close() */
#define OSS_CLIENT_LEASES_MAX   128u
#define OSS_LEASE_NS            UINT64_C(30000000000)
#define OSS_LEASE_BYTES_MIN     UINT64_C(16384) /* below, BULK is preferred if offered */
#define OSS_TRANSFER_TIMEOUT_NS UINT64_C(10000000000)
#define OSS_PAUSE_NS            UINT64_C(1000000)

enum oss_io_state {
    OSS_IO_IDLE, /* in the pool, or in the middle of a call */
    OSS_IO_MAPPING,
    OSS_IO_MOVING,
    OSS_IO_PAUSED,
    OSS_IO_ENDING,
    OSS_IO_SYNCING,
    OSS_IO_LENT,
    OSS_IO_CLOSING,
    OSS_IO_SIMPLE,
};

/* A connected client. */
struct oss_client {
    struct base_list leases; /* oss_io.client_link */
    uint32_t lease_count;
};

struct oss_io {
    struct oss *oss;
    struct ptlrpc_rq *rq; /* to be answered; NULL: LENT, or its lease ended without COMMIT */
    enum oss_io_state state;
    uint32_t flags;  /* enum ost_flags of the request */
    uint32_t crc32c; /* of what has moved */
    uint32_t want_crc32c;
    bool is_write;
    bool is_append; /* append_begin() was called */
    bool is_mapped; /* `op` has a map */
    uint64_t offset;
    uint64_t length; /* asked, then what can be had */
    uint64_t moved;
    uint64_t commit_bytes;
    const void *data; /* WRITE: inline data; BULK: the handle; in the request's body */
    uint32_t handle_bytes;
    struct ost_store_op op;
    struct ost_store_op append;

    /* Of a lease. */
    uint64_t lease; /* 0: none */
    uint64_t deadline_ns;
    struct bulk_export *export_;
    struct oss_client *client;
    struct base_list client_link;
    struct base_list link; /* PAUSED: oss->paused; LENT: oss->leases */

    struct iovec iov[OST_STORE_SEGMENTS_MAX];
};

struct oss {
    struct lnet *ctx;
    struct bulk *bulk;
    struct ptlrpc_service *service;
    struct ost_store *store;
    const struct ost_store_ops *store_ops;
    uint32_t reactor, reactors, ost_count;
    bool has_leases;
    bool is_closed;
    uint64_t wall_offset_ns;
    uint64_t page_bytes; /* smallest behind a region of the store */
    struct base_log log;
    struct base_pool ios;
    struct base_list paused;
    struct base_list leases; /* LENT, the oldest first */
    struct lnet_timer pause_timer, lease_timer;
    bool is_pause_armed, is_lease_armed;
    uint64_t lease_serial;
    uint64_t *lease_ids; /* by index of the io; 0: it is not LENT */
    struct oss_stats stats;
};

/* The wall clock for objects' times. */
static inline int64_t
oss_wall_ns(const struct oss *oss)
{
    return (int64_t)(lnet_now(oss->ctx) + oss->wall_offset_ns);
}

/* Is @object ours? Errors: -EREMOTE another reactor's; -ENODEV no such OST. */
int oss_object_check(const struct oss *oss, const struct ost_object *object);

/* An io for @rq. */
struct oss_io *oss_io_take(struct oss *oss, struct ptlrpc_rq *rq);
/* Gives an io back that has no map, lease or request any more. May free a server that was closed.
 */
void oss_io_return(struct oss_io *io);
/* The store has committed (or not: @status): goes on with the next piece, or answers. */
void oss_io_committed(struct oss_io *io, int status);
/* Commits the first io->commit_bytes of the map. */
void oss_io_commit(struct oss_io *io);
/* Answers and ends the io; @status counts only if nothing has moved. @flags: how it went. */
void oss_io_answer(struct oss_io *io, int status, uint32_t flags);
/* Ends the map, if there is one, and the append, without committing. */
void oss_io_unmap(struct oss_io *io);
/* CRC32C of @length bytes from the map's start, continuing @crc. */
uint32_t oss_io_crc32c(const struct oss_io *io, uint32_t crc, uint64_t length);

/* Lends the map to the client and answers. False: not possible now, nothing has happened. */
bool oss_lend(struct oss_io *io);
/* Ends all leases of a client. */
void oss_leases_end(struct oss_client *client);
/* lnet_timer_fn: ends leases that are due. @arg is the server. */
void oss_lease_timer(struct lnet *ctx, void *arg);
/* lnet_timer_fn: tries transfers again that bulk had no room for. @arg is the server. */
void oss_pause_timer(struct lnet *ctx, void *arg);

/* Handlers of OST_READ, OST_WRITE, OST_COMMIT and OST_RELEASE. */
void oss_read(struct ptlrpc_rq *rq);
void oss_write(struct ptlrpc_rq *rq);
void oss_commit(struct ptlrpc_rq *rq);
void oss_release(struct ptlrpc_rq *rq);

/* A SIMPLE op has ended in the store. */
void oss_simple_done(struct oss_io *io, int status);
