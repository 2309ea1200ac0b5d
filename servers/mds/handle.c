/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Open files. Handles live in chunks that are made as needed and stay; the free ones are a list by
 * index. The generation in a handle's wire name makes a stale one miss.
 */
#include "servers/mds/mds.h"

#include <errno.h>
#include <stdlib.h>

#define NONE UINT32_MAX

static struct mds_handle *
handle_at(const struct mds *mds, uint32_t index)
{
    return &mds->handle_chunks[index / MDS_HANDLES_AT_ONCE][index % MDS_HANDLES_AT_ONCE];
}

/* Makes a chunk of free handles. */
static bool
handles_grow(struct mds *mds)
{
    if (mds->handle_count == MDS_HANDLES_MAX) {
        return false;
    }
    struct mds_handle *chunk = arena_large_alloc(MDS_HANDLES_AT_ONCE * sizeof(*chunk));

    if (chunk == NULL) {
        return false;
    }
    mds->handle_chunks[mds->handle_count / MDS_HANDLES_AT_ONCE] = chunk;
    for (uint32_t i = 0; i < MDS_HANDLES_AT_ONCE; i++) {
        base_list_init(&chunk[i].link);
        chunk[i].index = mds->handle_count + i;
        chunk[i].generation = 1;
        chunk[i].next_free = i + 1 == MDS_HANDLES_AT_ONCE ? mds->handle_free : chunk[i].index + 1;
    }
    mds->handle_free = mds->handle_count;
    mds->handle_count += MDS_HANDLES_AT_ONCE;
    return true;
}

struct mds_handle *
mds_handle_open(struct mds *mds, struct mds_client *client, struct mdt_inode *inode, uint32_t flags)
{
    if (mds->handle_free == NONE && !handles_grow(mds)) {
        return NULL;
    }
    struct mds_handle *handle = handle_at(mds, mds->handle_free);

    mds->handle_free = handle->next_free;
    handle->inode = inode;
    handle->client = client;
    handle->flags = flags;
    handle->cookie_end = 0;
    base_list_append(&client->handles, &handle->link);
    inode->open_count++;
    if ((flags & MDS_OPEN_WRITE) != 0) {
        inode->write_count++;
    }
    mds->counters.open_handles++;
    return handle;
}

struct mds_handle *
mds_handle_find(struct mds *mds, const struct mds_client *client, uint64_t number,
                const struct fid *fid)
{
    const uint32_t index = (uint32_t)number;

    if (index >= mds->handle_count) {
        return NULL;
    }
    struct mds_handle *handle = handle_at(mds, index);

    if (handle->inode == NULL || handle->generation != (uint32_t)(number >> 32) ||
        handle->client != client || !fid_equal(&handle->inode->attr.fid, fid)) {
        return NULL;
    }
    return handle;
}

void
mds_handle_close(struct mds *mds, struct mds_handle *handle, bool has_written)
{
    struct mdt_inode *inode = handle->inode;

    BASE_ASSERT(inode->open_count > 0); /* I3 */
    if (inode->locks != NULL) {
        mds_locks_close(mds, handle);
    }
    inode->open_count--;
    mds->counters.open_handles--;
    if ((handle->flags & MDS_OPEN_WRITE) != 0) {
        BASE_ASSERT(inode->write_count > 0);
        inode->write_count--;
        if (has_written && S_ISREG(inode->attr.mode)) {
            inode->attr.flags |= MDS_ATTR_SIZE_ON_OST;
            if ((inode->state & MDT_TIMES_SET) == 0 && inode->attr.mtime_ns < mds->wall_ns) {
                /* ctime stays: until something else changes the objects' own times count. */
                inode->attr.mtime_ns = mds->wall_ns;
            }
            mds->ops->changed(mds->store, inode);
        }
        if (inode->write_count == 0) {
            inode->state &= ~(uint32_t)MDT_TIMES_SET;
        }
    }
    base_list_unlink(&handle->link);
    handle->inode = NULL;
    handle->client = NULL;
    handle->generation++;
    handle->next_free = mds->handle_free;
    mds->handle_free = handle->index;
    if (inode->attr.nlink == 0 && inode->open_count == 0) {
        BASE_ASSERT(mds->counters.orphans > 0);
        mds->counters.orphans--;
        mds_inode_release(mds, inode);
    }
}
