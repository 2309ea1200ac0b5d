/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * READDIR. Names come in the order they were made. Through a handle, a reading ends at the names
 * that were there when it began, so that a program which makes names as it reads comes to an end.
 */
#include "servers/mds/mds.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#define AT_ONCE 64u

struct filler {
    char *at;
    char *end;
    uint32_t count;
};

/* Writes an entry if there is room. */
static bool
fill(struct filler *filler, const struct fid *fid, uint64_t cookie, uint16_t type, const char *name,
     uint32_t name_bytes)
{
    const uint32_t bytes = (uint32_t)base_align_up(sizeof(struct mds_dirent) + name_bytes, 8);
    struct mds_dirent *entry = (struct mds_dirent *)(void *)filler->at;

    if ((ptrdiff_t)bytes > filler->end - filler->at) {
        return false;
    }
    *entry = (struct mds_dirent){
        .fid = *fid,
        .cookie = cookie,
        .type = type,
        .name_bytes = (uint16_t)name_bytes,
        .bytes = bytes,
    };
    (void)memset(filler->at + bytes - 8, 0, bytes > sizeof(*entry) ? 8 : 0);
    (void)memcpy(entry + 1, name, name_bytes);
    filler->at += bytes;
    filler->count++;
    return true;
}

/* Fills in the names after @cookie and below @end. Return: whether that was all; or an error. */
static int
fill_names(struct mds *mds, const struct mdt_inode *dir, uint64_t cookie, uint64_t end,
           struct filler *filler, bool *is_end_out)
{
    struct mdt_dirent *dirents[AT_ONCE];
    uint32_t count = 0;

    for (;;) {
        const int rc = mds->ops->scan(mds->store, dir, cookie, dirents, AT_ONCE, &count);

        if (rc != 0) {
            *is_end_out = true;
            return rc == -ENOENT ? 0 : rc;
        }
        for (uint32_t i = 0; i < count; i++) {
            const struct mdt_dirent *dirent = dirents[i];

            if (dirent->cookie >= end) {
                *is_end_out = true;
                return 0;
            }
            cookie = dirent->cookie;
            if (dirent->type != DT_UNKNOWN && /* else: is just being made */
                !fill(filler, &dirent->fid, cookie, dirent->type, dirent->name,
                      dirent->name_bytes)) {
                *is_end_out = false;
                return 0;
            }
        }
    }
}

/*
 * Who may read: whoever opened it, or has the permission. *@handle_out is NULL without one.
 */
static int
readdir_permitted(struct mds *mds, const struct mds_call *call, const struct mdt_inode *dir,
                  struct mds_handle **handle_out)
{
    const struct mds_readdir_req *req = call->body;

    *handle_out = NULL;
    if (!S_ISDIR(dir->attr.mode)) {
        return -ENOTDIR;
    }
    if (req->handle != 0) {
        *handle_out = mds_handle_find(mds, call->client, req->handle, &dir->attr.fid);
        return *handle_out == NULL || ((*handle_out)->flags & MDS_OPEN_READ) == 0 ? -EBADF : 0;
    }
    if (dir->attr.nlink == 0) {
        return -ENOENT;
    }
    return mds_permits(&dir->attr, req->head.uid, req->head.gid, 4) ? 0 : -EACCES;
}

/* Fills in everything after @cookie. */
static int
fill_all(struct mds *mds, const struct mdt_inode *dir, uint64_t cookie, uint64_t end,
         struct filler *filler, bool *is_end_out)
{
    if (cookie == 0) {
        if (!fill(filler, &dir->attr.fid, 1, DT_DIR, ".", 1)) {
            return -EINVAL;
        }
        cookie = 1;
    }
    if (cookie == 1 && !fill(filler, &dir->u.dir.parent, 2, DT_DIR, "..", 2)) {
        return filler->count == 0 ? -EINVAL : 0;
    }
    const int rc = fill_names(mds, dir, cookie, end, filler, is_end_out);

    return rc == 0 && filler->count == 0 && !*is_end_out ? -EINVAL : rc; /* not even one fits */
}

int
mds_readdir(struct mds *mds, struct mds_call *call)
{
    const struct mds_readdir_req *req = call->body;
    struct mds_readdir_rep *reply = call->reply;
    struct mds_handle *handle = NULL;
    struct mds_where where;
    struct mds_place walk;
    int rc = mds_where_init(&where, call, sizeof(*req), 0);

    if (rc == 0 && (where.bytes != 0 || req->reserved != 0)) {
        rc = -EINVAL;
    }
    if (rc == 0) {
        rc = mds_walk(mds, call, &where, 0, &walk);
    }
    if (rc == 0) {
        rc = readdir_permitted(mds, call, walk.inode, &handle);
    }
    if (rc != 0) {
        return rc;
    }
    const struct mdt_inode *dir = walk.inode;
    const uint32_t room = base_min_u32(req->bytes_max, call->reply_max - (uint32_t)sizeof(*reply));
    struct filler filler = {.at = (char *)(reply + 1), .end = (char *)(reply + 1) + room};
    bool is_end = dir->attr.nlink == 0;

    if (handle != NULL && (req->cookie == 0 || handle->cookie_end == 0)) {
        handle->cookie_end = dir->u.dir.cookie_next;
    }
    if (!is_end) {
        rc = fill_all(mds, dir, req->cookie, handle != NULL ? handle->cookie_end : UINT64_MAX,
                      &filler, &is_end);
        if (rc != 0) {
            return rc;
        }
    }
    reply->head = (struct mds_rep_head){.fid = dir->attr.fid, .walk = MDS_WALK_DONE};
    reply->count = filler.count;
    reply->is_end = is_end ? 1 : 0;
    call->reply_bytes = (uint32_t)(filler.at - (char *)call->reply);
    return 0;
}
