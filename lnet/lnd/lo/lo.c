/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lo: a context's messages to itself, delivered from the next poll and never inside the send.
 *
 * Messages lie in a ring of bytes, whole and in order; one that does not fit before the end starts
 * at the beginning:
 *
 *   0 ......... head [record][record] tail ......... RING_BYTES      head <= tail
 *   0 [record] tail ......... head [record][record] wrap .. RING_BYTES  tail < head
 *
 * RMA is done in poll, too. Windows are slots with an epoch in the cookie, which is the whole key.
 */
#include "lnet/lnd/lo/lo.h"

#include "base/endian.h"
#include "base/list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EAGER_BYTES_MAX 65536u
#define RING_BYTES      (UINT64_C(4) * EAGER_BYTES_MAX)
#define CONNS_MAX       64u
#define WINDOWS_MAX     1024u
#define RMAS_MAX        64u
#define RMA_BYTES_MAX   (UINT64_C(1) << 30)
#define IOV_MAX_LOCAL   256u
#define PAGE_BYTES      4096u
#define SLOT_BITS       10u
#define EPOCH_MAX       ((UINT64_C(1) << (56 - SLOT_BITS)) - 1)

struct lo_conn {
    struct lnet_lnd_conn base;
    bool is_up;
    bool is_refused; /* a send() was: writable() is due */
    struct base_list link;
};

/* A message in the ring; its payload follows. */
struct lo_record {
    struct lo_conn *conn; /* NULL: closed meanwhile */
    uint64_t record_bytes;
    struct lnet_hdr hdr;
};

struct lo_mem {
    struct lnet_lnd_mem base;
    char *address;
    uint64_t bytes;
    bool is_allocated;
};

struct lo_window {
    uint64_t epoch; /* of the open window, or of the next one */
    char *address;  /* NULL: closed */
    uint64_t bytes;
    uint32_t access;
    uint32_t next_free;
};

struct lo_rma {
    struct lo_conn *conn; /* NULL: closed meanwhile */
    uint64_t cookie;
    uint64_t offset_bytes;
    struct iovec *local;
    uint32_t local_count;
    bool is_write;
    lnet_rma_fn done;
    struct lnet *ctx;
    void *user;
};

struct lo_ni {
    struct lnet_lnd_ni base;
    const struct lnet_lnd_events *events;
    struct base_list conns;
    uint32_t conn_count;
    uint32_t conns_not_up;
    uint32_t refused_count;
    char *ring; /* mapped by the first connection */
    uint64_t head, tail, wrap;
    bool is_wrapped;           /* tail is before head */
    struct lo_window *windows; /* allocated by the first registration */
    uint32_t window_free;
    uint32_t windows_touched;
    struct lo_rma *rmas; /* a ring, allocated with the windows */
    uint32_t rma_first, rma_count;
};

static struct lo_ni *
lo_ni_of(struct lnet_lnd_ni *base)
{
    return BASE_CONTAINER_OF(base, struct lo_ni, base);
}

static struct lo_conn *
lo_conn_of(struct lnet_lnd_conn *base)
{
    return BASE_CONTAINER_OF(base, struct lo_conn, base);
}

static int
lo_ni_open(const struct lnet_lnd_config *config, struct lnet_ni *owner,
           const struct lnet_lnd_events *events, struct lnet_lnd_ni **ni_out)
{
    const char *address = config->options->address;

    if (config->net_number != 0 || (address != NULL && strcmp(address, "0") != 0)) {
        config->log(config->log_arg, LNET_LOG_ERROR, "the only NID is 0@lo");
        return -EINVAL;
    }
    struct lo_ni *ni = calloc(1, sizeof(*ni));

    if (ni == NULL) {
        return -ENOMEM;
    }
    ni->base.ops = &lnet_lnd_lo;
    ni->base.owner = owner;
    ni->base.nid.value = (uint64_t)LNET_LND_LO << 48;
    ni->events = events;
    ni->window_free = WINDOWS_MAX;
    base_list_init(&ni->conns);
    *ni_out = &ni->base;
    return 0;
}

/* Ends the oldest RMA with @status. */
static void
rma_end(struct lo_ni *ni, int status)
{
    const struct lo_rma rma = ni->rmas[ni->rma_first];

    ni->rma_first = (ni->rma_first + 1) % RMAS_MAX;
    ni->rma_count--;
    free(rma.local);
    rma.done(rma.ctx, status, rma.user);
}

static void
lo_ni_close(struct lnet_lnd_ni *base)
{
    struct lo_ni *ni = lo_ni_of(base);

    BASE_ASSERT(base_list_empty(&ni->conns));
    while (ni->rma_count > 0) {
        rma_end(ni, -ECONNRESET);
    }
    if (ni->ring != NULL) {
        (void)munmap(ni->ring, RING_BYTES);
    }
    free(ni->windows);
    free(ni->rmas);
    free(ni);
}

static bool
lo_can_reach(const struct lnet_lnd_ni *base, struct lnet_nid nid)
{
    return nid.value == base->nid.value;
}

static int
lo_conn_open(struct lnet_lnd_ni *base, const struct lnet_process *peer, void *owner,
             struct lnet_lnd_conn **conn_out)
{
    struct lo_ni *ni = lo_ni_of(base);

    if (ni->conn_count == CONNS_MAX) {
        return -EAGAIN;
    }
    if (ni->ring == NULL) {
        void *ring =
            mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (ring == MAP_FAILED) {
            return -ENOMEM;
        }
        ni->ring = ring;
    }
    struct lo_conn *conn = calloc(1, sizeof(*conn));

    if (conn == NULL) {
        return -ENOMEM;
    }
    conn->base.ni = base;
    conn->base.peer = *peer;
    conn->base.owner = owner;
    base_list_init(&conn->link);
    base_list_append(&ni->conns, &conn->link);
    ni->conn_count++;
    ni->conns_not_up++;
    *conn_out = &conn->base;
    return 0;
}

/* Calls @visit for each record in the ring. */
static void
ring_forget_conn(struct lo_ni *ni, const struct lo_conn *conn)
{
    uint64_t at = ni->head;
    bool is_wrapped = ni->is_wrapped;

    while (at != ni->tail || is_wrapped) {
        if (is_wrapped && at == ni->wrap) {
            at = 0;
            is_wrapped = false;
            continue;
        }
        struct lo_record *record = (struct lo_record *)(void *)(ni->ring + at);

        if (record->conn == conn) {
            record->conn = NULL;
        }
        at += record->record_bytes;
    }
}

static void
lo_conn_close(struct lnet_lnd_conn *base)
{
    struct lo_conn *conn = lo_conn_of(base);
    struct lo_ni *ni = lo_ni_of(base->ni);

    ring_forget_conn(ni, conn);
    for (uint32_t i = 0; i < ni->rma_count; i++) {
        struct lo_rma *rma = &ni->rmas[(ni->rma_first + i) % RMAS_MAX];

        if (rma->conn == conn) {
            rma->conn = NULL;
        }
    }
    ni->conn_count--;
    ni->conns_not_up -= !conn->is_up;
    ni->refused_count -= conn->is_refused;
    base_list_unlink(&conn->link);
    free(conn);
}

/* The place for a record of @record_bytes, or NULL when there is no room. */
static struct lo_record *
ring_claim(struct lo_ni *ni, uint64_t record_bytes)
{
    if (!ni->is_wrapped && RING_BYTES - ni->tail < record_bytes && record_bytes < ni->head) {
        ni->wrap = ni->tail;
        ni->tail = 0;
        ni->is_wrapped = true;
    }
    /* Strictly less: a full ring must not look empty. */
    const uint64_t room_bytes = ni->is_wrapped ? ni->head - ni->tail - 1 : RING_BYTES - ni->tail;

    if (record_bytes > room_bytes) {
        return NULL;
    }
    struct lo_record *record = (struct lo_record *)(void *)(ni->ring + ni->tail);

    ni->tail += record_bytes;
    return record;
}

static int
lo_send(struct lnet_lnd_conn *base, const struct lnet_hdr *hdr, const struct iovec *iov,
        uint32_t iov_count)
{
    struct lo_conn *conn = lo_conn_of(base);
    struct lo_ni *ni = lo_ni_of(base->ni);
    uint64_t payload_bytes = 0;

    for (uint32_t i = 0; i < iov_count; i++) {
        payload_bytes += iov[i].iov_len;
    }
    BASE_ASSERT(payload_bytes <= EAGER_BYTES_MAX);
    const uint64_t record_bytes = base_align_up(sizeof(struct lo_record) + payload_bytes, 16);
    struct lo_record *record = ring_claim(ni, record_bytes);

    if (record == NULL) {
        ni->refused_count += !conn->is_refused;
        conn->is_refused = true;
        return -EAGAIN;
    }
    *record = (struct lo_record){.conn = conn, .record_bytes = record_bytes, .hdr = *hdr};

    char *at = (char *)(record + 1);

    for (uint32_t i = 0; i < iov_count; i++) {
        if (iov[i].iov_len > 0) {
            (void)memcpy(at, iov[i].iov_base, iov[i].iov_len);
            at += iov[i].iov_len;
        }
    }
    return 0;
}

/* Reports the connections that came up since the last poll. */
static uint32_t
conns_up(struct lo_ni *ni, uint32_t budget)
{
    uint32_t count = 0;

    BASE_LIST_FOREACH_SAFE(link, tmp, &ni->conns) {
        struct lo_conn *conn = BASE_CONTAINER_OF(link, struct lo_conn, link);

        if (count == budget) {
            break;
        }
        if (!conn->is_up) {
            conn->is_up = true;
            ni->conns_not_up--;
            count++;
            ni->events->conn_up(ni->base.owner, &conn->base);
        }
    }
    return count;
}

/* Delivers the messages that are in the ring now; those sent meanwhile wait for the next poll. */
static uint32_t
ring_deliver(struct lo_ni *ni, uint32_t budget)
{
    const uint64_t end = ni->tail;
    bool is_wrapped = ni->is_wrapped;
    uint32_t count = 0;

    while (count < budget && (ni->head != end || is_wrapped)) {
        if (is_wrapped && ni->head == ni->wrap) {
            ni->head = 0;
            ni->is_wrapped = false;
            is_wrapped = false;
            continue;
        }
        struct lo_record *record = (struct lo_record *)(void *)(ni->ring + ni->head);
        struct lo_conn *conn = record->conn;
        const struct lnet_hdr hdr = record->hdr;
        const uint64_t record_bytes = record->record_bytes;

        record->conn = NULL; /* it is being delivered */
        count++;
        if (conn != NULL) {
            const int rc = ni->events->recv(ni->base.owner, &conn->base, &hdr, record + 1);

            if (rc < 0) {
                ni->events->conn_down(ni->base.owner, &conn->base, rc);
            }
        }
        ni->head += record_bytes;
    }
    if (ni->head == ni->tail && !ni->is_wrapped) {
        ni->head = 0;
        ni->tail = 0;
    }
    return count;
}

/* Tells those whose send() was refused that there is room again. */
static uint32_t
conns_writable(struct lo_ni *ni)
{
    uint32_t count = 0;

    BASE_LIST_FOREACH_SAFE(link, tmp, &ni->conns) {
        struct lo_conn *conn = BASE_CONTAINER_OF(link, struct lo_conn, link);

        if (conn->is_refused) {
            conn->is_refused = false;
            ni->refused_count--;
            count++;
            ni->events->writable(ni->base.owner, &conn->base);
        }
    }
    return count;
}

/* The window that @cookie names, or NULL. */
static struct lo_window *
window_find(struct lo_ni *ni, uint64_t cookie)
{
    const uint64_t slot = cookie & (WINDOWS_MAX - 1);

    if (slot >= ni->windows_touched) {
        return NULL;
    }
    struct lo_window *window = &ni->windows[slot];

    return window->address != NULL && window->epoch == cookie >> SLOT_BITS ? window : NULL;
}

/* Moves the bytes of @rma. Returns its status. */
static int
rma_run(struct lo_ni *ni, const struct lo_rma *rma)
{
    const struct lo_window *window = window_find(ni, rma->cookie);
    uint64_t bytes = 0;

    if (rma->conn == NULL) {
        return -ECONNRESET;
    }
    if (window == NULL) {
        return -ESTALE;
    }
    if ((window->access & (rma->is_write ? LNET_ACCESS_WRITE : LNET_ACCESS_READ)) == 0) {
        return -EACCES;
    }
    for (uint32_t i = 0; i < rma->local_count; i++) {
        bytes += rma->local[i].iov_len;
    }
    if (rma->offset_bytes > window->bytes || bytes > window->bytes - rma->offset_bytes) {
        return -ERANGE;
    }
    char *at = window->address + rma->offset_bytes;

    for (uint32_t i = 0; i < rma->local_count; i++) {
        const struct iovec *iov = &rma->local[i];

        if (iov->iov_len == 0) {
            continue;
        }
        /* Both ends are this process's: they may overlap. */
        (void)(rma->is_write ? memmove(at, iov->iov_base, iov->iov_len)
                             : memmove(iov->iov_base, at, iov->iov_len));
        at += iov->iov_len;
    }
    return 0;
}

static uint32_t
lo_poll(struct lnet_lnd_ni *base, uint64_t now_ns, uint32_t budget)
{
    struct lo_ni *ni = lo_ni_of(base);
    uint32_t count = 0;

    (void)now_ns;
    if (ni->conns_not_up > 0) {
        count += conns_up(ni, budget);
    }
    count += ring_deliver(ni, budget - count);
    for (uint32_t left = ni->rma_count; left > 0 && count < budget; left--, count++) {
        rma_end(ni, rma_run(ni, &ni->rmas[ni->rma_first]));
    }
    if (ni->refused_count > 0 && count < budget) {
        count += conns_writable(ni);
    }
    return base_min_u32(count, budget);
}

static int
lo_fd(struct lnet_lnd_ni *base)
{
    (void)base;
    return -EOPNOTSUPP; /* nothing arrives while the context sleeps */
}

static int
lo_arm(struct lnet_lnd_ni *base)
{
    const struct lo_ni *ni = lo_ni_of(base);

    return ni->conns_not_up > 0 || ni->head != ni->tail || ni->is_wrapped || ni->rma_count > 0 ||
                   ni->refused_count > 0
               ? -EBUSY
               : 0;
}

static uint64_t
lo_next_deadline(const struct lnet_lnd_ni *base)
{
    (void)base;
    return UINT64_MAX;
}

static void
lo_credits(const struct lnet_lnd_conn *base, struct lnet_lnd_credit_info *info_out)
{
    (void)base;
    *info_out = (struct lnet_lnd_credit_info){.max = 0};
}

static void
lo_describe(const struct lnet_lnd_ni *base, char *text, uint32_t text_bytes)
{
    (void)base;
    (void)snprintf(text, text_bytes, "mapped (own memory)");
}

/* Makes the tables that RMA needs. */
static int
rma_tables_init(struct lo_ni *ni)
{
    if (ni->windows != NULL) {
        return 0;
    }
    struct lo_window *windows = calloc(WINDOWS_MAX, sizeof(*windows));
    struct lo_rma *rmas = calloc(RMAS_MAX, sizeof(*rmas));

    if (windows == NULL || rmas == NULL) {
        free(windows);
        free(rmas);
        return -ENOMEM;
    }
    ni->windows = windows;
    ni->rmas = rmas;
    return 0;
}

static int
mem_create(struct lo_ni *ni, void *address, uint64_t bytes, bool is_allocated,
           struct lnet_lnd_mem **mem_out)
{
    struct lo_mem *mem = malloc(sizeof(*mem));

    if (mem == NULL || rma_tables_init(ni) != 0) {
        free(mem);
        return -ENOMEM;
    }
    *mem = (struct lo_mem){.base = {.ni = &ni->base},
                           .address = address,
                           .bytes = bytes,
                           .is_allocated = is_allocated};
    *mem_out = &mem->base;
    return 0;
}

static int
lo_mem_register(struct lnet_lnd_ni *base, void *address, uint64_t bytes,
                struct lnet_lnd_mem **mem_out)
{
    return mem_create(lo_ni_of(base), address, bytes, false, mem_out);
}

static int
lo_mem_alloc(struct lnet_lnd_ni *base, uint64_t bytes, uint32_t flags,
             struct lnet_lnd_mem **mem_out, void **address_out)
{
    (void)flags; /* anonymous memory is lazy by nature */
    if (bytes > SIZE_MAX - PAGE_BYTES) {
        return -ENOMEM;
    }
    bytes = base_align_up(bytes, PAGE_BYTES);
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (address == MAP_FAILED) {
        return -ENOMEM;
    }
    const int rc = mem_create(lo_ni_of(base), address, bytes, true, mem_out);

    if (rc != 0) {
        (void)munmap(address, bytes);
        return rc;
    }
    *address_out = address;
    return 0;
}

static void
lo_mem_release(struct lnet_lnd_mem *base)
{
    struct lo_mem *mem = BASE_CONTAINER_OF(base, struct lo_mem, base);

    if (mem->is_allocated) {
        (void)munmap(mem->address, mem->bytes);
    }
    free(mem);
}

static uint64_t
lo_mem_page_bytes(const struct lnet_lnd_mem *mem)
{
    (void)mem;
    return PAGE_BYTES;
}

static int
lo_window_open(struct lnet_lnd_mem *base, uint64_t offset_bytes, uint64_t length_bytes,
               uint32_t access, struct lnet_window *window_out, struct lnet_key *key_out)
{
    const struct lo_mem *mem = BASE_CONTAINER_OF(base, struct lo_mem, base);
    struct lo_ni *ni = lo_ni_of(base->ni);
    uint32_t slot = ni->window_free;

    if (slot != WINDOWS_MAX) {
        ni->window_free = ni->windows[slot].next_free;
    } else if (ni->windows_touched < WINDOWS_MAX) {
        slot = ni->windows_touched++;
        ni->windows[slot].epoch = 1;
    } else {
        return -EAGAIN;
    }
    struct lo_window *window = &ni->windows[slot];

    window->address = mem->address + offset_bytes;
    window->bytes = length_bytes;
    window->access = access;
    window_out->cookie = (window->epoch << SLOT_BITS) | slot;
    (void)memset(key_out, 0, sizeof(*key_out));
    base_le64_store(key_out->bytes, window_out->cookie);
    return 0;
}

static int
lo_window_close(struct lnet_lnd_ni *base, struct lnet_window window)
{
    struct lo_ni *ni = lo_ni_of(base);
    struct lo_window *found = window_find(ni, window.cookie);

    if (found == NULL) {
        return -ESTALE;
    }
    found->address = NULL;
    found->epoch = found->epoch == EPOCH_MAX ? 1 : found->epoch + 1;
    found->next_free = ni->window_free;
    ni->window_free = (uint32_t)(found - ni->windows);
    return 0;
}

static int
lo_rma(struct lnet_lnd_conn *base, const struct lnet_lnd_rma *rma)
{
    struct lo_ni *ni = lo_ni_of(base->ni);

    if (rma->path != LNET_RMA_NONE && rma->path != LNET_RMA_MAPPED) {
        return -EOPNOTSUPP;
    }
    if (rma_tables_init(ni) != 0 || ni->rma_count == RMAS_MAX) {
        return -EAGAIN;
    }
    BASE_ASSERT(rma->local_count <= IOV_MAX_LOCAL);
    const uint64_t local_bytes = rma->local_count * sizeof(rma->local[0]);
    struct iovec *local = malloc(base_max_u64(local_bytes, 1));

    if (local == NULL) {
        return -EAGAIN;
    }
    if (local_bytes > 0) {
        (void)memcpy(local, rma->local, local_bytes);
    }
    ni->rmas[(ni->rma_first + ni->rma_count++) % RMAS_MAX] = (struct lo_rma){
        .conn = lo_conn_of(base),
        .cookie = base_le64_load(rma->key->bytes),
        .offset_bytes = rma->remote_offset_bytes,
        .local = local,
        .local_count = rma->local_count,
        .is_write = rma->is_write,
        .done = rma->done,
        .ctx = rma->ctx,
        .user = rma->user,
    };
    return 0;
}

static enum lnet_rma_path
lo_rma_path(struct lnet_lnd_conn *base, const struct lnet_key *key)
{
    (void)base;
    (void)key;
    return LNET_RMA_MAPPED;
}

const struct lnet_lnd_ops lnet_lnd_lo = {
    .name = "lo",
    .type = LNET_LND_LO,
    .caps = LNET_LND_CAP_SENT | LNET_LND_CAP_RMA | LNET_LND_CAP_ORDERED | LNET_LND_CAP_LOCAL,
    .eager_bytes_max = EAGER_BYTES_MAX,
    .rma_bytes_max = RMA_BYTES_MAX,
    .ni_open = lo_ni_open,
    .ni_close = lo_ni_close,
    .can_reach = lo_can_reach,
    .conn_open = lo_conn_open,
    .conn_close = lo_conn_close,
    .send = lo_send,
    .poll = lo_poll,
    .fd = lo_fd,
    .arm = lo_arm,
    .next_deadline = lo_next_deadline,
    .credits = lo_credits,
    .describe = lo_describe,
    .mem_alloc = lo_mem_alloc,
    .mem_register = lo_mem_register,
    .mem_release = lo_mem_release,
    .mem_page_bytes = lo_mem_page_bytes,
    .window_open = lo_window_open,
    .window_close = lo_window_close,
    .rma = lo_rma,
    .rma_path = lo_rma_path,
};
