/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every OST store keeps the rules of servers/store_ost.h.
 *
 * One case per rule, and a model: random operations on one object, several writes under way at
 * once, next to an array of bytes that says what must be read. Stores that keep no bytes are held
 * to the sizes only.
 */
#include "servers/store_ost.h"

#include "base/prng.h"
#include "tests/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define KIB (UINT64_C(1) << 10)

static const struct ost_store_ops *ops;
static struct ost_store *store;
static bool keeps_bytes;

static void
store_start(uint64_t bytes_max)
{
    const struct ost_store_options options = {.ost_count = 2,
                                              .bytes_max = bytes_max,
                                              .objects_max = 1000,
                                              .region_bytes = 2 * MIB,
                                              .prefault_bytes = MIB};

    assert_int_equal(ops->open(&options, &store), 0);
}

static void
store_stop(void)
{
    ops->close(store);
    store = NULL;
}

static struct ost_object
object_at(uint32_t i)
{
    return (struct ost_object){.fid = {FID_SEQ_FIRST, i + 1, 0}, .ost = i % 2};
}

/* An op that may complete later. */
struct call {
    struct ost_store_op op;
    bool is_done;
    int status;
    uint8_t fill;
    struct iovec iov[OST_STORE_SEGMENTS_MAX];
};

static void
call_done(struct ost_store_op *op, int status)
{
    struct call *call = BASE_CONTAINER_OF(op, struct call, op);

    assert_false(call->is_done);
    call->is_done = true;
    call->status = status;
}

static void
call_init(struct call *call, uint32_t object, uint64_t offset, uint64_t length)
{
    *call = (struct call){.op = {.done = call_done,
                                 .object = object_at(object),
                                 .offset = offset,
                                 .length = length,
                                 .now_ns = 1000}};
    call->op.iov = call->iov;
}

static void
iov_fill(const struct ost_store_op *op, uint8_t value, uint64_t length)
{
    for (uint32_t i = 0; i < op->iov_count && length > 0; i++) {
        const uint64_t part = base_min_u64(length, op->iov[i].iov_len);

        (void)memset(op->iov[i].iov_base, value, part);
        length -= part;
    }
}

static uint64_t
iov_bytes(const struct ost_store_op *op)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < op->iov_count; i++) {
        bytes += op->iov[i].iov_len;
    }
    return bytes;
}

/* Writes @length bytes of @value; returns how many or a negative errno. */
static int64_t
write_all(uint32_t object, uint64_t offset, uint64_t length, uint8_t value)
{
    uint64_t done = 0;

    while (done < length) {
        struct call call;

        call_init(&call, object, offset + done, length - done);
        const int rc = ops->write_map(store, &call.op);

        if (rc != 0) {
            return done > 0 ? (int64_t)done : rc;
        }
        assert_int_equal(iov_bytes(&call.op), call.op.length);
        iov_fill(&call.op, value, call.op.length);
        done += call.op.length;
        assert_int_equal(ops->write_commit(store, &call.op, call.op.length), 0);
    }
    return (int64_t)done;
}

/* Reads into @buffer; returns how many bytes there were. */
static uint64_t
read_all(uint32_t object, uint64_t offset, uint64_t length, uint8_t *buffer)
{
    uint64_t done = 0;

    while (done < length) {
        struct call call;

        call_init(&call, object, offset + done, length - done);
        assert_int_equal(ops->read_map(store, &call.op), 0);
        assert_int_equal(iov_bytes(&call.op), call.op.length);
        for (uint32_t i = 0; i < call.op.iov_count; i++) {
            (void)memcpy(buffer + done, call.op.iov[i].iov_base, call.op.iov[i].iov_len);
            done += call.op.iov[i].iov_len;
        }
        const bool is_end = call.op.length == 0;

        ops->read_unmap(store, &call.op);
        if (is_end) {
            break;
        }
    }
    return done;
}

static void
assert_reads(uint32_t object, uint64_t offset, uint64_t length, uint8_t value)
{
    uint8_t *buffer = malloc(length);

    assert_int_equal(read_all(object, offset, length, buffer), length);
    for (uint64_t i = 0; keeps_bytes && i < length; i++) {
        if (buffer[i] != value) {
            print_message("at %llu: %u, not %u\n", (unsigned long long)(offset + i), buffer[i],
                          value);
        }
        assert_int_equal(buffer[i], value);
    }
    free(buffer);
}

static struct ost_attr
attr_of(uint32_t object)
{
    struct call call;

    call_init(&call, object, 0, 0);
    assert_int_equal(ops->getattr(store, &call.op), 0);
    return call.op.attr;
}

static uint64_t
bytes_used(void)
{
    struct ost_store_stats stats;

    ops->stats_get(store, &stats);
    return stats.bytes_used;
}

static void
destroy(uint32_t object)
{
    struct call call;

    call_init(&call, object, 0, 0);
    assert_int_equal(ops->destroy(store, &call.op), 0);
}

static int
punch(uint32_t object, uint64_t start, uint64_t end)
{
    struct call call;

    call_init(&call, object, start, end);
    return ops->punch(store, &call.op);
}

/* ---- cases, run for each store ---- */

static void
absent_object_is_zero_and_is_made_by_writing(void)
{
    store_start(16 * MIB);
    assert_int_equal(attr_of(0).size, 0);
    assert_int_equal(attr_of(0).ctime_ns, 0);
    destroy(0);
    uint8_t byte = 0;

    assert_int_equal(read_all(0, 0, 1, &byte), 0);
    assert_int_equal(write_all(0, 0, 1, 7), 1);
    assert_int_equal(attr_of(0).size, 1);
    assert_int_equal(attr_of(0).mtime_ns, 1000);
    assert_reads(0, 0, 1, 7);
    destroy(0);
    assert_int_equal(attr_of(0).size, 0);
    assert_int_equal(bytes_used(), 0);
    store_stop();
}

static void
aborted_write_of_an_absent_object_makes_none(void)
{
    struct call call;
    struct ost_store_stats stats;

    store_start(16 * MIB);
    call_init(&call, 0, 0, 3 * MIB);
    assert_int_equal(ops->write_map(store, &call.op), 0);
    ops->write_abort(store, &call.op);
    ops->stats_get(store, &stats);
    assert_int_equal(stats.objects, 0);
    assert_int_equal(stats.bytes_used, 0);
    assert_int_equal(stats.maps_out, 0);
    store_stop();
}

static void
old_bytes_of_other_objects_are_never_read(void)
{
    static const uint64_t offsets[] = {0, 1, 4095, 4096, 5000, 100000, MIB - 1, MIB, MIB + 77};
    static const uint64_t lengths[] = {1, 100, 4096, 4097, 70000, MIB, 2 * MIB + 5};

    store_start(16 * MIB);
    for (uint32_t o = 0; o < BASE_ARRAY_LEN(offsets); o++) {
        for (uint32_t l = 0; l < BASE_ARRAY_LEN(lengths); l++) {
            const uint64_t end = offsets[o] + lengths[l];
            struct call call;

            /* Fill all memory with 0xaa and free it. */
            (void)write_all(0, 0, 15 * MIB, 0xaa);
            destroy(0);
            /* A write that is aborted, one that is cut short, and a hole made by growing. */
            call_init(&call, 1, offsets[o], lengths[l]);
            assert_int_equal(ops->write_map(store, &call.op), 0);
            iov_fill(&call.op, 0xbb, lengths[l] / 2);
            ops->write_abort(store, &call.op);
            assert_int_equal(punch(1, end, UINT64_MAX), 0);
            assert_reads(1, 0, end, 0);
            call_init(&call, 1, offsets[o], lengths[l]);
            assert_int_equal(ops->write_map(store, &call.op), 0);
            iov_fill(&call.op, 0xcc, lengths[l]);
            assert_int_equal(ops->write_commit(store, &call.op, (lengths[l] + 1) / 2), 0);
            assert_int_equal(attr_of(1).size, end);
            if (offsets[o] > 0) {
                assert_reads(1, 0, offsets[o], 0);
            }
            assert_reads(1, offsets[o], (lengths[l] + 1) / 2, 0xcc);
            if (lengths[l] > 1) {
                assert_reads(1, offsets[o] + (lengths[l] + 1) / 2, lengths[l] / 2, 0);
            }
            /* Cut and grown again: zeros. */
            assert_int_equal(punch(1, offsets[o] + 1, UINT64_MAX), 0);
            assert_int_equal(punch(1, end + 10, UINT64_MAX), 0);
            assert_reads(1, offsets[o] + 1, lengths[l] + 9, 0);
            destroy(1);
            assert_int_equal(bytes_used(), 0);
        }
    }
    store_stop();
}

static void
aborted_write_behind_the_end_leaves_zeros_there(void)
{
    struct call call;

    store_start(16 * MIB);
    assert_int_equal(write_all(0, 0, 100, 1), 100);
    call_init(&call, 0, 50, 4000);
    assert_int_equal(ops->write_map(store, &call.op), 0);
    iov_fill(&call.op, 0xbb, 4000);
    ops->write_abort(store, &call.op);
    assert_int_equal(attr_of(0).size, 100);
    assert_int_equal(punch(0, 4096, UINT64_MAX), 0);
    assert_reads(0, 100, 3996, 0);
    store_stop();
}

static void
lent_memory_outlives_its_object(void)
{
    struct call read, write;

    store_start(8 * MIB);
    assert_int_equal(write_all(0, 0, 3 * MIB, 5), 3 * MIB);
    call_init(&read, 0, 0, 3 * MIB);
    assert_int_equal(ops->read_map(store, &read.op), 0);
    call_init(&write, 0, MIB, MIB);
    assert_int_equal(ops->write_map(store, &write.op), 0);
    destroy(0);
    assert_int_equal(attr_of(0).size, 0);
    assert_true(!keeps_bytes || bytes_used() == 3 * MIB);
    /* Other objects can't have it: what is there stays. */
    (void)write_all(1, 0, 8 * MIB, 9);
    for (uint32_t i = 0; keeps_bytes && i < read.op.iov_count; i++) {
        const uint8_t *bytes = read.op.iov[i].iov_base;

        for (uint64_t k = 0; k < read.op.iov[i].iov_len; k++) {
            assert_int_equal(bytes[k], 5);
        }
    }
    ops->read_unmap(store, &read.op);
    assert_int_equal(ops->write_commit(store, &write.op, MIB), -ENOENT);
    assert_int_equal(attr_of(0).size, 0);
    destroy(1);
    assert_int_equal(bytes_used(), 0);
    store_stop();
}

static void
file_that_grows_while_it_is_read_keeps_the_readers_memory(void)
{
    struct call read;

    store_start(8 * MIB);
    assert_int_equal(write_all(0, 0, 4096, 5), 4096);
    call_init(&read, 0, 0, 4096);
    assert_int_equal(ops->read_map(store, &read.op), 0);
    assert_int_equal(write_all(0, 4096, 100000, 6), 100000);
    (void)write_all(1, 0, 6 * MIB, 9);
    assert_true(!keeps_bytes || *(uint8_t *)read.op.iov[0].iov_base == 5);
    ops->read_unmap(store, &read.op);
    assert_reads(0, 0, 4096, 5);
    assert_reads(0, 4096, 100000, 6);
    destroy(0);
    destroy(1);
    assert_int_equal(bytes_used(), 0);
    store_stop();
}

static void
small_files_take_a_page_and_holes_nothing(void)
{
    store_start(16 * MIB);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(write_all(i, 0, 100, 1), 100);
        assert_true(!keeps_bytes || attr_of(i).blocks == 8);
    }
    assert_true(!keeps_bytes || bytes_used() == 100 * 4096);
    for (uint32_t i = 0; i < 100; i++) {
        destroy(i);
    }
    static const uint64_t far[] = {UINT64_C(1) << 30, UINT64_C(1) << 40, UINT64_C(1) << 62,
                                   OST_OBJECT_BYTES_MAX - 4096};

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(far); i++) {
        assert_int_equal(write_all(0, far[i], 4096, 2), 4096);
        assert_reads(0, far[i] - 5000, 5000, 0);
        assert_reads(0, far[i], 4096, 2);
    }
    assert_true(bytes_used() <= 4 * MIB);
    assert_int_equal(attr_of(0).size, OST_OBJECT_BYTES_MAX);
    assert_true(!keeps_bytes || attr_of(0).blocks == 4 * 8);
    assert_int_equal(punch(0, 0, UINT64_MAX), 0);
    assert_int_equal(bytes_used(), 0);
    assert_int_equal(attr_of(0).size, 0);
    store_stop();
}

static void
seek_finds_data_and_holes(void)
{
    struct call call;

    store_start(16 * MIB);
    assert_int_equal(write_all(0, UINT64_C(1) << 30, 4096, 2), 4096);
    call_init(&call, 0, 0, 0);
    call.op.whence = SEEK_DATA;
    assert_int_equal(ops->seek(store, &call.op), 0);
    assert_true(call.op.offset == (keeps_bytes ? UINT64_C(1) << 30 : 0));
    call.op.offset = (UINT64_C(1) << 30) + 100;
    call.op.whence = SEEK_HOLE;
    assert_int_equal(ops->seek(store, &call.op), 0);
    assert_true(call.op.offset == (UINT64_C(1) << 30) + 4096);
    assert_int_equal(ops->seek(store, &call.op), -ENXIO);
    call.op.whence = SEEK_DATA;
    assert_int_equal(ops->seek(store, &call.op), -ENXIO);
    call.op.offset = 5;
    call.op.whence = 77;
    assert_int_equal(ops->seek(store, &call.op), -EINVAL);
    /* A file that is all hole. */
    assert_int_equal(punch(1, 1000000, UINT64_MAX), 0);
    call_init(&call, 1, 0, 0);
    call.op.whence = SEEK_DATA;
    assert_int_equal(ops->seek(store, &call.op), keeps_bytes ? -ENXIO : 0);
    store_stop();
}

static void
full_store_writes_short_then_enospc_then_works_again(void)
{
    store_start(10 * MIB);
    const int64_t written = write_all(0, 0, 16 * MIB, 1);

    if (!keeps_bytes) {
        assert_int_equal(written, 16 * MIB);
        store_stop();
        return;
    }
    struct ost_statfs_rep rep;

    assert_int_equal(written, 10 * MIB);
    assert_int_equal(write_all(0, 10 * MIB, 1, 1), -ENOSPC);
    assert_int_equal(write_all(1, 0, 1, 1), -ENOSPC);
    ops->statfs(store, 0, &rep);
    assert_int_equal(rep.bytes_free, 0);
    assert_int_equal(rep.bytes, 5 * MIB);
    assert_int_equal(write_all(0, 0, MIB, 2), MIB); /* in place */
    destroy(0);
    ops->statfs(store, 0, &rep);
    assert_int_equal(rep.bytes_free, 5 * MIB);
    assert_int_equal(write_all(1, 0, 10 * MIB, 1), 10 * MIB);
    store_stop();
}

static void
no_free_page_is_lost_to_fragments(void)
{
    if (!keeps_bytes) {
        return;
    }
    store_start(4 * MIB);
    /* 900 files of a page; then every second is removed. */
    for (uint32_t i = 0; i < 900; i++) {
        assert_int_equal(write_all(i, 0, 4096, (uint8_t)i), 4096);
    }
    for (uint32_t i = 0; i < 900; i += 2) {
        destroy(i);
    }
    const uint64_t room = 4 * MIB - bytes_used();

    assert_int_equal(write_all(901, 0, 16 * MIB, 3), room);
    assert_int_equal(bytes_used(), 4 * MIB);
    assert_reads(901, 0, room, 3);
    for (uint32_t i = 1; i < 900; i += 2) {
        assert_reads(i, 0, 4096, (uint8_t)i);
        destroy(i);
    }
    destroy(901);
    assert_int_equal(bytes_used(), 0);
    store_stop();
}

static void
objects_are_bounded_and_counted_by_ost(void)
{
    struct ost_statfs_rep rep;

    store_start(16 * MIB);
    for (uint32_t i = 0; i < 1000; i++) {
        struct call call;

        call_init(&call, i, 0, 0);
        assert_int_equal(ops->create(store, &call.op), 0);
        assert_int_equal(ops->create(store, &call.op), 0);
    }
    struct call call;

    call_init(&call, 1000, 0, 10);
    assert_int_equal(ops->create(store, &call.op), -ENOSPC);
    assert_int_equal(ops->write_map(store, &call.op), -ENOSPC);
    assert_int_equal(ops->append_begin(store, &call.op), -ENOSPC);
    assert_int_equal(punch(1000, 5, UINT64_MAX), -ENOSPC);
    ops->statfs(store, 1, &rep);
    assert_int_equal(rep.objects, 500);
    assert_int_equal(rep.objects_max, 500);
    for (uint32_t i = 0; i < 1000; i++) {
        destroy(i);
    }
    ops->statfs(store, 1, &rep);
    assert_int_equal(rep.objects, 0);
    store_stop();
}

static void
appends_never_meet_and_leave_holes_only_before_later_ones(void)
{
    struct call a, b, c;

    store_start(16 * MIB);
    assert_int_equal(write_all(0, 0, 10, 1), 10);
    call_init(&a, 0, 0, 100);
    call_init(&b, 0, 0, 200);
    call_init(&c, 0, 0, 300);
    assert_int_equal(ops->append_begin(store, &a.op), 0);
    assert_int_equal(ops->append_begin(store, &b.op), 0);
    assert_int_equal(a.op.offset, 10);
    assert_int_equal(b.op.offset, 110);
    ops->append_end(store, &b.op); /* the last one fails: its place is free again */
    assert_int_equal(ops->append_begin(store, &c.op), 0);
    assert_int_equal(c.op.offset, 110);
    ops->append_end(store, &a.op); /* not the last: a hole, if the next one writes */
    assert_int_equal(write_all(0, c.op.offset, 300, 3), 300);
    ops->append_end(store, &c.op);
    assert_int_equal(attr_of(0).size, 410);
    assert_reads(0, 10, 100, 0);
    assert_reads(0, 110, 300, 3);
    call_init(&a, 0, 0, 100);
    assert_int_equal(ops->append_begin(store, &a.op), 0);
    assert_int_equal(a.op.offset, 410);
    ops->append_end(store, &a.op);
    call_init(&a, 0, 0, 100);
    assert_int_equal(ops->append_begin(store, &a.op), 0);
    assert_int_equal(a.op.offset, 410);
    ops->append_end(store, &a.op);
    /* At the largest size. */
    assert_int_equal(punch(0, OST_OBJECT_BYTES_MAX - 10, UINT64_MAX), 0);
    call_init(&a, 0, 0, 100);
    assert_int_equal(ops->append_begin(store, &a.op), 0);
    assert_int_equal(a.op.length, 10);
    assert_int_equal(ops->append_begin(store, &b.op), -EFBIG);
    ops->append_end(store, &a.op);
    store_stop();
}

static void
writes_of_one_new_page_take_turns(void)
{
    struct call a, b, c;

    if (!keeps_bytes) {
        return;
    }
    store_start(16 * MIB);
    (void)write_all(1, 0, 16 * MIB, 0xaa);
    destroy(1);
    /* A covers pages 0 and 1, B a part of page 1, C is behind B by order alone. */
    call_init(&a, 0, 0, 8192);
    call_init(&b, 0, 5000, 100);
    call_init(&c, 0, MIB, 100);
    assert_int_equal(ops->write_map(store, &a.op), 0);
    assert_int_equal(ops->write_map(store, &b.op), -EINPROGRESS);
    assert_int_equal(ops->write_map(store, &c.op), -EINPROGRESS);
    assert_false(b.is_done);
    ops->write_abort(store, &a.op);
    assert_true(b.is_done && b.status == 0 && c.is_done && c.status == 0);
    iov_fill(&b.op, 2, 100);
    iov_fill(&c.op, 3, 100);
    assert_int_equal(ops->write_commit(store, &b.op, 100), 0);
    assert_int_equal(ops->write_commit(store, &c.op, 100), 0);
    assert_reads(0, 0, 5000, 0);
    assert_reads(0, 5000, 100, 2);
    assert_reads(0, 5100, MIB - 5100, 0);
    assert_reads(0, MIB, 100, 3);

    /* Both in part: at once, in either order. */
    call_init(&a, 2, 0, 100);
    call_init(&b, 2, 100, 100);
    assert_int_equal(ops->write_map(store, &a.op), 0);
    iov_fill(&a.op, 1, 100);
    assert_int_equal(ops->write_map(store, &b.op), 0);
    iov_fill(&b.op, 2, 100);
    assert_int_equal(ops->write_commit(store, &b.op, 100), 0);
    assert_int_equal(attr_of(2).size, 200);
    assert_int_equal(ops->write_commit(store, &a.op, 100), 0);
    assert_reads(2, 0, 100, 1);
    assert_reads(2, 100, 100, 2);
    store_stop();
}

static void
punch_waits_for_writes_in_its_range_and_destroy_for_nobody(void)
{
    struct call a, cut, later;

    if (!keeps_bytes) {
        return;
    }
    store_start(16 * MIB);
    assert_int_equal(write_all(0, 0, 100000, 1), 100000);
    call_init(&a, 0, 50000, 1000);
    assert_int_equal(ops->write_map(store, &a.op), 0);
    assert_int_equal(punch(0, 0, 50000), 0); /* beside it */
    call_init(&cut, 0, 10000, UINT64_MAX);
    assert_int_equal(ops->punch(store, &cut.op), -EINPROGRESS);
    call_init(&later, 0, 0, 10);
    assert_int_equal(ops->write_map(store, &later.op), -EINPROGRESS);
    iov_fill(&a.op, 2, 1000);
    assert_int_equal(ops->write_commit(store, &a.op, 1000), 0);
    assert_true(cut.is_done && cut.status == 0 && cut.op.attr.size == 10000);
    assert_true(later.is_done && later.status == 0);
    ops->write_abort(store, &later.op);
    assert_int_equal(attr_of(0).size, 10000);

    call_init(&a, 0, 50000, 1000);
    assert_int_equal(ops->write_map(store, &a.op), 0);
    call_init(&cut, 0, 10000, UINT64_MAX);
    assert_int_equal(ops->punch(store, &cut.op), -EINPROGRESS);
    destroy(0);
    assert_true(cut.is_done && cut.status == -ENOENT);
    assert_int_equal(write_all(0, 0, 5, 5), 5); /* a new object of that name */
    ops->write_abort(store, &a.op);
    assert_int_equal(attr_of(0).size, 5);
    store_stop();
}

/* ---- the model ---- */

#define WINDOW_BYTES (3 * MIB)
#define WINDOWS      3
#define PENDING_MAX  4

static const uint64_t window_at[WINDOWS] = {0, (UINT64_C(1) << 30) - MIB + 123, UINT64_C(1) << 40};

/* The page of byte @at of a window, counted from the window's first. */
#define PAGE_OF(w, at) (((window_at[w] + (at)) >> 12) - (window_at[w] >> 12))

struct model {
    uint64_t size;
    uint8_t value[WINDOWS][WINDOW_BYTES];
    uint8_t other[WINDOWS][WINDOW_BYTES]; /* may also be read: of an aborted overwrite */
    bool has_data[WINDOWS][WINDOW_BYTES / 4096 + 2];
};

static struct model *model;
static struct base_prng prng;

static void
model_set(uint32_t w, uint64_t from, uint64_t to, uint8_t value)
{
    (void)memset(model->value[w] + from, value, to - from);
    (void)memset(model->other[w] + from, value, to - from);
    for (uint64_t at = from; at < to; at++) {
        model->has_data[w][PAGE_OF(w, at)] = true;
    }
    model->size = base_max_u64(model->size, window_at[w] + to);
}

static void
model_abort(uint32_t w, uint64_t from, uint64_t to, uint8_t value)
{
    for (uint64_t at = from; at < to; at++) {
        if (model->has_data[w][PAGE_OF(w, at)] && window_at[w] + at < model->size) {
            model->other[w][at] = value;
        }
    }
}

static void
model_zero(uint64_t start, uint64_t end)
{
    for (uint32_t w = 0; w < WINDOWS; w++) {
        const uint64_t base = window_at[w];

        for (uint64_t at = base_max_u64(start, base); at < base_min_u64(end, base + WINDOW_BYTES);
             at++) {
            model->value[w][at - base] = model->other[w][at - base] = 0;
        }
        for (uint64_t page = base >> 12; page << 12 < base + WINDOW_BYTES; page++) {
            if (start <= page << 12 && (page + 1) << 12 <= end) {
                model->has_data[w][page - (base >> 12)] = false;
            }
        }
    }
}

/* Mostly small, sometimes large, often at the edges of pages and slots. */
static uint64_t
random_offset(void)
{
    uint64_t at = base_prng_below(&prng, WINDOW_BYTES);

    if (base_prng_chance(&prng, 0.3)) {
        at = at & ~UINT64_C(4095);
    } else if (base_prng_chance(&prng, 0.3)) {
        at = base_prng_below(&prng, 10000);
    }
    return at;
}

static uint64_t
random_length(uint64_t most)
{
    const uint64_t kind = base_prng_below(&prng, 4);
    const uint64_t limit = kind == 0 ? 100 : kind == 1 ? 10000 : kind == 2 ? 200000 : 2 * MIB;

    return base_min_u64(most, 1 + base_prng_below(&prng, limit));
}

struct pending {
    struct call call;
    uint32_t window;
    uint64_t from;
    bool is_out;
    uint8_t fill;
};

static struct pending pending[PENDING_MAX];

/* Whether @value may be read at @at: what is there, or of an overwrite that is aborted or under
 * way. */
static bool
model_may_read(uint32_t w, uint64_t at, uint8_t value)
{
    if (value == model->value[w][at] || value == model->other[w][at]) {
        return true;
    }
    for (uint32_t i = 0; i < PENDING_MAX; i++) {
        const struct pending *p = &pending[i];

        if (p->is_out && p->window == w && p->from <= at && at < p->from + p->call.op.length) {
            return value == p->fill && model->has_data[w][PAGE_OF(w, at)];
        }
    }
    return false;
}

static void
model_check_read(void)
{
    static uint8_t buffer[WINDOW_BYTES];
    const uint32_t w = (uint32_t)base_prng_below(&prng, WINDOWS);
    const uint64_t from = random_offset();
    const uint64_t length = random_length(WINDOW_BYTES - from);
    const uint64_t offset = window_at[w] + from;
    const uint64_t want = offset < model->size ? base_min_u64(length, model->size - offset) : 0;

    assert_int_equal(read_all(0, offset, length, buffer), want);
    for (uint64_t i = 0; keeps_bytes && i < want; i++) {
        if (!model_may_read(w, from + i, buffer[i])) {
            print_message("window %u at %llu: %u, not %u\n", w, (unsigned long long)(from + i),
                          buffer[i], model->value[w][from + i]);
            assert_true(false);
        }
    }
}

static void
model_check_seek(void)
{
    const uint32_t w = (uint32_t)base_prng_below(&prng, WINDOWS);
    const uint64_t from = random_offset();
    struct call call;

    call_init(&call, 0, window_at[w] + from, 0);
    call.op.whence = base_prng_chance(&prng, 0.5) ? SEEK_DATA : SEEK_HOLE;
    const int rc = ops->seek(store, &call.op);

    if (window_at[w] + from >= model->size) {
        assert_int_equal(rc, -ENXIO);
        return;
    }
    if (!keeps_bytes) {
        return;
    }
    if (call.op.whence == SEEK_DATA) { /* all that was passed over is zero */
        const uint64_t to = rc == 0 ? call.op.offset : model->size;

        for (uint64_t at = from; at < WINDOW_BYTES && window_at[w] + at < to; at++) {
            assert_int_equal(model->value[w][at], 0);
        }
    } else {
        const uint64_t at = call.op.offset;

        assert_int_equal(rc, 0);
        assert_true(at >= window_at[w] + from && at <= model->size);
        if (at < model->size && at < window_at[w] + WINDOW_BYTES) {
            assert_int_equal(model->value[w][at - window_at[w]], 0);
        }
    }
}

static void
pending_end(struct pending *p)
{
    const uint64_t length = p->call.op.length;
    const uint64_t keep = base_prng_chance(&prng, 0.5)   ? length
                          : base_prng_chance(&prng, 0.5) ? 0
                                                         : base_prng_below(&prng, length + 1);

    p->is_out = false;
    /* The abort's mark first: what the commit adds to the size counts for what may be read. */
    if (keep == 0 && base_prng_chance(&prng, 0.5)) {
        model_abort(p->window, p->from, p->from + length, p->fill);
        ops->write_abort(store, &p->call.op);
        return;
    }
    model_abort(p->window, p->from + keep, p->from + length, p->fill);
    if (keep > 0) {
        model_set(p->window, p->from, p->from + keep, p->fill);
    }
    assert_int_equal(ops->write_commit(store, &p->call.op, keep), 0);
    assert_int_equal(p->call.op.attr.size, model->size);
}

static void
pending_start(struct pending *p)
{
    const uint32_t w = (uint32_t)base_prng_below(&prng, WINDOWS);
    const uint64_t from = random_offset();
    const uint64_t length = random_length(WINDOW_BYTES - from);

    /* Not over bytes of another: what those are is nobody's business. Sharing pages is. */
    for (uint32_t i = 0; i < PENDING_MAX; i++) {
        const struct pending *q = &pending[i];

        if (q->is_out && q->window == w && from < q->from + q->call.op.length &&
            q->from < from + length) {
            return;
        }
    }
    call_init(&p->call, 0, window_at[w] + from, length);
    const int rc = ops->write_map(store, &p->call.op);

    if (rc == -ENOSPC) {
        return;
    }
    assert_int_equal(rc, 0); /* no page of another's own can be met: those would share bytes */
    p->window = w;
    p->from = from;
    p->is_out = true;
    p->fill = (uint8_t)(1 + base_prng_below(&prng, 255));
    assert_true(p->call.op.length <= length);
    iov_fill(&p->call.op, p->fill, p->call.op.length);
}

static void
pending_end_all(void)
{
    for (uint32_t i = 0; i < PENDING_MAX; i++) {
        if (pending[i].is_out) {
            pending_end(&pending[i]);
        }
    }
}

static void
model_punch(void)
{
    const uint32_t w = (uint32_t)base_prng_below(&prng, WINDOWS);
    const uint64_t start = window_at[w] + random_offset();
    const bool is_cut = base_prng_chance(&prng, 0.4);
    const uint64_t end =
        is_cut ? UINT64_MAX : start + random_length(window_at[w] + WINDOW_BYTES - start);
    struct call call;

    call_init(&call, 0, start, end);
    const int rc = ops->punch(store, &call.op);

    if (rc == -EINPROGRESS) {
        for (uint32_t i = 0; i < PENDING_MAX && !call.is_done; i++) {
            if (pending[i].is_out) {
                pending_end(&pending[i]);
            }
        }
        assert_true(call.is_done);
        assert_int_equal(call.status, 0);
    } else {
        assert_int_equal(rc, 0);
    }
    model_zero(start, end);
    if (is_cut) {
        model->size = start;
    }
    assert_int_equal(attr_of(0).size, model->size);
}

static void
model_run(uint64_t seed, uint64_t bytes_max, uint32_t steps)
{
    store_start(bytes_max);
    model = calloc(1, sizeof(*model));
    base_prng_seed(&prng, seed);
    /* Memory that was used before. */
    (void)write_all(5, 0, bytes_max, 0xaa);
    destroy(5);
    for (uint32_t i = 0; i < steps; i++) {
        const uint64_t what = base_prng_below(&prng, 100);
        struct pending *p = &pending[base_prng_below(&prng, PENDING_MAX)];

        if (what < 55) {
            if (p->is_out) {
                pending_end(p);
            } else {
                pending_start(p);
            }
        } else if (what < 60) {
            model_punch();
        } else if (what < 62) {
            pending_end_all();
            destroy(0);
            model_zero(0, UINT64_MAX);
            model->size = 0;
        } else if (what < 70) {
            model_check_seek();
        } else if (what < 75) {
            (void)ops->idle(store);
        } else {
            model_check_read();
        }
    }
    pending_end_all();
    destroy(0);
    assert_int_equal(bytes_used(), 0);
    free(model);
    store_stop();
}

static void
random_operations_agree_with_the_model(void)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        model_run(seed, 64 * MIB, 1500);
    }
}

static void
random_operations_agree_with_the_model_when_space_is_short(void)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        model_run(seed, seed * 900 * KIB, 1500);
    }
}

#define CASE(store_name, bytes, name)             \
    static void store_name##_##name(void **state) \
    {                                             \
        ops = ost_store_find(#store_name);        \
        assert_non_null(ops);                     \
        keeps_bytes = bytes;                      \
        name();                                   \
    }
#define CASES(store_name, bytes)                                                        \
    CASE(store_name, bytes, absent_object_is_zero_and_is_made_by_writing)               \
    CASE(store_name, bytes, aborted_write_of_an_absent_object_makes_none)               \
    CASE(store_name, bytes, old_bytes_of_other_objects_are_never_read)                  \
    CASE(store_name, bytes, aborted_write_behind_the_end_leaves_zeros_there)            \
    CASE(store_name, bytes, lent_memory_outlives_its_object)                            \
    CASE(store_name, bytes, file_that_grows_while_it_is_read_keeps_the_readers_memory)  \
    CASE(store_name, bytes, small_files_take_a_page_and_holes_nothing)                  \
    CASE(store_name, bytes, seek_finds_data_and_holes)                                  \
    CASE(store_name, bytes, full_store_writes_short_then_enospc_then_works_again)       \
    CASE(store_name, bytes, no_free_page_is_lost_to_fragments)                          \
    CASE(store_name, bytes, objects_are_bounded_and_counted_by_ost)                     \
    CASE(store_name, bytes, appends_never_meet_and_leave_holes_only_before_later_ones)  \
    CASE(store_name, bytes, writes_of_one_new_page_take_turns)                          \
    CASE(store_name, bytes, punch_waits_for_writes_in_its_range_and_destroy_for_nobody) \
    CASE(store_name, bytes, random_operations_agree_with_the_model)                     \
    CASE(store_name, bytes, random_operations_agree_with_the_model_when_space_is_short)
#define ENTRIES(store_name)                                                                        \
    cmocka_unit_test(store_name##_absent_object_is_zero_and_is_made_by_writing),                   \
        cmocka_unit_test(store_name##_aborted_write_of_an_absent_object_makes_none),               \
        cmocka_unit_test(store_name##_old_bytes_of_other_objects_are_never_read),                  \
        cmocka_unit_test(store_name##_aborted_write_behind_the_end_leaves_zeros_there),            \
        cmocka_unit_test(store_name##_lent_memory_outlives_its_object),                            \
        cmocka_unit_test(store_name##_file_that_grows_while_it_is_read_keeps_the_readers_memory),  \
        cmocka_unit_test(store_name##_small_files_take_a_page_and_holes_nothing),                  \
        cmocka_unit_test(store_name##_seek_finds_data_and_holes),                                  \
        cmocka_unit_test(store_name##_full_store_writes_short_then_enospc_then_works_again),       \
        cmocka_unit_test(store_name##_no_free_page_is_lost_to_fragments),                          \
        cmocka_unit_test(store_name##_objects_are_bounded_and_counted_by_ost),                     \
        cmocka_unit_test(store_name##_appends_never_meet_and_leave_holes_only_before_later_ones),  \
        cmocka_unit_test(store_name##_writes_of_one_new_page_take_turns),                          \
        cmocka_unit_test(store_name##_punch_waits_for_writes_in_its_range_and_destroy_for_nobody), \
        cmocka_unit_test(store_name##_random_operations_agree_with_the_model),                     \
        cmocka_unit_test(store_name##_random_operations_agree_with_the_model_when_space_is_short)

CASES(mem, true)
CASES(null, false)

static void
every_store_of_this_build_is_held_to_the_rules(void **state)
{
    static const char *const tested[] = {"mem", "null"};
    uint32_t count = 0;

    while (ost_store_at(count) != NULL) {
        assert_true(count < BASE_ARRAY_LEN(tested));
        assert_string_equal(ost_store_at(count)->name, tested[count]);
        count++;
    }
    assert_int_equal(count, BASE_ARRAY_LEN(tested));
    assert_null(ost_store_find("no such store"));
}

static const struct CMUnitTest cases[] = {
    ENTRIES(mem),
    ENTRIES(null),
    cmocka_unit_test(every_store_of_this_build_is_held_to_the_rules),
};

TEST_MAIN(cases)
