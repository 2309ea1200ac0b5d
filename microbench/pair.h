/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two processes that reach one another over shm, each on a core of its own: what benchmarks of
 * lnet/, bulk/ and ptlrpc/ run on.
 *
 * The caller is one side. The other is a child that sets itself up and then polls, until it is told
 * to stop or the parent dies. They share `board`, some plain memory, for what a benchmark wants to
 * tell without a message.
 *
 * While a limit is measured that takes both cores, the child must be out of the way: pair_pause().
 */
#pragma once

#include "base/clock.h"
#include "causeway/lnet.h"

#include <sched.h>
#include <sys/types.h>

#define PAIR_BOARD_BYTES 16384u

struct pair;

/* Called in the child with its context open and the parent's peer known. Returns 0 or an errno. */
typedef int (*pair_setup_fn)(struct pair *pair, void *arg);

struct pair {
    struct lnet *ctx;       /* this side's */
    struct lnet_peer *peer; /* the other side */
    bool is_child;
    struct base_tsc tsc;
    uint8_t *board; /* PAIR_BOARD_BYTES shared by both */

    /* The pair's own. */
    struct pair_control *control;
    pid_t child_pid;
    uint32_t cpu;
    cpu_set_t saved;
    bool is_pinned;
    char run_dir[32];
};

/*
 * Makes both sides and connects them. @setup may be NULL.
 * Errors: -EOPNOTSUPP fewer than two cores; the child's error; what the system said.
 */
int pair_open(struct pair *pair, pair_setup_fn setup, void *arg);

/* Ends the child and this side. */
void pair_close(struct pair *pair);

/* Has the child sleep, and the caller use all cores, until pair_resume(). */
void pair_pause(struct pair *pair);
void pair_resume(struct pair *pair);

/* One poll of this side. */
static inline void
pair_poll(struct pair *pair)
{
    (void)lnet_poll(pair->ctx, base_tsc_now_ns(&pair->tsc), 64);
}
