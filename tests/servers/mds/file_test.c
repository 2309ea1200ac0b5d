/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Open files, directories that are read while they change, locks, death of clients, destruction of
 * objects, and requests that are malformed.
 */
#include "tests/servers/mds/rig.h"
#include "tests/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct rig rig;

static void
begin(uint32_t reactors)
{
    rig = (struct rig){.osts = 4};
    rig_open(&rig, reactors, reactors);
}

#define EACH_REACTORS(n) for (uint32_t n = 1; n <= 4; n *= 2)

/* ---- open and unlinked ---- */

static void
a_file_lives_until_its_last_close(void **state)
{
    EACH_REACTORS(reactors)
    {
        begin(reactors);
        assert_int_equal(rig_mkdir(&rig, "d", 0755), 0);
        assert_int_equal(
            rig_open_file(&rig, "d/f", MDS_OPEN_READ | MDS_OPEN_WRITE | MDS_OPEN_CREATE, 0, 0644),
            0);
        const struct fid fid = rig.attr.fid;
        const uint64_t first = rig.handle;

        assert_int_equal(rig_open_file(&rig, "d/f", MDS_OPEN_READ, 0, 0), 0);
        const uint64_t second = rig.handle;

        assert_int_equal(rig_unlink(&rig, "d/f"), 0);
        assert_int_equal(rig.attr.nlink, 0);
        assert_int_equal(rig_stat_fid(&rig, &fid), 0);
        assert_int_equal(rig.attr.nlink, 0);
        assert_int_equal(rig_mkdir(&rig, "d/f", 0755), 0); /* the name is free */
        assert_int_equal(rig_rmdir(&rig, "d/f"), 0);
        assert_int_equal(rig_rmdir(&rig, "d"), 0); /* and so is the directory */

        /* truncated through the handle, and opened once more by its FID */
        struct mds_setattr_req set = {.valid = MDS_SET_SIZE, .size = 100, .handle = first};

        assert_int_equal(
            rig_do(&rig, MDS_REINT_SETATTR, &set, sizeof(set), &fid, "", NULL, NULL, NULL, 0), 0);
        set.handle = second;
        assert_int_equal(
            rig_do(&rig, MDS_REINT_SETATTR, &set, sizeof(set), &fid, "", NULL, NULL, NULL, 0),
            -EBADF);
        assert_int_equal(rig_open_fid(&rig, &fid, MDS_OPEN_WRITE), 0);
        const uint64_t third = rig.handle;

        assert_int_equal(rig_close_file(&rig, &fid, first, 0), 0);
        assert_int_equal(rig_close_file(&rig, &fid, first, 0), -EBADF);
        assert_int_equal(rig_close_file(&rig, &fid, second, 0), 0);
        assert_int_equal(rig_stat_fid(&rig, &fid), 0);
        assert_int_equal(rig_close_file(&rig, &fid, third, 0), 0);
        assert_int_equal(rig_stat_fid(&rig, &fid), -ESTALE);
        rig_time(&rig, 10000000);
        assert_int_equal(rig.destroyed, 1); /* it had a size */
        rig_close(&rig);
    }
}

static void
a_nameless_file_may_get_a_name(void **state)
{
    EACH_REACTORS(reactors)
    {
        begin(reactors);
        assert_int_equal(rig_mkdir(&rig, "d", 0755), 0);
        assert_int_equal(rig_mkdir(&rig, "e", 0755), 0);
        assert_int_equal(rig_open_file(&rig, "d", MDS_OPEN_WRITE | MDS_OPEN_TMPFILE, 0, 0600), 0);
        const struct fid fid = rig.attr.fid;
        const uint64_t handle = rig.handle;
        const struct mds_rename_req link = {0};

        assert_int_equal(rig.attr.nlink, 0);
        assert_int_equal(
            rig_do(&rig, MDS_REINT_LINK, &link, sizeof(link), &fid, "", NULL, "e/f", NULL, 0), 0);
        assert_int_equal(
            rig_do(&rig, MDS_REINT_LINK, &link, sizeof(link), &fid, "", NULL, "e/f", NULL, 0),
            -EEXIST);
        assert_int_equal(rig_stat(&rig, "e/f"), 0);
        assert_int_equal(rig.attr.nlink, 1);
        assert_int_equal(rig_close_file(&rig, &fid, handle, 0), 0);
        assert_int_equal(rig_stat(&rig, "e/f"), 0);

        /* one that may not, and one that was unlinked: no name any more */
        assert_int_equal(
            rig_open_file(&rig, "d", MDS_OPEN_WRITE | MDS_OPEN_TMPFILE | MDS_OPEN_EXCL, 0, 0600),
            0);
        const struct fid excl = rig.attr.fid;

        assert_int_equal(
            rig_do(&rig, MDS_REINT_LINK, &link, sizeof(link), &excl, "", NULL, "e/g", NULL, 0),
            -ENOENT);
        assert_int_equal(rig_open_file(&rig, "e/f", MDS_OPEN_READ, 0, 0), 0);
        assert_int_equal(rig_unlink(&rig, "e/f"), 0);
        assert_int_equal(
            rig_do(&rig, MDS_REINT_LINK, &link, sizeof(link), &fid, "", NULL, "e/g", NULL, 0),
            -ENOENT);
        rig_close(&rig);
    }
}

static void
what_a_dead_client_had_open_is_freed(void **state)
{
    EACH_REACTORS(reactors)
    {
        char name[32];
        uint64_t inodes = 0;

        begin(reactors);
        rig_connect(&rig, 1);
        assert_int_equal(rig_mkdir(&rig, "d", 0755), 0);
        rig.client = 1;
        for (uint32_t i = 0; i < 3000; i++) {
            (void)snprintf(name, sizeof(name), "d/f%u", i);
            assert_int_equal(rig_open_file(&rig, name, MDS_OPEN_WRITE | MDS_OPEN_CREATE, 0, 0644),
                             0);
            if (i % 2 == 0) {
                assert_int_equal(rig_unlink(&rig, name), 0);
            }
        }
        assert_int_equal(rig_open_file(&rig, "d", MDS_OPEN_READ, 0, 0), 0);
        rig_kill(&rig, 1);
        rig.client = 0;
        rig_time(&rig, 10000000);
        assert_int_equal(rig.destroyed, 1500); /* nobody knows: it may have written */
        for (uint32_t i = 0; i < reactors; i++) {
            struct mds_stats stats;

            mds_stats_get(rig.mds[i], &stats);
            inodes += stats.inodes;
            assert_int_equal(stats.open_handles, 0);
            assert_int_equal(stats.orphans, 0);
            mds_check(rig.mds[i]);
        }
        assert_int_equal(inodes, 1502);
        assert_int_equal(rig_stat(&rig, "d/f1"), 0);
        assert_int_not_equal(rig.attr.flags & MDS_ATTR_SIZE_ON_OST, 0);
        for (uint32_t i = 1; i < 3000; i += 2) {
            (void)snprintf(name, sizeof(name), "d/f%u", i);
            assert_int_equal(rig_unlink(&rig, name), 0);
        }
        assert_int_equal(rig_rmdir(&rig, "d"), 0);
        rig_close(&rig);
    }
}

static void
a_handle_is_its_clients_alone(void **state)
{
    begin(1);
    rig_connect(&rig, 1);
    assert_int_equal(rig_open_file(&rig, "f", MDS_OPEN_WRITE | MDS_OPEN_CREATE, 0, 0644), 0);
    const struct fid fid = rig.attr.fid;
    const struct fid root = FID_ROOT;
    const uint64_t handle = rig.handle;

    rig.client = 1;
    assert_int_equal(rig_close_file(&rig, &fid, handle, 0), -EBADF);
    assert_int_equal(rig_flock(&rig, &fid, handle, 1, 0, 1, MDS_LOCK_WRITE), -EBADF);
    rig.client = 0;
    assert_int_equal(rig_close_file(&rig, &root, handle, 0), -EBADF);
    assert_int_equal(rig_close_file(&rig, &fid, handle + 1, 0), -EBADF);
    assert_int_equal(rig_close_file(&rig, &fid, UINT64_MAX, 0), -EBADF);
    assert_int_equal(rig_close_file(&rig, &fid, handle, 0), 0);
    rig_close(&rig);
}

static void
size_is_on_the_osts_once_somebody_may_have_written(void **state)
{
    begin(1);
    assert_int_equal(rig_open_file(&rig, "f", MDS_OPEN_WRITE | MDS_OPEN_CREATE, 0, 0644), 0);
    assert_int_equal(rig.attr.flags, 0); /* before it was opened */
    const struct fid fid = rig.attr.fid;
    const uint64_t handle = rig.handle;

    assert_int_equal(rig_stat(&rig, "f"), 0);
    assert_int_equal(rig.attr.flags, MDS_ATTR_SIZE_ON_OST);
    assert_int_equal(rig_close_file(&rig, &fid, handle, 0), 0);
    assert_int_equal(rig_stat(&rig, "f"), 0);
    assert_int_equal(rig.attr.flags, 0);
    assert_int_equal(rig_open_file(&rig, "f", MDS_OPEN_WRITE | MDS_OPEN_TRUNC, 0, 0), 0);
    assert_int_equal(rig.attr.flags, 0); /* nothing to punch */
    assert_int_equal(rig_close_file(&rig, &fid, rig.handle, MDS_CLOSE_WROTE), 0);
    assert_int_equal(rig_stat(&rig, "f"), 0);
    assert_int_equal(rig.attr.flags, MDS_ATTR_SIZE_ON_OST);
    assert_int_equal(rig_open_file(&rig, "f", MDS_OPEN_WRITE | MDS_OPEN_TRUNC, 0, 0), 0);
    assert_int_equal(rig.attr.flags, MDS_ATTR_SIZE_ON_OST);
    assert_int_equal(rig_close_file(&rig, &fid, rig.handle, 0), 0);

    assert_int_equal(rig_creat(&rig, "g"), 0);
    const struct mds_setattr_req set = {.valid = MDS_SET_SIZE, .size = 1};

    assert_int_equal(rig_setattr(&rig, "g", &set), 0);
    assert_int_equal(rig.attr.flags, MDS_ATTR_SIZE_ON_OST);
    rig_close(&rig);
}

static void
mtime_survives_a_change_of_mode_after_writing(void **state)
{
    begin(1);
    assert_int_equal(rig_creat(&rig, "f"), 0);
    rig_time(&rig, 1000000000);
    assert_int_equal(rig_open_file(&rig, "f", MDS_OPEN_WRITE, 0, 0), 0);
    const int64_t opened = (int64_t)(RIG_WALL_NS + rig.now_ns);

    rig_time(&rig, 1000000000);
    assert_int_equal(rig_close_file(&rig, &rig.attr.fid, rig.handle, MDS_CLOSE_WROTE), 0);
    assert_int_equal(rig_stat(&rig, "f"), 0);
    assert_true(rig.attr.mtime_ns > opened);
    assert_true(rig.attr.ctime_ns < opened); /* so that the objects' own times count */
    rig_time(&rig, 1000000000);
    assert_int_equal(rig_chmod(&rig, "f", 0600), 0);
    assert_true(rig.attr.mtime_ns > opened);
    assert_true(rig.attr.ctime_ns > rig.attr.mtime_ns);

    /* what was set on purpose before the close stays: tar, cp -p */
    assert_int_equal(rig_open_file(&rig, "f", MDS_OPEN_WRITE, 0, 0), 0);
    const uint64_t handle = rig.handle;
    const struct mds_setattr_req set = {.valid = MDS_SET_MTIME, .mtime_ns = 77};

    assert_int_equal(rig_setattr(&rig, "f", &set), 0);
    assert_int_equal(rig_chmod(&rig, "f", 0640), 0);
    assert_int_equal(rig_close_file(&rig, &rig.attr.fid, handle, MDS_CLOSE_WROTE), 0);
    assert_int_equal(rig_stat(&rig, "f"), 0);
    assert_int_equal(rig.attr.mtime_ns, 77);
    rig_close(&rig);
}

static void
a_layout_comes_from_the_request_the_directory_or_the_server(void **state)
{
    begin(1); /* 4 OSTs */
    assert_int_equal(rig_creat(&rig, "f"), 0);
    assert_int_equal(rig_stat(&rig, "f"), 0);
    assert_int_equal(rig.attr.stripe_bytes, 1 << 20);
    assert_int_equal(rig.attr.stripe_count, 1);
    const struct mds_setattr_req set = {
        .valid = MDS_SET_STRIPE, .stripe_bytes = 65536, .stripe_count = 0xffff};
    const struct mds_setattr_req bad = {.valid = MDS_SET_STRIPE, .stripe_bytes = 1000};

    assert_int_equal(rig_mkdir(&rig, "d", 0755), 0);
    assert_int_equal(rig_setattr(&rig, "d", &bad), -EINVAL);
    assert_int_equal(rig_setattr(&rig, "d", &set), 0);
    assert_int_equal(rig.attr.stripe_count, 0xffff);
    assert_int_equal(rig_mkdir(&rig, "d/sub", 0755), 0);
    assert_int_equal(rig_creat(&rig, "d/sub/f"), 0);
    assert_int_equal(rig_stat(&rig, "d/sub/f"), 0);
    assert_int_equal(rig.attr.stripe_bytes, 65536);
    assert_int_equal(rig.attr.stripe_count, 4);
    const struct mds_open_req req = {
        .open_flags = MDS_OPEN_WRITE | MDS_OPEN_CREATE, .stripe_bytes = 4096, .stripe_count = 2};

    assert_int_equal(
        rig_do(&rig, MDS_REINT_OPEN, &req, sizeof(req), NULL, "d/two", NULL, NULL, NULL, 0), 0);
    assert_int_equal(rig_stat(&rig, "d/two"), 0);
    assert_int_equal(rig.attr.stripe_bytes, 4096);
    assert_int_equal(rig.attr.stripe_count, 2);
    rig_close(&rig);
}

/* ---- destruction ---- */

static void
objects_go_in_batches_within_a_millisecond(void **state)
{
    char name[32];

    begin(1);
    rig.is_destroy_slow = true;
    for (uint32_t i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof(name), "f%u", i);
        assert_int_equal(rig_open_file(&rig, name, MDS_OPEN_WRITE | MDS_OPEN_CREATE, 0, 0644), 0);
        assert_int_equal(rig_close_file(&rig, &rig.attr.fid, rig.handle, MDS_CLOSE_WROTE), 0);
    }
    assert_int_equal(rig_unlink(&rig, "f0"), 0);
    assert_int_equal(rig.destroyed, 0);
    rig_time(&rig, 1000000);
    assert_int_equal(rig.destroyed, 1);

    /* no answer yet: what follows gathers, and nobody waits for it */
    for (uint32_t i = 1; i < 1000; i++) {
        (void)snprintf(name, sizeof(name), "f%u", i);
        assert_int_equal(rig_unlink(&rig, name), 0);
    }
    const uint64_t sent = rig.destroyed;

    assert_true(sent < 1000);
    for (uint32_t i = 0; i < 10; i++) {
        for (uint32_t k = 0; k < rig.mds[0]->target_count; k++) {
            if (rig.mds[0]->targets[k].in_flight > 0) {
                mds_destroy_done(rig.mds[0], k, 0);
            }
        }
        rig_time(&rig, 2000000);
    }
    assert_int_equal(rig.destroyed, 1000);
    assert_int_equal(rig.mds[0]->counters.destroys_done, 1000);
    rig_close(&rig);
}

static void
an_oss_that_is_away_gets_them_later(void **state)
{
    begin(1);
    rig.destroy_rc = EHOSTUNREACH;
    assert_int_equal(rig_open_file(&rig, "f", MDS_OPEN_WRITE | MDS_OPEN_CREATE, 0, 0644), 0);
    assert_int_equal(rig_close_file(&rig, &rig.attr.fid, rig.handle, MDS_CLOSE_WROTE), 0);
    assert_int_equal(rig_unlink(&rig, "f"), 0);
    rig_time(&rig, 5000000);
    assert_int_equal(rig.destroyed, 0);
    rig.destroy_rc = 0;
    rig_time(&rig, 2000000000);
    assert_int_equal(rig.destroyed, 1);
    rig_close(&rig);
}

/* ---- reading directories ---- */

struct reading {
    uint32_t seen[20000];
    uint32_t count;
    uint64_t cookies[20000];
    uint32_t unlink_every; /* 0: none */
    uint32_t create_every;
};

static struct reading reading;

static void
reading_add(const struct mds_dirent *entry, void *arg)
{
    const char *name = (const char *)(entry + 1);
    char path[300];

    if (name[0] == '.') {
        assert_true(entry->cookie == 1 || entry->cookie == 2);
        assert_int_equal(entry->name_bytes, entry->cookie);
        return;
    }
    const uint32_t number = (uint32_t)strtoul(name + 1, NULL, 10);

    (void)snprintf(path, sizeof(path), "d/%.*s", (int)entry->name_bytes, name);
    if (number < 20000) {
        reading.seen[number]++;
        reading.cookies[reading.count++] = entry->cookie;
    }
    if (reading.unlink_every > 0 && number % reading.unlink_every == 0) {
        assert_int_equal(rig_unlink(&rig, path), 0);
    }
    if (reading.create_every > 0 && number % reading.create_every == 0) {
        (void)snprintf(path, sizeof(path), "d/n%u", 20000 + number);
        (void)rig_creat(&rig, path);
    }
}

static struct fid
make_names(uint32_t count, uint32_t pad)
{
    assert_int_equal(rig_mkdir(&rig, "d", 0755), 0);
    const struct fid dir = rig.attr.fid;

    (void)memset(&reading, 0, sizeof(reading));
    for (uint32_t i = 0; i < count; i++) {
        char path[300];

        (void)snprintf(path, sizeof(path), "d/n%u", i);
        const size_t bytes = strlen(path);
        const size_t longer = pad == 0 ? 0 : i % pad;

        (void)memset(path + bytes, 'x', longer);
        path[bytes + longer] = 0;
        assert_int_equal(rig_creat(&rig, path), 0);
    }
    return dir;
}

static void
each_name_is_read_exactly_once(void **state)
{
    static const uint32_t counts[] = {0, 1, 2, 31, 32, 33, 127, 128, 10000};

    for (uint32_t c = 0; c < BASE_ARRAY_LEN(counts); c++) {
        begin(1);
        const struct fid dir = make_names(counts[c], 240);

        /* one buffer for 1 entry, and for very many */
        for (uint32_t bytes = 300; bytes <= 8192; bytes += 7892) {
            (void)memset(&reading, 0, sizeof(reading));
            assert_int_equal(rig_readdir(&rig, &dir, 0, 0, bytes, reading_add, NULL), 0);
            assert_int_equal(reading.count, counts[c]);
            for (uint32_t i = 0; i < counts[c]; i++) {
                assert_int_equal(reading.seen[i], 1);
            }
        }
        rig_close(&rig);
    }
}

static void
names_removed_while_reading_hide_no_others(void **state)
{
    for (uint32_t every = 1; every <= 3; every++) {
        begin(1);
        const struct fid dir = make_names(5000, 0);

        reading.unlink_every = every;
        assert_int_equal(rig_readdir(&rig, &dir, 0, 0, 1000, reading_add, NULL), 0);
        for (uint32_t i = 0; i < 5000; i++) {
            assert_int_equal(reading.seen[i], 1);
        }
        if (every == 1) {
            assert_int_equal(rig_rmdir(&rig, "d"), 0); /* rm -rf: nothing is left */
        }
        rig_check(&rig);
        rig_close(&rig);
    }
}

static void
names_made_while_reading_do_not_make_it_endless(void **state)
{
    begin(1);
    const struct fid dir = make_names(3000, 0);

    assert_int_equal(rig_open_file(&rig, "d", MDS_OPEN_READ, 0, 0), 0);
    reading.create_every = 1;
    assert_int_equal(rig_readdir(&rig, &dir, rig.handle, 0, 500, reading_add, NULL), 0);
    for (uint32_t i = 0; i < 3000; i++) {
        assert_int_equal(reading.seen[i], 1);
    }
    rig_close(&rig);
}

static void
any_cookie_goes_on_where_it_was_even_when_its_name_is_gone(void **state)
{
    struct base_prng prng;

    base_prng_seed(&prng, 1);
    begin(1);
    const struct fid dir = make_names(2000, 0);

    assert_int_equal(rig_readdir(&rig, &dir, 0, 0, 4000, reading_add, NULL), 0);
    static uint64_t cookies[2000];

    (void)memcpy(cookies, reading.cookies, sizeof(cookies));
    for (uint32_t round = 0; round < 20; round++) {
        const uint32_t at = (uint32_t)base_prng_below(&prng, 1900);
        char path[32];

        (void)memset(&reading, 0, sizeof(reading));
        if (round >= 10) { /* with a stretch of names around it gone */
            for (uint32_t i = at - base_min_u32(at, 40); i < at + 40; i++) {
                (void)snprintf(path, sizeof(path), "d/n%u", i);
                (void)rig_unlink(&rig, path);
            }
        }
        assert_int_equal(rig_readdir(&rig, &dir, 0, cookies[at], 700, reading_add, NULL), 0);
        for (uint32_t i = 0; i < 2000; i++) {
            (void)snprintf(path, sizeof(path), "d/n%u", i);
            const bool is_there = rig_stat(&rig, path) == 0;

            assert_int_equal(reading.seen[i], i > at && is_there ? 1 : 0);
        }
    }
    assert_int_equal(rig_readdir(&rig, &dir, 0, UINT64_MAX, 700, reading_add, NULL), 0);
    rig_close(&rig);
}

static void
renamed_names_are_met_once(void **state)
{
    begin(1);
    const struct fid dir = make_names(100, 0);

    for (uint32_t i = 0; i < 50; i++) { /* n0 .. n49 become n100 .. and n50 .. n74 replace n75 .. */
        char from[32];
        char to[32];

        (void)snprintf(from, sizeof(from), "d/n%u", i);
        (void)snprintf(to, sizeof(to), "d/n%u", 100 + i);
        assert_int_equal(rig_rename(&rig, from, to, 0), 0);
    }
    for (uint32_t i = 50; i < 75; i++) {
        char from[32];
        char to[32];

        (void)snprintf(from, sizeof(from), "d/n%u", i);
        (void)snprintf(to, sizeof(to), "d/n%u", 25 + i);
        assert_int_equal(rig_rename(&rig, from, to, 0), 0);
    }
    assert_int_equal(rig_readdir(&rig, &dir, 0, 0, 400, reading_add, NULL), 0);
    assert_int_equal(reading.count, 75);
    for (uint32_t i = 75; i < 150; i++) {
        assert_int_equal(reading.seen[i], 1);
    }
    rig_close(&rig);
}

static void
a_removed_directory_reads_as_empty_through_its_handle(void **state)
{
    begin(1);
    const struct fid dir = make_names(0, 0);

    assert_int_equal(rig_open_file(&rig, "d", MDS_OPEN_READ, 0, 0), 0);
    const uint64_t handle = rig.handle;

    assert_int_equal(rig_rmdir(&rig, "d"), 0);
    assert_int_equal(rig_readdir(&rig, &dir, handle, 0, 400, reading_add, NULL), 0);
    assert_int_equal(reading.count, 0);
    assert_int_equal(rig_readdir(&rig, &dir, 0, 0, 400, reading_add, NULL), -ENOENT);
    assert_int_equal(rig_readdir(&rig, &dir, handle + 1, 0, 400, reading_add, NULL), -EBADF);
    rig_close(&rig);
}

/* ---- locks ---- */

#define LOCK(owner, start, end, type) rig_flock(&rig, &fid, handle, owner, start, end, type)

static void
byte_ranges_are_locked_split_and_joined(void **state)
{
    begin(1);
    assert_int_equal(
        rig_open_file(&rig, "f", MDS_OPEN_READ | MDS_OPEN_WRITE | MDS_OPEN_CREATE, 0, 0644), 0);
    const struct fid fid = rig.attr.fid;
    const uint64_t handle = rig.handle;

    assert_int_equal(LOCK(1, 0, 99, MDS_LOCK_WRITE), 0);
    assert_int_equal(LOCK(2, 99, 99, MDS_LOCK_READ), -EAGAIN);
    assert_int_equal(LOCK(2, 100, UINT64_MAX, MDS_LOCK_WRITE), 0);
    assert_int_equal(LOCK(1, 40, 49, MDS_LOCK_UNLOCK), 0); /* split */
    assert_int_equal(LOCK(2, 40, 49, MDS_LOCK_READ), 0);
    assert_int_equal(LOCK(1, 45, 45, MDS_LOCK_READ), 0); /* readers share */
    assert_int_equal(LOCK(1, 45, 45, MDS_LOCK_WRITE), -EAGAIN);
    assert_int_equal(LOCK(3, 50, 50, MDS_LOCK_TEST | MDS_LOCK_READ), 0);
    const struct mds_flock *other = (const struct mds_flock *)rig.reply;

    assert_int_equal(other->type, MDS_LOCK_WRITE);
    assert_int_equal(other->start, 50);
    assert_int_equal(other->end, 99);
    assert_int_equal(other->owner, 1);
    assert_int_equal(LOCK(3, 41, 42, MDS_LOCK_TEST | MDS_LOCK_READ), 0);
    assert_int_equal(other->type, MDS_LOCK_UNLOCK);
    assert_int_equal(LOCK(2, 0, UINT64_MAX, MDS_LOCK_UNLOCK), 0);
    assert_int_equal(LOCK(1, 40, 49, MDS_LOCK_WRITE), 0); /* joined: 0 .. 99 */
    assert_int_equal(LOCK(3, 0, UINT64_MAX, MDS_LOCK_TEST | MDS_LOCK_WRITE), 0);
    assert_int_equal(other->start, 0);
    assert_int_equal(other->end, 99);
    assert_int_equal(rig.mds[0]->counters.locks, 1);
    assert_int_equal(LOCK(1, 10, 5, MDS_LOCK_READ), -EINVAL);
    assert_int_equal(LOCK(1, 0, 5, 7), -EINVAL);
    assert_int_equal(LOCK(1, 0, UINT64_MAX, MDS_LOCK_UNLOCK), 0);
    assert_int_equal(rig.mds[0]->counters.locks, 0);

    /* a handle for reading gives no lock for writing; closing the handle frees its locks */
    assert_int_equal(rig_open_file(&rig, "f", MDS_OPEN_READ, 0, 0), 0);
    assert_int_equal(rig_flock(&rig, &fid, rig.handle, 9, 0, 1, MDS_LOCK_WRITE), -EBADF);
    assert_int_equal(rig_flock(&rig, &fid, rig.handle, 9, 0, 1, MDS_LOCK_READ), 0);
    assert_int_equal(LOCK(1, 0, 0, MDS_LOCK_WRITE), -EAGAIN);
    assert_int_equal(rig_close_file(&rig, &fid, rig.handle, 0), 0);
    assert_int_equal(LOCK(1, 0, 0, MDS_LOCK_WRITE), 0);
    rig_close(&rig);
}

static void
random_locks_agree_with_an_array_of_bytes(void **state)
{
    enum { OWNERS = 3, BYTES = 24 };
    int8_t held[OWNERS][BYTES]; /* 0: free, 1: read, 2: write */
    struct base_prng prng;

    base_prng_seed(&prng, 3);
    (void)memset(held, 0, sizeof(held));
    begin(1);
    assert_int_equal(
        rig_open_file(&rig, "f", MDS_OPEN_READ | MDS_OPEN_WRITE | MDS_OPEN_CREATE, 0, 0644), 0);
    const struct fid fid = rig.attr.fid;
    const uint64_t handle = rig.handle;

    for (uint32_t round = 0; round < 20000; round++) {
        const uint32_t owner = (uint32_t)base_prng_below(&prng, OWNERS);
        const uint32_t type = (uint32_t)base_prng_below(&prng, 3);
        const uint64_t start = base_prng_below(&prng, BYTES);
        const uint64_t end = base_prng_between(&prng, start, BYTES - 1);
        bool fits = true;

        for (uint64_t i = start; i <= end; i++) {
            for (uint32_t o = 0; o < OWNERS; o++) {
                if (o != owner && type != MDS_LOCK_UNLOCK &&
                    (held[o][i] == 2 || (held[o][i] == 1 && type == MDS_LOCK_WRITE))) {
                    fits = false;
                }
            }
        }
        assert_int_equal(LOCK(owner, start, end, type), fits ? 0 : -EAGAIN);
        for (uint64_t i = start; i <= end && fits; i++) {
            held[owner][i] = type == MDS_LOCK_UNLOCK ? 0 : type == MDS_LOCK_READ ? 1 : 2;
        }
        assert_true(rig.mds[0]->counters.locks <= (uint64_t)OWNERS * BYTES);
    }
    rig_close(&rig);
}

static void
appenders_take_turns(void **state)
{
    struct rig_call *waiting[3];

    begin(1);
    for (uint32_t i = 1; i < 4; i++) {
        rig_connect(&rig, i);
    }
    assert_int_equal(rig_open_file(&rig, "f", MDS_OPEN_WRITE | MDS_OPEN_CREATE, 0, 0644), 0);
    struct mds_append_req req[4] = {{.fid = rig.attr.fid, .handle = rig.handle}};

    for (uint32_t i = 1; i < 4; i++) {
        rig.client = i;
        assert_int_equal(rig_open_file(&rig, "f", MDS_OPEN_WRITE, 0, 0), 0);
        req[i] = (struct mds_append_req){.fid = rig.attr.fid, .handle = rig.handle};
    }
    rig.client = 0;
    assert_int_equal(rig_raw(&rig, 0, MDS_APPEND_LOCK, &req[0], sizeof(req[0])), 0);
    for (uint32_t i = 1; i < 4; i++) {
        rig.client = i;
        waiting[i - 1] = rig_begin(&rig, 0, MDS_APPEND_LOCK, &req[i], sizeof(req[i]));
        assert_false(waiting[i - 1]->is_done);
    }
    rig.client = 1;
    assert_int_equal(rig_raw(&rig, 0, MDS_APPEND_UNLOCK, &req[1], sizeof(req[1])), -ENOLCK);
    rig.client = 0;
    assert_int_equal(rig_raw(&rig, 0, MDS_APPEND_UNLOCK, &req[0], sizeof(req[0])), 0);
    assert_true(waiting[0]->is_done);
    assert_false(waiting[1]->is_done);
    assert_int_equal(rig_end(&rig, waiting[0]), 0);

    rig_kill(&rig, 2); /* the second in the queue is gone; then the holder dies: the third has it */
    assert_true(waiting[1]->is_done);
    assert_int_equal(rig_end(&rig, waiting[1]), -ESTALE);
    assert_false(waiting[2]->is_done);
    rig_kill(&rig, 1);
    assert_true(waiting[2]->is_done);
    assert_int_equal(rig_end(&rig, waiting[2]), 0);

    /* nobody holds it for ever */
    rig.client = 0;
    struct rig_call *last = rig_begin(&rig, 0, MDS_APPEND_LOCK, &req[0], sizeof(req[0]));

    assert_false(last->is_done);
    rig_time(&rig, MDS_APPEND_NS);
    assert_true(last->is_done);
    assert_int_equal(rig_end(&rig, last), 0);
    rig_close(&rig);
}

/* ---- malformed ---- */

static void
a_request_that_lies_about_its_sizes_is_refused(void **state)
{
    union {
        struct mds_getattr_req get;
        struct mds_create_req make;
        struct mds_rename_req rename;
        struct mds_readdir_req readdir;
        char bytes[600];
    } body;

    begin(1);
    assert_int_equal(rig_mkdir(&rig, "d", 0755), 0);
    (void)memset(&body, 0, sizeof(body));
    body.get.head.base = FID_ROOT;
    body.get.head.path_bytes = 2;
    assert_int_equal(rig_raw(&rig, 0, MDS_GETATTR, &body, sizeof(body.get) + 1), -EINVAL);
    assert_int_equal(rig_raw(&rig, 0, MDS_GETATTR, &body, 31), -EINVAL);
    body.get.head.path_bytes = 4096;
    assert_int_equal(rig_raw(&rig, 0, MDS_GETATTR, &body, sizeof(body)), -ENAMETOOLONG);
    body.get.head.path_bytes = 3;
    (void)memcpy(&body.get + 1, "d\0x", 3);
    assert_int_equal(rig_raw(&rig, 0, MDS_GETATTR, &body, sizeof(body.get) + 3), -EINVAL);
    (void)memcpy(&body.get + 1, "/dx", 3);
    assert_int_equal(rig_raw(&rig, 0, MDS_GETATTR, &body, sizeof(body.get) + 3), -EINVAL);
    body.get.head.path_bytes = 1;
    (void)memcpy(&body.get + 1, "d", 1);
    body.get.head.flags = MDS_RENAME_EXCHANGE;
    assert_int_equal(rig_raw(&rig, 0, MDS_GETATTR, &body, sizeof(body.get) + 1), -EINVAL);
    body.get.head.flags = 1u << 31;
    assert_int_equal(rig_raw(&rig, 0, MDS_GETATTR, &body, sizeof(body.get) + 1), -EINVAL);
    body.get.head.flags = 0;
    body.get.head.base.oid = 77;
    assert_int_equal(rig_raw(&rig, 0, MDS_GETATTR, &body, sizeof(body.get) + 1), -ESTALE);

    (void)memset(&body, 0, sizeof(body));
    body.make.head.base = FID_ROOT;
    body.make.head.path_bytes = 1;
    body.make.mode = S_IFLNK | 0777;
    body.make.target_bytes = 10;
    (void)memcpy(&body.make + 1, "lxx", 3);
    assert_int_equal(rig_raw(&rig, 0, MDS_REINT_CREATE, &body, sizeof(body.make) + 3), -EINVAL);
    body.make.target_bytes = 4096;
    assert_int_equal(rig_raw(&rig, 0, MDS_REINT_CREATE, &body, sizeof(body)), -EINVAL);
    body.make.target_bytes = 2;
    (void)memcpy(&body.make + 1, "lx\0", 3);
    assert_int_equal(rig_raw(&rig, 0, MDS_REINT_CREATE, &body, sizeof(body.make) + 3), -EINVAL);

    (void)memset(&body, 0, sizeof(body));
    body.rename.head.base = FID_ROOT;
    body.rename.base2 = FID_ROOT;
    body.rename.head.path_bytes = 1;
    body.rename.path2_bytes = 2;
    (void)memcpy(&body.rename + 1, "dxx", 3);
    assert_int_equal(rig_raw(&rig, 0, MDS_REINT_RENAME, &body, sizeof(body.rename) + 2), -EINVAL);
    body.rename.path2_bytes = 0xffff;
    assert_int_equal(rig_raw(&rig, 0, MDS_REINT_RENAME, &body, sizeof(body)), -ENAMETOOLONG);

    (void)memset(&body, 0, sizeof(body));
    body.readdir.head.base = FID_ROOT;
    body.readdir.bytes_max = 10;
    assert_int_equal(rig_raw(&rig, 0, MDS_READDIR, &body, sizeof(body.readdir)), -EINVAL);
    body.readdir.bytes_max = UINT32_MAX;
    assert_int_equal(rig_raw(&rig, 0, MDS_READDIR, &body, sizeof(body.readdir)), 0);
    assert_int_equal(rig_raw(&rig, 0, 12345, &body, sizeof(body)), -EOPNOTSUPP);
    rig_close(&rig);
}

static void
a_reactor_that_is_not_the_owner_says_so(void **state)
{
    const struct mds_getattr_req req = {.head.base = FID_ROOT};

    begin(2);
    assert_int_equal(rig_raw(&rig, 1, MDS_GETATTR, &req, sizeof(req)), -EREMOTE);
    rig_close(&rig);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_file_lives_until_its_last_close),
    cmocka_unit_test(a_nameless_file_may_get_a_name),
    cmocka_unit_test(what_a_dead_client_had_open_is_freed),
    cmocka_unit_test(a_handle_is_its_clients_alone),
    cmocka_unit_test(size_is_on_the_osts_once_somebody_may_have_written),
    cmocka_unit_test(mtime_survives_a_change_of_mode_after_writing),
    cmocka_unit_test(a_layout_comes_from_the_request_the_directory_or_the_server),
    cmocka_unit_test(objects_go_in_batches_within_a_millisecond),
    cmocka_unit_test(an_oss_that_is_away_gets_them_later),
    cmocka_unit_test(each_name_is_read_exactly_once),
    cmocka_unit_test(names_removed_while_reading_hide_no_others),
    cmocka_unit_test(names_made_while_reading_do_not_make_it_endless),
    cmocka_unit_test(any_cookie_goes_on_where_it_was_even_when_its_name_is_gone),
    cmocka_unit_test(renamed_names_are_met_once),
    cmocka_unit_test(a_removed_directory_reads_as_empty_through_its_handle),
    cmocka_unit_test(byte_ranges_are_locked_split_and_joined),
    cmocka_unit_test(random_locks_agree_with_an_array_of_bytes),
    cmocka_unit_test(appenders_take_turns),
    cmocka_unit_test(a_request_that_lies_about_its_sizes_is_refused),
    cmocka_unit_test(a_reactor_that_is_not_the_owner_says_so),
};

TEST_MAIN(cases)
