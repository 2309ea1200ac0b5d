/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What this machine can do at best: the floor under every other figure.
 *
 * Question answered: what does it cost to move bytes between two cores or two address spaces, and
 * to wake somebody, when no software of ours is in the way? Held fixed: the first two cores the
 * process may use, no pause instruction in spins, libc's memcpy. Expected on a virtual machine of
 * 2026 with near cores (far ones: up to five times as much for the first three):
 *
 *     a line 25 ns; 8 B one way 65 ns, 4 KiB 0.24 us, 1 MiB 37 us
 *     a 64 B ring 60 to 250 M messages/s by batch; bare RPC 9 / 80 / 140 M/s at 1 / 16 / 64 out
 *     memcpy warm 140 GB/s at 4 KiB, 60 at 1 MiB; from DRAM 20
 *     process_vm_readv 4 / 14 / 16 GB/s at 4 KiB / 64 KiB / 1 MiB, three times that on huge pages
 *     a wake-up across cores 40 us there and back, on one core 4 to 5
 *
 * Times are means over all iterations; p50_ns and p99_ns are over batches of some microseconds, and
 * on a machine that does other things the median is the figure to quote.
 */
#include "microbench/bench.h"
#include "microbench/limits.h"

#include <string.h>

/* Measures state->iterations operations and reports them. @bytes is 0 if it is not about bytes. */
static void
measure(struct bench_state *state, enum limits_kind kind, uint32_t memory, uint64_t bytes)
{
    struct limits_result result;
    const int rc =
        limits_measure(kind, (uint64_t)state->args[0], memory, state->iterations, &result);

    if (rc != 0) {
        bench_skip(state, "%s: two cores and leave of the kernel are needed", strerrorname_np(-rc));
        return;
    }
    /* A round trip counts as two: the counts may differ by one. */
    bench_set_elapsed(state, (uint64_t)(result.mean_ns * (double)state->iterations));
    bench_counter(state, "p50_ns", result.p50_ns, BENCH_COUNTER_PLAIN);
    bench_counter(state, "p99_ns", result.p99_ns, BENCH_COUNTER_PLAIN);
    state->items = state->iterations;
    if (bytes != 0) {
        state->bytes = state->iterations * bytes;
        bench_counter(state, "p50_bytes_per_second", 1e9 * (double)bytes / result.p50_ns,
                      BENCH_COUNTER_PLAIN);
    } else {
        bench_counter(state, "p50_items_per_second", 1e9 / result.p50_ns, BENCH_COUNTER_PLAIN);
    }
}

static void
bm_line(struct bench_state *state)
{
    measure(state, LIMITS_LINE, 0, 0);
}

static void
bm_message(struct bench_state *state)
{
    measure(state, LIMITS_MESSAGE, 0, (uint64_t)state->args[0]);
}

static void
bm_ring(struct bench_state *state)
{
    measure(state, LIMITS_RING, 0, 0);
}

static void
bm_rpc(struct bench_state *state)
{
    measure(state, LIMITS_RPC, 0, 0);
}

static void
bm_memcpy(struct bench_state *state)
{
    measure(state, LIMITS_MEMCPY, (uint32_t)state->args[1], (uint64_t)state->args[0]);
}

static void
bm_cma(struct bench_state *state)
{
    measure(state, LIMITS_CMA, (uint32_t)state->args[1], (uint64_t)state->args[0]);
}

static void
bm_futex(struct bench_state *state)
{
    measure(state, LIMITS_FUTEX, 0, 0);
}

static void
bm_eventfd(struct bench_state *state)
{
    measure(state, LIMITS_EVENTFD, 0, 0);
}

#define WARM      LIMITS_WARM
#define COLD      LIMITS_COLD
#define WARM_HUGE (LIMITS_WARM | LIMITS_HUGE)
#define COLD_HUGE (LIMITS_COLD | LIMITS_HUGE)

static const int64_t message_bytes[] = {8, 64, 256, 1024, 4096, 65536, 1048576};
static const int64_t ring_batches[] = {1, 8, 64};
static const int64_t rpc_in_flight[] = {1, 16, 64};
static const int64_t same_core[] = {0, 1};
static const int64_t memcpy_rows[][2] = {
    {4096, WARM},         {65536, WARM},         {1048576, WARM},  {16777216, WARM},
    {65536, COLD},        {1048576, COLD},       {16777216, COLD}, {65536, COLD_HUGE},
    {1048576, COLD_HUGE}, {16777216, COLD_HUGE},
};
static const int64_t cma_rows[][2] = {
    {4096, WARM},       {65536, WARM},        {1048576, WARM},    {4096, COLD},
    {65536, COLD},      {1048576, COLD},      {65536, WARM_HUGE}, {1048576, WARM_HUGE},
    {65536, COLD_HUGE}, {1048576, COLD_HUGE},
};
static const char *const bytes_name[] = {"bytes"};
static const char *const batch_name[] = {"batch"};
static const char *const in_flight_name[] = {"in_flight"};
static const char *const same_core_name[] = {"same_core"};
static const char *const copy_names[] = {"bytes", "memory"}; /* enum limits_memory */

#define CASE(name_, run_, rows_, width_, names_)                                        \
    {                                                                                   \
        .name = (name_), .run = (run_), .args = (rows_),                                \
        .arg_count = sizeof(rows_) / sizeof(int64_t) / (width_), .arg_width = (width_), \
        .arg_names = (names_)                                                           \
    }

static const struct bench_case cases[] = {
    {.name = "BM_limits_line", .run = bm_line},
    CASE("BM_limits_message", bm_message, message_bytes, 1, bytes_name),
    CASE("BM_limits_ring", bm_ring, ring_batches, 1, batch_name),
    CASE("BM_limits_rpc", bm_rpc, rpc_in_flight, 1, in_flight_name),
    {.name = "BM_limits_memcpy",
     .run = bm_memcpy,
     .args = memcpy_rows[0],
     .arg_count = BASE_ARRAY_LEN(memcpy_rows),
     .arg_width = 2,
     .arg_names = copy_names},
    {.name = "BM_limits_cma",
     .run = bm_cma,
     .args = cma_rows[0],
     .arg_count = BASE_ARRAY_LEN(cma_rows),
     .arg_width = 2,
     .arg_names = copy_names},
    CASE("BM_limits_futex", bm_futex, same_core, 1, same_core_name),
    CASE("BM_limits_eventfd", bm_eventfd, same_core, 1, same_core_name),
};

int
main(int argc, char **argv)
{
    return bench_main(argc, argv, cases, BASE_ARRAY_LEN(cases));
}
