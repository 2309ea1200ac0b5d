/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lnet.h - messages between process addresses, after Lustre's LNet.
 *
 * A context (struct lnet) is one thread's whole network: its interfaces (NIs), peers, memory
 * descriptors (MDs), credits and time. One thread drives it by lnet_poll(); nothing starts a
 * thread, takes a signal or keeps global state. Callbacks run only inside lnet_poll().
 *
 * A process address is (NID, pid). Each reactor of a server is a pid of its own.
 *
 * Errors are 0 or a negative errno. -EAGAIN: no room now. -EINVAL, -EMSGSIZE, -EOPNOTSUPP: outside
 * the documented domain. -EHOSTUNREACH, -ENOTCONN: no route, no connection. -ECONNRESET,
 * -ETIMEDOUT: the peer or time went away with the operation out (it may have acted). -ECANCELED:
 * withdrawn. -EPROTO: the peer broke the protocol. -ENOMEM: only from open and create calls.
 * -ESTALE: the handle names nothing any more.
 */
#ifndef CAUSEWAY_LNET_H
#define CAUSEWAY_LNET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LNET_API __attribute__((visibility("default")))

#define LNET_VERSION_MAJOR 0
#define LNET_VERSION_MINOR 1

struct lnet;      /* a context */
struct lnet_peer; /* a process address this context talks to; counted references */
struct lnet_mem;  /* memory known to the interfaces, so that peers may be let into it */

/* ---- names ------------------------------------------------------------------------------ */

/*
 * A NID in Lustre's 64-bit form: bits 55..48 the LND type, 47..32 the net number, 31..0 the
 * address. Text: "3@shm", "10.0.0.1@tcp1".
 */
struct lnet_nid {
    uint64_t value;
};

struct lnet_process {
    struct lnet_nid nid;
    uint32_t pid;
    uint32_t reserved; /* 0 */
};

#define LNET_NID_ANY       UINT64_MAX
#define LNET_PID_ANY       UINT32_MAX
#define LNET_NID_TEXT_MAX  64
#define LNET_PROC_TEXT_MAX 80

/* LND types: Lustre's where Lustre has them. Ours are out of its range. */
enum lnet_lnd_type {
    LNET_LND_TCP = 2,
    LNET_LND_LO = 9,
    LNET_LND_SHM = 0xc0,
    LNET_LND_SIM = 0xc1,
    LNET_LND_UCX = 0xc2,
    LNET_LND_VERBS = 0xc3,
    LNET_LND_UDP = 0xc4,
};

/**
 * lnet_nid_parse() - read a NID such as "3@shm"
 * @text:    NUL-terminated; nothing may follow the NID.
 * @nid_out: the NID.
 *
 * Errors:  -EINVAL not a NID.
 * Context: any thread.
 */
LNET_API int lnet_nid_parse(const char *text, struct lnet_nid *nid_out);

/**
 * lnet_nid_format() - write a NID as text
 * @nid:  the NID.
 * @text: room for the text, NUL-terminated.
 *
 * Return:  @text.
 * Context: any thread.
 */
LNET_API const char *lnet_nid_format(struct lnet_nid nid, char text[LNET_NID_TEXT_MAX]);

/**
 * lnet_process_parse() - read "NID" (pid 0) or "PID-NID", as in "2-3@shm"
 * @text:        NUL-terminated.
 * @process_out: the address.
 *
 * Errors:  -EINVAL not an address.
 * Context: any thread.
 */
LNET_API int lnet_process_parse(const char *text, struct lnet_process *process_out);

/**
 * lnet_process_format() - write an address as "PID-NID"
 * @process: the address.
 * @text:    room for the text.
 *
 * Return:  @text.
 * Context: any thread.
 */
LNET_API const char *lnet_process_format(const struct lnet_process *process,
                                         char text[LNET_PROC_TEXT_MAX]);

/**
 * lnet_error_name() - the stable name of an error code, such as "ETIMEDOUT"
 * @error: 0 or a negative errno.
 *
 * Return:  a static string; "OK" for 0, "EUNKNOWN" for what errno(3) does not have.
 * Context: any thread.
 */
LNET_API const char *lnet_error_name(int error);

/* ---- context ---------------------------------------------------------------------------- */

enum lnet_log_level { LNET_LOG_ERROR, LNET_LOG_WARN, LNET_LOG_INFO, LNET_LOG_DEBUG };

typedef void (*lnet_log_fn)(void *arg, int level, const char *subsystem, const char *text);
typedef uint64_t (*lnet_stamp_fn)(void *arg);

struct lnet_options {
    uint32_t struct_bytes; /* sizeof(struct lnet_options) */
    uint32_t pid;          /* this context's pid within its NIDs */
    uint64_t seed;         /* of the context's random numbers */
    lnet_stamp_fn
        stamp; /* a cheap clock in ns that only measures; NULL: stamps are the last now_ns */
    void *stamp_arg;
    lnet_log_fn log; /* NULL: silent */
    void *log_arg;
    int32_t log_level; /* most verbose level wanted */

    /* Bounds; 0 means the default in brackets. */
    uint32_t peers_max;              /* [4096] */
    uint32_t mds_max;                /* [65536] */
    uint32_t queued_messages_max;    /* [1024] messages waiting for credits or a connection */
    uint64_t transaction_timeout_ns; /* [50 s] longest that a message waits to be sent */
    uint64_t connect_timeout_ns;     /* [10 s] */
};

/**
 * lnet_open() - make a context
 * @options: what it shall be; read during the call. NULL: all defaults.
 * @ctx_out: the context. It has one interface, "0@lo".
 *
 * Errors:  -EINVAL an option is out of range; -ENOMEM.
 * Context: any thread; from then on only the thread that polls.
 */
LNET_API int lnet_open(const struct lnet_options *options, struct lnet **ctx_out);

/**
 * lnet_close() - end a context and all that is in it
 * @ctx: the context; NULL does nothing.
 *
 * Every operation that is out ends with -ECANCELED before the call returns; this is the only call
 * other than lnet_poll() that runs callbacks.
 *
 * Context: the polling thread, not from a callback.
 */
LNET_API void lnet_close(struct lnet *ctx);

/**
 * lnet_abandon() - in a child process after fork(): let go of the parent's context
 * @ctx: inherited, and not in the middle of a call; invalid afterwards. NULL does nothing.
 *
 * Closes the child's descriptors and unmaps what is shared; no peer is told, no callback runs.
 * Private memory of the context, and of engines on it, stays until the child ends: it is a copy on
 * write.
 *
 * Context: the child's only thread.
 */
LNET_API void lnet_abandon(struct lnet *ctx);

/* An interface to add. Unused fields are 0. */
struct lnet_ni_options {
    uint32_t struct_bytes;
    uint32_t reserved;
    const char *net;       /* "shm", "shm1", ... */
    const char *address;   /* the part before '@'; shm: a number, NULL: the process's number */
    uint32_t credits;      /* NI tx credits [256] */
    uint32_t peer_credits; /* per-peer tx credits [64] */
    uint64_t ring_bytes;  /* shm: bytes of one direction of a connection, a power of two [64 KiB] */
    const char *run_dir;  /* shm: directory of the rendezvous sockets [per user, see README] */
    uint32_t flags;       /* enum lnet_ni_flags */
    const char *rma_path; /* shm: "auto", "mapped", "cma" or "none" [auto] */
};

enum lnet_ni_flags {
    LNET_NI_CONNECT_ONLY = 1u << 0, /* takes no connections: a client's interface */
    LNET_NI_ANY_USER = 1u << 1,     /* shm: peers of other users are welcome */
};

/**
 * lnet_ni_add() - open an interface
 * @ctx:     the context.
 * @options: which, and how.
 * @nid_out: its NID, or NULL.
 *
 * Errors:  -ENODEV no such LND in this build; -EADDRINUSE the address is taken by a living process;
 *          -EINVAL; -EEXIST the context has this net; -ENOMEM; or what the system said. The log
 *          callback has the reason in words.
 * Context: the polling thread. May do system calls.
 */
LNET_API int lnet_ni_add(struct lnet *ctx, const struct lnet_ni_options *options,
                         struct lnet_nid *nid_out);

/**
 * lnet_poll() - make progress and deliver events
 * @ctx:    the context.
 * @now_ns: the time, of any monotonic clock, never less than in the last call.
 * @budget: most events to deliver; greater than 0.
 *
 * The only place where a context learns the time and from which callbacks run.
 *
 * Return:  the number of events delivered, at most @budget.
 * Context: the polling thread; not from a callback. Does not block.
 */
LNET_API uint32_t lnet_poll(struct lnet *ctx, uint64_t now_ns, uint32_t budget);

/**
 * lnet_fd() - a descriptor that is readable when a sleeping context has work
 * @ctx: the context.
 *
 * Return:  the descriptor; it stays the context's. Watch it for reading (level triggered).
 * Context: any thread.
 */
LNET_API int lnet_fd(const struct lnet *ctx);

/**
 * lnet_arm() - ask whether it is safe to sleep on lnet_fd()
 * @ctx: the context.
 *
 * Same contract as ucp_worker_arm(): after 0, whatever arrives makes lnet_fd() readable. The next
 * lnet_poll() disarms.
 *
 * Errors:  -EBUSY there is work: poll again.
 * Context: the polling thread, not from a callback.
 */
LNET_API int lnet_arm(struct lnet *ctx);

/**
 * lnet_next_deadline() - when lnet_poll() must be called at the latest
 * @ctx: the context.
 *
 * Return:  ns of lnet_poll()'s clock, UINT64_MAX for "no deadline".
 * Context: the polling thread.
 */
LNET_API uint64_t lnet_next_deadline(const struct lnet *ctx);

/**
 * lnet_now() - the now_ns of the last lnet_poll()
 * @ctx: the context.
 *
 * Return:  ns.
 * Context: the polling thread.
 */
LNET_API uint64_t lnet_now(const struct lnet *ctx);

/**
 * lnet_stamp() - the measuring clock given at open
 * @ctx: the context.
 *
 * Return:  ns of no particular origin; differences only. Nothing may be decided by it.
 * Context: the polling thread.
 */
LNET_API uint64_t lnet_stamp(const struct lnet *ctx);

/**
 * lnet_random() - 64 bits of the context's seeded generator
 * @ctx: the context.
 *
 * Return:  the bits.
 * Context: the polling thread.
 */
LNET_API uint64_t lnet_random(struct lnet *ctx);

typedef void (*lnet_post_fn)(struct lnet *ctx, void *arg);

/**
 * lnet_post() - have a function called in a context's thread
 * @ctx: the context.
 * @fn:  called from a later lnet_poll() of @ctx, once.
 * @arg: for @fn.
 *
 * The only call that other threads may make. Wakes a context that sleeps.
 *
 * Errors:  -EAGAIN 1024 posts are waiting.
 * Context: any thread.
 */
LNET_API int lnet_post(struct lnet *ctx, lnet_post_fn fn, void *arg);

/* ---- timers ----------------------------------------------------------------------------- */

typedef void (*lnet_timer_fn)(struct lnet *ctx, void *arg);

/* A one-shot timer in the caller's memory. All zero is an idle timer. */
struct lnet_timer {
    lnet_timer_fn fn;
    void *arg;
    uint64_t deadline_ns; /* kept by lnet_timer_arm() */
    uint64_t internal[4];
};

/**
 * lnet_timer_arm() - call timer->fn(ctx, timer->arg) from the first poll at or after a time
 * @ctx:         the context.
 * @timer:       fn and arg set; moved if it was armed.
 * @deadline_ns: of lnet_poll()'s clock.
 *
 * Ownership: *@timer is the context's until it fires or is cancelled.
 * Errors:    -EAGAIN the timer table is full and cannot grow.
 * Context:   the polling thread; also from callbacks.
 */
LNET_API int lnet_timer_arm(struct lnet *ctx, struct lnet_timer *timer, uint64_t deadline_ns);

/**
 * lnet_timer_cancel() - forget an armed timer
 * @ctx:   the context.
 * @timer: armed or idle.
 *
 * Context: the polling thread; also from callbacks.
 */
LNET_API void lnet_timer_cancel(struct lnet *ctx, struct lnet_timer *timer);

/* ---- peers ------------------------------------------------------------------------------ */

/**
 * lnet_peer_get() - find or make the peer of an address
 * @ctx:      the context.
 * @process:  its address. The connection is made when the first message needs it.
 * @peer_out: a reference, for lnet_peer_put().
 *
 * Errors:  -EHOSTUNREACH no interface on its net; -EAGAIN peers_max are known.
 * Context: the polling thread; also from callbacks.
 */
LNET_API int lnet_peer_get(struct lnet *ctx, const struct lnet_process *process,
                           struct lnet_peer **peer_out);

/**
 * lnet_peer_hold() - one more reference on a peer, such as that of an event
 * @peer: the peer.
 *
 * Context: the polling thread.
 */
LNET_API void lnet_peer_hold(struct lnet_peer *peer);

/**
 * lnet_peer_put() - give a reference back
 * @peer: the peer. Without references and traffic its connection may be closed.
 *
 * Context: the polling thread.
 */
LNET_API void lnet_peer_put(struct lnet_peer *peer);

/**
 * lnet_peer_process() - the address of a peer
 * @peer: the peer.
 *
 * Return:  its address.
 * Context: the polling thread.
 */
LNET_API struct lnet_process lnet_peer_process(const struct lnet_peer *peer);

/**
 * lnet_peer_disconnect() - close the connection to a peer
 * @peer: the peer. What is queued or out ends with -ECONNRESET; watchers are told. The next
 *        message connects again.
 *
 * Context: the polling thread; also from callbacks (takes effect in the next poll).
 */
LNET_API void lnet_peer_disconnect(struct lnet_peer *peer);

typedef void (*lnet_peer_watch_fn)(struct lnet *ctx, struct lnet_peer *peer, int status, void *arg);

/* Told of every connection that comes up (status 0) or goes down (negative errno). */
struct lnet_peer_watch {
    lnet_peer_watch_fn fn;
    void *arg;
    uint64_t internal[2];
};

/**
 * lnet_peer_watch_add() - be told of connections
 * @ctx:   the context.
 * @watch: fn and arg set.
 *
 * Ownership: *@watch is the context's until lnet_peer_watch_del() or lnet_close().
 * Context:   the polling thread.
 */
LNET_API void lnet_peer_watch_add(struct lnet *ctx, struct lnet_peer_watch *watch);

/**
 * lnet_peer_watch_del() - be told no more
 * @ctx:   the context.
 * @watch: added before.
 *
 * Context: the polling thread; also from callbacks.
 */
LNET_API void lnet_peer_watch_del(struct lnet *ctx, struct lnet_peer_watch *watch);

/* ---- memory descriptors and messages ----------------------------------------------------- */

#define LNET_PORTALS 64 /* portal 0 is LNet's own (ping) */

struct lnet_md_handle {
    uint64_t cookie;
};

enum lnet_event_type {
    LNET_EV_SEND = 1, /* a PUT or GET of ours left: the buffer of a PUT without ACK is ours again */
    LNET_EV_ACK,      /* the target has our PUT */
    LNET_EV_REPLY,    /* our GET's data is in the MD */
    LNET_EV_PUT,      /* a peer put into our MD */
    LNET_EV_GET,      /* a peer read from our MD */
    LNET_EV_UNLINK,   /* the MD is gone by lnet_md_unlink() or with its context */
};

struct lnet_event {
    enum lnet_event_type type;
    int status;             /* 0, or why it failed */
    bool unlinked;          /* the last event of this MD */
    uint32_t portal;        /* PUT, GET */
    struct lnet_peer *peer; /* who; borrowed for the call */
    struct lnet_md_handle md;
    uint64_t match_bits;    /* PUT, GET */
    uint64_t hdr_data;      /* PUT, ACK: the sender's 64 bits */
    uint64_t offset_bytes;  /* where in the MD */
    uint64_t request_bytes; /* asked (Lustre: rlength) */
    uint64_t moved_bytes;   /* moved (Lustre: mlength) */
    const void *data;       /* PUT: the bytes. With LNET_MD_PEEK in the LND's memory, valid for the
                                call only, and the peer may still be changing them: copy, then
                                check */
    void *user;             /* of the MD */
};

typedef void (*lnet_handler_fn)(struct lnet *ctx, const struct lnet_event *event);

enum lnet_md_options {
    LNET_MD_OP_PUT = 1u << 0,
    LNET_MD_OP_GET = 1u << 1,
    LNET_MD_MANAGE_REMOTE = 1u << 2, /* the peer's offset counts, else the MD's running one */
    LNET_MD_TRUNCATE = 1u << 4,      /* take what fits of a longer message */
    LNET_MD_ACK_DISABLE = 1u << 5,
    LNET_MD_MAX_SIZE = 1u << 7, /* room is max_size_bytes; used up when that no longer fits */
    LNET_MD_IOV = 1u << 8,      /* start is a struct iovec array of length iov_count */
    LNET_MD_PEEK = 1u << 16,    /* PUTs are shown to the handler where they lie, not copied: the MD
                                   needs no memory (start NULL, length_bytes its message limit) */
    LNET_MD_NO_SEND_EVENT = 1u << 17, /* no LNET_EV_SEND on success */
    LNET_MD_RETAIN = 1u << 18,        /* stays linked when used up (default: unlinked) */
};

struct lnet_md {
    void *start;
    uint64_t length_bytes;
    uint32_t options;  /* enum lnet_md_options */
    int32_t threshold; /* operations until used up; -1: any number */
    uint64_t max_size_bytes;
    uint32_t iov_count; /* with LNET_MD_IOV, at most lnet_limits().iov_max */
    uint32_t reserved;
    lnet_handler_fn handler;
    void *user;
};

/*
 * What messages an attached MD takes (LNet's ME). A portal is for good, from the first attach on,
 * either unique (no ignore bits, concrete address) or wildcard. Field: match rule of LNet: all
 * bits that differ are in ignore_bits, and the address is equal or any.
 */
struct lnet_match {
    uint32_t portal;
    bool at_head; /* before the others of its kind */
    struct lnet_process from;
    uint64_t match_bits;
    uint64_t ignore_bits;
};

/**
 * lnet_md_attach() - let peers put into or get from memory
 * @ctx:    the context.
 * @match:  which messages.
 * @md:     the memory and what to do; copied. Memory stays the caller's, but for reading and
 *          writing by peers until the event with `unlinked`.
 * @md_out: its handle.
 *
 * Errors:  -EINVAL; -EPERM the portal is of the other kind; -EAGAIN mds_max are in use.
 * Context: the polling thread; also from callbacks.
 */
LNET_API int lnet_md_attach(struct lnet *ctx, const struct lnet_match *match,
                            const struct lnet_md *md, struct lnet_md_handle *md_out);

/**
 * lnet_md_bind() - make a source for PUT or a sink for GET
 * @ctx:    the context.
 * @md:     as in lnet_md_attach(); threshold counts events.
 * @md_out: its handle.
 *
 * Errors:  -EINVAL; -EAGAIN mds_max are in use.
 * Context: the polling thread; also from callbacks.
 */
LNET_API int lnet_md_bind(struct lnet *ctx, const struct lnet_md *md,
                          struct lnet_md_handle *md_out);

/**
 * lnet_md_unlink() - withdraw an MD
 * @ctx: the context.
 * @md:  the MD.
 *
 * Completes: one LNET_EV_UNLINK, or the event that was on its way with `unlinked` set and status
 *            -ECANCELED, from a later poll. After it nothing touches the memory.
 * Errors:    -ESTALE the handle names nothing (any more).
 * Context:   the polling thread; also from callbacks.
 */
LNET_API int lnet_md_unlink(struct lnet *ctx, struct lnet_md_handle md);

struct lnet_target {
    struct lnet_peer *peer;
    uint32_t portal;
    uint32_t reserved;
    uint64_t match_bits;
    uint64_t offset_bytes; /* for MDs with MANAGE_REMOTE */
    uint64_t hdr_data;     /* PUT: given to the target's handler as it is */
};

enum lnet_put_flags {
    LNET_PUT_ACK = 1u << 0, /* an LNET_EV_ACK comes when the target has the data */
};

/**
 * lnet_put() - move the bytes of an MD to a remote portal
 * @ctx:          the context.
 * @md:           bound with lnet_md_bind().
 * @offset_bytes: of the first byte in @md.
 * @length_bytes: how many, up to lnet_limits().put_bytes_max.
 * @target:       where to; copied.
 * @flags:        enum lnet_put_flags.
 *
 * A put without a credit or connection waits in order inside LNet.
 *
 * Ownership: the bytes are LNet's until LNET_EV_SEND.
 * Completes: one LNET_EV_SEND (unless LNET_MD_NO_SEND_EVENT and success) and, with LNET_PUT_ACK,
 * one LNET_EV_ACK, from a later poll. A failed put has one event, with the status. Errors: -EINVAL;
 * -EMSGSIZE; -ESTALE; -EHOSTUNREACH; -EAGAIN queued_messages_max are waiting. Context:   the
 * polling thread; also from callbacks.
 */
LNET_API int lnet_put(struct lnet *ctx, struct lnet_md_handle md, uint64_t offset_bytes,
                      uint64_t length_bytes, const struct lnet_target *target, uint32_t flags);

/**
 * lnet_put_inline() - send a small message whose bytes are copied at once
 * @ctx:          the context.
 * @target:       where to; copied.
 * @data:         the bytes; the caller's again when the call returns.
 * @length_bytes: up to lnet_limits().put_bytes_max.
 *
 * The fast path of RPCs: no MD, no ACK, no event. If it can't be sent when its turn comes (the
 * connection broke, transaction_timeout_ns passed) it is dropped and counted.
 *
 * Errors:  -EINVAL; -EMSGSIZE; -EHOSTUNREACH; -EAGAIN queued_messages_max are waiting.
 * Context: the polling thread; also from callbacks.
 */
LNET_API int lnet_put_inline(struct lnet *ctx, const struct lnet_target *target, const void *data,
                             uint32_t length_bytes);

/**
 * lnet_get() - read from an MD of a peer
 * @ctx:          the context.
 * @md:           the sink, bound with lnet_md_bind().
 * @offset_bytes: where in @md the bytes go.
 * @length_bytes: how many to ask for, up to lnet_limits().put_bytes_max.
 * @target:       which; copied.
 * @deadline_ns:  of lnet_poll()'s clock: then it ends with -ETIMEDOUT.
 *
 * Completes: one LNET_EV_REPLY (status 0 or why not) from a later poll.
 * Errors:    as lnet_put().
 * Context:   the polling thread; also from callbacks.
 */
LNET_API int lnet_get(struct lnet *ctx, struct lnet_md_handle md, uint64_t offset_bytes,
                      uint64_t length_bytes, const struct lnet_target *target,
                      uint64_t deadline_ns);

/* ---- remote memory access (what bulk/ is made from) --------------------------------------- */

/* A window's name on the wire: what a peer needs to reach it. Opaque, fixed size, hostile. */
#define LNET_KEY_BYTES 48
struct lnet_key {
    uint8_t bytes[LNET_KEY_BYTES];
};

enum lnet_access { LNET_ACCESS_READ = 1u << 0, LNET_ACCESS_WRITE = 1u << 1 }; /* by the peer */

/* How bytes move between this context and a peer's window, or that they can't be. */
enum lnet_rma_path {
    LNET_RMA_NONE,   /* no RMA: use matched PUT and GET */
    LNET_RMA_MAPPED, /* shm: the region is mapped here, one memcpy */
    LNET_RMA_CMA,    /* shm: cross-memory attach, one copy by the kernel */
};

enum lnet_mem_flags {
    LNET_MEM_LAZY = 1u << 0, /* pages come when they are touched, by us or by a peer, and not now */
};

/**
 * lnet_mem_alloc() - allocate memory that peers can reach in the best way
 * @ctx:         the context.
 * @bytes:       how much; rounded up to pages.
 * @flags:       enum lnet_mem_flags.
 * @mem_out:     the memory.
 * @address_out: where it is; page aligned, zeroed. Huge pages if there are any.
 *
 * Errors:  -ENOMEM; -EINVAL.
 * Context: the polling thread. Does system calls.
 */
LNET_API int lnet_mem_alloc(struct lnet *ctx, uint64_t bytes, uint32_t flags,
                            struct lnet_mem **mem_out, void **address_out);

/**
 * lnet_mem_register() - make memory of the caller's known to the interfaces
 * @ctx:     the context.
 * @address: where.
 * @bytes:   how much.
 * @mem_out: the registration.
 *
 * Ownership: the memory stays the caller's; it must stay mapped until lnet_mem_release().
 * Errors:    -ENOMEM; -EINVAL; -EAGAIN too many registrations.
 * Context:   the polling thread.
 */
LNET_API int lnet_mem_register(struct lnet *ctx, void *address, uint64_t bytes,
                               struct lnet_mem **mem_out);

/**
 * lnet_mem_release() - end a registration or free allocated memory
 * @mem: without open windows.
 *
 * Context: the polling thread.
 */
LNET_API void lnet_mem_release(struct lnet_mem *mem);

/**
 * lnet_mem_page_bytes() - the page size behind memory
 * @mem: the memory.
 *
 * Return:  4096, 2 MiB, ...
 * Context: the polling thread.
 */
LNET_API uint64_t lnet_mem_page_bytes(const struct lnet_mem *mem);

struct lnet_window {
    uint64_t cookie; /* slot and epoch: never reused */
};

/**
 * lnet_window_open() - let peers into a part of registered memory
 * @mem:          the memory.
 * @offset_bytes: first byte.
 * @length_bytes: how many.
 * @access:       enum lnet_access.
 * @peer:         the peer the key is for (picks the interface).
 * @window_out:   for lnet_window_close().
 * @key_out:      to send to the peer.
 *
 * Errors:  -EINVAL; -EAGAIN too many windows are open; -EOPNOTSUPP the peer's LND has no RMA.
 * Context: the polling thread; also from callbacks.
 */
LNET_API int lnet_window_open(struct lnet_mem *mem, uint64_t offset_bytes, uint64_t length_bytes,
                              uint32_t access, struct lnet_peer *peer,
                              struct lnet_window *window_out, struct lnet_key *key_out);

/**
 * lnet_window_close() - let nobody in any more
 * @ctx:    the context.
 * @window: the window. Its key is refused with -ESTALE from now on.
 *
 * Return:  0: nobody touches the memory any more. -EBUSY: a peer is copying right now; the window
 *          is closed to new accesses, call again from a later poll until 0 (the peer's death ends
 *          it too). -ESTALE: no such window.
 * Context: the polling thread; also from callbacks.
 */
LNET_API int lnet_window_close(struct lnet *ctx, struct lnet_window window);

typedef void (*lnet_rma_fn)(struct lnet *ctx, int status, void *user);

struct lnet_rma {
    struct lnet_peer *peer;
    const struct lnet_key *key;   /* from the peer; copied */
    uint64_t remote_offset_bytes; /* in the window */
    const struct iovec *local;    /* this side's memory */
    uint32_t local_count;         /* at most lnet_limits().iov_max */
    bool is_write;                /* local to remote, else remote to local */
    enum lnet_rma_path path;      /* force one; LNET_RMA_NONE: the LND's choice */
    lnet_rma_fn done;
    void *user;
};

/**
 * lnet_rma() - move bytes between local memory and a peer's window
 * @ctx: the context.
 * @rma: what; copied, but for the local memory. At most lnet_limits().rma_bytes_max bytes.
 *
 * Over shm the copy is made during the call by this CPU.
 *
 * Completes: on 0, one rma->done from a later poll: 0; -ESTALE the window is closed or never was;
 *            -EACCES not that access; -ERANGE outside the window; -ECONNRESET; -EFAULT the
 *            peer's memory is gone.
 * Errors:    -EINVAL; -EMSGSIZE; -ENOTCONN; -EOPNOTSUPP no such path; -EAGAIN.
 * Context:   the polling thread; also from callbacks.
 */
LNET_API int lnet_rma(struct lnet *ctx, const struct lnet_rma *rma);

/**
 * lnet_rma_path() - how an lnet_rma() with a key would move its bytes
 * @peer: the peer.
 * @key:  from it.
 *
 * Return:  the path; LNET_RMA_NONE when there is none (or no connection yet).
 * Context: the polling thread.
 */
LNET_API enum lnet_rma_path lnet_rma_path(struct lnet_peer *peer, const struct lnet_key *key);

/* ---- limits, statistics, ping -------------------------------------------------------------- */

struct lnet_limits {
    uint64_t put_bytes_max; /* payload of one PUT, GET or REPLY, over the smallest interface */
    uint64_t rma_bytes_max;
    uint32_t iov_max;
    uint32_t peers_max;
    uint32_t mds_max;
    uint32_t queued_messages_max;
    uint64_t peer_idle_bytes; /* memory that one idle connected peer takes, at most */
};

/**
 * lnet_limits_get() - the bounds in force
 * @ctx:        the context.
 * @limits_out: the bounds.
 *
 * Context: the polling thread.
 */
LNET_API void lnet_limits_get(const struct lnet *ctx, struct lnet_limits *limits_out);

/* Counters of one interface or one peer; Lustre's `lnetctl net show -v` has the same. */
struct lnet_counters {
    uint64_t send_count, send_bytes;
    uint64_t recv_count, recv_bytes;
    uint64_t drop_count, drop_bytes;                       /* received, no taker */
    uint64_t put_count, get_count, ack_count, reply_count; /* sent */
    uint64_t put_recv_count, get_recv_count, ack_recv_count, reply_recv_count; /* received */
    uint64_t lost_count; /* queued, then dropped by timeout or a broken connection */
    uint64_t rma_read_count, rma_read_bytes, rma_write_count, rma_write_bytes; /* by us */
    uint64_t rma_mapped_bytes, rma_cma_bytes;
    uint64_t proto_error_count;
};

struct lnet_credit_stats {
    int32_t max;       /* granted */
    int32_t available; /* below zero: as many messages are queued */
    int32_t min;       /* low-water mark since open */
};

struct lnet_ni_info {
    struct lnet_nid nid;
    bool is_up;
    struct lnet_credit_stats tx_credits;
    struct lnet_counters counters;
    uint32_t conn_count;
    char rma[64]; /* which RMA paths work here, in words */
};

/**
 * lnet_ni_info_get() - look at an interface
 * @ctx:      the context.
 * @index:    0, 1, ... in order of lnet_ni_add(); 0 is "0@lo".
 * @info_out: what is known.
 *
 * Errors:  -ENOENT no such interface.
 * Context: the polling thread.
 */
LNET_API int lnet_ni_info_get(const struct lnet *ctx, uint32_t index,
                              struct lnet_ni_info *info_out);

enum lnet_peer_state {
    LNET_PEER_DOWN = 0,
    LNET_PEER_CONNECTING,
    LNET_PEER_UP,
};

struct lnet_peer_info {
    struct lnet_process process;
    enum lnet_peer_state state;
    uint32_t reference_count;
    struct lnet_credit_stats tx_credits;
    int32_t lnd_credits_max; /* the LND's own buffer credits, in its unit */
    int32_t lnd_credits_available;
    int32_t lnd_credits_min;
    struct lnet_counters counters;
};

/**
 * lnet_peer_info_next() - look at the peers, one after another
 * @ctx:      the context.
 * @cursor:   0 to begin; moved on by each call.
 * @info_out: what is known of one.
 *
 * Errors:  -ENOENT no more.
 * Context: the polling thread. Peers may come and go between the calls.
 */
LNET_API int lnet_peer_info_next(const struct lnet *ctx, uint64_t *cursor,
                                 struct lnet_peer_info *info_out);

struct lnet_ping_reply {
    uint32_t version;
    uint32_t pid;
    uint32_t nid_count;
    uint32_t reserved;
    struct lnet_nid nids[16];
};

typedef void (*lnet_ping_fn)(struct lnet *ctx, int status, const struct lnet_ping_reply *reply,
                             void *user);

/**
 * lnet_ping() - ask a process for its NIDs
 * @ctx:         the context.
 * @process:     whom.
 * @deadline_ns: of lnet_poll()'s clock.
 * @done:        called once from a later poll; @reply is valid for the call, NULL on error.
 * @user:        for @done.
 *
 * Errors:  as lnet_get().
 * Context: the polling thread; also from callbacks.
 */
LNET_API int lnet_ping(struct lnet *ctx, const struct lnet_process *process, uint64_t deadline_ns,
                       lnet_ping_fn done, void *user);

#ifdef __cplusplus
}
#endif
#endif
