/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ptlrpc.h - requests, imports and exports, services; after Lustre's ptlrpc.
 *
 * A client opens an *import* of a service of a target (process address and portal) and sends
 * requests through it, at most max_rpcs_in_flight at once, the others waiting in order. A server
 * adds *services*: a portal, a table of op codes with handlers, a bounded pool of requests. The
 * server's view of a connected client is an *export*.
 *
 * Execution is exactly once for ops marked PTLRPC_OP_ONCE: each request names one of the import's
 * slots (Lustre's multi-slot last_rcvd tags), the export remembers per slot the last xid and its
 * reply, and a resend of it is answered from there. A new xid in a slot acknowledges the reply
 * before.
 *
 * Everything belongs to the thread that polls the lnet context.
 */
#ifndef CAUSEWAY_PTLRPC_H
#define CAUSEWAY_PTLRPC_H

#include <causeway/bulk.h>
#include <causeway/lnet.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PTLRPC_API LNET_API

struct ptlrpc;         /* the RPC engine of one context */
struct ptlrpc_import;  /* a client's view of a target */
struct ptlrpc_request; /* a client's request */
struct ptlrpc_service; /* a portal with handlers */
struct ptlrpc_export;  /* a service's view of a connected client */
struct ptlrpc_rq;      /* a request at the server */
struct base_hist;      /* base/hist.h; for tools */

struct ptlrpc_options {
    uint32_t struct_bytes;
    uint32_t requests_max; /* client requests taken at once [1024] */
    uint32_t imports_max;  /* [256] */
    uint32_t reserved;
    uint64_t timeout_ns; /* of a request, before it is sent again or fails [10 s] */
    lnet_log_fn log;     /* NULL: silent */
    void *log_arg;
    int32_t log_level; /* most verbose level wanted */
    uint32_t reserved2;
};

/**
 * ptlrpc_open() - make the RPC engine of a context
 * @ctx:     the context; outlives the engine.
 * @bulk:    its bulk engine; outlives the engine. NULL: no bulk.
 * @options: NULL: all defaults.
 * @rpc_out: the engine.
 *
 * Errors:  -EINVAL; -ENOMEM.
 * Context: the polling thread.
 */
PTLRPC_API int ptlrpc_open(struct lnet *ctx, struct bulk *bulk,
                           const struct ptlrpc_options *options, struct ptlrpc **rpc_out);

/**
 * ptlrpc_close() - end an RPC engine
 * @rpc: the engine. Requests end with -ECANCELED, exports are disconnected, before the call
 * returns.
 *
 * Context: the polling thread, not from a callback.
 */
PTLRPC_API void ptlrpc_close(struct ptlrpc *rpc);

/**
 * ptlrpc_lnet() - the context of an engine
 * @rpc: the engine.
 *
 * Return:  the context given at open.
 * Context: the polling thread.
 */
PTLRPC_API struct lnet *ptlrpc_lnet(const struct ptlrpc *rpc);

/**
 * ptlrpc_bulk() - the bulk engine of an engine
 * @rpc: the engine.
 *
 * Return:  the bulk engine given at open, or NULL.
 * Context: the polling thread.
 */
PTLRPC_API struct bulk *ptlrpc_bulk(const struct ptlrpc *rpc);

/**
 * ptlrpc_body_bytes_max() - the longest body of a request or reply
 * @rpc: the engine.
 *
 * Return:  bytes; at least 8448 over shm (8 KiB of data and a fixed part).
 * Context: the polling thread.
 */
PTLRPC_API uint32_t ptlrpc_body_bytes_max(const struct ptlrpc *rpc);

/* ---- client --------------------------------------------------------------------------------- */

enum ptlrpc_import_state {
    PTLRPC_IMP_CLOSED = 1,
    PTLRPC_IMP_DISCON, /* not connected; the next request connects */
    PTLRPC_IMP_CONNECTING,
    PTLRPC_IMP_FULL,
    PTLRPC_IMP_EVICTED, /* the server forgot us: requests fail with -ESTALE until re-opened */
};

/*
 * Called when the state changed. On FULL, @data and @bytes are the connect reply's body. status
 * says why on DISCON. May be NULL in the options.
 */
typedef void (*ptlrpc_import_fn)(struct ptlrpc_import *import, enum ptlrpc_import_state state,
                                 int status, const void *data, uint32_t bytes, void *user);

struct ptlrpc_import_options {
    uint32_t struct_bytes;
    uint32_t portal;
    struct lnet_process target;
    const char *name;            /* for log and statistics */
    uint32_t max_rpcs_in_flight; /* [16], at most 256 */
    uint32_t connect_data_bytes; /* at most 1024 */
    const void *connect_data;    /* the body of the connect request; copied */
    uint64_t timeout_ns;         /* of one try of a request; 0: the engine's */
    uint32_t tries_max;          /* tries before -ETIMEDOUT [3]; 1: never resend */
    uint32_t reserved;
    ptlrpc_import_fn state_changed;
    void *user;
};

/**
 * ptlrpc_import_open() - make an import and start to connect
 * @rpc:        the engine.
 * @options:    which target; copied.
 * @import_out: the import. Requests may be sent at once: they wait for the connection.
 *
 * Errors:  -EINVAL; -EAGAIN imports_max; -EHOSTUNREACH; -ENOMEM.
 * Context: the polling thread; also from callbacks.
 */
PTLRPC_API int ptlrpc_import_open(struct ptlrpc *rpc, const struct ptlrpc_import_options *options,
                                  struct ptlrpc_import **import_out);

/**
 * ptlrpc_import_close() - disconnect and forget
 * @import: invalid after state_changed(PTLRPC_IMP_CLOSED), which comes from a later poll, when the
 *          DISCONNECT was answered or timed out (1 s). Its requests end with -ECANCELED first.
 *
 * Context: the polling thread; also from callbacks.
 */
PTLRPC_API void ptlrpc_import_close(struct ptlrpc_import *import);

/**
 * ptlrpc_import_state() - where an import stands
 * @import: the import.
 *
 * Return:  its state.
 * Context: the polling thread.
 */
PTLRPC_API enum ptlrpc_import_state ptlrpc_import_state(const struct ptlrpc_import *import);

/**
 * ptlrpc_import_peer() - the peer behind an import
 * @import: the import.
 *
 * Return:  borrowed; for bulk_export().
 * Context: the polling thread.
 */
PTLRPC_API struct lnet_peer *ptlrpc_import_peer(const struct ptlrpc_import *import);

/* Lustre's import statistics. */
struct ptlrpc_import_info {
    char name[64];
    struct lnet_process target;
    enum ptlrpc_import_state state;
    uint32_t max_rpcs_in_flight;
    uint32_t in_flight, in_flight_max; /* now, ever */
    uint32_t waiting, waiting_max;     /* for a slot */
    uint32_t generation;
    uint64_t sent_count, resend_count, timeout_count, reply_count, late_reply_count;
};

/**
 * ptlrpc_import_info_get() - look at an import
 * @import:   the import.
 * @info_out: what is known.
 *
 * Context: the polling thread.
 */
PTLRPC_API void ptlrpc_import_info_get(const struct ptlrpc_import *import,
                                       struct ptlrpc_import_info *info_out);

/* When what happened to a request: lnet_stamp() values, and the server's own durations. */
struct ptlrpc_stages {
    uint64_t queued;            /* ptlrpc_request_send() */
    uint64_t sent;              /* got slot, connection and credit, first try */
    uint64_t received;          /* the reply was here */
    uint32_t server_queue_ns;   /* arrived to started */
    uint32_t server_service_ns; /* started to replied; holds the two below */
    uint32_t server_bulk_ns;
    uint32_t server_store_ns;
};

/*
 * A request ended, once. @status: 0 or the handler's negative status from the server, or
 * -ETIMEDOUT, -ECONNRESET (the server may have acted), -ENOTCONN, -ECANCELED, -ESTALE (evicted),
 * -EPROTO. @body is the reply's (NULL without one) and valid for the call. @request goes back to
 * the pool after it.
 */
typedef void (*ptlrpc_done_fn)(struct ptlrpc_request *request, int status, const void *body,
                               uint32_t bytes, void *user);

/**
 * ptlrpc_request_take() - take a request from the pool
 * @import: through which it shall go.
 * @opc:    op code, a name for the service's table.
 *
 * Return:  the request, for ptlrpc_request_send() or _drop(); NULL: requests_max are taken.
 * Context: the polling thread; also from callbacks.
 */
PTLRPC_API struct ptlrpc_request *ptlrpc_request_take(struct ptlrpc_import *import, uint16_t opc);

/**
 * ptlrpc_request_body() - where its body is to be written
 * @request: taken and not yet sent.
 *
 * Return:  ptlrpc_body_bytes_max() bytes, not zeroed.
 * Context: the polling thread.
 */
PTLRPC_API void *ptlrpc_request_body(struct ptlrpc_request *request);

/**
 * ptlrpc_request_send() - send a request
 * @request: taken; the engine's until done.
 * @bytes:   of its body.
 * @done:    called once from a later poll; NULL: nobody waits.
 * @user:    for @done.
 *
 * Errors:  -EMSGSIZE; -ESTALE evicted; -ENOTCONN closing. Then nothing follows, and the request was
 *          given back.
 * Context: the polling thread; also from callbacks.
 */
PTLRPC_API int ptlrpc_request_send(struct ptlrpc_request *request, uint32_t bytes,
                                   ptlrpc_done_fn done, void *user);

/**
 * ptlrpc_request_drop() - give back a request that was not sent
 * @request: taken.
 *
 * Context: the polling thread.
 */
PTLRPC_API void ptlrpc_request_drop(struct ptlrpc_request *request);

/**
 * ptlrpc_request_cancel() - want no more of a request
 * @request: sent. Its done() comes once from a later poll, with -ECANCELED if no reply was here.
 *           A late reply is dropped and counted; the slot is kept until the server's answer or a
 * resend settles it.
 *
 * Context: the polling thread; also from callbacks.
 */
PTLRPC_API void ptlrpc_request_cancel(struct ptlrpc_request *request);

/**
 * ptlrpc_request_stages() - when what happened
 * @request: in its done().
 *
 * Return:  its stages, valid for the call.
 * Context: the polling thread.
 */
PTLRPC_API const struct ptlrpc_stages *ptlrpc_request_stages(const struct ptlrpc_request *request);

/* ---- server --------------------------------------------------------------------------------- */

/*
 * Executes a request. It may reply at once or later; it must reply exactly once. The body lies in
 * memory of our own and is at least body_bytes_min long.
 */
typedef void (*ptlrpc_handler_fn)(struct ptlrpc_rq *rq);

enum ptlrpc_op_flags {
    PTLRPC_OP_ONCE = 1u << 0, /* not idempotent: the reply is kept until acknowledged */
};

struct ptlrpc_op {
    uint16_t opc;
    uint16_t flags;          /* enum ptlrpc_op_flags */
    uint32_t body_bytes_min; /* shorter: refused with -EPROTO before the handler */
    const char *name;        /* "ost_read" */
    ptlrpc_handler_fn handler;
};

/* Op codes that ptlrpc answers itself, on every service (Lustre's numbers). */
enum ptlrpc_own_opc { PTLRPC_OPC_PING = 400, PTLRPC_OPC_CONNECT = 38, PTLRPC_OPC_DISCONNECT = 39 };

struct ptlrpc_service_options {
    uint32_t struct_bytes;
    uint32_t portal;
    const char *name;            /* "mds", "ost" */
    const struct ptlrpc_op *ops; /* static */
    uint32_t op_count;
    uint32_t rqs_max;      /* requests at the server at once [1024]; more wait in the network */
    uint32_t exports_max;  /* [4096], at most 65536 */
    uint32_t reconnect_ms; /* a client whose connection broke has this long to come back [1000] */
    void *user;
    /*
     * A client connects: 0 or a refusal. @data is its connect data. Write the connect reply's body
     * to @reply (at most 4096 bytes) and its size to @reply_bytes. ptlrpc_export_user_set() here.
     * NULL: all are welcome.
     */
    int (*connected)(struct ptlrpc_service *service, struct ptlrpc_export *export_,
                     const void *data, uint32_t bytes, void *reply, uint32_t *reply_bytes);
    /*
     * It disconnected (0), died (-ECONNRESET, reconnect_ms after its connection broke) or was
     * evicted: free what it had. Its requests that are still executing no more have an export. May
     * be NULL.
     */
    void (*disconnected)(struct ptlrpc_service *service, struct ptlrpc_export *export_, int reason);
};

/**
 * ptlrpc_service_add() - serve a portal
 * @rpc:         the engine.
 * @options:     what; copied but for the ops.
 * @service_out: the service.
 *
 * Errors:  -EINVAL; -EEXIST the portal is served; -ENOMEM.
 * Context: the polling thread.
 */
PTLRPC_API int ptlrpc_service_add(struct ptlrpc *rpc, const struct ptlrpc_service_options *options,
                                  struct ptlrpc_service **service_out);

/**
 * ptlrpc_service_user() - the user pointer of a service
 * @service: the service.
 *
 * Return:  options.user.
 * Context: the polling thread.
 */
PTLRPC_API void *ptlrpc_service_user(const struct ptlrpc_service *service);

/**
 * ptlrpc_export_user_set() - attach something to an export
 * @export_: the export.
 * @user:    for ptlrpc_export_user().
 *
 * Context: the polling thread.
 */
PTLRPC_API void ptlrpc_export_user_set(struct ptlrpc_export *export_, void *user);

/**
 * ptlrpc_export_user() - what was attached
 * @export_: the export.
 *
 * Return:  the pointer, NULL at first.
 * Context: the polling thread.
 */
PTLRPC_API void *ptlrpc_export_user(const struct ptlrpc_export *export_);

/**
 * ptlrpc_export_peer() - the client's peer
 * @export_: the export.
 *
 * Return:  borrowed.
 * Context: the polling thread.
 */
PTLRPC_API struct lnet_peer *ptlrpc_export_peer(const struct ptlrpc_export *export_);

/**
 * ptlrpc_export_evict() - throw a client out
 * @export_: the export. disconnected() follows from a later poll.
 * @reason:  a negative errno, for the log.
 *
 * Context: the polling thread; also from callbacks.
 */
PTLRPC_API void ptlrpc_export_evict(struct ptlrpc_export *export_, int reason);

/**
 * ptlrpc_rq_opc() - op code of a request
 * @rq: the request.
 *
 * Return:  the op code.
 * Context: the polling thread.
 */
PTLRPC_API uint16_t ptlrpc_rq_opc(const struct ptlrpc_rq *rq);

/**
 * ptlrpc_rq_body() - body of a request
 * @rq:        the request.
 * @bytes_out: its size.
 *
 * Return:  the body, 8-byte aligned, valid and unchanging until the reply.
 * Context: the polling thread.
 */
PTLRPC_API const void *ptlrpc_rq_body(const struct ptlrpc_rq *rq, uint32_t *bytes_out);

/**
 * ptlrpc_rq_export() - whose request it is
 * @rq: the request.
 *
 * Return:  the export; NULL when it was evicted meanwhile (the reply will be dropped).
 * Context: the polling thread.
 */
PTLRPC_API struct ptlrpc_export *ptlrpc_rq_export(const struct ptlrpc_rq *rq);

/**
 * ptlrpc_rq_service() - the service it came to
 * @rq: the request.
 *
 * Return:  the service.
 * Context: the polling thread.
 */
PTLRPC_API struct ptlrpc_service *ptlrpc_rq_service(const struct ptlrpc_rq *rq);

/**
 * ptlrpc_rq_reply_body() - where the reply's body is to be written
 * @rq: the request.
 *
 * Return:  ptlrpc_body_bytes_max() bytes, 8-byte aligned, not zeroed; apart from the request's
 * body. Context: the polling thread.
 */
PTLRPC_API void *ptlrpc_rq_reply_body(struct ptlrpc_rq *rq);

/**
 * ptlrpc_rq_reply() - answer a request
 * @rq:     the request; gone after the call.
 * @status: 0 or a negative errno for the client's done().
 * @bytes:  of the reply's body; may be sent with an error too.
 *
 * Context: the polling thread; also from callbacks.
 */
PTLRPC_API void ptlrpc_rq_reply(struct ptlrpc_rq *rq, int status, uint32_t bytes);

enum ptlrpc_mark { PTLRPC_MARK_BULK, PTLRPC_MARK_STORE };

/**
 * ptlrpc_rq_begin() - a stage of the request's execution begins
 * @rq:   the request.
 * @mark: which. Stages of one kind do not nest; their times add up.
 *
 * Context: the polling thread.
 */
PTLRPC_API void ptlrpc_rq_begin(struct ptlrpc_rq *rq, enum ptlrpc_mark mark);

/**
 * ptlrpc_rq_end() - a stage ended
 * @rq:    the request.
 * @mark:  begun before.
 * @bytes: moved or stored in it: counted per op.
 * @path:  BULK: enum bulk_path taken, for the statistics; else 0.
 *
 * Context: the polling thread.
 */
PTLRPC_API void ptlrpc_rq_end(struct ptlrpc_rq *rq, enum ptlrpc_mark mark, uint64_t bytes,
                              uint32_t path);

/* ---- statistics ------------------------------------------------------------------------------ */

/* Sums over all requests of one op. The client's times come with its later requests (see README).
 */
struct ptlrpc_op_stats {
    uint16_t opc;
    uint16_t reserved;
    uint32_t reserved2;
    const char *name;
    uint64_t count, error_count,
        resent_count; /* executed; with an error status; answered from a slot */
    uint64_t bytes;   /* by ptlrpc_rq_end() */
    uint64_t path_count[BULK_PATH_COUNT];
    uint64_t queue_ns, service_ns, bulk_ns, store_ns; /* sums at the server */
    uint64_t report_count;                            /* round trips that clients reported */
    uint64_t total_ns;                                /* sum of them: queued to received */
    uint64_t wait_ns;                                 /* of it, waiting for a slot or credit */
    const struct base_hist *total;                    /* round trips in ns */
    const struct base_hist *service;
};

struct ptlrpc_service_stats {
    const char *name;
    uint32_t portal;
    uint32_t export_count;
    uint32_t rqs_max, rqs_free_min; /* Lustre: reqbuf_avail */
    uint32_t req_active;            /* being executed now */
    uint32_t req_active_max;
    uint64_t req_count, refused_count;       /* refused: malformed, unknown op, no export */
    const struct base_hist *req_waittime_ns; /* Lustre's req_waittime: arrived to started */
    const struct base_hist *req_qdepth;      /* requests ahead when one arrived */
    const struct base_hist *req_active_hist;
    uint64_t duplicate_count;  /* resends dropped because the first copy was still being executed */
    uint64_t stale_count;      /* of an older generation or xid: dropped */
    uint64_t busy_count;       /* sent back because no request was free */
    uint64_t reply_drop_count; /* replies that nobody waited for any more */
};

/**
 * ptlrpc_service_stats_get() - statistics of a service
 * @service:   the service.
 * @stats_out: valid until the next poll.
 *
 * Context: the polling thread.
 */
PTLRPC_API void ptlrpc_service_stats_get(const struct ptlrpc_service *service,
                                         struct ptlrpc_service_stats *stats_out);

/**
 * ptlrpc_op_stats_get() - statistics of one op of a service
 * @service:   the service.
 * @index:     0, 1, ...: ptlrpc's own ops (connect, disconnect, ping), then those of the table.
 * @stats_out: valid until the next poll.
 *
 * Errors:  -ENOENT no more.
 * Context: the polling thread.
 */
PTLRPC_API int ptlrpc_op_stats_get(const struct ptlrpc_service *service, uint32_t index,
                                   struct ptlrpc_op_stats *stats_out);

#ifdef __cplusplus
}
#endif
#endif
