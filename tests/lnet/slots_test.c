/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lnet/slots.h: a cookie finds its object or nothing, whatever it is.
 */
#include "lnet/slots.h"

#include "base/prng.h"
#include "tests/test.h"

#include <errno.h>

struct object {
    struct lnet_slot slot;
    int value;
};

static struct lnet_slots slots;

static int
setup(void **state)
{
    assert_int_equal(lnet_slots_init(&slots, sizeof(struct object), 200, 77), 0);
    return 0;
}

static int
teardown(void **state)
{
    lnet_slots_fini(&slots);
    return 0;
}

static void
a_cookie_finds_its_object_until_it_is_returned(void **state)
{
    struct object *object = lnet_slots_take(&slots);
    const uint64_t cookie = object->slot.cookie;

    assert_true(cookie != 0);
    assert_ptr_equal(lnet_slots_find(&slots, cookie), object);
    lnet_slots_return(&slots, object);
    assert_null(lnet_slots_find(&slots, cookie));

    struct object *again = lnet_slots_take(&slots);

    assert_ptr_equal(again, object);
    assert_true(again->slot.cookie != cookie);
    assert_null(lnet_slots_find(&slots, cookie));
    lnet_slots_return(&slots, again);
}

static void
all_can_be_taken_and_no_more(void **state)
{
    struct object *objects[200];

    for (uint32_t i = 0; i < 200; i++) {
        objects[i] = lnet_slots_take(&slots);
        assert_non_null(objects[i]);
        objects[i]->value = (int)i;
    }
    assert_null(lnet_slots_take(&slots));
    for (uint32_t i = 0; i < 200; i++) {
        assert_ptr_equal(lnet_slots_find(&slots, objects[i]->slot.cookie), objects[i]);
        assert_int_equal(objects[i]->value, i);
    }
    for (uint32_t i = 0; i < 200; i++) {
        lnet_slots_return(&slots, objects[i]);
    }
    assert_int_equal(slots.used_count, 0);
}

static void
forged_cookies_find_nothing(void **state)
{
    struct object *object = lnet_slots_take(&slots);
    struct base_prng prng;

    base_prng_seed(&prng, 1);
    for (uint32_t i = 0; i < 100000; i++) {
        const uint64_t cookie = base_prng_u64(&prng) >> (i % 64);

        if (cookie != object->slot.cookie) {
            assert_null(lnet_slots_find(&slots, cookie));
        }
    }
    for (uint32_t bit = 0; bit < 64; bit++) {
        assert_null(lnet_slots_find(&slots, object->slot.cookie ^ (UINT64_C(1) << bit)));
    }
    assert_null(lnet_slots_find(&slots, 0));
    assert_null(lnet_slots_find(&slots, UINT64_MAX));
    lnet_slots_return(&slots, object);
}

static void
the_generation_skips_zero_when_it_wraps(void **state)
{
    struct object *object = lnet_slots_take(&slots);

    object->slot.generation = UINT64_MAX >> LNET_SLOT_BITS;
    lnet_slots_return(&slots, object);
    assert_int_equal(object->slot.generation, 1);
    object = lnet_slots_take(&slots);
    assert_true(object->slot.cookie != 0);
    lnet_slots_return(&slots, object);
}

static void
returning_twice_aborts(void **state)
{
    struct object *object = lnet_slots_take(&slots);

    lnet_slots_return(&slots, object);
    TEST_ABORTS(lnet_slots_return(&slots, object));
}

static void
sizes_out_of_range_are_refused(void **state)
{
    struct lnet_slots bad;

    assert_int_equal(lnet_slots_init(&bad, 64, 0, 1), -EINVAL);
    assert_int_equal(lnet_slots_init(&bad, 64, LNET_SLOTS_MAX + 1, 1), -EINVAL);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test_setup_teardown(a_cookie_finds_its_object_until_it_is_returned, setup,
                                    teardown),
    cmocka_unit_test_setup_teardown(all_can_be_taken_and_no_more, setup, teardown),
    cmocka_unit_test_setup_teardown(forged_cookies_find_nothing, setup, teardown),
    cmocka_unit_test_setup_teardown(the_generation_skips_zero_when_it_wraps, setup, teardown),
    cmocka_unit_test_setup_teardown(returning_twice_aborts, setup, teardown),
    cmocka_unit_test(sizes_out_of_range_are_refused),
};

TEST_MAIN(cases)
