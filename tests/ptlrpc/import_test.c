/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ptlrpc/import.c: connecting, refusals, lost connections, dead and restarted servers, closing.
 * Every request ends once, and promptly when nobody is there.
 */
#include "tests/ptlrpc/bed.h"

#include "tests/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct bed bed;
static struct bed_call calls[1000];

static struct ptlrpc_import_info
info(void)
{
    struct ptlrpc_import_info out;

    ptlrpc_import_info_get(bed.import, &out);
    return out;
}

static void
requests_sent_before_the_connection_wait_for_it(void **state)
{
    bed_open(&bed, NULL);
    struct ptlrpc_import *other = bed_import(&bed, &(struct bed_options){.max_rpcs = 2});

    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(bed_send(other, BED_NULL, NULL, 0, &calls[i]), 0);
    }
    assert_int_equal(ptlrpc_import_state(other), PTLRPC_IMP_DISCON);
    fake_settle(&bed.world);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(calls[i].status, 0);
        assert_int_equal(calls[i].done_count, 1);
    }
    assert_int_equal(bed_stats(&bed).export_count, 2);
    bed_close(&bed);
}

static void
requests_sent_before_the_first_poll_have_their_time(void **state)
{
    struct fake_world world = {.now_ns = 0, .put_bytes_max = 16384};
    struct ptlrpc *rpc[2];
    struct ptlrpc_import *import = NULL;
    struct ptlrpc_import_options options = {
        .struct_bytes = sizeof(options), .portal = BED_PORTAL, .target = fake_process(1)};
    struct lnet *ctx[2] = {fake_open(&world, 1), fake_open(&world, 2)};

    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(ptlrpc_open(ctx[i], NULL, NULL, &rpc[i]), 0);
    }
    assert_int_equal(ptlrpc_import_open(rpc[1], &options, &import), 0);
    assert_int_equal(bed_send(import, BED_NULL, NULL, 0, &calls[0]), 0);
    world.now_ns = UINT64_C(1000000000000000);
    (void)lnet_poll(ctx[1], world.now_ns, 100);
    assert_int_equal(calls[0].done_count, 0);
    assert_int_equal(ptlrpc_import_state(import), PTLRPC_IMP_CONNECTING);
    for (uint32_t i = 0; i < 2; i++) {
        ptlrpc_close(rpc[i]);
    }
    lnet_close(ctx[0]);
    lnet_close(ctx[1]);
}

static void
a_lost_connect_is_sent_again(void **state)
{
    uint32_t drop = 1;

    bed_open(&bed, NULL);
    bed.world.filter = bed_drop_requests;
    bed.world.filter_arg = &drop;
    struct ptlrpc_import *other = bed_import(&bed, &(struct bed_options){0});

    assert_int_equal(bed_send(other, BED_NULL, NULL, 0, &calls[0]), 0);
    fake_pass(&bed.world, 2 * BED_TIMEOUT_NS, 20);
    assert_int_equal(ptlrpc_import_state(other), PTLRPC_IMP_FULL);
    assert_int_equal(calls[0].status, 0);
    bed_close(&bed);
}

static void
a_lost_connect_reply_makes_no_second_export(void **state)
{
    uint32_t drop = 1;

    bed_open(&bed, NULL);
    bed.world.filter = bed_drop_replies;
    bed.world.filter_arg = &drop;
    struct ptlrpc_import *other = bed_import(&bed, &(struct bed_options){0});

    fake_pass(&bed.world, 2 * BED_TIMEOUT_NS, 20);
    assert_int_equal(ptlrpc_import_state(other), PTLRPC_IMP_FULL);
    assert_int_equal(bed_stats(&bed).export_count, 2);
    assert_int_equal(bed.connected_count, 2);
    bed_close(&bed);
}

static void
a_service_that_refuses_says_why(void **state)
{
    bed_open(&bed, NULL);
    bed.connect_refusal = -EACCES;
    struct ptlrpc_import *other = bed_import(&bed, &(struct bed_options){0});

    assert_int_equal(bed_send(other, BED_NULL, NULL, 0, &calls[0]), 0);
    fake_settle(&bed.world);
    assert_int_equal(ptlrpc_import_state(other), PTLRPC_IMP_DISCON);
    assert_int_equal(bed.state_status, -EACCES);
    assert_int_equal(calls[0].status, -ENOTCONN);
    assert_int_equal(bed_stats(&bed).export_count, 1);
    /* The next request tries again. */
    bed.connect_refusal = 0;
    assert_int_equal(bed_send(other, BED_NULL, NULL, 0, &calls[1]), 0);
    fake_settle(&bed.world);
    assert_int_equal(calls[1].status, 0);
    bed_close(&bed);
}

static void
after_a_lost_connection_requests_are_sent_again_in_order_and_run_once(void **state)
{
    bed_open(&bed, NULL);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(bed_send(bed.import, BED_ONCE, NULL, 0, &calls[i]), 0);
    }
    (void)lnet_poll(bed.server_ctx, bed.world.now_ns, 4); /* four are executed */
    fake_cut(bed.client_ctx, bed.server_ctx, -ECONNRESET);
    fake_settle(&bed.world);
    assert_int_equal(ptlrpc_import_state(bed.import), PTLRPC_IMP_FULL);
    assert_int_equal(bed.once_count, 10);
    assert_int_equal(bed.connected_count, 1); /* the same export */
    assert_int_equal(bed.disconnected_count, 0);
    for (uint32_t i = 0; i < 10; i++) {
        uint64_t count = 0;

        assert_int_equal(calls[i].done_count, 1);
        assert_int_equal(calls[i].status, 0);
        (void)memcpy(&count, calls[i].body, sizeof(count));
        assert_int_equal(count, i + 1);
    }
    assert_int_equal(bed_op_stats(&bed, BED_ONCE).resent_count, 4);
    assert_int_equal(info().generation, 2);
    /* The export stays when the time to come back is over. */
    fake_pass(&bed.world, 3 * BED_TIMEOUT_NS, 3);
    assert_int_equal(bed.disconnected_count, 0);
    bed_close(&bed);
}

static void
an_idle_import_connects_again_with_the_next_request(void **state)
{
    bed_open(&bed, NULL);
    fake_cut(bed.client_ctx, bed.server_ctx, -ECONNRESET);
    fake_settle(&bed.world);
    assert_int_equal(ptlrpc_import_state(bed.import), PTLRPC_IMP_DISCON);
    assert_int_equal(bed.state_status, -ECONNRESET);
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[0]), 0);
    fake_settle(&bed.world);
    assert_int_equal(calls[0].status, 0);
    bed_close(&bed);
}

static void
requests_to_a_dead_server_fail_at_once(void **state)
{
    bed_open(&bed, &(struct bed_options){.max_rpcs = 3});
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[i]), 0);
    }
    fake_settle(&bed.world);
    fake_kill(bed.server_ctx);
    fake_settle(&bed.world); /* no time passes */
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(calls[i].done_count, 1);
        assert_int_equal(calls[i].status, i < 3 ? -ECONNRESET : -ENOTCONN);
    }
    assert_int_equal(ptlrpc_import_state(bed.import), PTLRPC_IMP_DISCON);
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[0]), 0);
    fake_settle(&bed.world);
    assert_int_equal(calls[0].status, -ENOTCONN);
    fake_revive(bed.server_ctx);
    bed_close(&bed);
}

static void
a_silent_server_is_given_up_after_the_tries_of_a_connect(void **state)
{
    uint32_t drop = UINT32_MAX;

    bed_open(&bed, NULL);
    bed.world.filter = bed_drop_requests;
    bed.world.filter_arg = &drop;
    struct ptlrpc_import *other = bed_import(&bed, &(struct bed_options){0});

    assert_int_equal(bed_send(other, BED_NULL, NULL, 0, &calls[0]), 0);
    fake_pass(&bed.world, 4 * BED_TIMEOUT_NS, 400);
    assert_int_equal(calls[0].done_count, 1);
    assert_int_equal(ptlrpc_import_state(other), PTLRPC_IMP_DISCON);
    assert_int_equal(bed.state_status, -ETIMEDOUT);
    bed_close(&bed);
}

static void
a_server_that_forgot_us_evicts_us(void **state)
{
    bed_open(&bed, NULL);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[i]), 0);
    }
    fake_settle(&bed.world);
    ptlrpc_export_evict(bed.last_export, -EIO);
    assert_int_equal(bed.disconnected_count, 0);
    fake_settle(&bed.world);
    assert_int_equal(bed.disconnected_count, 1);
    assert_int_equal(bed.disconnected_reason, -EIO);
    assert_null(ptlrpc_rq_export(bed.held[0]));
    bed_release(&bed); /* these replies go nowhere */
    fake_settle(&bed.world);
    assert_int_equal(calls[0].done_count, 0);
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[3]), 0);
    fake_settle(&bed.world);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(calls[i].done_count, 1);
        assert_int_equal(calls[i].status, -ESTALE);
    }
    assert_int_equal(bed.state, PTLRPC_IMP_EVICTED);
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[0]), -ESTALE);
    /* Opened again it is a new import. */
    ptlrpc_import_close(bed.import);
    fake_settle(&bed.world);
    assert_int_equal(bed.closed_count, 1);
    bed.import = bed_import(&bed, &(struct bed_options){0});
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[0]), 0);
    fake_settle(&bed.world);
    assert_int_equal(calls[0].status, 0);
    bed_close(&bed);
}

static void
a_client_that_comes_back_too_late_is_evicted(void **state)
{
    uint32_t drop = UINT32_MAX;

    bed_open(&bed, NULL);
    assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[0]), 0);
    fake_settle(&bed.world);
    bed.world.filter = bed_drop_requests;
    bed.world.filter_arg = &drop;
    fake_cut(bed.client_ctx, bed.server_ctx, -ECONNRESET);
    fake_settle(&bed.world);
    fake_pass(&bed.world, BED_TIMEOUT_NS - 1000, 10);
    assert_int_equal(bed.disconnected_count, 0);
    fake_pass(&bed.world, 2000, 1); /* the server's reconnect_ms are over */
    assert_int_equal(bed.disconnected_count, 1);
    assert_int_equal(bed.disconnected_reason, -ECONNRESET);
    drop = 0;
    fake_pass(&bed.world, 2 * BED_TIMEOUT_NS, 20);
    assert_int_equal(calls[0].done_count, 1);
    assert_int_equal(calls[0].status, -ESTALE);
    assert_int_equal(bed.state, PTLRPC_IMP_EVICTED);
    bed_release(&bed);
    bed_close(&bed);
}

static void
closing_ends_requests_first_and_disconnects(void **state)
{
    bed_open(&bed, NULL);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[i]), 0);
    }
    fake_settle(&bed.world);
    ptlrpc_import_close(bed.import);
    ptlrpc_import_close(bed.import);
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &(struct bed_call){0}), -ENOTCONN);
    assert_int_equal(calls[0].done_count, 0);
    fake_settle(&bed.world);
    assert_int_equal(bed.closed_count, 1);
    assert_int_equal(bed.disconnected_count, 1);
    assert_int_equal(bed.disconnected_reason, 0);
    assert_int_equal(bed_stats(&bed).export_count, 0);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(calls[i].done_count, 1);
        assert_int_equal(calls[i].status, -ECANCELED);
    }
    bed_release(&bed);
    bed_close(&bed);
}

static void
closing_while_connecting_leaves_no_export(void **state)
{
    for (uint32_t turns = 0; turns < 6; turns++) {
        bed_open(&bed, NULL);
        struct ptlrpc_import *other = bed_import(&bed, &(struct bed_options){0});

        assert_int_equal(bed_send(other, BED_NULL, NULL, 0, &calls[0]), 0);
        for (uint32_t i = 0; i < turns; i++) {
            (void)lnet_poll(i % 2 == 0 ? bed.client_ctx : bed.server_ctx, bed.world.now_ns, 100);
        }
        ptlrpc_import_close(other);
        fake_settle(&bed.world);
        assert_int_equal(bed.closed_count, 1);
        assert_int_equal(calls[0].done_count, 1);
        assert_int_equal(bed_stats(&bed).export_count, 1);
        bed_close(&bed);
    }
}

static void
closing_does_not_wait_for_a_silent_server_for_ever(void **state)
{
    uint32_t drop = UINT32_MAX;

    bed_open(&bed, NULL);
    bed.world.filter = bed_drop_requests;
    bed.world.filter_arg = &drop;
    ptlrpc_import_close(bed.import);
    fake_settle(&bed.world);
    fake_pass(&bed.world, UINT64_C(999000000), 9);
    assert_int_equal(bed.closed_count, 0);
    fake_pass(&bed.world, 2000000, 2);
    assert_int_equal(bed.closed_count, 1);
    bed_close(&bed);
}

static void
closing_when_the_server_dies_ends_at_once(void **state)
{
    bed_open(&bed, NULL);
    ptlrpc_import_close(bed.import);
    (void)lnet_poll(bed.client_ctx, bed.world.now_ns, 100); /* the DISCONNECT is out */
    fake_kill(bed.server_ctx);
    fake_settle(&bed.world);
    assert_int_equal(bed.closed_count, 1);
    fake_revive(bed.server_ctx);
    bed_close(&bed);
}

static void
imports_are_bounded(void **state)
{
    struct ptlrpc_import *import = NULL;
    const struct ptlrpc_import_options options = {
        .struct_bytes = sizeof(options), .portal = 5, .target = fake_process(BED_SERVER_PID)};

    bed_open(&bed, NULL);
    for (uint32_t i = 1; i < 256; i++) {
        assert_int_equal(ptlrpc_import_open(bed.client, &options, &import), 0);
    }
    assert_int_equal(ptlrpc_import_open(bed.client, &options, &import), -EAGAIN);
    bed_close(&bed);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(requests_sent_before_the_connection_wait_for_it),
    cmocka_unit_test(requests_sent_before_the_first_poll_have_their_time),
    cmocka_unit_test(a_lost_connect_is_sent_again),
    cmocka_unit_test(a_lost_connect_reply_makes_no_second_export),
    cmocka_unit_test(a_service_that_refuses_says_why),
    cmocka_unit_test(after_a_lost_connection_requests_are_sent_again_in_order_and_run_once),
    cmocka_unit_test(an_idle_import_connects_again_with_the_next_request),
    cmocka_unit_test(requests_to_a_dead_server_fail_at_once),
    cmocka_unit_test(a_silent_server_is_given_up_after_the_tries_of_a_connect),
    cmocka_unit_test(a_server_that_forgot_us_evicts_us),
    cmocka_unit_test(a_client_that_comes_back_too_late_is_evicted),
    cmocka_unit_test(closing_ends_requests_first_and_disconnects),
    cmocka_unit_test(closing_while_connecting_leaves_no_export),
    cmocka_unit_test(closing_does_not_wait_for_a_silent_server_for_ever),
    cmocka_unit_test(closing_when_the_server_dies_ends_at_once),
    cmocka_unit_test(imports_are_bounded),
};

TEST_MAIN(cases)
