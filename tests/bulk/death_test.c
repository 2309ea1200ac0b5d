/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process that is killed in the middle of bulk, on either end.
 *
 * A child owns memory or transfers from and to the parent's, 16 times 4 MiB at once on every path,
 * and is killed at a random moment. The parent's transfers must end, each once; its exports must
 * close; and the next child is served by the same engine, which at last is as empty as it was.
 */
#include "base/clock.h"
#include "base/prng.h"
#include "causeway/bulk.h"
#include "tests/test.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define XFERS       16u
#define XFER_BYTES  (4u << 20)
#define PORTAL      20u /* of the messages that carry handles */
#define PATIENCE_NS UINT64_C(20000000000)
#define ROUNDS      16u

static char run_dir[] = "/tmp/bulk-test-XXXXXX";

struct side {
    struct lnet *ctx;
    struct bulk *bulk;
    struct lnet_peer *peer; /* the parent, as the child knows it; the child, as the parent does */
    struct bulk_region *region;
    char *memory; /* XFERS * XFER_BYTES */
    struct bulk_export *exports[XFERS];
    bool is_pool;
    uint32_t handle_count;
    uint32_t done_count;
    uint32_t ended[XFERS];
    int status[XFERS];
    bool restarts; /* a transfer that ended begins anew: there is always something under way */
    uint8_t handles[XFERS][128];
    uint32_t handle_bytes[XFERS];
};

static struct side parent;
static struct side child;

static void transfer_start(struct side *side, uint32_t index);

struct tag {
    struct side *side;
    uint32_t index;
};
static struct tag tags[2][XFERS];

static void
on_done(struct bulk *bulk, const struct bulk_result *result, void *user)
{
    const struct tag *tag = user;
    struct side *side = tag->side;

    (void)bulk;
    if (result->status == 0 && side->restarts) {
        transfer_start(side, tag->index);
        return;
    }
    side->ended[tag->index]++;
    side->status[tag->index] = result->status;
    side->done_count++;
}

static void
transfer_start(struct side *side, uint32_t index)
{
    struct tag *tag = &tags[side == &child][index];
    const struct iovec iov = {.iov_base = side->memory + (size_t)index * XFER_BYTES,
                              .iov_len = XFER_BYTES};
    const struct bulk_request request = {
        .op = index % 2 == 0 ? BULK_PULL : BULK_PUSH,
        .peer = side->peer,
        .handle = side->handles[index],
        .handle_bytes = side->handle_bytes[index],
        .local = &iov,
        .local_count = 1,
        .length_bytes = XFER_BYTES,
        .done = on_done,
        .user = tag,
    };

    *tag = (struct tag){.side = side, .index = index};
    assert_int_equal(bulk_transfer(side->bulk, &request, NULL), 0);
}

/* A handle came; with the last one all transfers begin. */
static void
on_handle(struct lnet *ctx, const struct lnet_event *event)
{
    struct side *side = event->user;
    const uint32_t index = (uint32_t)event->hdr_data;

    (void)ctx;
    if (event->type != LNET_EV_PUT || index >= XFERS || event->moved_bytes > 128) {
        return;
    }
    if (side->peer == NULL) {
        lnet_peer_hold(event->peer);
        side->peer = event->peer;
    }
    (void)memcpy(side->handles[index], event->data, event->moved_bytes);
    side->handle_bytes[index] = (uint32_t)event->moved_bytes;
    side->handle_count++;
    if (side->handle_count == XFERS) {
        for (uint32_t i = 0; i < XFERS; i++) {
            transfer_start(side, i);
        }
    }
}

static void
side_open(struct side *side, uint32_t address, enum bulk_path path)
{
    const struct lnet_options options = {.struct_bytes = sizeof(options), .seed = address};
    const struct bulk_options bulk_options = {
        .struct_bytes = sizeof(bulk_options), .path = path, .fragment_bytes = 65536};
    char text[16];
    const struct lnet_ni_options ni = {
        .struct_bytes = sizeof(ni), .net = "shm", .address = text, .run_dir = run_dir};
    const struct lnet_match match = {.portal = PORTAL,
                                     .from = {.nid = {LNET_NID_ANY}, .pid = LNET_PID_ANY},
                                     .ignore_bits = UINT64_MAX};
    const struct lnet_md md = {.length_bytes = 128,
                               .options = LNET_MD_OP_PUT | LNET_MD_PEEK,
                               .threshold = -1,
                               .handler = on_handle,
                               .user = side};
    struct lnet_md_handle md_handle;
    void *memory = NULL;

    (void)snprintf(text, sizeof(text), "%u", address);
    assert_int_equal(lnet_open(&options, &side->ctx), 0);
    assert_int_equal(lnet_ni_add(side->ctx, &ni, NULL), 0);
    assert_int_equal(bulk_open(side->ctx, &bulk_options, &side->bulk), 0);
    assert_int_equal(lnet_md_attach(side->ctx, &match, &md, &md_handle), 0);
    (void)lnet_poll(side->ctx, base_clock_now_ns(), 1); /* the time, before anything is queued */
    side->is_pool = path == BULK_PATH_MAPPED;
    if (side->is_pool) {
        assert_int_equal(
            bulk_region_alloc(side->bulk, (uint64_t)XFERS * XFER_BYTES, &side->region, &memory), 0);
        side->memory = memory;
    } else {
        side->memory = calloc(XFERS, XFER_BYTES);
    }
    assert_non_null(side->memory);
}

static void
side_poll(struct side *side)
{
    (void)lnet_poll(side->ctx, base_clock_now_ns(), 64);
}

/* Exports all memory to the peer and tells it. */
static void
side_lend(struct side *side)
{
    for (uint32_t i = 0; i < XFERS; i++) {
        const struct iovec iov = {.iov_base = side->memory + (size_t)i * XFER_BYTES,
                                  .iov_len = XFER_BYTES};
        const struct lnet_target target = {.peer = side->peer, .portal = PORTAL, .hdr_data = i};
        uint8_t handle[128];
        uint32_t bytes = 0;

        assert_int_equal(bulk_export(side->bulk, side->peer, &iov, 1,
                                     LNET_ACCESS_READ | LNET_ACCESS_WRITE, &side->exports[i]),
                         0);
        bytes = bulk_export_pack(side->exports[i], handle, sizeof(handle));
        assert_true(bytes > 0);
        while (lnet_put_inline(side->ctx, &target, handle, bytes) == -EAGAIN) {
            side_poll(side);
        }
    }
}

static void
peer_find(struct side *side, const char *nid)
{
    struct lnet_process process = {.pid = 0};

    assert_int_equal(lnet_nid_parse(nid, &process.nid), 0);
    assert_int_equal(lnet_peer_get(side->ctx, &process, &side->peer), 0);
}

/* The child: owns (and lends) or transfers, until it is killed. Writes to @fd when it is ready. */
static _Noreturn void
child_run(enum bulk_path path, bool is_owner, int fd)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when the parent fails */
    side_open(&child, 2, path);
    child.restarts = true;
    if (is_owner) {
        peer_find(&child, "1@shm");
        side_lend(&child);
    }
    (void)send(fd, "", 1, 0);
    for (;;) {
        side_poll(&child);
    }
}

static void
parent_reset(void)
{
    if (parent.peer != NULL) {
        lnet_peer_put(parent.peer);
        parent.peer = NULL;
    }
    parent.handle_count = 0;
    parent.done_count = 0;
    (void)memset(parent.ended, 0, sizeof(parent.ended));
}

static void
count_closed(struct bulk *bulk, void *user)
{
    (void)bulk;
    (*(uint32_t *)user)++;
}

/* One child's life and death. */
static void
round_run(enum bulk_path path, bool child_is_owner, uint64_t life_ns)
{
    int fds[2];
    char byte = 0;
    pid_t pid = 0;
    uint32_t closing = 0;
    uint32_t closed = 0;

    parent_reset();
    parent.restarts = true;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)close(fds[0]);
        child_run(path, child_is_owner, fds[1]);
    }
    (void)close(fds[1]);
    uint64_t end_ns = base_clock_now_ns() + PATIENCE_NS;

    while (recv(fds[0], &byte, 1, MSG_DONTWAIT) != 1) {
        assert_true(base_clock_now_ns() < end_ns);
        side_poll(&parent);
    }
    if (!child_is_owner) {
        peer_find(&parent, "2@shm");
        side_lend(&parent);
    } else {
        while (parent.handle_count < XFERS) {
            assert_true(base_clock_now_ns() < end_ns);
            side_poll(&parent);
        }
    }
    for (end_ns = base_clock_now_ns() + life_ns; base_clock_now_ns() < end_ns;) {
        side_poll(&parent);
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(fds[0]);

    end_ns = base_clock_now_ns() + PATIENCE_NS;
    while (child_is_owner && parent.done_count < XFERS) {
        assert_true(base_clock_now_ns() < end_ns);
        side_poll(&parent);
    }
    for (uint32_t i = 0; i < XFERS && child_is_owner; i++) {
        assert_int_equal(parent.ended[i], 1);
        if (parent.status[i] != -ECONNRESET) {
            fail_msg("transfer %u ended with %s", i, lnet_error_name(parent.status[i]));
        }
    }
    for (uint32_t i = 0; i < XFERS && !child_is_owner; i++) {
        closing += bulk_export_close(parent.exports[i], count_closed, &closed) == -EINPROGRESS;
    }
    while (closed < closing) {
        assert_true(base_clock_now_ns() < end_ns);
        side_poll(&parent);
    }
    for (uint32_t i = 0; i < 100; i++) {
        side_poll(&parent); /* nothing comes a second time */
    }
    assert_int_equal(parent.done_count, child_is_owner ? XFERS : 0);
}

static void
run(enum bulk_path path)
{
    struct base_prng prng;
    struct bulk_stats stats;

    base_prng_seed(&prng, (uint64_t)path);
    parent = (struct side){0};
    (void)snprintf(run_dir, sizeof(run_dir), "/tmp/bulk-test-XXXXXX");
    assert_non_null(mkdtemp(run_dir));
    side_open(&parent, 1, path);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        round_run(path, i % 2 == 0, base_prng_below(&prng, 20000000));
    }
    parent_reset();
    bulk_stats_get(parent.bulk, &stats);
    assert_int_equal(stats.export_count, 0);
    assert_int_equal(stats.xfer_active_count, 0);
    if (parent.is_pool) {
        bulk_region_free(parent.region);
    } else {
        free(parent.memory);
    }
    bulk_close(parent.bulk);
    lnet_close(parent.ctx);
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int
teardown(void **state)
{
    return nftw(run_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void
a_killed_peer_ends_mapped_transfers_once(void **state)
{
    run(BULK_PATH_MAPPED);
}

static void
a_killed_peer_ends_cma_transfers_once(void **state)
{
    run(BULK_PATH_CMA);
}

static void
a_killed_peer_ends_staged_transfers_once(void **state)
{
    run(BULK_PATH_STAGING);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test_teardown(a_killed_peer_ends_mapped_transfers_once, teardown),
    cmocka_unit_test_teardown(a_killed_peer_ends_cma_transfers_once, teardown),
    cmocka_unit_test_teardown(a_killed_peer_ends_staged_transfers_once, teardown),
};

TEST_MAIN(cases)
