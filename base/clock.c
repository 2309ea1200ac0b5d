/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading the clocks and calibrating the time-stamp counter.
 *
 * Calibration takes three points (counter, clock) some milliseconds apart. A point is the tightest
 * of several reads of counter, clock, counter, so that an interruption between them is left out.
 * The rate over the first half must equal the rate over the second to TSC_AGREE_PPM.
 */
#include "base/clock.h"

#include "base/assert.h"

#include <time.h>

#ifdef BASE_CLOCK_HAS_TSC
#    include <cpuid.h>
#endif

static uint64_t
clock_ns(clockid_t clock)
{
    struct timespec ts;
    const int rc = clock_gettime(clock, &ts);

    BASE_ASSERT(rc == 0);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t
base_clock_now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t
base_clock_wall_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}

#ifdef BASE_CLOCK_HAS_TSC

#    define TSC_SHIFT          24u /* mult is about 2^24 / GHz: rounding it costs below 1 ppm */
#    define TSC_WINDOW_NS      2500000u
#    define TSC_AGREE_PPM      200.0
#    define TSC_POINT_TRIES    16u
#    define TSC_CALIBRATIONS   3u
#    define CPUID_POWER        0x80000007u
#    define CPUID_POWER_INVTSC (1u << 8)

struct point {
    uint64_t ticks;
    uint64_t ns;
};

static bool
tsc_is_invariant(void)
{
    unsigned int eax = 0;
    unsigned int ebx = 0;
    unsigned int ecx = 0;
    unsigned int edx = 0;

    return __get_cpuid(CPUID_POWER, &eax, &ebx, &ecx, &edx) != 0 && (edx & CPUID_POWER_INVTSC) != 0;
}

static struct point
point_take(void)
{
    struct point best = {.ticks = 0, .ns = 0};
    uint64_t best_width = UINT64_MAX;

    for (uint32_t i = 0; i < TSC_POINT_TRIES; i++) {
        const uint64_t before = __rdtsc();
        const uint64_t ns = base_clock_now_ns();
        const uint64_t width = __rdtsc() - before;

        if (width < best_width) {
            best_width = width;
            best = (struct point){.ticks = before + width / 2, .ns = ns};
        }
    }
    return best;
}

static struct point
point_take_after(uint64_t until_ns)
{
    while (base_clock_now_ns() < until_ns) {
        _mm_pause();
    }
    return point_take();
}

/* Nanoseconds per tick between two points, or 0 if the counter did not advance. */
static double
point_rate(const struct point *from, const struct point *to)
{
    if (to->ticks <= from->ticks || to->ns <= from->ns) {
        return 0;
    }
    return (double)(to->ns - from->ns) / (double)(to->ticks - from->ticks);
}

static bool
tsc_try(struct base_tsc *tsc)
{
    const struct point a = point_take();
    const struct point b = point_take_after(a.ns + TSC_WINDOW_NS);
    const struct point c = point_take_after(b.ns + TSC_WINDOW_NS);
    const double first = point_rate(&a, &b);
    const double second = point_rate(&b, &c);
    const double whole = point_rate(&a, &c);
    const double difference = first > second ? first - second : second - first;

    /* Rates outside 0.1 to 100 GHz would not fit mult, and are no counter's anyway. */
    if (whole < 0.01 || whole > 10.0 || difference > whole * TSC_AGREE_PPM * 1e-6) {
        return false;
    }
    *tsc = (struct base_tsc){
        .start_ticks = c.ticks,
        .start_ns = c.ns,
        .mult = (uint32_t)(whole * (double)(1u << TSC_SHIFT) + 0.5),
        .shift = TSC_SHIFT,
        .is_tsc = true,
    };
    return true;
}

#endif

void
base_tsc_calibrate(struct base_tsc *tsc)
{
#ifdef BASE_CLOCK_HAS_TSC
    if (tsc_is_invariant()) {
        for (uint32_t i = 0; i < TSC_CALIBRATIONS; i++) {
            if (tsc_try(tsc)) {
                return;
            }
        }
    }
#endif
    *tsc = (struct base_tsc){.mult = 1, .shift = 0, .is_tsc = false};
}
