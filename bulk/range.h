/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An index of address ranges, which may overlap: finds one that contains a given range.
 *
 * Entries lie in an array by their start. `reach` is the largest end of an entry and all those
 * before it, so a search that walks back from the last possible start knows when to give up.
 *
 *   I1  entries[i].start <= entries[i + 1].start
 *   I2  entries[i].reach == max(entries[0..i].end)
 */
#pragma once

#include <stdint.h>

struct bulk_range_entry {
    uint64_t start;
    uint64_t end; /* one behind the last byte */
    uint64_t reach;
    void *owner;
};

struct bulk_range_index {
    struct bulk_range_entry *entries;
    uint32_t count;
    uint32_t capacity;
};

/* Makes an empty index. bulk_range_add() allocates when there are more than @capacity. -ENOMEM. */
int bulk_range_init(struct bulk_range_index *index, uint32_t capacity);

/* Frees the entries. */
void bulk_range_fini(struct bulk_range_index *index);

/* Adds [start, end) for @owner. Errors: -ENOMEM. */
int bulk_range_add(struct bulk_range_index *index, uint64_t start, uint64_t end, void *owner);

/* Takes out the entry of @owner, which starts at @start and is there. */
void bulk_range_remove(struct bulk_range_index *index, uint64_t start, const void *owner);

/* The owner of an entry that contains [start, end), or NULL. */
void *bulk_range_find(const struct bulk_range_index *index, uint64_t start, uint64_t end);
