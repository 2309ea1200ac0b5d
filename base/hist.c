/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading histograms; recording is inline in hist.h.
 */
#include "base/hist.h"

#include "base/assert.h"

#define SUB_COUNT (1u << BASE_HIST_SUB_BITS)

void
base_hist_init(struct base_hist *hist)
{
    *hist = (struct base_hist){.min = UINT64_MAX};
}

void
base_hist_merge(struct base_hist *to, const struct base_hist *from)
{
    to->count += from->count;
    to->sum += from->sum;
    to->min = base_min_u64(to->min, from->min);
    to->max = base_max_u64(to->max, from->max);
    to->overflow += from->overflow;
    for (uint32_t i = 0; i < BASE_HIST_BUCKET_COUNT; i++) {
        to->buckets[i] += from->buckets[i];
    }
}

void
base_hist_bucket_range(uint32_t index, uint64_t *low_out, uint64_t *high_out)
{
    BASE_ASSERT(index < BASE_HIST_BUCKET_COUNT);
    const uint32_t shift = index < 2 * SUB_COUNT ? 0 : index / SUB_COUNT - 1;
    const uint64_t mantissa = index - (uint64_t)shift * SUB_COUNT;

    *low_out = mantissa << shift;
    *high_out = ((mantissa + 1) << shift) - 1;
}

uint64_t
base_hist_percentile(const struct base_hist *hist, double p)
{
    if (hist->count == 0) {
        return 0;
    }
    if (!(p > 0)) {
        return hist->min;
    }
    if (p >= 1) {
        return hist->max;
    }
    const double exact = p * (double)hist->count;
    uint64_t rank = (uint64_t)exact;
    uint64_t seen = 0;

    if ((double)rank < exact) {
        rank++; /* the smallest rank that covers the fraction */
    }
    for (uint32_t i = 0; i < BASE_HIST_BUCKET_COUNT; i++) {
        seen += hist->buckets[i];
        if (seen >= rank && seen > 0) {
            uint64_t low = 0;
            uint64_t high = 0;

            base_hist_bucket_range(i, &low, &high);
            return base_max_u64(hist->min, base_min_u64(hist->max, low + (high - low) / 2));
        }
    }
    return hist->max; /* among the overflow */
}

double
base_hist_mean(const struct base_hist *hist)
{
    return hist->count == 0 ? 0.0 : (double)hist->sum / (double)hist->count;
}
