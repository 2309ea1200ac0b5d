/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One piece of one object: a READ or WRITE, and how its bytes travel.
 *
 *     READ   ASKED -> inline: in the reply                                        -> end
 *                  -> lease:  MOVING (we pull), the lease is given back           -> end
 *                  -> bulk:   the server pushed into the exported memory, CLOSING -> end
 *     WRITE  ASKED -> inline: was in the request                                  -> end
 *                  -> lease:  MOVING (we push) -> COMMITTING                      -> end
 *                  -> bulk:   the server pulled, CLOSING                          -> end
 *
 * Large pieces ask for a lease first, so that the copy runs on this core; memory is exported only
 * when the server has none to lend. A wrong checksum starts the piece again.
 *
 * Leases of reads are gathered per target and given back together. There is room for those of all
 * pieces over a full batch, so none is ever lost.
 */
#include "clients/lib/core.h"

#include <errno.h>
#include <string.h>

static_assert(CLIENT_LEASES_ROOM >= CLIENT_LEASES_BATCH + CLIENT_PIECES_MAX, "no lease is lost");

static void
piece_end(struct osc_piece *piece, int status, uint64_t moved)
{
    lov_piece_done(piece, status, moved);
}

static uint32_t
piece_segments(const struct osc_piece *piece, uint64_t length, struct iovec *out)
{
    const struct lov_io *io = piece->io;
    const uint32_t count = lov_segments(&io->layout, piece->object.stripe, piece->offset, length,
                                        io->iov, io->iov_count, io->offset, out, BULK_SEGMENTS_MAX);

    BASE_ASSERT(count > 0 || length == 0);
    return count;
}

static uint32_t
piece_crc32c(const struct osc_piece *piece, uint64_t length)
{
    struct iovec segments[BULK_SEGMENTS_MAX];
    const uint32_t count = piece_segments(piece, length, segments);
    uint32_t crc = 0;

    for (uint32_t i = 0; i < count; i++) {
        crc = bulk_crc32c(crc, segments[i].iov_base, segments[i].iov_len);
    }
    return crc;
}

/* ---- leases ---- */

static bool
release_send(struct client_target *target)
{
    struct causeway *fs = target->fs;
    struct ptlrpc_request *request = NULL;

    if (target->import != NULL) {
        request = ptlrpc_request_take(target->import, OST_RELEASE);
    }
    if (request == NULL) {
        return false;
    }
    const struct ost_release_req head = {.count = target->lease_count, .copies = target->copies};
    const uint32_t bytes = target->lease_count * (uint32_t)sizeof(target->leases[0]);
    char *body = ptlrpc_request_body(request);

    memcpy(body, &head, sizeof(head));
    memcpy(body + sizeof(head), target->leases, bytes);
    target->lease_count = 0;
    target->copies = (struct ost_copies){0};
    base_list_unlink(&target->lease_link);
    client_request_send_background(fs, request, (uint32_t)sizeof(head) + bytes);
    return true;
}

void
osc_release_flush(struct causeway *fs)
{
    BASE_LIST_FOREACH_SAFE(link, tmp, &fs->lenders) {
        if (!release_send(BASE_CONTAINER_OF(link, struct client_target, lease_link))) {
            return; /* no request is free: later */
        }
    }
}

static void
lease_give_back(struct osc_piece *piece)
{
    struct client_target *target = piece->target;

    if (piece->lease == 0) {
        return;
    }
    BASE_ASSERT(target->lease_count < CLIENT_LEASES_ROOM);
    if (target->lease_count == 0) {
        base_list_append(&target->fs->lenders, &target->lease_link);
    }
    target->leases[target->lease_count++] = piece->lease;
    target->copies.ns += piece->copies.ns;
    target->copies.bytes += piece->copies.bytes;
    target->copies.count += piece->copies.count;
    target->copies.path = piece->copies.path;
    piece->lease = 0;
    if (target->lease_count >= CLIENT_LEASES_BATCH) {
        (void)release_send(target);
    }
}

/* ---- the request ---- */

static void piece_send(struct client_op *op);
static void commit_send(struct osc_piece *piece);

static void
piece_restart(struct osc_piece *piece, uint32_t flags)
{
    piece->flags = flags;
    piece->is_committing = false;
    piece_send(&piece->op);
}

static void
export_closed(struct bulk *bulk, void *user)
{
    struct osc_piece *piece = user;

    (void)bulk;
    piece_end(piece, piece->status, piece->moved);
}

/* The server has answered: the exported memory is ours again, at once or when a copy in it has
 * ended. */
static void
export_end(struct osc_piece *piece, int status, uint64_t moved)
{
    struct bulk_export *export_ = piece->export_;

    piece->export_ = NULL;
    piece->status = status;
    piece->moved = moved;
    if (export_ == NULL || bulk_export_close(export_, export_closed, piece) == 0) {
        piece_end(piece, status, moved);
    }
}

/* ---- who copies ----
 *
 * Which way is the faster one depends on what nobody knows beforehand: whether the lent memory is
 * mapped and touched here already, whether the server's core is idle, and how many share ours. So
 * the time that pieces took is kept as a moving mean, and every so often the other way is tried.
 * Writes begin with bulk, as fresh memory costs the server less than us; reads begin with leases.
 */

#define WAY_TRY_PERIOD 32u

static struct osc_costs *
costs_of(const struct osc_piece *piece)
{
    const uint32_t size_class = piece->length < 65536 ? 0 : piece->length < 1048576 ? 1 : 2;

    return &piece->op.fs->costs[piece->io->is_write ? 1 : 0][size_class];
}

static enum osc_way
way_choose(const struct osc_piece *piece)
{
    struct osc_costs *costs = costs_of(piece);
    const enum osc_way first = piece->io->is_write ? OSC_BY_BULK : OSC_BY_LEASE;
    const enum osc_way second = first == OSC_BY_BULK ? OSC_BY_LEASE : OSC_BY_BULK;
    const bool is_second_better = costs->ns_per_mib[first] != 0 && costs->ns_per_mib[second] != 0 &&
                                  costs->ns_per_mib[second] < costs->ns_per_mib[first];
    const uint32_t count = costs->count++;
    /* Early at growing distances (after 2, 4, 8, ... pieces), then regularly. */
    const bool is_try = count >= 2 && (count & (base_min_u32(count, WAY_TRY_PERIOD) - 1)) == 0;

    return is_second_better != is_try ? second : first;
}

/* A whole piece has moved: how long a MiB of it took. */
static void
way_learn(const struct osc_piece *piece)
{
    const enum osc_way way = (piece->flags & OST_F_LEASE) != 0 ? OSC_BY_LEASE : OSC_BY_BULK;
    uint64_t *mean = &costs_of(piece)->ns_per_mib[way];
    const uint64_t took_ns = lnet_now(piece->op.fs->ctx) - piece->begin_ns;
    uint64_t cost = (took_ns << 20) / piece->length + 1;

    if (*mean != 0) {
        /* One that waited for its core for a time slice shall not decide for long. */
        cost = base_min_u64(cost, 4 * *mean);
        cost = (3 * *mean + cost) / 4;
    }
    *mean = cost;
}

static bool
is_bad_sum_again(struct osc_piece *piece, int status)
{
    return status == -EBADMSG && ++piece->tries < CLIENT_TRIES_MAX;
}

/* The end of a piece that moved inline, by bulk or by COMMIT. */
static void
reply_end(struct osc_piece *piece, int status, uint64_t moved)
{
    if (is_bad_sum_again(piece, status)) {
        piece_restart(piece, piece->flags);
        return;
    }
    if (status == 0 && moved == piece->length && moved > OST_INLINE_BYTES_MAX) {
        way_learn(piece);
    }
    export_end(piece, status, moved);
}

static void
lease_moved(struct bulk *bulk, const struct bulk_result *result, void *user)
{
    struct osc_piece *piece = user;
    const bool is_summed = (piece->flags & OST_F_CRC) != 0;
    int status = result->status;

    piece->copies.ns = lnet_stamp(piece->op.fs->ctx) - piece->copies.ns;
    piece->copies.bytes = result->moved_bytes;
    piece->copies.count = 1;
    piece->copies.path = result->path;
    (void)bulk;
    if (status == 0 && piece->io->is_write) {
        piece->crc32c = result->crc32c;
        commit_send(piece);
        return;
    }
    lease_give_back(piece);
    if (status == 0 && is_summed && result->crc32c != piece->crc32c) {
        status = -EBADMSG;
    }
    reply_end(piece, status, piece->moved);
}

/* Copies between the user's memory and what the server lends. */
static void
lease_move(struct osc_piece *piece, const struct ost_io_rep *rep, const void *handle)
{
    struct causeway *fs = piece->op.fs;
    struct iovec segments[BULK_SEGMENTS_MAX];
    const struct bulk_request request = {
        .op = piece->io->is_write ? BULK_PUSH : BULK_PULL,
        .flags = (piece->flags & OST_F_CRC) != 0 ? BULK_CRC32C : 0,
        .peer = ptlrpc_import_peer(piece->target->import),
        .handle = handle,
        .handle_bytes = rep->handle_bytes,
        .local = segments,
        .local_count = piece_segments(piece, rep->length, segments),
        .length_bytes = rep->length,
        .deadline_ns = fs->now_ns + fs->timeout_ns,
        .done = lease_moved,
        .user = piece,
    };

    piece->lease = rep->lease;
    piece->moved = rep->length;
    piece->crc32c = rep->crc32c;
    piece->copies = (struct ost_copies){.ns = lnet_stamp(fs->ctx)};
    const int rc = bulk_transfer(fs->bulk, &request, NULL);

    if (rc != 0) {
        piece->copies.ns = 0;
    }
    if (rc == -EAGAIN) {
        /* Bulk has its hands full: ask again when something has ended. */
        lease_give_back(piece);
        base_list_append(&fs->starved, &piece->op.link);
    } else if (rc != 0) {
        lease_give_back(piece);
        piece_end(piece, rc, 0);
    }
}

/* Inline data of a READ. */
static int
inline_take(struct osc_piece *piece, const struct ost_io_rep *rep, const char *data)
{
    struct iovec segments[BULK_SEGMENTS_MAX];
    const uint32_t count = piece_segments(piece, rep->length, segments);

    for (uint32_t i = 0; i < count; i++) {
        memcpy(segments[i].iov_base, data, segments[i].iov_len);
        data += segments[i].iov_len;
    }
    if ((rep->flags & OST_F_CRC) != 0 && (piece->flags & OST_F_CRC) != 0 &&
        piece_crc32c(piece, rep->length) != rep->crc32c) {
        return -EBADMSG;
    }
    return 0;
}

/* Says the reply that the server has no memory to lend, where we asked for nothing else? */
static bool
is_unlent(const struct osc_piece *piece, const struct ost_io_rep *rep)
{
    return (piece->flags & OST_F_LEASE) != 0 &&
           (rep->flags & (OST_F_INLINE | OST_F_BULK | OST_F_LEASE)) == 0 &&
           (piece->io->is_write || rep->attr.size > piece->offset);
}

static void
piece_answered(struct osc_piece *piece, const struct ost_io_rep *rep, const char *tail,
               uint32_t tail_bytes)
{
    const bool is_write = piece->io->is_write;
    int status = 0;

    piece->attr = rep->attr;
    piece->where = rep->offset;
    if (rep->length > piece->length) {
        reply_end(piece, -EPROTO, 0);
    } else if (is_unlent(piece, rep)) {
        piece_restart(piece, (piece->flags & ~(uint32_t)OST_F_LEASE) | OST_F_BULK);
    } else if ((rep->flags & OST_F_LEASE) != 0) {
        if ((piece->flags & OST_F_LEASE) == 0 || rep->handle_bytes > tail_bytes ||
            rep->handle_bytes > BULK_HANDLE_BYTES_MAX) {
            reply_end(piece, -EPROTO, 0);
        } else {
            lease_move(piece, rep, tail);
        }
    } else if ((rep->flags & OST_F_BULK) != 0) {
        if (!is_write && (rep->flags & OST_F_CRC) != 0 && (piece->flags & OST_F_CRC) != 0 &&
            piece_crc32c(piece, rep->length) != rep->crc32c) {
            status = -EBADMSG;
        }
        reply_end(piece, (piece->flags & OST_F_BULK) != 0 ? status : -EPROTO, rep->length);
    } else if ((piece->flags & OST_F_INLINE) != 0 && (is_write || rep->length <= tail_bytes)) {
        status = is_write ? 0 : inline_take(piece, rep, tail);
        reply_end(piece, status, rep->length);
    } else if (rep->length == 0) {
        reply_end(piece, 0, 0);
    } else {
        reply_end(piece, -EPROTO, 0);
    }
}

static void
piece_replied(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes,
              void *user)
{
    struct osc_piece *piece = user;
    struct ost_io_rep rep;

    (void)request;
    if (status == -EAGAIN && (piece->flags & OST_F_LEASE) != 0) {
        /* Nothing to lend: let the server copy. */
        piece_restart(piece, (piece->flags & ~(uint32_t)OST_F_LEASE) | OST_F_BULK);
        return;
    }
    if (status == 0 && bytes < sizeof(rep)) {
        status = -EPROTO;
    }
    if (status != 0) {
        reply_end(piece, status, 0);
        return;
    }
    memcpy(&rep, body, sizeof(rep));
    piece_answered(piece, &rep, (const char *)body + sizeof(rep), bytes - (uint32_t)sizeof(rep));
}

/* Writes what follows the fixed part: data or handle. Returns its size, or a negative errno. */
static int64_t
tail_write(struct osc_piece *piece, struct ost_io_req *req, char *tail)
{
    struct causeway *fs = piece->op.fs;
    struct iovec segments[BULK_SEGMENTS_MAX];
    const bool is_write = piece->io->is_write;

    if ((piece->flags & OST_F_BULK) != 0) {
        if (piece->export_ == NULL) {
            const int rc =
                bulk_export(fs->bulk, ptlrpc_import_peer(piece->target->import), segments,
                            piece_segments(piece, piece->length, segments),
                            is_write ? LNET_ACCESS_READ : LNET_ACCESS_WRITE, &piece->export_);

            if (rc != 0) {
                piece->export_ = NULL;
                return rc;
            }
        }
        req->handle_bytes = bulk_export_pack(piece->export_, tail, BULK_HANDLE_BYTES_MAX);
        return req->handle_bytes;
    }
    if (is_write && (piece->flags & OST_F_INLINE) != 0) {
        const uint32_t count = piece_segments(piece, piece->length, segments);

        for (uint32_t i = 0; i < count; i++) {
            memcpy(tail, segments[i].iov_base, segments[i].iov_len);
            tail += segments[i].iov_len;
        }
        return (int64_t)piece->length;
    }
    return 0;
}

static void
piece_send(struct client_op *op)
{
    struct osc_piece *piece = BASE_CONTAINER_OF(op, struct osc_piece, op);
    const struct lov_io *io = piece->io;
    void *body = NULL;
    int rc = 0;

    if (piece->is_committing) {
        commit_send(piece);
        return;
    }
    struct ptlrpc_request *request =
        client_request_take(op, piece->target, io->is_write ? OST_WRITE : OST_READ, &body, &rc);

    if (request != NULL) {
        struct ost_io_req *req = body;

        *req = (struct ost_io_req){
            .object = piece->object,
            .offset = piece->offset,
            .length = piece->length,
            .flags = piece->flags,
        };
        if (io->is_write && (piece->flags & OST_F_CRC) != 0 && (piece->flags & OST_F_LEASE) == 0) {
            req->crc32c = piece_crc32c(piece, piece->length);
        }
        const int64_t tail_bytes = tail_write(piece, req, (char *)(req + 1));

        if (tail_bytes < 0) {
            ptlrpc_request_drop(request);
            rc = (int)tail_bytes;
            if (rc == -EAGAIN) {
                base_list_append(&op->fs->starved, &op->link);
            }
        } else {
            rc = ptlrpc_request_send(request, (uint32_t)sizeof(*req) + (uint32_t)tail_bytes,
                                     piece_replied, piece);
        }
    }
    if (rc != 0 && rc != -EAGAIN) {
        export_end(piece, rc, 0);
    }
}

static void
commit_replied(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes,
               void *user)
{
    struct osc_piece *piece = user;
    struct ost_io_rep rep;

    (void)request;
    if (status == 0 && bytes < sizeof(rep)) {
        status = -EPROTO;
    }
    if (status == 0) {
        memcpy(&rep, body, sizeof(rep));
        piece->attr = rep.attr;
        piece->where = rep.offset;
        if (rep.length > piece->length) {
            status = -EPROTO;
        }
    }
    piece->lease = 0; /* ended by COMMIT, whatever it said */
    reply_end(piece, status, status == 0 ? rep.length : 0);
}

static void
commit_send(struct osc_piece *piece)
{
    void *body = NULL;
    int rc = 0;

    piece->is_committing = true;
    struct ptlrpc_request *request =
        client_request_take(&piece->op, piece->target, OST_COMMIT, &body, &rc);

    if (request != NULL) {
        *(struct ost_commit_req *)body = (struct ost_commit_req){
            .object = piece->object,
            .lease = piece->lease,
            .length = piece->moved,
            .flags = piece->flags & (OST_F_SYNC | OST_F_CRC),
            .crc32c = piece->crc32c,
            .copies = piece->copies,
        };
        rc = ptlrpc_request_send(request, sizeof(struct ost_commit_req), commit_replied, piece);
    }
    if (rc != 0 && rc != -EAGAIN) {
        piece->lease = 0; /* the export that it belonged to is gone */
        piece_end(piece, rc, 0);
    }
}

void
osc_piece_start(struct osc_piece *piece)
{
    const struct lov_io *io = piece->io;
    const struct causeway *fs = piece->op.fs;
    const bool can_lease = fs->has_lease && piece->length > OST_INLINE_BYTES_MAX &&
                           piece->length <= OST_LEASE_BYTES_MAX &&
                           piece->target->lease_count < CLIENT_LEASES_BATCH &&
                           way_choose(piece) == OSC_BY_LEASE;
    uint32_t flags = fs->has_checksum ? OST_F_CRC : 0;

    if (piece->length <= OST_INLINE_BYTES_MAX) {
        flags |= OST_F_INLINE;
    } else {
        flags |= can_lease ? OST_F_LEASE : OST_F_BULK;
        /* What a read finds may be short enough to come with the reply. */
        flags |= io->is_write ? 0 : OST_F_INLINE;
    }
    if (io->is_write) {
        flags |= io->is_append ? OST_F_APPEND : 0;
        flags |= io->is_sync ? OST_F_SYNC : 0;
    }
    piece->op.start = piece_send;
    piece->begin_ns = fs->now_ns;
    piece->flags = flags;
    piece->moved = 0;
    piece->lease = 0;
    piece->tries = 0;
    piece->status = 0;
    piece->where = 0;
    piece->attr.size = 0;
    piece->is_committing = false;
    piece->export_ = NULL;
    piece_send(&piece->op);
}
