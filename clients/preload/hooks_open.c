/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hooks of descriptors: open, close, dup, fcntl, locks.
 */
#include "clients/preload/hooks.h"

#include <linux/close_range.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>

#define OFD_OWNER (UINT64_C(1) << 63) /* owners of locks that belong to a description */

/* ---- open ---- */

static bool
wants_mode(int flags)
{
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

static int
kernel_open(int dirfd, const char *path, int flags, mode_t mode)
{
    const int fd = (int)RAW_CANCELLABLE(openat, dirfd, path, flags, mode);

    if (__builtin_expect(fs_depth != 0, 0)) {
        return fs_claim(fd);
    }
    if (__builtin_expect(fd >= 0 && files_has(fd), 0)) {
        files_forget(fd); /* the kernel reused a number that was closed behind our back */
    }
    return fd;
}

/* A second description of the open file @fd, as open("/dev/fd/N") makes one. */
static int
open_alias(int fd, int flags)
{
    int rc = 0;
    struct file *file = files_peek(fd);
    struct causeway_file *opened = NULL;
    struct causeway *fs = fs_get(&rc);

    if (file == NULL || fs == NULL) {
        return file == NULL ? -EBADF : rc;
    }
    rc = FS_CALL(causeway_open_fid(fs, &file->description->fid, flags, &opened));
    files_put(file);
    return rc != 0 ? rc : files_install(opened, flags, NULL);
}

static int
open_target(const struct target *target, int flags, mode_t mode)
{
    int rc = 0;
    struct causeway *fs = fs_get(&rc);
    struct causeway_file *opened = NULL;
    char full[PATH_MAX];

    if (fs == NULL) {
        return rc;
    }
    rc = FS_CALL(
        causeway_open(fs, target->at, target->path, flags, mode & ~hook_umask_value, &opened));
    if (rc != 0) {
        return rc;
    }
    if (__builtin_expect(S_ISDIR(causeway_file_mode(opened)), 0)) {
        path_full(target, full);
        return files_install(opened, flags, full);
    }
    return files_install(opened, flags, NULL);
}

static int
open_any(int dirfd, const char *path, int flags, mode_t mode)
{
    struct target target;
    const int alias = path_fd_alias(path);

    if (__builtin_expect(alias >= 0 && files_has(alias), 0)) {
        return (int)hook_result(open_alias(alias, flags));
    }
    const int rc = path_resolve(dirfd, path, &target);
    if (rc == 0) {
        return kernel_open(dirfd, target.path, flags, mode);
    }
    return (int)hook_result(rc < 0 ? rc : open_target(&target, flags, mode));
}

int
hook_open(const char *path, int flags, ...)
{
    mode_t mode = 0;

    if (wants_mode(flags)) {
        va_list args;

        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
    }
    return open_any(AT_FDCWD, path, flags, mode);
}

int
hook_openat(int dirfd, const char *path, int flags, ...)
{
    mode_t mode = 0;

    if (wants_mode(flags)) {
        va_list args;

        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
    }
    return open_any(dirfd, path, flags, mode);
}

int
hook_creat(const char *path, mode_t mode)
{
    return open_any(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* ---- close ---- */

int
hook_close(int fd)
{
    if (files_has(fd)) {
        return files_close(fd);
    }
    if (__builtin_expect(fs_is_internal(fd), 0)) {
        if (fs_depth == 0) {
            return (int)hook_result(-EBADF); /* not the program's */
        }
        fs_unclaim(fd);
    }
    return (int)RAW_CANCELLABLE(close, fd);
}

static void
close_one(int fd)
{
    (void)files_close(fd);
}

/* The kernel's close_range() of what lies between the client's own descriptors. */
static int
close_kernel_range(unsigned first, unsigned last, int flags)
{
    unsigned from = first;

    for (unsigned fd = first; fd <= last && fd < FILES_FD_MAX; fd++) {
        if (!fs_is_internal((int)fd)) {
            continue;
        }
        if (fd > from && RAW(close_range, from, fd - 1, flags) != 0) {
            return -1;
        }
        from = fd + 1;
    }
    return from <= last ? (int)RAW(close_range, from, last, flags) : 0;
}

int
hook_close_range(unsigned first, unsigned last, int flags)
{
    if (first > last) {
        return (int)hook_result(-EINVAL);
    }
    if (((unsigned)flags & CLOSE_RANGE_CLOEXEC) == 0) {
        files_each(first, last, close_one);
    }
    return close_kernel_range(first, last, flags);
}

void
hook_closefrom(int first)
{
    (void)hook_close_range((unsigned)(first < 0 ? 0 : first), ~0u, 0);
}

/* ---- dup ---- */

/* The kernel has made @to a copy of @from. */
static int
copied(int from, int to)
{
    if (to < 0) {
        return to;
    }
    if (files_has(from)) {
        files_copied(from, to);
    }
    return __builtin_expect(fs_depth != 0, 0) ? fs_claim(to) : to;
}

int
hook_dup(int fd)
{
    return copied(fd, (int)RAW(dup, fd));
}

int
hook_dup3(int from, int to, int flags)
{
    if (__builtin_expect(fs_is_internal(to) || fs_is_internal(from), 0) && fs_depth == 0) {
        return (int)hook_result(-EBADF);
    }
    const int rc = (int)RAW(dup3, from, to, flags);

    if (rc >= 0) {
        files_forget(to);
    }
    return copied(from, rc);
}

int
hook_dup2(int from, int to)
{
    if (from == to) {
        return RAW(fcntl, from, F_GETFD) < 0 ? -1 : to;
    }
    return hook_dup3(from, to, 0);
}

/* ---- locks ---- */

/* The range of a struct flock, whose start may be relative. */
static int
lock_range(struct file *file, const struct flock *flock, struct causeway_lock *lock)
{
    struct stat stat = {0};
    int64_t start = flock->l_start;

    if (flock->l_whence == SEEK_CUR) {
        start += (int64_t)file->description->offset;
    } else if (flock->l_whence == SEEK_END) {
        const int rc = FS_CALL(causeway_fstat(file->open_file, &stat));

        if (rc != 0) {
            return rc;
        }
        start += stat.st_size;
    } else if (flock->l_whence != SEEK_SET) {
        return -EINVAL;
    }
    int64_t last = flock->l_len == 0 ? INT64_MAX : start + flock->l_len - 1;
    if (flock->l_len < 0) {
        last = start - 1;
        start += flock->l_len;
    }
    if (start < 0 || last < start) {
        return -EINVAL;
    }
    lock->start = (uint64_t)start;
    lock->end = flock->l_len == 0 ? UINT64_MAX : (uint64_t)last;
    lock->type = flock->l_type;
    lock->pid = (pid_t)RAW(getpid, 0);
    return flock->l_type == F_RDLCK || flock->l_type == F_WRLCK || flock->l_type == F_UNLCK
               ? 0
               : -EINVAL;
}

/* Takes a lock, waiting by asking again: from 50 us up to 5 ms apart. */
static int
take_lock(struct file *file, struct causeway_lock *lock, bool wait)
{
    struct timespec pause = {.tv_nsec = 50000};
    int rc = 0;

    file->has_locks = true;
    while ((rc = FS_CALL(causeway_lock(file->open_file, lock, false))) == -EAGAIN && wait) {
        if (RAW_CANCELLABLE(nanosleep, &pause, NULL) != 0 && errno == EINTR) {
            return -EINTR;
        }
        pause.tv_nsec = pause.tv_nsec < 2500000 ? 2 * pause.tv_nsec : 5000000;
    }
    return rc;
}

static int
lock_command(struct file *file, int command, struct flock *flock)
{
    const bool is_ofd = command == F_OFD_GETLK || command == F_OFD_SETLK || command == F_OFD_SETLKW;
    const bool is_test = command == F_GETLK || command == F_OFD_GETLK;
    struct causeway_lock lock = {.owner =
                                     is_ofd ? OFD_OWNER | file->index : (uint64_t)RAW(getpid, 0)};
    int rc = lock_range(file, flock, &lock);

    if (rc != 0) {
        return rc;
    }
    if (!is_test) {
        return take_lock(file, &lock, command == F_SETLKW || command == F_OFD_SETLKW);
    }
    rc = FS_CALL(causeway_lock(file->open_file, &lock, true));
    if (rc == 0) {
        flock->l_type = (short)lock.type;
        if (lock.type != F_UNLCK) {
            flock->l_whence = SEEK_SET;
            flock->l_start = (off_t)lock.start;
            flock->l_len = lock.end == UINT64_MAX ? 0 : (off_t)(lock.end - lock.start + 1);
            flock->l_pid = lock.pid;
        }
    }
    return rc;
}

int
hook_flock(int fd, int operation)
{
    int rc = 0;

    if (!files_has(fd)) {
        return (int)RAW_CANCELLABLE(flock, fd, operation);
    }
    struct file *file = files_get(fd, &rc);
    if (file == NULL) {
        return (int)hook_result(rc);
    }
    /* A range that fcntl() locks cannot name, so that the two kinds do not meet. */
    struct causeway_lock lock = {.owner = OFD_OWNER | file->index,
                                 .start = UINT64_MAX - 1,
                                 .end = UINT64_MAX - 1,
                                 .pid = (pid_t)RAW(getpid, 0)};
    switch (operation & ~LOCK_NB) {
    case LOCK_SH:
        lock.type = F_RDLCK;
        break;
    case LOCK_EX:
        lock.type = F_WRLCK;
        break;
    case LOCK_UN:
        lock.type = F_UNLCK;
        break;
    default:
        rc = -EINVAL;
        break;
    }
    if (rc == 0) {
        rc = take_lock(file, &lock, (operation & LOCK_NB) == 0);
    }
    files_put(file);
    return (int)hook_result(rc == -EAGAIN ? -EWOULDBLOCK : rc);
}

/* ---- fcntl and ioctl ---- */

static int
set_flags(struct file *file, int flags)
{
    const unsigned changeable = O_APPEND | O_NONBLOCK | O_DIRECT | O_NOATIME;
    atomic_uint *at = &file->description->flags;

    atomic_store(at, (atomic_load(at) & ~changeable) | ((unsigned)flags & changeable));
    return 0;
}

static int
fcntl_ours(int fd, int command, void *argument)
{
    int rc = 0;

    switch (command) {
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
        return copied(fd, (int)RAW(fcntl, fd, command, argument));
    case F_SETFD:
        files_changed(fd);
        return (int)RAW(fcntl, fd, command, argument);
    case F_GETFD:
        return (int)RAW(fcntl, fd, command, argument);
    default:
        break;
    }
    struct file *file = files_get(fd, &rc);
    if (file == NULL) {
        return (int)hook_result(rc);
    }
    switch (command) {
    case F_GETFL:
        rc = (int)atomic_load(&file->description->flags);
        break;
    case F_SETFL:
        rc = set_flags(file, (int)(intptr_t)argument);
        break;
    case F_GETLK:
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_GETLK:
    case F_OFD_SETLK:
    case F_OFD_SETLKW:
        rc = argument == NULL ? -EFAULT : lock_command(file, command, argument);
        break;
    default:
        rc = -EINVAL;
        break;
    }
    files_put(file);
    return (int)hook_result(rc);
}

int
hook_fcntl(int fd, int command, ...)
{
    va_list args;

    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    if (files_has(fd)) {
        return fcntl_ours(fd, command, argument);
    }
    if (__builtin_expect(fs_is_internal(fd), 0) && fs_depth == 0) {
        return (int)hook_result(-EBADF);
    }
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) {
        return copied(fd, (int)RAW(fcntl, fd, command, argument));
    }
    return (int)RAW_CANCELLABLE(fcntl, fd, command, argument);
}

static int
bytes_left(struct file *file, int *left_out)
{
    struct stat stat;
    const int rc = FS_CALL(causeway_fstat(file->open_file, &stat));

    if (rc == 0) {
        const int64_t left = stat.st_size - (int64_t)file->description->offset;

        *left_out = left < 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left;
    }
    return rc;
}

int
hook_ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    int rc = 0;

    va_start(args, request);
    void *argument = va_arg(args, void *);
    va_end(args);
    if (files_has(fd) && (request == FIOCLEX || request == FIONCLEX)) {
        files_changed(fd);
        return (int)RAW(ioctl, fd, request, argument);
    }
    if (!files_has(fd)) {
        return (int)RAW(ioctl, fd, request, argument);
    }
    if (request == FIONBIO) {
        return 0;
    }
    if (request != FIONREAD || argument == NULL) {
        return (int)hook_result(-ENOTTY);
    }
    struct file *file = files_get(fd, &rc);
    if (file != NULL) {
        rc = bytes_left(file, argument);
        files_put(file);
    }
    return (int)hook_result(rc);
}
