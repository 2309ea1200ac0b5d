/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Walking a path: component by component, as far as this reactor's directories go.
 *
 * The order of checks is Linux's: a component is looked at when it is come to, so what is wrong
 * behind the place where the walk ends (a missing name, a symlink, another reactor) is not seen.
 * For each: the thing so far is a directory, may be searched, the name is not too long, it exists.
 */
#include "servers/mds/out.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

int
mds_where_init(struct mds_where *where, const struct mds_call *call, uint32_t fixed_bytes,
               uint32_t flags_allowed)
{
    const struct mds_req_head *head = call->body;

    if (call->body_bytes < fixed_bytes || (head->flags & ~flags_allowed) != 0 ||
        head->reserved != 0) {
        return -EINVAL;
    }
    if (head->path_bytes > MDS_PATH_BYTES_MAX) {
        return -ENAMETOOLONG;
    }
    if (head->path_bytes > call->body_bytes - fixed_bytes) {
        return -EINVAL;
    }
    *where = (struct mds_where){
        .base = &head->base,
        .path = (const char *)call->body + fixed_bytes,
        .bytes = head->path_bytes,
        .flags = head->flags,
        .uid = head->uid,
        .gid = head->gid,
    };
    return 0;
}

int
mds_where_init2(struct mds_where *from, struct mds_where *to, const struct mds_call *call,
                uint32_t flags_allowed)
{
    const struct mds_rename_req *req = call->body;
    const int rc = mds_where_init(from, call, sizeof(*req), flags_allowed);

    if (rc != 0) {
        return rc;
    }
    if (req->path2_bytes > MDS_PATH_BYTES_MAX) {
        return -ENAMETOOLONG;
    }
    if (req->path2_bytes > call->body_bytes - sizeof(*req) - from->bytes ||
        (req->reserved[0] | req->reserved[1] | req->reserved[2]) != 0) {
        return -EINVAL;
    }
    *to = *from;
    to->base = &req->base2;
    to->path = from->path + from->bytes;
    to->bytes = req->path2_bytes;
    to->which = 1;
    return 0;
}

int
mds_moved(struct mds *mds, struct mds_call *call, const struct fid *fid, uint32_t consumed,
          uint16_t which)
{
    struct mds_rep_head *reply = call->reply;

    *reply = (struct mds_rep_head){
        .fid = *fid,
        .walk = MDS_WALK_MOVED,
        .consumed = (uint16_t)consumed,
        .which = which,
    };
    call->reply_bytes = sizeof(*reply);
    mds->counters.moved_count++;
    return MDS_STOPPED;
}

/* Writes a SYMLINK answer, or says whose the symlink is. */
static int
walk_symlink(struct mds *mds, struct mds_call *call, const struct mdt_inode *dir,
             const struct mdt_dirent *dirent, uint32_t consumed, uint16_t which)
{
    const struct mdt_inode *link = dirent->inode;
    struct mds_rep_head *reply = call->reply;

    if (link == NULL) {
        mds->away.dir = dir->attr.fid;
        mds->away.link = dirent->fid;
        mds->away.consumed = consumed;
        mds->away.which = which;
        return MDS_LINK_AWAY;
    }
    *reply = (struct mds_rep_head){
        .fid = dir->attr.fid,
        .walk = MDS_WALK_SYMLINK,
        .consumed = (uint16_t)consumed,
        .link_bytes = (uint16_t)link->u.link.bytes,
        .which = which,
    };
    (void)memcpy(reply + 1, link->u.link.target, link->u.link.bytes);
    call->reply_bytes = (uint32_t)sizeof(*reply) + link->u.link.bytes;
    return MDS_STOPPED;
}

/* What is left to do with the last name, which is there: follow it, or hand it on. */
static int
walk_last(struct mds *mds, struct mds_call *call, const struct mds_where *where, uint32_t mode,
          uint32_t name_end, struct mds_place *walk)
{
    const struct mdt_dirent *dirent = walk->dirent;

    if ((mode & MDS_WALK_PARENT) != 0) {
        return 0;
    }
    if (dirent->type == DT_LNK && (walk->has_slash || (where->flags & MDS_FOLLOW) != 0)) {
        return walk_symlink(mds, call, walk->dir, dirent, name_end, where->which);
    }
    if (dirent->type != DT_DIR && (walk->has_slash || (where->flags & MDS_WANT_DIR) != 0)) {
        return -ENOTDIR;
    }
    if (dirent->inode == NULL) {
        return mds_moved(mds, call, &dirent->fid, where->bytes, where->which);
    }
    return 0;
}

int
mds_walk(struct mds *mds, struct mds_call *call, const struct mds_where *where, uint32_t mode,
         struct mds_place *walk)
{
    const char *path = where->path;
    const uint32_t bytes = where->bytes;
    struct mdt_inode *at = NULL;

    if (!mds_is_own(mds, where->base)) {
        return -EREMOTE;
    }
    int rc = mds->ops->get(mds->store, where->base, &at);

    if (rc != 0) {
        return rc;
    }
    *walk = (struct mds_place){.last = MDS_LAST_NONE, .inode = at};
    if (bytes == 0) {
        return (where->flags & MDS_WANT_DIR) != 0 && !S_ISDIR(at->attr.mode) ? -ENOTDIR : 0;
    }
    if (path[0] == '/' || memchr(path, 0, bytes) != NULL) {
        return -EINVAL;
    }
    for (uint32_t begin = 0;;) {
        const char *slash = memchr(path + begin, '/', bytes - begin);
        const uint32_t end = slash == NULL ? bytes : (uint32_t)(slash - path);
        const uint32_t name_bytes = end - begin;
        uint32_t next = end;

        while (next < bytes && path[next] == '/') {
            next++;
        }
        const bool is_last = next == bytes;

        if (!S_ISDIR(at->attr.mode)) {
            return -ENOTDIR;
        }
        if (!mds_permits(&at->attr, where->uid, where->gid, 1)) {
            return -EACCES;
        }
        if (name_bytes > MDS_NAME_BYTES_MAX) {
            return -ENAMETOOLONG;
        }
        walk->has_slash = is_last && next > end;
        if (path[begin] == '.' && name_bytes == 1) {
            if (is_last) {
                walk->last = MDS_LAST_DOT;
                walk->inode = at;
                return 0;
            }
        } else if (path[begin] == '.' && name_bytes == 2 && path[begin + 1] == '.') {
            const struct fid *parent = &at->u.dir.parent;

            if (is_last &&
                (mode & MDS_WALK_PARENT) != 0) { /* no name; what it means is no matter */
                walk->last = MDS_LAST_DOTDOT;
                walk->inode = NULL;
                return 0;
            }
            if (!mds_is_own(mds, parent)) {
                return mds_moved(mds, call, parent, next, where->which);
            }
            rc = mds->ops->get(mds->store, parent, &at);
            if (rc != 0) {
                return rc == -ESTALE ? -ENOENT : rc;
            }
            if (is_last) {
                walk->last = MDS_LAST_DOTDOT;
                walk->inode = at;
                return 0;
            }
        } else {
            struct mdt_dirent *dirent = NULL;

            rc = at->attr.nlink == 0
                     ? -ENOENT
                     : mds->ops->lookup(mds->store, at, path + begin, name_bytes, &dirent);
            if (rc != 0 && (rc != -ENOENT || !is_last || mode == 0)) {
                return rc;
            }
            if (dirent != NULL && BASE_UNLIKELY(dirent->is_busy != 0) &&
                ((mode & MDS_WALK_TOKEN) == 0 || dirent->is_busy != MDS_BUSY_TOKEN)) {
                return MDS_WAIT;
            }
            if (is_last) {
                walk->last = MDS_LAST_NAME;
                walk->dir = at;
                walk->name = path + begin;
                walk->name_bytes = name_bytes;
                walk->dirent = dirent;
                walk->inode = dirent == NULL ? NULL : dirent->inode;
                return dirent == NULL ? 0 : walk_last(mds, call, where, mode, end, walk);
            }
            if (BASE_LIKELY(dirent->type == DT_DIR)) {
                if (dirent->inode == NULL) {
                    return mds_moved(mds, call, &dirent->fid, next, where->which);
                }
                at = dirent->inode;
            } else if (dirent->type == DT_LNK) {
                return walk_symlink(mds, call, at, dirent, end, where->which);
            } else {
                return -ENOTDIR;
            }
        }
        begin = next;
    }
}

int
mds_may_create_in(const struct mds_attr *dir, uint32_t uid, uint32_t gid)
{
    if (dir->nlink == 0) {
        return -ENOENT;
    }
    return mds_permits(dir, uid, gid, 3) ? 0 : -EACCES;
}

int
mds_may_delete(const struct mds_attr *dir, const struct mds_attr *attr, uint32_t uid, uint32_t gid)
{
    if (!mds_permits(dir, uid, gid, 3)) {
        return -EACCES;
    }
    if ((dir->mode & S_ISVTX) != 0 && uid != 0 && uid != attr->uid && uid != dir->uid) {
        return -EPERM;
    }
    return 0;
}
