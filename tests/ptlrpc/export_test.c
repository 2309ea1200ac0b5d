/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ptlrpc/export.c and the slots: what must run once runs once, whatever is lost, doubled or late.
 */
#include "tests/ptlrpc/bed.h"

#include "base/prng.h"
#include "tests/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct bed bed;
static struct bed_call calls[64];

static void
a_lost_reply_is_answered_from_the_slot(void **state)
{
    /* Kept in the slot's own room, and in memory of its own. */
    static const uint32_t sizes[] = {8, 192, 193, 8448, 8};
    uint32_t drop = 0;

    bed_open(&bed, &(struct bed_options){.max_rpcs = 1});
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(sizes); i++) {
        const uint64_t expected = i + 1;

        drop = 1;
        bed.world.filter = bed_drop_replies;
        bed.world.filter_arg = &drop;
        bed.reply_body_bytes = sizes[i];
        assert_int_equal(bed_send(bed.import, BED_ONCE, NULL, 0, &calls[0]), 0);
        fake_pass(&bed.world, BED_TIMEOUT_NS, 2);
        assert_int_equal(calls[0].done_count, 1);
        assert_int_equal(calls[0].status, 0);
        assert_int_equal(calls[0].bytes, sizes[i]);
        assert_memory_equal(calls[0].body, &expected, sizeof(expected));
        assert_int_equal(bed.once_count, i + 1);
        if (sizes[i] > 8) {
            assert_int_equal(calls[0].body[sizes[i] - 1], 0x5a);
        }
    }
    assert_int_equal(bed_op_stats(&bed, BED_ONCE).resent_count, BASE_ARRAY_LEN(sizes));
    bed_close(&bed);
}

static void
an_idempotent_request_whose_reply_was_lost_is_executed_again(void **state)
{
    uint32_t drop = 1;

    bed_open(&bed, NULL);
    bed.world.filter = bed_drop_replies;
    bed.world.filter_arg = &drop;
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[0]), 0);
    fake_pass(&bed.world, BED_TIMEOUT_NS, 2);
    assert_int_equal(calls[0].status, 0);
    assert_int_equal(bed_op_stats(&bed, BED_NULL).count, 2);
    bed_close(&bed);
}

static void
a_resend_during_the_execution_is_dropped(void **state)
{
    bed_open(&bed, NULL);
    assert_int_equal(bed_send(bed.import, BED_HOLD_ONCE, NULL, 0, &calls[0]), 0);
    fake_pass(&bed.world, 2 * BED_TIMEOUT_NS + 1000, 20); /* two resends */
    assert_int_equal(bed.held_count, 1);
    assert_int_equal(bed_stats(&bed).duplicate_count, 2);
    bed_release(&bed);
    fake_settle(&bed.world);
    assert_int_equal(calls[0].done_count, 1);
    assert_int_equal(calls[0].status, 0);
    bed_close(&bed);
}

static enum fake_verdict
double_all(struct fake_message *message, void *arg)
{
    return FAKE_TWICE;
}

static void
messages_that_come_twice_run_once_and_answer_once(void **state)
{
    bed_open(&bed, NULL);
    bed.world.filter = double_all;
    for (uint32_t i = 0; i < 40; i++) {
        assert_int_equal(bed_send(bed.import, BED_ONCE, NULL, 0, &calls[i]), 0);
    }
    fake_settle(&bed.world);
    for (uint32_t i = 0; i < 40; i++) {
        assert_int_equal(calls[i].done_count, 1);
        assert_int_equal(calls[i].status, 0);
    }
    assert_int_equal(bed.once_count, 40);
    bed_close(&bed);
}

/* Keeps copies of requests for later. */
struct copies {
    uint32_t count;
    struct {
        uint64_t match_bits;
        uint32_t bytes;
        unsigned char data[256];
    } message[16];
};

static enum fake_verdict
keep_copy(struct fake_message *message, void *arg)
{
    struct copies *copies = arg;

    if (message->portal == BED_PORTAL && copies->count < BASE_ARRAY_LEN(copies->message) &&
        message->bytes <= 256) {
        copies->message[copies->count].match_bits = message->match_bits;
        copies->message[copies->count].bytes = message->bytes;
        (void)memcpy(copies->message[copies->count++].data, message->data, message->bytes);
    }
    return FAKE_PASS;
}

static void
a_copy_that_comes_after_the_next_request_of_its_slot_is_dropped(void **state)
{
    static struct copies copies;

    copies.count = 0;
    bed_open(&bed, &(struct bed_options){.max_rpcs = 1});
    bed.world.filter = keep_copy;
    bed.world.filter_arg = &copies;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(bed_send(bed.import, BED_ONCE, NULL, 0, &calls[i]), 0);
        fake_settle(&bed.world);
    }
    fake_inject(bed.client_ctx, bed.server_ctx, BED_PORTAL, copies.message[0].match_bits,
                copies.message[0].data, copies.message[0].bytes);
    fake_settle(&bed.world);
    assert_int_equal(bed.once_count, 2);
    assert_int_equal(bed_stats(&bed).stale_count, 1);
    bed_close(&bed);
}

static void
a_request_of_an_older_generation_is_dropped(void **state)
{
    static struct copies copies;

    copies.count = 0;
    bed_open(&bed, NULL);
    bed.world.filter = keep_copy;
    bed.world.filter_arg = &copies;
    assert_int_equal(bed_send(bed.import, BED_ONCE, NULL, 0, &calls[0]), 0);
    fake_cut(bed.client_ctx, bed.server_ctx, -ECONNRESET); /* before it arrived */
    fake_settle(&bed.world);
    assert_int_equal(calls[0].status, 0);
    assert_int_equal(bed.once_count, 1);
    fake_inject(bed.client_ctx, bed.server_ctx, BED_PORTAL, copies.message[0].match_bits,
                copies.message[0].data, copies.message[0].bytes);
    fake_settle(&bed.world);
    assert_int_equal(bed.once_count, 1);
    assert_int_equal(bed_stats(&bed).stale_count, 1);
    bed_close(&bed);
}

static void
a_connect_of_an_older_generation_is_dropped(void **state)
{
    static struct copies copies;

    copies.count = 0;
    bed_open(&bed, NULL);
    bed.world.filter = keep_copy;
    bed.world.filter_arg = &copies;
    fake_cut(bed.client_ctx, bed.server_ctx, -ECONNRESET);
    fake_settle(&bed.world);
    for (uint32_t i = 0; i < 2; i++) { /* generations 2 and 3 */
        assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[0]), 0);
        fake_settle(&bed.world);
        fake_cut(bed.client_ctx, bed.server_ctx, -ECONNRESET);
        fake_settle(&bed.world);
    }
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[0]), 0);
    fake_settle(&bed.world);
    fake_inject(bed.client_ctx, bed.server_ctx, BED_PORTAL, copies.message[0].match_bits,
                copies.message[0].data, copies.message[0].bytes);
    fake_settle(&bed.world);
    assert_int_equal(bed_stats(&bed).stale_count, 1);
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[0]), 0);
    fake_settle(&bed.world);
    assert_int_equal(calls[0].status, 0);
    bed_close(&bed);
}

static void
a_slot_whose_request_was_given_up_serves_the_next_one(void **state)
{
    bed_open(&bed, &(struct bed_options){.max_rpcs = 1, .tries_max = 1});
    assert_int_equal(bed_send(bed.import, BED_HOLD_ONCE, NULL, 0, &calls[0]), 0);
    fake_pass(&bed.world, BED_TIMEOUT_NS, 2);
    assert_int_equal(calls[0].status, -ETIMEDOUT);
    assert_int_equal(bed_send(bed.import, BED_ONCE, NULL, 0, &calls[1]), 0);
    fake_settle(&bed.world);
    assert_int_equal(calls[1].status, 0);
    bed_release(&bed); /* too late: nobody may see this answer */
    fake_settle(&bed.world);
    assert_int_equal(bed_stats(&bed).reply_drop_count, 1);
    assert_int_equal(bed_stats(&bed).req_active, 0);
    bed_close(&bed);
}

/* Drops and doubles a part of all messages, as the generator says. */
static enum fake_verdict
lossy(struct fake_message *message, void *arg)
{
    struct base_prng *prng = arg;
    const double draw = base_prng_double(prng);

    return draw < 0.2 ? FAKE_DROP : draw < 0.4 ? FAKE_TWICE : FAKE_PASS;
}

static void
over_a_network_that_loses_and_doubles_each_request_runs_at_most_once(void **state)
{
    struct base_prng prng;
    uint64_t ok = 0;
    uint64_t total = 0;

    base_prng_seed(&prng, 7);
    bed_open(&bed, &(struct bed_options){.max_rpcs = 8, .tries_max = 6});
    bed.world.filter = lossy;
    bed.world.filter_arg = &prng;
    for (uint32_t round = 0; round < 200; round++) {
        for (uint32_t i = 0; i < 20; i++) {
            assert_int_equal(bed_send(bed.import, BED_ONCE, NULL, 0, &calls[i]), 0);
            total++;
        }
        if (base_prng_chance(&prng, 0.1)) {
            (void)lnet_poll(bed.server_ctx, bed.world.now_ns, 5);
            fake_cut(bed.client_ctx, bed.server_ctx, -ECONNRESET);
        }
        fake_pass(&bed.world, 20 * BED_TIMEOUT_NS, 100);
        for (uint32_t i = 0; i < 20; i++) {
            assert_int_equal(calls[i].done_count, 1);
            ok += calls[i].status == 0;
        }
        if (ptlrpc_import_state(bed.import) == PTLRPC_IMP_EVICTED) {
            ptlrpc_import_close(bed.import);
            fake_pass(&bed.world, 2 * BED_TIMEOUT_NS, 4);
            bed.import = bed_import(&bed, &(struct bed_options){.max_rpcs = 8, .tries_max = 6});
        }
        assert_in_range(bed.once_count, ok, total);
    }
    assert_true(ok > total / 2);
    bed_close(&bed);
}

static void
exports_are_bounded_and_places_are_used_again(void **state)
{
    struct ptlrpc_import *more[3];

    bed_open(&bed, &(struct bed_options){.exports_max = 3});
    for (uint32_t round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < 3; i++) {
            more[i] = bed_import(&bed, &(struct bed_options){0});
        }
        fake_settle(&bed.world);
        assert_int_equal(ptlrpc_import_state(more[0]), PTLRPC_IMP_FULL);
        assert_int_equal(ptlrpc_import_state(more[1]), PTLRPC_IMP_FULL);
        assert_int_equal(ptlrpc_import_state(more[2]), PTLRPC_IMP_DISCON);
        assert_int_equal(bed_stats(&bed).export_count, 3);
        for (uint32_t i = 0; i < 3; i++) {
            ptlrpc_import_close(more[i]);
        }
        fake_settle(&bed.world);
        assert_int_equal(bed_stats(&bed).export_count, 1);
    }
    bed_close(&bed);
}

static void
a_peer_has_its_share_of_the_exports(void **state)
{
    struct ptlrpc_import *import = NULL;

    bed_open(&bed, NULL);
    for (uint32_t i = 1; i < 17; i++) {
        import = bed_import(&bed, &(struct bed_options){0});
        fake_settle(&bed.world);
        assert_int_equal(ptlrpc_import_state(import), i < 16 ? PTLRPC_IMP_FULL : PTLRPC_IMP_DISCON);
    }
    assert_int_equal(bed.state_status, -EAGAIN);
    assert_int_equal(bed_stats(&bed).export_count, 16);
    bed_close(&bed);
}

static void
a_dead_client_is_forgotten_once_and_its_requests_finish_without_it(void **state)
{
    bed_open(&bed, NULL);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[i]), 0);
    }
    fake_settle(&bed.world);
    fake_kill(bed.client_ctx);
    fake_settle(&bed.world);
    fake_pass(&bed.world, 2 * BED_TIMEOUT_NS, 4);
    assert_int_equal(bed.disconnected_count, 1);
    assert_int_equal(bed.disconnected_reason, -ECONNRESET);
    assert_int_equal(bed_stats(&bed).export_count, 0);
    assert_int_equal(bed_stats(&bed).req_active, 5);
    assert_null(ptlrpc_rq_export(bed.held[0]));
    bed_release(&bed);
    assert_int_equal(bed_stats(&bed).req_active, 0);
    assert_int_equal(fake_peer_references(bed.server_ctx), 0);
    fake_revive(bed.client_ctx);
    bed_close(&bed);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_lost_reply_is_answered_from_the_slot),
    cmocka_unit_test(an_idempotent_request_whose_reply_was_lost_is_executed_again),
    cmocka_unit_test(a_resend_during_the_execution_is_dropped),
    cmocka_unit_test(messages_that_come_twice_run_once_and_answer_once),
    cmocka_unit_test(a_copy_that_comes_after_the_next_request_of_its_slot_is_dropped),
    cmocka_unit_test(a_request_of_an_older_generation_is_dropped),
    cmocka_unit_test(a_connect_of_an_older_generation_is_dropped),
    cmocka_unit_test(a_slot_whose_request_was_given_up_serves_the_next_one),
    cmocka_unit_test(over_a_network_that_loses_and_doubles_each_request_runs_at_most_once),
    cmocka_unit_test(exports_are_bounded_and_places_are_used_again),
    cmocka_unit_test(a_peer_has_its_share_of_the_exports),
    cmocka_unit_test(a_dead_client_is_forgotten_once_and_its_requests_finish_without_it),
};

TEST_MAIN(cases)
