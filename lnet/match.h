/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Portals: which memory descriptor takes a message.
 *
 *   wildcard portal   any[] (those with ignore bits) before chains[match_bits & 0xff]
 *   unique portal     chains[hash(match_bits, nid, pid)], no ignore bits, concrete addresses
 *
 * The kind is for good from the first attach on. The first MD of the list that fits takes the
 * message, so requests that all land in one catch-all MD cost one comparison.
 */
#pragma once

#include "lnet/md.h"
#include "lnet/peer.h"

#include "lnet/lnd/lnd.h"

#define LNET_MATCH_CHAINS 256u

enum lnet_portal_kind { LNET_PORTAL_UNUSED, LNET_PORTAL_WILDCARD, LNET_PORTAL_UNIQUE };

struct lnet_portal {
    struct base_list any;
    struct base_list *chains; /* allocated by the first attach that needs them */
    enum lnet_portal_kind kind;
};

/* Makes empty portals of no kind yet. */
void lnet_portals_init(struct lnet_portal portals[LNET_PORTALS]);

/* Frees the chains, on which no MD is left. */
void lnet_portals_fini(struct lnet_portal portals[LNET_PORTALS]);

/* Puts @entry, whose match fields are set, on @portal. Errors: -EPERM the other kind; -EAGAIN. */
int lnet_portal_attach(struct lnet_portal *portal, struct lnet_entry *entry, bool at_head);

/* The part of lnet_portal_find() beyond the first MD. */
struct lnet_entry *lnet_portal_find_slow(const struct lnet_portal *portal,
                                         const struct lnet_peer *peer, const struct lnet_hdr *hdr,
                                         uint32_t op);

/* Whether @entry takes the message @hdr of @peer; @op is LNET_MD_OP_PUT or _GET. */
static inline bool
lnet_entry_takes(const struct lnet_entry *entry, const struct lnet_peer *peer,
                 const struct lnet_hdr *hdr, uint32_t op)
{
    return ((hdr->match_bits ^ entry->match_bits) & ~entry->ignore_bits) == 0 &&
           (entry->options & op) != 0 && !entry->is_used_up &&
           (entry->from.nid.value == LNET_NID_ANY ||
            entry->from.nid.value == peer->process.nid.value) &&
           (entry->from.pid == LNET_PID_ANY || entry->from.pid == peer->process.pid);
}

/* The MD that takes the message @hdr of @peer, or NULL. */
static inline struct lnet_entry *
lnet_portal_find(const struct lnet_portal *portal, const struct lnet_peer *peer,
                 const struct lnet_hdr *hdr, uint32_t op)
{
    if (BASE_LIKELY(!base_list_empty(&portal->any))) {
        struct lnet_entry *first =
            BASE_CONTAINER_OF(portal->any.next, struct lnet_entry, match_link);

        if (BASE_LIKELY(lnet_entry_takes(first, peer, hdr, op))) {
            return first;
        }
    }
    return lnet_portal_find_slow(portal, peer, hdr, op);
}
