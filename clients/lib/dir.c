/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Directories, and the file system as a whole.
 *
 * Entries of a reply are hostile: each is checked against what is left of the reply.
 */
#include "clients/lib/core.h"

#include <errno.h>
#include <string.h>

#define READDIR_BYTES_MAX  8192u
#define READDIR_BYTES_ONE  (sizeof(struct mds_dirent) + MDS_NAME_BYTES_MAX + 1)
#define READDIR_BYTES_MEAN 64u /* of an entry, to ask for about as much as there is room for */

struct entries {
    struct causeway_dirent *entries;
    uint32_t room;
    uint32_t count;
    bool is_end;
};

/* One entry of a reply. Errors: -EPROTO. */
static int
entry_take(struct causeway_dirent *out, const char *at, uint32_t bytes)
{
    struct mds_dirent entry;

    if (bytes < sizeof(entry)) {
        return -EPROTO;
    }
    memcpy(&entry, at, sizeof(entry));
    if (entry.bytes > bytes || entry.bytes % 8 != 0 || entry.bytes < sizeof(entry) ||
        entry.name_bytes == 0 || entry.name_bytes > MDS_NAME_BYTES_MAX ||
        entry.name_bytes > entry.bytes - sizeof(entry) || entry.cookie == 0) {
        return -EPROTO;
    }
    const char *name = at + sizeof(entry);

    if (memchr(name, '/', entry.name_bytes) != NULL ||
        memchr(name, '\0', entry.name_bytes) != NULL) {
        return -EPROTO;
    }
    out->fid = client_fid_out(&entry.fid);
    out->ino = client_ino(&entry.fid);
    out->cookie = entry.cookie;
    out->type = (unsigned char)entry.type;
    memcpy(out->name, name, entry.name_bytes);
    out->name[entry.name_bytes] = '\0';
    return (int)entry.bytes;
}

static int
entries_take(struct mdc_op *mdc, const void *tail, uint32_t bytes)
{
    const struct mds_readdir_rep *rep = &mdc->reply.readdir;
    struct entries *entries = mdc->tail_arg;
    const char *at = tail;

    for (uint32_t i = 0; i < rep->count && entries->count < entries->room; i++) {
        const int taken = entry_take(&entries->entries[entries->count], at, bytes);

        if (taken < 0) {
            return taken;
        }
        entries->count++;
        at += taken;
        bytes -= (uint32_t)taken;
    }
    entries->is_end = rep->is_end != 0 && entries->count == rep->count;
    return entries->count == 0 && !entries->is_end ? -EPROTO : 0;
}

int
causeway_readdir(struct causeway_file *file, uint64_t cookie, struct causeway_dirent *entries_out,
                 int count)
{
    struct causeway *fs = file->fs;
    const struct causeway_fid fid = client_fid_out(&file->fid);
    struct client_call call;
    struct mdc_op mdc;

    if (count <= 0) {
        return -EINVAL;
    }
    if (!S_ISDIR(file->mode)) {
        return -ENOTDIR;
    }
    if (!file->can_read) {
        return -EBADF;
    }
    int rc = client_begin(&call, fs);

    if (rc != 0) {
        return rc;
    }
    if (cookie != 0 && cookie == file->readdir_end) {
        file->readdir_end = 0; /* the end was seen a moment ago; who asks again gets a new look */
        client_end(&call);
        return 0;
    }
    struct entries entries = {.entries = entries_out, .room = (uint32_t)count};

    rc = mdc_init(&mdc, fs, MDS_READDIR, sizeof(struct mds_readdir_req),
                  sizeof(struct mds_readdir_rep), &fid, "", 0);
    mdc.tail = entries_take;
    mdc.tail_arg = &entries;
    mdc.request.readdir.cookie = cookie;
    mdc.request.readdir.handle = file->handle;
    mdc.request.readdir.bytes_max = (uint32_t)base_min_u64(
        READDIR_BYTES_MAX, base_max_u64(READDIR_BYTES_ONE, (uint64_t)count * READDIR_BYTES_MEAN));
    if (rc == 0) {
        rc = mdc_run(&call, &mdc);
    }
    file->readdir_end = 0;
    if (rc == 0 && entries.is_end && entries.count > 0) {
        file->readdir_end = entries_out[entries.count - 1].cookie;
    }
    client_end(&call);
    return rc != 0 ? rc : (int)entries.count;
}

/* ---- statfs ---- */

struct statfs_all {
    struct client_each each;
    struct causeway_statfs *out;
};

static struct client_target *
mds_statfs_fill(struct client_each *each, uint32_t index, void *body, uint32_t *bytes_out)
{
    (void)body;
    *bytes_out = 0;
    return &each->op.fs->mds[index];
}

static int
mds_statfs_reply(struct client_each *each, uint32_t index, int status, const void *body)
{
    struct statfs_all *all = BASE_CONTAINER_OF(each, struct statfs_all, each);
    struct mds_statfs_rep rep;

    (void)index;
    if (status == 0) {
        memcpy(&rep, body, sizeof(rep));
        all->out->files += rep.files;
        all->out->files_free += rep.files_free;
    }
    return status;
}

/* Each reactor of an OSS answers for its part of each of its OSTs. */
static struct client_target *
ost_statfs_fill(struct client_each *each, uint32_t index, void *body, uint32_t *bytes_out)
{
    struct causeway *fs = each->op.fs;
    uint32_t ost = 0;

    while (index >= fs->osts[ost].reactors) {
        index -= fs->osts[ost].reactors;
        ost++;
    }
    *(struct ost_statfs_req *)body = (struct ost_statfs_req){.ost = fs->osts[ost].index};
    *bytes_out = sizeof(struct ost_statfs_req);
    return &fs->osts[ost].targets[index];
}

static int
ost_statfs_reply(struct client_each *each, uint32_t index, int status, const void *body)
{
    struct statfs_all *all = BASE_CONTAINER_OF(each, struct statfs_all, each);
    struct causeway_statfs *out = all->out;
    struct ost_statfs_rep rep;

    (void)index;
    if (status == 0) {
        memcpy(&rep, body, sizeof(rep));
        out->blocks += rep.bytes / out->block_bytes;
        out->blocks_free += rep.bytes_free / out->block_bytes;
    }
    return status;
}

int
causeway_statfs(struct causeway *fs, struct causeway_statfs *statfs_out)
{
    struct causeway_statfs out = {
        .block_bytes = 4096,
        .name_bytes_max = MDS_NAME_BYTES_MAX,
    };
    struct statfs_all all;
    struct client_call call;
    int rc = client_begin(&call, fs);

    if (rc != 0) {
        return rc;
    }
    all.out = &out;
    out.ost_count = fs->ost_count;
    client_each_init(&all.each, fs, MDS_STATFS, sizeof(struct mds_statfs_rep), fs->mds_reactors,
                     mds_statfs_fill, mds_statfs_reply);
    client_each_start(&all.each);
    rc = client_wait(&call, &all.each.op);
    /* In batches of one OST's reactors at most, which is what a struct client_each has room for. */
    uint32_t count = 0;

    for (uint32_t i = 0; i < fs->ost_count; i++) {
        count += fs->osts[i].reactors;
    }
    if (rc == 0 && count > 0 && count <= CLIENT_REACTORS_MAX) {
        client_each_init(&all.each, fs, OST_STATFS, sizeof(struct ost_statfs_rep), count,
                         ost_statfs_fill, ost_statfs_reply);
        client_each_start(&all.each);
        rc = client_wait(&call, &all.each.op);
    }
    client_end(&call);
    if (rc == 0) {
        *statfs_out = out;
    }
    return rc;
}
