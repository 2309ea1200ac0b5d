/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queues of messages that could not go at once.
 *
 * Bounds: users' messages up to queued_messages_max, and beyond that RESERVE of each peer, so that
 * a peer that takes nothing cannot keep the others from queueing; ACKs and REPLYs as many again,
 * and no more than a quarter of that for one peer. A response beyond its bound is dropped and
 * counted: whoever asks faster than it reads waits for its own timeout.
 */
#include "lnet/ctx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RESERVE 4u

static bool
queue_is_full(const struct lnet *ctx, const struct lnet_peer *peer, bool is_response)
{
    const uint32_t max = ctx->queued_messages_max;

    if (is_response) {
        return ctx->response_count >= max ||
               peer->response_count >= base_max_u32(max / 4, base_min_u32(max, RESERVE));
    }
    return ctx->msg_count >= max &&
           (uint32_t)peer->credits.waiting - peer->response_count >= base_min_u32(RESERVE, max);
}

/* A message to fill in, or NULL. Queues fill when the network is slow; this is not the fast path.
 */
static struct lnet_msg *
msg_alloc(struct lnet *ctx, uint64_t copy_bytes)
{
    struct lnet_msg *msg = NULL;

    if (!base_list_empty(&ctx->msgs_free)) {
        struct base_list *link = base_list_first(&ctx->msgs_free);

        base_list_unlink(link);
        msg = BASE_CONTAINER_OF(link, struct lnet_msg, link);
    } else {
        msg = malloc(sizeof(*msg));
        if (msg == NULL) {
            return NULL;
        }
        base_list_init(&msg->link);
    }
    msg->big = NULL;
    if (copy_bytes > sizeof(msg->data)) {
        msg->big = malloc(copy_bytes);
        if (msg->big == NULL) {
            base_list_prepend(&ctx->msgs_free, &msg->link);
            return NULL;
        }
    }
    return msg;
}

static void
msg_free(struct lnet *ctx, struct lnet_msg *msg)
{
    free(msg->big);
    msg->big = NULL;
    base_list_prepend(&ctx->msgs_free, &msg->link);
}

void
lnet_msgs_fini(struct lnet *ctx)
{
    while (!base_list_empty(&ctx->msgs_free)) {
        struct base_list *link = base_list_first(&ctx->msgs_free);

        base_list_unlink(link);
        free(BASE_CONTAINER_OF(link, struct lnet_msg, link));
    }
}

/* Whether @hdr's message carries bytes. */
static bool
hdr_has_payload(const struct lnet_hdr *hdr)
{
    return hdr->type == LNET_MSG_PUT || hdr->type == LNET_MSG_REPLY;
}

int
lnet_msg_queue(struct lnet_peer *peer, const struct lnet_hdr *hdr, const struct iovec *iov,
               uint32_t iov_count, struct lnet_op *op)
{
    struct lnet *ctx = peer->ctx;
    const bool is_response = hdr->type == LNET_MSG_ACK || hdr->type == LNET_MSG_REPLY;
    const bool is_copied = op == NULL && hdr_has_payload(hdr);

    if (queue_is_full(ctx, peer, is_response)) {
        return -EAGAIN;
    }
    struct lnet_msg *msg = msg_alloc(ctx, is_copied ? hdr->length_bytes : 0);

    if (msg == NULL) {
        return -EAGAIN;
    }
    const int rc = lnet_peer_connect(peer);

    if (rc != 0) {
        msg_free(ctx, msg);
        return rc;
    }
    msg->hdr = *hdr;
    msg->op = op;
    msg->is_response = is_response;
    msg->deadline_ns = ctx->now_ns + ctx->transaction_timeout_ns;
    if (op != NULL) {
        op->msg = msg;
    }
    if (is_copied) {
        uint8_t *at = msg->big != NULL ? msg->big : msg->data;

        for (uint32_t i = 0; i < iov_count; i++) {
            if (iov[i].iov_len > 0) {
                (void)memcpy(at, iov[i].iov_base, iov[i].iov_len);
                at += iov[i].iov_len;
            }
        }
    }
    base_list_append(&peer->queue, &msg->link);
    lnet_credits_wait(&peer->credits);
    peer->is_fast = false;
    if (is_response) {
        ctx->response_count++;
        peer->response_count++;
    } else {
        ctx->msg_count++;
    }
    if (!base_timer_is_armed(&peer->timer) || peer->timer.deadline_ns > msg->deadline_ns) {
        base_timer_arm(&ctx->timers, &peer->timer, msg->deadline_ns);
    }
    /* It may be that only the queue was in the way: credits are free and the LND has room. */
    if (peer->state == LNET_PEER_UP && !peer->is_blocked) {
        lnet_msg_flush(peer);
    }
    return 0;
}

/* Takes @msg out of its queue's books. The credit is the caller's affair. */
static void
msg_dequeue(struct lnet_peer *peer, struct lnet_msg *msg)
{
    struct lnet *ctx = peer->ctx;

    base_list_unlink(&msg->link);
    if (msg->is_response) {
        BASE_ASSERT(ctx->response_count > 0);
        BASE_ASSERT(peer->response_count > 0);
        ctx->response_count--;
        peer->response_count--;
    } else {
        BASE_ASSERT(ctx->msg_count > 0);
        ctx->msg_count--;
    }
    if (msg->op != NULL) {
        msg->op->msg = NULL;
    }
}

/* Gives up @peer's place among those who wait for an NI credit. */
static void
ni_wait_end(struct lnet_peer *peer)
{
    if (!base_list_empty(&peer->credit_link)) {
        base_list_unlink(&peer->credit_link);
        lnet_credits_forget(&peer->ni->credits);
    }
}

void
lnet_msg_drop(struct lnet_peer *peer, struct lnet_msg *msg)
{
    msg_dequeue(peer, msg);
    lnet_credits_forget(&peer->credits);
    msg_free(peer->ctx, msg);
    if (base_list_empty(&peer->queue)) {
        ni_wait_end(peer);
        lnet_peer_update_fast(peer);
        lnet_peer_check_unused(peer);
    }
}

/* Ends @msg: whoever waits for it gets @status. */
static void
msg_fail(struct lnet_peer *peer, struct lnet_msg *msg, int status)
{
    struct lnet_op *op = msg->op;

    peer->tally.lost_count++;
    lnet_msg_drop(peer, msg);
    if (op != NULL) {
        lnet_op_fail(op, status);
    }
}

void
lnet_msg_drop_all(struct lnet_peer *peer, int status)
{
    while (!base_list_empty(&peer->queue)) {
        msg_fail(peer, BASE_CONTAINER_OF(base_list_first(&peer->queue), struct lnet_msg, link),
                 status);
    }
}

uint64_t
lnet_msg_drop_expired(struct lnet_peer *peer, uint64_t now_ns)
{
    while (!base_list_empty(&peer->queue)) {
        struct lnet_msg *msg =
            BASE_CONTAINER_OF(base_list_first(&peer->queue), struct lnet_msg, link);

        if (msg->deadline_ns > now_ns) {
            return msg->deadline_ns;
        }
        msg_fail(peer, msg, -ETIMEDOUT);
    }
    return UINT64_MAX;
}

/* Gives @msg to the LND. Its bytes are in its operation's MD or in the message. */
static int
msg_send(struct lnet_peer *peer, struct lnet_msg *msg)
{
    if (!hdr_has_payload(&msg->hdr)) {
        return peer->send(peer->conn, &msg->hdr, NULL, 0);
    }
    if (msg->op == NULL) {
        const struct iovec iov = {.iov_base = msg->big != NULL ? msg->big : msg->data,
                                  .iov_len = msg->hdr.length_bytes};

        return peer->send(peer->conn, &msg->hdr, &iov, 1);
    }
    struct iovec iov[LNET_IOV_MAX];
    const uint32_t iov_count =
        lnet_entry_slice(msg->op->md, msg->op->offset_bytes, msg->op->length_bytes, iov);

    return peer->send(peer->conn, &msg->hdr, iov, iov_count);
}

bool
lnet_msg_flush_one(struct lnet_peer *peer, bool has_turn)
{
    struct lnet_ni *ni = peer->ni;

    if (base_list_empty(&peer->queue) || peer->state != LNET_PEER_UP || peer->is_blocked ||
        !lnet_credits_may_take(&peer->credits) || !base_list_empty(&peer->credit_link)) {
        return false;
    }
    if (!has_turn &&
        (!lnet_credits_may_take(&ni->credits) || !base_list_empty(&ni->credit_waiters))) {
        base_list_append(&ni->credit_waiters, &peer->credit_link);
        lnet_credits_wait(&ni->credits);
        return false;
    }
    struct lnet_msg *msg = BASE_CONTAINER_OF(base_list_first(&peer->queue), struct lnet_msg, link);
    struct lnet_op *op = msg->op;
    const int rc = msg_send(peer, msg);

    if (rc == -EAGAIN || rc == -ENOTCONN) {
        peer->is_blocked = true;
        return false;
    }
    if (rc != 0) {
        msg_fail(peer, msg, rc);
        return true;
    }
    lnet_peer_count_sent(peer, &msg->hdr);
    msg_dequeue(peer, msg);
    msg_free(peer->ctx, msg);
    lnet_credits_go(&peer->credits);
    lnet_credits_take(&ni->credits);
    if (peer->is_sent_at_once) {
        lnet_credits_return(&ni->credits, 1);
        lnet_credits_return(&peer->credits, 1);
    }
    if (base_list_empty(&peer->queue)) {
        lnet_peer_update_fast(peer);
        lnet_peer_check_unused(peer);
    }
    if (op != NULL) {
        lnet_op_on_sent(op);
    }
    return true;
}

void
lnet_msg_flush(struct lnet_peer *peer)
{
    while (lnet_msg_flush_one(peer, false)) {
    }
}

void
lnet_msg_on_sent(struct lnet_peer *peer, uint32_t count)
{
    struct lnet_ni *ni = peer->ni;

    BASE_ASSERT(count <= (uint32_t)peer->credits.in_flight);
    lnet_credits_return(&ni->credits, (int32_t)count);
    lnet_credits_return(&peer->credits, (int32_t)count);
    /* Those who waited for the interface are before us. */
    lnet_ni_serve_waiters(ni);
    lnet_msg_flush(peer);
}

int
lnet_msg_respond(struct lnet_peer *peer, const struct lnet_hdr *hdr, const struct iovec *iov,
                 uint32_t iov_count)
{
    int rc = lnet_msg_try(peer, hdr, iov, iov_count);

    if (rc == -EAGAIN) {
        rc = peer->state == LNET_PEER_UP ? lnet_msg_queue(peer, hdr, iov, iov_count, NULL)
                                         : -ENOTCONN;
    }
    if (rc != 0) {
        peer->tally.lost_count++;
    }
    return rc;
}

/* What every submission checks of its target. */
static int
target_check(const struct lnet *ctx, const struct lnet_target *target, uint64_t length_bytes)
{
    if (BASE_UNLIKELY(target->peer == NULL || target->peer->ctx != ctx ||
                      target->portal >= LNET_PORTALS)) {
        return -EINVAL;
    }
    if (BASE_UNLIKELY(length_bytes > target->peer->send_bytes_max)) {
        return -EMSGSIZE;
    }
    return 0;
}

/* The part of lnet_put_inline() that the fast path is better off without. */
static int __attribute__((noinline))
put_inline_slow(struct lnet *ctx, struct lnet_peer *peer, const struct lnet_hdr *hdr,
                const struct iovec *iov, int rc)
{
    if (rc != -EAGAIN) {
        return rc;
    }
    if (ctx->is_closing) {
        return -EHOSTUNREACH;
    }
    return lnet_msg_queue(peer, hdr, iov, 1, NULL);
}

int
lnet_put_inline(struct lnet *ctx, const struct lnet_target *target, const void *data,
                uint32_t length_bytes)
{
    const int checked = target_check(ctx, target, length_bytes);

    if (BASE_UNLIKELY(checked != 0)) {
        return checked;
    }
    struct lnet_peer *peer = target->peer;
    const struct lnet_hdr hdr = {
        .type = LNET_MSG_PUT,
        .portal = (uint16_t)target->portal,
        .length_bytes = length_bytes,
        .match_bits = target->match_bits,
        .hdr_data = target->hdr_data,
        .offset_bytes = target->offset_bytes,
    };
    /* iovec has no const; send() only reads. */
    const struct iovec iov = {
        .iov_base = (void *)(uintptr_t)data, /* NOLINT(performance-no-int-to-ptr): see above */
        .iov_len = length_bytes};
    const int rc = lnet_msg_try(peer, &hdr, &iov, 1);

    return BASE_LIKELY(rc == 0) ? 0 : put_inline_slow(ctx, peer, &hdr, &iov, rc);
}

/* The MD of a PUT or GET of ours, and its checks. */
static int
source_find(const struct lnet *ctx, struct lnet_md_handle md, uint64_t offset_bytes,
            uint64_t length_bytes, struct lnet_entry **entry_out)
{
    struct lnet_entry *entry = lnet_slots_find(&ctx->mds, md.cookie);

    if (entry == NULL || entry->is_gone) {
        return -ESTALE;
    }
    if (entry->is_attached || entry->is_used_up || offset_bytes > entry->length_bytes ||
        length_bytes > entry->length_bytes - offset_bytes) {
        return -EINVAL;
    }
    *entry_out = entry;
    return 0;
}

/* Sends or queues the message of @op, which may be NULL if nobody waits for it. */
static int
op_submit(struct lnet *ctx, const struct lnet_op_args *args, const struct lnet_hdr *hdr,
          struct lnet_op *op)
{
    struct lnet_peer *peer = args->target->peer;
    struct iovec iov[LNET_IOV_MAX];
    uint32_t iov_count = 0;

    if (!args->is_get) {
        iov_count = lnet_entry_slice(args->md, args->offset_bytes, args->length_bytes, iov);
    }
    int rc = lnet_msg_try(peer, hdr, iov, iov_count);

    if (BASE_LIKELY(rc == 0)) {
        if (op != NULL) {
            lnet_op_on_sent(op);
        }
        return 0;
    }
    if (rc == -EAGAIN && op == NULL) {
        op = lnet_op_create(ctx, args); /* while it is queued, its bytes must stay */
    }
    if (rc == -EAGAIN && op != NULL) {
        rc = lnet_msg_queue(peer, hdr, iov, iov_count, op);
    }
    if (rc != 0 && op != NULL) {
        lnet_op_abandon(op);
    }
    return rc;
}

static int
op_start(struct lnet *ctx, const struct lnet_op_args *args, uint8_t type, uint8_t flags)
{
    struct lnet_op *op = NULL;

    if (ctx->is_closing) {
        return -EHOSTUNREACH;
    }
    if (args->is_get || args->wants_ack || args->wants_send) {
        op = lnet_op_create(ctx, args);
        if (op == NULL) {
            return -EAGAIN;
        }
    }
    const struct lnet_hdr hdr = {
        .type = type,
        .flags = flags,
        .portal = (uint16_t)args->target->portal,
        .length_bytes = (uint32_t)args->length_bytes,
        .match_bits = args->target->match_bits,
        .hdr_data = args->target->hdr_data,
        .md_cookie = op != NULL && (args->is_get || args->wants_ack) ? op->slot.cookie : 0,
        .offset_bytes = args->target->offset_bytes,
    };

    return op_submit(ctx, args, &hdr, op);
}

int
lnet_put(struct lnet *ctx, struct lnet_md_handle md, uint64_t offset_bytes, uint64_t length_bytes,
         const struct lnet_target *target, uint32_t flags)
{
    struct lnet_entry *entry = NULL;
    int rc = source_find(ctx, md, offset_bytes, length_bytes, &entry);

    if (rc == 0) {
        rc = target_check(ctx, target, length_bytes);
    }
    if (rc == 0 && (flags & ~(uint32_t)LNET_PUT_ACK) != 0) {
        rc = -EINVAL;
    }
    if (rc != 0) {
        return rc;
    }
    const struct lnet_op_args args = {
        .md = entry,
        .target = target,
        .offset_bytes = offset_bytes,
        .length_bytes = length_bytes,
        .wants_ack = (flags & LNET_PUT_ACK) != 0,
        .wants_send = (entry->options & LNET_MD_NO_SEND_EVENT) == 0,
        .deadline_ns = ctx->now_ns + ctx->transaction_timeout_ns,
    };

    return op_start(ctx, &args, LNET_MSG_PUT, (uint8_t)flags);
}

int
lnet_get(struct lnet *ctx, struct lnet_md_handle md, uint64_t offset_bytes, uint64_t length_bytes,
         const struct lnet_target *target, uint64_t deadline_ns)
{
    struct lnet_entry *entry = NULL;
    int rc = source_find(ctx, md, offset_bytes, length_bytes, &entry);

    if (rc == 0) {
        rc = target_check(ctx, target, length_bytes);
    }
    if (rc != 0) {
        return rc;
    }
    const struct lnet_op_args args = {
        .md = entry,
        .target = target,
        .offset_bytes = offset_bytes,
        .length_bytes = length_bytes,
        .is_get = true,
        .deadline_ns = deadline_ns,
    };

    return op_start(ctx, &args, LNET_MSG_GET, 0);
}
