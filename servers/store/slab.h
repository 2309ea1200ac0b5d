/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small objects of one size, as many as are needed up to a bound: descriptors of stores.
 *
 * Memory is taken from the system in blocks of 256 KiB and kept until fini. The object returned
 * last is taken first. Not zeroed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_slab {
    size_t object_bytes;
    void *free;   /* linked through the objects' first word */
    void *blocks; /* linked through the blocks' first word */
    char *next;   /* not yet used part of the newest block */
    char *end;
    uint64_t used;  /* taken now */
    uint64_t bytes; /* of blocks */
};

/* @object_bytes at least 8; rounded up to 8. Takes no memory yet. */
void store_slab_init(struct store_slab *slab, size_t object_bytes);
/* Frees all blocks, and with them whatever is still taken. */
void store_slab_fini(struct store_slab *slab);
/* Takes an object; NULL: the system has no memory. */
void *store_slab_take(struct store_slab *slab);
/* Gives one back. */
void store_slab_return(struct store_slab *slab, void *object);
/* Makes sure that the next take needs no system call. False: no memory. */
bool store_slab_reserve(struct store_slab *slab);
