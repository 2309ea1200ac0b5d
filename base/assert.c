/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of a failed assertion.
 */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void
base_assert_fail(const char *file, int line, const char *what)
{
    (void)fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, what);
    abort();
}
