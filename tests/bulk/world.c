/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes with engines, and patterned memory: see world.h. */
#include "tests/bulk/world.h"

#include "base/assert.h"
#include "base/hash.h"

#include <string.h>

struct node world[WORLD_NODES];
static uint32_t world_count;
static uint64_t world_now_ns = 1000000;

void
world_open(uint32_t count, const struct bulk_options *options)
{
    world_contexts_open(count);
    world_count = count;
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0 && world_is_one()) {
            world[i].bulk = world[0].bulk;
            continue;
        }
        assert_int_equal(bulk_open(world[i].ctx, options, &world[i].bulk), 0);
    }
    world_poll(); /* so that lnet_now() is the time */
}

void
world_close(void)
{
    for (uint32_t i = 0; i < 50; i++) {
        world_poll(); /* what unlinks or closes by itself has time to */
    }
    for (uint32_t i = 0; i < (world_is_one() ? 1 : world_count); i++) {
        struct bulk_stats stats;

        bulk_stats_get(world[i].bulk, &stats);
        assert_int_equal(stats.export_count, 0);
        assert_int_equal(stats.xfer_active_count, 0);
        bulk_close(world[i].bulk);
    }
    world_contexts_close(world_count);
    world_count = 0;
}

void
world_poll(void)
{
    world_now_ns += 1000;
    for (uint32_t i = 0; i < world_count; i++) {
        (void)lnet_poll(world[i].ctx, world_now_ns, 64);
    }
}

void
outcome_done(struct bulk *bulk, const struct bulk_result *result, void *user)
{
    struct outcome *outcome = user;

    (void)bulk;
    outcome->result = *result;
    outcome->count++;
}

void
outcome_wait(struct outcome *outcome, uint32_t polls_max)
{
    for (uint32_t i = 0; i < polls_max && outcome->count == 0; i++) {
        world_poll();
    }
    assert_int_equal(outcome->count, 1);
}

/* ---- memory ---- */

uint64_t
memory_arena_bytes(uint64_t length_bytes)
{
    return length_bytes + 2 * 4096 + BASE_ARRAY_LEN(((struct memory *)NULL)->iov) * MEMORY_GUARD;
}

/* The lengths of the pieces of @split; returns how many. */
static uint32_t
split_lengths(uint64_t length_bytes, enum split split, uint64_t lengths[32])
{
    uint64_t left = length_bytes;
    uint32_t count = 0;

    switch (split) {
    case SPLIT_NONE:
        lengths[count++] = length_bytes;
        break;
    case SPLIT_ZERO_FIRST:
        lengths[count++] = 0;
        lengths[count++] = length_bytes;
        break;
    case SPLIT_ZERO_LAST:
        lengths[count++] = length_bytes / 3;
        lengths[count++] = length_bytes - length_bytes / 3;
        lengths[count++] = 0;
        break;
    case SPLIT_ZERO_MIDDLE:
        lengths[count++] = length_bytes / 2;
        lengths[count++] = 0;
        lengths[count++] = 0;
        lengths[count++] = length_bytes - length_bytes / 2;
        break;
    case SPLIT_MANY:
        for (uint32_t i = 0; i < 16; i++) {
            const uint64_t part = base_min_u64(left, (i % 5) * (length_bytes / 40 + 1));

            lengths[count++] = part;
            left -= part;
        }
        lengths[count++] = left;
        break;
    }
    return count;
}

void
memory_cut(struct memory *memory, char *arena, uint64_t length_bytes, uint64_t offset,
           enum split split)
{
    uint64_t lengths[32];
    char *at = arena + 4096 + offset;

    memory->arena = arena;
    memory->arena_bytes = memory_arena_bytes(length_bytes);
    memory->length_bytes = length_bytes;
    memory->count = split_lengths(length_bytes, split, lengths);
    (void)memset(arena, 0xa5, memory->arena_bytes);
    for (uint32_t i = 0; i < memory->count; i++) {
        memory->iov[i] = (struct iovec){.iov_base = at, .iov_len = lengths[i]};
        at += lengths[i] + MEMORY_GUARD;
    }
    assert_true(at <= arena + memory->arena_bytes);
}

static uint64_t
pattern_word(uint64_t seed, uint64_t index)
{
    return base_hash_u64(seed * 0x9e3779b97f4a7c15u + index + 1);
}

static uint8_t
pattern_byte(uint64_t seed, uint64_t at)
{
    return (uint8_t)(pattern_word(seed, at / 8) >> (at % 8 * 8));
}

/* Writes or compares the pattern of @bytes bytes from position @at on. Returns the first wrong. */
static uint64_t
pattern_run(char *memory, uint64_t bytes, uint64_t seed, uint64_t at, bool is_fill)
{
    uint64_t i = 0;

    while (i < bytes) {
        if ((at + i) % 8 == 0 && bytes - i >= 8) {
            const uint64_t word = base_cpu_to_le64(pattern_word(seed, (at + i) / 8));

            if (is_fill) {
                (void)memcpy(memory + i, &word, 8);
            } else if (memcmp(memory + i, &word, 8) != 0) {
                return i;
            }
            i += 8;
            continue;
        }
        if (is_fill) {
            memory[i] = (char)pattern_byte(seed, at + i);
        } else if ((uint8_t)memory[i] != pattern_byte(seed, at + i)) {
            return i;
        }
        i++;
    }
    return bytes;
}

static void
memory_walk(const struct memory *memory, uint64_t seed, uint64_t from, uint64_t to, uint64_t first,
            bool is_fill)
{
    uint64_t start = 0;

    for (uint32_t i = 0; i < memory->count; i++) {
        const uint64_t end = start + memory->iov[i].iov_len;
        const uint64_t a = base_max_u64(from, start);
        const uint64_t b = base_min_u64(to, end);

        if (a < b) {
            char *at = (char *)memory->iov[i].iov_base + (a - start);

            assert_int_equal(pattern_run(at, b - a, seed, first + (a - from), is_fill), b - a);
        }
        start = end;
    }
}

void
memory_fill(const struct memory *memory, uint64_t seed, uint64_t from, uint64_t to, uint64_t first)
{
    memory_walk(memory, seed, from, to, first, true);
}

void
memory_check(const struct memory *memory, uint64_t seed, uint64_t from, uint64_t to, uint64_t first)
{
    memory_walk(memory, seed, from, to, first, false);
}

static void
guard_check(const char *from, const char *to)
{
    for (; from < to; from++) {
        if ((uint8_t)*from != 0xa5) {
            fail_msg("a guard byte was overwritten");
        }
    }
}

void
memory_check_guards(const struct memory *memory)
{
    const char *at = memory->arena;

    for (uint32_t i = 0; i < memory->count; i++) {
        guard_check(at, memory->iov[i].iov_base);
        at = (const char *)memory->iov[i].iov_base + memory->iov[i].iov_len;
    }
    guard_check(at, memory->arena + memory->arena_bytes);
}
