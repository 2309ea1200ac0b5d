/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A histogram of durations in nanoseconds (or of any uint64_t).
 *
 * Log-linear: values below 128 have a bucket each, and every power of two above is cut into 64. A
 * bucket is at most 1/64 of its values wide and answers with its middle, so a percentile is off by
 * less than 0.8 %. The range ends at 2^42 ns, 73 minutes; longer values are counted as overflow,
 * and in count, sum and max. Recording is a shift, a count of zeros and four adds.
 *
 * 2368 buckets of 8 bytes: one histogram takes 18,984 bytes, of which a run touches few lines.
 */
#pragma once

#include <assert.h>
#include <stdint.h>

#define BASE_HIST_SUB_BITS   6u
#define BASE_HIST_RANGE_BITS 42u
#define BASE_HIST_BUCKET_COUNT \
    ((BASE_HIST_RANGE_BITS - BASE_HIST_SUB_BITS + 1) << BASE_HIST_SUB_BITS)

struct base_hist {
    uint64_t count;
    uint64_t sum;
    uint64_t min; /* UINT64_MAX when count is 0 */
    uint64_t max;
    uint64_t overflow; /* how many of count lie beyond the range */
    uint64_t buckets[BASE_HIST_BUCKET_COUNT];
};

static_assert(sizeof(struct base_hist) == 18984, "the head comment says so");

/* Makes @hist empty. */
void base_hist_init(struct base_hist *hist);

/* Adds the records of @from to @to. */
void base_hist_merge(struct base_hist *to, const struct base_hist *from);

/*
 * The value below or at which the fraction @p of the records lies (nearest rank). @p from 0, the
 * minimum, to 1, the maximum; values outside are clamped. 0 when there are no records.
 */
uint64_t base_hist_percentile(const struct base_hist *hist, double p);

/* The arithmetic mean, exact. 0 when there are no records. */
double base_hist_mean(const struct base_hist *hist);

/* The least and the largest value that fall into bucket @index. For printing whole histograms. */
void base_hist_bucket_range(uint32_t index, uint64_t *low_out, uint64_t *high_out);

/* Records @value once. */
static inline void
base_hist_record(struct base_hist *hist, uint64_t value)
{
    /* Bits below the sub-bucket; "| 64" makes small values take the straight path too. */
    const uint32_t shift =
        63u - BASE_HIST_SUB_BITS - (uint32_t)__builtin_clzll(value | (1u << BASE_HIST_SUB_BITS));

    hist->count++;
    hist->sum += value;
    if (value < hist->min) {
        hist->min = value;
    }
    if (value > hist->max) {
        hist->max = value;
    }
    if (__builtin_expect(shift >= BASE_HIST_RANGE_BITS - BASE_HIST_SUB_BITS, 0)) {
        hist->overflow++;
        return;
    }
    hist->buckets[((uint64_t)shift << BASE_HIST_SUB_BITS) + (value >> shift)]++;
}
