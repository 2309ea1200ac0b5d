/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for objects' bytes: see pages.h.
 *
 * A page number is the region's index times a power of two, plus the page's place in the region, so
 * that the buddy of a run is found by flipping a bit. Free runs are linked through arrays beside
 * the memory. Blocks of a region are first given out, or touched ahead, in order of address.
 */
#include "servers/store/pages.h"

#include "base/assert.h"
#include "base/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define REGION_BYTES_DEFAULT (UINT64_C(64) << 20)
#define TOUCH_PAGES          32u /* per idle step: about 20 us */
/*
 * Little, as the server's idle moments are others' busy ones: what a stream of writes needs beyond
 * it is touched by the clients, each on its own core.
 */
#define AHEAD_BYTES (UINT64_C(32) << 20)

#ifndef MADV_POPULATE_WRITE
#    define MADV_POPULATE_WRITE 23
#endif

struct page_link {
    uint32_t next, prev; /* page numbers */
};

struct store_region {
    unsigned char *base;
    void *handle;
    uint32_t page_count;
    uint32_t fresh_page; /* the first page of the blocks that were never used */
    struct page_link *links;
    uint8_t *free_orders; /* by page: order + 1 of the free run that begins there, or 0 */
};

static int
plain_alloc(void *arg, uint64_t bytes, void **region_out, void **address_out)
{
    (void)arg;
    uint64_t *base = mmap(NULL, bytes + STORE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (base == MAP_FAILED) {
        return -ENOMEM;
    }
    base[0] = bytes;
    *region_out = base;
    *address_out = (char *)base + STORE_PAGE_BYTES;
    return 0;
}

static void
plain_free(void *arg, void *region)
{
    (void)arg;
    (void)munmap(region, *(uint64_t *)region + STORE_PAGE_BYTES);
}

static struct store_region *
region_of(const struct store_pages *pages, uint32_t page)
{
    const uint32_t index = page >> pages->region_shift;

    BASE_ASSERT(index < pages->region_count);
    return &pages->regions[index];
}

static uint32_t
page_in_region(const struct store_pages *pages, uint32_t page)
{
    return page & ((1u << pages->region_shift) - 1);
}

unsigned char *
store_pages_address(const struct store_pages *pages, uint32_t page)
{
    return region_of(pages, page)->base +
           ((uint64_t)page_in_region(pages, page) << STORE_PAGE_SHIFT);
}

static struct page_link *
link_of(const struct store_pages *pages, uint32_t page)
{
    return &region_of(pages, page)->links[page_in_region(pages, page)];
}

static void
run_push(struct store_pages *pages, uint32_t page, uint32_t order)
{
    struct store_region *region = region_of(pages, page);
    const uint32_t head = pages->heads[order];

    region->free_orders[page_in_region(pages, page)] = (uint8_t)(order + 1);
    *link_of(pages, page) = (struct page_link){.next = head, .prev = STORE_PAGE_NONE};
    if (head != STORE_PAGE_NONE) {
        link_of(pages, head)->prev = page;
    }
    pages->heads[order] = page;
}

static void
run_unlink(struct store_pages *pages, uint32_t page, uint32_t order)
{
    struct store_region *region = region_of(pages, page);
    const struct page_link link = *link_of(pages, page);

    BASE_ASSERT(region->free_orders[page_in_region(pages, page)] == order + 1);
    region->free_orders[page_in_region(pages, page)] = 0;
    if (link.next != STORE_PAGE_NONE) {
        link_of(pages, link.next)->prev = link.prev;
    }
    if (link.prev != STORE_PAGE_NONE) {
        link_of(pages, link.prev)->next = link.next;
    } else {
        pages->heads[order] = link.next;
    }
}

/* Adds a region of fresh blocks. False: there may not be more, or the system has none. */
static bool
region_add(struct store_pages *pages)
{
    const uint64_t most = base_align_up(pages->bytes_max, STORE_BLOCK_BYTES);
    const uint64_t bytes =
        base_min_u64(pages->region_bytes, most - base_min_u64(most, pages->region_total_bytes));

    if (bytes == 0 || pages->region_count == pages->region_max) {
        return false;
    }
    struct store_region region = {.page_count = (uint32_t)(bytes >> STORE_PAGE_SHIFT)};
    void *address = NULL;

    region.links = malloc(region.page_count * sizeof(*region.links));
    region.free_orders = calloc(region.page_count, 1);
    if (region.links == NULL || region.free_orders == NULL ||
        pages->memory.region_alloc(pages->memory.arg, bytes, &region.handle, &address) != 0) {
        free(region.links);
        free(region.free_orders);
        return false;
    }
    region.base = address;
    pages->regions[pages->region_count++] = region;
    pages->region_total_bytes += bytes;
    pages->touch_page = 0;
    return true;
}

/* The region with a block that was never used: only the newest can have one. NULL: none. */
static struct store_region *
fresh_region(struct store_pages *pages)
{
    struct store_region *region =
        pages->region_count > 0 ? &pages->regions[pages->region_count - 1] : NULL;

    if ((region == NULL || region->fresh_page == region->page_count) && region_add(pages)) {
        region = &pages->regions[pages->region_count - 1];
    }
    return region != NULL && region->fresh_page < region->page_count ? region : NULL;
}

/* Takes the next block that was never used. */
static uint32_t
fresh_block_take(struct store_pages *pages)
{
    struct store_region *region = fresh_region(pages);

    if (region == NULL) {
        return STORE_PAGE_NONE;
    }
    const uint32_t page =
        ((uint32_t)(region - pages->regions) << pages->region_shift) + region->fresh_page;

    region->fresh_page += STORE_BLOCK_PAGES;
    pages->touch_page = 0;
    return page;
}

uint32_t
store_pages_take(struct store_pages *pages, uint32_t order)
{
    BASE_ASSERT(order <= STORE_ORDER_MAX);
    const uint64_t bytes = (uint64_t)STORE_PAGE_BYTES << order;
    uint32_t at = order;
    uint32_t page = STORE_PAGE_NONE;

    if (bytes > pages->bytes_max - pages->used_bytes) {
        return STORE_PAGE_NONE;
    }
    while (at < STORE_ORDER_MAX && pages->heads[at] == STORE_PAGE_NONE) {
        at++;
    }
    page = pages->heads[at];
    if (page != STORE_PAGE_NONE) {
        run_unlink(pages, page, at);
        pages->touched_free_bytes -= (uint64_t)STORE_PAGE_BYTES << at;
    } else {
        page = fresh_block_take(pages);
        if (page == STORE_PAGE_NONE) {
            return STORE_PAGE_NONE;
        }
    }
    while (at > order) {
        at--;
        run_push(pages, page + (1u << at), at);
        pages->touched_free_bytes += (uint64_t)STORE_PAGE_BYTES << at;
    }
    pages->used_bytes += bytes;
    BASE_POOL_UNPOISON(store_pages_address(pages, page), bytes);
    return page;
}

void
store_pages_return(struct store_pages *pages, uint32_t page, uint32_t order)
{
    struct store_region *region = region_of(pages, page);
    const uint64_t bytes = (uint64_t)STORE_PAGE_BYTES << order;

    BASE_ASSERT((page & ((1u << order) - 1)) == 0);
    BASE_ASSERT(pages->used_bytes >= bytes); /* I2 */
    BASE_ASSERT(region->free_orders[page_in_region(pages, page)] == 0);
    BASE_POOL_POISON(store_pages_address(pages, page), bytes);
    pages->used_bytes -= bytes;
    pages->touched_free_bytes += bytes;
    while (order < STORE_ORDER_MAX) {
        const uint32_t buddy = page ^ (1u << order);

        if (region->free_orders[page_in_region(pages, buddy)] != order + 1) {
            break;
        }
        run_unlink(pages, buddy, order);
        page &= ~(1u << order);
        order++;
    }
    run_push(pages, page, order);
}

/* Has the kernel give us the pages of [address, address + bytes). */
static void
pages_touch(unsigned char *address, uint64_t bytes)
{
    if (madvise(address, bytes, MADV_POPULATE_WRITE) == 0 || errno != EINVAL) {
        return;
    }
    for (uint64_t at = 0; at < bytes; at += STORE_PAGE_BYTES) { /* an older kernel */
        ((volatile unsigned char *)address)[at] = 0;
    }
}

bool
store_pages_idle(struct store_pages *pages)
{
    if (pages->touched_free_bytes >= pages->ahead_bytes) {
        return false;
    }
    struct store_region *region = fresh_region(pages);

    if (region == NULL) {
        return false;
    }
    pages_touch(region->base +
                    ((uint64_t)(region->fresh_page + pages->touch_page) << STORE_PAGE_SHIFT),
                (uint64_t)TOUCH_PAGES << STORE_PAGE_SHIFT);
    pages->touch_page += TOUCH_PAGES;
    if (pages->touch_page == STORE_BLOCK_PAGES) {
        const uint32_t page = fresh_block_take(pages);

        run_push(pages, page, STORE_ORDER_MAX);
        pages->touched_free_bytes += STORE_BLOCK_BYTES;
        BASE_POOL_POISON(store_pages_address(pages, page), STORE_BLOCK_BYTES);
    }
    return pages->touched_free_bytes < pages->ahead_bytes;
}

int
store_pages_init(struct store_pages *pages, const struct ost_store_options *options)
{
    const uint64_t region_bytes =
        options->region_bytes != 0 ? options->region_bytes : REGION_BYTES_DEFAULT;

    *pages = (struct store_pages){
        .region_bytes = region_bytes,
        .bytes_max = options->bytes_max & ~(uint64_t)(STORE_PAGE_BYTES - 1),
        .memory = options->memory,
    };
    if (region_bytes % STORE_BLOCK_BYTES != 0 || region_bytes > (UINT64_C(1) << 40) ||
        pages->bytes_max > (UINT64_C(1) << 43)) { /* page numbers have 32 bits, half kept in hand */
        return -EINVAL;
    }
    if (pages->memory.region_alloc == NULL) {
        pages->memory =
            (struct ost_store_memory){.region_alloc = plain_alloc, .region_free = plain_free};
    }
    while ((UINT64_C(1) << pages->region_shift) < region_bytes >> STORE_PAGE_SHIFT) {
        pages->region_shift++;
    }
    for (uint32_t i = 0; i <= STORE_ORDER_MAX; i++) {
        pages->heads[i] = STORE_PAGE_NONE;
    }
    pages->region_max = (uint32_t)(pages->bytes_max / region_bytes + 1);
    if (((uint64_t)pages->region_max << pages->region_shift) > STORE_PAGE_NONE) {
        return -EINVAL;
    }
    pages->ahead_bytes = base_min_u64(options->prefault_bytes, pages->bytes_max);
    pages->regions = calloc(pages->region_max, sizeof(*pages->regions));
    if (pages->regions == NULL) {
        return -ENOMEM;
    }
    void *zero = NULL;
    const int rc = pages->memory.region_alloc(pages->memory.arg, STORE_BLOCK_BYTES,
                                              &pages->zero_region, &zero);

    if (rc != 0) {
        free(pages->regions);
        return rc;
    }
    pages->zero = zero;
    while (store_pages_idle(pages)) {
    }
    pages->ahead_bytes = base_min_u64(pages->ahead_bytes, AHEAD_BYTES);
    return 0;
}

void
store_pages_fini(struct store_pages *pages)
{
    for (uint32_t i = 0; i < pages->region_count; i++) {
        struct store_region *region = &pages->regions[i];

        BASE_POOL_UNPOISON(region->base, (uint64_t)region->page_count << STORE_PAGE_SHIFT);
        pages->memory.region_free(pages->memory.arg, region->handle);
        free(region->links);
        free(region->free_orders);
    }
    pages->memory.region_free(pages->memory.arg, pages->zero_region);
    free(pages->regions);
    *pages = (struct store_pages){0};
}

void
store_pages_check(const struct store_pages *pages)
{
    uint64_t free_bytes = 0;
    uint64_t fresh_bytes = 0;

    for (uint32_t order = 0; order <= STORE_ORDER_MAX; order++) {
        for (uint32_t page = pages->heads[order]; page != STORE_PAGE_NONE;
             page = link_of(pages, page)->next) {
            const struct store_region *region = region_of(pages, page);

            BASE_ASSERT(region->free_orders[page_in_region(pages, page)] == order + 1);
            BASE_ASSERT((page & ((1u << order) - 1)) == 0);
            if (order < STORE_ORDER_MAX) { /* I3 */
                BASE_ASSERT(region->free_orders[page_in_region(pages, page ^ (1u << order))] !=
                            order + 1);
            }
            free_bytes += (uint64_t)STORE_PAGE_BYTES << order;
        }
    }
    for (uint32_t i = 0; i < pages->region_count; i++) {
        fresh_bytes += (uint64_t)(pages->regions[i].page_count - pages->regions[i].fresh_page)
                       << STORE_PAGE_SHIFT;
    }
    BASE_ASSERT(pages->touched_free_bytes == free_bytes);
    BASE_ASSERT(free_bytes + fresh_bytes + pages->used_bytes == pages->region_total_bytes); /* I1 */
}
