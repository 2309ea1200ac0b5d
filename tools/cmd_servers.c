/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * causeway mds, causeway oss - the servers as daemons, in the foreground until SIGINT or SIGTERM.
 */
#include "tools/commands.h"

#include "base/assert.h"
#include "tools/host.h"
#include "tools/options.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const char *const bulk_paths = "auto|mapped|cma|staging";

/* What both servers take. */
struct common {
    const char *config;
    const char *nid;
    const char *run_dir;
    const char *store;
    const char *bulk_path;
    const char *rma_path;
    uint64_t reactors;
    uint64_t credits;
    uint64_t peer_credits;
    uint64_t ring_bytes;
    uint64_t exports_max;
    uint64_t timeout_ns;
    uint64_t first_cpu;
    bool any_user;
    bool verbose;
};

#define CPU_NONE 4096

#define COMMON_OPTIONS(c)                                                                       \
    {                                                                                           \
        "config",    'c',    OPTION_TEXT,                                                       \
        &(c).config, 0,      0,                                                                 \
        NULL,        "FILE", "read options from a YAML file"},                                  \
        {"nid", 'n', OPTION_TEXT, &(c).nid, 0, 0, NULL, "NID", "the server's NID"},             \
        {"run-dir",    0,     OPTION_TEXT,                                                      \
         &(c).run_dir, 0,     0,                                                                \
         NULL,         "DIR", "directory of the shm rendezvous sockets; default per user"},     \
        {"store", 0, OPTION_TEXT, &(c).store, 0, 0, "mem|null", "NAME", "what keeps the data"}, \
        {"bulk-path", 0,          OPTION_TEXT, &(c).bulk_path,       0,                         \
         0,           bulk_paths, "PATH",      "how bulk data moves"},                          \
        {"rma-path",                                                                            \
         0,                                                                                     \
         OPTION_TEXT,                                                                           \
         &(c).rma_path,                                                                         \
         0,                                                                                     \
         0,                                                                                     \
         "auto|mapped|cma|none",                                                                \
         "PATH",                                                                                \
         "what the shm LND may use"},                                                           \
        {"reactors",        'R',  OPTION_COUNT, &(c).reactors,       1,                         \
         HOST_REACTORS_MAX, NULL, "N",          "threads that serve"},                          \
        {"credits", 0, OPTION_COUNT, &(c).credits, 1, 65536, NULL, "N", "NI tx credits"},       \
        {"peer-credits", 0,    OPTION_COUNT, &(c).peer_credits,    1,                           \
         65536,          NULL, "N",          "tx credits per peer"},                            \
        {"ring-bytes",                                                                          \
         0,                                                                                     \
         OPTION_SIZE,                                                                           \
         &(c).ring_bytes,                                                                       \
         32768,                                                                                 \
         1 << 24,                                                                               \
         NULL,                                                                                  \
         "SIZE",                                                                                \
         "shm: of one direction of a connection"},                                              \
        {"clients-max", 0,    OPTION_COUNT, &(c).exports_max,     1,                            \
         65536,         NULL, "N",          "clients per reactor"},                             \
        {"timeout",                                                                             \
         0,                                                                                     \
         OPTION_SECONDS,                                                                        \
         &(c).timeout_ns,                                                                       \
         1000000,                                                                               \
         UINT64_C(3600000000000),                                                               \
         NULL,                                                                                  \
         "SECONDS",                                                                             \
         "of a request to another server"},                                                     \
        {"first-cpu",    0,   OPTION_COUNT,                                                     \
         &(c).first_cpu, 0,   CPU_NONE,                                                         \
         NULL,           "N", "pin reactor i to CPU N + i; 4096: do not pin"},                  \
        {"any-user",    0,    OPTION_FLAG,                                                      \
         &(c).any_user, 0,    0,                                                                \
         NULL,          NULL, "take clients of other users"},                                   \
    {                                                                                           \
        "verbose", 'v', OPTION_FLAG, &(c).verbose, 0, 0, NULL, NULL, "say more in the log"      \
    }

static struct common
common_defaults(const char *nid)
{
    return (struct common){.nid = nid,
                           .store = "mem",
                           .bulk_path = "auto",
                           .rma_path = "auto",
                           .reactors = 1,
                           .credits = 256,
                           .peer_credits = 64,
                           .ring_bytes = 65536,
                           .exports_max = 4096,
                           .timeout_ns = UINT64_C(10000000000),
                           .first_cpu = CPU_NONE};
}

static uint32_t
bulk_path_of(const char *name)
{
    for (int path = 0; path < BULK_PATH_COUNT; path++) {
        if (strcmp(bulk_path_name((enum bulk_path)path), name) == 0) {
            return (uint32_t)path;
        }
    }
    return BULK_PATH_AUTO;
}

/* Splits "3@shm" into address and net. The copies live as long as the process. */
static int
split_nid(const char *command, const char *text, const char **address_out, const char **net_out)
{
    struct lnet_nid nid;
    char *copy = strdup(text);
    char *at = copy != NULL ? strchr(copy, '@') : NULL;

    if (at == NULL || lnet_nid_parse(text, &nid) != 0) {
        (void)fprintf(stderr, "causeway %s: option 'nid': '%s' is no NID (such as 1@shm)\n",
                      command, text);
        free(copy);
        return -EINVAL;
    }
    *at = '\0';
    *address_out = copy;
    *net_out = at + 1;
    return 0;
}

/* The CPUs of the reactors: @first_cpu and those after it; NULL: they are not pinned. */
static const int *
cpus_from(uint64_t first_cpu, uint64_t reactors, int cpus[HOST_REACTORS_MAX])
{
    if (first_cpu == CPU_NONE) {
        return NULL;
    }
    for (uint64_t i = 0; i < reactors; i++) {
        cpus[i] = (int)(first_cpu + i);
    }
    return cpus;
}

static int
fill_host(const char *name, const struct common *common, int cpus[HOST_REACTORS_MAX],
          struct host_options *host)
{
    *host = (struct host_options){
        .name = name,
        .run_dir = common->run_dir,
        .reactors = (uint32_t)common->reactors,
        .credits = (uint32_t)common->credits,
        .peer_credits = (uint32_t)common->peer_credits,
        .ring_bytes = common->ring_bytes,
        .rma_path = common->rma_path,
        .bulk_path = bulk_path_of(common->bulk_path),
        .any_user = common->any_user,
        .timeout_ns = common->timeout_ns,
        .cpus = cpus_from(common->first_cpu, common->reactors, cpus),
        .log_level = common->verbose ? LNET_LOG_DEBUG : LNET_LOG_WARN,
    };
    if ((common->ring_bytes & (common->ring_bytes - 1)) != 0) {
        (void)fprintf(stderr, "causeway %s: option 'ring-bytes': %llu is no power of two\n", name,
                      (unsigned long long)common->ring_bytes);
        return -EINVAL;
    }
    return split_nid(name, common->nid, &host->address, &host->net);
}

/* Serves until a signal says stop. */
static int
serve(const struct host_options *options, const struct common *common)
{
    struct host *host = NULL;
    sigset_t stop;
    int signal_number = 0;

    (void)sigemptyset(&stop);
    (void)sigaddset(&stop, SIGINT);
    (void)sigaddset(&stop, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &stop, NULL);
    const int rc = host_start(options, &host);
    if (rc != 0) {
        (void)fprintf(stderr, "causeway %s: cannot serve %s: %s\n", options->name, common->nid,
                      lnet_error_name(rc));
        return 1;
    }
    (void)printf("causeway %s: serving %s with %u reactor(s), store %s\n", options->name,
                 common->nid, options->reactors, common->store);
    (void)fflush(stdout);
    (void)sigwait(&stop, &signal_number);
    host_stop(host);
    host_free(host);
    return 0;
}

/* Reads "NID[:reactors[:count]]" and appends the OSS's OSTs. */
static int
add_oss(const char *text, struct mds_ost *osts, uint32_t *count)
{
    char copy[LNET_NID_TEXT_MAX + 32];
    char *save = NULL;
    struct lnet_nid nid;
    uint64_t reactors = 1;
    uint64_t ost_count = 1;

    if (strlen(text) >= sizeof(copy)) {
        return -EINVAL;
    }
    (void)strcpy(copy, text);
    const char *part = strtok_r(copy, ":", &save);
    if (part == NULL || lnet_nid_parse(part, &nid) != 0) {
        return -EINVAL;
    }
    part = strtok_r(NULL, ":", &save);
    if (part != NULL && (options_count_parse(part, &reactors) != 0 || reactors == 0 ||
                         reactors > HOST_REACTORS_MAX)) {
        return -EINVAL;
    }
    part = strtok_r(NULL, ":", &save);
    if (part != NULL && (options_count_parse(part, &ost_count) != 0 || ost_count == 0)) {
        return -EINVAL;
    }
    if (strtok_r(NULL, ":", &save) != NULL || ost_count > 64 || *count + ost_count > 64) {
        return -EINVAL;
    }
    for (uint64_t i = 0; i < ost_count; i++) {
        osts[(*count)++] =
            (struct mds_ost){.nid = nid, .reactors = (uint16_t)reactors, .ost = (uint16_t)i};
    }
    return 0;
}

/* What the values of `causeway mds` come to. */
struct mds_values {
    struct common common;
    struct option_list oss;
    uint64_t stripe_bytes;
    struct mds_ost osts[64];
    uint32_t ost_count;
    struct host_options host;
    int cpus[HOST_REACTORS_MAX];
};

static int
mds_check(void *arg)
{
    struct mds_values *values = arg;

    for (uint32_t i = 0; i < values->oss.count; i++) {
        if (add_oss(values->oss.items[i], values->osts, &values->ost_count) != 0) {
            (void)fprintf(stderr,
                          "causeway mds: option 'oss': '%s' is not NID[:reactors[:osts]] "
                          "(such as 2@shm:1:4; 64 OSTs in all)\n",
                          values->oss.items[i]);
            return -EINVAL;
        }
    }
    if (values->stripe_bytes % 65536 != 0) {
        (void)fprintf(stderr, "causeway mds: option 'stripe-size': %llu is no multiple of 64k\n",
                      (unsigned long long)values->stripe_bytes);
        return -EINVAL;
    }
    return fill_host("mds", &values->common, values->cpus, &values->host);
}

int
cmd_mds(int argc, char **argv)
{
    struct mds_values values = {.common = common_defaults("1@shm"), .stripe_bytes = 1 << 20};
    uint64_t stripe_count = 1;
    uint64_t inodes_max = 16 << 20;
    const struct option_def options[] = {
        COMMON_OPTIONS(values.common),
        {"oss", 'o', OPTION_LIST, &values.oss, 0, 0, NULL, "NID[:R[:N]]",
         "an OSS with R reactors and N OSTs; may be given more than once"},
        {"stripe-size", 0, OPTION_SIZE, &values.stripe_bytes, 65536, UINT64_C(1) << 31, NULL,
         "SIZE", "default stripe size, a multiple of 64k"},
        {"stripe-count", 0, OPTION_COUNT, &stripe_count, 1, 65535, NULL, "N",
         "default stripe count; 65535: all OSTs"},
        {"inodes-max", 0, OPTION_COUNT, &inodes_max, 16, UINT64_C(1) << 32, NULL, "N",
         "inodes per reactor"},
    };
    const struct option_set set = {
        "causeway mds",
        "[options]",
        "Serves metadata until SIGINT or SIGTERM.",
        "causeway oss --nid 2@shm & causeway mds --nid 1@shm --oss 2@shm",
        options,
        BASE_ARRAY_LEN(options),
        .has_late_options = false,
        .check = mds_check,
        .check_arg = &values,
    };

    if (options_read(&set, argc, argv) != argc) {
        (void)fprintf(stderr, "causeway mds: takes options only; see causeway mds --help\n");
        return 2;
    }
    const struct mds_options mds = {.struct_bytes = sizeof(mds),
                                    .osts = values.osts,
                                    .ost_count = values.ost_count,
                                    .stripe_bytes = (uint32_t)values.stripe_bytes,
                                    .stripe_count = (uint32_t)stripe_count,
                                    .exports_max = (uint32_t)values.common.exports_max,
                                    .store = values.common.store,
                                    .inodes_max = inodes_max};
    values.host.mds = &mds;
    return serve(&values.host, &values.common);
}

/* What the values of `causeway oss` come to. */
struct oss_values {
    struct common common;
    struct host_options host;
    int cpus[HOST_REACTORS_MAX];
};

static int
oss_check(void *arg)
{
    struct oss_values *values = arg;

    return fill_host("oss", &values->common, values->cpus, &values->host);
}

int
cmd_oss(int argc, char **argv)
{
    struct oss_values values = {.common = common_defaults("2@shm")};
    uint64_t ost_count = 1;
    uint64_t bytes_max = 0;
    uint64_t prefault_bytes = 64 << 20;
    bool no_lease = false;
    const struct option_def options[] = {
        COMMON_OPTIONS(values.common),
        {"osts", 0, OPTION_COUNT, &ost_count, 1, 64, NULL, "N", "OSTs served"},
        {"mem", 'm', OPTION_SIZE, &bytes_max, 0, UINT64_C(1) << 44, NULL, "SIZE",
         "most memory for data per reactor; 0: an eighth of the machine's"},
        {"prefault", 0, OPTION_SIZE, &prefault_bytes, 0, UINT64_C(1) << 40, NULL, "SIZE",
         "memory touched at start"},
        {"no-lease", 0, OPTION_FLAG, &no_lease, 0, 0, NULL, NULL,
         "never lend memory to clients: the server makes all copies"},
    };
    const struct option_set set = {
        "causeway oss",
        "[options]",
        "Serves objects until SIGINT or SIGTERM.",
        "causeway oss --nid 2@shm --osts 4 --mem 1g",
        options,
        BASE_ARRAY_LEN(options),
        .has_late_options = false,
        .check = oss_check,
        .check_arg = &values,
    };

    if (options_read(&set, argc, argv) != argc) {
        (void)fprintf(stderr, "causeway oss: takes options only; see causeway oss --help\n");
        return 2;
    }
    const struct oss_options oss = {.struct_bytes = sizeof(oss),
                                    .ost_count = (uint32_t)ost_count,
                                    .store = values.common.store,
                                    .bytes_max = bytes_max,
                                    .prefault_bytes = prefault_bytes,
                                    .exports_max = (uint32_t)values.common.exports_max,
                                    .no_lease = no_lease};
    values.host.oss = &oss;
    return serve(&values.host, &values.common);
}
