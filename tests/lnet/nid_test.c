/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lnet/nid.c: one way to write each NID, and back.
 */
#include "causeway/lnet.h"

#include "tests/test.h"

#include <errno.h>
#include <limits.h>

static void
what_is_printed_is_read_back(void **state)
{
    static const struct {
        const char *text;
        uint64_t value;
    } table[] = {
        {"0@lo", UINT64_C(9) << 48},
        {"3@shm", UINT64_C(0xc0) << 48 | 3},
        {"4294967295@shm65535", UINT64_C(0xc0ffff) << 32 | 0xffffffff},
        {"7@sim", UINT64_C(0xc1) << 48 | 7},
        {"10.0.0.1@tcp1", UINT64_C(0x20001) << 32 | 0x0a000001},
        {"255.255.255.255@udp", UINT64_C(0xc4) << 48 | 0xffffffff},
        {"0.0.0.0@verbs", UINT64_C(0xc3) << 48},
    };
    char text[LNET_NID_TEXT_MAX];

    for (size_t i = 0; i < BASE_ARRAY_LEN(table); i++) {
        struct lnet_nid nid = {0};

        assert_int_equal(lnet_nid_parse(table[i].text, &nid), 0);
        assert_true(nid.value == table[i].value);
        assert_string_equal(lnet_nid_format(nid, text), table[i].text);
    }
}

static void
anything_else_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "@shm",
        "3",
        "3@",
        "3@shn",
        "3@shm0",
        "3@shm01",
        "3@shm65536",
        "3@shm1x",
        " 3@shm",
        "3@shm ",
        "+3@shm",
        "-3@shm",
        "03@shm",
        "0x3@shm",
        "4294967296@shm",
        "3@",
        "3@3",
        "1@lo",
        "0@lo1",
        "1.2.3.4@shm",
        "3@tcp",
        "1.2.3@tcp",
        "1.2.3.256@tcp",
        "1.2.3.4.5@tcp",
        "256.2.3.4@tcp",
        "1..3.4@tcp",
        "1.2.3.04@tcp",
        "3@shm@shm",
        "3@shmx",
    };
    struct lnet_nid nid = {77};

    for (size_t i = 0; i < BASE_ARRAY_LEN(bad); i++) {
        assert_int_equal(lnet_nid_parse(bad[i], &nid), -EINVAL);
        assert_int_equal(nid.value, 77);
    }
}

static void
a_process_is_a_nid_with_or_without_a_pid(void **state)
{
    struct lnet_process process;
    char text[LNET_PROC_TEXT_MAX];

    assert_int_equal(lnet_process_parse("3@shm", &process), 0);
    assert_int_equal(process.pid, 0);
    assert_string_equal(lnet_process_format(&process, text), "0-3@shm");
    assert_int_equal(lnet_process_parse("4294967294-3@shm2", &process), 0);
    assert_string_equal(lnet_process_format(&process, text), "4294967294-3@shm2");
    assert_int_equal(lnet_process_parse("4294967295-3@shm", &process), -EINVAL);
    assert_int_equal(lnet_process_parse("-3@shm", &process), -EINVAL);
    assert_int_equal(lnet_process_parse("1-2-3@shm", &process), -EINVAL);
    assert_int_equal(lnet_process_parse("1-", &process), -EINVAL);
}

static void
unknown_nets_and_the_wildcard_are_printed_too(void **state)
{
    char text[LNET_NID_TEXT_MAX];

    assert_string_equal(lnet_nid_format((struct lnet_nid){LNET_NID_ANY}, text), "<?>");
    assert_string_equal(lnet_nid_format((struct lnet_nid){UINT64_C(0x550002) << 32 | 0xab}, text),
                        "0xab@<85:2>");
}

static void
errors_have_names(void **state)
{
    assert_string_equal(lnet_error_name(0), "OK");
    assert_string_equal(lnet_error_name(-ETIMEDOUT), "ETIMEDOUT");
    assert_string_equal(lnet_error_name(-99999), "EUNKNOWN");
    assert_string_equal(lnet_error_name(INT_MIN), "EUNKNOWN");
    assert_string_equal(lnet_error_name(ETIMEDOUT), "EUNKNOWN");
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(what_is_printed_is_read_back),
    cmocka_unit_test(anything_else_is_refused),
    cmocka_unit_test(a_process_is_a_nid_with_or_without_a_pid),
    cmocka_unit_test(unknown_nets_and_the_wildcard_are_printed_too),
    cmocka_unit_test(errors_have_names),
};

TEST_MAIN(cases)
