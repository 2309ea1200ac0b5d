/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is counted on the data path: one set per peer, by message type, and nothing twice.
 *
 * An interface's counters are the sum over its peers plus what peers that are gone left behind; the
 * totals are made from the parts when somebody asks.
 */
#pragma once

#include "causeway/lnet.h"

#include <stdint.h>

struct lnet_tally {
    uint64_t sent[4]; /* by enum lnet_msg_type */
    uint64_t received[4];
    uint64_t sent_bytes; /* payload */
    uint64_t received_bytes;
    uint64_t drop_count, drop_bytes;
    uint64_t lost_count;
    uint64_t proto_error_count;
    uint64_t rma_read_count, rma_read_bytes;
    uint64_t rma_write_count, rma_write_bytes;
    uint64_t rma_mapped_bytes, rma_cma_bytes;
};

/* Adds @from to @to. */
void lnet_tally_add(struct lnet_tally *to, const struct lnet_tally *from);

/* Writes @tally in the public form. */
void lnet_tally_export(const struct lnet_tally *tally, struct lnet_counters *counters_out);
