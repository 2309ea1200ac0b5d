/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * syscall(2) by number, for programs that call the kernel so: above all for those that close or
 * copy descriptors this way, which our tables must hear of. What is no file's goes to the kernel.
 */
#include "clients/preload/hooks.h"

#include <fcntl.h>
#include <string.h>
#include <utime.h>

/* getcwd(2) gives the length. */
static long
syscall_getcwd(char *buffer, size_t bytes)
{
    return hook_getcwd(buffer, bytes) != NULL ? (long)strlen(buffer) + 1 : -1;
}

/* utimensat(2) without a path is futimens(3). */
static long
syscall_utimensat(int dirfd, const char *path, const struct timespec *times, int flags)
{
    return path == NULL ? hook_futimens(dirfd, times) : hook_utimensat(dirfd, path, times, flags);
}

/* preadv2(2) and pwritev2(2) have an offset in two halves, of which the first is all of it. */
static long
syscall_preadv2(long a, long b, long c, long d, long f)
{
    return hook_preadv2((int)a, (const struct iovec *)b, (int)c, (off_t)d, (int)f);
}

static long
syscall_pwritev2(long a, long b, long c, long d, long f)
{
    return hook_pwritev2((int)a, (const struct iovec *)b, (int)c, (off_t)d, (int)f);
}

/* openat2(2) of a path of ours: programs go on with openat(2). */
static long
syscall_openat2(long a, long b, long c, long d)
{
    struct target target;
    const int rc = path_resolve((int)a, (const char *)b, &target);

    return rc == 0 ? RAW(openat2, a, target.path, c, d) : hook_result(rc > 0 ? -ENOSYS : rc);
}

static long
to_hook(long number, long a, long b, long c, long d, long e, long f)
{
    switch (number) {
    case SYS_read:
        return hook_read((int)a, (void *)b, (size_t)c);
    case SYS_write:
        return hook_write((int)a, (void *)b, (size_t)c);
    case SYS_open:
        return hook_open((const char *)a, (int)b, (mode_t)c);
    case SYS_close:
        return hook_close((int)a);
    case SYS_stat:
        return hook_stat((const char *)a, (struct stat *)b);
    case SYS_fstat:
        return hook_fstat((int)a, (struct stat *)b);
    case SYS_lstat:
        return hook_lstat((const char *)a, (struct stat *)b);
    case SYS_lseek:
        return hook_lseek((int)a, (off_t)b, (int)c);
    case SYS_mmap:
        return (long)hook_mmap((void *)a, (size_t)b, (int)c, (int)d, (int)e, (off_t)f);
    case SYS_ioctl:
        return hook_ioctl((int)a, (unsigned long)b, (void *)c);
    case SYS_pread64:
        return hook_pread((int)a, (void *)b, (size_t)c, (off_t)d);
    case SYS_pwrite64:
        return hook_pwrite((int)a, (void *)b, (size_t)c, (off_t)d);
    case SYS_readv:
        return hook_readv((int)a, (const struct iovec *)b, (int)c);
    case SYS_writev:
        return hook_writev((int)a, (const struct iovec *)b, (int)c);
    case SYS_access:
        return hook_access((const char *)a, (int)b);
    case SYS_dup:
        return hook_dup((int)a);
    case SYS_dup2:
        return hook_dup2((int)a, (int)b);
    case SYS_sendfile:
        return hook_sendfile((int)a, (int)b, (off_t *)c, (size_t)d);
    case SYS_sendmsg:
        return hook_sendmsg((int)a, (const struct msghdr *)b, (int)c);
    case SYS_recvmsg:
        return hook_recvmsg((int)a, (struct msghdr *)b, (int)c);
    case SYS_execve:
        return hook_execve((const char *)a, (char *const *)b, (char *const *)c);
    case SYS_fcntl:
        return hook_fcntl((int)a, (int)b, (void *)c);
    case SYS_flock:
        return hook_flock((int)a, (int)b);
    case SYS_fsync:
        return hook_fsync((int)a);
    case SYS_fdatasync:
        return hook_fdatasync((int)a);
    case SYS_truncate:
        return hook_truncate((const char *)a, (off_t)b);
    case SYS_ftruncate:
        return hook_ftruncate((int)a, (off_t)b);
    case SYS_chdir:
        return hook_chdir((const char *)a);
    case SYS_fchdir:
        return hook_fchdir((int)a);
    case SYS_rename:
        return hook_rename((const char *)a, (const char *)b);
    case SYS_mkdir:
        return hook_mkdir((const char *)a, (mode_t)b);
    case SYS_rmdir:
        return hook_rmdir((const char *)a);
    case SYS_creat:
        return hook_creat((const char *)a, (mode_t)b);
    case SYS_link:
        return hook_link((const char *)a, (const char *)b);
    case SYS_unlink:
        return hook_unlink((const char *)a);
    case SYS_symlink:
        return hook_symlink((const char *)a, (const char *)b);
    case SYS_readlink:
        return hook_readlink((const char *)a, (char *)b, (size_t)c);
    case SYS_chmod:
        return hook_chmod((const char *)a, (mode_t)b);
    case SYS_fchmod:
        return hook_fchmod((int)a, (mode_t)b);
    case SYS_chown:
        return hook_chown((const char *)a, (uid_t)b, (gid_t)c);
    case SYS_fchown:
        return hook_fchown((int)a, (uid_t)b, (gid_t)c);
    case SYS_lchown:
        return hook_lchown((const char *)a, (uid_t)b, (gid_t)c);
    case SYS_umask:
        return hook_umask((mode_t)a);
    case SYS_utime:
        return hook_utime((const char *)a, (const struct utimbuf *)b);
    case SYS_mknod:
        return hook_mknod((const char *)a, (mode_t)b, (dev_t)c);
    case SYS_statfs:
        return hook_statfs((const char *)a, (struct statfs *)b);
    case SYS_fstatfs:
        return hook_fstatfs((int)a, (struct statfs *)b);
    case SYS_readahead:
        return hook_readahead((int)a, (off_t)b, (size_t)c);
    case SYS_setxattr:
        return hook_setxattr((const char *)a, (const char *)b, (const void *)c, (size_t)d, (int)e);
    case SYS_lsetxattr:
        return hook_lsetxattr((const char *)a, (const char *)b, (const void *)c, (size_t)d, (int)e);
    case SYS_fsetxattr:
        return hook_fsetxattr((int)a, (const char *)b, (const void *)c, (size_t)d, (int)e);
    case SYS_getxattr:
        return hook_getxattr((const char *)a, (const char *)b, (void *)c, (size_t)d);
    case SYS_lgetxattr:
        return hook_lgetxattr((const char *)a, (const char *)b, (void *)c, (size_t)d);
    case SYS_fgetxattr:
        return hook_fgetxattr((int)a, (const char *)b, (void *)c, (size_t)d);
    case SYS_listxattr:
        return hook_listxattr((const char *)a, (char *)b, (size_t)c);
    case SYS_llistxattr:
        return hook_llistxattr((const char *)a, (char *)b, (size_t)c);
    case SYS_flistxattr:
        return hook_flistxattr((int)a, (char *)b, (size_t)c);
    case SYS_removexattr:
        return hook_removexattr((const char *)a, (const char *)b);
    case SYS_lremovexattr:
        return hook_lremovexattr((const char *)a, (const char *)b);
    case SYS_fremovexattr:
        return hook_fremovexattr((int)a, (const char *)b);
    case SYS_getdents64:
        return hook_getdents64((int)a, (void *)b, (size_t)c);
    case SYS_fadvise64:
        return hook_result(-hook_posix_fadvise((int)a, (off_t)b, (off_t)c, (int)d));
    case SYS_utimes:
        return hook_utimes((const char *)a, (const struct timeval *)b);
    case SYS_openat:
        return hook_openat((int)a, (const char *)b, (int)c, (mode_t)d);
    case SYS_mkdirat:
        return hook_mkdirat((int)a, (const char *)b, (mode_t)c);
    case SYS_mknodat:
        return hook_mknodat((int)a, (const char *)b, (mode_t)c, (dev_t)d);
    case SYS_fchownat:
        return hook_fchownat((int)a, (const char *)b, (uid_t)c, (gid_t)d, (int)e);
    case SYS_futimesat:
        return hook_futimesat((int)a, (const char *)b, (const struct timeval *)c);
    case SYS_newfstatat:
        return hook_fstatat((int)a, (const char *)b, (struct stat *)c, (int)d);
    case SYS_unlinkat:
        return hook_unlinkat((int)a, (const char *)b, (int)c);
    case SYS_renameat:
        return hook_renameat((int)a, (const char *)b, (int)c, (const char *)d);
    case SYS_linkat:
        return hook_linkat((int)a, (const char *)b, (int)c, (const char *)d, (int)e);
    case SYS_symlinkat:
        return hook_symlinkat((const char *)a, (int)b, (const char *)c);
    case SYS_readlinkat:
        return hook_readlinkat((int)a, (const char *)b, (char *)c, (size_t)d);
    case SYS_fchmodat:
        return hook_fchmodat((int)a, (const char *)b, (mode_t)c, 0);
    case SYS_faccessat:
        return hook_faccessat((int)a, (const char *)b, (int)c, 0);
    case SYS_splice:
        return hook_splice((int)a, (off_t *)b, (int)c, (off_t *)d, (size_t)e, (unsigned)f);
    case SYS_sync_file_range:
        return hook_sync_file_range((int)a, (off_t)b, (off_t)c, (unsigned)d);
    case SYS_fallocate:
        return hook_fallocate((int)a, (int)b, (off_t)c, (off_t)d);
    case SYS_dup3:
        return hook_dup3((int)a, (int)b, (int)c);
    case SYS_preadv:
        return hook_preadv((int)a, (const struct iovec *)b, (int)c, (off_t)d);
    case SYS_pwritev:
        return hook_pwritev((int)a, (const struct iovec *)b, (int)c, (off_t)d);
    case SYS_syncfs:
        return hook_syncfs((int)a);
    case SYS_renameat2:
        return hook_renameat2((int)a, (const char *)b, (int)c, (const char *)d, (unsigned)e);
    case SYS_execveat:
        return hook_execveat((int)a, (const char *)b, (char *const *)c, (char *const *)d, (int)e);
    case SYS_copy_file_range:
        return hook_copy_file_range((int)a, (off_t *)b, (int)c, (off_t *)d, (size_t)e, (unsigned)f);
    case SYS_statx:
        return hook_statx((int)a, (const char *)b, (int)c, (unsigned)d, (struct statx *)e);
    case SYS_close_range:
        return hook_close_range((unsigned)a, (unsigned)b, (int)c);
    case SYS_faccessat2:
        return hook_faccessat((int)a, (const char *)b, (int)c, (int)d);
    case SYS_getcwd:
        return syscall_getcwd((char *)a, (size_t)b);
    case SYS_utimensat:
        return syscall_utimensat((int)a, (const char *)b, (const struct timespec *)c, (int)d);
    case SYS_preadv2:
        return syscall_preadv2(a, b, c, d, f);
    case SYS_pwritev2:
        return syscall_pwritev2(a, b, c, d, f);
    case SYS_openat2:
        return syscall_openat2(a, b, c, d);
    default:
        return raw_result(raw_call(number, a, b, c, d, e, f));
    }
}

/* Arguments that the caller did not give are whatever its registers had, and are not looked at. */
long
hook_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    return to_hook(number, a, b, c, d, e, f);
}
