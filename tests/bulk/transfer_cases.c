/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers of every size, offset, cut and direction on every path move exactly their bytes.
 *
 * Node 1 owns the exported memory, node 0 transfers. Every case ends with a check that the engines
 * are as empty as they were.
 */
#include "tests/bulk/world.h"

#include "base/assert.h"
#include "base/prng.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FRONT  13u /* bytes of the export before and behind what is transferred */
#define BEHIND 5u

static const enum bulk_path paths[] = {BULK_PATH_MAPPED, BULK_PATH_CMA, BULK_PATH_STAGING};

/* Memory on both sides, in regions (is_pool) or private. */
struct arenas {
    struct bulk_region *regions[2];
    char *arena[2];
    uint64_t bytes;
    bool is_pool;
};

static void
arenas_open(struct arenas *arenas, uint64_t length_bytes, bool is_pool)
{
    arenas->is_pool = is_pool;
    arenas->bytes = memory_arena_bytes(length_bytes);
    for (uint32_t i = 0; i < 2; i++) {
        void *address = NULL;

        if (is_pool) {
            assert_int_equal(
                bulk_region_alloc(world[i].bulk, arenas->bytes, &arenas->regions[i], &address), 0);
        } else {
            address = mmap(NULL, arenas->bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            assert_ptr_not_equal(address, MAP_FAILED);
        }
        arenas->arena[i] = address;
    }
}

static void
arenas_close(struct arenas *arenas)
{
    for (uint32_t i = 0; i < 2; i++) {
        if (arenas->is_pool) {
            bulk_region_free(arenas->regions[i]);
        } else {
            (void)munmap(arenas->arena[i], arenas->bytes);
        }
    }
}

/* An export of node 1 for node 0, packed. */
struct lent {
    struct bulk_export *export_;
    uint8_t handle[BULK_HANDLE_BYTES_MAX];
    uint32_t handle_bytes;
};

static void
lend(struct lent *lent, const struct iovec *iov, uint32_t count, uint32_t access)
{
    assert_int_equal(
        bulk_export(world[1].bulk, world[1].peers[0], iov, count, access, &lent->export_), 0);
    lent->handle_bytes = bulk_export_pack(lent->export_, lent->handle, sizeof(lent->handle));
    assert_true(lent->handle_bytes > 0);
}

static void
count_closed(struct bulk *bulk, void *user)
{
    (void)bulk;
    (*(uint32_t *)user)++;
}

static void
unlend(struct lent *lent)
{
    uint32_t closed = 0;

    if (bulk_export_close(lent->export_, count_closed, &closed) == -EINPROGRESS) {
        for (uint32_t i = 0; i < 100000 && closed == 0; i++) {
            world_poll();
        }
        assert_int_equal(closed, 1);
    }
}

static struct bulk_request
request_of(const struct lent *lent, enum bulk_op op, const struct memory *local, uint64_t offset,
           uint64_t length, struct outcome *outcome)
{
    *outcome = (struct outcome){0};
    return (struct bulk_request){
        .op = op,
        .peer = world[0].peers[1],
        .handle = lent->handle,
        .handle_bytes = lent->handle_bytes,
        .local = local->iov,
        .local_count = local->count,
        .handle_offset_bytes = offset,
        .length_bytes = length,
        .done = outcome_done,
        .user = outcome,
    };
}

static void
transfer_once(const struct arenas *arenas, enum bulk_path path, enum bulk_op op, uint64_t length,
              uint64_t offset, enum split local_split, enum split remote_split)
{
    static uint64_t seed = 1;
    struct memory local;
    struct memory remote;
    struct lent lent;
    struct outcome outcome;
    const uint64_t end = FRONT + length;

    seed += 2;
    memory_cut(&local, arenas->arena[0], length, (offset + 1) % 4096, local_split);
    memory_cut(&remote, arenas->arena[1], end + BEHIND, offset, remote_split);
    memory_fill(&remote, seed, 0, end + BEHIND, 0);
    if (op == BULK_PUSH) {
        memory_fill(&local, seed + 1, 0, length, 0);
    }
    lend(&lent, remote.iov, remote.count, op == BULK_PULL ? LNET_ACCESS_READ : LNET_ACCESS_WRITE);

    struct bulk_request request = request_of(&lent, op, &local, FRONT, length, &outcome);

    request.flags = seed % 4 == 1 ? BULK_CRC32C : 0;
    assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), 0);
    assert_int_equal(outcome.count, 0); /* never within the call */
    outcome_wait(&outcome, 1000000);
    assert_int_equal(outcome.result.status, 0);
    assert_int_equal(outcome.result.moved_bytes, length);
    if (length > 0) {
        assert_int_equal(outcome.result.path, path);
    }
    memory_check(&local, op == BULK_PULL ? seed : seed + 1, 0, length, op == BULK_PULL ? FRONT : 0);
    memory_check(&remote, seed, 0, FRONT, 0);
    memory_check(&remote, seed, end, end + BEHIND, end);
    memory_check(&remote, op == BULK_PULL ? seed : seed + 1, FRONT, end,
                 op == BULK_PULL ? FRONT : 0);
    memory_check_guards(&local);
    memory_check_guards(&remote);
    if ((request.flags & BULK_CRC32C) != 0) {
        uint32_t crc = 0;

        for (uint32_t i = 0; i < local.count; i++) {
            crc = bulk_crc32c(crc, local.iov[i].iov_base, local.iov[i].iov_len);
        }
        assert_int_equal(outcome.result.crc32c, crc);
    }
    unlend(&lent);
}

/* All sizes, offsets, cuts and both directions on one path, unless it can't be had. */
static void
matrix_run(enum bulk_path path, bool is_pool)
{
    const struct bulk_options options = {.struct_bytes = sizeof(options), .path = path};
    const uint64_t offsets[] = {0, 1, 63, 4095};
    struct arenas arenas;

    world_open(2, &options);
    if (!world_has_path(path, is_pool)) {
        world_close();
        return;
    }
    const uint64_t eager = world_put_bytes_max();
    const uint64_t sizes[] = {0,
                              1,
                              7,
                              63,
                              64,
                              65,
                              4095,
                              4096,
                              4097,
                              eager - 1,
                              eager,
                              eager + 1,
                              (64u << 10) - 1,
                              64u << 10,
                              (64u << 10) + 1,
                              (1u << 20) - 1,
                              1u << 20,
                              (1u << 20) + 1};

    arenas_open(&arenas, (1u << 20) + 64, is_pool);
    for (uint32_t s = 0; s < BASE_ARRAY_LEN(sizes); s++) {
        /* The large ones in every cut, but not in every offset times every cut. */
        const uint32_t step = sizes[s] > 100000 ? 7 : 1;

        for (uint32_t i = 0; i < BASE_ARRAY_LEN(offsets) * SPLIT_COUNT * SPLIT_COUNT * 2;
             i += step) {
            transfer_once(&arenas, path, i % 2 == 0 ? BULK_PULL : BULK_PUSH, sizes[s],
                          offsets[i / 2 % 4], (enum split)(i / 8 % SPLIT_COUNT),
                          (enum split)(i / 40 % SPLIT_COUNT));
        }
    }
    arenas_close(&arenas);
    world_close();
}

static void
mapped_pool_memory_moves_right_in_every_shape(void **state)
{
    matrix_run(BULK_PATH_MAPPED, true);
}

static void
cma_moves_right_in_every_shape(void **state)
{
    matrix_run(BULK_PATH_CMA, false);
    matrix_run(BULK_PATH_CMA, true);
}

static void
staging_moves_right_in_every_shape(void **state)
{
    matrix_run(BULK_PATH_STAGING, false);
    matrix_run(BULK_PATH_STAGING, true);
}

static void
sixty_four_mebibytes_move_on_every_path(void **state)
{
    for (uint32_t p = 0; p < BASE_ARRAY_LEN(paths); p++) {
        const struct bulk_options options = {.struct_bytes = sizeof(options), .path = paths[p]};
        const bool is_pool = paths[p] == BULK_PATH_MAPPED;
        struct arenas arenas;

        world_open(2, &options);
        if (world_has_path(paths[p], is_pool)) {
            arenas_open(&arenas, (64u << 20) + 64, is_pool);
            transfer_once(&arenas, paths[p], BULK_PULL, 64u << 20, 1, SPLIT_NONE, SPLIT_MANY);
            transfer_once(&arenas, paths[p], BULK_PUSH, 64u << 20, 0, SPLIT_MANY, SPLIT_NONE);
            arenas_close(&arenas);
        }
        world_close();
    }
}

static void
odd_fragments_and_small_windows_move_right(void **state)
{
    static const uint64_t fragments[] = {64, 1000, 4096, 100000};

    for (uint32_t i = 0; i < 24; i++) {
        const struct bulk_options options = {
            .struct_bytes = sizeof(options),
            .path = paths[i % 3],
            .window = 1 + i % 16,
            .fragment_bytes = fragments[i % 4],
        };
        const bool is_pool = paths[i % 3] == BULK_PATH_MAPPED;
        struct arenas arenas;

        world_open(2, &options);
        if (world_has_path(paths[i % 3], is_pool)) {
            arenas_open(&arenas, 300000, is_pool);
            transfer_once(&arenas, paths[i % 3], BULK_PULL, 123457, 1, SPLIT_MANY, SPLIT_MANY);
            transfer_once(&arenas, paths[i % 3], BULK_PUSH, 123457, 1, SPLIT_MANY, SPLIT_NONE);
            arenas_close(&arenas);
        }
        world_close();
    }
}

static void
lengths_and_offsets_over_4_gib_move_right(void **state)
{
    /* A sparse file of 5 GiB, exported whole; a window at 4 GiB - 100 of it is moved. */
    const uint64_t whole = 5ull << 30;
    const uint64_t at = (4ull << 30) - 100;
    const int fd = memfd_create("sparse", 0);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)whole), 0);
    char *sparse = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);

    assert_ptr_not_equal(sparse, MAP_FAILED);
    for (uint32_t p = 1; p < BASE_ARRAY_LEN(paths); p++) {
        const struct bulk_options options = {.struct_bytes = sizeof(options), .path = paths[p]};
        const struct iovec iov = {.iov_base = sparse, .iov_len = whole};
        struct memory local;
        struct memory window = {.length_bytes = 8192, .count = 1};
        char *arena = malloc(memory_arena_bytes(8192));
        struct outcome outcome;
        struct lent lent;

        world_open(2, &options);
        if (world_has_path(paths[p], false)) {
            window.iov[0] = (struct iovec){.iov_base = sparse + at, .iov_len = 8192};
            memory_cut(&local, arena, 8192, 1, SPLIT_MANY);
            memory_fill(&window, 5, 0, 8192, 0);
            lend(&lent, &iov, 1, LNET_ACCESS_READ | LNET_ACCESS_WRITE);
            struct bulk_request request = request_of(&lent, BULK_PULL, &local, at, 8192, &outcome);

            assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), 0);
            outcome_wait(&outcome, 100000);
            assert_int_equal(outcome.result.status, 0);
            memory_check(&local, 5, 0, 8192, 0);
            memory_fill(&local, 6, 0, 8192, 0);
            request = request_of(&lent, BULK_PUSH, &local, at, 8192, &outcome);
            assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), 0);
            outcome_wait(&outcome, 100000);
            assert_int_equal(outcome.result.status, 0);
            memory_check(&window, 6, 0, 8192, 0);
            memory_check_guards(&local);
            request = request_of(&lent, BULK_PULL, &local, whole - 10, 11, &outcome);
            assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), -ERANGE);
            unlend(&lent);
        }
        world_close();
        free(arena);
    }
    (void)munmap(sparse, whole);
    (void)close(fd);
}

static void
many_transfers_at_once_all_end_right(void **state)
{
    for (uint32_t p = 0; p < BASE_ARRAY_LEN(paths); p++) {
        enum { COUNT = 64, LENGTH = 300000 };
        const struct bulk_options options = {.struct_bytes = sizeof(options), .path = paths[p]};
        const bool is_pool = paths[p] == BULK_PATH_MAPPED;
        static struct outcome outcomes[COUNT];
        static struct lent lents[COUNT];
        struct arenas arenas;
        const uint64_t stride = memory_arena_bytes(LENGTH);

        world_open(2, &options);
        if (!world_has_path(paths[p], is_pool)) {
            world_close();
            continue;
        }
        arenas_open(&arenas, stride * COUNT, is_pool);
        for (uint32_t i = 0; i < COUNT; i++) {
            struct memory local;
            struct memory remote;

            memory_cut(&local, arenas.arena[0] + i * stride, LENGTH, i, SPLIT_NONE);
            memory_cut(&remote, arenas.arena[1] + i * stride, LENGTH, 2 * i, SPLIT_ZERO_MIDDLE);
            memory_fill(i % 2 == 0 ? &remote : &local, 1000 + i, 0, LENGTH, 0);
            lend(&lents[i], remote.iov, remote.count, LNET_ACCESS_READ | LNET_ACCESS_WRITE);
            const struct bulk_request request = request_of(
                &lents[i], i % 2 == 0 ? BULK_PULL : BULK_PUSH, &local, 0, LENGTH, &outcomes[i]);

            assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), 0);
        }
        for (uint32_t i = 0; i < COUNT; i++) {
            struct memory local;
            struct memory remote;
            const struct iovec *iov = NULL;

            for (uint32_t turn = 0; turn < 1000000 && outcomes[i].count == 0; turn++) {
                world_poll();
            }
            assert_int_equal(outcomes[i].count, 1);
            assert_int_equal(outcomes[i].result.status, 0);
            unlend(&lents[i]);
            /* Recomputes where the lists lie without clearing them. */
            local = (struct memory){.count = 1};
            local.iov[0] = (struct iovec){arenas.arena[0] + i * stride + 4096 + i, LENGTH};
            memory_check(&local, 1000 + i, 0, LENGTH, 0);
            remote = (struct memory){.count = 2};
            remote.iov[0] = (struct iovec){arenas.arena[1] + i * stride + 4096 + 2 * i, LENGTH / 2};
            iov = &remote.iov[0];
            remote.iov[1] = (struct iovec){(char *)iov->iov_base + LENGTH / 2 + 3 * MEMORY_GUARD,
                                           LENGTH - LENGTH / 2};
            memory_check(&remote, 1000 + i, 0, LENGTH, 0);
        }
        arenas_close(&arenas);
        world_close();
    }
}

static void
handles_that_are_closed_are_refused_as_stale(void **state)
{
    for (uint32_t p = 0; p < BASE_ARRAY_LEN(paths); p++) {
        const struct bulk_options options = {.struct_bytes = sizeof(options), .path = paths[p]};
        const bool is_pool = paths[p] == BULK_PATH_MAPPED;
        struct arenas arenas;
        struct outcome outcome;
        struct memory local;
        struct lent old;
        struct lent new;

        world_open(2, &options);
        if (world_has_path(paths[p], is_pool)) {
            struct bulk_stats stats;

            arenas_open(&arenas, 10000, is_pool);
            memory_cut(&local, arenas.arena[0], 10000, 0, SPLIT_NONE);
            const struct iovec iov = {.iov_base = arenas.arena[1], .iov_len = 10000};

            lend(&old, &iov, 1, LNET_ACCESS_READ | LNET_ACCESS_WRITE);
            unlend(&old);
            lend(&new, &iov, 1, LNET_ACCESS_READ | LNET_ACCESS_WRITE); /* takes the same slots */
            for (uint32_t op = BULK_PULL; op <= BULK_PUSH; op++) {
                const struct bulk_request request =
                    request_of(&old, (enum bulk_op)op, &local, 0, 10000, &outcome);

                memory_fill(&local, 9, 0, 10000, 0);
                assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), 0);
                outcome_wait(&outcome, 100000);
                assert_int_equal(outcome.result.status, -ESTALE);
                memory_check(&local, 9, 0, 10000, 0);
            }
            bulk_stats_get(world[0].bulk, &stats);
            assert_true(stats.stale_count >= 2);
            unlend(&new);
            arenas_close(&arenas);
        }
        world_close();
    }
}

static void
a_handle_is_refused_for_the_wrong_access(void **state)
{
    for (uint32_t p = 0; p < BASE_ARRAY_LEN(paths); p++) {
        const struct bulk_options options = {.struct_bytes = sizeof(options), .path = paths[p]};
        const bool is_pool = paths[p] == BULK_PATH_MAPPED;
        struct arenas arenas;
        struct outcome outcome;
        struct memory local;
        struct lent lent;

        world_open(2, &options);
        if (world_has_path(paths[p], is_pool)) {
            arenas_open(&arenas, 10000, is_pool);
            memory_cut(&local, arenas.arena[0], 10000, 0, SPLIT_NONE);
            const struct iovec iov = {.iov_base = arenas.arena[1], .iov_len = 10000};

            for (uint32_t op = BULK_PULL; op <= BULK_PUSH; op++) {
                lend(&lent, &iov, 1, op == BULK_PULL ? LNET_ACCESS_WRITE : LNET_ACCESS_READ);
                const struct bulk_request request =
                    request_of(&lent, (enum bulk_op)op, &local, 0, 10000, &outcome);

                assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), 0);
                outcome_wait(&outcome, 100000);
                assert_int_equal(outcome.result.status, -EACCES);
                unlend(&lent);
            }
            arenas_close(&arenas);
        }
        world_close();
    }
}

static void
a_staged_handle_is_good_for_its_peer_alone(void **state)
{
    const struct bulk_options options = {.struct_bytes = sizeof(options),
                                         .path = BULK_PATH_STAGING};
    char memory[1000] = {0};
    char sink[1000];
    const struct iovec iov = {.iov_base = memory, .iov_len = sizeof(memory)};
    const struct iovec local = {.iov_base = sink, .iov_len = sizeof(sink)};
    struct outcome outcome = {0};
    struct lent lent;

    world_open(3, &options);
    if (world_is_one()) {
        world_close(); /* nobody is foreign */
        return;
    }
    lend(&lent, &iov, 1, LNET_ACCESS_READ); /* for node 0 */
    const struct bulk_request request = {
        .op = BULK_PULL,
        .peer = world[2].peers[1],
        .handle = lent.handle,
        .handle_bytes = lent.handle_bytes,
        .local = &local,
        .local_count = 1,
        .length_bytes = 1000,
        .done = outcome_done,
        .user = &outcome,
    };

    assert_int_equal(bulk_transfer(world[2].bulk, &request, NULL), 0);
    outcome_wait(&outcome, 100000);
    assert_int_equal(outcome.result.status, -EACCES);
    unlend(&lent);
    world_close();
}

static void
a_cancelled_transfer_ends_once_and_touches_nothing_after(void **state)
{
    for (uint32_t round = 0; round < 120; round++) {
        const enum bulk_path path = paths[round % 3];
        const enum bulk_op op = round / 3 % 2 == 0 ? BULK_PULL : BULK_PUSH;
        const struct bulk_options options = {
            .struct_bytes = sizeof(options), .path = path, .fragment_bytes = 4096};
        const bool is_pool = path == BULK_PATH_MAPPED;
        struct bulk_xfer *xfer = NULL;
        struct outcome outcome;
        struct arenas arenas;
        struct memory local;
        struct memory remote;
        struct lent lent;

        world_open(2, &options);
        if (world_has_path(path, is_pool)) {
            arenas_open(&arenas, 500000, is_pool);
            memory_cut(&local, arenas.arena[0], 500000, 0, SPLIT_NONE);
            memory_cut(&remote, arenas.arena[1], 500000, 0, SPLIT_MANY);
            memory_fill(&remote, 1, 0, 500000, 0);
            memory_fill(&local, 2, 0, 500000, 0);
            lend(&lent, remote.iov, remote.count, LNET_ACCESS_READ | LNET_ACCESS_WRITE);
            const struct bulk_request request = request_of(&lent, op, &local, 0, 500000, &outcome);

            assert_int_equal(bulk_transfer(world[0].bulk, &request, &xfer), 0);
            for (uint32_t i = 0; i < round / 2; i++) {
                if (outcome.count == 0) {
                    world_poll();
                }
            }
            if (outcome.count == 0) {
                bulk_cancel(xfer);
                assert_int_equal(outcome.count, 0);
                bulk_cancel(xfer); /* twice is once */
                outcome_wait(&outcome, 10000);
                /* All bytes may have been there before the cancel. */
                assert_true(outcome.result.status == -ECANCELED ||
                            outcome.result.moved_bytes == 500000);
            }
            /* From here on local memory is ours. */
            memory_fill(&local, 3, 0, 500000, 0);
            for (uint32_t i = 0; i < 20; i++) {
                world_poll();
            }
            memory_check(&local, 3, 0, 500000, 0);
            assert_int_equal(outcome.count, 1);
            unlend(&lent);
            arenas_close(&arenas);
        }
        world_close();
    }
}

static void
an_export_closed_during_a_transfer_ends_it_as_stale(void **state)
{
    for (uint32_t round = 0; round < 60; round++) {
        const enum bulk_path path = paths[round % 3];
        const enum bulk_op op = round / 3 % 2 == 0 ? BULK_PULL : BULK_PUSH;
        const struct bulk_options options = {
            .struct_bytes = sizeof(options), .path = path, .fragment_bytes = 4096};
        const bool is_pool = path == BULK_PATH_MAPPED;
        struct outcome outcome;
        struct arenas arenas;
        struct memory local;
        struct memory remote;
        struct lent lent;

        world_open(2, &options);
        if (world_has_path(path, is_pool)) {
            arenas_open(&arenas, 500000, is_pool);
            memory_cut(&local, arenas.arena[0], 500000, 0, SPLIT_NONE);
            memory_cut(&remote, arenas.arena[1], 500000, 0, SPLIT_NONE);
            lend(&lent, remote.iov, remote.count, LNET_ACCESS_READ | LNET_ACCESS_WRITE);
            const struct bulk_request request = request_of(&lent, op, &local, 0, 500000, &outcome);

            assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), 0);
            for (uint32_t i = 0; i < round / 6; i++) {
                world_poll();
            }
            assert_int_equal(outcome.count, 0);
            unlend(&lent);
            memory_fill(&remote, 4, 0, 500000, 0); /* the memory is its owner's again */
            outcome_wait(&outcome, 10000);
            assert_int_equal(outcome.result.status, -ESTALE);
            assert_true(outcome.result.moved_bytes < 500000);
            memory_check(&remote, 4, 0, 500000, 0);
            arenas_close(&arenas);
        }
        world_close();
    }
}

static void
memory_mapped_anew_at_the_same_address_is_never_stale(void **state)
{
    const uint64_t bytes = 3 * 4096;
    char *fixed = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char sink[3 * 4096];
    const struct iovec iov = {.iov_base = fixed + 100, .iov_len = 2 * 4096};
    struct memory local = {.count = 1, .iov = {{.iov_base = sink, .iov_len = 2 * 4096}}};
    struct memory remote = {.count = 1, .iov = {iov}};
    struct bulk_stats stats;

    world_open(2, NULL);
    for (uint64_t i = 0; i < 10000; i++) {
        struct outcome outcome;
        struct lent lent;
        const int flags = MAP_FIXED | MAP_ANONYMOUS | (i % 3 == 0 ? MAP_SHARED : MAP_PRIVATE);

        if (i % 4 != 3) {
            assert_ptr_equal(mmap(fixed, bytes, PROT_READ | PROT_WRITE, flags, -1, 0), fixed);
        } else {
            assert_int_equal(madvise(fixed, bytes, MADV_DONTNEED), 0);
        }
        memory_fill(&remote, i, 0, 2 * 4096, 0);
        lend(&lent, &iov, 1, LNET_ACCESS_READ);
        const struct bulk_request request =
            request_of(&lent, BULK_PULL, &local, 0, 2 * 4096, &outcome);

        assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), 0);
        outcome_wait(&outcome, 1000);
        assert_int_equal(outcome.result.status, 0);
        memory_check(&local, i, 0, 2 * 4096, 0);
        unlend(&lent);
        if (i % 4 != 2) {
            assert_int_equal(munmap(fixed, bytes), 0);
        }
        if (i % 4 != 2) {
            assert_ptr_equal(mmap(fixed, bytes, PROT_READ | PROT_WRITE,
                                  MAP_FIXED | MAP_ANONYMOUS | MAP_PRIVATE, -1, 0),
                             fixed);
        }
    }
    bulk_stats_get(world[1].bulk, &stats);
    assert_true(stats.cache_hit_count == 0 || stats.cache_hit_count == 9999); /* 0: no RMA here */
    world_close();
    (void)munmap(fixed, bytes);
}

static void
closing_an_engine_ends_what_is_under_way(void **state)
{
    for (uint32_t p = 0; p < BASE_ARRAY_LEN(paths); p++) {
        const struct bulk_options options = {
            .struct_bytes = sizeof(options), .path = paths[p], .fragment_bytes = 4096};
        const bool is_pool = paths[p] == BULK_PATH_MAPPED;
        struct outcome outcome;
        struct arenas arenas;
        struct memory local;
        struct lent lent;

        world_open(2, &options);
        if (world_has_path(paths[p], is_pool) && !world_is_one()) {
            arenas_open(&arenas, 500000, is_pool);
            memory_cut(&local, arenas.arena[0], 500000, 0, SPLIT_NONE);
            const struct iovec iov = {.iov_base = arenas.arena[1], .iov_len = 500000};

            lend(&lent, &iov, 1, LNET_ACCESS_READ);
            const struct bulk_request request =
                request_of(&lent, BULK_PULL, &local, 0, 500000, &outcome);

            assert_int_equal(bulk_transfer(world[0].bulk, &request, NULL), 0);
            world_poll();
            if (is_pool) {
                arenas.regions[0] = NULL;
            }
            bulk_close(world[0].bulk);
            assert_int_equal(outcome.count, 1);
            assert_int_equal(outcome.result.status, -ECANCELED);
            assert_int_equal(bulk_open(world[0].ctx, &options, &world[0].bulk), 0);
            unlend(&lent);
            if (is_pool) {
                bulk_region_free(arenas.regions[1]); /* the other went with its engine */
            } else {
                arenas_close(&arenas);
            }
        }
        world_close();
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(mapped_pool_memory_moves_right_in_every_shape),
    cmocka_unit_test(cma_moves_right_in_every_shape),
    cmocka_unit_test(staging_moves_right_in_every_shape),
    cmocka_unit_test(sixty_four_mebibytes_move_on_every_path),
    cmocka_unit_test(odd_fragments_and_small_windows_move_right),
    cmocka_unit_test(lengths_and_offsets_over_4_gib_move_right),
    cmocka_unit_test(many_transfers_at_once_all_end_right),
    cmocka_unit_test(handles_that_are_closed_are_refused_as_stale),
    cmocka_unit_test(a_handle_is_refused_for_the_wrong_access),
    cmocka_unit_test(a_staged_handle_is_good_for_its_peer_alone),
    cmocka_unit_test(a_cancelled_transfer_ends_once_and_touches_nothing_after),
    cmocka_unit_test(an_export_closed_during_a_transfer_ends_it_as_stale),
    cmocka_unit_test(memory_mapped_anew_at_the_same_address_is_never_stale),
    cmocka_unit_test(closing_an_engine_ends_what_is_under_way),
};

TEST_MAIN(cases)
