/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks: what does not depend on how they talk. See workload_world.h.
 */
#include "tools/workload_world.h"

#include "base/assert.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An array of one @bytes-sized thing per rank. */
static void *
array_of(const struct world *world, size_t bytes)
{
    void *array = calloc(world->size, bytes);

    if (array == NULL) {
        (void)fprintf(stderr, "causeway: out of memory\n");
        abort(); /* no rank may wait for one that just leaves */
    }
    return array;
}

static void
count_nodes(struct world *world)
{
    char(*hosts)[sizeof(world->host)] = array_of(world, sizeof(world->host));

    world_gather(world, world->host, sizeof(world->host), hosts);
    world->nodes = 0;
    world->tasks_per_node = 0;
    for (uint32_t i = 0; i < world->size; i++) {
        uint32_t first = 0;

        while (memcmp(hosts[first], hosts[i], sizeof(world->host)) != 0) {
            first++;
        }
        world->nodes += first == i ? 1 : 0;
        world->tasks_per_node += first == 0 ? 1 : 0;
    }
    free(hosts);
}

bool
world_open(struct world *world, uint64_t tasks_max)
{
    *world = (struct world){0};
    if (!ranks_open(world, tasks_max)) {
        return false;
    }
    BASE_ASSERT(world->size > 0 && world->rank < world->size);
    (void)gethostname(world->host, sizeof(world->host) - 1);
    count_nodes(world);
    if (world->nodes > 1) {
        world->clock_offset_ns = ranks_clock_offset(world);
    }
    return true;
}

void
world_close(struct world *world)
{
    (void)world;
    ranks_close();
}

uint64_t
world_now_ns(const struct world *world)
{
    return base_clock_now_ns() + (uint64_t)world->clock_offset_ns;
}

void
world_barrier(const struct world *world)
{
    if (world->size > 1) {
        ranks_barrier();
    }
}

void
world_gather(const struct world *world, const void *mine, size_t bytes, void *all)
{
    if (world->size > 1) {
        ranks_gather(mine, bytes, all);
    } else {
        memcpy(all, mine, bytes);
    }
}

uint64_t
world_share(const struct world *world, uint64_t value)
{
    uint64_t *all = array_of(world, sizeof(*all));

    world_gather(world, &value, sizeof(value), all);
    value = all[0];
    free(all);
    return value;
}

uint64_t
world_max(const struct world *world, uint64_t value)
{
    uint64_t *all = array_of(world, sizeof(*all));

    world_gather(world, &value, sizeof(value), all);
    for (uint32_t i = 0; i < world->size; i++) {
        value = all[i] > value ? all[i] : value;
    }
    free(all);
    return value;
}

bool
world_is_silent(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};

    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        const char *rank = getenv(names[i]); // NOLINT(concurrency-mt-unsafe): one thread so far

        if (rank != NULL) {
            return strcmp(rank, "0") != 0;
        }
    }
    return false;
}
