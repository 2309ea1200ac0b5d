/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread: open, poll and wait until told to stop, close in reverse.
 */
#include "tests/support/reactor.h"

#include "base/clock.h"
#include "base/wait.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

struct reactor {
    struct reactor_options options;
    pthread_t thread;
    sem_t ready;
    sem_t called;
    int rc;
    bool is_stopping; /* the reactor's own, set by a post */
    struct lnet *ctx;
    struct bulk *bulk;
    struct ptlrpc *rpc;
    void (*call_fn)(struct ptlrpc *rpc, void *arg);
    void *call_arg;
};

static int
arm(void *arg)
{
    return lnet_arm(arg);
}

static uint64_t
stamp(void *arg)
{
    (void)arg;
    return base_clock_now_ns();
}

static void
log_line(void *arg, int level, const char *subsystem, const char *text)
{
    (void)arg;
    (void)level;
    if (getenv("REACTOR_LOG") != NULL) {
        (void)fprintf(stderr, "%s: %s\n", subsystem, text);
    }
}

static int
reactor_open(struct reactor *reactor)
{
    const struct reactor_options *options = &reactor->options;
    const struct lnet_options lnet_options = {
        .struct_bytes = sizeof(lnet_options),
        .pid = options->pid,
        .seed = options->pid + 1,
        .stamp = stamp,
        .log = log_line,
        .log_level = LNET_LOG_INFO,
    };
    const struct lnet_ni_options ni_options = {
        .struct_bytes = sizeof(ni_options),
        .net = "shm",
        .address = options->address,
        .run_dir = options->run_dir,
        .ring_bytes = options->ring_bytes,
        .flags = options->connect_only != 0 ? LNET_NI_CONNECT_ONLY : 0,
    };
    const struct ptlrpc_options rpc_options = {
        .struct_bytes = sizeof(rpc_options),
        .log = log_line,
        .log_level = LNET_LOG_INFO,
    };
    int rc = lnet_open(&lnet_options, &reactor->ctx);

    if (rc == 0) {
        rc = lnet_ni_add(reactor->ctx, &ni_options, NULL);
    }
    if (rc == 0) {
        rc = bulk_open(reactor->ctx, NULL, &reactor->bulk);
    }
    if (rc == 0) {
        rc = ptlrpc_open(reactor->ctx, reactor->bulk, &rpc_options, &reactor->rpc);
    }
    if (rc == 0) {
        rc = options->open(reactor->rpc, options->arg);
    }
    return rc;
}

static void
reactor_close(struct reactor *reactor)
{
    if (reactor->rpc != NULL) {
        ptlrpc_close(reactor->rpc);
        if (reactor->options.close != NULL) {
            reactor->options.close(reactor->options.arg);
        }
    }
    if (reactor->bulk != NULL) {
        bulk_close(reactor->bulk);
    }
    lnet_close(reactor->ctx);
}

static void *
reactor_main(void *arg)
{
    struct reactor *reactor = arg;
    struct base_wait wait;
    bool is_waiting = false;

    reactor->rc = reactor_open(reactor);
    base_wait_init(&wait, NULL);
    sem_post(&reactor->ready);
    while (reactor->rc == 0 && !reactor->is_stopping) {
        const uint64_t now_ns = base_clock_now_ns();

        /* Posts are no events: one may have told us to stop. */
        if (lnet_poll(reactor->ctx, now_ns, 64) > 0 || reactor->is_stopping) {
            if (is_waiting) {
                base_wait_end(&wait, now_ns);
                is_waiting = false;
            }
            continue;
        }
        if (!is_waiting) {
            base_wait_begin(&wait, now_ns);
            is_waiting = true;
        }
        if (reactor->options.idle != NULL && reactor->options.idle(reactor->options.arg)) {
            continue;
        }
        (void)base_wait_step(&wait, lnet_fd(reactor->ctx), arm, reactor->ctx, now_ns,
                             lnet_next_deadline(reactor->ctx));
    }
    reactor_close(reactor);
    return NULL;
}

int
reactor_start(const struct reactor_options *options, struct reactor **reactor_out)
{
    struct reactor *reactor = calloc(1, sizeof(*reactor));

    if (reactor == NULL) {
        return -ENOMEM;
    }
    reactor->options = *options;
    sem_init(&reactor->ready, 0, 0);
    sem_init(&reactor->called, 0, 0);
    if (pthread_create(&reactor->thread, NULL, reactor_main, reactor) != 0) {
        free(reactor);
        return -EAGAIN;
    }
    while (sem_wait(&reactor->ready) != 0) {
    }
    if (reactor->rc != 0) {
        const int rc = reactor->rc;

        pthread_join(reactor->thread, NULL);
        free(reactor);
        return rc;
    }
    *reactor_out = reactor;
    return 0;
}

static void
stop_post(struct lnet *ctx, void *arg)
{
    struct reactor *reactor = arg;

    (void)ctx;
    reactor->is_stopping = true;
}

void
reactor_stop(struct reactor *reactor)
{
    if (reactor == NULL) {
        return;
    }
    while (lnet_post(reactor->ctx, stop_post, reactor) != 0) {
    }
    pthread_join(reactor->thread, NULL);
    sem_destroy(&reactor->ready);
    sem_destroy(&reactor->called);
    free(reactor);
}

static void
call_post(struct lnet *ctx, void *arg)
{
    struct reactor *reactor = arg;

    (void)ctx;
    reactor->call_fn(reactor->rpc, reactor->call_arg);
    sem_post(&reactor->called);
}

void
reactor_call(struct reactor *reactor, void (*fn)(struct ptlrpc *rpc, void *arg), void *arg)
{
    reactor->call_fn = fn;
    reactor->call_arg = arg;
    while (lnet_post(reactor->ctx, call_post, reactor) != 0) {
    }
    while (sem_wait(&reactor->called) != 0) {
    }
}
