/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lnet/ctx.c, post.c, timer.c: a turn keeps its budget, posts wake a sleeper, timers keep time.
 */
#include "tests/support/world.h"
#include "tests/test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

static struct world world;

static int
setup(void **state)
{
    world_open(&world, &(struct world_options){0});
    return 0;
}

static int
teardown(void **state)
{
    world_close(&world);
    return 0;
}

static bool
fd_is_readable(void)
{
    struct pollfd wait = {.fd = lnet_fd(world.ctx), .events = POLLIN};

    return poll(&wait, 1, 0) == 1;
}

static uint32_t post_calls;
static void *post_last;

static void
on_post(struct lnet *ctx, void *arg)
{
    post_calls++;
    post_last = arg;
}

static void
a_post_is_called_once_from_the_next_poll(void **state)
{
    int a = 0, b = 0;

    post_calls = 0;
    assert_int_equal(lnet_post(world.ctx, on_post, &a), 0);
    assert_int_equal(lnet_post(world.ctx, on_post, &b), 0);
    assert_int_equal(post_calls, 0);
    assert_int_equal(lnet_arm(world.ctx), -EBUSY);
    (void)world_poll(&world);
    assert_int_equal(post_calls, 2);
    assert_ptr_equal(post_last, &b);
    (void)world_poll(&world);
    assert_int_equal(post_calls, 2);
}

static void
a_post_wakes_a_sleeper_and_only_a_sleeper(void **state)
{
    assert_int_equal(lnet_post(world.ctx, on_post, NULL), 0);
    assert_false(fd_is_readable());
    (void)world_poll(&world);
    assert_int_equal(lnet_arm(world.ctx), 0);
    assert_false(fd_is_readable());
    assert_int_equal(lnet_post(world.ctx, on_post, NULL), 0);
    assert_true(fd_is_readable());
    (void)world_poll(&world);
    assert_false(fd_is_readable());
    assert_int_equal(lnet_arm(world.ctx), 0);
    (void)world_poll(&world);
}

static void
posts_are_bounded(void **state)
{
    post_calls = 0;
    for (uint32_t i = 0; i < 1024; i++) {
        assert_int_equal(lnet_post(world.ctx, on_post, NULL), 0);
    }
    assert_int_equal(lnet_post(world.ctx, on_post, NULL), -EAGAIN);
    (void)world_poll(&world);
    assert_int_equal(lnet_post(world.ctx, on_post, NULL), 0);
    for (uint32_t i = 0; i < 1024; i++) {
        (void)world_poll(&world);
    }
    assert_int_equal(post_calls, 1025);
}

static void
count_up(struct lnet *ctx, void *arg)
{
    (*(uint32_t *)arg)++;
}

#define POSTS_PER_THREAD 20000u

static void *
posts_many(void *arg)
{
    for (uint32_t i = 0; i < POSTS_PER_THREAD;) {
        if (lnet_post(world.ctx, count_up, arg) == 0) {
            i++;
        } else {
            (void)sched_yield();
        }
    }
    return NULL;
}

static void
no_post_of_other_threads_is_lost_by_a_context_that_sleeps(void **state)
{
    pthread_t threads[3];
    uint32_t counts[3] = {0};

    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, posts_many, &counts[i]), 0);
    }
    while (counts[0] + counts[1] + counts[2] < 3 * POSTS_PER_THREAD) {
        (void)world_poll(&world);
        if (counts[0] + counts[1] + counts[2] < 3 * POSTS_PER_THREAD && lnet_arm(world.ctx) == 0) {
            struct pollfd wait = {.fd = lnet_fd(world.ctx), .events = POLLIN};

            assert_int_equal(poll(&wait, 1, 10000), 1); /* a missed wake-up would be a timeout */
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(counts[i], POSTS_PER_THREAD);
    }
}

static void
timers_fire_once_at_their_time_in_order(void **state)
{
    uint32_t counts[100] = {0};
    struct lnet_timer timers[100];

    (void)memset(timers, 0, sizeof(timers));
    for (uint32_t i = 0; i < 100; i++) {
        timers[i].fn = count_up;
        timers[i].arg = &counts[i];
        assert_int_equal(
            lnet_timer_arm(world.ctx, &timers[i], world.pump.now_ns + (100 - i) * 1000), 0);
    }
    assert_true(lnet_next_deadline(world.ctx) == world.pump.now_ns + 1000);
    lnet_timer_cancel(world.ctx, &timers[99]);
    lnet_timer_cancel(world.ctx, &timers[99]);
    assert_int_equal(lnet_timer_arm(world.ctx, &timers[0], world.pump.now_ns + 1000),
                     0); /* moved */
    assert_int_equal(lnet_arm(world.ctx), 0);
    world.pump.now_ns += 50 * 1000;
    (void)world_poll(&world);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(counts[i], i == 0 || (i >= 50 && i < 99));
    }
    world.pump.now_ns += 50 * 1000;
    (void)world_poll(&world);
    for (uint32_t i = 0; i < 99; i++) {
        assert_int_equal(counts[i], 1);
    }
    assert_true(lnet_next_deadline(world.ctx) == UINT64_MAX);

    struct lnet_timer idle;

    (void)memset(&idle, 0, sizeof(idle));
    lnet_timer_cancel(world.ctx, &idle);
}

static struct lnet_timer again;

static void
arms_itself(struct lnet *ctx, void *arg)
{
    (*(uint32_t *)arg)++;
    assert_int_equal(lnet_timer_arm(ctx, &again, lnet_now(ctx) + 1000), 0);
}

static void
a_timer_may_arm_itself(void **state)
{
    uint32_t count = 0;

    again = (struct lnet_timer){.fn = arms_itself, .arg = &count};
    assert_int_equal(lnet_timer_arm(world.ctx, &again, 1), 0); /* past: now */
    for (uint32_t i = 0; i < 10; i++) {
        (void)world_poll(&world);
        world.pump.now_ns += 1000;
    }
    assert_int_equal(count, 10);
    lnet_timer_cancel(world.ctx, &again);
}

static void
a_turn_delivers_no_more_than_its_budget(void **state)
{
    struct mock_conn *conn;
    struct lnet_peer *peer = world_peer_up(&world, 2, 0, &conn);
    const struct lnet_target target = {.peer = peer, .portal = 5};
    const struct lnet_md_handle md = world_bind(&world, 0, 100, -1);
    const struct lnet_hdr put = {.type = LNET_MSG_PUT, .portal = 5};

    (void)world_attach_any(&world, 5, LNET_MD_OP_PUT | LNET_MD_PEEK, 100, -1);
    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(lnet_put(world.ctx, md, 0, 1, &target, 0), 0);
        mock_recv(world.ni, conn, &put, "");
    }
    uint32_t before = 0;
    uint32_t puts = 0;

    for (uint32_t i = 0; i < 110 && world.event_count < 100; i++) {
        const uint32_t budget = i < 20 ? 1 : 3;

        assert_true(lnet_poll(world.ctx, world.pump.now_ns, budget) <= budget);
        assert_true(world.event_count - before <= budget);
        before = world.event_count;
        if (i == 19) {
            /* Neither kind starves the other. */
            for (uint32_t j = 0; j < world.event_count; j++) {
                puts += world.events[j].type == LNET_EV_PUT;
            }
            assert_in_range(puts, 5, 15);
        }
    }
    assert_int_equal(world.event_count, 100);
}

static void
a_context_with_events_due_does_not_sleep(void **state)
{
    struct mock_conn *conn;
    struct lnet_peer *peer = world_peer_up(&world, 2, 0, &conn);
    const struct lnet_target target = {.peer = peer, .portal = 5};
    const struct lnet_md_handle md = world_bind(&world, 0, 100, -1);

    assert_int_equal(lnet_arm(world.ctx), 0);
    (void)world_poll(&world);
    assert_int_equal(lnet_put(world.ctx, md, 0, 1, &target, 0), 0);
    assert_int_equal(lnet_arm(world.ctx), -EBUSY);
    (void)world_poll(&world);
    assert_int_equal(lnet_arm(world.ctx), 0);
}

static void
what_is_submitted_before_the_first_poll_has_its_whole_timeout(void **state)
{
    world_close(&world);

    const struct lnet_options options = {.struct_bytes = sizeof(options),
                                         .transaction_timeout_ns = 2 * WORLD_SECOND_NS};
    const struct lnet_process process = {.nid = mock_nid(2)};
    struct lnet_peer_info info;
    struct lnet_peer *peer;
    uint64_t cursor = 0;

    assert_int_equal(lnet_open(&options, &world.ctx), 0);
    world.ni = mock_add(world.ctx, &mock_lnd_at_once, WORLD_ADDRESS, 0, 0, 0);
    assert_int_equal(lnet_peer_get(world.ctx, &process, &peer), 0);
    world_put(&world, peer, 0, 1);
    world.pump.now_ns = 1000 * WORLD_SECOND_NS; /* uptime */
    (void)world_poll(&world);
    world.pump.now_ns += 2 * WORLD_SECOND_NS - 1;
    (void)world_poll(&world);
    assert_int_equal(lnet_peer_info_next(world.ctx, &cursor, &info), 0);
    assert_int_equal(info.counters.lost_count, 0);
    world.pump.now_ns += 1;
    (void)world_poll(&world);
    cursor = 0;
    assert_int_equal(lnet_peer_info_next(world.ctx, &cursor, &info), 0);
    assert_int_equal(info.counters.lost_count, 1);
}

static void
options_of_older_and_bad_callers(void **state)
{
    struct lnet *ctx = NULL;
    struct lnet_options options = {.struct_bytes = 8, .pid = 3, .peers_max = 9};
    struct lnet_limits limits;

    assert_int_equal(lnet_open(&options, &ctx), 0); /* peers_max is beyond what it knows */
    lnet_limits_get(ctx, &limits);
    assert_int_equal(limits.peers_max, 4096);
    lnet_close(ctx);
    options.struct_bytes = 0;
    assert_int_equal(lnet_open(&options, &ctx), -EINVAL);
    options = (struct lnet_options){.struct_bytes = sizeof(options), .mds_max = UINT32_MAX};
    assert_int_equal(lnet_open(&options, &ctx), -EINVAL);
    options = (struct lnet_options){.struct_bytes = sizeof(options), .pid = LNET_PID_ANY};
    assert_int_equal(lnet_open(&options, &ctx), -EINVAL);
    assert_int_equal(lnet_open(NULL, &ctx), 0);
    lnet_close(ctx);
    lnet_close(NULL);
}

static void
interfaces_are_named_and_one_of_a_net(void **state)
{
    static const struct {
        const char *net;
        int error;
    } table[] = {{"nonesuch", -ENODEV}, {"lo", -EEXIST},
                 {"", -EINVAL},         {"shm01", -EINVAL},
                 {"shm70000", -EINVAL}, {"12", -EINVAL},
                 {"shm1x", -EINVAL},    {"anamethatistoolongforanet", -EINVAL}};
    struct lnet_ni_info info;

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(table); i++) {
        const struct lnet_ni_options options = {.struct_bytes = sizeof(options),
                                                .net = table[i].net};

        assert_int_equal(lnet_ni_add(world.ctx, &options, NULL), table[i].error);
    }
    assert_int_equal(lnet_ni_info_get(world.ctx, 1, &info), 0);
    assert_true(info.nid.value == mock_nid(WORLD_ADDRESS).value);
    assert_int_equal(lnet_ni_info_get(world.ctx, 2, &info), -ENOENT);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest cases[] = {
    CASE(a_post_is_called_once_from_the_next_poll),
    CASE(a_post_wakes_a_sleeper_and_only_a_sleeper),
    CASE(posts_are_bounded),
    CASE(no_post_of_other_threads_is_lost_by_a_context_that_sleeps),
    CASE(timers_fire_once_at_their_time_in_order),
    CASE(a_timer_may_arm_itself),
    CASE(a_turn_delivers_no_more_than_its_budget),
    CASE(a_context_with_events_due_does_not_sleep),
    CASE(what_is_submitted_before_the_first_poll_has_its_whole_timeout),
    CASE(options_of_older_and_bad_callers),
    CASE(interfaces_are_named_and_one_of_a_net),
};

TEST_MAIN(cases)
