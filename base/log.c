/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Formatting of log lines, the writer to stderr and the names of errors.
 */
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void
base_log_printf(const struct base_log *log, int level, const char *subsystem, const char *format,
                ...)
{
    if (log == NULL || log->write == NULL || level > log->level_max) {
        return;
    }
    static const char cut[] = "...";
    const int saved_errno = errno;
    char text[BASE_LOG_TEXT_BYTES];
    va_list args;

    va_start(args, format);
    const int length = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (length < 0) {
        (void)snprintf(text, sizeof(text), "unprintable: %s", format);
    } else if ((size_t)length >= sizeof(text)) {
        (void)memcpy(text + sizeof(text) - sizeof(cut), cut, sizeof(cut));
    }
    log->write(log->arg, level, subsystem, text);
    errno = saved_errno;
}

static void
stderr_write(void *arg, int level, const char *subsystem, const char *text)
{
    (void)arg;
    /* One call, so that lines of several processes do not mix. */
    (void)fprintf(stderr, "%-5s %s: %s\n", base_log_level_name(level), subsystem, text);
}

struct base_log
base_log_stderr(int level_max)
{
    return (struct base_log){.write = stderr_write, .arg = NULL, .level_max = level_max};
}

const char *
base_log_level_name(int level)
{
    static const char *const names[] = {
        [BASE_LOG_ERROR] = "error",
        [BASE_LOG_WARN] = "warn",
        [BASE_LOG_INFO] = "info",
        [BASE_LOG_DEBUG] = "debug",
    };

    return level >= BASE_LOG_ERROR && level <= BASE_LOG_DEBUG ? names[level] : "?";
}

const char *
base_errno_name(int rc)
{
    if (rc == 0) {
        return "OK";
    }
    const char *name = rc == INT_MIN ? NULL : strerrorname_np(rc < 0 ? -rc : rc);

    return name != NULL ? name : "EUNKNOWN";
}
