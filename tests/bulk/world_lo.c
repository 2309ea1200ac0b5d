/* SPDX-License-Identifier: BSD-3-Clause */
/* A world of one node that is its own peer, over lo: both ends of everything in one engine. */
#include "tests/bulk/world.h"

static uint32_t ping_count;

static void
on_ping(struct lnet *ctx, int status, const struct lnet_ping_reply *reply, void *user)
{
    (void)ctx;
    (void)reply;
    (void)user;
    assert_int_equal(status, 0);
    ping_count++;
}

void
world_contexts_open(uint32_t count)
{
    const struct lnet_options options = {.struct_bytes = sizeof(options), .pid = 7, .seed = 1};
    struct lnet_process self = {.pid = 7};

    assert_int_equal(lnet_open(&options, &world[0].ctx), 0);
    assert_int_equal(lnet_nid_parse("0@lo", &self.nid), 0);
    assert_int_equal(lnet_peer_get(world[0].ctx, &self, &world[0].peers[0]), 0);
    /* To connect: without that no RMA is to be had. */
    ping_count = 0;
    assert_int_equal(lnet_ping(world[0].ctx, &self, UINT64_MAX, on_ping, NULL), 0);
    for (uint64_t now_ns = 1; now_ns < 100 && ping_count == 0; now_ns++) {
        (void)lnet_poll(world[0].ctx, now_ns, 64);
    }
    assert_int_equal(ping_count, 1);
    for (uint32_t i = 0; i < count; i++) {
        world[i].ctx = world[0].ctx;
        for (uint32_t j = 0; j < count; j++) {
            world[i].peers[j] = world[0].peers[0];
        }
    }
}

void
world_contexts_close(uint32_t count)
{
    lnet_peer_put(world[0].peers[0]);
    lnet_close(world[0].ctx);
}

bool
world_is_one(void)
{
    return true;
}

uint64_t
world_put_bytes_max(void)
{
    return 4096; /* more would do; the cases want a number near it */
}

bool
world_has_path(enum bulk_path path, bool is_pool)
{
    return path != BULK_PATH_CMA;
}
