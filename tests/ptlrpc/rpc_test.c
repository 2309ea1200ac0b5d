/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ptlrpc/rpc.c: a request goes there and its reply comes back, at every size; engines open and
 * close with anything in flight.
 */
#include "tests/ptlrpc/bed.h"

#include "tests/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct bed bed;
static struct bed_call call;

static void
a_null_rpc_ends_with_the_handlers_status(void **state)
{
    bed_open(&bed, NULL);
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &call), 0);
    assert_int_equal(call.done_count, 0); /* never inside the call */
    fake_settle(&bed.world);
    assert_int_equal(call.done_count, 1);
    assert_int_equal(call.status, 0);
    assert_int_equal(call.bytes, 0);
    bed_close(&bed);
}

static void
an_error_comes_with_its_body(void **state)
{
    bed_open(&bed, NULL);
    assert_int_equal(bed_send(bed.import, BED_FAIL, NULL, 0, &call), 0);
    fake_settle(&bed.world);
    assert_int_equal(call.status, -EIO);
    assert_int_equal(call.bytes, 3);
    assert_memory_equal(call.body, "why", 3);
    assert_int_equal(bed_op_stats(&bed, BED_FAIL).error_count, 1);
    bed_close(&bed);
}

static void
bodies_of_every_length_up_to_the_largest_come_back_whole(void **state)
{
    static unsigned char body[16384];
    uint32_t max = 0;

    for (uint32_t i = 0; i < sizeof(body); i++) {
        body[i] = (unsigned char)(i * 131 + (i >> 8));
    }
    bed_open(&bed, NULL);
    max = ptlrpc_body_bytes_max(bed.client);
    assert_true(max >= 8448);
    for (uint32_t bytes = 1; bytes <= max; bytes += bytes < 300 || bytes > max - 300 ? 1 : 97) {
        assert_int_equal(bed_send(bed.import, BED_ECHO, body, bytes, &call), 0);
        fake_settle(&bed.world);
        assert_int_equal(call.done_count, 1);
        assert_int_equal(call.status, 0);
        assert_int_equal(call.bytes, bytes);
        assert_memory_equal(call.body, body, bytes);
    }
    bed_close(&bed);
}

static void
a_body_that_is_too_long_is_refused_at_the_caller_and_the_request_is_back(void **state)
{
    const struct bed_options options = {.requests_max = 1};

    bed_open(&bed, &options);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(
            bed_send(bed.import, BED_ECHO, NULL, ptlrpc_body_bytes_max(bed.client) + 1, &call),
            -EMSGSIZE);
        assert_int_equal(call.done_count, 0);
    }
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &call), 0);
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &call), -ENOBUFS);
    bed_close(&bed);
}

static void
closing_the_client_ends_a_thousand_requests_once_each(void **state)
{
    static struct bed_call calls[1000];

    bed_open(&bed, NULL);
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(calls); i++) {
        assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[i]), 0);
    }
    fake_settle(&bed.world);
    ptlrpc_close(bed.client);
    bed.client = NULL;
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(calls); i++) {
        assert_int_equal(calls[i].done_count, 1);
        assert_int_equal(calls[i].status, -ECANCELED);
    }
    assert_int_equal(bed.closed_count, 1);
    fake_settle(&bed.world);
    assert_int_equal(bed.disconnected_count, 1);
    assert_int_equal(bed.disconnected_reason, 0);
    assert_null(ptlrpc_rq_export(bed.held[0]));
    bed_release(&bed);
    bed_close(&bed);
}

static void
requests_may_outlive_the_servers_engine_until_they_are_answered(void **state)
{
    bed_open(&bed, NULL);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &call), 0);
    }
    fake_settle(&bed.world);
    assert_int_equal(bed.held_count, 3);
    ptlrpc_close(bed.server);
    bed.server = NULL;
    assert_int_equal(bed.disconnected_count, 1);
    assert_null(ptlrpc_rq_export(bed.held[0]));
    bed_release(&bed); /* the last one frees the engine: the leak check sees it */
    bed_close(&bed);
}

static void
options_out_of_range_are_refused(void **state)
{
    struct ptlrpc *rpc = NULL;
    struct ptlrpc_options options = {.struct_bytes = 4};
    struct ptlrpc_import_options import = {.struct_bytes = sizeof(import)};
    struct ptlrpc_import *import_out = NULL;

    bed_open(&bed, NULL);
    assert_int_equal(ptlrpc_open(bed.client_ctx, NULL, &options, &rpc), -EINVAL);
    options.struct_bytes = sizeof(options);
    options.requests_max = 65536;
    assert_int_equal(ptlrpc_open(bed.client_ctx, NULL, &options, &rpc), -EINVAL);
    assert_int_equal(ptlrpc_import_open(bed.client, NULL, &import_out), -EINVAL);
    assert_int_equal(ptlrpc_import_open(bed.client, &import, &import_out), -EINVAL); /* portal 0 */
    import.portal = 5;
    import.max_rpcs_in_flight = 257;
    assert_int_equal(ptlrpc_import_open(bed.client, &import, &import_out), -EINVAL);
    import.max_rpcs_in_flight = 256;
    import.target = fake_process(77);
    assert_int_equal(ptlrpc_import_open(bed.client, &import, &import_out), -EHOSTUNREACH);
    bed_close(&bed);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_null_rpc_ends_with_the_handlers_status),
    cmocka_unit_test(an_error_comes_with_its_body),
    cmocka_unit_test(bodies_of_every_length_up_to_the_largest_come_back_whole),
    cmocka_unit_test(a_body_that_is_too_long_is_refused_at_the_caller_and_the_request_is_back),
    cmocka_unit_test(closing_the_client_ends_a_thousand_requests_once_each),
    cmocka_unit_test(requests_may_outlive_the_servers_engine_until_they_are_answered),
    cmocka_unit_test(options_out_of_range_are_refused),
};

TEST_MAIN(cases)
