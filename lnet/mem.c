/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that peers reach by RMA: one registration at each LND that needs it, made when a window is
 * first opened there, and the dispatch of RMA to the peer's LND.
 *
 * A window's cookie is the LND's with the interface's index in its top 8 bits.
 */
#include "lnet/ctx.h"

#include <errno.h>
#include <stdlib.h>

#define COOKIE_NI_SHIFT 56u
#define PAGE_BYTES      4096u

struct lnet_mem {
    struct lnet *ctx;
    char *address;
    uint64_t bytes;
    struct lnet_lnd_mem *lnd[LNET_NIS_MAX];
};

static bool
ni_has_rma(const struct lnet_ni *ni)
{
    return (ni->ops->caps & LNET_LND_CAP_RMA) != 0;
}

/* The interface that most traffic goes over: the first with RMA besides lo, or else lo. */
static struct lnet_ni *
ni_preferred(const struct lnet *ctx)
{
    for (uint32_t i = 1; i < ctx->ni_count; i++) {
        if (ni_has_rma(ctx->nis[i])) {
            return ctx->nis[i];
        }
    }
    return ctx->nis[0];
}

/* The registration of @mem at @ni, made now if it is missing. */
static int
mem_at_ni(struct lnet_mem *mem, const struct lnet_ni *ni, struct lnet_lnd_mem **lnd_out)
{
    struct lnet_lnd_mem **lnd = &mem->lnd[ni->index];
    int rc = 0;

    if (*lnd == NULL) {
        rc = ni->ops->mem_register(ni->lnd, mem->address, mem->bytes, lnd);
    }
    *lnd_out = *lnd;
    return rc;
}

int
lnet_mem_alloc(struct lnet *ctx, uint64_t bytes, uint32_t flags, struct lnet_mem **mem_out,
               void **address_out)
{
    if (bytes == 0 || (flags & ~(uint32_t)LNET_MEM_LAZY) != 0 || ctx->is_closing) {
        return -EINVAL;
    }
    const struct lnet_ni *ni = ni_preferred(ctx);
    struct lnet_mem *mem = calloc(1, sizeof(*mem));
    void *address = NULL;

    if (mem == NULL) {
        return -ENOMEM;
    }
    const int rc = ni->ops->mem_alloc(ni->lnd, bytes, flags, &mem->lnd[ni->index], &address);

    if (rc != 0) {
        free(mem);
        return rc;
    }
    mem->ctx = ctx;
    mem->address = address;
    mem->bytes = bytes;
    *mem_out = mem;
    *address_out = address;
    return 0;
}

int
lnet_mem_register(struct lnet *ctx, void *address, uint64_t bytes, struct lnet_mem **mem_out)
{
    if (address == NULL || bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)address ||
        ctx->is_closing) {
        return -EINVAL;
    }
    struct lnet_mem *mem = calloc(1, sizeof(*mem));
    struct lnet_lnd_mem *lnd = NULL;

    if (mem == NULL) {
        return -ENOMEM;
    }
    mem->ctx = ctx;
    mem->address = address;
    mem->bytes = bytes;
    const int rc = mem_at_ni(mem, ni_preferred(ctx), &lnd);

    if (rc != 0) {
        free(mem);
        return rc;
    }
    *mem_out = mem;
    return 0;
}

void
lnet_mem_release(struct lnet_mem *mem)
{
    const struct lnet_ni *preferred = ni_preferred(mem->ctx);

    /* The one that may have allocated the memory comes last. */
    for (uint32_t i = 0; i < mem->ctx->ni_count; i++) {
        if (mem->lnd[i] != NULL && i != preferred->index) {
            mem->ctx->nis[i]->ops->mem_release(mem->lnd[i]);
        }
    }
    if (mem->lnd[preferred->index] != NULL) {
        preferred->ops->mem_release(mem->lnd[preferred->index]);
    }
    free(mem);
}

uint64_t
lnet_mem_page_bytes(const struct lnet_mem *mem)
{
    for (uint32_t i = mem->ctx->ni_count; i > 0; i--) {
        if (mem->lnd[i - 1] != NULL) {
            return mem->ctx->nis[i - 1]->ops->mem_page_bytes(mem->lnd[i - 1]);
        }
    }
    return PAGE_BYTES;
}

int /* NOLINTNEXTLINE(readability-function-size): the API has 7 parameters */
lnet_window_open(struct lnet_mem *mem, uint64_t offset_bytes, uint64_t length_bytes,
                 uint32_t access, struct lnet_peer *peer, struct lnet_window *window_out,
                 struct lnet_key *key_out)
{
    const struct lnet_ni *ni = peer->ni;
    struct lnet_lnd_mem *lnd = NULL;
    struct lnet_window window = {0};

    if (offset_bytes > mem->bytes || length_bytes > mem->bytes - offset_bytes || access == 0 ||
        (access & ~(uint32_t)(LNET_ACCESS_READ | LNET_ACCESS_WRITE)) != 0 ||
        mem->ctx != peer->ctx) {
        return -EINVAL;
    }
    if (!ni_has_rma(ni)) {
        return -EOPNOTSUPP;
    }
    int rc = mem_at_ni(mem, ni, &lnd);

    if (rc == 0) {
        rc = ni->ops->window_open(lnd, offset_bytes, length_bytes, access, &window, key_out);
    }
    if (rc != 0) {
        return rc;
    }
    BASE_ASSERT(window.cookie >> COOKIE_NI_SHIFT == 0);
    window_out->cookie = window.cookie | ((uint64_t)ni->index << COOKIE_NI_SHIFT);
    return 0;
}

int
lnet_window_close(struct lnet *ctx, struct lnet_window window)
{
    const uint64_t index = window.cookie >> COOKIE_NI_SHIFT;
    const uint64_t mask = (UINT64_C(1) << COOKIE_NI_SHIFT) - 1;

    if (index >= ctx->ni_count || !ni_has_rma(ctx->nis[index]) || ctx->nis[index]->lnd == NULL) {
        return -ESTALE;
    }
    return ctx->nis[index]->ops->window_close(ctx->nis[index]->lnd,
                                              (struct lnet_window){window.cookie & mask});
}

/* An RMA that is out. It holds a reference on its peer. */
struct rma_op {
    struct lnet_slot slot;
    struct lnet_peer *peer;
    uint64_t bytes;
    enum lnet_rma_path path;
    bool is_write;
    lnet_rma_fn done;
    void *user;
};

/* Books an RMA that moved its bytes. */
static void
rma_count(const struct rma_op *op)
{
    struct lnet_tally *tally = &op->peer->tally;

    if (op->is_write) {
        tally->rma_write_count++;
        tally->rma_write_bytes += op->bytes;
    } else {
        tally->rma_read_count++;
        tally->rma_read_bytes += op->bytes;
    }
    switch (op->path) {
    case LNET_RMA_MAPPED:
        tally->rma_mapped_bytes += op->bytes;
        break;
    case LNET_RMA_CMA:
        tally->rma_cma_bytes += op->bytes;
        break;
    case LNET_RMA_NONE:
        break;
    }
}

static void
rma_on_done(struct lnet *ctx, int status, void *user)
{
    struct rma_op *op = user;
    const lnet_rma_fn done = op->done;
    void *done_user = op->user;

    if (status == 0) {
        rma_count(op);
    }
    lnet_peer_put(op->peer);
    lnet_slots_return(&ctx->rmas, op);
    done(ctx, status, done_user);
}

int
lnet_rmas_init(struct lnet *ctx, uint32_t count_max)
{
    return lnet_slots_init(&ctx->rmas, sizeof(struct rma_op), count_max, base_prng_u64(&ctx->prng));
}

int
lnet_rma(struct lnet *ctx, const struct lnet_rma *rma)
{
    struct lnet_peer *peer = rma->peer;
    uint64_t bytes = 0;

    if (peer == NULL || peer->ctx != ctx || rma->key == NULL || rma->done == NULL ||
        rma->local_count > LNET_IOV_MAX || (rma->local == NULL && rma->local_count > 0)) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < rma->local_count; i++) {
        if (__builtin_add_overflow(bytes, rma->local[i].iov_len, &bytes)) {
            return -EINVAL;
        }
    }
    const struct lnet_lnd_ops *ops = peer->ni->ops;

    if (!ni_has_rma(peer->ni)) {
        return -EOPNOTSUPP;
    }
    if (bytes > ops->rma_bytes_max) {
        return -EMSGSIZE;
    }
    if (peer->state != LNET_PEER_UP) {
        return -ENOTCONN;
    }
    struct rma_op *op = lnet_slots_take(&ctx->rmas);

    if (op == NULL) {
        return -EAGAIN;
    }
    op->peer = peer;
    op->bytes = bytes;
    op->path = rma->path != LNET_RMA_NONE ? rma->path : ops->rma_path(peer->conn, rma->key);
    op->is_write = rma->is_write;
    op->done = rma->done;
    op->user = rma->user;

    const struct lnet_lnd_rma lnd_rma = {
        .key = rma->key,
        .remote_offset_bytes = rma->remote_offset_bytes,
        .local = rma->local,
        .local_count = rma->local_count,
        .is_write = rma->is_write,
        .path = rma->path,
        .done = rma_on_done,
        .ctx = ctx,
        .user = op,
    };
    const int rc = ops->rma(peer->conn, &lnd_rma);

    if (rc != 0) {
        lnet_slots_return(&ctx->rmas, op);
        return rc;
    }
    lnet_peer_hold(peer);
    return 0;
}

enum lnet_rma_path
lnet_rma_path(struct lnet_peer *peer, const struct lnet_key *key)
{
    if (peer->state != LNET_PEER_UP || !ni_has_rma(peer->ni)) {
        return LNET_RMA_NONE;
    }
    return peer->ni->ops->rma_path(peer->conn, key);
}
