/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The registration cache: private memory that was exported before is exported again without a new
 * registration, which is dear where an LND pins memory.
 *
 * A bounded set of ranges. Any range within one of them hits. Idle ones wait on a list, the least
 * recently used first, and are evicted from there; one that an open export uses is on no list and
 * so never evicted. When all are in use, a further registration is made for its export alone and
 * released with it.
 *
 * Memory that goes away. The cache holds address ranges and never contents. Exported memory must
 * stay mapped until its export is closed; after that its range may stay here though the memory is
 * unmapped. Over shm nothing is pinned and a range is only numbers, so what is mapped at the same
 * address later is what a hit means. An LND that pins must not be cached beyond the close without a
 * way to hear of the unmapping.
 *
 *   I1  entry_count == entries of `index` <= entries_max
 *   I2  an entry is on `idle` if and only if it is cached and its use_count is 0
 */
#include "bulk/engine.h"

#include <errno.h>

#define CACHE_PAGE_BYTES 4096ull

static void
reg_destroy(struct bulk_reg_cache *cache, struct bulk_reg *reg)
{
    BASE_ASSERT(reg->use_count == 0);
    if (reg->is_cached) {
        bulk_range_remove(&cache->index, reg->start, reg);
        base_list_unlink(&reg->link);
        cache->entry_count--;
    }
    lnet_mem_release(reg->mem);
    base_pool_return(&cache->pool, reg);
}

/* Evicts the least recently used entry. Returns whether there was one. */
static bool
cache_evict(struct bulk_reg_cache *cache)
{
    if (base_list_empty(&cache->idle)) {
        return false;
    }
    reg_destroy(cache, BASE_CONTAINER_OF(base_list_first(&cache->idle), struct bulk_reg, link));
    cache->evict_count++;
    return true;
}

int
bulk_reg_cache_init(struct bulk_reg_cache *cache, struct lnet *ctx, uint32_t entries_max,
                    uint32_t uncached_max)
{
    int rc = bulk_range_init(&cache->index, entries_max);

    if (rc != 0) {
        return rc;
    }
    rc = base_pool_init(&cache->pool, sizeof(struct bulk_reg), entries_max + uncached_max, 0);
    if (rc != 0) {
        bulk_range_fini(&cache->index);
        return rc;
    }
    base_list_init(&cache->idle);
    cache->ctx = ctx;
    cache->entries_max = entries_max;
    return 0;
}

void
bulk_reg_cache_fini(struct bulk_reg_cache *cache)
{
    while (!base_list_empty(&cache->idle)) {
        reg_destroy(cache, BASE_CONTAINER_OF(base_list_first(&cache->idle), struct bulk_reg, link));
    }
    BASE_ASSERT(cache->entry_count == 0);
    base_pool_fini(&cache->pool);
    bulk_range_fini(&cache->index);
}

/* Registers [start, end), evicting what is idle while the context has too many registrations. */
static int
cache_register(struct bulk_reg_cache *cache, uint64_t start, uint64_t end,
               struct lnet_mem **mem_out)
{
    int rc = 0;

    do {
        void *address = (void *)(uintptr_t)start; /* NOLINT(performance-no-int-to-ptr): a page */

        rc = lnet_mem_register(cache->ctx, address, end - start, mem_out);
    } while (rc == -EAGAIN && cache_evict(cache));
    return rc;
}

static int
cache_miss(struct bulk_reg_cache *cache, uint64_t start, uint64_t end, struct bulk_reg **reg_out)
{
    /* Whole pages: what shares a page with the memory is mapped too, and neighbours will hit. */
    const uint64_t first = start & ~(CACHE_PAGE_BYTES - 1);
    const uint64_t last = base_align_up(end, CACHE_PAGE_BYTES);
    const bool has_room = cache->entry_count < cache->entries_max || cache_evict(cache);
    struct bulk_reg *reg = base_pool_take(&cache->pool);

    if (reg == NULL) {
        return -EAGAIN;
    }
    const int rc = cache_register(cache, first, last, &reg->mem);

    if (rc != 0) {
        base_pool_return(&cache->pool, reg);
        return rc;
    }
    reg->start = first;
    reg->end = last;
    reg->use_count = 1;
    reg->is_cached = has_room && bulk_range_add(&cache->index, first, last, reg) == 0;
    base_list_init(&reg->link);
    if (reg->is_cached) {
        cache->entry_count++;
    }
    BASE_ASSERT(cache->entry_count == cache->index.count); /* I1 */
    BASE_ASSERT(cache->entry_count <= cache->entries_max); /* I1 */
    *reg_out = reg;
    return 0;
}

int
bulk_reg_get(struct bulk_reg_cache *cache, uint64_t start, uint64_t end, struct bulk_reg **reg_out)
{
    struct bulk_reg *reg = bulk_range_find(&cache->index, start, end);

    if (reg == NULL) {
        cache->miss_count++;
        return cache_miss(cache, start, end, reg_out);
    }
    cache->hit_count++;
    reg->use_count++;
    base_list_unlink(&reg->link); /* I2 */
    *reg_out = reg;
    return 0;
}

void
bulk_reg_put(struct bulk_reg_cache *cache, struct bulk_reg *reg)
{
    BASE_ASSERT(reg->use_count > 0);
    reg->use_count--;
    if (reg->use_count > 0) {
        return;
    }
    if (reg->is_cached) {
        base_list_append(&cache->idle, &reg->link); /* I2 */
    } else {
        reg_destroy(cache, reg);
    }
}
