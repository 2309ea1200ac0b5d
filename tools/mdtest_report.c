/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mdtest workload's tables, with the row and column labels of mdtest 4 so that scripts and eyes
 * can compare, and its JSON. See mdtest.h.
 *
 * Max, Min, Mean and Std Dev are over iterations; the rate of an iteration is what all ranks did,
 * divided by the time from the first one's start to the last one's end.
 */
#include "tools/mdtest.h"

#include "base/assert.h"
#include "base/clock.h"
#include "tools/workload_text.h"

#include <causeway/lnet.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOWEST_SHOWN 8u

static const char *
kind(const struct md_options *options)
{
    if (options->files_only) {
        return "files";
    }
    return options->dirs_only ? "directories" : "files/directories";
}

void
md_report_head(const struct mdtest *md)
{
    char text[64];
    char below[PATH_MAX];

    (void)printf("-- started at %s --\n\n", text_time(md->start_wall_ns, TEXT_MDTEST, text));
    (void)printf("causeway mdtest %d.%d was launched with %u total task(s) on %u node(s)\n",
                 LNET_VERSION_MAJOR, LNET_VERSION_MINOR, md->world.size, md->world.nodes);
    (void)printf("Command line used: ");
    text_command(md->argc, md->argv, stdout);
    (void)printf("%-20s: %s\n", "API", md->io.ops->name);
    (void)printf("%-20s: %s\n", "Path", md->options.path);
    (void)snprintf(below, sizeof(below), "%.*s/", PATH_MAX - 2, md->options.path);
    text_space(&md->io, below, stdout);
    if (md->options.stride > 0) {
        (void)printf("%-20s: %llu per phase\n", "Ranks shifted",
                     (unsigned long long)md->options.stride);
    }
    const uint64_t items = md->shape.items * md->world.size;
    (void)printf("%u tasks, %llu %s\n", md->world.size, (unsigned long long)items,
                 kind(&md->options));
    (void)fflush(stdout);
}

/* Does the table have a row for it, run or not? */
static bool
has_row(const struct md_options *options, enum md_phase phase)
{
    if (phase <= MD_DIR_REMOVE) {
        return !options->files_only;
    }
    return phase > MD_FILE_REMOVE || !options->dirs_only;
}

void
md_report_iteration(const struct mdtest *md)
{
    if (md->options.verbose + md->options.verbosity == 0) {
        return;
    }
    (void)printf("\niteration %u\n   Operation               Duration              Rate\n"
                 "   ---------               --------              ----\n",
                 md->iteration + 1);
    for (enum md_phase phase = 0; phase < MD_PHASE_COUNT; phase++) {
        const struct md_result result = md_result_of(md, md->iteration, phase);

        if (result.time.is_measured) {
            (void)printf("   %-18s: %14.6f sec, %14.3f ops/sec   slowest rank %u: %.6f s%s\n",
                         md_phase_name(phase), (double)result.time.total_ns / 1e9,
                         isnan(result.ops_per_s) ? 0 : result.ops_per_s, result.time.slowest,
                         (double)result.time.max_ns / 1e9, result.failed > 0 ? " (failures)" : "");
        }
    }
    (void)fflush(stdout);
}

/* Over all iterations: of the rates, or of the milliseconds an operation takes. */
static struct stats_summary
summarise(const struct mdtest *md, enum md_phase phase, bool is_time)
{
    double *values = calloc((size_t)md->iterations_done + 1, sizeof(*values));
    struct stats_summary summary = {0};

    if (values == NULL) {
        return summary;
    }
    for (uint32_t i = 0; i < md->iterations_done; i++) {
        const double rate = md_result_of(md, i, phase).ops_per_s;

        values[i] = is_time ? 1000 / rate : rate;
    }
    summary = stats_summarise(values, md->iterations_done);
    free(values);
    return summary;
}

static void
report_table(const struct mdtest *md, bool is_time)
{
    const int decimals = is_time ? 6 : 3;

    (void)printf("\nSUMMARY %s: (of %u iterations)\n"
                 "   Operation                     Max            Min           Mean        "
                 "Std Dev\n"
                 "   ---------                     ---            ---           ----        "
                 "-------\n",
                 is_time ? "time (in ms/op)" : "rate (in ops/sec)", md->iterations_done);
    for (enum md_phase phase = 0; phase < MD_PHASE_COUNT; phase++) {
        const struct stats_summary summary = summarise(md, phase, is_time);
        const bool has_any = summary.count > 0;

        if (has_row(&md->options, phase)) {
            (void)printf("   %-18s     %14.*f %14.*f %14.*f %14.*f\n", md_phase_name(phase),
                         decimals, has_any ? summary.max : 0, decimals, has_any ? summary.min : 0,
                         decimals, has_any ? summary.mean : 0, decimals,
                         has_any ? summary.sample_deviation : 0);
        }
    }
}

/* What the zeros in the table mean. */
static void
report_not_run(const struct mdtest *md)
{
    const char *separator = "not run: ";

    for (enum md_phase phase = 0; phase < MD_PHASE_COUNT; phase++) {
        if (has_row(&md->options, phase) && summarise(md, phase, false).count == 0) {
            (void)printf("%s%s", separator, md_phase_name(phase));
            separator = ", ";
        }
    }
    if (separator[0] == ',') {
        (void)printf("\n");
    }
}

static void
report_failures(const struct mdtest *md)
{
    for (enum md_phase phase = 0; phase < MD_PHASE_COUNT; phase++) {
        uint64_t failed = 0;
        uint64_t done = 0;

        for (uint32_t i = 0; i < md->iterations_done; i++) {
            const struct md_result result = md_result_of(md, i, phase);

            failed += result.failed;
            done += result.done;
        }
        if (failed > 0) {
            const uint64_t tried = failed + done;

            (void)printf("FAILED: %s: %llu of %llu operations; the rates are of those that "
                         "succeeded\n",
                         md_phase_name(phase), (unsigned long long)failed,
                         (unsigned long long)tried);
        }
    }
}

void
md_report_summary(const struct mdtest *md)
{
    char text[64];

    if (!md->options.print_time || md->options.print_both) {
        report_table(md, false);
    }
    if (md->options.print_time || md->options.print_both) {
        report_table(md, true);
    }
    report_not_run(md);
    report_failures(md);
    (void)printf("-- finished at %s --\n", text_time(base_clock_wall_ns(), TEXT_MDTEST, text));
}

/* ---- JSON ---- */

/* "File creation" as a key: "file_creation". */
static const char *
phase_key(enum md_phase phase, char text[32])
{
    size_t i = 0;

    for (const char *name = md_phase_name(phase); name[i] != '\0'; i++) {
        text[i] = (char)(name[i] == ' ' ? '_' : tolower((unsigned char)name[i]));
    }
    text[i] = '\0';
    return text;
}

static json_t *
options_json(const struct mdtest *md)
{
    const struct md_options *options = &md->options;
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"items_per_task", md->shape.items},
        {"items_per_directory", md->shape.per_dir},
        {"directories_per_tree", md->shape.dirs},
        {"branching", options->branching},
        {"depth", options->depth},
        {"stride_ranks", options->stride},
        {"iterations", options->iterations},
        {"write_bytes", options->write_bytes},
        {"read_bytes", options->read_bytes},
        {"pre_delay_ns", options->pre_delay_s * 1000000000u},
        {"random_seed", options->seed},
    };
    const struct {
        const char *name;
        bool value;
    } flags[] = {
        {"unique_dir_per_task", options->unique},
        {"leaf_only", options->leaf_only},
        {"files_only", options->files_only},
        {"dirs_only", options->dirs_only},
        {"create", options->create},
        {"stat", options->stat},
        {"read", options->read},
        {"remove", options->remove},
        {"rename", options->rename},
        {"sync", options->sync},
        {"mknod", options->mknod},
        {"random_stat", options->random},
        {"barriers", options->no_barriers == 0},
    };
    json_t *json = json_object();

    (void)json_object_set_new(json, "api", json_string(md->io.ops->name));
    (void)json_object_set_new(json, "path", json_string(options->path));
    for (size_t i = 0; i < BASE_ARRAY_LEN(numbers); i++) {
        (void)json_object_set_new(json, numbers[i].name, stats_json_count(numbers[i].value));
    }
    for (size_t i = 0; i < BASE_ARRAY_LEN(flags); i++) {
        (void)json_object_set_new(json, flags[i].name, json_boolean(flags[i].value));
    }
    return json;
}

struct slow_rank {
    uint64_t ns;
    uint32_t rank;
    const struct md_rank *of;
};

static int
compare_slow(const void *a, const void *b)
{
    const struct slow_rank *left = a;
    const struct slow_rank *right = b;

    if (left->ns != right->ns) {
        return left->ns > right->ns ? -1 : 1;
    }
    return left->rank < right->rank ? -1 : 1;
}

/* The ranks that took longest, the slowest first. */
static json_t *
slowest_json(const struct mdtest *md, uint32_t iteration, enum md_phase phase)
{
    struct slow_rank *slow = calloc(md->world.size, sizeof(*slow));
    json_t *json = json_array();
    uint32_t count = 0;

    for (uint32_t i = 0; slow != NULL && i < md->world.size; i++) {
        const struct md_rank *rank =
            &md->all[((size_t)iteration * md->world.size + i) * MD_PHASE_COUNT + phase];

        if (stats_span_is_set(rank->span)) {
            slow[count++] = (struct slow_rank){rank->span.end_ns - rank->span.start_ns, i, rank};
        }
    }
    if (count > 0) {
        qsort(slow, count, sizeof(*slow), compare_slow);
    }
    for (uint32_t i = 0; i < count && i < SLOWEST_SHOWN; i++) {
        (void)json_array_append_new(
            json,
            json_pack("{s:I, s:I, s:I, s:I, s:o}", "rank", (json_int_t)slow[i].rank, "total_ns",
                      (json_int_t)slow[i].ns, "done", (json_int_t)slow[i].of->done, "failed",
                      (json_int_t)slow[i].of->failed, "rate_ops_per_s",
                      stats_json(stats_rate((double)slow[i].of->done, slow[i].ns, true))));
    }
    free(slow);
    return json;
}

static json_t *
phase_json(const struct mdtest *md, uint32_t iteration, enum md_phase phase)
{
    const struct md_result result = md_result_of(md, iteration, phase);
    const char *status = result.failed > 0 ? "failures" : "ok";
    const bool has_run = result.time.is_measured;
    json_t *json = json_object();
    char key[32];

    (void)json_object_set_new(json, "phase", json_string(phase_key(phase, key)));
    (void)json_object_set_new(json, "status", json_string(has_run ? status : "not run"));
    (void)json_object_set_new(json, "done", has_run ? stats_json_count(result.done) : json_null());
    (void)json_object_set_new(json, "failed",
                              has_run ? stats_json_count(result.failed) : json_null());
    (void)json_object_set_new(json, "rate_ops_per_s", stats_json(result.ops_per_s));
    (void)json_object_set_new(json, "rank_min_ops_per_s", stats_json(result.rank_min_ops_per_s));
    (void)json_object_set_new(json, "rank_max_ops_per_s", stats_json(result.rank_max_ops_per_s));
    (void)json_object_set_new(json, "rank_mean_ops_per_s", stats_json(result.rank_mean_ops_per_s));
    (void)json_object_set_new(json, "time", stats_json_spread(&result.time, md->start_ns));
    (void)json_object_set_new(json, "slowest_ranks",
                              has_run ? slowest_json(md, iteration, phase) : json_null());
    return json;
}

int
md_report_json(const struct mdtest *md, int exit_status)
{
    json_t *json =
        text_json_head(&md->world, "causeway mdtest", md->argc, md->argv, md->start_wall_ns);
    json_t *results = json_array();
    json_t *summaries = json_object();
    char key[32];

    for (uint32_t i = 0; i < md->iterations_done; i++) {
        json_t *in_order = json_array();

        for (enum md_phase phase = 0; phase < MD_PHASE_COUNT; phase++) {
            (void)json_array_append_new(in_order, phase_json(md, i, phase));
        }
        (void)json_array_append_new(
            results, json_pack("{s:i, s:o}", "iteration", (int)i, "phases", in_order));
    }
    for (enum md_phase phase = 0; phase < MD_PHASE_COUNT; phase++) {
        const struct stats_summary summary = summarise(md, phase, false);

        (void)json_object_set_new(summaries, phase_key(phase, key),
                                  summary.count > 0 ? stats_json_summary(&summary, "ops_per_s")
                                                    : json_null());
    }
    (void)json_object_set_new(json, "options", options_json(md));
    (void)json_object_set_new(json, "results", results);
    (void)json_object_set_new(json, "summary", summaries);
    (void)json_object_set_new(json, "exit_status", json_integer(exit_status));
    return text_json_write(json, "causeway mdtest", md->options.json);
}
