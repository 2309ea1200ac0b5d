/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * causeway mdtest - the mdtest workload on the client API or on any directory: flags, and what
 * comes when.
 *
 * Each iteration: make the tree; directories: create, stat, rename, remove; files: create, stat,
 * read, remove; remove the tree. Results are gathered once an iteration.
 */
#include "tools/commands.h"

#include "base/assert.h"
#include "base/clock.h"
#include "tools/mdtest.h"
#include "tools/workload_data.h"
#include "tools/workload_flags.h"

#include <assert.h>
#include <causeway/lnet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUFFER_ALIGN 4096u

static const struct flag_set *
flag_set(struct md_options *o)
{
    static struct flag_def flags[64];
    static struct flag_set set = {
        .command = "causeway mdtest",
        .summary =
            "The mdtest workload: every rank creates, stats, renames, reads and removes "
            "directories and\nempty files, in one shared directory or each in its own. Start it "
            "with mpirun for several ranks.\n-a CAUSEWAY uses the client API, with a client per "
            "rank; -a POSIX uses libc, on any directory.\nWithout -a: CAUSEWAY for a path below "
            "the prefix when `causeway run` started it, else POSIX.\nWithout any of -C -T -E -r "
            "-U: all phases. Exit status: 1 for failed operations, 2 for a wrong\ncommand line.",
        .example = "causeway run -- mpirun -np 4 causeway mdtest -n 2000 -F -i 3 -d /causeway/md",
        .flags = flags,
    };
    const uint64_t many = UINT64_C(1) << 32;
    const struct flag_def table[] = {
        {'a', FLAG_TEXT, NULL, &o->api, 0, 0, "POSIX|CAUSEWAY", "API", "how to reach the files"},
        {'b', FLAG_NUMBER, NULL, &o->branching, 1, many, NULL, "N", "branching of the tree"},
        {'B', FLAG_NUMBER, NULL, &o->no_barriers, 0, 1, NULL, "0|1",
         "1: no barriers between phases"},
        {'C', FLAG_SET, NULL, &o->create, 0, 0, NULL, NULL, "only create"},
        {'d', FLAG_TEXT, NULL, &o->path, 0, 0, NULL, "DIR", "where the tree is made"},
        {'D', FLAG_SET, NULL, &o->dirs_only, 0, 0, NULL, NULL, "only directories"},
        {'e', FLAG_SIZE, NULL, &o->read_bytes, 0, many, NULL, "SIZE", "bytes to read of each file"},
        {'E', FLAG_SET, NULL, &o->read, 0, 0, NULL, NULL, "only read"},
        {'F', FLAG_SET, NULL, &o->files_only, 0, 0, NULL, NULL, "only files"},
        {'i', FLAG_NUMBER, NULL, &o->iterations, 1, 100000, NULL, "N", "iterations"},
        {'I', FLAG_NUMBER, NULL, &o->per_dir, 0, many, NULL, "N",
         "items in each directory of the tree"},
        {'k', FLAG_SET, NULL, &o->mknod, 0, 0, NULL, NULL, "create files by mknod"},
        {'L', FLAG_SET, NULL, &o->leaf_only, 0, 0, NULL, NULL,
         "items only in the tree's lowest directories"},
        {'n', FLAG_NUMBER, NULL, &o->items, 0, many, NULL, "N", "items of each task"},
        {'N', FLAG_NUMBER, NULL, &o->stride, 0, many, NULL, "N",
         "each phase turns to the items of the rank N further"},
        {'p', FLAG_NUMBER, NULL, &o->pre_delay_s, 0, 86400, NULL, "SECONDS",
         "wait before each iteration"},
        {'P', FLAG_SET, NULL, &o->print_both, 0, 0, NULL, NULL, "print rates and times"},
        {'r', FLAG_SET, NULL, &o->remove, 0, 0, NULL, NULL, "only remove"},
        {'R', FLAG_SET, NULL, &o->random, 0, 0, NULL, NULL, "stat in random order"},
        {'T', FLAG_SET, NULL, &o->stat, 0, 0, NULL, NULL, "only stat"},
        {'u', FLAG_SET, NULL, &o->unique, 0, 0, NULL, NULL, "a tree for each task"},
        {'U', FLAG_SET, NULL, &o->rename, 0, 0, NULL, NULL, "only rename"},
        {'v', FLAG_COUNTED, NULL, &o->verbose, 0, 0, NULL, NULL, "say more"},
        {'V', FLAG_NUMBER, NULL, &o->verbosity, 0, 100, NULL, "N", "as N times -v"},
        {'w', FLAG_SIZE, NULL, &o->write_bytes, 0, many, NULL, "SIZE",
         "bytes to write to each new file"},
        {'y', FLAG_SET, NULL, &o->sync, 0, 0, NULL, NULL, "fsync each new file"},
        {'z', FLAG_NUMBER, NULL, &o->depth, 0, MD_DEPTH_MAX, NULL, "N", "depth of the tree"},
        {'Z', FLAG_SET, NULL, &o->print_time, 0, 0, NULL, NULL, "print times instead of rates"},
        {0, FLAG_NUMBER, "random-seed", &o->seed, 0, INT64_MAX, NULL, "N", "seed for -R"},
        {0, FLAG_TEXT, "json", &o->json, 0, 0, NULL, "FILE", "write options and results as JSON"},
        {'c', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "task 0 makes everything"},
        {'f', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "first number of tasks"},
        {'G', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "signature of the data"},
        {'l', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "last number of tasks"},
        {'s', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "stride between numbers of tasks"},
        {'S', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "shared file access"},
        {'t', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "time the making of directories for -u"},
        {'W', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "stonewall timer"},
        {'x', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "stonewall status file"},
        {'X', FLAG_REFUSED, "verify-read", NULL, 0, 0, NULL, NULL, "verify the data read"},
        {'Y', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "the sync command after each phase"},
        {0, FLAG_REFUSED, "verify-write", NULL, 0, 0, NULL, NULL, "verify the data written"},
        {0, FLAG_REFUSED, "print-all-procs", NULL, 0, 0, NULL, NULL, "results of all processes"},
        {0, FLAG_REFUSED, "warningAsErrors", NULL, 0, 0, NULL, NULL, "warnings are errors"},
        {0, FLAG_REFUSED, "showRankStatistics", NULL, 0, 0, NULL, NULL,
         "statistics by rank; --json has them"},
        {0, FLAG_REFUSED, "dataPacketType", NULL, 0, 0, NULL, NULL, "kind of data"},
        {0, FLAG_REFUSED, "posix.odirect", NULL, 0, 0, NULL, NULL, "open with O_DIRECT"},
    };
    static_assert(BASE_ARRAY_LEN(table) <= BASE_ARRAY_LEN(flags), "room for all flags");

    memcpy(flags, table, sizeof(table));
    set.count = BASE_ARRAY_LEN(table);
    set.is_silent = world_is_silent();
    return &set;
}

/* ---- checks before anything is started ---- */

static int
refuse(const struct flag_set *set, const char *text)
{
    if (!set->is_silent) {
        (void)fprintf(stderr, "%s: %s\n", set->command, text);
    }
    return 2;
}

static int
resolve(const struct flag_set *set, struct md_options *o, struct md_shape *shape)
{
    char text[PATH_MAX + 200];

    if (!o->create && !o->stat && !o->read && !o->remove && !o->rename) {
        o->create = o->stat = o->read = o->remove = o->rename = true;
    }
    if (o->files_only && o->dirs_only) {
        return refuse(set, "options '-F' and '-D' exclude each other");
    }
    if (o->items != MD_UNSET && o->per_dir != MD_UNSET) {
        return refuse(set, "options '-n' and '-I' exclude each other: items of a task, or of a "
                           "directory");
    }
    if (o->create && o->read && o->read_bytes > o->write_bytes) {
        (void)snprintf(text, sizeof(text),
                       "option '-e': %llu is more than the %llu bytes written "
                       "(-w)",
                       (unsigned long long)o->read_bytes, (unsigned long long)o->write_bytes);
        return refuse(set, text);
    }
    if (o->mknod && (o->write_bytes > 0 || o->sync)) {
        return refuse(set, "option '-k': a file made by mknod is not written (-w, -y)");
    }
    if (strchr(o->path, '@') != NULL) {
        return refuse(set, "option '-d': several directories (dir1@dir2) are not implemented");
    }
    o->api = io_api(o->api, o->path);
    const char *why = io_refuse(o->api, o->path);
    if (why != NULL) {
        (void)snprintf(text, sizeof(text), "option '-d': '%s': %s", o->path, why);
        return refuse(set, text);
    }
    if (md_shape_compute(o, shape) != 0) {
        return refuse(set, "options '-b', '-z', '-n', '-I', '-d': too many items, or names too "
                           "long");
    }
    if (shape->items == 0 && !set->is_silent) {
        (void)fprintf(stderr,
                      "causeway mdtest: warning: there are no items: %llu directories share %llu "
                      "(-n)\n",
                      (unsigned long long)(shape->dirs - shape->first_dir),
                      (unsigned long long)(o->items != MD_UNSET ? o->items : 0));
    }
    return 0;
}

/* ---- the run ---- */

static const enum md_phase phase_order[] = {
    MD_DIR_CREATE,  MD_DIR_STAT,  MD_DIR_RENAME, MD_DIR_REMOVE,
    MD_FILE_CREATE, MD_FILE_STAT, MD_FILE_READ,  MD_FILE_REMOVE,
};

static void
iterate(struct mdtest *md)
{
    const struct timespec pause = {.tv_sec = (time_t)md->options.pre_delay_s};

    memset(md->mine, 0, sizeof(md->mine));
    if (pause.tv_sec > 0) {
        (void)nanosleep(&pause, NULL);
    }
    if (md->options.create) {
        if (md_top_make(md) != 0) {
            md->mine[MD_TREE_CREATE].failed++;
        }
        md_phase_run(md, MD_TREE_CREATE);
        world_barrier(&md->world); /* also with -B: nobody may be faster than the tree */
    }
    for (size_t i = 0; i < BASE_ARRAY_LEN(phase_order); i++) {
        if (md_phase_is_wanted(&md->options, phase_order[i])) {
            md_phase_run(md, phase_order[i]);
        }
    }
    if (md->options.remove) {
        md_phase_run(md, MD_TREE_REMOVE);
        world_barrier(&md->world);
        md_top_remove(md);
    }
    world_gather(&md->world, md->mine, sizeof(md->mine),
                 md->all + (size_t)md->iteration * md->world.size * MD_PHASE_COUNT);
    md->iterations_done++;
}

static bool
has_failures(const struct mdtest *md)
{
    const size_t count = (size_t)md->iterations_done * md->world.size * MD_PHASE_COUNT;

    for (size_t i = 0; i < count; i++) {
        if (md->all[i].failed > 0) {
            return true;
        }
    }
    return false;
}

static int
prepare(struct mdtest *md)
{
    const struct md_options *options = &md->options;
    const uint64_t bytes =
        options->write_bytes > options->read_bytes ? options->write_bytes : options->read_bytes;
    const int rc = io_open(&md->io, options->api, options->path);

    if (rc != 0) {
        (void)fprintf(stderr, "causeway mdtest: rank %u: cannot reach the servers: %s\n",
                      md->world.rank, lnet_error_name(rc));
        return rc;
    }
    md->buffer = aligned_alloc(BUFFER_ALIGN, (bytes / BUFFER_ALIGN + 1) * BUFFER_ALIGN);
    md->order = options->random ? calloc(md->shape.items + 1, sizeof(*md->order)) : NULL;
    md->all = calloc(options->iterations * md->world.size * MD_PHASE_COUNT, sizeof(*md->all));
    if (md->buffer == NULL || (options->random && md->order == NULL) || md->all == NULL) {
        (void)fprintf(stderr, "causeway mdtest: rank %u: out of memory\n", md->world.rank);
        return -ENOMEM;
    }
    data_fill((struct data_mark){0, md->world.rank}, 0, md->buffer, (size_t)bytes);
    return 0;
}

static void
release(struct mdtest *md)
{
    free(md->all);
    free(md->order);
    free(md->buffer);
    io_close(&md->io);
}

/* Runs, the ranks having met. Returns the exit status. */
static int
run(struct mdtest *md)
{
    int status = 0;

    md->start_wall_ns = base_clock_wall_ns();
    md->start_ns = world_share(&md->world, world_now_ns(&md->world));
    if (world_max(&md->world, prepare(md) != 0 ? 1 : 0) != 0) {
        release(md);
        return 1;
    }
    if (md->world.rank == 0) {
        md_report_head(md);
    }
    for (md->iteration = 0; md->iteration < md->options.iterations; md->iteration++) {
        iterate(md);
        if (md->world.rank == 0) {
            md_report_iteration(md);
        }
    }
    status = has_failures(md) ? 1 : 0;
    if (md->world.rank == 0) {
        md_report_summary(md);
        if (md->options.json != NULL && md_report_json(md, status) != 0) {
            status = 1;
        }
    }
    status = (int)world_max(&md->world, (uint64_t)status);
    release(md);
    return status;
}

int
cmd_mdtest(int argc, char **argv)
{
    struct mdtest *md = calloc(1, sizeof(*md));
    bool dry_run = false;

    if (md == NULL) {
        (void)fprintf(stderr, "causeway mdtest: out of memory\n");
        return 1;
    }
    *md = (struct mdtest){.options = {.path = "./out",
                                      .items = MD_UNSET,
                                      .per_dir = MD_UNSET,
                                      .branching = 1,
                                      .iterations = 1},
                          .argc = argc,
                          .argv = argv};
    int status = 0;
    if (ranks_begin(argv)) {
        const struct flag_set *set = flag_set(&md->options);
        const enum flags_result result = flags_read(set, argc, argv, &dry_run);

        if (result != FLAGS_RUN) {
            status = result == FLAGS_STOP ? 0 : 2;
        } else {
            status = resolve(set, &md->options, &md->shape);
        }
        if (result == FLAGS_RUN && status == 0 && dry_run && !set->is_silent) {
            flags_print(set, stdout);
        }
        if (result == FLAGS_RUN && status == 0 && !dry_run && world_open(&md->world, 0)) {
            status = run(md);
            world_close(&md->world);
        }
    }
    free(md);
    return status;
}
