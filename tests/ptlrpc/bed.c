/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The test bed: see bed.h.
 */
#include "tests/ptlrpc/bed.h"

#include "tests/test.h"

#include <errno.h>
#include <string.h>

static struct bed *
bed_of(struct ptlrpc_rq *rq)
{
    return ptlrpc_service_user(ptlrpc_rq_service(rq));
}

static void
null_handler(struct ptlrpc_rq *rq)
{
    ptlrpc_rq_reply(rq, 0, 0);
}

static void
echo_handler(struct ptlrpc_rq *rq)
{
    uint32_t bytes = 0;
    const void *body = ptlrpc_rq_body(rq, &bytes);

    assert_int_equal((uintptr_t)body % 8, 0);
    assert_int_equal((uintptr_t)ptlrpc_rq_reply_body(rq) % 8, 0);
    (void)memcpy(ptlrpc_rq_reply_body(rq), body, bytes);
    ptlrpc_rq_reply(rq, 0, bytes);
}

static void
once_handler(struct ptlrpc_rq *rq)
{
    struct bed *bed = bed_of(rq);
    const uint64_t count = ++bed->once_count;
    const uint32_t bytes = bed->reply_body_bytes > 0 ? (uint32_t)bed->reply_body_bytes : 8;

    (void)memset(ptlrpc_rq_reply_body(rq), 0x5a, bytes);
    (void)memcpy(ptlrpc_rq_reply_body(rq), &count, sizeof(count));
    ptlrpc_rq_reply(rq, 0, bytes);
}

static void
hold_handler(struct ptlrpc_rq *rq)
{
    struct bed *bed = bed_of(rq);

    assert_true(bed->held_count < BED_HELD_MAX);
    bed->held[bed->held_count++] = rq;
}

static void
fail_handler(struct ptlrpc_rq *rq)
{
    (void)memcpy(ptlrpc_rq_reply_body(rq), "why", 3);
    ptlrpc_rq_reply(rq, -EIO, 3);
}

static const struct ptlrpc_op ops[] = {
    {.opc = BED_NULL, .name = "null", .handler = null_handler},
    {.opc = BED_ECHO, .name = "echo", .handler = echo_handler, .body_bytes_min = 1},
    {.opc = BED_ONCE, .name = "once", .handler = once_handler, .flags = PTLRPC_OP_ONCE},
    {.opc = BED_HOLD, .name = "hold", .handler = hold_handler},
    {.opc = BED_HOLD_ONCE, .name = "hold_once", .handler = hold_handler, .flags = PTLRPC_OP_ONCE},
    {.opc = BED_FAIL, .name = "fail", .handler = fail_handler},
};

static int
connected(struct ptlrpc_service *service, struct ptlrpc_export *export_, const void *data,
          uint32_t bytes, void *reply, uint32_t *reply_bytes)
{
    struct bed *bed = ptlrpc_service_user(service);

    assert_null(ptlrpc_export_user(export_));
    ptlrpc_export_user_set(export_, bed);
    if (bed->connect_refusal != 0) {
        return bed->connect_refusal;
    }
    bed->connected_count++;
    bed->last_export = export_;
    (void)memcpy(reply, data, bytes);
    *reply_bytes = bytes;
    return 0;
}

static void
disconnected(struct ptlrpc_service *service, struct ptlrpc_export *export_, int reason)
{
    struct bed *bed = ptlrpc_service_user(service);

    assert_ptr_equal(ptlrpc_export_user(export_), bed);
    bed->disconnected_count++;
    bed->disconnected_reason = reason;
}

static void
state_changed(struct ptlrpc_import *import, enum ptlrpc_import_state state, int status,
              const void *data, uint32_t bytes, void *user)
{
    struct bed *bed = user;

    bed->state = state;
    bed->state_status = status;
    bed->state_count++;
    bed->closed_count += state == PTLRPC_IMP_CLOSED;
    if (state == PTLRPC_IMP_FULL) {
        assert_true(bytes < sizeof(bed->connect_reply));
        (void)memcpy(bed->connect_reply, data, bytes);
    }
    assert_int_equal(ptlrpc_import_state(import), state);
}

struct ptlrpc_import *
bed_import(struct bed *bed, const struct bed_options *options)
{
    struct ptlrpc_import *import = NULL;
    const struct ptlrpc_import_options import_options = {
        .struct_bytes = sizeof(import_options),
        .portal = BED_PORTAL,
        .target = fake_process(BED_SERVER_PID),
        .name = "bed-client",
        .max_rpcs_in_flight = options->max_rpcs,
        .connect_data = "hello",
        .connect_data_bytes = 6,
        .timeout_ns = BED_TIMEOUT_NS,
        .tries_max = options->tries_max,
        .state_changed = state_changed,
        .user = bed,
    };

    assert_int_equal(ptlrpc_import_open(bed->client, &import_options, &import), 0);
    return import;
}

void
bed_open(struct bed *bed, const struct bed_options *options)
{
    static const struct bed_options usual;

    options = options != NULL ? options : &usual;
    (void)memset(bed, 0, sizeof(*bed));
    bed->world.now_ns = UINT64_C(1000000000000);
    bed->world.stamp_ns = 1000;
    bed->world.put_bytes_max = 16384;
    bed->server_ctx = fake_open(&bed->world, BED_SERVER_PID);
    bed->client_ctx = fake_open(&bed->world, BED_CLIENT_PID);

    const struct ptlrpc_options rpc_options = {.struct_bytes = sizeof(rpc_options),
                                               .requests_max = options->requests_max};

    assert_int_equal(ptlrpc_open(bed->server_ctx, NULL, NULL, &bed->server), 0);
    assert_int_equal(ptlrpc_open(bed->client_ctx, NULL, &rpc_options, &bed->client), 0);

    const struct ptlrpc_service_options service_options = {
        .struct_bytes = sizeof(service_options),
        .portal = BED_PORTAL,
        .name = "bed",
        .ops = ops,
        .op_count = BASE_ARRAY_LEN(ops),
        .rqs_max = options->rqs_max,
        .exports_max = options->exports_max,
        .user = bed,
        .connected = connected,
        .disconnected = disconnected,
    };

    assert_int_equal(ptlrpc_service_add(bed->server, &service_options, &bed->service), 0);
    bed->import = bed_import(bed, options);
    fake_settle(&bed->world);
    assert_int_equal(bed->state, PTLRPC_IMP_FULL);
    assert_string_equal(bed->connect_reply, "hello");
}

void
bed_release(struct bed *bed)
{
    const uint32_t count = bed->held_count;

    for (uint32_t i = 0; i < count; i++) {
        ptlrpc_rq_reply(bed->held[i], 0, 0);
    }
    (void)memmove(bed->held, bed->held + count, (bed->held_count - count) * sizeof(bed->held[0]));
    bed->held_count -= count;
}

void
bed_close(struct bed *bed)
{
    bed->world.filter = NULL;
    if (bed->client != NULL) {
        ptlrpc_close(bed->client);
    }
    if (bed->server != NULL) {
        ptlrpc_close(bed->server);
    }
    bed_release(bed); /* requests may outlive the engine, but not the context */
    assert_int_equal(fake_peer_references(bed->client_ctx), 0);
    assert_int_equal(fake_peer_references(bed->server_ctx), 0);
    lnet_close(bed->client_ctx);
    lnet_close(bed->server_ctx);
}

static void
done(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes, void *user)
{
    static uint64_t order;
    struct bed_call *call = user;

    call->done_count++;
    call->status = status;
    call->bytes = bytes;
    call->order = ++order;
    call->stages = *ptlrpc_request_stages(request);
    call->has_body = body != NULL;
    if (body != NULL) {
        assert_true(bytes <= sizeof(call->body));
        (void)memcpy(call->body, body, bytes);
    }
}

int
bed_send(struct ptlrpc_import *import, uint16_t opc, const void *body, uint32_t bytes,
         struct bed_call *call)
{
    struct ptlrpc_request *request = ptlrpc_request_take(import, opc);

    if (request == NULL) {
        return -ENOBUFS;
    }
    (void)memset(call, 0, sizeof(*call));
    call->request = request;
    if (bytes > 0 && bytes <= 8448) {
        (void)memcpy(ptlrpc_request_body(request), body, bytes);
    }
    return ptlrpc_request_send(request, bytes, done, call);
}

struct ptlrpc_op_stats
bed_op_stats(const struct bed *bed, uint16_t opc)
{
    struct ptlrpc_op_stats stats = {.opc = 0};

    for (uint32_t i = 0; ptlrpc_op_stats_get(bed->service, i, &stats) == 0; i++) {
        if (stats.opc == opc) {
            return stats;
        }
    }
    fail();
    return stats;
}

struct ptlrpc_service_stats
bed_stats(const struct bed *bed)
{
    struct ptlrpc_service_stats stats;

    ptlrpc_service_stats_get(bed->service, &stats);
    return stats;
}

/* Drops @message while *@count lasts. */
static enum fake_verdict
drop_counted(uint32_t *count)
{
    if (*count == 0) {
        return FAKE_PASS;
    }
    (*count)--;
    return FAKE_DROP;
}

enum fake_verdict
bed_drop_replies(struct fake_message *message, void *arg)
{
    return message->portal == PTLRPC_PORTAL_REPLY ? drop_counted(arg) : FAKE_PASS;
}

enum fake_verdict
bed_drop_requests(struct fake_message *message, void *arg)
{
    return message->portal == BED_PORTAL ? drop_counted(arg) : FAKE_PASS;
}
