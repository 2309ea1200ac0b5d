/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send credits of a peer or an interface, after LNet's.
 *
 * A credit is held from the moment that a message is given to the LND until the LND is done with
 * it. A message that must wait counts here too, so that `available` below zero is the number of
 * messages that wait for a credit:
 *
 *   I1  available + in_flight + waiting == max    no credit is made or lost
 *   I2  in_flight <= max                          nobody sends on credit that was not granted
 *   I3  min <= available                          the low-water mark since open
 *
 * The order in which those who wait are served is the queue's affair (peer.c, ni.c).
 */
#pragma once

#include "base/assert.h"

#include <stdbool.h>
#include <stdint.h>

struct lnet_credits {
    int32_t max; /* granted */
    int32_t available;
    int32_t in_flight;
    int32_t waiting;
    int32_t min;
};

/* Asserts the invariants. */
static inline void
lnet_credits_check(const struct lnet_credits *credits)
{
    BASE_ASSERT(credits->available + credits->in_flight + credits->waiting ==
                credits->max);                                           /* I1 */
    BASE_ASSERT((uint32_t)credits->in_flight <= (uint32_t)credits->max); /* I2 */
    BASE_ASSERT(credits->waiting >= 0);
    BASE_ASSERT(credits->min <= credits->available); /* I3 */
}

/* Makes @max credits, all free. */
static inline void
lnet_credits_init(struct lnet_credits *credits, int32_t max)
{
    BASE_ASSERT(max > 0);
    *credits = (struct lnet_credits){.max = max, .available = max, .min = max};
}

/* Lowers the low-water mark to what there is now. */
static inline void
lnet_credits_note_min(struct lnet_credits *credits)
{
    if (BASE_UNLIKELY(credits->available < credits->min)) {
        credits->min = credits->available;
    }
}

/* Whether a message may be given to the LND now, if nobody waits before it. */
static inline bool
lnet_credits_may_take(const struct lnet_credits *credits)
{
    return credits->in_flight < credits->max;
}

/* A message goes to the LND at once. */
static inline void
lnet_credits_take(struct lnet_credits *credits)
{
    credits->available--;
    credits->in_flight++;
    lnet_credits_note_min(credits);
    lnet_credits_check(credits);
}

/* The LND is done with @count messages. */
static inline void
lnet_credits_return(struct lnet_credits *credits, int32_t count)
{
    credits->available += count;
    credits->in_flight -= count;
    lnet_credits_check(credits);
}

/* As take and return, for a message that the LND was done with when it had it. */
static inline void
lnet_credits_touch(struct lnet_credits *credits)
{
    /* All is as before but `min`, so I1 and I2 need no other look. */
    BASE_ASSERT(credits->in_flight == 0);
    if (BASE_UNLIKELY(credits->available <= credits->min)) {
        credits->min = credits->available - 1;
    }
}

/* A message begins to wait. */
static inline void
lnet_credits_wait(struct lnet_credits *credits)
{
    credits->available--;
    credits->waiting++;
    lnet_credits_note_min(credits);
    lnet_credits_check(credits);
}

/* A message that waited goes to the LND. */
static inline void
lnet_credits_go(struct lnet_credits *credits)
{
    credits->waiting--;
    credits->in_flight++;
    lnet_credits_check(credits);
}

/* A message that waited is given up. */
static inline void
lnet_credits_forget(struct lnet_credits *credits)
{
    credits->waiting--;
    credits->available++;
    lnet_credits_check(credits);
}
