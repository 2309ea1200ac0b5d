/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hooks of processes: exec and exit; and of the calls that make descriptors, for the client's own.
 *
 * An exec'd program finds its descriptors by itself (files_init()). The working directory goes
 * along in the environment, and so does what brings this library in, if the program left it out.
 */
#include "clients/preload/hooks.h"

#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define ENV_MAX    1024 /* more variables: the environment is handed on as it is */
#define OWN_MAX    16
#define HEAD_BYTES 256 /* of a script, where its interpreter is named */

static char *own_env[OWN_MAX]; /* what brings this library in */
static size_t own_env_count;

static bool
is_own_variable(const char *variable)
{
    return strncmp(variable, "LD_PRELOAD=", 11) == 0 ||
           (strncmp(variable, "CAUSEWAY_", 9) == 0 && strncmp(variable, "CAUSEWAY_CWD=", 13) != 0);
}

void
hooks_process_init(void)
{
    for (char **at = environ; *at != NULL && own_env_count < OWN_MAX; at++) {
        if (is_own_variable(*at)) {
            own_env[own_env_count] = strdup(*at);
            own_env_count += own_env[own_env_count] != NULL ? 1 : 0;
        }
    }
}

static bool
has_variable(char *const envp[], const char *variable)
{
    const size_t length = strcspn(variable, "=") + 1;

    for (; *envp != NULL; envp++) {
        if (strncmp(*envp, variable, length) == 0) {
            return true;
        }
    }
    return false;
}

/* What the new program needs to know, in memory of the caller's (a vfork() child has no other). */
struct exec_env {
    char *list[ENV_MAX + OWN_MAX + 2];
    char cwd[PATH_MAX + 64];
};

static char *const *
make_env(struct exec_env *env, char *const envp[])
{
    char *const nothing[] = {NULL};
    const char *cwd = path_cwd();
    size_t at = 0;

    envp = envp != NULL ? envp : nothing;
    for (size_t i = 0; envp[i] != NULL; i++) {
        if (at == ENV_MAX) {
            return envp;
        }
        if (strncmp(envp[i], "CAUSEWAY_CWD=", 13) != 0) {
            env->list[at++] = envp[i];
        }
    }
    for (size_t i = 0; i < own_env_count; i++) {
        if (!has_variable(envp, own_env[i])) {
            env->list[at++] = own_env[i];
        }
    }
    if (cwd != NULL) {
        struct causeway_fid fid;

        path_cwd_fid(&fid);
        (void)snprintf(env->cwd, sizeof(env->cwd), "CAUSEWAY_CWD=%llx:%x:%x:%s",
                       (unsigned long long)fid.seq, fid.oid, fid.ver, cwd);
        env->list[at++] = env->cwd;
    }
    env->list[at] = NULL;
    return env->list;
}

/* Copies a file of ours into a memfd. Returns it, or a negative errno. */
static int
load(struct causeway_file *file)
{
    static char buffer[65536];
    const int fd = (int)RAW(memfd_create, "program", MFD_CLOEXEC);
    off_t at = 0;

    if (fd < 0) {
        return -errno;
    }
    for (;;) {
        const struct iovec iov = {.iov_base = buffer, .iov_len = sizeof(buffer)};
        const ssize_t got = FS_CALL(causeway_preadv(file, &iov, 1, at));

        if (got == 0) {
            return fd;
        }
        if (got < 0 || RAW(pwrite64, fd, buffer, got, at) != got) {
            (void)RAW(close, fd);
            return got < 0 ? (int)got : -ENOSPC;
        }
        at += got;
    }
}

/* "#!interpreter argument" of @head: the interpreter is run by the kernel with the script's full
 * path. */
static int
exec_script(char *head, const char *full, char *const argv[], char *const envp[])
{
    char *list[ENV_MAX];
    size_t count = 0;
    char *save = NULL;

    head[strcspn(head, "\n")] = '\0';
    char *interpreter = strtok_r(head + 2, " \t", &save);
    char *argument = strtok_r(NULL, "", &save);
    if (interpreter == NULL) {
        return -ENOEXEC;
    }
    list[count++] = interpreter;
    if (argument != NULL && argument[strspn(argument, " \t")] != '\0') {
        list[count++] = argument + strspn(argument, " \t");
    }
    list[count++] = (char *)(uintptr_t)full;
    for (size_t i = 1; argv[0] != NULL && argv[i] != NULL; i++) {
        if (count == ENV_MAX - 1) {
            return -E2BIG;
        }
        list[count++] = argv[i];
    }
    list[count] = NULL;
    return hook_execve(interpreter, list, envp);
}

static int
exec_ours(const struct target *target, char *const argv[], char *const envp[])
{
    char head[HEAD_BYTES + 1];
    char full[PATH_MAX];
    struct causeway_file *file = NULL;
    int rc = 0;
    struct causeway *fs = fs_get(&rc);

    if (fs == NULL) {
        return rc;
    }
    rc = FS_CALL(causeway_access(fs, target->at, target->path, X_OK, 0));
    if (rc == 0) {
        rc = FS_CALL(causeway_open(fs, target->at, target->path, O_RDONLY, 0, &file));
    }
    if (rc != 0) {
        return rc;
    }
    const int fd = S_ISREG(causeway_file_mode(file)) ? load(file) : -EACCES;
    fs_depth++;
    causeway_close(file);
    fs_depth--;
    if (fd < 0) {
        return fd;
    }
    const long length = RAW(pread64, fd, head, HEAD_BYTES, 0);
    if (length > 2 && head[0] == '#' && head[1] == '!') {
        head[length] = '\0';
        path_full(target, full);
        (void)RAW(close, fd);
        return full[0] == '\0' ? -ENOENT : exec_script(head, full, argv, envp);
    }
    files_exec_prepare();
    (void)RAW(execveat, fd, "", argv, envp, AT_EMPTY_PATH);
    rc = -errno;
    files_exec_failed();
    (void)RAW(close, fd);
    return rc;
}

int
hook_execve(const char *path, char *const argv[], char *const envp[])
{
    struct exec_env env;
    struct target target;
    int rc = path_resolve(AT_FDCWD, path, &target);
    char *const *with = make_env(&env, envp);

    if (rc > 0) {
        rc = exec_ours(&target, argv, (char *const *)with);
    } else if (rc == 0) {
        files_exec_prepare();
        (void)RAW(execve, target.path, argv, with);
        rc = -errno;
        files_exec_failed();
    }
    return (int)hook_result(rc);
}

int
hook_fexecve(int fd, char *const argv[], char *const envp[])
{
    struct exec_env env;
    char *const *with = make_env(&env, envp);
    int rc = 0;

    if (files_has(fd)) {
        struct file *file = files_peek(fd);
        const struct target target = {.at = file != NULL ? &file->description->fid : NULL,
                                      .path = ""};

        rc = file == NULL ? -EBADF : exec_ours(&target, argv, with);
        return (int)hook_result(rc);
    }
    files_exec_prepare();
    (void)RAW(execveat, fd, "", argv, with, AT_EMPTY_PATH);
    rc = -errno;
    files_exec_failed();
    return (int)hook_result(rc);
}

void
hook_exit(int status)
{
    if (files_is_owner()) {
        files_exit();
        /* With other threads about, which may be in the middle of a call, the servers see us go. */
        if (__libc_single_threaded && fs_depth == 0) {
            fs_exit();
        }
    }
    for (;;) {
        (void)RAW(exit_group, status);
    }
}

/* ---- descriptors that the client makes ---- */

static int
claim(int fd)
{
    return __builtin_expect(fs_depth != 0, 0) ? fs_claim(fd) : fd;
}

int
hook_socket(int domain, int type, int protocol)
{
    return claim((int)RAW(socket, domain, type, protocol));
}

int
hook_epoll_create1(int flags)
{
    return claim((int)RAW(epoll_create1, flags));
}

int
hook_eventfd(unsigned value, int flags)
{
    return claim((int)RAW(eventfd2, value, flags));
}

int
hook_memfd_create(const char *name, unsigned flags)
{
    return claim((int)RAW(memfd_create, name, flags));
}

int
hook_pidfd_open(int pid, unsigned flags)
{
    return claim((int)RAW(pidfd_open, pid, flags));
}

int
hook_accept4(int fd, void *address, void *length, int flags)
{
    return claim((int)RAW_CANCELLABLE(accept4, fd, address, length, flags));
}

ssize_t
hook_recvmsg(int fd, void *message, int flags)
{
    const ssize_t got = RAW_CANCELLABLE(recvmsg, fd, message, flags);
    struct msghdr *header = message;

    if (__builtin_expect(fs_depth == 0 || got < 0, 1)) {
        return got;
    }
    for (struct cmsghdr *at = CMSG_FIRSTHDR(header); at != NULL; at = CMSG_NXTHDR(header, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        for (size_t i = 0; i < (at->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int passed = 0;

            memcpy(&passed, CMSG_DATA(at) + i * sizeof(int), sizeof(int));
            passed = fs_claim(passed);
            memcpy(CMSG_DATA(at) + i * sizeof(int), &passed, sizeof(int));
        }
    }
    return got;
}
