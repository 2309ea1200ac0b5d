/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The `mem` store: all objects in memory that clients can be let into.
 *
 * An object is a tree of slots of 1 MiB (slots.h); this file is about which bytes may be seen.
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
 *   I3  an object that was destroyed is freed by the last op on its lists
 */
#include "servers/store/objects.h"
#include "servers/store/slots.h"
#include "servers/store/stores.h"

#include "base/assert.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct object {
    struct store_object base;
    struct slot_tree slots;
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
    struct slot_pool pool;
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

/* Frees an object that is destroyed, or was never made, when nobody needs it any more (I3). */
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
        slot_remove_all(&mem->pool, &object->slots);
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
        const struct slot *slot = slot_find(&object->slots, first / SLOT_PAGES);
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
        slot_unhold(&mem->pool, op->held[i], is_writer);
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
        const bool is_init = slot != NULL && bits_get(slot->init, page);
        unsigned char *address = mem->pool.pages.zero;
        uint32_t piece_end = end_page;

        if (slot != NULL) {
            piece_end = bits_find(slot->init, page, end_page, !is_init);
        }
        if (is_init) {
            piece_end = page + slot_piece(&mem->pool, slot, page, piece_end);
            address = slot_address(&mem->pool, slot, page) + (from & (STORE_PAGE_BYTES - 1));
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
            slot_read_map(mem, op, slot_find(&object->slots, base >> SLOT_SHIFT), at - base, want);

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
    if (!bits_get(slot->init, i) && !bits_get(slot->clean, i)) {
        (void)memset(slot_address(&mem->pool, slot, i), 0, STORE_PAGE_BYTES);
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
    struct slot *slot = slot_find(&object->slots, index);
    uint64_t at = from;

    if (slot == NULL) {
        slot = slot_add(&mem->pool, &object->slots, index);
        if (slot == NULL) {
            return from;
        }
    }
    const uint32_t there = slot_provide(&mem->pool, &object->slots, index, first, end, &slot);

    to = base_min_u64(to, (uint64_t)there << STORE_PAGE_SHIFT);
    while (at < to) {
        const uint32_t page = (uint32_t)(at >> STORE_PAGE_SHIFT);
        const uint64_t piece_to = base_min_u64(
            to, (uint64_t)(page + slot_piece(&mem->pool, slot, page, there)) << STORE_PAGE_SHIFT);
        unsigned char *address =
            slot_address(&mem->pool, slot, page) + (at & (STORE_PAGE_BYTES - 1));

        if (!segment_add(op, address, piece_to - at)) {
            break;
        }
        at = piece_to;
    }
    if (at == from) {
        if (slot->holds == 0 && bits_none(slot->init)) {
            slot_remove(&mem->pool, &object->slots, index);
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
            const struct slot *slot = slot_find(&object->slots, from >> SLOT_SHIFT);
            const uint32_t page = (uint32_t)((from >> STORE_PAGE_SHIFT) % SLOT_PAGES);
            uint64_t zero_from = next;

            if (bits_get(slot->init, page)) {
                zero_from = base_max_u64(from, object->base.attr.size);
            } else if (bits_get(slot->clean, page)) {
                zero_from = from;
            }
            if (zero_from < next) {
                (void)memset(slot_address(&mem->pool, slot, page) + zero_from % STORE_PAGE_BYTES, 0,
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
        struct slot *slot = slot_find(&object->slots, base >> SLOT_SHIFT);

        /* The page in which a short commit ends may have been the write's alone: zero its rest. */
        if (to % STORE_PAGE_BYTES != 0 && !bits_get(slot->init, last) &&
            !bits_get(slot->clean, last)) {
            (void)memset(slot_address(&mem->pool, slot, last) + to % STORE_PAGE_BYTES, 0,
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
        if (bits_get(slot->init, page) || bits_get(slot->clean, page)) {
            (void)memset(slot_address(&mem->pool, slot, page) + at % STORE_PAGE_BYTES, 0,
                         next - at);
        }
        at = next;
    }
    if (slot->writers == 0 && bits_none(slot->init)) {
        slot_remove(&mem->pool, &object->slots, index);
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
           (slot = slot_next(&object->slots, &index, (end - 1) >> SLOT_SHIFT)) != NULL) {
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
            const struct slot *slot = slot_find(&object->slots, index);

            if (slot != NULL && slot->writers == 0 && bits_none(slot->init)) {
                slot_remove(&mem->pool, &object->slots, index);
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
    slot_remove_all(&mem->pool, &object->slots);
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

    while ((slot = slot_next(&object->slots, &index, (size - 1) >> SLOT_SHIFT)) != NULL) {
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
        const struct slot *slot = slot_find(&object->slots, offset >> SLOT_SHIFT);
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
        .bytes = mem->pool.pages.bytes_max / mem->ost_count,
        .bytes_free = (mem->pool.pages.bytes_max - mem->pool.pages.used_bytes) / mem->ost_count,
        .objects = mem->objects.ost_counts[ost],
        .objects_max = (mem->objects.count_max - mem->objects.table.count) / mem->ost_count +
                       mem->objects.ost_counts[ost],
    };
}

static bool
mem_idle(struct ost_store *store)
{
    return store_pages_idle(&mem_of(store)->pool.pages);
}

static void
mem_stats_get(const struct ost_store *store, struct ost_store_stats *stats_out)
{
    const struct mem_store *mem = (const struct mem_store *)(const void *)store;

    *stats_out = (struct ost_store_stats){
        .objects = mem->objects.table.count,
        .objects_max = mem->objects.count_max,
        .bytes_used = mem->pool.pages.used_bytes,
        .bytes_max = mem->pool.pages.bytes_max,
        .bytes_touched_free = mem->pool.pages.touched_free_bytes,
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
    arena_init(&mem->pool.arena, 0);
    int rc = store_objects_init(&mem->objects, &mem->pool.arena, sizeof(struct object),
                                options->objects_max, options->ost_count, options->seed);

    if (rc != 0) {
        goto fail_free;
    }
    rc = store_pages_init(&mem->pool.pages, options);
    if (rc != 0) {
        goto fail_fini_objects;
    }
    mem->base.ops = &ost_store_mem;
    mem->ost_count = options->ost_count;
    base_list_init(&mem->ready);
    *store_out = &mem->base;
    return 0;

fail_fini_objects:
    store_objects_fini(&mem->objects);
fail_free:
    arena_fini(&mem->pool.arena);
    free(mem);
    return rc;
}

static void
mem_close(struct ost_store *store)
{
    struct mem_store *mem = mem_of(store);

    BASE_ASSERT(mem->maps_out == 0);
    BASE_ASSERT_SIM((store_pages_check(&mem->pool.pages), true));
    store_pages_fini(&mem->pool.pages);
    store_objects_fini(&mem->objects);
    arena_fini(&mem->pool.arena);
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
