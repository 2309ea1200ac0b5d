/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The objects of an OST store, by FID, stripe and OST.
 */
#pragma once

#include "ptlrpc/proto/ost.h"
#include "servers/store/arena.h"
#include "servers/store/table.h"

/* Head of a store's own object. */
struct store_object {
    struct table_node node;
    struct ost_object key;
    struct ost_attr attr;
};

struct store_objects {
    struct table table;
    struct arena *arena; /* where objects come from */
    uint32_t object_bytes;
    uint64_t count_max;
    uint64_t seed;
    uint64_t *ost_counts; /* objects by OST */
};

/*
 * Makes an empty table. @object_bytes: of the store's own object with its head. @seed: as FIDs may
 * come from strangers. Errors: -ENOMEM.
 */
int store_objects_init(struct store_objects *objects, struct arena *arena, uint32_t object_bytes,
                       uint64_t count_max, uint32_t ost_count, uint64_t seed);
/* Ends it; the objects go with the arena. */
void store_objects_fini(struct store_objects *objects);
/* The object of @key, or NULL. */
struct store_object *store_objects_find(const struct store_objects *objects,
                                        const struct ost_object *key);
/*
 * Enters a new object, zeroed but for its key; the caller knows that there is none. NULL: count_max
 * are there, or the system has no memory.
 */
struct store_object *store_objects_add(struct store_objects *objects, const struct ost_object *key);
/* Takes an object out of the table; its memory stays until store_objects_free(). */
void store_objects_remove(struct store_objects *objects, struct store_object *object);
/* Frees a removed object's memory. */
void store_objects_free(struct store_objects *objects, struct store_object *object);
