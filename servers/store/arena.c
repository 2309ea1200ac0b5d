/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arena: see arena.h. Objects that are free are poisoned under AddressSanitizer.
 */
#include "servers/store/arena.h"

#include "base/assert.h"
#include "base/pool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES        (UINT64_C(2) << 20)
#define CHUNK_BYTES_FIRST UINT64_C(16384)

static const uint32_t class_bytes[ARENA_CLASSES] = {64,  128, 192,  256,  320,  384,
                                                    512, 768, 1024, 2048, 4096, 8192};

/* The smallest class for a size, by 64-byte steps up to 512, then by search. */
static uint32_t
class_of(uint32_t bytes)
{
    static const uint8_t small[] = {0, 0, 1, 2, 3, 4, 5, 6, 6};

    BASE_ASSERT(bytes > 0 && bytes <= ARENA_BYTES_MAX);
    if (BASE_LIKELY(bytes <= 512)) {
        return small[(bytes + 63) / 64];
    }
    uint32_t index = 7;

    while (class_bytes[index] < bytes) {
        index++;
    }
    return index;
}

void *
arena_large_alloc(uint64_t bytes)
{
    if (bytes < HUGE_BYTES) {
        void *memory = aligned_alloc(64, base_align_up(bytes, 64));

        if (memory != NULL) {
            (void)memset(memory, 0, bytes);
        }
        return memory;
    }
    const uint64_t whole = base_align_up(bytes, HUGE_BYTES);
    /* One huge page more, so that an aligned part can be cut out. */
    char *map =
        mmap(NULL, whole + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (map == MAP_FAILED) {
        return NULL;
    }
    char *start = map + (HUGE_BYTES - (uintptr_t)map % HUGE_BYTES) % HUGE_BYTES;

    if (start > map) {
        (void)munmap(map, (size_t)(start - map));
    }
    if (start - map < (ptrdiff_t)HUGE_BYTES) {
        (void)munmap(start + whole, HUGE_BYTES - (size_t)(start - map));
    }
    (void)madvise(start, whole, MADV_HUGEPAGE);
    return start;
}

void
arena_large_free(void *memory, uint64_t bytes)
{
    if (memory == NULL) {
        return;
    }
    if (bytes < HUGE_BYTES) {
        free(memory);
    } else {
        (void)munmap(memory, base_align_up(bytes, HUGE_BYTES));
    }
}

void
arena_init(struct arena *arena, uint64_t bytes_max)
{
    *arena = (struct arena){.bytes_max = bytes_max == 0 ? UINT64_MAX : bytes_max};
    for (uint32_t i = 0; i < ARENA_CLASSES; i++) {
        arena->next_bytes[i] = CHUNK_BYTES_FIRST;
    }
}

void
arena_fini(struct arena *arena)
{
    for (uint32_t i = 0; i < arena->chunk_count; i++) {
        BASE_POOL_UNPOISON(arena->chunks[i], arena->chunk_bytes[i]);
        arena_large_free(arena->chunks[i], arena->chunk_bytes[i]);
    }
    free(arena->chunks);
    free(arena->chunk_bytes);
    *arena = (struct arena){0};
}

/* Makes room to note one more chunk. */
static bool
chunks_reserve(struct arena *arena)
{
    if (arena->chunk_count < arena->chunk_max) {
        return true;
    }
    const uint32_t max = arena->chunk_max == 0 ? 64 : arena->chunk_max * 2;
    void **chunks = realloc(arena->chunks, max * sizeof(*chunks));

    if (chunks == NULL) {
        return false;
    }
    arena->chunks = chunks;
    uint64_t *bytes = realloc(arena->chunk_bytes, max * sizeof(*bytes));

    if (bytes == NULL) {
        return false;
    }
    arena->chunk_bytes = bytes;
    arena->chunk_max = max;
    return true;
}

/* Gives a class that has nothing left a new chunk. */
static bool
class_grow(struct arena *arena, uint32_t index)
{
    uint64_t bytes = arena->next_bytes[index];

    if (bytes > arena->bytes_max - arena->bytes) {
        bytes = arena->bytes_max - arena->bytes;
        bytes -= bytes % 4096;
    }
    if (bytes < class_bytes[index] || !chunks_reserve(arena)) {
        return false;
    }
    char *chunk = arena_large_alloc(bytes);

    if (chunk == NULL) {
        return false;
    }
    arena->chunks[arena->chunk_count] = chunk;
    arena->chunk_bytes[arena->chunk_count] = bytes;
    arena->chunk_count++;
    arena->bytes += bytes;
    BASE_ASSERT(arena->bytes <= arena->bytes_max); /* I1 */
    arena->next_bytes[index] = base_min_u64(arena->next_bytes[index] * 2, HUGE_BYTES);
    arena->classes[index].fresh = chunk;
    arena->classes[index].fresh_end = chunk + bytes - bytes % class_bytes[index];
    BASE_POOL_POISON(chunk, bytes);
    return true;
}

void *
arena_take(struct arena *arena, uint32_t bytes)
{
    const uint32_t index = class_of(bytes);
    struct arena_class *class = &arena->classes[index];
    void *object = class->free;

    if (BASE_LIKELY(object != NULL)) {
        BASE_POOL_UNPOISON(object, class_bytes[index]);
        (void)memcpy(&class->free, object, sizeof(void *));
    } else {
        if (BASE_UNLIKELY(class->fresh == class->fresh_end) && !class_grow(arena, index)) {
            return NULL;
        }
        object = class->fresh;
        class->fresh += class_bytes[index];
        BASE_POOL_UNPOISON(object, class_bytes[index]);
    }
    class->used_count++;
    arena->used_bytes += class_bytes[index];
    return object;
}

void
arena_return(struct arena *arena, void *object, uint32_t bytes)
{
    const uint32_t index = class_of(bytes);
    struct arena_class *class = &arena->classes[index];

    BASE_ASSERT(class->used_count > 0);
    class->used_count--;
    arena->used_bytes -= class_bytes[index];
    (void)memcpy(object, &class->free, sizeof(void *));
    class->free = object;
    BASE_POOL_POISON(object, class_bytes[index]);
}
