/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reference idle loop. This file alone needs libev.
 */
#include "base/runner.h"

#include "base/assert.h"
#include "base/clock.h"

#include <errno.h>
#include <ev.h>
#include <stdatomic.h>
#include <stdlib.h>

#define WATCHERS_PERIOD_NS 500000u /* how long a busy loop may leave the watchers alone */

struct base_runner {
    struct base_runner_opts opts;
    struct base_wait wait;
    struct ev_loop *loop;
    ev_io on_work;
    ev_timer on_deadline;
    ev_async on_stop;
    uint64_t watchers_ns; /* when the watchers were last looked at */
    atomic_bool stop_asked;
};

/* Waking up is all these watchers are for. */
static void
io_wake(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop;
    (void)watcher;
    (void)events;
}

static void
timer_wake(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)watcher;
    (void)events;
}

static void
async_wake(struct ev_loop *loop, ev_async *watcher, int events)
{
    (void)loop;
    (void)watcher;
    (void)events;
}

int
base_runner_create(const struct base_runner_opts *opts, struct base_runner **runner_out)
{
    if (opts->poll == NULL || opts->arm == NULL || opts->next_deadline == NULL) {
        return -EINVAL;
    }
    struct base_runner *runner = calloc(1, sizeof(*runner));

    if (runner == NULL) {
        return -ENOMEM;
    }
    runner->loop = ev_loop_new(EVFLAG_AUTO);
    if (runner->loop == NULL) {
        free(runner);
        return -ENOMEM;
    }
    runner->opts = *opts;
    base_wait_init(&runner->wait, &opts->wait);
    atomic_init(&runner->stop_asked, false);
    ev_init(&runner->on_deadline, timer_wake);
    ev_async_init(&runner->on_stop, async_wake);
    ev_async_start(runner->loop, &runner->on_stop);
    if (opts->fd >= 0) {
        ev_io_init(&runner->on_work, io_wake, opts->fd, EV_READ);
        ev_io_start(runner->loop, &runner->on_work);
    }
    *runner_out = runner;
    return 0;
}

void
base_runner_destroy(struct base_runner *runner)
{
    if (runner == NULL) {
        return;
    }
    if (runner->opts.fd >= 0) {
        ev_io_stop(runner->loop, &runner->on_work);
    }
    ev_timer_stop(runner->loop, &runner->on_deadline);
    ev_async_stop(runner->loop, &runner->on_stop);
    ev_loop_destroy(runner->loop);
    free(runner);
}

struct ev_loop *
base_runner_loop(struct base_runner *runner)
{
    return runner->loop;
}

const struct base_wait *
base_runner_wait(const struct base_runner *runner)
{
    return &runner->wait;
}

void
base_runner_stop(struct base_runner *runner)
{
    atomic_store(&runner->stop_asked, true);
    ev_async_send(runner->loop, &runner->on_stop);
}

/* Looks at the watchers without sleeping, if that is due. */
static void
watchers_look(struct base_runner *runner, uint64_t now_ns)
{
    if (now_ns - runner->watchers_ns >= WATCHERS_PERIOD_NS) {
        runner->watchers_ns = now_ns;
        ev_run(runner->loop, EVRUN_NOWAIT);
    }
}

/* Sleeps until work, a watcher or a deadline. Returns what arm says, 0 for -EBUSY. */
static int
runner_sleep(struct base_runner *runner, uint64_t now_ns)
{
    const struct base_runner_opts *opts = &runner->opts;
    const int rc = opts->arm(opts->arg);

    if (rc != 0) {
        return rc == -EBUSY ? 0 : rc;
    }
    const uint64_t deadline_ns = opts->next_deadline(opts->arg);

    if (deadline_ns <= now_ns) {
        return 0;
    }
    if (deadline_ns != UINT64_MAX) {
        ev_now_update(runner->loop); /* the delay counts from the loop's idea of now */
        ev_timer_set(&runner->on_deadline, 1e-9 * (double)(deadline_ns - now_ns), 0.);
        ev_timer_start(runner->loop, &runner->on_deadline);
    }
    ev_run(runner->loop, EVRUN_ONCE);
    ev_timer_stop(runner->loop, &runner->on_deadline);
    runner->watchers_ns = base_clock_now_ns();
    return 0;
}

/* Whether a stop was asked for; forgets it. The plain load keeps a locked instruction off each
 * turn. */
static bool
stop_take(struct base_runner *runner)
{
    return atomic_load_explicit(&runner->stop_asked, memory_order_relaxed) &&
           atomic_exchange(&runner->stop_asked, false);
}

int
base_runner_run(struct base_runner *runner)
{
    const struct base_runner_opts *opts = &runner->opts;
    int rc = 0;

    while (rc == 0 && !stop_take(runner)) {
        const uint64_t now_ns = base_clock_now_ns();

        if (opts->poll(opts->arg, now_ns) > 0) {
            base_wait_end(&runner->wait, now_ns);
            watchers_look(runner, now_ns);
            continue;
        }
        if (!runner->wait.is_waiting) {
            base_wait_begin(&runner->wait, now_ns);
        }
        if (base_wait_turn(&runner->wait, now_ns) == BASE_WAIT_SLEEP) {
            rc = runner_sleep(runner, now_ns);
        } else {
            watchers_look(runner, now_ns);
        }
    }
    base_wait_end(&runner->wait, base_clock_now_ns());
    return rc;
}
