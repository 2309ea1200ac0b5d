/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Property: whatever a process of our user writes to our socket or into the memory it shares with
 * us, we refuse it, say so once, go on serving the others, and leak nothing. Method: a raw socket
 * beside a real interface; and a real peer whose shared memory is scribbled into.
 */
#include "tests/lnet/lnd/shm/driver.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

/* A connected socket that is no interface. */
static int
raw_connect(const char *dir)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_true(snprintf(un.sun_path, sizeof(un.sun_path), "%s/1@shm-0", dir) > 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&un, sizeof(un)), 0);
    return fd;
}

/* Sends @bytes with @fd_count descriptors. */
static void
raw_send(int fd, const void *bytes, size_t length, const int *fds, uint32_t fd_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(16 * sizeof(int))];
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
    assert_int_equal(sendmsg(fd, &msg, MSG_NOSIGNAL), (ssize_t)length);
}

static int
memfd(uint64_t bytes, int seals)
{
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

struct greeting {
    struct shm_wire wire;
    int fds[16];
    uint32_t fd_count;
};

/* A HELLO that would be taken. */
static struct greeting
greeting_good(const struct end *server)
{
    static uint64_t probe;
    struct greeting greeting = {
        .wire = {.type = SHM_WIRE_HELLO,
                 .u.hello = {.from = {.nid = {(uint64_t)LNET_LND_SHM << 48 | 77}},
                             .to = server->process,
                             .incarnation = 5,
                             .ring_bytes = SHM_RING_BYTES_MIN,
                             .probe_address = (uintptr_t)&probe,
                             .eager_bytes_max = SHM_EAGER_BYTES,
                             .slot = 3}},
        .fds = {memfd(SHM_LINES_BYTES + 2 * SHM_RING_BYTES_MIN, F_SEAL_SHRINK),
                memfd(SHM_BELLS_BYTES, F_SEAL_SHRINK),
                memfd(sizeof(struct shm_windows), F_SEAL_SHRINK),
                eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)},
        .fd_count = 4,
    };

    return greeting;
}

static void
fd_replace(int *fd, int with)
{
    (void)close(*fd);
    *fd = with;
}

/* Sends @greeting over a new socket and polls until it is answered. Returns the answer's errno. */
static int
greeting_try(struct end *server, const char *dir, struct greeting *greeting, const uint8_t *raw,
             size_t raw_bytes)
{
    uint8_t bytes[SHM_WIRE_BYTES];
    struct shm_wire answer = {0};
    int fds[SHM_WIRE_FDS_MAX];
    int rc = -EAGAIN;
    const int fd = raw_connect(dir);

    shm_wire_encode(&greeting->wire, bytes);
    raw_send(fd, raw != NULL ? raw : bytes, raw != NULL ? raw_bytes : sizeof(bytes), greeting->fds,
             greeting->fd_count);
    for (uint32_t i = 0; i < 1000000 && rc == -EAGAIN; i++) {
        (void)end_poll(server);
        rc = shm_wire_recv(fd, &answer, fds);
    }
    for (uint32_t i = 0; i < greeting->fd_count; i++) {
        (void)close(greeting->fds[i]);
    }
    if (rc == 1 && answer.type == SHM_WIRE_WELCOME) {
        for (uint32_t i = 0; i < 3; i++) {
            (void)close(fds[i]);
        }
    }
    const uint32_t down = server->down_count;
    const bool was_up = server->conn_count > 0;

    (void)close(fd);
    if (was_up) {
        END_POLL_UNTIL(server, server, server->down_count == down + 1);
    }
    return rc != 1 ? rc : answer.type == SHM_WIRE_REFUSE ? -answer.u.refuse.error : 0;
}

static void
hellos_that_are_not_right_are_refused_by_name(void **state)
{
    const char *dir = run_dir_make();
    static struct end server;

    server = (struct end){0};
    end_open(&server, dir, "1", 0);
    const uint32_t fds = run_dir_entries("/proc/self/fd");

    for (uint32_t variant = 0;; variant++) {
        struct greeting greeting = greeting_good(&server);
        struct shm_hello *hello = &greeting.wire.u.hello;
        int wanted = -EPROTO;
        bool is_last = false;

        switch (variant) {
        case 0:
            wanted = 0;
            break;
        case 1:
            hello->to.nid.value++;
            break;
        case 2:
            hello->to.pid++;
            break;
        case 3:
            hello->from = server.process;
            break;
        case 4:
            hello->from.nid.value ^= UINT64_C(1) << 32; /* of another net */
            break;
        case 5:
            hello->ring_bytes *= 2; /* the memfd is shorter */
            break;
        case 6:
            hello->ring_bytes -= 64;
            break;
        case 7:
            hello->ring_bytes = UINT64_C(1) << 63;
            break;
        case 8:
            hello->ring_bytes = 0;
            break;
        case 9:
            hello->slot = SHM_CONNS_MAX;
            break;
        case 10:
            hello->eager_bytes_max--;
            break;
        case 11:
            hello->incarnation = 0;
            break;
        case 12:
            fd_replace(&greeting.fds[0], memfd(1 << 20, 0)); /* could be shrunk under us */
            break;
        case 13:
            fd_replace(&greeting.fds[0], memfd(4096, F_SEAL_SHRINK));
            break;
        case 14:
            fd_replace(&greeting.fds[1], memfd(100, F_SEAL_SHRINK));
            break;
        case 15:
            fd_replace(&greeting.fds[2], memfd(4096, F_SEAL_SHRINK));
            break;
        case 16:
            fd_replace(&greeting.fds[3], open("/dev/null", O_RDWR | O_CLOEXEC | O_NONBLOCK));
            break;
        case 17:
            fd_replace(&greeting.fds[3], epoll_create1(EPOLL_CLOEXEC)); /* no eventfd either */
            break;
        case 18:
            fd_replace(&greeting.fds[0], open("/dev/zero", O_RDWR | O_CLOEXEC));
            break;
        case 19:
            fd_replace(&greeting.fds[2], socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
            break;
        case 20:
            (void)close(greeting.fds[--greeting.fd_count]);
            break;
        case 21:
            while (greeting.fd_count < 16) {
                greeting.fds[greeting.fd_count++] = eventfd(0, EFD_CLOEXEC);
            }
            break;
        default:
            greeting.wire.type = SHM_WIRE_WELCOME; /* out of place */
            (void)close(greeting.fds[--greeting.fd_count]);
            wanted = -EPROTO;
            is_last = true;
            break;
        }
        const int rc = greeting_try(&server, dir, &greeting, NULL, 0);

        /* A packet out of place ends the connection without a word. */
        if (rc != wanted && !(is_last && (rc == 0 || rc == -ECONNRESET))) {
            fail_msg("variant %u: %d\n%s", variant, rc, server.log);
        }
        assert_int_equal(server.accepted_count, 1);
        if (is_last) {
            break;
        }
    }
    assert_int_equal(run_dir_entries("/proc/self/fd"), fds);
    end_close(&server);
    run_dir_remove(dir);
}

/* Sends @greeting over @fd and polls until it is answered. Returns the answer's errno, 0: welcome.
 */
static int
greeting_answer(struct end *server, int fd, const struct greeting *greeting)
{
    uint8_t bytes[SHM_WIRE_BYTES];
    struct shm_wire answer = {0};
    int fds[SHM_WIRE_FDS_MAX];
    int rc = -EAGAIN;

    shm_wire_encode(&greeting->wire, bytes);
    raw_send(fd, bytes, sizeof(bytes), greeting->fds, greeting->fd_count);
    for (uint32_t i = 0; i < 1000000 && rc == -EAGAIN; i++) {
        (void)end_poll(server);
        rc = shm_wire_recv(fd, &answer, fds);
    }
    assert_int_equal(rc, 1);
    if (answer.type == SHM_WIRE_WELCOME) {
        for (uint32_t i = 0; i < answer.fd_count; i++) {
            (void)close(fds[i]);
        }
    }
    return answer.type == SHM_WIRE_REFUSE ? answer.u.refuse.error : 0;
}

static void
one_address_has_one_connection(void **state)
{
    const char *dir = run_dir_make();
    static struct end server;

    server = (struct end){0};
    /* Whether the peer's address is the smaller or the larger one makes no difference. */
    for (uint32_t variant = 0; variant < 2; variant++) {
        end_open(&server, dir, "1", 0);
        struct greeting greeting = greeting_good(&server);

        greeting.wire.u.hello.from.nid.value -= variant * 77;
        const int first = raw_connect(dir);
        const int second = raw_connect(dir);

        assert_int_equal(greeting_answer(&server, first, &greeting), 0);
        assert_int_equal(greeting_answer(&server, second, &greeting), EALREADY);
        (void)close(second);
        const int third = raw_connect(dir);

        greeting.wire.u.hello.incarnation++;
        assert_int_equal(greeting_answer(&server, third, &greeting), EADDRINUSE);
        (void)close(third);
        assert_int_equal(server.conn_count, 1);
        const uint32_t down = server.down_count;

        /* When the first is gone there is room for the next. */
        (void)close(first);
        END_POLL_UNTIL(&server, &server, server.down_count == down + 1);
        const int fourth = raw_connect(dir);

        assert_int_equal(greeting_answer(&server, fourth, &greeting), 0);
        (void)close(fourth);
        for (uint32_t i = 0; i < greeting.fd_count; i++) {
            (void)close(greeting.fds[i]);
        }
        END_POLL_UNTIL(&server, &server, server.down_count == down + 2);
        end_close(&server);
    }
    run_dir_remove(dir);
}

static void
bytes_of_every_length_and_version_are_refused(void **state)
{
    const char *dir = run_dir_make();
    static struct end server;
    uint8_t bytes[4096] = {0};

    server = (struct end){0};
    end_open(&server, dir, "1", 0);
    const uint32_t fds = run_dir_entries("/proc/self/fd");

    for (uint32_t length = 1; length <= sizeof(bytes); length += 1 + length / 10) {
        struct greeting greeting = greeting_good(&server);

        if (length == SHM_WIRE_BYTES) {
            length++;
        }
        shm_wire_encode(&greeting.wire, bytes);
        assert_int_equal(greeting_try(&server, dir, &greeting, bytes, length), -EPROTO);
    }
    for (uint32_t i = 0; i < 16; i++) {
        struct greeting greeting = greeting_good(&server);

        shm_wire_encode(&greeting.wire, bytes);
        bytes[i] ^= 0x40;
        const int rc = greeting_try(&server, dir, &greeting, bytes, SHM_WIRE_BYTES);

        assert_int_equal(rc, i == 4 || i == 5 ? -EPROTONOSUPPORT : -EPROTO);
    }
    assert_int_equal(server.accepted_count, 0);
    assert_int_equal(run_dir_entries("/proc/self/fd"), fds);
    assert_non_null(strstr(server.log, "malformed"));
    end_close(&server);
    run_dir_remove(dir);
}

static void
refusals_do_not_fill_the_log(void **state)
{
    const char *dir = run_dir_make();
    static struct end server;
    const uint8_t byte = 0;

    server = (struct end){.now_ns = 1000};
    end_open(&server, dir, "1", 0);
    for (uint32_t i = 0; i < 100; i++) {
        struct greeting greeting = {.fd_count = 0};

        assert_int_equal(greeting_try(&server, dir, &greeting, &byte, 1), -EPROTO);
    }
    assert_true(strlen(server.log) < 200);
    end_close(&server);
    run_dir_remove(dir);
}

static void
silent_sockets_are_closed_in_time_and_bounded(void **state)
{
    const char *dir = run_dir_make();
    static struct end server;
    static int fds[SHM_GREETINGS_MAX + 20];
    struct lnet_ni_options options = {.address = "1", .run_dir = dir};
    char byte;

    server = (struct end){.now_ns = 1000};
    assert_int_equal(end_open_with(&server, 0, 1000000, &options), 0);
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(fds); i++) {
        fds[i] = raw_connect(dir);
        for (uint32_t turn = 0; turn < 1100; turn++) {
            (void)end_poll(&server);
        }
    }
    assert_int_equal(shm_ni_of(server.ni)->greeting_count, SHM_GREETINGS_MAX);
    server.now_ns += 1000001;
    (void)end_poll(&server);
    assert_int_equal(shm_ni_of(server.ni)->greeting_count, 0);
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(fds); i++) {
        while (recv(fds[i], &byte, 1, MSG_DONTWAIT) > 0) {
            /* those beyond the bound were told */
        }
        errno = 0;
        assert_true(recv(fds[i], &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET);
        (void)close(fds[i]);
    }
    end_close(&server);
    run_dir_remove(dir);
}

/* What a hostile peer does to the memory of a live connection. */
static void
scribble(struct shm_conn *hostile, uint32_t variant)
{
    struct shm_link *link = &hostile->link;
    const uint64_t head = link->tx.head;
    uint8_t *slot = link->tx.slots + head * SHM_SLOT_BYTES;
    uint64_t *word = shm_ring_word_at(link->tx.slots, head);

    (void)memset(slot + SHM_WORD_BYTES, 0xff, 4 * SHM_SLOT_BYTES);
    switch (variant) {
    case 0: /* too long */
        *word = shm_ring_word(head, link->tx.slot_shift, LNET_FRAME_BYTES + SHM_EAGER_BYTES + 1);
        break;
    case 1: /* shorter than a frame */
        *word = shm_ring_word(head, link->tx.slot_shift, LNET_FRAME_BYTES - 1);
        break;
    case 2: /* a frame of nonsense */
        *word = shm_ring_word(head, link->tx.slot_shift, 100);
        break;
    case 3: /* lengths that disagree */
        lnet_frame_encode(&(struct lnet_hdr){.type = LNET_MSG_PUT, .length_bytes = 9}, slot + 8);
        *word = shm_ring_word(head, link->tx.slot_shift, LNET_FRAME_BYTES + 8);
        break;
    case 4: /* a portal that is none */
        lnet_frame_encode(&(struct lnet_hdr){.type = LNET_MSG_PUT, .portal = LNET_PORTALS},
                          slot + 8);
        *word = shm_ring_word(head, link->tx.slot_shift, LNET_FRAME_BYTES);
        break;
    default: /* has consumed what was never sent */
        link->ours->consumed = 1u << 20;
        break;
    }
}

static void
nonsense_in_shared_memory_ends_its_connection_and_no_other(void **state)
{
    const char *dir = run_dir_make();
    static struct end server, good, bad;
    static const uint8_t data[8000];

    server = good = (struct end){0};
    end_open(&server, dir, "1", 0);
    end_open(&good, dir, "2", 0);
    end_connect(&good, &server);
    for (uint32_t variant = 0; variant < 6; variant++) {
        bad = (struct end){0};
        end_open(&bad, dir, "3", 0);
        end_connect(&bad, &server);
        const uint32_t recv = server.recv_count;
        const uint32_t down = server.down_count;

        scribble(shm_conn_of(bad.conns[0]), variant);
        shm_conn_ring(shm_conn_of(bad.conns[0]));
        for (uint32_t i = 0; i < 2000 && server.down_count == down; i++) {
            for (uint32_t j = 0; j < server.conn_count; j++) {
                if (server.conns[j]->peer.nid.value == bad.process.nid.value) {
                    (void)end_put(server.conns[j], 1, data, sizeof(data));
                }
            }
            (void)end_poll(&server);
        }
        assert_int_equal(server.down_count, down + 1);
        assert_int_equal(server.down_reason, -EPROTO);
        assert_int_equal(server.recv_count, recv);
        END_POLL_UNTIL(&server, &bad, bad.down_count == 1);
        end_close(&bad);
        assert_int_equal(end_put(good.conns[0], variant, "x", 1), 0);
        END_POLL_UNTIL(&good, &server, server.recv_count == recv + 1);
    }
    end_close(&good);
    end_close(&server);
    run_dir_remove(dir);
}

static void
doorbells_of_chance_do_no_harm(void **state)
{
    const char *dir = run_dir_make();
    static struct end server, client;

    server = client = (struct end){0};
    end_open(&server, dir, "1", 0);
    end_open(&client, dir, "2", 0);
    end_connect(&client, &server);
    (void)memset(shm_conn_of(client.conns[0])->link.bells, 0xff, SHM_BELLS_BYTES);
    for (uint32_t i = 0; i < 2000; i++) {
        (void)end_poll(&server);
    }
    assert_int_equal(shm_ni_of(server.ni)->hot_count, 0);
    assert_int_equal(end_put(client.conns[0], 1, "x", 1), 0);
    END_POLL_UNTIL(&client, &server, server.recv_count == 1);
    end_close(&client);
    end_close(&server);
    run_dir_remove(dir);
}

static void
regions_that_could_fault_are_refused(void **state)
{
    const char *dir = run_dir_make();
    static struct end server, client;
    static const struct {
        uint32_t id;
        uint64_t length, size;
        int seals;
    } cases[] = {
        {256, 4096, 4096, 0},
        {256, 8192, 4096, F_SEAL_SHRINK},
        {256, 0, 4096, F_SEAL_SHRINK},
        {5, 4096, 4096, F_SEAL_SHRINK}, /* generation 0 */
        {256, UINT64_MAX, 4096, F_SEAL_SHRINK},
    };

    server = (struct end){0};
    end_open(&server, dir, "1", 0);
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        client = (struct end){0};
        end_open(&client, dir, "2", 0);
        end_connect(&client, &server);
        const int fd = memfd(cases[i].size, cases[i].seals);
        const struct shm_wire wire = {
            .type = SHM_WIRE_REGION,
            .u.region = {.id = cases[i].id, .length_bytes = cases[i].length}};

        assert_int_equal(shm_wire_send(shm_conn_of(client.conns[0])->link.fd, &wire, &fd), 0);
        (void)close(fd);
        END_POLL_UNTIL(&server, &client, server.down_count == i + 1);
        assert_int_equal(server.down_reason, -EPROTO);
        end_close(&client);
    }
    end_close(&server);
    run_dir_remove(dir);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(hellos_that_are_not_right_are_refused_by_name),
    cmocka_unit_test(one_address_has_one_connection),
    cmocka_unit_test(bytes_of_every_length_and_version_are_refused),
    cmocka_unit_test(refusals_do_not_fill_the_log),
    cmocka_unit_test(silent_sockets_are_closed_in_time_and_bounded),
    cmocka_unit_test(nonsense_in_shared_memory_ends_its_connection_and_no_other),
    cmocka_unit_test(doorbells_of_chance_do_no_harm),
    cmocka_unit_test(regions_that_could_fault_are_refused),
};

TEST_MAIN(cases)
