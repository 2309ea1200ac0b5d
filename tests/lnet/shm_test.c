/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two contexts over shm: every kind of message at 0, 1 and the most bytes, with and without ACK;
 * ping; the end of one of them while much is out.
 */
#include "causeway/lnet.h"

#include "tests/support/pump.h"
#include "tests/support/run_dir.h"
#include "tests/test.h"

#include <errno.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)
#define BYTES_MAX 65536u
#define PORTAL    9u

static struct pump pump;
static struct lnet *a, *b;
static struct lnet_peer *peer; /* b, as a sees it */
static char run_dir[64];
static uint8_t ours[BYTES_MAX], theirs[BYTES_MAX];
static uint32_t counts[8]; /* events of both, by type */
static uint32_t failed[8]; /* those with a status */
static uint32_t unlinked;
static uint32_t shown; /* PUTs that were right */
static struct lnet_event last[8];

static void
on_event(struct lnet *ctx, const struct lnet_event *event)
{
    counts[event->type]++;
    failed[event->type] += event->status != 0;
    unlinked += event->unlinked;
    last[event->type] = *event;
    if (event->type == LNET_EV_PUT && event->data != NULL) {
        shown += memcmp(event->data, ours, event->moved_bytes) == 0;
    }
}

static struct lnet *
open_context(const char *address, uint32_t pid)
{
    const struct lnet_options options = {.struct_bytes = sizeof(options), .pid = pid, .seed = pid};
    const struct lnet_ni_options ni = {
        .struct_bytes = sizeof(ni), .net = "shm", .address = address, .run_dir = run_dir};
    struct lnet *ctx = NULL;

    assert_int_equal(lnet_open(&options, &ctx), 0);
    assert_int_equal(lnet_ni_add(ctx, &ni, NULL), 0);
    return ctx;
}

static int
setup(void **state)
{
    struct lnet_process process;

    run_dir_make(run_dir);
    a = open_context("1", 1);
    b = open_context("1", 2); /* another reactor at the same NID */
    pump = (struct pump){.contexts = {a, b}, .now_ns = SECOND_NS};
    assert_int_equal(lnet_process_parse("2-1@shm", &process), 0);
    assert_int_equal(lnet_peer_get(a, &process, &peer), 0);
    (void)memset(counts, 0, sizeof(counts));
    (void)memset(failed, 0, sizeof(failed));
    unlinked = 0;
    shown = 0;
    for (uint32_t i = 0; i < BYTES_MAX; i++) {
        ours[i] = (uint8_t)(i * 5 + 3);
    }
    return 0;
}

static int
teardown(void **state)
{
    lnet_close(a);
    lnet_close(b);
    run_dir_remove(run_dir);
    return 0;
}

static struct lnet_md_handle
attach(uint32_t options, void *start, uint64_t length_bytes, int32_t threshold)
{
    const struct lnet_match match = {.portal = PORTAL,
                                     .from = {.nid = {LNET_NID_ANY}, .pid = LNET_PID_ANY},
                                     .ignore_bits = UINT64_MAX};
    const struct lnet_md md = {.start = start,
                               .length_bytes = length_bytes,
                               .options = options,
                               .threshold = threshold,
                               .handler = on_event};
    struct lnet_md_handle handle;

    assert_int_equal(lnet_md_attach(b, &match, &md, &handle), 0);
    return handle;
}

static struct lnet_md_handle
bind(void *start, uint32_t options, int32_t threshold)
{
    const struct lnet_md md = {.start = start,
                               .length_bytes = BYTES_MAX,
                               .options = options,
                               .threshold = threshold,
                               .handler = on_event};
    struct lnet_md_handle handle;

    assert_int_equal(lnet_md_bind(a, &md, &handle), 0);
    return handle;
}

static uint64_t
size_of(uint32_t which)
{
    struct lnet_limits limits;

    lnet_limits_get(a, &limits);
    return which == 2 ? limits.put_bytes_max : which;
}

static void
put_at_every_size_with_and_without_ack(void **state)
{
    const struct lnet_target target = {.peer = peer, .portal = PORTAL, .hdr_data = 77};

    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t has_ack = 0; has_ack < 2; has_ack++) {
            const struct lnet_md_handle md = bind(ours, 0, has_ack != 0 ? 2 : 1);

            (void)memset(counts, 0, sizeof(counts));
            (void)memset(theirs, 0, sizeof(theirs));
            unlinked = 0;
            (void)attach(LNET_MD_OP_PUT, theirs, BYTES_MAX, 1);
            assert_int_equal(
                lnet_put(a, md, 0, size_of(i), &target, has_ack != 0 ? LNET_PUT_ACK : 0), 0);
            assert_true(pump_until_count(&pump, &unlinked, 2, SECOND_NS));
            assert_int_equal(counts[LNET_EV_SEND], 1);
            assert_int_equal(counts[LNET_EV_ACK], has_ack);
            assert_int_equal(counts[LNET_EV_PUT], 1);
            assert_int_equal(last[LNET_EV_PUT].moved_bytes, size_of(i));
            assert_int_equal(last[LNET_EV_PUT].hdr_data, 77);
            assert_memory_equal(theirs, ours, size_of(i));
            assert_int_equal(theirs[size_of(i)], 0);
        }
    }
}

static void
inline_put_at_every_size(void **state)
{
    const struct lnet_target target = {.peer = peer, .portal = PORTAL};

    (void)attach(LNET_MD_OP_PUT | LNET_MD_PEEK, NULL, BYTES_MAX, -1);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(lnet_put_inline(a, &target, ours, (uint32_t)size_of(i)), 0);
        assert_true(pump_until_count(&pump, &counts[LNET_EV_PUT], i + 1, SECOND_NS));
        assert_int_equal(last[LNET_EV_PUT].moved_bytes, size_of(i));
    }
    assert_int_equal(shown, 3);
    assert_int_equal(lnet_put_inline(a, &target, ours, (uint32_t)size_of(2) + 1), -EMSGSIZE);
}

static void
get_at_every_size(void **state)
{
    const struct lnet_target target = {.peer = peer, .portal = PORTAL};

    (void)attach(LNET_MD_OP_GET | LNET_MD_MANAGE_REMOTE, ours, BYTES_MAX, -1);
    for (uint32_t i = 0; i < 3; i++) {
        const struct lnet_md_handle md = bind(theirs, 0, 1);

        (void)memset(theirs, 0, sizeof(theirs));
        unlinked = 0;
        assert_int_equal(lnet_get(a, md, 10, size_of(i), &target, pump.now_ns + SECOND_NS), 0);
        assert_true(pump_until_count(&pump, &unlinked, 1, SECOND_NS));
        assert_int_equal(last[LNET_EV_REPLY].status, 0);
        assert_int_equal(last[LNET_EV_REPLY].moved_bytes, size_of(i));
        assert_memory_equal(theirs + 10, ours, size_of(i));
        assert_int_equal(theirs[9], 0);
        assert_int_equal(theirs[10 + size_of(i)], 0);
    }
}

static uint32_t pings;
static int ping_status;

static void
on_ping(struct lnet *ctx, int status, const struct lnet_ping_reply *reply, void *user)
{
    pings++;
    ping_status = status;
    if (reply != NULL) {
        assert_int_equal(reply->pid, 2);
        assert_int_equal(reply->nid_count, 2);
    }
}

static void
ping_of_the_living_and_of_nobody(void **state)
{
    struct lnet_process process = lnet_peer_process(peer);

    pings = 0;
    assert_int_equal(lnet_ping(a, &process, pump.now_ns + SECOND_NS, on_ping, NULL), 0);
    assert_true(pump_until_count(&pump, &pings, 1, SECOND_NS));
    assert_int_equal(ping_status, 0);
    process.pid = 99;
    assert_int_equal(lnet_ping(a, &process, pump.now_ns + SECOND_NS, on_ping, NULL), 0);
    assert_true(pump_until_count(&pump, &pings, 2, 2 * SECOND_NS));
    assert_true(ping_status == -EHOSTUNREACH || ping_status == -ETIMEDOUT);
}

static void
a_flood_arrives_whole_and_in_order(void **state)
{
    const struct lnet_target target = {.peer = peer, .portal = PORTAL};
    uint32_t sent = 0;

    (void)attach(LNET_MD_OP_PUT | LNET_MD_PEEK, NULL, BYTES_MAX, -1);
    while (sent < 20000) {
        const int rc = lnet_put_inline(a, &target, ours, (sent * 37) % 3000);

        assert_true(rc == 0 || rc == -EAGAIN);
        sent += rc == 0;
        if (rc != 0) {
            (void)pump_round(&pump);
        }
    }
    assert_true(pump_until_count(&pump, &counts[LNET_EV_PUT], sent, SECOND_NS));
    pump_for(&pump, SECOND_NS);
    assert_int_equal(counts[LNET_EV_PUT], sent);
    assert_int_equal(shown, sent);

    struct lnet_peer_info info;
    uint64_t cursor = 0;

    assert_int_equal(lnet_peer_info_next(a, &cursor, &info), 0);
    assert_int_equal(info.tx_credits.available, info.tx_credits.max);
    assert_true(info.tx_credits.min < 0); /* it had to wait, and that shows */
    assert_int_equal(info.counters.put_count, sent);
}

static void
the_end_of_a_peer_ends_what_is_out(void **state)
{
    const struct lnet_target target = {.peer = peer, .portal = PORTAL};
    const struct lnet_md_handle md = bind(ours, LNET_MD_NO_SEND_EVENT, -1);

    assert_int_equal(lnet_put_inline(a, &target, ours, 1), 0);
    pump_for(&pump, SECOND_NS / 100); /* connects; nobody takes it */
    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(lnet_get(a, md, 0, 100, &target, UINT64_MAX), 0);
        assert_int_equal(lnet_put(a, md, 0, 1000, &target, LNET_PUT_ACK), 0);
    }
    pump_for(&pump, SECOND_NS / 100);
    assert_int_equal(counts[LNET_EV_ACK] + counts[LNET_EV_REPLY], 0);
    pump.contexts[1] = NULL;
    lnet_close(b);
    assert_true(pump_until_count(&pump, &failed[LNET_EV_ACK], 50, SECOND_NS));
    assert_true(pump_until_count(&pump, &failed[LNET_EV_REPLY], 50, SECOND_NS));
    assert_int_equal(last[LNET_EV_REPLY].status, -ECONNRESET);

    /* It comes back: the next message finds it. */
    b = open_context("1", 2);
    pump.contexts[1] = b;
    (void)attach(LNET_MD_OP_PUT | LNET_MD_PEEK, NULL, BYTES_MAX, -1);
    assert_int_equal(lnet_put_inline(a, &target, ours, 1), 0);
    assert_true(pump_until_count(&pump, &counts[LNET_EV_PUT], 1, SECOND_NS));
}

static uint32_t rmas;
static int rma_status;

static void
on_rma(struct lnet *ctx, int status, void *user)
{
    rmas++;
    rma_status = status;
}

static void
rma_is_counted_by_whom_makes_it(void **state)
{
    const struct lnet_target target = {.peer = peer, .portal = PORTAL};
    struct lnet_process process = {.pid = 1};
    struct lnet_peer *back = NULL;
    struct lnet_peer_info info;
    struct lnet_window window;
    struct lnet_key key;
    struct lnet_mem *mem = NULL;
    void *address = NULL;
    uint64_t cursor = 0;

    process.nid = lnet_peer_process(peer).nid;
    assert_int_equal(lnet_peer_get(b, &process, &back), 0);
    assert_int_equal(lnet_mem_alloc(b, BYTES_MAX, 0, &mem, &address), 0);
    assert_int_equal(lnet_window_open(mem, 4096, 8192, LNET_ACCESS_READ | LNET_ACCESS_WRITE, back,
                                      &window, &key),
                     0);

    const struct iovec local[2] = {{ours, 1000}, {ours + 2000, 1000}};
    struct lnet_rma rma = {.peer = peer,
                           .key = &key,
                           .remote_offset_bytes = 10,
                           .local = local,
                           .local_count = 2,
                           .is_write = true,
                           .done = on_rma};

    rmas = 0;
    assert_int_equal(lnet_rma(a, &rma), -ENOTCONN);
    assert_int_equal(lnet_put_inline(a, &target, ours, 1), 0);
    pump_for(&pump, SECOND_NS / 100);
    assert_int_equal(lnet_rma(a, &rma), 0);
    assert_int_equal(rmas, 0);
    assert_true(pump_until_count(&pump, &rmas, 1, SECOND_NS));
    assert_int_equal(rma_status, 0);
    assert_memory_equal((uint8_t *)address + 4096 + 10, ours, 1000);
    assert_memory_equal((uint8_t *)address + 4096 + 1010, ours + 2000, 1000);
    rma.is_write = false;
    assert_int_equal(lnet_rma(a, &rma), 0);
    assert_true(pump_until_count(&pump, &rmas, 2, SECOND_NS));
    rma.remote_offset_bytes = 8192 - 1999;
    assert_int_equal(lnet_rma(a, &rma), 0);
    assert_true(pump_until_count(&pump, &rmas, 3, SECOND_NS));
    assert_int_equal(rma_status, -ERANGE);
    assert_int_equal(lnet_peer_info_next(a, &cursor, &info), 0);
    assert_int_equal(info.counters.rma_write_count, 1);
    assert_int_equal(info.counters.rma_write_bytes, 2000);
    assert_int_equal(info.counters.rma_read_count, 1); /* what moved, not what was tried */
    assert_int_equal(info.counters.rma_mapped_bytes + info.counters.rma_cma_bytes, 4000);
    assert_int_equal(info.reference_count, 1);

    assert_int_equal(lnet_window_close(b, window), 0);
    assert_int_equal(lnet_window_close(b, window), -ESTALE);
    rma.remote_offset_bytes = 0;
    assert_int_equal(lnet_rma(a, &rma), 0);
    assert_true(pump_until_count(&pump, &rmas, 4, SECOND_NS));
    assert_int_equal(rma_status, -ESTALE);
    lnet_mem_release(mem);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest cases[] = {
    CASE(put_at_every_size_with_and_without_ack),
    CASE(inline_put_at_every_size),
    CASE(get_at_every_size),
    CASE(ping_of_the_living_and_of_nobody),
    CASE(a_flood_arrives_whole_and_in_order),
    CASE(the_end_of_a_peer_ends_what_is_out),
    CASE(rma_is_counted_by_whom_makes_it),
};

TEST_MAIN(cases)
