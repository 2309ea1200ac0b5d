/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * This process's files and descriptors. See files.h.
 *
 * `files_mutex` guards the tables when they change; it is never held over a call of the client.
 * Looking up is free of it: a call pins the file and then looks whether the descriptor still leads
 * there; who takes the last descriptor away looks for pins afterwards. One of the two sees the
 * other. A file ends when it has neither.
 *
 * A few placeholders of closed files are kept in stock with their descriptions, so that the usual
 * open and close of a program cost no system call. Only such as no other process can have: not
 * after fork(), and none while a child of posix_spawn() is on its way.
 *
 * An orphan (unlinked, still open) lives at the servers by the handles of processes. After fork()
 * the child has none until it first uses the descriptor; so a parent that closes a file which
 * others still have keeps its handle `lingering` until the description is nobody's any more or
 * this process ends.
 */
#include "clients/preload/files.h"

#include "clients/preload/raw.h"
#include "clients/preload/spawned.h"
#include "clients/preload/table.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define STOCK_MAX       4
#define LINGERING_MAX   64
#define LOCK_SPINS      32
#define LOCK_TRIES_LOOK 1024 /* then look now and then whether the holder lives */
#define LOCK_NAP_NS     100000
#define PATH_FLAGS      (O_PATH | O_DIRECTORY | O_NOFOLLOW) /* that O_PATH leaves of open(2)'s */
#define OPEN_FLAGS      (O_CLOEXEC | O_CREAT | O_EXCL | O_TRUNC | O_NOCTTY) /* that none keeps */
#define MAX_STD_FD      2 /* never kept in stock: programs close one of these to get it again */

struct stock {
    int fd; /* kept open, marked FS_SPARE */
    uint32_t index;
    bool is_cloexec;
};

struct lingering {
    struct causeway_file *open_file;
    uint32_t index;
    unsigned generation;
};

_Atomic(uint32_t) files_map[FILES_FD_MAX];

static struct file files[FILES_OPEN_MAX]; /* by index */
static struct file *live;
static int fd_top = -1; /* no descriptor above it was ever ours */
static pid_t own_pid;
static pthread_mutex_t files_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct stock stocks[STOCK_MAX];
static uint32_t stock_count;
static uint32_t spawn_count; /* posix_spawn() under way */
static struct lingering lingering[LINGERING_MAX];
static uint32_t lingering_count;
static bool is_prepared; /* for fork() */

/* Enters, and takes the mutex if there can be another thread. */
static bool
tables_lock(void)
{
    const bool is_locked = !__libc_single_threaded;

    fs_enter();
    if (is_locked) {
        (void)pthread_mutex_lock(&files_mutex);
    }
    return is_locked;
}

static void
tables_unlock(bool is_locked)
{
    if (is_locked) {
        (void)pthread_mutex_unlock(&files_mutex);
    }
    fs_leave();
}

uint32_t
files_index(const struct file *file)
{
    return (uint32_t)(file - files);
}

static uint32_t
mapped_of(int fd)
{
    return (unsigned)fd < FILES_FD_MAX ? atomic_load_explicit(&files_map[fd], memory_order_relaxed)
                                       : 0;
}

static struct file *
file_of(uint32_t mapped)
{
    return &files[(mapped & FILES_INDEX_MASK) - 1];
}

static uint32_t
mapped_to(uint32_t index, bool is_cloexec)
{
    return (index + 1) | (is_cloexec ? FILES_CLOEXEC : 0);
}

/* ---- posix_spawn()'s child ---- */

/* What @fd is to it. */
static uint32_t
spawn_mapped(const struct spawn *spawn, int fd)
{
    for (uint32_t i = spawn->fd_count; i-- > 0;) {
        if (spawn->fds[i].fd == fd) {
            return spawn->fds[i].mapped;
        }
    }
    return 0;
}

static void
spawn_note(struct spawn *spawn, int fd, uint32_t mapped)
{
    if (spawn->fd_count < spawn->fd_room) {
        spawn->fds[spawn->fd_count++] = (struct spawn_fd){.fd = fd, .mapped = mapped};
    }
}

/* Fills in spawn->survivors. The kernel knows what closefrom() did. */
static void
spawn_find_survivors(struct spawn *spawn)
{
    memset(spawn->survivors, 0, sizeof(spawn->survivors));
    for (uint32_t i = 0; i < spawn->fd_count; i++) {
        const uint32_t index = (spawn->fds[i].mapped & FILES_INDEX_MASK) - 1;
        bool is_current = spawn->fds[i].mapped != 0;

        for (uint32_t k = i < spawn->inherited_count ? spawn->inherited_count : i + 1;
             k < spawn->fd_count && is_current; k++) {
            is_current = spawn->fds[k].fd != spawn->fds[i].fd;
        }
        if (is_current && RAW(fcntl, spawn->fds[i].fd, F_GETFD) == 0) {
            spawn->survivors[index / 64] |= UINT64_C(1) << index % 64;
        }
    }
}

/* ---- files of this process ---- */

static void
file_begin(struct file *file)
{
    file->description = table_description(files_index(file));
    file->parked_fd = -1;
    file->is_live = true;
    file->may_be_known = spawn_count != 0;
    file->has_locks = false;
    file->path = NULL;
    file->next = live;
    file->link = &live;
    if (live != NULL) {
        live->link = &file->next;
    }
    live = file;
}

static void
map_fd(int fd, struct file *file, bool is_cloexec)
{
    (void)atomic_fetch_add(&file->fd_count, 1);
    atomic_store(&files_map[fd], mapped_to(files_index(file), is_cloexec));
    fd_top = fd > fd_top ? fd : fd_top;
}

/*
 * The last descriptor of this process is gone, and no call uses it; the mutex is held. With
 * `keep_description` the description stays ours: a placeholder in stock has it. Returns what is to
 * be closed at the servers, after the mutex is let go, or NULL.
 */
static struct causeway_file *
file_end(struct file *file, bool keep_description)
{
    struct causeway_file *open_file =
        atomic_exchange_explicit(&file->open_file, NULL, memory_order_relaxed);
    const uint32_t index = files_index(file);

    file->is_live = false;
    *file->link = file->next;
    if (file->next != NULL) {
        file->next->link = file->link;
    }
    free(file->path);
    file->path = NULL;
    if (file->parked_fd >= 0) {
        fs_mark_set(file->parked_fd, FS_PROGRAMS);
        (void)RAW(close, file->parked_fd);
    }
    if (keep_description) {
        return open_file;
    }
    const bool has_others = atomic_load(&file->description->reference_count) > 1;
    const unsigned generation = atomic_load(&file->description->generation);

    table_drop(index);
    if (has_others && open_file != NULL && lingering_count < LINGERING_MAX) {
        lingering[lingering_count++] =
            (struct lingering){.open_file = open_file, .index = index, .generation = generation};
        return NULL;
    }
    return open_file;
}

/* A lingering file that nobody needs any more, taken off the list; or NULL. The mutex is held. */
static struct causeway_file *
lingering_take(void)
{
    for (uint32_t i = 0; i < lingering_count; i++) {
        const struct description *description = table_description(lingering[i].index);

        if (atomic_load(&description->reference_count) == 0 ||
            atomic_load(&description->generation) != lingering[i].generation) {
            struct causeway_file *open_file = lingering[i].open_file;

            lingering[i] = lingering[--lingering_count];
            return open_file;
        }
    }
    return NULL;
}

static void
close_at_servers(struct causeway_file *open_file)
{
    if (open_file != NULL) {
        fs_enter();
        causeway_close(open_file);
        fs_leave();
    }
}

/* ---- stock ---- */

static void
stock_remove(uint32_t at)
{
    fs_mark_set(stocks[at].fd, FS_PROGRAMS);
    table_drop(stocks[at].index);
    stocks[at] = stocks[--stock_count];
}

static void
stock_drop_all(void)
{
    while (stock_count != 0) {
        (void)RAW(close, stocks[stock_count - 1].fd);
        stock_remove(stock_count - 1);
    }
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
    fs_mark_set(taken.fd, FS_PROGRAMS);
    if (taken.is_cloexec != is_cloexec) {
        (void)RAW(fcntl, taken.fd, F_SETFD, is_cloexec ? FD_CLOEXEC : 0);
    }
    (void)atomic_fetch_add_explicit(&table_description(taken.index)->generation, 1,
                                    memory_order_relaxed);
    *index_out = taken.index;
    return taken.fd;
}

/* Puts the placeholder of a file that ends into stock, if it may be. */
static bool
stock_put(int fd, uint32_t mapped)
{
    const struct file *file = file_of(mapped);

    if (stock_count == STOCK_MAX || fd <= MAX_STD_FD || file->may_be_known || spawn_count != 0 ||
        S_ISDIR(file->description->mode)) {
        return false;
    }
    stocks[stock_count++] = (struct stock){
        .fd = fd, .index = files_index(file), .is_cloexec = (mapped & FILES_CLOEXEC) != 0};
    fs_mark_set(fd, FS_SPARE);
    return true;
}

/* ---- open ---- */

static int
take_placeholder(bool is_cloexec, bool is_dir, uint32_t *index_out)
{
    int fd = is_dir ? -1 : stock_take(is_cloexec, index_out);

    if (fd < 0) {
        fd = table_placeholder(is_cloexec, is_dir, index_out);
    }
    if (fd == -EMFILE && stock_count != 0) {
        stock_drop_all(); /* it is a directory's that we want */
        fd = table_placeholder(is_cloexec, is_dir, index_out);
    }
    return fd;
}

/* Its placeholder was closed behind our back, or its index would not have been given out. */
static struct causeway_file *
end_stale(struct file *file)
{
    for (int fd = 0; fd <= fd_top; fd++) {
        if ((mapped_of(fd) & FILES_INDEX_MASK) == files_index(file) + 1) {
            atomic_store(&files_map[fd], 0);
        }
    }
    atomic_store(&file->fd_count, 0);
    return file_end(file, true); /* the description is the new file's */
}

static void
describe(uint32_t index, const struct causeway_file *open_file, int flags)
{
    struct description *description = table_description(index);

    description->fid = causeway_file_fid(open_file);
    description->mode = (uint32_t)causeway_file_mode(open_file);
    description->offset = 0;
    atomic_store_explicit(&description->lock, 0, memory_order_relaxed);
    atomic_store_explicit(&description->flags,
                          (unsigned)(flags & ((flags & O_PATH) != 0 ? PATH_FLAGS : ~OPEN_FLAGS)),
                          memory_order_relaxed);
}

int
files_install(struct causeway_file *open_file, int flags, const char *path)
{
    const bool is_cloexec = (flags & O_CLOEXEC) != 0;
    const bool is_dir = S_ISDIR(causeway_file_mode(open_file));
    struct spawn *spawn = spawn_current();
    struct causeway_file *to_close = NULL;
    uint32_t index = 0;
    const bool is_locked = tables_lock();
    int fd = table_ready();

    if (fd == 0) {
        fd = take_placeholder(is_cloexec, is_dir, &index);
    }
    if (fd >= 0) {
        describe(index, open_file, flags);
    }
    if (fd >= 0 && spawn != NULL) {
        /* Of the child's descriptors, not of ours. The new program opens it at the servers again.
         */
        spawn_note(spawn, fd, mapped_to(index, is_cloexec));
    } else if (fd >= 0) {
        struct file *file = &files[index];

        if (__builtin_expect(file->is_live, 0)) {
            to_close = end_stale(file);
        }
        file_begin(file);
        file->path = path != NULL && path[0] != '\0' ? strdup(path) : NULL;
        atomic_store_explicit(&file->open_file, open_file, memory_order_release);
        map_fd(fd, file, is_cloexec);
        open_file = NULL;
    }
    if (__builtin_expect(lingering_count != 0 && spawn == NULL && to_close == NULL, 0)) {
        to_close = lingering_take();
    }
    tables_unlock(is_locked);
    close_at_servers(open_file);
    close_at_servers(to_close);
    fs_child_end();
    return fd;
}

/* ---- use ---- */

static void
pin(struct file *file)
{
    if (__libc_single_threaded) {
        atomic_store_explicit(&file->pin_count,
                              atomic_load_explicit(&file->pin_count, memory_order_relaxed) + 1,
                              memory_order_relaxed);
    } else {
        (void)atomic_fetch_add(&file->pin_count, 1);
    }
}

/* The last pin of a file without descriptors is gone. */
static void
unpinned(struct file *file)
{
    struct causeway_file *to_close = NULL;
    const bool is_locked = tables_lock();

    if (file->is_live && atomic_load(&file->fd_count) == 0 && atomic_load(&file->pin_count) == 0) {
        to_close = file_end(file, false);
    }
    tables_unlock(is_locked);
    close_at_servers(to_close);
}

static void
unpin(struct file *file)
{
    unsigned before = 0;

    if (__libc_single_threaded) {
        before = atomic_load_explicit(&file->pin_count, memory_order_relaxed);
        atomic_store_explicit(&file->pin_count, before - 1, memory_order_relaxed);
    } else {
        before = atomic_fetch_sub(&file->pin_count, 1);
    }
    if (__builtin_expect(before == 1 && atomic_load(&file->fd_count) == 0, 0)) {
        unpinned(file);
    }
}

struct file *
files_peek(int fd)
{
    uint32_t mapped = 0;

    fs_enter();
    while ((mapped = mapped_of(fd)) != 0) {
        struct file *file = file_of(mapped);

        pin(file);
        if (__builtin_expect(((mapped_of(fd) ^ mapped) & FILES_INDEX_MASK) == 0, 1)) {
            return file;
        }
        unpin(file);
    }
    fs_leave();
    return NULL;
}

static int
open_at_servers(struct file *file)
{
    struct description *description = file->description;
    struct causeway_file *open_file = NULL;
    struct causeway_file *none = NULL;
    int rc = 0;
    struct causeway *fs = fs_get(&rc);

    if (fs == NULL) {
        return rc;
    }
    rc = causeway_open_fid(fs, &description->fid,
                           (int)files_flags(file) &
                               (O_ACCMODE | O_APPEND | O_PATH | O_DIRECTORY | O_SYNC | O_DSYNC),
                           &open_file);
    if (rc == 0 && !atomic_compare_exchange_strong(&file->open_file, &none, open_file)) {
        causeway_close(open_file); /* another thread was faster */
    }
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
    if (__builtin_expect(files_open_file(file) == NULL, 0)) {
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
    unpin(file);
    fs_leave();
}

void
files_lock(struct file *file)
{
    struct description *description = file->description;
    const struct timespec nap = {.tv_nsec = LOCK_NAP_NS};
    unsigned tries = 0;
    unsigned holder = 0;

    while (!atomic_compare_exchange_weak_explicit(&description->lock, &holder, (unsigned)own_pid,
                                                  memory_order_acquire, memory_order_relaxed)) {
        tries++;
        if (tries % LOCK_TRIES_LOOK == 0 && holder != 0 && table_is_dead((pid_t)holder)) {
            /* The holder was killed in between: the offset is whatever it had got to. */
            if (atomic_compare_exchange_strong(&description->lock, &holder, (unsigned)own_pid)) {
                return;
            }
        } else if (tries > LOCK_TRIES_LOOK) {
            (void)RAW(nanosleep, &nap, NULL);
        } else if (tries > LOCK_SPINS) {
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

/* ---- close ---- */

/* The locks that @owner has on the whole file, from before what fcntl() can name to behind it. */
static void
unlock_all(struct file *file, uint64_t owner)
{
    struct causeway_lock lock = {.owner = owner, .start = 0, .end = UINT64_MAX, .type = F_UNLCK};

    (void)causeway_lock(files_open_file(file), &lock, false);
}

/*
 * Before the descriptor @fd of a file with locks is closed: who asks for them right after must get
 * them. POSIX: any close of the file by the process ends the process's.
 */
static void
unlock_ranges(int fd)
{
    struct file *file = files_peek(fd);

    if (file == NULL) {
        return;
    }
    if (file->has_locks && files_open_file(file) != NULL) {
        unlock_all(file, (uint64_t)own_pid);
        if (atomic_load(&file->fd_count) == 1) {
            unlock_all(file, FILES_OFD_OWNER | files_index(file));
        }
    }
    files_put(file);
}

/*
 * Drops one descriptor; the mutex is held. *kept is a copy of its placeholder, or -1; it is taken
 * and -1 if calls of other threads go on with the file: the lock on its index must live as long.
 * *stocked_out: the placeholder itself went into stock. Returns what is to be closed at the
 * servers, or NULL.
 */
static struct causeway_file *
drop_fd(int fd, int *kept, bool *stocked_out)
{
    const uint32_t mapped = atomic_exchange(&files_map[fd], 0);
    const bool is_closing = stocked_out != NULL;

    if (mapped == 0) {
        return NULL;
    }
    struct file *file = file_of(mapped);
    if (atomic_fetch_sub(&file->fd_count, 1) != 1) {
        return NULL;
    }
    if (atomic_load(&file->pin_count) != 0) {
        file->parked_fd = is_closing ? fs_keep(fd) : *kept;
        *kept = -1;
        return NULL;
    }
    const bool is_stocked = is_closing && stock_put(fd, mapped);
    if (is_closing) {
        *stocked_out = is_stocked;
    }
    return file_end(file, is_stocked);
}

static bool
has_locks(int fd)
{
    const uint32_t mapped = mapped_of(fd);

    return mapped != 0 && file_of(mapped)->has_locks;
}

int
files_close(int fd)
{
    bool is_stocked = false;
    int kept = -1;

    struct spawn *spawn = spawn_current();

    if (__builtin_expect(spawn != NULL, 0)) {
        spawn_note(spawn, fd, 0);
        return (int)RAW(close, fd);
    }
    if (__builtin_expect(has_locks(fd), 0)) {
        unlock_ranges(fd);
    }
    const bool is_locked = tables_lock();
    const bool is_ours = files_has(fd);
    struct causeway_file *to_close = is_ours ? drop_fd(fd, &kept, &is_stocked) : NULL;
    if (is_ours && !is_stocked) {
        (void)RAW(close, fd); /* under the mutex: the number may be ours again right after */
    }
    tables_unlock(is_locked);
    close_at_servers(to_close);
    return is_ours ? 0 : (int)raw_result(-EBADF);
}

static void
stock_forget(int fd)
{
    for (uint32_t i = 0; i < stock_count; i++) {
        if (stocks[i].fd == fd) {
            stock_remove(i);
            return;
        }
    }
}

/* @fd is no more what it was. *kept as for drop_fd(). */
static void
forget(int fd, int *kept)
{
    struct causeway_file *to_close = NULL;

    if (!files_has(fd) && fs_mark_of(fd) != FS_SPARE) {
        return;
    }
    const bool is_locked = tables_lock();
    if (fs_mark_of(fd) == FS_SPARE) {
        stock_forget(fd);
    }
    if (files_has(fd)) {
        to_close = drop_fd(fd, kept, NULL);
    }
    tables_unlock(is_locked);
    close_at_servers(to_close);
}

void
files_forget(int fd)
{
    int kept = -1;

    struct spawn *spawn = spawn_current();

    if (spawn != NULL) {
        spawn_note(spawn, fd, 0);
    } else {
        forget(fd, &kept);
    }
}

int
files_replace_begin(int to)
{
    if (spawn_current() != NULL || !files_has(to)) {
        return -1;
    }
    if (has_locks(to)) {
        unlock_ranges(to);
    }
    const int kept = fs_keep(to);
    return kept >= 0 ? kept : -EMFILE;
}

void
files_replace_end(int to, int kept, bool is_done)
{
    if (is_done && spawn_current() == NULL) {
        forget(to, &kept);
    }
    if (kept >= 0) {
        fs_mark_set(kept, FS_PROGRAMS);
        (void)RAW(close, kept);
    }
}

void
files_copied(int from, int to, bool is_cloexec)
{
    struct spawn *spawn = spawn_current();

    if (__builtin_expect(spawn != NULL, 0)) {
        const uint32_t mapped = spawn_mapped(spawn, from) & FILES_INDEX_MASK;

        spawn_note(spawn, to, mapped | (is_cloexec && mapped != 0 ? FILES_CLOEXEC : 0));
        return;
    }
    if (!files_has(from) || (unsigned)to >= FILES_FD_MAX) {
        return;
    }
    const bool is_locked = tables_lock();
    const uint32_t mapped = mapped_of(from);
    if (mapped != 0) {
        map_fd(to, file_of(mapped), is_cloexec);
    }
    tables_unlock(is_locked);
}

void
files_cloexec_set(int fd, bool is_cloexec)
{
    uint32_t mapped = mapped_of(fd);

    if (spawn_current() != NULL) {
        return; /* spawn_survives() asks the kernel */
    }
    while (mapped != 0 && !atomic_compare_exchange_weak(&files_map[fd], &mapped,
                                                        (mapped & FILES_INDEX_MASK) |
                                                            (is_cloexec ? FILES_CLOEXEC : 0))) {
    }
}

void
files_cloexec_range(unsigned first, unsigned last)
{
    for (int fd = (int)first; fd <= fd_top && (unsigned)fd <= last; fd++) {
        files_cloexec_set(fd, true);
    }
}

void
files_close_range(unsigned first, unsigned last)
{
    if (spawn_current() != NULL) {
        return; /* likewise */
    }
    for (int fd = (int)first; fd <= fd_top && (unsigned)fd <= last; fd++) {
        if (files_has(fd)) {
            (void)files_close(fd);
        }
    }
    const bool is_locked = tables_lock();
    stock_drop_all();
    tables_unlock(is_locked);
}

/* ---- start, fork, exec, end ---- */

void
files_adopt(int fd)
{
    const long index = (unsigned)fd < FILES_FD_MAX ? table_index_of(fd) : -1;

    if (index < 0) {
        return;
    }
    const bool is_locked = tables_lock();
    struct file *file = &files[index];
    if (!file->is_live) {
        file_begin(file);
        if (atomic_load(&file->description->reference_count) == 0) {
            table_take((uint32_t)index);
        }
    }
    file->may_be_known = true;
    map_fd(fd, file, ((int)RAW(fcntl, fd, F_GETFD) & FD_CLOEXEC) != 0);
    tables_unlock(is_locked);
}

void
files_pass(int fd)
{
    struct file *file = files_peek(fd);

    if (file != NULL) {
        file->may_be_known = true;
        files_put(file);
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

    own_pid = (pid_t)RAW(getpid, 0);
    if (!table_inherit()) {
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
                files_adopt((int)strtol(entry->d_name, NULL, 10));
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
    is_prepared = fs_depth == 0;
    if (is_prepared) {
        (void)pthread_mutex_lock(&files_mutex);
    }
    for (struct file *file = live; file != NULL; file = file->next) {
        table_take(files_index(file));
        file->may_be_known = true;
    }
}

void
files_fork_parent(void)
{
    if (is_prepared) {
        (void)pthread_mutex_unlock(&files_mutex);
    }
}

/* In a child: what was the parent's alone. */
static void
let_go(void)
{
    own_pid = (pid_t)RAW(getpid, 0);
    (void)pthread_mutex_init(&files_mutex, NULL);
    for (uint32_t i = 0; i < stock_count; i++) {
        fs_mark_set(stocks[i].fd, FS_PROGRAMS);
        (void)RAW(close, stocks[i].fd);
    }
    stock_count = 0;
    lingering_count = 0;
    spawn_count = 0;
    spawn_child = NULL;
}

void
files_fork_child(void)
{
    struct file *next = NULL;

    let_go();
    /* The parent's handles died with causeway_fork_child(). */
    for (struct file *file = live; file != NULL; file = next) {
        next = file->next;
        atomic_store(&file->open_file, NULL);
        file->has_locks = false;
        atomic_store(&file->pin_count, 0);
        if (atomic_load(&file->fd_count) == 0) {
            (void)file_end(file, false); /* another thread's call used it, in the parent */
        }
    }
}

/*
 * The parent does not know that these are shared and may have given their indices out again from
 * its stock. They are not counted, so there is nothing to give up.
 */
void
files_forked_unseen(void)
{
    let_go();
    for (int fd = 0; fd <= fd_top; fd++) {
        if (atomic_exchange(&files_map[fd], 0) != 0) {
            (void)RAW(close, fd);
        }
    }
    for (struct file *file = live; file != NULL; file = file->next) {
        file->is_live = false;
        atomic_store(&file->open_file, NULL);
        atomic_store(&file->pin_count, 0);
        atomic_store(&file->fd_count, 0);
        file->path = NULL;
    }
    live = NULL;
}

/* Gives up, or takes again, the descriptions that exec ends in posix_spawn()'s child. */
static void
spawn_exec_count(struct spawn *spawn, void (*change)(uint32_t index))
{
    spawn_find_survivors(spawn);
    for (uint32_t i = 0; i < spawn->inherited_count; i++) {
        const uint32_t index = (spawn->fds[i].mapped & FILES_INDEX_MASK) - 1;
        const uint64_t bit = UINT64_C(1) << index % 64;

        if ((spawn->survivors[index / 64] & bit) == 0) {
            spawn->survivors[index / 64] |= bit; /* once is enough */
            change(index);
        }
    }
}

/* The same in this process; the mutex is held. */
static void
exec_count(void (*change)(uint32_t index))
{
    static uint64_t survivors[FILES_OPEN_MAX / 64];

    memset(survivors, 0, sizeof(survivors));
    for (int fd = 0; fd <= fd_top; fd++) {
        const uint32_t mapped = mapped_of(fd);

        if (mapped != 0 && (mapped & FILES_CLOEXEC) == 0) {
            survivors[(mapped - 1) / 64] |= UINT64_C(1) << (mapped - 1) % 64;
        }
    }
    for (struct file *file = live; file != NULL; file = file->next) {
        const uint32_t index = files_index(file);

        if ((survivors[index / 64] >> index % 64 & 1) == 0) {
            change(index);
        }
    }
}

void
files_exec_prepare(void)
{
    struct spawn *spawn = spawn_current();

    if (!table_is_there()) {
        return;
    }
    if (spawn != NULL) {
        table_restore(spawn->parent);
        spawn_exec_count(spawn, table_drop);
        return;
    }
    const bool is_locked = tables_lock();
    stock_drop_all(); /* they must not survive as open files */
    exec_count(table_drop);
    tables_unlock(is_locked);
}

void
files_exec_failed(void)
{
    struct spawn *spawn = spawn_current();
    const int error = errno;

    if (!table_is_there()) {
        return;
    }
    if (spawn != NULL) {
        spawn_exec_count(spawn, table_take);
    } else {
        const bool is_locked = tables_lock();

        exec_count(table_take);
        tables_unlock(is_locked);
    }
    errno = error;
}

void
files_exit(void)
{
    if (!table_is_there() || spawn_current() != NULL) {
        return;
    }
    for (struct file *file = live; file != NULL; file = file->next) {
        if (file->has_locks && files_open_file(file) != NULL && fs_depth == 0) {
            fs_enter(); /* our parent, which waits for us, may want them */
            unlock_all(file, (uint64_t)own_pid);
            unlock_all(file, FILES_OFD_OWNER | files_index(file));
            fs_leave();
        }
        table_drop(files_index(file));
    }
    live = NULL;
    for (uint32_t i = 0; i < stock_count; i++) {
        table_drop(stocks[i].index);
    }
    stock_count = 0;
}

/* ---- around posix_spawn() ---- */

uint32_t
files_spawn_room(void)
{
    uint32_t count = 2 * SPAWN_ROOM; /* others may open a few until it begins */

    for (int fd = 0; fd <= fd_top; fd++) {
        count += mapped_of(fd) != 0 ? 1 : 0;
    }
    return count;
}

/* For each description that the child inherits, once. */
static void
spawn_inherit(struct spawn *spawn, void (*change)(uint32_t index))
{
    memset(spawn->survivors, 0, sizeof(spawn->survivors));
    for (uint32_t i = 0; i < spawn->inherited_count; i++) {
        const uint32_t index = (spawn->fds[i].mapped & FILES_INDEX_MASK) - 1;
        const uint64_t bit = UINT64_C(1) << index % 64;

        if ((spawn->survivors[index / 64] & bit) == 0) {
            spawn->survivors[index / 64] |= bit;
            change(index);
        }
    }
}

void
files_spawn_begin(struct spawn *spawn)
{
    const bool is_locked = tables_lock();

    spawn_count++;
    stock_drop_all();
    for (struct file *file = live; file != NULL; file = file->next) {
        file->may_be_known = true;
    }
    for (int fd = 0; fd <= fd_top; fd++) {
        const uint32_t mapped = mapped_of(fd);

        if (mapped != 0 && spawn->fd_count + SPAWN_ROOM < spawn->fd_room) {
            spawn->fds[spawn->fd_count++] = (struct spawn_fd){.fd = fd, .mapped = mapped};
        }
    }
    spawn->inherited_count = spawn->fd_count;
    spawn_inherit(spawn, table_take);
    tables_unlock(is_locked);
}

void
files_spawn_end(struct spawn *spawn, bool has_failed)
{
    const bool is_locked = tables_lock();

    spawn_count--;
    if (has_failed) {
        spawn_inherit(spawn, table_drop);
    }
    tables_unlock(is_locked);
}
