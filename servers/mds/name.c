/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CREATE, LINK and UNLINK: one name comes or goes. RENAME is in rename.c.
 */
#include "servers/mds/out.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

int
mds_create_validate(const struct mds_call *call)
{
    const struct mds_create_req *req = call->body;
    const uint32_t type = req->mode & S_IFMT;
    const char *target = (const char *)(req + 1) + req->head.path_bytes;

    if ((req->mode & ~(S_IFMT | 07777u)) != 0 ||
        req->target_bytes > call->body_bytes - sizeof(*req) - req->head.path_bytes) {
        return -EINVAL;
    }
    if (type == S_IFLNK) {
        if (req->target_bytes == 0) {
            return -ENOENT;
        }
        if (req->target_bytes > MDS_PATH_BYTES_MAX) {
            return -ENAMETOOLONG;
        }
        return memchr(target, 0, req->target_bytes) != NULL ? -EINVAL : 0;
    }
    if (req->target_bytes != 0) {
        return -EINVAL;
    }
    if (type == S_IFDIR || type == S_IFREG || type == S_IFIFO) {
        return 0;
    }
    return type == S_IFBLK || type == S_IFCHR || type == S_IFSOCK ? -EPERM : -EINVAL;
}

int
mds_create(struct mds *mds, struct mds_call *call)
{
    const struct mds_create_req *req = call->body;
    struct mdt_inode *inode = NULL;
    struct mdt_dirent *dirent = NULL;
    struct mds_where where;
    struct mds_place walk;
    struct mds_attr attr;
    int rc = mds_where_init(&where, call, sizeof(*req), 0);

    if (rc == 0) {
        rc = mds_create_validate(call);
    }
    if (rc == 0) {
        rc = mds_walk(mds, call, &where, MDS_WALK_PARENT, &walk);
    }
    if (rc != 0) {
        return rc;
    }
    if (walk.last != MDS_LAST_NAME || walk.dirent != NULL) {
        return -EEXIST;
    }
    const bool is_dir = S_ISDIR(req->mode);
    struct mdt_inode *dir = walk.dir;

    if (walk.has_slash && !is_dir) {
        return -ENOENT;
    }
    rc = mds_may_create(dir, where.uid, where.gid);
    if (rc != 0) {
        return rc;
    }
    mds_attr_init(mds, &attr, dir, req->mode, where.uid, where.gid);
    if (is_dir || S_ISREG(req->mode)) {
        rc = mds_layout_init(mds, &attr, dir, req->stripe_bytes, req->stripe_count);
        if (rc != 0) {
            return rc;
        }
    }
    if (is_dir && mds->reactors > 1) {
        const uint32_t reactor = mds_place_of(mds, &dir->attr.fid, walk.name, walk.name_bytes);

        if (reactor != mds->reactor) {
            return mds_remote_mkdir(mds, call, &walk, &attr, reactor);
        }
    }
    attr.rdev = req->rdev;
    if (S_ISLNK(req->mode)) {
        attr.mode = S_IFLNK | 0777;
        attr.size = req->target_bytes;
    }
    rc = mds->ops->make(mds->store,
                        &(struct mdt_make){
                            .attr = &attr,
                            .parent = &dir->attr.fid,
                            .target = (const char *)(req + 1) + where.bytes,
                            .target_bytes = req->target_bytes,
                        },
                        &inode);
    if (rc != 0) {
        return rc;
    }
    rc = mds_place_fill(mds, &walk, inode, &dirent);
    if (rc != 0) {
        mds->ops->drop(mds->store, inode);
        return rc;
    }
    if (is_dir) {
        dir->attr.nlink++;
    }
    mds_dir_touch(mds, dir);
    return mds_reply_attr(call, inode);
}

int
mds_may_link(const struct mdt_inode *inode)
{
    if (S_ISDIR(inode->attr.mode)) {
        return -EPERM;
    }
    if (inode->attr.nlink == 0 && (inode->state & MDT_LINKABLE) == 0) {
        return -ENOENT;
    }
    return inode->attr.nlink >= MDS_LINKS_MAX ? -EMLINK : 0;
}

void
mds_inode_link(struct mds *mds, struct mdt_inode *inode)
{
    if (inode->attr.nlink == 0) {
        BASE_ASSERT(mds->counters.orphans > 0);
        mds->counters.orphans--;
        inode->state &= ~(uint32_t)MDT_LINKABLE;
    }
    inode->attr.nlink++;
    inode->attr.ctime_ns = mds->wall_ns;
    mds->ops->changed(mds->store, inode);
}

int
mds_link(struct mds *mds, struct mds_call *call)
{
    struct mdt_dirent *dirent = NULL;
    struct mds_where from;
    struct mds_where to;
    struct mds_place source;
    struct mds_place target;
    int rc = mds_where_init2(&from, &to, call, MDS_FOLLOW);

    if (rc == 0) {
        rc = mds_walk(mds, call, &from, 0, &source);
    }
    if (rc == 0 && !mds_is_own(mds, to.base)) {
        return mds_remote_link(mds, call, source.inode, &to);
    }
    if (rc == 0) {
        rc = mds_walk(mds, call, &to, MDS_WALK_PARENT, &target);
    }
    if (rc != 0) {
        return rc;
    }
    if (target.last != MDS_LAST_NAME || target.dirent != NULL) {
        return -EEXIST;
    }
    if (target.has_slash) {
        return -ENOENT;
    }
    struct mdt_inode *inode = source.inode;

    rc = mds_may_create(target.dir, to.uid, to.gid);
    if (rc == 0) {
        rc = mds_may_link(inode);
    }
    if (rc != 0) {
        return rc;
    }
    rc = mds_place_fill(mds, &target, inode, &dirent);
    if (rc != 0) {
        return rc;
    }
    mds_inode_link(mds, inode);
    mds_dir_touch(mds, target.dir);
    return mds_reply_attr(call, inode);
}

/* Whether what the last component is may be unlinked (or removed as a directory) at all. */
static int
unlink_last(const struct mds_place *walk, bool is_rmdir)
{
    switch (walk->last) {
    case MDS_LAST_NAME:
        return walk->dirent == NULL ? -ENOENT : 0;
    case MDS_LAST_DOT:
        return is_rmdir ? -EINVAL : -EISDIR;
    case MDS_LAST_DOTDOT:
        return is_rmdir ? -ENOTEMPTY : -EISDIR;
    case MDS_LAST_NONE:
        break;
    }
    if (!S_ISDIR(walk->inode->attr.mode)) {
        return is_rmdir ? -ENOTDIR : -EINVAL; /* a file by its FID alone: which name? */
    }
    return is_rmdir ? -EBUSY : -EISDIR;
}

int
mds_unlink(struct mds *mds, struct mds_call *call)
{
    struct mds_where where;
    struct mds_place walk;
    int rc = mds_where_init(&where, call, sizeof(struct mds_unlink_req), MDS_UNLINK_DIR);
    const bool is_rmdir = rc == 0 && (where.flags & MDS_UNLINK_DIR) != 0;

    if (rc == 0) {
        rc = mds_walk(mds, call, &where, MDS_WALK_PARENT, &walk);
    }
    if (rc == 0) {
        rc = unlink_last(&walk, is_rmdir);
    }
    if (rc != 0) {
        return rc;
    }
    struct mdt_inode *inode = walk.inode;
    struct mdt_inode *dir = walk.dir;
    const bool is_dir = walk.dirent->type == DT_DIR;

    if (walk.has_slash && !is_rmdir) {
        return is_dir ? -EISDIR : -ENOTDIR;
    }
    if (inode == NULL) {
        return mds_remote_unlink(mds, call, &walk, &where);
    }
    rc = mds_may_delete(&dir->attr, &inode->attr, where.uid, where.gid);
    if (rc != 0) {
        return rc;
    }
    if (is_rmdir != is_dir) {
        return is_rmdir ? -ENOTDIR : -EISDIR;
    }
    if (is_dir && inode->u.dir.entry_count > 0) {
        return inode->busy_count > 0 ? MDS_WAIT : -ENOTEMPTY;
    }
    struct mds_getattr_rep *reply = call->reply;

    mds->ops->remove(mds->store, walk.dirent);
    if (is_dir) {
        dir->attr.nlink--;
    }
    mds_dir_touch(mds, dir);
    mds_inode_unlink(mds, inode, &reply->attr);
    reply->head = (struct mds_rep_head){.fid = reply->attr.fid, .walk = MDS_WALK_DONE};
    call->reply_bytes = sizeof(*reply);
    return 0;
}
