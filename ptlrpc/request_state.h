/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The states of a client's request, and the one function that moves between them.
 *
 *     FREE -> NEW -> SENT -> FREE                  a slot was free; the reply came
 *     NEW -> DELAYED -> SENT                       no slot, or no connection yet
 *     SENT -> RESEND -> SENT                       the connection broke, or the server was busy
 *     DELAYED, SENT or RESEND -> ENDING -> FREE    it failed or was cancelled
 *     NEW -> FREE                                  dropped by the caller
 *
 * A request in SENT or RESEND holds its slot and is found there; only the others need a list:
 *
 *     DELAYED  import->waiting
 *     ENDING   rpc->ending
 *     SENT and RESEND  none, or rpc->cancelled while its caller is to be told -ECANCELED
 */
#pragma once

#include "base/assert.h"

#include <stdint.h>

enum ptlrpc_req_state {
    PTLRPC_REQ_FREE,    /* in the pool */
    PTLRPC_REQ_NEW,     /* the caller writes the body */
    PTLRPC_REQ_DELAYED, /* waits for a slot or the connection */
    PTLRPC_REQ_SENT,    /* waits for the reply */
    PTLRPC_REQ_RESEND,  /* was sent; waits for the connection, or out a pause, to be sent again */
    PTLRPC_REQ_ENDING,  /* waits for the tick that tells its end */
};
#define PTLRPC_REQ_STATE_COUNT 6

struct ptlrpc_request;

/* For each state the set of those that may follow. */
extern const uint8_t ptlrpc_req_allowed[PTLRPC_REQ_STATE_COUNT];

/* Whether a request in @from may go to @to. */
static inline int
ptlrpc_req_may_move(enum ptlrpc_req_state from, enum ptlrpc_req_state to)
{
    return (ptlrpc_req_allowed[from] >> to) & 1;
}

/* Moves a request, whose state is *@state. Nothing else writes it. */
static inline void
ptlrpc_req_move(uint8_t *state, enum ptlrpc_req_state to)
{
    BASE_ASSERT(ptlrpc_req_may_move((enum ptlrpc_req_state) * state, to));
    *state = (uint8_t)to;
}
