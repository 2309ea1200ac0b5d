/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Set-up, growth and end of the tables; the rest is inline in slots.h.
 */
#include "lnet/slots.h"

#include <errno.h>
#include <stdlib.h>

int
lnet_slots_init(struct lnet_slots *slots, uint32_t object_bytes, uint32_t count_max,
                uint64_t generation_first)
{
    if (count_max == 0 || count_max > LNET_SLOTS_MAX) {
        return -EINVAL;
    }
    const uint32_t chunk_count = (count_max + LNET_SLOT_CHUNK - 1) / LNET_SLOT_CHUNK;

    *slots = (struct lnet_slots){
        .chunks = calloc(chunk_count, sizeof(slots->chunks[0])),
        .count_max = count_max,
        .free_head = LNET_SLOT_NONE,
        .object_bytes = object_bytes,
        /* Half of the generations at least are left for this context. */
        .generation_first = (generation_first & (UINT64_MAX >> (LNET_SLOT_BITS + 1))) | 1,
    };
    return slots->chunks == NULL ? -ENOMEM : 0;
}

void
lnet_slots_fini(struct lnet_slots *slots)
{
    for (uint32_t i = 0; i < slots->capacity / LNET_SLOT_CHUNK; i++) {
        free(slots->chunks[i]);
    }
    free(slots->chunks);
    *slots = (struct lnet_slots){.free_head = LNET_SLOT_NONE};
}

void *
lnet_slots_take_slow(struct lnet_slots *slots)
{
    BASE_ASSERT(slots->free_head == LNET_SLOT_NONE);
    BASE_ASSERT(slots->used_count == slots->touched_count); /* I2 */

    if (slots->touched_count == slots->count_max) {
        return NULL;
    }
    if (slots->touched_count == slots->capacity) {
        void *chunk = calloc(LNET_SLOT_CHUNK, slots->object_bytes);

        if (chunk == NULL) {
            return NULL;
        }
        slots->chunks[slots->capacity / LNET_SLOT_CHUNK] = chunk;
        slots->capacity += LNET_SLOT_CHUNK;
    }
    struct lnet_slot *slot = lnet_slots_at(slots, slots->touched_count);

    slot->index = slots->touched_count++;
    slot->generation = slots->generation_first;
    return lnet_slots_name(slots, slot);
}
