/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Texts of the workloads. See workload_text.h.
 */
#include "tools/workload_text.h"

#include "tools/workload_stats.h"

#include <causeway/lnet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

const char *
text_time(uint64_t wall_ns, enum text_form form, char text[64])
{
    const time_t seconds = (time_t)(wall_ns / 1000000000u);
    struct tm parts;

    text[0] = '\0';
    if (localtime_r(&seconds, &parts) == NULL) {
        return text;
    }
    switch (form) {
    case TEXT_IOR:
        (void)strftime(text, 64, "%a %b %e %H:%M:%S %Y", &parts);
        break;
    case TEXT_MDTEST:
        (void)strftime(text, 64, "%m/%d/%Y %H:%M:%S", &parts);
        break;
    case TEXT_ISO:
        (void)strftime(text, 64, "%Y-%m-%dT%H:%M:%S%z", &parts);
        break;
    }
    return text;
}

void
text_command(int argc, char **argv, FILE *out)
{
    (void)fputs("causeway", out);
    for (int i = 0; i < argc; i++) {
        (void)fprintf(out, " %s", argv[i]);
    }
    (void)fputc('\n', out);
}

void
text_space(const struct io *io, const char *path, FILE *out)
{
    struct io_space space = {0};
    char dir[4096];
    char size[32];

    (void)snprintf(dir, sizeof(dir), "%s", path);
    char *slash = strrchr(dir, '/');
    if (slash != NULL) {
        slash[slash == dir ? 1 : 0] = '\0';
    } else {
        (void)strcpy(dir, ".");
    }
    if (io->ops->space(io, dir, &space) != 0) {
        return;
    }
    (void)fprintf(out, "%-20s: %s   Used FS: %.1f%%   Inodes: %.1f Mi   Used Inodes: %.1f%%\n",
                  "FS", stats_size(space.bytes, size),
                  space.bytes > 0 ? 100.0 * (double)space.bytes_used / (double)space.bytes : 0.0,
                  (double)space.files / (1 << 20),
                  space.files > 0 ? 100.0 * (double)space.files_used / (double)space.files : 0.0);
}

json_t *
text_json_head(const struct world *world, const char *tool, int argc, char **argv,
               uint64_t start_wall_ns)
{
    json_t *json = json_object();
    json_t *arguments = json_array();
    struct utsname machine = {.sysname = ""};
    char text[64];

    (void)uname(&machine);
    for (int i = 0; i < argc; i++) {
        (void)json_array_append_new(arguments, json_stringn(argv[i], strlen(argv[i])));
    }
    (void)snprintf(text, sizeof(text), "%d.%d", LNET_VERSION_MAJOR, LNET_VERSION_MINOR);
    (void)json_object_set_new(json, "tool", json_string(tool));
    (void)json_object_set_new(json, "version", json_string(text));
    (void)json_object_set_new(json, "arguments", arguments);
    (void)json_object_set_new(json, "machine",
                              json_pack("{s:s, s:s, s:s}", "name", machine.nodename, "system",
                                        machine.sysname, "release", machine.release));
    (void)json_object_set_new(json, "started",
                              json_string(text_time(start_wall_ns, TEXT_ISO, text)));
    (void)json_object_set_new(json, "tasks", stats_json_count(world->size));
    (void)json_object_set_new(json, "nodes", stats_json_count(world->nodes));
    (void)json_object_set_new(json, "tasks_per_node", stats_json_count(world->tasks_per_node));
    return json;
}

int
text_json_write(json_t *json, const char *tool, const char *path)
{
    errno = 0;
    const bool is_written = json != NULL && json_dump_file(json, path, JSON_INDENT(2)) == 0;
    const int error = errno != 0 ? errno : EIO;

    json_decref(json);
    if (!is_written) {
        (void)fprintf(stderr, "%s: option '--json': cannot write %s: %s\n", tool, path,
                      strerrordesc_np(error));
        return -error;
    }
    return 0;
}
