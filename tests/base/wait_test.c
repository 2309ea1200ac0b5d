/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/wait.c: the phases follow each other, budgets follow experience, and sleeping needs the
 * arm function's leave. Times are made up; only a yield itself is real.
 */
#include "base/wait.h"

#include "tests/test.h"

#include <errno.h>
#include <sys/eventfd.h>

static uint32_t arm_calls;
static int arm_result;

static int
arm(void *arg)
{
    assert_ptr_equal(arg, &arm_calls);
    arm_calls++;
    return arm_result;
}

static void
spin_comes_first_then_yield_then_sleep(void **state)
{
    const struct base_wait_opts opts = {.spin_ns = 100, .yield_ns = 200};
    struct base_wait wait;

    base_wait_init(&wait, &opts);
    base_wait_begin(&wait, 1000);
    assert_int_equal(base_wait_turn(&wait, 1099), BASE_WAIT_SPIN);
    assert_int_equal(base_wait_turn(&wait, 1100), BASE_WAIT_YIELD);
    assert_int_equal(base_wait_turn(&wait, 1300), BASE_WAIT_SLEEP);
    assert_int_equal(wait.phase_counts[BASE_WAIT_SPIN], 1);
    assert_int_equal(wait.phase_counts[BASE_WAIT_YIELD], 1);
    assert_int_equal(wait.phase_counts[BASE_WAIT_SLEEP], 1);
}

static void
long_waits_shrink_the_budget_and_a_short_one_restores_it(void **state)
{
    const struct base_wait_opts opts = {.spin_ns = 1600, .yield_ns = 3200};
    struct base_wait wait;

    base_wait_init(&wait, &opts);
    for (uint32_t i = 0; i < 10; i++) {
        base_wait_begin(&wait, 0);
        base_wait_end(&wait, 1000000);
    }
    assert_int_equal(wait.spin_ns, 100);
    assert_int_equal(wait.yield_ns, 200);
    base_wait_begin(&wait, 0);
    assert_int_equal(base_wait_turn(&wait, 301), BASE_WAIT_SLEEP);
    base_wait_end(&wait, 400);
    assert_int_equal(wait.spin_ns, 1600);
}

static void
the_full_budget_is_tried_again_now_and_then(void **state)
{
    const struct base_wait_opts opts = {.spin_ns = 1600, .yield_ns = 3200};
    struct base_wait wait;
    uint32_t full_count = 0;

    base_wait_init(&wait, &opts);
    for (uint32_t i = 0; i < 640; i++) {
        base_wait_begin(&wait, 0);
        full_count += wait.spin_end_ns == 1600;
        base_wait_end(&wait, 1000000);
    }
    assert_int_equal(full_count, 10);
}

static void
on_a_shared_core_spinning_is_brief(void **state)
{
    struct base_wait wait;

    base_wait_init(&wait, NULL);
    wait.shared = 1;
    base_wait_begin(&wait, 0);
    assert_int_equal(base_wait_turn(&wait, 1), BASE_WAIT_SPIN);
    assert_int_equal(base_wait_turn(&wait, 2001), BASE_WAIT_YIELD);
}

static void
brief_spins_that_fail_are_left_out_until_one_succeeds(void **state)
{
    struct base_wait wait;
    uint32_t spin_count = 0;

    base_wait_init(&wait, NULL);
    for (uint32_t i = 0; i < 100; i++) {
        wait.shared = 8;
        base_wait_begin(&wait, 0);
        base_wait_end(&wait, 10000);
    }
    for (uint32_t i = 0; i < 64; i++) {
        wait.shared = 8;
        base_wait_begin(&wait, 0);
        spin_count += wait.spin_end_ns > 0;
        base_wait_end(&wait, 10000);
    }
    assert_int_equal(spin_count, 4);
    for (uint32_t i = 0; i < 16 && wait.brief_score == 0; i++) {
        base_wait_begin(&wait, 0);
        base_wait_end(&wait, wait.spin_end_ns > 0 ? 500 : 10000);
    }
    base_wait_begin(&wait, 0);
    assert_int_equal(base_wait_turn(&wait, 1), BASE_WAIT_SPIN);
}

static void
after_a_yield_of_a_whole_slice_waits_sleep_at_once(void **state)
{
    struct base_wait wait;

    base_wait_init(&wait, NULL);
    wait.shared = 8;
    wait.yield_skips = 1;
    base_wait_begin(&wait, 0);
    assert_int_equal(base_wait_turn(&wait, 2001), BASE_WAIT_SLEEP);
    base_wait_end(&wait, 2002);
    base_wait_begin(&wait, 10000);
    assert_int_equal(base_wait_turn(&wait, 12001), BASE_WAIT_YIELD);
}

/* A wait in its last phase at time 0. */
static void
begin_at_sleep(struct base_wait *wait)
{
    base_wait_init(wait, NULL);
    base_wait_begin(wait, 0);
    wait->spin_end_ns = 0;
    wait->yield_end_ns = 0;
    arm_calls = 0;
}

static void
a_readable_descriptor_ends_the_sleep(void **state)
{
    struct base_wait wait;
    const int fd = eventfd(1, 0);

    begin_at_sleep(&wait);
    arm_result = 0;
    assert_int_equal(base_wait_step(&wait, fd, arm, &arm_calls, 0, UINT64_MAX), 0);
    assert_int_equal(arm_calls, 1);
    (void)close(fd);
}

static void
a_deadline_ends_the_sleep_without_a_descriptor(void **state)
{
    struct base_wait wait;

    begin_at_sleep(&wait);
    arm_result = 0;
    assert_int_equal(base_wait_step(&wait, -1, arm, &arm_calls, 0, 1000), 0);
    assert_int_equal(arm_calls, 1);
    assert_int_equal(base_wait_step(&wait, -1, arm, &arm_calls, 1000, 1000), 0);
    assert_int_equal(arm_calls, 1); /* past it: no time to sleep */
}

static void
busy_means_poll_again_and_other_errors_are_passed_on(void **state)
{
    struct base_wait wait;

    begin_at_sleep(&wait);
    arm_result = -EBUSY;
    assert_int_equal(base_wait_step(&wait, -1, arm, &arm_calls, 0, UINT64_MAX), 0);
    arm_result = -EIO;
    assert_int_equal(base_wait_step(&wait, -1, arm, &arm_calls, 0, UINT64_MAX), -EIO);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(spin_comes_first_then_yield_then_sleep),
    cmocka_unit_test(long_waits_shrink_the_budget_and_a_short_one_restores_it),
    cmocka_unit_test(the_full_budget_is_tried_again_now_and_then),
    cmocka_unit_test(on_a_shared_core_spinning_is_brief),
    cmocka_unit_test(brief_spins_that_fail_are_left_out_until_one_succeeds),
    cmocka_unit_test(after_a_yield_of_a_whole_slice_waits_sleep_at_once),
    cmocka_unit_test(a_readable_descriptor_ends_the_sleep),
    cmocka_unit_test(a_deadline_ends_the_sleep_without_a_descriptor),
    cmocka_unit_test(busy_means_poll_again_and_other_errors_are_passed_on),
};

TEST_MAIN(cases)
