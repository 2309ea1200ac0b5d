/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An import: a client's view of a target.
 *
 * Invariants:
 *
 *   I1  slots[i] == NULL for exactly the free_count numbers i on the free stack
 *   I2  a request is in slots[] if and only if it is SENT or RESEND
 *   I3  free_count > 0 and FULL implies that nobody waits, but for a put that lnet refused
 *   I4  reports waiting + requests in slots <= max_rpcs: the report ring cannot overflow. A request
 *       takes a report along when it gets its slot, so the sum grows only while no report waits.
 *
 * CONNECT and DISCONNECT use a request of the import's own, so neither needs a slot or the pool.
 */
#pragma once

#include "ptlrpc/request.h"

struct ptlrpc_import {
    struct ptlrpc *rpc;
    struct lnet_peer *peer;
    enum ptlrpc_import_state state; /* written by import.c */
    uint32_t max_rpcs;
    uint32_t free_count;
    uint32_t waiting_count;
    uint64_t timeout_ns;        /* of one try */
    uint64_t total_ns;          /* of all tries */
    struct base_list waiting;   /* DELAYED requests, oldest first */
    struct ptlrpc_hdr template; /* of its requests */
    struct ptlrpc_request **slots;
    uint16_t *free_slots;

    struct ptlrpc_report *reports; /* a ring */
    uint32_t report_mask;
    uint32_t report_head; /* the oldest */
    uint32_t report_tail; /* where the next goes */

    uint64_t sent_count, resend_count, timeout_count, reply_count, late_reply_count;
    uint32_t in_flight_max, waiting_max;

    uint32_t portal;
    uint32_t tries_max;
    uint32_t index;
    uint32_t generation;
    uint64_t connect_at_ns; /* when to send the next CONNECT, PTLRPC_NEVER for not planned */
    uint64_t close_ns;      /* closing: when to wait no longer */
    uint64_t stalled_ns;    /* lnet had no room: when to try again, else PTLRPC_NEVER */
    uint32_t connect_tries; /* without an answer */
    bool is_closing;        /* wanted; the tick does it */
    bool is_disconnecting;  /* a DISCONNECT is out */
    bool is_finished;       /* the end of this tick frees it */
    ptlrpc_import_fn state_changed;
    void *user;
    struct base_list link;     /* rpc->import_list */
    struct ptlrpc_request own; /* CONNECT, DISCONNECT: FREE or SENT */
    uint32_t connect_bytes;
    unsigned char connect_data[PTLRPC_CONNECT_BYTES_MAX];
    char name[64];
    /* The message of `own`, and the body of its reply. */
    BASE_ALIGNED(8)
    unsigned char own_message[sizeof(struct ptlrpc_hdr) + PTLRPC_CONNECT_REPLY_BYTES_MAX];
};

/* Requests that hold a slot. */
static inline uint32_t
ptlrpc_import_in_flight(const struct ptlrpc_import *import)
{
    return import->max_rpcs - import->free_count;
}

/* Plans a CONNECT for the next tick, if the import is DISCON. */
void ptlrpc_import_want(struct ptlrpc_import *import);

/* A reply to the import's own request, whose body of @bytes is in own_message. */
void ptlrpc_import_own_reply(struct ptlrpc_import *import, const struct ptlrpc_hdr *reply,
                             uint32_t bytes);

/* The server forgot us: ends every request with -ESTALE. */
void ptlrpc_import_evict(struct ptlrpc_import *import);

/* A connection to the peer went down, or could not be made: @status. */
void ptlrpc_import_peer_down(struct ptlrpc_import *import, int status);

/* Nobody polled for a while until @now_ns: the present tries of all requests begin afresh. */
void ptlrpc_import_absent(struct ptlrpc_import *import, uint64_t now_ns);

/* What is due at @now_ns. Returns when to look again. */
uint64_t ptlrpc_import_tick(struct ptlrpc_import *import, uint64_t now_ns);

/* Ends and frees @import if it is finished. Tells CLOSED. */
void ptlrpc_import_finish(struct ptlrpc_import *import);

/* Ends everything at once with -ECANCELED and a DISCONNECT whose answer nobody awaits. */
void ptlrpc_import_abort(struct ptlrpc_import *import);
