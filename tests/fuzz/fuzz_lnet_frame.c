/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: frames from a peer, decoded as an LND does it and fed to a whole context that has
 * MDs of all kinds and operations of its own, in any order with the end of connections, refusals,
 * time and what the owner does.
 *
 * The input is a list of commands, a byte each with what it needs behind it. Beside the sanitizers
 * and the context's own assertions, the closing of the context checks that every MD and every
 * operation ended exactly once: it asserts that nothing is left.
 */
#include "lnet/lnd/frame.h"
#include "lnet/peer.h"
#include "tests/support/world.h"

#include <stdlib.h>
#include <string.h>

#define PORTALS   4u
#define PEERS     3u
#define HANDLES   16u
#define MDS_MAX   64u
#define INPUT_MAX 8192u

struct input {
    const uint8_t *at;
    size_t left;
};

static struct world world;
static struct lnet_md_handle handles[HANDLES];
static uint32_t handle_next;

static uint8_t
next_u8(struct input *input)
{
    if (input->left == 0) {
        return 0;
    }
    input->left--;
    return *input->at++;
}

static uint16_t
next_u16(struct input *input)
{
    const uint16_t low = next_u8(input);

    return (uint16_t)(low | next_u8(input) << 8);
}

/* The newest connection of one of the peers, or NULL. */
static struct mock_conn *
next_conn(struct input *input)
{
    return mock_conn_find(world.ni, 2 + next_u8(input) % PEERS, 0);
}

/* A frame as it comes from the wire. Real cookies are put into some, or they would never match. */
static void
do_frame(struct input *input)
{
    struct mock_conn *conn = next_conn(input);
    const uint8_t how = next_u8(input);
    const uint16_t wanted_bytes = next_u16(input);
    const uint64_t bytes = base_min_u64(wanted_bytes, input->left);
    uint8_t *frame = malloc(base_max_u64(bytes, 1)); /* its own, so that ASan sees its end */
    struct lnet_hdr hdr;

    BASE_ASSERT(frame != NULL);
    (void)memcpy(frame, input->at, bytes);
    input->at += bytes;
    input->left -= bytes;
    if ((how & 1) != 0 && bytes >= LNET_FRAME_BYTES) {
        /* Make it a good frame, or hardly any would get through. */
        frame[0] = (uint8_t)((LNET_FRAME_VERSION << 4) | (frame[0] & 3));
        frame[1] &= LNET_PUT_ACK;
        base_le16_store(frame + 2, (uint16_t)(frame[2] % (PORTALS + 1)));
        base_le64_store(frame + 8, frame[8] & 7);
        if ((how & 0x80) != 0) {
            base_le64_store(frame + 32, base_le16_load(frame + 32) % 5000);
        }
        if ((frame[0] & 1) != 0) { /* PUT, REPLY */
            base_le32_store(frame + 4, (uint32_t)(bytes - LNET_FRAME_BYTES));
        }
    }
    if ((how & 2) != 0 && bytes >= LNET_FRAME_BYTES && world.ni->sent_count > 0) {
        const uint32_t which = (how >> 2) % base_min_u32(world.ni->sent_count, MOCK_SENT_MAX);

        base_le64_store(frame + 24, world.ni->sent[which].hdr.md_cookie);
    }
    if (lnet_frame_decode(frame, bytes, MOCK_EAGER_BYTES_MAX, &hdr) == 0 && conn != NULL) {
        BASE_ASSERT(hdr.type <= LNET_MSG_REPLY);
        BASE_ASSERT(hdr.portal < LNET_PORTALS);
        mock_recv(world.ni, conn, &hdr, frame + LNET_FRAME_BYTES);
    }
    free(frame);
}

static void
do_attach(struct input *input)
{
    const uint8_t how = next_u8(input);
    const struct lnet_match match = {
        .portal = how % (PORTALS + 1),
        .at_head = (how & 0x40) != 0,
        .from = {.nid = (how & 0x20) != 0 ? mock_nid(2) : (struct lnet_nid){LNET_NID_ANY},
                 .pid = (how & 0x20) != 0 ? 0 : LNET_PID_ANY},
        .match_bits = next_u8(input) & 7,
        .ignore_bits = (how & 0x80) != 0 ? UINT64_MAX : next_u8(input),
    };
    struct lnet_md md =
        world_md(&world, (uint32_t)next_u8(input), next_u16(input) % 4096, (int8_t)next_u8(input));

    md.options |= (uint32_t)next_u8(input) << 16;
    md.options &= ~(uint32_t)LNET_MD_IOV;
    md.max_size_bytes = next_u16(input);
    (void)lnet_md_attach(world.ctx, &match, &md, &handles[handle_next++ % HANDLES]);
}

static void
do_bind(struct input *input)
{
    const uint8_t how = next_u8(input);
    struct lnet_md md = world_md(&world, 0, 4096, (int8_t)next_u8(input));
    struct iovec iov[3] = {{world.bytes, 1000}, {world.bytes, 0}, {world.bytes + 1000, 3096}};

    md.options |= (how & 1) != 0 ? LNET_MD_NO_SEND_EVENT : 0u;
    md.options |= (how & 2) != 0 ? LNET_MD_RETAIN : 0u;
    if ((how & 4) != 0) {
        md.options |= LNET_MD_IOV;
        md.start = iov;
        md.iov_count = 3;
    }
    (void)lnet_md_bind(world.ctx, &md, &handles[handle_next++ % HANDLES]);
}

static void
do_send(struct input *input)
{
    const uint8_t how = next_u8(input);
    const struct lnet_md_handle md = handles[next_u8(input) % HANDLES];
    const uint16_t offset_bytes = next_u16(input);
    const uint16_t length_bytes = next_u16(input);
    const struct lnet_process process = {.nid = mock_nid(1 + how % (PEERS + 1))};
    struct lnet_target target = {.portal = how >> 6, .match_bits = next_u8(input)};

    if (lnet_peer_get(world.ctx, &process, &target.peer) != 0) {
        return;
    }
    switch ((how >> 2) & 3) {
    case 0:
        (void)lnet_put(world.ctx, md, offset_bytes, length_bytes, &target,
                       (how & 0x10) != 0 ? LNET_PUT_ACK : 0);
        break;
    case 1:
        (void)lnet_get(world.ctx, md, offset_bytes, length_bytes, &target,
                       world.pump.now_ns + next_u16(input));
        break;
    default:
        (void)lnet_put_inline(world.ctx, &target, world.bytes,
                              (uint32_t)base_min_u64(length_bytes, WORLD_BYTES_MAX));
    }
    if ((how & 0x20) != 0) {
        lnet_peer_disconnect(target.peer);
    }
    lnet_peer_put(target.peer);
}

static void
do_connection(struct input *input)
{
    static const int reasons[] = {-ECONNRESET, -EALREADY, -ETIMEDOUT, -EPROTO};
    const uint8_t how = next_u8(input);
    struct mock_conn *conn = next_conn(input);
    const struct lnet_peer *peer = conn != NULL ? conn->base.owner : NULL;

    if ((how & 7) == 0 || conn == NULL) {
        mock_accept(world.ni, 2 + how % PEERS, 0);
    } else if ((how & 7) == 1) {
        mock_down(world.ni, conn, reasons[(how >> 3) % BASE_ARRAY_LEN(reasons)]);
    } else if ((how & 7) == 2) {
        mock_room(world.ni, conn, how >> 3);
    } else if (peer != NULL && peer->conn == &conn->base && peer->state == LNET_PEER_CONNECTING) {
        mock_up(world.ni, conn);
        (void)world_poll(&world); /* or it would be said twice */
    } else if (peer != NULL && peer->conn == &conn->base && peer->credits.in_flight > 0) {
        mock_done(world.ni, conn, 1);
        (void)world_poll(&world);
    }
}

static void
do_command(struct input *input)
{
    switch (next_u8(input) % 8) {
    case 0:
    case 1:
        do_frame(input);
        break;
    case 2:
        do_attach(input);
        break;
    case 3:
        do_bind(input);
        break;
    case 4:
        do_send(input);
        break;
    case 5:
        do_connection(input);
        break;
    case 6:
        (void)lnet_md_unlink(world.ctx,
                             (struct lnet_md_handle){handles[next_u8(input) % HANDLES].cookie});
        break;
    default:
        world.pump.now_ns += next_u16(input);
        (void)lnet_poll(world.ctx, world.pump.now_ns, 1 + next_u8(input) % 16);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {.at = data, .left = base_min_u64(size, INPUT_MAX)};
    const uint8_t how = next_u8(&input);
    const struct world_options options = {
        .is_slow = (how & 1) != 0,
        .credits = (how >> 1) & 3,
        .peer_credits = (how >> 3) & 3,
        .lnet = {.peers_max = PEERS + (how >> 7),
                 .mds_max = MDS_MAX,
                 .queued_messages_max = 8,
                 .transaction_timeout_ns = 40000,
                 .connect_timeout_ns = 20000},
    };

    world_open(&world, &options);
    (void)memset(handles, 0, sizeof(handles));
    handle_next = 0;
    /* Most inputs would not get that far by themselves: two peers are up, two MDs are attached. */
    mock_accept(world.ni, 2, 0);
    mock_accept(world.ni, 3, 0);
    (void)world_poll(&world);
    handles[handle_next++] = world_attach_any(&world, 1, LNET_MD_OP_PUT | LNET_MD_PEEK, 4096, -1);
    handles[handle_next++] = world_attach_any(
        &world, 2, LNET_MD_OP_PUT | LNET_MD_OP_GET | LNET_MD_MANAGE_REMOTE, 4096, -1);
    handles[handle_next++] = world_bind(&world, 0, 4096, -1);
    while (input.left > 0) {
        do_command(&input);
    }
    for (uint32_t i = 0; i < 4; i++) {
        (void)world_poll(&world);
    }
    lnet_close(world.ctx);
    world.ctx = NULL;

    /* Each MD ends once: its last event is one with `unlinked`. */
    for (uint32_t i = 0; i < world.event_count; i++) {
        for (uint32_t j = i + 1; world.events[i].unlinked && j < world.event_count; j++) {
            BASE_ASSERT(world.events[j].md.cookie != world.events[i].md.cookie);
        }
    }
    return 0;
}
