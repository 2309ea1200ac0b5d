/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client against servers that lie. The engines below it are stand-ins: each request is answered
 * at the next poll by a sound reply that the input then damages: its status, its length, its bytes.
 * The calls that are made come from the input too.
 *
 * What must hold: no memory is touched that is not ours (AddressSanitizer), every call returns, and
 * says no more than was asked for.
 */
#include "causeway/bulk.h"
#include "causeway/client.h"
#include "causeway/ptlrpc.h"
#include "ptlrpc/proto/mds.h"
#include "ptlrpc/proto/ost.h"

#include "base/assert.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REQUESTS  160u
#define BODY_MAX  8448u
#define XFERS     128u
#define IO_BYTES  200000u
#define CALLS_MAX 64u

/* ---- the input ---- */

static const uint8_t *input;
static size_t input_left;

static uint8_t
take8(void)
{
    if (input_left == 0) {
        return 0;
    }
    input_left--;
    return *input++;
}

static uint32_t
take16(void)
{
    const uint32_t low = take8();

    return low | (uint32_t)take8() << 8;
}

/* ---- stand-ins for the engines ---- */

struct ptlrpc_import {
    ptlrpc_import_fn changed;
    void *user;
    bool is_told;
    bool is_closing;
    bool is_used;
};

struct ptlrpc_request {
    struct ptlrpc_import *import;
    ptlrpc_done_fn done;
    void *user;
    uint32_t bytes;
    uint16_t opc;
    bool is_taken;
    bool is_sent;
    uint64_t body[BODY_MAX / 8];
};

struct xfer {
    bulk_done_fn done;
    void *user;
    uint64_t length;
};

static struct ptlrpc_import imports[512];
static struct ptlrpc_request requests[REQUESTS];
static struct xfer xfers[XFERS];
static uint32_t xfer_count;
static uint32_t export_count;
static char something; /* what opaque pointers point to */

int
lnet_open(const struct lnet_options *options, struct lnet **ctx_out)
{
    (void)options;
    *ctx_out = (struct lnet *)(void *)&something;
    return 0;
}

void
lnet_close(struct lnet *ctx)
{
    (void)ctx;
}

void
lnet_abandon(struct lnet *ctx)
{
    (void)ctx;
}

int
lnet_ni_add(struct lnet *ctx, const struct lnet_ni_options *options, struct lnet_nid *nid_out)
{
    (void)ctx;
    (void)options;
    (void)nid_out;
    return 0;
}

int
lnet_fd(const struct lnet *ctx)
{
    (void)ctx;
    return -1;
}

int
lnet_arm(struct lnet *ctx)
{
    (void)ctx;
    return -EBUSY;
}

uint64_t
lnet_now(const struct lnet *ctx)
{
    (void)ctx;
    return 0;
}

uint64_t
lnet_stamp(const struct lnet *ctx)
{
    (void)ctx;
    return 0;
}

uint64_t
lnet_next_deadline(const struct lnet *ctx)
{
    (void)ctx;
    return UINT64_MAX;
}

int
bulk_open(struct lnet *ctx, const struct bulk_options *options, struct bulk **bulk_out)
{
    (void)ctx;
    (void)options;
    *bulk_out = (struct bulk *)(void *)&something;
    return 0;
}

void
bulk_close(struct bulk *bulk)
{
    (void)bulk;
}

int
bulk_export(struct bulk *bulk, struct lnet_peer *peer, const struct iovec *iov, uint32_t iov_count,
            uint32_t access, struct bulk_export **export_out)
{
    (void)bulk;
    (void)peer;
    (void)access;
    BASE_ASSERT(iov_count > 0 && iov_count <= BULK_SEGMENTS_MAX);
    BASE_ASSERT(iov[0].iov_len > 0);
    if (take8() == 1) {
        return -EHOSTUNREACH;
    }
    export_count++;
    *export_out = (struct bulk_export *)(void *)&something;
    return 0;
}

uint32_t
bulk_export_pack(const struct bulk_export *export_, void *buffer, uint32_t bytes)
{
    (void)export_;
    (void)memset(buffer, 0, base_min_u32(bytes, 96));
    return 96;
}

int
bulk_export_close(struct bulk_export *export_, bulk_closed_fn closed, void *user)
{
    (void)export_;
    (void)closed;
    (void)user;
    BASE_ASSERT(export_count > 0);
    export_count--;
    return 0;
}

int
bulk_transfer(struct bulk *bulk, const struct bulk_request *request, struct bulk_xfer **xfer_out)
{
    uint64_t left = request->length_bytes;

    (void)bulk;
    (void)xfer_out;
    BASE_ASSERT(request->local_count <= BULK_SEGMENTS_MAX);
    for (uint32_t i = 0; i < request->local_count; i++) {
        BASE_ASSERT(request->local[i].iov_len <= left);
        left -= request->local[i].iov_len;
        if (request->op == BULK_PULL) {
            (void)memset(request->local[i].iov_base, 'p', request->local[i].iov_len);
        }
    }
    BASE_ASSERT(left == 0);
    switch (take8() & 15) {
    case 1:
        return -EPROTO;
    case 2:
        if (xfer_count > 0) {
            return -EAGAIN;
        }
        break;
    default:
        break;
    }
    BASE_ASSERT(xfer_count < XFERS);
    xfers[xfer_count++] = (struct xfer){request->done, request->user, request->length_bytes};
    return 0;
}

int
ptlrpc_open(struct lnet *ctx, struct bulk *bulk, const struct ptlrpc_options *options,
            struct ptlrpc **rpc_out)
{
    (void)ctx;
    (void)bulk;
    (void)options;
    *rpc_out = (struct ptlrpc *)(void *)&something;
    return 0;
}

void
ptlrpc_close(struct ptlrpc *rpc)
{
    (void)rpc;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct ptlrpc_request *request = &requests[i];

        if (request->is_sent && request->done != NULL) {
            request->done(request, -ECANCELED, NULL, 0, request->user);
        }
        request->is_taken = false;
        request->is_sent = false;
    }
}

int
ptlrpc_import_open(struct ptlrpc *rpc, const struct ptlrpc_import_options *options,
                   struct ptlrpc_import **import_out)
{
    (void)rpc;
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(imports); i++) {
        if (!imports[i].is_used) {
            imports[i] = (struct ptlrpc_import){
                .changed = options->state_changed, .user = options->user, .is_used = true};
            *import_out = &imports[i];
            return 0;
        }
    }
    return -EAGAIN;
}

void
ptlrpc_import_close(struct ptlrpc_import *import)
{
    import->is_closing = true;
}

enum ptlrpc_import_state
ptlrpc_import_state(const struct ptlrpc_import *import)
{
    (void)import;
    return PTLRPC_IMP_FULL;
}

struct lnet_peer *
ptlrpc_import_peer(const struct ptlrpc_import *import)
{
    (void)import;
    return (struct lnet_peer *)(void *)&something;
}

struct ptlrpc_request *
ptlrpc_request_take(struct ptlrpc_import *import, uint16_t opc)
{
    for (uint32_t i = 0; i < REQUESTS; i++) {
        if (!requests[i].is_taken) {
            requests[i].is_taken = true;
            requests[i].is_sent = false;
            requests[i].import = import;
            requests[i].opc = opc;
            return &requests[i];
        }
    }
    return NULL;
}

void *
ptlrpc_request_body(struct ptlrpc_request *request)
{
    return request->body;
}

void
ptlrpc_request_drop(struct ptlrpc_request *request)
{
    request->is_taken = false;
}

int
ptlrpc_request_send(struct ptlrpc_request *request, uint32_t bytes, ptlrpc_done_fn done, void *user)
{
    BASE_ASSERT(bytes <= BODY_MAX);
    request->bytes = bytes;
    request->done = done;
    request->user = user;
    request->is_sent = true;
    return 0;
}

/* ---- sound replies ---- */

static struct mds_attr
attr_make(bool is_dir)
{
    return (struct mds_attr){
        .fid = {FID_SEQ_FIRST + 1, 7, 0},
        .mode = is_dir ? S_IFDIR | 0755 : S_IFREG | 0644,
        .nlink = 1,
        .flags = is_dir ? 0 : MDS_ATTR_SIZE_ON_OST,
        .stripe_bytes = 65536,
        .stripe_count = 3,
    };
}

static uint32_t
readdir_make(char *body)
{
    struct mds_readdir_rep *rep = (struct mds_readdir_rep *)(void *)body;
    char *at = body + sizeof(*rep);

    *rep = (struct mds_readdir_rep){.count = 3, .is_end = 1};
    for (uint32_t i = 0; i < 3; i++) {
        *(struct mds_dirent *)(void *)at = (struct mds_dirent){
            .fid = {FID_SEQ_FIRST, i + 1, 0},
            .cookie = i + 1,
            .type = DT_REG,
            .name_bytes = 5,
            .bytes = sizeof(struct mds_dirent) + 8,
        };
        (void)memcpy(at + sizeof(struct mds_dirent), "entry\0\0", 8);
        at += sizeof(struct mds_dirent) + 8;
    }
    return (uint32_t)(at - body);
}

static uint32_t
io_make(const struct ptlrpc_request *request, char *body)
{
    const struct ost_io_req *req = (const void *)request->body;
    struct ost_io_rep *rep = (struct ost_io_rep *)(void *)body;
    const bool is_read = request->opc == OST_READ;

    *rep = (struct ost_io_rep){.length = req->length, .attr = {.size = req->offset + req->length}};
    if (request->opc == OST_COMMIT) {
        rep->length = ((const struct ost_commit_req *)(const void *)request->body)->length;
        return sizeof(*rep);
    }
    if ((req->flags & OST_F_INLINE) != 0 && req->length <= OST_INLINE_BYTES_MAX) {
        rep->flags = OST_F_INLINE;
        if (is_read) {
            (void)memset(rep + 1, 'i', req->length);
            return (uint32_t)(sizeof(*rep) + req->length);
        }
    } else if ((req->flags & OST_F_LEASE) != 0) {
        rep->flags = OST_F_LEASE;
        rep->lease = 77;
        rep->handle_bytes = 96;
        (void)memset(rep + 1, 0, 96);
        return sizeof(*rep) + 96;
    } else {
        rep->flags = OST_F_BULK;
    }
    return sizeof(*rep);
}

static uint32_t
reply_make(const struct ptlrpc_request *request, char *body)
{
    switch (request->opc) {
    case MDS_REINT_OPEN:
        *(struct mds_open_rep *)(void *)body =
            (struct mds_open_rep){.attr = attr_make((take8() & 1) != 0), .handle = 5};
        return sizeof(struct mds_open_rep);
    case MDS_READLINK:
        *(struct mds_rep_head *)(void *)body = (struct mds_rep_head){.link_bytes = 4};
        (void)memcpy(body + sizeof(struct mds_rep_head), "text", 4);
        return sizeof(struct mds_rep_head) + 4;
    case MDS_READDIR:
        return readdir_make(body);
    case MDS_FLOCK:
        (void)memcpy(body, request->body, sizeof(struct mds_flock));
        return sizeof(struct mds_flock);
    case MDS_STATFS:
    case OST_STATFS:
        (void)memset(body, 3, 32);
        return 32;
    case MDS_CLOSE:
    case MDS_SYNC:
    case OST_RELEASE:
        return 0;
    case OST_GETATTR:
    case OST_PUNCH:
    case OST_SYNC:
    case OST_SETATTR:
        *(struct ost_attr *)(void *)body = (struct ost_attr){.size = 100000};
        return sizeof(struct ost_attr);
    case OST_SEEK:
        *(uint64_t *)(void *)body = 1000;
        return 8;
    case OST_READ:
    case OST_WRITE:
    case OST_COMMIT:
        return io_make(request, body);
    default:
        *(struct mds_getattr_rep *)(void *)body =
            (struct mds_getattr_rep){.attr = attr_make(false)};
        return sizeof(struct mds_getattr_rep);
    }
}

static uint32_t
connect_make(char *body)
{
    struct mds_connect_rep *rep = (struct mds_connect_rep *)(void *)body;
    struct mds_connect_ost *osts = (struct mds_connect_ost *)(void *)(rep + 1);

    *rep = (struct mds_connect_rep){
        .version = MDS_PROTO_VERSION,
        .reactors = 2,
        .ost_count = 2,
        .root = FID_ROOT,
        .stripe_bytes = 65536,
        .stripe_count = 3,
    };
    for (uint32_t i = 0; i < 2; i++) {
        osts[i] = (struct mds_connect_ost){.nid = 1 + i, .reactors = 2};
    }
    return sizeof(*rep) + 2 * sizeof(*osts);
}

/* Damages @body as the input says. Returns the new size. */
static uint32_t
damage(char *body, uint32_t bytes)
{
    const uint32_t patches = take8() & 3;

    for (uint32_t i = 0; i < patches && bytes > 0; i++) {
        const uint32_t at = take16() % bytes;

        body[at] = (char)take8();
    }
    switch (take8() & 15) {
    case 1:
        return take16() % (bytes + 1);
    case 2:
        return base_min_u32(bytes + take8(), BODY_MAX);
    default:
        return bytes;
    }
}

static void
request_answer(struct ptlrpc_request *request)
{
    static const int statuses[] = {-EAGAIN,  -ENOENT,     -ESTALE, -ETIMEDOUT, -ENXIO,
                                   -EBADMSG, -ECONNRESET, -ENOSPC, -EOPNOTSUPP};
    /* Of exactly its size, for the sanitizer to see what is read behind it. */
    static uint64_t built[BODY_MAX / 8 + 64];
    const uint8_t control = take8();
    int status = 0;
    uint32_t bytes = damage((char *)built, reply_make(request, (char *)built));

    if ((control & 7) == 1) {
        status = statuses[(control >> 3) % BASE_ARRAY_LEN(statuses)];
    }
    void *body = malloc(bytes + 1);

    (void)memcpy(body, built, bytes);
    request->is_sent = false;
    if (request->done != NULL) {
        request->done(request, status, status != 0 ? NULL : body, status != 0 ? 0 : bytes,
                      request->user);
    }
    request->is_taken = false;
    free(body);
}

static uint32_t
imports_poll(void)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < BASE_ARRAY_LEN(imports); i++) {
        struct ptlrpc_import *import = &imports[i];
        static uint64_t body[128];

        if (import->is_used && import->is_closing) {
            import->is_used = false;
            import->changed(import, PTLRPC_IMP_CLOSED, 0, NULL, 0, import->user);
            count++;
        } else if (import->is_used && !import->is_told) {
            import->is_told = true;
            const uint32_t bytes = damage((char *)body, connect_make((char *)body));
            void *copy = malloc(bytes + 1);

            (void)memcpy(copy, body, base_min_u32(bytes, sizeof(body)));
            import->changed(import, PTLRPC_IMP_FULL, 0, copy, base_min_u32(bytes, sizeof(body)),
                            import->user);
            free(copy);
            count++;
        }
    }
    return count;
}

uint32_t
lnet_poll(struct lnet *ctx, uint64_t now_ns, uint32_t budget)
{
    uint32_t count = imports_poll();

    (void)ctx;
    (void)now_ns;
    for (uint32_t i = 0; i < REQUESTS && count < budget; i++) {
        if (requests[i].is_sent) {
            request_answer(&requests[i]);
            count++;
        }
    }
    while (xfer_count > 0) {
        const struct xfer xfer = xfers[--xfer_count];
        const struct bulk_result result = {
            .status = (take8() & 15) == 1 ? -ECONNRESET : 0,
            .moved_bytes = xfer.length,
        };

        xfer.done((struct bulk *)(void *)&something, &result, xfer.user);
        count++;
    }
    return count;
}

/* ---- the calls ---- */

struct world {
    struct causeway *fs;
    struct causeway_file *file;
    char *memory;
};

static void
on_done(void *arg, ssize_t result)
{
    (void)result;
    (*(uint32_t *)arg)--;
}

static void
io_call(struct world *world, bool is_write, bool is_append)
{
    const uint64_t bytes = take16() * 3 + (take8() & 1);
    /* Allocated anew: its end is the end of what may be touched. */
    char *memory = malloc(bytes + 1);
    const uint64_t cut = bytes / 3;
    const struct iovec iov[2] = {{memory, cut}, {memory + cut, bytes - cut}};
    const off_t offset = is_append ? -1 : (off_t)take16() * (take8() + 1);
    const ssize_t result = is_write ? causeway_pwritev(world->file, iov, 2, offset, NULL)
                                    : causeway_preadv(world->file, iov, 2, offset);

    (void)memset(memory + bytes, 0, 1);
    BASE_ASSERT(result <= (ssize_t)bytes);
    free(memory);
}

static void
aio_call(struct world *world)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < 4; i++) {
        const struct iovec iov = {world->memory + i * 50000, 50000};

        if (causeway_io_submit(world->file, (take8() & 1) != 0, &iov, 1, i * 50000, on_done,
                               &left) == 0) {
            left++;
        }
    }
    while (left > 0) {
        (void)causeway_io_poll(world->fs, 0);
    }
}

static void
name_call(struct world *world, uint8_t kind)
{
    struct causeway *fs = world->fs;
    struct causeway_attr attr = {.valid = take8(), .size = take16(), .stripe_bytes = 65536};
    struct causeway_statfs statfs;
    struct causeway_fid fid;
    struct stat st;
    char text[8];

    switch (kind) {
    case 0:
        (void)causeway_stat(fs, NULL, "a/b/c", 0, &st);
        break;
    case 1:
        (void)causeway_rename(fs, NULL, "a/b", NULL, "c/d/e", 0);
        break;
    case 2:
        BASE_ASSERT(causeway_readlink(fs, NULL, "link", text, sizeof(text)) <=
                    (ssize_t)sizeof(text));
        break;
    case 3:
        (void)causeway_setattr(fs, NULL, "a", 0, &attr);
        break;
    case 4:
        (void)causeway_statfs(fs, &statfs);
        break;
    case 5:
        (void)causeway_symlink(fs, "target", NULL, "name");
        break;
    case 6:
        (void)causeway_unlink(fs, NULL, "a/b");
        break;
    default:
        (void)causeway_lookup(fs, NULL, "../x//y/", 0, &fid, NULL);
        break;
    }
}

static void
file_call(struct world *world, uint8_t kind)
{
    struct causeway_attr attr = {.valid = take8(), .size = take16() * 5};
    struct causeway_lock lock = {.type = F_WRLCK, .end = 10};
    struct causeway_dirent entries[3];
    struct stat st;

    switch (kind) {
    case 0:
        io_call(world, false, false);
        break;
    case 1:
        io_call(world, true, false);
        break;
    case 2:
        io_call(world, true, true);
        break;
    case 3:
        BASE_ASSERT(causeway_readdir(world->file, take8(), entries, 3) <= 3);
        break;
    case 4:
        (void)causeway_fsync(world->file);
        break;
    case 5:
        (void)causeway_fallocate(world->file, (take8() & 1) != 0 ? 0 : 3, take16(), 1 + take16());
        break;
    case 6:
        (void)causeway_seek(world->file, take16(), (take8() & 1) != 0 ? SEEK_DATA : SEEK_HOLE);
        break;
    case 7:
        (void)causeway_lock(world->file, &lock, true);
        break;
    case 8:
        (void)causeway_fsetattr(world->file, &attr);
        break;
    case 9:
        aio_call(world);
        break;
    default:
        (void)causeway_fstat(world->file, &st);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world world = {0};
    struct causeway_options options = {.struct_bytes = sizeof(options), .mds = "1@shm"};

    input = data;
    input_left = size;
    (void)memset(imports, 0, sizeof(imports));
    xfer_count = 0;
    const uint8_t control = take8();

    options.no_lease = control & 1;
    options.checksum = control >> 1 & 1;
    if (causeway_mount(&options, &world.fs) != 0) {
        return 0;
    }
    world.memory = malloc(IO_BYTES);
    for (uint32_t i = 0; i < CALLS_MAX && input_left > 0; i++) {
        const uint8_t kind = take8();

        if (world.file == NULL || kind % 8 == 7) {
            struct causeway_file *file = NULL;

            if (causeway_open(world.fs, NULL, "dir/file",
                              O_RDWR | O_CREAT | (take8() & 1) * O_TRUNC, 0644, &file) == 0) {
                causeway_close(world.file);
                world.file = file;
            }
        }
        if ((kind & 1) != 0 || world.file == NULL) {
            name_call(&world, (kind >> 1) % 8);
        } else {
            file_call(&world, (kind >> 1) % 11);
        }
    }
    causeway_unmount(world.fs);
    free(world.memory);
    BASE_ASSERT(export_count == 0);
    return 0;
}
