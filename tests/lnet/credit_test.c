/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lnet/credit.h: no credit is made or lost, waiting shows below zero, the low-water mark stays.
 */
#include "lnet/credit.h"

#include "tests/test.h"

static struct lnet_credits credits;

static int
setup(void **state)
{
    lnet_credits_init(&credits, 2);
    return 0;
}

static void
waiting_shows_as_a_negative_count(void **state)
{
    lnet_credits_take(&credits);
    lnet_credits_take(&credits);
    assert_int_equal(credits.available, 0);
    assert_false(lnet_credits_may_take(&credits));
    lnet_credits_wait(&credits);
    lnet_credits_wait(&credits);
    assert_int_equal(credits.available, -2);
    lnet_credits_return(&credits, 1);
    assert_int_equal(credits.available, -1);
    assert_true(lnet_credits_may_take(&credits));
    lnet_credits_go(&credits);
    assert_int_equal(credits.available, -1);
    lnet_credits_forget(&credits);
    lnet_credits_return(&credits, 2);
    assert_int_equal(credits.available, 2);
    assert_int_equal(credits.min, -2);
}

static void
touch_is_take_and_return(void **state)
{
    lnet_credits_touch(&credits);
    assert_int_equal(credits.available, 2);
    assert_int_equal(credits.in_flight, 0);
    assert_int_equal(credits.min, 1);
}

static void
return_of_more_than_was_taken_aborts(void **state)
{
    lnet_credits_take(&credits);
    TEST_ABORTS(lnet_credits_return(&credits, 2));
}

static void
take_of_more_than_was_granted_aborts(void **state)
{
    lnet_credits_take(&credits);
    lnet_credits_take(&credits);
    TEST_ABORTS(lnet_credits_take(&credits));
}

static void
go_of_nobody_who_waits_aborts(void **state)
{
    TEST_ABORTS(lnet_credits_go(&credits));
    TEST_ABORTS(lnet_credits_forget(&credits));
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test_setup(waiting_shows_as_a_negative_count, setup),
    cmocka_unit_test_setup(touch_is_take_and_return, setup),
    cmocka_unit_test_setup(return_of_more_than_was_taken_aborts, setup),
    cmocka_unit_test_setup(take_of_more_than_was_granted_aborts, setup),
    cmocka_unit_test_setup(go_of_nobody_who_waits_aborts, setup),
};

TEST_MAIN(cases)
