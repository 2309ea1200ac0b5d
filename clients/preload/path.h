/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which paths are ours, and the virtual working directory.
 *
 * A path is ours if its text, read from the working directory, leads below the prefix; "//", "."
 * and ".." on the way to the prefix go lexically, as it is nothing to the kernel. Below the prefix
 * ".." is the servers' to follow, unless it leads out: then, and where a symlink of ours leads out,
 * the path is *walked* name by name to the place outside, which is the kernel's.
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
 * Returns 1: ours, *target says what; 0: the kernel's, by target->path from @dirfd; or a negative
 * errno.
 */
int path_resolve(int dirfd, const char *path, struct target *target);

/*
 * A call on a target of ours came to a symlink that leads out of Causeway (-EXDEV). Returns 0 with
 * the absolute path that it leads to in target->path; or a negative errno.
 */
int path_outside(struct causeway *fs, struct target *target, bool follow_last);

/* Takes the working directory that an exec'd program inherits. */
void path_init(void);

/*
 * chdir(2) to a target of ours. Returns 0; 1: it is the kernel's target->path; or a negative errno.
 */
int path_enter(struct causeway *fs, struct target *target);

/* fchdir(2) to a directory of ours; @hint: its path as far as one knows, or NULL. */
int path_enter_dir(struct causeway *fs, const struct causeway_fid *fid, const char *hint);

/* The working directory became the kernel's. */
void path_leave(void);

/* Is the working directory on Causeway? */
bool path_cwd_is_ours(void);

/* Its path and FID, if it is. The path may have been renamed since. */
bool path_cwd(char path[PATH_MAX], struct causeway_fid *fid_out);

/* Its path now, as getcwd(2) says it. Returns 0 or a negative errno. */
int path_cwd_now(struct causeway *fs, char path[PATH_MAX]);

/* A path of a target, as a hint for path_enter_dir(); "" if it is not known. */
void path_hint(const struct target *target, char hint[PATH_MAX]);

/* Is it the prefix itself, which is there whatever one tries to make or remove at its place? */
bool path_is_root(const struct target *target);

/* An open descriptor of ours that @path names ("/dev/fd/3"), or -1. */
int path_alias(const char *path);
