/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks of a workload: who they are, what time it is, how they meet.
 *
 * The first half is made of the second, which has two implementations: workload_solo.c is one rank
 * in one process; workload_mpi.c is MPI, and is linked only into the executable `causeway-mpi`, so
 * that nothing else of the command line starts or even loads an MPI library.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct world {
    uint32_t rank;
    uint32_t size;
    uint32_t nodes;          /* that ranks run on */
    uint32_t tasks_per_node; /* ranks on rank 0's node */
    int64_t clock_offset_ns; /* to rank 0's clock */
    char host[64];
};

/*
 * Finds the other ranks. With @tasks_max > 0 only that many take part. Returns false if this rank
 * does not: it has left already and ends with status 0.
 */
bool world_open(struct world *world, uint64_t tasks_max);

/* Leaves. */
void world_close(struct world *world);

/*
 * Nanoseconds by rank 0's clock: on one node exact, across nodes as good as the network is
 * symmetric.
 */
uint64_t world_now_ns(const struct world *world);

/* Waits until all ranks are here. */
void world_barrier(const struct world *world);

/* Gives the @bytes at @mine to all; @all has room for those of every rank, in their order. */
void world_gather(const struct world *world, const void *mine, size_t bytes, void *all);

/* @value of rank 0, for all. */
uint64_t world_share(const struct world *world, uint64_t value);

/* The largest @value of all ranks. */
uint64_t world_max(const struct world *world, uint64_t value);

/* True if this process was started as a rank but is not the first: others say what there is. */
bool world_is_silent(void);

/* ---- what the two implementations supply ---- */

/*
 * Run before anything else with the command line of the workload @argv[0]. The solo implementation
 * goes over to causeway-mpi if it is one of several ranks; it returns only if it need not or
 * cannot. Returns false if this process is a rank that shall do nothing, for want of MPI.
 */
bool ranks_begin(char **argv);

/* Fills rank and size. Returns false as world_open(). */
bool ranks_open(struct world *world, uint64_t tasks_max);

/* As the world_ functions of the same names. */
void ranks_close(void);
void ranks_barrier(void);
void ranks_gather(const void *mine, size_t bytes, void *all);

/* How far this rank's clock is behind rank 0's, when they run on different nodes. */
int64_t ranks_clock_offset(const struct world *world);
