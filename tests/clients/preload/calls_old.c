/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The names that programs linked against libc before 2.33 have, by version.
 */
#include "tests/clients/preload/calls.h"

#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

#define OLD(name)     __asm__(".symver old_" #name "," #name "@GLIBC_2.2.5")
#define OLD_2_4(name) __asm__(".symver old_" #name "," #name "@GLIBC_2.4")
OLD(__xstat);
OLD(__xstat64);
OLD(__lxstat);
OLD(__lxstat64);
OLD(__fxstat);
OLD(__fxstat64);
OLD_2_4(__fxstatat);
OLD_2_4(__fxstatat64);
OLD(__xmknod);
OLD_2_4(__xmknodat);
OLD(posix_spawn);

int old___xstat(int version, const char *path, struct stat *stat);
int old___xstat64(int version, const char *path, struct stat *stat);
int old___lxstat(int version, const char *path, struct stat *stat);
int old___lxstat64(int version, const char *path, struct stat *stat);
int old___fxstat(int version, int fd, struct stat *stat);
int old___fxstat64(int version, int fd, struct stat *stat);
int old___fxstatat(int version, int dirfd, const char *path, struct stat *stat, int flags);
int old___fxstatat64(int version, int dirfd, const char *path, struct stat *stat, int flags);
int old___xmknod(int version, const char *path, mode_t mode, dev_t *dev);
int old___xmknodat(int version, int dirfd, const char *path, mode_t mode, dev_t *dev);
int old_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                    const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]);

void
part_old_names(void)
{
    struct stat stat;
    dev_t dev = 0;
    pid_t child = -1;
    int status = -1;
    char *const args[] = {(char *)(uintptr_t) "name", NULL};

    make_file("file", "content");
    (void)!symlink("file", at("link"));
    const int fd = open(at("file"), O_RDONLY);
    const int dir = open(top, O_RDONLY);
    SAY(old___xstat(1, at("link"), &stat));
    say_stat("xstat", &stat);
    SAY(old___xstat64(1, at("link"), &stat));
    SAY(old___xstat(1, at("missing"), &stat));
    SAY(old___lxstat(1, at("link"), &stat));
    say_stat("lxstat", &stat);
    SAY(old___lxstat64(1, at("link"), &stat));
    SAY(old___fxstat(1, fd, &stat));
    say_stat("fxstat", &stat);
    SAY(old___fxstat64(1, fd, &stat));
    SAY(old___fxstat64(1, -1, &stat));
    SAY(old___fxstatat(1, dir, "file", &stat, 0));
    SAY(old___fxstatat64(1, dir, "link", &stat, AT_SYMLINK_NOFOLLOW));
    say_stat("fxstatat", &stat);
    SAY(old___xmknod(0, at("node"), S_IFREG | 0640, &dev));
    SAY(old___xmknodat(0, dir, "node", S_IFREG | 0640, &dev));
    make_file("no head", "echo by a shell; exit 3\n");
    chmod(at("no head"), 0755);
    fflush(stdout);
    const int error = old_posix_spawn(&child, at("no head"), NULL, NULL, args, environ);
    waitpid(child, &status, 0);
    printf("%d %x\n", error, (unsigned)status);
    close(fd);
    close(dir);
}
