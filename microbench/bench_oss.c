/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads and writes of one object over shm: what does the object server add to the copy?
 *
 * One client on the second core reads from or writes to an object server in memory on the first,
 * one request at a time, over an object that exists and whose pages both sides have touched. By
 * way: inline; bulk (the server copies, between its memory and a pool region of the client's);
 * lease (the client copies: WRITE is two round trips, READ's RELEASE goes along unwaited). The
 * stores: mem, and null, which has no object to look at.
 *
 * server_p50_ns is the median time that the server works on one request (of a lease: the READ or
 * WRITE; commit_p50_ns the COMMIT), as the reply tells. It is wanted below 1 us inline at 4 KiB and
 * below 2 us with a lease. ratio_to_limit is the median of a memcpy() of that size over p50_ns;
 * with a lease it approaches 1 as size grows, for what is added is one or two round trips of about
 * 0.3 us (far cores: 1 us) and the export of the memory.
 */
#include "base/hist.h"
#include "causeway/server.h"
#include "microbench/bench.h"
#include "microbench/limits.h"
#include "microbench/pair.h"
#include "ptlrpc/proto/ost.h"

#include <errno.h>
#include <string.h>

#define REGION_BYTES (UINT64_C(4) << 20)
#define BODY_BYTES   8448u

enum way { WAY_INLINE, WAY_BULK, WAY_LEASE };

static const char *const way_names[] = {"inline", "bulk", "lease"};
static const uint32_t way_flags[] = {OST_F_INLINE, OST_F_BULK, OST_F_LEASE};

struct setup {
    const char *store;
    uint16_t opc;
    enum way way;
    uint64_t bytes;
};

struct side {
    struct bulk *bulk;
    struct ptlrpc *rpc;
    struct oss *oss;
    struct ptlrpc_import *import;
    unsigned char *buffer;
    struct bulk_export *export_; /* of the buffer, for all requests */
    uint32_t handle_bytes;
    unsigned char handle[BULK_HANDLE_BYTES_MAX];
};

/* One request, or one copy. */
struct call {
    bool is_done;
    int status;
    uint32_t service_ns;
    uint32_t bytes;
    unsigned char body[BODY_BYTES];
};

static struct base_hist trips, services, commits;

static int
side_open(struct side *side, struct pair *pair)
{
    int rc = bulk_open(pair->ctx, NULL, &side->bulk);

    return rc != 0 ? rc : ptlrpc_open(pair->ctx, side->bulk, NULL, &side->rpc);
}

static int
child_setup(struct pair *pair, void *arg)
{
    static struct side side;
    const struct setup *setup = arg;
    const struct oss_options options = {.struct_bytes = sizeof(options),
                                        .reactors = 1,
                                        .ost_count = 1,
                                        .store = setup->store,
                                        .bytes_max = UINT64_C(64) << 20,
                                        .prefault_bytes = UINT64_C(16) << 20};
    const int rc = side_open(&side, pair);

    return rc != 0 ? rc : oss_open(side.rpc, &options, &side.oss);
}

static void
request_done(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes,
             void *user)
{
    struct call *call = user;

    call->is_done = true;
    call->status = status;
    call->service_ns = ptlrpc_request_stages(request)->server_service_ns;
    call->bytes = bytes;
    if (bytes > 0) {
        (void)memcpy(call->body, body, bytes);
    }
}

static void
move_done(struct bulk *bulk, const struct bulk_result *result, void *user)
{
    struct call *call = user;

    (void)bulk;
    call->is_done = true;
    call->status = result->status;
}

/* Waits for @call. Returns its status. */
static int
call_wait(struct pair *pair, const struct call *call)
{
    const uint64_t end_ns = base_tsc_now_ns(&pair->tsc) + UINT64_C(10000000000);

    while (!call->is_done) {
        pair_poll(pair);
        if (base_tsc_now_ns(&pair->tsc) > end_ns) {
            return -ETIMEDOUT;
        }
    }
    return call->status;
}

/* Sends @opc with @head, and @tail after it. @call NULL: nobody waits. */
static int
request_send(struct side *side, uint16_t opc, const void *head, uint32_t head_bytes,
             const void *tail, uint32_t tail_bytes, struct call *call)
{
    struct ptlrpc_request *request = ptlrpc_request_take(side->import, opc);

    if (request == NULL) {
        return -ENOBUFS;
    }
    unsigned char *body = ptlrpc_request_body(request);

    (void)memcpy(body, head, head_bytes);
    if (tail_bytes > 0) {
        (void)memcpy(body + head_bytes, tail, tail_bytes);
    }
    if (call != NULL) {
        call->is_done = false;
    }
    return ptlrpc_request_send(request, head_bytes + tail_bytes, call != NULL ? request_done : NULL,
                               call);
}

/* Copies by a lease, and ends it. */
static int
lease_use(struct pair *pair, struct side *side, const struct setup *setup,
          const struct ost_object *object, struct call *call)
{
    static struct call move;
    struct ost_io_rep rep;
    const struct iovec iov = {.iov_base = side->buffer, .iov_len = setup->bytes};

    (void)memcpy(&rep, call->body, sizeof(rep));
    if ((rep.flags & OST_F_LEASE) == 0 || rep.length != setup->bytes) {
        return -EPROTO;
    }
    const struct bulk_request request = {
        .op = setup->opc == OST_WRITE ? BULK_PUSH : BULK_PULL,
        .peer = pair->peer,
        .handle = call->body + sizeof(rep),
        .handle_bytes = rep.handle_bytes,
        .local = &iov,
        .local_count = 1,
        .length_bytes = setup->bytes,
        .done = move_done,
        .user = &move,
    };

    move.is_done = false;
    int rc = bulk_transfer(side->bulk, &request, NULL);

    rc = rc != 0 ? rc : call_wait(pair, &move);
    if (rc != 0) {
        return rc;
    }
    if (setup->opc == OST_READ) {
        const struct ost_release_req release = {.count = 1};

        return request_send(side, OST_RELEASE, &release, sizeof(release), &rep.lease,
                            sizeof(rep.lease), NULL);
    }
    const struct ost_commit_req commit = {
        .object = *object, .lease = rep.lease, .length = setup->bytes};

    rc = request_send(side, OST_COMMIT, &commit, sizeof(commit), NULL, 0, call);
    rc = rc != 0 ? rc : call_wait(pair, call);
    base_hist_record(&commits, call->service_ns);
    return rc;
}

/* One READ or WRITE, with all that belongs to it. */
static int
io_run(struct pair *pair, struct side *side, const struct setup *setup)
{
    static struct call call;
    const bool is_write = setup->opc == OST_WRITE;
    struct ost_io_req req = {
        .object = {.fid = FID_ROOT}, .length = setup->bytes, .flags = way_flags[setup->way]};
    const void *tail = NULL;
    uint32_t tail_bytes = 0;

    if (setup->way == WAY_BULK) {
        tail = side->handle;
        tail_bytes = side->handle_bytes;
        req.handle_bytes = side->handle_bytes;
    } else if (setup->way == WAY_INLINE && is_write) {
        tail = side->buffer;
        tail_bytes = (uint32_t)setup->bytes;
    }
    int rc = request_send(side, setup->opc, &req, sizeof(req), tail, tail_bytes, &call);

    rc = rc != 0 ? rc : call_wait(pair, &call);
    if (rc != 0) {
        return rc;
    }
    base_hist_record(&services, call.service_ns);
    if (setup->way == WAY_LEASE) {
        return lease_use(pair, side, setup, &req.object, &call);
    }
    if (setup->way == WAY_INLINE && !is_write) {
        (void)memcpy(side->buffer, call.body + sizeof(struct ost_io_rep), setup->bytes);
    }
    return 0;
}

static int
client_open(struct side *side, struct pair *pair)
{
    const struct ptlrpc_import_options options = {
        .struct_bytes = sizeof(options),
        .portal = PTLRPC_PORTAL_OST,
        .target = lnet_peer_process(pair->peer),
        .name = "bench",
    };
    struct bulk_region *region = NULL;
    void *address = NULL;
    int rc = side_open(side, pair);

    if (rc == 0) {
        rc = bulk_region_alloc(side->bulk, REGION_BYTES, &region, &address);
    }
    if (rc == 0) {
        rc = ptlrpc_import_open(side->rpc, &options, &side->import);
    }
    if (rc == 0) {
        const struct iovec iov = {.iov_base = address, .iov_len = REGION_BYTES};

        side->buffer = address;
        (void)memset(side->buffer, 1, REGION_BYTES);
        rc = bulk_export(side->bulk, pair->peer, &iov, 1, LNET_ACCESS_READ | LNET_ACCESS_WRITE,
                         &side->export_);
    }
    if (rc == 0) {
        side->handle_bytes = bulk_export_pack(side->export_, side->handle, sizeof(side->handle));
    }
    return rc;
}

static void
client_close(struct side *side)
{
    if (side->rpc != NULL) {
        ptlrpc_close(side->rpc);
    }
    bulk_close(side->bulk);
}

/* The object's bytes are there, and what is measured ran often enough to be warm. */
static int
warm_up(struct pair *pair, struct side *side, const struct setup *setup)
{
    const struct setup write = {.store = setup->store,
                                .opc = OST_WRITE,
                                .way = setup->way == WAY_INLINE ? WAY_INLINE : WAY_BULK,
                                .bytes = setup->bytes};
    int rc = io_run(pair, side, &write);

    for (uint32_t i = 0; i < 32 && rc == 0; i++) {
        rc = io_run(pair, side, setup);
    }
    base_hist_init(&trips);
    base_hist_init(&services);
    base_hist_init(&commits);
    return rc;
}

static void
report(struct bench_state *state, const struct setup *setup, const double *limits_bps)
{
    const double p50_ns = (double)base_hist_percentile(&trips, 0.5);

    state->items = state->iterations;
    state->bytes = state->iterations * setup->bytes;
    bench_counter(state, "p50_ns", p50_ns, BENCH_COUNTER_PLAIN);
    bench_counter(state, "p50_bytes_per_second", 1e9 * (double)setup->bytes / p50_ns,
                  BENCH_COUNTER_PLAIN);
    bench_counter(state, "server_p50_ns", (double)base_hist_percentile(&services, 0.5),
                  BENCH_COUNTER_PLAIN);
    if (commits.count > 0) {
        bench_counter(state, "commit_p50_ns", (double)base_hist_percentile(&commits, 0.5),
                      BENCH_COUNTER_PLAIN);
    }
    if (!state->is_smoke) {
        const double limit_ns = 2e9 * (double)setup->bytes / (limits_bps[0] + limits_bps[1]);

        bench_counter(state, "ratio_to_limit", limit_ns / p50_ns, BENCH_COUNTER_PLAIN);
        bench_label(state, "%s, limit: memcpy", way_names[setup->way]);
    }
}

static void
measure(struct bench_state *state, const char *store, uint16_t opc)
{
    struct setup setup = {.store = store,
                          .opc = opc,
                          .way = (enum way)state->args[1],
                          .bytes = (uint64_t)state->args[0]};
    struct side side = {.rpc = NULL};
    double limits_bps[2] = {1, 1};
    struct pair pair;
    uint64_t total_ticks = 0;
    int rc = pair_open(&pair, child_setup, &setup);

    if (rc != 0) {
        bench_skip(state, "two processes over shm: %s", lnet_error_name(rc));
        return;
    }
    pair_pause(&pair);
    if (!state->is_smoke) {
        rc = limits_memcpy_bps(setup.bytes, LIMITS_WARM, &limits_bps[0]);
    }
    pair_resume(&pair);
    rc = rc != 0 ? rc : client_open(&side, &pair);
    rc = rc != 0 ? rc : warm_up(&pair, &side, &setup);
    for (uint64_t i = 0; i < state->iterations && rc == 0; i++) {
        const uint64_t start = base_stamp(&pair.tsc);

        rc = io_run(&pair, &side, &setup);
        const uint64_t ticks = base_stamp(&pair.tsc) - start;

        total_ticks += ticks;
        base_hist_record(&trips, base_stamp_ns(&pair.tsc, ticks));
    }
    pair_pause(&pair);
    if (rc == 0 && !state->is_smoke) {
        rc = limits_memcpy_bps(setup.bytes, LIMITS_WARM, &limits_bps[1]);
    }
    pair_resume(&pair);
    const uint64_t total_ns = base_stamp_ns(&pair.tsc, total_ticks);

    client_close(&side);
    pair_close(&pair);
    if (rc != 0) {
        bench_fail(state, "%s", lnet_error_name(rc));
        return;
    }
    bench_set_elapsed(state, total_ns);
    report(state, &setup, limits_bps);
}

static void
bm_read(struct bench_state *state)
{
    measure(state, "mem", OST_READ);
}

static void
bm_write(struct bench_state *state)
{
    measure(state, "mem", OST_WRITE);
}

static void
bm_null_read(struct bench_state *state)
{
    measure(state, "null", OST_READ);
}

static void
bm_null_write(struct bench_state *state)
{
    measure(state, "null", OST_WRITE);
}

static const int64_t rows[] = {
    4096,      WAY_INLINE, 8192,     WAY_INLINE, 65536,     WAY_BULK, 65536,
    WAY_LEASE, 1048576,    WAY_BULK, 1048576,    WAY_LEASE, 4194304,  WAY_LEASE,
};
static const int64_t null_rows[] = {4096, WAY_INLINE, 1048576, WAY_BULK, 1048576, WAY_LEASE};
static const char *const names[] = {"bytes", "way"};

static const struct bench_case cases[] = {
    {.name = "BM_oss_read",
     .run = bm_read,
     .args = rows,
     .arg_count = 7,
     .arg_width = 2,
     .arg_names = names},
    {.name = "BM_oss_write",
     .run = bm_write,
     .args = rows,
     .arg_count = 7,
     .arg_width = 2,
     .arg_names = names},
    {.name = "BM_oss_null_read",
     .run = bm_null_read,
     .args = null_rows,
     .arg_count = 3,
     .arg_width = 2,
     .arg_names = names},
    {.name = "BM_oss_null_write",
     .run = bm_null_write,
     .args = null_rows,
     .arg_count = 3,
     .arg_width = 2,
     .arg_names = names},
};

int
main(int argc, char **argv)
{
    return bench_main(argc, argv, cases, BASE_ARRAY_LEN(cases));
}
