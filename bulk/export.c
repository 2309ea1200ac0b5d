/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exports: memory that one peer is let into, until it is closed.
 *
 * OPEN -> freed at once              nobody was inside at the close
 * OPEN -> CLOSING -> freed           a peer was copying, or an answer was still inside LNet
 * OPEN or CLOSING -> UNLINKING -> freed   the memory is the caller's again; the source MD's last
 *                                    event must come before the slot can be used anew
 *
 * A handle names each segment by an RMA window where the peer's LND has such, and all of them by
 * the export's id for the path through messages (stage.c), which costs nothing until it is used.
 * Both are refused from the close on: the window by its epoch, the id because none is used twice.
 */
#include "bulk/engine.h"

#include <errno.h>

#define EXPORT_RETRY_NS_MIN 2000ull
#define EXPORT_RETRY_NS_MAX 1000000ull

/* ---- opening ---- */

/* Registers and opens the window of one segment. */
static int
segment_open(struct bulk_export *export, struct bulk_export_segment *segment,
             const struct iovec *part)
{
    struct bulk *bulk = export->bulk;
    const uint64_t start = (uintptr_t)part->iov_base;
    const uint64_t end = start + part->iov_len;
    struct lnet_mem *mem = NULL;
    uint64_t mem_start = 0;
    int rc = 0;

    segment->reg = NULL;
    segment->region = bulk_region_find(bulk, start, end);
    if (segment->region != NULL) {
        mem = segment->region->mem;
        mem_start = segment->region->start;
    } else {
        rc = bulk_reg_get(&bulk->cache, start, end, &segment->reg);
        if (rc != 0) {
            return rc;
        }
        mem = segment->reg->mem;
        mem_start = segment->reg->start;
    }
    rc = lnet_window_open(mem, start - mem_start, part->iov_len, export->access, export->peer,
                          &segment->window, &segment->key);
    if (rc != 0) {
        if (segment->reg != NULL) {
            bulk_reg_put(&bulk->cache, segment->reg);
        }
        return rc;
    }
    if (segment->region != NULL) {
        segment->region->use_count++;
    }
    return 0;
}

/*
 * Closes the windows, the last one first. Returns 0, or -EBUSY with the rest still open: a peer is
 * inside; all of them refuse new accesses.
 */
static int
segments_close(struct bulk_export *export)
{
    int rc = 0;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < export->window_count; i++) {
        struct bulk_export_segment *segment = &export->segments[i];

        if (lnet_window_close(export->bulk->ctx, segment->window) == -EBUSY) {
            rc = -EBUSY;
            export->segments[kept++] = *segment;
            continue;
        }
        if (segment->region != NULL) {
            BASE_ASSERT(segment->region->use_count > 0);
            segment->region->use_count--;
        } else {
            bulk_reg_put(&export->bulk->cache, segment->reg);
        }
    }
    export->window_count = kept;
    return rc;
}

/* Opens a window for every segment, unless the peer's LND has no RMA. */
static int
segments_open(struct bulk_export *export)
{
    for (uint32_t i = 0; i < export->count; i++) {
        const int rc = segment_open(export, &export->segments[i], &export->iov[i]);

        if (rc == -EOPNOTSUPP) {
            (void)segments_close(export); /* nobody knows the keys: never -EBUSY */
            export->has_keys = false;
            return 0;
        }
        if (rc != 0) {
            (void)segments_close(export);
            return rc;
        }
        export->window_count++;
    }
    export->has_keys = true;
    return 0;
}

/* Copies the parts that have bytes. Returns how many, or -EINVAL. */
static int
parts_copy(struct bulk_export *export, const struct iovec *iov, uint32_t iov_count)
{
    uint64_t length_bytes = 0;
    uint32_t count = 0;

    for (uint32_t i = 0; i < iov_count; i++) {
        const uint64_t start = (uintptr_t)iov[i].iov_base;
        const uint64_t bytes = iov[i].iov_len;

        if (bytes == 0) {
            continue;
        }
        if (start == 0 || bytes > BULK_HANDLE_LENGTH_MAX || start > INT64_MAX - bytes ||
            bytes > BULK_HANDLE_LENGTH_MAX - length_bytes) {
            return -EINVAL;
        }
        export->iov[count] = iov[i];
        export->segments[count].length_bytes = bytes;
        length_bytes += bytes;
        count++;
    }
    export->count = count;
    export->length_bytes = length_bytes;
    return 0;
}

/* Gives the slot back. Everything in it is closed. */
static void
export_free(struct bulk_export *export)
{
    struct bulk *bulk = export->bulk;

    BASE_ASSERT(export->window_count == 0);
    BASE_ASSERT(export->answers_queued == 0);
    BASE_ASSERT(export->puts_out == 0);
    BASE_ASSERT(!export->has_md);
    base_list_unlink(&export->link);
    lnet_peer_put(export->peer);
    if (export->wide != NULL) {
        base_pool_return(&bulk->export_wide_pool, export->wide);
    }
    base_pool_return(&bulk->export_pool, export);
}

int
bulk_export(struct bulk *bulk, struct lnet_peer *peer, const struct iovec *iov, uint32_t iov_count,
            uint32_t access, struct bulk_export **export_out)
{
    struct bulk_export *export = NULL;
    int rc = 0;

    if (iov_count > BULK_SEGMENTS_MAX || access == 0 ||
        (access & ~(uint32_t)(LNET_ACCESS_READ | LNET_ACCESS_WRITE)) != 0 || bulk->is_closing) {
        return -EINVAL;
    }
    export = base_pool_take(&bulk->export_pool);
    if (export == NULL) {
        return -EAGAIN;
    }
    export->bulk = bulk;
    export->peer = peer;
    export->access = access;
    export->state = BULK_EXPORT_OPEN;
    export->window_count = 0;
    export->answers_queued = 0;
    export->puts_out = 0;
    export->has_md = false;
    export->has_keys = false;
    export->wide = NULL;
    export->iov = export->iov_inline;
    export->segments = export->segments_inline;
    if (iov_count > BULK_INLINE_SEGMENTS) {
        export->wide = base_pool_take(&bulk->export_wide_pool);
        if (export->wide == NULL) {
            rc = -EAGAIN;
            goto fail_return;
        }
        export->iov = export->wide->iov;
        export->segments = export->wide->segments;
    }
    rc = parts_copy(export, iov, iov_count);
    if (rc == 0 && bulk->path != BULK_PATH_STAGING) {
        rc = segments_open(export);
    }
    if (rc != 0) {
        goto fail_return_wide;
    }
    export->id = bulk_id_take(&bulk->export_ids, base_pool_index(&bulk->export_pool, export));
    lnet_peer_hold(peer);
    base_list_init(&export->link);
    base_list_append(&bulk->exports, &export->link);
    bulk->stats.export_count++;
    *export_out = export;
    return 0;

fail_return_wide:
    if (export->wide != NULL) {
        base_pool_return(&bulk->export_wide_pool, export->wide);
    }
fail_return:
    base_pool_return(&bulk->export_pool, export);
    return rc;
}

uint32_t
bulk_export_pack(const struct bulk_export *export, void *buffer, uint32_t bytes)
{
    const uint32_t handle_bytes = bulk_handle_bytes(export->count, export->has_keys);

    if (bytes < handle_bytes) {
        return 0;
    }
    bulk_handle_head_put(buffer, export->id, export->count, export->has_keys);
    for (uint32_t i = 0; i < export->count; i++) {
        const struct bulk_export_segment *segment = &export->segments[i];

        bulk_handle_segment_put(buffer, i, export->has_keys, segment->length_bytes, &segment->key);
    }
    return handle_bytes;
}

int
bulk_export_find(struct bulk *bulk, uint64_t id, const struct lnet_peer *peer,
                 struct bulk_export **export_out)
{
    if (!bulk_id_is_live(&bulk->export_ids, id)) {
        return -ESTALE;
    }
    struct bulk_export *export =
        base_pool_at(&bulk->export_pool, (uint32_t)(id & (BULK_ID_SLOTS_MAX - 1)));

    BASE_ASSERT(export->id == id);
    if (export->peer != peer) {
        return -EACCES;
    }
    *export_out = export;
    return 0;
}

/* ---- closing ---- */

/* Whether anybody may still touch the memory. */
static bool
export_is_busy(struct bulk_export *export)
{
    return segments_close(export) != 0 || export->puts_out != 0;
}

/* The memory is the caller's: the slot goes at once, or with the last event of the MD. */
static void
export_release(struct bulk_export *export)
{
    if (export->has_md) {
        export->state = BULK_EXPORT_UNLINKING;
        base_list_unlink(&export->link);
        base_list_append(&export->bulk->exports_closing, &export->link);
        return;
    }
    export_free(export);
}

/* Nobody is inside any more: says so. */
static void
export_closed(struct bulk_export *export)
{
    struct bulk *bulk = export->bulk;
    const bulk_closed_fn closed = export->closed;
    void *user = export->user;

    export_release(export);
    if (closed != NULL) {
        closed(bulk, user);
    }
}

int
bulk_export_close(struct bulk_export *export, bulk_closed_fn closed, void *user)
{
    struct bulk *bulk = export->bulk;

    BASE_ASSERT(export->state == BULK_EXPORT_OPEN);
    bulk_id_return(&bulk->export_ids, export->id);
    bulk->stats.export_count--;
    if (export->answers_queued != 0) {
        bulk_stage_answers_drop(export);
    }
    if (export->has_md && lnet_md_unlink(bulk->ctx, export->md) != 0) {
        export->has_md = false;
    }
    if (!export_is_busy(export)) {
        export_release(export);
        return 0;
    }
    export->state = BULK_EXPORT_CLOSING;
    export->closed = closed;
    export->user = user;
    base_list_unlink(&export->link);
    base_list_append(&bulk->exports_closing, &export->link);
    bulk->close_retry_ns = EXPORT_RETRY_NS_MIN;
    bulk_kick_at(bulk, lnet_now(bulk->ctx));
    return -EINPROGRESS;
}

bool
bulk_exports_retry(struct bulk *bulk)
{
    struct base_list waiting;
    bool is_left = false;

    /* closed() may close further exports, which go to the list that this loop does not walk. */
    base_list_init(&waiting);
    base_list_move_all(&waiting, &bulk->exports_closing);
    while (!base_list_empty(&waiting)) {
        struct bulk_export *export =
            BASE_CONTAINER_OF(base_list_first(&waiting), struct bulk_export, link);

        base_list_unlink(&export->link);
        base_list_append(&bulk->exports_closing, &export->link);
        if (export->state != BULK_EXPORT_CLOSING) {
            continue;
        }
        if (export_is_busy(export)) {
            is_left = true;
        } else {
            export_closed(export);
        }
    }
    if (is_left) {
        bulk_kick_at(bulk, lnet_now(bulk->ctx) + bulk->close_retry_ns);
        bulk->close_retry_ns = base_min_u64(bulk->close_retry_ns * 2, EXPORT_RETRY_NS_MAX);
    }
    return is_left;
}

void
bulk_export_on_event(struct bulk_export *export, const struct lnet_event *event)
{
    if (event->type == LNET_EV_SEND) {
        BASE_ASSERT(export->puts_out > 0);
        export->puts_out--;
        BASE_ASSERT(export->bulk->stage_puts_out > 0);
        export->bulk->stage_puts_out--;
    }
    if (event->unlinked) {
        /* What was still inside LNet has been withdrawn with the MD. */
        BASE_ASSERT(export->bulk->stage_puts_out >= export->puts_out);
        export->bulk->stage_puts_out -= export->puts_out;
        export->puts_out = 0;
        export->has_md = false;
    }
    switch (export->state) {
    case BULK_EXPORT_OPEN:
        return;
    case BULK_EXPORT_CLOSING:
        if (!export_is_busy(export)) {
            export_closed(export);
        }
        return;
    case BULK_EXPORT_UNLINKING:
        if (!export->has_md) {
            export_free(export);
        }
        return;
    }
    BASE_UNREACHABLE();
}
