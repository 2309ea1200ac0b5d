/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Property: a file's bytes are those of a model in memory after any reads, writes, truncations and
 * holes, for every striping and every way that bytes travel; reads are short at the end of the file
 * only and touch nothing behind it; appends never lose or mix. Method: seeded random operations at
 * boundaries, against servers in threads.
 */
#include "tests/test.h"

#include "base/prng.h"
#include "tests/support/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL_BYTES (UINT64_C(6) << 20)
#define UNIT        65536u
#define POISON      0xa5

struct bed {
    struct cluster *cluster;
    struct causeway *fs;
    uint8_t *model;
    uint8_t *buffer;
    uint64_t size;
};

static struct bed *
bed_make(const struct cluster_options *servers, const struct causeway_options *client)
{
    struct bed *bed = calloc(1, sizeof(*bed));

    assert_int_equal(cluster_start(servers, &bed->cluster), 0);
    assert_int_equal(cluster_mount(bed->cluster, client, &bed->fs), 0);
    bed->model = calloc(1, MODEL_BYTES + UNIT);
    bed->buffer = malloc(MODEL_BYTES + UNIT);
    return bed;
}

static void
bed_free(struct bed *bed)
{
    causeway_unmount(bed->fs);
    cluster_stop(bed->cluster);
    free(bed->model);
    free(bed->buffer);
    free(bed);
}

/* Cuts [base, base + bytes) into up to @room parts of random sizes. */
static int
cut(struct base_prng *prng, uint8_t *base, uint64_t bytes, struct iovec *iov, uint32_t room)
{
    const uint32_t count = 1 + (uint32_t)base_prng_below(prng, room);

    for (uint32_t i = 0; i < count; i++) {
        const uint64_t part = i + 1 == count ? bytes : base_prng_below(prng, bytes + 1);

        iov[i] = (struct iovec){.iov_base = base, .iov_len = part};
        base += part;
        bytes -= part;
    }
    return (int)count;
}

static uint64_t
pick_offset(struct base_prng *prng, uint64_t size)
{
    const uint64_t unit = UNIT * base_prng_below(prng, MODEL_BYTES / UNIT);

    switch (base_prng_below(prng, 5)) {
    case 0:
        return 0;
    case 1:
        return unit;
    case 2:
        return unit + base_prng_below(prng, 5);
    case 3:
        return size > 2 ? size - base_prng_below(prng, 3) : size;
    default:
        return base_prng_below(prng, MODEL_BYTES);
    }
}

static uint64_t
pick_length(struct base_prng *prng, uint64_t offset)
{
    static const uint64_t lengths[] = {1,    7,    4095,     4096,   4097,    8191,         8192,
                                       8193, UNIT, UNIT + 1, 100000, 1 << 20, (1 << 20) + 1};
    uint64_t length = lengths[base_prng_below(prng, BASE_ARRAY_LEN(lengths))];

    if (base_prng_below(prng, 8) == 0) {
        length = base_prng_below(prng, UINT64_C(4) << 20);
    }
    return base_min_u64(length, MODEL_BYTES - offset);
}

static void
write_random(struct bed *bed, struct causeway_file *file, struct base_prng *prng)
{
    const uint64_t offset = pick_offset(prng, bed->size);
    const uint64_t length = pick_length(prng, offset);
    const uint8_t seed = (uint8_t)base_prng_below(prng, 256);
    struct iovec iov[40];
    off_t end = -1;

    for (uint64_t i = 0; i < length; i++) {
        bed->buffer[i] = (uint8_t)(seed + i * 31 + (i >> 8));
    }
    const int count = cut(prng, bed->buffer, length, iov, base_prng_below(prng, 4) == 0 ? 40 : 3);

    assert_int_equal(causeway_pwritev(file, iov, count, (off_t)offset, &end), length);
    if (length > 0) {
        assert_int_equal(end, offset + length);
    }
    (void)memcpy(bed->model + offset, bed->buffer, length);
    bed->size = length > 0 ? base_max_u64(bed->size, offset + length) : bed->size;
}

static void
read_random(struct bed *bed, struct causeway_file *file, struct base_prng *prng)
{
    const uint64_t offset = pick_offset(prng, bed->size);
    const uint64_t length = pick_length(prng, offset);
    const uint64_t wanted = offset >= bed->size ? 0 : base_min_u64(length, bed->size - offset);
    struct iovec iov[40];
    const int count = cut(prng, bed->buffer, length, iov, base_prng_below(prng, 4) == 0 ? 40 : 3);

    (void)memset(bed->buffer, POISON, length + 1);
    const ssize_t got = causeway_preadv(file, iov, count, (off_t)offset);

    assert_int_equal(got, wanted);
    assert_int_equal(memcmp(bed->buffer, bed->model + offset, wanted), 0);
    for (uint64_t i = wanted; i <= length; i++) {
        assert_int_equal(bed->buffer[i], POISON);
    }
}

static void
truncate_random(struct bed *bed, struct causeway_file *file, struct base_prng *prng)
{
    const uint64_t size = pick_offset(prng, bed->size);
    const struct causeway_attr attr = {.valid = CAUSEWAY_SET_SIZE, .size = size};

    assert_int_equal(causeway_fsetattr(file, &attr), 0);
    if (size < bed->size) {
        (void)memset(bed->model + size, 0, bed->size - size);
    }
    bed->size = size;
}

static void
fallocate_random(struct bed *bed, struct causeway_file *file, struct base_prng *prng)
{
    const uint64_t offset = pick_offset(prng, bed->size);
    const uint64_t length = pick_length(prng, offset);

    if (length == 0) {
        return;
    }
    if (base_prng_below(prng, 2) == 0) {
        assert_int_equal(causeway_fallocate(file, 0, (off_t)offset, (off_t)length), 0);
        bed->size = base_max_u64(bed->size, offset + length);
    } else {
        assert_int_equal(causeway_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                            (off_t)offset, (off_t)length),
                         0);
        (void)memset(bed->model + offset, 0, length);
    }
}

static void
size_check(struct bed *bed, struct causeway_file *file)
{
    struct stat st;

    assert_int_equal(causeway_fstat(file, &st), 0);
    assert_int_equal(st.st_size, bed->size);
}

static void
model_run(const struct cluster_options *servers, const struct causeway_options *client,
          uint32_t steps, uint64_t seed)
{
    struct bed *bed = bed_make(servers, client);
    struct causeway_file *file = NULL;
    struct base_prng prng;

    base_prng_seed(&prng, seed);
    assert_int_equal(causeway_open(bed->fs, NULL, "f", O_RDWR | O_CREAT, 0644, &file), 0);
    for (uint32_t i = 0; i < steps; i++) {
        switch (base_prng_below(&prng, 12)) {
        case 0:
            truncate_random(bed, file, &prng);
            break;
        case 1:
            fallocate_random(bed, file, &prng);
            break;
        case 2:
            size_check(bed, file);
            break;
        case 3:
            assert_int_equal(causeway_fsync(file), 0);
            break;
        case 4:
        case 5:
        case 6:
        case 7:
            write_random(bed, file, &prng);
            break;
        default:
            read_random(bed, file, &prng);
            break;
        }
    }
    size_check(bed, file);
    const struct iovec all = {.iov_base = bed->buffer, .iov_len = MODEL_BYTES};

    assert_int_equal(causeway_preadv(file, &all, 1, 0), bed->size);
    assert_int_equal(memcmp(bed->buffer, bed->model, bed->size), 0);
    causeway_close(file);
    bed_free(bed);
}

#define STEPS 150u

static void
a_file_of_one_stripe_is_its_model(void **state)
{
    model_run(NULL, NULL, 2 * STEPS, 1);
}

static void
a_file_of_two_stripes_on_two_servers_is_its_model(void **state)
{
    const struct cluster_options servers = {.oss_count = 2, .stripe_count = 2};

    model_run(&servers, NULL, STEPS, 2);
}

static void
a_file_of_three_stripes_over_reactors_is_its_model(void **state)
{
    const struct cluster_options servers = {
        .oss_reactors = 2, .osts_per_oss = 3, .stripe_count = 3};

    model_run(&servers, NULL, STEPS, 3);
}

static void
a_file_of_four_stripes_is_its_model(void **state)
{
    const struct cluster_options servers = {
        .oss_count = 2, .osts_per_oss = 2, .stripe_count = 0xffff};

    model_run(&servers, NULL, STEPS, 4);
}

static void
without_leases_the_server_copies(void **state)
{
    const struct causeway_options client = {.no_lease = 1};
    const struct cluster_options servers = {.osts_per_oss = 2, .stripe_count = 2};

    model_run(&servers, &client, STEPS, 5);
}

static void
a_server_without_leases_copies(void **state)
{
    const struct cluster_options servers = {.osts_per_oss = 2, .stripe_count = 2, .no_lease = 1};

    model_run(&servers, NULL, STEPS, 6);
}

static void
checksums_go_with_every_byte(void **state)
{
    const struct causeway_options lease = {.checksum = 1};
    const struct causeway_options bulk = {.checksum = 1, .no_lease = 1};

    model_run(NULL, &lease, STEPS, 7);
    model_run(NULL, &bulk, STEPS, 8);
}

static void
every_bulk_path_moves_the_same_bytes(void **state)
{
    for (uint32_t path = BULK_PATH_CMA; path <= BULK_PATH_STAGING; path++) {
        const struct causeway_options client = {.bulk_path = path};

        model_run(NULL, &client, STEPS / 2, 10 + path);
    }
}

/* ---- single properties ---- */

static void
reads_at_the_end_are_short_and_exact(void **state)
{
    static const struct {
        uint64_t offset;
        ssize_t wanted;
    } reads[] = {{0, 14400}, {14399, 1}, {14400, 0}, {14401, 0}, {14400 + (1 << 30), 0}};
    const struct cluster_options servers = {.osts_per_oss = 3, .stripe_count = 3};
    struct bed *bed = bed_make(&servers, NULL);
    struct causeway_file *file = NULL;
    const struct iovec write = {.iov_base = bed->model, .iov_len = 14400};
    const struct iovec read = {.iov_base = bed->buffer, .iov_len = 65536};

    (void)memset(bed->model, 'd', 14400);
    assert_int_equal(causeway_open(bed->fs, NULL, "f", O_RDWR | O_CREAT, 0644, &file), 0);
    assert_int_equal(causeway_pwritev(file, &write, 1, 0, NULL), 14400);
    for (size_t i = 0; i < BASE_ARRAY_LEN(reads); i++) {
        (void)memset(bed->buffer, POISON, 65536);
        assert_int_equal(causeway_preadv(file, &read, 1, (off_t)reads[i].offset), reads[i].wanted);
        for (ssize_t j = 0; j < 65536; j++) {
            assert_int_equal(bed->buffer[j], j < reads[i].wanted ? 'd' : POISON);
        }
    }
    causeway_close(file);
    bed_free(bed);
}

static void
offsets_beyond_4_gib_and_to_the_end_of_offsets_work(void **state)
{
    static const uint64_t offsets[] = {
        (UINT64_C(1) << 31) - 1,  (UINT64_C(1) << 31) + 10, (UINT64_C(1) << 32) - 1,
        (UINT64_C(1) << 32) + 10, UINT64_C(1) << 40,        (UINT64_C(1) << 62) + 3,
    };
    const struct cluster_options servers = {.osts_per_oss = 2, .stripe_count = 2};
    struct bed *bed = bed_make(&servers, NULL);
    struct causeway_file *file = NULL;
    struct stat st;
    char text[8] = "";
    const struct iovec write = {.iov_base = (void *)(uintptr_t) "far", .iov_len = 3};
    const struct iovec read = {.iov_base = text, .iov_len = 8};

    assert_int_equal(causeway_open(bed->fs, NULL, "f", O_RDWR | O_CREAT, 0644, &file), 0);
    for (size_t i = 0; i < BASE_ARRAY_LEN(offsets); i++) {
        assert_int_equal(causeway_pwritev(file, &write, 1, (off_t)offsets[i], NULL), 3);
        assert_int_equal(causeway_fstat(file, &st), 0);
        assert_int_equal(st.st_size, offsets[i] + 3);
        assert_int_equal(causeway_preadv(file, &read, 1, (off_t)offsets[i] - 1), 4);
        assert_memory_equal(text, "\0far", 4);
    }
    assert_int_equal(causeway_pwritev(file, &write, 1, INT64_MAX - 2, NULL), -EFBIG);
    assert_int_equal(causeway_preadv(file, &read, 1, INT64_MAX - 2), 0);
    causeway_close(file);
    bed_free(bed);
}

static void
holes_and_data_are_found(void **state)
{
    const struct cluster_options servers = {.osts_per_oss = 2, .stripe_count = 2};
    struct bed *bed = bed_make(&servers, NULL);
    struct causeway_file *file = NULL;
    const struct iovec write = {.iov_base = bed->model, .iov_len = UNIT};

    (void)memset(bed->model, 'd', UNIT);
    assert_int_equal(causeway_open(bed->fs, NULL, "f", O_RDWR | O_CREAT, 0644, &file), 0);
    assert_int_equal(causeway_seek(file, 0, SEEK_DATA), -ENXIO);
    assert_int_equal(causeway_pwritev(file, &write, 1, 3 * UNIT, NULL), UNIT);
    assert_int_equal(causeway_pwritev(file, &write, 1, 8 * UNIT, NULL), UNIT);
    /* Where data begins may be told too early and where a hole begins too late, by whole blocks. */
    const off_t data = causeway_seek(file, 0, SEEK_DATA);
    const off_t hole = causeway_seek(file, 3 * UNIT, SEEK_HOLE);

    assert_true(data <= 3 * UNIT);
    assert_true(hole >= 4 * UNIT && hole <= 9 * UNIT);
    assert_int_equal(causeway_seek(file, 8 * UNIT + 5, SEEK_DATA), 8 * UNIT + 5);
    assert_int_equal(causeway_seek(file, 8 * UNIT, SEEK_HOLE), 9 * UNIT);
    assert_int_equal(causeway_seek(file, 9 * UNIT, SEEK_DATA), -ENXIO);
    assert_int_equal(causeway_seek(file, 9 * UNIT, SEEK_HOLE), -ENXIO);
    causeway_close(file);
    bed_free(bed);
}

static void
truncation_at_open_empties_the_objects(void **state)
{
    const struct cluster_options servers = {.osts_per_oss = 2, .stripe_count = 2};
    struct bed *bed = bed_make(&servers, NULL);
    struct causeway_file *file = NULL;
    struct oss_stats stats;
    const struct iovec write = {.iov_base = bed->model, .iov_len = 3 * UNIT};
    struct stat st;

    assert_int_equal(causeway_open(bed->fs, NULL, "f", O_RDWR | O_CREAT, 0644, &file), 0);
    assert_int_equal(causeway_pwritev(file, &write, 1, 0, NULL), 3 * UNIT);
    causeway_close(file);
    assert_int_equal(causeway_open(bed->fs, NULL, "f", O_RDWR | O_TRUNC, 0644, &file), 0);
    assert_int_equal(causeway_fstat(file, &st), 0);
    assert_int_equal(st.st_size, 0);
    assert_int_equal(causeway_preadv(file, &write, 1, 0), 0);
    causeway_close(file);
    assert_int_equal(causeway_unlink(bed->fs, NULL, "f"), 0);
    for (int i = 0; i < 100; i++) {
        cluster_oss_stats(bed->cluster, &stats);
        if (stats.objects == 0) {
            break;
        }
        (void)usleep(10000);
    }
    assert_int_equal(stats.objects, 0);
    bed_free(bed);
}

static void
access_modes_are_kept(void **state)
{
    struct bed *bed = bed_make(NULL, NULL);
    struct causeway_file *file = NULL;
    const struct iovec iov = {.iov_base = bed->buffer, .iov_len = 10};
    const struct causeway_attr attr = {.valid = CAUSEWAY_SET_SIZE};

    assert_int_equal(causeway_open(bed->fs, NULL, "f", O_WRONLY | O_CREAT, 0644, &file), 0);
    assert_int_equal(causeway_preadv(file, &iov, 1, 0), -EBADF);
    causeway_close(file);
    assert_int_equal(causeway_open(bed->fs, NULL, "f", O_RDONLY, 0, &file), 0);
    assert_int_equal(causeway_pwritev(file, &iov, 1, 0, NULL), -EBADF);
    assert_int_equal(causeway_fsetattr(file, &attr), -EINVAL);
    assert_int_equal(causeway_preadv(file, &iov, 1, -1), -EINVAL);
    assert_int_equal(causeway_preadv(file, &iov, 1025, 0), -EINVAL);
    causeway_close(file);
    assert_int_equal(causeway_open(bed->fs, NULL, "/", O_RDONLY, 0, &file), 0);
    assert_int_equal(causeway_preadv(file, &iov, 1, 0), -EISDIR);
    causeway_close(file);
    bed_free(bed);
}

/* ---- append ---- */

#define RECORDS 150u

static void
records_append(struct causeway *fs, uint32_t writer)
{
    struct causeway_file *file = NULL;
    static uint8_t record[20000];
    struct base_prng prng;
    off_t last = 0;

    base_prng_seed(&prng, writer + 1);
    assert_int_equal(causeway_open(fs, NULL, "log", O_WRONLY | O_APPEND, 0, &file), 0);
    for (uint32_t i = 0; i < RECORDS; i++) {
        const uint32_t length =
            12 + (uint32_t)base_prng_below(&prng, i % 10 == 0 ? sizeof(record) - 12 : 5000);
        const struct iovec iov = {.iov_base = record, .iov_len = length};
        const uint32_t head[3] = {length, writer, i};
        off_t end = 0;

        (void)memset(record, (int)(writer * 16 + i % 16), length);
        (void)memcpy(record, head, sizeof(head));
        assert_int_equal(causeway_pwritev(file, &iov, 1, -1, &end), length);
        assert_true(end >= last + length);
        last = end;
    }
    causeway_close(file);
}

static void
append_run(uint32_t stripe_count)
{
    const struct cluster_options servers = {.osts_per_oss = 2, .stripe_count = stripe_count};
    struct bed *bed;
    struct cluster *cluster = NULL;
    struct causeway_file *file = NULL;
    struct causeway *fs = NULL;
    pid_t pids[4];
    pid_t server = 0;
    uint32_t next[4] = {0};
    uint64_t at = 0;

    assert_int_equal(cluster_fork(&servers, &cluster, &server), 0);
    assert_int_equal(cluster_mount(cluster, NULL, &fs), 0);
    assert_int_equal(causeway_open(fs, NULL, "log", O_RDWR | O_CREAT, 0644, &file), 0);
    for (uint32_t i = 0; i < 4; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct causeway *mine = NULL;

            causeway_fork_child(fs);
            if (cluster_mount(cluster, NULL, &mine) != 0) {
                _exit(1);
            }
            records_append(mine, i);
            causeway_unmount(mine);
            _exit(0);
        }
    }
    for (uint32_t i = 0; i < 4; i++) {
        int status = 0;

        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    bed = calloc(1, sizeof(*bed));
    bed->buffer = malloc(MODEL_BYTES);
    const struct iovec all = {.iov_base = bed->buffer, .iov_len = MODEL_BYTES};
    const ssize_t size = causeway_preadv(file, &all, 1, 0);

    assert_true(size > 0 && (uint64_t)size < MODEL_BYTES);
    while (at < (uint64_t)size) {
        uint32_t head[3];

        assert_true((uint64_t)size - at >= sizeof(head));
        (void)memcpy(head, bed->buffer + at, sizeof(head));
        assert_true(head[1] < 4);
        assert_int_equal(head[2], next[head[1]]);
        next[head[1]]++;
        assert_true(head[0] <= (uint64_t)size - at);
        for (uint32_t i = sizeof(head); i < head[0]; i++) {
            assert_int_equal(bed->buffer[at + i], head[1] * 16 + head[2] % 16);
        }
        at += head[0];
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(next[i], RECORDS);
    }
    causeway_close(file);
    causeway_unmount(fs);
    cluster_stop(cluster);
    free(bed->buffer);
    free(bed);
}

static void
appends_of_four_processes_are_whole_with_one_stripe(void **state)
{
    append_run(1);
}

static void
appends_of_four_processes_are_whole_with_two_stripes(void **state)
{
    append_run(2);
}

static void
a_long_append_is_one_piece(void **state)
{
    struct bed *bed = bed_make(NULL, NULL);
    struct causeway_file *file = NULL;
    const struct iovec iov = {.iov_base = bed->model, .iov_len = MODEL_BYTES};
    off_t end = 0;

    for (uint64_t i = 0; i < MODEL_BYTES; i++) {
        bed->model[i] = (uint8_t)(i * 7 + (i >> 12));
    }
    assert_int_equal(causeway_open(bed->fs, NULL, "f", O_RDWR | O_CREAT, 0644, &file), 0);
    assert_int_equal(causeway_pwritev(file, &iov, 1, -1, &end), MODEL_BYTES);
    assert_int_equal(end, MODEL_BYTES);
    assert_int_equal(causeway_pwritev(file, &iov, 1, -1, &end), MODEL_BYTES);
    assert_int_equal(end, 2 * MODEL_BYTES);
    const struct iovec read = {.iov_base = bed->buffer, .iov_len = MODEL_BYTES};

    assert_int_equal(causeway_preadv(file, &read, 1, MODEL_BYTES), MODEL_BYTES);
    assert_int_equal(memcmp(bed->buffer, bed->model, MODEL_BYTES), 0);
    causeway_close(file);
    bed_free(bed);
}

/* ---- without waiting ---- */

struct asked {
    uint32_t done;
    ssize_t results[16];
};

struct one {
    struct asked *asked;
    uint32_t index;
};

static void
asked_done(void *arg, ssize_t result)
{
    const struct one *one = arg;

    one->asked->results[one->index] = result;
    one->asked->done++;
}

static void
asynchronous_writes_and_reads_end_once_each(void **state)
{
    const struct cluster_options servers = {.osts_per_oss = 2, .stripe_count = 2};
    struct bed *bed = bed_make(&servers, NULL);
    struct causeway_file *file = NULL;
    struct asked asked = {0};
    struct one ones[16];
    const uint64_t part = MODEL_BYTES / 16;

    for (uint64_t i = 0; i < MODEL_BYTES; i++) {
        bed->model[i] = (uint8_t)(i * 13 + (i >> 11));
    }
    assert_int_equal(causeway_open(bed->fs, NULL, "f", O_RDWR | O_CREAT, 0644, &file), 0);
    for (uint32_t round = 0; round < 2; round++) {
        asked.done = 0;
        for (uint32_t i = 0; i < 16; i++) {
            const struct iovec iov = {
                .iov_base = (round == 0 ? bed->model : bed->buffer) + i * part, .iov_len = part};

            ones[i] = (struct one){&asked, i};
            assert_int_equal(causeway_io_submit(file, round == 0, &iov, 1, (off_t)(i * part),
                                                asked_done, &ones[i]),
                             0);
        }
        while (asked.done < 16) {
            (void)causeway_io_poll(bed->fs, 1000000000);
        }
        for (uint32_t i = 0; i < 16; i++) {
            assert_int_equal(asked.results[i], part);
        }
    }
    assert_int_equal(memcmp(bed->buffer, bed->model, MODEL_BYTES), 0);
    assert_int_equal(causeway_io_poll(bed->fs, 0), 0);
    causeway_close(file);
    bed_free(bed);
}

static void
leases_go_back_when_a_call_ends(void **state)
{
    struct bed *bed = bed_make(NULL, NULL);
    struct causeway_file *file = NULL;
    struct oss_stats stats;
    const struct iovec iov = {.iov_base = bed->buffer, .iov_len = MODEL_BYTES};

    (void)memset(bed->buffer, 'x', MODEL_BYTES);
    assert_int_equal(causeway_open(bed->fs, NULL, "f", O_RDWR | O_CREAT, 0644, &file), 0);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(causeway_pwritev(file, &iov, 1, 0, NULL), MODEL_BYTES);
        assert_int_equal(causeway_preadv(file, &iov, 1, 0), MODEL_BYTES);
    }
    assert_int_equal(causeway_fsync(file), 0);
    cluster_oss_stats(bed->cluster, &stats);
    assert_int_equal(stats.leases_out, 0);
    assert_true(stats.leases_total > 0);
    causeway_close(file);
    bed_free(bed);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_file_of_one_stripe_is_its_model),
    cmocka_unit_test(a_file_of_two_stripes_on_two_servers_is_its_model),
    cmocka_unit_test(a_file_of_three_stripes_over_reactors_is_its_model),
    cmocka_unit_test(a_file_of_four_stripes_is_its_model),
    cmocka_unit_test(without_leases_the_server_copies),
    cmocka_unit_test(a_server_without_leases_copies),
    cmocka_unit_test(checksums_go_with_every_byte),
    cmocka_unit_test(every_bulk_path_moves_the_same_bytes),
    cmocka_unit_test(reads_at_the_end_are_short_and_exact),
    cmocka_unit_test(offsets_beyond_4_gib_and_to_the_end_of_offsets_work),
    cmocka_unit_test(holes_and_data_are_found),
    cmocka_unit_test(truncation_at_open_empties_the_objects),
    cmocka_unit_test(access_modes_are_kept),
    cmocka_unit_test(appends_of_four_processes_are_whole_with_one_stripe),
    cmocka_unit_test(appends_of_four_processes_are_whole_with_two_stripes),
    cmocka_unit_test(a_long_append_is_one_piece),
    cmocka_unit_test(asynchronous_writes_and_reads_end_once_each),
    cmocka_unit_test(leases_go_back_when_a_call_ends),
};

TEST_MAIN(cases)
