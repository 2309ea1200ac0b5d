/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of operations over several reactors that is done for a coordinator elsewhere: see out.h.
 * A coordinator asks its own reactor in the same way.
 */
#include "servers/mds/out.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

static int
out_make_dir(struct mds *mds, const struct out_req *req, struct out_rep *rep)
{
    struct mdt_inode *inode = NULL;
    struct mds_attr attr = req->attr;

    if (!S_ISDIR(attr.mode)) {
        return -EPROTO;
    }
    attr.fid = mds_fid_make(mds);
    const int rc =
        mds->ops->make(mds->store, &(struct mdt_make){.attr = &attr, .parent = &req->fid2}, &inode);

    if (rc == 0) {
        rep->attr = inode->attr;
    }
    return rc;
}

static int
out_unlink(struct mds *mds, const struct out_req *req, struct out_rep *rep)
{
    struct mdt_inode *inode = NULL;
    const int rc = mds->ops->get(mds->store, &req->fid, &inode);

    if (rc != 0) {
        return rc;
    }
    if (inode->attr.nlink == 0) {
        return -ENOENT;
    }
    if ((req->flags & OUT_STICKY) != 0 && req->uid != 0 && req->uid != inode->attr.uid &&
        req->uid != req->dir_uid) {
        return -EPERM;
    }
    if (((req->flags & OUT_IS_DIR) != 0) != S_ISDIR(inode->attr.mode)) {
        return -EPROTO;
    }
    if (S_ISDIR(inode->attr.mode)) {
        if (inode->busy_count > 0) {
            return -EAGAIN;
        }
        if (inode->u.dir.entry_count > 0) {
            return -ENOTEMPTY;
        }
    }
    mds_inode_unlink(mds, inode, &rep->attr);
    return 0;
}

static int
out_stat(struct mds *mds, const struct out_req *req, struct out_rep *rep)
{
    struct mdt_inode *inode = NULL;
    const int rc = mds->ops->get(mds->store, &req->fid, &inode);

    if (rc == 0) {
        mds_attr_get(inode, &rep->attr);
    }
    return rc;
}

static int
out_readlink(struct mds *mds, struct mds_call *call, const struct out_req *req, struct out_rep *rep)
{
    struct mdt_inode *inode = NULL;
    const int rc = mds->ops->get(mds->store, &req->fid, &inode);

    if (rc != 0) {
        return rc;
    }
    if (!S_ISLNK(inode->attr.mode)) {
        return -EPROTO;
    }
    (void)memcpy(rep + 1, inode->u.link.target, inode->u.link.bytes);
    rep->text_bytes = (uint16_t)inode->u.link.bytes;
    call->reply_bytes += inode->u.link.bytes;
    return 0;
}

static int
out_moved(struct mds *mds, const struct out_req *req)
{
    struct mdt_inode *inode = NULL;
    const int rc = mds->ops->get(mds->store, &req->fid, &inode);

    if (rc != 0) {
        return rc;
    }
    if (!fid_is_zero(&req->fid2)) {
        if (!S_ISDIR(inode->attr.mode)) {
            return -EPROTO;
        }
        inode->u.dir.parent = req->fid2;
    }
    inode->attr.ctime_ns = mds->wall_ns;
    mds->ops->changed(mds->store, inode);
    return 0;
}

static int
out_ancestor(struct mds *mds, const struct out_req *req, struct out_rep *rep)
{
    struct fid at = req->fid;

    for (;;) {
        struct mdt_inode *dir = NULL;

        if (fid_equal(&at, &req->fid2)) {
            rep->answer = OUT_YES;
            return 0;
        }
        if (!mds_is_own(mds, &at)) {
            rep->answer = OUT_GO_ON;
            rep->fid = at;
            return 0;
        }
        const int rc = mds->ops->get(mds->store, &at, &dir);

        if (rc == -EINPROGRESS) {
            return -EAGAIN;
        }
        if (rc != 0 || !S_ISDIR(dir->attr.mode) || fid_equal(&dir->u.dir.parent, &at)) {
            rep->answer = OUT_NO; /* the root, or above what was removed: nothing */
            return 0;
        }
        at = dir->u.dir.parent;
    }
}

/* ---- the token ---- */

static int
out_token(struct mds *mds, const struct mds_call *call)
{
    if (mds->reactor != 0) {
        return -EPROTO;
    }
    if (!mds->is_token_taken) {
        mds->is_token_taken = true;
        return 0;
    }
    return mds_park(mds, call, MDS_PARKED_TOKEN, &mds->token_waiters) == NULL ? -EAGAIN
                                                                              : MDS_PARKED;
}

static int
out_token_free(struct mds *mds)
{
    if (!mds->is_token_taken) {
        return -EPROTO;
    }
    if (base_list_empty(&mds->token_waiters)) {
        mds->is_token_taken = false;
        return 0;
    }
    struct mds_parked *next =
        BASE_CONTAINER_OF(base_list_first(&mds->token_waiters), struct mds_parked, link);
    struct out_rep *rep = next->call.reply;

    *rep = (struct out_rep){0};
    next->call.reply_bytes = sizeof(*rep);
    mds_parked_complete(mds, next, 0);
    return 0;
}

/* ---- names ---- */

/*
 * Walks the request's path. Return: 0 with *@place; an error; or MDS_STOPPED: *@rep says where.
 */
static int
out_walk(struct mds *mds, struct mds_call *call, const struct out_req *req, uint32_t mode,
         struct mds_place *place, struct out_rep *rep)
{
    const struct mds_where where = {
        .base = &req->fid2,
        .path = (const char *)(req + 1),
        .bytes = req->path_bytes,
        .uid = req->uid,
        .gid = req->gid,
    };
    const struct mds_rep_head *stop = (const struct mds_rep_head *)mds->out_stop;
    struct mds_call walk_call = {.reply = mds->out_stop};
    const int rc = mds_walk(mds, &walk_call, &where, mode, place);

    switch (rc) {
    case MDS_STOPPED:
        rep->fid = stop->fid;
        rep->walk = stop->walk;
        rep->consumed = stop->consumed;
        rep->text_bytes = stop->link_bytes;
        (void)memcpy(rep + 1, stop + 1, stop->link_bytes);
        call->reply_bytes += stop->link_bytes;
        return rc;
    case MDS_LINK_AWAY: /* the coordinator asks for the text */
        rep->fid = mds->away.dir;
        rep->attr.fid = mds->away.link;
        rep->walk = MDS_WALK_SYMLINK;
        rep->consumed = (uint16_t)mds->away.consumed;
        return MDS_STOPPED;
    case MDS_WAIT:
    case -EINPROGRESS:
        return -EAGAIN;
    default:
        return rc;
    }
}

static int
out_insert(struct mds *mds, struct mds_call *call, const struct out_req *req, struct out_rep *rep)
{
    struct mdt_dirent *dirent = NULL;
    struct mds_place place;
    int rc = out_walk(mds, call, req, MDS_WALK_PARENT, &place, rep);

    if (rc != 0) {
        return rc == MDS_STOPPED ? 0 : rc;
    }
    if (place.last != MDS_LAST_NAME || place.dirent != NULL) {
        return -EEXIST;
    }
    if (place.has_slash) {
        return -ENOENT;
    }
    rc = mds_may_create(place.dir, req->uid, req->gid);
    if (rc != 0 || (req->flags & OUT_CHECK) != 0) {
        return rc;
    }
    const struct mdt_name name = {
        .name = place.name,
        .bytes = place.name_bytes,
        .type = req->type,
        .fid = &req->fid,
    };

    rc = mds->ops->insert(mds->store, place.dir, &name, &dirent);
    if (rc == 0) {
        mds_dir_touch(mds, place.dir);
    }
    return rc;
}

static int
out_prepare(struct mds *mds, struct mds_call *call, const struct out_req *req, struct out_rep *rep)
{
    const uint32_t flags = ((req->flags & OUT_NOREPLACE) != 0 ? MDS_RENAME_NOREPLACE : 0u) |
                           ((req->flags & OUT_EXCHANGE) != 0 ? MDS_RENAME_EXCHANGE : 0u);
    struct mds_place place;

    if (mds->prepared != NULL) {
        return -EPROTO;
    }
    int rc = out_walk(mds, call, req, MDS_WALK_PARENT | MDS_WALK_TOKEN, &place, rep);

    if (rc != 0) {
        return rc == MDS_STOPPED ? 0 : rc;
    }
    if ((req->flags & OUT_CHECK) != 0) {
        return 0;
    }
    rc = mds_rename_target(&place, req->type, flags);
    if (rc != 0) {
        return rc;
    }
    rep->attr = place.dir->attr;
    if (place.dirent != NULL && fid_equal(&place.dirent->fid, &req->fid)) {
        rep->answer = OUT_YES; /* the same file: nothing is to be done */
        return 0;
    }
    if (place.dirent == NULL) {
        if (place.dir->attr.nlink == 0) {
            return -ENOENT;
        }
        rc = mds_place_hold(mds, &place, &place.dirent);
        if (rc != 0) {
            return rc;
        }
    }
    BASE_ASSERT(place.dirent != NULL);
    BASE_ASSERT(place.dirent->is_busy == 0);
    place.dirent->is_busy = MDS_BUSY_TOKEN;
    place.dir->busy_count++;
    mds->prepared_dir = place.dir;
    mds->prepared = place.dirent;
    rep->fid = place.dirent->fid;
    rep->type = place.dirent->type;
    return 0;
}

static int
out_commit(struct mds *mds, const struct out_req *req)
{
    struct mdt_inode *inode = NULL;
    struct mdt_inode *dir = mds->prepared_dir;

    if (mds->prepared == NULL) {
        return -EPROTO;
    }
    if (mds_is_own(mds, &req->fid)) {
        const int rc = mds->ops->get(mds->store, &req->fid, &inode);

        if (rc != 0) {
            return rc;
        }
    }
    mds->ops->retarget(mds->store, mds->prepared, inode, &req->fid, req->type);
    if (req->type == DT_DIR) {
        dir->attr.nlink++;
    }
    if ((req->flags & OUT_VICTIM_DIR) != 0) {
        dir->attr.nlink--;
    }
    mds_dir_touch(mds, dir);
    return 0;
}

static int
out_release(struct mds *mds)
{
    struct mdt_dirent *dirent = mds->prepared;

    if (dirent == NULL) {
        return -EPROTO;
    }
    dirent->is_busy = 0;
    mds->prepared_dir->busy_count--;
    mds->prepared_dir = NULL;
    mds->prepared = NULL;
    if (dirent->type == DT_UNKNOWN) {
        mds->ops->remove(mds->store, dirent);
    }
    mds_wake(mds);
    return 0;
}

static int
out_run(struct mds *mds, struct mds_call *call)
{
    const struct out_req *req = call->body;
    struct out_rep *rep = call->reply;

    switch ((enum out_opc)call->opc) {
    case OUT_MAKE_DIR:
        return out_make_dir(mds, req, rep);
    case OUT_UNLINK:
        return out_unlink(mds, req, rep);
    case OUT_INSERT:
        return out_insert(mds, call, req, rep);
    case OUT_STAT:
        return out_stat(mds, req, rep);
    case OUT_READLINK:
        return out_readlink(mds, call, req, rep);
    case OUT_MOVED:
        return out_moved(mds, req);
    case OUT_ANCESTOR:
        return out_ancestor(mds, req, rep);
    case OUT_TOKEN:
        return out_token(mds, call);
    case OUT_TOKEN_FREE:
        return out_token_free(mds);
    case OUT_PREPARE:
        return out_prepare(mds, call, req, rep);
    case OUT_COMMIT:
        return out_commit(mds, req);
    case OUT_RELEASE:
        return out_release(mds);
    }
    return -EOPNOTSUPP;
}

/* Whether a request changes what a store keeps. Busy marks and names without meaning are not kept.
 */
static bool
out_changes(uint16_t opc)
{
    return opc == OUT_MAKE_DIR || opc == OUT_UNLINK || opc == OUT_INSERT || opc == OUT_MOVED ||
           opc == OUT_COMMIT;
}

int
mds_out_execute(struct mds *mds, struct mds_call *call)
{
    const struct out_req *req = call->body;
    struct out_rep *rep = call->reply;

    if (mds->ops->keeps_nothing || call->body_bytes < sizeof(*req) ||
        call->body_bytes - sizeof(*req) != req->path_bytes ||
        req->path_bytes > MDS_PATH_BYTES_MAX) {
        return -EPROTO;
    }
    *rep = (struct out_rep){0};
    call->reply_bytes = sizeof(*rep);
    const int rc = out_run(mds, call);

    if (rc == MDS_PARKED) {
        return rc;
    }
    if (rc != 0) {
        call->reply_bytes = 0;
    }
    if (rc == 0 && out_changes(call->opc)) {
        return mds_call_end(mds, call, rc);
    }
    return rc == -EINPROGRESS ? -EAGAIN : rc;
}
