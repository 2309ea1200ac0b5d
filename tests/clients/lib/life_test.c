/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Property: threads share a mount, children let go of it, signals do not surface, and when a server
 * or a client dies the others go on with an error each at most. Method: servers in threads, or in a
 * process that is killed; clients in processes that are killed at random moments.
 */
#include "tests/test.h"

#include "base/clock.h"
#include "base/prng.h"
#include "tests/support/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

/* ---- threads ---- */

#define THREADS      8u
#define THREAD_TURNS 60u

struct worker {
    struct causeway *fs;
    pthread_t thread;
    uint32_t index;
    const char *failed;
};

#define WORKER_CHECK(cond)          \
    do {                            \
        if (!(cond)) {              \
            worker->failed = #cond; \
            goto out;               \
        }                           \
    } while (0)

static void *
worker_main(void *arg)
{
    struct worker *worker = arg;
    struct causeway *fs = worker->fs;
    const uint32_t bytes = 100000 + worker->index * 1000;
    uint8_t *data = malloc(bytes);
    uint8_t *back = malloc(bytes);
    char name[32];

    for (uint32_t turn = 0; turn < THREAD_TURNS; turn++) {
        struct causeway_file *file = NULL;
        const struct iovec write = {.iov_base = data, .iov_len = bytes};
        const struct iovec read = {.iov_base = back, .iov_len = bytes};
        struct stat st;

        (void)snprintf(name, sizeof(name), "w%u-%u", worker->index, turn);
        (void)memset(data, (int)(worker->index * 31 + turn), bytes);
        WORKER_CHECK(causeway_open(fs, NULL, name, O_RDWR | O_CREAT | O_EXCL, 0644, &file) == 0);
        WORKER_CHECK(causeway_pwritev(file, &write, 1, 5, NULL) == (ssize_t)bytes);
        WORKER_CHECK(causeway_preadv(file, &read, 1, 5) == (ssize_t)bytes);
        WORKER_CHECK(memcmp(data, back, bytes) == 0);
        WORKER_CHECK(causeway_stat(fs, NULL, name, 0, &st) == 0);
        WORKER_CHECK(st.st_size == (off_t)bytes + 5);
        causeway_close(file);
        WORKER_CHECK(causeway_unlink(fs, NULL, name) == 0);
    }
out:
    free(data);
    free(back);
    return NULL;
}

static void
eight_threads_share_a_mount(void **state)
{
    const struct cluster_options servers = {.osts_per_oss = 2, .stripe_count = 2};
    struct cluster *cluster = NULL;
    struct causeway *fs = NULL;
    struct worker workers[THREADS];

    assert_int_equal(cluster_start(&servers, &cluster), 0);
    assert_int_equal(cluster_mount(cluster, NULL, &fs), 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.fs = fs, .index = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        if (workers[i].failed != NULL) {
            fail_msg("thread %u: %s", i, workers[i].failed);
        }
    }
    causeway_unmount(fs);
    cluster_stop(cluster);
}

/* ---- fork ---- */

static void
a_child_lets_go_and_neither_side_notices(void **state)
{
    struct cluster *cluster = NULL;
    struct causeway *fs = NULL;
    struct causeway_file *file = NULL;
    pid_t server = 0;
    char text[4];
    const struct iovec iov = {.iov_base = text, .iov_len = 4};

    assert_int_equal(cluster_fork(NULL, &cluster, &server), 0);
    assert_int_equal(cluster_mount(cluster, NULL, &fs), 0);
    assert_int_equal(causeway_open(fs, NULL, "f", O_RDWR | O_CREAT, 0644, &file), 0);
    for (int i = 0; i < 50; i++) {
        const pid_t child = fork();
        int status = 0;

        if (child == 0) {
            struct causeway *mine = NULL;
            struct stat st;

            causeway_fork_child(fs);
            if (i % 2 == 0 && (cluster_mount(cluster, NULL, &mine) != 0 ||
                               causeway_stat(mine, NULL, "f", 0, &st) != 0)) {
                _exit(1);
            }
            if (i % 4 == 0) {
                causeway_unmount(mine);
            }
            _exit(0);
        }
        (void)memcpy(text, &i, 4);
        assert_int_equal(causeway_pwritev(file, &iov, 1, i, NULL), 4);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(causeway_preadv(file, &iov, 1, i), 4);
        assert_memory_equal(text, &i, 4);
    }
    causeway_close(file);
    causeway_unmount(fs);
    cluster_stop(cluster);
}

static uint32_t
descriptors_count(void)
{
    uint32_t count = 0;

    for (int fd = 0; fd < 256; fd++) {
        count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    }
    return count;
}

static void
a_child_keeps_no_descriptor_and_the_parents_death_is_seen(void **state)
{
    struct cluster *cluster = NULL;
    struct causeway *fs = NULL;
    const uint32_t before = descriptors_count();
    pid_t server = 0;
    int status = 0;

    assert_int_equal(cluster_fork(NULL, &cluster, &server), 0);
    assert_int_equal(cluster_mount(cluster, NULL, &fs), 0);
    const pid_t child = fork();

    if (child == 0) {
        causeway_fork_child(fs);
        _exit(descriptors_count() == before ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    causeway_unmount(fs);
    assert_int_equal(descriptors_count(), before);
    cluster_stop(cluster);
}

/* ---- signals ---- */

static volatile sig_atomic_t alarms;

static void
on_alarm(int number)
{
    (void)number;
    alarms++;
}

static void
signals_interrupt_nothing(void **state)
{
    const struct sigaction action = {.sa_handler = on_alarm};
    const struct itimerval fast = {.it_interval = {.tv_usec = 200}, .it_value = {.tv_usec = 200}};
    const struct itimerval none = {0};
    struct cluster *cluster = NULL;
    struct causeway *fs = NULL;
    struct causeway_file *file = NULL;
    pid_t server = 0;
    static uint8_t data[300000];
    const struct iovec iov = {.iov_base = data, .iov_len = sizeof(data)};

    assert_int_equal(cluster_fork(NULL, &cluster, &server), 0);
    assert_int_equal(cluster_mount(cluster, NULL, &fs), 0);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &fast, NULL), 0);
    assert_int_equal(causeway_open(fs, NULL, "f", O_RDWR | O_CREAT, 0644, &file), 0);
    const uint64_t until_ns = base_clock_now_ns() + 300000000u;

    while (base_clock_now_ns() < until_ns) {
        assert_int_equal(causeway_pwritev(file, &iov, 1, 0, NULL), sizeof(data));
        assert_int_equal(causeway_preadv(file, &iov, 1, 0), sizeof(data));
        assert_int_equal(causeway_fsync(file), 0);
    }
    assert_int_equal(setitimer(ITIMER_REAL, &none, NULL), 0);
    assert_true(alarms > 0);
    causeway_close(file);
    causeway_unmount(fs);
    cluster_stop(cluster);
}

/* ---- deaths ---- */

#define TIMEOUT_NS UINT64_C(1000000000)

static void
a_killed_server_ends_every_call_within_the_timeout(void **state)
{
    const struct causeway_options options = {.timeout_ns = TIMEOUT_NS};
    struct cluster *cluster = NULL;
    struct causeway *fs = NULL;
    struct causeway_file *file = NULL;
    pid_t server = 0;
    struct stat st;
    static uint8_t data[3000000];
    const struct iovec iov = {.iov_base = data, .iov_len = sizeof(data)};

    assert_int_equal(cluster_fork(NULL, &cluster, &server), 0);
    assert_int_equal(cluster_mount(cluster, &options, &fs), 0);
    assert_int_equal(causeway_open(fs, NULL, "f", O_RDWR | O_CREAT, 0644, &file), 0);
    assert_int_equal(causeway_pwritev(file, &iov, 1, 0, NULL), sizeof(data));
    assert_int_equal(kill(server, SIGKILL), 0);
    const uint64_t begin_ns = base_clock_now_ns();

    assert_true(causeway_stat(fs, NULL, "f", 0, &st) < 0);
    assert_true(causeway_preadv(file, &iov, 1, 0) < 0);
    assert_true(causeway_pwritev(file, &iov, 1, 0, NULL) < 0);
    assert_true(causeway_fsync(file) < 0);
    causeway_close(file);
    causeway_unmount(fs);
    assert_true(base_clock_now_ns() - begin_ns < 16 * TIMEOUT_NS);
    cluster_stop(cluster);
}

static void
nobody_at_the_address_is_said_at_once(void **state)
{
    const struct causeway_options options = {
        .struct_bytes = sizeof(options), .mds = "99@shm", .timeout_ns = TIMEOUT_NS};
    struct causeway *fs = NULL;

    assert_int_equal(causeway_mount(&options, &fs), -EHOSTUNREACH);
}

/* Does all kinds of things until it is killed. */
static void
victim(const struct cluster *cluster, uint32_t number)
{
    struct causeway *fs = NULL;
    static uint8_t data[2 << 20];
    const struct iovec iov = {.iov_base = data, .iov_len = sizeof(data)};
    char name[32];

    if (cluster_mount(cluster, NULL, &fs) != 0) {
        _exit(1);
    }
    (void)snprintf(name, sizeof(name), "victim-%u", number);
    for (;;) {
        struct causeway_file *file = NULL;

        if (causeway_open(fs, NULL, name, O_RDWR | O_CREAT, 0644, &file) != 0) {
            _exit(1);
        }
        (void)causeway_unlink(fs, NULL, name);
        (void)causeway_pwritev(file, &iov, 1, 0, NULL);
        (void)causeway_preadv(file, &iov, 1, 0);
        causeway_close(file);
    }
}

static bool
is_all_returned(struct cluster *cluster)
{
    struct mds_stats mds;
    struct oss_stats oss;

    cluster_mds_stats(cluster, &mds);
    cluster_oss_stats(cluster, &oss);
    return mds.open_handles == 0 && mds.orphans == 0 && oss.objects == 0 && oss.leases_out == 0;
}

static void
killed_clients_give_back_all_they_had(void **state)
{
    struct cluster *cluster = NULL;
    struct causeway *fs = NULL;
    struct base_prng prng;
    struct stat st;

    base_prng_seed(&prng, 7);
    assert_int_equal(cluster_start(NULL, &cluster), 0);
    for (uint32_t i = 0; i < 20; i++) {
        const pid_t child = fork();
        int status = 0;

        if (child == 0) {
            victim(cluster, i);
        }
        (void)usleep((useconds_t)(2000 + base_prng_below(&prng, 20000)));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
    }
    for (int i = 0; i < 500 && !is_all_returned(cluster); i++) {
        (void)usleep(10000);
    }
    assert_true(is_all_returned(cluster));
    assert_int_equal(cluster_mount(cluster, NULL, &fs), 0);
    assert_int_equal(causeway_stat(fs, NULL, "/", 0, &st), 0);
    causeway_unmount(fs);
    cluster_stop(cluster);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(eight_threads_share_a_mount),
    cmocka_unit_test(a_child_lets_go_and_neither_side_notices),
    cmocka_unit_test(a_child_keeps_no_descriptor_and_the_parents_death_is_seen),
    cmocka_unit_test(signals_interrupt_nothing),
    cmocka_unit_test(a_killed_server_ends_every_call_within_the_timeout),
    cmocka_unit_test(nobody_at_the_address_is_said_at_once),
    cmocka_unit_test(killed_clients_give_back_all_they_had),
};

TEST_MAIN(cases)
