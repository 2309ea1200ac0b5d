/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time: one timer of the context for the whole engine.
 *
 * Requests have no timers. Their deadlines are looked at where they lie, in the slots of their
 * imports, when the earliest of all has come: a pass over at most 256 pointers an import, about
 * once a timeout under steady load, since most deadlines belong to requests that were answered long
 * ago.
 */
#include "ptlrpc/import.h"
#include "ptlrpc/service.h"

void
ptlrpc_timer_slow(struct ptlrpc *rpc, uint64_t at_ns)
{
    rpc->timer_ns = at_ns;
    /* It was armed by ptlrpc_open() and is never cancelled before the end: it has its place. */
    BASE_ASSERT(lnet_timer_arm(rpc->ctx, &rpc->timer, at_ns) == 0);
}

void
ptlrpc_tick(struct lnet *ctx, void *arg)
{
    struct ptlrpc *rpc = arg;
    const uint64_t now_ns = lnet_now(ctx);
    const uint64_t late_ns = now_ns - base_min_u64(now_ns, rpc->timer_ns);
    uint64_t next_ns = PTLRPC_NEVER;

    rpc->timer_ns = PTLRPC_NEVER;
    BASE_LIST_FOREACH(link, &rpc->import_list) {
        struct ptlrpc_import *import = BASE_CONTAINER_OF(link, struct ptlrpc_import, link);

        if (BASE_UNLIKELY(late_ns > import->timeout_ns / 4)) {
            ptlrpc_import_absent(import, now_ns);
        }
        next_ns = base_min_u64(next_ns, ptlrpc_import_tick(import, now_ns));
    }
    ptlrpc_req_tell_all(rpc);
    BASE_LIST_FOREACH_SAFE(link, next, &rpc->import_list) {
        ptlrpc_import_finish(BASE_CONTAINER_OF(link, struct ptlrpc_import, link));
    }
    for (uint32_t i = 0; i < LNET_PORTALS; i++) {
        if (rpc->services[i] != NULL) {
            next_ns = base_min_u64(next_ns, ptlrpc_service_tick(rpc->services[i], now_ns, late_ns));
        }
    }
    next_ns = base_min_u64(next_ns, rpc->timer_ns); /* what callbacks wanted */
    ptlrpc_timer_slow(rpc, next_ns);
}
