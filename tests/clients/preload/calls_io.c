/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data: every way to read, write, seek, cut, allocate.
 */
#include "tests/clients/preload/calls.h"

#include <aio.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>

ssize_t __read_chk(int fd, void *buffer, size_t bytes, size_t room);
ssize_t __pread_chk(int fd, void *buffer, size_t bytes, off_t offset, size_t room);
ssize_t __pread64_chk(int fd, void *buffer, size_t bytes, off64_t offset, size_t room);

#define MIB (1 << 20)

static char big[4 * MIB + 8192];

/* At the end of a file: what was there, and no byte of the buffer beyond. */
static void
at_the_end(void)
{
    static const long offsets[] = {0, 14399, 14400, 14401, 14400 + (1L << 30)};
    char buffer[65536];
    const int fd = open(at("end"), O_CREAT | O_RDWR, 0600);

    fill_pattern(big, 14400, 7);
    SAY(write(fd, big, 14400));
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        memset(buffer, 0x5a, sizeof(buffer));
        SAY(lseek(fd, offsets[i], SEEK_SET));
        const long got = SAY(read(fd, buffer, sizeof(buffer)));
        bool is_clean = got >= 0 && is_pattern(buffer, (size_t)got, 7 + (uint64_t)offsets[i]);

        for (size_t k = (size_t)got; k < sizeof(buffer); k++) {
            is_clean = is_clean && buffer[k] == 0x5a;
        }
        printf("right and clean: %d\n", is_clean);
        SAY(lseek(fd, 0, SEEK_CUR));
        SAY(pread(fd, buffer, sizeof(buffer), offsets[i]));
    }
    close(fd);
}

static void
vectors(void)
{
    char a[3], b[5], c[7];
    struct iovec iov[4] = {{a, 3}, {b, 0}, {b, 5}, {c, 7}};
    static struct iovec many[IOV_MAX + 1];
    const int fd = open(at("vectors"), O_CREAT | O_RDWR, 0600);

    memcpy(a, "abc", 3);
    memcpy(b, "defgh", 5);
    memcpy(c, "ijklmno", 7);
    SAY(writev(fd, iov, 4));
    SAY(pwritev(fd, iov, 4, 20));
    SAY(pwritev64(fd, iov, 1, 40));
    SAY(pwritev2(fd, iov, 4, -1, 0));
    SAY(pwritev2(fd, iov, 4, 50, RWF_DSYNC));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(readv(fd, iov, 4));
    SAY(preadv(fd, iov, 4, 2));
    printf("%.3s %.5s %.7s\n", a, b, c);
    SAY(preadv64(fd, iov, 4, 40));
    SAY(preadv2(fd, iov, 2, -1, 0));
    SAY(preadv2(fd, iov, 2, 1000, 0));
    SAY(preadv(fd, iov, 4, -1));
    SAY(pwritev(fd, iov, 4, -5));
    SAY(readv(fd, iov, 0));
    SAY(readv(fd, iov, -1));
    SAY(writev(fd, many, IOV_MAX + 1));
    SAY(writev(fd, many, IOV_MAX));
    for (int i = 0; i < IOV_MAX; i++) {
        many[i] = (struct iovec){big + i, 1};
    }
    SAY(pwritev(fd, many, IOV_MAX, 100));
    SAY(lseek(fd, 0, SEEK_END));
    say_file("vectors");
    DIFFERS(preadv2(fd, iov, 1, 0, RWF_NOWAIT), EOPNOTSUPP);
    close(fd);
}

static void
simple(void)
{
    char buffer[64];
    int fd = open(at("simple"), O_CREAT | O_RDWR, 0600);

    SAY(write(fd, "0123456789", 10));
    SAY(write(fd, "", 0));
    SAY(pwrite(fd, "ab", 2, 4));
    SAY(pwrite64(fd, "z", 1, 15));
    SAY(pwrite(fd, "x", 1, -1));
    SAY(pread(fd, buffer, 4, -1));
    SAY(pread(fd, buffer, 0, 0));
    SAY(pread64(fd, buffer, 20, 0));
    SAY(lseek(fd, 2, SEEK_SET));
    SAY(__read_chk(fd, buffer, 3, sizeof(buffer)));
    SAY(__pread_chk(fd, buffer, 3, 1, sizeof(buffer)));
    SAY(__pread64_chk(fd, buffer, 3, 1, sizeof(buffer)));
    printf("%.3s\n", buffer);
    SAY(syscall(SYS_read, fd, buffer, 2L));
    SAY(syscall(SYS_pwrite64, fd, "S", 1L, 12L));
    close(fd);
    say_file("simple");
    fd = open(at("simple"), O_WRONLY | O_APPEND);
    SAY(write(fd, "+1", 2));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(write(fd, "+2", 2));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(pwrite(fd, "+3", 2, 0)); /* Linux appends */
    close(fd);
    say_file("simple");
    fd = open(top, O_RDONLY);
    SAY(read(fd, buffer, 1));
    SAY(pread(fd, buffer, 1, 0));
    SAY(write(fd, buffer, 1));
    SAY(ftruncate(fd, 0));
    close(fd);
    SAY(read(fd, buffer, 1));
    SAY(write(fd, buffer, 1));
    SAY(read(-1, buffer, 1));
}

static void
seeking(void)
{
    const int fd = open(at("seek"), O_CREAT | O_RDWR, 0600);

    SAY(write(fd, "0123456789", 10));
    SAY(lseek(fd, 3, SEEK_SET));
    SAY(lseek(fd, 4, SEEK_CUR));
    SAY(lseek(fd, -8, SEEK_CUR));
    SAY(lseek(fd, -3, SEEK_END));
    SAY(lseek64(fd, 100, SEEK_END));
    SAY(lseek(fd, -100, SEEK_END));
    SAY(lseek(fd, -1, SEEK_SET));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(lseek(fd, 0, 99));
    SAY(lseek(fd, LONG_MAX, SEEK_CUR));
    SAY(ftruncate(fd, 0));
    SAY(pwrite(fd, "x", 1, 2 * MIB));
    SAY(pwrite(fd, "x", 1, 6 * MIB));
    SAY(ftruncate(fd, 8 * MIB));
    SAY(lseek(fd, 0, SEEK_DATA));
    SAY(lseek(fd, 2 * MIB, SEEK_DATA));
    SAY(lseek(fd, 3 * MIB, SEEK_DATA));
    SAY(lseek(fd, 7 * MIB, SEEK_DATA));
    SAY(lseek(fd, 0, SEEK_HOLE));
    SAY(lseek(fd, 4 * MIB, SEEK_HOLE));
    SAY(lseek(fd, 8 * MIB, SEEK_DATA));
    SAY(lseek(fd, 8 * MIB, SEEK_HOLE));
    SAY(lseek(fd, -1, SEEK_DATA));
    SAY(lseek(-1, 0, SEEK_SET));
    close(fd);
}

static void
sizes(void)
{
    struct stat stat;
    char byte = 'b';
    const int fd = open(at("sizes"), O_CREAT | O_RDWR, 0600);

    SAY(write(fd, "0123456789", 10));
    SAY(ftruncate(fd, 4));
    SAY(ftruncate64(fd, 12));
    SAY(ftruncate(fd, -1));
    say_file("sizes");
    SAY(truncate(at("sizes"), 6));
    SAY(truncate64(at("sizes"), 8));
    SAY(truncate(at("sizes"), -1));
    SAY(truncate(at("missing"), 0));
    SAY(truncate(top, 0));
    SAY(pread(fd, &byte, 1, 7));
    printf("%d\n", byte);
    SAY(fallocate(fd, 0, 0, 20));
    SAY(fstat(fd, &stat));
    say_stat("allocated", &stat);
    SAY(fallocate64(fd, FALLOC_FL_KEEP_SIZE, 0, 100));
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 3));
    SAY(fallocate(fd, 0, -1, 20));
    SAY(fallocate(fd, 0, 0, 0));
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 3));
    ERROR(posix_fallocate(fd, 30, 10));
    ERROR(posix_fallocate64(fd, -1, 10));
    ERROR(posix_fallocate(fd, 0, 0));
    ERROR(posix_fallocate(-1, 0, 1));
    SAY(fstat(fd, &stat));
    say_stat("allocated", &stat);
    say_file("sizes");
    ERROR(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    ERROR(posix_fadvise64(fd, 0, 0, POSIX_FADV_DONTNEED));
    ERROR(posix_fadvise(-1, 0, 0, POSIX_FADV_NORMAL));
    SAY(readahead(fd, 0, 10));
    SAY(fsync(fd));
    SAY(fdatasync(fd));
    SAY(syncfs(fd));
    SAY(sync_file_range(fd, 0, 10, SYNC_FILE_RANGE_WRITE));
    sync();
    close(fd);
}

/* Sizes and offsets around pages, fragments and stripes. */
static void
patterns(void)
{
    static const size_t lengths[] = {1,     511,   4095,    4096, 4097,    8192,        8193,
                                     65535, 65537, MIB - 1, MIB,  MIB + 1, 4 * MIB + 17};
    char *copy = malloc(sizeof(big));
    const int fd = open(at("patterns"), O_CREAT | O_RDWR, 0600);

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        const off_t offset = (off_t)(i * 5 * MIB + i * 333);

        fill_pattern(big, lengths[i], i);
        const ssize_t put = pwrite(fd, big, lengths[i], offset);
        memset(copy, 0, lengths[i]);
        const ssize_t got = pread(fd, copy, lengths[i], offset);
        printf("%zu bytes: %zd, %zd, %d\n", lengths[i], put, got, is_pattern(copy, lengths[i], i));
    }
    SAY(pwrite(fd, "far", 3, (off_t)5 << 30));
    SAY(lseek(fd, 0, SEEK_END));
    SAY(pread(fd, copy, 10, ((off_t)5 << 30) - 2));
    printf("%d%d%.3s\n", copy[0], copy[1], copy + 2);
    close(fd);
    free(copy);
}

static void
waiting(void)
{
    const int fd = open(at("wait"), O_CREAT | O_RDWR, 0600);
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN | POLLOUT};
    struct timeval no_time = {0};
    fd_set in, out;
    int left = -1;
    int on = 1;

    SAY(write(fd, "12345", 5));
    SAY(poll(&poll_fd, 1, 0));
    printf("%x\n", (unsigned)poll_fd.revents);
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(fd, &in);
    FD_SET(fd, &out);
    SAY(select(fd + 1, &in, &out, NULL, &no_time));
    SAY(lseek(fd, 1, SEEK_SET));
    SAY(ioctl(fd, FIONREAD, &left));
    printf("%d\n", left);
    SAY(ioctl(fd, FIONBIO, &on));
    SAY(ioctl(fd, TIOCGWINSZ, big));
    SAY(isatty(fd));
    close(fd);
}

static void
asynchronous(void)
{
    char buffer[16] = {0};
    const int fd = open(at("aio"), O_CREAT | O_RDWR, 0600);
    struct aiocb put = {
        .aio_fildes = fd, .aio_buf = (void *)(uintptr_t) "asynchron", .aio_nbytes = 9};
    struct aiocb got = {.aio_fildes = fd, .aio_buf = buffer, .aio_nbytes = 16, .aio_offset = 2};
    struct aiocb sync = {.aio_fildes = fd};
    const struct aiocb *list[1] = {&put};

    SAY(aio_write(&put));
    SAY(aio_suspend(list, 1, NULL));
    SAY(aio_error(&put));
    SAY(aio_return(&put));
    SAY(aio_read(&got));
    list[0] = &got;
    SAY(aio_suspend(list, 1, NULL));
    SAY(aio_return(&got));
    printf("%s\n", buffer);
    SAY(aio_fsync(O_SYNC, &sync));
    list[0] = &sync;
    SAY(aio_suspend(list, 1, NULL));
    SAY(aio_return(&sync));
    close(fd);
}

void
part_io(void)
{
    simple();
    at_the_end();
    vectors();
    seeking();
    sizes();
    patterns();
    waiting();
    asynchronous();
}
