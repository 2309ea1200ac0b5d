/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The objects of an OST store: see objects.h.
 */
#include "servers/store/objects.h"

#include "base/assert.h"
#include "base/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t
key_hash(const struct store_objects *objects, const struct ost_object *key)
{
    const uint64_t hash = base_hash_combine(objects->seed ^ key->fid.seq, key->fid.oid);

    return base_hash_u64(hash + ((uint64_t)key->stripe << 32) + key->ost + key->fid.ver);
}

static bool
key_equal(const struct ost_object *a, const struct ost_object *b)
{
    return fid_equal(&a->fid, &b->fid) && a->stripe == b->stripe && a->ost == b->ost;
}

int
store_objects_init(struct store_objects *objects, struct arena *arena, uint32_t object_bytes,
                   uint64_t count_max, uint32_t ost_count, uint64_t seed)
{
    *objects = (struct store_objects){
        .arena = arena, .object_bytes = object_bytes, .count_max = count_max, .seed = seed};
    objects->ost_counts = calloc(ost_count, sizeof(*objects->ost_counts));
    if (objects->ost_counts == NULL) {
        return -ENOMEM;
    }
    const int rc = table_init(&objects->table);

    if (rc != 0) {
        free(objects->ost_counts);
    }
    return rc;
}

void
store_objects_fini(struct store_objects *objects)
{
    table_fini(&objects->table);
    free(objects->ost_counts);
}

struct store_object *
store_objects_find(const struct store_objects *objects, const struct ost_object *key)
{
    TABLE_FOREACH_OF(node, &objects->table, key_hash(objects, key))
    {
        struct store_object *object = BASE_CONTAINER_OF(node, struct store_object, node);

        if (key_equal(&object->key, key)) {
            return object;
        }
    }
    return NULL;
}

struct store_object *
store_objects_add(struct store_objects *objects, const struct ost_object *key)
{
    if (objects->table.count >= objects->count_max) {
        return NULL;
    }
    struct store_object *object = arena_take(objects->arena, objects->object_bytes);

    if (object == NULL) {
        return NULL;
    }
    (void)memset(object, 0, objects->object_bytes);
    object->key = *key;
    table_insert(&objects->table, &object->node, key_hash(objects, key));
    objects->ost_counts[key->ost]++;
    return object;
}

void
store_objects_remove(struct store_objects *objects, struct store_object *object)
{
    table_remove(&objects->table, &object->node);
    objects->ost_counts[object->key.ost]--;
}

void
store_objects_free(struct store_objects *objects, struct store_object *object)
{
    arena_return(objects->arena, object, objects->object_bytes);
}
