/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mounted file system behind the hooks: mounted by the first call that needs it, again after
 * fork().
 *
 * Descriptors that the client makes for itself are moved to high numbers, out of the program's way,
 * and hooks protect them: `fs_is_internal()`.
 */
#pragma once

#include <causeway/client.h>
#include <stdbool.h>

/* Depth of calls into the client in this thread: hooks know by it whose descriptors are being made.
 */
extern __thread int fs_depth __attribute__((tls_model("initial-exec")));

/* Makes a call into the client. */
#define FS_CALL(expression)                           \
    __extension__({                                   \
        fs_depth++;                                   \
        __typeof__(expression) fs_rc_ = (expression); \
        fs_depth--;                                   \
        fs_rc_;                                       \
    })

/* Reads the environment. Returns false if this process has no file system to go to. */
bool fs_init(void);

/* Where the program sees the root, such as "/causeway", and its length. */
extern char fs_prefix[256];
extern size_t fs_prefix_bytes;

/* The file system, mounted; NULL with *error_out a negative errno. */
struct causeway *fs_get(int *error_out);

/* The file system if it is mounted, else NULL. */
struct causeway *fs_mounted(void);

/* Ends it. */
void fs_exit(void);

/*
 * In a child of posix_spawn(), before it execs, exits or may close its descriptors behind our back:
 * ends the mount that it has of its own.
 */
void fs_child_end(void);

/* Before fork(), in the parent: nobody is mounting meanwhile. */
void fs_fork_prepare(void);

/*
 * Then, with the files' tables locked, which threads lock before they call the client: no other
 * thread is in the middle of a step of the client meanwhile.
 */
void fs_fork_hold(void);

/* After fork(), in the parent. */
void fs_fork_parent(void);

/* After fork(), in the child: lets go of the parent's mount; the next call mounts anew. */
void fs_fork_child(void);

/* A descriptor that the client just made: moves it up and remembers it. Returns its new number. */
int fs_claim(int fd);

/* The client closed it. */
void fs_unclaim(int fd);

/* Is @fd one of the client's own? */
bool fs_is_internal(int fd);
