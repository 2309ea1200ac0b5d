/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Set-up, end and printing of the trace; adding is inline in trace.h.
 */
#include "base/trace.h"

#include "base/assert.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

int
base_trace_init(struct base_trace *trace, uint32_t record_count)
{
    if (!base_is_pow2(record_count)) {
        return -EINVAL;
    }
    const size_t bytes = (size_t)record_count * sizeof(trace->records[0]);

    *trace = (struct base_trace){
        .records = aligned_alloc(BASE_CACHE_LINE, base_align_up(bytes, BASE_CACHE_LINE)),
        .mask = record_count - 1,
    };
    if (trace->records == NULL) {
        return -ENOMEM;
    }
    (void)memset(trace->records, 0, bytes); /* touch the pages now */
    return 0;
}

void
base_trace_fini(struct base_trace *trace)
{
    free(trace->records);
    trace->records = NULL;
}

void
base_trace_dump(const struct base_trace *trace, FILE *out, uint32_t count, base_trace_name_fn name)
{
    const uint64_t held = base_min_u64(trace->added_count, trace->mask + 1);
    const uint64_t wanted = base_min_u64(count, held);

    for (uint64_t i = trace->added_count - wanted; i < trace->added_count; i++) {
        const struct base_trace_record *record = &trace->records[i & trace->mask];
        const char *text = name != NULL ? name(record->event) : NULL;

        (void)fprintf(out, "%14" PRIu64 " ns ", record->now_ns);
        if (text != NULL) {
            (void)fprintf(out, "%-24s", text);
        } else {
            (void)fprintf(out, "event %-18" PRIu32, record->event);
        }
        (void)fprintf(out, " id %" PRIu64 " a %" PRIu64 " b %" PRIu32 "\n", record->id, record->a,
                      record->b);
    }
}
