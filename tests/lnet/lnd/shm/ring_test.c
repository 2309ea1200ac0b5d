/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Property: what goes into a ring comes out, in order and whole, at every size and position;
 * nothing else comes out; and whatever the other side writes, nothing outside the ring is touched.
 * Method: both sides over plain memory.
 */
#include "lnet/lnd/shm/ring.h"
#include "tests/test.h"

#include "base/prng.h"

#include <stdlib.h>

#define SLOT_COUNT (SHM_RING_BYTES_MIN / SHM_SLOT_BYTES)

struct ring {
    BASE_ALIGNED(64) uint8_t slots[SHM_RING_BYTES_MIN];
    BASE_ALIGNED(64) uint64_t consumed;
    uint64_t stale[SLOT_COUNT / 64];
    struct shm_tx tx;
    struct shm_rx rx;
};

static struct ring ring;

static void
ring_init(void)
{
    (void)memset(&ring, 0, sizeof(ring));
    ring.tx = (struct shm_tx){.slots = ring.slots,
                              .slot_count = SLOT_COUNT,
                              .slot_shift = (uint32_t)__builtin_ctz(SLOT_COUNT),
                              .free_min = SLOT_COUNT - 1,
                              .stale = ring.stale,
                              .consumed = &ring.consumed};
    ring.rx = (struct shm_rx){.slots = ring.slots,
                              .slot_count = SLOT_COUNT,
                              .slot_shift = (uint32_t)__builtin_ctz(SLOT_COUNT),
                              .consumed = &ring.consumed};
}

/* Writes a message whose bytes follow from @seed. */
static int
ring_put(uint32_t bytes, uint32_t seed)
{
    int rc = 0;
    uint8_t *slot = shm_tx_reserve(&ring.tx, shm_ring_slots(bytes), &rc);

    if (slot == NULL) {
        return rc;
    }
    for (uint32_t i = 0; i < bytes; i++) {
        slot[SHM_WORD_BYTES + i] = (uint8_t)(seed * 31 + i * 7);
    }
    shm_tx_publish(&ring.tx, bytes);
    return 0;
}

/* Reads the message that must be next. */
static void
ring_get(uint32_t bytes, uint32_t seed)
{
    const uint8_t *frame = NULL;
    uint32_t frame_bytes = 0;

    assert_int_equal(shm_rx_peek(&ring.rx, &frame, &frame_bytes), 1);
    assert_int_equal(frame_bytes, bytes);
    for (uint32_t i = 0; i < bytes; i++) {
        assert_int_equal(frame[i], (uint8_t)(seed * 31 + i * 7));
    }
    if (shm_rx_advance(&ring.rx, frame_bytes)) {
        shm_rx_return(&ring.rx);
    }
}

static void
ring_is_empty(void)
{
    const uint8_t *frame = NULL;
    uint32_t frame_bytes = 0;

    assert_int_equal(shm_rx_peek(&ring.rx, &frame, &frame_bytes), 0);
    assert_false(shm_rx_ready(&ring.rx));
}

static void
every_size_passes_at_every_position(void **state)
{
    for (uint32_t position = 0; position < SLOT_COUNT; position += 3) {
        ring_init();
        for (uint32_t i = 0; i < position; i++) {
            assert_int_equal(ring_put(8, i), 0);
            ring_get(8, i);
        }
        for (uint32_t bytes = position % 7; bytes <= LNET_FRAME_BYTES + SHM_EAGER_BYTES;
             bytes += 61 + bytes / 9) {
            assert_int_equal(ring_put(bytes, bytes), 0);
            ring_get(bytes, bytes);
            ring_is_empty();
        }
    }
}

static void
random_traffic_comes_out_as_it_went_in(void **state)
{
    struct base_prng prng;
    struct {
        uint32_t bytes, seed;
    } queue[SLOT_COUNT];
    uint32_t first = 0;
    uint32_t count = 0;
    uint32_t full_count = 0;

    ring_init();
    base_prng_seed(&prng, 9);
    for (uint32_t i = 0; i < 300000; i++) {
        const uint32_t bytes =
            base_prng_below(&prng, 4) != 0
                ? (uint32_t)base_prng_below(&prng, 200)
                : (uint32_t)base_prng_below(&prng, LNET_FRAME_BYTES + SHM_EAGER_BYTES + 1);

        /* Fill and empty in phases, so that both ends are met. */
        if (base_prng_below(&prng, 3) != (i / 5000) % 2 * 2) {
            if (ring_put(bytes, i) == 0) {
                queue[(first + count) % SLOT_COUNT].bytes = bytes;
                queue[(first + count++) % SLOT_COUNT].seed = i;
                assert_true(count < SLOT_COUNT);
            } else {
                full_count++;
            }
        } else if (count > 0) {
            ring_get(queue[first].bytes, queue[first].seed);
            first = (first + 1) % SLOT_COUNT;
            count--;
        } else {
            ring_is_empty();
        }
    }
    assert_true(full_count > 100);
}

static void
payload_that_looks_like_a_word_is_not_taken_for_one(void **state)
{
    int rc = 0;

    ring_init();
    for (uint32_t lap = 0; lap < 200; lap++) {
        const uint32_t slot_count = 2 + lap % 100;
        const uint32_t bytes = slot_count * SHM_SLOT_BYTES - SHM_WORD_BYTES;
        uint8_t *slot = shm_tx_reserve(&ring.tx, slot_count, &rc);

        assert_non_null(slot);
        /* At each slot, the very word that the reader will look for there in the next laps. */
        for (uint32_t i = 1; i < slot_count; i++) {
            const uint64_t word = shm_ring_word(ring.tx.head + i + SLOT_COUNT * (uint64_t)(lap % 3),
                                                ring.tx.slot_shift, 64);

            (void)memcpy(slot + i * (size_t)SHM_SLOT_BYTES, &word, sizeof(word));
        }
        shm_tx_publish(&ring.tx, bytes);
        const uint8_t *frame = NULL;
        uint32_t frame_bytes = 0;

        assert_int_equal(shm_rx_peek(&ring.rx, &frame, &frame_bytes), 1);
        assert_int_equal(frame_bytes, bytes);
        (void)shm_rx_advance(&ring.rx, frame_bytes);
        shm_rx_return(&ring.rx);
        /* Small messages walk over where that payload lay. */
        for (uint32_t i = 0; i < SLOT_COUNT - slot_count; i++) {
            ring_is_empty();
            assert_int_equal(ring_put(8, i), 0);
            ring_get(8, i);
        }
        ring_is_empty();
    }
}

static void
a_full_ring_refuses_and_changes_nothing(void **state)
{
    uint32_t count = 0;

    ring_init();
    while (ring_put(8, count) == 0) {
        count++;
    }
    assert_int_equal(count, SLOT_COUNT - 1);
    assert_int_equal(shm_tx_free(&ring.tx), 0);
    shm_tx_note_min(&ring.tx);
    assert_int_equal(ring.tx.free_min, 0);
    const struct ring before = ring;

    assert_int_equal(ring_put(8, 0), -EAGAIN);
    assert_int_equal(ring_put(8000, 0), -EAGAIN);
    assert_memory_equal(&before, &ring, sizeof(ring));
    for (uint32_t i = 0; i < count; i++) {
        ring_get(8, i);
    }
    ring_is_empty();
    /* Slots come back a quarter at a time. */
    assert_int_equal(ring_put(8, 7), 0);
    assert_int_equal(shm_tx_free(&ring.tx), SLOT_COUNT - 1 - 1 - (count - ring.rx.returned));
    ring_get(8, 7);
}

static void
the_largest_message_fits_wherever_it_begins_when_the_reader_keeps_up(void **state)
{
    const uint32_t bytes = LNET_FRAME_BYTES + SHM_EAGER_BYTES;

    for (uint32_t position = 0; position < SLOT_COUNT; position++) {
        ring_init();
        for (uint32_t i = 0; i < position; i++) {
            assert_int_equal(ring_put(8, i), 0);
            ring_get(8, i);
        }
        assert_int_equal(ring_put(bytes, 1), 0);
        ring_get(bytes, 1);
    }
}

static void
slots_that_were_never_sent_cannot_be_returned(void **state)
{
    static const uint64_t lies[] = {11, SLOT_COUNT, UINT64_MAX, UINT64_MAX - 5, 1ull << 63, 2};

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(lies); i++) {
        ring_init();
        for (uint32_t j = 0; j < 10; j++) {
            assert_int_equal(ring_put(8, j), 0);
        }
        ring.consumed = 5;
        assert_int_equal(shm_tx_refresh(&ring.tx), 0);
        ring.consumed = lies[i];
        assert_int_equal(shm_tx_refresh(&ring.tx), -EPROTO);
        assert_int_equal(ring.tx.tail, 5);
    }
}

static void
words_that_cannot_be_are_refused(void **state)
{
    static const struct {
        uint32_t position;
        uint32_t frame_bytes;
        int wanted;
    } cases[] = {
        {0, SHM_RING_SKIP, -EPROTO}, /* skips for ever */
        {0, LNET_FRAME_BYTES + SHM_EAGER_BYTES + 1, -EPROTO},
        {0, SHM_RING_SKIP - 1, -EPROTO},
        {SLOT_COUNT - 1, 56, 1},
        {SLOT_COUNT - 1, 57, -EPROTO}, /* reaches beyond the end */
        {SLOT_COUNT - 10, 8000, -EPROTO},
        {SLOT_COUNT - 1, SHM_RING_SKIP, 0},
        {5, SHM_RING_SKIP, 0},
        {5, 0, 1}, /* for lnet_frame_decode() to refuse */
    };

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        const uint8_t *frame = NULL;
        uint32_t frame_bytes = 0;

        ring_init();
        ring.rx.next = cases[i].position;
        *shm_ring_word_at(ring.slots, cases[i].position) =
            shm_ring_word(cases[i].position, ring.rx.slot_shift, cases[i].frame_bytes);
        assert_int_equal(shm_rx_peek(&ring.rx, &frame, &frame_bytes), cases[i].wanted);
    }
    /* Of another lap: not there. */
    ring_init();
    *shm_ring_word_at(ring.slots, 0) = shm_ring_word(SLOT_COUNT, ring.rx.slot_shift, 8);
    ring_is_empty();
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(every_size_passes_at_every_position),
    cmocka_unit_test(random_traffic_comes_out_as_it_went_in),
    cmocka_unit_test(payload_that_looks_like_a_word_is_not_taken_for_one),
    cmocka_unit_test(a_full_ring_refuses_and_changes_nothing),
    cmocka_unit_test(the_largest_message_fits_wherever_it_begins_when_the_reader_keeps_up),
    cmocka_unit_test(slots_that_were_never_sent_cannot_be_returned),
    cmocka_unit_test(words_that_cannot_be_are_refused),
};

TEST_MAIN(cases)
