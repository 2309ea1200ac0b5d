/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What happened on a host's servers: per operation and per stage, as a table and as JSON.
 */
#pragma once

#include "tools/host.h"

#include <jansson.h>
#include <stdio.h>

struct report_run {
    const char *command; /* for the head line */
    const char *store;
    uint32_t ost_count;
    uint64_t elapsed_ns; /* that the command ran */
    int exit_status;
};

/* Prints the tables to @out. The host is stopped. */
void report_print(const struct host *host, const struct report_run *run, FILE *out);

/* The same as JSON; a new reference. */
json_t *report_json(const struct host *host, const struct report_run *run);
