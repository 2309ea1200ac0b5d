/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context on the mock driver; see world.h.
 */
#include "tests/support/world.h"

#include <string.h>

static void
world_on_event(struct lnet *ctx, const struct lnet_event *event)
{
    struct world *world = event->user;

    BASE_ASSERT(ctx == world->ctx || world->ctx == NULL);
    BASE_ASSERT(world->event_count < WORLD_EVENTS_MAX);
    world->events[world->event_count++] = *event;
}

static void
world_on_peer(struct lnet *ctx, struct lnet_peer *peer, int status, void *arg)
{
    struct world *world = arg;

    (void)ctx;
    world->told_peers[world->told_count % BASE_ARRAY_LEN(world->told)] = peer;
    world->told[world->told_count++ % BASE_ARRAY_LEN(world->told)] = status;
}

void
world_open(struct world *world, const struct world_options *options)
{
    struct lnet_options lnet = options->lnet;

    (void)memset(world, 0, offsetof(struct world, events));
    lnet.struct_bytes = sizeof(lnet);
    lnet.seed = 1;

    const int rc = lnet_open(&lnet, &world->ctx);

    BASE_ASSERT(rc == 0);
    world->ni = mock_add(world->ctx, options->is_slow ? &mock_lnd_slow : &mock_lnd_at_once,
                         WORLD_ADDRESS, options->credits, options->peer_credits, options->ni_flags);
    BASE_ASSERT(world->ni != NULL);
    world->pump = (struct pump){.contexts = {world->ctx}, .now_ns = WORLD_SECOND_NS};
    world->watch = (struct lnet_peer_watch){.fn = world_on_peer, .arg = world};
    lnet_peer_watch_add(world->ctx, &world->watch);
    (void)world_poll(world);
}

void
world_close(struct world *world)
{
    lnet_close(world->ctx);
    world->ctx = NULL;
}

uint32_t
world_poll(struct world *world)
{
    return lnet_poll(world->ctx, world->pump.now_ns, 64);
}

struct lnet_peer *
world_peer(struct world *world, uint32_t address, uint32_t pid)
{
    const struct lnet_process process = {.nid = mock_nid(address), .pid = pid};
    struct lnet_peer *peer = NULL;
    const int rc = lnet_peer_get(world->ctx, &process, &peer);

    BASE_ASSERT(rc == 0);
    return peer;
}

struct lnet_peer *
world_peer_up(struct world *world, uint32_t address, uint32_t pid, struct mock_conn **conn_out)
{
    struct lnet_peer *peer = world_peer(world, address, pid);

    mock_accept(world->ni, address, pid);
    while (world_poll(world) > 0) {
    }
    *conn_out = mock_conn_find(world->ni, address, pid);
    BASE_ASSERT(*conn_out != NULL);
    return peer;
}

struct lnet_md
world_md(struct world *world, uint32_t options, uint64_t length_bytes, int32_t threshold)
{
    BASE_ASSERT(length_bytes <= WORLD_BYTES_MAX);
    return (struct lnet_md){
        .start = (options & LNET_MD_PEEK) != 0 ? NULL : world->bytes,
        .length_bytes = length_bytes,
        .options = options,
        .threshold = threshold,
        .handler = world_on_event,
        .user = world,
    };
}

struct lnet_md_handle
world_attach_any(struct world *world, uint32_t portal, uint32_t options, uint64_t length_bytes,
                 int32_t threshold)
{
    const struct lnet_match match = {
        .portal = portal,
        .from = {.nid = {LNET_NID_ANY}, .pid = LNET_PID_ANY},
        .ignore_bits = UINT64_MAX,
    };
    const struct lnet_md md = world_md(world, options, length_bytes, threshold);
    struct lnet_md_handle handle = {0};
    const int rc = lnet_md_attach(world->ctx, &match, &md, &handle);

    BASE_ASSERT(rc == 0);
    return handle;
}

struct lnet_md_handle
world_bind(struct world *world, uint32_t options, uint64_t length_bytes, int32_t threshold)
{
    const struct lnet_md md = world_md(world, options, length_bytes, threshold);
    struct lnet_md_handle handle = {0};
    const int rc = lnet_md_bind(world->ctx, &md, &handle);

    BASE_ASSERT(rc == 0);
    return handle;
}

void
world_put(struct world *world, struct lnet_peer *peer, uint32_t first, uint32_t count)
{
    const struct lnet_target target = {.peer = peer, .portal = 5};

    for (uint32_t i = 0; i < count; i++) {
        const uint8_t byte = (uint8_t)(first + i);
        const int rc = lnet_put_inline(world->ctx, &target, &byte, 1);

        BASE_ASSERT(rc == 0);
    }
}

struct lnet_peer_info
world_peer_info(struct world *world, const struct lnet_peer *peer)
{
    const struct lnet_process process = lnet_peer_process(peer);
    struct lnet_peer_info info;
    uint64_t cursor = 0;

    while (lnet_peer_info_next(world->ctx, &cursor, &info) == 0) {
        if (info.process.nid.value == process.nid.value && info.process.pid == process.pid) {
            return info;
        }
    }
    BASE_UNREACHABLE();
}

struct lnet_ni_info
world_ni_info(struct world *world)
{
    struct lnet_ni_info info;
    const int rc = lnet_ni_info_get(world->ctx, 1, &info);

    BASE_ASSERT(rc == 0);
    return info;
}
