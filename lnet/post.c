/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lnet_post(): the one entry for other threads.
 *
 * A sleeper is never missed: lnet_arm() sets is_sleeping and looks at the ring after that; a post
 * fills its slot and looks at is_sleeping after that; both with a full fence between.
 */
#include "lnet/ctx.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int
lnet_posts_init(struct lnet_posts *posts)
{
    posts->pop_index = 0;
    atomic_init(&posts->push_index, 0);
    atomic_init(&posts->is_sleeping, false);
    posts->slots = calloc(LNET_POSTS_MAX, sizeof(posts->slots[0]));
    if (posts->slots == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < LNET_POSTS_MAX; i++) {
        atomic_init(&posts->slots[i].sequence, i);
    }
    return 0;
}

void
lnet_posts_fini(struct lnet_posts *posts)
{
    free(posts->slots);
    posts->slots = NULL;
}

/* The slot that the caller may fill, or NULL when the ring is full. */
static struct lnet_post_slot *
posts_claim(struct lnet_posts *posts, uint32_t *index_out)
{
    uint32_t index = atomic_load_explicit(&posts->push_index, memory_order_relaxed);

    for (;;) {
        struct lnet_post_slot *slot = &posts->slots[index % LNET_POSTS_MAX];
        const uint32_t sequence = atomic_load_explicit(&slot->sequence, memory_order_acquire);
        const int32_t ahead = (int32_t)(sequence - index);

        if (ahead < 0) {
            return NULL;
        }
        if (ahead > 0) {
            index = atomic_load_explicit(&posts->push_index, memory_order_relaxed);
            continue;
        }
        if (atomic_compare_exchange_weak_explicit(&posts->push_index, &index, index + 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            *index_out = index;
            return slot;
        }
    }
}

int
lnet_post(struct lnet *ctx, lnet_post_fn fn, void *arg)
{
    struct lnet_posts *posts = &ctx->posts;
    uint32_t index = 0;
    struct lnet_post_slot *slot = posts_claim(posts, &index);

    if (slot == NULL) {
        return -EAGAIN;
    }
    slot->fn = fn;
    slot->arg = arg;
    atomic_store_explicit(&slot->sequence, index + 1, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&posts->is_sleeping, memory_order_relaxed)) {
        const uint64_t one = 1;
        /* It fails only if the counter is full, and then the descriptor is readable anyway. */
        const ssize_t written = write(ctx->event_fd, &one, sizeof(one));

        (void)written;
    }
    return 0;
}

uint32_t
lnet_posts_run(struct lnet *ctx, uint32_t budget)
{
    struct lnet_posts *posts = &ctx->posts;
    uint32_t count = 0;

    while (count < budget && !lnet_posts_empty(posts)) {
        struct lnet_post_slot *slot = &posts->slots[posts->pop_index % LNET_POSTS_MAX];
        const lnet_post_fn fn = slot->fn;
        void *arg = slot->arg;

        atomic_store_explicit(&slot->sequence, posts->pop_index + LNET_POSTS_MAX,
                              memory_order_release);
        posts->pop_index++;
        count++;
        fn(ctx, arg);
    }
    return count;
}
