/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mounted file system behind the hooks: mounted by the first call that needs it, again after
 * fork(); and which numbers of descriptors are not the program's.
 *
 * Descriptors that the client makes for itself are moved to high numbers, out of the program's way.
 * Those and the placeholders in stock (files.c) are *marked*: to the program they are not open.
 *
 * Between fs_enter() and fs_leave() a thread is *inside*: descriptors made there are the client's,
 * and handlers of signals wait until it leaves (signals.c), so that a handler may do whatever it
 * may do elsewhere.
 */
#pragma once

#include <causeway/client.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FS_TLS __attribute__((tls_model("initial-exec")))

/* How deep this thread is inside, and errno as it was outside: a call that succeeds leaves it. */
extern __thread volatile int fs_depth FS_TLS;
extern __thread int fs_errno FS_TLS;

/* Signals that came meanwhile, bit (number - 1). */
extern __thread volatile uint64_t fs_deferred FS_TLS;

/* 0 in a child that was made behind our back, by clone(2) or _Fork(). */
extern const volatile uint32_t *fs_canary;
void fs_forked_unseen(void);

/* Runs the handlers of fs_deferred; signals.c. */
void fs_signals_deliver(void);

/* This thread goes inside. */
static inline void
fs_enter(void)
{
    if (fs_depth++ == 0) {
        fs_errno = errno;
    }
    if (__builtin_expect(*fs_canary == 0, 0)) {
        fs_forked_unseen();
    }
}

/* And comes out; what was put off meanwhile is done. */
static inline void
fs_leave(void)
{
    const int depth = fs_depth - 1;

    if (depth == 0) {
        errno = fs_errno;
    }
    fs_depth = depth;
    if (__builtin_expect(depth == 0 && fs_deferred != 0, 0)) {
        fs_signals_deliver();
    }
}

/* Makes a call into the client. */
#define FS_CALL(expression)                           \
    __extension__({                                   \
        fs_enter();                                   \
        __typeof__(expression) fs_rc_ = (expression); \
        fs_leave();                                   \
        fs_rc_;                                       \
    })

/* Reads the environment. Returns false if this process has no file system to go to. */
bool fs_init(void);

/* Where the program sees the root, such as "/causeway", and its length. */
extern char fs_prefix[256];
extern size_t fs_prefix_bytes;

/* Is there a file system to go to? */
static inline bool
fs_is_on(void)
{
    return fs_prefix_bytes != 0;
}

/* The file system, mounted; NULL with *error_out a negative errno. */
struct causeway *fs_get(int *error_out);

/* Ends it. */
void fs_exit(void);

/*
 * In a child of posix_spawn(), which has a mount of its own as its parent has not its descriptors:
 * ends that, before the child execs, ends, or closes descriptors behind our back.
 */
void fs_child_end(void);

/* Before fork(), in the parent: nobody is mounting or in the middle of a call meanwhile. */
void fs_fork_prepare(void);

/* After fork(), in the parent. */
void fs_fork_parent(void);

/* After fork(), in the child: lets go of the parent's mount; the next call mounts anew. */
void fs_fork_child(void);

/* ---- numbers that are not the program's ---- */

#define FS_MARKS 65536

enum fs_mark {
    FS_PROGRAMS = 0,
    FS_CLIENTS = 1, /* the client's own */
    FS_SPARE = 2,   /* a placeholder in stock */
};

extern unsigned char fs_marks[FS_MARKS]; /* enum fs_mark */

/* Whose @fd is. */
static inline enum fs_mark
fs_mark_of(int fd)
{
    return (unsigned)fd < FS_MARKS ? (enum fs_mark)fs_marks[fd] : FS_PROGRAMS;
}

/* Says so. */
static inline void
fs_mark_set(int fd, enum fs_mark mark)
{
    if ((unsigned)fd < FS_MARKS) {
        fs_marks[fd] = (unsigned char)mark;
    }
}

/* A descriptor that the client just made: moves it up and marks it. Returns its new number. */
int fs_claim(int fd);

/* A copy of @fd for ourselves, out of the way. Returns it, or -1 and errno. */
int fs_keep(int fd);

/* As fs_claim(), at the number @wanted, and not closed by exec, if that number can be had. */
int fs_claim_at(int fd, int wanted);

/* Makes room for one more descriptor beyond the program's limit, if that may be. Returns whether,
 * and *old_out for fs_limit_lower(). */
struct rlimit;
bool fs_limit_raise(struct rlimit *old_out);
void fs_limit_lower(const struct rlimit *old);
