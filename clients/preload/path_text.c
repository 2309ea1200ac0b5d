/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paths as texts. See path_text.h.
 */
#include "clients/preload/path_text.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char *
skip_slashes(const char *path)
{
    while (*path == '/') {
        path++;
    }
    return path;
}

static bool
is_dot(const char *part, size_t bytes)
{
    return bytes == 1 && part[0] == '.';
}

static bool
is_dot_dot(const char *part, size_t bytes)
{
    return bytes == 2 && part[0] == '.' && part[1] == '.';
}

const char *
path_text_after(const char *path, const char *prefix, size_t prefix_bytes)
{
    if (strncmp(path, prefix, prefix_bytes) != 0) {
        return NULL;
    }
    path += prefix_bytes;
    return *path == '/' || *path == '\0' ? skip_slashes(path) : NULL;
}

/* Appends a part to the tidy @out, or takes one away. Returns the new length. */
static size_t
add_part(char out[PATH_MAX], size_t length, const char *part, size_t bytes, bool *is_full)
{
    if (bytes == 0 || is_dot(part, bytes)) {
        return length;
    }
    if (is_dot_dot(part, bytes)) {
        while (length > 0 && out[--length] != '/') {
        }
        return length;
    }
    if (length + bytes + 2 >= PATH_MAX) {
        *is_full = true;
        return length;
    }
    out[length++] = '/';
    memcpy(out + length, part, bytes);
    return length + bytes;
}

const char *
path_text_enter(const char *path, const char *prefix, size_t prefix_bytes)
{
    char out[PATH_MAX];
    size_t length = 0;
    bool is_full = false;

    while (*path != '\0') {
        const size_t part = strcspn(path, "/");

        length = add_part(out, length, path, part, &is_full);
        path += part;
        if (is_full) {
            return NULL;
        }
        if (length == prefix_bytes && memcmp(out, prefix, length) == 0) {
            return skip_slashes(path);
        }
        path += *path == '/' ? 1 : 0;
    }
    return NULL;
}

unsigned
path_text_climb(const char *path)
{
    int depth = 0;
    int lowest = 0;

    if (strstr(path, "..") == NULL) {
        return 0;
    }
    while (*(path = skip_slashes(path)) != '\0') {
        const size_t part = strcspn(path, "/");

        if (is_dot_dot(path, part)) {
            depth--;
            lowest = depth < lowest ? depth : lowest;
        } else if (!is_dot(path, part)) {
            depth++;
        }
        path += part;
    }
    return (unsigned)-lowest;
}

unsigned
path_text_depth(const char *path)
{
    unsigned depth = 0;

    while (*(path = skip_slashes(path)) != '\0') {
        depth++;
        path += strcspn(path, "/");
    }
    return depth;
}

int
path_text_tidy(const char *base, const char *path, char out[PATH_MAX])
{
    const char *parts[2] = {path[0] == '/' ? "" : base, path};
    size_t length = 0;
    bool is_full = false;

    for (int i = 0; i < 2; i++) {
        const char *at = parts[i];

        while (*at != '\0') {
            const size_t part = strcspn(at, "/");

            length = add_part(out, length, at, part, &is_full);
            at += part;
            at += *at == '/' ? 1 : 0;
        }
    }
    if (is_full) {
        return -ENAMETOOLONG;
    }
    if (length == 0 || (path[0] != '\0' && path[strlen(path) - 1] == '/')) {
        out[length++] = '/';
    }
    out[length] = '\0';
    return 0;
}

int
path_text_join(const char *base, const char *rest, char out[PATH_MAX])
{
    const size_t base_bytes = strlen(base);
    const size_t rest_bytes = strlen(rest);
    const bool has_slash = base_bytes > 0 && base[base_bytes - 1] == '/';

    if (base_bytes + rest_bytes + 2 > PATH_MAX) {
        return -ENAMETOOLONG;
    }
    memmove(out, base, base_bytes);
    if (rest_bytes > 0 && !has_slash) {
        out[base_bytes] = '/';
        memcpy(out + base_bytes + 1, rest, rest_bytes + 1);
    } else {
        memcpy(out + base_bytes, rest, rest_bytes + 1);
    }
    return 0;
}

/* The number that @text is, to its end; else -1. */
static int
number_of(const char *text)
{
    char *end = NULL;

    if (text[0] < '0' || text[0] > '9') {
        return -1;
    }
    const long number = strtol(text, &end, 10);
    return *end == '\0' && number <= INT_MAX ? (int)number : -1;
}

/* "/proc/self/fd/N" and "/proc/PID/fd/N". */
static int
proc_alias(const char *rest, int pid)
{
    static const char self[] = "self/fd/";
    char *end = NULL;

    if (strncmp(rest, self, sizeof(self) - 1) == 0) {
        return number_of(rest + sizeof(self) - 1);
    }
    if (rest[0] < '1' || rest[0] > '9' || strtol(rest, &end, 10) != pid ||
        strncmp(end, "/fd/", 4) != 0) {
        return -1;
    }
    return number_of(end + 4);
}

int
path_text_alias(const char *path, int pid)
{
    static const char *const names[] = {"stdin", "stdout", "stderr"};

    if (path == NULL || path[0] != '/' || (path[1] != 'd' && path[1] != 'p')) {
        return -1;
    }
    if (strncmp(path, "/proc/", 6) == 0) {
        return proc_alias(path + 6, pid);
    }
    if (strncmp(path, "/dev/", 5) != 0) {
        return -1;
    }
    for (int i = 0; i < 3; i++) {
        if (strcmp(path + 5, names[i]) == 0) {
            return i;
        }
    }
    return strncmp(path + 5, "fd/", 3) == 0 ? number_of(path + 8) : -1;
}
