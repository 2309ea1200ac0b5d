/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paths as texts: what can be said of them without asking anybody.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* What follows @prefix in @path, without leading '/'; or NULL if it does not begin with it. */
const char *path_text_after(const char *path, const char *prefix, size_t prefix_bytes);

/*
 * The same where "//", "." and ".." may stand in the way: the rest of the absolute @path from where
 * its text, read from the left, has led to @prefix. The rest may lead out of it again.
 */
const char *path_text_enter(const char *path, const char *prefix, size_t prefix_bytes);

/* How many levels above its start the text of @path goes at most. 0: it has no ".." that would. */
unsigned path_text_climb(const char *path);

/* How many names the tidy @path has. */
unsigned path_text_depth(const char *path);

/*
 * Writes the absolute @base + "/" + @path (just @path, if that is absolute) to @out without "//",
 * "." and "..", which takes away the name before it; a trailing '/' stays. Returns 0 or
 * -ENAMETOOLONG.
 */
int path_text_tidy(const char *base, const char *path, char out[PATH_MAX]);

/* @base + "/" + @rest, with one '/' between. Returns 0 or -ENAMETOOLONG. */
int path_text_join(const char *base, const char *rest, char out[PATH_MAX]);

/*
 * If @path names an open descriptor of this process, @pid, that descriptor; else -1: "/dev/fd/3",
 * "/proc/self/fd/3", "/proc/PID/fd/3", "/dev/stdin".
 */
int path_text_alias(const char *path, int pid);
