/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A seeded generator of pseudo-random numbers: xoshiro256**, filled from the seed by splitmix64.
 *
 * The same seed gives the same numbers on every machine. Not for secrets.
 */
#pragma once

#include "base/assert.h"

#include <stdbool.h>
#include <stdint.h>

struct base_prng {
    uint64_t state[4];
};

/* One step of splitmix64: advances *@state and returns the next number. */
static inline uint64_t
base_splitmix64(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Starts the sequence of @seed. Any seed will do, 0 too. */
static inline void
base_prng_seed(struct base_prng *prng, uint64_t seed)
{
    for (uint32_t i = 0; i < 4; i++) {
        prng->state[i] = base_splitmix64(&seed);
    }
}

/* @value with its bits turned left by @count, from 1 to 63. */
static inline uint64_t
base_rotl64(uint64_t value, uint32_t count)
{
    return (value << count) | (value >> (64 - count));
}

/* The next 64 random bits. */
static inline uint64_t
base_prng_u64(struct base_prng *prng)
{
    uint64_t *s = prng->state;
    const uint64_t result = base_rotl64(s[1] * 5, 7) * 9;
    const uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = base_rotl64(s[3], 45);
    return result;
}

/* A number from 0 to @limit - 1, all equally likely. @limit is at least 1. */
static inline uint64_t
base_prng_below(struct base_prng *prng, uint64_t limit)
{
    BASE_ASSERT(limit > 0);
    const uint64_t reject_below = (0 - limit) % limit; /* 2^64 mod limit */
    uint64_t bits = 0;

    do {
        bits = base_prng_u64(prng);
    } while (bits < reject_below);
    return bits % limit;
}

/* A number from @low to @high, both included. */
static inline uint64_t
base_prng_between(struct base_prng *prng, uint64_t low, uint64_t high)
{
    BASE_ASSERT(low <= high);
    if (low == 0 && high == UINT64_MAX) {
        return base_prng_u64(prng);
    }
    return low + base_prng_below(prng, high - low + 1);
}

/* A number in [0, 1), a multiple of 2^-53. */
static inline double
base_prng_double(struct base_prng *prng)
{
    return (double)(base_prng_u64(prng) >> 11) * 0x1.0p-53;
}

/* True with @probability: never at 0 or below, always at 1 or above. Draws one number. */
static inline bool
base_prng_chance(struct base_prng *prng, double probability)
{
    return base_prng_double(prng) < probability;
}

/* Seeds @child from @prng, for a part whose draws must not disturb those of others. */
static inline void
base_prng_fork(struct base_prng *prng, struct base_prng *child)
{
    base_prng_seed(child, base_prng_u64(prng));
}
