/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of a request's moves; the picture of it is in request_state.h.
 */
#include "ptlrpc/request_state.h"

#define TO(state) (1u << PTLRPC_REQ_##state)

const uint8_t ptlrpc_req_allowed[PTLRPC_REQ_STATE_COUNT] = {
    [PTLRPC_REQ_FREE] = TO(NEW),
    [PTLRPC_REQ_NEW] = TO(DELAYED) | TO(SENT) | TO(FREE),
    [PTLRPC_REQ_DELAYED] = TO(SENT) | TO(ENDING),
    [PTLRPC_REQ_SENT] = TO(RESEND) | TO(ENDING) | TO(FREE),
    [PTLRPC_REQ_RESEND] = TO(SENT) | TO(ENDING) | TO(FREE),
    [PTLRPC_REQ_ENDING] = TO(FREE),
};
