/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How to wait for a polled context: spin, then yield the core, then sleep, each for as long as it
 * has been worth it lately.
 *
 * A caller polls; whenever that finds nothing it takes one step here. The early steps are a pause
 * instruction, the later ones sched_yield(), and in the end the context is armed and the thread
 * sleeps in poll(2) on the context's descriptor:
 *
 *     base_wait_begin(&wait, base_clock_now_ns());
 *     while (!done) {
 *         now_ns = base_clock_now_ns();
 *         if (lnet_poll(ctx, now_ns, budget) == 0) {
 *             rc = base_wait_step(&wait, fd, arm, ctx, now_ns, deadline_ns);
 *         }
 *     }
 *     base_wait_end(&wait, base_clock_now_ns());
 *
 * What it learns:
 *
 *   - Waits that a full budget of spinning and yielding would have covered keep it, longer ones
 *     halve it down to 1/16, so that an idle process sleeps at once and a busy one never does.
 *     Every 64th wait gets the full budget again, for a change to be noticed.
 *   - A sched_yield() that took longer than an empty one gave the core to somebody. Then the one
 *     we wait for may need this very core, and long spinning is worth nothing: until yields come
 *     back empty a spin is shorter than the two switches that a yield costs, in case the answer is
 *     on its way from another core, and where such brief spins fail they are left out, but for one
 *     now and then.
 *   - A yield that cost a whole time slice met a process that only computes. Sleeping is better
 *     there, because a sleeper is scheduled soon after its wake; yields are left out for a while.
 *
 * A core that others need is thus never burnt, and a core of one's own is not left.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#    include <x86intrin.h>
#endif

struct base_wait_opts {
    uint64_t spin_ns;  /* longest spin; 0 means 20 us */
    uint64_t yield_ns; /* longest time of yielding after it; 0 means 50 us */
};

enum base_wait_phase { BASE_WAIT_SPIN, BASE_WAIT_YIELD, BASE_WAIT_SLEEP };
#define BASE_WAIT_PHASE_COUNT 3

struct base_wait {
    uint64_t spin_max_ns;
    uint64_t yield_max_ns;
    uint64_t spin_ns;  /* what recent waits made of spin_max_ns */
    uint64_t yield_ns; /* likewise */
    uint64_t begin_ns;
    uint64_t spin_end_ns;
    uint64_t yield_end_ns;
    uint32_t wait_count;  /* for the probe at every 64th */
    uint32_t shared;      /* above 0: the core is shared; counts down with empty yields */
    uint32_t yield_skips; /* waits that will not yield, after a yield that cost a slice */
    uint32_t brief_score; /* above 0: brief spins have been worth it */
    bool is_brief;        /* this wait began with one, or would have */
    bool is_waiting;

    uint64_t phase_counts[BASE_WAIT_PHASE_COUNT]; /* steps made of each kind; for statistics */
    uint64_t yields_given_count;                  /* yields that let somebody run */
};

/* Tells the core that this is a spin loop. */
static inline void
base_pause(void)
{
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* Makes @wait ready. @opts may be NULL for the defaults. */
void base_wait_init(struct base_wait *wait, const struct base_wait_opts *opts);

/* A wait begins at @now_ns of CLOCK_MONOTONIC. */
void base_wait_begin(struct base_wait *wait, uint64_t now_ns);

/* The wait ended at @now_ns because what was waited for came. Learns from its length. */
void base_wait_end(struct base_wait *wait, uint64_t now_ns);

/*
 * Decides what this step is and, unless that is to sleep, does it: a few pauses or one yield.
 * Returns the phase; BASE_WAIT_SLEEP means that nothing was done and the caller should arm and
 * sleep. For loops that sleep elsewhere than in poll(2).
 */
enum base_wait_phase base_wait_turn(struct base_wait *wait, uint64_t now_ns);

/*
 * One step: a few pauses, or one yield, or arming with @arm and sleeping on @fd until it is
 * readable or @deadline_ns comes (UINT64_MAX: never). The caller polls again in every case.
 *
 * @arm is called with @arg directly before sleeping; 0 allows it, -EBUSY means there is work.
 * @fd may be -1: then only the deadline ends the sleep.
 * Errors: what @arm returned, if that was neither 0 nor -EBUSY; what poll(2) failed with. A signal
 * is no error.
 */
int base_wait_step(struct base_wait *wait, int fd, int (*arm)(void *arg), void *arg,
                   uint64_t now_ns, uint64_t deadline_ns);
