/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Locks on files: byte ranges as fcntl(2) has them, never waiting; and the append lock, which waits
 * its turn.
 *
 * A range belongs to (client, owner), the client's process, and hangs on the handle it was locked
 * through: closing that frees it. The append lock belongs to a handle; those who wait for it are
 * parked calls, served in order, and nobody holds it longer than MDS_APPEND_NS.
 *
 * Invariants:
 *
 *   I1  ranges of one owner do not overlap; those of different owners only if both are for reading
 *   I2  an inode has a struct mdt_locks if and only if it has a range, an append holder or waiters
 */
#include "servers/mds/mds.h"

#include <errno.h>
#include <string.h>

struct range {
    struct base_list link;
    const struct mds_client *client;
    uint64_t owner;
    struct mds_handle *handle;
    uint64_t start;
    uint64_t end; /* last byte */
    uint32_t type;
    uint32_t pid;
};

struct mdt_locks {
    struct base_list link; /* of mds.appending while there is a holder */
    struct mdt_inode *inode;
    struct base_list ranges;
    struct base_list waiters; /* parked calls */
    const struct mds_handle *holder;
    uint64_t until_ns;
};

static struct mdt_locks *
locks_get(struct mds *mds, struct mdt_inode *inode)
{
    if (inode->locks == NULL) {
        struct mdt_locks *locks = arena_take(&mds->arena, sizeof(*locks));

        if (locks == NULL) {
            return NULL;
        }
        *locks = (struct mdt_locks){.inode = inode};
        base_list_init(&locks->link);
        base_list_init(&locks->ranges);
        base_list_init(&locks->waiters);
        inode->locks = locks;
    }
    return inode->locks;
}

/* Frees the state if nothing is left in it. */
static void
locks_put(struct mds *mds, struct mdt_locks *locks)
{
    if (base_list_empty(&locks->ranges) && base_list_empty(&locks->waiters) &&
        locks->holder == NULL) {
        base_list_unlink(&locks->link);
        locks->inode->locks = NULL; /* I2 */
        arena_return(&mds->arena, locks, sizeof(*locks));
    }
}

static struct range *
range_make(struct mds *mds)
{
    struct range *range =
        mds->counters.locks >= MDS_LOCKS_MAX ? NULL : arena_take(&mds->arena, sizeof(*range));

    if (range != NULL) {
        mds->counters.locks++;
        base_list_init(&range->link);
    }
    return range;
}

static void
range_free(struct mds *mds, struct range *range)
{
    base_list_unlink(&range->link);
    mds->counters.locks--;
    arena_return(&mds->arena, range, sizeof(*range));
}

static bool
is_mine(const struct range *range, const struct mds_client *client, uint64_t owner)
{
    return range->client == client && range->owner == owner;
}

/* The first range that stands in the way. */
static const struct range *
conflict_find(const struct mdt_locks *locks, const struct mds_client *client,
              const struct mds_flock *req)
{
    const struct range *first = NULL;

    BASE_LIST_FOREACH(link, &locks->ranges) {
        const struct range *range = BASE_CONTAINER_OF(link, struct range, link);
        const bool both_read = range->type == MDS_LOCK_READ && (req->type & MDS_LOCK_WRITE) == 0;

        if (!is_mine(range, client, req->owner) && !both_read && range->start <= req->end &&
            range->end >= req->start && (first == NULL || range->start < first->start)) {
            first = range;
        }
    }
    return first;
}

/* What happens to the owner's ranges. */
struct cut {
    const struct mds_client *client;
    const struct mds_flock *req;
    uint64_t start; /* grows over neighbours of the same type */
    uint64_t end;
    struct range *spare; /* for a range that becomes two */
};

/* The bytes of @range behind the cut become a range of their own, before @next. */
static void
range_split(struct cut *cut, struct range *range, struct base_list *next)
{
    struct range *tail = cut->spare;

    BASE_ASSERT(tail != NULL); /* only one range can be around the cut */
    cut->spare = NULL;
    tail->client = range->client;
    tail->owner = range->owner;
    tail->handle = range->handle;
    tail->type = range->type;
    tail->pid = range->pid;
    tail->start = cut->end + 1;
    tail->end = range->end;
    base_list_append(next, &tail->link);
}

/* Takes the cut out of one range that it overlaps. */
static void
range_cut(struct mds *mds, struct cut *cut, struct range *range, struct base_list *next)
{
    const bool has_head = range->start < cut->start;
    const bool has_tail = range->end > cut->end;

    if (has_head && has_tail) {
        range_split(cut, range, next);
    }
    if (has_head) {
        range->end = cut->start - 1;
    } else if (has_tail) {
        range->start = cut->end + 1;
    } else {
        range_free(mds, range);
    }
}

/*
 * Takes the cut out of the owner's ranges. Of a lock, those of its type that touch it are taken in
 * whole.
 */
static void
ranges_cut(struct mds *mds, struct mdt_locks *locks, struct cut *cut)
{
    BASE_LIST_FOREACH_SAFE(link, next, &locks->ranges) {
        struct range *range = BASE_CONTAINER_OF(link, struct range, link);

        if (!is_mine(range, cut->client, cut->req->owner)) {
            continue;
        }
        const bool touches = (range->start <= cut->end || range->start - cut->end == 1) &&
                             (range->end >= cut->start || cut->start - range->end == 1);

        if (touches && range->type == cut->req->type) {
            cut->start = base_min_u64(cut->start, range->start);
            cut->end = base_max_u64(cut->end, range->end);
            range_free(mds, range);
        } else if (range->start <= cut->end && range->end >= cut->start) {
            range_cut(mds, cut, range, next);
        }
    }
}

static int
flock_change(struct mds *mds, struct mds_handle *handle, const struct mds_flock *req)
{
    struct mdt_locks *locks = locks_get(mds, handle->inode);
    struct range *range = locks == NULL ? NULL : range_make(mds);
    struct cut cut = {
        .client = handle->client,
        .req = req,
        .start = req->start,
        .end = req->end,
        .spare = range == NULL ? NULL : range_make(mds),
    };
    int rc = 0;

    if (cut.spare == NULL) {
        rc = -ENOLCK;
    } else {
        ranges_cut(mds, locks, &cut);
        if (req->type != MDS_LOCK_UNLOCK) {
            range->client = handle->client;
            range->owner = req->owner;
            range->handle = handle;
            range->start = cut.start;
            range->end = cut.end;
            range->type = req->type;
            range->pid = req->pid;
            base_list_append(&locks->ranges, &range->link);
            range = NULL;
            handle->flags |= MDS_HANDLE_HAS_LOCKS;
        }
    }
    if (range != NULL) {
        range_free(mds, range);
    }
    if (cut.spare != NULL) {
        range_free(mds, cut.spare);
    }
    if (locks != NULL) {
        locks_put(mds, locks);
    }
    return rc;
}

int
mds_flock(struct mds *mds, struct mds_call *call)
{
    const struct mds_flock *req = call->body;
    struct mds_flock *reply = call->reply;

    if (call->body_bytes < sizeof(*req) || req->start > req->end) {
        return -EINVAL;
    }
    const bool is_test = (req->type & MDS_LOCK_TEST) != 0;
    const uint32_t type = req->type & ~(uint32_t)MDS_LOCK_TEST;

    if (type > MDS_LOCK_UNLOCK || (is_test && type == MDS_LOCK_UNLOCK)) {
        return -EINVAL;
    }
    struct mds_handle *handle = mds_handle_find(mds, call->client, req->handle, &req->fid);

    if (handle == NULL || (handle->flags & MDS_OPEN_PATH) != 0 ||
        (!is_test && type == MDS_LOCK_READ && (handle->flags & MDS_OPEN_READ) == 0) ||
        (!is_test && type == MDS_LOCK_WRITE && (handle->flags & MDS_OPEN_WRITE) == 0)) {
        return -EBADF;
    }
    const struct mdt_locks *locks = handle->inode->locks;
    const struct range *other =
        locks == NULL || type == MDS_LOCK_UNLOCK ? NULL : conflict_find(locks, call->client, req);

    *reply = *req;
    call->reply_bytes = sizeof(*reply);
    if (is_test) {
        reply->type = MDS_LOCK_UNLOCK;
        if (other != NULL) {
            reply->owner = other->owner;
            reply->start = other->start;
            reply->end = other->end;
            reply->type = other->type;
            reply->pid = other->pid;
        }
        return 0;
    }
    if (other != NULL) {
        call->reply_bytes = 0;
        return -EAGAIN;
    }
    const int rc = flock_change(mds, handle, req);

    if (rc != 0) {
        call->reply_bytes = 0;
    }
    return rc;
}

/* ---- append ---- */

static void
append_hold(struct mds *mds, struct mdt_locks *locks, const struct mds_handle *handle)
{
    locks->holder = handle;
    locks->until_ns = mds->now_ns + MDS_APPEND_NS;
    base_list_unlink(&locks->link);
    base_list_append(&mds->appending, &locks->link);
    mds->env.wake_at(mds, locks->until_ns);
}

/* The holder is done: the next who is still there has it. */
static void
append_next(struct mds *mds, struct mdt_locks *locks)
{
    locks->holder = NULL;
    base_list_unlink(&locks->link);
    while (!base_list_empty(&locks->waiters) && locks->holder == NULL) {
        struct mds_parked *parked =
            BASE_CONTAINER_OF(base_list_first(&locks->waiters), struct mds_parked, link);
        const struct mds_append_req *req = parked->call.body;
        const struct mds_handle *handle =
            mds_handle_find(mds, parked->call.client, req->handle, &req->fid);

        if (handle != NULL) {
            append_hold(mds, locks, handle);
        }
        mds_parked_complete(mds, parked, handle != NULL ? 0 : -EBADF);
    }
    locks_put(mds, locks);
}

static struct mds_handle *
append_handle(struct mds *mds, const struct mds_call *call)
{
    const struct mds_append_req *req = call->body;
    struct mds_handle *handle = mds_handle_find(mds, call->client, req->handle, &req->fid);

    return handle != NULL && (handle->flags & MDS_OPEN_WRITE) != 0 ? handle : NULL;
}

int
mds_append_lock(struct mds *mds, struct mds_call *call)
{
    if (call->body_bytes < sizeof(struct mds_append_req)) {
        return -EINVAL;
    }
    const struct mds_handle *handle = append_handle(mds, call);

    if (handle == NULL) {
        return -EBADF;
    }
    struct mdt_locks *locks = locks_get(mds, handle->inode);

    if (locks == NULL) {
        return -ENOLCK;
    }
    if (locks->holder == NULL) {
        append_hold(mds, locks, handle);
        return 0;
    }
    return mds_park(mds, call, MDS_PARKED_APPEND, &locks->waiters) == NULL ? -EAGAIN : MDS_PARKED;
}

int
mds_append_unlock(struct mds *mds, struct mds_call *call)
{
    if (call->body_bytes < sizeof(struct mds_append_req)) {
        return -EINVAL;
    }
    const struct mds_handle *handle = append_handle(mds, call);

    if (handle == NULL) {
        return -EBADF;
    }
    struct mdt_locks *locks = handle->inode->locks;

    if (locks == NULL || locks->holder != handle) {
        return -ENOLCK; /* held too long: it was given to the next */
    }
    append_next(mds, locks);
    return 0;
}

void
mds_append_tick(struct mds *mds)
{
    while (!base_list_empty(&mds->appending)) {
        struct mdt_locks *locks =
            BASE_CONTAINER_OF(base_list_first(&mds->appending), struct mdt_locks, link);

        if (locks->until_ns > mds->now_ns) {
            mds->env.wake_at(mds, locks->until_ns);
            return;
        }
        append_next(mds, locks);
    }
}

/* ---- ends ---- */

void
mds_append_forget(struct mds *mds, struct mds_parked *parked)
{
    const struct mds_append_req *req = parked->call.body;
    struct mdt_inode *inode = NULL;

    base_list_unlink(&parked->link);
    if (mds->ops->get(mds->store, &req->fid, &inode) == 0 && inode->locks != NULL) {
        locks_put(mds, inode->locks);
    }
}

void
mds_locks_close(struct mds *mds, struct mds_handle *handle)
{
    struct mdt_locks *locks = handle->inode->locks;

    if ((handle->flags & MDS_HANDLE_HAS_LOCKS) != 0) {
        BASE_LIST_FOREACH_SAFE(link, next, &locks->ranges) {
            struct range *range = BASE_CONTAINER_OF(link, struct range, link);

            if (range->handle == handle) {
                range_free(mds, range);
            }
        }
    }
    if (locks->holder == handle) {
        append_next(mds, locks);
    } else {
        locks_put(mds, locks);
    }
}

void
mds_locks_drop(struct mds *mds, struct mdt_inode *inode)
{
    struct mdt_locks *locks = inode->locks;

    /* Nobody has it open, so nobody holds anything; calls that wait came through closed handles. */
    BASE_ASSERT(base_list_empty(&locks->ranges));
    append_next(mds, locks);
    BASE_ASSERT(inode->locks == NULL);
}
