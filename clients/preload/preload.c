/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libcauseway_preload.so - files on Causeway for unmodified programs.
 *
 * The constructor reads the environment, takes over what an exec'd program inherits, and leads
 * libc's entry points to the hooks. Without CAUSEWAY_MDS in the environment it does nothing at all.
 */
#include "clients/preload/hooks.h"
#include "clients/preload/patch.h"
#include "clients/preload/spawned.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HOOK_VERSION(name, function, version)        \
    {                                                \
        name, (void *)(uintptr_t)(function), version \
    }
#define HOOK(name, function) HOOK_VERSION(name, function, NULL)

/* Each entry point of libc 2.36 that is one system call on a file; fortified and old names lead to
 * these. */
static const struct patch patches[] = {
    HOOK("open64", hook_open),
    HOOK("open", hook_open),
    HOOK("__open64_nocancel", hook_open),
    HOOK("openat64", hook_openat),
    HOOK("openat", hook_openat),
    HOOK(PATCH_OPENAT_UNNAMED, hook_openat),
    HOOK("creat64", hook_creat),
    HOOK("close", hook_close),
    HOOK("__close_nocancel", hook_close),
    HOOK("dup", hook_dup),
    HOOK("dup2", hook_dup2),
    HOOK("dup3", hook_dup3),
    HOOK("fcntl64", hook_fcntl),
    HOOK("fcntl", hook_fcntl),
    HOOK("ioctl", hook_ioctl),
    HOOK("flock", hook_flock),
    HOOK("lockf64", hook_lockf),
    HOOK("close_range", hook_close_range),
    HOOK("closefrom", hook_closefrom),

    HOOK("read", hook_read),
    HOOK("__read_nocancel", hook_read),
    HOOK("write", hook_write),
    HOOK("__write_nocancel", hook_write),
    HOOK("pread64", hook_pread),
    HOOK("__pread64_nocancel", hook_pread),
    HOOK("pwrite64", hook_pwrite),
    HOOK("readv", hook_readv),
    HOOK("writev", hook_writev),
    HOOK("preadv64", hook_preadv),
    HOOK("pwritev64", hook_pwritev),
    HOOK("preadv64v2", hook_preadv2),
    HOOK("pwritev64v2", hook_pwritev2),
    HOOK("lseek64", hook_lseek),
    HOOK("fsync", hook_fsync),
    HOOK("fdatasync", hook_fdatasync),
    HOOK("syncfs", hook_syncfs),
    HOOK("sync_file_range", hook_sync_file_range),
    HOOK("ftruncate64", hook_ftruncate),
    HOOK("truncate64", hook_truncate),
    HOOK("fallocate64", hook_fallocate),
    HOOK("posix_fallocate64", hook_posix_fallocate),
    HOOK("posix_fallocate", hook_posix_fallocate),
    HOOK("posix_fadvise64", hook_posix_fadvise),
    HOOK("readahead", hook_readahead),
    HOOK("mmap64", hook_mmap),
    HOOK("copy_file_range", hook_copy_file_range),
    HOOK("sendfile64", hook_sendfile),
    HOOK("splice", hook_splice),

    HOOK("stat64", hook_stat),
    HOOK("lstat64", hook_lstat),
    HOOK("fstat64", hook_fstat),
    HOOK("fstatat64", hook_fstatat),
    HOOK("__xstat64", hook_xstat),
    HOOK("__lxstat64", hook_lxstat),
    HOOK("__fxstat64", hook_fxstat),
    HOOK("__fxstatat64", hook_fxstatat),
    HOOK("statx", hook_statx),
    HOOK("statfs64", hook_statfs),
    HOOK("fstatfs64", hook_fstatfs),
    HOOK("access", hook_access),
    HOOK("faccessat", hook_faccessat),
    HOOK("euidaccess", hook_euidaccess),
    HOOK("mkdir", hook_mkdir),
    HOOK("mkdirat", hook_mkdirat),
    HOOK("mknod", hook_mknod),
    HOOK("mknodat", hook_mknodat),
    HOOK("rmdir", hook_rmdir),
    HOOK("unlink", hook_unlink),
    HOOK("unlinkat", hook_unlinkat),
    HOOK("rename", hook_rename),
    HOOK("renameat", hook_renameat),
    HOOK("renameat2", hook_renameat2),
    HOOK("link", hook_link),
    HOOK("linkat", hook_linkat),
    HOOK("symlink", hook_symlink),
    HOOK("symlinkat", hook_symlinkat),
    HOOK("readlink", hook_readlink),
    HOOK("readlinkat", hook_readlinkat),
    HOOK("chmod", hook_chmod),
    HOOK("lchmod", hook_lchmod),
    HOOK("fchmod", hook_fchmod),
    HOOK("fchmodat", hook_fchmodat),
    HOOK("chown", hook_chown),
    HOOK("lchown", hook_lchown),
    HOOK("fchown", hook_fchown),
    HOOK("fchownat", hook_fchownat),
    HOOK("utimensat", hook_utimensat),
    HOOK("futimens", hook_futimens),
    HOOK("utimes", hook_utimes),
    HOOK("lutimes", hook_lutimes),
    HOOK("futimes", hook_futimes),
    HOOK("futimesat", hook_futimesat),
    HOOK("utime", hook_utime),
    HOOK("umask", hook_umask),
    HOOK("getxattr", hook_getxattr),
    HOOK("lgetxattr", hook_lgetxattr),
    HOOK("fgetxattr", hook_fgetxattr),
    HOOK("listxattr", hook_listxattr),
    HOOK("llistxattr", hook_llistxattr),
    HOOK("flistxattr", hook_flistxattr),
    HOOK("setxattr", hook_setxattr),
    HOOK("lsetxattr", hook_lsetxattr),
    HOOK("fsetxattr", hook_fsetxattr),
    HOOK("removexattr", hook_removexattr),
    HOOK("lremovexattr", hook_lremovexattr),
    HOOK("fremovexattr", hook_fremovexattr),

    HOOK("getdents64", hook_getdents64),
    HOOK("chdir", hook_chdir),
    HOOK("fchdir", hook_fchdir),
    HOOK("getcwd", hook_getcwd),

    HOOK("execve", hook_execve),
    HOOK("execveat", hook_execveat),
    HOOK("fexecve", hook_fexecve),
    HOOK("posix_spawn", hook_posix_spawn),
    HOOK("posix_spawnp", hook_posix_spawnp),
    HOOK_VERSION("posix_spawn", hook_old_posix_spawn, "GLIBC_2.2.5"),
    HOOK_VERSION("posix_spawnp", hook_old_posix_spawnp, "GLIBC_2.2.5"),
    HOOK("_exit", hook_exit),
    HOOK("vfork", fork), /* a child that shares this memory would change our tables */
    HOOK("sigaction", hook_sigaction),
    HOOK("syscall", hook_syscall),
    HOOK("socket", hook_socket),
    HOOK("epoll_create1", hook_epoll_create1),
    HOOK("eventfd", hook_eventfd),
    HOOK("memfd_create", hook_memfd_create),
    HOOK("pidfd_open", hook_pidfd_open),
    HOOK("accept4", hook_accept4),
    HOOK("recvmsg", hook_recvmsg),
    HOOK("sendmsg", hook_sendmsg),
};

/* The order of locks: mounting, the client, the tables. */
static void
fork_prepare(void)
{
    fs_fork_prepare();
    files_fork_prepare();
}

static void
fork_parent(void)
{
    files_fork_parent();
    fs_fork_parent();
}

static void
fork_child(void)
{
    fs_fork_child();
    files_fork_child();
}

__attribute__((constructor(101))) static void
preload_init(void)
{
    if (!fs_init()) {
        return;
    }
    hook_umask_value = (mode_t)RAW(umask, 022);
    (void)RAW(umask, hook_umask_value);
    path_init();
    files_init();
    hooks_process_init();
    hooks_load_init();
    (void)pthread_atfork(fork_prepare, fork_parent, fork_child);
    const int rc = spawn_init() && signals_init()
                       ? patch_libc(patches, sizeof(patches) / sizeof(patches[0]))
                       : -ENOTSUP;
    if (rc != 0) {
        char text[160];
        const int length =
            snprintf(text, sizeof(text),
                     "causeway: cannot lead libc to the file system (%s): files below "
                     "%s will not be found\n",
                     lnet_error_name(rc), fs_prefix);

        (void)RAW(write, STDERR_FILENO, text, (size_t)length);
    }
}
