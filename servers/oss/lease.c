/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases: the store's own memory, lent to a client that makes the copy itself.
 *
 * A lease is an io in state LENT. It ends by COMMIT (WRITE), RELEASE, the end of the client's
 * export, or when it is OSS_LEASE_NS old. First of all its bulk export is closed, so that late
 * copies are refused; only when the last copy under way has ended does the store get its memory
 * back. A WRITE lease that ends without COMMIT is aborted: nothing of it becomes part of the
 * object.
 *
 * Invariants:
 *   I1  an io is on its client's list and on oss->leases if and only if it is LENT
 *   I2  a client has at most OSS_CLIENT_LEASES_MAX of them, all together OSS_LEASES_MAX with those
 *       that are CLOSING without a request: so the pool has an io for every request
 */
#include "servers/oss/oss.h"

#include <errno.h>
#include <string.h>

#define LEASE_INDEX_BITS 16u

static_assert(OSS_IOS_MAX < 1u << LEASE_INDEX_BITS, "an id has room for an index");

bool
oss_lend(struct oss_io *io)
{
    struct oss *oss = io->oss;
    struct ptlrpc_export *export_ = ptlrpc_rq_export(io->rq);
    struct oss_client *client = export_ != NULL ? ptlrpc_export_user(export_) : NULL;
    struct ptlrpc_rq *rq = io->rq;
    struct ost_io_rep *rep = ptlrpc_rq_reply_body(rq);

    if (client == NULL || client->lease_count >= OSS_CLIENT_LEASES_MAX ||
        oss->stats.leases_out >= OSS_LEASES_MAX || oss->is_closed) {
        return false;
    }
    const uint64_t deadline_ns = lnet_now(oss->ctx) + OSS_LEASE_NS;

    /* First of all, for a lease without an end must not be. */
    if (!oss->is_lease_armed) {
        oss->is_lease_armed = lnet_timer_arm(oss->ctx, &oss->lease_timer, deadline_ns) == 0;
    }
    if (!oss->is_lease_armed) {
        return false;
    }
    const int rc = bulk_export(oss->bulk, ptlrpc_export_peer(export_), io->iov, io->op.iov_count,
                               io->is_write ? LNET_ACCESS_WRITE : LNET_ACCESS_READ, &io->export_);

    if (rc != 0) {
        return false;
    }
    const bool is_summed = !io->is_write && (io->flags & OST_F_CRC) != 0;

    const uint32_t index = base_pool_index(&oss->ios, io);

    io->lease = (++oss->lease_serial << LEASE_INDEX_BITS) | index;
    oss->lease_ids[index] = io->lease;
    *rep = (struct ost_io_rep){
        .length = io->op.length,
        .offset = io->op.offset,
        .lease = io->lease,
        .flags = OST_F_LEASE | (is_summed ? OST_F_CRC : 0),
        .crc32c = is_summed ? oss_io_crc32c(io, 0, io->op.length) : 0,
        .handle_bytes = bulk_export_pack(io->export_, rep + 1, BULK_HANDLE_BYTES_MAX),
        .attr = io->op.attr,
    };
    BASE_ASSERT(rep->handle_bytes > 0);
    ptlrpc_rq_end(rq, PTLRPC_MARK_STORE, io->is_write ? 0 : io->op.length, 0);
    io->state = OSS_IO_LENT;
    io->rq = NULL;
    io->client = client;
    io->deadline_ns = deadline_ns;
    base_list_append(&client->leases, &io->client_link);
    client->lease_count++;
    base_list_append(&oss->leases, &io->link);
    oss->stats.leases_out++;
    oss->stats.leases_total++;
    oss->stats.lease_count++;
    ptlrpc_rq_reply(rq, 0, (uint32_t)sizeof(*rep) + rep->handle_bytes);
    return true;
}

/* Nobody can reach the memory any more. */
static void
lease_closed(struct oss_io *io)
{
    struct oss *oss = io->oss;

    io->state = OSS_IO_IDLE;
    oss->stats.leases_out--;
    if (io->rq == NULL) {
        oss->stats.lease_aborts += io->is_write;
        oss_io_unmap(io);
        oss_io_return(io);
        return;
    }
    if ((io->flags & OST_F_CRC) != 0 && oss_io_crc32c(io, 0, io->commit_bytes) != io->want_crc32c) {
        oss->stats.crc_errors++;
        oss_io_answer(io, -EBADMSG, 0);
        return;
    }
    ptlrpc_rq_begin(io->rq, PTLRPC_MARK_STORE);
    oss_io_commit(io);
}

static void
export_closed(struct bulk *bulk, void *user)
{
    (void)bulk;
    lease_closed(user);
}

/* Takes the memory back; goes on in lease_closed(). */
static void
lease_close(struct oss_io *io)
{
    BASE_ASSERT(io->state == OSS_IO_LENT); /* I1 */
    base_list_unlink(&io->client_link);
    io->client->lease_count--;
    base_list_unlink(&io->link);
    io->oss->lease_ids[base_pool_index(&io->oss->ios, io)] = 0;
    io->state = OSS_IO_CLOSING;
    if (bulk_export_close(io->export_, export_closed, io) == 0) {
        lease_closed(io);
    }
}

void
oss_leases_end(struct oss_client *client)
{
    while (!base_list_empty(&client->leases)) {
        lease_close(
            BASE_CONTAINER_OF(base_list_first(&client->leases), struct oss_io, client_link));
    }
}

void
oss_lease_timer(struct lnet *ctx, void *arg)
{
    struct oss *oss = arg;
    uint32_t count = 0;

    oss->is_lease_armed = false;
    while (!base_list_empty(&oss->leases)) {
        struct oss_io *io = BASE_CONTAINER_OF(base_list_first(&oss->leases), struct oss_io, link);

        if (io->deadline_ns > lnet_now(ctx)) {
            oss->is_lease_armed = lnet_timer_arm(ctx, &oss->lease_timer, io->deadline_ns) == 0;
            if (oss->is_lease_armed) {
                break;
            }
        }
        lease_close(io);
        count++;
    }
    if (count > 0) {
        base_log_printf(&oss->log, BASE_LOG_INFO, "oss", "took back %u leases that were not ended",
                        count);
    }
}

/* The io of a lease of @rq's client, or NULL. */
static struct oss_io *
lease_find(const struct oss *oss, const struct ptlrpc_rq *rq, uint64_t lease)
{
    const uint32_t index = (uint32_t)(lease & ((1u << LEASE_INDEX_BITS) - 1));
    const struct ptlrpc_export *export_ = ptlrpc_rq_export(rq);

    if (lease == 0 || index >= oss->ios.total_count || export_ == NULL) {
        return NULL;
    }
    if (oss->lease_ids[index] != lease) { /* the io itself may be in the pool */
        return NULL;
    }
    struct oss_io *io = base_pool_at(&oss->ios, index);

    return io->client == ptlrpc_export_user(export_) ? io : NULL;
}

/* Counts what a client tells of its copies. */
static void
count_copies(struct oss *oss, const struct ost_copies *copies)
{
    if (copies->path < BULK_PATH_COUNT) {
        oss->stats.copy_count[copies->path] += copies->count;
        oss->stats.copy_bytes[copies->path] += copies->bytes;
        oss->stats.copy_ns[copies->path] += copies->ns;
    }
}

void
oss_commit(struct ptlrpc_rq *rq)
{
    struct oss *oss = ptlrpc_service_user(ptlrpc_rq_service(rq));
    uint32_t bytes = 0;
    const struct ost_commit_req *req = ptlrpc_rq_body(rq, &bytes);
    struct oss_io *io = lease_find(oss, rq, req->lease);

    if (io == NULL || !io->is_write) {
        ptlrpc_rq_reply(rq, -ESTALE, 0);
        return;
    }
    if (req->length > io->op.length || (req->flags & ~(uint32_t)(OST_F_SYNC | OST_F_CRC)) != 0 ||
        memcmp(&req->object, &io->op.object, sizeof(req->object)) != 0) {
        ptlrpc_rq_reply(rq, -EINVAL, 0);
        return;
    }
    count_copies(oss, &req->copies);
    io->rq = rq;
    io->flags = req->flags | OST_F_LEASE;
    io->want_crc32c = req->crc32c;
    io->commit_bytes = req->length;
    lease_close(io);
}

void
oss_release(struct ptlrpc_rq *rq)
{
    struct oss *oss = ptlrpc_service_user(ptlrpc_rq_service(rq));
    uint32_t bytes = 0;
    const struct ost_release_req *req = ptlrpc_rq_body(rq, &bytes);
    const char *ids = (const char *)(req + 1);

    if (req->count > (bytes - sizeof(*req)) / sizeof(uint64_t)) {
        ptlrpc_rq_reply(rq, -EPROTO, 0);
        return;
    }
    count_copies(oss, &req->copies);
    for (uint32_t i = 0; i < req->count; i++) {
        uint64_t lease = 0;

        (void)memcpy(&lease, ids + i * sizeof(lease), sizeof(lease));
        struct oss_io *io = lease_find(oss, rq, lease);

        if (io != NULL) {
            lease_close(io);
        }
    }
    ptlrpc_rq_reply(rq, 0, 0);
}
