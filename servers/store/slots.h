/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory of one object of the `mem` store: a radix tree of slots of 1 MiB, and their pages.
 *
 * A slot's memory is one run of 2^k pages from the slot's start, grown by copying, so that a small
 * object takes a page and a large one a block per slot. When such a run is not to be had, or may
 * not be moved because a write is under way in it, the slot gets a table of single pages too: no
 * free page is lost to fragmentation, but reads get more segments.
 *
 * Slots keep two bits per page, whose meaning is mem_ost.c's: what is set in either is copied when
 * a run grows.
 *
 * Invariants:
 *
 *   I1  slot->holds counts who needs its memory; the last of them frees a slot that is let go
 *   I2  a node of the tree has a child, but for what a failed slot_add() left
 */
#pragma once

#include "servers/store/arena.h"
#include "servers/store/pages.h"

#include <stdbool.h>

#define SLOT_SHIFT 20u
#define SLOT_BYTES (UINT64_C(1) << SLOT_SHIFT)
#define SLOT_PAGES STORE_BLOCK_PAGES
#define SLOT_WORDS (SLOT_PAGES / 64)
#define SLOT_LAST  (UINT64_MAX >> SLOT_SHIFT) /* index of the last slot that an offset can name */

#define NODE_SHIFT    6u
#define NODE_CHILDREN (1u << NODE_SHIFT)

static_assert(SLOT_BYTES == STORE_BLOCK_BYTES, "a slot is a block");

struct slot {
    unsigned char *base; /* the run's memory; NULL: none */
    uint32_t page;       /* the run's first page */
    uint32_t order;      /* of the run */
    uint32_t *table;     /* pages that are not in the run, by page; NULL: none */
    uint32_t holds;      /* I1 */
    uint32_t writers;    /* of them, for writing: the memory may not move */
    bool is_let_go;      /* by its tree */
    uint64_t init[SLOT_WORDS];
    uint64_t clean[SLOT_WORDS];
};

struct slot_node {
    void *children[NODE_CHILDREN];
};

/* All zero: empty. */
struct slot_tree {
    void *root;      /* height 0: a slot, else a node; NULL: nothing */
    uint32_t height; /* of nodes above the slots */
};

/* What all trees of a store are made from. */
struct slot_pool {
    struct store_pages pages;
    struct arena arena;
};

/* ---- bits of pages ---- */

/* Whether bit @i is set. */
static inline bool
bits_get(const uint64_t *bits, uint32_t i)
{
    return (bits[i / 64] >> (i % 64)) & 1;
}

/* Mask of the bits [first, end) that lie in word @word. */
static inline uint64_t
bits_mask(uint32_t word, uint32_t first, uint32_t end)
{
    const uint32_t low = word * 64;
    const uint32_t from = first > low ? first - low : 0;
    const uint32_t to = end < low + 64 ? (end > low ? end - low : 0) : 64;

    if (from >= to) {
        return 0;
    }
    return (to - from == 64 ? UINT64_MAX : (UINT64_C(1) << (to - from)) - 1) << from;
}

/* Sets [first, end); returns how many were not set. */
static inline uint32_t
bits_set(uint64_t *bits, uint32_t first, uint32_t end)
{
    uint32_t count = 0;

    for (uint32_t w = first / 64; w < SLOT_WORDS && w * 64 < end; w++) {
        const uint64_t mask = bits_mask(w, first, end);

        count += (uint32_t)__builtin_popcountll(mask & ~bits[w]);
        bits[w] |= mask;
    }
    return count;
}

/* Clears [first, end); returns how many were set. */
static inline uint32_t
bits_clear(uint64_t *bits, uint32_t first, uint32_t end)
{
    uint32_t count = 0;

    for (uint32_t w = first / 64; w < SLOT_WORDS && w * 64 < end; w++) {
        const uint64_t mask = bits_mask(w, first, end);

        count += (uint32_t)__builtin_popcountll(mask & bits[w]);
        bits[w] &= ~mask;
    }
    return count;
}

/* The first bit in [first, end) that is @value; @end if none. */
static inline uint32_t
bits_find(const uint64_t *bits, uint32_t first, uint32_t end, bool value)
{
    for (uint32_t w = first / 64; w < SLOT_WORDS && w * 64 < end; w++) {
        const uint64_t found = (value ? bits[w] : ~bits[w]) & bits_mask(w, first, end);

        if (found != 0) {
            return w * 64 + (uint32_t)__builtin_ctzll(found);
        }
    }
    return end;
}

/* Whether no bit is set. */
static inline bool
bits_none(const uint64_t *bits)
{
    return (bits[0] | bits[1] | bits[2] | bits[3]) == 0;
}

/* ---- the tree ---- */

/* Which child of a node at @level leads to slot @index. */
static inline uint32_t
slot_child(uint64_t index, uint32_t level)
{
    return (uint32_t)(index >> (NODE_SHIFT * (level - 1))) & (NODE_CHILDREN - 1);
}

/* The slot at @index, or NULL. */
static inline struct slot *
slot_find(const struct slot_tree *tree, uint64_t index)
{
    void *at = tree->root;

    if (index >> (NODE_SHIFT * tree->height) != 0) {
        return NULL;
    }
    for (uint32_t level = tree->height; level > 0 && at != NULL; level--) {
        at = ((struct slot_node *)at)->children[slot_child(index, level)];
    }
    return at;
}

/* The first slot at or behind *@index and at or before @last; *@index becomes its. NULL: none. */
struct slot *slot_next(const struct slot_tree *tree, uint64_t *index, uint64_t last);
/* Enters a new slot without memory at @index, where none is. NULL: the system has no memory. */
struct slot *slot_add(struct slot_pool *pool, struct slot_tree *tree, uint64_t index);
/* Takes the slot at @index out of the tree and lets it go: it is freed now or by its last hold. */
void slot_remove(struct slot_pool *pool, struct slot_tree *tree, uint64_t index);
/* Empties the tree. */
void slot_remove_all(struct slot_pool *pool, struct slot_tree *tree);
/* Ends a hold. */
void slot_unhold(struct slot_pool *pool, struct slot *slot, bool is_writer);

/* ---- memory ---- */

/*
 * Gives the slot at @index memory for its pages [first, end). *@slot may become another, if nobody
 * writes to it. Returns the end of what is there: below @end when memory is used up.
 */
uint32_t slot_provide(struct slot_pool *pool, struct slot_tree *tree, uint64_t index,
                      uint32_t first, uint32_t end, struct slot **slot);

/* Where page @i is; it has memory. */
static inline unsigned char *
slot_address(const struct slot_pool *pool, const struct slot *slot, uint32_t i)
{
    if (slot->base != NULL && i < 1u << slot->order) {
        return slot->base + ((uint64_t)i << STORE_PAGE_SHIFT);
    }
    return store_pages_address(&pool->pages, slot->table[i]);
}

/* How many pages from @i on, below @end, lie in one piece of memory. All have memory. */
uint32_t slot_piece(const struct slot_pool *pool, const struct slot *slot, uint32_t i,
                    uint32_t end);
