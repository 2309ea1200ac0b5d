/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contexts on virtual time; see pump.h.
 */
#include "tests/support/pump.h"

#include <stddef.h>

#define STEP_MIN_NS    UINT64_C(1000)
#define STEP_MAX_NS    UINT64_C(1000000)
#define BUDGET_DEFAULT 16u
#define QUIET_ROUNDS   64u /* at the shortest step, before it grows */

uint32_t
pump_round(struct pump *pump)
{
    uint32_t delivered = 0;

    for (uint32_t i = 0; i < PUMP_CONTEXTS_MAX; i++) {
        if (pump->contexts[i] != NULL) {
            delivered += lnet_poll(pump->contexts[i], pump->now_ns,
                                   pump->budget == 0 ? BUDGET_DEFAULT : pump->budget);
        }
    }
    return delivered;
}

bool
pump_until(struct pump *pump, pump_until_fn until, void *arg, uint64_t timeout_ns)
{
    const uint64_t end_ns = pump->now_ns + timeout_ns;
    uint64_t step_ns = STEP_MIN_NS;
    uint32_t quiet = 0;

    while (until == NULL || !until(arg)) {
        if (pump->now_ns >= end_ns) {
            return false;
        }
        if (pump_round(pump) > 0) {
            step_ns = STEP_MIN_NS;
            quiet = 0;
            continue;
        }
        pump->now_ns += pump->step_ns != 0 ? pump->step_ns : step_ns;
        if (++quiet > QUIET_ROUNDS && step_ns < STEP_MAX_NS) {
            step_ns *= 2;
        }
    }
    return true;
}

struct counter_goal {
    const uint32_t *counter;
    uint32_t value;
};

static bool
counter_is_there(void *arg)
{
    const struct counter_goal *goal = arg;

    return *goal->counter >= goal->value;
}

bool
pump_until_count(struct pump *pump, const uint32_t *counter, uint32_t value, uint64_t timeout_ns)
{
    struct counter_goal goal = {.counter = counter, .value = value};

    return pump_until(pump, counter_is_there, &goal, timeout_ns);
}

void
pump_for(struct pump *pump, uint64_t duration_ns)
{
    (void)pump_until(pump, NULL, NULL, duration_ns);
}
