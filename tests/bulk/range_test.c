/* SPDX-License-Identifier: BSD-3-Clause */
/* bulk/range.c against a plain search, over random overlapping ranges. */
#include "bulk/range.h"
#include "tests/test.h"

#include "base/prng.h"

struct range {
    uint64_t start;
    uint64_t end;
    bool is_in;
};

static bool
any_contains(const struct range *ranges, uint32_t count, uint64_t start, uint64_t end)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ranges[i].is_in && ranges[i].start <= start && ranges[i].end >= end) {
            return true;
        }
    }
    return false;
}

static void
a_containing_range_is_found_if_there_is_one(void **state)
{
    struct bulk_range_index index;
    struct range ranges[40] = {0};
    struct base_prng prng;

    base_prng_seed(&prng, 7);
    assert_int_equal(bulk_range_init(&index, 4), 0);
    for (uint32_t step = 0; step < 20000; step++) {
        struct range *range = &ranges[base_prng_below(&prng, 40)];
        const uint64_t start = 1 + base_prng_below(&prng, 200);
        const uint64_t end = start + 1 + base_prng_below(&prng, 50);
        const struct range *found = bulk_range_find(&index, start, end);

        if (found != NULL) {
            assert_true(found->is_in && found->start <= start && found->end >= end);
        } else {
            assert_false(any_contains(ranges, 40, start, end));
        }
        if (range->is_in) {
            bulk_range_remove(&index, range->start, range);
            range->is_in = false;
        } else {
            *range = (struct range){.start = start, .end = end, .is_in = true};
            assert_int_equal(bulk_range_add(&index, start, end, range), 0);
        }
    }
    bulk_range_fini(&index);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_containing_range_is_found_if_there_is_one),
};

TEST_MAIN(cases)
