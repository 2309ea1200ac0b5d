/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data of open files: reading, writing, appending, syncing, allocating, seeking, locking; and the
 * same two, reading and writing, without waiting.
 *
 * An append to a file of one stripe is one request, whose place the server decides. To one of
 * several stripes it is: the MDS's append lock, the sizes of the objects, the write, the unlock;
 * the lock ends with the client's death too.
 */
#include "clients/lib/core.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IOV_MAX_CALL 1024
#define IOV_DIRECT   CLIENT_AIO_IOV_MAX /* more are gathered in a buffer */
#define BOUNCE_BYTES (UINT64_C(1) << 20)
#define OFFSET_END   ((uint64_t)OST_OBJECT_BYTES_MAX)

/* ---- vectors ---- */

/* Errors: -EINVAL. */
static int
iov_sum(const struct iovec *iov, int iov_count, uint64_t *total_out)
{
    uint64_t total = 0;

    if (iov_count < 0 || iov_count > IOV_MAX_CALL) {
        return -EINVAL;
    }
    for (int i = 0; i < iov_count; i++) {
        if (iov[i].iov_len > (uint64_t)INT64_MAX - total) {
            return -EINVAL;
        }
        total += iov[i].iov_len;
    }
    *total_out = total;
    return 0;
}

/* Copies between @buffer and the first @bytes of @iov. */
static void
iov_copy(const struct iovec *iov, char *buffer, uint64_t bytes, bool is_gather)
{
    for (; bytes > 0; iov++) {
        const uint64_t part = base_min_u64(bytes, iov->iov_len);

        if (part > 0 && is_gather) {
            memcpy(buffer, iov->iov_base, part);
        } else if (part > 0) {
            memcpy(iov->iov_base, buffer, part);
        }
        buffer += part;
        bytes -= part;
    }
}

/* ---- one I/O ---- */

struct io_place {
    uint64_t offset;
    bool is_append;
    uint64_t append_end;
};

static ssize_t
io_direct(struct client_call *call, struct causeway_file *file, bool is_write,
          const struct iovec *iov, uint32_t iov_count, uint64_t length, struct io_place *place)
{
    struct lov_all glimpse;
    struct lov_io io;

    lov_io_init(&io, file, is_write, iov, iov_count, place->offset, length, &glimpse);
    io.is_append = place->is_append;
    lov_io_go(&io);
    (void)client_wait(call, &io.op);
    place->append_end = io.append_end;
    return lov_io_result(&io);
}

/* The same through a buffer: many small parts become one. */
static ssize_t
io_bounced(struct client_call *call, struct causeway_file *file, bool is_write,
           const struct iovec *iov, uint64_t length, struct io_place *place)
{
    char *buffer = malloc(length);

    if (buffer == NULL) {
        return -ENOMEM;
    }
    const struct iovec one = {.iov_base = buffer, .iov_len = length};

    if (is_write) {
        iov_copy(iov, buffer, length, true);
    }
    const ssize_t result = io_direct(call, file, is_write, &one, 1, length, place);

    if (!is_write && result > 0) {
        iov_copy(iov, buffer, (uint64_t)result, false);
    }
    free(buffer);
    return result;
}

/* How many parts of @iov go together, and whether by a buffer. */
static uint32_t
batch_of(const struct iovec *iov, uint32_t iov_count, uint64_t *length_out, bool *is_bounced_out)
{
    uint64_t length = 0;
    uint32_t count = 0;

    while (count < iov_count && length + iov[count].iov_len <= BOUNCE_BYTES) {
        length += iov[count++].iov_len;
    }
    *is_bounced_out = count > IOV_DIRECT;
    if (count <= IOV_DIRECT) {
        length = 0;
        for (count = 0; count < iov_count && count < IOV_DIRECT; count++) {
            length += iov[count].iov_len;
        }
    }
    *length_out = length;
    return count;
}

static ssize_t
io_run(struct client_call *call, struct causeway_file *file, bool is_write, const struct iovec *iov,
       uint32_t iov_count, uint64_t total, struct io_place *place)
{
    ssize_t done = 0;

    if (iov_count <= IOV_DIRECT) {
        return io_direct(call, file, is_write, iov, iov_count, total, place);
    }
    if (place->is_append) {
        return io_bounced(call, file, is_write, iov, total, place);
    }
    while (iov_count > 0) {
        bool is_bounced = false;
        uint64_t length = 0;
        const uint32_t count = batch_of(iov, iov_count, &length, &is_bounced);
        const ssize_t result = is_bounced
                                   ? io_bounced(call, file, is_write, iov, length, place)
                                   : io_direct(call, file, is_write, iov, count, length, place);

        if (result < 0) {
            return done > 0 ? done : result;
        }
        done += result;
        place->offset += (uint64_t)result;
        if ((uint64_t)result < length) {
            break;
        }
        iov += count;
        iov_count -= count;
    }
    return done;
}

static int
io_check(const struct causeway_file *file, bool is_write)
{
    if (S_ISDIR(file->mode)) {
        return is_write ? -EBADF : -EISDIR;
    }
    if (is_write ? !file->can_write : !file->can_read) {
        return -EBADF;
    }
    return S_ISREG(file->mode) ? 0 : -EINVAL;
}

ssize_t
causeway_preadv(struct causeway_file *file, const struct iovec *iov, int iov_count, off_t offset)
{
    struct io_place place = {.offset = (uint64_t)offset};
    struct client_call call;
    uint64_t total = 0;
    int rc = io_check(file, false);

    if (rc == 0) {
        rc = offset < 0 ? -EINVAL : iov_sum(iov, iov_count, &total);
    }
    if (rc != 0 || total == 0 || place.offset >= OFFSET_END) {
        return rc;
    }
    struct iovec cut;

    if (total > OFFSET_END - place.offset) {
        /* The parts behind the largest file are not reached: cut them off. */
        total = OFFSET_END - place.offset;
        cut = (struct iovec){.iov_base = iov[0].iov_base,
                             .iov_len = base_min_u64(iov[0].iov_len, total)};
        iov = &cut;
        iov_count = 1;
        total = cut.iov_len;
    }
    rc = client_begin(&call, file->fs);
    if (rc != 0) {
        return rc;
    }
    const ssize_t result = io_run(&call, file, false, iov, (uint32_t)iov_count, total, &place);

    client_end(&call);
    return result;
}

/* ---- append to several stripes ---- */

static void
append_unlock(struct client_call *call, const struct causeway_file *file)
{
    struct client_target *target = client_mds_target(file->fs, &file->fid);
    const struct mds_append_req request = {.fid = file->fid, .handle = file->handle};
    struct client_rpc rpc;

    client_rpc_start(&rpc, target, MDS_APPEND_UNLOCK, &request, sizeof(request), 0);
    (void)client_wait(call, &rpc.op);
}

static ssize_t
append_striped(struct client_call *call, struct causeway_file *file, const struct iovec *iov,
               uint32_t iov_count, uint64_t total, struct io_place *place)
{
    struct client_target *target = client_mds_target(file->fs, &file->fid);
    const struct mds_append_req request = {.fid = file->fid, .handle = file->handle};
    struct client_rpc rpc;
    struct lov_all all;
    ssize_t result;

    client_rpc_start(&rpc, target, MDS_APPEND_LOCK, &request, sizeof(request), 0);
    result = client_wait(call, &rpc.op);
    if (result != 0) {
        return result;
    }
    result = client_glimpse(call, &all, &file->layout, &file->fid);
    if (result == 0 && all.size > OFFSET_END - total) {
        result = -EFBIG;
    }
    if (result == 0) {
        place->offset = all.size;
        place->is_append = false;
        result = io_run(call, file, true, iov, iov_count, total, place);
        place->append_end = all.size + (uint64_t)(result > 0 ? result : 0);
    }
    append_unlock(call, file);
    return result;
}

ssize_t
causeway_pwritev(struct causeway_file *file, const struct iovec *iov, int iov_count, off_t offset,
                 off_t *end_out)
{
    struct io_place place = {.is_append = offset < 0};
    struct client_call call;
    uint64_t total = 0;
    ssize_t result = io_check(file, true);

    if (result == 0) {
        result = iov_sum(iov, iov_count, &total);
    }
    if (result != 0 || total == 0) {
        return result;
    }
    if (!place.is_append) {
        place.offset = (uint64_t)offset;
        if (place.offset >= OFFSET_END || total > OFFSET_END - place.offset) {
            return -EFBIG;
        }
    } else if (total > OST_IO_BYTES_MAX) {
        return -EFBIG;
    }
    const int rc = client_begin(&call, file->fs);

    if (rc != 0) {
        return rc;
    }
    if (place.is_append && file->layout.stripe_count > 1) {
        result = append_striped(&call, file, iov, (uint32_t)iov_count, total, &place);
        place.is_append = true;
    } else {
        result = io_run(&call, file, true, iov, (uint32_t)iov_count, total, &place);
    }
    client_end(&call);
    if (result > 0 && end_out != NULL) {
        *end_out = place.is_append ? (off_t)place.append_end : offset + result;
    }
    return result;
}

/* ---- sync, space, seek, locks ---- */

int
causeway_fsync(struct causeway_file *file)
{
    struct client_call call;
    int rc = file->is_path ? -EBADF : client_begin(&call, file->fs);

    if (rc != 0) {
        return rc;
    }
    const bool is_regular = S_ISREG(file->mode);
    const bool is_changed = file->is_changed || !is_regular;
    const uint64_t dirty = file->dirty;
    struct client_rpc rpc;
    struct lov_all all;

    file->is_changed = false;
    file->dirty = 0;
    if (is_changed) {
        client_rpc_start(&rpc, client_mds_target(file->fs, &file->fid), MDS_SYNC, NULL, 0, 0);
    }
    if (is_regular) {
        lov_all_init(&all, file->fs, LOV_SYNC, &file->layout, &file->fid);
        /* Who has not written may still want to wait for what others wrote. */
        all.each.skip = dirty != 0 ? ~dirty : 0;
        lov_all_start(&all);
        rc = client_wait(&call, &all.each.op);
    }
    if (is_changed) {
        const int mds_rc = client_wait(&call, &rpc.op);

        rc = rc != 0 ? rc : mds_rc;
    }
    if (rc != 0) {
        file->dirty |= dirty;
        file->is_changed = file->is_changed || (is_changed && is_regular);
    }
    client_end(&call);
    return rc;
}

/* Lets the file end at @end if it is shorter: its last byte's object does. */
static int
extend(struct client_call *call, struct causeway_file *file, uint64_t end)
{
    struct lov_all all;
    int rc = client_glimpse(call, &all, &file->layout, &file->fid);

    if (rc != 0 || all.size >= end) {
        return rc;
    }
    file->has_wrote = true;
    file->dirty = UINT64_MAX;
    lov_all_init(&all, call->fs, LOV_PUNCH, &file->layout, &file->fid);
    all.start = end;
    for (uint32_t i = 0; i < file->layout.stripe_count; i++) {
        if (lov_object_bytes(&file->layout, i, end) ==
            lov_object_bytes(&file->layout, i, end - 1)) {
            all.each.skip |= UINT64_C(1) << i;
        }
    }
    lov_all_start(&all);
    return client_wait(call, &all.each.op);
}

int
causeway_fallocate(struct causeway_file *file, int mode, off_t offset, off_t length)
{
    struct client_call call;
    int rc = io_check(file, true);

    if (rc != 0) {
        return rc == -EINVAL ? -ENODEV : rc;
    }
    if (offset < 0 || length <= 0) {
        return -EINVAL;
    }
    if (mode != 0 && mode != FALLOC_FL_KEEP_SIZE &&
        mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
        return -EOPNOTSUPP;
    }
    if ((uint64_t)offset + (uint64_t)length > OFFSET_END) {
        return -EFBIG;
    }
    rc = client_begin(&call, file->fs);
    if (rc != 0) {
        return rc;
    }
    const uint64_t end = (uint64_t)offset + (uint64_t)length;

    if (mode == 0) {
        rc = extend(&call, file, end);
    } else if ((mode & FALLOC_FL_PUNCH_HOLE) != 0) {
        file->has_wrote = true;
        file->dirty = UINT64_MAX;
        rc = client_punch(&call, &file->layout, &file->fid, (uint64_t)offset, end);
    }
    client_end(&call);
    return rc;
}

static off_t
seek_run(struct client_call *call, const struct causeway_file *file, uint64_t offset, int whence)
{
    struct lov_all all;
    int rc = client_glimpse(call, &all, &file->layout, &file->fid);
    const uint64_t size = all.size;

    if (rc != 0) {
        return rc;
    }
    if (offset >= size) {
        return -ENXIO;
    }
    lov_all_init(&all, call->fs, LOV_SEEK, &file->layout, &file->fid);
    all.start = offset;
    all.whence = (uint32_t)whence;
    lov_all_start(&all);
    rc = client_wait(call, &all.each.op);
    if (rc != 0) {
        return rc;
    }
    if (whence == SEEK_HOLE) {
        return (off_t)base_min_u64(base_max_u64(all.found, offset), size);
    }
    return all.found >= size ? -ENXIO : (off_t)base_max_u64(all.found, offset);
}

off_t
causeway_seek(struct causeway_file *file, off_t offset, int whence)
{
    struct client_call call;

    if ((whence != SEEK_DATA && whence != SEEK_HOLE) || !S_ISREG(file->mode)) {
        return -EINVAL;
    }
    if (file->is_path) {
        return -EBADF;
    }
    if (offset < 0) {
        return -ENXIO;
    }
    const int rc = client_begin(&call, file->fs);

    if (rc != 0) {
        return rc;
    }
    const off_t found = seek_run(&call, file, (uint64_t)offset, whence);

    client_end(&call);
    return found;
}

static uint32_t
lock_type_of(int type, bool test)
{
    const uint32_t mds_type = type == F_RDLCK   ? MDS_LOCK_READ
                              : type == F_WRLCK ? MDS_LOCK_WRITE
                                                : MDS_LOCK_UNLOCK;

    return mds_type | (test ? (uint32_t)MDS_LOCK_TEST : 0u);
}

int
causeway_lock(struct causeway_file *file, struct causeway_lock *lock, bool test)
{
    struct client_call call;
    struct client_rpc rpc;

    if (lock->type != F_RDLCK && lock->type != F_WRLCK && lock->type != F_UNLCK) {
        return -EINVAL;
    }
    if (lock->end < lock->start) {
        return -EINVAL;
    }
    int rc = file->is_path ? -EBADF : client_begin(&call, file->fs);

    if (rc != 0) {
        return rc;
    }
    file->has_locked = true;
    const struct mds_flock request = {
        .fid = file->fid,
        .handle = file->handle,
        .owner = lock->owner,
        .start = lock->start,
        .end = lock->end,
        .type = lock_type_of(lock->type, test),
        .pid = (uint32_t)lock->pid,
    };

    client_rpc_start(&rpc, client_mds_target(file->fs, &file->fid), MDS_FLOCK, &request,
                     sizeof(request), test ? sizeof(request) : 0);
    rc = client_wait(&call, &rpc.op);
    client_end(&call);
    if (rc == 0 && test) {
        struct mds_flock found;

        memcpy(&found, rpc.reply, sizeof(found));
        const uint32_t type = found.type & ~(uint32_t)MDS_LOCK_TEST;

        *lock = (struct causeway_lock){
            .owner = found.owner,
            .start = found.start,
            .end = found.end,
            .type = type == MDS_LOCK_READ    ? F_RDLCK
                    : type == MDS_LOCK_WRITE ? F_WRLCK
                                             : F_UNLCK,
            .pid = (pid_t)found.pid,
        };
    }
    return rc;
}

/* ---- without waiting ---- */

struct client_aio {
    struct base_list link; /* on fs->aios_done */
    struct lov_io io;
    struct lov_all glimpse;
    struct iovec iov[CLIENT_AIO_IOV_MAX];
    causeway_io_fn done;
    void *arg;
};

static void
aio_done(struct client_op *op)
{
    struct lov_io *io = BASE_CONTAINER_OF(op, struct lov_io, op);
    struct client_aio *aio = BASE_CONTAINER_OF(io, struct client_aio, io);
    struct causeway *fs = op->fs;

    base_list_append(&fs->aios_done, &aio->link);
    while (!base_list_empty(&fs->aio_waiters)) {
        struct client_op *waiter =
            BASE_CONTAINER_OF(base_list_first(&fs->aio_waiters), struct client_op, link);

        base_list_unlink(&waiter->link);
        client_op_complete(waiter, 0);
    }
}

int
client_aio_deliver(struct client_call *call)
{
    struct causeway *fs = call->fs;
    int count = 0;

    while (!base_list_empty(&fs->aios_done)) {
        struct client_aio *aio =
            BASE_CONTAINER_OF(base_list_first(&fs->aios_done), struct client_aio, link);
        const causeway_io_fn done = aio->done;
        void *arg = aio->arg;
        const ssize_t result = lov_io_result(&aio->io);

        base_list_unlink(&aio->link);
        base_pool_return(&fs->aios, aio);
        done(arg, result);
        count++;
    }
    return count;
}

static int
aio_start(struct causeway_file *file, bool is_write, const struct iovec *iov, uint32_t iov_count,
          uint64_t offset, uint64_t total, causeway_io_fn done, void *arg)
{
    struct causeway *fs = file->fs;

    if (!fs->has_aios) {
        if (base_pool_init(&fs->aios, sizeof(struct client_aio), CLIENT_AIO_MAX, 0) != 0) {
            return -ENOMEM;
        }
        fs->has_aios = true;
    }
    struct client_aio *aio = base_pool_take(&fs->aios);

    if (aio == NULL) {
        return -EAGAIN;
    }
    base_list_init(&aio->link);
    memcpy(aio->iov, iov, iov_count * sizeof(*iov));
    aio->done = done;
    aio->arg = arg;
    lov_io_init(&aio->io, file, is_write, aio->iov, iov_count, offset, total, &aio->glimpse);
    aio->io.op.done = aio_done;
    lov_io_go(&aio->io);
    return 0;
}

int
causeway_io_submit(struct causeway_file *file, bool is_write, const struct iovec *iov,
                   int iov_count, off_t offset, causeway_io_fn done, void *arg)
{
    struct client_call call;
    uint64_t total = 0;
    int rc = io_check(file, is_write);

    if (rc == 0) {
        rc = offset < 0 || done == NULL || iov_count > (int)CLIENT_AIO_IOV_MAX
                 ? -EINVAL
                 : iov_sum(iov, iov_count, &total);
    }
    if (rc == 0 && ((uint64_t)offset > OFFSET_END || total > OFFSET_END - (uint64_t)offset)) {
        rc = -EINVAL;
    }
    if (rc == 0) {
        rc = client_begin(&call, file->fs);
    }
    if (rc != 0) {
        return rc;
    }
    rc = aio_start(file, is_write, iov, (uint32_t)iov_count, (uint64_t)offset, total, done, arg);
    client_end(&call);
    return rc;
}

int
causeway_io_poll(struct causeway *fs, uint64_t wait_ns)
{
    struct client_call call;
    int rc = client_begin(&call, fs);

    if (rc != 0) {
        return rc;
    }
    (void)client_progress(fs);
    if (base_list_empty(&fs->aios_done) && wait_ns > 0) {
        const uint64_t deadline_ns =
            wait_ns > UINT64_MAX - fs->now_ns ? UINT64_MAX : fs->now_ns + wait_ns;
        struct client_op op;

        client_op_init(&op, fs, NULL);
        base_list_append(&fs->aio_waiters, &op.link);
        (void)client_wait_until(&call, &op, deadline_ns);
        base_list_unlink(&op.link);
    }
    rc = client_aio_deliver(&call);
    client_end(&call);
    return rc;
}
