/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mounting from the environment, and the client's own descriptors. See fs.h.
 */
#include "clients/preload/fs.h"

#include "clients/preload/files.h"
#include "clients/preload/raw.h"
#include "clients/preload/spawned.h"

#include <causeway/bulk.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define FD_BASE     801 /* where the client's own numbers begin, if the limit allows */
#define FD_ROOM     200
#define PAGE_BYTES  4096
#define PATH_BYTES  4096
#define MS_IN_NS    UINT64_C(1000000)
#define PREFIX_ELSE "/causeway"

__thread volatile int fs_depth FS_TLS;
__thread int fs_errno FS_TLS;
__thread volatile uint64_t fs_deferred FS_TLS;
char fs_prefix[256];
size_t fs_prefix_bytes;
unsigned char fs_marks[FS_MARKS];

static const volatile uint32_t no_canary = 1;
const volatile uint32_t *fs_canary = &no_canary;

static struct causeway_options options;
static _Atomic(struct causeway *) mounted;
static pthread_mutex_t mount_lock = PTHREAD_MUTEX_INITIALIZER;
static struct causeway *prepared; /* held over fork() */
static bool is_prepared;
static int fd_base;
static pthread_mutex_t limit_lock = PTHREAD_MUTEX_INITIALIZER; /* the limit is as it was outside */

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
        text = PREFIX_ELSE;
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

/* A page that the kernel zeroes in every child with a memory of its own. */
static void
make_canary(void)
{
    uint32_t *page = (uint32_t *)RAW(mmap, NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page != MAP_FAILED && RAW(madvise, page, PAGE_BYTES, MADV_WIPEONFORK) == 0) {
        *page = 1;
        fs_canary = page;
    }
}

static void
rearm_canary(void)
{
    if (fs_canary != &no_canary) {
        *(volatile uint32_t *)(uintptr_t)fs_canary = 1;
    }
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
        options.timeout_ns = strtoull(timeout, NULL, 10) * MS_IN_NS;
    }
    read_prefix();
    make_canary();

    (void)RAW(prlimit64, 0, RLIMIT_NOFILE, NULL, &limit);
    const rlim_t most = limit.rlim_max;
    fd_base = most >= FD_BASE + FD_ROOM ? FD_BASE : (int)(most - most / 4);
    return true;
}

static struct causeway *
fs_mounted(void)
{
    return atomic_load_explicit(&mounted, memory_order_acquire);
}

/* An absolute symlink on Causeway: below the prefix it is ours, else the kernel's: the hook will go
 * there (path_outside()). */
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
    if (strlen(target) >= PATH_BYTES) {
        return -ENAMETOOLONG;
    }
    (void)strcpy(path, target);
    return 0;
}

/* Mounts. Returns NULL with *error_out set if that fails. */
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

struct causeway *
fs_get(int *error_out)
{
    if (__builtin_expect(*fs_canary == 0, 0)) {
        fs_forked_unseen();
    }
    struct spawn *spawn = spawn_current();
    if (__builtin_expect(spawn != NULL, 0)) {
        if (spawn->fs == NULL) {
            spawn->fs = mount(error_out);
        }
        return spawn->fs;
    }
    struct causeway *fs = fs_mounted();
    if (__builtin_expect(fs != NULL, 1)) {
        return fs;
    }
    fs_enter();
    (void)pthread_mutex_lock(&mount_lock);
    fs = fs_mounted();
    if (fs == NULL) {
        fs = mount(error_out);
        atomic_store_explicit(&mounted, fs, memory_order_release);
    }
    (void)pthread_mutex_unlock(&mount_lock);
    fs_leave();
    return fs;
}

void
fs_child_end(void)
{
    struct spawn *spawn = spawn_current();

    if (spawn != NULL && spawn->fs != NULL) {
        fs_enter();
        causeway_unmount(spawn->fs);
        fs_leave();
        spawn->fs = NULL;
    }
}

void
fs_exit(void)
{
    struct causeway *fs = atomic_exchange(&mounted, NULL);

    fs_enter();
    causeway_unmount(fs);
    fs_leave();
}

void
fs_fork_prepare(void)
{
    /* In a handler of a fault that was ours: what we hold we cannot wait for. */
    is_prepared = fs_depth == 0;
    if (!is_prepared) {
        return;
    }
    (void)pthread_mutex_lock(&mount_lock);
    prepared = fs_mounted();
    if (prepared != NULL) {
        causeway_fork_prepare(prepared);
    }
}

void
fs_fork_parent(void)
{
    if (!is_prepared) {
        return;
    }
    if (prepared != NULL) {
        causeway_fork_parent(prepared);
    }
    (void)pthread_mutex_unlock(&mount_lock);
}

void
fs_fork_child(void)
{
    struct causeway *fs = atomic_exchange(&mounted, NULL);

    rearm_canary();
    (void)pthread_mutex_init(&mount_lock, NULL);
    (void)pthread_mutex_init(&limit_lock, NULL);
    if (fs != NULL && is_prepared) {
        fs_depth = 1;
        causeway_fork_child(fs);
    }
    fs_depth = 0;
    fs_deferred = 0;
}

void
fs_forked_unseen(void)
{
    rearm_canary();
    (void)pthread_mutex_init(&mount_lock, NULL);
    (void)pthread_mutex_init(&limit_lock, NULL);
    /* Another thread of the parent may have been in the middle of it: it is left as it is. */
    atomic_store(&mounted, NULL);
    files_forked_unseen();
}

/* ---- descriptors ---- */

bool
fs_limit_raise(struct rlimit *old_out)
{
    struct rlimit raised;

    (void)pthread_mutex_lock(&limit_lock);
    if (RAW(prlimit64, 0, RLIMIT_NOFILE, NULL, old_out) != 0) {
        (void)pthread_mutex_unlock(&limit_lock);
        return false;
    }
    raised = *old_out;
    raised.rlim_cur += FD_BASE + 2 * FD_ROOM;
    if (raised.rlim_max < raised.rlim_cur) {
        raised.rlim_max = raised.rlim_cur; /* root may */
    }
    if (RAW(prlimit64, 0, RLIMIT_NOFILE, &raised, NULL) == 0) {
        return true;
    }
    raised = *old_out;
    raised.rlim_cur = raised.rlim_max;
    if (old_out->rlim_cur < old_out->rlim_max &&
        RAW(prlimit64, 0, RLIMIT_NOFILE, &raised, NULL) == 0) {
        return true;
    }
    (void)pthread_mutex_unlock(&limit_lock);
    return false;
}

void
fs_limit_lower(const struct rlimit *old)
{
    const int error = errno;

    (void)RAW(prlimit64, 0, RLIMIT_NOFILE, old, NULL);
    errno = error;
    (void)pthread_mutex_unlock(&limit_lock);
}

/* The marks are of the parent's descriptors, which a child of posix_spawn() has not. */
static void
mark_clients(int fd)
{
    if (spawn_current() == NULL) {
        fs_mark_set(fd, FS_CLIENTS);
    }
}

int
fs_keep(int fd)
{
    struct rlimit old;
    int high = (int)RAW(fcntl, fd, F_DUPFD_CLOEXEC, fd_base);

    if (high < 0 && errno != EBADF && fs_limit_raise(&old)) {
        high = (int)RAW(fcntl, fd, F_DUPFD_CLOEXEC, fd_base);
        fs_limit_lower(&old);
    }
    mark_clients(high);
    return high;
}

int
fs_claim(int fd)
{
    if (fd >= 0 && fd < fd_base) {
        const int high = fs_keep(fd);

        if (high >= 0) {
            (void)RAW(close, fd);
            return high;
        }
    }
    mark_clients(fd);
    return fd;
}

int
fs_claim_at(int fd, int wanted)
{
    struct rlimit old;
    long at = RAW(dup3, fd, wanted, 0);

    if (at < 0 && fs_limit_raise(&old)) {
        at = RAW(dup3, fd, wanted, 0);
        fs_limit_lower(&old);
    }
    if (at < 0) {
        at = RAW(fcntl, fd, F_DUPFD, fd_base); /* an exec'd program looks for it */
    }
    if (at >= 0) {
        (void)RAW(close, fd);
        fd = (int)at;
    }
    fs_mark_set(fd, FS_CLIENTS);
    return fd;
}
