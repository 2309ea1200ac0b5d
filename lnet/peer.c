/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers: the table, the connection's states, watchers, and the end of a peer.
 *
 * What must not happen under a callback (closing a connection, freeing a peer) is put off to
 * lnet_peers_work(), which a turn calls when no callback is on the stack.
 */
#include "lnet/ctx.h"

#include "base/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct base_list *
peer_bucket(const struct lnet *ctx, const struct lnet_process *process)
{
    const uint64_t hash = base_hash_combine(base_hash_u64(process->nid.value), process->pid);

    return &ctx->peer_buckets[hash % LNET_PEER_BUCKETS];
}

static struct lnet_peer_watch *
watch_of(struct base_list *link)
{
    return BASE_CONTAINER_OF(link, struct lnet_peer_watch, internal);
}

static struct base_list *
watch_link(struct lnet_peer_watch *watch)
{
    return (struct base_list *)(void *)watch->internal;
}

/* Tells every watcher of @peer's new state. They may add and delete watchers. */
static void
peer_tell(struct lnet_peer *peer, int status)
{
    struct lnet *ctx = peer->ctx;

    for (struct base_list *link = ctx->watches.next; link != &ctx->watches;
         link = ctx->watch_next) {
        struct lnet_peer_watch *watch = watch_of(link);

        ctx->watch_next = link->next;
        watch->fn(ctx, peer, status, watch->arg);
    }
    ctx->watch_next = NULL;
}

void
lnet_peer_watch_add(struct lnet *ctx, struct lnet_peer_watch *watch)
{
    base_list_init(watch_link(watch));
    base_list_append(&ctx->watches, watch_link(watch));
}

void
lnet_peer_watch_del(struct lnet *ctx, struct lnet_peer_watch *watch)
{
    struct base_list *link = watch_link(watch);

    if (ctx->watch_next == link) {
        ctx->watch_next = link->next;
    }
    base_list_unlink(link);
}

void
lnet_peer_tell_up(struct lnet_peer *peer)
{
    if (peer->is_up_untold) {
        peer->is_up_untold = false;
        peer_tell(peer, 0);
    }
}

struct lnet_peer *
lnet_peer_find(const struct lnet *ctx, const struct lnet_process *process)
{
    BASE_LIST_FOREACH(link, peer_bucket(ctx, process)) {
        struct lnet_peer *peer = BASE_CONTAINER_OF(link, struct lnet_peer, hash_link);

        if (peer->process.nid.value == process->nid.value && peer->process.pid == process->pid) {
            return peer;
        }
    }
    return NULL;
}

/* Whether nobody refers to @peer; an accepted connection is a reference. */
static bool
peer_is_unused(const struct lnet_peer *peer)
{
    return peer->reference_count == 0 && base_list_empty(&peer->queue) &&
           base_list_empty(&peer->ops);
}

void
lnet_peer_add_work(struct lnet_peer *peer)
{
    if (base_list_empty(&peer->work_link)) {
        base_list_append(&peer->ctx->peer_work, &peer->work_link);
    }
    peer->ctx->has_work = true;
}

void
lnet_peer_check_unused(struct lnet_peer *peer)
{
    if (BASE_UNLIKELY(peer->state == LNET_PEER_DOWN && peer_is_unused(peer))) {
        lnet_peer_add_work(peer);
    }
}

static void
peer_free(struct lnet_peer *peer)
{
    struct lnet *ctx = peer->ctx;

    BASE_ASSERT(peer->conn == NULL);
    BASE_ASSERT(peer->credits.available == peer->credits.max);
    BASE_ASSERT(base_list_empty(&peer->credit_link));
    base_timer_cancel(&ctx->timers, &peer->timer);
    base_timers_unreserve(&ctx->timers, 1);
    base_list_unlink(&peer->hash_link);
    base_list_unlink(&peer->work_link);
    lnet_tally_add(&peer->ni->gone, &peer->tally);
    ctx->peer_count--;
    free(peer);
}

/* The connection is no more: what was queued or out ends with @status. */
static void
peer_down(struct lnet_peer *peer, int status)
{
    struct lnet_lnd_conn *conn = peer->conn;

    peer->state = LNET_PEER_DOWN;
    peer->conn = NULL;
    peer->is_blocked = false;
    peer->is_fast = false;
    peer->is_up_untold = false;
    peer->is_disconnecting = false;
    peer->connect_deadline_ns = UINT64_MAX;
    if (conn != NULL) {
        conn->owner = NULL;
        peer->ni->conn_count--;
        peer->ni->ops->conn_close(conn);
    }
    if (peer->credits.in_flight > 0) {
        const int32_t count = peer->credits.in_flight;

        lnet_credits_return(&peer->ni->credits, count);
        lnet_credits_return(&peer->credits, count);
    }
    lnet_msg_drop_all(peer, status);
    BASE_LIST_FOREACH(link, &peer->ops) {
        lnet_op_fail(BASE_CONTAINER_OF(link, struct lnet_op, peer_link), status);
    }
    lnet_ni_serve_waiters(peer->ni);
    peer_tell(peer, status);
    lnet_peer_check_unused(peer);
}

static void
peer_on_deadline(struct base_timer *timer, uint64_t now_ns)
{
    struct lnet_peer *peer = BASE_CONTAINER_OF(timer, struct lnet_peer, timer);

    if (now_ns >= peer->connect_deadline_ns) {
        peer_down(peer, -ETIMEDOUT);
        return;
    }
    const uint64_t next_ns =
        base_min_u64(lnet_msg_drop_expired(peer, now_ns), peer->connect_deadline_ns);

    if (next_ns != UINT64_MAX) {
        base_timer_arm(&peer->ctx->timers, timer, next_ns);
    }
}

/* The table is full: ends connections of ours that nobody uses. Their places are free later. */
static void
peers_reclaim(struct lnet *ctx)
{
    for (uint32_t i = 0; i < LNET_PEER_BUCKETS; i++) {
        BASE_LIST_FOREACH(link, &ctx->peer_buckets[i]) {
            struct lnet_peer *peer = BASE_CONTAINER_OF(link, struct lnet_peer, hash_link);

            if (peer->is_ours && peer_is_unused(peer)) {
                lnet_peer_disconnect(peer);
            }
        }
    }
}

/* A new peer without references. Errors: -EAGAIN. */
static int
peer_create(struct lnet *ctx, struct lnet_ni *ni, const struct lnet_process *process,
            struct lnet_peer **peer_out)
{
    if (ctx->peer_count == ctx->peers_max) {
        peers_reclaim(ctx);
        return -EAGAIN;
    }
    struct lnet_peer *peer =
        aligned_alloc(BASE_CACHE_LINE, base_align_up(sizeof(struct lnet_peer), BASE_CACHE_LINE));

    if (peer == NULL) {
        return -EAGAIN;
    }
    if (base_timers_reserve(&ctx->timers, 1) != 0) {
        free(peer);
        return -EAGAIN;
    }
    *peer = (struct lnet_peer){
        .send = ni->ops->send,
        .ni = ni,
        .ctx = ctx,
        .is_sent_at_once = (ni->ops->caps & LNET_LND_CAP_SENT) != 0,
        .send_bytes_max = ni->ops->eager_bytes_max,
        .process = *process,
        .connect_deadline_ns = UINT64_MAX,
    };
    peer->process.reserved = 0;
    lnet_credits_init(&peer->credits, (int32_t)ni->peer_credits);
    base_list_init(&peer->queue);
    base_list_init(&peer->ops);
    base_list_init(&peer->credit_link);
    base_list_init(&peer->work_link);
    base_list_init(&peer->hash_link);
    base_timer_init(&peer->timer, peer_on_deadline);
    base_list_append(peer_bucket(ctx, process), &peer->hash_link);
    ctx->peer_count++;
    if (ni->index == 0) {
        ctx->lo_is_used = true;
    }
    *peer_out = peer;
    return 0;
}

int
lnet_peer_get(struct lnet *ctx, const struct lnet_process *process, struct lnet_peer **peer_out)
{
    struct lnet_peer *peer = lnet_peer_find(ctx, process);

    if (ctx->is_closing) {
        return -EHOSTUNREACH;
    }
    if (peer == NULL) {
        /* Messages to ourselves do not leave the context, whatever the net. */
        struct lnet_ni *ni =
            lnet_is_self(ctx, process) ? ctx->nis[0] : lnet_ni_find(ctx, process->nid);

        if (ni == NULL || process->pid == LNET_PID_ANY ||
            (ni->index == 0 && process->pid != ctx->pid)) {
            return -EHOSTUNREACH;
        }
        const int rc = peer_create(ctx, ni, process, &peer);

        if (rc != 0) {
            return rc;
        }
    }
    peer->reference_count++;
    *peer_out = peer;
    return 0;
}

void
lnet_peer_hold(struct lnet_peer *peer)
{
    peer->reference_count++;
}

void
lnet_peer_put(struct lnet_peer *peer)
{
    BASE_ASSERT(peer->reference_count > 0);
    peer->reference_count--;
    lnet_peer_check_unused(peer);
}

struct lnet_process
lnet_peer_process(const struct lnet_peer *peer)
{
    return peer->process;
}

void
lnet_peer_disconnect(struct lnet_peer *peer)
{
    if (peer->state != LNET_PEER_DOWN) {
        peer->is_disconnecting = true;
        lnet_peer_add_work(peer);
    }
}

int
lnet_peer_connect(struct lnet_peer *peer)
{
    if (peer->state != LNET_PEER_DOWN) {
        return 0;
    }
    struct lnet_lnd_conn *conn = NULL;
    const int rc = peer->ni->ops->conn_open(peer->ni->lnd, &peer->process, peer, &conn);

    if (rc != 0) {
        return rc == -EAGAIN ? -EAGAIN : -EHOSTUNREACH;
    }
    peer->conn = conn;
    peer->state = LNET_PEER_CONNECTING;
    peer->is_ours = true;
    peer->ni->conn_count++;
    return 0;
}

/* @conn is usable. The watchers hear of it before the first message does, but not in this call. */
static void
peer_up(struct lnet_peer *peer, struct lnet_lnd_conn *conn)
{
    peer->conn = conn;
    peer->state = LNET_PEER_UP;
    peer->is_blocked = false;
    peer->is_up_untold = true;
    peer->connect_deadline_ns = UINT64_MAX;
    lnet_peer_update_fast(peer);
    lnet_peer_add_work(peer);
}

int
lnet_peer_on_accepted(struct lnet_ni *ni, struct lnet_lnd_conn *conn)
{
    struct lnet *ctx = ni->ctx;
    struct lnet_peer *peer = lnet_peer_find(ctx, &conn->peer);

    if (ctx->is_closing || (ni->flags & LNET_NI_CONNECT_ONLY) != 0) {
        return -EPERM;
    }
    if (conn->peer.nid.value >> 32 != ni->nid.value >> 32 || conn->peer.pid == LNET_PID_ANY ||
        (ni->index != 0 && lnet_is_self(ctx, &conn->peer))) {
        return -EPROTO;
    }
    if (peer == NULL) {
        const int rc = peer_create(ctx, ni, &conn->peer, &peer);

        if (rc != 0) {
            base_log_printf(&ctx->log, BASE_LOG_WARN, ni->net,
                            "a peer was refused: %u are known already", ctx->peer_count);
            return rc;
        }
    }
    if (peer->state == LNET_PEER_UP) {
        /* It is a new process at an old address: the end of the old one was not seen yet. */
        peer_down(peer, -ECONNRESET);
    }
    if (peer->conn == NULL) {
        ni->conn_count++;
    } else {
        peer->conn->owner = NULL; /* ours lost against the peer's; conn_down() closes it */
    }
    conn->owner = peer;
    peer->is_ours = false;
    peer_up(peer, conn);
    return 0;
}

void
lnet_peer_on_conn_up(struct lnet_ni *ni, struct lnet_lnd_conn *conn)
{
    struct lnet_peer *peer = conn->owner;

    if (peer == NULL || peer->conn != conn) {
        ni->ops->conn_close(conn);
        return;
    }
    BASE_ASSERT(peer->state == LNET_PEER_CONNECTING);
    peer_up(peer, conn);
    lnet_msg_flush(peer);
}

void
lnet_peer_on_conn_down(struct lnet_ni *ni, struct lnet_lnd_conn *conn, int reason)
{
    struct lnet_peer *peer = conn->owner;
    char text[LNET_PROC_TEXT_MAX];

    if (peer == NULL || peer->conn != conn) {
        ni->ops->conn_close(conn);
        return;
    }
    if (reason == -EPROTO) {
        peer->tally.proto_error_count++;
    }
    if (peer->state == LNET_PEER_CONNECTING && reason == -EALREADY) {
        /* The peer's own connection is on its way to us. */
        struct lnet *ctx = ni->ctx;

        peer->conn = NULL;
        conn->owner = NULL;
        ni->conn_count--;
        ni->ops->conn_close(conn);
        peer->connect_deadline_ns = ctx->now_ns + ctx->connect_timeout_ns;
        if (!base_timer_is_armed(&peer->timer) ||
            peer->timer.deadline_ns > peer->connect_deadline_ns) {
            base_timer_arm(&ctx->timers, &peer->timer, peer->connect_deadline_ns);
        }
        return;
    }
    base_log_printf(&ni->ctx->log, BASE_LOG_INFO, ni->net, "peer %s: %s: %s",
                    lnet_process_format(&peer->process, text),
                    peer->state == LNET_PEER_UP ? "closed" : "not connected",
                    base_errno_name(reason));
    if (peer->state == LNET_PEER_UP) {
        peer_down(peer, reason == -EPROTO ? -EPROTO : -ECONNRESET);
    } else {
        peer_down(peer, reason == -ETIMEDOUT ? -ETIMEDOUT : -EHOSTUNREACH);
    }
}

static void
peer_begin_time(struct lnet_peer *peer, uint64_t now_ns)
{
    struct base_timers *timers = &peer->ctx->timers;

    BASE_LIST_FOREACH(link, &peer->queue) {
        BASE_CONTAINER_OF(link, struct lnet_msg, link)->deadline_ns += now_ns;
    }
    if (base_timer_is_armed(&peer->timer)) {
        base_timer_arm(timers, &peer->timer, peer->timer.deadline_ns + now_ns);
    }
    BASE_LIST_FOREACH(link, &peer->ops) {
        struct lnet_op *op = BASE_CONTAINER_OF(link, struct lnet_op, peer_link);

        /* The deadline of a GET is the caller's, in the caller's time. */
        if (!op->is_get && base_timer_is_armed(&op->timer)) {
            base_timer_arm(timers, &op->timer, op->timer.deadline_ns + now_ns);
        }
    }
}

void
lnet_peers_begin_time(struct lnet *ctx, uint64_t now_ns)
{
    ctx->has_time = true;
    for (uint32_t i = 0; i < LNET_PEER_BUCKETS; i++) {
        BASE_LIST_FOREACH(link, &ctx->peer_buckets[i]) {
            peer_begin_time(BASE_CONTAINER_OF(link, struct lnet_peer, hash_link), now_ns);
        }
    }
}

void
lnet_peers_work(struct lnet *ctx)
{
    struct base_list todo;

    base_list_init(&todo);
    base_list_move_all(&todo, &ctx->peer_work);
    while (!base_list_empty(&todo)) {
        struct base_list *link = base_list_first(&todo);
        struct lnet_peer *peer = BASE_CONTAINER_OF(link, struct lnet_peer, work_link);

        base_list_unlink(link);
        if (peer->is_disconnecting) {
            peer_down(peer, -ECONNRESET);
        }
        lnet_peer_tell_up(peer);
        lnet_msg_flush(peer);
        if (peer->state == LNET_PEER_DOWN && peer_is_unused(peer)) {
            peer_free(peer);
        }
    }
}

void
lnet_peers_cancel(struct lnet *ctx)
{
    for (uint32_t i = 0; i < LNET_PEER_BUCKETS; i++) {
        BASE_LIST_FOREACH(link, &ctx->peer_buckets[i]) {
            struct lnet_peer *peer = BASE_CONTAINER_OF(link, struct lnet_peer, hash_link);

            if (peer->state != LNET_PEER_DOWN) {
                peer_down(peer, -ECANCELED);
            }
        }
    }
}

void
lnet_peers_fini(struct lnet *ctx)
{
    for (uint32_t i = 0; i < LNET_PEER_BUCKETS; i++) {
        while (!base_list_empty(&ctx->peer_buckets[i])) {
            peer_free(BASE_CONTAINER_OF(base_list_first(&ctx->peer_buckets[i]), struct lnet_peer,
                                        hash_link));
        }
    }
}
