/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of the hash table that is not inline: see table.h.
 */
#include "servers/store/table.h"

#include "servers/store/arena.h"

#include <errno.h>

#define BUCKETS_FIRST   64u
#define BUCKETS_AT_ONCE 4u

int
table_init(struct table *table)
{
    *table = (struct table){.mask = BUCKETS_FIRST - 1};
    table->buckets = arena_large_alloc(BUCKETS_FIRST * sizeof(struct table_node *));
    return table->buckets == NULL ? -ENOMEM : 0;
}

void
table_fini(struct table *table)
{
    arena_large_free(table->buckets, (table->mask + 1) * sizeof(struct table_node *));
    if (table->old != NULL) {
        arena_large_free(table->old, (table->old_mask + 1) * sizeof(struct table_node *));
    }
    *table = (struct table){0};
}

/* Doubles the buckets; without memory for it chains grow longer and the next insertion tries again.
 */
static void
move_begin(struct table *table)
{
    const uint64_t mask = table->mask * 2 + 1;
    struct table_node **buckets = arena_large_alloc((mask + 1) * sizeof(struct table_node *));

    if (buckets == NULL) {
        return;
    }
    table->old = table->buckets;
    table->old_mask = table->mask;
    table->buckets = buckets;
    table->mask = mask;
    table->moved = 0;
}

void
table_move(struct table *table)
{
    if (table->old == NULL) {
        move_begin(table);
        if (table->old == NULL) {
            return;
        }
    }
    for (uint32_t i = 0; i < BUCKETS_AT_ONCE && table->moved <= table->old_mask; i++) {
        struct table_node *node = table->old[table->moved];

        while (node != NULL) {
            struct table_node *next = node->next;
            struct table_node **chain = &table->buckets[node->hash & table->mask];

            node->next = *chain;
            *chain = node;
            node = next;
        }
        table->moved++;
    }
    if (table->moved > table->old_mask) {
        arena_large_free(table->old, (table->old_mask + 1) * sizeof(struct table_node *));
        table->old = NULL;
    }
}
