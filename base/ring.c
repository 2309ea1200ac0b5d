/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Set-up and end of the rings; the fast path is inline in ring.h.
 */
#include "base/ring.h"

#include <errno.h>
#include <stdlib.h>

#define SLOT_COUNT_MAX (1u << 30) /* the signed distance of two 32-bit indices must not wrap */

int
base_spsc_init(struct base_spsc *ring, uint32_t slot_count)
{
    if (!base_is_pow2(slot_count) || slot_count > SLOT_COUNT_MAX) {
        return -EINVAL;
    }
    const size_t bytes = base_align_up(slot_count * sizeof(ring->slots[0]), BASE_CACHE_LINE);

    *ring = (struct base_spsc){
        .mask = slot_count - 1,
        .slots = aligned_alloc(BASE_CACHE_LINE, bytes),
    };
    if (ring->slots == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < slot_count; i++) {
        atomic_init(&ring->slots[i], NULL);
    }
    return 0;
}

void
base_spsc_fini(struct base_spsc *ring)
{
    free(ring->slots);
    ring->slots = NULL;
}

int
base_mpsc_init(struct base_mpsc *ring, uint32_t slot_count)
{
    /* With one slot, "filled in this turn" and "free for the next" would be the same number. */
    if (slot_count < 2 || !base_is_pow2(slot_count) || slot_count > SLOT_COUNT_MAX) {
        return -EINVAL;
    }
    const size_t bytes = base_align_up(slot_count * sizeof(ring->slots[0]), BASE_CACHE_LINE);

    ring->pop_index = 0;
    ring->mask = slot_count - 1;
    ring->slots = aligned_alloc(BASE_CACHE_LINE, bytes);
    if (ring->slots == NULL) {
        return -ENOMEM;
    }
    atomic_init(&ring->push_index, 0);
    for (uint32_t i = 0; i < slot_count; i++) {
        atomic_init(&ring->slots[i].sequence, i);
        ring->slots[i].item = NULL;
    }
    return 0;
}

void
base_mpsc_fini(struct base_mpsc *ring)
{
    free(ring->slots);
    ring->slots = NULL;
}
