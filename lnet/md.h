/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory descriptors: what peers may put into and get from, and what our own messages are made of.
 *
 * An MD is LINKED until it is used up or unlinked; then it is GONE and stays only for the event
 * that says so. The user's memory is touched for as long as that event has not been delivered, and
 * never after it.
 */
#pragma once

#include "causeway/lnet.h"

#include "lnet/pending.h"
#include "lnet/slots.h"

#include "base/list.h"

#define LNET_IOV_MAX 256u

struct lnet_entry {
    struct lnet_slot slot;

    /* What matching reads. */
    uint64_t match_bits;
    uint64_t ignore_bits;
    struct lnet_process from;
    uint32_t options;
    int32_t threshold; /* -1: any number */
    uint64_t length_bytes;

    uint64_t offset_bytes; /* the running one */
    lnet_handler_fn handler;
    void *user;

    uint64_t max_size_bytes;
    char *start;       /* NULL with LNET_MD_IOV */
    struct iovec *iov; /* our copy, with LNET_MD_IOV */
    uint32_t iov_count;
    uint32_t portal;

    bool is_attached;
    bool is_used_up; /* threshold or room is spent */
    bool is_gone;    /* unlinked by its owner */
    uint32_t op_count;
    struct base_list ops;        /* struct lnet_op.md_link */
    struct base_list match_link; /* in a portal */
    struct lnet_pending pending; /* LNET_EV_UNLINK to come */
};

/* Frees @entry after its last event was made. */
void lnet_entry_free(struct lnet *ctx, struct lnet_entry *entry);

/* Whether the next last event of @entry unlinks it. */
static inline bool
lnet_entry_is_ending(const struct lnet_entry *entry)
{
    return entry->is_gone || (entry->is_used_up && (entry->options & LNET_MD_RETAIN) == 0);
}

/* Copies @length_bytes bytes into the MD's memory at @offset_bytes; the caller checked the room. */
void lnet_entry_copy_in(struct lnet_entry *entry, uint64_t offset_bytes, const void *from,
                        uint64_t length_bytes);

/*
 * Describes @length_bytes bytes of the MD at @offset_bytes as at most LNET_IOV_MAX pieces. Returns
 * their number.
 */
uint32_t lnet_entry_slice(const struct lnet_entry *entry, uint64_t offset_bytes,
                          uint64_t length_bytes, struct iovec iov_out[LNET_IOV_MAX]);

/* Counts one event of @entry against its threshold. */
static inline void
lnet_entry_count(struct lnet_entry *entry)
{
    if (entry->threshold > 0 && --entry->threshold == 0) {
        entry->is_used_up = true;
    }
}
