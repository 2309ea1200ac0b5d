/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/prng.h, base/endian.h, base/hash.h and base/assert.h: the small arithmetic.
 */
#include "base/endian.h"
#include "base/hash.h"
#include "base/prng.h"

#include "tests/test.h"

static void
splitmix_gives_the_published_numbers(void **state)
{
    uint64_t seed = 1234567; /* the vector that goes with the reference code */

    assert_true(base_splitmix64(&seed) == 6457827717110365317u);
    assert_true(base_splitmix64(&seed) == 3203168211198807973u);
}

static void
xoshiro_gives_the_published_numbers(void **state)
{
    struct base_prng prng = {.state = {1, 2, 3, 4}};
    const uint64_t expected[] = {11520u, 0u, 1509978240u, 1215971899390074240u};

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(expected); i++) {
        assert_true(base_prng_u64(&prng) == expected[i]);
    }
}

static void
draws_stay_in_their_range_and_reach_its_ends(void **state)
{
    struct base_prng prng;
    uint32_t seen = 0;

    base_prng_seed(&prng, 0);
    for (uint32_t i = 0; i < 1000; i++) {
        const uint64_t draw = base_prng_between(&prng, 5, 9);
        const double fraction = base_prng_double(&prng);

        assert_in_range(draw, 5, 9);
        seen |= 1u << (draw - 5);
        assert_true(fraction >= 0 && fraction < 1);
        assert_false(base_prng_chance(&prng, 0));
        assert_true(base_prng_chance(&prng, 1));
    }
    assert_int_equal(seen, 31);
}

static void
little_endian_is_little_on_any_machine(void **state)
{
    unsigned char bytes[9] = {0};

    base_le64_store(bytes + 1, 0x0102030405060708u);
    assert_int_equal(bytes[1], 8);
    assert_int_equal(bytes[8], 1);
    assert_int_equal(base_le32_load(bytes + 1), 0x05060708);
    assert_int_equal(base_le16_load(bytes + 1), 0x0708);
    assert_int_equal(base_be32_load(bytes + 1), 0x08070605);
    base_be16_store(bytes, 0xabcd);
    assert_int_equal(bytes[0], 0xab);
    assert_int_equal(base_le32_to_cpu(base_cpu_to_le32(0xdeadbeefu)), 0xdeadbeefu);
}

static void
hashes_differ_by_content_length_and_seed(void **state)
{
    const char zeroes[20] = {0};
    const uint64_t hash = base_hash_bytes(zeroes, 11, 1);

    assert_true(hash == base_hash_bytes(zeroes, 11, 1));
    assert_true(hash != base_hash_bytes(zeroes, 12, 1));
    assert_true(hash != base_hash_bytes(zeroes, 11, 2));
    assert_true(hash != base_hash_bytes("0000000000000", 11, 1));
}

static void
one_flipped_bit_flips_about_half_of_the_hash(void **state)
{
    for (uint32_t bit = 0; bit < 64; bit++) {
        const uint64_t flips = base_hash_u64(12345) ^ base_hash_u64(12345 ^ (1ull << bit));

        assert_in_range(__builtin_popcountll(flips), 16, 48);
    }
}

static void
an_assertion_prints_its_place_and_aborts(void **state)
{
    BASE_ASSERT(1 + 1 == 2);
    TEST_ABORTS(BASE_ASSERT(1 + 1 == 3));
    TEST_ABORTS(BASE_UNREACHABLE());
}

static void
rounding_and_powers_of_two(void **state)
{
    assert_int_equal(base_align_up(0, 64), 0);
    assert_int_equal(base_align_up(65, 64), 128);
    assert_false(base_is_pow2(0));
    assert_true(base_is_pow2(1ull << 63));
    assert_false(base_is_pow2(12));
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(splitmix_gives_the_published_numbers),
    cmocka_unit_test(xoshiro_gives_the_published_numbers),
    cmocka_unit_test(draws_stay_in_their_range_and_reach_its_ends),
    cmocka_unit_test(little_endian_is_little_on_any_machine),
    cmocka_unit_test(hashes_differ_by_content_length_and_seed),
    cmocka_unit_test(one_flipped_bit_flips_about_half_of_the_hash),
    cmocka_unit_test(an_assertion_prints_its_place_and_aborts),
    cmocka_unit_test(rounding_and_powers_of_two),
};

TEST_MAIN(cases)
