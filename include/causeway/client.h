/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * client.h - files on Causeway servers: the blocking, POSIX-like face.
 *
 * A `struct causeway` is a mounted file system: one client with a context of its own. Calls block
 * by polling that context (spin, yield, then sleep). Any thread may call; calls of several threads
 * are in flight together. Paths are relative to a directory's FID (NULL: the root), a leading '/'
 * is the root of the file system. Errors are negative errnos, as POSIX says for the call of that
 * name; and -ETIMEDOUT, -ECONNRESET, -ENOTCONN when a server can't be reached, -ESTALE when it has
 * forgotten us.
 *
 * Nothing is cached: what a call returned is at the servers, and seen by every other client.
 */
#ifndef CAUSEWAY_CLIENT_H
#define CAUSEWAY_CLIENT_H

#include <causeway/lnet.h>

#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CLIENT_API LNET_API

struct causeway;      /* a mounted file system */
struct causeway_file; /* an open file or directory */

struct causeway_fid { /* names a file for ever */
    uint64_t seq;
    uint32_t oid;
    uint32_t ver;
};

struct causeway_options {
    uint32_t struct_bytes;
    uint32_t flags;              /* 0 */
    const char *net;             /* "shm" [by default] */
    const char *mds;             /* the MDS's address, "0-1@shm" or "1@shm"; must be set */
    const char *run_dir;         /* shm: of the rendezvous sockets; NULL: the default */
    uint64_t timeout_ns;         /* of one try of a request [10 s] */
    uint32_t max_rpcs_in_flight; /* per target [16] */
    uint32_t bulk_path;          /* enum bulk_path [auto] */
    uint64_t spin_ns;            /* how long to spin before yielding and sleeping; 0: adaptive */
    const char *ni_rma_path;     /* as lnet_ni_options.rma_path */
    uint32_t no_lease;           /* 1: the servers make all copies */
    uint32_t checksum;           /* 1: CRC32C over all file data, end to end */
    lnet_log_fn log;             /* NULL: silent */
    void *log_arg;
};

/**
 * causeway_mount() - connect to the servers
 * @options: where they are.
 * @fs_out:  the file system.
 *
 * Errors:  -EINVAL; -ENOMEM; -EHOSTUNREACH nobody answers at that address; -ETIMEDOUT; -EPROTO
 * another version. Context: any thread. Blocks.
 */
CLIENT_API int causeway_mount(const struct causeway_options *options, struct causeway **fs_out);

/**
 * causeway_unmount() - disconnect
 * @fs: the file system; its files are closed. NULL does nothing.
 *
 * Context: any thread, with no other call on @fs under way. Blocks, at most about 1 s.
 */
CLIENT_API void causeway_unmount(struct causeway *fs);

/**
 * causeway_identity_set() - for whom calls are made from now on
 * @fs:  the file system. At mount it is the process's effective ids.
 * @uid: the user.
 * @gid: the group.
 *
 * Context: any thread.
 */
CLIENT_API void causeway_identity_set(struct causeway *fs, uid_t uid, gid_t gid);

/**
 * causeway_fork_prepare() - before fork(): hold off the other threads
 * @fs: the file system. causeway_fork_parent() must follow in the parent, causeway_fork_child() in
 * the child. All three are made for pthread_atfork().
 *
 * Context: the thread that forks. Blocks while other threads are in the middle of a step.
 */
CLIENT_API void causeway_fork_prepare(struct causeway *fs);

/**
 * causeway_fork_parent() - in the parent after fork(): go on
 * @fs: prepared.
 *
 * Context: the thread that forked.
 */
CLIENT_API void causeway_fork_parent(struct causeway *fs);

/**
 * causeway_fork_child() - in a child process after fork(): let go of the parent's file system
 * @fs: inherited. Its memory and descriptors are freed in this process; the servers and the parent
 * see nothing of it. Files of it are freed too.
 *
 * Context: the child's only thread.
 */
CLIENT_API void causeway_fork_child(struct causeway *fs);

/* ---- names ---- */

enum causeway_flags {
    CAUSEWAY_NOFOLLOW = 1u << 0, /* a symlink in the last component is meant itself */
};

/**
 * causeway_open() - open a file or directory, perhaps making the file
 * @fs:       the file system.
 * @at:       the directory that @path starts from; NULL: the root.
 * @path:     the path; "" names @at itself.
 * @flags:    open(2)'s: access mode, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECTORY, O_NOFOLLOW,
 * O_PATH, O_TMPFILE, O_SYNC; others are ignored.
 * @mode:     permissions of a new file; the caller has applied its umask.
 * @file_out: the open file.
 *
 * Errors:  open(2)'s; -ENFILE too many are open; and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_open(struct causeway *fs, const struct causeway_fid *at, const char *path,
                             int flags, mode_t mode, struct causeway_file **file_out);

/**
 * causeway_open_fid() - open what a FID names, be it without a name but open elsewhere
 * @fs:       the file system.
 * @fid:      the file.
 * @flags:    access mode, O_APPEND, O_PATH.
 * @file_out: the open file.
 *
 * Errors:  -ESTALE it is gone; and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_open_fid(struct causeway *fs, const struct causeway_fid *fid, int flags,
                                 struct causeway_file **file_out);

/**
 * causeway_close() - close a file
 * @file: invalid after the call. The servers learn of it in the background; all data is there
 * already.
 *
 * Context: any thread.
 */
CLIENT_API void causeway_close(struct causeway_file *file);

/**
 * causeway_file_fid() - the FID of an open file
 * @file: the file.
 *
 * Return:  its FID.
 * Context: any thread.
 */
CLIENT_API struct causeway_fid causeway_file_fid(const struct causeway_file *file);

/**
 * causeway_file_mode() - type and permissions as they were at open
 * @file: the file.
 *
 * Return:  as st_mode.
 * Context: any thread.
 */
CLIENT_API mode_t causeway_file_mode(const struct causeway_file *file);

/**
 * causeway_stat() - attributes of a name
 * @fs:       the file system.
 * @at:       start; NULL: the root.
 * @path:     "" for @at itself.
 * @flags:    enum causeway_flags.
 * @stat_out: as stat(2). st_ino is made from the FID, st_dev is a constant of the file system.
 *
 * Errors:  stat(2)'s, and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_stat(struct causeway *fs, const struct causeway_fid *at, const char *path,
                             unsigned flags, struct stat *stat_out);

/**
 * causeway_fstat() - attributes of an open file
 * @file:     the file.
 * @stat_out: as fstat(2).
 *
 * Errors:  see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_fstat(struct causeway_file *file, struct stat *stat_out);

/**
 * causeway_lookup() - FID and type of a name, with one round trip
 * @fs:       the file system.
 * @at:       start; NULL: the root.
 * @path:     the path.
 * @flags:    enum causeway_flags.
 * @fid_out:  the FID.
 * @mode_out: type and permissions, or NULL.
 *
 * Errors:  stat(2)'s, and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_lookup(struct causeway *fs, const struct causeway_fid *at, const char *path,
                               unsigned flags, struct causeway_fid *fid_out, mode_t *mode_out);

/**
 * causeway_access() - may the caller's uid and gid?
 * @fs:    the file system.
 * @at:    start; NULL: the root.
 * @path:  the path.
 * @mask:  access(2)'s.
 * @flags: enum causeway_flags.
 *
 * Errors:  access(2)'s, and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_access(struct causeway *fs, const struct causeway_fid *at, const char *path,
                               int mask, unsigned flags);

/* What causeway_setattr() shall set. */
enum causeway_set {
    CAUSEWAY_SET_MODE = 1u << 0,
    CAUSEWAY_SET_UID = 1u << 1,
    CAUSEWAY_SET_GID = 1u << 2,
    CAUSEWAY_SET_SIZE = 1u << 3,
    CAUSEWAY_SET_ATIME = 1u << 4,
    CAUSEWAY_SET_MTIME = 1u << 5,
    CAUSEWAY_SET_ATIME_NOW = 1u << 6,
    CAUSEWAY_SET_MTIME_NOW = 1u << 7,
    CAUSEWAY_SET_STRIPE = 1u << 8, /* a directory: the layout of files made in it from now on */
};

struct causeway_attr {
    uint32_t valid; /* enum causeway_set */
    mode_t mode;
    uid_t uid;
    gid_t gid;
    uint64_t size;
    struct timespec atime, mtime;
    uint32_t stripe_bytes; /* a multiple of 64 KiB */
    uint32_t stripe_count; /* 0xffff: all OSTs */
};

/**
 * causeway_setattr() - chmod, chown, truncate, utimens and setstripe
 * @fs:    the file system.
 * @at:    start; NULL: the root.
 * @path:  "" for @at itself.
 * @flags: enum causeway_flags.
 * @attr:  what to set.
 *
 * Errors:  of chmod(2), chown(2), truncate(2), utimensat(2); and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_setattr(struct causeway *fs, const struct causeway_fid *at,
                                const char *path, unsigned flags, const struct causeway_attr *attr);

/**
 * causeway_fsetattr() - the same for an open file
 * @file: the file.
 * @attr: what to set.
 *
 * Errors:  of fchmod(2), fchown(2), ftruncate(2), futimens(2); and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_fsetattr(struct causeway_file *file, const struct causeway_attr *attr);

/**
 * causeway_mkdir() - make a directory
 * @fs:   the file system.
 * @at:   start; NULL: the root.
 * @path: the path.
 * @mode: permissions, umask applied.
 *
 * Errors:  mkdir(2)'s, and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_mkdir(struct causeway *fs, const struct causeway_fid *at, const char *path,
                              mode_t mode);

/**
 * causeway_mknod() - make an empty regular file or a fifo
 * @fs:   the file system.
 * @at:   start; NULL: the root.
 * @path: the path.
 * @mode: type and permissions, umask applied.
 * @rdev: 0.
 *
 * Errors:  mknod(2)'s, -EPERM for devices; and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_mknod(struct causeway *fs, const struct causeway_fid *at, const char *path,
                              mode_t mode, dev_t rdev);

/**
 * causeway_unlink() - remove a name that is no directory
 * @fs:   the file system.
 * @at:   start; NULL: the root.
 * @path: the path.
 *
 * Errors:  unlink(2)'s, and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_unlink(struct causeway *fs, const struct causeway_fid *at,
                               const char *path);

/**
 * causeway_rmdir() - remove an empty directory
 * @fs:   the file system.
 * @at:   start; NULL: the root.
 * @path: the path.
 *
 * Errors:  rmdir(2)'s, and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_rmdir(struct causeway *fs, const struct causeway_fid *at, const char *path);

/**
 * causeway_rename() - rename(2)
 * @fs:    the file system.
 * @at:    start of @path; NULL: the root.
 * @path:  the old name.
 * @at2:   start of @path2; NULL: the root.
 * @path2: the new name.
 * @flags: renameat2(2)'s RENAME_NOREPLACE and RENAME_EXCHANGE.
 *
 * Errors:  renameat2(2)'s, and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_rename(struct causeway *fs, const struct causeway_fid *at, const char *path,
                               const struct causeway_fid *at2, const char *path2, unsigned flags);

/**
 * causeway_link() - make a hard link
 * @fs:    the file system.
 * @at:    start of @path; NULL: the root.
 * @path:  what exists; "" for @at itself.
 * @at2:   start of @path2; NULL: the root.
 * @path2: the new name.
 * @flags: enum causeway_flags, for @path.
 *
 * Errors:  link(2)'s, and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_link(struct causeway *fs, const struct causeway_fid *at, const char *path,
                             const struct causeway_fid *at2, const char *path2, unsigned flags);

/**
 * causeway_symlink() - make a symbolic link
 * @fs:     the file system.
 * @target: its text, kept as it is.
 * @at:     start of @path; NULL: the root.
 * @path:   the new name.
 *
 * Errors:  symlink(2)'s, and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_symlink(struct causeway *fs, const char *target,
                                const struct causeway_fid *at, const char *path);

/**
 * causeway_readlink() - the text of a symbolic link
 * @fs:     the file system.
 * @at:     start of @path; NULL: the root.
 * @path:   the link.
 * @buffer: for the text, not NUL-terminated.
 * @bytes:  room in it.
 *
 * Return:  bytes written, or readlink(2)'s negative errors, and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API ssize_t causeway_readlink(struct causeway *fs, const struct causeway_fid *at,
                                     const char *path, char *buffer, size_t bytes);

/*
 * Symlinks in a path that lead to absolute targets. The client does not know where the program sees
 * the file system's root, so it asks: @target is the link's absolute text. Return 0 with the path
 * from this file system's root written to @path (4096 bytes), or a negative errno for the call (the
 * preload library answers -EXDEV for a target outside its prefix and goes there itself).
 */
typedef int (*causeway_absolute_fn)(void *arg, const char *target, char *path);

/**
 * causeway_absolute_set() - say how absolute symlink targets are resolved
 * @fs:  the file system.
 * @fn:  NULL: from this file system's root.
 * @arg: for @fn.
 *
 * Context: before other threads use @fs.
 */
CLIENT_API void causeway_absolute_set(struct causeway *fs, causeway_absolute_fn fn, void *arg);

/* ---- data ---- */

/**
 * causeway_preadv() - read at an offset
 * @file:      open for reading.
 * @iov:       where to.
 * @iov_count: at most 1024.
 * @offset:    in the file.
 *
 * Return:  bytes read; short only at the end of the file; or preadv(2)'s negative errors, and see
 * the head of this file. Context: any thread. Blocks.
 */
CLIENT_API ssize_t causeway_preadv(struct causeway_file *file, const struct iovec *iov,
                                   int iov_count, off_t offset);

/**
 * causeway_pwritev() - write at an offset
 * @file:      open for writing.
 * @iov:       the bytes.
 * @iov_count: at most 1024.
 * @offset:    in the file. Negative: append atomically at the end.
 * @end_out:   where the written bytes end in the file, or NULL.
 *
 * Return:  bytes written: all, or fewer if space ran out; or pwritev(2)'s negative errors, and see
 * the head of this file. Context: any thread. Blocks.
 */
CLIENT_API ssize_t causeway_pwritev(struct causeway_file *file, const struct iovec *iov,
                                    int iov_count, off_t offset, off_t *end_out);

/**
 * causeway_fsync() - wait until all that was written is as safe as the store makes it
 * @file: the file.
 *
 * Errors:  fsync(2)'s, and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_fsync(struct causeway_file *file);

/**
 * causeway_fallocate() - fallocate(2)
 * @file:   open for writing.
 * @mode:   0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE.
 * @offset: first byte.
 * @length: how many.
 *
 * Errors:  fallocate(2)'s, -EOPNOTSUPP other modes; and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_fallocate(struct causeway_file *file, int mode, off_t offset, off_t length);

/**
 * causeway_seek() - where data or a hole begins
 * @file:   the file.
 * @offset: from here.
 * @whence: SEEK_DATA or SEEK_HOLE.
 *
 * Return:  the offset, or lseek(2)'s negative errors, and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API off_t causeway_seek(struct causeway_file *file, off_t offset, int whence);

/* fcntl(2) byte-range locks. */
struct causeway_lock {
    uint64_t owner; /* of this client */
    uint64_t start;
    uint64_t end; /* last byte, UINT64_MAX: to the end */
    int type;     /* F_RDLCK, F_WRLCK, F_UNLCK */
    pid_t pid;    /* set: ours; got: the holder's */
};

/**
 * causeway_lock() - take, release or test a byte-range lock
 * @file: the file.
 * @lock: which; with @test it is overwritten by what stands in the way, or type F_UNLCK.
 * @test: only look (F_GETLK).
 *
 * Errors:  -EAGAIN another holds it (this call never waits); and see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_lock(struct causeway_file *file, struct causeway_lock *lock, bool test);

/* ---- directories ---- */

struct causeway_dirent {
    struct causeway_fid fid;
    uint64_t ino;
    uint64_t cookie;    /* continues after this entry */
    unsigned char type; /* DT_REG, ... */
    char name[256];
};

/**
 * causeway_readdir() - read entries of an open directory
 * @file:    open directory.
 * @cookie:  0 to begin; the cookie of the last entry to continue. As good as the directory itself.
 * @entries: where to.
 * @count:   room for so many.
 *
 * Return:  how many were read, 0 at the end; or a negative error, see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_readdir(struct causeway_file *file, uint64_t cookie,
                                struct causeway_dirent *entries, int count);

/* ---- the file system ---- */

struct causeway_statfs {
    uint64_t block_bytes; /* 4096 */
    uint64_t blocks, blocks_free;
    uint64_t files, files_free;
    uint32_t name_bytes_max; /* 255 */
    uint32_t ost_count;
};

/**
 * causeway_statfs() - space
 * @fs:         the file system.
 * @statfs_out: sums over its OSTs, and the MDS's inodes.
 *
 * Errors:  see the head of this file.
 * Context: any thread. Blocks.
 */
CLIENT_API int causeway_statfs(struct causeway *fs, struct causeway_statfs *statfs_out);

struct causeway_layout {
    uint32_t stripe_bytes;
    uint32_t stripe_count;
    uint32_t ost_first;
    uint32_t ost_count;
};

/**
 * causeway_layout_get() - how a file is striped
 * @file:       the file.
 * @layout_out: its layout; of a directory, what files made in it get.
 *
 * Errors:  see the head of this file.
 * Context: any thread.
 */
CLIENT_API int causeway_layout_get(struct causeway_file *file, struct causeway_layout *layout_out);

/* ---- asynchronous data ---- */

typedef void (*causeway_io_fn)(void *arg, ssize_t result);

/**
 * causeway_io_submit() - start a read or write
 * @file:      open for it.
 * @is_write:  else read.
 * @iov:       copied; the memory is the file system's until done.
 * @iov_count: at most 16.
 * @offset:    in the file, not negative.
 * @done:      called once, with the result as of preadv and pwritev, from causeway_io_poll() or any
 * other call on the file system.
 * @arg:       for @done.
 *
 * Errors:  -EINVAL; -EBADF; -EAGAIN too many are under way.
 * Context: any thread; not from @done.
 */
CLIENT_API int causeway_io_submit(struct causeway_file *file, bool is_write,
                                  const struct iovec *iov, int iov_count, off_t offset,
                                  causeway_io_fn done, void *arg);

/**
 * causeway_io_poll() - make progress
 * @fs:      the file system.
 * @wait_ns: wait so long for something to end; 0: do not wait.
 *
 * Return:  how many done() were called.
 * Context: any thread; not from a done().
 */
CLIENT_API int causeway_io_poll(struct causeway *fs, uint64_t wait_ns);

#ifdef __cplusplus
}
#endif
#endif
