/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The adapter between the core and ptlrpc: the service, its clients, the imports of the OSSs, and
 * the timer.
 */
#include "servers/mds/mds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RQS_MAX MDS_PARKED_MAX

struct service {
    struct mds *mds;
    struct ptlrpc *rpc;
    struct lnet *ctx;
    struct ptlrpc_service *service;
    struct lnet_timer timer;
    uint64_t timer_ns; /* when it fires; UINT64_MAX: idle */
};

static void
service_arm(struct service *service, uint64_t deadline_ns)
{
    if (deadline_ns < service->timer_ns) {
        service->timer_ns = deadline_ns;
        (void)lnet_timer_arm(service->ctx, &service->timer, deadline_ns);
    }
}

static void
service_on_timer(struct lnet *ctx, void *arg)
{
    struct service *service = arg;

    service->timer_ns = UINT64_MAX;
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
    struct ptlrpc_export *export_ = ptlrpc_rq_export(rq);
    struct mds_call call = {
        .reply = ptlrpc_rq_reply_body(rq),
        .reply_max = ptlrpc_body_bytes_max(service->rpc),
        .opc = ptlrpc_rq_opc(rq),
        .client = export_ == NULL ? NULL : ptlrpc_export_user(export_),
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

#define OP(opc_, flags_, request_, name_)                                        \
    {                                                                            \
        .opc = opc_, .flags = flags_, .body_bytes_min = request_, .name = name_, \
        .handler = service_on_request                                            \
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
    int rc = mds_core_open(options, &env, lnet_random(ctx), lnet_now(ctx), &service->mds);

    if (rc != 0) {
        goto fail_free;
    }
    service->mds->user = service;
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
    mds_core_close(mds);
    free(service);
}

struct ptlrpc_service *
mds_service(const struct mds *mds)
{
    const struct service *service = mds->user;

    return service->service;
}
