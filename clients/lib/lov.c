/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file's bytes over its objects (RAID 0), and questions to all of them.
 *
 *     file    | 0 | 1 | 2 | 3 | 4 | 5 | ...      units of stripe_bytes
 *     object 0: 0, 3, ...   object 1: 1, 4, ...   object 2: 2, 5, ...
 *
 * An I/O is cut into pieces, each a range of one object, a few of them under way at a time. A read
 * that meets the end of an object does not know whether that is a hole or the end of the file:
 *
 *     filling -> (a short piece) draining -> glimpsing the sizes of all objects -> filling, up to
 * the size
 *
 * after which every further short piece is a hole. Holes are filled with zeros below the size only:
 * memory beyond what the call returns is not touched.
 */
#include "clients/lib/core.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES        (UINT64_C(1) << 20)
#define PIECES_PER_IO      4u /* enough to hide the round trips behind the copies */
#define STRIPE_BYTES_MIN   65536u
#define PIECE_SEGMENTS_MAX BULK_SEGMENTS_MAX

static_assert(PIECE_BYTES <= OST_LEASE_BYTES_MAX, "a piece is one lease");
static_assert(PIECE_BYTES / STRIPE_BYTES_MIN + 1 + 2 * CLIENT_AIO_IOV_MAX <= PIECE_SEGMENTS_MAX,
              "slices by stripe and by iovec fit a bulk descriptor");

/* ---- arithmetic ---- */

int
lov_layout_set(struct lov_layout *layout, const struct mds_attr *attr)
{
    if (attr->stripe_count == 0 || attr->stripe_count > CLIENT_STRIPES_MAX ||
        attr->stripe_bytes < STRIPE_BYTES_MIN || attr->stripe_bytes % STRIPE_BYTES_MIN != 0) {
        return -EPROTO;
    }
    *layout = (struct lov_layout){
        .stripe_bytes = attr->stripe_bytes,
        .stripe_count = attr->stripe_count,
        .stripe_first = attr->stripe_first,
    };
    return 0;
}

uint64_t
lov_object_bytes(const struct lov_layout *layout, uint32_t stripe, uint64_t offset)
{
    if (layout->stripe_count == 1) {
        return offset;
    }
    const uint64_t row_bytes = (uint64_t)layout->stripe_bytes * layout->stripe_count;
    const uint64_t before = (uint64_t)stripe * layout->stripe_bytes; /* in a row */
    const uint64_t rest = offset % row_bytes;
    const uint64_t part = rest <= before ? 0 : base_min_u64(rest - before, layout->stripe_bytes);

    return offset / row_bytes * layout->stripe_bytes + part;
}

uint64_t
lov_file_offset(const struct lov_layout *layout, uint32_t stripe, uint64_t object_offset)
{
    if (layout->stripe_count == 1) {
        return object_offset;
    }
    const uint64_t row = object_offset / layout->stripe_bytes;

    return (row * layout->stripe_count + stripe) * layout->stripe_bytes +
           object_offset % layout->stripe_bytes;
}

/* Appends the memory of [flat, flat + length) of @iov to @out. Returns the new count, 0: no room.
 */
static uint32_t
iov_slice(const struct iovec *iov, uint32_t iov_count, uint64_t flat, uint64_t length,
          struct iovec *out, uint32_t count, uint32_t out_max)
{
    for (uint32_t i = 0; i < iov_count && length > 0; i++) {
        if (flat >= iov[i].iov_len) {
            flat -= iov[i].iov_len;
            continue;
        }
        const uint64_t part = base_min_u64(iov[i].iov_len - flat, length);

        if (count == out_max) {
            return 0;
        }
        out[count++] = (struct iovec){
            .iov_base = (char *)iov[i].iov_base + flat,
            .iov_len = part,
        };
        length -= part;
        flat = 0;
    }
    BASE_ASSERT(length == 0);
    return count;
}

uint32_t
lov_segments(const struct lov_layout *layout, uint32_t stripe, uint64_t object_offset,
             uint64_t length, const struct iovec *iov, uint32_t iov_count, uint64_t file_offset,
             struct iovec *out, uint32_t out_max)
{
    uint32_t count = 0;

    while (length > 0) {
        uint64_t part = length;

        if (layout->stripe_count > 1) {
            part =
                base_min_u64(length, layout->stripe_bytes - object_offset % layout->stripe_bytes);
        }
        const uint64_t flat = lov_file_offset(layout, stripe, object_offset) - file_offset;

        count = iov_slice(iov, iov_count, flat, part, out, count, out_max);
        if (count == 0) {
            return 0;
        }
        object_offset += part;
        length -= part;
    }
    return count;
}

struct client_target *
lov_object_target(struct causeway *fs, const struct lov_layout *layout, const struct fid *fid,
                  uint32_t stripe, struct ost_object *object_out)
{
    const struct client_ost *ost =
        &fs->osts[((uint32_t)layout->stripe_first + stripe) % fs->ost_count];

    *object_out = (struct ost_object){.fid = *fid, .stripe = stripe, .ost = ost->index};
    return &ost->targets[ost_object_owner(object_out, ost->reactors)];
}

/* ---- questions to all objects ---- */

static struct client_target *
all_fill(struct client_each *each, uint32_t index, void *body, uint32_t *bytes_out)
{
    struct lov_all *all = BASE_CONTAINER_OF(each, struct lov_all, each);
    struct ost_object object;
    struct client_target *target =
        lov_object_target(each->op.fs, &all->layout, &all->fid, index, &object);

    switch (all->ask) {
    case LOV_GETATTR:
    case LOV_SYNC:
        *(struct ost_object_req *)body = (struct ost_object_req){.object = object};
        *bytes_out = sizeof(struct ost_object_req);
        break;
    case LOV_PUNCH:
        *(struct ost_punch_req *)body = (struct ost_punch_req){
            .object = object,
            .start = lov_object_bytes(&all->layout, index, all->start),
            .end = all->end == UINT64_MAX ? UINT64_MAX
                                          : lov_object_bytes(&all->layout, index, all->end),
        };
        *bytes_out = sizeof(struct ost_punch_req);
        break;
    case LOV_SETATTR:
        *(struct ost_setattr_req *)body = (struct ost_setattr_req){
            .object = object,
            .mtime_ns = all->mtime_ns,
            .ctime_ns = all->ctime_ns,
        };
        *bytes_out = sizeof(struct ost_setattr_req);
        break;
    case LOV_SEEK:
        *(struct ost_seek_req *)body = (struct ost_seek_req){
            .object = object,
            .offset = lov_object_bytes(&all->layout, index, all->start),
            .whence = all->whence,
        };
        *bytes_out = sizeof(struct ost_seek_req);
        break;
    }
    return target;
}

static void
all_attr(struct lov_all *all, uint32_t index, const void *body)
{
    struct ost_attr attr;

    memcpy(&attr, body, sizeof(attr));
    all->size = base_max_u64(all->size, lov_file_bytes(&all->layout, index, attr.size));
    all->blocks += attr.blocks;
    if (attr.ctime_ns > all->newest_ctime_ns) {
        all->newest_ctime_ns = attr.ctime_ns;
        all->newest_mtime_ns = attr.mtime_ns;
    }
}

static int
all_reply(struct client_each *each, uint32_t index, int status, const void *body)
{
    struct lov_all *all = BASE_CONTAINER_OF(each, struct lov_all, each);

    if (all->ask == LOV_SEEK) {
        uint64_t offset = lov_object_bytes(&all->layout, index, all->start);

        if (status == 0) {
            memcpy(&offset, body, sizeof(offset));
        } else if (status != -ENXIO) {
            return status;
        }
        /* Past an object's end there is no data in it, and nothing but hole. */
        if (status == 0 || all->whence == SEEK_HOLE) {
            all->found = base_min_u64(all->found, lov_file_offset(&all->layout, index, offset));
        }
        return 0;
    }
    if (status == 0 && all->ask == LOV_GETATTR) {
        all_attr(all, index, body);
    }
    return status;
}

void
lov_all_init(struct lov_all *all, struct causeway *fs, enum lov_ask ask,
             const struct lov_layout *layout, const struct fid *fid)
{
    static const struct {
        uint16_t opc;
        uint16_t reply_bytes;
    } asks[] = {
        [LOV_GETATTR] = {OST_GETATTR, sizeof(struct ost_attr)},
        [LOV_PUNCH] = {OST_PUNCH, 0},
        [LOV_SYNC] = {OST_SYNC, 0},
        [LOV_SETATTR] = {OST_SETATTR, 0},
        [LOV_SEEK] = {OST_SEEK, sizeof(uint64_t)},
    };

    client_each_init(&all->each, fs, asks[ask].opc, asks[ask].reply_bytes, layout->stripe_count,
                     all_fill, all_reply);
    all->ask = ask;
    all->layout = *layout;
    all->fid = *fid;
    all->start = 0;
    all->end = UINT64_MAX;
    all->whence = 0;
    all->mtime_ns = 0;
    all->ctime_ns = 0;
    all->size = 0;
    all->blocks = 0;
    all->newest_mtime_ns = 0;
    all->newest_ctime_ns = 0;
    all->found = UINT64_MAX;
}

void
lov_all_start(struct lov_all *all)
{
    if (all->each.op.fs->ost_count == 0) {
        client_op_complete(&all->each.op, -ENODEV);
        return;
    }
    client_each_start(&all->each);
}

/* ---- reads and writes ---- */

/* Where the object of @stripe ends within the I/O. */
static uint64_t
io_object_end(const struct lov_io *io, uint32_t stripe)
{
    return lov_object_bytes(&io->layout, stripe, io->end);
}

/* How much no piece was made for. */
static uint64_t
io_left(const struct lov_io *io)
{
    uint64_t left = 0;

    for (uint32_t i = 0; i < io->layout.stripe_count; i++) {
        const uint64_t end = io_object_end(io, i);

        left += end > io->cursor[i] ? end - io->cursor[i] : 0;
    }
    return left;
}

static void
io_fail(struct lov_io *io, uint64_t file_offset, int status)
{
    if (file_offset < io->fail_offset) {
        io->fail_offset = file_offset;
        io->fail_status = status;
    }
}

/* Zeros what a short piece left, below the end of the file. */
static void
piece_zero(const struct osc_piece *piece)
{
    const struct lov_io *io = piece->io;
    struct iovec segments[PIECE_SEGMENTS_MAX];
    const uint64_t from = piece->offset + piece->moved;
    const uint64_t to =
        base_min_u64(piece->offset + piece->length, io_object_end(io, piece->object.stripe));

    if (from >= to) {
        return;
    }
    const uint32_t count = lov_segments(&io->layout, piece->object.stripe, from, to - from, io->iov,
                                        io->iov_count, io->offset, segments, PIECE_SEGMENTS_MAX);

    for (uint32_t i = 0; i < count; i++) {
        memset(segments[i].iov_base, 0, segments[i].iov_len);
    }
}

static void io_fill(struct lov_io *io);

static void
piece_return(struct osc_piece *piece)
{
    struct causeway *fs = piece->op.fs;

    base_pool_return(&fs->pieces, piece);
    if (!base_list_empty(&fs->piece_waiters)) {
        struct lov_io *io =
            BASE_CONTAINER_OF(base_list_first(&fs->piece_waiters), struct lov_io, waiter);

        base_list_unlink(&io->waiter);
        io_fill(io);
    }
}

/* The size is known: short pieces become holes or lie behind the end. */
static void
io_resolve(struct lov_io *io, uint64_t size)
{
    io->end = base_max_u64(io->offset, base_min_u64(io->end, size));
    io->is_size_known = true;
    io->has_short = false;
    io->left = io_left(io);
    while (!base_list_empty(&io->shorts)) {
        struct osc_piece *piece =
            BASE_CONTAINER_OF(base_list_first(&io->shorts), struct osc_piece, link);

        base_list_unlink(&piece->link);
        piece_zero(piece);
        piece_return(piece);
    }
}

static void
glimpse_done(struct client_op *op)
{
    struct client_each *each = BASE_CONTAINER_OF(op, struct client_each, op);
    struct lov_all *all = BASE_CONTAINER_OF(each, struct lov_all, each);
    struct lov_io *io = all->io;

    io->is_glimpsing = false;
    if (op->status != 0) {
        io_fail(io, io->offset, op->status);
    }
    io_resolve(io, all->size);
    io_fill(io);
}

/* All pieces have ended and some were short. */
static void
io_glimpse(struct lov_io *io)
{
    if (io->layout.stripe_count > 1) {
        io->is_glimpsing = true;
        lov_all_init(io->glimpse, io->op.fs, LOV_GETATTR, &io->layout, &io->fid);
        io->glimpse->io = io;
        io->glimpse->each.op.done = glimpse_done;
        lov_all_start(io->glimpse);
        return;
    }
    uint64_t size = 0;

    BASE_LIST_FOREACH(link, &io->shorts) {
        const struct osc_piece *piece = BASE_CONTAINER_OF(link, struct osc_piece, link);

        size = base_max_u64(size, piece->attr.size);
        if (piece->moved > 0) {
            size = base_max_u64(size, piece->offset + piece->moved);
        }
    }
    io_resolve(io, size);
    io_fill(io);
}

/* Whose turn it is: the next stripe that has bytes left. */
static uint32_t
io_stripe_next(struct lov_io *io)
{
    for (uint32_t i = 0; i < io->layout.stripe_count; i++) {
        const uint32_t stripe = io->stripe;

        io->stripe = stripe + 1 == io->layout.stripe_count ? 0 : stripe + 1;
        if (io->cursor[stripe] < io_object_end(io, stripe)) {
            return stripe;
        }
    }
    BASE_UNREACHABLE();
}

static void
io_piece_start(struct lov_io *io, struct osc_piece *piece)
{
    const uint32_t stripe = io_stripe_next(io);
    const uint64_t left = io_object_end(io, stripe) - io->cursor[stripe];

    client_op_init(&piece->op, io->op.fs, NULL);
    base_list_init(&piece->link);
    piece->io = io;
    piece->target = lov_object_target(io->op.fs, &io->layout, &io->fid, stripe, &piece->object);
    piece->offset = io->cursor[stripe];
    piece->length = io->is_append ? left : base_min_u64(left, PIECE_BYTES);
    io->cursor[stripe] += piece->length;
    io->left -= piece->length;
    io->outstanding++;
    osc_piece_start(piece);
}

/* Makes pieces while there are bytes, and ends the I/O when nothing is left to do. */
static void
io_fill(struct lov_io *io)
{
    struct causeway *fs = io->op.fs;

    if (io->is_filling) {
        return;
    }
    io->is_filling = true;
    while (io->left > 0 && io->outstanding < PIECES_PER_IO && !io->has_short &&
           io->fail_offset == UINT64_MAX) {
        struct osc_piece *piece = base_pool_take(&fs->pieces);

        if (piece == NULL) {
            if (io->outstanding == 0) {
                base_list_append(&fs->piece_waiters, &io->waiter);
            }
            break;
        }
        io_piece_start(io, piece);
    }
    io->is_filling = false;
    if (io->outstanding > 0 || io->is_glimpsing || !base_list_empty(&io->waiter)) {
        return;
    }
    if (io->has_short) {
        io_glimpse(io);
    } else {
        client_op_complete(&io->op, 0);
    }
}

void
lov_piece_done(struct osc_piece *piece, int status, uint64_t moved)
{
    struct lov_io *io = piece->io;

    BASE_ASSERT(io->outstanding > 0);
    io->outstanding--;
    piece->moved = moved;
    if (io->is_append) {
        io->append_end = piece->where + moved;
    }
    if (status != 0) {
        io_fail(io, lov_file_offset(&io->layout, piece->object.stripe, piece->offset), status);
    } else if (moved < piece->length && io->is_write) {
        io_fail(io, lov_file_offset(&io->layout, piece->object.stripe, piece->offset + moved),
                -ENOSPC);
    } else if (moved < piece->length && io->is_size_known) {
        piece_zero(piece);
    } else if (moved < piece->length) {
        base_list_append(&io->shorts, &piece->link);
        io->has_short = true;
        io_fill(io);
        return;
    }
    /* The piece first: whoever waits for one gets it before this I/O takes it again. */
    piece_return(piece);
    io_fill(io);
}

void
lov_io_init(struct lov_io *io, struct causeway_file *file, bool is_write, const struct iovec *iov,
            uint32_t iov_count, uint64_t offset, uint64_t length, struct lov_all *glimpse)
{
    struct causeway *fs = file->fs;

    client_op_init(&io->op, fs, NULL);
    base_list_init(&io->shorts);
    base_list_init(&io->waiter);
    io->fid = file->fid;
    io->layout = file->layout;
    io->is_write = is_write;
    io->is_append = false;
    io->is_sync = file->is_sync;
    io->is_size_known = false;
    io->has_short = false;
    io->is_glimpsing = false;
    io->is_filling = false;
    io->iov = iov;
    io->iov_count = iov_count;
    io->offset = offset;
    io->length = length;
    io->end = offset + length;
    io->left = length;
    io->outstanding = 0;
    io->fail_offset = UINT64_MAX;
    io->fail_status = 0;
    io->append_end = 0;
    io->glimpse = glimpse;
    io->stripe = (uint32_t)(offset / io->layout.stripe_bytes % io->layout.stripe_count);
    for (uint32_t i = 0; i < io->layout.stripe_count; i++) {
        io->cursor[i] = lov_object_bytes(&io->layout, i, offset);
    }
    if (is_write) {
        for (uint32_t i = 0; i < io->layout.stripe_count; i++) {
            if (io->cursor[i] < io_object_end(io, i)) {
                file->dirty |= UINT64_C(1) << i;
            }
        }
        file->has_wrote = true;
    } else {
        file->has_read = true;
    }
}

void
lov_io_go(struct lov_io *io)
{
    if (io->op.fs->ost_count == 0) {
        client_op_complete(&io->op, -ENODEV);
    } else {
        io_fill(io);
    }
}

ssize_t
lov_io_result(const struct lov_io *io)
{
    if (io->op.status != 0) {
        return io->op.status;
    }
    const uint64_t end = base_min_u64(io->end, io->fail_offset);

    if (end <= io->offset && io->fail_offset != UINT64_MAX) {
        return io->fail_status;
    }
    return (ssize_t)(end - io->offset);
}
