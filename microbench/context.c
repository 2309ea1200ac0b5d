/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The context of a result: which machine, which build, and how far its cores were apart.
 */
#include "microbench/bench_internal.h"

#include "base/clock.h"
#include <causeway_git_id.h>

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define CPU_DIR "/sys/devices/system/cpu/cpu0"
/* A cache line takes about 25 ns between near cores and above 100 between far ones. */
#define NEAR_NS   60.0
#define CACHE_MAX 16

/* A sanitizer or no optimisation makes a result worthless for comparison, and it says so. */
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#    define BUILD_TYPE "release"
#else
#    define BUILD_TYPE "debug"
#endif

bool
bench_context_is_reserved(const char *key)
{
    static const char *const keys[] = {
        "date",        "host_name",       "executable",          "num_cpus",
        "mhz_per_cpu", "caches",          "cpu_scaling_enabled", "load_avg",
        "kernel",      "library_version", "library_build_type",  "json_schema_version",
        "git_id",      "cpu_model",       "line_ns_before",      "line_ns_after",
        "cores",
    };

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(keys); i++) {
        if (strcmp(key, keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

void
bench_json_string(FILE *out, const char *text)
{
    (void)fputc('"', out);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            (void)fprintf(out, "\\%c", *at);
        } else if (*at < 0x20 || *at >= 0x7f) {
            (void)fprintf(out, "\\u%04x", *at); /* Latin-1 at worst: always valid JSON */
        } else {
            (void)fputc(*at, out);
        }
    }
    (void)fputc('"', out);
}

/* The first line of a small file, without its newline; "" if there is none. */
static const char *
file_line(const char *path, char *text, size_t text_bytes)
{
    FILE *file = fopen(path, "re");

    text[0] = '\0';
    if (file == NULL) {
        return text;
    }
    if (fgets(text, (int)text_bytes, file) == NULL) {
        text[0] = '\0';
    }
    text[strcspn(text, "\n")] = '\0';
    (void)fclose(file);
    return text;
}

/* The value of @key in /proc/cpuinfo, for the first processor. */
static const char *
cpuinfo_value(const char *key, char *text, size_t text_bytes)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[512];

    text[0] = '\0';
    if (file == NULL) {
        return text;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *colon = strchr(line, ':');

        if (strncmp(line, key, strlen(key)) == 0 && colon != NULL) {
            (void)snprintf(text, text_bytes, "%s", colon + strspn(colon, ": \t"));
            text[strcspn(text, "\n")] = '\0';
            break;
        }
    }
    (void)fclose(file);
    return text;
}

/* Counts the bits of a mask written as "f,ffffffff". */
static uint32_t
mask_weight(const char *mask)
{
    uint32_t weight = 0;

    for (; *mask != '\0'; mask++) {
        const char digit[2] = {*mask, '\0'};

        weight += (uint32_t)__builtin_popcountl(strtoul(digit, NULL, 16));
    }
    return weight;
}

static void
caches_json(FILE *out)
{
    char path[128];
    char type[32];
    char text[256];

    (void)fprintf(out, "    \"caches\": [");
    for (uint32_t i = 0; i < CACHE_MAX; i++) {
        (void)snprintf(path, sizeof(path), CPU_DIR "/cache/index%u/type", i);
        if (file_line(path, type, sizeof(type))[0] == '\0') {
            break;
        }
        (void)snprintf(path, sizeof(path), CPU_DIR "/cache/index%u/level", i);
        const unsigned long level = strtoul(file_line(path, text, sizeof(text)), NULL, 10);

        (void)snprintf(path, sizeof(path), CPU_DIR "/cache/index%u/size", i);
        char *unit = NULL;
        unsigned long size = strtoul(file_line(path, text, sizeof(text)), &unit, 10);

        size *= *unit == 'K' ? 1024u : *unit == 'M' ? 1048576u : 1u;
        (void)snprintf(path, sizeof(path), CPU_DIR "/cache/index%u/shared_cpu_map", i);
        const uint32_t sharing = mask_weight(file_line(path, text, sizeof(text)));

        (void)fprintf(out, "%s\n      {\"type\": ", i == 0 ? "" : ",");
        bench_json_string(out, type);
        (void)fprintf(out, ", \"level\": %lu, \"size\": %lu, \"num_sharing\": %u}", level, size,
                      sharing);
    }
    (void)fprintf(out, "\n    ],\n");
}

static void
pair_json(FILE *out, const char *key, const char *value)
{
    (void)fprintf(out, "    ");
    bench_json_string(out, key);
    (void)fprintf(out, ": ");
    bench_json_string(out, value);
    (void)fprintf(out, ",\n");
}

/* RFC 3339 with the local offset, as in 2026-01-31T09:30:00+01:00. */
static const char *
date_text(char *text, size_t text_bytes)
{
    const time_t now = (time_t)(base_clock_wall_ns() / 1000000000u);
    struct tm local;
    char zone[8] = "";

    (void)localtime_r(&now, &local);
    const size_t length = strftime(text, text_bytes, "%Y-%m-%dT%H:%M:%S", &local);

    (void)strftime(zone, sizeof(zone), "%z", &local);
    (void)snprintf(text + length, text_bytes - length, "%.3s:%.2s", zone, zone + 3);
    return text;
}

static const char *
cores_text(const struct bench_lines *lines)
{
    if (lines->before_ns <= 0 || lines->after_ns <= 0) {
        return "unknown";
    }
    if ((lines->before_ns < NEAR_NS) != (lines->after_ns < NEAR_NS)) {
        return "mixed";
    }
    return lines->before_ns < NEAR_NS ? "near" : "far";
}

void
bench_context_json(FILE *out, const struct bench_flags *flags, const char *executable,
                   const struct bench_lines *lines)
{
    char text[256];
    struct utsname names;
    double load[3] = {0, 0, 0};

    if (uname(&names) != 0) {
        names = (struct utsname){.nodename = "unknown", .release = "unknown"};
    }
    pair_json(out, "date", date_text(text, sizeof(text)));
    pair_json(out, "host_name", names.nodename);
    pair_json(out, "executable", executable);
    (void)fprintf(out, "    \"num_cpus\": %ld,\n", sysconf(_SC_NPROCESSORS_ONLN));
    (void)fprintf(out, "    \"mhz_per_cpu\": %ld,\n",
                  strtol(cpuinfo_value("cpu MHz", text, sizeof(text)), NULL, 10));
    (void)file_line(CPU_DIR "/cpufreq/scaling_governor", text, sizeof(text));
    (void)fprintf(out, "    \"cpu_scaling_enabled\": %s,\n",
                  text[0] != '\0' && strcmp(text, "performance") != 0 ? "true" : "false");
    caches_json(out);
    (void)getloadavg(load, 3);
    (void)fprintf(out, "    \"load_avg\": [%.2f, %.2f, %.2f],\n", load[0], load[1], load[2]);
    pair_json(out, "library_version", BENCH_LIBRARY_VERSION);
    pair_json(out, "library_build_type", BUILD_TYPE);
    pair_json(out, "cpu_model", cpuinfo_value("model name", text, sizeof(text)));
    pair_json(out, "kernel", names.release);
    pair_json(out, "git_id", CAUSEWAY_GIT_ID);
    pair_json(out, "cores", cores_text(lines));
    if (lines->before_ns > 0 && lines->after_ns > 0) {
        (void)fprintf(out, "    \"line_ns_before\": %.1f,\n    \"line_ns_after\": %.1f,\n",
                      lines->before_ns, lines->after_ns);
    }
    for (uint32_t i = 0; i < flags->context_count; i++) {
        pair_json(out, flags->context[i].key, flags->context[i].value);
    }
    (void)fprintf(out, "    \"json_schema_version\": 1\n");
}

void
bench_context_console(FILE *out, const struct bench_flags *flags, const char *executable,
                      const struct bench_lines *lines)
{
    char text[256];
    double load[3] = {0, 0, 0};

    (void)fprintf(out, "%s\n", date_text(text, sizeof(text)));
    (void)fprintf(out, "Running %s at %s\n", executable, CAUSEWAY_GIT_ID);
    (void)fprintf(out, "Run on %ld x %s", sysconf(_SC_NPROCESSORS_ONLN),
                  cpuinfo_value("model name", text, sizeof(text)));
    if (getloadavg(load, 3) == 3) {
        (void)fprintf(out, ", load average %.2f, %.2f, %.2f", load[0], load[1], load[2]);
    }
    (void)fprintf(out, "\n");
    if (lines->before_ns > 0) {
        (void)fprintf(out, "A cache line moves between the first two cores in %.0f ns (%s)\n",
                      lines->before_ns, lines->before_ns < NEAR_NS ? "near" : "far");
    }
    for (uint32_t i = 0; i < flags->context_count; i++) {
        (void)fprintf(out, "%s: %s\n", flags->context[i].key, flags->context[i].value);
    }
    if (strcmp(BUILD_TYPE, "release") != 0) {
        (void)fprintf(out, "***WARNING*** this is a debug or sanitizer build; timings are of no "
                           "use\n");
    }
}
