/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Property: a copy through a window moves exactly the bytes asked for, by every path, and a key
 * that is late, foreign or made up moves none. Method: two interfaces in one process; children for
 * deaths and for owners that close while somebody copies.
 */
#include "tests/lnet/lnd/shm/driver.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define REGION_BYTES (4u << 20)

static void
rma_done(struct lnet *ctx, int status, void *user)
{
    struct end *end = user;

    (void)ctx;
    end->done_count++;
    end->done_status = status;
}

/* One rma() of one piece; returns the word of the call, or else the status. */
static int
rma(struct end *end, const struct lnet_key *key, uint64_t offset, void *local, uint64_t bytes,
    bool is_write, enum lnet_rma_path path)
{
    const struct iovec iov = {.iov_base = local, .iov_len = bytes};
    const struct lnet_lnd_rma op = {.key = key,
                                    .remote_offset_bytes = offset,
                                    .local = &iov,
                                    .local_count = 1,
                                    .is_write = is_write,
                                    .path = path,
                                    .done = rma_done,
                                    .user = end};
    const uint32_t done = end->done_count;
    const int rc = lnet_lnd_shm.rma(end->conns[0], &op);

    if (rc != 0) {
        return rc;
    }
    assert_int_equal(end->done_count, done); /* never inside the call */
    (void)end_poll(end);
    assert_int_equal(end->done_count, done + 1);
    return end->done_status;
}

static void
fill(uint8_t *at, uint64_t bytes, uint32_t seed)
{
    for (uint64_t i = 0; i < bytes; i++) {
        at[i] = (uint8_t)((i * 2654435761u + seed) >> 13);
    }
}

struct pair {
    struct end owner, peer;
    const char *dir;
    struct lnet_lnd_mem *mem;
    uint8_t *memory;
};

/* Memory of the owner: allocated or, with @is_private, registered. */
static void
pair_open(struct pair *pair, bool is_private)
{
    void *address = NULL;

    *pair = (struct pair){.dir = run_dir_make()};
    end_open(&pair->owner, pair->dir, "1", 0);
    end_open(&pair->peer, pair->dir, "2", 0);
    end_connect(&pair->peer, &pair->owner);
    if (is_private) {
        address =
            mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_int_equal(
            lnet_lnd_shm.mem_register(pair->owner.ni, address, REGION_BYTES, &pair->mem), 0);
    } else {
        assert_int_equal(
            lnet_lnd_shm.mem_alloc(pair->owner.ni, REGION_BYTES, 0, &pair->mem, &address), 0);
    }
    pair->memory = address;
}

static void
pair_close(struct pair *pair, bool is_private)
{
    lnet_lnd_shm.mem_release(pair->mem);
    if (is_private) {
        (void)munmap(pair->memory, REGION_BYTES);
    }
    end_close(&pair->peer);
    end_close(&pair->owner);
    run_dir_remove(pair->dir);
}

static void
copies_of_all_sizes(enum lnet_rma_path path, bool is_private)
{
    static const uint64_t sizes[] = {0,    1,    7,     8,     63,     64,      65,      4095,
                                     4096, 4097, 65535, 65536, 262144, 1000003, 1048575, 1048576};
    static const uint64_t offsets[] = {0, 1, 63, 4095, 4096, 2097151, 2097152, 3145727};
    static struct pair pair;
    static uint8_t local[SHM_RMA_BYTES_MAX], wanted[REGION_BYTES];
    struct lnet_window window;
    struct lnet_key key;

    pair_open(&pair, is_private);
    assert_int_equal(lnet_lnd_shm.window_open(pair.mem, 0, REGION_BYTES,
                                              LNET_ACCESS_READ | LNET_ACCESS_WRITE, &window, &key),
                     0);
    assert_int_equal(lnet_lnd_shm.rma_path(pair.peer.conns[0], &key), path);
    fill(wanted, REGION_BYTES, 1);
    (void)memcpy(pair.memory, wanted, REGION_BYTES);
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(sizes); i++) {
        for (uint32_t j = 0; j < BASE_ARRAY_LEN(offsets); j++) {
            const uint64_t size = sizes[i];
            const uint64_t offset = offsets[j];

            (void)memset(local, 0xaa, size);
            assert_int_equal(rma(&pair.peer, &key, offset, local, size, false, LNET_RMA_NONE), 0);
            assert_memory_equal(local, wanted + offset, size);
            fill(local, size, i * 100 + j);
            (void)memcpy(wanted + offset, local, size);
            assert_int_equal(rma(&pair.peer, &key, offset, local, size, true, path), 0);
            if (j % 4 == 0) {
                assert_memory_equal(pair.memory, wanted, REGION_BYTES);
            }
        }
    }
    assert_memory_equal(pair.memory, wanted, REGION_BYTES);
    assert_int_equal(rma(&pair.peer, &key, REGION_BYTES - 5, local, 6, false, path), -ERANGE);
    assert_int_equal(rma(&pair.peer, &key, REGION_BYTES, local, 1, true, path), -ERANGE);
    assert_int_equal(rma(&pair.peer, &key, REGION_BYTES, local, 0, true, path), 0);
    assert_int_equal(rma(&pair.peer, &key, UINT64_MAX, local, 2, true, path), -ERANGE);
    assert_int_equal(lnet_lnd_shm.window_close(pair.owner.ni, window), 0);
    assert_int_equal(lnet_lnd_shm.window_close(pair.owner.ni, window), -ESTALE);
    pair_close(&pair, is_private);
}

static void
mapped_copies_are_right_at_all_sizes_and_offsets(void **state)
{
    copies_of_all_sizes(LNET_RMA_MAPPED, false);
}

static void
cma_copies_are_right_at_all_sizes_and_offsets(void **state)
{
    copies_of_all_sizes(LNET_RMA_CMA, true);
}

static void
pieces_of_any_length_are_put_together(void **state)
{
    static struct pair pair;
    static uint8_t local[SHM_RMA_BYTES_MAX];
    struct iovec iov[256];
    struct lnet_window window;
    struct lnet_key key;

    for (uint32_t variant = 0; variant < 4; variant++) {
        const bool is_private = (variant & 1) != 0;
        const bool is_write = (variant & 2) != 0;
        uint64_t used = 0;

        pair_open(&pair, is_private);
        assert_int_equal(lnet_lnd_shm.window_open(pair.mem, 4096, SHM_RMA_BYTES_MAX + 4096,
                                                  LNET_ACCESS_READ | LNET_ACCESS_WRITE, &window,
                                                  &key),
                         0);
        fill(local, sizeof(local), 3);
        fill(pair.memory, REGION_BYTES, 4);
        for (uint32_t i = 0; i < BASE_ARRAY_LEN(iov); i++) {
            const uint64_t length = i % 5 == 0 ? 0 : (i * i * 37) % 6001;

            iov[i] = (struct iovec){.iov_base = local + used, .iov_len = length};
            used += length;
        }
        assert_true(used <= sizeof(local));
        const struct lnet_lnd_rma op = {.key = &key,
                                        .remote_offset_bytes = 77,
                                        .local = iov,
                                        .local_count = BASE_ARRAY_LEN(iov),
                                        .is_write = is_write,
                                        .done = rma_done,
                                        .user = &pair.peer};

        assert_int_equal(lnet_lnd_shm.rma(pair.peer.conns[0], &op), 0);
        (void)end_poll(&pair.peer);
        assert_int_equal(pair.peer.done_status, 0);
        assert_memory_equal(pair.memory + 4096 + 77, local, used);
        pair_close(&pair, is_private);
    }
}

static void
keys_that_are_late_or_made_up_are_refused(void **state)
{
    static struct pair pair;
    static uint8_t local[4096];
    struct lnet_window window, other;
    struct lnet_key key, next;

    for (uint32_t variant = 0; variant < 2; variant++) {
        const bool is_private = variant == 1;

        pair_open(&pair, is_private);
        (void)memset(pair.memory, 0x55, REGION_BYTES);
        assert_int_equal(
            lnet_lnd_shm.window_open(pair.mem, 4096, 4096, LNET_ACCESS_READ, &window, &key), 0);
        assert_int_equal(rma(&pair.peer, &key, 0, local, 10, false, LNET_RMA_NONE), 0);
        assert_int_equal(rma(&pair.peer, &key, 0, local, 10, true, LNET_RMA_NONE), -EACCES);
        assert_int_equal(lnet_lnd_shm.window_close(pair.owner.ni, window), 0);
        assert_int_equal(rma(&pair.peer, &key, 0, local, 10, false, LNET_RMA_NONE), -ESTALE);
        /* The same slot, used again, is not what the old key is for. */
        assert_int_equal(
            lnet_lnd_shm.window_open(pair.mem, 0, 4096, LNET_ACCESS_READ, &other, &next), 0);
        assert_int_equal(rma(&pair.peer, &key, 0, local, 10, false, LNET_RMA_NONE), -ESTALE);
        assert_int_equal(rma(&pair.peer, &next, 0, local, 10, false, LNET_RMA_NONE), 0);
        assert_int_equal(lnet_lnd_shm.window_close(pair.owner.ni, window), -ESTALE);
        /* Every bit of a key turned: nothing crashes, nothing of the owner's is written. */
        for (uint32_t bit = 0; bit < LNET_KEY_BYTES * 8; bit++) {
            struct lnet_key bad = next;

            bad.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
            const int rc = rma(&pair.peer, &bad, 0, local, 4096, false, LNET_RMA_NONE);

            assert_true(rc == 0 || rc == -ESTALE || rc == -EACCES || rc == -ERANGE ||
                        rc == -EFAULT || rc == -EOPNOTSUPP);
            if (bit < 16 || (bit >= 32 && bit < 160)) { /* format, slot, epoch, incarnation */
                assert_true(rc < 0);
            }
        }
        assert_int_equal(lnet_lnd_shm.window_close(pair.owner.ni, other), 0);
        pair_close(&pair, is_private);
    }
}

static void
windows_and_completions_are_bounded(void **state)
{
    static struct pair pair;
    static struct lnet_window windows[SHM_WINDOWS_MAX];
    struct lnet_window window;
    struct lnet_key key;
    uint8_t local[8];
    const struct iovec iov = {.iov_base = local, .iov_len = sizeof(local)};
    uint32_t count = 0;

    pair_open(&pair, false);
    for (uint32_t i = 0; i < SHM_WINDOWS_MAX; i++) {
        assert_int_equal(
            lnet_lnd_shm.window_open(pair.mem, 0, 64, LNET_ACCESS_READ, &windows[i], &key), 0);
        assert_int_equal(windows[i].cookie >> 56, 0);
    }
    assert_int_equal(lnet_lnd_shm.window_open(pair.mem, 0, 64, LNET_ACCESS_READ, &window, &key),
                     -EAGAIN);
    const struct lnet_lnd_rma op = {
        .key = &key, .local = &iov, .local_count = 1, .done = rma_done, .user = &pair.peer};

    while (lnet_lnd_shm.rma(pair.peer.conns[0], &op) == 0) {
        count++;
    }
    assert_int_equal(count, SHM_COMPLETIONS_MAX);
    assert_int_equal(lnet_lnd_shm.arm(pair.peer.ni), -EBUSY);
    END_POLL_UNTIL(&pair.peer, &pair.owner, pair.peer.done_count == count);
    const struct iovec large = {.iov_base = pair.memory, .iov_len = SHM_RMA_BYTES_MAX + 1};
    const struct lnet_lnd_rma too_much = {
        .key = &key, .local = &large, .local_count = 1, .done = rma_done, .user = &pair.peer};

    assert_int_equal(lnet_lnd_shm.rma(pair.peer.conns[0], &too_much), -EMSGSIZE);
    for (uint32_t i = 0; i < SHM_WINDOWS_MAX; i++) {
        assert_int_equal(lnet_lnd_shm.window_close(pair.owner.ni, windows[i]), 0);
    }
    assert_int_equal(
        lnet_lnd_shm.window_open(pair.mem, REGION_BYTES, 1, LNET_ACCESS_READ, &window, &key),
        -EINVAL);
    assert_int_equal(
        lnet_lnd_shm.window_open(pair.mem, 1, UINT64_MAX, LNET_ACCESS_READ, &window, &key),
        -EINVAL);
    pair_close(&pair, false);
}

static void
an_outstanding_rma_ends_once_also_after_the_close(void **state)
{
    static struct pair pair;
    struct lnet_window window;
    struct lnet_key key;
    uint8_t local[8];
    const struct iovec iov = {.iov_base = local, .iov_len = sizeof(local)};

    pair_open(&pair, false);
    assert_int_equal(lnet_lnd_shm.window_open(pair.mem, 0, 64, LNET_ACCESS_READ, &window, &key), 0);
    const struct lnet_lnd_rma op = {
        .key = &key, .local = &iov, .local_count = 1, .done = rma_done, .user = &pair.peer};

    assert_int_equal(lnet_lnd_shm.rma(pair.peer.conns[0], &op), 0);
    lnet_lnd_shm.conn_close(pair.peer.conns[0]);
    pair.peer.conn_count = 0;
    (void)end_poll(&pair.peer);
    assert_int_equal(pair.peer.done_count, 1);
    assert_int_equal(lnet_lnd_shm.window_close(pair.owner.ni, window), 0);
    pair_close(&pair, false);
}

static void
regions_come_and_go_while_peers_are_connected(void **state)
{
    const char *dir = run_dir_make();
    static struct end a, b;
    static struct lnet_lnd_mem *mems[SHM_REGIONS_MAX];
    struct lnet_lnd_mem *more = NULL;
    struct lnet_window window;
    struct lnet_key key;
    void *address = NULL;
    uint8_t local[64];

    a = b = (struct end){0};
    end_open(&a, dir, "1", 0);
    end_open(&b, dir, "2", 0);
    end_connect(&b, &a);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < SHM_REGIONS_MAX; i++) {
            assert_int_equal(lnet_lnd_shm.mem_alloc(a.ni, 4096, 0, &mems[i], &address), 0);
            assert_int_equal(lnet_lnd_shm.mem_page_bytes(mems[i]), 4096);
            (void)memset(address, (int)(i + round), 4096);
        }
        assert_int_equal(lnet_lnd_shm.mem_alloc(a.ni, 4096, 0, &more, &address), -ENOMEM);
        for (uint32_t i = 0; i < SHM_REGIONS_MAX; i++) {
            assert_int_equal(
                lnet_lnd_shm.window_open(mems[i], 0, 4096, LNET_ACCESS_READ, &window, &key), 0);
            /* b may not have heard of the region when it gets the key, but will. */
            int rc = -ESTALE;

            for (uint32_t turn = 0; turn < 10000 && rc == -ESTALE; turn++) {
                rc = rma(&b, &key, 1, local, 64, false, LNET_RMA_MAPPED);
                (void)end_poll(&a);
            }
            assert_int_equal(rc, 0);
            assert_int_equal(rma(&b, &key, 1, local, 64, false, LNET_RMA_NONE), 0);
            assert_int_equal(local[63], (uint8_t)(i + round));
            assert_int_equal(lnet_lnd_shm.window_close(a.ni, window), 0);
        }
        for (uint32_t i = 0; i < SHM_REGIONS_MAX; i++) {
            lnet_lnd_shm.mem_release(mems[i]);
        }
    }
    end_close(&b);
    end_close(&a);
    run_dir_remove(dir);
}

static void
memory_that_is_gone_is_efault(void **state)
{
    static struct pair pair;
    static uint8_t local[65536];
    struct lnet_window window;
    struct lnet_key key;

    pair_open(&pair, true);
    assert_int_equal(lnet_lnd_shm.window_open(pair.mem, 0, 65536, LNET_ACCESS_READ, &window, &key),
                     0);
    /* Not the owner's process that is at fault here, but its page: half of the window is there. */
    assert_int_equal(munmap(pair.memory + 32768, 32768), 0);
    assert_int_equal(rma(&pair.peer, &key, 0, local, 65536, false, LNET_RMA_NONE), -EFAULT);
    assert_int_equal(rma(&pair.peer, &key, 0, local, 32768, false, LNET_RMA_NONE), 0);
    assert_int_equal(lnet_lnd_shm.window_close(pair.owner.ni, window), 0);
    pair_close(&pair, true);
}

/* Lets this process map @bytes more, or with UINT64_MAX what it likes. */
static void
address_space_limit(uint64_t bytes)
{
    struct rlimit limit;
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "re");

    assert_non_null(statm);
    assert_int_equal(fscanf(statm, "%lu", &pages), 1);
    (void)fclose(statm);
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = bytes == UINT64_MAX ? limit.rlim_max : pages * 4096 + bytes;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

static void
a_region_that_there_is_no_room_for_is_copied_by_another_path(void **state)
{
    static struct pair pair;
    struct lnet_window window;
    struct lnet_key key;
    uint8_t local[64] = {0};

    pair_open(&pair, false); /* the peer has not heard of the region yet */
    fill(pair.memory, REGION_BYTES, 5);
    address_space_limit(1 << 20);
    for (uint32_t i = 0; i < 100; i++) {
        (void)end_poll(&pair.peer);
    }
    address_space_limit(UINT64_MAX);
    assert_int_equal(pair.peer.down_count, 0);
    assert_non_null(strstr(pair.peer.log, "no room to map a region"));
    assert_int_equal(lnet_lnd_shm.window_open(pair.mem, 0, 64, LNET_ACCESS_READ, &window, &key), 0);
    assert_int_equal(rma(&pair.peer, &key, 0, local, 64, false, LNET_RMA_NONE), 0);
    assert_memory_equal(local, pair.memory, 64);
    assert_int_equal(lnet_lnd_shm.window_close(pair.owner.ni, window), 0);
    pair_close(&pair, false);
}

/* A child that connects, and copies for ever through the key it gets in a message. */
static int
copier_recv(struct end *end, struct lnet_lnd_conn *conn, const struct lnet_hdr *hdr,
            const void *payload)
{
    (void)conn;
    (void)hdr;
    (void)memcpy(end->payload, payload, LNET_KEY_BYTES);
    end->writable_count = 1;
    return 0;
}

static void
copier_run(const struct end *server, const char *dir, bool is_write)
{
    static struct end end;
    static uint8_t local[SHM_RMA_BYTES_MAX];
    struct lnet_lnd_conn *conn = NULL;
    struct lnet_key key;

    end = (struct end){.recv = copier_recv};
    end_open(&end, dir, NULL, LNET_NI_CONNECT_ONLY);
    assert_int_equal(lnet_lnd_shm.conn_open(end.ni, &server->process, &end, &conn), 0);
    (void)memset(local, 0x77, sizeof(local));
    for (;;) {
        (void)end_poll(&end);
        if (end.down_count > 0) {
            _exit(0);
        }
        if (end.writable_count > 0) {
            (void)memcpy(key.bytes, end.payload, LNET_KEY_BYTES);
            (void)rma(&end, &key, 0, local, sizeof(local), is_write, LNET_RMA_NONE);
        }
    }
}

/*
 * While a child copies as fast as it can, the owner closes the window, and once that is done
 * changes the memory: it must not change by itself any more. Then the child is killed, often amid a
 * copy.
 */
static void
after_window_close_nobody_touches_the_memory(void **state)
{
    static struct pair pair;

    for (uint32_t variant = 0; variant < 2; variant++) {
        const bool is_private = variant == 1;

        pair_open(&pair, is_private);
        for (uint32_t round = 0; round < 15; round++) {
            const uint32_t accepted = pair.owner.accepted_count;
            const uint32_t down = pair.owner.down_count;
            struct lnet_window window;
            struct lnet_key key;
            uint64_t busy = 0;
            int rc = 0;
            const pid_t child = fork();

            if (child == 0) {
                copier_run(&pair.owner, pair.dir, true);
            }
            END_POLL_UNTIL(&pair.owner, &pair.owner, pair.owner.accepted_count == accepted + 1);
            for (uint32_t i = 0; i < 20; i++) {
                struct lnet_lnd_conn *conn = pair.owner.conns[pair.owner.conn_count - 1];

                assert_int_equal(lnet_lnd_shm.window_open(pair.mem, 0, SHM_RMA_BYTES_MAX,
                                                          LNET_ACCESS_WRITE, &window, &key),
                                 0);
                pair.memory[SHM_RMA_BYTES_MAX - 1] = 0;
                assert_int_equal(end_put(conn, 1, key.bytes, LNET_KEY_BYTES), 0);
                END_POLL_UNTIL(&pair.owner, &pair.owner,
                               ((volatile uint8_t *)pair.memory)[SHM_RMA_BYTES_MAX - 1] == 0x77);
                if (i == 19) {
                    /* Killed amid a copy, as likely as not: the window closes all the same. */
                    assert_int_equal(kill(child, SIGKILL), 0);
                }
                do {
                    rc = lnet_lnd_shm.window_close(pair.owner.ni, window);
                    busy += rc == -EBUSY;
                    (void)end_poll(&pair.owner);
                } while (rc == -EBUSY);
                assert_int_equal(rc, 0);
                if (i == 19) {
                    assert_int_equal(waitpid(child, NULL, 0), child);
                }
                (void)memset(pair.memory, 0x11, SHM_RMA_BYTES_MAX);
                for (uint32_t k = 0; k < SHM_RMA_BYTES_MAX; k += 509) {
                    assert_int_equal(((volatile uint8_t *)pair.memory)[k], 0x11);
                }
            }
            END_POLL_UNTIL(&pair.owner, &pair.owner, pair.owner.down_count == down + 1);
        }
        pair_close(&pair, is_private);
    }
}

static void
a_connection_closed_under_a_copy_still_holds_the_window(void **state)
{
    static struct pair pair;
    struct lnet_window window;
    struct lnet_key key;

    pair_open(&pair, false);
    assert_int_equal(lnet_lnd_shm.window_open(pair.mem, 0, 64, LNET_ACCESS_READ, &window, &key), 0);
    /* As if the peer were amid a copy. */
    shm_conn_of(pair.peer.conns[0])->link.ours->hazard = window.cookie;
    lnet_lnd_shm.conn_close(pair.owner.conns[0]);
    pair.owner.conn_count = 0;
    assert_int_equal(lnet_lnd_shm.window_close(pair.owner.ni, window), -EBUSY);
    assert_int_equal(rma(&pair.peer, &key, 0, &key, 1, false, LNET_RMA_NONE), -ESTALE);
    assert_int_equal(lnet_lnd_shm.window_close(pair.owner.ni, window), 0);
    END_POLL_UNTIL(&pair.owner, &pair.peer, pair.peer.down_count == 1);
    assert_int_equal(pair.owner.down_count, 0);
    pair_close(&pair, false);
}

/*
 * The owner alone gives up the connection, as it does for lack of memory: the peer, amid a copy,
 * does not know. The window is its until it has hung up, is through, or time is.
 */
static void
a_connection_failed_under_a_copy_still_holds_the_window(void **state)
{
    enum { COPY_ENDS, PEER_CLOSES, TIME_ENDS, WAYS };

    static struct pair pair;
    struct lnet_window window;
    struct lnet_key key;

    for (int way = 0; way < WAYS; way++) {
        pair_open(&pair, false);
        pair.owner.now_ns = base_clock_now_ns();
        assert_int_equal(lnet_lnd_shm.window_open(pair.mem, 0, 64, LNET_ACCESS_READ, &window, &key),
                         0);
        struct shm_conn *peer = shm_conn_of(pair.peer.conns[0]);

        peer->link.ours->hazard = window.cookie;
        shm_conn_fail(shm_conn_of(pair.owner.conns[0]), -ENOMEM);
        assert_int_equal(lnet_lnd_shm.window_close(pair.owner.ni, window), -EBUSY);
        (void)end_poll(&pair.owner); /* conn_down(), which closes it */
        assert_int_equal(pair.owner.down_count, 1);
        (void)end_poll(&pair.owner);
        assert_int_equal(lnet_lnd_shm.window_close(pair.owner.ni, window), -EBUSY);
        if (way == COPY_ENDS) {
            peer->link.ours->hazard = 0;
        } else if (way == PEER_CLOSES) {
            lnet_lnd_shm.conn_close(pair.peer.conns[0]);
            pair.peer.conn_count = 0;
        } else {
            pair.owner.now_ns += UINT64_C(10000000000) - 1; /* what end_open() gives */
            (void)end_poll(&pair.owner);
            assert_int_equal(lnet_lnd_shm.window_close(pair.owner.ni, window), -EBUSY);
            pair.owner.now_ns += 1;
            (void)end_poll(&pair.owner);
        }
        assert_int_equal(lnet_lnd_shm.window_close(pair.owner.ni, window), 0);
        if (way != PEER_CLOSES) {
            END_POLL_UNTIL(&pair.owner, &pair.peer, pair.peer.down_count == 1);
        }
        pair_close(&pair, false);
    }
}

/* Forbids process_vm_*() to this process, as containers do. */
static void
cma_forbid(int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = BASE_ARRAY_LEN(filter), .filter = filter};

    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void
cma_that_is_forbidden_is_said_and_not_used(void **state)
{
    static const int errors[] = {EPERM, ENOSYS};

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(errors); i++) {
        const pid_t child = fork();
        int status = 1;

        if (child == 0) {
            static struct pair pair;
            struct lnet_window window;
            struct lnet_key key;
            char text[64];
            uint8_t local[8];

            cma_forbid(errors[i]);
            pair_open(&pair, true);
            assert_int_equal(
                lnet_lnd_shm.window_open(pair.mem, 0, 64, LNET_ACCESS_READ, &window, &key), 0);
            assert_int_equal(lnet_lnd_shm.rma_path(pair.peer.conns[0], &key), LNET_RMA_NONE);
            assert_int_equal(rma(&pair.peer, &key, 0, local, 8, false, LNET_RMA_NONE), -EOPNOTSUPP);
            lnet_lnd_shm.describe(pair.peer.ni, text, sizeof(text));
            assert_non_null(strstr(text, errors[i] == EPERM ? "EPERM" : "ENOSYS"));
            assert_non_null(strstr(text, "mapped"));
            assert_non_null(strstr(pair.peer.log, "cross-memory"));
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

static void
a_forced_path_is_the_only_one(void **state)
{
    static const struct {
        const char *option;
        bool is_private;
        enum lnet_rma_path path;
    } cases[] = {
        {"mapped", false, LNET_RMA_MAPPED}, {"mapped", true, LNET_RMA_NONE},
        {"cma", false, LNET_RMA_CMA},       {"cma", true, LNET_RMA_CMA},
        {"none", false, LNET_RMA_NONE},     {"none", true, LNET_RMA_NONE},
    };
    const char *dir = run_dir_make();
    static struct end a, b;

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        struct lnet_ni_options options = {
            .address = "1", .run_dir = dir, .rma_path = cases[i].option};
        struct lnet_lnd_mem *mem = NULL;
        struct lnet_window window;
        struct lnet_key key;
        uint8_t local[16] = {0};
        uint8_t memory[16] = "private memory.";
        void *address = memory;

        a = b = (struct end){0};
        assert_int_equal(end_open_with(&a, 0, UINT64_C(1000000000), &options), 0);
        end_open(&b, dir, "2", 0);
        end_connect(&a, &b);
        if (cases[i].is_private) {
            assert_int_equal(lnet_lnd_shm.mem_register(b.ni, memory, 16, &mem), 0);
        } else {
            assert_int_equal(lnet_lnd_shm.mem_alloc(b.ni, 16, 0, &mem, &address), 0);
            (void)memcpy(address, memory, 16);
        }
        assert_int_equal(lnet_lnd_shm.window_open(mem, 0, 16, LNET_ACCESS_READ, &window, &key), 0);
        assert_int_equal(lnet_lnd_shm.rma_path(a.conns[0], &key), cases[i].path);
        assert_int_equal(rma(&a, &key, 0, local, 16, false, LNET_RMA_NONE),
                         cases[i].path == LNET_RMA_NONE ? -EOPNOTSUPP : 0);
        if (cases[i].path != LNET_RMA_NONE) {
            assert_memory_equal(local, memory, 16);
        }
        assert_int_equal(lnet_lnd_shm.window_close(b.ni, window), 0);
        lnet_lnd_shm.mem_release(mem);
        end_close(&a);
        end_close(&b);
    }
    run_dir_remove(dir);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(mapped_copies_are_right_at_all_sizes_and_offsets),
    cmocka_unit_test(cma_copies_are_right_at_all_sizes_and_offsets),
    cmocka_unit_test(pieces_of_any_length_are_put_together),
    cmocka_unit_test(keys_that_are_late_or_made_up_are_refused),
    cmocka_unit_test(windows_and_completions_are_bounded),
    cmocka_unit_test(an_outstanding_rma_ends_once_also_after_the_close),
    cmocka_unit_test(regions_come_and_go_while_peers_are_connected),
    cmocka_unit_test(memory_that_is_gone_is_efault),
    cmocka_unit_test(a_region_that_there_is_no_room_for_is_copied_by_another_path),
    cmocka_unit_test(after_window_close_nobody_touches_the_memory),
    cmocka_unit_test(a_connection_closed_under_a_copy_still_holds_the_window),
    cmocka_unit_test(a_connection_failed_under_a_copy_still_holds_the_window),
    cmocka_unit_test(cma_that_is_forbidden_is_said_and_not_used),
    cmocka_unit_test(a_forced_path_is_the_only_one),
};

TEST_MAIN(cases)
