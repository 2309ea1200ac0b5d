/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Open files: open, close, attributes, size.
 *
 * Closes of files that were neither written nor locked are gathered: the MDS learns of them when
 * there are CLIENT_CLOSES_BATCH, by the first call after CLIENT_CLOSES_NS, or when a thread goes to
 * sleep. Until then they only cost others the look at the objects that an open file's size takes.
 *
 * A file's size and modification time are those of its objects as soon as the MDS says that there
 * may be bytes; utimens() is told to the objects as well, so the object that changed last always
 * has the time.
 */
#include "clients/lib/core.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S INT64_C(1000000000)

/* ---- the pool of files ---- */

struct client_file_chunk {
    struct client_file_chunk *next;
    struct causeway_file files[CLIENT_FILES_CHUNK];
};

struct causeway_file *
client_file_take(struct causeway *fs)
{
    if (base_list_empty(&fs->files_free)) {
        if (fs->file_count + CLIENT_FILES_CHUNK > CLIENT_FILES_MAX) {
            return NULL;
        }
        struct client_file_chunk *chunk = calloc(1, sizeof(*chunk));

        if (chunk == NULL) {
            return NULL;
        }
        chunk->next = fs->file_chunks;
        fs->file_chunks = chunk;
        fs->file_count += CLIENT_FILES_CHUNK;
        for (uint32_t i = 0; i < CLIENT_FILES_CHUNK; i++) {
            base_list_init(&chunk->files[i].link);
            base_list_append(&fs->files_free, &chunk->files[i].link);
        }
    }
    struct causeway_file *file =
        BASE_CONTAINER_OF(base_list_last(&fs->files_free), struct causeway_file, link);

    base_list_unlink(&file->link);
    base_list_append(&fs->files, &file->link);
    file->fs = fs;
    return file;
}

void
client_file_return(struct causeway_file *file)
{
    base_list_unlink(&file->link);
    base_list_append(&file->fs->files_free, &file->link);
}

void
client_files_fini(struct causeway *fs)
{
    while (fs->file_chunks != NULL) {
        struct client_file_chunk *chunk = fs->file_chunks;

        fs->file_chunks = chunk->next;
        free(chunk);
    }
}

/* ---- close ---- */

static bool
closes_send(struct client_target *target)
{
    struct causeway *fs = target->fs;
    struct ptlrpc_request *request = NULL;
    const uint32_t bytes = target->close_count * (uint32_t)sizeof(target->closes[0]);

    if (client_target_open(target) == 0) {
        request = ptlrpc_request_take(target->import, MDS_CLOSE);
        if (request == NULL) {
            return false;
        }
        (void)memcpy(ptlrpc_request_body(request), target->closes, bytes);
        client_request_send_background(fs, request, bytes);
    }
    /* Without an import there is no server any more that has them open. */
    target->close_count = 0;
    base_list_unlink(&target->close_link);
    return true;
}

void
client_closes_flush(struct causeway *fs)
{
    BASE_LIST_FOREACH_SAFE(link, tmp, &fs->closers) {
        if (!closes_send(BASE_CONTAINER_OF(link, struct client_target, close_link))) {
            return;
        }
    }
}

bool
client_file_close(struct causeway_file *file)
{
    struct causeway *fs = file->fs;
    struct client_target *target = client_mds_target(fs, &file->fid);

    if (target->close_count == CLIENT_CLOSES_ROOM && !closes_send(target)) {
        return false;
    }
    if (base_list_empty(&fs->closers)) {
        fs->closes_since_ns = fs->now_ns;
    }
    if (target->close_count == 0) {
        base_list_append(&fs->closers, &target->close_link);
    }
    target->closes[target->close_count++] = (struct mds_close_req){
        .fid = file->fid,
        .handle = file->handle,
        .flags = file->has_wrote ? MDS_CLOSE_WROTE : 0,
        .atime_ns = file->has_read ? (int64_t)base_clock_wall_ns() : 0,
    };
    if (file->has_wrote || file->has_locked || target->close_count >= CLIENT_CLOSES_BATCH) {
        (void)closes_send(target);
    }
    client_file_return(file);
    return true;
}

/* The same; waits for room. */
static void
file_close_wait(struct client_call *call, struct causeway_file *file)
{
    const uint64_t deadline_ns = call->fs->now_ns + call->fs->timeout_ns;

    while (!client_file_close(file)) {
        if (call->fs->now_ns > deadline_ns) {
            client_file_return(file); /* the server does not answer: it will drop us */
            return;
        }
        client_wait_background(call, 0, call->fs->now_ns + NS_PER_S / 100);
    }
}

void
causeway_close(struct causeway_file *file)
{
    struct client_call call;

    if (file == NULL || client_begin(&call, file->fs) != 0) {
        return;
    }
    file_close_wait(&call, file);
    if (call.fs->background_count > CLIENT_BACKGROUND_MAX) {
        client_wait_background(&call, CLIENT_BACKGROUND_MAX / 2,
                               call.fs->now_ns + call.fs->timeout_ns);
    }
    client_end(&call);
}

/* ---- sizes ---- */

int
client_glimpse(struct client_call *call, struct lov_all *all, const struct lov_layout *layout,
               const struct fid *fid)
{
    lov_all_init(all, call->fs, LOV_GETATTR, layout, fid);
    lov_all_start(all);
    return client_wait(call, &all->each.op);
}

int
client_punch(struct client_call *call, const struct lov_layout *layout, const struct fid *fid,
             uint64_t start, uint64_t end)
{
    struct lov_all all;

    lov_all_init(&all, call->fs, LOV_PUNCH, layout, fid);
    all.start = start;
    all.end = end;
    if (end != UINT64_MAX) {
        for (uint32_t i = 0; i < layout->stripe_count; i++) {
            if (lov_object_bytes(layout, i, start) == lov_object_bytes(layout, i, end)) {
                all.each.skip |= UINT64_C(1) << i;
            }
        }
    }
    lov_all_start(&all);
    return client_wait(call, &all.each.op);
}

/* ---- attributes ---- */

static struct timespec
timespec_of(int64_t ns)
{
    int64_t s = ns / NS_PER_S;

    if (ns % NS_PER_S < 0) {
        s--;
    }
    return (struct timespec){.tv_sec = s, .tv_nsec = ns - s * NS_PER_S};
}

static int64_t
ns_of(const struct timespec *time)
{
    int64_t ns = 0;

    if (__builtin_mul_overflow(time->tv_sec, NS_PER_S, &ns) ||
        __builtin_add_overflow(ns, time->tv_nsec, &ns)) {
        return time->tv_sec < 0 ? INT64_MIN : INT64_MAX;
    }
    return ns;
}

void
client_stat_fill(struct stat *stat, const struct mds_attr *attr, const struct lov_all *all)
{
    int64_t mtime_ns = attr->mtime_ns;
    int64_t ctime_ns = attr->ctime_ns;
    uint64_t size = attr->size;
    uint64_t blocks = attr->blocks;

    if (all != NULL) {
        size = all->size;
        blocks = all->blocks;
        if (all->newest_ctime_ns != 0) {
            mtime_ns = all->newest_mtime_ns;
            ctime_ns = all->newest_ctime_ns > ctime_ns ? all->newest_ctime_ns : ctime_ns;
        }
    }
    memset(stat, 0, sizeof(*stat));
    stat->st_dev = CLIENT_DEVICE;
    stat->st_ino = client_ino(&attr->fid);
    stat->st_mode = attr->mode;
    stat->st_nlink = attr->nlink;
    stat->st_uid = attr->uid;
    stat->st_gid = attr->gid;
    stat->st_rdev = attr->rdev;
    stat->st_size = (off_t)size;
    stat->st_blksize = CLIENT_BLOCK_BYTES;
    stat->st_blocks = (blkcnt_t)blocks;
    stat->st_atim = timespec_of(attr->atime_ns);
    stat->st_mtim = timespec_of(mtime_ns);
    stat->st_ctim = timespec_of(ctime_ns);
}

/* GETATTR, and the objects when the size is there. */
static int
stat_run(struct client_call *call, struct mdc_op *mdc, struct stat *stat_out)
{
    const struct mds_attr *attr = &mdc->reply.getattr.attr;
    int rc = mdc_run(call, mdc);

    if (rc != 0) {
        return rc;
    }
    if (!S_ISREG(attr->mode) || (attr->flags & MDS_ATTR_SIZE_ON_OST) == 0) {
        client_stat_fill(stat_out, attr, NULL);
        return 0;
    }
    struct lov_layout layout;
    struct lov_all all;

    rc = lov_layout_set(&layout, attr);
    if (rc == 0) {
        rc = client_glimpse(call, &all, &layout, &attr->fid);
    }
    if (rc == 0) {
        client_stat_fill(stat_out, attr, &all);
    }
    return rc;
}

static uint32_t
follow_of(unsigned flags)
{
    return (flags & CAUSEWAY_NOFOLLOW) != 0 ? 0 : MDS_FOLLOW;
}

int
causeway_stat(struct causeway *fs, const struct causeway_fid *at, const char *path, unsigned flags,
              struct stat *stat_out)
{
    struct client_call call;
    struct mdc_op mdc;
    int rc = client_begin(&call, fs);

    if (rc != 0) {
        return rc;
    }
    rc = mdc_init(&mdc, fs, MDS_GETATTR, sizeof(struct mds_getattr_req),
                  sizeof(struct mds_getattr_rep), at, path, follow_of(flags));
    if (rc == 0) {
        rc = stat_run(&call, &mdc, stat_out);
    }
    client_end(&call);
    return rc;
}

int
causeway_fstat(struct causeway_file *file, struct stat *stat_out)
{
    const struct causeway_fid fid = client_fid_out(&file->fid);

    return causeway_stat(file->fs, &fid, "", 0, stat_out);
}

int
causeway_lookup(struct causeway *fs, const struct causeway_fid *at, const char *path,
                unsigned flags, struct causeway_fid *fid_out, mode_t *mode_out)
{
    struct client_call call;
    struct mdc_op mdc;
    int rc = client_begin(&call, fs);

    if (rc != 0) {
        return rc;
    }
    rc = mdc_init(&mdc, fs, MDS_GETATTR, sizeof(struct mds_getattr_req),
                  sizeof(struct mds_getattr_rep), at, path, follow_of(flags));
    if (rc == 0) {
        rc = mdc_run(&call, &mdc);
    }
    if (rc == 0) {
        *fid_out = client_fid_out(&mdc.reply.getattr.attr.fid);
        if (mode_out != NULL) {
            *mode_out = mdc.reply.getattr.attr.mode;
        }
    }
    client_end(&call);
    return rc;
}

int
causeway_access(struct causeway *fs, const struct causeway_fid *at, const char *path, int mask,
                unsigned flags)
{
    struct client_call call;
    struct mdc_op mdc;

    if ((mask & ~7) != 0) {
        return -EINVAL;
    }
    int rc = client_begin(&call, fs);

    if (rc != 0) {
        return rc;
    }
    rc = mdc_init(&mdc, fs, MDS_ACCESS, sizeof(struct mds_access_req),
                  sizeof(struct mds_getattr_rep), at, path, follow_of(flags));
    if (rc == 0) {
        mdc.request.access.mask = (uint32_t)mask;
        rc = mdc_run(&call, &mdc);
    }
    client_end(&call);
    return rc;
}

/* ---- setattr ---- */

static_assert((int)CAUSEWAY_SET_MODE == (int)MDS_SET_MODE &&
                  (int)CAUSEWAY_SET_SIZE == (int)MDS_SET_SIZE &&
                  (int)CAUSEWAY_SET_MTIME_NOW == (int)MDS_SET_MTIME_NOW &&
                  (int)CAUSEWAY_SET_STRIPE == (int)MDS_SET_STRIPE,
              "the public flags are the wire's");
#define SET_ALL (((uint32_t)CAUSEWAY_SET_STRIPE << 1) - 1)

static int
setattr_check(const struct causeway_attr *attr)
{
    if ((attr->valid & ~SET_ALL) != 0) {
        return -EINVAL;
    }
    if ((attr->valid & CAUSEWAY_SET_SIZE) != 0) {
        if (attr->size > INT64_MAX) {
            return -EINVAL;
        }
        if (attr->size > (uint64_t)OST_OBJECT_BYTES_MAX) {
            return -EFBIG;
        }
    }
    if ((attr->valid & CAUSEWAY_SET_STRIPE) != 0 && attr->stripe_bytes % 65536u != 0) {
        return -EINVAL;
    }
    return 0;
}

/* Tells the objects of a new size, of a new time. */
static int
setattr_objects(struct client_call *call, uint32_t valid, uint64_t size,
                const struct mds_attr *attr)
{
    struct lov_layout layout;
    int rc = lov_layout_set(&layout, attr);

    if (rc == 0 && (valid & CAUSEWAY_SET_SIZE) != 0) {
        rc = client_punch(call, &layout, &attr->fid, size, UINT64_MAX);
    }
    if (rc == 0 && (valid & (CAUSEWAY_SET_MTIME | CAUSEWAY_SET_MTIME_NOW)) != 0) {
        struct lov_all all;

        lov_all_init(&all, call->fs, LOV_SETATTR, &layout, &attr->fid);
        all.mtime_ns = attr->mtime_ns;
        all.ctime_ns = attr->ctime_ns;
        lov_all_start(&all);
        rc = client_wait(call, &all.each.op);
    }
    return rc;
}

static int
setattr_run(struct client_call *call, struct mdc_op *mdc, const struct causeway_attr *attr)
{
    struct mds_setattr_req *request = &mdc->request.setattr;

    request->valid = attr->valid;
    request->mode = attr->mode & 07777u;
    request->uid = attr->uid;
    request->gid = attr->gid;
    request->size = attr->size;
    request->atime_ns = ns_of(&attr->atime);
    request->mtime_ns = ns_of(&attr->mtime);
    request->stripe_bytes = attr->stripe_bytes;
    request->stripe_count = (uint16_t)base_min_u32(attr->stripe_count, UINT16_MAX);
    const int rc = mdc_run(call, mdc);
    const struct mds_attr *now = &mdc->reply.getattr.attr;

    if (rc != 0 || !S_ISREG(now->mode) || (now->flags & MDS_ATTR_SIZE_ON_OST) == 0) {
        return rc;
    }
    return setattr_objects(call, attr->valid, attr->size, now);
}

int
causeway_setattr(struct causeway *fs, const struct causeway_fid *at, const char *path,
                 unsigned flags, const struct causeway_attr *attr)
{
    struct client_call call;
    struct mdc_op mdc;
    int rc = setattr_check(attr);

    if (rc == 0) {
        rc = client_begin(&call, fs);
    }
    if (rc != 0) {
        return rc;
    }
    rc = mdc_init(&mdc, fs, MDS_REINT_SETATTR, sizeof(struct mds_setattr_req),
                  sizeof(struct mds_getattr_rep), at, path, follow_of(flags));
    if (rc == 0) {
        rc = setattr_run(&call, &mdc, attr);
    }
    client_end(&call);
    return rc;
}

int
causeway_fsetattr(struct causeway_file *file, const struct causeway_attr *attr)
{
    const struct causeway_fid fid = client_fid_out(&file->fid);
    struct client_call call;
    struct mdc_op mdc;
    int rc = setattr_check(attr);

    if (rc == 0 && (attr->valid & CAUSEWAY_SET_SIZE) != 0 && !file->can_write) {
        rc = -EINVAL;
    }
    if (rc == 0) {
        rc = client_begin(&call, file->fs);
    }
    if (rc != 0) {
        return rc;
    }
    rc = mdc_init(&mdc, file->fs, MDS_REINT_SETATTR, sizeof(struct mds_setattr_req),
                  sizeof(struct mds_getattr_rep), &fid, "", 0);
    if (rc == 0) {
        mdc.request.setattr.handle = file->handle;
        file->is_changed = true;
        if ((attr->valid & CAUSEWAY_SET_SIZE) != 0) {
            file->dirty = UINT64_MAX;
        }
        rc = setattr_run(&call, &mdc, attr);
    }
    client_end(&call);
    return rc;
}

/* ---- open ---- */

static uint32_t
open_flags_of(int flags)
{
    const int access = flags & O_ACCMODE;
    uint32_t open_flags = 0;

    if ((flags & O_PATH) != 0) {
        return MDS_OPEN_PATH | ((flags & O_DIRECTORY) != 0 ? MDS_OPEN_DIRECTORY : 0u);
    }
    open_flags |= access != O_WRONLY ? MDS_OPEN_READ : 0u;
    open_flags |= access != O_RDONLY ? MDS_OPEN_WRITE : 0u;
    if ((flags & O_TMPFILE) == O_TMPFILE) {
        return open_flags | MDS_OPEN_TMPFILE | ((flags & O_EXCL) != 0 ? MDS_OPEN_EXCL : 0u);
    }
    open_flags |= (flags & O_CREAT) != 0 ? MDS_OPEN_CREATE : 0u;
    open_flags |= (flags & O_CREAT) != 0 && (flags & O_EXCL) != 0 ? MDS_OPEN_EXCL : 0u;
    open_flags |= (flags & O_TRUNC) != 0 ? MDS_OPEN_TRUNC : 0u;
    open_flags |= (flags & O_DIRECTORY) != 0 ? MDS_OPEN_DIRECTORY : 0u;
    return open_flags;
}

/* Makes the open file of a reply. Errors: -ENFILE; -EPROTO. */
static int
open_finish(struct client_call *call, const struct mds_open_rep *rep, int flags,
            struct causeway_file **file_out)
{
    struct causeway_file *file = client_file_take(call->fs);
    const int access = flags & O_ACCMODE;
    int rc = 0;

    if (file == NULL) {
        return -ENFILE;
    }
    file->fid = rep->attr.fid;
    file->handle = rep->handle;
    file->mode = rep->attr.mode;
    file->is_path = (flags & O_PATH) != 0;
    file->can_read = !file->is_path && access != O_WRONLY;
    file->can_write = !file->is_path && access != O_RDONLY;
    file->is_sync = (flags & (O_SYNC | O_DSYNC)) != 0;
    file->has_wrote = false;
    file->has_read = false;
    file->has_locked = false;
    file->is_changed = rep->created != 0;
    file->dirty = 0;
    file->readdir_end = 0;
    file->layout = (struct lov_layout){
        .stripe_bytes = rep->attr.stripe_bytes,
        .stripe_count = rep->attr.stripe_count,
    };
    if (S_ISREG(file->mode)) {
        rc = lov_layout_set(&file->layout, &rep->attr);
    }
    if (rc != 0) {
        file_close_wait(call, file);
        return rc;
    }
    *file_out = file;
    return 0;
}

static int
open_run(struct client_call *call, struct mdc_op *mdc, int flags, mode_t mode,
         struct causeway_file **file_out)
{
    struct causeway_file *file = NULL;
    const struct mds_open_rep *rep = &mdc->reply.open;

    mdc->request.open.open_flags |= open_flags_of(flags);
    mdc->request.open.mode = mode & 07777u;
    int rc = mdc_run(call, mdc);

    if (rc == 0) {
        rc = open_finish(call, rep, flags, &file);
    }
    if (rc != 0) {
        return rc;
    }
    if ((mdc->request.open.open_flags & MDS_OPEN_TRUNC) != 0 && rep->created == 0 &&
        S_ISREG(file->mode) && (rep->attr.flags & MDS_ATTR_SIZE_ON_OST) != 0) {
        rc = client_punch(call, &file->layout, &file->fid, 0, UINT64_MAX);
        if (rc != 0) {
            file_close_wait(call, file);
            return rc;
        }
    }
    *file_out = file;
    return 0;
}

int
causeway_open(struct causeway *fs, const struct causeway_fid *at, const char *path, int flags,
              mode_t mode, struct causeway_file **file_out)
{
    const bool is_exclusive = (flags & O_CREAT) != 0 && (flags & O_EXCL) != 0;
    struct client_call call;
    struct mdc_op mdc;
    int rc = client_begin(&call, fs);

    if (rc != 0) {
        return rc;
    }
    rc =
        mdc_init(&mdc, fs, MDS_REINT_OPEN, sizeof(struct mds_open_req), sizeof(struct mds_open_rep),
                 at, path, (flags & O_NOFOLLOW) != 0 || is_exclusive ? 0 : MDS_FOLLOW);
    if (rc == 0) {
        rc = open_run(&call, &mdc, flags, mode, file_out);
    }
    client_end(&call);
    return rc;
}

int
causeway_open_fid(struct causeway *fs, const struct causeway_fid *fid, int flags,
                  struct causeway_file **file_out)
{
    struct client_call call;
    struct mdc_op mdc;
    int rc = client_begin(&call, fs);

    if (rc != 0) {
        return rc;
    }
    rc = mdc_init(&mdc, fs, MDS_REINT_OPEN, sizeof(struct mds_open_req),
                  sizeof(struct mds_open_rep), fid, "", 0);
    if (rc == 0) {
        client_closes_flush(fs); /* it may be ours alone that keeps the file */
        mdc.request.open.open_flags = MDS_OPEN_BY_FID;
        rc = open_run(&call, &mdc, flags & (O_ACCMODE | O_APPEND | O_PATH | O_SYNC | O_DSYNC), 0,
                      file_out);
    }
    client_end(&call);
    return rc;
}

struct causeway_fid
causeway_file_fid(const struct causeway_file *file)
{
    return client_fid_out(&file->fid);
}

mode_t
causeway_file_mode(const struct causeway_file *file)
{
    return file->mode;
}

int
causeway_layout_get(struct causeway_file *file, struct causeway_layout *layout_out)
{
    const struct causeway *fs = file->fs;
    struct lov_layout layout = file->layout;

    if (layout.stripe_bytes == 0) {
        layout.stripe_bytes = fs->layout.stripe_bytes;
    }
    if (layout.stripe_count == 0) {
        layout.stripe_count = fs->layout.stripe_count;
    }
    *layout_out = (struct causeway_layout){
        .stripe_bytes = layout.stripe_bytes,
        .stripe_count = layout.stripe_count,
        .ost_first = layout.stripe_first,
        .ost_count = fs->ost_count,
    };
    return 0;
}
