/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The whole core end to end over lo: a context that talks to itself by PUT, GET, ping and RMA.
 */
#include "causeway/lnet.h"

#include "tests/support/pump.h"
#include "tests/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS  UINT64_C(1000000000)
#define PORTAL     7u
#define EVENTS_MAX 64u
#define BYTES_MAX  65536u

/* What the handlers saw. */
struct seen {
    uint32_t count;
    uint32_t by_type[8];
    struct lnet_event events[EVENTS_MAX];
};

static struct pump pump;
static struct lnet *ctx;
static struct lnet_peer *self;
static struct seen target_seen, source_seen;
static uint8_t source_bytes[BYTES_MAX], target_bytes[BYTES_MAX];
static uint8_t peeked[BYTES_MAX];

static void
on_event(struct lnet *context, const struct lnet_event *event)
{
    struct seen *seen = event->user;

    assert_ptr_equal(context, ctx);
    assert_true(seen->count < EVENTS_MAX);
    seen->events[seen->count++] = *event;
    seen->by_type[event->type]++;
    if (event->type == LNET_EV_PUT && event->data != NULL && seen == &target_seen) {
        (void)memcpy(peeked, event->data, event->moved_bytes);
    }
}

static int
setup(void **state)
{
    const struct lnet_options options = {.struct_bytes = sizeof(options), .pid = 5, .seed = 1};
    struct lnet_process process = {.pid = 5};

    ctx = NULL;
    (void)memset(&target_seen, 0, sizeof(target_seen));
    (void)memset(&source_seen, 0, sizeof(source_seen));
    (void)memset(target_bytes, 0, sizeof(target_bytes));
    for (uint32_t i = 0; i < BYTES_MAX; i++) {
        source_bytes[i] = (uint8_t)(i * 7 + 1);
    }
    assert_int_equal(lnet_open(&options, &ctx), 0);
    pump = (struct pump){.contexts = {ctx}, .now_ns = SECOND_NS};
    assert_int_equal(lnet_nid_parse("0@lo", &process.nid), 0);
    assert_int_equal(lnet_peer_get(ctx, &process, &self), 0);
    return 0;
}

static int
teardown(void **state)
{
    lnet_close(ctx);
    return 0;
}

static struct lnet_md_handle
attach(uint32_t options, uint64_t length_bytes, int32_t threshold)
{
    const struct lnet_match match = {
        .portal = PORTAL,
        .from = {.nid = {LNET_NID_ANY}, .pid = LNET_PID_ANY},
        .ignore_bits = UINT64_MAX,
    };
    const struct lnet_md md = {
        .start = target_bytes,
        .length_bytes = length_bytes,
        .options = options,
        .threshold = threshold,
        .handler = on_event,
        .user = &target_seen,
    };
    struct lnet_md_handle handle;

    assert_int_equal(lnet_md_attach(ctx, &match, &md, &handle), 0);
    return handle;
}

static struct lnet_md_handle
bind(uint64_t length_bytes, int32_t threshold)
{
    const struct lnet_md md = {
        .start = source_bytes,
        .length_bytes = length_bytes,
        .threshold = threshold,
        .handler = on_event,
        .user = &source_seen,
    };
    struct lnet_md_handle handle;

    assert_int_equal(lnet_md_bind(ctx, &md, &handle), 0);
    return handle;
}

static struct lnet_target
target(void)
{
    return (struct lnet_target){
        .peer = self, .portal = PORTAL, .match_bits = 0x1234, .hdr_data = 0x5678};
}

static void
an_inline_put_is_shown_where_it_lies(void **state)
{
    const struct lnet_target to = target();

    (void)attach(LNET_MD_OP_PUT | LNET_MD_PEEK, 4096, -1);
    assert_int_equal(lnet_put_inline(ctx, &to, "hello", 6), 0);
    assert_int_equal(target_seen.count, 0); /* never inside the call */
    assert_true(pump_until_count(&pump, &target_seen.count, 1, SECOND_NS));

    const struct lnet_event *event = &target_seen.events[0];

    assert_int_equal(event->type, LNET_EV_PUT);
    assert_int_equal(event->status, 0);
    assert_int_equal(event->portal, PORTAL);
    assert_int_equal(event->match_bits, 0x1234);
    assert_int_equal(event->hdr_data, 0x5678);
    assert_int_equal(event->moved_bytes, 6);
    assert_ptr_equal(event->peer, self);
    assert_false(event->unlinked);
    assert_string_equal((const char *)peeked, "hello");
}

static void
put_at_every_size_with_and_without_ack(void **state)
{
    struct lnet_limits limits;

    lnet_limits_get(ctx, &limits);
    assert_int_equal(limits.put_bytes_max, BYTES_MAX);

    const uint64_t sizes[] = {0, 1, limits.put_bytes_max};

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(sizes); i++) {
        for (uint32_t has_ack = 0; has_ack < 2; has_ack++) {
            const struct lnet_target to = target();
            const uint64_t bytes = sizes[i];

            (void)memset(&target_seen, 0, sizeof(target_seen));
            (void)memset(&source_seen, 0, sizeof(source_seen));
            (void)memset(target_bytes, 0, sizeof(target_bytes));
            (void)attach(LNET_MD_OP_PUT, BYTES_MAX, 1);

            const struct lnet_md_handle md = bind(BYTES_MAX, has_ack ? 2 : 1);

            assert_int_equal(lnet_put(ctx, md, 0, bytes, &to, has_ack ? LNET_PUT_ACK : 0), 0);
            assert_true(pump_until_count(&pump, &source_seen.count, 1 + has_ack, SECOND_NS));
            assert_true(pump_until_count(&pump, &target_seen.count, 1, SECOND_NS));
            pump_for(&pump, 1000000);
            assert_int_equal(source_seen.count, 1 + has_ack);
            assert_int_equal(source_seen.events[0].type, LNET_EV_SEND);
            assert_int_equal(source_seen.events[0].unlinked, !has_ack);
            if (has_ack) {
                assert_int_equal(source_seen.events[1].type, LNET_EV_ACK);
                assert_int_equal(source_seen.events[1].status, 0);
                assert_int_equal(source_seen.events[1].moved_bytes, bytes);
                assert_int_equal(source_seen.events[1].hdr_data, 0x5678);
                assert_true(source_seen.events[1].unlinked);
            }
            assert_int_equal(target_seen.events[0].moved_bytes, bytes);
            assert_true(target_seen.events[0].unlinked);
            assert_memory_equal(target_bytes, source_bytes, bytes);
            assert_int_equal(lnet_md_unlink(ctx, md), -ESTALE);
        }
    }
}

static void
get_at_every_size(void **state)
{
    const uint64_t sizes[] = {0, 1, BYTES_MAX};

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(sizes); i++) {
        struct lnet_target from = target();
        const uint64_t bytes = sizes[i];
        const struct lnet_md_handle md = bind(BYTES_MAX, 1);
        const struct lnet_md_handle remote =
            attach(LNET_MD_OP_GET | LNET_MD_MANAGE_REMOTE, BYTES_MAX, -1);

        (void)memset(&source_seen, 0, sizeof(source_seen));
        (void)memset(&target_seen, 0, sizeof(target_seen));
        (void)memset(source_bytes, 0, sizeof(source_bytes));
        for (uint32_t j = 0; j < BYTES_MAX; j++) {
            target_bytes[j] = (uint8_t)(j * 3 + 5);
        }
        assert_int_equal(lnet_get(ctx, md, 0, bytes, &from, pump.now_ns + SECOND_NS), 0);
        assert_true(pump_until_count(&pump, &source_seen.count, 1, SECOND_NS));
        assert_int_equal(source_seen.events[0].type, LNET_EV_REPLY);
        assert_int_equal(source_seen.events[0].status, 0);
        assert_int_equal(source_seen.events[0].moved_bytes, bytes);
        assert_true(source_seen.events[0].unlinked);
        assert_int_equal(target_seen.by_type[LNET_EV_GET], 1);
        assert_memory_equal(source_bytes, target_bytes, bytes);

        assert_int_equal(lnet_md_unlink(ctx, remote), 0);
        assert_true(pump_until_count(&pump, &target_seen.by_type[LNET_EV_UNLINK], 1, SECOND_NS));
    }
}

static void
what_nobody_takes_is_dropped_and_counted(void **state)
{
    const struct lnet_target to = target();
    struct lnet_ni_info info;

    assert_int_equal(lnet_put_inline(ctx, &to, "hello", 6), 0);
    pump_for(&pump, 1000000);
    assert_int_equal(lnet_ni_info_get(ctx, 0, &info), 0);
    assert_int_equal(info.counters.drop_count, 1);
    assert_int_equal(info.counters.drop_bytes, 6);
    assert_int_equal(info.counters.put_recv_count, 1);
}

static void
a_get_that_nobody_answers_times_out(void **state)
{
    const struct lnet_target from = target();
    const struct lnet_md_handle md = bind(100, 1);

    assert_int_equal(lnet_get(ctx, md, 0, 100, &from, pump.now_ns + SECOND_NS), 0);
    pump_for(&pump, SECOND_NS / 2);
    assert_int_equal(source_seen.count, 0);
    assert_true(pump_until_count(&pump, &source_seen.count, 1, SECOND_NS));
    assert_int_equal(source_seen.events[0].status, -ETIMEDOUT);
    assert_true(source_seen.events[0].unlinked);
}

static uint32_t ping_count;
static int ping_status;
static struct lnet_ping_reply ping_reply;

static void
on_ping(struct lnet *context, int status, const struct lnet_ping_reply *reply, void *user)
{
    ping_count++;
    ping_status = status;
    if (reply != NULL) {
        ping_reply = *reply;
    }
}

static void
ping_says_who_we_are(void **state)
{
    const struct lnet_process process = lnet_peer_process(self);

    ping_count = 0;
    assert_int_equal(lnet_ping(ctx, &process, pump.now_ns + SECOND_NS, on_ping, NULL), 0);
    assert_true(pump_until_count(&pump, &ping_count, 1, SECOND_NS));
    assert_int_equal(ping_status, 0);
    assert_int_equal(ping_reply.pid, 5);
    assert_int_equal(ping_reply.nid_count, 1);
    assert_true(ping_reply.nids[0].value == process.nid.value);
}

static uint32_t rma_count;
static int rma_status;

static void
on_rma(struct lnet *context, int status, void *user)
{
    rma_count++;
    rma_status = status;
}

static int
rma(const struct lnet_key *key, uint64_t offset_bytes, void *local, uint64_t bytes, bool is_write)
{
    const struct iovec iov = {.iov_base = local, .iov_len = bytes};
    const struct lnet_rma args = {
        .peer = self,
        .key = key,
        .remote_offset_bytes = offset_bytes,
        .local = &iov,
        .local_count = 1,
        .is_write = is_write,
        .done = on_rma,
    };

    rma_count = 0;

    const int rc = lnet_rma(ctx, &args);

    if (rc != 0) {
        return rc;
    }
    assert_int_equal(rma_count, 0);
    assert_true(pump_until_count(&pump, &rma_count, 1, SECOND_NS));
    return rma_status;
}

static void
rma_stays_inside_its_window(void **state)
{
    const struct lnet_target to = target();
    struct lnet_mem *mem;
    struct lnet_window window;
    struct lnet_key key;
    void *address;

    assert_int_equal(lnet_put_inline(ctx, &to, "", 0), 0); /* connects */
    pump_for(&pump, 1000000);
    assert_int_equal(lnet_mem_alloc(ctx, 8192, 0, &mem, &address), 0);
    assert_int_equal(lnet_mem_page_bytes(mem), 4096);
    assert_int_equal(lnet_window_open(mem, 100, 1000, LNET_ACCESS_READ, self, &window, &key), 0);
    (void)memset(address, 'x', 8192);
    assert_int_equal(rma(&key, 0, target_bytes, 1000, false), 0);
    assert_int_equal(target_bytes[999], 'x');
    assert_int_equal(target_bytes[1000], 0);
    assert_int_equal(rma(&key, 1000, target_bytes, 0, false), 0);
    assert_int_equal(rma(&key, 1, target_bytes, 1000, false), -ERANGE);
    assert_int_equal(rma(&key, UINT64_MAX, target_bytes, 2, false), -ERANGE);
    assert_int_equal(rma(&key, 0, target_bytes, 1, true), -EACCES);
    assert_int_equal(lnet_window_close(ctx, window), 0);
    assert_int_equal(lnet_window_close(ctx, window), -ESTALE);
    assert_int_equal(rma(&key, 0, target_bytes, 1000, false), -ESTALE);
    (void)memset(&key, 0xff, sizeof(key));
    assert_int_equal(rma(&key, 0, target_bytes, 1000, false), -ESTALE);
    assert_int_equal(lnet_window_open(mem, 0, 8192, LNET_ACCESS_WRITE, self, &window, &key), 0);
    assert_int_equal(rma(&key, 8191, source_bytes, 1, true), 0);
    assert_int_equal(((uint8_t *)address)[8191], source_bytes[0]);
    assert_int_equal(lnet_window_close(ctx, window), 0);
    lnet_mem_release(mem);
}

static void
a_full_ring_refuses_and_takes_again_in_order(void **state)
{
    const struct lnet_target to = target();
    const uint32_t count = 40; /* times 60,000 bytes: far more than the ring */

    (void)attach(LNET_MD_OP_PUT | LNET_MD_PEEK, BYTES_MAX, -1);
    for (uint32_t i = 0; i < count; i++) {
        source_bytes[0] = (uint8_t)i;
        assert_int_equal(lnet_put_inline(ctx, &to, source_bytes, 60000), 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        assert_true(pump_until_count(&pump, &target_seen.count, i + 1, SECOND_NS));
        pump.budget = 1;
    }
    pump_for(&pump, 1000000);
    assert_int_equal(target_seen.count, count);
    assert_int_equal(peeked[0], count - 1);
}

static void
close_ends_everything_that_is_out(void **state)
{
    const struct lnet_target from = target();
    const struct lnet_md_handle md = bind(100, 1);

    (void)attach(LNET_MD_OP_PUT, 100, 1);
    assert_int_equal(lnet_get(ctx, md, 0, 100, &from, UINT64_MAX), 0);
    lnet_close(ctx);
    assert_int_equal(source_seen.count, 1);
    assert_int_equal(source_seen.events[0].type, LNET_EV_REPLY);
    assert_int_equal(source_seen.events[0].status, -ECANCELED);
    assert_true(source_seen.events[0].unlinked);
    assert_int_equal(target_seen.count, 1);
    assert_int_equal(target_seen.events[0].type, LNET_EV_UNLINK);
    ctx = NULL;
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test_setup_teardown(an_inline_put_is_shown_where_it_lies, setup, teardown),
    cmocka_unit_test_setup_teardown(put_at_every_size_with_and_without_ack, setup, teardown),
    cmocka_unit_test_setup_teardown(get_at_every_size, setup, teardown),
    cmocka_unit_test_setup_teardown(what_nobody_takes_is_dropped_and_counted, setup, teardown),
    cmocka_unit_test_setup_teardown(a_get_that_nobody_answers_times_out, setup, teardown),
    cmocka_unit_test_setup_teardown(ping_says_who_we_are, setup, teardown),
    cmocka_unit_test_setup_teardown(rma_stays_inside_its_window, setup, teardown),
    cmocka_unit_test_setup_teardown(a_full_ring_refuses_and_takes_again_in_order, setup, teardown),
    cmocka_unit_test_setup_teardown(close_ends_everything_that_is_out, setup, teardown),
};

TEST_MAIN(cases)
