/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MDS on store `null`: each request is checked as ever, and answered out of thin air. What is
 * left is the cost of RPC and of parsing: the ceiling that no store can pass.
 *
 * Nothing is kept. Exactly:
 *   - Every name exists, and none: GETATTR, ACCESS, OPEN, SETATTR, UNLINK, LINK and RENAME of any
 *     name succeed, and so does CREATE, with and without EXCL. There are no permissions.
 *   - A FID is a hash of base and path, so a name has the same one each time it is asked for in the
 *     same way. It is a directory's if the request says that the thing is one (mkdir, a path that
 *     ends in '/', MDS_WANT_DIR, O_DIRECTORY, "."); an empty path means what its base's FID says.
 *     Anything else is a regular file of size 0, mode 0644, of the asking user.
 *   - Directories have "." and ".." in them. There are no symlinks: READLINK is -EINVAL.
 *   - All handles are 1 and no lock is ever taken.
 */
#include "servers/mds/mds.h"

#include "base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#define DIR_BIT (1u << 31) /* of a FID's oid */

/* Checks a path as walking it would, and says whether it means a directory. */
static int
null_walk(struct mds *mds, const struct mds_where *where, struct fid *fid_out, bool *is_dir_out)
{
    const struct fid root = FID_ROOT;
    const char *path = where->path;
    const uint32_t bytes = where->bytes;
    uint32_t begin = 0;

    if (!mds_is_own(mds, where->base)) {
        return -EREMOTE;
    }
    if (bytes == 0) {
        *fid_out = *where->base;
        *is_dir_out = (where->base->oid & DIR_BIT) != 0 || fid_equal(where->base, &root);
        return (where->flags & MDS_WANT_DIR) != 0 && !*is_dir_out ? -ENOTDIR : 0;
    }
    if (path[0] == '/' || memchr(path, 0, bytes) != NULL) {
        return -EINVAL;
    }
    while (begin < bytes) {
        const char *slash = memchr(path + begin, '/', bytes - begin);
        const uint32_t end = slash == NULL ? bytes : (uint32_t)(slash - path);

        if (end - begin > MDS_NAME_BYTES_MAX) {
            return -ENAMETOOLONG;
        }
        begin = end + 1;
    }
    const bool is_dot = path[bytes - 1] == '.' && (bytes == 1 || path[bytes - 2] == '/');
    const uint64_t hash = base_hash_bytes(path, bytes, fid_hash(where->base));

    *is_dir_out = path[bytes - 1] == '/' || is_dot || (where->flags & MDS_WANT_DIR) != 0;
    *fid_out = (struct fid){
        .seq = FID_SEQ_FIRST + mds->reactor + (hash >> 32) * mds->reactors,
        .oid = (uint32_t)hash & ~DIR_BIT,
    };
    return 0;
}

static void
null_attr(const struct mds *mds, const struct mds_where *where, const struct fid *fid, bool is_dir,
          struct mds_attr *attr)
{
    *attr = (struct mds_attr){
        .fid = *fid,
        .mode = is_dir ? S_IFDIR | 0777 : S_IFREG | 0644,
        .nlink = is_dir ? 2 : 1,
        .uid = where->uid,
        .gid = where->gid,
        .size = is_dir ? 4096 : 0,
        .blocks = is_dir ? 8 : 0,
        .atime_ns = mds->wall_ns,
        .mtime_ns = mds->wall_ns,
        .ctime_ns = mds->wall_ns,
        .stripe_bytes = mds->stripe_bytes,
        .stripe_count = (uint16_t)base_min_u32(mds->stripe_count, mds->ost_count),
    };
    if (mds->ost_count > 0) {
        attr->stripe_first = (uint16_t)(fid->oid % mds->ost_count);
    }
}

/* Answers with attributes; @is_dir: the request knows that it is one. */
static int
null_getattr(struct mds *mds, struct mds_call *call, const struct mds_where *where, bool is_dir)
{
    struct mds_getattr_rep *reply = call->reply;
    struct fid fid;
    bool looks_dir = false;
    const int rc = null_walk(mds, where, &fid, &looks_dir);

    if (rc != 0) {
        return rc;
    }
    if (is_dir || looks_dir) {
        fid.oid |= fid.oid == 1 ? 0 : DIR_BIT;
    }
    reply->head = (struct mds_rep_head){.fid = fid, .walk = MDS_WALK_DONE};
    null_attr(mds, where, &fid, is_dir || looks_dir, &reply->attr);
    call->reply_bytes = sizeof(*reply);
    return 0;
}

static int
null_open(struct mds *mds, struct mds_call *call)
{
    const struct mds_open_req *req = call->body;
    struct mds_open_rep *reply = call->reply;
    struct mds_where where;
    int rc = mds_where_init(&where, call, sizeof(*req), MDS_FOLLOW | MDS_WANT_DIR);

    if (rc == 0) {
        rc = mds_open_validate(call);
    }
    if (rc == 0) {
        rc = null_getattr(mds, call, &where, (req->open_flags & MDS_OPEN_DIRECTORY) != 0);
    }
    if (rc != 0) {
        return rc;
    }
    reply->handle = 1;
    reply->created = (req->open_flags & (MDS_OPEN_CREATE | MDS_OPEN_TMPFILE)) != 0 ? 1 : 0;
    reply->reserved = 0;
    call->reply_bytes = sizeof(*reply);
    return 0;
}

static int
null_create(struct mds *mds, struct mds_call *call)
{
    const struct mds_create_req *req = call->body;
    struct mds_getattr_rep *reply = call->reply;
    struct mds_where where;
    int rc = mds_where_init(&where, call, sizeof(*req), 0);

    if (rc == 0) {
        rc = mds_create_validate(call);
    }
    if (rc == 0) {
        rc = null_getattr(mds, call, &where, S_ISDIR(req->mode));
    }
    if (rc == 0) {
        reply->attr.mode = req->mode;
    }
    return rc;
}

static int
null_link_or_rename(struct mds *mds, struct mds_call *call, uint32_t flags)
{
    struct mds_getattr_rep *reply = call->reply;
    struct mds_where from;
    struct mds_where to;
    struct fid fid;
    bool is_dir = false;
    int rc = mds_where_init2(&from, &to, call, flags);

    if (rc == 0 && mds_is_own(mds, to.base)) {
        rc = null_walk(mds, &to, &fid, &is_dir);
    }
    if (rc == 0) {
        rc = null_getattr(mds, call, &from, false);
    }
    if (rc == 0 && call->opc == MDS_REINT_RENAME) {
        (void)memset(&reply->attr, 0, sizeof(reply->attr)); /* nothing was replaced */
    }
    return rc;
}

static int
null_readdir(struct mds *mds, struct mds_call *call)
{
    const struct mds_readdir_req *req = call->body;
    struct mds_readdir_rep *reply = call->reply;
    struct mds_where where;
    int rc = mds_where_init(&where, call, sizeof(*req), 0);

    if (rc == 0 && (where.bytes != 0 || req->reserved != 0)) {
        rc = -EINVAL;
    }
    if (rc == 0 && !mds_is_own(mds, where.base)) {
        rc = -EREMOTE;
    }
    if (rc != 0) {
        return rc;
    }
    char *at = (char *)(reply + 1);

    *reply = (struct mds_readdir_rep){.head = {.fid = *where.base}, .is_end = 1};
    for (uint64_t cookie = req->cookie + 1; cookie >= 1 && cookie <= 2; cookie++) {
        struct mds_dirent *entry = (struct mds_dirent *)(void *)at;

        *entry = (struct mds_dirent){
            .fid = *where.base,
            .cookie = cookie,
            .type = DT_DIR,
            .name_bytes = (uint16_t)cookie,
            .bytes = sizeof(*entry) + 8,
        };
        (void)memcpy(entry + 1, "..\0\0\0\0\0", 8);
        at += entry->bytes;
        reply->count++;
    }
    call->reply_bytes = (uint32_t)(at - (char *)call->reply);
    return 0;
}

static int
null_flock(struct mds_call *call)
{
    const struct mds_flock *req = call->body;
    struct mds_flock *reply = call->reply;

    if (call->body_bytes < sizeof(*req) || req->start > req->end ||
        (req->type & ~(uint32_t)MDS_LOCK_TEST) > MDS_LOCK_UNLOCK) {
        return -EINVAL;
    }
    *reply = *req;
    if ((req->type & MDS_LOCK_TEST) != 0) {
        reply->type = MDS_LOCK_UNLOCK;
    }
    call->reply_bytes = sizeof(*reply);
    return 0;
}

static int
null_statfs(const struct mds *mds, struct mds_call *call)
{
    struct mds_statfs_rep *reply = call->reply;

    *reply = (struct mds_statfs_rep){
        .files = mds->options.inodes_max,
        .files_free = mds->options.inodes_max,
        .bytes = mds->bytes_max,
        .bytes_free = mds->bytes_max,
    };
    call->reply_bytes = sizeof(*reply);
    return 0;
}

/* The rest: those with a head and nothing much behind it. */
static int
null_simple(struct mds *mds, struct mds_call *call, uint32_t fixed_bytes, uint32_t flags)
{
    struct mds_where where;
    int rc = mds_where_init(&where, call, fixed_bytes, flags);

    if (rc == 0 && call->opc == MDS_REINT_SETATTR) {
        rc = mds_setattr_validate(call);
    }
    if (rc == 0 && call->opc == MDS_ACCESS &&
        ((const struct mds_access_req *)call->body)->mask > 7) {
        rc = -EINVAL;
    }
    if (rc == 0) {
        rc = null_getattr(mds, call, &where, (where.flags & MDS_UNLINK_DIR) != 0);
    }
    if (rc == 0 && call->opc == MDS_READLINK) {
        rc = -EINVAL;
    }
    if (rc == 0 && call->opc == MDS_REINT_UNLINK) {
        ((struct mds_getattr_rep *)call->reply)->attr.nlink = 0;
    }
    if (rc != 0) {
        call->reply_bytes = 0;
    }
    return rc;
}

int
mds_null_execute(struct mds *mds, struct mds_call *call)
{
    switch ((enum mds_opc)call->opc) {
    case MDS_GETATTR:
        return null_simple(mds, call, sizeof(struct mds_getattr_req), MDS_FOLLOW | MDS_WANT_DIR);
    case MDS_ACCESS:
        return null_simple(mds, call, sizeof(struct mds_access_req), MDS_FOLLOW | MDS_WANT_DIR);
    case MDS_REINT_SETATTR:
        return null_simple(mds, call, sizeof(struct mds_setattr_req), MDS_FOLLOW | MDS_WANT_DIR);
    case MDS_READLINK:
        return null_simple(mds, call, sizeof(struct mds_getattr_req), 0);
    case MDS_REINT_UNLINK:
        return null_simple(mds, call, sizeof(struct mds_unlink_req), MDS_UNLINK_DIR);
    case MDS_REINT_OPEN:
        return null_open(mds, call);
    case MDS_CLOSE:
        return call->body_bytes < sizeof(struct mds_close_req) ? -EINVAL : 0;
    case MDS_REINT_CREATE:
        return null_create(mds, call);
    case MDS_REINT_LINK:
        return null_link_or_rename(mds, call, MDS_FOLLOW);
    case MDS_REINT_RENAME:
        return null_link_or_rename(mds, call, MDS_RENAME_NOREPLACE | MDS_RENAME_EXCHANGE);
    case MDS_READDIR:
        return null_readdir(mds, call);
    case MDS_STATFS:
        return null_statfs(mds, call);
    case MDS_FLOCK:
        return null_flock(call);
    case MDS_SYNC:
        return 0;
    case MDS_APPEND_LOCK:
    case MDS_APPEND_UNLOCK:
        return call->body_bytes < sizeof(struct mds_append_req) ? -EINVAL : 0;
    }
    return -EOPNOTSUPP;
}
