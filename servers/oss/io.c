/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * READ and WRITE: piece by piece, a piece being what the store maps at once.
 *
 * Who copies is decided when the first piece is mapped, for only then is it known how much there
 * is: inline what is small and may be, else a lease if the client takes one, else bulk. Where a
 * lease can't be had and bulk was not offered, the answer is -EAGAIN, and the client asks again
 * offering bulk.
 */
#include "servers/oss/oss.h"

#include <errno.h>
#include <string.h>

static_assert(OST_LEASE_BYTES_MAX <= OST_STORE_MAP_BYTES_MAX, "a lease is of one map");

int
oss_object_check(const struct oss *oss, const struct ost_object *object)
{
    if (BASE_UNLIKELY(object->ost >= oss->ost_count)) {
        return -ENODEV;
    }
    return BASE_LIKELY(ost_object_owner(object, oss->reactors) == oss->reactor) ? 0 : -EREMOTE;
}

/* ---- an io's parts ---- */

static void store_done(struct ost_store_op *op, int status);

struct oss_io *
oss_io_take(struct oss *oss, struct ptlrpc_rq *rq)
{
    struct oss_io *io = base_pool_take(&oss->ios);

    BASE_ASSERT(io != NULL); /* as many as requests and leases */
    io->oss = oss;
    io->rq = rq;
    io->state = OSS_IO_IDLE;
    io->crc32c = 0;
    io->is_append = false;
    io->is_mapped = false;
    io->moved = 0;
    io->lease = 0;
    io->op.done = store_done;
    io->op.iov = io->iov;
    return io;
}

void
oss_io_unmap(struct oss_io *io)
{
    struct oss *oss = io->oss;

    if (io->is_mapped) {
        io->is_mapped = false;
        if (io->is_write) {
            oss->store_ops->write_abort(oss->store, &io->op);
        } else {
            oss->store_ops->read_unmap(oss->store, &io->op);
        }
    }
    if (io->is_append) {
        io->is_append = false;
        oss->store_ops->append_end(oss->store, &io->append);
    }
}

uint32_t
oss_io_crc32c(const struct oss_io *io, uint32_t crc, uint64_t length)
{
    for (uint32_t i = 0; i < io->op.iov_count && length > 0; i++) {
        const uint64_t part = base_min_u64(length, io->iov[i].iov_len);

        crc = bulk_crc32c(crc, io->iov[i].iov_base, part);
        length -= part;
    }
    return crc;
}

static struct ost_io_rep *
rep_of(const struct oss_io *io)
{
    return ptlrpc_rq_reply_body(io->rq);
}

void
oss_io_answer(struct oss_io *io, int status, uint32_t flags)
{
    struct ost_io_rep *rep = rep_of(io);
    struct ptlrpc_rq *rq = io->rq;
    const uint32_t tail = !io->is_write && (flags & OST_F_INLINE) != 0 ? (uint32_t)io->moved : 0;

    oss_io_unmap(io);
    if (io->moved > 0) {
        status = 0;
    }
    *rep = (struct ost_io_rep){
        .length = io->moved,
        .offset = io->offset,
        .flags = flags | (io->is_write ? 0 : io->flags & OST_F_CRC),
        .crc32c = io->crc32c,
        .attr = io->op.attr,
    };
    io->rq = NULL;
    oss_io_return(io);
    ptlrpc_rq_reply(rq, status, status == 0 ? (uint32_t)sizeof(*rep) + tail : 0);
}

/* ---- the store's side ---- */

static void piece_mapped(struct oss_io *io, int status);

/* Asks for the next piece. */
static void
piece_map(struct oss_io *io)
{
    struct oss *oss = io->oss;
    int rc = 0;

    io->op.offset = io->offset + io->moved;
    io->op.length = io->length - io->moved;
    io->state = OSS_IO_MAPPING;
    ptlrpc_rq_begin(io->rq, PTLRPC_MARK_STORE);
    rc = io->is_write ? oss->store_ops->write_map(oss->store, &io->op)
                      : oss->store_ops->read_map(oss->store, &io->op);
    if (rc != -EINPROGRESS) {
        piece_mapped(io, rc);
    }
}

void
oss_io_commit(struct oss_io *io)
{
    struct oss *oss = io->oss;

    io->state = OSS_IO_ENDING;
    io->is_mapped = false;
    io->op.now_ns = oss_wall_ns(oss);
    const int rc = oss->store_ops->write_commit(oss->store, &io->op, io->commit_bytes);

    if (rc != -EINPROGRESS) {
        oss_io_committed(io, rc);
    }
}

/* The bytes are in the object; what a WRITE with OST_F_SYNC promises is that they are on storage.
 */
static void
io_synced(struct oss_io *io, int status)
{
    io->state = OSS_IO_IDLE;
    ptlrpc_rq_end(io->rq, PTLRPC_MARK_STORE, 0, 0);
    if (status != 0) {
        io->moved = 0; /* else the answer would be a short write */
    }
    oss_io_answer(io, status, io->flags & (OST_F_INLINE | OST_F_BULK | OST_F_LEASE));
}

void
oss_io_committed(struct oss_io *io, int status)
{
    const bool is_lease = io->lease != 0;

    io->state = OSS_IO_IDLE;
    ptlrpc_rq_end(io->rq, PTLRPC_MARK_STORE,
                  status == 0 && (io->flags & OST_F_BULK) == 0 ? io->commit_bytes : 0, 0);
    if (status == 0) {
        io->moved += io->commit_bytes;
    }
    if (status == 0 && !is_lease && io->moved < io->length) {
        piece_map(io);
        return;
    }
    if (status == 0 && (io->flags & OST_F_SYNC) != 0) {
        io->state = OSS_IO_SYNCING;
        ptlrpc_rq_begin(io->rq, PTLRPC_MARK_STORE);
        const int rc = io->oss->store_ops->sync(io->oss->store, &io->op);

        if (rc != -EINPROGRESS) {
            io_synced(io, rc);
        }
        return;
    }
    oss_io_answer(io, status, io->flags & (OST_F_INLINE | OST_F_BULK | OST_F_LEASE));
}

/* ---- moving ---- */

/* Copies inline data into the map of a WRITE. */
static void
inline_put(struct oss_io *io)
{
    const char *data = (const char *)io->data + io->moved;

    for (uint32_t i = 0; i < io->op.iov_count; i++) {
        (void)memcpy(io->iov[i].iov_base, data, io->iov[i].iov_len);
        data += io->iov[i].iov_len;
    }
    io->commit_bytes = io->op.length;
    oss_io_commit(io);
}

/* Copies the map of a READ behind the reply's fixed part. */
static void
inline_get(struct oss_io *io)
{
    char *data = (char *)(rep_of(io) + 1) + io->moved;

    for (uint32_t i = 0; i < io->op.iov_count; i++) {
        (void)memcpy(data, io->iov[i].iov_base, io->iov[i].iov_len);
        data += io->iov[i].iov_len;
    }
}

static void bulk_done(struct bulk *bulk, const struct bulk_result *result, void *user);

/* Sees to it that what is paused is tried again. False: nothing would. */
static bool
pause_arm(struct oss *oss)
{
    if (!oss->is_pause_armed) {
        oss->is_pause_armed =
            lnet_timer_arm(oss->ctx, &oss->pause_timer, lnet_now(oss->ctx) + OSS_PAUSE_NS) == 0;
    }
    return oss->is_pause_armed;
}

/* Has bulk move the piece. */
static void
bulk_start(struct oss_io *io)
{
    struct oss *oss = io->oss;
    struct ptlrpc_export *export_ = ptlrpc_rq_export(io->rq);

    if (export_ == NULL || oss->is_closed) {
        oss_io_answer(io, -ENOTCONN, 0); /* to nobody */
        return;
    }
    const struct bulk_request request = {
        .op = io->is_write ? BULK_PULL : BULK_PUSH,
        .peer = ptlrpc_export_peer(export_),
        .handle = io->data,
        .handle_bytes = io->handle_bytes,
        .local = io->iov,
        .local_count = io->op.iov_count,
        .handle_offset_bytes = io->moved,
        .length_bytes = io->op.length,
        .deadline_ns = lnet_now(oss->ctx) + OSS_TRANSFER_TIMEOUT_NS,
        .done = bulk_done,
        .user = io,
    };
    const int rc = bulk_transfer(oss->bulk, &request, NULL);

    if (BASE_UNLIKELY(rc == -EAGAIN) && pause_arm(oss)) {
        io->state = OSS_IO_PAUSED;
        base_list_append(&oss->paused, &io->link);
        return;
    }
    if (rc != 0) {
        oss_io_answer(io, rc, 0);
        return;
    }
    io->state = OSS_IO_MOVING;
}

/* Bulk has room again, perhaps. */
static void
paused_retry(struct oss *oss)
{
    struct base_list due;

    base_list_init(&due);
    base_list_move_all(&due, &oss->paused);
    while (!base_list_empty(&due)) {
        struct oss_io *io = BASE_CONTAINER_OF(base_list_first(&due), struct oss_io, link);

        base_list_unlink(&io->link);
        bulk_start(io);
    }
}

void
oss_pause_timer(struct lnet *ctx, void *arg)
{
    struct oss *oss = arg;

    (void)ctx;
    oss->is_pause_armed = false;
    paused_retry(oss);
}

static void read_next(struct oss_io *io);

static void
bulk_done(struct bulk *bulk, const struct bulk_result *result, void *user)
{
    struct oss_io *io = user;
    struct oss *oss = io->oss;
    const uint64_t length = io->op.length;

    (void)bulk;
    io->state = OSS_IO_IDLE;
    ptlrpc_rq_end(io->rq, PTLRPC_MARK_BULK, result->status == 0 ? length : 0,
                  (uint32_t)result->path);
    if (result->status != 0) {
        oss_io_answer(io, result->status, OST_F_BULK);
    } else if (!io->is_write) {
        io->moved += length;
        read_next(io);
    } else {
        if ((io->flags & OST_F_CRC) != 0) {
            io->crc32c = oss_io_crc32c(io, io->crc32c, length);
        }
        if ((io->flags & OST_F_CRC) != 0 && io->moved + length == io->length &&
            io->crc32c != io->want_crc32c) {
            oss->stats.crc_errors++;
            io->moved = 0; /* what was committed of a long write is wrong as well */
            oss_io_answer(io, -EBADMSG, 0);
        } else {
            io->commit_bytes = length;
            ptlrpc_rq_begin(io->rq, PTLRPC_MARK_STORE);
            oss_io_commit(io);
        }
    }
    if (BASE_UNLIKELY(!base_list_empty(&oss->paused))) {
        paused_retry(oss);
    }
}

static void
bulk_go(struct oss_io *io)
{
    ptlrpc_rq_begin(io->rq, PTLRPC_MARK_BULK);
    bulk_start(io);
}

/* ---- READ ---- */

/* A piece of a READ by bulk or inline has moved: the next, or the answer. */
static void
read_next(struct oss_io *io)
{
    io->is_mapped = false;
    io->oss->store_ops->read_unmap(io->oss->store, &io->op);
    if (io->moved < io->length) {
        piece_map(io);
    } else {
        oss_io_answer(io, 0, io->flags & (OST_F_INLINE | OST_F_BULK));
    }
}

static void
read_mapped(struct oss_io *io)
{
    struct oss *oss = io->oss;

    if (io->moved == 0) { /* now it is known how much there is */
        const uint64_t size = io->op.attr.size;

        io->length = io->offset < size ? base_min_u64(io->length, size - io->offset) : 0;
        if ((io->flags & OST_F_INLINE) != 0 && io->length <= OST_INLINE_BYTES_MAX) {
            io->flags &= ~(uint32_t)(OST_F_BULK | OST_F_LEASE);
            oss->stats.inline_count++;
        } else if (io->length > 0) {
            const bool is_lease_better =
                io->length >= OSS_LEASE_BYTES_MIN || (io->flags & OST_F_BULK) == 0;

            io->flags &= ~(uint32_t)OST_F_INLINE;
            if ((io->flags & OST_F_LEASE) != 0 && is_lease_better && io->op.length == io->length &&
                oss_lend(io)) {
                return;
            }
            io->flags &= ~(uint32_t)OST_F_LEASE;
            oss->stats.bulk_count++;
        }
    }
    if (io->op.length == 0) { /* the end, or it was cut meanwhile */
        ptlrpc_rq_end(io->rq, PTLRPC_MARK_STORE, 0, 0);
        oss_io_answer(io, 0, io->flags & (OST_F_INLINE | OST_F_BULK));
        return;
    }
    if ((io->flags & OST_F_CRC) != 0) {
        io->crc32c = oss_io_crc32c(io, io->crc32c, io->op.length);
    }
    if ((io->flags & OST_F_INLINE) != 0) {
        inline_get(io);
        io->moved += io->op.length;
        ptlrpc_rq_end(io->rq, PTLRPC_MARK_STORE, io->op.length, 0);
        read_next(io);
    } else if ((io->flags & OST_F_BULK) != 0) {
        ptlrpc_rq_end(io->rq, PTLRPC_MARK_STORE, 0, 0);
        bulk_go(io);
    } else {
        ptlrpc_rq_end(io->rq, PTLRPC_MARK_STORE, 0, 0);
        oss_io_answer(io, -EAGAIN, 0);
    }
}

/* ---- WRITE ---- */

static void
write_mapped(struct oss_io *io)
{
    struct oss *oss = io->oss;

    if ((io->flags & OST_F_INLINE) != 0) {
        oss->stats.inline_count += io->moved == 0;
        inline_put(io);
        return;
    }
    const bool is_lease_better = io->length >= OSS_LEASE_BYTES_MIN || (io->flags & OST_F_BULK) == 0;

    if ((io->flags & OST_F_LEASE) != 0 && is_lease_better && oss_lend(io)) {
        return;
    }
    io->flags &= ~(uint32_t)OST_F_LEASE;
    ptlrpc_rq_end(io->rq, PTLRPC_MARK_STORE, 0, 0);
    if ((io->flags & OST_F_BULK) != 0) {
        oss->stats.bulk_count += io->moved == 0;
        bulk_go(io);
    } else {
        oss_io_answer(io, -EAGAIN, 0);
    }
}

static void
piece_mapped(struct oss_io *io, int status)
{
    io->state = OSS_IO_IDLE;
    io->is_mapped = status == 0;
    if (status != 0) {
        ptlrpc_rq_end(io->rq, PTLRPC_MARK_STORE, 0, 0);
        oss_io_answer(io, status, io->flags & (OST_F_INLINE | OST_F_BULK));
    } else if (io->is_write) {
        write_mapped(io);
    } else {
        read_mapped(io);
    }
}

static void
store_done(struct ost_store_op *op, int status)
{
    struct oss_io *io = BASE_CONTAINER_OF(op, struct oss_io, op);

    if (io->state == OSS_IO_MAPPING) {
        piece_mapped(io, status);
    } else if (io->state == OSS_IO_SIMPLE) {
        oss_simple_done(io, status);
    } else if (io->state == OSS_IO_SYNCING) {
        io_synced(io, status);
    } else {
        BASE_ASSERT(io->state == OSS_IO_ENDING);
        oss_io_committed(io, status);
    }
}

/* ---- requests ---- */

/*
 * What the length and flags of a request ask for makes sense, and what follows it is there.
 * Errors: -EINVAL; -EPROTO; -EREMOTE; -ENODEV.
 */
static int
request_check(const struct oss *oss, const struct ost_io_req *req, uint32_t bytes, bool is_write)
{
    const uint32_t tail = bytes - (uint32_t)sizeof(*req);
    const uint32_t known = OST_F_INLINE | OST_F_BULK | OST_F_LEASE | OST_F_CRC |
                           (is_write ? OST_F_APPEND | OST_F_SYNC : 0);
    const int rc = oss_object_check(oss, &req->object);
    uint64_t handle_length = 0;
    uint32_t handle_bytes = 0;

    if (BASE_UNLIKELY(rc != 0)) {
        return rc;
    }
    if ((req->flags & ~known) != 0 || req->length > OST_IO_BYTES_MAX ||
        (req->flags & (OST_F_INLINE | OST_F_BULK | OST_F_LEASE)) == 0) {
        return -EINVAL;
    }
    if ((req->flags & OST_F_BULK) != 0) {
        if ((is_write && (req->flags & OST_F_INLINE) != 0) || req->handle_bytes > tail) {
            return -EPROTO;
        }
        if (bulk_handle_check(req + 1, req->handle_bytes, &handle_bytes, &handle_length) != 0 ||
            handle_length < req->length) {
            return -EPROTO;
        }
    } else if (is_write && (req->flags & OST_F_INLINE) != 0 &&
               (req->length > OST_INLINE_BYTES_MAX || req->length > tail)) {
        return -EPROTO;
    }
    return 0;
}

/* An io with what the request says. */
static struct oss_io *
request_io(struct oss *oss, struct ptlrpc_rq *rq, const struct ost_io_req *req, bool is_write)
{
    struct oss_io *io = oss_io_take(oss, rq);

    io->is_write = is_write;
    io->flags = req->flags;
    io->want_crc32c = req->crc32c;
    io->offset = req->offset;
    io->length = req->length;
    io->data = req + 1;
    io->handle_bytes = req->handle_bytes;
    io->op.object = req->object;
    io->op.attr = (struct ost_attr){0};
    if (!oss->has_leases || (is_write && io->length > OST_LEASE_BYTES_MAX)) {
        io->flags &= ~(uint32_t)OST_F_LEASE;
    }
    return io;
}

void
oss_read(struct ptlrpc_rq *rq)
{
    struct oss *oss = ptlrpc_service_user(ptlrpc_rq_service(rq));
    uint32_t bytes = 0;
    const struct ost_io_req *req = ptlrpc_rq_body(rq, &bytes);
    const int rc = request_check(oss, req, bytes, false);

    if (BASE_UNLIKELY(rc != 0)) {
        ptlrpc_rq_reply(rq, rc, 0);
        return;
    }
    piece_map(request_io(oss, rq, req, false));
}

/* Where an APPEND goes. Errors: the store's. */
static int
append_start(struct oss_io *io)
{
    struct oss *oss = io->oss;

    io->append.object = io->op.object;
    io->append.length = io->length;
    const int rc = oss->store_ops->append_begin(oss->store, &io->append);

    if (rc == 0) {
        io->is_append = true;
        io->offset = io->append.offset;
        io->length = io->append.length;
    }
    return rc;
}

void
oss_write(struct ptlrpc_rq *rq)
{
    struct oss *oss = ptlrpc_service_user(ptlrpc_rq_service(rq));
    uint32_t bytes = 0;
    const struct ost_io_req *req = ptlrpc_rq_body(rq, &bytes);
    int rc = request_check(oss, req, bytes, true);

    if (BASE_UNLIKELY(rc != 0)) {
        ptlrpc_rq_reply(rq, rc, 0);
        return;
    }
    struct oss_io *io = request_io(oss, rq, req, true);
    const uint64_t max = (uint64_t)OST_OBJECT_BYTES_MAX;

    if (io->length == 0) {
        (void)oss->store_ops->getattr(oss->store, &io->op);
        oss_io_answer(io, 0, io->flags & (OST_F_INLINE | OST_F_BULK));
        return;
    }
    if ((io->flags & (OST_F_INLINE | OST_F_CRC)) == (OST_F_INLINE | OST_F_CRC) &&
        bulk_crc32c(0, io->data, io->length) != io->want_crc32c) {
        oss->stats.crc_errors++;
        oss_io_answer(io, -EBADMSG, 0);
        return;
    }
    if ((io->flags & OST_F_APPEND) != 0) {
        rc = append_start(io);
    } else if (io->offset >= max) {
        rc = -EFBIG;
    } else {
        io->length = base_min_u64(io->length, max - io->offset);
    }
    if (rc != 0) {
        oss_io_answer(io, rc, 0);
        return;
    }
    piece_map(io);
}
