/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The object server as clients see it: every way for bytes to go, at every limit; leases from birth
 * to any of their ends; and that memory never shows what it held before.
 */
#include "tests/servers/oss/rig.h"

#include "base/prng.h"
#include "servers/oss/oss.h"
#include "tests/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB UINT64_C(1048576)

static struct rig_call call;

static void
pattern(unsigned char *bytes, uint64_t offset, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++) {
        bytes[i] = (unsigned char)(((offset + i) * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
    }
}

static void
assert_pattern(const unsigned char *bytes, uint64_t offset, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++) {
        const unsigned char want =
            (unsigned char)(((offset + i) * UINT64_C(0x9e3779b97f4a7c15)) >> 56);

        if (bytes[i] != want) {
            print_message("at %llu\n", (unsigned long long)(offset + i));
        }
        assert_int_equal(bytes[i], want);
    }
}

static uint64_t
size_of(uint32_t object)
{
    const struct ost_object_req req = {rig_object(object)};
    struct rig_call c;

    assert_int_equal(rig_do(0, OST_GETATTR, &req, sizeof(req), &c), 0);
    return c.reply.attr.size;
}

static int
destroy(uint32_t object)
{
    const struct {
        struct ost_destroy_req head;
        struct ost_object object;
    } req = {{.count = 1}, rig_object(object)};

    return rig_do(0, OST_DESTROY, &req, sizeof(req), &call);
}

/* Writes the pattern by whatever way @flags allow; returns the reply's length. */
static uint64_t
write_at(uint32_t object, uint64_t offset, uint64_t length, uint32_t flags)
{
    uint64_t moved = 0;

    pattern(rig_client(0)->buffer, offset, length);
    assert_int_equal(rig_io(0, OST_WRITE, object, offset, length, flags, &call), 0);
    moved = call.reply.io.length;
    if ((call.reply.io.flags & OST_F_LEASE) != 0) {
        const uint64_t lease = call.reply.io.lease;

        assert_int_not_equal(lease, 0);
        assert_int_equal(rig_lease_move(0, &call, true, moved), 0);
        assert_int_equal(rig_commit(0, object, lease, moved, &call), 0);
        assert_int_equal(call.reply.io.length, moved);
    }
    return moved;
}

/* Reads into the buffer and gives back what was there. */
static uint64_t
read_at(uint32_t object, uint64_t offset, uint64_t length, uint32_t flags)
{
    (void)memset(rig_client(0)->buffer, 0xee, length);
    assert_int_equal(rig_io(0, OST_READ, object, offset, length, flags, &call), 0);
    const uint64_t moved = call.reply.io.length;

    if ((call.reply.io.flags & OST_F_LEASE) != 0) {
        const uint64_t lease = call.reply.io.lease;

        assert_int_equal(rig_lease_move(0, &call, false, moved), 0);
        assert_int_equal(rig_release(0, lease), 0);
    }
    return moved;
}

static const uint32_t ways[] = {OST_F_INLINE,
                                OST_F_BULK,
                                OST_F_LEASE,
                                OST_F_BULK | OST_F_LEASE,
                                OST_F_BULK | OST_F_CRC,
                                OST_F_LEASE | OST_F_CRC,
                                OST_F_INLINE | OST_F_CRC};

static void
all_ways_move_all_sizes_to_all_places(void)
{
    static const uint64_t lengths[] = {1,       2,       4095,        4096,       4097, 8192,
                                       8193,    16384,   47008,       MIB - 1,    MIB,  MIB + 1,
                                       3 * MIB, 4 * MIB, 4 * MIB + 1, 9 * MIB + 7};
    static const uint64_t offsets[] = {
        0, 1, 4095, MIB - 3, UINT64_C(1) << 32, (UINT64_C(1) << 40) + 5};

    for (uint32_t o = 0; o < BASE_ARRAY_LEN(offsets); o++) {
        for (uint32_t l = 0; l < BASE_ARRAY_LEN(lengths); l++) {
            for (uint32_t w = 0; w < BASE_ARRAY_LEN(ways); w++) {
                const uint32_t r = (w + l) % BASE_ARRAY_LEN(ways);
                const uint64_t length = lengths[l];

                if (((ways[w] | ways[r]) & OST_F_INLINE) != 0 && length > OST_INLINE_BYTES_MAX) {
                    continue;
                }
                if ((((ways[w] & ways[r]) & OST_F_BULK) == 0) && length > OST_LEASE_BYTES_MAX) {
                    continue;
                }
                assert_int_equal(write_at(0, offsets[o], length, ways[w]), length);
                assert_int_equal(size_of(0), offsets[o] + length);
                assert_int_equal(read_at(0, offsets[o], length + 5, ways[r]), length);
                assert_pattern(rig_client(0)->buffer, offsets[o], length);
                assert_int_equal(destroy(0), 0);
            }
        }
    }
    assert_int_equal(rig_stats().bytes_used, 0);
    assert_int_equal(rig_stats().leases_out, 0);
    assert_int_equal(rig_stats().crc_errors, 0);
}

static void
bytes_of_all_sizes_go_all_ways(void **state)
{
    rig_open(NULL);
    all_ways_move_all_sizes_to_all_places();
    const struct ptlrpc_op_stats stats = rig_op_stats(OST_WRITE);

    assert_true(stats.path_count[BULK_PATH_MAPPED] > 0);
    assert_true(stats.bytes > 0);
    rig_close();
}

static void
bytes_of_all_sizes_go_all_ways_by_staging(void **state)
{
    rig_open(&(struct rig_options){.bulk_path = BULK_PATH_STAGING});
    all_ways_move_all_sizes_to_all_places();
    assert_true(rig_op_stats(OST_READ).path_count[BULK_PATH_STAGING] > 0);
    rig_close();
}

static void
small_goes_inline_and_large_by_lease_if_the_client_can(void **state)
{
    const uint32_t any = OST_F_INLINE | OST_F_BULK | OST_F_LEASE;

    rig_open(NULL);
    (void)write_at(0, 0, MIB, OST_F_BULK | OST_F_LEASE);
    assert_int_equal(rig_stats().lease_count, 1);
    assert_int_equal(rig_io(0, OST_READ, 0, 0, 4096, any, &call), 0);
    assert_int_equal(call.reply.io.flags & any, OST_F_INLINE);
    assert_int_equal(rig_io(0, OST_READ, 0, MIB - 100, MIB, any, &call), 0); /* 100 are there */
    assert_int_equal(call.reply.io.flags & any, OST_F_INLINE);
    assert_int_equal(call.reply.io.length, 100);
    assert_int_equal(rig_io(0, OST_READ, 0, 0, MIB, any, &call), 0);
    assert_int_equal(call.reply.io.flags & any, OST_F_LEASE);
    assert_int_equal(rig_io(0, OST_READ, 0, 0, MIB, OST_F_BULK, &call), 0);
    assert_int_equal(call.reply.io.flags & any, OST_F_BULK);
    rig_close();

    rig_open(&(struct rig_options){.no_lease = 1});
    (void)write_at(0, 0, MIB, OST_F_BULK | OST_F_LEASE);
    assert_int_equal(rig_stats().bulk_count, 1);
    assert_int_equal(rig_io(0, OST_READ, 0, 0, MIB, OST_F_LEASE, &call), -EAGAIN);
    assert_int_equal(rig_io(0, OST_WRITE, 0, 0, MIB, OST_F_LEASE, &call), -EAGAIN);
    assert_int_equal(rig_io(0, OST_READ, 0, 0, MIB, OST_F_LEASE | OST_F_BULK, &call), 0);
    rig_close();
}

static void
reads_end_where_the_object_does(void **state)
{
    rig_open(NULL);
    for (uint32_t w = 0; w < BASE_ARRAY_LEN(ways); w++) {
        assert_int_equal(read_at(7, 0, 100, ways[w]), 0); /* never was */
        assert_int_equal(read_at(7, UINT64_MAX, 100, ways[w]), 0);
    }
    (void)write_at(0, 0, 100, OST_F_INLINE);
    for (uint32_t w = 0; w < BASE_ARRAY_LEN(ways); w++) {
        assert_int_equal(read_at(0, 0, 0, ways[w]), 0);
        assert_int_equal(read_at(0, 100, 10, ways[w]), 0);
        assert_int_equal(read_at(0, 99, 10, ways[w]), 1);
        assert_int_equal(write_at(0, 0, 0, ways[w]), 0);
    }
    assert_int_equal(size_of(0), 100);
    rig_close();
}

static void
offsets_at_the_edge_are_refused_or_cut(void **state)
{
    const uint64_t max = (uint64_t)OST_OBJECT_BYTES_MAX;

    rig_open(NULL);
    assert_int_equal(rig_io(0, OST_WRITE, 0, max, 1, OST_F_INLINE, &call), -EFBIG);
    assert_int_equal(rig_io(0, OST_WRITE, 0, UINT64_MAX, 1, OST_F_INLINE, &call), -EFBIG);
    assert_int_equal(rig_io(0, OST_WRITE, 0, UINT64_MAX, 0, OST_F_INLINE, &call), 0);
    assert_int_equal(size_of(0), 0);
    assert_int_equal(write_at(0, max - 10, 100, OST_F_INLINE), 10);
    assert_int_equal(size_of(0), max);
    assert_int_equal(write_at(0, max - MIB, 2 * MIB, OST_F_BULK), MIB);
    assert_int_equal(read_at(0, max - 5, 100, OST_F_INLINE), 5);
    assert_int_equal(rig_io(0, OST_WRITE, 0, 0, 1, OST_F_INLINE | OST_F_APPEND, &call), -EFBIG);
    struct ost_punch_req punch = {rig_object(0), max + 1, UINT64_MAX};

    assert_int_equal(rig_do(0, OST_PUNCH, &punch, sizeof(punch), &call), -EFBIG);
    punch.start = 5;
    punch.end = 4;
    assert_int_equal(rig_do(0, OST_PUNCH, &punch, sizeof(punch), &call), -EINVAL);
    punch.start = max;
    punch.end = UINT64_MAX;
    assert_int_equal(rig_do(0, OST_PUNCH, &punch, sizeof(punch), &call), 0);
    struct ost_seek_req seek = {rig_object(0), 0, SEEK_DATA, 0};

    assert_int_equal(rig_do(0, OST_SEEK, &seek, sizeof(seek), &call), 0);
    assert_int_equal(call.reply.u64, max - MIB);
    seek.whence = SEEK_HOLE;
    seek.offset = max;
    assert_int_equal(rig_do(0, OST_SEEK, &seek, sizeof(seek), &call), -ENXIO);
    rig_close();
}

static void
objects_of_others_and_nonsense_are_refused(void **state)
{
    rig_open(&(struct rig_options){.reactors = 2});
    uint32_t foreign = 0;
    struct ost_object object = rig_object(foreign);

    while (ost_object_owner(&object, 2) == 0) {
        object = rig_object(++foreign);
    }
    assert_int_equal(rig_io(0, OST_READ, foreign, 0, 10, OST_F_INLINE, &call), -EREMOTE);
    assert_int_equal(rig_io(0, OST_WRITE, foreign, 0, 10, OST_F_INLINE, &call), -EREMOTE);
    assert_int_equal(destroy(foreign), -EREMOTE);
    struct ost_object_req attr = {object};

    assert_int_equal(rig_do(0, OST_GETATTR, &attr, sizeof(attr), &call), -EREMOTE);
    rig_close();

    rig_open(NULL);
    attr.object.ost = 2;
    assert_int_equal(rig_do(0, OST_GETATTR, &attr, sizeof(attr), &call), -ENODEV);
    attr.object.ost = UINT32_MAX;
    assert_int_equal(rig_do(0, OST_CREATE, &attr, sizeof(attr), &call), -ENODEV);
    const struct ost_statfs_req statfs = {.ost = 2};

    assert_int_equal(rig_do(0, OST_STATFS, &statfs, sizeof(statfs), &call), -ENODEV);
    assert_int_equal(rig_do(0, OST_GETATTR, &attr, 3, &call), -EPROTO);
    struct ost_io_req io = {.object = rig_object(0), .length = 10};

    assert_int_equal(rig_do(0, OST_READ, &io, sizeof(io), &call), -EINVAL); /* no way to go */
    io.flags = 1u << 20;
    assert_int_equal(rig_do(0, OST_READ, &io, sizeof(io), &call), -EINVAL);
    io.flags = OST_F_INLINE;
    assert_int_equal(rig_do(0, OST_WRITE, &io, sizeof(io), &call), -EPROTO); /* no data */
    io.flags = OST_F_BULK;
    io.handle_bytes = 100;
    assert_int_equal(rig_do(0, OST_WRITE, &io, sizeof(io), &call), -EPROTO);
    io.flags = OST_F_LEASE;
    io.length = OST_IO_BYTES_MAX + 1;
    assert_int_equal(rig_do(0, OST_READ, &io, sizeof(io), &call), -EINVAL);
    const struct ost_destroy_req many = {.count = 257};

    assert_int_equal(rig_do(0, OST_DESTROY, &many, sizeof(many), &call), -EPROTO);
    const struct ost_release_req release = {.count = UINT32_MAX};

    assert_int_equal(rig_do(0, OST_RELEASE, &release, sizeof(release), &call), -EPROTO);
    rig_close();
}

static void
full_server_writes_short_then_enospc(void **state)
{
    struct ost_statfs_req req = {0};

    rig_open(&(struct rig_options){.bytes_max = 10 * MIB});
    assert_int_equal(write_at(0, 0, 16 * MIB, OST_F_BULK), 10 * MIB);
    assert_int_equal(rig_io(0, OST_WRITE, 0, 10 * MIB, MIB, OST_F_BULK, &call), -ENOSPC);
    assert_int_equal(rig_io(0, OST_WRITE, 0, 10 * MIB, MIB, OST_F_LEASE, &call), -ENOSPC);
    assert_int_equal(rig_io(0, OST_WRITE, 1, 0, 1, OST_F_INLINE, &call), -ENOSPC);
    assert_int_equal(rig_do(0, OST_STATFS, &req, sizeof(req), &call), 0);
    assert_int_equal(call.reply.statfs.bytes_free, 0);
    assert_int_equal(read_at(0, 0, 10 * MIB, OST_F_BULK), 10 * MIB);
    assert_pattern(rig_client(0)->buffer, 0, 10 * MIB);
    assert_int_equal(destroy(0), 0);
    assert_int_equal(write_at(0, 0, 9 * MIB, OST_F_BULK), 9 * MIB);
    /* A lease over the end of space is short. */
    assert_int_equal(write_at(0, 9 * MIB, 2 * MIB, OST_F_LEASE), MIB);
    rig_close();
}

static void
times_and_sizes_are_kept(void **state)
{
    const struct ost_object_req req = {rig_object(0)};
    const struct ost_setattr_req times = {rig_object(0), 5, 6};

    rig_open(NULL);
    (void)write_at(0, 0, 5000, OST_F_INLINE);
    assert_true(call.reply.io.attr.mtime_ns >= INT64_C(1700000000000000000));
    assert_int_equal(call.reply.io.attr.size, 5000);
    assert_int_equal(call.reply.io.attr.blocks, 16);
    assert_int_equal(rig_do(0, OST_SETATTR, &times, sizeof(times), &call), 0);
    assert_int_equal(call.reply.attr.mtime_ns, 5);
    assert_int_equal(rig_do(0, OST_SYNC, &req, sizeof(req), &call), 0);
    assert_int_equal(call.reply.attr.ctime_ns, 6);
    const struct ost_punch_req punch = {rig_object(0), 100, UINT64_MAX};

    assert_int_equal(rig_do(0, OST_PUNCH, &punch, sizeof(punch), &call), 0);
    assert_int_equal(call.reply.attr.size, 100);
    assert_true(call.reply.attr.mtime_ns >= INT64_C(1700000000000000000));
    rig_close();
}

/* ---- leases ---- */

static uint64_t
lease_take(uint32_t client, uint16_t opc, uint32_t object, uint64_t offset, uint64_t length,
           struct rig_call *lease)
{
    assert_int_equal(rig_io(client, opc, object, offset, length, OST_F_LEASE, lease), 0);
    assert_true((lease->reply.io.flags & OST_F_LEASE) != 0);
    return lease->reply.io.lease;
}

static void
lease_ends_once_and_only_for_its_owner(void **state)
{
    static struct rig_call lease;

    rig_open(NULL);
    const uint64_t id = lease_take(0, OST_WRITE, 0, 0, MIB, &lease);

    assert_int_equal(rig_stats().leases_out, 1);
    assert_int_equal(rig_commit(1, 0, id, MIB, &call), -ESTALE);
    assert_int_equal(rig_commit(0, 1, id, MIB, &call), -EINVAL);
    assert_int_equal(rig_commit(0, 0, id, MIB + 1, &call), -EINVAL);
    assert_int_equal(rig_commit(0, 0, id + 1, MIB, &call), -ESTALE);
    assert_int_equal(rig_commit(0, 0, 0, MIB, &call), -ESTALE);
    assert_int_equal(rig_commit(0, 0, UINT64_MAX, MIB, &call), -ESTALE);
    assert_int_equal(rig_release(1, id), 0); /* not its: ignored */
    assert_int_equal(rig_stats().leases_out, 1);
    pattern(rig_client(0)->buffer, 0, MIB);
    assert_int_equal(rig_lease_move(0, &lease, true, MIB), 0);
    assert_int_equal(size_of(0), 0); /* not before COMMIT */
    assert_int_equal(rig_commit(0, 0, id, 1000, &call), 0);
    assert_int_equal(call.reply.io.length, 1000);
    assert_int_equal(size_of(0), 1000);
    assert_int_equal(rig_commit(0, 0, id, MIB, &call), -ESTALE);
    assert_int_equal(rig_lease_move(0, &lease, true, MIB), -ESTALE);
    const uint64_t read = lease_take(0, OST_READ, 0, 0, MIB, &lease);

    assert_int_equal(rig_commit(0, 0, read, 10, &call), -ESTALE);
    assert_int_equal(rig_release(0, read), 0);
    assert_int_equal(rig_release(0, read), 0);
    assert_int_equal(rig_stats().leases_out, 0);
    rig_close();
}

static void
released_write_lease_leaves_nothing(void **state)
{
    static struct rig_call lease;

    rig_open(&(struct rig_options){.bytes_max = 4 * MIB});
    (void)memset(rig_client(0)->buffer, 0xaa, 4 * MIB);
    assert_int_equal(rig_io(0, OST_WRITE, 9, 0, 4 * MIB, OST_F_BULK, &call), 0);
    assert_int_equal(destroy(9), 0);
    const uint64_t id = lease_take(0, OST_WRITE, 0, 0, 4 * MIB, &lease);

    assert_int_equal(rig_lease_move(0, &lease, true, MIB), 0);
    assert_int_equal(rig_release(0, id), 0);
    assert_int_equal(rig_stats().lease_aborts, 1);
    assert_int_equal(rig_stats().bytes_used, 0);
    assert_int_equal(size_of(0), 0);
    const struct ost_punch_req grow = {rig_object(0), 4 * MIB, UINT64_MAX};

    assert_int_equal(rig_do(0, OST_PUNCH, &grow, sizeof(grow), &call), 0);
    assert_int_equal(read_at(0, 0, 4 * MIB, OST_F_BULK), 4 * MIB);
    for (uint64_t i = 0; i < 4 * MIB; i++) {
        assert_int_equal(rig_client(0)->buffer[i], 0);
    }
    rig_close();
}

static void
death_of_a_client_ends_its_leases_and_wakes_who_waits(void **state)
{
    static struct rig_call leases[10];
    static struct rig_call cut;

    rig_open(NULL);
    (void)write_at(1, 0, MIB, OST_F_BULK);
    for (uint32_t i = 0; i < 5; i++) {
        (void)lease_take(1, OST_WRITE, 0, i * MIB, MIB, &leases[i]);
        (void)lease_take(1, OST_READ, 1, 0, MIB, &leases[5 + i]);
    }
    assert_int_equal(rig_lease_move(1, &leases[0], true, MIB), 0);
    assert_int_equal(rig_stats().leases_out, 10);
    assert_int_equal(destroy(1), 0); /* lent for reading: kept until then */
    assert_int_equal(rig_stats().bytes_used, 6 * MIB);
    const struct ost_punch_req punch = {rig_object(0), MIB, UINT64_MAX};

    rig_send(0, OST_PUNCH, &punch, sizeof(punch), &cut);
    rig_run(100000000);
    assert_false(cut.is_done);
    rig_client_kill(1);
    rig_wait(&cut);
    assert_int_equal(cut.status, 0);
    assert_int_equal(rig_stats().leases_out, 0);
    assert_int_equal(rig_stats().lease_aborts, 5);
    assert_int_equal(rig_stats().bytes_used, 0);
    assert_int_equal(size_of(0), MIB);
    rig_close();
}

static void
lease_that_is_not_ended_is_taken_back(void **state)
{
    static struct rig_call lease;

    rig_open(NULL);
    const uint64_t id = lease_take(0, OST_WRITE, 0, 0, MIB, &lease);

    rig_run(UINT64_C(29000000000));
    assert_int_equal(rig_stats().leases_out, 1);
    const uint64_t second = lease_take(0, OST_WRITE, 1, 0, MIB, &lease);

    rig_run(UINT64_C(2000000000));
    assert_int_equal(rig_stats().leases_out, 1);
    assert_int_equal(rig_commit(0, 0, id, MIB, &call), -ESTALE);
    rig_run(UINT64_C(30000000000));
    assert_int_equal(rig_stats().leases_out, 0);
    assert_int_equal(rig_commit(0, 1, second, MIB, &call), -ESTALE);
    assert_int_equal(rig_stats().bytes_used, 0);
    rig_close();
}

static void
leases_of_one_client_are_bounded_and_bulk_takes_over(void **state)
{
    static struct rig_call lease;
    uint32_t count = 0;

    rig_open(NULL);
    (void)write_at(0, 0, MIB, OST_F_BULK);
    while (rig_io(0, OST_READ, 0, 0, MIB, OST_F_LEASE, &lease) == 0) {
        count++;
        assert_true(count <= 1000);
    }
    assert_int_equal(lease.status, -EAGAIN);
    assert_int_equal(count, 128);
    assert_int_equal(rig_io(0, OST_READ, 0, 0, MIB, OST_F_LEASE | OST_F_BULK, &call), 0);
    assert_true((call.reply.io.flags & OST_F_BULK) != 0);
    assert_int_equal(rig_io(1, OST_READ, 0, 0, MIB, OST_F_LEASE, &lease), 0); /* another's */
    rig_close();
}

static void
wrong_checksums_are_refused_and_nothing_is_written(void **state)
{
    static struct rig_call lease;
    static unsigned char body[8448];

    rig_open(NULL);
    struct ost_io_req req = {
        .object = rig_object(0), .length = 100, .flags = OST_F_INLINE | OST_F_CRC, .crc32c = 12345};

    (void)memcpy(body, &req, sizeof(req));
    assert_int_equal(rig_do(0, OST_WRITE, body, sizeof(req) + 100, &call), -EBADMSG);
    assert_int_equal(size_of(0), 0);
    const uint64_t id = lease_take(0, OST_WRITE, 0, 0, MIB, &lease);
    const struct ost_commit_req commit = {
        .object = rig_object(0), .lease = id, .length = MIB, .flags = OST_F_CRC, .crc32c = 12345};

    assert_int_equal(rig_do(0, OST_COMMIT, &commit, sizeof(commit), &call), -EBADMSG);
    assert_int_equal(size_of(0), 0);
    assert_int_equal(rig_stats().crc_errors, 2);
    assert_int_equal(rig_stats().bytes_used, 0);
    (void)write_at(0, 0, MIB, OST_F_LEASE | OST_F_CRC);
    const uint32_t want = bulk_crc32c(0, rig_client(0)->buffer, MIB);

    assert_int_equal(rig_io(0, OST_READ, 0, 0, MIB, OST_F_BULK | OST_F_CRC, &call), 0);
    assert_int_equal(call.reply.io.crc32c, want);
    (void)lease_take(0, OST_READ, 0, 0, MIB, &lease);
    assert_int_equal(rig_io(0, OST_READ, 0, 0, MIB, OST_F_LEASE | OST_F_CRC, &call), 0);
    assert_int_equal(call.reply.io.crc32c, want);
    rig_close();
}

static void
appends_in_flight_never_meet(void **state)
{
    static struct rig_call calls[40];
    static struct bulk_export *exports[40];
    uint64_t seen[40] = {0};

    rig_open(&(struct rig_options){.xfers_max = 4}); /* most have to pause */
    for (uint32_t i = 0; i < 40; i++) {
        rig_io_send(i % 2, OST_WRITE, 0, 0, 100000 + i, OST_F_BULK | OST_F_APPEND, &calls[i],
                    &exports[i]);
    }
    uint64_t total = 0;

    for (uint32_t i = 0; i < 40; i++) {
        rig_wait(&calls[i]);
        assert_int_equal(calls[i].status, 0);
        assert_int_equal(calls[i].reply.io.length, 100000 + i);
        total += 100000 + i;
        for (uint32_t k = 0; k < i; k++) {
            const uint64_t a = calls[i].reply.io.offset;
            const uint64_t b = seen[k];

            assert_true(a + 100000 + i <= b || b + 100000 + k <= a);
        }
        seen[i] = calls[i].reply.io.offset;
    }
    assert_int_equal(size_of(0), total);
    rig_close();
}

static void
client_that_dies_in_the_middle_of_bulk_leaves_no_trace(void **state)
{
    for (uint32_t rounds = 0; rounds < 12; rounds++) {
        static struct rig_call calls[4];
        struct bulk_export *export_ = NULL;

        rig_open(&(struct rig_options){.bulk_path = rounds % 2 ? BULK_PATH_STAGING : 0});
        for (uint32_t i = 0; i < 4; i++) {
            rig_io_send(1, i % 2 ? OST_READ : OST_WRITE, i / 2, 0, 16 * MIB, OST_F_BULK, &calls[i],
                        &export_);
        }
        for (uint32_t i = 0; i < rounds; i++) {
            rig_run(1);
        }
        rig_client_kill(1);
        rig_run(UINT64_C(20000000000));
        assert_int_equal(destroy(0), 0);
        assert_int_equal(destroy(1), 0);
        assert_int_equal(rig_stats().bytes_used, 0);
        assert_int_equal(rig_stats().leases_out, 0);
        rig_close();
    }
}

static void
server_closes_with_everything_in_flight(void **state)
{
    static struct rig_call calls[8];
    static struct rig_call lease;
    struct bulk_export *export_ = NULL;

    for (uint32_t rounds = 0; rounds < 6; rounds++) {
        rig_open(&(struct rig_options){.xfers_max = 2});
        (void)lease_take(1, OST_WRITE, 5, 0, MIB, &lease);
        for (uint32_t i = 0; i < 8; i++) {
            rig_io_send(0, i % 2 ? OST_READ : OST_WRITE, i / 2, 0, 16 * MIB, OST_F_BULK, &calls[i],
                        &export_);
        }
        for (uint32_t i = 0; i < rounds; i++) {
            rig_run(1);
        }
        rig_close();
    }
}

static void
null_store_moves_bytes_and_keeps_sizes(void **state)
{
    rig_open(&(struct rig_options){.store = "null"});
    assert_int_equal(write_at(0, 0, 16 * MIB, OST_F_BULK), 16 * MIB);
    assert_int_equal(write_at(0, 16 * MIB, MIB, OST_F_LEASE), MIB);
    assert_int_equal(size_of(0), 17 * MIB);
    assert_int_equal(read_at(0, 0, MIB, OST_F_LEASE), MIB);
    assert_int_equal(read_at(0, 16 * MIB, 4 * MIB, OST_F_BULK), MIB);
    assert_int_equal(rig_stats().bytes_used, 0);
    rig_close();
}

static int
sync_fails(struct ost_store *store, struct ost_store_op *op)
{
    (void)store;
    (void)op;
    return -EIO;
}

static void
synchronous_write_that_is_not_stable_fails(void **state)
{
    static const uint32_t kinds[] = {OST_F_INLINE, OST_F_BULK};

    (void)state;
    rig_open(&(struct rig_options){0});
    struct oss *oss = rig_oss();
    const struct ost_store_ops *ops = oss->store_ops;
    struct ost_store_ops failing = *ops;

    failing.sync = sync_fails;
    oss->store_ops = &failing;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        assert_int_equal(rig_io(0, OST_WRITE, 1, 0, 4096, kinds[i] | OST_F_SYNC, &call), -EIO);
        assert_int_equal(rig_io(0, OST_WRITE, 1, 0, 4096, kinds[i], &call), 0);
    }
    oss->store_ops = ops;
    assert_int_equal(rig_io(0, OST_WRITE, 1, 0, 4096, OST_F_INLINE | OST_F_SYNC, &call), 0);
    assert_int_equal(call.reply.io.length, 4096);
    rig_close();
}

static void
idle_touches_memory_ahead(void **state)
{
    rig_open(NULL);
    const uint64_t before = rig_stats().bytes_prefaulted;

    while (oss_idle(rig_oss())) {
    }
    assert_true(rig_stats().bytes_prefaulted >= before);
    assert_true(rig_stats().page_bytes >= 4096);
    rig_close();
}

/* Stands before the function (--wrap): as if there were no memory for the server's timers. */
int __real_lnet_timer_arm(struct lnet *ctx, struct lnet_timer *timer, uint64_t deadline_ns);
int __wrap_lnet_timer_arm(struct lnet *ctx, struct lnet_timer *timer, uint64_t deadline_ns);

static bool has_no_timers;
static uint32_t refused_timers;

int
__wrap_lnet_timer_arm(struct lnet *ctx, struct lnet_timer *timer, uint64_t deadline_ns)
{
    const struct oss *oss = rig_oss();

    if (has_no_timers && (timer == &oss->pause_timer || timer == &oss->lease_timer)) {
        refused_timers++;
        return -EAGAIN;
    }
    return __real_lnet_timer_arm(ctx, timer, deadline_ns);
}

static void
nothing_waits_or_is_lent_without_a_timer(void **state)
{
    static struct rig_call calls[40];
    static struct bulk_export *exports[40];
    static struct rig_call leases[2];
    uint32_t refused = 0;

    (void)state;
    rig_open(&(struct rig_options){.xfers_max = 4});
    has_no_timers = true;
    refused_timers = 0;
    for (uint32_t i = 0; i < 40; i++) {
        rig_io_send(i % 2, OST_WRITE, i, 0, MIB, OST_F_BULK, &calls[i], &exports[i]);
    }
    for (uint32_t i = 0; i < 40; i++) {
        rig_wait(&calls[i]);
        assert_true(base_list_empty(&rig_oss()->paused));
        assert_true(calls[i].status == 0 || calls[i].status == -EAGAIN);
        refused += calls[i].status == -EAGAIN;
    }
    assert_true(refused > 0 && refused_timers > 0);
    assert_int_equal(rig_io(0, OST_WRITE, 1, 0, MIB, OST_F_LEASE, &call), -EAGAIN);
    assert_int_equal(rig_stats().leases_out, 0);
    /* Two leases, the second the younger: when the first is due the timer is refused. */
    has_no_timers = false;
    (void)lease_take(0, OST_WRITE, 2, 0, MIB, &leases[0]);
    rig_run(OSS_LEASE_NS / 2);
    (void)lease_take(1, OST_WRITE, 3, 0, MIB, &leases[1]);
    has_no_timers = true;
    rig_run(OSS_LEASE_NS * 3 / 4);
    assert_int_equal(rig_stats().leases_out, 0);
    has_no_timers = false;
    rig_close();
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(bytes_of_all_sizes_go_all_ways),
    cmocka_unit_test(bytes_of_all_sizes_go_all_ways_by_staging),
    cmocka_unit_test(small_goes_inline_and_large_by_lease_if_the_client_can),
    cmocka_unit_test(reads_end_where_the_object_does),
    cmocka_unit_test(offsets_at_the_edge_are_refused_or_cut),
    cmocka_unit_test(objects_of_others_and_nonsense_are_refused),
    cmocka_unit_test(full_server_writes_short_then_enospc),
    cmocka_unit_test(times_and_sizes_are_kept),
    cmocka_unit_test(lease_ends_once_and_only_for_its_owner),
    cmocka_unit_test(released_write_lease_leaves_nothing),
    cmocka_unit_test(death_of_a_client_ends_its_leases_and_wakes_who_waits),
    cmocka_unit_test(lease_that_is_not_ended_is_taken_back),
    cmocka_unit_test(leases_of_one_client_are_bounded_and_bulk_takes_over),
    cmocka_unit_test(wrong_checksums_are_refused_and_nothing_is_written),
    cmocka_unit_test(appends_in_flight_never_meet),
    cmocka_unit_test(client_that_dies_in_the_middle_of_bulk_leaves_no_trace),
    cmocka_unit_test(server_closes_with_everything_in_flight),
    cmocka_unit_test(null_store_moves_bytes_and_keeps_sizes),
    cmocka_unit_test(synchronous_write_that_is_not_stable_fails),
    cmocka_unit_test(idle_touches_memory_ahead),
    cmocka_unit_test(nothing_waits_or_is_lent_without_a_timer),
};

TEST_MAIN(cases)
