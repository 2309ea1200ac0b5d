/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * causeway-mpi - the workloads with MPI: what `causeway ior` and `causeway mdtest` become under
 * mpirun. It can be started by itself too.
 */
#include "tools/commands.h"

#include <stdio.h>
#include <string.h>

int
main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "ior") == 0) {
        return cmd_ior(argc - 1, argv + 1);
    }
    if (argc >= 2 && strcmp(argv[1], "mdtest") == 0) {
        return cmd_mdtest(argc - 1, argv + 1);
    }
    (void)fprintf(stderr, "usage: causeway-mpi ior|mdtest [options]\n");
    return 2;
}
