/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ping: a GET from the MD that every context has on portal 0. It says who we are:
 *
 *    0  u32  version     4  u32  pid     8  u32  count of NIDs    12  u32  0
 *   16  u64  NIDs
 */
#include "lnet/ctx.h"

#include "base/endian.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define PING_VERSION      1u
#define PING_MATCH_BITS   UINT64_C(0x8000000000000000) /* Lustre's LNET_PROTO_PING_MATCHBITS */
#define PING_HEADER_BYTES 16u
#define PING_NIDS_MAX     16u
#define PING_BYTES        (PING_HEADER_BYTES + PING_NIDS_MAX * 8)

static_assert(sizeof(((struct lnet *)0)->ping_reply) == PING_BYTES, "room for all");
static_assert(LNET_NIS_MAX <= PING_NIDS_MAX, "all our NIDs fit");

/* A ping of ours. */
struct ping {
    struct lnet_peer *peer;
    lnet_ping_fn done;
    void *user;
    uint8_t reply[PING_BYTES];
};

void
lnet_ping_update(struct lnet *ctx)
{
    base_le32_store(ctx->ping_reply, PING_VERSION);
    base_le32_store(ctx->ping_reply + 4, ctx->pid);
    base_le32_store(ctx->ping_reply + 8, ctx->ni_count);
    base_le32_store(ctx->ping_reply + 12, 0);
    for (uint32_t i = 0; i < ctx->ni_count; i++) {
        base_le64_store(ctx->ping_reply + PING_HEADER_BYTES + (size_t)i * 8,
                        ctx->nis[i]->nid.value);
    }
}

int
lnet_ping_init(struct lnet *ctx)
{
    const struct lnet_match match = {
        .portal = 0,
        .from = {.nid = {LNET_NID_ANY}, .pid = LNET_PID_ANY},
        .match_bits = PING_MATCH_BITS,
    };
    const struct lnet_md md = {
        .start = ctx->ping_reply,
        .length_bytes = PING_BYTES,
        .options = LNET_MD_OP_GET | LNET_MD_MANAGE_REMOTE | LNET_MD_TRUNCATE,
        .threshold = -1,
    };

    return lnet_entry_attach(ctx, &match, &md, &ctx->ping_md);
}

/* Reads the peer's answer. Errors: -EPROTO. */
static int
ping_decode(const uint8_t *bytes, uint64_t length_bytes, struct lnet_ping_reply *reply_out)
{
    if (length_bytes < PING_HEADER_BYTES || base_le32_load(bytes) != PING_VERSION) {
        return -EPROTO;
    }
    const uint32_t nid_count = base_le32_load(bytes + 8);

    if (nid_count > PING_NIDS_MAX || length_bytes < PING_HEADER_BYTES + (uint64_t)nid_count * 8) {
        return -EPROTO;
    }
    *reply_out = (struct lnet_ping_reply){
        .version = base_le32_load(bytes), .pid = base_le32_load(bytes + 4), .nid_count = nid_count};
    for (uint32_t i = 0; i < nid_count; i++) {
        reply_out->nids[i].value = base_le64_load(bytes + PING_HEADER_BYTES + (size_t)i * 8);
    }
    return 0;
}

static void
ping_on_event(struct lnet *ctx, const struct lnet_event *event)
{
    struct ping *ping = event->user;
    struct lnet_ping_reply reply;
    int status = event->status;

    BASE_ASSERT(event->unlinked);
    if (event->type == LNET_EV_UNLINK) {
        /* Its GET was refused: lnet_ping() said so, and nobody waits. */
        lnet_peer_put(ping->peer);
        free(ping);
        return;
    }
    if (status == 0) {
        status = ping_decode(ping->reply, event->moved_bytes, &reply);
    }
    ping->done(ctx, status, status == 0 ? &reply : NULL, ping->user);
    lnet_peer_put(ping->peer);
    free(ping);
}

int
lnet_ping(struct lnet *ctx, const struct lnet_process *process, uint64_t deadline_ns,
          lnet_ping_fn done, void *user)
{
    struct ping *ping = calloc(1, sizeof(*ping));
    struct lnet_md_handle md;

    if (ping == NULL) {
        return -EAGAIN;
    }
    int rc = lnet_peer_get(ctx, process, &ping->peer);

    if (rc != 0) {
        free(ping);
        return rc;
    }
    ping->done = done;
    ping->user = user;

    const struct lnet_md sink = {
        .start = ping->reply,
        .length_bytes = PING_BYTES,
        .threshold = 1,
        .handler = ping_on_event,
        .user = ping,
    };

    rc = lnet_md_bind(ctx, &sink, &md);
    if (rc != 0) {
        lnet_peer_put(ping->peer);
        free(ping);
        return rc;
    }
    const struct lnet_target target = {.peer = ping->peer, .match_bits = PING_MATCH_BITS};

    rc = lnet_get(ctx, md, 0, PING_BYTES, &target, deadline_ns);
    if (rc != 0) {
        (void)lnet_md_unlink(ctx, md); /* its event frees the ping */
    }
    return rc;
}
