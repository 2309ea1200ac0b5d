/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The machinery of operations over several reactors: see out.h.
 *
 * Answers, of this reactor too, are queued and taken by mds_wake_run(): continuations never nest.
 */
#include "servers/mds/out.h"

#include "base/hash.h"

#include <errno.h>
#include <string.h>

#define AGAIN_NS UINT64_C(50000)

static_assert(sizeof(struct mds_op) <= ARENA_BYTES_MAX, "comes from the arena");

struct mds_op *
mds_op_begin(struct mds *mds, const struct mds_call *call)
{
    struct mds_op *op = arena_take(&mds->arena, sizeof(*op));

    if (op == NULL) {
        return NULL;
    }
    (void)memset(op, 0, offsetof(struct mds_op, u));
    base_list_init(&op->link);
    op->mds = mds;
    op->parked = mds_park(mds, call, MDS_PARKED_REMOTE, NULL);
    if (op->parked == NULL) {
        arena_return(&mds->arena, op, sizeof(*op));
        return NULL;
    }
    mds->counters.remote_ops++;
    mds->counters.ops_now++;
    return op;
}

static void
op_free(struct mds_op *op)
{
    struct mds *mds = op->mds;

    BASE_ASSERT(op->dir == NULL);
    BASE_ASSERT(!op->has_token && !op->is_prepared);
    mds->counters.ops_now--;
    arena_return(&mds->arena, op, sizeof(*op));
}

void
mds_op_ready(struct mds_op *op, int status)
{
    op->status = status;
    base_list_append(&op->mds->ready, &op->link);
    mds_wake(op->mds);
}

void
mds_op_ask(struct mds_op *op, uint32_t reactor, enum out_opc opc, const struct out_req *req,
           const char *path, void (*next)(struct mds_op *op))
{
    struct mds *mds = op->mds;

    op->next = next;
    if (reactor != mds->reactor) {
        const int rc = mds->env.out(mds, reactor, (uint16_t)opc, req, path, op);

        if (rc != 0) {
            mds_op_ready(op, rc);
        }
        return;
    }
    /* An own answer is as good; a path that ends up here is short of the network only. */
    struct out_req *body = mds->out_body;

    *body = *req;
    if (req->path_bytes > 0) {
        (void)memcpy(body + 1, path, req->path_bytes);
    }
    struct mds_call call = {
        .body = body,
        .body_bytes = (uint32_t)sizeof(*body) + req->path_bytes,
        .reply = &op->u,
        .reply_max = sizeof(op->u),
        .opc = (uint16_t)opc,
        .op = op,
    };
    const int rc = mds_out_execute(mds, &call);

    if (rc != MDS_PARKED) {
        mds_op_ready(op, rc);
    }
}

void
mds_op_tell(struct mds_op *op, uint32_t reactor, enum out_opc opc, const struct out_req *req)
{
    struct mds *mds = op->mds;

    if (reactor != mds->reactor) {
        (void)mds->env.out(mds, reactor, (uint16_t)opc, req, NULL, NULL);
        return;
    }
    struct out_rep rep;
    struct mds_call call = {
        .body = req,
        .body_bytes = sizeof(*req),
        .reply = &rep,
        .reply_max = sizeof(rep),
        .opc = (uint16_t)opc,
    };

    (void)mds_out_execute(mds, &call);
}

void
mds_out_done(struct mds *mds, struct mds_op *op, int status, const void *body, uint32_t bytes)
{
    (void)mds;
    if (op == NULL) {
        return;
    }
    if (status == 0 && (bytes < sizeof(op->u.rep) || bytes > sizeof(op->u))) {
        status = -EPROTO;
    }
    if (status == 0) {
        (void)memcpy(&op->u, body, bytes);
        if (op->u.rep.text_bytes > bytes - sizeof(op->u.rep)) {
            status = -EPROTO;
        }
    }
    mds_op_ready(op, status);
}

void
mds_op_end(struct mds_op *op, int status)
{
    struct mds *mds = op->mds;
    struct mds_parked *parked = op->parked;

    op_free(op);
    if (status != 0) {
        parked->call.reply_bytes = 0;
    }
    mds_parked_finish(mds, parked, status);
}

void
mds_op_again(struct mds_op *op)
{
    struct mds *mds = op->mds;
    struct mds_parked *parked = op->parked;

    op_free(op);
    if (parked->until_ns <= mds->now_ns) {
        mds_parked_complete(mds, parked, -ETIMEDOUT);
        return;
    }
    parked->why = MDS_PARKED_RERUN;
    base_list_append(&mds->later, &parked->link);
    mds->again_ns = base_min_u64(mds->again_ns, mds->now_ns + AGAIN_NS);
    mds->env.wake_at(mds, mds->again_ns);
}

void
mds_op_reply_stop(struct mds_op *op, const struct mds_rep_head *stop, const char *text,
                  uint32_t text_bytes)
{
    struct mds_call *call = &op->parked->call;
    struct mds_rep_head *reply = call->reply;

    *reply = *stop;
    reply->link_bytes = (uint16_t)text_bytes;
    (void)memcpy(reply + 1, text, text_bytes);
    call->reply_bytes = (uint32_t)sizeof(*reply) + text_bytes;
}

bool
mds_op_stop_needs_text(struct mds_op *op, void (*next)(struct mds_op *op))
{
    const struct out_rep *rep = &op->u.rep;

    op->stop = (struct mds_rep_head){
        .fid = rep->fid,
        .walk = rep->walk,
        .consumed = rep->consumed,
        .which = 1,
    };
    if (rep->walk == MDS_WALK_SYMLINK && rep->text_bytes == 0) {
        const struct fid link = rep->attr.fid;

        mds_op_ask(op, fid_mds_owner(&link, op->mds->reactors), OUT_READLINK,
                   &(struct out_req){.fid = link}, NULL, next);
        return true;
    }
    mds_op_reply_stop(op, &op->stop, (const char *)(rep + 1), rep->text_bytes);
    return false;
}

void
mds_op_run(struct mds *mds)
{
    while (!base_list_empty(&mds->ready)) {
        struct mds_op *op = BASE_CONTAINER_OF(base_list_first(&mds->ready), struct mds_op, link);

        base_list_unlink(&op->link);
        op->next(op);
    }
}

void
mds_op_mark(struct mds_op *op, struct mdt_inode *dir, struct mdt_dirent *dirent, uint8_t busy)
{
    BASE_ASSERT(dirent->is_busy == 0);
    dirent->is_busy = busy;
    dir->busy_count++;
    op->dir = dir;
    op->dirent = dirent;
}

void
mds_op_unmark(struct mds_op *op)
{
    BASE_ASSERT(op->dirent->is_busy != 0 && op->dir->busy_count > 0);
    op->dirent->is_busy = 0;
    op->dir->busy_count--;
    op->dir = NULL;
    op->dirent = NULL;
    mds_wake(op->mds);
}

uint32_t
mds_place_of(const struct mds *mds, const struct fid *parent, const char *name, uint32_t bytes)
{
    return (uint32_t)(base_hash_bytes(name, bytes, fid_hash(parent)) % mds->reactors);
}
