/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/clock.c: the counter and the clock tell the same time, to what a shared machine allows.
 */
#include "base/clock.h"

#include "tests/test.h"

static void
monotonic_time_does_not_go_back(void **state)
{
    uint64_t last_ns = base_clock_now_ns();

    for (uint32_t i = 0; i < 1000; i++) {
        const uint64_t now_ns = base_clock_now_ns();

        assert_true(now_ns >= last_ns);
        last_ns = now_ns;
    }
}

static void
wall_time_is_after_this_was_written(void **state)
{
    assert_true(base_clock_wall_ns() > 1700000000ull * 1000000000ull);
}

static void
the_calibrated_counter_agrees_with_the_clock(void **state)
{
    struct base_tsc tsc;
    uint64_t best_ns = UINT64_MAX;

    base_tsc_calibrate(&tsc);
    for (uint32_t i = 0; i < 100; i++) { /* the best of many: any one may be interrupted */
        const uint64_t clock_ns = base_clock_now_ns();
        const uint64_t stamp_ns = base_tsc_now_ns(&tsc);
        const uint64_t apart_ns = clock_ns > stamp_ns ? clock_ns - stamp_ns : stamp_ns - clock_ns;

        best_ns = base_min_u64(best_ns, apart_ns);
    }
    assert_true(best_ns < 100000);
}

static void
a_stamp_difference_is_converted_without_overflow(void **state)
{
    const struct base_tsc tsc = {.mult = 1u << 23, .shift = 24, .is_tsc = true}; /* 2 GHz */

    assert_true(base_stamp_ns(&tsc, 1000) == 500);
    assert_true(base_stamp_ns(&tsc, UINT64_MAX - 1) == UINT64_MAX / 2);
}

static void
without_a_counter_stamps_are_the_clock(void **state)
{
    const struct base_tsc tsc = {.mult = 1, .shift = 0, .is_tsc = false};
    const uint64_t before_ns = base_clock_now_ns();
    const uint64_t stamp = base_stamp(&tsc);

    assert_true(stamp >= before_ns);
    assert_true(base_stamp_ns(&tsc, 17) == 17);
    assert_true(base_tsc_now_ns(&tsc) >= stamp);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(monotonic_time_does_not_go_back),
    cmocka_unit_test(wall_time_is_after_this_was_written),
    cmocka_unit_test(the_calibrated_counter_agrees_with_the_clock),
    cmocka_unit_test(a_stamp_difference_is_converted_without_overflow),
    cmocka_unit_test(without_a_counter_stamps_are_the_clock),
};

TEST_MAIN(cases)
