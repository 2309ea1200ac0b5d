/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that arrive: to an MD of a portal, or to the operation that waits for them.
 *
 * Everything in a header is the peer's claim. The cookie of an ACK or REPLY must name an operation
 * that is out to that very peer; offsets and lengths are measured against the MD; what nobody takes
 * is dropped and counted, and never answered (the sender's deadline tells it).
 */
#include "lnet/ctx.h"

#include <errno.h>

static void
recv_drop(struct lnet_peer *peer, uint64_t payload_bytes)
{
    peer->tally.drop_count++;
    peer->tally.drop_bytes += payload_bytes;
}

/*
 * How much of @asked_bytes @entry takes, and where. Returns false if that is nothing because the
 * message is too long.
 */
static bool
entry_room(const struct lnet_entry *entry, const struct lnet_hdr *hdr, uint64_t *offset_out,
           uint64_t *moved_out)
{
    const uint64_t asked_bytes = hdr->length_bytes;
    const uint64_t offset_bytes =
        (entry->options & LNET_MD_MANAGE_REMOTE) != 0 ? hdr->offset_bytes : entry->offset_bytes;
    uint64_t room_bytes =
        offset_bytes < entry->length_bytes ? entry->length_bytes - offset_bytes : 0;

    if ((entry->options & LNET_MD_MAX_SIZE) != 0) {
        room_bytes = base_min_u64(room_bytes, entry->max_size_bytes);
    }
    if (asked_bytes > room_bytes && (entry->options & LNET_MD_TRUNCATE) == 0) {
        return false;
    }
    *offset_out = offset_bytes;
    *moved_out = base_min_u64(asked_bytes, room_bytes);
    return true;
}

/*
 * Accounts for an operation of a peer that moved @moved_bytes to or from @offset_bytes of @entry.
 * Returns whether @entry is freed by that: the event is its last.
 */
static bool
entry_use(struct lnet *ctx, struct lnet_entry *entry, uint64_t offset_bytes, uint64_t moved_bytes)
{
    lnet_entry_count(entry);
    if ((entry->options & LNET_MD_PEEK) == 0 && moved_bytes > 0) {
        entry->offset_bytes = offset_bytes + moved_bytes; /* bytes that moved lie in the MD */
    }
    if ((entry->options & LNET_MD_MAX_SIZE) != 0 &&
        entry->length_bytes - base_min_u64(entry->offset_bytes, entry->length_bytes) <
            entry->max_size_bytes) {
        entry->is_used_up = true;
    }
    if (BASE_UNLIKELY(entry->is_used_up && lnet_entry_is_ending(entry))) {
        lnet_entry_free(ctx, entry);
        return true;
    }
    return false;
}

/* The target has a PUT that wants to know. */
static void
put_ack(struct lnet_peer *peer, const struct lnet_hdr *hdr, uint64_t offset_bytes,
        uint64_t moved_bytes)
{
    const struct lnet_hdr ack = {
        .type = LNET_MSG_ACK,
        .portal = hdr->portal,
        .length_bytes = (uint32_t)moved_bytes,
        .match_bits = hdr->match_bits,
        .hdr_data = hdr->hdr_data,
        .md_cookie = hdr->md_cookie,
        .offset_bytes = offset_bytes,
    };

    (void)lnet_msg_respond(peer, &ack, NULL, 0);
}

/*
 * Whether @entry shows any number of messages where they lie and this one is not too long: nothing
 * is to be copied or accounted for. A service's request buffer is such an MD.
 */
static inline bool
entry_only_shows(const struct lnet_entry *entry, const struct lnet_hdr *hdr)
{
    const uint32_t mask =
        LNET_MD_PEEK | LNET_MD_MANAGE_REMOTE | LNET_MD_MAX_SIZE | LNET_MD_ACK_DISABLE;

    return (entry->options & mask) == LNET_MD_PEEK && entry->threshold == -1 &&
           hdr->length_bytes <= entry->length_bytes;
}

static int __attribute__((noinline))
recv_put_general(struct lnet *ctx, struct lnet_peer *peer, struct lnet_entry *entry,
                 const struct lnet_hdr *hdr, const void *payload)
{
    uint64_t offset_bytes = 0;
    uint64_t moved_bytes = 0;

    if (BASE_UNLIKELY(entry == NULL || !entry_room(entry, hdr, &offset_bytes, &moved_bytes))) {
        recv_drop(peer, hdr->length_bytes);
        return 0;
    }
    const uint32_t options = entry->options;
    const lnet_handler_fn handler = entry->handler;
    struct lnet_event event = {
        .type = LNET_EV_PUT,
        .portal = hdr->portal,
        .peer = peer,
        .md = {entry->slot.cookie},
        .match_bits = hdr->match_bits,
        .hdr_data = hdr->hdr_data,
        .offset_bytes = offset_bytes,
        .request_bytes = hdr->length_bytes,
        .moved_bytes = moved_bytes,
        .data = payload,
        .user = entry->user,
    };

    if ((options & LNET_MD_PEEK) == 0) {
        lnet_entry_copy_in(entry, offset_bytes, payload, moved_bytes);
        event.data = moved_bytes > 0 && entry->iov == NULL ? entry->start + offset_bytes : NULL;
    }
    event.unlinked = entry_use(ctx, entry, offset_bytes, moved_bytes);
    if (BASE_LIKELY(handler != NULL)) {
        handler(ctx, &event);
    }
    if ((hdr->flags & LNET_PUT_ACK) != 0 && (options & LNET_MD_ACK_DISABLE) == 0) {
        put_ack(peer, hdr, offset_bytes, moved_bytes);
    }
    return 0;
}

static inline int
recv_put(struct lnet *ctx, struct lnet_peer *peer, const struct lnet_hdr *hdr, const void *payload)
{
    struct lnet_entry *entry =
        lnet_portal_find(&ctx->portals[hdr->portal], peer, hdr, LNET_MD_OP_PUT);

    if (BASE_UNLIKELY(entry == NULL || !entry_only_shows(entry, hdr) || entry->handler == NULL)) {
        return recv_put_general(ctx, peer, entry, hdr, payload);
    }
    const struct lnet_event event = {
        .type = LNET_EV_PUT,
        .portal = hdr->portal,
        .peer = peer,
        .md = {entry->slot.cookie},
        .match_bits = hdr->match_bits,
        .hdr_data = hdr->hdr_data,
        .request_bytes = hdr->length_bytes,
        .moved_bytes = hdr->length_bytes,
        .data = payload,
        .user = entry->user,
    };

    entry->handler(ctx, &event);
    if (BASE_UNLIKELY((hdr->flags & LNET_PUT_ACK) != 0)) {
        put_ack(peer, hdr, 0, hdr->length_bytes);
    }
    return 0;
}

static int
recv_get(struct lnet *ctx, struct lnet_peer *peer, const struct lnet_hdr *hdr)
{
    if (hdr->length_bytes > peer->send_bytes_max) {
        return -EPROTO;
    }
    struct lnet_entry *entry =
        lnet_portal_find(&ctx->portals[hdr->portal], peer, hdr, LNET_MD_OP_GET);
    uint64_t offset_bytes = 0;
    uint64_t moved_bytes = 0;

    if (entry == NULL || !entry_room(entry, hdr, &offset_bytes, &moved_bytes)) {
        recv_drop(peer, 0);
        return 0;
    }
    struct iovec iov[LNET_IOV_MAX];
    const uint32_t iov_count =
        moved_bytes == 0 ? 0 : lnet_entry_slice(entry, offset_bytes, moved_bytes, iov);
    const struct lnet_hdr reply = {
        .type = LNET_MSG_REPLY,
        .portal = hdr->portal,
        .length_bytes = (uint32_t)moved_bytes,
        .match_bits = hdr->match_bits,
        .md_cookie = hdr->md_cookie,
        .offset_bytes = offset_bytes,
    };
    const int rc = lnet_msg_respond(peer, &reply, iov, iov_count);
    const lnet_handler_fn handler = entry->handler;
    struct lnet_event event = {
        .type = LNET_EV_GET,
        .status = rc,
        .portal = hdr->portal,
        .peer = peer,
        .md = {entry->slot.cookie},
        .match_bits = hdr->match_bits,
        .offset_bytes = offset_bytes,
        .request_bytes = hdr->length_bytes,
        .moved_bytes = rc == 0 ? moved_bytes : 0,
        .user = entry->user,
    };

    event.unlinked = entry_use(ctx, entry, offset_bytes, moved_bytes);
    if (handler != NULL) {
        handler(ctx, &event);
    }
    return 0;
}

static int
recv_answer(struct lnet *ctx, struct lnet_peer *peer, const struct lnet_hdr *hdr,
            const void *payload)
{
    struct lnet_op *op = lnet_slots_find(&ctx->ops, hdr->md_cookie);
    const bool is_reply = hdr->type == LNET_MSG_REPLY;

    if (op == NULL || op->peer != peer || op->state != LNET_OP_WAITING || op->is_get != is_reply) {
        recv_drop(peer, is_reply ? hdr->length_bytes : 0); /* late, or made up */
        return 0;
    }
    if (hdr->length_bytes > op->length_bytes) {
        return -EPROTO; /* more than was asked for, or sent */
    }
    if (is_reply) {
        lnet_entry_copy_in(op->md, op->offset_bytes, payload, hdr->length_bytes);
    }
    lnet_op_on_answer(op, hdr->length_bytes);
    return 0;
}

int
lnet_recv(struct lnet_ni *ni, struct lnet_lnd_conn *conn, const struct lnet_hdr *hdr,
          const void *payload)
{
    struct lnet_peer *peer = conn->owner;

    BASE_ASSERT(peer != NULL);
    if (BASE_UNLIKELY(peer->is_up_untold)) {
        lnet_peer_tell_up(peer);
    }
    BASE_ASSERT(hdr->type <= LNET_MSG_REPLY);
    BASE_ASSERT(hdr->portal < LNET_PORTALS);
    peer->tally.received[hdr->type]++;
    if (BASE_LIKELY(hdr->type == LNET_MSG_PUT)) {
        peer->tally.received_bytes += hdr->length_bytes;
        return recv_put(ni->ctx, peer, hdr, payload);
    }
    if (hdr->type == LNET_MSG_GET) {
        return recv_get(ni->ctx, peer, hdr);
    }
    if (hdr->type == LNET_MSG_REPLY) {
        peer->tally.received_bytes += hdr->length_bytes;
    }
    return recv_answer(ni->ctx, peer, hdr, payload);
}
