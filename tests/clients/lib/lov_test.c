/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Property: the arithmetic of striping. Method: every byte of small files is placed by the
 * definition (unit number modulo the count), and the functions must agree.
 */
#include "tests/test.h"

#include "clients/lib/core.h"

#include <errno.h>
#include <string.h>

#define UNIT 65536u

static struct lov_layout
layout_of(uint16_t count)
{
    return (struct lov_layout){.stripe_bytes = UNIT, .stripe_count = count};
}

static void
offsets_of_file_and_object_are_inverse(void **state)
{
    static const uint64_t offsets[] = {
        0,        1,         UNIT - 1,   UNIT,       UNIT + 1,   3 * UNIT - 1,
        3 * UNIT, 10 * UNIT, UINT32_MAX, 1ull << 32, 1ull << 40, (1ull << 62) + 12345,
    };

    for (uint16_t count = 1; count <= 64; count++) {
        const struct lov_layout layout = layout_of(count);

        for (size_t i = 0; i < BASE_ARRAY_LEN(offsets); i++) {
            const uint32_t stripe = (uint32_t)(offsets[i] / UNIT % count);
            const uint64_t in_object = lov_object_bytes(&layout, stripe, offsets[i]);

            assert_int_equal(in_object, offsets[i] / UNIT / count * UNIT + offsets[i] % UNIT);
            assert_int_equal(lov_file_offset(&layout, stripe, in_object), offsets[i]);
        }
    }
}

static void
bytes_of_the_objects_add_up_to_the_offset(void **state)
{
    for (uint16_t count = 1; count <= 5; count++) {
        const struct lov_layout layout = layout_of(count);

        for (uint64_t offset = 0; offset < 12 * UNIT; offset += 4093) {
            uint64_t sum = 0;
            uint64_t size = 0;

            for (uint32_t i = 0; i < count; i++) {
                const uint64_t bytes = lov_object_bytes(&layout, i, offset);

                sum += bytes;
                size = base_max_u64(size, lov_file_bytes(&layout, i, bytes));
            }
            assert_int_equal(sum, offset);
            assert_int_equal(size, offset);
        }
    }
}

static void
segments_name_the_memory_of_each_byte(void **state)
{
    static uint8_t memory[12 * UNIT];
    struct iovec iov[5];
    struct iovec out[BULK_SEGMENTS_MAX];
    const uint64_t file_offset = 3 * UNIT + 777;
    uint64_t used = 0;

    /* Parts of odd sizes, one of them empty. */
    static const uint64_t sizes[5] = {1, 2 * UNIT + 3, 0, 65000, 4 * UNIT};

    for (size_t i = 0; i < 5; i++) {
        iov[i] = (struct iovec){.iov_base = memory + used, .iov_len = sizes[i]};
        used += sizes[i];
    }
    for (uint16_t count = 1; count <= 4; count++) {
        const struct lov_layout layout = layout_of(count);

        for (uint32_t stripe = 0; stripe < count; stripe++) {
            const uint64_t from = lov_object_bytes(&layout, stripe, file_offset);
            const uint64_t to = lov_object_bytes(&layout, stripe, file_offset + used);
            const uint32_t parts = lov_segments(&layout, stripe, from, to - from, iov, 5,
                                                file_offset, out, BULK_SEGMENTS_MAX);
            uint64_t at = from;

            for (uint32_t i = 0; i < parts; i++) {
                for (size_t j = 0; j < out[i].iov_len; j += 511) {
                    const uint64_t place = lov_file_offset(&layout, stripe, at + j);

                    assert_ptr_equal((uint8_t *)out[i].iov_base + j,
                                     memory + (place - file_offset));
                }
                at += out[i].iov_len;
            }
            assert_int_equal(at, to);
        }
    }
}

static void
too_many_segments_are_refused(void **state)
{
    static uint8_t memory[64];
    struct iovec iov[64];
    struct iovec out[8];
    const struct lov_layout layout = layout_of(1);

    for (size_t i = 0; i < 64; i++) {
        iov[i] = (struct iovec){.iov_base = memory + i, .iov_len = 1};
    }
    assert_int_equal(lov_segments(&layout, 0, 0, 8, iov, 64, 0, out, 8), 8);
    assert_int_equal(lov_segments(&layout, 0, 0, 9, iov, 64, 0, out, 8), 0);
}

static void
a_layout_that_makes_no_sense_is_refused(void **state)
{
    struct lov_layout layout;
    struct mds_attr attr = {.stripe_bytes = UNIT, .stripe_count = 1};

    assert_int_equal(lov_layout_set(&layout, &attr), 0);
    attr.stripe_count = 0;
    assert_int_equal(lov_layout_set(&layout, &attr), -EPROTO);
    attr.stripe_count = CLIENT_STRIPES_MAX + 1;
    assert_int_equal(lov_layout_set(&layout, &attr), -EPROTO);
    attr.stripe_count = 2;
    attr.stripe_bytes = 0;
    assert_int_equal(lov_layout_set(&layout, &attr), -EPROTO);
    attr.stripe_bytes = UNIT + 1;
    assert_int_equal(lov_layout_set(&layout, &attr), -EPROTO);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(offsets_of_file_and_object_are_inverse),
    cmocka_unit_test(bytes_of_the_objects_add_up_to_the_offset),
    cmocka_unit_test(segments_name_the_memory_of_each_byte),
    cmocka_unit_test(too_many_segments_are_refused),
    cmocka_unit_test(a_layout_that_makes_no_sense_is_refused),
};

TEST_MAIN(cases)
