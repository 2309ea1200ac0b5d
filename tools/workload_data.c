/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Self-describing data. See workload_data.h.
 *
 * The file is a row of words of 8 bytes, little-endian: even ones hold signature and rank, odd ones
 * the offset of the pair. Words are the unit of comparison; only those that differ are looked at
 * byte by byte.
 */
#include "tools/workload_data.h"

#include "base/endian.h"
#include "base/prng.h"

#include <string.h>

#define WORD_BYTES  8u
#define CHUNK_WORDS 512u

static uint64_t
word_at(struct data_mark mark, uint64_t index)
{
    return index % 2 == 0 ? (uint64_t)mark.signature << 32 | mark.rank : (index - 1) * WORD_BYTES;
}

static void
fill_words(struct data_mark mark, uint64_t index, unsigned char *at, size_t count)
{
    const uint64_t even = word_at(mark, 0);

    if (index % 2 != 0 && count > 0) {
        base_le64_store(at, word_at(mark, index));
        at += WORD_BYTES;
        index++;
        count--;
    }
    for (; count >= 2; count -= 2, index += 2, at += 2 * (size_t)WORD_BYTES) {
        base_le64_store(at, even);
        base_le64_store(at + WORD_BYTES, index * WORD_BYTES);
    }
    if (count > 0) {
        base_le64_store(at, even);
    }
}

/* The part of one word that lies in the buffer, for its ends. */
static void
fill_part(struct data_mark mark, uint64_t offset, unsigned char *at, size_t bytes)
{
    unsigned char word[WORD_BYTES];

    fill_words(mark, offset / WORD_BYTES, word, 1);
    memcpy(at, word + offset % WORD_BYTES, bytes);
}

void
data_fill(struct data_mark mark, uint64_t offset, void *buffer, size_t bytes)
{
    unsigned char *at = buffer;
    size_t head = (size_t)(-offset % WORD_BYTES);

    if (head > 0) {
        head = head < bytes ? head : bytes;
        fill_part(mark, offset, at, head);
        at += head;
        offset += head;
        bytes -= head;
    }
    fill_words(mark, offset / WORD_BYTES, at, bytes / WORD_BYTES);
    if (bytes % WORD_BYTES > 0) {
        const size_t whole = bytes - bytes % WORD_BYTES;

        fill_part(mark, offset + whole, at + whole, bytes % WORD_BYTES);
    }
}

/* Looks at the bytes of @bytes at @offset one by one. */
static uint64_t
count_errors(struct data_mark mark, uint64_t offset, const unsigned char *at, size_t bytes,
             struct data_error *error)
{
    uint64_t count = 0;

    for (size_t i = 0; i < bytes; i++) {
        unsigned char wanted = 0;

        fill_part(mark, offset + i, &wanted, 1);
        if (at[i] == wanted) {
            continue;
        }
        count++;
        if (error->count++ == 0) {
            const size_t start = (size_t)((offset + i) % WORD_BYTES);
            const size_t first = i > start ? i - start : 0;
            const size_t room = bytes - first;

            error->first_offset = offset + i;
            error->expected = word_at(mark, (offset + i) / WORD_BYTES);
            error->found = 0;
            memcpy(&error->found, at + first, room < WORD_BYTES ? room : WORD_BYTES);
            error->found = base_le64_load(&error->found);
        }
    }
    return count;
}

uint64_t
data_check(struct data_mark mark, uint64_t offset, const void *buffer, size_t bytes,
           struct data_error *error)
{
    const unsigned char *at = buffer;
    unsigned char wanted[CHUNK_WORDS * WORD_BYTES];
    uint64_t count = 0;

    while (bytes > 0) {
        const size_t chunk = bytes < sizeof(wanted) ? bytes : sizeof(wanted);

        data_fill(mark, offset, wanted, chunk);
        if (memcmp(at, wanted, chunk) != 0) {
            count += count_errors(mark, offset, at, chunk, error);
        }
        at += chunk;
        offset += chunk;
        bytes -= chunk;
    }
    return count;
}

void
data_shuffle(uint64_t *order, uint64_t count, uint64_t seed)
{
    struct base_prng prng;

    base_prng_seed(&prng, seed);
    for (uint64_t i = 0; i < count; i++) {
        order[i] = i;
    }
    for (uint64_t i = count; i > 1; i--) {
        const uint64_t other = base_prng_below(&prng, i);
        const uint64_t moved = order[i - 1];

        order[i - 1] = order[other];
        order[other] = moved;
    }
}
