/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Statistics, gathered when somebody asks.
 *
 * The data path counts in one array how many requests were active whenever one started; the
 * histograms under Lustre's names are made from it here. No request waits at the server before it
 * starts, so req_waittime is all zeros: what waits does so in the network, and shows as the part of
 * a client's round trip that no other stage claims.
 */
#include "ptlrpc/import.h"
#include "ptlrpc/service.h"

#include <errno.h>
#include <string.h>

/* Adds @count records of @value, which is below 128 or rare. */
static void
hist_add(struct base_hist *hist, uint64_t value, uint64_t count)
{
    struct base_hist one;

    if (count == 0) {
        return;
    }
    base_hist_init(&one);
    base_hist_record(&one, value);
    one.count *= count;
    one.sum *= count;
    for (uint32_t i = 0; i < BASE_HIST_BUCKET_COUNT; i++) {
        one.buckets[i] *= count;
    }
    base_hist_merge(hist, &one);
}

void
ptlrpc_service_stats_get(const struct ptlrpc_service *service,
                         struct ptlrpc_service_stats *stats_out)
{
    struct ptlrpc_service_hists *hists = service->hists;

    base_hist_init(&hists->waittime);
    base_hist_init(&hists->qdepth);
    base_hist_init(&hists->active);
    hist_add(&hists->waittime, 0, service->req_count);
    for (uint32_t i = 1; i <= service->rqs_max; i++) {
        hist_add(&hists->qdepth, i - 1, service->active_counts[i]);
        hist_add(&hists->active, i, service->active_counts[i]);
    }
    *stats_out = (struct ptlrpc_service_stats){
        .name = service->name,
        .portal = service->options.portal,
        .export_count = service->export_count,
        .rqs_max = service->rqs_max,
        .rqs_free_min =
            base_max_u32(service->rqs.low_water, PTLRPC_RQS_RESERVED) - PTLRPC_RQS_RESERVED,
        .req_active = service->active,
        .req_active_max = service->active_max,
        .req_count = service->req_count,
        .refused_count = service->refused_count,
        .req_waittime_ns = &hists->waittime,
        .req_qdepth = &hists->qdepth,
        .req_active_hist = &hists->active,
        .duplicate_count = service->duplicate_count,
        .stale_count = service->stale_count,
        .busy_count = service->busy_count,
        .reply_drop_count = service->reply_drop_count,
    };
}

int
ptlrpc_op_stats_get(const struct ptlrpc_service *service, uint32_t index,
                    struct ptlrpc_op_stats *stats_out)
{
    if (index >= service->op_count) {
        return -ENOENT;
    }
    const struct ptlrpc_op_state *op = &service->ops[index];

    *stats_out = (struct ptlrpc_op_stats){
        .opc = op->op.opc,
        .name = op->op.name,
        .count = op->count,
        .error_count = op->error_count,
        .resent_count = op->resent_count,
        .bytes = op->bytes,
        .queue_ns = op->queue_ns,
        .service_ns = op->service_ns,
        .bulk_ns = op->bulk_ns,
        .store_ns = op->store_ns,
        .report_count = op->report_count,
        .total_ns = op->total_ns,
        .wait_ns = op->wait_ns,
        .total = op->total_hist,
        .service = op->service_hist,
    };
    (void)memcpy(stats_out->path_count, op->path_count, sizeof(stats_out->path_count));
    return 0;
}

void
ptlrpc_import_info_get(const struct ptlrpc_import *import, struct ptlrpc_import_info *info_out)
{
    *info_out = (struct ptlrpc_import_info){
        .target = lnet_peer_process(import->peer),
        .state = import->state,
        .max_rpcs_in_flight = import->max_rpcs,
        .in_flight = ptlrpc_import_in_flight(import),
        .in_flight_max = import->in_flight_max,
        .waiting = import->waiting_count,
        .waiting_max = import->waiting_max,
        .generation = import->generation,
        .sent_count = import->sent_count,
        .resend_count = import->resend_count,
        .timeout_count = import->timeout_count,
        .reply_count = import->reply_count,
        .late_reply_count = import->late_reply_count,
    };
    (void)memcpy(info_out->name, import->name, sizeof(info_out->name));
}
