/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits and statistics, made when somebody asks from what the data path counted.
 */
#include "lnet/ctx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void
lnet_tally_add(struct lnet_tally *to, const struct lnet_tally *from)
{
    for (uint32_t i = 0; i < 4; i++) {
        to->sent[i] += from->sent[i];
        to->received[i] += from->received[i];
    }
    to->sent_bytes += from->sent_bytes;
    to->received_bytes += from->received_bytes;
    to->drop_count += from->drop_count;
    to->drop_bytes += from->drop_bytes;
    to->lost_count += from->lost_count;
    to->proto_error_count += from->proto_error_count;
    to->rma_read_count += from->rma_read_count;
    to->rma_read_bytes += from->rma_read_bytes;
    to->rma_write_count += from->rma_write_count;
    to->rma_write_bytes += from->rma_write_bytes;
    to->rma_mapped_bytes += from->rma_mapped_bytes;
    to->rma_cma_bytes += from->rma_cma_bytes;
}

static uint64_t
sum_by_type(const uint64_t count[4])
{
    return count[LNET_MSG_ACK] + count[LNET_MSG_PUT] + count[LNET_MSG_GET] + count[LNET_MSG_REPLY];
}

void
lnet_tally_export(const struct lnet_tally *tally, struct lnet_counters *counters_out)
{
    *counters_out = (struct lnet_counters){
        .send_count = sum_by_type(tally->sent),
        .send_bytes = tally->sent_bytes,
        .recv_count = sum_by_type(tally->received),
        .recv_bytes = tally->received_bytes,
        .drop_count = tally->drop_count,
        .drop_bytes = tally->drop_bytes,
        .put_count = tally->sent[LNET_MSG_PUT],
        .get_count = tally->sent[LNET_MSG_GET],
        .ack_count = tally->sent[LNET_MSG_ACK],
        .reply_count = tally->sent[LNET_MSG_REPLY],
        .put_recv_count = tally->received[LNET_MSG_PUT],
        .get_recv_count = tally->received[LNET_MSG_GET],
        .ack_recv_count = tally->received[LNET_MSG_ACK],
        .reply_recv_count = tally->received[LNET_MSG_REPLY],
        .lost_count = tally->lost_count,
        .rma_read_count = tally->rma_read_count,
        .rma_read_bytes = tally->rma_read_bytes,
        .rma_write_count = tally->rma_write_count,
        .rma_write_bytes = tally->rma_write_bytes,
        .rma_mapped_bytes = tally->rma_mapped_bytes,
        .rma_cma_bytes = tally->rma_cma_bytes,
        .proto_error_count = tally->proto_error_count,
    };
}

static struct lnet_credit_stats
credits_export(const struct lnet_credits *credits)
{
    return (struct lnet_credit_stats){
        .max = credits->max, .available = credits->available, .min = credits->min};
}

void
lnet_limits_get(const struct lnet *ctx, struct lnet_limits *limits_out)
{
    uint64_t put_bytes_max = UINT64_MAX;
    uint64_t rma_bytes_max = UINT64_MAX;
    uint64_t ring_bytes = 0;

    /* lo counts only when there is nothing else. */
    for (uint32_t i = ctx->ni_count > 1 ? 1 : 0; i < ctx->ni_count; i++) {
        const struct lnet_lnd_ops *ops = ctx->nis[i]->ops;

        put_bytes_max = base_min_u64(put_bytes_max, ops->eager_bytes_max);
        if ((ops->caps & LNET_LND_CAP_RMA) != 0) {
            rma_bytes_max = base_min_u64(rma_bytes_max, ops->rma_bytes_max);
        }
        if (i > 0) {
            ring_bytes = base_max_u64(ring_bytes, ctx->nis[i]->ring_bytes);
        }
    }
    *limits_out = (struct lnet_limits){
        .put_bytes_max = put_bytes_max,
        .rma_bytes_max = rma_bytes_max == UINT64_MAX ? 0 : rma_bytes_max,
        .iov_max = LNET_IOV_MAX,
        .peers_max = ctx->peers_max,
        .mds_max = ctx->mds_max,
        .queued_messages_max = ctx->queued_messages_max,
        /* A ring each way, and a page for what the LND keeps beside them. */
        .peer_idle_bytes = sizeof(struct lnet_peer) + 2 * ring_bytes + 4096,
    };
}

int
lnet_ni_info_get(const struct lnet *ctx, uint32_t index, struct lnet_ni_info *info_out)
{
    if (index >= ctx->ni_count) {
        return -ENOENT;
    }
    const struct lnet_ni *ni = ctx->nis[index];
    struct lnet_tally tally = ni->gone;
    struct lnet_ni_info info = {
        .nid = ni->nid,
        .is_up = true,
        .tx_credits = credits_export(&ni->credits),
        .conn_count = ni->conn_count,
    };

    for (uint32_t i = 0; i < LNET_PEER_BUCKETS; i++) {
        BASE_LIST_FOREACH(link, &ctx->peer_buckets[i]) {
            const struct lnet_peer *peer = BASE_CONTAINER_OF(link, struct lnet_peer, hash_link);

            if (peer->ni == ni) {
                lnet_tally_add(&tally, &peer->tally);
            }
        }
    }
    lnet_tally_export(&tally, &info.counters);
    ni->ops->describe(ni->lnd, info.rma, sizeof(info.rma));
    *info_out = info;
    return 0;
}

static void
peer_export(const struct lnet_peer *peer, struct lnet_peer_info *info_out)
{
    struct lnet_lnd_credit_info lnd = {0};

    if (peer->state == LNET_PEER_UP) {
        peer->ni->ops->credits(peer->conn, &lnd);
    }
    *info_out = (struct lnet_peer_info){
        .process = peer->process,
        .state = peer->state,
        .reference_count = peer->reference_count,
        .tx_credits = credits_export(&peer->credits),
        .lnd_credits_max = lnd.max,
        .lnd_credits_available = lnd.available,
        .lnd_credits_min = lnd.min,
    };
    lnet_tally_export(&peer->tally, &info_out->counters);
}

/* The cursor: bucket in the high half, place in its chain in the low half. */
int
lnet_peer_info_next(const struct lnet *ctx, uint64_t *cursor, struct lnet_peer_info *info_out)
{
    for (uint64_t bucket = *cursor >> 32; bucket < LNET_PEER_BUCKETS; bucket++) {
        uint32_t skip = bucket == *cursor >> 32 ? (uint32_t)*cursor : 0;

        BASE_LIST_FOREACH(link, &ctx->peer_buckets[bucket]) {
            if (skip > 0) {
                skip--;
                continue;
            }
            peer_export(BASE_CONTAINER_OF(link, struct lnet_peer, hash_link), info_out);
            *cursor = bucket << 32 | ((bucket == *cursor >> 32 ? (uint32_t)*cursor : 0) + 1);
            return 0;
        }
    }
    return -ENOENT;
}
