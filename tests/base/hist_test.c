/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/hist.c: percentiles are within 1 % of the truth over the whole range, and nothing is lost.
 */
#include "base/hist.h"

#include "base/prng.h"
#include "tests/test.h"

#include <stdlib.h>

static struct base_hist hist;

static int
setup(void **state)
{
    base_hist_init(&hist);
    return 0;
}

static void
an_empty_histogram_answers_zero(void **state)
{
    assert_int_equal(base_hist_percentile(&hist, 0.5), 0);
    assert_true(base_hist_mean(&hist) == 0);
}

static void
every_value_falls_into_the_bucket_that_names_it(void **state)
{
    for (uint64_t value = 0; value < 1u << 14; value++) {
        base_hist_init(&hist);
        base_hist_record(&hist, value);
        for (uint32_t i = 0; i < BASE_HIST_BUCKET_COUNT; i++) {
            uint64_t low = 0;
            uint64_t high = 0;

            if (hist.buckets[i] != 0) {
                base_hist_bucket_range(i, &low, &high);
                assert_in_range(value, low, high);
            }
        }
    }
}

static void
buckets_join_without_gaps_up_to_the_range(void **state)
{
    uint64_t expected = 0;

    for (uint32_t i = 0; i < BASE_HIST_BUCKET_COUNT; i++) {
        uint64_t low = 0;
        uint64_t high = 0;

        base_hist_bucket_range(i, &low, &high);
        assert_int_equal(low, expected);
        expected = high + 1;
    }
    assert_int_equal(expected, 1ull << BASE_HIST_RANGE_BITS);
}

static int
compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void
percentiles_are_within_one_percent(void **state)
{
    enum { COUNT = 9973 };
    static uint64_t values[COUNT];
    struct base_prng prng;

    base_prng_seed(&prng, 3);
    for (uint32_t i = 0; i < COUNT; i++) {
        values[i] = base_prng_u64(&prng) >> (22 + base_prng_below(&prng, 42)); /* all magnitudes */
        base_hist_record(&hist, values[i]);
    }
    qsort(values, COUNT, sizeof(values[0]), compare);
    assert_int_equal(hist.overflow, 0);
    assert_int_equal(base_hist_percentile(&hist, 0), values[0]);
    assert_int_equal(base_hist_percentile(&hist, 1), values[COUNT - 1]);
    for (uint32_t per_mille = 1; per_mille < 1000; per_mille++) {
        const double p = per_mille / 1000.0;
        const uint32_t rank = (uint32_t)(p * COUNT) + 1; /* COUNT * p is never whole here */
        const double exact = (double)values[rank - 1];
        const double answer = (double)base_hist_percentile(&hist, p);

        assert_true(answer <= exact * 1.01 && answer >= exact * 0.99);
    }
}

static void
values_beyond_the_range_are_counted_as_overflow(void **state)
{
    base_hist_record(&hist, (1ull << BASE_HIST_RANGE_BITS) - 1);
    assert_int_equal(hist.overflow, 0);
    base_hist_record(&hist, 1ull << BASE_HIST_RANGE_BITS);
    base_hist_record(&hist, UINT64_MAX / 4);
    assert_int_equal(hist.overflow, 2);
    assert_int_equal(hist.count, 3);
    assert_int_equal(base_hist_percentile(&hist, 0.9), UINT64_MAX / 4);
}

static void
merge_is_as_if_all_had_been_recorded_in_one(void **state)
{
    static struct base_hist other;
    static struct base_hist both;

    base_hist_init(&other);
    base_hist_init(&both);
    for (uint64_t i = 0; i < 1000; i++) {
        base_hist_record(i % 3 == 0 ? &hist : &other, i * i);
        base_hist_record(&both, i * i);
    }
    base_hist_merge(&hist, &other);
    assert_memory_equal(&hist, &both, sizeof(hist));
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test_setup(an_empty_histogram_answers_zero, setup),
    cmocka_unit_test_setup(every_value_falls_into_the_bucket_that_names_it, setup),
    cmocka_unit_test_setup(buckets_join_without_gaps_up_to_the_range, setup),
    cmocka_unit_test_setup(percentiles_are_within_one_percent, setup),
    cmocka_unit_test_setup(values_beyond_the_range_are_counted_as_overflow, setup),
    cmocka_unit_test_setup(merge_is_as_if_all_had_been_recorded_in_one, setup),
};

TEST_MAIN(cases)
