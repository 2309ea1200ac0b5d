/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The adapter between the core and ptlrpc: the service for clients, the one for the other reactors,
 * the imports of those and of the OSSs, and the timer.
 *
 * What goes to another reactor is never given up: if no request can be taken now it waits in a
 * queue, which is as long as operations are under way, and it is sent again until it is answered.
 * Reactors of an MDS live and die together.
 */
#include "servers/mds/out.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RQS_MAX        MDS_PARKED_MAX
#define OUT_IN_FLIGHT  64u
#define OUT_TRIES_MAX  1000000u
#define OUT_RETRY_NS   UINT64_C(1000000)
#define OUT_EXPORT_MAX 256u

struct service {
    struct mds *mds;
    struct ptlrpc *rpc;
    struct lnet *ctx;
    struct ptlrpc_service *service;
    struct lnet_timer timer;
    uint64_t timer_ns; /* when it fires; UINT64_MAX: idle */

    struct ptlrpc_service *out_service; /* NULL: there is one reactor */
    struct ptlrpc_import **out_imports; /* by reactor; NULL: none yet */
    struct base_list out_queue;         /* struct out_waiting */
};

/* A request to another reactor that could not be sent yet. */
struct out_waiting {
    struct base_list link;
    struct mds_op *op;
    uint32_t reactor;
    uint32_t bytes;
    uint16_t opc;
    unsigned char body[];
};

static void out_flush(struct service *service); /* it sends, sending queues */

static void
service_arm(struct service *service, uint64_t deadline_ns)
{
    if (deadline_ns < service->timer_ns) {
        service->timer_ns = deadline_ns;
        (void)lnet_timer_arm(service->ctx, &service->timer, deadline_ns);
    }
}

/* ---- to other reactors ---- */

static void
out_told(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes, void *user)
{
    (void)request;
    (void)body;
    (void)bytes;
    if (status != -ECANCELED) { /* else the engine is being closed */
        out_flush(user);
    }
}

static void
out_answered(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes,
             void *user)
{
    struct mds_op *op = user;
    struct service *service = op->mds->user;

    (void)request;
    if (status == -ECANCELED) {
        return; /* as above: nothing is answered any more */
    }
    mds_time_set(service->mds, lnet_now(service->ctx));
    mds_out_done(service->mds, op, status, body, bytes);
    out_flush(service);
    mds_wake_run(service->mds);
}

/* The import of a reactor, made when it is first needed. */
static struct ptlrpc_import *
out_import(struct service *service, uint32_t reactor)
{
    const struct mds_options *of = &service->mds->options;
    const struct ptlrpc_import_options options = {
        .struct_bytes = sizeof(options),
        .portal = PTLRPC_PORTAL_OUT,
        .target = {.nid = of->nid, .pid = of->pid0 + reactor},
        .name = "mds-out",
        .max_rpcs_in_flight = OUT_IN_FLIGHT,
        .tries_max = OUT_TRIES_MAX,
    };

    if (service->out_imports[reactor] == NULL) {
        (void)ptlrpc_import_open(service->rpc, &options, &service->out_imports[reactor]);
    }
    return service->out_imports[reactor];
}

struct out_part {
    const void *data;
    size_t bytes;
};

/* Sends a body in two parts, or says -EAGAIN. */
static int
out_send(struct service *service, const struct out_waiting *what, const struct out_part parts[2])
{
    struct ptlrpc_import *import = out_import(service, what->reactor);
    struct ptlrpc_request *request = import == NULL ? NULL : ptlrpc_request_take(import, what->opc);

    if (request == NULL) {
        return -EAGAIN;
    }
    char *at = ptlrpc_request_body(request);

    for (uint32_t i = 0; i < 2; i++) {
        if (parts[i].bytes > 0) {
            (void)memcpy(at, parts[i].data, parts[i].bytes);
            at += parts[i].bytes;
        }
    }
    return ptlrpc_request_send(request, (uint32_t)(parts[0].bytes + parts[1].bytes),
                               what->op == NULL ? out_told : out_answered,
                               what->op == NULL ? (void *)service : (void *)what->op);
}

/* Sends what waits, in order, as far as it goes. */
static void
out_flush(struct service *service)
{
    while (!base_list_empty(&service->out_queue)) {
        struct out_waiting *waiting =
            BASE_CONTAINER_OF(base_list_first(&service->out_queue), struct out_waiting, link);
        const struct out_part parts[2] = {{waiting->body, waiting->bytes}, {NULL, 0}};

        if (out_send(service, waiting, parts) != 0) {
            service_arm(service, lnet_now(service->ctx) + OUT_RETRY_NS);
            return;
        }
        base_list_unlink(&waiting->link);
        free(waiting);
    }
}

static int
env_out(struct mds *mds, uint32_t reactor, uint16_t opc, const struct out_req *req,
        const char *path, struct mds_op *op)
{
    struct service *service = mds->user;
    const struct out_waiting what = {
        .op = op,
        .reactor = reactor,
        .bytes = (uint32_t)sizeof(*req) + req->path_bytes,
        .opc = opc,
    };
    const struct out_part parts[2] = {
        {req, sizeof(*req)},
        {path, req->path_bytes},
    };

    if (base_list_empty(&service->out_queue) && out_send(service, &what, parts) == 0) {
        return 0;
    }
    struct out_waiting *waiting = malloc(sizeof(*waiting) + what.bytes);

    if (waiting == NULL) {
        return -ENOMEM;
    }
    *waiting = what;
    (void)memcpy(waiting->body, req, sizeof(*req));
    if (req->path_bytes > 0) {
        (void)memcpy(waiting->body + sizeof(*req), path, req->path_bytes);
    }
    base_list_init(&waiting->link);
    base_list_append(&service->out_queue, &waiting->link);
    service_arm(service, mds->now_ns + OUT_RETRY_NS);
    return 0;
}

/* ---- from other reactors ---- */

static int
out_connected(struct ptlrpc_service *ptlrpc_service, struct ptlrpc_export *export_,
              const void *data, uint32_t bytes, void *reply, uint32_t *reply_bytes)
{
    const struct service *service = ptlrpc_service_user(ptlrpc_service);
    const struct mds_options *options = &service->mds->options;
    const struct lnet_process peer = lnet_peer_process(ptlrpc_export_peer(export_));

    (void)data;
    (void)bytes;
    (void)reply;
    *reply_bytes = 0;
    if (peer.nid.value != options->nid.value || peer.pid < options->pid0 ||
        peer.pid - options->pid0 >= options->reactors) {
        return -EACCES; /* not one of us */
    }
    return 0;
}

static void
out_on_request(struct ptlrpc_rq *rq)
{
    struct service *service = ptlrpc_service_user(ptlrpc_rq_service(rq));
    struct mds *mds = service->mds;
    struct mds_call call = {
        .reply = ptlrpc_rq_reply_body(rq),
        .reply_max = ptlrpc_body_bytes_max(service->rpc),
        .opc = ptlrpc_rq_opc(rq),
        .tag = rq,
    };

    call.body = ptlrpc_rq_body(rq, &call.body_bytes);
    mds_time_set(mds, lnet_now(service->ctx));
    const int rc = mds_out_execute(mds, &call);

    if (rc != MDS_PARKED) {
        ptlrpc_rq_reply(rq, rc, call.reply_bytes);
    }
    mds_wake_run(mds);
}

#define OUT_OP(opc_, flags_, name_)                                                 \
    {                                                                               \
        .opc = (opc_), .flags = (flags_), .body_bytes_min = sizeof(struct out_req), \
        .name = (name_), .handler = out_on_request                                  \
    }

static const struct ptlrpc_op out_ops[] = {
    OUT_OP(OUT_MAKE_DIR, PTLRPC_OP_ONCE, "out_make_dir"),
    OUT_OP(OUT_UNLINK, PTLRPC_OP_ONCE, "out_unlink"),
    OUT_OP(OUT_INSERT, PTLRPC_OP_ONCE, "out_insert"),
    OUT_OP(OUT_STAT, 0, "out_stat"),
    OUT_OP(OUT_READLINK, 0, "out_readlink"),
    OUT_OP(OUT_MOVED, PTLRPC_OP_ONCE, "out_moved"),
    OUT_OP(OUT_ANCESTOR, 0, "out_ancestor"),
    OUT_OP(OUT_TOKEN, PTLRPC_OP_ONCE, "out_token"),
    OUT_OP(OUT_TOKEN_FREE, PTLRPC_OP_ONCE, "out_token_free"),
    OUT_OP(OUT_PREPARE, PTLRPC_OP_ONCE, "out_prepare"),
    OUT_OP(OUT_COMMIT, PTLRPC_OP_ONCE, "out_commit"),
    OUT_OP(OUT_RELEASE, PTLRPC_OP_ONCE, "out_release"),
};

static int
out_service_open(struct service *service)
{
    const uint32_t reactors = service->mds->reactors;
    const struct ptlrpc_service_options options = {
        .struct_bytes = sizeof(options),
        .portal = PTLRPC_PORTAL_OUT,
        .name = "mds_out",
        .ops = out_ops,
        .op_count = BASE_ARRAY_LEN(out_ops),
        .rqs_max = base_min_u32(reactors * OUT_IN_FLIGHT, RQS_MAX),
        .exports_max = OUT_EXPORT_MAX,
        .user = service,
        .connected = out_connected,
    };

    if (reactors == 1 || service->mds->ops->keeps_nothing) {
        return 0;
    }
    service->out_imports = calloc(reactors, sizeof(struct ptlrpc_import *));
    if (service->out_imports == NULL) {
        return -ENOMEM;
    }
    return ptlrpc_service_add(service->rpc, &options, &service->out_service);
}

static void
service_on_timer(struct lnet *ctx, void *arg)
{
    struct service *service = arg;

    service->timer_ns = UINT64_MAX;
    out_flush(service);
    mds_tick(service->mds, lnet_now(ctx));
}

static void
env_wake_at(struct mds *mds, uint64_t deadline_ns)
{
    service_arm(mds->user, deadline_ns);
}

static void
env_complete(struct mds *mds, struct mds_call *call, int status)
{
    (void)mds;
    ptlrpc_rq_reply(call->tag, status, call->reply_bytes);
}

/* ---- destruction of objects ---- */

static void
destroy_on_done(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes,
                void *user)
{
    struct mds_destroy_target *target = user;
    struct mds *mds = target->mds;
    const struct service *service = mds->user;

    (void)request;
    (void)body;
    (void)bytes;
    if (status == -ESTALE) { /* evicted: the import is of no use any more */
        ptlrpc_import_close(target->import);
        target->import = NULL;
    }
    mds_time_set(mds, lnet_now(service->ctx));
    mds_destroy_done(mds, (uint32_t)(target - mds->targets), status);
}

static int
env_destroy(struct mds *mds, uint32_t index, const struct ost_object *objects, uint32_t count)
{
    struct service *service = mds->user;
    struct mds_destroy_target *target = &mds->targets[index];

    if (target->import == NULL) {
        const struct ptlrpc_import_options options = {
            .struct_bytes = sizeof(options),
            .portal = PTLRPC_PORTAL_OST,
            .target = target->process,
            .name = "mds-ost",
            .max_rpcs_in_flight = 2,
        };
        struct ptlrpc_import *import = NULL;
        const int rc = ptlrpc_import_open(service->rpc, &options, &import);

        if (rc != 0) {
            return rc;
        }
        target->import = import;
    }
    struct ptlrpc_request *request = ptlrpc_request_take(target->import, OST_DESTROY);

    if (request == NULL) {
        return -EAGAIN;
    }
    struct ost_destroy_req *req = ptlrpc_request_body(request);
    const size_t bytes = count * sizeof(*objects);

    *req = (struct ost_destroy_req){.count = count};
    (void)memcpy(req + 1, objects, bytes);
    return ptlrpc_request_send(request, (uint32_t)(sizeof(*req) + bytes), destroy_on_done, target);
}

/* ---- clients and their requests ---- */

static int
service_connected(struct ptlrpc_service *ptlrpc_service, struct ptlrpc_export *export_,
                  const void *data, uint32_t bytes, void *reply, uint32_t *reply_bytes)
{
    struct service *service = ptlrpc_service_user(ptlrpc_service);
    struct mds *mds = service->mds;
    struct mds_connect_rep *rep = reply;
    struct mds_connect_ost *osts = (struct mds_connect_ost *)(rep + 1);
    struct mds_client *client = ptlrpc_export_user(export_);
    struct mds_connect_req req;

    if (bytes < sizeof(req)) {
        return -EPROTO;
    }
    (void)memcpy(&req, data, sizeof(req));
    if (req.version != MDS_PROTO_VERSION) {
        return -EPROTO;
    }
    if (client == NULL) {
        const int rc = mds_client_open(mds, export_, &client);

        if (rc != 0) {
            return rc;
        }
        ptlrpc_export_user_set(export_, client);
    }
    *rep = (struct mds_connect_rep){
        .version = MDS_PROTO_VERSION,
        .reactors = mds->reactors,
        .pid0 = mds->options.pid0,
        .ost_count = mds->ost_count,
        .root = FID_ROOT,
        .stripe_bytes = mds->stripe_bytes,
        .stripe_count = (uint16_t)mds->stripe_count,
    };
    for (uint32_t i = 0; i < mds->ost_count; i++) {
        osts[i] = (struct mds_connect_ost){
            .nid = mds->osts[i].nid.value,
            .pid0 = mds->osts[i].pid0,
            .reactors = mds->osts[i].reactors,
            .ost = mds->osts[i].ost,
        };
    }
    *reply_bytes = (uint32_t)(sizeof(*rep) + mds->ost_count * sizeof(*osts));
    return 0;
}

static void
service_disconnected(struct ptlrpc_service *ptlrpc_service, struct ptlrpc_export *export_,
                     int reason)
{
    struct service *service = ptlrpc_service_user(ptlrpc_service);
    struct mds_client *client = ptlrpc_export_user(export_);

    (void)reason;
    if (client != NULL) {
        ptlrpc_export_user_set(export_, NULL);
        mds_time_set(service->mds, lnet_now(service->ctx));
        mds_client_close(service->mds, client);
        mds_wake_run(service->mds);
    }
}

static void
service_on_request(struct ptlrpc_rq *rq)
{
    struct service *service = ptlrpc_service_user(ptlrpc_rq_service(rq));
    struct mds *mds = service->mds;
    struct ptlrpc_export *of = ptlrpc_rq_export(rq);
    struct mds_call call = {
        .reply = ptlrpc_rq_reply_body(rq),
        .reply_max = ptlrpc_body_bytes_max(service->rpc),
        .opc = ptlrpc_rq_opc(rq),
        .client = of == NULL ? NULL : ptlrpc_export_user(of),
        .tag = rq,
    };

    call.body = ptlrpc_rq_body(rq, &call.body_bytes);
    mds_time_set(mds, lnet_now(service->ctx));
    const int rc = mds_execute(mds, &call);

    if (rc != MDS_PARKED) {
        ptlrpc_rq_reply(rq, rc, call.reply_bytes);
    }
    mds_wake_run(mds);
}

#define OP(opc_, flags_, request_, name_)                                                \
    {                                                                                    \
        .opc = (opc_), .flags = (flags_), .body_bytes_min = (request_), .name = (name_), \
        .handler = service_on_request                                                    \
    }

static const struct ptlrpc_op ops[] = {
    OP(MDS_GETATTR, 0, sizeof(struct mds_getattr_req), "mds_getattr"),
    OP(MDS_CLOSE, PTLRPC_OP_ONCE, sizeof(struct mds_close_req), "mds_close"),
    OP(MDS_READDIR, 0, sizeof(struct mds_readdir_req), "mds_readdir"),
    OP(MDS_STATFS, 0, 0, "mds_statfs"),
    OP(MDS_SYNC, 0, 0, "mds_sync"),
    OP(MDS_READLINK, 0, sizeof(struct mds_getattr_req), "mds_readlink"),
    OP(MDS_ACCESS, 0, sizeof(struct mds_access_req), "mds_access"),
    OP(MDS_FLOCK, PTLRPC_OP_ONCE, sizeof(struct mds_flock), "mds_flock"),
    OP(MDS_APPEND_LOCK, PTLRPC_OP_ONCE, sizeof(struct mds_append_req), "mds_append_lock"),
    OP(MDS_APPEND_UNLOCK, PTLRPC_OP_ONCE, sizeof(struct mds_append_req), "mds_append_unlock"),
    OP(MDS_REINT_SETATTR, PTLRPC_OP_ONCE, sizeof(struct mds_setattr_req), "mds_setattr"),
    OP(MDS_REINT_CREATE, PTLRPC_OP_ONCE, sizeof(struct mds_create_req), "mds_create"),
    OP(MDS_REINT_LINK, PTLRPC_OP_ONCE, sizeof(struct mds_rename_req), "mds_link"),
    OP(MDS_REINT_UNLINK, PTLRPC_OP_ONCE, sizeof(struct mds_unlink_req), "mds_unlink"),
    OP(MDS_REINT_RENAME, PTLRPC_OP_ONCE, sizeof(struct mds_rename_req), "mds_rename"),
    OP(MDS_REINT_OPEN, PTLRPC_OP_ONCE, sizeof(struct mds_open_req), "mds_open"),
};

/* ---- life ---- */

int
mds_open(struct ptlrpc *rpc, const struct mds_options *options, struct mds **mds_out)
{
    const struct mds_env env = {
        .complete = env_complete,
        .destroy = env_destroy,
        .out = env_out,
        .wake_at = env_wake_at,
    };
    struct lnet *ctx = ptlrpc_lnet(rpc);
    struct service *service = calloc(1, sizeof(*service));

    if (service == NULL) {
        return -ENOMEM;
    }
    *service = (struct service){.rpc = rpc, .ctx = ctx, .timer_ns = UINT64_MAX};
    service->timer.fn = service_on_timer;
    service->timer.arg = service;
    base_list_init(&service->out_queue);
    int rc = mds_core_open(options, &env, lnet_random(ctx), lnet_now(ctx), &service->mds);

    if (rc != 0) {
        goto fail_free;
    }
    service->mds->user = service;
    rc = out_service_open(service);
    if (rc != 0) {
        goto fail_close;
    }
    const struct ptlrpc_service_options service_options = {
        .struct_bytes = sizeof(service_options),
        .portal = PTLRPC_PORTAL_MDS,
        .name = "mds",
        .ops = ops,
        .op_count = BASE_ARRAY_LEN(ops),
        .rqs_max = RQS_MAX,
        .exports_max = options->exports_max,
        .user = service,
        .connected = service_connected,
        .disconnected = service_disconnected,
    };

    rc = ptlrpc_service_add(rpc, &service_options, &service->service);
    if (rc != 0) {
        goto fail_close;
    }
    *mds_out = service->mds;
    return 0;

fail_close:
    free(service->out_imports);
    mds_core_close(service->mds);
fail_free:
    free(service);
    return rc;
}

void
mds_close(struct mds *mds)
{
    if (mds == NULL) {
        return;
    }
    struct service *service = mds->user;

    lnet_timer_cancel(service->ctx, &service->timer);
    BASE_LIST_FOREACH_SAFE(link, next, &service->out_queue) {
        free(BASE_CONTAINER_OF(link, struct out_waiting, link));
    }
    free(service->out_imports);
    mds_core_close(mds);
    free(service);
}

struct ptlrpc_service *
mds_service(const struct mds *mds)
{
    const struct service *service = mds->user;

    return service->service;
}
