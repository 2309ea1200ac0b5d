/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hostile clients of the object server, over lo.
 *
 * The input is a list of records: a byte that says what to do, a byte of length, and that many
 * bytes. Requests are made from a sound one with the bytes laid over it, so that the checks behind
 * the first ones are reached too; leases are copied to, committed, released and forgotten; the
 * client leaves and comes back; time passes. What must hold: no memory error, no assertion, each
 * request is answered, and when the client has left nothing is lent any more, and what is destroyed
 * has given its memory back.
 */
#include "causeway/server.h"
#include "ptlrpc/proto/ost.h"

#include "base/assert.h"

#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define REQUESTS_MAX      48
#define OBJECTS           4
#define INPUTS_PER_SERVER 500
#define BUFFER_BYTES      (UINT64_C(1) << 20)
#define BODY_BYTES        8448u
#define SECOND_NS         UINT64_C(1000000000)

static struct lnet *ctx;
static struct bulk *bulk;
static struct ptlrpc *rpc;
static struct oss *oss;
static struct ptlrpc_import *import;
static bool import_is_closed;
static uint64_t now_ns = SECOND_NS;
static uint32_t sent_count, done_count;
static unsigned char buffer[BUFFER_BYTES];
static unsigned char lease_reply[BODY_BYTES]; /* the newest */
static uint32_t lease_reply_bytes;

static void
poll_for(uint64_t step_ns, uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        now_ns += step_ns;
        (void)lnet_poll(ctx, now_ns, 64);
    }
}

static void
state_changed(struct ptlrpc_import *of, enum ptlrpc_import_state state, int status,
              const void *data, uint32_t bytes, void *user)
{
    (void)of;
    (void)status;
    (void)data;
    (void)bytes;
    (void)user;
    if (state == PTLRPC_IMP_CLOSED) {
        import_is_closed = true;
    }
}

static void
client_open(void)
{
    struct ptlrpc_import_options options = {.struct_bytes = sizeof(options),
                                            .portal = PTLRPC_PORTAL_OST,
                                            .name = "fuzz",
                                            .max_rpcs_in_flight = 64,
                                            .state_changed = state_changed};

    BASE_ASSERT(lnet_process_parse("0@lo", &options.target) == 0);
    BASE_ASSERT(ptlrpc_import_open(rpc, &options, &import) == 0);
    import_is_closed = false;
    poll_for(1, 8);
}

static void
client_close(void)
{
    struct oss_stats stats;

    ptlrpc_import_close(import);
    for (uint32_t i = 0; i < 100000 && !import_is_closed; i++) {
        poll_for(1000000, 1);
    }
    BASE_ASSERT(import_is_closed);
    BASE_ASSERT(done_count == sent_count);
    poll_for(1000000, 20);
    oss_stats_get(oss, &stats);
    BASE_ASSERT(stats.leases_out == 0);
    lease_reply_bytes = 0;
}

static void
all_open(void)
{
    const struct lnet_options lnet_options = {.struct_bytes = sizeof(lnet_options), .seed = 1};
    const struct oss_options options = {.struct_bytes = sizeof(options),
                                        .reactors = 1,
                                        .ost_count = 1,
                                        .bytes_max = UINT64_C(8) << 20,
                                        .objects_max = 64,
                                        .prefault_bytes = 1};

    BASE_ASSERT(lnet_open(&lnet_options, &ctx) == 0);
    BASE_ASSERT(bulk_open(ctx, NULL, &bulk) == 0);
    BASE_ASSERT(ptlrpc_open(ctx, bulk, NULL, &rpc) == 0);
    BASE_ASSERT(oss_open(rpc, &options, &oss) == 0);
    sent_count = done_count = 0;
    lease_reply_bytes = 0;
}

static void
all_close(void)
{
    ptlrpc_close(rpc);
    oss_close(oss);
    bulk_close(bulk);
    lnet_close(ctx);
}

static void
request_done(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes,
             void *user)
{
    struct ost_io_rep rep;

    (void)request;
    if (user != NULL) {
        (void)bulk_export_close(user, NULL, NULL);
    }
    done_count++;
    if (status == 0 && bytes >= sizeof(rep)) {
        (void)memcpy(&rep, body, sizeof(rep));
        if ((rep.flags & OST_F_LEASE) != 0 && rep.lease != 0) {
            (void)memcpy(lease_reply, body, bytes);
            lease_reply_bytes = bytes;
        }
    }
}

static struct ost_object
object_at(uint32_t i)
{
    return (struct ost_object){.fid = {FID_SEQ_FIRST, i % OBJECTS + 1, 0}};
}

static uint64_t
number(const uint8_t *data, uint32_t bytes, uint32_t at)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < 4 && at + i < bytes; i++) {
        value |= (uint64_t)data[at + i] << (8 * i);
    }
    return value;
}

/* Sends @body with the rest of the record laid over its start or not. */
static void
request_send(uint16_t opc, unsigned char *body, uint32_t bytes, const uint8_t *over,
             uint32_t over_bytes, void *user)
{
    struct ptlrpc_request *request = ptlrpc_request_take(import, opc);

    if (request == NULL) {
        if (user != NULL) {
            (void)bulk_export_close(user, NULL, NULL);
        }
        return;
    }
    (void)memcpy(body, over, base_min_u32(over_bytes, BODY_BYTES));
    bytes = base_max_u32(bytes, over_bytes);
    (void)memcpy(ptlrpc_request_body(request), body, bytes);
    BASE_ASSERT(ptlrpc_request_send(request, bytes, request_done, user) == 0);
    sent_count++;
}

/* A READ or WRITE: flags, object, offset, length, then what goes over it. */
static void
io_send(uint16_t opc, const uint8_t *data, uint32_t bytes)
{
    static unsigned char body[BODY_BYTES];
    const uint32_t flags = (uint32_t)number(data, bytes, 0) & 0xff;
    struct ost_io_req req = {.object = object_at((uint32_t)number(data, bytes, 1)),
                             .offset = number(data, bytes, 2) & 0xffffff,
                             .length = number(data, bytes, 5) & 0x1fffff,
                             .flags = flags};
    struct bulk_export *export_ = NULL;
    uint32_t size = sizeof(req);

    (void)memset(body, 0x11, sizeof(body));
    if ((flags & OST_F_BULK) != 0) {
        const struct iovec iov = {buffer, base_min_u64(req.length, BUFFER_BYTES)};

        if (bulk_export(bulk, ptlrpc_import_peer(import), &iov, 1,
                        LNET_ACCESS_READ | LNET_ACCESS_WRITE, &export_) != 0) {
            return;
        }
        req.handle_bytes = bulk_export_pack(export_, body + size, BULK_HANDLE_BYTES_MAX);
        size += req.handle_bytes;
    } else if (opc == OST_WRITE && (flags & OST_F_INLINE) != 0) {
        req.length %= OST_INLINE_BYTES_MAX + 1;
        size += (uint32_t)req.length;
    }
    (void)memcpy(body, &req, sizeof(req));
    request_send(opc, body, size, data + 8, bytes > 8 ? bytes - 8 : 0, export_);
}

static void
moved(struct bulk *of, const struct bulk_result *result, void *user)
{
    (void)of;
    (void)result;
    (void)user;
    done_count++;
}

/* Copies to or from the newest lease. */
static void
lease_move(const uint8_t *data, uint32_t bytes)
{
    struct ost_io_rep rep;

    if (lease_reply_bytes == 0) {
        return;
    }
    (void)memcpy(&rep, lease_reply, sizeof(rep));
    const struct iovec iov = {buffer, BUFFER_BYTES};
    const struct bulk_request request = {
        .op = number(data, bytes, 0) & 1 ? BULK_PUSH : BULK_PULL,
        .peer = ptlrpc_import_peer(import),
        .handle = lease_reply + sizeof(rep),
        .handle_bytes = rep.handle_bytes,
        .local = &iov,
        .local_count = 1,
        .length_bytes = base_min_u64(rep.length, BUFFER_BYTES),
        .done = moved,
    };

    if (bulk_transfer(bulk, &request, NULL) == 0) {
        sent_count++;
    }
}

/* COMMIT or RELEASE of the newest lease. */
static void
lease_end(bool is_commit, const uint8_t *data, uint32_t bytes)
{
    static unsigned char body[BODY_BYTES];
    struct ost_io_rep rep = {0};

    if (lease_reply_bytes > 0) {
        (void)memcpy(&rep, lease_reply, sizeof(rep));
    }
    if (is_commit) {
        const struct ost_commit_req req = {
            .object = object_at((uint32_t)number(data, bytes, 0)),
            .lease = rep.lease,
            .length = number(data, bytes, 1) % (rep.length + 2),
        };

        (void)memcpy(body, &req, sizeof(req));
        request_send(OST_COMMIT, body, sizeof(req), data + 4, bytes > 4 ? bytes - 4 : 0, NULL);
    } else {
        const struct ost_release_req req = {.count = 1};

        (void)memcpy(body, &req, sizeof(req));
        (void)memcpy(body + sizeof(req), &rep.lease, sizeof(rep.lease));
        request_send(OST_RELEASE, body, sizeof(req) + 8, data, bytes, NULL);
    }
}

/* One of the small ops, all alike: an object and two numbers. */
static void
small_send(uint16_t opc, const uint8_t *data, uint32_t bytes)
{
    static unsigned char body[BODY_BYTES];
    const struct ost_punch_req req = {
        .object = object_at((uint32_t)number(data, bytes, 0)),
        .start = number(data, bytes, 1) & 0xffffff,
        .end = bytes & 1 ? UINT64_MAX : number(data, bytes, 4),
    };

    (void)memset(body, 0, sizeof(body));
    (void)memcpy(body, &req, sizeof(req));
    request_send(opc, body, sizeof(req), data + 8, bytes > 8 ? bytes - 8 : 0, NULL);
}

static void
destroy_send(const uint8_t *data, uint32_t bytes)
{
    static unsigned char body[BODY_BYTES];
    const struct ost_destroy_req req = {.count = OBJECTS};

    (void)memcpy(body, &req, sizeof(req));
    for (uint32_t i = 0; i < OBJECTS; i++) {
        const struct ost_object object = object_at(i);

        (void)memcpy(body + sizeof(req) + i * sizeof(object), &object, sizeof(object));
    }
    request_send(OST_DESTROY, body, sizeof(req) + OBJECTS * sizeof(struct ost_object), data, bytes,
                 NULL);
}

static void
record(uint8_t what, const uint8_t *data, uint32_t bytes)
{
    static const uint16_t small[] = {OST_GETATTR, OST_SETATTR, OST_CREATE, OST_PUNCH,
                                     OST_STATFS,  OST_SYNC,    OST_SEEK,   OST_PUNCH};
    static unsigned char body[BODY_BYTES];

    switch (what % 12) {
    case 0:
    case 1:
        io_send(OST_WRITE, data, bytes);
        break;
    case 2:
    case 3:
        io_send(OST_READ, data, bytes);
        break;
    case 4:
        lease_move(data, bytes);
        break;
    case 5:
        lease_end(true, data, bytes);
        break;
    case 6:
        lease_end(false, data, bytes);
        break;
    case 7:
        small_send(small[(what / 12) % BASE_ARRAY_LEN(small)], data, bytes);
        break;
    case 8:
        destroy_send(data, bytes);
        break;
    case 9: /* all of the body is the input's */
        request_send((uint16_t)(what / 12), body, 0, data, bytes, NULL);
        break;
    case 10:
        if (what / 12 == 0) {
            client_close();
            client_open();
        } else {
            poll_for((uint64_t)(what / 12) * 2 * SECOND_NS, 1);
        }
        break;
    default:
        poll_for(1000, what / 12);
        break;
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static unsigned char body[BODY_BYTES];
    static uint32_t inputs;
    struct oss_stats stats;
    uint32_t count = 0;

    /* Opening takes most of the time; objects of other names than ours stay until then. */
    if (inputs % INPUTS_PER_SERVER == 0) {
        all_open();
    }
    client_open();
    while (bytes >= 2 && count++ < REQUESTS_MAX) {
        const uint32_t length = (uint32_t)base_min_u64(data[1], bytes - 2);

        record(data[0], data + 2, length);
        data += 2 + length;
        bytes -= 2 + length;
    }
    client_close();
    client_open();
    destroy_send(body, 0);
    poll_for(1000, 20);
    client_close();
    oss_stats_get(oss, &stats);
    BASE_ASSERT(stats.objects != 0 || stats.bytes_used == 0);
    if (++inputs % INPUTS_PER_SERVER == 0) {
        all_close();
    }
    return 0;
}
