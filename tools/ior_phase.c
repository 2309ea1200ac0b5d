/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The IOR workload: one phase on one rank, and the sum over all. See ior.h.
 *
 * A phase is: barrier, open, transfers, fsync with -e, close. An error ends it on the rank it
 * happens on; the others go on, and all learn of it when results are gathered, so that nobody waits
 * for a rank that has left.
 */
#include "tools/ior.h"

#include "base/assert.h"
#include "tools/workload_progress.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How often the clock is looked at for the progress line, in transfers. */
#define PROGRESS_EVERY 16u

const char *
ior_access_name(enum ior_access access)
{
    switch (access) {
    case IOR_WRITE:
        return "write";
    case IOR_CHECK:
        return "writecheck";
    case IOR_READ:
        return "read";
    case IOR_REMOVE:
        return "remove";
    }
    return "";
}

void
ior_path(const struct ior *ior, uint32_t owner, char path[PATH_MAX])
{
    const struct ior_options *options = &ior->options;
    const char *name = strrchr(options->file, '/');
    char owner_dir[16] = "";
    char suffix[16] = "";
    char round[16] = "";

    name = name != NULL ? name + 1 : options->file;
    if (options->unique_dir) {
        (void)snprintf(owner_dir, sizeof(owner_dir), "%u/", owner);
    }
    if (options->per_process) {
        (void)snprintf(suffix, sizeof(suffix), ".%08u", owner);
    }
    if (options->multi_file) {
        (void)snprintf(round, sizeof(round), ".%u", ior->repetition);
    }
    const int length = snprintf(path, PATH_MAX, "%.*s%s%s%s%s", (int)(name - options->file),
                                options->file, owner_dir, name, suffix, round);
    BASE_ASSERT(length > 0 && length < PATH_MAX);
}

uint64_t
ior_offset(const struct ior_options *options, uint32_t tasks, uint32_t owner, uint64_t segment,
           uint64_t index)
{
    const uint64_t in_block = index * options->transfer_bytes;

    if (options->per_process) {
        return segment * options->block_bytes + in_block;
    }
    return (segment * tasks + owner) * options->block_bytes + in_block;
}

static void
say_error(const struct ior *ior, const char *what, const char *path, uint64_t offset, int rc)
{
    if (rc == -ENODATA) {
        (void)fprintf(stderr, "causeway ior: rank %u: %s %s at %llu: the file ends before\n",
                      ior->world.rank, what, path, (unsigned long long)offset);
    } else {
        (void)fprintf(stderr, "causeway ior: rank %u: %s %s at %llu: %s (%s)\n", ior->world.rank,
                      what, path, (unsigned long long)offset, strerrorname_np(-rc),
                      strerrordesc_np(-rc));
    }
}

/* ---- one rank ---- */

struct mover {
    const struct ior *ior;
    enum ior_access access;
    struct ior_rank *mine;
    const char *path;
    union io_file file;
    struct data_mark mark;
    uint64_t deadline_ns; /* UINT64_MAX: none */
    struct progress progress;
};

static int
move_one(struct mover *mover, uint64_t offset)
{
    const struct ior *ior = mover->ior;
    const size_t bytes = (size_t)ior->options.transfer_bytes;
    const bool is_write = mover->access == IOR_WRITE;
    const bool is_checked =
        mover->access == IOR_CHECK || (mover->access == IOR_READ && ior->options.check_read);
    int rc = 0;

    if (is_write && ior->is_marked) {
        const uint64_t start_ns = world_now_ns(&ior->world);

        data_fill(mover->mark, offset, ior->buffer, bytes);
        mover->mine->check_ns += world_now_ns(&ior->world) - start_ns;
    }
    rc = is_write ? io_write_all(&ior->io, mover->file, ior->buffer, bytes, (off_t)offset)
                  : io_read_all(&ior->io, mover->file, ior->buffer, bytes, (off_t)offset);
    if (rc == 0 && is_write && ior->options.fsync_each) {
        rc = ior->io.ops->fsync(mover->file);
    }
    if (rc == 0 && is_checked) {
        const uint64_t start_ns = world_now_ns(&ior->world);

        (void)data_check(mover->mark, offset, ior->buffer, bytes, &mover->mine->data);
        mover->mine->check_ns += world_now_ns(&ior->world) - start_ns;
    }
    if (rc != 0) {
        say_error(ior, is_write ? "write to" : "read of", mover->path, offset, rc);
    }
    return rc;
}

/* True when it is time to stop. */
static bool
is_over(struct mover *mover)
{
    const uint64_t done = mover->mine->transfers;

    if (mover->deadline_ns == UINT64_MAX && done % PROGRESS_EVERY != 0) {
        return false;
    }
    const uint64_t now_ns = world_now_ns(&mover->ior->world);
    progress_step(&mover->progress, done, now_ns);
    return now_ns >= mover->deadline_ns;
}

static int
move_all(struct mover *mover, uint32_t owner)
{
    const struct ior *ior = mover->ior;
    const struct ior_options *options = &ior->options;
    const uint64_t per_block = options->block_bytes / options->transfer_bytes;
    const uint64_t limit = mover->access == IOR_WRITE ? UINT64_MAX : ior->written[owner];

    for (uint64_t segment = 0; segment < options->segments; segment++) {
        for (uint64_t k = 0; k < per_block; k++) {
            if (mover->mine->transfers == limit) {
                return 0; /* the writer stopped here too */
            }
            const uint64_t index = ior->order != NULL ? ior->order[k] : k;
            const int rc =
                move_one(mover, ior_offset(options, ior->world.size, owner, segment, index));

            if (rc != 0) {
                return rc;
            }
            mover->mine->transfers++;
            mover->mine->bytes += options->transfer_bytes;
            if (is_over(mover)) {
                mover->mine->is_stopped = true;
                return 0;
            }
        }
    }
    return 0;
}

static void
say_data_error(const struct ior *ior, const char *path, const struct data_error *error)
{
    (void)fprintf(stderr,
                  "causeway ior: rank %u: %s: %llu wrong bytes, the first at %llu: expected "
                  "0x%016llx, found 0x%016llx",
                  ior->world.rank, path, (unsigned long long)error->count,
                  (unsigned long long)error->first_offset, (unsigned long long)error->expected,
                  (unsigned long long)error->found);
    if (error->first_offset / 8 % 2 == 1 && error->found % 16 == 0) {
        (void)fprintf(stderr, " (data of offset %llu?)", (unsigned long long)error->found);
    } else if (error->found >> 32 == ior->signature) {
        (void)fprintf(stderr, " (data of rank %u?)", (uint32_t)error->found);
    }
    (void)fputc('\n', stderr);
}

/* Opens @path, moves the data of @owner and closes it again. */
static void
move_file(struct ior *ior, enum ior_access access, uint32_t owner, struct ior_rank *mine)
{
    const struct ior_options *options = &ior->options;
    const bool is_write = access == IOR_WRITE;
    const int direct = options->direct ? O_DIRECT : 0;
    char path[PATH_MAX];
    char what[48];
    struct mover mover = {.ior = ior,
                          .access = access,
                          .mine = mine,
                          .path = path,
                          .mark = {.signature = ior->signature, .rank = owner},
                          .deadline_ns = UINT64_MAX};

    ior_path(ior, owner, path);
    (void)snprintf(what, sizeof(what), "%s %u/%llu", ior_access_name(access), ior->repetition + 1,
                   (unsigned long long)options->repetitions);
    mine->open.start_ns = world_now_ns(&ior->world);
    mine->error = ior->io.ops->open(
        &ior->io, path, (is_write ? O_RDWR | O_CREAT : O_RDONLY) | direct, 0664, &mover.file);
    mine->open.end_ns = world_now_ns(&ior->world);
    if (mine->error != 0) {
        say_error(ior, "open of", path, 0, mine->error);
    }
    if (options->barriers) {
        world_barrier(&ior->world);
    }
    if (mine->error != 0) {
        if (options->barriers) {
            world_barrier(&ior->world);
        }
        return;
    }
    mine->transfer.start_ns = world_now_ns(&ior->world);
    if (options->deadline_s > 0 && access != IOR_CHECK) {
        mover.deadline_ns = mine->transfer.start_ns + options->deadline_s * 1000000000u;
    }
    progress_begin(&mover.progress, what,
                   options->segments * (options->block_bytes / options->transfer_bytes),
                   ior->world.rank == 0, mine->transfer.start_ns);
    mine->error = move_all(&mover, owner);
    progress_end(&mover.progress);
    mine->transfer.end_ns = world_now_ns(&ior->world);
    if (mine->error == 0 && is_write && options->fsync) {
        mine->sync.start_ns = mine->transfer.end_ns;
        mine->error = ior->io.ops->fsync(mover.file);
        mine->sync.end_ns = world_now_ns(&ior->world);
        if (mine->error != 0) {
            say_error(ior, "fsync of", path, 0, mine->error);
        }
    }
    if (options->barriers) {
        world_barrier(&ior->world);
    }
    mine->close.start_ns = world_now_ns(&ior->world);
    const int rc = ior->io.ops->close(mover.file);
    mine->close.end_ns = world_now_ns(&ior->world);
    if (rc != 0) {
        say_error(ior, "close of", path, 0, rc);
        mine->error = mine->error != 0 ? mine->error : rc;
    }
    if (mine->data.count > 0) {
        say_data_error(ior, path, &mine->data);
    }
}

/* After writing: the file is as long as what was written into it reaches. */
static int
check_size(const struct ior *ior)
{
    const struct ior_options *options = &ior->options;
    char path[PATH_MAX];
    struct stat stat;

    ior_path(ior, ior->world.rank, path);
    int rc = ior->io.ops->stat(&ior->io, path, &stat);
    const uint64_t wanted =
        ior_offset(options, ior->world.size, ior->world.rank, options->segments - 1, 0) +
        options->block_bytes;

    if (rc == 0 && (uint64_t)stat.st_size < wanted) {
        (void)fprintf(stderr, "causeway ior: rank %u: %s has %llu bytes, %llu were written\n",
                      ior->world.rank, path, (unsigned long long)stat.st_size,
                      (unsigned long long)wanted);
        return -EIO;
    }
    if (rc != 0) {
        say_error(ior, "stat of", path, 0, rc);
    }
    return rc;
}

static bool
removes(const struct ior *ior)
{
    return ior->options.per_process || ior->world.rank == 0;
}

static int
remove_file(const struct ior *ior)
{
    char path[PATH_MAX];

    ior_path(ior, ior->world.rank, path);
    const int rc = ior->io.ops->unlink(&ior->io, path);
    if (ior->options.unique_dir) {
        *strrchr(path, '/') = '\0';
        (void)ior->io.ops->rmdir(&ior->io, path);
    }
    return rc;
}

void
ior_clear(const struct ior *ior)
{
    char path[PATH_MAX];

    if (removes(ior) && !ior->options.use_existing) {
        (void)remove_file(ior);
    }
    if (ior->options.unique_dir) {
        ior_path(ior, ior->world.rank, path);
        *strrchr(path, '/') = '\0';
        const int rc = ior->io.ops->mkdir(&ior->io, path);
        if (rc != 0 && rc != -EEXIST) {
            say_error(ior, "mkdir of", path, 0, rc);
        }
    }
}

/* ---- all ranks ---- */

/* The time from a rank's open to its close, over all of them. */
static struct stats_spread
spread_total(const struct ior_rank *ranks, uint32_t count)
{
    struct stats_span *totals = calloc(count, sizeof(*totals));
    struct stats_spread spread = {.mean_ns = 0};

    if (totals == NULL) {
        return spread;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct stats_span last =
            stats_span_is_set(ranks[i].close) ? ranks[i].close : ranks[i].open;

        if (stats_span_is_set(last)) {
            totals[i] = (struct stats_span){ranks[i].open.start_ns, last.end_ns};
        }
    }
    spread = stats_spread(totals, sizeof(*totals), count);
    free(totals);
    return spread;
}

void
ior_result_compute(struct ior_result *result, uint32_t rank_count)
{
    const struct ior_rank *ranks = result->ranks;
    const size_t stride = sizeof(*ranks);
    double transfer_ns = 0;

    result->open = stats_spread(&ranks[0].open, stride, rank_count);
    result->transfer = stats_spread(&ranks[0].transfer, stride, rank_count);
    result->sync = stats_spread(&ranks[0].sync, stride, rank_count);
    result->close = stats_spread(&ranks[0].close, stride, rank_count);
    result->total = spread_total(ranks, rank_count);
    for (uint32_t i = 0; i < rank_count; i++) {
        result->bytes += ranks[i].bytes;
        result->transfers += ranks[i].transfers;
        result->data_errors += ranks[i].data.count;
        result->has_failed |= ranks[i].error != 0 || ranks[i].data.count > 0;
        result->is_stopped |= ranks[i].is_stopped;
        transfer_ns += (double)(ranks[i].transfer.end_ns - ranks[i].transfer.start_ns);
    }
    result->move_ns = result->transfer.total_ns;
    if (result->sync.is_measured && result->sync.last_end_ns > result->transfer.last_end_ns) {
        result->move_ns = result->sync.last_end_ns - result->transfer.first_start_ns;
    }
    const bool is_measured = result->transfer.is_measured && result->transfers > 0;
    result->bytes_per_s = stats_rate((double)result->bytes, result->total.total_ns, is_measured);
    result->ops_per_s = stats_rate((double)result->transfers, result->move_ns, is_measured);
    result->latency_s = is_measured ? transfer_ns / 1e9 / (double)result->transfers : STATS_NONE;
}

static void
remember_written(struct ior *ior, const struct ior_result *result)
{
    for (uint32_t i = 0; i < ior->world.size; i++) {
        ior->written[i] = result->ranks[i].transfers;
    }
}

const struct ior_result *
ior_phase(struct ior *ior, enum ior_access access)
{
    struct ior_result *result = &ior->results[ior->result_count++];
    const bool is_read = access == IOR_READ || access == IOR_CHECK;
    const uint32_t owner = (ior->world.rank + (is_read ? ior->shift : 0)) % ior->world.size;
    struct ior_rank mine = {.bytes = 0};

    *result = (struct ior_result){.access = access, .repetition = ior->repetition};
    result->ranks = calloc(ior->world.size, sizeof(*result->ranks));
    if (result->ranks == NULL) {
        (void)fprintf(stderr, "causeway ior: out of memory\n");
        abort(); /* no rank may wait for one that just leaves */
    }
    if (ior->order != NULL && access != IOR_REMOVE) {
        data_shuffle(ior->order, ior->options.block_bytes / ior->options.transfer_bytes,
                     ior->options.random_seed ^ ((uint64_t)owner << 32 | ior->repetition));
    }
    if (!ior->is_marked && access == IOR_WRITE) {
        data_fill((struct data_mark){ior->signature, owner}, 0, ior->buffer,
                  (size_t)ior->options.transfer_bytes);
    }
    world_barrier(&ior->world);
    if (access != IOR_REMOVE) {
        move_file(ior, access, owner, &mine);
    } else if (removes(ior)) {
        mine.open.start_ns = world_now_ns(&ior->world);
        mine.error = remove_file(ior);
        mine.open.end_ns = world_now_ns(&ior->world);
        if (mine.error != 0) {
            say_error(ior, "unlink of", ior->options.file, 0, mine.error);
        }
    }
    if (access == IOR_WRITE) {
        world_barrier(&ior->world);
        if (mine.error == 0 && !mine.is_stopped) {
            mine.error = check_size(ior);
        }
    }
    world_gather(&ior->world, &mine, sizeof(mine), result->ranks);
    ior_result_compute(result, ior->world.size);
    result->expected_bytes =
        access != IOR_REMOVE ? ior->options.segments * ior->options.block_bytes * ior->world.size
                             : 0;
    if (access == IOR_WRITE) {
        remember_written(ior, result);
    }
    return result;
}
