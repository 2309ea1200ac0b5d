/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors of files on Causeway.
 *
 * Each such descriptor is backed by a real one, the *placeholder*, so that numbers, dup(), fork(),
 * exec() and close-on-exec are the kernel's own. The placeholder is an empty, sealed memfd opened
 * for writing: what escapes the hooks fails (read EBADF, write EPERM, mmap EACCES) and touches
 * nothing. Its file position is never used for data: it holds the index of the file's
 * *description*, which is thus the same through every copy of the descriptor, in this process and
 * others.
 *
 * Descriptions (POSIX's "open file descriptions": FID, flags, offset) are in shared memory, in a
 * table that children inherit by descriptor. A process opens a FID at the servers when it first
 * needs it.
 *
 * Who has a description, the kernel knows: a placeholder holds a lock of its open file description
 * on the byte of the memfd that has the description's index, from before the index is given out
 * until the last copy in any process is closed, by whatever end. An index whose byte is locked is
 * never given out. Reference counts only say where to look, and what may be forgotten.
 *
 * files.c is this process's use of them; table.c the table and the placeholders.
 */
#pragma once

#include "clients/preload/fs.h"

#include <fcntl.h>

#define FILES_FD_MAX   65536 /* descriptors above are never ours */
#define FILES_OPEN_MAX 32768 /* descriptions in all processes of a table */

/* One open file description, in shared memory. */
struct description {
    atomic_uint reference_count; /* processes that have it; 0: free; see table.c */
    atomic_uint lock;            /* the holder's pid; guards offset */
    atomic_uint flags;           /* open(2)'s */
    uint32_t mode;               /* type and permissions at open */
    struct causeway_fid fid;
    uint64_t offset;        /* a directory: the cookie to go on from */
    atomic_uint generation; /* counts the opens that had it */
    uint32_t reserved[3];
};

/* This process's use of a description. Never freed, so that a thread may look at one that another
 * is closing. */
struct file {
    struct description *description;
    _Atomic(struct causeway_file *) open_file; /* NULL: not yet opened by this process */
    atomic_uint pin_count;                     /* calls under way */
    atomic_uint fd_count;                      /* descriptors of this process */
    struct file *next, **link;                 /* of all live files */
    char *path;        /* a directory's, as it was opened; NULL: unknown. A hint. */
    int parked_fd;     /* the placeholder of a file that calls still use, all closed; or -1 */
    bool is_live;      /* on the list */
    bool may_be_known; /* to another process, by its placeholder */
    bool has_locks;    /* fcntl locks were taken through it */
};

/* Maps an inherited table, if there is one, and finds the inherited descriptors. */
void files_init(void);

/*
 * The hot question: is @fd one of ours? What files_map holds for it: index + 1, and whether exec
 * closes it; 0: not ours.
 */
#define FILES_CLOEXEC    (UINT32_C(1) << 31)
#define FILES_INDEX_MASK (FILES_CLOEXEC - 1)
extern _Atomic(uint32_t) files_map[FILES_FD_MAX];
static inline bool
files_has(int fd)
{
    return (unsigned)fd < FILES_FD_MAX &&
           atomic_load_explicit(&files_map[fd], memory_order_relaxed) != 0;
}

/*
 * Makes a descriptor for @open_file, which then belongs to it.
 * Returns the descriptor, or -ENFILE, -EMFILE, -ENOMEM with @open_file closed.
 */
int files_install(struct causeway_file *open_file, int flags, const char *path);

/*
 * The file of descriptor @fd, opened at the servers, pinned, and the thread inside (fs_enter());
 * NULL with *error_out set.
 */
struct file *files_get(int fd, int *error_out);

/* The same without opening it: for what needs the description only. */
struct file *files_peek(int fd);

/* Ends the one or the other. */
void files_put(struct file *file);

/* What the client knows it by. Of files_get(). */
static inline struct causeway_file *
files_open_file(struct file *file)
{
    return atomic_load_explicit(&file->open_file, memory_order_acquire);
}

/* Its flags as of open(2). */
static inline unsigned
files_flags(const struct file *file)
{
    return atomic_load_explicit(&file->description->flags, memory_order_relaxed);
}

/* The number of its description. */
uint32_t files_index(const struct file *file);

/* Owners of locks that belong to a description: this and its number. Others are processes. */
#define FILES_OFD_OWNER (UINT64_C(1) << 63)

/* Locks and unlocks the offset. */
void files_lock(struct file *file);
void files_unlock(struct file *file);

/* As close(2), of a descriptor that is ours. */
int files_close(int fd);

/*
 * Around the kernel's dup2() onto @to: begin returns a descriptor that keeps its placeholder (-1:
 * it is not ours) or a negative errno below that; end takes it, if the kernel did it or not.
 */
int files_replace_begin(int to);
void files_replace_end(int to, int kept, bool is_done);

/* @to became a copy of @from by the kernel, whatever the two are. */
void files_copied(int from, int to, bool is_cloexec);

/* The kernel gave out @fd anew: it was closed behind our back. */
void files_forget(int fd);

/* Whether exec closes @fd, of ours. */
void files_cloexec_set(int fd, bool is_cloexec);

/* Close-on-exec for all of ours from @first to @last. */
void files_cloexec_range(unsigned first, unsigned last);

/* As close(2) for all of ours from @first to @last, those in stock too. */
void files_close_range(unsigned first, unsigned last);

/* A descriptor that came by another way than ours: is it a placeholder of our table? */
void files_adopt(int fd);

/* @fd goes to another process by another way than fork() and exec(). */
void files_pass(int fd);

/* Around fork(). */
void files_fork_prepare(void);
void files_fork_parent(void);
void files_fork_child(void);

/* In a child that was made without: closes what it inherited. */
void files_forked_unseen(void);

/* Before exec: gives up the descriptions that close-on-exec will end; and takes them again if exec
 * failed. */
void files_exec_prepare(void);
void files_exec_failed(void);

/* At the end of the process: gives up all. */
void files_exit(void);

/*
 * Around posix_spawn(). The child shares our memory but not our descriptors, until it execs: what
 * it does to them is noted in its parent's struct spawn. spawned.c.
 */
struct spawn;
uint32_t files_spawn_room(void); /* entries that a struct spawn should have room for */
void files_spawn_begin(struct spawn *spawn);
void files_spawn_end(struct spawn *spawn, bool has_failed);
