/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table, and placeholders. See table.h and files.h.
 *
 * reference_count of a description:
 *
 *     0              free
 *     MAKING | pid   process pid is making its placeholder
 *     n              n processes have it; too high where some were killed
 *
 * All changes are additions, so that a count that is off stays off by the same and nobody's count
 * is lost. A count that is too high is found when no index is free: nobody holds the lock of its
 * byte.
 */
#include "clients/preload/table.h"

#include "clients/preload/raw.h"

#include <dirent.h>
#include <linux/memfd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define TABLE_MAGIC UINT64_C(0x32656c6966776163) /* "cawfile2" */
#define TABLE_FD    1000                         /* where an exec'd program looks first */
#define DUMMY_FD    1001
#define TABLE_NAME  "causeway-files"
#define DUMMY_NAME  "causeway"
#define MAKING      (1u << 31)
#define LINK_BYTES  64

#ifndef F_OFD_SETLK
#    define F_OFD_SETLK 37
#endif

struct table {
    uint64_t magic;
    atomic_uint next; /* where to look for a free one */
    uint32_t reserved;
    struct description descriptions[FILES_OPEN_MAX] __attribute__((aligned(64)));
};

static struct table *table;
static int table_fd = -1;
static int dummy_fd = -1;

bool
table_is_there(void)
{
    return table != NULL;
}

struct description *
table_description(uint32_t index)
{
    return &table->descriptions[index];
}

void
table_take(uint32_t index)
{
    (void)atomic_fetch_add(&table->descriptions[index].reference_count, 1);
}

void
table_drop(uint32_t index)
{
    atomic_uint *count = &table->descriptions[index].reference_count;

    if (atomic_fetch_sub(count, 1) == 1) {
        atomic_store_explicit(&table->next, index, memory_order_relaxed); /* warm in the caches */
    }
}

bool
table_is_dead(pid_t pid)
{
    char path[LINK_BYTES];
    char text[256];

    if (RAW(kill, pid, 0) != 0 && errno == ESRCH) {
        return true;
    }
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    const int fd = (int)RAW(openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    const long bytes = RAW(read, fd, text, sizeof(text) - 1);
    (void)RAW(close, fd);
    text[bytes > 0 ? bytes : 0] = '\0';
    const char *end = strrchr(text, ')'); /* of the name */
    return end != NULL && end[1] == ' ' && (end[2] == 'Z' || end[2] == 'X');
}

/* ---- the two memfds ---- */

/* What the memfd @fd is called. Returns false if it is no memfd. */
static bool
memfd_name(int fd, char name[LINK_BYTES])
{
    static const char head[] = "/memfd:";
    char path[LINK_BYTES];
    char text[LINK_BYTES];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const long length = RAW(readlink, path, text, sizeof(text) - 1);
    if (length <= 0) {
        return false;
    }
    text[length] = '\0';
    if (strncmp(text, head, sizeof(head) - 1) != 0) {
        return false;
    }
    const size_t bytes = strcspn(text + sizeof(head) - 1, " ");
    memcpy(name, text + sizeof(head) - 1, bytes);
    name[bytes] = '\0';
    return true;
}

static bool
is_named(int fd, const char *wanted)
{
    char name[LINK_BYTES];

    return memfd_name(fd, name) && strcmp(name, wanted) == 0;
}

static int
make_dummy(void)
{
    int fd = (int)RAW(memfd_create, DUMMY_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0) {
        return -errno;
    }
    if (RAW(fcntl, fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) !=
        0) {
        const int rc = -errno;

        (void)RAW(close, fd);
        return rc;
    }
    dummy_fd = fs_claim_at(fd, DUMMY_FD);
    return 0;
}

static bool
map_table(int fd)
{
    void *memory =
        (void *)RAW(mmap, NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    table = memory != MAP_FAILED ? memory : NULL;
    return table != NULL;
}

static void
unmap_table(void)
{
    (void)RAW(munmap, table, sizeof(*table));
    table = NULL;
}

int
table_ready(void)
{
    if (table != NULL) {
        return 0;
    }
    const int fd = (int)RAW(memfd_create, TABLE_NAME, MFD_CLOEXEC);
    int rc = fd < 0 || RAW(ftruncate, fd, sizeof(struct table)) != 0 || !map_table(fd) ? -errno : 0;

    if (rc == 0) {
        rc = make_dummy();
    }
    if (rc != 0) {
        if (table != NULL) {
            unmap_table();
        }
        if (fd >= 0) {
            (void)RAW(close, fd);
        }
        return rc;
    }
    table->magic = TABLE_MAGIC;
    table_fd = fs_claim_at(fd, TABLE_FD);
    return 0;
}

struct linux_dirent64 {
    uint64_t d_ino;
    int64_t d_off;
    unsigned short d_reclen;
    unsigned char d_type;
    char d_name[];
};

/* Where a limit on descriptors kept them from their numbers. */
static void
search_inherited(int *table_out, int *dummy_out)
{
    char buffer[4096] __attribute__((aligned(8)));
    const int dir =
        (int)RAW(openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    long bytes = 0;

    while (dir >= 0 && (bytes = RAW(getdents64, dir, buffer, sizeof(buffer))) > 0) {
        for (long at = 0; at < bytes;) {
            const struct linux_dirent64 *entry = (const void *)(buffer + at);
            const int fd = (int)strtol(entry->d_name, NULL, 10);
            struct stat stat;

            at += entry->d_reclen;
            if (entry->d_name[0] < '0' || entry->d_name[0] > '9') {
                continue;
            }
            if (is_named(fd, TABLE_NAME)) {
                *table_out = fd;
            } else if (is_named(fd, DUMMY_NAME) &&
                       RAW(newfstatat, fd, "", &stat, AT_EMPTY_PATH) == 0 &&
                       (RAW(fcntl, fd, F_GETFL) & O_ACCMODE) == O_RDWR) {
                /* Or a directory's placeholder, but those are below. */
                *dummy_out = fd > *dummy_out ? fd : *dummy_out;
            }
        }
    }
    if (dir >= 0) {
        (void)RAW(close, dir);
    }
}

bool
table_inherit(void)
{
    struct rlimit limit = {0};
    struct stat stat;
    int fd = TABLE_FD;
    int dummy = DUMMY_FD;

    if (RAW(fcntl, fd, F_GETFD) < 0) {
        (void)RAW(prlimit64, 0, RLIMIT_NOFILE, NULL, &limit);
        if (limit.rlim_cur > TABLE_FD) {
            return false;
        }
        fd = -1;
        dummy = -1;
        search_inherited(&fd, &dummy);
    }
    if (fd < 0 || !is_named(fd, TABLE_NAME) || RAW(newfstatat, fd, "", &stat, AT_EMPTY_PATH) != 0 ||
        stat.st_size != (off_t)sizeof(struct table) || !map_table(fd)) {
        return false;
    }
    if (table->magic != TABLE_MAGIC || dummy < 0 || !is_named(dummy, DUMMY_NAME)) {
        unmap_table();
        return false;
    }
    table_fd = fd;
    dummy_fd = dummy;
    fs_mark_set(fd, FS_CLIENTS);
    fs_mark_set(dummy, FS_CLIENTS);
    return true;
}

static void
restore_one(pid_t parent, int fd)
{
    char path[LINK_BYTES];

    if (fd < 0 || RAW(fcntl, fd, F_GETFD) >= 0) {
        return;
    }
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", parent, fd);
    const int opened = (int)RAW(openat, AT_FDCWD, path, O_RDWR, 0);
    if (opened >= 0 && opened != fd) {
        (void)RAW(dup3, opened, fd, 0);
        (void)RAW(close, opened);
    }
}

void
table_restore(pid_t parent)
{
    restore_one(parent, table_fd);
    restore_one(parent, dummy_fd);
}

/* ---- descriptions and placeholders ---- */

/* Locks byte @index for the open file behind @fd. Fails if a placeholder of that index lives. */
static bool
lock_index(int fd, uint32_t index, int type)
{
    const struct flock lock = {
        .l_type = (short)type, .l_whence = SEEK_SET, .l_start = (off_t)index, .l_len = 1};

    return RAW(fcntl, fd, F_OFD_SETLK, &lock) == 0;
}

/* Makes @index ours, with its lock held by @fd, if it is free. */
static bool
take_free(int fd, uint32_t index, unsigned making)
{
    atomic_uint *count = &table->descriptions[index].reference_count;
    unsigned none = 0;

    if (atomic_load_explicit(count, memory_order_relaxed) != 0 ||
        !atomic_compare_exchange_strong(count, &none, making)) {
        return false;
    }
    if (lock_index(fd, index, F_WRLCK)) {
        (void)atomic_fetch_sub(count, making - 1);
        return true;
    }
    (void)atomic_fetch_sub(count, making); /* its holder is between two programs: exec */
    return false;
}

/* Makes @index ours if those who count as its holders are dead. */
static bool
take_leaked(int fd, uint32_t index)
{
    atomic_uint *count = &table->descriptions[index].reference_count;
    unsigned seen = atomic_load(count);

    if ((seen & MAKING) != 0 && !table_is_dead((pid_t)(seen & ~MAKING))) {
        return false;
    }
    if (!lock_index(fd, index, F_WRLCK)) {
        return false;
    }
    /* With the lock held nobody else becomes a holder; but one may have begun to make one. */
    seen = atomic_load(count);
    if ((seen & MAKING) == 0 || table_is_dead((pid_t)(seen & ~MAKING))) {
        if (seen != 0 && atomic_compare_exchange_strong(count, &seen, 1)) {
            return true;
        }
    }
    (void)lock_index(fd, index, F_UNLCK);
    return false;
}

/* A description for the placeholder @fd, which now holds its lock; or FILES_OPEN_MAX. */
static uint32_t
take_description(int fd)
{
    const unsigned making = MAKING | (unsigned)RAW(getpid, 0);
    const unsigned start = atomic_load_explicit(&table->next, memory_order_relaxed);

    for (unsigned i = 0; i < FILES_OPEN_MAX; i++) {
        const unsigned index = (start + i) % FILES_OPEN_MAX;

        if (take_free(fd, index, making)) {
            atomic_store_explicit(&table->next, (index + 1) % FILES_OPEN_MAX, memory_order_relaxed);
            return index;
        }
    }
    for (unsigned index = 0; index < FILES_OPEN_MAX; index++) {
        if (take_leaked(fd, index)) {
            return index;
        }
    }
    return FILES_OPEN_MAX;
}

/*
 * fdopendir() asks the kernel by itself whether a directory is open for reading: its placeholder
 * is, and reads as an empty file.
 */
int
table_placeholder(bool is_cloexec, bool is_dir, uint32_t *index_out)
{
    char path[LINK_BYTES];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", dummy_fd);
    const int fd = (int)RAW(openat, AT_FDCWD, path,
                            (is_dir ? O_RDWR : O_WRONLY) | (is_cloexec ? O_CLOEXEC : 0), 0);
    if (fd < 0) {
        return -errno;
    }
    int rc = fd < FILES_FD_MAX ? 0 : -EMFILE;
    if (rc == 0) {
        *index_out = take_description(fd);
        rc = *index_out < FILES_OPEN_MAX ? 0 : -ENFILE;
    }
    if (rc == 0 && RAW(lseek, fd, (off_t)*index_out, SEEK_SET) != (off_t)*index_out) {
        rc = -errno;
        table_drop(*index_out);
    }
    if (rc != 0) {
        (void)RAW(close, fd);
        return rc;
    }
    (void)atomic_fetch_add_explicit(&table->descriptions[*index_out].generation, 1,
                                    memory_order_relaxed);
    return fd;
}

long
table_index_of(int fd)
{
    struct stat own;
    struct stat stat;

    if (table == NULL || fd == table_fd || fd == dummy_fd ||
        RAW(newfstatat, fd, "", &stat, AT_EMPTY_PATH) != 0 || stat.st_size != 0 ||
        !S_ISREG(stat.st_mode) || RAW(newfstatat, dummy_fd, "", &own, AT_EMPTY_PATH) != 0 ||
        stat.st_ino != own.st_ino || stat.st_dev != own.st_dev) {
        return -1;
    }
    const long index = RAW(lseek, fd, 0, SEEK_CUR);

    return index < FILES_OPEN_MAX ? index : -1;
}
