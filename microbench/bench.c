/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Running benchmarks: how many iterations, how often, and what the repetitions say together.
 *
 * The number of iterations is found in the first repetition as Google Benchmark finds it: start
 * with one, predict from the time it took with 40 % to spare, grow at most tenfold at once, stop
 * when a run takes the least time asked for. All repetitions then use that number.
 */
#include "microbench/bench_internal.h"

#include "base/clock.h"
#include "microbench/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ITERATIONS_MAX   1000000000u
#define SMOKE_ITERATIONS 100u
#define SAFETY_FACTOR    1.4
#define GROWTH_MAX       10.0

static const char *const aggregate_names[] = {"mean", "median", "stddev", "cv"};

/* ---- the state a benchmark sees --------------------------------------------------------- */

static uint64_t
cpu_now_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void
bench_resume(struct bench_state *state)
{
    state->cpu_start_ns = cpu_now_ns();
    state->real_start_ns = base_clock_now_ns();
}

void
bench_pause(struct bench_state *state)
{
    const uint64_t real_now_ns = base_clock_now_ns();

    state->real_ns += real_now_ns - state->real_start_ns;
    state->cpu_ns += cpu_now_ns() - state->cpu_start_ns;
}

bool
bench_next_edge(struct bench_state *state)
{
    if (state->is_failed || state->is_skipped) {
        return false;
    }
    if (!state->is_started) {
        state->is_started = true;
        state->iterations_left = state->iterations - 1;
        bench_resume(state);
        return true;
    }
    BASE_ASSERT(!state->is_finished);
    bench_pause(state);
    state->is_finished = true;
    return false;
}

void
bench_set_elapsed(struct bench_state *state, uint64_t real_ns)
{
    state->is_manual = true;
    state->real_ns = real_ns;
}

static void __attribute__((format(printf, 2, 0)))
message_set(struct bench_state *state, const char *format, va_list args)
{
    (void)vsnprintf(state->message, sizeof(state->message), format, args);
    state->iterations_left = 0; /* BENCH_LOOP() ends, if it runs */
}

void
bench_fail(struct bench_state *state, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    message_set(state, format, args);
    va_end(args);
    state->is_failed = true;
}

void
bench_skip(struct bench_state *state, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    message_set(state, format, args);
    va_end(args);
    state->is_skipped = true;
}

void
bench_label(struct bench_state *state, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(state->label, sizeof(state->label), format, args);
    va_end(args);
}

/* Keys of the record itself: a counter of that name would make the JSON ambiguous. */
static bool
is_key_reserved(const char *key)
{
    static const char *const keys[] = {
        "name",           "family_index",     "per_family_instance_index",
        "run_name",       "run_type",         "repetitions",
        "threads",        "repetition_index", "aggregate_name",
        "aggregate_unit", "error_occurred",   "error_message",
        "skipped",        "skip_message",     "iterations",
        "real_time",      "cpu_time",         "time_unit",
        "label",          "items_per_second", "bytes_per_second",
    };

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(keys); i++) {
        if (strcmp(key, keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

void
bench_counter(struct bench_state *state, const char *key, double value,
              enum bench_counter_kind kind)
{
    uint32_t index = 0;

    BASE_ASSERT(strlen(key) < BENCH_KEY_BYTES);
    BASE_ASSERT(!is_key_reserved(key));
    if (!isfinite(value)) {
        bench_fail(state, "the counter %s is not a finite number", key);
        return;
    }
    while (index < state->counter_count && strcmp(state->counters[index].key, key) != 0) {
        index++;
    }
    BASE_ASSERT(index < BENCH_COUNTERS_MAX);
    if (index == state->counter_count) {
        (void)snprintf(state->counters[index].key, BENCH_KEY_BYTES, "%s", key);
        state->counter_count++;
    }
    state->counters[index].value = value;
    state->counters[index].kind = kind;
}

void
bench_counter_hist(struct bench_state *state, const char *prefix, const struct base_hist *hist)
{
    const struct {
        const char *name;
        double p;
    } points[] = {{"p50_ns", 0.5}, {"p99_ns", 0.99}, {"p999_ns", 0.999}, {"max_ns", 1}};
    char key[BENCH_KEY_BYTES];

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(points); i++) {
        (void)snprintf(key, sizeof(key), "%s%s%s", prefix, prefix[0] != '\0' ? "_" : "",
                       points[i].name);
        bench_counter(state, key, (double)base_hist_percentile(hist, points[i].p),
                      BENCH_COUNTER_PLAIN);
    }
}

/* ---- one run ---------------------------------------------------------------------------- */

/* One row of one case. */
struct run {
    const struct bench_case *bench;
    const int64_t *args; /* arg_width of them */
    size_t arg_width;
    uint32_t family_index;
    uint32_t instance_index;
    char name[BENCH_NAME_BYTES];
};

static void
run_call(const struct run *run, const struct bench_flags *flags, uint64_t iterations,
         struct bench_state *state)
{
    *state = (struct bench_state){.iterations = iterations, .is_smoke = flags->is_smoke};
    for (size_t i = 0; i < run->arg_width; i++) {
        state->args[i] = run->args[i];
    }
    const uint64_t cpu_start_ns = cpu_now_ns();

    run->bench->run(state);
    if (state->is_manual) {
        state->cpu_ns = cpu_now_ns() - cpu_start_ns;
    } else if (!state->is_finished && !state->is_failed && !state->is_skipped) {
        bench_fail(state, "the benchmark left its loop before the end");
    }
}

static bool
is_over(const struct bench_state *state)
{
    return state->is_failed || state->is_skipped;
}

/* Runs with more and more iterations until one takes long enough. The last is in @state. */
static uint64_t
run_find_iterations(const struct run *run, const struct bench_flags *flags,
                    struct bench_state *state)
{
    uint64_t iterations = 1;

    for (;;) {
        run_call(run, flags, iterations, state);
        const double took_s = 1e-9 * (double)state->real_ns;

        if (is_over(state) || took_s >= flags->min_time_s || iterations >= ITERATIONS_MAX) {
            return iterations;
        }
        double growth = flags->min_time_s * SAFETY_FACTOR / fmax(took_s, 1e-9);

        /* A short run predicts badly: then grow by the most that is allowed and look again. */
        if (took_s < 0.1 * flags->min_time_s) {
            growth = fmin(growth, GROWTH_MAX);
        }
        const double next = fmax(growth * (double)iterations, (double)iterations + 1);

        iterations = (uint64_t)fmin(next, ITERATIONS_MAX);
    }
}

static uint64_t
run_fixed_iterations(const struct run *run, const struct bench_flags *flags)
{
    const uint64_t fixed = flags->iterations != 0 ? flags->iterations : run->bench->iterations;

    if (flags->is_smoke) {
        return fixed != 0 ? base_min_u64(fixed, SMOKE_ITERATIONS) : SMOKE_ITERATIONS;
    }
    return fixed;
}

static void
record_add_counter(struct bench_record *record, const char *key, double value)
{
    struct bench_counter *counter = &record->counters[record->counter_count++];

    (void)snprintf(counter->key, sizeof(counter->key), "%s", key);
    counter->value = value;
}

static void
record_take_counters(struct bench_record *record, const struct bench_state *state)
{
    const double real_s = fmax(1e-9 * (double)state->real_ns, 1e-9);

    if (state->items != 0) {
        record_add_counter(record, "items_per_second", (double)state->items / real_s);
    }
    if (state->bytes != 0) {
        record_add_counter(record, "bytes_per_second", (double)state->bytes / real_s);
    }
    for (uint32_t i = 0; i < state->counter_count; i++) {
        const struct bench_counter *counter = &state->counters[i];
        double value = counter->value;

        if (counter->kind == BENCH_COUNTER_RATE) {
            value /= real_s;
        } else if (counter->kind == BENCH_COUNTER_PER_ITERATION) {
            value /= (double)state->iterations;
        }
        record_add_counter(record, counter->key, value);
    }
}

static struct bench_record *
records_add(struct bench_records *all)
{
    if (all->count == all->capacity) {
        all->capacity = base_max_u64(64, all->capacity * 2);
        all->records = reallocarray(all->records, all->capacity, sizeof(all->records[0]));
        BASE_ASSERT(all->records != NULL);
    }
    all->records[all->count] = (struct bench_record){.aggregate = NULL};
    return &all->records[all->count++];
}

static struct bench_record *
records_add_run(struct bench_records *all, const struct run *run, const struct bench_flags *flags)
{
    struct bench_record *record = records_add(all);

    (void)memcpy(record->run_name, run->name, sizeof(record->run_name));
    record->family_index = run->family_index;
    record->instance_index = run->instance_index;
    record->repetitions = flags->repetitions;
    return record;
}

static void
record_take_state(struct bench_record *record, const struct bench_state *state)
{
    record->is_failed = state->is_failed;
    record->is_skipped = !state->is_failed && state->is_skipped;
    (void)memcpy(record->label, state->label, sizeof(record->label));
    (void)memcpy(record->message, state->message, sizeof(record->message));
    if (is_over(state)) {
        return; /* a benchmark that went wrong must not print a number */
    }
    record->iterations = state->iterations;
    record->real_time = (double)state->real_ns / (double)state->iterations;
    record->cpu_time = (double)state->cpu_ns / (double)state->iterations;
    record_take_counters(record, state);
}

/* ---- aggregates ------------------------------------------------------------------------- */

static int
compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The aggregate number @which of @count @values, which get sorted. */
static double
aggregate(uint32_t which, double *values, size_t count)
{
    double sum = 0;
    double squares = 0;

    for (size_t i = 0; i < count; i++) {
        sum += values[i];
    }
    const double mean = sum / (double)count;

    for (size_t i = 0; i < count; i++) {
        squares += (values[i] - mean) * (values[i] - mean);
    }
    const double stddev = count > 1 ? sqrt(squares / (double)(count - 1)) : 0;

    switch (which) {
    case 0:
        return mean;
    case 1:
        qsort(values, count, sizeof(values[0]), compare_doubles);
        return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
    case 2:
        return stddev;
    default:
        return mean == 0 ? 0 : stddev / fabs(mean);
    }
}

/* Which number of a record: its real time, its cpu time, or a counter. */
static double
record_value(const struct bench_record *record, uint32_t which)
{
    return which == 0   ? record->real_time
           : which == 1 ? record->cpu_time
                        : record->counters[which - 2].value;
}

/* Adds the aggregates over the last @count records, which are the repetitions of @run. */
static void
records_add_aggregates(struct bench_records *all, const struct run *run,
                       const struct bench_flags *flags, size_t count)
{
    const size_t first = all->count - count;
    const uint32_t value_count = all->records[first].counter_count + 2;
    double *values = calloc(count, sizeof(values[0]));

    BASE_ASSERT(values != NULL);
    for (uint32_t which = 0; which < BASE_ARRAY_LEN(aggregate_names); which++) {
        struct bench_record *record = records_add_run(all, run, flags);
        const struct bench_record *runs = &all->records[first];

        record->aggregate = aggregate_names[which];
        record->iterations = count;
        (void)memcpy(record->label, runs[0].label, sizeof(record->label));
        for (uint32_t value = 0; value < value_count; value++) {
            for (size_t i = 0; i < count; i++) {
                values[i] = record_value(&runs[i], value);
            }
            const double result = aggregate(which, values, count);

            if (value == 0) {
                record->real_time = result;
            } else if (value == 1) {
                record->cpu_time = result;
            } else {
                record_add_counter(record, runs[0].counters[value - 2].key, result);
            }
        }
    }
    free(values);
}

/* Whether the last @count records have numbers and the same counters, so that aggregates exist. */
static bool
is_aggregable(const struct bench_records *all, size_t count)
{
    const struct bench_record *runs = &all->records[all->count - count];

    for (size_t i = 0; i < count; i++) {
        if (runs[i].is_failed || runs[i].is_skipped ||
            runs[i].counter_count != runs[0].counter_count) {
            return false;
        }
        for (uint32_t k = 0; k < runs[i].counter_count; k++) {
            if (strcmp(runs[i].counters[k].key, runs[0].counters[k].key) != 0) {
                return false;
            }
        }
    }
    return count > 1;
}

/* ---- all runs --------------------------------------------------------------------------- */

struct bench_job {
    struct bench_flags flags;
    struct run *runs;
    size_t run_count;
    struct bench_records records;
    struct bench_report report;
    bool has_failed;
    bool is_terminal; /* progress is shown */
};

static void
progress_show(const struct bench_job *job, size_t index, uint32_t repetition)
{
    if (!job->is_terminal) {
        return;
    }
    (void)fprintf(stderr, "\r\033[K[%zu/%zu] %s", index + 1, job->run_count, job->runs[index].name);
    if (job->flags.repetitions > 1) {
        (void)fprintf(stderr, " (%u of %u)", repetition + 1, job->flags.repetitions);
    }
    (void)fflush(stderr);
}

static void
progress_clear(const struct bench_job *job)
{
    if (job->is_terminal) {
        (void)fprintf(stderr, "\r\033[K");
        (void)fflush(stderr);
    }
}

/* All repetitions of one run. Their records, and the aggregates', are at the end of the list. */
static void
job_run(struct bench_job *job, size_t index)
{
    const struct run *run = &job->runs[index];
    const struct bench_flags *flags = &job->flags;
    const size_t first = job->records.count;
    uint64_t iterations = run_fixed_iterations(run, flags);
    struct bench_state state;

    for (uint32_t repetition = 0; repetition < flags->repetitions; repetition++) {
        progress_show(job, index, repetition);
        if (iterations != 0) {
            run_call(run, flags, iterations, &state);
        } else {
            iterations = run_find_iterations(run, flags, &state);
        }
        struct bench_record *record = records_add_run(&job->records, run, flags);

        record->repetition_index = repetition;
        record_take_state(record, &state);
        job->has_failed = job->has_failed || state.is_failed;
        if (is_over(&state)) {
            return;
        }
    }
    const size_t count = job->records.count - first;

    if (is_aggregable(&job->records, count)) {
        records_add_aggregates(&job->records, run, flags, count);
        if (flags->aggregates_only) {
            struct bench_record *records = job->records.records;

            job->records.count -= count;
            (void)memmove(&records[first], &records[first + count],
                          (job->records.count - first) * sizeof(records[0]));
        }
    }
}

static void
job_print_new(const struct bench_job *job, size_t first)
{
    const struct bench_record *records = job->records.records;

    progress_clear(job);
    if (job->flags.format != BENCH_CONSOLE) {
        return;
    }
    for (size_t i = first; i < job->records.count; i++) {
        bench_console_row(stdout, &job->report, &records[i], i > 0 ? &records[i - 1] : NULL);
    }
    (void)fflush(stdout);
}

static void
job_run_all(struct bench_job *job)
{
    struct bench_report *report = &job->report;

    if (!job->flags.is_smoke) {
        (void)limits_line_ns(&report->lines.before_ns);
    }
    if (job->flags.format == BENCH_CONSOLE) {
        bench_context_console(stderr, &job->flags, report->executable, &report->lines);
    }
    for (size_t i = 0; i < job->run_count; i++) {
        const size_t first = job->records.count;

        job_run(job, i);
        job_print_new(job, first);
    }
    if (!job->flags.is_smoke) {
        (void)limits_line_ns(&report->lines.after_ns);
    }
}

/* Appends /8 or /bytes:8 for each argument. */
static void
run_set_name(struct run *run)
{
    size_t length = (size_t)snprintf(run->name, sizeof(run->name), "%s", run->bench->name);

    for (size_t i = 0; i < run->arg_width && length < sizeof(run->name); i++) {
        const char *const *names = run->bench->arg_names;

        length +=
            (size_t)snprintf(run->name + length, sizeof(run->name) - length, "/%s%s%" PRId64,
                             names != NULL ? names[i] : "", names != NULL ? ":" : "", run->args[i]);
    }
    BASE_ASSERT(length < sizeof(run->name));
}

/* Makes the list of runs that the filter lets through. */
static void
job_choose(struct bench_job *job, const struct bench_case *cases, size_t case_count)
{
    size_t total = 0;

    for (size_t i = 0; i < case_count; i++) {
        total += base_max_u64(cases[i].arg_count, 1);
    }
    job->runs = calloc(base_max_u64(total, 1), sizeof(job->runs[0]));
    BASE_ASSERT(job->runs != NULL);
    for (size_t i = 0; i < case_count; i++) {
        const size_t width = cases[i].arg_count == 0 ? 0 : base_max_u64(cases[i].arg_width, 1);

        BASE_ASSERT(width <= BENCH_ARGS_MAX);
        for (size_t k = 0; k < base_max_u64(cases[i].arg_count, 1); k++) {
            struct run *run = &job->runs[job->run_count];

            *run = (struct run){
                .bench = &cases[i],
                .args = width == 0 ? NULL : cases[i].args + k * width,
                .arg_width = width,
                .family_index = (uint32_t)i,
                .instance_index = (uint32_t)k,
            };
            run_set_name(run);
            if (bench_flags_match(&job->flags, run->name)) {
                job->run_count++;
                job->report.name_width = (int)base_max_u64((uint64_t)job->report.name_width,
                                                           strlen(run->name) + strlen("_stddev"));
            }
        }
    }
}

/* Opened before anything is measured, so that a wrong path costs no hours. */
static int
job_measure_and_write(struct bench_job *job)
{
    FILE *out = NULL;
    int exit_code = 0;

    if (job->flags.out_path != NULL) {
        out = fopen(job->flags.out_path, "we");
        if (out == NULL) {
            (void)fprintf(stderr, "%s: %s\n", job->flags.out_path, strerrordesc_np(errno));
            return 1;
        }
    }
    job_run_all(job);
    if (job->flags.format != BENCH_CONSOLE) {
        bench_report_all(stdout, job->flags.format, &job->report);
    }
    if (out != NULL) {
        bench_report_all(out, job->flags.out_format, &job->report);
        const bool is_bad = ferror(out) != 0;

        if (fclose(out) != 0 || is_bad) {
            (void)fprintf(stderr, "%s: could not be written\n", job->flags.out_path);
            exit_code = 1;
        }
    }
    return job->has_failed || fflush(stdout) != 0 || ferror(stdout) ? 1 : exit_code;
}

static int
job_main(struct bench_job *job)
{
    if (job->run_count == 0) {
        (void)fprintf(stderr, "--benchmark_filter matches no benchmark\n");
        return 1;
    }
    if (job->flags.list_tests) {
        for (size_t i = 0; i < job->run_count; i++) {
            (void)printf("%s\n", job->runs[i].name);
        }
        return 0;
    }
    return job_measure_and_write(job);
}

int
bench_main(int argc, char **argv, const struct bench_case *cases, size_t case_count)
{
    struct bench_job job = {.is_terminal = isatty(STDERR_FILENO) == 1};
    const enum bench_flags_result result = bench_flags_parse(&job.flags, argc, argv);
    int exit_code = result == BENCH_FLAGS_BAD ? 2 : 0;

    if (result == BENCH_FLAGS_RUN) {
        job.report.flags = &job.flags;
        job.report.executable = argv[0];
        job.report.records = &job.records;
        job_choose(&job, cases, case_count);
        exit_code = job_main(&job);
    }
    free(job.runs);
    free(job.records.records);
    bench_flags_fini(&job.flags);
    return exit_code;
}
