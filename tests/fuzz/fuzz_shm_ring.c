/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A hostile peer at both ends of the shm LND's rings: it writes whatever the input says into the
 * slots that we read and into the count of slots that it has consumed.
 *
 * What must hold: a frame that is handed up lies within the ring, is decoded or refused, and its
 * payload can be read; the writer never believes in more room than there is.
 */
#include "lnet/lnd/shm/ring.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define SLOT_COUNT (SHM_RING_BYTES_MIN / SHM_SLOT_BYTES)

enum op { OP_WRITE, OP_WORD, OP_READ, OP_CONSUMED, OP_SEND };
#define OP_COUNT 5u

struct input {
    const uint8_t *at;
    size_t left;
};

static uint64_t
input_take(struct input *input, uint32_t bytes)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < bytes && input->left > 0; i++) {
        value = value << 8 | *input->at++;
        input->left--;
    }
    return value;
}

static void
read_all(struct shm_rx *rx, uint32_t limit)
{
    const uint8_t *frame = NULL;
    uint32_t frame_bytes = 0;
    struct lnet_hdr hdr;
    volatile uint8_t sum = 0;

    while (limit-- > 0 && shm_rx_peek(rx, &frame, &frame_bytes) > 0 &&
           lnet_frame_decode(frame, frame_bytes, SHM_EAGER_BYTES, &hdr) == 0) {
        for (uint32_t i = LNET_FRAME_BYTES; i < frame_bytes; i++) {
            sum = (uint8_t)(sum + frame[i]);
        }
        if (shm_rx_advance(rx, frame_bytes)) {
            shm_rx_return(rx);
        }
    }
}

static void
send_one(struct shm_tx *tx, uint32_t frame_bytes)
{
    int rc = 0;
    uint8_t *slot = shm_tx_reserve(tx, shm_ring_slots(frame_bytes), &rc);

    if (slot != NULL) {
        (void)memset(slot + SHM_WORD_BYTES, 0x5a, frame_bytes);
        shm_tx_publish(tx, frame_bytes);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {.at = data, .left = bytes};
    /* Of their own allocations: a byte outside is an error that AddressSanitizer sees. */
    uint8_t *in = aligned_alloc(64, SHM_RING_BYTES_MIN);
    uint8_t *out = aligned_alloc(64, SHM_RING_BYTES_MIN);
    uint64_t stale[SLOT_COUNT / 64] = {0};
    uint64_t theirs = 0;
    uint64_t ours = 0;
    const uint32_t shift = (uint32_t)__builtin_ctz(SLOT_COUNT);
    struct shm_rx rx = {
        .slots = in, .slot_count = SLOT_COUNT, .slot_shift = shift, .consumed = &ours};
    struct shm_tx tx = {.slots = out,
                        .slot_count = SLOT_COUNT,
                        .slot_shift = shift,
                        .free_min = SLOT_COUNT - 1,
                        .stale = stale,
                        .consumed = &theirs};

    BASE_ASSERT(in != NULL && out != NULL);
    (void)memset(in, 0, SHM_RING_BYTES_MIN);
    (void)memset(out, 0, SHM_RING_BYTES_MIN);
    while (input.left > 0) {
        switch ((enum op)(input_take(&input, 1) % OP_COUNT)) {
        case OP_WRITE: {
            const uint64_t offset = input_take(&input, 2) % (SHM_RING_BYTES_MIN - 8);
            const uint64_t value = input_take(&input, 8);

            (void)memcpy(in + offset, &value, 8);
            break;
        }
        case OP_WORD: { /* what the reader waits for, with a frame of our choice */
            const uint64_t index = rx.next & (SLOT_COUNT - 1);
            const uint32_t length = (uint32_t)input_take(&input, 3);
            const uint64_t first = input_take(&input, 8);

            if (index + 1 < SLOT_COUNT) {
                (void)memcpy(in + index * SHM_SLOT_BYTES + SHM_WORD_BYTES, &first, 8);
            }
            *shm_ring_word_at(in, index) = shm_ring_word(rx.next, shift, length);
            break;
        }
        case OP_READ:
            read_all(&rx, 100);
            break;
        case OP_CONSUMED:
            theirs = input_take(&input, 1) % 2 == 0 ? tx.tail + input_take(&input, 2)
                                                    : input_take(&input, 8);
            break;
        case OP_SEND:
            send_one(&tx,
                     (uint32_t)input_take(&input, 2) % (LNET_FRAME_BYTES + SHM_EAGER_BYTES + 1));
            break;
        }
    }
    free(in);
    free(out);
    return 0;
}
