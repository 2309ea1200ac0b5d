/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control service: what `causeway lctl` asks a running server, over any net.
 *
 * A request names a subject; the answer is a JSON text, fetched in pieces that fit a reply.
 */
#pragma once

#include "tools/host.h"

#include <jansson.h>

#define CONTROL_PORTAL 26 /* Lustre: MGS_REQUEST_PORTAL; kept free in ptlrpc/proto/hdr.h */

enum control_opc { CONTROL_GET = 50 };

enum control_subject { CONTROL_NIS = 1, CONTROL_PEERS, CONTROL_STATS, CONTROL_PARAMS };

/* The request's body. A piece with offset 0 makes the text anew. */
struct control_get_req {
    uint32_t subject; /* 0 enum control_subject */
    uint32_t offset;  /* 4 bytes of the text to skip */
};

/* The reply's body; piece_bytes of text follow. */
struct control_get_rep {
    uint32_t text_bytes;  /* 0 of the whole text */
    uint32_t piece_bytes; /* 4 */
};

/* Serves PTLRPC_PORTAL_CONTROL in @reactor. Errors: those of ptlrpc_service_add(). */
int control_serve(struct host_reactor *reactor);

/* Frees what control_serve() made, before ptlrpc_close(). */
void control_end(struct host_reactor *reactor);

/*
 * Statistics of one service as JSON: its counters, and an object per op that was executed.
 * A new reference.
 */
json_t *control_service_json(const struct ptlrpc_service *service);
