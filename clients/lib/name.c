/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names: making, removing and moving them. One request each.
 */
#include "clients/lib/core.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Runs a prepared operation; @rc is what preparing it said. Ends the call. */
static int
name_finish(struct client_call *call, struct mdc_op *mdc, int rc)
{
    if (rc == 0) {
        rc = mdc_run(call, mdc);
    }
    client_end(call);
    return rc;
}

static int
create(struct causeway *fs, const struct causeway_fid *at, const char *path, mode_t mode,
       dev_t rdev, const char *target)
{
    struct client_call call;
    struct mdc_op mdc;
    int rc = client_begin(&call, fs);

    if (rc != 0) {
        return rc;
    }
    rc = mdc_init(&mdc, fs, MDS_REINT_CREATE, sizeof(struct mds_create_req),
                  sizeof(struct mds_getattr_rep), at, path, 0);
    if (rc == 0) {
        mdc.request.create.mode = mode;
        mdc.request.create.rdev = (uint32_t)rdev;
        if (target != NULL) {
            mdc.request.create.target_bytes = (uint16_t)strlen(target);
            mdc.target = target;
        }
    }
    return name_finish(&call, &mdc, rc);
}

int
causeway_mkdir(struct causeway *fs, const struct causeway_fid *at, const char *path, mode_t mode)
{
    return create(fs, at, path, S_IFDIR | (mode & 07777u), 0, NULL);
}

int
causeway_mknod(struct causeway *fs, const struct causeway_fid *at, const char *path, mode_t mode,
               dev_t rdev)
{
    if ((mode & S_IFMT) == 0) {
        mode |= S_IFREG;
    }
    if (S_ISBLK(mode) || S_ISCHR(mode)) {
        return -EPERM;
    }
    if (!S_ISREG(mode) && !S_ISFIFO(mode)) {
        return -EINVAL;
    }
    return create(fs, at, path, mode, rdev, NULL);
}

int
causeway_symlink(struct causeway *fs, const char *target, const struct causeway_fid *at,
                 const char *path)
{
    if (target == NULL) {
        return -EFAULT;
    }
    const size_t bytes = strnlen(target, CLIENT_PATH_ROOM);

    if (bytes == 0) {
        return -ENOENT;
    }
    if (bytes > MDS_PATH_BYTES_MAX) {
        return -ENAMETOOLONG;
    }
    return create(fs, at, path, S_IFLNK | 0777u, 0, target);
}

static int
remove_name(struct causeway *fs, const struct causeway_fid *at, const char *path, uint32_t flags)
{
    struct client_call call;
    struct mdc_op mdc;
    int rc = client_begin(&call, fs);

    if (rc != 0) {
        return rc;
    }
    client_closes_flush(fs); /* what goes shall go at once */
    rc = mdc_init(&mdc, fs, MDS_REINT_UNLINK, sizeof(struct mds_unlink_req),
                  sizeof(struct mds_getattr_rep), at, path, flags);
    return name_finish(&call, &mdc, rc);
}

int
causeway_unlink(struct causeway *fs, const struct causeway_fid *at, const char *path)
{
    return remove_name(fs, at, path, 0);
}

int
causeway_rmdir(struct causeway *fs, const struct causeway_fid *at, const char *path)
{
    return remove_name(fs, at, path, MDS_UNLINK_DIR);
}

static int
two_names(struct causeway *fs, uint16_t opc, const struct causeway_fid *at, const char *path,
          const struct causeway_fid *at2, const char *path2, uint32_t flags)
{
    struct client_call call;
    struct mdc_op mdc;
    int rc = client_begin(&call, fs);

    if (rc != 0) {
        return rc;
    }
    client_closes_flush(fs);
    rc = mdc_init(&mdc, fs, opc, sizeof(struct mds_rename_req), sizeof(struct mds_getattr_rep), at,
                  path, flags);
    if (rc == 0) {
        rc = mdc_init_second(&mdc, at2, path2);
    }
    return name_finish(&call, &mdc, rc);
}

int
causeway_rename(struct causeway *fs, const struct causeway_fid *at, const char *path,
                const struct causeway_fid *at2, const char *path2, unsigned flags)
{
    uint32_t mds_flags = 0;

    if ((flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE)) != 0 ||
        flags == (RENAME_NOREPLACE | RENAME_EXCHANGE)) {
        return -EINVAL;
    }
    mds_flags |= (flags & RENAME_NOREPLACE) != 0 ? MDS_RENAME_NOREPLACE : 0u;
    mds_flags |= (flags & RENAME_EXCHANGE) != 0 ? MDS_RENAME_EXCHANGE : 0u;
    return two_names(fs, MDS_REINT_RENAME, at, path, at2, path2, mds_flags);
}

int
causeway_link(struct causeway *fs, const struct causeway_fid *at, const char *path,
              const struct causeway_fid *at2, const char *path2, unsigned flags)
{
    return two_names(fs, MDS_REINT_LINK, at, path, at2, path2,
                     (flags & CAUSEWAY_NOFOLLOW) != 0 ? 0 : MDS_FOLLOW);
}

struct link_text {
    char *buffer;
    size_t bytes;
};

static int
link_text_take(struct mdc_op *mdc, const void *tail, uint32_t bytes)
{
    const struct link_text *text = mdc->tail_arg;
    const uint32_t link_bytes = mdc->reply.head.link_bytes;

    if (link_bytes > bytes) {
        return -EPROTO;
    }
    mdc->tail_count = base_min_u64(link_bytes, text->bytes);
    memcpy(text->buffer, tail, mdc->tail_count);
    return 0;
}

ssize_t
causeway_readlink(struct causeway *fs, const struct causeway_fid *at, const char *path,
                  char *buffer, size_t bytes)
{
    struct link_text text = {.buffer = buffer, .bytes = bytes};
    struct client_call call;
    struct mdc_op mdc;

    if (bytes == 0) {
        return -EINVAL;
    }
    int rc = client_begin(&call, fs);

    if (rc != 0) {
        return rc;
    }
    rc = mdc_init(&mdc, fs, MDS_READLINK, sizeof(struct mds_getattr_req),
                  sizeof(struct mds_rep_head), at, path, 0);
    mdc.tail = link_text_take;
    mdc.tail_arg = &text;
    mdc.tail_count = 0;
    rc = name_finish(&call, &mdc, rc);
    return rc != 0 ? rc : (ssize_t)mdc.tail_count;
}
