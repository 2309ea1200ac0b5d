/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RENAME within one reactor, with the order of checks that Linux has.
 *
 * A new name in the same directory takes over the cookie of the old one, and a name that is
 * replaced keeps its own, so that a reader of the directory meets neither twice.
 */
#include "servers/mds/out.h"

#include <dirent.h>
#include <errno.h>

/* Whether @inode is @dir or above it; or -EINPROGRESS. */
static int
is_ancestor(struct mds *mds, const struct mdt_inode *inode, struct mdt_inode *dir)
{
    while (dir != inode) {
        const struct fid parent = dir->u.dir.parent;

        if (fid_equal(&parent, &dir->attr.fid)) {
            return 0; /* the root */
        }
        const int rc = mds->ops->get(mds->store, &parent, &dir);

        if (rc != 0) {
            return rc == -ESTALE ? 0 : rc; /* above a removed directory is nothing */
        }
        BASE_ASSERT(dir != NULL);
    }
    return 1;
}

int
mds_rename_source(const struct mds_place *from)
{
    if (from->last != MDS_LAST_NAME) {
        return -EBUSY;
    }
    if (from->dirent == NULL) {
        return -ENOENT;
    }
    return from->has_slash && from->dirent->type != DT_DIR ? -ENOTDIR : 0;
}

int
mds_rename_target(const struct mds_place *to, uint8_t type, uint32_t flags)
{
    const bool is_exchange = (flags & MDS_RENAME_EXCHANGE) != 0;

    if (to->last != MDS_LAST_NAME) {
        return (flags & MDS_RENAME_NOREPLACE) != 0 ? -EEXIST : -EBUSY;
    }
    if ((flags & MDS_RENAME_NOREPLACE) != 0 && to->dirent != NULL) {
        return -EEXIST;
    }
    if (is_exchange) {
        if (to->dirent == NULL) {
            return -ENOENT;
        }
        return to->has_slash && to->dirent->type != DT_DIR ? -ENOTDIR : 0;
    }
    return to->has_slash && type != DT_DIR ? -ENOTDIR : 0;
}

/* Whether it concerns other reactors: their inodes, or the shape of the tree. */
static bool
rename_is_remote(const struct mds_place *from, const struct mds_place *to)
{
    if (from->inode == NULL || (to->dirent != NULL && to->inode == NULL)) {
        return true;
    }
    return from->dir != to->dir &&
           (from->dirent->type == DT_DIR || (to->dirent != NULL && to->dirent->type == DT_DIR));
}

/* Neither may end up below itself. */
static int
rename_tree(struct mds *mds, const struct mds_place *from, const struct mds_place *to,
            uint32_t flags)
{
    int rc = 0;

    if (from->dir == to->dir) {
        return 0;
    }
    if (S_ISDIR(from->inode->attr.mode)) {
        rc = is_ancestor(mds, from->inode, to->dir);
        if (rc != 0) {
            return rc == 1 ? -EINVAL : rc;
        }
    }
    if (to->inode != NULL && S_ISDIR(to->inode->attr.mode)) {
        rc = is_ancestor(mds, to->inode, from->dir);
        if (rc != 0) {
            return rc != 1 ? rc : (flags & MDS_RENAME_EXCHANGE) != 0 ? -EINVAL : -ENOTEMPTY;
        }
    }
    return 0;
}

int
mds_rename_permitted(const struct mds_rename_view *view, uint32_t uid, uint32_t gid)
{
    const bool is_dir = S_ISDIR(view->from->mode);
    const bool to_dir = view->to != NULL && S_ISDIR(view->to->mode);
    int rc = mds_may_delete(&view->from_dir->attr, view->from, uid, gid);

    if (rc != 0) {
        return rc;
    }
    if (view->to == NULL) {
        rc = mds_may_create_in(view->to_dir, uid, gid);
    } else {
        rc = mds_may_delete(view->to_dir, view->to, uid, gid);
    }
    if (rc != 0) {
        return rc;
    }
    if (view->to != NULL && !view->is_exchange && is_dir != to_dir) {
        return is_dir ? -ENOTDIR : -EISDIR;
    }
    /* The ".." of a directory that moves is written to. */
    if (!view->is_same_dir && is_dir && !mds_permits(view->from, uid, gid, 2)) {
        return -EACCES;
    }
    if (!view->is_same_dir && view->is_exchange && to_dir && !mds_permits(view->to, uid, gid, 2)) {
        return -EACCES;
    }
    return 0;
}

/* The same for both ends here; also whether the victim is empty. */
static int
rename_permitted(const struct mds_place *from, const struct mds_place *to,
                 const struct mds_where *where)
{
    const struct mds_rename_view view = {
        .from_dir = from->dir,
        .from = &from->inode->attr,
        .to_dir = &to->dir->attr,
        .to = to->inode == NULL ? NULL : &to->inode->attr,
        .is_same_dir = from->dir == to->dir,
        .is_exchange = (where->flags & MDS_RENAME_EXCHANGE) != 0,
    };
    const int rc = mds_rename_permitted(&view, where->uid, where->gid);

    if (rc == 0 && to->inode != NULL && !view.is_exchange && S_ISDIR(to->inode->attr.mode) &&
        to->inode->u.dir.entry_count > 0) {
        return to->inode->busy_count > 0 ? MDS_WAIT : -ENOTEMPTY;
    }
    return rc;
}

/* @inode is now in @dir. */
static void
rename_moved(struct mds *mds, struct mdt_inode *inode, struct mdt_inode *from,
             struct mdt_inode *dir)
{
    if (S_ISDIR(inode->attr.mode)) {
        from->attr.nlink--;
        dir->attr.nlink++;
        inode->u.dir.parent = dir->attr.fid;
    }
    inode->attr.ctime_ns = mds->wall_ns;
    mds->ops->changed(mds->store, inode);
}

/* What *@from names gets the name *@to; *@victim is what that was. */
static int
rename_apply(struct mds *mds, const struct mds_place *from, const struct mds_place *to,
             bool is_exchange, struct mds_attr *victim)
{
    BASE_ASSERT(from->dir != NULL && to->dir != NULL);
    if (is_exchange) {
        mds->ops->retarget(mds->store, to->dirent, from->inode, NULL, 0);
        mds->ops->retarget(mds->store, from->dirent, to->inode, NULL, 0);
        rename_moved(mds, to->inode, to->dir, from->dir);
    } else if (to->inode != NULL) {
        mds->ops->retarget(mds->store, to->dirent, from->inode, NULL, 0);
        mds->ops->remove(mds->store, from->dirent);
        if (S_ISDIR(to->inode->attr.mode)) {
            to->dir->attr.nlink--;
        }
        mds_inode_unlink(mds, to->inode, victim);
    } else {
        struct mdt_dirent *dirent = NULL;
        const struct mdt_name name = {
            .name = to->name,
            .bytes = to->name_bytes,
            .inode = from->inode,
            .reuse = from->dir == to->dir ? from->dirent : NULL,
        };
        const int rc = mds->ops->insert(mds->store, to->dir, &name, &dirent);

        if (rc != 0) {
            return rc;
        }
        mds->ops->remove(mds->store, from->dirent);
    }
    rename_moved(mds, from->inode, from->dir, to->dir);
    mds_dir_touch(mds, from->dir);
    mds_dir_touch(mds, to->dir);
    return 0;
}

/*
 * Finds both places. Return: 0; an error; or what mds_walk() may return, or MDS_PARKED: it
 * concerns other reactors.
 */
static int
rename_places(struct mds *mds, struct mds_call *call, const struct mds_where *where,
              const struct mds_where *where_to, struct mds_place *from, struct mds_place *to)
{
    int rc = mds_walk(mds, call, where, MDS_WALK_PARENT, from);

    if (rc == 0 && !mds_is_own(mds, where_to->base)) {
        return mds_remote_rename(mds, call);
    }
    if (rc == 0) {
        rc = mds_walk(mds, call, where_to, MDS_WALK_PARENT, to);
    }
    if (rc == 0 && from->last == MDS_LAST_NAME && to->last != MDS_LAST_NAME) {
        rc = mds_rename_target(to, DT_UNKNOWN, where->flags); /* said before what is there */
    }
    if (rc == 0) {
        rc = mds_rename_source(from);
    }
    if (rc == 0) {
        rc = mds_rename_target(to, from->dirent->type, where->flags);
    }
    if (rc == 0 && mds->reactors > 1 && rename_is_remote(from, to)) {
        return mds_remote_rename(mds, call);
    }
    return rc;
}

int
mds_rename(struct mds *mds, struct mds_call *call)
{
    const uint32_t both = MDS_RENAME_NOREPLACE | MDS_RENAME_EXCHANGE;
    struct mds_getattr_rep *reply = call->reply;
    struct mds_attr victim = {0};
    struct mds_where where;
    struct mds_where where_to;
    struct mds_place from = {0};
    struct mds_place to = {0};
    int rc = mds_where_init2(&where, &where_to, call, both);

    if (rc == 0 && (where.flags & both) == both) {
        rc = -EINVAL;
    }
    if (rc == 0) {
        rc = rename_places(mds, call, &where, &where_to, &from, &to);
    }
    if (rc == 0) {
        rc = rename_tree(mds, &from, &to, where.flags);
    }
    if (rc != 0) {
        return rc;
    }
    BASE_ASSERT(from.inode != NULL);
    const struct fid fid = from.dirent->fid;

    if (from.inode != to.inode) { /* else both name the same already, and stay */
        rc = rename_permitted(&from, &to, &where);
        if (rc == 0) {
            rc = rename_apply(mds, &from, &to, (where.flags & MDS_RENAME_EXCHANGE) != 0, &victim);
        }
        if (rc != 0) {
            return rc;
        }
    }
    reply->head = (struct mds_rep_head){.fid = fid, .walk = MDS_WALK_DONE};
    reply->attr = victim;
    call->reply_bytes = sizeof(*reply);
    return 0;
}
