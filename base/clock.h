/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The clocks of the outside world.
 *
 * Only what stands outside the polled context reads them: runners, blocking faces, tools and
 * benchmarks. Everything inside decides by the now_ns it is given, and measures stages with the
 * stamp function of its context, for which base_tsc_now_ns() is the usual one.
 *
 * The time-stamp counter takes about 9 ns to read where CLOCK_MONOTONIC takes 20, and is used only
 * if the processor says that it runs at one rate in all states and if it agrees with
 * CLOCK_MONOTONIC twice while it is calibrated. Elsewhere the same functions read CLOCK_MONOTONIC.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#    include <x86intrin.h>
#    define BASE_CLOCK_HAS_TSC 1
#endif

/* Nanoseconds of CLOCK_MONOTONIC. The now_ns of everything that is not simulated. */
uint64_t base_clock_now_ns(void);

/* Nanoseconds since 1970 (CLOCK_REALTIME). May jump: for time stamps people or files see. */
uint64_t base_clock_wall_ns(void);

/* How to read stamps and turn them into nanoseconds. Constant after base_tsc_calibrate(). */
struct base_tsc {
    uint64_t start_ticks;
    uint64_t start_ns; /* CLOCK_MONOTONIC at start_ticks */
    uint32_t mult;     /* nanoseconds = ticks * mult >> shift */
    uint32_t shift;
    bool is_tsc; /* false: a tick is a nanosecond of CLOCK_MONOTONIC */
};

/*
 * Measures the rate of the counter. Takes about 5 ms, and is meant to be done once per process.
 * The error of the rate is about 20 ppm: for durations, not for the time of day after hours.
 */
void base_tsc_calibrate(struct base_tsc *tsc);

/* The counter now, in ticks. Not a barrier: neighbouring instructions may move across it. */
static inline uint64_t
base_stamp(const struct base_tsc *tsc)
{
#ifdef BASE_CLOCK_HAS_TSC
    if (__builtin_expect(tsc->is_tsc, 1)) {
        return __rdtsc();
    }
#else
    (void)tsc;
#endif
    return base_clock_now_ns();
}

/* A difference of two stamps in nanoseconds. */
static inline uint64_t
base_stamp_ns(const struct base_tsc *tsc, uint64_t ticks)
{
    __extension__ typedef unsigned __int128 uint128;

    return (uint64_t)(((uint128)ticks * tsc->mult) >> tsc->shift);
}

/* CLOCK_MONOTONIC by the counter: the same epoch, the drift stated above. */
static inline uint64_t
base_tsc_now_ns(const struct base_tsc *tsc)
{
    return tsc->start_ns + base_stamp_ns(tsc, base_stamp(tsc) - tsc->start_ticks);
}
