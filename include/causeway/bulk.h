/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bulk.h - large data, moved once and by one side (Lustre's bulk; Mercury's and verbs' RMA).
 *
 * One side exports memory as a *handle*: some bytes that go into a request or reply. The other side
 * transfers to or from it with bulk_transfer(). A handle carries an epoch: after
 * bulk_export_close() its use is refused. Transfers are cut into fragments and pipelined, a
 * fragment per poll turn and transfer, so that small messages are not held up.
 *
 * Where the LND can do RMA the bytes go by it; else by PUTs on portal BULK_PORTAL, straight from
 * and into their places. One engine per context. Thread rule: everything belongs to the thread that
 * polls the context.
 *
 * The rule for memory that goes away: memory handed to bulk_export() must stay mapped until
 * bulk_export_close() has ended. The registration cache holds address ranges, never contents, and
 * over shm nothing is pinned, so memory that is unmapped after that and mapped anew is safe.
 */
#ifndef CAUSEWAY_BULK_H
#define CAUSEWAY_BULK_H

#include <causeway/lnet.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BULK_API LNET_API

#define BULK_PORTAL           8    /* bulk without RMA; match bits name export or transfer */
#define BULK_SEGMENTS_MAX     64   /* of one handle, and of one local list */
#define BULK_HANDLE_BYTES_MAX 4096 /* of a serialised handle; one segment takes 96 at most */

struct bulk;        /* the bulk engine of one context */
struct bulk_region; /* pool memory */
struct bulk_export; /* memory that peers are let into */
struct bulk_xfer;   /* a transfer that is under way */

/* Which way the bytes go; the results say which way they went. */
enum bulk_path {
    BULK_PATH_AUTO = 0,
    BULK_PATH_MAPPED,  /* shm, pool memory: one memcpy */
    BULK_PATH_CMA,     /* shm, any memory: one copy by the kernel */
    BULK_PATH_STAGING, /* any LND: through messages, two copies */
};
#define BULK_PATH_COUNT 4

struct bulk_options {
    uint32_t struct_bytes;
    uint32_t path;              /* enum bulk_path: force one, where it can be had */
    uint32_t cache_entries_max; /* of the registration cache [256] */
    uint32_t exports_max;       /* [4096] */
    uint32_t xfers_max;         /* [1024] under way at once */
    uint32_t window;            /* staging: fragments in flight per transfer [8] */
    uint64_t fragment_bytes;    /* 0: by path, from measurement */
};

/**
 * bulk_open() - make the bulk engine of a context
 * @ctx:      the context; outlives the engine.
 * @options:  NULL: all defaults.
 * @bulk_out: the engine.
 *
 * Errors:  -EINVAL; -ENOMEM.
 * Context: the polling thread.
 */
BULK_API int bulk_open(struct lnet *ctx, const struct bulk_options *options,
                       struct bulk **bulk_out);

/**
 * bulk_close() - end a bulk engine
 * @bulk: the engine; NULL does nothing.
 *
 * Transfers end with -ECANCELED, exports close and regions are freed before the call returns; it
 * polls the context for that.
 *
 * Context: the polling thread, not from a callback.
 */
BULK_API void bulk_close(struct bulk *bulk);

/**
 * bulk_region_alloc() - allocate pool memory, which moves with one copy
 * @bulk:        the engine.
 * @bytes:       how much.
 * @region_out:  the region.
 * @address_out: its memory, page aligned, zeroed.
 *
 * Errors:  -ENOMEM; -EINVAL.
 * Context: the polling thread. Does system calls.
 */
BULK_API int bulk_region_alloc(struct bulk *bulk, uint64_t bytes, struct bulk_region **region_out,
                               void **address_out);

/**
 * bulk_region_alloc_lazy() - the same, but its pages come when they are touched
 * @bulk:        the engine.
 * @bytes:       how much.
 * @region_out:  the region.
 * @address_out: its memory, page aligned, zeroed.
 *
 * Takes microseconds whatever the size. The first touch of a page, here or at a peer, costs about
 * 1 us; who can't wait for that touches ahead. Memory that the system has not got is found out by
 * the touch.
 *
 * Errors:  -ENOMEM; -EINVAL.
 * Context: the polling thread. Does system calls.
 */
BULK_API int bulk_region_alloc_lazy(struct bulk *bulk, uint64_t bytes,
                                    struct bulk_region **region_out, void **address_out);

/**
 * bulk_region_free() - give pool memory back
 * @region: no export of it is open.
 *
 * Context: the polling thread.
 */
BULK_API void bulk_region_free(struct bulk_region *region);

/**
 * bulk_region_page_bytes() - the page size behind a region: says whether there were huge pages
 * @region: the region.
 *
 * Return:  bytes.
 * Context: the polling thread.
 */
BULK_API uint64_t bulk_region_page_bytes(const struct bulk_region *region);

/**
 * bulk_export() - let a peer into memory
 * @bulk:       the engine.
 * @peer:       the only peer that the handle is good for.
 * @iov:        the memory, at most BULK_SEGMENTS_MAX parts, any alignment and length (0 too). Parts
 *              in pool regions are recognised; others are registered through the LRU cache.
 * @iov_count:  how many parts.
 * @access:     enum lnet_access: what the peer may do.
 * @export_out: for bulk_export_pack() and bulk_export_close().
 *
 * Ownership: the memory must stay mapped until the close has ended.
 * Errors:    -EINVAL; -EAGAIN exports_max are open; -EHOSTUNREACH.
 * Context:   the polling thread; also from callbacks.
 */
BULK_API int bulk_export(struct bulk *bulk, struct lnet_peer *peer, const struct iovec *iov,
                         uint32_t iov_count, uint32_t access, struct bulk_export **export_out);

/**
 * bulk_export_pack() - write the handle of an export
 * @export_: the export.
 * @buffer:  room for it.
 * @bytes:   how much room; BULK_HANDLE_BYTES_MAX always does.
 *
 * Return:  the handle's size, or 0 when there is not room enough.
 * Context: the polling thread.
 */
BULK_API uint32_t bulk_export_pack(const struct bulk_export *export_, void *buffer, uint32_t bytes);

typedef void (*bulk_closed_fn)(struct bulk *bulk, void *user);

/**
 * bulk_export_close() - let nobody in any more
 * @export_: the export; invalid after the call.
 * @closed:  called once from a later poll if -EINPROGRESS is returned. May be NULL.
 * @user:    for @closed.
 *
 * Return:  0: the memory is the caller's alone again. -EINPROGRESS: a peer is in the middle of a
 *          copy; @closed says when it has ended (the peer's death ends it too).
 * Context: the polling thread; also from callbacks.
 */
BULK_API int bulk_export_close(struct bulk_export *export_, bulk_closed_fn closed, void *user);

/**
 * bulk_handle_check() - is this a well-formed handle, and over how many bytes?
 * @handle:       from a peer, already in memory that it can't change.
 * @bytes:        how many bytes there are, at least the handle.
 * @handle_bytes_out: the handle's own size, or NULL.
 * @length_bytes_out: bytes of memory it covers, or NULL; 0 to 2^62.
 *
 * Errors:  -EPROTO malformed or of another version.
 * Context: any thread.
 */
BULK_API int bulk_handle_check(const void *handle, uint32_t bytes, uint32_t *handle_bytes_out,
                               uint64_t *length_bytes_out);

enum bulk_op {
    BULK_PULL = 1, /* from the handle's memory to local memory */
    BULK_PUSH,     /* from local memory to the handle's */
};

enum bulk_flags {
    BULK_CRC32C = 1u << 0, /* compute the CRC32C of the bytes on this side */
};

struct bulk_result {
    int status;           /* 0; -ESTALE closed or unknown handle; -ERANGE; -EACCES; -ECONNRESET;
                             -ETIMEDOUT; -ECANCELED; -EPROTO */
    uint32_t crc32c;      /* with BULK_CRC32C and status 0 */
    uint64_t moved_bytes; /* all of them, or what is known to have moved before the error */
    enum bulk_path path;
    uint32_t reserved;
};

typedef void (*bulk_done_fn)(struct bulk *bulk, const struct bulk_result *result, void *user);

struct bulk_request {
    enum bulk_op op;
    uint32_t flags; /* enum bulk_flags */
    struct lnet_peer *peer;
    const void *handle; /* from @peer; copied */
    uint32_t handle_bytes;
    uint32_t local_count;         /* at most BULK_SEGMENTS_MAX */
    const struct iovec *local;    /* copied; the memory is the engine's until done */
    uint64_t handle_offset_bytes; /* first byte within the handle's memory */
    uint64_t length_bytes;        /* may be 0; must fit both sides */
    uint64_t deadline_ns;         /* 0: none */
    bulk_done_fn done;
    void *user;
};

/**
 * bulk_transfer() - start moving bytes between local memory and a handle's
 * @bulk:     the engine.
 * @request:  what; copied.
 * @xfer_out: for bulk_cancel(), or NULL.
 *
 * Completes: on 0, one request->done from a later poll.
 * Errors:    -EPROTO bad handle; -ERANGE it does not cover offset and length; -EINVAL;
 *            -EAGAIN xfers_max are under way; -ENOTCONN.
 * Context:   the polling thread; also from callbacks.
 */
BULK_API int bulk_transfer(struct bulk *bulk, const struct bulk_request *request,
                           struct bulk_xfer **xfer_out);

/**
 * bulk_cancel() - give up a transfer
 * @xfer: under way. Its done() still comes once, with -ECANCELED, when nothing touches local
 *        memory any more; or with its result if it had ended already.
 *
 * Context: the polling thread; also from callbacks.
 */
BULK_API void bulk_cancel(struct bulk_xfer *xfer);

struct bulk_stats {
    uint64_t xfer_count[BULK_PATH_COUNT]; /* by enum bulk_path */
    uint64_t xfer_bytes[BULK_PATH_COUNT];
    uint64_t error_count;
    uint64_t stale_count;
    uint64_t cache_hit_count, cache_miss_count, cache_evict_count;
    uint32_t export_count, xfer_active_count; /* now */
    uint64_t region_bytes;                    /* now */
    uint64_t page_bytes;                      /* smallest page behind any region */
};

/**
 * bulk_stats_get() - counters
 * @bulk:      the engine.
 * @stats_out: the counters.
 *
 * Context: the polling thread.
 */
BULK_API void bulk_stats_get(const struct bulk *bulk, struct bulk_stats *stats_out);

/**
 * bulk_crc32c() - CRC32C (Castagnoli, RFC 3720) over more bytes
 * @crc:   of the bytes before, 0 to begin.
 * @data:  the bytes.
 * @bytes: how many.
 *
 * Return:  the CRC. bulk_crc32c(0, "123456789", 9) is 0xe3069283.
 * Context: any thread.
 */
BULK_API uint32_t bulk_crc32c(uint32_t crc, const void *data, size_t bytes);

/**
 * bulk_path_name() - "auto", "mapped", "cma" or "staging"
 * @path: the path.
 *
 * Return:  a static string.
 * Context: any thread.
 */
BULK_API const char *bulk_path_name(enum bulk_path path);

#ifdef __cplusplus
}
#endif
#endif
