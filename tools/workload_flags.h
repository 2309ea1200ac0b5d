/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flags in the manner of IOR and mdtest: one table per workload.
 *
 * Short flags may be combined and their values attached: `-wre`, `-b64m`, `-b 64m`, `-b=64m`,
 * `-web 64m`. Long ones are `--json FILE` or `--json=FILE`. Whatever is unknown, known but not
 * implemented, given twice, out of range or has something behind it is refused with one line that
 * names the flag and the value, before anything is started.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum flag_kind {
    FLAG_SET,     /* bool */
    FLAG_COUNTED, /* uint64_t: how often it was given */
    FLAG_NUMBER,  /* uint64_t */
    FLAG_SIZE,    /* uint64_t bytes: 4k, 1m, 2g, powers of 1024 */
    FLAG_TEXT,    /* const char * */
    FLAG_REFUSED, /* the original has it, this does not; help says what it is there */
};

struct flag_def {
    char letter; /* 0: only the long form */
    enum flag_kind kind;
    const char *name;     /* long form without "--", or NULL */
    void *value;          /* holds the default; overwritten */
    uint64_t min, max;    /* NUMBER, SIZE */
    const char *choices;  /* TEXT: "POSIX|CAUSEWAY", NULL: any but the empty text */
    const char *argument; /* shown in the help: "N" */
    const char *help;
};

struct flag_set {
    const char *command; /* "causeway ior" */
    const char *summary; /* what it does, a sentence or two */
    const char *example; /* one that runs */
    const struct flag_def *flags;
    size_t count;
    bool is_silent; /* another rank says what there is to say */
};

#define FLAGS_MAX 96

enum flags_result {
    FLAGS_RUN,  /* go on */
    FLAGS_STOP, /* --help: all is said, exit 0 */
    FLAGS_BAD,  /* exit 2 */
};

/*
 * Reads @argv from index 1 on into the table's values; every set has --help and --dry-run besides,
 * and the latter is for the caller to act on when it has checked the values. Strings stay the
 * caller's. Prints what is wrong to stderr and the help to stdout.
 */
enum flags_result flags_read(const struct flag_set *set, int argc, char **argv, bool *dry_run_out);

/* Prints the command line that gives the resolved values, which can be fed back. */
void flags_print(const struct flag_set *set, FILE *out);
