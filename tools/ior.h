/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The IOR workload: what its files share.
 *
 * ior_phase.c moves the data and measures, ior_report.c prints, cmd_ior.c reads the flags and says
 * what comes when. Words are IOR's: a *segment* holds one *block* of each task (or of one task,
 * with a file per process), a block is made of *transfers*.
 */
#pragma once

#include "tools/workload_data.h"
#include "tools/workload_io.h"
#include "tools/workload_stats.h"
#include "tools/workload_world.h"

#include <limits.h>
#include <stdio.h>

struct ior_options {
    const char *api, *file, *json;
    uint64_t block_bytes, transfer_bytes, segments;
    uint64_t repetitions, delay_s, deadline_s, minutes_max, tasks;
    uint64_t task_offset, signature, random_seed, reference, verbose;
    bool write, read, check_write, check_read;
    bool per_process, reorder, random, unique_dir, multi_file;
    bool fsync, fsync_each, barriers, keep, keep_with_error, use_existing, direct;
};

enum ior_access {
    IOR_WRITE,
    IOR_CHECK, /* read what was written, for -W; not part of any figure */
    IOR_READ,
    IOR_REMOVE,
};

/* What one rank measured in one phase. */
struct ior_rank {
    struct stats_span open, transfer, sync, close;
    uint64_t bytes, transfers; /* done */
    uint64_t check_ns;         /* of the transfer time: filling and checking data */
    struct data_error data;
    int32_t error;   /* negative errno that ended the phase on this rank */
    bool is_stopped; /* by the deadline */
};

/* One phase of one repetition over all ranks. */
struct ior_result {
    enum ior_access access;
    uint32_t repetition;
    struct ior_rank *ranks;
    struct stats_spread open, transfer, sync, close, total;
    uint64_t move_ns; /* first transfer's start to the last transfer's or fsync's end */
    uint64_t bytes, transfers, expected_bytes, data_errors;
    double bytes_per_s, ops_per_s, latency_s; /* NAN: not measured */
    bool has_failed, is_stopped;
};

struct ior {
    struct ior_options options;
    struct world world;
    struct io io;
    uint32_t shift;     /* ranks between the writer and the reader of a block */
    uint32_t signature; /* of the data */
    bool is_marked;     /* the data describe themselves: they will be, or may be, checked */
    uint64_t start_ns, start_wall_ns;
    char *buffer;
    uint64_t *order;   /* of the transfers in a block, with -z */
    uint64_t *written; /* transfers by rank in this repetition; UINT64_MAX: not written by us */
    struct ior_result *results;
    uint32_t result_count;
    uint32_t repetition;
    int argc;
    char **argv;
};

/* The name of the file that holds @owner's data in this repetition. */
void ior_path(const struct ior *ior, uint32_t owner, char path[PATH_MAX]);

/* Where in its file transfer @index of @owner's @segment lies. */
uint64_t ior_offset(const struct ior_options *options, uint32_t tasks, uint32_t owner,
                    uint64_t segment, uint64_t index);

/* Runs one phase on all ranks; the result is appended to ior->results. */
const struct ior_result *ior_phase(struct ior *ior, enum ior_access access);

/* Fills in @result what follows from its ranks' measurements; pure arithmetic. */
void ior_result_compute(struct ior_result *result, uint32_t rank_count);

/* "write", "read"... */
const char *ior_access_name(enum ior_access access);

/* Removes what an earlier run left; not measured. */
void ior_clear(const struct ior *ior);

/* ---- the report, on rank 0 ---- */

/* Everything above the rows of results. */
void ior_report_head(const struct ior *ior);

/* The columns' names. */
void ior_report_columns(void);

/* One row; nothing for what is not part of any figure. */
void ior_report_row(const struct ior *ior, const struct ior_result *result);

/* Everything below the rows. */
void ior_report_summary(const struct ior *ior);

/* Writes the JSON file. Returns 0 or a negative errno. */
int ior_report_json(const struct ior *ior, int exit_status);
