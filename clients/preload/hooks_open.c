/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hooks of descriptors: open, close, dup, fcntl, locks.
 */
#include "clients/preload/hooks.h"
#include "clients/preload/spawned.h"

#include <linux/close_range.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>

#define LOCK_PAUSE_MIN_NS 50000
#define LOCK_PAUSE_MAX_NS 5000000
#define KERNEL_LARGEFILE  0100000u /* which libc says is 0, and F_GETFL gives */

/* ---- open ---- */

static bool
wants_mode(int flags)
{
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

static int
kernel_open(int dirfd, const char *path, int flags, mode_t mode)
{
    const int fd = HOOK_CLAIMED(RAW_CANCELLABLE(openat, dirfd, path, flags, mode));

    if (__builtin_expect(fd >= 0 && files_has(fd), 0)) {
        files_forget(fd);
    }
    return fd;
}

static int
truncate_opened(struct causeway_file *opened)
{
    const struct causeway_attr attr = {.valid = CAUSEWAY_SET_SIZE};
    const int rc = causeway_fsetattr(opened, &attr);

    if (rc != 0) {
        causeway_close(opened);
    }
    return rc;
}

/* A second description of the open file @fd, as open("/dev/fd/N") makes one. */
static int
open_alias(int fd, int flags)
{
    int rc = 0;
    struct file *file = files_peek(fd);
    struct causeway_file *opened = NULL;
    struct causeway *fs = fs_get(&rc);

    if (file == NULL) {
        return -EBADF;
    }
    if (fs == NULL) {
        files_put(file);
        return rc;
    }
    if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) {
        rc = -EEXIST;
    } else if ((flags & O_DIRECTORY) != 0 && !S_ISDIR(file->description->mode)) {
        rc = -ENOTDIR;
    } else {
        rc = causeway_open_fid(fs, &file->description->fid, flags, &opened);
    }
    if (rc == 0 && (flags & O_TRUNC) != 0 && (flags & O_ACCMODE) != O_RDONLY) {
        rc = truncate_opened(opened);
    }
    files_put(file);
    return rc != 0 ? rc : files_install(opened, flags, NULL);
}

/*
 * open(2) with O_CREAT of a name with '/' behind it: what leads there is looked at first, and then
 * it is EISDIR whatever is there.
 */
static int
create_with_slash(struct causeway *fs, const struct target *target)
{
    const size_t length = strlen(target->path);
    struct causeway_fid fid;
    size_t end = length;
    char parent[PATH_MAX];

    if (length == 0 || target->path[length - 1] != '/' || length >= sizeof(parent)) {
        return 0;
    }
    while (end > 0 && target->path[end - 1] == '/') {
        end--;
    }
    while (end > 0 && target->path[end - 1] != '/') {
        end--;
    }
    memcpy(parent, target->path, end);
    parent[end] = '\0';
    const int rc = FS_CALL(causeway_lookup(fs, target->at, parent, 0, &fid, NULL));
    return rc != 0 ? rc : -EISDIR;
}

/* Returns the descriptor, a negative errno, or -EXDEV with target->path to open outside. */
static int
open_target(struct target *target, int flags, mode_t mode)
{
    const bool is_new = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
    int rc = 0;
    struct causeway *fs = fs_get(&rc);
    struct causeway_file *opened = NULL;
    char hint[PATH_MAX];

    if (fs == NULL) {
        return rc;
    }
    if ((flags & O_CREAT) != 0 && (rc = create_with_slash(fs, target)) != 0) {
        return rc;
    }
    rc = FS_CALL(
        causeway_open(fs, target->at, target->path, flags, mode & ~hook_umask_value, &opened));
    if (__builtin_expect(rc == -EXDEV, 0)) {
        rc = path_outside(fs, target, (flags & O_NOFOLLOW) == 0 && !is_new);
        return rc == 0 ? -EXDEV : rc;
    }
    if (rc != 0) {
        return rc;
    }
    if (__builtin_expect(S_ISDIR(causeway_file_mode(opened)), 0)) {
        path_hint(target, hint);
        return files_install(opened, flags, hint);
    }
    return files_install(opened, flags, NULL);
}

static int
open_any(int dirfd, const char *path, int flags, mode_t mode)
{
    struct target target;
    const int alias = (flags & O_NOFOLLOW) == 0 ? path_alias(path) : -1;

    if (__builtin_expect(alias >= 0, 0)) {
        return (int)hook_result(open_alias(alias, flags));
    }
    int rc = path_resolve(dirfd, path, &target);
    if (rc > 0 && path[0] == '\0') {
        rc = -ENOENT;
    }
    if (rc > 0) {
        if (!__libc_single_threaded) {
            pthread_testcancel();
        }
        rc = open_target(&target, flags, mode);
        if (rc != -EXDEV) {
            return (int)hook_result(rc);
        }
        rc = 0;
    }
    return rc == 0 ? kernel_open(dirfd, target.path, flags, mode) : (int)hook_result(rc);
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
    if (__builtin_expect(fs_mark_of(fd) != FS_PROGRAMS, 0)) {
        if (fs_depth == 0) {
            return (int)hook_result(-EBADF); /* not the program's */
        }
        fs_mark_set(fd, FS_PROGRAMS);
    } else if (__builtin_expect(spawn_child != NULL && fs_depth == 0, 0)) {
        files_forget(fd);
    }
    return (int)RAW_CANCELLABLE(close, fd);
}

/* The kernel's close_range() of what lies between the client's own descriptors. */
static int
close_kernel_range(unsigned first, unsigned last, int flags)
{
    unsigned from = first;

    for (unsigned fd = first; fd <= last && fd < FS_MARKS; fd++) {
        if (fs_mark_of((int)fd) != FS_CLIENTS) {
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
    if (first > last ||
        ((unsigned)flags & ~(unsigned)(CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE)) != 0) {
        return (int)hook_result(-EINVAL);
    }
    if (((unsigned)flags & CLOSE_RANGE_CLOEXEC) == 0) {
        files_close_range(first, last);
    } else {
        files_cloexec_range(first, last);
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
copied(int from, int to, bool is_cloexec)
{
    if (to < 0) {
        return to;
    }
    if (files_has(to)) {
        files_forget(to);
    }
    if (files_has(from) || spawn_child != NULL) {
        files_copied(from, to, is_cloexec);
    }
    return __builtin_expect(fs_depth != 0, 0) ? fs_claim(to) : to;
}

int
hook_dup(int fd)
{
    return hook_is_hidden(fd) ? (int)hook_result(-EBADF) : copied(fd, (int)RAW(dup, fd), false);
}

int
hook_dup3(int from, int to, int flags)
{
    if (hook_is_hidden(from) || (fs_mark_of(to) == FS_CLIENTS && fs_depth == 0)) {
        return (int)hook_result(-EBADF);
    }
    const int kept = files_replace_begin(to);
    if (kept < -1) {
        return (int)hook_result(kept);
    }
    const int rc = (int)RAW(dup3, from, to, flags);
    files_replace_end(to, kept, rc >= 0);
    return copied(from, rc, (flags & O_CLOEXEC) != 0);
}

int
hook_dup2(int from, int to)
{
    if (from == to) {
        return hook_is_hidden(from)            ? (int)hook_result(-EBADF)
               : RAW(fcntl, from, F_GETFD) < 0 ? -1
                                               : to;
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
        const int rc = causeway_fstat(files_open_file(file), &stat);

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

/*
 * Takes a lock, waiting by asking again: from 50 us up to 5 ms apart. Handlers of signals run
 * meanwhile; one that does not ask for restarting ends it.
 */
static int
take_lock(struct file *file, struct causeway_lock *lock, bool wait)
{
    const unsigned interrupts = signals_interrupts;
    struct timespec pause = {.tv_nsec = LOCK_PAUSE_MIN_NS};
    int rc = 0;

    file->has_locks = true;
    while ((rc = causeway_lock(files_open_file(file), lock, false)) == -EAGAIN && wait) {
        fs_leave();
        (void)RAW_CANCELLABLE(nanosleep, &pause, NULL);
        fs_enter();
        if (signals_interrupts != interrupts) {
            return -EINTR;
        }
        pause.tv_nsec =
            2 * pause.tv_nsec < LOCK_PAUSE_MAX_NS ? 2 * pause.tv_nsec : LOCK_PAUSE_MAX_NS;
    }
    return rc;
}

/* Locks of a description end with the process that took them, as it is the servers' client. So one
 * that other processes have too cannot be locked. */
static bool
is_shared(const struct file *file)
{
    return atomic_load(&file->description->reference_count) > 1;
}

/* As fcntl(2): a lock to read needs a file that can be read. */
static bool
may_lock(const struct file *file, int type)
{
    const unsigned access = files_flags(file) & O_ACCMODE;

    return type == F_UNLCK || access == O_RDWR || access == (type == F_RDLCK ? O_RDONLY : O_WRONLY);
}

static int
lock_command(struct file *file, int command, struct flock *flock)
{
    const bool is_ofd = command == F_OFD_GETLK || command == F_OFD_SETLK || command == F_OFD_SETLKW;
    const bool is_test = command == F_GETLK || command == F_OFD_GETLK;
    struct causeway_lock lock = {.owner = is_ofd ? FILES_OFD_OWNER | files_index(file)
                                                 : (uint64_t)RAW(getpid, 0)};
    int rc = lock_range(file, flock, &lock);

    if (rc == 0 && is_ofd && flock->l_pid != 0) {
        rc = -EINVAL;
    }
    if (rc != 0) {
        return rc;
    }
    if (!is_test) {
        if (!may_lock(file, lock.type)) {
            return -EBADF;
        }
        if (is_ofd && lock.type != F_UNLCK && is_shared(file)) {
            return -ENOLCK;
        }
        return take_lock(file, &lock, command == F_SETLKW || command == F_OFD_SETLKW);
    }
    rc = causeway_lock(files_open_file(file), &lock, true);
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
    struct causeway_lock lock = {.owner = FILES_OFD_OWNER | files_index(file),
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
    if (rc == 0 && lock.type != F_UNLCK && is_shared(file)) {
        rc = -ENOLCK;
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

    if ((files_flags(file) & O_PATH) != 0) {
        return -EBADF;
    }
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
        return copied(fd, (int)RAW(fcntl, fd, command, argument), command == F_DUPFD_CLOEXEC);
    case F_SETFD:
        files_cloexec_set(fd, ((intptr_t)argument & FD_CLOEXEC) != 0);
        return (int)RAW(fcntl, fd, command, argument);
    case F_GETFD:
    case F_GETOWN:
    case F_SETOWN:
    case F_GETSIG:
    case F_SETSIG:
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
        rc = (int)(files_flags(file) | ((files_flags(file) & O_PATH) == 0 ? KERNEL_LARGEFILE : 0));
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

/* A process group is a negative number, which the plain command could not tell from an errno. */
static int
get_owner(int fd)
{
    struct f_owner_ex owner;

    if (RAW(fcntl, fd, F_GETOWN_EX, &owner) != 0) {
        return -1;
    }
    return owner.type == F_OWNER_PGRP ? -owner.pid : owner.pid;
}

int
hook_lockf(int fd, int command, off_t bytes)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_len = bytes};

    switch (command) {
    case F_ULOCK:
        lock.l_type = F_UNLCK;
        return hook_fcntl(fd, F_SETLK, &lock);
    case F_LOCK:
        return hook_fcntl(fd, F_SETLKW, &lock);
    case F_TLOCK:
        return hook_fcntl(fd, F_SETLK, &lock);
    case F_TEST:
        lock.l_type = F_RDLCK;
        if (hook_fcntl(fd, F_GETLK, &lock) < 0) {
            return -1;
        }
        return lock.l_type == F_UNLCK || lock.l_pid == (pid_t)RAW(getpid, 0)
                   ? 0
                   : (int)hook_result(-EACCES);
    default:
        return (int)hook_result(-EINVAL);
    }
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
    if (hook_is_hidden(fd)) {
        return (int)hook_result(-EBADF);
    }
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) {
        return copied(fd, (int)RAW(fcntl, fd, command, argument), command == F_DUPFD_CLOEXEC);
    }
    if (command == F_GETOWN) {
        return get_owner(fd);
    }
    if (command == F_SETLKW || command == F_OFD_SETLKW) {
        return (int)RAW_CANCELLABLE(fcntl, fd, command, argument);
    }
    return (int)RAW(fcntl, fd, command, argument);
}

static int
bytes_left(struct file *file, int *left_out)
{
    struct stat stat;
    const int rc = causeway_fstat(files_open_file(file), &stat);

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
    if (!files_has(fd)) {
        return (int)RAW(ioctl, fd, request, argument);
    }
    if (request == FIOCLEX || request == FIONCLEX) {
        files_cloexec_set(fd, request == FIOCLEX);
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
