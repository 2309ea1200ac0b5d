/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * servers/store/pages.c: runs do not overlap, are aligned, come together again when they are free,
 * and never exceed the bound; regions that can't be had are space that is not there.
 */
#include "servers/store/pages.h"

#include "base/prng.h"
#include "tests/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MIB  (UINT64_C(1) << 20)
#define RUNS 4096u

static struct store_pages pages;

static void
open_pages(uint64_t bytes_max, uint64_t region_bytes, uint64_t prefault_bytes)
{
    const struct ost_store_options options = {
        .bytes_max = bytes_max, .region_bytes = region_bytes, .prefault_bytes = prefault_bytes};

    assert_int_equal(store_pages_init(&pages, &options), 0);
}

static void
random_runs_never_overlap_and_merge_when_free(void **state)
{
    static uint32_t taken[RUNS], orders[RUNS];
    struct base_prng prng;
    uint32_t count = 0;

    base_prng_seed(&prng, 3);
    open_pages(16 * MIB, 4 * MIB, 2 * MIB);
    for (uint32_t i = 0; i < 60000; i++) {
        if (count < RUNS && base_prng_chance(&prng, 0.51)) {
            const uint32_t order = (uint32_t)base_prng_below(&prng, 9);
            const uint32_t page = store_pages_take(&pages, order);

            if (page == STORE_PAGE_NONE) {
                continue;
            }
            assert_int_equal(page % (1u << order), 0);
            taken[count] = page;
            orders[count] = order;
            /* Each page names its owner; who overlaps is found when it is returned. */
            for (uint32_t k = 0; k < 1u << order; k++) {
                (void)memcpy(store_pages_address(&pages, page + k), &page, sizeof(page));
            }
            count++;
        } else if (count > 0) {
            const uint64_t victim = base_prng_below(&prng, count);

            for (uint32_t k = 0; k < 1u << orders[victim]; k++) {
                assert_memory_equal(store_pages_address(&pages, taken[victim] + k), &taken[victim],
                                    sizeof(taken[victim]));
            }
            store_pages_return(&pages, taken[victim], orders[victim]);
            count--;
            taken[victim] = taken[count];
            orders[victim] = orders[count];
        }
        if (i % 1000 == 0) {
            store_pages_check(&pages);
        }
    }
    while (count > 0) {
        count--;
        store_pages_return(&pages, taken[count], orders[count]);
    }
    store_pages_check(&pages);
    assert_int_equal(pages.used_bytes, 0);
    for (uint32_t i = 0; i < 16; i++) { /* all of it in whole blocks again */
        assert_int_not_equal(store_pages_take(&pages, STORE_ORDER_MAX), STORE_PAGE_NONE);
    }
    assert_int_equal(store_pages_take(&pages, 0), STORE_PAGE_NONE);
    store_pages_fini(&pages);
}

static void
single_pages_of_a_run_may_be_returned_one_by_one(void **state)
{
    open_pages(MIB, MIB, 1);
    const uint32_t page = store_pages_take(&pages, STORE_ORDER_MAX);

    for (uint32_t i = 0; i < STORE_BLOCK_PAGES; i += 2) {
        store_pages_return(&pages, page + i, 0);
    }
    assert_int_equal(store_pages_take(&pages, 1), STORE_PAGE_NONE);
    for (uint32_t i = 1; i < STORE_BLOCK_PAGES; i += 2) {
        store_pages_return(&pages, page + i, 0);
    }
    store_pages_check(&pages);
    assert_int_equal(store_pages_take(&pages, STORE_ORDER_MAX), page);
    store_pages_fini(&pages);
}

static void
bound_is_kept_to_the_page(void **state)
{
    open_pages(MIB + 3 * 4096 + 5, MIB, 1);
    assert_int_not_equal(store_pages_take(&pages, STORE_ORDER_MAX), STORE_PAGE_NONE);
    assert_int_equal(store_pages_take(&pages, 2), STORE_PAGE_NONE);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_not_equal(store_pages_take(&pages, 0), STORE_PAGE_NONE);
    }
    assert_int_equal(store_pages_take(&pages, 0), STORE_PAGE_NONE);
    assert_int_equal(pages.used_bytes, MIB + 3 * 4096);
    store_pages_fini(&pages);
}

static uint32_t regions_left;

static int
scarce_alloc(void *arg, uint64_t bytes, void **region_out, void **address_out)
{
    if (regions_left == 0) {
        return -ENOMEM;
    }
    regions_left--;
    *address_out = aligned_alloc(4096, bytes);
    *region_out = *address_out;
    (void)memset(*address_out, 0, bytes);
    return 0;
}

static void
scarce_free(void *arg, void *region)
{
    free(region);
}

static void
system_without_memory_is_space_that_is_not_there(void **state)
{
    const struct ost_store_options options = {
        .bytes_max = 16 * MIB,
        .region_bytes = MIB,
        .prefault_bytes = 16 * MIB,
        .memory = {.region_alloc = scarce_alloc, .region_free = scarce_free}};

    regions_left = 0;
    assert_int_equal(store_pages_init(&pages, &options), -ENOMEM);
    regions_left = 3; /* one is the zero area */
    assert_int_equal(store_pages_init(&pages, &options), 0);
    assert_int_equal(pages.touched_free_bytes, 2 * MIB);
    assert_int_not_equal(store_pages_take(&pages, STORE_ORDER_MAX), STORE_PAGE_NONE);
    assert_int_not_equal(store_pages_take(&pages, STORE_ORDER_MAX), STORE_PAGE_NONE);
    assert_int_equal(store_pages_take(&pages, 0), STORE_PAGE_NONE);
    regions_left = 1;
    assert_int_not_equal(store_pages_take(&pages, 0), STORE_PAGE_NONE);
    store_pages_check(&pages);
    store_pages_fini(&pages);
}

static void
bad_sizes_are_refused(void **state)
{
    struct ost_store_options options = {.bytes_max = MIB, .region_bytes = 5000};

    assert_int_equal(store_pages_init(&pages, &options), -EINVAL);
    options.region_bytes = MIB;
    options.bytes_max = UINT64_MAX;
    assert_int_equal(store_pages_init(&pages, &options), -EINVAL);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(random_runs_never_overlap_and_merge_when_free),
    cmocka_unit_test(single_pages_of_a_run_may_be_returned_one_by_one),
    cmocka_unit_test(bound_is_kept_to_the_page),
    cmocka_unit_test(system_without_memory_is_space_that_is_not_there),
    cmocka_unit_test(bad_sizes_are_refused),
};

TEST_MAIN(cases)
