/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arithmetic of results. See workload_stats.h.
 */
#include "tools/workload_stats.h"

#include <math.h>
#include <stdio.h>

/* From here on IOR's columns have no decimals. */
#define COLUMN_WHOLE 3600.0

static const struct stats_span *
span_of(const struct stats_span *first, size_t stride, uint32_t index)
{
    return (const struct stats_span *)(const void *)((const char *)first + stride * index);
}

struct stats_spread
stats_spread(const struct stats_span *first, size_t stride, uint32_t count)
{
    struct stats_spread spread = {.mean_ns = 0};
    uint32_t measured = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct stats_span span = *span_of(first, stride, i);
        const uint64_t own_ns = span.end_ns - span.start_ns;

        if (!stats_span_is_set(span)) {
            continue;
        }
        if (measured == 0 || span.start_ns < spread.first_start_ns) {
            spread.first_start_ns = span.start_ns;
        }
        if (measured == 0 || span.end_ns > spread.last_end_ns) {
            spread.last_end_ns = span.end_ns;
        }
        if (measured == 0 || own_ns < spread.min_ns) {
            spread.min_ns = own_ns;
        }
        if (measured == 0 || own_ns > spread.max_ns) {
            spread.max_ns = own_ns;
            spread.slowest = i;
        }
        spread.mean_ns += (double)own_ns;
        measured++;
    }
    if (measured > 0) {
        spread.is_measured = true;
        spread.total_ns = spread.last_end_ns - spread.first_start_ns;
        spread.mean_ns /= measured;
    }
    return spread;
}

struct stats_summary
stats_summarise(const double *values, uint32_t count)
{
    struct stats_summary summary = {STATS_NONE, STATS_NONE, STATS_NONE, STATS_NONE, STATS_NONE, 0};
    double sum = 0;
    double squares = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (isnan(values[i])) {
            continue;
        }
        summary.max = summary.count == 0 || values[i] > summary.max ? values[i] : summary.max;
        summary.min = summary.count == 0 || values[i] < summary.min ? values[i] : summary.min;
        sum += values[i];
        summary.count++;
    }
    if (summary.count == 0) {
        return summary;
    }
    summary.mean = sum / (double)summary.count;
    for (uint32_t i = 0; i < count; i++) {
        if (!isnan(values[i])) {
            squares += (values[i] - summary.mean) * (values[i] - summary.mean);
        }
    }
    summary.deviation = sqrt(squares / (double)summary.count);
    summary.sample_deviation = summary.count > 1 ? sqrt(squares / (double)(summary.count - 1)) : 0;
    return summary;
}

double
stats_rate(double amount, uint64_t ns, bool is_measured)
{
    return is_measured && ns > 0 ? amount * 1e9 / (double)ns : STATS_NONE;
}

const char *
stats_column(double value, int width, char text[32])
{
    int decimals = 6;

    if (isnan(value)) {
        (void)snprintf(text, 32, "%-*s", width, "-");
        return text;
    }
    if (value >= COLUMN_WHOLE) {
        decimals = 0;
    } else if (value >= 1) {
        decimals = 2;
    }
    (void)snprintf(text, 32, "%-*.*f", width, decimals, value);
    return text;
}

const char *
stats_size(uint64_t bytes, char text[32])
{
    static const struct {
        uint64_t bytes;
        const char *name;
    } units[] = {{UINT64_C(1) << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}};

    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (bytes >= units[i].bytes) {
            const double value = (double)bytes / (double)units[i].bytes;
            const bool is_whole = bytes % units[i].bytes == 0;

            (void)snprintf(text, 32, "%.*f %s", is_whole ? 0 : 2, value, units[i].name);
            return text;
        }
    }
    (void)snprintf(text, 32, "%llu bytes", (unsigned long long)bytes);
    return text;
}

json_t *
stats_json(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *
stats_json_count(uint64_t value)
{
    return json_integer((json_int_t)value);
}

json_t *
stats_json_spread(const struct stats_spread *spread, uint64_t epoch_ns)
{
    if (!spread->is_measured) {
        return json_null();
    }
    json_t *json = json_object();
    (void)json_object_set_new(json, "first_start_ns",
                              stats_json_count(spread->first_start_ns - epoch_ns));
    (void)json_object_set_new(json, "last_end_ns",
                              stats_json_count(spread->last_end_ns - epoch_ns));
    (void)json_object_set_new(json, "total_ns", stats_json_count(spread->total_ns));
    (void)json_object_set_new(json, "rank_min_ns", stats_json_count(spread->min_ns));
    (void)json_object_set_new(json, "rank_max_ns", stats_json_count(spread->max_ns));
    (void)json_object_set_new(json, "rank_mean_ns", stats_json(spread->mean_ns));
    (void)json_object_set_new(json, "slowest_rank", stats_json_count(spread->slowest));
    return json;
}

json_t *
stats_json_summary(const struct stats_summary *summary, const char *unit)
{
    const struct {
        const char *name;
        double value;
    } parts[] = {{"max", summary->max},
                 {"min", summary->min},
                 {"mean", summary->mean},
                 {"stddev", summary->deviation},
                 {"sample_stddev", summary->sample_deviation}};
    json_t *json = json_object();

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        char name[64];

        (void)snprintf(name, sizeof(name), "%s_%s", parts[i].name, unit);
        (void)json_object_set_new(json, name, stats_json(parts[i].value));
    }
    (void)json_object_set_new(json, "iterations", stats_json_count(summary->count));
    return json;
}
