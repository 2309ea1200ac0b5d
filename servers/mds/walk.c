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

/* A walk under way: the component at hand is path[begin, end), the next begins at `next`. */
struct walker {
    struct mds *mds;
    struct mds_call *call;
    const struct mds_where *where;
    struct mds_place *place;
    struct mdt_inode *at; /* where it has come to */
    uint32_t mode;
    uint32_t begin;
    uint32_t end;
    uint32_t next;
    bool is_last;
};

/* Finds the end of the component that begins at walker->begin, and what follows it. */
static inline void
walk_component(struct walker *walker)
{
    const char *path = walker->where->path;
    const uint32_t bytes = walker->where->bytes;
    const char *slash = memchr(path + walker->begin, '/', bytes - walker->begin);

    walker->end = slash == NULL ? bytes : (uint32_t)(slash - path);
    walker->next = walker->end;
    while (walker->next < bytes && path[walker->next] == '/') {
        walker->next++;
    }
    walker->is_last = walker->next == bytes;
    walker->place->has_slash = walker->is_last && walker->next > walker->end;
}

/* "." */
static int
walk_dot(const struct walker *walker)
{
    if (!walker->is_last) {
        return MDS_GO_ON;
    }
    walker->place->last = MDS_LAST_DOT;
    walker->place->inode = walker->at;
    return 0;
}

/* ".." */
static int
walk_dotdot(struct walker *walker)
{
    struct mds *mds = walker->mds;
    const struct fid *parent = &walker->at->u.dir.parent;

    if (walker->is_last && (walker->mode & MDS_WALK_PARENT) != 0) {
        walker->place->last = MDS_LAST_DOTDOT; /* no name; what it means does not matter */
        walker->place->inode = NULL;
        return 0;
    }
    if (!mds_is_own(mds, parent)) {
        return mds_moved(mds, walker->call, parent, walker->next, walker->where->which);
    }
    const int rc = mds->ops->get(mds->store, parent, &walker->at);

    if (rc != 0) {
        return rc == -ESTALE ? -ENOENT : rc;
    }
    if (!walker->is_last) {
        return MDS_GO_ON;
    }
    walker->place->last = MDS_LAST_DOTDOT;
    walker->place->inode = walker->at;
    return 0;
}

/* What is left to do with the last name, which is there: follow it, or hand it on. */
static int
walk_last_there(const struct walker *walker, const struct mdt_dirent *dirent)
{
    const struct mds_where *where = walker->where;
    const bool has_slash = walker->place->has_slash;

    if ((walker->mode & MDS_WALK_PARENT) != 0) {
        return 0;
    }
    if (dirent->type == DT_LNK && (has_slash || (where->flags & MDS_FOLLOW) != 0)) {
        return walk_symlink(walker->mds, walker->call, walker->at, dirent, walker->end,
                            where->which);
    }
    if (dirent->type != DT_DIR && (has_slash || (where->flags & MDS_WANT_DIR) != 0)) {
        return -ENOTDIR;
    }
    if (dirent->inode == NULL) {
        return mds_moved(walker->mds, walker->call, &dirent->fid, where->bytes, where->which);
    }
    return 0;
}

/* The last name; @dirent NULL: there is none. */
static inline int
walk_last(const struct walker *walker, struct mdt_dirent *dirent)
{
    struct mds_place *place = walker->place;

    place->last = MDS_LAST_NAME;
    place->dir = walker->at;
    place->name = walker->where->path + walker->begin;
    place->name_bytes = walker->end - walker->begin;
    place->dirent = dirent;
    if (dirent == NULL) {
        place->inode = NULL;
        return walker->mode == 0 ? -ENOENT : 0;
    }
    place->inode = dirent->inode;
    return walk_last_there(walker, dirent);
}

/* An ordinary name. */
static inline int
walk_name(struct walker *walker)
{
    struct mds *mds = walker->mds;
    struct mdt_dirent *dirent = NULL;
    const int rc =
        walker->at->attr.nlink == 0
            ? -ENOENT
            : mds->ops->lookup(mds->store, walker->at, walker->where->path + walker->begin,
                               walker->end - walker->begin, &dirent);

    if (rc != 0) {
        return rc == -ENOENT && walker->is_last ? walk_last(walker, NULL) : rc;
    }
    if (BASE_UNLIKELY(dirent->is_busy != 0) &&
        ((walker->mode & MDS_WALK_TOKEN) == 0 || dirent->is_busy != MDS_BUSY_TOKEN)) {
        return MDS_WAIT;
    }
    if (walker->is_last) {
        return walk_last(walker, dirent);
    }
    if (BASE_UNLIKELY(dirent->type != DT_DIR)) {
        return dirent->type != DT_LNK ? -ENOTDIR
                                      : walk_symlink(mds, walker->call, walker->at, dirent,
                                                     walker->end, walker->where->which);
    }
    if (dirent->inode == NULL) {
        return mds_moved(mds, walker->call, &dirent->fid, walker->next, walker->where->which);
    }
    walker->at = dirent->inode;
    return MDS_GO_ON;
}

/* One component. */
static inline int
walk_step(struct walker *walker)
{
    const char *name = walker->where->path + walker->begin;
    const uint32_t bytes = walker->end - walker->begin;

    if (!S_ISDIR(walker->at->attr.mode)) {
        return -ENOTDIR;
    }
    if (!mds_permits(&walker->at->attr, walker->where->uid, walker->where->gid, 1)) {
        return -EACCES;
    }
    if (bytes > MDS_NAME_BYTES_MAX) {
        return -ENAMETOOLONG;
    }
    if (BASE_UNLIKELY(name[0] == '.')) {
        if (bytes == 1) {
            return walk_dot(walker);
        }
        if (bytes == 2 && name[1] == '.') {
            return walk_dotdot(walker);
        }
    }
    return walk_name(walker);
}

int
mds_walk(struct mds *mds, struct mds_call *call, const struct mds_where *where, uint32_t mode,
         struct mds_place *place)
{
    struct walker walker = {.mds = mds, .call = call, .where = where, .place = place, .mode = mode};

    if (!mds_is_own(mds, where->base)) {
        return -EREMOTE;
    }
    int rc = mds->ops->get(mds->store, where->base, &walker.at);

    if (rc != 0) {
        return rc;
    }
    *place = (struct mds_place){.last = MDS_LAST_NONE, .inode = walker.at};
    if (where->bytes == 0) {
        return (where->flags & MDS_WANT_DIR) != 0 && !S_ISDIR(walker.at->attr.mode) ? -ENOTDIR : 0;
    }
    if (where->path[0] == '/' || memchr(where->path, 0, where->bytes) != NULL) {
        return -EINVAL;
    }
    do {
        walk_component(&walker);
        rc = walk_step(&walker);
        walker.begin = walker.next;
    } while (rc == MDS_GO_ON);
    return rc;
}

int
mds_place_fill(struct mds *mds, const struct mds_place *place, struct mdt_inode *inode,
               struct mdt_dirent **dirent_out)
{
    const struct mdt_name name = {
        .name = place->name,
        .bytes = place->name_bytes,
        .inode = inode,
    };

    return mds->ops->insert(mds->store, place->dir, &name, dirent_out);
}

int
mds_place_hold(struct mds *mds, const struct mds_place *place, struct mdt_dirent **dirent_out)
{
    const struct fid none = {0};
    const struct mdt_name name = {
        .name = place->name,
        .bytes = place->name_bytes,
        .type = DT_UNKNOWN,
        .fid = &none,
    };

    return mds->ops->insert(mds->store, place->dir, &name, dirent_out);
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
