/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of ours that somebody waits for: PUTs with an event to come, and GETs.
 *
 *   QUEUED --sent--> WAITING --ack, reply, death, timeout, unlink--> DONE --event--> free
 *     |                                                                ^
 *     '------------- failed; or sent and nothing to wait for ----------'
 *
 * The cookie of an operation, not that of its MD, travels in the message: an MD may have many out.
 * The bytes are the LND's own copy once it took the message, so LNET_EV_SEND is due at once and
 * the end of an operation never waits for the network.
 */
#pragma once

#include "lnet/md.h"
#include "lnet/msg.h"
#include "lnet/peer.h"

#include "base/timer.h"

enum lnet_op_state {
    LNET_OP_QUEUED,  /* its message waits for a credit, a connection or room */
    LNET_OP_WAITING, /* for the ACK or the REPLY */
    LNET_OP_DONE,    /* its last event is to be delivered */
};

struct lnet_op {
    struct lnet_slot slot;
    struct lnet_pending pending;
    struct base_list md_link;
    struct base_list peer_link;
    struct base_timer timer;
    struct lnet *ctx;
    struct lnet_entry *md;
    struct lnet_peer *peer;
    struct lnet_msg *msg; /* while QUEUED */
    enum lnet_op_state state;
    enum lnet_event_type last_event; /* when DONE; 0: the SEND that is due is the last */
    bool is_get;
    bool wants_ack;
    bool wants_send;
    bool is_send_due;
    int status;
    uint64_t offset_bytes;
    uint64_t length_bytes;
    uint64_t moved_bytes;
    uint64_t match_bits;
    uint64_t hdr_data;
    uint32_t portal;
};

struct lnet_op_args {
    struct lnet_entry *md;
    const struct lnet_target *target;
    uint64_t offset_bytes;
    uint64_t length_bytes;
    bool is_get, wants_ack, wants_send;
    uint64_t deadline_ns; /* of the ACK or REPLY */
};

/* A new operation, QUEUED, or NULL when there are too many. */
struct lnet_op *lnet_op_create(struct lnet *ctx, const struct lnet_op_args *args);

/* Takes back an operation whose submission failed: as if it had never been. */
void lnet_op_abandon(struct lnet_op *op);

/* The LND took the operation's message. May free @op. */
void lnet_op_on_sent(struct lnet_op *op);

/* The ACK or REPLY came: delivers the event, or leaves it to the event of the SEND before it. */
void lnet_op_on_answer(struct lnet_op *op, uint64_t moved_bytes);

/* It will not come: an event with @status is to be delivered. Harmless when DONE. */
void lnet_op_fail(struct lnet_op *op, int status);

/* Delivers the next event of @op, which is on no pending list; it may be freed by that. */
void lnet_op_deliver(struct lnet_op *op);
