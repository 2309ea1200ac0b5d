/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mount and unmount: the context, its engines, and what the MDS tells about the others.
 *
 * The only connection made at mount is to the MDS's first reactor. Its reply says where the root,
 * the other reactors and the OSTs are; connections to those are made when they are first used.
 */
#include "clients/lib/core.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TIMEOUT_DEFAULT_NS UINT64_C(10000000000)
#define GOODBYE_NS         UINT64_C(1000000000)
#define RPCS_DEFAULT       16u
#define SPIN_DEFAULT_NS    4000u
#define YIELD_DEFAULT_NS   100000u
#define IMPORTS_MAX        256u
#define EXPORTS_MAX        (2 * CLIENT_PIECES_MAX)

static uint64_t
stamp_now(void *arg)
{
    (void)arg;
    return base_clock_now_ns();
}

/* A process may hold several mounts; each context needs a pid of its own. */
static uint32_t
pid_next(void)
{
    static uint32_t last;

    return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

static int
context_open(struct causeway *fs, const struct causeway_options *options)
{
    const struct lnet_options lnet_options = {
        .struct_bytes = sizeof(lnet_options),
        .pid = pid_next(),
        .seed = base_clock_wall_ns() ^ ((uint64_t)getpid() << 32),
        .stamp = stamp_now,
        .log = options->log,
        .log_arg = options->log_arg,
        .log_level = LNET_LOG_WARN,
        .connect_timeout_ns = fs->timeout_ns,
    };
    const struct lnet_ni_options ni_options = {
        .struct_bytes = sizeof(ni_options),
        .net = options->net != NULL ? options->net : "shm",
        .run_dir = options->run_dir,
        .flags = LNET_NI_CONNECT_ONLY,
        .rma_path = options->ni_rma_path,
    };
    const struct bulk_options bulk_options = {
        .struct_bytes = sizeof(bulk_options),
        .path = options->bulk_path,
        .exports_max = EXPORTS_MAX,
        .xfers_max = EXPORTS_MAX,
    };
    const struct ptlrpc_options rpc_options = {
        .struct_bytes = sizeof(rpc_options),
        .requests_max = CLIENT_REQUESTS_MAX,
        .imports_max = IMPORTS_MAX,
        .timeout_ns = fs->timeout_ns,
        .log = options->log,
        .log_arg = options->log_arg,
        .log_level = LNET_LOG_WARN,
    };
    int rc = lnet_open(&lnet_options, &fs->ctx);

    if (rc == 0) {
        rc = lnet_ni_add(fs->ctx, &ni_options, NULL);
    }
    if (rc == 0) {
        rc = bulk_open(fs->ctx, &bulk_options, &fs->bulk);
    }
    if (rc == 0) {
        rc = ptlrpc_open(fs->ctx, fs->bulk, &rpc_options, &fs->rpc);
    }
    if (rc == 0) {
        fs->fd = lnet_fd(fs->ctx);
    }
    return rc;
}

static void
context_close(struct causeway *fs)
{
    if (fs->rpc != NULL) {
        ptlrpc_close(fs->rpc);
    }
    if (fs->bulk != NULL) {
        bulk_close(fs->bulk);
    }
    lnet_close(fs->ctx);
}

/* Frees what the mount has but for the context. */
static void
fs_free(struct causeway *fs)
{
    client_files_fini(fs);
    if (fs->has_aios) {
        base_pool_fini(&fs->aios);
    }
    if (fs->has_pieces) {
        base_pool_fini(&fs->pieces);
    }
    if (fs->wake_fd >= 0) {
        (void)close(fs->wake_fd);
    }
    (void)pthread_mutex_destroy(&fs->mutex);
    free(fs->mds);
    free(fs->oss);
    free(fs);
}

void
client_mount_abandon(struct causeway *fs)
{
    fs_free(fs);
}

static int
fs_create(const struct causeway_options *options, struct causeway **fs_out)
{
    struct causeway *fs = calloc(1, sizeof(*fs));

    if (fs == NULL) {
        return -ENOMEM;
    }
    const struct base_wait_opts wait_options = {
        .spin_ns = options->spin_ns != 0 ? options->spin_ns : SPIN_DEFAULT_NS,
        .yield_ns = YIELD_DEFAULT_NS,
    };

    (void)pthread_mutex_init(&fs->mutex, NULL);
    base_wait_init(&fs->wait, &wait_options);
    base_list_init(&fs->followers);
    base_list_init(&fs->starved);
    base_list_init(&fs->lenders);
    base_list_init(&fs->closers);
    base_list_init(&fs->background_waiters);
    base_list_init(&fs->piece_waiters);
    base_list_init(&fs->files);
    base_list_init(&fs->files_free);
    base_list_init(&fs->aios_done);
    base_list_init(&fs->aio_waiters);
    fs->uid = geteuid();
    fs->gid = getegid();
    fs->timeout_ns = options->timeout_ns != 0 ? options->timeout_ns : TIMEOUT_DEFAULT_NS;
    fs->max_rpcs_in_flight =
        options->max_rpcs_in_flight != 0 ? options->max_rpcs_in_flight : RPCS_DEFAULT;
    fs->has_lease = options->no_lease == 0;
    fs->has_checksum = options->checksum != 0;
    fs->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = fs->wake_fd < 0 ? -errno : 0;

    fs->mds = calloc(CLIENT_REACTORS_MAX, sizeof(*fs->mds));
    if (rc == 0 && fs->mds == NULL) {
        rc = -ENOMEM;
    }
    if (rc == 0) {
        rc = base_pool_init(&fs->pieces, sizeof(struct osc_piece), CLIENT_PIECES_MAX, 0);
        fs->has_pieces = rc == 0;
    }
    if (rc != 0) {
        fs_free(fs);
        return rc;
    }
    *fs_out = fs;
    return 0;
}

/* Has OST @index the very reactors of an OSS named before, or none of any? */
static bool
is_of_whole_oss(const struct mds_connect_ost *osts, uint32_t index)
{
    const struct mds_connect_ost *ost = &osts[index];

    for (uint32_t i = 0; i < index; i++) {
        const bool is_same = osts[i].pid0 == ost->pid0 && osts[i].reactors == ost->reactors;
        const bool is_apart = (uint64_t)osts[i].pid0 + osts[i].reactors <= ost->pid0 ||
                              (uint64_t)ost->pid0 + ost->reactors <= osts[i].pid0;

        if (osts[i].nid == ost->nid && !is_same && !is_apart) {
            return false;
        }
    }
    return true;
}

/* The targets of one OSS, which several OSTs share. */
static struct client_target *
oss_targets(struct causeway *fs, const struct mds_connect_ost *ost)
{
    const struct lnet_nid nid = {ost->nid};
    struct client_target *first = &fs->oss[fs->oss_targets];

    for (uint32_t i = 0; i < fs->oss_targets; i++) {
        if (fs->oss[i].process.nid.value == nid.value && fs->oss[i].process.pid == ost->pid0) {
            return &fs->oss[i];
        }
    }
    for (uint32_t i = 0; i < ost->reactors; i++) {
        const struct lnet_process process = {.nid = nid, .pid = ost->pid0 + i};
        char text[LNET_PROC_TEXT_MAX];

        client_target_init(&first[i], fs, &process, PTLRPC_PORTAL_OST,
                           lnet_process_format(&process, text));
    }
    fs->oss_targets += ost->reactors;
    return first;
}

int
client_connected(struct causeway *fs, const void *data, uint32_t bytes)
{
    struct mds_connect_rep rep;
    struct mds_connect_ost osts[CLIENT_OSTS_MAX];

    if (bytes < sizeof(rep)) {
        return -EPROTO;
    }
    memcpy(&rep, data, sizeof(rep));
    if (rep.version != MDS_PROTO_VERSION || rep.reactors == 0 ||
        rep.reactors > CLIENT_REACTORS_MAX || rep.ost_count > CLIENT_OSTS_MAX ||
        bytes - sizeof(rep) < rep.ost_count * sizeof(osts[0])) {
        return -EPROTO;
    }
    uint32_t targets = 0;

    memcpy(osts, (const char *)data + sizeof(rep), rep.ost_count * sizeof(osts[0]));
    for (uint32_t i = 0; i < rep.ost_count; i++) {
        if (osts[i].reactors == 0 || osts[i].reactors > CLIENT_REACTORS_MAX ||
            !is_of_whole_oss(osts, i)) {
            return -EPROTO;
        }
        targets += osts[i].reactors;
    }
    fs->oss = calloc(base_max_u32(targets, 1), sizeof(*fs->oss));
    if (fs->oss == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < rep.ost_count; i++) {
        fs->osts[i] = (struct client_ost){
            .targets = oss_targets(fs, &osts[i]),
            .reactors = osts[i].reactors,
            .index = osts[i].ost,
        };
    }
    for (uint32_t i = 1; i < rep.reactors; i++) {
        const struct lnet_process process = {
            .nid = fs->mds[0].process.nid,
            .pid = rep.pid0 + i,
        };
        char text[LNET_PROC_TEXT_MAX];

        client_target_init(&fs->mds[i], fs, &process, PTLRPC_PORTAL_MDS,
                           lnet_process_format(&process, text));
    }
    fs->ost_count = rep.ost_count;
    fs->root = rep.root;
    fs->layout = (struct lov_layout){
        .stripe_bytes = rep.stripe_bytes,
        .stripe_count = rep.stripe_count,
    };
    fs->mds_reactors = rep.reactors;
    return 0;
}

/* What connecting failed with, as mount's caller reads it. */
static int
connect_error(int rc)
{
    return rc == -ECONNREFUSED || rc == -ENOENT || rc == -ENOTCONN ? -EHOSTUNREACH : rc;
}

int
causeway_mount(const struct causeway_options *options, struct causeway **fs_out)
{
    struct lnet_process process;
    struct causeway *fs = NULL;
    struct client_call call;
    struct client_op op;

    if (options == NULL || options->struct_bytes != sizeof(*options) || options->mds == NULL ||
        lnet_process_parse(options->mds, &process) != 0 || options->flags != 0 ||
        options->bulk_path >= BULK_PATH_COUNT || options->max_rpcs_in_flight > 256) {
        return -EINVAL;
    }
    int rc = fs_create(options, &fs);

    if (rc != 0) {
        return rc;
    }
    rc = context_open(fs, options);
    if (rc == 0) {
        rc = client_begin(&call, fs);
    }
    if (rc != 0) {
        context_close(fs);
        fs_free(fs);
        return rc;
    }
    client_target_init(&fs->mds[0], fs, &process, PTLRPC_PORTAL_MDS, options->mds);
    client_op_init(&op, fs, NULL);
    fs->mount_op = &op;
    rc = client_target_open(&fs->mds[0]);
    if (rc == 0) {
        rc = client_wait_until(&call, &op, fs->now_ns + 2 * fs->timeout_ns);
    }
    fs->mount_op = NULL;
    client_end(&call);
    if (rc != 0) {
        context_close(fs);
        fs_free(fs);
        return connect_error(rc);
    }
    *fs_out = fs;
    return 0;
}

static void
targets_close(struct causeway *fs, struct client_target *targets, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (targets[i].import != NULL) {
            fs->closing_count++;
            ptlrpc_import_close(targets[i].import);
        }
    }
}

void
causeway_unmount(struct causeway *fs)
{
    struct client_call call;
    struct client_op op;

    if (fs == NULL || client_begin(&call, fs) != 0) {
        return;
    }
    const uint64_t deadline_ns = fs->now_ns + GOODBYE_NS;

    while (!base_list_empty(&fs->files) && fs->now_ns < deadline_ns) {
        if (!client_file_close(
                BASE_CONTAINER_OF(base_list_first(&fs->files), struct causeway_file, link))) {
            client_wait_background(&call, 0, deadline_ns);
        }
    }
    client_closes_flush(fs);
    osc_release_flush(fs);
    client_wait_background(&call, 0, deadline_ns);
    client_op_init(&op, fs, NULL);
    fs->mount_op = &op;
    targets_close(fs, fs->mds, fs->mds_reactors);
    targets_close(fs, fs->oss, fs->oss_targets);
    if (fs->closing_count > 0) {
        (void)client_wait_until(&call, &op, deadline_ns + GOODBYE_NS);
    }
    fs->mount_op = NULL;
    client_end(&call);
    context_close(fs);
    fs_free(fs);
}

void
causeway_identity_set(struct causeway *fs, uid_t uid, gid_t gid)
{
    struct client_call call;

    if (client_begin(&call, fs) == 0) {
        fs->uid = uid;
        fs->gid = gid;
        client_end(&call);
    }
}

void
causeway_absolute_set(struct causeway *fs, causeway_absolute_fn fn, void *arg)
{
    fs->absolute = fn;
    fs->absolute_arg = arg;
}
