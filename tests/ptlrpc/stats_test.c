/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ptlrpc/stats.c and the stage times: the server learns every round trip once, the stages of a
 * request fit into each other, and the sums are those of the parts.
 */
#include "tests/ptlrpc/bed.h"

#include "base/hist.h"
#include "tests/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct bed bed;
static struct bed_call calls[200];

/* Time for the stamps alone: @ns. */
static void
stamp_pass(uint64_t ns)
{
    bed.world.stamp_ns += ns;
}

static void
the_stages_of_a_request_are_measured(void **state)
{
    bed_open(&bed, &(struct bed_options){.max_rpcs = 1});
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[0]), 0);
    assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[1]), 0);
    stamp_pass(100);
    fake_settle(&bed.world); /* the first is answered, the second starts */
    ptlrpc_rq_begin(bed.held[0], PTLRPC_MARK_BULK);
    stamp_pass(30);
    ptlrpc_rq_end(bed.held[0], PTLRPC_MARK_BULK, 4096, BULK_PATH_CMA);
    ptlrpc_rq_begin(bed.held[0], PTLRPC_MARK_STORE);
    stamp_pass(5);
    ptlrpc_rq_end(bed.held[0], PTLRPC_MARK_STORE, 0, 0);
    stamp_pass(15);
    bed_release(&bed);
    stamp_pass(7);
    fake_settle(&bed.world);
    assert_int_equal(calls[1].stages.sent - calls[1].stages.queued, 100);
    assert_int_equal(calls[1].stages.received - calls[1].stages.queued, 157);
    assert_int_equal(calls[1].stages.server_queue_ns, 0);
    assert_int_equal(calls[1].stages.server_service_ns, 50);
    assert_int_equal(calls[1].stages.server_bulk_ns, 30);
    assert_int_equal(calls[1].stages.server_store_ns, 5);

    const struct ptlrpc_op_stats hold = bed_op_stats(&bed, BED_HOLD);

    assert_int_equal(hold.count, 1);
    assert_int_equal(hold.bytes, 4096);
    assert_int_equal(hold.path_count[BULK_PATH_CMA], 1);
    assert_int_equal(hold.service_ns, 50);
    assert_int_equal(hold.bulk_ns, 30);
    assert_int_equal(hold.store_ns, 5);
    assert_int_equal(hold.service->count, 1);
    assert_int_equal(hold.report_count, 0); /* it comes with the next request */
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[0]), 0);
    fake_settle(&bed.world);
    assert_int_equal(bed_op_stats(&bed, BED_HOLD).report_count, 1);
    assert_int_equal(bed_op_stats(&bed, BED_HOLD).total_ns, 157);
    assert_int_equal(bed_op_stats(&bed, BED_HOLD).wait_ns, 100);
    bed_close(&bed);
}

static void
the_server_has_every_round_trip_once_after_a_disconnect(void **state)
{
    const uint32_t windows[] = {1, 3, 16};

    for (uint32_t w = 0; w < BASE_ARRAY_LEN(windows); w++) {
        uint64_t total = 0;
        uint64_t wait = 0;

        bed_open(&bed, &(struct bed_options){.max_rpcs = windows[w]});
        for (uint32_t round = 0; round < 5; round++) {
            for (uint32_t i = 0; i < 40; i++) {
                assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[i]), 0);
                stamp_pass(3);
            }
            fake_settle(&bed.world);
            for (uint32_t i = 0; i < 40; i++) {
                total += calls[i].stages.received - calls[i].stages.queued;
                wait += calls[i].stages.sent - calls[i].stages.queued;
            }
        }
        ptlrpc_import_close(bed.import);
        fake_settle(&bed.world);

        const struct ptlrpc_op_stats stats = bed_op_stats(&bed, BED_NULL);

        assert_int_equal(stats.count, 200);
        assert_int_equal(stats.report_count, 200);
        assert_int_equal(stats.total_ns, total);
        assert_int_equal(stats.wait_ns, wait);
        assert_int_equal(stats.total->count, 200);
        bed_close(&bed);
    }
}

static void
a_resent_request_reports_once(void **state)
{
    uint32_t drop = 0;

    bed_open(&bed, &(struct bed_options){.max_rpcs = 1});
    bed.world.filter = bed_drop_replies;
    bed.world.filter_arg = &drop;
    for (uint32_t i = 0; i < 10; i++) {
        drop = i % 2;
        assert_int_equal(bed_send(bed.import, BED_ONCE, NULL, 0, &calls[i]), 0);
        fake_pass(&bed.world, BED_TIMEOUT_NS, 2);
        assert_int_equal(calls[i].status, 0);
    }
    ptlrpc_import_close(bed.import);
    fake_settle(&bed.world);
    assert_int_equal(bed_op_stats(&bed, BED_ONCE).report_count, 10);
    bed_close(&bed);
}

static void
the_services_histograms_count_every_request(void **state)
{
    bed_open(&bed, &(struct bed_options){.max_rpcs = 8});
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[i]), 0);
    }
    fake_settle(&bed.world);

    struct ptlrpc_service_stats stats = bed_stats(&bed);

    assert_string_equal(stats.name, "bed");
    assert_int_equal(stats.portal, BED_PORTAL);
    assert_int_equal(stats.req_count, 6);
    assert_int_equal(stats.req_active, 6);
    assert_int_equal(stats.req_active_max, 6);
    assert_int_equal(stats.rqs_max - stats.rqs_free_min, 6);
    assert_int_equal(stats.req_active_hist->count, 6);
    assert_int_equal(stats.req_active_hist->max, 6);
    assert_int_equal(stats.req_active_hist->sum, 21);
    assert_int_equal(stats.req_qdepth->count, 6);
    assert_int_equal(stats.req_qdepth->min, 0);
    assert_int_equal(stats.req_qdepth->sum, 15);
    assert_int_equal(stats.req_waittime_ns->count, 6);
    bed_release(&bed);
    stats = bed_stats(&bed);
    assert_int_equal(stats.req_active, 0);
    bed_close(&bed);
}

static void
the_ops_are_listed_with_ptlrpcs_own_first(void **state)
{
    struct ptlrpc_op_stats stats;
    uint32_t count = 0;

    bed_open(&bed, NULL);
    assert_int_equal(ptlrpc_op_stats_get(bed.service, 0, &stats), 0);
    assert_string_equal(stats.name, "connect");
    assert_int_equal(stats.count, 1);
    while (ptlrpc_op_stats_get(bed.service, count, &stats) == 0) {
        count++;
    }
    assert_int_equal(count, 3 + 6);
    bed_close(&bed);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(the_stages_of_a_request_are_measured),
    cmocka_unit_test(the_server_has_every_round_trip_once_after_a_disconnect),
    cmocka_unit_test(a_resent_request_reports_once),
    cmocka_unit_test(the_services_histograms_count_every_request),
    cmocka_unit_test(the_ops_are_listed_with_ptlrpcs_own_first),
};

TEST_MAIN(cases)
