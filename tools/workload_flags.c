/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flags of the workloads. See workload_flags.h.
 */
#include "tools/workload_flags.h"

#include "base/assert.h"
#include "tools/options.h"

#include <errno.h>
#include <string.h>

struct reader {
    const struct flag_set *set;
    char **argv;
    int argc;
    int at; /* the argument that is read */
    bool was_given[FLAGS_MAX];
};

#define SAY(set, ...)                                      \
    do {                                                   \
        if (!(set)->is_silent) {                           \
            (void)fprintf(stderr, "%s: ", (set)->command); \
            (void)fprintf(stderr, __VA_ARGS__);            \
            (void)fputc('\n', stderr);                     \
        }                                                  \
    } while (0)

/* "-b" or "--json", as people write it. */
static const char *
spelling(const struct flag_def *flag, char text[64])
{
    if (flag->letter != 0) {
        (void)snprintf(text, 64, "-%c", flag->letter);
    } else {
        (void)snprintf(text, 64, "--%s", flag->name);
    }
    return text;
}

static bool
has_value(const struct flag_def *flag)
{
    return flag->kind == FLAG_NUMBER || flag->kind == FLAG_SIZE || flag->kind == FLAG_TEXT;
}

static bool
is_choice(const char *choices, const char *text)
{
    const size_t length = strlen(text);

    for (const char *at = choices; at != NULL; at = strchr(at, '|')) {
        at += *at == '|' ? 1 : 0;
        if (length > 0 && strchr(text, '|') == NULL && strncmp(at, text, length) == 0 &&
            (at[length] == '|' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

static enum flags_result
set_number(const struct flag_set *set, const struct flag_def *flag, const char *text)
{
    const bool is_size = flag->kind == FLAG_SIZE;
    char name[64];
    uint64_t value = 0;
    const int rc = is_size ? options_size_parse(text, &value) : options_count_parse(text, &value);

    if (rc == -EINVAL) {
        SAY(set, "option '%s': '%s' is %s", spelling(flag, name), text,
            is_size ? "no size (such as 4096, 64k, 1g)" : "no number");
        return FLAGS_BAD;
    }
    if (rc != 0 || value < flag->min || value > flag->max) {
        SAY(set, "option '%s': '%s' is out of range (%llu to %llu)", spelling(flag, name), text,
            (unsigned long long)flag->min, (unsigned long long)flag->max);
        return FLAGS_BAD;
    }
    *(uint64_t *)flag->value = value;
    return FLAGS_RUN;
}

/* Takes flag @index with @text, which is NULL for one without a value. */
static enum flags_result
take(struct reader *reader, size_t index, const char *text)
{
    const struct flag_def *flag = &reader->set->flags[index];
    char name[64];

    if (flag->kind == FLAG_REFUSED) {
        SAY(reader->set, "option '%s' (%s) is not implemented", spelling(flag, name), flag->help);
        return FLAGS_BAD;
    }
    if (reader->was_given[index] && flag->kind != FLAG_COUNTED) {
        SAY(reader->set, "option '%s' is given twice", spelling(flag, name));
        return FLAGS_BAD;
    }
    reader->was_given[index] = true;
    switch (flag->kind) {
    case FLAG_SET:
        *(bool *)flag->value = true;
        break;
    case FLAG_COUNTED:
        ++*(uint64_t *)flag->value;
        break;
    case FLAG_NUMBER:
    case FLAG_SIZE:
        return set_number(reader->set, flag, text);
    case FLAG_TEXT:
        if (flag->choices != NULL && !is_choice(flag->choices, text)) {
            SAY(reader->set, "option '%s': '%s' is none of %s", spelling(flag, name), text,
                flag->choices);
            return FLAGS_BAD;
        }
        if (text[0] == '\0') {
            SAY(reader->set, "option '%s': the value is empty", spelling(flag, name));
            return FLAGS_BAD;
        }
        *(const char **)flag->value = text;
        break;
    case FLAG_REFUSED:
        break;
    }
    return FLAGS_RUN;
}

static enum flags_result
no_value(const struct reader *reader, const char *given)
{
    SAY(reader->set, "option '%s' wants a value", given);
    return FLAGS_BAD;
}

static void
say_unknown(const struct flag_set *set, const char *given, const char *name, size_t bytes)
{
    const char *nearest = NULL;
    char word[64];
    size_t best = 4;

    (void)snprintf(word, sizeof(word), "%.*s", (int)(bytes < 63 ? bytes : 63), name);
    for (size_t i = 0; bytes > 1 && i < set->count; i++) {
        const char *candidate = set->flags[i].name;
        const size_t distance = candidate != NULL ? options_distance(word, candidate) : best;

        if (distance < best) {
            best = distance;
            nearest = candidate;
        }
    }
    if (nearest != NULL) {
        SAY(set, "unknown option '%s' (did you mean '--%s'?); see %s --help", given, nearest,
            set->command);
    } else {
        SAY(set, "unknown option '%s'; see %s --help", given, set->command);
    }
}

/* The flag whose long name is the first @bytes of @name. */
static size_t
find_name(const struct flag_set *set, const char *name, size_t bytes)
{
    for (size_t i = 0; i < set->count; i++) {
        const char *candidate = set->flags[i].name;

        if (candidate != NULL && strncmp(candidate, name, bytes) == 0 && candidate[bytes] == '\0') {
            return i;
        }
    }
    return set->count;
}

static size_t
find_letter(const struct flag_set *set, char letter)
{
    for (size_t i = 0; i < set->count; i++) {
        if (letter != 0 && set->flags[i].letter == letter) {
            return i;
        }
    }
    return set->count;
}

static enum flags_result
read_long(struct reader *reader)
{
    const char *given = reader->argv[reader->at];
    const char *name = given + 2;
    const size_t bytes = strcspn(name, "=");
    const char *attached = name[bytes] == '=' ? name + bytes + 1 : NULL;
    const size_t index = find_name(reader->set, name, bytes);

    if (index == reader->set->count) {
        say_unknown(reader->set, given, name, bytes);
        return FLAGS_BAD;
    }
    const struct flag_def *flag = &reader->set->flags[index];
    if (!has_value(flag)) {
        if (attached != NULL && flag->kind != FLAG_REFUSED) {
            SAY(reader->set, "option '--%s' takes no value", flag->name);
            return FLAGS_BAD;
        }
        return take(reader, index, NULL);
    }
    if (attached == NULL) {
        if (reader->at + 1 == reader->argc) {
            return no_value(reader, given);
        }
        attached = reader->argv[++reader->at];
    }
    return take(reader, index, attached);
}

/* One argument of combined short flags; the last may have a value, attached or next. */
static enum flags_result
read_short(struct reader *reader)
{
    const char *given = reader->argv[reader->at];
    char letter[] = "-x";

    for (const char *at = given + 1; *at != '\0'; at++) {
        const size_t index = find_letter(reader->set, *at);
        enum flags_result result = FLAGS_RUN;

        letter[1] = *at;
        if (index == reader->set->count) {
            say_unknown(reader->set, letter, letter + 1, 1);
            return FLAGS_BAD;
        }
        if (!has_value(&reader->set->flags[index])) {
            result = take(reader, index, NULL);
            if (result != FLAGS_RUN) {
                return result;
            }
            continue;
        }
        if (at[1] != '\0') {
            return take(reader, index, at[1] == '=' ? at + 2 : at + 1);
        }
        if (reader->at + 1 == reader->argc) {
            return no_value(reader, letter);
        }
        return take(reader, index, reader->argv[++reader->at]);
    }
    return FLAGS_RUN;
}

static void
print_default(const struct flag_def *flag)
{
    const uint64_t *number = flag->value;

    if (flag->kind == FLAG_NUMBER || flag->kind == FLAG_SIZE) {
        const bool is_size = flag->kind == FLAG_SIZE && *number != 0;
        const char *unit = "";
        uint64_t value = *number;

        if (value < flag->min || value > flag->max) {
            return; /* not given is a state of its own */
        }
        if (is_size && value % (1 << 20) == 0) {
            value >>= 20;
            unit = "m";
        } else if (is_size && value % 1024 == 0) {
            value >>= 10;
            unit = "k";
        }
        (void)printf(" [%llu%s]", (unsigned long long)value, unit);
    } else if (flag->kind == FLAG_TEXT && *(const char *const *)flag->value != NULL) {
        (void)printf(" [%s]", *(const char *const *)flag->value);
    }
}

static void
print_help(const struct flag_set *set)
{
    (void)printf("usage: %s [options]\n\n%s\n\noptions:\n", set->command, set->summary);
    for (size_t i = 0; i < set->count; i++) {
        const struct flag_def *flag = &set->flags[i];
        char left[80];

        if (flag->kind == FLAG_REFUSED) {
            continue;
        }
        (void)snprintf(left, sizeof(left), "%c%c%s%s%s%s%s", flag->letter != 0 ? '-' : ' ',
                       flag->letter != 0 ? flag->letter : ' ',
                       flag->letter != 0 && flag->name != NULL ? ", " : "  ",
                       flag->name != NULL ? "--" : "", flag->name != NULL ? flag->name : "",
                       flag->argument != NULL ? " " : "",
                       flag->argument != NULL ? flag->argument : "");
        (void)printf("  %-26s %s", left, flag->help);
        print_default(flag);
        (void)printf("\n");
    }
    (void)printf("  %-26s print the resolved command line and stop\n", "    --dry-run");
    (void)printf("  %-26s this text\n\nrefused by name:", "-h, --help");
    for (size_t i = 0; i < set->count; i++) {
        char name[64];

        if (set->flags[i].kind == FLAG_REFUSED) {
            (void)printf(" %s", spelling(&set->flags[i], name));
        }
    }
    (void)printf("\n\nexample:\n  %s\n", set->example);
}

static void
print_quoted(const char *text, FILE *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_-./:=,+@%";

    if (text[strspn(text, plain)] == '\0') {
        (void)fputs(text, out);
        return;
    }
    (void)fputc('\'', out);
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            (void)fputs("'\\''", out);
        } else {
            (void)fputc(*text, out);
        }
    }
    (void)fputc('\'', out);
}

void
flags_print(const struct flag_set *set, FILE *out)
{
    (void)fputs(set->command, out);
    for (size_t i = 0; i < set->count; i++) {
        const struct flag_def *flag = &set->flags[i];
        char name[64];
        const char *text = spelling(flag, name);

        switch (flag->kind) {
        case FLAG_SET:
            if (*(const bool *)flag->value) {
                (void)fprintf(out, " %s", text);
            }
            break;
        case FLAG_COUNTED:
            for (uint64_t k = 0; k < *(const uint64_t *)flag->value; k++) {
                (void)fprintf(out, " %s", text);
            }
            break;
        case FLAG_NUMBER:
        case FLAG_SIZE:
            /* A default outside the range means "not given". */
            if (*(const uint64_t *)flag->value >= flag->min &&
                *(const uint64_t *)flag->value <= flag->max) {
                (void)fprintf(out, " %s %llu", text,
                              (unsigned long long)*(const uint64_t *)flag->value);
            }
            break;
        case FLAG_TEXT:
            if (*(const char *const *)flag->value != NULL) {
                (void)fprintf(out, " %s ", text);
                print_quoted(*(const char *const *)flag->value, out);
            }
            break;
        case FLAG_REFUSED:
            break;
        }
    }
    (void)fputc('\n', out);
}

enum flags_result
flags_read(const struct flag_set *set, int argc, char **argv, bool *dry_run_out)
{
    struct reader reader = {.set = set, .argv = argv, .argc = argc, .at = 1};

    BASE_ASSERT(set->count <= FLAGS_MAX);
    *dry_run_out = false;
    for (; reader.at < argc; reader.at++) {
        const char *given = argv[reader.at];
        enum flags_result result = FLAGS_BAD;

        if (strcmp(given, "--dry-run") == 0) {
            *dry_run_out = true;
            continue;
        }
        if (strcmp(given, "--help") == 0 || strcmp(given, "-h") == 0) {
            if (!set->is_silent) {
                print_help(set);
            }
            return FLAGS_STOP;
        }
        if (given[0] == '-' && given[1] == '-' && given[2] != '\0') {
            result = read_long(&reader);
        } else if (given[0] == '-' && given[1] != '\0' && given[1] != '-') {
            result = read_short(&reader);
        } else {
            SAY(set, "'%s' is no option; see %s --help", given, set->command);
        }
        if (result != FLAGS_RUN) {
            return result;
        }
    }
    return FLAGS_RUN;
}
