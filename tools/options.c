/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options of the subcommands. See options.h.
 *
 * Both sources go through option_set_text(), so that a value means the same wherever it stands.
 */
#include "tools/options.h"

#include "base/log.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define OPTIONS_MAX 64

/* Where a value came from, for messages and to find what was given twice. */
enum option_source { FROM_DEFAULT, FROM_FILE, FROM_COMMAND_LINE };

struct reader {
    const struct option_set *set;
    enum option_source source[OPTIONS_MAX];
    const char *file;
    size_t line;
};

int
options_count_parse(const char *text, uint64_t *value_out)
{
    char *end = NULL;

    if (*text < '0' || *text > '9') {
        return -EINVAL;
    }
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0) {
        return -ERANGE;
    }
    if (*end != '\0') {
        return -EINVAL;
    }
    *value_out = value;
    return 0;
}

int
options_size_parse(const char *text, uint64_t *value_out)
{
    static const char units[] = "kmgt";
    char *end = NULL;
    uint64_t factor = 1;

    if (*text < '0' || *text > '9') {
        return -EINVAL;
    }
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0) {
        return -ERANGE;
    }
    if (*end != '\0') {
        const char *unit = strchr(units, *end | 0x20);

        if (unit == NULL || *unit == '\0') {
            return -EINVAL;
        }
        factor = UINT64_C(1) << (10 * (unit - units + 1));
        end++;
    }
    if (*end != '\0') {
        return -EINVAL;
    }
    if (value > UINT64_MAX / factor) {
        return -ERANGE;
    }
    *value_out = value * factor;
    return 0;
}

static int
seconds_parse(const char *text, uint64_t *ns_out)
{
    char *end = NULL;

    if (*text < '0' || *text > '9') {
        return -EINVAL;
    }
    errno = 0;
    const double seconds = strtod(text, &end);
    if (*end != '\0') {
        return -EINVAL;
    }
    if (errno != 0 || !isfinite(seconds) || seconds > 1e9) {
        return -ERANGE;
    }
    *ns_out = (uint64_t)(seconds * 1e9 + .5);
    return 0;
}

size_t
options_distance(const char *a, const char *b)
{
    size_t row[64];
    const size_t length = strlen(b);

    if (length >= 64) {
        return 64;
    }
    for (size_t j = 0; j <= length; j++) {
        row[j] = j;
    }
    for (size_t i = 1; *a != '\0'; a++, i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= length; j++) {
            const size_t change = diagonal + (*a == b[j - 1] ? 0 : 1);
            const size_t shift = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;

            diagonal = row[j];
            row[j] = change < shift ? change : shift;
        }
    }
    return row[length];
}

static void
say_where(const struct reader *reader)
{
    if (reader->file != NULL) {
        (void)fprintf(stderr, "%s: %s:%zu: ", reader->set->command, reader->file, reader->line);
    } else {
        (void)fprintf(stderr, "%s: ", reader->set->command);
    }
}

_Noreturn static void
fail_unknown(const struct reader *reader, const char *name)
{
    const char *nearest = NULL;
    size_t best = name[0] == '-' ? 0 : 4; /* nothing is near a single letter */

    for (size_t i = 0; i < reader->set->count; i++) {
        const size_t distance = options_distance(name, reader->set->options[i].name);

        if (distance < best) {
            best = distance;
            nearest = reader->set->options[i].name;
        }
    }
    say_where(reader);
    (void)fprintf(stderr, "unknown option '%s'", name);
    if (nearest != NULL) {
        (void)fprintf(stderr, " (did you mean '%s'?)", nearest);
    }
    (void)fprintf(stderr, "; see %s --help\n", reader->set->command);
    exit(2);
}

_Noreturn static void
fail_value(const struct reader *reader, const struct option_def *option, const char *text,
           const char *why)
{
    say_where(reader);
    (void)fprintf(stderr, "option '%s': '%s' is %s\n", option->name, text, why);
    exit(2);
}

static bool
is_choice(const char *choices, const char *text)
{
    const size_t length = strlen(text);

    for (const char *at = choices; at != NULL; at = strchr(at, '|')) {
        at += *at == '|' ? 1 : 0;
        if (strchr(text, '|') == NULL && strncmp(at, text, length) == 0 &&
            (at[length] == '|' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

static void
set_number(const struct reader *reader, const struct option_def *option, const char *text)
{
    uint64_t value = 0;
    int rc = 0;
    char why[160];

    if (option->kind == OPTION_COUNT) {
        rc = options_count_parse(text, &value);
    } else if (option->kind == OPTION_SIZE) {
        rc = options_size_parse(text, &value);
    } else {
        rc = seconds_parse(text, &value);
    }
    if (rc == -EINVAL) {
        fail_value(reader, option, text,
                   option->kind == OPTION_SIZE      ? "no size (such as 4096, 64k, 1g)"
                   : option->kind == OPTION_SECONDS ? "no time in seconds (such as 10 or 0.5)"
                                                    : "no number");
    }
    if (rc != 0 || value < option->min || value > option->max) {
        if (option->kind == OPTION_SECONDS) {
            (void)snprintf(why, sizeof(why), "out of range (%g to %g seconds)",
                           (double)option->min / 1e9, (double)option->max / 1e9);
        } else {
            (void)snprintf(why, sizeof(why), "out of range (%llu to %llu)",
                           (unsigned long long)option->min, (unsigned long long)option->max);
        }
        fail_value(reader, option, text, why);
    }
    *(uint64_t *)option->value = value;
}

static void
set_text(struct reader *reader, size_t index, const char *text, enum option_source source)
{
    const struct option_def *option = &reader->set->options[index];
    char why[160];

    if (reader->source[index] > source) {
        return; /* the command line wins over the file */
    }
    if (reader->source[index] == source && option->kind != OPTION_LIST) {
        say_where(reader);
        (void)fprintf(stderr, "option '%s' is given twice\n", option->name);
        exit(2);
    }
    switch (option->kind) {
    case OPTION_FLAG:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) {
            fail_value(reader, option, text, "neither true nor false");
        }
        *(bool *)option->value = text[0] == 't';
        break;
    case OPTION_COUNT:
    case OPTION_SIZE:
    case OPTION_SECONDS:
        set_number(reader, option, text);
        break;
    case OPTION_TEXT:
        if (option->choices != NULL && !is_choice(option->choices, text)) {
            (void)snprintf(why, sizeof(why), "none of %s", option->choices);
            fail_value(reader, option, text, why);
        }
        *(const char **)option->value = text;
        break;
    case OPTION_LIST: {
        struct option_list *list = option->value;

        if (reader->source[index] != source) {
            list->count = 0;
        }
        if (list->count == OPTION_LIST_MAX) {
            fail_value(reader, option, text, "one too many");
        }
        list->items[list->count++] = text;
        break;
    }
    }
    reader->source[index] = source;
}

static size_t
find_option(const struct reader *reader, const char *name)
{
    for (size_t i = 0; i < reader->set->count; i++) {
        if (strcmp(reader->set->options[i].name, name) == 0) {
            return i;
        }
    }
    fail_unknown(reader, name);
}

/* ---- the file ---- */

static char *
copy_text(const char *text)
{
    char *copy = strdup(text);

    if (copy == NULL) {
        (void)fprintf(stderr, "causeway: out of memory\n");
        exit(1);
    }
    return copy;
}

_Noreturn static void
fail_file(const struct reader *reader, const char *what)
{
    say_where(reader);
    (void)fprintf(stderr, "%s (wanted: lines of 'option: value')\n", what);
    exit(2);
}

static const char *
scalar_text(yaml_document_t *document, struct reader *reader, int item)
{
    const yaml_node_t *node = yaml_document_get_node(document, item);

    reader->line = node->start_mark.line + 1;
    if (node->type != YAML_SCALAR_NODE) {
        fail_file(reader, "a value is no plain text");
    }
    return copy_text((const char *)node->data.scalar.value);
}

static void
read_pair(yaml_document_t *document, struct reader *reader, const yaml_node_pair_t *pair)
{
    const char *name = scalar_text(document, reader, pair->key);
    const size_t index = find_option(reader, name);
    const yaml_node_t *value = yaml_document_get_node(document, pair->value);

    if (value->type != YAML_SEQUENCE_NODE) {
        set_text(reader, index, scalar_text(document, reader, pair->value), FROM_FILE);
        return;
    }
    if (reader->set->options[index].kind != OPTION_LIST) {
        fail_file(reader, "a list where one value is wanted");
    }
    for (const yaml_node_item_t *item = value->data.sequence.items.start;
         item < value->data.sequence.items.top; item++) {
        set_text(reader, index, scalar_text(document, reader, *item), FROM_FILE);
    }
}

static void
read_file(struct reader *reader, const char *path)
{
    yaml_parser_t parser;
    yaml_document_t document;
    FILE *file = fopen(path, "re");

    if (file == NULL) {
        (void)fprintf(stderr, "%s: option 'config': %s: %s\n", reader->set->command, path,
                      base_errno_name(errno));
        exit(2);
    }
    reader->file = path;
    if (!yaml_parser_initialize(&parser)) {
        fail_file(reader, "out of memory");
    }
    yaml_parser_set_input_file(&parser, file);
    if (!yaml_parser_load(&parser, &document)) {
        reader->line = parser.problem_mark.line + 1;
        fail_file(reader, parser.problem != NULL ? parser.problem : "no YAML");
    }
    const yaml_node_t *root = yaml_document_get_root_node(&document);
    if (root != NULL) {
        if (root->type != YAML_MAPPING_NODE) {
            reader->line = root->start_mark.line + 1;
            fail_file(reader, "no mapping");
        }
        for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start;
             pair < root->data.mapping.pairs.top; pair++) {
            read_pair(&document, reader, pair);
        }
    }
    yaml_document_delete(&document);
    yaml_parser_delete(&parser);
    (void)fclose(file);
    reader->file = NULL;
}

/* ---- output ---- */

static void
print_default(const struct option_def *option)
{
    const uint64_t *number = option->value;

    switch (option->kind) {
    case OPTION_FLAG:
    case OPTION_LIST:
        break;
    case OPTION_COUNT:
        (void)printf(" [%llu]", (unsigned long long)*number);
        break;
    case OPTION_SIZE:
        if (*number != 0 && *number % (1 << 20) == 0) {
            (void)printf(" [%llum]", (unsigned long long)(*number >> 20));
        } else if (*number != 0 && *number % 1024 == 0) {
            (void)printf(" [%lluk]", (unsigned long long)(*number >> 10));
        } else {
            (void)printf(" [%llu]", (unsigned long long)*number);
        }
        break;
    case OPTION_SECONDS:
        (void)printf(" [%g s]", (double)*number / 1e9);
        break;
    case OPTION_TEXT:
        if (*(const char *const *)option->value != NULL) {
            (void)printf(" [%s]", *(const char *const *)option->value);
        }
        break;
    }
}

static void
print_help(const struct option_set *set)
{
    (void)printf("usage: %s %s\n\n%s\n\noptions:\n", set->command, set->usage, set->summary);
    for (size_t i = 0; i < set->count; i++) {
        const struct option_def *option = &set->options[i];
        char head[64];

        (void)snprintf(head, sizeof(head), "%c%c%s --%s%s%s", option->letter != 0 ? '-' : ' ',
                       option->letter != 0 ? option->letter : ' ', option->letter != 0 ? "," : " ",
                       option->name, option->argument != NULL ? " " : "",
                       option->argument != NULL ? option->argument : "");
        (void)printf("  %-30s %s", head, option->help);
        if (option->choices != NULL) {
            (void)printf(" (%s)", option->choices);
        }
        print_default(option);
        (void)printf("\n");
    }
    (void)printf("      --dry-run                  print the resolved options as YAML and stop\n"
                 "  -h, --help                     this text\n\nexample:\n  %s\n",
                 set->example);
}

static void
print_yaml_text(const char *text)
{
    (void)putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            (void)printf("\\%c", *text);
        } else if ((unsigned char)*text < 0x20) {
            (void)printf("\\x%02x", (unsigned char)*text);
        } else {
            (void)putchar(*text);
        }
    }
    (void)printf("\"\n");
}

static void
print_resolved(const struct option_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        const struct option_def *option = &set->options[i];
        const uint64_t *number = option->value;

        if (strcmp(option->name, "config") == 0) {
            continue;
        }
        switch (option->kind) {
        case OPTION_FLAG:
            (void)printf("%s: %s\n", option->name, *(const bool *)option->value ? "true" : "false");
            break;
        case OPTION_COUNT:
        case OPTION_SIZE:
            (void)printf("%s: %llu\n", option->name, (unsigned long long)*number);
            break;
        case OPTION_SECONDS:
            (void)printf("%s: %.9g\n", option->name, (double)*number / 1e9);
            break;
        case OPTION_TEXT:
            if (*(const char *const *)option->value != NULL) {
                (void)printf("%s: ", option->name);
                print_yaml_text(*(const char *const *)option->value);
            }
            break;
        case OPTION_LIST: {
            const struct option_list *list = option->value;

            (void)printf("%s:%s\n", option->name, list->count == 0 ? " []" : "");
            for (uint32_t k = 0; k < list->count; k++) {
                (void)printf("  - ");
                print_yaml_text(list->items[k]);
            }
            break;
        }
        }
    }
}

/* ---- the command line ---- */

enum { GETOPT_HELP = 'h', GETOPT_DRY_RUN = 1000, GETOPT_FIRST = 2000 };

static void
fill_getopt(const struct option_set *set, struct option *table, char *letters)
{
    size_t at = 0;

    if (!set->has_late_options) {
        letters[at++] = '+'; /* stop at the first operand */
    }
    letters[at++] = ':';
    letters[at++] = 'h';
    for (size_t i = 0; i < set->count; i++) {
        const struct option_def *option = &set->options[i];
        const bool has_value = option->kind != OPTION_FLAG;

        table[i] = (struct option){.name = option->name,
                                   .has_arg = has_value ? required_argument : no_argument,
                                   .val = GETOPT_FIRST + (int)i};
        if (option->letter != 0) {
            letters[at++] = option->letter;
            if (has_value) {
                letters[at++] = ':';
            }
        }
    }
    table[set->count] = (struct option){.name = "help", .val = GETOPT_HELP};
    table[set->count + 1] = (struct option){.name = "dry-run", .val = GETOPT_DRY_RUN};
    table[set->count + 2] = (struct option){0};
    letters[at] = '\0';
}

static size_t
index_of(const struct option_set *set, int code)
{
    if (code >= GETOPT_FIRST) {
        return (size_t)(code - GETOPT_FIRST);
    }
    for (size_t i = 0; i < set->count; i++) {
        if (set->options[i].letter == code) {
            return i;
        }
    }
    return set->count;
}

static void
read_one(struct reader *reader, int code, char **argv)
{
    char letter[] = {'-', (char)optopt, '\0'};
    /* getopt says which letter it was; a long name is the last argument that it took. */
    const bool is_letter = optopt > 0 && optopt < GETOPT_DRY_RUN && optopt != GETOPT_HELP;
    const char *given = is_letter ? letter : argv[optind - 1];

    if (code == '?' && !is_letter && optopt != 0) {
        (void)fprintf(stderr, "%s: option '%s': takes no value\n", reader->set->command, given);
        exit(2);
    }
    if (code == '?') {
        fail_unknown(reader, is_letter ? given : given + 2);
    }
    if (code == ':') {
        (void)fprintf(stderr, "%s: option '%s' wants a value\n", reader->set->command, given);
        exit(2);
    }
    set_text(reader, index_of(reader->set, code), optarg != NULL ? optarg : "true",
             FROM_COMMAND_LINE);
}

int
options_read(const struct option_set *set, int argc, char **argv)
{
    struct option table[OPTIONS_MAX + 3];
    char letters[2 * OPTIONS_MAX + 4];
    struct reader reader = {.set = set};
    bool dry_run = false;
    int code = 0;

    if (set->count > OPTIONS_MAX) {
        abort();
    }
    fill_getopt(set, table, letters);
    opterr = 0;
    optind = 1;
    optopt = 0;
    while ((code = getopt_long(argc, argv, letters, table, NULL)) != -1) {
        if (code == GETOPT_HELP) {
            print_help(set);
            exit(0);
        }
        if (code == GETOPT_DRY_RUN) {
            dry_run = true;
            continue;
        }
        read_one(&reader, code, argv);
    }
    for (size_t i = 0; i < set->count; i++) {
        if (strcmp(set->options[i].name, "config") == 0 && reader.source[i] == FROM_COMMAND_LINE) {
            read_file(&reader, *(const char **)set->options[i].value);
        }
    }
    if (set->check != NULL && set->check(set->check_arg) != 0) {
        exit(2);
    }
    if (dry_run) {
        print_resolved(set);
        exit(0);
    }
    return optind;
}
