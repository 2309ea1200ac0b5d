/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Results as console rows, JSON and CSV, in Google Benchmark's forms.
 *
 * Every JSON record has real_time, cpu_time and time_unit, those of failed and skipped runs too
 * (as 0): readers of the format rely on it. Every number is finite before it comes here.
 */
#include "microbench/bench_internal.h"

#include <inttypes.h>
#include <string.h>

const char *
bench_record_name(const struct bench_record *record, char *text, size_t text_bytes)
{
    (void)snprintf(text, text_bytes, "%s%s%s", record->run_name,
                   record->aggregate != NULL ? "_" : "",
                   record->aggregate != NULL ? record->aggregate : "");
    return text;
}

static bool
record_is_ratio(const struct bench_record *record)
{
    return record->aggregate != NULL && strcmp(record->aggregate, "cv") == 0;
}

/* ---- JSON ------------------------------------------------------------------------------- */

static void
record_json(FILE *out, const struct bench_record *record)
{
    char name[BENCH_NAME_BYTES + 16];

    (void)fprintf(out, "    {\n      \"name\": ");
    bench_json_string(out, bench_record_name(record, name, sizeof(name)));
    (void)fprintf(out, ",\n      \"family_index\": %u,\n      \"per_family_instance_index\": %u,\n",
                  record->family_index, record->instance_index);
    (void)fprintf(out, "      \"run_name\": ");
    bench_json_string(out, record->run_name);
    (void)fprintf(out, ",\n      \"run_type\": \"%s\",\n      \"repetitions\": %u,\n",
                  record->aggregate != NULL ? "aggregate" : "iteration", record->repetitions);
    if (record->aggregate == NULL) {
        (void)fprintf(out, "      \"repetition_index\": %u,\n", record->repetition_index);
    }
    (void)fprintf(out, "      \"threads\": 1,\n");
    if (record->aggregate != NULL) {
        (void)fprintf(out, "      \"aggregate_name\": \"%s\",\n      \"aggregate_unit\": \"%s\",\n",
                      record->aggregate, record_is_ratio(record) ? "percentage" : "time");
    }
    if (record->is_failed || record->is_skipped) {
        (void)fprintf(out, "      \"%s\": true,\n      \"%s\": ",
                      record->is_failed ? "error_occurred" : "skipped",
                      record->is_failed ? "error_message" : "skip_message");
        bench_json_string(out, record->message);
        (void)fprintf(out, ",\n");
    }
    (void)fprintf(out,
                  "      \"iterations\": %" PRIu64 ",\n      \"real_time\": %.16e,\n"
                  "      \"cpu_time\": %.16e,\n      \"time_unit\": \"ns\"",
                  record->iterations, record->real_time, record->cpu_time);
    for (uint32_t i = 0; i < record->counter_count; i++) {
        (void)fprintf(out, ",\n      ");
        bench_json_string(out, record->counters[i].key);
        (void)fprintf(out, ": %.16e", record->counters[i].value);
    }
    if (record->label[0] != '\0') {
        (void)fprintf(out, ",\n      \"label\": ");
        bench_json_string(out, record->label);
    }
    (void)fprintf(out, "\n    }");
}

static void
report_json(FILE *out, const struct bench_report *report)
{
    (void)fprintf(out, "{\n  \"context\": {\n");
    bench_context_json(out, report->flags, report->executable, &report->lines);
    (void)fprintf(out, "  },\n  \"benchmarks\": [");
    for (size_t i = 0; i < report->records->count; i++) {
        (void)fprintf(out, "%s\n", i == 0 ? "" : ",");
        record_json(out, &report->records->records[i]);
    }
    (void)fprintf(out, "\n  ]\n}\n");
}

/* ---- CSV -------------------------------------------------------------------------------- */

static const struct bench_counter *
record_counter(const struct bench_record *record, const char *key)
{
    for (uint32_t i = 0; i < record->counter_count; i++) {
        if (strcmp(record->counters[i].key, key) == 0) {
            return &record->counters[i];
        }
    }
    return NULL;
}

/* Whether a record before @records->records[@index], or the same one before @counter, has the key.
 */
static bool
is_key_known(const struct bench_records *records, size_t index, uint32_t counter)
{
    const char *key = records->records[index].counters[counter].key;

    for (size_t i = 0; i < index; i++) {
        if (record_counter(&records->records[i], key) != NULL) {
            return true;
        }
    }
    return false;
}

static void
csv_string(FILE *out, const char *text)
{
    (void)fputc('"', out);
    for (; *text != '\0'; text++) {
        (void)fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
    }
    (void)fputc('"', out);
}

static bool
is_fixed_column(const char *key)
{
    return strcmp(key, "bytes_per_second") == 0 || strcmp(key, "items_per_second") == 0;
}

static void
csv_counter(FILE *out, const struct bench_record *record, const char *key)
{
    const struct bench_counter *counter = record_counter(record, key);

    (void)fputc(',', out);
    if (counter != NULL) {
        (void)fprintf(out, "%.9g", counter->value);
    }
}

/* Calls @each for every key that any record has, in the order of first sight. */
static void
csv_columns(FILE *out, const struct bench_records *records, const struct bench_record *row)
{
    for (size_t i = 0; i < records->count; i++) {
        for (uint32_t k = 0; k < records->records[i].counter_count; k++) {
            const char *key = records->records[i].counters[k].key;

            if (is_fixed_column(key) || is_key_known(records, i, k)) {
                continue;
            }
            if (row != NULL) {
                csv_counter(out, row, key);
            } else {
                (void)fputc(',', out);
                csv_string(out, key);
            }
        }
    }
}

static void
report_csv(FILE *out, const struct bench_report *report)
{
    const struct bench_records *records = report->records;

    (void)fprintf(out, "name,iterations,real_time,cpu_time,time_unit,bytes_per_second,"
                       "items_per_second,label,error_occurred,error_message");
    csv_columns(out, records, NULL);
    (void)fprintf(out, "\n");
    for (size_t i = 0; i < records->count; i++) {
        const struct bench_record *record = &records->records[i];
        char name[BENCH_NAME_BYTES + 16];

        csv_string(out, bench_record_name(record, name, sizeof(name)));
        (void)fprintf(out, ",%" PRIu64 ",%.9g,%.9g,ns", record->iterations, record->real_time,
                      record->cpu_time);
        csv_counter(out, record, "bytes_per_second");
        csv_counter(out, record, "items_per_second");
        (void)fputc(',', out);
        csv_string(out, record->label);
        (void)fprintf(out, ",%s,", record->is_failed ? "true" : "");
        csv_string(out, record->message);
        csv_columns(out, records, record);
        (void)fprintf(out, "\n");
    }
}

/* ---- console ---------------------------------------------------------------------------- */

#define COUNTER_WIDTH 12

/* Three or four digits and a decimal prefix. */
static const char *
number_text(double value, const char *unit, char *text, size_t text_bytes)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    uint32_t prefix = 0;

    while ((value >= 1000 || value <= -1000) && prefix + 1 < BASE_ARRAY_LEN(prefixes)) {
        value /= 1000;
        prefix++;
    }
    (void)snprintf(text, text_bytes, "%.4g%s%s", value, prefixes[prefix], unit);
    return text;
}

static const char *
time_text(double ns, char *text, size_t text_bytes)
{
    const int digits = ns < 10 ? 2 : ns < 100 ? 1 : 0;

    (void)snprintf(text, text_bytes, "%.*f ns", digits, ns);
    return text;
}

static const char *
counter_text(const struct bench_record *record, const struct bench_counter *counter, char *text,
             size_t text_bytes)
{
    if (record_is_ratio(record)) {
        (void)snprintf(text, text_bytes, "%.2f%%", counter->value * 100);
        return text;
    }
    const size_t length = strlen(counter->key);
    const bool is_rate = length > 11 && strcmp(counter->key + length - 11, "_per_second") == 0;

    return number_text(counter->value, is_rate ? "/s" : "", text, text_bytes);
}

static bool
has_same_counters(const struct bench_record *a, const struct bench_record *b)
{
    if (a->counter_count != b->counter_count) {
        return false;
    }
    for (uint32_t i = 0; i < a->counter_count; i++) {
        if (strcmp(a->counters[i].key, b->counters[i].key) != 0) {
            return false;
        }
    }
    return true;
}

static void
console_rule(FILE *out, int width)
{
    for (int i = 0; i < width; i++) {
        (void)fputc('-', out);
    }
    (void)fputc('\n', out);
}

static void
console_header(FILE *out, const struct bench_report *report, const struct bench_record *record)
{
    int width = report->name_width + 2 * 16 + 13;

    if (report->flags->is_tabular) {
        for (uint32_t i = 0; i < record->counter_count; i++) {
            width += 1 + (int)base_max_u64(COUNTER_WIDTH, strlen(record->counters[i].key));
        }
    }
    console_rule(out, width);
    (void)fprintf(out, "%-*s%16s%16s%13s", report->name_width, "Benchmark", "Time", "CPU",
                  "Iterations");
    if (report->flags->is_tabular) {
        for (uint32_t i = 0; i < record->counter_count; i++) {
            (void)fprintf(out, " %*s", COUNTER_WIDTH, record->counters[i].key);
        }
    }
    (void)fprintf(out, "\n");
    console_rule(out, width);
}

static void
console_counters(FILE *out, const struct bench_report *report, const struct bench_record *record)
{
    char text[64];

    for (uint32_t i = 0; i < record->counter_count; i++) {
        const struct bench_counter *counter = &record->counters[i];

        (void)counter_text(record, counter, text, sizeof(text));
        if (report->flags->is_tabular) {
            const int width = (int)base_max_u64(COUNTER_WIDTH, strlen(counter->key));

            (void)fprintf(out, " %*s", width, text);
        } else {
            (void)fprintf(out, " %s=%s", counter->key, text);
        }
    }
}

void
bench_console_row(FILE *out, const struct bench_report *report, const struct bench_record *record,
                  const struct bench_record *previous)
{
    char name[BENCH_NAME_BYTES + 16];
    char real[32];
    char cpu[32];

    if (previous == NULL || (report->flags->is_tabular && !has_same_counters(previous, record))) {
        console_header(out, report, record);
    }
    (void)fprintf(out, "%-*s", report->name_width, bench_record_name(record, name, sizeof(name)));
    if (record->is_failed || record->is_skipped) {
        (void)fprintf(out, " %s: '%s'\n", record->is_failed ? "ERROR OCCURRED" : "SKIPPED",
                      record->message);
        return;
    }
    if (record_is_ratio(record)) {
        (void)fprintf(out, "%14.2f %%%14.2f %%", record->real_time * 100, record->cpu_time * 100);
    } else {
        (void)fprintf(out, "%16s%16s", time_text(record->real_time, real, sizeof(real)),
                      time_text(record->cpu_time, cpu, sizeof(cpu)));
    }
    (void)fprintf(out, "%13" PRIu64, record->iterations);
    console_counters(out, report, record);
    if (record->label[0] != '\0') {
        (void)fprintf(out, " %s", record->label);
    }
    (void)fprintf(out, "\n");
}

void
bench_report_all(FILE *out, enum bench_format format, const struct bench_report *report)
{
    switch (format) {
    case BENCH_JSON:
        report_json(out, report);
        return;
    case BENCH_CSV:
        report_csv(out, report);
        return;
    case BENCH_CONSOLE:
        bench_context_console(out, report->flags, report->executable, &report->lines);
        for (size_t i = 0; i < report->records->count; i++) {
            bench_console_row(out, report, &report->records->records[i],
                              i > 0 ? &report->records->records[i - 1] : NULL);
        }
        return;
    }
    BASE_UNREACHABLE();
}
