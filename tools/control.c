/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control service of a reactor. See control.h.
 *
 * The text of the last question is kept per reactor, for its further pieces.
 */
#include "tools/control.h"

#include "base/assert.h"
#include "base/hist.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTROL_RQS_MAX 16

struct control {
    struct host_reactor *reactor;
    char *text;
    uint32_t text_bytes;
};

static json_t *
credits_json(const struct lnet_credit_stats *credits)
{
    return json_pack("{s:i, s:i, s:i}", "max_count", credits->max, "available_count",
                     credits->available, "min_count", credits->min);
}

static json_t *
counters_json(const struct lnet_counters *counters)
{
    json_t *json = json_object();
#define ADD(name) (void)json_object_set_new(json, #name, json_integer((json_int_t)counters->name))
    ADD(send_count);
    ADD(send_bytes);
    ADD(recv_count);
    ADD(recv_bytes);
    ADD(drop_count);
    ADD(drop_bytes);
    ADD(put_count);
    ADD(get_count);
    ADD(ack_count);
    ADD(reply_count);
    ADD(put_recv_count);
    ADD(get_recv_count);
    ADD(ack_recv_count);
    ADD(reply_recv_count);
    ADD(lost_count);
    ADD(rma_read_count);
    ADD(rma_read_bytes);
    ADD(rma_write_count);
    ADD(rma_write_bytes);
    ADD(rma_mapped_bytes);
    ADD(rma_cma_bytes);
    ADD(proto_error_count);
#undef ADD
    return json;
}

static json_t *
nis_json(const struct lnet *ctx)
{
    json_t *list = json_array();
    struct lnet_ni_info info;

    for (uint32_t i = 0; lnet_ni_info_get(ctx, i, &info) == 0; i++) {
        char nid[LNET_NID_TEXT_MAX];

        (void)json_array_append_new(
            list, json_pack("{s:s, s:b, s:i, s:s, s:o, s:o}", "nid", lnet_nid_format(info.nid, nid),
                            "is_up", info.is_up, "connection_count", (int)info.conn_count, "rma",
                            info.rma, "tx_credits", credits_json(&info.tx_credits), "counters",
                            counters_json(&info.counters)));
    }
    return list;
}

static json_t *
peers_json(const struct lnet *ctx)
{
    static const char *const states[] = {"down", "connecting", "up"};
    json_t *list = json_array();
    struct lnet_peer_info info;
    uint64_t cursor = 0;

    while (lnet_peer_info_next(ctx, &cursor, &info) == 0) {
        char name[LNET_PROC_TEXT_MAX];
        const struct lnet_credit_stats lnd = {.max = info.lnd_credits_max,
                                              .available = info.lnd_credits_available,
                                              .min = info.lnd_credits_min};

        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:i, s:o, s:o, s:o}", "process",
                            lnet_process_format(&info.process, name), "state", states[info.state],
                            "reference_count", (int)info.reference_count, "tx_credits",
                            credits_json(&info.tx_credits), "lnd_credits", credits_json(&lnd),
                            "counters", counters_json(&info.counters)));
    }
    return list;
}

/* count, mean and percentiles of a histogram, in the unit that @unit names. null when empty. */
static json_t *
hist_json(const struct base_hist *hist, const char *unit)
{
    static const struct {
        const char *name;
        double p;
    } points[] = {{"min", 0}, {"p50", .5}, {"p90", .9}, {"p99", .99}, {"p999", .999}, {"max", 1}};
    json_t *json = json_object();
    char key[32];

    if (hist == NULL || hist->count == 0) {
        json_decref(json);
        return json_null();
    }
    (void)json_object_set_new(json, "count", json_integer((json_int_t)hist->count));
    (void)snprintf(key, sizeof(key), "mean_%s", unit);
    (void)json_object_set_new(json, key, json_real(base_hist_mean(hist)));
    for (size_t i = 0; i < BASE_ARRAY_LEN(points); i++) {
        (void)snprintf(key, sizeof(key), "%s_%s", points[i].name, unit);
        (void)json_object_set_new(
            json, key, json_integer((json_int_t)base_hist_percentile(hist, points[i].p)));
    }
    return json;
}

static json_t *
op_json(const struct ptlrpc_op_stats *op)
{
    json_t *paths = json_object();

    for (int path = 0; path < BULK_PATH_COUNT; path++) {
        if (op->path_count[path] != 0) {
            (void)json_object_set_new(paths, bulk_path_name((enum bulk_path)path),
                                      json_integer((json_int_t)op->path_count[path]));
        }
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}",
                     "count", (json_int_t)op->count, "error_count", (json_int_t)op->error_count,
                     "resent_count", (json_int_t)op->resent_count, "moved_bytes",
                     (json_int_t)op->bytes, "bulk_path_counts", paths, "queue_ns",
                     (json_int_t)op->queue_ns, "service_ns", (json_int_t)op->service_ns, "bulk_ns",
                     (json_int_t)op->bulk_ns, "store_ns", (json_int_t)op->store_ns, "report_count",
                     (json_int_t)op->report_count, "total_ns", (json_int_t)op->total_ns, "wait_ns",
                     (json_int_t)op->wait_ns, "round_trip", hist_json(op->total, "ns"), "service",
                     hist_json(op->service, "ns"));
}

json_t *
control_service_json(const struct ptlrpc_service *service)
{
    struct ptlrpc_service_stats stats;
    struct ptlrpc_op_stats op;
    json_t *ops = json_object();

    ptlrpc_service_stats_get(service, &stats);
    for (uint32_t i = 0; ptlrpc_op_stats_get(service, i, &op) == 0; i++) {
        if (op.count != 0 || op.report_count != 0) {
            (void)json_object_set_new(ops, op.name, op_json(&op));
        }
    }
    return json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:o, s:o, s:o, s:o}", "name", stats.name,
        "portal", (int)stats.portal, "export_count", (int)stats.export_count, "rqs_max_count",
        (int)stats.rqs_max, "rqs_free_min_count", (int)stats.rqs_free_min, "req_active_count",
        (int)stats.req_active, "req_active_max_count", (int)stats.req_active_max, "req_count",
        (json_int_t)stats.req_count, "refused_count", (json_int_t)stats.refused_count,
        "req_waittime", hist_json(stats.req_waittime_ns, "ns"), "req_qdepth",
        hist_json(stats.req_qdepth, "count"), "req_active",
        hist_json(stats.req_active_hist, "count"), "ops", ops);
}

static json_t *
mds_json(const struct mds *mds)
{
    struct mds_stats stats;
    json_t *json = control_service_json(mds_service(mds));

    mds_stats_get(mds, &stats);
    (void)json_object_set_new(
        json, "mds",
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "inode_count",
                  (json_int_t)stats.inodes, "inode_max_count", (json_int_t)stats.inodes_max,
                  "directory_count", (json_int_t)stats.directories, "memory_bytes",
                  (json_int_t)stats.bytes, "open_handle_count", (json_int_t)stats.open_handles,
                  "orphan_count", (json_int_t)stats.orphans, "destroy_count",
                  (json_int_t)stats.destroys_done, "walk_moved_count",
                  (json_int_t)stats.moved_count, "remote_op_count", (json_int_t)stats.remote_ops));
    return json;
}

static json_t *
oss_json(const struct oss *oss)
{
    struct oss_stats stats;
    json_t *json = control_service_json(oss_service(oss));

    oss_stats_get(oss, &stats);
    (void)json_object_set_new(
        json, "oss",
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "object_count",
                  (json_int_t)stats.objects, "used_bytes", (json_int_t)stats.bytes_used,
                  "max_bytes", (json_int_t)stats.bytes_max, "prefaulted_bytes",
                  (json_int_t)stats.bytes_prefaulted, "page_bytes", (json_int_t)stats.page_bytes,
                  "lease_count", (json_int_t)stats.leases_out, "io_inline_count",
                  (json_int_t)stats.inline_count, "io_bulk_count", (json_int_t)stats.bulk_count,
                  "io_lease_count", (json_int_t)stats.lease_count, "crc_error_count",
                  (json_int_t)stats.crc_errors));
    return json;
}

static json_t *
stats_json(const struct host_reactor *reactor)
{
    json_t *services = json_array();

    if (reactor->mds != NULL) {
        (void)json_array_append_new(services, mds_json(reactor->mds));
    }
    if (reactor->oss != NULL) {
        (void)json_array_append_new(services, oss_json(reactor->oss));
    }
    (void)json_array_append_new(services, control_service_json(reactor->control));
    return services;
}

static json_t *
params_json(const struct host_reactor *reactor)
{
    struct lnet_limits limits;
    const struct host_options *options = &reactor->host->options;

    lnet_limits_get(reactor->ctx, &limits);
    return json_pack(
        "{s:s, s:i, s:i, s:s, s:I, s:I, s:I, s:i, s:i, s:i, s:i, s:I}", "name", options->name,
        "reactor", (int)reactor->index, "reactor_count", (int)options->reactors, "bulk_path",
        bulk_path_name((enum bulk_path)options->bulk_path), "timeout_ns",
        (json_int_t)options->timeout_ns, "put_max_bytes", (json_int_t)limits.put_bytes_max,
        "rma_max_bytes", (json_int_t)limits.rma_bytes_max, "iov_max_count", (int)limits.iov_max,
        "peers_max_count", (int)limits.peers_max, "mds_max_count", (int)limits.mds_max,
        "queued_messages_max_count", (int)limits.queued_messages_max, "peer_idle_bytes",
        (json_int_t)limits.peer_idle_bytes);
}

static int
make_text(struct control *control, uint32_t subject)
{
    const struct host_reactor *reactor = control->reactor;
    json_t *json = NULL;

    switch (subject) {
    case CONTROL_NIS:
        json = nis_json(reactor->ctx);
        break;
    case CONTROL_PEERS:
        json = peers_json(reactor->ctx);
        break;
    case CONTROL_STATS:
        json = stats_json(reactor);
        break;
    case CONTROL_PARAMS:
        json = params_json(reactor);
        break;
    default:
        return -EINVAL;
    }
    free(control->text);
    control->text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    control->text_bytes = control->text != NULL ? (uint32_t)strlen(control->text) : 0;
    return control->text != NULL ? 0 : -EAGAIN;
}

static void
control_get(struct ptlrpc_rq *rq)
{
    struct control *control = ptlrpc_service_user(ptlrpc_rq_service(rq));
    struct control_get_rep *rep = ptlrpc_rq_reply_body(rq);
    const uint32_t room = ptlrpc_body_bytes_max(control->reactor->rpc) - (uint32_t)sizeof(*rep);
    uint32_t bytes = 0;
    const struct control_get_req *req = ptlrpc_rq_body(rq, &bytes);
    int rc = 0;

    if (req->offset == 0) {
        rc = make_text(control, req->subject);
    }
    if (rc == 0 && req->offset > control->text_bytes) {
        rc = -ERANGE;
    }
    if (rc != 0) {
        ptlrpc_rq_reply(rq, rc, 0);
        return;
    }
    rep->text_bytes = control->text_bytes;
    rep->piece_bytes = BASE_MIN(room, control->text_bytes - req->offset);
    memcpy(rep + 1, control->text + req->offset, rep->piece_bytes);
    ptlrpc_rq_reply(rq, 0, (uint32_t)sizeof(*rep) + rep->piece_bytes);
}

static const struct ptlrpc_op control_ops[] = {
    {CONTROL_GET, 0, sizeof(struct control_get_req), "control_get", control_get},
};

int
control_serve(struct host_reactor *reactor)
{
    struct control *control = calloc(1, sizeof(*control));

    if (control == NULL) {
        return -ENOMEM;
    }
    control->reactor = reactor;
    const struct ptlrpc_service_options options = {
        .struct_bytes = sizeof(options),
        .portal = CONTROL_PORTAL,
        .name = "control",
        .ops = control_ops,
        .op_count = BASE_ARRAY_LEN(control_ops),
        .rqs_max = CONTROL_RQS_MAX,
        .user = control,
    };
    const int rc = ptlrpc_service_add(reactor->rpc, &options, &reactor->control);

    if (rc != 0) {
        free(control);
    }
    return rc;
}

void
control_end(struct host_reactor *reactor)
{
    struct control *control =
        reactor->control != NULL ? ptlrpc_service_user(reactor->control) : NULL;

    if (control != NULL) {
        free(control->text);
        free(control);
    }
}
