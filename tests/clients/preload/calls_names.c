/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names and attributes: the stat family, making, removing, moving, linking; modes, owners, times,
 * extended attributes.
 */
#include "tests/clients/preload/calls.h"

#include <linux/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>

int statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *statx);
ssize_t __readlink_chk(const char *path, char *buffer, size_t bytes, size_t room);
ssize_t __readlinkat_chk(int dirfd, const char *path, char *buffer, size_t bytes, size_t room);

static const char *const kinds[] = {"file",   "missing",  "dir",      "full",          "to_file",
                                    "to_dir", "dangling", "loop",     "fifo",          "file/",
                                    "dir/",   "to_dir/",  "missing/", "file/x",        "missing/x",
                                    "dir/.",  "dir/..",   "loop/x",   "to_dir/../file"};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void
make_kinds(void)
{
    empty_top();
    make_file("file", "content");
    mkdir(at("dir"), 0755);
    mkdir(at("full"), 0750);
    make_file("full/in", "");
    (void)!symlink("file", at("to_file"));
    (void)!symlink("dir", at("to_dir"));
    (void)!symlink("nowhere", at("dangling"));
    (void)!symlink("loop", at("loop"));
    (void)!mkfifo(at("fifo"), 0600);
}

static void
say_if(long rc, const struct stat *stat)
{
    if (rc == 0) {
        say_stat("  ", stat);
    }
}

void
part_stat(void)
{
    make_kinds();
    const int dir = open(at("dir"), O_RDONLY);
    const int file = open(at("file"), O_RDONLY);
    const int path = open(at("to_file"), O_PATH | O_NOFOLLOW);

    for (size_t i = 0; i < KINDS; i++) {
        struct stat stat64_buffer;
        struct statx statx_buffer;
        struct statfs statfs_buffer;
        struct statvfs statvfs_buffer;
        struct stat stat_buffer;

        printf("-- %s\n", kinds[i]);
        say_if(SAY(stat(at(kinds[i]), &stat_buffer)), &stat_buffer);
        say_if(SAY(lstat(at(kinds[i]), &stat_buffer)), &stat_buffer);
        say_if(SAY(stat64(at(kinds[i]), (struct stat64 *)&stat64_buffer)), &stat64_buffer);
        say_if(SAY(lstat64(at(kinds[i]), (struct stat64 *)&stat64_buffer)), &stat64_buffer);
        say_if(SAY(fstatat(dir, at(kinds[i]), &stat_buffer, 0)), &stat_buffer);
        say_if(SAY(fstatat64(AT_FDCWD, at(kinds[i]), (struct stat64 *)&stat_buffer,
                             AT_SYMLINK_NOFOLLOW)),
               &stat_buffer);
        if (SAY(statx(AT_FDCWD, at(kinds[i]), 0, STATX_BASIC_STATS, &statx_buffer)) == 0) {
            printf("   mode %o, uid %u, %d\n", statx_buffer.stx_mode, statx_buffer.stx_uid,
                   (statx_buffer.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
        }
        SAY(statx(AT_FDCWD, at(kinds[i]), AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC, STATX_TYPE,
                  &statx_buffer));
        SAY(statfs(at(kinds[i]), &statfs_buffer));
        SAY(statfs64(at(kinds[i]), (struct statfs64 *)&statfs_buffer));
        if (SAY(statvfs(at(kinds[i]), &statvfs_buffer)) == 0) {
            printf("   names of %lu bytes, %d\n", statvfs_buffer.f_namemax,
                   statvfs_buffer.f_blocks >= statvfs_buffer.f_bfree);
        }
        SAY(statvfs64(at(kinds[i]), (struct statvfs64 *)&statvfs_buffer));
        SAY(access(at(kinds[i]), F_OK));
        SAY(access(at(kinds[i]), R_OK | W_OK));
        SAY(access(at(kinds[i]), X_OK));
        SAY(access(at(kinds[i]), 99));
        SAY(faccessat(AT_FDCWD, at(kinds[i]), R_OK, AT_EACCESS));
        SAY(faccessat(AT_FDCWD, at(kinds[i]), F_OK, AT_SYMLINK_NOFOLLOW));
        SAY(euidaccess(at(kinds[i]), W_OK));
        SAY(eaccess(at(kinds[i]), R_OK));
    }
    struct stat stat_buffer;
    struct statx statx_buffer;
    struct statfs statfs_buffer;
    struct statvfs statvfs_buffer;

    say_if(SAY(fstat(file, &stat_buffer)), &stat_buffer);
    say_if(SAY(fstat64(dir, (struct stat64 *)&stat_buffer)), &stat_buffer);
    say_if(SAY(fstat(path, &stat_buffer)), &stat_buffer);
    SAY(fstat(-1, &stat_buffer));
    say_if(SAY(fstatat(dir, "../file", &stat_buffer, 0)), &stat_buffer);
    say_if(SAY(fstatat(file, "", &stat_buffer, AT_EMPTY_PATH)), &stat_buffer);
    say_if(SAY(fstatat(path, "", &stat_buffer, AT_EMPTY_PATH)), &stat_buffer);
    SAY(fstatat(dir, "", &stat_buffer, 0));
    SAY(fstatat(file, "x", &stat_buffer, 0));
    SAY(fstatat(-1, "x", &stat_buffer, 0));
    SAY(stat("", &stat_buffer));
    SAY(stat(NULL, &stat_buffer));
    SAY(statx(file, "", AT_EMPTY_PATH, STATX_ALL, &statx_buffer));
    SAY(statx(dir, "", 0, STATX_ALL, &statx_buffer));
    SAY(faccessat(dir, "../file", R_OK, 0));
    SAY(faccessat(file, "", R_OK, AT_EMPTY_PATH));
    SAY(fstatfs(file, &statfs_buffer));
    SAY(fstatfs64(dir, (struct statfs64 *)&statfs_buffer));
    SAY(fstatvfs(file, &statvfs_buffer));
    SAY(fstatvfs64(-1, (struct statvfs64 *)&statvfs_buffer));
    close(dir);
    close(file);
    close(path);
}

/* Every name to every other. */
static void
two_names(void)
{
    for (size_t i = 0; i < KINDS; i++) {
        for (size_t k = 0; k < KINDS; k++) {
            char label[128];

            snprintf(label, sizeof(label), "rename %s to %s", kinds[i], kinds[k]);
            errno = 0;
            if (say(label, rename(at(kinds[i]), at(kinds[k]))) == 0) {
                make_kinds();
            }
            snprintf(label, sizeof(label), "link %s to %s", kinds[i], kinds[k]);
            errno = 0;
            if (say(label, link(at(kinds[i]), at(kinds[k]))) == 0) {
                unlink(at(kinds[k]));
            }
        }
    }
}

static void
one_name(void)
{
    char buffer[64];

    for (size_t i = 0; i < KINDS; i++) {
        printf("-- %s\n", kinds[i]);
        SAY(mkdir(at(kinds[i]), 0700));
        make_kinds();
        SAY(mknod(at(kinds[i]), S_IFREG | 0640, 0));
        make_kinds();
        SAY(mkfifo(at(kinds[i]), 0640));
        make_kinds();
        SAY(symlink("text", at(kinds[i])));
        make_kinds();
        SAY(unlink(at(kinds[i])));
        make_kinds();
        SAY(rmdir(at(kinds[i])));
        make_kinds();
        SAY(remove(at(kinds[i])));
        make_kinds();
        memset(buffer, '-', sizeof(buffer));
        const long bytes = SAY(readlink(at(kinds[i]), buffer, sizeof(buffer)));
        printf("%.*s\n", bytes > 0 ? (int)bytes : 0, buffer);
    }
}

static void
at_forms(void)
{
    char buffer[64];
    const int dir = open(at("dir"), O_RDONLY);
    const int file = open(at("file"), O_RDONLY);

    SAY(mkdirat(dir, "sub", 0711));
    SAY(mkdirat(dir, "sub", 0711));
    SAY(mkdirat(file, "sub", 0711));
    SAY(mknodat(dir, "node", S_IFREG | 0666, 0));
    SAY(mkfifoat(dir, "pipe", 0666));
    SAY(mknodat(dir, "strange", S_IFDIR | 0666, 0));
    DIFFERS(mknodat(dir, "device", S_IFCHR | 0666, makedev(1, 3)), EPERM);
    unlink(at("dir/device"));
    SAY(symlinkat("../file", dir, "link"));
    SAY(readlinkat(dir, "link", buffer, sizeof(buffer)));
    SAY(readlinkat(dir, "link", buffer, 3));
    printf("%.3s\n", buffer);
    SAY(readlinkat(dir, "link", buffer, 0));
    SAY(readlinkat(dir, "node", buffer, 9));
    SAY(readlink(at("dir/link"), buffer, 2));
    SAY(__readlink_chk(at("dir/link"), buffer, 9, sizeof(buffer)));
    SAY(__readlinkat_chk(dir, "link", buffer, 9, sizeof(buffer)));
    const int link = open(at("dir/link"), O_PATH | O_NOFOLLOW);
    SAY(readlinkat(link, "", buffer, sizeof(buffer)));
    close(link);
    SAY(linkat(dir, "link", dir, "link2", 0));
    SAY(linkat(dir, "link", dir, "hard", AT_SYMLINK_FOLLOW));
    SAY(linkat(dir, "hard", AT_FDCWD, at("hard2"), 0));
    SAY(linkat(dir, "hard", dir, "x", 99));
    SAY(unlinkat(dir, "link", 0));
    SAY(unlinkat(dir, "sub", 0));
    SAY(unlinkat(dir, "node", AT_REMOVEDIR));
    SAY(unlinkat(dir, "sub", AT_REMOVEDIR));
    SAY(unlinkat(dir, "sub", AT_REMOVEDIR));
    SAY(unlinkat(dir, "node", 99));
    SAY(renameat(dir, "node", AT_FDCWD, at("node")));
    SAY(renameat2(AT_FDCWD, at("node"), dir, "hard", RENAME_NOREPLACE));
    SAY(renameat2(AT_FDCWD, at("node"), dir, "hard", RENAME_EXCHANGE));
    SAY(renameat2(AT_FDCWD, at("file"), dir, "missing", RENAME_EXCHANGE));
    SAY(renameat2(AT_FDCWD, at("node"), dir, "free", RENAME_NOREPLACE));
    SAY(renameat2(AT_FDCWD, at("full"), dir, "hard", RENAME_EXCHANGE));
    SAY(renameat2(AT_FDCWD, at("full"), dir, "hard", RENAME_EXCHANGE));
    SAY(renameat2(AT_FDCWD, at("full"), dir, "x", 99));
    SAY(renameat(dir, "hard", file, "x"));
    SAY(rename(at("full"), at("full/sub")));
    SAY(rename(at("."), at("x")));
    close(dir);
    close(file);
}

static void
strange_names(void)
{
    static const char *const names[] = {"new\nline", "quo\"te", "back\\slash", "\xff\xfe", "end ",
                                        " ",         "...",     "-",           "*",        "\x7f"};
    char unicode[400] = "";
    char name[300];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct stat info;

        make_file(names[i], "x");
        SAY(stat(at(names[i]), &info));
        SAY(rename(at(names[i]), at("plain")));
        SAY(rename(at("plain"), at(names[i])));
        SAY(unlink(at(names[i])));
    }
    for (int i = 0; i < 85; i++) {
        strcat(unicode, "\xe2\x82\xac");
    }
    SAY(mkdir(at(unicode), 0700));
    SAY(rmdir(at(unicode)));
    strcat(unicode, "x");
    SAY(mkdir(at(unicode), 0700));
    memset(name, 'n', sizeof(name));
    name[256] = '\0';
    struct stat info;
    SAY(mkdir(at(name), 0700));
    SAY(rmdir(at(name)));
    SAY(unlink(at(name)));
    SAY(stat(at(name), &info));
    SAY(lstat(at(name), &info));
    SAY(access(at(name), F_OK));
    SAY(rename(at("file"), at(name)));
    SAY(rename(at(name), at("file")));
    SAY(link(at("file"), at(name)));
    SAY(symlink("x", at(name)));
    SAY(readlink(at(name), name, 1));
    SAY(mkfifo(at(name), 0600));
    SAY(chmod(at(name), 0600));
    SAY(chown(at(name), 0, 0));
    SAY(truncate(at(name), 0));
    SAY(utimes(at(name), NULL));
    SAY(chdir(at(name)));
    char target[4200];
    memset(target, 't', sizeof(target));
    target[4095] = '\0';
    SAY(symlink(target, at("long")));
    SAY(readlink(at("long"), target, sizeof(target)));
    target[4095] = 't';
    target[4096] = '\0';
    SAY(symlink(target, at("longer")));
    SAY(symlink("", at("empty")));
}

void
part_names(void)
{
    make_kinds();
    one_name();
    make_kinds();
    at_forms();
    make_kinds();
    strange_names();
    make_kinds();
    two_names();
}

static void
say_times(const char *name)
{
    struct stat stat;

    if (lstat(at(name), &stat) == 0) {
        printf("%s: %ld.%09ld %ld.%09ld\n", name, stat.st_atim.tv_sec, stat.st_atim.tv_nsec,
               stat.st_mtim.tv_sec, stat.st_mtim.tv_nsec);
    }
}

static void
times(void)
{
    const struct timespec spec[2] = {{.tv_sec = 1000, .tv_nsec = 5}, {.tv_sec = -9, .tv_nsec = 7}};
    const struct timespec omit[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 44, .tv_nsec = 999999999}};
    const struct timespec bad[2] = {{.tv_nsec = 1000000000}, {.tv_nsec = 0}};
    const struct timeval val[2] = {{.tv_sec = 2000, .tv_usec = 1}, {.tv_sec = 3000, .tv_usec = 2}};
    const struct timeval bad_val[2] = {{.tv_usec = 1000000}, {.tv_usec = 0}};
    const struct utimbuf buf = {.actime = 11, .modtime = 12};
    const int fd = open(at("file"), O_RDWR);
    const int dir = open(at("dir"), O_RDONLY);
    struct stat stat;

    SAY(utimensat(AT_FDCWD, at("file"), spec, 0));
    say_times("file");
    SAY(utimensat(AT_FDCWD, at("file"), omit, 0));
    say_times("file");
    SAY(utimensat(AT_FDCWD, at("file"), bad, 0));
    SAY(utimensat(dir, "../to_file", spec, AT_SYMLINK_NOFOLLOW));
    say_times("to_file");
    say_times("file");
    SAY(utimensat(AT_FDCWD, at("missing"), spec, 0));
    SAY(futimens(fd, spec));
    say_times("file");
    SAY(futimens(fd, bad));
    SAY(futimens(-1, spec));
    SAY(utimes(at("to_file"), val));
    say_times("file");
    SAY(utimes(at("file"), bad_val));
    SAY(lutimes(at("to_file"), val));
    say_times("to_file");
    SAY(futimes(fd, val));
    SAY(futimesat(dir, "../file", val));
    SAY(utime(at("file"), &buf));
    say_times("file");
    SAY(utime(at("missing"), &buf));
    SAY(utime(at("file"), NULL));
    SAY(fstat(fd, &stat));
    printf("now: %d\n", stat.st_mtim.tv_sec > 1000000000);
    SAY(utimensat(AT_FDCWD, at("dir"), spec, 0));
    say_times("dir");
    SAY(write(fd, "x", 1));
    SAY(fstat(fd, &stat));
    printf("written: %d\n", stat.st_mtim.tv_sec > 1000000000);
    close(fd);
    close(dir);
}

static void
modes(void)
{
    const int fd = open(at("file"), O_RDWR);
    const int dir = open(at("dir"), O_RDONLY);
    struct stat stat;

    SAY(chmod(at("file"), 07755));
    lstat(at("file"), &stat);
    say_stat("file", &stat);
    SAY(chmod(at("to_file"), 0600));
    SAY(fchmod(fd, 0640));
    SAY(fchmod(-1, 0640));
    SAY(fchmodat(dir, "../file", 0601, 0));
    SAY(fchmodat(dir, "../file", 0604, AT_SYMLINK_NOFOLLOW));
    SAY(fchmodat(dir, "../file", 0604, 99));
    DIFFERS(fchmodat(dir, "../to_file", 0604, AT_SYMLINK_NOFOLLOW), EOPNOTSUPP);
    SAY(lchmod(at("file"), 0602));
    SAY(chmod(at("missing"), 0600));
    SAY(chmod(at("loop"), 0600));
    SAY(chmod(at("dir"), 01777));
    lstat(at("dir"), &stat);
    say_stat("dir", &stat);
    fstat(fd, &stat);
    say_stat("file", &stat);
    SAY(chown(at("to_file"), 12, 34));
    fstat(fd, &stat);
    say_stat("file", &stat);
    SAY(lchown(at("to_file"), 56, 78));
    lstat(at("to_file"), &stat);
    printf("%u %u\n", stat.st_uid, stat.st_gid);
    SAY(fchown(fd, (uid_t)-1, 35));
    SAY(fchownat(dir, "../file", 13, (gid_t)-1, 0));
    SAY(fchownat(dir, "../to_file", 1, 1, AT_SYMLINK_NOFOLLOW));
    SAY(fchownat(fd, "", 14, (gid_t)-1, AT_EMPTY_PATH));
    SAY(fchownat(fd, "", 14, (gid_t)-1, 0));
    SAY(chown(at("missing"), 0, 0));
    fstat(fd, &stat);
    say_stat("file", &stat);
    const mode_t before = umask(0);
    printf("umask %o\n", before);
    mkdir(at("open_dir"), 0777);
    umask(077);
    mkdir(at("shut_dir"), 0777);
    printf("umask %o\n", umask(before));
    lstat(at("open_dir"), &stat);
    say_stat("open_dir", &stat);
    lstat(at("shut_dir"), &stat);
    say_stat("shut_dir", &stat);
    close(fd);
    close(dir);
}

static void
extended(void)
{
    char value[16];
    const int fd = open(at("file"), O_RDWR);

    DIFFERS(setxattr(at("file"), "user.a", "b", 1, 0), EOPNOTSUPP);
    DIFFERS(lsetxattr(at("file"), "user.a", "b", 1, 0), EOPNOTSUPP);
    DIFFERS(fsetxattr(fd, "user.a", "b", 1, 0), EOPNOTSUPP);
    DIFFERS(getxattr(at("file"), "user.a", value, 16), EOPNOTSUPP);
    DIFFERS(lgetxattr(at("to_file"), "user.a", value, 16), EOPNOTSUPP);
    DIFFERS(fgetxattr(fd, "user.a", value, 16), EOPNOTSUPP);
    DIFFERS(listxattr(at("file"), value, 16), EOPNOTSUPP);
    DIFFERS(llistxattr(at("file"), value, 16), EOPNOTSUPP);
    DIFFERS(flistxattr(fd, value, 16), EOPNOTSUPP);
    DIFFERS(removexattr(at("file"), "user.a"), EOPNOTSUPP);
    DIFFERS(lremovexattr(at("file"), "user.a"), EOPNOTSUPP);
    DIFFERS(fremovexattr(fd, "user.a"), EOPNOTSUPP);
    SAY(getxattr(at("missing"), "user.a", value, 16));
    SAY(setxattr(at("missing"), "user.a", "b", 1, 0));
    SAY(listxattr(at("dangling"), value, 16));
    SAY(removexattr(at("missing"), "user.a"));
    close(fd);
}

void
part_attributes(void)
{
    make_kinds();
    times();
    make_kinds();
    modes();
    make_kinds();
    extended();
}
