/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exports: a service's view of its clients.
 *
 * An export is named by a cookie, an index and a serial number that is never used again, and is
 * good for one peer and one incarnation of an import. It outlives its connection by reconnect_ms,
 * so that a client that lost only the connection finds its slots, and with them the answers to what
 * it has to send again.
 *
 * The memory of an export is allocated when the client connects: slots as many as it asks for, each
 * with room for a small reply. Larger replies of ops that must not be executed twice are kept in
 * memory that the slot gets then and has until the export ends: at most slots times the largest
 * message.
 */
#include "ptlrpc/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One peer can't take the places of all others. */
#define PEER_EXPORTS_MAX 16u

#define SLOT_REPLY_BYTES (sizeof(struct ptlrpc_hdr) + PTLRPC_SLOT_BODY_BYTES)

/* ---- slots ------------------------------------------------------------------------------------
 */

/* Whether the slot's room is its own and not part of the export's. */
static bool
slot_room_is_own(const struct ptlrpc_slot *slot)
{
    return slot->reply_bytes_max > SLOT_REPLY_BYTES;
}

struct ptlrpc_hdr *
ptlrpc_slot_room(struct ptlrpc_slot *slot, uint32_t bytes)
{
    /* As large as any message, so that this happens once; what is not used is not touched. */
    const uint32_t bytes_max = (uint32_t)sizeof(struct ptlrpc_hdr) + PTLRPC_BODY_BYTES_MAX;
    struct ptlrpc_hdr *room = NULL;

    BASE_ASSERT(bytes <= bytes_max);
    BASE_ASSERT(!slot_room_is_own(slot));
    room = malloc(bytes_max);
    if (room != NULL) {
        slot->reply = room;
        slot->reply_bytes_max = bytes_max;
    }
    return room;
}

/* ---- making and ending ------------------------------------------------------------------------
 */

static void
export_free(struct ptlrpc_export *export)
{
    struct ptlrpc_service *service = export->service;

    for (uint32_t i = 0; i < export->slot_count; i++) {
        if (slot_room_is_own(&export->slots[i])) {
            free(export->slots[i].reply);
        }
    }
    base_list_unlink(&export->link);
    service->exports[export->index] = NULL;
    service->export_count--;
    lnet_peer_put(export->peer);
    free(export->connect_reply);
    free(export->slot_memory);
    free(export->slots);
    free(export);
}

/* A free index, or exports_max. */
static uint32_t
index_find(struct ptlrpc_service *service)
{
    uint32_t index = 0;

    if (service->exports_used < service->exports_max) {
        return service->exports_used++;
    }
    while (index < service->exports_max && service->exports[index] != NULL) {
        index++;
    }
    return index;
}

/* Makes the export of an import that connects. NULL: exports_max, or no memory. */
static struct ptlrpc_export *
export_create(struct ptlrpc_service *service, const struct ptlrpc_hdr *hdr, struct lnet_peer *peer)
{
    const uint32_t slot_count = hdr->u.request.slot;
    const uint32_t index =
        service->export_count < service->exports_max ? index_find(service) : service->exports_max;

    if (index == service->exports_max) {
        return NULL;
    }
    struct ptlrpc_export *export = calloc(1, sizeof(*export));

    if (export == NULL) {
        return NULL;
    }
    export->slots = calloc(slot_count, sizeof(export->slots[0]));
    export->slot_memory = aligned_alloc(BASE_CACHE_LINE, slot_count * SLOT_REPLY_BYTES);
    if (export->slots == NULL || export->slot_memory == NULL) {
        free(export->slot_memory);
        free(export->slots);
        free(export);
        return NULL;
    }
    for (uint32_t i = 0; i < slot_count; i++) {
        export->slots[i].reply =
            (struct ptlrpc_hdr *)(void *)(export->slot_memory + i * SLOT_REPLY_BYTES);
        export->slots[i].reply_bytes_max = SLOT_REPLY_BYTES;
    }
    export->service = service;
    export->slot_count = slot_count;
    export->cookie = (++service->serial << 16) | index;
    export->index = index;
    export->incarnation = hdr->u.request.incarnation;
    export->generation = hdr->u.request.generation;
    export->lost_ns = PTLRPC_NEVER;
    export->peer = peer;
    lnet_peer_hold(peer);
    base_list_init(&export->rqs);
    base_list_init(&export->link);
    base_list_append(&service->export_list, &export->link);
    service->exports[index] = export;
    service->export_count++;
    return export;
}

void
ptlrpc_export_destroy(struct ptlrpc_export *export, int reason)
{
    struct ptlrpc_service *service = export->service;

    export->is_evicted = true;
    while (!base_list_empty(&export->rqs)) {
        struct ptlrpc_rq *rq =
            BASE_CONTAINER_OF(base_list_first(&export->rqs), struct ptlrpc_rq, link);

        base_list_unlink(&rq->link);
        rq->export = NULL;
        rq->slot = NULL;
        export->active--;
    }
    BASE_ASSERT(export->active == 0); /* I4 */
    if (service->options.disconnected != NULL) {
        service->options.disconnected(service, export, reason);
    }
    export_free(export);
}

/* ---- CONNECT ----------------------------------------------------------------------------------
 */

/*
 * The export of the import that @hdr comes from, if there is one; and how many its peer has of this
 * service.
 */
static struct ptlrpc_export *
export_of_import(const struct ptlrpc_service *service, const struct ptlrpc_hdr *hdr,
                 const struct lnet_peer *peer, uint32_t *peer_count_out)
{
    *peer_count_out = 0;
    BASE_LIST_FOREACH(link, &service->export_list) {
        struct ptlrpc_export *export = BASE_CONTAINER_OF(link, struct ptlrpc_export, link);

        if (export->peer != peer) {
            continue;
        }
        (*peer_count_out)++;
        if (export->incarnation == hdr->u.request.incarnation && !export->is_evicted) {
            return export;
        }
    }
    return NULL;
}

/* Answers the CONNECT @rq of a known import. */
static void
connect_again(struct ptlrpc_rq *rq, struct ptlrpc_export *export, struct lnet_peer *peer)
{
    if (rq->hdr.u.request.generation < export->generation) {
        rq->service->stale_count++;
        ptlrpc_rq_free(rq);
        return;
    }
    export->generation = rq->hdr.u.request.generation;
    export->lost_ns = PTLRPC_NEVER;
    (void)memcpy(rq->reply + 1, export->connect_reply, export->connect_reply_bytes);
    ptlrpc_rq_answer(rq, peer, 0, export->cookie, 0, export->connect_reply_bytes);
}

/* Asks the service whether it wants @export, and keeps its answer. Errors: the service's. */
static int
connect_ask(struct ptlrpc_rq *rq, struct ptlrpc_export *export)
{
    struct ptlrpc_service *service = rq->service;
    uint32_t bytes = 0;
    int rc = 0;

    if (service->options.connected != NULL) {
        rc = service->options.connected(service, export, rq->body, rq->hdr.u.request.body_bytes,
                                        rq->reply + 1, &bytes);
    }
    if (rc != 0) {
        return rc;
    }
    BASE_ASSERT(bytes <= PTLRPC_CONNECT_REPLY_BYTES_MAX);
    export->connect_reply = malloc(base_max_u32(bytes, 1));
    if (export->connect_reply == NULL) {
        return -ENOMEM;
    }
    (void)memcpy(export->connect_reply, rq->reply + 1, bytes);
    export->connect_reply_bytes = bytes;
    return 0;
}

void
ptlrpc_export_connect(struct ptlrpc_rq *rq, struct lnet_peer *peer)
{
    struct ptlrpc_service *service = rq->service;
    const struct ptlrpc_hdr *hdr = &rq->hdr;
    uint32_t peer_count = 0;
    struct ptlrpc_export *export = export_of_import(service, hdr, peer, &peer_count);

    if (hdr->u.request.slot == 0 || hdr->u.request.slot > PTLRPC_SLOTS_MAX ||
        hdr->u.request.incarnation == 0 || hdr->u.request.body_bytes > PTLRPC_CONNECT_BYTES_MAX) {
        service->refused_count++;
        ptlrpc_rq_answer(rq, peer, 0, 0, -EPROTO, 0);
        return;
    }
    if (export != NULL) {
        connect_again(rq, export, peer);
        return;
    }
    if (hdr->handle != 0) {
        ptlrpc_rq_answer(rq, peer, PTLRPC_HDR_NO_EXPORT, 0, 0, 0);
        return;
    }
    export = peer_count < PEER_EXPORTS_MAX ? export_create(service, hdr, peer) : NULL;
    if (export == NULL) {
        ptlrpc_rq_answer(rq, peer, 0, 0, -EAGAIN, 0);
        return;
    }
    const int rc = connect_ask(rq, export);

    if (rc != 0) {
        export_free(export);
        ptlrpc_rq_answer(rq, peer, 0, 0, rc, 0);
        return;
    }
    ptlrpc_rq_answer(rq, peer, 0, export->cookie, 0, export->connect_reply_bytes);
}

/* ---- losing clients ---------------------------------------------------------------------------
 */

void
ptlrpc_export_peer_event(struct ptlrpc_service *service, struct lnet_peer *peer, int status)
{
    const uint64_t lost_ns = lnet_now(service->rpc->ctx) + service->reconnect_ns;

    if (status == 0) {
        return; /* its CONNECT says whether it still is the one that we knew */
    }
    BASE_LIST_FOREACH(link, &service->export_list) {
        struct ptlrpc_export *export = BASE_CONTAINER_OF(link, struct ptlrpc_export, link);

        if (export->peer == peer && export->lost_ns == PTLRPC_NEVER) {
            export->lost_ns = lost_ns;
            ptlrpc_timer_at(service->rpc, lost_ns);
        }
    }
}

uint64_t
ptlrpc_export_tick(struct ptlrpc_service *service, uint64_t now_ns, uint64_t late_ns)
{
    const bool was_absent = late_ns > service->reconnect_ns / 4;
    uint64_t next_ns = PTLRPC_NEVER;

    BASE_LIST_FOREACH_SAFE(link, next, &service->export_list) {
        struct ptlrpc_export *export = BASE_CONTAINER_OF(link, struct ptlrpc_export, link);

        if (BASE_UNLIKELY(was_absent && export->lost_ns <= now_ns)) {
            export->lost_ns = now_ns + service->reconnect_ns; /* its CONNECT may be here already */
        }
        if (export->is_evicted) {
            ptlrpc_export_destroy(export, export->evict_reason);
        } else if (export->lost_ns <= now_ns) {
            ptlrpc_export_destroy(export, -ECONNRESET);
        } else {
            next_ns = base_min_u64(next_ns, export->lost_ns);
        }
    }
    return next_ns;
}

/* ---- public -----------------------------------------------------------------------------------
 */

void
ptlrpc_export_evict(struct ptlrpc_export *export, int reason)
{
    struct ptlrpc *rpc = export->service->rpc;

    if (export->is_evicted) {
        return;
    }
    export->is_evicted = true;
    export->evict_reason = reason;
    base_log_printf(&rpc->log, BASE_LOG_INFO, "ptlrpc", "service %s: client evicted: %s",
                    export->service->name, base_errno_name(reason));
    ptlrpc_timer_at(rpc, lnet_now(rpc->ctx));
}

void
ptlrpc_export_user_set(struct ptlrpc_export *export, void *user)
{
    export->user = user;
}

void *
ptlrpc_export_user(const struct ptlrpc_export *export)
{
    return export->user;
}

struct lnet_peer *
ptlrpc_export_peer(const struct ptlrpc_export *export)
{
    return export->peer;
}
