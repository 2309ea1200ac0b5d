/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Targets, and requests to them: one, one without anybody waiting, and the same one to many.
 *
 * A target's import is opened when it is first used, and opened anew when its server has evicted
 * us.
 */
#include "clients/lib/core.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void
client_target_init(struct client_target *target, struct causeway *fs,
                   const struct lnet_process *process, uint32_t portal, const char *name)
{
    *target = (struct client_target){.fs = fs, .process = *process, .portal = portal};
    base_list_init(&target->lease_link);
    base_list_init(&target->close_link);
    (void)snprintf(target->name, sizeof(target->name), "%s", name);
}

static void
target_evicted(struct client_target *target)
{
    /* What it lent, and what was open, is gone with the export. */
    target->lease_count = 0;
    base_list_unlink(&target->lease_link);
    target->close_count = 0;
    base_list_unlink(&target->close_link);
}

static void
import_changed(struct ptlrpc_import *import, enum ptlrpc_import_state state, int status,
               const void *data, uint32_t bytes, void *user)
{
    struct client_target *target = user;
    struct causeway *fs = target->fs;

    if (state == PTLRPC_IMP_CLOSED) {
        fs->closing_count -= fs->closing_count > 0 ? 1 : 0; /* 0: by ptlrpc_close() */
        if (fs->closing_count == 0 && fs->mount_op != NULL) {
            client_op_complete(fs->mount_op, 0);
        }
        return;
    }
    if (import != target->import && target->import != NULL) {
        return; /* an old one, on its way out */
    }
    if (state == PTLRPC_IMP_EVICTED) {
        target_evicted(target);
    } else if (fs->mount_op != NULL && fs->mds_reactors == 0) {
        if (state == PTLRPC_IMP_FULL) {
            client_op_complete(fs->mount_op, client_connected(fs, data, bytes));
        } else if (state == PTLRPC_IMP_DISCON) {
            client_op_complete(fs->mount_op, status != 0 ? status : -ENOTCONN);
        }
    }
}

int
client_target_open(struct client_target *target)
{
    struct causeway *fs = target->fs;

    if (target->import != NULL) {
        if (BASE_LIKELY(ptlrpc_import_state(target->import) != PTLRPC_IMP_EVICTED)) {
            return 0;
        }
        fs->closing_count++;
        ptlrpc_import_close(target->import);
        target->import = NULL;
    }
    const struct mds_connect_req hello = {.version = MDS_PROTO_VERSION};
    const struct ptlrpc_import_options options = {
        .struct_bytes = sizeof(options),
        .portal = target->portal,
        .target = target->process,
        .name = target->name,
        .max_rpcs_in_flight = fs->max_rpcs_in_flight,
        .connect_data = &hello,
        .connect_data_bytes = sizeof(hello),
        .timeout_ns = fs->timeout_ns,
        .state_changed = import_changed,
        .user = target,
    };

    return ptlrpc_import_open(fs->rpc, &options, &target->import);
}

struct ptlrpc_request *
client_request_take(struct client_op *op, struct client_target *target, uint16_t opc,
                    void **body_out, int *rc_out)
{
    const int rc = client_target_open(target);

    if (BASE_UNLIKELY(rc != 0)) {
        *rc_out = rc == -EAGAIN ? -ENOMEM : rc;
        return NULL;
    }
    struct ptlrpc_request *request = ptlrpc_request_take(target->import, opc);

    if (BASE_UNLIKELY(request == NULL)) {
        base_list_append(&op->fs->starved, &op->link); /* I3 */
        *rc_out = -EAGAIN;
        return NULL;
    }
    *body_out = ptlrpc_request_body(request);
    return request;
}

static void
background_done(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes,
                void *user)
{
    struct causeway *fs = user;

    (void)request;
    (void)status;
    (void)body;
    (void)bytes;
    BASE_ASSERT(fs->background_count > 0); /* I4 */
    fs->background_count--;
    while (!base_list_empty(&fs->background_waiters)) {
        struct client_op *op =
            BASE_CONTAINER_OF(base_list_first(&fs->background_waiters), struct client_op, link);

        base_list_unlink(&op->link);
        client_op_complete(op, 0);
    }
}

void
client_request_send_background(struct causeway *fs, struct ptlrpc_request *request, uint32_t bytes)
{
    if (ptlrpc_request_send(request, bytes, background_done, fs) == 0) {
        fs->background_count++;
    }
}

/* ---- one ---- */

static void
rpc_done(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes, void *user)
{
    struct client_rpc *rpc = user;

    (void)request;
    if (status == 0) {
        if (bytes < rpc->reply_bytes) {
            status = -EPROTO;
        } else if (rpc->reply_bytes > 0) {
            memcpy(rpc->reply, body, rpc->reply_bytes);
        }
    }
    client_op_complete(&rpc->op, status);
}

static void
rpc_send(struct client_op *op)
{
    struct client_rpc *rpc = BASE_CONTAINER_OF(op, struct client_rpc, op);
    void *body = NULL;
    int rc = 0;
    struct ptlrpc_request *request = client_request_take(op, rpc->target, rpc->opc, &body, &rc);

    if (request != NULL) {
        memcpy(body, rpc->request, rpc->request_bytes);
        rc = ptlrpc_request_send(request, rpc->request_bytes, rpc_done, rpc);
    }
    if (rc != 0 && rc != -EAGAIN) {
        client_op_complete(op, rc);
    }
}

void
client_rpc_start(struct client_rpc *rpc, struct client_target *target, uint16_t opc,
                 const void *request, uint32_t request_bytes, uint32_t reply_bytes)
{
    BASE_ASSERT(request_bytes <= sizeof(rpc->request));
    BASE_ASSERT(reply_bytes <= sizeof(rpc->reply));
    client_op_init(&rpc->op, target->fs, rpc_send);
    rpc->target = target;
    rpc->opc = opc;
    rpc->request_bytes = (uint16_t)request_bytes;
    rpc->reply_bytes = (uint16_t)reply_bytes;
    if (request_bytes > 0) {
        memcpy(rpc->request, request, request_bytes);
    }
    rpc_send(&rpc->op);
}

/* ---- many ---- */

static void
each_settle(struct client_each *each, int status)
{
    if (status != 0 && each->status == 0) {
        each->status = status;
    }
}

static void
each_done(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes, void *user)
{
    struct client_each_slot *slot = user;
    struct client_each *each = slot->each;
    const uint32_t index = (uint32_t)(slot - each->slots);

    (void)request;
    if (status == 0 && bytes < each->reply_bytes) {
        status = -EPROTO;
    }
    each_settle(each, each->reply(each, index, status, body));
    each->pending--;
    if (each->pending == 0 && each->next == each->count && base_list_empty(&each->op.link)) {
        client_op_complete(&each->op, each->status);
    }
}

static void
each_send(struct client_op *op)
{
    struct client_each *each = BASE_CONTAINER_OF(op, struct client_each, op);

    for (; each->next < each->count; each->next++) {
        if (each->next < 64 && (each->skip >> each->next & 1) != 0) {
            continue;
        }
        /* The body is built aside: which target it is for comes with it. */
        uint64_t built[CLIENT_RPC_BYTES_MAX / 8];
        uint32_t bytes = 0;
        struct client_target *target = each->fill(each, each->next, built, &bytes);
        void *body = NULL;
        int rc = 0;

        BASE_ASSERT(bytes <= sizeof(built));
        struct ptlrpc_request *request = client_request_take(op, target, each->opc, &body, &rc);

        if (request != NULL) {
            struct client_each_slot *slot = &each->slots[each->next];

            memcpy(body, built, bytes);
            slot->each = each;
            rc = ptlrpc_request_send(request, bytes, each_done, slot);
            if (rc == 0) {
                each->pending++;
            }
        } else if (rc == -EAGAIN) {
            return;
        }
        if (rc != 0) {
            each_settle(each, each->reply(each, each->next, rc, NULL));
        }
    }
    if (each->pending == 0) {
        client_op_complete(op, each->status);
    }
}

void
client_each_init(struct client_each *each, struct causeway *fs, uint16_t opc, uint32_t reply_bytes,
                 uint32_t count,
                 struct client_target *(*fill)(struct client_each *each, uint32_t index, void *body,
                                               uint32_t *bytes_out),
                 int (*reply)(struct client_each *each, uint32_t index, int status,
                              const void *body))
{
    client_op_init(&each->op, fs, each_send);
    each->opc = opc;
    each->reply_bytes = (uint16_t)reply_bytes;
    each->count = count;
    each->skip = 0;
    each->fill = fill;
    each->reply = reply;
}

void
client_each_start(struct client_each *each)
{
    BASE_ASSERT(each->count <= BASE_ARRAY_LEN(each->slots));
    each->next = 0;
    each->pending = 0;
    each->status = 0;
    each_send(&each->op);
}
