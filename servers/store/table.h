/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An intrusive hash table with chaining, that grows a few buckets at a time.
 *
 * Objects embed a node; the caller hashes (seeded: names come from strangers) and compares. Growth
 * doubles the buckets and moves the old ones over with the following insertions and removals, so no
 * call costs more than a few buckets however large the table is. While it lasts, buckets of the old
 * array below `moved` are in the new one: each lookup still looks at one chain.
 *
 * Invariants:
 *
 *   I1  old == NULL, or moved <= old_mask and mask == 2 * old_mask + 1
 *   I2  a move is over before the next one is due (four buckets for each insertion)
 */
#pragma once

#include "base/assert.h"

#include <stdbool.h>
#include <stdint.h>

struct table_node {
    struct table_node *next;
    uint64_t hash;
};

struct table {
    struct table_node **buckets;
    struct table_node **old; /* NULL: no move under way */
    uint64_t mask, old_mask;
    uint64_t moved; /* old buckets below this are empty */
    uint64_t count;
};

/* Makes an empty table. Errors: -ENOMEM. */
int table_init(struct table *table);

/* Frees the buckets, not what is in them. */
void table_fini(struct table *table);

/* The slow part of insertion and removal: begins or goes on with a move. */
void table_move(struct table *table);

/* The chain that holds @hash. */
static inline struct table_node **
table_chain(const struct table *table, uint64_t hash)
{
    if (BASE_UNLIKELY(table->old != NULL) && (hash & table->old_mask) >= table->moved) {
        return &table->old[hash & table->old_mask];
    }
    return &table->buckets[hash & table->mask];
}

/* Puts @node in under @hash. The caller knows that the key is not there. */
static inline void
table_insert(struct table *table, struct table_node *node, uint64_t hash)
{
    if (BASE_UNLIKELY(table->old != NULL || table->count > table->mask)) {
        table_move(table);
    }
    struct table_node **chain = table_chain(table, hash);

    node->hash = hash;
    node->next = *chain;
    *chain = node;
    table->count++;
}

/* Takes @node out; it must be in. */
static inline void
table_remove(struct table *table, struct table_node *node)
{
    struct table_node **link = table_chain(table, node->hash);

    while (*link != node) {
        BASE_ASSERT(*link != NULL);
        link = &(*link)->next;
    }
    *link = node->next;
    table->count--;
}

/* NOLINTBEGIN(bugprone-macro-parentheses): a declaration has none */
/* Visits the nodes of one chain whose hash is @hash_; the body compares the keys. */
#define TABLE_FOREACH_OF(node_, table_, hash_)                                  \
    for (struct table_node *node_ = *table_chain(table_, hash_); node_ != NULL; \
         node_ = node_->next)                                                   \
        if (node_->hash == (hash_))
/* NOLINTEND(bugprone-macro-parentheses) */
