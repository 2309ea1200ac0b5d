/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interfaces: LNet's side of an LND's.
 *
 * NI credits are held by messages that are with the LND. A peer whose first queued message lacks
 * only an NI credit waits in credit_waiters, one place however many messages it has: the peers of a
 * busy interface are served in turn.
 *
 *   I1  credits.waiting == number of peers in credit_waiters
 */
#pragma once

#include "lnet/credit.h"
#include "lnet/stats.h"

#include "lnet/lnd/lnd.h"

#include "base/list.h"

#define LNET_NIS_MAX 16u

struct lnet_ni {
    struct lnet *ctx;
    const struct lnet_lnd_ops *ops;
    struct lnet_lnd_ni *lnd;
    struct lnet_nid nid;
    uint32_t index;
    uint32_t flags; /* enum lnet_ni_flags */
    uint32_t peer_credits;
    uint32_t conn_count;
    uint64_t ring_bytes;
    struct lnet_credits credits;
    struct base_list credit_waiters; /* struct lnet_peer.credit_link */
    struct lnet_tally gone;          /* of peers that are no more */
    char net[16];
};

/* Opens an interface of the LND @ops: lnet_ni_add() after the name is known. */
int lnet_ni_open(struct lnet *ctx, const struct lnet_lnd_ops *ops,
                 const struct lnet_ni_options *given, struct lnet_ni **ni_out);

/* Closes @ni, whose connections are closed. What is left is the caller's to free. */
void lnet_ni_close(struct lnet_ni *ni);

/* The interface over which @nid can be reached, or NULL. */
struct lnet_ni *lnet_ni_find(const struct lnet *ctx, struct lnet_nid nid);

/* Whether @process is this context, by any of its NIDs. */
bool lnet_is_self(const struct lnet *ctx, const struct lnet_process *process);

/* Serves the peers that wait for NI credits, in turn. */
void lnet_ni_serve_waiters(struct lnet_ni *ni);

/* Upcalls (recv.c). */
int lnet_recv(struct lnet_ni *ni, struct lnet_lnd_conn *conn, const struct lnet_hdr *hdr,
              const void *payload);
