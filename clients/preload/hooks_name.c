/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hooks of names and attributes.
 *
 * All of a kind come down to the `at` form; the stat family to stat_at(), which fills a struct
 * stat.
 */
#include "clients/preload/hooks.h"

#include <linux/stat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <utime.h>

#define STATFS_MAGIC 0x43415753 /* "CAWS" */
#define STATFS_VALID 0x20       /* f_flags: libc need not look for the mount */

mode_t hook_umask_value;

/* A target of ours. Returns 0; HOOK_KERNELS with the place outside that it leads to in
 * target->path; or a negative errno. */
static int
on_target(struct target *target, enum hook_follow follow, hook_name_fn fn, const void *argument)
{
    int rc = 0;
    struct causeway *fs = fs_get(&rc);

    if (fs == NULL) {
        return rc;
    }
    fs_enter();
    rc = fn(fs, target, argument);
    if (__builtin_expect(rc == -EXDEV, 0)) {
        rc = path_outside(fs, target, follow == HOOK_FOLLOW);
        rc = rc == 0 ? HOOK_KERNELS : rc;
    }
    fs_leave();
    return rc;
}

/* The file itself that the open descriptor @fd has. */
static int
on_descriptor(int fd, hook_name_fn fn, const void *argument, struct target *target)
{
    struct file *file = files_peek(fd);

    if (file == NULL) {
        return -EBADF;
    }
    target->at_fid = file->description->fid;
    target->at = &target->at_fid;
    target->path = "";
    files_put(file);
    return on_target(target, HOOK_NOFOLLOW, fn, argument);
}

static bool
is_empty(const char *path)
{
    return path != NULL && path[0] == '\0';
}

int
hook_name(int dirfd, const char *path, enum hook_follow follow, hook_name_fn fn,
          const void *argument, struct target *target)
{
    const int alias = follow == HOOK_FOLLOW ? path_alias(path) : -1;

    if (__builtin_expect(alias >= 0, 0)) {
        return on_descriptor(alias, fn, argument, target);
    }
    if (is_empty(path) && follow != HOOK_EMPTY) {
        return -ENOENT;
    }
    const int rc = path_resolve(dirfd, path, target);
    return rc > 0 ? on_target(target, follow, fn, argument) : rc == 0 ? HOOK_KERNELS : rc;
}

/* Of a call that may take "" for the descriptor itself, if flags say so. */
static enum hook_follow
follow_of(const char *path, int flags)
{
    if ((flags & AT_EMPTY_PATH) != 0 && is_empty(path)) {
        return HOOK_EMPTY;
    }
    return (flags & AT_SYMLINK_NOFOLLOW) != 0 ? HOOK_NOFOLLOW : HOOK_FOLLOW;
}

static unsigned
client_flags(int flags)
{
    return (flags & AT_SYMLINK_NOFOLLOW) != 0 ? CAUSEWAY_NOFOLLOW : 0;
}

/* ---- stat ---- */

struct stat_argument {
    unsigned flags;
    struct stat *stat;
};

static int
do_stat(struct causeway *fs, const struct target *target, const void *argument)
{
    const struct stat_argument *want = argument;

    return causeway_stat(fs, target->at, target->path, want->flags, want->stat);
}

static int
stat_fd(int fd, struct stat *stat)
{
    int rc = 0;
    struct file *file = files_get(fd, &rc);

    if (file != NULL) {
        rc = causeway_fstat(files_open_file(file), stat);
        files_put(file);
    }
    return rc;
}

/* 0 and *stat filled in; HOOK_KERNELS: the kernel's, by target->path; or a negative errno. */
static int
stat_at(int dirfd, const char *path, struct stat *stat, int flags, struct target *target)
{
    const struct stat_argument want = {.flags = client_flags(flags), .stat = stat};

    target->path = path;
    if ((flags & AT_EMPTY_PATH) != 0 && (path == NULL || path[0] == '\0')) {
        if (dirfd != AT_FDCWD) {
            return files_has(dirfd) ? stat_fd(dirfd, stat) : HOOK_KERNELS;
        }
        if (path_cwd_is_ours()) {
            path = ".";
        }
    }
    return hook_name(dirfd, path, follow_of(path, flags), do_stat, &want, target);
}

int
hook_fstatat(int dirfd, const char *path, struct stat *stat, int flags)
{
    struct target target;
    const int rc = stat_at(dirfd, path, stat, flags, &target);

    return rc == HOOK_KERNELS ? (int)RAW(newfstatat, dirfd, target.path, stat, flags)
                              : (int)hook_result(rc);
}

int
hook_stat(const char *path, struct stat *stat)
{
    return hook_fstatat(AT_FDCWD, path, stat, 0);
}

int
hook_lstat(const char *path, struct stat *stat)
{
    return hook_fstatat(AT_FDCWD, path, stat, AT_SYMLINK_NOFOLLOW);
}

int
hook_fstat(int fd, struct stat *stat)
{
    if (files_has(fd)) {
        return (int)hook_result(stat_fd(fd, stat));
    }
    if (hook_is_hidden(fd)) {
        return (int)hook_result(-EBADF);
    }
    return (int)RAW(newfstatat, fd, "", stat, AT_EMPTY_PATH);
}

/* The names of programs that were linked against glibc before 2.33. */
int
hook_xstat(int version, const char *path, struct stat *stat)
{
    (void)version;
    return hook_stat(path, stat);
}

int
hook_lxstat(int version, const char *path, struct stat *stat)
{
    (void)version;
    return hook_lstat(path, stat);
}

int
hook_fxstat(int version, int fd, struct stat *stat)
{
    (void)version;
    return hook_fstat(fd, stat);
}

int
hook_fxstatat(int version, int dirfd, const char *path, struct stat *stat, int flags)
{
    (void)version;
    return hook_fstatat(dirfd, path, stat, flags);
}

static struct statx_timestamp
statx_time(struct timespec time)
{
    return (struct statx_timestamp){.tv_sec = time.tv_sec, .tv_nsec = (uint32_t)time.tv_nsec};
}

int
hook_statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *statx)
{
    struct target target;
    struct stat stat;
    const int rc = stat_at(dirfd, path, &stat, flags, &target);

    if (rc == HOOK_KERNELS) {
        return (int)RAW(statx, dirfd, target.path, flags, mask, statx);
    }
    if (rc < 0) {
        return (int)hook_result(rc);
    }
    *statx = (struct statx){
        .stx_mask = STATX_BASIC_STATS,
        .stx_blksize = (uint32_t)stat.st_blksize,
        .stx_nlink = (uint32_t)stat.st_nlink,
        .stx_uid = stat.st_uid,
        .stx_gid = stat.st_gid,
        .stx_mode = (uint16_t)stat.st_mode,
        .stx_ino = stat.st_ino,
        .stx_size = (uint64_t)stat.st_size,
        .stx_blocks = (uint64_t)stat.st_blocks,
        .stx_atime = statx_time(stat.st_atim),
        .stx_mtime = statx_time(stat.st_mtim),
        .stx_ctime = statx_time(stat.st_ctim),
        .stx_rdev_major = major(stat.st_rdev),
        .stx_rdev_minor = minor(stat.st_rdev),
        .stx_dev_major = major(stat.st_dev),
        .stx_dev_minor = minor(stat.st_dev),
    };
    return 0;
}

/* ---- statfs ---- */

static int
fill_statfs(struct statfs *statfs)
{
    int rc = 0;
    struct causeway *fs = fs_get(&rc);
    struct causeway_statfs got;

    if (fs == NULL) {
        return rc;
    }
    rc = FS_CALL(causeway_statfs(fs, &got));
    if (rc == 0) {
        *statfs = (struct statfs){.f_type = STATFS_MAGIC,
                                  .f_flags = STATFS_VALID,
                                  .f_bsize = (long)got.block_bytes,
                                  .f_frsize = (long)got.block_bytes,
                                  .f_blocks = got.blocks,
                                  .f_bfree = got.blocks_free,
                                  .f_bavail = got.blocks_free,
                                  .f_files = got.files,
                                  .f_ffree = got.files_free,
                                  .f_namelen = got.name_bytes_max};
    }
    return rc;
}

int
hook_statfs(const char *path, struct statfs *statfs)
{
    struct target target;
    struct stat stat;
    const int rc = stat_at(AT_FDCWD, path, &stat, 0, &target);

    if (rc == HOOK_KERNELS) {
        return (int)RAW(statfs, target.path, statfs);
    }
    return (int)hook_result(rc == 0 ? fill_statfs(statfs) : rc);
}

int
hook_fstatfs(int fd, struct statfs *statfs)
{
    return files_has(fd) ? (int)hook_result(fill_statfs(statfs)) : (int)RAW(fstatfs, fd, statfs);
}

/* ---- access ---- */

struct access_argument {
    int mode;
    unsigned flags;
};

static int
do_access(struct causeway *fs, const struct target *target, const void *argument)
{
    const struct access_argument *want = argument;

    return causeway_access(fs, target->at, target->path, want->mode, want->flags);
}

int
hook_faccessat(int dirfd, const char *path, int mode, int flags)
{
    const struct access_argument want = {.mode = mode, .flags = client_flags(flags)};
    struct target target;

    const int rc = hook_name(dirfd, path, follow_of(path, flags), do_access, &want, &target);
    if (rc != HOOK_KERNELS) {
        return (int)hook_result(rc);
    }
    return flags != 0 ? (int)RAW(faccessat2, dirfd, target.path, mode, flags)
                      : (int)RAW(faccessat, dirfd, target.path, mode);
}

int
hook_access(const char *path, int mode)
{
    return hook_faccessat(AT_FDCWD, path, mode, 0);
}

int
hook_euidaccess(const char *path, int mode)
{
    return hook_faccessat(AT_FDCWD, path, mode, AT_EACCESS);
}

/* ---- make and remove ---- */

struct make_argument {
    mode_t mode;
    dev_t dev;
};

static int
do_mkdir(struct causeway *fs, const struct target *target, const void *argument)
{
    const struct make_argument *make = argument;

    return path_is_root(target) ? -EEXIST
                                : causeway_mkdir(fs, target->at, target->path, make->mode);
}

static int
do_mknod(struct causeway *fs, const struct target *target, const void *argument)
{
    const struct make_argument *make = argument;

    if (S_ISDIR(make->mode)) {
        return -EPERM;
    }
    return path_is_root(target)
               ? -EEXIST
               : causeway_mknod(fs, target->at, target->path, make->mode, make->dev);
}

int
hook_mkdirat(int dirfd, const char *path, mode_t mode)
{
    const struct make_argument make = {.mode = mode & 07777 & ~hook_umask_value};
    struct target target;
    const int rc = hook_name(dirfd, path, HOOK_NOFOLLOW, do_mkdir, &make, &target);

    return rc == HOOK_KERNELS ? (int)RAW(mkdirat, dirfd, target.path, mode) : (int)hook_result(rc);
}

int
hook_mkdir(const char *path, mode_t mode)
{
    return hook_mkdirat(AT_FDCWD, path, mode);
}

int
hook_mknodat(int dirfd, const char *path, mode_t mode, dev_t dev)
{
    const struct make_argument make = {
        .mode = (mode & ~07777u) | (mode & 07777 & ~hook_umask_value), .dev = dev};
    struct target target;
    const int rc = hook_name(dirfd, path, HOOK_NOFOLLOW, do_mknod, &make, &target);

    return rc == HOOK_KERNELS ? (int)RAW(mknodat, dirfd, target.path, mode, dev)
                              : (int)hook_result(rc);
}

int
hook_mknod(const char *path, mode_t mode, dev_t dev)
{
    return hook_mknodat(AT_FDCWD, path, mode, dev);
}

static int
do_unlink(struct causeway *fs, const struct target *target, const void *argument)
{
    (void)argument;
    return path_is_root(target) ? -EISDIR : causeway_unlink(fs, target->at, target->path);
}

static int
do_rmdir(struct causeway *fs, const struct target *target, const void *argument)
{
    (void)argument;
    return path_is_root(target) ? -EBUSY : causeway_rmdir(fs, target->at, target->path);
}

int
hook_unlinkat(int dirfd, const char *path, int flags)
{
    struct target target;

    if ((flags & ~AT_REMOVEDIR) != 0) {
        return (int)hook_result(-EINVAL);
    }
    const int rc = hook_name(dirfd, path, HOOK_NOFOLLOW,
                             (flags & AT_REMOVEDIR) != 0 ? do_rmdir : do_unlink, NULL, &target);
    return rc == HOOK_KERNELS ? (int)RAW(unlinkat, dirfd, target.path, flags)
                              : (int)hook_result(rc);
}

int
hook_unlink(const char *path)
{
    return hook_unlinkat(AT_FDCWD, path, 0);
}

int
hook_rmdir(const char *path)
{
    return hook_unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

/* ---- two names ---- */

/* Both targets: 1 both ours, 0 both the kernel's, else an errno. */
static int
resolve_both(int from_dirfd, const char *from, struct target *from_target, int to_dirfd,
             const char *to, struct target *to_target)
{
    const int rc = path_resolve(from_dirfd, from, from_target);
    const int rc2 = rc < 0 ? rc : path_resolve(to_dirfd, to, to_target);

    if (rc2 < 0) {
        return rc2;
    }
    return rc == rc2 ? rc : -EXDEV;
}

int
hook_renameat2(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags)
{
    struct target from_target;
    struct target to_target;
    int rc = is_empty(from) || is_empty(to)
                 ? -ENOENT
                 : resolve_both(from_dirfd, from, &from_target, to_dirfd, to, &to_target);

    if (rc == 0) {
        return (int)RAW(renameat2, from_dirfd, from_target.path, to_dirfd, to_target.path, flags);
    }
    if (rc > 0 && (path_is_root(&from_target) || path_is_root(&to_target))) {
        rc = -EBUSY;
    }
    struct causeway *fs = rc > 0 ? fs_get(&rc) : NULL;
    if (fs != NULL) {
        rc = FS_CALL(causeway_rename(fs, from_target.at, from_target.path, to_target.at,
                                     to_target.path, flags));
    }
    return (int)hook_result(rc);
}

int
hook_renameat(int from_dirfd, const char *from, int to_dirfd, const char *to)
{
    return hook_renameat2(from_dirfd, from, to_dirfd, to, 0);
}

int
hook_rename(const char *from, const char *to)
{
    return hook_renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int
hook_linkat(int from_dirfd, const char *from, int to_dirfd, const char *to, int flags)
{
    struct target from_target;
    struct target to_target;
    const int alias = (flags & AT_SYMLINK_FOLLOW) != 0 ? path_alias(from) : -1;

    if ((flags & ~(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH)) != 0) {
        return (int)hook_result(-EINVAL);
    }
    if ((is_empty(from) && (flags & AT_EMPTY_PATH) == 0) || is_empty(to)) {
        return (int)hook_result(-ENOENT);
    }
    if (alias >= 0) {
        from_dirfd = alias;
        from = "";
    }
    int rc = resolve_both(from_dirfd, from, &from_target, to_dirfd, to, &to_target);
    if (rc == 0) {
        return (int)RAW(linkat, from_dirfd, from_target.path, to_dirfd, to_target.path, flags);
    }
    if (rc > 0 && path_is_root(&to_target)) {
        rc = -EEXIST;
    }
    struct causeway *fs = rc > 0 ? fs_get(&rc) : NULL;
    if (fs != NULL) {
        rc = FS_CALL(causeway_link(fs, from_target.at, from_target.path, to_target.at,
                                   to_target.path,
                                   (flags & AT_SYMLINK_FOLLOW) != 0 ? 0 : CAUSEWAY_NOFOLLOW));
    }
    return (int)hook_result(rc);
}

int
hook_link(const char *from, const char *to)
{
    return hook_linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

static int
do_symlink(struct causeway *fs, const struct target *target, const void *argument)
{
    return path_is_root(target) ? -EEXIST
                                : causeway_symlink(fs, argument, target->at, target->path);
}

int
hook_symlinkat(const char *text, int dirfd, const char *path)
{
    struct target target;
    const int rc = hook_name(dirfd, path, HOOK_NOFOLLOW, do_symlink, text, &target);

    return rc == HOOK_KERNELS ? (int)RAW(symlinkat, text, dirfd, target.path)
                              : (int)hook_result(rc);
}

int
hook_symlink(const char *text, const char *path)
{
    return hook_symlinkat(text, AT_FDCWD, path);
}

struct readlink_argument {
    char *buffer;
    size_t bytes;
    ssize_t *got;
};

static int
do_readlink(struct causeway *fs, const struct target *target, const void *argument)
{
    const struct readlink_argument *to = argument;

    if (path_is_root(target)) {
        return -EINVAL;
    }
    *to->got = causeway_readlink(fs, target->at, target->path, to->buffer, to->bytes);
    return *to->got < 0 ? (int)*to->got : 0;
}

ssize_t
hook_readlinkat(int dirfd, const char *path, char *buffer, size_t bytes)
{
    ssize_t got = 0;
    const struct readlink_argument to = {.buffer = buffer, .bytes = bytes, .got = &got};
    struct target target;

    if (bytes == 0) {
        return hook_result(-EINVAL);
    }
    const int rc = hook_name(dirfd, path, is_empty(path) ? HOOK_EMPTY : HOOK_NOFOLLOW, do_readlink,
                             &to, &target);
    if (rc == HOOK_KERNELS) {
        return RAW(readlinkat, dirfd, target.path, buffer, bytes);
    }
    return rc < 0 ? hook_result(rc) : got;
}

ssize_t
hook_readlink(const char *path, char *buffer, size_t bytes)
{
    return hook_readlinkat(AT_FDCWD, path, buffer, bytes);
}

/* ---- attributes ---- */

struct set_argument {
    struct causeway_attr attr;
    unsigned flags;
};

static int
do_setattr(struct causeway *fs, const struct target *target, const void *argument)
{
    const struct set_argument *set = argument;

    return causeway_setattr(fs, target->at, target->path, set->flags, &set->attr);
}

static int
set_fd(int fd, const struct causeway_attr *attr)
{
    int rc = 0;
    struct file *file = files_get(fd, &rc);

    if (file != NULL) {
        rc = (files_flags(file) & O_PATH) != 0 ? -EBADF
                                               : causeway_fsetattr(files_open_file(file), attr);
        files_put(file);
    }
    return (int)hook_result(rc);
}

/* libc's way on kernels without fchmodat2(2): by a descriptor that a symlink cannot redirect. */
static int
kernel_fchmodat_nofollow(int dirfd, const char *path, mode_t mode)
{
    char link[32];
    struct stat stat;
    const int fd = (int)RAW(openat, dirfd, path, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);

    if (fd < 0) {
        return -1;
    }
    int rc = (int)RAW(newfstatat, fd, "", &stat, AT_EMPTY_PATH) == 0 ? 0 : -errno;
    if (rc == 0 && S_ISLNK(stat.st_mode)) {
        rc = -EOPNOTSUPP;
    }
    if (rc == 0) {
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        rc = RAW(chmod, link, mode) == 0 ? 0 : errno == ENOENT ? -EOPNOTSUPP : -errno;
    }
    (void)RAW(close, fd);
    return (int)hook_result(rc);
}

int
hook_fchmodat(int dirfd, const char *path, mode_t mode, int flags)
{
    const struct set_argument set = {.attr = {.valid = CAUSEWAY_SET_MODE, .mode = mode & 07777},
                                     .flags = client_flags(flags)};
    struct target target;

    if ((flags & ~AT_SYMLINK_NOFOLLOW) != 0) {
        return (int)hook_result(-EINVAL);
    }
    const int rc = hook_name(dirfd, path, follow_of(path, flags), do_setattr, &set, &target);
    if (rc != HOOK_KERNELS) {
        return (int)hook_result(rc);
    }
    return flags == 0 ? (int)RAW(fchmodat, dirfd, target.path, mode)
                      : kernel_fchmodat_nofollow(dirfd, target.path, mode);
}

int
hook_chmod(const char *path, mode_t mode)
{
    return hook_fchmodat(AT_FDCWD, path, mode, 0);
}

int
hook_lchmod(const char *path, mode_t mode)
{
    return hook_fchmodat(AT_FDCWD, path, mode, AT_SYMLINK_NOFOLLOW);
}

int
hook_fchmod(int fd, mode_t mode)
{
    const struct causeway_attr attr = {.valid = CAUSEWAY_SET_MODE, .mode = mode & 07777};

    return files_has(fd) ? set_fd(fd, &attr) : (int)RAW(fchmod, fd, mode);
}

static struct causeway_attr
owner_attr(uid_t uid, gid_t gid)
{
    return (struct causeway_attr){.valid = (uid != (uid_t)-1 ? CAUSEWAY_SET_UID : 0u) |
                                           (gid != (gid_t)-1 ? CAUSEWAY_SET_GID : 0u),
                                  .uid = uid,
                                  .gid = gid};
}

int
hook_fchown(int fd, uid_t uid, gid_t gid)
{
    const struct causeway_attr attr = owner_attr(uid, gid);

    return files_has(fd) ? set_fd(fd, &attr) : (int)RAW(fchown, fd, uid, gid);
}

int
hook_fchownat(int dirfd, const char *path, uid_t uid, gid_t gid, int flags)
{
    const struct set_argument set = {.attr = owner_attr(uid, gid), .flags = client_flags(flags)};
    struct target target;

    const int rc = hook_name(dirfd, path, follow_of(path, flags), do_setattr, &set, &target);
    return rc == HOOK_KERNELS ? (int)RAW(fchownat, dirfd, target.path, uid, gid, flags)
                              : (int)hook_result(rc);
}

int
hook_chown(const char *path, uid_t uid, gid_t gid)
{
    return hook_fchownat(AT_FDCWD, path, uid, gid, 0);
}

int
hook_lchown(const char *path, uid_t uid, gid_t gid)
{
    return hook_fchownat(AT_FDCWD, path, uid, gid, AT_SYMLINK_NOFOLLOW);
}

/* What utimensat(2)'s times ask for; false: a nonsense value. */
static bool
times_attr(const struct timespec times[2], struct causeway_attr *attr)
{
    static const uint32_t now[2] = {CAUSEWAY_SET_ATIME_NOW, CAUSEWAY_SET_MTIME_NOW};
    static const uint32_t given[2] = {CAUSEWAY_SET_ATIME, CAUSEWAY_SET_MTIME};

    *attr = (struct causeway_attr){0};
    for (int i = 0; i < 2; i++) {
        if (times == NULL || times[i].tv_nsec == UTIME_NOW) {
            attr->valid |= now[i];
        } else if (times[i].tv_nsec != UTIME_OMIT) {
            if (times[i].tv_nsec < 0 || times[i].tv_nsec > 999999999) {
                return false;
            }
            attr->valid |= given[i];
            *(i == 0 ? &attr->atime : &attr->mtime) = times[i];
        }
    }
    return true;
}

int
hook_futimens(int fd, const struct timespec times[2])
{
    struct causeway_attr attr;

    if (!files_has(fd)) {
        return (int)RAW(utimensat, fd, NULL, times, 0);
    }
    return times_attr(times, &attr) ? set_fd(fd, &attr) : (int)hook_result(-EINVAL);
}

int
hook_utimensat(int dirfd, const char *path, const struct timespec times[2], int flags)
{
    struct set_argument set = {.flags = client_flags(flags)};
    struct target target;

    if (path == NULL) {
        return (int)hook_result(-EINVAL); /* as libc: the kernel would take @dirfd itself */
    }
    if (!times_attr(times, &set.attr)) {
        return (int)hook_result(-EINVAL);
    }
    const int rc = hook_name(dirfd, path, follow_of(path, flags), do_setattr, &set, &target);
    return rc == HOOK_KERNELS ? (int)RAW(utimensat, dirfd, target.path, times, flags)
                              : (int)hook_result(rc);
}

/* Microseconds to nanoseconds; out of range stays out of range. */
static const struct timespec *
from_timeval(const struct timeval times[2], struct timespec out[2])
{
    if (times == NULL) {
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        const bool is_good = times[i].tv_usec >= 0 && times[i].tv_usec < 1000000;

        out[i].tv_sec = times[i].tv_sec;
        out[i].tv_nsec = is_good ? times[i].tv_usec * 1000 : -1;
    }
    return out;
}

int
hook_utimes(const char *path, const struct timeval times[2])
{
    struct timespec spec[2];

    return hook_utimensat(AT_FDCWD, path, from_timeval(times, spec), 0);
}

int
hook_lutimes(const char *path, const struct timeval times[2])
{
    struct timespec spec[2];

    return hook_utimensat(AT_FDCWD, path, from_timeval(times, spec), AT_SYMLINK_NOFOLLOW);
}

int
hook_futimes(int fd, const struct timeval times[2])
{
    struct timespec spec[2];

    return hook_futimens(fd, from_timeval(times, spec));
}

int
hook_futimesat(int dirfd, const char *path, const struct timeval times[2])
{
    struct timespec spec[2];

    return path == NULL ? hook_futimens(dirfd, from_timeval(times, spec))
                        : hook_utimensat(dirfd, path, from_timeval(times, spec), 0);
}

int
hook_utime(const char *path, const struct utimbuf *times)
{
    const struct timespec spec[2] = {{.tv_sec = times != NULL ? times->actime : 0},
                                     {.tv_sec = times != NULL ? times->modtime : 0}};

    return hook_utimensat(AT_FDCWD, path, times != NULL ? spec : NULL, 0);
}

mode_t
hook_umask(mode_t mask)
{
    hook_umask_value = mask & 0777;
    return (mode_t)RAW(umask, mask);
}

/* ---- extended attributes: there are none ---- */

static int
do_no_xattr(struct causeway *fs, const struct target *target, const void *argument)
{
    const unsigned *flags = argument;
    struct stat stat;
    const int rc = causeway_stat(fs, target->at, target->path, *flags, &stat);

    return rc == 0 ? -EOPNOTSUPP : rc;
}

/* HOOK_KERNELS, or why not: EOPNOTSUPP for ours. */
static int
no_xattr(const char *path, unsigned flags, struct target *target)
{
    return hook_name(AT_FDCWD, path, flags == 0 ? HOOK_FOLLOW : HOOK_NOFOLLOW, do_no_xattr, &flags,
                     target);
}

ssize_t
hook_getxattr(const char *path, const char *name, void *value, size_t bytes)
{
    struct target target;
    const int rc = no_xattr(path, 0, &target);

    return rc == HOOK_KERNELS ? RAW(getxattr, target.path, name, value, bytes) : hook_result(rc);
}

ssize_t
hook_lgetxattr(const char *path, const char *name, void *value, size_t bytes)
{
    struct target target;
    const int rc = no_xattr(path, CAUSEWAY_NOFOLLOW, &target);

    return rc == HOOK_KERNELS ? RAW(lgetxattr, target.path, name, value, bytes) : hook_result(rc);
}

ssize_t
hook_fgetxattr(int fd, const char *name, void *value, size_t bytes)
{
    return files_has(fd) ? hook_result(-EOPNOTSUPP) : RAW(fgetxattr, fd, name, value, bytes);
}

ssize_t
hook_listxattr(const char *path, char *list, size_t bytes)
{
    struct target target;
    const int rc = no_xattr(path, 0, &target);

    return rc == HOOK_KERNELS ? RAW(listxattr, target.path, list, bytes) : hook_result(rc);
}

ssize_t
hook_llistxattr(const char *path, char *list, size_t bytes)
{
    struct target target;
    const int rc = no_xattr(path, CAUSEWAY_NOFOLLOW, &target);

    return rc == HOOK_KERNELS ? RAW(llistxattr, target.path, list, bytes) : hook_result(rc);
}

ssize_t
hook_flistxattr(int fd, char *list, size_t bytes)
{
    return files_has(fd) ? hook_result(-EOPNOTSUPP) : RAW(flistxattr, fd, list, bytes);
}

int
hook_setxattr(const char *path, const char *name, const void *value, size_t bytes, int flags)
{
    struct target target;
    const int rc = no_xattr(path, 0, &target);

    return (int)(rc == HOOK_KERNELS ? RAW(setxattr, target.path, name, value, bytes, flags)
                                    : hook_result(rc));
}

int
hook_lsetxattr(const char *path, const char *name, const void *value, size_t bytes, int flags)
{
    struct target target;
    const int rc = no_xattr(path, CAUSEWAY_NOFOLLOW, &target);

    return (int)(rc == HOOK_KERNELS ? RAW(lsetxattr, target.path, name, value, bytes, flags)
                                    : hook_result(rc));
}

int
hook_fsetxattr(int fd, const char *name, const void *value, size_t bytes, int flags)
{
    return (int)(files_has(fd) ? hook_result(-EOPNOTSUPP)
                               : RAW(fsetxattr, fd, name, value, bytes, flags));
}

int
hook_removexattr(const char *path, const char *name)
{
    struct target target;
    const int rc = no_xattr(path, 0, &target);

    return (int)(rc == HOOK_KERNELS ? RAW(removexattr, target.path, name) : hook_result(rc));
}

int
hook_lremovexattr(const char *path, const char *name)
{
    struct target target;
    const int rc = no_xattr(path, CAUSEWAY_NOFOLLOW, &target);

    return (int)(rc == HOOK_KERNELS ? RAW(lremovexattr, target.path, name) : hook_result(rc));
}

int
hook_fremovexattr(int fd, const char *name)
{
    return (int)(files_has(fd) ? hook_result(-EOPNOTSUPP) : RAW(fremovexattr, fd, name));
}
