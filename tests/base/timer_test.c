/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/timer.c: each timer fires once, not before its deadline, in order, whatever was armed,
 * moved or cancelled in between. The last case compares random histories with a plain array.
 */
#include "base/timer.h"

#include "base/prng.h"
#include "tests/test.h"

#define TIMERS 50u

struct probe {
    struct base_timer timer;
    uint64_t fired_ns;
    uint32_t fired_count;
};

static struct base_timers timers;
static struct probe probes[TIMERS];
static uint64_t last_deadline_ns;

static void
probe_fire(struct base_timer *timer, uint64_t now_ns)
{
    struct probe *probe = BASE_CONTAINER_OF(timer, struct probe, timer);

    assert_false(base_timer_is_armed(timer));
    assert_true(timer->deadline_ns <= now_ns);
    assert_true(timer->deadline_ns >= last_deadline_ns);
    last_deadline_ns = timer->deadline_ns;
    probe->fired_ns = now_ns;
    probe->fired_count++;
}

static void
again_fire(struct base_timer *timer, uint64_t now_ns)
{
    BASE_CONTAINER_OF(timer, struct probe, timer)->fired_count++;
    base_timer_arm(&timers, timer, now_ns + 10);
}

static int
setup(void **state)
{
    last_deadline_ns = 0;
    for (uint32_t i = 0; i < TIMERS; i++) {
        probes[i] = (struct probe){.fired_count = 0};
        base_timer_init(&probes[i].timer, probe_fire);
    }
    return base_timers_init(&timers, TIMERS);
}

static int
teardown(void **state)
{
    for (uint32_t i = 0; i < TIMERS; i++) {
        base_timer_cancel(&timers, &probes[i].timer);
    }
    base_timers_fini(&timers);
    return 0;
}

static void
a_timer_fires_once_at_its_deadline(void **state)
{
    assert_int_equal(base_timers_next_ns(&timers), UINT64_MAX);
    base_timer_arm(&timers, &probes[0].timer, 100);
    assert_int_equal(base_timers_next_ns(&timers), 100);
    assert_int_equal(base_timers_run(&timers, 99, 10), 0);
    assert_int_equal(base_timers_run(&timers, 100, 10), 1);
    assert_int_equal(base_timers_run(&timers, 1000, 10), 0);
    assert_int_equal(probes[0].fired_count, 1);
}

static void
a_deadline_moved_later_does_not_fire_at_the_old_one(void **state)
{
    base_timer_arm(&timers, &probes[0].timer, 100);
    base_timer_arm(&timers, &probes[1].timer, 150);
    base_timer_arm(&timers, &probes[0].timer, 200);
    assert_int_equal(base_timers_next_ns(&timers), 150);
    assert_int_equal(base_timers_run(&timers, 199, 10), 1);
    assert_int_equal(probes[1].fired_count, 1);
    assert_int_equal(base_timers_run(&timers, 200, 10), 1);
    assert_int_equal(probes[0].fired_ns, 200);
}

static void
a_deadline_moved_earlier_fires_then(void **state)
{
    base_timer_arm(&timers, &probes[0].timer, 100);
    base_timer_arm(&timers, &probes[1].timer, 300);
    base_timer_arm(&timers, &probes[1].timer, 50);
    assert_int_equal(base_timers_next_ns(&timers), 50);
    assert_int_equal(base_timers_run(&timers, 60, 10), 1);
    assert_int_equal(probes[1].fired_ns, 60);
}

static void
a_deadline_moved_later_then_back_fires_at_the_last_one(void **state)
{
    base_timer_arm(&timers, &probes[0].timer, 100);
    base_timer_arm(&timers, &probes[0].timer, 500);
    base_timer_arm(&timers, &probes[0].timer, 120);
    assert_int_equal(base_timers_run(&timers, 119, 10), 0);
    assert_int_equal(base_timers_run(&timers, 120, 10), 1);
}

static void
a_cancelled_timer_is_silent(void **state)
{
    base_timer_arm(&timers, &probes[0].timer, 100);
    base_timer_cancel(&timers, &probes[0].timer);
    base_timer_cancel(&timers, &probes[0].timer);
    assert_false(base_timer_is_armed(&probes[0].timer));
    assert_int_equal(base_timers_run(&timers, 1000, 10), 0);
}

static void
a_run_stops_at_its_budget(void **state)
{
    for (uint32_t i = 0; i < 5; i++) {
        base_timer_arm(&timers, &probes[i].timer, i);
    }
    assert_int_equal(base_timers_run(&timers, 10, 3), 3);
    assert_int_equal(base_timers_next_ns(&timers), 3);
    assert_int_equal(base_timers_run(&timers, 10, 3), 2);
}

static void
a_callback_may_arm_its_own_timer(void **state)
{
    base_timer_init(&probes[0].timer, again_fire);
    base_timer_arm(&timers, &probes[0].timer, 10);
    for (uint64_t now_ns = 0; now_ns <= 100; now_ns++) {
        (void)base_timers_run(&timers, now_ns, 1);
    }
    assert_int_equal(probes[0].fired_count, 10);
}

static void
arming_more_than_was_reserved_aborts(void **state)
{
    struct base_timer more;

    base_timer_init(&more, probe_fire);
    for (uint32_t i = 0; i < TIMERS; i++) {
        base_timer_arm(&timers, &probes[i].timer, i);
    }
    TEST_ABORTS(base_timer_arm(&timers, &more, 1));
    assert_int_equal(base_timers_reserve(&timers, 1), 0);
    base_timer_arm(&timers, &more, 1);
    base_timer_cancel(&timers, &more);
    base_timers_unreserve(&timers, 1);
}

static void
random_histories_fire_what_a_plain_array_would(void **state)
{
    struct base_prng prng;
    uint64_t model_ns[TIMERS]; /* UINT64_MAX: idle */

    base_prng_seed(&prng, 7);
    for (uint32_t i = 0; i < TIMERS; i++) {
        model_ns[i] = UINT64_MAX;
    }
    for (uint64_t now_ns = 0; now_ns < 20000; now_ns += base_prng_below(&prng, 20)) {
        const uint32_t which = (uint32_t)base_prng_below(&prng, TIMERS);
        uint64_t model_next_ns = UINT64_MAX;

        if (base_prng_chance(&prng, 0.8)) {
            model_ns[which] = now_ns + base_prng_below(&prng, 300);
            base_timer_arm(&timers, &probes[which].timer, model_ns[which]);
        } else {
            model_ns[which] = UINT64_MAX;
            base_timer_cancel(&timers, &probes[which].timer);
        }
        last_deadline_ns = 0;
        (void)base_timers_run(&timers, now_ns, UINT32_MAX);
        for (uint32_t i = 0; i < TIMERS; i++) {
            const bool should_fire = model_ns[i] <= now_ns;

            assert_int_equal(probes[i].fired_count, should_fire);
            probes[i].fired_count = 0;
            model_ns[i] = should_fire ? UINT64_MAX : model_ns[i];
            model_next_ns = base_min_u64(model_next_ns, model_ns[i]);
            assert_int_equal(base_timer_is_armed(&probes[i].timer), model_ns[i] != UINT64_MAX);
        }
        if (base_prng_chance(&prng, 0.3)) {
            assert_int_equal(base_timers_next_ns(&timers), model_next_ns);
        }
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest cases[] = {
    CASE(a_timer_fires_once_at_its_deadline),
    CASE(a_deadline_moved_later_does_not_fire_at_the_old_one),
    CASE(a_deadline_moved_earlier_fires_then),
    CASE(a_deadline_moved_later_then_back_fires_at_the_last_one),
    CASE(a_cancelled_timer_is_silent),
    CASE(a_run_stops_at_its_budget),
    CASE(a_callback_may_arm_its_own_timer),
    CASE(arming_more_than_was_reserved_aborts),
    CASE(random_histories_fire_what_a_plain_array_would),
};

TEST_MAIN(cases)
