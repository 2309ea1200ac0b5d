/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The object server of one reactor: beginning, end, clients, and the ops that move no data.
 *
 * The end. oss_close() comes after ptlrpc_close(), so no request arrives and no lease is out any
 * more; but transfers may be under way, and clients in the middle of copies. The server is freed by
 * the last io that comes back, which is within bulk_close() at the latest.
 */
#include "servers/oss/oss.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OBJECTS_MAX_DEFAULT (UINT64_C(16) << 20)
#define PREFAULT_DEFAULT    (UINT64_C(64) << 20)
#define OSTS_MAX            64u
#define REACTORS_MAX        1024u
#define DESTROY_OBJECTS_MAX 256u

/* ---- ops ---- */

static struct oss *
oss_of(const struct ptlrpc_rq *rq)
{
    return ptlrpc_service_user(ptlrpc_rq_service(rq));
}

typedef int (*store_fn)(struct ost_store *store, struct ost_store_op *op);

/* Has the store execute @fn on the op of @io. */
static void
simple_start(struct oss_io *io, store_fn fn)
{
    io->state = OSS_IO_SIMPLE;
    io->op.now_ns = oss_wall_ns(io->oss);
    ptlrpc_rq_begin(io->rq, PTLRPC_MARK_STORE);
    const int rc = fn(io->oss->store, &io->op);

    if (rc != -EINPROGRESS) {
        oss_simple_done(io, rc);
    }
}

/* Begins an op on @object; answers if it is not ours, and returns NULL. */
static struct oss_io *
simple_io(struct ptlrpc_rq *rq, const struct ost_object *object)
{
    struct oss *oss = oss_of(rq);
    const int rc = oss_object_check(oss, object);

    if (rc != 0) {
        ptlrpc_rq_reply(rq, rc, 0);
        return NULL;
    }
    struct oss_io *io = oss_io_take(oss, rq);

    io->op.object = *object;
    return io;
}

static void
simple_reply(struct oss_io *io, int status, const void *body, uint32_t bytes)
{
    struct ptlrpc_rq *rq = io->rq;

    if (status == 0 && bytes > 0) {
        (void)memcpy(ptlrpc_rq_reply_body(rq), body, bytes);
    }
    io->rq = NULL;
    oss_io_return(io);
    ptlrpc_rq_reply(rq, status, status == 0 ? bytes : 0);
}

/* The next object of a DESTROY, or the answer. */
static void
destroy_next(struct oss_io *io)
{
    const struct ost_destroy_req *req = io->data;
    struct ost_object object;

    if (io->moved == req->count) {
        simple_reply(io, 0, NULL, 0);
        return;
    }
    (void)memcpy(&object, (const char *)(req + 1) + io->moved * sizeof(object), sizeof(object));
    io->moved++;
    io->op.object = object;
    simple_start(io, io->oss->store_ops->destroy);
}

void
oss_simple_done(struct oss_io *io, int status)
{
    const uint16_t opc = ptlrpc_rq_opc(io->rq);

    io->state = OSS_IO_IDLE;
    ptlrpc_rq_end(io->rq, PTLRPC_MARK_STORE, 0, 0);
    if (opc == OST_SEEK) {
        simple_reply(io, status, &io->op.offset, sizeof(io->op.offset));
    } else if (opc == OST_DESTROY && status == 0) {
        destroy_next(io); /* depth: at most DESTROY_OBJECTS_MAX short frames */
    } else {
        simple_reply(io, status, &io->op.attr, sizeof(io->op.attr));
    }
}

static void
getattr_handler(struct ptlrpc_rq *rq)
{
    const struct ost_object_req *req = ptlrpc_rq_body(rq, &(uint32_t){0});
    struct oss_io *io = simple_io(rq, &req->object);

    if (io != NULL) {
        simple_start(io, io->oss->store_ops->getattr);
    }
}

static void
create_handler(struct ptlrpc_rq *rq)
{
    const struct ost_object_req *req = ptlrpc_rq_body(rq, &(uint32_t){0});
    struct oss_io *io = simple_io(rq, &req->object);

    if (io != NULL) {
        simple_start(io, io->oss->store_ops->create);
    }
}

static void
sync_handler(struct ptlrpc_rq *rq)
{
    const struct ost_object_req *req = ptlrpc_rq_body(rq, &(uint32_t){0});
    struct oss_io *io = simple_io(rq, &req->object);

    if (io != NULL) {
        simple_start(io, io->oss->store_ops->sync);
    }
}

static void
setattr_handler(struct ptlrpc_rq *rq)
{
    const struct ost_setattr_req *req = ptlrpc_rq_body(rq, &(uint32_t){0});
    struct oss_io *io = simple_io(rq, &req->object);

    if (io != NULL) {
        io->op.times[0] = req->mtime_ns;
        io->op.times[1] = req->ctime_ns;
        simple_start(io, io->oss->store_ops->setattr);
    }
}

static void
punch_handler(struct ptlrpc_rq *rq)
{
    const struct ost_punch_req *req = ptlrpc_rq_body(rq, &(uint32_t){0});
    const uint64_t max = (uint64_t)OST_OBJECT_BYTES_MAX;

    if (req->start > req->end) {
        ptlrpc_rq_reply(rq, -EINVAL, 0);
        return;
    }
    if (req->start > max) {
        ptlrpc_rq_reply(rq, -EFBIG, 0);
        return;
    }
    struct oss_io *io = simple_io(rq, &req->object);

    if (io != NULL) {
        io->op.offset = req->start;
        io->op.length = req->end == UINT64_MAX ? UINT64_MAX : base_min_u64(req->end, max);
        simple_start(io, io->oss->store_ops->punch);
    }
}

static void
seek_handler(struct ptlrpc_rq *rq)
{
    const struct ost_seek_req *req = ptlrpc_rq_body(rq, &(uint32_t){0});
    struct oss_io *io = simple_io(rq, &req->object);

    if (io != NULL) {
        io->op.offset = req->offset;
        io->op.whence = req->whence;
        simple_start(io, io->oss->store_ops->seek);
    }
}

static void
destroy_handler(struct ptlrpc_rq *rq)
{
    struct oss *oss = oss_of(rq);
    uint32_t bytes = 0;
    const struct ost_destroy_req *req = ptlrpc_rq_body(rq, &bytes);

    if (req->count > DESTROY_OBJECTS_MAX ||
        req->count > (bytes - sizeof(*req)) / sizeof(struct ost_object)) {
        ptlrpc_rq_reply(rq, -EPROTO, 0);
        return;
    }
    for (uint32_t i = 0; i < req->count; i++) { /* all or none */
        struct ost_object object;

        (void)memcpy(&object, (const char *)(req + 1) + i * sizeof(object), sizeof(object));
        const int rc = oss_object_check(oss, &object);

        if (rc != 0) {
            ptlrpc_rq_reply(rq, rc, 0);
            return;
        }
    }
    struct oss_io *io = oss_io_take(oss, rq);

    io->data = req;
    destroy_next(io);
}

static void
statfs_handler(struct ptlrpc_rq *rq)
{
    struct oss *oss = oss_of(rq);
    const struct ost_statfs_req *req = ptlrpc_rq_body(rq, &(uint32_t){0});
    struct ost_statfs_rep *rep = ptlrpc_rq_reply_body(rq);

    if (req->ost >= oss->ost_count) {
        ptlrpc_rq_reply(rq, -ENODEV, 0);
        return;
    }
    oss->store_ops->statfs(oss->store, req->ost, rep);
    ptlrpc_rq_reply(rq, 0, sizeof(*rep));
}

static const struct ptlrpc_op ops[] = {
    {OST_GETATTR, 0, sizeof(struct ost_object_req), "ost_getattr", getattr_handler},
    {OST_SETATTR, PTLRPC_OP_ONCE, sizeof(struct ost_setattr_req), "ost_setattr", setattr_handler},
    {OST_READ, 0, sizeof(struct ost_io_req), "ost_read", oss_read},
    {OST_WRITE, PTLRPC_OP_ONCE, sizeof(struct ost_io_req), "ost_write", oss_write},
    {OST_CREATE, PTLRPC_OP_ONCE, sizeof(struct ost_object_req), "ost_create", create_handler},
    {OST_DESTROY, PTLRPC_OP_ONCE, sizeof(struct ost_destroy_req), "ost_destroy", destroy_handler},
    {OST_PUNCH, PTLRPC_OP_ONCE, sizeof(struct ost_punch_req), "ost_punch", punch_handler},
    {OST_STATFS, 0, sizeof(struct ost_statfs_req), "ost_statfs", statfs_handler},
    {OST_SYNC, 0, sizeof(struct ost_object_req), "ost_sync", sync_handler},
    {OST_SEEK, 0, sizeof(struct ost_seek_req), "ost_seek", seek_handler},
    {OST_COMMIT, PTLRPC_OP_ONCE, sizeof(struct ost_commit_req), "ost_commit", oss_commit},
    {OST_RELEASE, 0, sizeof(struct ost_release_req), "ost_release", oss_release},
};

/* ---- clients ---- */

static int
client_connected(struct ptlrpc_service *service, struct ptlrpc_export *export_, const void *data,
                 uint32_t bytes, void *reply, uint32_t *reply_bytes)
{
    struct oss_client *client = calloc(1, sizeof(*client));

    (void)service;
    (void)data;
    (void)bytes;
    (void)reply;
    *reply_bytes = 0;
    if (client == NULL) {
        return -ENOMEM;
    }
    base_list_init(&client->leases);
    ptlrpc_export_user_set(export_, client);
    return 0;
}

static void
client_disconnected(struct ptlrpc_service *service, struct ptlrpc_export *export_, int reason)
{
    struct oss_client *client = ptlrpc_export_user(export_);

    (void)service;
    (void)reason;
    ptlrpc_export_user_set(export_, NULL);
    oss_leases_end(client);
    free(client);
}

/* ---- beginning and end ---- */

static int
region_alloc(void *arg, uint64_t bytes, void **region_out, void **address_out)
{
    struct oss *oss = arg;
    struct bulk_region *region = NULL;
    const int rc = bulk_region_alloc_lazy(oss->bulk, bytes, &region, address_out);

    if (rc != 0) {
        base_log_printf(&oss->log, BASE_LOG_ERROR, "oss", "no region of %llu bytes: %s",
                        (unsigned long long)bytes, base_errno_name(rc));
        return rc;
    }
    const uint64_t page_bytes = bulk_region_page_bytes(region);

    if (oss->page_bytes == 0 || page_bytes < oss->page_bytes) {
        oss->page_bytes = page_bytes;
    }
    *region_out = region;
    return 0;
}

static void
region_free(void *arg, void *region)
{
    (void)arg;
    bulk_region_free(region);
}

static uint64_t
bytes_max_default(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page_bytes = sysconf(_SC_PAGESIZE);

    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes / 8
                                       : UINT64_C(1) << 30;
}

static void
oss_free(struct oss *oss)
{
    oss->store_ops->close(oss->store);
    base_pool_fini(&oss->ios);
    free(oss->lease_ids);
    free(oss);
}

void
oss_io_return(struct oss_io *io)
{
    struct oss *oss = io->oss;

    BASE_ASSERT(io->rq == NULL);
    BASE_ASSERT(!io->is_mapped);
    BASE_ASSERT(!io->is_append);
    io->state = OSS_IO_IDLE;
    base_pool_return(&oss->ios, io);
    if (BASE_UNLIKELY(oss->is_closed) && oss->ios.free_count == oss->ios.total_count) {
        oss_free(oss);
    }
}

static int
store_open(struct oss *oss, const struct oss_options *options)
{
    const struct ost_store_options store_options = {
        .ost_count = oss->ost_count,
        .bytes_max = options->bytes_max != 0 ? options->bytes_max : bytes_max_default(),
        .objects_max = options->objects_max != 0 ? options->objects_max : OBJECTS_MAX_DEFAULT,
        .prefault_bytes = options->prefault_bytes != 0 ? options->prefault_bytes : PREFAULT_DEFAULT,
        .seed = lnet_random(oss->ctx),
        .memory = {.region_alloc = region_alloc, .region_free = region_free, .arg = oss},
    };

    oss->store_ops = ost_store_find(options->store != NULL ? options->store : "mem");
    return oss->store_ops == NULL ? -ENOENT : oss->store_ops->open(&store_options, &oss->store);
}

static bool
options_are_sound(const struct oss_options *options)
{
    return options != NULL && options->struct_bytes >= sizeof(*options) && options->reactors > 0 &&
           options->reactors <= REACTORS_MAX && options->reactor < options->reactors &&
           options->ost_count > 0 && options->ost_count <= OSTS_MAX;
}

int
oss_open(struct ptlrpc *rpc, const struct oss_options *options, struct oss **oss_out)
{
    if (!options_are_sound(options) || ptlrpc_bulk(rpc) == NULL) {
        return -EINVAL;
    }
    struct oss *oss = calloc(1, sizeof(*oss));

    if (oss == NULL) {
        return -ENOMEM;
    }
    *oss = (struct oss){
        .ctx = ptlrpc_lnet(rpc),
        .bulk = ptlrpc_bulk(rpc),
        .reactor = options->reactor,
        .reactors = options->reactors,
        .ost_count = options->ost_count,
        .wall_offset_ns = options->wall_offset_ns,
        .log = {options->log, options->log_arg, BASE_LOG_INFO},
        .pause_timer = {.fn = oss_pause_timer, .arg = oss},
        .lease_timer = {.fn = oss_lease_timer, .arg = oss},
    };
    base_list_init(&oss->paused);
    base_list_init(&oss->leases);
    oss->lease_ids = calloc(OSS_IOS_MAX, sizeof(*oss->lease_ids));
    int rc = oss->lease_ids == NULL
                 ? -ENOMEM
                 : base_pool_init(&oss->ios, sizeof(struct oss_io), OSS_IOS_MAX, BASE_CACHE_LINE);

    if (rc != 0) {
        goto fail_free;
    }
    for (uint32_t i = 0; i < oss->ios.total_count; i++) {
        struct oss_io *io = base_pool_at(&oss->ios, i);

        BASE_POOL_UNPOISON(io, sizeof(*io));
        base_list_init(&io->link);
        base_list_init(&io->client_link);
    }
    rc = store_open(oss, options);
    if (rc != 0) {
        goto fail_fini_pool;
    }
    oss->has_leases = options->no_lease == 0 && oss->store_ops->lends;

    const struct ptlrpc_service_options service_options = {
        .struct_bytes = sizeof(service_options),
        .portal = PTLRPC_PORTAL_OST,
        .name = "ost",
        .ops = ops,
        .op_count = BASE_ARRAY_LEN(ops),
        .rqs_max = OSS_RQS_MAX,
        .exports_max = options->exports_max,
        .user = oss,
        .connected = client_connected,
        .disconnected = client_disconnected,
    };

    rc = ptlrpc_service_add(rpc, &service_options, &oss->service);
    if (rc != 0) {
        goto fail_close_store;
    }
    base_log_printf(&oss->log, BASE_LOG_INFO, "oss",
                    "reactor %u of %u: %u OSTs on store %s, memory in pages of %llu KiB",
                    oss->reactor, oss->reactors, oss->ost_count, oss->store_ops->name,
                    (unsigned long long)oss->page_bytes >> 10);
    *oss_out = oss;
    return 0;

fail_close_store:
    oss->store_ops->close(oss->store);
fail_fini_pool:
    base_pool_fini(&oss->ios);
fail_free:
    free(oss->lease_ids);
    free(oss);
    return rc;
}

void
oss_close(struct oss *oss)
{
    if (oss == NULL) {
        return;
    }
    lnet_timer_cancel(oss->ctx, &oss->pause_timer);
    lnet_timer_cancel(oss->ctx, &oss->lease_timer);

    /* Held here, so that the ios that end now don't free the server under us. */
    struct oss_io *hold = oss_io_take(oss, NULL);

    oss->is_closed = true;
    oss_pause_timer(oss->ctx, oss); /* bulk_start() gives up what was paused */
    BASE_ASSERT(base_list_empty(&oss->paused));
    BASE_ASSERT(base_list_empty(&oss->leases)); /* their exports are gone */
    oss_io_return(hold);
}

bool
oss_idle(struct oss *oss)
{
    return oss->store_ops->idle(oss->store);
}

struct ptlrpc_service *
oss_service(const struct oss *oss)
{
    return oss->service;
}

void
oss_stats_get(const struct oss *oss, struct oss_stats *stats_out)
{
    struct ost_store_stats store;

    oss->store_ops->stats_get(oss->store, &store);
    *stats_out = oss->stats;
    stats_out->objects = store.objects;
    stats_out->objects_max = store.objects_max;
    stats_out->bytes_used = store.bytes_used;
    stats_out->bytes_max = store.bytes_max;
    stats_out->bytes_prefaulted = store.bytes_touched_free;
    stats_out->page_bytes = oss->page_bytes;
}
