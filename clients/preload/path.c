/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Path texts. See path.h.
 */
#include "clients/preload/path.h"

#include "clients/preload/files.h"
#include "clients/preload/fs.h"
#include "clients/preload/raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOWHERE "/proc/self/task"

/* The working directory: this process's, and that of a vfork() child that shares our memory. */
struct cwd {
    pid_t pid;
    bool is_ours;
    struct causeway_fid fid;
    char path[PATH_MAX];
};
static struct cwd own_cwd;
static struct cwd vfork_cwd;

static struct cwd *
cwd_of(void)
{
    if (__builtin_expect(files_is_owner(), 1)) {
        return &own_cwd;
    }
    const pid_t pid = (pid_t)RAW(getpid, 0);
    if (vfork_cwd.pid != pid) {
        vfork_cwd = own_cwd;
        vfork_cwd.pid = pid;
    }
    return &vfork_cwd;
}

/* The usual question, without a system call: a vfork() child that changed directory is rare. */
static const struct cwd *
cwd_look(void)
{
    return vfork_cwd.pid == 0 ? &own_cwd : cwd_of();
}

/* What follows the prefix in @path, or NULL if it does not begin with it. */
static const char *
after_prefix(const char *path)
{
    if (strncmp(path, fs_prefix, fs_prefix_bytes) != 0) {
        return NULL;
    }
    path += fs_prefix_bytes;
    if (*path != '/' && *path != '\0') {
        return NULL;
    }
    while (*path == '/') {
        path++;
    }
    return path;
}

static bool
has_dots(const char *path)
{
    for (const char *at = path; (at = strstr(at, "..")) != NULL; at++) {
        if ((at == path || at[-1] == '/') && (at[2] == '/' || at[2] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Is there anything to take away in front of a prefix: "//", "/./", "/../"? */
static bool
is_untidy(const char *path)
{
    return strstr(path, "//") != NULL || strstr(path, "/.") != NULL;
}

/*
 * Writes the absolute @base + "/" + @path to @out without "//", "." and "..", which go lexically; a
 * trailing
 * '/' stays. Returns 0 or -ENAMETOOLONG.
 */
static int
tidy(const char *base, const char *path, char out[PATH_MAX])
{
    const char *parts[2] = {path[0] == '/' ? "" : base, path};
    size_t length = 0;

    for (int i = 0; i < 2; i++) {
        const char *at = parts[i];

        while (*at != '\0') {
            const size_t part = strcspn(at, "/");

            if (part == 2 && at[0] == '.' && at[1] == '.') {
                while (length > 0 && out[--length] != '/') {
                }
            } else if (part > 0 && !(part == 1 && at[0] == '.')) {
                if (length + part + 2 >= PATH_MAX) {
                    return -ENAMETOOLONG;
                }
                out[length++] = '/';
                memcpy(out + length, at, part);
                length += part;
            }
            at += part;
            at += *at == '/' ? 1 : 0;
        }
    }
    if (length == 0 || (path[0] != '\0' && path[strlen(path) - 1] == '/')) {
        out[length++] = '/';
    }
    out[length] = '\0';
    return 0;
}

static int
resolve_absolute(const char *path, struct target *target)
{
    const char *rest = after_prefix(path);

    if (rest == NULL || has_dots(rest)) {
        if (rest == NULL && (!is_untidy(path) || strstr(path, fs_prefix + 1) == NULL)) {
            target->path = path;
            return 0;
        }
        const bool went_through = rest != NULL;
        const int rc = tidy("", path, target->text);
        if (rc != 0) {
            return rc;
        }
        rest = after_prefix(target->text);
        if (rest == NULL) {
            /* The prefix is nothing to the kernel: out of it by ".." is what the text leads to. */
            target->path = went_through ? target->text : path;
            return 0;
        }
    }
    target->at = NULL;
    target->path = rest;
    return 1;
}

static int
resolve_from_cwd(const struct cwd *cwd, const char *path, struct target *target)
{
    if (!has_dots(path)) {
        target->at_fid = cwd->fid;
        target->at = &target->at_fid;
        target->path = path;
        return 1;
    }
    const int rc = tidy(cwd->path, path, target->text);
    if (rc != 0) {
        return rc;
    }
    const char *rest = after_prefix(target->text);
    if (rest == NULL) {
        target->path = target->text;
        return 0;
    }
    target->at = NULL;
    target->path = rest;
    return 1;
}

/* The full path of a directory of the kernel's. */
static bool
kernel_directory(int dirfd, char base[PATH_MAX])
{
    char link[32];

    if (dirfd == AT_FDCWD) {
        return RAW(getcwd, base, PATH_MAX) > 0;
    }
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
    const long length = RAW(readlink, link, base, PATH_MAX - 1);
    if (length <= 0 || base[0] != '/') {
        return false;
    }
    base[length] = '\0';
    return true;
}

/* A relative path from a directory of the kernel's: ours only if it goes through the prefix by
 * name. */
static int
resolve_relative(int dirfd, const char *path, struct target *target)
{
    char base[PATH_MAX];
    const char *name = strrchr(fs_prefix, '/') + 1;

    target->path = path;
    if (__builtin_expect(strstr(path, name) == NULL, 1) || !kernel_directory(dirfd, base) ||
        tidy(base, path, target->text) != 0) {
        return 0;
    }
    const char *rest = after_prefix(target->text);
    if (rest == NULL) {
        return 0;
    }
    target->at = NULL;
    target->path = rest;
    return 1;
}

int
path_resolve(int dirfd, const char *path, struct target *target)
{
    target->path = path;
    if (path == NULL) {
        return 0; /* the kernel says EFAULT, or means the descriptor itself */
    }
    if (path[0] == '/') {
        return resolve_absolute(path, target);
    }
    if (dirfd == AT_FDCWD) {
        const struct cwd *cwd = cwd_look();

        if (cwd->is_ours) {
            return path[0] == '\0' ? -ENOENT : resolve_from_cwd(cwd, path, target);
        }
        return resolve_relative(dirfd, path, target);
    }
    if (!files_has(dirfd)) {
        return resolve_relative(dirfd, path, target);
    }
    struct file *file = files_peek(dirfd);
    if (file == NULL) {
        return -EBADF;
    }
    target->at_fid = file->description->fid;
    target->at = &target->at_fid;
    const bool is_dir = S_ISDIR(file->description->mode);
    files_put(file);
    if (path[0] != '\0' && !is_dir) {
        return -ENOTDIR;
    }
    return 1;
}

static void
go_nowhere(void)
{
    (void)RAW(chdir, NOWHERE);
}

int
path_enter_dir(const struct causeway_fid *fid, const char *full)
{
    struct cwd *cwd = cwd_of();

    if (strlen(full) >= PATH_MAX) {
        return -ENAMETOOLONG;
    }
    cwd->fid = *fid;
    memmove(cwd->path, full, strlen(full) + 1);
    cwd->is_ours = true;
    go_nowhere();
    return 0;
}

void
path_full(const struct target *target, char full[PATH_MAX])
{
    const struct cwd *cwd = cwd_look();
    char text[2 * PATH_MAX];

    full[0] = '\0';
    if (target->at == NULL) {
        (void)snprintf(text, sizeof(text), "%s/%s", fs_prefix, target->path);
    } else if (cwd->is_ours && memcmp(target->at, &cwd->fid, sizeof(cwd->fid)) == 0) {
        (void)snprintf(text, sizeof(text), "%s/%s", cwd->path, target->path);
    } else {
        return;
    }
    if (tidy("", text, full) != 0) {
        full[0] = '\0';
        return;
    }
    const size_t length = strlen(full);
    if (length > 1 && full[length - 1] == '/') {
        full[length - 1] = '\0';
    }
}

int
path_enter(struct causeway *fs, const struct target *target)
{
    char full[PATH_MAX];
    struct causeway_fid fid;
    mode_t mode = 0;
    int rc = FS_CALL(causeway_lookup(fs, target->at, target->path, 0, &fid, &mode));

    if (rc == 0 && !S_ISDIR(mode)) {
        rc = -ENOTDIR;
    }
    if (rc == 0) {
        rc = FS_CALL(causeway_access(fs, &fid, "", X_OK, 0));
    }
    if (rc != 0) {
        return rc;
    }
    path_full(target, full);
    if (full[0] == '\0') {
        return -ENOENT;
    }
    return path_enter_dir(&fid, full);
}

void
path_leave(void)
{
    cwd_of()->is_ours = false;
}

const char *
path_cwd(void)
{
    const struct cwd *cwd = cwd_of();

    return cwd->is_ours ? cwd->path : NULL;
}

void
path_cwd_fid(struct causeway_fid *fid_out)
{
    *fid_out = cwd_of()->fid;
}

void
path_init(void)
{
    const char *text = getenv("CAUSEWAY_CWD"); // NOLINT(concurrency-mt-unsafe): in the constructor
    unsigned long long seq = 0;
    unsigned oid = 0;
    unsigned ver = 0;
    int used = 0;

    if (text == NULL || sscanf(text, "%llx:%x:%x:%n", &seq, &oid, &ver, &used) != 3 || used == 0 ||
        text[used] != '/' ||
        strlen(text + used) >= PATH_MAX) { // NOLINT(cert-err34-c): our own text
        return;
    }
    own_cwd.fid = (struct causeway_fid){.seq = seq, .oid = oid, .ver = ver};
    (void)strcpy(own_cwd.path, text + used);
    own_cwd.is_ours = true;
}

int
path_fd_alias(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    static const char *const names[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};

    if (path == NULL || (path[0] != '/' || (path[1] != 'd' && path[1] != 'p'))) {
        return -1;
    }
    for (int i = 0; i < 3; i++) {
        if (strcmp(path, names[i]) == 0) {
            return i;
        }
    }
    for (int i = 0; i < 2; i++) {
        const size_t length = strlen(folders[i]);
        char *end = NULL;

        if (strncmp(path, folders[i], length) == 0 && path[length] >= '0' && path[length] <= '9') {
            const long fd = strtol(path + length, &end, 10);

            return *end == '\0' && fd < FILES_FD_MAX ? (int)fd : -1;
        }
    }
    return -1;
}
