/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The adaptive wait. What it learns, and why, is in wait.h.
 */
#include "base/wait.h"

#include "base/assert.h"
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>

#define SPIN_DEFAULT_NS  20000u
#define YIELD_DEFAULT_NS 50000u
#define BUDGET_DIVISOR   16u /* the least budget is this part of the largest */
#define PROBE_PERIOD     64u
#define PAUSES_PER_TURN  4u /* about 100 ns: less than a poll of an idle context is not worth it */
#define YIELD_GIVEN_NS   1500u    /* an empty yield takes 0.4 us; two switches take above 2 */
#define YIELD_SLICE_NS   1000000u /* somebody ran to the end of a time slice */
#define SHARED_MEMORY    8u
#define BRIEF_SPIN_NS    2000u
#define BRIEF_LOSS       3u /* one failure undoes so many successes */
#define BRIEF_SCORE_MAX  16u
#define BRIEF_PERIOD     16u /* a brief spin in so many waits is made in any case */
#define YIELD_SKIP_WAITS 16u

void
base_wait_init(struct base_wait *wait, const struct base_wait_opts *opts)
{
    const uint64_t spin_ns = opts != NULL && opts->spin_ns != 0 ? opts->spin_ns : SPIN_DEFAULT_NS;
    const uint64_t yield_ns =
        opts != NULL && opts->yield_ns != 0 ? opts->yield_ns : YIELD_DEFAULT_NS;

    *wait = (struct base_wait){
        .spin_max_ns = spin_ns,
        .yield_max_ns = yield_ns,
        .spin_ns = spin_ns,
        .yield_ns = yield_ns,
        .brief_score = BRIEF_SCORE_MAX,
    };
}

void
base_wait_begin(struct base_wait *wait, uint64_t now_ns)
{
    const bool is_probe = wait->wait_count++ % PROBE_PERIOD == 0;
    uint64_t spin_ns = is_probe ? wait->spin_max_ns : wait->spin_ns;
    uint64_t yield_ns = is_probe ? wait->yield_max_ns : wait->yield_ns;

    wait->is_brief = wait->shared > 0;
    if (wait->is_brief) {
        const bool is_worth = wait->brief_score > 0 || wait->wait_count % BRIEF_PERIOD == 0;

        spin_ns = is_worth ? base_min_u64(wait->spin_max_ns, BRIEF_SPIN_NS) : 0;
    }
    if (wait->yield_skips > 0) {
        wait->yield_skips--;
        yield_ns = 0;
    }
    wait->begin_ns = now_ns;
    wait->spin_end_ns = now_ns + spin_ns;
    wait->yield_end_ns = wait->spin_end_ns + yield_ns;
    wait->is_waiting = true;
}

/* Halves a budget, or gives all of it back. */
static uint64_t
budget_learn(uint64_t budget_ns, uint64_t max_ns, bool was_worth)
{
    return was_worth ? max_ns : base_max_u64(budget_ns / 2, max_ns / BUDGET_DIVISOR);
}

void
base_wait_end(struct base_wait *wait, uint64_t now_ns)
{
    if (!wait->is_waiting) {
        return;
    }
    /* A sleep adds its own wake-up time, so a short wait may look long: hence the probe. */
    const uint64_t waited_ns = now_ns - wait->begin_ns;
    const bool was_short = waited_ns <= wait->spin_max_ns + wait->yield_max_ns;

    if (wait->is_brief) {
        if (waited_ns <= BRIEF_SPIN_NS) {
            wait->brief_score = base_min_u32(wait->brief_score + 1, BRIEF_SCORE_MAX);
        } else {
            wait->brief_score -= base_min_u32(wait->brief_score, BRIEF_LOSS);
        }
    }
    wait->spin_ns = budget_learn(wait->spin_ns, wait->spin_max_ns, was_short);
    wait->yield_ns = budget_learn(wait->yield_ns, wait->yield_max_ns, was_short);
    wait->is_waiting = false;
}

static void
yield_and_learn(struct base_wait *wait)
{
    const uint64_t before_ns = base_clock_now_ns();

    (void)sched_yield();
    const uint64_t took_ns = base_clock_now_ns() - before_ns;

    if (took_ns < YIELD_GIVEN_NS) {
        if (wait->shared > 0) {
            wait->shared--;
        }
        return;
    }
    wait->yields_given_count++;
    wait->shared = SHARED_MEMORY;
    if (took_ns >= YIELD_SLICE_NS) {
        wait->yield_skips = YIELD_SKIP_WAITS;
        wait->yield_end_ns = wait->begin_ns; /* this wait is among them */
    }
}

enum base_wait_phase
base_wait_turn(struct base_wait *wait, uint64_t now_ns)
{
    enum base_wait_phase phase = BASE_WAIT_SLEEP;

    if (now_ns < wait->spin_end_ns) {
        phase = BASE_WAIT_SPIN;
        for (uint32_t i = 0; i < PAUSES_PER_TURN; i++) {
            base_pause();
        }
    } else if (now_ns < wait->yield_end_ns) {
        phase = BASE_WAIT_YIELD;
        yield_and_learn(wait);
    }
    wait->phase_counts[phase]++;
    return phase;
}

int
base_wait_step(struct base_wait *wait, int fd, int (*arm)(void *arg), void *arg, uint64_t now_ns,
               uint64_t deadline_ns)
{
    if (deadline_ns <= now_ns || base_wait_turn(wait, now_ns) != BASE_WAIT_SLEEP) {
        return 0;
    }
    const int rc = arm(arg);

    if (rc != 0) {
        return rc == -EBUSY ? 0 : rc;
    }
    const uint64_t left_ns = deadline_ns - now_ns;
    const struct timespec timeout = {
        .tv_sec = (time_t)(left_ns / 1000000000u),
        .tv_nsec = (long)(left_ns % 1000000000u),
    };
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};

    if (ppoll(&pollfd, 1, deadline_ns == UINT64_MAX ? NULL : &timeout, NULL) < 0 &&
        errno != EINTR) {
        return -errno;
    }
    return 0;
}
