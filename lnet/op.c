/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The states of an operation and its events; see op.h.
 */
#include "lnet/op.h"

#include "lnet/ctx.h"

#include <errno.h>

static void
op_on_deadline(struct base_timer *timer, uint64_t now_ns)
{
    (void)now_ns;
    lnet_op_fail(BASE_CONTAINER_OF(timer, struct lnet_op, timer), -ETIMEDOUT);
}

struct lnet_op *
lnet_op_create(struct lnet *ctx, const struct lnet_op_args *args)
{
    if (BASE_UNLIKELY(ctx->ops.used_count == ctx->op_timers_reserved)) {
        /* Grow with the table, so that arming a timer cannot fail. */
        if (base_timers_reserve(&ctx->timers, LNET_SLOT_CHUNK) != 0) {
            return NULL;
        }
        ctx->op_timers_reserved += LNET_SLOT_CHUNK;
    }
    struct lnet_op *op = lnet_slots_take(&ctx->ops);

    if (op == NULL) {
        return NULL;
    }
    op->ctx = ctx;
    op->md = args->md;
    op->peer = args->target->peer;
    op->msg = NULL;
    op->state = LNET_OP_QUEUED;
    op->last_event = 0;
    op->is_get = args->is_get;
    op->wants_ack = args->wants_ack;
    op->wants_send = args->wants_send;
    op->is_send_due = false;
    op->status = 0;
    op->offset_bytes = args->offset_bytes;
    op->length_bytes = args->length_bytes;
    op->moved_bytes = 0;
    op->match_bits = args->target->match_bits;
    op->hdr_data = args->target->hdr_data;
    op->portal = args->target->portal;
    op->pending.is_op = true;
    base_list_init(&op->pending.link);
    base_list_init(&op->md_link);
    base_list_init(&op->peer_link);
    base_list_append(&op->md->ops, &op->md_link);
    base_list_append(&op->peer->ops, &op->peer_link);
    op->md->op_count++;
    base_timer_init(&op->timer, op_on_deadline);
    if (op->is_get || op->wants_ack) {
        base_timer_arm(&ctx->timers, &op->timer, args->deadline_ns);
    }
    return op;
}

/* Takes @op out of everything it is in. */
static void
op_free(struct lnet_op *op)
{
    struct lnet *ctx = op->ctx;

    BASE_ASSERT(op->msg == NULL);
    BASE_ASSERT(op->md->op_count > 0);
    base_timer_cancel(&ctx->timers, &op->timer);
    base_list_unlink(&op->pending.link);
    base_list_unlink(&op->md_link);
    base_list_unlink(&op->peer_link);
    op->md->op_count--;
    lnet_peer_check_unused(op->peer);
    lnet_slots_return(&ctx->ops, op);
}

void
lnet_op_abandon(struct lnet_op *op)
{
    op_free(op);
}

/* Nobody waits for @op any more and no event of it is due. */
static void
op_end_silently(struct lnet_op *op)
{
    struct lnet_entry *entry = op->md;
    struct lnet *ctx = op->ctx;

    op_free(op);
    if (entry->op_count == 0 && lnet_entry_is_ending(entry)) {
        entry->is_gone = true;
        lnet_pend(ctx, &entry->pending); /* no event of an operation is left to say it */
    }
}

void
lnet_op_on_sent(struct lnet_op *op)
{
    BASE_ASSERT(op->state == LNET_OP_QUEUED);
    op->state = op->is_get || op->wants_ack ? LNET_OP_WAITING : LNET_OP_DONE;
    op->is_send_due = !op->is_get && op->wants_send;
    if (op->is_send_due) {
        lnet_pend(op->ctx, &op->pending);
    } else if (op->state == LNET_OP_DONE) {
        op_end_silently(op);
    }
}

void
lnet_op_on_answer(struct lnet_op *op, uint64_t moved_bytes)
{
    BASE_ASSERT(op->state == LNET_OP_WAITING);
    op->state = LNET_OP_DONE;
    op->last_event = op->is_get ? LNET_EV_REPLY : LNET_EV_ACK;
    op->moved_bytes = moved_bytes;
    if (op->is_send_due) {
        return; /* on the list already: SEND first */
    }
    base_list_unlink(&op->pending.link);
    lnet_op_deliver(op);
}

void
lnet_op_fail(struct lnet_op *op, int status)
{
    switch (op->state) {
    case LNET_OP_QUEUED:
        op->last_event = op->is_get ? LNET_EV_REPLY : LNET_EV_SEND;
        break;
    case LNET_OP_WAITING:
        op->last_event = op->is_get ? LNET_EV_REPLY : LNET_EV_ACK;
        break;
    case LNET_OP_DONE:
        return;
    }
    op->state = LNET_OP_DONE;
    op->status = status;
    base_timer_cancel(&op->ctx->timers, &op->timer);
    if (op->msg != NULL) {
        lnet_msg_drop(op->peer, op->msg);
    }
    lnet_pend(op->ctx, &op->pending);
}

void
lnet_op_deliver(struct lnet_op *op)
{
    struct lnet *ctx = op->ctx;
    struct lnet_entry *entry = op->md;
    const bool is_send = op->is_send_due;
    const bool is_last = op->state == LNET_OP_DONE && (!is_send || op->last_event == 0);
    const lnet_handler_fn handler = entry->handler;
    struct lnet_event event = {
        .type = is_send ? LNET_EV_SEND : op->last_event,
        .status = is_send ? 0 : op->status,
        .portal = op->portal,
        .peer = op->peer,
        .md = {entry->slot.cookie},
        .match_bits = op->match_bits,
        .hdr_data = op->hdr_data,
        .offset_bytes = op->offset_bytes,
        .request_bytes = op->length_bytes,
        .moved_bytes = is_send ? op->length_bytes : op->moved_bytes,
        .user = entry->user,
    };

    BASE_ASSERT(base_list_empty(&op->pending.link));
    op->is_send_due = false;
    lnet_entry_count(entry);
    if (is_last) {
        op_free(op);
        event.unlinked = entry->op_count == 0 && lnet_entry_is_ending(entry);
        if (event.unlinked) {
            lnet_entry_free(ctx, entry);
        }
    } else if (op->state == LNET_OP_DONE) {
        base_list_prepend(&ctx->pendings, &op->pending.link); /* the answer came meanwhile */
        ctx->has_work = true;
    }
    if (handler != NULL) {
        handler(ctx, &event);
    }
}
