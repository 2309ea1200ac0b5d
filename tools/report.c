/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The summary of a run. See report.h.
 *
 * The whole is what the clients waited for: their round trips, and the copies that they made
 * themselves. Stages add up to the whole: of each round trip that clients reported, total = wait +
 * wire + queue
 * + handler + bulk + store, where wire is what is left: both ways through the rings, and waking
 * whoever slept. The server's sums cover every request it executed, the reports all but those of
 * clients that were killed; where the counts differ the server's are scaled to the reports'.
 */
#include "tools/report.h"

#include "base/assert.h"
#include "base/hist.h"
#include "tools/control.h"

#include <stdlib.h>
#include <string.h>

#define OPS_MAX 64

struct op_sum {
    const char *name;
    uint64_t count, errors, bytes, reports;
    uint64_t paths[BULK_PATH_COUNT];
    double total_ns, wait_ns, queue_ns, service_ns, bulk_ns, store_ns;
    struct base_hist total;
};

struct sums {
    struct op_sum ops[OPS_MAX];
    uint32_t count;
    /* Copies that clients made to and from lent memory, by path: no part of a round trip. */
    uint64_t copies[BULK_PATH_COUNT], copied_bytes[BULK_PATH_COUNT];
    double copy_ns;
};

enum stage {
    STAGE_WAIT,
    STAGE_WIRE,
    STAGE_QUEUE,
    STAGE_HANDLER,
    STAGE_BULK,
    STAGE_STORE,
    STAGE_COPY,
};
#define STAGE_COUNT    7
#define STAGE_OP_COUNT 6 /* those of one op's round trips */

static const struct {
    const char *name;
    const char *key;
    const char *what;
} stages[STAGE_COUNT] = {
    {"slot wait", "slot_wait_ns", "waiting for a free RPC slot or credit at the client"},
    {"wire, wake-up", "wire_ns", "through the rings both ways, and waking who slept"},
    {"server queue", "server_queue_ns", "arrived, not yet started"},
    {"server CPU", "server_cpu_ns", "the handler itself"},
    {"server copy", "server_copy_ns", "bulk copies that the server makes"},
    {"store", "store_ns", "the back end"},
    {"client copy", "client_copy_ns", "copies that clients make to and from the server's memory"},
};

static struct op_sum *
sum_of(struct sums *sums, const char *name)
{
    for (uint32_t i = 0; i < sums->count; i++) {
        if (strcmp(sums->ops[i].name, name) == 0) {
            return &sums->ops[i];
        }
    }
    if (sums->count == OPS_MAX) {
        return NULL;
    }
    struct op_sum *sum = &sums->ops[sums->count++];
    sum->name = name;
    base_hist_init(&sum->total);
    return sum;
}

static void
add_service(struct sums *sums, const struct ptlrpc_service *service)
{
    struct ptlrpc_op_stats op;

    for (uint32_t i = 0; ptlrpc_op_stats_get(service, i, &op) == 0; i++) {
        struct op_sum *sum = op.count != 0 || op.report_count != 0 ? sum_of(sums, op.name) : NULL;

        if (sum == NULL) {
            continue;
        }
        sum->count += op.count;
        sum->errors += op.error_count;
        sum->bytes += op.bytes;
        sum->reports += op.report_count;
        for (int path = 0; path < BULK_PATH_COUNT; path++) {
            sum->paths[path] += op.path_count[path];
        }
        sum->total_ns += (double)op.total_ns;
        sum->wait_ns += (double)op.wait_ns;
        sum->queue_ns += (double)op.queue_ns;
        sum->service_ns += (double)op.service_ns;
        sum->bulk_ns += (double)op.bulk_ns;
        sum->store_ns += (double)op.store_ns;
        if (op.total != NULL) {
            base_hist_merge(&sum->total, op.total);
        }
    }
}

static void
add_copies(struct sums *sums, const struct oss *oss)
{
    struct oss_stats stats;

    oss_stats_get(oss, &stats);
    for (int path = 0; path < BULK_PATH_COUNT; path++) {
        sums->copies[path] += stats.copy_count[path];
        sums->copied_bytes[path] += stats.copy_bytes[path];
        sums->copy_ns += (double)stats.copy_ns[path];
    }
}

static struct sums *
sums_make(const struct host *host)
{
    struct sums *sums = calloc(1, sizeof(*sums));

    if (sums == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < host->reactor_count; i++) {
        const struct host_reactor *reactor = &host->reactors[i];

        if (reactor->mds != NULL) {
            add_service(sums, mds_service(reactor->mds));
        }
        if (reactor->oss != NULL) {
            add_service(sums, oss_service(reactor->oss));
            add_copies(sums, reactor->oss);
        }
    }
    return sums;
}

/* The stages of one op, in ns; they add up to its total_ns. */
static void
stages_of(const struct op_sum *op, double ns[STAGE_OP_COUNT])
{
    const double scale = op->count != 0 ? (double)op->reports / (double)op->count : 0;
    double known = 0;

    ns[STAGE_WAIT] = op->wait_ns;
    ns[STAGE_QUEUE] = op->queue_ns * scale;
    ns[STAGE_BULK] = op->bulk_ns * scale;
    ns[STAGE_STORE] = op->store_ns * scale;
    ns[STAGE_HANDLER] = (op->service_ns - op->bulk_ns - op->store_ns) * scale;
    known = ns[STAGE_WAIT] + ns[STAGE_QUEUE] + ns[STAGE_BULK] + ns[STAGE_STORE] + ns[STAGE_HANDLER];
    if (known > op->total_ns && known > op->wait_ns) {
        /* Killed clients' requests took longer than those that were reported: their share is not
         * known. */
        const double fit = (op->total_ns - op->wait_ns) / (known - op->wait_ns);

        for (int stage = STAGE_QUEUE; stage < STAGE_OP_COUNT; stage++) {
            ns[stage] *= fit;
        }
        known = op->total_ns;
    }
    ns[STAGE_WIRE] = op->total_ns - known;
}

static double
stages_total(const struct sums *sums, double ns[STAGE_COUNT], uint64_t *reports_out)
{
    double total = 0;

    memset(ns, 0, STAGE_COUNT * sizeof(ns[0]));
    *reports_out = 0;
    for (uint32_t i = 0; i < sums->count; i++) {
        double one[STAGE_OP_COUNT];

        stages_of(&sums->ops[i], one);
        for (int stage = 0; stage < STAGE_OP_COUNT; stage++) {
            ns[stage] += one[stage];
        }
        total += sums->ops[i].total_ns;
        *reports_out += sums->ops[i].reports;
    }
    ns[STAGE_COPY] = sums->copy_ns;
    return total + sums->copy_ns;
}

static void
print_ops(const struct sums *sums, double seconds, FILE *out)
{
    (void)fprintf(out, "%-18s %10s %7s %11s %9s %9s %10s\n", "op", "count", "errors", "rate/s",
                  "p50 us", "p99 us", "MiB");
    for (uint32_t i = 0; i < sums->count; i++) {
        const struct op_sum *op = &sums->ops[i];

        (void)fprintf(out, "%-18s %10llu %7llu %11.0f %9.1f %9.1f", op->name,
                      (unsigned long long)op->count, (unsigned long long)op->errors,
                      (double)op->count / seconds,
                      (double)base_hist_percentile(&op->total, .5) / 1e3,
                      (double)base_hist_percentile(&op->total, .99) / 1e3);
        if (op->bytes != 0) {
            (void)fprintf(out, " %10.1f", (double)op->bytes / 1048576.0);
        }
        (void)fprintf(out, "\n");
    }
}

/* One line per way that data took. */
static void
print_data(const struct sums *sums, double seconds, FILE *out)
{
    for (uint32_t i = 0; i < sums->count; i++) {
        const struct op_sum *op = &sums->ops[i];

        if (op->bytes == 0) {
            continue;
        }
        (void)fprintf(out, "%s: %.1f MiB/s (%.1f MB/s) over the run", op->name,
                      (double)op->bytes / seconds / 1048576.0, (double)op->bytes / seconds / 1e6);
        for (int path = 1; path < BULK_PATH_COUNT; path++) {
            if (op->paths[path] != 0) {
                (void)fprintf(out, "; %llu by bulk, %s", (unsigned long long)op->paths[path],
                              bulk_path_name((enum bulk_path)path));
            }
        }
        (void)fprintf(out, "\n");
    }
    for (int path = 1; path < BULK_PATH_COUNT; path++) {
        if (sums->copies[path] != 0) {
            (void)fprintf(out, "copied by clients, %s: %llu times, %.1f MiB\n",
                          bulk_path_name((enum bulk_path)path),
                          (unsigned long long)sums->copies[path],
                          (double)sums->copied_bytes[path] / 1048576.0);
        }
    }
}

static void
print_stages(const struct sums *sums, FILE *out)
{
    double ns[STAGE_COUNT];
    uint64_t reports = 0;
    const double total = stages_total(sums, ns, &reports);
    double sum = 0;

    if (reports == 0) {
        return;
    }
    (void)fprintf(out, "%-15s %10s %9s %7s  %s\n", "stage", "total s", "mean us", "share", "");
    for (int stage = 0; stage < STAGE_COUNT; stage++) {
        (void)fprintf(out, "%-15s %10.4f %9.2f %6.1f%%  %s\n", stages[stage].name, ns[stage] / 1e9,
                      ns[stage] / (double)reports / 1e3, 100 * ns[stage] / total,
                      stages[stage].what);
        sum += ns[stage];
    }
    (void)fprintf(out,
                  "%-15s %10.4f %9.2f %6.1f%%  of %llu round trips and the copies; whole: %.4f s\n",
                  "sum", sum / 1e9, sum / (double)reports / 1e3, 100 * sum / total,
                  (unsigned long long)reports, total / 1e9);
}

static uint64_t
page_bytes_of(const struct host *host)
{
    struct oss_stats stats = {0};

    if (host->reactor_count != 0 && host->reactors[0].oss != NULL) {
        oss_stats_get(host->reactors[0].oss, &stats);
    }
    return stats.page_bytes;
}

void
report_print(const struct host *host, const struct report_run *run, FILE *out)
{
    struct sums *sums = sums_make(host);
    const double seconds = (double)run->elapsed_ns / 1e9;

    if (sums == NULL) {
        return;
    }
    (void)fprintf(out, "\n--- causeway: %s: %.3f s, exit status %d\n", run->command, seconds,
                  run->exit_status);
    (void)fprintf(out, "servers: %u reactor(s), store %s, %u OST(s), %llu KiB pages;",
                  host->reactor_count, run->store, run->ost_count,
                  (unsigned long long)page_bytes_of(host) / 1024);
    for (uint32_t i = 0; i < host->reactor_count; i++) {
        (void)fprintf(out, " CPU of reactor %u: %.3f s", i, (double)host->reactors[i].cpu_ns / 1e9);
    }
    (void)fprintf(out, "\n\n");
    print_ops(sums, seconds, out);
    (void)fprintf(out, "\n");
    print_data(sums, seconds, out);
    (void)fprintf(out, "\n");
    print_stages(sums, out);
    free(sums);
}

static json_t *
op_sum_json(const struct op_sum *op, double seconds)
{
    double ns[STAGE_OP_COUNT];
    json_t *stage_ns = json_object();
    json_t *paths = json_object();

    stages_of(op, ns);
    for (int stage = 0; stage < STAGE_OP_COUNT; stage++) {
        (void)json_object_set_new(stage_ns, stages[stage].key, json_real(ns[stage]));
    }
    for (int path = 1; path < BULK_PATH_COUNT; path++) {
        (void)json_object_set_new(paths, bulk_path_name((enum bulk_path)path),
                                  json_integer((json_int_t)op->paths[path]));
    }
    return json_pack("{s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:o, s:f, s:o}", "count",
                     (json_int_t)op->count, "error_count", (json_int_t)op->errors, "rate_ops_per_s",
                     (double)op->count / seconds, "moved_bytes", (json_int_t)op->bytes, "p50_ns",
                     (json_int_t)base_hist_percentile(&op->total, .5), "p99_ns",
                     (json_int_t)base_hist_percentile(&op->total, .99), "reported_count",
                     (json_int_t)op->reports, "bulk_path_counts", paths, "total_ns", op->total_ns,
                     "stages", stage_ns);
}

json_t *
report_json(const struct host *host, const struct report_run *run)
{
    struct sums *sums = sums_make(host);
    const double seconds = (double)run->elapsed_ns / 1e9;
    json_t *ops = json_object();
    json_t *cpu = json_array();
    json_t *copies = json_object();
    const double copy_ns = sums != NULL ? sums->copy_ns : 0;

    for (uint32_t i = 0; sums != NULL && i < sums->count; i++) {
        (void)json_object_set_new(ops, sums->ops[i].name, op_sum_json(&sums->ops[i], seconds));
    }
    for (int path = 1; sums != NULL && path < BULK_PATH_COUNT; path++) {
        (void)json_object_set_new(copies, bulk_path_name((enum bulk_path)path),
                                  json_pack("{s:I, s:I}", "count", (json_int_t)sums->copies[path],
                                            "copied_bytes", (json_int_t)sums->copied_bytes[path]));
    }
    for (uint32_t i = 0; i < host->reactor_count; i++) {
        (void)json_array_append_new(cpu, json_integer((json_int_t)host->reactors[i].cpu_ns));
    }
    free(sums);
    return json_pack("{s:i, s:s, s:s, s:i, s:i, s:I, s:i, s:o, s:o, s:f, s:o}", "schema_version", 1,
                     "command", run->command, "store", run->store, "reactor_count",
                     (int)host->reactor_count, "ost_count", (int)run->ost_count, "elapsed_ns",
                     (json_int_t)run->elapsed_ns, "exit_status", run->exit_status, "reactor_cpu_ns",
                     cpu, "client_copies", copies, "client_copy_ns", copy_ns, "ops", ops);
}
