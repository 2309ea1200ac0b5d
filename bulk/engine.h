/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of bulk/ know of one another.
 *
 *   engine.c    the engine of a context: open, close, the BULK_PORTAL, the kick timer
 *   region.c    pool memory; reg_cache.c registrations; both look addresses up in range.c
 *   export.c    memory that peers are let into; handle.c its name on the wire
 *   xfer.c      a transfer's life; the RMA path
 *   stage.c     the path through messages, both ends
 *   cursor.c    places in lists of memory; crc32c.c the checksum
 *
 * Ids. An export and a transfer each have a 64-bit id, which is what BULK_PORTAL's match bits
 * carry: kind (2 bits), generation (46), slot (16). The generation begins at a random number and
 * grows with every use of the slot, so an id names one export or transfer for ever and a late or
 * stale one names none.
 */
#pragma once

#include "base/list.h"
#include "base/pool.h"
#include "bulk/cursor.h"
#include "bulk/handle.h"
#include "bulk/range.h"
#include "causeway/bulk.h"

#define BULK_WINDOW_MAX 16u

/* When to try again after LNet had no room and no event will say that it has. */
#define BULK_RETRY_NS 10000ull

#define BULK_ID_SLOT_BITS  16u
#define BULK_ID_SLOTS_MAX  (1u << BULK_ID_SLOT_BITS)
#define BULK_ID_KIND_SHIFT 62u
#define BULK_ID_MASK       ((1ull << BULK_ID_KIND_SHIFT) - 1)

/* Small lists lie in the export or transfer itself; longer ones take a `wide` object. */
#define BULK_INLINE_SEGMENTS 2u

struct bulk_ids {
    uint64_t *table; /* by slot: the id in use, 0 for none */
    uint64_t generation;
    uint32_t count;
};

/* A registration: of a pool region (use_count never 0 while it lives) or of private memory. */
struct bulk_reg {
    struct lnet_mem *mem;
    uint64_t start;
    uint64_t end;
    uint32_t use_count;    /* segments of open exports */
    bool is_cached;        /* in the index; else released with its last use */
    struct base_list link; /* cached and idle: on the LRU list */
};

struct bulk_reg_cache {
    struct lnet *ctx;
    struct bulk_range_index index;
    struct base_pool pool;
    struct base_list idle; /* least recently used first */
    uint32_t entries_max;
    uint32_t entry_count; /* cached ones */
    uint64_t hit_count;
    uint64_t miss_count;
    uint64_t evict_count;
};

struct bulk_export_segment {
    uint64_t length_bytes;
    struct lnet_window window;
    struct lnet_key key;
    struct bulk_reg *reg;
    struct bulk_region *region;
};

enum bulk_export_state {
    BULK_EXPORT_OPEN = 1, /* peers are let in */
    BULK_EXPORT_CLOSING,  /* no longer; waits for those that are inside */
    BULK_EXPORT_UNLINKING /* nobody is inside; waits for the source MD's last event */
};

struct bulk_export {
    struct bulk *bulk;
    struct lnet_peer *peer;
    struct base_list link; /* bulk->exports or bulk->exports_closing */
    uint64_t id;
    uint64_t length_bytes;
    uint32_t access;
    uint32_t count;        /* of segments */
    uint32_t window_count; /* how many windows are open: the first of the segments */
    uint32_t answers_queued;
    uint32_t puts_out; /* answers from `md` inside LNet */
    enum bulk_export_state state;
    bool has_md;
    bool has_keys;
    struct lnet_md_handle md; /* source of answers; bound by the first */
    struct iovec *iov;
    struct bulk_export_segment *segments;
    struct bulk_export_wide *wide;
    bulk_closed_fn closed;
    void *user;
    struct iovec iov_inline[BULK_INLINE_SEGMENTS];
    struct bulk_export_segment segments_inline[BULK_INLINE_SEGMENTS];
};

struct bulk_export_wide {
    struct iovec iov[BULK_SEGMENTS_MAX];
    struct bulk_export_segment segments[BULK_SEGMENTS_MAX];
};

/*
 * READY -> FLIGHT -> READY ...   a fragment (or a window of them) at a time
 * READY or FLIGHT -> DRAINING    it is over, well or not, but something may touch local memory
 * READY, FLIGHT or DRAINING -> ENDED -> freed by the delivery of its result
 */
enum bulk_xfer_state {
    BULK_XFER_READY = 0, /* waits for its turn to issue */
    BULK_XFER_FLIGHT,    /* all that may be is issued; waits for the network */
    BULK_XFER_DRAINING,  /* has a status; waits until nothing touches local memory */
    BULK_XFER_ENDED,     /* waits for a poll to deliver its result */
};
#define BULK_XFER_STATE_COUNT 4

struct bulk_xfer {
    struct bulk *bulk;
    struct lnet_peer *peer;
    struct base_list link; /* the list of its state: bulk->xfers[state], or bulk->ready_staged */
    uint64_t id;
    enum bulk_xfer_state state;
    enum bulk_op op;
    enum bulk_path path;
    uint32_t flags;
    int status;
    uint32_t crc;
    bool has_md;       /* staging PUSH: `md` is bound over local memory */
    bool is_unlinking; /* lnet_md_unlink() was called */
    bool has_timer;
    enum lnet_rma_path rma_path; /* asked of the LND; NONE: its choice */
    uint32_t in_flight;          /* RMA: calls without their done */
    int burst_status;            /* RMA: of those that are done */
    uint64_t burst_bytes;        /* RMA: of this turn's calls */
    uint64_t length_bytes;
    uint64_t handle_offset_bytes;
    uint64_t issued_bytes; /* RMA */
    uint64_t moved_bytes;
    uint64_t deadline_ns;
    uint64_t progress_ns; /* staging: when something last moved */
    uint64_t export_id;   /* staging: whose memory it is */
    struct lnet_timer timer;
    struct lnet_md_handle md;

    struct bulk_cursor local;     /* next byte to issue (RMA) */
    struct bulk_cursor crc_local; /* next byte to checksum */
    uint64_t crc_bytes;           /* how many have been */
    uint32_t segment_index;       /* RMA: next remote byte */
    uint64_t segment_offset_bytes;

    /*
     * Staging: fragment i covers [i * fragment_bytes, ...). Those below `first` have ended; bit b
     * of `asked` and `got_bytes[b]` are about fragment first + b.
     */
    uint64_t fragment_bytes;
    uint64_t fragment_count;
    uint64_t fragment_first;
    uint32_t asked;
    uint32_t asked_count; /* bits set in `asked` */
    uint32_t got_bytes[BULK_WINDOW_MAX];

    uint32_t local_count;
    uint32_t segment_count;
    struct iovec *iov;
    struct bulk_handle_segment *segments;
    struct bulk_xfer_wide *wide;
    bulk_done_fn done;
    void *user;
    struct iovec iov_inline[BULK_INLINE_SEGMENTS];
    struct bulk_handle_segment segments_inline[BULK_INLINE_SEGMENTS];
};

struct bulk_xfer_wide {
    struct iovec iov[BULK_SEGMENTS_MAX];
    struct bulk_handle_segment segments[BULK_SEGMENTS_MAX];
};

/* A staged answer that waits for room in LNet: data of an export, or an acknowledgement. */
struct bulk_answer {
    struct base_list link;      /* bulk->answers */
    struct bulk_export *export; /* data: where from; NULL: acknowledgement */
    struct lnet_peer *peer;     /* whom; a reference */
    uint64_t xfer_id;
    uint64_t offset_bytes; /* in the export */
    uint32_t length_bytes; /* data: still to send */
    int status;            /* acknowledgement */
};

struct bulk {
    struct lnet *ctx;
    enum bulk_path path; /* forced, or AUTO */
    uint32_t window;
    uint64_t fragment_bytes; /* 0: by path */
    uint64_t put_bytes_max;
    uint64_t rma_bytes_max;

    struct bulk_reg_cache cache;
    struct bulk_range_index regions;
    uint64_t region_bytes;
    uint64_t page_bytes;

    struct base_pool export_pool;
    struct base_pool export_wide_pool;
    struct bulk_ids export_ids;
    struct base_list exports;
    struct base_list exports_closing;
    uint64_t close_retry_ns;

    struct base_pool xfer_pool;
    struct base_pool xfer_wide_pool;
    struct bulk_ids xfer_ids;
    struct base_list xfers[BULK_XFER_STATE_COUNT]; /* by state; READY: those by RMA */
    struct base_list ready_staged;
    struct base_list deliver; /* ended by a poll: delivered before its callback returns */
    uint32_t xfer_active_count;
    uint64_t rma_out_bytes;  /* issued and not done, of all transfers */
    uint32_t stage_out;      /* staged fragments asked and not ended, of all transfers */
    uint32_t stage_puts_out; /* data PUTs of exports inside LNet */

    struct base_pool answer_pool;
    struct base_list answers;

    struct lnet_md_handle portal_md;
    bool is_portal_open;
    bool is_closing;
    uint32_t call_depth; /* > 0: within bulk_transfer() or bulk_cancel() */
    struct lnet_timer kick;
    uint64_t kick_ns;      /* when it is armed for, UINT64_MAX: it is not */
    uint64_t kick_wish_ns; /* when it should have been but there was no room */
    struct lnet_peer_watch watch;
    struct bulk_stats stats;
};

/* ---- ids (engine.c) ---- */

/* Makes the id of @slot, used from now on. */
uint64_t bulk_id_take(struct bulk_ids *ids, uint32_t slot);

/* The id of @slot names nothing any more. */
static inline void
bulk_id_return(struct bulk_ids *ids, uint64_t id)
{
    ids->table[id & (BULK_ID_SLOTS_MAX - 1)] = 0;
}

/* Whether @id, from a peer, names something now. */
static inline bool
bulk_id_is_live(const struct bulk_ids *ids, uint64_t id)
{
    const uint32_t slot = (uint32_t)(id & (BULK_ID_SLOTS_MAX - 1));

    return slot < ids->count && id != 0 && ids->table[slot] == id;
}

/* Has bulk_kick() run from the first poll at or after @when_ns, or earlier. */
void bulk_kick_at(struct bulk *bulk, uint64_t when_ns);

/* ---- regions and registrations ---- */

struct bulk_region {
    struct bulk *bulk;
    struct lnet_mem *mem;
    uint64_t start;
    uint64_t end;
    uint32_t use_count; /* segments of open exports */
};

/* The region that holds all of [start, end), or NULL. */
struct bulk_region *bulk_region_find(const struct bulk *bulk, uint64_t start, uint64_t end);

/* Makes a cache of @entries_max, with room for @uncached_max more while all are in use. -ENOMEM. */
int bulk_reg_cache_init(struct bulk_reg_cache *cache, struct lnet *ctx, uint32_t entries_max,
                        uint32_t uncached_max);

/* Releases all registrations; none is in use. */
void bulk_reg_cache_fini(struct bulk_reg_cache *cache);

/*
 * A registration that holds all of [start, end), in use until bulk_reg_put().
 * Errors: those of lnet_mem_register(); -EAGAIN all entries are in use.
 */
int bulk_reg_get(struct bulk_reg_cache *cache, uint64_t start, uint64_t end,
                 struct bulk_reg **reg_out);

/* Ends one use. */
void bulk_reg_put(struct bulk_reg_cache *cache, struct bulk_reg *reg);

/* ---- exports ---- */

/* The open export that @id, from @peer, names. Errors: -ESTALE, -EACCES. */
int bulk_export_find(struct bulk *bulk, uint64_t id, const struct lnet_peer *peer,
                     struct bulk_export **export_out);

/* Tries once more to end those that wait. Returns whether any are left waiting for a peer. */
bool bulk_exports_retry(struct bulk *bulk);

/* A PUT of the export's MD ended, or the MD itself. */
void bulk_export_on_event(struct bulk_export *export, const struct lnet_event *event);

/* ---- transfers ---- */

/* Starts what may start: a turn for each transfer that is READY, while the windows have room. */
void bulk_xfers_pump(struct bulk *bulk);

/* Calls done() of what has ended within this poll. Last thing in every callback from LNet. */
void bulk_xfers_deliver(struct bulk *bulk);

/* What bulk_cancel(), a deadline or a dead peer do: @xfer is over with @status. */
void bulk_xfer_end(struct bulk_xfer *xfer, int status);

/* The one way to change xfer->state. */
void bulk_xfer_move(struct bulk_xfer *xfer, enum bulk_xfer_state to);

/* Goes on with the checksum up to @upto_bytes of local memory. */
void bulk_xfer_checksum(struct bulk_xfer *xfer, uint64_t upto_bytes);

/* ---- staging ---- */

/* Prepares a transfer. Errors: -EAGAIN. */
int bulk_stage_start(struct bulk_xfer *xfer);

/* Issues fragments while the windows have room. 0, -EAGAIN (try later) or an error that ends it. */
int bulk_stage_issue(struct bulk_xfer *xfer);

/* Lets go of local memory: true if that is done, false if an event will say so. */
bool bulk_stage_release(struct bulk_xfer *xfer);

/* BULK_PORTAL's handler. */
void bulk_stage_on_message(struct lnet *ctx, const struct lnet_event *event);

/* Sends answers that waited. */
void bulk_stage_answers_send(struct bulk *bulk);

/* Turns the waiting answers of an export that closes into -ESTALE. */
void bulk_stage_answers_drop(struct bulk_export *export);

/* Forgets all waiting answers. */
void bulk_stage_answers_clear(struct bulk *bulk);
