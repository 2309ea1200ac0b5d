/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The subcommands of `causeway`: argv[0] is the subcommand's name. Each returns the exit status: 0,
 * 1 for a failure, 2 for a wrong command line; `run` that of its command.
 */
#pragma once

/* A program on embedded servers. */
int cmd_run(int argc, char **argv);
/* The metadata server. */
int cmd_mds(int argc, char **argv);
/* The object server. */
int cmd_oss(int argc, char **argv);
/* Questions to running servers. */
int cmd_lctl(int argc, char **argv);
/* The IOR workload. */
int cmd_ior(int argc, char **argv);
/* The mdtest workload. */
int cmd_mdtest(int argc, char **argv);
