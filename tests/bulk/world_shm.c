/* SPDX-License-Identifier: BSD-3-Clause */
/* A world over LNet's shm: contexts of this process that reach one another by shared memory. */
#include "tests/bulk/world.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char run_dir[] = "/tmp/bulk-test-XXXXXX";
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

static void
context_open(uint32_t index)
{
    char address[16];
    const struct lnet_options options = {.struct_bytes = sizeof(options), .seed = index + 1};
    const struct lnet_ni_options ni = {
        .struct_bytes = sizeof(ni), .net = "shm", .address = address, .run_dir = run_dir};

    (void)snprintf(address, sizeof(address), "%u", index + 1);
    assert_int_equal(lnet_open(&options, &world[index].ctx), 0);
    assert_int_equal(lnet_ni_add(world[index].ctx, &ni, NULL), 0);
}

void
world_contexts_open(uint32_t count)
{
    uint64_t now_ns = 1;

    (void)snprintf(run_dir, sizeof(run_dir), "/tmp/bulk-test-XXXXXX");
    assert_non_null(mkdtemp(run_dir));
    for (uint32_t i = 0; i < count; i++) {
        context_open(i);
    }
    ping_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < count; j++) {
            struct lnet_process process = {.pid = 0};
            char text[16];

            (void)snprintf(text, sizeof(text), "%u@shm", j + 1);
            assert_int_equal(lnet_nid_parse(text, &process.nid), 0);
            assert_int_equal(lnet_peer_get(world[i].ctx, &process, &world[i].peers[j]), 0);
            if (i != 1 && j == 1) {
                /* To connect: without that no RMA is to be had. */
                assert_int_equal(lnet_ping(world[i].ctx, &process, UINT64_MAX, on_ping, NULL), 0);
            }
        }
    }
    for (uint32_t turn = 0; turn < 100000 && ping_count < count - 1; turn++) {
        for (uint32_t i = 0; i < count; i++) {
            (void)lnet_poll(world[i].ctx, now_ns++, 64);
        }
    }
    assert_int_equal(ping_count, count - 1);
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void
world_contexts_close(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < count; j++) {
            lnet_peer_put(world[i].peers[j]);
        }
        lnet_close(world[i].ctx);
        world[i].ctx = NULL;
    }
    (void)nftw(run_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

bool
world_is_one(void)
{
    return false;
}

uint64_t
world_put_bytes_max(void)
{
    struct lnet_limits limits;

    lnet_limits_get(world[0].ctx, &limits);
    return limits.put_bytes_max;
}

bool
world_has_path(enum bulk_path path, bool is_pool)
{
    if (path == BULK_PATH_CMA) {
        struct lnet_ni_info info;

        assert_int_equal(lnet_ni_info_get(world[0].ctx, 1, &info), 0);
        if (strstr(info.rma, "cma refused") != NULL) {
            print_message("skipped: %s\n", info.rma);
            return false;
        }
    }
    return path != BULK_PATH_MAPPED || is_pool;
}
