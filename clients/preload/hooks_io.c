/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hooks of data: read, write, seek, sync, truncate, map.
 */
#include "clients/preload/hooks.h"

#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SEND_BYTES (UINT64_C(1) << 18)

#ifndef RWF_APPEND
#    define RWF_APPEND 0x10
#endif

static bool
may_read(const struct file *file)
{
    const unsigned flags = files_flags(file);

    return (flags & O_ACCMODE) != O_WRONLY && (flags & O_PATH) == 0;
}

static bool
may_write(const struct file *file)
{
    const unsigned flags = files_flags(file);

    return (flags & O_ACCMODE) != O_RDONLY && (flags & O_PATH) == 0;
}

/* The sum of an iovec, or -EINVAL as writev(2) says. */
static ssize_t
iov_total(const struct iovec *iov, int count)
{
    size_t total = 0;

    if (count < 0 || count > 1024) {
        return -EINVAL;
    }
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len > (size_t)SSIZE_MAX - total) {
            return -EINVAL;
        }
        total += iov[i].iov_len;
    }
    return (ssize_t)total;
}

/* Reads at @offset, or at the description's offset, moving it, when that is negative. */
static ssize_t
read_file(struct file *file, const struct iovec *iov, int count, off_t offset)
{
    ssize_t rc = iov_total(iov, count);

    if (rc < 0) {
        return rc;
    }
    if (!may_read(file)) {
        return -EBADF;
    }
    if (S_ISDIR(file->description->mode)) {
        return -EISDIR;
    }
    if (offset >= 0) {
        return causeway_preadv(files_open_file(file), iov, count, offset);
    }
    files_lock(file);
    rc = causeway_preadv(files_open_file(file), iov, count, (off_t)file->description->offset);
    if (rc > 0) {
        file->description->offset += (uint64_t)rc;
    }
    files_unlock(file);
    return rc;
}

static ssize_t
write_file(struct file *file, const struct iovec *iov, int count, off_t offset)
{
    const bool is_append = (files_flags(file) & O_APPEND) != 0;
    ssize_t rc = iov_total(iov, count);
    off_t end = 0;

    if (rc < 0) {
        return rc;
    }
    if (!may_write(file)) {
        return -EBADF;
    }
    if (offset >= 0) {
        /* As on Linux, O_APPEND wins over the offset given. */
        return causeway_pwritev(files_open_file(file), iov, count, is_append ? -1 : offset, NULL);
    }
    files_lock(file);
    const off_t at = is_append ? -1 : (off_t)file->description->offset;
    rc = causeway_pwritev(files_open_file(file), iov, count, at, &end);
    if (rc > 0) {
        file->description->offset = (uint64_t)end;
    }
    files_unlock(file);
    return rc;
}

typedef ssize_t (*transfer_fn)(struct file *file, const struct iovec *iov, int count, off_t offset);

/* One of the two on a descriptor of ours. */
static ssize_t
transfer(transfer_fn fn, int fd, const struct iovec *iov, int count, off_t offset)
{
    int rc = 0;

    if (!__libc_single_threaded) {
        pthread_testcancel();
    }
    struct file *file = files_get(fd, &rc);
    if (file == NULL) {
        return hook_result(rc);
    }
    const ssize_t moved = fn(file, iov, count, offset);
    files_put(file);
    return hook_result(moved);
}

ssize_t
hook_read(int fd, void *buffer, size_t bytes)
{
    if (!files_has(fd)) {
        return RAW_CANCELLABLE(read, fd, buffer, bytes);
    }
    const struct iovec iov = {.iov_base = buffer, .iov_len = bytes};

    return transfer(read_file, fd, &iov, 1, -1);
}

/* The kernel refused to write to a placeholder in stock, which to the program is not open. */
static ssize_t
not_permitted(int fd)
{
    return hook_result(hook_is_hidden(fd) ? -EBADF : -EPERM);
}

ssize_t
hook_write(int fd, const void *buffer, size_t bytes)
{
    if (!files_has(fd)) {
        const ssize_t rc = RAW_CANCELLABLE(write, fd, buffer, bytes);

        return __builtin_expect(rc >= 0 || errno != EPERM, 1) ? rc : not_permitted(fd);
    }
    const struct iovec iov = {.iov_base = (void *)(uintptr_t)buffer, .iov_len = bytes};

    return transfer(write_file, fd, &iov, 1, -1);
}

ssize_t
hook_pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    if (!files_has(fd)) {
        return RAW_CANCELLABLE(pread64, fd, buffer, bytes, offset);
    }
    const struct iovec iov = {.iov_base = buffer, .iov_len = bytes};

    return offset < 0 ? hook_result(-EINVAL) : transfer(read_file, fd, &iov, 1, offset);
}

ssize_t
hook_pwrite(int fd, const void *buffer, size_t bytes, off_t offset)
{
    if (!files_has(fd)) {
        return RAW_CANCELLABLE(pwrite64, fd, buffer, bytes, offset);
    }
    const struct iovec iov = {.iov_base = (void *)(uintptr_t)buffer, .iov_len = bytes};

    return offset < 0 ? hook_result(-EINVAL) : transfer(write_file, fd, &iov, 1, offset);
}

ssize_t
hook_readv(int fd, const struct iovec *iov, int count)
{
    if (!files_has(fd)) {
        return RAW_CANCELLABLE(readv, fd, iov, count);
    }
    return transfer(read_file, fd, iov, count, -1);
}

ssize_t
hook_writev(int fd, const struct iovec *iov, int count)
{
    if (!files_has(fd)) {
        return RAW_CANCELLABLE(writev, fd, iov, count);
    }
    return transfer(write_file, fd, iov, count, -1);
}

ssize_t
hook_preadv(int fd, const struct iovec *iov, int count, off_t offset)
{
    if (!files_has(fd)) {
        return RAW_CANCELLABLE(preadv, fd, iov, count, offset, 0);
    }
    return offset < 0 ? hook_result(-EINVAL) : transfer(read_file, fd, iov, count, offset);
}

ssize_t
hook_pwritev(int fd, const struct iovec *iov, int count, off_t offset)
{
    if (!files_has(fd)) {
        return RAW_CANCELLABLE(pwritev, fd, iov, count, offset, 0);
    }
    return offset < 0 ? hook_result(-EINVAL) : transfer(write_file, fd, iov, count, offset);
}

ssize_t
hook_preadv2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
    if (!files_has(fd)) {
        return RAW_CANCELLABLE(preadv2, fd, iov, count, offset, 0, flags);
    }
    if ((flags & RWF_NOWAIT) != 0) {
        return hook_result(-EOPNOTSUPP);
    }
    return offset < -1 ? hook_result(-EINVAL) : transfer(read_file, fd, iov, count, offset);
}

ssize_t
hook_pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
    if (!files_has(fd)) {
        return RAW_CANCELLABLE(pwritev2, fd, iov, count, offset, 0, flags);
    }
    if ((flags & (RWF_NOWAIT | RWF_APPEND)) != 0) {
        return hook_result(-EOPNOTSUPP);
    }
    return offset < -1 ? hook_result(-EINVAL) : transfer(write_file, fd, iov, count, offset);
}

/* ---- position ---- */

static off_t
seek_file(struct file *file, off_t offset, int whence)
{
    struct stat stat;
    off_t base = 0;
    int rc = 0;

    if ((atomic_load(&file->description->flags) & O_PATH) != 0) {
        return -EBADF;
    }
    switch (whence) {
    case SEEK_SET:
        break;
    case SEEK_CUR:
        base = (off_t)file->description->offset;
        break;
    case SEEK_END:
        rc = causeway_fstat(files_open_file(file), &stat);
        base = rc == 0 ? stat.st_size : 0;
        break;
    case SEEK_DATA:
    case SEEK_HOLE:
        offset = causeway_seek(files_open_file(file), offset, whence);
        rc = offset < 0 ? (int)offset : 0;
        break;
    default:
        rc = -EINVAL;
        break;
    }
    if (rc != 0) {
        return rc;
    }
    if (__builtin_add_overflow(base, offset, &offset)) {
        return -EINVAL; /* as Linux; POSIX says EOVERFLOW */
    }
    if (offset < 0) {
        return -EINVAL;
    }
    file->description->offset = (uint64_t)offset;
    return offset;
}

off_t
hook_lseek(int fd, off_t offset, int whence)
{
    int rc = 0;

    if (!files_has(fd)) {
        return RAW(lseek, fd, offset, whence);
    }
    struct file *file = files_get(fd, &rc);
    if (file == NULL) {
        return hook_result(rc);
    }
    files_lock(file);
    const off_t at = S_ISDIR(file->description->mode) ? hook_dir_seek(file, offset, whence)
                                                      : seek_file(file, offset, whence);
    files_unlock(file);
    files_put(file);
    return hook_result(at);
}

/* ---- sync, truncate, allocate ---- */

static int
sync_ours(int fd)
{
    int rc = 0;
    struct file *file = files_get(fd, &rc);

    if (file != NULL) {
        rc = causeway_fsync(files_open_file(file));
        files_put(file);
    }
    return (int)hook_result(rc);
}

int
hook_fsync(int fd)
{
    return files_has(fd) ? sync_ours(fd) : (int)RAW_CANCELLABLE(fsync, fd);
}

int
hook_fdatasync(int fd)
{
    return files_has(fd) ? sync_ours(fd) : (int)RAW_CANCELLABLE(fdatasync, fd);
}

int
hook_syncfs(int fd)
{
    return files_has(fd) ? sync_ours(fd) : (int)RAW(syncfs, fd);
}

int
hook_sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags)
{
    return files_has(fd) ? sync_ours(fd)
                         : (int)RAW_CANCELLABLE(sync_file_range, fd, offset, bytes, flags);
}

int
hook_ftruncate(int fd, off_t size)
{
    int rc = 0;

    if (!files_has(fd)) {
        return (int)RAW(ftruncate, fd, size);
    }
    struct file *file = files_get(fd, &rc);
    if (file == NULL) {
        return (int)hook_result(rc);
    }
    if ((files_flags(file) & O_PATH) != 0) {
        rc = -EBADF;
    } else if (size < 0 || !may_write(file)) {
        rc = -EINVAL;
    } else {
        const struct causeway_attr attr = {.valid = CAUSEWAY_SET_SIZE, .size = (uint64_t)size};

        rc = causeway_fsetattr(files_open_file(file), &attr);
    }
    files_put(file);
    return (int)hook_result(rc);
}

static int
do_truncate(struct causeway *fs, const struct target *target, const void *argument)
{
    return causeway_setattr(fs, target->at, target->path, 0, argument);
}

int
hook_truncate(const char *path, off_t size)
{
    const struct causeway_attr attr = {.valid = CAUSEWAY_SET_SIZE, .size = (uint64_t)size};
    struct target target;

    if (size < 0) {
        return (int)hook_result(-EINVAL);
    }
    const int rc = hook_name(AT_FDCWD, path, HOOK_FOLLOW, do_truncate, &attr, &target);
    return rc == HOOK_KERNELS ? (int)RAW(truncate, target.path, size) : (int)hook_result(rc);
}

static int
allocate(int fd, int mode, off_t offset, off_t bytes)
{
    int rc = 0;
    struct file *file = files_get(fd, &rc);

    if (file == NULL) {
        return rc;
    }
    if (!may_write(file)) {
        rc = -EBADF;
    } else if (offset < 0 || bytes <= 0) {
        rc = -EINVAL;
    } else {
        rc = causeway_fallocate(files_open_file(file), mode, offset, bytes);
    }
    files_put(file);
    return rc;
}

int
hook_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    return files_has(fd) ? (int)hook_result(allocate(fd, mode, offset, bytes))
                         : (int)RAW_CANCELLABLE(fallocate, fd, mode, offset, bytes);
}

/* Of the kernel's file systems that cannot: a byte of every block, as libc does it. */
static int
allocate_by_hand(int fd, off_t offset, off_t bytes)
{
    struct statfs statfs;
    struct stat stat;

    if (RAW(fstatfs, fd, &statfs) != 0 || RAW(newfstatat, fd, "", &stat, AT_EMPTY_PATH) != 0) {
        return errno;
    }
    const off_t step = statfs.f_bsize <= 0 || statfs.f_bsize > 65536 ? 4096 : statfs.f_bsize;
    for (off_t at = offset + (bytes - 1) % step; bytes > 0; at += step, bytes -= step) {
        char byte = 0;

        if (at < stat.st_size) {
            const long got = RAW(pread64, fd, &byte, 1, at);

            if (got < 0) {
                return errno;
            }
            if (got == 1 && byte != 0) {
                continue;
            }
        }
        if (RAW(pwrite64, fd, "", 1, at) != 1) {
            return errno;
        }
    }
    return 0;
}

int
hook_posix_fallocate(int fd, off_t offset, off_t bytes)
{
    const int error_before = errno;

    if (files_has(fd)) {
        return -allocate(fd, 0, offset, bytes);
    }
    int error = RAW_CANCELLABLE(fallocate, fd, 0, offset, bytes) == 0 ? 0 : errno;
    if (error == EOPNOTSUPP) {
        error = allocate_by_hand(fd, offset, bytes);
    }
    errno = error_before;
    return error;
}

int
hook_posix_fadvise(int fd, off_t offset, off_t bytes, int advice)
{
    if (files_has(fd)) {
        return 0; /* nothing is cached, so there is nothing to advise on */
    }
    return -(int)raw_call(SYS_fadvise64, fd, offset, bytes, advice, 0, 0);
}

ssize_t
hook_readahead(int fd, off_t offset, size_t bytes)
{
    return files_has(fd) ? 0 : RAW(readahead, fd, offset, bytes);
}

/* ---- mapping ---- */

/* Fills @memory from the file; what lies behind its end stays zero. */
static int
fill(struct file *file, char *memory, size_t bytes, off_t offset)
{
    while (bytes > 0) {
        const struct iovec iov = {.iov_base = memory, .iov_len = bytes};
        const ssize_t got = causeway_preadv(files_open_file(file), &iov, 1, offset);

        if (got <= 0) {
            return (int)got;
        }
        memory += got;
        bytes -= (size_t)got;
        offset += got;
    }
    return 0;
}

/* A copy in anonymous memory. */
static int
map_private(struct file *file, void *address, size_t bytes, int protection, int flags, off_t offset,
            void **memory_out)
{
    void *memory = (void *)RAW(mmap, address, bytes, PROT_READ | PROT_WRITE,
                               (flags & ~MAP_TYPE) | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int rc = memory == MAP_FAILED ? -errno : fill(file, memory, bytes, offset);

    if (rc == 0 && protection != (PROT_READ | PROT_WRITE)) {
        rc = RAW(mprotect, memory, bytes, protection) == 0 ? 0 : -errno;
    }
    if (rc != 0 && memory != MAP_FAILED) {
        (void)RAW(munmap, memory, bytes);
    }
    *memory_out = memory;
    return rc;
}

/* A copy in a memfd, of which only a descriptor to read is mapped: mprotect() cannot make it
 * writable, which would lose what is written. */
static int
map_shared(struct file *file, void *address, size_t bytes, int protection, int flags, off_t offset,
           void **memory_out)
{
    char path[32];
    const int fd = (int)RAW(memfd_create, "causeway-map", MFD_CLOEXEC);
    void *memory = MAP_FAILED;
    int rc = fd < 0 || RAW(ftruncate, fd, bytes) != 0 ? -errno : 0;

    if (rc == 0) {
        memory = (void *)RAW(mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        rc = memory == MAP_FAILED ? -errno : fill(file, memory, bytes, offset);
    }
    if (memory != MAP_FAILED) {
        (void)RAW(munmap, memory, bytes);
    }
    if (rc == 0) {
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        const int to_read = (int)RAW(openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);

        memory = to_read < 0 ? MAP_FAILED
                             : (void *)RAW(mmap, address, bytes, protection, flags, to_read, 0);
        rc = memory == MAP_FAILED ? -errno : 0;
        if (to_read >= 0) {
            (void)RAW(close, to_read);
        }
    }
    if (fd >= 0) {
        (void)RAW(close, fd);
    }
    *memory_out = memory;
    return rc;
}

/*
 * A copy as the file is now: right for MAP_PRIVATE, and for MAP_SHARED that only reads (later
 * changes are not seen). Shared and writable is ENODEV, as on file systems without it.
 */
static void *
map_ours(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    int rc = 0;
    struct file *file = files_get(fd, &rc);
    const bool is_shared = (flags & MAP_TYPE) != MAP_PRIVATE;
    void *memory = MAP_FAILED;

    if (file == NULL) {
        return (void *)hook_result(rc);
    }
    if ((files_flags(file) & O_PATH) != 0) {
        rc = -EBADF;
    } else if (!may_read(file)) {
        rc = -EACCES;
    } else if (bytes == 0 || offset < 0 || (offset & 4095) != 0) {
        rc = -EINVAL;
    } else if (!S_ISREG(file->description->mode)) {
        rc = -ENODEV;
    } else if (is_shared && (protection & PROT_WRITE) != 0) {
        rc = may_write(file) ? -ENODEV : -EACCES;
    } else {
        rc = is_shared ? map_shared(file, address, bytes, protection, flags, offset, &memory)
                       : map_private(file, address, bytes, protection, flags, offset, &memory);
    }
    files_put(file);
    return rc != 0 ? (void *)hook_result(rc) : memory;
}

void *
hook_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if ((flags & MAP_ANONYMOUS) == 0 && files_has(fd)) {
        return map_ours(address, bytes, protection, flags, fd, offset);
    }
    return (void *)RAW(mmap, address, bytes, protection, flags, fd, offset);
}

/* ---- what the kernel would do between two descriptors: programs fall back to read and write ----
 */

ssize_t
hook_copy_file_range(int in, off_t *in_offset, int out, off_t *out_offset, size_t bytes,
                     unsigned flags)
{
    if (files_has(in) || files_has(out)) {
        return hook_result(-EXDEV);
    }
    return RAW_CANCELLABLE(copy_file_range, in, in_offset, out, out_offset, bytes, flags);
}

/* What sendfile(2) says of descriptors of ours before it looks at any byte. */
static int
may_send(int out, int in)
{
    struct file *from = files_has(in) ? files_peek(in) : NULL;
    struct file *to = files_has(out) ? files_peek(out) : NULL;
    int rc = (from != NULL && !may_read(from)) || (to != NULL && !may_write(to)) ? -EBADF : 0;

    if (rc == 0 && ((from != NULL && !S_ISREG(from->description->mode)) ||
                    (to != NULL && (files_flags(to) & O_APPEND) != 0))) {
        rc = -EINVAL;
    }
    if (to != NULL) {
        files_put(to);
    }
    if (from != NULL) {
        files_put(from);
    }
    return rc;
}

/* sendfile(2) between ours and another, through memory. */
static ssize_t
send_through(int out, int in, off_t *offset, size_t bytes)
{
    const size_t room = bytes < SEND_BYTES ? bytes : SEND_BYTES;
    off_t at = offset != NULL ? *offset : hook_lseek(in, 0, SEEK_CUR);
    ssize_t done = 0;
    ssize_t rc = 0;

    if (may_send(out, in) != 0) {
        return hook_result(may_send(out, in));
    }
    if (at < 0) {
        return offset != NULL ? hook_result(-EINVAL) : -1;
    }
    if (bytes == 0) {
        return 0;
    }
    char *memory =
        (char *)RAW(mmap, NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return -1;
    }
    while ((size_t)done < bytes) {
        const size_t left = bytes - (size_t)done;
        const ssize_t got = hook_pread(in, memory, left < room ? left : room, at);

        rc = got > 0 ? hook_write(out, memory, (size_t)got) : got;
        if (rc <= 0) {
            break;
        }
        at += rc;
        done += rc;
        if (rc < got) {
            break;
        }
    }
    const int error = errno;
    (void)RAW(munmap, memory, room);
    if (offset != NULL) {
        *offset = at;
    } else if (done > 0) {
        (void)hook_lseek(in, at, SEEK_SET);
    }
    errno = error;
    return done > 0 ? done : rc;
}

ssize_t
hook_sendfile(int out, int in, off_t *offset, size_t bytes)
{
    if (files_has(in) || files_has(out)) {
        return send_through(out, in, offset, bytes);
    }
    return RAW(sendfile, out, in, offset, bytes);
}

ssize_t
hook_splice(int in, off_t *in_offset, int out, off_t *out_offset, size_t bytes, unsigned flags)
{
    if (files_has(in) || files_has(out)) {
        return hook_result(-EINVAL);
    }
    return RAW_CANCELLABLE(splice, in, in_offset, out, out_offset, bytes, flags);
}
