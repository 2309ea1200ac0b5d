/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GETATTR, SETATTR, ACCESS, READLINK, STATFS.
 *
 * Times of a file with objects. The objects have an mtime and ctime of their own, and the newer
 * ctime wins. So a change of mode or owner, which makes our ctime the newer one, must not bring an
 * mtime from before the last write: a close after writing sets our mtime but not our ctime, and a
 * change while it is open for writing sets mtime too - unless mtime was set on purpose meanwhile.
 */
#include "servers/mds/mds.h"

#include <errno.h>
#include <string.h>

int
mds_getattr(struct mds *mds, struct mds_call *call)
{
    struct mds_where where;
    struct mds_place walk;
    int rc =
        mds_where_init(&where, call, sizeof(struct mds_getattr_req), MDS_FOLLOW | MDS_WANT_DIR);

    if (rc == 0) {
        rc = mds_walk(mds, call, &where, 0, &walk);
    }
    return rc != 0 ? rc : mds_reply_attr(call, walk.inode);
}

int
mds_access(struct mds *mds, struct mds_call *call)
{
    const struct mds_access_req *req = call->body;
    struct mds_where where;
    struct mds_place walk;
    int rc = mds_where_init(&where, call, sizeof(*req), MDS_FOLLOW | MDS_WANT_DIR);

    if (rc == 0 && (req->mask > 7 || req->reserved != 0)) {
        rc = -EINVAL;
    }
    if (rc == 0) {
        rc = mds_walk(mds, call, &where, 0, &walk);
    }
    if (rc != 0) {
        return rc;
    }
    if (!mds_permits(&walk.inode->attr, where.uid, where.gid, req->mask)) {
        return -EACCES;
    }
    return mds_reply_attr(call, walk.inode);
}

int
mds_readlink(struct mds *mds, struct mds_call *call)
{
    struct mds_rep_head *reply = call->reply;
    struct mds_where where;
    struct mds_place walk;
    int rc = mds_where_init(&where, call, sizeof(struct mds_getattr_req), 0);

    if (rc == 0) {
        rc = mds_walk(mds, call, &where, 0, &walk);
    }
    if (rc != 0) {
        return rc;
    }
    const struct mdt_inode *inode = walk.inode;

    if (!S_ISLNK(inode->attr.mode)) {
        return -EINVAL;
    }
    *reply = (struct mds_rep_head){
        .fid = inode->attr.fid,
        .walk = MDS_WALK_DONE,
        .link_bytes = (uint16_t)inode->u.link.bytes,
    };
    (void)memcpy(reply + 1, inode->u.link.target, inode->u.link.bytes);
    call->reply_bytes = (uint32_t)sizeof(*reply) + inode->u.link.bytes;
    return 0;
}

#define SET_ALL                                                                                \
    (MDS_SET_MODE | MDS_SET_UID | MDS_SET_GID | MDS_SET_SIZE | MDS_SET_ATIME | MDS_SET_MTIME | \
     MDS_SET_ATIME_NOW | MDS_SET_MTIME_NOW | MDS_SET_STRIPE)
#define SET_TIMES (MDS_SET_ATIME | MDS_SET_MTIME | MDS_SET_ATIME_NOW | MDS_SET_MTIME_NOW)

int
mds_setattr_validate(const struct mds_call *call)
{
    const struct mds_setattr_req *req = call->body;
    const uint32_t both_atime = MDS_SET_ATIME | MDS_SET_ATIME_NOW;
    const uint32_t both_mtime = MDS_SET_MTIME | MDS_SET_MTIME_NOW;

    if ((req->valid & ~(uint32_t)SET_ALL) != 0 || req->reserved != 0 ||
        (req->valid & both_atime) == both_atime || (req->valid & both_mtime) == both_mtime) {
        return -EINVAL;
    }
    if ((req->valid & MDS_SET_MODE) != 0 && (req->mode & ~07777u) != 0) {
        return -EINVAL;
    }
    if ((req->valid & MDS_SET_SIZE) != 0 && req->size > (uint64_t)OST_OBJECT_BYTES_MAX) {
        return -EFBIG;
    }
    return 0;
}

/* Whether it may change the size: who has it open for writing, or the permission. */
static int
setattr_size_permitted(struct mds *mds, const struct mds_call *call, const struct mds_attr *attr)
{
    const struct mds_setattr_req *req = call->body;

    if (S_ISDIR(attr->mode)) {
        return -EISDIR;
    }
    if (!S_ISREG(attr->mode)) {
        return -EINVAL;
    }
    if (req->handle != 0) {
        const struct mds_handle *handle =
            mds_handle_find(mds, call->client, req->handle, &attr->fid);

        return handle == NULL || (handle->flags & MDS_OPEN_WRITE) == 0 ? -EBADF : 0;
    }
    return mds_permits(attr, req->head.uid, req->head.gid, 2) ? 0 : -EACCES;
}

/* Whether it may change the owner and the group. */
static int
setattr_owner_permitted(const struct mds_setattr_req *req, const struct mds_attr *attr)
{
    const bool is_owner = req->head.uid == attr->uid;

    if (req->head.uid == 0) {
        return 0;
    }
    if ((req->valid & MDS_SET_UID) != 0 && (!is_owner || req->uid != attr->uid)) {
        return -EPERM;
    }
    if ((req->valid & MDS_SET_GID) != 0 &&
        (!is_owner || (req->gid != attr->gid && req->gid != req->head.gid))) {
        return -EPERM;
    }
    return 0;
}

/* Whether the request may change what it wants to of this inode. */
static int
setattr_permitted(struct mds *mds, const struct mds_call *call, const struct mds_attr *attr)
{
    const uint32_t for_owner = MDS_SET_MODE | MDS_SET_ATIME | MDS_SET_MTIME | MDS_SET_STRIPE;
    const struct mds_setattr_req *req = call->body;
    const bool is_owner = req->head.uid == 0 || req->head.uid == attr->uid;
    int rc = 0;

    if ((req->valid & MDS_SET_SIZE) != 0) {
        rc = setattr_size_permitted(mds, call, attr);
    }
    if (rc == 0) {
        rc = setattr_owner_permitted(req, attr);
    }
    if (rc != 0) {
        return rc;
    }
    if ((req->valid & MDS_SET_MODE) != 0 && S_ISLNK(attr->mode)) {
        return -EOPNOTSUPP;
    }
    if ((req->valid & MDS_SET_STRIPE) != 0 && !S_ISDIR(attr->mode)) {
        return -ENOTDIR;
    }
    if ((req->valid & for_owner) != 0 && !is_owner) {
        return -EPERM;
    }
    if ((req->valid & (MDS_SET_ATIME_NOW | MDS_SET_MTIME_NOW)) != 0 && !is_owner &&
        !mds_permits(attr, req->head.uid, req->head.gid, 2)) {
        return -EACCES;
    }
    return 0;
}

/* Changes times, as SETATTR wants them and as its other changes imply. */
static void
setattr_times(const struct mds *mds, const struct mds_setattr_req *req, struct mdt_inode *inode)
{
    struct mds_attr *attr = &inode->attr;

    if ((req->valid & MDS_SET_ATIME) != 0) {
        attr->atime_ns = req->atime_ns;
    }
    if ((req->valid & MDS_SET_ATIME_NOW) != 0) {
        attr->atime_ns = mds->wall_ns;
    }
    if ((req->valid & MDS_SET_MTIME) != 0) {
        attr->mtime_ns = req->mtime_ns;
    }
    if ((req->valid & (MDS_SET_MTIME_NOW | MDS_SET_SIZE)) != 0 &&
        (req->valid & MDS_SET_MTIME) == 0) {
        attr->mtime_ns = mds->wall_ns;
    }
    if (inode->write_count > 0) {
        if ((req->valid & (MDS_SET_MTIME | MDS_SET_MTIME_NOW)) != 0) {
            inode->state |= MDT_TIMES_SET;
        } else if ((inode->state & MDT_TIMES_SET) == 0) {
            attr->mtime_ns = mds->wall_ns;
        }
    }
    attr->ctime_ns = mds->wall_ns;
}

/* Set-user-id and set-group-id of a file do not survive a new owner, or a stranger's truncation. */
static void
setattr_strip(struct mds_attr *attr)
{
    if (S_ISREG(attr->mode)) {
        attr->mode &= ~(uint32_t)S_ISUID;
        if ((attr->mode & S_IXGRP) != 0) {
            attr->mode &= ~(uint32_t)S_ISGID;
        }
    }
}

int
mds_setattr(struct mds *mds, struct mds_call *call)
{
    const struct mds_setattr_req *req = call->body;
    struct mds_where where;
    struct mds_place walk;
    int rc = mds_where_init(&where, call, sizeof(*req), MDS_FOLLOW | MDS_WANT_DIR);

    if (rc == 0) {
        rc = mds_setattr_validate(call);
    }
    if (rc == 0) {
        rc = mds_walk(mds, call, &where, 0, &walk);
    }
    if (rc == 0) {
        rc = setattr_permitted(mds, call, &walk.inode->attr);
    }
    if (rc != 0) {
        return rc;
    }
    struct mdt_inode *inode = walk.inode;
    struct mds_attr *attr = &inode->attr;

    if ((req->valid & MDS_SET_STRIPE) != 0) {
        struct mds_attr layout = {.mode = S_IFDIR};
        const struct mdt_inode none = {0};

        rc = mds_layout_init(mds, &layout, &none, req->stripe_bytes, req->stripe_count);
        if (rc != 0) {
            return rc;
        }
        attr->stripe_bytes = layout.stripe_bytes;
        attr->stripe_count = layout.stripe_count;
    }
    if ((req->valid & MDS_SET_SIZE) != 0) {
        if (req->size > 0 || inode->write_count > 0) {
            attr->flags |= MDS_ATTR_SIZE_ON_OST;
        }
        if (where.uid != 0) {
            setattr_strip(attr);
        }
    }
    if ((req->valid & (MDS_SET_UID | MDS_SET_GID)) != 0) {
        setattr_strip(attr);
    }
    if ((req->valid & MDS_SET_UID) != 0) {
        attr->uid = req->uid;
    }
    if ((req->valid & MDS_SET_GID) != 0) {
        attr->gid = req->gid;
    }
    if ((req->valid & MDS_SET_MODE) != 0) {
        attr->mode = (attr->mode & S_IFMT) | req->mode;
        if (where.uid != 0 && where.gid != attr->gid) {
            attr->mode &= ~(uint32_t)S_ISGID;
        }
    }
    if (req->valid != 0) {
        setattr_times(mds, req, inode);
        mds->ops->changed(mds->store, inode);
    }
    return mds_reply_attr(call, inode);
}

int
mds_statfs(struct mds *mds, struct mds_call *call)
{
    struct mds_statfs_rep *reply = call->reply;
    struct mdt_store_stats stats;

    mds->ops->stats(mds->store, &stats);
    *reply = (struct mds_statfs_rep){
        .files = mds->options.inodes_max,
        .files_free = mds->options.inodes_max - stats.inodes,
        .bytes = mds->bytes_max,
        .bytes_free = mds->bytes_max - stats.bytes_used,
    };
    call->reply_bytes = sizeof(*reply);
    return 0;
}
