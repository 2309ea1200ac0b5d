/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mdtest workload: one phase on one rank. See mdtest.h.
 *
 * A failed operation is counted and said, and the phase goes on: rates are of those that succeeded.
 */
#include "tools/mdtest.h"

#include "base/assert.h"
#include "tools/workload_data.h"
#include "tools/workload_progress.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* How often the clock is looked at for the progress line, in operations. */
#define PROGRESS_EVERY 64u
/* Failures said in full, of a phase on a rank. */
#define FAILURES_SAID 3u

static const struct {
    const char *name;
    uint32_t shift; /* times -N: whose items this phase is about */
    bool is_dir;
} phases[MD_PHASE_COUNT] = {
    [MD_DIR_CREATE] = {"Directory creation", 0, true},
    [MD_DIR_STAT] = {"Directory stat", 1, true},
    [MD_DIR_RENAME] = {"Directory rename", 2, true},
    [MD_DIR_REMOVE] = {"Directory removal", 3, true},
    [MD_FILE_CREATE] = {"File creation", 0, false},
    [MD_FILE_STAT] = {"File stat", 1, false},
    [MD_FILE_READ] = {"File read", 2, false},
    [MD_FILE_REMOVE] = {"File removal", 3, false},
    [MD_TREE_CREATE] = {"Tree creation", 0, true},
    [MD_TREE_REMOVE] = {"Tree removal", 0, true},
};

const char *
md_phase_name(enum md_phase phase)
{
    return phases[phase].name;
}

bool
md_phase_is_wanted(const struct md_options *options, enum md_phase phase)
{
    switch (phase) {
    case MD_DIR_CREATE:
        return options->create && !options->files_only;
    case MD_DIR_STAT:
        return options->stat && !options->files_only;
    case MD_DIR_RENAME:
        return options->rename && !options->files_only;
    case MD_DIR_REMOVE:
        return options->remove && !options->files_only;
    case MD_FILE_CREATE:
        return options->create && !options->dirs_only;
    case MD_FILE_STAT:
        return options->stat && !options->dirs_only;
    case MD_FILE_READ:
        return options->read && !options->dirs_only;
    case MD_FILE_REMOVE:
        return options->remove && !options->dirs_only;
    case MD_TREE_CREATE:
        return options->create;
    case MD_TREE_REMOVE:
        return options->remove;
    }
    return false;
}

struct worker {
    struct mdtest *md;
    enum md_phase phase;
    struct md_rank *mine;
    struct md_namer namer, other;
    uint32_t owner;
    struct progress progress;
};

/* ---- single operations ---- */

static int
file_create(const struct mdtest *md, const char *path)
{
    const struct md_options *options = &md->options;
    union io_file file;
    int rc = 0;

    if (options->mknod) {
        return md->io.ops->mknod(&md->io, path);
    }
    rc = md->io.ops->open(&md->io, path, O_RDWR | O_CREAT, 0664, &file);
    if (rc != 0) {
        return rc;
    }
    if (options->write_bytes > 0) {
        rc = io_write_all(&md->io, file, md->buffer, (size_t)options->write_bytes, 0);
    }
    if (rc == 0 && options->sync) {
        rc = md->io.ops->fsync(file);
    }
    const int closed = md->io.ops->close(file);
    return rc != 0 ? rc : closed;
}

static int
file_read(const struct mdtest *md, const char *path)
{
    union io_file file;
    int rc = md->io.ops->open(&md->io, path, O_RDONLY, 0, &file);

    if (rc != 0) {
        return rc;
    }
    if (md->options.read_bytes > 0) {
        rc = io_read_all(&md->io, file, md->buffer, (size_t)md->options.read_bytes, 0);
    }
    const int closed = md->io.ops->close(file);
    return rc != 0 ? rc : closed;
}

/*
 * Renames in a chain, so that in the end the same names are there: the first item steps aside, each
 * takes the name before its own, and the first comes back under the last name but one.
 */
static int
dir_rename(struct worker *worker, uint64_t index)
{
    struct mdtest *md = worker->md;
    const uint64_t last = md->shape.items - 1;
    const char *from = NULL;
    const char *to = NULL;

    if (index == 0) {
        from = md_name_item(&worker->namer, worker->owner, true, 0, "");
        to = md_name_item(&worker->other, worker->owner, true, 0, "-XX");
        const int rc = md->io.ops->rename(&md->io, from, to);
        if (rc != 0 || last > 0) {
            return rc;
        }
        worker->mine->done++; /* a single item comes back at once: two operations */
        return md->io.ops->rename(&md->io, to, from);
    }
    from = index == last ? md_name_item(&worker->namer, worker->owner, true, 0, "-XX")
                         : md_name_item(&worker->namer, worker->owner, true, index, "");
    to = md_name_item(&worker->other, worker->owner, true, index - 1, "");
    return md->io.ops->rename(&md->io, from, to);
}

static int
operate(struct worker *worker, uint64_t index)
{
    const struct mdtest *md = worker->md;
    const struct io *io = &md->io;
    struct md_namer *namer = &worker->namer;
    const bool is_dir = phases[worker->phase].is_dir;
    struct stat stat;

    switch (worker->phase) {
    case MD_DIR_CREATE:
        return io->ops->mkdir(io, md_name_item(namer, worker->owner, is_dir, index, ""));
    case MD_DIR_STAT:
    case MD_FILE_STAT:
        index = md->order != NULL ? md->order[index] : index;
        return io->ops->stat(io, md_name_item(namer, worker->owner, is_dir, index, ""), &stat);
    case MD_DIR_RENAME:
        return dir_rename(worker, index);
    case MD_DIR_REMOVE:
        return io->ops->rmdir(io, md_name_item(namer, worker->owner, is_dir, index, ""));
    case MD_FILE_CREATE:
        return file_create(md, md_name_item(namer, worker->owner, is_dir, index, ""));
    case MD_FILE_READ:
        return file_read(md, md_name_item(namer, worker->owner, is_dir, index, ""));
    case MD_FILE_REMOVE:
        return io->ops->unlink(io, md_name_item(namer, worker->owner, is_dir, index, ""));
    case MD_TREE_CREATE:
        return io->ops->mkdir(io, md_name_dir(namer, worker->owner, index));
    case MD_TREE_REMOVE: /* the deepest first */
        return io->ops->rmdir(io, md_name_dir(namer, worker->owner, md->shape.dirs - 1 - index));
    }
    return -EINVAL;
}

/* ---- a phase ---- */

static void
say_failure(const struct worker *worker, int rc)
{
    if (worker->mine->failed > FAILURES_SAID) {
        return;
    }
    (void)fprintf(stderr, "causeway mdtest: rank %u: %s of %s: %s%s\n", worker->md->world.rank,
                  phases[worker->phase].name, worker->namer.path,
                  rc == -ENODATA ? "the file ends before" : strerrordesc_np(-rc),
                  worker->mine->failed == FAILURES_SAID ? " (and no more of these are said)" : "");
}

static void
run_all(struct worker *worker, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const int rc = operate(worker, i);

        if (rc == 0) {
            worker->mine->done++;
        } else {
            worker->mine->failed++;
            say_failure(worker, rc);
        }
        if (i % PROGRESS_EVERY == PROGRESS_EVERY - 1 && worker->progress.next_ns != UINT64_MAX) {
            progress_step(&worker->progress, i + 1, world_now_ns(&worker->md->world));
        }
    }
}

void
md_phase_run(struct mdtest *md, enum md_phase phase)
{
    const bool is_tree = phase == MD_TREE_CREATE || phase == MD_TREE_REMOVE;
    const uint64_t shift = md->options.stride * phases[phase].shift;
    struct worker worker = {
        .md = md,
        .phase = phase,
        .mine = &md->mine[phase],
        .owner = (uint32_t)((md->world.rank + shift) % md->world.size),
    };

    md_namer_begin(&worker.namer, md);
    md_namer_begin(&worker.other, md);
    if (md->order != NULL && phases[phase].shift == 1) {
        data_shuffle(md->order, md->shape.items, md->options.seed ^ md->world.rank);
    }
    if (md->options.no_barriers == 0 || is_tree) {
        world_barrier(&md->world);
    }
    if (is_tree && !md->options.unique && md->world.rank != 0) {
        return; /* rank 0's work */
    }
    worker.mine->span.start_ns = world_now_ns(&md->world);
    progress_begin(&worker.progress, phases[phase].name, md->shape.items, md->world.rank == 0,
                   worker.mine->span.start_ns);
    run_all(&worker, is_tree ? md->shape.dirs : md->shape.items);
    worker.mine->span.end_ns = world_now_ns(&md->world);
    progress_end(&worker.progress);
}

int
md_top_make(const struct mdtest *md)
{
    struct md_namer namer;

    if (md->world.rank != 0) {
        return 0;
    }
    md_namer_begin(&namer, md);
    const int rc = io_make_path(&md->io, md_name_top(&namer));
    if (rc != 0) {
        (void)fprintf(stderr, "causeway mdtest: cannot make %s: %s\n", namer.path,
                      strerrordesc_np(-rc));
    }
    return rc;
}

void
md_top_remove(const struct mdtest *md)
{
    struct md_namer namer;

    if (md->world.rank == 0) {
        md_namer_begin(&namer, md);
        (void)md->io.ops->rmdir(&md->io, md_name_top(&namer));
    }
}

/* ---- all ranks ---- */

struct md_result
md_result_compute(const struct md_rank *first, size_t stride, uint32_t rank_count)
{
    const size_t bytes = stride * sizeof(*first);
    struct md_result result = {
        .time = stats_spread(&first->span, bytes, rank_count),
        .rank_min_ops_per_s = STATS_NONE,
        .rank_max_ops_per_s = STATS_NONE,
        .rank_mean_ops_per_s = STATS_NONE,
    };
    double sum = 0;
    uint32_t count = 0;

    for (uint32_t i = 0; i < rank_count; i++) {
        const struct md_rank *rank = first + stride * i;
        const double rate = stats_rate((double)rank->done, rank->span.end_ns - rank->span.start_ns,
                                       stats_span_is_set(rank->span));

        result.done += rank->done;
        result.failed += rank->failed;
        if (isnan(rate)) {
            continue;
        }
        if (count == 0 || rate < result.rank_min_ops_per_s) {
            result.rank_min_ops_per_s = rate;
        }
        if (count == 0 || rate > result.rank_max_ops_per_s) {
            result.rank_max_ops_per_s = rate;
        }
        sum += rate;
        count++;
    }
    if (count > 0) {
        result.rank_mean_ops_per_s = sum / count;
    }
    result.ops_per_s = stats_rate((double)result.done, result.time.total_ns,
                                  result.time.is_measured && result.done > 0);
    return result;
}

struct md_result
md_result_of(const struct mdtest *md, uint32_t iteration, enum md_phase phase)
{
    const size_t block = (size_t)md->world.size * MD_PHASE_COUNT;

    return md_result_compute(&md->all[iteration * block + phase], MD_PHASE_COUNT, md->world.size);
}
