/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nodes with a bulk engine each, in one thread, and memory that shows every wrong byte.
 *
 * The same cases run over LNet (world_shm.c, world_lo.c) and over a stand-in with faults
 * (world_fake.c).
 *
 * Memory: a list of pieces in one arena with guards of 0xA5 before, between and behind them. Byte i
 * of the list's content is the pattern of (seed, i), so a shifted, stale or foreign byte is seen.
 */
#pragma once

#include "causeway/bulk.h"
#include "tests/test.h"

#define WORLD_NODES 3u

struct node {
    struct lnet *ctx;
    struct bulk *bulk;
    struct lnet_peer *peers[WORLD_NODES]; /* peers[i]: node i as this one knows it */
};

extern struct node world[WORLD_NODES];

/* ---- what world_*.c implements ---- */

/* Opens @count contexts that can reach one another, and gets the peers. */
void world_contexts_open(uint32_t count);
void world_contexts_close(uint32_t count);

/* The largest payload of one message. */
uint64_t world_put_bytes_max(void);

/* Whether @path can be had here; @is_pool: all memory is of regions. */
bool world_has_path(enum bulk_path path, bool is_pool);

/* Whether all nodes are the same context, which then has one engine. */
bool world_is_one(void);

/* ---- the rest is common ---- */

/* Opens @count nodes; @options for all of them. */
void world_open(uint32_t count, const struct bulk_options *options);

/* Closes what world_open() opened, after a check that nothing is left in the engines. */
void world_close(void);

/* One poll of every node. */
void world_poll(void);

/* A transfer and how it ended. */
struct outcome {
    struct bulk_result result;
    uint32_t count; /* how often done() came: must end at 1 */
};
void outcome_done(struct bulk *bulk, const struct bulk_result *result, void *user);

/* Polls until the transfer has ended; fails the test after @polls_max polls. */
void outcome_wait(struct outcome *outcome, uint32_t polls_max);

#define MEMORY_GUARD 64u

enum split {
    SPLIT_NONE,
    SPLIT_ZERO_FIRST,
    SPLIT_ZERO_LAST,
    SPLIT_ZERO_MIDDLE,
    SPLIT_MANY, /* 17 uneven pieces, some of them empty */
};
#define SPLIT_COUNT 5

struct memory {
    char *arena;
    uint64_t arena_bytes;
    uint64_t length_bytes;
    uint32_t count;
    struct iovec iov[32];
};

/* How large an arena must be for memory_cut(). */
uint64_t memory_arena_bytes(uint64_t length_bytes);

/* Lays a list of @length_bytes out, its first piece @offset bytes behind a page boundary. */
void memory_cut(struct memory *memory, char *arena, uint64_t length_bytes, uint64_t offset,
                enum split split);

/* Writes, or checks, the pattern of (@seed, @first + i) at bytes [from, to) of the list. */
void memory_fill(const struct memory *memory, uint64_t seed, uint64_t from, uint64_t to,
                 uint64_t first);
void memory_check(const struct memory *memory, uint64_t seed, uint64_t from, uint64_t to,
                  uint64_t first);
void memory_check_guards(const struct memory *memory);
