/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls from other threads: a bounded ring like base_mpsc, whose items are a function and its
 * argument, so that a post needs no memory of its own.
 */
#pragma once

#include "causeway/lnet.h"

#include "base/assert.h"

#include <stdatomic.h>
#include <stdbool.h>

#define LNET_POSTS_MAX 1024u

struct lnet_post_slot {
    _Atomic(uint32_t) sequence;
    lnet_post_fn fn;
    void *arg;
};

struct lnet_posts {
    BASE_ALIGNED(BASE_CACHE_LINE) _Atomic(uint32_t) push_index; /* the producers' */
    /* Whether the context may sleep, so that a post must write its eventfd. */
    _Atomic(bool) is_sleeping;
    BASE_ALIGNED(BASE_CACHE_LINE) uint32_t pop_index; /* the context's */
    struct lnet_post_slot *slots;
};

/* Makes an empty ring. Errors: -ENOMEM. */
int lnet_posts_init(struct lnet_posts *posts);

/* Frees the slots; what is in them is not called. */
void lnet_posts_fini(struct lnet_posts *posts);

/* Calls what was posted, at most @budget functions. Returns how many. */
uint32_t lnet_posts_run(struct lnet *ctx, uint32_t budget);

/* Whether there is nothing to call now. */
static inline bool
lnet_posts_empty(const struct lnet_posts *posts)
{
    const struct lnet_post_slot *slot = &posts->slots[posts->pop_index % LNET_POSTS_MAX];

    return atomic_load_explicit(&slot->sequence, memory_order_acquire) != posts->pop_index + 1;
}
