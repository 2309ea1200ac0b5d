/* SPDX-License-Identifier: BSD-3-Clause */
/* bulk/handle.c: what a peer sends is taken only if it is whole and its sums hold. */
#include "bulk/handle.h"
#include "tests/test.h"

#include "base/endian.h"

#include <errno.h>
#include <string.h>

static uint32_t
make(uint8_t *handle, uint32_t count, bool has_keys, uint64_t length_bytes)
{
    const struct lnet_key key = {.bytes = {1, 2, 3}};

    bulk_handle_head_put(handle, 0x1234, count, has_keys);
    for (uint32_t i = 0; i < count; i++) {
        bulk_handle_segment_put(handle, i, has_keys, length_bytes + i, &key);
    }
    return bulk_handle_bytes(count, has_keys);
}

static void
what_is_written_is_read(void **state)
{
    static const uint32_t counts[] = {0, 1, 2, 63, 64};

    for (uint32_t c = 0; c < 5; c++) {
        for (uint32_t has_keys = 0; has_keys <= 1; has_keys++) {
            uint8_t handle[BULK_HANDLE_BYTES_MAX + 1];
            const uint32_t bytes = make(handle + 1, counts[c], has_keys != 0, 1ull << 33);
            struct bulk_handle_head head;
            uint32_t handle_bytes = 0;
            uint64_t length_bytes = 0;

            assert_true(bytes <= BULK_HANDLE_BYTES_MAX);
            assert_int_equal(bulk_handle_decode(handle + 1, bytes, &head), 0);
            assert_int_equal(head.segment_count, counts[c]);
            assert_int_equal(head.export_id, 0x1234);
            assert_int_equal(head.has_keys, has_keys);
            for (uint32_t i = 0; i < counts[c]; i++) {
                struct bulk_handle_segment segment = {0};

                bulk_handle_segment_get(handle + 1, &head, i, &segment);
                assert_int_equal(segment.length_bytes, (1ull << 33) + i);
                assert_int_equal(segment.key.bytes[2], has_keys != 0 ? 3 : 0);
            }
            assert_int_equal(
                bulk_handle_check(handle + 1, sizeof(handle) - 1, &handle_bytes, &length_bytes), 0);
            assert_int_equal(handle_bytes, bytes);
            assert_int_equal(length_bytes, head.length_bytes);
            assert_int_equal(bulk_handle_check(handle + 1, bytes, NULL, NULL), 0);
        }
    }
}

static void
every_truncation_is_refused(void **state)
{
    uint8_t handle[BULK_HANDLE_BYTES_MAX];
    const uint32_t bytes = make(handle, 5, true, 100);

    for (uint32_t i = 0; i < bytes; i++) {
        assert_int_equal(bulk_handle_check(handle, i, NULL, NULL), -EPROTO);
    }
}

static void
other_versions_flags_and_counts_are_refused(void **state)
{
    uint8_t handle[BULK_HANDLE_BYTES_MAX];
    const uint32_t bytes = make(handle, 2, true, 100);

    for (uint32_t at = 0; at < 8; at++) {
        for (uint32_t bit = 0; bit < 8; bit++) {
            if (at == 1 && bit == 0) {
                continue; /* without keys it is a shorter handle, and one in its own right */
            }
            if (at == 2 && bit < 2) {
                continue; /* a smaller count */
            }
            handle[at] ^= (uint8_t)(1u << bit);
            assert_int_equal(bulk_handle_check(handle, bytes, NULL, NULL), -EPROTO);
            handle[at] ^= (uint8_t)(1u << bit);
        }
    }
    (void)make(handle, 1, false, 1);
    base_le16_store(handle + 2, BULK_SEGMENTS_MAX + 1);
    assert_int_equal(bulk_handle_check(handle, sizeof(handle), NULL, NULL), -EPROTO);
}

static void
lengths_that_are_0_or_overflow_are_refused(void **state)
{
    uint8_t handle[BULK_HANDLE_BYTES_MAX];
    const uint32_t bytes = make(handle, 2, false, 1);

    base_le64_store(handle + 16, 0);
    assert_int_equal(bulk_handle_check(handle, bytes, NULL, NULL), -EPROTO);
    base_le64_store(handle + 16, UINT64_MAX);
    assert_int_equal(bulk_handle_check(handle, bytes, NULL, NULL), -EPROTO);
    base_le64_store(handle + 16, BULK_HANDLE_LENGTH_MAX);
    assert_int_equal(bulk_handle_check(handle, bytes, NULL, NULL), -EPROTO);
    base_le64_store(handle + 16, BULK_HANDLE_LENGTH_MAX - 2);
    assert_int_equal(bulk_handle_check(handle, bytes, NULL, NULL), 0);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(what_is_written_is_read),
    cmocka_unit_test(every_truncation_is_refused),
    cmocka_unit_test(other_versions_flags_and_counts_are_refused),
    cmocka_unit_test(lengths_that_are_0_or_overflow_are_refused),
};

TEST_MAIN(cases)
