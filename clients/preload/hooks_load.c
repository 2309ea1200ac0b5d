/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dlopen() of a shared object on Causeway.
 *
 * The dynamic linker has calls of its own for files, which are not led here. So an object named by
 * a path of ours is copied into a memfd, which stays open: the linker knows objects by name, and
 * /proc/self/fd/N must mean the same one for as long as the process lives. Loaded again, the same
 * file is the same copy.
 *
 * dlopen() is the one symbol that this library interposes instead of patching it: the linker wants
 * to know who calls, so the call that goes on must be a jump.
 */
#include "clients/preload/hooks.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define OBJECTS_MAX 256

struct object {
    struct causeway_fid fid;
    off_t size;
    struct timespec mtime;
    char name[32]; /* /proc/self/fd/N */
};

typedef void *(*dlopen_fn)(const char *name, int mode);

static struct object objects[OBJECTS_MAX];
static unsigned object_count;
static pthread_mutex_t objects_mutex = PTHREAD_MUTEX_INITIALIZER;
static dlopen_fn libc_dlopen;

static bool
is_copy_of(const struct object *object, const struct causeway_fid *fid, const struct stat *stat)
{
    return memcmp(&object->fid, fid, sizeof(*fid)) == 0 && object->size == stat->st_size &&
           object->mtime.tv_sec == stat->st_mtim.tv_sec &&
           object->mtime.tv_nsec == stat->st_mtim.tv_nsec;
}

/* The name of the copy of a target of ours, or NULL. The mutex is held. */
static const char *
copy_of(struct causeway *fs, const struct target *target)
{
    struct causeway_fid fid;
    struct stat stat;

    if (causeway_lookup(fs, target->at, target->path, 0, &fid, NULL) != 0 ||
        causeway_stat(fs, &fid, "", 0, &stat) != 0) {
        return NULL;
    }
    for (unsigned i = 0; i < object_count; i++) {
        if (is_copy_of(&objects[i], &fid, &stat)) {
            return objects[i].name;
        }
    }
    const int fd =
        object_count < OBJECTS_MAX ? fs_claim(hook_load(fs, target->at, target->path, R_OK)) : -1;
    if (fd < 0) {
        return NULL;
    }
    struct object *object = &objects[object_count++];
    *object = (struct object){.fid = fid, .size = stat.st_size, .mtime = stat.st_mtim};
    (void)snprintf(object->name, sizeof(object->name), "/proc/self/fd/%d", fd);
    return object->name;
}

/* What the linker can open for @name. */
static const char *
linkers_name(const char *name)
{
    struct target target;
    int rc = 0;

    if (name == NULL || strchr(name, '/') == NULL || !fs_is_on() ||
        path_resolve(AT_FDCWD, name, &target) <= 0) {
        return name;
    }
    struct causeway *fs = fs_get(&rc);
    if (fs == NULL) {
        return name;
    }
    fs_enter();
    (void)pthread_mutex_lock(&objects_mutex);
    const char *copy = copy_of(fs, &target);
    (void)pthread_mutex_unlock(&objects_mutex);
    fs_leave();
    return copy != NULL ? copy : name;
}

__attribute__((visibility("default"), optimize("O2"))) void *
dlopen(const char *name, int mode)
{
    if (libc_dlopen == NULL) {
        hooks_load_init();
    }
    return libc_dlopen(linkers_name(name), mode);
}

void
hooks_load_init(void)
{
    libc_dlopen = (dlopen_fn)(uintptr_t)dlsym(RTLD_NEXT, "dlopen");
}
