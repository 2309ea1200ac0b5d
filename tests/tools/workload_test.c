/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The workloads' arithmetic against values worked out by hand, their data, flags and names; and
 * their phases on a back end that fails and lies when it is told to.
 */
#include "tests/test.h"

#include "tools/ior.h"
#include "tools/mdtest.h"
#include "tools/workload_data.h"
#include "tools/workload_flags.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

static bool
is_near(double value, double wanted)
{
    return fabs(value - wanted) <= 1e-9 * fabs(wanted);
}

/* ---- results ---- */

static struct ior_rank
rank_of(uint64_t open, uint64_t transfer, uint64_t end, uint64_t closed, uint64_t transfers)
{
    return (struct ior_rank){.open = {open, transfer},
                             .transfer = {transfer, end},
                             .close = {end, closed},
                             .transfers = transfers,
                             .bytes = transfers << 20};
}

static void
bandwidth_is_bytes_moved_over_first_start_to_last_end(void **state)
{
    struct ior_rank ranks[] = {rank_of(1 * S, 1 * S, 2 * S, 2 * S, 100),
                               rank_of(2 * S, 3 * S, 4 * S, 5 * S, 300)};
    struct ior_result result = {.ranks = ranks};

    ior_result_compute(&result, 2);
    assert_int_equal(result.total.total_ns, 4 * S);
    assert_int_equal(result.bytes, UINT64_C(400) << 20);
    assert_true(is_near(result.bytes_per_s, 100.0 * 1048576));
    assert_int_equal(result.move_ns, 3 * S);
    assert_true(is_near(result.ops_per_s, 400.0 / 3));
    assert_true(is_near(result.latency_s, 2.0 / 400));
    assert_int_equal(result.open.total_ns, 2 * S);
    assert_int_equal(result.close.slowest, 1);
    assert_false(result.has_failed);
}

static void
a_second_in_close_halves_the_rate(void **state)
{
    struct ior_rank quick = rank_of(1 * S, 1 * S, 2 * S, 2 * S, 1000);
    struct ior_rank slow = rank_of(1 * S, 1 * S, 2 * S, 3 * S, 1000);
    struct ior_result of_quick = {.ranks = &quick};
    struct ior_result of_slow = {.ranks = &slow};

    ior_result_compute(&of_quick, 1);
    ior_result_compute(&of_slow, 1);
    /* 1,048,576,000 bytes in a second: 1000 MiB/s, 1048.576 MB/s. */
    assert_true(is_near(of_quick.bytes_per_s / 1048576, 1000));
    assert_true(is_near(of_quick.bytes_per_s / 1e6, 1048.576));
    assert_true(is_near(of_slow.bytes_per_s / 1048576, 500));
}

static void
fsync_belongs_to_the_transfer_time(void **state)
{
    struct ior_rank rank = rank_of(1 * S, 1 * S, 2 * S, 2 * S, 10);
    struct ior_result result = {.ranks = &rank};

    rank.sync = (struct stats_span){2 * S, 4 * S};
    rank.close = (struct stats_span){4 * S, 5 * S};
    ior_result_compute(&result, 1);
    assert_int_equal(result.move_ns, 3 * S);
    assert_int_equal(result.sync.total_ns, 2 * S);
    assert_int_equal(result.total.total_ns, 4 * S);
}

static void
a_rank_that_could_not_open_leaves_no_times_but_fails_the_phase(void **state)
{
    struct ior_rank ranks[] = {rank_of(1 * S, 1 * S, 2 * S, 2 * S, 10),
                               {.open = {1 * S, 2 * S}, .error = -ENOENT}};
    struct ior_result result = {.ranks = ranks};

    ior_result_compute(&result, 2);
    assert_true(result.has_failed);
    assert_int_equal(result.transfers, 10);
    assert_int_equal(result.transfer.total_ns, 1 * S);

    struct ior_result nothing = {.ranks = ranks + 1};
    ior_result_compute(&nothing, 1);
    assert_true(isnan(nothing.bytes_per_s));
    assert_true(isnan(nothing.latency_s));
}

static void
a_rate_counts_what_was_done_by_the_slowest_rank(void **state)
{
    /* Rank 0 takes 1 ms an operation and is stopped after 0.5 s; rank 1 does 1000 in 0.1 s. */
    struct md_rank ranks[2][MD_PHASE_COUNT] = {0};

    ranks[0][MD_FILE_CREATE] = (struct md_rank){.span = {1 * S, 1 * S + 500 * MS}, .done = 500};
    ranks[1][MD_FILE_CREATE] =
        (struct md_rank){.span = {1 * S, 1 * S + 100 * MS}, .done = 1000, .failed = 3};
    const struct md_result result = md_result_compute(&ranks[0][MD_FILE_CREATE], MD_PHASE_COUNT, 2);
    assert_int_equal(result.done, 1500);
    assert_int_equal(result.failed, 3);
    assert_true(is_near(result.ops_per_s, 3000));
    assert_true(is_near(result.rank_min_ops_per_s, 1000));
    assert_true(is_near(result.rank_max_ops_per_s, 10000));
    assert_true(is_near(result.rank_mean_ops_per_s, 5500));
    assert_int_equal(result.time.slowest, 0);
}

static void
a_phase_that_was_not_run_has_no_rate(void **state)
{
    const struct md_rank idle[MD_PHASE_COUNT] = {0};
    const struct md_rank failed = {.span = {1, 2 * S}, .failed = 9};
    struct md_result result = md_result_compute(idle, MD_PHASE_COUNT, 1);

    assert_false(result.time.is_measured);
    assert_true(isnan(result.ops_per_s));
    result = md_result_compute(&failed, 1, 1);
    assert_true(result.time.is_measured);
    assert_true(isnan(result.ops_per_s)); /* nothing was done */
}

static void
summaries_leave_out_what_was_not_measured(void **state)
{
    const double values[] = {1169.94, STATS_NONE, 427.67};
    const struct stats_summary summary = stats_summarise(values, 3);
    const struct stats_summary none = stats_summarise(values + 1, 1);

    assert_int_equal(summary.count, 2);
    assert_true(is_near(summary.mean, 798.805));
    assert_true(is_near(summary.deviation, 371.135));
    assert_true(is_near(summary.sample_deviation, 371.135 * sqrt(2)));
    assert_true(summary.max > 1169 && summary.min < 428);
    assert_int_equal(none.count, 0);
    assert_true(isnan(none.max));
}

static void
columns_are_as_wide_and_as_exact_as_in_ior(void **state)
{
    char text[32];

    assert_string_equal(stats_column(1169.941, 10, text), "1169.94   ");
    assert_string_equal(stats_column(4778.47, 10, text), "4778      ");
    assert_string_equal(stats_column(0.027352, 10, text), "0.027352  ");
    assert_string_equal(stats_column(STATS_NONE, 10, text), "-         ");
    assert_string_equal(stats_size(65536, text), "65536 bytes");
    assert_string_equal(stats_size(16 << 20, text), "16 MiB");
    assert_string_equal(stats_size(UINT64_C(3) << 29, text), "1.50 GiB");
}

static void
json_has_null_for_what_is_no_number(void **state)
{
    const struct stats_spread none = {.is_measured = false};
    json_t *values[] = {stats_json(STATS_NONE), stats_json((double)INFINITY),
                        stats_json_spread(&none, 0)};

    for (size_t i = 0; i < BASE_ARRAY_LEN(values); i++) {
        assert_true(json_is_null(values[i]));
        json_decref(values[i]);
    }
}

/* ---- data ---- */

static void
data_do_not_depend_on_how_they_are_cut(void **state)
{
    const struct data_mark mark = {0x12345678, 5};
    unsigned char whole[4099];
    unsigned char piece[4099];

    data_fill(mark, 1000, whole, sizeof(whole));
    for (size_t cut = 1; cut < 40; cut++) {
        for (size_t at = 0; at < sizeof(whole); at += cut) {
            const size_t bytes = at + cut < sizeof(whole) ? cut : sizeof(whole) - at;

            data_fill(mark, 1000 + at, piece + at, bytes);
        }
        assert_memory_equal(whole, piece, sizeof(whole));
    }
}

static void
each_flipped_byte_is_found_where_it_is(void **state)
{
    const struct data_mark mark = {77, 3};
    unsigned char data[4096 + 50];

    for (size_t i = 0; i < sizeof(data); i += 13) {
        struct data_error error = {0};

        data_fill(mark, 5, data, sizeof(data));
        assert_int_equal(data_check(mark, 5, data, sizeof(data), &error), 0);
        data[i] ^= 0x40;
        assert_int_equal(data_check(mark, 5, data, sizeof(data), &error), 1);
        assert_int_equal(error.count, 1);
        assert_int_equal(error.first_offset, 5 + i);
        assert_true(error.expected != error.found || i < 3 || i + 8 > sizeof(data));
    }
}

static void
data_of_another_place_or_rank_are_wrong(void **state)
{
    unsigned char data[256];
    struct data_error error = {0};

    data_fill((struct data_mark){1, 2}, 512, data, sizeof(data));
    assert_true(data_check((struct data_mark){1, 2}, 1024, data, sizeof(data), &error) > 0);
    assert_int_equal(error.first_offset / 8 % 2, 1);
    assert_int_equal(error.found, 512);
    error = (struct data_error){0};
    assert_true(data_check((struct data_mark){1, 3}, 512, data, sizeof(data), &error) > 0);
    assert_int_equal((uint32_t)error.found, 2);
}

static void
a_shuffle_holds_every_number_once(void **state)
{
    uint64_t order[1000];
    uint64_t again[1000];
    bool seen[1000] = {false};

    data_shuffle(order, 1000, 7);
    data_shuffle(again, 1000, 7);
    assert_memory_equal(order, again, sizeof(order));
    for (size_t i = 0; i < 1000; i++) {
        assert_true(order[i] < 1000 && !seen[order[i]]);
        seen[order[i]] = true;
    }
    data_shuffle(again, 1000, 8);
    assert_true(memcmp(order, again, sizeof(order)) != 0);
}

/* ---- flags ---- */

struct values {
    bool write, read;
    uint64_t verbose, count, size;
    const char *text;
};

static enum flags_result
read_flags(struct values *values, const char *line, bool *dry_run)
{
    const struct flag_def flags[] = {
        {'w', FLAG_SET, NULL, &values->write, 0, 0, NULL, NULL, ""},
        {'r', FLAG_SET, NULL, &values->read, 0, 0, NULL, NULL, ""},
        {'v', FLAG_COUNTED, NULL, &values->verbose, 0, 0, NULL, NULL, ""},
        {'i', FLAG_NUMBER, NULL, &values->count, 1, 100, NULL, NULL, ""},
        {'b', FLAG_SIZE, NULL, &values->size, 1, UINT64_C(1) << 40, NULL, NULL, ""},
        {'a', FLAG_TEXT, "api", &values->text, 0, 0, "POSIX|CAUSEWAY", NULL, ""},
        {'c', FLAG_REFUSED, "collective", NULL, 0, 0, NULL, NULL, "collective I/O"},
    };
    const struct flag_set set = {.command = "test",
                                 .summary = "",
                                 .example = "",
                                 .flags = flags,
                                 .count = BASE_ARRAY_LEN(flags),
                                 .is_silent = true};
    static char copy[256];
    static char name[] = "test";
    char *argv[16] = {name};
    int argc = 1;

    *values = (struct values){.count = 1};
    (void)snprintf(copy, sizeof(copy), "%s", line);
    for (char *at = strtok(copy, " "); at != NULL; at = strtok(NULL, " ")) {
        argv[argc++] = at;
    }
    return flags_read(&set, argc, argv, dry_run);
}

static void
short_flags_combine_and_take_values_as_the_originals_do(void **state)
{
    static const char *const lines[] = {"-wrb 64m", "-wrb64m", "-w -r -b=64m", "-rwb=64m",
                                        "-b 64M -rw"};
    struct values values;
    bool dry_run = false;

    for (size_t i = 0; i < BASE_ARRAY_LEN(lines); i++) {
        assert_int_equal(read_flags(&values, lines[i], &dry_run), FLAGS_RUN);
        assert_true(values.write && values.read);
        assert_int_equal(values.size, 64 << 20);
    }
    assert_int_equal(read_flags(&values, "-vv -i3 -v --api=POSIX --dry-run", &dry_run), FLAGS_RUN);
    assert_int_equal(values.verbose, 3);
    assert_int_equal(values.count, 3);
    assert_string_equal(values.text, "POSIX");
    assert_true(dry_run);
}

static void
what_is_wrong_on_the_command_line_is_refused(void **state)
{
    static const char *const lines[] = {
        "-x",
        "--no",
        "word",
        "-",
        "--",
        "-b",
        "-b 1mm",
        "-b -1",
        "-b 1e9",
        "-b 0",
        "-b 9999t",
        "-i 0",
        "-i 101",
        "-i 1k",
        "-i 1 -i 2",
        "-w -w",
        "-ww",
        "-a",
        "-a posix",
        "-a POS",
        "-a POSIX|CAUSEWAY",
        "-c",
        "-wc",
        "--collective",
        "--api",
        "--api=",
        "-w=1",
        "-b 99999999999999999999",
    };
    struct values values;
    bool dry_run = false;

    for (size_t i = 0; i < BASE_ARRAY_LEN(lines); i++) {
        if (read_flags(&values, lines[i], &dry_run) != FLAGS_BAD) {
            fail_msg("'%s' was taken", lines[i]);
        }
    }
}

/* ---- names ---- */

static struct mdtest
tree_of(uint64_t depth, uint64_t branching, uint64_t items, bool leaf_only, bool unique)
{
    struct mdtest md = {.options = {.path = "d",
                                    .items = items,
                                    .per_dir = MD_UNSET,
                                    .branching = branching,
                                    .depth = depth,
                                    .leaf_only = leaf_only,
                                    .unique = unique},
                        .iteration = 2};

    assert_int_equal(md_shape_compute(&md.options, &md.shape), 0);
    return md;
}

static void
items_spread_over_the_tree_as_in_mdtest(void **state)
{
    struct mdtest md = tree_of(2, 3, 50, false, false);

    assert_int_equal(md.shape.dirs, 13);
    assert_int_equal(md.shape.per_dir, 3);
    assert_int_equal(md.shape.items, 39);
    md = tree_of(1, 3, 20, true, false);
    assert_int_equal(md.shape.first_dir, 1);
    assert_int_equal(md.shape.per_dir, 6);
    assert_int_equal(md.shape.items, 18);
    md = tree_of(0, 1, 0, false, false);
    assert_int_equal(md.shape.dirs, 1);
    assert_int_equal(md.shape.items, 0);
    md = tree_of(3, 1, 8, true, false);
    assert_int_equal(md.shape.first_dir, 3);
}

static void
names_are_those_of_mdtest(void **state)
{
    struct mdtest md = tree_of(2, 2, 14, false, false);
    static struct md_namer namer;

    md_namer_begin(&namer, &md);
    assert_string_equal(md_name_top(&namer), "d/test-dir.2-0");
    assert_string_equal(md_name_item(&namer, 1, true, 6, ""),
                        "d/test-dir.2-0/mdtest_tree.0/mdtest_tree.1/mdtest_tree.3/dir.mdtest.1.6");
    assert_string_equal(
        md_name_item(&namer, 1, true, 7, "-XX"),
        "d/test-dir.2-0/mdtest_tree.0/mdtest_tree.1/mdtest_tree.3/dir.mdtest.1.7-XX");
    assert_string_equal(md_name_item(&namer, 12, false, 0, ""),
                        "d/test-dir.2-0/mdtest_tree.0/file.mdtest.12.0");
    md = tree_of(1, 3, 20, true, true);
    md_namer_begin(&namer, &md);
    assert_string_equal(md_name_item(&namer, 4, false, 17, ""),
                        "d/test-dir.2-0/mdtest_tree.4.0/mdtest_tree.4.3/file.mdtest.4.23");
}

static void
trees_without_measure_are_refused(void **state)
{
    struct md_options options = {
        .path = "d", .items = 1, .per_dir = MD_UNSET, .branching = 1 << 20, .depth = 3};
    struct md_shape shape;

    assert_int_equal(md_shape_compute(&options, &shape), -EOVERFLOW);
    options = (struct md_options){
        .path = "d", .items = MD_UNSET, .per_dir = UINT64_C(1) << 32, .branching = 2, .depth = 20};
    assert_int_equal(md_shape_compute(&options, &shape), -EOVERFLOW);
}

static void
offsets_follow_segments_blocks_and_transfers(void **state)
{
    struct ior_options options = {.block_bytes = 100, .transfer_bytes = 10, .segments = 3};

    assert_int_equal(ior_offset(&options, 4, 0, 0, 3), 30);
    assert_int_equal(ior_offset(&options, 4, 2, 1, 3), 400 + 200 + 30);
    options.per_process = true;
    assert_int_equal(ior_offset(&options, 4, 2, 1, 3), 100 + 30);
}

/* ---- phases on a back end of our own ---- */

static struct {
    unsigned char bytes[1 << 16];
    off_t size;
    int calls, fail_at; /* the fail_at-th read or write fails with -EIO */
    size_t most;        /* of one call */
} fake;

static int
fake_open(const struct io *io, const char *path, int flags, mode_t mode, union io_file *file_out)
{
    file_out->fd = 1;
    return 0;
}

static int
fake_close(union io_file file)
{
    return 0;
}

static ssize_t
fake_read(union io_file file, void *buffer, size_t bytes, off_t offset)
{
    if (++fake.calls == fake.fail_at) {
        return -EIO;
    }
    bytes = bytes > fake.most ? fake.most : bytes;
    bytes = offset + (off_t)bytes > fake.size ? (size_t)(fake.size - offset) : bytes;
    memcpy(buffer, fake.bytes + offset, bytes);
    return (ssize_t)bytes;
}

static ssize_t
fake_write(union io_file file, const void *buffer, size_t bytes, off_t offset)
{
    if (++fake.calls == fake.fail_at) {
        return -EIO;
    }
    bytes = bytes > fake.most ? fake.most : bytes;
    memcpy(fake.bytes + offset, buffer, bytes);
    fake.size = offset + (off_t)bytes > fake.size ? offset + (off_t)bytes : fake.size;
    return (ssize_t)bytes;
}

static int
fake_stat(const struct io *io, const char *path, struct stat *stat_out)
{
    stat_out->st_size = fake.size;
    return 0;
}

static int
fake_unlink(const struct io *io, const char *path)
{
    fake.size = 0;
    return 0;
}

static const struct io_ops fake_ops = {
    .name = "FAKE",
    .open = fake_open,
    .close = fake_close,
    .read = fake_read,
    .write = fake_write,
    .stat = fake_stat,
    .unlink = fake_unlink,
};

static char fake_buffer[1024];
static uint64_t fake_written[1];
static struct ior_result fake_results[8];

static struct ior
fake_ior(void)
{
    memset(&fake, 0, sizeof(fake));
    fake.most = 1024;
    fake_written[0] = UINT64_MAX;
    return (struct ior){.options = {.file = "f",
                                    .block_bytes = 8192,
                                    .transfer_bytes = 1024,
                                    .segments = 2,
                                    .repetitions = 1,
                                    .check_read = true},
                        .world = {.size = 1, .nodes = 1, .tasks_per_node = 1},
                        .io = {.ops = &fake_ops},
                        .signature = 9,
                        .is_marked = true,
                        .buffer = fake_buffer,
                        .written = fake_written,
                        .results = fake_results};
}

static void
free_results(const struct ior *ior)
{
    for (uint32_t i = 0; i < ior->result_count; i++) {
        free(ior->results[i].ranks);
    }
}

static void
short_transfers_are_finished_and_the_data_come_back(void **state)
{
    struct ior ior = fake_ior();

    fake.most = 100;
    assert_false(ior_phase(&ior, IOR_WRITE)->has_failed);
    assert_int_equal(fake.size, 16384);
    const struct ior_result *result = ior_phase(&ior, IOR_READ);
    assert_false(result->has_failed);
    assert_int_equal(result->bytes, 16384);
    assert_int_equal(result->transfers, 16);
    free_results(&ior);
}

static void
a_wrong_byte_fails_the_reading(void **state)
{
    struct ior ior = fake_ior();

    (void)ior_phase(&ior, IOR_WRITE);
    fake.bytes[5000] ^= 1;
    const struct ior_result *result = ior_phase(&ior, IOR_READ);
    assert_true(result->has_failed);
    assert_int_equal(result->data_errors, 1);
    assert_int_equal(result->ranks[0].data.first_offset, 5000);
    free_results(&ior);
}

static void
an_error_ends_the_phase_and_only_what_was_done_counts(void **state)
{
    struct ior ior = fake_ior();

    fake.fail_at = 4;
    const struct ior_result *result = ior_phase(&ior, IOR_WRITE);
    assert_true(result->has_failed);
    assert_int_equal(result->transfers, 3);
    assert_int_equal(result->bytes, 3072);
    assert_int_equal(result->expected_bytes, 16384);
    assert_int_equal(result->ranks[0].error, -EIO);
    free_results(&ior);
}

static void
reading_stops_where_writing_was_stopped(void **state)
{
    struct ior ior = fake_ior();

    (void)ior_phase(&ior, IOR_WRITE);
    fake_written[0] = 5;
    assert_int_equal(ior_phase(&ior, IOR_READ)->transfers, 5);
    free_results(&ior);
}

static void
a_file_that_ends_early_is_an_error(void **state)
{
    struct ior ior = fake_ior();

    (void)ior_phase(&ior, IOR_WRITE);
    fake.size = 10000;
    const struct ior_result *result = ior_phase(&ior, IOR_READ);
    assert_true(result->has_failed);
    assert_int_equal(result->ranks[0].error, -ENODATA);
    free_results(&ior);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(bandwidth_is_bytes_moved_over_first_start_to_last_end),
    cmocka_unit_test(a_second_in_close_halves_the_rate),
    cmocka_unit_test(fsync_belongs_to_the_transfer_time),
    cmocka_unit_test(a_rank_that_could_not_open_leaves_no_times_but_fails_the_phase),
    cmocka_unit_test(a_rate_counts_what_was_done_by_the_slowest_rank),
    cmocka_unit_test(a_phase_that_was_not_run_has_no_rate),
    cmocka_unit_test(summaries_leave_out_what_was_not_measured),
    cmocka_unit_test(columns_are_as_wide_and_as_exact_as_in_ior),
    cmocka_unit_test(json_has_null_for_what_is_no_number),
    cmocka_unit_test(data_do_not_depend_on_how_they_are_cut),
    cmocka_unit_test(each_flipped_byte_is_found_where_it_is),
    cmocka_unit_test(data_of_another_place_or_rank_are_wrong),
    cmocka_unit_test(a_shuffle_holds_every_number_once),
    cmocka_unit_test(short_flags_combine_and_take_values_as_the_originals_do),
    cmocka_unit_test(what_is_wrong_on_the_command_line_is_refused),
    cmocka_unit_test(items_spread_over_the_tree_as_in_mdtest),
    cmocka_unit_test(names_are_those_of_mdtest),
    cmocka_unit_test(trees_without_measure_are_refused),
    cmocka_unit_test(offsets_follow_segments_blocks_and_transfers),
    cmocka_unit_test(short_transfers_are_finished_and_the_data_come_back),
    cmocka_unit_test(a_wrong_byte_fails_the_reading),
    cmocka_unit_test(an_error_ends_the_phase_and_only_what_was_done_counts),
    cmocka_unit_test(reading_stops_where_writing_was_stopped),
    cmocka_unit_test(a_file_that_ends_early_is_an_error),
};

TEST_MAIN(cases)
