/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a metadata server's core, and of the calls that wait in it.
 */
#include "servers/mds/out.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define INODES_MAX_DEFAULT (UINT64_C(16) << 20)
#define STRIPE_BYTES       (UINT32_C(1) << 20)
#define SMALL_BYTES_MAX    (UINT64_C(256) << 20) /* locks and parked calls */
#define INODE_BYTES_MEAN   UINT64_C(512)         /* with its name; longer names and links share */
#define BYTES_MIN          (UINT64_C(16) << 20)

static int
options_check(const struct mds_options *options)
{
    if (options->struct_bytes != sizeof(*options) || options->reactors == 0 ||
        options->reactor >= options->reactors || options->ost_count > MDS_OSTS_MAX ||
        options->stripe_bytes % 4096 != 0) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < options->ost_count; i++) {
        if (options->osts[i].reactors == 0) {
            return -EINVAL;
        }
    }
    return 0;
}

/* The root directory, at the first reactor. Like that of a tmpfs. */
static int
root_make(struct mds *mds)
{
    struct mdt_inode *root = NULL;
    const struct fid fid = FID_ROOT;
    const struct mds_attr attr = {
        .fid = fid,
        .mode = S_IFDIR | S_ISVTX | 0777,
        .nlink = 2,
        .size = 4096,
        .blocks = 8,
        .atime_ns = mds->wall_ns,
        .mtime_ns = mds->wall_ns,
        .ctime_ns = mds->wall_ns,
    };

    return mds->ops->make(mds->store, &(struct mdt_make){.attr = &attr, .parent = &fid}, &root);
}

static void
store_wake(void *user)
{
    mds_wake(user);
}

void
mds_store_committed(void *user, uint64_t ticket)
{
    struct mds *mds = user;

    while (!base_list_empty(&mds->committing)) {
        struct mds_parked *parked =
            BASE_CONTAINER_OF(base_list_first(&mds->committing), struct mds_parked, link);

        if (parked->ticket > ticket) {
            return;
        }
        mds_parked_complete(mds, parked, parked->status);
    }
}

static int
store_open(struct mds *mds, uint64_t seed)
{
    const struct mdt_store_options options = {
        .inodes_max = mds->options.inodes_max,
        .bytes_max = mds->bytes_max,
        .hash_seed = seed,
        .wake = store_wake,
        .committed = mds_store_committed,
        .user = mds,
    };

    if (mds->ops->keeps_nothing) {
        return 0;
    }
    int rc = mds->ops->open(&options, &mds->store);

    if (rc == 0 && mds->reactor == 0) {
        rc = root_make(mds);
        if (rc != 0) {
            mds->ops->close(mds->store);
        }
    }
    return rc;
}

int
mds_core_open(const struct mds_options *options, const struct mds_env *env, uint64_t seed,
              uint64_t now_ns, struct mds **mds_out)
{
    int rc = options_check(options);

    if (rc != 0) {
        return rc;
    }
    const struct mdt_store_ops *ops =
        mdt_store_find(options->store == NULL ? "mem" : options->store);

    if (ops == NULL) {
        return -ENOENT;
    }
    struct mds *mds = calloc(1, sizeof(*mds));

    if (mds == NULL) {
        return -ENOMEM;
    }
    mds->ops = ops;
    mds->env = *env;
    mds->options = *options;
    mds->options.osts = NULL;
    if (mds->options.inodes_max == 0) {
        mds->options.inodes_max = INODES_MAX_DEFAULT;
    }
    mds->bytes_max = base_min_u64(mds->options.inodes_max, UINT64_MAX / INODE_BYTES_MEAN / 2) *
                         INODE_BYTES_MEAN +
                     BYTES_MIN;
    mds->reactor = options->reactor;
    mds->reactors = options->reactors;
    mds->ost_count = options->ost_count;
    if (options->ost_count > 0) {
        (void)memcpy(mds->osts, options->osts, options->ost_count * sizeof(*options->osts));
        mds->stripe_next = options->reactor % options->ost_count;
    }
    mds->stripe_bytes = options->stripe_bytes == 0 ? STRIPE_BYTES : options->stripe_bytes;
    mds->stripe_count = options->stripe_count == 0 ? 1 : options->stripe_count;
    mds->handle_free = UINT32_MAX;
    base_list_init(&mds->clients);
    base_list_init(&mds->waiting);
    base_list_init(&mds->later);
    base_list_init(&mds->committing);
    base_list_init(&mds->ready);
    base_list_init(&mds->token_waiters);
    mds->again_ns = UINT64_MAX;
    base_list_init(&mds->appending);
    arena_init(&mds->arena, SMALL_BYTES_MAX);
    mds_time_set(mds, now_ns);
    /*
     * Sequences start at the wall clock: a server that starts anew with an empty store does not
     * give the FIDs of files whose objects an OSS may still have.
     */
    mds->fid_next = (struct fid){
        .seq = FID_SEQ_FIRST + mds->reactor + ((uint64_t)mds->wall_ns >> 26) * mds->reactors,
        .oid = 2,
    };
    mds->handle_chunks = calloc(MDS_HANDLES_MAX / MDS_HANDLES_AT_ONCE, sizeof(void *));
    mds->out_body = malloc(sizeof(struct out_req) + MDS_PATH_BYTES_MAX + 1);
    mds->out_stop = malloc(sizeof(struct mds_rep_head) + OUT_TEXT_BYTES_MAX);
    if (mds->handle_chunks == NULL || mds->out_body == NULL || mds->out_stop == NULL) {
        rc = -ENOMEM;
        goto fail_chunks;
    }
    rc = mds_destroy_open(mds);
    if (rc != 0) {
        goto fail_chunks;
    }
    rc = store_open(mds, seed);
    if (rc != 0) {
        goto fail_destroy;
    }
    *mds_out = mds;
    return 0;

fail_destroy:
    mds_destroy_close(mds);
fail_chunks:
    free(mds->out_stop);
    free(mds->out_body);
    free(mds->handle_chunks);
    free(mds);
    return rc;
}

void
mds_core_close(struct mds *mds)
{
    BASE_ASSERT(base_list_empty(&mds->clients));
    if (!mds->ops->keeps_nothing) {
        mds->ops->close(mds->store);
    }
    mds_destroy_close(mds);
    for (uint32_t i = 0; i < mds->handle_count / MDS_HANDLES_AT_ONCE; i++) {
        arena_large_free(mds->handle_chunks[i], MDS_HANDLES_AT_ONCE * sizeof(struct mds_handle));
    }
    free(mds->handle_chunks);
    free(mds->out_body);
    free(mds->out_stop);
    arena_fini(&mds->arena);
    free(mds);
}

void
mds_time_set(struct mds *mds, uint64_t now_ns)
{
    mds->now_ns = now_ns;
    mds->wall_ns = (int64_t)(now_ns + mds->options.wall_offset_ns);
}

/* ---- parked calls ---- */

struct mds_parked *
mds_park(struct mds *mds, const struct mds_call *call, enum mds_parked_why why,
         struct base_list *list)
{
    struct mds_parked *parked = mds->counters.parked_now >= MDS_PARKED_MAX
                                    ? NULL
                                    : arena_take(&mds->arena, sizeof(*parked));

    if (parked == NULL) {
        return NULL;
    }
    *parked = (struct mds_parked){
        .call = *call,
        .why = why,
        .until_ns = mds->now_ns + MDS_PARKED_NS,
    };
    base_list_init(&parked->link);
    base_list_init(&parked->client_link);
    if (list != NULL) {
        base_list_append(list, &parked->link);
    }
    if (call->client != NULL) {
        base_list_append(&call->client->parked, &parked->client_link);
    }
    mds->counters.parked_count++;
    mds->counters.parked_now++;
    mds->counters.parked_max = base_max_u64(mds->counters.parked_max, mds->counters.parked_now);
    return parked;
}

/* Frees a parked call that needs no answer from it any more. */
static void
parked_free(struct mds *mds, struct mds_parked *parked)
{
    base_list_unlink(&parked->link);
    base_list_unlink(&parked->client_link);
    mds->counters.parked_now--;
    arena_return(&mds->arena, parked, sizeof(*parked));
}

void
mds_parked_complete(struct mds *mds, struct mds_parked *parked, int status)
{
    struct mds_call call = parked->call;

    parked_free(mds, parked);
    if (call.op != NULL) {
        mds_op_ready(call.op, status);
    } else {
        mds->env.complete(mds, &call, status);
    }
}

void
mds_parked_finish(struct mds *mds, struct mds_parked *parked, int status)
{
    uint64_t ticket = 0;

    if (mds->ops->commit(mds->store, &ticket) == 0) {
        mds_parked_complete(mds, parked, status);
        return;
    }
    parked->why = MDS_PARKED_COMMIT;
    parked->ticket = ticket;
    parked->status = status;
    base_list_append(&mds->committing, &parked->link);
}

void
mds_wake(struct mds *mds)
{
    mds->is_wake_wanted = true;
    mds->env.wake_at(mds, mds->now_ns);
}

/* ---- calls ---- */

static int
call_run(struct mds *mds, struct mds_call *call)
{
    switch ((enum mds_opc)call->opc) {
    case MDS_GETATTR:
        return mds_getattr(mds, call);
    case MDS_CLOSE:
        return mds_op_close(mds, call);
    case MDS_READDIR:
        return mds_readdir(mds, call);
    case MDS_STATFS:
        return mds_statfs(mds, call);
    case MDS_SYNC:
        return 0; /* all that was answered is committed */
    case MDS_READLINK:
        return mds_readlink(mds, call);
    case MDS_ACCESS:
        return mds_access(mds, call);
    case MDS_FLOCK:
        return mds_flock(mds, call);
    case MDS_APPEND_LOCK:
        return mds_append_lock(mds, call);
    case MDS_APPEND_UNLOCK:
        return mds_append_unlock(mds, call);
    case MDS_REINT_SETATTR:
        return mds_setattr(mds, call);
    case MDS_REINT_CREATE:
        return mds_create(mds, call);
    case MDS_REINT_LINK:
        return mds_link(mds, call);
    case MDS_REINT_UNLINK:
        return mds_unlink(mds, call);
    case MDS_REINT_RENAME:
        return mds_rename(mds, call);
    case MDS_REINT_OPEN:
        return mds_op_open(mds, call);
    }
    return -EOPNOTSUPP;
}

int
mds_call_end(struct mds *mds, const struct mds_call *call, int rc)
{
    uint64_t ticket = 0;

    if (BASE_LIKELY(mds->ops->commit(mds->store, &ticket) == 0)) {
        return rc;
    }
    struct mds_parked *parked = mds_park(mds, call, MDS_PARKED_COMMIT, &mds->committing);

    if (parked == NULL) {
        return -EAGAIN; /* it happened all the same; a resend is told what it changed */
    }
    parked->ticket = ticket;
    parked->status = rc;
    return MDS_PARKED;
}

/* Runs a call and ends its changes; everything but parking for MDS_WAIT. */
static int
call_commit(struct mds *mds, struct mds_call *call)
{
    call->reply_bytes = 0;
    const int rc = call_run(mds, call);

    switch (rc) {
    case MDS_STOPPED:
        return 0;
    case MDS_LINK_AWAY:
        return mds_remote_symlink(mds, call);
    case MDS_PARKED:
    case MDS_WAIT:
        return rc;
    case -EINPROGRESS:
        return MDS_WAIT;
    default:
        return mds_call_end(mds, call, rc);
    }
}

int
mds_execute(struct mds *mds, struct mds_call *call)
{
    if (mds->ops->keeps_nothing) {
        call->reply_bytes = 0;
        return mds_null_execute(mds, call);
    }
    const int rc = call_commit(mds, call);

    if (BASE_LIKELY(rc != MDS_WAIT)) {
        return rc;
    }
    if (mds_park(mds, call, MDS_PARKED_RERUN, &mds->waiting) == NULL) {
        return -EAGAIN;
    }
    mds->env.wake_at(mds, mds->now_ns + MDS_PARKED_NS);
    return MDS_PARKED;
}

void
mds_wake_run(struct mds *mds)
{
    while (mds->is_wake_wanted) {
        struct base_list run;

        mds->is_wake_wanted = false;
        mds_op_run(mds);
        base_list_init(&run);
        base_list_move_all(&run, &mds->waiting);
        while (!base_list_empty(&run)) {
            struct mds_parked *parked =
                BASE_CONTAINER_OF(base_list_first(&run), struct mds_parked, link);
            const int rc = call_commit(mds, &parked->call);

            if (rc == MDS_WAIT) {
                base_list_unlink(&parked->link);
                base_list_append(&mds->waiting, &parked->link);
            } else if (rc == MDS_PARKED) {
                parked_free(mds, parked); /* it was parked anew */
            } else {
                mds_parked_complete(mds, parked, rc);
            }
        }
    }
}

/* Calls that waited too long fail. They are in order of their deadlines but for those run again. */
static void
waiting_tick(struct mds *mds)
{
    uint64_t next_ns = UINT64_MAX;

    BASE_LIST_FOREACH_SAFE(link, next, &mds->waiting) {
        struct mds_parked *parked = BASE_CONTAINER_OF(link, struct mds_parked, link);

        if (parked->until_ns <= mds->now_ns) {
            mds_parked_complete(mds, parked, -ETIMEDOUT);
        } else {
            next_ns = base_min_u64(next_ns, parked->until_ns);
        }
    }
    mds->env.wake_at(mds, next_ns);
}

void
mds_tick(struct mds *mds, uint64_t now_ns)
{
    mds_time_set(mds, now_ns);
    mds_destroy_tick(mds);
    mds_append_tick(mds);
    if (mds->again_ns <= now_ns) {
        mds->again_ns = UINT64_MAX;
        base_list_move_all(&mds->waiting, &mds->later);
        mds->is_wake_wanted = true;
    } else {
        mds->env.wake_at(mds, mds->again_ns);
    }
    waiting_tick(mds);
    mds_wake_run(mds);
}

/* ---- clients ---- */

int
mds_client_open(struct mds *mds, void *user, struct mds_client **client_out)
{
    struct mds_client *client = malloc(sizeof(*client));

    if (client == NULL) {
        return -ENOMEM;
    }
    base_list_init(&client->link);
    base_list_init(&client->handles);
    base_list_init(&client->parked);
    client->user = user;
    base_list_append(&mds->clients, &client->link);
    *client_out = client;
    return 0;
}

void
mds_client_close(struct mds *mds, struct mds_client *client)
{
    BASE_LIST_FOREACH_SAFE(link, next, &client->parked) {
        struct mds_parked *parked = BASE_CONTAINER_OF(link, struct mds_parked, client_link);

        switch (parked->why) {
        case MDS_PARKED_APPEND:
            mds_append_forget(mds, parked);
            mds_parked_complete(mds, parked, -ESTALE);
            break;
        case MDS_PARKED_RERUN:
            mds_parked_complete(mds, parked, -ESTALE);
            break;
        case MDS_PARKED_COMMIT:
        case MDS_PARKED_REMOTE:
        case MDS_PARKED_TOKEN:
            base_list_unlink(&parked->client_link);
            parked->call.client = NULL;
            break;
        }
    }
    while (!base_list_empty(&client->handles)) {
        struct mds_handle *handle =
            BASE_CONTAINER_OF(base_list_first(&client->handles), struct mds_handle, link);

        mds_handle_close(mds, handle, true); /* nobody knows whether it wrote */
    }
    base_list_unlink(&client->link);
    free(client);
}

void
mds_stats_get(const struct mds *mds, struct mds_stats *stats_out)
{
    struct mdt_store_stats store = {0};

    if (!mds->ops->keeps_nothing) {
        mds->ops->stats(mds->store, &store);
    }
    *stats_out = (struct mds_stats){
        .inodes = store.inodes,
        .inodes_max = mds->options.inodes_max,
        .directories = store.directories,
        .bytes = store.bytes + mds->arena.bytes,
        .open_handles = mds->counters.open_handles,
        .orphans = mds->counters.orphans,
        .destroys_queued = mds->counters.destroys_queued,
        .destroys_done = mds->counters.destroys_done,
        .moved_count = mds->counters.moved_count,
        .remote_ops = mds->counters.remote_ops,
    };
}
