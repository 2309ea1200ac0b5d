/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slots and their trees: see slots.h.
 */
#include "servers/store/slots.h"

#include "base/assert.h"

#include <string.h>

#define LEVELS_MAX  8u
#define TABLE_BYTES (SLOT_PAGES * (uint32_t)sizeof(uint32_t))

static_assert((OST_OBJECT_BYTES_MAX >> SLOT_SHIFT) >> (NODE_SHIFT * LEVELS_MAX) == 0,
              "the tree reaches every slot of an object");

/* ---- the tree ---- */

struct slot *
slot_next(const struct slot_tree *tree, uint64_t *index, uint64_t last)
{
    while (*index <= last && *index >> (NODE_SHIFT * tree->height) == 0 && tree->root != NULL) {
        void *at = tree->root;
        uint32_t level = tree->height;

        while (level > 0) {
            void *child = ((struct slot_node *)at)->children[slot_child(*index, level)];

            if (child == NULL) {
                break;
            }
            at = child;
            level--;
        }
        if (level == 0) {
            return at;
        }
        /* Nothing below this child: on to the next one of its level. */
        *index = ((*index >> (NODE_SHIFT * (level - 1))) + 1) << (NODE_SHIFT * (level - 1));
    }
    return NULL;
}

static struct slot_node *
node_take(struct slot_pool *pool)
{
    struct slot_node *node = arena_take(&pool->arena, sizeof(*node));

    if (node != NULL) {
        (void)memset(node, 0, sizeof(*node));
    }
    return node;
}

struct slot *
slot_add(struct slot_pool *pool, struct slot_tree *tree, uint64_t index)
{
    struct slot *slot = arena_take(&pool->arena, sizeof(struct slot));

    if (slot == NULL) {
        return NULL;
    }
    *slot = (struct slot){0};
    while (index >> (NODE_SHIFT * tree->height) != 0) {
        if (tree->root != NULL) {
            struct slot_node *node = node_take(pool);

            if (node == NULL) {
                goto fail_return_slot;
            }
            node->children[0] = tree->root;
            tree->root = node;
        }
        tree->height++;
    }
    void **at = &tree->root;

    for (uint32_t level = tree->height; level > 0; level--) {
        if (*at == NULL) {
            *at = node_take(pool);
            if (*at == NULL) {
                goto fail_return_slot; /* the nodes above stay, empty: slot_remove() takes them */
            }
        }
        at = &((struct slot_node *)*at)->children[slot_child(index, level)];
    }
    BASE_ASSERT(*at == NULL);
    *at = slot;
    return slot;

fail_return_slot:
    arena_return(&pool->arena, slot, sizeof(*slot));
    return NULL;
}

static void
slot_free(struct slot_pool *pool, struct slot *slot)
{
    BASE_ASSERT(slot->holds == 0);
    if (slot->base != NULL) {
        store_pages_return(&pool->pages, slot->page, slot->order);
    }
    if (slot->table != NULL) {
        for (uint32_t i = 0; i < SLOT_PAGES; i++) {
            if (slot->table[i] != STORE_PAGE_NONE) {
                store_pages_return(&pool->pages, slot->table[i], 0);
            }
        }
        arena_return(&pool->arena, slot->table, TABLE_BYTES);
    }
    arena_return(&pool->arena, slot, sizeof(*slot));
}

/* Its tree does not have it any more: freed now, or by the last hold (I1). */
static void
slot_let_go(struct slot_pool *pool, struct slot *slot)
{
    if (slot->holds > 0) {
        slot->is_let_go = true;
    } else {
        slot_free(pool, slot);
    }
}

void
slot_unhold(struct slot_pool *pool, struct slot *slot, bool is_writer)
{
    BASE_ASSERT(slot->holds > 0);
    slot->holds--;
    if (is_writer) {
        BASE_ASSERT(slot->writers > 0);
        slot->writers--;
    }
    if (slot->holds == 0 && slot->is_let_go) {
        slot_free(pool, slot);
    }
}

static bool
node_is_empty(const struct slot_node *node)
{
    for (uint32_t i = 0; i < NODE_CHILDREN; i++) {
        if (node->children[i] != NULL) {
            return false;
        }
    }
    return true;
}

void
slot_remove(struct slot_pool *pool, struct slot_tree *tree, uint64_t index)
{
    void **path[LEVELS_MAX + 1];
    void **at = &tree->root;

    for (uint32_t level = tree->height; level > 0; level--) {
        path[level] = at;
        at = &((struct slot_node *)*at)->children[slot_child(index, level)];
    }
    struct slot *slot = *at;

    *at = NULL;
    for (uint32_t level = 1; level <= tree->height; level++) {
        struct slot_node *node = *path[level];

        if (!node_is_empty(node)) {
            break;
        }
        arena_return(&pool->arena, node, sizeof(*node));
        *path[level] = NULL;
    }
    if (tree->root == NULL) {
        tree->height = 0;
    }
    slot_let_go(pool, slot);
}

void
slot_remove_all(struct slot_pool *pool, struct slot_tree *tree)
{
    uint64_t index = 0;

    while (slot_next(tree, &index, SLOT_LAST) != NULL) {
        slot_remove(pool, tree, index++);
    }
}

/* Puts @slot in the place of the one at @index, which is let go. */
static void
slot_replace(struct slot_pool *pool, struct slot_tree *tree, uint64_t index, struct slot *slot)
{
    void **at = &tree->root;

    for (uint32_t level = tree->height; level > 0; level--) {
        at = &((struct slot_node *)*at)->children[slot_child(index, level)];
    }
    struct slot *old = *at;

    *at = slot;
    slot_let_go(pool, old);
}

/* ---- memory ---- */

static bool
page_is_there(const struct slot *slot, uint32_t i)
{
    return (slot->base != NULL && i < 1u << slot->order) ||
           (slot->table != NULL && slot->table[i] != STORE_PAGE_NONE);
}

uint32_t
slot_piece(const struct slot_pool *pool, const struct slot *slot, uint32_t i, uint32_t end)
{
    uint32_t count = 0;

    if (slot->base != NULL && i < 1u << slot->order) {
        count = base_min_u32(end, 1u << slot->order) - i;
        if (BASE_LIKELY(i + count == end)) {
            return count;
        }
    } else {
        count = 1;
    }
    const unsigned char *first = slot_address(pool, slot, i);

    while (i + count < end &&
           slot_address(pool, slot, i + count) == first + ((uint64_t)count << STORE_PAGE_SHIFT)) {
        count++;
    }
    return count;
}

static uint32_t
order_of(uint32_t page_count)
{
    return page_count <= 1 ? 0 : 32u - (uint32_t)__builtin_clz(page_count - 1);
}

/* Gives @slot, which has none, a run of memory. False: there is none of that size. */
static bool
run_take(struct slot_pool *pool, struct slot *slot, uint32_t order)
{
    const uint32_t page = store_pages_take(&pool->pages, order);

    if (page == STORE_PAGE_NONE) {
        return false;
    }
    slot->base = store_pages_address(&pool->pages, page);
    slot->page = page;
    slot->order = order;
    return true;
}

/*
 * Moves the bytes of the slot at @index to a larger run in a new slot; the old goes with its last
 * reader. Returns the new slot, or NULL when there is no such run.
 */
static struct slot *
run_grow(struct slot_pool *pool, struct slot_tree *tree, uint64_t index, const struct slot *old,
         uint32_t order)
{
    struct slot *slot = arena_take(&pool->arena, sizeof(struct slot));

    if (slot == NULL) {
        return NULL;
    }
    *slot = (struct slot){0};
    if (!run_take(pool, slot, order)) {
        arena_return(&pool->arena, slot, sizeof(*slot));
        return NULL;
    }
    (void)memcpy(slot->init, old->init, sizeof(slot->init));
    (void)memcpy(slot->clean, old->clean, sizeof(slot->clean));
    for (uint32_t i = 0; i < 1u << old->order; i++) {
        if (bits_get(slot->init, i) || bits_get(slot->clean, i)) {
            (void)memcpy(slot->base + ((uint64_t)i << STORE_PAGE_SHIFT),
                         old->base + ((uint64_t)i << STORE_PAGE_SHIFT), STORE_PAGE_BYTES);
        }
    }
    slot_replace(pool, tree, index, slot);
    return slot;
}

/* Gives the slot single pages for [first, end). Returns the end of what is there now. */
static uint32_t
table_fill(struct slot_pool *pool, struct slot *slot, uint32_t first, uint32_t end)
{
    if (slot->table == NULL) {
        slot->table = arena_take(&pool->arena, TABLE_BYTES);
        if (slot->table == NULL) {
            return first;
        }
        (void)memset(slot->table, 0xff, TABLE_BYTES);
    }
    for (uint32_t i = first; i < end; i++) {
        if (page_is_there(slot, i)) {
            continue;
        }
        slot->table[i] = store_pages_take(&pool->pages, 0);
        if (slot->table[i] == STORE_PAGE_NONE) {
            return i;
        }
    }
    return end;
}

static bool
is_plenty(const struct slot_pool *pool)
{
    return pool->pages.used_bytes < pool->pages.bytes_max / 2;
}

uint32_t
slot_provide(struct slot_pool *pool, struct slot_tree *tree, uint64_t index, uint32_t first,
             uint32_t end, struct slot **slot)
{
    uint32_t order = order_of(end);

    if ((*slot)->base != NULL && end <= 1u << (*slot)->order) {
        return end;
    }
    /* A slot behind the first is of a large object: it will be filled, if the object is not sparse.
     */
    if (index > 0 && is_plenty(pool)) {
        order = STORE_ORDER_MAX;
    }
    const bool is_sparse = (end - first) * 4 <= 1u << order && !is_plenty(pool);

    if ((*slot)->table == NULL && (*slot)->writers == 0 && !is_sparse) {
        if ((*slot)->base == NULL) {
            if (run_take(pool, *slot, order)) {
                return end;
            }
        } else {
            struct slot *grown = run_grow(pool, tree, index, *slot, order);

            if (grown != NULL) {
                *slot = grown;
                return end;
            }
        }
    }
    return table_fill(pool, *slot, first, end);
}
