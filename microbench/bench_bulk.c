/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bulk over shm: how near do transfers come to what the machine can copy?
 *
 * Question answered: what does bulk/ add to the copy itself, by size, path and kind of memory? One
 * process pulls from (or pushes into) memory of another on the other core, one transfer at a time;
 * so a transfer's price is a submit, a copy and a poll. `ratio_to_limit` is the median of a bare
 * copy, measured before and after in the same run, over the transfer's median. The bare copy is a
 * memcpy() into the same memory from another region of this process for the mapped path (which
 * pages a region got matters up to a quarter when it is cold), a process_vm_readv() for CMA.
 *
 * Expected: what is added is 0.1 to 0.2 us, so about 0.99 at 1 MiB for mapped and CMA. Staging has
 * no limit of its own; its ratio is to a memcpy(), and half a memcpy()'s would be good.
 *
 * BM_bulk_export is what each RPC with data pays: export, pack and close of one private segment.
 */
#include "base/hist.h"
#include "causeway/bulk.h"
#include "microbench/bench.h"
#include "microbench/limits.h"
#include "microbench/pair.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define SPAN_BYTES (128u << 20) /* cold: more than caches hold */
#define HUGE_BYTES (2u << 20)

enum memory_kind {
    MEMORY_POOL = 4, /* a bit beside enum limits_memory's: of a region, else private */
};

struct setup {
    enum bulk_path path;
    enum bulk_op op;
    uint64_t bytes; /* of one transfer */
    uint32_t memory;
};

/* What the child tells. */
struct board {
    uint32_t handle_bytes;
    uint64_t page_bytes;
    uint8_t handle[256];
};

struct side {
    struct bulk *bulk;
    struct bulk_region *region;
    char *memory;
    char *like_peer; /* parent, pool: another region for the limit */
    uint64_t span_bytes;
};

static uint64_t
span_of(const struct setup *setup)
{
    return (setup->memory & LIMITS_COLD) != 0 ? base_max_u64(SPAN_BYTES, 2 * setup->bytes)
                                              : base_max_u64(setup->bytes, 4096);
}

static int
side_open(struct side *side, struct pair *pair, const struct setup *setup)
{
    const struct bulk_options options = {.struct_bytes = sizeof(options), .path = setup->path};
    void *memory = NULL;
    int rc = bulk_open(pair->ctx, &options, &side->bulk);

    side->region = NULL;
    side->like_peer = NULL;
    side->span_bytes = span_of(setup);
    if (rc != 0) {
        return rc;
    }
    if ((setup->memory & MEMORY_POOL) != 0) {
        rc = bulk_region_alloc(side->bulk, side->span_bytes, &side->region, &memory);
        if (rc == 0 && !pair->is_child) {
            struct bulk_region *other = NULL; /* goes with the engine */
            void *like_peer = NULL;

            rc = bulk_region_alloc(side->bulk, side->span_bytes, &other, &like_peer);
            side->like_peer = like_peer;
        }
        if (rc != 0) {
            return rc;
        }
        (void)memset(side->like_peer != NULL ? side->like_peer : memory, 1, side->span_bytes);
    } else {
        const bool is_huge = (setup->memory & LIMITS_HUGE) != 0;
        const uint64_t mapped = base_align_up(side->span_bytes, HUGE_BYTES);

        memory = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            return -ENOMEM;
        }
        (void)madvise(memory, mapped, is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    }
    (void)memset(memory, 1, side->span_bytes);
    side->memory = memory;
    return 0;
}

static void
side_close(struct side *side)
{
    if (side->region == NULL) {
        (void)munmap(side->memory, base_align_up(side->span_bytes, HUGE_BYTES));
    }
    bulk_close(side->bulk);
}

static int
child_setup(struct pair *pair, void *arg)
{
    static struct side side;
    struct board *board = (struct board *)(void *)pair->board;
    struct bulk_export *export = NULL;
    int rc = side_open(&side, pair, arg);

    if (rc != 0) {
        return rc;
    }
    const struct iovec iov = {.iov_base = side.memory, .iov_len = side.span_bytes};

    rc = bulk_export(side.bulk, pair->peer, &iov, 1, LNET_ACCESS_READ | LNET_ACCESS_WRITE, &export);
    if (rc == 0) {
        board->page_bytes = side.region != NULL ? bulk_region_page_bytes(side.region) : 4096;
        board->handle_bytes = bulk_export_pack(export, board->handle, sizeof(board->handle));
    }
    return rc;
}

struct waiting {
    struct bulk_result result;
    bool is_done;
};

static void
on_done(struct bulk *bulk, const struct bulk_result *result, void *user)
{
    struct waiting *waiting = user;

    (void)bulk;
    waiting->result = *result;
    waiting->is_done = true;
}

/* The median of a memcpy() from a region like the peer's. */
static int
memcpy_ns(struct pair *pair, const struct side *side, const struct setup *setup, double *ns_out)
{
    static struct base_hist hist;
    const uint64_t steps = base_max_u64(side->span_bytes / setup->bytes, 1);
    const uint64_t end_ns = base_tsc_now_ns(&pair->tsc) + 20000000;

    base_hist_init(&hist);
    (void)memcpy(side->memory, side->like_peer, side->span_bytes);
    for (uint64_t i = 0; i < 16 || base_tsc_now_ns(&pair->tsc) < end_ns; i++) {
        const uint64_t offset = i % steps * setup->bytes;
        const uint64_t start = base_stamp(&pair->tsc);

        (void)memcpy(side->memory + offset, side->like_peer + offset, setup->bytes);
        BENCH_CLOBBER();
        base_hist_record(&hist, base_stamp_ns(&pair->tsc, base_stamp(&pair->tsc) - start));
    }
    *ns_out = (double)base_hist_percentile(&hist, 0.5);
    return 0;
}

/* The limit of a setup now, in ns of one copy. */
static int
limit_ns(struct pair *pair, const struct side *side, const struct setup *setup, double *ns_out)
{
    const uint32_t memory = setup->memory & (LIMITS_COLD | LIMITS_HUGE);
    double bps = 0;
    int rc = 0;

    if (side->like_peer != NULL) {
        return memcpy_ns(pair, side, setup, ns_out);
    }
    pair_pause(pair);
    rc = setup->path == BULK_PATH_CMA ? limits_cma_bps(setup->bytes, memory, &bps)
                                      : limits_memcpy_bps(setup->bytes, memory, &bps);
    pair_resume(pair);
    *ns_out = 1e9 * (double)setup->bytes / bps;
    return rc;
}

/* One transfer at @offset; the ticks it took. Returns 0 or what went wrong. */
static int
transfer_run(struct pair *pair, const struct side *side, const struct setup *setup, uint64_t offset,
             uint64_t *ticks_out)
{
    const struct board *board = (const struct board *)(const void *)pair->board;
    const struct iovec iov = {.iov_base = side->memory + offset, .iov_len = setup->bytes};
    struct waiting waiting = {.is_done = false};
    const struct bulk_request request = {
        .op = setup->op,
        .peer = pair->peer,
        .handle = board->handle,
        .handle_bytes = board->handle_bytes,
        .local = &iov,
        .local_count = 1,
        .handle_offset_bytes = offset,
        .length_bytes = setup->bytes,
        .done = on_done,
        .user = &waiting,
    };
    const uint64_t start = base_stamp(&pair->tsc);
    const int rc = bulk_transfer(side->bulk, &request, NULL);

    if (rc != 0) {
        return rc;
    }
    while (!waiting.is_done) {
        pair_poll(pair);
    }
    *ticks_out = base_stamp(&pair->tsc) - start;
    if (waiting.result.status == 0 && waiting.result.path != setup->path) {
        return -EOPNOTSUPP;
    }
    return waiting.result.status;
}

/* Runs the transfers: the time of each and of all. Returns 0 or what went wrong. */
static int
transfers_run(struct bench_state *state, struct pair *pair, const struct side *side,
              const struct setup *setup, struct base_hist *hist, uint64_t *total_ns_out)
{
    const uint64_t steps = base_max_u64(side->span_bytes / setup->bytes, 1);
    uint64_t total_ticks = 0;
    uint64_t ticks = 0;
    int rc = 0;

    /* The first touch of a mapped region fills page tables, once: not the question here. */
    for (uint64_t i = 0; i < steps && rc == 0; i++) {
        rc = transfer_run(pair, side, setup, i % steps * setup->bytes, &ticks);
    }
    for (uint64_t i = 0; i < state->iterations && rc == 0; i++) {
        rc = transfer_run(pair, side, setup, i % steps * setup->bytes, &ticks);
        total_ticks += ticks;
        base_hist_record(hist, base_stamp_ns(&pair->tsc, ticks));
    }
    *total_ns_out = base_stamp_ns(&pair->tsc, total_ticks);
    return rc;
}

static void
measure(struct bench_state *state, enum bulk_path path, enum bulk_op op, uint32_t kind)
{
    static struct base_hist hist;
    struct setup setup = {.path = path,
                          .op = op,
                          .bytes = (uint64_t)state->args[0],
                          .memory = (uint32_t)state->args[1] | kind};
    struct side side;
    struct pair pair;
    double limits_ns[2] = {0, 0};
    uint64_t total_ns = 0;
    int rc = 0;

    if (state->is_smoke) {
        setup.bytes = base_min_u64(setup.bytes, 65536);
        setup.memory &= ~(uint32_t)LIMITS_COLD;
    }
    rc = pair_open(&pair, child_setup, &setup);

    if (rc != 0) {
        bench_skip(state, "two processes over shm: %s", lnet_error_name(rc));
        return;
    }
    const bool by_cma = path == BULK_PATH_CMA;
    const uint64_t page_bytes = ((const struct board *)(const void *)pair.board)->page_bytes;

    if ((kind & MEMORY_POOL) != 0 && page_bytes > 4096) {
        setup.memory |= LIMITS_HUGE; /* the limit over pages of the same size */
    }
    base_hist_init(&hist);
    rc = side_open(&side, &pair, &setup);
    if (rc == 0) {
        rc = limit_ns(&pair, &side, &setup, &limits_ns[0]);
    }
    if (rc == 0) {
        rc = transfers_run(state, &pair, &side, &setup, &hist, &total_ns);
    }
    if (rc == 0 && !state->is_smoke) {
        rc = limit_ns(&pair, &side, &setup, &limits_ns[1]);
    }
    side_close(&side);
    pair_close(&pair);
    if (rc != 0) {
        bench_skip(state, "%s", lnet_error_name(rc));
        return;
    }
    const double p50_ns = (double)base_hist_percentile(&hist, 0.5);

    bench_set_elapsed(state, total_ns);
    state->items = state->iterations;
    state->bytes = state->iterations * setup.bytes;
    bench_counter(state, "p50_ns", p50_ns, BENCH_COUNTER_PLAIN);
    bench_counter(state, "p50_bytes_per_second", 1e9 * (double)setup.bytes / p50_ns,
                  BENCH_COUNTER_PLAIN);
    if (state->is_smoke) {
        return; /* one limit is measured to see that it can be; it says nothing */
    }
    bench_counter(state, "limit_ns", (limits_ns[0] + limits_ns[1]) / 2, BENCH_COUNTER_PLAIN);
    bench_counter(state, "ratio_to_limit", (limits_ns[0] + limits_ns[1]) / 2 / p50_ns,
                  BENCH_COUNTER_PLAIN);
    bench_label(
        state, "%s; pages of %llu KiB", by_cma ? "limit: process_vm_readv" : "limit: memcpy",
        (unsigned long long)(((setup.memory & LIMITS_HUGE) != 0 ? HUGE_BYTES : 4096) >> 10));
}

static void
bm_mapped_pull(struct bench_state *state)
{
    measure(state, BULK_PATH_MAPPED, BULK_PULL, MEMORY_POOL);
}

static void
bm_mapped_push(struct bench_state *state)
{
    measure(state, BULK_PATH_MAPPED, BULK_PUSH, MEMORY_POOL);
}

static void
bm_cma_pull(struct bench_state *state)
{
    measure(state, BULK_PATH_CMA, BULK_PULL, 0);
}

static void
bm_cma_push(struct bench_state *state)
{
    measure(state, BULK_PATH_CMA, BULK_PUSH, 0);
}

static void
bm_staging_pull(struct bench_state *state)
{
    measure(state, BULK_PATH_STAGING, BULK_PULL, 0);
}

static void
bm_staging_push(struct bench_state *state)
{
    measure(state, BULK_PATH_STAGING, BULK_PUSH, 0);
}

/* Export, pack and close of one segment; args[0]: bytes, args[1]: 1 for pool memory. */
static void
bm_export(struct bench_state *state)
{
    const struct setup setup = {.path = BULK_PATH_AUTO,
                                .bytes = (uint64_t)state->args[0],
                                .memory = state->args[1] != 0 ? (uint32_t)MEMORY_POOL : 0};
    uint8_t handle[256];
    struct side side;
    struct pair pair;
    int rc = pair_open(&pair, NULL, NULL);

    if (rc != 0) {
        bench_skip(state, "two processes over shm: %s", lnet_error_name(rc));
        return;
    }
    rc = side_open(&side, &pair, &setup);
    if (rc != 0) {
        pair_close(&pair);
        bench_skip(state, "memory: %s", lnet_error_name(rc));
        return;
    }
    const struct iovec iov = {.iov_base = side.memory, .iov_len = setup.bytes};

    BENCH_LOOP(state) {
        struct bulk_export *export = NULL;

        rc = bulk_export(side.bulk, pair.peer, &iov, 1, LNET_ACCESS_READ, &export);
        if (rc != 0 || bulk_export_pack(export, handle, sizeof(handle)) == 0 ||
            bulk_export_close(export, NULL, NULL) != 0) {
            bench_fail(state, "export: %s", lnet_error_name(rc));
            break;
        }
        BENCH_DO_NOT_OPTIMIZE(handle);
    }
    state->items = state->iterations;
    side_close(&side);
    pair_close(&pair);
}

static void
bm_crc32c(struct bench_state *state)
{
    static uint8_t bytes[1 << 20];
    const size_t length = (size_t)state->args[0];
    uint32_t crc = 0;

    (void)memset(bytes, 7, sizeof(bytes));
    BENCH_LOOP(state) {
        crc = bulk_crc32c(crc, bytes, length);
        BENCH_DO_NOT_OPTIMIZE(crc);
    }
    state->bytes = state->iterations * length;
}

#define WARM      LIMITS_WARM
#define COLD      LIMITS_COLD
#define WARM_HUGE (LIMITS_WARM | LIMITS_HUGE)

static const int64_t pool_rows[][2] = {{64, WARM},      {4096, WARM},     {65536, WARM},
                                       {1048576, WARM}, {16777216, WARM}, {65536, COLD},
                                       {1048576, COLD}, {16777216, COLD}};
static const int64_t private_rows[][2] = {{64, WARM},         {4096, WARM},        {65536, WARM},
                                          {1048576, WARM},    {16777216, WARM},    {1048576, COLD},
                                          {65536, WARM_HUGE}, {1048576, WARM_HUGE}};
static const int64_t export_rows[][2] = {{4096, 0}, {4096, 1}};
static const int64_t crc_rows[] = {64, 4096, 1048576};
static const char *const copy_names[] = {"bytes", "memory"}; /* enum limits_memory */
static const char *const export_names[] = {"bytes", "is_pool"};
static const char *const bytes_name[] = {"bytes"};

#define ROWS(name_, run_, rows_, names_)                                                        \
    {                                                                                           \
        .name = (name_), .run = (run_), .args = (rows_)[0], .arg_count = BASE_ARRAY_LEN(rows_), \
        .arg_width = 2, .arg_names = (names_)                                                   \
    }

static const struct bench_case cases[] = {
    ROWS("BM_bulk_mapped_pull", bm_mapped_pull, pool_rows, copy_names),
    ROWS("BM_bulk_mapped_push", bm_mapped_push, pool_rows, copy_names),
    ROWS("BM_bulk_cma_pull", bm_cma_pull, private_rows, copy_names),
    ROWS("BM_bulk_cma_push", bm_cma_push, private_rows, copy_names),
    ROWS("BM_bulk_staging_pull", bm_staging_pull, private_rows, copy_names),
    ROWS("BM_bulk_staging_push", bm_staging_push, private_rows, copy_names),
    ROWS("BM_bulk_export", bm_export, export_rows, export_names),
    {.name = "BM_bulk_crc32c",
     .run = bm_crc32c,
     .args = crc_rows,
     .arg_count = BASE_ARRAY_LEN(crc_rows),
     .arg_names = bytes_name},
};

int
main(int argc, char **argv)
{
    return bench_main(argc, argv, cases, BASE_ARRAY_LEN(cases));
}
