/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context in a thread of its own, with engines for bulk and RPCs: what a server process has, so
 * that a test can run servers beside the blocking client in one process.
 */
#pragma once

#include "causeway/ptlrpc.h"

struct reactor;

struct reactor_options {
    const char *run_dir; /* of shm */
    const char *address; /* "1" */
    uint32_t pid;
    uint64_t ring_bytes;                        /* 0: the default */
    uint32_t connect_only;                      /* 1: takes no connections */
    int (*open)(struct ptlrpc *rpc, void *arg); /* in the thread: adds services; 0 or an error */
    void (*close)(void *arg); /* in the thread, after ptlrpc_close(); may be NULL */
    bool (*idle)(void *arg);  /* when there is nothing to do; may be NULL */
    void *arg;
};

/* Starts one and waits until it serves. Returns 0 or what opening failed with. */
int reactor_start(const struct reactor_options *options, struct reactor **reactor_out);

/* Ends it and waits for that. NULL is ignored. */
void reactor_stop(struct reactor *reactor);

/* Calls @fn(@arg) in the reactor's thread, between two polls, and waits for its end. */
void reactor_call(struct reactor *reactor, void (*fn)(struct ptlrpc *rpc, void *arg), void *arg);
