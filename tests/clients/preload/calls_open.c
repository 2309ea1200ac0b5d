/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The open family: every flag on every kind of name; and what a descriptor then may.
 */
#include "tests/clients/preload/calls.h"

#include <sys/syscall.h>

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dirfd, const char *path, int flags);
int __openat64_2(int dirfd, const char *path, int flags);

static const struct {
    const char *name;
    int flags;
} flag_sets[] = {
    {"0", 0},
    {"CREAT", O_CREAT},
    {"CREAT|EXCL", O_CREAT | O_EXCL},
    {"TRUNC", O_TRUNC},
    {"CREAT|TRUNC", O_CREAT | O_TRUNC},
    {"APPEND", O_APPEND},
    {"DIRECTORY", O_DIRECTORY},
    {"NOFOLLOW", O_NOFOLLOW},
    {"CREAT|NOFOLLOW", O_CREAT | O_NOFOLLOW},
    {"PATH", O_PATH},
    {"PATH|NOFOLLOW", O_PATH | O_NOFOLLOW},
    {"PATH|DIRECTORY", O_PATH | O_DIRECTORY},
    {"TMPFILE", O_TMPFILE},
    {"TMPFILE|EXCL", O_TMPFILE | O_EXCL},
    {"CLOEXEC", O_CLOEXEC},
    {"SYNC", O_SYNC},
    {"NONBLOCK|NOCTTY", O_NONBLOCK | O_NOCTTY},
};

static const char *const kinds[] = {
    "file",      "missing", "dir",    "to_file",     "to_dir",         "dangling",
    "loop",      "file/",   "dir/",   "missing/",    "to_dir/",        "file/x",
    "missing/x", "dir/.",   "dir/..", "dir/../file", "to_dir/../file", "."};

static void
make_kinds(void)
{
    empty_top();
    make_file("file", "content");
    mkdir(at("dir"), 0755);
    (void)!symlink("file", at("to_file"));
    (void)!symlink("dir", at("to_dir"));
    (void)!symlink("nowhere", at("dangling"));
    (void)!symlink("loop", at("loop"));
}

/* Opens @kind in each way; what was made or cut goes back. */
static void
each_way(const char *kind)
{
    static const char *const accesses[] = {"RDONLY", "WRONLY", "RDWR"};

    for (size_t i = 0; i < sizeof(flag_sets) / sizeof(flag_sets[0]); i++) {
        for (int access = 0; access < 3; access++) {
            char label[128];
            struct stat stat;

            snprintf(label, sizeof(label), "open %s %s|%s", kind, accesses[access],
                     flag_sets[i].name);
            errno = 0;
            const int fd = say_fd(label, open(at(kind), access | flag_sets[i].flags, 0640));
            if (fd >= 0) {
                if (fstat(fd, &stat) == 0) {
                    say_stat("  ", &stat);
                }
                printf("   flags %o, fd %d\n",
                       (unsigned)fcntl(fd, F_GETFL) & ~(unsigned)(O_NOFOLLOW | 0100000),
                       fcntl(fd, F_GETFD));
                close(fd);
            }
            if ((flag_sets[i].flags & (O_CREAT | O_TRUNC)) != 0) {
                make_kinds();
            }
        }
    }
}

static void
other_names(void)
{
    const int dir = open(at("dir"), O_RDONLY | O_DIRECTORY);
    int fd = FD(openat(dir, "in", O_CREAT | O_RDWR, 0600));

    close(fd);
    FD(openat(dir, "../file", O_RDONLY));
    FD(openat64(dir, "../missing", O_RDONLY));
    FD(openat(dir, at("file"), O_RDONLY));
    FD(openat(-1, at("file"), O_RDONLY));
    FD(openat(-1, "file", O_RDONLY));
    FD(openat(dir, "", O_RDONLY));
    FD(openat(dir, ".", O_RDONLY));
    fd = FD(open64(at("file"), O_RDONLY));
    FD(openat(fd, "x", O_RDONLY));
    FD(__open_2(at("file"), O_RDONLY));
    FD(__open64_2(at("file"), O_RDWR));
    FD(__open_2(at("missing"), O_RDWR));
    FD(__openat_2(dir, "in", O_RDONLY));
    FD(__openat64_2(dir, "in", O_RDONLY));
    FD(__openat64_2(dir, "out", O_RDONLY));
    fd = FD(creat(at("created"), 0604));
    SAY(write(fd, "x", 1));
    FD(creat64(at("created"), 0600));
    FD(creat(at("dir"), 0600));
    FD(open(NULL, O_RDONLY));
    FD(open("", O_RDONLY));
    FD((int)syscall(SYS_openat, dir, "in", O_RDONLY));
    FD((int)syscall(SYS_open, at("missing"), O_RDONLY));
}

static void
limits(void)
{
    char name[300];
    char path[5000];

    memset(name, 'x', sizeof(name));
    name[255] = '\0';
    FD(open(at(name), O_CREAT | O_RDWR, 0600));
    SAY(access(at(name), F_OK));
    SAY(unlink(at(name)));
    name[255] = 'x';
    name[256] = '\0';
    FD(open(at(name), O_CREAT | O_RDWR, 0600));
    FD(open(at(name), O_RDONLY));
    memset(path, 'y', sizeof(path));
    for (size_t i = 0; i < sizeof(path); i += 50) {
        path[i] = '/';
    }
    path[4095 - strlen(top)] = '\0';
    FD(open(at(path + 1), O_RDONLY));
    path[4095 - strlen(top)] = 'y';
    path[4500] = '\0';
    FD(open(at(path + 1), O_RDONLY));
}

/* What each access mode allows. */
static void
allowed(void)
{
    static const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR, O_PATH, O_WRONLY | O_APPEND};
    char byte = 'b';

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        struct stat stat;

        make_file("file", "content");
        const int fd = open(at("file"), modes[i]);
        printf("mode %zu\n", i);
        SAY(read(fd, &byte, 1));
        SAY(write(fd, "w", 1));
        SAY(pread(fd, &byte, 1, 3));
        SAY(pwrite(fd, "p", 1, 2));
        SAY(lseek(fd, 0, SEEK_CUR));
        SAY(ftruncate(fd, 5));
        SAY(fsync(fd));
        SAY(fchmod(fd, 0600));
        SAY(fchown(fd, (uid_t)-1, (gid_t)-1));
        SAY(futimens(fd, NULL));
        SAY(fstat(fd, &stat));
        SAY(fallocate(fd, 0, 0, 4));
        SAY(posix_fallocate(fd, 0, 4));
        SAY(fcntl(fd, F_SETFL, O_APPEND));
        SAY(close(fd));
        SAY(close(fd));
        say_file("file");
    }
}

static void
direct(void)
{
    void *memory = NULL;

    if (posix_memalign(&memory, 4096, 8192) != 0) {
        return;
    }
    memset(memory, 'd', 8192);
    const int fd = open(at("direct"), O_CREAT | O_RDWR | O_DIRECT, 0600);
    SAY(write(fd, memory, 8192));
    SAY(pread(fd, memory, 4096, 4096));
    SAY(pread(fd, memory, 4096, 8192));
    close(fd);
    free(memory);
}

void
part_open(void)
{
    make_kinds();
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        each_way(kinds[i]);
    }
    make_kinds();
    other_names();
    limits();
    allowed();
    direct();
}
