/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations over several reactors, at their coordinator: all but RENAME. See out.h.
 */
#include "servers/mds/out.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

/* Writes the client's reply: attributes from elsewhere. */
static void
op_reply_attr(struct mds_op *op, const struct mds_attr *attr)
{
    struct mds_getattr_rep *reply = op->parked->call.reply;

    reply->head = (struct mds_rep_head){.fid = attr->fid, .walk = MDS_WALK_DONE};
    reply->attr = *attr;
    op->parked->call.reply_bytes = sizeof(*reply);
}

/* ---- mkdir: the directory is to live elsewhere ---- */

static void
mkdir_made(struct mds_op *op)
{
    struct mds *mds = op->mds;
    struct mdt_inode *dir = op->dir;
    struct mdt_dirent *dirent = op->dirent;
    const struct mds_attr attr = op->u.rep.attr;
    const int status = op->status;

    mds_op_unmark(op);
    if (status != 0) {
        mds->ops->remove(mds->store, dirent);
        mds_op_end(op, status);
        return;
    }
    mds->ops->retarget(mds->store, dirent, NULL, &attr.fid, DT_DIR);
    dir->attr.nlink++;
    mds_dir_touch(mds, dir);
    op_reply_attr(op, &attr);
    mds_op_end(op, 0);
}

int
mds_remote_mkdir(struct mds *mds, struct mds_call *call, const struct mds_place *place,
                 const struct mds_attr *attr, uint32_t reactor)
{
    const struct out_req req = {.fid2 = place->dir->attr.fid, .attr = *attr};
    struct mdt_dirent *dirent = NULL;
    const int rc = mds_place_hold(mds, place, &dirent);

    if (rc != 0) {
        return rc;
    }
    struct mds_op *op = mds_op_begin(mds, call);

    if (op == NULL) {
        mds->ops->remove(mds->store, dirent);
        return -EAGAIN;
    }
    mds_op_mark(op, place->dir, dirent, MDS_BUSY);
    mds_op_ask(op, reactor, OUT_MAKE_DIR, &req, NULL, mkdir_made);
    return MDS_PARKED;
}

/* ---- unlink and rmdir: the inode lives elsewhere ---- */

static void
unlink_done(struct mds_op *op)
{
    struct mds *mds = op->mds;
    struct mdt_inode *dir = op->dir;
    struct mdt_dirent *dirent = op->dirent;
    const struct mds_attr attr = op->u.rep.attr;
    const int status = op->status;

    mds_op_unmark(op);
    if (status == -EAGAIN) {
        mds_op_again(op);
        return;
    }
    if (status != 0) {
        mds_op_end(op, status);
        return;
    }
    if (dirent->type == DT_DIR) {
        dir->attr.nlink--;
    }
    mds->ops->remove(mds->store, dirent);
    mds_dir_touch(mds, dir);
    op_reply_attr(op, &attr);
    mds_op_end(op, 0);
}

int
mds_remote_unlink(struct mds *mds, struct mds_call *call, const struct mds_place *place,
                  const struct mds_where *where)
{
    struct mdt_inode *dir = place->dir;
    const bool is_dir = place->dirent->type == DT_DIR;
    const bool is_rmdir = (where->flags & MDS_UNLINK_DIR) != 0;
    const struct out_req req = {
        .fid = place->dirent->fid,
        .uid = where->uid,
        .dir_uid = dir->attr.uid,
        .flags = (is_dir ? OUT_IS_DIR : 0u) | ((dir->attr.mode & S_ISVTX) != 0 ? OUT_STICKY : 0u),
    };

    if (!mds_permits(&dir->attr, where->uid, where->gid, 3)) {
        return -EACCES;
    }
    if (is_rmdir != is_dir) {
        return is_rmdir ? -ENOTDIR : -EISDIR;
    }
    struct mds_op *op = mds_op_begin(mds, call);

    if (op == NULL) {
        return -EAGAIN;
    }
    mds_op_mark(op, dir, place->dirent, MDS_BUSY);
    mds_op_ask(op, fid_mds_owner(&req.fid, mds->reactors), OUT_UNLINK, &req, NULL, unlink_done);
    return MDS_PARKED;
}

/* ---- link: the inode is here, the new name is to be elsewhere ---- */

/* Takes back the name that was counted already. */
static void
link_undo(struct mds_op *op)
{
    struct mds_attr attr;
    const bool stays = op->inode->attr.nlink > 1 || op->inode->open_count > 0;
    struct mdt_inode *inode = op->inode;

    op->inode = NULL;
    if (op->was_linkable && stays) {
        inode->state |= MDT_LINKABLE;
    }
    mds_inode_unlink(op->mds, inode, &attr);
}

static void
link_on_text(struct mds_op *op)
{
    if (op->status != 0) {
        mds_op_again(op); /* it moved or went meanwhile */
        return;
    }
    mds_op_reply_stop(op, &op->stop, (const char *)(&op->u.rep + 1), op->u.rep.text_bytes);
    mds_op_end(op, 0);
}

static void
link_done(struct mds_op *op)
{
    const struct out_rep *rep = &op->u.rep;

    if (op->status == 0 && rep->walk == MDS_WALK_DONE) {
        struct mdt_inode *inode = op->inode;

        if (inode == NULL) {
            mds_op_end(op, op->end_status);
            return;
        }

        op->inode = NULL;
        inode->attr.ctime_ns = op->mds->wall_ns;
        op->mds->ops->changed(op->mds->store, inode);
        (void)mds_reply_attr(&op->parked->call, inode);
        mds_op_end(op, 0);
        return;
    }
    if (op->inode != NULL) {
        link_undo(op);
    }
    if (op->status == -EAGAIN) {
        mds_op_again(op);
    } else if (op->status != 0) {
        mds_op_end(op, op->status);
    } else if (!mds_op_stop_needs_text(op, link_on_text)) {
        mds_op_end(op, 0);
    }
}

int
mds_remote_link(struct mds *mds, struct mds_call *call, struct mdt_inode *inode,
                const struct mds_where *to)
{
    const int rc = mds_may_link(inode);
    const struct out_req req = {
        .fid = inode->attr.fid,
        .fid2 = *to->base,
        .uid = to->uid,
        .gid = to->gid,
        .flags = rc != 0 ? OUT_CHECK : 0u, /* what is wrong with the new name comes first */
        .path_bytes = (uint16_t)to->bytes,
        .type = (uint8_t)((inode->attr.mode & S_IFMT) >> 12),
    };
    struct mds_op *op = mds_op_begin(mds, call);

    if (op == NULL) {
        return -EAGAIN;
    }
    op->end_status = rc;
    if (rc == 0) {
        op->inode = inode;
        op->was_linkable = (inode->state & MDT_LINKABLE) != 0;
        mds_inode_link(mds, inode); /* so it stays; taken back if the name cannot be made */
    }
    mds_op_ask(op, fid_mds_owner(to->base, mds->reactors), OUT_INSERT, &req, to->path, link_done);
    return MDS_PARKED;
}

/* ---- a symlink in the way, whose inode lives elsewhere ---- */

static void
symlink_on_text(struct mds_op *op)
{
    if (op->status != 0) {
        mds_op_again(op);
        return;
    }
    mds_op_reply_stop(op, &op->stop, (const char *)(&op->u.rep + 1), op->u.rep.text_bytes);
    mds_op_end(op, 0);
}

int
mds_remote_symlink(struct mds *mds, struct mds_call *call)
{
    struct mds_op *op = mds_op_begin(mds, call);

    if (op == NULL) {
        return -EAGAIN;
    }
    op->stop = (struct mds_rep_head){
        .fid = mds->away.dir,
        .walk = MDS_WALK_SYMLINK,
        .consumed = (uint16_t)mds->away.consumed,
        .which = mds->away.which,
    };
    mds_op_ask(op, fid_mds_owner(&mds->away.link, mds->reactors), OUT_READLINK,
               &(struct out_req){.fid = mds->away.link}, NULL, symlink_on_text);
    return MDS_PARKED;
}
