/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A host: the threads that run the reactors of servers inside this process.
 *
 * Each reactor is a thread with a context, a bulk and an RPC engine, an MDS or an OSS or both, and
 * the control service that `causeway lctl` asks. Threads start in host_start() and end in
 * host_stop().
 */
#pragma once

#include "base/clock.h"
#include "base/runner.h"

#include <causeway/server.h>
#include <pthread.h>
#include <stdatomic.h>

#define HOST_REACTORS_MAX 64

struct host_options {
    const char *name;    /* "mds", "oss", "servers": for the log */
    const char *net;     /* "shm" */
    const char *address; /* of the NID */
    const char *run_dir; /* NULL: the default */
    uint32_t reactors;
    uint32_t credits, peer_credits; /* 0: defaults */
    uint64_t ring_bytes;
    const char *rma_path;
    uint32_t bulk_path; /* enum bulk_path */
    bool any_user;
    uint64_t timeout_ns;
    uint64_t spin_ns, yield_ns;    /* of the idle loop; 0: defaults */
    const int *cpus;               /* pin reactor i to CPU cpus[i]; NULL: do not pin */
    const struct mds_options *mds; /* NULL: none. reactor, reactors, nid are filled in */
    const struct oss_options *oss; /* NULL: none */
    int32_t log_level;
};

struct host;

/* One reactor, and what its own thread may look at. */
struct host_reactor {
    struct host *host;
    uint32_t index;
    pthread_t thread;
    struct lnet *ctx;
    struct bulk *bulk;
    struct ptlrpc *rpc;
    struct ptlrpc_service *control;
    struct mds *mds;
    struct oss *oss;
    struct base_runner *runner;
    struct lnet_nid nid;
    uint64_t cpu_ns; /* that the thread took, once it has ended */
    int status;      /* of opening */
    atomic_bool is_ready;
};

struct host {
    struct host_options options;
    struct base_tsc tsc;
    uint64_t start_ns;
    uint32_t reactor_count; /* started */
    struct host_reactor reactors[HOST_REACTORS_MAX];
};

/*
 * Starts the reactors; returns when all are ready to serve, or the first error after ending those
 * that had been started. The log has said why.
 */
int host_start(const struct host_options *options, struct host **host_out);

/*
 * Stops the reactors' loops and waits for the threads. Their statistics can then be read by
 * anybody, until host_free().
 */
void host_stop(struct host *host);

/* Ends servers and contexts, and frees the host. */
void host_free(struct host *host);
