/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The price of a message over shm.
 *
 * Questions answered: how long does a small PUT take from one process to another, how many can one
 * sender push into one receiver, and what does a poll cost that finds nothing, with 1 and with 64
 * idle peers? Two processes, each on its core; the caller starts and measures.
 *
 * Expected: an 8-byte PUT is one cache line and some 150 instructions on each side, so 1.3 to 1.6
 * times the copy-in/copy-out limit one way (65 ns with near cores, 250 with far ones); a stream has
 * no round trip in it and is bounded by the slower side's instructions: 15 to 25 M/s. An idle poll
 * is 15 ns whatever the number of peers.
 *
 * ratio_to_limit is own time over the limit's (the lower the better): of half a round trip's median
 * for one way, of the median batch for the stream. line_ns says whether the cores were near (about
 * 25) or far (above 100).
 */
#include "base/hist.h"
#include "microbench/bench.h"
#include "microbench/limits.h"
#include "microbench/pair.h"

#include <errno.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PORTAL       11
#define BYTES_MAX    4096
#define BATCH        UINT64_C(1024)
#define WARM_UP      2000
#define PEERS_MAX    64u
#define CONNECT_TURN 200000u

/* What the child of the stream tells; a cache line of its own. */
struct board {
    BASE_ALIGNED(64) _Atomic uint64_t received; /* in steps of BATCH */
    _Atomic uint64_t batch_p50_ns;
    _Atomic uint64_t reset; /* by the parent: counts begin anew */
};

static struct board *
board_of(const struct pair *pair)
{
    return (struct board *)(void *)pair->board;
}

static int
portal_open(struct pair *pair, lnet_handler_fn handler)
{
    const struct lnet_match match = {.portal = PORTAL,
                                     .from = {.nid = {LNET_NID_ANY}, .pid = LNET_PID_ANY},
                                     .ignore_bits = UINT64_MAX};
    const struct lnet_md md = {.length_bytes = BYTES_MAX,
                               .options = LNET_MD_OP_PUT | LNET_MD_PEEK | LNET_MD_ACK_DISABLE,
                               .threshold = -1,
                               .handler = handler,
                               .user = pair};
    struct lnet_md_handle handle;

    return lnet_md_attach(pair->ctx, &match, &md, &handle);
}

static int
put(struct pair *pair, const void *data, uint32_t bytes)
{
    const struct lnet_target target = {.peer = pair->peer, .portal = PORTAL};

    return lnet_put_inline(pair->ctx, &target, data, bytes);
}

/* ---- one way ---- */

static uint8_t payload[BYTES_MAX];
static uint64_t answer_count;

/* Both sides read what came, as a program would. */
static void
on_ping(struct lnet *ctx, const struct lnet_event *event)
{
    struct pair *pair = event->user;

    (void)ctx;
    if (event->type != LNET_EV_PUT) {
        return;
    }
    (void)memcpy(payload, event->data, event->moved_bytes);
    if (pair->is_child) {
        (void)put(pair, payload, (uint32_t)event->moved_bytes);
    } else {
        answer_count++;
    }
}

static int
ping_setup(struct pair *pair, void *arg)
{
    (void)arg;
    return portal_open(pair, on_ping);
}

static int
round_trip(struct pair *pair, uint32_t bytes)
{
    const uint64_t before = answer_count;
    const int rc = put(pair, payload, bytes);

    while (rc == 0 && answer_count == before) {
        pair_poll(pair);
    }
    return rc;
}

/* A limit while the child is out of the way. */
static void
limits_take(struct pair *pair, uint32_t bytes, double *one_way_ns_out, double *line_ns_out)
{
    pair_pause(pair);
    if (limits_one_way_ns(bytes, one_way_ns_out) != 0) {
        *one_way_ns_out = 0;
    }
    if (limits_line_ns(line_ns_out) != 0) {
        *line_ns_out = 0;
    }
    pair_resume(pair);
}

static void
bm_one_way(struct bench_state *state)
{
    static struct base_hist hist;
    const uint32_t bytes = (uint32_t)state->args[0];
    double limits_ns[2] = {0, 0};
    double line_ns = 0;
    struct pair pair;
    int rc = pair_open(&pair, ping_setup, NULL);

    if (rc != 0) {
        bench_skip(state, "two processes over shm: %s", lnet_error_name(rc));
        return;
    }
    rc = portal_open(&pair, on_ping);
    base_hist_init(&hist);
    if (!state->is_smoke) {
        limits_take(&pair, bytes, &limits_ns[0], &line_ns);
    }
    for (uint32_t i = 0; i < WARM_UP && rc == 0; i++) {
        rc = round_trip(&pair, bytes);
    }
    const uint64_t start_ticks = base_stamp(&pair.tsc);
    uint64_t last_ticks = start_ticks;

    for (uint64_t i = 0; i < state->iterations && rc == 0; i++) {
        rc = round_trip(&pair, bytes);
        const uint64_t now_ticks = base_stamp(&pair.tsc);

        base_hist_record(&hist, base_stamp_ns(&pair.tsc, now_ticks - last_ticks));
        last_ticks = now_ticks;
    }
    bench_set_elapsed(state, base_stamp_ns(&pair.tsc, last_ticks - start_ticks) / 2);
    if (!state->is_smoke) {
        limits_take(&pair, bytes, &limits_ns[1], &line_ns);
    }
    pair_close(&pair);
    if (rc != 0) {
        bench_fail(state, "put: %s", lnet_error_name(rc));
        return;
    }
    state->items = state->iterations;
    bench_counter(state, "p50_ns", (double)base_hist_percentile(&hist, 0.5) / 2,
                  BENCH_COUNTER_PLAIN);
    bench_counter(state, "p99_ns", (double)base_hist_percentile(&hist, 0.99) / 2,
                  BENCH_COUNTER_PLAIN);
    if (limits_ns[0] > 0 && limits_ns[1] > 0) {
        const double limit_ns = (limits_ns[0] + limits_ns[1]) / 2;

        bench_counter(state, "limit_ns", limit_ns, BENCH_COUNTER_PLAIN);
        bench_counter(state, "line_ns", line_ns, BENCH_COUNTER_PLAIN);
        bench_counter(state, "ratio_to_limit",
                      (double)base_hist_percentile(&hist, 0.5) / 2 / limit_ns, BENCH_COUNTER_PLAIN);
    }
}

/* ---- a stream ---- */

/* The receiver's side: counts, and times batches. */
struct stream {
    uint64_t received;
    uint64_t last_ticks;
    uint64_t seen_reset;
    struct base_hist batches;
};
static struct stream stream;

static void
on_stream(struct lnet *ctx, const struct lnet_event *event)
{
    struct pair *pair = event->user;
    struct board *board = board_of(pair);

    (void)ctx;
    if (event->type != LNET_EV_PUT) {
        return;
    }
    (void)memcpy(payload, event->data, event->moved_bytes);
    stream.received++;
    if (stream.received % BATCH != 0) {
        return;
    }
    const uint64_t now_ticks = base_stamp(&pair->tsc);
    const uint64_t reset = atomic_load_explicit(&board->reset, memory_order_relaxed);

    if (reset != stream.seen_reset) {
        stream.seen_reset = reset;
        base_hist_init(&stream.batches);
    } else {
        base_hist_record(&stream.batches, base_stamp_ns(&pair->tsc, now_ticks - stream.last_ticks));
    }
    stream.last_ticks = now_ticks;
    if (stream.received % (64 * BATCH) == 0) {
        atomic_store_explicit(&board->batch_p50_ns, base_hist_percentile(&stream.batches, 0.5),
                              memory_order_relaxed);
        stream.last_ticks = base_stamp(&pair->tsc); /* that took a while */
    }
    atomic_store_explicit(&board->received, stream.received, memory_order_release);
}

static int
stream_setup(struct pair *pair, void *arg)
{
    (void)arg;
    base_hist_init(&stream.batches);
    return portal_open(pair, on_stream);
}

/* Sends until @count more have been received. */
static int
stream_run(struct pair *pair, uint32_t bytes, uint64_t count)
{
    const struct board *board = board_of(pair);
    const uint64_t target = atomic_load(&board->received) + count;

    for (uint64_t i = 0; i < count;) {
        const int rc = put(pair, payload, bytes);

        if (rc != 0 && rc != -EAGAIN) {
            return rc;
        }
        i += rc == 0;
        if (rc != 0 || i % 32 == 0) {
            pair_poll(pair);
        }
    }
    while (atomic_load_explicit(&board->received, memory_order_acquire) < target) {
        pair_poll(pair);
    }
    return 0;
}

static void
bm_stream(struct bench_state *state)
{
    const uint32_t bytes = (uint32_t)state->args[0];
    const uint64_t count = base_align_up(state->iterations, 64 * BATCH);
    double limit_rate = 0;
    double line_ns = 0;
    struct pair pair;
    int rc = pair_open(&pair, stream_setup, NULL);

    if (rc != 0) {
        bench_skip(state, "two processes over shm: %s", lnet_error_name(rc));
        return;
    }
    rc = stream_run(&pair, bytes, 64 * BATCH);
    atomic_fetch_add(&board_of(&pair)->reset, 1);
    const uint64_t start_ticks = base_stamp(&pair.tsc);

    if (rc == 0) {
        rc = stream_run(&pair, bytes, count);
    }
    const uint64_t ticks = base_stamp(&pair.tsc) - start_ticks;
    const double batch_ns = (double)atomic_load(&board_of(&pair)->batch_p50_ns);
    const double elapsed_ns = (double)base_stamp_ns(&pair.tsc, ticks);

    if (!state->is_smoke) {
        pair_pause(&pair);
        if (limits_ring_rate(1, &limit_rate) != 0 || limits_line_ns(&line_ns) != 0) {
            limit_rate = 0;
        }
        pair_resume(&pair);
    }
    pair_close(&pair);
    if (rc != 0) {
        bench_fail(state, "put: %s", lnet_error_name(rc));
        return;
    }
    /* More were sent than asked for, to fill whole batches. */
    bench_set_elapsed(state, (uint64_t)(elapsed_ns * (double)state->iterations / (double)count));
    state->items = state->iterations;
    state->bytes = state->iterations * bytes;
    bench_counter(state, "p50_items_per_second", 1e9 * (double)BATCH / batch_ns,
                  BENCH_COUNTER_PLAIN);
    if (limit_rate > 0) {
        bench_counter(state, "line_ns", line_ns, BENCH_COUNTER_PLAIN);
        bench_counter(state, "ratio_to_limit", limit_rate * batch_ns / (double)BATCH / 1e9,
                      BENCH_COUNTER_PLAIN);
        bench_label(state, "limit: a bare ring of 64 B slots");
    }
}

/* ---- idle polls ---- */

static uint32_t connected_count;

static void
on_connected(struct lnet *ctx, int status, const struct lnet_ping_reply *reply, void *user)
{
    (void)ctx;
    (void)reply;
    (void)user;
    connected_count += status == 0;
}

static int
context_open(struct lnet **ctx_out, const char *run_dir, uint32_t address)
{
    char text[16];
    const struct lnet_ni_options ni = {
        .struct_bytes = sizeof(ni), .net = "shm", .address = text, .run_dir = run_dir};
    int rc = lnet_open(NULL, ctx_out);

    (void)snprintf(text, sizeof(text), "%u", address);
    if (rc != 0) {
        *ctx_out = NULL;
        return rc;
    }
    return lnet_ni_add(*ctx_out, &ni, NULL);
}

/* Opens context 0 and @count peers of it, all in this process, and connects them. */
static int
idle_open(struct lnet **contexts, uint32_t count, const char *run_dir, const struct base_tsc *tsc)
{
    struct lnet_process hub = {.pid = 0};
    int rc = lnet_nid_parse("1@shm", &hub.nid);

    connected_count = 0;
    for (uint32_t i = 0; i <= count && rc == 0; i++) {
        rc = context_open(&contexts[i], run_dir, i + 1);
        if (rc == 0 && i > 0) {
            rc = lnet_ping(contexts[i], &hub, UINT64_MAX, on_connected, NULL);
        }
    }
    for (uint32_t turn = 0; turn < CONNECT_TURN && rc == 0 && connected_count < count; turn++) {
        for (uint32_t i = 0; i <= count; i++) {
            (void)lnet_poll(contexts[i], base_tsc_now_ns(tsc), 64);
        }
    }
    return rc != 0 ? rc : connected_count == count ? 0 : -ETIMEDOUT;
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void
bm_poll_idle(struct bench_state *state)
{
    const uint32_t count = (uint32_t)state->args[0];
    struct lnet *contexts[PEERS_MAX + 1] = {NULL};
    char run_dir[] = "/tmp/bench-lnet-XXXXXX";
    struct base_tsc tsc;
    int rc = 0;

    base_tsc_calibrate(&tsc);
    if (mkdtemp(run_dir) == NULL) {
        bench_skip(state, "no directory for sockets");
        return;
    }
    rc = idle_open(contexts, count, run_dir, &tsc);
    if (rc != 0) {
        bench_fail(state, "connect: %s", lnet_error_name(rc));
    } else {
        uint64_t now_ns = base_tsc_now_ns(&tsc);

        for (uint32_t i = 0; i < WARM_UP; i++) {
            (void)lnet_poll(contexts[0], now_ns, 64);
        }
        BENCH_LOOP(state) {
            now_ns += 20; /* about the time that passes: a clock's price is not the question */
            (void)lnet_poll(contexts[0], now_ns, 64);
        }
        state->items = state->iterations;
    }
    for (uint32_t i = 0; i <= count; i++) {
        lnet_close(contexts[i]);
    }
    (void)nftw(run_dir, remove_one, 8,
               FTW_DEPTH | FTW_PHYS); /* NOLINT(concurrency-mt-unsafe): one thread */
}

static const int64_t way_bytes[] = {8, 64, 256, 1024, 4096};
static const int64_t stream_bytes[] = {8, 64, 1024};
static const int64_t idle_peers[] = {1, 8, 64};
static const char *const bytes_name[] = {"bytes"};
static const char *const peers_name[] = {"peers"};

static const struct bench_case cases[] = {
    {.name = "BM_lnet_put_one_way",
     .run = bm_one_way,
     .args = way_bytes,
     .arg_count = BASE_ARRAY_LEN(way_bytes),
     .arg_names = bytes_name},
    {.name = "BM_lnet_put_stream",
     .run = bm_stream,
     .args = stream_bytes,
     .arg_count = BASE_ARRAY_LEN(stream_bytes),
     .arg_names = bytes_name},
    {.name = "BM_lnet_poll_idle",
     .run = bm_poll_idle,
     .args = idle_peers,
     .arg_count = BASE_ARRAY_LEN(idle_peers),
     .arg_names = peers_name},
};

int
main(int argc, char **argv)
{
    return bench_main(argc, argv, cases, BASE_ARRAY_LEN(cases));
}
