/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The price of an RPC that does nothing.
 *
 * Question answered: how long does a null RPC take over shm, and how many does one server core
 * answer, by how many are in flight? A server process polls on the first core, the client on the
 * second; both take the time-stamp counter for clock and stamps. Held fixed: 64-byte header, no
 * body, a handler that answers at once, poll budget 64.
 *
 * Expected: a message is 64 + 48 bytes, two cache lines. A round trip is two messages (the limit)
 * and about 300 instructions of ptlrpc and 350 of lnet and shm on each side: 1.5 to 2.5 times the
 * limit. With many in flight the lines travel while others are worked on: 6 to 12 M/s with near
 * cores.
 *
 * The time of an iteration is the mean; p50_ns is the median round trip, p50_items_per_second the
 * median rate over batches of 64 answers, which other work on the machine disturbs least.
 */
#include "base/clock.h"
#include "base/hist.h"
#include "causeway/ptlrpc.h"
#include "microbench/bench.h"
#include "microbench/limits.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PORTAL   12
#define OPC_NULL 1000
#define BUDGET   64
#define BATCH    64
#define WARM_UP  2000
#define GIVE_UP  UINT64_C(10000000000)

static struct base_tsc tsc;
static volatile sig_atomic_t is_stopped;

struct world {
    struct lnet *ctx;
    struct ptlrpc *rpc;
    struct ptlrpc_import *import;
    uint64_t sent, answered, target;
    uint64_t batch_start_ns;
    int status;
    struct base_hist trips;
    struct base_hist batches;
};

static uint64_t
stamp(void *arg)
{
    (void)arg;
    return base_tsc_now_ns(&tsc);
}

static void
on_term(int signal_number)
{
    (void)signal_number;
    is_stopped = 1;
}

/* Opens context and engine with @address in @run_dir. Errors: theirs. */
static int
world_open(struct world *world, const char *run_dir, const char *address)
{
    const struct lnet_options options = {.struct_bytes = sizeof(options), .stamp = stamp};
    const struct lnet_ni_options ni = {
        .struct_bytes = sizeof(ni), .net = "shm", .address = address, .run_dir = run_dir};
    int rc = lnet_open(&options, &world->ctx);

    if (rc != 0) {
        return rc;
    }
    rc = lnet_ni_add(world->ctx, &ni, NULL);
    if (rc == 0) {
        rc = ptlrpc_open(world->ctx, NULL, NULL, &world->rpc);
    }
    if (rc != 0) {
        lnet_close(world->ctx);
    }
    return rc;
}

static void
world_close(struct world *world)
{
    ptlrpc_close(world->rpc);
    lnet_close(world->ctx);
}

static void
null_handler(struct ptlrpc_rq *rq)
{
    ptlrpc_rq_reply(rq, 0, 0);
}

/* The server process: says on @ready_fd that it is there, polls until SIGTERM. */
static int
serve(const char *run_dir, int ready_fd, uint32_t cpu)
{
    static const struct ptlrpc_op ops[] = {
        {.opc = OPC_NULL, .name = "null", .handler = null_handler}};
    const struct ptlrpc_service_options options = {.struct_bytes = sizeof(options),
                                                   .portal = PORTAL,
                                                   .name = "bench",
                                                   .ops = ops,
                                                   .op_count = BASE_ARRAY_LEN(ops)};
    struct world world = {.ctx = NULL};
    struct ptlrpc_service *service = NULL;
    cpu_set_t saved;

    (void)limits_pin(cpu, &saved);
    if (signal(SIGTERM, on_term) == SIG_ERR || world_open(&world, run_dir, "1") != 0) {
        return 1;
    }
    if (ptlrpc_service_add(world.rpc, &options, &service) != 0 || write(ready_fd, "", 1) != 1) {
        return 1;
    }
    while (!is_stopped) {
        (void)lnet_poll(world.ctx, base_tsc_now_ns(&tsc), BUDGET);
    }
    world_close(&world);
    return 0;
}

static void on_done(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes,
                    void *user);

static void
send_one(struct world *world)
{
    struct ptlrpc_request *request = ptlrpc_request_take(world->import, OPC_NULL);
    const int rc = request != NULL ? ptlrpc_request_send(request, 0, on_done, world) : -1;

    world->sent++;
    if (rc != 0) {
        world->status = rc;
    }
}

static void
on_done(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes, void *user)
{
    struct world *world = user;
    const struct ptlrpc_stages *stages = ptlrpc_request_stages(request);

    (void)body;
    (void)bytes;
    world->status = status != 0 ? status : world->status;
    base_hist_record(&world->trips, stages->received - stages->queued);
    if (++world->answered % BATCH == 0) {
        if (world->batch_start_ns != 0) {
            base_hist_record(&world->batches, stages->received - world->batch_start_ns);
        }
        world->batch_start_ns = stages->received;
    }
    if (world->sent < world->target) {
        send_one(world);
    }
}

/* Makes @count RPCs, @in_flight at a time. False: some failed, or nothing came any more. */
static bool
run(struct world *world, uint64_t count, uint32_t in_flight)
{
    uint64_t progress_ns = base_tsc_now_ns(&tsc);
    uint64_t progress = 0;

    world->sent = 0;
    world->answered = 0;
    world->target = count;
    world->batch_start_ns = 0;
    base_hist_init(&world->trips);
    base_hist_init(&world->batches);
    for (uint32_t i = 0; i < in_flight && world->sent < count; i++) {
        send_one(world);
    }
    while (world->answered < count && world->status == 0) {
        const uint64_t now_ns = base_tsc_now_ns(&tsc);

        (void)lnet_poll(world->ctx, now_ns, BUDGET);
        if (world->answered != progress) {
            progress = world->answered;
            progress_ns = now_ns;
        } else if (now_ns > progress_ns && now_ns - progress_ns > GIVE_UP) {
            return false;
        }
    }
    return world->status == 0;
}

/* Counters of what @world measured; the limit is measured now, when both cores are free again. */
static void
report(struct bench_state *state, const struct world *world)
{
    const double trip_ns = (double)base_hist_percentile(&world->trips, 0.5);
    const double batch_ns = (double)base_hist_percentile(&world->batches, 0.5);
    const double rate = batch_ns > 0 ? BATCH * 1e9 / batch_ns : 0;
    double limit = 0;

    state->items = state->iterations;
    bench_counter_hist(state, "", &world->trips);
    bench_counter(state, "p50_items_per_second", rate, BENCH_COUNTER_PLAIN);
    if (state->args[0] == 1) {
        if (limits_one_way_ns(8, &limit) == 0) {
            bench_counter(state, "ratio_to_limit", trip_ns / (2 * limit), BENCH_COUNTER_PLAIN);
        }
    } else if (limits_rpc_rate((uint32_t)state->args[0], &limit) == 0) {
        bench_counter(state, "ratio_to_limit", rate / limit, BENCH_COUNTER_PLAIN);
    }
}

/* The client's part, against a server that is ready. False: it failed, and was said to. */
static bool
measure(struct bench_state *state, const char *run_dir, struct world *world)
{
    struct ptlrpc_import_options options = {.struct_bytes = sizeof(options),
                                            .portal = PORTAL,
                                            .name = "bench",
                                            .max_rpcs_in_flight = (uint32_t)state->args[0]};

    (void)memset(world, 0, sizeof(*world));
    if (world_open(world, run_dir, "2") != 0) {
        bench_fail(state, "the client's context does not open");
        return false;
    }
    if (lnet_process_parse("1@shm", &options.target) != 0 ||
        ptlrpc_import_open(world->rpc, &options, &world->import) != 0 ||
        !run(world, WARM_UP, (uint32_t)state->args[0])) {
        bench_fail(state, "the server does not answer: %s", lnet_error_name(world->status));
        world_close(world);
        return false;
    }
    const uint64_t start_ns = base_clock_now_ns();
    const bool is_fine = run(world, state->iterations, (uint32_t)state->args[0]);

    if (is_fine) {
        bench_set_elapsed(state, base_clock_now_ns() - start_ns);
    } else {
        bench_fail(state, "an RPC failed: %s", lnet_error_name(world->status));
    }
    world_close(world);
    return is_fine;
}

static void
bm_rpc_null(struct bench_state *state)
{
    static struct world world;
    char run_dir[] = "/tmp/causeway-bench-XXXXXX";
    bool is_fine = false;
    uint32_t cpus[2];
    cpu_set_t saved;
    int ready[2];
    char byte = 0;

    if (!tsc.mult) {
        base_tsc_calibrate(&tsc);
    }
    if (limits_cpus(cpus) != 0) {
        bench_skip(state, "two cores are needed");
        return;
    }
    if (mkdtemp(run_dir) == NULL || pipe(ready) != 0) {
        bench_fail(state, "no directory in /tmp, or no pipe");
        return;
    }
    const pid_t child = fork();

    if (child == 0) {
        (void)close(ready[0]);
        _exit(serve(run_dir, ready[1], cpus[0]));
    }
    (void)close(ready[1]);
    (void)limits_pin(cpus[1], &saved);
    if (child > 0 && read(ready[0], &byte, 1) == 1) {
        is_fine = measure(state, run_dir, &world);
    } else {
        bench_fail(state, "the server does not start");
    }
    limits_unpin(&saved);
    (void)close(ready[0]);
    if (child > 0) {
        (void)kill(child, SIGTERM);
        (void)waitpid(child, NULL, 0);
    }
    (void)rmdir(run_dir);
    if (is_fine) {
        report(state, &world);
    }
}

static const int64_t in_flight[] = {1, 4, 16, 64, 256};
static const char *const in_flight_name[] = {"in_flight"};

static const struct bench_case cases[] = {
    {.name = "BM_rpc_null",
     .run = bm_rpc_null,
     .args = in_flight,
     .arg_count = BASE_ARRAY_LEN(in_flight),
     .arg_names = in_flight_name},
};

int
main(int argc, char **argv)
{
    return bench_main(argc, argv, cases, BASE_ARRAY_LEN(cases));
}
