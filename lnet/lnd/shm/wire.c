/* SPDX-License-Identifier: BSD-3-Clause */
/* Packets of the rendezvous socket: encode, check, send and receive. Layout: wire.h. */
#include "lnet/lnd/shm/wire.h"

#include "base/endian.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

uint32_t
shm_wire_fd_count(enum shm_wire_type type)
{
    switch (type) {
    case SHM_WIRE_HELLO:
        return 4;
    case SHM_WIRE_WELCOME:
        return 3;
    case SHM_WIRE_REGION:
        return 1;
    case SHM_WIRE_REFUSE:
    case SHM_WIRE_GONE:
    case SHM_WIRE_NUDGE:
        return 0;
    }
    return 0;
}

void
shm_wire_encode(const struct shm_wire *wire, uint8_t bytes[SHM_WIRE_BYTES])
{
    (void)memset(bytes, 0, SHM_WIRE_BYTES);
    base_le32_store(bytes, SHM_WIRE_MAGIC);
    base_le16_store(bytes + 4, SHM_WIRE_VERSION);
    base_le16_store(bytes + 6, (uint16_t)wire->type);
    base_le32_store(bytes + 8, shm_wire_fd_count(wire->type));
    switch (wire->type) {
    case SHM_WIRE_HELLO:
    case SHM_WIRE_WELCOME:
        base_le64_store(bytes + 16, wire->u.hello.from.nid.value);
        base_le64_store(bytes + 24, wire->u.hello.to.nid.value);
        base_le32_store(bytes + 32, wire->u.hello.from.pid);
        base_le32_store(bytes + 36, wire->u.hello.to.pid);
        base_le64_store(bytes + 40, wire->u.hello.incarnation);
        base_le64_store(bytes + 48, wire->u.hello.ring_bytes);
        base_le64_store(bytes + 56, wire->u.hello.probe_address);
        base_le64_store(bytes + 64, wire->u.hello.probe_value);
        base_le32_store(bytes + 72, wire->u.hello.eager_bytes_max);
        base_le32_store(bytes + 76, wire->u.hello.slot);
        break;
    case SHM_WIRE_REFUSE:
        base_le32_store(bytes + 16, (uint32_t)wire->u.refuse.error);
        (void)memcpy(bytes + 20, wire->u.refuse.text, SHM_WIRE_TEXT_MAX);
        break;
    case SHM_WIRE_REGION:
    case SHM_WIRE_GONE:
        base_le32_store(bytes + 16, wire->u.region.id);
        base_le64_store(bytes + 24, wire->u.region.length_bytes);
        break;
    case SHM_WIRE_NUDGE:
        break;
    }
}

static void
hello_decode(const uint8_t *bytes, struct shm_hello *hello)
{
    hello->from.nid.value = base_le64_load(bytes + 16);
    hello->to.nid.value = base_le64_load(bytes + 24);
    hello->from.pid = base_le32_load(bytes + 32);
    hello->to.pid = base_le32_load(bytes + 36);
    hello->incarnation = base_le64_load(bytes + 40);
    hello->ring_bytes = base_le64_load(bytes + 48);
    hello->probe_address = base_le64_load(bytes + 56);
    hello->probe_value = base_le64_load(bytes + 64);
    hello->eager_bytes_max = base_le32_load(bytes + 72);
    hello->slot = base_le32_load(bytes + 76);
}

static void
refuse_decode(const uint8_t *bytes, struct shm_refuse *refuse)
{
    const uint32_t error = base_le32_load(bytes + 16);

    refuse->error = error > 0 && error < 4096 ? (int32_t)error : EPROTO;
    (void)memcpy(refuse->text, bytes + 20, SHM_WIRE_TEXT_MAX);
    refuse->text[SHM_WIRE_TEXT_MAX - 1] = '\0';
    for (char *at = refuse->text; *at != '\0'; at++) {
        if (*at < ' ' || *at > '~') {
            *at = '?';
        }
    }
}

int
shm_wire_decode(const uint8_t *bytes, uint64_t length, uint32_t fd_count, struct shm_wire *wire_out)
{
    struct shm_wire wire = {.fd_count = fd_count};

    if (length != SHM_WIRE_BYTES || base_le32_load(bytes) != SHM_WIRE_MAGIC ||
        base_le32_load(bytes + 8) != fd_count || base_le32_load(bytes + 12) != 0) {
        return -EPROTO;
    }
    const uint16_t type = base_le16_load(bytes + 6);

    if (base_le16_load(bytes + 4) != SHM_WIRE_VERSION && type != SHM_WIRE_REFUSE) {
        return -EPROTONOSUPPORT;
    }
    if (type < SHM_WIRE_HELLO || type > SHM_WIRE_NUDGE) {
        return -EPROTO;
    }
    wire.type = (enum shm_wire_type)type;
    if (fd_count != shm_wire_fd_count(wire.type)) {
        return -EPROTO;
    }
    switch (wire.type) {
    case SHM_WIRE_HELLO:
    case SHM_WIRE_WELCOME:
        hello_decode(bytes, &wire.u.hello);
        break;
    case SHM_WIRE_REFUSE:
        refuse_decode(bytes, &wire.u.refuse);
        break;
    case SHM_WIRE_REGION:
    case SHM_WIRE_GONE:
        wire.u.region.id = base_le32_load(bytes + 16);
        wire.u.region.length_bytes = base_le64_load(bytes + 24);
        break;
    case SHM_WIRE_NUDGE:
        break;
    }
    *wire_out = wire;
    return 0;
}

/* Room for the control message of SHM_WIRE_FDS_MAX descriptors, aligned as cmsghdr wants it. */
union shm_control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(SHM_WIRE_FDS_MAX * sizeof(int))];
};

int
shm_wire_send(int fd, const struct shm_wire *wire, const int *fds)
{
    const uint32_t fd_count = shm_wire_fd_count(wire->type);
    uint8_t bytes[SHM_WIRE_BYTES];
    union shm_control control = {0};
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    shm_wire_encode(wire, bytes);
    if (fd_count > 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        (void)memcpy(CMSG_DATA(cmsg), fds, fd_count * sizeof(int));
    }
    return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Takes the descriptors of a received packet; returns how many. */
static uint32_t
fds_take(struct msghdr *msg, int fds_out[SHM_WIRE_FDS_MAX])
{
    uint32_t count = 0;

    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg != NULL; cmsg = CMSG_NXTHDR(msg, cmsg)) {
        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        const uint32_t here = (uint32_t)((cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int));

        for (uint32_t i = 0; i < here; i++) {
            int fd = -1;

            (void)memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
            if (count < SHM_WIRE_FDS_MAX) {
                fds_out[count++] = fd;
            } else {
                (void)close(fd);
            }
        }
    }
    return count;
}

int
shm_wire_recv(int fd, struct shm_wire *wire_out, int fds_out[SHM_WIRE_FDS_MAX])
{
    uint8_t bytes[SHM_WIRE_BYTES];
    union shm_control control = {0};
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control.bytes)};
    ssize_t length = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (length < 0 && errno == ECONNRESET) {
        /* The peer closed with packets of ours unread; what it sent before is still to be had. */
        length = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    }
    if (length < 0) {
        return -errno;
    }
    if (length == 0) {
        return 0;
    }
    const uint32_t fd_count = fds_take(&msg, fds_out);
    int rc = 0;

    if ((msg.msg_flags & MSG_CTRUNC) != 0 && fd_count < SHM_WIRE_FDS_MAX) {
        rc = -EMFILE; /* the kernel had no room in our table for the others */
    } else if ((msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        rc = -EPROTO;
    } else {
        rc = shm_wire_decode(bytes, (uint64_t)length, fd_count, wire_out);
    }

    if (rc != 0) {
        for (uint32_t i = 0; i < fd_count; i++) {
            (void)close(fds_out[i]);
        }
        return rc;
    }
    return 1;
}
