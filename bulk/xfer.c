/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers: their life, and the path by RMA.
 *
 *     READY -> FLIGHT -> READY -> ...      one turn after another, round robin between transfers
 *     READY or FLIGHT -> ENDED             over, and nothing of ours is out
 *     READY or FLIGHT -> DRAINING -> ENDED over (done, failed, cancelled, too late), but an RMA or
 *                                          a queued message may still touch local memory
 *
 * An ended transfer waits for a poll to deliver its result, exactly once. Every change of state is
 * made by bulk_xfer_move(), every end by bulk_xfer_end().
 *
 * Over shm an RMA is a copy made during the call. So what is out at once, over all transfers, is
 * bounded by bytes (TURN_BYTES): that is how long small messages wait for bulk at most.
 */
#include "bulk/engine.h"

#include <errno.h>
#include <string.h>

/* RMA bytes out at once over all transfers: above this nobody gets a turn. */
#define TURN_BYTES (UINT64_C(1) << 20)

/* The bytes of one turn of one transfer. A process_vm call costs 1.1 us whatever it moves. */
#define FRAGMENT_BYTES (UINT64_C(1) << 20)

/* With a checksum: what was copied is still in the second-level cache when it is read again. */
#define FRAGMENT_CRC_BYTES (UINT64_C(256) << 10)

/* RMA calls of one turn: many short segments share a turn. */
#define BURST_CALLS_MAX 16u

/* A staged transfer on which nothing moved for so long is over, deadline or not. */
#define STALL_NS (50ull * 1000 * 1000 * 1000)

#define TO(state) (1u << BULK_XFER_##state)

static const uint32_t xfer_allowed[BULK_XFER_STATE_COUNT] = {
    [BULK_XFER_READY] = TO(FLIGHT) | TO(DRAINING) | TO(ENDED),
    [BULK_XFER_FLIGHT] = TO(READY) | TO(DRAINING) | TO(ENDED),
    [BULK_XFER_DRAINING] = TO(ENDED),
    [BULK_XFER_ENDED] = 0,
};

static struct base_list *
xfer_ready_list(struct bulk_xfer *xfer)
{
    return xfer->path == BULK_PATH_STAGING ? &xfer->bulk->ready_staged
                                           : &xfer->bulk->xfers[BULK_XFER_READY];
}

void
bulk_xfer_move(struct bulk_xfer *xfer, enum bulk_xfer_state to)
{
    struct bulk *bulk = xfer->bulk;
    struct base_list *home = &bulk->xfers[to];

    BASE_ASSERT((xfer_allowed[xfer->state] & (1u << to)) != 0);
    base_list_unlink(&xfer->link);
    if (to == BULK_XFER_READY) {
        home = xfer_ready_list(xfer);
    } else if (to == BULK_XFER_ENDED) {
        BASE_ASSERT(xfer->in_flight == 0);
        BASE_ASSERT(!xfer->has_md);
        if (bulk->call_depth == 0) {
            home = &bulk->deliver;
        } else {
            bulk_kick_at(bulk, lnet_now(bulk->ctx)); /* no completion within the call */
        }
    }
    base_list_append(home, &xfer->link);
    xfer->state = to;
}

/* Whether nothing of @xfer can touch local memory any more; else an event will come. */
static bool
xfer_release(struct bulk_xfer *xfer)
{
    if (xfer->path == BULK_PATH_STAGING) {
        return bulk_stage_release(xfer);
    }
    return xfer->in_flight == 0;
}

void
bulk_xfer_end(struct bulk_xfer *xfer, int status)
{
    if (xfer->state == BULK_XFER_DRAINING || xfer->state == BULK_XFER_ENDED) {
        return;
    }
    xfer->status = status;
    bulk_id_return(&xfer->bulk->xfer_ids, xfer->id); /* late messages find nobody */
    bulk_xfer_move(xfer, xfer_release(xfer) ? BULK_XFER_ENDED : BULK_XFER_DRAINING);
}

void
bulk_xfer_checksum(struct bulk_xfer *xfer, uint64_t upto_bytes)
{
    if ((xfer->flags & BULK_CRC32C) == 0 || upto_bytes <= xfer->crc_bytes) {
        return;
    }
    xfer->crc = bulk_cursor_crc32c(&xfer->crc_local, upto_bytes - xfer->crc_bytes, xfer->crc);
    xfer->crc_bytes = upto_bytes;
}

/* ---- delivery ---- */

static void
xfer_deliver(struct bulk_xfer *xfer)
{
    struct bulk *bulk = xfer->bulk;
    const bulk_done_fn done = xfer->done;
    void *user = xfer->user;
    struct bulk_result result = {
        .status = xfer->status,
        .moved_bytes = xfer->moved_bytes,
        .path = xfer->path,
    };

    if (xfer->status == 0) {
        bulk_xfer_checksum(xfer, xfer->length_bytes);
        result.crc32c = xfer->crc;
        bulk->stats.xfer_count[xfer->path]++;
        bulk->stats.xfer_bytes[xfer->path] += xfer->length_bytes;
    } else {
        bulk->stats.error_count++;
        bulk->stats.stale_count += xfer->status == -ESTALE;
    }
    base_list_unlink(&xfer->link);
    if (xfer->has_timer) {
        lnet_timer_cancel(bulk->ctx, &xfer->timer);
    }
    lnet_peer_put(xfer->peer);
    bulk->xfer_active_count--;
    if (xfer->wide != NULL) {
        base_pool_return(&bulk->xfer_wide_pool, xfer->wide);
    }
    base_pool_return(&bulk->xfer_pool, xfer);
    done(bulk, &result, user);
}

void
bulk_xfers_deliver(struct bulk *bulk)
{
    if (BASE_UNLIKELY(bulk->kick_wish_ns != UINT64_MAX)) {
        bulk_kick_at(bulk, bulk->kick_wish_ns);
    }
    while (!base_list_empty(&bulk->deliver)) {
        xfer_deliver(BASE_CONTAINER_OF(base_list_first(&bulk->deliver), struct bulk_xfer, link));
    }
}

/* ---- RMA ---- */

static void xfer_on_rma(struct lnet *ctx, int status, void *user);

/* Issues one RMA of at most @bytes_max. Errors: those of lnet_rma(). */
static int
rma_issue_one(struct bulk_xfer *xfer, uint64_t bytes_max)
{
    struct bulk *bulk = xfer->bulk;
    const struct bulk_handle_segment *segment = &xfer->segments[xfer->segment_index];
    struct bulk_cursor local = xfer->local;
    struct iovec slice[BULK_SEGMENTS_MAX];
    struct lnet_rma rma = {
        .peer = xfer->peer,
        .key = &segment->key,
        .remote_offset_bytes = xfer->segment_offset_bytes,
        .local = slice,
        .is_write = xfer->op == BULK_PUSH,
        .path = xfer->rma_path,
        .done = xfer_on_rma,
        .user = xfer,
    };

    bytes_max = base_min_u64(bytes_max, segment->length_bytes - xfer->segment_offset_bytes);
    bytes_max =
        bulk_cursor_slice(&local, bytes_max, slice, BASE_ARRAY_LEN(slice), &rma.local_count);

    const int rc = lnet_rma(bulk->ctx, &rma);

    if (rc != 0) {
        return rc;
    }
    xfer->local = local;
    xfer->in_flight++;
    xfer->burst_bytes += bytes_max;
    xfer->issued_bytes += bytes_max;
    bulk->rma_out_bytes += bytes_max;
    xfer->segment_offset_bytes += bytes_max;
    if (xfer->segment_offset_bytes == segment->length_bytes) {
        xfer->segment_index++;
        xfer->segment_offset_bytes = 0;
    }
    return 0;
}

/*
 * One turn: 0 if something is out, -EBUSY if enough of others is, -EAGAIN if LNet has no room; all
 * else ends the transfer.
 */
static int
rma_issue(struct bulk_xfer *xfer)
{
    const uint64_t rma_bytes_max = base_max_u64(xfer->bulk->rma_bytes_max, 1);
    uint64_t budget = xfer->fragment_bytes;
    int rc = 0;

    if (xfer->bulk->rma_out_bytes >= TURN_BYTES) {
        return -EBUSY;
    }
    while (budget > 0 && xfer->issued_bytes < xfer->length_bytes &&
           xfer->in_flight < BURST_CALLS_MAX) {
        uint64_t bytes = base_min_u64(budget, xfer->length_bytes - xfer->issued_bytes);
        const uint64_t before = xfer->issued_bytes;

        bytes = base_min_u64(bytes, rma_bytes_max);
        rc = rma_issue_one(xfer, bytes);
        if (rc != 0) {
            break;
        }
        budget -= xfer->issued_bytes - before;
    }
    if (xfer->in_flight == 0) {
        return rc == -ENOTCONN ? -ECONNRESET : rc;
    }
    if (rc != 0 && rc != -EAGAIN) {
        xfer->status = rc == -ENOTCONN ? -ECONNRESET : rc; /* ends when the rest has */
    }
    return 0;
}

static void
xfer_on_rma(struct lnet *ctx, int status, void *user)
{
    struct bulk_xfer *xfer = user;
    struct bulk *bulk = xfer->bulk;

    (void)ctx;
    BASE_ASSERT(xfer->in_flight > 0);
    xfer->in_flight--;
    if (status != 0) {
        xfer->burst_status = status;
    }
    if (xfer->in_flight > 0) {
        return;
    }
    BASE_ASSERT(bulk->rma_out_bytes >= xfer->burst_bytes);
    bulk->rma_out_bytes -= xfer->burst_bytes;
    if (xfer->burst_status == 0) {
        xfer->moved_bytes += xfer->burst_bytes;
    }
    xfer->burst_bytes = 0;
    if (xfer->state == BULK_XFER_DRAINING) {
        bulk_xfer_move(xfer, BULK_XFER_ENDED);
    } else if (xfer->burst_status != 0) {
        bulk_xfer_end(xfer, xfer->burst_status);
    } else if (xfer->status != 0 || xfer->moved_bytes == xfer->length_bytes) {
        bulk_xfer_end(xfer, xfer->status);
    } else {
        bulk_xfer_checksum(xfer, xfer->moved_bytes);
        bulk_xfer_move(xfer, BULK_XFER_READY);
    }
    bulk_xfers_pump(bulk);
    bulk_xfers_deliver(bulk);
}

/* ---- turns ---- */

/* Gives turns to the transfers of @ready until there is no more room. */
static void
pump_list(struct bulk *bulk, struct base_list *ready, int (*issue)(struct bulk_xfer *xfer))
{
    while (!base_list_empty(ready)) {
        struct bulk_xfer *xfer = BASE_CONTAINER_OF(base_list_first(ready), struct bulk_xfer, link);
        const int rc = issue(xfer);

        if (rc == -EBUSY) {
            return; /* what is out brings the next turn when it ends */
        }
        if (rc == -EAGAIN) {
            bulk_kick_at(bulk, lnet_now(bulk->ctx) + BULK_RETRY_NS);
            return;
        }
        if (rc == 0) {
            bulk_xfer_move(xfer, BULK_XFER_FLIGHT);
        } else {
            bulk_xfer_end(xfer, rc);
        }
    }
}

void
bulk_xfers_pump(struct bulk *bulk)
{
    pump_list(bulk, &bulk->xfers[BULK_XFER_READY], rma_issue);
    pump_list(bulk, &bulk->ready_staged, bulk_stage_issue);
}

static void
xfer_on_timer(struct lnet *ctx, void *arg)
{
    struct bulk_xfer *xfer = arg;
    struct bulk *bulk = xfer->bulk;
    const uint64_t now_ns = lnet_now(ctx);
    uint64_t next_ns = xfer->deadline_ns;

    if (xfer->path == BULK_PATH_STAGING) {
        next_ns = base_min_u64(next_ns, xfer->progress_ns + STALL_NS);
    }
    if (now_ns >= next_ns) {
        bulk_xfer_end(xfer, -ETIMEDOUT);
    } else if (xfer->state == BULK_XFER_READY || xfer->state == BULK_XFER_FLIGHT) {
        (void)lnet_timer_arm(ctx, &xfer->timer,
                             next_ns); /* its place in the table just fell free */
    }
    bulk_xfers_pump(bulk);
    bulk_xfers_deliver(bulk);
}

/* ---- start ---- */

/*
 * The path of a transfer that has a handle with keys: the LND's, or the forced one if it can be.
 * All segments must have RMA; the transfer counts as mapped if all of it is.
 */
static enum bulk_path
path_choose(struct bulk_xfer *xfer, bool has_keys)
{
    const enum bulk_path forced = xfer->bulk->path;
    enum bulk_path path = BULK_PATH_MAPPED;

    xfer->rma_path = LNET_RMA_NONE;
    if (forced == BULK_PATH_STAGING || !has_keys) {
        return BULK_PATH_STAGING;
    }
    for (uint32_t i = 0; i < xfer->segment_count; i++) {
        const enum lnet_rma_path segment = lnet_rma_path(xfer->peer, &xfer->segments[i].key);

        if (segment == LNET_RMA_NONE) {
            return BULK_PATH_STAGING;
        }
        if (segment != LNET_RMA_MAPPED) {
            path = BULK_PATH_CMA;
        }
    }
    if (forced == BULK_PATH_CMA) {
        xfer->rma_path = LNET_RMA_CMA;
        path = BULK_PATH_CMA;
    }
    return path;
}

static int
request_check(const struct bulk *bulk, const struct bulk_request *request,
              struct bulk_handle_head *head_out)
{
    uint64_t local_bytes = 0;

    if ((request->op != BULK_PULL && request->op != BULK_PUSH) ||
        (request->flags & ~(uint32_t)BULK_CRC32C) != 0 || request->peer == NULL ||
        request->done == NULL || request->local_count > BULK_SEGMENTS_MAX || bulk->is_closing) {
        return -EINVAL;
    }
    if (bulk_handle_decode(request->handle, request->handle_bytes, head_out) != 0) {
        return -EPROTO;
    }
    if (request->handle_offset_bytes > head_out->length_bytes ||
        request->length_bytes > head_out->length_bytes - request->handle_offset_bytes) {
        return -ERANGE;
    }
    for (uint32_t i = 0; i < request->local_count; i++) {
        if (request->local[i].iov_len > BULK_HANDLE_LENGTH_MAX - local_bytes) {
            return -EINVAL;
        }
        local_bytes += request->local[i].iov_len;
    }
    return request->length_bytes > local_bytes ? -ERANGE : 0;
}

/* Copies the memory lists, and puts the remote place at handle_offset_bytes. */
static void
xfer_lists_copy(struct bulk_xfer *xfer, const struct bulk_request *request,
                const struct bulk_handle_head *head)
{
    uint64_t skip = request->handle_offset_bytes;

    xfer->local_count = request->local_count;
    for (uint32_t i = 0; i < request->local_count; i++) {
        xfer->iov[i] = request->local[i];
    }
    xfer->local = bulk_cursor_at(xfer->iov, xfer->local_count, 0);
    xfer->crc_local = xfer->local;
    xfer->segment_count = head->segment_count;
    for (uint32_t i = 0; i < head->segment_count; i++) {
        bulk_handle_segment_get(request->handle, head, i, &xfer->segments[i]);
    }
    xfer->segment_index = 0;
    while (xfer->segment_index < xfer->segment_count &&
           skip >= xfer->segments[xfer->segment_index].length_bytes) {
        skip -= xfer->segments[xfer->segment_index].length_bytes;
        xfer->segment_index++;
    }
    xfer->segment_offset_bytes = skip;
}

/* What depends on the path. */
static void
xfer_prepare(struct bulk_xfer *xfer, bool has_keys)
{
    struct bulk *bulk = xfer->bulk;
    struct lnet_limits limits;

    if (xfer->length_bytes == 0) {
        xfer->path = BULK_PATH_AUTO;
        return;
    }
    lnet_limits_get(bulk->ctx, &limits); /* interfaces may have come since the open */
    bulk->put_bytes_max = limits.put_bytes_max;
    bulk->rma_bytes_max = limits.rma_bytes_max;
    xfer->path = path_choose(xfer, has_keys);
    xfer->fragment_bytes = bulk->fragment_bytes;
    if (xfer->fragment_bytes == 0) {
        xfer->fragment_bytes =
            (xfer->flags & BULK_CRC32C) != 0 ? FRAGMENT_CRC_BYTES : FRAGMENT_BYTES;
    }
}

/* Arms the timer if anything is to be decided by it. Errors: -EAGAIN. */
static int
xfer_timer_start(struct bulk_xfer *xfer)
{
    uint64_t when_ns = xfer->deadline_ns;

    if (xfer->path == BULK_PATH_STAGING) {
        when_ns = base_min_u64(when_ns, xfer->progress_ns + STALL_NS);
    }
    xfer->has_timer = when_ns != UINT64_MAX;
    if (!xfer->has_timer) {
        return 0;
    }
    xfer->timer = (struct lnet_timer){.fn = xfer_on_timer, .arg = xfer};
    return lnet_timer_arm(xfer->bulk->ctx, &xfer->timer, when_ns);
}

int
bulk_transfer(struct bulk *bulk, const struct bulk_request *request, struct bulk_xfer **xfer_out)
{
    struct bulk_handle_head head;
    struct bulk_xfer *xfer = NULL;
    int rc = request_check(bulk, request, &head);

    if (rc != 0) {
        return rc;
    }
    xfer = base_pool_take(&bulk->xfer_pool);
    if (xfer == NULL) {
        return -EAGAIN;
    }
    (void)memset(xfer, 0, offsetof(struct bulk_xfer, iov_inline));
    xfer->bulk = bulk;
    xfer->peer = request->peer;
    xfer->op = request->op;
    xfer->flags = request->flags;
    xfer->length_bytes = request->length_bytes;
    xfer->handle_offset_bytes = request->handle_offset_bytes;
    xfer->export_id = head.export_id;
    xfer->deadline_ns = request->deadline_ns == 0 ? UINT64_MAX : request->deadline_ns;
    xfer->progress_ns = lnet_now(bulk->ctx);
    xfer->done = request->done;
    xfer->user = request->user;
    xfer->iov = xfer->iov_inline;
    xfer->segments = xfer->segments_inline;
    base_list_init(&xfer->link);
    if (request->local_count > BULK_INLINE_SEGMENTS || head.segment_count > BULK_INLINE_SEGMENTS) {
        xfer->wide = base_pool_take(&bulk->xfer_wide_pool);
        if (xfer->wide == NULL) {
            rc = -EAGAIN;
            goto fail_return;
        }
        xfer->iov = xfer->wide->iov;
        xfer->segments = xfer->wide->segments;
    }
    xfer_lists_copy(xfer, request, &head);
    xfer_prepare(xfer, head.has_keys);
    rc = xfer_timer_start(xfer);
    if (rc != 0) {
        goto fail_return_wide;
    }
    if (xfer->path == BULK_PATH_STAGING) {
        rc = bulk_stage_start(xfer); /* last: a bound MD can't be taken back at once */
        if (rc != 0) {
            goto fail_cancel_timer;
        }
    }
    xfer->id = bulk_id_take(&bulk->xfer_ids, base_pool_index(&bulk->xfer_pool, xfer));
    lnet_peer_hold(xfer->peer);
    bulk->xfer_active_count++;
    if (xfer_out != NULL) {
        *xfer_out = xfer;
    }
    base_list_append(xfer_ready_list(xfer), &xfer->link);
    bulk->call_depth++;
    if (xfer->length_bytes == 0) {
        bulk_xfer_end(xfer, 0);
    } else {
        bulk_xfers_pump(bulk);
    }
    bulk->call_depth--;
    return 0;

fail_cancel_timer:
    lnet_timer_cancel(bulk->ctx, &xfer->timer); /* a staged transfer has one */
fail_return_wide:
    if (xfer->wide != NULL) {
        base_pool_return(&bulk->xfer_wide_pool, xfer->wide);
    }
fail_return:
    base_pool_return(&bulk->xfer_pool, xfer);
    return rc;
}

void
bulk_cancel(struct bulk_xfer *xfer)
{
    struct bulk *bulk = xfer->bulk;

    bulk->call_depth++;
    bulk_xfer_end(xfer, -ECANCELED);
    bulk->call_depth--;
}
