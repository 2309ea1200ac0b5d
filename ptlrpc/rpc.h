/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The RPC engine of a context: what client and server side share.
 *
 * One timer drives everything that is not a message: ptlrpc_tick() (timeout.c) looks at all imports
 * and services when the earliest of their times has come. Nothing on the data path arms it but by
 * one compare.
 */
#pragma once

#include "base/list.h"
#include "base/log.h"
#include "base/pool.h"
#include "causeway/ptlrpc.h"
#include "ptlrpc/proto/hdr.h"

/* The longest body of a message. 8 KiB of data and a fixed part of 256 bytes. */
#define PTLRPC_BODY_BYTES_MAX 8448u

/* An xid is a counter and, in its low bits, the place of its request at the client. */
#define PTLRPC_XID_INDEX_BITS 16u
#define PTLRPC_XID_INDEX_MAX  (1u << PTLRPC_XID_INDEX_BITS)

#define PTLRPC_SLOTS_MAX               256u
#define PTLRPC_CONNECT_BYTES_MAX       1024u
#define PTLRPC_CONNECT_REPLY_BYTES_MAX 4096u

#define PTLRPC_NEVER UINT64_MAX

struct ptlrpc {
    struct lnet *ctx;
    struct bulk *bulk;
    struct base_log log;
    uint32_t body_bytes_max;
    uint32_t requests_max;
    uint32_t imports_max;
    bool is_closing; /* ptlrpc_close() was called: nothing new */
    bool is_closed;  /* ... and is over: only requests that servers still execute keep the memory */
    uint64_t timeout_ns;

    struct lnet_timer timer;
    uint64_t timer_ns; /* what it is armed for */
    struct lnet_peer_watch watch;

    /* Client: requests by index, those of requests_max first, then one per import of its own. */
    struct base_pool requests;
    unsigned char *messages; /* message_stride bytes each; touched when used */
    uint32_t message_stride;
    uint64_t xid_count;
    uint64_t *xids;                 /* by index: the xid that waits for a reply, else 0 */
    struct ptlrpc_import **imports; /* by index */
    struct base_list import_list;   /* in order of opening */
    struct base_list ending;        /* requests whose end is to be told */
    struct base_list cancelled;     /* requests to be told -ECANCELED that keep their slot */
    struct lnet_md_handle reply_md;
    uint64_t late_reply_count;
    uint64_t bad_reply_count;

    /* Server. */
    struct ptlrpc_service *services[LNET_PORTALS];
};

/* Has the engine's tick run in the first poll at or after @at_ns. */
void ptlrpc_timer_slow(struct ptlrpc *rpc, uint64_t at_ns);

/* As ptlrpc_timer_slow(), and cheap when it will run by then anyway. */
static inline void
ptlrpc_timer_at(struct ptlrpc *rpc, uint64_t at_ns)
{
    if (BASE_UNLIKELY(at_ns < rpc->timer_ns)) {
        ptlrpc_timer_slow(rpc, at_ns);
    }
}

/* The lnet_timer_fn of the engine @arg: looks at every time there is (timeout.c). */
void ptlrpc_tick(struct lnet *ctx, void *arg);

/* The lnet_peer_watch_fn of the engine @arg. */
void ptlrpc_peer_event(struct lnet *ctx, struct lnet_peer *peer, int status, void *arg);

/* Frees @rpc once it is closed and the last executing request of its services was answered. */
void ptlrpc_free_if_idle(struct ptlrpc *rpc);

/* @value, or the largest number that fits. */
static inline uint32_t
ptlrpc_saturate(uint64_t value)
{
    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}
