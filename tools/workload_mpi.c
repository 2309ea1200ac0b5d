/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks by MPI. See workload_world.h.
 */
#include "tools/workload_world.h"

#include "base/clock.h"

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>

#define CLOCK_ROUNDS 32

static MPI_Comm ranks = MPI_COMM_NULL;

bool
ranks_begin(char **argv)
{
    (void)argv;
    return true;
}

bool
ranks_open(struct world *world, uint64_t tasks_max)
{
    int rank = 0;
    int size = 0;

    (void)MPI_Init(NULL, NULL);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const bool takes_part = tasks_max == 0 || (uint64_t)rank < tasks_max;
    (void)MPI_Comm_split(MPI_COMM_WORLD, takes_part ? 0 : MPI_UNDEFINED, rank, &ranks);
    if (!takes_part) {
        (void)MPI_Finalize();
        return false;
    }
    (void)MPI_Comm_rank(ranks, &rank);
    (void)MPI_Comm_size(ranks, &size);
    world->rank = (uint32_t)rank;
    world->size = (uint32_t)size;
    return true;
}

void
ranks_close(void)
{
    (void)MPI_Finalize();
}

void
ranks_barrier(void)
{
    (void)MPI_Barrier(ranks);
}

void
ranks_gather(const void *mine, size_t bytes, void *all)
{
    (void)MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, ranks);
}

/* Asks rank 0 for its time, and believes the answer that came back fastest. */
static int64_t
ask_clock(void)
{
    uint64_t best_ns = UINT64_MAX;
    int64_t offset_ns = 0;

    for (int i = 0; i < CLOCK_ROUNDS; i++) {
        uint64_t theirs_ns = 0;
        const uint64_t start_ns = base_clock_now_ns();

        (void)MPI_Send(&theirs_ns, 0, MPI_BYTE, 0, 0, ranks);
        (void)MPI_Recv(&theirs_ns, 1, MPI_UINT64_T, 0, 0, ranks, MPI_STATUS_IGNORE);
        const uint64_t trip_ns = base_clock_now_ns() - start_ns;
        if (trip_ns < best_ns) {
            best_ns = trip_ns;
            offset_ns = (int64_t)(theirs_ns - (start_ns + trip_ns / 2));
        }
    }
    return offset_ns;
}

static void
tell_clock(int rank)
{
    for (int i = 0; i < CLOCK_ROUNDS; i++) {
        (void)MPI_Recv(NULL, 0, MPI_BYTE, rank, 0, ranks, MPI_STATUS_IGNORE);
        const uint64_t now_ns = base_clock_now_ns();
        (void)MPI_Send(&now_ns, 1, MPI_UINT64_T, rank, 0, ranks);
    }
}

int64_t
ranks_clock_offset(const struct world *world)
{
    int64_t offset_ns = 0;

    for (uint32_t i = 1; i < world->size; i++) {
        if (world->rank == 0) {
            tell_clock((int)i);
        } else if (world->rank == i) {
            offset_ns = ask_clock();
        }
        ranks_barrier();
    }
    return offset_ns;
}
