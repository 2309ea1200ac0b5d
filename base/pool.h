/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pool of objects of one size.
 *
 * All memory is allocated and touched by base_pool_init(); taking and returning are O(1) and the
 * most recently returned object, which is warm, is taken first. Objects have a fixed index, which
 * serves as a handle on the wire. An object that is in the pool is poisoned under
 * AddressSanitizer, so that a use after the return is found.
 *
 * Invariants:
 *
 *   I1  free_count <= total_count, and the first free_count entries of `free` are the free objects
 *   I2  low_water is the smallest free_count since init
 */
#pragma once

#include "base/assert.h"

#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#    define BASE_POOL_POISONS 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer)
#        define BASE_POOL_POISONS 1
#    endif
#endif
#ifdef BASE_POOL_POISONS
#    include <sanitizer/asan_interface.h>
#    define BASE_POOL_POISON(obj, bytes)   ASAN_POISON_MEMORY_REGION(obj, bytes)
#    define BASE_POOL_UNPOISON(obj, bytes) ASAN_UNPOISON_MEMORY_REGION(obj, bytes)
#else
#    define BASE_POOL_POISON(obj, bytes)   ((void)(obj), (void)(bytes))
#    define BASE_POOL_UNPOISON(obj, bytes) ((void)(obj), (void)(bytes))
#endif

struct base_pool {
    void **free; /* a stack of the free objects */
    uint32_t free_count;
    uint32_t total_count;
    uint32_t low_water;
    uint32_t stride_shift; /* stride_bytes == odd << stride_shift */
    uint64_t odd_inverse;  /* odd * odd_inverse == 1 (mod 2^64): exact division in one multiply */
    size_t stride_bytes;
    unsigned char *objects;
};

/*
 * Allocates @count objects of @object_bytes each, aligned to @align (a power of two, or 0 for
 * max_align_t), zeroed once.
 * Errors: -EINVAL a size or count of 0, or a bad @align; -ENOMEM.
 */
int base_pool_init(struct base_pool *pool, size_t object_bytes, uint32_t count, size_t align);

/* Frees the memory. Objects that are still out go with it: nobody may use them any more. */
void base_pool_fini(struct base_pool *pool);

/* Whether @obj is in the pool now. O(n): for BASE_ASSERT_SIM() and tests. */
int base_pool_is_free(const struct base_pool *pool, const void *obj);

/* The address of the object with @index, free or not. */
static inline void *
base_pool_at(const struct base_pool *pool, uint32_t index)
{
    BASE_ASSERT(index < pool->total_count);
    return pool->objects + (size_t)index * pool->stride_bytes;
}

/* The index of @obj, below total_count. Asserts that @obj is the start of an object of @pool. */
static inline uint32_t
base_pool_index(const struct base_pool *pool, const void *obj)
{
    const uint64_t offset = (uint64_t)((uintptr_t)obj - (uintptr_t)pool->objects);
    /* Wrong unless the offset is a multiple of the stride, and then it is large: see the assert. */
    const uint64_t index = (offset >> pool->stride_shift) * pool->odd_inverse;

    BASE_ASSERT(index < pool->total_count);
    BASE_ASSERT(index * pool->stride_bytes == offset);
    return (uint32_t)index;
}

/* Takes an object, or returns NULL when none is free. Its content is what was last in it. */
static inline void *
base_pool_take(struct base_pool *pool)
{
    if (BASE_UNLIKELY(pool->free_count == 0)) {
        return NULL;
    }
    void *obj = pool->free[--pool->free_count];

    if (pool->free_count < pool->low_water) {
        pool->low_water = pool->free_count;
    }
    BASE_POOL_UNPOISON(obj, pool->stride_bytes);
    return obj;
}

/* Gives @obj back. It must have come from base_pool_take() and not be returned already. */
static inline void
base_pool_return(struct base_pool *pool, void *obj)
{
    BASE_ASSERT(pool->free_count < pool->total_count); /* I1 */
    BASE_ASSERT_SIM(base_pool_at(pool, base_pool_index(pool, obj)) == obj);
    BASE_ASSERT_SIM(!base_pool_is_free(pool, obj));
    pool->free[pool->free_count++] = obj;
    BASE_POOL_POISON(obj, pool->stride_bytes);
}
