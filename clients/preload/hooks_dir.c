/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hooks of directories: the entries behind readdir(3), and the working directory.
 *
 * libc's directory streams work as they are, on getdents64 and lseek: a description's offset is the
 * cookie of the entry before the next one.
 */
#include "clients/preload/hooks.h"

#include <stdlib.h>
#include <string.h>

#define BATCH 64

struct linux_dirent64 {
    uint64_t d_ino;
    int64_t d_off;
    unsigned short d_reclen;
    unsigned char d_type;
    char d_name[];
};

static size_t
record_bytes(const struct causeway_dirent *entry)
{
    return (offsetof(struct linux_dirent64, d_name) + strlen(entry->name) + 1 + 7) & ~(size_t)7;
}

/* Writes what fits of @entries; returns how many, and moves *used_bytes. */
static int
write_records(const struct causeway_dirent *entries, int count, char *buffer, size_t bytes,
              size_t *used_bytes)
{
    int done = 0;

    for (; done < count; done++) {
        const size_t size = record_bytes(&entries[done]);
        struct linux_dirent64 *record = (void *)(buffer + *used_bytes);

        if (size > bytes - *used_bytes) {
            break;
        }
        record->d_ino = entries[done].ino;
        record->d_off = (int64_t)entries[done].cookie;
        record->d_reclen = (unsigned short)size;
        record->d_type = entries[done].type;
        (void)strcpy(record->d_name, entries[done].name);
        *used_bytes += size;
    }
    return done;
}

static ssize_t
read_entries(struct file *file, char *buffer, size_t bytes)
{
    struct causeway_dirent entries[BATCH];
    uint64_t *cookie = &file->description->offset;
    size_t used = 0;

    if (!S_ISDIR(file->description->mode)) {
        return -ENOTDIR;
    }
    for (;;) {
        const int got = causeway_readdir(files_open_file(file), *cookie, entries, BATCH);

        if (got <= 0) {
            return used > 0 || got == 0 ? (ssize_t)used : got;
        }
        const int written = write_records(entries, got, buffer, bytes, &used);
        if (written > 0) {
            *cookie = entries[written - 1].cookie;
        }
        if (written < got) {
            return used > 0 ? (ssize_t)used : -EINVAL; /* not even one fits */
        }
    }
}

ssize_t
hook_getdents64(int fd, void *buffer, size_t bytes)
{
    int rc = 0;

    if (!files_has(fd)) {
        return RAW(getdents64, fd, buffer, bytes);
    }
    struct file *file = files_get(fd, &rc);
    if (file == NULL) {
        return hook_result(rc);
    }
    files_lock(file);
    const ssize_t got = read_entries(file, buffer, bytes);
    files_unlock(file);
    files_put(file);
    return hook_result(got);
}

off_t
hook_dir_seek(struct file *file, off_t offset, int whence)
{
    if (whence == SEEK_CUR && offset == 0) {
        return (off_t)file->description->offset;
    }
    if (whence != SEEK_SET || offset < 0) {
        return -EINVAL;
    }
    file->description->offset = (uint64_t)offset;
    return offset;
}

/* ---- working directory ---- */

int
hook_chdir(const char *path)
{
    struct target target;
    int rc = path_resolve(AT_FDCWD, path, &target);

    if (rc > 0) {
        struct causeway *fs = fs_get(&rc);

        rc = fs == NULL ? rc : path_enter(fs, &target);
        fs_child_end();
        if (rc <= 0) {
            return (int)hook_result(rc);
        }
    } else if (rc < 0) {
        return (int)hook_result(rc);
    }
    rc = (int)RAW(chdir, target.path);
    if (rc == 0) {
        path_leave();
    }
    return rc;
}

static int
enter_file(const struct file *file)
{
    int rc = 0;
    struct causeway *fs = fs_get(&rc);

    if (fs == NULL) {
        return rc;
    }
    return S_ISDIR(file->description->mode)
               ? path_enter_dir(fs, &file->description->fid, file->path)
               : -ENOTDIR;
}

int
hook_fchdir(int fd)
{
    if (!files_has(fd)) {
        const int rc = (int)RAW(fchdir, fd);

        if (rc == 0) {
            path_leave();
        }
        return rc;
    }
    struct file *file = files_peek(fd);
    int rc = -EBADF;

    if (file != NULL) {
        rc = enter_file(file);
        files_put(file);
        fs_child_end();
    }
    return (int)hook_result(rc);
}

char *
hook_getcwd(char *buffer, size_t bytes)
{
    char path[PATH_MAX];

    if (path_cwd_is_ours()) {
        int rc = 0;
        struct causeway *fs = fs_get(&rc);

        rc = fs == NULL ? rc : path_cwd_now(fs, path);
        if (rc != 0) {
            (void)hook_result(rc);
            return NULL;
        }
    } else {
        if (RAW(getcwd, path, sizeof(path)) < 0) {
            return NULL;
        }
        if (path[0] != '/') {
            errno = ENOENT; /* "(unreachable)" */
            return NULL;
        }
    }
    const size_t length = strlen(path) + 1;
    if (buffer != NULL && bytes == 0) {
        errno = EINVAL;
        return NULL;
    }
    if (bytes != 0 && bytes < length) {
        errno = ERANGE;
        return NULL;
    }
    if (buffer == NULL) {
        buffer = malloc(bytes != 0 ? bytes : length);
    }
    return buffer != NULL ? memcpy(buffer, path, length) : NULL;
}
