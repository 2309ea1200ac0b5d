/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract between the object server and where its objects' bytes are kept (an OST store).
 *
 * A store holds the objects of all OSTs of one reactor. Bytes are not passed through it: it *maps*
 * a part of an object to memory, and bulk moves the bytes between there and the client. A map for
 * reading is whole, or ends where the object ends or where the store ran out of segments. A map
 * for writing is a promise: no hole of it gets data, and the size does not change, until
 * write_commit(); write_abort() takes it back. Overwrites may go in place and be seen early.
 *
 * Rules for every store; tests/servers/store_conformance_test.c has a case for each.
 *
 *   R1 once     0 or a negative errno: the operation has ended and done() is not called.
 *               -EINPROGRESS: done() is called once, later, from another call into the store.
 *   R2 memory   An op is the caller's memory, and the store's from a call that returned
 *               -EINPROGRESS to done(), and from a map (of length 0 too) to its end. Mapped memory
 *               is given to no other object before that, even if its object is destroyed or cut.
 *   R3 no leak  What was never committed reads as zeros, whatever the memory held before and
 *               whatever was copied into maps that were aborted. But an aborted overwrite may
 *               leave some of its own bytes in 4 KiB pages that held data.
 *   R4 order    Writes and punches of one object that need each other's end wait in the order in
 *               which they came; reads never wait.
 *   R5 append   append_begin() reserves the bytes behind all that is written or reserved. One that
 *               wrote less leaves zeros only if another was reserved behind it meanwhile.
 *   R6 space    Out of space, write_map() maps less than was asked, or says -ENOSPC if nothing.
 *   R7 sparse   What was never written reads as zeros and takes no space, but for the rest of a
 *               block of 1 MiB that holds data.
 *   R8 absent   An object is made by create(), by write_commit(), or by a punch() that makes it
 *               longer. An absent one has an attr of zeros and is destroyed without error.
 *
 * The `null` store keeps no bytes: R3 and R7 speak of none. One thread; a store that has threads of
 * its own completes ops from idle().
 */
#pragma once

#include "base/list.h"
#include "ptlrpc/proto/ost.h"

#include <stdbool.h>
#include <sys/uio.h>

#define OST_STORE_MAP_BYTES_MAX (UINT64_C(4) << 20) /* of one map */
#define OST_STORE_SEGMENTS_MAX  64u
#define OST_STORE_HOLDS_MAX     5u /* pieces of 1 MiB that a map can touch */

struct ost_store_op;
typedef void (*ost_store_done_fn)(struct ost_store_op *op, int status);

/* One operation. The caller fills in what the slot of the ops table names as in. */
struct ost_store_op {
    ost_store_done_fn done;
    struct ost_object object;
    uint64_t offset;    /* in */
    uint64_t length;    /* in: asked; out: mapped. punch: in: the end */
    int64_t now_ns;     /* in: wall clock, for the object's times */
    int64_t times[2];   /* setattr: mtime, ctime */
    uint32_t whence;    /* in: seek */
    uint32_t iov_count; /* out: of a map */
    struct iovec
        *iov; /* in: room for OST_STORE_SEGMENTS_MAX, for maps; out: the memory, in order */
    struct ost_attr attr; /* out: after the operation */

    /* The store's own. */
    struct base_list link;
    struct base_list ready_link;
    void *held_object;
    int32_t status;
    uint32_t kind;
    uint32_t held_count;
    uint32_t reserved;
    void *held[OST_STORE_HOLDS_MAX];
};

struct ost_store {
    const struct ost_store_ops *ops;
};

/* What memory that peers can be let into is made from. Without, stores use plain memory. */
struct ost_store_memory {
    int (*region_alloc)(void *arg, uint64_t bytes, void **region_out,
                        void **address_out); /* zeroed */
    void (*region_free)(void *arg, void *region);
    void *arg;
};

struct ost_store_options {
    uint32_t ost_count;
    uint64_t bytes_max; /* of data; rounded down to pages */
    uint64_t objects_max;
    uint64_t region_bytes;   /* of one region, a multiple of 1 MiB [64 MiB] */
    uint64_t prefault_bytes; /* memory that is touched by open(); idle() keeps 32 MiB of it free */
    uint64_t seed;           /* of the objects' table */
    struct ost_store_memory memory;
};

struct ost_store_stats {
    uint64_t objects, objects_max;
    uint64_t bytes_used, bytes_max;
    uint64_t bytes_touched_free; /* handed out before without a page fault */
    uint64_t maps_out;           /* reads and writes */
    uint64_t waiting;            /* ops */
};

struct ost_store_ops {
    const char *name;
    bool lends; /* mapped memory is the object's own: may be lent to clients for long */

    /* Errors: -EINVAL; -ENOMEM. */
    int (*open)(const struct ost_store_options *options, struct ost_store **store_out);
    /* No map is out. */
    void (*close)(struct ost_store *store);

    /* Makes the object if it is not there. Out: attr. Errors: -ENOSPC objects_max. */
    int (*create)(struct ost_store *store, struct ost_store_op *op);
    /* Maps that are out end as usual; their commits fail with -ENOENT. */
    int (*destroy)(struct ost_store *store, struct ost_store_op *op);
    /* Out: attr. */
    int (*getattr)(struct ost_store *store, struct ost_store_op *op);
    /* In: times. Out: attr. */
    int (*setattr)(struct ost_store *store, struct ost_store_op *op);
    /*
     * In: offset, length (the end; UINT64_MAX: the object ends at offset), now_ns. Out: attr.
     * The caller has checked them against OST_OBJECT_BYTES_MAX, as in all that follow.
     */
    int (*punch)(struct ost_store *store, struct ost_store_op *op);
    /* In: offset, whence. Out: offset. Errors: -ENXIO. */
    int (*seek)(struct ost_store *store, struct ost_store_op *op);
    /* Makes the object stable. Out: attr. */
    int (*sync)(struct ost_store *store, struct ost_store_op *op);
    /* Of one OST. The sum over OSTs and reactors is right. */
    void (*statfs)(struct ost_store *store, uint32_t ost, struct ost_statfs_rep *rep_out);

    /* In: offset, length. Out: length (at most OST_STORE_MAP_BYTES_MAX; 0 at the end), iov, attr.
     */
    int (*read_map)(struct ost_store *store, struct ost_store_op *op);
    void (*read_unmap)(struct ost_store *store, struct ost_store_op *op);

    /* In: offset, length > 0. Out: length, iov. Errors: -ENOSPC; -ENOENT destroyed while it waited.
     */
    int (*write_map)(struct ost_store *store, struct ost_store_op *op);
    /*
     * In: @length of what was mapped, from its start, now_ns. Out: attr. The map has ended, also
     * with an error. Errors: -ENOENT destroyed.
     */
    int (*write_commit)(struct ost_store *store, struct ost_store_op *op, uint64_t length);
    void (*write_abort)(struct ost_store *store, struct ost_store_op *op);

    /* In: length. Out: offset; length is cut at OST_OBJECT_BYTES_MAX. Errors: -EFBIG; -ENOSPC. */
    int (*append_begin)(struct ost_store *store, struct ost_store_op *op);
    void (*append_end)(struct ost_store *store, struct ost_store_op *op);

    /* Uses a moment without work, at most about 50 us. Returns whether there is more to do. */
    bool (*idle)(struct ost_store *store);
    void (*stats_get)(const struct ost_store *store, struct ost_store_stats *stats_out);
};

/* The store @name, or NULL when there is none in this build. */
const struct ost_store_ops *ost_store_find(const char *name);
/* The @index-th store, or NULL behind the last. */
const struct ost_store_ops *ost_store_at(uint32_t index);
