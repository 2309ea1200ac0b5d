/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One context on the mock driver, and a log of the events it delivered: what most tests of lnet/
 * begin with.
 */
#pragma once

#include "causeway/lnet.h"

#include "tests/support/mock_lnd.h"
#include "tests/support/pump.h"

#define WORLD_EVENTS_MAX 16384u
#define WORLD_ADDRESS    1u /* ours: "1@sim" */
#define WORLD_SECOND_NS  UINT64_C(1000000000)
#define WORLD_BYTES_MAX  8192u

struct world {
    struct pump pump;
    struct lnet *ctx;
    struct mock_ni *ni;
    uint32_t event_count;
    int told[256]; /* what the watcher heard */
    struct lnet_peer *told_peers[256];
    uint32_t told_count;
    struct lnet_peer_watch watch;
    uint8_t bytes[WORLD_BYTES_MAX];
    struct lnet_event events[WORLD_EVENTS_MAX]; /* the first event_count */
};

/* What to make; 0 means the default everywhere. */
struct world_options {
    bool is_slow; /* the driver reports sent() */
    uint32_t credits, peer_credits, ni_flags;
    struct lnet_options lnet;
};

/* Opens a context (pid 0, seed 1) with one mock interface and a watcher. */
void world_open(struct world *world, const struct world_options *options);

/* Closes the context and asserts that nothing was left. */
void world_close(struct world *world);

/* One poll, with time standing still. */
uint32_t world_poll(struct world *world);

/* A reference on the peer PID-ADDRESS@sim. */
struct lnet_peer *world_peer(struct world *world, uint32_t address, uint32_t pid);

/* As above, connected: the peer accepted us. */
struct lnet_peer *world_peer_up(struct world *world, uint32_t address, uint32_t pid,
                                struct mock_conn **conn_out);

/* An MD over world.bytes whose events go into the log. */
struct lnet_md world_md(struct world *world, uint32_t options, uint64_t length_bytes,
                        int32_t threshold);

/* Attaches that to @portal for everybody and all match bits. */
struct lnet_md_handle world_attach_any(struct world *world, uint32_t portal, uint32_t options,
                                       uint64_t length_bytes, int32_t threshold);

/* Binds that. */
struct lnet_md_handle world_bind(struct world *world, uint32_t options, uint64_t length_bytes,
                                 int32_t threshold);

/* Inline PUTs of one byte, @first and up, to portal 5 of @peer; asserts that each is taken. */
void world_put(struct world *world, struct lnet_peer *peer, uint32_t first, uint32_t count);

/* What is known of @peer. */
struct lnet_peer_info world_peer_info(struct world *world, const struct lnet_peer *peer);

/* What is known of the mock interface. */
struct lnet_ni_info world_ni_info(struct world *world);
