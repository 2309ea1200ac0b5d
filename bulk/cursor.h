/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A place in a list of memory, and what is done from there on.
 *
 * A cursor never rests at the end of an entry that has a successor: zero-length entries, first,
 * middle or last, are stepped over.
 */
#pragma once

#include <stdint.h>
#include <sys/uio.h>

struct bulk_cursor {
    const struct iovec *iov;
    uint32_t count;        /* entries from here on, this one included */
    uint64_t offset_bytes; /* within iov[0] */
};

/* At byte @offset_bytes of a list that holds at least as many. */
struct bulk_cursor bulk_cursor_at(const struct iovec *iov, uint32_t count, uint64_t offset_bytes);

/* Moves @bytes on; the list holds as many. */
void bulk_cursor_skip(struct bulk_cursor *cursor, uint64_t bytes);

/*
 * Takes a slice of at most @bytes and @slice_max entries (at least 1), and moves behind it. Returns
 * its size: @bytes, or less if @slice_max was too little.
 */
uint64_t bulk_cursor_slice(struct bulk_cursor *cursor, uint64_t bytes, struct iovec *slice,
                           uint32_t slice_max, uint32_t *slice_count_out);

/* Copies @bytes at @from to the cursor's place and moves behind them. */
void bulk_cursor_write(struct bulk_cursor *cursor, const void *from, uint64_t bytes);

/* The CRC32C of the next @bytes, after @crc of what was before; moves behind them. */
uint32_t bulk_cursor_crc32c(struct bulk_cursor *cursor, uint64_t bytes, uint32_t crc);
