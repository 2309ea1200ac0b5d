/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * posix_spawn(), and with it system() and popen().
 *
 * libc makes the child by clone(CLONE_VM | CLONE_VFORK): until it execs it runs in our memory, with
 * this thread's thread-local variables, while this thread sleeps and others go on. Its descriptors
 * and its working directory are its own. So what it does to them is noted in a struct spawn and
 * not in our tables.
 */
#pragma once

#include "clients/preload/files.h"

#include <limits.h>
#include <sys/types.h>

#define SPAWN_ROOM 64 /* descriptors that file actions make; more lose their files */

struct spawn_fd {
    int fd;
    uint32_t mapped; /* as files_map; 0: closed or the kernel's */
};

struct spawn {
    pid_t parent;
    struct causeway *fs;   /* the child's own mount */
    bool is_shell_refused; /* exec said ENOEXEC: the old posix_spawn() would try a shell */
    bool has_cwd;          /* it changed its working directory */
    bool is_cwd_ours;
    struct causeway_fid cwd_fid;
    char cwd_path[PATH_MAX];
    void *exec_memory; /* the child's, for its parent to unmap */
    size_t exec_bytes;
    uint64_t survivors[FILES_OPEN_MAX / 64]; /* bit per description */
    uint32_t fd_count, fd_room;
    uint32_t inherited_count; /* the first of fds: what the parent had, counted for the child */
    struct spawn_fd fds[];    /* the others, SPAWN_ROOM at most, came later and stand before them */
};

/* Of the thread that is in posix_spawn(), and of its child. */
extern __thread struct spawn *spawn_child FS_TLS;

/* In the child: what is noted. NULL elsewhere, also in a handler of a signal in the parent. */
struct spawn *spawn_if_child(void);
static inline struct spawn *
spawn_current(void)
{
    return __builtin_expect(spawn_child == NULL, 1) ? NULL : spawn_if_child();
}

/* Finds libc's own function behind posix_spawn(). Returns false if it is not as expected. */
bool spawn_init(void);
