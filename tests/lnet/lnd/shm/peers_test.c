/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Property: many peers at once are no trouble: all pairs of 64 processes connect though all begin
 * in the same instant; a turn costs the same with 1 and with 64 idle peers; peers that are killed
 * at any moment, the handshake included, leave nothing behind. Method: processes, and shared
 * counters.
 */
#include "tests/lnet/lnd/shm/driver.h"

#include "base/prng.h"

#include <fcntl.h>
#include <sys/mman.h>

#define PROCESS_COUNT 64u

struct counters {
    _Atomic(uint32_t) open_count, ready_count;
};

static struct counters *
counters_make(void)
{
    void *map = mmap(NULL, sizeof(struct counters), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(map != MAP_FAILED);
    return map;
}

static struct lnet_process
process_at(uint32_t address)
{
    return (struct lnet_process){.nid = {(uint64_t)LNET_LND_SHM << 48 | address}};
}

/* One of the processes: 0 if it got a message from each other one over one connection each. */
static int
crowd_member(const char *dir, uint32_t index, struct counters *counters)
{
    static struct end end;
    char address[16];
    struct lnet_ni_options options = {
        .address = address, .run_dir = dir, .ring_bytes = SHM_RING_BYTES_MIN};
    const uint64_t limit_ns = base_clock_now_ns() + UINT64_C(60000000000);
    bool is_said[END_CONNS_MAX] = {0};
    bool is_ready = false;

    (void)snprintf(address, sizeof(address), "%u", index + 1);
    end = (struct end){0};
    if (end_open_with(&end, 0, UINT64_C(60000000000), &options) != 0) {
        return 2;
    }
    counters->open_count++;
    while (counters->open_count < PROCESS_COUNT) {
        end_sleep(&end, 1);
    }
    for (uint32_t i = 0; i < PROCESS_COUNT; i++) {
        const struct lnet_process peer = process_at(i + 1);
        struct lnet_lnd_conn *conn = NULL;
        bool is_known = i == index;

        for (uint32_t j = 0; j < end.conn_count; j++) {
            is_known |= end.conns[j]->peer.nid.value == peer.nid.value;
        }
        if (!is_known && lnet_lnd_shm.conn_open(end.ni, &peer, &end, &conn) != 0) {
            return 3;
        }
        if (i % 8 == 0) {
            (void)end_poll(&end);
        }
    }
    while (counters->ready_count < PROCESS_COUNT) {
        end_sleep(&end, 5);
        for (uint32_t j = 0; j < end.conn_count; j++) {
            const uint32_t peer = (uint32_t)end.conns[j]->peer.nid.value;

            if (!is_said[peer]) {
                is_said[peer] = true;
                if (end_put(end.conns[j], index, &index, sizeof(index)) != 0) {
                    return 4;
                }
            }
        }
        if (!is_ready && end.conn_count == PROCESS_COUNT - 1 &&
            end.recv_count == PROCESS_COUNT - 1) {
            is_ready = true;
            counters->ready_count++;
        }
        /* The first that leaves does so when all are ready, and not before. */
        const bool is_bad = end.down_count > 0 && counters->ready_count < PROCESS_COUNT;

        if (is_bad || end.conn_count >= PROCESS_COUNT || base_clock_now_ns() > limit_ns) {
            (void)fprintf(stderr, "# %u: %u connections, %u messages, %u down (%d)\n%s", index,
                          end.conn_count, end.recv_count, end.down_count, end.down_reason, end.log);
            return 5;
        }
    }
    end_close(&end);
    return 0;
}

static void
all_pairs_of_64_processes_connect_at_the_same_instant(void **state)
{
    const char *dir = run_dir_make();
    struct counters *counters = counters_make();
    pid_t children[PROCESS_COUNT];

    for (uint32_t i = 0; i < PROCESS_COUNT; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            _exit(crowd_member(dir, i, counters));
        }
    }
    for (uint32_t i = 0; i < PROCESS_COUNT; i++) {
        int status = 1;

        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(run_dir_entries(dir), 0);
    (void)munmap(counters, sizeof(*counters));
    run_dir_remove(dir);
}

/* The least of many measurements of 1000 idle turns, in ns per turn. */
static double
idle_turn_ns(struct end *end)
{
    uint64_t least_ns = UINT64_MAX;
    const uint64_t now_ns = base_clock_now_ns();

    for (uint32_t i = 0; i < 200; i++) {
        const uint64_t begin_ns = base_clock_now_ns();

        for (uint32_t j = 0; j < 1000; j++) {
            (void)lnet_lnd_shm.poll(end->ni, now_ns, 64);
        }
        least_ns = base_min_u64(least_ns, base_clock_now_ns() - begin_ns);
    }
    return (double)least_ns / 1000;
}

static void
a_turn_costs_the_same_with_64_idle_peers_as_with_one(void **state)
{
    const char *dir = run_dir_make();
    static struct end server, clients[PROCESS_COUNT];
    double one_ns = 0;

    server = (struct end){0};
    end_open(&server, dir, "1", 0);
    for (uint32_t i = 0; i < PROCESS_COUNT; i++) {
        clients[i] = (struct end){0};
        end_open(&clients[i], dir, NULL, LNET_NI_CONNECT_ONLY);
        end_connect(&clients[i], &server);
        if (i == 0) {
            one_ns = idle_turn_ns(&server);
        }
    }
    const double all_ns = idle_turn_ns(&server);

    (void)printf("# idle turn: %.1f ns with 1 peer, %.1f ns with %u\n", one_ns, all_ns,
                 PROCESS_COUNT);
    assert_true(all_ns < one_ns * 1.5 + 5);
    /* Each of the idle ones is heard when it speaks. */
    for (uint32_t i = 0; i < PROCESS_COUNT; i++) {
        assert_int_equal(end_put(clients[i].conns[0], i, &i, sizeof(i)), 0);
        END_POLL_UNTIL(&clients[i], &server, server.recv_count == i + 1);
        assert_int_equal(server.hdr.match_bits, i);
    }
    for (uint32_t i = 0; i < PROCESS_COUNT; i++) {
        end_close(&clients[i]);
    }
    END_POLL_UNTIL(&server, &server, server.down_count == PROCESS_COUNT);
    end_close(&server);
    assert_int_equal(run_dir_entries(dir), 0);
    run_dir_remove(dir);
}

static uint32_t
fd_count(void)
{
    return run_dir_entries("/proc/self/fd");
}

static uint32_t
map_count(void)
{
    char line[512];
    uint32_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        count += strstr(line, "causeway") != NULL;
    }
    (void)fclose(maps);
    return count;
}

static int
recv_echo(struct end *end, struct lnet_lnd_conn *conn, const struct lnet_hdr *hdr,
          const void *payload)
{
    (void)end;
    (void)end_put(conn, hdr->match_bits, payload, hdr->length_bytes); /* or drop it: no matter */
    return 0;
}

/* Connects, sends and gets, allocates and frees regions, until it is killed. */
static void
victim_run(const char *dir)
{
    static struct end end;
    static uint8_t data[2000];
    const struct lnet_process server = process_at(1);
    struct lnet_lnd_conn *conn = NULL;
    struct lnet_lnd_mem *mem = NULL;
    void *address = NULL;

    for (;;) {
        end = (struct end){0};
        end_open(&end, dir, NULL, 0);
        (void)lnet_lnd_shm.conn_open(end.ni, &server, &end, &conn);
        for (uint32_t i = 0; i < 200; i++) {
            (void)end_poll(&end);
            if (end.conn_count > 0) {
                (void)end_put(end.conns[0], i, data, i);
            }
            if (i % 20 == 0) {
                if (mem != NULL) {
                    lnet_lnd_shm.mem_release(mem);
                    mem = NULL;
                }
                (void)lnet_lnd_shm.mem_alloc(end.ni, 8192, 0, &mem, &address);
            }
        }
        if (mem != NULL) {
            lnet_lnd_shm.mem_release(mem);
            mem = NULL;
        }
        end_close(&end);
    }
}

static void
peers_killed_at_any_moment_leave_nothing(void **state)
{
    const char *dir = run_dir_make();
    static struct end server;
    struct base_prng prng;
    const char *text = getenv("SHM_TEST_ROUNDS");
    const uint32_t rounds = text != NULL ? (uint32_t)atoi(text) : 60;

    base_prng_seed(&prng, 5);
    server = (struct end){.recv = recv_echo};
    end_open(&server, dir, "1", 0);
    const uint32_t fds = fd_count();
    const uint32_t maps = map_count();

    for (uint32_t round = 0; round < rounds; round++) {
        const uint64_t life_ns = base_prng_below(&prng, 4000000);
        const pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0) {
            victim_run(dir);
        }
        for (const uint64_t end_ns = base_clock_now_ns() + life_ns; base_clock_now_ns() < end_ns;) {
            (void)end_poll(&server);
        }
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        END_POLL_UNTIL(&server, &server,
                       server.conn_count == 0 && shm_ni_of(server.ni)->greeting_count == 0);
        server.log[0] = '\0';
    }
    /* What connected and died before it was accepted is accepted and seen off. */
    for (uint32_t i = 0; i < 3000; i++) {
        (void)end_poll(&server);
    }
    assert_int_equal(fd_count(), fds);
    assert_int_equal(map_count(), maps);
    assert_int_equal(base_list_count(&shm_ni_of(server.ni)->all), 0);
    end_close(&server);
    run_dir_remove(dir);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(all_pairs_of_64_processes_connect_at_the_same_instant),
    cmocka_unit_test(a_turn_costs_the_same_with_64_idle_peers_as_with_one),
    cmocka_unit_test(peers_killed_at_any_moment_leave_nothing),
};

TEST_MAIN(cases)
