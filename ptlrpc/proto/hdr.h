/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The header of every request and reply: 64 bytes, little-endian, before the body.
 *
 * Field meanings are Lustre's (ptlrpc_body) where it has them.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#    error "wire structs are little-endian and used in place: convert here for a big-endian host"
#endif

#define PTLRPC_HDR_VERSION 1u

enum ptlrpc_hdr_type { PTLRPC_HDR_REQUEST = 1, PTLRPC_HDR_REPLY = 2 };

enum ptlrpc_hdr_flags {
    PTLRPC_HDR_RESENT = 1u << 0,    /* request: sent before */
    PTLRPC_HDR_REPLAY = 1u << 1,    /* request: replayed after a server restart */
    PTLRPC_HDR_EARLY = 1u << 2,     /* reply: more time is needed */
    PTLRPC_HDR_NO_EXPORT = 1u << 3, /* reply: the handle names no export: connect again */
    PTLRPC_HDR_BUSY = 1u << 4,     /* reply: not looked at, no room: send it again a little later */
    PTLRPC_HDR_NO_REPLY = 1u << 5, /* PING: nobody waits for the reply */
};

struct ptlrpc_hdr {
    uint8_t version; /*  0 */
    uint8_t type;    /*  1 enum ptlrpc_hdr_type */
    uint16_t opc;    /*  2 */
    uint32_t flags;  /*  4 */
    uint64_t xid;    /*  8 grows with every new request of an import; a resend keeps it */
    uint64_t handle; /* 16 export cookie; CONNECT: the old one, if any; its reply: the new one */
    union {
        struct {
            uint64_t transno;     /* 24 0, or that of a replay */
            uint64_t incarnation; /* 32 of the client import: new per ptlrpc_import_open() */
            uint32_t body_bytes;  /* 40 */
            uint32_t generation;  /* 44 of the connection, grows with each CONNECT of an import */
            uint32_t timeout_ms;  /* 48 the client waits this long */
            uint16_t slot;        /* 52 below max_rpcs_in_flight; CONNECT: that number */
            uint16_t report_opc;  /* 54 op of an earlier request that the next two tell of, or 0 */
            uint32_t report_total_ns; /* 56 queued to received; saturates */
            uint32_t report_wait_ns;  /* 60 of it, waiting for a slot or credit */
        } request;
        struct {
            uint64_t transno;        /* 24 */
            uint64_t last_committed; /* 32 */
            uint32_t body_bytes;     /* 40 */
            int32_t status;          /* 44 0 or a negative errno of Linux x86-64 */
            uint32_t queue_ns;       /* 48 arrived to started; these saturate */
            uint32_t service_ns;     /* 52 started to replied */
            uint32_t bulk_ns;        /* 56 */
            uint32_t store_ns;       /* 60 */
        } reply;
    } u;
};

static_assert(sizeof(struct ptlrpc_hdr) == 64, "one cache line");
static_assert(offsetof(struct ptlrpc_hdr, xid) == 8, "wire");
static_assert(offsetof(struct ptlrpc_hdr, u.request.body_bytes) == 40, "wire");
static_assert(offsetof(struct ptlrpc_hdr, u.reply.body_bytes) == 40, "wire");
static_assert(offsetof(struct ptlrpc_hdr, u.request.report_wait_ns) == 60, "wire");

/* Portals of the services; Lustre's numbers where it has them. */
#define PTLRPC_PORTAL_REPLY   10 /* MDC_REPLY_PORTAL: all replies; match bits are the xid */
#define PTLRPC_PORTAL_OST     6  /* OST_REQUEST_PORTAL (and IO) */
#define PTLRPC_PORTAL_MDS     12 /* MDS_REQUEST_PORTAL */
#define PTLRPC_PORTAL_OUT     24 /* between the reactors of an MDS (Lustre: OUT_PORTAL) */
#define PTLRPC_PORTAL_CONTROL 26 /* lctl's questions to a server (Lustre: MGS_REQUEST_PORTAL) */
