/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lnet/stats.c: the golden run. 1,000 PUTs of 100 bytes (half with ACK), 500 GETs of 1 KiB and 7
 * messages that nobody takes, between two contexts over shm: every counter on both ends equals the
 * table that was made by hand.
 */
#include "tests/support/run_dir.h"
#include "tests/support/world.h"
#include "tests/test.h"

#include <string.h>

static struct pump pump;
static struct lnet *a, *b;
static char run_dir[64];
static uint8_t bytes[2][2048];
static uint32_t acks, sends, replies, put_events, gets;

static void
on_event(struct lnet *ctx, const struct lnet_event *event)
{
    assert_int_equal(event->status, 0);
    acks += event->type == LNET_EV_ACK;
    sends += event->type == LNET_EV_SEND;
    replies += event->type == LNET_EV_REPLY;
    put_events += event->type == LNET_EV_PUT;
    gets += event->type == LNET_EV_GET;
}

static struct lnet *
open_context(const char *address)
{
    const struct lnet_options options = {.struct_bytes = sizeof(options),
                                         .seed = (uint64_t)address[0]};
    const struct lnet_ni_options ni = {
        .struct_bytes = sizeof(ni), .net = "shm", .address = address, .run_dir = run_dir};
    struct lnet *ctx = NULL;

    assert_int_equal(lnet_open(&options, &ctx), 0);
    assert_int_equal(lnet_ni_add(ctx, &ni, NULL), 0);
    return ctx;
}

static int
setup(void **state)
{
    run_dir_make(run_dir);
    a = open_context("1");
    b = open_context("2");
    pump = (struct pump){.contexts = {a, b}, .now_ns = WORLD_SECOND_NS};
    return 0;
}

static int
teardown(void **state)
{
    lnet_close(a);
    lnet_close(b);
    run_dir_remove(run_dir);
    return 0;
}

static void
attach(struct lnet *ctx, uint32_t portal, uint32_t options, uint8_t *start)
{
    const struct lnet_match match = {.portal = portal,
                                     .from = {.nid = {LNET_NID_ANY}, .pid = LNET_PID_ANY},
                                     .ignore_bits = UINT64_MAX};
    const struct lnet_md md = {.start = start,
                               .length_bytes = 1024,
                               .options = options,
                               .threshold = -1,
                               .handler = on_event};
    struct lnet_md_handle handle;

    assert_int_equal(lnet_md_attach(ctx, &match, &md, &handle), 0);
}

static void
assert_counters(const struct lnet_counters *got, const struct lnet_counters *wanted)
{
    const uint64_t *got_words = (const uint64_t *)(const void *)got;
    const uint64_t *wanted_words = (const uint64_t *)(const void *)wanted;

    for (size_t i = 0; i < sizeof(*got) / sizeof(uint64_t); i++) {
        if (got_words[i] != wanted_words[i]) {
            print_error("counter %zu\n", i);
        }
        assert_int_equal(got_words[i], wanted_words[i]);
    }
}

static void
every_counter_is_as_counted_by_hand(void **state)
{
    const struct lnet_md md = {.start = bytes[0],
                               .length_bytes = sizeof(bytes[0]),
                               .options = LNET_MD_NO_SEND_EVENT,
                               .threshold = -1,
                               .handler = on_event};
    struct lnet_process process;
    struct lnet_md_handle handle;
    struct lnet_peer *peer = NULL;

    attach(b, 5, LNET_MD_OP_PUT | LNET_MD_PEEK, NULL);
    attach(b, 6, LNET_MD_OP_GET | LNET_MD_MANAGE_REMOTE, bytes[1]);
    assert_int_equal(lnet_md_bind(a, &md, &handle), 0);
    assert_int_equal(lnet_process_parse("2@shm", &process), 0);
    assert_int_equal(lnet_peer_get(a, &process, &peer), 0);

    const struct lnet_target put_to = {.peer = peer, .portal = 5};
    const struct lnet_target get_from = {.peer = peer, .portal = 6};
    const struct lnet_target nowhere = {.peer = peer, .portal = 7};

    for (uint32_t i = 0; i < 500; i++) {
        assert_int_equal(lnet_put(a, handle, 0, 100, &put_to, LNET_PUT_ACK), 0);
        assert_int_equal(lnet_put_inline(a, &put_to, bytes[0], 100), 0);
        assert_int_equal(lnet_get(a, handle, 0, 1024, &get_from, UINT64_MAX), 0);
        if (i < 7) {
            assert_int_equal(lnet_put_inline(a, &nowhere, bytes[0], 10 + i), 0);
        }
        (void)pump_round(&pump);
        assert_true(pump_until_count(&pump, &replies, i + 1, WORLD_SECOND_NS));
    }
    assert_true(pump_until_count(&pump, &acks, 500, WORLD_SECOND_NS));
    assert_int_equal(put_events, 1000);
    assert_int_equal(gets, 500);
    assert_int_equal(sends, 0);

    const struct lnet_counters initiator = {
        .send_count = 1000 + 500 + 7,
        .send_bytes = 1000 * 100 + 10 + 11 + 12 + 13 + 14 + 15 + 16,
        .recv_count = 500 + 500,
        .recv_bytes = 500 * 1024,
        .put_count = 1007,
        .get_count = 500,
        .ack_recv_count = 500,
        .reply_recv_count = 500,
    };
    const struct lnet_counters target = {
        .send_count = 500 + 500,
        .send_bytes = 500 * 1024,
        .recv_count = 1000 + 500 + 7,
        .recv_bytes = 1000 * 100 + 10 + 11 + 12 + 13 + 14 + 15 + 16,
        .drop_count = 7,
        .drop_bytes = 10 + 11 + 12 + 13 + 14 + 15 + 16,
        .ack_count = 500,
        .reply_count = 500,
        .put_recv_count = 1007,
        .get_recv_count = 500,
    };
    struct lnet_peer_info peer_info;
    struct lnet_ni_info ni_info;
    uint64_t cursor = 0;

    assert_int_equal(lnet_peer_info_next(a, &cursor, &peer_info), 0);
    assert_counters(&peer_info.counters, &initiator);
    assert_int_equal(lnet_ni_info_get(a, 1, &ni_info), 0);
    assert_counters(&ni_info.counters, &initiator);
    cursor = 0;
    assert_int_equal(lnet_peer_info_next(b, &cursor, &peer_info), 0);
    assert_counters(&peer_info.counters, &target);
    assert_int_equal(lnet_ni_info_get(b, 1, &ni_info), 0);
    assert_counters(&ni_info.counters, &target);
    assert_int_equal(lnet_ni_info_get(b, 0, &ni_info), 0);
    assert_counters(&ni_info.counters, &(struct lnet_counters){0}); /* not of another interface */
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test_setup_teardown(every_counter_is_as_counted_by_hand, setup, teardown),
};

TEST_MAIN(cases)
