/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks without MPI: one. A process that mpirun started as one of several becomes `causeway-mpi`,
 * which stands beside this executable. See workload_world.h.
 */
#include "tools/workload_world.h"

#include "base/assert.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Did a launcher start this process as one of several ranks, or may it have? */
static bool
is_one_of_several(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};

    for (size_t i = 0; i < BASE_ARRAY_LEN(sizes); i++) {
        const char *size = getenv(sizes[i]); // NOLINT(concurrency-mt-unsafe): one thread so far

        if (size != NULL) {
            return strcmp(size, "1") != 0;
        }
    }
    return getenv("PMIX_RANK") != NULL; // NOLINT(concurrency-mt-unsafe): one thread so far
}

bool
ranks_begin(char **argv)
{
    static const char name[] = "causeway-mpi";
    char path[PATH_MAX + sizeof(name)];
    size_t count = 0;

    if (!is_one_of_several()) {
        return true;
    }
    const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    while (argv[count] != NULL) {
        count++;
    }
    char **args = calloc(count + 2, sizeof(*args));
    if (length > 0 && args != NULL) {
        path[length] = '\0';
        memcpy(strrchr(path, '/') + 1, name, sizeof(name));
        args[0] = path;
        memcpy(args + 1, argv, count * sizeof(*argv));
        (void)execv(path, args);
    }
    free(args);
    if (world_is_silent()) {
        return false;
    }
    (void)fprintf(stderr,
                  "causeway %s: no causeway-mpi beside this executable (built without MPI): "
                  "running one rank, the other processes do nothing\n",
                  argv[0]);
    return true;
}

bool
ranks_open(struct world *world, uint64_t tasks_max)
{
    (void)tasks_max;
    world->rank = 0;
    world->size = 1;
    return true;
}

void
ranks_close(void)
{
}

void
ranks_barrier(void)
{
}

void
ranks_gather(const void *mine, size_t bytes, void *all)
{
    memcpy(all, mine, bytes);
}

int64_t
ranks_clock_offset(const struct world *world)
{
    (void)world;
    return 0;
}
