/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reactor threads of embedded servers. See host.h.
 *
 * A thread opens its own context and all that is in it, says whether that went well, runs, and
 * leaves everything open when its loop ends, so that the thread that called host_stop() can read
 * statistics. From then on that thread owns the contexts and closes them.
 */
#include "tools/host.h"

#include "base/assert.h"
#include "base/log.h"
#include "tools/control.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POLL_BUDGET 256

static void
log_line(void *arg, int level, const char *subsystem, const char *text)
{
    const struct host *host = arg;

    if (level > host->options.log_level) {
        return;
    }
    (void)fprintf(stderr, "causeway %s: %s: %s: %s\n", host->options.name,
                  base_log_level_name(level), subsystem, text);
}

static uint64_t
stamp(void *arg)
{
    return base_tsc_now_ns(arg);
}

static uint32_t
reactor_poll(void *arg, uint64_t now_ns)
{
    struct host_reactor *reactor = arg;
    uint32_t done = lnet_poll(reactor->ctx, now_ns, POLL_BUDGET);

    if (done == 0 && reactor->oss != NULL && oss_idle(reactor->oss)) {
        done = 1;
    }
    return done;
}

static int
reactor_arm(void *arg)
{
    struct host_reactor *reactor = arg;

    return lnet_arm(reactor->ctx);
}

static uint64_t
reactor_deadline(void *arg)
{
    struct host_reactor *reactor = arg;

    return lnet_next_deadline(reactor->ctx);
}

static int
open_context(struct host_reactor *reactor)
{
    struct host *host = reactor->host;
    const struct host_options *options = &host->options;
    const struct lnet_options lnet = {
        .struct_bytes = sizeof(lnet),
        .pid = reactor->index,
        .seed = base_clock_now_ns() ^ ((uint64_t)reactor->index << 56),
        .stamp = stamp,
        .stamp_arg = &host->tsc,
        .log = log_line,
        .log_arg = host,
        .log_level = options->log_level,
    };
    const struct lnet_ni_options ni = {
        .struct_bytes = sizeof(ni),
        .net = options->net,
        .address = options->address,
        .credits = options->credits,
        .peer_credits = options->peer_credits,
        .ring_bytes = options->ring_bytes,
        .run_dir = options->run_dir,
        .flags = options->any_user ? LNET_NI_ANY_USER : 0,
        .rma_path = options->rma_path,
    };
    const struct bulk_options bulk = {.struct_bytes = sizeof(bulk), .path = options->bulk_path};
    const struct ptlrpc_options rpc = {.struct_bytes = sizeof(rpc),
                                       .timeout_ns = options->timeout_ns};
    int rc = lnet_open(&lnet, &reactor->ctx);

    if (rc == 0) {
        /* Nothing was polled yet: the first poll sets the context's time. */
        (void)lnet_poll(reactor->ctx, base_clock_now_ns(), 1);
        rc = lnet_ni_add(reactor->ctx, &ni, &reactor->nid);
    }
    if (rc == 0) {
        rc = bulk_open(reactor->ctx, &bulk, &reactor->bulk);
    }
    if (rc == 0) {
        rc = ptlrpc_open(reactor->ctx, reactor->bulk, &rpc, &reactor->rpc);
    }
    return rc;
}

static int
open_servers(struct host_reactor *reactor)
{
    struct host *host = reactor->host;
    const struct host_options *options = &host->options;
    const uint64_t wall_offset_ns = base_clock_wall_ns() - base_clock_now_ns();
    int rc = 0;

    if (options->mds != NULL) {
        struct mds_options mds = *options->mds;

        mds.reactor = reactor->index;
        mds.reactors = options->reactors;
        mds.nid = reactor->nid;
        mds.wall_offset_ns = wall_offset_ns;
        mds.log = log_line;
        mds.log_arg = host;
        rc = mds_open(reactor->rpc, &mds, &reactor->mds);
    }
    if (rc == 0 && options->oss != NULL) {
        struct oss_options oss = *options->oss;

        oss.reactor = reactor->index;
        oss.reactors = options->reactors;
        oss.wall_offset_ns = wall_offset_ns;
        oss.log = log_line;
        oss.log_arg = host;
        rc = oss_open(reactor->rpc, &oss, &reactor->oss);
    }
    if (rc == 0) {
        rc = control_serve(reactor);
    }
    return rc;
}

static int
open_runner(struct host_reactor *reactor)
{
    const struct host_options *options = &reactor->host->options;
    const struct base_runner_opts runner = {
        .poll = reactor_poll,
        .arm = reactor_arm,
        .next_deadline = reactor_deadline,
        .arg = reactor,
        .fd = lnet_fd(reactor->ctx),
        .wait = {.spin_ns = options->spin_ns, .yield_ns = options->yield_ns},
    };

    return base_runner_create(&runner, &reactor->runner);
}

static void
pin(const struct host_reactor *reactor)
{
    const struct host_options *options = &reactor->host->options;
    cpu_set_t set;

    if (options->cpus == NULL) {
        return;
    }
    CPU_ZERO(&set);
    CPU_SET((unsigned)options->cpus[reactor->index], &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) != 0) {
        (void)fprintf(stderr, "causeway %s: reactor %u runs unpinned: no CPU %u here\n",
                      options->name, reactor->index, (unsigned)options->cpus[reactor->index]);
    }
}

static void *
reactor_main(void *arg)
{
    struct host_reactor *reactor = arg;
    struct timespec cpu = {0};

    pin(reactor);
    reactor->status = open_context(reactor);
    if (reactor->status == 0) {
        reactor->status = open_servers(reactor);
    }
    if (reactor->status == 0) {
        reactor->status = open_runner(reactor);
    }
    atomic_store(&reactor->is_ready, true);
    if (reactor->status == 0) {
        reactor->status = base_runner_run(reactor->runner);
    }
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    reactor->cpu_ns = (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec;
    return NULL;
}

static void
wait_ready(const struct host_reactor *reactor)
{
    const struct timespec pause = {.tv_nsec = 200000};

    while (!atomic_load(&reactor->is_ready)) {
        (void)nanosleep(&pause, NULL);
    }
}

int
host_start(const struct host_options *options, struct host **host_out)
{
    struct host *host = calloc(1, sizeof(*host));
    sigset_t all;
    sigset_t before;
    int rc = 0;

    if (host == NULL) {
        return -ENOMEM;
    }
    if (options->reactors == 0 || options->reactors > HOST_REACTORS_MAX) {
        free(host);
        return -EINVAL;
    }
    host->options = *options;
    base_tsc_calibrate(&host->tsc);
    host->start_ns = base_clock_now_ns();

    /* Signals are the main thread's. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (uint32_t i = 0; rc == 0 && i < options->reactors; i++) {
        struct host_reactor *reactor = &host->reactors[i];

        reactor->host = host;
        reactor->index = i;
        rc = -pthread_create(&reactor->thread, NULL, reactor_main, reactor);
        if (rc == 0) {
            host->reactor_count++;
            wait_ready(reactor);
            rc = reactor->status;
        }
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        host_stop(host);
        host_free(host);
        return rc;
    }
    *host_out = host;
    return 0;
}

void
host_stop(struct host *host)
{
    for (uint32_t i = 0; i < host->reactor_count; i++) {
        if (host->reactors[i].runner != NULL) {
            base_runner_stop(host->reactors[i].runner);
        }
    }
    for (uint32_t i = 0; i < host->reactor_count; i++) {
        (void)pthread_join(host->reactors[i].thread, NULL);
    }
}

static void
close_reactor(struct host_reactor *reactor)
{
    control_end(reactor);
    if (reactor->rpc != NULL) {
        ptlrpc_close(reactor->rpc);
    }
    mds_close(reactor->mds);
    oss_close(reactor->oss);
    if (reactor->bulk != NULL) {
        bulk_close(reactor->bulk);
    }
    lnet_close(reactor->ctx);
    base_runner_destroy(reactor->runner);
}

void
host_free(struct host *host)
{
    for (uint32_t i = 0; i < host->reactor_count; i++) {
        close_reactor(&host->reactors[i]);
    }
    free(host);
}
