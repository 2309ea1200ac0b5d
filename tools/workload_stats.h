/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arithmetic of results: pure functions over what the ranks measured.
 *
 * All rates come from what was really done and from the first start to the last end of any rank.
 * A rate or time that was not measured is NAN, and null in JSON.
 */
#pragma once

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What was not measured; NAN itself is a float. */
#define STATS_NONE ((double)NAN)

/* When one rank did one thing, by rank 0's clock. Both 0: it did not. */
struct stats_span {
    uint64_t start_ns;
    uint64_t end_ns;
};

/* Of a number of values. All NAN if there are none; deviation 0 if there is one. */
struct stats_summary {
    double max, min, mean;
    double deviation;        /* of all there are (IOR prints this one) */
    double sample_deviation; /* estimated from a sample (mdtest prints this one) */
    uint64_t count;
};

/* One span over several ranks. */
struct stats_spread {
    bool is_measured;
    uint64_t first_start_ns, last_end_ns;
    uint64_t total_ns; /* from the one to the other */
    uint64_t min_ns, max_ns;
    double mean_ns; /* of the ranks' own durations */
    uint32_t slowest;
};

/* True if the rank did it. */
static inline bool
stats_span_is_set(struct stats_span span)
{
    return span.end_ns != 0;
}

/*
 * Spreads the spans of @count ranks that lie @stride bytes apart from @first on. Ranks that did not
 * do it do not count.
 */
struct stats_spread stats_spread(const struct stats_span *first, size_t stride, uint32_t count);

/* Summarises those of the @count @values that are not NAN. */
struct stats_summary stats_summarise(const double *values, uint32_t count);

/* @amount a second, or NAN if no time passed or nothing was measured. */
double stats_rate(double amount, uint64_t ns, bool is_measured);

/*
 * Writes @value to @text, left-justified in @width columns as IOR's rows have it: six decimals
 * below 1, two below 3600, none above; "-" for NAN. Returns @text.
 */
const char *stats_column(double value, int width, char text[32]);

/* "16 MiB", "65536 bytes": a size as IOR's list of options has it. */
const char *stats_size(uint64_t bytes, char text[32]);

/* A JSON number, or null for NAN and infinities. */
json_t *stats_json(double value);

/* A JSON integer. */
json_t *stats_json_count(uint64_t value);

/* {first_start_ns, last_end_ns, total_ns, rank_min_ns, ...} relative to @epoch_ns, or null. */
json_t *stats_json_spread(const struct stats_spread *spread, uint64_t epoch_ns);

/* {"max_<unit>": ..., "min_...", "mean_...", "stddev_...", "iterations"} */
json_t *stats_json_summary(const struct stats_summary *summary, const char *unit);
