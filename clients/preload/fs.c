/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mounting from the environment, and the client's own descriptors. See fs.h.
 */
#include "clients/preload/fs.h"

#include "clients/preload/files.h"
#include "clients/preload/raw.h"

#include <causeway/bulk.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define INTERNAL_FD_MAX 65536

__thread int fs_depth __attribute__((tls_model("initial-exec")));
char fs_prefix[256];
size_t fs_prefix_bytes;

static struct causeway_options options;
static _Atomic(struct causeway *) mounted;
static pthread_mutex_t mount_lock = PTHREAD_MUTEX_INITIALIZER;
static struct causeway *held; /* while we fork: its threads are held off */
static int fd_base;
static unsigned char internal[INTERNAL_FD_MAX];

static const char *
env(const char *name)
{
    return getenv(name); // NOLINT(concurrency-mt-unsafe): in the constructor, before threads
}

static void
read_prefix(void)
{
    const char *text = env("CAUSEWAY_PREFIX");

    if (text == NULL || text[0] != '/' || text[1] == '\0' || strlen(text) >= sizeof(fs_prefix)) {
        text = "/causeway";
    }
    (void)strcpy(fs_prefix, text);
    fs_prefix_bytes = strlen(fs_prefix);
    while (fs_prefix_bytes > 1 && fs_prefix[fs_prefix_bytes - 1] == '/') {
        fs_prefix[--fs_prefix_bytes] = '\0';
    }
}

static uint32_t
bulk_path_named(const char *name)
{
    for (int path = 0; name != NULL && path < BULK_PATH_COUNT; path++) {
        if (strcmp(bulk_path_name((enum bulk_path)path), name) == 0) {
            return (uint32_t)path;
        }
    }
    return BULK_PATH_AUTO;
}

bool
fs_init(void)
{
    struct rlimit limit = {0};
    const char *timeout = env("CAUSEWAY_TIMEOUT_MS");

    options.struct_bytes = sizeof(options);
    options.mds = env("CAUSEWAY_MDS");
    if (options.mds == NULL) {
        return false;
    }
    /* The program may change its environment: keep copies. */
    options.mds = strdup(options.mds);
    options.run_dir = env("CAUSEWAY_RUN_DIR");
    options.run_dir = options.run_dir != NULL ? strdup(options.run_dir) : NULL;
    options.ni_rma_path = env("CAUSEWAY_RMA_PATH");
    options.ni_rma_path = options.ni_rma_path != NULL ? strdup(options.ni_rma_path) : NULL;
    options.bulk_path = bulk_path_named(env("CAUSEWAY_BULK_PATH"));
    options.no_lease = env("CAUSEWAY_NO_LEASE") != NULL;
    options.checksum = env("CAUSEWAY_CHECKSUM") != NULL;
    if (timeout != NULL) {
        options.timeout_ns = strtoull(timeout, NULL, 10) * 1000000;
    }
    read_prefix();

    (void)getrlimit(RLIMIT_NOFILE, &limit);
    fd_base = limit.rlim_cur >= 1024 ? 1001 - 200 : (int)(limit.rlim_cur - limit.rlim_cur / 4);
    return true;
}

struct causeway *
fs_mounted(void)
{
    return atomic_load_explicit(&mounted, memory_order_acquire);
}

/* An absolute symlink on Causeway: below the prefix it is ours, else the kernel's. */
static int
absolute_target(void *arg, const char *target, char *path)
{
    (void)arg;
    if (strncmp(target, fs_prefix, fs_prefix_bytes) != 0 ||
        (target[fs_prefix_bytes] != '/' && target[fs_prefix_bytes] != '\0')) {
        return -EXDEV;
    }
    target += fs_prefix_bytes;
    while (*target == '/') {
        target++;
    }
    if (strlen(target) >= 4096) {
        return -ENAMETOOLONG;
    }
    (void)strcpy(path, target);
    return 0;
}

static struct causeway *
mount(int *error_out)
{
    struct causeway *fs = NULL;
    const int rc = FS_CALL(causeway_mount(&options, &fs));

    if (rc != 0) {
        *error_out = rc;
        return NULL;
    }
    causeway_absolute_set(fs, absolute_target, NULL);
    return fs;
}

/*
 * The child of posix_spawn() shares our memory but not our descriptors: it has a mount of its own,
 * in the thread-local memory of the thread that waits for it.
 */
static __thread struct {
    struct causeway *fs;
    pid_t pid;
} child __attribute__((tls_model("initial-exec")));

static struct causeway *
child_get(int *error_out)
{
    const pid_t pid = (pid_t)RAW(getpid, 0);

    if (child.fs == NULL || child.pid != pid) {
        child.fs = mount(error_out);
        child.pid = pid;
    }
    return child.fs;
}

void
fs_child_end(void)
{
    struct causeway *fs = child.fs;

    if (__builtin_expect(fs != NULL, 0) && child.pid == (pid_t)RAW(getpid, 0)) {
        child.fs = NULL;
        fs_depth++;
        causeway_unmount(fs);
        fs_depth--;
    }
}

struct causeway *
fs_get(int *error_out)
{
    struct causeway *fs = fs_mounted();

    if (__builtin_expect(!files_is_owner(), 0)) {
        return child_get(error_out);
    }
    if (fs != NULL) {
        return fs;
    }
    (void)pthread_mutex_lock(&mount_lock);
    fs = fs_mounted();
    if (fs == NULL) {
        fs = mount(error_out);
        atomic_store_explicit(&mounted, fs, memory_order_release);
    }
    (void)pthread_mutex_unlock(&mount_lock);
    return fs;
}

void
fs_exit(void)
{
    struct causeway *fs = atomic_exchange(&mounted, NULL);

    fs_depth++;
    causeway_unmount(fs);
    fs_depth--;
}

void
fs_fork_prepare(void)
{
    (void)pthread_mutex_lock(&mount_lock);
}

/* A signal handler that forks within a call of its own thread can't wait for the call's end. */
void
fs_fork_hold(void)
{
    held = fs_depth == 0 ? fs_mounted() : NULL;
    if (held != NULL) {
        causeway_fork_prepare(held);
    }
}

void
fs_fork_parent(void)
{
    if (held != NULL) {
        causeway_fork_parent(held);
        held = NULL;
    }
    (void)pthread_mutex_unlock(&mount_lock);
}

void
fs_fork_child(void)
{
    struct causeway *fs = atomic_exchange(&mounted, NULL);

    held = NULL;
    (void)pthread_mutex_init(&mount_lock, NULL);
    fs_depth = 1;
    if (fs != NULL) {
        causeway_fork_child(fs);
    }
    fs_depth = 0;
}

int
fs_claim(int fd)
{
    if (fd < 0) {
        return fd;
    }
    if (fd < fd_base) {
        const int high = (int)RAW(fcntl, fd, F_DUPFD_CLOEXEC, fd_base);

        if (high >= 0) {
            (void)RAW(close, fd);
            fd = high;
        }
    }
    if (fd < INTERNAL_FD_MAX) {
        internal[fd] = 1;
    }
    return fd;
}

void
fs_unclaim(int fd)
{
    if ((unsigned)fd < INTERNAL_FD_MAX) {
        internal[fd] = 0;
    }
}

bool
fs_is_internal(int fd)
{
    return (unsigned)fd < INTERNAL_FD_MAX && internal[fd] != 0;
}
