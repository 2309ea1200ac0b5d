/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MDS and some OSSs in threads of this process, over shm in a run directory of their own; or the
 * same in a child process, to be killed.
 */
#pragma once

#include "causeway/client.h"
#include "causeway/server.h"

#include <sys/types.h>

struct cluster;

struct cluster_options { /* zeroes: one of each, stores in memory */
    uint32_t mds_reactors;
    uint32_t oss_count;
    uint32_t oss_reactors;
    uint32_t osts_per_oss;
    uint32_t stripe_bytes;
    uint32_t stripe_count;
    uint32_t no_lease;
    uint64_t bytes_max;    /* of each OSS reactor; 0: 256 MiB */
    const char *mds_store; /* NULL: "mem" */
    const char *oss_store;
};

/* Starts the servers. Returns 0 or what failed. */
int cluster_start(const struct cluster_options *options, struct cluster **cluster_out);

/* Stops them and removes the run directory. NULL is ignored. */
void cluster_stop(struct cluster *cluster);

/* Where they meet: for causeway_options.run_dir. */
const char *cluster_run_dir(const struct cluster *cluster);

/* The MDS's address: for causeway_options.mds. */
const char *cluster_mds(const struct cluster *cluster);

/* Mounts with the default options but for those given (may be NULL). */
int cluster_mount(const struct cluster *cluster, const struct causeway_options *options,
                  struct causeway **fs_out);

/* Sums over all reactors, read in their threads. */
void cluster_mds_stats(struct cluster *cluster, struct mds_stats *stats_out);
void cluster_oss_stats(struct cluster *cluster, struct oss_stats *stats_out);

/*
 * The same in a child process. The caller may kill *pid_out. cluster_stop() does if it still runs.
 * Statistics are not to be had.
 */
int cluster_fork(const struct cluster_options *options, struct cluster **cluster_out,
                 pid_t *pid_out);
