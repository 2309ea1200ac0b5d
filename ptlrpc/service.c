/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Services: what happens to a request at the server.
 *
 * A handler runs straight from the upcall that brought its message: no queue, so requests start in
 * the order in which they arrived, and while one is looked at the others wait in the network, where
 * credits bound them. Handlers that can't answer at once keep the rq.
 *
 * When no rq is free, or a client that holds its share of them comes when they are scarce, the
 * answer is BUSY: nothing was looked at, the client sends the same message again a little later.
 *
 * Exactly once: a request names a slot of its export. A larger xid than the slot's is a new request
 * and says that the client has the reply before it. The same xid is a resend: dropped while the
 * first copy is being executed, else answered by the kept reply, or executed again if none was kept
 * because the op is idempotent. A smaller one is late and dropped.
 */
#include "ptlrpc/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RQS_DEFAULT          1024u
#define EXPORTS_DEFAULT      4096u
#define EXPORTS_LIMIT        65536u
#define RECONNECT_DEFAULT_MS 1000u
#define NS_PER_MS            UINT64_C(1000000)
#define UNSENT_PAUSE_NS      UINT64_C(1000000)

#define REQUEST_FLAGS (PTLRPC_HDR_RESENT | PTLRPC_HDR_REPLAY | PTLRPC_HDR_NO_REPLY)

/* ---- replies ----------------------------------------------------------------------------------
 */

void
ptlrpc_rq_free(struct ptlrpc_rq *rq)
{
    base_pool_return(&rq->service->rqs, rq);
}

/* Sends the reply of @rq, @bytes with its header; frees @rq, now or when lnet has room. */
static inline void
reply_send(struct ptlrpc_rq *rq, struct lnet_peer *peer, uint32_t bytes)
{
    struct ptlrpc_service *service = rq->service;
    const struct lnet_target target = {
        .peer = peer, .portal = PTLRPC_PORTAL_REPLY, .match_bits = rq->reply->xid};
    const int rc = lnet_put_inline(service->rpc->ctx, &target, rq->reply, bytes);

    if (BASE_UNLIKELY(rc == -EAGAIN)) {
        lnet_peer_hold(peer);
        rq->unsent_peer = peer;
        rq->unsent_bytes = bytes;
        base_list_append(&service->unsent, &rq->link);
        ptlrpc_timer_at(service->rpc, lnet_now(service->rpc->ctx) + UNSENT_PAUSE_NS);
        return;
    }
    if (BASE_UNLIKELY(rc != 0)) {
        service->reply_drop_count++; /* the client sends its request again, or is gone */
    }
    ptlrpc_rq_free(rq);
}

void
ptlrpc_rq_answer(struct ptlrpc_rq *rq, struct lnet_peer *peer, uint32_t flags, uint64_t handle,
                 int status, uint32_t bytes)
{
    *rq->reply = (struct ptlrpc_hdr){
        .version = PTLRPC_HDR_VERSION,
        .type = PTLRPC_HDR_REPLY,
        .opc = rq->hdr.opc,
        .flags = flags,
        .xid = rq->hdr.xid,
        .handle = handle,
        .u.reply = {.body_bytes = bytes, .status = status},
    };
    reply_send(rq, peer, (uint32_t)sizeof(*rq->reply) + bytes);
}

/* The reply of @slot's request once more. */
static void
slot_resend(struct ptlrpc_rq *rq, const struct ptlrpc_slot *slot, struct lnet_peer *peer)
{
    rq->op->resent_count++;
    (void)memcpy(rq->reply, slot->reply, slot->reply_bytes);
    reply_send(rq, peer, slot->reply_bytes);
}

/* Keeps the reply of @rq in @slot. False: there is no memory for it. */
static bool
slot_keep(struct ptlrpc_slot *slot, const struct ptlrpc_rq *rq, uint32_t bytes)
{
    struct ptlrpc_hdr *room = BASE_LIKELY(slot->reply != NULL && bytes <= slot->reply_bytes_max)
                                  ? slot->reply
                                  : ptlrpc_slot_room(slot, bytes);

    if (BASE_UNLIKELY(room == NULL)) {
        return false;
    }
    (void)memcpy(room, rq->reply, bytes);
    slot->reply_bytes = bytes;
    return true;
}

/* @rq was answered; its export is gone or its client wants the answer no more. */
static void
reply_drop(struct ptlrpc_rq *rq)
{
    struct ptlrpc *rpc = rq->service->rpc;

    rq->service->reply_drop_count++;
    ptlrpc_rq_free(rq);
    if (BASE_UNLIKELY(rpc->is_closed)) {
        ptlrpc_free_if_idle(rpc);
    }
}

void
ptlrpc_rq_reply(struct ptlrpc_rq *rq, int status, uint32_t bytes)
{
    struct ptlrpc_service *service = rq->service;
    struct ptlrpc_export *export = rq->export;
    struct ptlrpc_slot *slot = rq->slot;
    struct ptlrpc_op_state *op = rq->op;
    const uint32_t service_ns = ptlrpc_saturate(lnet_stamp(service->rpc->ctx) - rq->started);
    const uint32_t queue_ns = ptlrpc_saturate(rq->started - rq->arrived);

    BASE_ASSERT(bytes <= service->rpc->body_bytes_max);
    BASE_ASSERT(status <= 0 && status > -4096);
    op->count++;
    op->error_count += status != 0;
    op->queue_ns += queue_ns;
    op->service_ns += service_ns;
    op->bulk_ns += rq->mark_ns[PTLRPC_MARK_BULK];
    op->store_ns += rq->mark_ns[PTLRPC_MARK_STORE];
    base_hist_record(op->service_hist, service_ns);
    service->active--;
    if (BASE_LIKELY(service->running == rq)) {
        service->running = NULL;
    } else {
        base_list_unlink(&rq->link);
    }
    if (BASE_UNLIKELY(export == NULL)) {
        reply_drop(rq);
        return;
    }
    export->active--;
    if (BASE_UNLIKELY(slot == NULL)) {
        reply_drop(rq);
        return;
    }
    BASE_ASSERT(slot->rq == rq); /* I2 */
    slot->rq = NULL;
    *rq->reply = (struct ptlrpc_hdr){
        .version = PTLRPC_HDR_VERSION,
        .type = PTLRPC_HDR_REPLY,
        .opc = op->op.opc,
        .xid = rq->hdr.xid,
        .handle = rq->hdr.handle,
        .u.reply = {.body_bytes = bytes,
                    .status = status,
                    .queue_ns = queue_ns,
                    .service_ns = service_ns,
                    .bulk_ns = ptlrpc_saturate(rq->mark_ns[PTLRPC_MARK_BULK]),
                    .store_ns = ptlrpc_saturate(rq->mark_ns[PTLRPC_MARK_STORE])},
    };
    bytes += (uint32_t)sizeof(*rq->reply);
    if ((op->op.flags & PTLRPC_OP_ONCE) != 0 && BASE_UNLIKELY(!slot_keep(slot, rq, bytes))) {
        ptlrpc_export_evict(export, -ENOMEM); /* else a resend would execute it again */
    }
    reply_send(rq, export->peer, bytes);
}

/* ---- requests ---------------------------------------------------------------------------------
 */

static struct ptlrpc_op_state *
op_find(const struct ptlrpc_service *service, uint16_t opc)
{
    const uint32_t index = BASE_LIKELY(opc < service->opc_limit) ? service->op_index[opc] : 0;

    return index > 0 ? &service->ops[index - 1] : NULL;
}

/* Counts the round trip that a client reports with @hdr. */
static void
report_count(struct ptlrpc_service *service, const struct ptlrpc_hdr *hdr)
{
    struct ptlrpc_op_state *op = op_find(service, hdr->u.request.report_opc);

    if (op != NULL) {
        op->report_count++;
        op->total_ns += hdr->u.request.report_total_ns;
        op->wait_ns += hdr->u.request.report_wait_ns;
        base_hist_record(op->total_hist, hdr->u.request.report_total_ns);
    }
}

static inline bool
request_is_sound(const struct ptlrpc_hdr *hdr, uint64_t bytes, uint64_t match_bits)
{
    return hdr->version == PTLRPC_HDR_VERSION && hdr->type == PTLRPC_HDR_REQUEST &&
           hdr->u.request.body_bytes == bytes - sizeof(*hdr) && hdr->xid == match_bits &&
           (hdr->flags & ~(uint32_t)REQUEST_FLAGS) == 0;
}

/* @rq is not a request that we understand. */
static void
request_refuse(struct ptlrpc_rq *rq, const struct lnet_event *event)
{
    struct ptlrpc_service *service = rq->service;

    service->refused_count++;
    if (rq->hdr.type == PTLRPC_HDR_REQUEST && rq->hdr.version != PTLRPC_HDR_VERSION) {
        base_log_printf(&service->rpc->log, BASE_LOG_DEBUG, "ptlrpc",
                        "service %s: EPROTO: request of version %u, we speak %u", service->name,
                        rq->hdr.version, PTLRPC_HDR_VERSION);
        rq->hdr.xid = event->match_bits;
        ptlrpc_rq_answer(rq, event->peer, 0, 0, -EPROTO, 0);
        return;
    }
    ptlrpc_rq_free(rq);
}

/* One of the ops that every service has. */
static void
request_own(struct ptlrpc_rq *rq, const struct lnet_event *event)
{
    struct ptlrpc_service *service = rq->service;
    struct ptlrpc_export *export = NULL;

    rq->op->count++;
    if (rq->hdr.opc == PTLRPC_OPC_CONNECT) {
        ptlrpc_export_connect(rq, event->peer);
        return;
    }
    export = ptlrpc_export_find(service, rq->hdr.handle, event->peer);
    if (export == NULL || export->incarnation != rq->hdr.u.request.incarnation) {
        ptlrpc_rq_answer(rq, event->peer, PTLRPC_HDR_NO_EXPORT, 0, 0, 0);
        return;
    }
    if (rq->hdr.u.request.report_opc != 0) {
        report_count(service, &rq->hdr);
    }
    if (rq->hdr.opc == PTLRPC_OPC_PING && (rq->hdr.flags & PTLRPC_HDR_NO_REPLY) != 0) {
        ptlrpc_rq_free(rq);
        return;
    }
    const bool is_end = rq->hdr.opc == PTLRPC_OPC_DISCONNECT;

    ptlrpc_rq_answer(rq, event->peer, 0, rq->hdr.handle, 0, 0);
    if (is_end) {
        ptlrpc_export_destroy(export, 0);
    }
}

/* A copy of the request whose xid the slot has, or of one before it. */
static void
request_old(struct ptlrpc_rq *rq, const struct ptlrpc_slot *slot, struct lnet_peer *peer)
{
    struct ptlrpc_service *service = rq->service;

    if (rq->hdr.xid < slot->xid) {
        service->stale_count++;
        ptlrpc_rq_free(rq);
    } else if (slot->rq != NULL) {
        service->duplicate_count++;
        ptlrpc_rq_free(rq);
    } else {
        slot_resend(rq, slot, peer);
    }
}

/* Whether @export holds its share of the service's rqs and has to come again. */
static inline bool
export_is_greedy(const struct ptlrpc_service *service, const struct ptlrpc_export *export)
{
    if (BASE_LIKELY(export->active == 0)) {
        return false;
    }
    if (export->active >= 2 * export->slot_count) {
        return true; /* it gives slots new requests without waiting for the answers */
    }
    return service->rqs.free_count < service->rqs_max / 4 &&
           export->active >= base_max_u32(1, service->rqs_max / service->export_count);
}

/* Executes @rq, a new request of @slot. */
static inline void
request_execute(struct ptlrpc_rq *rq, struct ptlrpc_slot *slot, const void *body)
{
    struct ptlrpc_service *service = rq->service;
    struct ptlrpc_export *export = rq->export;

    (void)memcpy(rq->body, body, rq->hdr.u.request.body_bytes);
    if (BASE_UNLIKELY(slot->rq != NULL)) {
        slot->rq->slot = NULL; /* the client gave up: its answer is of no use any more */
    }
    slot->xid = rq->hdr.xid;
    slot->rq = rq;
    slot->reply_bytes = 0;
    rq->slot = slot;
    rq->mark_ns[PTLRPC_MARK_BULK] = 0;
    rq->mark_ns[PTLRPC_MARK_STORE] = 0;
    rq->arrived = lnet_stamp(service->rpc->ctx);
    rq->started = rq->arrived;
    export->active++;
    service->active++;
    service->active_counts[service->active]++;
    if (service->active > service->active_max) {
        service->active_max = service->active;
    }
    if (BASE_LIKELY(rq->hdr.u.request.report_opc != 0)) {
        report_count(service, &rq->hdr);
    }
    service->req_count++;
    service->running = rq;
    rq->op->op.handler(rq);
    if (service->running == rq) {
        service->running = NULL;
        base_list_append(&export->rqs, &rq->link); /* I3 */
    }
}

/*
 * None but the reserved rqs are free. Returns one of them for ptlrpc's own ops, so that clients can
 * connect to and leave a busy server. Others are answered with BUSY, from the stack: NULL.
 */
static struct ptlrpc_rq *
rq_take_last(struct ptlrpc_service *service, const struct lnet_event *event)
{
    struct ptlrpc_hdr hdr;

    (void)memcpy(&hdr, event->data, sizeof(hdr));
    __asm__ volatile("" ::: "memory");
    if (!request_is_sound(&hdr, event->moved_bytes, event->match_bits)) {
        service->refused_count++;
        return NULL;
    }
    const struct ptlrpc_op_state *op = op_find(service, hdr.opc);

    if (op != NULL && op->op.handler == NULL && service->rqs.free_count > 0) {
        return base_pool_take(&service->rqs);
    }
    service->busy_count++;

    const struct ptlrpc_hdr reply = {
        .version = PTLRPC_HDR_VERSION,
        .type = PTLRPC_HDR_REPLY,
        .opc = hdr.opc,
        .flags = PTLRPC_HDR_BUSY,
        .xid = hdr.xid,
        .handle = hdr.handle,
    };
    const struct lnet_target target = {
        .peer = event->peer, .portal = PTLRPC_PORTAL_REPLY, .match_bits = hdr.xid};

    if (lnet_put_inline(service->rpc->ctx, &target, &reply, sizeof(reply)) != 0) {
        service->reply_drop_count++;
    }
    return NULL;
}

/* The lnet_handler_fn of a service's MD. Validates, finds slot and op, executes. */
static void
service_event(struct lnet *ctx, const struct lnet_event *event)
{
    struct ptlrpc_service *service = event->user;
    struct ptlrpc_slot *slot = NULL;

    (void)ctx;
    if (BASE_UNLIKELY(event->type != LNET_EV_PUT || event->status != 0)) {
        return; /* unlinked by ptlrpc_close(): the service is gone */
    }
    if (BASE_UNLIKELY(event->moved_bytes < sizeof(struct ptlrpc_hdr))) {
        service->refused_count++;
        return;
    }
    struct ptlrpc_rq *rq = BASE_LIKELY(service->rqs.free_count > PTLRPC_RQS_RESERVED)
                               ? base_pool_take(&service->rqs)
                               : rq_take_last(service, event);

    if (BASE_UNLIKELY(rq == NULL)) {
        return;
    }
    (void)memcpy(&rq->hdr, event->data, sizeof(rq->hdr));
    __asm__ volatile("" ::: "memory"); /* a peer may change its bytes: they are read once */
    if (BASE_UNLIKELY(!request_is_sound(&rq->hdr, event->moved_bytes, event->match_bits))) {
        request_refuse(rq, event);
        return;
    }
    rq->op = op_find(service, rq->hdr.opc);
    if (BASE_UNLIKELY(rq->op == NULL)) {
        service->refused_count++;
        ptlrpc_rq_answer(rq, event->peer, 0, rq->hdr.handle, -EOPNOTSUPP, 0);
        return;
    }
    if (BASE_UNLIKELY(rq->op->op.handler == NULL)) {
        (void)memcpy(rq->body, (const unsigned char *)event->data + sizeof(rq->hdr),
                     rq->hdr.u.request.body_bytes);
        request_own(rq, event);
        return;
    }
    struct ptlrpc_export *export = ptlrpc_export_find(service, rq->hdr.handle, event->peer);

    if (BASE_UNLIKELY(export == NULL || export->incarnation != rq->hdr.u.request.incarnation)) {
        service->refused_count++;
        ptlrpc_rq_answer(rq, event->peer, PTLRPC_HDR_NO_EXPORT, 0, 0, 0);
        return;
    }
    if (BASE_UNLIKELY(export->generation != rq->hdr.u.request.generation)) {
        service->stale_count++;
        ptlrpc_rq_free(rq);
        return;
    }
    if (BASE_UNLIKELY(rq->hdr.u.request.slot >= export->slot_count ||
                      rq->hdr.u.request.body_bytes < rq->op->op.body_bytes_min)) {
        service->refused_count++;
        ptlrpc_rq_answer(rq, event->peer, 0, rq->hdr.handle, -EPROTO, 0);
        return;
    }
    slot = &export->slots[rq->hdr.u.request.slot];
    export->lost_ns = PTLRPC_NEVER; /* it speaks: the connection is there */
    if (BASE_UNLIKELY(rq->hdr.xid <= slot->xid &&
                      (rq->hdr.xid < slot->xid || slot->rq != NULL || slot->reply_bytes > 0))) {
        request_old(rq, slot, event->peer);
        return;
    }
    if (BASE_UNLIKELY(export_is_greedy(service, export))) {
        service->busy_count++;
        ptlrpc_rq_answer(rq, event->peer, PTLRPC_HDR_BUSY, rq->hdr.handle, 0, 0);
        return;
    }
    rq->export = export;
    request_execute(rq, slot, (const unsigned char *)event->data + sizeof(rq->hdr));
}

/* ---- the tick ---------------------------------------------------------------------------------
 */

/* Sends the replies that lnet had no room for. */
static uint64_t
unsent_tick(struct ptlrpc_service *service, uint64_t now_ns)
{
    struct base_list due;

    base_list_init(&due);
    base_list_move_all(&due, &service->unsent);
    while (!base_list_empty(&due)) {
        struct ptlrpc_rq *rq = BASE_CONTAINER_OF(base_list_first(&due), struct ptlrpc_rq, link);
        struct lnet_peer *peer = rq->unsent_peer;

        base_list_unlink(&rq->link);
        reply_send(rq, peer, rq->unsent_bytes);
        lnet_peer_put(peer);
    }
    return base_list_empty(&service->unsent) ? PTLRPC_NEVER : now_ns + UNSENT_PAUSE_NS;
}

uint64_t
ptlrpc_service_tick(struct ptlrpc_service *service, uint64_t now_ns, uint64_t late_ns)
{
    return base_min_u64(unsent_tick(service, now_ns), ptlrpc_export_tick(service, now_ns, late_ns));
}

/* ---- making and ending ------------------------------------------------------------------------
 */

static const struct ptlrpc_op own_ops[PTLRPC_OWN_OP_COUNT] = {
    [PTLRPC_OWN_CONNECT] = {.opc = PTLRPC_OPC_CONNECT, .name = "connect"},
    [PTLRPC_OWN_DISCONNECT] = {.opc = PTLRPC_OPC_DISCONNECT, .name = "disconnect"},
    [PTLRPC_OWN_PING] = {.opc = PTLRPC_OPC_PING, .name = "ping"},
};

static bool
options_are_sound(const struct ptlrpc_service_options *options)
{
    if (options->struct_bytes < sizeof(*options) || options->portal == 0 ||
        options->portal >= LNET_PORTALS || options->portal == PTLRPC_PORTAL_REPLY ||
        options->exports_max > EXPORTS_LIMIT || (options->op_count > 0 && options->ops == NULL)) {
        return false;
    }
    for (uint32_t i = 0; i < options->op_count; i++) {
        if (options->ops[i].handler == NULL) {
            return false;
        }
    }
    return true;
}

/* Enters the ops into the tables. Errors: -EINVAL an op code twice, or one of ours. */
static int
ops_init(struct ptlrpc_service *service, const struct ptlrpc_service_options *options)
{
    for (uint32_t i = 0; i < service->op_count; i++) {
        struct ptlrpc_op_state *state = &service->ops[i];

        state->op = i < PTLRPC_OWN_OP_COUNT ? own_ops[i] : options->ops[i - PTLRPC_OWN_OP_COUNT];
        state->service_hist = &service->op_hists[2 * (size_t)i];
        state->total_hist = &service->op_hists[2 * (size_t)i + 1];
        base_hist_init(state->service_hist);
        base_hist_init(state->total_hist);
        if (service->op_index[state->op.opc] != 0) {
            return -EINVAL;
        }
        service->op_index[state->op.opc] = (uint16_t)(i + 1);
    }
    return 0;
}

/* One more than the largest op code. */
static uint32_t
opc_limit(const struct ptlrpc_service_options *options)
{
    uint32_t limit = PTLRPC_OPC_PING + 1;

    for (uint32_t i = 0; i < options->op_count; i++) {
        limit = base_max_u32(limit, options->ops[i].opc + 1u);
    }
    return limit;
}

/* Gives each rq its memory. */
static void
rqs_init(struct ptlrpc_service *service, size_t stride, size_t body_stride)
{
    for (uint32_t i = 0; i < service->rqs.total_count; i++) {
        struct ptlrpc_rq *rq = base_pool_at(&service->rqs, i);

        BASE_POOL_UNPOISON(rq, sizeof(*rq));
        rq->service = service;
        rq->body = service->messages + i * stride;
        rq->reply = (struct ptlrpc_hdr *)(void *)(rq->body + body_stride);
        base_list_init(&rq->link);
    }
}

/* Allocates what the service is made from. On error the caller frees what there is. */
static int
service_allocate(struct ptlrpc_service *service, const struct ptlrpc_service_options *options)
{
    const size_t body_stride = base_align_up(service->rpc->body_bytes_max, BASE_CACHE_LINE);
    /* An odd number of cache lines, so that the starts spread over all sets. */
    const size_t stride = (2 * body_stride + sizeof(struct ptlrpc_hdr)) | BASE_CACHE_LINE;
    const uint32_t rqs_count = service->rqs_max + PTLRPC_RQS_RESERVED;

    service->ops = calloc(service->op_count, sizeof(service->ops[0]));
    service->op_hists = calloc(2 * (size_t)service->op_count, sizeof(service->op_hists[0]));
    service->op_index = calloc(service->opc_limit, sizeof(service->op_index[0]));
    service->exports = calloc(service->exports_max, sizeof(struct ptlrpc_export *));
    service->active_counts = calloc((size_t)service->rqs_max + 1, sizeof(uint64_t));
    service->hists = calloc(1, sizeof(*service->hists));
    service->messages = aligned_alloc(BASE_CACHE_LINE, rqs_count * stride);
    if (service->ops == NULL || service->op_hists == NULL || service->op_index == NULL ||
        service->exports == NULL || service->active_counts == NULL || service->hists == NULL ||
        service->messages == NULL) {
        return -ENOMEM;
    }
    const int rc =
        base_pool_init(&service->rqs, sizeof(struct ptlrpc_rq), rqs_count, BASE_CACHE_LINE);

    if (rc != 0) {
        return rc;
    }
    rqs_init(service, stride, body_stride);
    return ops_init(service, options);
}

void
ptlrpc_service_free(struct ptlrpc_service *service)
{
    base_pool_fini(&service->rqs);
    free(service->messages);
    free(service->hists);
    free(service->active_counts);
    free(service->exports);
    free(service->op_index);
    free(service->op_hists);
    free(service->ops);
    free(service);
}

int
ptlrpc_service_add(struct ptlrpc *rpc, const struct ptlrpc_service_options *options,
                   struct ptlrpc_service **service_out)
{
    if (options == NULL || rpc->is_closing || !options_are_sound(options)) {
        return -EINVAL;
    }
    if (rpc->services[options->portal] != NULL) {
        return -EEXIST;
    }
    struct ptlrpc_service *service = calloc(1, sizeof(*service));

    if (service == NULL) {
        return -ENOMEM;
    }
    service->rpc = rpc;
    service->options = *options;
    service->rqs_max = options->rqs_max > 0 ? options->rqs_max : RQS_DEFAULT;
    service->exports_max = options->exports_max > 0 ? options->exports_max : EXPORTS_DEFAULT;
    service->op_count = options->op_count + PTLRPC_OWN_OP_COUNT;
    service->opc_limit = opc_limit(options);
    service->reconnect_ns =
        (options->reconnect_ms > 0 ? options->reconnect_ms : RECONNECT_DEFAULT_MS) * NS_PER_MS;
    service->serial = lnet_random(rpc->ctx) >> 20;
    (void)strncpy(service->name, options->name != NULL ? options->name : "?",
                  sizeof(service->name) - 1);
    base_list_init(&service->export_list);
    base_list_init(&service->unsent);

    int rc = service_allocate(service, options);

    if (rc != 0) {
        goto fail_free;
    }
    const struct lnet_match match = {.portal = options->portal,
                                     .from = {{LNET_NID_ANY}, LNET_PID_ANY, 0},
                                     .ignore_bits = UINT64_MAX};
    const struct lnet_md md = {.length_bytes = sizeof(struct ptlrpc_hdr) + rpc->body_bytes_max,
                               .options = LNET_MD_OP_PUT | LNET_MD_PEEK | LNET_MD_ACK_DISABLE,
                               .threshold = -1,
                               .handler = service_event,
                               .user = service};

    rc = lnet_md_attach(rpc->ctx, &match, &md, &service->md);
    if (rc != 0) {
        goto fail_free;
    }
    rpc->services[options->portal] = service;
    *service_out = service;
    return 0;

fail_free:
    ptlrpc_service_free(service);
    return rc;
}

void
ptlrpc_service_close(struct ptlrpc_service *service)
{
    (void)lnet_md_unlink(service->rpc->ctx, service->md);
    while (!base_list_empty(&service->export_list)) {
        ptlrpc_export_destroy(
            BASE_CONTAINER_OF(base_list_first(&service->export_list), struct ptlrpc_export, link),
            -ECANCELED);
    }
    while (!base_list_empty(&service->unsent)) {
        struct ptlrpc_rq *rq =
            BASE_CONTAINER_OF(base_list_first(&service->unsent), struct ptlrpc_rq, link);

        base_list_unlink(&rq->link);
        lnet_peer_put(rq->unsent_peer);
        service->reply_drop_count++;
        ptlrpc_rq_free(rq);
    }
}

/* ---- for handlers -----------------------------------------------------------------------------
 */

void *
ptlrpc_service_user(const struct ptlrpc_service *service)
{
    return service->options.user;
}

uint16_t
ptlrpc_rq_opc(const struct ptlrpc_rq *rq)
{
    return rq->hdr.opc;
}

const void *
ptlrpc_rq_body(const struct ptlrpc_rq *rq, uint32_t *bytes_out)
{
    *bytes_out = rq->hdr.u.request.body_bytes;
    return rq->body;
}

struct ptlrpc_export *
ptlrpc_rq_export(const struct ptlrpc_rq *rq)
{
    return rq->export;
}

struct ptlrpc_service *
ptlrpc_rq_service(const struct ptlrpc_rq *rq)
{
    return rq->service;
}

void *
ptlrpc_rq_reply_body(struct ptlrpc_rq *rq)
{
    return rq->reply + 1;
}

void
ptlrpc_rq_begin(struct ptlrpc_rq *rq, enum ptlrpc_mark mark)
{
    rq->mark_start[mark] = lnet_stamp(rq->service->rpc->ctx);
}

void
ptlrpc_rq_end(struct ptlrpc_rq *rq, enum ptlrpc_mark mark, uint64_t bytes, uint32_t path)
{
    rq->mark_ns[mark] += lnet_stamp(rq->service->rpc->ctx) - rq->mark_start[mark];
    rq->op->bytes += bytes;
    if (mark == PTLRPC_MARK_BULK && path < BULK_PATH_COUNT) {
        rq->op->path_count[path]++;
    }
}
