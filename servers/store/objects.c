/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of objects: see objects.h.
 *
 * While the table doubles there are two arrays of buckets. A bucket of the old one is emptied as a
 * whole, so the number of the first that is not tells for any hash in which array its chain is.
 */
#include "servers/store/objects.h"

#include "base/assert.h"
#include "base/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN      ((uint64_t)1 << 14)
#define BUCKETS_PER_STEP 8u /* emptied per object added; more than 1 is enough to end in time */

static uint64_t
key_hash(const struct ost_object *key)
{
    return base_hash_u64(fid_hash(&key->fid) + ((uint64_t)key->stripe << 32) + key->ost +
                         key->fid.ver);
}

static bool
key_equal(const struct ost_object *a, const struct ost_object *b)
{
    return fid_equal(&a->fid, &b->fid) && a->stripe == b->stripe && a->ost == b->ost;
}

/* The bucket where @hash is now. */
static struct store_object **
bucket_of(const struct store_objects *objects, uint64_t hash)
{
    if (objects->old_buckets != NULL && (hash & objects->old_mask) >= objects->old_next) {
        return &objects->old_buckets[hash & objects->old_mask];
    }
    return &objects->buckets[hash & objects->mask];
}

int
store_objects_init(struct store_objects *objects, size_t object_bytes, uint64_t count_max,
                   uint32_t ost_count)
{
    *objects = (struct store_objects){.mask = BUCKETS_MIN - 1, .count_max = count_max};
    store_slab_init(&objects->slab, object_bytes);
    objects->buckets = calloc(BUCKETS_MIN, sizeof(*objects->buckets));
    objects->ost_counts = calloc(ost_count, sizeof(*objects->ost_counts));
    if (objects->buckets == NULL || objects->ost_counts == NULL) {
        store_objects_fini(objects);
        return -ENOMEM;
    }
    return 0;
}

void
store_objects_fini(struct store_objects *objects)
{
    store_slab_fini(&objects->slab);
    free(objects->buckets);
    free(objects->old_buckets);
    free(objects->ost_counts);
    *objects = (struct store_objects){0};
}

struct store_object *
store_objects_find(const struct store_objects *objects, const struct ost_object *key)
{
    struct store_object *object = *bucket_of(objects, key_hash(key));

    while (object != NULL && !key_equal(&object->key, key)) {
        object = object->next;
    }
    return object;
}

/* Begins to double the table. Without memory the chains get longer, which is slow and right. */
static void
grow_begin(struct store_objects *objects)
{
    const uint64_t count = (objects->mask + 1) * 2;
    struct store_object **buckets = calloc(count, sizeof(*buckets));

    if (buckets == NULL) {
        return;
    }
    objects->old_buckets = objects->buckets;
    objects->old_mask = objects->mask;
    objects->old_next = 0;
    objects->buckets = buckets;
    objects->mask = count - 1;
}

static void
grow_step(struct store_objects *objects)
{
    for (uint32_t i = 0; i < BUCKETS_PER_STEP && objects->old_next <= objects->old_mask; i++) {
        struct store_object *object = objects->old_buckets[objects->old_next++];

        while (object != NULL) {
            struct store_object *next = object->next;
            struct store_object **bucket =
                &objects->buckets[key_hash(&object->key) & objects->mask];

            object->next = *bucket;
            *bucket = object;
            object = next;
        }
    }
    if (objects->old_next > objects->old_mask) {
        free(objects->old_buckets);
        objects->old_buckets = NULL;
    }
}

struct store_object *
store_objects_add(struct store_objects *objects, const struct ost_object *key)
{
    if (objects->count >= objects->count_max) {
        return NULL;
    }
    struct store_object *object = store_slab_take(&objects->slab);

    if (object == NULL) {
        return NULL;
    }
    if (objects->old_buckets != NULL) {
        grow_step(objects);
    } else if (objects->count > objects->mask) {
        grow_begin(objects);
    }
    struct store_object **bucket = bucket_of(objects, key_hash(key));

    (void)memset(object, 0, objects->slab.object_bytes);
    object->key = *key;
    object->next = *bucket;
    *bucket = object;
    objects->count++;
    objects->ost_counts[key->ost]++;
    return object;
}

void
store_objects_remove(struct store_objects *objects, struct store_object *object)
{
    struct store_object **at = bucket_of(objects, key_hash(&object->key));

    while (*at != object) {
        BASE_ASSERT(*at != NULL);
        at = &(*at)->next;
    }
    *at = object->next;
    object->next = NULL;
    objects->count--;
    objects->ost_counts[object->key.ost]--;
}

void
store_objects_free(struct store_objects *objects, struct store_object *object)
{
    store_slab_return(&objects->slab, object);
}
