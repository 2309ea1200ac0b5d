/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ptlrpc over the real lnet: within one context by lo, and between two by shm, also when the
 * connection or the server goes away. What the fake network stands for must be so here too.
 */
#include "causeway/ptlrpc.h"
#include "ptlrpc/proto/hdr.h"
#include "tests/support/pump.h"
#include "tests/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORTAL    12
#define LIMIT_NS  UINT64_C(20000000000)
#define WINDOW    64
#define CALLS_MAX 2000

enum { OP_ECHO = 1000, OP_ONCE, OP_HOLD };

static struct pump pump;
static struct ptlrpc *server;
static struct ptlrpc *client;
static struct ptlrpc_service *service;
static struct ptlrpc_import *import;
static uint32_t done_count;
static uint32_t closed_count;
static uint32_t disconnected_count;
static int statuses[CALLS_MAX];
static uint32_t order[CALLS_MAX];
static uint64_t once_count;
static struct ptlrpc_rq *held[CALLS_MAX];
static uint32_t held_count;
static unsigned char last_body[8448];
static uint32_t last_bytes;
static char run_dir[64];

static void
echo_handler(struct ptlrpc_rq *rq)
{
    uint32_t bytes = 0;
    const void *body = ptlrpc_rq_body(rq, &bytes);

    (void)memcpy(ptlrpc_rq_reply_body(rq), body, bytes);
    once_count += ptlrpc_rq_opc(rq) == OP_ONCE;
    ptlrpc_rq_reply(rq, 0, bytes);
}

static void
hold_handler(struct ptlrpc_rq *rq)
{
    held[held_count++] = rq;
}

static const struct ptlrpc_op ops[] = {
    {.opc = OP_ECHO, .name = "echo", .handler = echo_handler},
    {.opc = OP_ONCE, .name = "once", .handler = echo_handler, .flags = PTLRPC_OP_ONCE},
    {.opc = OP_HOLD, .name = "hold", .handler = hold_handler},
};

static void
disconnected(struct ptlrpc_service *of, struct ptlrpc_export *export_, int reason)
{
    disconnected_count++;
}

static void
state_changed(struct ptlrpc_import *of, enum ptlrpc_import_state state, int status,
              const void *data, uint32_t bytes, void *user)
{
    closed_count += state == PTLRPC_IMP_CLOSED;
}

static void
done(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes, void *user)
{
    const uint32_t index = (uint32_t)(uintptr_t)user;

    order[done_count++] = index;
    statuses[index] = status;
    last_bytes = bytes;
    if (bytes > 0) {
        (void)memcpy(last_body, body, bytes);
    }
}

static struct lnet *
context_open(uint32_t pid, const char *address, struct lnet_nid *nid_out)
{
    const struct lnet_options options = {.struct_bytes = sizeof(options), .pid = pid, .seed = pid};
    const struct lnet_ni_options ni = {
        .struct_bytes = sizeof(ni), .net = "shm", .address = address, .run_dir = run_dir};
    struct lnet *ctx = NULL;

    assert_int_equal(lnet_open(&options, &ctx), 0);
    assert_int_equal(lnet_ni_add(ctx, &ni, nid_out), 0);
    return ctx;
}

static void
server_open(void)
{
    struct lnet_nid nid;
    const struct ptlrpc_service_options options = {.struct_bytes = sizeof(options),
                                                   .portal = PORTAL,
                                                   .name = "test",
                                                   .ops = ops,
                                                   .op_count = BASE_ARRAY_LEN(ops),
                                                   .disconnected = disconnected};

    pump.contexts[0] = context_open(1, "71", &nid);
    assert_int_equal(ptlrpc_open(pump.contexts[0], NULL, NULL, &server), 0);
    assert_int_equal(ptlrpc_service_add(server, &options, &service), 0);
}

static void
server_close(void)
{
    ptlrpc_close(server);
    for (uint32_t i = 0; i < held_count; i++) {
        ptlrpc_rq_reply(held[i], 0, 0);
    }
    held_count = 0;
    lnet_close(pump.contexts[0]);
    pump.contexts[0] = NULL;
}

static void
client_open(void)
{
    struct lnet_process target;
    struct lnet_nid nid;
    struct ptlrpc_options options = {.struct_bytes = sizeof(options), .requests_max = CALLS_MAX};
    struct ptlrpc_import_options import_options = {.struct_bytes = sizeof(import_options),
                                                   .portal = PORTAL,
                                                   .name = "test",
                                                   .max_rpcs_in_flight = WINDOW,
                                                   .timeout_ns = 1000000000,
                                                   .state_changed = state_changed};

    pump.contexts[1] = context_open(2, "72", &nid);
    assert_int_equal(ptlrpc_open(pump.contexts[1], NULL, &options, &client), 0);
    assert_int_equal(lnet_process_parse("1-71@shm", &target), 0);
    import_options.target = target;
    assert_int_equal(ptlrpc_import_open(client, &import_options, &import), 0);
}

static void
both_open(void)
{
    done_count = 0;
    closed_count = 0;
    disconnected_count = 0;
    once_count = 0;
    held_count = 0;
    (void)snprintf(run_dir, sizeof(run_dir), "/tmp/causeway-ptlrpc-test-XXXXXX");
    assert_non_null(mkdtemp(run_dir));
    (void)memset(&pump, 0, sizeof(pump));
    server_open();
    client_open();
}

static void
both_close(void)
{
    ptlrpc_close(client);
    lnet_close(pump.contexts[1]);
    if (pump.contexts[0] != NULL) {
        server_close();
    }
    (void)rmdir(run_dir);
}

static void
send_one(uint16_t opc, const void *body, uint32_t bytes, uint32_t index)
{
    struct ptlrpc_request *request = ptlrpc_request_take(import, opc);

    assert_non_null(request);
    if (bytes > 0) {
        (void)memcpy(ptlrpc_request_body(request), body, bytes);
    }
    assert_int_equal(ptlrpc_request_send(request, bytes, done, (void *)(uintptr_t)index), 0);
}

static void
bodies_of_all_sizes_come_back_over_shm(void **state)
{
    static unsigned char body[8448];

    for (uint32_t i = 0; i < sizeof(body); i++) {
        body[i] = (unsigned char)(i * 7 + (i >> 8));
    }
    both_open();
    assert_int_equal(ptlrpc_body_bytes_max(client), sizeof(body));
    for (uint32_t bytes = 0; bytes <= sizeof(body); bytes += bytes < 200 ? 1 : 31) {
        const uint32_t before = done_count;

        if (before == CALLS_MAX) {
            break;
        }
        send_one(OP_ECHO, body, bytes, before);
        assert_true(pump_until_count(&pump, &done_count, before + 1, LIMIT_NS));
        assert_int_equal(statuses[before], 0);
        assert_int_equal(last_bytes, bytes);
        assert_memory_equal(last_body, body, bytes);
    }
    send_one(OP_ECHO, body, sizeof(body), 0);
    assert_true(pump_until_count(&pump, &done_count, done_count + 1, LIMIT_NS));
    assert_int_equal(last_bytes, sizeof(body));
    assert_memory_equal(last_body, body, sizeof(body));
    both_close();
}

static void
more_requests_than_rings_and_credits_hold_are_answered_in_order(void **state)
{
    static unsigned char body[8448];

    both_open();
    for (uint32_t i = 0; i < CALLS_MAX; i++) {
        send_one(OP_ECHO, body, i % 50 == 0 ? sizeof(body) : i % 300, i);
    }
    assert_true(pump_until_count(&pump, &done_count, CALLS_MAX, LIMIT_NS));
    for (uint32_t i = 0; i < CALLS_MAX; i++) {
        assert_int_equal(statuses[i], 0);
        assert_int_equal(order[i], i);
    }
    ptlrpc_import_close(import);
    assert_true(pump_until_count(&pump, &closed_count, 1, LIMIT_NS));
    assert_int_equal(disconnected_count, 1);
    both_close();
}

static void
a_broken_connection_is_made_again_and_nothing_runs_twice(void **state)
{
    both_open();
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < 50; i++) {
            send_one(OP_ONCE, &i, sizeof(i), round * 50 + i);
        }
        (void)pump_round(&pump);
        if (round > 0) {
            lnet_peer_disconnect(ptlrpc_import_peer(import));
        }
        assert_true(pump_until_count(&pump, &done_count, (round + 1) * 50, LIMIT_NS));
    }
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(statuses[i], 0);
    }
    assert_int_equal(once_count, 1000);
    assert_int_equal(disconnected_count, 0);
    both_close();
}

static void
requests_to_a_server_that_went_away_fail_soon(void **state)
{
    uint64_t start_ns = 0;

    both_open();
    for (uint32_t i = 0; i < WINDOW + 10; i++) {
        send_one(OP_HOLD, NULL, 0, i);
    }
    assert_true(pump_until_count(&pump, &held_count, WINDOW, LIMIT_NS));
    server_close();
    start_ns = pump.now_ns;
    assert_true(pump_until_count(&pump, &done_count, WINDOW + 10, LIMIT_NS));
    assert_true(pump.now_ns - start_ns < UINT64_C(1000000000));
    for (uint32_t i = 0; i < WINDOW + 10; i++) {
        assert_true(statuses[i] == -ECONNRESET || statuses[i] == -ENOTCONN ||
                    statuses[i] == -ESTALE);
    }
    /* Another server under the same address does not know the import; a new one is welcome. */
    server_open();
    send_one(OP_ECHO, NULL, 0, 0);
    assert_true(pump_until_count(&pump, &done_count, WINDOW + 11, LIMIT_NS));
    assert_int_equal(statuses[0], -ESTALE);
    both_close();
}

static void
a_context_may_be_its_own_server(void **state)
{
    struct lnet_process self;
    struct ptlrpc_import_options options = {
        .struct_bytes = sizeof(options), .portal = PORTAL, .state_changed = state_changed};

    both_open();
    ptlrpc_close(client);
    assert_int_equal(lnet_process_parse("1-71@shm", &self), 0);
    options.target = self;
    assert_int_equal(ptlrpc_import_open(server, &options, &import), 0);
    for (uint32_t i = 0; i < 100; i++) {
        send_one(OP_ONCE, &i, sizeof(i), i);
    }
    assert_true(pump_until_count(&pump, &done_count, 100, LIMIT_NS));
    assert_int_equal(once_count, 100);
    assert_int_equal(statuses[99], 0);
    lnet_close(pump.contexts[1]);
    pump.contexts[1] = NULL;
    server_close();
    (void)rmdir(run_dir);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(bodies_of_all_sizes_come_back_over_shm),
    cmocka_unit_test(more_requests_than_rings_and_credits_hold_are_answered_in_order),
    cmocka_unit_test(a_broken_connection_is_made_again_and_nothing_runs_twice),
    cmocka_unit_test(requests_to_a_server_that_went_away_fail_soon),
    cmocka_unit_test(a_context_may_be_its_own_server),
};

TEST_MAIN(cases)
