/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The metadata store `mem`: all in memory, for the life of the process.
 *
 * Three hash tables: inodes by FID, names by (directory, name), and chunks by (directory, number).
 * A chunk holds the names of a directory that were made one after another, in an array of 32 slots:
 * a cookie is chunk number * 32 + slot, so reading a directory walks arrays and going on after any
 * cookie is one look-up. Chunks that became empty are freed; going on after a cookie of such a
 * chunk walks the directory's chunks from the start, which a reader that deletes what it read never
 * notices: the first one left is the one.
 *
 * A file takes 192 bytes for the inode, 128 for a name up to 64 bytes, 10 of a chunk, and 16 to 32
 * for its places in the tables: about 360.
 *
 * Invariants:
 *
 *   I1  a chunk is on its directory's list, by number, and in the table, while it has names or it
 * is the last and has slots to give I2  dirent d is in slot d->cookie % 32 of chunk d->cookie / 32
 * of d->dir, and nowhere else I3  dir.entry_count names are in the chunks of dir
 */
#include "servers/store/arena.h"
#include "servers/store_mdt.h"

#include "base/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CHUNK_SLOTS 32u

struct mdt_chunk {
    struct table_node node;
    struct mdt_inode *dir;
    struct mdt_chunk *prev, *next; /* of the directory, by number */
    uint64_t number;               /* from 1 */
    uint32_t used;                 /* a bit for each slot */
    uint32_t fresh;                /* slots given so far */
    struct mdt_dirent *slots[CHUNK_SLOTS];
};
static_assert(sizeof(struct mdt_chunk) <= 320, "a arena class");
static_assert(MDT_COOKIE_FIRST == CHUNK_SLOTS, "the first chunk has number 1");

struct mdt_store {
    struct mdt_store_options options;
    struct arena arena;
    struct table inodes;
    struct table dirents;
    struct table chunks;
    uint64_t directories;
};

/*
 * The server makes FIDs one after another, so their numbers fill the buckets evenly and in the
 * order of memory: no mixing, no misses when files are made. Clients choose names, not FIDs.
 */
static uint64_t
inode_hash(const struct fid *fid)
{
    return base_hash_u64(fid->seq) << 32 | fid->oid;
}

static uint64_t
chunk_hash(const struct mdt_inode *dir, uint64_t number)
{
    return base_hash_u64(dir->u.dir.hash + number);
}

static int
mem_open(const struct mdt_store_options *options, struct mdt_store **store_out)
{
    struct mdt_store *store = calloc(1, sizeof(*store));

    if (store == NULL) {
        return -ENOMEM;
    }
    store->options = *options;
    arena_init(&store->arena, options->bytes_max);
    if (table_init(&store->inodes) != 0 || table_init(&store->dirents) != 0 ||
        table_init(&store->chunks) != 0) {
        table_fini(&store->inodes);
        table_fini(&store->dirents);
        table_fini(&store->chunks);
        free(store);
        return -ENOMEM;
    }
    *store_out = store;
    return 0;
}

static void
mem_close(struct mdt_store *store)
{
    table_fini(&store->inodes);
    table_fini(&store->dirents);
    table_fini(&store->chunks);
    arena_fini(&store->arena);
    free(store);
}

static int
mem_get(struct mdt_store *store, const struct fid *fid, struct mdt_inode **inode_out)
{
    const uint64_t hash = inode_hash(fid);

    TABLE_FOREACH_OF(node, &store->inodes, hash)
    {
        struct mdt_inode *inode = BASE_CONTAINER_OF(node, struct mdt_inode, node);

        if (fid_equal(&inode->attr.fid, fid)) {
            *inode_out = inode;
            return 0;
        }
    }
    return -ESTALE;
}

static int
mem_lookup(struct mdt_store *store, const struct mdt_inode *dir, const char *name, uint32_t bytes,
           struct mdt_dirent **dirent_out)
{
    const uint64_t hash = base_hash_bytes(name, bytes, dir->u.dir.hash);

    TABLE_FOREACH_OF(node, &store->dirents, hash)
    {
        struct mdt_dirent *dirent = BASE_CONTAINER_OF(node, struct mdt_dirent, node);

        if (dirent->dir == dir && dirent->name_bytes == bytes &&
            memcmp(dirent->name, name, bytes) == 0) {
            *dirent_out = dirent;
            return 0;
        }
    }
    return -ENOENT;
}

static struct mdt_chunk *
chunk_find(const struct mdt_store *store, const struct mdt_inode *dir, uint64_t number)
{
    const uint64_t hash = chunk_hash(dir, number);

    TABLE_FOREACH_OF(node, &store->chunks, hash)
    {
        struct mdt_chunk *chunk = BASE_CONTAINER_OF(node, struct mdt_chunk, node);

        if (chunk->dir == dir && chunk->number == number) {
            return chunk;
        }
    }
    return NULL;
}

/* The first chunk of @dir with at least @number; NULL: none. */
static struct mdt_chunk *
chunk_from(const struct mdt_inode *dir, uint64_t number)
{
    struct mdt_chunk *chunk = dir->u.dir.first;

    if (dir->u.dir.last == NULL || dir->u.dir.last->number < number) {
        return NULL;
    }
    while (chunk->number < number) {
        chunk = chunk->next;
    }
    return chunk;
}

static int
mem_scan(struct mdt_store *store, const struct mdt_inode *dir, uint64_t cookie,
         struct mdt_dirent **dirents_out, uint32_t max, uint32_t *count_out)
{
    uint32_t count = 0;

    if (cookie == UINT64_MAX) {
        return -ENOENT;
    }
    const uint64_t from = base_max_u64(cookie + 1, MDT_COOKIE_FIRST);
    const uint64_t number = from / CHUNK_SLOTS;
    struct mdt_chunk *chunk = chunk_find(store, dir, number);

    if (chunk == NULL) {
        chunk = chunk_from(dir, number);
    }
    for (; chunk != NULL && count < max; chunk = chunk->next) {
        uint32_t used = chunk->used;

        if (chunk->number == number) {
            used &= UINT32_MAX << (from % CHUNK_SLOTS);
        }
        for (; used != 0 && count < max; used &= used - 1) {
            struct mdt_dirent *dirent = chunk->slots[__builtin_ctz(used)];

            __builtin_prefetch(dirent);
            dirents_out[count++] = dirent;
        }
    }
    *count_out = count;
    return count > 0 ? 0 : -ENOENT;
}

static int
mem_make(struct mdt_store *store, const struct mdt_make *make, struct mdt_inode **inode_out)
{
    if (store->inodes.count >= store->options.inodes_max) {
        return -ENOSPC;
    }
    struct mdt_inode *inode = arena_take(&store->arena, sizeof(*inode));

    if (inode == NULL) {
        return -ENOSPC;
    }
    const uint64_t hash = inode_hash(&make->attr->fid);

    inode->attr = *make->attr;
    (void)memset((char *)inode + offsetof(struct mdt_inode, open_count), 0,
                 sizeof(*inode) - offsetof(struct mdt_inode, open_count));
    if (S_ISLNK(make->attr->mode)) {
        inode->u.link.target = arena_take(&store->arena, make->target_bytes);
        if (inode->u.link.target == NULL) {
            arena_return(&store->arena, inode, sizeof(*inode));
            return -ENOSPC;
        }
        (void)memcpy(inode->u.link.target, make->target, make->target_bytes);
        inode->u.link.bytes = make->target_bytes;
    } else if (S_ISDIR(make->attr->mode)) {
        inode->u.dir.parent = *make->parent;
        inode->u.dir.cookie_next = MDT_COOKIE_FIRST;
        inode->u.dir.hash = base_hash_combine(hash, store->options.hash_seed);
        store->directories++;
    }
    table_insert(&store->inodes, &inode->node, hash);
    *inode_out = inode;
    return 0;
}

static void
chunk_drop(struct mdt_store *store, struct mdt_chunk *chunk)
{
    struct mdt_inode *dir = chunk->dir;

    if (chunk->prev == NULL) {
        dir->u.dir.first = chunk->next;
    } else {
        chunk->prev->next = chunk->next;
    }
    if (chunk->next == NULL) {
        dir->u.dir.last = chunk->prev;
    } else {
        chunk->next->prev = chunk->prev;
    }
    table_remove(&store->chunks, &chunk->node);
    arena_return(&store->arena, chunk, sizeof(*chunk));
}

static void
mem_drop(struct mdt_store *store, struct mdt_inode *inode)
{
    if (S_ISLNK(inode->attr.mode)) {
        arena_return(&store->arena, inode->u.link.target, inode->u.link.bytes);
    } else if (S_ISDIR(inode->attr.mode)) {
        BASE_ASSERT(inode->u.dir.entry_count == 0);
        if (inode->u.dir.first != NULL) {
            chunk_drop(store, inode->u.dir.first);
        }
        BASE_ASSERT(inode->u.dir.first == NULL);
        store->directories--;
    }
    table_remove(&store->inodes, &inode->node);
    arena_return(&store->arena, inode, sizeof(*inode));
}

/* A chunk with a fresh slot at the end of @dir, or NULL. */
static struct mdt_chunk *
chunk_last(struct mdt_store *store, struct mdt_inode *dir)
{
    struct mdt_chunk *last = dir->u.dir.last;

    if (last != NULL && last->fresh < CHUNK_SLOTS) {
        return last;
    }
    struct mdt_chunk *chunk = arena_take(&store->arena, sizeof(*chunk));

    if (chunk == NULL) {
        return NULL;
    }
    chunk->dir = dir;
    chunk->prev = last;
    chunk->next = NULL;
    chunk->number = (dir->u.dir.cookie_next + CHUNK_SLOTS - 1) / CHUNK_SLOTS;
    chunk->used = 0;
    chunk->fresh = 0; /* slots that are not used are never looked at */
    if (last == NULL) {
        dir->u.dir.first = chunk;
    } else {
        last->next = chunk;
    }
    dir->u.dir.last = chunk;
    table_insert(&store->chunks, &chunk->node, chunk_hash(dir, chunk->number));
    return chunk;
}

static void
dirent_target_set(struct mdt_dirent *dirent, struct mdt_inode *inode, const struct fid *fid,
                  uint8_t type)
{
    dirent->inode = inode;
    if (inode != NULL) {
        dirent->fid = inode->attr.fid;
        dirent->type = (uint8_t)((inode->attr.mode & S_IFMT) >> 12); /* as IFTODT() */
    } else {
        dirent->fid = *fid;
        dirent->type = type;
    }
}

static int
mem_insert(struct mdt_store *store, struct mdt_inode *dir, const struct mdt_name *name,
           struct mdt_dirent **dirent_out)
{
    const uint32_t size = (uint32_t)sizeof(struct mdt_dirent) + name->bytes;
    struct mdt_dirent *reuse = name->reuse;
    struct mdt_dirent *dirent = arena_take(&store->arena, size);

    if (dirent == NULL) {
        return -ENOSPC;
    }
    struct mdt_chunk *chunk = reuse == NULL ? chunk_last(store, dir)
                                            : chunk_find(store, dir, reuse->cookie / CHUNK_SLOTS);

    if (chunk == NULL) {
        BASE_ASSERT(reuse == NULL); /* I2 */
        arena_return(&store->arena, dirent, size);
        return -ENOSPC;
    }
    if (reuse == NULL) {
        dirent->cookie = chunk->number * CHUNK_SLOTS + chunk->fresh;
        chunk->used |= 1u << chunk->fresh;
        chunk->fresh++;
        dir->u.dir.cookie_next = dirent->cookie + 1;
        dir->u.dir.entry_count++;
    } else {
        BASE_ASSERT(chunk->slots[reuse->cookie % CHUNK_SLOTS] == reuse); /* I2 */
        dirent->cookie = reuse->cookie;
        reuse->cookie = 0; /* remove() leaves the slot alone */
    }
    chunk->slots[dirent->cookie % CHUNK_SLOTS] = dirent;
    dirent->dir = dir;
    dirent->name_bytes = (uint16_t)name->bytes;
    dirent->is_busy = 0;
    dirent->reserved = 0;
    (void)memcpy(dirent->name, name->name, name->bytes);
    dirent_target_set(dirent, name->inode, name->fid, name->type);
    table_insert(&store->dirents, &dirent->node,
                 base_hash_bytes(name->name, name->bytes, dir->u.dir.hash));
    *dirent_out = dirent;
    return 0;
}

static void
mem_remove(struct mdt_store *store, struct mdt_dirent *dirent)
{
    struct mdt_inode *dir = dirent->dir;

    if (dirent->cookie != 0) {
        struct mdt_chunk *chunk = chunk_find(store, dir, dirent->cookie / CHUNK_SLOTS);
        const uint32_t slot = dirent->cookie % CHUNK_SLOTS;

        BASE_ASSERT(chunk != NULL && chunk->slots[slot] == dirent); /* I2 */
        BASE_ASSERT(dir->u.dir.entry_count > 0);                    /* I3 */
        dir->u.dir.entry_count--;
        chunk->used &= ~(1u << slot);
        if (chunk->used == 0 && chunk->fresh == CHUNK_SLOTS) {
            chunk_drop(store, chunk);
        }
    }
    table_remove(&store->dirents, &dirent->node);
    arena_return(&store->arena, dirent, (uint32_t)sizeof(*dirent) + dirent->name_bytes);
}

static void
mem_retarget(struct mdt_store *store, struct mdt_dirent *dirent, struct mdt_inode *inode,
             const struct fid *fid, uint8_t type)
{
    (void)store;
    dirent_target_set(dirent, inode, fid, type);
}

static void
mem_changed(struct mdt_store *store, struct mdt_inode *inode)
{
    (void)store;
    (void)inode;
}

static int
mem_commit(struct mdt_store *store,
           uint64_t *ticket_out) /* NOLINT(readability-non-const-parameter): as the ops say */
{
    (void)store;
    (void)ticket_out;
    return 0;
}

static void
mem_stats(const struct mdt_store *store, struct mdt_store_stats *stats_out)
{
    *stats_out = (struct mdt_store_stats){
        .inodes = store->inodes.count,
        .directories = store->directories,
        .bytes = store->arena.bytes,
        .bytes_used = store->arena.used_bytes,
    };
}

static void
chains_each(struct table_node **chains, uint64_t count,
            void (*visit)(struct mdt_inode *inode, void *arg), void *arg)
{
    for (uint64_t i = 0; i < count; i++) {
        for (struct table_node *node = chains[i]; node != NULL; node = node->next) {
            visit(BASE_CONTAINER_OF(node, struct mdt_inode, node), arg);
        }
    }
}

static void
mem_each(struct mdt_store *store, void (*visit)(struct mdt_inode *inode, void *arg), void *arg)
{
    const struct table *table = &store->inodes;

    chains_each(table->buckets, table->mask + 1, visit, arg);
    if (table->old != NULL) {
        chains_each(table->old + table->moved, table->old_mask + 1 - table->moved, visit, arg);
    }
}

const struct mdt_store_ops mdt_store_mem = {
    .name = "mem",
    .open = mem_open,
    .close = mem_close,
    .get = mem_get,
    .lookup = mem_lookup,
    .scan = mem_scan,
    .make = mem_make,
    .drop = mem_drop,
    .insert = mem_insert,
    .remove = mem_remove,
    .retarget = mem_retarget,
    .changed = mem_changed,
    .commit = mem_commit,
    .stats = mem_stats,
    .each = mem_each,
};
