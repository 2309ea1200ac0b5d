/* SPDX-License-Identifier: BSD-3-Clause */
/* bulk/crc32c.c against the vectors of RFC 3720 B.4 and a bit-by-bit reference. */
#include "causeway/bulk.h"
#include "tests/test.h"

#include "base/prng.h"

#include <string.h>

static uint32_t
reference(const uint8_t *at, size_t bytes)
{
    uint32_t crc = ~0u;

    for (; bytes > 0; bytes--, at++) {
        crc ^= *at;
        for (uint32_t i = 0; i < 8; i++) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
        }
    }
    return ~crc;
}

static void
known_answers_are_given(void **state)
{
    uint8_t bytes[32];

    assert_int_equal(bulk_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(bulk_crc32c(0, "", 0), 0);
    assert_int_equal(bulk_crc32c(0x12345678, NULL, 0), 0x12345678);
    (void)memset(bytes, 0, sizeof(bytes));
    assert_int_equal(bulk_crc32c(0, bytes, 32), 0x8a9136aa);
    (void)memset(bytes, 0xff, sizeof(bytes));
    assert_int_equal(bulk_crc32c(0, bytes, 32), 0x62a8ab43);
    for (uint32_t i = 0; i < 32; i++) {
        bytes[i] = (uint8_t)i;
    }
    assert_int_equal(bulk_crc32c(0, bytes, 32), 0x46dd794e);
    for (uint32_t i = 0; i < 32; i++) {
        bytes[i] = (uint8_t)(31 - i);
    }
    assert_int_equal(bulk_crc32c(0, bytes, 32), 0x113fdb5c);
}

static void
every_length_and_alignment_agrees_with_the_reference(void **state)
{
    static uint8_t bytes[5000];
    struct base_prng prng;

    base_prng_seed(&prng, 1);
    for (uint32_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)base_prng_u64(&prng);
    }
    for (uint32_t length = 0; length < 600; length++) {
        const uint32_t offset = length % 17;

        assert_int_equal(bulk_crc32c(0, bytes + offset, length), reference(bytes + offset, length));
    }
    assert_int_equal(bulk_crc32c(0, bytes, sizeof(bytes)), reference(bytes, sizeof(bytes)));
}

static void
parts_give_what_the_whole_gives(void **state)
{
    static const char text[] = "the bytes of a transfer come in fragments of any size";
    const uint32_t whole = bulk_crc32c(0, text, sizeof(text));

    for (uint32_t cut = 0; cut <= sizeof(text); cut++) {
        assert_int_equal(bulk_crc32c(bulk_crc32c(0, text, cut), text + cut, sizeof(text) - cut),
                         whole);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(known_answers_are_given),
    cmocka_unit_test(every_length_and_alignment_agrees_with_the_reference),
    cmocka_unit_test(parts_give_what_the_whole_gives),
};

TEST_MAIN(cases)
