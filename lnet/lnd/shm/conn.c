/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a connection.
 *
 *     conn_open()  -> BACKOFF <-> HELLO -+-> UP -> DYING -> DOWN -> conn_close() frees it
 *     accept       -> GREETING ----------+
 *
 * The connector makes the memory of the connection, connects to the acceptor's socket and says
 * HELLO with the descriptors. The acceptor checks and maps everything, asks LNet, and answers
 * WELCOME with its own, or REFUSE with a reason. Every state before UP has a deadline; a full
 * backlog, too many descriptors in flight and the like are tried again until then, ever slower.
 *
 * Both connect at once: the smaller (nid, pid) is the connector. Its HELLO takes over the other's
 * own attempt, whose struct shm_conn LNet knows: the new link moves into it and conn_up() is
 * called. The larger one's HELLO is answered by REFUSE with EALREADY, upon which that side tries
 * again later, in case the winner dies before it has won. EALREADY is also the answer while an old
 * connection of the same peer, which it has closed already, is not drained here yet.
 *
 * The socket says when a peer is gone: the kernel hangs it up, however the peer ended.
 */
#include "lnet/lnd/shm/ni.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOCKET_PACKETS_MAX 512 /* taken from one socket in one turn: more than it holds */
#define LISTEN_RETRY_NS    UINT64_C(10000000)

/* ---- links --------------------------------------------------------------------------------- */

static void
link_init(struct shm_link *link)
{
    *link = (struct shm_link){.fd = -1, .event_fd = -1, .cma_error = -ENOTCONN};
}

/* Takes a free bit of our doorbell page. */
static int
slot_take(struct shm_ni *ni, struct shm_conn *conn)
{
    for (uint32_t i = 0; i < SHM_CONNS_MAX; i++) {
        const uint32_t slot = (ni->slot_hint + i) % SHM_CONNS_MAX;

        if (ni->slots[slot] == NULL) {
            ni->slots[slot] = conn;
            ni->slot_hint = slot + 1;
            conn->link.slot = slot;
            conn->link.has_slot = true;
            return 0;
        }
    }
    return -EAGAIN;
}

/* Prepares rings and lines in link->map. */
static int
link_lay_out(struct shm_link *link, uint64_t ring_bytes)
{
    const uint32_t slot_count = (uint32_t)(ring_bytes / SHM_SLOT_BYTES);
    const uint32_t slot_shift = (uint32_t)__builtin_ctz(slot_count);
    struct shm_lines *lines = (struct shm_lines *)(void *)link->map;
    uint8_t *rings[2] = {link->map + SHM_LINES_BYTES, link->map + SHM_LINES_BYTES + ring_bytes};

    link->stale = calloc(slot_count / 64, sizeof(uint64_t));
    if (link->stale == NULL) {
        return -ENOMEM;
    }
    link->ours = &lines->sides[link->side];
    link->theirs = &lines->sides[1 - link->side];
    link->tx = (struct shm_tx){.slots = rings[link->side],
                               .slot_count = slot_count,
                               .slot_shift = slot_shift,
                               .free_min = slot_count - 1,
                               .stale = link->stale,
                               .consumed = &link->theirs->consumed};
    link->rx = (struct shm_rx){.slots = rings[1 - link->side],
                               .slot_count = slot_count,
                               .slot_shift = slot_shift,
                               .consumed = &link->ours->consumed};
    return 0;
}

/* Unmaps and closes everything in conn->link. */
static void
link_fini(struct shm_conn *conn)
{
    struct shm_link *link = &conn->link;
    struct shm_ni *ni = shm_conn_ni(conn);

    if (link->has_slot) {
        BASE_ASSERT(ni->slots[link->slot] == conn);
        ni->slots[link->slot] = NULL;
    }
    if (link->fd >= 0) {
        /* Before the close: a copy of the descriptor in a child of fork() would keep it watched. */
        if (getpid() == ni->os_pid) {
            (void)epoll_ctl(ni->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
        }
        (void)close(link->fd);
    }
    if (link->event_fd >= 0) {
        (void)close(link->event_fd);
    }
    if (link->map != NULL) {
        (void)munmap(link->map, link->map_bytes);
    }
    if (link->bells != NULL) {
        (void)munmap(link->bells, SHM_BELLS_BYTES);
    }
    if (link->windows != NULL) {
        (void)munmap((void *)(uintptr_t)link->windows, sizeof(struct shm_windows));
    }
    free(link->stale);
    link_init(link);
}

/* Whether @fd is an eventfd: we will write to it. */
static bool
is_event_fd(int fd)
{
    static const char wanted[] = "anon_inode:[eventfd]";
    char path[64];
    char target[64];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(path, target, sizeof(target));

    return length == (ssize_t)sizeof(wanted) - 1 && memcmp(target, wanted, sizeof(wanted) - 1) == 0;
}

/* Takes the peer's side of a handshake: @fds are its doorbell page, window table and eventfd. */
static int
link_take_peer(struct shm_link *link, const struct shm_hello *hello, int fds[3])
{
    void *map = NULL;

    if (hello->slot >= SHM_CONNS_MAX || (!link->is_foreign && !is_event_fd(fds[2]))) {
        return -EPROTO;
    }
    int rc = shm_memfd_map(fds[1], sizeof(struct shm_windows), false, false, &map);

    if (rc != 0) {
        return rc;
    }
    link->windows = map;
    if (!link->is_foreign) {
        rc = shm_memfd_map(fds[0], SHM_BELLS_BYTES, true, false, &map);
        if (rc != 0) {
            return rc;
        }
        link->bells = map;
        link->event_fd = fds[2];
        fds[2] = -1;
    }
    link->peer_slot = hello->slot;
    link->peer_incarnation = hello->incarnation;
    link->probe_address = hello->probe_address;
    link->probe_value = hello->probe_value;
    return 0;
}

/* Fills in who is at the other end of link->fd. Errors: -EACCES another user's process. */
static int
link_identify(const struct shm_ni *ni, struct shm_link *link)
{
    struct ucred cred;
    socklen_t length = sizeof(cred);

    if (getsockopt(link->fd, SOL_SOCKET, SO_PEERCRED, &cred, &length) != 0) {
        return -errno;
    }
    link->os_pid = cred.pid;
    link->is_foreign = cred.uid != ni->uid;
    return link->is_foreign && (ni->flags & LNET_NI_ANY_USER) == 0 ? -EACCES : 0;
}

static void
fds_close(int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
}

bool
shm_link_is_hung_up(const struct shm_link *link)
{
    struct pollfd wait = {.fd = link->fd, .events = POLLRDHUP};

    return link->fd < 0 || poll(&wait, 1, 0) > 0;
}

/* ---- lists and states ---------------------------------------------------------------------- */

static struct shm_conn *
conn_make(struct shm_ni *ni, enum shm_conn_state state)
{
    struct shm_conn *conn = calloc(1, sizeof(*conn));

    if (conn == NULL) {
        return NULL;
    }
    conn->base.ni = &ni->base;
    conn->state = state;
    conn->hot_index = UINT32_MAX;
    conn->memfd = -1;
    link_init(&conn->link);
    base_list_init(&conn->all_link);
    base_list_init(&conn->state_link);
    base_list_init(&conn->dirty_link);
    base_list_init(&conn->blocked_link);
    base_list_append(&ni->all, &conn->all_link);
    return conn;
}

void
shm_conn_promote(struct shm_conn *conn)
{
    struct shm_ni *ni = shm_conn_ni(conn);

    conn->idle_turns = 0;
    if (conn->hot_index == UINT32_MAX) {
        BASE_ASSERT(ni->hot_count < SHM_CONNS_MAX);
        conn->hot_index = ni->hot_count;
        ni->hot[ni->hot_count++] = conn;
    }
}

void
shm_conn_cool(struct shm_conn *conn)
{
    struct shm_ni *ni = shm_conn_ni(conn);

    if (conn->hot_index != UINT32_MAX) {
        struct shm_conn *last = ni->hot[--ni->hot_count];

        BASE_ASSERT(ni->hot[conn->hot_index] == conn);
        ni->hot[conn->hot_index] = last;
        last->hot_index = conn->hot_index;
        conn->hot_index = UINT32_MAX;
    }
}

/* Puts @conn into the list of its state. */
static void
conn_relist(struct shm_conn *conn, struct base_list *list)
{
    base_list_unlink(&conn->state_link);
    base_list_append(list, &conn->state_link);
}

static void
conn_watch(struct shm_conn *conn, int operation, uint32_t events)
{
    struct shm_ni *ni = shm_conn_ni(conn);
    struct epoll_event event = {.events = events, .data.ptr = conn};

    if (epoll_ctl(ni->epoll_fd, operation, conn->link.fd, &event) != 0) {
        shm_ni_log(ni, LNET_LOG_ERROR, "epoll_ctl: %s", base_errno_name(-errno));
        shm_conn_fail(conn, -ENOMEM);
    }
}

/* Takes @conn out of everything that poll() goes through, but for its state's list. */
static void
conn_quiesce(struct shm_conn *conn)
{
    shm_conn_cool(conn);
    base_list_unlink(&conn->dirty_link);
    base_list_unlink(&conn->blocked_link);
    conn->is_dirty = false;
    conn->is_blocked = false;
}

void
shm_conn_free(struct shm_conn *conn)
{
    conn_quiesce(conn);
    shm_regions_drop(conn);
    link_fini(conn);
    if (conn->memfd >= 0) {
        (void)close(conn->memfd);
    }
    base_list_unlink(&conn->state_link);
    base_list_unlink(&conn->all_link);
    free(conn);
}

/* Ends @conn, which LNet does not know (any more); it is freed when nothing can point to it. */
static void
conn_bury(struct shm_conn *conn)
{
    struct shm_ni *ni = shm_conn_ni(conn);

    if (conn->state == SHM_CONN_GREETING) {
        ni->greeting_count--;
    }
    conn->state = SHM_CONN_CLOSED;
    conn_quiesce(conn);
    conn_relist(conn, &ni->dead);
    if (!ni->is_in_poll) {
        shm_conn_free(conn);
    }
}

void
shm_conn_fail(struct shm_conn *conn, int reason)
{
    struct shm_ni *ni = shm_conn_ni(conn);

    BASE_ASSERT(reason < 0);
    switch (conn->state) {
    case SHM_CONN_GREETING:
    case SHM_CONN_LINGER:
        conn_bury(conn);
        return;
    case SHM_CONN_BACKOFF:
    case SHM_CONN_HELLO:
    case SHM_CONN_UP:
    case SHM_CONN_DYING:
        conn->state = SHM_CONN_DOWN;
        conn->down_reason = reason;
        conn_quiesce(conn);
        conn_relist(conn, &ni->down);
        if (conn->link.fd >= 0) {
            /* Nothing of it shall wake us any more. */
            (void)epoll_ctl(ni->epoll_fd, EPOLL_CTL_DEL, conn->link.fd, NULL);
        }
        return;
    case SHM_CONN_DOWN:
    case SHM_CONN_CLOSED:
        return;
    }
}

/* The peer hung up. What it had published before is delivered, then conn_down() is called. */
static void
conn_hang_up(struct shm_conn *conn)
{
    struct shm_ni *ni = shm_conn_ni(conn);

    if (conn->state == SHM_CONN_UP) {
        (void)epoll_ctl(ni->epoll_fd, EPOLL_CTL_DEL, conn->link.fd, NULL);
        conn->state = SHM_CONN_DYING;
        base_list_unlink(&conn->state_link);
        base_list_unlink(&conn->blocked_link);
        conn->is_blocked = false;
        shm_conn_promote(conn);
    } else {
        shm_conn_fail(conn, conn->state == SHM_CONN_HELLO ? -ECONNREFUSED : -ECONNRESET);
    }
}

static void
conn_go_up(struct shm_conn *conn)
{
    struct shm_ni *ni = shm_conn_ni(conn);

    conn->state = SHM_CONN_UP;
    base_list_unlink(&conn->state_link);
    if (conn->has_unsent) {
        base_list_append(&ni->pending, &conn->state_link);
    }
    shm_cma_probe(&conn->link);
    if (conn->link.cma_error != 0 && !ni->is_cma_said) {
        ni->is_cma_said = true;
        ni->cma_error = conn->link.cma_error;
        shm_ni_log(ni, LNET_LOG_INFO,
                   "cross-memory attach to process %d is refused: %s; other paths are used",
                   (int)conn->link.os_pid, base_errno_name(conn->link.cma_error));
    }
    for (uint32_t slot = 0; slot < SHM_REGIONS_MAX; slot++) {
        if (ni->regions[slot] != NULL) {
            conn->unsaid[slot / 64] |= UINT64_C(1) << (slot % 64);
        }
    }
    shm_conn_promote(conn);
}

/* ---- saying things ------------------------------------------------------------------------- */

static bool
is_transient(int rc)
{
    return rc == -EAGAIN || rc == -ETOOMANYREFS || rc == -ENOBUFS || rc == -ENOMEM ||
           rc == -EMFILE || rc == -ENFILE || rc == -EINTR;
}

/* Plans the next attempt of a handshake, later each time. */
static void
conn_retry_later(struct shm_conn *conn)
{
    const struct shm_ni *ni = shm_conn_ni(conn);
    const uint32_t doublings = base_min_u32(conn->attempts, 7);
    const uint64_t step_ns = base_min_u64(SHM_RETRY_FIRST_NS << doublings, SHM_RETRY_LAST_NS);
    /* Spread: those who collided must not come back together. */
    const uint64_t spread =
        base_hash_combine(ni->incarnation ^ conn->base.peer.nid.value, conn->attempts);

    conn->attempts++;
    conn->retry_ns = ni->now_ns + step_ns + spread % step_ns;
}

/* Sends HELLO or WELCOME. Returns 0, or -EAGAIN: will be tried again; or an error. */
static int
conn_introduce(struct shm_conn *conn)
{
    const struct shm_ni *ni = shm_conn_ni(conn);
    const bool is_hello = conn->state == SHM_CONN_HELLO;
    const struct shm_wire wire = {
        .type = is_hello ? SHM_WIRE_HELLO : SHM_WIRE_WELCOME,
        .u.hello = {.from = {.nid = ni->base.nid, .pid = ni->pid},
                    .to = conn->base.peer,
                    .incarnation = ni->incarnation,
                    .ring_bytes = conn->link.tx.slot_count * (uint64_t)SHM_SLOT_BYTES,
                    .probe_address = (uintptr_t)&ni->probe_value,
                    .probe_value = ni->probe_value,
                    .eager_bytes_max = SHM_EAGER_BYTES,
                    .slot = conn->link.slot},
    };
    /* A stranger gets neither doorbell page nor eventfd: with them it could silence other peers. */
    const bool is_foreign = conn->link.is_foreign;
    const int fds[] = {conn->memfd, is_foreign ? ni->windows_fd : ni->bells_fd, ni->windows_fd,
                       is_foreign ? ni->windows_fd : ni->event_fd};
    const int rc = shm_wire_send(conn->link.fd, &wire, is_hello ? fds : fds + 1);

    conn->has_unsent = rc != 0;
    if (is_transient(rc)) {
        conn_retry_later(conn);
        return -EAGAIN;
    }
    return rc;
}

/* Answers a HELLO that is not taken. The kernel keeps the packet for the peer after the close. */
static void
refuse(struct shm_conn *conn, int rc, const char *text)
{
    struct shm_wire wire = {.type = SHM_WIRE_REFUSE, .u.refuse.error = -rc};

    (void)snprintf(wire.u.refuse.text, sizeof(wire.u.refuse.text), "%s", text);
    (void)shm_wire_send(conn->link.fd, &wire, NULL);
    conn_bury(conn);
}

/* Says what is unsaid of the region in @slot. */
static int
region_introduce(struct shm_conn *conn, uint32_t slot)
{
    const struct shm_mem *mem = shm_conn_ni(conn)->regions[slot];
    const struct shm_wire wire = {
        .type = mem != NULL ? SHM_WIRE_REGION : SHM_WIRE_GONE,
        .u.region = {.id = mem != NULL ? mem->id : slot,
                     .length_bytes = mem != NULL ? mem->length_bytes : 0},
    };

    return shm_wire_send(conn->link.fd, &wire, mem != NULL ? &mem->fd : NULL);
}

void
shm_conn_say(struct shm_conn *conn)
{
    int rc = 0;

    /* The peer expects WELCOME first. */
    for (uint32_t word = 0; word < SHM_REGIONS_MAX / 64 && rc == 0 && !conn->has_unsent; word++) {
        while (conn->unsaid[word] != 0 && rc == 0) {
            const uint32_t bit = (uint32_t)__builtin_ctzll(conn->unsaid[word]);

            rc = region_introduce(conn, word * 64 + bit);
            if (rc == 0) {
                conn->unsaid[word] &= ~(UINT64_C(1) << bit);
            }
        }
    }
    const bool wants_out = rc != 0 && is_transient(rc);

    if (wants_out != conn->is_polled_out) {
        conn->is_polled_out = wants_out;
        conn_watch(conn, EPOLL_CTL_MOD, EPOLLIN | EPOLLRDHUP | (wants_out ? EPOLLOUT : 0));
    }
    /* Any other error is the peer's end, which the socket will show. */
}

/* ---- connecting ---------------------------------------------------------------------------- */

/* Drops the socket and waits for the next attempt. */
static void
conn_back_off(struct shm_conn *conn)
{
    struct shm_ni *ni = shm_conn_ni(conn);

    if (conn->link.fd >= 0) {
        (void)epoll_ctl(ni->epoll_fd, EPOLL_CTL_DEL, conn->link.fd, NULL);
        (void)close(conn->link.fd);
        conn->link.fd = -1;
    }
    conn->state = SHM_CONN_BACKOFF;
    conn->has_unsent = false;
    conn_retry_later(conn);
}

static void
conn_connect(struct shm_conn *conn)
{
    struct shm_ni *ni = shm_conn_ni(conn);
    char text[LNET_PROC_TEXT_MAX];
    int rc = shm_rundir_connect(ni, &conn->base.peer);

    (void)snprintf(text, sizeof(text), "%u-%u", conn->base.peer.pid,
                   (uint32_t)conn->base.peer.nid.value);
    if (rc < 0) {
        if (is_transient(rc)) {
            conn_back_off(conn);
            return;
        }
        shm_ni_log(ni, LNET_LOG_INFO, "peer %s@shm: connect: %s", text, base_errno_name(rc));
        shm_conn_fail(conn, rc == -ENOENT ? -EHOSTUNREACH : rc);
        return;
    }
    conn->link.fd = rc;
    conn->state = SHM_CONN_HELLO;
    rc = link_identify(ni, &conn->link);
    if (rc != 0) {
        shm_ni_log(ni, LNET_LOG_ERROR, "peer %s@shm: process %d is another user's: %s", text,
                   (int)conn->link.os_pid, base_errno_name(rc));
        shm_conn_fail(conn, rc);
        return;
    }
    conn_watch(conn, EPOLL_CTL_ADD, EPOLLIN | EPOLLRDHUP);
    if (conn->state != SHM_CONN_HELLO) {
        return;
    }
    rc = conn_introduce(conn);
    if (rc != 0 && rc != -EAGAIN) {
        shm_conn_fail(conn, rc == -EPIPE ? -ECONNREFUSED : rc);
    }
}

int
shm_conn_open(struct lnet_lnd_ni *base, const struct lnet_process *peer, void *owner,
              struct lnet_lnd_conn **conn_out)
{
    struct shm_ni *ni = shm_ni_of(base);
    void *map = NULL;
    struct shm_conn *conn = conn_make(ni, SHM_CONN_BACKOFF);

    if (conn == NULL) {
        return -ENOMEM;
    }
    conn->base.peer = *peer;
    conn->base.owner = owner;
    conn->link.map_bytes = SHM_LINES_BYTES + 2 * ni->ring_bytes;
    int rc = slot_take(ni, conn);

    if (rc == 0) {
        rc = shm_memfd_make("causeway-conn", conn->link.map_bytes, &conn->memfd, &map);
    }
    if (rc == 0) {
        conn->link.map = map;
        rc = link_lay_out(&conn->link, ni->ring_bytes);
    }
    if (rc != 0) {
        shm_ni_log(ni, LNET_LOG_ERROR, "connection of %llu bytes of shared memory: %s",
                   (unsigned long long)conn->link.map_bytes, base_errno_name(rc));
        shm_conn_free(conn);
        return rc == -EMFILE || rc == -ENFILE ? -EAGAIN : rc;
    }
    conn_relist(conn, &ni->pending);
    if (peer->nid.value == ni->base.nid.value && peer->pid == ni->pid) {
        shm_conn_fail(conn, -EHOSTUNREACH); /* to ourselves is lo's affair */
    } else {
        conn_connect(conn);
    }
    *conn_out = &conn->base;
    return 0;
}

void
shm_conn_close(struct lnet_lnd_conn *base)
{
    struct shm_conn *conn = shm_conn_of(base);
    struct shm_ni *ni = shm_conn_ni(conn);

    BASE_ASSERT(conn->state != SHM_CONN_CLOSED && conn->state != SHM_CONN_LINGER);
    conn->base.owner = NULL;
    /* DOWN: it was up and failed on our side alone. */
    const bool is_alive =
        conn->state == SHM_CONN_UP || (conn->state == SHM_CONN_DOWN && conn->link.windows != NULL &&
                                       !shm_link_is_hung_up(&conn->link));

    if (is_alive && getpid() == ni->os_pid && ni->window_free_count < SHM_WINDOWS_MAX) {
        /* The peer may be copying to or from a window of ours, and does not know of this yet. */
        if (conn->state == SHM_CONN_DOWN) {
            struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = conn};

            /* Without it the end comes at the deadline. */
            (void)epoll_ctl(ni->epoll_fd, EPOLL_CTL_ADD, conn->link.fd, &event);
        }
        conn_quiesce(conn);
        conn->state = SHM_CONN_LINGER;
        conn_relist(conn, &ni->linger);
        conn->has_deadline = false;
        (void)shutdown(conn->link.fd, SHUT_WR);
        return;
    }
    conn_bury(conn);
}

void
shm_conn_linger_sweep(struct shm_ni *ni)
{
    if (ni->window_free_count == SHM_WINDOWS_MAX) {
        BASE_LIST_FOREACH_SAFE(link, tmp, &ni->linger) {
            conn_bury(BASE_CONTAINER_OF(link, struct shm_conn, state_link));
        }
    }
}

/* ---- accepting ----------------------------------------------------------------------------- */

void
shm_conn_accept(struct shm_ni *ni)
{
    for (int i = 0; i < SOCKET_PACKETS_MAX; i++) {
        const int fd = accept4(ni->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0) {
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
                /* Out of descriptors or memory: look away for a while, or it wakes us for ever. */
                shm_ni_log_refusal(ni, "accept: %s", base_errno_name(-errno));
                (void)epoll_ctl(ni->epoll_fd, EPOLL_CTL_DEL, ni->listen_fd, NULL);
                ni->is_listening = false;
                ni->listen_retry_ns = ni->now_ns + LISTEN_RETRY_NS;
            }
            return;
        }
        struct shm_conn *conn =
            ni->greeting_count < SHM_GREETINGS_MAX ? conn_make(ni, SHM_CONN_GREETING) : NULL;

        if (conn == NULL) {
            const struct shm_wire wire = {
                .type = SHM_WIRE_REFUSE, .u.refuse = {.error = EAGAIN, .text = "too many at once"}};

            shm_ni_log_refusal(ni, "accept: %u peers are connecting already", ni->greeting_count);
            (void)shm_wire_send(fd, &wire, NULL);
            (void)close(fd);
            continue;
        }
        ni->greeting_count++;
        conn->link.fd = fd;
        conn_relist(conn, &ni->pending);
        const int rc = link_identify(ni, &conn->link);

        if (rc != 0) {
            shm_ni_log_refusal(ni, "process %d: %s: another user's", (int)conn->link.os_pid,
                               base_errno_name(rc));
            refuse(conn, rc, "your process is another user's");
            continue;
        }
        conn_watch(conn, EPOLL_CTL_ADD, EPOLLIN | EPOLLRDHUP);
    }
}

/* Checks a HELLO's words. NULL: they are good; else why not. */
static const char *
hello_fault(const struct shm_ni *ni, const struct shm_hello *hello)
{
    const uint64_t net_mask = ~UINT64_C(0xffffffff);

    if (hello->to.nid.value != ni->base.nid.value || hello->to.pid != ni->pid) {
        return "the HELLO is for another process";
    }
    if ((hello->from.nid.value & net_mask) != (ni->base.nid.value & net_mask) ||
        (hello->from.nid.value == ni->base.nid.value && hello->from.pid == ni->pid)) {
        return "the HELLO comes from a NID that cannot be";
    }
    if (hello->eager_bytes_max != SHM_EAGER_BYTES) {
        return "the eager limits differ";
    }
    if (!base_is_pow2(hello->ring_bytes) || hello->ring_bytes < SHM_RING_BYTES_MIN ||
        hello->ring_bytes > SHM_RING_BYTES_MAX) {
        return "ring_bytes is out of range";
    }
    if (hello->incarnation == 0) {
        return "the incarnation is 0";
    }
    return NULL;
}

static bool
process_less(const struct lnet_process *a, const struct lnet_process *b)
{
    return a->nid.value != b->nid.value ? a->nid.value < b->nid.value : a->pid < b->pid;
}

/* Our connection with @peer, of any state in which LNet knows it; or NULL. */
static struct shm_conn *
conn_find(const struct shm_ni *ni, const struct lnet_process *peer)
{
    BASE_LIST_FOREACH(link, &ni->all) {
        struct shm_conn *conn = BASE_CONTAINER_OF(link, struct shm_conn, all_link);

        if (conn->state != SHM_CONN_GREETING && conn->state != SHM_CONN_CLOSED &&
            conn->state != SHM_CONN_LINGER && conn->base.peer.nid.value == peer->nid.value &&
            conn->base.peer.pid == peer->pid) {
            return conn;
        }
    }
    return NULL;
}

/* Moves the link of @from, which is accepted, into @to, our own attempt that lost against it. */
static void
conn_take_over(struct shm_conn *to, struct shm_conn *from)
{
    struct shm_ni *ni = shm_conn_ni(to);

    link_fini(to);
    if (to->memfd >= 0) {
        (void)close(to->memfd);
        to->memfd = -1;
    }
    to->link = from->link;
    link_init(&from->link);
    ni->slots[to->link.slot] = to;
    conn_watch(to, EPOLL_CTL_MOD, EPOLLIN | EPOLLRDHUP);
    conn_bury(from);
}

/* Maps what came with a HELLO. */
static int
greeting_map(struct shm_ni *ni, struct shm_conn *conn, const struct shm_hello *hello, int *fds)
{
    void *map = NULL;
    int rc = slot_take(ni, conn);

    if (rc != 0) {
        return rc;
    }
    conn->link.map_bytes = SHM_LINES_BYTES + 2 * hello->ring_bytes;
    conn->link.side = 1;
    rc = shm_memfd_map(fds[0], conn->link.map_bytes, true, false, &map);
    if (rc != 0) {
        return rc;
    }
    conn->link.map = map;
    rc = link_lay_out(&conn->link, hello->ring_bytes);
    return rc != 0 ? rc : link_take_peer(&conn->link, hello, fds + 1);
}

/* A HELLO came on @conn. Returns the upcalls made. */
static uint32_t
greeting_hello(struct shm_conn *conn, const struct shm_hello *hello, int *fds)
{
    struct shm_ni *ni = shm_conn_ni(conn);
    const struct lnet_process self = {.nid = ni->base.nid, .pid = ni->pid};
    const char *fault = hello_fault(ni, hello);

    conn->base.peer = hello->from;
    conn->base.peer.reserved = 0;
    if (fault != NULL) {
        shm_ni_log_refusal(ni, "process %d: refused: %s", (int)conn->link.os_pid, fault);
        refuse(conn, -EPROTO, fault);
        return 0;
    }
    struct shm_conn *mine = conn_find(ni, &conn->base.peer);

    if (mine != NULL && mine->state == SHM_CONN_UP &&
        mine->link.peer_incarnation != hello->incarnation && !shm_link_is_hung_up(&mine->link)) {
        shm_ni_log_refusal(ni, "process %d: refused: process %d is connected under its address",
                           (int)conn->link.os_pid, (int)mine->link.os_pid);
        refuse(conn, -EADDRINUSE, "another living process is connected under your address");
        return 0;
    }
    if (mine != NULL && ((mine->state != SHM_CONN_BACKOFF && mine->state != SHM_CONN_HELLO) ||
                         process_less(&self, &conn->base.peer))) {
        refuse(conn, -EALREADY, "there is a connection already");
        return 0;
    }
    int rc = greeting_map(ni, conn, hello, fds);

    if (rc != 0) {
        shm_ni_log_refusal(ni, "process %d: refused: its descriptors: %s", (int)conn->link.os_pid,
                           base_errno_name(rc));
        refuse(conn, rc, "your descriptors are not what they must be, or no room for them");
        return 0;
    }
    ni->greeting_count--;
    conn->state = SHM_CONN_UP;
    if (mine != NULL) {
        conn_take_over(mine, conn);
        if (mine->state == SHM_CONN_DOWN) {
            return 0;
        }
        mine->state = SHM_CONN_UP;
        rc = conn_introduce(mine);
        conn_go_up(mine);
        if (rc == 0) {
            shm_conn_say(mine);
        }
        ni->events->conn_up(ni->base.owner, &mine->base);
        return 1;
    }
    base_list_unlink(&conn->state_link);
    rc = ni->events->accepted(ni->base.owner, &conn->base);
    if (conn->state != SHM_CONN_UP) {
        return 1; /* closed again in the upcall */
    }
    if (rc != 0) {
        refuse(conn, rc, "not taken by LNet");
        return 1;
    }
    rc = conn_introduce(conn);
    conn_go_up(conn);
    if (rc == 0) {
        shm_conn_say(conn);
    }
    return 1;
}

/* ---- packets ------------------------------------------------------------------------------- */

/* The answer to our HELLO. Returns the upcalls made. */
static uint32_t
hello_welcome(struct shm_conn *conn, const struct shm_hello *hello, int *fds)
{
    struct shm_ni *ni = shm_conn_ni(conn);
    int rc = 0;

    if (hello->from.nid.value != conn->base.peer.nid.value ||
        hello->from.pid != conn->base.peer.pid || hello->incarnation == 0) {
        rc = -EPROTO;
    } else {
        rc = link_take_peer(&conn->link, hello, fds);
    }
    if (rc != 0) {
        shm_ni_log_refusal(ni, "peer %u-%u@shm: bad WELCOME: %s", conn->base.peer.pid,
                           (uint32_t)conn->base.peer.nid.value, base_errno_name(rc));
        shm_conn_fail(conn, rc);
        return 0;
    }
    (void)close(conn->memfd);
    conn->memfd = -1;
    conn_go_up(conn);
    shm_conn_say(conn);
    ni->events->conn_up(ni->base.owner, &conn->base);
    return 1;
}

static void
hello_refused(struct shm_conn *conn, const struct shm_refuse *refusal)
{
    struct shm_ni *ni = shm_conn_ni(conn);

    /* The acceptor has not mapped the memory of the connection: it serves for another try. */
    if (refusal->error == EALREADY || is_transient(-refusal->error)) {
        conn_back_off(conn);
        return;
    }
    shm_ni_log(ni, LNET_LOG_ERROR, "peer %u-%u@shm: refused us: %s: %s", conn->base.peer.pid,
               (uint32_t)conn->base.peer.nid.value, base_errno_name(refusal->error), refusal->text);
    shm_conn_fail(conn, -refusal->error);
}

/* One packet, in whatever state we are. Returns the upcalls made. */
static uint32_t
conn_packet(struct shm_conn *conn, const struct shm_wire *wire, int *fds)
{
    int rc = 0;

    if (conn->state == SHM_CONN_GREETING && wire->type == SHM_WIRE_HELLO) {
        return greeting_hello(conn, &wire->u.hello, fds);
    }
    if (conn->state == SHM_CONN_HELLO && wire->type == SHM_WIRE_WELCOME) {
        return hello_welcome(conn, &wire->u.hello, fds);
    }
    if (conn->state == SHM_CONN_HELLO && wire->type == SHM_WIRE_REFUSE) {
        hello_refused(conn, &wire->u.refuse);
        return 0;
    }
    if (conn->state == SHM_CONN_LINGER) {
        return 0;
    }
    if (conn->state == SHM_CONN_UP &&
        (wire->type == SHM_WIRE_REGION || wire->type == SHM_WIRE_GONE)) {
        rc = shm_region_update(conn, &wire->u.region, wire->type == SHM_WIRE_REGION ? fds[0] : -1);
        if (rc == -ENOMEM) { /* not known here, as when there is no descriptor left for it */
            shm_ni_log_refusal(
                shm_conn_ni(conn), "process %d: no room to map a region of %llu bytes",
                (int)conn->link.os_pid, (unsigned long long)wire->u.region.length_bytes);
            rc = 0;
        }
    } else if (conn->state == SHM_CONN_UP && wire->type == SHM_WIRE_NUDGE) {
        shm_conn_promote(conn);
    } else {
        rc = -EPROTO;
    }
    if (rc != 0) {
        shm_ni_log_refusal(shm_conn_ni(conn), "peer %u-%u@shm: packet %u: %s", conn->base.peer.pid,
                           (uint32_t)conn->base.peer.nid.value, wire->type, base_errno_name(rc));
        shm_conn_fail(conn, rc);
    }
    return 0;
}

/* A packet could not be read. Returns whether @conn lives on. */
static bool
packet_refused(struct shm_conn *conn, int rc)
{
    const char *why = rc == -EPROTO            ? "malformed packet"
                      : rc == -EPROTONOSUPPORT ? "protocol version 1 is spoken here"
                                               : "out of descriptors (RLIMIT_NOFILE)";

    shm_ni_log_refusal(shm_conn_ni(conn), "process %d: %s", (int)conn->link.os_pid, why);
    if (conn->state == SHM_CONN_GREETING) {
        refuse(conn, rc, why);
    } else if (rc != -EMFILE || (conn->state != SHM_CONN_UP && conn->state != SHM_CONN_LINGER)) {
        shm_conn_fail(conn, rc);
    } else {
        return true; /* a region is not known here: other paths lead to its memory */
    }
    return false;
}

uint32_t
shm_conn_socket(struct shm_conn *conn)
{
    uint32_t upcalls = 0;

    for (int i = 0; i < SOCKET_PACKETS_MAX && upcalls == 0; i++) {
        struct shm_wire wire;
        int fds[SHM_WIRE_FDS_MAX] = {-1, -1, -1, -1};

        if (conn->state == SHM_CONN_BACKOFF || conn->state == SHM_CONN_DYING ||
            conn->state == SHM_CONN_DOWN || conn->state == SHM_CONN_CLOSED) {
            break;
        }
        const int rc = shm_wire_recv(conn->link.fd, &wire, fds);

        if (rc == -EAGAIN || rc == -EINTR) {
            break;
        }
        if (rc == -EPROTO || rc == -EPROTONOSUPPORT || rc == -EMFILE) {
            if (packet_refused(conn, rc)) {
                continue;
            }
            break;
        }
        if (rc <= 0) {
            conn_hang_up(conn);
            break;
        }
        upcalls += conn_packet(conn, &wire, fds);
        fds_close(fds, wire.fd_count);
    }
    return upcalls;
}

/* ---- time ---------------------------------------------------------------------------------- */

void
shm_conn_pending(struct shm_ni *ni)
{
    BASE_LIST_FOREACH_SAFE(link, tmp, &ni->pending) {
        struct shm_conn *conn = BASE_CONTAINER_OF(link, struct shm_conn, state_link);

        if (!conn->has_deadline) {
            conn->has_deadline = true;
            conn->deadline_ns = ni->now_ns + ni->connect_timeout_ns;
        }
        if (ni->now_ns >= conn->deadline_ns) {
            shm_ni_log_refusal(ni, "process %d: handshake timed out", (int)conn->link.os_pid);
            shm_conn_fail(conn, -ETIMEDOUT);
        } else if (conn->state == SHM_CONN_BACKOFF && ni->now_ns >= conn->retry_ns) {
            conn_connect(conn);
        } else if (conn->has_unsent && ni->now_ns >= conn->retry_ns) {
            const int rc = conn_introduce(conn);

            if (rc == 0 && conn->state == SHM_CONN_UP) {
                base_list_unlink(&conn->state_link);
                shm_conn_say(conn);
            } else if (rc != 0 && rc != -EAGAIN && conn->state == SHM_CONN_HELLO) {
                shm_conn_fail(conn, rc);
            }
        }
    }
    BASE_LIST_FOREACH_SAFE(link, tmp, &ni->linger) {
        struct shm_conn *conn = BASE_CONTAINER_OF(link, struct shm_conn, state_link);

        if (!conn->has_deadline) {
            conn->has_deadline = true;
            conn->deadline_ns = ni->now_ns + ni->connect_timeout_ns;
        } else if (ni->now_ns >= conn->deadline_ns) {
            conn_bury(conn);
        }
    }
    if (ni->listen_fd >= 0 && !ni->is_listening && ni->now_ns >= ni->listen_retry_ns) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &ni->listen_fd};

        ni->is_listening = epoll_ctl(ni->epoll_fd, EPOLL_CTL_ADD, ni->listen_fd, &event) == 0;
        ni->listen_retry_ns = ni->now_ns + LISTEN_RETRY_NS;
    }
}

uint64_t
shm_conn_pending_ns(const struct shm_ni *ni)
{
    uint64_t when_ns = UINT64_MAX;

    BASE_LIST_FOREACH(link, &ni->pending) {
        const struct shm_conn *conn = BASE_CONTAINER_OF(link, struct shm_conn, state_link);

        if (!conn->has_deadline) {
            return 0;
        }
        when_ns = base_min_u64(when_ns, conn->deadline_ns);
        if (conn->state == SHM_CONN_BACKOFF || conn->has_unsent) {
            when_ns = base_min_u64(when_ns, conn->retry_ns);
        }
    }
    BASE_LIST_FOREACH(link, &ni->linger) {
        const struct shm_conn *conn = BASE_CONTAINER_OF(link, struct shm_conn, state_link);

        when_ns = base_min_u64(when_ns, conn->has_deadline ? conn->deadline_ns : 0);
    }
    if (ni->listen_fd >= 0 && !ni->is_listening) {
        when_ns = base_min_u64(when_ns, ni->listen_retry_ns);
    }
    return when_ns;
}

/* ---- doorbells ----------------------------------------------------------------------------- */

/* Wakes the peer by way of its socket. */
static void
link_nudge(const struct shm_link *link)
{
    const struct shm_wire wire = {.type = SHM_WIRE_NUDGE};

    (void)shm_wire_send(link->fd, &wire, NULL); /* a full queue has woken it already */
}

/*
 * Wakes the peer. Its eventfd is in the hands of all its peers: one may have filled it, or made it
 * block, which must stop neither us nor the peer.
 */
static void
bell_wake(const struct shm_link *link)
{
    const uint64_t one = 1;
    const int flags = fcntl(link->event_fd, F_GETFL);

    if (flags < 0 || (flags & O_NONBLOCK) == 0 || write(link->event_fd, &one, sizeof(one)) < 0) {
        link_nudge(link);
    }
}

void
shm_conn_ring(struct shm_conn *conn)
{
    struct shm_link *link = &conn->link;

    if (link->bells == NULL) {
        link_nudge(link);
        return;
    }
    struct shm_bells *bells = link->bells;
    const uint32_t word = link->peer_slot / 64;

    (void)__atomic_fetch_or(&bells->words[word], UINT64_C(1) << (link->peer_slot % 64),
                            __ATOMIC_SEQ_CST);
    (void)__atomic_fetch_or(&bells->summary, UINT64_C(1) << word, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&bells->sleeping, __ATOMIC_SEQ_CST) != 0 &&
        __atomic_exchange_n(&bells->sleeping, 0, __ATOMIC_SEQ_CST) != 0) {
        bell_wake(link);
    }
}
