/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The IOR workload's tables, with the labels and columns of IOR 4 so that scripts and eyes can
 * compare, and its JSON. See ior.h.
 */
#include "tools/ior.h"

#include "base/assert.h"
#include "base/clock.h"
#include "tools/workload_text.h"

#include <causeway/lnet.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define MIB           1048576.0
#define MB            1e6
#define SLOWEST_SHOWN 8u

static void
line(const char *name, const char *value)
{
    (void)printf("%-20s: %s\n", name, value);
}

static void
number_line(const char *name, uint64_t value)
{
    (void)printf("%-20s: %llu\n", name, (unsigned long long)value);
}

static void
report_options(const struct ior *ior)
{
    const struct ior_options *options = &ior->options;
    char text[64];

    (void)printf("\nOptions: \n");
    line("api", ior->io.ops->name);
    line("test filename", options->file);
    line("access", options->per_process ? "file-per-process" : "single-shared-file");
    line("type", "independent");
    number_line("segments", options->segments);
    line("ordering in a file", options->random ? "random" : "sequential");
    line("ordering inter file", options->reorder ? "constant task offset" : "no tasks offsets");
    if (options->reorder) {
        number_line("task offset", options->task_offset);
        number_line("ranks shifted", ior->shift);
    }
    number_line("nodes", ior->world.nodes);
    number_line("tasks", ior->world.size);
    number_line("clients per node", ior->world.tasks_per_node);
    number_line("repetitions", options->repetitions);
    line("xfersize", stats_size(options->transfer_bytes, text));
    line("blocksize", stats_size(options->block_bytes, text));
    line("aggregate filesize",
         stats_size(options->block_bytes * options->segments * ior->world.size, text));
    if (options->verbose > 0) {
        number_line("verbose", options->verbose);
    }
    if (options->deadline_s > 0) {
        number_line("stonewallingTime", options->deadline_s);
    }
    if (ior->is_marked) {
        (void)printf("%-20s: 0x%08x\n", "data signature", ior->signature);
    }
}

void
ior_report_head(const struct ior *ior)
{
    struct utsname machine = {.sysname = ""};
    char path[PATH_MAX];
    char text[64];

    (void)uname(&machine);
    (void)text_time(ior->start_wall_ns, TEXT_IOR, text);
    (void)printf("causeway ior %d.%d: the IOR workload, tables as of IOR 4\n", LNET_VERSION_MAJOR,
                 LNET_VERSION_MINOR);
    line("Began", text);
    (void)printf("%-20s: ", "Command line");
    text_command(ior->argc, ior->argv, stdout);
    (void)printf("%-20s: %s %s\n", "Machine", machine.sysname, machine.nodename);
    line("TestID", "0");
    line("StartTime", text);
    ior_path(ior, 0, path);
    line("Path", path);
    text_space(&ior->io, path, stdout);
    report_options(ior);
    (void)printf("\nResults: \n\n");
}

void
ior_report_columns(void)
{
    (void)printf("access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    "
                 "wr/rd(s)   close(s)   total(s)   iter\n"
                 "------    ---------  ----       ----------  ---------- ---------  --------   "
                 "--------   --------   --------   ----\n");
    (void)fflush(stdout);
}

static double
seconds(const struct stats_spread *spread)
{
    return spread->is_measured ? (double)spread->total_ns / 1e9 : STATS_NONE;
}

static void
report_slowest(const struct ior_result *result)
{
    if (!result->transfer.is_measured) {
        return;
    }
    (void)printf("          slowest rank: open %u, %s %u (%.6f s; fastest %.6f s), close %u\n",
                 result->open.slowest, ior_access_name(result->access), result->transfer.slowest,
                 (double)result->transfer.max_ns / 1e9, (double)result->transfer.min_ns / 1e9,
                 result->close.slowest);
}

void
ior_report_row(const struct ior *ior, const struct ior_result *result)
{
    const bool moves = result->access != IOR_REMOVE;
    const double columns[] = {
        result->bytes_per_s / MIB,
        result->ops_per_s,
        result->latency_s,
        moves ? (double)ior->options.block_bytes / 1024 : STATS_NONE,
        moves ? (double)ior->options.transfer_bytes / 1024 : STATS_NONE,
        moves ? seconds(&result->open) : STATS_NONE,
        moves && result->transfer.is_measured ? (double)result->move_ns / 1e9 : STATS_NONE,
        moves ? seconds(&result->close) : STATS_NONE,
        seconds(&result->total),
    };
    static const int widths[] = {10, 10, 11, 10, 10, 10, 10, 10, 10};

    if (result->access == IOR_CHECK) {
        return;
    }
    (void)printf("%-10s", ior_access_name(result->access));
    for (size_t i = 0; i < BASE_ARRAY_LEN(columns); i++) {
        char text[32];

        (void)printf("%s ", stats_column(columns[i], widths[i], text));
    }
    (void)printf("%-4u\n", result->repetition);
    if (ior->options.verbose > 0) {
        report_slowest(result);
    }
    (void)fflush(stdout);
}

/* ---- the summary ---- */

struct summary {
    struct stats_summary bytes, ops, seconds;
    double stopped_s, stopped_bytes; /* NAN: no deadline struck */
};

/* Over all repetitions of @access. The count is 0 if it was not run. */
static struct summary
summarise(const struct ior *ior, enum ior_access access)
{
    double *values = calloc((size_t)ior->result_count * 3 + 1, sizeof(*values));
    struct summary summary = {.stopped_s = STATS_NONE, .stopped_bytes = STATS_NONE};
    uint32_t count = 0;

    if (values == NULL) {
        return summary;
    }
    double *ops = values + ior->result_count;
    double *times = ops + ior->result_count;
    for (uint32_t i = 0; i < ior->result_count; i++) {
        const struct ior_result *result = &ior->results[i];

        if (result->access != access) {
            continue;
        }
        values[count] = result->bytes_per_s;
        /* As IOR has it: operations over the total time, unlike in the rows. */
        ops[count] = stats_rate((double)result->transfers, result->total.total_ns,
                                result->total.is_measured);
        times[count] = seconds(&result->total);
        if (result->is_stopped) {
            summary.stopped_s = times[count];
            summary.stopped_bytes = (double)result->bytes;
        }
        count++;
    }
    summary.bytes = stats_summarise(values, count);
    summary.ops = stats_summarise(ops, count);
    summary.seconds = stats_summarise(times, count);
    free(values);
    return summary;
}

static void
report_not_available(double value, int width, double unit)
{
    if (isnan(value)) {
        (void)printf(" %*s", width, "NA");
    } else {
        (void)printf(" %*.2f", width, value / unit);
    }
}

static void
report_operation(const struct ior *ior, enum ior_access access)
{
    const struct ior_options *options = &ior->options;
    const struct summary summary = summarise(ior, access);

    if (summary.bytes.count == 0) {
        return;
    }
    (void)printf("%-10s%10.2f %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f %10.5f",
                 ior_access_name(access), summary.bytes.max / MIB, summary.bytes.min / MIB,
                 summary.bytes.mean / MIB, summary.bytes.deviation / MIB, summary.ops.max,
                 summary.ops.min, summary.ops.mean, summary.ops.deviation, summary.seconds.mean);
    report_not_available(summary.stopped_s, 10, 1);
    report_not_available(summary.stopped_bytes, 13, MIB);
    (void)printf(" %5d %6u %3u %4llu %3d %5d %8llu %9d %4llu %6llu %8llu %8llu %9.1f %s %6llu\n", 0,
                 ior->world.size, ior->world.tasks_per_node,
                 (unsigned long long)options->repetitions, options->per_process ? 1 : 0,
                 options->reorder ? 1 : 0, (unsigned long long)options->task_offset, 0,
                 (unsigned long long)options->random_seed, (unsigned long long)options->segments,
                 (unsigned long long)options->block_bytes,
                 (unsigned long long)options->transfer_bytes,
                 (double)(options->block_bytes * options->segments * ior->world.size) / MIB,
                 ior->io.ops->name, (unsigned long long)options->reference);
}

static void
report_max(const struct ior *ior, enum ior_access access, const char *label)
{
    const struct summary summary = summarise(ior, access);

    if (summary.bytes.count > 0) {
        (void)printf("%-11s%.2f MiB/sec (%.2f MB/sec)\n", label, summary.bytes.max / MIB,
                     summary.bytes.max / MB);
    }
}

void
ior_report_summary(const struct ior *ior)
{
    char text[64];

    report_max(ior, IOR_WRITE, "Max Write:");
    report_max(ior, IOR_READ, "Max Read:");
    (void)printf(
        "\nSummary of all tests:\n"
        "Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   Max(OPs)   Min(OPs)  "
        "Mean(OPs)     StdDev    Mean(s) Stonewall(s) Stonewall(MiB) Test# #Tasks tPN reps "
        "fPP reord reordoff reordrand seed segcnt   blksiz    xsize aggs(MiB)   API "
        "RefNum\n");
    report_operation(ior, IOR_WRITE);
    report_operation(ior, IOR_READ);
    line("Finished", text_time(base_clock_wall_ns(), TEXT_IOR, text));
}

/* ---- JSON ---- */

static json_t *
options_json(const struct ior *ior)
{
    const struct ior_options *options = &ior->options;
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"block_bytes", options->block_bytes},
        {"transfer_bytes", options->transfer_bytes},
        {"segments", options->segments},
        {"repetitions", options->repetitions},
        {"delay_ns", options->delay_s * 1000000000u},
        {"deadline_ns", options->deadline_s * 1000000000u},
        {"minutes_max", options->minutes_max},
        {"task_offset", options->task_offset},
        {"ranks_shifted", ior->shift},
        {"random_offset_seed", options->random_seed},
        {"reference", options->reference},
    };
    const struct {
        const char *name;
        bool value;
    } flags[] = {
        {"write", options->write},
        {"read", options->read},
        {"check_write", options->check_write},
        {"check_read", options->check_read},
        {"file_per_process", options->per_process},
        {"reorder_tasks", options->reorder},
        {"random_offset", options->random},
        {"unique_dir", options->unique_dir},
        {"multi_file", options->multi_file},
        {"fsync", options->fsync},
        {"fsync_per_write", options->fsync_each},
        {"barriers", options->barriers},
        {"keep_file", options->keep},
        {"use_existing", options->use_existing},
        {"direct", options->direct},
    };
    json_t *json = json_object();

    (void)json_object_set_new(json, "api", json_string(ior->io.ops->name));
    (void)json_object_set_new(json, "file", json_string(options->file));
    (void)json_object_set_new(json, "signature",
                              ior->is_marked ? stats_json_count(ior->signature) : json_null());
    for (size_t i = 0; i < BASE_ARRAY_LEN(numbers); i++) {
        (void)json_object_set_new(json, numbers[i].name, stats_json_count(numbers[i].value));
    }
    for (size_t i = 0; i < BASE_ARRAY_LEN(flags); i++) {
        (void)json_object_set_new(json, flags[i].name, json_boolean(flags[i].value));
    }
    return json;
}

static uint64_t
rank_total_ns(const struct ior_rank *rank)
{
    return rank->close.end_ns > rank->open.start_ns ? rank->close.end_ns - rank->open.start_ns : 0;
}

static json_t *
span_json(struct stats_span span)
{
    return stats_span_is_set(span) ? stats_json_count(span.end_ns - span.start_ns) : json_null();
}

/* The ranks that took longest, the slowest first. */
static json_t *
slowest_json(const struct ior_result *result, uint32_t rank_count)
{
    json_t *json = json_array();
    uint64_t below_ns = UINT64_MAX;
    uint32_t below = 0;

    for (uint32_t shown = 0; shown < SLOWEST_SHOWN && shown < rank_count; shown++) {
        uint32_t best = UINT32_MAX;

        /* The next in the order of (time down, rank up). */
        for (uint32_t i = 0; i < rank_count; i++) {
            const uint64_t ns = rank_total_ns(&result->ranks[i]);
            const bool is_after = ns < below_ns || (ns == below_ns && i > below);

            if (is_after && (best == UINT32_MAX || ns > rank_total_ns(&result->ranks[best]))) {
                best = i;
            }
        }
        if (best == UINT32_MAX) {
            break;
        }
        const struct ior_rank *rank = &result->ranks[best];
        below_ns = rank_total_ns(rank);
        below = best;
        (void)json_array_append_new(
            json, json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:I, s:I}", "rank", (json_int_t)best,
                            "total_ns", (json_int_t)below_ns, "open_ns", span_json(rank->open),
                            "transfer_ns", span_json(rank->transfer), "fsync_ns",
                            span_json(rank->sync), "close_ns", span_json(rank->close), "done_bytes",
                            (json_int_t)rank->bytes, "data_check_ns", (json_int_t)rank->check_ns));
    }
    return json;
}

static json_t *
result_json(const struct ior *ior, const struct ior_result *result)
{
    const bool moves = result->access != IOR_REMOVE;
    const bool is_checked =
        result->access == IOR_CHECK || (result->access == IOR_READ && ior->options.check_read);
    json_t *json = json_object();
    uint64_t check_ns = 0;

    for (uint32_t i = 0; i < ior->world.size; i++) {
        const uint64_t own_ns = result->ranks[i].check_ns;

        check_ns = own_ns > check_ns ? own_ns : check_ns;
    }
    (void)json_object_set_new(json, "access", json_string(ior_access_name(result->access)));
    (void)json_object_set_new(json, "iteration", stats_json_count(result->repetition));
    (void)json_object_set_new(json, "ok", json_boolean(!result->has_failed));
    (void)json_object_set_new(json, "stonewalled", json_boolean(result->is_stopped));
    (void)json_object_set_new(json, "done_bytes",
                              moves ? stats_json_count(result->bytes) : json_null());
    (void)json_object_set_new(json, "expected_bytes",
                              moves ? stats_json_count(result->expected_bytes) : json_null());
    (void)json_object_set_new(json, "transfers",
                              moves ? stats_json_count(result->transfers) : json_null());
    (void)json_object_set_new(json, "bandwidth_bytes_per_s", stats_json(result->bytes_per_s));
    (void)json_object_set_new(json, "transfers_ops_per_s", stats_json(result->ops_per_s));
    (void)json_object_set_new(json, "mean_latency_ns", stats_json(result->latency_s * 1e9));
    (void)json_object_set_new(json, "total", stats_json_spread(&result->total, ior->start_ns));
    (void)json_object_set_new(
        json, "open", moves ? stats_json_spread(&result->open, ior->start_ns) : json_null());
    (void)json_object_set_new(json, "transfer",
                              stats_json_spread(&result->transfer, ior->start_ns));
    (void)json_object_set_new(json, "fsync", stats_json_spread(&result->sync, ior->start_ns));
    (void)json_object_set_new(json, "close", stats_json_spread(&result->close, ior->start_ns));
    (void)json_object_set_new(json, "wrong_bytes",
                              is_checked ? stats_json_count(result->data_errors) : json_null());
    (void)json_object_set_new(json, "data_check_max_ns",
                              ior->is_marked ? stats_json_count(check_ns) : json_null());
    (void)json_object_set_new(json, "slowest_ranks",
                              moves ? slowest_json(result, ior->world.size) : json_null());
    return json;
}

static json_t *
summary_json(const struct ior *ior, enum ior_access access)
{
    const struct summary summary = summarise(ior, access);

    if (summary.seconds.count == 0) {
        return json_null();
    }
    return json_pack("{s:o, s:o, s:o}", "bandwidth",
                     stats_json_summary(&summary.bytes, "bytes_per_s"), "transfers",
                     stats_json_summary(&summary.ops, "ops_per_s"), "total",
                     stats_json_summary(&summary.seconds, "s"));
}

int
ior_report_json(const struct ior *ior, int exit_status)
{
    json_t *json =
        text_json_head(&ior->world, "causeway ior", ior->argc, ior->argv, ior->start_wall_ns);
    json_t *results = json_array();

    for (uint32_t i = 0; i < ior->result_count; i++) {
        (void)json_array_append_new(results, result_json(ior, &ior->results[i]));
    }
    (void)json_object_set_new(json, "options", options_json(ior));
    (void)json_object_set_new(json, "results", results);
    (void)json_object_set_new(json, "summary",
                              json_pack("{s:o, s:o}", "write", summary_json(ior, IOR_WRITE), "read",
                                        summary_json(ior, IOR_READ)));
    (void)json_object_set_new(json, "exit_status", json_integer(exit_status));
    return text_json_write(json, "causeway ior", ior->options.json);
}
