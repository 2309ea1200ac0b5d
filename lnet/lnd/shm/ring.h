/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One direction of a connection: a ring of 64-byte slots in shared memory, one writer, one reader.
 *
 * A message is a contiguous run of slots. The first 8 bytes of its first slot are the publish word,
 * stored last:
 *
 *     bits 63..24  lap: how often the ring was begun, counted from 1
 *     bits 23..0   bytes that follow the word (the frame), or SHM_RING_SKIP: go on at slot 0
 *
 * The reader looks at one word, that of its next slot, and takes the slot as empty while the lap is
 * not the one it expects. So there is no index that both sides touch per message, and a message of
 * up to 56 bytes moves one cache line.
 *
 * Payload of an earlier lap may lie where the reader expects a word and look like one. The writer
 * remembers in private bits which slots begin with payload, and clears such a slot's word before it
 * publishes the message in front of it.
 *
 * What was consumed comes back in a line of the reader's, every quarter of the ring or when the
 * reader goes idle. Positions count slots from 0 for ever. Invariants, asserted by the writer:
 *
 *   I1  tail <= head, and head - tail <= slot_count - 1: the slot after the newest message is free
 *   I2  the slot at head does not begin with payload
 *
 * The peer may write anything anywhere at any time: every word is read once and then checked, and
 * what cannot be is -EPROTO.
 */
#pragma once

#include "base/assert.h"
#include "lnet/lnd/frame.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SHM_SLOT_BYTES     64u
#define SHM_WORD_BYTES     8u
#define SHM_RING_SKIP      0xffffffu
#define SHM_EAGER_BYTES    8704u /* 8 KiB and a header of 512 bytes */
#define SHM_RING_BYTES_MIN 32768u
#define SHM_RING_BYTES_MAX (16u << 20)

/* The most slots of one message. Twice that, and a quarter not yet returned, must fit: see I1. */
#define SHM_MESSAGE_SLOTS_MAX \
    ((SHM_WORD_BYTES + LNET_FRAME_BYTES + SHM_EAGER_BYTES + SHM_SLOT_BYTES - 1) / SHM_SLOT_BYTES)
static_assert(2 * SHM_MESSAGE_SLOTS_MAX + 1 <=
                  (SHM_RING_BYTES_MIN / SHM_SLOT_BYTES) - (SHM_RING_BYTES_MIN / SHM_SLOT_BYTES) / 4,
              "the largest message fits into the smallest ring wherever it begins");

/* The writer's side. Private to it, but for *slots and *consumed. */
struct shm_tx {
    uint8_t *slots;
    uint64_t head;       /* where the next message begins */
    uint64_t tail;       /* what the reader has given back */
    uint32_t slot_count; /* a power of two */
    uint32_t slot_shift; /* its logarithm */
    uint32_t free_min;   /* fewest free slots ever */
    uint32_t reserved;
    uint64_t *stale;          /* a bit per slot: its first word is payload */
    const uint64_t *consumed; /* shared: the reader's */
};

/* The reader's side. Private to it, but for *slots and *consumed. */
struct shm_rx {
    const uint8_t *slots;
    uint64_t next;     /* the next message's position */
    uint64_t returned; /* what *consumed says */
    uint32_t slot_count;
    uint32_t slot_shift;
    uint64_t *consumed; /* shared: ours */
};

/* The number of slots that @frame_bytes bytes of frame and payload take. */
static inline uint32_t
shm_ring_slots(uint32_t frame_bytes)
{
    return (SHM_WORD_BYTES + frame_bytes + SHM_SLOT_BYTES - 1) / SHM_SLOT_BYTES;
}

/* The publish word of a message of @frame_bytes at @position. */
static inline uint64_t
shm_ring_word(uint64_t position, uint32_t slot_shift, uint32_t frame_bytes)
{
    return (((position >> slot_shift) + 1) << 24) | frame_bytes;
}

/* The word of a slot, as an object to load and store atomically. */
static inline uint64_t *
shm_ring_word_at(const uint8_t *slots, uint64_t index)
{
    return (uint64_t *)(uintptr_t)(slots + index * SHM_SLOT_BYTES);
}

/* Whether the slot at @index begins with payload of an earlier message. */
static inline bool
shm_stale_test(const uint64_t *stale, uint64_t index)
{
    return ((stale[index >> 6] >> (index & 63)) & 1) != 0;
}

/* The number of slots that can be written now, going by what the reader last said. */
static inline uint32_t
shm_tx_free(const struct shm_tx *tx)
{
    const uint64_t in_use = tx->head - tx->tail;

    BASE_ASSERT(in_use <= tx->slot_count - 1); /* I1 */
    return tx->slot_count - 1 - (uint32_t)in_use;
}

/* Brings free_min up to date. Between two refreshes the free slots only get fewer. */
static inline void
shm_tx_note_min(struct shm_tx *tx)
{
    tx->free_min = base_min_u32(tx->free_min, shm_tx_free(tx));
}

/* Reads how far the reader is. Returns 0 or -EPROTO: it says what cannot be. */
static inline int
shm_tx_refresh(struct shm_tx *tx)
{
    const uint64_t consumed = __atomic_load_n(tx->consumed, __ATOMIC_ACQUIRE);

    shm_tx_note_min(tx);
    if (consumed - tx->tail > tx->head - tx->tail) {
        return -EPROTO;
    }
    tx->tail = consumed;
    return 0;
}

/* Makes the slot at @index safe to be looked at by the reader before it is written. */
static inline void
shm_tx_clean(struct shm_tx *tx, uint64_t index)
{
    if (BASE_UNLIKELY(shm_stale_test(tx->stale, index))) {
        __atomic_store_n(shm_ring_word_at(tx->slots, index), 0, __ATOMIC_RELAXED);
        tx->stale[index >> 6] &= ~(UINT64_C(1) << (index & 63));
    }
}

/* How many slots a message of @slot_count needs at the present head, the skipped ones included. */
static inline uint32_t
shm_tx_need(const struct shm_tx *tx, uint32_t slot_count)
{
    const uint32_t index = (uint32_t)(tx->head & (tx->slot_count - 1));

    return index + slot_count > tx->slot_count ? tx->slot_count - index + slot_count : slot_count;
}

/*
 * Finds room for a message of @slot_count slots at the head and returns its first slot. NULL: there
 * is none now, and nothing changed; *rc_out says -EAGAIN or -EPROTO.
 */
static inline uint8_t *
shm_tx_reserve(struct shm_tx *tx, uint32_t slot_count, int *rc_out)
{
    const uint32_t need = shm_tx_need(tx, slot_count);

    if (BASE_UNLIKELY(shm_tx_free(tx) < need)) {
        const int rc = shm_tx_refresh(tx);

        if (rc != 0 || shm_tx_free(tx) < need) {
            *rc_out = rc != 0 ? rc : -EAGAIN;
            return NULL;
        }
    }
    if (BASE_UNLIKELY(need != slot_count)) {
        const uint64_t index = tx->head & (tx->slot_count - 1);

        BASE_ASSERT(!shm_stale_test(tx->stale, index)); /* I2 */
        BASE_ASSERT(!shm_stale_test(tx->stale, 0));     /* no message goes over the end */
        __atomic_store_n(shm_ring_word_at(tx->slots, index),
                         shm_ring_word(tx->head, tx->slot_shift, SHM_RING_SKIP), __ATOMIC_RELEASE);
        tx->head += tx->slot_count - index;
    }
    return tx->slots + (tx->head & (tx->slot_count - 1)) * SHM_SLOT_BYTES;
}

/* Publishes the message of @frame_bytes that was written behind the word of the reserved slot. */
static inline void
shm_tx_publish(struct shm_tx *tx, uint32_t frame_bytes)
{
    const uint32_t slot_count = shm_ring_slots(frame_bytes);
    const uint64_t mask = tx->slot_count - 1;
    const uint64_t index = tx->head & mask;

    BASE_ASSERT(!shm_stale_test(tx->stale, index)); /* I2 */
    for (uint64_t i = index + 1; i < index + slot_count; i++) {
        tx->stale[i >> 6] |= UINT64_C(1) << (i & 63);
    }
    shm_tx_clean(tx, (index + slot_count) & mask);
    __atomic_store_n(shm_ring_word_at(tx->slots, index),
                     shm_ring_word(tx->head, tx->slot_shift, frame_bytes), __ATOMIC_RELEASE);
    tx->head += slot_count;
    BASE_ASSERT(tx->head - tx->tail <= mask); /* I1 */
}

/* Whether something, be it a message or nonsense, is at the reader's next slot. */
static inline bool
shm_rx_ready(const struct shm_rx *rx)
{
    const uint64_t index = rx->next & (rx->slot_count - 1);
    const uint64_t word = __atomic_load_n(shm_ring_word_at(rx->slots, index), __ATOMIC_ACQUIRE);

    return (word >> 24) == (rx->next >> rx->slot_shift) + 1;
}

/*
 * Looks for the next message. Returns 0: none; 1: *frame_out and *frame_bytes_out are its frame, in
 * shared memory, all within the ring; -EPROTO.
 */
static inline int
shm_rx_peek(struct shm_rx *rx, const uint8_t **frame_out, uint32_t *frame_bytes_out)
{
    for (;;) {
        const uint64_t index = rx->next & (rx->slot_count - 1);
        const uint64_t word = __atomic_load_n(shm_ring_word_at(rx->slots, index), __ATOMIC_ACQUIRE);
        const uint32_t frame_bytes = (uint32_t)(word & 0xffffff);

        if ((word >> 24) != (rx->next >> rx->slot_shift) + 1) {
            return 0;
        }
        if (BASE_LIKELY(frame_bytes <= LNET_FRAME_BYTES + SHM_EAGER_BYTES)) {
            if (index + shm_ring_slots(frame_bytes) > rx->slot_count) {
                return -EPROTO;
            }
            *frame_out = rx->slots + index * SHM_SLOT_BYTES + SHM_WORD_BYTES;
            *frame_bytes_out = frame_bytes;
            return 1;
        }
        if (frame_bytes != SHM_RING_SKIP || index == 0) {
            return -EPROTO;
        }
        rx->next += rx->slot_count - index;
    }
}

/* Tells the writer of everything that was consumed. */
static inline void
shm_rx_return(struct shm_rx *rx)
{
    rx->returned = rx->next;
    __atomic_store_n(rx->consumed, rx->next, __ATOMIC_RELEASE);
}

/* Goes past the message that was peeked at. True: a quarter of the ring waits to be returned. */
static inline bool
shm_rx_advance(struct shm_rx *rx, uint32_t frame_bytes)
{
    rx->next += shm_ring_slots(frame_bytes);
    return rx->next - rx->returned >= rx->slot_count / 4;
}
