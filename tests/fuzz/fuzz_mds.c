/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hostile and odd requests to an MDS of 1 to 3 reactors, several of them at once.
 *
 * The input is a list of requests. Most are put together from parts that make sense (FIDs, handles
 * and names that were met before, flags, sizes) so that deep code is reached; some are the input's
 * bytes as they are, of any length. In between clients come and die, time goes on, and what the
 * reactors say to each other is delivered in an order that the input chooses. What must hold: no
 * memory error, no failed assertion, every request is answered once, and mds_check().
 */
#include "tests/servers/mds/rig.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define PENDING_MAX  16u
#define KNOWN_MAX    8u
#define REQUESTS_MAX 400u

static struct rig rig;
static const uint8_t *input;
static size_t input_bytes;
static struct fid fids[KNOWN_MAX];
static uint64_t handles[KNOWN_MAX];
static uint32_t known;
static struct rig_call *pending[PENDING_MAX];

static const uint16_t opcs[] = {
    MDS_GETATTR,       MDS_CLOSE,        MDS_READDIR,      MDS_STATFS,       MDS_SYNC,
    MDS_READLINK,      MDS_ACCESS,       MDS_FLOCK,        MDS_APPEND_LOCK,  MDS_APPEND_UNLOCK,
    MDS_REINT_SETATTR, MDS_REINT_CREATE, MDS_REINT_LINK,   MDS_REINT_UNLINK, MDS_REINT_RENAME,
    MDS_REINT_OPEN,    MDS_REINT_RENAME, MDS_REINT_CREATE, MDS_REINT_OPEN,   12345,
};

static uint32_t
take(void)
{
    if (input_bytes == 0) {
        return 0;
    }
    input_bytes--;
    return *input++;
}

static const struct fid *
take_fid(void)
{
    return &fids[take() % KNOWN_MAX];
}

static uint64_t
take_handle(void)
{
    const uint32_t byte = take();

    return byte >= 0xf0 ? byte * UINT64_C(0x100000001) : handles[byte % KNOWN_MAX];
}

/* Appends a path of few, mostly short names. Return: its bytes. */
static uint32_t
take_path(char *at)
{
    static const char *const names[] = {"a", "b", "c", "d", ".", "..", "", "/"};
    const uint32_t count = take() % 5;
    uint32_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t byte = take();
        const char *name = names[byte % BASE_ARRAY_LEN(names)];
        uint32_t name_bytes = (uint32_t)strlen(name);

        if (i > 0) {
            at[bytes++] = '/';
        }
        (void)memcpy(at + bytes, name, name_bytes);
        if (byte >= 0xfc) { /* 253 to 256 bytes */
            name_bytes = 253 + (byte & 3);
            (void)memset(at + bytes, 'L', name_bytes);
        } else if (byte == 0xfb) {
            at[bytes] = 0;
            name_bytes = 1;
        }
        bytes += name_bytes;
    }
    if ((take() & 7) == 7) {
        at[bytes++] = '/';
    }
    return bytes;
}

/* The bytes before the path. */
static uint32_t
fixed_of(uint16_t opc)
{
    switch (opc) {
    case MDS_READDIR:
        return sizeof(struct mds_readdir_req);
    case MDS_ACCESS:
        return sizeof(struct mds_access_req);
    case MDS_REINT_SETATTR:
        return sizeof(struct mds_setattr_req);
    case MDS_REINT_CREATE:
        return sizeof(struct mds_create_req);
    case MDS_REINT_LINK:
    case MDS_REINT_RENAME:
        return sizeof(struct mds_rename_req);
    case MDS_REINT_OPEN:
        return sizeof(struct mds_open_req);
    default:
        return sizeof(struct mds_getattr_req);
    }
}

/* Fills in what comes between head and path. */
static void
build_fixed(uint16_t opc, void *body)
{
    static const uint32_t types[] = {S_IFREG, S_IFDIR, S_IFDIR, S_IFLNK, S_IFIFO, S_IFBLK, 0};

    switch (opc) {
    case MDS_READDIR: {
        struct mds_readdir_req *req = body;

        req->cookie = take();
        req->handle = take_handle();
        req->bytes_max = take() * 37;
        break;
    }
    case MDS_ACCESS:
        ((struct mds_access_req *)body)->mask = take() % 10;
        break;
    case MDS_REINT_SETATTR: {
        struct mds_setattr_req *req = body;

        req->valid = take() | (take() & 1) << 8;
        req->mode = take() << 4;
        req->uid = take() & 3;
        req->gid = take() & 3;
        req->size = take();
        req->mtime_ns = (int64_t)take();
        req->handle = take_handle();
        req->stripe_bytes = (take() & 3) << 12;
        req->stripe_count = (uint16_t)take();
        break;
    }
    case MDS_REINT_CREATE: {
        struct mds_create_req *req = body;

        req->mode = types[take() % BASE_ARRAY_LEN(types)] | (take() << 3 & 07777);
        req->stripe_count = (uint16_t)(take() & 7);
        break;
    }
    case MDS_REINT_OPEN: {
        struct mds_open_req *req = body;

        req->open_flags = take() | (take() & 3) << 8;
        req->mode = take() << 2;
        req->stripe_count = (uint16_t)(take() & 7);
        break;
    }
    default:
        break;
    }
}

/* Builds a request with a path that makes sense. Return: its bytes. */
static uint32_t
build_path_request(uint16_t opc, void *body)
{
    static const uint32_t flags[] = {
        0, 0, MDS_FOLLOW, MDS_UNLINK_DIR, MDS_RENAME_EXCHANGE, MDS_RENAME_NOREPLACE, MDS_WANT_DIR,
        64};
    struct mds_req_head *head = body;
    const uint32_t fixed = fixed_of(opc);
    char *at = (char *)body + fixed;
    const uint32_t byte = take();

    (void)memset(body, 0, fixed);
    head->base = *take_fid();
    head->flags = flags[byte % BASE_ARRAY_LEN(flags)];
    head->uid = byte >> 6;
    head->gid = byte >> 5 & 1;
    build_fixed(opc, body);
    head->path_bytes = (uint16_t)take_path(at);
    at += head->path_bytes;
    if (opc == MDS_REINT_LINK || opc == MDS_REINT_RENAME) {
        struct mds_rename_req *req = body;

        req->base2 = *take_fid();
        req->path2_bytes = (uint16_t)take_path(at);
        at += req->path2_bytes;
    }
    if (opc == MDS_REINT_CREATE && (((struct mds_create_req *)body)->mode & S_IFMT) == S_IFLNK) {
        const uint32_t target = take_path(at);

        ((struct mds_create_req *)body)->target_bytes = (uint16_t)target;
        at += target;
    }
    return (uint32_t)(at - (char *)body);
}

static uint32_t
build_other(uint16_t opc, void *body)
{
    switch (opc) {
    case MDS_CLOSE: {
        struct mds_close_req *req = body;

        *req = (struct mds_close_req){
            .fid = *take_fid(), .handle = take_handle(), .flags = take() & 1};
        return sizeof(*req);
    }
    case MDS_FLOCK: {
        struct mds_flock *req = body;

        *req = (struct mds_flock){.fid = *take_fid(), .handle = take_handle(), .owner = take() & 3};
        req->type = take() & 0x13;
        req->start = take();
        req->end = req->start + take();
        return sizeof(*req);
    }
    case MDS_APPEND_LOCK:
    case MDS_APPEND_UNLOCK: {
        struct mds_append_req *req = body;

        *req = (struct mds_append_req){.fid = *take_fid(), .handle = take_handle()};
        return sizeof(*req);
    }
    default:
        return 0;
    }
}

/* Remembers what an answer tells. */
static void
learn(uint16_t opc)
{
    const struct mds_open_rep *reply = (const struct mds_open_rep *)rig.reply;

    if (rig.reply_bytes < sizeof(struct mds_rep_head) || opc == MDS_FLOCK || opc == MDS_STATFS) {
        return;
    }
    const struct mds_rep_head *head = &reply->head;

    BASE_ASSERT(head->walk <= MDS_WALK_SYMLINK);
    BASE_ASSERT(rig.reply_bytes >= sizeof(*head) + head->link_bytes);
    fids[1 + known % (KNOWN_MAX - 1)] = head->fid;
    handles[1 + known % (KNOWN_MAX - 1)] =
        opc == MDS_REINT_OPEN && head->walk == MDS_WALK_DONE ? reply->handle : 0;
    known++;
}

static void
collect(void)
{
    for (uint32_t i = 0; i < PENDING_MAX; i++) {
        if (pending[i] != NULL && pending[i]->is_done) {
            const uint16_t opc = pending[i]->call.opc;

            if (rig_end(&rig, pending[i]) == 0) {
                learn(opc);
            }
            pending[i] = NULL;
        }
    }
}

static void
request(void)
{
    static uint64_t body[600];
    const uint16_t opc = opcs[take() % BASE_ARRAY_LEN(opcs)];
    const uint32_t how = take();
    uint32_t bytes = 0;
    uint32_t slot = 0;

    while (slot < PENDING_MAX && pending[slot] != NULL) {
        slot++;
    }
    if (slot == PENDING_MAX || rig.clients[rig.client][0] == NULL) {
        return;
    }
    if (how >= 0xe0) { /* bytes as they are */
        bytes = (uint32_t)base_min_u64(take(), input_bytes);
        (void)memcpy(body, input, bytes);
        input += bytes;
        input_bytes -= bytes;
        if ((how & 1) != 0 && bytes >= sizeof(struct fid)) {
            (void)memcpy(body, take_fid(), sizeof(struct fid));
        }
    } else {
        const bool has_path = opc != MDS_CLOSE && opc != MDS_FLOCK && opc != MDS_APPEND_LOCK &&
                              opc != MDS_APPEND_UNLOCK && opc != MDS_STATFS && opc != MDS_SYNC;

        bytes = has_path ? build_path_request(opc, body) : build_other(opc, body);
        if (how >= 0xd0 && bytes > 0) { /* cut, or one byte is another */
            if ((how & 1) != 0) {
                bytes = take() % bytes;
            } else {
                ((uint8_t *)body)[take() % bytes] = (uint8_t)take();
            }
        }
    }
    const struct fid *base = (const struct fid *)body;
    const uint32_t reactor = bytes < sizeof(*base) || (how & 2) != 0
                                 ? how % rig.reactors
                                 : fid_mds_owner(base, rig.reactors);

    pending[slot] = rig_begin(&rig, reactor, opc, body, bytes);
}

static void
event(void)
{
    const uint32_t byte = take();

    if (byte < 200) {
        request();
    } else if (byte < 230) {
        (void)rig_pump(&rig, 1 + byte % 8);
    } else if (byte < 240) {
        rig_time(&rig, UINT64_C(1000) << byte % 24);
    } else if (byte < 250) {
        rig.client = byte % 3;
        if (rig.clients[rig.client][0] == NULL) {
            rig_connect(&rig, rig.client);
        }
    } else if (byte < 253) {
        rig_kill(&rig, byte % 3);
    } else {
        for (uint32_t i = 0; i < rig.reactors; i++) {
            mds_check(rig.mds[i]);
        }
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    input = data;
    input_bytes = bytes;
    known = 0;
    rig = (struct rig){.osts = 2, .inodes_max = 100};
    const uint32_t first = take();

    rig.store = first >= 0xf0 ? "null" : "mem";
    rig_open(&rig, 1 + first % 3, first);
    for (uint32_t i = 0; i < KNOWN_MAX; i++) {
        fids[i] = FID_ROOT;
        handles[i] = 0;
    }
    for (uint32_t i = 0; i < REQUESTS_MAX && input_bytes > 0; i++) {
        event();
        collect();
    }
    for (uint32_t i = 0; i < 3; i++) {
        rig_kill(&rig, i);
    }
    for (uint32_t i = 0; i < 4; i++) { /* what still waits has a deadline */
        while (rig_pump(&rig, 100)) {
        }
        rig_time(&rig, MDS_PARKED_NS);
    }
    while (rig_pump(&rig, 100)) {
    }
    collect();
    for (uint32_t i = 0; i < PENDING_MAX; i++) {
        BASE_ASSERT(pending[i] == NULL);
    }
    rig_close(&rig);
    return 0;
}
