/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ptlrpc/request.c: the window is kept and fair, cancelled requests end once and harm nobody, and
 * only a sound reply of the right server to the right xid is believed.
 */
#include "tests/ptlrpc/bed.h"

#include "base/prng.h"
#include "tests/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct bed bed;
static struct bed_call calls[2600];

static struct ptlrpc_import_info
info(void)
{
    struct ptlrpc_import_info out;

    ptlrpc_import_info_get(bed.import, &out);
    return out;
}

static void
no_more_than_the_window_is_at_the_server(void **state)
{
    const struct bed_options options = {.max_rpcs = 5};

    bed_open(&bed, &options);
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[i]), 0);
    }
    fake_settle(&bed.world);
    assert_int_equal(bed.held_count, 5);
    assert_int_equal(info().in_flight, 5);
    assert_int_equal(info().waiting, 7);
    bed_release(&bed);
    fake_settle(&bed.world);
    assert_int_equal(bed.held_count, 5);
    assert_int_equal(info().waiting, 2);
    bed_release(&bed);
    fake_settle(&bed.world);
    bed_release(&bed);
    fake_settle(&bed.world);
    assert_int_equal(info().in_flight, 0);
    assert_int_equal(info().in_flight_max, 5);
    assert_int_equal(info().waiting_max, 7);
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(calls[i].done_count, 1);
    }
    bed_close(&bed);
}

/* Sends one more request from done(), as a thread would that waits for its reply. */
struct sender {
    uint32_t left;
    uint32_t index;
};
static uint32_t sender_turns[40000];
static uint32_t sender_turn_count;

static void
sender_done(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes,
            void *user)
{
    struct sender *sender = user;

    assert_int_equal(status, 0);
    sender_turns[sender_turn_count++] = sender->index;
    if (sender->left-- > 1) {
        struct ptlrpc_request *next = ptlrpc_request_take(bed.import, BED_NULL);

        assert_non_null(next);
        assert_int_equal(ptlrpc_request_send(next, 0, sender_done, sender), 0);
    }
}

static void
one_slot_is_shared_first_come_first_served(void **state)
{
    static struct sender senders[32];
    const struct bed_options options = {.max_rpcs = 1};

    bed_open(&bed, &options);
    sender_turn_count = 0;
    for (uint32_t i = 0; i < 32; i++) {
        struct ptlrpc_request *request = ptlrpc_request_take(bed.import, BED_NULL);

        senders[i] = (struct sender){.left = 300, .index = i};
        assert_non_null(request);
        assert_int_equal(ptlrpc_request_send(request, 0, sender_done, &senders[i]), 0);
    }
    fake_settle(&bed.world);
    assert_int_equal(sender_turn_count, 32 * 300);
    for (uint32_t i = 0; i < sender_turn_count; i++) {
        assert_int_equal(sender_turns[i], i % 32); /* nobody waits longer than one round */
    }
    bed_close(&bed);
}

static void
bursts_around_the_window_are_all_answered(void **state)
{
    static const uint32_t window = 256;
    const uint32_t bursts[] = {1, window - 1, window, window + 1, 2 * window, 10 * window};
    const struct bed_options options = {.max_rpcs = window, .requests_max = 2600};

    bed_open(&bed, &options);
    for (uint32_t b = 0; b < BASE_ARRAY_LEN(bursts); b++) {
        for (uint32_t i = 0; i < bursts[b]; i++) {
            assert_int_equal(bed_send(bed.import, BED_ECHO, &i, sizeof(i), &calls[i]), 0);
        }
        fake_settle(&bed.world);
        for (uint32_t i = 0; i < bursts[b]; i++) {
            assert_int_equal(calls[i].done_count, 1);
            assert_int_equal(calls[i].status, 0);
            assert_memory_equal(calls[i].body, &i, sizeof(i));
        }
    }
    assert_int_equal(info().resend_count, 0);
    bed_close(&bed);
}

static void
a_burst_larger_than_the_networks_queue_is_answered_too(void **state)
{
    const struct bed_options options = {.max_rpcs = 64};

    bed_open(&bed, &options);
    bed.world.queue_max = 10;
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[i]), 0);
    }
    fake_pass(&bed.world, BED_TIMEOUT_NS / 2, 500);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(calls[i].done_count, 1);
        assert_int_equal(calls[i].status, 0);
    }
    assert_int_equal(info().resend_count, 0);
    bed_close(&bed);
}

static void
a_lost_request_is_sent_again_and_the_caller_sees_only_time(void **state)
{
    uint32_t drop = 1;

    bed_open(&bed, NULL);
    bed.world.filter = bed_drop_requests;
    bed.world.filter_arg = &drop;
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[0]), 0);
    fake_pass(&bed.world, BED_TIMEOUT_NS - 1000, 3);
    assert_int_equal(calls[0].done_count, 0);
    fake_pass(&bed.world, 2000, 1);
    assert_int_equal(calls[0].done_count, 1);
    assert_int_equal(calls[0].status, 0);
    assert_int_equal(info().resend_count, 1);
    assert_int_equal(info().timeout_count, 1);
    bed_close(&bed);
}

static void
a_request_that_is_never_answered_times_out_after_its_tries(void **state)
{
    uint32_t drop = UINT32_MAX;

    bed_open(&bed, NULL);
    bed.world.filter = bed_drop_requests;
    bed.world.filter_arg = &drop;
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[0]), 0);
    fake_pass(&bed.world, 3 * BED_TIMEOUT_NS - 1000, 30);
    assert_int_equal(calls[0].done_count, 0);
    fake_pass(&bed.world, 2000, 1);
    assert_int_equal(calls[0].done_count, 1);
    assert_int_equal(calls[0].status, -ETIMEDOUT);
    assert_int_equal(drop, UINT32_MAX - 3);
    assert_int_equal(info().in_flight, 0);
    bed_close(&bed);
}

static void
with_one_try_nothing_is_sent_again(void **state)
{
    const struct bed_options options = {.tries_max = 1};
    uint32_t drop = 1;

    bed_open(&bed, &options);
    bed.world.filter = bed_drop_replies;
    bed.world.filter_arg = &drop;
    assert_int_equal(bed_send(bed.import, BED_ONCE, NULL, 0, &calls[0]), 0);
    fake_pass(&bed.world, BED_TIMEOUT_NS, 2);
    assert_int_equal(calls[0].status, -ETIMEDOUT);
    assert_int_equal(info().resend_count, 0);
    bed_close(&bed);
}

static void
who_waits_too_long_for_a_slot_times_out(void **state)
{
    const struct bed_options options = {.max_rpcs = 1};

    bed_open(&bed, &options);
    assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[0]), 0);
    fake_pass(&bed.world, BED_TIMEOUT_NS / 2, 1);
    assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[1]), 0);
    fake_pass(&bed.world, 3 * BED_TIMEOUT_NS, 30);
    assert_int_equal(calls[0].status, -ETIMEDOUT);
    assert_int_equal(calls[1].done_count, 0); /* it has got the slot in the meantime */
    bed_release(&bed);
    fake_settle(&bed.world);
    assert_int_equal(calls[1].done_count, 1);
    assert_int_equal(calls[1].status, 0);
    bed_close(&bed);
}

static void
a_pause_of_the_caller_is_no_timeout(void **state)
{
    bed_open(&bed, &(struct bed_options){.tries_max = 1});
    for (uint32_t round = 0; round < 3; round++) {
        assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[0]), 0);
        bed.world.now_ns += 100 * BED_TIMEOUT_NS; /* nobody polls */
        fake_settle(&bed.world);
        fake_pass(&bed.world, BED_TIMEOUT_NS - 1000, 10);
        assert_int_equal(calls[0].done_count, 0);
        bed_release(&bed);
        fake_settle(&bed.world);
        assert_int_equal(calls[0].status, 0);
    }
    assert_int_equal(info().resend_count, 0);
    bed_close(&bed);
}

static void
who_polls_too_rarely_waits_no_longer_than_his_tries(void **state)
{
    bed_open(&bed, &(struct bed_options){.max_rpcs = 1});
    assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[0]), 0);
    assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[1]), 0);
    fake_settle(&bed.world);
    fake_pass(&bed.world, 20 * BED_TIMEOUT_NS, 10);
    assert_int_equal(calls[0].done_count, 1);
    assert_int_equal(calls[0].status, -ETIMEDOUT);
    fake_pass(&bed.world, 20 * BED_TIMEOUT_NS, 10);
    assert_int_equal(calls[1].done_count, 1);
    bed_close(&bed);
}

static void
cancelled_requests_end_once_wherever_they_are(void **state)
{
    const struct bed_options options = {.max_rpcs = 2};

    bed_open(&bed, &options);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[i]), 0);
    }
    fake_settle(&bed.world);
    for (uint32_t i = 0; i < 4; i += 3) { /* one out, one that waits */
        ptlrpc_request_cancel(calls[i].request);
        ptlrpc_request_cancel(calls[i].request);
        assert_int_equal(calls[i].done_count, 0);
    }
    fake_settle(&bed.world);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(calls[i].done_count, i % 3 == 0);
    }
    assert_int_equal(calls[0].status, -ECANCELED);
    assert_int_equal(calls[3].status, -ECANCELED);
    assert_int_equal(info().in_flight, 2); /* the slot is kept until the server answers */
    bed_release(&bed);
    fake_settle(&bed.world);
    bed_release(&bed);
    fake_settle(&bed.world);
    assert_int_equal(calls[0].done_count, 1);
    assert_int_equal(calls[2].done_count, 1);
    assert_int_equal(info().late_reply_count, 1);
    assert_int_equal(info().in_flight, 0);
    bed_close(&bed);
}

static void
a_cancelled_request_whose_server_is_silent_gives_its_slot_back(void **state)
{
    bed_open(&bed, NULL);
    assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[0]), 0);
    fake_settle(&bed.world);
    ptlrpc_request_cancel(calls[0].request);
    fake_pass(&bed.world, 3 * BED_TIMEOUT_NS, 30);
    assert_int_equal(calls[0].done_count, 1);
    assert_int_equal(info().in_flight, 0);
    bed_close(&bed);
}

/* Which of the requests in calls[] fits the time of each cancel: R35. */
static void
requests_cancelled_at_any_time_end_once_and_no_body_is_anothers(void **state)
{
    const struct bed_options options = {.max_rpcs = 8};
    struct base_prng prng;
    uint32_t cancelled = 0;

    base_prng_seed(&prng, 35);
    bed_open(&bed, &options);
    for (uint32_t round = 0; round < 3000; round++) {
        const uint32_t count = (uint32_t)base_prng_between(&prng, 1, 16);

        for (uint32_t i = 0; i < count; i++) {
            const uint64_t pattern = ((uint64_t)round << 32) | i;

            assert_int_equal(bed_send(bed.import, BED_ECHO, &pattern, sizeof(pattern), &calls[i]),
                             0);
            /* The server, the client, both or nobody has a turn before the next one. */
            if (base_prng_chance(&prng, 0.3)) {
                (void)lnet_poll(bed.server_ctx, bed.world.now_ns, 100);
            }
            if (base_prng_chance(&prng, 0.3)) {
                (void)lnet_poll(bed.client_ctx, bed.world.now_ns, 100);
            }
            const uint32_t victim = (uint32_t)base_prng_below(&prng, i + 1);

            if (calls[victim].done_count == 0 && base_prng_chance(&prng, 0.5)) {
                ptlrpc_request_cancel(calls[victim].request);
            }
        }
        fake_settle(&bed.world);
        for (uint32_t i = 0; i < count; i++) {
            const uint64_t pattern = ((uint64_t)round << 32) | i;

            assert_int_equal(calls[i].done_count, 1);
            if (calls[i].status == 0) {
                assert_int_equal(calls[i].bytes, sizeof(pattern));
                assert_memory_equal(calls[i].body, &pattern, sizeof(pattern));
            } else {
                assert_int_equal(calls[i].status, -ECANCELED);
                assert_false(calls[i].has_body);
                cancelled++;
            }
        }
        assert_int_equal(info().in_flight, 0);
    }
    assert_true(cancelled > 1000);
    bed_close(&bed);
}

static void
replies_nobody_waits_for_are_dropped(void **state)
{
    unsigned char junk[200] = {1, 2};
    struct ptlrpc_hdr reply = {
        .version = PTLRPC_HDR_VERSION, .type = PTLRPC_HDR_REPLY, .opc = BED_NULL};
    struct lnet *stranger = NULL;

    bed_open(&bed, NULL);
    stranger = fake_open(&bed.world, 9);
    assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[0]), 0);
    fake_settle(&bed.world);
    for (uint64_t bits = 0; bits < 2000; bits++) {
        fake_inject(bed.server_ctx, bed.client_ctx, PTLRPC_PORTAL_REPLY, bits, junk, sizeof(junk));
        fake_inject(bed.server_ctx, bed.client_ctx, PTLRPC_PORTAL_REPLY, bits, junk, 3);
        fake_inject(bed.server_ctx, bed.client_ctx, PTLRPC_PORTAL_REPLY, UINT64_MAX - bits, NULL,
                    0);
    }
    fake_settle(&bed.world);
    assert_int_equal(calls[0].done_count, 0);
    /* The right xid from the wrong peer. */
    struct ptlrpc_request *request = ptlrpc_request_take(bed.import, BED_NULL);
    struct ptlrpc_hdr *sent = (struct ptlrpc_hdr *)ptlrpc_request_body(request) - 1;

    assert_int_equal(ptlrpc_request_send(request, 0, NULL, NULL), 0);
    reply.xid = sent->xid;
    fake_inject(stranger, bed.client_ctx, PTLRPC_PORTAL_REPLY, reply.xid, &reply, sizeof(reply));
    (void)lnet_poll(bed.client_ctx, bed.world.now_ns, 100);
    assert_int_equal(info().in_flight, 2);
    bed_release(&bed);
    fake_settle(&bed.world);
    assert_int_equal(calls[0].status, 0);
    lnet_close(stranger);
    bed_close(&bed);
}

/* Spoils byte *(uint32_t *)arg of each reply and leaves the rest alone. */
static enum fake_verdict
spoil_reply(struct fake_message *message, void *arg)
{
    if (message->portal == PTLRPC_PORTAL_REPLY) {
        message->data[*(uint32_t *)arg] ^= 0x80;
    }
    return FAKE_PASS;
}

static void
a_reply_with_a_spoilt_header_ends_its_request_with_eproto(void **state)
{
    /* version, type, opc, xid, body_bytes, status */
    static const uint32_t bytes[] = {0, 1, 2, 3, 8, 15, 40, 43, 45};

    bed_open(&bed, NULL);
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(bytes); i++) {
        uint32_t at = bytes[i];

        bed.world.filter = spoil_reply;
        bed.world.filter_arg = &at;
        assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[0]), 0);
        fake_settle(&bed.world);
        assert_int_equal(calls[0].done_count, 1);
        assert_int_equal(calls[0].status, -EPROTO);
    }
    bed_close(&bed);
}

static void
a_request_that_was_not_sent_can_be_dropped(void **state)
{
    const struct bed_options options = {.requests_max = 1};

    bed_open(&bed, &options);
    for (uint32_t i = 0; i < 5; i++) {
        struct ptlrpc_request *request = ptlrpc_request_take(bed.import, BED_NULL);

        assert_non_null(request);
        assert_null(ptlrpc_request_take(bed.import, BED_NULL));
        ptlrpc_request_drop(request);
    }
    bed_close(&bed);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(no_more_than_the_window_is_at_the_server),
    cmocka_unit_test(one_slot_is_shared_first_come_first_served),
    cmocka_unit_test(bursts_around_the_window_are_all_answered),
    cmocka_unit_test(a_burst_larger_than_the_networks_queue_is_answered_too),
    cmocka_unit_test(a_lost_request_is_sent_again_and_the_caller_sees_only_time),
    cmocka_unit_test(a_request_that_is_never_answered_times_out_after_its_tries),
    cmocka_unit_test(with_one_try_nothing_is_sent_again),
    cmocka_unit_test(who_waits_too_long_for_a_slot_times_out),
    cmocka_unit_test(a_pause_of_the_caller_is_no_timeout),
    cmocka_unit_test(who_polls_too_rarely_waits_no_longer_than_his_tries),
    cmocka_unit_test(cancelled_requests_end_once_wherever_they_are),
    cmocka_unit_test(a_cancelled_request_whose_server_is_silent_gives_its_slot_back),
    cmocka_unit_test(requests_cancelled_at_any_time_end_once_and_no_body_is_anothers),
    cmocka_unit_test(replies_nobody_waits_for_are_dropped),
    cmocka_unit_test(a_reply_with_a_spoilt_header_ends_its_request_with_eproto),
    cmocka_unit_test(a_request_that_was_not_sent_can_be_dropped),
};

TEST_MAIN(cases)
