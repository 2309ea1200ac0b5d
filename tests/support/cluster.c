/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NID 1 is the MDS, NIDs 2, 3, ... the OSSs; their reactors are pids 0, 1, ...
 */
#include "tests/support/cluster.h"

#include "base/assert.h"
#include "base/clock.h"
#include "tests/support/reactor.h"
#include "tests/support/run_dir.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define NODES_MAX 64u

/* One reactor: an MDS's or an OSS's. */
struct node {
    struct cluster *cluster;
    struct reactor *reactor;
    bool is_mds;
    uint32_t oss;   /* which */
    uint32_t index; /* of the reactor */
    struct mds *mds;
    struct oss *oss_server;
    struct mds_stats mds_stats;
    struct oss_stats oss_stats;
};

struct cluster {
    struct cluster_options options;
    char run_dir[64];
    pid_t child; /* 0: none */
    struct node nodes[NODES_MAX];
    uint32_t node_count;
    struct mds_ost osts[64];
    uint32_t ost_count;
};

static struct lnet_nid
nid_of(uint32_t number)
{
    char text[LNET_NID_TEXT_MAX];
    struct lnet_nid nid = {0};

    (void)snprintf(text, sizeof(text), "%u@shm", number);
    (void)lnet_nid_parse(text, &nid);
    return nid;
}

static int
node_open(struct ptlrpc *rpc, void *arg)
{
    struct node *node = arg;
    const struct cluster *cluster = node->cluster;
    const uint64_t wall_offset_ns = base_clock_wall_ns() - base_clock_now_ns();

    if (node->is_mds) {
        const struct mds_options options = {
            .struct_bytes = sizeof(options),
            .reactor = node->index,
            .reactors = cluster->options.mds_reactors,
            .nid = nid_of(1),
            .osts = cluster->osts,
            .ost_count = cluster->ost_count,
            .stripe_bytes = cluster->options.stripe_bytes,
            .stripe_count = cluster->options.stripe_count,
            .store = cluster->options.mds_store,
            .inodes_max = 1 << 20,
            .wall_offset_ns = wall_offset_ns,
        };

        return mds_open(rpc, &options, &node->mds);
    }
    const struct oss_options options = {
        .struct_bytes = sizeof(options),
        .reactor = node->index,
        .reactors = cluster->options.oss_reactors,
        .ost_count = cluster->options.osts_per_oss,
        .store = cluster->options.oss_store,
        .bytes_max = cluster->options.bytes_max,
        .objects_max = 1 << 20,
        .prefault_bytes = 1 << 20,
        .no_lease = cluster->options.no_lease,
        .wall_offset_ns = wall_offset_ns,
    };

    return oss_open(rpc, &options, &node->oss_server);
}

static void
node_close(void *arg)
{
    struct node *node = arg;

    mds_close(node->mds);
    oss_close(node->oss_server);
}

static int
node_start(struct cluster *cluster, bool is_mds, uint32_t oss, uint32_t index)
{
    struct node *node = &cluster->nodes[cluster->node_count];
    char address[16];

    (void)snprintf(address, sizeof(address), "%u", is_mds ? 1 : 2 + oss);
    *node = (struct node){.cluster = cluster, .is_mds = is_mds, .oss = oss, .index = index};
    const struct reactor_options options = {
        .run_dir = cluster->run_dir,
        .address = address,
        .pid = index,
        .open = node_open,
        .close = node_close,
        .arg = node,
    };
    const int rc = reactor_start(&options, &node->reactor);

    if (rc == 0) {
        cluster->node_count++;
    }
    return rc;
}

static void
options_fill(struct cluster_options *options)
{
    options->mds_reactors = base_max_u32(options->mds_reactors, 1);
    options->oss_count = base_max_u32(options->oss_count, 1);
    options->oss_reactors = base_max_u32(options->oss_reactors, 1);
    options->osts_per_oss = base_max_u32(options->osts_per_oss, 1);
    options->stripe_bytes = options->stripe_bytes != 0 ? options->stripe_bytes : 65536;
    options->stripe_count = base_max_u32(options->stripe_count, 1);
    options->bytes_max = options->bytes_max != 0 ? options->bytes_max : UINT64_C(256) << 20;
}

static int
servers_start(struct cluster *cluster)
{
    const struct cluster_options *options = &cluster->options;
    int rc = 0;

    for (uint32_t oss = 0; oss < options->oss_count; oss++) {
        for (uint32_t ost = 0; ost < options->osts_per_oss; ost++) {
            cluster->osts[cluster->ost_count++] = (struct mds_ost){
                .nid = nid_of(2 + oss),
                .reactors = (uint16_t)options->oss_reactors,
                .ost = (uint16_t)ost,
            };
        }
    }
    for (uint32_t oss = 0; oss < options->oss_count; oss++) {
        for (uint32_t i = 0; rc == 0 && i < options->oss_reactors; i++) {
            rc = node_start(cluster, false, oss, i);
        }
    }
    for (uint32_t i = 0; rc == 0 && i < options->mds_reactors; i++) {
        rc = node_start(cluster, true, 0, i);
    }
    return rc;
}

static int
cluster_make(const struct cluster_options *options, struct cluster **cluster_out)
{
    struct cluster *cluster = calloc(1, sizeof(*cluster));

    if (cluster == NULL) {
        return -ENOMEM;
    }
    if (options != NULL) {
        cluster->options = *options;
    }
    options_fill(&cluster->options);
    run_dir_make(cluster->run_dir);
    *cluster_out = cluster;
    return 0;
}

int
cluster_start(const struct cluster_options *options, struct cluster **cluster_out)
{
    struct cluster *cluster = NULL;
    int rc = cluster_make(options, &cluster);

    if (rc != 0) {
        return rc;
    }
    rc = servers_start(cluster);
    if (rc != 0) {
        cluster_stop(cluster);
        return rc;
    }
    *cluster_out = cluster;
    return 0;
}

void
cluster_stop(struct cluster *cluster)
{
    if (cluster == NULL) {
        return;
    }
    if (cluster->child > 0) {
        (void)kill(cluster->child, SIGKILL);
        (void)waitpid(cluster->child, NULL, 0);
    }
    /* The MDS first: it may have objects to destroy. */
    while (cluster->node_count > 0) {
        reactor_stop(cluster->nodes[--cluster->node_count].reactor);
    }
    run_dir_remove(cluster->run_dir);
    free(cluster);
}

int
cluster_fork(const struct cluster_options *options, struct cluster **cluster_out, pid_t *pid_out)
{
    struct cluster *cluster = NULL;
    int ready[2];
    int rc = cluster_make(options, &cluster);

    if (rc != 0) {
        return rc;
    }
    if (pipe(ready) != 0) {
        rc = -errno;
        cluster_stop(cluster);
        return rc;
    }
    cluster->child = fork();
    if (cluster->child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close(ready[0]);
        rc = servers_start(cluster);
        (void)!write(ready[1], &rc, sizeof(rc));
        for (;;) {
            (void)pause();
        }
    }
    (void)close(ready[1]);
    if (cluster->child < 0 || read(ready[0], &rc, sizeof(rc)) != (ssize_t)sizeof(rc)) {
        rc = -EIO;
    }
    (void)close(ready[0]);
    if (rc != 0) {
        cluster_stop(cluster);
        return rc;
    }
    *cluster_out = cluster;
    *pid_out = cluster->child;
    return 0;
}

const char *
cluster_run_dir(const struct cluster *cluster)
{
    return cluster->run_dir;
}

const char *
cluster_mds(const struct cluster *cluster)
{
    (void)cluster;
    return "1@shm";
}

int
cluster_mount(const struct cluster *cluster, const struct causeway_options *options,
              struct causeway **fs_out)
{
    struct causeway_options mine = {0};

    if (options != NULL) {
        mine = *options;
    }
    mine.struct_bytes = sizeof(mine);
    mine.mds = cluster_mds(cluster);
    mine.run_dir = cluster->run_dir;
    return causeway_mount(&mine, fs_out);
}

static void
stats_take(struct ptlrpc *rpc, void *arg)
{
    struct node *node = arg;

    (void)rpc;
    if (node->is_mds) {
        mds_stats_get(node->mds, &node->mds_stats);
    } else {
        oss_stats_get(node->oss_server, &node->oss_stats);
    }
}

void
cluster_mds_stats(struct cluster *cluster, struct mds_stats *stats_out)
{
    *stats_out = (struct mds_stats){0};
    for (uint32_t i = 0; i < cluster->node_count; i++) {
        struct node *node = &cluster->nodes[i];

        if (node->is_mds) {
            reactor_call(node->reactor, stats_take, node);
            stats_out->inodes += node->mds_stats.inodes;
            stats_out->directories += node->mds_stats.directories;
            stats_out->open_handles += node->mds_stats.open_handles;
            stats_out->orphans += node->mds_stats.orphans;
            stats_out->destroys_queued += node->mds_stats.destroys_queued;
            stats_out->destroys_done += node->mds_stats.destroys_done;
        }
    }
}

void
cluster_oss_stats(struct cluster *cluster, struct oss_stats *stats_out)
{
    *stats_out = (struct oss_stats){0};
    for (uint32_t i = 0; i < cluster->node_count; i++) {
        struct node *node = &cluster->nodes[i];

        if (!node->is_mds) {
            reactor_call(node->reactor, stats_take, node);
            stats_out->objects += node->oss_stats.objects;
            stats_out->bytes_used += node->oss_stats.bytes_used;
            stats_out->leases_out += node->oss_stats.leases_out;
            stats_out->leases_total += node->oss_stats.leases_total;
            stats_out->inline_count += node->oss_stats.inline_count;
            stats_out->bulk_count += node->oss_stats.bulk_count;
            stats_out->lease_count += node->oss_stats.lease_count;
            stats_out->crc_errors += node->oss_stats.crc_errors;
        }
    }
}
