/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Timers on injected time.
 *
 * A 4-ary heap of intrusive timers. Each heap entry holds the time at which its timer must be
 * looked at, which is never later than the timer's deadline:
 *
 *   I1  heap[t->heap_index].timer == t for every armed timer t
 *   I2  heap[t->heap_index].look_ns <= t->deadline_ns
 *   I3  no entry's look_ns is below its parent's
 *
 * I2 makes moving a deadline to later, which is what a healthy request or peer does all the time,
 * one store: the entry moves down only when its old time comes. Arming a new timer behind the
 * others and moving one earlier are O(log n) at worst and usually O(1); cancelling is O(log n).
 *
 * The heap never grows on the data path. Whoever makes an object with timers reserves room for
 * them with base_timers_reserve() at that time; arming then cannot fail.
 */
#pragma once

#include "base/assert.h"

#include <stdbool.h>
#include <stdint.h>

#define BASE_TIMER_IDLE UINT32_MAX /* heap_index of a timer that is not armed */

struct base_timer;

/* Called from base_timers_run() with @timer not armed; may arm, cancel or free any timer. */
typedef void (*base_timer_fn)(struct base_timer *timer, uint64_t now_ns);

struct base_timer {
    uint64_t deadline_ns;
    base_timer_fn fire;
    uint32_t heap_index;
};

struct base_timers_entry {
    uint64_t look_ns;
    struct base_timer *timer;
};

struct base_timers {
    struct base_timers_entry *heap;
    uint32_t count;
    uint32_t capacity;
    uint32_t reserved; /* what base_timers_reserve() promised; count <= reserved <= capacity */
};

/* Makes an empty set with room for @reserve timers, which may be 0. Errors: -ENOMEM. */
int base_timers_init(struct base_timers *timers, uint32_t reserve);

/* Frees the heap. No timer may be armed. */
void base_timers_fini(struct base_timers *timers);

/* Promises room for @count more timers. Allocates: not for the data path. Errors: -ENOMEM. */
int base_timers_reserve(struct base_timers *timers, uint32_t count);

/* Takes back the promise for @count timers, none of which may be armed any more. */
void base_timers_unreserve(struct base_timers *timers, uint32_t count);

/* Makes @timer idle with @fire as its callback. Must be called once before any other use. */
static inline void
base_timer_init(struct base_timer *timer, base_timer_fn fire)
{
    timer->deadline_ns = UINT64_MAX;
    timer->fire = fire;
    timer->heap_index = BASE_TIMER_IDLE;
}

/* Whether @timer will fire. */
static inline bool
base_timer_is_armed(const struct base_timer *timer)
{
    return timer->heap_index != BASE_TIMER_IDLE;
}

/* The part of base_timer_arm() that moves heap entries. */
void base_timer_arm_slow(struct base_timers *timers, struct base_timer *timer,
                         uint64_t deadline_ns);

/*
 * Makes @timer fire in the first base_timers_run() whose now_ns is at least @deadline_ns, whether
 * it was armed before or not.
 */
static inline void
base_timer_arm(struct base_timers *timers, struct base_timer *timer, uint64_t deadline_ns)
{
    if (timer->heap_index < timers->count &&
        deadline_ns >= timers->heap[timer->heap_index].look_ns) {
        timer->deadline_ns = deadline_ns; /* I2 still holds */
        return;
    }
    base_timer_arm_slow(timers, timer, deadline_ns);
}

/* Makes @timer idle, armed or not. Its memory may go after that. */
void base_timer_cancel(struct base_timers *timers, struct base_timer *timer);

/*
 * Fires at most @budget timers whose deadline is at or before @now_ns, earliest first. The order of
 * equal deadlines depends on the earlier calls alone. Returns how many fired.
 */
uint32_t base_timers_run(struct base_timers *timers, uint64_t now_ns, uint32_t budget);

/*
 * The earliest deadline, or UINT64_MAX when no timer is armed. Const to the caller: it may reorder
 * the heap's memory, but changes nothing that the other functions answer.
 */
uint64_t base_timers_next_ns(const struct base_timers *timers);
