/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hooks: each has the signature and the manners of the libc function that it stands for
 * (result, or -1 and errno, unless said otherwise), serves what is on Causeway and hands the rest
 * to the kernel.
 */
#pragma once

#include "clients/preload/files.h"
#include "clients/preload/fs.h"
#include "clients/preload/path.h"
#include "clients/preload/raw.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

struct statx;
struct timeval;
struct utimbuf;

/* errno and -1 from a negative errno; else the value. */
static inline long
hook_result(long rc)
{
    if (rc < 0) {
        errno = (int)-rc;
        return -1;
    }
    return rc;
}

/*
 * The result of a call that makes a descriptor of the kernel's: if the client makes it, it is moved
 * out of the way, and the program's limit is none for it.
 */
#define HOOK_CLAIMED(expression)                                                 \
    __extension__({                                                              \
        int hook_fd_ = (int)(expression);                                        \
        if (__builtin_expect(fs_depth != 0, 0)) {                                \
            struct rlimit hook_old_;                                             \
            if (hook_fd_ < 0 && errno == EMFILE && fs_limit_raise(&hook_old_)) { \
                hook_fd_ = (int)(expression);                                    \
                fs_limit_lower(&hook_old_);                                      \
            }                                                                    \
            hook_fd_ = fs_claim(hook_fd_);                                       \
        }                                                                        \
        hook_fd_;                                                                \
    })

/* Is @fd open for the client but not for the program, which asks? */
static inline bool
hook_is_hidden(int fd)
{
    return __builtin_expect(fs_mark_of(fd) != FS_PROGRAMS, 0) && fs_depth == 0;
}

/*
 * A call on a name. fn(fs, target, argument) does it on ours, with 0 or a negative errno. Returns
 * that; or HOOK_KERNELS: the kernel is to do it with target->path.
 */
typedef int (*hook_name_fn)(struct causeway *fs, const struct target *target, const void *argument);
enum hook_follow {
    HOOK_NOFOLLOW, /* of a symlink in the last component */
    HOOK_FOLLOW,
    HOOK_EMPTY, /* and "" is the descriptor itself */
};
#define HOOK_KERNELS 1
int hook_name(int dirfd, const char *path, enum hook_follow follow, hook_name_fn fn,
              const void *argument, struct target *target);

/* hooks_open.c: descriptors */
int hook_open(const char *path, int flags, ...);
int hook_openat(int dirfd, const char *path, int flags, ...);
int hook_creat(const char *path, mode_t mode);
int hook_close(int fd);
int hook_dup(int fd);
int hook_dup2(int from, int to);
int hook_dup3(int from, int to, int flags);
int hook_fcntl(int fd, int command, ...);
int hook_ioctl(int fd, unsigned long request, ...);
int hook_flock(int fd, int operation);
int hook_lockf(int fd, int command, off_t bytes);
int hook_close_range(unsigned first, unsigned last, int flags);
void hook_closefrom(int first);

/* hooks_io.c: data */
ssize_t hook_read(int fd, void *buffer, size_t bytes);
ssize_t hook_write(int fd, const void *buffer, size_t bytes);
ssize_t hook_pread(int fd, void *buffer, size_t bytes, off_t offset);
ssize_t hook_pwrite(int fd, const void *buffer, size_t bytes, off_t offset);
ssize_t hook_readv(int fd, const struct iovec *iov, int count);
ssize_t hook_writev(int fd, const struct iovec *iov, int count);
ssize_t hook_preadv(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t hook_pwritev(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t hook_preadv2(int fd, const struct iovec *iov, int count, off_t offset, int flags);
ssize_t hook_pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags);
off_t hook_lseek(int fd, off_t offset, int whence);
int hook_fsync(int fd);
int hook_fdatasync(int fd);
int hook_syncfs(int fd);
int hook_sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags);
int hook_ftruncate(int fd, off_t size);
int hook_truncate(const char *path, off_t size);
int hook_fallocate(int fd, int mode, off_t offset, off_t bytes);
int hook_posix_fallocate(int fd, off_t offset, off_t bytes); /* returns the error number */
int hook_posix_fadvise(int fd, off_t offset, off_t bytes, int advice); /* likewise */
ssize_t hook_readahead(int fd, off_t offset, size_t bytes);
void *hook_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
ssize_t hook_copy_file_range(int in, off_t *in_offset, int out, off_t *out_offset, size_t bytes,
                             unsigned flags);
ssize_t hook_sendfile(int out, int in, off_t *offset, size_t bytes);
ssize_t hook_splice(int in, off_t *in_offset, int out, off_t *out_offset, size_t bytes,
                    unsigned flags);

/* hooks_name.c: names and attributes */
int hook_stat(const char *path, struct stat *stat);
int hook_lstat(const char *path, struct stat *stat);
int hook_fstat(int fd, struct stat *stat);
int hook_fstatat(int dirfd, const char *path, struct stat *stat, int flags);
int hook_xstat(int version, const char *path, struct stat *stat);
int hook_lxstat(int version, const char *path, struct stat *stat);
int hook_fxstat(int version, int fd, struct stat *stat);
int hook_fxstatat(int version, int dirfd, const char *path, struct stat *stat, int flags);
int hook_statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *statx);
int hook_statfs(const char *path, struct statfs *statfs);
int hook_fstatfs(int fd, struct statfs *statfs);
int hook_access(const char *path, int mode);
int hook_faccessat(int dirfd, const char *path, int mode, int flags);
int hook_euidaccess(const char *path, int mode);
int hook_mkdir(const char *path, mode_t mode);
int hook_mkdirat(int dirfd, const char *path, mode_t mode);
int hook_mknod(const char *path, mode_t mode, dev_t dev);
int hook_mknodat(int dirfd, const char *path, mode_t mode, dev_t dev);
int hook_rmdir(const char *path);
int hook_unlink(const char *path);
int hook_unlinkat(int dirfd, const char *path, int flags);
int hook_rename(const char *from, const char *to);
int hook_renameat(int from_dirfd, const char *from, int to_dirfd, const char *to);
int hook_renameat2(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags);
int hook_link(const char *from, const char *to);
int hook_linkat(int from_dirfd, const char *from, int to_dirfd, const char *to, int flags);
int hook_symlink(const char *text, const char *path);
int hook_symlinkat(const char *text, int dirfd, const char *path);
ssize_t hook_readlink(const char *path, char *buffer, size_t bytes);
ssize_t hook_readlinkat(int dirfd, const char *path, char *buffer, size_t bytes);
int hook_chmod(const char *path, mode_t mode);
int hook_lchmod(const char *path, mode_t mode);
int hook_fchmod(int fd, mode_t mode);
int hook_fchmodat(int dirfd, const char *path, mode_t mode, int flags);
int hook_chown(const char *path, uid_t uid, gid_t gid);
int hook_lchown(const char *path, uid_t uid, gid_t gid);
int hook_fchown(int fd, uid_t uid, gid_t gid);
int hook_fchownat(int dirfd, const char *path, uid_t uid, gid_t gid, int flags);
int hook_utimensat(int dirfd, const char *path, const struct timespec times[2], int flags);
int hook_futimens(int fd, const struct timespec times[2]);
int hook_utimes(const char *path, const struct timeval times[2]);
int hook_lutimes(const char *path, const struct timeval times[2]);
int hook_futimes(int fd, const struct timeval times[2]);
int hook_futimesat(int dirfd, const char *path, const struct timeval times[2]);
int hook_utime(const char *path, const struct utimbuf *times);
mode_t hook_umask(mode_t mask);
ssize_t hook_getxattr(const char *path, const char *name, void *value, size_t bytes);
ssize_t hook_lgetxattr(const char *path, const char *name, void *value, size_t bytes);
ssize_t hook_fgetxattr(int fd, const char *name, void *value, size_t bytes);
ssize_t hook_listxattr(const char *path, char *list, size_t bytes);
ssize_t hook_llistxattr(const char *path, char *list, size_t bytes);
ssize_t hook_flistxattr(int fd, char *list, size_t bytes);
int hook_setxattr(const char *path, const char *name, const void *value, size_t bytes, int flags);
int hook_lsetxattr(const char *path, const char *name, const void *value, size_t bytes, int flags);
int hook_fsetxattr(int fd, const char *name, const void *value, size_t bytes, int flags);
int hook_removexattr(const char *path, const char *name);
int hook_lremovexattr(const char *path, const char *name);
int hook_fremovexattr(int fd, const char *name);

/* hooks_dir.c: directories */
ssize_t hook_getdents64(int fd, void *buffer, size_t bytes);
int hook_chdir(const char *path);
int hook_fchdir(int fd);
char *hook_getcwd(char *buffer, size_t bytes);
off_t hook_dir_seek(struct file *file, off_t offset, int whence); /* a negative errno */

/* hooks_process.c: processes, and the client's own descriptors */
void hooks_process_init(void);

/* A copy of a file of ours in a memfd, if access(2) by @mask allows. Returns it or a negative
 * errno.
 */
int hook_load(struct causeway *fs, const struct causeway_fid *at, const char *path, int mask);
int hook_execve(const char *path, char *const argv[], char *const envp[]);
int hook_execveat(int dirfd, const char *path, char *const argv[], char *const envp[], int flags);
int hook_fexecve(int fd, char *const argv[], char *const envp[]);
void hook_exit(int status) __attribute__((noreturn));
int hook_socket(int domain, int type, int protocol);
int hook_epoll_create1(int flags);
int hook_eventfd(unsigned value, int flags);
int hook_memfd_create(const char *name, unsigned flags);
int hook_accept4(int fd, void *address, void *length, int flags);
ssize_t hook_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t hook_sendmsg(int fd, const struct msghdr *message, int flags);
int hook_pidfd_open(int pid, unsigned flags);

/* spawned.c */
int hook_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                     const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]);
int hook_posix_spawnp(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                      const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]);
int hook_old_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                         const posix_spawnattr_t *attributes, char *const argv[],
                         char *const envp[]);
int hook_old_posix_spawnp(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                          const posix_spawnattr_t *attributes, char *const argv[],
                          char *const envp[]);

/* hooks_syscall.c: syscall(2) by number */
long hook_syscall(long number, long a, long b, long c, long d, long e, long f);

/* hooks_load.c: shared objects */
void hooks_load_init(void);

/* signals.c */
bool signals_init(void);
int hook_sigaction(int number, const struct sigaction *action, struct sigaction *old);

/* Handlers that ran in this thread and do not ask for calls to be restarted. */
extern __thread volatile unsigned signals_interrupts FS_TLS;

/* hooks_name.c: the mask that the program has set. */
extern mode_t hook_umask_value;
