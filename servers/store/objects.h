/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of a store's objects: a hash table with chains that doubles a few buckets at a time, so
 * that no single operation pays for it.
 */
#pragma once

#include "ptlrpc/proto/ost.h"
#include "servers/store/slab.h"

#include <stdbool.h>

/* Head of a store's own object. */
struct store_object {
    struct ost_object key;
    struct store_object *next; /* in the bucket */
    struct ost_attr attr;
};

struct store_objects {
    struct store_object **buckets;
    uint64_t mask;
    struct store_object **old_buckets; /* being emptied into `buckets`; NULL: all are */
    uint64_t old_mask;
    uint64_t old_next; /* first bucket of the old that has not been emptied */
    uint64_t count;
    uint64_t count_max;
    uint64_t *ost_counts; /* by OST */
    struct store_slab slab;
};

/* @object_bytes: of the store's own object with its head. Errors: -ENOMEM. */
int store_objects_init(struct store_objects *objects, size_t object_bytes, uint64_t count_max,
                       uint32_t ost_count);
/* Frees all memory, that of objects too. */
void store_objects_fini(struct store_objects *objects);
/* The object of @key, or NULL. */
struct store_object *store_objects_find(const struct store_objects *objects,
                                        const struct ost_object *key);
/* Takes memory for an object and enters it, zeroed but for its key; the caller knows that it is
 * absent. NULL: count_max or no memory. */
struct store_object *store_objects_add(struct store_objects *objects, const struct ost_object *key);
/* Takes an object out of the table; its memory stays until store_objects_free(). */
void store_objects_remove(struct store_objects *objects, struct store_object *object);
/* Frees a removed object's memory. */
void store_objects_free(struct store_objects *objects, struct store_object *object);
