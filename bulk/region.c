/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pool regions: memory from lnet_mem_alloc(), which peers can reach with one copy. Whoever exports
 * memory need not say that it is of a region: its address says so.
 */
#include "bulk/engine.h"

#include <errno.h>
#include <stdlib.h>

static int
region_alloc(struct bulk *bulk, uint64_t bytes, uint32_t flags, struct bulk_region **region_out,
             void **address_out)
{
    struct bulk_region *region = NULL;
    void *address = NULL;
    int rc = 0;

    if (bytes == 0 || bytes > BULK_HANDLE_LENGTH_MAX) {
        return -EINVAL;
    }
    region = calloc(1, sizeof(*region));
    if (region == NULL) {
        return -ENOMEM;
    }
    rc = lnet_mem_alloc(bulk->ctx, bytes, flags, &region->mem, &address);
    if (rc != 0) {
        goto fail_free;
    }
    region->bulk = bulk;
    region->start = (uintptr_t)address;
    region->end = region->start + bytes;
    rc = bulk_range_add(&bulk->regions, region->start, region->end, region);
    if (rc != 0) {
        goto fail_release;
    }

    const uint64_t page_bytes = lnet_mem_page_bytes(region->mem);

    if (bulk->page_bytes == 0 || page_bytes < bulk->page_bytes) {
        bulk->page_bytes = page_bytes;
    }
    bulk->region_bytes += bytes;
    *region_out = region;
    *address_out = address;
    return 0;

fail_release:
    lnet_mem_release(region->mem);
fail_free:
    free(region);
    return rc;
}

int
bulk_region_alloc(struct bulk *bulk, uint64_t bytes, struct bulk_region **region_out,
                  void **address_out)
{
    return region_alloc(bulk, bytes, 0, region_out, address_out);
}

int
bulk_region_alloc_lazy(struct bulk *bulk, uint64_t bytes, struct bulk_region **region_out,
                       void **address_out)
{
    return region_alloc(bulk, bytes, LNET_MEM_LAZY, region_out, address_out);
}

void
bulk_region_free(struct bulk_region *region)
{
    struct bulk *bulk = region->bulk;

    BASE_ASSERT(region->use_count == 0);
    bulk_range_remove(&bulk->regions, region->start, region);
    bulk->region_bytes -= region->end - region->start;
    if (bulk->regions.count == 0) {
        bulk->page_bytes = 0;
    }
    lnet_mem_release(region->mem);
    free(region);
}

uint64_t
bulk_region_page_bytes(const struct bulk_region *region)
{
    return lnet_mem_page_bytes(region->mem);
}

struct bulk_region *
bulk_region_find(const struct bulk *bulk, uint64_t start, uint64_t end)
{
    return bulk_range_find(&bulk->regions, start, end);
}
