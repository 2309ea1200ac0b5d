/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The run directory: how processes find each other.
 *
 * An interface "3@shm" of pid 2 owns two files there: the lock "3@shm-2.lock", held by flock() as
 * long as the process lives, and the socket "3@shm-2". A killed process leaves both; the kernel
 * drops the lock, so whoever opens an interface next, or closes one that listened, removes them.
 * The socket is bound under a temporary name and renamed when it listens: a name that is there can
 * be connected to.
 *
 * Changes of the directory are made under flock() of the directory itself. Paths too long for a
 * sockaddr_un are reached through /proc/self/fd.
 */
#include "lnet/lnd/shm/ni.h"

#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define DIR_LOCK_TRIES_MAX 2000 /* of a millisecond each */
#define SWEEP_ENTRIES_MAX  8192
#define AUTO_TRIES_MAX     1024u /* addresses of one process that has none given */
#define OS_PID_BITS        22    /* PID_MAX_LIMIT of Linux */

static void
name_format(char text[SHM_NAME_BYTES], const struct lnet_process *process)
{
    const uint32_t address = (uint32_t)process->nid.value;
    const uint32_t net = (uint32_t)(process->nid.value >> 32) & 0xffff;

    if (net == 0) {
        (void)snprintf(text, SHM_NAME_BYTES, "%u@shm-%u", address, process->pid);
    } else {
        (void)snprintf(text, SHM_NAME_BYTES, "%u@shm%u-%u", address, net, process->pid);
    }
}

/* Fills *un with a path to @name in the run directory that fits. */
static void
sockaddr_make(const struct shm_ni *ni, const char *name, struct sockaddr_un *un)
{
    (void)memset(un, 0, sizeof(*un));
    un->sun_family = AF_UNIX;
    const int length = snprintf(un->sun_path, sizeof(un->sun_path), "%s/%s", ni->run_dir, name);

    if (length < 0 || (size_t)length >= sizeof(un->sun_path) || ni->run_dir[0] != '/') {
        (void)snprintf(un->sun_path, sizeof(un->sun_path), "/proc/self/fd/%d/%s", ni->run_dir_fd,
                       name);
    }
}

/* ---- the directory ------------------------------------------------------------------------- */

/* Opens @path, made if it is not there. It must be ours, or open to others on purpose. */
static int
dir_open(struct shm_ni *ni, const char *path, bool is_ours_alone)
{
    struct stat st;

    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        return -errno;
    }
    const int fd =
        open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (is_ours_alone ? O_NOFOLLOW : 0));

    if (fd < 0) {
        return -errno;
    }
    if (fstat(fd, &st) != 0) {
        const int rc = -errno;

        (void)close(fd);
        return rc;
    }
    const bool is_any_user = (ni->flags & LNET_NI_ANY_USER) != 0;
    const bool is_loose = is_ours_alone ? (st.st_mode & 077) != 0
                                        : (st.st_mode & 022) != 0 && (st.st_mode & S_ISVTX) == 0;

    if (!is_any_user && (st.st_uid != ni->uid || is_loose)) {
        shm_ni_log(
            ni, LNET_LOG_ERROR,
            "run directory %s: owner is uid %u, mode %03o; it must be ours (uid %u) and closed "
            "to others",
            path, st.st_uid, st.st_mode & 0777u, ni->uid);
        (void)close(fd);
        return -EACCES;
    }
    ni->run_dir = strdup(path);
    if (ni->run_dir == NULL) {
        (void)close(fd);
        return -ENOMEM;
    }
    ni->run_dir_fd = fd;
    return 0;
}

static int
dir_choose(struct shm_ni *ni, const char *wanted)
{
    char path[4096];

    if (wanted == NULL || wanted[0] == '\0') {
        wanted = getenv("CAUSEWAY_RUN_DIR");
    }
    if (wanted != NULL && wanted[0] != '\0') {
        const int rc = dir_open(ni, wanted, false);

        if (rc != 0) {
            shm_ni_log(ni, LNET_LOG_ERROR, "run directory %s: %s", wanted, base_errno_name(rc));
        }
        return rc;
    }
    const char *xdg = getenv("XDG_RUNTIME_DIR");

    if (xdg != NULL && xdg[0] == '/' &&
        (size_t)snprintf(path, sizeof(path), "%s/causeway", xdg) < sizeof(path) &&
        dir_open(ni, path, true) == 0) {
        return 0;
    }
    (void)snprintf(path, sizeof(path), "/tmp/causeway-%u", ni->uid);
    const int rc = dir_open(ni, path, true);

    if (rc != 0) {
        shm_ni_log(ni, LNET_LOG_ERROR, "run directory %s: %s; set CAUSEWAY_RUN_DIR to another",
                   path, base_errno_name(rc));
    }
    return rc;
}

static int
dir_lock(const struct shm_ni *ni)
{
    for (int i = 0; i < DIR_LOCK_TRIES_MAX; i++) {
        if (flock(ni->run_dir_fd, LOCK_EX | LOCK_NB) == 0) {
            return 0;
        }
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return -errno;
        }
        (void)poll(NULL, 0, 1);
    }
    shm_ni_log(ni, LNET_LOG_ERROR, "run directory %s: another process keeps it locked",
               ni->run_dir);
    return -EBUSY;
}

static void
dir_unlock(const struct shm_ni *ni)
{
    (void)flock(ni->run_dir_fd, LOCK_UN);
}

/* Removes what a process left that held @lock_name, if it is dead. The directory is locked. */
static void
sweep_one(const struct shm_ni *ni, const char *lock_name, size_t length)
{
    char name[SHM_NAME_BYTES + 8];
    const int fd =
        openat(ni->run_dir_fd, lock_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0) {
        return;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        (void)snprintf(name, sizeof(name), "%.*s", (int)(length - 5), lock_name);
        (void)unlinkat(ni->run_dir_fd, name, 0);
        (void)snprintf(name, sizeof(name), "%.*s.new", (int)(length - 5), lock_name);
        (void)unlinkat(ni->run_dir_fd, name, 0);
        (void)unlinkat(ni->run_dir_fd, lock_name, 0);
    }
    (void)close(fd);
}

/* Removes what killed processes left, so that it does not gather. The directory is locked. */
static void
sweep(const struct shm_ni *ni)
{
    const int fd = openat(ni->run_dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

    if (dir == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return;
    }
    for (int i = 0; i < SWEEP_ENTRIES_MAX; i++) {
        const struct dirent *entry = readdir(dir); /* NOLINT(concurrency-mt-unsafe): dir is ours */

        if (entry == NULL) {
            break;
        }
        const size_t length = strlen(entry->d_name);

        if (length > 5 && length < SHM_NAME_BYTES + 5 && strstr(entry->d_name, "@shm") != NULL &&
            strcmp(entry->d_name + length - 5, ".lock") == 0) {
            sweep_one(ni, entry->d_name, length);
        }
    }
    (void)closedir(dir);
}

/* ---- our name ------------------------------------------------------------------------------ */

/* Takes the lock of ni->name. -EADDRINUSE: a living process has it. The directory is locked. */
static int
name_lock(struct shm_ni *ni)
{
    char lock_name[SHM_NAME_BYTES + 8];
    struct stat st;

    (void)snprintf(lock_name, sizeof(lock_name), "%s.lock", ni->name);
    for (;;) {
        const int fd =
            openat(ni->run_dir_fd, lock_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

        if (fd < 0) {
            return errno == ELOOP ? -EACCES : -errno;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            const int rc = errno == EWOULDBLOCK ? -EADDRINUSE : -errno;

            (void)close(fd);
            return rc;
        }
        /* Its owner may have removed the file between our open and flock: then it is nobody's. */
        if (fstat(fd, &st) == 0 && st.st_nlink > 0) {
            ni->lock_fd = fd;
            return 0;
        }
        (void)close(fd);
    }
}

static int
name_listen(struct shm_ni *ni)
{
    struct sockaddr_un un;
    char new_name[SHM_NAME_BYTES + 8];
    int rc = 0;

    (void)snprintf(new_name, sizeof(new_name), "%s.new", ni->name);
    (void)unlinkat(ni->run_dir_fd, new_name, 0);
    sockaddr_make(ni, new_name, &un);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return -errno;
    }
    if (bind(fd, (const struct sockaddr *)&un, sizeof(un)) != 0) {
        rc = -errno;
        goto fail_close;
    }
    if ((ni->flags & LNET_NI_ANY_USER) != 0 && chmod(un.sun_path, 0666) != 0) {
        rc = -errno;
        goto fail_unlink;
    }
    if (listen(fd, SHM_CONNS_MAX) != 0 ||
        renameat(ni->run_dir_fd, new_name, ni->run_dir_fd, ni->name) != 0) {
        rc = -errno;
        goto fail_unlink;
    }
    ni->listen_fd = fd;
    return 0;

fail_unlink:
    (void)unlinkat(ni->run_dir_fd, new_name, 0);
fail_close:
    (void)close(fd);
    return rc;
}

/* Claims "address@net" for our pid. */
static int
name_claim(struct shm_ni *ni, uint32_t address)
{
    const struct lnet_process process = {
        .nid = {(ni->base.nid.value & ~UINT64_C(0xffffffff)) | address}, .pid = ni->pid};

    name_format(ni->name, &process);
    const int rc = name_lock(ni);

    if (rc == 0) {
        ni->base.nid = process.nid;
    }
    return rc;
}

/* Claims an address made from the number of this process, which may hold several contexts. */
static int
name_claim_any(struct shm_ni *ni)
{
    const uint32_t os_pid = (uint32_t)ni->os_pid & ((1u << OS_PID_BITS) - 1);
    int rc = -EADDRINUSE;

    for (uint32_t i = 0; i < AUTO_TRIES_MAX && rc == -EADDRINUSE; i++) {
        rc = name_claim(ni, os_pid | (i << OS_PID_BITS));
    }
    if ((rc == -EACCES || rc == -EROFS) && (ni->flags & LNET_NI_CONNECT_ONLY) != 0) {
        /* We may only look at the directory (another user's). A name of chance needs no lock. */
        const uint32_t chance = (uint32_t)(ni->incarnation & (AUTO_TRIES_MAX - 1));

        ni->base.nid.value |= os_pid | (chance << OS_PID_BITS);
        return 0;
    }
    return rc;
}

static int
address_parse(const char *text, uint32_t *address_out)
{
    uint64_t address = 0;

    if (*text == '\0') {
        return -EINVAL;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') {
            return -EINVAL;
        }
        address = address * 10 + (uint64_t)(*text - '0');
        if (address > UINT32_MAX) {
            return -EINVAL;
        }
    }
    *address_out = (uint32_t)address;
    return 0;
}

int
shm_rundir_open(struct shm_ni *ni, const struct lnet_ni_options *options)
{
    uint32_t address = 0;
    bool is_locked = false;
    int rc = 0;

    if (options->address != NULL && address_parse(options->address, &address) != 0) {
        shm_ni_log(ni, LNET_LOG_ERROR, "address \"%s\" is no number from 0 to 4294967295",
                   options->address);
        return -EINVAL;
    }
    rc = dir_choose(ni, options->run_dir);
    if (rc != 0) {
        return rc;
    }
    rc = dir_lock(ni);
    is_locked = rc == 0;
    if (rc == 0) {
        rc = options->address != NULL ? name_claim(ni, address) : name_claim_any(ni);
        if (rc == -EADDRINUSE) {
            shm_ni_log(ni, LNET_LOG_ERROR, "%s is taken by a living process (lock %s/%s.lock)",
                       ni->name, ni->run_dir, ni->name);
        } else if (rc != 0) {
            shm_ni_log(ni, LNET_LOG_ERROR, "cannot lock %s/%s.lock: %s", ni->run_dir, ni->name,
                       base_errno_name(rc));
        }
    }
    if (rc == 0) {
        sweep(ni);
        if ((ni->flags & LNET_NI_CONNECT_ONLY) == 0) {
            rc = name_listen(ni);
            if (rc != 0) {
                shm_ni_log(ni, LNET_LOG_ERROR, "cannot listen at %s/%s: %s", ni->run_dir, ni->name,
                           base_errno_name(rc));
            }
        }
    }
    if (is_locked) {
        dir_unlock(ni);
    }
    if (rc != 0) {
        shm_rundir_close(ni, true);
    }
    return rc;
}

void
shm_rundir_close(struct shm_ni *ni, bool is_owner)
{
    char lock_name[SHM_NAME_BYTES + 8];

    if (is_owner && ni->listen_fd >= 0) {
        (void)unlinkat(ni->run_dir_fd, ni->name, 0);
    }
    if (is_owner && ni->lock_fd >= 0) {
        (void)snprintf(lock_name, sizeof(lock_name), "%s.lock", ni->name);
        (void)unlinkat(ni->run_dir_fd, lock_name, 0);
    }
    /* A server that ends tidies up after clients that were killed: nobody else may come. */
    if (is_owner && ni->listen_fd >= 0 && dir_lock(ni) == 0) {
        sweep(ni);
        dir_unlock(ni);
    }
    const int fds[] = {ni->listen_fd, ni->lock_fd, ni->run_dir_fd};

    for (size_t i = 0; i < BASE_ARRAY_LEN(fds); i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    ni->listen_fd = -1;
    ni->lock_fd = -1;
    ni->run_dir_fd = -1;
    free(ni->run_dir);
    ni->run_dir = NULL;
}

int
shm_rundir_connect(const struct shm_ni *ni, const struct lnet_process *peer)
{
    struct sockaddr_un un;
    char name[SHM_NAME_BYTES];
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return -errno;
    }
    name_format(name, peer);
    sockaddr_make(ni, name, &un);
    if (connect(fd, (const struct sockaddr *)&un, sizeof(un)) != 0) {
        const int rc = -errno;

        (void)close(fd);
        return rc;
    }
    return fd;
}
