/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The benchmark harness: flags, output and JSON are Google Benchmark's, so that its tools and
 * everybody's habits work; `compare.py` reads what it writes.
 *
 * A benchmark file has functions, a table of them and a main:
 *
 *     static void
 *     bm_credit_take(struct bench_state *state)
 *     {
 *         ... set-up, not timed ...
 *         BENCH_LOOP(state) {
 *             ... the thing measured ...
 *         }
 *         state->items = state->iterations;
 *     }
 *
 *     static const int64_t batches[] = {1, 8, 64};
 *     static const struct bench_case cases[] = {
 *         {.name = "BM_credit_take", .run = bm_credit_take, .args = batches, .arg_count = 3},
 *     };
 *
 *     int
 *     main(int argc, char **argv)
 *     {
 *         return bench_main(argc, argv, cases, BASE_ARRAY_LEN(cases));
 *     }
 *
 * The function is called with growing iteration counts until one call takes --benchmark_min_time
 * of real time; only that call is reported. Times are nanoseconds per iteration, always. cpu_time
 * is that of the whole process, of all its threads.
 */
#pragma once

#include "base/assert.h"
#include "base/hist.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_ARGS_MAX     4
#define BENCH_COUNTERS_MAX 32
#define BENCH_NAME_BYTES   128 /* of a benchmark with its arguments */
#define BENCH_KEY_BYTES    48  /* of a counter */
#define BENCH_TEXT_BYTES   160 /* of a label or an error */

/* What a counter's value becomes in the report. */
enum bench_counter_kind {
    BENCH_COUNTER_PLAIN,         /* itself */
    BENCH_COUNTER_RATE,          /* divided by the real time, in 1/s */
    BENCH_COUNTER_PER_ITERATION, /* divided by the iterations */
};

struct bench_counter {
    char key[BENCH_KEY_BYTES];
    enum bench_counter_kind kind;
    double value;
};

struct bench_state {
    /* For the benchmark to read. */
    uint64_t iterations;          /* how often BENCH_LOOP() will run its body */
    int64_t args[BENCH_ARGS_MAX]; /* the row of the case's table */
    bool is_smoke;                /* be short: only whether it works is asked */

    /* For the benchmark to set; reported per second of real time when not 0. */
    uint64_t items;
    uint64_t bytes;

    /* The harness's own. */
    uint64_t iterations_left;
    bool is_started;
    bool is_finished;
    bool is_failed;
    bool is_skipped;
    bool is_manual;
    uint64_t real_start_ns;
    uint64_t cpu_start_ns;
    uint64_t real_ns;
    uint64_t cpu_ns;
    uint32_t counter_count;
    struct bench_counter counters[BENCH_COUNTERS_MAX];
    char label[BENCH_TEXT_BYTES];
    char message[BENCH_TEXT_BYTES]; /* why it failed or was skipped */
};

typedef void (*bench_fn)(struct bench_state *state);

struct bench_case {
    const char *name; /* BM_<unit>_<what> */
    bench_fn run;
    const int64_t *args; /* rows of arg_width values; the case runs once for each row */
    size_t arg_count;    /* rows; 0 means one run without arguments */
    size_t arg_width;    /* 0 means 1 */
    /* Names of the columns, or NULL. The run is then called BM_x/bytes:64 instead of BM_x/64. */
    const char *const *arg_names;
    uint64_t iterations; /* fixed number, or 0 to find it by --benchmark_min_time */
};

/* Keeps @value, and all memory, from being optimised away. */
#define BENCH_DO_NOT_OPTIMIZE(value) __asm__ volatile("" : : "r,m"(value) : "memory")

/* Makes all memory written before it count as read. */
#define BENCH_CLOBBER() __asm__ volatile("" : : : "memory")

/* Starts the time at the first call, stops it at the last; for BENCH_LOOP(). */
bool bench_next_edge(struct bench_state *state);

/* Whether another iteration is to be run; for BENCH_LOOP(). */
static inline bool
bench_next(struct bench_state *state)
{
    if (BASE_LIKELY(state->iterations_left != 0)) {
        state->iterations_left--;
        return true;
    }
    return bench_next_edge(state);
}

/* Runs its body state->iterations times, with the time running. To be left only at its end, or
 * after bench_fail() or bench_skip(). */
#define BENCH_LOOP(state) while (bench_next(state))

/* Stops the time inside of BENCH_LOOP(). Costs two reads of a clock: not for short iterations. */
void bench_pause(struct bench_state *state);

/* Lets the time run again. */
void bench_resume(struct bench_state *state);

/*
 * Says that all iterations took @real_ns together, by a measurement of the benchmark's own. A
 * benchmark that says so needs no BENCH_LOOP(). cpu_time is then that of the whole call.
 */
void bench_set_elapsed(struct bench_state *state, uint64_t real_ns);

/* Ends the benchmark as failed, without a number. The benchmark returns after it. */
void bench_fail(struct bench_state *state, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Ends the benchmark as skipped: this machine cannot run it. The benchmark returns after it. */
void bench_skip(struct bench_state *state, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Sets the counter @key. A value that is not finite makes the benchmark fail. */
void bench_counter(struct bench_state *state, const char *key, double value,
                   enum bench_counter_kind kind);

/* Sets the counters @prefix plus _p50_ns, _p99_ns, _p999_ns and _max_ns. @prefix may be "". */
void bench_counter_hist(struct bench_state *state, const char *prefix,
                        const struct base_hist *hist);

/* Sets a text that is printed behind the numbers. */
void bench_label(struct bench_state *state, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * Runs the benchmarks the flags choose and writes the results. Returns the exit code: 0, 1 if a
 * benchmark failed or the output could not be written, 2 for wrong flags.
 */
int bench_main(int argc, char **argv, const struct bench_case *cases, size_t case_count);
