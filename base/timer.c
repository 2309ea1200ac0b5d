/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The heap behind the timers; its invariants are in timer.h.
 */
#include "base/timer.h"

#include <errno.h>
#include <stdlib.h>

#define ARITY        4u
#define CAPACITY_MIN 16u

static void
heap_set(const struct base_timers *timers, uint32_t index, struct base_timers_entry entry)
{
    timers->heap[index] = entry;
    entry.timer->heap_index = index;
}

/* Puts @entry at @index or above, moving later parents down. */
static void
heap_sift_up(const struct base_timers *timers, uint32_t index, struct base_timers_entry entry)
{
    while (index > 0) {
        const uint32_t parent = (index - 1) / ARITY;

        if (timers->heap[parent].look_ns <= entry.look_ns) {
            break;
        }
        heap_set(timers, index, timers->heap[parent]);
        index = parent;
    }
    heap_set(timers, index, entry);
}

/* Puts @entry at @index or below, moving earlier children up. */
static void
heap_sift_down(const struct base_timers *timers, uint32_t index, struct base_timers_entry entry)
{
    for (;;) {
        const uint64_t first = (uint64_t)index * ARITY + 1;
        const uint64_t end = base_min_u64(first + ARITY, timers->count);

        if (first >= end) {
            break;
        }
        uint32_t least = (uint32_t)first;

        for (uint32_t child = least + 1; child < end; child++) {
            if (timers->heap[child].look_ns < timers->heap[least].look_ns) {
                least = child;
            }
        }
        if (timers->heap[least].look_ns >= entry.look_ns) {
            break;
        }
        heap_set(timers, index, timers->heap[least]);
        index = least;
    }
    heap_set(timers, index, entry);
}

/* Takes out the entry at @index and closes the gap with the last one. */
static void
heap_remove(struct base_timers *timers, uint32_t index)
{
    timers->heap[index].timer->heap_index = BASE_TIMER_IDLE;
    timers->count--;
    if (index == timers->count) {
        return;
    }
    const struct base_timers_entry last = timers->heap[timers->count];

    if (index > 0 && last.look_ns < timers->heap[(index - 1) / ARITY].look_ns) {
        heap_sift_up(timers, index, last);
    } else {
        heap_sift_down(timers, index, last);
    }
}

/*
 * Moves down entries at the top whose deadline is later than their look_ns, while that look_ns is
 * at or before @now_ns. Returns the earliest time the top has then.
 */
static uint64_t
heap_settle(const struct base_timers *timers, uint64_t now_ns)
{
    while (timers->count > 0) {
        struct base_timers_entry top = timers->heap[0];

        if (top.look_ns > now_ns || top.look_ns == top.timer->deadline_ns) {
            return top.look_ns;
        }
        BASE_ASSERT(top.look_ns < top.timer->deadline_ns); /* I2 */
        top.look_ns = top.timer->deadline_ns;
        heap_sift_down(timers, 0, top);
    }
    return UINT64_MAX;
}

int
base_timers_init(struct base_timers *timers, uint32_t reserve)
{
    *timers = (struct base_timers){.heap = NULL};
    return base_timers_reserve(timers, reserve);
}

void
base_timers_fini(struct base_timers *timers)
{
    BASE_ASSERT(timers->count == 0);
    free(timers->heap);
    *timers = (struct base_timers){.heap = NULL};
}

int
base_timers_reserve(struct base_timers *timers, uint32_t count)
{
    if (count > BASE_TIMER_IDLE - timers->reserved) {
        return -ENOMEM;
    }
    const uint32_t wanted = timers->reserved + count;

    if (wanted > timers->capacity) {
        const uint64_t doubled = base_max_u64((uint64_t)timers->capacity * 2, CAPACITY_MIN);
        const uint64_t capacity = base_min_u64(base_max_u64(doubled, wanted), BASE_TIMER_IDLE);
        void *heap = realloc(timers->heap, capacity * sizeof(timers->heap[0]));

        if (heap == NULL) {
            return -ENOMEM;
        }
        timers->heap = heap;
        timers->capacity = (uint32_t)capacity;
    }
    timers->reserved = wanted;
    return 0;
}

void
base_timers_unreserve(struct base_timers *timers, uint32_t count)
{
    BASE_ASSERT(count <= timers->reserved);
    timers->reserved -= count;
    BASE_ASSERT(timers->count <= timers->reserved);
}

void
base_timer_arm_slow(struct base_timers *timers, struct base_timer *timer, uint64_t deadline_ns)
{
    const struct base_timers_entry entry = {.look_ns = deadline_ns, .timer = timer};
    uint32_t index = timer->heap_index;

    timer->deadline_ns = deadline_ns;
    if (index == BASE_TIMER_IDLE) {
        BASE_ASSERT(timers->count < timers->reserved);
        index = timers->count++;
    }
    heap_sift_up(timers, index, entry);
}

void
base_timer_cancel(struct base_timers *timers, struct base_timer *timer)
{
    if (!base_timer_is_armed(timer)) {
        return;
    }
    BASE_ASSERT(timer->heap_index < timers->count);
    BASE_ASSERT(timers->heap[timer->heap_index].timer == timer); /* I1 */
    heap_remove(timers, timer->heap_index);
}

uint32_t
base_timers_run(struct base_timers *timers, uint64_t now_ns, uint32_t budget)
{
    uint32_t fired = 0;

    while (fired < budget && timers->count > 0) {
        if (heap_settle(timers, now_ns) > now_ns) {
            break;
        }
        struct base_timer *timer = timers->heap[0].timer;

        heap_remove(timers, 0);
        fired++;
        timer->fire(timer, now_ns);
    }
    return fired;
}

uint64_t
base_timers_next_ns(const struct base_timers *timers)
{
    return heap_settle(timers, UINT64_MAX);
}
