/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * causeway - the one command line: finds the subcommand and gives it the rest.
 */
#include "tools/commands.h"

#include "base/assert.h"

#include <causeway/lnet.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct command {
    const char *name;
    int (*main)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"run", cmd_run, "run a program on embedded servers and say where the time went"},
    {"mds", cmd_mds, "serve metadata"},
    {"oss", cmd_oss, "serve objects"},
    {"lctl", cmd_lctl, "ping and look into running servers"},
    {"ior", cmd_ior, "the IOR workload on the client API"},
    {"mdtest", cmd_mdtest, "the mdtest workload on the client API"},
};

static void
print_usage(FILE *out)
{
    (void)fprintf(out, "usage: causeway COMMAND [options]\n\n"
                       "A user-space LNet and ptlrpc with servers and a client.\n\ncommands:\n");
    for (size_t i = 0; i < BASE_ARRAY_LEN(commands); i++) {
        (void)fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].help);
    }
    (void)fprintf(out, "\n`causeway COMMAND --help` says more. First try:\n"
                       "  causeway run -- sh -c 'echo hello > /causeway/hi && cat /causeway/hi'\n");
}

/*
 * Closed standard streams become /dev/null for this process alone, not for what it starts: else a
 * memory region or a socket would get such a number, and messages would be written into it.
 */
static void
open_streams(void)
{
    int fd = 0;

    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) {
        (void)close(fd);
    }
}

int
main(int argc, char **argv)
{
    open_streams();
    if (argc < 2) {
        print_usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)printf("causeway %d.%d\n", LNET_VERSION_MAJOR, LNET_VERSION_MINOR);
        return 0;
    }
    for (size_t i = 0; i < BASE_ARRAY_LEN(commands); i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return commands[i].main(argc - 1, argv + 1);
        }
    }
    (void)fprintf(stderr, "causeway: unknown command '%s'; see causeway --help\n", argv[1]);
    return 2;
}
