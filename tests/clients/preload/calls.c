/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls on files, part by part. See calls.h.
 *
 * Usage: calls DIRECTORY local|causeway [PART...]
 */
#include "tests/clients/preload/calls.h"

#include <ftw.h>
#include <stdarg.h>

char top[256];
bool on_causeway;

static const struct {
    const char *name;
    void (*run)(void);
} parts[] = {
    {"open", part_open},
    {"io", part_io},
    {"stat", part_stat},
    {"names", part_names},
    {"attributes", part_attributes},
    {"directories", part_directories},
    {"cwd", part_cwd},
    {"descriptors", part_descriptors},
    {"locks", part_locks},
    {"mmap", part_mmap},
    {"stdio", part_stdio},
    {"temporary", part_temporary},
    {"processes", part_processes},
    {"copies", part_copies},
    {"orphans", part_orphans},
    {"old_names", part_old_names},
};

static const char *
error_name(int error)
{
    const char *name = strerrorname_np(error);

    return name != NULL ? name : "no errno";
}

long
say(const char *label, long value)
{
    if (value == -1) {
        printf("%s: -1 %s\n", label, error_name(errno));
    } else {
        printf("%s: %ld\n", label, value);
    }
    return value;
}

long
say_error(const char *label, int error)
{
    printf("%s: %s\n", label, error == 0 ? "0" : error_name(error));
    return error;
}

int
say_fd(const char *label, int fd)
{
    if (fd < 0) {
        printf("%s: -1 %s\n", label, error_name(errno));
    } else {
        printf("%s: open\n", label);
    }
    return fd;
}

void *
say_pointer(const char *label, const void *pointer)
{
    if (pointer == NULL || pointer == (void *)-1) {
        printf("%s: none, %s\n", label, error_name(errno));
    } else {
        printf("%s: there\n", label);
    }
    return (void *)(uintptr_t)pointer;
}

void
say_text(const char *label, const char *text)
{
    printf("%s: %s%s%s\n", label, text != NULL ? "\"" : "", text != NULL ? text : "none",
           text != NULL ? "\"" : "");
}

void
differs(const char *label, long value, int error)
{
    if (on_causeway && (value != -1 || errno != error)) {
        printf("%s: %ld %s, but should fail with %s\n", label, value, error_name(errno),
               error_name(error));
    }
}

const char *
at(const char *name)
{
    static char texts[16][8192];
    static unsigned next;
    char *text = texts[next++ % 16];

    snprintf(text, sizeof(texts[0]), "%s%s%s", top, name[0] != '\0' ? "/" : "", name);
    return text;
}

const char *
without_top(const char *path)
{
    const size_t length = strlen(top);

    if (path == NULL || strncmp(path, top, length) != 0) {
        return path;
    }
    return path[length] == '\0' ? "." : path + length + 1;
}

void
make_file(const char *name, const char *text)
{
    const int fd = open(at(name), O_CREAT | O_TRUNC | O_WRONLY, 0644);

    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd) != 0) {
        printf("cannot make %s: %s\n", name, error_name(errno));
    }
}

void
say_file(const char *name)
{
    char text[4096];
    const int fd = open(at(name), O_RDONLY);
    const ssize_t bytes = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (bytes < 0) {
        printf("%s cannot be read: %s\n", name, error_name(errno));
    } else {
        text[bytes] = '\0';
        for (ssize_t i = 0; i < bytes; i++) {
            text[i] = text[i] == '\0' ? '0' : text[i];
        }
        printf("%s is \"%s\"\n", name, text);
    }
    if (fd >= 0) {
        close(fd);
    }
}

void
say_stat(const char *label, const struct stat *stat)
{
    printf("%s: mode %o, nlink %lu, uid %u, gid %u, size %ld\n", label, stat->st_mode,
           S_ISDIR(stat->st_mode) ? 0 : (unsigned long)stat->st_nlink, stat->st_uid, stat->st_gid,
           S_ISDIR(stat->st_mode) ? 0 : (long)stat->st_size);
}

static int
remove_one(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
    (void)stat;
    (void)type;
    return walk->level == 0 ? 0 : remove(path);
}

void
empty_top(void)
{
    if (nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) {
        printf("%s cannot be emptied: %s\n", "top", error_name(errno));
    }
}

void
fill_pattern(void *memory, size_t bytes, uint64_t seed)
{
    unsigned char *byte = memory;

    for (size_t i = 0; i < bytes; i++) {
        byte[i] = (unsigned char)((seed + i) * 131 >> 3);
    }
}

bool
is_pattern(const void *memory, size_t bytes, uint64_t seed)
{
    const unsigned char *byte = memory;

    for (size_t i = 0; i < bytes; i++) {
        if (byte[i] != (unsigned char)((seed + i) * 131 >> 3)) {
            return false;
        }
    }
    return true;
}

static bool
is_wanted(const char *name, int argc, char **argv)
{
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return true;
        }
    }
    return argc == 3;
}

int
main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            printf("%s\n", parts[i].name);
        }
        return 0;
    }
    if (argc < 3) {
        fprintf(stderr, "usage: %s DIRECTORY local|causeway [PART...]\n", argv[0]);
        return 2;
    }
    snprintf(top, sizeof(top), "%s", argv[1]);
    on_causeway = strcmp(argv[2], "causeway") == 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    umask(022);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (is_wanted(parts[i].name, argc, argv)) {
            printf("== %s\n", parts[i].name);
            parts[i].run();
            if (chdir("/") == 0) {
                empty_top();
            }
        }
    }
    return 0;
}
