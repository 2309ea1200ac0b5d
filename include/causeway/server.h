/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * server.h - the reference servers, MDS and OSS, to be run inside a program.
 *
 * A server is as many *reactors* as it has threads: each a context of its own with an engine for
 * RPCs, and in it one `struct mds` or `struct oss` or both. Reactors share nothing; those of one
 * MDS are pids in a row of one NID and talk by RPC. Time comes with the context's polls; what files
 * show as their times is that plus wall_offset_ns.
 */
#ifndef CAUSEWAY_SERVER_H
#define CAUSEWAY_SERVER_H

#include <causeway/ptlrpc.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SERVER_API LNET_API

struct mds; /* one reactor of a metadata server */
struct oss; /* one reactor of an object server */

/* ---- metadata server ---- */

/* Where an OST is. */
struct mds_ost {
    struct lnet_nid nid; /* of its OSS */
    uint32_t pid0;       /* of the OSS's first reactor */
    uint16_t reactors;   /* of the OSS */
    uint16_t ost;        /* index at that OSS */
};

struct mds_options {
    uint32_t struct_bytes;
    uint32_t reactor;           /* index of this reactor */
    uint32_t reactors;          /* how many there are */
    uint32_t pid0;              /* of the first */
    struct lnet_nid nid;        /* of all of them */
    const struct mds_ost *osts; /* copied */
    uint32_t ost_count;         /* 0 to 64 */
    uint32_t stripe_bytes;      /* default layout [1 MiB] */
    uint32_t stripe_count;      /* [1]; 0xffff: all */
    uint32_t exports_max;       /* clients [4096] */
    const char *store;          /* "mem" or "null" [mem] */
    uint64_t inodes_max;        /* of this reactor [16 Mi] */
    uint64_t wall_offset_ns;    /* wall clock - lnet_poll()'s clock */
    lnet_log_fn log;
    void *log_arg;
};

/**
 * mds_open() - begin to serve metadata
 * @rpc:     the engine of this reactor; outlives the server.
 * @options: what to serve; copied.
 * @mds_out: the server.
 *
 * Errors:  -EINVAL; -EEXIST the portal is served; -ENOENT no such store in this build; -ENOMEM.
 * Context: the polling thread.
 */
SERVER_API int mds_open(struct ptlrpc *rpc, const struct mds_options *options,
                        struct mds **mds_out);

/**
 * mds_close() - stop, after ptlrpc_close() of its engine
 * @mds: the server; all it kept is freed. NULL does nothing.
 *
 * Context: the polling thread, not from a callback.
 */
SERVER_API void mds_close(struct mds *mds);

/**
 * mds_service() - its RPC service, for statistics
 * @mds: the server.
 *
 * Return:  the service.
 * Context: the polling thread.
 */
SERVER_API struct ptlrpc_service *mds_service(const struct mds *mds);

struct mds_stats {
    uint64_t inodes, inodes_max; /* in use, of this reactor */
    uint64_t directories;
    uint64_t bytes; /* memory taken */
    uint64_t open_handles;
    uint64_t orphans;                        /* unlinked and still open */
    uint64_t destroys_queued, destroys_done; /* objects of freed files */
    uint64_t moved_count;                    /* walks handed on to another reactor */
    uint64_t remote_ops;                     /* operations over two reactors */
};

/**
 * mds_stats_get() - counters
 * @mds:       the server.
 * @stats_out: the counters.
 *
 * Context: the polling thread.
 */
SERVER_API void mds_stats_get(const struct mds *mds, struct mds_stats *stats_out);

/* ---- object server ---- */

struct oss_options {
    uint32_t struct_bytes;
    uint32_t reactor;
    uint32_t reactors;
    uint32_t ost_count; /* OSTs served: 0 .. ost_count - 1 */
    const char *store;  /* "mem" or "null" [mem] */
    uint64_t bytes_max; /* of data, of this reactor, all OSTs [an eighth of the machine's memory] */
    uint64_t objects_max;    /* [16 Mi] */
    uint64_t prefault_bytes; /* memory that is touched at open; idle keeps 32 MiB [64 MiB] */
    uint32_t exports_max;    /* [4096] */
    uint32_t no_lease;       /* 1: never lend memory */
    uint64_t wall_offset_ns;
    lnet_log_fn log;
    void *log_arg;
};

/**
 * oss_open() - begin to serve objects
 * @rpc:     the engine of this reactor, with a bulk engine; outlives the server.
 * @options: what to serve; copied.
 * @oss_out: the server.
 *
 * Errors:  -EINVAL; -EEXIST the portal is served; -ENOENT no such store in this build; -ENOMEM.
 * Context: the polling thread.
 */
SERVER_API int oss_open(struct ptlrpc *rpc, const struct oss_options *options,
                        struct oss **oss_out);

/**
 * oss_close() - stop, after ptlrpc_close() of its engine and before bulk_close()
 * @oss: the server; all it kept is freed. NULL does nothing.
 *
 * Context: the polling thread, not from a callback.
 */
SERVER_API void oss_close(struct oss *oss);

/**
 * oss_idle() - use a moment without work: touch memory ahead of need
 * @oss: the server. Takes at most about 50 us.
 *
 * Return:  true if there is more to do.
 * Context: the polling thread, not from a callback.
 */
SERVER_API bool oss_idle(struct oss *oss);

/**
 * oss_service() - its RPC service, for statistics
 * @oss: the server.
 *
 * Return:  the service.
 * Context: the polling thread.
 */
SERVER_API struct ptlrpc_service *oss_service(const struct oss *oss);

struct oss_stats {
    uint64_t objects, objects_max;
    uint64_t bytes_used, bytes_max;
    uint64_t bytes_prefaulted; /* free and touched */
    uint64_t page_bytes;       /* smallest page behind the store's memory */
    uint64_t leases_out, leases_total, lease_aborts;
    uint64_t inline_count, bulk_count, lease_count; /* how READs and WRITEs went */
    /* Copies that clients made from and to lent memory, by enum bulk_path, as they tell. */
    uint64_t copy_count[BULK_PATH_COUNT], copy_bytes[BULK_PATH_COUNT], copy_ns[BULK_PATH_COUNT];
    uint64_t crc_errors;
};

/**
 * oss_stats_get() - counters
 * @oss:       the server.
 * @stats_out: the counters.
 *
 * Context: the polling thread.
 */
SERVER_API void oss_stats_get(const struct oss *oss, struct oss_stats *stats_out);

#ifdef __cplusplus
}
#endif
#endif
