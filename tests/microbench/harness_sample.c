/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A benchmark of every kind the harness knows, for check_harness.py to look at its output.
 */
#include "microbench/bench.h"

#include <math.h>

static void
bm_loop(struct bench_state *state)
{
    uint64_t sum = 0;

    BENCH_LOOP(state) {
        sum += (uint64_t)state->args[0];
        BENCH_DO_NOT_OPTIMIZE(sum);
    }
    state->items = state->iterations;
    state->bytes = state->iterations * 8;
    bench_counter(state, "sum_per_iteration", (double)sum, BENCH_COUNTER_PER_ITERATION);
    bench_counter(state, "sum_per_second", (double)sum, BENCH_COUNTER_RATE);
    bench_counter(state, "quoted \"key\"", 1, BENCH_COUNTER_PLAIN);
    bench_label(state, "label with \"quotes\", a \\ and a \t");
}

/* Says that an iteration takes args[0] + args[1] nanoseconds. */
static void
bm_manual(struct bench_state *state)
{
    struct base_hist hist;

    base_hist_init(&hist);
    for (uint64_t i = 1; i <= 100; i++) {
        base_hist_record(&hist, i);
    }
    bench_counter_hist(state, "", &hist);
    bench_set_elapsed(state, state->iterations * (uint64_t)(state->args[0] + state->args[1]));
}

static void
bm_fails(struct bench_state *state)
{
    BENCH_LOOP(state) {
        bench_fail(state, "credits lost: %d", 3);
    }
}

static void
bm_skips(struct bench_state *state)
{
    bench_skip(state, "no second core");
}

static void
bm_nan(struct bench_state *state)
{
    BENCH_LOOP(state) {
        BENCH_CLOBBER();
    }
    bench_counter(state, "ratio_to_limit", (double)NAN, BENCH_COUNTER_PLAIN);
}

static void
bm_leaves(struct bench_state *state)
{
    (void)state;
}

static void
bm_paused(struct bench_state *state)
{
    BENCH_LOOP(state) {
        bench_pause(state);
        bench_resume(state);
    }
}

static const int64_t loop_args[] = {1, 64};
static const int64_t manual_args[] = {10, 1, 20, 2};
static const char *const manual_names[] = {"tens", "ones"};

static const struct bench_case cases[] = {
    {.name = "BM_loop", .run = bm_loop, .args = loop_args, .arg_count = 2},
    {.name = "BM_manual",
     .run = bm_manual,
     .args = manual_args,
     .arg_count = 2,
     .arg_width = 2,
     .arg_names = manual_names},
    {.name = "BM_fixed", .run = bm_paused, .iterations = 7},
    {.name = "BM_skips", .run = bm_skips},
    {.name = "BM_bad_fails", .run = bm_fails},
    {.name = "BM_bad_nan", .run = bm_nan},
    {.name = "BM_bad_leaves", .run = bm_leaves},
};

int
main(int argc, char **argv)
{
    return bench_main(argc, argv, cases, BASE_ARRAY_LEN(cases));
}
