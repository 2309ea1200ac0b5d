/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Assertions, and the few things every file needs that C does not have.
 *
 * Assertions are on in every build and are for our own mistakes only: whatever comes from the wire,
 * the user, the kernel or a device is checked and answered with an error. One fact per assertion.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* What two cores must not share by accident, in bytes. */
#define BASE_CACHE_LINE 64

/* Aligns a type, a member or a variable to @n bytes. */
#define BASE_ALIGNED(n) __attribute__((aligned(n)))

#define BASE_LIKELY(cond)   (__builtin_expect(!!(cond), 1))
#define BASE_UNLIKELY(cond) (__builtin_expect(!!(cond), 0))

/* The number of elements of an array (not of a pointer). */
#define BASE_ARRAY_LEN(array) (sizeof(array) / sizeof((array)[0]))

/* The struct of @type whose @field @ptr points to. */
#define BASE_CONTAINER_OF(ptr, type, field) ((type *)(void *)((char *)(ptr)-offsetof(type, field)))

/* For constants only: both evaluate an argument twice. Values take the functions below. */
#define BASE_MIN(a, b) ((a) < (b) ? (a) : (b))
#define BASE_MAX(a, b) ((a) > (b) ? (a) : (b))

/* Prints `file:line: assertion failed: what` to stderr and aborts. Called by the macros below. */
_Noreturn void base_assert_fail(const char *file, int line, const char *what)
    __attribute__((cold, noinline));

/* Aborts with the place and the text of @cond if it is false. On in every build. */
#define BASE_ASSERT(cond) \
    (BASE_LIKELY(cond) ? (void)0 : base_assert_fail(__FILE__, __LINE__, #cond))

/*
 * For checks that cost more than O(1): on under test and in the simulator, where the build defines
 * BASE_SIM_ASSERTS. Elsewhere @cond is compiled and never evaluated.
 */
#ifdef BASE_SIM_ASSERTS
#    define BASE_ASSERT_SIM(cond) BASE_ASSERT(cond)
#else
#    define BASE_ASSERT_SIM(cond) ((void)sizeof((cond) ? 1 : 0))
#endif

/* Marks what cannot be reached. Aborts like an assertion in every build. */
#define BASE_UNREACHABLE() base_assert_fail(__FILE__, __LINE__, "unreachable")

/* The smaller of two values. */
static inline uint32_t
base_min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The larger of two values. */
static inline uint32_t
base_max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The smaller of two values. Serves size_t as well. */
static inline uint64_t
base_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The larger of two values. Serves size_t as well. */
static inline uint64_t
base_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Whether @value is a power of two. 0 is none. */
static inline int
base_is_pow2(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* @value rounded up to a multiple of @align, a power of two. The caller excludes overflow. */
static inline uint64_t
base_align_up(uint64_t value, uint64_t align)
{
    return (value + align - 1) & ~(align - 1);
}
