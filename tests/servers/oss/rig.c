/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rig: see rig.h.
 */
#include "tests/servers/oss/rig.h"

#include "tests/support/pump.h"
#include "tests/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_NS UINT64_C(60000000000)

static struct pump pump;
static char run_dir[64];
static struct bulk *server_bulk;
static struct ptlrpc *server_rpc;
static struct oss *oss;
static struct rig_client clients[RIG_CLIENTS];

static struct lnet *
context_open(uint32_t pid, const char *address)
{
    const struct lnet_options options = {.struct_bytes = sizeof(options), .pid = pid, .seed = pid};
    const struct lnet_ni_options ni = {
        .struct_bytes = sizeof(ni), .net = "shm", .address = address, .run_dir = run_dir};
    struct lnet *ctx = NULL;

    assert_int_equal(lnet_open(&options, &ctx), 0);
    assert_int_equal(lnet_ni_add(ctx, &ni, NULL), 0);
    return ctx;
}

static void
server_open(const struct rig_options *options)
{
    const struct bulk_options bulk_options = {.struct_bytes = sizeof(bulk_options),
                                              .path = options->bulk_path,
                                              .xfers_max = options->xfers_max};
    const struct oss_options oss_options = {
        .struct_bytes = sizeof(oss_options),
        .reactors = options->reactors != 0 ? options->reactors : 1,
        .ost_count = 2,
        .store = options->store,
        .bytes_max = options->bytes_max != 0 ? options->bytes_max : UINT64_C(256) << 20,
        .prefault_bytes = 1,
        .no_lease = options->no_lease,
        .wall_offset_ns = UINT64_C(1700000000000000000),
    };

    pump.contexts[0] = context_open(1, "81");
    assert_int_equal(bulk_open(pump.contexts[0], &bulk_options, &server_bulk), 0);
    assert_int_equal(ptlrpc_open(pump.contexts[0], server_bulk, NULL, &server_rpc), 0);
    assert_int_equal(oss_open(server_rpc, &oss_options, &oss), 0);
}

static void
client_open(uint32_t i, const struct rig_options *options)
{
    const struct bulk_options bulk_options = {.struct_bytes = sizeof(bulk_options),
                                              .path = options->bulk_path};
    struct rig_client *client = &clients[i];
    struct ptlrpc_import_options import_options = {
        .struct_bytes = sizeof(import_options),
        .portal = PTLRPC_PORTAL_OST,
        .name = "rig",
        .max_rpcs_in_flight = 256,
        .timeout_ns = UINT64_C(100000000000),
    };
    struct bulk_region *region = NULL;
    void *address = NULL;

    client->ctx = context_open(2 + i, i == 0 ? "82" : "83");
    pump.contexts[1 + i] = client->ctx;
    assert_int_equal(bulk_open(client->ctx, &bulk_options, &client->bulk), 0);
    assert_int_equal(ptlrpc_open(client->ctx, client->bulk, NULL, &client->rpc), 0);
    assert_int_equal(bulk_region_alloc(client->bulk, RIG_BUFFER, &region, &address), 0);
    client->buffer = address;
    assert_int_equal(lnet_process_parse("1-81@shm", &import_options.target), 0);
    assert_int_equal(ptlrpc_import_open(client->rpc, &import_options, &client->import), 0);

    struct rig_call call;
    const struct ost_statfs_req req = {0};

    assert_int_equal(rig_do(i, OST_STATFS, &req, sizeof(req), &call), 0);
}

void
rig_open(const struct rig_options *options)
{
    static const struct rig_options usual;

    options = options != NULL ? options : &usual;
    (void)snprintf(run_dir, sizeof(run_dir), "/tmp/causeway-oss-test-XXXXXX");
    assert_non_null(mkdtemp(run_dir));
    (void)memset(&pump, 0, sizeof(pump));
    server_open(options);
    for (uint32_t i = 0; i < RIG_CLIENTS; i++) {
        client_open(i, options);
    }
}

void
rig_client_kill(uint32_t i)
{
    struct rig_client *client = &clients[i];

    if (client->ctx == NULL) {
        return;
    }
    ptlrpc_close(client->rpc);
    bulk_close(client->bulk);
    lnet_close(client->ctx);
    pump.contexts[1 + i] = NULL;
    client->ctx = NULL;
}

void
rig_close(void)
{
    for (uint32_t i = 0; i < RIG_CLIENTS; i++) {
        rig_client_kill(i);
    }
    ptlrpc_close(server_rpc);
    oss_close(oss);
    bulk_close(server_bulk);
    lnet_close(pump.contexts[0]);
    (void)rmdir(run_dir);
}

struct oss *
rig_oss(void)
{
    return oss;
}

struct rig_client *
rig_client(uint32_t client)
{
    return &clients[client];
}

struct oss_stats
rig_stats(void)
{
    struct oss_stats stats;

    oss_stats_get(oss, &stats);
    return stats;
}

struct ptlrpc_op_stats
rig_op_stats(uint16_t opc)
{
    struct ptlrpc_op_stats stats = {0};

    for (uint32_t i = 0; ptlrpc_op_stats_get(oss_service(oss), i, &stats) == 0; i++) {
        if (stats.opc == opc) {
            return stats;
        }
    }
    assert_true(false);
    return stats;
}

static void
call_done(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes, void *user)
{
    struct rig_call *call = user;

    (void)request;
    assert_false(call->is_done);
    call->is_done = true;
    call->status = status;
    call->bytes = bytes;
    if (bytes > 0) {
        (void)memcpy(call->reply.raw, body, bytes);
    }
}

void
rig_send(uint32_t client, uint16_t opc, const void *body, uint32_t bytes, struct rig_call *call)
{
    struct ptlrpc_request *request = ptlrpc_request_take(clients[client].import, opc);

    assert_non_null(request);
    call->is_done = false;
    (void)memset(&call->reply.io, 0, sizeof(call->reply.io));
    (void)memcpy(ptlrpc_request_body(request), body, bytes);
    assert_int_equal(ptlrpc_request_send(request, bytes, call_done, call), 0);
}

static bool
call_is_done(void *arg)
{
    return ((const struct rig_call *)arg)->is_done;
}

void
rig_wait(struct rig_call *call)
{
    assert_true(pump_until(&pump, call_is_done, call, LIMIT_NS));
}

int
rig_do(uint32_t client, uint16_t opc, const void *body, uint32_t bytes, struct rig_call *call)
{
    rig_send(client, opc, body, bytes, call);
    rig_wait(call);
    return call->status;
}

void
rig_run(uint64_t duration_ns)
{
    pump_for(&pump, duration_ns);
}

struct ost_object
rig_object(uint32_t i)
{
    return (struct ost_object){.fid = {FID_SEQ_FIRST, i + 1, 0}};
}

void
rig_io_send(uint32_t client, uint16_t opc, uint32_t object, uint64_t offset, uint64_t length,
            uint32_t flags, struct rig_call *call, struct bulk_export **export_out)
{
    static unsigned char body[RIG_REPLY_BYTES];
    struct rig_client *c = &clients[client];
    struct ost_io_req req = {
        .object = rig_object(object), .offset = offset, .length = length, .flags = flags};
    uint32_t bytes = sizeof(req);

    *export_out = NULL;
    if (opc == OST_WRITE && (flags & OST_F_CRC) != 0) {
        req.crc32c = bulk_crc32c(0, c->buffer, length);
    }
    if ((flags & OST_F_BULK) != 0) {
        const struct iovec iov = {.iov_base = c->buffer, .iov_len = length};

        assert_int_equal(bulk_export(c->bulk, ptlrpc_import_peer(c->import), &iov, 1,
                                     opc == OST_WRITE ? LNET_ACCESS_READ : LNET_ACCESS_WRITE,
                                     export_out),
                         0);
        req.handle_bytes = bulk_export_pack(*export_out, body + bytes, BULK_HANDLE_BYTES_MAX);
        bytes += req.handle_bytes;
    } else if (opc == OST_WRITE && (flags & OST_F_INLINE) != 0) {
        (void)memcpy(body + bytes, c->buffer, length);
        bytes += (uint32_t)length;
    }
    (void)memcpy(body, &req, sizeof(req));
    rig_send(client, opc, body, bytes, call);
}

static void
closed(struct bulk *bulk, void *user)
{
    (void)bulk;
    *(bool *)user = true;
}

static bool
flag_is_set(void *arg)
{
    return *(const bool *)arg;
}

int
rig_io(uint32_t client, uint16_t opc, uint32_t object, uint64_t offset, uint64_t length,
       uint32_t flags, struct rig_call *call)
{
    struct bulk_export *export_ = NULL;
    bool is_closed = false;

    rig_io_send(client, opc, object, offset, length, flags, call, &export_);
    rig_wait(call);
    if (export_ != NULL && bulk_export_close(export_, closed, &is_closed) == -EINPROGRESS) {
        assert_true(pump_until(&pump, flag_is_set, &is_closed, LIMIT_NS));
    }
    if (call->status == 0 && opc == OST_READ && (call->reply.io.flags & OST_F_INLINE) != 0) {
        assert_int_equal(call->bytes, sizeof(struct ost_io_rep) + call->reply.io.length);
        (void)memcpy(clients[client].buffer, call->reply.raw + sizeof(struct ost_io_rep),
                     call->reply.io.length);
    }
    return call->status;
}

struct move {
    bool is_done;
    int status;
};

static void
move_done(struct bulk *bulk, const struct bulk_result *result, void *user)
{
    struct move *move = user;

    (void)bulk;
    move->is_done = true;
    move->status = result->status;
}

static bool
move_is_done(void *arg)
{
    return ((const struct move *)arg)->is_done;
}

int
rig_lease_move(uint32_t client, const struct rig_call *lease, bool is_write, uint64_t length)
{
    struct rig_client *c = &clients[client];
    const struct iovec iov = {.iov_base = c->buffer, .iov_len = length};
    struct move move = {false, 0};
    const struct bulk_request request = {
        .op = is_write ? BULK_PUSH : BULK_PULL,
        .peer = ptlrpc_import_peer(c->import),
        .handle = lease->reply.raw + sizeof(struct ost_io_rep),
        .handle_bytes = lease->reply.io.handle_bytes,
        .local = &iov,
        .local_count = 1,
        .length_bytes = length,
        .done = move_done,
        .user = &move,
    };
    const int rc = bulk_transfer(c->bulk, &request, NULL);

    if (rc != 0) {
        return rc;
    }
    assert_true(pump_until(&pump, move_is_done, &move, LIMIT_NS));
    return move.status;
}

int
rig_commit(uint32_t client, uint32_t object, uint64_t lease, uint64_t length, struct rig_call *call)
{
    const struct ost_commit_req req = {
        .object = rig_object(object), .lease = lease, .length = length};

    return rig_do(client, OST_COMMIT, &req, sizeof(req), call);
}

int
rig_release(uint32_t client, uint64_t lease)
{
    const struct {
        struct ost_release_req head;
        uint64_t lease;
    } req = {{.count = 1}, lease};
    static struct rig_call call;

    return rig_do(client, OST_RELEASE, &req, sizeof(req), &call);
}
