/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for the many small objects of a store: size classes with free lists, fed by chunks.
 *
 * Taking and giving back are O(1) and touch nothing but the object. Chunks grow from 16 KiB to 2
 * MiB (huge pages if the system has them), so that an empty store is small and a large one takes
 * few page faults. Memory that was given back stays with its class until the arena ends. Whoever
 * gives an object back names its size: there are no headers.
 *
 * Invariant:
 *
 *   I1  the chunks' bytes never exceed bytes_max
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARENA_CLASSES   12u
#define ARENA_BYTES_MAX 8192u /* of one object */

struct arena_class {
    void *free;  /* a list through the objects' first words */
    char *fresh; /* the rest of the newest chunk */
    char *fresh_end;
    uint64_t used_count;
};

struct arena {
    struct arena_class classes[ARENA_CLASSES];
    void **chunks;
    uint64_t *chunk_bytes;
    uint32_t chunk_count, chunk_max;
    uint64_t next_bytes[ARENA_CLASSES]; /* of each class's next chunk */
    uint64_t bytes;                     /* of all chunks */
    uint64_t bytes_max;
    uint64_t used_bytes; /* in objects that are out */
};

/* Makes an empty arena that takes at most @bytes_max from the system; 0: no bound. */
void arena_init(struct arena *arena, uint64_t bytes_max);

/* Gives everything back to the system, objects that are out included. */
void arena_fini(struct arena *arena);

/*
 * Takes an object of @bytes (1 to ARENA_BYTES_MAX), 64-byte aligned, not zeroed.
 * Return: NULL when bytes_max or the system's memory is reached.
 */
void *arena_take(struct arena *arena, uint32_t bytes);

/* Gives back what arena_take() gave for the same @bytes. */
void arena_return(struct arena *arena, void *object, uint32_t bytes);

/* Zeroed memory of any size; from 2 MiB on in huge pages if there are any. NULL: none left. */
void *arena_large_alloc(uint64_t bytes);

/* Ends memory of arena_large_alloc() of the same size. NULL does nothing. */
void arena_large_free(void *memory, uint64_t bytes);
