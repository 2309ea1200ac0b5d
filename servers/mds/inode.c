/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What several requests do to inodes: make attributes, count names, free.
 */
#include "servers/mds/mds.h"

#include <errno.h>
#include <string.h>

#define STRIPE_BYTES_UNIT 4096u
#define STRIPE_BYTES_MAX  (1u << 31)

struct fid
mds_fid_make(struct mds *mds)
{
    const struct fid fid = mds->fid_next;

    mds->fid_next.oid++;
    if (mds->fid_next.oid == UINT32_MAX) {
        mds->fid_next.seq += mds->reactors;
        mds->fid_next.oid = 1;
    }
    return fid;
}

void
mds_attr_init(struct mds *mds, struct mds_attr *attr, const struct mdt_inode *dir, uint32_t mode,
              uint32_t uid, uint32_t gid)
{
    const bool is_dir = S_ISDIR(mode);

    *attr = (struct mds_attr){
        .fid = mds_fid_make(mds),
        .mode = mode,
        .nlink = is_dir ? 2 : 1,
        .uid = uid,
        .gid = gid,
        .size = is_dir ? 4096 : 0,
        .blocks = is_dir ? 8 : 0,
        .atime_ns = mds->wall_ns,
        .mtime_ns = mds->wall_ns,
        .ctime_ns = mds->wall_ns,
    };
    if ((dir->attr.mode & S_ISGID) != 0) {
        attr->gid = dir->attr.gid;
        if (is_dir) {
            attr->mode |= S_ISGID;
        }
    }
}

int
mds_layout_init(struct mds *mds, struct mds_attr *attr, const struct mdt_inode *dir,
                uint32_t stripe_bytes, uint32_t stripe_count)
{
    if (stripe_bytes % STRIPE_BYTES_UNIT != 0 || stripe_bytes > STRIPE_BYTES_MAX) {
        return -EINVAL;
    }
    if (stripe_bytes == 0) {
        stripe_bytes = dir->attr.stripe_bytes;
    }
    if (stripe_count == 0) {
        stripe_count = dir->attr.stripe_count;
    }
    if (S_ISDIR(attr->mode)) {
        attr->stripe_bytes = stripe_bytes;
        attr->stripe_count = (uint16_t)stripe_count;
        return 0;
    }
    if (stripe_bytes == 0) {
        stripe_bytes = mds->stripe_bytes;
    }
    if (stripe_count == 0) {
        stripe_count = mds->stripe_count;
    }
    attr->stripe_bytes = stripe_bytes;
    attr->stripe_count = (uint16_t)base_min_u32(stripe_count, mds->ost_count);
    if (mds->ost_count > 0) {
        attr->stripe_first = (uint16_t)mds->stripe_next;
        mds->stripe_next = mds->stripe_next + 1 == mds->ost_count ? 0 : mds->stripe_next + 1;
    }
    return 0;
}

void
mds_dir_touch(struct mds *mds, struct mdt_inode *dir)
{
    dir->attr.mtime_ns = mds->wall_ns;
    dir->attr.ctime_ns = mds->wall_ns;
    mds->ops->changed(mds->store, dir);
}

void
mds_inode_release(struct mds *mds, struct mdt_inode *inode)
{
    if (inode->attr.nlink > 0 || inode->open_count > 0) {
        return;
    }
    if (inode->locks != NULL) {
        mds_locks_drop(mds, inode);
    }
    if ((inode->attr.flags & MDS_ATTR_SIZE_ON_OST) != 0) {
        mds_destroy_file(mds, &inode->attr);
    }
    mds->ops->drop(mds->store, inode);
}

void
mds_inode_unlink(struct mds *mds, struct mdt_inode *inode, struct mds_attr *attr_out)
{
    BASE_ASSERT(inode->attr.nlink > 0);
    inode->attr.nlink = S_ISDIR(inode->attr.mode) ? 0 : inode->attr.nlink - 1;
    inode->attr.ctime_ns = mds->wall_ns;
    mds_attr_get(inode, attr_out);
    if (inode->attr.nlink == 0 && inode->open_count > 0) {
        mds->counters.orphans++;
    }
    mds->ops->changed(mds->store, inode);
    mds_inode_release(mds, inode);
}

int
mds_reply_attr(struct mds_call *call, const struct mdt_inode *inode)
{
    struct mds_getattr_rep *reply = call->reply;

    reply->head = (struct mds_rep_head){.fid = inode->attr.fid, .walk = MDS_WALK_DONE};
    mds_attr_get(inode, &reply->attr);
    call->reply_bytes = sizeof(*reply);
    return 0;
}
