/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mdtest workload: what its files share.
 *
 * mdtest_tree.c knows the shape and the names, mdtest_phase.c does and measures, mdtest_report.c
 * prints, cmd_mdtest.c reads the flags and says what comes when.
 *
 * The tree's directories are numbered in breadth: those below number k are k * b + 1 to k * b + b.
 * An item's number is that of its directory times the items in a directory, plus its place there.
 */
#pragma once

#include "tools/workload_io.h"
#include "tools/workload_stats.h"
#include "tools/workload_world.h"

#include <limits.h>

#define MD_DEPTH_MAX 64u
#define MD_UNSET     UINT64_MAX

struct md_options {
    const char *api, *path, *json;
    uint64_t items, per_dir; /* MD_UNSET: not given */
    uint64_t branching, depth, stride, iterations;
    uint64_t write_bytes, read_bytes, pre_delay_s, no_barriers, verbose, verbosity, seed;
    bool unique, leaf_only, files_only, dirs_only;
    bool create, stat, read, remove, rename; /* phases */
    bool sync, mknod, random, print_time, print_both;
};

struct md_shape {
    uint64_t dirs;      /* of a tree */
    uint64_t first_dir; /* the first that gets items */
    uint64_t per_dir;   /* items in each that gets any */
    uint64_t items;     /* of a task */
};

enum md_phase {
    MD_DIR_CREATE,
    MD_DIR_STAT,
    MD_DIR_RENAME,
    MD_DIR_REMOVE,
    MD_FILE_CREATE,
    MD_FILE_STAT,
    MD_FILE_READ,
    MD_FILE_REMOVE,
    MD_TREE_CREATE,
    MD_TREE_REMOVE,
};
#define MD_PHASE_COUNT 10u

/* What one rank measured in one phase. */
struct md_rank {
    struct stats_span span; /* unset: not run */
    uint64_t done, failed;
};

/* One phase of one iteration over all ranks. */
struct md_result {
    struct stats_spread time;
    uint64_t done, failed;
    double ops_per_s; /* NAN: not measured */
    double rank_min_ops_per_s, rank_max_ops_per_s, rank_mean_ops_per_s;
};

struct mdtest {
    struct md_options options;
    struct md_shape shape;
    struct world world;
    struct io io;
    uint64_t start_ns, start_wall_ns;
    char *buffer;
    uint64_t *order;     /* of the items, with -R */
    struct md_rank *all; /* [iteration][rank][phase] */
    uint32_t iteration;
    uint32_t iterations_done;
    struct md_rank mine[MD_PHASE_COUNT];
    int argc;
    char **argv;
};

/* ---- shape and names ---- */

/* Returns 0, or -EOVERFLOW if that many directories or items can't be counted or named. */
int md_shape_compute(const struct md_options *options, struct md_shape *shape_out);

/* Makes one path after another; the part they have in common is kept. */
struct md_namer {
    const struct mdtest *md;
    char path[PATH_MAX];
    size_t dir_bytes; /* of it, the directory's, 0: none yet */
    uint64_t dir;
    uint32_t owner;
};

/* Begins names in the current iteration. */
void md_namer_begin(struct md_namer *namer, const struct mdtest *md);

/* The directory that holds the tree or trees. */
const char *md_name_top(struct md_namer *namer);

/* Directory @dir of @owner's tree; without -u all owners have the same one. */
const char *md_name_dir(struct md_namer *namer, uint32_t owner, uint64_t dir);

/* Item @index, from 0 to shape.items - 1, of @owner; @suffix is put behind it. */
const char *md_name_item(struct md_namer *namer, uint32_t owner, bool is_dir, uint64_t index,
                         const char *suffix);

/* ---- phases ---- */

/* "File creation". */
const char *md_phase_name(enum md_phase phase);

/* Do the options ask for it? */
bool md_phase_is_wanted(const struct md_options *options, enum md_phase phase);

/* Runs @phase on this rank into md->mine[phase]. */
void md_phase_run(struct mdtest *md, enum md_phase phase);

/* Makes and removes the directory that holds the trees. Not measured. Returns 0 or an error. */
int md_top_make(const struct mdtest *md);
void md_top_remove(const struct mdtest *md);

/* The sum over @rank_count ranks, each @stride records apart from @first on; pure arithmetic. */
struct md_result md_result_compute(const struct md_rank *first, size_t stride, uint32_t rank_count);

/* The same for a phase of an iteration that was gathered. */
struct md_result md_result_of(const struct mdtest *md, uint32_t iteration, enum md_phase phase);

/* ---- the report, on rank 0 ---- */

/* What is run where. */
void md_report_head(const struct mdtest *md);

/* With -v: the iteration that has just been gathered. */
void md_report_iteration(const struct mdtest *md);

/* The tables, what was not run, and what failed. */
void md_report_summary(const struct mdtest *md);

/* Writes the JSON file. Returns 0 or a negative errno. */
int md_report_json(const struct mdtest *md, int exit_status);
