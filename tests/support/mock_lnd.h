/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A network driver that does what a test says and remembers what LNet asked of it.
 *
 * Sends are kept, or refused when the connection has no room. What shall come up from the "wire" is
 * put in a script whose steps the next lnet_poll() performs in order.
 */
#pragma once

#include "lnet/lnd/lnd.h"

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>

#define MOCK_EAGER_BYTES_MAX 4096u
#define MOCK_SENT_MAX        4096u
#define MOCK_SCRIPT_MAX      8192u
#define MOCK_CONNS_MAX       64u

struct mock_conn {
    struct lnet_lnd_conn base;
    struct base_list link;
    uint32_t room; /* messages that send() takes before it refuses */
    bool is_refused;
};

/* One message that LNet sent, with as much of its payload as fits. */
struct mock_sent {
    struct mock_conn *conn; /* may be closed by now */
    struct lnet_hdr hdr;
    uint8_t payload[64];
};

struct mock_ni {
    struct lnet_lnd_ni base;
    const struct lnet_lnd_events *events;
    struct base_list conns; /* struct mock_conn.link, oldest first */
    uint32_t open_count;    /* conn_open() calls */
    uint32_t close_count;
    uint32_t poll_count;
    int open_error; /* what conn_open() returns; 0: success */
    uint32_t room;  /* of new connections */
    struct mock_sent sent[MOCK_SENT_MAX];
    uint32_t sent_count;
    struct mock_step *script;
    uint32_t script_first, script_count;
};

/* As an LND whose send() is over when it returns, and as one that reports it with sent(). */
extern const struct lnet_lnd_ops mock_lnd_at_once;
extern const struct lnet_lnd_ops mock_lnd_slow;

/* Adds an interface "ADDRESS@sim" of @ops to @ctx. The interface lives as long as the context. */
struct mock_ni *mock_add(struct lnet *ctx, const struct lnet_lnd_ops *ops, uint32_t address,
                         uint32_t credits, uint32_t peer_credits, uint32_t flags);

/* The connection to @pid of @address that was opened last, or NULL. */
struct mock_conn *mock_conn_find(const struct mock_ni *ni, uint32_t address, uint32_t pid);

/* Steps for the next polls. */
void mock_up(struct mock_ni *ni, struct mock_conn *conn);
void mock_down(struct mock_ni *ni, struct mock_conn *conn, int reason);
void mock_recv(struct mock_ni *ni, struct mock_conn *conn, const struct lnet_hdr *hdr,
               const void *payload);
void mock_done(struct mock_ni *ni, struct mock_conn *conn, uint32_t count);
void mock_room(struct mock_ni *ni, struct mock_conn *conn, uint32_t room);
void mock_accept(struct mock_ni *ni, uint32_t address, uint32_t pid);

/* The NID "ADDRESS@sim". */
struct lnet_nid mock_nid(uint32_t address);
