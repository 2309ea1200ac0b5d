/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RENAME over several reactors, or of a directory to another one. See out.h.
 *
 *   token -> mark the old name -> prepare (find and mark the new one) -> source and victim: stat
 *   -> is either below itself? -> permitted? -> victim: one name less -> commit (the new name means
 *   the source) -> the old name goes -> source: new parent, ctime -> release -> token free -> reply
 *
 * Up to and with "permitted?" it can be given up; the victim may refuse (not empty, busy). After
 * that nothing can fail but the machine. Both names are busy from first to last, so nobody sees the
 * file under both names, or under none.
 */
#include "servers/mds/out.h"

#include <dirent.h>
#include <errno.h>

static uint32_t
owner_of(const struct mds_op *op, const struct fid *fid)
{
    return fid_mds_owner(fid, op->mds->reactors);
}

/* ---- the end ---- */

static void
rename_released(struct mds_op *op)
{
    op->is_prepared = false;
    if (op->dir != NULL) {
        mds_op_unmark(op);
    }
    if (op->has_token) {
        op->has_token = false;
        mds_op_tell(op, 0, OUT_TOKEN_FREE, &(struct out_req){0});
    }
    if (op->is_retry) {
        mds_op_again(op);
    } else {
        mds_op_end(op, op->end_status);
    }
}

/* Lets go of everything and answers with @status. */
static void
rename_end(struct mds_op *op, int status)
{
    op->end_status = status;
    if (op->is_prepared) {
        mds_op_ask(op, op->to_reactor, OUT_RELEASE, &(struct out_req){0}, NULL, rename_released);
    } else {
        rename_released(op);
    }
}

/* The same for an answer that is no success; -EAGAIN begins again. */
static void
rename_fail(struct mds_op *op, int status)
{
    op->is_retry = status == -EAGAIN;
    rename_end(op, status);
}

/* ---- the change ---- */

static void
rename_reply(struct mds_op *op, const struct fid *fid)
{
    struct mds_getattr_rep *reply = op->parked->call.reply;

    reply->head = (struct mds_rep_head){.fid = *fid, .walk = MDS_WALK_DONE};
    reply->attr = (struct mds_attr){0};
    if (op->to_type != DT_UNKNOWN && !op->is_exchange) {
        reply->attr = op->to_attr;
    }
    op->parked->call.reply_bytes = sizeof(*reply);
}

static void
rename_all_moved(struct mds_op *op)
{
    rename_end(op, 0);
}

static void
rename_source_moved(struct mds_op *op)
{
    if (op->is_exchange) {
        const bool moves = op->to_type == DT_DIR && !op->is_same_dir;
        const struct fid none = {0};

        mds_op_ask(op, owner_of(op, &op->to_fid), OUT_MOVED,
                   &(struct out_req){.fid = op->to_fid, .fid2 = moves ? op->from_dir : none}, NULL,
                   rename_all_moved);
        return;
    }
    rename_end(op, 0);
}

static void
rename_committed(struct mds_op *op)
{
    struct mds *mds = op->mds;
    struct mdt_inode *dir = op->dir;
    struct mdt_dirent *dirent = op->dirent;
    const struct fid fid = dirent->fid;
    const bool is_dir = dirent->type == DT_DIR;
    const bool moves = is_dir && !op->is_same_dir;
    const struct fid none = {0};

    if (op->status != 0) {
        rename_end(op, -EIO); /* a reactor does not work: what it holds is lost with the process */
        return;
    }
    mds_op_unmark(op);
    if (op->is_exchange) {
        struct mdt_inode *inode = NULL;

        if (mds_is_own(mds, &op->to_fid)) {
            (void)mds->ops->get(mds->store, &op->to_fid, &inode);
        }
        mds->ops->retarget(mds->store, dirent, inode, &op->to_fid, op->to_type);
        dir->attr.nlink += op->to_type == DT_DIR ? 1 : 0;
    } else {
        mds->ops->remove(mds->store, dirent);
    }
    dir->attr.nlink -= is_dir ? 1 : 0;
    mds_dir_touch(mds, dir);
    rename_reply(op, &fid);
    mds_op_ask(op, owner_of(op, &fid), OUT_MOVED,
               &(struct out_req){.fid = fid, .fid2 = moves ? op->to_dir_attr.fid : none}, NULL,
               rename_source_moved);
}

static void
rename_commit(struct mds_op *op)
{
    const struct out_req req = {
        .fid = op->dirent->fid,
        .type = op->dirent->type,
        .flags = op->to_type == DT_DIR ? OUT_VICTIM_DIR : 0u,
    };

    mds_op_ask(op, op->to_reactor, OUT_COMMIT, &req, NULL, rename_committed);
}

static void
rename_victim_gone(struct mds_op *op)
{
    if (op->status != 0) {
        rename_fail(op, op->status);
        return;
    }
    op->to_attr = op->u.rep.attr;
    rename_commit(op);
}

/* ---- the checks ---- */

static void
rename_check(struct mds_op *op)
{
    const struct mds_rename_req *req = op->parked->call.body;
    const struct mds_rename_view view = {
        .from_dir = op->dir,
        .from = &op->from_attr,
        .to_dir = &op->to_dir_attr,
        .to = op->to_type == DT_UNKNOWN ? NULL : &op->to_attr,
        .is_same_dir = op->is_same_dir,
        .is_exchange = op->is_exchange,
    };
    const int rc = mds_rename_permitted(&view, req->head.uid, req->head.gid);

    if (rc != 0) {
        rename_end(op, rc);
    } else if (view.to == NULL || op->is_exchange) {
        rename_commit(op);
    } else {
        mds_op_ask(op, owner_of(op, &op->to_fid), OUT_UNLINK,
                   &(struct out_req){
                       .fid = op->to_fid,
                       .flags = op->to_type == DT_DIR ? OUT_IS_DIR : 0u,
                   },
                   NULL, rename_victim_gone);
    }
}

/* Climbs from op->climb; @next gets the answer, and goes on if it is OUT_GO_ON. */
static void
rename_climb(struct mds_op *op, const struct fid *sought, void (*next)(struct mds_op *op))
{
    mds_op_ask(op, owner_of(op, &op->climb), OUT_ANCESTOR,
               &(struct out_req){.fid = op->climb, .fid2 = *sought}, NULL, next);
}

static void
rename_victim_climbed(struct mds_op *op)
{
    if (op->status != 0) {
        rename_fail(op, op->status);
    } else if (op->u.rep.answer == OUT_GO_ON) {
        op->climb = op->u.rep.fid;
        rename_climb(op, &op->to_fid, rename_victim_climbed);
    } else if (op->u.rep.answer == OUT_YES) {
        rename_end(op, op->is_exchange ? -EINVAL : -ENOTEMPTY);
    } else {
        rename_check(op);
    }
}

/* The source is not below itself; the victim must not be above the source either. */
static void
rename_climb_victim(struct mds_op *op)
{
    if (op->to_type == DT_DIR && !op->is_same_dir) {
        op->climb = op->from_dir;
        rename_climb(op, &op->to_fid, rename_victim_climbed);
    } else {
        rename_check(op);
    }
}

static void
rename_source_climbed(struct mds_op *op)
{
    if (op->status != 0) {
        rename_fail(op, op->status);
    } else if (op->u.rep.answer == OUT_GO_ON) {
        op->climb = op->u.rep.fid;
        rename_climb(op, &op->dirent->fid, rename_source_climbed);
    } else if (op->u.rep.answer == OUT_YES) {
        rename_end(op, -EINVAL);
    } else {
        rename_climb_victim(op);
    }
}

static void
rename_climb_source(struct mds_op *op)
{
    if (op->dirent->type == DT_DIR && !op->is_same_dir) {
        op->climb = op->to_dir_attr.fid;
        rename_climb(op, &op->dirent->fid, rename_source_climbed);
    } else {
        rename_climb_victim(op);
    }
}

static void
rename_victim_known(struct mds_op *op)
{
    if (op->status != 0) {
        rename_fail(op, op->status == -ESTALE ? -EAGAIN : op->status);
        return;
    }
    op->to_attr = op->u.rep.attr;
    rename_climb_source(op);
}

static void
rename_source_known(struct mds_op *op)
{
    if (op->status != 0) {
        rename_fail(op, op->status == -ESTALE ? -EAGAIN : op->status);
        return;
    }
    op->from_attr = op->u.rep.attr;
    if (op->to_type == DT_UNKNOWN) {
        rename_climb_source(op);
    } else {
        mds_op_ask(op, owner_of(op, &op->to_fid), OUT_STAT, &(struct out_req){.fid = op->to_fid},
                   NULL, rename_victim_known);
    }
}

/* ---- the names ---- */

static void
rename_on_text(struct mds_op *op)
{
    if (op->status != 0) {
        rename_fail(op, -EAGAIN);
        return;
    }
    mds_op_reply_stop(op, &op->stop, (const char *)(&op->u.rep + 1), op->u.rep.text_bytes);
    rename_end(op, 0);
}

static void
rename_prepared(struct mds_op *op)
{
    const struct out_rep *rep = &op->u.rep;

    if (op->status != 0) {
        rename_fail(op, op->status);
        return;
    }
    if (rep->walk != MDS_WALK_DONE) {
        if (!mds_op_stop_needs_text(op, rename_on_text)) {
            rename_end(op, 0);
        }
        return;
    }
    if (op->end_status != 0) {
        rename_end(op, op->end_status);
        return;
    }
    if (rep->answer == OUT_YES) {
        rename_reply(op, &op->dirent->fid);
        rename_end(op, 0);
        return;
    }
    op->is_prepared = true;
    op->to_fid = rep->fid;
    op->to_type = rep->type;
    op->to_dir_attr = rep->attr;
    op->is_same_dir = fid_equal(&op->to_dir_attr.fid, &op->from_dir);
    mds_op_ask(op, owner_of(op, &op->dirent->fid), OUT_STAT,
               &(struct out_req){.fid = op->dirent->fid}, NULL, rename_source_known);
}

static void
rename_has_token(struct mds_op *op)
{
    struct mds *mds = op->mds;
    struct mds_call *call = &op->parked->call;
    const uint32_t flags = ((const struct mds_req_head *)call->body)->flags;
    struct mds_where from;
    struct mds_where to;
    struct mds_place place;

    if (op->status != 0) {
        rename_fail(op, op->status);
        return;
    }
    op->has_token = true;
    int rc = mds_where_init2(&from, &to, call, MDS_RENAME_NOREPLACE | MDS_RENAME_EXCHANGE);

    if (rc == 0) {
        rc = mds_walk(mds, call, &from, MDS_WALK_PARENT, &place);
    }
    if (rc == MDS_STOPPED) {
        rename_end(op, 0);
        return;
    }
    if (rc != 0) {
        rename_fail(op, rc > 0 || rc == -EINPROGRESS ? -EAGAIN : rc);
        return;
    }
    op->end_status = mds_rename_source(&place);
    op->is_exchange = (flags & MDS_RENAME_EXCHANGE) != 0;
    op->to_reactor = owner_of(op, to.base);
    struct out_req req = {
        .fid2 = *to.base,
        .uid = to.uid,
        .gid = to.gid,
        .flags = ((flags & MDS_RENAME_NOREPLACE) != 0 ? OUT_NOREPLACE : 0u) |
                 (op->is_exchange ? OUT_EXCHANGE : 0u),
        .path_bytes = (uint16_t)to.bytes,
    };

    if (op->end_status != 0) {
        req.flags |= OUT_CHECK; /* what is wrong with the way to the new name comes first */
    } else {
        mds_op_mark(op, place.dir, place.dirent, MDS_BUSY_TOKEN);
        op->from_dir = place.dir->attr.fid;
        req.fid = place.dirent->fid;
        req.type = place.dirent->type;
    }
    mds_op_ask(op, op->to_reactor, OUT_PREPARE, &req, to.path, rename_prepared);
}

int
mds_remote_rename(struct mds *mds, struct mds_call *call)
{
    struct mds_op *op = mds_op_begin(mds, call);

    if (op == NULL) {
        return -EAGAIN;
    }
    mds_op_ask(op, 0, OUT_TOKEN, &(struct out_req){0}, NULL, rename_has_token);
    return MDS_PARKED;
}
