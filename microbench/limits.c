/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measuring the limits.
 *
 * Two-core kinds run as a lead, the caller, and a follow, a thread made for the one measurement.
 * Both spin on memory without a pause instruction, which would cost as much as a near cache line;
 * a spin that lasts gives the core away now and then, so that a measurement on a machine that is
 * busy with other things ends late rather than never.
 *
 * Operations are timed in batches, because one is shorter than two reads of a clock. The median
 * over the batches is what an interrupted run still gets right.
 */
#include "microbench/limits.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/hist.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SPINS_BEFORE_YIELD 65536u
#define BATCHES_WANTED     200u
#define COLD_SPAN_BYTES    (128u << 20)
#define HUGE_PAGE_BYTES    (2u << 20)
#define RING_SLOTS         256u
#define SLOTS_LONG_BYTES   16384u
#define SLOTS_SPAN_BYTES \
    (3u << 19) /* above the 1 MiB of a core's own cache, below the shared one */
#define RPC_IN_FLIGHT_MAX 128u
#define BUDGET_NS         10000000u /* a limit is good when its measurement took that long */
#define COUNT_MAX         (1u << 26)
#define FIRST_COUNT       256u         /* operations of the first try */
#define FIRST_BYTES       (256u << 20) /* and their bytes together, at most */

/*
 * One message slot of LIMITS_MESSAGE: the word that says whose turn it is, then the bytes: in the
 * same cache line if they fit there, else from the next one on.
 */
struct slot {
    BASE_ALIGNED(BASE_CACHE_LINE) _Atomic(uint64_t) turn;
    unsigned char bytes[];
};

#define SLOT_INLINE_BYTES (BASE_CACHE_LINE - sizeof(uint64_t))

/*
 * The slots of one direction. Short messages use one, whose lines go back and forth. For longer
 * ones that is slow, because every line is dirty in the other core's own cache; slots in turn, more
 * of them together than that cache holds, are found in the shared cache instead, which made 64 KiB
 * three times as fast where this was tried.
 */
struct slots {
    unsigned char *memory;
    size_t memory_bytes;
    size_t stride_bytes;
    uint64_t mask;
    size_t bytes_offset;
};

/* One entry of LIMITS_RING and LIMITS_RPC. A message fills its cache line, sequence included. */
struct line {
    BASE_ALIGNED(BASE_CACHE_LINE) _Atomic(uint64_t) sequence;
    unsigned char bytes[BASE_CACHE_LINE - sizeof(uint64_t)];
};

struct ring {
    BASE_ALIGNED(BASE_CACHE_LINE) _Atomic(uint64_t) published; /* by the producer */
    BASE_ALIGNED(BASE_CACHE_LINE) _Atomic(uint64_t) consumed;  /* by the consumer */
    struct line lines[RING_SLOTS];
};

struct duo {
    struct ring there; /* lead to follow */
    struct ring back;
    BASE_ALIGNED(BASE_CACHE_LINE) _Atomic(uint64_t) word;
    BASE_ALIGNED(BASE_CACHE_LINE) _Atomic(uint32_t) futex_there;
    BASE_ALIGNED(BASE_CACHE_LINE) _Atomic(uint32_t) futex_back;
    BASE_ALIGNED(BASE_CACHE_LINE) uint64_t param;
    uint64_t count; /* round trips, or messages: both sides know when it ends */
    uint64_t batch;
    struct slots slots_there;
    struct slots slots_back;
    unsigned char *lead_bytes;
    unsigned char *follow_bytes;
    int fd_there;
    int fd_back;
    uint32_t follow_cpu;
    void (*follow)(struct duo *duo);
    _Atomic(uint64_t) is_ready; /* the follow runs on its core */
    uint64_t start_ns;
    struct base_hist *hist; /* picoseconds of one operation, by batch */
};

/* ---- affinity --------------------------------------------------------------------------- */

int
limits_cpus(uint32_t cpus_out[2])
{
    cpu_set_t allowed;
    uint32_t found = 0;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return -errno;
    }
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
        if (CPU_ISSET(cpu, &allowed)) {
            cpus_out[found++] = cpu;
        }
    }
    return found == 2 ? 0 : -EOPNOTSUPP;
}

int
limits_pin(uint32_t cpu, cpu_set_t *saved_out)
{
    cpu_set_t saved;
    cpu_set_t wanted;

    CPU_ZERO(&wanted);
    CPU_SET(cpu, &wanted);
    if (sched_getaffinity(0, sizeof(saved), &saved) != 0 ||
        sched_setaffinity(0, sizeof(wanted), &wanted) != 0) {
        return -errno;
    }
    *saved_out = saved;
    return 0;
}

void
limits_unpin(const cpu_set_t *saved)
{
    (void)sched_setaffinity(0, sizeof(*saved), saved);
}

/* ---- memory ----------------------------------------------------------------------------- */

/*
 * Maps and touches @bytes, in huge pages if asked for, in the place of what is at @at, or anywhere.
 * NULL if there is no memory.
 */
static unsigned char *
memory_map(unsigned char *at, size_t bytes, bool is_huge)
{
    const size_t mapped = base_align_up(bytes, HUGE_PAGE_BYTES);
    const int fixed = at != NULL ? MAP_FIXED : 0;
    unsigned char *memory =
        mmap(at, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);

    if (memory == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(memory, mapped, is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    (void)memset(memory, 1, mapped);
    return memory;
}

static void
memory_unmap(unsigned char *memory, size_t bytes)
{
    if (memory != NULL) {
        (void)munmap(memory, base_align_up(bytes, HUGE_PAGE_BYTES));
    }
}

/* ---- timing ----------------------------------------------------------------------------- */

static struct base_tsc tsc;

static void
tsc_init(void)
{
    base_tsc_calibrate(&tsc);
}

/* The calibration takes longer than many a measurement: one does for the process. */
static void
tsc_need(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, tsc_init);
}

static inline uint64_t
stamp_ns(void)
{
    return base_tsc_now_ns(&tsc);
}

static void
batch_record(struct base_hist *hist, uint64_t ns, uint64_t operations)
{
    BASE_ASSERT(operations > 0);
    base_hist_record(hist, ns * 1000 / operations);
}

static void
result_from(const struct base_hist *hist, uint64_t count, uint64_t elapsed_ns,
            struct limits_result *result_out)
{
    *result_out = (struct limits_result){
        .count = count,
        .elapsed_ns = elapsed_ns,
        .mean_ns = (double)elapsed_ns / (double)count,
        .p50_ns = (double)base_hist_percentile(hist, 0.5) / 1000,
        .p99_ns = (double)base_hist_percentile(hist, 0.99) / 1000,
    };
}

/* How many operations to time together, so that there are batches enough, of a microsecond. */
static uint64_t
batch_size(uint64_t count, uint64_t least)
{
    return base_max_u64(base_min_u64(count / BATCHES_WANTED, 64), base_min_u64(least, count));
}

/* ---- the two sides ---------------------------------------------------------------------- */

/* Spins until *@word is @value. */
static inline void
spin_until(_Atomic(uint64_t) *word, uint64_t value)
{
    for (uint32_t spins = 0; atomic_load_explicit(word, memory_order_acquire) != value; spins++) {
        if (BASE_UNLIKELY(spins >= SPINS_BEFORE_YIELD)) {
            (void)sched_yield();
            spins = 0;
        }
    }
}

static void
line_lead(struct duo *duo, uint64_t turn)
{
    atomic_store_explicit(&duo->word, 2 * turn + 1, memory_order_release);
    spin_until(&duo->word, 2 * turn + 2);
}

static void
line_follow(struct duo *duo)
{
    for (uint64_t turn = 0; turn < duo->count; turn++) {
        spin_until(&duo->word, 2 * turn + 1);
        atomic_store_explicit(&duo->word, 2 * turn + 2, memory_order_release);
    }
}

static inline struct slot *
slot_at(const struct slots *slots, uint64_t turn)
{
    return (struct slot *)(void *)(slots->memory + (turn & slots->mask) * slots->stride_bytes);
}

static inline void
slot_put(const struct slots *slots, uint64_t turn, const unsigned char *bytes, size_t length_bytes)
{
    struct slot *slot = slot_at(slots, turn);

    (void)memcpy((unsigned char *)slot + slots->bytes_offset, bytes, length_bytes);
    atomic_store_explicit(&slot->turn, turn + 1, memory_order_release);
}

static inline void
slot_get(const struct slots *slots, uint64_t turn, unsigned char *bytes, size_t length_bytes)
{
    struct slot *slot = slot_at(slots, turn);

    spin_until(&slot->turn, turn + 1);
    (void)memcpy(bytes, (unsigned char *)slot + slots->bytes_offset, length_bytes);
}

static void
message_lead(struct duo *duo, uint64_t turn)
{
    slot_put(&duo->slots_there, turn, duo->lead_bytes, duo->param);
    slot_get(&duo->slots_back, turn, duo->lead_bytes, duo->param);
}

static void
message_follow(struct duo *duo)
{
    for (uint64_t turn = 0; turn < duo->count; turn++) {
        slot_get(&duo->slots_there, turn, duo->follow_bytes, duo->param);
        slot_put(&duo->slots_back, turn, duo->follow_bytes, duo->param);
    }
}

static void
futex_wait_for(_Atomic(uint32_t) *word, uint32_t value)
{
    for (;;) {
        const uint32_t seen = atomic_load(word);

        if (seen == value) {
            return;
        }
        (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    }
}

static void
futex_post(_Atomic(uint32_t) *word, uint32_t value)
{
    atomic_store(word, value);
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void
futex_lead(struct duo *duo, uint64_t turn)
{
    futex_post(&duo->futex_there, (uint32_t)turn + 1);
    futex_wait_for(&duo->futex_back, (uint32_t)turn + 1);
}

static void
futex_follow(struct duo *duo)
{
    for (uint64_t turn = 0; turn < duo->count; turn++) {
        futex_wait_for(&duo->futex_there, (uint32_t)turn + 1);
        futex_post(&duo->futex_back, (uint32_t)turn + 1);
    }
}

static void
eventfd_post(int fd)
{
    const uint64_t one = 1;
    const ssize_t rc = write(fd, &one, sizeof(one));

    BASE_ASSERT(rc == (ssize_t)sizeof(one));
}

static void
eventfd_wait(int fd)
{
    uint64_t count = 0;
    const ssize_t rc = read(fd, &count, sizeof(count));

    BASE_ASSERT(rc == (ssize_t)sizeof(count));
}

static void
eventfd_lead(struct duo *duo, uint64_t turn)
{
    (void)turn;
    eventfd_post(duo->fd_there);
    eventfd_wait(duo->fd_back);
}

static void
eventfd_follow(struct duo *duo)
{
    for (uint64_t turn = 0; turn < duo->count; turn++) {
        eventfd_wait(duo->fd_there);
        eventfd_post(duo->fd_back);
    }
}

/* Puts one 64-byte message with its sequence word into a slot; the slot must be free. */
static inline void
ring_put(struct ring *ring, uint64_t index, const unsigned char *bytes)
{
    struct line *line = &ring->lines[index % RING_SLOTS];

    (void)memcpy(line->bytes, bytes, sizeof(line->bytes));
    atomic_store_explicit(&line->sequence, index + 1, memory_order_release);
}

/* Takes message @index out if it has come. */
static inline bool
ring_get(struct ring *ring, uint64_t index, unsigned char *bytes)
{
    struct line *line = &ring->lines[index % RING_SLOTS];

    if (atomic_load_explicit(&line->sequence, memory_order_acquire) != index + 1) {
        return false;
    }
    (void)memcpy(bytes, line->bytes, sizeof(line->bytes));
    return true;
}

/* The producer of LIMITS_RING: the shared index moves once for every `param` messages. */
static void
ring_produce(struct duo *duo)
{
    struct ring *ring = &duo->there;
    uint64_t consumed = 0;
    uint64_t batch_start_ns = duo->start_ns;

    for (uint64_t sent = 0; sent < duo->count;) {
        const uint64_t end = base_min_u64(sent + duo->param, duo->count);

        for (uint32_t spins = 0; end - consumed > RING_SLOTS; spins++) {
            consumed = atomic_load_explicit(&ring->consumed, memory_order_acquire);
            if (BASE_UNLIKELY(spins >= SPINS_BEFORE_YIELD)) {
                (void)sched_yield();
                spins = 0;
            }
        }
        for (uint64_t index = sent; index < end; index++) {
            (void)memcpy(&ring->lines[index % RING_SLOTS], duo->lead_bytes, sizeof(struct line));
        }
        atomic_store_explicit(&ring->published, end, memory_order_release);
        if (end / duo->batch != sent / duo->batch) {
            const uint64_t now_ns = stamp_ns();

            batch_record(duo->hist, now_ns - batch_start_ns, duo->batch);
            batch_start_ns = now_ns;
        }
        sent = end;
    }
    spin_until(&ring->consumed, duo->count);
}

static void
ring_consume(struct duo *duo)
{
    struct ring *ring = &duo->there;
    uint32_t spins = 0;

    for (uint64_t taken = 0; taken < duo->count;) {
        const uint64_t published = atomic_load_explicit(&ring->published, memory_order_acquire);

        if (published == taken) {
            if (BASE_UNLIKELY(++spins >= SPINS_BEFORE_YIELD)) {
                (void)sched_yield();
                spins = 0;
            }
            continue;
        }
        for (; taken < published; taken++) {
            (void)memcpy(duo->follow_bytes, &ring->lines[taken % RING_SLOTS], sizeof(struct line));
            __asm__ volatile("" : : "r"(duo->follow_bytes) : "memory");
        }
        atomic_store_explicit(&ring->consumed, taken, memory_order_release);
    }
}

/* The client of LIMITS_RPC keeps `param` requests out; the sequence word is in the message. */
static void
rpc_client(struct duo *duo)
{
    uint64_t sent = 0;
    uint64_t batch_start_ns = duo->start_ns;
    uint32_t spins = 0;

    for (uint64_t done = 0; done < duo->count;) {
        while (sent < duo->count && sent - done < duo->param) {
            ring_put(&duo->there, sent++, duo->lead_bytes);
        }
        if (!ring_get(&duo->back, done, duo->lead_bytes)) {
            if (BASE_UNLIKELY(++spins >= SPINS_BEFORE_YIELD)) {
                (void)sched_yield();
                spins = 0;
            }
            continue;
        }
        if (++done % duo->batch == 0) {
            const uint64_t now_ns = stamp_ns();

            batch_record(duo->hist, now_ns - batch_start_ns, duo->batch);
            batch_start_ns = now_ns;
        }
    }
}

static void
rpc_server(struct duo *duo)
{
    uint32_t spins = 0;

    for (uint64_t served = 0; served < duo->count;) {
        if (!ring_get(&duo->there, served, duo->follow_bytes)) {
            if (BASE_UNLIKELY(++spins >= SPINS_BEFORE_YIELD)) {
                (void)sched_yield();
                spins = 0;
            }
            continue;
        }
        ring_put(&duo->back, served++, duo->follow_bytes);
    }
}

/* ---- running a duo ---------------------------------------------------------------------- */

static void *
follow_main(void *arg)
{
    struct duo *duo = arg;
    cpu_set_t saved;

    (void)limits_pin(duo->follow_cpu, &saved);
    atomic_store(&duo->is_ready, 1);
    duo->follow(duo);
    return NULL;
}

/* Round trips, timed by batch. @operations_per_turn of them count as one each. */
static void
turns_run(struct duo *duo, void (*lead)(struct duo *duo, uint64_t turn),
          uint64_t operations_per_turn)
{
    for (uint64_t turn = 0; turn < duo->count;) {
        const uint64_t end = base_min_u64(turn + duo->batch, duo->count);
        const uint64_t batch_turns = end - turn;
        const uint64_t start_ns = stamp_ns();

        for (; turn < end; turn++) {
            lead(duo, turn);
        }
        batch_record(duo->hist, stamp_ns() - start_ns, batch_turns * operations_per_turn);
    }
}

/* One kind of two-sided work. Turns are round trips; the others time themselves. */
struct duo_work {
    void (*lead_turn)(struct duo *duo, uint64_t turn);
    void (*lead_all)(struct duo *duo);
    void (*follow)(struct duo *duo);
    uint64_t operations_per_turn;
    uint64_t batch_least;
};

static const struct duo_work works[LIMITS_KIND_COUNT] = {
    [LIMITS_LINE] = {line_lead, NULL, line_follow, 2, 16},
    [LIMITS_MESSAGE] = {message_lead, NULL, message_follow, 2, 1},
    [LIMITS_RING] = {NULL, ring_produce, ring_consume, 1, 512},
    [LIMITS_RPC] = {NULL, rpc_client, rpc_server, 1, 64},
    [LIMITS_FUTEX] = {futex_lead, NULL, futex_follow, 1, 1},
    [LIMITS_EVENTFD] = {eventfd_lead, NULL, eventfd_follow, 1, 1},
};

/* The lead's part, with the caller pinned and the follow running. */
static void
duo_lead(struct duo *duo, const struct duo_work *work)
{
    spin_until(&duo->is_ready, 1);
    duo->start_ns = stamp_ns();
    if (work->lead_turn != NULL) {
        turns_run(duo, work->lead_turn, work->operations_per_turn);
    } else {
        work->lead_all(duo);
    }
}

static int
duo_run(struct duo *duo, const struct duo_work *work, const uint32_t cpus[2],
        uint64_t *elapsed_ns_out)
{
    cpu_set_t saved;
    pthread_t thread;
    int rc = limits_pin(cpus[0], &saved);

    if (rc != 0) {
        return rc;
    }
    rc = -pthread_create(&thread, NULL, follow_main, duo);
    if (rc == 0) {
        duo_lead(duo, work);
        *elapsed_ns_out = stamp_ns() - duo->start_ns;
        (void)pthread_join(thread, NULL);
    }
    limits_unpin(&saved);
    return rc;
}

static void
duo_free(struct duo *duo, size_t buffer_bytes)
{
    if (duo->fd_there >= 0) {
        (void)close(duo->fd_there);
    }
    if (duo->fd_back >= 0) {
        (void)close(duo->fd_back);
    }
    memory_unmap(duo->lead_bytes, buffer_bytes);
    memory_unmap(duo->follow_bytes, buffer_bytes);
    memory_unmap(duo->slots_there.memory, duo->slots_there.memory_bytes);
    memory_unmap(duo->slots_back.memory, duo->slots_back.memory_bytes);
    free(duo->hist);
    free(duo);
}

/* As many slots for messages of @bytes as the comment at struct slots says; memory NULL if none. */
static void
slots_init(struct slots *slots, size_t bytes)
{
    const bool is_inline = bytes <= SLOT_INLINE_BYTES;
    uint64_t count = 1;

    if (bytes >= SLOTS_LONG_BYTES) {
        while (count * 2 * bytes <= SLOTS_SPAN_BYTES) {
            count *= 2;
        }
    }
    slots->bytes_offset = is_inline ? sizeof(uint64_t) : BASE_CACHE_LINE;
    slots->stride_bytes = BASE_CACHE_LINE + base_align_up(is_inline ? 0 : bytes, BASE_CACHE_LINE);
    slots->mask = count - 1;
    slots->memory_bytes = count * slots->stride_bytes;
    slots->memory = memory_map(NULL, slots->memory_bytes, true);
    for (uint64_t i = 0; i < count && slots->memory != NULL; i++) {
        atomic_store(&slot_at(slots, i)->turn, 0);
    }
}

/* Everything a duo may need; kinds that do not use a part do not pay for it while running. */
static struct duo *
duo_new(size_t buffer_bytes)
{
    struct duo *duo = aligned_alloc(BASE_CACHE_LINE, sizeof(*duo));

    if (duo == NULL) {
        return NULL;
    }
    (void)memset(duo, 0, sizeof(*duo));
    duo->hist = malloc(sizeof(*duo->hist));
    duo->fd_there = eventfd(0, EFD_CLOEXEC);
    duo->fd_back = eventfd(0, EFD_CLOEXEC);
    duo->lead_bytes = memory_map(NULL, buffer_bytes, true);
    duo->follow_bytes = memory_map(NULL, buffer_bytes, true);
    slots_init(&duo->slots_there, buffer_bytes);
    slots_init(&duo->slots_back, buffer_bytes);
    if (duo->hist == NULL || duo->fd_there < 0 || duo->fd_back < 0 || duo->lead_bytes == NULL ||
        duo->follow_bytes == NULL || duo->slots_there.memory == NULL ||
        duo->slots_back.memory == NULL) {
        duo_free(duo, buffer_bytes);
        return NULL;
    }
    base_hist_init(duo->hist);
    return duo;
}

static int
measure_duo(enum limits_kind kind, uint64_t param, uint64_t count, struct limits_result *result_out)
{
    const struct duo_work *work = &works[kind];
    const bool is_wake = kind == LIMITS_FUTEX || kind == LIMITS_EVENTFD;
    const size_t buffer_bytes = kind == LIMITS_MESSAGE ? param : BASE_CACHE_LINE;
    uint32_t cpus[2] = {0, 0};
    uint64_t elapsed_ns = 0;
    int rc = limits_cpus(cpus);

    if (rc != 0) {
        return rc;
    }
    if (is_wake && param != 0) {
        cpus[1] = cpus[0];
    }
    struct duo *duo = duo_new(buffer_bytes);

    if (duo == NULL) {
        return -ENOMEM;
    }
    duo->param = param;
    duo->count = base_max_u64(count / work->operations_per_turn, 1);
    duo->batch = batch_size(duo->count, work->batch_least);
    duo->follow = work->follow;
    duo->follow_cpu = cpus[1];
    rc = duo_run(duo, work, cpus, &elapsed_ns);
    if (rc == 0) {
        result_from(duo->hist, duo->count * work->operations_per_turn, elapsed_ns, result_out);
    }
    duo_free(duo, buffer_bytes);
    return rc;
}

/* ---- copies on one core ----------------------------------------------------------------- */

/* Two areas, cut into as many buffers as fit; warm ones have one buffer. */
struct copy {
    unsigned char *to;
    unsigned char *from;
    size_t bytes;
    size_t span_bytes;
    bool is_huge;
    pid_t child; /* whose memory `from` is read, or 0 */
};

static inline bool
copy_make(const struct copy *copy, size_t offset)
{
    if (copy->child == 0) {
        (void)memcpy(copy->to + offset, copy->from + offset, copy->bytes);
        __asm__ volatile("" : : "r"(copy->to) : "memory");
        return true;
    }
    const struct iovec local = {.iov_base = copy->to + offset, .iov_len = copy->bytes};
    const struct iovec remote = {.iov_base = copy->from + offset, .iov_len = copy->bytes};

    return process_vm_readv(copy->child, &local, 1, &remote, 1, 0) == (ssize_t)copy->bytes;
}

static int
copy_run(const struct copy *copy, uint64_t count, struct limits_result *result_out)
{
    /* A batch of about a microsecond, and never more than a buffer's worth of DRAM. */
    const uint64_t batch = batch_size(count, base_max_u64(16384 / copy->bytes, 1));
    struct base_hist *hist = malloc(sizeof(*hist));
    size_t offset = 0;
    bool is_good = true;

    if (hist == NULL) {
        return -ENOMEM;
    }
    base_hist_init(hist);
    const uint64_t start_ns = stamp_ns();
    uint64_t batch_start_ns = start_ns;

    for (uint64_t done = 0; done < count && is_good;) {
        const uint64_t end = base_min_u64(done + batch, count);
        const uint64_t batch_copies = end - done;

        for (; done < end; done++) {
            is_good = copy_make(copy, offset) && is_good;
            offset = offset + 2 * copy->bytes <= copy->span_bytes ? offset + copy->bytes : 0;
        }
        const uint64_t now_ns = stamp_ns();

        batch_record(hist, now_ns - batch_start_ns, batch_copies);
        batch_start_ns = now_ns;
    }
    result_from(hist, count, stamp_ns() - start_ns, result_out);
    free(hist);
    return is_good ? 0 : -EOPNOTSUPP;
}

/*
 * A child that does nothing but hold memory at copy->from, and dies with us. 0 on failure. Pages
 * that were shared by the fork would be split and copied by the first write, huge ones into small
 * ones: so the child maps its own, and does not get those we write to.
 */
static pid_t
holder_fork(const struct copy *copy)
{
    int ready[2];
    char byte = 0;

    if (pipe(ready) != 0) {
        return 0;
    }
    (void)madvise(copy->to, base_align_up(copy->span_bytes, HUGE_PAGE_BYTES), MADV_DONTFORK);
    const pid_t child = fork();

    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        byte = memory_map(copy->from, copy->span_bytes, copy->is_huge) != NULL;
        if (byte != 0 && write(ready[1], &byte, 1) == 1) {
            for (;;) {
                (void)pause();
            }
        }
        _exit(1);
    }
    (void)close(ready[1]);
    const bool is_ready = child > 0 && read(ready[0], &byte, 1) == 1;

    (void)close(ready[0]);
    if (child > 0 && !is_ready) {
        (void)kill(child, SIGKILL);
        (void)waitpid(child, NULL, 0);
    }
    return is_ready ? child : 0;
}

static void
holder_end(pid_t child)
{
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
}

static int
copy_pinned(enum limits_kind kind, struct copy *copy, uint64_t count,
            struct limits_result *result_out)
{
    uint32_t cpus[2] = {0, 0};
    cpu_set_t saved;

    (void)limits_cpus(cpus); /* one core is enough here, and its number is set then, too */
    if (kind == LIMITS_CMA) {
        copy->child = holder_fork(copy);
        if (copy->child == 0) {
            return -EAGAIN;
        }
    }
    int rc = limits_pin(cpus[0], &saved);

    if (rc == 0) {
        rc = copy_run(copy, count, result_out);
        limits_unpin(&saved);
    }
    if (copy->child != 0) {
        holder_end(copy->child);
    }
    return rc;
}

static int
measure_copy(enum limits_kind kind, uint64_t bytes, uint32_t memory, uint64_t count,
             struct limits_result *result_out)
{
    const bool is_huge = (memory & LIMITS_HUGE) != 0;
    const size_t span_bytes =
        (memory & LIMITS_COLD) != 0 ? base_max_u64(COLD_SPAN_BYTES, 2 * bytes) : bytes;
    struct copy copy = {
        .to = memory_map(NULL, span_bytes, is_huge),
        .from = memory_map(NULL, span_bytes, is_huge),
        .is_huge = is_huge,
        .bytes = bytes,
        .span_bytes = span_bytes,
    };
    int rc = -ENOMEM;

    if (copy.to != NULL && copy.from != NULL) {
        rc = copy_pinned(kind, &copy, count, result_out);
    }
    memory_unmap(copy.to, span_bytes);
    memory_unmap(copy.from, span_bytes);
    return rc;
}

/* ---- the public functions --------------------------------------------------------------- */

static bool
is_param_good(enum limits_kind kind, uint64_t param)
{
    switch (kind) {
    case LIMITS_MESSAGE:
    case LIMITS_MEMCPY:
    case LIMITS_CMA:
        return param > 0 && param <= LIMITS_BYTES_MAX;
    case LIMITS_RING:
        return param > 0 && param <= RING_SLOTS;
    case LIMITS_RPC:
        return param > 0 && param <= RPC_IN_FLIGHT_MAX;
    case LIMITS_LINE:
    case LIMITS_FUTEX:
    case LIMITS_EVENTFD:
        return true;
    }
    return false;
}

int
limits_measure(enum limits_kind kind, uint64_t param, uint32_t memory, uint64_t count,
               struct limits_result *result_out)
{
    if (count == 0 || !is_param_good(kind, param)) {
        return -EINVAL;
    }
    tsc_need();
    if (kind == LIMITS_MEMCPY || kind == LIMITS_CMA) {
        return measure_copy(kind, param, memory, count, result_out);
    }
    return measure_duo(kind, param, count, result_out);
}

/* Measures with more and more operations until that took the budget. */
static int
measure_budget(enum limits_kind kind, uint64_t param, uint32_t memory,
               struct limits_result *result_out)
{
    if (!is_param_good(kind, param)) {
        return -EINVAL;
    }
    const bool is_sized = kind == LIMITS_MESSAGE || kind == LIMITS_MEMCPY || kind == LIMITS_CMA;
    const uint64_t most = is_sized ? base_max_u64(FIRST_BYTES / param, 4) : FIRST_COUNT;

    for (uint64_t count = base_min_u64(FIRST_COUNT, most);; count *= 4) {
        const int rc = limits_measure(kind, param, memory, count, result_out);

        if (rc != 0 || result_out->elapsed_ns >= BUDGET_NS || count >= COUNT_MAX) {
            return rc;
        }
    }
}

int
limits_line_ns(double *ns_out)
{
    struct limits_result result;
    const int rc = measure_budget(LIMITS_LINE, 0, 0, &result);

    if (rc == 0) {
        *ns_out = result.p50_ns;
    }
    return rc;
}

int
limits_one_way_ns(size_t bytes, double *ns_out)
{
    struct limits_result result;
    const int rc = measure_budget(LIMITS_MESSAGE, bytes, 0, &result);

    if (rc == 0) {
        *ns_out = result.p50_ns;
    }
    return rc;
}

int
limits_ring_rate(uint32_t batch, double *per_second_out)
{
    struct limits_result result;
    const int rc = measure_budget(LIMITS_RING, batch, 0, &result);

    if (rc == 0) {
        *per_second_out = 1e9 / result.p50_ns;
    }
    return rc;
}

int
limits_rpc_rate(uint32_t in_flight, double *per_second_out)
{
    struct limits_result result;
    const int rc = measure_budget(LIMITS_RPC, in_flight, 0, &result);

    if (rc == 0) {
        *per_second_out = 1e9 / result.p50_ns;
    }
    return rc;
}

int
limits_memcpy_bps(size_t bytes, uint32_t memory, double *bps_out)
{
    struct limits_result result;
    const int rc = measure_budget(LIMITS_MEMCPY, bytes, memory, &result);

    if (rc == 0) {
        *bps_out = 1e9 * (double)bytes / result.p50_ns;
    }
    return rc;
}

int
limits_cma_bps(size_t bytes, uint32_t memory, double *bps_out)
{
    struct limits_result result;
    const int rc = measure_budget(LIMITS_CMA, bytes, memory, &result);

    if (rc == 0) {
        *bps_out = 1e9 * (double)bytes / result.p50_ns;
    }
    return rc;
}

int
limits_wake_ns(enum limits_kind kind, bool is_same_core, double *ns_out)
{
    if (kind != LIMITS_FUTEX && kind != LIMITS_EVENTFD) {
        return -EINVAL;
    }
    struct limits_result result;
    const int rc = measure_budget(kind, is_same_core ? 1 : 0, 0, &result);

    if (rc == 0) {
        *ns_out = result.p50_ns;
    }
    return rc;
}
