/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events that could not be delivered where they arose: callbacks run from lnet_poll() only.
 */
#include "lnet/ctx.h"

/* Delivers the LNET_EV_UNLINK of @entry, which is gone by that. */
static void
entry_deliver_unlink(struct lnet *ctx, struct lnet_entry *entry)
{
    const lnet_handler_fn handler = entry->handler;
    const struct lnet_event event = {
        .type = LNET_EV_UNLINK,
        .unlinked = true,
        .portal = entry->portal,
        .md = {entry->slot.cookie},
        .user = entry->user,
    };

    lnet_entry_free(ctx, entry);
    if (handler != NULL) {
        handler(ctx, &event);
    }
}

uint32_t
lnet_events_deliver(struct lnet *ctx, uint32_t budget)
{
    uint32_t count = 0;

    while (count < budget && !base_list_empty(&ctx->pendings)) {
        struct base_list *link = base_list_first(&ctx->pendings);
        struct lnet_pending *pending = BASE_CONTAINER_OF(link, struct lnet_pending, link);

        base_list_unlink(link);
        count++;
        if (pending->is_op) {
            lnet_op_deliver(BASE_CONTAINER_OF(pending, struct lnet_op, pending));
        } else {
            entry_deliver_unlink(ctx, BASE_CONTAINER_OF(pending, struct lnet_entry, pending));
        }
    }
    if (!base_list_empty(&ctx->pendings)) {
        ctx->has_work = true;
    }
    return count;
}
