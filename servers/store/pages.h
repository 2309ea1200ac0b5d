/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for objects' bytes: runs of 2^order pages from regions that peers can be let into.
 *
 * A buddy allocator within blocks of 1 MiB. Its own data lies apart: the memory itself may be
 * mapped by clients, and touching a page for the first time costs more than copying into it. So
 * blocks that were never touched are given out last, and store_pages_idle() touches some ahead.
 * Memory is not given back to the system before fini. What it holds when it is taken is what its
 * last user left in it.
 *
 * Invariants:
 *   I1  a page is in exactly one free run, or taken, or in a block that was never used
 *   I2  used_bytes is the sum of the runs taken, and at most bytes_max
 *   I3  no two free buddies of one order: they are one run of the next
 */
#pragma once

#include "servers/store_ost.h"

#define STORE_PAGE_BYTES  4096u
#define STORE_PAGE_SHIFT  12u
#define STORE_ORDER_MAX   8u /* 1 MiB */
#define STORE_BLOCK_PAGES (1u << STORE_ORDER_MAX)
#define STORE_BLOCK_BYTES ((uint64_t)STORE_BLOCK_PAGES * STORE_PAGE_BYTES)
#define STORE_PAGE_NONE   UINT32_MAX

struct store_region;

struct store_pages {
    struct store_region *regions;
    uint32_t region_count, region_max;
    uint32_t region_shift; /* log2 of the pages that page numbers reserve for a region */
    uint32_t touch_page;   /* of the current fresh block: the first that is not touched */
    uint64_t region_bytes;
    uint64_t bytes_max;
    uint64_t used_bytes;
    uint64_t region_total_bytes;
    uint64_t touched_free_bytes;
    uint64_t ahead_bytes;                /* store_pages_idle() keeps so many touched */
    uint32_t heads[STORE_ORDER_MAX + 1]; /* of the free runs, by order */
    struct ost_store_memory memory;
    unsigned char *zero; /* STORE_BLOCK_BYTES of zeros, in memory that can be lent */
    void *zero_region;
};

/* Errors: -EINVAL; -ENOMEM. */
int store_pages_init(struct store_pages *pages, const struct ost_store_options *options);
/* Gives all memory back. Whatever is taken goes with it. */
void store_pages_fini(struct store_pages *pages);
/* Takes 2^order pages, aligned to their size. Returns the first's number or STORE_PAGE_NONE. */
uint32_t store_pages_take(struct store_pages *pages, uint32_t order);
/* Gives back 2^order pages from @page on, any aligned part of what was taken. */
void store_pages_return(struct store_pages *pages, uint32_t page, uint32_t order);
/* The memory of page @page. Pages of one run follow one another. */
unsigned char *store_pages_address(const struct store_pages *pages, uint32_t page);
/* Touches a few pages if fewer than ahead_bytes are touched and free. Returns whether more are to
 * do. */
bool store_pages_idle(struct store_pages *pages);
/* Counts everything: I1 to I3. For tests. */
void store_pages_check(const struct store_pages *pages);
