/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which paths are ours, and the virtual working directory.
 *
 * A path is ours if its text, read from the working directory, leads below the prefix: "." and ".."
 * are taken away lexically where they matter (in front of the prefix, or climbing out of it).
 *
 * While the working directory is on Causeway the kernel's is a place in /proc where nothing can be
 * found or made, so that a relative name that escapes the hooks fails.
 */
#pragma once

#include <causeway/client.h>
#include <limits.h>
#include <stdbool.h>

struct target {
    const struct causeway_fid *at; /* NULL: the root */
    struct causeway_fid at_fid;
    const char *path; /* from there, relative, "" for itself */
    char text[PATH_MAX];
};

/*
 * Returns 1: ours, *target says what; 0: the kernel's, by target->path from @dirfd (an absolute
 * path if the working directory is ours and the path climbs out of it); or a negative errno.
 */
int path_resolve(int dirfd, const char *path, struct target *target);

/* Takes the working directory that an exec'd program inherits. */
void path_init(void);

/* chdir(2) to a target of ours; @full: the path text that getcwd() will give. Returns 0 or an
 * errno. */
int path_enter(struct causeway *fs, const struct target *target);

/* fchdir(2) to a directory of ours whose path is known. */
int path_enter_dir(const struct causeway_fid *fid, const char *full);

/* The working directory became the kernel's. */
void path_leave(void);

/* The virtual working directory's full path; NULL: the kernel's is in force. */
const char *path_cwd(void);

/* Its FID. */
void path_cwd_fid(struct causeway_fid *fid_out);

/* The full path (with prefix) of a target, as text; "" if it is not known. */
void path_full(const struct target *target, char full[PATH_MAX]);

/* If @path names an open descriptor of this process ("/dev/fd/3", "/proc/self/fd/3", "/dev/stdin"),
 * that descriptor; else -1. */
int path_fd_alias(const char *path);
