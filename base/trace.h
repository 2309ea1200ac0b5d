/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trace: the last things that happened in one context, always on.
 *
 * A ring of 32-byte records. Each also goes into a running hash, so that two runs of one seed can
 * be compared by one number, and the first record that differs is where one of them read a clock
 * or an address. For that reason records carry ids and counts, never pointers.
 */
#pragma once

#include "base/hash.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>

struct base_trace_record {
    uint64_t now_ns;
    uint64_t id; /* of the object: an xid, a peer's index */
    uint64_t a;  /* what they mean is the event's affair */
    uint32_t b;
    uint32_t event;
};

static_assert(sizeof(struct base_trace_record) == 32, "two records fill a cache line");

struct base_trace {
    struct base_trace_record *records;
    uint64_t mask; /* number of records - 1 */
    uint64_t added_count;
    uint64_t hash;
};

/* Names an event for base_trace_dump(); NULL if it does not know it. */
typedef const char *(*base_trace_name_fn)(uint32_t event);

/* Makes a ring of @record_count records, a power of two. Errors: -EINVAL, -ENOMEM. */
int base_trace_init(struct base_trace *trace, uint32_t record_count);

/* Frees the records. */
void base_trace_fini(struct base_trace *trace);

/*
 * Prints the last @count records, or as many as there are, oldest first, one a line. @name may be
 * NULL: events are numbers then.
 */
void base_trace_dump(const struct base_trace *trace, FILE *out, uint32_t count,
                     base_trace_name_fn name);

/* Adds a record over the oldest one. */
static inline void
base_trace_add(struct base_trace *trace, uint64_t now_ns, uint32_t event, uint64_t id, uint64_t a,
               uint32_t b)
{
    /* Four independent products and one that waits for the last record's: the chain is short. */
    const uint64_t fold = (now_ns * 0x9e3779b97f4a7c15u) ^ (id * 0xbf58476d1ce4e5b9u) ^
                          (a * 0x94d049bb133111ebu) ^
                          ((((uint64_t)event << 32) | b) * 0xd6e8feb86659fd93u);
    const uint64_t mixed = (trace->hash ^ fold ^ (fold >> 32)) * 0xff51afd7ed558ccdu;

    trace->hash = mixed ^ (mixed >> 29);
    trace->records[trace->added_count++ & trace->mask] =
        (struct base_trace_record){.now_ns = now_ns, .id = id, .a = a, .b = b, .event = event};
}

/* The running hash of every record added since init, in order. */
static inline uint64_t
base_trace_hash(const struct base_trace *trace)
{
    return trace->hash;
}
