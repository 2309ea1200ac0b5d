/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The command line of a benchmark. Names and meanings are Google Benchmark's; a flag that is not
 * known is an error, because a typing error must not become a measurement of something else.
 */
#include "microbench/bench_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIN_TIME_DEFAULT_S 0.5
#define REPETITIONS_MAX    100000u

static const char usage[] =
    "  --benchmark_filter=REGEX           run what matches (extended regex; -REGEX: what does "
    "not)\n"
    "  --benchmark_list_tests             print the names and exit\n"
    "  --benchmark_min_time=SECONDS|Nx    least real time of a run, or its iterations [0.5]\n"
    "  --benchmark_repetitions=N          runs of each benchmark [1]\n"
    "  --benchmark_report_aggregates_only mean, median, stddev and cv without the runs\n"
    "  --benchmark_format=console|json|csv      of standard output [console]\n"
    "  --benchmark_out=FILE               write results there too\n"
    "  --benchmark_out_format=json|console|csv  of FILE [json]\n"
    "  --benchmark_counters_tabular       counters in columns\n"
    "  --benchmark_context=KEY=VALUE[,..] more lines for the context\n"
    "  --smoke                            a few iterations of each: does it work?\n"
    "  --help                             this text\n"
    "Times are nanoseconds per iteration. cpu_time is the whole process's.\n";

static bool
parse_bool(const char *value, bool *flag_out)
{
    if (value == NULL || strcmp(value, "true") == 0 || strcmp(value, "1") == 0) {
        *flag_out = true;
    } else if (strcmp(value, "false") == 0 || strcmp(value, "0") == 0) {
        *flag_out = false;
    } else {
        return false;
    }
    return true;
}

static bool
parse_format(const char *value, enum bench_format *format_out)
{
    static const char *const names[] = {
        [BENCH_CONSOLE] = "console", [BENCH_JSON] = "json", [BENCH_CSV] = "csv"};

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        if (strcmp(value, names[i]) == 0) {
            *format_out = (enum bench_format)i;
            return true;
        }
    }
    return false;
}

static bool
parse_min_time(const char *value, struct bench_flags *flags)
{
    char *end = NULL;

    errno = 0;
    if (value[0] != '\0' && value[strlen(value) - 1] == 'x') {
        const unsigned long long iterations = strtoull(value, &end, 10);

        flags->iterations = iterations;
        return errno == 0 && iterations > 0 && value[0] != '-' && strcmp(end, "x") == 0;
    }
    flags->min_time_s = strtod(value, &end);
    return errno == 0 && end != value && isfinite(flags->min_time_s) && flags->min_time_s >= 0 &&
           (*end == '\0' || strcmp(end, "s") == 0);
}

static bool
parse_repetitions(const char *value, struct bench_flags *flags)
{
    char *end = NULL;
    const long repetitions = strtol(value, &end, 10);

    if (end == value || *end != '\0' || repetitions < 1 || repetitions > REPETITIONS_MAX) {
        return false;
    }
    flags->repetitions = (uint32_t)repetitions;
    return true;
}

static bool
parse_filter(const char *value, struct bench_flags *flags)
{
    if (flags->has_filter) {
        regfree(&flags->filter);
        flags->has_filter = false;
    }
    flags->is_filter_negative = value[0] == '-';
    if (flags->is_filter_negative) {
        value++;
    }
    if (value[0] == '\0' || strcmp(value, "all") == 0) {
        value = ".";
    }
    flags->has_filter = regcomp(&flags->filter, value, REG_EXTENDED | REG_NOSUB) == 0;
    return flags->has_filter;
}

/* Cuts @value, which is argv's and stays, into pairs. */
static bool
parse_context(char *value, struct bench_flags *flags)
{
    char *rest = NULL;

    for (char *pair = strtok_r(value, ",", &rest); pair != NULL;
         pair = strtok_r(NULL, ",", &rest)) {
        char *equals = strchr(pair, '=');

        if (equals == NULL || equals == pair || flags->context_count == BENCH_CONTEXT_MAX) {
            return false;
        }
        *equals = '\0';
        if (bench_context_is_reserved(pair)) {
            return false;
        }
        for (uint32_t i = 0; i < flags->context_count; i++) {
            if (strcmp(flags->context[i].key, pair) == 0) {
                return false;
            }
        }
        flags->context[flags->context_count++] =
            (struct bench_context_pair){.key = pair, .value = equals + 1};
    }
    return true;
}

static bool
parse_out(const char *value, struct bench_flags *flags)
{
    flags->out_path = value;
    return value[0] != '\0';
}

/* If @arg is `--@name` or `--@name=...`, returns true and where its value starts, or NULL. */
static bool
flag_is(char *arg, const char *name, char **value_out)
{
    const size_t length = strlen(name);

    if (strncmp(arg, "--", 2) != 0 || strncmp(arg + 2, name, length) != 0 ||
        (arg[2 + length] != '\0' && arg[2 + length] != '=')) {
        return false;
    }
    *value_out = arg[2 + length] == '=' ? arg + 2 + length + 1 : NULL;
    return true;
}

enum flag_result { FLAG_OK, FLAG_UNKNOWN, FLAG_BAD };

static enum flag_result
flag_switch_parse(struct bench_flags *flags, char *arg)
{
    const struct {
        const char *name;
        bool *flag;
    } switches[] = {
        {"benchmark_list_tests", &flags->list_tests},
        {"benchmark_report_aggregates_only", &flags->aggregates_only},
        {"benchmark_counters_tabular", &flags->is_tabular},
        {"smoke", &flags->is_smoke},
    };
    char *value = NULL;

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(switches); i++) {
        if (flag_is(arg, switches[i].name, &value)) {
            return parse_bool(value, switches[i].flag) ? FLAG_OK : FLAG_BAD;
        }
    }
    return FLAG_UNKNOWN;
}

static enum flag_result
flag_value_parse(struct bench_flags *flags, char *arg)
{
    char *value = NULL;
    bool is_good = false;

    if (flag_is(arg, "benchmark_filter", &value)) {
        is_good = value != NULL && parse_filter(value, flags);
    } else if (flag_is(arg, "benchmark_min_time", &value)) {
        is_good = value != NULL && parse_min_time(value, flags);
    } else if (flag_is(arg, "benchmark_repetitions", &value)) {
        is_good = value != NULL && parse_repetitions(value, flags);
    } else if (flag_is(arg, "benchmark_format", &value)) {
        is_good = value != NULL && parse_format(value, &flags->format);
    } else if (flag_is(arg, "benchmark_out_format", &value)) {
        is_good = value != NULL && parse_format(value, &flags->out_format);
    } else if (flag_is(arg, "benchmark_out", &value)) {
        is_good = value != NULL && parse_out(value, flags);
    } else if (flag_is(arg, "benchmark_context", &value)) {
        is_good = value != NULL && parse_context(value, flags);
    } else {
        return FLAG_UNKNOWN;
    }
    return is_good ? FLAG_OK : FLAG_BAD;
}

enum bench_flags_result
bench_flags_parse(struct bench_flags *flags, int argc, char **argv)
{
    *flags = (struct bench_flags){
        .min_time_s = MIN_TIME_DEFAULT_S,
        .repetitions = 1,
        .format = BENCH_CONSOLE,
        .out_format = BENCH_JSON,
    };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            (void)printf("%s [flags]\n%s", argv[0], usage);
            return BENCH_FLAGS_HELP;
        }
        enum flag_result result = flag_switch_parse(flags, argv[i]);

        if (result == FLAG_UNKNOWN) {
            result = flag_value_parse(flags, argv[i]);
        }
        if (result != FLAG_OK) {
            (void)fprintf(stderr, "%s: %s: %s\nflags:\n%s", argv[0], argv[i],
                          result == FLAG_BAD ? "the value is missing or wrong" : "unknown flag",
                          usage);
            return BENCH_FLAGS_BAD;
        }
    }
    return BENCH_FLAGS_RUN;
}

void
bench_flags_fini(struct bench_flags *flags)
{
    if (flags->has_filter) {
        regfree(&flags->filter);
    }
}

bool
bench_flags_match(const struct bench_flags *flags, const char *name)
{
    if (!flags->has_filter) {
        return true;
    }
    return (regexec(&flags->filter, name, 0, NULL, 0) == 0) != flags->is_filter_negative;
}
