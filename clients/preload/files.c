/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors, descriptions and placeholders. See files.h.
 *
 * Locks: `files_mutex` guards this process's tables when they change; looking up is free of it: it
 * pins the file, then looks whether it is still the descriptor's. A file that a call is using is
 * pinned, and goes when the last pin does.
 *
 * A few placeholders of closed files are kept in stock with their descriptions, so that the usual
 * open and close of a program cost no system call. A stock does not outlive fork(): the child
 * closes its copies, because parent and child would share the position that names the description.
 *
 * An orphan (unlinked, still open) lives at the servers by the handles of processes. After fork()
 * the child has none until it first uses the descriptor; so a parent that closes a file which
 * others still have keeps its handle `lingering` until the description is theirs alone no more or
 * this process ends.
 */
#include "clients/preload/files.h"

#include "clients/preload/fs.h"
#include "clients/preload/raw.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#define TABLE_MAGIC   UINT64_C(0x31656c6966776163) /* "cawfile1" */
#define STOCK_MAX     4
#define LINGERING_MAX 64

#define STACK_PAGE_BYTES 4096u
#define STACK_NEAR_BYTES 65536u /* pages so near to each other are of one stack */

struct table {
    uint64_t magic;
    uint64_t dummy_dev;
    uint64_t dummy_ino;
    atomic_uint next; /* where to look for a free one */
    uint32_t reserved;
    struct description descriptions[FILES_OPEN_MAX] __attribute__((aligned(64)));
};

struct stock {
    int fd; /* kept open, not in files_map */
    uint32_t index;
    bool is_cloexec;
};

uint32_t files_map[FILES_FD_MAX];

static struct file *by_index[FILES_OPEN_MAX];
static struct file *live;   /* all of by_index, linked */
static struct file *unused; /* ended; never freed, as a look-up may still pin one */
static int fd_top = -1;     /* no descriptor above it was ever ours */
static struct table *table;
static int dummy_fd = -1;
static pid_t owner_pid;
static pthread_mutex_t files_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct stock stocks[STOCK_MAX];
static uint32_t stock_count;
static struct file *lingering[LINGERING_MAX];
static uint32_t lingering_count;

/*
 * The child of posix_spawn() shares our memory, thread-local too, but runs on a stack of its own.
 * So pages of stack where getpid() has once said that they are ours need not ask again.
 */
bool
files_is_owner(void)
{
    static __thread uintptr_t known_begin __attribute__((tls_model("initial-exec")));
    static __thread uintptr_t known_bytes __attribute__((tls_model("initial-exec")));
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);

    if (__builtin_expect(here - known_begin < known_bytes, 1)) {
        return true;
    }
    if ((pid_t)RAW(getpid, 0) != owner_pid) {
        return false;
    }
    const uintptr_t page = here & ~(uintptr_t)(STACK_PAGE_BYTES - 1);
    const uintptr_t end = page + STACK_PAGE_BYTES;
    if (known_bytes != 0 && page < known_begin && known_begin - page <= STACK_NEAR_BYTES) {
        known_bytes += known_begin - page;
        known_begin = page;
    } else if (known_bytes != 0 && page >= known_begin &&
               end - known_begin <= known_bytes + STACK_NEAR_BYTES) {
        known_bytes = end - known_begin;
    } else {
        known_begin = page;
        known_bytes = STACK_PAGE_BYTES;
    }
    return true;
}

/* ---- the table ---- */

static int
make_dummy(void)
{
    int fd = (int)RAW(memfd_create, "causeway", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct stat stat;

    if (fd < 0) {
        return -errno;
    }
    if (RAW(fcntl, fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) !=
            0 ||
        RAW(newfstatat, fd, "", &stat, AT_EMPTY_PATH) != 0) {
        const int rc = -errno;

        (void)RAW(close, fd);
        return rc;
    }
    table->dummy_dev = stat.st_dev;
    table->dummy_ino = stat.st_ino;
    dummy_fd = fs_claim(fd);
    return 0;
}

/* Makes the table, which children will inherit. */
static int
make_table(void)
{
    int fd = (int)RAW(memfd_create, "causeway-files", MFD_CLOEXEC);

    if (fd < 0) {
        return -errno;
    }
    if (RAW(ftruncate, fd, sizeof(struct table)) != 0) {
        return -errno;
    }
    void *memory =
        (void *)RAW(mmap, NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        (void)RAW(close, fd);
        return -ENOMEM;
    }
    table = memory;
    table->magic = TABLE_MAGIC;
    /* Not close-on-exec: it is for the program that comes. Where no such number may be, exec loses.
     */
    if (RAW(dup3, fd, FILES_TABLE_FD, 0) >= 0) {
        (void)fs_claim(FILES_TABLE_FD);
    }
    (void)RAW(close, fd);
    const int rc = make_dummy();
    if (rc != 0) {
        (void)munmap(table, sizeof(*table));
        table = NULL;
    }
    return rc;
}

static bool
map_inherited(void)
{
    struct stat stat;

    if (RAW(newfstatat, FILES_TABLE_FD, "", &stat, AT_EMPTY_PATH) != 0 || !S_ISREG(stat.st_mode) ||
        stat.st_size != (off_t)sizeof(struct table)) {
        return false;
    }
    void *memory = (void *)RAW(mmap, NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED,
                               FILES_TABLE_FD, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    table = memory;
    if (table->magic != TABLE_MAGIC) {
        (void)munmap(memory, sizeof(struct table));
        table = NULL;
        return false;
    }
    (void)fs_claim(FILES_TABLE_FD);
    return true;
}

/* A free description, or FILES_OPEN_MAX. */
static uint32_t
take_description(void)
{
    const unsigned start = atomic_load(&table->next);

    for (unsigned i = 0; i < FILES_OPEN_MAX; i++) {
        const unsigned index = (start + i) % FILES_OPEN_MAX;
        unsigned free_count = 0;

        if (atomic_compare_exchange_strong(&table->descriptions[index].reference_count, &free_count,
                                           1)) {
            atomic_store(&table->next, (index + 1) % FILES_OPEN_MAX);
            return index;
        }
    }
    return FILES_OPEN_MAX;
}

/* ---- files of this process ---- */

static struct file *
file_make(uint32_t index)
{
    struct file *file = unused;

    if (file != NULL) {
        unused = file->next;
    } else {
        file = calloc(1, sizeof(*file));
    }
    if (file != NULL) {
        /* All but pin_count, which a late look-up may be giving back just now. */
        file->fd_count = 0;
        file->has_locks = false;
        file->is_changed = false;
        file->open_file = NULL;
        file->path = NULL;
        file->description = &table->descriptions[index];
        file->index = index;
        by_index[index] = file;
        file->next = live;
        file->link = &live;
        if (live != NULL) {
            live->link = &file->next;
        }
        live = file;
    }
    return file;
}

static void
map_fd(int fd, struct file *file)
{
    files_map[fd] = file->index + 1;
    file->fd_count++;
    fd_top = fd > fd_top ? fd : fd_top;
}

static void
file_free(struct file *file)
{
    free(file->path);
    file->path = NULL;
    file->next = unused;
    unused = file;
}

/*
 * The last descriptor of this process is gone, and no call uses it. With `keep_description` the
 * description stays ours: a placeholder in stock has it.
 */
static void
file_end(struct file *file, bool keep_description)
{
    struct description *description = file->description;

    by_index[file->index] = NULL;
    *file->link = file->next;
    if (file->next != NULL) {
        file->next->link = file->link;
    }
    const unsigned others =
        keep_description ? 0 : atomic_fetch_sub(&description->reference_count, 1) - 1;
    if (others != 0 && others < FILES_OPEN_MAX && file->open_file != NULL &&
        lingering_count < LINGERING_MAX) {
        file->fd_count = 0;
        lingering[lingering_count++] = file;
        return;
    }
    if (file->open_file != NULL) {
        fs_depth++;
        causeway_close(file->open_file);
        fs_depth--;
    }
    file_free(file);
}

static void
sweep_lingering(void)
{
    for (uint32_t i = 0; i < lingering_count;) {
        struct file *file = lingering[i];

        /* Free again, or in use by somebody who opened something else: nobody needs our handle. */
        if (atomic_load(&file->description->reference_count) != 0) {
            i++;
            continue;
        }
        lingering[i] = lingering[--lingering_count];
        fs_depth++;
        causeway_close(file->open_file);
        fs_depth--;
        file_free(file);
    }
}

/* ---- placeholders ---- */

/*
 * fdopendir() asks the kernel by itself whether a directory is open for reading: its placeholder
 * is, and reads as an empty file.
 */
static int
open_placeholder(uint32_t index, bool is_cloexec, bool is_dir)
{
    char path[32];

    if (dummy_fd < 0) {
        /* An inherited table without the dummy itself: any inherited placeholder would do, or a new
         * one. */
        return -EBADF;
    }
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", dummy_fd);
    const int fd = (int)RAW(openat, AT_FDCWD, path,
                            (is_dir ? O_RDONLY : O_WRONLY) | (is_cloexec ? O_CLOEXEC : 0), 0);
    if (fd < 0) {
        return -errno;
    }
    if (fd >= FILES_FD_MAX || RAW(lseek, fd, (off_t)index, SEEK_SET) != (off_t)index) {
        (void)RAW(close, fd);
        return -EMFILE;
    }
    return fd;
}

static void
stock_drop(uint32_t at)
{
    atomic_fetch_sub(&table->descriptions[stocks[at].index].reference_count, 1);
    (void)RAW(close, stocks[at].fd);
    stocks[at] = stocks[--stock_count];
}

/* Takes the lowest placeholder in stock; returns its descriptor and index, or -1. */
static int
stock_take(bool is_cloexec, uint32_t *index_out)
{
    uint32_t best = 0;

    if (stock_count == 0) {
        return -1;
    }
    for (uint32_t i = 1; i < stock_count; i++) {
        best = stocks[i].fd < stocks[best].fd ? i : best;
    }
    const struct stock taken = stocks[best];
    stocks[best] = stocks[--stock_count];
    if (taken.is_cloexec != is_cloexec) {
        (void)RAW(fcntl, taken.fd, F_SETFD, is_cloexec ? FD_CLOEXEC : 0);
    }
    *index_out = taken.index;
    return taken.fd;
}

/* A placeholder with a description, from stock or new. Returns the descriptor or a negative errno.
 */
static int
take_placeholder(bool is_cloexec, bool is_dir, uint32_t *index_out)
{
    int fd = is_dir ? -1 : stock_take(is_cloexec, index_out);

    if (fd >= 0) {
        return fd;
    }
    *index_out = take_description();
    if (*index_out == FILES_OPEN_MAX) {
        return -ENFILE;
    }
    fd = open_placeholder(*index_out, is_cloexec, is_dir);
    if (fd < 0) {
        atomic_store(&table->descriptions[*index_out].reference_count, 0);
    }
    return fd;
}

static void
description_fill(struct description *description, struct causeway_file *open_file, int flags)
{
    description->fid = causeway_file_fid(open_file);
    description->mode = (uint32_t)causeway_file_mode(open_file);
    description->offset = 0;
    atomic_store_explicit(&description->lock, 0, memory_order_relaxed);
    atomic_store_explicit(&description->flags,
                          (unsigned)(flags & ~(O_CLOEXEC | O_CREAT | O_EXCL | O_TRUNC)),
                          memory_order_relaxed);
}

/*
 * The same in a child of posix_spawn(), whose descriptors are not those of our tables: it gets a
 * placeholder for the program to come, which opens the FID anew. The mutex is held.
 */
static int
install_for_exec(struct causeway_file *open_file, int flags)
{
    struct table *const parents = table;
    const int parents_dummy = dummy_fd;
    uint32_t index = FILES_OPEN_MAX;
    int rc = 0;

    if (table == NULL) {
        rc = make_table();
    } else if (dummy_fd < 0) {
        rc = make_dummy();
    }
    if (rc == 0) {
        index = take_description();
        rc = index < FILES_OPEN_MAX ? open_placeholder(index, (flags & O_CLOEXEC) != 0,
                                                       S_ISDIR(causeway_file_mode(open_file)))
                                    : -ENFILE;
    }
    if (rc >= 0) {
        description_fill(&table->descriptions[index], open_file, flags);
    } else if (index < FILES_OPEN_MAX) {
        atomic_store(&table->descriptions[index].reference_count, 0);
    }
    if (table != parents) {
        (void)munmap(table, sizeof(*table)); /* the child has it by FILES_TABLE_FD */
    }
    table = parents;
    dummy_fd = parents_dummy;
    return rc;
}

int
files_install(struct causeway_file *open_file, int flags, const char *path)
{
    const bool is_cloexec = (flags & O_CLOEXEC) != 0;
    const bool is_dir = S_ISDIR(causeway_file_mode(open_file));
    uint32_t index = 0;
    int rc = 0;

    (void)pthread_mutex_lock(&files_mutex);
    if (__builtin_expect(!files_is_owner(), 0)) {
        rc = install_for_exec(open_file, flags);
        (void)pthread_mutex_unlock(&files_mutex);
        fs_depth++;
        causeway_close(open_file);
        fs_depth--;
        fs_child_end();
        return rc;
    }
    if (table == NULL) {
        rc = make_table();
    } else if (dummy_fd < 0) {
        rc = make_dummy();
    }
    if (lingering_count != 0) {
        sweep_lingering();
    }
    int fd = rc == 0 ? take_placeholder(is_cloexec, is_dir, &index) : rc;
    struct file *file = fd >= 0 ? file_make(index) : NULL;
    if (file == NULL) {
        rc = fd < 0 ? fd : -ENOMEM;
        if (fd >= 0) {
            (void)RAW(close, fd);
            atomic_store(&table->descriptions[index].reference_count, 0);
        }
        (void)pthread_mutex_unlock(&files_mutex);
        fs_depth++;
        causeway_close(open_file);
        fs_depth--;
        return rc;
    }
    description_fill(file->description, open_file, flags);
    file->open_file = open_file;
    file->path = path != NULL ? strdup(path) : NULL;
    file->is_cloexec = is_cloexec;
    map_fd(fd, file);
    (void)pthread_mutex_unlock(&files_mutex);
    return fd;
}

struct file *
files_peek(int fd)
{
    const uint32_t mapped = (unsigned)fd < FILES_FD_MAX ? files_map[fd] : 0;
    struct file *file =
        mapped != 0 ? __atomic_load_n(&by_index[mapped - 1], __ATOMIC_ACQUIRE) : NULL;

    if (file == NULL) {
        return NULL;
    }
    atomic_fetch_add(&file->pin_count, 1);
    /* drop_fd() clears the map before it looks for pins: one of the two sees the other. */
    if (__builtin_expect(__atomic_load_n(&files_map[fd], __ATOMIC_SEQ_CST) != mapped ||
                             __atomic_load_n(&by_index[mapped - 1], __ATOMIC_SEQ_CST) != file,
                         0)) {
        files_put(file);
        return NULL;
    }
    return file;
}

static int
open_at_servers(struct file *file)
{
    struct description *description = file->description;
    int rc = 0;
    struct causeway *fs = fs_get(&rc);

    if (fs == NULL) {
        return rc;
    }
    (void)pthread_mutex_lock(&files_mutex);
    if (file->open_file == NULL) {
        const int flags = (int)atomic_load(&description->flags);

        rc = FS_CALL(causeway_open_fid(fs, &description->fid,
                                       flags & (O_ACCMODE | O_APPEND | O_PATH | O_DIRECTORY),
                                       &file->open_file));
    }
    (void)pthread_mutex_unlock(&files_mutex);
    return rc;
}

struct file *
files_get(int fd, int *error_out)
{
    struct file *file = files_peek(fd);

    if (file == NULL) {
        *error_out = -EBADF;
        return NULL;
    }
    if (__builtin_expect(file->open_file == NULL, 0)) {
        const int rc = open_at_servers(file);

        if (rc != 0) {
            files_put(file);
            *error_out = rc;
            return NULL;
        }
    }
    return file;
}

void
files_put(struct file *file)
{
    if (atomic_fetch_sub_explicit(&file->pin_count, 1, memory_order_release) == 1 &&
        __builtin_expect(file->fd_count == 0, 0)) {
        (void)pthread_mutex_lock(&files_mutex);
        if (by_index[file->index] == file && file->fd_count == 0 &&
            atomic_load(&file->pin_count) == 0) {
            file_end(file, false);
        }
        (void)pthread_mutex_unlock(&files_mutex);
    }
}

void
files_lock(struct file *file)
{
    struct description *description = file->description;
    const struct timespec pause = {.tv_nsec = 100000};
    unsigned tries = 0;
    unsigned holder = 0;

    while (!atomic_compare_exchange_weak_explicit(&description->lock, &holder, (unsigned)owner_pid,
                                                  memory_order_acquire, memory_order_relaxed)) {
        tries++;
        if (tries % 1024 == 0 && holder != 0 && RAW(kill, (pid_t)holder, 0) != 0 &&
            errno == ESRCH) {
            /* The holder was killed in between: the offset is whatever it had got to. */
            if (atomic_compare_exchange_strong(&description->lock, &holder, (unsigned)owner_pid)) {
                return;
            }
        } else if (tries > 1024) {
            (void)RAW(nanosleep, &pause, NULL);
        } else if (tries > 32) {
            (void)RAW(sched_yield, 0);
        }
        holder = 0;
    }
}

void
files_unlock(struct file *file)
{
    atomic_store_explicit(&file->description->lock, 0, memory_order_release);
}

static void
unlock_ranges(struct file *file)
{
    struct causeway_lock lock = {
        .owner = (uint64_t)owner_pid, .start = 0, .end = UINT64_MAX, .type = F_UNLCK};

    if (file->open_file != NULL) {
        (void)FS_CALL(causeway_lock(file->open_file, &lock, false));
    }
}

/* Drops one descriptor; the mutex is held. Returns true if the placeholder went into stock. */
static bool
drop_fd(int fd, bool may_stock)
{
    const uint32_t mapped = files_map[fd];
    struct file *file = mapped != 0 ? by_index[mapped - 1] : NULL;

    __atomic_store_n(&files_map[fd], 0, __ATOMIC_SEQ_CST);
    if (file == NULL) {
        return false;
    }
    if (file->has_locks) {
        unlock_ranges(file); /* POSIX: any close of the file by the process */
    }
    file->fd_count--;
    if (file->fd_count != 0 || atomic_load(&file->pin_count) != 0) {
        return false;
    }
    const bool stocked = may_stock && stock_count < STOCK_MAX && fd > 2 && !file->is_changed &&
                         !S_ISDIR(file->description->mode) &&
                         atomic_load(&file->description->reference_count) == 1;
    if (stocked) {
        stocks[stock_count++] =
            (struct stock){.fd = fd, .index = file->index, .is_cloexec = file->is_cloexec};
    }
    file_end(file, stocked);
    return stocked;
}

int
files_close(int fd)
{
    if (__builtin_expect(!files_is_owner(), 0)) {
        return (int)RAW(close, fd); /* a vfork() child: its own descriptor only */
    }
    (void)pthread_mutex_lock(&files_mutex);
    const bool stocked = drop_fd(fd, true);
    (void)pthread_mutex_unlock(&files_mutex);
    if (!stocked) {
        (void)RAW(close, fd);
    }
    return 0;
}

void
files_forget(int fd)
{
    if (!files_is_owner()) {
        return;
    }
    (void)pthread_mutex_lock(&files_mutex);
    for (uint32_t i = 0; i < stock_count; i++) {
        if (stocks[i].fd == fd) {
            atomic_fetch_sub(&table->descriptions[stocks[i].index].reference_count, 1);
            stocks[i] = stocks[--stock_count];
            break;
        }
    }
    if (files_has(fd)) {
        (void)drop_fd(fd, false);
    }
    (void)pthread_mutex_unlock(&files_mutex);
}

void
files_copied(int from, int to)
{
    if (!files_is_owner() || (unsigned)to >= FILES_FD_MAX) {
        return;
    }
    (void)pthread_mutex_lock(&files_mutex);
    const uint32_t mapped = files_map[from];
    if (mapped != 0 && by_index[mapped - 1] != NULL) {
        by_index[mapped - 1]->is_changed = true;
        map_fd(to, by_index[mapped - 1]);
    }
    (void)pthread_mutex_unlock(&files_mutex);
}

void
files_changed(int fd)
{
    struct file *file = files_peek(fd);

    if (file != NULL) {
        file->is_changed = true;
        files_put(file);
    }
}

void
files_each(unsigned first, unsigned last, void (*fn)(int fd))
{
    for (int fd = (int)first; fd <= fd_top && (unsigned)fd <= last; fd++) {
        if (files_map[fd] != 0) {
            fn(fd);
        }
    }
}

/* ---- start, fork, exec, end ---- */

/* Does the inherited descriptor @fd name a description? */
static void
adopt(int fd)
{
    struct stat stat;

    if ((unsigned)fd >= FILES_FD_MAX || fd == FILES_TABLE_FD ||
        RAW(newfstatat, fd, "", &stat, AT_EMPTY_PATH) != 0 || stat.st_size != 0 ||
        !S_ISREG(stat.st_mode)) {
        return;
    }
    const long index = RAW(lseek, fd, 0, SEEK_CUR);
    char link[64];
    char text[64];

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const long length = RAW(readlink, link, text, sizeof(text) - 1);
    if (length <= 0 || index < 0 || index >= FILES_OPEN_MAX) {
        return;
    }
    text[length] = '\0';
    if (strncmp(text, "/memfd:causeway ", 16) != 0 && strcmp(text, "/memfd:causeway") != 0) {
        return;
    }
    struct file *file = by_index[index] != NULL ? by_index[index] : file_make((uint32_t)index);
    if (file != NULL) {
        file->is_changed = true;
        map_fd(fd, file);
    }
}

struct linux_dirent64 {
    uint64_t d_ino;
    int64_t d_off;
    unsigned short d_reclen;
    unsigned char d_type;
    char d_name[];
};

void
files_init(void)
{
    char buffer[4096] __attribute__((aligned(8)));

    owner_pid = (pid_t)RAW(getpid, 0);
    if (!map_inherited()) {
        return;
    }
    const int dir =
        (int)RAW(openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    long bytes = 0;

    while (dir >= 0 && (bytes = RAW(getdents64, dir, buffer, sizeof(buffer))) > 0) {
        for (long at = 0; at < bytes;) {
            const struct linux_dirent64 *entry = (const void *)(buffer + at);

            at += entry->d_reclen;
            if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') {
                adopt((int)strtol(entry->d_name, NULL, 10));
            }
        }
    }
    if (dir >= 0) {
        (void)RAW(close, dir);
    }
}

void
files_fork_prepare(void)
{
    (void)pthread_mutex_lock(&files_mutex);
    for (struct file *file = live; file != NULL; file = file->next) {
        atomic_fetch_add(&file->description->reference_count, 1);
    }
}

void
files_fork_parent(void)
{
    (void)pthread_mutex_unlock(&files_mutex);
}

void
files_fork_child(void)
{
    owner_pid = (pid_t)RAW(getpid, 0);
    (void)pthread_mutex_init(&files_mutex, NULL);
    /* The parent's handles died with causeway_fork_child(). Stock and lingering are the parent's.
     */
    for (uint32_t i = 0; i < stock_count; i++) {
        (void)RAW(close, stocks[i].fd);
    }
    stock_count = 0;
    lingering_count = 0;
    for (struct file *file = live; file != NULL; file = file->next) {
        file->open_file = NULL;
        file->has_locks = false;
        atomic_store(&file->pin_count, 0);
    }
    for (struct file *file = unused; file != NULL; file = file->next) {
        atomic_store(&file->pin_count, 0);
    }
}

/* Adds @by to the count of each description that close-on-exec will end with this program. */
static void
exec_count(unsigned by)
{
    if (table == NULL || !files_is_owner()) {
        return;
    }
    for (struct file *file = live; file != NULL; file = file->next) {
        bool survives = false;

        for (int fd = 0; fd <= fd_top && !survives; fd++) {
            survives =
                files_map[fd] == file->index + 1 && (RAW(fcntl, fd, F_GETFD) & FD_CLOEXEC) == 0;
        }
        if (!survives) {
            atomic_fetch_add(&file->description->reference_count, by);
        }
    }
}

void
files_exec_prepare(void)
{
    if (!files_is_owner()) {
        return;
    }
    /* Placeholders in stock must not survive as open files. */
    (void)pthread_mutex_lock(&files_mutex);
    while (stock_count != 0) {
        stock_drop(stock_count - 1);
    }
    (void)pthread_mutex_unlock(&files_mutex);
    exec_count((unsigned)-1);
}

void
files_exec_failed(void)
{
    exec_count(1);
}

void
files_exit(void)
{
    if (table == NULL || !files_is_owner()) {
        return;
    }
    for (struct file *file = live; file != NULL; file = file->next) {
        atomic_fetch_sub(&file->description->reference_count, 1);
    }
    while (stock_count != 0) {
        stock_drop(stock_count - 1);
    }
}
