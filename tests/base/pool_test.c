/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/pool.c: every object is given out once, keeps its index and address, and the low-water mark
 * remembers the worst moment. Sizes that are no power of two exercise the division by multiplying.
 */
#include "base/pool.h"

#include "base/prng.h"
#include "tests/test.h"

#include <errno.h>
#include <string.h>

#define COUNT 37u

static void
every_object_is_taken_once_then_null(void **state)
{
    struct base_pool pool;
    void *taken[COUNT];

    assert_int_equal(base_pool_init(&pool, 24, COUNT, 0), 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        taken[i] = base_pool_take(&pool);
        assert_non_null(taken[i]);
        (void)memset(taken[i], (int)i, 24);
    }
    assert_null(base_pool_take(&pool));
    for (uint32_t i = 0; i < COUNT; i++) {
        for (uint32_t k = 0; k < 24; k++) {
            assert_int_equal(((unsigned char *)taken[i])[k], i);
        }
        base_pool_return(&pool, taken[i]);
    }
    assert_int_equal(pool.free_count, COUNT);
    assert_int_equal(pool.low_water, 0);
    base_pool_fini(&pool);
}

static void
index_and_address_agree_for_any_object_size(void **state)
{
    for (size_t bytes = 1; bytes < 600; bytes++) {
        struct base_pool pool;

        assert_int_equal(base_pool_init(&pool, bytes, COUNT, bytes % 3 == 0 ? 64 : 8), 0);
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_int_equal(base_pool_index(&pool, base_pool_at(&pool, i)), i);
        }
        base_pool_fini(&pool);
    }
}

static void
objects_are_aligned_and_start_as_zeroes(void **state)
{
    struct base_pool pool;

    assert_int_equal(base_pool_init(&pool, 100, COUNT, 256), 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        const unsigned char *obj = base_pool_take(&pool);

        assert_int_equal((uintptr_t)obj % 256, 0);
        for (uint32_t k = 0; k < 100; k++) {
            assert_int_equal(obj[k], 0);
        }
    }
    base_pool_fini(&pool);
}

static void
low_water_is_the_least_free_count_ever(void **state)
{
    struct base_pool pool;

    assert_int_equal(base_pool_init(&pool, 8, 4, 0), 0);
    void *a = base_pool_take(&pool);
    void *b = base_pool_take(&pool);

    base_pool_return(&pool, a);
    base_pool_return(&pool, b);
    assert_int_equal(pool.low_water, 2);
    assert_ptr_equal(base_pool_take(&pool), b); /* the warm one first */
    assert_int_equal(pool.low_water, 2);
    base_pool_fini(&pool);
}

static void
bad_arguments_are_refused(void **state)
{
    struct base_pool pool;

    assert_int_equal(base_pool_init(&pool, 0, 1, 0), -EINVAL);
    assert_int_equal(base_pool_init(&pool, 8, 0, 0), -EINVAL);
    assert_int_equal(base_pool_init(&pool, 8, 1, 24), -EINVAL);
    assert_int_equal(base_pool_init(&pool, SIZE_MAX / 4, 8, 0), -ENOMEM);
}

static void
an_address_that_is_no_object_aborts(void **state)
{
    struct base_pool pool;

    assert_int_equal(base_pool_init(&pool, 24, COUNT, 0), 0);
    unsigned char *first = base_pool_at(&pool, 0);

    TEST_ABORTS((void)base_pool_index(&pool, first + 1));
    TEST_ABORTS((void)base_pool_index(&pool, first + 16));
    TEST_ABORTS((void)base_pool_index(&pool, first + (size_t)COUNT * pool.stride_bytes));
    TEST_ABORTS((void)base_pool_index(&pool, first - pool.stride_bytes));
    TEST_ABORTS((void)base_pool_at(&pool, COUNT));
    base_pool_fini(&pool);
}

static void
random_takes_and_returns_lose_nothing(void **state)
{
    struct base_pool pool;
    struct base_prng prng;
    void *held[COUNT];
    uint32_t held_count = 0;

    base_prng_seed(&prng, 1);
    assert_int_equal(base_pool_init(&pool, 40, COUNT, 0), 0);
    for (uint32_t i = 0; i < 20000; i++) {
        if (base_prng_chance(&prng, 0.5)) {
            void *obj = base_pool_take(&pool);

            assert_int_equal(obj == NULL, held_count == COUNT);
            if (obj != NULL) {
                held[held_count++] = obj;
            }
        } else if (held_count > 0) {
            const uint64_t victim = base_prng_below(&prng, held_count);

            base_pool_return(&pool, held[victim]);
            held[victim] = held[--held_count];
        }
        assert_int_equal(pool.free_count + held_count, COUNT);
    }
    base_pool_fini(&pool);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(every_object_is_taken_once_then_null),
    cmocka_unit_test(index_and_address_agree_for_any_object_size),
    cmocka_unit_test(objects_are_aligned_and_start_as_zeroes),
    cmocka_unit_test(low_water_is_the_least_free_count_ever),
    cmocka_unit_test(bad_arguments_are_refused),
    cmocka_unit_test(an_address_that_is_no_object_aborts),
    cmocka_unit_test(random_takes_and_returns_lose_nothing),
};

TEST_MAIN(cases)
