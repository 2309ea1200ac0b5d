/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake network: see fake_lnet.h.
 */
#include "tests/ptlrpc/fake_lnet.h"

#include "base/list.h"
#include "base/prng.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct lnet_peer {
    struct lnet *ctx; /* whose peer */
    struct lnet *remote;
    uint32_t references;
    bool is_connected;
};

struct wire {
    struct base_list link;
    struct fake_message message;
};

struct attached {
    bool is_used;
    struct lnet_match match;
    struct lnet_md md;
};

/* Watchers are told from poll. */
struct news {
    struct base_list link;
    struct lnet_peer *peer;
    int status;
};

struct lnet {
    struct fake_world *world;
    uint32_t pid;
    uint32_t index;
    bool is_dead;
    uint64_t now_ns;
    struct base_prng prng;
    struct lnet_peer peers[FAKE_CONTEXTS_MAX];
    struct attached mds[8];
    struct lnet_timer *timers[8];
    struct lnet_peer_watch *watches[4];
    struct base_list inbox;
    uint32_t inbox_count;
    struct base_list news;
};

struct lnet_process
fake_process(uint32_t pid)
{
    return (struct lnet_process){{(uint64_t)LNET_LND_SHM << 48}, pid, 0};
}

struct lnet *
fake_open(struct fake_world *world, uint32_t pid)
{
    struct lnet *ctx = calloc(1, sizeof(*ctx));

    BASE_ASSERT(ctx != NULL);
    while (world->contexts[ctx->index] != NULL) {
        ctx->index++;
        BASE_ASSERT(ctx->index < FAKE_CONTEXTS_MAX);
    }
    world->contexts[ctx->index] = ctx;
    ctx->world = world;
    ctx->pid = pid;
    ctx->now_ns = world->now_ns;
    base_prng_seed(&ctx->prng, pid + 1);
    base_list_init(&ctx->inbox);
    base_list_init(&ctx->news);
    return ctx;
}

static void
wire_free(struct wire *wire)
{
    base_list_unlink(&wire->link);
    wire->message.to->inbox_count--;
    free(wire->message.data);
    free(wire);
}

/* Loses what is under way from @from, or from anybody, to @to. */
static void
inbox_drop(struct lnet *to, const struct lnet *from)
{
    BASE_LIST_FOREACH_SAFE(link, next, &to->inbox) {
        struct wire *wire = BASE_CONTAINER_OF(link, struct wire, link);

        if (from == NULL || wire->message.from == from) {
            to->world->lost_count++;
            wire_free(wire);
        }
    }
}

static void
news_add(struct lnet_peer *peer, int status)
{
    struct news *news = calloc(1, sizeof(*news));

    BASE_ASSERT(news != NULL);
    peer->is_connected = status == 0;
    news->peer = peer;
    news->status = status;
    base_list_init(&news->link);
    base_list_append(&peer->ctx->news, &news->link);
}

void
lnet_close(struct lnet *ctx)
{
    struct fake_world *world = ctx->world;

    inbox_drop(ctx, NULL);
    for (uint32_t i = 0; i < FAKE_CONTEXTS_MAX; i++) {
        if (world->contexts[i] != NULL && world->contexts[i] != ctx) {
            inbox_drop(world->contexts[i], ctx);
        }
    }
    while (!base_list_empty(&ctx->news)) {
        struct news *news = BASE_CONTAINER_OF(base_list_first(&ctx->news), struct news, link);

        base_list_unlink(&news->link);
        free(news);
    }
    world->contexts[ctx->index] = NULL;
    free(ctx);
}

void
fake_cut(struct lnet *a, struct lnet *b, int status)
{
    inbox_drop(a, b);
    inbox_drop(b, a);
    if (a->peers[b->index].is_connected) {
        news_add(&a->peers[b->index], status);
    }
    if (b->peers[a->index].is_connected) {
        news_add(&b->peers[a->index], status);
    }
}

void
fake_kill(struct lnet *ctx)
{
    ctx->is_dead = true;
    for (uint32_t i = 0; i < FAKE_CONTEXTS_MAX; i++) {
        if (ctx->world->contexts[i] != NULL && ctx->world->contexts[i] != ctx) {
            fake_cut(ctx, ctx->world->contexts[i], -ECONNRESET);
        }
    }
}

void
fake_revive(struct lnet *ctx)
{
    ctx->is_dead = false;
}

void
fake_settle(struct fake_world *world)
{
    uint32_t moved = 0;

    do {
        moved = 0;
        for (uint32_t i = 0; i < FAKE_CONTEXTS_MAX; i++) {
            if (world->contexts[i] != NULL && !world->contexts[i]->is_dead) {
                moved += lnet_poll(world->contexts[i], world->now_ns, 1000000);
            }
        }
    } while (moved > 0);
}

void
fake_pass(struct fake_world *world, uint64_t ns, uint32_t steps)
{
    for (uint32_t i = 0; i < steps; i++) {
        world->now_ns += ns / steps;
        world->stamp_ns += ns / steps;
        fake_settle(world);
    }
}

static void
wire_append(struct lnet *from, struct lnet *to, uint32_t portal, uint64_t match_bits,
            const void *data, uint32_t bytes)
{
    struct wire *wire = calloc(1, sizeof(*wire));

    BASE_ASSERT(wire != NULL);
    wire->message = (struct fake_message){.from = from,
                                          .to = to,
                                          .portal = portal,
                                          .bytes = bytes,
                                          .match_bits = match_bits,
                                          .data = malloc(bytes > 0 ? bytes : 1)};
    BASE_ASSERT(wire->message.data != NULL);
    if (bytes > 0) {
        (void)memcpy(wire->message.data, data, bytes);
    }
    base_list_init(&wire->link);
    base_list_append(&to->inbox, &wire->link);
    to->inbox_count++;
}

void
fake_inject(struct lnet *from, struct lnet *to, uint32_t portal, uint64_t match_bits,
            const void *data, uint32_t bytes)
{
    to->peers[from->index].ctx = to;
    to->peers[from->index].remote = from;
    wire_append(from, to, portal, match_bits, data, bytes);
}

uint32_t
fake_peer_references(const struct lnet *ctx)
{
    uint32_t references = 0;

    for (uint32_t i = 0; i < FAKE_CONTEXTS_MAX; i++) {
        references += ctx->peers[i].references;
    }
    return references;
}

/* ---- lnet.h -----------------------------------------------------------------------------------
 */

/* Both ends of a connection know each other. */
static void
connect_both(struct lnet_peer *peer)
{
    struct lnet_peer *back = &peer->remote->peers[peer->ctx->index];

    back->ctx = peer->remote;
    back->remote = peer->ctx;
    if (!peer->is_connected) {
        news_add(peer, 0);
    }
    if (!back->is_connected) {
        news_add(back, 0);
    }
}

int
lnet_put_inline(struct lnet *ctx, const struct lnet_target *target, const void *data,
                uint32_t length_bytes)
{
    struct fake_world *world = ctx->world;
    struct lnet *to = target->peer->remote;
    struct fake_message *message = NULL;

    BASE_ASSERT(!ctx->is_dead);
    if (length_bytes > world->put_bytes_max) {
        return -EMSGSIZE;
    }
    if (to->is_dead) {
        news_add(target->peer, -ECONNREFUSED);
        return 0;
    }
    if (world->queue_max > 0 && to->inbox_count >= world->queue_max) {
        return -EAGAIN;
    }
    connect_both(target->peer);
    world->sent_count++;
    wire_append(ctx, to, target->portal, target->match_bits, data, length_bytes);
    message = &BASE_CONTAINER_OF(base_list_last(&to->inbox), struct wire, link)->message;
    if (world->filter != NULL) {
        switch (world->filter(message, world->filter_arg)) {
        case FAKE_PASS:
            break;
        case FAKE_DROP:
            wire_free(BASE_CONTAINER_OF(message, struct wire, message));
            break;
        case FAKE_TWICE:
            wire_append(ctx, to, target->portal, target->match_bits, message->data, message->bytes);
            break;
        }
    }
    return 0;
}

/* Hands the oldest message of @ctx to the MD of its portal. */
static void
inbox_deliver(struct lnet *ctx)
{
    struct wire *wire = BASE_CONTAINER_OF(base_list_first(&ctx->inbox), struct wire, link);
    const struct fake_message *message = &wire->message;

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(ctx->mds); i++) {
        struct attached *at = &ctx->mds[i];

        if (at->is_used && at->match.portal == message->portal &&
            message->bytes <= at->md.length_bytes) {
            const struct lnet_event event = {
                .type = LNET_EV_PUT,
                .portal = message->portal,
                .peer = &ctx->peers[message->from->index],
                .match_bits = message->match_bits,
                .request_bytes = message->bytes,
                .moved_bytes = message->bytes,
                .data = message->data,
                .user = at->md.user,
            };

            at->md.handler(ctx, &event);
            break;
        }
    }
    wire_free(wire);
}

static bool
news_deliver(struct lnet *ctx)
{
    if (base_list_empty(&ctx->news)) {
        return false;
    }
    struct news *news = BASE_CONTAINER_OF(base_list_first(&ctx->news), struct news, link);

    base_list_unlink(&news->link);
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(ctx->watches); i++) {
        if (ctx->watches[i] != NULL) {
            ctx->watches[i]->fn(ctx, news->peer, news->status, ctx->watches[i]->arg);
        }
    }
    free(news);
    return true;
}

static uint32_t
timers_run(struct lnet *ctx)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(ctx->timers); i++) {
        struct lnet_timer *timer = ctx->timers[i];

        if (timer != NULL && timer->deadline_ns <= ctx->now_ns) {
            ctx->timers[i] = NULL;
            timer->fn(ctx, timer->arg);
            count++;
        }
    }
    return count;
}

uint32_t
lnet_poll(struct lnet *ctx, uint64_t now_ns, uint32_t budget)
{
    uint32_t count = 0;

    ctx->now_ns = now_ns;
    count += timers_run(ctx);
    while (count < budget && news_deliver(ctx)) {
        count++;
    }
    while (count < budget && !base_list_empty(&ctx->inbox)) {
        inbox_deliver(ctx);
        count++;
    }
    return count;
}

uint64_t
lnet_now(const struct lnet *ctx)
{
    return ctx->now_ns;
}

uint64_t
lnet_stamp(const struct lnet *ctx)
{
    return ctx->world->stamp_ns;
}

uint64_t
lnet_random(struct lnet *ctx)
{
    return base_prng_u64(&ctx->prng);
}

int
lnet_timer_arm(struct lnet *ctx, struct lnet_timer *timer, uint64_t deadline_ns)
{
    lnet_timer_cancel(ctx, timer);
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(ctx->timers); i++) {
        if (ctx->timers[i] == NULL) {
            timer->deadline_ns = deadline_ns;
            ctx->timers[i] = timer;
            return 0;
        }
    }
    return -EAGAIN;
}

void
lnet_timer_cancel(struct lnet *ctx, struct lnet_timer *timer)
{
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(ctx->timers); i++) {
        if (ctx->timers[i] == timer) {
            ctx->timers[i] = NULL;
        }
    }
}

int
lnet_peer_get(struct lnet *ctx, const struct lnet_process *process, struct lnet_peer **peer_out)
{
    for (uint32_t i = 0; i < FAKE_CONTEXTS_MAX; i++) {
        struct lnet *remote = ctx->world->contexts[i];

        if (remote != NULL && remote->pid == process->pid) {
            ctx->peers[i].ctx = ctx;
            ctx->peers[i].remote = remote;
            ctx->peers[i].references++;
            *peer_out = &ctx->peers[i];
            return 0;
        }
    }
    return -EHOSTUNREACH;
}

void
lnet_peer_hold(struct lnet_peer *peer)
{
    peer->references++;
}

void
lnet_peer_put(struct lnet_peer *peer)
{
    BASE_ASSERT(peer->references > 0);
    peer->references--;
}

struct lnet_process
lnet_peer_process(const struct lnet_peer *peer)
{
    return fake_process(peer->remote->pid);
}

void
lnet_peer_watch_add(struct lnet *ctx, struct lnet_peer_watch *watch)
{
    uint32_t i = 0;

    while (ctx->watches[i] != NULL) {
        i++;
        BASE_ASSERT(i < BASE_ARRAY_LEN(ctx->watches));
    }
    ctx->watches[i] = watch;
}

void
lnet_peer_watch_del(struct lnet *ctx, struct lnet_peer_watch *watch)
{
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(ctx->watches); i++) {
        if (ctx->watches[i] == watch) {
            ctx->watches[i] = NULL;
        }
    }
}

int
lnet_md_attach(struct lnet *ctx, const struct lnet_match *match, const struct lnet_md *md,
               struct lnet_md_handle *md_out)
{
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(ctx->mds); i++) {
        if (!ctx->mds[i].is_used) {
            ctx->mds[i] = (struct attached){.is_used = true, .match = *match, .md = *md};
            md_out->cookie = i;
            return 0;
        }
    }
    return -EAGAIN;
}

int
lnet_md_unlink(struct lnet *ctx, struct lnet_md_handle md)
{
    ctx->mds[md.cookie].is_used = false;
    return 0;
}

void
lnet_limits_get(const struct lnet *ctx, struct lnet_limits *limits_out)
{
    *limits_out = (struct lnet_limits){.put_bytes_max = ctx->world->put_bytes_max};
}
