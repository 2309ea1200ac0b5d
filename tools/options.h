/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options of the subcommands: one table each, read from the command line and from a YAML file.
 *
 * A name of the table is `--name VALUE` on the command line and `name: VALUE` in the file. The
 * command line wins. Whatever is unknown, given twice, out of range or has something behind it is
 * refused with one line that names the option, the value and where it stood, before anything is
 * started.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_kind {
    OPTION_FLAG,    /* bool: no value on the command line, true or false in the file */
    OPTION_COUNT,   /* uint64_t */
    OPTION_SIZE,    /* uint64_t bytes: 4k, 1m, 2g, powers of 1024 */
    OPTION_SECONDS, /* uint64_t ns from seconds such as 0.5 */
    OPTION_TEXT,    /* const char * */
    OPTION_LIST, /* struct option_list: may be given more than once; a YAML sequence in the file */
};

#define OPTION_LIST_MAX 64

struct option_list {
    const char *items[OPTION_LIST_MAX];
    uint32_t count;
};

struct option_def {
    const char *name;
    char letter; /* short form, 0: none */
    enum option_kind kind;
    void *value;          /* holds the default; overwritten */
    uint64_t min, max;    /* COUNT, SIZE, SECONDS (ns) */
    const char *choices;  /* TEXT: "mem|null", NULL: any */
    const char *argument; /* shown in the help: "N" */
    const char *help;
};

struct option_set {
    const char *command; /* "causeway run" */
    const char *usage;   /* "[options] -- CMD ..." */
    const char *summary; /* what it does, a sentence or two */
    const char *example; /* one that runs */
    const struct option_def *options;
    size_t count;
    bool has_late_options; /* options may follow operands: these are no command with its own */
    /* Says on stderr what is wrong with the values, as the table can't; 0: nothing. NULL: none. */
    int (*check)(void *arg);
    void *check_arg;
};

/*
 * Reads the command line: every set has --help, --dry-run (print the resolved options as YAML,
 * which can be fed back, and stop) and, when it has a "config" option, the file that this names.
 *
 * Returns the index in @argv of the first operand. Does not return after --help and --dry-run (exit
 * 0) or on an error (exit 2), be it set->check's. Strings stay valid until the process ends.
 */
int options_read(const struct option_set *set, int argc, char **argv);

/*
 * Reads a number with a unit: "4k", "1m", "2g", "1t" are powers of 1024; nothing may follow.
 * Returns 0, or -EINVAL or -ERANGE.
 */
int options_size_parse(const char *text, uint64_t *value_out);

/*
 * Reads a decimal number. Returns 0, or -EINVAL or -ERANGE.
 */
int options_count_parse(const char *text, uint64_t *value_out);

/*
 * How many letters must change to make @a of @b; enough of a measure to suggest a name. @b has less
 * than 64, or the answer is 64.
 */
size_t options_distance(const char *a, const char *b);
