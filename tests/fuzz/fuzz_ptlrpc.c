/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hostile requests to a service and hostile replies to a client, over the fake network.
 *
 * The input is a list of records: a byte that says what to do, a byte of length, and that many
 * bytes. Messages are the bytes themselves, or a valid message of the other side with the bytes
 * laid over it, so that the checks behind the first ones are reached too. What must hold: no memory
 * error, no assertion, each request of the client ends once, and a client that comes later is
 * served.
 */
#include "causeway/ptlrpc.h"
#include "ptlrpc/proto/hdr.h"
#include "tests/ptlrpc/fake_lnet.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define PORTAL        12
#define REQUESTS_MAX  64
#define HELD_MAX      1024
#define MESSAGE_BYTES 1024

enum fuzz_opc { FUZZ_ECHO = 1, FUZZ_ONCE, FUZZ_HOLD };

static struct fake_world world;
static struct lnet *server_ctx;
static struct lnet *client_ctx;
static struct ptlrpc *server;
static struct ptlrpc *client;
static struct ptlrpc_service *service;
static struct ptlrpc_import *import;
static struct ptlrpc_rq *held[HELD_MAX];
static uint32_t held_count;
static uint32_t sent_count;
static uint32_t done_count;

/* The last valid message to each side. */
static struct fake_message last[2];
static unsigned char last_data[2][MESSAGE_BYTES];

static void
echo_handler(struct ptlrpc_rq *rq)
{
    uint32_t bytes = 0;
    const void *body = ptlrpc_rq_body(rq, &bytes);

    (void)memcpy(ptlrpc_rq_reply_body(rq), body, bytes);
    ptlrpc_rq_reply(rq, 0, bytes);
}

static void
hold_handler(struct ptlrpc_rq *rq)
{
    if (held_count == HELD_MAX) {
        ptlrpc_rq_reply(rq, 0, 0);
        return;
    }
    held[held_count++] = rq;
}

static const struct ptlrpc_op ops[] = {
    {.opc = FUZZ_ECHO, .name = "echo", .handler = echo_handler},
    {.opc = FUZZ_ONCE,
     .name = "once",
     .handler = echo_handler,
     .flags = PTLRPC_OP_ONCE,
     .body_bytes_min = 4},
    {.opc = FUZZ_HOLD, .name = "hold", .handler = hold_handler, .flags = PTLRPC_OP_ONCE},
};

static enum fake_verdict
remember(struct fake_message *message, void *arg)
{
    const uint32_t side = message->to == server_ctx ? 0 : 1;

    (void)arg;
    if (message->bytes <= MESSAGE_BYTES) {
        last[side] = *message;
        (void)memcpy(last_data[side], message->data, message->bytes);
    }
    return FAKE_PASS;
}

static void
done(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes, void *user)
{
    static unsigned char sink[16384];
    bool *is_done = user;

    (void)request;
    (void)status;
    BASE_ASSERT(!*is_done);
    *is_done = true;
    done_count++;
    if (body != NULL) {
        (void)memcpy(sink, body, bytes);
    }
}

static void
import_open(void)
{
    const struct ptlrpc_import_options options = {
        .struct_bytes = sizeof(options),
        .portal = PORTAL,
        .target = fake_process(1),
        .max_rpcs_in_flight = 4,
        .timeout_ns = 1000000000,
    };

    BASE_ASSERT(ptlrpc_import_open(client, &options, &import) == 0);
}

static void
world_open(void)
{
    const struct ptlrpc_options options = {.struct_bytes = sizeof(options),
                                           .requests_max = REQUESTS_MAX};
    const struct ptlrpc_service_options service_options = {.struct_bytes = sizeof(service_options),
                                                           .portal = PORTAL,
                                                           .ops = ops,
                                                           .op_count = BASE_ARRAY_LEN(ops),
                                                           .rqs_max = 16,
                                                           .exports_max = 8};

    world = (struct fake_world){
        .now_ns = 1000000, .put_bytes_max = 16384, .filter = remember, .filter_arg = NULL};
    server_ctx = fake_open(&world, 1);
    client_ctx = fake_open(&world, 2);
    BASE_ASSERT(ptlrpc_open(server_ctx, NULL, &options, &server) == 0);
    BASE_ASSERT(ptlrpc_open(client_ctx, NULL, &options, &client) == 0);
    BASE_ASSERT(ptlrpc_service_add(server, &service_options, &service) == 0);
    held_count = 0;
    sent_count = 0;
    done_count = 0;
    import_open();
    fake_settle(&world);
}

static void
request_send(uint16_t opc, const uint8_t *body, uint32_t bytes, bool *is_done)
{
    struct ptlrpc_request *request = ptlrpc_request_take(import, opc);

    if (request == NULL) {
        return;
    }
    if (bytes > 0) {
        (void)memcpy(ptlrpc_request_body(request), body, bytes);
    }
    *is_done = false;
    if (ptlrpc_request_send(request, bytes, done, is_done) == 0) {
        sent_count++;
    }
}

/* Injects a message into side @to: @bytes at @data, over the last valid one if @is_over. */
static void
inject(uint32_t to, const uint8_t *data, uint32_t bytes, bool is_over)
{
    unsigned char message[MESSAGE_BYTES] = {0};
    uint32_t message_bytes = bytes;
    struct ptlrpc_hdr hdr = {.xid = 0};

    if (is_over && bytes > 2) {
        const uint32_t at = (uint32_t)(data[0] | (data[1] << 8)) % sizeof(struct ptlrpc_hdr);
        const uint32_t over = base_min_u32(bytes - 2, MESSAGE_BYTES - at);

        message_bytes = last[to].bytes;
        (void)memcpy(message, last_data[to], message_bytes);
        (void)memcpy(message + at, data + 2, over);
    } else if (bytes > 0) {
        (void)memcpy(message, data, bytes);
    }
    (void)memcpy(&hdr, message, sizeof(hdr));
    fake_inject(to == 0 ? client_ctx : server_ctx, to == 0 ? server_ctx : client_ctx,
                to == 0 ? PORTAL : PTLRPC_PORTAL_REPLY, hdr.xid, message, message_bytes);
}

static void
held_release(void)
{
    while (held_count > 0) {
        ptlrpc_rq_reply(held[--held_count], 0, 0);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static bool is_done[65536];
    size_t at = 0;
    uint32_t records = 0;

    world_open();
    while (at + 2 <= bytes && records < 200) {
        const uint8_t what = data[at];
        const uint32_t length = base_min_u32(data[at + 1], (uint32_t)(bytes - at - 2));
        const uint8_t *record = data + at + 2;

        at += 2 + length;
        records++;
        switch (what % 10) {
        case 0:
        case 1:
            inject(what % 10, record, length, false);
            break;
        case 2:
        case 3:
            inject(what % 10 - 2, record, length, true);
            break;
        case 4:
            request_send((uint16_t)(1 + length % 3), record, length, &is_done[sent_count]);
            break;
        case 5:
            (void)lnet_poll(server_ctx, world.now_ns, 1 + length);
            break;
        case 6:
            (void)lnet_poll(client_ctx, world.now_ns, 1 + length);
            break;
        case 7:
            fake_pass(&world, 700000000, 1);
            break;
        case 8:
            held_release();
            break;
        case 9:
            fake_cut(client_ctx, server_ctx, -104);
            break;
        }
    }
    fake_settle(&world);
    held_release();
    ptlrpc_import_close(import);
    fake_pass(&world, 8000000000, 16);
    BASE_ASSERT(done_count == sent_count);
    /* What the hostile side did to its own export is its own affair. */
    held_release();
    import_open();
    fake_pass(&world, 8000000000, 16);
    request_send(FUZZ_ECHO, NULL, 0, &is_done[sent_count]);
    fake_settle(&world);
    BASE_ASSERT(done_count == sent_count);
    ptlrpc_close(client);
    ptlrpc_close(server);
    held_release();
    lnet_close(client_ctx);
    lnet_close(server_ctx);
    return 0;
}
