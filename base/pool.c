/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Set-up and end of object pools; the fast path is inline in pool.h.
 */
#include "base/pool.h"

#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

/* The inverse of odd @value modulo 2^64, by Newton's iteration: each step doubles the good bits. */
static uint64_t
odd_inverse(uint64_t value)
{
    uint64_t inverse = value; /* right in the low 3 bits */

    for (uint32_t bits = 3; bits < 64; bits *= 2) {
        inverse *= 2 - value * inverse;
    }
    return inverse;
}

int
base_pool_init(struct base_pool *pool, size_t object_bytes, uint32_t count, size_t align)
{
    if (align == 0) {
        align = alignof(max_align_t);
    }
    if (object_bytes == 0 || count == 0 || !base_is_pow2(align) ||
        object_bytes > SIZE_MAX - align) {
        return -EINVAL;
    }
    /* ASan tracks 8-byte granules: a smaller stride would poison a neighbour's bytes. */
    const size_t stride_bytes = base_align_up(object_bytes, base_max_u64(align, 8));
    size_t total_bytes = 0;

    if (__builtin_mul_overflow(stride_bytes, (size_t)count, &total_bytes) ||
        total_bytes > SIZE_MAX / 2) {
        return -ENOMEM;
    }
    unsigned char *objects = aligned_alloc(base_max_u64(align, 8), total_bytes);

    if (objects == NULL) {
        return -ENOMEM;
    }
    void **free_stack = malloc((size_t)count * sizeof(void *));

    if (free_stack == NULL) {
        free(objects);
        return -ENOMEM;
    }

    (void)memset(objects, 0, total_bytes); /* touch every page now, not on the data path */
    for (uint32_t i = 0; i < count; i++) {
        free_stack[i] = objects + (size_t)(count - 1 - i) * stride_bytes; /* lowest index on top */
    }
    BASE_POOL_POISON(objects, total_bytes);

    const uint32_t shift = (uint32_t)__builtin_ctzll(stride_bytes);

    *pool = (struct base_pool){
        .free = free_stack,
        .free_count = count,
        .total_count = count,
        .low_water = count,
        .stride_shift = shift,
        .odd_inverse = odd_inverse((uint64_t)stride_bytes >> shift),
        .stride_bytes = stride_bytes,
        .objects = objects,
    };
    return 0;
}

void
base_pool_fini(struct base_pool *pool)
{
    if (pool->objects != NULL) {
        BASE_POOL_UNPOISON(pool->objects, pool->stride_bytes * pool->total_count);
    }
    free(pool->objects);
    free(pool->free);
    *pool = (struct base_pool){.objects = NULL};
}

int
base_pool_is_free(const struct base_pool *pool, const void *obj)
{
    for (uint32_t i = 0; i < pool->free_count; i++) {
        if (pool->free[i] == obj) {
            return 1;
        }
    }
    return 0;
}
