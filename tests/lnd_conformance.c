/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rules of lnet/lnd/lnd.h, R1 to R8: one case per rule, run against every driver of the build.
 *
 * Two interfaces of a driver (one, for a driver that only reaches itself) are driven through the
 * ops table as LNet does it. Every upcall is written down and checked against the rules that hold
 * always: from poll() only, in the one thread, never from within a downcall.
 */
#include "lnet/lnd/lnd.h"

#include "tests/support/run_dir.h"
#include "tests/test.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_NS   UINT64_C(1000000000)
#define RECEIVED_MAX 65536u
#define SIZE_ODD     777u

struct received {
    uint32_t length_bytes;
    uint64_t hdr_data;
    uint64_t sum; /* of the payload */
};

/* One interface as LNet sees it. */
struct end {
    const struct lnet_lnd_ops *ops;
    struct lnet_lnd_ni *ni;
    struct lnet_lnd_conn *conn; /* up */
    uint32_t up_count, accepted_count, down_count, writable_count, sent_count;
    int down_reason;
    int recv_answer; /* what recv() returns */
    struct received received[RECEIVED_MAX];
    uint32_t received_count;
    bool is_polling;
};

static struct end ends[2];
static uint32_t end_count;
static uint64_t now_ns;
static pthread_t thread;
static bool is_in_downcall;
static char run_dir[64];
static uint8_t buffer[1u << 20];

static struct end *
end_of(struct lnet_ni *owner)
{
    struct end *end = (struct end *)(void *)owner;

    assert_true(pthread_equal(pthread_self(), thread)); /* R1 */
    assert_true(end->is_polling);                       /* R3 */
    assert_false(is_in_downcall);                       /* R3 */
    return end;
}

static uint64_t
sum_of(const uint8_t *bytes, uint32_t length_bytes)
{
    uint64_t sum = length_bytes;

    for (uint32_t i = 0; i < length_bytes; i++) {
        sum = sum * 31 + bytes[i];
    }
    return sum;
}

static int
on_accepted(struct lnet_ni *owner, struct lnet_lnd_conn *conn)
{
    struct end *end = end_of(owner);

    assert_null(conn->owner);
    conn->owner = end;
    end->conn = conn;
    end->accepted_count++;
    return 0;
}

static void
on_conn_up(struct lnet_ni *owner, struct lnet_lnd_conn *conn)
{
    struct end *end = end_of(owner);

    assert_ptr_equal(conn->owner, end);
    end->conn = conn;
    end->up_count++;
}

static void
on_conn_down(struct lnet_ni *owner, struct lnet_lnd_conn *conn, int reason)
{
    struct end *end = end_of(owner);

    assert_true(reason < 0);
    end->down_count++;
    end->down_reason = reason;
    end->conn = NULL;
    end->ops->conn_close(conn);
}

static int
on_recv(struct lnet_ni *owner, struct lnet_lnd_conn *conn, const struct lnet_hdr *hdr,
        const void *payload)
{
    struct end *end = end_of(owner);

    assert_ptr_equal(conn->owner, end);
    assert_int_equal(end->down_count, 0); /* R8: nothing after the end */
    assert_true(hdr->type <= LNET_MSG_REPLY);
    assert_true(hdr->portal < LNET_PORTALS);
    assert_true(end->received_count < RECEIVED_MAX);
    end->received[end->received_count++] =
        (struct received){.length_bytes = hdr->length_bytes,
                          .hdr_data = hdr->hdr_data,
                          .sum = sum_of(payload, hdr->length_bytes)};
    return end->recv_answer;
}

static void
on_sent(struct lnet_ni *owner, struct lnet_lnd_conn *conn, uint32_t count)
{
    struct end *end = end_of(owner);

    assert_ptr_equal(conn->owner, end);
    assert_int_equal(end->ops->caps & LNET_LND_CAP_SENT, 0); /* R4 */
    end->sent_count += count;
}

static void
on_writable(struct lnet_ni *owner, struct lnet_lnd_conn *conn)
{
    struct end *end = end_of(owner);

    assert_ptr_equal(conn->owner, end);
    end->writable_count++;
}

static const struct lnet_lnd_events events = {
    .accepted = on_accepted,
    .conn_up = on_conn_up,
    .conn_down = on_conn_down,
    .recv = on_recv,
    .sent = on_sent,
    .writable = on_writable,
};

static void
on_log(void *arg, int level, const char *text)
{
}

static void
end_open(struct end *end, const struct lnet_lnd_ops *ops, const char *address)
{
    const struct lnet_ni_options options = {.struct_bytes = sizeof(options),
                                            .net = ops->name,
                                            .address = address,
                                            .credits = 256,
                                            .peer_credits = 64,
                                            .run_dir = run_dir};
    const struct lnet_lnd_config config = {.options = &options,
                                           .incarnation = (uint64_t)address[0],
                                           .connect_timeout_ns = TIMEOUT_NS,
                                           .log = on_log};

    (void)memset(end, 0, sizeof(*end));
    end->ops = ops;
    assert_int_equal(ops->ni_open(&config, (struct lnet_ni *)(void *)end, &events, &end->ni), 0);
    assert_ptr_equal(end->ni->owner, end);
    assert_ptr_equal(end->ni->ops, ops);
    assert_int_equal(end->ni->nid.value >> 48, ops->type);
}

static void
end_close(struct end *end)
{
    if (end->ni == NULL) {
        return;
    }
    if (end->conn != NULL) {
        end->ops->conn_close(end->conn);
        end->conn = NULL;
    }
    end->is_polling = true; /* ni_close() may call up */
    end->ops->ni_close(end->ni);
    end->is_polling = false;
    end->ni = NULL;
}

static uint32_t
end_poll(struct end *end, uint32_t budget)
{
    uint32_t count = 0;

    if (end->ni != NULL) {
        end->is_polling = true;
        count = end->ops->poll(end->ni, now_ns, budget);
        end->is_polling = false;
        assert_true(count <= budget);
    }
    return count;
}

static void
rounds(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < end_count; j++) {
            (void)end_poll(&ends[j], 64);
        }
        now_ns += 1000;
    }
}

/* Where ends[0] sends to: ends[1], or itself. */
static struct end *
far_end(void)
{
    return &ends[end_count - 1];
}

static int
conn_open(uint32_t pid, uint64_t nid_value, struct lnet_lnd_conn **conn_out)
{
    const struct lnet_process process = {.nid = {nid_value}, .pid = pid};

    is_in_downcall = true;
    const int rc = ends[0].ops->conn_open(ends[0].ni, &process, &ends[0], conn_out);
    is_in_downcall = false;
    return rc;
}

static void
connect_ends(void)
{
    struct lnet_lnd_conn *conn = NULL;

    assert_int_equal(conn_open(0, far_end()->ni->nid.value, &conn), 0);
    assert_int_equal(ends[0].up_count, 0);
    for (uint32_t i = 0; i < 10000 && (ends[0].conn == NULL || far_end()->conn == NULL); i++) {
        rounds(1);
    }
    assert_ptr_equal(ends[0].conn, conn);
    assert_non_null(far_end()->conn);
    assert_int_equal(ends[0].up_count, 1);
}

static int
send_bytes(uint32_t length_bytes, uint64_t hdr_data)
{
    const struct lnet_hdr hdr = {
        .type = LNET_MSG_PUT, .portal = 5, .length_bytes = length_bytes, .hdr_data = hdr_data};
    const uint32_t cut = length_bytes / 3;
    const struct iovec iov[3] = {
        {buffer, cut}, {NULL, 0}, {buffer + cut, (size_t)length_bytes - cut}};

    is_in_downcall = true;
    const int rc = ends[0].ops->send(ends[0].conn, &hdr, iov, 3);
    is_in_downcall = false;
    return rc;
}

static void
fill(uint32_t length_bytes, uint8_t seed)
{
    for (uint32_t i = 0; i < length_bytes; i++) {
        buffer[i] = (uint8_t)(seed + i * 7);
    }
}

/* ---- the cases ------------------------------------------------------------------------------ */

static void
r1_everything_happens_in_the_thread_that_polls(void **state)
{
    connect_ends(); /* each upcall checks it */
    assert_int_equal(send_bytes(8, 1), 0);
    rounds(10);
    assert_int_equal(far_end()->received_count, 1);
}

static void
r2_the_data_path_keeps_no_memory(void **state)
{
    connect_ends();
    fill(64, 1);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(send_bytes(64, i), 0);
        rounds(2);
    }
    const size_t before = mallinfo2().uordblks;

    for (uint32_t i = 0; i < 10000; i++) {
        assert_int_equal(send_bytes(64, i), 0);
        rounds(2);
    }
    assert_int_equal(mallinfo2().uordblks, before);
    assert_int_equal(far_end()->received_count, 10100);
}

static void
r3_a_message_is_never_delivered_inside_the_send(void **state)
{
    connect_ends();
    assert_int_equal(send_bytes(8, 1), 0);
    assert_int_equal(far_end()->received_count, 0);
    (void)end_poll(&ends[0], 64);
    (void)end_poll(far_end(), 64);
    rounds(2);
    assert_int_equal(far_end()->received_count, 1);
}

static void
r4_the_senders_memory_is_free_at_once(void **state)
{
    const uint32_t eager_bytes_max = ends[0].ops->eager_bytes_max;
    const uint32_t sizes[] = {
        0, 1, 8, 63, 64, 65, SIZE_ODD, 4096, eager_bytes_max - 1, eager_bytes_max};
    uint32_t accepted = 0;

    assert_true(eager_bytes_max >= 4096);
    assert_true(eager_bytes_max <= sizeof(buffer));
    connect_ends();
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(sizes); i++) {
        fill(sizes[i], (uint8_t)(i + 1));

        const uint64_t sum = sum_of(buffer, sizes[i]);

        assert_int_equal(send_bytes(sizes[i], i), 0);
        accepted++;
        (void)memset(buffer, 0xee, sizes[i]);
        rounds(10);
        assert_int_equal(far_end()->received_count, i + 1);
        assert_int_equal(far_end()->received[i].length_bytes, sizes[i]);
        assert_int_equal(far_end()->received[i].hdr_data, i);
        assert_true(far_end()->received[i].sum == sum);
    }
    if ((ends[0].ops->caps & LNET_LND_CAP_SENT) == 0) {
        assert_int_equal(ends[0].sent_count, accepted);
    }
}

static void
r5_a_refusal_leaves_no_trace_and_one_writable_follows(void **state)
{
    const uint32_t sizes[] = {0, 8, SIZE_ODD, 4096, ends[0].ops->eager_bytes_max};

    connect_ends();
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(sizes); i++) {
        uint64_t accepted = 0;

        far_end()->received_count = 0;
        ends[0].writable_count = 0;
        fill(sizes[i], 3);
        while (accepted < RECEIVED_MAX) {
            const int rc = send_bytes(sizes[i], accepted);

            if (rc != 0) {
                assert_int_equal(rc, -EAGAIN);
                break;
            }
            accepted++;
        }
        assert_in_range(accepted, 2, RECEIVED_MAX - 1); /* it is bounded */
        assert_int_equal(send_bytes(sizes[i], 12345), -EAGAIN);
        assert_int_equal(ends[0].writable_count, 0);
        for (uint32_t j = 0; j < 10000 && far_end()->received_count < accepted; j++) {
            rounds(1);
        }
        rounds(10);
        assert_int_equal(far_end()->received_count, accepted);
        for (uint32_t j = 0; j < accepted; j++) {
            assert_int_equal(far_end()->received[j].hdr_data, j);
        }
        assert_int_equal(ends[0].writable_count, 1);
        assert_int_equal(send_bytes(sizes[i], accepted), 0);
        rounds(10);
        assert_int_equal(far_end()->received_count, accepted + 1);
        assert_int_equal(ends[0].writable_count, 1);
    }
}

static void
r6_what_lnet_refuses_closes_the_connection(void **state)
{
    connect_ends();
    assert_int_equal(send_bytes(8, 1), 0);
    assert_int_equal(send_bytes(8, 2), 0);
    far_end()->recv_answer = -EPROTO;
    rounds(1000);
    assert_int_equal(far_end()->received_count, 1); /* not a message more */
    assert_int_equal(far_end()->down_count, 1);
    assert_int_equal(far_end()->down_reason, -EPROTO);
    if (far_end() != &ends[0]) {
        assert_int_equal(ends[0].down_count, 1);
    }
}

static void
r7_only_the_time_of_poll_counts(void **state)
{
    struct lnet_lnd_conn *conn = NULL;

    if (end_count == 1) {
        return; /* a driver that reaches only itself waits for nobody */
    }
    /* The peer is there and does not answer: nobody polls it. */
    assert_int_equal(conn_open(0, far_end()->ni->nid.value, &conn), 0);
    for (uint32_t i = 0; i < 3000; i++) {
        (void)end_poll(&ends[0], 64); /* time stands still */
    }
    assert_int_equal(ends[0].down_count, 0);
    for (uint32_t i = 0; i < 200 && ends[0].down_count == 0; i++) {
        now_ns += TIMEOUT_NS / 100;
        assert_true(ends[0].down_count == 1 ||
                    ends[0].ops->next_deadline(ends[0].ni) != UINT64_MAX);
        (void)end_poll(&ends[0], 64);
    }
    assert_int_equal(ends[0].down_count, 1);
    assert_int_equal(ends[0].down_reason, -ETIMEDOUT);
    assert_in_range(now_ns, 1, 3 * TIMEOUT_NS);
}

static void
r8_what_had_arrived_comes_before_the_end_which_comes_once(void **state)
{
    const uint32_t count = 50;

    if (end_count == 1) {
        return; /* nobody can die */
    }
    connect_ends();
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(send_bytes(SIZE_ODD, i), 0);
    }
    end_close(&ends[0]);
    for (uint32_t i = 0; i < 10000 && far_end()->down_count == 0; i++) {
        (void)end_poll(far_end(), 3);
        now_ns += 1000;
    }
    assert_int_equal(far_end()->received_count, count);
    assert_int_equal(far_end()->down_count, 1);
    for (uint32_t i = 0; i < 1000; i++) {
        (void)end_poll(far_end(), 64);
        now_ns += 1000;
    }
    assert_int_equal(far_end()->down_count, 1);
}

/* ---- every driver ---------------------------------------------------------------------------- */

static const struct lnet_lnd_ops *const *driver;

static int
setup(void **state)
{
    thread = pthread_self();
    now_ns = 1;
    is_in_downcall = false;
    run_dir_make(run_dir);
    end_count = (*driver)->type == LNET_LND_LO ? 1 : 2;
    end_open(&ends[0], *driver, end_count == 1 ? "0" : "1");
    if (end_count == 2) {
        end_open(&ends[1], *driver, "2");
    }
    return 0;
}

static int
teardown(void **state)
{
    for (uint32_t i = 0; i < end_count; i++) {
        end_close(&ends[i]);
    }
    run_dir_remove(run_dir);
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest cases[] = {
    CASE(r1_everything_happens_in_the_thread_that_polls),
    CASE(r2_the_data_path_keeps_no_memory),
    CASE(r3_a_message_is_never_delivered_inside_the_send),
    CASE(r4_the_senders_memory_is_free_at_once),
    CASE(r5_a_refusal_leaves_no_trace_and_one_writable_follows),
    CASE(r6_what_lnet_refuses_closes_the_connection),
    CASE(r7_only_the_time_of_poll_counts),
    CASE(r8_what_had_arrived_comes_before_the_end_which_comes_once),
};

/* Usage: lnd_conformance DRIVER. Without one, of all of them in turn. */
int
main(int argc, char **argv)
{
    int failed = 0;

    for (driver = lnet_lnds; *driver != NULL; driver++) {
        if (argc < 2 || strcmp(argv[1], (*driver)->name) == 0) {
            print_message("# driver %s\n", (*driver)->name);
            failed += cmocka_run_group_tests_name((*driver)->name, cases, NULL, NULL);
        }
    }
    return failed != 0;
}
