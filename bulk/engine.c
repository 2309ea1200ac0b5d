/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bulk engine of a context: its pools, its bounds, and what drives it.
 *
 * Nothing here runs but from a call of the user's or a callback of lnet_poll(): the end of an RMA,
 * a message on BULK_PORTAL, a connection that broke, and the kick timer. The kick is for what has
 * no event of its own: results of transfers that ended within a call, exports that wait for a peer
 * to leave, and whatever LNet had no room for.
 *
 * Memory: exports_max + exports_max/64 long ones, the same for transfers, cache_entries_max +
 * exports_max registrations and ANSWERS_MAX staged answers, all allocated at open.
 */
#include "bulk/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_ENTRIES_DEFAULT 256u
#define EXPORTS_DEFAULT       4096u
#define XFERS_DEFAULT         1024u
#define WINDOW_DEFAULT        8u
#define WIDE_SHARE            64u
#define WIDE_MIN              16u
#define ANSWERS_MAX           1024u
#define FRAGMENT_BYTES_MIN    64u

/* bulk_close() polls this often for peers that copy from our memory before it gives up on them. */
#define CLOSE_POLLS_MAX 10000000u

static int
ids_init(struct bulk_ids *ids, uint32_t count, uint64_t generation)
{
    ids->table = calloc(count, sizeof(ids->table[0]));
    ids->count = count;
    ids->generation = generation;
    return ids->table == NULL ? -ENOMEM : 0;
}

uint64_t
bulk_id_take(struct bulk_ids *ids, uint32_t slot)
{
    BASE_ASSERT(slot < ids->count);
    BASE_ASSERT(ids->table[slot] == 0);
    ids->generation++;
    ids->table[slot] = ((ids->generation << BULK_ID_SLOT_BITS) | slot) & BULK_ID_MASK;
    if (ids->table[slot] == 0) {
        return bulk_id_take(ids, slot); /* slot 0 and a generation that wrapped: 0 is no id */
    }
    return ids->table[slot];
}

/* ---- what drives it ---- */

static void
engine_progress(struct bulk *bulk)
{
    (void)bulk_exports_retry(bulk);
    bulk_stage_answers_send(bulk);
    bulk_xfers_pump(bulk);
    bulk_xfers_deliver(bulk);
}

static void
engine_on_kick(struct lnet *ctx, void *arg)
{
    struct bulk *bulk = arg;

    (void)ctx;
    bulk->kick_ns = UINT64_MAX;
    base_list_move_all(&bulk->deliver, &bulk->xfers[BULK_XFER_ENDED]);
    engine_progress(bulk);
}

void
bulk_kick_at(struct bulk *bulk, uint64_t when_ns)
{
    if (when_ns >= bulk->kick_ns) {
        return;
    }
    /* Without room for the timer the wish stays, and bulk_xfers_deliver() tries again. */
    bulk->kick_wish_ns = when_ns;
    if (lnet_timer_arm(bulk->ctx, &bulk->kick, when_ns) == 0) {
        bulk->kick_ns = when_ns;
        bulk->kick_wish_ns = UINT64_MAX;
    }
}

static void
engine_on_connection(struct lnet *ctx, struct lnet_peer *peer, int status, void *arg)
{
    struct bulk *bulk = arg;
    struct base_list *under_way[] = {&bulk->ready_staged, &bulk->xfers[BULK_XFER_FLIGHT]};

    (void)ctx;
    if (status == 0) {
        return;
    }
    /* RMA ends by itself; a message that will never be answered does not. */
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(under_way); i++) {
        BASE_LIST_FOREACH_SAFE(link, tmp, under_way[i]) {
            struct bulk_xfer *xfer = BASE_CONTAINER_OF(link, struct bulk_xfer, link);

            if (xfer->peer == peer && xfer->path == BULK_PATH_STAGING) {
                bulk_xfer_end(xfer, -ECONNRESET);
            }
        }
    }
    engine_progress(bulk);
}

/* ---- open and close ---- */

static uint32_t
option_u32(uint32_t value, uint32_t fallback)
{
    return value != 0 ? value : fallback;
}

static uint32_t
wide_count(uint32_t count)
{
    return base_max_u32(count / WIDE_SHARE, WIDE_MIN);
}

static int
options_check(const struct bulk_options *options)
{
    if (options->struct_bytes != sizeof(*options) || options->path >= BULK_PATH_COUNT ||
        options->exports_max > BULK_ID_SLOTS_MAX || options->xfers_max > BULK_ID_SLOTS_MAX ||
        options->cache_entries_max > BULK_ID_SLOTS_MAX || options->window > BULK_WINDOW_MAX ||
        (options->fragment_bytes != 0 && options->fragment_bytes < FRAGMENT_BYTES_MIN)) {
        return -EINVAL;
    }
    return 0;
}

static int
pools_init(struct bulk *bulk, const struct bulk_options *options)
{
    const uint32_t exports_max = option_u32(options->exports_max, EXPORTS_DEFAULT);
    const uint32_t xfers_max = option_u32(options->xfers_max, XFERS_DEFAULT);
    const uint32_t entries_max = option_u32(options->cache_entries_max, CACHE_ENTRIES_DEFAULT);
    int rc = 0;

    rc = rc != 0 ? rc : bulk_range_init(&bulk->regions, 16);
    rc = rc != 0 ? rc : bulk_reg_cache_init(&bulk->cache, bulk->ctx, entries_max, exports_max);
    rc = rc != 0 ? rc : ids_init(&bulk->export_ids, exports_max, lnet_random(bulk->ctx));
    rc = rc != 0 ? rc : ids_init(&bulk->xfer_ids, xfers_max, lnet_random(bulk->ctx));
    rc = rc != 0 ? rc
                 : base_pool_init(&bulk->export_pool, sizeof(struct bulk_export), exports_max,
                                  BASE_CACHE_LINE);
    rc = rc != 0 ? rc
                 : base_pool_init(&bulk->export_wide_pool, sizeof(struct bulk_export_wide),
                                  wide_count(exports_max), BASE_CACHE_LINE);
    rc = rc != 0 ? rc
                 : base_pool_init(&bulk->xfer_pool, sizeof(struct bulk_xfer), xfers_max,
                                  BASE_CACHE_LINE);
    rc = rc != 0 ? rc
                 : base_pool_init(&bulk->xfer_wide_pool, sizeof(struct bulk_xfer_wide),
                                  wide_count(xfers_max), BASE_CACHE_LINE);
    rc = rc != 0 ? rc
                 : base_pool_init(&bulk->answer_pool, sizeof(struct bulk_answer), ANSWERS_MAX, 0);
    return rc;
}

/* Frees everything; what was never initialised is all zero. */
static void
engine_free(struct bulk *bulk)
{
    base_pool_fini(&bulk->answer_pool);
    base_pool_fini(&bulk->xfer_wide_pool);
    base_pool_fini(&bulk->xfer_pool);
    base_pool_fini(&bulk->export_wide_pool);
    base_pool_fini(&bulk->export_pool);
    free(bulk->xfer_ids.table);
    free(bulk->export_ids.table);
    if (bulk->cache.ctx != NULL) {
        bulk_reg_cache_fini(&bulk->cache);
    }
    bulk_range_fini(&bulk->regions);
    free(bulk);
}

/* One entry takes every message of the portal: the ids in the match bits are looked up here. */
static int
portal_open(struct bulk *bulk)
{
    const struct lnet_match match = {
        .portal = BULK_PORTAL,
        .from = {.nid = {.value = LNET_NID_ANY}, .pid = LNET_PID_ANY},
        .ignore_bits = UINT64_MAX,
    };
    const struct lnet_md md = {
        .length_bytes = INT64_MAX,
        .options = LNET_MD_OP_PUT | LNET_MD_PEEK | LNET_MD_MANAGE_REMOTE | LNET_MD_ACK_DISABLE |
                   LNET_MD_RETAIN,
        .threshold = -1,
        .handler = bulk_stage_on_message,
        .user = bulk,
    };
    const int rc = lnet_md_attach(bulk->ctx, &match, &md, &bulk->portal_md);

    bulk->is_portal_open = rc == 0;
    return rc;
}

int
bulk_open(struct lnet *ctx, const struct bulk_options *options, struct bulk **bulk_out)
{
    static const struct bulk_options defaults = {.struct_bytes = sizeof(defaults)};
    struct lnet_limits limits;
    struct bulk *bulk = NULL;
    int rc = 0;

    if (options == NULL) {
        options = &defaults;
    }
    rc = options_check(options);
    if (rc != 0) {
        return rc;
    }
    bulk = calloc(1, sizeof(*bulk));
    if (bulk == NULL) {
        return -ENOMEM;
    }
    lnet_limits_get(ctx, &limits);
    if (limits.iov_max < BULK_SEGMENTS_MAX) {
        free(bulk);
        return -EINVAL; /* a staged transfer is one MD over all its memory */
    }
    bulk->ctx = ctx;
    bulk->path = (enum bulk_path)options->path;
    bulk->window = option_u32(options->window, WINDOW_DEFAULT);
    bulk->fragment_bytes = options->fragment_bytes;
    bulk->kick = (struct lnet_timer){.fn = engine_on_kick, .arg = bulk};
    bulk->kick_ns = UINT64_MAX;
    bulk->kick_wish_ns = UINT64_MAX;
    bulk->watch = (struct lnet_peer_watch){.fn = engine_on_connection, .arg = bulk};
    base_list_init(&bulk->exports);
    base_list_init(&bulk->exports_closing);
    for (uint32_t i = 0; i < BULK_XFER_STATE_COUNT; i++) {
        base_list_init(&bulk->xfers[i]);
    }
    base_list_init(&bulk->ready_staged);
    base_list_init(&bulk->deliver);
    base_list_init(&bulk->answers);
    rc = pools_init(bulk, options);
    if (rc == 0) {
        rc = portal_open(bulk);
    }
    if (rc != 0) {
        engine_free(bulk);
        return rc == -EAGAIN ? -ENOMEM : rc;
    }
    lnet_peer_watch_add(ctx, &bulk->watch);
    *bulk_out = bulk;
    return 0;
}

/* Ends every transfer of @list. */
static void
xfers_cancel(struct base_list *list)
{
    while (!base_list_empty(list)) {
        bulk_xfer_end(BASE_CONTAINER_OF(base_list_first(list), struct bulk_xfer, link), -ECANCELED);
    }
}

static bool
engine_is_drained(const struct bulk *bulk)
{
    return bulk->xfer_active_count == 0 && base_list_empty(&bulk->exports_closing) &&
           !bulk->is_portal_open;
}

void
bulk_close(struct bulk *bulk)
{
    if (bulk == NULL) {
        return;
    }
    bulk->is_closing = true;
    xfers_cancel(&bulk->xfers[BULK_XFER_READY]);
    xfers_cancel(&bulk->ready_staged);
    xfers_cancel(&bulk->xfers[BULK_XFER_FLIGHT]);
    while (!base_list_empty(&bulk->exports)) {
        (void)bulk_export_close(
            BASE_CONTAINER_OF(base_list_first(&bulk->exports), struct bulk_export, link), NULL,
            NULL);
    }
    if (lnet_md_unlink(bulk->ctx, bulk->portal_md) != 0) {
        bulk->is_portal_open = false;
    }
    for (uint32_t i = 0; i < CLOSE_POLLS_MAX && !engine_is_drained(bulk); i++) {
        base_list_move_all(&bulk->deliver, &bulk->xfers[BULK_XFER_ENDED]);
        engine_progress(bulk);
        if (!engine_is_drained(bulk)) {
            (void)lnet_poll(bulk->ctx, lnet_now(bulk->ctx), 64);
        }
    }
    lnet_timer_cancel(bulk->ctx, &bulk->kick);
    lnet_peer_watch_del(bulk->ctx, &bulk->watch);
    bulk_stage_answers_clear(bulk);
    if (!engine_is_drained(bulk)) {
        /*
         * A stopped peer sits in the middle of a copy. What it and LNet still refer to is leaked
         * rather than freed under them.
         */
        return;
    }
    while (bulk->regions.count > 0) {
        bulk_region_free(bulk->regions.entries[0].owner);
    }
    engine_free(bulk);
}

void
bulk_stats_get(const struct bulk *bulk, struct bulk_stats *stats_out)
{
    *stats_out = bulk->stats;
    stats_out->cache_hit_count = bulk->cache.hit_count;
    stats_out->cache_miss_count = bulk->cache.miss_count;
    stats_out->cache_evict_count = bulk->cache.evict_count;
    stats_out->xfer_active_count = bulk->xfer_active_count;
    stats_out->region_bytes = bulk->region_bytes;
    stats_out->page_bytes = bulk->page_bytes;
}

const char *
bulk_path_name(enum bulk_path path)
{
    switch (path) {
    case BULK_PATH_AUTO:
        return "auto";
    case BULK_PATH_MAPPED:
        return "mapped";
    case BULK_PATH_CMA:
        return "cma";
    case BULK_PATH_STAGING:
        return "staging";
    }
    return "unknown";
}
