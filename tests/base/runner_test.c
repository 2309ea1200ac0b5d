/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/runner.c: it polls while there is work, sleeps while there is none, wakes by descriptor,
 * deadline, watcher and stop, and an idle one costs below 1 % of a core.
 */
#include "base/runner.h"

#include "base/clock.h"
#include "tests/test.h"

#include <errno.h>
#include <ev.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

struct world {
    struct base_runner *runner;
    int fd;
    uint32_t polls;
    uint32_t work_left;
    uint32_t arms;
    int arm_result;
    uint64_t deadline_ns;
    uint64_t stop_at_ns; /* polls at or after this stop the runner */
};

static uint32_t
world_poll(void *arg, uint64_t now_ns)
{
    struct world *world = arg;
    uint64_t posts = 0;

    world->polls++;
    if (read(world->fd, &posts, sizeof(posts)) == (ssize_t)sizeof(posts)) {
        base_runner_stop(world->runner);
        return 1;
    }
    if (now_ns >= world->stop_at_ns) {
        base_runner_stop(world->runner);
    }
    if (world->work_left > 0) {
        world->work_left--;
        return 1;
    }
    return 0;
}

static int
world_arm(void *arg)
{
    struct world *world = arg;

    world->arms++;
    return world->arm_result;
}

static uint64_t
world_deadline(void *arg)
{
    const struct world *world = arg;

    return world->deadline_ns;
}

static int
setup(void **state)
{
    static struct world world;

    world = (struct world){
        .fd = eventfd(0, EFD_NONBLOCK),
        .deadline_ns = UINT64_MAX,
        .stop_at_ns = UINT64_MAX,
    };
    *state = &world;
    const struct base_runner_opts opts = {
        .poll = world_poll,
        .arm = world_arm,
        .next_deadline = world_deadline,
        .arg = &world,
        .fd = world.fd,
    };

    return base_runner_create(&opts, &world.runner);
}

static int
teardown(void **state)
{
    struct world *world = *state;

    base_runner_destroy(world->runner);
    return close(world->fd);
}

static void
a_stop_before_the_run_ends_it_at_once(void **state)
{
    struct world *world = *state;

    base_runner_stop(world->runner);
    assert_int_equal(base_runner_run(world->runner), 0);
    assert_int_equal(world->polls, 0);
}

static void
work_is_polled_without_arming(void **state)
{
    struct world *world = *state;

    world->work_left = 1000;
    world->arm_result = -EIO; /* the first sleep ends the run */
    assert_int_equal(base_runner_run(world->runner), -EIO);
    assert_true(world->polls > 1000);
    assert_int_equal(world->arms, 1);
}

static void *
post_later(void *arg)
{
    const struct world *world = arg;
    const uint64_t one = 1;

    (void)usleep(20000);
    return write(world->fd, &one, sizeof(one)) == (ssize_t)sizeof(one) ? NULL : arg;
}

static void
the_descriptor_wakes_a_sleeping_runner(void **state)
{
    struct world *world = *state;
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, post_later, world), 0);
    assert_int_equal(base_runner_run(world->runner), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(world->arms >= 1);
}

static void *
stop_later(void *arg)
{
    const struct world *world = arg;

    (void)usleep(20000);
    base_runner_stop(world->runner);
    return NULL;
}

static void
stop_from_another_thread_wakes_a_sleeping_runner(void **state)
{
    struct world *world = *state;
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, stop_later, world), 0);
    assert_int_equal(base_runner_run(world->runner), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void
a_deadline_ends_the_sleep(void **state)
{
    struct world *world = *state;
    const uint64_t before_ns = base_clock_now_ns();

    world->deadline_ns = before_ns + 30000000;
    world->stop_at_ns = world->deadline_ns;
    assert_int_equal(base_runner_run(world->runner), 0);
    assert_true(base_clock_now_ns() >= world->deadline_ns);
}

static void
watcher_stop(struct ev_loop *loop, ev_timer *watcher, int events)
{
    struct world *world = watcher->data;

    base_runner_stop(world->runner);
}

static void
watchers_of_the_caller_run_also_while_busy(void **state)
{
    struct world *world = *state;
    ev_timer watcher;

    ev_timer_init(&watcher, watcher_stop, 0.01, 0.);
    watcher.data = world;
    ev_timer_start(base_runner_loop(world->runner), &watcher);
    world->work_left = UINT32_MAX;
    assert_int_equal(base_runner_run(world->runner), 0);
    assert_int_equal(world->arms, 0);
}

static uint64_t
cpu_us(void)
{
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void
an_idle_runner_costs_below_one_percent(void **state)
{
    struct world *world = *state;
    const uint64_t before_us = cpu_us();

    world->deadline_ns = base_clock_now_ns() + 300000000;
    world->stop_at_ns = world->deadline_ns;
    assert_int_equal(base_runner_run(world->runner), 0);
    assert_true(cpu_us() - before_us < 3000);
}

static void
a_missing_function_is_refused(void **state)
{
    const struct base_runner_opts opts = {.poll = world_poll, .arm = world_arm, .fd = -1};
    struct base_runner *runner = NULL;

    assert_int_equal(base_runner_create(&opts, &runner), -EINVAL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest cases[] = {
    CASE(a_stop_before_the_run_ends_it_at_once),
    CASE(work_is_polled_without_arming),
    CASE(the_descriptor_wakes_a_sleeping_runner),
    CASE(stop_from_another_thread_wakes_a_sleeping_runner),
    CASE(a_deadline_ends_the_sleep),
    CASE(watchers_of_the_caller_run_also_while_busy),
    CASE(an_idle_runner_costs_below_one_percent),
    cmocka_unit_test(a_missing_function_is_refused),
};

TEST_MAIN(cases)
