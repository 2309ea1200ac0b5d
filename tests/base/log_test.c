/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/log.c: lines reach the writer whole or visibly cut, and only those that are wanted.
 */
#include "base/log.h"

#include "tests/test.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static char last[BASE_LOG_TEXT_BYTES];
static uint32_t line_count;

static void
capture(void *arg, int level, const char *subsystem, const char *text)
{
    assert_ptr_equal(arg, &line_count);
    assert_string_equal(subsystem, "peer");
    (void)snprintf(last, sizeof(last), "%d %s", level, text);
    line_count++;
    errno = EBADF;
}

static struct base_log log_to_test = {.write = capture, .arg = &line_count, .level_max = 1};

static void
a_line_reaches_the_writer_formatted(void **state)
{
    errno = ENOENT;
    base_log_printf(&log_to_test, BASE_LOG_WARN, "peer", "%s: %d of %d", "3@shm", 9, 8);
    assert_string_equal(last, "1 3@shm: 9 of 8");
    assert_int_equal(errno, ENOENT);
}

static void
lines_above_the_level_are_dropped(void **state)
{
    const uint32_t before = line_count;

    base_log_printf(&log_to_test, BASE_LOG_INFO, "peer", "unseen");
    assert_int_equal(line_count, before);
}

static void
a_null_log_is_silent(void **state)
{
    base_log_printf(NULL, BASE_LOG_ERROR, "peer", "unseen");
}

static void
a_long_line_ends_in_dots(void **state)
{
    static char text[2 * BASE_LOG_TEXT_BYTES];
    char seen[BASE_LOG_TEXT_BYTES];

    (void)memset(text, 'x', sizeof(text) - 1);
    base_log_printf(&log_to_test, BASE_LOG_ERROR, "peer", "%s", text);
    (void)memcpy(seen, last, sizeof(seen));
    assert_int_equal(strlen(seen), BASE_LOG_TEXT_BYTES - 1);
    assert_int_equal(seen[BASE_LOG_TEXT_BYTES - 2], '.');
}

static void
errno_names_are_those_of_the_manual(void **state)
{
    assert_string_equal(base_errno_name(-ETIMEDOUT), "ETIMEDOUT");
    assert_string_equal(base_errno_name(ESTALE), "ESTALE");
    assert_string_equal(base_errno_name(0), "OK");
    assert_string_equal(base_errno_name(-99999), "EUNKNOWN");
    assert_string_equal(base_errno_name(INT_MIN), "EUNKNOWN");
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_line_reaches_the_writer_formatted),
    cmocka_unit_test(lines_above_the_level_are_dropped),
    cmocka_unit_test(a_null_log_is_silent),
    cmocka_unit_test(a_long_line_ends_in_dots),
    cmocka_unit_test(errno_names_are_those_of_the_manual),
};

TEST_MAIN(cases)
