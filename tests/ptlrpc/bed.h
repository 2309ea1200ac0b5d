/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A server and a client over the fake network, and what tests of ptlrpc do with them.
 *
 * Op NULL answers at once, ECHO sends the body back, ONCE counts in its first 8 bytes how often it
 * ran, HOLD keeps the request until bed_release(), FAIL answers -EIO with 3 bytes.
 */
#pragma once

#include "causeway/ptlrpc.h"
#include "ptlrpc/proto/hdr.h"
#include "tests/ptlrpc/fake_lnet.h"

#define BED_PORTAL     12
#define BED_SERVER_PID 1
#define BED_CLIENT_PID 2
#define BED_TIMEOUT_NS UINT64_C(1000000000)
#define BED_HELD_MAX   4096

enum bed_opc {
    BED_NULL = 1000,
    BED_ECHO,
    BED_ONCE,
    BED_HOLD,
    BED_HOLD_ONCE,
    BED_FAIL,
};

struct bed {
    struct fake_world world;
    struct lnet *server_ctx;
    struct lnet *client_ctx;
    struct ptlrpc *server;
    struct ptlrpc *client;
    struct ptlrpc_service *service;
    struct ptlrpc_import *import;

    /* The server's side. */
    uint32_t once_count;
    uint32_t connected_count;
    uint32_t disconnected_count;
    int disconnected_reason;
    int connect_refusal; /* what connected() returns */
    struct ptlrpc_export *last_export;
    struct ptlrpc_rq *held[BED_HELD_MAX];
    uint32_t held_count;
    uint64_t reply_body_bytes; /* of ONCE: 8 if 0 */

    /* The client's side. */
    enum ptlrpc_import_state state;
    int state_status;
    uint32_t state_count;
    uint32_t closed_count;
    char connect_reply[64];
};

/* What became of one request. */
struct bed_call {
    uint32_t done_count;
    int status;
    uint32_t bytes;
    uint64_t order; /* of done() among all */
    struct ptlrpc_stages stages;
    unsigned char body[16384];
    bool has_body;
    struct ptlrpc_request *request;
};

/* Fields that are 0 are the usual ones. */
struct bed_options {
    uint32_t rqs_max;
    uint32_t exports_max;
    uint32_t max_rpcs;
    uint32_t tries_max;
    uint32_t requests_max;
};

/* Opens both sides; the import is FULL. */
void bed_open(struct bed *bed, const struct bed_options *options);

/* Closes both engines and contexts; no reference on a peer is left. */
void bed_close(struct bed *bed);

/* One more import from the client to the server. */
struct ptlrpc_import *bed_import(struct bed *bed, const struct bed_options *options);

/* Sends @opc with @bytes of @body. Returns ptlrpc_request_send()'s result, or -ENOBUFS. */
int bed_send(struct ptlrpc_import *import, uint16_t opc, const void *body, uint32_t bytes,
             struct bed_call *call);

/* Answers everything that HOLD keeps, oldest first, and forgets it. */
void bed_release(struct bed *bed);

/* Statistics of @opc at the server. */
struct ptlrpc_op_stats bed_op_stats(const struct bed *bed, uint16_t opc);

/* Statistics of the service. */
struct ptlrpc_service_stats bed_stats(const struct bed *bed);

/* A filter that drops the first *(uint32_t *)arg replies that are no CONNECT's. */
enum fake_verdict bed_drop_replies(struct fake_message *message, void *arg);

/* A filter that drops the first *(uint32_t *)arg requests. */
enum fake_verdict bed_drop_requests(struct fake_message *message, void *arg);
