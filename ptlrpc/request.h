/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client's request: its memory, its sending and its ends.
 *
 * The message (header and body) lies in one piece and is sent from there; the reply's body is
 * copied over the request's, which nobody needs any more then. Which states there are and who may
 * change them: request_state.h.
 */
#pragma once

#include "ptlrpc/request_state.h"
#include "ptlrpc/rpc.h"

struct ptlrpc_request {
    struct ptlrpc_import *import;
    struct ptlrpc_hdr *msg;
    ptlrpc_done_fn done; /* NULL: nobody waits (any more) */
    void *user;
    uint64_t deadline_ns; /* SENT: of this try; RESEND: of its pause */
    uint64_t final_ns;    /* no try after this; DELAYED: it was never sent */
    uint8_t state;        /* enum ptlrpc_req_state; written by ptlrpc_req_move() */
    uint8_t busy_count;   /* BUSY replies in a row */
    uint16_t slot;
    uint32_t index;
    uint32_t tries;
    int status; /* ENDING: what done() will be told */

    struct base_list link; /* see request_state.h */
    struct ptlrpc_stages stages;
};

/* Sends @req, of which every field is set, once more or for the first time. Errors: lnet's. */
int ptlrpc_req_put(struct ptlrpc_request *req);

/*
 * Gives DELAYED requests of a connected import its free slots, oldest first.
 */
void ptlrpc_req_kick(struct ptlrpc_import *import);

/* One more try of a request that is SENT or RESEND: the same xid and slot, the import's generation.
 */
void ptlrpc_req_resend(struct ptlrpc_request *req);

/* Ends @req with @status, told from a later tick. NEW requests are not for this. */
void ptlrpc_req_end(struct ptlrpc_request *req, int status);

/* Gives the slot of @req, which is SENT or RESEND, back to its import; its xid waits no more. */
void ptlrpc_req_release(struct ptlrpc_request *req);

/* Tells the ends that are due. Part of the tick. */
void ptlrpc_req_tell_all(struct ptlrpc *rpc);

/* The lnet_handler_fn of the engine's one reply MD. */
void ptlrpc_reply_event(struct lnet *ctx, const struct lnet_event *event);

/* A stage report waits to be sent with a later request. */
struct ptlrpc_report {
    uint16_t opc;
    uint32_t total_ns;
    uint32_t wait_ns;
};
