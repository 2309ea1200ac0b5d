/* SPDX-License-Identifier: BSD-3-Clause */
/* Two processes over shm: see pair.h. */
#include "microbench/pair.h"

#include "microbench/limits.h"

#include "base/assert.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_NS UINT64_C(20000000000)

enum pair_order { PAIR_POLL, PAIR_SLEEP, PAIR_STOP };
enum pair_state { PAIR_STARTING, PAIR_POLLING, PAIR_SLEEPING, PAIR_FAILED };

struct pair_control {
    _Atomic int order;
    _Atomic int state;
    _Atomic int error;
};

static uint64_t
stamp(void *tsc)
{
    return base_tsc_now_ns(tsc);
}

static int
side_open(struct pair *pair, uint32_t own, uint32_t other)
{
    char address[16];
    char nid[16];
    const struct lnet_options options = {
        .struct_bytes = sizeof(options), .seed = own, .stamp = stamp, .stamp_arg = &pair->tsc};
    const struct lnet_ni_options ni = {
        .struct_bytes = sizeof(ni), .net = "shm", .address = address, .run_dir = pair->run_dir};
    struct lnet_process process = {.pid = 0};
    int rc = lnet_open(&options, &pair->ctx);

    if (rc != 0) {
        return rc;
    }
    (void)snprintf(address, sizeof(address), "%u", own);
    (void)snprintf(nid, sizeof(nid), "%u@shm", other);
    rc = lnet_ni_add(pair->ctx, &ni, NULL);
    if (rc == 0) {
        rc = lnet_nid_parse(nid, &process.nid);
    }
    if (rc == 0) {
        rc = lnet_peer_get(pair->ctx, &process, &pair->peer);
    }
    pair_poll(pair);
    return rc;
}

static void
side_close(struct pair *pair)
{
    if (pair->peer != NULL) {
        lnet_peer_put(pair->peer);
        pair->peer = NULL;
    }
    lnet_close(pair->ctx);
    pair->ctx = NULL;
}

static void
child_poll(struct pair *pair)
{
    for (uint32_t i = 0;; i++) {
        pair_poll(pair);
        if (i % 64 != 0) {
            continue;
        }
        const int order = atomic_load_explicit(&pair->control->order, memory_order_acquire);

        if (order == PAIR_STOP) {
            return;
        }
        if (order == PAIR_SLEEP) {
            const struct timespec nap = {.tv_nsec = 200000};

            atomic_store(&pair->control->state, PAIR_SLEEPING);
            (void)nanosleep(&nap, NULL);
        } else {
            atomic_store_explicit(&pair->control->state, PAIR_POLLING, memory_order_release);
        }
    }
}

static _Noreturn void
child_run(struct pair *pair, uint32_t cpu, pair_setup_fn setup, void *arg)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    pair->is_child = true;
    (void)limits_pin(cpu, &pair->saved);
    int rc = side_open(pair, 2, 1);

    if (rc == 0 && setup != NULL) {
        rc = setup(pair, arg);
    }
    if (rc != 0) {
        atomic_store(&pair->control->error, rc);
        atomic_store(&pair->control->state, PAIR_FAILED);
        _exit(1);
    }
    child_poll(pair);
    _exit(0); /* what is open goes with the process */
}

static void
on_ping(struct lnet *ctx, int status, const struct lnet_ping_reply *reply, void *user)
{
    int *status_out = user;

    (void)ctx;
    (void)reply;
    *status_out = status;
}

/* Waits for the child, and connects. */
static int
parent_connect(struct pair *pair)
{
    const struct lnet_process process = lnet_peer_process(pair->peer);
    const uint64_t end_ns = base_tsc_now_ns(&pair->tsc) + PATIENCE_NS;
    int status = 1;
    int rc = 0;

    while (atomic_load(&pair->control->state) == PAIR_STARTING) {
        if (base_tsc_now_ns(&pair->tsc) > end_ns) {
            return -ETIMEDOUT;
        }
        pair_poll(pair);
    }
    if (atomic_load(&pair->control->state) == PAIR_FAILED) {
        return atomic_load(&pair->control->error);
    }
    rc = lnet_ping(pair->ctx, &process, end_ns, on_ping, &status);
    while (rc == 0 && status == 1) {
        pair_poll(pair);
    }
    return rc != 0 ? rc : status;
}

int
pair_open(struct pair *pair, pair_setup_fn setup, void *arg)
{
    uint32_t cpus[2];
    int rc = limits_cpus(cpus);

    *pair = (struct pair){.run_dir = "/tmp/bench-pair-XXXXXX"};
    if (rc != 0) {
        return rc;
    }
    base_tsc_calibrate(&pair->tsc);
    pair->control = mmap(NULL, 4096 + PAIR_BOARD_BYTES, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pair->control == MAP_FAILED) {
        pair->control = NULL;
        return -ENOMEM;
    }
    pair->board = (uint8_t *)pair->control + 4096;
    if (mkdtemp(pair->run_dir) == NULL) {
        rc = -errno;
        pair->run_dir[0] = '\0';
        pair_close(pair);
        return rc;
    }
    pair->child_pid = fork();
    if (pair->child_pid == 0) {
        child_run(pair, cpus[1], setup, arg);
    }
    if (pair->child_pid < 0) {
        rc = -errno;
        pair_close(pair);
        return rc;
    }
    pair->cpu = cpus[0];
    pair->is_pinned = limits_pin(pair->cpu, &pair->saved) == 0;
    rc = side_open(pair, 1, 2);
    if (rc == 0) {
        rc = parent_connect(pair);
    }
    if (rc != 0) {
        pair_close(pair);
    }
    return rc;
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void
pair_close(struct pair *pair)
{
    if (pair->child_pid > 0) {
        atomic_store(&pair->control->order, PAIR_STOP);
        while (waitpid(pair->child_pid, NULL, WNOHANG) == 0) {
            if (pair->ctx != NULL) {
                pair_poll(pair);
            }
        }
        pair->child_pid = 0;
    }
    if (pair->ctx != NULL) {
        side_close(pair);
    }
    if (pair->run_dir[0] != '\0') {
        (void)nftw(pair->run_dir, remove_one, 8,
                   FTW_DEPTH | FTW_PHYS); /* NOLINT(concurrency-mt-unsafe): one thread */
    }
    if (pair->control != NULL) {
        (void)munmap(pair->control, 4096 + PAIR_BOARD_BYTES);
    }
    if (pair->is_pinned) {
        limits_unpin(&pair->saved);
    }
    *pair = (struct pair){0};
}

static void
order_give(struct pair *pair, enum pair_order order, enum pair_state state)
{
    const uint64_t end_ns = base_tsc_now_ns(&pair->tsc) + PATIENCE_NS;

    atomic_store(&pair->control->order, order);
    while (atomic_load(&pair->control->state) != (int)state &&
           base_tsc_now_ns(&pair->tsc) < end_ns) {
        pair_poll(pair);
    }
}

void
pair_pause(struct pair *pair)
{
    order_give(pair, PAIR_SLEEP, PAIR_SLEEPING);
    if (pair->is_pinned) {
        limits_unpin(&pair->saved); /* a limit looks for two cores that it may use */
    }
}

void
pair_resume(struct pair *pair)
{
    if (pair->is_pinned) {
        (void)limits_pin(pair->cpu, &pair->saved);
    }
    order_give(pair, PAIR_POLL, PAIR_POLLING);
}
