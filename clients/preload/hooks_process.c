/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hooks of processes: exec and exit; and of the calls that make descriptors, for the client's own.
 *
 * An exec'd program finds its descriptors by itself (files_init()). The working directory goes
 * along in the environment, and so does what brings this library in, if the program left it out.
 */
#include "clients/preload/hooks.h"

#include <linux/memfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define ENV_MAX     1024 /* more variables: the environment is handed on as it is */
#define OWN_MAX     16
#define HEAD_BYTES  256 /* of a script, where its interpreter is named */
#define SCRIPTS_MAX 5   /* scripts run by scripts, as many as the kernel's own */

static char *own_env[OWN_MAX]; /* what brings this library in */
static size_t own_env_count;

static bool
is_own_variable(const char *variable)
{
    return strncmp(variable, "LD_PRELOAD=", 11) == 0 ||
           (strncmp(variable, "CAUSEWAY_", 9) == 0 && strncmp(variable, "CAUSEWAY_CWD=", 13) != 0);
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

/*
 * What an exec works with. The child of posix_spawn() calls us on a stack of 32 KiB without a guard
 * page, so this does not lie there but in memory of the thread: the child shares the thread-local
 * memory of the thread that made it, which stands still meanwhile.
 */
struct exec_work {
    char *env[ENV_MAX + OWN_MAX + 2];
    char *args[ENV_MAX];
    char cwd[PATH_MAX + 64];
    struct target target;
    struct exec_script {
        char head[HEAD_BYTES + 1];
        char full[PATH_MAX];
    } scripts[SCRIPTS_MAX];
    char buffer[65536];
};

static __thread struct exec_work *thread_work __attribute__((tls_model("initial-exec")));
static pthread_key_t work_key;
static bool has_work_key;

static void
work_end(void *work)
{
    (void)RAW(munmap, work, sizeof(struct exec_work));
}

/* This thread's, or NULL. */
static struct exec_work *
work_get(void)
{
    if (thread_work == NULL) {
        void *memory = (void *)RAW(mmap, NULL, sizeof(struct exec_work), PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (memory == MAP_FAILED) {
            return NULL;
        }
        thread_work = memory;
        if (has_work_key) {
            (void)pthread_setspecific(work_key, memory);
        }
    }
    return thread_work;
}

void
hooks_process_init(void)
{
    has_work_key = pthread_key_create(&work_key, work_end) == 0;
    for (char **at = environ; *at != NULL && own_env_count < OWN_MAX; at++) {
        if (is_own_variable(*at)) {
            own_env[own_env_count] = strdup(*at);
            own_env_count += own_env[own_env_count] != NULL ? 1 : 0;
        }
    }
}

static char *const *
make_env(struct exec_work *work, char *const envp[])
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
            work->env[at++] = envp[i];
        }
    }
    for (size_t i = 0; i < own_env_count; i++) {
        if (!has_variable(envp, own_env[i])) {
            work->env[at++] = own_env[i];
        }
    }
    if (cwd != NULL) {
        struct causeway_fid fid;

        path_cwd_fid(&fid);
        (void)snprintf(work->cwd, sizeof(work->cwd), "CAUSEWAY_CWD=%llx:%x:%x:%s",
                       (unsigned long long)fid.seq, fid.oid, fid.ver, cwd);
        work->env[at++] = work->cwd;
    }
    work->env[at] = NULL;
    return work->env;
}

static void
exec_prepare(void)
{
    fs_child_end();
    files_exec_prepare();
}

/* Copies a file of ours into a memfd. Returns it, or a negative errno. */
static int
load(struct exec_work *work, struct causeway_file *file)
{
    const int fd = (int)RAW(memfd_create, "program", MFD_CLOEXEC);
    off_t at = 0;

    if (fd < 0) {
        return -errno;
    }
    for (;;) {
        const struct iovec iov = {.iov_base = work->buffer, .iov_len = sizeof(work->buffer)};
        const ssize_t got = FS_CALL(causeway_preadv(file, &iov, 1, at));

        if (got == 0) {
            return fd;
        }
        if (got < 0 || RAW(pwrite64, fd, work->buffer, got, at) != got) {
            (void)RAW(close, fd);
            return got < 0 ? (int)got : -ENOSPC;
        }
        at += got;
    }
}

static int exec_path(struct exec_work *work, const char *path, char *const argv[],
                     char *const envp[], int depth);

/*
 * "#!interpreter argument" of a script: the interpreter is run by the kernel with the script's full
 * path. @argv may be work->args, if the script is itself an interpreter.
 */
static int
exec_script(struct exec_work *work, char *const argv[], char *const envp[], int depth)
{
    struct exec_script *script = &work->scripts[depth];
    char *save = NULL;
    size_t argc = 0;
    size_t count = 2;

    script->head[strcspn(script->head, "\n")] = '\0';
    char *interpreter = strtok_r(script->head + 2, " \t", &save);
    char *argument = strtok_r(NULL, "", &save);
    if (interpreter == NULL) {
        return -ENOEXEC;
    }
    if (argument != NULL) {
        argument += strspn(argument, " \t");
        count += *argument != '\0' ? 1 : 0;
    }
    while (argv[argc] != NULL) {
        argc++;
    }
    const size_t rest = argc > 0 ? argc - 1 : 0;
    if (count + rest >= ENV_MAX) {
        return -E2BIG;
    }
    if (rest > 0) {
        memmove(work->args + count, argv + 1, rest * sizeof(argv[0]));
    }
    work->args[count + rest] = NULL;
    work->args[count - 1] = script->full;
    if (count == 3) {
        work->args[1] = argument;
    }
    work->args[0] = interpreter;
    return exec_path(work, interpreter, work->args, envp, depth + 1);
}

static int
exec_ours(struct exec_work *work, char *const argv[], char *const envp[], int depth)
{
    const struct target *target = &work->target;
    struct exec_script *script = &work->scripts[depth];
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
    const int fd = S_ISREG(causeway_file_mode(file)) ? load(work, file) : -EACCES;
    fs_depth++;
    causeway_close(file);
    fs_depth--;
    if (fd < 0) {
        return fd;
    }
    const long length = RAW(pread64, fd, script->head, HEAD_BYTES, 0);
    if (length > 2 && script->head[0] == '#' && script->head[1] == '!') {
        script->head[length] = '\0';
        path_full(target, script->full);
        (void)RAW(close, fd);
        return script->full[0] == '\0' ? -ENOENT : exec_script(work, argv, envp, depth);
    }
    exec_prepare();
    (void)RAW(execveat, fd, "", argv, envp, AT_EMPTY_PATH);
    rc = -errno;
    files_exec_failed();
    (void)RAW(close, fd);
    return rc;
}

/* @depth scripts have led to @path. */
static int
exec_path(struct exec_work *work, const char *path, char *const argv[], char *const envp[],
          int depth)
{
    int rc = path_resolve(AT_FDCWD, path, &work->target);

    if (rc > 0) {
        return depth < SCRIPTS_MAX ? exec_ours(work, argv, envp, depth) : -ELOOP;
    }
    if (rc == 0) {
        exec_prepare();
        (void)RAW(execve, work->target.path, argv, envp);
        rc = -errno;
        files_exec_failed();
    }
    return rc;
}

int
hook_execve(const char *path, char *const argv[], char *const envp[])
{
    char *const nothing[] = {NULL};
    struct exec_work *work = work_get();

    if (work == NULL) {
        return (int)hook_result(-ENOMEM);
    }
    char *const *with = make_env(work, envp);

    return (int)hook_result(exec_path(work, path, argv != NULL ? argv : nothing, with, 0));
}

int
hook_fexecve(int fd, char *const argv[], char *const envp[])
{
    struct exec_work *work = work_get();

    if (work == NULL) {
        return (int)hook_result(-ENOMEM);
    }
    char *const *with = make_env(work, envp);
    int rc = 0;

    if (files_has(fd)) {
        rc = path_resolve(fd, "", &work->target);
        return (int)hook_result(rc < 0 ? rc : exec_ours(work, argv, with, 0));
    }
    exec_prepare();
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
    } else {
        fs_child_end();
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
