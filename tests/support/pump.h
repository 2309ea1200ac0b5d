/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Drives contexts in one thread on virtual time until something has happened.
 *
 * Time stands still while there is work and moves on by a step when a whole round found none, so a
 * test of a 50 s timeout takes milliseconds and no test depends on the machine's speed.
 */
#pragma once

#include "causeway/lnet.h"

#include <stdbool.h>
#include <stdint.h>

#define PUMP_CONTEXTS_MAX 8u

struct pump {
    struct lnet *contexts[PUMP_CONTEXTS_MAX]; /* NULL: an empty place */
    uint64_t now_ns;
    uint64_t step_ns; /* of an idle round; 0: 1 us, growing to 1 ms while nothing happens */
    uint32_t budget;  /* of one lnet_poll(); 0: 16 */
};

typedef bool (*pump_until_fn)(void *arg);

/* One lnet_poll() of each context. Returns the events delivered. */
uint32_t pump_round(struct pump *pump);

/*
 * Rounds until @until(@arg) is true or @timeout_ns of virtual time are over. Returns whether it
 * became true.
 */
bool pump_until(struct pump *pump, pump_until_fn until, void *arg, uint64_t timeout_ns);

/* pump_until() with *@counter >= @value as the condition. */
bool pump_until_count(struct pump *pump, const uint32_t *counter, uint32_t value,
                      uint64_t timeout_ns);

/* Rounds for @duration_ns of virtual time. */
void pump_for(struct pump *pump, uint64_t duration_ns);
