/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bounded rings of pointers between threads.
 *
 * base_spsc: one producer, one consumer. A slot that holds NULL is empty, so the two sides share no
 * index: a message moves one cache line, that of its slot, and nothing else.
 *
 * base_mpsc: many producers, one consumer (Vyukov's bounded queue). A slot carries the sequence
 * number of the turn it is ready for. Used for posts from other threads; the data path is of one
 * thread and needs neither.
 *
 * Both are full when the slot to be written is still taken, and say so. A push happens before the
 * pop that returns its pointer.
 */
#pragma once

#include "base/assert.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct base_spsc {
    BASE_ALIGNED(BASE_CACHE_LINE) uint32_t push_index; /* the producer's */
    BASE_ALIGNED(BASE_CACHE_LINE) uint32_t pop_index;  /* the consumer's */
    BASE_ALIGNED(BASE_CACHE_LINE) uint32_t mask;       /* constant after init */
    _Atomic(void *) *slots;
};

struct base_mpsc_slot {
    _Atomic(uint32_t) sequence;
    void *item;
};

struct base_mpsc {
    BASE_ALIGNED(BASE_CACHE_LINE) _Atomic(uint32_t) push_index; /* the producers' */
    BASE_ALIGNED(BASE_CACHE_LINE) uint32_t pop_index;           /* the consumer's */
    BASE_ALIGNED(BASE_CACHE_LINE) uint32_t mask;                /* constant after init */
    struct base_mpsc_slot *slots;
};

/*
 * Makes a ring of @slot_count slots, a power of two from 1 to 2^30.
 * Errors: -EINVAL another count; -ENOMEM.
 */
int base_spsc_init(struct base_spsc *ring, uint32_t slot_count);

/* Frees the slots, not what their pointers point to. No thread may use the ring any more. */
void base_spsc_fini(struct base_spsc *ring);

/* Like base_spsc_init(), from 2 slots. */
int base_mpsc_init(struct base_mpsc *ring, uint32_t slot_count);

/* Like base_spsc_fini(). */
void base_mpsc_fini(struct base_mpsc *ring);

/* Adds @item, which must not be NULL. Returns false, with nothing changed, when it is full. */
static inline bool
base_spsc_push(struct base_spsc *ring, void *item)
{
    _Atomic(void *) *slot = &ring->slots[ring->push_index & ring->mask];

    BASE_ASSERT(item != NULL);
    if (atomic_load_explicit(slot, memory_order_acquire) != NULL) {
        return false;
    }
    atomic_store_explicit(slot, item, memory_order_release);
    ring->push_index++;
    return true;
}

/* Takes the oldest item, or returns NULL when the ring is empty. */
static inline void *
base_spsc_pop(struct base_spsc *ring)
{
    _Atomic(void *) *slot = &ring->slots[ring->pop_index & ring->mask];
    void *item = atomic_load_explicit(slot, memory_order_acquire);

    if (item == NULL) {
        return NULL;
    }
    atomic_store_explicit(slot, NULL, memory_order_release);
    ring->pop_index++;
    return item;
}

/* Whether the consumer would find nothing now. Only the consumer may ask. */
static inline bool
base_spsc_empty(const struct base_spsc *ring)
{
    return atomic_load_explicit(&ring->slots[ring->pop_index & ring->mask], memory_order_acquire) ==
           NULL;
}

/*
 * Adds @item, which must not be NULL. Any thread; lock-free. Returns false, with nothing changed,
 * when the ring is full.
 */
static inline bool
base_mpsc_push(struct base_mpsc *ring, void *item)
{
    uint32_t index = atomic_load_explicit(&ring->push_index, memory_order_relaxed);

    BASE_ASSERT(item != NULL);
    for (;;) {
        struct base_mpsc_slot *slot = &ring->slots[index & ring->mask];
        const uint32_t sequence = atomic_load_explicit(&slot->sequence, memory_order_acquire);
        const int32_t ahead = (int32_t)(sequence - index);

        if (ahead < 0) {
            return false; /* the consumer has not emptied this slot of the last turn */
        }
        if (ahead > 0) {
            index = atomic_load_explicit(&ring->push_index, memory_order_relaxed);
            continue; /* another producer took it */
        }
        if (atomic_compare_exchange_weak_explicit(&ring->push_index, &index, index + 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            slot->item = item;
            atomic_store_explicit(&slot->sequence, index + 1, memory_order_release);
            return true;
        }
    }
}

/*
 * Takes the oldest item, or returns NULL when there is none, or when the producer of the oldest is
 * still between claiming its slot and filling it. Only the consumer's thread.
 */
static inline void *
base_mpsc_pop(struct base_mpsc *ring)
{
    struct base_mpsc_slot *slot = &ring->slots[ring->pop_index & ring->mask];

    if (atomic_load_explicit(&slot->sequence, memory_order_acquire) != ring->pop_index + 1) {
        return NULL;
    }
    void *item = slot->item;

    atomic_store_explicit(&slot->sequence, ring->pop_index + ring->mask + 1, memory_order_release);
    ring->pop_index++;
    return item;
}

/* Whether base_mpsc_pop() would return NULL now. Only the consumer may ask. */
static inline bool
base_mpsc_empty(const struct base_mpsc *ring)
{
    const struct base_mpsc_slot *slot = &ring->slots[ring->pop_index & ring->mask];

    return atomic_load_explicit(&slot->sequence, memory_order_acquire) != ring->pop_index + 1;
}
