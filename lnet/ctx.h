/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The context: what all files of lnet/ share. Nothing here is seen by anybody else.
 */
#pragma once

#include "causeway/lnet.h"

#include "lnet/match.h"
#include "lnet/md.h"
#include "lnet/msg.h"
#include "lnet/ni.h"
#include "lnet/op.h"
#include "lnet/peer.h"
#include "lnet/post.h"
#include "lnet/slots.h"

#include "base/log.h"
#include "base/prng.h"
#include "base/timer.h"

struct lnet {
    /* What every turn reads. */
    uint64_t now_ns;
    struct base_timers timers;
    bool has_work; /* pendings or peer_work is not empty */
    bool is_armed; /* the owner may sleep on event_fd */
    bool is_in_poll;
    bool is_closing;
    bool has_time;   /* lnet_poll() has been called: now_ns is the time */
    bool lo_is_used; /* interface 0 must be polled */
    bool turn_is_odd;
    uint32_t ni_count;
    uint32_t ni_next; /* the interface that the next turn begins with */
    struct lnet_ni *nis[LNET_NIS_MAX];

    struct base_list pendings;  /* struct lnet_pending.link: events to deliver */
    struct base_list peer_work; /* struct lnet_peer.work_link */
    struct lnet_portal portals[LNET_PORTALS];
    struct lnet_slots mds;
    struct lnet_slots ops;
    struct lnet_slots rmas; /* those that are out (mem.c) */
    uint32_t op_timers_reserved;
    uint32_t user_timers_reserved;
    uint32_t user_timers_armed;

    /* Queued messages. */
    struct base_list msgs_free;
    uint32_t msg_count; /* of users, waiting */
    uint32_t response_count;

    struct base_list *peer_buckets;
    uint32_t peer_count;
    struct base_list watches; /* struct lnet_peer_watch.internal */
    struct base_list *watch_next;

    /* From the options. */
    uint32_t pid;
    uint32_t peers_max;
    uint32_t mds_max;
    uint32_t queued_messages_max;
    uint64_t transaction_timeout_ns;
    uint64_t connect_timeout_ns;
    uint64_t incarnation;
    lnet_stamp_fn stamp;
    void *stamp_arg;
    struct base_log log;
    struct base_prng prng;

    int epoll_fd;
    int event_fd;

    struct lnet_md_handle ping_md;
    uint8_t ping_reply[16 + 16 * 8];

    struct lnet_posts posts; /* the one part that other threads touch */
};

/* Has @pending delivered by a later turn. */
static inline void
lnet_pend(struct lnet *ctx, struct lnet_pending *pending)
{
    if (base_list_empty(&pending->link)) {
        base_list_append(&ctx->pendings, &pending->link);
    }
    ctx->has_work = true;
}

/* Delivers at most @budget pending events; returns how many. */
uint32_t lnet_events_deliver(struct lnet *ctx, uint32_t budget);

/* Refreshes what a ping says of this context. */
void lnet_ping_update(struct lnet *ctx);

/* Makes the table of RMAs that are out. Errors: -ENOMEM. */
int lnet_rmas_init(struct lnet *ctx, uint32_t count_max);

/* Attaches the ping's MD. */
int lnet_ping_init(struct lnet *ctx);

/* lnet_md_attach() that may use portal 0. */
int lnet_entry_attach(struct lnet *ctx, const struct lnet_match *match, const struct lnet_md *md,
                      struct lnet_md_handle *md_out);
