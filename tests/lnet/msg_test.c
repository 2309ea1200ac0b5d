/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lnet/msg.c, op.c: messages leave in order, when credit, connection and room are there, or end by
 * their deadline. On the mock driver.
 */
#include "tests/support/world.h"
#include "tests/test.h"

#include <errno.h>
#include <string.h>

static struct world world;

static int
teardown(void **state)
{
    world_close(&world);
    return 0;
}

static void
open_world(const struct world_options *options)
{
    world_open(&world, options);
}

static void
assert_sent_in_order(uint32_t from, uint32_t count)
{
    for (uint32_t i = from; i < from + count; i++) {
        assert_int_equal(world.ni->sent[i].payload[0], (uint8_t)i);
    }
}

static void
messages_wait_for_the_connection_in_order(void **state)
{
    open_world(&(struct world_options){0});
    struct lnet_peer *peer = world_peer(&world, 2, 0);

    world_put(&world, peer, 0, 10);
    assert_int_equal(world.ni->open_count, 1);
    assert_int_equal(world.ni->sent_count, 0);
    assert_int_equal(world_peer_info(&world, peer).state, LNET_PEER_CONNECTING);
    mock_up(world.ni, mock_conn_find(world.ni, 2, 0));
    (void)world_poll(&world);
    assert_int_equal(world.ni->sent_count, 10);
    assert_sent_in_order(0, 10);
    world_put(&world, peer, 10, 1); /* at once */
    assert_int_equal(world.ni->sent_count, 11);
    assert_sent_in_order(0, 11);
}

static void
without_credits_messages_wait_and_the_count_is_negative(void **state)
{
    struct mock_conn *conn;

    open_world(&(struct world_options){.is_slow = true, .peer_credits = 4});
    struct lnet_peer *peer = world_peer_up(&world, 2, 0, &conn);

    world_put(&world, peer, 0, 10);
    assert_int_equal(world.ni->sent_count, 4);

    struct lnet_peer_info info = world_peer_info(&world, peer);

    assert_int_equal(info.tx_credits.max, 4);
    assert_int_equal(info.tx_credits.available, -6);
    assert_int_equal(info.tx_credits.min, -6);
    mock_done(world.ni, conn, 3);
    (void)world_poll(&world);
    assert_int_equal(world.ni->sent_count, 7);
    mock_done(world.ni, conn, 4);
    mock_done(world.ni, conn, 3);
    (void)world_poll(&world);
    assert_int_equal(world.ni->sent_count, 10);
    assert_sent_in_order(0, 10);
    info = world_peer_info(&world, peer);
    assert_int_equal(info.tx_credits.available, 4);
    assert_int_equal(info.tx_credits.min, -6);
    assert_int_equal(world_ni_info(&world).tx_credits.available, 256);
}

static void
peers_take_turns_at_the_interfaces_credits(void **state)
{
    struct mock_conn *conn_a, *conn_b;

    open_world(&(struct world_options){.is_slow = true, .credits = 2, .peer_credits = 8});
    struct lnet_peer *a = world_peer_up(&world, 2, 0, &conn_a);
    struct lnet_peer *b = world_peer_up(&world, 3, 0, &conn_b);

    world_put(&world, a, 0, 6);
    world_put(&world, b, 0, 6);
    assert_int_equal(world.ni->sent_count, 2);
    assert_int_equal(world_ni_info(&world).tx_credits.available, -2); /* one place per peer */
    mock_done(world.ni, conn_a, 2);
    (void)world_poll(&world);
    assert_int_equal(world.ni->sent_count, 4);
    assert_ptr_equal(world.ni->sent[2].conn, conn_a);
    assert_ptr_equal(world.ni->sent[3].conn, conn_b);
    for (uint32_t i = 0; i < 4; i++) {
        mock_done(world.ni, conn_a, 1);
        mock_done(world.ni, conn_b, 1);
        (void)world_poll(&world);
    }
    assert_int_equal(world.ni->sent_count, 12);
    mock_done(world.ni, conn_b, 2);
    (void)world_poll(&world);
    assert_int_equal(world_ni_info(&world).tx_credits.available, 2);
    assert_int_equal(world_ni_info(&world).tx_credits.min, -2);
}

static void
a_refused_peer_does_not_hold_up_another(void **state)
{
    struct mock_conn *conn_a, *conn_b;

    open_world(&(struct world_options){.is_slow = true, .credits = 4, .peer_credits = 8});
    struct lnet_peer *a = world_peer_up(&world, 2, 0, &conn_a);
    struct lnet_peer *b = world_peer_up(&world, 3, 0, &conn_b);

    conn_a->room = 0;
    world_put(&world, a, 0, 8);
    assert_int_equal(world.ni->sent_count, 0);
    world_put(&world, b, 0, 3);
    assert_int_equal(world.ni->sent_count, 3);
}

/* Refusal at the n-th call for each n: nothing is lost, doubled or out of order. */
static void
refusal_at_any_message_keeps_the_order(void **state)
{
    for (uint32_t slow = 0; slow < 2; slow++) {
        for (uint32_t n = 0; n <= 6; n++) {
            struct mock_conn *conn;

            open_world(&(struct world_options){.is_slow = slow != 0});
            struct lnet_peer *peer = world_peer_up(&world, 2, 0, &conn);

            conn->room = n;
            world_put(&world, peer, 0, 6);
            assert_int_equal(world.ni->sent_count, n);
            assert_int_equal(world_peer_info(&world, peer).tx_credits.available,
                             slow != 0 ? 64 - 6 : 64 - 6 + (int32_t)n);
            mock_room(world.ni, conn, 1);
            (void)world_poll(&world);
            mock_room(world.ni, conn, 100);
            (void)world_poll(&world);
            assert_int_equal(world.ni->sent_count, 6);
            assert_sent_in_order(0, 6);
            world_close(&world);
        }
    }
    open_world(&(struct world_options){0});
}

static void
a_queued_message_ends_at_its_deadline_and_not_before(void **state)
{
    open_world(&(struct world_options){
        .lnet = {.transaction_timeout_ns = 2 * WORLD_SECOND_NS, .connect_timeout_ns = 1}});
    struct lnet_peer *peer = world_peer(&world, 2, 0);
    const struct lnet_target target = {.peer = peer, .portal = 5};
    const struct lnet_md_handle md = world_bind(&world, 0, 100, -1);

    world_put(&world, peer, 0, 3);
    world.pump.now_ns += WORLD_SECOND_NS;
    (void)world_poll(&world);
    assert_int_equal(lnet_put(world.ctx, md, 0, 100, &target, 0), 0);
    assert_int_equal(world_peer_info(&world, peer).tx_credits.available, 60);

    world.pump.now_ns += WORLD_SECOND_NS - 1;
    (void)world_poll(&world);
    assert_int_equal(world_peer_info(&world, peer).counters.lost_count, 0);
    assert_true(lnet_next_deadline(world.ctx) == world.pump.now_ns + 1);
    for (uint32_t i = 0; i < 1000; i++) {
        (void)world_poll(&world); /* spurious wake-ups do not move it */
    }
    world.pump.now_ns += 1;
    (void)world_poll(&world);
    assert_int_equal(world_peer_info(&world, peer).counters.lost_count, 3);
    assert_int_equal(world.event_count, 0);

    world.pump.now_ns += WORLD_SECOND_NS;
    (void)world_poll(&world);
    assert_int_equal(world.event_count, 1);
    assert_int_equal(world.events[0].type, LNET_EV_SEND);
    assert_int_equal(world.events[0].status, -ETIMEDOUT);
    assert_int_equal(world_peer_info(&world, peer).counters.lost_count, 4);
    assert_int_equal(world_peer_info(&world, peer).tx_credits.available, 64);
}

static void
a_message_that_gets_its_credit_in_time_goes_out(void **state)
{
    struct mock_conn *conn;

    open_world(&(struct world_options){
        .is_slow = true, .peer_credits = 1, .lnet = {.transaction_timeout_ns = WORLD_SECOND_NS}});
    struct lnet_peer *peer = world_peer_up(&world, 2, 0, &conn);

    world_put(&world, peer, 0, 3);
    world.pump.now_ns += WORLD_SECOND_NS * 9 / 10;
    mock_done(world.ni, conn, 1);
    (void)world_poll(&world);
    assert_int_equal(world.ni->sent_count, 2);
    world.pump.now_ns += WORLD_SECOND_NS * 3 / 10;
    (void)world_poll(&world);
    mock_done(world.ni, conn, 1);
    (void)world_poll(&world);
    assert_int_equal(world.ni->sent_count, 2); /* the third was given up */
    assert_int_equal(world_peer_info(&world, peer).counters.lost_count, 1);
}

static void
queues_are_bounded_but_for_a_reserve_per_peer(void **state)
{
    open_world(&(struct world_options){.lnet = {.queued_messages_max = 16}});
    struct lnet_peer *a = world_peer(&world, 2, 0);
    struct lnet_peer *b = world_peer(&world, 3, 0);
    const struct lnet_target to_a = {.peer = a, .portal = 5};
    const struct lnet_target to_b = {.peer = b, .portal = 5};
    const struct lnet_md_handle md = world_bind(&world, 0, 100, -1);

    world_put(&world, a, 0, 16);
    assert_int_equal(lnet_put_inline(world.ctx, &to_a, "x", 1), -EAGAIN);
    assert_int_equal(lnet_put(world.ctx, md, 0, 1, &to_a, LNET_PUT_ACK), -EAGAIN);
    assert_int_equal(lnet_get(world.ctx, md, 0, 1, &to_a, UINT64_MAX), -EAGAIN);
    world_put(&world, b, 0, 4);
    assert_int_equal(lnet_put_inline(world.ctx, &to_b, "x", 1), -EAGAIN);
    mock_up(world.ni, mock_conn_find(world.ni, 2, 0));
    (void)world_poll(&world);
    assert_int_equal(world.ni->sent_count, 16);
    assert_int_equal(lnet_put_inline(world.ctx, &to_a, "x", 1), 0);
    assert_int_equal(world.event_count, 0); /* an error promises nothing */
}

static void
big_and_scattered_messages_survive_the_queue(void **state)
{
    static uint8_t parts[3][40];
    struct iovec iov[3] = {{parts[0], 10}, {parts[1], 0}, {parts[2], 40}};

    open_world(&(struct world_options){0});
    struct lnet_peer *peer = world_peer(&world, 2, 0);
    const struct lnet_target target = {.peer = peer, .portal = 5};
    struct lnet_md md = world_md(&world, LNET_MD_IOV, 50, -1);
    struct lnet_md_handle handle;

    (void)memset(parts[0], 'a', 40);
    (void)memset(parts[2], 'b', 40);
    (void)memset(world.bytes, 'c', MOCK_EAGER_BYTES_MAX);
    md.start = iov;
    md.iov_count = 3;
    assert_int_equal(lnet_md_bind(world.ctx, &md, &handle), 0);
    iov[0].iov_base = NULL; /* the array is copied */
    assert_int_equal(lnet_put(world.ctx, handle, 5, 30, &target, 0), 0);
    assert_int_equal(lnet_put_inline(world.ctx, &target, world.bytes, MOCK_EAGER_BYTES_MAX), 0);
    assert_int_equal(lnet_put_inline(world.ctx, &target, world.bytes, MOCK_EAGER_BYTES_MAX + 1),
                     -EMSGSIZE);
    (void)memset(world.bytes, 'd', MOCK_EAGER_BYTES_MAX); /* ours again since the call returned */
    mock_up(world.ni, mock_conn_find(world.ni, 2, 0));
    (void)world_poll(&world);
    assert_int_equal(world.ni->sent_count, 2);
    assert_memory_equal(world.ni->sent[0].payload, "aaaaabbbbbbbbbbbbbbbbbbbbbbbbb", 30);
    assert_int_equal(world.ni->sent[1].hdr.length_bytes, MOCK_EAGER_BYTES_MAX);
    assert_int_equal(world.ni->sent[1].payload[63], 'c');
}

static void
what_the_caller_got_wrong_is_refused(void **state)
{
    struct mock_conn *conn;

    open_world(&(struct world_options){0});
    struct lnet_peer *peer = world_peer_up(&world, 2, 0, &conn);
    struct lnet_target target = {.peer = peer, .portal = 5};
    const struct lnet_md_handle md = world_bind(&world, 0, 100, -1);
    const struct lnet_md_handle attached = world_attach_any(&world, 5, LNET_MD_OP_PUT, 100, -1);

    assert_int_equal(lnet_put(world.ctx, md, 0, 101, &target, 0), -EINVAL);
    assert_int_equal(lnet_put(world.ctx, md, 101, 0, &target, 0), -EINVAL);
    assert_int_equal(lnet_put(world.ctx, md, 1, UINT64_MAX, &target, 0), -EINVAL);
    assert_int_equal(lnet_put(world.ctx, md, 0, 1, &target, 2), -EINVAL);
    assert_int_equal(lnet_put(world.ctx, attached, 0, 1, &target, 0), -EINVAL);
    assert_int_equal(lnet_put(world.ctx, (struct lnet_md_handle){0}, 0, 1, &target, 0), -ESTALE);
    target.portal = LNET_PORTALS;
    assert_int_equal(lnet_put(world.ctx, md, 0, 1, &target, 0), -EINVAL);
    assert_int_equal(lnet_put_inline(world.ctx, &target, "", 0), -EINVAL);
    target = (struct lnet_target){.portal = 5};
    assert_int_equal(lnet_put_inline(world.ctx, &target, "", 0), -EINVAL);
    assert_int_equal(world.ni->sent_count, 0);
    (void)world_poll(&world);
    assert_int_equal(world.event_count, 0);
}

static void
send_is_told_before_ack_even_if_the_ack_is_early(void **state)
{
    struct mock_conn *conn;

    open_world(&(struct world_options){0});
    struct lnet_peer *peer = world_peer_up(&world, 2, 0, &conn);
    const struct lnet_target target = {.peer = peer, .portal = 5, .hdr_data = 99};
    const struct lnet_md_handle md = world_bind(&world, 0, 100, 2);

    assert_int_equal(lnet_put(world.ctx, md, 0, 100, &target, LNET_PUT_ACK), 0);
    assert_int_equal(world.ni->sent[0].hdr.flags, LNET_PUT_ACK);

    const struct lnet_hdr ack = {
        .type = LNET_MSG_ACK, .length_bytes = 60, .md_cookie = world.ni->sent[0].hdr.md_cookie};

    mock_recv(world.ni, conn, &ack, NULL);
    (void)lnet_poll(world.ctx, world.pump.now_ns, 1);
    (void)lnet_poll(world.ctx, world.pump.now_ns, 1);
    (void)lnet_poll(world.ctx, world.pump.now_ns, 1);
    (void)lnet_poll(world.ctx, world.pump.now_ns, 1);
    assert_int_equal(world.event_count, 2);
    assert_int_equal(world.events[0].type, LNET_EV_SEND);
    assert_false(world.events[0].unlinked);
    assert_int_equal(world.events[1].type, LNET_EV_ACK);
    assert_int_equal(world.events[1].moved_bytes, 60);
    assert_int_equal(world.events[1].hdr_data, 99);
    assert_true(world.events[1].unlinked);
    assert_int_equal(lnet_md_unlink(world.ctx, md), -ESTALE);
}

static void
an_ack_that_never_comes_times_out(void **state)
{
    struct mock_conn *conn;

    open_world(&(struct world_options){.lnet = {.transaction_timeout_ns = WORLD_SECOND_NS}});
    struct lnet_peer *peer = world_peer_up(&world, 2, 0, &conn);
    const struct lnet_target target = {.peer = peer, .portal = 5};
    const struct lnet_md_handle md = world_bind(&world, LNET_MD_NO_SEND_EVENT, 100, -1);

    assert_int_equal(lnet_put(world.ctx, md, 0, 1, &target, LNET_PUT_ACK), 0);
    assert_int_equal(lnet_put(world.ctx, md, 0, 1, &target, 0), 0); /* nobody waits for this one */
    (void)world_poll(&world);
    assert_int_equal(world.event_count, 0);
    world.pump.now_ns += WORLD_SECOND_NS;
    (void)world_poll(&world);
    assert_int_equal(world.event_count, 1);
    assert_int_equal(world.events[0].type, LNET_EV_ACK);
    assert_int_equal(world.events[0].status, -ETIMEDOUT);
    assert_false(world.events[0].unlinked);

    /* What comes after its time finds nothing. */
    const struct lnet_hdr ack = {.type = LNET_MSG_ACK,
                                 .md_cookie = world.ni->sent[0].hdr.md_cookie};

    mock_recv(world.ni, conn, &ack, NULL);
    (void)world_poll(&world);
    assert_int_equal(world.event_count, 1);
    assert_int_equal(world_peer_info(&world, peer).counters.drop_count, 1);
}

static void
answers_must_come_from_whom_was_asked(void **state)
{
    struct mock_conn *conn, *other;

    open_world(&(struct world_options){0});
    struct lnet_peer *peer = world_peer_up(&world, 2, 0, &conn);
    struct lnet_peer *stranger = world_peer_up(&world, 3, 0, &other);
    const struct lnet_target target = {.peer = peer, .portal = 5};
    const struct lnet_md_handle md = world_bind(&world, 0, 100, -1);
    uint8_t reply_bytes[101];

    (void)memset(reply_bytes, 'r', sizeof(reply_bytes));
    assert_int_equal(lnet_get(world.ctx, md, 10, 50, &target, UINT64_MAX), 0);
    assert_int_equal(world.ni->sent[0].hdr.type, LNET_MSG_GET);
    assert_int_equal(world.ni->sent[0].hdr.length_bytes, 50);

    struct lnet_hdr reply = {
        .type = LNET_MSG_REPLY, .length_bytes = 50, .md_cookie = world.ni->sent[0].hdr.md_cookie};
    const struct lnet_hdr ack = {.type = LNET_MSG_ACK, .md_cookie = reply.md_cookie};

    mock_recv(world.ni, other, &reply, reply_bytes); /* a stranger's */
    mock_recv(world.ni, conn, &ack, NULL);           /* of the wrong kind */
    reply.md_cookie ^= 1;
    mock_recv(world.ni, conn, &reply, reply_bytes); /* of the wrong name */
    reply.md_cookie = md.cookie;
    mock_recv(world.ni, conn, &reply, reply_bytes); /* an MD's name */
    (void)world_poll(&world);
    assert_int_equal(world.event_count, 0);
    assert_int_equal(world.bytes[10], 0);
    assert_int_equal(world_peer_info(&world, stranger).counters.drop_bytes, 50);
    assert_int_equal(world_peer_info(&world, peer).counters.drop_count, 3);

    reply.md_cookie = world.ni->sent[0].hdr.md_cookie;
    reply.length_bytes = 49;
    mock_recv(world.ni, conn, &reply, reply_bytes);
    (void)world_poll(&world);
    assert_int_equal(world.event_count, 1);
    assert_int_equal(world.events[0].type, LNET_EV_REPLY);
    assert_int_equal(world.events[0].moved_bytes, 49);
    assert_int_equal(world.events[0].offset_bytes, 10);
    assert_int_equal(world.bytes[9], 0);
    assert_int_equal(world.bytes[58], 'r');
    assert_int_equal(world.bytes[59], 0);
}

static void
a_reply_longer_than_asked_breaks_the_protocol(void **state)
{
    struct mock_conn *conn;

    open_world(&(struct world_options){0});
    struct lnet_peer *peer = world_peer_up(&world, 2, 0, &conn);
    const struct lnet_target target = {.peer = peer, .portal = 5};
    const struct lnet_md_handle md = world_bind(&world, 0, 100, 1);

    assert_int_equal(lnet_get(world.ctx, md, 0, 10, &target, UINT64_MAX), 0);

    const struct lnet_hdr reply = {
        .type = LNET_MSG_REPLY, .length_bytes = 11, .md_cookie = world.ni->sent[0].hdr.md_cookie};

    mock_recv(world.ni, conn, &reply, world.bytes + 200);
    (void)world_poll(&world);
    (void)world_poll(&world);
    assert_int_equal(world.event_count, 1);
    assert_int_equal(world.events[0].status, -EPROTO);
    assert_true(world.events[0].unlinked);
    assert_int_equal(world_peer_info(&world, peer).state, LNET_PEER_DOWN);
    assert_int_equal(world_peer_info(&world, peer).counters.proto_error_count, 1);
}

static void
unlink_ends_operations_wherever_they_are(void **state)
{
    struct mock_conn *conn;

    open_world(&(struct world_options){.is_slow = true, .peer_credits = 1});
    struct lnet_peer *peer = world_peer_up(&world, 2, 0, &conn);
    const struct lnet_target target = {.peer = peer, .portal = 5};
    const struct lnet_md_handle md = world_bind(&world, 0, 100, -1);

    assert_int_equal(lnet_get(world.ctx, md, 0, 10, &target, UINT64_MAX), 0); /* out */
    assert_int_equal(lnet_put(world.ctx, md, 0, 10, &target, 0), 0);          /* queued */
    assert_int_equal(lnet_put(world.ctx, md, 0, 10, &target, LNET_PUT_ACK), 0);
    world_put(&world, peer, 7, 1);
    assert_int_equal(lnet_md_unlink(world.ctx, md), 0);
    assert_int_equal(lnet_md_unlink(world.ctx, md), -ESTALE);
    assert_int_equal(lnet_put(world.ctx, md, 0, 10, &target, 0), -ESTALE);
    assert_int_equal(world.event_count, 0);
    (void)world_poll(&world);
    assert_int_equal(world.event_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(world.events[i].status, -ECANCELED);
        assert_int_equal(world.events[i].unlinked, i == 2);
    }
    /* The message that nobody withdrew goes out. */
    mock_done(world.ni, conn, 1);
    (void)world_poll(&world);
    assert_int_equal(world.ni->sent_count, 2);
    assert_int_equal(world.ni->sent[1].payload[0], 7);
}

static void
responses_are_bounded_and_dropped_beyond_that(void **state)
{
    struct mock_conn *conn;

    open_world(&(struct world_options){.lnet = {.queued_messages_max = 16}});
    struct lnet_peer *peer = world_peer_up(&world, 2, 0, &conn);
    const struct lnet_hdr put = {.type = LNET_MSG_PUT, .flags = LNET_PUT_ACK, .portal = 5};

    (void)world_attach_any(&world, 5, LNET_MD_OP_PUT | LNET_MD_PEEK, 100, -1);
    conn->room = 0;
    for (uint32_t i = 0; i < 10; i++) {
        mock_recv(world.ni, conn, &put, "");
    }
    (void)world_poll(&world);
    assert_int_equal(world.event_count, 10);
    assert_int_equal(world_peer_info(&world, peer).tx_credits.available, 64 - 4);
    assert_int_equal(world_peer_info(&world, peer).counters.lost_count, 6);
    mock_room(world.ni, conn, 100);
    (void)world_poll(&world);
    assert_int_equal(world.ni->sent_count, 4);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test_teardown(messages_wait_for_the_connection_in_order, teardown),
    cmocka_unit_test_teardown(without_credits_messages_wait_and_the_count_is_negative, teardown),
    cmocka_unit_test_teardown(peers_take_turns_at_the_interfaces_credits, teardown),
    cmocka_unit_test_teardown(a_refused_peer_does_not_hold_up_another, teardown),
    cmocka_unit_test_teardown(refusal_at_any_message_keeps_the_order, teardown),
    cmocka_unit_test_teardown(a_queued_message_ends_at_its_deadline_and_not_before, teardown),
    cmocka_unit_test_teardown(a_message_that_gets_its_credit_in_time_goes_out, teardown),
    cmocka_unit_test_teardown(queues_are_bounded_but_for_a_reserve_per_peer, teardown),
    cmocka_unit_test_teardown(big_and_scattered_messages_survive_the_queue, teardown),
    cmocka_unit_test_teardown(what_the_caller_got_wrong_is_refused, teardown),
    cmocka_unit_test_teardown(send_is_told_before_ack_even_if_the_ack_is_early, teardown),
    cmocka_unit_test_teardown(an_ack_that_never_comes_times_out, teardown),
    cmocka_unit_test_teardown(answers_must_come_from_whom_was_asked, teardown),
    cmocka_unit_test_teardown(a_reply_longer_than_asked_breaks_the_protocol, teardown),
    cmocka_unit_test_teardown(unlink_ends_operations_wherever_they_are, teardown),
    cmocka_unit_test_teardown(responses_are_bounded_and_dropped_beyond_that, teardown),
};

TEST_MAIN(cases)
