/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/list.h: order is kept, and a link knows whether it is on a list.
 */
#include "base/list.h"

#include "tests/test.h"

struct item {
    int value;
    struct base_list link;
};

static struct base_list list;
static struct item items[3];

static int
setup(void **state)
{
    base_list_init(&list);
    for (int i = 0; i < 3; i++) {
        items[i].value = i;
        base_list_init(&items[i].link);
    }
    return 0;
}

/* The values in the list as decimal digits, so that an order is one number. */
static int
digits(const struct base_list *of)
{
    int number = 0;

    BASE_LIST_FOREACH(link, of) {
        number = number * 10 + BASE_CONTAINER_OF(link, struct item, link)->value + 1;
    }
    return number;
}

static void
append_keeps_the_order_of_arrival(void **state)
{
    for (int i = 0; i < 3; i++) {
        base_list_append(&list, &items[i].link);
    }
    assert_int_equal(digits(&list), 123);
    assert_ptr_equal(base_list_first(&list), &items[0].link);
    assert_ptr_equal(base_list_last(&list), &items[2].link);
    assert_int_equal(base_list_count(&list), 3);
}

static void
prepend_puts_before_the_first(void **state)
{
    base_list_append(&list, &items[0].link);
    base_list_prepend(&list, &items[1].link);
    base_list_prepend(&list, &items[2].link);
    assert_int_equal(digits(&list), 321);
}

static void
unlink_leaves_the_others_and_may_be_repeated(void **state)
{
    for (int i = 0; i < 3; i++) {
        base_list_append(&list, &items[i].link);
    }
    base_list_unlink(&items[1].link);
    assert_true(base_list_empty(&items[1].link));
    base_list_unlink(&items[1].link);
    assert_int_equal(digits(&list), 13);
}

static void
foreach_safe_allows_to_unlink_the_visited(void **state)
{
    for (int i = 0; i < 3; i++) {
        base_list_append(&list, &items[i].link);
    }
    BASE_LIST_FOREACH_SAFE(link, next, &list) {
        base_list_unlink(link);
    }
    assert_true(base_list_empty(&list));
}

static void
move_all_appends_in_order_and_empties_the_source(void **state)
{
    struct base_list other;

    base_list_init(&other);
    base_list_append(&list, &items[0].link);
    base_list_append(&other, &items[1].link);
    base_list_append(&other, &items[2].link);
    base_list_move_all(&list, &other);
    assert_int_equal(digits(&list), 123);
    assert_true(base_list_empty(&other));
    base_list_move_all(&list, &other);
    assert_int_equal(digits(&list), 123);
    base_list_move_all(&other, &list);
    assert_int_equal(digits(&other), 123);
}

static void
append_of_a_linked_object_aborts(void **state)
{
    base_list_append(&list, &items[0].link);
    TEST_ABORTS(base_list_append(&list, &items[0].link));
}

static void
first_of_an_empty_list_aborts(void **state)
{
    TEST_ABORTS((void)base_list_first(&list));
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test_setup(append_keeps_the_order_of_arrival, setup),
    cmocka_unit_test_setup(prepend_puts_before_the_first, setup),
    cmocka_unit_test_setup(unlink_leaves_the_others_and_may_be_repeated, setup),
    cmocka_unit_test_setup(foreach_safe_allows_to_unlink_the_visited, setup),
    cmocka_unit_test_setup(move_all_appends_in_order_and_empties_the_source, setup),
    cmocka_unit_test_setup(append_of_a_linked_object_aborts, setup),
    cmocka_unit_test_setup(first_of_an_empty_list_aborts, setup),
};

TEST_MAIN(cases)
