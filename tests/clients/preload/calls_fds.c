/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors: copies of them, their flags, closing; locks; maps; orphans; copies by the kernel.
 */
#include "tests/clients/preload/calls.h"

#include <linux/close_range.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void
offsets(void)
{
    char buffer[8] = "";
    const int fd = open(at("shared"), O_CREAT | O_RDWR, 0600);

    SAY(write(fd, "0123456789", 10));
    const int copy = FD(dup(fd));
    SAY(lseek(copy, 3, SEEK_SET));
    SAY(read(fd, buffer, 2));
    printf("%s\n", buffer);
    const int high = FD(fcntl(fd, F_DUPFD, 100));
    printf("%d\n", high >= 100);
    SAY(read(high, buffer, 2));
    const int cloexec = FD(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    printf("%d %d\n", fcntl(cloexec, F_GETFD), fcntl(high, F_GETFD));
    SAY(dup2(fd, 77));
    SAY(dup2(77, 77));
    SAY(dup3(fd, 78, O_CLOEXEC));
    SAY(dup3(fd, fd, O_CLOEXEC));
    SAY(fcntl(78, F_GETFD));
    SAY(dup2(-1, 78));
    SAY(dup2(fd, -1));
    FD(dup(-1));
    const int other = open(at("shared"), O_RDONLY);
    SAY(lseek(other, 0, SEEK_CUR));
    SAY(dup2(other, 77));
    SAY(lseek(77, 0, SEEK_CUR));
    SAY(lseek(78, 0, SEEK_CUR));
    SAY(close(78));
    SAY(fcntl(78, F_GETFD));
    SAY(syscall(SYS_dup2, fd, 79));
    SAY(lseek(79, 0, SEEK_CUR));
    SAY(syscall(SYS_close, 79));
    SAY(read(79, buffer, 1));
    SAY(close(fd));
    SAY(read(copy, buffer, 1));
    SAY(close(copy));
    SAY(close(high));
    SAY(close(cloexec));
    SAY(close(77));
    SAY(close(other));
}

/* A number that was ours is another file's afterwards. */
static void
reuse(void)
{
    char buffer[8] = "";
    int ends[2];

    make_file("reuse", "ours");
    const int fd = open(at("reuse"), O_RDWR);
    SAY(pipe(ends));
    SAY(dup2(ends[1], fd) == fd);
    SAY(write(fd, "pipe", 4));
    SAY(read(ends[0], buffer, 8));
    printf("%s\n", buffer);
    close(fd);
    close(ends[0]);
    close(ends[1]);
    const int first = open(at("reuse"), O_RDONLY);
    close(first);
    const int null = open("/dev/null", O_RDWR);
    const int second = open(at("reuse"), O_RDONLY);
    SAY(read(null, buffer, 8));
    SAY(read(second, buffer, 8));
    SAY(dup2(second, null) == null);
    SAY(lseek(null, 0, SEEK_SET));
    SAY(read(null, buffer, 8));
    close(null);
    close(second);
    SAY(fcntl(null, F_GETFD));
    SAY(fcntl(second, F_GETFD));
    struct stat stat;
    SAY(fstat(second, &stat));
    SAY(write(second, "x", 1));
    SAY(read(second, buffer, 0));
    FD(dup(second));
    SAY(dup2(second, 50));
    SAY(close(second));
    say_file("reuse");
}

static void
flags(void)
{
    const int fd = open(at("flags"), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    int on = 1;

    SAY(fcntl(fd, F_GETFD));
    SAY(fcntl(fd, F_SETFD, 0));
    SAY(fcntl(fd, F_GETFD));
    SAY(ioctl(fd, FIOCLEX));
    SAY(fcntl(fd, F_GETFD));
    SAY(ioctl(fd, FIONCLEX));
    SAY(fcntl(fd, F_GETFD));
    SAY(fcntl(fd, F_GETFL));
    SAY(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK));
    SAY(fcntl(fd, F_GETFL));
    SAY(write(fd, "a", 1));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(write(fd, "b", 1));
    SAY(fcntl(fd, F_SETFL, 0));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(write(fd, "c", 1));
    SAY(fcntl(fd, F_GETOWN));
    SAY(fcntl(fd, 9999, &on));
    SAY(fcntl(-1, F_GETFL));
    SAY(close_range((unsigned)fd, (unsigned)fd, CLOSE_RANGE_CLOEXEC));
    SAY(fcntl(fd, F_GETFD));
    SAY(close_range((unsigned)fd, 1, 0));
    SAY(close_range((unsigned)fd, (unsigned)fd, 999));
    SAY(close_range((unsigned)fd, (unsigned)fd, 0));
    SAY(fcntl(fd, F_GETFD));
    say_file("flags");
}

/* Passed over a socket to another process. */
static void
passing(void)
{
    int ends[2];
    char control[CMSG_SPACE(sizeof(int))] = {0};
    char byte = 'b';
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};

    make_file("passed", "passed on");
    fflush(stdout);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        return;
    }
    const pid_t child = fork();
    if (child == 0) {
        char text[16] = "";

        if (recvmsg(ends[0], &message, 0) == 1) {
            int fd = -1;

            memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
            printf("read %zd: %s\n", read(fd, text, 15), text);
        }
        fflush(stdout);
        _exit(0);
    }
    const int fd = open(at("passed"), O_RDONLY);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    /* Said when the child has ended, whose words come first then. */
    const ssize_t sent = sendmsg(ends[1], &message, 0);
    waitpid(child, NULL, 0);
    SAY(sent);
    SAY(lseek(fd, 0, SEEK_CUR));
    close(fd);
    close(ends[0]);
    close(ends[1]);
}

void
part_descriptors(void)
{
    offsets();
    reuse();
    flags();
    passing();
}

/* ---- locks ---- */

/* What a child of ours finds of the lock that this process holds. */
static void
in_child(const char *label, int (*run)(int fd), int fd)
{
    int status = 0;

    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        _exit(run(fd));
    }
    waitpid(child, &status, 0);
    printf("%s: %d\n", label, WEXITSTATUS(status));
}

static int
try_range(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 5};

    if (fcntl(fd, F_SETLK, &lock) == 0) {
        return 1;
    }
    if (errno != EAGAIN && errno != EACCES) {
        return 2;
    }
    if (fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type != F_WRLCK || lock.l_start != 2 ||
        lock.l_len != 5 || lock.l_pid != getppid()) {
        return 3;
    }
    return 0;
}

static int
try_flock(int fd)
{
    (void)fd;
    const int own = open(at("locked"), O_RDWR);

    return flock(own, LOCK_EX | LOCK_NB) == 0 ? 1 : errno == EWOULDBLOCK ? 0 : 2;
}

static int
try_lockf(int fd)
{
    return lseek(fd, 0, SEEK_SET) == 0 && lockf(fd, F_TEST, 1) == 0 ? 1 : errno == EACCES ? 0 : 2;
}

static int
wait_for_range(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};

    return fcntl(fd, F_SETLKW, &lock) == 0 ? 0 : 1;
}

static int
try_ofd(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

    (void)fd;
    const int own = open(at("locked"), O_RDWR);
    return fcntl(own, F_OFD_SETLK, &lock) == 0 ? 1 : errno == EAGAIN ? 0 : 2;
}

static void
on_alarm(int number)
{
    (void)number;
}

/* F_SETLKW ends with a signal whose handler does not restart. */
static int
wait_with_alarm(int fd)
{
    const struct sigaction action = {.sa_handler = on_alarm};
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    sigaction(SIGALRM, &action, NULL);
    ualarm(100000, 0);
    return fcntl(fd, F_SETLKW, &lock) == 0 ? 1 : errno == EINTR ? 0 : 2;
}

void
part_locks(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 5};

    make_file("locked", "0123456789");
    const int fd = open(at("locked"), O_RDWR);
    const int read_only = open(at("locked"), O_RDONLY);
    SAY(fcntl(fd, F_SETLK, &lock));
    in_child("range", try_range, fd);
    in_child("waiting, alarm", wait_with_alarm, fd);
    lock.l_whence = SEEK_END;
    lock.l_start = -10;
    SAY(fcntl(fd, F_GETLK, &lock));
    printf("%d\n", lock.l_type == F_UNLCK);
    lock = (struct flock){.l_type = F_UNLCK, .l_whence = SEEK_SET};
    SAY(fcntl(fd, F_SETLK, &lock));
    in_child("waiting", wait_for_range, fd);
    lock.l_type = F_WRLCK;
    SAY(fcntl(read_only, F_SETLK, &lock));
    lock.l_type = F_RDLCK;
    SAY(fcntl(read_only, F_SETLK, &lock));
    lock.l_start = -5;
    SAY(fcntl(fd, F_SETLK, &lock));
    lock.l_whence = 77;
    SAY(fcntl(fd, F_SETLK, &lock));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(lockf(fd, F_TLOCK, 2));
    in_child("lockf", try_lockf, fd);
    SAY(lockf(fd, F_ULOCK, 2));
    SAY(lockf(fd, F_TEST, 2));
    SAY(lockf(fd, F_LOCK, 0));
    SAY(lockf(fd, 99, 0));
    SAY(close(read_only)); /* which ends the locks of the process */
    in_child("after a close", try_lockf, fd);
    const int own = open(at("locked"), O_RDWR);
    SAY(flock(own, LOCK_EX));
    in_child("flock", try_flock, own);
    const int again = open(at("locked"), O_RDWR);
    SAY(flock(again, LOCK_SH | LOCK_NB));
    SAY(flock(own, 0));
    close(own);
    SAY(flock(again, LOCK_SH | LOCK_NB));
    SAY(flock(again, LOCK_UN));
    lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    const int ofd = open(at("locked"), O_RDWR);
    SAY(fcntl(ofd, F_OFD_SETLK, &lock));
    in_child("ofd", try_ofd, ofd);
    SAY(fcntl(again, F_OFD_SETLK, &lock));
    SAY(fcntl(again, F_OFD_GETLK, &lock));
    printf("%d\n", lock.l_type == F_WRLCK);
    close(ofd);
    lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    SAY(fcntl(again, F_OFD_SETLKW, &lock));
    close(again);
    close(fd);
}

/* ---- maps ---- */

void
part_mmap(void)
{
    char *map = NULL;

    make_file("map", "mapped content");
    const int fd = open(at("map"), O_RDWR);
    const int read_only = open(at("map"), O_RDONLY);
    const int write_only = open(at("map"), O_WRONLY);

    map = PTR(mmap(NULL, 14, PROT_READ, MAP_PRIVATE, fd, 0));
    printf("%.14s, then %d\n", map, map[14]);
    munmap(map, 14);
    map = PTR(mmap(NULL, 14, PROT_READ | PROT_WRITE, MAP_PRIVATE, read_only, 0));
    map[0] = 'M';
    printf("%.14s\n", map);
    munmap(map, 14);
    map = PTR(mmap64(NULL, 14, PROT_READ, MAP_SHARED, read_only, 0));
    printf("%.14s\n", map);
    SAY(mprotect(map, 14, PROT_READ | PROT_WRITE));
    SAY(msync(map, 14, MS_SYNC));
    munmap(map, 14);
    DIFFERS(mmap(NULL, 14, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), ENODEV);
    PTR(mmap(NULL, 14, PROT_READ | PROT_WRITE, MAP_SHARED, read_only, 0));
    PTR(mmap(NULL, 14, PROT_READ, MAP_PRIVATE, write_only, 0));
    PTR(mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 0));
    PTR(mmap(NULL, 14, PROT_READ, MAP_PRIVATE, fd, 1));
    PTR(mmap(NULL, 14, PROT_READ, MAP_PRIVATE, -1, 0));
    if (ftruncate(fd, 3 << 20) == 0 && pwrite(fd, "far", 3, (2 << 20) + 5) == 3) {
        map = PTR(mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE, fd, 2 << 20));
        printf("%.3s\n", map + 5);
        void *place = PTR(mmap(map, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0));
        printf("%d %.6s\n", place == map, map);
        munmap(map, 1 << 20);
    }
    say_file("map");
    close(fd);
    close(read_only);
    close(write_only);
}

/* ---- orphans ---- */

void
part_orphans(void)
{
    char buffer[16] = "";
    struct stat stat;

    make_file("orphan", "still there");
    const int fd = open(at("orphan"), O_RDWR);
    SAY(unlink(at("orphan")));
    SAY(fstat(fd, &stat));
    say_stat("orphan", &stat);
    SAY(pwrite(fd, "S", 1, 0));
    SAY(pread(fd, buffer, 11, 0));
    printf("%s\n", buffer);
    SAY(ftruncate(fd, 3));
    SAY(lseek(fd, 0, SEEK_END));
    SAY(mkdir(at("orphan"), 0700));
    SAY(fchmod(fd, 0604));
    const int alias = fd;
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", alias);
    const int again = open(path, O_RDONLY);
    SAY(read(again, buffer, 3));
    SAY(close(again));
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        SAY(pread(fd, buffer, 3, 0));
        SAY(pwrite(fd, "C", 1, 0));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    SAY(pread(fd, buffer, 3, 0));
    printf("%.3s\n", buffer);
    SAY(close(fd));
    mkdir(at("parent"), 0700);
    make_file("parent/in", "in");
    const int in = open(at("parent/in"), O_RDONLY);
    SAY(unlink(at("parent/in")));
    SAY(rmdir(at("parent")));
    SAY(read(in, buffer, 3));
    close(in);
    /* Closed by the parent while only a child has it. */
    make_file("handed", "on");
    const int handed = open(at("handed"), O_RDWR);
    unlink(at("handed"));
    int ends[2];
    if (pipe(ends) != 0) {
        return;
    }
    fflush(stdout);
    const pid_t heir = fork();
    if (heir == 0) {
        (void)!read(ends[0], buffer, 1);
        SAY(pread(handed, buffer, 3, 0));
        fflush(stdout);
        _exit(0);
    }
    close(handed);
    SAY(write(ends[1], "x", 1));
    waitpid(heir, NULL, 0);
    close(ends[0]);
    close(ends[1]);
}

/* ---- copies by the kernel ---- */

static void
say_copy(const char *name, const char *text)
{
    char buffer[64] = "";
    const int fd = open(at(name), O_RDONLY);

    (void)!read(fd, buffer, sizeof(buffer) - 1);
    close(fd);
    printf("%s: %d\n", name, strcmp(buffer, text) == 0);
}

void
part_copies(void)
{
    char template[] = "/tmp/causeway-copy-XXXXXX";
    char buffer[64] = "";
    off_t offset = 2;
    off_t zero = 0;
    int ends[2];

    make_file("from", "to be copied");
    const int from = open(at("from"), O_RDONLY);
    const int to = open(at("to"), O_CREAT | O_RDWR, 0600);
    const int local = mkstemp(template);
    unlink(template);
    SAY(sendfile(to, from, NULL, 100));
    SAY(lseek(from, 0, SEEK_CUR));
    say_copy("to", "to be copied");
    SAY(sendfile(to, from, &offset, 5));
    printf("%ld\n", (long)offset);
    SAY(lseek(from, 0, SEEK_CUR));
    SAY(sendfile(local, from, &offset, 3));
    SAY(pread(local, buffer, 10, 0));
    printf("%.3s\n", buffer);
    SAY(lseek(local, 0, SEEK_SET));
    SAY(sendfile64(to, local, NULL, 2));
    SAY(sendfile(to, from, &offset, 0));
    SAY(sendfile(from, local, &offset, 1));
    DIFFERS(copy_file_range(from, &zero, to, NULL, 5, 0), EXDEV);
    SAY(pipe(ends));
    DIFFERS(splice(from, &zero, ends[1], NULL, 5, 0), EINVAL);
    DIFFERS(rename(at("from"), "/tmp/causeway-nowhere"), EXDEV);
    DIFFERS(link(at("from"), "/tmp/causeway-nowhere"), EXDEV);
    unlink("/tmp/causeway-nowhere");
    close(ends[0]);
    close(ends[1]);
    close(from);
    close(to);
    close(local);
}
