/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Texts both workloads print: times of day, the machine, the command line; and what their JSON
 * begins with.
 */
#pragma once

#include "tools/workload_io.h"
#include "tools/workload_world.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

enum text_form {
    TEXT_IOR,    /* "Mon Nov 30 15:21:00 2026" */
    TEXT_MDTEST, /* "11/30/2026 15:21:00" */
    TEXT_ISO,    /* "2026-11-30T15:21:00+0000" */
};

/* Nanoseconds since 1970 in local time. Returns @text. */
const char *text_time(uint64_t wall_ns, enum text_form form, char text[64]);

/* Prints the arguments, separated by a space each. */
void text_command(int argc, char **argv, FILE *out);

/* Prints how full the file system is that @path lies on; nothing if it can't be had. */
void text_space(const struct io *io, const char *path, FILE *out);

/*
 * {"tool", "version", "command_line", "machine", "started", "tasks", "nodes", "tasks_per_node"};
 * a new reference.
 */
json_t *text_json_head(const struct world *world, const char *tool, int argc, char **argv,
                       uint64_t start_wall_ns);

/*
 * Writes @json, which it takes over, to the file @path. Returns 0 or a negative errno, having said
 * what went wrong.
 */
int text_json_write(json_t *json, const char *tool, const char *path);
