/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MDS behind ptlrpc: one context is server and client of itself over `lo`, on virtual time,
 * with a stand-in for an OSS that counts what it is to destroy.
 */
#include "causeway/server.h"
#include "ptlrpc/proto/mds.h"
#include "ptlrpc/proto/ost.h"
#include "tests/support/pump.h"
#include "tests/test.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct world {
    struct pump pump;
    struct lnet *ctx;
    struct ptlrpc *rpc;
    struct mds *mds;
    struct ptlrpc_import *import;
    uint32_t connected;
    uint32_t closed;
    uint32_t done;
    int status;
    uint64_t reply[1100];
    uint32_t reply_bytes;
    uint64_t connect_reply[600];
    uint32_t connect_bytes;
};

static uint64_t destroyed;
static uint32_t destroy_rpcs;

static void
on_destroy(struct ptlrpc_rq *rq)
{
    uint32_t bytes = 0;
    const struct ost_destroy_req *req = ptlrpc_rq_body(rq, &bytes);

    assert_int_equal(bytes, sizeof(*req) + req->count * sizeof(struct ost_object));
    destroyed += req->count;
    destroy_rpcs++;
    ptlrpc_rq_reply(rq, 0, 0);
}

static const struct ptlrpc_op ost_ops[] = {
    {.opc = OST_DESTROY,
     .body_bytes_min = sizeof(struct ost_destroy_req),
     .name = "ost_destroy",
     .handler = on_destroy},
};

static void
on_state(struct ptlrpc_import *import, enum ptlrpc_import_state state, int status, const void *data,
         uint32_t bytes, void *user)
{
    struct world *world = user;

    if (state == PTLRPC_IMP_FULL) {
        world->connected++;
        assert_true(bytes <= sizeof(world->connect_reply));
        (void)memcpy(world->connect_reply, data, bytes);
        world->connect_bytes = bytes;
    } else if (state == PTLRPC_IMP_CLOSED) {
        world->closed++;
    }
}

static void
world_open(struct world *world, const char *store, uint32_t version)
{
    const struct lnet_options lnet_options = {.struct_bytes = sizeof(lnet_options), .pid = 5};
    struct lnet_nid lo;

    *world = (struct world){0};
    destroyed = 0;
    destroy_rpcs = 0;
    assert_int_equal(lnet_nid_parse("0@lo", &lo), 0);
    assert_int_equal(lnet_open(&lnet_options, &world->ctx), 0);
    assert_int_equal(ptlrpc_open(world->ctx, NULL, NULL, &world->rpc), 0);
    world->pump.contexts[0] = world->ctx;
    world->pump.now_ns = 1000000000;
    (void)pump_round(&world->pump);
    const struct mds_ost ost = {.nid = lo, .pid0 = 5, .reactors = 1, .ost = 3};
    const struct mds_options options = {
        .struct_bytes = sizeof(options),
        .reactors = 1,
        .pid0 = 5,
        .nid = lo,
        .osts = &ost,
        .ost_count = 1,
        .store = store,
    };
    const struct ptlrpc_service_options ost_options = {
        .struct_bytes = sizeof(ost_options),
        .portal = PTLRPC_PORTAL_OST,
        .name = "ost",
        .ops = ost_ops,
        .op_count = BASE_ARRAY_LEN(ost_ops),
    };
    const struct mds_connect_req req = {.version = version};
    const struct ptlrpc_import_options import_options = {
        .struct_bytes = sizeof(import_options),
        .portal = PTLRPC_PORTAL_MDS,
        .target = {.nid = lo, .pid = 5},
        .name = "mds",
        .connect_data_bytes = sizeof(req),
        .connect_data = &req,
        .state_changed = on_state,
        .user = world,
    };
    struct ptlrpc_service *ost_service = NULL;

    assert_int_equal(ptlrpc_service_add(world->rpc, &ost_options, &ost_service), 0);
    assert_int_equal(mds_open(world->rpc, &options, &world->mds), 0);
    assert_non_null(mds_service(world->mds));
    assert_int_equal(ptlrpc_import_open(world->rpc, &import_options, &world->import), 0);
}

static void
world_close(struct world *world)
{
    ptlrpc_close(world->rpc);
    mds_close(world->mds);
    lnet_close(world->ctx);
}

static void
on_done(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes, void *user)
{
    struct world *world = user;

    assert_true(bytes <= sizeof(world->reply));
    if (bytes > 0) {
        (void)memcpy(world->reply, body, bytes);
    }
    world->reply_bytes = bytes;
    world->status = status;
    world->done++;
}

static int
ask(struct world *world, uint16_t opc, const void *fixed, uint32_t fixed_bytes, const char *path)
{
    struct ptlrpc_request *request = ptlrpc_request_take(world->import, opc);
    char *body = ptlrpc_request_body(request);
    const uint32_t path_bytes = path == NULL ? 0 : (uint32_t)strlen(path);
    const uint32_t done = world->done + 1;

    (void)memcpy(body, fixed, fixed_bytes);
    if (path != NULL) {
        struct mds_req_head *head = (struct mds_req_head *)(void *)body;

        head->base = FID_ROOT;
        head->path_bytes = (uint16_t)path_bytes;
        (void)memcpy(body + fixed_bytes, path, path_bytes);
    }
    assert_int_equal(ptlrpc_request_send(request, fixed_bytes + path_bytes, on_done, world), 0);
    assert_true(pump_until_count(&world->pump, &world->done, done, UINT64_C(60000000000)));
    return world->status;
}

static void
a_client_connects_works_and_dies(void **state)
{
    struct world world;
    struct mds_stats stats;

    world_open(&world, "mem", MDS_PROTO_VERSION);
    assert_true(pump_until_count(&world.pump, &world.connected, 1, UINT64_C(10000000000)));
    const struct mds_connect_rep *rep = (const struct mds_connect_rep *)world.connect_reply;
    const struct mds_connect_ost *osts = (const struct mds_connect_ost *)(rep + 1);

    assert_int_equal(world.connect_bytes, sizeof(*rep) + sizeof(*osts));
    assert_int_equal(rep->reactors, 1);
    assert_int_equal(rep->pid0, 5);
    assert_int_equal(rep->ost_count, 1);
    assert_int_equal(rep->root.oid, 1);
    assert_int_equal(osts[0].ost, 3);
    const struct mds_create_req make = {.mode = S_IFDIR | 0755};
    const struct mds_open_req open_req = {.open_flags = MDS_OPEN_WRITE | MDS_OPEN_CREATE};
    const struct mds_getattr_req get = {0};
    const struct mds_unlink_req unlink_req = {0};

    assert_int_equal(ask(&world, MDS_REINT_CREATE, &make, sizeof(make), "d"), 0);
    assert_int_equal(ask(&world, MDS_REINT_CREATE, &make, sizeof(make), "d"), -EEXIST);
    assert_int_equal(ask(&world, MDS_REINT_OPEN, &open_req, sizeof(open_req), "d/f"), 0);
    const struct mds_open_rep opened = *(const struct mds_open_rep *)world.reply;

    assert_int_equal(opened.created, 1);
    assert_int_equal(ask(&world, MDS_GETATTR, &get, sizeof(get), "d/f"), 0);
    assert_int_equal(world.reply_bytes, sizeof(struct mds_getattr_rep));
    assert_int_equal(ask(&world, MDS_GETATTR, &get, 5, NULL), -EPROTO);

    /* a file that was written to is destroyed when it goes, within 1 ms or a little more */
    const struct mds_close_req close_req = {
        .fid = opened.attr.fid, .handle = opened.handle, .flags = MDS_CLOSE_WROTE};

    assert_int_equal(ask(&world, MDS_CLOSE, &close_req, sizeof(close_req), NULL), 0);
    assert_int_equal(ask(&world, MDS_CLOSE, &close_req, sizeof(close_req), NULL), -EBADF);
    assert_int_equal(ask(&world, MDS_REINT_UNLINK, &unlink_req, sizeof(unlink_req), "d/f"), 0);
    pump_for(&world.pump, 20000000);
    assert_int_equal(destroyed, 1);
    assert_int_equal(destroy_rpcs, 1);

    /* what a dead client has open goes */
    assert_int_equal(ask(&world, MDS_REINT_OPEN, &open_req, sizeof(open_req), "d/g"), 0);
    assert_int_equal(ask(&world, MDS_REINT_UNLINK, &unlink_req, sizeof(unlink_req), "d/g"), 0);
    mds_stats_get(world.mds, &stats);
    assert_int_equal(stats.inodes, 3);
    assert_int_equal(stats.orphans, 1);
    assert_int_equal(stats.open_handles, 1);
    ptlrpc_import_close(world.import);
    assert_true(pump_until_count(&world.pump, &world.closed, 1, UINT64_C(10000000000)));
    mds_stats_get(world.mds, &stats);
    assert_int_equal(stats.inodes, 2);
    assert_int_equal(stats.orphans, 0);
    assert_int_equal(stats.open_handles, 0);
    pump_for(&world.pump, 20000000);
    assert_int_equal(destroyed, 2);
    world_close(&world);
}

static void
another_version_is_refused(void **state)
{
    struct world world;

    world_open(&world, "mem", MDS_PROTO_VERSION + 1);
    pump_for(&world.pump, 100000000);
    assert_int_equal(world.connected, 0);
    world_close(&world);
}

static void
a_stranger_is_no_reactor(void **state)
{
    struct world world;
    struct lnet_nid lo;
    struct lnet_nid other;
    struct mds *mds = NULL;
    struct ptlrpc_import *import = NULL;

    world_open(&world, "mem", MDS_PROTO_VERSION);
    assert_int_equal(lnet_nid_parse("0@lo", &lo), 0);
    assert_int_equal(lnet_nid_parse("7@shm", &other), 0);
    ptlrpc_close(world.rpc);
    mds_close(world.mds);
    assert_int_equal(ptlrpc_open(world.ctx, NULL, NULL, &world.rpc), 0);
    const struct mds_options options = {
        .struct_bytes = sizeof(options), .reactors = 2, .pid0 = 5, .nid = other};
    const struct ptlrpc_import_options import_options = {
        .struct_bytes = sizeof(import_options),
        .portal = PTLRPC_PORTAL_OUT,
        .target = {.nid = lo, .pid = 5},
        .name = "out",
        .state_changed = on_state,
        .user = &world,
    };

    world.connected = 0;
    assert_int_equal(mds_open(world.rpc, &options, &mds), 0);
    assert_int_equal(ptlrpc_import_open(world.rpc, &import_options, &import), 0);
    pump_for(&world.pump, 100000000);
    assert_int_equal(world.connected, 0);
    world.mds = mds;
    world_close(&world);
}

static void
null_keeps_nothing_and_answers_all(void **state)
{
    struct world world;
    const struct mds_create_req make = {.mode = S_IFDIR | 0755};
    const struct mds_open_req open_req = {.open_flags = MDS_OPEN_WRITE | MDS_OPEN_CREATE};
    const struct mds_getattr_req get = {0};
    const struct mds_unlink_req unlink_req = {0};
    struct mds_stats stats;

    world_open(&world, "null", MDS_PROTO_VERSION);
    assert_int_equal(ask(&world, MDS_REINT_CREATE, &make, sizeof(make), "d"), 0);
    const struct mds_getattr_rep made = *(const struct mds_getattr_rep *)world.reply;

    assert_true(S_ISDIR(made.attr.mode));
    assert_int_equal(ask(&world, MDS_REINT_OPEN, &open_req, sizeof(open_req), "d/f"), 0);
    const struct mds_open_rep opened = *(const struct mds_open_rep *)world.reply;

    assert_int_equal(opened.created, 1);
    assert_int_equal(ask(&world, MDS_GETATTR, &get, sizeof(get), "d/f"), 0);
    const struct mds_getattr_rep got = *(const struct mds_getattr_rep *)world.reply;

    assert_true(S_ISREG(got.attr.mode));
    assert_memory_equal(&got.attr.fid, &opened.attr.fid, sizeof(struct fid));
    assert_int_equal(ask(&world, MDS_GETATTR, &get, sizeof(get), "/d"), -EINVAL);
    assert_int_equal(ask(&world, MDS_REINT_UNLINK, &unlink_req, sizeof(unlink_req), "d/f"), 0);
    mds_stats_get(world.mds, &stats);
    assert_int_equal(stats.inodes, 0);
    assert_int_equal(stats.open_handles, 0);
    world_close(&world);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_client_connects_works_and_dies),
    cmocka_unit_test(another_version_is_refused),
    cmocka_unit_test(a_stranger_is_no_reactor),
    cmocka_unit_test(null_keeps_nothing_and_answers_all),
};

TEST_MAIN(cases)
