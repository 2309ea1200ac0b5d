/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Portals: attaching, and the search beyond the first catch-all MD.
 */
#include "lnet/match.h"

#include "base/hash.h"

#include <errno.h>
#include <stdlib.h>

void
lnet_portals_init(struct lnet_portal portals[LNET_PORTALS])
{
    for (uint32_t i = 0; i < LNET_PORTALS; i++) {
        portals[i] = (struct lnet_portal){.kind = LNET_PORTAL_UNUSED};
        base_list_init(&portals[i].any);
    }
}

void
lnet_portals_fini(struct lnet_portal portals[LNET_PORTALS])
{
    for (uint32_t i = 0; i < LNET_PORTALS; i++) {
        BASE_ASSERT(base_list_empty(&portals[i].any));
        free(portals[i].chains);
        portals[i].chains = NULL;
    }
}

static struct base_list *
portal_chain(const struct lnet_portal *portal, uint64_t match_bits, const struct lnet_process *from)
{
    if (portal->kind == LNET_PORTAL_WILDCARD) {
        return &portal->chains[match_bits % LNET_MATCH_CHAINS];
    }
    const uint64_t hash =
        base_hash_combine(match_bits, from->nid.value ^ ((uint64_t)from->pid << 32));

    return &portal->chains[hash % LNET_MATCH_CHAINS];
}

static int
portal_add_chains(struct lnet_portal *portal)
{
    portal->chains = malloc(LNET_MATCH_CHAINS * sizeof(portal->chains[0]));
    if (portal->chains == NULL) {
        return -EAGAIN;
    }
    for (uint32_t i = 0; i < LNET_MATCH_CHAINS; i++) {
        base_list_init(&portal->chains[i]);
    }
    return 0;
}

int
lnet_portal_attach(struct lnet_portal *portal, struct lnet_entry *entry, bool at_head)
{
    const bool is_unique = entry->ignore_bits == 0 && entry->from.nid.value != LNET_NID_ANY &&
                           entry->from.pid != LNET_PID_ANY;
    const enum lnet_portal_kind kind = is_unique ? LNET_PORTAL_UNIQUE : LNET_PORTAL_WILDCARD;
    struct base_list *list = &portal->any;

    if (portal->kind != LNET_PORTAL_UNUSED && portal->kind != kind) {
        return -EPERM;
    }
    if (entry->ignore_bits == 0) {
        if (portal->chains == NULL && portal_add_chains(portal) != 0) {
            return -EAGAIN;
        }
        portal->kind = kind;
        list = portal_chain(portal, entry->match_bits, &entry->from);
    }
    portal->kind = kind;
    if (at_head) {
        base_list_prepend(list, &entry->match_link);
    } else {
        base_list_append(list, &entry->match_link);
    }
    return 0;
}

static struct lnet_entry *
chain_find(const struct base_list *chain, const struct lnet_peer *peer, const struct lnet_hdr *hdr,
           uint32_t op)
{
    BASE_LIST_FOREACH(link, chain) {
        struct lnet_entry *entry = BASE_CONTAINER_OF(link, struct lnet_entry, match_link);

        if (lnet_entry_takes(entry, peer, hdr, op)) {
            return entry;
        }
    }
    return NULL;
}

struct lnet_entry *
lnet_portal_find_slow(const struct lnet_portal *portal, const struct lnet_peer *peer,
                      const struct lnet_hdr *hdr, uint32_t op)
{
    struct lnet_entry *entry = chain_find(&portal->any, peer, hdr, op);

    if (entry == NULL && portal->chains != NULL) {
        entry = chain_find(portal_chain(portal, hdr->match_bits, &peer->process), peer, hdr, op);
    }
    return entry;
}
