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
 * table that children inherit by descriptor FILES_TABLE_FD. A process opens a FID at the servers
 * when it first needs it.
 */
#pragma once

#include <causeway/client.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FILES_FD_MAX   65536 /* descriptors above are never ours */
#define FILES_TABLE_FD 1000
#define FILES_OPEN_MAX 32768 /* descriptions in all processes of a table */

/* One open file description, in shared memory. */
struct description {
    atomic_uint reference_count; /* processes that have it; 0: free */
    atomic_uint lock;            /* the holder's pid; guards offset */
    atomic_uint flags;           /* open(2)'s */
    uint32_t mode;               /* type and permissions at open */
    struct causeway_fid fid;
    uint64_t offset; /* a directory: the cookie to go on from */
    uint64_t reserved[2];
};

/* This process's use of a description. */
struct file {
    struct description *description;
    struct file *next, **link;       /* of all live files */
    uint32_t index;                  /* of the description */
    uint32_t fd_count;               /* descriptors of this process */
    atomic_uint pin_count;           /* calls under way */
    bool has_locks;                  /* fcntl locks were taken through it */
    bool is_cloexec;                 /* its placeholder is, as files_install() left it */
    bool is_changed;                 /* ... and the program may have changed that since */
    struct causeway_file *open_file; /* NULL: not yet opened by this process */
    char *path;                      /* a directory's, for fchdir(); NULL: unknown */
};

/* Maps an inherited table, if there is one, and finds the inherited descriptors. */
void files_init(void);

/* The hot question: is @fd one of ours? */
extern uint32_t files_map[FILES_FD_MAX]; /* index + 1, 0: not ours */
static inline bool
files_has(int fd)
{
    return (unsigned)fd < FILES_FD_MAX && files_map[fd] != 0;
}

/*
 * Makes a descriptor for @open_file, which then belongs to it.
 * Returns the descriptor, or -ENFILE, -EMFILE, -ENOMEM with @open_file closed.
 */
int files_install(struct causeway_file *open_file, int flags, const char *path);

/* The file of descriptor @fd, opened at the servers, pinned; NULL with *error_out set. */
struct file *files_get(int fd, int *error_out);

/* The same without opening it: for what needs the description only. */
struct file *files_peek(int fd);
void files_put(struct file *file);

/* Locks and unlocks the offset. */
void files_lock(struct file *file);
void files_unlock(struct file *file);

/* As close(2), of a descriptor that is ours. */
int files_close(int fd);

/* @to became a copy of @from by the kernel (from is ours). */
void files_copied(int from, int to);

/* The program may have changed close-on-exec of @fd, which is ours. */
void files_changed(int fd);

/* The kernel closed or replaced @fd (dup2 onto it). */
void files_forget(int fd);

/* Is this the process that owns the tables, or a child that posix_spawn() made and that shares
 * them? */
bool files_is_owner(void);

/* Around fork(). */
void files_fork_prepare(void);
void files_fork_parent(void);
void files_fork_child(void);

/* Before exec: gives up the descriptions that close-on-exec will end; and takes them again if exec
 * failed. */
void files_exec_prepare(void);
void files_exec_failed(void);

/* At the end of the process: gives up all. */
void files_exit(void);

/* Calls fn(fd) for each of our descriptors from @first to @last. */
void files_each(unsigned first, unsigned last, void (*fn)(int fd));
