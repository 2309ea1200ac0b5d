/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows, and copies to and from those of peers.
 *
 * The initiator copies, by memcpy() in the region that it has mapped, or by process_vm_readv() and
 * process_vm_writev() (cross-memory attach) at the address that the key says. It publishes which
 * window it is in before it looks whether the window is open, and the owner closes the window
 * before it looks who is in it:
 *
 *     initiator                              owner
 *     hazard = window                        epochs[slot]++
 *     fence                                  fence
 *     epochs[slot] == key's epoch? copy      any hazard == window? -EBUSY
 *     hazard = 0
 *
 * so that one of the two sees the other, and nobody touches the memory after window_close() said 0.
 *
 * A key, 48 bytes, little-endian:
 *
 *    0  u16  format (1)          16  u32  low half of the owner's incarnation
 *    2  u16  access              20  u32  region, 0 for none
 *    4  u32  window slot         24  u64  address in the owner's memory
 *    8  u64  epoch, odd          32  u64  offset in the region
 *                                40  u64  length
 *
 * A key is only as good as who sent it: it can make its sender's memory be written, not ours. In
 * the mapped region every access is checked against the region's real length.
 */
#include "lnet/lnd/shm/ni.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#    define MADV_POPULATE_READ 22
#endif

#define KEY_FORMAT       1u
#define COOKIE_SLOT_BITS 16
#define COOKIE_EPOCH_MAX (UINT64_C(1) << 40) /* the top 8 bits of a cookie are LNet's */
#define CMA_IOV_MAX      64u

struct shm_key {
    uint16_t format;
    uint16_t access;
    uint32_t slot;
    uint64_t epoch;
    uint32_t incarnation;
    uint32_t region_id;
    uint64_t address;
    uint64_t offset_bytes;
    uint64_t length_bytes;
};

static void
key_encode(const struct shm_key *key, struct lnet_key *out)
{
    base_le16_store(out->bytes, key->format);
    base_le16_store(out->bytes + 2, key->access);
    base_le32_store(out->bytes + 4, key->slot);
    base_le64_store(out->bytes + 8, key->epoch);
    base_le32_store(out->bytes + 16, key->incarnation);
    base_le32_store(out->bytes + 20, key->region_id);
    base_le64_store(out->bytes + 24, key->address);
    base_le64_store(out->bytes + 32, key->offset_bytes);
    base_le64_store(out->bytes + 40, key->length_bytes);
}

static struct shm_key
key_decode(const struct lnet_key *in)
{
    return (struct shm_key){.format = base_le16_load(in->bytes),
                            .access = base_le16_load(in->bytes + 2),
                            .slot = base_le32_load(in->bytes + 4),
                            .epoch = base_le64_load(in->bytes + 8),
                            .incarnation = base_le32_load(in->bytes + 16),
                            .region_id = base_le32_load(in->bytes + 20),
                            .address = base_le64_load(in->bytes + 24),
                            .offset_bytes = base_le64_load(in->bytes + 32),
                            .length_bytes = base_le64_load(in->bytes + 40)};
}

static uint64_t
window_cookie(uint32_t slot, uint64_t epoch)
{
    return epoch << COOKIE_SLOT_BITS | slot;
}

/* ---- windows of ours ----------------------------------------------------------------------- */

int
shm_window_open(struct lnet_lnd_mem *base, uint64_t offset_bytes, uint64_t length_bytes,
                uint32_t access, struct lnet_window *window_out, struct lnet_key *key_out)
{
    const struct shm_mem *mem = (const struct shm_mem *)(const void *)base;
    struct shm_ni *ni = shm_ni_of(base->ni);

    if (offset_bytes > mem->length_bytes || length_bytes > mem->length_bytes - offset_bytes ||
        (access & ~(unsigned)(LNET_ACCESS_READ | LNET_ACCESS_WRITE)) != 0) {
        return -EINVAL;
    }
    if (ni->window_free_count == 0) {
        return -EAGAIN;
    }
    const uint32_t slot = ni->window_free[--ni->window_free_count];
    struct shm_window_slot *window = &ni->window_slots[slot];
    const uint64_t epoch = ni->windows->epochs[slot] + 1;
    const bool is_mapped = mem->id != 0 && !(ni->is_rma_forced && ni->rma_forced == LNET_RMA_CMA);

    BASE_ASSERT(window->epoch == 0 && (epoch & 1) == 1 && epoch < COOKIE_EPOCH_MAX);
    window->epoch = epoch;
    __atomic_store_n(&ni->windows->epochs[slot], epoch, __ATOMIC_RELEASE);
    const struct shm_key key = {
        .format = KEY_FORMAT,
        .access = (uint16_t)access,
        .slot = slot,
        .epoch = epoch,
        .incarnation = (uint32_t)ni->incarnation,
        .region_id = is_mapped ? mem->id : 0,
        .address = (uintptr_t)mem->address + offset_bytes,
        .offset_bytes = offset_bytes,
        .length_bytes = length_bytes,
    };

    key_encode(&key, key_out);
    window_out->cookie = window_cookie(slot, epoch);
    return 0;
}

int
shm_window_close(struct lnet_lnd_ni *base, struct lnet_window window)
{
    struct shm_ni *ni = shm_ni_of(base);
    const uint32_t slot = (uint32_t)(window.cookie & ((1u << COOKIE_SLOT_BITS) - 1));
    const uint64_t epoch = window.cookie >> COOKIE_SLOT_BITS;

    if (slot >= SHM_WINDOWS_MAX || epoch == 0 || ni->window_slots[slot].epoch != epoch) {
        return -ESTALE;
    }
    if (!ni->window_slots[slot].is_closing) {
        ni->window_slots[slot].is_closing = true;
        __atomic_store_n(&ni->windows->epochs[slot], epoch + 1, __ATOMIC_RELEASE);
        shm_fence();
    }
    BASE_LIST_FOREACH(link, &ni->all) {
        const struct shm_conn *conn = BASE_CONTAINER_OF(link, struct shm_conn, all_link);

        /* A peer is up before we know, and does not know that we gave it up: until it hangs up. */
        if (conn->state != SHM_CONN_CLOSED && conn->link.theirs != NULL &&
            __atomic_load_n(&conn->link.theirs->hazard, __ATOMIC_ACQUIRE) == window.cookie &&
            !shm_link_is_hung_up(&conn->link)) {
            return -EBUSY;
        }
    }
    ni->window_slots[slot] = (struct shm_window_slot){0};
    ni->window_free[ni->window_free_count++] = slot;
    shm_conn_linger_sweep(ni);
    return 0;
}

/* ---- cross-memory attach ------------------------------------------------------------------- */

void
shm_cma_probe(struct shm_link *link)
{
    uint64_t value = 0;
    const struct iovec local = {.iov_base = &value, .iov_len = sizeof(value)};
    const struct iovec remote = {.iov_base = (void *)(uintptr_t)link->probe_address,
                                 .iov_len = sizeof(value)};
    const ssize_t got = process_vm_readv(link->os_pid, &local, 1, &remote, 1, 0);

    if (got == (ssize_t)sizeof(value) && value == link->probe_value) {
        link->cma_error = 0;
    } else {
        link->cma_error = got < 0 ? -errno : -ESRCH;
    }
}

/* Where a copy stands in the local iovec. */
struct shm_cursor {
    const struct iovec *iov;
    uint32_t iov_count;
    uint64_t offset_bytes; /* in iov[0] */
};

/* Moves on by @bytes and over empty elements. */
static void
cursor_advance(struct shm_cursor *cursor, uint64_t bytes)
{
    cursor->offset_bytes += bytes;
    while (cursor->iov_count > 0 && cursor->offset_bytes >= cursor->iov->iov_len) {
        cursor->offset_bytes -= cursor->iov->iov_len;
        cursor->iov++;
        cursor->iov_count--;
    }
}

/*
 * Whether the process that holds the other end of the socket still does. Most often nothing at all
 * has happened on any socket, and the cheapest of system calls says so.
 */
static bool
peer_lives(const struct shm_conn *conn)
{
    struct epoll_event event;
    char byte;

    return epoll_wait(shm_conn_ni(conn)->epoll_fd, &event, 1, 0) == 0 ||
           recv(conn->link.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0 || errno == EAGAIN;
}

/* One call's worth: at most CMA_IOV_MAX pieces from @cursor on. Returns the bytes moved or an
 * error. */
static int64_t
cma_step(const struct shm_link *link, const struct shm_cursor *cursor, bool is_write,
         uint64_t address, uint64_t bytes)
{
    struct iovec local[CMA_IOV_MAX];
    uint32_t local_count = 0;
    uint64_t here_bytes = 0;
    uint64_t skip_bytes = cursor->offset_bytes;

    while (local_count < cursor->iov_count && local_count < CMA_IOV_MAX && here_bytes < bytes) {
        const struct iovec *piece = &cursor->iov[local_count];
        const uint64_t length = base_min_u64(piece->iov_len - skip_bytes, bytes - here_bytes);

        local[local_count++] =
            (struct iovec){.iov_base = (uint8_t *)piece->iov_base + skip_bytes, .iov_len = length};
        here_bytes += length;
        skip_bytes = 0;
    }
    const struct iovec remote = {.iov_base = (void *)(uintptr_t)address, .iov_len = here_bytes};
    const ssize_t moved = is_write
                              ? process_vm_writev(link->os_pid, local, local_count, &remote, 1, 0)
                              : process_vm_readv(link->os_pid, local, local_count, &remote, 1, 0);

    if (moved < 0) {
        return errno == ESRCH ? -ECONNRESET : errno == ENOMEM ? -EFAULT : -errno;
    }
    return moved;
}

/*
 * Copies by the kernel. A dead peer's number may belong to another process by now: before a write
 * and after a read the socket, which the kernel hangs up at the peer's end, is looked at.
 */
static int
cma_copy(const struct shm_conn *conn, const struct lnet_lnd_rma *rma, uint64_t address,
         uint64_t bytes)
{
    struct shm_cursor cursor = {.iov = rma->local, .iov_count = rma->local_count};

    if (rma->is_write && !peer_lives(conn)) {
        return -ECONNRESET;
    }
    cursor_advance(&cursor, 0);
    while (bytes > 0) {
        const int64_t moved = cma_step(&conn->link, &cursor, rma->is_write, address, bytes);

        if (moved <= 0) {
            return moved < 0 ? (int)moved : -EFAULT;
        }
        /* A short count may be a hole in the peer's memory: the next round tells. */
        bytes -= (uint64_t)moved;
        address += (uint64_t)moved;
        cursor_advance(&cursor, (uint64_t)moved);
    }
    return rma->is_write || peer_lives(conn) ? 0 : -ECONNRESET;
}

/* ---- the mapped way ------------------------------------------------------------------------ */

/*
 * Fills the page tables of what is about to be touched for the first time. As if for reading: the
 * pages of shared memory become writable by that as well, and those that are there come 16 at a
 * time, in less than half the time.
 */
static void
region_touch(struct shm_peer_region *region, uint64_t offset_bytes, uint64_t bytes)
{
    const uint64_t last = (offset_bytes + bytes - 1) / SHM_TOUCH_BYTES;

    for (uint64_t step = offset_bytes / SHM_TOUCH_BYTES; step <= last; step++) {
        if (((region->touched[step / 64] >> (step % 64)) & 1) == 0) {
            const uint64_t begin = step * SHM_TOUCH_BYTES;

            (void)madvise(region->address + begin,
                          base_min_u64(SHM_TOUCH_BYTES, region->length_bytes - begin),
                          MADV_POPULATE_READ);
            region->touched[step / 64] |= UINT64_C(1) << (step % 64);
        }
    }
}

static void
mapped_copy(const struct lnet_lnd_rma *rma, uint8_t *remote, uint64_t bytes)
{
    for (uint32_t i = 0; i < rma->local_count && bytes > 0; i++) {
        const uint64_t length = base_min_u64(rma->local[i].iov_len, bytes);

        if (length == 0) {
            continue;
        }
        if (rma->is_write) {
            (void)memcpy(remote, rma->local[i].iov_base, length);
        } else {
            (void)memcpy(rma->local[i].iov_base, remote, length);
        }
        remote += length;
        bytes -= length;
    }
}

/* The peer's region @id, or NULL. */
static struct shm_peer_region *
region_find(struct shm_conn *conn, uint32_t id)
{
    const uint32_t slot = id % SHM_REGIONS_MAX;

    return slot < conn->region_count && conn->regions[slot].id == id ? &conn->regions[slot] : NULL;
}

/*
 * The same; if it is not known yet, reads what the peer has said meanwhile: the key may have
 * overtaken the word about its region, which comes by the socket.
 */
static struct shm_peer_region *
region_await(struct shm_conn *conn, uint32_t id)
{
    struct shm_peer_region *region = region_find(conn, id);

    if (region == NULL) {
        (void)shm_conn_socket(conn);
        region = conn->state == SHM_CONN_UP ? region_find(conn, id) : NULL;
    }
    return region;
}

/* ---- initiator ----------------------------------------------------------------------------- */

/* The path a copy with @key takes, given what is wanted. */
static enum lnet_rma_path
path_choose(const struct shm_conn *conn, const struct shm_key *key, enum lnet_rma_path wanted)
{
    const struct shm_ni *ni = shm_conn_ni(conn);
    const bool has_mapped = key->region_id != 0;
    const bool has_cma = conn->link.cma_error == 0;

    if (ni->is_rma_forced) {
        if (ni->rma_forced == LNET_RMA_NONE ||
            (wanted != LNET_RMA_NONE && wanted != ni->rma_forced)) {
            return LNET_RMA_NONE;
        }
        wanted = ni->rma_forced;
    }
    if (has_mapped && wanted != LNET_RMA_CMA) {
        return LNET_RMA_MAPPED;
    }
    return has_cma && wanted != LNET_RMA_MAPPED ? LNET_RMA_CMA : LNET_RMA_NONE;
}

/* Copies, with the hazard published. */
static int
rma_copy(struct shm_conn *conn, const struct lnet_lnd_rma *rma, const struct shm_key *key,
         enum lnet_rma_path path, uint64_t bytes)
{
    struct shm_link *link = &conn->link;
    struct shm_peer_region *region = NULL;

    if (__atomic_load_n(&link->windows->epochs[key->slot], __ATOMIC_ACQUIRE) != key->epoch) {
        return -ESTALE;
    }
    if (bytes == 0) {
        return 0;
    }
    if (path == LNET_RMA_MAPPED) {
        region = region_await(conn, key->region_id);
    }
    if (region == NULL) {
        const uint64_t address = key->address + rma->remote_offset_bytes;
        const bool has_cma =
            path == LNET_RMA_CMA || (rma->path == LNET_RMA_NONE &&
                                     !shm_conn_ni(conn)->is_rma_forced && link->cma_error == 0);

        if (!has_cma || conn->state != SHM_CONN_UP) {
            return -ESTALE;
        }
        return address < key->address || address + bytes < address
                   ? -ERANGE
                   : cma_copy(conn, rma, address, bytes);
    }
    if (key->offset_bytes > region->length_bytes ||
        rma->remote_offset_bytes > region->length_bytes - key->offset_bytes ||
        bytes > region->length_bytes - key->offset_bytes - rma->remote_offset_bytes) {
        return -ERANGE;
    }
    const uint64_t offset = key->offset_bytes + rma->remote_offset_bytes;

    region_touch(region, offset, bytes);
    mapped_copy(rma, region->address + offset, bytes);
    return 0;
}

/* Everything about the key that can be said without looking at the window. */
static int
key_check(const struct shm_conn *conn, const struct shm_key *key, const struct lnet_lnd_rma *rma,
          uint64_t bytes)
{
    if (key->format != KEY_FORMAT || key->slot >= SHM_WINDOWS_MAX || (key->epoch & 1) == 0 ||
        key->epoch >= COOKIE_EPOCH_MAX ||
        key->incarnation != (uint32_t)conn->link.peer_incarnation) {
        return -ESTALE;
    }
    if ((key->access & (rma->is_write ? LNET_ACCESS_WRITE : LNET_ACCESS_READ)) == 0) {
        return -EACCES;
    }
    if (rma->remote_offset_bytes > key->length_bytes ||
        bytes > key->length_bytes - rma->remote_offset_bytes) {
        return -ERANGE;
    }
    return 0;
}

int
shm_rma(struct lnet_lnd_conn *base, const struct lnet_lnd_rma *rma)
{
    struct shm_conn *conn = shm_conn_of(base);
    struct shm_ni *ni = shm_conn_ni(conn);
    uint64_t bytes = 0;

    if (conn->state != SHM_CONN_UP) {
        return -ENOTCONN;
    }
    for (uint32_t i = 0; i < rma->local_count; i++) {
        if (rma->local[i].iov_len > SHM_RMA_BYTES_MAX - bytes) {
            return -EMSGSIZE;
        }
        bytes += rma->local[i].iov_len;
    }
    const struct shm_key key = key_decode(rma->key);
    const enum lnet_rma_path path = path_choose(conn, &key, rma->path);

    if (path == LNET_RMA_NONE) {
        return -EOPNOTSUPP;
    }
    if (ni->completion_count == SHM_COMPLETIONS_MAX) {
        return -EAGAIN;
    }
    int status = key_check(conn, &key, rma, bytes);

    if (status == 0) {
        __atomic_store_n(&conn->link.ours->hazard, window_cookie(key.slot, key.epoch),
                         __ATOMIC_RELAXED);
        shm_fence();
        status = rma_copy(conn, rma, &key, path, bytes);
        __atomic_store_n(&conn->link.ours->hazard, 0, __ATOMIC_RELEASE);
    }
    const uint32_t at = (ni->completion_first + ni->completion_count++) & (SHM_COMPLETIONS_MAX - 1);

    ni->completions[at] = (struct shm_completion){
        .done = rma->done, .ctx = rma->ctx, .user = rma->user, .status = status};
    return 0;
}

enum lnet_rma_path
shm_rma_path(struct lnet_lnd_conn *base, const struct lnet_key *key)
{
    const struct shm_conn *conn = shm_conn_of(base);
    const struct shm_key fields = key_decode(key);

    return conn->state == SHM_CONN_UP ? path_choose(conn, &fields, LNET_RMA_NONE) : LNET_RMA_NONE;
}
