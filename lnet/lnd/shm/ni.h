/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the shm LND share: the interface, its connections, its memory.
 *
 * Shared memory, by who writes it:
 *
 *   connection memfd   one per connection, made by the connector: a page of lines (struct
 *                      shm_lines), then the ring connector to acceptor, then the ring back
 *   doorbell page      one per interface (struct shm_bells): written by the peers of our user
 *   window table       one per interface: written by us; the memfd is sealed against any other
 *                      writable mapping before it is passed on
 *   regions            lnet_mem_alloc() memory: written by us and by peers that we let in
 *
 * A connection is in one of the lists by state; poll() looks at the rings of the hot ones only. One
 * that stayed empty for SHM_DEMOTE_TURNS turns is demoted: it asks its peer (arm_seq) to ring
 * before we look again.
 */
#pragma once

#include "base/hash.h"
#include "base/list.h"
#include "lnet/lnd/lnd.h"
#include "lnet/lnd/shm/ring.h"
#include "lnet/lnd/shm/wire.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SHM_CONNS_MAX        4096u
#define SHM_GREETINGS_MAX    512u /* accepted sockets that have not said HELLO */
#define SHM_REGIONS_MAX      256u
#define SHM_WINDOWS_MAX      8192u
#define SHM_COMPLETIONS_MAX  1024u
#define SHM_RMA_BYTES_MAX    (1u << 20)
#define SHM_REGION_BYTES_MAX (UINT64_C(1) << 38)
#define SHM_PEER_MAPPED_MAX  (UINT64_C(1) << 40) /* all regions of one peer */
#define SHM_DEMOTE_TURNS     512u
#define SHM_CONN_BATCH       64u /* messages of one connection before the next has its turn */
#define SHM_SOCKET_TURNS     1024u
#define SHM_SOCKET_NS        UINT64_C(100000)
#define SHM_RETRY_FIRST_NS   UINT64_C(200000)
#define SHM_RETRY_LAST_NS    UINT64_C(20000000)
#define SHM_LINES_BYTES      4096u
#define SHM_TOUCH_BYTES      (UINT64_C(256) << 10) /* of a region, mapped at its first use */
#define SHM_NAME_BYTES       48u
#define SHM_FAR_LINE         128 /* two lines: neighbours are fetched in pairs */

/* Lines of the connection memfd that one side writes and the other reads. */
struct shm_side {
    BASE_ALIGNED(SHM_FAR_LINE) uint64_t consumed; /* of the ring that comes in here */
    BASE_ALIGNED(SHM_FAR_LINE) uint32_t arm_seq;  /* changed: ring when you have published */
    BASE_ALIGNED(SHM_FAR_LINE) uint32_t want_seq; /* changed: ring when you have returned slots */
    BASE_ALIGNED(SHM_FAR_LINE) uint64_t hazard;   /* the window we are copying to or from, or 0 */
};

struct shm_lines {
    struct shm_side sides[2]; /* [0] the connector's, [1] the acceptor's */
};
static_assert(sizeof(struct shm_lines) <= SHM_LINES_BYTES, "lines fill at most their page");

/* The doorbell page. Bits are only hints: a wrong one costs its owner a look. */
struct shm_bells {
    BASE_ALIGNED(SHM_FAR_LINE) uint32_t sleeping; /* 1: write our eventfd after ringing */
    BASE_ALIGNED(SHM_FAR_LINE) uint64_t summary;  /* bit w: words[w] may have bits */
    BASE_ALIGNED(SHM_FAR_LINE) uint64_t words[SHM_CONNS_MAX / 64];
};
#define SHM_BELLS_BYTES 4096u
static_assert(sizeof(struct shm_bells) <= SHM_BELLS_BYTES, "the doorbells fill at most a page");
static_assert(SHM_CONNS_MAX / 64 <= 64, "a bit of summary per word");

/* epochs[slot] is odd while the slot's window is open, and then the window's epoch. */
struct shm_windows {
    uint64_t epochs[SHM_WINDOWS_MAX];
};

enum shm_conn_state {
    SHM_CONN_BACKOFF,  /* ours: waits for retry_ns to connect (again) */
    SHM_CONN_HELLO,    /* ours: connected, waits for WELCOME */
    SHM_CONN_GREETING, /* the peer's: waits for HELLO; LNet does not know it */
    SHM_CONN_UP,
    SHM_CONN_DYING,  /* the peer hung up: what had arrived is delivered first */
    SHM_CONN_DOWN,   /* waits for its conn_down() upcall, then for conn_close() */
    SHM_CONN_LINGER, /* closed by LNet; the peer may still be copying to or from a window */
    SHM_CONN_CLOSED, /* freed at the end of the turn */
};

/* A region of the peer's, mapped here. */
struct shm_peer_region {
    uint8_t *address; /* NULL: none in this slot */
    uint64_t length_bytes;
    uint64_t *touched; /* a bit per SHM_TOUCH_BYTES: has its pages mapped */
    uint32_t id;
    uint32_t reserved;
};

/* What a handshake produces; moves from one connection to another when both sides connect at once.
 */
struct shm_link {
    int fd;       /* the socket */
    int event_fd; /* the peer's, or -1 */
    uint32_t slot;
    uint32_t peer_slot;
    uint32_t side;   /* ours: 0 the connector's, 1 the acceptor's */
    bool is_foreign; /* another user's process: no shared doorbell page */
    bool has_slot;
    pid_t os_pid;
    uint64_t peer_incarnation;
    uint64_t probe_address;
    uint64_t probe_value;
    int cma_error; /* 0: process_vm_readv() works on the peer */
    uint32_t arm_seen;
    uint32_t want_seen;
    uint8_t *map; /* the connection memfd */
    uint64_t map_bytes;
    struct shm_side *ours;
    struct shm_side *theirs;
    struct shm_bells *bells;           /* the peer's */
    const struct shm_windows *windows; /* the peer's */
    uint64_t *stale;                   /* tx.stale */
    struct shm_tx tx;
    struct shm_rx rx;
};

struct shm_conn {
    struct lnet_lnd_conn base;
    enum shm_conn_state state;
    int down_reason;
    uint32_t hot_index; /* in ni->hot, or UINT32_MAX */
    uint32_t idle_turns;
    uint32_t blocked_slots; /* what the refused send() needed */
    bool is_blocked;        /* a send() was refused: writable() is due */
    bool is_dirty;          /* published since the last flush of doorbells */
    bool is_polled_out;     /* EPOLLOUT is being watched */
    bool has_deadline;
    bool has_unsent; /* HELLO or WELCOME still has to be sent */
    struct shm_link link;

    struct base_list all_link;
    struct base_list state_link; /* ni->pending, ni->down, ni->linger or ni->dead by state */
    struct base_list dirty_link;
    struct base_list blocked_link;

    uint64_t deadline_ns; /* of the handshake */
    uint64_t retry_ns;
    uint32_t attempts;
    int memfd; /* of a connection of ours until WELCOME */

    struct shm_peer_region *regions; /* by slot */
    uint32_t region_count;
    uint64_t regions_mapped_bytes;
    uint64_t unsaid[SHM_REGIONS_MAX / 64]; /* regions whose state the peer must be told */
};

/* Memory of ours: allocated (id != 0) or registered. */
struct shm_mem {
    struct lnet_lnd_mem base;
    uint8_t *address;
    uint64_t length_bytes;
    uint64_t page_bytes;
    uint32_t id; /* region slot and generation; 0: not a region */
    int fd;
};

struct shm_window_slot {
    uint64_t epoch; /* of the window that is open or closing; 0: free */
    bool is_closing;
};

struct shm_completion {
    lnet_rma_fn done;
    struct lnet *ctx;
    void *user;
    int status;
};

struct shm_ni {
    struct lnet_lnd_ni base;
    const struct lnet_lnd_events *events;
    void (*log)(void *arg, int level, const char *text);
    void *log_arg;
    uint64_t incarnation;
    uint64_t connect_timeout_ns;
    uint64_t ring_bytes;
    uint32_t pid; /* of the context */
    uint32_t flags;
    enum lnet_rma_path rma_forced; /* with is_rma_forced */
    bool is_rma_forced;
    uid_t uid;
    pid_t os_pid; /* a child of fork() must not act for us */
    int cma_error;
    bool is_cma_said;
    char name[SHM_NAME_BYTES];
    char *run_dir;
    int run_dir_fd;
    int lock_fd;
    int listen_fd;
    int event_fd;
    int epoll_fd;
    int bells_fd;
    int windows_fd;
    struct shm_bells *bells;
    struct shm_windows *windows;
    uint64_t probe_value; /* peers read it to find out whether they can */

    uint64_t now_ns;
    uint64_t sockets_ns; /* when to look at the sockets */
    uint32_t turns;      /* since they were looked at */
    bool is_armed;
    bool is_in_poll;
    bool is_listening; /* listen_fd is being watched */
    uint64_t listen_retry_ns;
    uint64_t refusal_ns; /* of the last refusal that was logged */
    uint32_t refusal_count;
    uint32_t greeting_count;

    struct shm_conn *hot[SHM_CONNS_MAX];
    uint32_t hot_count;
    uint32_t hot_next;
    struct base_list all;     /* every connection but the dead */
    struct base_list pending; /* BACKOFF, HELLO, GREETING, or with has_unsent */
    struct base_list down;
    struct base_list linger;
    struct base_list dead;
    struct base_list dirty;
    struct base_list blocked;
    struct shm_conn *slots[SHM_CONNS_MAX];
    uint32_t slot_hint;

    struct shm_mem *regions[SHM_REGIONS_MAX];
    uint32_t region_generations[SHM_REGIONS_MAX];

    struct shm_window_slot window_slots[SHM_WINDOWS_MAX];
    uint32_t window_free[SHM_WINDOWS_MAX];
    uint32_t window_free_count;

    struct shm_completion completions[SHM_COMPLETIONS_MAX];
    uint32_t completion_first;
    uint32_t completion_count;
};

/* The interface that LNet knows as @base. */
static inline struct shm_ni *
shm_ni_of(const struct lnet_lnd_ni *base)
{
    return (struct shm_ni *)(uintptr_t)base;
}

/* The connection that LNet knows as @base. */
static inline struct shm_conn *
shm_conn_of(const struct lnet_lnd_conn *base)
{
    return (struct shm_conn *)(uintptr_t)base;
}

/* The interface of @conn. */
static inline struct shm_ni *
shm_conn_ni(const struct shm_conn *conn)
{
    return shm_ni_of(conn->base.ni);
}

/* Store to load ordering: what was stored before is visible before what is loaded after. */
static inline void
shm_fence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* ---- ni.c -------------------------------------------------------------------------------- */

/* Logs a line. */
void shm_ni_log(const struct shm_ni *ni, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Logs that a peer was refused; at most a line per second of poll's time. */
void shm_ni_log_refusal(struct shm_ni *ni, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- memory.c: memfds -------------------------------------------------------------------- */

/* Makes a memfd of @bytes zeroed bytes, all there, mapped at *map_out, sealed against resizing. */
int shm_memfd_make(const char *name, uint64_t bytes, int *fd_out, void **map_out);

/*
 * Maps @bytes of a memfd that a peer sent. Refuses (-EPROTO) what is no memfd of at least that size
 * that can't shrink; huge pages (which may fault for want of pages) are refused to strangers.
 */
int shm_memfd_map(int fd, uint64_t bytes, bool is_writable, bool may_be_huge, void **map_out);

/* mem_*() of the ops table. */
int shm_mem_alloc(struct lnet_lnd_ni *base, uint64_t bytes, uint32_t flags,
                  struct lnet_lnd_mem **mem_out, void **address_out);
int shm_mem_register(struct lnet_lnd_ni *base, void *address, uint64_t bytes,
                     struct lnet_lnd_mem **mem_out);
void shm_mem_release(struct lnet_lnd_mem *base);
uint64_t shm_mem_page_bytes(const struct lnet_lnd_mem *base);

/* Takes what a peer said of one of its regions; @fd, or -1 for GONE, stays the caller's. */
int shm_region_update(struct shm_conn *conn, const struct shm_region_info *info, int fd);

/* Unmaps all regions of the peer. */
void shm_regions_drop(struct shm_conn *conn);

/* ---- rundir.c: names, the run directory, sockets ----------------------------------------- */

/* Opens the run directory and claims ni's address (or finds one); listens unless CONNECT_ONLY. */
int shm_rundir_open(struct shm_ni *ni, const struct lnet_ni_options *options);

/* Gives the name back. In a child of fork() only the descriptors are closed. */
void shm_rundir_close(struct shm_ni *ni, bool is_owner);

/* Connects to @peer's socket without waiting. Returns the descriptor or a negative errno. */
int shm_rundir_connect(const struct shm_ni *ni, const struct lnet_process *peer);

/* ---- conn.c: from conn_open() or accept to the end ---------------------------------------- */

/* conn_open() of the ops table. */
int shm_conn_open(struct lnet_lnd_ni *base, const struct lnet_process *peer, void *owner,
                  struct lnet_lnd_conn **conn_out);
/* conn_close() of the ops table. */
void shm_conn_close(struct lnet_lnd_conn *base);

/* Ends @conn: conn_down(@reason) will be called from poll(), now or later. */
void shm_conn_fail(struct shm_conn *conn, int reason);

/* Frees everything of @conn, at once. */
void shm_conn_free(struct shm_conn *conn);

/* Takes waiting connections from the listening socket. */
void shm_conn_accept(struct shm_ni *ni);

/* Reads @conn's socket: handshake, regions, hang-up. Returns the upcalls made, at most one. */
uint32_t shm_conn_socket(struct shm_conn *conn);

/* The socket of @conn can be written again, or something is new to be said. */
void shm_conn_say(struct shm_conn *conn);

/* Retries and deadlines of the handshakes. */
void shm_conn_pending(struct shm_ni *ni);

/* When shm_conn_pending() has something to do. */
uint64_t shm_conn_pending_ns(const struct shm_ni *ni);

/* Puts @conn among the hot, whose rings are looked at in every turn. */
void shm_conn_promote(struct shm_conn *conn);

/* Takes it out of them. */
void shm_conn_cool(struct shm_conn *conn);

/* Sets our bit at the peer and wakes it if it sleeps. */
void shm_conn_ring(struct shm_conn *conn);

/* Whether the other end of a socket is gone, be it that packets are unread. */
bool shm_link_is_hung_up(const struct shm_link *link);
/* Frees lingering connections that are no danger any more. */
void shm_conn_linger_sweep(struct shm_ni *ni);

/* ---- rma.c ------------------------------------------------------------------------------- */

/* Finds out whether process_vm_readv() works on the peer; fills link->cma_error. */
void shm_cma_probe(struct shm_link *link);

/* window_open() of the ops table. */
int shm_window_open(struct lnet_lnd_mem *base, uint64_t offset_bytes, uint64_t length_bytes,
                    uint32_t access, struct lnet_window *window_out, struct lnet_key *key_out);
/* window_close() of the ops table. */
int shm_window_close(struct lnet_lnd_ni *base, struct lnet_window window);
/* rma() of the ops table: copies during the call. */
int shm_rma(struct lnet_lnd_conn *base, const struct lnet_lnd_rma *rma);
/* rma_path() of the ops table. */
enum lnet_rma_path shm_rma_path(struct lnet_lnd_conn *base, const struct lnet_key *key);
