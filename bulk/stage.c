/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging: bulk through messages, for LNDs without RMA and wherever two pipelined copies on two
 * cores beat one. The bytes go from their place into the LND's buffers and from there straight to
 * their place.
 *
 * Four messages on BULK_PORTAL. All carry an id in match_bits, its kind in the two highest bits,
 * and in offset_bytes the place within the export's memory:
 *
 *   PUSH  initiator to owner   id of the export, hdr_data: id of the transfer; the bytes
 *   PULL  initiator to owner   id of the export, hdr_data: id of the transfer; u32 length, u32 0
 *   DATA  owner to initiator   id of the transfer; some of the bytes that a PULL asked for
 *   ACK   owner to initiator   id of the transfer, hdr_data: 0, or the errno that a PUSH or PULL
 * met
 *
 * A transfer has at most `window` fragments asked (PUSH or PULL sent, not ended) and all transfers
 * of an engine at most STAGE_OUT_MAX, so the owner's queue of answers is bounded by what its peers
 * may ask; beyond ANSWERS_MAX they are told -EAGAIN and ask again. A DATA may carry less than was
 * asked: the ends may have different limits.
 *
 * Everything in these messages is checked as hostile: ids name live objects of that very peer,
 * offsets and lengths lie in the export or in a fragment that was asked.
 */
#include "bulk/engine.h"

#include "base/endian.h"

#include <errno.h>

#define STAGE_OUT_MAX  128u
#define STAGE_PUTS_MAX 64u
#define PULL_BYTES     8u

enum stage_kind { STAGE_PUSH = 0, STAGE_PULL = 1, STAGE_DATA = 2, STAGE_ACK = 3 };

static uint64_t
stage_match_bits(enum stage_kind kind, uint64_t id)
{
    return ((uint64_t)kind << BULK_ID_KIND_SHIFT) | (id & BULK_ID_MASK);
}

/* ---- the initiator ---- */

static uint64_t
fragment_length(const struct bulk_xfer *xfer, uint64_t fragment)
{
    return base_min_u64(xfer->fragment_bytes, xfer->length_bytes - fragment * xfer->fragment_bytes);
}

static void
stage_on_source_event(struct lnet *ctx, const struct lnet_event *event)
{
    struct bulk_xfer *xfer = event->user;
    struct bulk *bulk = xfer->bulk;

    (void)ctx;
    if (event->unlinked) {
        xfer->has_md = false;
    }
    if (xfer->state == BULK_XFER_DRAINING) {
        if (!xfer->has_md) {
            bulk_xfer_move(xfer, BULK_XFER_ENDED);
        }
    } else if (event->status != 0 || event->unlinked) {
        bulk_xfer_end(xfer, event->status != 0 ? event->status : -ECANCELED);
    }
    bulk_xfers_pump(bulk);
    bulk_xfers_deliver(bulk);
}

int
bulk_stage_start(struct bulk_xfer *xfer)
{
    struct bulk *bulk = xfer->bulk;
    uint64_t local_bytes = 0;

    xfer->fragment_bytes = bulk->fragment_bytes != 0 ? bulk->fragment_bytes : UINT32_MAX;
    xfer->fragment_bytes = base_min_u64(xfer->fragment_bytes, bulk->put_bytes_max);
    xfer->fragment_count = xfer->length_bytes / xfer->fragment_bytes +
                           (xfer->length_bytes % xfer->fragment_bytes != 0);
    if (xfer->op == BULK_PULL) {
        return 0;
    }
    for (uint32_t i = 0; i < xfer->local_count; i++) {
        local_bytes += xfer->iov[i].iov_len;
    }
    const struct lnet_md md = {
        .start = xfer->iov,
        .length_bytes = local_bytes,
        .options = LNET_MD_IOV | LNET_MD_NO_SEND_EVENT,
        .threshold = -1,
        .iov_count = xfer->local_count,
        .handler = stage_on_source_event,
        .user = xfer,
    };
    const int rc = lnet_md_bind(bulk->ctx, &md, &xfer->md);

    xfer->has_md = rc == 0;
    return rc;
}

bool
bulk_stage_release(struct bulk_xfer *xfer)
{
    BASE_ASSERT(xfer->bulk->stage_out >= xfer->asked_count);
    xfer->bulk->stage_out -= xfer->asked_count;
    xfer->asked_count = 0;
    xfer->asked = 0;
    if (xfer->has_md && lnet_md_unlink(xfer->bulk->ctx, xfer->md) != 0) {
        xfer->has_md = false;
    }
    return !xfer->has_md;
}

/* Sends the PUSH or PULL of one fragment. Errors: those of lnet_put(). */
static int
fragment_ask(struct bulk_xfer *xfer, uint64_t fragment)
{
    struct lnet *ctx = xfer->bulk->ctx;
    const uint64_t offset_bytes = fragment * xfer->fragment_bytes;
    const uint64_t length_bytes = fragment_length(xfer, fragment);
    const struct lnet_target target = {
        .peer = xfer->peer,
        .portal = BULK_PORTAL,
        .match_bits =
            stage_match_bits(xfer->op == BULK_PUSH ? STAGE_PUSH : STAGE_PULL, xfer->export_id),
        .offset_bytes = xfer->handle_offset_bytes + offset_bytes,
        .hdr_data = xfer->id,
    };

    if (xfer->op == BULK_PUSH) {
        return lnet_put(ctx, xfer->md, offset_bytes, length_bytes, &target, 0);
    }
    uint8_t want[PULL_BYTES];

    base_le32_store(want, (uint32_t)length_bytes);
    base_le32_store(want + 4, 0);
    return lnet_put_inline(ctx, &target, want, PULL_BYTES);
}

int
bulk_stage_issue(struct bulk_xfer *xfer)
{
    struct bulk *bulk = xfer->bulk;
    const uint64_t end = base_min_u64(xfer->fragment_first + bulk->window, xfer->fragment_count);

    for (uint64_t i = xfer->fragment_first; i < end; i++) {
        const uint32_t slot = (uint32_t)(i % bulk->window);

        if ((xfer->asked & (1u << slot)) != 0) {
            continue;
        }
        if (bulk->stage_out >= STAGE_OUT_MAX) {
            return xfer->asked_count > 0 ? 0 : -EBUSY;
        }
        const int rc = fragment_ask(xfer, i);

        if (rc == -EAGAIN) {
            return xfer->asked_count > 0 ? 0 : -EAGAIN;
        }
        if (rc != 0) {
            return rc;
        }
        xfer->asked |= 1u << slot;
        xfer->asked_count++;
        xfer->got_bytes[slot] = 0;
        bulk->stage_out++;
    }
    return 0;
}

/* Steps over the fragments that have ended, and goes on or ends. */
static void
stage_advance(struct bulk_xfer *xfer)
{
    struct bulk *bulk = xfer->bulk;
    bool is_moved = false;

    while (xfer->fragment_first < xfer->fragment_count) {
        const uint32_t slot = (uint32_t)(xfer->fragment_first % bulk->window);

        if ((xfer->asked & (1u << slot)) == 0 ||
            xfer->got_bytes[slot] != fragment_length(xfer, xfer->fragment_first)) {
            break;
        }
        xfer->asked &= ~(1u << slot);
        xfer->asked_count--;
        bulk->stage_out--;
        xfer->fragment_first++;
        is_moved = true;
    }
    xfer->progress_ns = lnet_now(bulk->ctx);
    if (xfer->fragment_first == xfer->fragment_count) {
        bulk_xfer_checksum(xfer, xfer->length_bytes);
        bulk_xfer_end(xfer, 0);
    } else if (is_moved && xfer->state == BULK_XFER_FLIGHT) {
        bulk_xfer_checksum(xfer, xfer->fragment_first * xfer->fragment_bytes);
        bulk_xfer_move(xfer, BULK_XFER_READY);
    }
}

/*
 * The transfer that a message is for, and the fragment and the offset in it. NULL: it names no
 * transfer of that peer (any more), or a fragment that was not asked.
 */
static struct bulk_xfer *
stage_xfer_find(struct bulk *bulk, const struct lnet_event *event, uint64_t *fragment_out,
                uint64_t *offset_out)
{
    const uint64_t id = event->match_bits & BULK_ID_MASK;

    if (!bulk_id_is_live(&bulk->xfer_ids, id)) {
        return NULL; /* late, after a cancel or a deadline: dropped */
    }
    struct bulk_xfer *xfer =
        base_pool_at(&bulk->xfer_pool, (uint32_t)(id & (BULK_ID_SLOTS_MAX - 1)));
    const uint64_t offset_bytes = event->offset_bytes - xfer->handle_offset_bytes;

    BASE_ASSERT(xfer->id == id);
    if (xfer->peer != event->peer || xfer->path != BULK_PATH_STAGING ||
        event->offset_bytes < xfer->handle_offset_bytes || offset_bytes >= xfer->length_bytes) {
        return NULL;
    }
    const uint64_t fragment = offset_bytes / xfer->fragment_bytes;

    if (fragment < xfer->fragment_first || fragment - xfer->fragment_first >= bulk->window ||
        (xfer->asked & (1u << (fragment % bulk->window))) == 0) {
        return NULL;
    }
    *fragment_out = fragment;
    *offset_out = offset_bytes;
    return xfer;
}

static void
stage_on_data(struct bulk *bulk, const struct lnet_event *event)
{
    uint64_t fragment = 0;
    uint64_t offset_bytes = 0;
    struct bulk_xfer *xfer = stage_xfer_find(bulk, event, &fragment, &offset_bytes);

    if (xfer == NULL) {
        return;
    }
    const uint32_t slot = (uint32_t)(fragment % bulk->window);
    const uint64_t expected = fragment * xfer->fragment_bytes + xfer->got_bytes[slot];
    const uint64_t room = fragment_length(xfer, fragment) - xfer->got_bytes[slot];

    if (xfer->op != BULK_PULL || offset_bytes != expected || event->moved_bytes == 0 ||
        event->moved_bytes > room) {
        bulk_xfer_end(xfer, -EPROTO);
        return;
    }
    struct bulk_cursor cursor = xfer->local;

    if (offset_bytes >= xfer->issued_bytes) {
        /* In order, as it mostly is: the cursor stands at the last byte written. */
        bulk_cursor_skip(&cursor, offset_bytes - xfer->issued_bytes);
    } else {
        cursor = bulk_cursor_at(xfer->iov, xfer->local_count, offset_bytes);
    }
    bulk_cursor_write(&cursor, event->data, event->moved_bytes);
    xfer->local = cursor;
    xfer->issued_bytes = offset_bytes + event->moved_bytes;
    xfer->got_bytes[slot] += (uint32_t)event->moved_bytes;
    xfer->moved_bytes += event->moved_bytes;
    stage_advance(xfer);
}

static void
stage_on_ack(struct bulk *bulk, const struct lnet_event *event)
{
    uint64_t fragment = 0;
    uint64_t offset_bytes = 0;
    struct bulk_xfer *xfer = stage_xfer_find(bulk, event, &fragment, &offset_bytes);

    if (xfer == NULL) {
        return;
    }
    const uint32_t slot = (uint32_t)(fragment % bulk->window);

    switch (event->hdr_data) {
    case 0:
        if (xfer->op != BULK_PUSH || offset_bytes != fragment * xfer->fragment_bytes ||
            xfer->got_bytes[slot] != 0) {
            bulk_xfer_end(xfer, -EPROTO);
            return;
        }
        xfer->got_bytes[slot] = (uint32_t)fragment_length(xfer, fragment);
        xfer->moved_bytes += xfer->got_bytes[slot];
        stage_advance(xfer);
        return;
    case EAGAIN:
        if (xfer->got_bytes[slot] != 0) {
            bulk_xfer_end(xfer, -EPROTO);
            return;
        }
        xfer->asked &= ~(1u << slot);
        xfer->asked_count--;
        bulk->stage_out--;
        if (xfer->state == BULK_XFER_FLIGHT) {
            bulk_xfer_move(xfer, BULK_XFER_READY);
        }
        return;
    case ESTALE:
        bulk_xfer_end(xfer, -ESTALE);
        return;
    case EACCES:
        bulk_xfer_end(xfer, -EACCES);
        return;
    case ERANGE:
        bulk_xfer_end(xfer, -ERANGE);
        return;
    default:
        bulk_xfer_end(xfer, -EPROTO);
        return;
    }
}

/* ---- the owner ---- */

static void
stage_on_export_event(struct lnet *ctx, const struct lnet_event *event)
{
    struct bulk_export *export = event->user;
    struct bulk *bulk = export->bulk;

    (void)ctx;
    bulk_export_on_event(export, event);
    bulk_stage_answers_send(bulk);
    bulk_xfers_pump(bulk);
    bulk_xfers_deliver(bulk);
}

static struct lnet_target
answer_target(const struct bulk_answer *answer, enum stage_kind kind)
{
    return (struct lnet_target){
        .peer = answer->peer,
        .portal = BULK_PORTAL,
        .match_bits = stage_match_bits(kind, answer->xfer_id),
        .offset_bytes = answer->offset_bytes,
    };
}

/* 0: sent, or never can be. -EAGAIN: later. */
static int
answer_send_ack(struct bulk *bulk, const struct bulk_answer *answer)
{
    struct lnet_target target = answer_target(answer, STAGE_ACK);

    target.hdr_data = (uint64_t)-answer->status;
    return lnet_put_inline(bulk->ctx, &target, NULL, 0) == -EAGAIN ? -EAGAIN : 0;
}

/* 0: all of it is sent, or can't be. -EAGAIN: some is left for later. */
static int
answer_send_data(struct bulk *bulk, struct bulk_answer *answer)
{
    struct bulk_export *export = answer->export;
    int rc = 0;

    if (!export->has_md) {
        const struct lnet_md md = {
            .start = export->iov,
            .length_bytes = export->length_bytes,
            .options = LNET_MD_IOV,
            .threshold = -1,
            .iov_count = export->count,
            .handler = stage_on_export_event,
            .user = export,
        };

        rc = lnet_md_bind(bulk->ctx, &md, &export->md);
        if (rc != 0) {
            return rc == -EAGAIN ? -EAGAIN : 0;
        }
        export->has_md = true;
    }
    while (answer->length_bytes > 0) {
        const struct lnet_target target = answer_target(answer, STAGE_DATA);
        struct lnet_limits limits;
        uint32_t bytes = answer->length_bytes;

        if (bulk->stage_puts_out >= STAGE_PUTS_MAX) {
            return -EAGAIN; /* their SEND events bring us back */
        }
        rc = lnet_put(bulk->ctx, export->md, answer->offset_bytes, bytes, &target, 0);
        if (rc == -EMSGSIZE) {
            lnet_limits_get(bulk->ctx, &limits);
            bytes = (uint32_t)base_min_u64(bytes, limits.put_bytes_max);
            rc = lnet_put(bulk->ctx, export->md, answer->offset_bytes, bytes, &target, 0);
        }
        if (rc != 0) {
            return rc == -EAGAIN ? -EAGAIN : 0;
        }
        export->puts_out++;
        bulk->stage_puts_out++;
        answer->offset_bytes += bytes;
        answer->length_bytes -= bytes;
    }
    return 0;
}

static int
answer_send(struct bulk *bulk, struct bulk_answer *answer)
{
    return answer->export != NULL ? answer_send_data(bulk, answer) : answer_send_ack(bulk, answer);
}

static void
answer_free(struct bulk *bulk, struct bulk_answer *answer)
{
    base_list_unlink(&answer->link);
    if (answer->export != NULL) {
        BASE_ASSERT(answer->export->answers_queued > 0);
        answer->export->answers_queued--;
    }
    lnet_peer_put(answer->peer);
    base_pool_return(&bulk->answer_pool, answer);
}

void
bulk_stage_answers_send(struct bulk *bulk)
{
    while (!base_list_empty(&bulk->answers)) {
        struct bulk_answer *answer =
            BASE_CONTAINER_OF(base_list_first(&bulk->answers), struct bulk_answer, link);

        if (answer_send(bulk, answer) == -EAGAIN) {
            if (bulk->stage_puts_out == 0) {
                bulk_kick_at(bulk, lnet_now(bulk->ctx) + BULK_RETRY_NS);
            }
            return;
        }
        answer_free(bulk, answer);
    }
}

void
bulk_stage_answers_drop(struct bulk_export *export)
{
    BASE_LIST_FOREACH(link, &export->bulk->answers) {
        struct bulk_answer *answer = BASE_CONTAINER_OF(link, struct bulk_answer, link);

        if (answer->export == export) {
            answer->export = NULL;
            answer->status = -ESTALE;
            export->answers_queued--;
        }
    }
    BASE_ASSERT(export->answers_queued == 0);
}

void
bulk_stage_answers_clear(struct bulk *bulk)
{
    while (!base_list_empty(&bulk->answers)) {
        answer_free(bulk,
                    BASE_CONTAINER_OF(base_list_first(&bulk->answers), struct bulk_answer, link));
    }
}

/* Sends @draft at once, or queues it in order. Without room for that the peer's deadline decides.
 */
static void
answer_post(struct bulk *bulk, struct bulk_answer *draft)
{
    struct bulk_answer *answer = NULL;

    if (base_list_empty(&bulk->answers) && answer_send(bulk, draft) == 0) {
        return;
    }
    answer = base_pool_take(&bulk->answer_pool);
    if (answer == NULL) {
        if (draft->export != NULL) {
            draft->export = NULL;
            draft->status = -EAGAIN;
            (void)answer_send_ack(bulk, draft);
        }
        return;
    }
    *answer = *draft;
    base_list_init(&answer->link);
    base_list_append(&bulk->answers, &answer->link);
    lnet_peer_hold(answer->peer);
    if (answer->export != NULL) {
        answer->export->answers_queued++;
    }
    if (bulk->stage_puts_out == 0) {
        bulk_kick_at(bulk, lnet_now(bulk->ctx) + BULK_RETRY_NS);
    }
}

/* Whether a peer may do @access to [offset, offset + length) of the export it names. */
static int
stage_admit(struct bulk *bulk, const struct lnet_event *event, uint32_t access,
            uint64_t length_bytes, struct bulk_export **export_out)
{
    struct bulk_export *export = NULL;
    const int rc = bulk_export_find(bulk, event->match_bits & BULK_ID_MASK, event->peer, &export);

    if (rc != 0) {
        bulk->stats.stale_count += rc == -ESTALE;
        return rc;
    }
    if ((export->access & access) == 0) {
        return -EACCES;
    }
    if (event->offset_bytes > export->length_bytes ||
        length_bytes > export->length_bytes - event->offset_bytes) {
        return -ERANGE;
    }
    *export_out = export;
    return 0;
}

static void
stage_on_push(struct bulk *bulk, const struct lnet_event *event)
{
    struct bulk_export *export = NULL;
    struct bulk_answer answer = {
        .peer = event->peer,
        .xfer_id = event->hdr_data,
        .offset_bytes = event->offset_bytes,
    };

    answer.status = stage_admit(bulk, event, LNET_ACCESS_WRITE, event->moved_bytes, &export);
    if (answer.status == 0) {
        struct bulk_cursor cursor = bulk_cursor_at(export->iov, export->count, event->offset_bytes);

        bulk_cursor_write(&cursor, event->data, event->moved_bytes);
    }
    answer_post(bulk, &answer);
}

static void
stage_on_pull(struct bulk *bulk, const struct lnet_event *event)
{
    struct bulk_answer answer = {
        .peer = event->peer,
        .xfer_id = event->hdr_data,
        .offset_bytes = event->offset_bytes,
    };

    if (event->moved_bytes != PULL_BYTES) {
        return; /* not ours: there is nobody to answer */
    }
    answer.length_bytes = base_le32_load(event->data);
    answer.status = stage_admit(bulk, event, LNET_ACCESS_READ, answer.length_bytes, &answer.export);
    answer_post(bulk, &answer);
}

void
bulk_stage_on_message(struct lnet *ctx, const struct lnet_event *event)
{
    struct bulk *bulk = event->user;

    (void)ctx;
    if (event->unlinked) {
        bulk->is_portal_open = false;
    }
    if (event->type != LNET_EV_PUT || event->status != 0 || bulk->is_closing) {
        return;
    }
    switch ((enum stage_kind)(event->match_bits >> BULK_ID_KIND_SHIFT)) {
    case STAGE_PUSH:
        stage_on_push(bulk, event);
        break;
    case STAGE_PULL:
        stage_on_pull(bulk, event);
        break;
    case STAGE_DATA:
        stage_on_data(bulk, event);
        break;
    case STAGE_ACK:
        stage_on_ack(bulk, event);
        break;
    }
    bulk_xfers_pump(bulk);
    bulk_xfers_deliver(bulk);
}
