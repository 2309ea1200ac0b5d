/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Users' timers: a base_timer and its context in the public struct's private words.
 */
#include "lnet/ctx.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define RESERVE_MIN 64u

struct user_timer {
    struct base_timer timer;
    struct lnet *ctx;
};

static_assert(sizeof(struct user_timer) == sizeof(((struct lnet_timer *)0)->internal),
              "it lies in there");
static_assert(offsetof(struct lnet_timer, internal) % sizeof(void *) == 0, "and is aligned");

static struct user_timer *
timer_private(struct lnet_timer *timer)
{
    return (struct user_timer *)(void *)timer->internal;
}

static void
timer_on_fire(struct base_timer *base, uint64_t now_ns)
{
    struct user_timer *private = BASE_CONTAINER_OF(base, struct user_timer, timer);
    struct lnet_timer *timer = BASE_CONTAINER_OF(private, struct lnet_timer, internal);
    struct lnet *ctx = private->ctx;

    (void)now_ns;
    ctx->user_timers_armed--;
    timer->fn(ctx, timer->arg);
}

int
lnet_timer_arm(struct lnet *ctx, struct lnet_timer *timer, uint64_t deadline_ns)
{
    struct user_timer *private = timer_private(timer);

    if (private->ctx == NULL) {
        base_timer_init(&private->timer, timer_on_fire);
        private->ctx = ctx;
    }
    BASE_ASSERT(private->ctx == ctx);
    if (!base_timer_is_armed(&private->timer)) {
        if (ctx->user_timers_armed == ctx->user_timers_reserved) {
            const uint32_t more = base_max_u32(RESERVE_MIN, ctx->user_timers_reserved);

            if (base_timers_reserve(&ctx->timers, more) != 0) {
                return -EAGAIN;
            }
            ctx->user_timers_reserved += more;
        }
        ctx->user_timers_armed++;
    }
    timer->deadline_ns = deadline_ns;
    base_timer_arm(&ctx->timers, &private->timer, deadline_ns);
    return 0;
}

void
lnet_timer_cancel(struct lnet *ctx, struct lnet_timer *timer)
{
    struct user_timer *private = timer_private(timer);

    if (private->ctx == NULL || !base_timer_is_armed(&private->timer)) {
        return;
    }
    base_timer_cancel(&ctx->timers, &private->timer);
    ctx->user_timers_armed--;
}
