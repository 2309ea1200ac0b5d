/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tables of objects that are named on the wire: slot and generation in one 64-bit cookie.
 *
 * A lookup is two loads and a compare, whatever the cookie: one that is stale, forged or of another
 * context finds nothing. Memory comes in chunks as it is first needed, so that a context that uses
 * little is small and quick to open; in steady state nothing is allocated.
 *
 *   I1  an object's cookie is 0 iff it is free
 *   I2  used_count + free == touched_count <= capacity <= count_max
 *   I3  a cookie is never given twice: the generation grows each time the slot is returned
 */
#pragma once

#include "base/assert.h"

#include <stdint.h>

#define LNET_SLOT_BITS     20u /* of the cookie: index. The other 44 are the generation */
#define LNET_SLOTS_MAX     (1u << LNET_SLOT_BITS)
#define LNET_SLOT_CHUNK    64u /* objects that are allocated together */
#define LNET_SLOT_NONE     UINT32_MAX
#define LNET_SLOT_INDEX(c) ((uint32_t)(c) & (LNET_SLOTS_MAX - 1))

/* What every object begins with. */
struct lnet_slot {
    uint64_t cookie;
    uint64_t generation;
    uint32_t index;
    uint32_t next_free;
};

struct lnet_slots {
    void **chunks;
    uint32_t capacity; /* objects in the chunks there are */
    uint32_t count_max;
    uint32_t touched_count; /* objects that were ever taken: the others are still zero */
    uint32_t used_count;
    uint32_t free_head;
    uint32_t object_bytes;
    uint64_t generation_first;
};

/*
 * Makes an empty table of at most @count_max objects. @generation_first, random, keeps the cookies
 * of an earlier context from naming anything here.
 * Errors: -EINVAL @count_max is 0 or above LNET_SLOTS_MAX; -ENOMEM.
 */
int lnet_slots_init(struct lnet_slots *slots, uint32_t object_bytes, uint32_t count_max,
                    uint64_t generation_first);

/* Frees the memory of all objects, used or not. */
void lnet_slots_fini(struct lnet_slots *slots);

/* The part of lnet_slots_take() that grows the table. */
void *lnet_slots_take_slow(struct lnet_slots *slots);

/* The object at @index, used or not. */
static inline void *
lnet_slots_at(const struct lnet_slots *slots, uint32_t index)
{
    return (char *)slots->chunks[index / LNET_SLOT_CHUNK] +
           (uint64_t)(index % LNET_SLOT_CHUNK) * slots->object_bytes;
}

/* Gives @slot, which is free, the name of its generation. */
static inline void *
lnet_slots_name(struct lnet_slots *slots, struct lnet_slot *slot)
{
    BASE_ASSERT(slot->cookie == 0); /* I1 */
    slot->cookie = (slot->generation << LNET_SLOT_BITS) | slot->index;
    slots->used_count++;
    return slot;
}

/* Takes an object, or returns NULL when count_max are used or memory is out. */
static inline void *
lnet_slots_take(struct lnet_slots *slots)
{
    if (BASE_UNLIKELY(slots->free_head == LNET_SLOT_NONE)) {
        return lnet_slots_take_slow(slots);
    }
    struct lnet_slot *slot = lnet_slots_at(slots, slots->free_head);

    slots->free_head = slot->next_free;
    return lnet_slots_name(slots, slot);
}

/* Gives @object back. Its cookie names nothing from now on. */
static inline void
lnet_slots_return(struct lnet_slots *slots, void *object)
{
    struct lnet_slot *slot = object;

    BASE_ASSERT(slot->cookie != 0); /* I1 */
    BASE_ASSERT(slots->used_count > 0);
    slot->cookie = 0;
    slot->generation = ((slot->generation + 1) & (UINT64_MAX >> LNET_SLOT_BITS));
    slot->generation += slot->generation == 0;
    slot->next_free = slots->free_head;
    slots->free_head = slot->index;
    slots->used_count--;
}

/* The object that @cookie names, or NULL. */
static inline void *
lnet_slots_find(const struct lnet_slots *slots, uint64_t cookie)
{
    const uint32_t index = LNET_SLOT_INDEX(cookie);

    if (index >= slots->touched_count || cookie == 0) {
        return NULL;
    }
    struct lnet_slot *slot = lnet_slots_at(slots, index);

    return slot->cookie == cookie ? slot : NULL;
}
