/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reference idle loop, on libev, for servers and tools: poll while there is work, wait as
 * base/wait.h says while there is not, and sleep in libev, where the program's own watchers live.
 *
 * A runner belongs to the thread that runs it. A busy runner still looks at its watchers every
 * half millisecond.
 */
#pragma once

#include "base/wait.h"

#include <stdint.h>

struct ev_loop;
struct base_runner;

struct base_runner_opts {
    /* Makes progress at @now_ns (CLOCK_MONOTONIC) and returns how much; 0 means idle. */
    uint32_t (*poll)(void *arg, uint64_t now_ns);
    /* 0: @fd will become readable with the next work, sleeping is safe; -EBUSY: poll again. */
    int (*arm)(void *arg);
    /*
     * When poll must be called next although nothing arrives; UINT64_MAX: never. The sleep may
     * end up to a millisecond late, which is libev's grain.
     */
    uint64_t (*next_deadline)(void *arg);
    void *arg;
    int fd;                     /* -1 if only deadlines and watchers end a sleep */
    struct base_wait_opts wait; /* zeroes are the defaults */
};

/*
 * Makes a runner with a libev loop of its own. Every function pointer must be set.
 * Errors: -ENOMEM, also when libev finds no back end; -EINVAL a function is missing.
 */
int base_runner_create(const struct base_runner_opts *opts, struct base_runner **runner_out);

/* Frees the runner and its loop. The caller's watchers must be stopped. NULL is ignored. */
void base_runner_destroy(struct base_runner *runner);

/* The loop, for watchers of the caller. Their callbacks run between two calls of poll. */
struct ev_loop *base_runner_loop(struct base_runner *runner);

/*
 * Runs until base_runner_stop(). May be called again afterwards.
 * Errors: what arm returned, if that was neither 0 nor -EBUSY.
 */
int base_runner_run(struct base_runner *runner);

/*
 * Makes base_runner_run() return soon; if it is not running, the next call returns at once.
 * Context: any thread, signal handlers, and callbacks of the runner.
 */
void base_runner_stop(struct base_runner *runner);

/* What the waiting learned and counted, for statistics. */
const struct base_wait *base_runner_wait(const struct base_runner *runner);
