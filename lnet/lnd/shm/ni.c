/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface: open and close, the poll turn, sending, sleeping. The ops table is at the end.
 *
 * A turn: ring the peers we sent to since the last one; finished RMA; sockets, if it is time;
 * connections that rang; the hot rings; senders that wait for room; connections that went down.
 * Each part but the last two is a load or a compare when there is nothing to do.
 *
 * Sleeping: every hot ring is asked to ring (arm_seq), the doorbell page says that we sleep, then,
 * after a fence, everything is looked at once more. A peer publishes, fences, and looks at arm_seq:
 * one of the two sees the other's word.
 */
#include "lnet/lnd/shm/ni.h"

#include "base/log.h"
#include "lnet/lnd/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#    define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define RING_BYTES_DEFAULT 65536u
#define EVENTS_MAX         32
#define LOG_TEXT_BYTES     512
#define REFUSAL_LOG_NS     UINT64_C(1000000000)

/* ---- log ----------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 0))) static void
log_write(const struct shm_ni *ni, int level, const char *format, va_list args)
{
    char text[LOG_TEXT_BYTES];

    if (ni->log != NULL) {
        (void)vsnprintf(text, sizeof(text), format, args);
        ni->log(ni->log_arg, level, text);
    }
}

void
shm_ni_log(const struct shm_ni *ni, int level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_write(ni, level, format, args);
    va_end(args);
}

void
shm_ni_log_refusal(struct shm_ni *ni, const char *format, ...)
{
    va_list args;

    if (ni->refusal_count > 0 && ni->now_ns < ni->refusal_ns + REFUSAL_LOG_NS) {
        ni->refusal_count++;
        return;
    }
    if (ni->refusal_count > 1) {
        shm_ni_log(ni, LNET_LOG_WARN, "%u more peers or packets were refused",
                   ni->refusal_count - 1);
    }
    ni->refusal_count = 1;
    ni->refusal_ns = ni->now_ns;
    va_start(args, format);
    log_write(ni, LNET_LOG_WARN, format, args);
    va_end(args);
}

/* ---- open and close ------------------------------------------------------------------------ */

static int
options_take(struct shm_ni *ni, const struct lnet_ni_options *options)
{
    const char *path = options->rma_path != NULL ? options->rma_path : "auto";

    ni->flags = options->flags;
    ni->ring_bytes = options->ring_bytes != 0 ? options->ring_bytes : RING_BYTES_DEFAULT;
    if (!base_is_pow2(ni->ring_bytes) || ni->ring_bytes < SHM_RING_BYTES_MIN ||
        ni->ring_bytes > SHM_RING_BYTES_MAX) {
        shm_ni_log(ni, LNET_LOG_ERROR, "ring_bytes %llu is no power of two from %u to %u",
                   (unsigned long long)ni->ring_bytes, SHM_RING_BYTES_MIN, SHM_RING_BYTES_MAX);
        return -EINVAL;
    }
    ni->is_rma_forced = true;
    if (strcmp(path, "auto") == 0) {
        ni->is_rma_forced = false;
    } else if (strcmp(path, "mapped") == 0) {
        ni->rma_forced = LNET_RMA_MAPPED;
    } else if (strcmp(path, "cma") == 0) {
        ni->rma_forced = LNET_RMA_CMA;
    } else if (strcmp(path, "none") == 0) {
        ni->rma_forced = LNET_RMA_NONE;
    } else {
        shm_ni_log(ni, LNET_LOG_ERROR, "rma_path \"%s\" is none of auto, mapped, cma, none", path);
        return -EINVAL;
    }
    return 0;
}

/* The shared pages and the descriptors to sleep on. ni_free() undoes what is there. */
static int
resources_open(struct shm_ni *ni)
{
    void *map = NULL;
    int rc = shm_memfd_make("causeway-bells", SHM_BELLS_BYTES, &ni->bells_fd, &map);

    if (rc != 0) {
        return rc;
    }
    ni->bells = map;
    rc = shm_memfd_make("causeway-windows", sizeof(struct shm_windows), &ni->windows_fd, &map);
    if (rc != 0) {
        return rc;
    }
    ni->windows = map;
    /* From now on nobody can map it for writing: peers can't open windows to each other. */
    (void)fcntl(ni->windows_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
    /* And nobody can shut later peers out by seals of its own. */
    (void)fcntl(ni->bells_fd, F_ADD_SEALS, F_SEAL_SEAL);
    ni->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ni->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (ni->event_fd < 0 || ni->epoll_fd < 0) {
        return -errno;
    }
    /* Each write is an event by itself. So it need not be read. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = &ni->event_fd};

    return epoll_ctl(ni->epoll_fd, EPOLL_CTL_ADD, ni->event_fd, &event) != 0 ? -errno : 0;
}

static void
ni_free(struct shm_ni *ni)
{
    const int fds[] = {ni->bells_fd, ni->windows_fd, ni->event_fd, ni->epoll_fd};

    for (size_t i = 0; i < BASE_ARRAY_LEN(fds); i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    if (ni->bells != NULL) {
        (void)munmap(ni->bells, SHM_BELLS_BYTES);
    }
    if (ni->windows != NULL) {
        (void)munmap(ni->windows, sizeof(struct shm_windows));
    }
    free(ni);
}

static struct shm_ni *
ni_make(const struct lnet_lnd_config *config, struct lnet_ni *owner,
        const struct lnet_lnd_events *events)
{
    struct shm_ni *ni = calloc(1, sizeof(*ni));

    if (ni == NULL) {
        return NULL;
    }
    ni->base = (struct lnet_lnd_ni){
        .ops = &lnet_lnd_shm,
        .owner = owner,
        .nid = {(uint64_t)LNET_LND_SHM << 48 | (uint64_t)(config->net_number & 0xffff) << 32}};
    ni->events = events;
    ni->log = config->log;
    ni->log_arg = config->log_arg;
    ni->incarnation = config->incarnation;
    ni->connect_timeout_ns = config->connect_timeout_ns;
    ni->pid = config->pid;
    ni->uid = geteuid();
    ni->os_pid = getpid();
    ni->probe_value = base_hash_u64(config->incarnation ^ (uintptr_t)ni) | 1;
    ni->run_dir_fd = ni->lock_fd = ni->listen_fd = -1;
    ni->bells_fd = ni->windows_fd = ni->event_fd = ni->epoll_fd = -1;
    struct base_list *lists[] = {&ni->all,  &ni->pending, &ni->down,   &ni->linger,
                                 &ni->dead, &ni->dirty,   &ni->blocked};

    for (size_t i = 0; i < BASE_ARRAY_LEN(lists); i++) {
        base_list_init(lists[i]);
    }
    for (uint32_t slot = SHM_WINDOWS_MAX; slot-- > 0;) {
        ni->window_free[ni->window_free_count++] = slot;
    }
    return ni;
}

static int
ni_open(const struct lnet_lnd_config *config, struct lnet_ni *owner,
        const struct lnet_lnd_events *events, struct lnet_lnd_ni **ni_out)
{
    struct shm_ni *ni = ni_make(config, owner, events);

    if (ni == NULL) {
        return -ENOMEM;
    }
    int rc = options_take(ni, config->options);

    if (rc != 0) {
        goto fail_free;
    }
    rc = resources_open(ni);
    if (rc != 0) {
        shm_ni_log(ni, LNET_LOG_ERROR, "shared pages and descriptors: %s", base_errno_name(rc));
        goto fail_free;
    }
    rc = shm_rundir_open(ni, config->options);
    if (rc != 0) {
        goto fail_free;
    }
    if (ni->listen_fd >= 0) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &ni->listen_fd};

        if (epoll_ctl(ni->epoll_fd, EPOLL_CTL_ADD, ni->listen_fd, &event) != 0) {
            rc = -errno;
            goto fail_rundir;
        }
        ni->is_listening = true;
    }
    /* Of ourselves first: a system call that is forbidden is known before the first peer comes. */
    struct shm_link self = {.os_pid = ni->os_pid,
                            .probe_address = (uintptr_t)&ni->probe_value,
                            .probe_value = ni->probe_value};

    shm_cma_probe(&self);
    ni->cma_error = self.cma_error;
    *ni_out = &ni->base;
    return 0;

fail_rundir:
    shm_rundir_close(ni, true);
fail_free:
    ni_free(ni);
    return rc;
}

static void
ni_close(struct lnet_lnd_ni *base)
{
    struct shm_ni *ni = shm_ni_of(base);

    BASE_LIST_FOREACH_SAFE(link, tmp, &ni->all) {
        shm_conn_free(BASE_CONTAINER_OF(link, struct shm_conn, all_link));
    }
    while (ni->completion_count > 0) {
        const struct shm_completion *done = &ni->completions[ni->completion_first];

        ni->completion_first = (ni->completion_first + 1) & (SHM_COMPLETIONS_MAX - 1);
        ni->completion_count--;
        done->done(done->ctx, done->status, done->user);
    }
    shm_rundir_close(ni, getpid() == ni->os_pid);
    ni_free(ni);
}

static void
ni_abandon(struct lnet_lnd_ni *base)
{
    struct shm_ni *ni = shm_ni_of(base);

    BASE_LIST_FOREACH_SAFE(link, tmp, &ni->all) {
        shm_conn_free(BASE_CONTAINER_OF(link, struct shm_conn, all_link));
    }
    for (uint32_t slot = 0; slot < SHM_REGIONS_MAX; slot++) {
        const struct shm_mem *mem = ni->regions[slot];

        if (mem != NULL) {
            (void)munmap(mem->address, mem->length_bytes);
            (void)close(mem->fd);
        }
    }
    shm_rundir_close(ni, false);
    ni_free(ni);
}

static bool
ni_can_reach(const struct lnet_lnd_ni *base, struct lnet_nid nid)
{
    return nid.value >> 32 == base->nid.value >> 32;
}

/* ---- sending ------------------------------------------------------------------------------- */

/* Copies the @bytes bytes of @iov to @to. */
static inline void
payload_copy(uint8_t *to, const struct iovec *iov, uint32_t iov_count, uint32_t bytes)
{
    uint64_t copied = 0;

    for (uint32_t i = 0; i < iov_count; i++) {
        BASE_ASSERT(iov[i].iov_len <= bytes - copied);
        (void)memcpy(to + copied, iov[i].iov_base, iov[i].iov_len);
        copied += iov[i].iov_len;
    }
    BASE_ASSERT(copied == bytes);
}

/* There was no room: remembers what is needed for writable(), or ends the connection. */
static int
send_refused(struct shm_conn *conn, uint32_t slot_count, int rc)
{
    if (rc == -EPROTO) {
        shm_ni_log_refusal(shm_conn_ni(conn),
                           "peer %u-%u@shm: returned slots that it does not have",
                           conn->base.peer.pid, (uint32_t)conn->base.peer.nid.value);
        shm_conn_fail(conn, -EPROTO);
        return -ENOTCONN;
    }
    conn->blocked_slots = slot_count;
    if (!conn->is_blocked) {
        conn->is_blocked = true;
        base_list_append(&shm_conn_ni(conn)->blocked, &conn->blocked_link);
    }
    return -EAGAIN;
}

static int
conn_send(struct lnet_lnd_conn *base, const struct lnet_hdr *hdr, const struct iovec *iov,
          uint32_t iov_count)
{
    struct shm_conn *conn = shm_conn_of(base);
    const bool has_payload = hdr->type == LNET_MSG_PUT || hdr->type == LNET_MSG_REPLY;
    const uint32_t payload_bytes = has_payload ? hdr->length_bytes : 0;
    const uint32_t frame_bytes = LNET_FRAME_BYTES + payload_bytes;
    int rc = 0;

    if (BASE_UNLIKELY(conn->state != SHM_CONN_UP)) {
        return -ENOTCONN;
    }
    BASE_ASSERT(payload_bytes <= SHM_EAGER_BYTES);
    uint8_t *slot = shm_tx_reserve(&conn->link.tx, shm_ring_slots(frame_bytes), &rc);

    if (BASE_UNLIKELY(slot == NULL)) {
        return send_refused(conn, shm_ring_slots(frame_bytes), rc);
    }
    lnet_frame_encode(hdr, slot + SHM_WORD_BYTES);
    if (payload_bytes > 0) {
        payload_copy(slot + SHM_WORD_BYTES + LNET_FRAME_BYTES, iov, iov_count, payload_bytes);
    }
    shm_tx_publish(&conn->link.tx, frame_bytes);
    if (!conn->is_dirty) {
        conn->is_dirty = true;
        base_list_append(&shm_conn_ni(conn)->dirty, &conn->dirty_link);
    }
    return 0;
}

/* Rings the peers that asked for it and were sent to since the last turn. */
static void
doorbells_flush(struct shm_ni *ni)
{
    shm_fence(); /* publish before the look at arm_seq; its counterpart is in conn_demote() */
    while (!base_list_empty(&ni->dirty)) {
        struct shm_conn *conn = BASE_CONTAINER_OF(ni->dirty.next, struct shm_conn, dirty_link);
        const uint32_t seq = __atomic_load_n(&conn->link.theirs->arm_seq, __ATOMIC_RELAXED);

        base_list_unlink(&conn->dirty_link);
        conn->is_dirty = false;
        if (seq != conn->link.arm_seen) {
            conn->link.arm_seen = seq;
            shm_conn_ring(conn);
        }
    }
}

/* ---- receiving ----------------------------------------------------------------------------- */

/* Gives consumed slots back and rings if the peer waits for them. */
static void
slots_return(struct shm_conn *conn)
{
    struct shm_link *link = &conn->link;

    shm_rx_return(&link->rx);
    shm_fence();
    const uint32_t seq = __atomic_load_n(&link->theirs->want_seq, __ATOMIC_RELAXED);

    if (seq != link->want_seen) {
        link->want_seen = seq;
        if (conn->state == SHM_CONN_UP) {
            shm_conn_ring(conn);
        }
    }
}

/* Asks the peer to ring from now on. The caller fences and looks at the ring again. */
static void
conn_ask_to_ring(struct shm_conn *conn)
{
    uint32_t *seq = &conn->link.ours->arm_seq;

    __atomic_store_n(seq, *seq + 1, __ATOMIC_RELAXED);
}

/* A connection was idle for long: its ring is not looked at until the peer rings. */
static void
conn_demote(struct shm_conn *conn)
{
    if (conn->link.rx.returned != conn->link.rx.next) {
        slots_return(conn);
    }
    conn_ask_to_ring(conn);
    shm_fence();
    if (!shm_rx_ready(&conn->link.rx)) {
        shm_conn_cool(conn);
    }
}

/* Ends a connection whose peer wrote nonsense. */
static void
conn_malformed(struct shm_conn *conn, int rc)
{
    shm_ni_log_refusal(shm_conn_ni(conn), "peer %u-%u@shm: malformed message: %s",
                       conn->base.peer.pid, (uint32_t)conn->base.peer.nid.value,
                       base_errno_name(rc));
    shm_conn_fail(conn, rc);
}

/* Delivers up to @budget messages of a hot connection. Returns the upcalls made. */
static uint32_t
conn_receive(struct shm_ni *ni, struct shm_conn *conn, uint32_t budget)
{
    struct shm_rx *rx = &conn->link.rx;
    uint32_t count = 0;

    while (count < budget) {
        const uint8_t *frame = NULL;
        uint32_t frame_bytes = 0;
        struct lnet_hdr hdr;
        int rc = shm_rx_peek(rx, &frame, &frame_bytes);

        if (rc == 0) {
            break;
        }
        if (rc > 0) {
            rc = lnet_frame_decode(frame, frame_bytes, SHM_EAGER_BYTES, &hdr);
        }
        if (BASE_UNLIKELY(rc < 0)) {
            conn_malformed(conn, rc);
            return count;
        }
        count++;
        rc = ni->events->recv(ni->base.owner, &conn->base, &hdr, frame + LNET_FRAME_BYTES);
        if (BASE_UNLIKELY(conn->state != SHM_CONN_UP && conn->state != SHM_CONN_DYING)) {
            return count; /* closed in the upcall */
        }
        if (BASE_UNLIKELY(rc < 0)) {
            conn_malformed(conn, rc);
            return count;
        }
        if (shm_rx_advance(rx, frame_bytes)) {
            slots_return(conn);
        }
    }
    return count;
}

/* Goes once through the hot connections, from where the last turn ended. */
static uint32_t
hot_poll(struct shm_ni *ni, uint32_t budget)
{
    uint32_t count = 0;
    const uint32_t rounds = ni->hot_count;

    for (uint32_t i = 0; i < rounds && count < budget && ni->hot_count > 0; i++) {
        if (ni->hot_next >= ni->hot_count) {
            ni->hot_next = 0;
        }
        struct shm_conn *conn = ni->hot[ni->hot_next];
        const uint32_t got = conn_receive(ni, conn, base_min_u32(SHM_CONN_BATCH, budget - count));

        count += got;
        if (got > 0) {
            conn->idle_turns = 0;
        } else if (conn->state == SHM_CONN_DYING) {
            shm_conn_fail(conn, -ECONNRESET);
        } else if (conn->state == SHM_CONN_UP && ++conn->idle_turns >= SHM_DEMOTE_TURNS) {
            conn->idle_turns = 0;
            conn_demote(conn);
        }
        /* If it left the list, another has taken its place: that one's turn is next. */
        if (ni->hot_next < ni->hot_count && ni->hot[ni->hot_next] == conn) {
            ni->hot_next++;
        }
    }
    return count;
}

/* Makes the connections hot whose peers rang. */
static void
bells_poll(struct shm_ni *ni)
{
    uint64_t summary = __atomic_exchange_n(&ni->bells->summary, 0, __ATOMIC_SEQ_CST);

    while (summary != 0) {
        const uint32_t word = (uint32_t)__builtin_ctzll(summary);
        uint64_t bits = __atomic_exchange_n(&ni->bells->words[word], 0, __ATOMIC_SEQ_CST);

        summary &= summary - 1;
        while (bits != 0) {
            struct shm_conn *conn = ni->slots[word * 64 + (uint32_t)__builtin_ctzll(bits)];

            bits &= bits - 1;
            if (conn != NULL && conn->state == SHM_CONN_UP) {
                shm_conn_promote(conn);
            }
        }
    }
}

/* Whether a refused send() of @conn would be accepted now. */
static bool
is_unblocked(struct shm_conn *conn)
{
    struct shm_tx *tx = &conn->link.tx;

    if (shm_tx_refresh(tx) != 0) {
        conn_malformed(conn, -EPROTO);
        return false;
    }
    return shm_tx_free(tx) >= shm_tx_need(tx, conn->blocked_slots);
}

static uint32_t
blocked_poll(struct shm_ni *ni, uint32_t budget)
{
    struct base_list list;
    uint32_t count = 0;

    /* writable() may block a connection again: it goes to the end of the list, for the next turn.
     */
    base_list_init(&list);
    base_list_move_all(&list, &ni->blocked);
    while (!base_list_empty(&list)) {
        struct shm_conn *conn = BASE_CONTAINER_OF(list.next, struct shm_conn, blocked_link);

        base_list_unlink(&conn->blocked_link);
        if (count < budget && is_unblocked(conn)) {
            conn->is_blocked = false;
            count++;
            ni->events->writable(ni->base.owner, &conn->base);
        } else if (conn->state == SHM_CONN_UP) {
            base_list_append(&ni->blocked, &conn->blocked_link);
        }
    }
    return count;
}

/* Tells LNet of connections that are over. */
static uint32_t
down_poll(struct shm_ni *ni, uint32_t budget)
{
    uint32_t count = 0;

    while (count < budget && !base_list_empty(&ni->down)) {
        struct shm_conn *conn = BASE_CONTAINER_OF(ni->down.next, struct shm_conn, state_link);

        count++;
        base_list_unlink(&conn->state_link);
        ni->events->conn_down(ni->base.owner, &conn->base, conn->down_reason);
    }
    return count;
}

static uint32_t
completions_poll(struct shm_ni *ni, uint32_t budget)
{
    uint32_t count = 0;
    /* Those started from a callback are for the next turn. */
    const uint32_t limit = base_min_u32(budget, ni->completion_count);

    while (count < limit) {
        const struct shm_completion done = ni->completions[ni->completion_first];

        ni->completion_first = (ni->completion_first + 1) & (SHM_COMPLETIONS_MAX - 1);
        ni->completion_count--;
        count++;
        done.done(done.ctx, done.status, done.user);
    }
    return count;
}

static uint32_t
sockets_poll(struct shm_ni *ni, uint32_t budget)
{
    struct epoll_event events[EVENTS_MAX];
    uint32_t count = 0;
    const int event_count =
        epoll_wait(ni->epoll_fd, events, (int)base_min_u32(EVENTS_MAX, budget), 0);

    ni->turns = 0;
    ni->sockets_ns = ni->now_ns + SHM_SOCKET_NS;
    for (int i = 0; i < event_count; i++) {
        if (events[i].data.ptr == &ni->event_fd) {
            uint64_t value = 0;
            const struct iovec iov = {.iov_base = &value, .iov_len = sizeof(value)};

            /* A peer may have filled it, which others would wait for, or emptied it and made it
             * block. A kernel that cannot say "do not wait" (before 5.9) leaves it as it is. */
            if (preadv2(ni->event_fd, &iov, 1, -1, RWF_NOWAIT) < 0) {
                /* Empty: fine. */
            }
        } else if (events[i].data.ptr == &ni->listen_fd) {
            shm_conn_accept(ni);
        } else {
            struct shm_conn *conn = events[i].data.ptr;

            if ((events[i].events & EPOLLOUT) != 0 && conn->state == SHM_CONN_UP) {
                shm_conn_say(conn);
            }
            count += shm_conn_socket(conn);
        }
    }
    return count;
}

static uint32_t
ni_poll(struct lnet_lnd_ni *base, uint64_t now_ns, uint32_t budget)
{
    struct shm_ni *ni = shm_ni_of(base);
    uint32_t count = 0;

    ni->now_ns = now_ns;
    ni->is_in_poll = true;
    if (!base_list_empty(&ni->dirty)) {
        doorbells_flush(ni);
    }
    if (ni->is_armed) {
        ni->is_armed = false;
        __atomic_store_n(&ni->bells->sleeping, 0, __ATOMIC_RELAXED);
        ni->sockets_ns = now_ns;
    }
    if (ni->completion_count > 0) {
        count += completions_poll(ni, budget);
    }
    if ((now_ns >= ni->sockets_ns || ++ni->turns >= SHM_SOCKET_TURNS) && count < budget) {
        count += sockets_poll(ni, budget - count);
    }
    if (!base_list_empty(&ni->pending) || !base_list_empty(&ni->linger) ||
        ni->is_listening != (ni->listen_fd >= 0)) {
        shm_conn_pending(ni);
    }
    if (__atomic_load_n(&ni->bells->summary, __ATOMIC_RELAXED) != 0) {
        bells_poll(ni);
    }
    count += hot_poll(ni, budget - count);
    if (!base_list_empty(&ni->blocked)) {
        count += blocked_poll(ni, budget - count);
    }
    if (!base_list_empty(&ni->down)) {
        count += down_poll(ni, budget - count);
    }
    ni->is_in_poll = false;
    while (!base_list_empty(&ni->dead)) {
        shm_conn_free(BASE_CONTAINER_OF(ni->dead.next, struct shm_conn, state_link));
    }
    return count;
}

/* ---- sleeping ------------------------------------------------------------------------------ */

static int
ni_fd(struct lnet_lnd_ni *base)
{
    return shm_ni_of(base)->epoll_fd;
}

/* Looks whether anything came while we asked to be rung. */
static bool
is_busy_after_asking(struct shm_ni *ni)
{
    if (__atomic_load_n(&ni->bells->summary, __ATOMIC_RELAXED) != 0) {
        return true;
    }
    for (uint32_t i = 0; i < ni->hot_count; i++) {
        if (shm_rx_ready(&ni->hot[i]->link.rx)) {
            return true;
        }
    }
    BASE_LIST_FOREACH_SAFE(link, tmp, &ni->blocked) {
        struct shm_conn *conn = BASE_CONTAINER_OF(link, struct shm_conn, blocked_link);

        if (is_unblocked(conn) || conn->state != SHM_CONN_UP) {
            return true;
        }
    }
    return false;
}

static int
ni_arm(struct lnet_lnd_ni *base)
{
    struct shm_ni *ni = shm_ni_of(base);

    if (!base_list_empty(&ni->dirty)) {
        doorbells_flush(ni);
    }
    if (ni->completion_count > 0 || !base_list_empty(&ni->down)) {
        return -EBUSY;
    }
    for (uint32_t i = 0; i < ni->hot_count; i++) {
        struct shm_conn *conn = ni->hot[i];

        if (conn->state == SHM_CONN_DYING) {
            return -EBUSY;
        }
        if (conn->link.rx.returned != conn->link.rx.next) {
            slots_return(conn);
        }
        conn_ask_to_ring(conn);
    }
    BASE_LIST_FOREACH(link, &ni->blocked) {
        uint32_t *seq =
            &BASE_CONTAINER_OF(link, struct shm_conn, blocked_link)->link.ours->want_seq;

        __atomic_store_n(seq, *seq + 1, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&ni->bells->sleeping, 1, __ATOMIC_RELAXED);
    shm_fence();
    if (is_busy_after_asking(ni)) {
        __atomic_store_n(&ni->bells->sleeping, 0, __ATOMIC_RELAXED);
        return -EBUSY;
    }
    while (ni->hot_count > 0) {
        shm_conn_cool(ni->hot[ni->hot_count - 1]);
    }
    ni->is_armed = true;
    return 0;
}

static uint64_t
ni_next_deadline(const struct lnet_lnd_ni *base)
{
    return shm_conn_pending_ns(shm_ni_of(base));
}

/* ---- looking ------------------------------------------------------------------------------- */

static void
conn_credits(const struct lnet_lnd_conn *base, struct lnet_lnd_credit_info *info_out)
{
    struct shm_conn *conn = shm_conn_of(base);

    *info_out = (struct lnet_lnd_credit_info){0};
    if (conn->link.map != NULL) {
        shm_tx_note_min(&conn->link.tx);
        info_out->max = (int32_t)conn->link.tx.slot_count - 1;
        info_out->available = (int32_t)shm_tx_free(&conn->link.tx);
        info_out->min = (int32_t)conn->link.tx.free_min;
    }
}

static void
ni_describe(const struct lnet_lnd_ni *base, char *text, uint32_t text_bytes)
{
    const struct shm_ni *ni = shm_ni_of(base);
    const bool has_mapped = !ni->is_rma_forced || ni->rma_forced == LNET_RMA_MAPPED;
    const bool has_cma = !ni->is_rma_forced || ni->rma_forced == LNET_RMA_CMA;

    if (has_cma && ni->cma_error != 0) {
        (void)snprintf(text, text_bytes, "%scma refused: %s%s", has_mapped ? "mapped; " : "",
                       base_errno_name(ni->cma_error),
                       ni->cma_error == -EPERM ? " (ptrace scope or seccomp)" : "");
        return;
    }
    (void)snprintf(text, text_bytes, "%s%s%s", has_mapped ? "mapped" : "",
                   has_mapped && has_cma ? "; " : "",
                   has_cma      ? "cma"
                   : has_mapped ? ""
                                : "none (by option)");
}

const struct lnet_lnd_ops lnet_lnd_shm = {
    .name = "shm",
    .type = LNET_LND_SHM,
    .caps = LNET_LND_CAP_SENT | LNET_LND_CAP_RMA | LNET_LND_CAP_ORDERED | LNET_LND_CAP_LOCAL,
    .eager_bytes_max = SHM_EAGER_BYTES,
    .rma_bytes_max = SHM_RMA_BYTES_MAX,
    .ni_open = ni_open,
    .ni_close = ni_close,
    .ni_abandon = ni_abandon,
    .can_reach = ni_can_reach,
    .conn_open = shm_conn_open,
    .conn_close = shm_conn_close,
    .send = conn_send,
    .poll = ni_poll,
    .fd = ni_fd,
    .arm = ni_arm,
    .next_deadline = ni_next_deadline,
    .credits = conn_credits,
    .describe = ni_describe,
    .mem_alloc = shm_mem_alloc,
    .mem_register = shm_mem_register,
    .mem_release = shm_mem_release,
    .mem_page_bytes = shm_mem_page_bytes,
    .window_open = shm_window_open,
    .window_close = shm_window_close,
    .rma = shm_rma,
    .rma_path = shm_rma_path,
};
