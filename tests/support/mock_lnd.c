/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The scripted network driver; see mock_lnd.h.
 */
#include "tests/support/mock_lnd.h"

#include "lnet/ni.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum mock_step_kind { STEP_UP, STEP_DOWN, STEP_RECV, STEP_SENT, STEP_ROOM, STEP_ACCEPT };

struct mock_step {
    enum mock_step_kind kind;
    struct mock_conn *conn; /* NULL: closed meanwhile */
    int reason;
    uint32_t count;
    uint32_t address, pid;
    struct lnet_hdr hdr;
    void *payload;
};

struct lnet_nid
mock_nid(uint32_t address)
{
    return (struct lnet_nid){(uint64_t)LNET_LND_SIM << 48 | address};
}

static struct mock_ni *
ni_of(struct lnet_lnd_ni *base)
{
    return BASE_CONTAINER_OF(base, struct mock_ni, base);
}

static struct mock_conn *
conn_of(struct lnet_lnd_conn *base)
{
    return BASE_CONTAINER_OF(base, struct mock_conn, base);
}

static struct mock_step *
step_add(struct mock_ni *ni, enum mock_step_kind kind, struct mock_conn *conn)
{
    BASE_ASSERT(ni->script_count < MOCK_SCRIPT_MAX);
    struct mock_step *step = &ni->script[(ni->script_first + ni->script_count++) % MOCK_SCRIPT_MAX];

    *step = (struct mock_step){.kind = kind, .conn = conn};
    return step;
}

void
mock_up(struct mock_ni *ni, struct mock_conn *conn)
{
    (void)step_add(ni, STEP_UP, conn);
}

void
mock_down(struct mock_ni *ni, struct mock_conn *conn, int reason)
{
    step_add(ni, STEP_DOWN, conn)->reason = reason;
}

void
mock_recv(struct mock_ni *ni, struct mock_conn *conn, const struct lnet_hdr *hdr,
          const void *payload)
{
    struct mock_step *step = step_add(ni, STEP_RECV, conn);

    step->hdr = *hdr;
    if (hdr->type == LNET_MSG_PUT || hdr->type == LNET_MSG_REPLY) {
        step->payload = malloc(base_max_u64(hdr->length_bytes, 1));
        BASE_ASSERT(step->payload != NULL);
        (void)memcpy(step->payload, payload, hdr->length_bytes);
    }
}

void
mock_done(struct mock_ni *ni, struct mock_conn *conn, uint32_t count)
{
    step_add(ni, STEP_SENT, conn)->count = count;
}

void
mock_room(struct mock_ni *ni, struct mock_conn *conn, uint32_t room)
{
    step_add(ni, STEP_ROOM, conn)->count = room;
}

void
mock_accept(struct mock_ni *ni, uint32_t address, uint32_t pid)
{
    struct mock_step *step = step_add(ni, STEP_ACCEPT, NULL);

    step->address = address;
    step->pid = pid;
}

static struct mock_conn *
conn_create(struct mock_ni *ni, const struct lnet_process *peer, void *owner)
{
    struct mock_conn *conn = calloc(1, sizeof(*conn));

    BASE_ASSERT(conn != NULL);
    conn->base.ni = &ni->base;
    conn->base.peer = *peer;
    conn->base.owner = owner;
    conn->room = ni->room;
    base_list_init(&conn->link);
    base_list_append(&ni->conns, &conn->link);
    return conn;
}

static int
mock_ni_open(const struct lnet_lnd_config *config, struct lnet_ni *owner,
             const struct lnet_lnd_events *events, struct lnet_lnd_ni **ni_out)
{
    struct mock_ni *ni = calloc(1, sizeof(*ni));

    if (ni == NULL) {
        return -ENOMEM;
    }
    ni->script = calloc(MOCK_SCRIPT_MAX, sizeof(ni->script[0]));
    if (ni->script == NULL) {
        free(ni);
        return -ENOMEM;
    }
    ni->base.owner = owner;
    ni->base.nid = mock_nid((uint32_t)strtoul(config->options->address, NULL, 10));
    ni->events = events;
    ni->room = UINT32_MAX;
    base_list_init(&ni->conns);
    *ni_out = &ni->base;
    return 0;
}

static void
mock_ni_close(struct lnet_lnd_ni *base)
{
    struct mock_ni *ni = ni_of(base);

    for (; ni->script_count > 0; ni->script_count--) {
        free(ni->script[ni->script_first].payload);
        ni->script_first = (ni->script_first + 1) % MOCK_SCRIPT_MAX;
    }
    BASE_LIST_FOREACH_SAFE(link, tmp, &ni->conns) {
        free(BASE_CONTAINER_OF(link, struct mock_conn, link));
    }
    free(ni->script);
    free(ni);
}

static bool
mock_can_reach(const struct lnet_lnd_ni *base, struct lnet_nid nid)
{
    return nid.value != base->nid.value + 1000;
}

static int
mock_conn_open(struct lnet_lnd_ni *base, const struct lnet_process *peer, void *owner,
               struct lnet_lnd_conn **conn_out)
{
    struct mock_ni *ni = ni_of(base);

    if (ni->open_error != 0) {
        return ni->open_error;
    }
    ni->open_count++;
    *conn_out = &conn_create(ni, peer, owner)->base;
    return 0;
}

static void
mock_conn_close(struct lnet_lnd_conn *base)
{
    struct mock_conn *conn = conn_of(base);
    struct mock_ni *ni = ni_of(base->ni);

    for (uint32_t i = 0; i < ni->script_count; i++) {
        struct mock_step *step = &ni->script[(ni->script_first + i) % MOCK_SCRIPT_MAX];

        if (step->conn == conn) {
            step->conn = NULL;
        }
    }
    ni->close_count++;
    base_list_unlink(&conn->link);
    free(conn);
}

static int
mock_send(struct lnet_lnd_conn *base, const struct lnet_hdr *hdr, const struct iovec *iov,
          uint32_t iov_count)
{
    struct mock_conn *conn = conn_of(base);
    struct mock_ni *ni = ni_of(base->ni);
    uint64_t at = 0;

    if (conn->room == 0) {
        conn->is_refused = true;
        return -EAGAIN;
    }
    conn->room -= conn->room != UINT32_MAX;
    struct mock_sent *sent = &ni->sent[ni->sent_count++ % MOCK_SENT_MAX];

    *sent = (struct mock_sent){.conn = conn, .hdr = *hdr};
    for (uint32_t i = 0; i < iov_count; i++) {
        const uint64_t room_bytes = sizeof(sent->payload) - base_min_u64(at, sizeof(sent->payload));

        if (room_bytes > 0 && iov[i].iov_len > 0) {
            (void)memcpy(sent->payload + at, iov[i].iov_base,
                         base_min_u64(room_bytes, iov[i].iov_len));
        }
        at += iov[i].iov_len;
    }
    BASE_ASSERT(at ==
                (hdr->type == LNET_MSG_PUT || hdr->type == LNET_MSG_REPLY ? hdr->length_bytes : 0));
    return 0;
}

static void
step_accept(struct mock_ni *ni, const struct mock_step *step)
{
    const struct lnet_process peer = {.nid = mock_nid(step->address), .pid = step->pid};
    struct mock_conn *conn = conn_create(ni, &peer, NULL);

    if (ni->events->accepted(ni->base.owner, &conn->base) != 0) {
        base_list_unlink(&conn->link);
        free(conn);
    }
}

static void
step_run(struct mock_ni *ni, const struct mock_step *step)
{
    struct lnet_ni *owner = ni->base.owner;

    if (step->conn == NULL && step->kind != STEP_ACCEPT) {
        return;
    }
    switch (step->kind) {
    case STEP_UP:
        ni->events->conn_up(owner, &step->conn->base);
        break;
    case STEP_DOWN:
        ni->events->conn_down(owner, &step->conn->base, step->reason);
        break;
    case STEP_RECV: {
        const int rc = ni->events->recv(owner, &step->conn->base, &step->hdr, step->payload);

        if (rc < 0) {
            ni->events->conn_down(owner, &step->conn->base, rc);
        }
        break;
    }
    case STEP_SENT:
        ni->events->sent(owner, &step->conn->base, step->count);
        break;
    case STEP_ROOM:
        step->conn->room = step->count;
        if (step->conn->is_refused) {
            step->conn->is_refused = false;
            ni->events->writable(owner, &step->conn->base);
        }
        break;
    case STEP_ACCEPT:
        step_accept(ni, step);
        break;
    }
}

static uint32_t
mock_poll(struct lnet_lnd_ni *base, uint64_t now_ns, uint32_t budget)
{
    struct mock_ni *ni = ni_of(base);
    uint32_t count = 0;

    (void)now_ns;
    ni->poll_count++;
    while (count < budget && ni->script_count > 0) {
        const struct mock_step step = ni->script[ni->script_first];

        ni->script_first = (ni->script_first + 1) % MOCK_SCRIPT_MAX;
        ni->script_count--;
        count++;
        step_run(ni, &step);
        free(step.payload);
    }
    return count;
}

static int
mock_fd(struct lnet_lnd_ni *base)
{
    (void)base;
    return -EOPNOTSUPP;
}

static int
mock_arm(struct lnet_lnd_ni *base)
{
    return ni_of(base)->script_count > 0 ? -EBUSY : 0;
}

static uint64_t
mock_next_deadline(const struct lnet_lnd_ni *base)
{
    (void)base;
    return UINT64_MAX;
}

static void
mock_credits(const struct lnet_lnd_conn *base, struct lnet_lnd_credit_info *info_out)
{
    (void)base;
    *info_out = (struct lnet_lnd_credit_info){.max = 3, .available = 2, .min = 1};
}

static void
mock_describe(const struct lnet_lnd_ni *base, char *text, uint32_t text_bytes)
{
    (void)base;
    (void)snprintf(text, text_bytes, "none");
}

#define MOCK_OPS(caps_value)                                                                 \
    {                                                                                        \
        .name = "sim", .type = LNET_LND_SIM, .caps = (caps_value),                           \
        .eager_bytes_max = MOCK_EAGER_BYTES_MAX, .ni_open = mock_ni_open,                    \
        .ni_close = mock_ni_close, .can_reach = mock_can_reach, .conn_open = mock_conn_open, \
        .conn_close = mock_conn_close, .send = mock_send, .poll = mock_poll, .fd = mock_fd,  \
        .arm = mock_arm, .next_deadline = mock_next_deadline, .credits = mock_credits,       \
        .describe = mock_describe                                                            \
    }

const struct lnet_lnd_ops mock_lnd_at_once = MOCK_OPS(LNET_LND_CAP_SENT);
const struct lnet_lnd_ops mock_lnd_slow = MOCK_OPS(0);

struct mock_ni *
mock_add(struct lnet *ctx, const struct lnet_lnd_ops *ops, uint32_t address, uint32_t credits,
         uint32_t peer_credits, uint32_t flags)
{
    char text[16];
    (void)snprintf(text, sizeof(text), "%u", address);
    const struct lnet_ni_options options = {
        .struct_bytes = sizeof(options),
        .net = "sim",
        .address = text,
        .credits = credits,
        .peer_credits = peer_credits,
        .flags = flags,
    };
    struct lnet_ni *ni = NULL;

    if (lnet_ni_open(ctx, ops, &options, &ni) != 0) {
        return NULL;
    }
    return ni_of(ni->lnd);
}

struct mock_conn *
mock_conn_find(const struct mock_ni *ni, uint32_t address, uint32_t pid)
{
    for (struct base_list *link = ni->conns.prev; link != &ni->conns; link = link->prev) {
        struct mock_conn *conn = BASE_CONTAINER_OF(link, struct mock_conn, link);

        if (conn->base.peer.nid.value == mock_nid(address).value && conn->base.peer.pid == pid) {
            return conn;
        }
    }
    return NULL;
}
