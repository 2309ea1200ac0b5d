/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages on their way out.
 *
 * A message goes straight to the LND when its peer is_fast (up, nothing queued, LND not full) and
 * both credits are there. Else it joins its peer's queue, in order, and leaves it by lnet_peer's
 * flush, by its deadline or by the end of the connection.
 */
#pragma once

#include "lnet/peer.h"

#include "lnet/lnd/lnd.h"

#include <errno.h>

#define LNET_MSG_INLINE_BYTES 256u /* payload that fits into a queued message itself */

struct lnet_op;

/* A queued message. */
struct lnet_msg {
    struct base_list link; /* in peer.queue or in lnet.msgs_free */
    struct lnet_hdr hdr;
    struct lnet_op *op; /* its bytes are in this operation's MD; NULL: in data[] or in big */
    uint64_t deadline_ns;
    bool is_response; /* an ACK or REPLY: counts against the responses' bound */
    void *big;
    uint8_t data[LNET_MSG_INLINE_BYTES];
};

/*
 * Queues a message behind the others of @peer, and connects if need be. With @op its bytes stay in
 * the MD, else they are copied.
 * Errors: -EAGAIN the queue is full; -EHOSTUNREACH.
 */
int lnet_msg_queue(struct lnet_peer *peer, const struct lnet_hdr *hdr, const struct iovec *iov,
                   uint32_t iov_count, struct lnet_op *op);

/* Sends an ACK or a REPLY, now or later. Errors: -EAGAIN it was dropped. */
int lnet_msg_respond(struct lnet_peer *peer, const struct lnet_hdr *hdr, const struct iovec *iov,
                     uint32_t iov_count);

/*
 * Sends the first message of @peer's queue if it may go; @has_turn: an NI credit is there for it.
 * Returns whether one left the queue.
 */
bool lnet_msg_flush_one(struct lnet_peer *peer, bool has_turn);

/* Sends what may go from @peer's queue, in order. */
void lnet_msg_flush(struct lnet_peer *peer);

/* Takes @msg off its peer's queue and frees it. */
void lnet_msg_drop(struct lnet_peer *peer, struct lnet_msg *msg);

/* Ends all messages in @peer's queue: operations with @status, the others are counted as lost. */
void lnet_msg_drop_all(struct lnet_peer *peer, int status);

/* Ends the messages of @peer whose deadline is past; returns the next deadline. */
uint64_t lnet_msg_drop_expired(struct lnet_peer *peer, uint64_t now_ns);

/* The LND of @peer is done with @count messages. */
void lnet_msg_on_sent(struct lnet_peer *peer, uint32_t count);

/* Frees the messages that wait for use. */
void lnet_msgs_fini(struct lnet *ctx);

/*
 * Gives a message to @peer's LND now.
 * Errors: -EAGAIN it must be queued; or what the LND refused for good.
 */
static inline __attribute__((always_inline)) int
lnet_msg_try(struct lnet_peer *peer, const struct lnet_hdr *hdr, const struct iovec *iov,
             uint32_t iov_count)
{
    struct lnet_ni *ni = peer->ni;

    if (BASE_UNLIKELY(!peer->is_fast || peer->credits.available <= 0 ||
                      ni->credits.available <= 0)) {
        return -EAGAIN;
    }
    const int rc = peer->send(peer->conn, hdr, iov, iov_count);

    if (BASE_UNLIKELY(rc != 0)) {
        if (rc == -EAGAIN || rc == -ENOTCONN) {
            /* writable() or conn_down() follows; what comes now waits in order. */
            peer->is_blocked = true;
            peer->is_fast = false;
            return -EAGAIN;
        }
        return rc;
    }
    lnet_peer_count_sent(peer, hdr);
    if (BASE_LIKELY(peer->is_sent_at_once)) {
        lnet_credits_touch(&peer->credits);
        lnet_credits_touch(&ni->credits);
    } else {
        lnet_credits_take(&peer->credits);
        lnet_credits_take(&ni->credits);
    }
    return 0;
}
