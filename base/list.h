/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Intrusive doubly linked lists.
 *
 * A list is a ring of links with the head among them:
 *
 *     head <-> first <-> ... <-> last <-> head
 *
 * The link lives in the object and BASE_CONTAINER_OF() finds the object. A link that is on no list
 * points to itself, so unlinking twice is harmless and base_list_empty(&obj->link) says whether the
 * object is on a list. Links must be initialised before any other use.
 */
#pragma once

#include "base/assert.h"

#include <stdbool.h>

struct base_list {
    struct base_list *next;
    struct base_list *prev;
};

/* Makes @list an empty head, or a link that is on no list. */
static inline void
base_list_init(struct base_list *list)
{
    list->next = list;
    list->prev = list;
}

/* Whether the head @list has no members; for a link, whether it is on no list. */
static inline bool
base_list_empty(const struct base_list *list)
{
    return list->next == list;
}

/* The oldest member. @list must not be empty. */
static inline struct base_list *
base_list_first(const struct base_list *list)
{
    BASE_ASSERT(!base_list_empty(list));
    return list->next;
}

/* The youngest member. @list must not be empty. */
static inline struct base_list *
base_list_last(const struct base_list *list)
{
    BASE_ASSERT(!base_list_empty(list));
    return list->prev;
}

/* Takes @link off its list, if it is on one. */
static inline void
base_list_unlink(struct base_list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    base_list_init(link);
}

/* Makes @link the last member of @list. @link must be on no list. */
static inline void
base_list_append(struct base_list *list, struct base_list *link)
{
    BASE_ASSERT(base_list_empty(link));
    link->prev = list->prev;
    link->next = list;
    list->prev->next = link;
    list->prev = link;
}

/* Makes @link the first member of @list. @link must be on no list. */
static inline void
base_list_prepend(struct base_list *list, struct base_list *link)
{
    base_list_append(list->next, link);
}

/* Moves every member of @from, in order, behind those of @to. @from is empty afterwards. */
static inline void
base_list_move_all(struct base_list *to, struct base_list *from)
{
    if (base_list_empty(from)) {
        return;
    }
    from->next->prev = to->prev;
    from->prev->next = to;
    to->prev->next = from->next;
    to->prev = from->prev;
    base_list_init(from);
}

/* The number of members, by counting them. For tests and BASE_ASSERT_SIM(). */
static inline size_t
base_list_count(const struct base_list *list)
{
    size_t count = 0;

    for (const struct base_list *link = list->next; link != list; link = link->next) {
        count++;
    }
    return count;
}

/* Visits the members, oldest first. The body must not unlink @link. */
#define BASE_LIST_FOREACH(link, list) \
    for (struct base_list *link = (list)->next; link != (list); link = link->next)

/* As above; the body may unlink @link, and free what it is in, but no other member. */
#define BASE_LIST_FOREACH_SAFE(link, tmp, list)                                    \
    for (struct base_list *link = (list)->next, *tmp = link->next; link != (list); \
         link = tmp, tmp = link->next)
