/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers: the process addresses we talk to, and the connections to them.
 *
 *   DOWN --message--> CONNECTING --conn_up, accepted--> UP --conn_down, disconnect--> DOWN
 *
 * A peer is in the table while anybody refers to it: a user's reference, a connection, a queued
 * message or an operation. It is freed between two polls' work, never under a callback.
 *
 *   I1  is_fast == (state is UP, queue empty, not is_blocked)
 *   I2  credits.waiting == length of queue
 *   I3  conn != NULL if state is UP
 */
#pragma once

#include "causeway/lnet.h"

#include "lnet/credit.h"
#include "lnet/ni.h"
#include "lnet/stats.h"

#include "lnet/lnd/lnd.h"

#include "base/list.h"
#include "base/timer.h"

struct lnet_peer {
    /* What sending reads. */
    int (*send)(struct lnet_lnd_conn *conn, const struct lnet_hdr *hdr, const struct iovec *iov,
                uint32_t iov_count);
    struct lnet_lnd_conn *conn;
    struct lnet_ni *ni;
    struct lnet *ctx;
    struct lnet_credits credits;
    bool is_fast;
    bool is_blocked;      /* the LND has no room; writable() will come */
    bool is_sent_at_once; /* the LND has LNET_LND_CAP_SENT */
    bool is_up_untold;    /* the watchers do not know yet */
    uint32_t send_bytes_max;
    struct lnet_process process;

    struct lnet_tally tally;

    enum lnet_peer_state state;
    uint32_t reference_count;
    uint32_t response_count; /* ACKs and REPLYs in the queue */
    bool is_disconnecting;
    bool is_ours;                 /* we made the connection */
    uint64_t connect_deadline_ns; /* of the peer's own connection, when ours lost */
    struct base_list queue;       /* struct lnet_msg.link, oldest first */
    struct base_list ops;         /* struct lnet_op.peer_link */
    struct base_list credit_link; /* in ni.credit_waiters */
    struct base_list work_link;   /* in lnet.peer_work */
    struct base_list hash_link;
    struct base_timer timer; /* of the oldest queued message, or connect_deadline_ns */
};

#define LNET_PEER_BUCKETS 256u

/* The peer of @process if it is known, else NULL. */
struct lnet_peer *lnet_peer_find(const struct lnet *ctx, const struct lnet_process *process);

/* Starts to connect if @peer is DOWN. Errors: -EAGAIN, -EHOSTUNREACH. */
int lnet_peer_connect(struct lnet_peer *peer);

/* Has @peer looked at by lnet_peers_work() of the next poll. */
void lnet_peer_add_work(struct lnet_peer *peer);

/* Has @peer freed if nobody refers to it. */
void lnet_peer_check_unused(struct lnet_peer *peer);

/* Tells the watchers that @peer is up, if they do not know. */
void lnet_peer_tell_up(struct lnet_peer *peer);

/*
 * The first lnet_poll() brings the time: what was submitted before it has its timeout from now on.
 */
void lnet_peers_begin_time(struct lnet *ctx, uint64_t now_ns);

/* Does what was put off: disconnects, news for the watchers, the freeing of peers. */
void lnet_peers_work(struct lnet *ctx);

/* Ends all connections and operations with -ECANCELED. */
void lnet_peers_cancel(struct lnet *ctx);

/* Frees all peers. */
void lnet_peers_fini(struct lnet *ctx);

/* Upcalls. */
int lnet_peer_on_accepted(struct lnet_ni *ni, struct lnet_lnd_conn *conn);
void lnet_peer_on_conn_up(struct lnet_ni *ni, struct lnet_lnd_conn *conn);
void lnet_peer_on_conn_down(struct lnet_ni *ni, struct lnet_lnd_conn *conn, int reason);

/* Books a message that the LND took. */
static inline void
lnet_peer_count_sent(struct lnet_peer *peer, const struct lnet_hdr *hdr)
{
    peer->tally.sent[hdr->type & 3]++;
    if (hdr->type == LNET_MSG_PUT || hdr->type == LNET_MSG_REPLY) {
        peer->tally.sent_bytes += hdr->length_bytes;
    }
}

/* Restores I1 after a change of state, queue or is_blocked. */
static inline void
lnet_peer_update_fast(struct lnet_peer *peer)
{
    peer->is_fast =
        peer->state == LNET_PEER_UP && !peer->is_blocked && base_list_empty(&peer->queue);
}
