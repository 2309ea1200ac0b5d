/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hashing for tables in memory: fast, the same on every machine of one byte order, and no defence
 * against an opponent who chooses the keys (seed it from the context where that matters).
 */
#pragma once

#include "base/endian.h"

#include <stddef.h>
#include <stdint.h>

/* Mixes @x so that each bit of the result depends on all of it. A bijection; 0 stays 0. */
static inline uint64_t
base_hash_u64(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    return x;
}

/* Folds @x into the running hash @hash; the order of calls matters. */
static inline uint64_t
base_hash_combine(uint64_t hash, uint64_t x)
{
    return base_hash_u64(hash + 0x9e3779b97f4a7c15u + x);
}

/* Hashes @length_bytes bytes at @bytes. Different lengths of equal bytes differ. */
static inline uint64_t
base_hash_bytes(const void *bytes, size_t length_bytes, uint64_t seed)
{
    const unsigned char *at = bytes;
    uint64_t hash = base_hash_combine(seed, length_bytes);

    for (; length_bytes >= 8; length_bytes -= 8, at += 8) {
        hash = base_hash_combine(hash, base_le64_load(at));
    }
    if (length_bytes > 0) {
        unsigned char tail[8] = {0};

        (void)memcpy(tail, at, length_bytes);
        hash = base_hash_combine(hash, base_le64_load(tail));
    }
    return hash;
}
