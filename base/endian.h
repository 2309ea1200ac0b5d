/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fixed byte order: everything on our wires is little-endian; IP headers are big-endian.
 *
 * Two ways: base_le32_load()/_store() on bytes of any alignment, and the types base_le16/32/64 for
 * the fields of wire structs, which are read through base_le32_to_cpu() and written with
 * base_cpu_to_le32(). The types are plain integers: their names tell the reader, not the compiler.
 */
#pragma once

#include <stdint.h>
#include <string.h>

typedef uint16_t base_le16;
typedef uint32_t base_le32;
typedef uint64_t base_le64;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#    define BASE_ENDIAN_LE(bits, value) (value)
#    define BASE_ENDIAN_BE(bits, value) __builtin_bswap##bits(value)
#else
#    define BASE_ENDIAN_LE(bits, value) __builtin_bswap##bits(value)
#    define BASE_ENDIAN_BE(bits, value) (value)
#endif

/* The functions of one width: wire field to value and back, load from bytes, store to bytes. */
#define BASE_ENDIAN_DEFINE_LE(bits)                                             \
    static inline uint##bits##_t base_le##bits##_to_cpu(base_le##bits field)    \
    {                                                                           \
        return (uint##bits##_t)BASE_ENDIAN_LE(bits, field);                     \
    }                                                                           \
    static inline base_le##bits base_cpu_to_le##bits(uint##bits##_t value)      \
    {                                                                           \
        return (base_le##bits)BASE_ENDIAN_LE(bits, value);                      \
    }                                                                           \
    static inline uint##bits##_t base_le##bits##_load(const void *bytes)        \
    {                                                                           \
        base_le##bits field;                                                    \
        (void)memcpy(&field, bytes, sizeof(field));                             \
        return base_le##bits##_to_cpu(field);                                   \
    }                                                                           \
    static inline void base_le##bits##_store(void *bytes, uint##bits##_t value) \
    {                                                                           \
        const base_le##bits field = base_cpu_to_le##bits(value);                \
        (void)memcpy(bytes, &field, sizeof(field));                             \
    }

#define BASE_ENDIAN_DEFINE_BE(bits)                                               \
    static inline uint##bits##_t base_be##bits##_load(const void *bytes)          \
    {                                                                             \
        uint##bits##_t field;                                                     \
        (void)memcpy(&field, bytes, sizeof(field));                               \
        return (uint##bits##_t)BASE_ENDIAN_BE(bits, field);                       \
    }                                                                             \
    static inline void base_be##bits##_store(void *bytes, uint##bits##_t value)   \
    {                                                                             \
        const uint##bits##_t field = (uint##bits##_t)BASE_ENDIAN_BE(bits, value); \
        (void)memcpy(bytes, &field, sizeof(field));                               \
    }

BASE_ENDIAN_DEFINE_LE(16)
BASE_ENDIAN_DEFINE_LE(32)
BASE_ENDIAN_DEFINE_LE(64)
BASE_ENDIAN_DEFINE_BE(16)
BASE_ENDIAN_DEFINE_BE(32)
BASE_ENDIAN_DEFINE_BE(64)
