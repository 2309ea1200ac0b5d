/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hostile packets on the rendezvous socket of a living shm interface, at any point of a connection.
 *
 * Each packet of the input begins with a byte that says what to do with it: the high bit overlays
 * it on a HELLO that would be taken, so that the states behind are reached; the rest chooses which
 * descriptors come along. What must hold: no memory error, no assertion, and once the socket is
 * closed the interface has no connection left.
 */
#include "lnet/lnd/shm/ni.h"
#include "lnet/lnd/shm/shm.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct lnet_lnd_ni *ni;
static char run_dir[] = "/tmp/causeway-fuzz-XXXXXX";
static int good_fds[4];
static int poor_fd;
static uint64_t now_ns = 1;
static uint32_t conn_count;

static int
on_accepted(struct lnet_ni *owner, struct lnet_lnd_conn *conn)
{
    conn->owner = owner;
    conn_count++;
    return 0;
}

static void
on_conn_down(struct lnet_ni *owner, struct lnet_lnd_conn *conn, int reason)
{
    (void)owner;
    (void)reason;
    conn_count--;
    lnet_lnd_shm.conn_close(conn);
}

static int
on_recv(struct lnet_ni *owner, struct lnet_lnd_conn *conn, const struct lnet_hdr *hdr,
        const void *payload)
{
    (void)owner;
    (void)conn;
    (void)hdr;
    (void)payload;
    return 0;
}

static const struct lnet_lnd_events events = {
    .accepted = on_accepted, .conn_down = on_conn_down, .recv = on_recv};

static void
run_dir_remove(void)
{
    lnet_lnd_shm.ni_close(ni);
    (void)rmdir(run_dir);
}

static int
memfd(uint64_t bytes)
{
    const int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    BASE_ASSERT(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    BASE_ASSERT(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    return fd;
}

static void
open_once(void)
{
    if (ni != NULL) {
        return;
    }
    BASE_ASSERT(mkdtemp(run_dir) != NULL);
    const struct lnet_ni_options options = {
        .struct_bytes = sizeof(options), .net = "shm", .address = "1", .run_dir = run_dir};
    const struct lnet_lnd_config config = {
        .options = &options, .incarnation = 1, .connect_timeout_ns = 1000000000};

    BASE_ASSERT(lnet_lnd_shm.ni_open(&config, NULL, &events, &ni) == 0);
    good_fds[0] = memfd(SHM_LINES_BYTES + 2 * SHM_RING_BYTES_MIN);
    good_fds[1] = memfd(SHM_BELLS_BYTES);
    good_fds[2] = memfd(sizeof(struct shm_windows));
    good_fds[3] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    poor_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    BASE_ASSERT(good_fds[3] >= 0 && poor_fd >= 0);
    (void)atexit(run_dir_remove);
}

static int
raw_connect(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    (void)snprintf(un.sun_path, sizeof(un.sun_path), "%s/1@shm-0", run_dir);
    BASE_ASSERT(fd >= 0 && connect(fd, (const struct sockaddr *)&un, sizeof(un)) == 0);
    return fd;
}

static void
packet_send(int fd, const uint8_t *bytes, size_t length, const int *fds, uint32_t fd_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd_count > 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        (void)memcpy(CMSG_DATA(cmsg), fds, fd_count * sizeof(int));
    }
    (void)sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A HELLO that is right, but for the bits of @data that are set. */
static size_t
hello_overlay(uint8_t bytes[SHM_WIRE_BYTES], const uint8_t *data, size_t length)
{
    const struct shm_wire wire = {.type = SHM_WIRE_HELLO,
                                  .u.hello = {.from = {.nid = {(uint64_t)LNET_LND_SHM << 48 | 77}},
                                              .to = {.nid = ni->nid},
                                              .incarnation = 5,
                                              .ring_bytes = SHM_RING_BYTES_MIN,
                                              .eager_bytes_max = SHM_EAGER_BYTES,
                                              .slot = 3}};

    shm_wire_encode(&wire, bytes);
    for (size_t i = 0; i < length && i < SHM_WIRE_BYTES; i++) {
        bytes[i] ^= data[i];
    }
    return SHM_WIRE_BYTES;
}

/* What is decoded and encoded again is the same, where it is of our version. */
static void
check_decode(const uint8_t *data, size_t bytes)
{
    struct shm_wire wire, again;
    uint8_t encoded[SHM_WIRE_BYTES];

    for (uint32_t fd_count = 0; fd_count <= SHM_WIRE_FDS_MAX + 1; fd_count++) {
        if (shm_wire_decode(data, bytes, fd_count, &wire) == 0) {
            shm_wire_encode(&wire, encoded);
            BASE_ASSERT(shm_wire_decode(encoded, sizeof(encoded), fd_count, &again) == 0);
            BASE_ASSERT(wire.type == again.type && wire.fd_count == again.fd_count);
        }
    }
}

static void
poll_some(uint32_t turns)
{
    for (uint32_t i = 0; i < turns; i++) {
        now_ns += 200000;
        (void)lnet_lnd_shm.poll(ni, now_ns, 64);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    open_once();
    check_decode(data, bytes);
    const int fd = raw_connect();

    while (bytes > 0) {
        const uint8_t what = data[0];
        const size_t length = base_min_u64(bytes - 1, SHM_WIRE_BYTES + (what & 1));
        const uint32_t fd_count = (what >> 1) & 7;
        uint8_t packet[SHM_WIRE_BYTES];
        int fds[8];

        for (uint32_t i = 0; i < 8; i++) {
            fds[i] = (what & 0x30) == 0x30 && i == ((what >> 3) & 3) ? poor_fd : good_fds[i % 4];
        }
        if ((what & 0x80) != 0) {
            packet_send(fd, packet, hello_overlay(packet, data + 1, length), fds,
                        (what & 0x40) != 0 ? 4 : fd_count);
        } else if (length > 0) {
            packet_send(fd, data + 1, length, fds, fd_count);
        }
        poll_some(2);
        data += 1 + length;
        bytes -= 1 + length;
    }
    (void)close(fd);
    poll_some(4);
    BASE_ASSERT(conn_count == 0);
    BASE_ASSERT(base_list_empty(&shm_ni_of(ni)->all));
    return 0;
}
