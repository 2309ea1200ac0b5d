/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Progress on a terminal. See workload_progress.h.
 */
#include "tools/workload_progress.h"

#include <stdio.h>
#include <unistd.h>

#define FIRST_NS UINT64_C(2000000000)
#define EVERY_NS UINT64_C(500000000)

void
progress_begin(struct progress *progress, const char *what, uint64_t total, bool is_wanted,
               uint64_t now_ns)
{
    *progress = (struct progress){.what = what, .total = total, .start_ns = now_ns};
    progress->next_ns = is_wanted && isatty(STDERR_FILENO) ? now_ns + FIRST_NS : UINT64_MAX;
}

void
progress_step(struct progress *progress, uint64_t done, uint64_t now_ns)
{
    if (now_ns < progress->next_ns) {
        return;
    }
    progress->next_ns = now_ns + EVERY_NS;
    progress->is_shown = true;
    (void)fprintf(stderr, "\r%s: %.1f s, %.0f %% of rank 0's part\033[K", progress->what,
                  (double)(now_ns - progress->start_ns) / 1e9,
                  progress->total > 0 ? 100.0 * (double)done / (double)progress->total : 0.0);
}

void
progress_end(struct progress *progress)
{
    if (progress->is_shown) {
        (void)fputs("\r\033[K", stderr);
    }
}
