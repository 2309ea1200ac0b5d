/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client of the MDS: an operation on one or two names.
 *
 * The whole path goes to the reactor that owns its start, which in the common case executes the
 * operation. Otherwise it says where to go on:
 *
 *     sent -> DONE                                         the operation's end
 *          -> MOVED    base and rest of the path are new   sent again, to the owner of the new base
 *          -> SYMLINK  the link's text replaces its name   sent again
 *
 * Replies are hostile: what they consume is within the path, and the number of rounds is bounded.
 */
#include "clients/lib/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A path has at most half as many components as bytes; a server that needs more rounds is broken.
 */
#define HOPS_MAX     (MDS_PATH_BYTES_MAX / 2 + MDS_SYMLINKS_MAX)
#define RESTARTS_MAX 16u

/* Errors: -EFAULT; -ENAMETOOLONG. */
static int
path_begin(struct causeway *fs, const struct causeway_fid *at, const char *path,
           const char **path_out, uint32_t *bytes_out, struct fid *base_out)
{
    if (path == NULL) {
        return -EFAULT;
    }
    const size_t bytes = strnlen(path, CLIENT_PATH_ROOM);

    if (bytes > MDS_PATH_BYTES_MAX) {
        return -ENAMETOOLONG;
    }
    uint32_t skip = 0;

    while (path[skip] == '/') {
        skip++;
    }
    *base_out = at == NULL || skip > 0 ? fs->root : client_fid(at);
    *path_out = path + skip;
    *bytes_out = (uint32_t)bytes - skip;
    return 0;
}

int
mdc_init(struct mdc_op *mdc, struct causeway *fs, uint16_t opc, uint32_t fixed_bytes,
         uint32_t reply_bytes, const struct causeway_fid *at, const char *path, uint32_t mds_flags)
{
    mdc->opc = opc;
    mdc->fixed_bytes = (uint16_t)fixed_bytes;
    mdc->reply_bytes = (uint16_t)reply_bytes;
    mdc->hops = 0;
    mdc->symlinks = 0;
    mdc->paths = 1;
    mdc->path_bytes[1] = 0;
    mdc->spliced[0] = NULL;
    mdc->spliced[1] = NULL;
    mdc->target = NULL;
    mdc->tail = NULL;
    mdc->op.fs = fs;
    memset(&mdc->request, 0, fixed_bytes);
    mdc->request.head.flags = mds_flags;
    return path_begin(fs, at, path, &mdc->path[0], &mdc->path_bytes[0], &mdc->request.head.base);
}

int
mdc_init_second(struct mdc_op *mdc, const struct causeway_fid *at, const char *path)
{
    mdc->paths = 2;
    return path_begin(mdc->op.fs, at, path, &mdc->path[1], &mdc->path_bytes[1],
                      &mdc->request.rename.base2);
}

int
mdc_splice(const char *link, uint32_t link_bytes, const char *rest, uint32_t rest_bytes,
           causeway_absolute_fn absolute, void *absolute_arg, char *path_out,
           uint32_t *path_bytes_out, bool *is_absolute_out)
{
    uint32_t bytes = link_bytes;

    if (link_bytes == 0 || memchr(link, '\0', link_bytes) != NULL) {
        return -ENOENT;
    }
    if (link_bytes > MDS_PATH_BYTES_MAX) {
        return -ENAMETOOLONG;
    }
    const bool is_absolute = link[0] == '/';

    if (is_absolute && absolute != NULL) {
        char text[CLIENT_PATH_ROOM];

        memcpy(text, link, link_bytes);
        text[link_bytes] = '\0';
        const int rc = absolute(absolute_arg, text, path_out);

        if (rc != 0) {
            return rc < 0 ? rc : -EINVAL;
        }
        bytes = (uint32_t)strnlen(path_out, CLIENT_PATH_ROOM);
        if (bytes > MDS_PATH_BYTES_MAX) {
            return -ENAMETOOLONG;
        }
    } else {
        memcpy(path_out, link, link_bytes);
    }
    if (bytes + rest_bytes > MDS_PATH_BYTES_MAX) {
        return -ENAMETOOLONG;
    }
    memcpy(path_out + bytes, rest, rest_bytes);
    path_out[bytes + rest_bytes] = '\0';
    *path_bytes_out = bytes + rest_bytes;
    *is_absolute_out = is_absolute;
    return 0;
}

void
mdc_spliced_free(struct mdc_op *mdc)
{
    free(mdc->spliced[0]);
    free(mdc->spliced[1]);
    mdc->spliced[0] = NULL;
    mdc->spliced[1] = NULL;
}

static struct fid *
base_of(struct mdc_op *mdc, uint32_t which)
{
    return which == 0 ? &mdc->request.head.base : &mdc->request.rename.base2;
}

static void
slashes_skip(struct mdc_op *mdc, uint32_t which)
{
    while (mdc->path_bytes[which] > 0 && mdc->path[which][0] == '/') {
        mdc->path[which]++;
        mdc->path_bytes[which]--;
    }
}

/* MOVED. Errors: -EPROTO. */
static int
walk_moved(struct mdc_op *mdc, const struct mds_rep_head *head)
{
    const uint32_t which = head->which;

    mdc->path[which] += head->consumed;
    mdc->path_bytes[which] -= head->consumed;
    slashes_skip(mdc, which);
    *base_of(mdc, which) = head->fid;
    return 0;
}

/* SYMLINK. Errors: -ELOOP; -ENOMEM; of mdc_splice(). */
static int
walk_symlink(struct mdc_op *mdc, const struct mds_rep_head *head, const char *link)
{
    struct causeway *fs = mdc->op.fs;
    const uint32_t which = head->which;
    bool is_absolute = false;

    if (++mdc->symlinks > MDS_SYMLINKS_MAX) {
        return -ELOOP;
    }
    char *path = malloc(CLIENT_PATH_ROOM);

    if (path == NULL) {
        return -ENOMEM;
    }
    const int rc = mdc_splice(link, head->link_bytes, mdc->path[which] + head->consumed,
                              mdc->path_bytes[which] - head->consumed, fs->absolute,
                              fs->absolute_arg, path, &mdc->path_bytes[which], &is_absolute);

    if (rc != 0) {
        free(path);
        return rc;
    }
    free(mdc->spliced[which]);
    mdc->spliced[which] = path;
    mdc->path[which] = path;
    *base_of(mdc, which) = is_absolute ? fs->root : head->fid;
    if (is_absolute) {
        slashes_skip(mdc, which);
    }
    return 0;
}

/* Goes on after a reply that executed nothing. Errors: -EPROTO, and of the walk. */
static int
walk_on(struct mdc_op *mdc, const struct mds_rep_head *head, const void *body, uint32_t bytes)
{
    if (head->which >= mdc->paths || head->consumed > mdc->path_bytes[head->which] ||
        ++mdc->hops > HOPS_MAX) {
        return -EPROTO;
    }
    if (head->walk == MDS_WALK_MOVED) {
        return walk_moved(mdc, head);
    }
    if (head->walk == MDS_WALK_SYMLINK && head->link_bytes <= bytes - sizeof(*head)) {
        return walk_symlink(mdc, head, (const char *)body + sizeof(*head));
    }
    return -EPROTO;
}

static void mdc_send(struct client_op *op);

/*
 * Begins again from the start. A directory that an earlier answer named was removed before the next
 * request came to it: by now the path means something else, or nothing.
 */
static void
walk_again(struct mdc_op *mdc)
{
    mdc_spliced_free(mdc);
    for (uint32_t i = 0; i < mdc->paths; i++) {
        *base_of(mdc, i) = mdc->first[i].base;
        mdc->path[i] = mdc->first[i].path;
        mdc->path_bytes[i] = mdc->first[i].path_bytes;
    }
    mdc->hops = 0;
    mdc->symlinks = 0;
    mdc->restarts++;
    mdc_send(&mdc->op);
}

static void
mdc_replied(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes,
            void *user)
{
    struct mdc_op *mdc = user;
    struct mds_rep_head head;

    (void)request;
    if (status == -ESTALE && mdc->hops > 0 && mdc->restarts < RESTARTS_MAX) {
        walk_again(mdc);
        return;
    }
    if (status != 0) {
        client_op_complete(&mdc->op, status);
        return;
    }
    if (bytes < sizeof(head)) {
        client_op_complete(&mdc->op, -EPROTO);
        return;
    }
    memcpy(&head, body, sizeof(head));
    if (BASE_LIKELY(head.walk == MDS_WALK_DONE)) {
        if (bytes < mdc->reply_bytes) {
            status = -EPROTO;
        } else {
            memcpy(&mdc->reply, body, mdc->reply_bytes);
            if (mdc->tail != NULL) {
                status =
                    mdc->tail(mdc, (const char *)body + mdc->reply_bytes, bytes - mdc->reply_bytes);
            }
        }
        client_op_complete(&mdc->op, status);
        return;
    }
    status = walk_on(mdc, &head, body, bytes);
    if (status != 0) {
        client_op_complete(&mdc->op, status);
    } else {
        mdc_send(&mdc->op);
    }
}

/* Writes the request. Returns its size. */
static uint32_t
mdc_encode(const struct mdc_op *mdc, void *body)
{
    char *at = (char *)body + mdc->fixed_bytes;

    memcpy(body, &mdc->request, mdc->fixed_bytes);
    memcpy(at, mdc->path[0], mdc->path_bytes[0]);
    at += mdc->path_bytes[0];
    if (mdc->paths == 2) {
        memcpy(at, mdc->path[1], mdc->path_bytes[1]);
        at += mdc->path_bytes[1];
    }
    if (mdc->target != NULL) {
        memcpy(at, mdc->target, mdc->request.create.target_bytes);
        at += mdc->request.create.target_bytes;
    }
    return (uint32_t)(at - (char *)body);
}

static void
mdc_send(struct client_op *op)
{
    struct mdc_op *mdc = BASE_CONTAINER_OF(op, struct mdc_op, op);
    struct causeway *fs = op->fs;
    void *body = NULL;
    int rc = 0;
    struct ptlrpc_request *request = client_request_take(
        op, client_mds_target(fs, &mdc->request.head.base), mdc->opc, &body, &rc);

    if (request != NULL) {
        mdc->request.head.path_bytes = (uint16_t)mdc->path_bytes[0];
        if (mdc->paths == 2) {
            mdc->request.rename.path2_bytes = (uint16_t)mdc->path_bytes[1];
        }
        rc = ptlrpc_request_send(request, mdc_encode(mdc, body), mdc_replied, mdc);
    }
    if (rc != 0 && rc != -EAGAIN) {
        client_op_complete(op, rc);
    }
}

void
mdc_start(struct mdc_op *mdc)
{
    struct causeway *fs = mdc->op.fs;

    client_op_init(&mdc->op, fs, mdc_send);
    mdc->request.head.uid = fs->uid;
    mdc->request.head.gid = fs->gid;
    for (uint32_t i = 0; i < mdc->paths; i++) {
        mdc->first[i].base = *base_of(mdc, i);
        mdc->first[i].path = mdc->path[i];
        mdc->first[i].path_bytes = mdc->path_bytes[i];
    }
    mdc->restarts = 0;
    mdc_send(&mdc->op);
}

int
mdc_run(struct client_call *call, struct mdc_op *mdc)
{
    mdc_start(mdc);
    const int rc = client_wait(call, &mdc->op);

    mdc_fini(mdc);
    return rc;
}
