/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MDS's handlers, without a network: what does a request cost the server's CPU?
 *
 * Question answered: the nanoseconds that mds_execute() takes for each kind of request, by the
 * number of files there are. Held fixed: one reactor, store `mem`, one client, a directory two
 * levels down ("a/b/name"), names of 20 bytes as mdtest makes them, files taken in an order that
 * is not that of their making when there are many.
 *
 * Expected: a walk of three components is three hashes and three chains, about 60 ns warm; each
 * line that is not in a cache adds 20 (L3) to 100 ns (memory), and a stat of one of a million files
 * touches about six. So 100 to 150 ns for 1,000 files and up to 600 ns for 1,000,000.
 */
#include "base/prng.h"
#include "microbench/bench.h"
#include "servers/mds/mds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLY_BYTES 8448u

struct box {
    struct mds *mds;
    struct mds_client *client;
    uint64_t now_ns;
    uint32_t count;
    uint32_t *order;
    uint64_t body[64];
    uint64_t reply[REPLY_BYTES / 8];
};

static void
env_complete(struct mds *mds, struct mds_call *call, int status)
{
    (void)mds;
    (void)call;
    (void)status;
}

static int
env_destroy(struct mds *mds, uint32_t target, const struct ost_object *objects, uint32_t count)
{
    (void)objects;
    (void)count;
    mds_destroy_done(mds, target, 0);
    return 0;
}

static void
env_wake_at(struct mds *mds, uint64_t deadline_ns)
{
    (void)mds;
    (void)deadline_ns;
}

static int
box_run(struct box *box, uint16_t opc, uint32_t bytes)
{
    struct mds_call call = {
        .body = box->body,
        .body_bytes = bytes,
        .reply = box->reply,
        .reply_max = sizeof(box->reply),
        .opc = opc,
        .client = box->client,
    };

    mds_time_set(box->mds, ++box->now_ns);
    return mds_execute(box->mds, &call);
}

/* Writes "a/b/file.mdtest.0.NNNNNN" behind a request's fixed part. */
static uint32_t
box_path(struct box *box, uint32_t fixed_bytes, uint32_t number)
{
    static const char prefix[] = "a/b/file.mdtest.0.";
    char *at = (char *)box->body + fixed_bytes;
    struct mds_req_head *head = (struct mds_req_head *)box->body;

    (void)memset(box->body, 0, fixed_bytes);
    (void)memcpy(at, prefix, sizeof(prefix) - 1);
    at += sizeof(prefix) - 1;
    for (uint32_t i = 0; i < 7; i++) {
        at[6 - i] = (char)('0' + number % 10);
        number /= 10;
    }
    head->base = FID_ROOT;
    head->path_bytes = sizeof(prefix) - 1 + 7;
    return fixed_bytes + head->path_bytes;
}

static int
box_mkdir(struct box *box, const char *path)
{
    struct mds_create_req *req = (struct mds_create_req *)box->body;
    const uint32_t bytes = (uint32_t)strlen(path);

    *req = (struct mds_create_req){.mode = S_IFDIR | 0755};
    req->head.base = FID_ROOT;
    req->head.path_bytes = (uint16_t)bytes;
    (void)memcpy(req + 1, path, bytes);
    return box_run(box, MDS_REINT_CREATE, (uint32_t)sizeof(*req) + bytes);
}

static int
box_open_file(struct box *box, uint32_t number, uint32_t flags)
{
    struct mds_open_req *req = (struct mds_open_req *)box->body;
    const uint32_t bytes = box_path(box, sizeof(*req), number);

    req->open_flags = flags;
    req->mode = 0644;
    return box_run(box, MDS_REINT_OPEN, bytes);
}

static int
box_close_file(struct box *box)
{
    const struct mds_open_rep *opened = (const struct mds_open_rep *)box->reply;
    struct mds_close_req *req = (struct mds_close_req *)box->body;

    *req = (struct mds_close_req){.fid = opened->attr.fid, .handle = opened->handle};
    return box_run(box, MDS_CLOSE, sizeof(*req));
}

static int
box_stat(struct box *box, uint32_t number)
{
    const uint32_t bytes = box_path(box, sizeof(struct mds_getattr_req), number);

    return box_run(box, MDS_GETATTR, bytes);
}

static int
box_unlink(struct box *box, uint32_t number)
{
    const uint32_t bytes = box_path(box, sizeof(struct mds_unlink_req), number);

    return box_run(box, MDS_REINT_UNLINK, bytes);
}

static int
box_open(struct box *box, struct bench_state *state, const char *store)
{
    const struct mds_env env = {
        .complete = env_complete, .destroy = env_destroy, .wake_at = env_wake_at};
    const struct mds_ost ost = {.reactors = 1};
    const struct mds_options options = {
        .struct_bytes = sizeof(options),
        .reactors = 1,
        .osts = &ost,
        .ost_count = 1,
        .store = store,
    };
    struct base_prng prng;

    *box = (struct box){.count = state->is_smoke ? 1000 : (uint32_t)state->args[0]};
    if (mds_core_open(&options, &env, 1, 1, &box->mds) != 0 ||
        mds_client_open(box->mds, NULL, &box->client) != 0) {
        return -1;
    }
    if (box_mkdir(box, "a") != 0 || box_mkdir(box, "a/b") != 0) {
        return -1;
    }
    box->order = malloc(box->count * sizeof(*box->order));
    if (box->order == NULL) {
        return -1;
    }
    base_prng_seed(&prng, 1);
    for (uint32_t i = 0; i < box->count; i++) {
        const uint64_t k = base_prng_below(&prng, i + 1);

        box->order[i] = box->order[k];
        box->order[k] = i;
    }
    return 0;
}

static int
box_fill(struct box *box)
{
    for (uint32_t i = 0; i < box->count; i++) {
        if (box_open_file(box, i, MDS_OPEN_WRITE | MDS_OPEN_CREATE) != 0 ||
            box_close_file(box) != 0) {
            return -1;
        }
    }
    return 0;
}

static void
box_close(struct box *box)
{
    mds_client_close(box->mds, box->client);
    mds_core_close(box->mds);
    free(box->order);
}

/* Opens a box for a benchmark, full or not; false: it has failed. */
static bool
begin(struct box *box, struct bench_state *state, const char *store, bool is_full)
{
    if (box_open(box, state, store) != 0 || (is_full && box_fill(box) != 0)) {
        bench_fail(state, "%s", "no server");
        return false;
    }
    return true;
}

static void
end(struct box *box, struct bench_state *state, int failed)
{
    struct mds_stats stats;

    mds_stats_get(box->mds, &stats);
    state->items = state->iterations;
    if (stats.inodes > 1000) {
        bench_counter(state, "bytes_per_file", (double)stats.bytes / (double)stats.inodes,
                      BENCH_COUNTER_PLAIN);
    }
    box_close(box);
    if (failed != 0) {
        bench_fail(state, "%s", "a request failed");
    }
}

static void
bm_stat(struct bench_state *state)
{
    struct box box;
    uint32_t i = 0;
    int failed = 0;

    if (!begin(&box, state, "mem", true)) {
        return;
    }
    BENCH_LOOP(state) {
        failed |= box_stat(&box, box.order[i]);
        i = i + 1 == box.count ? 0 : i + 1;
    }
    end(&box, state, failed);
}

static void
bm_null_stat(struct bench_state *state)
{
    struct box box;
    int failed = 0;

    if (!begin(&box, state, "null", false)) {
        return;
    }
    BENCH_LOOP(state) {
        failed |= box_stat(&box, 5);
    }
    end(&box, state, failed);
}

static void
bm_open_close(struct bench_state *state)
{
    struct box box;
    uint32_t i = 0;
    int failed = 0;

    if (!begin(&box, state, "mem", true)) {
        return;
    }
    BENCH_LOOP(state) {
        failed |= box_open_file(&box, box.order[i], MDS_OPEN_READ);
        failed |= box_close_file(&box);
        i = i + 1 == box.count ? 0 : i + 1;
    }
    end(&box, state, failed);
}

/* With count files made before; the new ones go as soon as count more are there. */
static void
bm_create_close(struct bench_state *state)
{
    struct box box;
    uint32_t i = 0;
    int failed = 0;

    if (!begin(&box, state, "mem", false)) {
        return;
    }
    BENCH_LOOP(state) {
        failed |= box_open_file(&box, i, MDS_OPEN_WRITE | MDS_OPEN_CREATE);
        failed |= box_close_file(&box);
        i++;
        if (i == box.count) {
            bench_pause(state);
            box_close(&box);
            if (!begin(&box, state, "mem", false)) {
                return;
            }
            i = 0;
            bench_resume(state);
        }
    }
    end(&box, state, failed);
}

static void
bm_unlink(struct bench_state *state)
{
    struct box box;
    uint32_t i = 0;
    int failed = 0;

    if (!begin(&box, state, "mem", true)) {
        return;
    }
    BENCH_LOOP(state) {
        failed |= box_unlink(&box, box.order[i]);
        i++;
        if (i == box.count) {
            bench_pause(state);
            failed |= box_fill(&box);
            i = 0;
            bench_resume(state);
        }
    }
    end(&box, state, failed);
}

/* Reading a directory, per name. */
static void
bm_readdir(struct bench_state *state)
{
    struct box box;
    struct fid dir;
    uint64_t cookie = 0;
    uint64_t names = 0;
    int failed = 0;

    if (!begin(&box, state, "mem", true)) {
        return;
    }
    struct mds_getattr_req *get = (struct mds_getattr_req *)box.body;

    *get = (struct mds_getattr_req){.head.base = FID_ROOT, .head.path_bytes = 3};
    (void)memcpy(get + 1, "a/b", 3);
    failed |= box_run(&box, MDS_GETATTR, sizeof(*get) + 3);
    dir = ((const struct mds_getattr_rep *)box.reply)->attr.fid;
    BENCH_LOOP(state) {
        struct mds_readdir_req *req = (struct mds_readdir_req *)box.body;
        const struct mds_readdir_rep *reply = (const struct mds_readdir_rep *)box.reply;
        const char *at = (const char *)(reply + 1);

        *req = (struct mds_readdir_req){.head.base = dir, .cookie = cookie, .bytes_max = 8192};
        failed |= box_run(&box, MDS_READDIR, sizeof(*req));
        names += reply->count;
        for (uint32_t i = 0; i < reply->count; i++) {
            const struct mds_dirent *entry = (const struct mds_dirent *)(const void *)at;

            cookie = entry->cookie;
            at += entry->bytes;
        }
        if (reply->is_end != 0) {
            cookie = 0;
        }
    }
    end(&box, state, failed);
    state->items = names;
}

static const int64_t counts[] = {1000, 100000, 1000000};

static const struct bench_case cases[] = {
    {.name = "BM_mds_null_stat", .run = bm_null_stat, .args = counts, .arg_count = 1},
    {.name = "BM_mds_stat", .run = bm_stat, .args = counts, .arg_count = 3},
    {.name = "BM_mds_open_close", .run = bm_open_close, .args = counts, .arg_count = 3},
    {.name = "BM_mds_create_close", .run = bm_create_close, .args = counts, .arg_count = 3},
    {.name = "BM_mds_unlink", .run = bm_unlink, .args = counts, .arg_count = 3},
    {.name = "BM_mds_readdir", .run = bm_readdir, .args = counts, .arg_count = 3},
};

int
main(int argc, char **argv)
{
    return bench_main(argc, argv, cases, BASE_ARRAY_LEN(cases));
}
