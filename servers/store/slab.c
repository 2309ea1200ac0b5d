/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small objects of one size: see slab.h.
 */
#include "servers/store/slab.h"

#include "base/assert.h"
#include "base/pool.h"

#include <stdlib.h>
#include <string.h>

#define SLAB_BLOCK_BYTES ((size_t)256 << 10)
#define SLAB_BLOCK_HEAD  64 /* keeps objects of 64 bytes in one line */

void
store_slab_init(struct store_slab *slab, size_t object_bytes)
{
    BASE_ASSERT(object_bytes >= sizeof(void *));
    BASE_ASSERT(object_bytes <= SLAB_BLOCK_BYTES / 8);
    *slab = (struct store_slab){.object_bytes = base_align_up(object_bytes, 8)};
}

void
store_slab_fini(struct store_slab *slab)
{
    for (void *block = slab->blocks; block != NULL;) {
        void *next = *(void **)block;

        BASE_POOL_UNPOISON(block, SLAB_BLOCK_BYTES);
        free(block);
        block = next;
    }
    *slab = (struct store_slab){.object_bytes = slab->object_bytes};
}

bool
store_slab_reserve(struct store_slab *slab)
{
    if (slab->free != NULL || (size_t)(slab->end - slab->next) >= slab->object_bytes) {
        return true;
    }
    char *block = aligned_alloc(64, SLAB_BLOCK_BYTES);

    if (block == NULL) {
        return false;
    }
    *(void **)(void *)block = slab->blocks;
    slab->blocks = block;
    slab->next = block + SLAB_BLOCK_HEAD;
    slab->end = block + SLAB_BLOCK_BYTES;
    slab->bytes += SLAB_BLOCK_BYTES;
    return true;
}

void *
store_slab_take(struct store_slab *slab)
{
    void *object = slab->free;

    if (BASE_LIKELY(object != NULL)) {
        BASE_POOL_UNPOISON(object, slab->object_bytes);
        slab->free = *(void **)object;
    } else {
        if (!store_slab_reserve(slab)) {
            return NULL;
        }
        object = slab->next;
        slab->next += slab->object_bytes;
    }
    slab->used++;
    return object;
}

void
store_slab_return(struct store_slab *slab, void *object)
{
    BASE_ASSERT(slab->used > 0);
    slab->used--;
    *(void **)object = slab->free;
    slab->free = object;
    BASE_POOL_POISON(object, slab->object_bytes);
}
