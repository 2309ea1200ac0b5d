/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The context: opens and closes everything, and fixes the order of a poll turn:
 *
 *   time, timers, posts, events that are due and peers' put-off work, interfaces in turn
 *
 * Each of the first four costs one comparison when there is nothing to do.
 */
#include "lnet/ctx.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PEERS_MAX_DEFAULT           4096u
#define MDS_MAX_DEFAULT             65536u
#define QUEUED_MESSAGES_MAX_DEFAULT 1024u
#define TRANSACTION_TIMEOUT_NS      UINT64_C(50000000000)
#define CONNECT_TIMEOUT_NS          UINT64_C(10000000000)
#define TIMEOUT_NS_MAX              (UINT64_C(1) << 62) /* now + timeout must not wrap */
#define TIMERS_PER_TURN             64u
#define POSTS_PER_TURN              64u

/* *@value, or @fallback when it is 0; above @max it is out of range. */
static int
option_u32(uint32_t value, uint32_t fallback, uint32_t max, uint32_t *value_out)
{
    *value_out = value == 0 ? fallback : value;
    return *value_out <= max ? 0 : -EINVAL;
}

static int
options_apply(struct lnet *ctx, const struct lnet_options *given)
{
    struct lnet_options options = {0};

    if (given != NULL) {
        if (given->struct_bytes < sizeof(uint64_t)) {
            return -EINVAL;
        }
        (void)memcpy(&options, given, base_min_u64(given->struct_bytes, sizeof(options)));
    }
    if (options.pid == LNET_PID_ANY ||
        option_u32(options.peers_max, PEERS_MAX_DEFAULT, 1u << 24, &ctx->peers_max) != 0 ||
        option_u32(options.mds_max, MDS_MAX_DEFAULT, LNET_SLOTS_MAX - 1, &ctx->mds_max) != 0 ||
        option_u32(options.queued_messages_max, QUEUED_MESSAGES_MAX_DEFAULT, 1u << 24,
                   &ctx->queued_messages_max) != 0) {
        return -EINVAL;
    }
    ctx->pid = options.pid;
    ctx->stamp = options.stamp;
    ctx->stamp_arg = options.stamp_arg;
    ctx->log = (struct base_log){
        .write = options.log, .arg = options.log_arg, .level_max = options.log_level};
    ctx->transaction_timeout_ns = options.transaction_timeout_ns == 0
                                      ? TRANSACTION_TIMEOUT_NS
                                      : options.transaction_timeout_ns;
    ctx->connect_timeout_ns =
        options.connect_timeout_ns == 0 ? CONNECT_TIMEOUT_NS : options.connect_timeout_ns;
    ctx->transaction_timeout_ns = base_min_u64(ctx->transaction_timeout_ns, TIMEOUT_NS_MAX);
    ctx->connect_timeout_ns = base_min_u64(ctx->connect_timeout_ns, TIMEOUT_NS_MAX);
    base_prng_seed(&ctx->prng, options.seed);
    ctx->incarnation = base_prng_u64(&ctx->prng) | 1;
    return 0;
}

/* The descriptors that an idle context sleeps on. */
static int
fds_open(struct lnet *ctx)
{
    struct epoll_event event = {.events = EPOLLIN};
    int rc = 0;

    ctx->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (ctx->epoll_fd < 0) {
        return -errno;
    }
    ctx->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ctx->event_fd < 0) {
        rc = -errno;
        goto fail_close_epoll;
    }
    if (epoll_ctl(ctx->epoll_fd, EPOLL_CTL_ADD, ctx->event_fd, &event) != 0) {
        rc = -errno;
        goto fail_close_event;
    }
    return 0;

fail_close_event:
    (void)close(ctx->event_fd);
fail_close_epoll:
    (void)close(ctx->epoll_fd);
    return rc;
}

static void
fds_close(struct lnet *ctx)
{
    (void)close(ctx->event_fd);
    (void)close(ctx->epoll_fd);
}

/* Interface 0 is "0@lo" and portal 0 answers pings: what every context has. */
static int
lo_open(struct lnet *ctx)
{
    const struct lnet_ni_options options = {
        .struct_bytes = sizeof(options), .net = "lo", .address = "0"};
    const int rc = lnet_ni_add(ctx, &options, NULL);

    return rc != 0 ? rc : lnet_ping_init(ctx);
}

int
lnet_open(const struct lnet_options *options, struct lnet **ctx_out)
{
    struct lnet *ctx = aligned_alloc(BASE_CACHE_LINE, base_align_up(sizeof(*ctx), BASE_CACHE_LINE));

    if (ctx == NULL) {
        return -ENOMEM;
    }
    (void)memset(ctx, 0, sizeof(*ctx));
    base_list_init(&ctx->pendings);
    base_list_init(&ctx->peer_work);
    base_list_init(&ctx->msgs_free);
    base_list_init(&ctx->watches);
    lnet_portals_init(ctx->portals);

    int rc = options_apply(ctx, options);

    if (rc != 0) {
        goto fail_free;
    }
    rc = fds_open(ctx);
    if (rc != 0) {
        goto fail_free;
    }
    rc = lnet_posts_init(&ctx->posts);
    if (rc != 0) {
        goto fail_close_fds;
    }
    rc = base_timers_init(&ctx->timers, 0);
    if (rc != 0) {
        goto fail_fini_posts;
    }
    rc = lnet_slots_init(&ctx->mds, sizeof(struct lnet_entry), ctx->mds_max + 1, /* + the ping's */
                         base_prng_u64(&ctx->prng));
    if (rc != 0) {
        goto fail_fini_timers;
    }
    rc =
        lnet_slots_init(&ctx->ops, sizeof(struct lnet_op), ctx->mds_max, base_prng_u64(&ctx->prng));
    if (rc != 0) {
        goto fail_fini_mds;
    }
    rc = lnet_rmas_init(ctx, ctx->mds_max);
    if (rc != 0) {
        goto fail_fini_ops;
    }
    ctx->peer_buckets = malloc(LNET_PEER_BUCKETS * sizeof(ctx->peer_buckets[0]));
    if (ctx->peer_buckets == NULL) {
        rc = -ENOMEM;
        goto fail_fini_rmas;
    }
    for (uint32_t i = 0; i < LNET_PEER_BUCKETS; i++) {
        base_list_init(&ctx->peer_buckets[i]);
    }
    rc = lo_open(ctx);
    if (rc != 0) {
        lnet_close(ctx);
        return rc;
    }
    *ctx_out = ctx;
    return 0;

fail_fini_rmas:
    lnet_slots_fini(&ctx->rmas);
fail_fini_ops:
    lnet_slots_fini(&ctx->ops);
fail_fini_mds:
    lnet_slots_fini(&ctx->mds);
fail_fini_timers:
    base_timers_fini(&ctx->timers);
fail_fini_posts:
    lnet_posts_fini(&ctx->posts);
fail_close_fds:
    fds_close(ctx);
fail_free:
    free(ctx);
    return rc;
}

/* Unlinks every MD that is left, so that each gets its last event. */
static void
mds_unlink_all(struct lnet *ctx)
{
    for (uint32_t i = 0; i < ctx->mds.touched_count; i++) {
        const struct lnet_entry *entry = lnet_slots_at(&ctx->mds, i);

        if (entry->slot.cookie != 0 && !entry->is_gone) {
            (void)lnet_md_unlink(ctx, (struct lnet_md_handle){entry->slot.cookie});
        }
    }
}

void
lnet_close(struct lnet *ctx)
{
    if (ctx == NULL) {
        return;
    }
    BASE_ASSERT(!ctx->is_in_poll);

    ctx->is_closing = true;
    ctx->is_in_poll = true;
    while (lnet_posts_run(ctx, LNET_POSTS_MAX) > 0) {
    }
    lnet_peers_cancel(ctx);
    mds_unlink_all(ctx);
    while (lnet_events_deliver(ctx, UINT32_MAX) > 0) {
    }
    for (uint32_t i = ctx->ni_count; i > 0; i--) {
        lnet_ni_close(ctx->nis[i - 1]);
    }
    /* What the interfaces' last upcalls left. */
    mds_unlink_all(ctx);
    while (lnet_events_deliver(ctx, UINT32_MAX) > 0) {
    }
    lnet_peers_fini(ctx);
    for (uint32_t i = 0; i < ctx->ni_count; i++) {
        free(ctx->nis[i]);
    }
    BASE_ASSERT(ctx->mds.used_count == 0);
    BASE_ASSERT(ctx->ops.used_count == 0);
    BASE_ASSERT(ctx->rmas.used_count == 0);
    /* Users' timers are in the users' memory: they become idle without a call. */
    while (ctx->timers.count > 0) {
        base_timer_cancel(&ctx->timers, ctx->timers.heap[0].timer);
    }
    free(ctx->peer_buckets);
    lnet_msgs_fini(ctx);
    lnet_slots_fini(&ctx->rmas);
    lnet_slots_fini(&ctx->ops);
    lnet_slots_fini(&ctx->mds);
    lnet_portals_fini(ctx->portals);
    base_timers_fini(&ctx->timers);
    lnet_posts_fini(&ctx->posts);
    fds_close(ctx);
    free(ctx);
}

void
lnet_abandon(struct lnet *ctx)
{
    if (ctx == NULL) {
        return;
    }
    for (uint32_t i = 0; i < ctx->ni_count; i++) {
        if (ctx->nis[i]->ops->ni_abandon != NULL) {
            ctx->nis[i]->ops->ni_abandon(ctx->nis[i]->lnd);
        }
    }
    fds_close(ctx);
}

/* The owner is awake: posts need not wake it any more. */
static void
ctx_disarm(struct lnet *ctx)
{
    uint64_t value = 0;

    ctx->is_armed = false;
    atomic_store_explicit(&ctx->posts.is_sleeping, false, memory_order_relaxed);
    /* Nothing to read means that something else woke us. */
    const ssize_t got = read(ctx->event_fd, &value, sizeof(value));

    (void)got;
}

/* Lets each interface make progress, beginning with another one each turn. */
static uint32_t
nis_poll(struct lnet *ctx, uint32_t budget)
{
    const uint32_t count = ctx->ni_count;
    uint32_t delivered = 0;

    for (uint32_t i = 0; i < count && delivered < budget; i++) {
        const uint32_t index =
            ctx->ni_next + i < count ? ctx->ni_next + i : ctx->ni_next + i - count;
        const struct lnet_ni *ni = ctx->nis[index];

        if (index == 0 && !ctx->lo_is_used) {
            continue;
        }
        delivered += ni->ops->poll(ni->lnd, ctx->now_ns, budget - delivered);
    }
    ctx->ni_next = ctx->ni_next + 1 < count ? ctx->ni_next + 1 : 0;
    return delivered;
}

/*
 * Delivers due events and does the peers' put-off work. Events get half of the budget at most, so
 * that a handler which always causes new ones cannot starve the interfaces.
 */
static uint32_t __attribute__((noinline)) work_run(struct lnet *ctx, uint32_t budget)
{
    ctx->has_work = false;
    ctx->turn_is_odd = !ctx->turn_is_odd;
    lnet_peers_work(ctx);
    return lnet_events_deliver(ctx, budget / 2 + ((budget & 1) != 0 && ctx->turn_is_odd));
}

uint32_t
lnet_poll(struct lnet *ctx, uint64_t now_ns, uint32_t budget)
{
    uint32_t delivered = 0;

    BASE_ASSERT(budget > 0);
    BASE_ASSERT(!ctx->is_in_poll);
    ctx->is_in_poll = true;
    if (BASE_LIKELY(now_ns > ctx->now_ns)) {
        if (BASE_UNLIKELY(!ctx->has_time)) {
            lnet_peers_begin_time(ctx, now_ns);
        }
        ctx->now_ns = now_ns;
    }
    if (BASE_UNLIKELY(ctx->is_armed)) {
        ctx_disarm(ctx);
    }
    if (BASE_UNLIKELY(ctx->timers.count > 0 && ctx->timers.heap[0].look_ns <= ctx->now_ns)) {
        (void)base_timers_run(&ctx->timers, ctx->now_ns, TIMERS_PER_TURN);
    }
    if (BASE_UNLIKELY(!lnet_posts_empty(&ctx->posts))) {
        (void)lnet_posts_run(ctx, POSTS_PER_TURN);
    }
    if (BASE_UNLIKELY(ctx->has_work)) {
        delivered = work_run(ctx, budget);
    }
    /* The usual case: one interface besides an idle lo. */
    if (BASE_LIKELY(ctx->ni_count == 2 && !ctx->lo_is_used)) {
        if (BASE_LIKELY(delivered < budget)) {
            const struct lnet_ni *ni = ctx->nis[1];

            delivered += ni->ops->poll(ni->lnd, ctx->now_ns, budget - delivered);
        }
    } else if (delivered < budget) {
        delivered += nis_poll(ctx, budget - delivered);
    }
    ctx->is_in_poll = false;
    return delivered;
}

int
lnet_fd(const struct lnet *ctx)
{
    return ctx->epoll_fd;
}

int
lnet_arm(struct lnet *ctx)
{
    BASE_ASSERT(!ctx->is_in_poll);

    if (ctx->has_work || !lnet_posts_empty(&ctx->posts) ||
        base_timers_next_ns(&ctx->timers) <= ctx->now_ns) {
        return -EBUSY;
    }
    ctx->is_armed = true;
    atomic_store_explicit(&ctx->posts.is_sleeping, true, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    if (!lnet_posts_empty(&ctx->posts)) {
        return -EBUSY; /* the next poll disarms */
    }
    for (uint32_t i = 0; i < ctx->ni_count; i++) {
        const int rc = ctx->nis[i]->ops->arm(ctx->nis[i]->lnd);

        if (rc != 0) {
            return -EBUSY;
        }
    }
    return 0;
}

uint64_t
lnet_next_deadline(const struct lnet *ctx)
{
    /* The heap's top may be early, never late; lnet_arm() has settled it. */
    uint64_t deadline_ns = ctx->timers.count > 0 ? ctx->timers.heap[0].look_ns : UINT64_MAX;

    for (uint32_t i = 0; i < ctx->ni_count; i++) {
        deadline_ns = base_min_u64(deadline_ns, ctx->nis[i]->ops->next_deadline(ctx->nis[i]->lnd));
    }
    return deadline_ns;
}

uint64_t
lnet_now(const struct lnet *ctx)
{
    return ctx->now_ns;
}

uint64_t
lnet_stamp(const struct lnet *ctx)
{
    return ctx->stamp != NULL ? ctx->stamp(ctx->stamp_arg) : ctx->now_ns;
}

uint64_t
lnet_random(struct lnet *ctx)
{
    return base_prng_u64(&ctx->prng);
}

const char *
lnet_error_name(int error)
{
    return base_errno_name(error <= 0 ? error : INT_MIN);
}
