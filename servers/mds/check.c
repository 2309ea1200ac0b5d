/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The invariants of mds.h, walked. For tests and fuzzing: O(n log n), allocates.
 */
#include "servers/mds/mds.h"

#include <stdlib.h>

struct seen {
    struct mdt_inode *inode;
    uint32_t names;
    uint32_t directories; /* names of directories in it */
    uint32_t busy;
    uint32_t opens;
    uint32_t writes;
};

struct census {
    struct seen *seen;
    size_t count;
    size_t max;
};

static void
census_add(struct mdt_inode *inode, void *arg)
{
    struct census *census = arg;

    BASE_ASSERT(census->count < census->max);
    census->seen[census->count++] = (struct seen){.inode = inode};
}

static int
seen_compare(const void *a, const void *b)
{
    const struct seen *left = a;
    const struct seen *right = b;

    return left->inode < right->inode ? -1 : left->inode > right->inode;
}

static struct seen *
census_find(const struct census *census, struct mdt_inode *inode)
{
    const struct seen key = {.inode = inode};
    struct seen *seen =
        bsearch(&key, census->seen, census->count, sizeof(*census->seen), seen_compare);

    BASE_ASSERT(seen != NULL);
    return seen;
}

/* Counts what the names in a directory mean. */
static void
census_dir(struct mds *mds, const struct census *census, struct seen *of)
{
    const struct mdt_inode *dir = of->inode;
    struct mdt_dirent *dirents[16];
    uint64_t cookie = 0;
    uint64_t entries = 0;
    uint32_t count = 0;

    while (mds->ops->scan(mds->store, dir, cookie, dirents, 16, &count) == 0) {
        for (uint32_t i = 0; i < count; i++) {
            struct mdt_dirent *dirent = dirents[i];
            struct mdt_dirent *found = NULL;

            BASE_ASSERT(dirent->cookie > cookie && dirent->cookie < dir->u.dir.cookie_next);
            cookie = dirent->cookie;
            entries++;
            BASE_ASSERT(dirent->dir == dir);
            BASE_ASSERT(
                mds->ops->lookup(mds->store, dir, dirent->name, dirent->name_bytes, &found) == 0);
            BASE_ASSERT(found == dirent);
            of->busy += dirent->is_busy != 0 ? 1 : 0;
            of->directories += dirent->type == (S_IFDIR >> 12) ? 1 : 0;
            if (dirent->inode != NULL) {
                struct mdt_inode *inode = dirent->inode;

                BASE_ASSERT(fid_equal(&inode->attr.fid, &dirent->fid));
                BASE_ASSERT((inode->attr.mode & S_IFMT) >> 12 == dirent->type);
                BASE_ASSERT(!S_ISDIR(inode->attr.mode) ||
                            fid_equal(&inode->u.dir.parent, &dir->attr.fid));
                census_find(census, inode)->names++;
            }
        }
    }
    BASE_ASSERT(entries == dir->u.dir.entry_count);
}

static void
census_handles(const struct mds *mds, const struct census *census)
{
    uint64_t handles = 0;

    BASE_LIST_FOREACH(link, &mds->clients) {
        const struct mds_client *client = BASE_CONTAINER_OF(link, struct mds_client, link);

        BASE_LIST_FOREACH(of_client, &client->handles) {
            const struct mds_handle *handle = BASE_CONTAINER_OF(of_client, struct mds_handle, link);
            struct seen *seen = census_find(census, handle->inode);

            BASE_ASSERT(handle->client == client); /* I4 */
            seen->opens++;
            seen->writes += (handle->flags & MDS_OPEN_WRITE) != 0 ? 1 : 0;
            handles++;
        }
    }
    BASE_ASSERT(handles == mds->counters.open_handles);
}

/* Compares the counts with what an inode says. */
static void
seen_check(const struct mds *mds, const struct seen *seen)
{
    const struct fid root = FID_ROOT;
    const struct mdt_inode *inode = seen->inode;
    const struct mds_attr *attr = &inode->attr;

    BASE_ASSERT(attr->nlink > 0 || inode->open_count > 0); /* I1 */
    BASE_ASSERT(inode->open_count == seen->opens);         /* I3 */
    BASE_ASSERT(inode->write_count == seen->writes);
    if (S_ISDIR(attr->mode)) {
        BASE_ASSERT(attr->nlink == 0 || attr->nlink == 2 + seen->directories); /* I2 */
        BASE_ASSERT(attr->nlink > 0 || inode->u.dir.entry_count == 0);
        BASE_ASSERT(inode->busy_count == seen->busy); /* I5 */
        if (mds->reactors == 1 && !fid_equal(&attr->fid, &root)) {
            BASE_ASSERT(seen->names == (attr->nlink > 0 ? 1 : 0));
        }
    } else if (mds->reactors == 1) {
        BASE_ASSERT(attr->nlink == seen->names); /* I2 */
    }
}

void
mds_check(struct mds *mds)
{
    struct mdt_store_stats stats;
    uint64_t orphans = 0;

    if (mds->ops->keeps_nothing) {
        return;
    }
    mds->ops->stats(mds->store, &stats);
    struct census census = {.max = stats.inodes};

    census.seen = calloc(stats.inodes + 1, sizeof(*census.seen));
    BASE_ASSERT(census.seen != NULL);
    mds->ops->each(mds->store, census_add, &census);
    BASE_ASSERT(census.count == census.max);
    qsort(census.seen, census.count, sizeof(*census.seen), seen_compare);
    for (size_t i = 0; i < census.count; i++) {
        if (S_ISDIR(census.seen[i].inode->attr.mode)) {
            census_dir(mds, &census, &census.seen[i]);
        }
    }
    census_handles(mds, &census);
    for (size_t i = 0; i < census.count; i++) {
        seen_check(mds, &census.seen[i]);
        orphans += census.seen[i].inode->attr.nlink == 0 ? 1 : 0;
    }
    BASE_ASSERT(orphans == mds->counters.orphans);
    free(census.seen);
}
