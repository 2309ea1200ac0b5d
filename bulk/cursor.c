/* SPDX-License-Identifier: BSD-3-Clause */
/* Places in lists of memory: see cursor.h. */
#include "bulk/cursor.h"

#include "base/assert.h"
#include "causeway/bulk.h"

#include <string.h>

/* The bytes left in the entry under @cursor, having stepped over what is used up. */
static uint64_t
cursor_settle(struct bulk_cursor *cursor)
{
    while (cursor->count > 1 && cursor->offset_bytes == cursor->iov->iov_len) {
        cursor->iov++;
        cursor->count--;
        cursor->offset_bytes = 0;
    }
    return cursor->count == 0 ? 0 : cursor->iov->iov_len - cursor->offset_bytes;
}

void
bulk_cursor_skip(struct bulk_cursor *cursor, uint64_t bytes)
{
    uint64_t room = cursor_settle(cursor);

    while (bytes > 0) {
        const uint64_t step = base_min_u64(bytes, room);

        BASE_ASSERT(room > 0);
        cursor->offset_bytes += step;
        bytes -= step;
        room = cursor_settle(cursor);
    }
}

struct bulk_cursor
bulk_cursor_at(const struct iovec *iov, uint32_t count, uint64_t offset_bytes)
{
    struct bulk_cursor cursor = {.iov = iov, .count = count, .offset_bytes = 0};

    bulk_cursor_skip(&cursor, offset_bytes);
    return cursor;
}

/* The next piece of at most @bytes that lies in one entry. There is one: @bytes is not 0. */
static struct iovec
cursor_piece(struct bulk_cursor *cursor, uint64_t bytes)
{
    const uint64_t room = cursor_settle(cursor);
    const uint64_t step = base_min_u64(bytes, room);

    BASE_ASSERT(step > 0);
    const struct iovec piece = {
        .iov_base = (char *)cursor->iov->iov_base + cursor->offset_bytes,
        .iov_len = step,
    };

    cursor->offset_bytes += step;
    return piece;
}

uint64_t
bulk_cursor_slice(struct bulk_cursor *cursor, uint64_t bytes, struct iovec *slice,
                  uint32_t slice_max, uint32_t *slice_count_out)
{
    uint64_t taken = 0;
    uint32_t count = 0;

    while (taken < bytes && count < slice_max) {
        slice[count] = cursor_piece(cursor, bytes - taken);
        taken += slice[count].iov_len;
        count++;
    }
    *slice_count_out = count;
    return taken;
}

void
bulk_cursor_write(struct bulk_cursor *cursor, const void *from, uint64_t bytes)
{
    const char *at = from;

    while (bytes > 0) {
        const struct iovec piece = cursor_piece(cursor, bytes);

        (void)memcpy(piece.iov_base, at, piece.iov_len);
        at += piece.iov_len;
        bytes -= piece.iov_len;
    }
}

uint32_t
bulk_cursor_crc32c(struct bulk_cursor *cursor, uint64_t bytes, uint32_t crc)
{
    while (bytes > 0) {
        const struct iovec piece = cursor_piece(cursor, bytes);

        crc = bulk_crc32c(crc, piece.iov_base, piece.iov_len);
        bytes -= piece.iov_len;
    }
    return crc;
}
