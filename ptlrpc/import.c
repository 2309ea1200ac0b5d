/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Imports: connecting, losing the connection, coming back, closing.
 *
 *     DISCON -> CONNECTING -> FULL       a request wants it; the server said yes
 *     CONNECTING -> DISCON               refused, nobody there, or no answer in tries_max timeouts
 *     FULL -> DISCON -> CONNECTING       the connection broke; requests that were out are sent
 * again, in their order, when the server still knows us FULL or CONNECTING -> EVICTED      the
 * server does not know us any more any -> CLOSED                      closed: reports are
 * delivered, then DISCONNECT
 *
 * A CONNECT carries the incarnation of the import, which names it at the server whatever happens to
 * the connection, and a generation that grows with each CONNECT: what was sent under an older one
 * is not executed.
 *
 * Nothing here is undone inside a call of the user: what a call decides is done by the next tick,
 * so that callbacks never run inside calls and objects never go away under them.
 */
#include "ptlrpc/import.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RPCS_DEFAULT      16u
#define TIMEOUT_NS_MAX    (UINT64_C(1) << 50) /* 13 days; times TRIES_LIMIT it does not wrap */
#define TRIES_LIMIT       1024u
#define TRIES_DEFAULT     3u
#define CLOSE_NS          UINT64_C(1000000000)
#define RETRY_PAUSE_NS    UINT64_C(10000000) /* between CONNECTs over a network that fails */
#define RETRY_PAUSE_SHIFT 7u                 /* doubles up to 1.28 s */
#define NS_PER_MS         UINT64_C(1000000)

/* ---- states --------------------------------------------------------------------------------- */

static void
import_move(struct ptlrpc_import *import, enum ptlrpc_import_state state, int status,
            const void *data, uint32_t bytes)
{
    import->state = state;
    if (state != PTLRPC_IMP_FULL && status != 0) {
        base_log_printf(&import->rpc->log, BASE_LOG_INFO, "ptlrpc", "import %s: %s: %s",
                        import->name, state == PTLRPC_IMP_EVICTED ? "evicted" : "not connected",
                        base_errno_name(status));
    }
    if (import->state_changed != NULL) {
        import->state_changed(import, state, status, data, bytes, import->user);
    }
}

/* Ends what was out with @out_status and what waits with @waiting_status. */
static void
import_end_all(struct ptlrpc_import *import, int out_status, int waiting_status)
{
    for (uint32_t i = 0; i < import->max_rpcs; i++) {
        if (import->slots[i] != NULL) {
            ptlrpc_req_end(import->slots[i], out_status);
        }
    }
    while (!base_list_empty(&import->waiting)) {
        ptlrpc_req_end(
            BASE_CONTAINER_OF(base_list_first(&import->waiting), struct ptlrpc_request, link),
            waiting_status);
    }
}

void
ptlrpc_import_evict(struct ptlrpc_import *import)
{
    if (import->state == PTLRPC_IMP_EVICTED) {
        return;
    }
    import->connect_at_ns = PTLRPC_NEVER;
    import_end_all(import, -ESTALE, -ESTALE);
    import_move(import, PTLRPC_IMP_EVICTED, -ESTALE, NULL, 0);
}

/* ---- the import's own requests: CONNECT and DISCONNECT ----------------------------------------
 */

/* The import's own request expects no reply any more. */
static void
own_end(struct ptlrpc_import *import)
{
    import->rpc->xids[import->own.index] = 0;
    if (import->own.state == PTLRPC_REQ_SENT) {
        ptlrpc_req_move(&import->own.state, PTLRPC_REQ_FREE);
    }
}

/* Sends @opc with the body that lies in own_message, expecting the reply until @deadline_ns. */
static int
own_send(struct ptlrpc_import *import, uint16_t opc, uint32_t body_bytes, uint64_t deadline_ns)
{
    struct ptlrpc *rpc = import->rpc;
    struct ptlrpc_request *own = &import->own;
    struct ptlrpc_hdr *hdr = own->msg;

    own_end(import);
    *hdr = import->template;
    hdr->opc = opc;
    hdr->xid = (++rpc->xid_count << PTLRPC_XID_INDEX_BITS) | own->index;
    hdr->u.request.generation = import->generation;
    hdr->u.request.slot = (uint16_t)import->max_rpcs;
    hdr->u.request.body_bytes = body_bytes;

    const int rc = ptlrpc_req_put(own);

    if (rc != 0) {
        return rc;
    }
    ptlrpc_req_move(&own->state, PTLRPC_REQ_NEW);
    ptlrpc_req_move(&own->state, PTLRPC_REQ_SENT);
    rpc->xids[own->index] = hdr->xid;
    own->deadline_ns = deadline_ns;
    ptlrpc_timer_at(rpc, deadline_ns);
    return 0;
}

/* Plans the next CONNECT for @at_ns. */
static void
connect_at(struct ptlrpc_import *import, uint64_t at_ns)
{
    import->connect_at_ns = at_ns;
    ptlrpc_timer_at(import->rpc, at_ns);
}

/* Nobody is there, or they do not want us: whoever waits is told so. */
static void
connect_failed(struct ptlrpc_import *import, int status)
{
    own_end(import);
    import->connect_at_ns = PTLRPC_NEVER;
    import->connect_tries = 0;
    import_end_all(import, -ECONNRESET, -ENOTCONN);
    if (import->is_closing) {
        import->is_finished = true;
        ptlrpc_timer_at(import->rpc, lnet_now(import->rpc->ctx));
    }
    import_move(import, PTLRPC_IMP_DISCON, status, NULL, 0);
}

static void
connect_retry(struct ptlrpc_import *import, int status)
{
    const uint32_t shift = base_min_u32(import->connect_tries, RETRY_PAUSE_SHIFT);

    own_end(import);
    if (import->connect_tries >= import->tries_max) {
        connect_failed(import, status);
        return;
    }
    connect_at(import, lnet_now(import->rpc->ctx) + (RETRY_PAUSE_NS << shift));
}

static void
connect_start(struct ptlrpc_import *import)
{
    const uint64_t now_ns = lnet_now(import->rpc->ctx);

    import->connect_at_ns = PTLRPC_NEVER;
    import->connect_tries++;
    import->generation++;
    (void)memcpy(import->own.msg + 1, import->connect_data, import->connect_bytes);

    const int rc =
        own_send(import, PTLRPC_OPC_CONNECT, import->connect_bytes, now_ns + import->timeout_ns);

    if (rc == -EAGAIN) {
        connect_retry(import, rc);
    } else if (rc != 0) {
        connect_failed(import, rc);
    }
}

void
ptlrpc_import_want(struct ptlrpc_import *import)
{
    if (import->state == PTLRPC_IMP_DISCON && import->connect_at_ns == PTLRPC_NEVER &&
        !import->is_closing) {
        connect_at(import, lnet_now(import->rpc->ctx));
    }
}

/* Sends again, in the order of their xids, what was out when the connection broke. */
static void
import_resend_all(struct ptlrpc_import *import)
{
    uint64_t after = 0;

    for (;;) {
        struct ptlrpc_request *next = NULL;

        for (uint32_t i = 0; i < import->max_rpcs; i++) {
            struct ptlrpc_request *req = import->slots[i];

            if (req != NULL && req->state == PTLRPC_REQ_RESEND && req->msg->xid > after &&
                (next == NULL || req->msg->xid < next->msg->xid)) {
                next = req;
            }
        }
        if (next == NULL) {
            return;
        }
        after = next->msg->xid;
        ptlrpc_req_resend(next);
    }
}

static void
connected(struct ptlrpc_import *import, const struct ptlrpc_hdr *reply, uint32_t bytes)
{
    const bool is_first = import->template.handle == 0;

    if (!is_first && reply->handle != import->template.handle) {
        ptlrpc_import_evict(import); /* another export: what was out can't be settled there */
        return;
    }
    import->template.handle = reply->handle;
    import->template.u.request.generation = import->generation;
    import->connect_tries = 0;
    import->state = PTLRPC_IMP_FULL;
    if (import->is_closing) {
        ptlrpc_timer_at(import->rpc, lnet_now(import->rpc->ctx));
        return;
    }
    import_resend_all(import);
    ptlrpc_req_kick(import);
    import_move(import, PTLRPC_IMP_FULL, 0, import->own.msg + 1, bytes);
}

/* The server had no room for a CONNECT or DISCONNECT: the same again after a pause. */
static void
own_on_busy(struct ptlrpc_import *import)
{
    const uint64_t at_ns = lnet_now(import->rpc->ctx) + RETRY_PAUSE_NS;

    if (import->is_disconnecting) {
        import->is_disconnecting = false; /* close_step() sends another one */
        ptlrpc_timer_at(import->rpc, at_ns);
    } else if (!import->is_closing) {
        import->connect_tries = 0; /* it is alive */
        connect_at(import, at_ns);
    }
}

void
ptlrpc_import_own_reply(struct ptlrpc_import *import, const struct ptlrpc_hdr *reply,
                        uint32_t bytes)
{
    own_end(import);
    if ((reply->flags & PTLRPC_HDR_BUSY) != 0) {
        own_on_busy(import);
        return;
    }
    if (import->is_disconnecting) {
        import->is_finished = true;
        ptlrpc_timer_at(import->rpc, lnet_now(import->rpc->ctx));
        return;
    }
    if ((reply->flags & PTLRPC_HDR_NO_EXPORT) != 0) {
        ptlrpc_import_evict(import);
        return;
    }
    if (reply->u.reply.status != 0 || reply->handle == 0) {
        connect_failed(import, reply->u.reply.status != 0 ? reply->u.reply.status : -EPROTO);
        return;
    }
    connected(import, reply, bytes);
}

/* ---- losing the connection --------------------------------------------------------------------
 */

/* Whether @status of a connection attempt says that trying again at once is of no use. */
static bool
is_refusal(int status)
{
    return status != -ECONNRESET && status != -ETIMEDOUT && status != -EAGAIN;
}

void
ptlrpc_import_peer_down(struct ptlrpc_import *import, int status)
{
    switch (import->state) {
    case PTLRPC_IMP_FULL:
        own_end(import);
        for (uint32_t i = 0; i < import->max_rpcs; i++) {
            struct ptlrpc_request *req = import->slots[i];

            if (req != NULL && req->state == PTLRPC_REQ_SENT) {
                ptlrpc_req_move(&req->state, PTLRPC_REQ_RESEND);
            }
        }
        if (import->is_closing) {
            import->is_finished = true;
            ptlrpc_timer_at(import->rpc, lnet_now(import->rpc->ctx));
        } else if (ptlrpc_import_in_flight(import) > 0 || !base_list_empty(&import->waiting)) {
            connect_at(import, lnet_now(import->rpc->ctx));
        }
        import_move(import, PTLRPC_IMP_DISCON, status, NULL, 0);
        return;
    case PTLRPC_IMP_CONNECTING:
        if (is_refusal(status)) {
            connect_failed(import, status);
        } else if (import->connect_at_ns == PTLRPC_NEVER) {
            connect_retry(import, status);
        }
        return;
    case PTLRPC_IMP_DISCON:
    case PTLRPC_IMP_EVICTED:
    case PTLRPC_IMP_CLOSED:
        return;
    }
}

/* ---- closing ----------------------------------------------------------------------------------
 */

/* Delivers the reports that no request will carry any more: PINGs whose answer nobody awaits. */
static void
reports_flush(struct ptlrpc_import *import)
{
    struct ptlrpc_request *own = &import->own;

    while (import->report_head != import->report_tail) {
        const struct ptlrpc_report *report =
            &import->reports[import->report_head++ & import->report_mask];

        *own->msg = import->template;
        own->msg->opc = PTLRPC_OPC_PING;
        own->msg->flags = PTLRPC_HDR_NO_REPLY;
        own->msg->xid = (++import->rpc->xid_count << PTLRPC_XID_INDEX_BITS) | own->index;
        own->msg->u.request.report_opc = report->opc;
        own->msg->u.request.report_total_ns = report->total_ns;
        own->msg->u.request.report_wait_ns = report->wait_ns;
        (void)ptlrpc_req_put(own);
    }
}

/* The import is closing: one step towards the end. */
static void
close_step(struct ptlrpc_import *import, uint64_t now_ns)
{
    if (import->close_ns == PTLRPC_NEVER) {
        import->close_ns = now_ns + CLOSE_NS;
        import_end_all(import, -ECANCELED, -ECANCELED);
    }
    switch (import->state) {
    case PTLRPC_IMP_FULL:
        if (!import->is_disconnecting) {
            own_end(import);
            reports_flush(import);
            import->is_disconnecting = true;
            if (own_send(import, PTLRPC_OPC_DISCONNECT, 0, import->close_ns) != 0) {
                import->is_finished = true;
            }
        }
        break;
    case PTLRPC_IMP_CONNECTING:
        /* The server may have made an export: wait for its answer, then disconnect. */
        import->is_finished = import->own.state != PTLRPC_REQ_SENT;
        break;
    case PTLRPC_IMP_DISCON:
    case PTLRPC_IMP_EVICTED:
    case PTLRPC_IMP_CLOSED:
        import->is_finished = true;
        break;
    }
    if (now_ns >= import->close_ns) {
        import->is_finished = true;
    }
}

static void
import_free(struct ptlrpc_import *import)
{
    BASE_ASSERT(ptlrpc_import_in_flight(import) == 0);
    BASE_ASSERT(base_list_empty(&import->waiting));
    own_end(import);
    base_list_unlink(&import->link);
    import->rpc->imports[import->index] = NULL;
    lnet_peer_put(import->peer);
    free(import->reports);
    free(import->free_slots);
    free(import->slots);
    free(import);
}

void
ptlrpc_import_finish(struct ptlrpc_import *import)
{
    if (import->is_finished) {
        import_move(import, PTLRPC_IMP_CLOSED, 0, NULL, 0);
        import_free(import);
    }
}

void
ptlrpc_import_abort(struct ptlrpc_import *import)
{
    import->is_closing = true;
    import_end_all(import, -ECANCELED, -ECANCELED);
    if (import->state == PTLRPC_IMP_FULL && !import->is_disconnecting) {
        reports_flush(import);
        (void)own_send(import, PTLRPC_OPC_DISCONNECT, 0, PTLRPC_NEVER);
    }
    import->is_finished = true;
}

/* ---- the tick ---------------------------------------------------------------------------------
 */

/* The time of @req, which is out, has come. */
static void
req_on_deadline(struct ptlrpc_request *req, uint64_t now_ns)
{
    struct ptlrpc_import *import = req->import;

    if (req->state == PTLRPC_REQ_SENT) {
        import->timeout_count++;
    }
    if (now_ns >= req->final_ns) {
        ptlrpc_req_end(req, -ETIMEDOUT);
        return;
    }
    if (import->state != PTLRPC_IMP_FULL) {
        req->deadline_ns = req->final_ns; /* the connection comes back, or that is the end */
        return;
    }
    if (req->state == PTLRPC_REQ_SENT) {
        req->tries++;
    }
    ptlrpc_req_resend(req);
}

/* Requests that are out. Returns when the next of them is due. */
static uint64_t
slots_tick(struct ptlrpc_import *import, uint64_t now_ns)
{
    uint64_t next_ns = PTLRPC_NEVER;

    for (uint32_t i = 0; i < import->max_rpcs; i++) {
        struct ptlrpc_request *req = import->slots[i];

        if (req != NULL && base_min_u64(req->deadline_ns, req->final_ns) <= now_ns) {
            req_on_deadline(req, now_ns);
            req = import->slots[i];
        }
        if (req != NULL) {
            next_ns = base_min_u64(next_ns, base_min_u64(req->deadline_ns, req->final_ns));
        }
    }
    return next_ns;
}

/* Requests that wait. Returns when the first of them is due. */
static uint64_t
waiting_tick(struct ptlrpc_import *import, uint64_t now_ns)
{
    while (!base_list_empty(&import->waiting)) {
        struct ptlrpc_request *req =
            BASE_CONTAINER_OF(base_list_first(&import->waiting), struct ptlrpc_request, link);

        if (req->final_ns > now_ns) {
            return req->final_ns;
        }
        import->timeout_count++;
        ptlrpc_req_end(req, -ETIMEDOUT);
    }
    return PTLRPC_NEVER;
}

/*
 * A fresh try for @req, which is out or waits. It counts as one: a context that is polled too
 * rarely for its timeouts does not wait for ever.
 */
static void
req_on_absence(struct ptlrpc_request *req, uint64_t now_ns)
{
    const struct ptlrpc_import *import = req->import;

    if (req->tries > import->tries_max) {
        return;
    }
    if (req->state != PTLRPC_REQ_RESEND) {
        req->deadline_ns = now_ns + import->timeout_ns;
    }
    req->final_ns = now_ns + import->timeout_ns * (import->tries_max - req->tries + 1);
    req->tries++;
}

void
ptlrpc_import_absent(struct ptlrpc_import *import, uint64_t now_ns)
{
    for (uint32_t i = 0; i < import->max_rpcs; i++) {
        if (import->slots[i] != NULL) {
            req_on_absence(import->slots[i], now_ns);
        }
    }
    BASE_LIST_FOREACH(link, &import->waiting) {
        req_on_absence(BASE_CONTAINER_OF(link, struct ptlrpc_request, link), now_ns);
    }
    if (import->own.state == PTLRPC_REQ_SENT && !import->is_closing) {
        import->own.deadline_ns = now_ns + import->timeout_ns;
    }
}

static void
connecting_tick(struct ptlrpc_import *import, uint64_t now_ns)
{
    if (import->connect_at_ns <= now_ns) {
        if (import->state == PTLRPC_IMP_DISCON) {
            import_move(import, PTLRPC_IMP_CONNECTING, 0, NULL, 0);
        }
        connect_start(import);
    } else if (import->state == PTLRPC_IMP_CONNECTING && import->own.state == PTLRPC_REQ_SENT &&
               import->own.deadline_ns <= now_ns) {
        connect_retry(import, -ETIMEDOUT);
    }
}

uint64_t
ptlrpc_import_tick(struct ptlrpc_import *import, uint64_t now_ns)
{
    uint64_t next_ns = PTLRPC_NEVER;

    if (import->is_closing) {
        close_step(import, now_ns);
        next_ns = import->close_ns;
    } else {
        connecting_tick(import, now_ns);
        next_ns = import->connect_at_ns;
        if (import->own.state == PTLRPC_REQ_SENT) {
            next_ns = base_min_u64(next_ns, import->own.deadline_ns);
        }
    }
    next_ns = base_min_u64(next_ns, slots_tick(import, now_ns));
    next_ns = base_min_u64(next_ns, waiting_tick(import, now_ns));
    if (import->stalled_ns <= now_ns) {
        import->stalled_ns = PTLRPC_NEVER;
    }
    ptlrpc_req_kick(import); /* slots may have become free above */
    return base_min_u64(next_ns, import->stalled_ns);
}

/* ---- public -----------------------------------------------------------------------------------
 */

/* A place for one more import, or imports_max. */
static uint32_t
index_find(const struct ptlrpc *rpc)
{
    uint32_t index = 0;

    while (index < rpc->imports_max && rpc->imports[index] != NULL) {
        index++;
    }
    return index;
}

static bool
options_are_sound(const struct ptlrpc_import_options *options)
{
    return options->struct_bytes >= sizeof(*options) && options->portal > 0 &&
           options->portal < LNET_PORTALS && options->max_rpcs_in_flight <= PTLRPC_SLOTS_MAX &&
           options->connect_data_bytes <= PTLRPC_CONNECT_BYTES_MAX &&
           (options->connect_data_bytes == 0 || options->connect_data != NULL);
}

/* Fills in what needs no allocation. */
static void
import_init(struct ptlrpc_import *import, struct ptlrpc *rpc,
            const struct ptlrpc_import_options *options, uint32_t index)
{
    import->rpc = rpc;
    import->portal = options->portal;
    import->index = index;
    import->timeout_ns = options->timeout_ns > 0 ? options->timeout_ns : rpc->timeout_ns;
    import->timeout_ns = base_min_u64(import->timeout_ns, TIMEOUT_NS_MAX);
    import->tries_max = options->tries_max > 0 ? options->tries_max : TRIES_DEFAULT;
    import->tries_max = base_min_u32(import->tries_max, TRIES_LIMIT);
    import->total_ns = import->timeout_ns * import->tries_max;
    import->state_changed = options->state_changed;
    import->user = options->user;
    import->connect_at_ns = PTLRPC_NEVER;
    import->close_ns = PTLRPC_NEVER;
    import->stalled_ns = PTLRPC_NEVER;
    import->connect_bytes = options->connect_data_bytes;
    if (options->connect_data_bytes > 0) {
        (void)memcpy(import->connect_data, options->connect_data, options->connect_data_bytes);
    }
    (void)strncpy(import->name, options->name != NULL ? options->name : "?",
                  sizeof(import->name) - 1);
    base_list_init(&import->waiting);
    base_list_init(&import->link);
    base_list_init(&import->own.link);
    import->own.import = import;
    import->own.index = rpc->requests_max + index;
    import->own.msg = (struct ptlrpc_hdr *)(void *)import->own_message;
    import->template.version = PTLRPC_HDR_VERSION;
    import->template.type = PTLRPC_HDR_REQUEST;
    import->template.u.request.incarnation = lnet_random(rpc->ctx) | 1;
    import->template.u.request.timeout_ms = ptlrpc_saturate(import->timeout_ns / NS_PER_MS);
    for (uint32_t i = 0; i < import->max_rpcs; i++) {
        import->free_slots[i] = (uint16_t)(import->max_rpcs - 1 - i);
    }
    import->free_count = import->max_rpcs;
}

/* The power of two from @count up. */
static uint32_t
pow2_from(uint32_t count)
{
    uint32_t pow2 = 1;

    while (pow2 < count) {
        pow2 *= 2;
    }
    return pow2;
}

int
ptlrpc_import_open(struct ptlrpc *rpc, const struct ptlrpc_import_options *options,
                   struct ptlrpc_import **import_out)
{
    int rc = 0;

    if (options == NULL || rpc->is_closing || !options_are_sound(options)) {
        return -EINVAL;
    }
    const uint32_t index = index_find(rpc);

    if (index == rpc->imports_max) {
        return -EAGAIN;
    }
    struct ptlrpc_import *import =
        aligned_alloc(BASE_CACHE_LINE, base_align_up(sizeof(*import), BASE_CACHE_LINE));

    if (import == NULL) {
        return -ENOMEM;
    }
    (void)memset(import, 0, sizeof(*import));
    import->max_rpcs = options->max_rpcs_in_flight > 0 ? options->max_rpcs_in_flight : RPCS_DEFAULT;
    import->report_mask = pow2_from(import->max_rpcs) - 1;
    import->slots = calloc(import->max_rpcs, sizeof(struct ptlrpc_request *));
    import->free_slots = calloc(import->max_rpcs, sizeof(import->free_slots[0]));
    import->reports = calloc((size_t)import->report_mask + 1, sizeof(import->reports[0]));
    if (import->slots == NULL || import->free_slots == NULL || import->reports == NULL) {
        rc = -ENOMEM;
        goto fail_free;
    }
    rc = lnet_peer_get(rpc->ctx, &options->target, &import->peer);
    if (rc != 0) {
        goto fail_free;
    }
    import_init(import, rpc, options, index);
    rpc->imports[index] = import;
    base_list_append(&rpc->import_list, &import->link);
    import->state = PTLRPC_IMP_DISCON;
    connect_at(import, lnet_now(rpc->ctx));
    *import_out = import;
    return 0;

fail_free:
    free(import->reports);
    free(import->free_slots);
    free(import->slots);
    free(import);
    return rc;
}

void
ptlrpc_import_close(struct ptlrpc_import *import)
{
    if (!import->is_closing) {
        import->is_closing = true;
        import->connect_at_ns = PTLRPC_NEVER;
        ptlrpc_timer_at(import->rpc, lnet_now(import->rpc->ctx));
    }
}

enum ptlrpc_import_state
ptlrpc_import_state(const struct ptlrpc_import *import)
{
    return import->state;
}

struct lnet_peer *
ptlrpc_import_peer(const struct ptlrpc_import *import)
{
    return import->peer;
}
