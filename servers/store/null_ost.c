/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The `null` store: objects have sizes and times, their bytes are thrown away.
 *
 * Every map is of the same scratch memory, so that RPC and bulk do all their work: the ceiling of
 * both. Reads return whatever was last written to any object: run it with one's own data, not for
 * keeping any.
 */
#include "servers/store/objects.h"
#include "servers/store/stores.h"

#include "base/assert.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct object {
    struct store_object base;
    uint64_t append_end;
    uint32_t append_count;
    uint32_t write_count; /* maps under way */
    bool is_destroyed;
    bool is_made;
};

struct null_store {
    struct ost_store base;
    struct store_objects objects;
    struct arena arena;
    struct ost_store_memory memory;
    void *region;
    unsigned char *scratch;
    uint32_t ost_count;
    uint64_t bytes_max;
    uint64_t maps_out;
};

static_assert(offsetof(struct null_store, base) == 0, "cast in stats_get");

static struct null_store *
null_of(struct ost_store *store)
{
    return BASE_CONTAINER_OF(store, struct null_store, base);
}

static struct object *
object_find(const struct null_store *null, const struct ost_object *key)
{
    struct store_object *found = store_objects_find(&null->objects, key);

    return found != NULL ? BASE_CONTAINER_OF(found, struct object, base) : NULL;
}

static struct object *
object_get(struct null_store *null, const struct ost_object *key)
{
    struct object *object = object_find(null, key);

    if (object == NULL) {
        struct store_object *made = store_objects_add(&null->objects, key);

        object = made != NULL ? BASE_CONTAINER_OF(made, struct object, base) : NULL;
    }
    return object;
}

static void
object_release(struct null_store *null, struct object *object)
{
    if (object->write_count > 0 || object->append_count > 0) {
        return;
    }
    if (!object->is_destroyed) {
        if (object->is_made) {
            return;
        }
        store_objects_remove(&null->objects, &object->base);
    }
    store_objects_free(&null->objects, &object->base);
}

static void
scratch_map(struct null_store *null, struct ost_store_op *op)
{
    op->iov[0] = (struct iovec){.iov_base = null->scratch, .iov_len = op->length};
    op->iov_count = op->length > 0;
    null->maps_out++;
}

static int
null_create(struct ost_store *store, struct ost_store_op *op)
{
    struct object *object = object_get(null_of(store), &op->object);

    if (object == NULL) {
        return -ENOSPC;
    }
    if (!object->is_made) {
        object->is_made = true;
        object->base.attr.ctime_ns = op->now_ns;
    }
    op->attr = object->base.attr;
    return 0;
}

static int
null_destroy(struct ost_store *store, struct ost_store_op *op)
{
    struct null_store *null = null_of(store);
    struct object *object = object_find(null, &op->object);

    if (object != NULL) {
        store_objects_remove(&null->objects, &object->base);
        object->is_destroyed = true;
        object_release(null, object);
    }
    return 0;
}

static int
null_getattr(struct ost_store *store, struct ost_store_op *op)
{
    const struct object *object = object_find(null_of(store), &op->object);

    op->attr = object != NULL ? object->base.attr : (struct ost_attr){0};
    return 0;
}

static int
null_setattr(struct ost_store *store, struct ost_store_op *op)
{
    struct object *object = object_find(null_of(store), &op->object);

    if (object != NULL) {
        object->base.attr.mtime_ns = op->times[0];
        object->base.attr.ctime_ns = op->times[1];
    }
    return null_getattr(store, op);
}

static int
null_punch(struct ost_store *store, struct ost_store_op *op)
{
    struct null_store *null = null_of(store);
    struct object *object = object_find(null, &op->object);

    op->attr = (struct ost_attr){0};
    if (object == NULL) {
        if (op->length != UINT64_MAX || op->offset == 0) {
            return 0;
        }
        object = object_get(null, &op->object);
        if (object == NULL) {
            return -ENOSPC;
        }
    }
    if (op->offset < op->length) {
        if (op->length == UINT64_MAX) {
            object->base.attr.size = op->offset;
        }
        object->is_made = true;
        object->base.attr.mtime_ns = op->now_ns;
        object->base.attr.ctime_ns = op->now_ns;
    }
    op->attr = object->base.attr;
    return 0;
}

/* All of an object is data. */
static int
null_seek(struct ost_store *store, struct ost_store_op *op)
{
    const struct object *object = object_find(null_of(store), &op->object);
    const uint64_t size = object != NULL ? object->base.attr.size : 0;

    if (op->whence != SEEK_DATA && op->whence != SEEK_HOLE) {
        return -EINVAL;
    }
    if (op->offset >= size) {
        return -ENXIO;
    }
    if (op->whence == SEEK_HOLE) {
        op->offset = size;
    }
    return 0;
}

static void
null_statfs(struct ost_store *store, uint32_t ost, struct ost_statfs_rep *rep_out)
{
    const struct null_store *null = null_of(store);

    *rep_out = (struct ost_statfs_rep){
        .bytes = null->bytes_max / null->ost_count,
        .bytes_free = null->bytes_max / null->ost_count,
        .objects = null->objects.ost_counts[ost],
        .objects_max = (null->objects.count_max - null->objects.table.count) / null->ost_count +
                       null->objects.ost_counts[ost],
    };
}

static int
null_read_map(struct ost_store *store, struct ost_store_op *op)
{
    const struct object *object = object_find(null_of(store), &op->object);
    const uint64_t size = object != NULL ? object->base.attr.size : 0;

    op->attr = object != NULL ? object->base.attr : (struct ost_attr){0};
    op->length = op->offset < size ? base_min_u64(base_min_u64(op->length, OST_STORE_MAP_BYTES_MAX),
                                                  size - op->offset)
                                   : 0;
    scratch_map(null_of(store), op);
    return 0;
}

static void
null_read_unmap(struct ost_store *store, struct ost_store_op *op)
{
    (void)op;
    null_of(store)->maps_out--;
}

static int
null_write_map(struct ost_store *store, struct ost_store_op *op)
{
    struct object *object = object_get(null_of(store), &op->object);

    if (object == NULL) {
        return -ENOSPC;
    }
    object->write_count++;
    op->held_object = object;
    op->length = base_min_u64(op->length, OST_STORE_MAP_BYTES_MAX);
    scratch_map(null_of(store), op);
    return 0;
}

static void
write_end(struct null_store *null, struct ost_store_op *op)
{
    struct object *object = op->held_object;

    null->maps_out--;
    object->write_count--;
    object_release(null, object);
}

static int
null_write_commit(struct ost_store *store, struct ost_store_op *op, uint64_t length)
{
    struct object *object = op->held_object;
    const int rc = object->is_destroyed ? -ENOENT : 0;

    BASE_ASSERT(length <= op->length);
    if (length > 0) {
        object->base.attr.size = base_max_u64(object->base.attr.size, op->offset + length);
        object->base.attr.mtime_ns = op->now_ns;
        object->base.attr.ctime_ns = op->now_ns;
        object->is_made = true;
    }
    op->attr = object->base.attr;
    write_end(null_of(store), op);
    return rc;
}

static void
null_write_abort(struct ost_store *store, struct ost_store_op *op)
{
    write_end(null_of(store), op);
}

static int
null_append_begin(struct ost_store *store, struct ost_store_op *op)
{
    struct object *object = object_get(null_of(store), &op->object);

    if (object == NULL) {
        return -ENOSPC;
    }
    op->offset = base_max_u64(object->base.attr.size, object->append_end);
    if (op->offset >= (uint64_t)OST_OBJECT_BYTES_MAX) {
        return -EFBIG;
    }
    op->length = base_min_u64(op->length, (uint64_t)OST_OBJECT_BYTES_MAX - op->offset);
    object->append_end = op->offset + op->length;
    object->append_count++;
    op->held_object = object;
    return 0;
}

static void
null_append_end(struct ost_store *store, struct ost_store_op *op)
{
    struct object *object = op->held_object;

    object->append_count--;
    if (object->append_count == 0) {
        object->append_end = 0;
    } else if (object->append_end == op->offset + op->length) {
        object->append_end = op->offset;
    }
    object_release(null_of(store), object);
}

static bool
null_idle(struct ost_store *store)
{
    (void)store;
    return false;
}

static void
null_stats_get(const struct ost_store *store, struct ost_store_stats *stats_out)
{
    const struct null_store *null = (const struct null_store *)(const void *)store;

    *stats_out = (struct ost_store_stats){
        .objects = null->objects.table.count,
        .objects_max = null->objects.count_max,
        .bytes_max = null->bytes_max,
        .maps_out = null->maps_out,
    };
}

static int
null_open(const struct ost_store_options *options, struct ost_store **store_out)
{
    if (options->ost_count == 0 || options->objects_max == 0) {
        return -EINVAL;
    }
    struct null_store *null = calloc(1, sizeof(*null));
    void *scratch = NULL;

    if (null == NULL) {
        return -ENOMEM;
    }
    arena_init(&null->arena, 0);
    int rc = store_objects_init(&null->objects, &null->arena, sizeof(struct object),
                                options->objects_max, options->ost_count, options->seed);

    if (rc != 0) {
        goto fail_free;
    }
    null->memory = options->memory;
    if (null->memory.region_alloc != NULL) {
        rc = null->memory.region_alloc(null->memory.arg, OST_STORE_MAP_BYTES_MAX, &null->region,
                                       &scratch);
    } else {
        scratch = calloc(1, OST_STORE_MAP_BYTES_MAX);
        rc = scratch == NULL ? -ENOMEM : 0;
    }
    if (rc != 0) {
        goto fail_fini_objects;
    }
    null->base.ops = &ost_store_null;
    null->scratch = scratch;
    null->ost_count = options->ost_count;
    null->bytes_max = options->bytes_max;
    *store_out = &null->base;
    return 0;

fail_fini_objects:
    store_objects_fini(&null->objects);
fail_free:
    arena_fini(&null->arena);
    free(null);
    return rc;
}

static void
null_close(struct ost_store *store)
{
    struct null_store *null = null_of(store);

    BASE_ASSERT(null->maps_out == 0);
    if (null->memory.region_free != NULL) {
        null->memory.region_free(null->memory.arg, null->region);
    } else {
        free(null->scratch);
    }
    store_objects_fini(&null->objects);
    arena_fini(&null->arena);
    free(null);
}

const struct ost_store_ops ost_store_null = {
    .name = "null",
    .lends = true,
    .open = null_open,
    .close = null_close,
    .create = null_create,
    .destroy = null_destroy,
    .getattr = null_getattr,
    .setattr = null_setattr,
    .punch = null_punch,
    .seek = null_seek,
    .sync = null_getattr,
    .statfs = null_statfs,
    .read_map = null_read_map,
    .read_unmap = null_read_unmap,
    .write_map = null_write_map,
    .write_commit = null_write_commit,
    .write_abort = null_write_abort,
    .append_begin = null_append_begin,
    .append_end = null_append_end,
    .idle = null_idle,
    .stats_get = null_stats_get,
};
