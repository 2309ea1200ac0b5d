/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory descriptors: attach, bind, unlink, and the bytes behind them.
 */
#include "lnet/md.h"

#include "lnet/ctx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_KNOWN                                                                        \
    ((uint32_t)(LNET_MD_OP_PUT | LNET_MD_OP_GET | LNET_MD_MANAGE_REMOTE | LNET_MD_TRUNCATE | \
                LNET_MD_ACK_DISABLE | LNET_MD_MAX_SIZE | LNET_MD_IOV | LNET_MD_PEEK |        \
                LNET_MD_NO_SEND_EVENT | LNET_MD_RETAIN))

/* Whether @md describes something; PEEK needs no memory, and length 0 neither. */
static int
md_check(const struct lnet_md *md)
{
    const bool has_iov = (md->options & LNET_MD_IOV) != 0;
    uint64_t total_bytes = 0;

    if ((md->options & ~OPTIONS_KNOWN) != 0 || md->threshold == 0 || md->threshold < -1) {
        return -EINVAL;
    }
    if ((md->options & LNET_MD_MAX_SIZE) != 0 && md->max_size_bytes > md->length_bytes) {
        return -EINVAL;
    }
    if ((md->options & LNET_MD_PEEK) != 0) {
        return has_iov || (md->options & LNET_MD_OP_GET) != 0 ? -EINVAL : 0;
    }
    if (!has_iov) {
        return md->start == NULL && md->length_bytes > 0 ? -EINVAL : 0;
    }
    const struct iovec *iov = md->start;

    if (iov == NULL || md->iov_count == 0 || md->iov_count > LNET_IOV_MAX) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < md->iov_count; i++) {
        if (__builtin_add_overflow(total_bytes, iov[i].iov_len, &total_bytes)) {
            return -EINVAL;
        }
    }
    return total_bytes == md->length_bytes ? 0 : -EINVAL;
}

/* A new entry for @md, on no portal yet. Errors: -EINVAL, -EAGAIN. */
static int
entry_create(struct lnet *ctx, const struct lnet_md *md, struct lnet_entry **entry_out)
{
    struct iovec *iov = NULL;

    if (md_check(md) != 0) {
        return -EINVAL;
    }
    if (ctx->is_closing) {
        return -EAGAIN;
    }
    if ((md->options & LNET_MD_IOV) != 0) {
        iov = malloc(md->iov_count * sizeof(*iov));
        if (iov == NULL) {
            return -EAGAIN;
        }
        (void)memcpy(iov, md->start, md->iov_count * sizeof(*iov));
    }
    struct lnet_entry *entry = lnet_slots_take(&ctx->mds);

    if (entry == NULL) {
        free(iov);
        return -EAGAIN;
    }
    entry->options = md->options;
    entry->threshold = md->threshold;
    entry->length_bytes = md->length_bytes;
    entry->offset_bytes = 0;
    entry->handler = md->handler;
    entry->user = md->user;
    entry->max_size_bytes = md->max_size_bytes;
    entry->start = iov == NULL ? md->start : NULL;
    entry->iov = iov;
    entry->iov_count = iov == NULL ? 0 : md->iov_count;
    entry->portal = 0;
    entry->is_attached = false;
    entry->is_used_up = false;
    entry->is_gone = false;
    entry->op_count = 0;
    entry->pending.is_op = false;
    base_list_init(&entry->ops);
    base_list_init(&entry->match_link);
    base_list_init(&entry->pending.link);
    *entry_out = entry;
    return 0;
}

void
lnet_entry_free(struct lnet *ctx, struct lnet_entry *entry)
{
    BASE_ASSERT(entry->op_count == 0);
    base_list_unlink(&entry->match_link);
    base_list_unlink(&entry->pending.link);
    free(entry->iov);
    entry->iov = NULL;
    lnet_slots_return(&ctx->mds, entry);
}

int
lnet_entry_attach(struct lnet *ctx, const struct lnet_match *match, const struct lnet_md *md,
                  struct lnet_md_handle *md_out)
{
    struct lnet_entry *entry = NULL;
    int rc = entry_create(ctx, md, &entry);

    if (rc != 0) {
        return rc;
    }
    entry->match_bits = match->match_bits;
    entry->ignore_bits = match->ignore_bits;
    entry->from = match->from;
    entry->portal = match->portal;
    entry->is_attached = true;
    rc = lnet_portal_attach(&ctx->portals[match->portal], entry, match->at_head);
    if (rc != 0) {
        lnet_entry_free(ctx, entry);
        return rc;
    }
    md_out->cookie = entry->slot.cookie;
    return 0;
}

int
lnet_md_attach(struct lnet *ctx, const struct lnet_match *match, const struct lnet_md *md,
               struct lnet_md_handle *md_out)
{
    if (match->portal == 0 || match->portal >= LNET_PORTALS ||
        (md->options & (LNET_MD_OP_PUT | LNET_MD_OP_GET)) == 0) {
        return -EINVAL;
    }
    return lnet_entry_attach(ctx, match, md, md_out);
}

int
lnet_md_bind(struct lnet *ctx, const struct lnet_md *md, struct lnet_md_handle *md_out)
{
    struct lnet_entry *entry = NULL;

    if ((md->options & (LNET_MD_PEEK | LNET_MD_MAX_SIZE)) != 0) {
        return -EINVAL;
    }
    const int rc = entry_create(ctx, md, &entry);

    if (rc == 0) {
        md_out->cookie = entry->slot.cookie;
    }
    return rc;
}

int
lnet_md_unlink(struct lnet *ctx, struct lnet_md_handle md)
{
    struct lnet_entry *entry = lnet_slots_find(&ctx->mds, md.cookie);

    if (entry == NULL || entry->is_gone) {
        return -ESTALE;
    }
    entry->is_gone = true;
    base_list_unlink(&entry->match_link);
    if (entry->op_count == 0) {
        lnet_pend(ctx, &entry->pending);
        return 0;
    }
    /* The last of their events says that the MD is gone. */
    BASE_LIST_FOREACH(link, &entry->ops) {
        lnet_op_fail(BASE_CONTAINER_OF(link, struct lnet_op, md_link), -ECANCELED);
    }
    return 0;
}

void
lnet_entry_copy_in(struct lnet_entry *entry, uint64_t offset_bytes, const void *from,
                   uint64_t length_bytes)
{
    if (length_bytes == 0) {
        return;
    }
    if (BASE_LIKELY(entry->iov == NULL)) {
        (void)memcpy(entry->start + offset_bytes, from, length_bytes);
        return;
    }
    struct iovec iov[LNET_IOV_MAX];
    const uint32_t iov_count = lnet_entry_slice(entry, offset_bytes, length_bytes, iov);
    const char *at = from;

    for (uint32_t i = 0; i < iov_count; i++) {
        (void)memcpy(iov[i].iov_base, at, iov[i].iov_len);
        at += iov[i].iov_len;
    }
}

uint32_t
lnet_entry_slice(const struct lnet_entry *entry, uint64_t offset_bytes, uint64_t length_bytes,
                 struct iovec iov_out[LNET_IOV_MAX])
{
    uint32_t count = 0;

    BASE_ASSERT(offset_bytes <= entry->length_bytes);
    BASE_ASSERT(length_bytes <= entry->length_bytes - offset_bytes);
    if (length_bytes == 0) {
        return 0;
    }
    if (BASE_LIKELY(entry->iov == NULL)) {
        iov_out[0] =
            (struct iovec){.iov_base = entry->start + offset_bytes, .iov_len = length_bytes};
        return 1;
    }
    for (uint32_t i = 0; i < entry->iov_count && length_bytes > 0; i++) {
        const uint64_t piece_bytes = entry->iov[i].iov_len;

        if (offset_bytes >= piece_bytes) {
            offset_bytes -= piece_bytes;
            continue;
        }
        const uint64_t take_bytes = base_min_u64(piece_bytes - offset_bytes, length_bytes);

        iov_out[count++] = (struct iovec){.iov_base = (char *)entry->iov[i].iov_base + offset_bytes,
                                          .iov_len = take_bytes};
        length_bytes -= take_bytes;
        offset_bytes = 0;
    }
    return count;
}
