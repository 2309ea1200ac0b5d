/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interfaces: opening and closing, and which one reaches a NID.
 */
#include "lnet/ctx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define CREDITS_DEFAULT      256u
#define PEER_CREDITS_DEFAULT 64u
#define CREDITS_MAX          (1u << 24)
#define RING_BYTES_DEFAULT   65536u

static void
ni_on_sent(struct lnet_ni *ni, struct lnet_lnd_conn *conn, uint32_t count)
{
    struct lnet_peer *peer = conn->owner;

    (void)ni;
    if (peer != NULL && peer->conn == conn) {
        lnet_msg_on_sent(peer, count);
    }
}

static void
ni_on_writable(struct lnet_ni *ni, struct lnet_lnd_conn *conn)
{
    struct lnet_peer *peer = conn->owner;

    (void)ni;
    if (peer != NULL && peer->conn == conn) {
        peer->is_blocked = false;
        lnet_msg_flush(peer);
        lnet_peer_update_fast(peer);
    }
}

static const struct lnet_lnd_events ni_events = {
    .accepted = lnet_peer_on_accepted,
    .conn_up = lnet_peer_on_conn_up,
    .conn_down = lnet_peer_on_conn_down,
    .recv = lnet_recv,
    .sent = ni_on_sent,
    .writable = ni_on_writable,
};

static void
ni_log(void *arg, int level, const char *text)
{
    const struct lnet_ni *ni = arg;

    base_log_printf(&ni->ctx->log, level, ni->net, "%s", text);
}

/* Splits "shm1" into the length of "shm" and 1. */
static int
net_parse(const char *net, size_t *name_length_out, uint32_t *number_out)
{
    const size_t length = strcspn(net, "0123456789");
    const char *digits = net + length;
    uint64_t number = 0;

    if (length == 0 || (digits[0] == '0' && digits[1] != '\0')) {
        return -EINVAL;
    }
    for (; *digits != '\0'; digits++) {
        if (*digits < '0' || *digits > '9') {
            return -EINVAL;
        }
        number = number * 10 + (uint64_t)(*digits - '0');
        if (number > UINT16_MAX) {
            return -EINVAL;
        }
    }
    *name_length_out = length;
    *number_out = (uint32_t)number;
    return 0;
}

/* Lets the context sleep on the interface's descriptor, if it has one. */
static int
ni_watch_fd(const struct lnet_ni *ni)
{
    struct epoll_event event = {.events = EPOLLIN};
    const int fd = ni->ops->fd(ni->lnd);

    if (fd == -EOPNOTSUPP) {
        return 0;
    }
    if (fd < 0) {
        return fd;
    }
    return epoll_ctl(ni->ctx->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

/* Copies what the caller's version of the struct has, and fills in the defaults. */
static int
options_read(const struct lnet_ni_options *given, struct lnet_ni_options *options_out)
{
    if (given->struct_bytes < offsetof(struct lnet_ni_options, address)) {
        return -EINVAL;
    }
    *options_out = (struct lnet_ni_options){0};
    (void)memcpy(options_out, given, base_min_u64(given->struct_bytes, sizeof(*options_out)));
    options_out->struct_bytes = sizeof(*options_out);
    if (options_out->credits == 0) {
        options_out->credits = CREDITS_DEFAULT;
    }
    if (options_out->peer_credits == 0) {
        options_out->peer_credits = PEER_CREDITS_DEFAULT;
    }
    if (options_out->net == NULL || options_out->credits > CREDITS_MAX ||
        options_out->peer_credits > CREDITS_MAX ||
        strlen(options_out->net) >= sizeof(((struct lnet_ni *)0)->net)) {
        return -EINVAL;
    }
    return 0;
}

int
lnet_ni_open(struct lnet *ctx, const struct lnet_lnd_ops *ops, const struct lnet_ni_options *given,
             struct lnet_ni **ni_out)
{
    struct lnet_ni_options options;
    size_t name_length = 0;
    uint32_t net_number = 0;
    int rc = options_read(given, &options);

    if (rc != 0 || net_parse(options.net, &name_length, &net_number) != 0) {
        return -EINVAL;
    }
    if (ctx->ni_count == LNET_NIS_MAX) {
        return -ENOMEM;
    }
    const uint64_t net = ((uint64_t)ops->type << 16) | net_number;

    for (uint32_t i = 0; i < ctx->ni_count; i++) {
        if (ctx->nis[i]->nid.value >> 32 == net) {
            return -EEXIST;
        }
    }
    struct lnet_ni *ni = calloc(1, sizeof(*ni));

    if (ni == NULL) {
        return -ENOMEM;
    }
    ni->ctx = ctx;
    ni->ops = ops;
    ni->index = ctx->ni_count;
    ni->flags = options.flags;
    ni->peer_credits = options.peer_credits;
    ni->ring_bytes = options.ring_bytes == 0 ? RING_BYTES_DEFAULT : options.ring_bytes;
    lnet_credits_init(&ni->credits, (int32_t)options.credits);
    base_list_init(&ni->credit_waiters);
    (void)memcpy(ni->net, options.net, strlen(options.net) + 1);

    const struct lnet_lnd_config config = {
        .options = &options,
        .net_number = net_number,
        .pid = ctx->pid,
        .incarnation = ctx->incarnation,
        .connect_timeout_ns = ctx->connect_timeout_ns,
        .log = ni_log,
        .log_arg = ni,
    };

    rc = ops->ni_open(&config, ni, &ni_events, &ni->lnd);
    if (rc != 0) {
        goto fail_free;
    }
    ni->nid = ni->lnd->nid;
    rc = ni_watch_fd(ni);
    if (rc != 0) {
        goto fail_close;
    }
    ctx->nis[ctx->ni_count++] = ni;
    lnet_ping_update(ctx);
    *ni_out = ni;
    return 0;

fail_close:
    ops->ni_close(ni->lnd);
fail_free:
    free(ni);
    return rc;
}

int
lnet_ni_add(struct lnet *ctx, const struct lnet_ni_options *options, struct lnet_nid *nid_out)
{
    struct lnet_ni_options read;
    size_t length = 0;
    uint32_t net_number = 0;

    if (options == NULL || options_read(options, &read) != 0 ||
        net_parse(read.net, &length, &net_number) != 0) {
        return -EINVAL;
    }
    for (uint32_t i = 0; lnet_lnds[i] != NULL; i++) {
        if (strlen(lnet_lnds[i]->name) == length &&
            memcmp(lnet_lnds[i]->name, read.net, length) == 0) {
            struct lnet_ni *ni = NULL;
            const int rc = lnet_ni_open(ctx, lnet_lnds[i], options, &ni);

            if (rc == 0 && nid_out != NULL) {
                *nid_out = ni->nid;
            }
            return rc;
        }
    }
    base_log_printf(&ctx->log, BASE_LOG_ERROR, "lnet",
                    "net %s: no such network driver in this build", read.net);
    return -ENODEV;
}

void
lnet_ni_close(struct lnet_ni *ni)
{
    ni->ops->ni_close(ni->lnd);
    ni->lnd = NULL;
}

struct lnet_ni *
lnet_ni_find(const struct lnet *ctx, struct lnet_nid nid)
{
    for (uint32_t i = 0; i < ctx->ni_count; i++) {
        struct lnet_ni *ni = ctx->nis[i];

        if (ni->nid.value >> 32 == nid.value >> 32) {
            return ni->ops->can_reach(ni->lnd, nid) ? ni : NULL;
        }
    }
    return NULL;
}

bool
lnet_is_self(const struct lnet *ctx, const struct lnet_process *process)
{
    if (process->pid != ctx->pid) {
        return false;
    }
    for (uint32_t i = 0; i < ctx->ni_count; i++) {
        if (ctx->nis[i]->nid.value == process->nid.value) {
            return true;
        }
    }
    return false;
}

void
lnet_ni_serve_waiters(struct lnet_ni *ni)
{
    while (!base_list_empty(&ni->credit_waiters) && lnet_credits_may_take(&ni->credits)) {
        struct lnet_peer *peer =
            BASE_CONTAINER_OF(base_list_first(&ni->credit_waiters), struct lnet_peer, credit_link);

        base_list_unlink(&peer->credit_link);
        lnet_credits_forget(&ni->credits);
        (void)lnet_msg_flush_one(peer, true);
        lnet_msg_flush(peer); /* joins the end of the line if it has more */
    }
}
