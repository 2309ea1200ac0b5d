/* SPDX-License-Identifier: BSD-3-Clause */
/* A world over the stand-in for LNet. */
#include "tests/bulk/fake_lnet.h"
#include "tests/bulk/world.h"

#define FAKE_PUT_BYTES_MAX 4096u

void
world_contexts_open(uint32_t count)
{
    fake_faults = (struct fake_faults){0};
    for (uint32_t i = 0; i < count; i++) {
        world[i].ctx = fake_lnet_open(i, FAKE_PUT_BYTES_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < count; j++) {
            const struct lnet_process process = {.pid = j};

            assert_int_equal(lnet_peer_get(world[i].ctx, &process, &world[i].peers[j]), 0);
        }
    }
}

void
world_contexts_close(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < count; j++) {
            lnet_peer_put(world[i].peers[j]);
        }
        assert_int_equal(fake_md_count(world[i].ctx), 0);
        assert_int_equal(fake_mem_count(world[i].ctx), 0);
        assert_int_equal(fake_window_count(world[i].ctx), 0);
        assert_int_equal(fake_timer_count(world[i].ctx), 0);
        assert_int_equal(fake_peer_references(world[i].ctx), 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        fake_lnet_close(world[i].ctx);
        world[i].ctx = NULL;
    }
}

bool
world_is_one(void)
{
    return false;
}

uint64_t
world_put_bytes_max(void)
{
    return FAKE_PUT_BYTES_MAX;
}

bool
world_has_path(enum bulk_path path, bool is_pool)
{
    /* The stand-in says of all keys the same; both forms of RMA run here. */
    fake_faults.is_rma_mapped = path == BULK_PATH_MAPPED;
    return path != BULK_PATH_MAPPED || is_pool;
}
