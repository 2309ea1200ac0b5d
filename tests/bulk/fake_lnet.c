/* SPDX-License-Identifier: BSD-3-Clause */
/* A stand-in for LNet: see fake_lnet.h. Simple rather than fast; allocates at will. */
#include "tests/bulk/fake_lnet.h"

#include "base/list.h"
#include "base/prng.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FAKE_CONTEXTS 8u
#define FAKE_MDS      4096u
#define FAKE_WINDOWS  8192u

struct lnet_peer {
    struct lnet *ctx;
    uint32_t pid;
    int32_t references;
};

struct lnet_mem {
    struct lnet *ctx;
    char *address;
    uint64_t bytes;
    bool is_allocated;
};

struct fake_md {
    bool is_used;
    bool is_attached;
    bool is_ending;
    uint32_t portal;
    uint32_t puts_out;
    uint64_t cookie;
    struct lnet_md md;
    struct iovec iov[BASE_MAX(64, 1)];
};

struct fake_window {
    bool is_open;
    uint64_t epoch;
    char *address;
    uint64_t bytes;
    uint32_t access;
};

enum fake_item_kind { FAKE_MESSAGE, FAKE_SENT, FAKE_UNLINK, FAKE_RMA };

struct fake_item {
    struct base_list link;
    enum fake_item_kind kind;
    uint32_t from_pid;
    uint64_t md_cookie;
    uint64_t match_bits, hdr_data, offset_bytes;
    uint32_t portal;
    uint32_t bytes;
    char *data;
    int status;
    struct lnet_rma rma;
    struct lnet_key key;
    struct iovec local[64];
};

struct lnet {
    uint32_t pid;
    uint64_t now_ns;
    uint64_t put_bytes_max;
    struct base_prng prng;
    struct lnet_peer peers[FAKE_CONTEXTS];
    struct fake_md mds[FAKE_MDS];
    struct fake_window windows[FAKE_WINDOWS];
    uint64_t next;
    uint32_t mem_count;
    uint64_t last_hdr_data;
    struct lnet_timer *timers[4096];
    uint32_t timer_count;
    struct lnet_peer_watch *watches[4];
    struct base_list items;
};

struct fake_faults fake_faults;
static struct lnet *contexts[FAKE_CONTEXTS];
static uint32_t put_calls;
static uint32_t rma_calls;

struct lnet *
fake_lnet_open(uint32_t pid, uint64_t put_bytes_max)
{
    struct lnet *ctx = calloc(1, sizeof(*ctx));

    BASE_ASSERT(ctx != NULL && pid < FAKE_CONTEXTS && contexts[pid] == NULL);
    ctx->pid = pid;
    ctx->now_ns = 1000;
    ctx->put_bytes_max = put_bytes_max;
    base_prng_seed(&ctx->prng, pid);
    base_list_init(&ctx->items);
    for (uint32_t i = 0; i < FAKE_CONTEXTS; i++) {
        ctx->peers[i] = (struct lnet_peer){.ctx = ctx, .pid = i};
    }
    contexts[pid] = ctx;
    return ctx;
}

static void
item_free(struct fake_item *item)
{
    base_list_unlink(&item->link);
    free(item->data);
    free(item);
}

void
fake_lnet_close(struct lnet *ctx)
{
    while (!base_list_empty(&ctx->items)) {
        item_free(BASE_CONTAINER_OF(base_list_first(&ctx->items), struct fake_item, link));
    }
    contexts[ctx->pid] = NULL;
    free(ctx);
}

static struct fake_item *
item_add(struct lnet *ctx, enum fake_item_kind kind)
{
    struct fake_item *item = calloc(1, sizeof(*item));

    BASE_ASSERT(item != NULL);
    item->kind = kind;
    base_list_init(&item->link);
    base_list_append(&ctx->items, &item->link);
    return item;
}

uint32_t
fake_md_count(const struct lnet *ctx)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < FAKE_MDS; i++) {
        count += ctx->mds[i].is_used;
    }
    return count;
}

uint32_t
fake_mem_count(const struct lnet *ctx)
{
    return ctx->mem_count;
}

uint32_t
fake_window_count(const struct lnet *ctx)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < FAKE_WINDOWS; i++) {
        count += ctx->windows[i].is_open;
    }
    return count;
}

uint32_t
fake_timer_count(const struct lnet *ctx)
{
    return ctx->timer_count;
}

int32_t
fake_peer_references(const struct lnet *ctx)
{
    int32_t count = 0;

    for (uint32_t i = 0; i < FAKE_CONTEXTS; i++) {
        count += ctx->peers[i].references;
    }
    return count;
}

/* ---- time ---- */

uint64_t
lnet_now(const struct lnet *ctx)
{
    return ctx->now_ns;
}

uint64_t
lnet_random(struct lnet *ctx)
{
    return base_prng_u64(&ctx->prng);
}

void
lnet_timer_cancel(struct lnet *ctx, struct lnet_timer *timer)
{
    for (uint32_t i = 0; i < ctx->timer_count; i++) {
        if (ctx->timers[i] == timer) {
            ctx->timers[i] = ctx->timers[--ctx->timer_count];
            return;
        }
    }
}

int
lnet_timer_arm(struct lnet *ctx, struct lnet_timer *timer, uint64_t deadline_ns)
{
    if (fake_faults.timer_fails_at != 0 && --fake_faults.timer_fails_at == 0) {
        return -EAGAIN;
    }
    lnet_timer_cancel(ctx, timer);
    timer->deadline_ns = deadline_ns;
    ctx->timers[ctx->timer_count++] = timer;
    return 0;
}

static void
timers_run(struct lnet *ctx)
{
    for (uint32_t guard = 0; guard < 10000; guard++) {
        struct lnet_timer *due = NULL;

        for (uint32_t i = 0; i < ctx->timer_count && due == NULL; i++) {
            due = ctx->timers[i]->deadline_ns <= ctx->now_ns ? ctx->timers[i] : NULL;
        }
        if (due == NULL) {
            return;
        }
        lnet_timer_cancel(ctx, due);
        due->fn(ctx, due->arg);
    }
}

/* ---- peers ---- */

int
lnet_peer_get(struct lnet *ctx, const struct lnet_process *process, struct lnet_peer **peer_out)
{
    ctx->peers[process->pid].references++;
    *peer_out = &ctx->peers[process->pid];
    return 0;
}

void
lnet_peer_hold(struct lnet_peer *peer)
{
    peer->references++;
}

void
lnet_peer_put(struct lnet_peer *peer)
{
    peer->references--;
}

void
lnet_peer_watch_add(struct lnet *ctx, struct lnet_peer_watch *watch)
{
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(ctx->watches); i++) {
        if (ctx->watches[i] == NULL) {
            ctx->watches[i] = watch;
            return;
        }
    }
}

void
lnet_peer_watch_del(struct lnet *ctx, struct lnet_peer_watch *watch)
{
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(ctx->watches); i++) {
        if (ctx->watches[i] == watch) {
            ctx->watches[i] = NULL;
        }
    }
}

void
fake_disconnect(struct lnet *ctx, struct lnet_peer *peer)
{
    BASE_LIST_FOREACH_SAFE(link, tmp, &ctx->items) {
        struct fake_item *item = BASE_CONTAINER_OF(link, struct fake_item, link);

        if (item->kind == FAKE_MESSAGE && item->from_pid == peer->pid) {
            item_free(item);
        } else if (item->kind == FAKE_RMA && item->rma.peer == peer) {
            item->status = -ECONNRESET;
        }
    }
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(ctx->watches); i++) {
        if (ctx->watches[i] != NULL) {
            ctx->watches[i]->fn(ctx, peer, -ECONNRESET, ctx->watches[i]->arg);
        }
    }
}

/* ---- descriptors and messages ---- */

static int
md_add(struct lnet *ctx, const struct lnet_md *md, uint32_t portal, bool is_attached,
       struct lnet_md_handle *md_out)
{
    for (uint32_t i = 0; i < FAKE_MDS; i++) {
        struct fake_md *entry = &ctx->mds[i];

        if (entry->is_used) {
            continue;
        }
        *entry = (struct fake_md){.is_used = true, .is_attached = is_attached, .portal = portal};
        entry->md = *md;
        if ((md->options & LNET_MD_IOV) != 0) {
            (void)memcpy(entry->iov, md->start, md->iov_count * sizeof(entry->iov[0]));
        }
        entry->cookie = (++ctx->next << 16) | i;
        md_out->cookie = entry->cookie;
        return 0;
    }
    return -EAGAIN;
}

int
lnet_md_attach(struct lnet *ctx, const struct lnet_match *match, const struct lnet_md *md,
               struct lnet_md_handle *md_out)
{
    return md_add(ctx, md, match->portal, true, md_out);
}

int
lnet_md_bind(struct lnet *ctx, const struct lnet_md *md, struct lnet_md_handle *md_out)
{
    if (fake_faults.bind_fails_at != 0 && --fake_faults.bind_fails_at == 0) {
        return -EAGAIN;
    }
    return md_add(ctx, md, 0, false, md_out);
}

static struct fake_md *
md_find(struct lnet *ctx, uint64_t cookie)
{
    struct fake_md *entry = &ctx->mds[cookie & 0xffff];

    return entry->is_used && entry->cookie == cookie ? entry : NULL;
}

int
lnet_md_unlink(struct lnet *ctx, struct lnet_md_handle md)
{
    struct fake_md *entry = md_find(ctx, md.cookie);

    if (entry == NULL || entry->is_ending) {
        return -ESTALE;
    }
    entry->is_ending = true;
    item_add(ctx, FAKE_UNLINK)->md_cookie = md.cookie;
    return 0;
}

static void
message_send(struct lnet *ctx, const struct lnet_target *target, char *data, uint32_t bytes)
{
    struct lnet *to = contexts[target->peer->pid];

    ctx->last_hdr_data = target->hdr_data;
    if (to == NULL) {
        free(data);
        return;
    }
    struct fake_item *item = item_add(to, FAKE_MESSAGE);

    item->from_pid = ctx->pid;
    item->portal = target->portal;
    item->match_bits = target->match_bits;
    item->hdr_data = target->hdr_data;
    item->offset_bytes = target->offset_bytes;
    item->data = data;
    item->bytes = bytes;
}

void
fake_inject(struct lnet *ctx, struct lnet_peer *peer, uint64_t match_bits, uint64_t hdr_data,
            uint64_t offset_bytes, const void *data, uint32_t bytes)
{
    const struct lnet_target target = {.peer = peer,
                                       .portal = 8,
                                       .match_bits = match_bits,
                                       .hdr_data = hdr_data,
                                       .offset_bytes = offset_bytes};
    char *copy = malloc(bytes + 1);

    (void)memcpy(copy, bytes > 0 ? data : "", bytes);
    message_send(ctx, &target, copy, bytes);
}

uint64_t
fake_last_hdr_data(const struct lnet *ctx)
{
    return ctx->last_hdr_data;
}

static bool
put_is_refused(void)
{
    return fake_faults.put_again_every != 0 && ++put_calls % fake_faults.put_again_every == 0;
}

int
lnet_put(struct lnet *ctx, struct lnet_md_handle md, uint64_t offset_bytes, uint64_t length_bytes,
         const struct lnet_target *target, uint32_t flags)
{
    struct fake_md *entry = md_find(ctx, md.cookie);
    uint64_t skip = offset_bytes;
    uint64_t at = 0;

    BASE_ASSERT(flags == 0);
    if (entry == NULL || entry->is_ending) {
        return -ESTALE;
    }
    if (offset_bytes > entry->md.length_bytes ||
        length_bytes > entry->md.length_bytes - offset_bytes) {
        return -EINVAL;
    }
    if (length_bytes > ctx->put_bytes_max) {
        return -EMSGSIZE;
    }
    if (put_is_refused()) {
        return -EAGAIN;
    }
    char *data = malloc(length_bytes + 1);

    for (uint32_t i = 0; i < entry->md.iov_count && at < length_bytes; i++) {
        const struct iovec *part = &entry->iov[i];

        if (skip >= part->iov_len) {
            skip -= part->iov_len;
            continue;
        }
        const uint64_t step = base_min_u64(part->iov_len - skip, length_bytes - at);

        (void)memcpy(data + at, (char *)part->iov_base + skip, step);
        at += step;
        skip = 0;
    }
    BASE_ASSERT(at == length_bytes);
    message_send(ctx, target, data, (uint32_t)length_bytes);
    if ((entry->md.options & LNET_MD_NO_SEND_EVENT) == 0) {
        item_add(ctx, FAKE_SENT)->md_cookie = md.cookie;
    }
    return 0;
}

int
lnet_put_inline(struct lnet *ctx, const struct lnet_target *target, const void *data,
                uint32_t length_bytes)
{
    if (put_is_refused()) {
        return -EAGAIN;
    }
    char *copy = malloc(length_bytes + 1);

    (void)memcpy(copy, length_bytes > 0 ? data : "", length_bytes);
    message_send(ctx, target, copy, length_bytes);
    return 0;
}

/* ---- memory ---- */

int
lnet_mem_alloc(struct lnet *ctx, uint64_t bytes, uint32_t flags, struct lnet_mem **mem_out,
               void **address_out)
{
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)flags;
    if (address == MAP_FAILED) {
        return -ENOMEM;
    }
    struct lnet_mem *mem = calloc(1, sizeof(*mem));

    *mem = (struct lnet_mem){.ctx = ctx, .address = address, .bytes = bytes, .is_allocated = true};
    ctx->mem_count++;
    *mem_out = mem;
    *address_out = address;
    return 0;
}

int
lnet_mem_register(struct lnet *ctx, void *address, uint64_t bytes, struct lnet_mem **mem_out)
{
    if (fake_faults.register_fails_at != 0 && --fake_faults.register_fails_at == 0) {
        return -ENOMEM;
    }
    struct lnet_mem *mem = calloc(1, sizeof(*mem));

    *mem = (struct lnet_mem){.ctx = ctx, .address = address, .bytes = bytes};
    ctx->mem_count++;
    *mem_out = mem;
    return 0;
}

void
lnet_mem_release(struct lnet_mem *mem)
{
    if (mem->is_allocated) {
        (void)munmap(mem->address, mem->bytes);
    }
    mem->ctx->mem_count--;
    free(mem);
}

uint64_t
lnet_mem_page_bytes(const struct lnet_mem *mem)
{
    (void)mem;
    return 4096;
}

int
lnet_window_open(struct lnet_mem *mem, uint64_t offset_bytes, uint64_t length_bytes,
                 uint32_t access, struct lnet_peer *peer, struct lnet_window *window_out,
                 struct lnet_key *key_out)
{
    struct lnet *ctx = mem->ctx;

    (void)peer;
    BASE_ASSERT(offset_bytes <= mem->bytes && length_bytes <= mem->bytes - offset_bytes);
    if (fake_faults.is_rma_refused) {
        return -EOPNOTSUPP;
    }
    for (uint32_t i = 0; i < FAKE_WINDOWS; i++) {
        struct fake_window *window = &ctx->windows[i];

        if (!window->is_open) {
            *window = (struct fake_window){.is_open = true,
                                           .epoch = ++ctx->next,
                                           .address = mem->address + offset_bytes,
                                           .bytes = length_bytes,
                                           .access = access};
            window_out->cookie = (window->epoch << 16) | i;
            (void)memset(key_out, 0, sizeof(*key_out));
            (void)memcpy(key_out->bytes, &window_out->cookie, 8);
            (void)memcpy(key_out->bytes + 8, &ctx->pid, 4);
            return 0;
        }
    }
    return -EAGAIN;
}

int
lnet_window_close(struct lnet *ctx, struct lnet_window handle)
{
    struct fake_window *window = &ctx->windows[handle.cookie & 0xffff];

    BASE_ASSERT(window->is_open && window->epoch == handle.cookie >> 16);
    if (fake_faults.busy_closes > 0) {
        fake_faults.busy_closes--;
        return -EBUSY;
    }
    window->is_open = false;
    return 0;
}

int
lnet_rma(struct lnet *ctx, const struct lnet_rma *rma)
{
    if (fake_faults.rma_again_every != 0 && ++rma_calls % fake_faults.rma_again_every == 0) {
        return -EAGAIN;
    }
    BASE_ASSERT(rma->local_count <= 64);
    struct fake_item *item = item_add(ctx, FAKE_RMA);

    item->rma = *rma;
    item->key = *rma->key;
    (void)memcpy(item->local, rma->local, rma->local_count * sizeof(rma->local[0]));
    if (fake_faults.rma_fails_at != 0 && --fake_faults.rma_fails_at == 0) {
        item->status = fake_faults.rma_status;
    }
    return 0;
}

static int
rma_move(const struct fake_item *item)
{
    uint64_t cookie = 0;
    uint32_t pid = 0;
    uint64_t bytes = 0;

    (void)memcpy(&cookie, item->key.bytes, 8);
    (void)memcpy(&pid, item->key.bytes + 8, 4);
    if (pid >= FAKE_CONTEXTS || contexts[pid] == NULL) {
        return -ECONNRESET;
    }
    const struct fake_window *window = &contexts[pid]->windows[(cookie & 0xffff) % FAKE_WINDOWS];

    for (uint32_t i = 0; i < item->rma.local_count; i++) {
        bytes += item->local[i].iov_len;
    }
    if (!window->is_open || window->epoch != cookie >> 16) {
        return -ESTALE;
    }
    if ((window->access & (item->rma.is_write ? LNET_ACCESS_WRITE : LNET_ACCESS_READ)) == 0) {
        return -EACCES;
    }
    if (item->rma.remote_offset_bytes > window->bytes ||
        bytes > window->bytes - item->rma.remote_offset_bytes) {
        return -ERANGE;
    }
    char *remote = window->address + item->rma.remote_offset_bytes;

    for (uint32_t i = 0; i < item->rma.local_count; i++) {
        const struct iovec *part = &item->local[i];

        if (item->rma.is_write) {
            (void)memcpy(remote, part->iov_base, part->iov_len);
        } else {
            (void)memcpy(part->iov_base, remote, part->iov_len);
        }
        remote += part->iov_len;
    }
    return 0;
}

enum lnet_rma_path
lnet_rma_path(struct lnet_peer *peer, const struct lnet_key *key)
{
    (void)peer;
    (void)key;
    if (fake_faults.is_rma_refused) {
        return LNET_RMA_NONE;
    }
    return fake_faults.is_rma_mapped ? LNET_RMA_MAPPED : LNET_RMA_CMA;
}

void
lnet_limits_get(const struct lnet *ctx, struct lnet_limits *limits_out)
{
    *limits_out = (struct lnet_limits){
        .put_bytes_max = ctx->put_bytes_max,
        .rma_bytes_max = 4u << 20,
        .iov_max = 64,
    };
}

/* ---- the poll ---- */

static void
message_deliver(struct lnet *ctx, struct fake_item *item)
{
    for (uint32_t i = 0; i < FAKE_MDS; i++) {
        const struct fake_md *entry = &ctx->mds[i];

        if (!entry->is_used || entry->is_ending || !entry->is_attached ||
            entry->portal != item->portal) {
            continue;
        }
        const struct lnet_event event = {
            .type = LNET_EV_PUT,
            .portal = item->portal,
            .peer = &ctx->peers[item->from_pid],
            .md = {entry->cookie},
            .match_bits = item->match_bits,
            .hdr_data = item->hdr_data,
            .offset_bytes = item->offset_bytes,
            .request_bytes = item->bytes,
            .moved_bytes = item->bytes,
            .data = item->data,
            .user = entry->md.user,
        };

        entry->md.handler(ctx, &event);
        return;
    }
}

static void
md_event(struct lnet *ctx, const struct fake_item *item, enum lnet_event_type type, bool unlinked)
{
    struct fake_md *entry = md_find(ctx, item->md_cookie);

    if (entry == NULL) {
        return; /* the MD went first */
    }
    const struct fake_md was = *entry;
    const struct lnet_event event = {
        .type = type,
        .md = {was.cookie},
        .unlinked = unlinked,
        .user = was.md.user,
    };

    if (unlinked) {
        entry->is_used = false;
    }
    was.md.handler(ctx, &event);
}

uint32_t
lnet_poll(struct lnet *ctx, uint64_t now_ns, uint32_t budget)
{
    struct base_list now;
    uint32_t count = 0;

    (void)budget;
    ctx->now_ns = now_ns;
    timers_run(ctx);
    base_list_init(&now);
    base_list_move_all(&now, &ctx->items);
    while (!base_list_empty(&now)) {
        struct fake_item *item =
            BASE_CONTAINER_OF(fake_faults.reorders ? base_list_last(&now) : base_list_first(&now),
                              struct fake_item, link);

        base_list_unlink(&item->link);
        count++;
        if ((item->kind == FAKE_RMA && fake_faults.holds_rma && item->status == 0) ||
            (item->kind == FAKE_MESSAGE && fake_faults.holds_messages)) {
            base_list_append(&ctx->items, &item->link);
            continue;
        }
        switch (item->kind) {
        case FAKE_MESSAGE:
            message_deliver(ctx, item);
            break;
        case FAKE_SENT:
            md_event(ctx, item, LNET_EV_SEND, false);
            break;
        case FAKE_UNLINK:
            md_event(ctx, item, LNET_EV_UNLINK, true);
            break;
        case FAKE_RMA:
            item->rma.done(ctx, item->status != 0 ? item->status : rma_move(item), item->rma.user);
            break;
        }
        item_free(item);
    }
    return count;
}
