/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/trace.c: the last records are kept, and the hash tells any two histories apart.
 */
#include "base/trace.h"

#include "tests/test.h"

#include <errno.h>
#include <stdlib.h>

static const char *
name_of(uint32_t event)
{
    return event == 1 ? "sent" : NULL;
}

static void
dump_prints_the_last_records_oldest_first(void **state)
{
    struct base_trace trace;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    assert_int_equal(base_trace_init(&trace, 4), 0);
    for (uint32_t i = 0; i < 9; i++) {
        base_trace_add(&trace, 100 + i, i % 2, i, 7, 8);
    }
    base_trace_dump(&trace, out, 2, name_of);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "           107 ns sent                     id 7 a 7 b 8\n"
                              "           108 ns event 0                  id 8 a 7 b 8\n");
    free(text);
    base_trace_fini(&trace);
}

static uint64_t
hash_of(uint64_t (*records)[5], uint32_t count)
{
    struct base_trace trace;

    assert_int_equal(base_trace_init(&trace, 2), 0);
    for (uint32_t i = 0; i < count; i++) {
        base_trace_add(&trace, records[i][0], (uint32_t)records[i][1], records[i][2], records[i][3],
                       (uint32_t)records[i][4]);
    }
    const uint64_t hash = base_trace_hash(&trace);

    base_trace_fini(&trace);
    return hash;
}

static void
the_hash_depends_on_every_field_and_on_the_order(void **state)
{
    uint64_t records[2][5] = {{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}};
    uint64_t swapped[2][5] = {{6, 7, 8, 9, 10}, {1, 2, 3, 4, 5}};
    const uint64_t hash = hash_of(records, 2);

    assert_int_equal(hash_of(records, 2), hash);
    assert_int_not_equal(hash_of(swapped, 2), hash);
    assert_int_not_equal(hash_of(records, 1), hash);
    for (uint32_t field = 0; field < 5; field++) {
        uint64_t changed[2][5] = {{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}};

        changed[0][field]++;
        assert_int_not_equal(hash_of(changed, 2), hash);
    }
}

static void
a_record_count_that_is_no_power_of_two_is_refused(void **state)
{
    struct base_trace trace;

    assert_int_equal(base_trace_init(&trace, 3), -EINVAL);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(dump_prints_the_last_records_oldest_first),
    cmocka_unit_test(the_hash_depends_on_every_field_and_on_the_order),
    cmocka_unit_test(a_record_count_that_is_no_power_of_two_is_refused),
};

TEST_MAIN(cases)
