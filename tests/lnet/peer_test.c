/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lnet/peer.c: connections come, go and are told of; everything of a dead peer ends; peers that
 * nobody refers to are freed. On the mock driver.
 */
#include "tests/support/world.h"
#include "tests/test.h"

#include <errno.h>
#include <string.h>

static struct world world;

static int
setup(void **state)
{
    world_open(&world, &(struct world_options){0});
    return 0;
}

static int
teardown(void **state)
{
    world_close(&world);
    return 0;
}

static uint32_t
peer_count(void)
{
    struct lnet_peer_info info;
    uint64_t cursor = 0;
    uint32_t count = 0;

    while (lnet_peer_info_next(world.ctx, &cursor, &info) == 0) {
        count++;
    }
    return count;
}

static void
one_address_is_one_peer(void **state)
{
    struct lnet_peer *a = world_peer(&world, 2, 0);

    assert_ptr_equal(world_peer(&world, 2, 0), a);
    assert_true(world_peer(&world, 2, 1) != a);
    assert_true(world_peer(&world, 3, 0) != a);
    assert_int_equal(peer_count(), 3);
    assert_int_equal(world_peer_info(&world, a).reference_count, 2);
}

static void
addresses_that_cannot_be_reached_are_refused(void **state)
{
    struct lnet_process process = {.pid = 0};
    struct lnet_peer *peer = NULL;

    assert_int_equal(lnet_nid_parse("10.0.0.1@tcp", &process.nid), 0);
    assert_int_equal(lnet_peer_get(world.ctx, &process, &peer), -EHOSTUNREACH);
    process.nid = mock_nid(WORLD_ADDRESS + 1000); /* the driver says so */
    assert_int_equal(lnet_peer_get(world.ctx, &process, &peer), -EHOSTUNREACH);
    process = (struct lnet_process){.nid = {(uint64_t)LNET_LND_LO << 48}, .pid = 1};
    assert_int_equal(lnet_peer_get(world.ctx, &process, &peer), -EHOSTUNREACH);
    process = (struct lnet_process){.nid = mock_nid(2), .pid = LNET_PID_ANY};
    assert_int_equal(lnet_peer_get(world.ctx, &process, &peer), -EHOSTUNREACH);
    assert_null(peer);
}

static void
messages_to_ourselves_never_leave(void **state)
{
    struct lnet_peer *self = world_peer(&world, WORLD_ADDRESS, 0);

    (void)world_attach_any(&world, 5, LNET_MD_OP_PUT | LNET_MD_PEEK, 100, -1);
    world_put(&world, self, 0, 3);
    while (world_poll(&world) > 0) {
    }
    assert_int_equal(world.event_count, 3);
    assert_ptr_equal(world.events[0].peer, self);
    assert_int_equal(world.ni->open_count, 0);

    /* Another process at our NID is somebody else. */
    world_put(&world, world_peer(&world, WORLD_ADDRESS, 9), 0, 1);
    assert_int_equal(world.ni->open_count, 1);
}

static void
the_watcher_hears_of_up_before_the_first_message(void **state)
{
    (void)world_attach_any(&world, 5, LNET_MD_OP_PUT | LNET_MD_PEEK, 100, -1);
    mock_accept(world.ni, 2, 7);
    (void)lnet_poll(world.ctx, world.pump.now_ns, 1);

    const struct lnet_hdr put = {.type = LNET_MSG_PUT, .portal = 5};

    mock_recv(world.ni, mock_conn_find(world.ni, 2, 7), &put, "");
    assert_int_equal(world.told_count, 0); /* not from within accepted() */
    (void)world_poll(&world);
    assert_int_equal(world.told_count, 1);
    assert_int_equal(world.told[0], 0);
    assert_int_equal(world.event_count, 1);
    assert_ptr_equal(world.told_peers[0], world.events[0].peer);
    assert_int_equal(lnet_peer_process(world.events[0].peer).pid, 7);
}

static void
death_ends_everything_of_the_peer_and_nothing_else(void **state)
{
    struct mock_conn *conn_a, *conn_b;
    struct lnet_peer *a = world_peer_up(&world, 2, 0, &conn_a);
    struct lnet_peer *b = world_peer_up(&world, 3, 0, &conn_b);
    const struct lnet_target to_a = {.peer = a, .portal = 5};
    const struct lnet_target to_b = {.peer = b, .portal = 5};
    const struct lnet_md_handle md = world_bind(&world, LNET_MD_NO_SEND_EVENT, 100, -1);

    assert_int_equal(lnet_get(world.ctx, md, 0, 10, &to_a, UINT64_MAX), 0);
    assert_int_equal(lnet_get(world.ctx, md, 0, 10, &to_b, UINT64_MAX), 0);
    assert_int_equal(lnet_put(world.ctx, md, 0, 10, &to_a, LNET_PUT_ACK), 0);
    conn_a->room = 0;
    assert_int_equal(lnet_put(world.ctx, md, 0, 10, &to_a, LNET_PUT_ACK), 0);
    world_put(&world, a, 0, 2);
    world.told_count = 0;
    mock_down(world.ni, conn_a, -EPIPE);
    (void)world_poll(&world);
    (void)world_poll(&world);
    assert_int_equal(world.event_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_ptr_equal(world.events[i].peer, a);
        assert_int_equal(world.events[i].status, -ECONNRESET);
    }
    assert_int_equal(world.told_count, 1);
    assert_int_equal(world.told[0], -ECONNRESET);
    assert_int_equal(world.ni->close_count, 1);

    struct lnet_peer_info info = world_peer_info(&world, a);

    assert_int_equal(info.state, LNET_PEER_DOWN);
    assert_int_equal(info.counters.lost_count, 3);
    assert_int_equal(info.tx_credits.available, 64);
    assert_int_equal(world_peer_info(&world, b).state, LNET_PEER_UP);

    /* The next message connects again. */
    world_put(&world, a, 9, 1);
    assert_int_equal(world_peer_info(&world, a).state, LNET_PEER_CONNECTING);
    mock_up(world.ni, mock_conn_find(world.ni, 2, 0));
    world.ni->sent_count = 0;
    (void)world_poll(&world);
    assert_int_equal(world.ni->sent_count, 1);
    assert_int_equal(world.ni->sent[0].payload[0], 9);
}

static void
a_connect_that_fails_fails_what_waits_for_it(void **state)
{
    static const struct {
        int reason, status;
    } table[] = {{-ECONNREFUSED, -EHOSTUNREACH}, {-ETIMEDOUT, -ETIMEDOUT}, {-EPERM, -EHOSTUNREACH}};

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(table); i++) {
        struct lnet_peer *peer = world_peer(&world, 10 + i, 0);
        const struct lnet_target target = {.peer = peer, .portal = 5};
        const struct lnet_md_handle md = world_bind(&world, 0, 100, 1);

        world.event_count = 0;
        world.told_count = 0;
        assert_int_equal(lnet_put(world.ctx, md, 0, 10, &target, LNET_PUT_ACK), 0);
        mock_down(world.ni, mock_conn_find(world.ni, 10 + i, 0), table[i].reason);
        (void)world_poll(&world);
        (void)world_poll(&world);
        assert_int_equal(world.event_count, 1); /* a failed put has one event */
        assert_int_equal(world.events[0].type, LNET_EV_SEND);
        assert_int_equal(world.events[0].status, table[i].status);
        assert_true(world.events[0].unlinked);
        assert_int_equal(world.told_count, 1);
        assert_int_equal(world.told[0], table[i].status);
    }
}

static void
a_driver_that_cannot_connect_is_an_error_at_once(void **state)
{
    struct lnet_peer *peer = world_peer(&world, 2, 0);
    const struct lnet_target target = {.peer = peer, .portal = 5};
    const struct lnet_md_handle md = world_bind(&world, 0, 100, 1);

    world.ni->open_error = -EAGAIN;
    assert_int_equal(lnet_put_inline(world.ctx, &target, "x", 1), -EAGAIN);
    world.ni->open_error = -ENOMEM;
    assert_int_equal(lnet_put_inline(world.ctx, &target, "x", 1), -EHOSTUNREACH);
    assert_int_equal(lnet_get(world.ctx, md, 0, 1, &target, UINT64_MAX), -EHOSTUNREACH);
    (void)world_poll(&world);
    assert_int_equal(world.event_count, 0);
    assert_int_equal(world_peer_info(&world, peer).tx_credits.available, 64);
}

static void
disconnect_takes_effect_in_the_next_poll(void **state)
{
    struct mock_conn *conn;
    struct lnet_peer *peer = world_peer_up(&world, 2, 0, &conn);
    const struct lnet_target target = {.peer = peer, .portal = 5};
    const struct lnet_md_handle md = world_bind(&world, 0, 100, 1);

    world.told_count = 0;
    assert_int_equal(lnet_get(world.ctx, md, 0, 10, &target, UINT64_MAX), 0);
    lnet_peer_disconnect(peer);
    assert_int_equal(world.ni->close_count, 0);
    (void)world_poll(&world);
    assert_int_equal(world.ni->close_count, 1);
    assert_int_equal(world.told[0], -ECONNRESET);
    assert_int_equal(world.event_count, 1);
    assert_int_equal(world.events[0].status, -ECONNRESET);
    lnet_peer_disconnect(peer); /* nothing to do */
    (void)world_poll(&world);
    assert_int_equal(world.told_count, 1);
}

static void
when_both_connect_the_accepted_one_is_used(void **state)
{
    struct lnet_peer *peer = world_peer(&world, 2, 0);

    /* Ours is told first that it lost. */
    world_put(&world, peer, 0, 2);
    mock_down(world.ni, mock_conn_find(world.ni, 2, 0), -EALREADY);
    (void)world_poll(&world);
    assert_int_equal(world_peer_info(&world, peer).state, LNET_PEER_CONNECTING);
    assert_int_equal(world.told_count, 0);
    mock_accept(world.ni, 2, 0);
    (void)world_poll(&world);
    (void)world_poll(&world);
    assert_int_equal(world_peer_info(&world, peer).state, LNET_PEER_UP);
    assert_int_equal(world.ni->sent_count, 2);
    assert_int_equal(world_ni_info(&world).conn_count, 1);

    /* The peer's comes first. */
    struct lnet_peer *other = world_peer(&world, 3, 0);

    world_put(&world, other, 2, 2);

    struct mock_conn *mine = mock_conn_find(world.ni, 3, 0);

    mock_accept(world.ni, 3, 0);
    mock_down(world.ni, mine, -EALREADY);
    (void)world_poll(&world);
    (void)world_poll(&world);
    assert_int_equal(world_peer_info(&world, other).state, LNET_PEER_UP);
    assert_int_equal(world.ni->sent_count, 4);
    assert_int_equal(world.ni->sent[3].payload[0], 3);
    assert_int_equal(world_ni_info(&world).conn_count, 2);
}

static void
the_peers_own_connection_is_not_waited_for_for_ever(void **state)
{
    struct lnet_peer *peer = world_peer(&world, 2, 0);

    world_put(&world, peer, 0, 2);
    mock_down(world.ni, mock_conn_find(world.ni, 2, 0), -EALREADY);
    pump_for(&world.pump, 9 * WORLD_SECOND_NS);
    assert_int_equal(world_peer_info(&world, peer).state, LNET_PEER_CONNECTING);
    pump_for(&world.pump, 2 * WORLD_SECOND_NS);
    assert_int_equal(world_peer_info(&world, peer).state, LNET_PEER_DOWN);
    assert_int_equal(world.told[0], -ETIMEDOUT);
    assert_int_equal(world_peer_info(&world, peer).counters.lost_count, 2);
}

static void
a_new_process_at_an_old_address_replaces_it(void **state)
{
    struct mock_conn *old;
    struct lnet_peer *peer = world_peer_up(&world, 2, 0, &old);
    const struct lnet_target target = {.peer = peer, .portal = 5};
    const struct lnet_md_handle md = world_bind(&world, 0, 100, 1);

    assert_int_equal(lnet_get(world.ctx, md, 0, 10, &target, UINT64_MAX), 0);
    world.told_count = 0;
    mock_accept(world.ni, 2, 0);
    (void)world_poll(&world);
    (void)world_poll(&world);
    assert_int_equal(world.told_count, 2);
    assert_int_equal(world.told[0], -ECONNRESET);
    assert_int_equal(world.told[1], 0);
    assert_int_equal(world.event_count, 1);
    assert_int_equal(world.events[0].status, -ECONNRESET);
    assert_int_equal(world.ni->close_count, 1);
    assert_int_equal(world_peer_info(&world, peer).state, LNET_PEER_UP);
    assert_int_equal(world_ni_info(&world).conn_count, 1);
}

static void
peers_that_nobody_refers_to_are_freed(void **state)
{
    struct lnet_peer *peer = world_peer(&world, 2, 0);

    lnet_peer_hold(peer);
    lnet_peer_put(peer);
    (void)world_poll(&world);
    assert_int_equal(peer_count(), 1);
    lnet_peer_put(peer);
    (void)world_poll(&world);
    assert_int_equal(peer_count(), 0);

    /* Accepted ones live as long as their connection; their counters stay with the interface. */
    const struct lnet_hdr put = {.type = LNET_MSG_PUT, .length_bytes = 3, .portal = 5};

    for (uint32_t i = 0; i < 50; i++) {
        mock_accept(world.ni, 100 + i, 0);
        (void)world_poll(&world);
        mock_recv(world.ni, mock_conn_find(world.ni, 100 + i, 0), &put, "abc");
        mock_down(world.ni, mock_conn_find(world.ni, 100 + i, 0), -ECONNRESET);
        (void)world_poll(&world);
    }
    (void)world_poll(&world);
    assert_int_equal(peer_count(), 0);
    assert_int_equal(world_ni_info(&world).conn_count, 0);
    assert_int_equal(world_ni_info(&world).counters.put_recv_count, 50);
    assert_int_equal(world_ni_info(&world).counters.recv_bytes, 150);
    assert_int_equal(world_ni_info(&world).counters.drop_count, 50);
    assert_int_equal(world_ni_info(&world).counters.drop_bytes, 150);
}

static void
an_idle_connection_of_ours_gives_way_when_the_table_is_full(void **state)
{
    struct world_options options = {.lnet = {.peers_max = 3}};

    world_close(&world);
    world_open(&world, &options);
    for (uint32_t i = 0; i < 3; i++) {
        struct lnet_peer *peer = world_peer(&world, 10 + i, 0);

        world_put(&world, peer, 0, 1);
        mock_up(world.ni, mock_conn_find(world.ni, 10 + i, 0));
        (void)world_poll(&world);
        if (i != 1) {
            lnet_peer_put(peer);
        }
    }
    const struct lnet_process process = {.nid = mock_nid(20)};
    struct lnet_peer *peer = NULL;

    /* The first call starts the end of idle ones; a later one finds room. */
    assert_int_equal(lnet_peer_get(world.ctx, &process, &peer), -EAGAIN);
    (void)world_poll(&world);
    assert_int_equal(lnet_peer_get(world.ctx, &process, &peer), 0);
    assert_int_equal(world_peer_info(&world, world_peer(&world, 11, 0)).state, LNET_PEER_UP);
}

static void
strangers_beyond_the_table_are_refused(void **state)
{
    struct world_options options = {.lnet = {.peers_max = 2}};

    world_close(&world);
    world_open(&world, &options);
    for (uint32_t i = 0; i < 4; i++) {
        mock_accept(world.ni, 10 + i, 0);
    }
    (void)world_poll(&world);
    assert_int_equal(peer_count(), 2);
    assert_null(mock_conn_find(world.ni, 12, 0));
}

static void
impossible_addresses_are_not_accepted(void **state)
{
    mock_accept(world.ni, WORLD_ADDRESS, 0); /* ourselves */
    mock_accept(world.ni, 2, LNET_PID_ANY);
    (void)world_poll(&world);
    assert_int_equal(peer_count(), 0);
}

static void
a_connect_only_interface_accepts_nobody(void **state)
{
    struct world_options options = {.ni_flags = LNET_NI_CONNECT_ONLY};

    world_close(&world);
    world_open(&world, &options);
    mock_accept(world.ni, 2, 0);
    (void)world_poll(&world);
    assert_int_equal(peer_count(), 0);
}

static struct lnet_peer_watch watches[3];
static uint32_t watch_calls;

static void
deletes_the_others(struct lnet *ctx, struct lnet_peer *peer, int status, void *arg)
{
    watch_calls++;
    for (uint32_t i = 0; i < 3; i++) {
        if (&watches[i] != arg) {
            lnet_peer_watch_del(ctx, &watches[i]);
        }
    }
}

static void
a_watcher_may_delete_any_watcher(void **state)
{
    struct mock_conn *conn;

    watch_calls = 0;
    for (uint32_t i = 0; i < 3; i++) {
        watches[i] = (struct lnet_peer_watch){.fn = deletes_the_others, .arg = &watches[i]};
        lnet_peer_watch_add(world.ctx, &watches[i]);
    }
    (void)world_peer_up(&world, 2, 0, &conn);
    assert_int_equal(watch_calls, 1);
    assert_int_equal(world.told_count, 1);
    lnet_peer_watch_del(world.ctx, &watches[0]);
}

static void
handler_disconnects(struct lnet *ctx, const struct lnet_event *event)
{
    struct world *w = event->user;

    w->event_count++;
    if (event->type == LNET_EV_PUT) {
        lnet_peer_disconnect(event->peer);
        assert_int_equal(lnet_md_unlink(ctx, event->md), 0);
    }
}

static void
a_handler_may_disconnect_its_peer_and_unlink_its_md(void **state)
{
    struct mock_conn *conn;
    struct lnet_peer *peer = world_peer_up(&world, 2, 0, &conn);
    const struct lnet_hdr put = {.type = LNET_MSG_PUT, .flags = LNET_PUT_ACK, .portal = 5};
    const struct lnet_match match = {.portal = 5,
                                     .from = {.nid = {LNET_NID_ANY}, .pid = LNET_PID_ANY},
                                     .ignore_bits = UINT64_MAX};
    struct lnet_md md = world_md(&world, LNET_MD_OP_PUT | LNET_MD_PEEK, 100, -1);
    struct lnet_md_handle handle;

    md.handler = handler_disconnects;
    assert_int_equal(lnet_md_attach(world.ctx, &match, &md, &handle), 0);
    lnet_peer_put(peer); /* only the connection holds it now */
    mock_recv(world.ni, conn, &put, "");
    mock_recv(world.ni, conn, &put, ""); /* finds no MD any more */
    (void)world_poll(&world);
    (void)world_poll(&world);
    (void)world_poll(&world);
    assert_int_equal(world.event_count, 2); /* the PUT and the UNLINK */
    assert_int_equal(world.ni->sent_count, 1);
    assert_int_equal(peer_count(), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest cases[] = {
    CASE(one_address_is_one_peer),
    CASE(addresses_that_cannot_be_reached_are_refused),
    CASE(messages_to_ourselves_never_leave),
    CASE(the_watcher_hears_of_up_before_the_first_message),
    CASE(death_ends_everything_of_the_peer_and_nothing_else),
    CASE(a_connect_that_fails_fails_what_waits_for_it),
    CASE(a_driver_that_cannot_connect_is_an_error_at_once),
    CASE(disconnect_takes_effect_in_the_next_poll),
    CASE(when_both_connect_the_accepted_one_is_used),
    CASE(the_peers_own_connection_is_not_waited_for_for_ever),
    CASE(a_new_process_at_an_old_address_replaces_it),
    CASE(peers_that_nobody_refers_to_are_freed),
    CASE(an_idle_connection_of_ours_gives_way_when_the_table_is_full),
    CASE(strangers_beyond_the_table_are_refused),
    CASE(impossible_addresses_are_not_accepted),
    CASE(a_connect_only_interface_accepts_nobody),
    CASE(a_watcher_may_delete_any_watcher),
    CASE(a_handler_may_disconnect_its_peer_and_unlink_its_md),
};

TEST_MAIN(cases)
