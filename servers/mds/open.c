/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * OPEN and CLOSE.
 *
 * The reply's attributes are those from before: SIZE_ON_OST is set if others have it open for
 * writing or there were bytes, so a file that never had any needs no punch after O_TRUNC.
 */
#include "servers/mds/mds.h"

#include <errno.h>
#include <string.h>

#define OPEN_ALL                                                                         \
    (MDS_OPEN_READ | MDS_OPEN_WRITE | MDS_OPEN_CREATE | MDS_OPEN_EXCL | MDS_OPEN_TRUNC | \
     MDS_OPEN_DIRECTORY | MDS_OPEN_PATH | MDS_OPEN_BY_FID | MDS_OPEN_TMPFILE)
#define OPEN_MAKES (MDS_OPEN_CREATE | MDS_OPEN_TMPFILE)

int
mds_open_validate(const struct mds_call *call)
{
    const struct mds_open_req *req = call->body;
    const uint32_t flags = req->open_flags;

    if ((flags & ~(uint32_t)OPEN_ALL) != 0 || req->reserved != 0 ||
        (flags & (MDS_OPEN_READ | MDS_OPEN_WRITE | MDS_OPEN_PATH)) == 0) {
        return -EINVAL;
    }
    if ((flags & MDS_OPEN_PATH) != 0 &&
        (flags & (OPEN_MAKES | MDS_OPEN_READ | MDS_OPEN_WRITE | MDS_OPEN_TRUNC)) != 0) {
        return -EINVAL;
    }
    if ((flags & MDS_OPEN_CREATE) != 0 &&
        (flags & (MDS_OPEN_DIRECTORY | MDS_OPEN_TMPFILE | MDS_OPEN_BY_FID)) != 0) {
        return -EINVAL;
    }
    if ((flags & MDS_OPEN_TMPFILE) != 0 &&
        ((flags & MDS_OPEN_WRITE) == 0 || (flags & MDS_OPEN_BY_FID) != 0)) {
        return -EINVAL;
    }
    if ((flags & MDS_OPEN_BY_FID) != 0 && req->head.path_bytes != 0) {
        return -EINVAL;
    }
    if ((flags & OPEN_MAKES) != 0 && (req->mode & ~07777u) != 0) {
        return -EINVAL;
    }
    return 0;
}

/*
 * Whether the modes asked for are allowed. A further handle by FID is what a forked child asks for,
 * whose parent may have opened a file before it lost the right to, or made it read-only: what is
 * open in that way by somebody is granted.
 */
static int
open_permitted(const struct mds_open_req *req, const struct mdt_inode *inode)
{
    const uint32_t flags = req->open_flags;
    const uint32_t wants_write = flags & (MDS_OPEN_WRITE | MDS_OPEN_TRUNC);
    const uint32_t mask = ((flags & MDS_OPEN_READ) != 0 ? 4u : 0) | (wants_write != 0 ? 2u : 0);

    if (mds_permits(&inode->attr, req->head.uid, req->head.gid, mask)) {
        return 0;
    }
    if ((flags & MDS_OPEN_BY_FID) != 0 && inode->open_count > 0 &&
        (wants_write == 0 || inode->write_count > 0)) {
        return 0;
    }
    return -EACCES;
}

/* Opens an inode and answers. @created: just made, all is allowed. */
static int
open_inode(struct mds *mds, struct mds_call *call, struct mdt_inode *inode, bool created)
{
    const struct mds_open_req *req = call->body;
    struct mds_open_rep *reply = call->reply;
    const uint32_t flags = req->open_flags;

    if ((flags & MDS_OPEN_DIRECTORY) != 0 && !S_ISDIR(inode->attr.mode)) {
        return -ENOTDIR;
    }
    if (S_ISLNK(inode->attr.mode) && (flags & MDS_OPEN_PATH) == 0) {
        return -ELOOP;
    }
    if (S_ISDIR(inode->attr.mode) &&
        (flags & (MDS_OPEN_WRITE | MDS_OPEN_TRUNC | MDS_OPEN_CREATE)) != 0) {
        return -EISDIR;
    }
    if (!created && (flags & MDS_OPEN_PATH) == 0) {
        const int rc = open_permitted(req, inode);

        if (rc != 0) {
            return rc;
        }
    }
    reply->head = (struct mds_rep_head){.fid = inode->attr.fid, .walk = MDS_WALK_DONE};
    mds_attr_get(inode, &reply->attr);
    struct mds_handle *handle = mds_handle_open(mds, call->client, inode, flags);

    if (handle == NULL) {
        return -ENFILE;
    }
    if ((flags & MDS_OPEN_TRUNC) != 0 && !created && S_ISREG(inode->attr.mode)) {
        struct mds_attr *attr = &inode->attr;

        attr->mtime_ns = mds->wall_ns;
        attr->ctime_ns = mds->wall_ns;
        if (req->head.uid != 0) {
            attr->mode &= ~(uint32_t)(S_ISUID | ((attr->mode & S_IXGRP) != 0 ? S_ISGID : 0));
        }
        mds->ops->changed(mds->store, inode);
        reply->attr.mtime_ns = attr->mtime_ns;
        reply->attr.ctime_ns = attr->ctime_ns;
        reply->attr.mode = attr->mode;
    }
    reply->handle = mds_handle_number(handle);
    reply->created = created ? 1 : 0;
    reply->reserved = 0;
    call->reply_bytes = sizeof(*reply);
    return 0;
}

/* Makes a regular file, with a name or without one, and opens it. */
static int
open_make(struct mds *mds, struct mds_call *call, const struct mds_place *walk,
          struct mdt_inode *dir, bool has_name)
{
    const struct mds_open_req *req = call->body;
    struct mdt_inode *inode = NULL;
    struct mdt_dirent *dirent = NULL;
    struct mds_attr attr;
    int rc = mds_may_create(dir, req->head.uid, req->head.gid);

    if (rc != 0) {
        return rc;
    }
    mds_attr_init(mds, &attr, dir, S_IFREG | req->mode, req->head.uid, req->head.gid);
    rc = mds_layout_init(mds, &attr, dir, req->stripe_bytes, req->stripe_count);
    if (rc != 0) {
        return rc;
    }
    if (!has_name) {
        attr.nlink = 0;
    }
    rc = mds->ops->make(mds->store, &(struct mdt_make){.attr = &attr}, &inode);
    if (rc != 0) {
        return rc;
    }
    if (has_name) {
        rc = mds_place_fill(mds, walk, inode, &dirent);
    }
    if (rc != 0) {
        mds->ops->drop(mds->store, inode);
        return rc;
    }
    rc = open_inode(mds, call, inode, true);
    if (rc != 0) {
        if (dirent != NULL) {
            mds->ops->remove(mds->store, dirent);
        }
        mds->ops->drop(mds->store, inode);
        return rc;
    }
    if (has_name) {
        mds_dir_touch(mds, dir);
    } else {
        mds->counters.orphans++;
        if ((req->open_flags & MDS_OPEN_EXCL) == 0) {
            inode->state |= MDT_LINKABLE;
        }
    }
    return 0;
}

/* O_CREAT. */
static int
open_create(struct mds *mds, struct mds_call *call, struct mds_where *where)
{
    const struct mds_open_req *req = call->body;
    const bool is_excl = (req->open_flags & MDS_OPEN_EXCL) != 0;
    struct mds_place walk;

    if (is_excl) {
        where->flags &= ~(uint32_t)MDS_FOLLOW;
    }
    /* With O_EXCL the last name is not followed, not even to another reactor. */
    const int rc = mds_walk(mds, call, where, is_excl ? MDS_WALK_PARENT : MDS_WALK_MAYBE, &walk);

    if (rc != 0) {
        return rc;
    }
    if (walk.last == MDS_LAST_NAME && walk.dirent == NULL) {
        return walk.has_slash ? -EISDIR : open_make(mds, call, &walk, walk.dir, true);
    }
    return is_excl ? -EEXIST : open_inode(mds, call, walk.inode, false);
}

int
mds_op_open(struct mds *mds, struct mds_call *call)
{
    const struct mds_open_req *req = call->body;
    struct mds_where where;
    struct mds_place walk;
    int rc = mds_where_init(&where, call, sizeof(*req), MDS_FOLLOW | MDS_WANT_DIR);

    if (rc == 0) {
        rc = mds_open_validate(call);
    }
    if (rc != 0) {
        return rc;
    }
    if (call->client == NULL) {
        return -ESTALE;
    }
    if ((req->open_flags & MDS_OPEN_CREATE) != 0) {
        return open_create(mds, call, &where);
    }
    rc = mds_walk(mds, call, &where, 0, &walk);
    if (rc != 0) {
        return rc;
    }
    if ((req->open_flags & MDS_OPEN_TMPFILE) != 0) {
        return S_ISDIR(walk.inode->attr.mode) ? open_make(mds, call, &walk, walk.inode, false)
                                              : -ENOTDIR;
    }
    return open_inode(mds, call, walk.inode, false);
}

static int
close_one(struct mds *mds, const struct mds_call *call, const struct mds_close_req *req)
{
    if ((req->flags & ~(uint32_t)MDS_CLOSE_WROTE) != 0 || req->reserved != 0) {
        return -EINVAL;
    }
    struct mds_handle *handle = mds_handle_find(mds, call->client, req->handle, &req->fid);

    if (handle == NULL) {
        return -EBADF;
    }
    if (req->atime_ns > handle->inode->attr.atime_ns && (handle->flags & MDS_OPEN_READ) != 0) {
        handle->inode->attr.atime_ns = req->atime_ns;
        mds->ops->changed(mds->store, handle->inode);
    }
    mds_handle_close(mds, handle, (req->flags & MDS_CLOSE_WROTE) != 0);
    return 0;
}

int
mds_op_close(struct mds *mds, struct mds_call *call)
{
    const struct mds_close_req *reqs = call->body;
    const uint32_t count = call->body_bytes / (uint32_t)sizeof(*reqs);
    int rc = 0;

    if (count == 0 || count > MDS_CLOSES_MAX || call->body_bytes % sizeof(*reqs) != 0) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < count; i++) {
        const int close_rc = close_one(mds, call, &reqs[i]);

        rc = rc == 0 ? close_rc : rc;
    }
    return rc;
}
