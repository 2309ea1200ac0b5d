/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Resolving paths, walking them, and the working directory. See path.h.
 *
 * The working directory is read by every call with a relative path, and written by chdir(): readers
 * take their copy between two equal, even values of a sequence number.
 */
#include "clients/preload/path.h"

#include "clients/preload/files.h"
#include "clients/preload/path_text.h"
#include "clients/preload/raw.h"
#include "clients/preload/spawned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NOWHERE      "/proc/self/task"
#define SYMLINKS_MAX 40
#define LEVELS_MAX   (PATH_MAX / 2)
#define ROUNDS_MAX   8 /* out of the prefix and in again, in one path */
#define ENTRIES      8 /* read at once, on the stack */
#define CWD_VARIABLE "CAUSEWAY_CWD"

struct cwd {
    atomic_uint sequence; /* odd: being written */
    bool is_ours;
    unsigned depth; /* names below the prefix */
    struct causeway_fid fid;
    char path[PATH_MAX]; /* as it was, without symlinks */
};

static struct cwd cwd;
static pthread_mutex_t cwd_mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- the working directory ---- */

static bool
cwd_read(struct causeway_fid *fid_out, unsigned *depth_out, char *path_out)
{
    const struct spawn *spawn = spawn_current();
    unsigned before = 0;
    bool is_ours = false;

    if (__builtin_expect(spawn != NULL && spawn->has_cwd, 0)) {
        *fid_out = spawn->cwd_fid;
        *depth_out = path_text_depth(spawn->cwd_path + fs_prefix_bytes);
        if (path_out != NULL) {
            (void)strcpy(path_out, spawn->cwd_path);
        }
        return spawn->is_cwd_ours;
    }
    do {
        before = atomic_load_explicit(&cwd.sequence, memory_order_acquire);
        is_ours = cwd.is_ours;
        if (is_ours) {
            *fid_out = cwd.fid;
            *depth_out = cwd.depth;
            if (path_out != NULL) {
                memcpy(path_out, cwd.path, sizeof(cwd.path));
            }
        }
        atomic_thread_fence(memory_order_acquire);
    } while ((before & 1) != 0 ||
             atomic_load_explicit(&cwd.sequence, memory_order_relaxed) != before);
    return is_ours;
}

static void
cwd_write(bool is_ours, const struct causeway_fid *fid, const char *path)
{
    struct spawn *spawn = spawn_current();

    if (spawn != NULL) {
        spawn->has_cwd = true;
        spawn->is_cwd_ours = is_ours;
        if (is_ours) {
            spawn->cwd_fid = *fid;
            (void)strcpy(spawn->cwd_path, path);
        }
        return;
    }
    if (!is_ours && !cwd.is_ours) {
        return;
    }
    fs_enter();
    (void)pthread_mutex_lock(&cwd_mutex);
    (void)atomic_fetch_add(&cwd.sequence, 1);
    cwd.is_ours = is_ours;
    if (is_ours) {
        cwd.fid = *fid;
        cwd.depth = path_text_depth(path + fs_prefix_bytes);
        memmove(cwd.path, path, strlen(path) + 1);
    }
    (void)atomic_fetch_add(&cwd.sequence, 1);
    (void)pthread_mutex_unlock(&cwd_mutex);
    fs_leave();
}

bool
path_cwd_is_ours(void)
{
    const struct spawn *spawn = spawn_current();

    return spawn != NULL && spawn->has_cwd ? spawn->is_cwd_ours : cwd.is_ours;
}

bool
path_cwd(char path[PATH_MAX], struct causeway_fid *fid_out)
{
    unsigned depth = 0;

    return cwd_read(fid_out, &depth, path);
}

void
path_leave(void)
{
    cwd_write(false, NULL, NULL);
}

/* ---- walking ---- */

static bool
is_same(const struct causeway_fid *a, const struct causeway_fid *b)
{
    return a->seq == b->seq && a->oid == b->oid && a->ver == b->ver;
}

static int
root_fid(struct causeway *fs, struct causeway_fid *fid_out)
{
    return FS_CALL(causeway_lookup(fs, NULL, "", 0, fid_out, NULL));
}

/* What of a canonical path the servers want. */
static const char *
below_prefix(const char *canonical)
{
    const char *rest = canonical + fs_prefix_bytes;

    return *rest == '/' ? rest + 1 : rest;
}

/* In memory of its own: the stack of a child of posix_spawn() is small. */
struct walk {
    char at[PATH_MAX];   /* the canonical path so far */
    char rest[PATH_MAX]; /* what is left */
    char link[PATH_MAX];
    unsigned symlinks;
    struct causeway_fid fid; /* of what was reached, if it is there */
    mode_t mode;             /* 0: it is not there, but could be made */
};

/* Begins a walk along @path. Errors: -ENOMEM; -ENAMETOOLONG. */
static int
walk_begin(const char *path, struct walk **walk_out)
{
    if (strlen(path) >= PATH_MAX) {
        return -ENAMETOOLONG;
    }
    struct walk *walk = (struct walk *)RAW(mmap, NULL, sizeof(*walk), PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (walk == MAP_FAILED) {
        return -ENOMEM;
    }
    (void)strcpy(walk->rest, path);
    *walk_out = walk;
    return 0;
}

static int
walk_end(struct walk *walk, int rc)
{
    (void)RAW(munmap, walk, sizeof(*walk));
    return rc;
}

/* Puts @head before what is left. */
static int
walk_prepend(struct walk *walk, const char *head)
{
    const size_t head_bytes = strlen(head);
    const size_t rest_bytes = strlen(walk->rest);
    const bool has_slash = walk->rest[0] == '/' || rest_bytes == 0;

    if (head_bytes + rest_bytes + 2 > PATH_MAX) {
        return -ENAMETOOLONG;
    }
    memmove(walk->rest + head_bytes + (has_slash ? 0 : 1), walk->rest, rest_bytes + 1);
    memcpy(walk->rest, head, head_bytes);
    if (!has_slash) {
        walk->rest[head_bytes] = '/';
    }
    return 0;
}

/* Out of Causeway, to @head and the rest. */
static int
walk_out(struct walk *walk, const char *head)
{
    const int rc = walk_prepend(walk, head);

    if (rc == 0) {
        (void)strcpy(walk->at, walk->rest);
    }
    return rc < 0 ? rc : 1;
}

static int
walk_symlink(struct causeway *fs, struct walk *walk)
{
    char *link = walk->link;
    const ssize_t bytes =
        FS_CALL(causeway_readlink(fs, NULL, below_prefix(walk->at), link, sizeof(walk->link) - 1));

    if (bytes < 0) {
        return (int)bytes;
    }
    link[bytes] = '\0';
    if (++walk->symlinks > SYMLINKS_MAX) {
        return -ELOOP;
    }
    *strrchr(walk->at, '/') = '\0';
    if (link[0] != '/') {
        return walk_prepend(walk, link);
    }
    const char *inside = path_text_after(link, fs_prefix, fs_prefix_bytes);
    if (inside == NULL) {
        return walk_out(walk, link);
    }
    (void)strcpy(walk->at, fs_prefix);
    return walk_prepend(walk, inside);
}

/* ".." at the root leads to what the prefix is in. */
static int
walk_above_root(struct walk *walk)
{
    char parent[sizeof(fs_prefix)];

    (void)strcpy(parent, fs_prefix);
    char *slash = strrchr(parent, '/');
    slash[slash == parent ? 1 : 0] = '\0';
    return walk_out(walk, parent);
}

/* Is there no more than a '/' left? */
static bool
walk_is_at_end(const struct walk *walk)
{
    return walk->rest[strspn(walk->rest, "/")] == '\0';
}

/* Goes down to @name. Returns 0; 1: the walk went out; or a negative errno. */
static int
walk_name(struct causeway *fs, struct walk *walk, const char *name, bool follow)
{
    const int joined = path_text_join(walk->at, name, walk->at);

    if (joined != 0) {
        return joined;
    }
    const int rc = FS_CALL(causeway_lookup(fs, NULL, below_prefix(walk->at), CAUSEWAY_NOFOLLOW,
                                           &walk->fid, &walk->mode));
    if (rc == -ENOENT && walk_is_at_end(walk)) {
        walk->mode = 0;
        return 0;
    }
    if (rc != 0) {
        return rc;
    }
    if (S_ISLNK(walk->mode) && (follow || walk->rest[0] != '\0')) {
        return walk_symlink(fs, walk);
    }
    return walk->rest[0] != '\0' && !S_ISDIR(walk->mode) ? -ENOTDIR : 0;
}

/* Takes the first name off walk->rest. Returns whether there was one; a '/' behind it stays. */
static bool
walk_next(struct walk *walk, char name[NAME_MAX + 1], int *error_out)
{
    const char *from = walk->rest + strspn(walk->rest, "/");
    const size_t bytes = strcspn(from, "/");

    *error_out = bytes > NAME_MAX ? -ENAMETOOLONG : 0;
    if (bytes == 0 || bytes > NAME_MAX) {
        return false;
    }
    memcpy(name, from, bytes);
    name[bytes] = '\0';
    memmove(walk->rest, from + bytes, strlen(from + bytes) + 1);
    return true;
}

/*
 * Walks walk->rest from the directory walk->at. Returns 0: walk->at is the canonical path of what
 * it leads to, walk->fid and mode that; 1: walk->at is the absolute path outside; or a negative
 * errno.
 */
static int
walk_run(struct causeway *fs, struct walk *walk, bool follow_last)
{
    char name[NAME_MAX + 1];
    int rc = FS_CALL(causeway_lookup(fs, NULL, below_prefix(walk->at), CAUSEWAY_NOFOLLOW,
                                     &walk->fid, &walk->mode));

    while (rc == 0 && walk_next(walk, name, &rc)) {
        if (strcmp(name, ".") == 0) {
            continue;
        }
        if (strcmp(name, "..") != 0) {
            rc = walk_name(fs, walk, name, follow_last);
        } else if (walk->at[fs_prefix_bytes] == '\0') {
            rc = walk_above_root(walk);
        } else {
            *strrchr(walk->at, '/') = '\0';
            rc = FS_CALL(causeway_lookup(fs, NULL, below_prefix(walk->at), CAUSEWAY_NOFOLLOW,
                                         &walk->fid, &walk->mode));
        }
    }
    return rc;
}

/* The name of directory @fid in @parent. */
static int
name_in(struct causeway *fs, const struct causeway_fid *parent, const struct causeway_fid *fid,
        char name[NAME_MAX + 1])
{
    struct causeway_dirent entries[ENTRIES];
    struct causeway_file *dir = NULL;
    uint64_t cookie = 0;
    int got = 0;
    int rc = FS_CALL(causeway_open_fid(fs, parent, O_RDONLY, &dir));

    if (rc != 0) {
        return rc;
    }
    rc = -ENOENT;
    while (rc == -ENOENT && (got = FS_CALL(causeway_readdir(dir, cookie, entries, ENTRIES))) > 0) {
        for (int i = 0; i < got && rc == -ENOENT; i++) {
            if (is_same(&entries[i].fid, fid) && strcmp(entries[i].name, ".") != 0 &&
                strcmp(entries[i].name, "..") != 0) {
                (void)strcpy(name, entries[i].name);
                rc = 0;
            }
        }
        cookie = entries[got - 1].cookie;
    }
    fs_enter();
    causeway_close(dir);
    fs_leave();
    return rc;
}

/* The canonical path of the directory @fid, found by climbing. */
static int
path_of(struct causeway *fs, const struct causeway_fid *fid, char path[PATH_MAX])
{
    char name[NAME_MAX + 1];
    struct causeway_fid root;
    struct causeway_fid parent;
    struct causeway_fid at = *fid;
    size_t begin = PATH_MAX - 1;
    int rc = root_fid(fs, &root);

    path[begin] = '\0';
    for (int levels = 0; rc == 0 && !is_same(&at, &root); levels++) {
        rc = levels < LEVELS_MAX ? FS_CALL(causeway_lookup(fs, &at, "..", 0, &parent, NULL))
                                 : -ELOOP;
        if (rc == 0) {
            rc = name_in(fs, &parent, &at, name);
        }
        if (rc == 0) {
            const size_t bytes = strlen(name);

            if (begin < bytes + 1 + fs_prefix_bytes) {
                return -ENAMETOOLONG;
            }
            begin -= bytes;
            memcpy(path + begin, name, bytes);
            path[--begin] = '/';
            at = parent;
        }
    }
    if (rc == 0) {
        memmove(path + fs_prefix_bytes, path + begin, PATH_MAX - begin);
        memcpy(path, fs_prefix, fs_prefix_bytes);
    }
    return rc == -ESTALE ? -ENOENT : rc;
}

/* ---- resolving ---- */

static int resolve_absolute(const char *path, struct target *target, int rounds);

/* The canonical path of what a target starts from. */
static int
start_of(struct causeway *fs, const struct causeway_fid *at, char path[PATH_MAX])
{
    struct causeway_fid fid;

    if (at == NULL) {
        (void)strcpy(path, fs_prefix);
        return 0;
    }
    if (path_cwd(path, &fid) && is_same(&fid, at)) {
        return 0;
    }
    return path_of(fs, at, path);
}

/*
 * Where @path from @at, whose ".." may lead out of Causeway, leads to. As path_resolve(), with
 * target->path absolute.
 */
static int
resolve_climbing(const struct causeway_fid *at, const char *path, struct target *target, int rounds)
{
    struct walk *walk = NULL;
    int rc = 0;
    struct causeway *fs = fs_get(&rc);

    if (fs == NULL || (rc = walk_begin(path, &walk)) != 0) {
        return rc;
    }
    rc = start_of(fs, at, walk->at);
    if (rc == 0) {
        rc = walk_run(fs, walk, false);
    }
    if (rc >= 0 && strlen(walk->at) + 2 > sizeof(target->text)) {
        rc = -ENAMETOOLONG;
    }
    if (rc < 0) {
        return walk_end(walk, rc);
    }
    (void)strcpy(target->text, walk->at);
    if (rc == 0 && walk->rest[0] == '/') {
        (void)strcat(target->text, "/");
    }
    (void)walk_end(walk, 0);
    if (rc == 1) {
        return rounds < ROUNDS_MAX ? resolve_absolute(target->text, target, rounds + 1) : -ELOOP;
    }
    target->at = NULL;
    target->path = below_prefix(target->text);
    return 1;
}

static int
resolve_absolute(const char *path, struct target *target, int rounds)
{
    static const char *name; /* the last of the prefix: most paths have no such part */
    const char *rest = path_text_after(path, fs_prefix, fs_prefix_bytes);

    if (__builtin_expect(rest == NULL, 1)) {
        if (__builtin_expect(name == NULL, 0)) {
            name = strrchr(fs_prefix, '/') + 1;
        }
        if (__builtin_expect(strstr(path, name) == NULL, 1) ||
            (rest = path_text_enter(path, fs_prefix, fs_prefix_bytes)) == NULL) {
            target->path = path;
            return 0;
        }
    }
    if (__builtin_expect(path_text_climb(rest) != 0, 0)) {
        return resolve_climbing(NULL, rest, target, rounds);
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
        return RAW(getcwd, base, PATH_MAX) > 0 && base[0] == '/';
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
    const int error = errno;

    target->path = path;
    if (__builtin_expect(strstr(path, name) == NULL, 1)) {
        return 0;
    }
    const bool is_known =
        kernel_directory(dirfd, base) && path_text_join(base, path, target->text) == 0;
    const char *rest = is_known ? path_text_enter(target->text, fs_prefix, fs_prefix_bytes) : NULL;
    errno = error;
    if (rest == NULL) {
        return 0;
    }
    if (path_text_climb(rest) != 0) {
        return resolve_climbing(NULL, rest, target, 0);
    }
    target->at = NULL;
    target->path = rest;
    return 1;
}

/* Does @levels times ".." from @at lead above the root? 1, 0 or a negative errno. */
static int
is_above_root(const struct causeway_fid *at, unsigned levels)
{
    struct causeway_fid root;
    struct causeway_fid fid = *at;
    int rc = 0;
    struct causeway *fs = fs_get(&rc);

    if (fs == NULL) {
        return rc;
    }
    rc = root_fid(fs, &root);
    for (unsigned level = 0; rc == 0 && level < levels; level++) {
        if (is_same(&fid, &root)) {
            return 1;
        }
        if (level + 1 < levels) {
            rc = FS_CALL(causeway_lookup(fs, &fid, "..", 0, &fid, NULL));
        }
    }
    return rc;
}

static int
resolve_from_dir(int dirfd, const char *path, struct target *target)
{
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
    const unsigned climb = path_text_climb(path);
    if (__builtin_expect(climb != 0, 0)) {
        const int rc = is_above_root(target->at, climb);

        if (rc != 0) {
            return rc < 0 ? rc : resolve_climbing(target->at, path, target, 0);
        }
    }
    return 1;
}

int
path_resolve(int dirfd, const char *path, struct target *target)
{
    unsigned depth = 0;

    target->path = path;
    if (path == NULL) {
        return 0; /* the kernel says EFAULT, or means the descriptor itself */
    }
    if (path[0] == '/') {
        return resolve_absolute(path, target, 0);
    }
    if (dirfd != AT_FDCWD) {
        return files_has(dirfd) ? resolve_from_dir(dirfd, path, target)
                                : resolve_relative(dirfd, path, target);
    }
    if (__builtin_expect(!path_cwd_is_ours(), 1) || !cwd_read(&target->at_fid, &depth, NULL)) {
        return resolve_relative(dirfd, path, target);
    }
    if (path[0] == '\0') {
        return -ENOENT;
    }
    target->at = &target->at_fid;
    return path_text_climb(path) <= depth ? 1 : resolve_climbing(target->at, path, target, 0);
}

/* Walks to a target; the result is in *walk_out, which is to be ended. As walk_run(). */
static int
walk_target(struct causeway *fs, const struct target *target, bool follow_last,
            struct walk **walk_out)
{
    const int rc = walk_begin(target->path, walk_out);

    if (rc != 0) {
        *walk_out = NULL;
        return rc;
    }
    const int started = start_of(fs, target->at, (*walk_out)->at);
    return started != 0 ? started : walk_run(fs, *walk_out, follow_last);
}

/* A walk came out at a place of the kernel's. */
static void
set_outside(struct target *target, const struct walk *walk)
{
    (void)strcpy(target->text, walk->at);
    target->path = target->text;
}

int
path_outside(struct causeway *fs, struct target *target, bool follow_last)
{
    struct walk *walk = NULL;
    const int rc = walk_target(fs, target, follow_last, &walk);

    if (walk == NULL) {
        return rc;
    }
    if (rc == 1) {
        set_outside(target, walk);
    }
    return walk_end(walk, rc == 1 ? 0 : rc < 0 ? rc : -EXDEV); /* 0: it changed meanwhile */
}

bool
path_is_root(const struct target *target)
{
    return target->at == NULL && target->path[strspn(target->path, "/.")] == '\0';
}

int
path_alias(const char *path)
{
    /* The shortest is "/dev/fd/0". */
    if (__builtin_expect(path == NULL || path[0] != '/' || (path[1] != 'd' && path[1] != 'p'), 1)) {
        return -1;
    }
    const int fd = path_text_alias(path, (int)RAW(getpid, 0));

    return fd >= 0 && files_has(fd) ? fd : -1;
}

/* ---- changing the working directory ---- */

/* The kernel's goes where nothing is. */
static int
enter(const struct causeway_fid *fid, const char *canonical)
{
    const int rc = RAW(chdir, NOWHERE) == 0 ? 0 : -errno;

    if (rc == 0) {
        cwd_write(true, fid, canonical);
    }
    return rc;
}

static int
enter_walked(struct causeway *fs, const struct walk *walk)
{
    int rc = walk->mode == 0 ? -ENOENT : S_ISDIR(walk->mode) ? 0 : -ENOTDIR;

    if (rc == 0) {
        rc = FS_CALL(causeway_access(fs, &walk->fid, "", X_OK, 0));
    }
    return rc == 0 ? enter(&walk->fid, walk->at) : rc;
}

int
path_enter(struct causeway *fs, struct target *target)
{
    struct walk *walk = NULL;
    int rc = walk_target(fs, target, true, &walk);

    if (walk == NULL) {
        return rc;
    }
    if (rc == 1) {
        set_outside(target, walk);
    } else if (rc == 0) {
        rc = enter_walked(fs, walk);
    }
    return walk_end(walk, rc);
}

int
path_enter_dir(struct causeway *fs, const struct causeway_fid *fid, const char *hint)
{
    const char *inside = hint != NULL ? path_text_after(hint, fs_prefix, fs_prefix_bytes) : NULL;
    struct walk *walk = NULL;
    int rc = walk_begin(inside != NULL ? inside : "", &walk);

    if (rc != 0) {
        return rc;
    }
    (void)strcpy(walk->at, fs_prefix);
    if (inside == NULL || walk_run(fs, walk, true) != 0 || !S_ISDIR(walk->mode) ||
        !is_same(&walk->fid, fid)) {
        /* Its name is unknown, or was changed. */
        rc = path_of(fs, fid, walk->at);
        walk->fid = *fid;
        walk->mode = S_IFDIR;
    }
    if (rc == 0) {
        rc = enter_walked(fs, walk);
    }
    return walk_end(walk, rc);
}

int
path_cwd_now(struct causeway *fs, char path[PATH_MAX])
{
    struct causeway_fid fid;
    struct causeway_fid found;

    if (!path_cwd(path, &fid)) {
        return -ENOENT;
    }
    if (FS_CALL(causeway_lookup(fs, NULL, below_prefix(path), CAUSEWAY_NOFOLLOW, &found, NULL)) ==
            0 &&
        is_same(&fid, &found)) {
        return 0;
    }
    const int rc = path_of(fs, &fid, path);
    if (rc == 0) {
        cwd_write(true, &fid, path);
    }
    return rc;
}

void
path_hint(const struct target *target, char hint[PATH_MAX])
{
    struct causeway_fid fid;

    hint[0] = '\0';
    if (target->at == NULL) {
        (void)strcpy(hint, fs_prefix);
    } else if (!path_cwd(hint, &fid) || !is_same(&fid, target->at)) {
        hint[0] = '\0';
        return;
    }
    if (path_text_join(hint, target->path, hint) != 0) {
        hint[0] = '\0';
    }
}

void
path_init(void)
{
    const char *text = getenv(CWD_VARIABLE); // NOLINT(concurrency-mt-unsafe): in the constructor
    unsigned long long seq = 0;
    unsigned oid = 0;
    unsigned ver = 0;
    int used = 0;

    if (text == NULL ||
        sscanf(text, "%llx:%x:%x:%n", &seq, &oid, &ver, &used) != 3 || // NOLINT(cert-err34-c): ours
        used == 0 || strlen(text + used) >= PATH_MAX ||
        path_text_after(text + used, fs_prefix, fs_prefix_bytes) == NULL) {
        return;
    }
    cwd.fid = (struct causeway_fid){.seq = seq, .oid = oid, .ver = ver};
    (void)strcpy(cwd.path, text + used);
    cwd.depth = path_text_depth(cwd.path + fs_prefix_bytes);
    cwd.is_ours = true;
}
