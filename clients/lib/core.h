/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the parts of the client share: the mount, its targets, operations, files.
 *
 * An *operation* (struct client_op) is a state machine over requests, driven by completions out of
 * lnet_poll(). It lives in the memory of whoever started it: the stack of a blocked thread, a pool.
 * Nothing below the face (the functions of causeway/client.h) blocks:
 *
 *     face     mount.c name.c file.c io.c dir.c fork.c
 *     waiting  wait.c          threads, the lock, when to sleep
 *     lov.c                    a file's bytes over its objects
 *     osc.c                    one piece of one object
 *     mdc.c                    one name, walked to its end
 *     rpc.c                    targets, one request, the same request to many
 *
 * Invariants:
 *
 *   I1  Everything is touched only between client_begin() and client_end(), by one thread at a
 * time. I2  An operation that was started completes once, from client_progress(). I3  An operation
 * that found no free request is on fs->starved, and is started again by client_progress(): the pool
 * of requests bounds the client, it never fails a call. I4  fs->background_count counts the
 * requests that nobody waits for.
 */
#pragma once

#include "causeway/client.h"

#include "base/list.h"
#include "base/pool.h"
#include "base/wait.h"
#include "causeway/bulk.h"
#include "causeway/ptlrpc.h"
#include "ptlrpc/proto/mds.h"
#include "ptlrpc/proto/ost.h"

#include <pthread.h>

#define CLIENT_OSTS_MAX       64u /* as the connect reply says */
#define CLIENT_STRIPES_MAX    64u
#define CLIENT_REACTORS_MAX   256u /* of one server process */
#define CLIENT_REQUESTS_MAX   128u /* of the RPC engine */
#define CLIENT_PIECES_MAX     48u  /* of all I/O under way; fewer than requests */
#define CLIENT_BACKGROUND_MAX 32u  /* requests that nobody waits for */
#define CLIENT_FILES_MAX      65536u
#define CLIENT_FILES_CHUNK    64u
#define CLIENT_LEASES_BATCH   16u /* given back by one RELEASE */
#define CLIENT_LEASES_ROOM    64u /* of one target: a batch, and one of each piece */
#define CLIENT_AIO_MAX        64u
#define CLIENT_AIO_IOV_MAX    16u
#define CLIENT_CLOSES_BATCH   16u               /* gathered before they are sent */
#define CLIENT_CLOSES_ROOM    32u               /* with those that wait for a request */
#define CLIENT_CLOSES_NS      UINT64_C(5000000) /* gathered for longer: sent by the next call */
#define CLIENT_TRIES_MAX      3u                /* of a piece whose checksum was wrong */
#define CLIENT_PATH_ROOM      (MDS_PATH_BYTES_MAX + 1u)

#define CLIENT_BLOCK_BYTES 65536u                     /* st_blksize */
#define CLIENT_DEVICE      ((dev_t)UINT64_C(0xca05e)) /* st_dev */

struct lov_io;

/* ---- operations ---- */

enum client_word { CLIENT_RUNNING = 0, CLIENT_SLEPT_ON = 1, CLIENT_DONE = 2 };

struct client_op {
    struct base_list link;    /* on fs->starved; or on a waiter list of its owner's */
    struct base_list sleeper; /* on fs->followers while a thread sleeps on it */
    struct causeway *fs;
    void (*start)(struct client_op *op); /* sends; called again when it found no request */
    void (*done)(struct client_op *op);  /* NULL: a thread waits */
    int status;                          /* once it is done: 0 or a negative errno */
    uint32_t word;                       /* enum client_word; a futex */
};

/* ---- targets ---- */

/*
 * Who copies, the server (bulk) or this client (lease), is learnt: what a MiB took lately by each,
 * for each size class. See osc.c.
 */
enum osc_way { OSC_BY_LEASE, OSC_BY_BULK };
#define OSC_WAY_COUNT    2
#define OSC_SIZE_CLASSES 3 /* below 64 KiB, below 1 MiB, from there on */

struct osc_costs {
    uint64_t ns_per_mib[OSC_WAY_COUNT]; /* 0: not tried */
    uint32_t count;                     /* pieces, for trying the other way now and then */
};

struct client_target {
    struct ptlrpc_import *import; /* NULL: not opened yet */
    struct causeway *fs;
    struct lnet_process process;
    uint32_t portal;
    uint32_t lease_count; /* READ leases that are to be given back */
    uint64_t leases[CLIENT_LEASES_ROOM];
    struct ost_copies copies;    /* made under them, all by one path */
    struct base_list lease_link; /* on fs->lenders while lease_count > 0 */
    uint32_t close_count;        /* MDS: files that are to be closed */
    struct base_list close_link; /* on fs->closers while close_count > 0 */
    struct mds_close_req closes[CLIENT_CLOSES_ROOM];
    char name[32];
};

struct client_ost {
    struct client_target *targets; /* of the reactors of its OSS; shared by the OSTs there */
    uint32_t reactors;
    uint32_t index; /* at its OSS */
};

/* ---- layouts ---- */

struct lov_layout {
    uint32_t stripe_bytes;
    uint16_t stripe_count;
    uint16_t stripe_first;
};

/* ---- files ---- */

struct causeway_file {
    struct base_list link; /* on fs->files or fs->files_free */
    struct causeway *fs;
    struct fid fid;
    uint64_t handle;
    struct lov_layout layout;
    mode_t mode;
    bool can_read;
    bool can_write;
    bool is_path;    /* O_PATH: no data */
    bool is_sync;    /* O_SYNC */
    bool has_wrote;  /* since open: CLOSE says so */
    bool has_locked; /* its close is told at once */
    bool has_read;
    bool is_changed;      /* names or attributes changed since the last fsync */
    uint64_t dirty;       /* bit per stripe written since the last fsync */
    uint64_t readdir_end; /* the last cookie of the directory, right after it was seen; or 0 */
};

/* ---- the mount ---- */

struct causeway {
    struct lnet *ctx;
    struct bulk *bulk;
    struct ptlrpc *rpc;
    int fd;      /* of the context */
    int wake_fd; /* ends the leader's sleep */

    pthread_mutex_t mutex;
    struct base_wait wait;
    struct client_op *leader; /* whose thread sleeps in ppoll(), or NULL */
    uint64_t leader_until_ns;
    struct base_list followers; /* ops whose threads sleep on their words */

    struct base_list starved;
    struct base_list lenders; /* targets with leases to give back */
    struct base_list closers; /* targets with files to close */
    uint64_t closes_since_ns;
    struct base_list background_waiters;
    uint32_t background_count;
    uint32_t closing_count; /* imports */

    uint64_t now_ns;
    uint32_t uid, gid;

    struct client_target *mds; /* a target per reactor, room for CLIENT_REACTORS_MAX */
    uint32_t mds_reactors;     /* 0: not connected yet */
    struct client_target *oss; /* a target per reactor of each OSS */
    uint32_t oss_targets;
    uint32_t ost_count;
    struct client_ost osts[CLIENT_OSTS_MAX];
    struct fid root;
    struct lov_layout layout;   /* the default */
    struct client_op *mount_op; /* waits for the first connect reply, or the last goodbye */

    struct base_pool pieces; /* struct osc_piece */
    bool has_pieces;
    struct base_list piece_waiters; /* I/O that waits for a piece */
    struct base_list files, files_free;
    struct client_file_chunk *file_chunks;
    uint32_t file_count;

    struct base_pool aios; /* struct client_aio; made on first use */
    bool has_aios;
    struct base_list aios_done;
    struct base_list aio_waiters;

    causeway_absolute_fn absolute;
    void *absolute_arg;

    uint64_t timeout_ns;
    uint32_t max_rpcs_in_flight;
    bool has_lease;
    struct osc_costs costs[2][OSC_SIZE_CLASSES]; /* of reads, of writes */
    bool has_checksum;
};

/* ---- wait.c ---- */

/* One call of the face. */
struct client_call {
    struct causeway *fs;
    bool is_locked;
};

/*
 * Enters the mount, so that the caller may touch it. The context's time is fresh afterwards.
 * Errors: -EDEADLK a signal handler called while its own thread is inside.
 */
int client_begin(struct client_call *call, struct causeway *fs);

/* Leaves it, and calls done() of asynchronous I/O that ended. */
void client_end(struct client_call *call);

/* Makes progress until @op is done. Returns its status. */
int client_wait(struct client_call *call, struct client_op *op);

/* The same until @deadline_ns: -ETIMEDOUT if it is still not done. */
int client_wait_until(struct client_call *call, struct client_op *op, uint64_t deadline_ns);

/* Polls once and starts what was starved. Returns the events. */
uint32_t client_progress(struct causeway *fs);

/* Makes @op ready to be started with @start. */
void client_op_init(struct client_op *op, struct causeway *fs, void (*start)(struct client_op *op));

/* Ends @op: calls done(), or wakes its thread. */
void client_op_complete(struct client_op *op, int status);

/* Whether it has completed. */
static inline bool
client_op_is_done(const struct client_op *op)
{
    return op->word == CLIENT_DONE;
}

/* Waits until there is room for requests in the background. */
void client_wait_background(struct client_call *call, uint32_t count_max, uint64_t deadline_ns);

/* Calls done() of what is on fs->aios_done; io.c. Returns how many. */
int client_aio_deliver(struct client_call *call);

/* ---- rpc.c ---- */

/* Makes a target that is not connected yet. @name is for people. */
void client_target_init(struct client_target *target, struct causeway *fs,
                        const struct lnet_process *process, uint32_t portal, const char *name);

/* The first connect reply; mount.c. Errors: -EPROTO; -ENOMEM. */
int client_connected(struct causeway *fs, const void *data, uint32_t bytes);

/* Opens the import if it is not open. Errors: as ptlrpc_import_open(). */
int client_target_open(struct client_target *target);

/*
 * Takes a request to a target. Returns it with its body, or NULL with *rc_out: -EAGAIN when @op
 * went to fs->starved, or why it can't be.
 */
struct ptlrpc_request *client_request_take(struct client_op *op, struct client_target *target,
                                           uint16_t opc, void **body_out, int *rc_out);

/* Counted in background_count until it ends. @request is taken and filled. */
void client_request_send_background(struct causeway *fs, struct ptlrpc_request *request,
                                    uint32_t bytes);

/* One request, its body and the fixed part of its reply. */
#define CLIENT_RPC_BYTES_MAX 64u
struct client_rpc {
    struct client_op op;
    struct client_target *target;
    uint16_t opc;
    uint16_t request_bytes;
    uint16_t reply_bytes; /* wanted; a shorter reply is -EPROTO */
    uint8_t request[CLIENT_RPC_BYTES_MAX];
    uint8_t reply[CLIENT_RPC_BYTES_MAX];
};

/* Starts it; completes rpc->op. */
void client_rpc_start(struct client_rpc *rpc, struct client_target *target, uint16_t opc,
                      const void *request, uint32_t request_bytes, uint32_t reply_bytes);

/*
 * One request to each of many, in parallel. fill() writes the body for @index and says to which
 * target it goes; reply() gets the answer. The first error other than what reply() forgives is the
 * status.
 */
struct client_each;
struct client_each_slot {
    struct client_each *each;
};
struct client_each {
    struct client_op op;
    uint16_t opc;
    uint16_t reply_bytes;
    uint32_t count;
    uint32_t next;
    uint32_t pending;
    int status;
    uint64_t skip; /* bit per index that is not asked, for indices below 64 */
    struct client_target *(*fill)(struct client_each *each, uint32_t index, void *body,
                                  uint32_t *bytes_out);
    int (*reply)(struct client_each *each, uint32_t index, int status, const void *body);
    struct client_each_slot slots[CLIENT_REACTORS_MAX];
};

/* Makes it ready: @count indices, replies of at least @reply_bytes. */
void client_each_init(struct client_each *each, struct causeway *fs, uint16_t opc,
                      uint32_t reply_bytes, uint32_t count,
                      struct client_target *(*fill)(struct client_each *each, uint32_t index,
                                                    void *body, uint32_t *bytes_out),
                      int (*reply)(struct client_each *each, uint32_t index, int status,
                                   const void *body));

/* Starts it; completes each->op with each->status. */
void client_each_start(struct client_each *each);

/* ---- mdc.c ---- */

/* The reactor that owns @fid. */
static inline struct client_target *
client_mds_target(struct causeway *fs, const struct fid *fid)
{
    return &fs->mds[fid_mds_owner(fid, fs->mds_reactors)];
}

/* An operation on names. The request's fixed part is filled in by the caller, the head by mdc_*().
 */
struct mdc_op {
    struct client_op op;
    uint16_t opc;
    uint16_t fixed_bytes; /* of the request */
    uint16_t reply_bytes; /* of the reply's fixed part */
    uint16_t hops;        /* MOVED, SYMLINK */
    uint16_t symlinks;
    uint16_t paths; /* 0 (no request on its way), 1 or 2 */
    const char *path[2];
    uint32_t path_bytes[2];
    char *spliced[2]; /* owned: paths after a symlink */
    struct {          /* where it began, to begin again if what an answer named is gone */
        struct fid base;
        const char *path;
        uint32_t path_bytes;
    } first[2];
    uint16_t restarts;
    const char *target; /* CREATE of a symlink: its text */
    /* What follows the reply's fixed part; its return value is the status. NULL: nothing may. */
    int (*tail)(struct mdc_op *mdc, const void *tail, uint32_t bytes);
    void *tail_arg;
    uint64_t tail_count;
    union {
        struct mds_req_head head;
        struct mds_access_req access;
        struct mds_open_req open;
        struct mds_setattr_req setattr;
        struct mds_create_req create;
        struct mds_rename_req rename;
        struct mds_readdir_req readdir;
    } request;
    union {
        struct mds_rep_head head;
        struct mds_getattr_rep getattr;
        struct mds_open_rep open;
        struct mds_readdir_rep readdir;
    } reply;
};

/*
 * Prepares an operation on @path from @at (NULL: the root). The fixed part is zero but for the
 * head. Errors: -EFAULT; -ENAMETOOLONG.
 */
int mdc_init(struct mdc_op *mdc, struct causeway *fs, uint16_t opc, uint32_t fixed_bytes,
             uint32_t reply_bytes, const struct causeway_fid *at, const char *path,
             uint32_t mds_flags);

/* The second path of LINK and RENAME. */
int mdc_init_second(struct mdc_op *mdc, const struct causeway_fid *at, const char *path);

/* Starts it; completes mdc->op. Then mdc_fini() must follow. */
void mdc_start(struct mdc_op *mdc);

/* Runs the operation to its end and frees what it had. Blocks. Returns its status. */
int mdc_run(struct client_call *call, struct mdc_op *mdc);

/*
 * The path that a symlink makes of @rest, what is left after the link's name. @link is @link_bytes
 * long.
 * *@is_absolute_out says that it starts at the root. @path_out has CLIENT_PATH_ROOM bytes.
 * Errors: -ENAMETOOLONG; -ENOENT an empty link; what @absolute says.
 */
int mdc_splice(const char *link, uint32_t link_bytes, const char *rest, uint32_t rest_bytes,
               causeway_absolute_fn absolute, void *absolute_arg, char *path_out,
               uint32_t *path_bytes_out, bool *is_absolute_out);

/* Frees the paths that symlinks made. */
void mdc_spliced_free(struct mdc_op *mdc);

/* Frees what an operation that is done has. */
static inline void
mdc_fini(struct mdc_op *mdc)
{
    if (mdc->spliced[0] != NULL || mdc->spliced[1] != NULL) {
        mdc_spliced_free(mdc);
    }
}

/* A FID of the caller's as the wire has it. */
static inline struct fid
client_fid(const struct causeway_fid *fid)
{
    return (struct fid){.seq = fid->seq, .oid = fid->oid, .ver = fid->ver};
}

/* And back. */
static inline struct causeway_fid
client_fid_out(const struct fid *fid)
{
    return (struct causeway_fid){.seq = fid->seq, .oid = fid->oid, .ver = fid->ver};
}

/* st_ino: one to one while a sequence number fits 32 bits over the first. */
static inline uint64_t
client_ino(const struct fid *fid)
{
    return ((fid->seq - FID_SEQ_FIRST) << 32) + fid->oid;
}

/* ---- lov.c: striping arithmetic ---- */

/* The layout of a regular file as the MDS told it. Errors: -EPROTO. */
int lov_layout_set(struct lov_layout *layout, const struct mds_attr *attr);

/* How many bytes of the object of @stripe lie below @offset of the file. */
uint64_t lov_object_bytes(const struct lov_layout *layout, uint32_t stripe, uint64_t offset);

/* Where byte @object_offset of the object of @stripe lies in the file. */
uint64_t lov_file_offset(const struct lov_layout *layout, uint32_t stripe, uint64_t object_offset);

/* The size of a file whose object of @stripe has @object_bytes, were it the only one. */
static inline uint64_t
lov_file_bytes(const struct lov_layout *layout, uint32_t stripe, uint64_t object_bytes)
{
    return object_bytes == 0 ? 0 : lov_file_offset(layout, stripe, object_bytes - 1) + 1;
}

/*
 * The memory of @length bytes of the object of @stripe from @object_offset on, when @iov holds the
 * file from @file_offset on. Returns how many parts were written to @out, 0 if more than @out_max.
 */
uint32_t lov_segments(const struct lov_layout *layout, uint32_t stripe, uint64_t object_offset,
                      uint64_t length, const struct iovec *iov, uint32_t iov_count,
                      uint64_t file_offset, struct iovec *out, uint32_t out_max);

/* ---- lov.c: operations ---- */

/* The object of @stripe, and who owns it. The file system has OSTs. */
struct client_target *lov_object_target(struct causeway *fs, const struct lov_layout *layout,
                                        const struct fid *fid, uint32_t stripe,
                                        struct ost_object *object_out);

enum lov_ask { LOV_GETATTR, LOV_PUNCH, LOV_SYNC, LOV_SETATTR, LOV_SEEK };

/* The same question to the objects of a file. */
struct lov_all {
    struct client_each each;
    enum lov_ask ask;
    struct lov_layout layout;
    struct fid fid;
    uint64_t start, end;        /* PUNCH: of the file; SEEK: start */
    uint32_t whence;            /* SEEK */
    int64_t mtime_ns, ctime_ns; /* SETATTR */
    /* GETATTR: */
    uint64_t size;
    uint64_t blocks;
    int64_t newest_mtime_ns, newest_ctime_ns; /* of the object that changed last; 0: none was */
    uint64_t found;    /* SEEK: the smallest offset in the file; UINT64_MAX: none */
    struct lov_io *io; /* that glimpses */
};

/* Prepares it; the caller sets what it asks with. */
void lov_all_init(struct lov_all *all, struct causeway *fs, enum lov_ask ask,
                  const struct lov_layout *layout, const struct fid *fid);

/* Starts it; completes all->each.op. */
void lov_all_start(struct lov_all *all);

struct lov_io {
    struct client_op op;
    struct fid fid;
    struct lov_layout layout;
    bool is_write;
    bool is_append; /* of a file with one stripe */
    bool is_sync;
    bool is_size_known; /* READ: `end` is the size or less, what is short before it is a hole */
    bool has_short;
    bool is_glimpsing;
    bool is_filling;
    uint32_t iov_count;
    const struct iovec *iov;
    uint64_t offset; /* in the file */
    uint64_t length; /* asked for */
    uint64_t end;    /* of what is to be moved */
    uint64_t left;   /* bytes that no piece was made for */
    uint32_t stripe; /* whose turn it is */
    uint32_t outstanding;
    uint64_t fail_offset; /* in the file: the first byte that was not moved, UINT64_MAX: none */
    int fail_status;      /* of it; 0 no room */
    uint64_t append_end;
    struct base_list shorts;             /* pieces that met the end of their object */
    struct base_list waiter;             /* on fs->piece_waiters */
    struct lov_all *glimpse;             /* memory for it */
    uint64_t cursor[CLIENT_STRIPES_MAX]; /* next byte of each object */
};

/*
 * Prepares a read or write of @file; @glimpse is memory for it. The caller may then set is_append
 * (offset 0, one stripe, not in need of more than one piece) before lov_io_go().
 */
void lov_io_init(struct lov_io *io, struct causeway_file *file, bool is_write,
                 const struct iovec *iov, uint32_t iov_count, uint64_t offset, uint64_t length,
                 struct lov_all *glimpse);

/* Starts it; completes io->op. */
void lov_io_go(struct lov_io *io);

/* Its result: bytes, or a negative errno. */
ssize_t lov_io_result(const struct lov_io *io);

/* A piece ended; osc.c calls it. @moved of its bytes were. The piece is the lov's again. */
struct osc_piece;
void lov_piece_done(struct osc_piece *piece, int status, uint64_t moved);

/* ---- osc.c ---- */

struct osc_piece {
    struct client_op op;
    struct base_list link; /* on io->shorts */
    struct lov_io *io;
    struct client_target *target;
    struct ost_object object;
    uint64_t offset; /* in the object */
    uint64_t length;
    uint64_t moved;
    uint64_t lease;
    uint32_t crc32c;
    uint32_t tries;
    uint32_t flags;           /* enum ost_flags asked with */
    struct ost_copies copies; /* under the lease; ns is the stamp of its beginning until it ends */
    int status;
    bool is_committing;
    struct bulk_export *export_;
    struct ost_attr attr; /* after it */
    uint64_t where;       /* offset that the reply told */
    uint64_t begin_ns;    /* of lnet_now() */
};

/* Starts to move a piece: io, object, target, offset, length are set. Ends in lov_piece_done(). */
void osc_piece_start(struct osc_piece *piece);

/* Sends RELEASEs of the leases that are to be given back. */
void osc_release_flush(struct causeway *fs);

/* ---- file.c ---- */

/* A file from the pool, put among the open ones. NULL: too many are open. */
struct causeway_file *client_file_take(struct causeway *fs);
/* Back to the pool. */
void client_file_return(struct causeway_file *file);
/*
 * Gives the file back; CLOSE is sent now or later (see file.c). Returns false, and does nothing,
 * when too many closes wait for a request.
 */
bool client_file_close(struct causeway_file *file);

/* Sends the closes that were gathered, as far as there are requests. */
void client_closes_flush(struct causeway *fs);

/* Frees all files. */
void client_files_fini(struct causeway *fs);

/* As struct stat: @attr and, when the size is on the OSTs, the glimpsed @all; else NULL. */
void client_stat_fill(struct stat *stat, const struct mds_attr *attr, const struct lov_all *all);

/* Frees [@start, @end) of a file's objects; UINT64_MAX: truncates to @start. Blocks. */
int client_punch(struct client_call *call, const struct lov_layout *layout, const struct fid *fid,
                 uint64_t start, uint64_t end);

/* The size and times of a file's objects. Blocks. */
int client_glimpse(struct client_call *call, struct lov_all *all, const struct lov_layout *layout,
                   const struct fid *fid);

/* ---- mount.c ---- */

/* Frees a mount whose context was abandoned. */
void client_mount_abandon(struct causeway *fs);
