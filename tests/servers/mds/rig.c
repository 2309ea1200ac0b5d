/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See rig.h.
 */
#include "tests/servers/mds/rig.h"

#include "base/hash.h"
#include "servers/mds/out.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SYMLINKS_MAX 40u
#define HOPS_MAX     200u

/* A request from one core to another, or the answer to it. */
struct rig_message {
    bool is_answer;
    uint32_t from, to;
    struct mds_op *op; /* at `from` */
    int status;
    uint32_t body_bytes, reply_bytes;
    uint16_t opc;
    uint64_t body[(sizeof(struct out_req) + MDS_PATH_BYTES_MAX + 8) / 8];
    uint64_t reply[(sizeof(struct out_rep) + OUT_TEXT_BYTES_MAX) / 8];
};

/* ---- the hooks of the cores ---- */

static void
bag_put(struct rig *rig, struct rig_message *message)
{
    if (rig->bag_count == rig->bag_max) {
        rig->bag_max = rig->bag_max == 0 ? 64 : rig->bag_max * 2;
        rig->bag = realloc(rig->bag, rig->bag_max * sizeof(struct rig_message *));
        BASE_ASSERT(rig->bag != NULL);
    }
    rig->bag[rig->bag_count++] = message;
}

static int
env_out(struct mds *mds, uint32_t reactor, uint16_t opc, const struct out_req *req,
        const char *path, struct mds_op *op)
{
    struct rig_message *message = calloc(1, sizeof(*message));

    BASE_ASSERT(message != NULL);
    BASE_ASSERT(reactor != mds->reactor);
    message->from = mds->reactor;
    message->to = reactor;
    message->op = op;
    message->opc = opc;
    message->body_bytes = (uint32_t)sizeof(*req) + req->path_bytes;
    (void)memcpy(message->body, req, sizeof(*req));
    if (req->path_bytes > 0) {
        (void)memcpy((char *)message->body + sizeof(*req), path, req->path_bytes);
    }
    bag_put(mds->user, message);
    return 0;
}

static void
out_answer(struct rig *rig, struct rig_message *message, const struct mds_call *call, int status)
{
    message->is_answer = true;
    message->status = status;
    message->reply_bytes = call->reply_bytes;
    bag_put(rig, message);
}

static void
env_complete(struct mds *mds, struct mds_call *call, int status)
{
    struct rig_call *of = call->tag;

    if (call->opc >= OUT_MAKE_DIR) {
        out_answer(mds->user, call->tag, call, status);
        return;
    }
    BASE_ASSERT(!of->is_done);
    of->is_done = true;
    of->status = status;
    of->call = *call;
}

static int
env_destroy(struct mds *mds, uint32_t target, const struct ost_object *objects, uint32_t count)
{
    struct rig *rig = mds->user;

    (void)objects;
    BASE_ASSERT(count > 0 && count <= MDS_DESTROY_BATCH);
    if (rig->destroy_rc != 0) {
        return -(int)rig->destroy_rc;
    }
    rig->destroyed += count;
    if (!rig->is_destroy_slow) {
        mds_destroy_done(mds, target, 0);
    }
    return 0;
}

static void
env_wake_at(struct mds *mds, uint64_t deadline_ns)
{
    struct rig *rig = mds->user;

    if (rig != NULL && deadline_ns < rig->deadline_ns[mds->reactor]) {
        rig->deadline_ns[mds->reactor] = deadline_ns;
    }
}

/* ---- a store that takes its time, on top of `mem` ---- */

static struct rig *slow_rig;

/* Whether what @hash stands for was asked for before; from now on it was. */
static bool
slow_is_here(const struct mdt_store *store, uint64_t hash)
{
    uint64_t *word = &slow_rig->slow_seen[hash / 64 % BASE_ARRAY_LEN(slow_rig->slow_seen)];
    const uint64_t bit = UINT64_C(1) << hash % 64;

    if ((*word & bit) != 0) {
        return true;
    }
    *word |= bit;
    for (uint32_t i = 0; i < slow_rig->reactors; i++) {
        slow_rig->is_slow_wanted[i] |= slow_rig->mds[i]->store == store;
    }
    return false;
}

static int
slow_get(struct mdt_store *store, const struct fid *fid, struct mdt_inode **inode_out)
{
    return slow_is_here(store, fid_hash(fid)) ? mdt_store_mem.get(store, fid, inode_out)
                                              : -EINPROGRESS;
}

static int
slow_lookup(struct mdt_store *store, const struct mdt_inode *dir, const char *name, uint32_t bytes,
            struct mdt_dirent **dirent_out)
{
    return slow_is_here(store, base_hash_bytes(name, bytes, fid_hash(&dir->attr.fid)))
               ? mdt_store_mem.lookup(store, dir, name, bytes, dirent_out)
               : -EINPROGRESS;
}

static int
slow_scan(struct mdt_store *store, const struct mdt_inode *dir, uint64_t cookie,
          struct mdt_dirent **dirents_out, uint32_t max, uint32_t *count_out)
{
    return slow_is_here(store, base_hash_combine(fid_hash(&dir->attr.fid), cookie))
               ? mdt_store_mem.scan(store, dir, cookie, dirents_out, max, count_out)
               : -EINPROGRESS;
}

static int
slow_commit(struct mdt_store *store, uint64_t *ticket_out)
{
    for (uint32_t i = 0; i < slow_rig->reactors; i++) {
        if (slow_rig->mds[i]->store == store) {
            *ticket_out = ++slow_rig->slow_tickets[i];
        }
    }
    return -EINPROGRESS;
}

/* What was asked for is here, what was changed is committed. */
static bool
slow_turn(struct rig *rig)
{
    bool did = false;

    for (uint32_t i = 0; i < rig->reactors && rig->is_slow; i++) {
        struct mds *mds = rig->mds[i];

        if (!base_list_empty(&mds->committing)) {
            did = true;
            mds_store_committed(mds, rig->slow_tickets[i]);
        }
        if (rig->is_slow_wanted[i]) {
            did = true;
            rig->is_slow_wanted[i] = false;
            mds_wake(mds);
        }
        mds_wake_run(mds);
    }
    return did;
}

/* Swaps the operations of a core that was just opened. */
static void
slow_begin(struct rig *rig, struct mds *mds)
{
    static struct mdt_store_ops ops;

    slow_rig = rig;
    ops = mdt_store_mem;
    ops.get = slow_get;
    ops.lookup = slow_lookup;
    ops.scan = slow_scan;
    ops.commit = slow_commit;
    mds->ops = &ops;
}

/* ---- life ---- */

void
rig_open(struct rig *rig, uint32_t reactors, uint64_t seed)
{
    struct mds_ost osts[MDS_OSTS_MAX] = {0};
    const struct mds_env env = {
        .complete = env_complete,
        .destroy = env_destroy,
        .out = env_out,
        .wake_at = env_wake_at,
    };

    rig->reactors = reactors;
    rig->now_ns = 1000;
    base_prng_seed(&rig->prng, seed);
    for (uint32_t i = 0; i < rig->osts; i++) {
        osts[i] =
            (struct mds_ost){.nid.value = 100 + i / 2, .reactors = 2, .ost = (uint16_t)(i % 2)};
    }
    rig->calls = calloc(RIG_CALLS_MAX, sizeof(*rig->calls));
    BASE_ASSERT(rig->calls != NULL);
    for (uint32_t i = 0; i < reactors; i++) {
        const struct mds_options options = {
            .struct_bytes = sizeof(options),
            .reactor = i,
            .reactors = reactors,
            .osts = osts,
            .ost_count = rig->osts,
            .store = rig->store,
            .inodes_max = rig->inodes_max,
            .wall_offset_ns = RIG_WALL_NS,
        };

        rig->deadline_ns[i] = UINT64_MAX;
        const int rc = mds_core_open(&options, &env, seed + i, rig->now_ns, &rig->mds[i]);

        BASE_ASSERT(rc == 0);
        rig->mds[i]->user = rig;
        if (rig->is_slow) {
            slow_begin(rig, rig->mds[i]);
        }
    }
    rig_connect(rig, 0);
}

void
rig_connect(struct rig *rig, uint32_t index)
{
    for (uint32_t i = 0; i < rig->reactors; i++) {
        const int rc = mds_client_open(rig->mds[i], NULL, &rig->clients[index][i]);

        BASE_ASSERT(rc == 0);
    }
}

void
rig_kill(struct rig *rig, uint32_t index)
{
    for (uint32_t i = 0; i < rig->reactors; i++) {
        if (rig->clients[index][i] != NULL) {
            mds_client_close(rig->mds[i], rig->clients[index][i]);
            mds_wake_run(rig->mds[i]);
            rig->clients[index][i] = NULL;
        }
    }
}

void
rig_close(struct rig *rig)
{
    while (rig_pump(rig, 1000)) {
    }
    rig_check(rig);
    for (uint32_t i = 0; i < RIG_CLIENTS_MAX; i++) {
        rig_kill(rig, i);
    }
    while (rig_pump(rig, 1000)) {
    }
    rig_check(rig);
    for (uint32_t i = 0; i < rig->reactors; i++) {
        BASE_ASSERT(rig->mds[i]->counters.open_handles == 0);
        BASE_ASSERT(rig->mds[i]->counters.orphans == 0);
        BASE_ASSERT(rig->mds[i]->counters.parked_now == 0);
        BASE_ASSERT(rig->mds[i]->counters.locks == 0);
        mds_core_close(rig->mds[i]);
    }
    free(rig->calls);
    free(rig->bag);
}

struct tally {
    struct fid fid;
    uint32_t names;
};

struct tallies {
    struct rig *rig;
    struct mds *mds;
    struct tally *tally;
    uint32_t count;
    uint32_t max;
};

static void
tally_names(struct mdt_inode *inode, void *arg)
{
    struct tallies *tallies = arg;
    struct mdt_dirent *dirent = NULL;
    struct mds *mds = tallies->mds;
    uint64_t cookie = 0;
    uint32_t count = 0;

    if (!S_ISDIR(inode->attr.mode)) {
        return;
    }
    while (mds->ops->scan(mds->store, inode, cookie, &dirent, 1, &count) == 0) {
        struct mds *owner = tallies->rig->mds[fid_mds_owner(&dirent->fid, tallies->rig->reactors)];
        struct mdt_inode *of = NULL;
        uint32_t i = 0;

        cookie = dirent->cookie;
        BASE_ASSERT(dirent->is_busy == 0);
        BASE_ASSERT(owner->ops->get(owner->store, &dirent->fid, &of) == 0);
        BASE_ASSERT(dirent->inode == (owner == mds ? of : NULL));
        BASE_ASSERT((of->attr.mode & S_IFMT) >> 12 == dirent->type);
        BASE_ASSERT(!S_ISDIR(of->attr.mode) || fid_equal(&of->u.dir.parent, &inode->attr.fid));
        while (i < tallies->count && !fid_equal(&tallies->tally[i].fid, &dirent->fid)) {
            i++;
        }
        if (i == tallies->count) {
            BASE_ASSERT(tallies->count < tallies->max);
            tallies->tally[tallies->count++] = (struct tally){.fid = dirent->fid};
        }
        tallies->tally[i].names++;
    }
}

static void
tally_links(struct mdt_inode *inode, void *arg)
{
    const struct tallies *tallies = arg;
    const struct fid root = FID_ROOT;
    uint32_t names = 0;

    for (uint32_t i = 0; i < tallies->count; i++) {
        if (fid_equal(&tallies->tally[i].fid, &inode->attr.fid)) {
            names = tallies->tally[i].names;
        }
    }
    if (S_ISDIR(inode->attr.mode)) {
        BASE_ASSERT(names == (inode->attr.nlink > 0 && !fid_equal(&inode->attr.fid, &root)));
    } else {
        BASE_ASSERT(names == inode->attr.nlink);
    }
}

/* Compares names and inodes of all cores; nothing may be under way. */
static void
check_across(struct rig *rig)
{
    struct tally tally[2000];
    struct tallies tallies = {.rig = rig, .tally = tally, .max = BASE_ARRAY_LEN(tally)};

    for (uint32_t i = 0; i < rig->reactors; i++) {
        tallies.mds = rig->mds[i];
        rig->mds[i]->ops->each(rig->mds[i]->store, tally_names, &tallies);
        BASE_ASSERT(rig->mds[i]->counters.ops_now == 0);
        BASE_ASSERT(rig->mds[i]->prepared == NULL);
        BASE_ASSERT(!rig->mds[i]->is_token_taken);
    }
    for (uint32_t i = 0; i < rig->reactors; i++) {
        rig->mds[i]->ops->each(rig->mds[i]->store, tally_links, &tallies);
    }
}

void
rig_check(struct rig *rig)
{
    if (rig->is_slow) { /* checks look at the store itself */
        for (uint32_t i = 0; i < rig->reactors; i++) {
            rig->mds[i]->ops = &mdt_store_mem;
        }
    }
    for (uint32_t i = 0; i < rig->reactors; i++) {
        mds_check(rig->mds[i]);
    }
    if (rig->reactors > 1 && rig->bag_count == 0 && !rig->mds[0]->ops->keeps_nothing) {
        check_across(rig);
    }
    for (uint32_t i = 0; i < rig->reactors && rig->is_slow; i++) {
        slow_begin(rig, rig->mds[i]);
    }
}

void
rig_time(struct rig *rig, uint64_t delta_ns)
{
    const uint64_t end = rig->now_ns + delta_ns;

    for (;;) {
        uint32_t next = 0;

        for (uint32_t i = 1; i < rig->reactors; i++) {
            if (rig->deadline_ns[i] < rig->deadline_ns[next]) {
                next = i;
            }
        }
        if (rig->deadline_ns[next] > end) {
            break;
        }
        rig->now_ns = base_max_u64(rig->now_ns, rig->deadline_ns[next]);
        rig->deadline_ns[next] = UINT64_MAX;
        mds_tick(rig->mds[next], rig->now_ns);
    }
    rig->now_ns = end;
}

static void
message_deliver(struct rig *rig, struct rig_message *message)
{
    if (message->is_answer) {
        struct mds *mds = rig->mds[message->from];

        mds_time_set(mds, rig->now_ns);
        mds_out_done(mds, message->op, message->status, message->reply, message->reply_bytes);
        free(message);
        mds_wake_run(mds);
        return;
    }
    struct mds *mds = rig->mds[message->to];
    struct mds_call call = {
        .body = message->body,
        .body_bytes = message->body_bytes,
        .reply = message->reply,
        .reply_max = sizeof(message->reply),
        .opc = message->opc,
        .tag = message,
    };

    mds_time_set(mds, rig->now_ns);
    const int rc = mds_out_execute(mds, &call);

    if (rc != MDS_PARKED) {
        BASE_ASSERT(rc <= 0 && rc != -EPROTO && rc != -EOPNOTSUPP);
        out_answer(rig, message, &call, rc);
    }
    mds_wake_run(mds);
}

bool
rig_pump(struct rig *rig, uint32_t count)
{
    if (slow_turn(rig) && rig->bag_count == 0) {
        return true;
    }
    for (uint32_t i = 0; i < count && rig->bag_count > 0; i++) {
        const uint64_t pick = base_prng_below(&rig->prng, rig->bag_count);
        struct rig_message *message = rig->bag[pick];

        rig->bag[pick] = rig->bag[--rig->bag_count];
        message_deliver(rig, message);
    }
    return rig->bag_count > 0;
}

/* ---- requests ---- */

struct rig_call *
rig_begin(struct rig *rig, uint32_t reactor, uint16_t opc, const void *body, uint32_t bytes)
{
    uint32_t index = 0;

    while (rig->calls[index].is_used) {
        index++;
        BASE_ASSERT(index < RIG_CALLS_MAX);
    }
    struct rig_call *call = &rig->calls[index];

    BASE_ASSERT(bytes <= sizeof(call->body));
    (void)memcpy(call->body, body, bytes);
    call->is_used = true;
    call->is_done = false;
    call->rig = rig;
    call->reactor = reactor;
    call->call = (struct mds_call){
        .body = call->body,
        .body_bytes = bytes,
        .reply = call->reply,
        .reply_max = sizeof(call->reply),
        .opc = opc,
        .client = rig->clients[rig->client][reactor],
        .tag = call,
    };
    rig_time(rig, 1000);
    mds_time_set(rig->mds[reactor], rig->now_ns);
    const int rc = mds_execute(rig->mds[reactor], &call->call);

    if (rc != MDS_PARKED) {
        BASE_ASSERT(rc <= 0);
        call->is_done = true;
        call->status = rc;
    }
    mds_wake_run(rig->mds[reactor]);
    return call;
}

int
rig_end(struct rig *rig, struct rig_call *call)
{
    BASE_ASSERT(call->is_done);
    BASE_ASSERT(call->call.reply_bytes <= sizeof(call->reply));
    (void)memcpy(rig->reply, call->reply, call->call.reply_bytes);
    rig->reply_bytes = call->call.reply_bytes;
    rig->reactor = call->reactor;
    call->is_used = false;
    return call->status;
}

int
rig_raw(struct rig *rig, uint32_t reactor, uint16_t opc, const void *body, uint32_t bytes)
{
    struct rig_call *call = rig_begin(rig, reactor, opc, body, bytes);

    for (uint32_t turns = 0; !call->is_done; turns++) {
        if (!rig_pump(rig, 1) && !call->is_done) {
            rig_time(rig, 1000000);
        }
        BASE_ASSERT(turns < 100000);
    }
    return rig_end(rig, call);
}

static void
text_init(struct rig_text *text, const struct fid *base, const char *path)
{
    text->base = base == NULL ? FID_ROOT : *base;
    text->bytes = path == NULL ? 0 : (uint32_t)strlen(path);
    BASE_ASSERT(text->bytes < sizeof(text->path));
    if (text->bytes > 0) {
        (void)memcpy(text->path, path, text->bytes);
    }
}

/* Goes on from where a reply says. */
static int
text_advance(struct rig_text *text, const struct mds_rep_head *reply)
{
    char rest[sizeof(text->path)];
    const uint32_t rest_bytes = text->bytes - reply->consumed;
    const char *link = (const char *)(reply + 1);
    uint32_t link_bytes = 0;

    BASE_ASSERT(reply->consumed <= text->bytes);
    (void)memcpy(rest, text->path + reply->consumed, rest_bytes);
    text->base = reply->fid;
    if (reply->walk == MDS_WALK_SYMLINK) {
        link_bytes = reply->link_bytes;
        if (link_bytes > 0 && link[0] == '/') {
            text->base = FID_ROOT;
            while (link_bytes > 0 && link[0] == '/') {
                link++;
                link_bytes--;
            }
        }
        if (link_bytes + rest_bytes > MDS_PATH_BYTES_MAX) {
            return -ENAMETOOLONG;
        }
        (void)memcpy(text->path, link, link_bytes);
    }
    (void)memcpy(text->path + link_bytes, rest, rest_bytes);
    text->bytes = link_bytes + rest_bytes;
    /* After a link "/" the rest begins with a slash: the root is the base already. */
    while (link_bytes == 0 && text->bytes > 0 && text->path[0] == '/') {
        text->bytes--;
        (void)memmove(text->path, text->path + 1, text->bytes);
    }
    return 0;
}

static bool
is_rep_head(uint16_t opc)
{
    return opc != MDS_CLOSE && opc != MDS_STATFS && opc != MDS_SYNC && opc != MDS_FLOCK &&
           opc != MDS_APPEND_LOCK && opc != MDS_APPEND_UNLOCK;
}

/* Sends the next request of a task. */
static void
task_send(struct rig *rig, struct rig_task *task)
{
    uint64_t body[1600];
    struct mds_req_head *head = (struct mds_req_head *)body;
    char *at = (char *)body + task->fixed_bytes;

    if (task->text[0].bytes > MDS_PATH_BYTES_MAX || task->text[1].bytes > MDS_PATH_BYTES_MAX) {
        task->is_done = true;
        task->status = -ENAMETOOLONG;
        return;
    }
    (void)memcpy(body, task->fixed, task->fixed_bytes);
    head->base = task->text[0].base;
    head->uid = rig->uid;
    head->gid = rig->gid;
    head->path_bytes = (uint16_t)task->text[0].bytes;
    (void)memcpy(at, task->text[0].path, task->text[0].bytes);
    at += task->text[0].bytes;
    if (task->opc == MDS_REINT_LINK || task->opc == MDS_REINT_RENAME) {
        struct mds_rename_req *req = (struct mds_rename_req *)body;

        req->base2 = task->text[1].base;
        req->path2_bytes = (uint16_t)task->text[1].bytes;
        (void)memcpy(at, task->text[1].path, task->text[1].bytes);
        at += task->text[1].bytes;
    }
    if (task->tail_bytes > 0) {
        (void)memcpy(at, task->tail, task->tail_bytes);
        at += task->tail_bytes;
    }
    task->call = rig_begin(rig, fid_mds_owner(&task->text[0].base, rig->reactors), task->opc, body,
                           (uint32_t)(at - (char *)body));
}

void
rig_task_begin(struct rig *rig, struct rig_task *task, uint16_t opc, const void *fixed,
               uint32_t fixed_bytes, const struct fid *base, const char *path,
               const struct fid *base2, const char *path2, const void *tail, uint32_t tail_bytes)
{
    BASE_ASSERT(fixed_bytes <= sizeof(task->fixed));
    task->is_done = false;
    task->opc = opc;
    task->fixed_bytes = fixed_bytes;
    task->tail = tail;
    task->tail_bytes = tail_bytes;
    task->hops = 0;
    task->links = 0;
    (void)memcpy(task->fixed, fixed, fixed_bytes);
    text_init(&task->text[0], base, path);
    text_init(&task->text[1], base2, path2);
    task->first[0] = task->text[0];
    task->first[1] = task->text[1];
    task_send(rig, task);
}

bool
rig_task_step(struct rig *rig, struct rig_task *task)
{
    if (task->is_done || !task->call->is_done) {
        return task->is_done;
    }
    const struct mds_rep_head *reply = (const struct mds_rep_head *)rig->reply;
    int rc = rig_end(rig, task->call);

    (void)memcpy(&task->opened, rig->reply, sizeof(task->opened));
    if (rc == -ESTALE && task->hops > 0) {
        /* A directory that an earlier answer named is gone: the path means something else now. */
        task->text[0] = task->first[0];
        task->text[1] = task->first[1];
        task->hops = 0;
        task->links = 0;
        task_send(rig, task);
        return false;
    }
    if (rc != 0 || !is_rep_head(task->opc) || reply->walk == MDS_WALK_DONE) {
        task->is_done = true;
        task->status = rc;
        return true;
    }
    task->hops++;
    BASE_ASSERT(task->hops < HOPS_MAX);
    task->links += reply->walk == MDS_WALK_SYMLINK ? 1 : 0;
    rc = task->links > SYMLINKS_MAX ? -ELOOP : text_advance(&task->text[reply->which], reply);
    if (rc != 0) {
        task->is_done = true;
        task->status = rc;
        return true;
    }
    task_send(rig, task);
    return task->is_done;
}

int
rig_do(struct rig *rig, uint16_t opc, const void *fixed, uint32_t fixed_bytes,
       const struct fid *base, const char *path, const struct fid *base2, const char *path2,
       const void *tail, uint32_t tail_bytes)
{
    static struct rig_task task;

    rig_task_begin(rig, &task, opc, fixed, fixed_bytes, base, path, base2, path2, tail, tail_bytes);
    for (uint32_t turns = 0; !rig_task_step(rig, &task); turns++) {
        if (!task.call->is_done && !rig_pump(rig, 1) && !task.call->is_done) {
            rig_time(rig, 100000);
        }
        BASE_ASSERT(turns < 100000);
    }
    return task.status;
}

/* Takes the attributes out of a reply. */
static int
attr_of(struct rig *rig, int rc)
{
    if (rc == 0) {
        rig->attr = ((const struct mds_getattr_rep *)rig->reply)->attr;
    }
    return rc;
}

int
rig_stat(struct rig *rig, const char *path)
{
    const struct mds_getattr_req req = {.head.flags = MDS_FOLLOW};

    return attr_of(rig,
                   rig_do(rig, MDS_GETATTR, &req, sizeof(req), NULL, path, NULL, NULL, NULL, 0));
}

int
rig_lstat(struct rig *rig, const char *path)
{
    const struct mds_getattr_req req = {0};

    return attr_of(rig,
                   rig_do(rig, MDS_GETATTR, &req, sizeof(req), NULL, path, NULL, NULL, NULL, 0));
}

int
rig_stat_fid(struct rig *rig, const struct fid *fid)
{
    const struct mds_getattr_req req = {0};

    return attr_of(rig, rig_do(rig, MDS_GETATTR, &req, sizeof(req), fid, "", NULL, NULL, NULL, 0));
}

int
rig_mkdir(struct rig *rig, const char *path, uint32_t mode)
{
    return rig_mknod(rig, path, S_IFDIR | mode);
}

int
rig_mknod(struct rig *rig, const char *path, uint32_t mode)
{
    const struct mds_create_req req = {.mode = mode};

    return attr_of(
        rig, rig_do(rig, MDS_REINT_CREATE, &req, sizeof(req), NULL, path, NULL, NULL, NULL, 0));
}

int
rig_symlink(struct rig *rig, const char *target, const char *path)
{
    const uint32_t bytes = (uint32_t)strlen(target);
    const struct mds_create_req req = {.mode = S_IFLNK | 0777, .target_bytes = (uint16_t)bytes};

    return attr_of(rig, rig_do(rig, MDS_REINT_CREATE, &req, sizeof(req), NULL, path, NULL, NULL,
                               target, bytes));
}

int
rig_readlink(struct rig *rig, const char *path)
{
    const struct mds_getattr_req req = {0};

    return rig_do(rig, MDS_READLINK, &req, sizeof(req), NULL, path, NULL, NULL, NULL, 0);
}

int
rig_link(struct rig *rig, const char *from, const char *to)
{
    const struct mds_rename_req req = {0};

    return attr_of(rig,
                   rig_do(rig, MDS_REINT_LINK, &req, sizeof(req), NULL, from, NULL, to, NULL, 0));
}

int
rig_unlink(struct rig *rig, const char *path)
{
    const struct mds_unlink_req req = {0};

    return attr_of(
        rig, rig_do(rig, MDS_REINT_UNLINK, &req, sizeof(req), NULL, path, NULL, NULL, NULL, 0));
}

int
rig_rmdir(struct rig *rig, const char *path)
{
    const struct mds_unlink_req req = {.head.flags = MDS_UNLINK_DIR};

    return attr_of(
        rig, rig_do(rig, MDS_REINT_UNLINK, &req, sizeof(req), NULL, path, NULL, NULL, NULL, 0));
}

int
rig_rename(struct rig *rig, const char *from, const char *to, uint32_t flags)
{
    const struct mds_rename_req req = {.head.flags = flags};

    return attr_of(rig,
                   rig_do(rig, MDS_REINT_RENAME, &req, sizeof(req), NULL, from, NULL, to, NULL, 0));
}

static int
open_of(struct rig *rig, int rc)
{
    const struct mds_open_rep *reply = (const struct mds_open_rep *)rig->reply;

    if (rc == 0) {
        rig->attr = reply->attr;
        rig->handle = reply->handle;
        rig->created = reply->created;
    }
    return rc;
}

int
rig_open_file(struct rig *rig, const char *path, uint32_t open_flags, uint32_t flags, uint32_t mode)
{
    const struct mds_open_req req = {
        .head.flags = flags,
        .open_flags = open_flags,
        .mode = mode,
    };

    return open_of(rig,
                   rig_do(rig, MDS_REINT_OPEN, &req, sizeof(req), NULL, path, NULL, NULL, NULL, 0));
}

int
rig_open_fid(struct rig *rig, const struct fid *fid, uint32_t open_flags)
{
    const struct mds_open_req req = {.open_flags = open_flags | MDS_OPEN_BY_FID};

    return open_of(rig,
                   rig_do(rig, MDS_REINT_OPEN, &req, sizeof(req), fid, "", NULL, NULL, NULL, 0));
}

int
rig_close_file(struct rig *rig, const struct fid *fid, uint64_t handle, uint32_t flags)
{
    const struct mds_close_req req = {.fid = *fid, .handle = handle, .flags = flags};

    return rig_raw(rig, fid_mds_owner(fid, rig->reactors), MDS_CLOSE, &req, sizeof(req));
}

int
rig_setattr(struct rig *rig, const char *path, const struct mds_setattr_req *set)
{
    struct mds_setattr_req req = *set;

    req.head.flags |= MDS_FOLLOW;
    return attr_of(
        rig, rig_do(rig, MDS_REINT_SETATTR, &req, sizeof(req), NULL, path, NULL, NULL, NULL, 0));
}

int
rig_chmod(struct rig *rig, const char *path, uint32_t mode)
{
    return rig_setattr(rig, path, &(struct mds_setattr_req){.valid = MDS_SET_MODE, .mode = mode});
}

int
rig_access(struct rig *rig, const char *path, uint32_t mask)
{
    const struct mds_access_req req = {.head.flags = MDS_FOLLOW, .mask = mask};

    return attr_of(rig,
                   rig_do(rig, MDS_ACCESS, &req, sizeof(req), NULL, path, NULL, NULL, NULL, 0));
}

int
rig_creat(struct rig *rig, const char *path)
{
    const int rc =
        rig_open_file(rig, path, MDS_OPEN_WRITE | MDS_OPEN_CREATE | MDS_OPEN_EXCL, 0, 0644);

    return rc != 0 ? rc : rig_close_file(rig, &rig->attr.fid, rig->handle, 0);
}

int
rig_readdir(struct rig *rig, const struct fid *dir, uint64_t handle, uint64_t cookie,
            uint32_t batch_bytes, void (*each)(const struct mds_dirent *entry, void *arg),
            void *arg)
{
    for (;;) {
        static uint64_t copy[RIG_REPLY_BYTES / 8];
        const struct mds_readdir_req req = {
            .cookie = cookie, .handle = handle, .bytes_max = batch_bytes};
        const int rc = rig_do(rig, MDS_READDIR, &req, sizeof(req), dir, "", NULL, NULL, NULL, 0);

        if (rc != 0) {
            return rc;
        }
        (void)memcpy(copy, rig->reply, rig->reply_bytes); /* @each may ask */
        const struct mds_readdir_rep *reply = (const struct mds_readdir_rep *)copy;
        const char *at = (const char *)(reply + 1);

        for (uint32_t i = 0; i < reply->count; i++) {
            const struct mds_dirent *entry = (const struct mds_dirent *)(const void *)at;

            cookie = entry->cookie;
            at += entry->bytes;
            each(entry, arg);
        }
        if (reply->is_end != 0) {
            return 0;
        }
        BASE_ASSERT(reply->count > 0);
    }
}

int
rig_flock(struct rig *rig, const struct fid *fid, uint64_t handle, uint64_t owner, uint64_t start,
          uint64_t end, uint32_t type)
{
    const struct mds_flock req = {
        .fid = *fid, .handle = handle, .owner = owner, .start = start, .end = end, .type = type};

    return rig_raw(rig, fid_mds_owner(fid, rig->reactors), MDS_FLOCK, &req, sizeof(req));
}
