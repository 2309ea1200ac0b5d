/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Back ends of the workloads. See workload_io.h.
 */
#include "tools/workload_io.h"

#include "base/assert.h"

#include <causeway/bulk.h>
#include <causeway/client.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- POSIX ---- */

static int
posix_open(const struct io *io, const char *path, int flags, mode_t mode, union io_file *file_out)
{
    (void)io;
    file_out->fd = open(path, flags | O_CLOEXEC, mode);
    return file_out->fd < 0 ? -errno : 0;
}

static int
posix_close(union io_file file)
{
    return close(file.fd) != 0 ? -errno : 0;
}

static ssize_t
posix_read(union io_file file, void *buffer, size_t bytes, off_t offset)
{
    const ssize_t got = pread(file.fd, buffer, bytes, offset);

    return got < 0 ? -errno : got;
}

static ssize_t
posix_write(union io_file file, const void *buffer, size_t bytes, off_t offset)
{
    const ssize_t put = pwrite(file.fd, buffer, bytes, offset);

    return put < 0 ? -errno : put;
}

static int
posix_fsync(union io_file file)
{
    return fsync(file.fd) != 0 ? -errno : 0;
}

static int
posix_stat(const struct io *io, const char *path, struct stat *stat_out)
{
    (void)io;
    return stat(path, stat_out) != 0 ? -errno : 0;
}

static int
posix_mkdir(const struct io *io, const char *path)
{
    (void)io;
    return mkdir(path, 0777) != 0 ? -errno : 0;
}

static int
posix_rmdir(const struct io *io, const char *path)
{
    (void)io;
    return rmdir(path) != 0 ? -errno : 0;
}

static int
posix_mknod(const struct io *io, const char *path)
{
    (void)io;
    return mknod(path, S_IFREG | 0664, 0) != 0 ? -errno : 0;
}

static int
posix_unlink(const struct io *io, const char *path)
{
    (void)io;
    return unlink(path) != 0 ? -errno : 0;
}

static int
posix_rename(const struct io *io, const char *from, const char *to)
{
    (void)io;
    return rename(from, to) != 0 ? -errno : 0;
}

static int
posix_space(const struct io *io, const char *path, struct io_space *space_out)
{
    struct statvfs fs;

    (void)io;
    if (statvfs(path, &fs) != 0) {
        return -errno;
    }
    *space_out = (struct io_space){.bytes = fs.f_blocks * fs.f_frsize,
                                   .bytes_used = (fs.f_blocks - fs.f_bfree) * fs.f_frsize,
                                   .files = fs.f_files,
                                   .files_used = fs.f_files - fs.f_ffree};
    return 0;
}

static const struct io_ops posix_ops = {
    .name = "POSIX",
    .open = posix_open,
    .close = posix_close,
    .read = posix_read,
    .write = posix_write,
    .fsync = posix_fsync,
    .stat = posix_stat,
    .mkdir = posix_mkdir,
    .rmdir = posix_rmdir,
    .mknod = posix_mknod,
    .unlink = posix_unlink,
    .rename = posix_rename,
    .space = posix_space,
};

/* ---- CAUSEWAY ---- */

static int
client_open(const struct io *io, const char *path, int flags, mode_t mode, union io_file *file_out)
{
    return causeway_open(io->fs, NULL, path + io->skip_bytes, flags, mode & ~io->umask,
                         &file_out->file);
}

static int
client_close(union io_file file)
{
    causeway_close(file.file);
    return 0;
}

static ssize_t
client_read(union io_file file, void *buffer, size_t bytes, off_t offset)
{
    const struct iovec iov = {.iov_base = buffer, .iov_len = bytes};

    return causeway_preadv(file.file, &iov, 1, offset);
}

static ssize_t
client_write(union io_file file, const void *buffer, size_t bytes, off_t offset)
{
    struct iovec iov = {.iov_len = bytes};

    memcpy(&iov.iov_base, &buffer, sizeof(buffer)); /* it is only read */
    return causeway_pwritev(file.file, &iov, 1, offset, NULL);
}

static int
client_fsync(union io_file file)
{
    return causeway_fsync(file.file);
}

static int
client_stat(const struct io *io, const char *path, struct stat *stat_out)
{
    return causeway_stat(io->fs, NULL, path + io->skip_bytes, 0, stat_out);
}

static int
client_mkdir(const struct io *io, const char *path)
{
    return causeway_mkdir(io->fs, NULL, path + io->skip_bytes, 0777 & ~io->umask);
}

static int
client_rmdir(const struct io *io, const char *path)
{
    return causeway_rmdir(io->fs, NULL, path + io->skip_bytes);
}

static int
client_mknod(const struct io *io, const char *path)
{
    return causeway_mknod(io->fs, NULL, path + io->skip_bytes, S_IFREG | (0664 & ~io->umask), 0);
}

static int
client_unlink(const struct io *io, const char *path)
{
    return causeway_unlink(io->fs, NULL, path + io->skip_bytes);
}

static int
client_rename(const struct io *io, const char *from, const char *to)
{
    return causeway_rename(io->fs, NULL, from + io->skip_bytes, NULL, to + io->skip_bytes, 0);
}

static int
client_space(const struct io *io, const char *path, struct io_space *space_out)
{
    struct causeway_statfs fs;
    const int rc = causeway_statfs(io->fs, &fs);

    (void)path;
    if (rc == 0) {
        *space_out = (struct io_space){.bytes = fs.blocks * fs.block_bytes,
                                       .bytes_used = (fs.blocks - fs.blocks_free) * fs.block_bytes,
                                       .files = fs.files,
                                       .files_used = fs.files - fs.files_free};
    }
    return rc;
}

static const struct io_ops client_ops = {
    .name = "CAUSEWAY",
    .open = client_open,
    .close = client_close,
    .read = client_read,
    .write = client_write,
    .fsync = client_fsync,
    .stat = client_stat,
    .mkdir = client_mkdir,
    .rmdir = client_rmdir,
    .mknod = client_mknod,
    .unlink = client_unlink,
    .rename = client_rename,
    .space = client_space,
};

/* ---- choosing and opening ---- */

static const char *
env(const char *name)
{
    return getenv(name); // NOLINT(concurrency-mt-unsafe): nothing here changes the environment
}

/* How many bytes of @path are the prefix, 0 if it does not lie below it. */
static size_t
prefix_bytes(const char *path)
{
    const char *prefix = env("CAUSEWAY_PREFIX");

    if (prefix == NULL || prefix[0] != '/' || prefix[1] == '\0') {
        prefix = "/causeway";
    }
    size_t bytes = strlen(prefix);
    while (bytes > 1 && prefix[bytes - 1] == '/') {
        bytes--;
    }
    if (strncmp(path, prefix, bytes) != 0 || (path[bytes] != '/' && path[bytes] != '\0')) {
        return 0;
    }
    return bytes;
}

const char *
io_api(const char *api, const char *path)
{
    if (api != NULL) {
        return api;
    }
    return env("CAUSEWAY_MDS") != NULL && prefix_bytes(path) > 0 ? client_ops.name : posix_ops.name;
}

const char *
io_refuse(const char *api, const char *path)
{
    if (strlen(path) > PATH_MAX - 256) {
        return "the path is too long";
    }
    if (strcmp(api, client_ops.name) != 0) {
        return NULL;
    }
    if (env("CAUSEWAY_MDS") == NULL) {
        return "-a CAUSEWAY finds no servers: CAUSEWAY_MDS is not set (start it with "
               "`causeway run -- ...`)";
    }
    if (path[0] == '/' && prefix_bytes(path) == 0) {
        return "with -a CAUSEWAY an absolute path lies below CAUSEWAY_PREFIX [/causeway]";
    }
    return NULL;
}

static void
log_line(void *arg, int level, const char *subsystem, const char *text)
{
    (void)arg;
    if (level <= LNET_LOG_WARN) {
        (void)fprintf(stderr, "causeway: %s: %s\n", subsystem, text);
    }
}

static uint32_t
bulk_path_named(const char *name)
{
    for (int path = 0; name != NULL && path < BULK_PATH_COUNT; path++) {
        if (strcmp(bulk_path_name((enum bulk_path)path), name) == 0) {
            return (uint32_t)path;
        }
    }
    return BULK_PATH_AUTO;
}

int
io_open(struct io *io, const char *api, const char *path)
{
    const char *timeout = env("CAUSEWAY_TIMEOUT_MS");
    const struct causeway_options options = {
        .struct_bytes = sizeof(options),
        .mds = env("CAUSEWAY_MDS"),
        .run_dir = env("CAUSEWAY_RUN_DIR"),
        .timeout_ns = timeout != NULL ? strtoull(timeout, NULL, 10) * 1000000 : 0,
        .bulk_path = bulk_path_named(env("CAUSEWAY_BULK_PATH")),
        .ni_rma_path = env("CAUSEWAY_RMA_PATH"),
        .no_lease = env("CAUSEWAY_NO_LEASE") != NULL,
        .checksum = env("CAUSEWAY_CHECKSUM") != NULL,
        .log = log_line,
    };

    *io = (struct io){.ops = &posix_ops};
    if (io_refuse(api, path) != NULL) {
        return -EINVAL;
    }
    if (strcmp(api, client_ops.name) != 0) {
        return 0;
    }
    io->ops = &client_ops;
    io->skip_bytes = prefix_bytes(path);
    io->umask = umask(0);
    (void)umask(io->umask);
    return causeway_mount(&options, &io->fs);
}

void
io_close(struct io *io)
{
    if (io->fs != NULL) {
        causeway_unmount(io->fs);
        io->fs = NULL;
    }
}

int
io_read_all(const struct io *io, union io_file file, void *buffer, size_t bytes, off_t offset)
{
    char *at = buffer;

    while (bytes > 0) {
        const ssize_t got = io->ops->read(file, at, bytes, offset);

        if (got == -EINTR) {
            continue;
        }
        if (got <= 0) {
            return got == 0 ? -ENODATA : (int)got;
        }
        at += got;
        bytes -= (size_t)got;
        offset += got;
    }
    return 0;
}

int
io_write_all(const struct io *io, union io_file file, const void *buffer, size_t bytes,
             off_t offset)
{
    const char *at = buffer;

    while (bytes > 0) {
        const ssize_t put = io->ops->write(file, at, bytes, offset);

        if (put == -EINTR) {
            continue;
        }
        if (put <= 0) {
            return put == 0 ? -ENOSPC : (int)put;
        }
        at += put;
        bytes -= (size_t)put;
        offset += put;
    }
    return 0;
}

int
io_make_path(const struct io *io, const char *path)
{
    char part[PATH_MAX];
    const size_t length = strlen(path);

    BASE_ASSERT(length < sizeof(part));
    for (size_t i = io->skip_bytes + 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0') {
            continue;
        }
        memcpy(part, path, i);
        part[i] = '\0';
        const int rc = io->ops->mkdir(io, part);
        if (rc != 0 && rc != -EEXIST) {
            return rc;
        }
    }
    return 0;
}
