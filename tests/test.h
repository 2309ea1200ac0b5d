/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What every unit test includes: cmocka with what it needs before it, and one macro.
 *
 * A test file is static functions `void sentence(void **state)` and TEST_MAIN() over a table of
 * cmocka_unit_test() entries. The parameter may stay unused. Exit code 77 says "skipped".
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/assert.h"

#define TEST_EXIT_SKIP 77

/* Defines main() for the table @cases. */
#define TEST_MAIN(cases)                                  \
    int main(void)                                        \
    {                                                     \
        return cmocka_run_group_tests(cases, NULL, NULL); \
    }

/*
 * Asserts that @call ends the process by abort(), as a failed BASE_ASSERT does. It runs in a child,
 * whose stderr is closed.
 */
#define TEST_ABORTS(call)                                                          \
    do {                                                                           \
        const pid_t test_child = fork();                                           \
        assert_true(test_child >= 0);                                              \
        if (test_child == 0) {                                                     \
            (void)close(2);                                                        \
            (void)signal(SIGABRT, SIG_DFL);                                        \
            call;                                                                  \
            _exit(0);                                                              \
        }                                                                          \
        int test_status = 0;                                                       \
        assert_int_equal(waitpid(test_child, &test_status, 0), test_child);        \
        assert_true(WIFSIGNALED(test_status) && WTERMSIG(test_status) == SIGABRT); \
    } while (0)

/* For TEST_ABORTS(). */
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
