/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Property: who sleeps on the descriptor after arm() said 0 is woken by whatever arrives, room in a
 * full ring included, and is not woken for ever after. Method: two processes that sleep as often
 * as they can, with pauses of chance before, and a watchdog on every sleep. SHM_TEST_ROUNDS
 * sets the number of rounds.
 */
#include "tests/lnet/lnd/shm/driver.h"

#include "base/prng.h"

#include <sys/mman.h>

#define WATCHDOG_MS 10000

static uint32_t
rounds(uint32_t usual)
{
    const char *text = getenv("SHM_TEST_ROUNDS");

    return text != NULL ? (uint32_t)atoi(text) : usual;
}

/* Sleeps if it may; a sleep that nobody ends within the watchdog's time is a lost wake-up. */
static bool
sleep_or_poll(struct end *end, struct base_prng *prng)
{
    const uint64_t turns = base_prng_below(prng, 4) == 0 ? base_prng_below(prng, 600) : 0;
    bool has_slept = false;

    for (uint64_t i = 0; i < turns; i++) {
        if (end_poll(end) > 0) {
            return false;
        }
    }
    if (lnet_lnd_shm.arm(end->ni) == 0) {
        struct pollfd wait = {.fd = lnet_lnd_shm.fd(end->ni), .events = POLLIN};

        if (poll(&wait, 1, WATCHDOG_MS) == 0) {
            (void)fprintf(stderr, "# %d: lost wake-up after %u messages\n", (int)getpid(),
                          end->recv_count);
            _exit(3);
        }
        has_slept = true;
    }
    (void)end_poll(end);
    return has_slept;
}

static int
echo(struct end *end, struct lnet_lnd_conn *conn, const struct lnet_hdr *hdr, const void *payload)
{
    (void)end;
    BASE_ASSERT(lnet_lnd_shm.send(conn, hdr,
                                  &(struct iovec){.iov_base = (void *)(uintptr_t)payload,
                                                  .iov_len = hdr->length_bytes},
                                  1) == 0);
    return 0;
}

static pid_t
child_connected(struct end *server, struct end *client, const char *dir, end_recv_fn recv)
{
    int pipes[2];
    char byte;

    assert_int_equal(pipe(pipes), 0);
    *server = (struct end){.recv = recv};
    *client = (struct end){0};
    const pid_t child = fork();

    if (child == 0) {
        struct lnet_ni_options options = {
            .address = "1", .run_dir = dir, .ring_bytes = SHM_RING_BYTES_MIN};

        BASE_ASSERT(end_open_with(server, 0, UINT64_C(10000000000), &options) == 0);
        (void)!write(pipes[1], "x", 1);
        return 0;
    }
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    struct lnet_ni_options options = {
        .address = "2", .run_dir = dir, .ring_bytes = SHM_RING_BYTES_MIN};
    struct lnet_process process = {.nid = {(uint64_t)LNET_LND_SHM << 48 | 1}};
    struct lnet_lnd_conn *conn = NULL;

    assert_int_equal(end_open_with(client, 0, UINT64_C(10000000000), &options), 0);
    assert_int_equal(lnet_lnd_shm.conn_open(client->ni, &process, client, &conn), 0);
    while (client->up_count == 0) {
        end_sleep(client, WATCHDOG_MS);
        assert_int_equal(client->down_count, 0);
    }
    (void)close(pipes[0]);
    (void)close(pipes[1]);
    return child;
}

static void
child_joined(pid_t child, struct end *client, const char *dir)
{
    int status = 1;

    end_close(client);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(run_dir_entries(dir), 0);
    run_dir_remove(dir);
}

static void
a_ping_pong_of_sleepers_loses_no_wake_up(void **state)
{
    const char *dir = run_dir_make();
    static struct end server, client;
    struct base_prng prng;
    uint32_t slept = 0;
    const uint32_t count = rounds(3000);
    const pid_t child = child_connected(&server, &client, dir, echo);

    base_prng_seed(&prng, child == 0 ? 1 : 2);
    if (child == 0) {
        while (server.down_count == 0) {
            (void)sleep_or_poll(&server, &prng);
        }
        end_close(&server);
        _exit(0);
    }
    for (uint32_t i = 1; i <= count; i++) {
        assert_int_equal(end_put(client.conns[0], i, &i, sizeof(i)), 0);
        while (client.recv_count < i) {
            slept += sleep_or_poll(&client, &prng);
        }
    }
    assert_true(slept > count / 4);
    child_joined(child, &client, dir);
}

static void
sleepers_on_a_full_ring_are_woken_by_room(void **state)
{
    const char *dir = run_dir_make();
    static struct end server, client;
    static uint8_t data[SHM_EAGER_BYTES];
    struct base_prng prng;
    uint32_t blocked = 0;
    const uint32_t count = rounds(20000);
    const pid_t child = child_connected(&server, &client, dir, NULL);

    base_prng_seed(&prng, child == 0 ? 3 : 4);
    if (child == 0) {
        while (server.down_count == 0) {
            (void)sleep_or_poll(&server, &prng);
        }
        end_close(&server);
        _exit(server.recv_count == count ? 0 : 1);
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t bytes = (uint32_t)base_prng_below(&prng, SHM_EAGER_BYTES + 1);
        const uint32_t writable = client.writable_count;

        while (end_put(client.conns[0], i, data, bytes) == -EAGAIN) {
            blocked++;
            while (client.writable_count == writable) {
                (void)sleep_or_poll(&client, &prng);
            }
            BASE_ASSERT(client.writable_count == writable + 1);
            assert_int_equal(end_put(client.conns[0], i, data, bytes), 0); /* would be accepted */
            break;
        }
    }
    assert_true(blocked > 10);
    child_joined(child, &client, dir);
}

/* Pollers never sleep here, but their rings are given up for idle just when the next message comes.
 */
static void
a_message_that_comes_as_its_ring_goes_idle_is_seen(void **state)
{
    const char *dir = run_dir_make();
    static struct end server, client;
    struct base_prng prng;
    const uint32_t count = rounds(1000);
    const pid_t child = child_connected(&server, &client, dir, echo);

    base_prng_seed(&prng, 6);
    if (child == 0) {
        const uint64_t now_ns = base_clock_now_ns();

        for (uint64_t turn = 0; server.down_count == 0; turn++) {
            /* The clock only now and then: a turn is to be short. */
            (void)lnet_lnd_shm.poll(server.ni, turn % 1024 == 0 ? base_clock_now_ns() : now_ns, 64);
        }
        end_close(&server);
        _exit(0);
    }
    for (uint32_t i = 1; i <= count; i++) {
        const uint64_t limit_ns = base_clock_now_ns() + UINT64_C(1000000) * WATCHDOG_MS;
        const uint64_t pause =
            base_prng_between(&prng, SHM_DEMOTE_TURNS / 2, SHM_DEMOTE_TURNS * 3 / 2);

        for (uint64_t turn = 0; turn < pause; turn++) {
            (void)lnet_lnd_shm.poll(client.ni, shm_ni_of(client.ni)->now_ns, 64);
        }
        assert_int_equal(end_put(client.conns[0], i, &i, sizeof(i)), 0);
        while (client.recv_count < i) {
            (void)end_poll(&client);
            if (base_clock_now_ns() > limit_ns) {
                (void)kill(child, SIGKILL);
                fail_msg("lost after %u messages", client.recv_count);
            }
        }
    }
    child_joined(child, &client, dir);
}

static void
an_idle_interface_stays_asleep(void **state)
{
    const char *dir = run_dir_make();
    static struct end a, b;
    struct pollfd wait;

    a = b = (struct end){0};
    end_open(&a, dir, "1", 0);
    end_open(&b, dir, "2", 0);
    end_connect(&a, &b);
    for (uint32_t i = 0; i < 3000; i++) {
        (void)end_poll(&a);
        (void)end_poll(&b);
    }
    assert_int_equal(lnet_lnd_shm.arm(a.ni), 0);
    wait = (struct pollfd){.fd = lnet_lnd_shm.fd(a.ni), .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 20), 0);
    assert_int_equal(lnet_lnd_shm.next_deadline(a.ni), UINT64_MAX);
    /* Many messages ring once: the descriptor is readable, and not after it was polled. */
    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(end_put(b.conns[0], i, "x", 1), 0);
    }
    assert_int_equal(lnet_lnd_shm.arm(b.ni), 0); /* arm() rings too */
    assert_int_equal(poll(&wait, 1, 1000), 1);
    while (a.recv_count < 50) {
        (void)end_poll(&a);
    }
    assert_int_equal(lnet_lnd_shm.arm(a.ni), 0);
    assert_int_equal(poll(&wait, 1, 20), 0);
    /* What came before is no reason to sleep. */
    (void)end_poll(&a);
    (void)end_poll(&b);
    assert_int_equal(end_put(b.conns[0], 1, "x", 1), 0);
    (void)end_poll(&b);
    assert_int_equal(lnet_lnd_shm.arm(a.ni), -EBUSY);
    END_POLL_UNTIL(&a, &b, a.recv_count == 51);
    end_close(&a);
    end_close(&b);
    run_dir_remove(dir);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_ping_pong_of_sleepers_loses_no_wake_up),
    cmocka_unit_test(sleepers_on_a_full_ring_are_woken_by_room),
    cmocka_unit_test(a_message_that_comes_as_its_ring_goes_idle_is_seen),
    cmocka_unit_test(an_idle_interface_stays_asleep),
};

TEST_MAIN(cases)
