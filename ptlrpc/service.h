/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server side: services, exports and their slots, requests being executed.
 *
 * A request at the server (rq) is taken from the service's pool when its message arrives and goes
 * back when it is answered. Its memory is two pieces of room for a message; what is not used of
 * them is never touched. Taking and returning is last in, first out, so a service whose handlers
 * answer at once works in the same few warm cache lines.
 *
 * Invariants:
 *
 *   I1  rqs.total_count == rqs.free_count + active + those on `unsent`, between calls
 *   I2  slot->rq != NULL implies slot->rq->slot == slot: one execution per xid and slot
 *   I3  an rq that outlives its handler's call is on the list of its export, or has none
 *   I4  export->active counts the rqs whose export it is; they keep no more than that
 */
#pragma once

#include "base/hist.h"
#include "ptlrpc/rpc.h"

/* The longest reply body that a slot keeps without memory of its own. */
#define PTLRPC_SLOT_BODY_BYTES 192u

/* Beyond rqs_max, for CONNECT, DISCONNECT and PING. */
#define PTLRPC_RQS_RESERVED 2u

/* What an export remembers of the last request in a slot. */
struct ptlrpc_slot {
    uint64_t xid;             /* 0: none yet */
    struct ptlrpc_rq *rq;     /* being executed; NULL: it was answered */
    struct ptlrpc_hdr *reply; /* where replies are kept; NULL: not needed yet */
    uint32_t reply_bytes;     /* of the reply kept for xid, header included; 0: none is kept */
    uint32_t reply_bytes_max; /* room at `reply` */
};

struct ptlrpc_export {
    struct ptlrpc_service *service;
    struct lnet_peer *peer;
    uint64_t cookie; /* what requests carry: the index, and a serial number that is never reused */
    uint64_t incarnation;
    uint32_t generation;
    uint32_t slot_count;
    struct ptlrpc_slot *slots;
    uint32_t active;
    uint32_t index;
    bool is_evicted; /* `disconnected` follows in the next tick */
    int evict_reason;
    uint64_t lost_ns; /* the connection broke: when to give up; else PTLRPC_NEVER */
    void *user;
    struct base_list rqs;  /* executing, whose handler has returned */
    struct base_list link; /* service->export_list */
    unsigned char *slot_memory;
    void *connect_reply; /* for a CONNECT that comes again */
    uint32_t connect_reply_bytes;
};

struct ptlrpc_op_state {
    struct ptlrpc_op op;
    uint64_t count, error_count, resent_count, bytes;
    uint64_t queue_ns, service_ns, bulk_ns, store_ns;
    uint64_t report_count, total_ns, wait_ns;
    uint64_t path_count[BULK_PATH_COUNT];
    struct base_hist *service_hist;
    struct base_hist *total_hist;
};

/* CONNECT, DISCONNECT and PING stand before the ops of the table. */
enum ptlrpc_own_op { PTLRPC_OWN_CONNECT, PTLRPC_OWN_DISCONNECT, PTLRPC_OWN_PING };
#define PTLRPC_OWN_OP_COUNT 3

struct ptlrpc_rq {
    struct ptlrpc_service *service;
    struct ptlrpc_export *export; /* NULL: gone, or the reply is not wanted */
    struct ptlrpc_slot *slot;     /* NULL: a newer xid took it, or there is none */
    struct ptlrpc_op_state *op;
    struct ptlrpc_hdr *reply; /* its body follows */
    unsigned char *body;
    uint64_t arrived; /* lnet_stamp() */
    uint64_t started;
    struct ptlrpc_hdr hdr; /* of the request: our copy */
    uint64_t mark_start[2];
    uint64_t mark_ns[2];   /* indexed by enum ptlrpc_mark */
    struct base_list link; /* export->rqs, service->unsent */
    struct lnet_peer *unsent_peer;
    uint32_t unsent_bytes;
};

struct ptlrpc_service_hists {
    struct base_hist waittime;
    struct base_hist qdepth;
    struct base_hist active;
};

struct ptlrpc_service {
    struct ptlrpc *rpc;
    struct ptlrpc_rq *running; /* whose handler is being called */
    struct ptlrpc_export **exports;
    uint32_t exports_max;
    uint32_t active;
    uint16_t *op_index; /* by op code: 1 + index in ops, 0 for unknown */
    uint32_t opc_limit; /* op codes from here on are unknown */
    struct ptlrpc_op_state *ops;
    uint32_t op_count;
    struct base_pool rqs;
    uint64_t *active_counts; /* how often a request started when this many were active, itself in */
    uint64_t req_count;      /* that had no wait: the others are in hists->waittime */

    uint32_t export_count;
    uint32_t active_max;
    uint32_t exports_used; /* indexes from here on were never used */
    uint64_t serial;
    uint64_t reconnect_ns;
    uint64_t refused_count, duplicate_count, stale_count, busy_count, reply_drop_count;
    struct base_list export_list;
    struct base_list unsent; /* replies that lnet had no room for */
    struct ptlrpc_service_hists *hists;
    struct base_hist *op_hists;
    struct lnet_md_handle md;
    struct ptlrpc_service_options options;
    unsigned char *messages;
    uint32_t rqs_max;
    char name[32];
};

/* ---- export.c */

/* The export that @cookie names for @peer, or NULL. */
static inline struct ptlrpc_export *
ptlrpc_export_find(const struct ptlrpc_service *service, uint64_t cookie,
                   const struct lnet_peer *peer)
{
    const uint32_t index = (uint32_t)(cookie & 0xffff);
    struct ptlrpc_export *export = NULL;

    if (BASE_UNLIKELY(index >= service->exports_max)) {
        return NULL;
    }
    export = service->exports[index];
    if (BASE_UNLIKELY(export == NULL || export->cookie != cookie || export->peer != peer ||
                      export->is_evicted)) {
        return NULL;
    }
    return export;
}

/* Executes CONNECT and replies. */
void ptlrpc_export_connect(struct ptlrpc_rq *rq, struct lnet_peer *peer);

/* Forgets @export: requests in execution go on without it. Tells disconnected(@reason). */
void ptlrpc_export_destroy(struct ptlrpc_export *export, int reason);

/* A connection to @peer came up (0) or went down. */
void ptlrpc_export_peer_event(struct ptlrpc_service *service, struct lnet_peer *peer, int status);

/*
 * Evictions and lost connections that are due at @now_ns; nobody polled for at least @late_ns.
 * Returns when to look again.
 */
uint64_t ptlrpc_export_tick(struct ptlrpc_service *service, uint64_t now_ns, uint64_t late_ns);

/* Room for a reply of @bytes, header included, in @slot; NULL: out of memory. */
struct ptlrpc_hdr *ptlrpc_slot_room(struct ptlrpc_slot *slot, uint32_t bytes);

/* ---- service.c */

/* Answers @rq to @peer; for ptlrpc's own ops and refusals: no slot, no op statistics. @rq is gone.
 */
void ptlrpc_rq_answer(struct ptlrpc_rq *rq, struct lnet_peer *peer, uint32_t flags, uint64_t handle,
                      int status, uint32_t bytes);

/* Gives @rq back without an answer. */
void ptlrpc_rq_free(struct ptlrpc_rq *rq);

/* Replies that are to be sent again, and ptlrpc_export_tick(). Returns when to look again. */
uint64_t ptlrpc_service_tick(struct ptlrpc_service *service, uint64_t now_ns, uint64_t late_ns);

/* Disconnects every export and takes the service off the network. */
void ptlrpc_service_close(struct ptlrpc_service *service);

/* Frees a closed service without active requests. */
void ptlrpc_service_free(struct ptlrpc_service *service);
