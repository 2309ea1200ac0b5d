/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract between LNet and a network driver (LND).
 *
 * Downcalls go through struct lnet_lnd_ops, upcalls through struct lnet_lnd_events. These rules
 * hold for every slot; tests/lnd_conformance.c has a case for each, run against every LND.
 *
 *   R1 thread   All calls for one NI, down and up, are made by the thread that polls its context.
 *   R2 no wait  No data-path downcall blocks, allocates or makes a system call that can sleep. Open
 *               and close may do all three, but never wait for a peer.
 *   R3 upcalls  An LND calls up from inside poll() only (and ni_close()). A downcall never calls
 *               back.
 *   R4 copies   send() copies header and payload before it returns 0: the caller's memory is free
 *               at once. An LND without LNET_LND_CAP_SENT still occupies something of its own until
 *               it reports sent(), once per accepted message and in order: LNet's credits count
 *               these.
 *   R5 refusal  -EAGAIN means "no room now" and leaves no trace. One writable() follows.
 *   R6 trust    Whatever a peer can still change is copied before it is checked. recv() hands up a
 *               header that is the LND's own copy and checked by lnet_frame_decode(); the payload
 *               may still lie in shared memory.
 *   R7 time     An LND reads no clock. It knows the now_ns of the last poll() and nothing else.
 *   R8 death    A dead peer's messages that had arrived whole are delivered first; then conn_down()
 *               comes once. LNet answers with conn_close().
 */
#pragma once

#include "causeway/lnet.h"

struct lnet_ni;       /* LNet's side of an interface: first argument of every upcall */
struct lnet_lnd_ni;   /* the LND's side of it; the LND embeds this */
struct lnet_lnd_conn; /* one connection to one peer; the LND embeds it */

/* One message's header, decoded. How it lies on the wire: lnet/lnd/frame.h. */
enum lnet_msg_type { LNET_MSG_ACK = 0, LNET_MSG_PUT = 1, LNET_MSG_GET = 2, LNET_MSG_REPLY = 3 };

struct lnet_hdr {
    uint8_t type;  /* enum lnet_msg_type */
    uint8_t flags; /* PUT: LNET_PUT_ACK */
    uint16_t portal;
    uint32_t length_bytes; /* PUT, REPLY: payload; GET: bytes wanted; ACK: bytes moved */
    uint64_t match_bits;
    uint64_t hdr_data;
    uint64_t md_cookie;    /* PUT with ACK, GET: initiator's MD; ACK, REPLY: the same, returned */
    uint64_t offset_bytes; /* PUT, GET: of the target's MD */
};

/* What every LND's object begins with. LNet fills in and reads these; the LND embeds them first. */
struct lnet_lnd_ni {
    const struct lnet_lnd_ops *ops;
    struct lnet_ni *owner;
    struct lnet_nid nid; /* set by ni_open() */
};

struct lnet_lnd_conn {
    struct lnet_lnd_ni *ni;
    struct lnet_process peer; /* as the handshake proved */
    void *owner;              /* LNet's peer, NULL until LNet adopts the connection */
};

enum lnet_lnd_caps {
    LNET_LND_CAP_SENT = 1u << 0, /* send() that returned 0 is over: sent() is never called */
    LNET_LND_CAP_RMA = 1u << 1,  /* mem_*, window_* and rma are there */
    LNET_LND_CAP_ORDERED = 1u << 2,
    LNET_LND_CAP_LOCAL = 1u << 3, /* loses nothing and needs no checksum */
};

struct lnet_lnd_config {
    const struct lnet_ni_options *options;
    uint32_t net_number;  /* the 1 of "shm1" */
    uint32_t pid;         /* of the context */
    uint64_t incarnation; /* of the context: random, never 0 */
    uint64_t connect_timeout_ns;
    /* The context's log; the LND says each failed open or refused peer once, in words. */
    void (*log)(void *arg, int level, const char *text);
    void *log_arg;
};

struct lnet_lnd_events {
    /*
     * A peer connected to us. LNet adopts @conn (sets conn->owner) and returns 0, or refuses it
     * with an errno (too many peers, not allowed) and the LND closes it by itself. If both sides
     * connect at once, the connection made by the smaller (nid, pid) wins; the LND settles this
     * before it calls: one usable connection per pair.
     */
    int (*accepted)(struct lnet_ni *ni, struct lnet_lnd_conn *conn);

    /* A conn_open() of ours succeeded. */
    void (*conn_up)(struct lnet_ni *ni, struct lnet_lnd_conn *conn);

    /*
     * @conn failed to come up or went down, once; LNet answers with conn_close() before return.
     * -EALREADY: this conn_open() lost against the peer's own, which accepted() will bring or has
     * brought; what is queued waits for that.
     */
    void (*conn_down)(struct lnet_ni *ni, struct lnet_lnd_conn *conn, int reason);

    /*
     * A message came. @hdr is a checked copy; hdr->length_bytes bytes of payload (PUT, REPLY) are
     * at @payload until this returns. A negative return is a protocol error: the LND closes @conn
     * (conn_down() with that reason).
     */
    int (*recv)(struct lnet_ni *ni, struct lnet_lnd_conn *conn, const struct lnet_hdr *hdr,
                const void *payload);

    /* @count oldest messages accepted by send() are over (LNDs without LNET_LND_CAP_SENT). */
    void (*sent)(struct lnet_ni *ni, struct lnet_lnd_conn *conn, uint32_t count);

    /* @conn refused a send() with -EAGAIN before and would not now. */
    void (*writable)(struct lnet_ni *ni, struct lnet_lnd_conn *conn);
};

struct lnet_lnd_credit_info {
    int32_t max, available, min;
};

/* A registration at an LND; the LND allocates and embeds it. */
struct lnet_lnd_mem {
    struct lnet_lnd_ni *ni;
};

struct lnet_lnd_rma {
    const struct lnet_key *key;
    uint64_t remote_offset_bytes;
    const struct iovec *local;
    uint32_t local_count;
    bool is_write;
    enum lnet_rma_path path; /* NONE: choose */
    lnet_rma_fn done;        /* LNet's trampoline, called as done(ctx, status, user) */
    struct lnet *ctx;
    void *user;
};

struct lnet_lnd_ops {
    const char *name;         /* the part of a NID after '@' */
    uint32_t type;            /* enum lnet_lnd_type */
    uint32_t caps;            /* enum lnet_lnd_caps */
    uint32_t eager_bytes_max; /* largest payload send() takes */
    uint32_t reserved;

    /*
     * Opens an interface. On success *ni_out is the LND's until ni_close(); @events and @owner stay
     * valid as long. On error nothing remains.
     * Errors: -ENODEV, -ENOMEM, -EADDRINUSE, -EINVAL bad option, said in the log once.
     */
    int (*ni_open)(const struct lnet_lnd_config *config, struct lnet_ni *owner,
                   const struct lnet_lnd_events *events, struct lnet_lnd_ni **ni_out);

    /* Frees @ni. LNet has closed every connection it adopted; half-made ones are the LND's to end.
     */
    void (*ni_close)(struct lnet_lnd_ni *ni);

    /*
     * In a child of fork(): closes descriptors and unmaps what is shared, writes to neither, and
     * calls nobody. Whatever else @ni has is leaked. NULL: it has nothing of the kind.
     */
    void (*ni_abandon)(struct lnet_lnd_ni *ni);

    /* May LNet let @nid be reached by this NI? (same net, an address this LND knows) */
    bool (*can_reach)(const struct lnet_lnd_ni *ni, struct lnet_nid nid);

    /*
     * Starts to connect; conn->owner = @owner. Ends in one conn_up() or conn_down() from a later
     * poll(), at the latest after connect_timeout_ns. Messages may be sent after conn_up().
     * Errors: -EAGAIN no room for more connections; -ENOMEM.
     */
    int (*conn_open)(struct lnet_lnd_ni *ni, const struct lnet_process *peer, void *owner,
                     struct lnet_lnd_conn **conn_out);

    /* Closes @conn at once and frees it. Outstanding rma ends with -ECONNRESET in a later poll. */
    void (*conn_close)(struct lnet_lnd_conn *conn);

    /*
     * Sends one message: @hdr and the hdr->length_bytes bytes of @iov (PUT, REPLY).
     * Errors: -EAGAIN see R5; -ENOTCONN the connection is down or going down.
     */
    int (*send)(struct lnet_lnd_conn *conn, const struct lnet_hdr *hdr, const struct iovec *iov,
                uint32_t iov_count);

    /*
     * Makes progress: flushes doorbells of sends since the last call, accepts and connects, reaps
     * arrivals with at most @budget upcalls. Its cost does not grow with idle connections. Returns
     * the upcalls made.
     */
    uint32_t (*poll)(struct lnet_lnd_ni *ni, uint64_t now_ns, uint32_t budget);

    /*
     * A descriptor to sleep on (level triggered): the LND's. -EOPNOTSUPP: there is none, and arm()
     * says -EBUSY as long as poll() must be called.
     */
    int (*fd)(struct lnet_lnd_ni *ni);

    /* 0: whatever arrives from now on makes fd() readable, until the next poll(). -EBUSY: poll. */
    int (*arm)(struct lnet_lnd_ni *ni);

    /* When poll() must be called at the latest, UINT64_MAX for never. */
    uint64_t (*next_deadline)(const struct lnet_lnd_ni *ni);

    /* The LND's own buffer credits of @conn, for the statistics. */
    void (*credits)(const struct lnet_lnd_conn *conn, struct lnet_lnd_credit_info *info_out);

    /* Which RMA paths work here and why not, in words ("mapped; cma refused: EPERM (Yama)"). */
    void (*describe)(const struct lnet_lnd_ni *ni, char *text, uint32_t text_bytes);

    /*
     * Memory. Allocated memory is what the LND can share best (shm: a sealed memfd). @flags: enum
     * lnet_mem_flags.
     */
    int (*mem_alloc)(struct lnet_lnd_ni *ni, uint64_t bytes, uint32_t flags,
                     struct lnet_lnd_mem **mem_out, void **address_out);
    int (*mem_register)(struct lnet_lnd_ni *ni, void *address, uint64_t bytes,
                        struct lnet_lnd_mem **mem_out);
    void (*mem_release)(struct lnet_lnd_mem *mem);
    uint64_t (*mem_page_bytes)(const struct lnet_lnd_mem *mem);

    /*
     * As lnet_window_open() and lnet_window_close(), of one NI. The top 8 bits of the cookie are
     * LNet's (they name the NI): an LND leaves them 0.
     */
    int (*window_open)(struct lnet_lnd_mem *mem, uint64_t offset_bytes, uint64_t length_bytes,
                       uint32_t access, struct lnet_window *window_out, struct lnet_key *key_out);
    int (*window_close)(struct lnet_lnd_ni *ni, struct lnet_window window);

    /* As lnet_rma(): one done() from a later poll(), also after conn_close(). */
    int (*rma)(struct lnet_lnd_conn *conn, const struct lnet_lnd_rma *rma);
    enum lnet_rma_path (*rma_path)(struct lnet_lnd_conn *conn, const struct lnet_key *key);
    uint64_t rma_bytes_max;
};

/* The drivers of this build, NULL-terminated: lnet/lnd/registry.c. */
extern const struct lnet_lnd_ops *const lnet_lnds[];
