/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ptlrpc/request_state.c: exactly the moves of the picture are allowed, and another one aborts.
 */
#include "ptlrpc/request_state.h"

#include "tests/test.h"

#include <string.h>

/* One row per state before, one column per state after, in the order of the enum. */
static const char *const picture[PTLRPC_REQ_STATE_COUNT] = {
    /*              FNDSRE */
    [PTLRPC_REQ_FREE] = ".x....", [PTLRPC_REQ_NEW] = "x.xx..",    [PTLRPC_REQ_DELAYED] = "...x.x",
    [PTLRPC_REQ_SENT] = "x...xx", [PTLRPC_REQ_RESEND] = "x..x.x", [PTLRPC_REQ_ENDING] = "x.....",
};

static void
only_the_moves_of_the_picture_are_allowed(void **state)
{
    for (uint32_t from = 0; from < PTLRPC_REQ_STATE_COUNT; from++) {
        assert_int_equal(strlen(picture[from]), PTLRPC_REQ_STATE_COUNT);
        for (uint32_t to = 0; to < PTLRPC_REQ_STATE_COUNT; to++) {
            assert_int_equal(ptlrpc_req_may_move(from, to), picture[from][to] == 'x');
        }
    }
}

static void
an_allowed_move_changes_the_state(void **state)
{
    uint8_t at = PTLRPC_REQ_FREE;

    ptlrpc_req_move(&at, PTLRPC_REQ_NEW);
    ptlrpc_req_move(&at, PTLRPC_REQ_SENT);
    assert_int_equal(at, PTLRPC_REQ_SENT);
}

static void
a_request_that_is_free_is_not_sent(void **state)
{
    uint8_t at = PTLRPC_REQ_FREE;

    TEST_ABORTS(ptlrpc_req_move(&at, PTLRPC_REQ_SENT));
}

static void
an_end_is_told_once(void **state)
{
    uint8_t at = PTLRPC_REQ_ENDING;

    TEST_ABORTS(ptlrpc_req_move(&at, PTLRPC_REQ_ENDING));
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(only_the_moves_of_the_picture_are_allowed),
    cmocka_unit_test(an_allowed_move_changes_the_state),
    cmocka_unit_test(a_request_that_is_free_is_not_sent),
    cmocka_unit_test(an_end_is_told_once),
};

TEST_MAIN(cases)
