/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the harness share; benchmarks include bench.h only.
 */
#pragma once

#include "microbench/bench.h"

#include <regex.h>
#include <stdio.h>

enum bench_format { BENCH_CONSOLE, BENCH_JSON, BENCH_CSV };

#define BENCH_CONTEXT_MAX 32

/* key=value of --benchmark_context. */
struct bench_context_pair {
    const char *key;
    const char *value;
};

struct bench_flags {
    regex_t filter;
    bool has_filter;
    bool is_filter_negative;
    double min_time_s;
    uint64_t iterations; /* of --benchmark_min_time=<N>x, or 0 */
    uint32_t repetitions;
    bool is_smoke;
    bool list_tests;
    bool aggregates_only;
    bool is_tabular;
    enum bench_format format;
    enum bench_format out_format;
    const char *out_path;
    struct bench_context_pair context[BENCH_CONTEXT_MAX];
    uint32_t context_count;
};

/* One record of the output: a run, or an aggregate over the repetitions of one. */
struct bench_record {
    char run_name[BENCH_NAME_BYTES];
    const char *aggregate; /* "mean", "median", "stddev", "cv", or NULL for a run */
    uint32_t family_index;
    uint32_t instance_index;
    uint32_t repetitions;
    uint32_t repetition_index;
    uint64_t iterations;
    double real_time; /* ns per iteration; a ratio for "cv" */
    double cpu_time;
    bool is_failed;
    bool is_skipped;
    uint32_t counter_count;
    struct bench_counter counters[BENCH_COUNTERS_MAX + 2]; /* final values; kind is of no use */
    char label[BENCH_TEXT_BYTES];
    char message[BENCH_TEXT_BYTES];
};

struct bench_records {
    struct bench_record *records;
    size_t count;
    size_t capacity;
};

/* The time of cache lines between the two cores, taken at both ends of the run. 0: not known. */
struct bench_lines {
    double before_ns;
    double after_ns;
};

enum bench_flags_result { BENCH_FLAGS_RUN, BENCH_FLAGS_HELP, BENCH_FLAGS_BAD };

/* Reads the flags. Says on stderr what is wrong with them. */
enum bench_flags_result bench_flags_parse(struct bench_flags *flags, int argc, char **argv);

/* Frees what bench_flags_parse() made. */
void bench_flags_fini(struct bench_flags *flags);

/* Whether --benchmark_filter lets @name through. */
bool bench_flags_match(const struct bench_flags *flags, const char *name);

/* Whether @key is one that the context has anyway. */
bool bench_context_is_reserved(const char *key);

/* Writes the members of the context, without the braces around them. */
void bench_context_json(FILE *out, const struct bench_flags *flags, const char *executable,
                        const struct bench_lines *lines);

/* Writes the few lines of context that a person wants to see. */
void bench_context_console(FILE *out, const struct bench_flags *flags, const char *executable,
                           const struct bench_lines *lines);

/* Writes @text as a JSON string, with its quotes. */
void bench_json_string(FILE *out, const char *text);

/* The full name of a record: that of the run, and the aggregate's behind it. */
const char *bench_record_name(const struct bench_record *record, char *text, size_t text_bytes);

/* Everything the reports need. */
struct bench_report {
    const struct bench_flags *flags;
    const char *executable;
    struct bench_lines lines;
    const struct bench_records *records;
    int name_width; /* of the console's first column */
};

/* Writes all records in @format. */
void bench_report_all(FILE *out, enum bench_format format, const struct bench_report *report);

/* The console's rows one by one: as results come. @previous is the record above, or NULL. */
void bench_console_row(FILE *out, const struct bench_report *report,
                       const struct bench_record *record, const struct bench_record *previous);

/* The name and version of the harness, for the context. */
#define BENCH_LIBRARY_VERSION "causeway-0.1.0"
