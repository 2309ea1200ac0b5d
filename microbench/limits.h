/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What this machine can do at best, measured now.
 *
 * A figure for shared memory means something only beside the limit of the same second: the two
 * cores of a virtual machine are moved about by their host, and with them the price of a cache
 * line, by a factor of five. So a benchmark measures the limit itself, before or after its own
 * loop, and reports the ratio:
 *
 *     double limit_ns = 0;
 *     if (limits_one_way_ns(64, &limit_ns) == 0) {
 *         bench_counter(state, "ratio_to_limit", own_ns / limit_ns, BENCH_COUNTER_PLAIN);
 *     }
 *
 * What takes two cores runs on the first two that this process may use; the caller's affinity is
 * as before when a function returns. Each limits_..._ns() and _bps() takes about 10 to 100 ms.
 *
 * Errors of all of them: -EOPNOTSUPP fewer than two cores, or the kernel does not allow it;
 * -ENOMEM, -EAGAIN no memory, no thread; -EINVAL a size of 0 or above LIMITS_BYTES_MAX.
 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIMITS_BYTES_MAX (64u << 20)

enum limits_kind {
    LIMITS_LINE,    /* one cache line handed from core to core; param unused */
    LIMITS_MESSAGE, /* copy into a slot, copy out on the other core; param: bytes */
    LIMITS_RING,    /* 64-byte messages over a one-producer ring; param: messages per publish */
    LIMITS_RPC,     /* 64-byte request and reply over two bare rings; param: how many in flight */
    LIMITS_MEMCPY,  /* param: bytes */
    LIMITS_CMA,     /* process_vm_readv() from a child; param: bytes */
    LIMITS_FUTEX,   /* wake a sleeper and be woken; param: 1 both on one core, 0 on two */
    LIMITS_EVENTFD, /* the same by read and write of eventfds */
};
#define LIMITS_KIND_COUNT 8

/* Where the memory of a copy is. */
enum limits_memory {
    LIMITS_WARM = 0, /* the same two buffers again and again */
    LIMITS_COLD = 1, /* buffers that were not touched since 128 MiB ago */
    LIMITS_HUGE = 2, /* a bit: transparent huge pages are asked for; else 4 KiB pages */
};

struct limits_result {
    uint64_t count;      /* operations made: hand-overs, messages, calls, copies */
    uint64_t elapsed_ns; /* for all of them */
    double mean_ns;      /* of one */
    double p50_ns;       /* of one: the median over batches */
    double p99_ns;
};

/*
 * Makes about @count operations of @kind and says how long they took. @memory matters for
 * LIMITS_MEMCPY and LIMITS_CMA. The functions below call it with counts of their own; benchmarks
 * of the limits themselves call it with theirs.
 */
int limits_measure(enum limits_kind kind, uint64_t param, uint32_t memory, uint64_t count,
                   struct limits_result *result_out);

/* How long a cache line takes from core to core. Near cores: about 25 ns; far ones: above 100. */
int limits_line_ns(double *ns_out);

/* Copy-in, hand-over and copy-out of a message, one way, median. */
int limits_one_way_ns(size_t bytes, double *ns_out);

/* 64-byte messages per second through one ring, its index published every @batch of them. */
int limits_ring_rate(uint32_t batch, double *per_second_out);

/* Pairs of 64-byte request and 64-byte reply per second, @in_flight at a time. */
int limits_rpc_rate(uint32_t in_flight, double *per_second_out);

/* Bytes per second of memcpy() on one core. @memory is of enum limits_memory. */
int limits_memcpy_bps(size_t bytes, uint32_t memory, double *bps_out);

/* Bytes per second of process_vm_readv() on one core. @memory is of enum limits_memory. */
int limits_cma_bps(size_t bytes, uint32_t memory, double *bps_out);

/* Round trip of waking a sleeper by LIMITS_FUTEX or LIMITS_EVENTFD, on one core or across two. */
int limits_wake_ns(enum limits_kind kind, bool is_same_core, double *ns_out);

/* The first two processors this process may run on. -EOPNOTSUPP if there is but one. */
int limits_cpus(uint32_t cpus_out[2]);

/* Moves the calling thread to @cpu; the affinity before goes to @saved_out. Errors: errno's. */
int limits_pin(uint32_t cpu, cpu_set_t *saved_out);

/* Gives the calling thread its affinity back. */
void limits_unpin(const cpu_set_t *saved);
