/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * causeway ior - the IOR workload on the client API or on any directory: flags, and what comes
 * when.
 *
 * Each repetition: write, check with -W, read, remove. Everything that depends on another rank's
 * state goes through the results that all ranks gather, so all take the same decisions.
 */
#include "tools/commands.h"

#include "base/assert.h"
#include "base/clock.h"
#include "tools/ior.h"
#include "tools/workload_flags.h"

#include <assert.h>
#include <causeway/lnet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUFFER_ALIGN     4096u
#define ORDER_MAX        (UINT64_C(1) << 27) /* transfers in a block with -z: 1 GiB of numbers */
#define PHASES_PER_ROUND 4u

static const struct flag_set *
flag_set(struct ior_options *o)
{
    static struct flag_def flags[64];
    static struct flag_set set = {
        .command = "causeway ior",
        .summary =
            "The IOR workload: every rank writes and reads blocks of one shared file or of files "
            "of its\nown. Start it with mpirun for several ranks. -a CAUSEWAY uses the client API, "
            "with a client per\nrank; -a POSIX uses libc, on any directory. Without -a: CAUSEWAY "
            "for a path below the prefix\nwhen `causeway run` started it, else POSIX. Exit status: "
            "1 for an error or wrong data, 2 for a\nwrong command line.",
        .example = "causeway run -- mpirun -np 4 causeway ior -b 64m -t 1m -F -C -w -r -o "
                   "/causeway/file",
        .flags = flags,
    };
    const uint64_t many = UINT64_C(1) << 40;
    const uint64_t huge = UINT64_C(1) << 50;
    const struct flag_def table[] = {
        {'a', FLAG_TEXT, NULL, &o->api, 0, 0, "POSIX|CAUSEWAY", "API", "how to reach the files"},
        {'A', FLAG_NUMBER, NULL, &o->reference, 0, many, NULL, "N",
         "reference number, printed in the summary"},
        {'b', FLAG_SIZE, NULL, &o->block_bytes, 1, huge, NULL, "SIZE",
         "block: bytes in a row of one task"},
        {'C', FLAG_SET, NULL, &o->reorder, 0, 0, NULL, NULL,
         "read what another node's rank wrote (CAUSEWAY: another rank)"},
        {'d', FLAG_NUMBER, NULL, &o->delay_s, 0, 86400, NULL, "SECONDS",
         "wait between repetitions"},
        {'D', FLAG_NUMBER, NULL, &o->deadline_s, 0, 86400, NULL, "SECONDS",
         "stop writing and reading after so long"},
        {'e', FLAG_SET, NULL, &o->fsync, 0, 0, NULL, NULL,
         "fsync before close, inside the time measured"},
        {'E', FLAG_SET, NULL, &o->use_existing, 0, 0, NULL, NULL,
         "do not remove an existing file before writing"},
        {'F', FLAG_SET, NULL, &o->per_process, 0, 0, NULL, NULL, "a file per process"},
        {'g', FLAG_SET, NULL, &o->barriers, 0, 0, NULL, NULL,
         "barriers between open, transfers and close"},
        {'G', FLAG_NUMBER, NULL, &o->signature, 1, UINT32_MAX, NULL, "N",
         "signature of the data, to check them in another run"},
        {'i', FLAG_NUMBER, NULL, &o->repetitions, 1, 100000, NULL, "N", "repetitions"},
        {'k', FLAG_SET, NULL, &o->keep, 0, 0, NULL, NULL, "keep the files"},
        {'K', FLAG_SET, NULL, &o->keep_with_error, 0, 0, NULL, NULL,
         "keep files with wrong data in them"},
        {'m', FLAG_SET, NULL, &o->multi_file, 0, 0, NULL, NULL, "another file in each repetition"},
        {'N', FLAG_NUMBER, NULL, &o->tasks, 1, 1000000, NULL, "N",
         "how many ranks take part [all]"},
        {'o', FLAG_TEXT, NULL, &o->file, 0, 0, NULL, "FILE", "name of the file"},
        {'Q', FLAG_NUMBER, NULL, &o->task_offset, 0, 1000000, NULL, "N",
         "with -C: how many nodes (CAUSEWAY: ranks) further"},
        {'r', FLAG_SET, NULL, &o->read, 0, 0, NULL, NULL, "read"},
        {'R', FLAG_SET, NULL, &o->check_read, 0, 0, NULL, NULL, "check what is read"},
        {'s', FLAG_NUMBER, NULL, &o->segments, 1, many, NULL, "N", "segments"},
        {'t', FLAG_SIZE, NULL, &o->transfer_bytes, 1, UINT64_C(1) << 34, NULL, "SIZE",
         "transfer: bytes of one call"},
        {'T', FLAG_NUMBER, NULL, &o->minutes_max, 0, 100000, NULL, "MINUTES",
         "begin no repetition after so long; 0: no limit"},
        {'u', FLAG_SET, NULL, &o->unique_dir, 0, 0, NULL, NULL,
         "with -F: a directory for each file"},
        {'v', FLAG_COUNTED, NULL, &o->verbose, 0, 0, NULL, NULL, "say more"},
        {'w', FLAG_SET, NULL, &o->write, 0, 0, NULL, NULL, "write (neither -w nor -r: both)"},
        {'W', FLAG_SET, NULL, &o->check_write, 0, 0, NULL, NULL,
         "read and check what was written, outside the time measured"},
        {'Y', FLAG_SET, NULL, &o->fsync_each, 0, 0, NULL, NULL, "fsync after every write"},
        {'z', FLAG_SET, NULL, &o->random, 0, 0, NULL, NULL, "transfers of a block in random order"},
        {0, FLAG_NUMBER, "random-offset-seed", &o->random_seed, 0, INT64_MAX, NULL, "N",
         "seed for -z"},
        {0, FLAG_SET, "posix.odirect", &o->direct, 0, 0, NULL, NULL, "open with O_DIRECT"},
        {0, FLAG_TEXT, "json", &o->json, 0, 0, NULL, "FILE", "write options and results as JSON"},
        {'B', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL,
         "O_DIRECT in IOR 2 and 3; --posix.odirect since"},
        {'c', FLAG_REFUSED, "collective", NULL, 0, 0, NULL, NULL, "collective I/O"},
        {'f', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "read options from a script file"},
        {'H', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "show MPI hints"},
        {'j', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "warn of ranks far from the mean"},
        {'J', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "HDF5 alignment"},
        {'l', FLAG_REFUSED, "dataPacketType", NULL, 0, 0, NULL, NULL, "kind of data"},
        {'M', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "hog memory on the node"},
        {'n', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "HDF5 without fill"},
        {'O', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "directives of a script"},
        {'p', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "preallocate"},
        {'P', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "MPI-IO shared file pointer"},
        {'q', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL,
         "quit on error; every error ends the run here"},
        {'S', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "strided data types"},
        {'U', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "file of MPI hints"},
        {'V', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "MPI file view"},
        {'x', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "do not finish short transfers"},
        {'X', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "seed of -Z"},
        {'y', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "dual mount"},
        {'Z', FLAG_REFUSED, NULL, NULL, 0, 0, NULL, NULL, "random task order for reading"},
        {0, FLAG_REFUSED, "warningAsErrors", NULL, 0, 0, NULL, NULL, "warnings are errors"},
        {0, FLAG_REFUSED, "dryRun", NULL, 0, 0, NULL, NULL, "--dry-run here"},
        {0, FLAG_REFUSED, "randomPrefill", NULL, 0, 0, NULL, NULL, "fill the file first for -z"},
        {0, FLAG_REFUSED, "posix.rangelocks", NULL, 0, 0, NULL, NULL, "range locks"},
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

/* Resolves what follows from other options. Returns 0, or 2 with the reason printed. */
static int
resolve(const struct flag_set *set, struct ior_options *o)
{
    char text[PATH_MAX + 200];

    if (!o->write && !o->read && !o->check_write && !o->check_read) {
        o->write = true;
        o->read = true;
    }
    o->read = o->read || o->check_read;
    o->api = io_api(o->api, o->file);
    const char *why = io_refuse(o->api, o->file);
    if (why != NULL) {
        (void)snprintf(text, sizeof(text), "option '-o': '%s': %s", o->file, why);
        return refuse(set, text);
    }
    if (o->file[strlen(o->file) - 1] == '/') {
        (void)snprintf(text, sizeof(text), "option '-o': '%s' names no file", o->file);
        return refuse(set, text);
    }
    if (o->block_bytes % o->transfer_bytes != 0) {
        (void)snprintf(text, sizeof(text),
                       "option '-b': %llu is no multiple of the transfer size %llu (-t)",
                       (unsigned long long)o->block_bytes, (unsigned long long)o->transfer_bytes);
        return refuse(set, text);
    }
    if (o->segments > (uint64_t)INT64_MAX / 1000000 / o->block_bytes) {
        (void)snprintf(text, sizeof(text), "option '-s': %llu segments of %llu bytes are too much",
                       (unsigned long long)o->segments, (unsigned long long)o->block_bytes);
        return refuse(set, text);
    }
    if (o->random && o->block_bytes / o->transfer_bytes > ORDER_MAX) {
        return refuse(set, "option '-z': a block has too many transfers to shuffle");
    }
    if (o->unique_dir && !o->per_process) {
        return refuse(set, "option '-u': wants a file per process (-F)");
    }
    if ((o->check_write || o->check_read) && !o->write && o->signature == 0) {
        return refuse(set, "option '-R' or '-W' without -w wants the signature that the data were "
                           "written with (-G)");
    }
    if (o->direct && strcmp(o->api, "POSIX") != 0) {
        return refuse(set, "option '--posix.odirect': wants -a POSIX");
    }
    if (o->random && o->block_bytes == o->transfer_bytes && !set->is_silent) {
        (void)fprintf(stderr, "causeway ior: warning: -z shuffles nothing: a block is one "
                              "transfer (IOR itself refuses this)\n");
    }
    return 0;
}

/* ---- the run ---- */

static void
sleep_s(uint64_t seconds)
{
    const struct timespec pause = {.tv_sec = (time_t)seconds};

    (void)nanosleep(&pause, NULL);
}

static void
report(const struct ior *ior, const struct ior_result *result)
{
    if (ior->world.rank == 0) {
        ior_report_row(ior, result);
    }
}

/* One repetition. Returns false if something went wrong. */
static bool
repeat(struct ior *ior)
{
    const struct ior_options *options = &ior->options;
    const struct ior_result *result = NULL;
    bool is_good = true;

    for (uint32_t i = 0; i < ior->world.size; i++) {
        ior->written[i] = UINT64_MAX;
    }
    if (options->write) {
        ior_clear(ior);
        world_barrier(&ior->world);
        result = ior_phase(ior, IOR_WRITE);
        report(ior, result);
        is_good = !result->has_failed;
    }
    if (is_good && options->check_write) {
        is_good = !ior_phase(ior, IOR_CHECK)->has_failed;
    }
    if (is_good && options->read) {
        result = ior_phase(ior, IOR_READ);
        report(ior, result);
        is_good = !result->has_failed;
    }
    if (!options->keep && (is_good || !options->keep_with_error)) {
        result = ior_phase(ior, IOR_REMOVE);
        report(ior, result);
        is_good = is_good && !result->has_failed;
    }
    return is_good;
}

static int
repeat_all(struct ior *ior)
{
    const struct ior_options *options = &ior->options;
    const uint64_t limit_ns = options->minutes_max * 60 * 1000000000u;

    for (ior->repetition = 0; ior->repetition < options->repetitions; ior->repetition++) {
        if (ior->repetition > 0 && options->delay_s > 0) {
            sleep_s(options->delay_s);
        }
        const uint64_t spent_ns =
            world_share(&ior->world, world_now_ns(&ior->world) - ior->start_ns);
        if (limit_ns > 0 && spent_ns > limit_ns) {
            break;
        }
        if (!repeat(ior)) {
            return 1;
        }
    }
    return 0;
}

/* The ranks between a block's writer and its reader. */
static uint32_t
shift_of(const struct ior *ior)
{
    const struct ior_options *options = &ior->options;
    const bool has_own_client = strcmp(options->api, "CAUSEWAY") == 0;
    const uint64_t per_node = has_own_client ? 1 : ior->world.tasks_per_node;

    if (!options->reorder) {
        return 0;
    }
    const uint32_t shift = (uint32_t)(options->task_offset * per_node % ior->world.size);
    if (shift == 0 && ior->world.rank == 0) {
        (void)fprintf(stderr,
                      "causeway ior: warning: -C has no effect with %u node(s)%s: every rank reads "
                      "what it wrote\n",
                      has_own_client ? ior->world.size : ior->world.nodes,
                      has_own_client ? " (each rank is one)" : "");
    }
    return shift;
}

static int
prepare(struct ior *ior)
{
    struct ior_options *options = &ior->options;
    const uint64_t per_block = options->block_bytes / options->transfer_bytes;
    int rc = io_open(&ior->io, options->api, options->file);

    if (rc != 0) {
        (void)fprintf(stderr, "causeway ior: rank %u: cannot reach the servers: %s\n",
                      ior->world.rank, lnet_error_name(rc));
        return rc;
    }
    ior->shift = shift_of(ior);
    ior->is_marked = options->check_write || options->check_read || options->signature != 0;
    ior->signature = (uint32_t)(options->signature != 0
                                    ? options->signature
                                    : world_share(&ior->world, ior->start_wall_ns / 1000000000u));
    ior->buffer = aligned_alloc(BUFFER_ALIGN, (options->transfer_bytes + BUFFER_ALIGN - 1) /
                                                  BUFFER_ALIGN * BUFFER_ALIGN);
    ior->order = options->random ? calloc(per_block, sizeof(*ior->order)) : NULL;
    ior->written = calloc(ior->world.size, sizeof(*ior->written));
    ior->results = calloc(options->repetitions * PHASES_PER_ROUND, sizeof(*ior->results));
    if (ior->buffer == NULL || (options->random && ior->order == NULL) || ior->written == NULL ||
        ior->results == NULL) {
        (void)fprintf(stderr, "causeway ior: rank %u: out of memory\n", ior->world.rank);
        return -ENOMEM;
    }
    /* Touched now, so that no phase pays for it. */
    data_fill((struct data_mark){ior->signature, ior->world.rank}, 0, ior->buffer,
              (size_t)options->transfer_bytes);
    return 0;
}

static void
release(struct ior *ior)
{
    for (uint32_t i = 0; i < ior->result_count; i++) {
        free(ior->results[i].ranks);
    }
    free(ior->results);
    free(ior->written);
    free(ior->order);
    free(ior->buffer);
    io_close(&ior->io);
}

/* Runs, the ranks having met. Returns the exit status. */
static int
run(struct ior *ior)
{
    int status = 0;

    ior->start_wall_ns = base_clock_wall_ns();
    ior->start_ns = world_share(&ior->world, world_now_ns(&ior->world));
    if (ior->options.tasks > ior->world.size) {
        if (ior->world.rank == 0) {
            (void)fprintf(stderr, "causeway ior: option '-N': %llu tasks wanted, there are %u\n",
                          (unsigned long long)ior->options.tasks, ior->world.size);
        }
        return 2;
    }
    if (world_max(&ior->world, prepare(ior) != 0 ? 1 : 0) != 0) {
        release(ior);
        return 1;
    }
    if (ior->world.rank == 0) {
        ior_report_head(ior);
        ior_report_columns();
    }
    status = repeat_all(ior);
    if (ior->world.rank == 0) {
        ior_report_summary(ior);
        if (ior->options.json != NULL && ior_report_json(ior, status) != 0) {
            status = 1;
        }
    }
    status = (int)world_max(&ior->world, (uint64_t)status);
    release(ior);
    return status;
}

int
cmd_ior(int argc, char **argv)
{
    struct ior ior = {.options = {.block_bytes = 1 << 20,
                                  .transfer_bytes = 1 << 18,
                                  .segments = 1,
                                  .repetitions = 1,
                                  .task_offset = 1,
                                  .file = "testFile"},
                      .argc = argc,
                      .argv = argv};
    bool dry_run = false;

    if (!ranks_begin(argv)) {
        return 0;
    }
    const struct flag_set *set = flag_set(&ior.options);
    const enum flags_result result = flags_read(set, argc, argv, &dry_run);
    if (result != FLAGS_RUN) {
        return result == FLAGS_STOP ? 0 : 2;
    }
    const int status = resolve(set, &ior.options);
    if (status != 0) {
        return status;
    }
    if (dry_run) {
        if (!set->is_silent) {
            flags_print(set, stdout);
        }
        return 0;
    }
    if (!world_open(&ior.world, ior.options.tasks)) {
        return 0;
    }
    const int ran = run(&ior);
    world_close(&ior.world);
    return ran;
}
