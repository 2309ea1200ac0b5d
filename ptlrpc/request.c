/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client's requests: from ptlrpc_request_take() to done().
 *
 * The reply of a request is found by the place that its xid names, and taken only if the whole xid
 * and the peer are right, so a late or invented reply reaches nobody. A reply is copied out of the
 * network's memory before any of it is believed.
 */
#include "ptlrpc/request.h"
#include "ptlrpc/import.h"

#include <errno.h>
#include <string.h>

/* Pause after the first BUSY reply; doubles up to BUSY_SHIFT_MAX times. */
#define BUSY_PAUSE_NS  UINT64_C(100000)
#define BUSY_SHIFT_MAX 7u

/* Pause after lnet had no room for a message. */
#define STALLED_PAUSE_NS UINT64_C(1000000)

/* ---- sending -------------------------------------------------------------------------------- */

int
ptlrpc_req_put(struct ptlrpc_request *req)
{
    const struct ptlrpc_import *import = req->import;
    const struct lnet_target target = {
        .peer = import->peer, .portal = import->portal, .match_bits = req->msg->xid};

    return lnet_put_inline(import->rpc->ctx, &target, req->msg,
                           (uint32_t)sizeof(*req->msg) + req->msg->u.request.body_bytes);
}

/* Takes the oldest report that waits along with the message @hdr. */
static inline void
report_attach(struct ptlrpc_import *import, struct ptlrpc_hdr *hdr)
{
    if (import->report_head == import->report_tail) {
        return;
    }
    const struct ptlrpc_report *report =
        &import->reports[import->report_head++ & import->report_mask];

    hdr->u.request.report_opc = report->opc;
    hdr->u.request.report_total_ns = report->total_ns;
    hdr->u.request.report_wait_ns = report->wait_ns;
}

/* Keeps the times of @req, which is answered, for a later request to carry. */
static inline void
report_add(struct ptlrpc_import *import, const struct ptlrpc_request *req)
{
    const struct ptlrpc_stages *stages = &req->stages;

    BASE_ASSERT(import->report_tail - import->report_head <= import->report_mask); /* I4 */
    import->reports[import->report_tail++ & import->report_mask] = (struct ptlrpc_report){
        .opc = req->msg->opc,
        .total_ns = ptlrpc_saturate(stages->received - stages->queued),
        .wait_ns = ptlrpc_saturate(stages->sent - stages->queued),
    };
}

/*
 * First try of @req, NEW or DELAYED, in a free slot of the connected import; it was sent at @stamp.
 * On error nothing has changed, but the message's header.
 */
static int
req_send(struct ptlrpc_request *req, uint64_t stamp)
{
    struct ptlrpc_import *import = req->import;
    struct ptlrpc *rpc = import->rpc;
    struct ptlrpc_hdr *hdr = req->msg;
    const uint16_t slot = import->free_slots[import->free_count - 1];
    const uint16_t opc = hdr->opc;
    const uint32_t body_bytes = hdr->u.request.body_bytes;
    const uint32_t report_head = import->report_head;

    *hdr = import->template;
    hdr->opc = opc;
    hdr->xid = (++rpc->xid_count << PTLRPC_XID_INDEX_BITS) | req->index;
    hdr->u.request.body_bytes = body_bytes;
    hdr->u.request.slot = slot;
    report_attach(import, hdr);

    const int rc = ptlrpc_req_put(req);

    if (BASE_UNLIKELY(rc != 0)) {
        import->report_head = report_head;
        return rc;
    }
    const uint64_t now_ns = lnet_now(rpc->ctx);

    import->free_count--;
    import->slots[slot] = req;
    rpc->xids[req->index] = hdr->xid;
    req->slot = slot;
    req->tries = 1;
    req->stages.sent = stamp;
    req->deadline_ns = now_ns + import->timeout_ns;
    req->final_ns = now_ns + import->total_ns;
    ptlrpc_req_move(&req->state, PTLRPC_REQ_SENT);
    import->sent_count++;
    if (ptlrpc_import_in_flight(import) > import->in_flight_max) {
        import->in_flight_max = ptlrpc_import_in_flight(import);
    }
    ptlrpc_timer_at(rpc, req->deadline_ns);
    return 0;
}

/* lnet would not take a message now: try again a little later. */
static void
import_stall(struct ptlrpc_import *import)
{
    import->stalled_ns = lnet_now(import->rpc->ctx) + STALLED_PAUSE_NS;
    ptlrpc_timer_at(import->rpc, import->stalled_ns);
}

void
ptlrpc_req_kick(struct ptlrpc_import *import)
{
    const uint64_t stamp = base_list_empty(&import->waiting) ? 0 : lnet_stamp(import->rpc->ctx);

    while (import->free_count > 0 && !base_list_empty(&import->waiting) &&
           import->state == PTLRPC_IMP_FULL) {
        struct ptlrpc_request *req =
            BASE_CONTAINER_OF(base_list_first(&import->waiting), struct ptlrpc_request, link);
        const int rc = req_send(req, stamp);

        if (rc == -EAGAIN) {
            import_stall(import);
            return;
        }
        if (rc != 0) {
            ptlrpc_req_end(req, -ENOTCONN);
            continue;
        }
        base_list_unlink(&req->link);
        import->waiting_count--;
    }
}

void
ptlrpc_req_resend(struct ptlrpc_request *req)
{
    struct ptlrpc_import *import = req->import;
    struct ptlrpc_hdr *hdr = req->msg;

    hdr->flags |= PTLRPC_HDR_RESENT;
    hdr->handle = import->template.handle;
    hdr->u.request.generation = import->generation;
    /* A message that lnet has no room for is one that was lost: the next try makes it good. */
    (void)ptlrpc_req_put(req);
    import->resend_count++;
    req->deadline_ns = lnet_now(import->rpc->ctx) + import->timeout_ns;
    if (req->state == PTLRPC_REQ_RESEND) {
        ptlrpc_req_move(&req->state, PTLRPC_REQ_SENT);
    }
    ptlrpc_timer_at(import->rpc, req->deadline_ns);
}

/* ---- ends ----------------------------------------------------------------------------------- */

void
ptlrpc_req_release(struct ptlrpc_request *req)
{
    struct ptlrpc_import *import = req->import;

    BASE_ASSERT(import->slots[req->slot] == req); /* I2 */
    import->rpc->xids[req->index] = 0;
    import->slots[req->slot] = NULL;
    import->free_slots[import->free_count++] = req->slot;
}

static void
req_free(struct ptlrpc_request *req)
{
    ptlrpc_req_move(&req->state, PTLRPC_REQ_FREE);
    base_pool_return(&req->import->rpc->requests, req);
}

/* Tells the end of @req to whoever waits. @req is on no list. */
static void
req_tell(struct ptlrpc_request *req, int status, const void *body, uint32_t bytes)
{
    const ptlrpc_done_fn done = req->done;

    if (done != NULL) {
        req->done = NULL;
        done(req, status, body, bytes, req->user);
    }
}

void
ptlrpc_req_end(struct ptlrpc_request *req, int status)
{
    struct ptlrpc *rpc = req->import->rpc;

    switch ((enum ptlrpc_req_state)req->state) {
    case PTLRPC_REQ_DELAYED:
        req->import->waiting_count--;
        break;
    case PTLRPC_REQ_SENT:
    case PTLRPC_REQ_RESEND:
        ptlrpc_req_release(req);
        break;
    case PTLRPC_REQ_ENDING:
        return;
    case PTLRPC_REQ_FREE:
    case PTLRPC_REQ_NEW:
        BASE_UNREACHABLE();
    }
    const bool is_cancelled =
        req->state != PTLRPC_REQ_DELAYED && !base_list_empty(&req->link); /* and not told yet */

    req->status = is_cancelled ? -ECANCELED : status;
    base_list_unlink(&req->link);
    ptlrpc_req_move(&req->state, PTLRPC_REQ_ENDING);
    base_list_append(&rpc->ending, &req->link);
    ptlrpc_timer_at(rpc, lnet_now(rpc->ctx));
}

void
ptlrpc_req_tell_all(struct ptlrpc *rpc)
{
    struct base_list due;

    /* Only what is there now: a callback may send and cancel for ever. */
    base_list_init(&due);
    base_list_move_all(&due, &rpc->cancelled);
    while (!base_list_empty(&due)) {
        struct ptlrpc_request *req =
            BASE_CONTAINER_OF(base_list_first(&due), struct ptlrpc_request, link);

        base_list_unlink(&req->link);
        req_tell(req, -ECANCELED, NULL, 0);
    }
    base_list_move_all(&due, &rpc->ending);
    while (!base_list_empty(&due)) {
        struct ptlrpc_request *req =
            BASE_CONTAINER_OF(base_list_first(&due), struct ptlrpc_request, link);

        base_list_unlink(&req->link);
        req_tell(req, req->status, NULL, 0);
        req_free(req);
    }
}

/* ---- the reply ------------------------------------------------------------------------------ */

/* The server had no room: the same message again after a pause. */
static void
req_on_busy(struct ptlrpc_request *req)
{
    const uint64_t now_ns = lnet_now(req->import->rpc->ctx);
    const uint32_t shift = base_min_u32(req->busy_count, BUSY_SHIFT_MAX);

    if (req->state != PTLRPC_REQ_SENT) {
        return; /* of an earlier try */
    }
    ptlrpc_req_move(&req->state, PTLRPC_REQ_RESEND);
    req->busy_count = (uint8_t)(shift + 1);
    req->deadline_ns = now_ns + (BUSY_PAUSE_NS << shift);
    ptlrpc_timer_at(req->import->rpc, req->deadline_ns);
}

/* A reply with flags: none of these is the end of @req. */
static void
req_on_flags(struct ptlrpc_request *req, uint32_t flags)
{
    if ((flags & PTLRPC_HDR_NO_EXPORT) != 0) {
        ptlrpc_import_evict(req->import);
    } else if ((flags & PTLRPC_HDR_BUSY) != 0) {
        req_on_busy(req);
    } else if ((flags & PTLRPC_HDR_EARLY) != 0) {
        req->deadline_ns = lnet_now(req->import->rpc->ctx) + req->import->timeout_ns;
    }
}

/* @req is answered: @bytes of body are in its message. Calls done(); @req is gone afterwards. */
static void
req_on_reply(struct ptlrpc_request *req, const struct ptlrpc_hdr *reply, uint32_t bytes)
{
    struct ptlrpc_import *import = req->import;
    struct ptlrpc_stages *stages = &req->stages;

    stages->received = lnet_stamp(import->rpc->ctx);
    stages->server_queue_ns = reply->u.reply.queue_ns;
    stages->server_service_ns = reply->u.reply.service_ns;
    stages->server_bulk_ns = reply->u.reply.bulk_ns;
    stages->server_store_ns = reply->u.reply.store_ns;

    ptlrpc_req_release(req);
    import->reply_count++;
    report_add(import, req);
    if (BASE_UNLIKELY(!base_list_empty(&import->waiting))) {
        ptlrpc_req_kick(import); /* before done(): who waits is served before who comes now */
    }
    if (BASE_UNLIKELY(!base_list_empty(&req->link))) {
        base_list_unlink(&req->link); /* cancelled, and the reply was faster than the tick */
    }
    req_tell(req, reply->u.reply.status, req->msg + 1, bytes);
    req_free(req);
}

/* The request that waits for a reply with @xid from @peer, or NULL. */
static struct ptlrpc_request *
reply_find(struct ptlrpc *rpc, uint64_t xid, const struct lnet_peer *peer)
{
    const uint32_t index = (uint32_t)xid & (PTLRPC_XID_INDEX_MAX - 1);
    struct ptlrpc_request *req = NULL;

    if (index >= rpc->requests_max + rpc->imports_max || rpc->xids[index] != xid || xid == 0) {
        return NULL;
    }
    req = BASE_LIKELY(index < rpc->requests_max) ? base_pool_at(&rpc->requests, index)
                                                 : &rpc->imports[index - rpc->requests_max]->own;
    return req->import->peer == peer ? req : NULL;
}

/* Whether the header of a reply to @req with @body_bytes_max room makes sense. */
static bool
reply_is_sound(const struct ptlrpc_request *req, const struct ptlrpc_hdr *reply, uint64_t bytes,
               uint32_t body_bytes_max)
{
    return reply->version == PTLRPC_HDR_VERSION && reply->type == PTLRPC_HDR_REPLY &&
           reply->opc == req->msg->opc && reply->xid == req->msg->xid &&
           reply->u.reply.body_bytes == bytes - sizeof(*reply) &&
           reply->u.reply.body_bytes <= body_bytes_max && reply->u.reply.status <= 0 &&
           reply->u.reply.status > -4096;
}

static void
reply_refuse(struct ptlrpc_request *req, const struct ptlrpc_hdr *reply)
{
    struct ptlrpc *rpc = req->import->rpc;

    rpc->bad_reply_count++;
    base_log_printf(&rpc->log, BASE_LOG_WARN, "ptlrpc",
                    "import %s: EPROTO: bad reply to op %u: version %u, type %u", req->import->name,
                    req->msg->opc, reply->version, reply->type);
    if (req == &req->import->own) {
        const struct ptlrpc_hdr refusal = {.u.reply.status = -EPROTO};

        ptlrpc_import_own_reply(req->import, &refusal, 0);
        return;
    }
    ptlrpc_req_end(req, -EPROTO);
}

void
ptlrpc_reply_event(struct lnet *ctx, const struct lnet_event *event)
{
    struct ptlrpc *rpc = event->user;
    struct ptlrpc_request *req = NULL;
    struct ptlrpc_hdr reply;

    (void)ctx;
    if (BASE_UNLIKELY(event->type != LNET_EV_PUT || event->status != 0)) {
        return; /* unlinked by ptlrpc_close(): rpc is gone */
    }
    req = reply_find(rpc, event->match_bits, event->peer);
    if (BASE_UNLIKELY(req == NULL || event->moved_bytes < sizeof(reply))) {
        rpc->late_reply_count++;
        return;
    }
    (void)memcpy(&reply, event->data, sizeof(reply));
    __asm__ volatile("" ::: "memory"); /* a peer may change its bytes: they are read once */

    const bool is_own = req->index >= rpc->requests_max;
    const uint32_t bytes_max = is_own ? PTLRPC_CONNECT_REPLY_BYTES_MAX : rpc->body_bytes_max;
    const uint32_t bytes = reply.u.reply.body_bytes;

    if (BASE_UNLIKELY(!reply_is_sound(req, &reply, event->moved_bytes, bytes_max))) {
        reply_refuse(req, &reply);
        return;
    }
    if (BASE_UNLIKELY(is_own)) {
        (void)memcpy(req->msg + 1, (const unsigned char *)event->data + sizeof(reply), bytes);
        ptlrpc_import_own_reply(req->import, &reply, bytes);
        return;
    }
    if (BASE_UNLIKELY(reply.flags != 0)) {
        req_on_flags(req, reply.flags);
        return;
    }
    if (BASE_UNLIKELY(req->done == NULL)) {
        req->import->late_reply_count++; /* cancelled: nobody may see what would be copied */
    } else {
        (void)memcpy(req->msg + 1, (const unsigned char *)event->data + sizeof(reply), bytes);
    }
    req_on_reply(req, &reply, bytes);
}

/* ---- public --------------------------------------------------------------------------------- */

struct ptlrpc_request *
ptlrpc_request_take(struct ptlrpc_import *import, uint16_t opc)
{
    struct ptlrpc_request *req = base_pool_take(&import->rpc->requests);

    if (BASE_UNLIKELY(req == NULL)) {
        return NULL;
    }
    ptlrpc_req_move(&req->state, PTLRPC_REQ_NEW);
    req->import = import;
    req->busy_count = 0;
    req->msg->opc = opc;
    return req;
}

void *
ptlrpc_request_body(struct ptlrpc_request *request)
{
    return request->msg + 1;
}

/* Why @request with a body of @bytes can't be sent at all, or 0. */
static int
request_check(const struct ptlrpc_request *request, uint32_t bytes)
{
    const struct ptlrpc_import *import = request->import;

    if (bytes > import->rpc->body_bytes_max) {
        return -EMSGSIZE;
    }
    if (import->is_closing) {
        return -ENOTCONN;
    }
    return import->state == PTLRPC_IMP_EVICTED ? -ESTALE : 0;
}

int
ptlrpc_request_send(struct ptlrpc_request *request, uint32_t bytes, ptlrpc_done_fn done, void *user)
{
    struct ptlrpc_import *import = request->import;
    struct ptlrpc *rpc = import->rpc;
    const int rc = request_check(request, bytes);

    BASE_ASSERT(request->state == PTLRPC_REQ_NEW);
    if (BASE_UNLIKELY(rc != 0)) {
        req_free(request);
        return rc;
    }
    request->done = done;
    request->user = user;
    request->msg->u.request.body_bytes = bytes;
    request->stages.queued = lnet_stamp(rpc->ctx);
    if (BASE_LIKELY(import->state == PTLRPC_IMP_FULL && import->free_count > 0 &&
                    base_list_empty(&import->waiting))) {
        if (BASE_LIKELY(req_send(request, request->stages.queued) == 0)) {
            return 0;
        }
        import_stall(import);
    }
    ptlrpc_req_move(&request->state, PTLRPC_REQ_DELAYED);
    base_list_append(&import->waiting, &request->link);
    import->waiting_count++;
    if (import->waiting_count > import->waiting_max) {
        import->waiting_max = import->waiting_count;
    }
    request->tries = 1;
    request->final_ns = lnet_now(rpc->ctx) + import->total_ns;
    ptlrpc_timer_at(rpc, request->final_ns);
    ptlrpc_import_want(import);
    return 0;
}

void
ptlrpc_request_drop(struct ptlrpc_request *request)
{
    BASE_ASSERT(request->state == PTLRPC_REQ_NEW);
    req_free(request);
}

void
ptlrpc_request_cancel(struct ptlrpc_request *request)
{
    struct ptlrpc *rpc = request->import->rpc;

    switch ((enum ptlrpc_req_state)request->state) {
    case PTLRPC_REQ_DELAYED:
        ptlrpc_req_end(request, -ECANCELED);
        return;
    case PTLRPC_REQ_SENT:
    case PTLRPC_REQ_RESEND:
        if (base_list_empty(&request->link)) {
            base_list_append(&rpc->cancelled, &request->link);
            ptlrpc_timer_at(rpc, lnet_now(rpc->ctx));
        }
        return;
    case PTLRPC_REQ_ENDING:
        return;
    case PTLRPC_REQ_FREE:
    case PTLRPC_REQ_NEW:
        break;
    }
    BASE_UNREACHABLE();
}

const struct ptlrpc_stages *
ptlrpc_request_stages(const struct ptlrpc_request *request)
{
    return &request->stages;
}
