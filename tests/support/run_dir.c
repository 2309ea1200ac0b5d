/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Run directories; see run_dir.h.
 */
#include "tests/support/run_dir.h"

#include "base/assert.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void
run_dir_make(char path[64])
{
    (void)snprintf(path, 64, "/tmp/causeway-test-XXXXXX");
    BASE_ASSERT(mkdtemp(path) != NULL);
}

void
run_dir_remove(const char *path)
{
    DIR *dir = opendir(path);

    BASE_ASSERT(dir != NULL);
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        (void)unlinkat(dirfd(dir), entry->d_name, 0);
    }
    (void)closedir(dir);
    (void)rmdir(path);
}
