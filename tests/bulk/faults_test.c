/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bulk/ when things go wrong: no room, late, lost, refused, dead, hostile.
 *
 * Over the stand-in for LNet, which fails on demand. Each case ends with a check that nothing is
 * left: no descriptor, registration, window, timer or reference (world_fake.c).
 */
#include "tests/bulk/fake_lnet.h"
#include "tests/bulk/world.h"

#include "bulk/handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH 100000u

static char owned[LENGTH];
static char local[LENGTH];
static const struct memory owned_memory = {.count = 1, .iov = {{owned, LENGTH}}};
static const struct memory local_memory = {.count = 1, .iov = {{local, LENGTH}}};

/* An open export of `owned` by node 1 for node 0, and its handle. */
static struct bulk_export *export_;
static uint8_t handle[BULK_HANDLE_BYTES_MAX];
static uint32_t handle_bytes;

static void
lend(uint32_t access)
{
    assert_int_equal(
        bulk_export(world[1].bulk, world[1].peers[0], owned_memory.iov, 1, access, &export_), 0);
    handle_bytes = bulk_export_pack(export_, handle, sizeof(handle));
    assert_true(handle_bytes > 0);
}

static void
unlend(void)
{
    assert_int_equal(bulk_export_close(export_, NULL, NULL), 0);
}

static struct bulk_request
request_of(enum bulk_op op, struct outcome *outcome)
{
    *outcome = (struct outcome){0};
    return (struct bulk_request){
        .op = op,
        .peer = world[0].peers[1],
        .handle = handle,
        .handle_bytes = handle_bytes,
        .local = local_memory.iov,
        .local_count = 1,
        .length_bytes = LENGTH,
        .done = outcome_done,
        .user = outcome,
    };
}

static struct bulk_xfer *
start(enum bulk_op op, struct outcome *outcome)
{
    const struct bulk_request request = request_of(op, outcome);
    struct bulk_xfer *xfer = NULL;

    assert_int_equal(bulk_transfer(world[0].bulk, &request, &xfer), 0);
    return xfer;
}

static void
open_world(enum bulk_path path)
{
    const struct bulk_options options = {
        .struct_bytes = sizeof(options), .path = path, .fragment_bytes = 4096};

    world_open(2, &options);
    lend(LNET_ACCESS_READ | LNET_ACCESS_WRITE);
}

static void
close_world(void)
{
    unlend();
    world_close();
}

/* A whole transfer each way that must be right. */
static void
check_both_ways(void)
{
    static uint64_t seed = 100;
    struct outcome outcome;

    seed++;
    memory_fill(&owned_memory, seed, 0, LENGTH, 0);
    (void)start(BULK_PULL, &outcome);
    outcome_wait(&outcome, 100000);
    assert_int_equal(outcome.result.status, 0);
    memory_check(&local_memory, seed, 0, LENGTH, 0);
    seed++;
    memory_fill(&local_memory, seed, 0, LENGTH, 0);
    (void)start(BULK_PUSH, &outcome);
    outcome_wait(&outcome, 100000);
    assert_int_equal(outcome.result.status, 0);
    memory_check(&owned_memory, seed, 0, LENGTH, 0);
}

static void
no_room_in_lnet_only_delays(void **state)
{
    for (uint32_t every = 1; every <= 4; every++) {
        open_world(BULK_PATH_CMA);
        fake_faults.rma_again_every = every + 1;
        check_both_ways();
        close_world();
        open_world(BULK_PATH_STAGING);
        fake_faults.put_again_every = every + 1;
        check_both_ways();
        close_world();
    }
}

static void
staged_messages_out_of_order_are_put_in_their_places(void **state)
{
    open_world(BULK_PATH_STAGING);
    fake_faults.reorders = true;
    check_both_ways();
    fake_faults.reorders = false;
    close_world();
}

static void
without_rma_the_path_is_staging(void **state)
{
    struct outcome outcome;

    world_open(2, NULL);
    fake_faults.is_rma_refused = true;
    lend(LNET_ACCESS_READ);
    (void)start(BULK_PULL, &outcome);
    outcome_wait(&outcome, 1000);
    assert_int_equal(outcome.result.status, 0);
    assert_int_equal(outcome.result.path, BULK_PATH_STAGING);
    close_world();
}

static void
rma_that_is_refused_later_falls_back_to_staging(void **state)
{
    struct outcome outcome;

    open_world(BULK_PATH_AUTO);
    fake_faults.is_rma_refused = true; /* the handle has keys that this end can't use */
    (void)start(BULK_PULL, &outcome);
    outcome_wait(&outcome, 1000);
    assert_int_equal(outcome.result.status, 0);
    assert_int_equal(outcome.result.path, BULK_PATH_STAGING);
    close_world();
}

static void
an_error_of_rma_ends_the_transfer_with_it(void **state)
{
    for (uint32_t at = 1; at < 10; at++) {
        struct outcome outcome;

        open_world(BULK_PATH_CMA);
        fake_faults.rma_fails_at = at;
        fake_faults.rma_status = -EFAULT;
        (void)start(BULK_PULL, &outcome);
        outcome_wait(&outcome, 1000);
        assert_int_equal(outcome.result.status, -EFAULT);
        assert_int_equal(outcome.result.moved_bytes, (at - 1) * 4096);
        close_world();
    }
}

static void
a_cancel_waits_for_the_rma_that_is_out(void **state)
{
    struct outcome outcome;

    open_world(BULK_PATH_CMA);
    memory_fill(&local_memory, 1, 0, LENGTH, 0);
    fake_faults.holds_rma = true;
    struct bulk_xfer *xfer = start(BULK_PULL, &outcome);

    world_poll();
    bulk_cancel(xfer);
    for (uint32_t i = 0; i < 20; i++) {
        world_poll();
    }
    assert_int_equal(outcome.count, 0); /* local memory may still be written */
    fake_faults.holds_rma = false;
    outcome_wait(&outcome, 10);
    assert_int_equal(outcome.result.status, -ECANCELED);
    close_world();
}

static void
a_deadline_ends_a_transfer_that_does_not_move(void **state)
{
    for (uint32_t op = BULK_PULL; op <= BULK_PUSH; op++) {
        struct outcome outcome;

        open_world(BULK_PATH_STAGING);
        fake_faults.holds_messages = true;
        struct bulk_request request = request_of((enum bulk_op)op, &outcome);

        request.deadline_ns = lnet_now(world[0].ctx) + 10500; /* a poll takes 1000 */
        assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), 0);
        for (uint32_t i = 0; i < 10; i++) {
            world_poll();
            assert_int_equal(outcome.count, 0);
        }
        outcome_wait(&outcome, 3);
        assert_int_equal(outcome.result.status, -ETIMEDOUT);
        fake_faults.holds_messages = false;
        close_world();
    }
}

static void
a_staged_transfer_without_a_deadline_does_not_wait_for_ever(void **state)
{
    struct outcome outcome;

    open_world(BULK_PATH_STAGING);
    fake_faults.holds_messages = true;
    (void)start(BULK_PULL, &outcome);
    (void)lnet_poll(world[0].ctx, lnet_now(world[0].ctx) + 49000000000ull, 64);
    assert_int_equal(outcome.count, 0);
    (void)lnet_poll(world[0].ctx, lnet_now(world[0].ctx) + 1100000000ull, 64);
    assert_int_equal(outcome.count, 1);
    assert_int_equal(outcome.result.status, -ETIMEDOUT);
    fake_faults.holds_messages = false;
    close_world();
}

static void
a_dead_peer_ends_each_transfer_once(void **state)
{
    static const enum bulk_path paths[] = {BULK_PATH_CMA, BULK_PATH_STAGING};

    for (uint32_t round = 0; round < 40; round++) {
        struct outcome outcomes[16];

        open_world(paths[round % 2]);
        for (uint32_t i = 0; i < 16; i++) {
            (void)start(i % 2 == 0 ? BULK_PULL : BULK_PUSH, &outcomes[i]);
        }
        for (uint32_t i = 0; i < round / 2; i++) {
            (void)lnet_poll(world[0].ctx, lnet_now(world[0].ctx) + 1000, 64);
        }
        fake_disconnect(world[0].ctx, world[0].peers[1]);
        for (uint32_t i = 0; i < 16; i++) {
            for (uint32_t j = 0; j < 1000 && outcomes[i].count == 0; j++) {
                (void)lnet_poll(world[0].ctx, lnet_now(world[0].ctx) + 1000, 64);
            }
            assert_int_equal(outcomes[i].count, 1);
            if (round % 2 == 1) { /* CMA of a peer that lives on may also just go on */
                assert_int_equal(outcomes[i].result.status, -ECONNRESET);
            }
        }
        for (uint32_t i = 0; i < 10; i++) {
            world_poll(); /* what was on its way to the peer still arrives there */
        }
        check_both_ways(); /* and the next one works */
        for (uint32_t i = 0; i < 16; i++) {
            assert_int_equal(outcomes[i].count, 1);
        }
        close_world();
    }
}

static void
a_failed_registration_leaves_nothing_behind(void **state)
{
    char *blocks[20];
    struct iovec iov[20];

    for (uint32_t i = 0; i < 20; i++) {
        blocks[i] = malloc(20000);
        iov[i] = (struct iovec){.iov_base = blocks[i], .iov_len = 10};
    }
    for (uint32_t at = 1; at <= 20; at++) {
        const struct bulk_options options = {.struct_bytes = sizeof(options)};
        struct bulk_export *many = NULL;

        world_open(2, &options);
        fake_faults.register_fails_at = at;
        assert_int_equal(
            bulk_export(world[1].bulk, world[1].peers[0], iov, 20, LNET_ACCESS_READ, &many),
            -ENOMEM);
        assert_int_equal(fake_window_count(world[1].ctx), 0);
        assert_int_equal(
            bulk_export(world[1].bulk, world[1].peers[0], iov, 20, LNET_ACCESS_READ, &many), 0);
        assert_int_equal(bulk_export_close(many, NULL, NULL), 0);
        world_close();
    }
    for (uint32_t i = 0; i < 20; i++) {
        free(blocks[i]);
    }
}

static void
a_transfer_that_cannot_start_leaves_nothing_behind(void **state)
{
    struct outcome outcome;

    open_world(BULK_PATH_STAGING);
    const struct bulk_request request = request_of(BULK_PUSH, &outcome);
    const uint32_t md_count = fake_md_count(world[0].ctx);
    const uint32_t timer_count = fake_timer_count(world[0].ctx);

    fake_faults.timer_fails_at = 1;
    assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), -EAGAIN);
    assert_int_equal(fake_md_count(world[0].ctx), md_count);
    fake_faults.bind_fails_at = 1;
    assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), -EAGAIN);
    assert_int_equal(fake_timer_count(world[0].ctx), timer_count);
    assert_int_equal(outcome.count, 0);
    check_both_ways();
    close_world();
}

static void
count_closed(struct bulk *bulk, void *user)
{
    (void)bulk;
    (*(uint32_t *)user)++;
}

static void
a_close_waits_for_the_peer_that_is_inside(void **state)
{
    uint32_t closed = 0;

    open_world(BULK_PATH_CMA);
    fake_faults.busy_closes = 3;
    assert_int_equal(bulk_export_close(export_, count_closed, &closed), -EINPROGRESS);
    assert_int_equal(closed, 0);
    for (uint32_t i = 0; i < 100; i++) {
        world_poll();
    }
    assert_int_equal(closed, 1);
    assert_int_equal(fake_window_count(world[1].ctx), 0);
    world_close();
}

static void
the_cache_is_bounded_and_spares_what_is_in_use(void **state)
{
    enum { BLOCKS = 64, STRIDE = 3 * 4096 };
    const struct bulk_options options = {.struct_bytes = sizeof(options), .cache_entries_max = 8};
    static char arena[(BLOCKS + 1) * STRIDE];
    struct bulk_export *exports[BLOCKS];
    struct bulk_stats stats;

    world_open(2, &options);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < BLOCKS; i++) {
            const struct iovec iov = {.iov_base = arena + i * STRIDE, .iov_len = 100};

            assert_int_equal(bulk_export(world[1].bulk, world[1].peers[0], &iov, 1,
                                         LNET_ACCESS_READ, &exports[i]),
                             0);
            assert_int_equal(fake_mem_count(world[1].ctx), i < 8 && round == 0 ? i + 1
                                                           : i < 8             ? 8
                                                                               : i + 1);
        }
        for (uint32_t i = 0; i < BLOCKS; i++) {
            assert_int_equal(bulk_export_close(exports[i], NULL, NULL), 0);
        }
        assert_int_equal(fake_mem_count(world[1].ctx), 8);
    }
    bulk_stats_get(world[1].bulk, &stats);
    assert_true(stats.cache_miss_count > 0);

    /* One block again and again, and a part of it: hits. */
    const uint64_t hits = stats.cache_hit_count;

    for (uint32_t i = 0; i < 10; i++) {
        const struct iovec iov = {.iov_base = arena + 60 * STRIDE + 4096 + i, .iov_len = 4000 - i};

        assert_int_equal(
            bulk_export(world[1].bulk, world[1].peers[0], &iov, 1, LNET_ACCESS_READ, &exports[0]),
            0);
        assert_int_equal(bulk_export_close(exports[0], NULL, NULL), 0);
    }
    bulk_stats_get(world[1].bulk, &stats);
    assert_int_equal(stats.cache_hit_count - hits, 9);

    /* What is used often stays, though others come and go. */
    for (uint32_t i = 0; i < 100; i++) {
        const struct iovec often = {.iov_base = arena, .iov_len = 100};
        const struct iovec once = {.iov_base = arena + (1 + i % 50) * STRIDE, .iov_len = 100};
        const uint64_t misses = stats.cache_miss_count;

        assert_int_equal(
            bulk_export(world[1].bulk, world[1].peers[0], &often, 1, LNET_ACCESS_READ, &exports[0]),
            0);
        bulk_stats_get(world[1].bulk, &stats);
        assert_true(i == 0 || stats.cache_miss_count == misses);
        assert_int_equal(
            bulk_export(world[1].bulk, world[1].peers[0], &once, 1, LNET_ACCESS_READ, &exports[1]),
            0);
        assert_int_equal(bulk_export_close(exports[0], NULL, NULL), 0);
        assert_int_equal(bulk_export_close(exports[1], NULL, NULL), 0);
        bulk_stats_get(world[1].bulk, &stats);
        assert_true(fake_mem_count(world[1].ctx) <= 8);
    }
    world_close();
}

static void
bounds_are_refused_with_eagain_and_come_free_again(void **state)
{
    const struct bulk_options options = {
        .struct_bytes = sizeof(options), .exports_max = 4, .xfers_max = 3};
    struct bulk_export *exports[5];
    struct outcome outcomes[4];
    struct bulk_request request;

    world_open(2, &options);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(bulk_export(world[1].bulk, world[1].peers[0], owned_memory.iov, 1,
                                         LNET_ACCESS_READ, &exports[i]),
                             0);
        }
        assert_int_equal(bulk_export(world[1].bulk, world[1].peers[0], owned_memory.iov, 1,
                                     LNET_ACCESS_READ, &exports[4]),
                         -EAGAIN);
        handle_bytes = bulk_export_pack(exports[0], handle, sizeof(handle));
        assert_int_equal(bulk_export_pack(exports[0], handle, handle_bytes - 1), 0);
        for (uint32_t i = 0; i < 3; i++) {
            (void)start(BULK_PULL, &outcomes[i]);
        }
        request = request_of(BULK_PULL, &outcomes[3]);
        assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), -EAGAIN);
        for (uint32_t i = 0; i < 3; i++) {
            outcome_wait(&outcomes[i], 1000);
        }
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(bulk_export_close(exports[i], NULL, NULL), 0);
        }
        assert_int_equal(outcomes[3].count, 0);
    }
    world_close();
}

static void
requests_outside_the_domain_are_refused(void **state)
{
    struct outcome outcome;
    struct bulk_request request;
    struct bulk_export *bad = NULL;
    const struct iovec wraps = {.iov_base = owned, .iov_len = SIZE_MAX};

    open_world(BULK_PATH_AUTO);
    request = request_of(BULK_PULL, &outcome);
    request.op = (enum bulk_op)7;
    assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), -EINVAL);
    request = request_of(BULK_PULL, &outcome);
    request.handle_bytes--;
    assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), -EPROTO);
    request = request_of(BULK_PULL, &outcome);
    request.handle_offset_bytes = 1;
    assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), -ERANGE);
    request = request_of(BULK_PULL, &outcome);
    request.handle_offset_bytes = UINT64_MAX;
    request.length_bytes = 2;
    assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), -ERANGE);
    request = request_of(BULK_PULL, &outcome);
    request.local_count = 0;
    assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), -ERANGE);
    request.length_bytes = 0;
    request.local = NULL;
    assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), 0);
    outcome_wait(&outcome, 3);
    assert_int_equal(outcome.result.status, 0);
    assert_int_equal(
        bulk_export(world[1].bulk, world[1].peers[0], &wraps, 1, LNET_ACCESS_READ, &bad), -EINVAL);
    assert_int_equal(bulk_export(world[1].bulk, world[1].peers[0], owned_memory.iov, 1, 0, &bad),
                     -EINVAL);
    assert_int_equal(
        bulk_export(world[1].bulk, world[1].peers[0], owned_memory.iov, 65, LNET_ACCESS_READ, &bad),
        -EINVAL);
    close_world();
}

static void
a_small_transfer_is_not_held_up_by_large_ones(void **state)
{
    struct outcome large[8];
    struct outcome small;

    open_world(BULK_PATH_CMA); /* 4 KiB a turn: 25 turns each */
    for (uint32_t i = 0; i < 8; i++) {
        (void)start(BULK_PULL, &large[i]);
    }
    struct bulk_request request = request_of(BULK_PULL, &small);

    request.length_bytes = 10;
    assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), 0);
    outcome_wait(&small, 2);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(large[i].count, 0);
    }
    for (uint32_t i = 0; i < 8; i++) {
        outcome_wait(&large[i], 1000);
        assert_int_equal(large[i].result.status, 0);
    }
    close_world();
}

/* Kinds of stage.c, in the two highest bits. */
static uint64_t
kind(uint64_t value, uint64_t id)
{
    return (value << 62) | id;
}

static void
data_that_was_not_asked_for_is_dropped_or_ends_the_transfer(void **state)
{
    struct bulk_handle_head head;
    struct outcome outcome;
    char junk[4096];

    (void)memset(junk, 0xee, sizeof(junk));
    for (uint32_t round = 0; round < 6; round++) {
        open_world(BULK_PATH_STAGING);
        assert_int_equal(bulk_handle_decode(handle, handle_bytes, &head), 0);
        memory_fill(&owned_memory, 1, 0, LENGTH, 0);
        memory_fill(&local_memory, 2, 0, LENGTH, 0);
        fake_faults.holds_messages = true;
        (void)start(BULK_PULL, &outcome);
        fake_faults.holds_messages = false;
        switch (round) {
        case 0: /* no such transfer */
            fake_inject(world[1].ctx, world[1].peers[0], kind(2, 12345), 0, 0, junk, 4096);
            break;
        case 1: /* no such export */
            fake_inject(world[0].ctx, world[0].peers[1], kind(0, 77), 1, 0, junk, 4096);
            break;
        case 2: /* outside the export */
            fake_inject(world[0].ctx, world[0].peers[1], kind(0, head.export_id), 1, LENGTH - 10,
                        junk, 11);
            break;
        case 3: /* far outside */
            fake_inject(world[0].ctx, world[0].peers[1], kind(0, head.export_id), 1, UINT64_MAX - 5,
                        junk, 11);
            break;
        case 4: /* a pull of too much, and one that is none */
            fake_inject(world[0].ctx, world[0].peers[1], kind(1, head.export_id), 1, 1,
                        "\xff\xff\xff\xff\0\0\0\0", 8);
            fake_inject(world[0].ctx, world[0].peers[1], kind(1, head.export_id), 1, 1, "\1", 1);
            break;
        default: /* an acknowledgement of nothing */
            fake_inject(world[1].ctx, world[1].peers[0], kind(3, 12345), 0, 0, NULL, 0);
            break;
        }
        outcome_wait(&outcome, 1000);
        assert_int_equal(outcome.result.status, 0);
        memory_check(&local_memory, 1, 0, LENGTH, 0);
        memory_check(&owned_memory, 1, 0, LENGTH, 0);
        close_world();
    }
}

static void
an_owner_that_answers_wrongly_ends_the_transfer_with_eproto(void **state)
{
    char junk[5000];

    (void)memset(junk, 0xee, sizeof(junk));
    for (uint32_t round = 0; round < 5; round++) {
        struct outcome outcome;

        open_world(BULK_PATH_STAGING); /* fragments of 4096, 8 of them asked */
        memory_fill(&local_memory, 2, 0, LENGTH, 0);
        (void)start(round == 4 ? BULK_PUSH : BULK_PULL, &outcome);
        const uint64_t id = fake_last_hdr_data(world[0].ctx);
        const uint64_t offsets[] = {4096, 1, 8192, 0, 0};
        const uint32_t bytes[] = {4097, 100, 0, 0, 4096};

        /* too long; not at the start; nothing; an ACK of a PULL; DATA for a PUSH */
        fake_inject(world[1].ctx, world[1].peers[0], kind(round == 3 ? 3 : 2, id), 0,
                    offsets[round], junk, bytes[round]);
        (void)lnet_poll(world[0].ctx, lnet_now(world[0].ctx) + 1000, 64);
        outcome_wait(&outcome, 1000);
        assert_int_equal(outcome.result.status, -EPROTO);
        memory_check(&local_memory, 2, 0, LENGTH, 0);
        close_world();
    }
}

static void
answers_beyond_what_was_asked_are_dropped(void **state)
{
    struct outcome outcome;
    char junk[100] = {0};

    open_world(BULK_PATH_STAGING);
    memory_fill(&owned_memory, 1, 0, LENGTH, 0);
    (void)start(BULK_PULL, &outcome);
    const uint64_t id = fake_last_hdr_data(world[0].ctx);

    fake_inject(world[1].ctx, world[1].peers[0], kind(2, id), 0, 8 * 4096, junk, 100); /* not yet */
    fake_inject(world[1].ctx, world[1].peers[0], kind(2, id), 0, LENGTH, junk, 100);
    fake_inject(world[1].ctx, world[1].peers[0], kind(2, id), 0, UINT64_MAX - 10, junk, 100);
    fake_inject(world[1].ctx, world[1].peers[0], kind(2, id ^ (1ull << 20)), 0, 0, junk, 100);
    outcome_wait(&outcome, 1000);
    assert_int_equal(outcome.result.status, 0);
    memory_check(&local_memory, 1, 0, LENGTH, 0);
    close_world();
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(no_room_in_lnet_only_delays),
    cmocka_unit_test(staged_messages_out_of_order_are_put_in_their_places),
    cmocka_unit_test(without_rma_the_path_is_staging),
    cmocka_unit_test(rma_that_is_refused_later_falls_back_to_staging),
    cmocka_unit_test(an_error_of_rma_ends_the_transfer_with_it),
    cmocka_unit_test(a_cancel_waits_for_the_rma_that_is_out),
    cmocka_unit_test(a_deadline_ends_a_transfer_that_does_not_move),
    cmocka_unit_test(a_staged_transfer_without_a_deadline_does_not_wait_for_ever),
    cmocka_unit_test(a_dead_peer_ends_each_transfer_once),
    cmocka_unit_test(a_failed_registration_leaves_nothing_behind),
    cmocka_unit_test(a_transfer_that_cannot_start_leaves_nothing_behind),
    cmocka_unit_test(a_close_waits_for_the_peer_that_is_inside),
    cmocka_unit_test(the_cache_is_bounded_and_spares_what_is_in_use),
    cmocka_unit_test(bounds_are_refused_with_eagain_and_come_free_again),
    cmocka_unit_test(requests_outside_the_domain_are_refused),
    cmocka_unit_test(a_small_transfer_is_not_held_up_by_large_ones),
    cmocka_unit_test(an_owner_that_answers_wrongly_ends_the_transfer_with_eproto),
    cmocka_unit_test(answers_beyond_what_was_asked_are_dropped),
    cmocka_unit_test(data_that_was_not_asked_for_is_dropped_or_ends_the_transfer),
};

TEST_MAIN(cases)
