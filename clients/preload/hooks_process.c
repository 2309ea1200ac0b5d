/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hooks of processes: exec and exit; and of the calls that make descriptors, for the client's own.
 *
 * An exec'd program finds its descriptors by itself (files_init()). The working directory goes
 * along in the environment, and so does what brings this library in, if the program left it out.
 *
 * A program on Causeway is copied into a memfd, which the kernel executes; a script is taken apart
 * here as the kernel would.
 */
#include "clients/preload/hooks.h"
#include "clients/preload/spawned.h"

#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define OWN_MAX     16
#define HEAD_BYTES  256 /* of a script, where its interpreter is named */
#define SCRIPTS_MAX 5   /* whose interpreters are scripts */
#define ARGS_ROOM   (2 * SCRIPTS_MAX)
#define CWD_NAME    "CAUSEWAY_CWD="
#define LOAD_NAME   "LD_PRELOAD="
#define CWD_BYTES   (PATH_MAX + 64)

static char *own_env[OWN_MAX]; /* what brings this library in */
static size_t own_env_count;
static const char *own_load; /* LD_PRELOAD's value at the start */
static bool is_ending;       /* exit(3) was called */

static bool
begins_with(const char *text, const char *head)
{
    return strncmp(text, head, strlen(head)) == 0;
}

static bool
is_own_variable(const char *variable)
{
    return begins_with(variable, LOAD_NAME) ||
           (begins_with(variable, "CAUSEWAY_") && !begins_with(variable, CWD_NAME));
}

void
hooks_process_init(void)
{
    for (char **at = environ; *at != NULL && own_env_count < OWN_MAX; at++) {
        if (!is_own_variable(*at)) {
            continue;
        }
        own_env[own_env_count] = strdup(*at);
        if (own_env[own_env_count] != NULL && begins_with(*at, LOAD_NAME)) {
            own_load = own_env[own_env_count] + strlen(LOAD_NAME);
        }
        own_env_count += own_env[own_env_count] != NULL ? 1 : 0;
    }
}

/* ---- exec ---- */

/*
 * What one exec needs, in one mapping: neither the stack of a child of posix_spawn() nor the
 * allocator in a handler of a signal would do.
 */
struct exec {
    size_t bytes;
    struct target target;
    char **env;
    char **args; /* with ARGS_ROOM free places before it */
    char *cwd;   /* CWD_BYTES */
    char *load;  /* for LD_PRELOAD, ours added */
    char heads[SCRIPTS_MAX][HEAD_BYTES + 1];
    char path[32];
    char *words[]; /* args, env, texts */
};

static size_t
count_of(char *const list[])
{
    size_t count = 0;

    while (list != NULL && list[count] != NULL) {
        count++;
    }
    return count;
}

static const char *
find_variable(char *const envp[], const char *variable)
{
    const size_t length = strcspn(variable, "=") + 1;

    for (; envp != NULL && *envp != NULL; envp++) {
        if (strncmp(*envp, variable, length) == 0) {
            return *envp;
        }
    }
    return NULL;
}

static void
make_env(struct exec *exec, char *const envp[])
{
    struct causeway_fid fid;
    size_t at = 0;

    for (size_t i = 0; envp != NULL && envp[i] != NULL; i++) {
        const char *value = envp[i] + strlen(LOAD_NAME);

        if (begins_with(envp[i], CWD_NAME)) {
            continue;
        }
        exec->env[at] = envp[i];
        /* Another list of the program's own: this library stays in. An empty one is an order. */
        if (own_load != NULL && begins_with(envp[i], LOAD_NAME) && value[0] != '\0' &&
            strstr(value, own_load) == NULL) {
            (void)sprintf(exec->load, "%s:%s", envp[i], own_load);
            exec->env[at] = exec->load;
        }
        at++;
    }
    for (size_t i = 0; i < own_env_count; i++) {
        if (find_variable(envp, own_env[i]) == NULL) {
            exec->env[at++] = own_env[i];
        }
    }
    char *path = exec->cwd + 64;
    if (path_cwd(path, &fid)) {
        /* The head is of at most 63 bytes, and is put right before the path. */
        char head[64];
        const int bytes =
            snprintf(head, sizeof(head), CWD_NAME "%llx:%x:%x:", (unsigned long long)fid.seq,
                     fid.oid, fid.ver);

        exec->env[at++] = memcpy(path - bytes, head, (size_t)bytes);
    }
    exec->env[at] = NULL;
}

static struct exec *
exec_begin(char *const argv[], char *const envp[])
{
    static const char *const empty = "";
    const size_t args = count_of(argv) + 1;
    const size_t variables = count_of(envp) + OWN_MAX + 2;
    const char *load = find_variable(envp, LOAD_NAME);
    const size_t load_bytes =
        strlen(load != NULL ? load : empty) + strlen(own_load != NULL ? own_load : empty) + 2;
    const size_t words = ARGS_ROOM + args + 1 + variables;
    const size_t bytes = sizeof(struct exec) + words * sizeof(char *) + CWD_BYTES + load_bytes;
    struct spawn *spawn = spawn_current();
    struct exec *exec = (struct exec *)RAW(mmap, NULL, bytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (exec == MAP_FAILED) {
        return NULL;
    }
    exec->bytes = bytes;
    exec->args = exec->words + ARGS_ROOM;
    exec->env = exec->args + args + 1;
    exec->cwd = (char *)(exec->env + variables);
    exec->load = exec->cwd + CWD_BYTES;
    if (args > 1) {
        memcpy(exec->args, argv, (args - 1) * sizeof(char *));
    }
    make_env(exec, envp);
    if (spawn != NULL) {
        spawn->exec_memory = exec;
        spawn->exec_bytes = bytes;
    }
    return exec;
}

static void
exec_end(struct exec *exec)
{
    struct spawn *spawn = spawn_current();

    if (spawn != NULL) {
        spawn->exec_memory = NULL;
    }
    (void)RAW(munmap, exec, exec->bytes);
}

static int
kernel_exec(struct exec *exec, int dirfd, const char *path, int flags)
{
    fs_child_end();
    files_exec_prepare();
    if (dirfd == AT_FDCWD && flags == 0) {
        (void)RAW(execve, path, exec->args, exec->env);
    } else {
        (void)RAW(execveat, dirfd, path, exec->args, exec->env, flags);
    }
    files_exec_failed();
    return -errno;
}

/* Copies an open file of ours into a memfd. Returns it, or a negative errno. */
static int
copy_to_memfd(struct causeway_file *file, const char *name)
{
    struct stat stat;
    int rc = causeway_fstat(file, &stat);

    if (rc != 0) {
        return rc;
    }
    const int fd = (int)RAW(memfd_create, name, MFD_CLOEXEC);
    const size_t bytes = (size_t)stat.st_size;
    if (fd < 0) {
        return -errno;
    }
    rc = RAW(ftruncate, fd, bytes) == 0 ? 0 : -errno;
    char *memory = rc == 0 && bytes > 0
                       ? (char *)RAW(mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                       : NULL;
    if (memory == MAP_FAILED) {
        rc = -errno;
        memory = NULL;
    }
    for (size_t at = 0; rc == 0 && at < bytes;) {
        const struct iovec iov = {.iov_base = memory + at, .iov_len = bytes - at};
        const ssize_t got = causeway_preadv(file, &iov, 1, (off_t)at);

        if (got <= 0) {
            rc = (int)got;
            break;
        }
        at += (size_t)got;
    }
    if (memory != NULL) {
        (void)RAW(munmap, memory, bytes);
    }
    if (rc != 0) {
        (void)RAW(close, fd);
        return rc;
    }
    return fd;
}

int
hook_load(struct causeway *fs, const struct causeway_fid *at, const char *path, int mask)
{
    const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    struct causeway_file *file = NULL;

    fs_enter();
    int rc = causeway_access(fs, at, path, mask, 0);
    if (rc == 0) {
        rc = causeway_open(fs, at, path, O_RDONLY, 0, &file);
    }
    if (rc == 0) {
        rc = S_ISREG(causeway_file_mode(file)) ? copy_to_memfd(file, name) : -EACCES;
        causeway_close(file);
    }
    fs_leave();
    return rc;
}

/*
 * "#!interpreter argument" at the beginning of @head, of the script @path: they go before the
 * arguments. Returns the interpreter, or NULL if it is no script.
 */
static const char *
interpret(struct exec *exec, char *head, long bytes, const char *path)
{
    if (bytes < 2 || head[0] != '#' || head[1] != '!') {
        return NULL;
    }
    head[bytes] = '\0';
    head[strcspn(head, "\n")] = '\0';
    char *interpreter = head + 2 + strspn(head + 2, " \t");
    char *end = interpreter + strcspn(interpreter, " \t");
    char *argument = end + strspn(end, " \t");
    size_t length = strlen(argument);
    while (length > 0 && (argument[length - 1] == ' ' || argument[length - 1] == '\t')) {
        argument[--length] = '\0';
    }
    *end = '\0';
    if (interpreter[0] == '\0') {
        return NULL;
    }
    if (exec->args[0] == NULL) {
        exec->args--;
    }
    exec->args[0] = (char *)(uintptr_t)path;
    if (length > 0) {
        *--exec->args = argument;
    }
    *--exec->args = interpreter;
    return interpreter;
}

/* The head of a script of the kernel's whose interpreter it did not find. */
static long
read_kernel_head(int dirfd, const char *path, char *head)
{
    const int fd = (int)RAW(openat, dirfd, path, O_RDONLY | O_CLOEXEC, 0);
    const long bytes = fd >= 0 ? RAW(pread64, fd, head, HEAD_BYTES, 0) : -1;

    if (fd >= 0) {
        (void)RAW(close, fd);
    }
    return bytes;
}

/* Is the interpreter of the script @head on Causeway? */
static bool
has_our_interpreter(const char *head, long bytes, struct target *target)
{
    char text[HEAD_BYTES + 1];

    if (bytes < 2 || head[0] != '#' || head[1] != '!') {
        return false;
    }
    memcpy(text, head, (size_t)bytes);
    text[bytes] = '\0';
    char *interpreter = text + 2 + strspn(text + 2, " \t");
    interpreter[strcspn(interpreter, " \t\n")] = '\0';
    return path_resolve(AT_FDCWD, interpreter, target) > 0;
}

/*
 * One program of the kernel's. Returns a negative errno; or 0 and its head in @head: it is a script
 * with an interpreter of ours.
 */
static int
exec_kernels(struct exec *exec, int dirfd, const char *path, int flags, char *head,
             long *head_bytes)
{
    const int rc = kernel_exec(exec, dirfd, path, flags);

    if (rc != -ENOENT || path == NULL || path[0] == '\0') {
        return rc;
    }
    *head_bytes = read_kernel_head(dirfd, path, head);
    return has_our_interpreter(head, *head_bytes, &exec->target) ? 0 : rc;
}

/* One of ours. As exec_kernels(); 1: it is the kernel's target.path. */
static int
exec_ours(struct exec *exec, char *head, long *head_bytes)
{
    int rc = 0;
    struct causeway *fs = fs_get(&rc);

    if (fs == NULL) {
        return rc;
    }
    const int fd = hook_load(fs, exec->target.at, exec->target.path, X_OK);
    if (fd == -EXDEV) {
        rc = path_outside(fs, &exec->target, true);
        return rc == 0 ? 1 : rc;
    }
    if (fd < 0) {
        return fd;
    }
    *head_bytes = RAW(pread64, fd, head, HEAD_BYTES, 0);
    rc = *head_bytes > 2 && head[0] == '#' && head[1] == '!'
             ? 0
             : kernel_exec(exec, fd, "", AT_EMPTY_PATH);
    (void)RAW(close, fd);
    return rc;
}

static int
exec_any(struct exec *exec, int dirfd, const char *path, int flags)
{
    for (int scripts = 0; scripts < SCRIPTS_MAX; scripts++) {
        char *head = exec->heads[scripts];
        long head_bytes = 0;
        int rc = path_resolve(dirfd, path, &exec->target);

        if (rc > 0 && path[0] == '\0' && (flags & AT_EMPTY_PATH) == 0) {
            rc = -ENOENT;
        }
        if (rc > 0) {
            rc = exec_ours(exec, head, &head_bytes);
            rc = rc == 1 ? exec_kernels(exec, AT_FDCWD, exec->target.path, 0, head, &head_bytes)
                         : rc;
        } else if (rc == 0) {
            rc = exec_kernels(exec, dirfd, exec->target.path, flags, head, &head_bytes);
        }
        if (rc != 0) {
            return rc;
        }
        if (dirfd != AT_FDCWD && path[0] != '/') {
            (void)snprintf(exec->path, sizeof(exec->path), "/dev/fd/%d", dirfd);
            if (path[0] != '\0') {
                return -ENOEXEC; /* a script that has no name to hand on */
            }
            path = exec->path;
        }
        path = interpret(exec, head, head_bytes, path);
        if (path == NULL) {
            return -ENOEXEC;
        }
        dirfd = AT_FDCWD;
        flags = 0;
    }
    return -ELOOP;
}

int
hook_execveat(int dirfd, const char *path, char *const argv[], char *const envp[], int flags)
{
    struct spawn *spawn = spawn_current();

    if (spawn != NULL && spawn->is_shell_refused) {
        return (int)hook_result(-ENOEXEC);
    }
    struct exec *exec = exec_begin(argv, envp);
    if (exec == NULL) {
        return (int)hook_result(-ENOMEM);
    }
    const int rc = exec_any(exec, dirfd, path, flags);
    exec_end(exec);
    return (int)hook_result(rc);
}

int
hook_execve(const char *path, char *const argv[], char *const envp[])
{
    return hook_execveat(AT_FDCWD, path, argv, envp, 0);
}

int
hook_fexecve(int fd, char *const argv[], char *const envp[])
{
    if (fd < 0 || argv == NULL || envp == NULL) {
        return (int)hook_result(-EINVAL);
    }
    return hook_execveat(fd, "", argv, envp, AT_EMPTY_PATH);
}

/* ---- exit ---- */

__attribute__((destructor(101))) static void
note_ending(void)
{
    is_ending = true;
}

void
hook_exit(int status)
{
    if (spawn_current() == NULL && *fs_canary != 0) {
        files_exit();
        /*
         * By exit(3), a goodbye. Else this may be a handler of a signal that came in the middle of
         * the allocator, and with other threads about one may be in the middle of a call: then the
         * servers see us go.
         */
        if (is_ending && __libc_single_threaded && fs_depth == 0) {
            fs_exit();
        }
    }
    fs_child_end();
    for (;;) {
        (void)RAW(exit_group, status);
    }
}

/* ---- descriptors that the client makes, and that come by sockets ---- */

int
hook_socket(int domain, int type, int protocol)
{
    return HOOK_CLAIMED(RAW(socket, domain, type, protocol));
}

int
hook_epoll_create1(int flags)
{
    return HOOK_CLAIMED(RAW(epoll_create1, flags));
}

int
hook_eventfd(unsigned value, int flags)
{
    return HOOK_CLAIMED(RAW(eventfd2, value, flags));
}

int
hook_memfd_create(const char *name, unsigned flags)
{
    return HOOK_CLAIMED(RAW(memfd_create, name, flags));
}

int
hook_pidfd_open(int pid, unsigned flags)
{
    return HOOK_CLAIMED(RAW(pidfd_open, pid, flags));
}

int
hook_accept4(int fd, void *address, void *length, int flags)
{
    return HOOK_CLAIMED(RAW_CANCELLABLE(accept4, fd, address, length, flags));
}

/* Calls fn(fd, place of the number) for each descriptor that is passed along. */
static void
each_passed(struct msghdr *message, void (*fn)(int fd, unsigned char *place))
{
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at != NULL; at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        for (size_t i = 0; i < (at->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            unsigned char *place = CMSG_DATA(at) + i * sizeof(int);
            int fd = 0;

            memcpy(&fd, place, sizeof(fd));
            fn(fd, place);
        }
    }
}

static void
came(int fd, unsigned char *place)
{
    if (fs_depth != 0) {
        fd = fs_claim(fd);
        memcpy(place, &fd, sizeof(fd));
        return;
    }
    files_forget(fd);
    files_adopt(fd);
}

static void
goes(int fd, unsigned char *place)
{
    (void)place;
    files_pass(fd);
}

ssize_t
hook_recvmsg(int fd, struct msghdr *message, int flags)
{
    const ssize_t got = RAW_CANCELLABLE(recvmsg, fd, message, flags);

    if (__builtin_expect(got >= 0 && message->msg_controllen != 0, 0)) {
        each_passed(message, came);
    }
    return got;
}

ssize_t
hook_sendmsg(int fd, const struct msghdr *message, int flags)
{
    if (__builtin_expect(message != NULL && message->msg_controllen != 0 && fs_depth == 0, 0)) {
        each_passed((struct msghdr *)(uintptr_t)message, goes);
    }
    return RAW_CANCELLABLE(sendmsg, fd, message, flags);
}
