/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stand-in for LNet, as far as bulk/ uses it: contexts of one process that exchange messages and
 * memory accesses through queues, with faults on demand. Linked in place of the real one.
 */
#pragma once

#include "causeway/lnet.h"

struct fake_faults {
    uint32_t rma_again_every;   /* each n-th lnet_rma() is refused with -EAGAIN */
    uint32_t put_again_every;   /* each n-th put */
    uint32_t register_fails_at; /* the n-th lnet_mem_register() from now fails with -ENOMEM */
    uint32_t timer_fails_at;    /* the n-th lnet_timer_arm() from now fails with -EAGAIN */
    uint32_t bind_fails_at;     /* the n-th lnet_md_bind() from now fails with -EAGAIN */
    uint32_t rma_fails_at;      /* the n-th lnet_rma() from now ends with rma_status */
    int rma_status;
    bool is_rma_refused; /* no RMA at all: -EOPNOTSUPP, LNET_RMA_NONE */
    bool is_rma_mapped;  /* the path said for any key; else CMA */
    bool holds_rma;      /* RMA moves nothing and does not end before this is cleared */
    bool holds_messages;
    bool reorders;        /* messages are delivered newest first */
    uint32_t busy_closes; /* so many lnet_window_close() say -EBUSY first */
};

extern struct fake_faults fake_faults;

struct lnet *fake_lnet_open(uint32_t pid, uint64_t put_bytes_max);
void fake_lnet_close(struct lnet *ctx);

/* The connection between @ctx and @peer is gone: what is queued is dropped, watchers are told. */
void fake_disconnect(struct lnet *ctx, struct lnet_peer *peer);

/* What is alive, for "drained". */
uint32_t fake_md_count(const struct lnet *ctx);
uint32_t fake_mem_count(const struct lnet *ctx);
uint32_t fake_window_count(const struct lnet *ctx);
uint32_t fake_timer_count(const struct lnet *ctx);
int32_t fake_peer_references(const struct lnet *ctx);

/* The hdr_data of the last message of @ctx: where bulk/ puts the id of a transfer. */
uint64_t fake_last_hdr_data(const struct lnet *ctx);

/* Sends any message as @ctx: hostile ones. */
void fake_inject(struct lnet *ctx, struct lnet_peer *peer, uint64_t match_bits, uint64_t hdr_data,
                 uint64_t offset_bytes, const void *data, uint32_t bytes);
