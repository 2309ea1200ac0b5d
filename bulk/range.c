/* SPDX-License-Identifier: BSD-3-Clause */
/* An index of address ranges: see range.h. */
#include "bulk/range.h"

#include "base/assert.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The number of entries that start at or before @start. */
static uint32_t
range_upper(const struct bulk_range_index *index, uint64_t start)
{
    uint32_t low = 0;
    uint32_t high = index->count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (index->entries[middle].start <= start) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Restores I2 from entry @first on. */
static void
range_reach(struct bulk_range_index *index, uint32_t first)
{
    uint64_t reach = first == 0 ? 0 : index->entries[first - 1].reach;

    for (uint32_t i = first; i < index->count; i++) {
        reach = base_max_u64(reach, index->entries[i].end);
        index->entries[i].reach = reach;
    }
}

int
bulk_range_init(struct bulk_range_index *index, uint32_t capacity)
{
    capacity = base_max_u32(capacity, 1);
    index->entries = calloc(capacity, sizeof(index->entries[0]));
    if (index->entries == NULL) {
        return -ENOMEM;
    }
    index->count = 0;
    index->capacity = capacity;
    return 0;
}

void
bulk_range_fini(struct bulk_range_index *index)
{
    free(index->entries);
    *index = (struct bulk_range_index){0};
}

int
bulk_range_add(struct bulk_range_index *index, uint64_t start, uint64_t end, void *owner)
{
    const uint32_t at = range_upper(index, start);

    BASE_ASSERT(start < end);
    if (index->count == index->capacity) {
        struct bulk_range_entry *grown =
            reallocarray(index->entries, (size_t)index->capacity * 2, sizeof(index->entries[0]));

        if (grown == NULL) {
            return -ENOMEM;
        }
        index->entries = grown;
        index->capacity *= 2;
    }
    (void)memmove(&index->entries[at + 1], &index->entries[at],
                  (index->count - at) * sizeof(index->entries[0]));
    index->entries[at] = (struct bulk_range_entry){.start = start, .end = end, .owner = owner};
    index->count++;
    range_reach(index, at);
    return 0;
}

void
bulk_range_remove(struct bulk_range_index *index, uint64_t start, const void *owner)
{
    uint32_t at = range_upper(index, start);

    do {
        BASE_ASSERT(at > 0);
        at--;
        BASE_ASSERT(index->entries[at].start == start);
    } while (index->entries[at].owner != owner);

    index->count--;
    (void)memmove(&index->entries[at], &index->entries[at + 1],
                  (index->count - at) * sizeof(index->entries[0]));
    range_reach(index, at);
}

void *
bulk_range_find(const struct bulk_range_index *index, uint64_t start, uint64_t end)
{
    for (uint32_t i = range_upper(index, start); i > 0; i--) {
        const struct bulk_range_entry *entry = &index->entries[i - 1];

        if (entry->end >= end) {
            return entry->owner;
        }
        if (entry->reach < end) {
            return NULL; /* no entry before this one reaches as far either */
        }
    }
    return NULL;
}
