/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The RPC engine: opening and closing it.
 */
#include "ptlrpc/rpc.h"
#include "ptlrpc/import.h"
#include "ptlrpc/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS_DEFAULT   1024u
#define IMPORTS_DEFAULT    256u
#define TIMEOUT_DEFAULT_NS UINT64_C(10000000000)
#define BODY_BYTES_LEAST   PTLRPC_CONNECT_REPLY_BYTES_MAX

void
ptlrpc_peer_event(struct lnet *ctx, struct lnet_peer *peer, int status, void *arg)
{
    struct ptlrpc *rpc = arg;

    (void)ctx;
    if (status != 0) {
        BASE_LIST_FOREACH(link, &rpc->import_list) {
            struct ptlrpc_import *import = BASE_CONTAINER_OF(link, struct ptlrpc_import, link);

            if (import->peer == peer) {
                ptlrpc_import_peer_down(import, status);
            }
        }
    }
    for (uint32_t i = 0; i < LNET_PORTALS; i++) {
        if (rpc->services[i] != NULL) {
            ptlrpc_export_peer_event(rpc->services[i], peer, status);
        }
    }
}

/* Allocates requests and tables. On error the caller frees what there is. */
static int
client_init(struct ptlrpc *rpc)
{
    const size_t bytes = sizeof(struct ptlrpc_hdr) + rpc->body_bytes_max;

    /* An odd number of cache lines, so that the starts spread over all sets. */
    rpc->message_stride = (uint32_t)base_align_up(bytes, BASE_CACHE_LINE) | BASE_CACHE_LINE;
    rpc->xids = calloc((size_t)rpc->requests_max + rpc->imports_max, sizeof(rpc->xids[0]));
    rpc->imports = calloc(rpc->imports_max, sizeof(struct ptlrpc_import *));
    rpc->messages = aligned_alloc(BASE_CACHE_LINE, (size_t)rpc->requests_max * rpc->message_stride);
    if (rpc->xids == NULL || rpc->imports == NULL || rpc->messages == NULL) {
        return -ENOMEM;
    }
    const int rc = base_pool_init(&rpc->requests, sizeof(struct ptlrpc_request), rpc->requests_max,
                                  BASE_CACHE_LINE);

    if (rc != 0) {
        return rc;
    }
    for (uint32_t i = 0; i < rpc->requests_max; i++) {
        struct ptlrpc_request *req = base_pool_at(&rpc->requests, i);

        BASE_POOL_UNPOISON(req, sizeof(*req));
        req->index = i;
        req->msg = (struct ptlrpc_hdr *)(void *)(rpc->messages + (size_t)i * rpc->message_stride);
        base_list_init(&req->link);
    }
    return 0;
}

static void
rpc_free(struct ptlrpc *rpc)
{
    base_pool_fini(&rpc->requests);
    free(rpc->messages);
    free(rpc->imports);
    free(rpc->xids);
    free(rpc);
}

static int
replies_attach(struct ptlrpc *rpc)
{
    const struct lnet_match match = {.portal = PTLRPC_PORTAL_REPLY,
                                     .from = {{LNET_NID_ANY}, LNET_PID_ANY, 0},
                                     .ignore_bits = UINT64_MAX};
    const struct lnet_md md = {.length_bytes = sizeof(struct ptlrpc_hdr) + rpc->body_bytes_max,
                               .options = LNET_MD_OP_PUT | LNET_MD_PEEK | LNET_MD_ACK_DISABLE,
                               .threshold = -1,
                               .handler = ptlrpc_reply_event,
                               .user = rpc};

    return lnet_md_attach(rpc->ctx, &match, &md, &rpc->reply_md);
}

/* The options, with the defaults filled in; false if they are out of range. */
static bool
options_apply(struct ptlrpc *rpc, const struct ptlrpc_options *options)
{
    rpc->requests_max = REQUESTS_DEFAULT;
    rpc->imports_max = IMPORTS_DEFAULT;
    rpc->timeout_ns = TIMEOUT_DEFAULT_NS;
    if (options == NULL) {
        return true;
    }
    if (options->struct_bytes < sizeof(*options)) {
        return false;
    }
    rpc->requests_max = options->requests_max > 0 ? options->requests_max : rpc->requests_max;
    rpc->imports_max = options->imports_max > 0 ? options->imports_max : rpc->imports_max;
    rpc->timeout_ns = options->timeout_ns > 0 ? options->timeout_ns : rpc->timeout_ns;
    rpc->log = (struct base_log){
        .write = options->log, .arg = options->log_arg, .level_max = options->log_level};
    return (uint64_t)rpc->requests_max + rpc->imports_max <= PTLRPC_XID_INDEX_MAX;
}

int
ptlrpc_open(struct lnet *ctx, struct bulk *bulk, const struct ptlrpc_options *options,
            struct ptlrpc **rpc_out)
{
    struct lnet_limits limits;
    int rc = -EINVAL;
    struct ptlrpc *rpc = calloc(1, sizeof(*rpc));

    if (rpc == NULL) {
        return -ENOMEM;
    }
    lnet_limits_get(ctx, &limits);
    if (!options_apply(rpc, options) ||
        limits.put_bytes_max < sizeof(struct ptlrpc_hdr) + BODY_BYTES_LEAST) {
        goto fail_free;
    }
    rpc->ctx = ctx;
    rpc->bulk = bulk;
    rpc->body_bytes_max = (uint32_t)base_min_u64(PTLRPC_BODY_BYTES_MAX,
                                                 limits.put_bytes_max - sizeof(struct ptlrpc_hdr));
    /* Xids of one process must not be those of its predecessor under the same address. */
    rpc->xid_count = lnet_random(ctx) >> (PTLRPC_XID_INDEX_BITS + 1);
    base_list_init(&rpc->import_list);
    base_list_init(&rpc->ending);
    base_list_init(&rpc->cancelled);
    rc = client_init(rpc);
    if (rc != 0) {
        goto fail_free;
    }
    rpc->timer.fn = ptlrpc_tick;
    rpc->timer.arg = rpc;
    rpc->timer_ns = PTLRPC_NEVER;
    rc = lnet_timer_arm(ctx, &rpc->timer, PTLRPC_NEVER);
    if (rc != 0) {
        goto fail_free;
    }
    rc = replies_attach(rpc);
    if (rc != 0) {
        goto fail_timer;
    }
    rpc->watch.fn = ptlrpc_peer_event;
    rpc->watch.arg = rpc;
    lnet_peer_watch_add(ctx, &rpc->watch);
    *rpc_out = rpc;
    return 0;

fail_timer:
    lnet_timer_cancel(ctx, &rpc->timer);
fail_free:
    rpc_free(rpc);
    return rc;
}

void
ptlrpc_free_if_idle(struct ptlrpc *rpc)
{
    for (uint32_t i = 0; i < LNET_PORTALS; i++) {
        if (rpc->services[i] != NULL && rpc->services[i]->active > 0) {
            return;
        }
    }
    for (uint32_t i = 0; i < LNET_PORTALS; i++) {
        if (rpc->services[i] != NULL) {
            ptlrpc_service_free(rpc->services[i]);
        }
    }
    rpc_free(rpc);
}

void
ptlrpc_close(struct ptlrpc *rpc)
{
    BASE_LIST_FOREACH(link, &rpc->import_list) {
        ptlrpc_import_abort(BASE_CONTAINER_OF(link, struct ptlrpc_import, link));
    }
    /* Handlers may answer requests, or cancel others, when theirs end: until nothing is left. */
    while (!base_list_empty(&rpc->ending) || !base_list_empty(&rpc->cancelled)) {
        ptlrpc_req_tell_all(rpc);
    }
    BASE_LIST_FOREACH_SAFE(link, next, &rpc->import_list) {
        ptlrpc_import_finish(BASE_CONTAINER_OF(link, struct ptlrpc_import, link));
    }
    for (uint32_t i = 0; i < LNET_PORTALS; i++) {
        if (rpc->services[i] != NULL) {
            ptlrpc_service_close(rpc->services[i]);
        }
    }
    lnet_peer_watch_del(rpc->ctx, &rpc->watch);
    (void)lnet_md_unlink(rpc->ctx, rpc->reply_md);
    lnet_timer_cancel(rpc->ctx, &rpc->timer);
    rpc->is_closed = true;
    ptlrpc_free_if_idle(rpc);
}

struct lnet *
ptlrpc_lnet(const struct ptlrpc *rpc)
{
    return rpc->ctx;
}

struct bulk *
ptlrpc_bulk(const struct ptlrpc *rpc)
{
    return rpc->bulk;
}

uint32_t
ptlrpc_body_bytes_max(const struct ptlrpc *rpc)
{
    return rpc->body_bytes_max;
}
