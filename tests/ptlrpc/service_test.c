/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ptlrpc/service.c: what arrives is checked before it is believed, the pool of requests is bounded
 * and nobody is forgotten when it is empty.
 */
#include "tests/ptlrpc/bed.h"

#include "base/prng.h"
#include "tests/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct bed bed;
static struct bed_call calls[600];

/* The last request that was sent. */
struct copy {
    uint32_t bytes;
    uint64_t match_bits;
    unsigned char data[512];
};
static struct copy copy;

static enum fake_verdict
keep_request(struct fake_message *message, void *arg)
{
    if (message->portal == BED_PORTAL && message->bytes <= sizeof(copy.data)) {
        copy.bytes = message->bytes;
        copy.match_bits = message->match_bits;
        (void)memcpy(copy.data, message->data, message->bytes);
        return FAKE_DROP;
    }
    return FAKE_PASS;
}

/* Opens the bed; copy is a valid ECHO request that has not arrived yet. */
static void
open_with_copy(void)
{
    bed_open(&bed, NULL);
    bed.world.filter = keep_request;
    assert_int_equal(bed_send(bed.import, BED_ECHO, "0123456789abcdef", 16, &calls[0]), 0);
    bed.world.filter = NULL;
    assert_int_equal(copy.bytes, sizeof(struct ptlrpc_hdr) + 16);
}

static void
inject(const void *data, uint32_t bytes)
{
    fake_inject(bed.client_ctx, bed.server_ctx, BED_PORTAL, copy.match_bits, data, bytes);
    fake_settle(&bed.world);
}

static void
every_truncation_of_a_request_is_refused(void **state)
{
    open_with_copy();
    for (uint32_t bytes = 0; bytes < copy.bytes; bytes++) {
        inject(copy.data, bytes);
        assert_int_equal(bed_stats(&bed).refused_count, bytes + 1);
    }
    assert_int_equal(bed_stats(&bed).req_count, 0);
    assert_int_equal(calls[0].done_count, 0);
    inject(copy.data, copy.bytes);
    assert_int_equal(calls[0].status, 0);
    bed_close(&bed);
}

static void
a_request_that_is_longer_than_it_says_is_refused(void **state)
{
    open_with_copy();
    inject(copy.data, copy.bytes + 1);
    assert_int_equal(bed_stats(&bed).refused_count, 1);
    bed_close(&bed);
}

static void
each_field_of_the_header_is_checked(void **state)
{
    struct ptlrpc_hdr hdr;
    const struct ptlrpc_hdr *const sound = (const struct ptlrpc_hdr *)(const void *)copy.data;
    uint64_t refused = 0;

    open_with_copy();
#define SPOILT(change)                                            \
    do {                                                          \
        unsigned char data[sizeof(copy.data)];                    \
        hdr = *sound;                                             \
        change;                                                   \
        (void)memcpy(data, copy.data, copy.bytes);                \
        (void)memcpy(data, &hdr, sizeof(hdr));                    \
        inject(data, copy.bytes);                                 \
        assert_int_equal(bed_stats(&bed).req_count, 0);           \
        refused++;                                                \
        assert_int_equal(bed_stats(&bed).refused_count, refused); \
    } while (0)
    SPOILT(hdr.type = PTLRPC_HDR_REPLY);
    SPOILT(hdr.type = 0);
    SPOILT(hdr.flags = PTLRPC_HDR_EARLY);
    SPOILT(hdr.flags = UINT32_MAX);
    SPOILT(hdr.xid++);
    SPOILT(hdr.u.request.body_bytes++);
    SPOILT(hdr.u.request.body_bytes--);
    SPOILT(hdr.u.request.body_bytes = UINT32_MAX);
    bed_close(&bed);
}

/* The status that the client sees when its request has become @change. */
static void
answers_to_requests_that_make_no_sense(void **state)
{
    struct ptlrpc_hdr *hdr = (struct ptlrpc_hdr *)(void *)copy.data;

    open_with_copy();
    hdr->version++;
    inject(copy.data, copy.bytes);
    assert_int_equal(calls[0].status, -EPROTO);
    bed_close(&bed);

    open_with_copy();
    hdr->u.request.slot = 16; /* the import has 0 to 15 */
    inject(copy.data, copy.bytes);
    assert_int_equal(calls[0].status, -EPROTO);
    bed_close(&bed);

    open_with_copy();
    hdr->handle += 1u << 16;
    inject(copy.data, copy.bytes);
    assert_int_equal(calls[0].status, -ESTALE);
    bed_close(&bed);

    open_with_copy();
    hdr->handle |= 0xffff;
    inject(copy.data, copy.bytes);
    assert_int_equal(calls[0].status, -ESTALE);
    bed_close(&bed);

    open_with_copy();
    hdr->u.request.incarnation++;
    inject(copy.data, copy.bytes);
    assert_int_equal(calls[0].status, -ESTALE);
    bed_close(&bed);
}

static void
an_unknown_op_and_a_short_body_are_answered_with_an_error(void **state)
{
    bed_open(&bed, NULL);
    assert_int_equal(bed_send(bed.import, 999, NULL, 0, &calls[0]), 0);
    assert_int_equal(bed_send(bed.import, 65535, NULL, 0, &calls[1]), 0);
    assert_int_equal(bed_send(bed.import, 0, NULL, 0, &calls[2]), 0);
    assert_int_equal(bed_send(bed.import, BED_ECHO, NULL, 0, &calls[3]), 0);
    fake_settle(&bed.world);
    assert_int_equal(calls[0].status, -EOPNOTSUPP);
    assert_int_equal(calls[1].status, -EOPNOTSUPP);
    assert_int_equal(calls[2].status, -EOPNOTSUPP);
    assert_int_equal(calls[3].status, -EPROTO);
    assert_int_equal(bed_stats(&bed).refused_count, 4);
    bed_close(&bed);
}

static void
a_cookie_is_of_no_use_to_another_peer(void **state)
{
    struct lnet *stranger = NULL;

    open_with_copy();
    stranger = fake_open(&bed.world, 9);
    fake_inject(stranger, bed.server_ctx, BED_PORTAL, copy.match_bits, copy.data, copy.bytes);
    (void)lnet_poll(bed.server_ctx, bed.world.now_ns, 100);
    assert_int_equal(bed_stats(&bed).req_count, 0);
    assert_int_equal(bed_stats(&bed).refused_count, 1);
    lnet_close(stranger);
    bed_close(&bed);
}

static void
connects_that_ask_for_nonsense_are_refused(void **state)
{
    static const uint16_t slots[] = {0, 257, 65535};
    unsigned char data[sizeof(struct ptlrpc_hdr) + 2000] = {0};
    struct ptlrpc_hdr hdr = {
        .version = 1, .type = PTLRPC_HDR_REQUEST, .opc = PTLRPC_OPC_CONNECT, .xid = 77};

    open_with_copy();
    copy.match_bits = 77;
    hdr.u.request.incarnation = 5;
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(slots); i++) {
        hdr.u.request.slot = slots[i];
        inject(&hdr, sizeof(hdr));
    }
    hdr.u.request.slot = 1;
    hdr.u.request.incarnation = 0;
    inject(&hdr, sizeof(hdr));
    hdr.u.request.incarnation = 5;
    hdr.u.request.body_bytes = 2000;
    (void)memcpy(data, &hdr, sizeof(hdr));
    inject(data, sizeof(data));
    assert_int_equal(bed_stats(&bed).refused_count, 5);
    assert_int_equal(bed_stats(&bed).export_count, 1);
    bed_close(&bed);
}

static void
random_messages_do_no_harm(void **state)
{
    struct base_prng prng;

    base_prng_seed(&prng, 11);
    open_with_copy();
    for (uint32_t i = 0; i < 20000; i++) {
        unsigned char data[sizeof(copy.data)];
        const uint32_t bytes = (uint32_t)base_prng_below(&prng, sizeof(data));
        const uint32_t flips = (uint32_t)base_prng_between(&prng, 1, 4);

        if (i % 2 == 0) {
            for (uint32_t at = 0; at < sizeof(data); at++) {
                data[at] = (unsigned char)base_prng_u64(&prng);
            }
            inject(data, bytes);
            continue;
        }
        (void)memcpy(data, copy.data, copy.bytes);
        for (uint32_t flip = 0; flip < flips; flip++) {
            data[base_prng_below(&prng, copy.bytes)] ^=
                (unsigned char)(1u << base_prng_below(&prng, 8));
        }
        inject(data, copy.bytes);
    }
    bed.world.filter = NULL;
    /* Some flips evict the client or take its slots; a new one is as welcome as ever. */
    bed.import = bed_import(&bed, &(struct bed_options){0});
    fake_settle(&bed.world);
    assert_int_equal(bed_send(bed.import, BED_NULL, NULL, 0, &calls[0]), 0);
    fake_settle(&bed.world);
    assert_int_equal(calls[0].status, 0);
    bed_release(&bed); /* a flip makes HOLD of ECHO */
    assert_int_equal(bed_stats(&bed).req_active, 0);
    bed_close(&bed);
}

static void
when_no_request_is_free_clients_come_again_and_all_are_served(void **state)
{
    bed_open(&bed, &(struct bed_options){.rqs_max = 4, .max_rpcs = 256});
    for (uint32_t i = 0; i < 300; i++) {
        assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[i]), 0);
    }
    fake_settle(&bed.world);
    assert_int_equal(bed.held_count, 4);
    assert_true(bed_stats(&bed).busy_count > 0);
    assert_int_equal(bed_stats(&bed).rqs_free_min, 0);
    for (uint32_t i = 0; i < 2000 && calls[299].done_count == 0; i++) {
        bed_release(&bed);
        fake_pass(&bed.world, 1000000, 1);
    }
    for (uint32_t round = 0; round < 200; round++) {
        bed_release(&bed);
        fake_pass(&bed.world, 10000000, 1);
    }
    for (uint32_t i = 0; i < 300; i++) {
        assert_int_equal(calls[i].done_count, 1);
        assert_int_equal(calls[i].status, 0);
    }
    assert_int_equal(bed_stats(&bed).req_active_max, 4);
    bed_close(&bed);
}

static void
clients_come_and_go_while_no_request_is_free(void **state)
{
    struct ptlrpc_import *other = NULL;

    bed_open(&bed, &(struct bed_options){.rqs_max = 4});
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[i]), 0);
    }
    fake_settle(&bed.world);
    assert_int_equal(bed_stats(&bed).rqs_free_min, 0);
    other = bed_import(&bed, &(struct bed_options){0});
    fake_settle(&bed.world);
    assert_int_equal(ptlrpc_import_state(other), PTLRPC_IMP_FULL);
    ptlrpc_import_close(other);
    fake_settle(&bed.world);
    assert_int_equal(bed.disconnected_count, 1);
    bed_close(&bed);
}

/* Makes the first *(uint32_t *)arg replies BUSY. */
static enum fake_verdict
make_busy(struct fake_message *message, void *arg)
{
    uint32_t *count = arg;

    if (message->portal == PTLRPC_PORTAL_REPLY && *count > 0) {
        (*count)--;
        ((struct ptlrpc_hdr *)(void *)message->data)->flags = PTLRPC_HDR_BUSY;
        ((struct ptlrpc_hdr *)(void *)message->data)->u.reply.body_bytes = 0;
        message->bytes = sizeof(struct ptlrpc_hdr);
    }
    return FAKE_PASS;
}

static void
a_connect_and_a_disconnect_that_are_told_busy_come_again(void **state)
{
    struct ptlrpc_import *other = NULL;
    uint32_t count = 5;

    bed_open(&bed, NULL);
    bed.world.filter = make_busy;
    bed.world.filter_arg = &count;
    other = bed_import(&bed, &(struct bed_options){0});
    fake_pass(&bed.world, BED_TIMEOUT_NS / 2, 100);
    assert_int_equal(count, 0);
    assert_int_equal(ptlrpc_import_state(other), PTLRPC_IMP_FULL);
    count = 1;
    ptlrpc_import_close(other);
    fake_pass(&bed.world, BED_TIMEOUT_NS / 2, 100);
    assert_int_equal(bed.closed_count, 1);
    bed_close(&bed);
}

static void
a_client_that_holds_its_share_does_not_starve_another(void **state)
{
    bed_open(&bed, &(struct bed_options){.rqs_max = 16, .max_rpcs = 256});
    struct ptlrpc_import *other = bed_import(&bed, &(struct bed_options){.max_rpcs = 4});

    fake_settle(&bed.world);
    for (uint32_t i = 0; i < 200; i++) {
        assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[i]), 0);
    }
    fake_settle(&bed.world);
    assert_true(bed.held_count < 16);
    assert_int_equal(bed_send(other, BED_NULL, NULL, 0, &calls[200]), 0);
    fake_settle(&bed.world);
    assert_int_equal(calls[200].done_count, 1);
    assert_int_equal(calls[200].status, 0);
    bed_close(&bed);
}

static void
replies_wait_when_the_network_has_no_room(void **state)
{
    bed_open(&bed, &(struct bed_options){.max_rpcs = 64});
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(bed_send(bed.import, BED_HOLD, NULL, 0, &calls[i]), 0);
    }
    fake_settle(&bed.world);
    bed.world.queue_max = 5;
    bed_release(&bed);
    fake_pass(&bed.world, BED_TIMEOUT_NS / 2, 100);
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(calls[i].done_count, 1);
        assert_int_equal(calls[i].status, 0);
    }
    assert_int_equal(bed_stats(&bed).reply_drop_count, 0);
    bed_close(&bed);
}

static void
never(struct ptlrpc_rq *rq)
{
    fail();
}

static void
a_portal_has_one_service_and_an_op_one_handler(void **state)
{
    static const struct ptlrpc_op twice[] = {{.opc = 5, .handler = never},
                                             {.opc = 5, .handler = never}};
    static const struct ptlrpc_op ours[] = {{.opc = PTLRPC_OPC_PING, .handler = never}};
    static const struct ptlrpc_op none[] = {{.opc = 5}};
    struct ptlrpc_service_options options = {.struct_bytes = sizeof(options), .portal = BED_PORTAL};
    struct ptlrpc_service *service = NULL;

    bed_open(&bed, NULL);
    assert_int_equal(ptlrpc_service_add(bed.server, &options, &service), -EEXIST);
    options.portal = PTLRPC_PORTAL_REPLY;
    assert_int_equal(ptlrpc_service_add(bed.server, &options, &service), -EINVAL);
    options.portal = LNET_PORTALS;
    assert_int_equal(ptlrpc_service_add(bed.server, &options, &service), -EINVAL);
    options.portal = 20;
    options.ops = twice;
    options.op_count = 2;
    assert_int_equal(ptlrpc_service_add(bed.server, &options, &service), -EINVAL);
    options.ops = ours;
    options.op_count = 1;
    assert_int_equal(ptlrpc_service_add(bed.server, &options, &service), -EINVAL);
    options.ops = none;
    assert_int_equal(ptlrpc_service_add(bed.server, &options, &service), -EINVAL);
    bed_close(&bed);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(every_truncation_of_a_request_is_refused),
    cmocka_unit_test(a_request_that_is_longer_than_it_says_is_refused),
    cmocka_unit_test(each_field_of_the_header_is_checked),
    cmocka_unit_test(answers_to_requests_that_make_no_sense),
    cmocka_unit_test(an_unknown_op_and_a_short_body_are_answered_with_an_error),
    cmocka_unit_test(a_cookie_is_of_no_use_to_another_peer),
    cmocka_unit_test(connects_that_ask_for_nonsense_are_refused),
    cmocka_unit_test(random_messages_do_no_harm),
    cmocka_unit_test(when_no_request_is_free_clients_come_again_and_all_are_served),
    cmocka_unit_test(clients_come_and_go_while_no_request_is_free),
    cmocka_unit_test(a_connect_and_a_disconnect_that_are_told_busy_come_again),
    cmocka_unit_test(a_client_that_holds_its_share_does_not_starve_another),
    cmocka_unit_test(replies_wait_when_the_network_has_no_room),
    cmocka_unit_test(a_portal_has_one_service_and_an_op_one_handler),
};

TEST_MAIN(cases)
