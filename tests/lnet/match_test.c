/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lnet/match.c, md.c, recv.c: which MD takes a message, how much of it, and when an MD is used up.
 * The rules of LNet's lib-ptl.c, walked one by one on the mock driver.
 */
#include "tests/support/world.h"
#include "tests/test.h"

#include <errno.h>
#include <string.h>

static struct world world;
static struct mock_conn *conn;
static struct lnet_peer *peer;

static int
setup(void **state)
{
    world_open(&world, &(struct world_options){0});
    peer = world_peer_up(&world, 2, 7, &conn);
    return 0;
}

static int
teardown(void **state)
{
    world_close(&world);
    return 0;
}

static int
attach(const struct lnet_match *match, uint32_t options, uint64_t length_bytes, int32_t threshold,
       struct lnet_md_handle *md_out)
{
    const struct lnet_md md = world_md(&world, options, length_bytes, threshold);

    return lnet_md_attach(world.ctx, match, &md, md_out);
}

/* A PUT of @length_bytes bytes 'p' to portal 5 arrives. */
static void
arrive(uint64_t match_bits, uint32_t length_bytes, uint64_t offset_bytes)
{
    static uint8_t payload[MOCK_EAGER_BYTES_MAX];
    const struct lnet_hdr hdr = {
        .type = LNET_MSG_PUT,
        .portal = 5,
        .length_bytes = length_bytes,
        .match_bits = match_bits,
        .offset_bytes = offset_bytes,
    };

    (void)memset(payload, 'p', sizeof(payload));
    mock_recv(world.ni, conn, &hdr, payload);
    while (world_poll(&world) > 0) {
    }
}

static uint64_t
drop_count(void)
{
    return world_peer_info(&world, peer).counters.drop_count;
}

static void
all_bits_that_differ_must_be_ignored(void **state)
{
    const struct lnet_match match = {.portal = 5,
                                     .from = {.nid = {LNET_NID_ANY}, .pid = LNET_PID_ANY},
                                     .match_bits = 0xf0,
                                     .ignore_bits = 0x0f};
    struct lnet_md_handle md;

    assert_int_equal(attach(&match, LNET_MD_OP_PUT, 100, -1, &md), 0);
    arrive(0xf0, 1, 0);
    arrive(0xff, 1, 0);
    assert_int_equal(world.event_count, 2);
    arrive(0x1f0, 1, 0);
    arrive(0xe0, 1, 0);
    assert_int_equal(world.event_count, 2);
    assert_int_equal(drop_count(), 2);
}

static void
the_address_must_be_equal_or_any(void **state)
{
    const struct {
        struct lnet_process from;
        bool is_taken;
    } table[] = {
        {{.nid = {LNET_NID_ANY}, .pid = LNET_PID_ANY}, true},
        {{.nid = mock_nid(2), .pid = LNET_PID_ANY}, true},
        {{.nid = {LNET_NID_ANY}, .pid = 7}, true},
        {{.nid = mock_nid(3), .pid = LNET_PID_ANY}, false},
        {{.nid = {LNET_NID_ANY}, .pid = 8}, false},
    };

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(table); i++) {
        const struct lnet_match match = {.portal = 5, .from = table[i].from, .match_bits = i};
        struct lnet_md_handle md;

        assert_int_equal(attach(&match, LNET_MD_OP_PUT, 100, -1, &md), 0);
        world.event_count = 0;
        arrive(i, 1, 0);
        assert_int_equal(world.event_count, table[i].is_taken);
    }
}

static void
the_operation_must_be_permitted(void **state)
{
    const struct lnet_hdr get = {
        .type = LNET_MSG_GET, .portal = 5, .length_bytes = 10, .md_cookie = 1};

    (void)world_attach_any(&world, 5, LNET_MD_OP_GET, 100, -1);
    arrive(0, 1, 0);
    assert_int_equal(world.event_count, 0);
    mock_recv(world.ni, conn, &get, NULL);
    (void)world_poll(&world);
    assert_int_equal(world.event_count, 1);
    assert_int_equal(world.events[0].type, LNET_EV_GET);
}

static void
a_portal_is_of_one_kind_for_good(void **state)
{
    const struct lnet_process concrete = {.nid = mock_nid(2), .pid = 7};
    const struct lnet_process any = {.nid = {LNET_NID_ANY}, .pid = LNET_PID_ANY};
    const struct lnet_match unique = {.portal = 5, .from = concrete, .match_bits = 1};
    const struct lnet_match wildcard = {.portal = 5, .from = any, .match_bits = 1};
    const struct lnet_match ignoring = {
        .portal = 5, .from = concrete, .match_bits = 1, .ignore_bits = 1};
    struct lnet_md_handle md;

    assert_int_equal(attach(&unique, LNET_MD_OP_PUT, 100, 1, &md), 0);
    assert_int_equal(attach(&wildcard, LNET_MD_OP_PUT, 100, 1, &md), -EPERM);
    assert_int_equal(attach(&ignoring, LNET_MD_OP_PUT, 100, 1, &md), -EPERM);
    arrive(1, 1, 0); /* uses it up */
    assert_int_equal(world.event_count, 1);
    assert_int_equal(attach(&wildcard, LNET_MD_OP_PUT, 100, 1, &md), -EPERM);

    const struct lnet_match wildcard_6 = {.portal = 6, .from = any, .match_bits = 1};
    const struct lnet_match unique_6 = {.portal = 6, .from = concrete, .match_bits = 1};

    assert_int_equal(attach(&wildcard_6, LNET_MD_OP_PUT, 100, 1, &md), 0);
    assert_int_equal(attach(&unique_6, LNET_MD_OP_PUT, 100, 1, &md), -EPERM);
}

static void
a_unique_portal_finds_by_bits_and_address(void **state)
{
    struct lnet_md_handle mds[300];

    for (uint32_t i = 0; i < 300; i++) {
        const struct lnet_match match = {
            .portal = 5, .from = {.nid = mock_nid(2), .pid = 7}, .match_bits = i * 256};

        assert_int_equal(attach(&match, LNET_MD_OP_PUT, 100, 1, &mds[i]), 0);
    }
    for (uint32_t i = 0; i < 300; i += 7) {
        arrive(i * 256, 1, 0);
        assert_true(world.events[world.event_count - 1].md.cookie == mds[i].cookie);
    }
    assert_int_equal(drop_count(), 0);
    arrive(0, 1, 0); /* used up */
    assert_int_equal(drop_count(), 1);
}

static void
those_with_ignore_bits_come_first_and_at_head_before_them(void **state)
{
    const struct lnet_process any = {.nid = {LNET_NID_ANY}, .pid = LNET_PID_ANY};
    const struct lnet_match exact = {.portal = 5, .from = any, .match_bits = 1};
    struct lnet_match ignoring = {
        .portal = 5, .from = any, .match_bits = 1, .ignore_bits = UINT64_MAX};
    struct lnet_md_handle first, second, third;

    assert_int_equal(attach(&exact, LNET_MD_OP_PUT, 100, 1, &third), 0);
    assert_int_equal(attach(&ignoring, LNET_MD_OP_PUT, 100, 1, &second), 0);
    ignoring.at_head = true;
    assert_int_equal(attach(&ignoring, LNET_MD_OP_PUT, 100, 1, &first), 0);
    for (uint32_t i = 0; i < 3; i++) {
        arrive(1, 1, 0);
    }
    assert_int_equal(world.event_count, 3);
    assert_true(world.events[0].md.cookie == first.cookie);
    assert_true(world.events[1].md.cookie == second.cookie);
    assert_true(world.events[2].md.cookie == third.cookie);
}

static void
the_running_offset_moves_on(void **state)
{
    (void)world_attach_any(&world, 5, LNET_MD_OP_PUT, 100, -1);
    arrive(0, 30, 77); /* the sender's offset does not count */
    arrive(0, 30, 0);
    assert_int_equal(world.events[0].offset_bytes, 0);
    assert_int_equal(world.events[1].offset_bytes, 30);
    assert_ptr_equal(world.events[1].data, world.bytes + 30);
    arrive(0, 41, 0); /* too long for the rest */
    assert_int_equal(drop_count(), 1);
    arrive(0, 40, 0);
    assert_int_equal(world.event_count, 3);
    assert_int_equal(world.bytes[99], 'p');
    assert_int_equal(world.bytes[100], 0);
}

static void
with_manage_remote_the_senders_offset_counts_if_it_is_inside(void **state)
{
    (void)world_attach_any(&world, 5, LNET_MD_OP_PUT | LNET_MD_MANAGE_REMOTE, 100, -1);
    arrive(0, 10, 90);
    assert_int_equal(world.event_count, 1);
    assert_int_equal(world.events[0].offset_bytes, 90);
    assert_int_equal(world.bytes[89], 0);
    arrive(0, 11, 90);
    arrive(0, 1, 100);
    arrive(0, 1, UINT64_MAX);
    arrive(0, 2, UINT64_MAX - 1);
    assert_int_equal(drop_count(), 4);
    assert_int_equal(world.event_count, 1);
    assert_int_equal(world.bytes[100], 0);
    arrive(0, 0, UINT64_MAX); /* nothing fits anywhere */
    assert_int_equal(world.event_count, 2);
}

static void
truncate_takes_what_fits(void **state)
{
    (void)world_attach_any(&world, 5, LNET_MD_OP_PUT | LNET_MD_TRUNCATE | LNET_MD_MANAGE_REMOTE,
                           100, -1);
    arrive(0, 200, 0);
    arrive(0, 200, 95);
    arrive(0, 200, UINT64_MAX);
    assert_int_equal(world.event_count, 3);
    assert_int_equal(world.events[0].request_bytes, 200);
    assert_int_equal(world.events[0].moved_bytes, 100);
    assert_int_equal(world.events[1].moved_bytes, 5);
    assert_int_equal(world.events[2].moved_bytes, 0);
    assert_int_equal(world.bytes[100], 0);
}

static void
the_threshold_ends_an_md_with_its_last_event(void **state)
{
    const struct lnet_md_handle md = world_attach_any(&world, 5, LNET_MD_OP_PUT, 100, 2);

    arrive(0, 1, 0);
    assert_false(world.events[0].unlinked);
    arrive(0, 1, 0);
    assert_true(world.events[1].unlinked);
    arrive(0, 1, 0);
    assert_int_equal(world.event_count, 2);
    assert_int_equal(drop_count(), 1);
    assert_int_equal(lnet_md_unlink(world.ctx, md), -ESTALE);
}

static void
retain_keeps_a_used_up_md_linked(void **state)
{
    const struct lnet_md_handle md =
        world_attach_any(&world, 5, LNET_MD_OP_PUT | LNET_MD_RETAIN, 100, 1);

    arrive(0, 1, 0);
    assert_false(world.events[0].unlinked);
    arrive(0, 1, 0);
    assert_int_equal(drop_count(), 1);
    assert_int_equal(lnet_md_unlink(world.ctx, md), 0);
    (void)world_poll(&world);
    assert_int_equal(world.event_count, 2);
    assert_int_equal(world.events[1].type, LNET_EV_UNLINK);
    assert_true(world.events[1].unlinked);
}

static void
max_size_ends_an_md_when_no_message_of_that_size_fits(void **state)
{
    const struct lnet_match match = {.portal = 5,
                                     .from = {.nid = {LNET_NID_ANY}, .pid = LNET_PID_ANY},
                                     .ignore_bits = UINT64_MAX};
    struct lnet_md md = world_md(&world, LNET_MD_OP_PUT | LNET_MD_MAX_SIZE, 100, -1);
    struct lnet_md_handle handle;

    md.max_size_bytes = 101;
    assert_int_equal(lnet_md_attach(world.ctx, &match, &md, &handle), -EINVAL);
    md.max_size_bytes = 40;
    assert_int_equal(lnet_md_attach(world.ctx, &match, &md, &handle), 0);
    arrive(0, 41, 0);
    assert_int_equal(drop_count(), 1);
    arrive(0, 40, 0);
    arrive(0, 20, 0);
    assert_int_equal(world.event_count, 2);
    assert_false(world.events[1].unlinked); /* 40 are left */
    arrive(0, 1, 0);
    assert_int_equal(world.event_count, 3);
    assert_true(world.events[2].unlinked);
}

static void
peek_shows_any_length_up_to_its_limit(void **state)
{
    (void)world_attach_any(&world, 5, LNET_MD_OP_PUT | LNET_MD_PEEK, 64, -1);
    for (uint32_t i = 0; i < 10; i++) {
        arrive(i, 64, 5);
    }
    arrive(0, 65, 0);
    assert_int_equal(world.event_count, 10);
    assert_int_equal(drop_count(), 1);
    assert_int_equal(world.events[9].match_bits, 9);
    assert_int_equal(world.bytes[0], 0);
}

static void
an_iov_is_filled_in_order(void **state)
{
    const struct lnet_match match = {.portal = 5,
                                     .from = {.nid = {LNET_NID_ANY}, .pid = LNET_PID_ANY},
                                     .ignore_bits = UINT64_MAX};
    struct iovec iov[] = {{world.bytes, 10}, {world.bytes + 100, 0}, {world.bytes + 200, 30}};
    struct lnet_md md = world_md(&world, LNET_MD_OP_PUT | LNET_MD_IOV, 40, -1);
    struct lnet_md_handle handle;

    md.start = iov;
    md.iov_count = 3;
    md.length_bytes = 41;
    assert_int_equal(lnet_md_attach(world.ctx, &match, &md, &handle), -EINVAL);
    md.length_bytes = 40;
    assert_int_equal(lnet_md_attach(world.ctx, &match, &md, &handle), 0);
    arrive(0, 5, 0);
    arrive(0, 30, 0);
    assert_int_equal(world.event_count, 2);
    assert_null(world.events[1].data);
    assert_int_equal(world.bytes[9], 'p');
    assert_int_equal(world.bytes[10], 0);
    assert_int_equal(world.bytes[200], 'p');
    assert_int_equal(world.bytes[224], 'p');
    assert_int_equal(world.bytes[225], 0);
}

static void
acks_are_sent_unless_the_target_declines(void **state)
{
    const struct lnet_hdr put = {.type = LNET_MSG_PUT,
                                 .flags = LNET_PUT_ACK,
                                 .portal = 5,
                                 .length_bytes = 10,
                                 .hdr_data = 3,
                                 .md_cookie = 4};
    struct lnet_md_handle md =
        world_attach_any(&world, 5, LNET_MD_OP_PUT | LNET_MD_ACK_DISABLE, 100, 1);

    mock_recv(world.ni, conn, &put, world.bytes);
    (void)world_poll(&world);
    assert_int_equal(world.ni->sent_count, 0);
    md = world_attach_any(&world, 5, LNET_MD_OP_PUT | LNET_MD_TRUNCATE, 7, 1);
    (void)md;
    mock_recv(world.ni, conn, &put, world.bytes);
    (void)world_poll(&world);
    assert_int_equal(world.ni->sent_count, 1);
    assert_int_equal(world.ni->sent[0].hdr.type, LNET_MSG_ACK);
    assert_int_equal(world.ni->sent[0].hdr.length_bytes, 7);
    assert_int_equal(world.ni->sent[0].hdr.hdr_data, 3);
    assert_int_equal(world.ni->sent[0].hdr.md_cookie, 4);
    mock_recv(world.ni, conn, &put, world.bytes); /* nobody takes it: no ACK, no NACK */
    (void)world_poll(&world);
    assert_int_equal(world.ni->sent_count, 1);
}

static void
a_get_is_answered_with_what_is_there(void **state)
{
    struct lnet_hdr get = {
        .type = LNET_MSG_GET, .portal = 5, .length_bytes = 60, .md_cookie = 11, .offset_bytes = 50};

    (void)world_attach_any(&world, 5, LNET_MD_OP_GET | LNET_MD_MANAGE_REMOTE | LNET_MD_TRUNCATE,
                           100, -1);
    (void)memset(world.bytes, 'g', 100);
    mock_recv(world.ni, conn, &get, NULL);
    get.offset_bytes = UINT64_MAX;
    mock_recv(world.ni, conn, &get, NULL);
    (void)world_poll(&world);
    assert_int_equal(world.ni->sent_count, 2);
    assert_int_equal(world.ni->sent[0].hdr.type, LNET_MSG_REPLY);
    assert_int_equal(world.ni->sent[0].hdr.length_bytes, 50);
    assert_int_equal(world.ni->sent[0].hdr.md_cookie, 11);
    assert_int_equal(world.ni->sent[0].payload[49], 'g');
    assert_int_equal(world.ni->sent[1].hdr.length_bytes, 0);

    /* More than fits into a REPLY was never a valid question. */
    get.length_bytes = MOCK_EAGER_BYTES_MAX + 1;
    mock_recv(world.ni, conn, &get, NULL);
    (void)world_poll(&world);
    assert_int_equal(world_peer_info(&world, peer).state, LNET_PEER_DOWN);
}

static void
what_describes_nothing_is_refused(void **state)
{
    struct lnet_match match = {.portal = 5, .from = {.nid = {LNET_NID_ANY}, .pid = LNET_PID_ANY}};
    struct lnet_md md = world_md(&world, LNET_MD_OP_PUT, 100, -1);
    struct lnet_md_handle handle = {5};

    match.portal = 0; /* LNet's own */
    assert_int_equal(lnet_md_attach(world.ctx, &match, &md, &handle), -EINVAL);
    match.portal = LNET_PORTALS;
    assert_int_equal(lnet_md_attach(world.ctx, &match, &md, &handle), -EINVAL);
    match.portal = 5;
    md.threshold = 0;
    assert_int_equal(lnet_md_attach(world.ctx, &match, &md, &handle), -EINVAL);
    md.threshold = -2;
    assert_int_equal(lnet_md_attach(world.ctx, &match, &md, &handle), -EINVAL);
    md.threshold = 1;
    md.options = 0;
    assert_int_equal(lnet_md_attach(world.ctx, &match, &md, &handle), -EINVAL);
    md.options = LNET_MD_OP_PUT | (1u << 30);
    assert_int_equal(lnet_md_attach(world.ctx, &match, &md, &handle), -EINVAL);
    md.options = LNET_MD_OP_PUT;
    md.start = NULL;
    assert_int_equal(lnet_md_attach(world.ctx, &match, &md, &handle), -EINVAL);
    md.options = LNET_MD_OP_GET | LNET_MD_PEEK;
    assert_int_equal(lnet_md_attach(world.ctx, &match, &md, &handle), -EINVAL);
    md.options = LNET_MD_PEEK;
    assert_int_equal(lnet_md_bind(world.ctx, &md, &handle), -EINVAL);
    assert_int_equal(handle.cookie, 5);
}

static void
mds_are_limited_and_come_back(void **state)
{
    struct world_options options = {.lnet = {.mds_max = 100}};
    const struct lnet_match match = {.portal = 5,
                                     .from = {.nid = {LNET_NID_ANY}, .pid = LNET_PID_ANY}};
    struct lnet_md_handle mds[100], one_more;

    world_close(&world);
    world_open(&world, &options);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(attach(&match, LNET_MD_OP_PUT, 1, 1, &mds[i]), 0);
    }
    assert_int_equal(attach(&match, LNET_MD_OP_PUT, 1, 1, &one_more), -EAGAIN);
    assert_int_equal(lnet_md_unlink(world.ctx, mds[50]), 0);
    (void)world_poll(&world);
    assert_int_equal(attach(&match, LNET_MD_OP_PUT, 1, 1, &one_more), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest cases[] = {
    CASE(all_bits_that_differ_must_be_ignored),
    CASE(the_address_must_be_equal_or_any),
    CASE(the_operation_must_be_permitted),
    CASE(a_portal_is_of_one_kind_for_good),
    CASE(a_unique_portal_finds_by_bits_and_address),
    CASE(those_with_ignore_bits_come_first_and_at_head_before_them),
    CASE(the_running_offset_moves_on),
    CASE(with_manage_remote_the_senders_offset_counts_if_it_is_inside),
    CASE(truncate_takes_what_fits),
    CASE(the_threshold_ends_an_md_with_its_last_event),
    CASE(retain_keeps_a_used_up_md_linked),
    CASE(max_size_ends_an_md_when_no_message_of_that_size_fits),
    CASE(peek_shows_any_length_up_to_its_limit),
    CASE(an_iov_is_filled_in_order),
    CASE(acks_are_sent_unless_the_target_declines),
    CASE(a_get_is_answered_with_what_is_there),
    CASE(what_describes_nothing_is_refused),
    CASE(mds_are_limited_and_come_back),
};

TEST_MAIN(cases)
