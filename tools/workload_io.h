/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a workload's calls go: libc (POSIX) or a file system of this rank's own (CAUSEWAY).
 *
 * Both answer alike: 0 or a count, or a negative errno. CAUSEWAY finds its servers by the variables
 * that `causeway run` gives its command; of paths below the prefix the prefix is cut off, other
 * absolute paths are refused, and relative ones start at the file system's root.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct causeway;
struct causeway_file;
struct io;

union io_file {
    int fd;
    struct causeway_file *file;
};

struct io_space {
    uint64_t bytes, bytes_used;
    uint64_t files, files_used;
};

struct io_ops {
    const char *name;
    int (*open)(const struct io *io, const char *path, int flags, mode_t mode,
                union io_file *file_out);
    int (*close)(union io_file file);
    ssize_t (*read)(union io_file file, void *buffer, size_t bytes, off_t offset);
    ssize_t (*write)(union io_file file, const void *buffer, size_t bytes, off_t offset);
    int (*fsync)(union io_file file);
    int (*stat)(const struct io *io, const char *path, struct stat *stat_out);
    int (*mkdir)(const struct io *io, const char *path);
    int (*rmdir)(const struct io *io, const char *path);
    int (*mknod)(const struct io *io, const char *path);
    int (*unlink)(const struct io *io, const char *path);
    int (*rename)(const struct io *io, const char *from, const char *to);
    int (*space)(const struct io *io, const char *path, struct io_space *space_out);
};

struct io {
    const struct io_ops *ops;
    struct causeway *fs; /* CAUSEWAY */
    size_t skip_bytes;   /* CAUSEWAY: of each path, the prefix */
    mode_t umask;        /* CAUSEWAY */
};

/*
 * The name of the back end to use for @path: @api if it is not NULL, else CAUSEWAY for a path below
 * the prefix when there are servers in the environment, else POSIX.
 */
const char *io_api(const char *api, const char *path);

/*
 * Checks that @path can be used with @api before anything is started. Returns NULL, or what is
 * wrong with it.
 */
const char *io_refuse(const char *api, const char *path);

/*
 * Opens the back end @api for paths that begin with @path. Errors: -EINVAL io_refuse() says why;
 * those of causeway_mount().
 */
int io_open(struct io *io, const char *api, const char *path);

/* Unmounts. A back end that was not opened is fine. */
void io_close(struct io *io);

/*
 * Reads or writes all @bytes, in as many calls as it takes. Returns 0, -ENODATA if the file ends
 * before, or the error.
 */
int io_read_all(const struct io *io, union io_file file, void *buffer, size_t bytes, off_t offset);
int io_write_all(const struct io *io, union io_file file, const void *buffer, size_t bytes,
                 off_t offset);

/* Makes @path and what is missing above it. Returns 0 also if it is there. */
int io_make_path(const struct io *io, const char *path);
