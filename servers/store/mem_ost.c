/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The `mem` store: all objects in memory that clients can be let into.
 *
 * An object is a radix tree of *slots* of 1 MiB each. A slot's memory is one run of 2^k pages from
 * the slot's start, grown by copying, so that a small file takes a page and a large one a block per
 * slot. When such a run is not to be had, or may not be moved because a write is under way in it,
 * the slot gets a table of single pages too: no free page is lost to fragmentation, but reads get
 * more segments.
 *
 * What is zeroed when. Memory comes with its last user's bytes. A slot has two bits per page:
 *
 *   init   the page holds the object's bytes. Without it, it reads as zeros (of a shared area).
 *   clean  the page holds nothing foreign: zeros, and parts of writes under way.
 *
 * A write that covers a page wholly zeroes nothing; its commit sets init, its abort leaves it
 * unset. A page that a write covers in part is zeroed before, once, and marked clean. So an abort
 * need not know how far the client's copy came.
 *
 * Two writes at once. They may share pages that are init or clean. A page that is neither, and
 * that a write under way covers wholly, can't be shared, as it can't be zeroed any more: a second
 * write of it waits until the first ends. A punch waits for the writes and appends under way in
 * its range. Who waits stands in the object's `waiting` list, and whoever wants to write or punch
 * the same object afterwards stands behind. Overwrites go in place: readers may see them early.
 *
 * Invariants:
 *
 *   I1  in a page that is init or clean, every byte at or beyond the object's size is zero, but
 *       for the ranges of writes under way
 *   I2  object->init_pages is the number of init bits of its slots
 *   I3  slot->holds counts the maps in it; the last of them frees a slot that its object let go
 *   I4  an object that was destroyed is freed by the last op on its lists
 */
#include "servers/store/objects.h"
#include "servers/store/pages.h"
#include "servers/store/slab.h"
#include "servers/store/stores.h"

#include "base/assert.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOT_SHIFT      20u
#define SLOT_BYTES      (UINT64_C(1) << SLOT_SHIFT)
#define SLOT_PAGES      STORE_BLOCK_PAGES
#define NODE_SHIFT      6u
#define NODE_CHILDREN   (1u << NODE_SHIFT)
#define NODE_LEVELS_MAX 8u
#define BITS_WORDS      (SLOT_PAGES / 64)

static_assert(SLOT_BYTES == STORE_BLOCK_BYTES, "a slot is a block");
static_assert((OST_OBJECT_BYTES_MAX >> SLOT_SHIFT) >> (NODE_SHIFT * NODE_LEVELS_MAX) == 0,
              "the tree reaches every slot");

struct slot {
    unsigned char *base; /* the run's memory; NULL: none */
    uint32_t page;       /* the run's first page */
    uint32_t order;      /* of the run */
    uint32_t *table;     /* pages that are not in the run, by page; NULL: none */
    uint32_t holds;      /* maps in it (I3) */
    uint32_t writers;    /* of them, for writing: the memory may not move */
    bool is_let_go;
    uint64_t init[BITS_WORDS];
    uint64_t clean[BITS_WORDS];
};

struct node {
    uint32_t used; /* children that are not NULL */
    void *children[NODE_CHILDREN];
};

struct object {
    struct store_object base;
    void *root;      /* height 0: a slot, else a node; NULL: nothing */
    uint32_t height; /* of nodes above the slots */
    bool is_destroyed;
    bool is_made;            /* by create or commit: stays without bytes */
    uint64_t init_pages;     /* I2 */
    uint64_t append_end;     /* end of what appends reserved */
    uint32_t append_count;   /* append_begin without append_end */
    struct base_list active; /* ops: writes under way, appends */
    struct base_list waiting;
};

enum op_kind { OP_NONE, OP_READ, OP_WRITE, OP_APPEND, OP_PUNCH };

struct mem_store {
    struct ost_store base;
    struct store_objects objects;
    struct store_pages pages;
    struct store_slab slots, nodes, tables;
    struct base_list ready; /* ops that waited and have ended: done() is due */
    bool is_draining;
    uint32_t ost_count;
    uint64_t maps_out, waiting;
};

static_assert(offsetof(struct mem_store, base) == 0, "cast in stats_get");

static struct mem_store *
mem_of(struct ost_store *store)
{
    return BASE_CONTAINER_OF(store, struct mem_store, base);
}

/* ---- bits of pages ---- */

static bool
bit_get(const uint64_t *bits, uint32_t i)
{
    return (bits[i / 64] >> (i % 64)) & 1;
}

/* Mask of the bits [first, end) that lie in word @word. */
static uint64_t
word_mask(uint32_t word, uint32_t first, uint32_t end)
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
static uint32_t
bits_set(uint64_t *bits, uint32_t first, uint32_t end)
{
    uint32_t count = 0;

    for (uint32_t w = first / 64; w < BITS_WORDS && w * 64 < end; w++) {
        const uint64_t mask = word_mask(w, first, end);

        count += (uint32_t)__builtin_popcountll(mask & ~bits[w]);
        bits[w] |= mask;
    }
    return count;
}

/* Clears [first, end); returns how many were set. */
static uint32_t
bits_clear(uint64_t *bits, uint32_t first, uint32_t end)
{
    uint32_t count = 0;

    for (uint32_t w = first / 64; w < BITS_WORDS && w * 64 < end; w++) {
        const uint64_t mask = word_mask(w, first, end);

        count += (uint32_t)__builtin_popcountll(mask & bits[w]);
        bits[w] &= ~mask;
    }
    return count;
}

/* The first bit in [first, end) that is @value; @end if none. */
static uint32_t
bits_find(const uint64_t *bits, uint32_t first, uint32_t end, bool value)
{
    for (uint32_t w = first / 64; w < BITS_WORDS && w * 64 < end; w++) {
        const uint64_t found = (value ? bits[w] : ~bits[w]) & word_mask(w, first, end);

        if (found != 0) {
            return w * 64 + (uint32_t)__builtin_ctzll(found);
        }
    }
    return end;
}

static bool
bits_none(const uint64_t *bits)
{
    return (bits[0] | bits[1] | bits[2] | bits[3]) == 0;
}

/* ---- the tree of slots ---- */

static uint32_t
child_index(uint64_t index, uint32_t level)
{
    return (uint32_t)(index >> (NODE_SHIFT * (level - 1))) & (NODE_CHILDREN - 1);
}

static bool
is_below_height(uint64_t index, uint32_t height)
{
    return index >> (NODE_SHIFT * height) == 0;
}

static struct slot *
slot_find(const struct object *object, uint64_t index)
{
    void *at = object->root;

    if (!is_below_height(index, object->height)) {
        return NULL;
    }
    for (uint32_t level = object->height; level > 0 && at != NULL; level--) {
        at = ((struct node *)at)->children[child_index(index, level)];
    }
    return at;
}

/* The first slot at or behind *@index and at or before @last; *@index becomes its. NULL: none. */
static struct slot *
slot_next(const struct object *object, uint64_t *index, uint64_t last)
{
    while (*index <= last && is_below_height(*index, object->height) && object->root != NULL) {
        void *at = object->root;
        uint32_t level = object->height;

        while (level > 0) {
            void *child = ((struct node *)at)->children[child_index(*index, level)];

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

static struct node *
node_take(struct mem_store *mem)
{
    struct node *node = store_slab_take(&mem->nodes);

    if (node != NULL) {
        (void)memset(node, 0, sizeof(*node));
    }
    return node;
}

/* Enters a new slot without memory. NULL: the system has no memory. */
static struct slot *
slot_add(struct mem_store *mem, struct object *object, uint64_t index)
{
    struct slot *slot = store_slab_take(&mem->slots);

    if (slot == NULL) {
        return NULL;
    }
    *slot = (struct slot){0};
    while (!is_below_height(index, object->height)) {
        if (object->root != NULL) {
            struct node *node = node_take(mem);

            if (node == NULL) {
                goto fail_return_slot;
            }
            node->children[0] = object->root;
            node->used = 1;
            object->root = node;
        }
        object->height++;
    }
    void **at = &object->root;
    struct node *parent = NULL;

    for (uint32_t level = object->height; level > 0; level--) {
        if (*at == NULL) {
            *at = node_take(mem);
            if (*at == NULL) {
                goto fail_return_slot; /* the nodes above stay, empty: slot_remove() takes them */
            }
            if (parent != NULL) {
                parent->used++;
            }
        }
        parent = *at;
        at = &parent->children[child_index(index, level)];
    }
    BASE_ASSERT(*at == NULL);
    *at = slot;
    if (parent != NULL) {
        parent->used++;
    }
    return slot;

fail_return_slot:
    store_slab_return(&mem->slots, slot);
    return NULL;
}

static void
slot_free(struct mem_store *mem, struct slot *slot)
{
    BASE_ASSERT(slot->holds == 0);
    if (slot->base != NULL) {
        store_pages_return(&mem->pages, slot->page, slot->order);
    }
    if (slot->table != NULL) {
        for (uint32_t i = 0; i < SLOT_PAGES; i++) {
            if (slot->table[i] != STORE_PAGE_NONE) {
                store_pages_return(&mem->pages, slot->table[i], 0);
            }
        }
        store_slab_return(&mem->tables, slot->table);
    }
    store_slab_return(&mem->slots, slot);
}

/* Its object does not have it any more: freed now, or by the last hold (I3). */
static void
slot_let_go(struct mem_store *mem, struct slot *slot)
{
    if (slot->holds > 0) {
        slot->is_let_go = true;
    } else {
        slot_free(mem, slot);
    }
}

static void
slot_unhold(struct mem_store *mem, struct slot *slot, bool is_writer)
{
    BASE_ASSERT(slot->holds > 0);
    slot->holds--;
    if (is_writer) {
        BASE_ASSERT(slot->writers > 0);
        slot->writers--;
    }
    if (slot->holds == 0 && slot->is_let_go) {
        slot_free(mem, slot);
    }
}

/* Takes the slot at @index out of the tree, and the nodes that become empty; then lets it go. */
static void
slot_remove(struct mem_store *mem, struct object *object, uint64_t index)
{
    void **path[NODE_LEVELS_MAX + 1];
    void **at = &object->root;

    for (uint32_t level = object->height; level > 0; level--) {
        path[level] = at;
        at = &((struct node *)*at)->children[child_index(index, level)];
    }
    struct slot *slot = *at;

    *at = NULL;
    for (uint32_t level = 1; level <= object->height; level++) {
        struct node *node = *path[level];

        BASE_ASSERT(node->used > 0);
        if (--node->used > 0) {
            break;
        }
        store_slab_return(&mem->nodes, node);
        *path[level] = NULL;
    }
    if (object->root == NULL) {
        object->height = 0;
    }
    slot_let_go(mem, slot);
}

/* Puts @slot, without memory and bits, in the place of the one at @index, which is let go. */
static void
slot_replace(struct mem_store *mem, struct object *object, uint64_t index, struct slot *slot)
{
    void **at = &object->root;

    for (uint32_t level = object->height; level > 0; level--) {
        at = &((struct node *)*at)->children[child_index(index, level)];
    }
    struct slot *old = *at;

    *at = slot;
    slot_let_go(mem, old);
}

/* ---- memory of a slot ---- */

static bool
page_is_there(const struct slot *slot, uint32_t i)
{
    return (slot->base != NULL && i < 1u << slot->order) ||
           (slot->table != NULL && slot->table[i] != STORE_PAGE_NONE);
}

static unsigned char *
page_address(const struct mem_store *mem, const struct slot *slot, uint32_t i)
{
    if (slot->base != NULL && i < 1u << slot->order) {
        return slot->base + ((uint64_t)i << STORE_PAGE_SHIFT);
    }
    return store_pages_address(&mem->pages, slot->table[i]);
}

/* How many pages from @i on, below @end, lie in one piece of memory. All are there. */
static uint32_t
pages_in_piece(const struct mem_store *mem, const struct slot *slot, uint32_t i, uint32_t end)
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
    const unsigned char *first = page_address(mem, slot, i);

    while (i + count < end &&
           page_address(mem, slot, i + count) == first + ((uint64_t)count << STORE_PAGE_SHIFT)) {
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
run_take(struct mem_store *mem, struct slot *slot, uint32_t order)
{
    const uint32_t page = store_pages_take(&mem->pages, order);

    if (page == STORE_PAGE_NONE) {
        return false;
    }
    slot->base = store_pages_address(&mem->pages, page);
    slot->page = page;
    slot->order = order;
    return true;
}

/*
 * Moves the bytes of the slot at @index to a larger run in a new slot; the old goes with its last
 * reader. Returns the new slot, or NULL when there is no such run.
 */
static struct slot *
run_grow(struct mem_store *mem, struct object *object, uint64_t index, const struct slot *old,
         uint32_t order)
{
    struct slot *slot = store_slab_take(&mem->slots);

    if (slot == NULL) {
        return NULL;
    }
    *slot = (struct slot){0};
    if (!run_take(mem, slot, order)) {
        store_slab_return(&mem->slots, slot);
        return NULL;
    }
    (void)memcpy(slot->init, old->init, sizeof(slot->init));
    (void)memcpy(slot->clean, old->clean, sizeof(slot->clean));
    for (uint32_t i = 0; i < 1u << old->order; i++) {
        if (bit_get(slot->init, i) || bit_get(slot->clean, i)) {
            (void)memcpy(slot->base + ((uint64_t)i << STORE_PAGE_SHIFT),
                         old->base + ((uint64_t)i << STORE_PAGE_SHIFT), STORE_PAGE_BYTES);
        }
    }
    slot_replace(mem, object, index, slot);
    return slot;
}

/* Gives the slot single pages for [first, end). Returns the end of what is there now. */
static uint32_t
table_fill(struct mem_store *mem, struct slot *slot, uint32_t first, uint32_t end)
{
    if (slot->table == NULL) {
        slot->table = store_slab_take(&mem->tables);
        if (slot->table == NULL) {
            return first;
        }
        (void)memset(slot->table, 0xff, SLOT_PAGES * sizeof(*slot->table));
    }
    for (uint32_t i = first; i < end; i++) {
        if (page_is_there(slot, i)) {
            continue;
        }
        slot->table[i] = store_pages_take(&mem->pages, 0);
        if (slot->table[i] == STORE_PAGE_NONE) {
            return i;
        }
    }
    return end;
}

static bool
is_plenty(const struct mem_store *mem)
{
    return mem->pages.used_bytes < mem->pages.bytes_max / 2;
}

/*
 * Gives the slot at @index memory for its pages [first, end). *@slot may become another. Returns
 * the end of what is there.
 */
static uint32_t
slot_provide(struct mem_store *mem, struct object *object, uint64_t index, uint32_t first,
             uint32_t end, struct slot **slot)
{
    uint32_t order = order_of(end);

    if ((*slot)->base != NULL && end <= 1u << (*slot)->order) {
        return end;
    }
    /* A slot behind the first is of a large object: it will be filled, if the object is not sparse.
     */
    if (index > 0 && is_plenty(mem)) {
        order = STORE_ORDER_MAX;
    }
    const bool is_sparse = (end - first) * 4 <= 1u << order && !is_plenty(mem);

    if ((*slot)->table == NULL && (*slot)->writers == 0 && !is_sparse) {
        if ((*slot)->base == NULL) {
            if (run_take(mem, *slot, order)) {
                return end;
            }
        } else {
            struct slot *grown = run_grow(mem, object, index, *slot, order);

            if (grown != NULL) {
                *slot = grown;
                return end;
            }
        }
    }
    return table_fill(mem, *slot, first, end);
}

/* ---- objects ---- */

static struct object *
object_find(const struct mem_store *mem, const struct ost_object *key)
{
    struct store_object *found = store_objects_find(&mem->objects, key);

    return found != NULL ? BASE_CONTAINER_OF(found, struct object, base) : NULL;
}

static struct object *
object_get(struct mem_store *mem, const struct ost_object *key)
{
    struct object *object = object_find(mem, key);

    if (object == NULL) {
        struct store_object *made = store_objects_add(&mem->objects, key);

        if (made == NULL) {
            return NULL;
        }
        object = BASE_CONTAINER_OF(made, struct object, base);
        base_list_init(&object->active);
        base_list_init(&object->waiting);
    }
    return object;
}

static void
attr_give(const struct object *object, struct ost_attr *attr_out)
{
    *attr_out = object->base.attr;
    attr_out->blocks = object->init_pages * (STORE_PAGE_BYTES / 512);
}

static void
object_slots_remove(struct mem_store *mem, struct object *object)
{
    uint64_t index = 0;

    while (slot_next(object, &index, UINT64_MAX >> SLOT_SHIFT) != NULL) {
        slot_remove(mem, object, index++);
    }
}

/* Frees an object that is destroyed, or was never made, when nobody needs it any more (I4). */
static void
object_release(struct mem_store *mem, struct object *object)
{
    if (!base_list_empty(&object->active) || !base_list_empty(&object->waiting)) {
        return;
    }
    if (!object->is_destroyed) {
        if (object->is_made) {
            return;
        }
        object_slots_remove(mem, object);
        store_objects_remove(&mem->objects, &object->base);
    }
    store_objects_free(&mem->objects, &object->base);
}

static void
touch_times(struct object *object, int64_t now_ns)
{
    object->base.attr.mtime_ns = now_ns;
    object->base.attr.ctime_ns = now_ns;
}

/* ---- who waits for whom ---- */

static bool
ranges_meet(uint64_t a, uint64_t a_end, uint64_t b, uint64_t b_end)
{
    return a < b_end && b < a_end;
}

/* Whether a page of [first, end), numbered through the object, is not init. */
static bool
any_page_not_init(const struct object *object, uint64_t first, uint64_t end)
{
    while (first < end) {
        const struct slot *slot = slot_find(object, first / SLOT_PAGES);
        const uint32_t from = (uint32_t)(first % SLOT_PAGES);
        const uint32_t to = (uint32_t)base_min_u64(SLOT_PAGES, from + (end - first));

        if (slot == NULL || bits_find(slot->init, from, to, false) < to) {
            return true;
        }
        first += to - from;
    }
    return false;
}

/* Whether a write of [offset, end) must wait: see the head comment. */
static bool
write_must_wait(const struct object *object, uint64_t offset, uint64_t end)
{
    BASE_LIST_FOREACH(link, &object->active) {
        const struct ost_store_op *other = BASE_CONTAINER_OF(link, struct ost_store_op, link);

        if (other->kind != OP_WRITE || !ranges_meet(offset & ~(uint64_t)(STORE_PAGE_BYTES - 1),
                                                    base_align_up(end, STORE_PAGE_BYTES),
                                                    other->offset, other->offset + other->length)) {
            continue;
        }
        /* Pages that the other covers wholly and this one at least in part. */
        const uint64_t first =
            base_max_u64(offset, base_align_up(other->offset, STORE_PAGE_BYTES)) >>
            STORE_PAGE_SHIFT;
        const uint64_t last =
            base_min_u64(base_align_up(end, STORE_PAGE_BYTES), other->offset + other->length) >>
            STORE_PAGE_SHIFT;

        if (any_page_not_init(object, first, last)) {
            return true;
        }
    }
    return false;
}

static bool
punch_must_wait(const struct object *object, const struct ost_store_op *op)
{
    /* Cut or made longer, the object ends anew: whoever is at work behind the old or new end
     * counts. */
    const uint64_t start =
        op->length == UINT64_MAX ? base_min_u64(op->offset, object->base.attr.size) : op->offset;

    BASE_LIST_FOREACH(link, &object->active) {
        const struct ost_store_op *other = BASE_CONTAINER_OF(link, struct ost_store_op, link);

        if (ranges_meet(start, op->length, other->offset, other->offset + other->length)) {
            return true;
        }
    }
    return false;
}

/* ---- reading ---- */

/* Adds a segment, or lengthens the last one. False: no room. */
static bool
segment_add(struct ost_store_op *op, unsigned char *address, uint64_t length)
{
    if (op->iov_count == OST_STORE_SEGMENTS_MAX) {
        return false;
    }
    op->iov[op->iov_count++] = (struct iovec){.iov_base = address, .iov_len = length};
    return true;
}

static void
op_hold(struct ost_store_op *op, struct slot *slot, bool is_writer)
{
    BASE_ASSERT(op->held_count < OST_STORE_HOLDS_MAX);
    op->held[op->held_count++] = slot;
    slot->holds++;
    slot->writers += is_writer;
}

static void
op_unhold(struct mem_store *mem, struct ost_store_op *op, bool is_writer)
{
    for (uint32_t i = 0; i < op->held_count; i++) {
        slot_unhold(mem, op->held[i], is_writer);
    }
    op->held_count = 0;
    mem->maps_out--;
}

/* Maps [from, to) of a slot for reading. Returns the end of what was mapped. */
static uint64_t
slot_read_map(struct mem_store *mem, struct ost_store_op *op, struct slot *slot, uint64_t from,
              uint64_t to)
{
    const uint32_t end_page = (uint32_t)(base_align_up(to, STORE_PAGE_BYTES) >> STORE_PAGE_SHIFT);
    bool is_held = false;

    while (from < to) {
        const uint32_t page = (uint32_t)(from >> STORE_PAGE_SHIFT);
        const bool is_init = slot != NULL && bit_get(slot->init, page);
        unsigned char *address = mem->pages.zero;
        uint32_t piece_end = end_page;

        if (slot != NULL) {
            piece_end = bits_find(slot->init, page, end_page, !is_init);
        }
        if (is_init) {
            piece_end = page + pages_in_piece(mem, slot, page, piece_end);
            address = page_address(mem, slot, page) + (from & (STORE_PAGE_BYTES - 1));
        }
        const uint64_t piece_to = base_min_u64(to, (uint64_t)piece_end << STORE_PAGE_SHIFT);

        if (!segment_add(op, address, piece_to - from)) {
            break;
        }
        if (is_init && !is_held) {
            op_hold(op, slot, false);
            is_held = true;
        }
        from = piece_to;
    }
    return from;
}

static int
mem_read_map(struct ost_store *store, struct ost_store_op *op)
{
    struct mem_store *mem = mem_of(store);
    const struct object *object = object_find(mem, &op->object);

    op->kind = OP_READ;
    op->iov_count = 0;
    op->held_count = 0;
    op->attr = (struct ost_attr){0};
    mem->maps_out++;
    if (object == NULL) {
        op->length = 0;
        return 0;
    }
    const uint64_t size = object->base.attr.size;

    attr_give(object, &op->attr);
    if (op->offset >= size) {
        op->length = 0;
        return 0;
    }
    const uint64_t end =
        op->offset +
        base_min_u64(base_min_u64(op->length, OST_STORE_MAP_BYTES_MAX), size - op->offset);
    uint64_t at = op->offset;

    while (at < end) {
        const uint64_t base = at & ~(SLOT_BYTES - 1);
        const uint64_t want = base_min_u64(end - base, SLOT_BYTES);
        const uint64_t got =
            slot_read_map(mem, op, slot_find(object, base >> SLOT_SHIFT), at - base, want);

        at = base + got;
        if (got < want) {
            break;
        }
    }
    op->length = at - op->offset;
    return 0;
}

static void
mem_read_unmap(struct ost_store *store, struct ost_store_op *op)
{
    BASE_ASSERT(op->kind == OP_READ);
    op->kind = OP_NONE;
    op_unhold(mem_of(store), op, false);
}

/* ---- writing ---- */

/* Zeroes page @i of the slot if it holds anything foreign. */
static void
page_clean(struct mem_store *mem, struct slot *slot, uint32_t i)
{
    if (!bit_get(slot->init, i) && !bit_get(slot->clean, i)) {
        (void)memset(page_address(mem, slot, i), 0, STORE_PAGE_BYTES);
        (void)bits_set(slot->clean, i, i + 1);
    }
}

/* Maps [from, to) of the slot at @index for writing. Returns the end of what was mapped. */
static uint64_t
slot_write_map(struct mem_store *mem, struct object *object, struct ost_store_op *op,
               uint64_t index, uint64_t from, uint64_t to)
{
    const uint32_t first = (uint32_t)(from >> STORE_PAGE_SHIFT);
    const uint32_t end = (uint32_t)(base_align_up(to, STORE_PAGE_BYTES) >> STORE_PAGE_SHIFT);
    struct slot *slot = slot_find(object, index);
    uint64_t at = from;

    if (slot == NULL) {
        slot = slot_add(mem, object, index);
        if (slot == NULL) {
            return from;
        }
    }
    const uint32_t there = slot_provide(mem, object, index, first, end, &slot);

    to = base_min_u64(to, (uint64_t)there << STORE_PAGE_SHIFT);
    while (at < to) {
        const uint32_t page = (uint32_t)(at >> STORE_PAGE_SHIFT);
        const uint64_t piece_to = base_min_u64(
            to, (uint64_t)(page + pages_in_piece(mem, slot, page, there)) << STORE_PAGE_SHIFT);
        unsigned char *address = page_address(mem, slot, page) + (at & (STORE_PAGE_BYTES - 1));

        if (!segment_add(op, address, piece_to - at)) {
            break;
        }
        at = piece_to;
    }
    if (at == from) {
        if (slot->holds == 0 && bits_none(slot->init)) {
            slot_remove(mem, object, index);
        }
        return from;
    }
    if (from % STORE_PAGE_BYTES != 0) {
        page_clean(mem, slot, first);
    }
    if (at % STORE_PAGE_BYTES != 0) {
        page_clean(mem, slot, (uint32_t)(at >> STORE_PAGE_SHIFT));
    }
    op_hold(op, slot, true);
    return at;
}

/* Maps now; the caller made sure that nothing is in the way. */
static int
write_map_now(struct mem_store *mem, struct object *object, struct ost_store_op *op)
{
    const uint64_t end = op->offset + base_min_u64(op->length, OST_STORE_MAP_BYTES_MAX);
    uint64_t at = op->offset;

    op->iov_count = 0;
    op->held_count = 0;
    while (at < end) {
        const uint64_t base = at & ~(SLOT_BYTES - 1);
        const uint64_t want = base_min_u64(end - base, SLOT_BYTES);
        const uint64_t got = slot_write_map(mem, object, op, base >> SLOT_SHIFT, at - base, want);

        at = base + got;
        if (got < want) {
            break;
        }
    }
    if (at == op->offset) {
        op->kind = OP_NONE;
        return -ENOSPC;
    }
    op->length = at - op->offset;
    op->kind = OP_WRITE;
    op->held_object = object;
    base_list_append(&object->active, &op->link);
    mem->maps_out++;
    return 0;
}

/*
 * A write leaves [from, to) of its range unwritten, after the client may have copied something
 * there. Zeroes what would come to light later, but for what other writes under way claim: pages
 * that are clean, and what lies behind the object's end (I1).
 */
static void
zero_unclaimed(struct mem_store *mem, const struct object *object, uint64_t from, uint64_t to)
{
    while (from < to) {
        uint64_t next = base_min_u64(to, (from | (STORE_PAGE_BYTES - 1)) + 1);
        bool is_claimed = false;

        BASE_LIST_FOREACH(link, &object->active) {
            const struct ost_store_op *other = BASE_CONTAINER_OF(link, struct ost_store_op, link);

            if (other->kind != OP_WRITE) {
                continue;
            }
            if (other->offset <= from && from < other->offset + other->length) {
                next = other->offset + other->length;
                is_claimed = true;
                break;
            }
            if (other->offset > from) {
                next = base_min_u64(next, other->offset);
            }
        }
        if (!is_claimed) {
            const struct slot *slot = slot_find(object, from >> SLOT_SHIFT);
            const uint32_t page = (uint32_t)((from >> STORE_PAGE_SHIFT) % SLOT_PAGES);
            uint64_t zero_from = next;

            if (bit_get(slot->init, page)) {
                zero_from = base_max_u64(from, object->base.attr.size);
            } else if (bit_get(slot->clean, page)) {
                zero_from = from;
            }
            if (zero_from < next) {
                (void)memset(page_address(mem, slot, page) + zero_from % STORE_PAGE_BYTES, 0,
                             next - zero_from);
            }
        }
        from = next;
    }
}

/* Makes the first @length bytes of a write the object's. */
static void
write_take(struct mem_store *mem, struct object *object, const struct ost_store_op *op,
           uint64_t length)
{
    const uint64_t end = op->offset + length;

    for (uint64_t at = op->offset; at < end;) {
        const uint64_t base = at & ~(SLOT_BYTES - 1);
        const uint64_t to = base_min_u64(end - base, SLOT_BYTES);
        const uint32_t first = (uint32_t)((at - base) >> STORE_PAGE_SHIFT);
        const uint32_t last = (uint32_t)((to - 1) >> STORE_PAGE_SHIFT);
        struct slot *slot = slot_find(object, base >> SLOT_SHIFT);

        /* The page in which a short commit ends may have been the write's alone: zero its rest. */
        if (to % STORE_PAGE_BYTES != 0 && !bit_get(slot->init, last) &&
            !bit_get(slot->clean, last)) {
            (void)memset(page_address(mem, slot, last) + to % STORE_PAGE_BYTES, 0,
                         STORE_PAGE_BYTES - to % STORE_PAGE_BYTES);
        }
        object->init_pages += bits_set(slot->init, first, last + 1);
        at = base + to;
    }
    object->base.attr.size = base_max_u64(object->base.attr.size, end);
}

/* ---- cutting ---- */

/* Frees [from, to) of a slot. */
static void
slot_punch(struct mem_store *mem, struct object *object, uint64_t index, struct slot *slot,
           uint64_t from, uint64_t to)
{
    const uint32_t first = (uint32_t)(base_align_up(from, STORE_PAGE_BYTES) >> STORE_PAGE_SHIFT);
    const uint32_t end = (uint32_t)(to >> STORE_PAGE_SHIFT);

    if (first < end) {
        object->init_pages -= bits_clear(slot->init, first, end);
        (void)bits_clear(slot->clean, first, end);
    }
    for (uint64_t at = from; at < to;) {
        const uint32_t page = (uint32_t)(at >> STORE_PAGE_SHIFT);
        const uint64_t next = base_min_u64(to, ((uint64_t)page + 1) << STORE_PAGE_SHIFT);

        if (next - at == STORE_PAGE_BYTES) { /* whole pages: done above */
            at = base_max_u64(next, (uint64_t)end << STORE_PAGE_SHIFT);
            continue;
        }
        if (bit_get(slot->init, page) || bit_get(slot->clean, page)) {
            (void)memset(page_address(mem, slot, page) + at % STORE_PAGE_BYTES, 0, next - at);
        }
        at = next;
    }
    if (slot->writers == 0 && bits_none(slot->init)) {
        slot_remove(mem, object, index);
    }
}

static void
punch_now(struct mem_store *mem, struct object *object, struct ost_store_op *op)
{
    const uint64_t size = object->base.attr.size;
    const uint64_t end = op->length;
    uint64_t index = op->offset >> SLOT_SHIFT;
    struct slot *slot = NULL;

    /* Behind the end there is nothing to free. */
    while (op->offset < size &&
           (slot = slot_next(object, &index, (end - 1) >> SLOT_SHIFT)) != NULL) {
        const uint64_t base = index << SLOT_SHIFT;
        const uint64_t from = op->offset > base ? op->offset - base : 0;

        slot_punch(mem, object, index, slot, from, base_min_u64(end - base, SLOT_BYTES));
        index++;
    }
    if (end == UINT64_MAX) {
        object->base.attr.size = op->offset;
    }
    object->is_made = true;
    touch_times(object, op->now_ns);
    attr_give(object, &op->attr);
}

/* ---- waking ---- */

static void
ready_add(struct mem_store *mem, struct ost_store_op *op, int status)
{
    op->status = status;
    base_list_init(&op->ready_link);
    base_list_append(&mem->ready, &op->ready_link);
}

/*
 * Calls what is due. A done() may end further ops, which add to the list: the outermost call
 * empties it, so that the stack does not grow with the number of waiters.
 */
static void
ready_drain(struct mem_store *mem)
{
    if (mem->is_draining) {
        return;
    }
    mem->is_draining = true;
    while (!base_list_empty(&mem->ready)) {
        struct ost_store_op *op =
            BASE_CONTAINER_OF(base_list_first(&mem->ready), struct ost_store_op, ready_link);

        base_list_unlink(&op->ready_link);
        mem->waiting--;
        op->done(op, op->status);
    }
    mem->is_draining = false;
}

/* An op of @object ended, or @object was destroyed: tries those that wait. @object may be gone
 * then. */
static void
waiting_wake(struct mem_store *mem, struct object *object)
{
    while (BASE_UNLIKELY(!base_list_empty(&object->waiting))) {
        struct ost_store_op *op =
            BASE_CONTAINER_OF(base_list_first(&object->waiting), struct ost_store_op, link);
        const bool is_write = op->kind == OP_WRITE;
        const uint64_t end = op->offset + base_min_u64(op->length, OST_STORE_MAP_BYTES_MAX);

        if (!object->is_destroyed &&
            (is_write ? write_must_wait(object, op->offset, end) : punch_must_wait(object, op))) {
            break;
        }
        base_list_unlink(&op->link);
        op->kind = OP_NONE;
        if (object->is_destroyed) {
            ready_add(mem, op, -ENOENT);
        } else if (is_write) {
            ready_add(mem, op, write_map_now(mem, object, op));
        } else {
            punch_now(mem, object, op);
            ready_add(mem, op, 0);
        }
    }
    object_release(mem, object);
    ready_drain(mem);
}

/* ---- ends and beginnings ---- */

static int
mem_write_map(struct ost_store *store, struct ost_store_op *op)
{
    struct mem_store *mem = mem_of(store);
    struct object *object = object_get(mem, &op->object);

    BASE_ASSERT(op->length > 0);
    if (object == NULL) {
        return -ENOSPC;
    }
    base_list_init(&op->link);
    if (BASE_UNLIKELY(!base_list_empty(&object->active)) ||
        BASE_UNLIKELY(!base_list_empty(&object->waiting))) {
        const uint64_t end = op->offset + base_min_u64(op->length, OST_STORE_MAP_BYTES_MAX);

        if (!base_list_empty(&object->waiting) || write_must_wait(object, op->offset, end)) {
            op->kind = OP_WRITE;
            op->held_object = object;
            base_list_append(&object->waiting, &op->link);
            mem->waiting++;
            return -EINPROGRESS;
        }
    }
    const int rc = write_map_now(mem, object, op);

    if (rc != 0) {
        object_release(mem, object);
    }
    return rc;
}

/* Ends a write; the object takes its first @length bytes. */
static void
write_end(struct mem_store *mem, struct object *object, struct ost_store_op *op, uint64_t length)
{
    const uint64_t end = op->offset + op->length;

    BASE_ASSERT(op->kind == OP_WRITE);
    base_list_unlink(&op->link);
    op->kind = OP_NONE;
    if (!object->is_destroyed) {
        if (BASE_UNLIKELY(length < op->length)) {
            zero_unclaimed(mem, object, op->offset + length, end);
        }
        if (length > 0) {
            write_take(mem, object, op, length);
            object->is_made = true;
            touch_times(object, op->now_ns);
        }
    }
    attr_give(object, &op->attr);
    op_unhold(mem, op, true);
    if (BASE_UNLIKELY(length < op->length) && !object->is_destroyed) {
        /* Slots that only this write wanted go back. */
        for (uint64_t index = op->offset >> SLOT_SHIFT; index <= (end - 1) >> SLOT_SHIFT; index++) {
            const struct slot *slot = slot_find(object, index);

            if (slot != NULL && slot->writers == 0 && bits_none(slot->init)) {
                slot_remove(mem, object, index);
            }
        }
    }
    waiting_wake(mem, object);
}

static int
mem_write_commit(struct ost_store *store, struct ost_store_op *op, uint64_t length)
{
    struct object *object = op->held_object;
    const int rc = object->is_destroyed ? -ENOENT : 0;

    BASE_ASSERT(length <= op->length);
    write_end(mem_of(store), object, op, length);
    return rc;
}

static void
mem_write_abort(struct ost_store *store, struct ost_store_op *op)
{
    write_end(mem_of(store), op->held_object, op, 0);
}

static int
mem_append_begin(struct ost_store *store, struct ost_store_op *op)
{
    struct object *object = object_get(mem_of(store), &op->object);

    if (object == NULL) {
        return -ENOSPC;
    }
    op->offset = base_max_u64(object->base.attr.size, object->append_end);
    if (op->offset >= (uint64_t)OST_OBJECT_BYTES_MAX) {
        return -EFBIG; /* such an object is made */
    }
    op->length = base_min_u64(op->length, (uint64_t)OST_OBJECT_BYTES_MAX - op->offset);
    object->append_end = op->offset + op->length;
    object->append_count++;
    op->kind = OP_APPEND;
    op->held_object = object;
    base_list_init(&op->link);
    base_list_append(&object->active, &op->link);
    return 0;
}

static void
mem_append_end(struct ost_store *store, struct ost_store_op *op)
{
    struct object *object = op->held_object;

    BASE_ASSERT(op->kind == OP_APPEND);
    op->kind = OP_NONE;
    base_list_unlink(&op->link);
    object->append_count--;
    if (object->append_count == 0) {
        object->append_end = 0;
    } else if (object->append_end == op->offset + op->length) {
        object->append_end = op->offset;
    }
    waiting_wake(mem_of(store), object);
}

static int
mem_punch(struct ost_store *store, struct ost_store_op *op)
{
    struct mem_store *mem = mem_of(store);
    struct object *object = object_find(mem, &op->object);

    op->attr = (struct ost_attr){0};
    if (object == NULL) {
        if (op->length != UINT64_MAX || op->offset == 0) {
            return 0;
        }
        object = object_get(mem, &op->object);
        if (object == NULL) {
            return -ENOSPC;
        }
    }
    if (op->offset >= op->length) {
        attr_give(object, &op->attr);
        return 0;
    }
    if (!base_list_empty(&object->waiting) || punch_must_wait(object, op)) {
        op->kind = OP_PUNCH;
        op->held_object = object;
        base_list_init(&op->link);
        base_list_append(&object->waiting, &op->link);
        mem->waiting++;
        return -EINPROGRESS;
    }
    punch_now(mem, object, op);
    return 0;
}

/* ---- the rest ---- */

static int
mem_create(struct ost_store *store, struct ost_store_op *op)
{
    struct object *object = object_get(mem_of(store), &op->object);

    if (object == NULL) {
        return -ENOSPC;
    }
    if (!object->is_made) {
        object->is_made = true;
        object->base.attr.ctime_ns = op->now_ns;
    }
    attr_give(object, &op->attr);
    return 0;
}

static int
mem_destroy(struct ost_store *store, struct ost_store_op *op)
{
    struct mem_store *mem = mem_of(store);
    struct object *object = object_find(mem, &op->object);

    if (object == NULL) {
        return 0;
    }
    object_slots_remove(mem, object);
    store_objects_remove(&mem->objects, &object->base);
    object->is_destroyed = true;
    waiting_wake(mem, object);
    return 0;
}

static int
mem_getattr(struct ost_store *store, struct ost_store_op *op)
{
    const struct object *object = object_find(mem_of(store), &op->object);

    op->attr = (struct ost_attr){0};
    if (object != NULL) {
        attr_give(object, &op->attr);
    }
    return 0;
}

static int
mem_setattr(struct ost_store *store, struct ost_store_op *op)
{
    struct object *object = object_find(mem_of(store), &op->object);

    op->attr = (struct ost_attr){0};
    if (object != NULL) {
        object->base.attr.mtime_ns = op->times[0];
        object->base.attr.ctime_ns = op->times[1];
        attr_give(object, &op->attr);
    }
    return 0;
}

/* The first offset at or behind @offset, below @size, in a page that is init; UINT64_MAX: none. */
static uint64_t
data_find(const struct object *object, uint64_t offset, uint64_t size)
{
    uint64_t index = offset >> SLOT_SHIFT;
    const struct slot *slot = NULL;

    while ((slot = slot_next(object, &index, (size - 1) >> SLOT_SHIFT)) != NULL) {
        const uint64_t base = index << SLOT_SHIFT;
        const uint64_t from = offset > base ? offset - base : 0;
        const uint32_t page =
            bits_find(slot->init, (uint32_t)(from >> STORE_PAGE_SHIFT), SLOT_PAGES, true);

        if (page < SLOT_PAGES) {
            const uint64_t found = base + base_max_u64(from, (uint64_t)page << STORE_PAGE_SHIFT);

            return found < size ? found : UINT64_MAX;
        }
        index++;
    }
    return UINT64_MAX;
}

/* The first offset at or behind @offset in a page that is not init, at most @size. */
static uint64_t
hole_find(const struct object *object, uint64_t offset, uint64_t size)
{
    while (offset < size) {
        const struct slot *slot = slot_find(object, offset >> SLOT_SHIFT);
        const uint64_t base = offset & ~(SLOT_BYTES - 1);

        if (slot == NULL) {
            return offset;
        }
        const uint32_t page = bits_find(slot->init, (uint32_t)((offset - base) >> STORE_PAGE_SHIFT),
                                        SLOT_PAGES, false);

        offset = base_max_u64(offset, base + ((uint64_t)page << STORE_PAGE_SHIFT));
        if (page < SLOT_PAGES) {
            break;
        }
    }
    return base_min_u64(offset, size);
}

static int
mem_seek(struct ost_store *store, struct ost_store_op *op)
{
    const struct object *object = object_find(mem_of(store), &op->object);
    const uint64_t size = object != NULL ? object->base.attr.size : 0;

    if (op->whence != SEEK_DATA && op->whence != SEEK_HOLE) {
        return -EINVAL;
    }
    if (op->offset >= size) {
        return -ENXIO;
    }
    if (op->whence == SEEK_HOLE) {
        op->offset = hole_find(object, op->offset, size);
        return 0;
    }
    const uint64_t found = data_find(object, op->offset, size);

    if (found == UINT64_MAX) {
        return -ENXIO;
    }
    op->offset = found;
    return 0;
}

static void
mem_statfs(struct ost_store *store, uint32_t ost, struct ost_statfs_rep *rep_out)
{
    const struct mem_store *mem = mem_of(store);

    *rep_out = (struct ost_statfs_rep){
        .bytes = mem->pages.bytes_max / mem->ost_count,
        .bytes_free = (mem->pages.bytes_max - mem->pages.used_bytes) / mem->ost_count,
        .objects = mem->objects.ost_counts[ost],
        .objects_max = (mem->objects.count_max - mem->objects.count) / mem->ost_count +
                       mem->objects.ost_counts[ost],
    };
}

static bool
mem_idle(struct ost_store *store)
{
    struct mem_store *mem = mem_of(store);

    (void)store_slab_reserve(&mem->slots);
    (void)store_slab_reserve(&mem->nodes);
    (void)store_slab_reserve(&mem->objects.slab);
    return store_pages_idle(&mem->pages);
}

static void
mem_stats_get(const struct ost_store *store, struct ost_store_stats *stats_out)
{
    const struct mem_store *mem = (const struct mem_store *)(const void *)store;

    *stats_out = (struct ost_store_stats){
        .objects = mem->objects.count,
        .objects_max = mem->objects.count_max,
        .bytes_used = mem->pages.used_bytes,
        .bytes_max = mem->pages.bytes_max,
        .bytes_touched_free = mem->pages.touched_free_bytes,
        .maps_out = mem->maps_out,
        .waiting = mem->waiting,
    };
}

static int
mem_open(const struct ost_store_options *options, struct ost_store **store_out)
{
    if (options->ost_count == 0 || options->objects_max == 0) {
        return -EINVAL;
    }
    struct mem_store *mem = calloc(1, sizeof(*mem));

    if (mem == NULL) {
        return -ENOMEM;
    }
    int rc = store_objects_init(&mem->objects, sizeof(struct object), options->objects_max,
                                options->ost_count);

    if (rc != 0) {
        goto fail_free;
    }
    rc = store_pages_init(&mem->pages, options);
    if (rc != 0) {
        goto fail_fini_objects;
    }
    mem->base.ops = &ost_store_mem;
    mem->ost_count = options->ost_count;
    base_list_init(&mem->ready);
    store_slab_init(&mem->slots, sizeof(struct slot));
    store_slab_init(&mem->nodes, sizeof(struct node));
    store_slab_init(&mem->tables, SLOT_PAGES * sizeof(uint32_t));
    *store_out = &mem->base;
    return 0;

fail_fini_objects:
    store_objects_fini(&mem->objects);
fail_free:
    free(mem);
    return rc;
}

static void
mem_close(struct ost_store *store)
{
    struct mem_store *mem = mem_of(store);

    BASE_ASSERT(mem->maps_out == 0);
    BASE_ASSERT_SIM((store_pages_check(&mem->pages), true));
    store_pages_fini(&mem->pages);
    store_slab_fini(&mem->slots);
    store_slab_fini(&mem->nodes);
    store_slab_fini(&mem->tables);
    store_objects_fini(&mem->objects);
    free(mem);
}

const struct ost_store_ops ost_store_mem = {
    .name = "mem",
    .lends = true,
    .open = mem_open,
    .close = mem_close,
    .create = mem_create,
    .destroy = mem_destroy,
    .getattr = mem_getattr,
    .setattr = mem_setattr,
    .punch = mem_punch,
    .seek = mem_seek,
    .sync = mem_getattr, /* memory is as stable as it gets */
    .statfs = mem_statfs,
    .read_map = mem_read_map,
    .read_unmap = mem_read_unmap,
    .write_map = mem_write_map,
    .write_commit = mem_write_commit,
    .write_abort = mem_write_abort,
    .append_begin = mem_append_begin,
    .append_end = mem_append_end,
    .idle = mem_idle,
    .stats_get = mem_stats_get,
};
