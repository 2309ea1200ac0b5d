/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Property: connections of the shm LND come up once per pair, carry messages whole and in order,
 * and end with one conn_down(), whatever either side does. Method: two interfaces in one process,
 * and children that are killed.
 */
#include "tests/lnet/lnd/shm/driver.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static void
messages_of_every_size_arrive_whole_and_in_order(void **state)
{
    const char *dir = run_dir_make();
    static struct end a, b;
    uint8_t data[SHM_EAGER_BYTES];

    a = b = (struct end){0};
    end_open(&a, dir, "1", 0);
    end_open(&b, dir, "2", LNET_NI_CONNECT_ONLY);
    end_connect(&b, &a);
    for (uint32_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(i * 7 + 3);
    }
    for (uint32_t size = 0; size <= sizeof(data); size += 1 + size / 50) {
        const uint32_t seen = a.recv_count;

        assert_int_equal(end_put(b.conns[0], size + 77, data, size), 0);
        END_POLL_UNTIL(&b, &a, a.recv_count == seen + 1);
        assert_int_equal(a.hdr.length_bytes, size);
        assert_int_equal(a.hdr.match_bits, size + 77);
        assert_memory_equal(a.payload, data, size);
        assert_int_equal(end_put(a.conns[0], size, data, size), 0);
        END_POLL_UNTIL(&b, &a, b.recv_count == seen + 1);
        assert_memory_equal(b.payload, data, size);
    }
    end_close(&b);
    END_POLL_UNTIL(&a, &a, a.down_count == 1);
    assert_int_equal(a.down_reason, -ECONNRESET);
    end_close(&a);
    assert_int_equal(run_dir_entries(dir), 0);
    run_dir_remove(dir);
}

static void
a_full_ring_refuses_and_says_writable_once(void **state)
{
    const char *dir = run_dir_make();
    static struct end a, b;
    uint8_t data[4096] = {0};
    uint32_t sent = 0;

    a = b = (struct end){0};
    end_open(&a, dir, "1", 0);
    end_open(&b, dir, "2", 0);
    end_connect(&b, &a);
    for (uint32_t round = 0; round < 50; round++) {
        const uint32_t bytes = round * 83;

        while (end_put(b.conns[0], sent, data, bytes) == 0) {
            sent++;
        }
        assert_int_equal(end_put(b.conns[0], sent, data, bytes), -EAGAIN);
        (void)end_poll(&b);
        assert_int_equal(b.writable_count, round);
        END_POLL_UNTIL(&a, &b, b.writable_count == round + 1);
        END_POLL_UNTIL(&a, &b, a.recv_count == sent);
        assert_int_equal(b.writable_count, round + 1);
    }
    struct lnet_lnd_credit_info credits;

    lnet_lnd_shm.credits(b.conns[0], &credits);
    assert_int_equal(credits.max, 1023);
    assert_true(credits.min < 200 && credits.min >= 0);
    end_close(&b);
    end_close(&a);
    run_dir_remove(dir);
}

static void
both_connecting_at_once_get_one_connection(void **state)
{
    const char *dir = run_dir_make();
    static struct end a, b;

    for (uint32_t variant = 0; variant < 8; variant++) {
        struct lnet_lnd_conn *from_a = NULL;
        struct lnet_lnd_conn *from_b = NULL;

        a = b = (struct end){0};
        end_open(&a, dir, variant % 2 == 0 ? "1" : "9", 0);
        end_open(&b, dir, "5", 0);
        assert_int_equal(lnet_lnd_shm.conn_open(a.ni, &b.process, &a, &from_a), 0);
        for (uint32_t i = 0; i < variant / 2; i++) {
            (void)end_poll(&b); /* has accepted, or welcomed, before it connects itself */
        }
        if (b.accepted_count == 0) {
            assert_int_equal(lnet_lnd_shm.conn_open(b.ni, &a.process, &b, &from_b), 0);
        }
        END_POLL_UNTIL(&a, &b, a.conn_count == 1 && b.conn_count == 1);
        for (uint32_t i = 0; i < 3000; i++) {
            (void)end_poll(&a);
            (void)end_poll(&b);
        }
        assert_int_equal(a.conn_count, 1);
        assert_int_equal(b.conn_count, 1);
        assert_int_equal(a.down_count + b.down_count, 0);
        assert_int_equal(end_put(a.conns[0], 1, "x", 1), 0);
        assert_int_equal(end_put(b.conns[0], 1, "y", 1), 0);
        END_POLL_UNTIL(&a, &b, a.recv_count == 1 && b.recv_count == 1);
        end_close(&a);
        end_close(&b);
    }
    run_dir_remove(dir);
}

static void
a_closed_connection_can_be_opened_again_at_once(void **state)
{
    const char *dir = run_dir_make();
    static struct end a, b;

    a = b = (struct end){0};
    end_open(&a, dir, "1", 0);
    end_open(&b, dir, "2", 0);
    for (uint32_t round = 1; round <= 100; round++) {
        struct end *from = round % 3 == 0 ? &b : &a;
        struct end *to = round % 3 == 0 ? &a : &b;
        struct lnet_lnd_conn *conn = NULL;

        assert_int_equal(lnet_lnd_shm.conn_open(from->ni, &to->process, from, &conn), 0);
        END_POLL_UNTIL(&a, &b,
                       a.up_count + b.up_count == round && a.conn_count == 1 && b.conn_count == 1);
        assert_int_equal(end_put(from->conns[0], round, &round, sizeof(round)), 0);
        lnet_lnd_shm.conn_close(from->conns[0]);
        from->conn_count = 0;
        /* The next round connects before the other side has noticed, or after. */
        if (round % 2 == 0) {
            END_POLL_UNTIL(&a, &b, a.conn_count == 0 && b.conn_count == 0);
        } else if (from == &a) {
            continue;
        }
        END_POLL_UNTIL(&a, &b, a.conn_count + b.conn_count == 0);
    }
    END_POLL_UNTIL(&a, &b, a.conn_count + b.conn_count == 0);
    assert_int_equal(a.recv_count + b.recv_count, 100); /* R8 */
    end_close(&a);
    end_close(&b);
    run_dir_remove(dir);
}

static void
nobody_there_and_refusals_are_told_apart(void **state)
{
    const char *dir = run_dir_make();
    static struct end a, b;
    struct lnet_lnd_conn *conn = NULL;

    a = b = (struct end){0};
    end_open(&a, dir, "1", 0);
    end_open(&b, dir, "2", LNET_NI_CONNECT_ONLY);
    assert_int_equal(lnet_lnd_shm.conn_open(a.ni, &b.process, &a, &conn), 0);
    END_POLL_UNTIL(&a, &a, a.down_count == 1);
    assert_int_equal(a.down_reason, -EHOSTUNREACH);

    a.accept_error = -EUSERS;
    assert_int_equal(lnet_lnd_shm.conn_open(b.ni, &a.process, &b, &conn), 0);
    END_POLL_UNTIL(&a, &b, b.down_count == 1);
    assert_int_equal(b.down_reason, -EUSERS);
    assert_non_null(strstr(b.log, "EUSERS"));

    struct lnet_process self = a.process;

    assert_int_equal(lnet_lnd_shm.conn_open(a.ni, &self, &a, &conn), 0);
    END_POLL_UNTIL(&a, &a, a.down_count == 2);
    assert_int_equal(a.down_reason, -EHOSTUNREACH);
    end_close(&a);
    end_close(&b);
    run_dir_remove(dir);
}

static void
a_silent_acceptor_ends_in_a_timeout(void **state)
{
    const char *dir = run_dir_make();
    static struct end a, b;
    struct lnet_lnd_conn *conn = NULL;
    struct lnet_ni_options options = {.address = "2", .run_dir = dir};

    a = b = (struct end){0};
    end_open(&a, dir, "1", 0);
    assert_int_equal(end_open_with(&b, 0, 1000000, &options), 0);
    b.now_ns = 1000;
    (void)end_poll(&b);
    assert_int_equal(lnet_lnd_shm.conn_open(b.ni, &a.process, &b, &conn), 0);
    assert_int_equal(lnet_lnd_shm.next_deadline(b.ni), 0);
    b.now_ns = 5000000; /* it slept long before it connected: the deadline counts from here */
    (void)end_poll(&b);
    assert_int_equal(lnet_lnd_shm.next_deadline(b.ni), 6000000);
    b.now_ns = 5999999;
    (void)end_poll(&b);
    assert_int_equal(b.down_count, 0);
    b.now_ns = 6000000;
    (void)end_poll(&b);
    assert_int_equal(b.down_count, 1);
    assert_int_equal(b.down_reason, -ETIMEDOUT);
    assert_int_equal(lnet_lnd_shm.next_deadline(b.ni), UINT64_MAX);
    end_close(&a);
    end_close(&b);
    run_dir_remove(dir);
}

static void
a_living_address_is_taken_and_a_dead_one_is_free(void **state)
{
    const char *dir = run_dir_make();
    static struct end a, b;
    struct lnet_ni_options options = {.address = "7", .run_dir = dir};
    int pipes[2];

    a = b = (struct end){0};
    end_open(&a, dir, "7", 0);
    assert_int_equal(end_open_with(&b, 0, 1000000, &options), -EADDRINUSE);
    assert_non_null(strstr(b.log, "living"));
    assert_int_equal(end_open_with(&b, 1, 1000000, &options), 0); /* another pid */
    end_close(&b);
    end_close(&a);
    assert_int_equal(run_dir_entries(dir), 0);

    assert_int_equal(pipe(pipes), 0);
    for (uint32_t round = 0; round < 3; round++) {
        const pid_t child = fork();

        if (child == 0) {
            end_open(&a, dir, round == 1 ? NULL : "7", 0);
            (void)!write(pipes[1], "x", 1);
            (void)pause();
        }
        char byte;

        assert_int_equal(read(pipes[0], &byte, 1), 1);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(run_dir_entries(dir), 2);
        a = (struct end){0};
        end_open(&a, dir, "7", 0);
        assert_int_equal(run_dir_entries(dir), 2); /* its own: what the dead left is swept */
        end_close(&a);
        assert_int_equal(run_dir_entries(dir), 0);
    }
    run_dir_remove(dir);
}

static void
contexts_of_one_process_get_addresses_of_their_own(void **state)
{
    const char *dir = run_dir_make();
    static struct end ends[4];

    for (uint32_t i = 0; i < 4; i++) {
        ends[i] = (struct end){0};
        end_open(&ends[i], dir, NULL, i == 3 ? LNET_NI_CONNECT_ONLY : 0);
        for (uint32_t j = 0; j < i; j++) {
            assert_true(ends[i].process.nid.value != ends[j].process.nid.value);
        }
    }
    assert_int_equal((uint32_t)ends[0].process.nid.value, (uint32_t)getpid());
    for (uint32_t i = 0; i < 4; i++) {
        end_close(&ends[i]);
    }
    assert_int_equal(run_dir_entries(dir), 0);
    run_dir_remove(dir);
}

static void
a_run_directory_with_a_long_name_works(void **state)
{
    const char *dir = run_dir_make();
    static struct end a, b;
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%0200d", dir, 1);
    a = b = (struct end){0};
    end_open(&a, path, "1", 0);
    end_open(&b, path, "2", 0);
    end_connect(&a, &b);
    end_close(&a);
    end_close(&b);
    assert_int_equal(rmdir(path), 0);
    run_dir_remove(dir);
}

static void
bad_options_are_refused_in_words(void **state)
{
    const char *dir = run_dir_make();
    static struct end a;
    static const struct {
        struct lnet_ni_options options;
        const char *word;
    } cases[] = {
        {{.address = "x"}, "\"x\""},           {{.address = ""}, "number"},
        {{.address = "4294967296"}, "number"}, {{.ring_bytes = 65535}, "65535"},
        {{.ring_bytes = 16384}, "16384"},      {{.ring_bytes = 1u << 25}, "power"},
        {{.rma_path = "fast"}, "fast"},
    };

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        struct lnet_ni_options options = cases[i].options;

        options.run_dir = dir;
        a = (struct end){0};
        assert_int_equal(end_open_with(&a, 0, 1, &options), -EINVAL);
        assert_non_null(strstr(a.log, cases[i].word));
    }
    assert_int_equal(chmod(dir, 0777), 0);
    struct lnet_ni_options options = {.run_dir = dir};

    assert_int_equal(end_open_with(&a, 0, 1, &options), -EACCES);
    run_dir_remove(dir);
}

/* A child connects, sends @count messages and is killed; all of them must be delivered first. */
static void
a_dead_peers_messages_come_before_its_death(void **state)
{
    const char *dir = run_dir_make();
    static struct end a, b;
    int pipes[2];

    a = (struct end){0};
    end_open(&a, dir, "1", 0);
    assert_int_equal(pipe(pipes), 0);
    for (uint32_t count = 1; count < 600; count = count * 2 + 5) {
        const pid_t child = fork();

        if (child == 0) {
            struct lnet_lnd_conn *conn = NULL;

            b = (struct end){0};
            end_open(&b, dir, NULL, LNET_NI_CONNECT_ONLY);
            assert_int_equal(lnet_lnd_shm.conn_open(b.ni, &a.process, &b, &conn), 0);
            while (b.up_count == 0) {
                (void)end_poll(&b);
            }
            for (uint32_t i = 0; i < count; i++) {
                assert_int_equal(end_put(conn, i, &i, sizeof(i)), 0);
            }
            (void)!write(pipes[1], "x", 1);
            (void)pause();
        }
        char byte;
        const uint32_t accepted = a.accepted_count;
        const uint32_t down = a.down_count;
        const uint32_t recv = a.recv_count;

        END_POLL_UNTIL(&a, &a, a.accepted_count == accepted + 1);
        assert_int_equal(read(pipes[0], &byte, 1), 1);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        END_POLL_UNTIL(&a, &a, a.down_count == down + 1);
        assert_int_equal(a.recv_count - recv, count);
        assert_int_equal(a.down_reason, -ECONNRESET);
    }
    end_close(&a);
    run_dir_remove(dir);
}

static int
recv_closes(struct end *end, struct lnet_lnd_conn *conn, const struct lnet_hdr *hdr,
            const void *payload)
{
    (void)hdr;
    (void)payload;
    end_conn_remove(end, conn);
    lnet_lnd_shm.conn_close(conn);
    return 0;
}

static int
recv_complains(struct end *end, struct lnet_lnd_conn *conn, const struct lnet_hdr *hdr,
               const void *payload)
{
    (void)end;
    (void)conn;
    (void)hdr;
    (void)payload;
    return -EPROTO;
}

static void
an_upcall_may_close_or_condemn_its_connection(void **state)
{
    const char *dir = run_dir_make();
    static struct end a, b;

    for (uint32_t variant = 0; variant < 2; variant++) {
        a = b = (struct end){0};
        end_open(&a, dir, "1", 0);
        end_open(&b, dir, "2", 0);
        end_connect(&b, &a);
        a.recv = variant == 0 ? recv_closes : recv_complains;
        assert_int_equal(end_put(b.conns[0], 1, "x", 1), 0);
        assert_int_equal(end_put(b.conns[0], 2, "x", 1), 0);
        END_POLL_UNTIL(&a, &b, b.down_count == 1);
        assert_int_equal(a.recv_count, 1);
        assert_int_equal(a.down_count, variant);
        assert_int_equal(b.down_reason, -ECONNRESET);
        end_close(&a);
        end_close(&b);
    }
    run_dir_remove(dir);
}

static void
a_forked_child_leaves_without_disturbing_its_parent(void **state)
{
    const char *dir = run_dir_make();
    static struct end a, b;

    a = b = (struct end){0};
    end_open(&a, dir, "1", 0);
    end_open(&b, dir, "2", 0);
    end_connect(&b, &a);
    const pid_t child = fork();

    if (child == 0) {
        end_close(&a);
        end_close(&b);
        _exit(0);
    }
    int status = 1;

    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(run_dir_entries(dir), 4);
    for (uint32_t i = 0; i < 2000; i++) {
        (void)end_poll(&a);
        (void)end_poll(&b);
    }
    assert_int_equal(end_put(b.conns[0], 1, "x", 1), 0);
    (void)end_poll(&b); /* rings */
    end_sleep(&a, 1000);
    assert_int_equal(a.recv_count, 1);
    assert_int_equal(a.down_count + b.down_count, 0);
    end_close(&b);
    end_sleep(&a, 1000);
    END_POLL_UNTIL(&a, &a, a.down_count == 1);
    end_close(&a);
    run_dir_remove(dir);
}

static int
recv_echo(struct end *end, struct lnet_lnd_conn *conn, const struct lnet_hdr *hdr,
          const void *payload)
{
    (void)end;
    return end_put(conn, hdr->match_bits, payload, hdr->length_bytes);
}

/* Another user's process: 0 if it could talk with the server, sleeping and waking it. */
static int
stranger_run(const char *dir, uint32_t flags)
{
    static struct end end;
    struct lnet_ni_options options = {.run_dir = dir, .flags = flags};
    const struct lnet_process server = {.nid = {(uint64_t)LNET_LND_SHM << 48 | 1}};
    struct lnet_lnd_conn *conn = NULL;

    end = (struct end){0};
    if (setgid(65534) != 0 || setuid(65534) != 0) {
        return 90;
    }
    if (end_open_with(&end, 0, UINT64_C(5000000000), &options) != 0) {
        return 91;
    }
    if (lnet_lnd_shm.conn_open(end.ni, &server, &end, &conn) != 0) {
        return 92;
    }
    while (end.up_count == 0 && end.down_count == 0) {
        end_sleep(&end, 1000);
    }
    for (uint32_t i = 1; i <= 50 && end.down_count == 0; i++) {
        if (end_put(conn, i, "hello", 5) != 0) {
            return 93;
        }
        while (end.recv_count < i && end.down_count == 0) {
            end_sleep(&end, 5000);
        }
    }
    const int rc = end.down_count > 0 ? -end.down_reason : shm_conn_of(conn)->link.bells != NULL;

    end_close(&end);
    return rc;
}

static void
other_users_are_refused_unless_welcome(void **state)
{
    const char *dir = run_dir_make();
    static struct end server;

    if (geteuid() != 0) {
        skip();
    }
    assert_int_equal(chmod(dir, 01777), 0);
    static const struct {
        uint32_t server, client;
        int wanted;
    } rounds[] = {
        {LNET_NI_ANY_USER, LNET_NI_ANY_USER, 0},
        {LNET_NI_ANY_USER, LNET_NI_ANY_USER | LNET_NI_CONNECT_ONLY, 0},
        {0, LNET_NI_ANY_USER, EACCES},
    };

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(rounds); i++) {
        int status = 1;

        server = (struct end){.recv = recv_echo};
        end_open(&server, dir, "1", rounds[i].server);
        const pid_t child = fork();

        if (child == 0) {
            _exit(stranger_run(dir, rounds[i].client));
        }
        while (waitpid(child, &status, WNOHANG) == 0) {
            end_sleep(&server, 20);
        }
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), rounds[i].wanted);
        end_close(&server);
        assert_int_equal(run_dir_entries(dir), 0);
    }
    run_dir_remove(dir);
}

static void
want_of_descriptors_delays_peers_and_loses_none(void **state)
{
    const char *dir = run_dir_make();
    static struct end server, clients[20];
    struct rlimit before;
    const pid_t child = fork();
    int status = 1;

    if (child == 0) {
        server = (struct end){0};
        end_open(&server, dir, "1", 0);
        for (uint32_t i = 0; i < BASE_ARRAY_LEN(clients); i++) {
            clients[i] = (struct end){0};
            end_open(&clients[i], dir, NULL, LNET_NI_CONNECT_ONLY);
        }
        BASE_ASSERT(getrlimit(RLIMIT_NOFILE, &before) == 0);
        for (uint32_t i = 0; i < BASE_ARRAY_LEN(clients); i++) {
            struct lnet_lnd_conn *conn = NULL;
            const struct rlimit tight = {.rlim_cur = run_dir_entries("/proc/self/fd") + 2,
                                         .rlim_max = before.rlim_max};

            BASE_ASSERT(
                lnet_lnd_shm.conn_open(clients[i].ni, &server.process, &clients[i], &conn) == 0);
            BASE_ASSERT(setrlimit(RLIMIT_NOFILE, &tight) == 0);
            for (uint32_t turn = 0; turn < 2000; turn++) {
                (void)end_poll(&server);
                (void)end_poll(&clients[i]);
            }
            BASE_ASSERT(setrlimit(RLIMIT_NOFILE, &before) == 0);
        }
        for (uint32_t i = 0; i < BASE_ARRAY_LEN(clients); i++) {
            while (clients[i].up_count == 0) {
                (void)end_poll(&server);
                (void)end_poll(&clients[i]);
                BASE_ASSERT(clients[i].down_count == 0);
            }
        }
        BASE_ASSERT(strlen(server.log) < 4000);
        while (server.conn_count < BASE_ARRAY_LEN(clients)) {
            (void)end_poll(&server);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    run_dir_remove(dir);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(messages_of_every_size_arrive_whole_and_in_order),
    cmocka_unit_test(a_full_ring_refuses_and_says_writable_once),
    cmocka_unit_test(both_connecting_at_once_get_one_connection),
    cmocka_unit_test(a_closed_connection_can_be_opened_again_at_once),
    cmocka_unit_test(nobody_there_and_refusals_are_told_apart),
    cmocka_unit_test(a_silent_acceptor_ends_in_a_timeout),
    cmocka_unit_test(a_living_address_is_taken_and_a_dead_one_is_free),
    cmocka_unit_test(contexts_of_one_process_get_addresses_of_their_own),
    cmocka_unit_test(a_run_directory_with_a_long_name_works),
    cmocka_unit_test(bad_options_are_refused_in_words),
    cmocka_unit_test(a_dead_peers_messages_come_before_its_death),
    cmocka_unit_test(an_upcall_may_close_or_condemn_its_connection),
    cmocka_unit_test(a_forked_child_leaves_without_disturbing_its_parent),
    cmocka_unit_test(other_users_are_refused_unless_welcome),
    cmocka_unit_test(want_of_descriptors_delays_peers_and_loses_none),
};

TEST_MAIN(cases)
