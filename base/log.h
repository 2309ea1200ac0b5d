/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The log: for people, and for rare things.
 *
 * A line is a subsystem, an object and what happened to it, in lower case, with units:
 * `peer 10.0.0.2@tcp: closed: EPROTO, returned 9 of 8 credits`. Nothing at info or above is said
 * per message; the function that decides that something is an error says it, once. There is no
 * global log: each context carries a pointer to its own, and NULL is silent.
 */
#pragma once

#include <stdint.h>

enum base_log_level {
    BASE_LOG_ERROR, /* something failed that the user asked for */
    BASE_LOG_WARN,  /* it works, but not as it should */
    BASE_LOG_INFO,  /* a peer came or went, a target recovered */
    BASE_LOG_DEBUG, /* for us */
};

struct base_log {
    /* Takes one line without a newline. @text is valid during the call. */
    void (*write)(void *arg, int level, const char *subsystem, const char *text);
    void *arg;
    int level_max; /* lines above this level are dropped before they are formatted */
};

#define BASE_LOG_TEXT_BYTES 512 /* longest line, with its terminator; the rest becomes "..." */

/* Formats a line and hands it to @log, which may be NULL. Does not allocate; keeps errno. */
void base_log_printf(const struct base_log *log, int level, const char *subsystem,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

/* A log that writes `level subsystem: text` lines to stderr up to @level_max. For tools. */
struct base_log base_log_stderr(int level_max);

/* "error", "warn", "info" or "debug"; "?" for anything else. */
const char *base_log_level_name(int level);

/*
 * The name of an errno, given as it is or negated, as our functions return it: "ETIMEDOUT" for
 * -ETIMEDOUT. "OK" for 0, "EUNKNOWN" for what is none. The string is constant.
 */
const char *base_errno_name(int rc);
