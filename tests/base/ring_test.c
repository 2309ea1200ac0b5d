/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/ring.c: bounded, in order, nothing lost or doubled, also between threads.
 */
#include "base/ring.h"

#include "tests/test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

#define PRODUCERS  3u
#define PER_THREAD 20000u

static void *
item_of(uintptr_t number)
{
    static char base[PRODUCERS * PER_THREAD + 1];

    return base + number;
}

static uintptr_t
number_of(void *item)
{
    return (uintptr_t)item - (uintptr_t)item_of(0);
}

static void
spsc_is_full_after_its_slots_and_keeps_the_order(void **state)
{
    struct base_spsc ring;

    assert_int_equal(base_spsc_init(&ring, 4), 0);
    for (uintptr_t turn = 0; turn < 10; turn++) {
        assert_true(base_spsc_empty(&ring));
        for (uintptr_t i = 0; i < 4; i++) {
            assert_true(base_spsc_push(&ring, item_of(i)));
        }
        assert_false(base_spsc_push(&ring, item_of(9)));
        for (uintptr_t i = 0; i < 4; i++) {
            assert_ptr_equal(base_spsc_pop(&ring), item_of(i));
        }
        assert_null(base_spsc_pop(&ring));
    }
    base_spsc_fini(&ring);
}

static void
mpsc_is_full_after_its_slots_and_keeps_the_order(void **state)
{
    struct base_mpsc ring;

    assert_int_equal(base_mpsc_init(&ring, 4), 0);
    for (uintptr_t turn = 0; turn < 10; turn++) {
        assert_true(base_mpsc_empty(&ring));
        for (uintptr_t i = 0; i < 4; i++) {
            assert_true(base_mpsc_push(&ring, item_of(i)));
        }
        assert_false(base_mpsc_push(&ring, item_of(9)));
        for (uintptr_t i = 0; i < 4; i++) {
            assert_ptr_equal(base_mpsc_pop(&ring), item_of(i));
        }
        assert_null(base_mpsc_pop(&ring));
    }
    base_mpsc_fini(&ring);
}

static void
both_survive_the_wrap_of_their_indices(void **state)
{
    struct base_spsc spsc;
    struct base_mpsc mpsc;

    assert_int_equal(base_spsc_init(&spsc, 2), 0);
    spsc.push_index = UINT32_MAX - 3;
    spsc.pop_index = UINT32_MAX - 3;
    assert_int_equal(base_mpsc_init(&mpsc, 2), 0);
    atomic_store(&mpsc.push_index, UINT32_MAX - 3);
    mpsc.pop_index = UINT32_MAX - 3;
    for (uint32_t i = 0; i < 2; i++) {
        atomic_store(&mpsc.slots[i].sequence, UINT32_MAX - 3 + i);
    }
    for (uintptr_t i = 0; i < 16; i++) {
        assert_true(base_spsc_push(&spsc, item_of(i)));
        assert_true(base_mpsc_push(&mpsc, item_of(i)));
        assert_ptr_equal(base_spsc_pop(&spsc), item_of(i));
        assert_ptr_equal(base_mpsc_pop(&mpsc), item_of(i));
    }
    base_spsc_fini(&spsc);
    base_mpsc_fini(&mpsc);
}

static void
slot_counts_that_do_not_fit_are_refused(void **state)
{
    struct base_spsc spsc;
    struct base_mpsc mpsc;

    assert_int_equal(base_spsc_init(&spsc, 0), -EINVAL);
    assert_int_equal(base_spsc_init(&spsc, 3), -EINVAL);
    assert_int_equal(base_spsc_init(&spsc, 1u << 31), -EINVAL);
    assert_int_equal(base_mpsc_init(&mpsc, 1), -EINVAL);
    assert_int_equal(base_mpsc_init(&mpsc, 6), -EINVAL);
}

static void *
spsc_producer(void *arg)
{
    for (uintptr_t i = 0; i < PER_THREAD; i++) {
        while (!base_spsc_push(arg, item_of(i))) {
            (void)sched_yield();
        }
    }
    return NULL;
}

static void
spsc_between_threads_delivers_all_in_order(void **state)
{
    struct base_spsc ring;
    pthread_t thread;

    assert_int_equal(base_spsc_init(&ring, 16), 0);
    assert_int_equal(pthread_create(&thread, NULL, spsc_producer, &ring), 0);
    for (uintptr_t i = 0; i < PER_THREAD;) {
        void *item = base_spsc_pop(&ring);

        if (item == NULL) {
            (void)sched_yield();
            continue;
        }
        assert_ptr_equal(item, item_of(i));
        i++;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    base_spsc_fini(&ring);
}

struct mpsc_work {
    struct base_mpsc *ring;
    uintptr_t producer;
};

static void *
mpsc_producer(void *arg)
{
    const struct mpsc_work *work = arg;

    for (uintptr_t i = 0; i < PER_THREAD; i++) {
        while (!base_mpsc_push(work->ring, item_of(i * PRODUCERS + work->producer))) {
            (void)sched_yield();
        }
    }
    return NULL;
}

static void
mpsc_between_threads_delivers_each_producer_in_order(void **state)
{
    struct base_mpsc ring;
    struct mpsc_work work[PRODUCERS];
    pthread_t threads[PRODUCERS];
    uintptr_t next[PRODUCERS] = {0};

    assert_int_equal(base_mpsc_init(&ring, 16), 0);
    for (uintptr_t p = 0; p < PRODUCERS; p++) {
        work[p] = (struct mpsc_work){.ring = &ring, .producer = p};
        assert_int_equal(pthread_create(&threads[p], NULL, mpsc_producer, &work[p]), 0);
    }
    for (uint32_t seen = 0; seen < PRODUCERS * PER_THREAD;) {
        void *item = base_mpsc_pop(&ring);

        if (item == NULL) {
            (void)sched_yield();
            continue;
        }
        const uintptr_t producer = number_of(item) % PRODUCERS;

        assert_int_equal(number_of(item) / PRODUCERS, next[producer]);
        next[producer]++;
        seen++;
    }
    for (uintptr_t p = 0; p < PRODUCERS; p++) {
        assert_int_equal(pthread_join(threads[p], NULL), 0);
        assert_int_equal(next[p], PER_THREAD);
    }
    base_mpsc_fini(&ring);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(spsc_is_full_after_its_slots_and_keeps_the_order),
    cmocka_unit_test(mpsc_is_full_after_its_slots_and_keeps_the_order),
    cmocka_unit_test(both_survive_the_wrap_of_their_indices),
    cmocka_unit_test(slot_counts_that_do_not_fit_are_refused),
    cmocka_unit_test(spsc_between_threads_delivers_all_in_order),
    cmocka_unit_test(mpsc_between_threads_delivers_each_producer_in_order),
};

TEST_MAIN(cases)
