/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A line on the terminal for what takes over two seconds, and "is the time up?".
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what; /* "write 1/3" */
    uint64_t total;   /* steps */
    uint64_t start_ns;
    uint64_t next_ns; /* when to print again; UINT64_MAX: never */
    bool is_shown;
};

/* Begins. With @is_wanted false, or without a terminal on stderr, nothing is ever printed. */
void progress_begin(struct progress *progress, const char *what, uint64_t total, bool is_wanted,
                    uint64_t now_ns);

/* @done of the total at @now_ns. Cheap until something is due. */
void progress_step(struct progress *progress, uint64_t done, uint64_t now_ns);

/* Wipes the line. */
void progress_end(struct progress *progress);
