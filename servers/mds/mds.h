/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The metadata server's insides: one `struct mds` is one reactor's share of the name space.
 *
 * The core knows no network and no clock. A request is a `struct mds_call`: a body, room for a
 * reply, and a client; mds_execute() runs it. Time is what mds_time_set() said last. Whatever goes
 * out (replies that come later, destruction of objects, requests to other reactors) goes through
 * the hooks of mds_env. servers/mds/service.c is the adapter to ptlrpc; tests are another.
 *
 * A handler looks everything up first and changes things afterwards. So one that meets something
 * it must wait for (a slow store, a name that takes part in an operation over two reactors) is
 * parked holding nothing, and later run again from its beginning.
 *
 * Invariants, walked by mds_check():
 *
 *   I1  an inode is freed exactly when nlink == 0 and open_count == 0
 *   I2  nlink of a file is the number of names of it; of a directory, 2 + its sub-directories
 *   I3  open_count of an inode is the number of handles on it, write_count those for writing
 *   I4  each handle is on the list of one client
 *   I5  busy_count of a directory is the number of busy names in it
 */
#pragma once

#include "base/list.h"
#include "ptlrpc/proto/ost.h"
#include "servers/store.h"
#include "servers/store/arena.h"

#include <causeway/server.h>

#include <sys/stat.h>

#define MDS_LINKS_MAX       65000u /* names of one file */
#define MDS_OSTS_MAX        64u
#define MDS_HANDLES_AT_ONCE 1024u
#define MDS_HANDLES_MAX     (1u << 22)
#define MDS_LOCKS_MAX       (1u << 20) /* byte-range locks of a reactor */
#define MDS_PARKED_MAX      4096u      /* calls that wait; more: -EAGAIN */
#define MDS_PARKED_NS       UINT64_C(30000000000)
#define MDS_APPEND_NS       UINT64_C(30000000000) /* an append lock is held at most this long */
#define MDS_DESTROY_NS      UINT64_C(1000000)     /* an object waits at most this long */
#define MDS_DESTROY_BATCH   256u
#define MDS_DESTROYS_MAX    (1u << 20) /* objects queued for one OSS reactor; more: forgotten */

/* What a handler may return beside 0 and a negative errno. */
enum mds_rc {
    MDS_STOPPED = 1,   /* the walk could not be ended here: the reply says so, its status is 0 */
    MDS_PARKED = 2,    /* the reply comes later */
    MDS_WAIT = 3,      /* something is busy: park the call and run it again */
    MDS_GO_ON = 5,     /* within a walk: there is a next component */
    MDS_LINK_AWAY = 4, /* mds.away: a symlink stands in the way that is another reactor's */
};

struct mds;
struct mds_op;
struct out_req;

/* A connected client: what goes when it goes. */
struct mds_client {
    struct base_list link; /* of mds.clients */
    struct base_list handles;
    struct base_list parked;
    void *user; /* the adapter's */
};

/* An open file. Its wire name is index and generation. */
struct mds_handle {
    struct mdt_inode *inode; /* NULL: free */
    struct mds_client *client;
    struct base_list link; /* of the client's */
    uint64_t cookie_end;   /* directory: READDIR ends here until it begins again */
    uint32_t index;
    uint32_t generation;
    uint32_t flags; /* enum mds_open_flags, and MDS_HANDLE_HAS_LOCKS */
    uint32_t next_free;
};
static_assert(sizeof(struct mds_handle) <= 64, "a cache line");

#define MDS_HANDLE_HAS_LOCKS (1u << 31)

/* A request. Body and reply are 8-byte aligned and stay until it is answered. */
struct mds_call {
    const void *body;
    void *reply;
    uint32_t body_bytes;
    uint32_t reply_max;
    uint32_t reply_bytes; /* out */
    uint16_t opc;
    uint16_t reserved;
    struct mds_client *client; /* NULL: died meanwhile; do nothing that it would have to own */
    void *tag;                 /* the adapter's */
    struct mds_op *op;         /* of this reactor that asks, instead of a client */
};

enum mds_parked_why {
    MDS_PARKED_RERUN,  /* runs again when something changed */
    MDS_PARKED_COMMIT, /* executed: waits for the store */
    MDS_PARKED_APPEND, /* waits for the append lock of an inode */
    MDS_PARKED_REMOTE, /* an operation over two reactors is under way for it */
    MDS_PARKED_TOKEN,  /* of another reactor, or an operation of this: waits for the token */
};

struct mds_parked {
    struct base_list link;        /* of what it waits for */
    struct base_list client_link; /* of the client's */
    struct mds_call call;
    enum mds_parked_why why;
    int status;        /* COMMIT */
    uint64_t ticket;   /* COMMIT */
    uint64_t until_ns; /* RERUN, APPEND */
};

/* Where the core's output goes. */
struct mds_env {
    /* A call that was parked ended: answer it; the call is gone after this. */
    void (*complete)(struct mds *mds, struct mds_call *call, int status);
    /*
     * Has @count objects (at most MDS_DESTROY_BATCH) destroyed by a target; mds_destroy_done()
     * follows. Errors: anything: try again later.
     */
    int (*destroy)(struct mds *mds, uint32_t target, const struct ost_object *objects,
                   uint32_t count);
    /*
     * Sends a request to another reactor: mds_out_done() with @op follows from a later call.
     * @path: of req->path_bytes. Errors: anything, and nothing follows.
     */
    int (*out)(struct mds *mds, uint32_t reactor, uint16_t opc, const struct out_req *req,
               const char *path, struct mds_op *op);
    /* mds_tick() is wanted at the time given at the latest. */
    void (*wake_at)(struct mds *mds, uint64_t deadline_ns);
};

/* An OSS reactor, and the objects it is to destroy: a ring. */
struct mds_destroy_target {
    struct lnet_process process;
    struct ost_object *objects;
    uint32_t size; /* of the ring, a power of two */
    uint32_t head; /* of the oldest; runs freely */
    uint32_t tail;
    uint32_t in_flight; /* of the oldest, with the target */
    uint64_t since_ns;  /* the oldest that is not in flight came */
    uint64_t retry_ns;  /* not before */
    void *import;       /* the adapter's */
    struct mds *mds;
};

struct mds_counters {
    uint64_t open_handles;
    uint64_t orphans;
    uint64_t destroys_queued, destroys_done, destroys_lost;
    uint64_t moved_count;
    uint64_t remote_ops;
    uint64_t parked_count, parked_now, parked_max;
    uint64_t ops_now;
    uint64_t locks;
};

struct mds {
    const struct mdt_store_ops *ops;
    struct mdt_store *store;
    uint64_t now_ns; /* of the polled clock */
    int64_t wall_ns; /* what files show */
    uint32_t reactor;
    uint32_t reactors;

    struct fid fid_next;
    uint32_t stripe_next; /* the next file's first OST */
    uint32_t stripe_bytes;
    uint32_t stripe_count;
    uint32_t ost_count;

    struct base_list clients;
    struct mds_handle **handle_chunks;
    uint32_t handle_count;       /* made, free ones included */
    uint32_t handle_free;        /* first free; UINT32_MAX: none */
    struct base_list waiting;    /* RERUN */
    struct base_list later;      /* RERUN at again_ns */
    struct base_list committing; /* COMMIT */
    struct base_list appending;  /* inodes with an append lock taken: struct mdt_locks */
    struct base_list ready;      /* operations whose answer is here */
    bool is_wake_wanted;
    uint64_t again_ns; /* when to run those in `waiting` anyway; UINT64_MAX: no need */

    bool is_token_taken;            /* reactor 0 */
    struct base_list token_waiters; /* parked calls */
    struct mdt_inode *prepared_dir; /* of a rename by whoever has the token; NULL: nothing is */
    struct mdt_dirent *prepared;
    struct out_req *out_body; /* room for a request to ourselves */
    void *out_stop;           /* room for where a walk of a request of OUT stopped */
    struct {                  /* of the last walk that said MDS_LINK_AWAY */
        struct fid dir;
        struct fid link;
        uint32_t consumed;
        uint16_t which;
    } away;

    struct mds_counters counters;

    struct mds_env env;
    struct mds_destroy_target *targets;
    uint32_t target_count;
    uint32_t target_first[MDS_OSTS_MAX]; /* of an OST: the target of its OSS's first reactor */
    struct mds_ost osts[MDS_OSTS_MAX];

    struct arena arena; /* of the small things: parked calls, locks */
    struct mds_options options;
    uint64_t bytes_max;
    void *user; /* the adapter's */
};

/* ---- core.c: life, time and calls ---- */

/*
 * Makes a server's core. @seed: of its hash tables.
 * Errors: -EINVAL; -ENOENT no such store; -ENOMEM.
 */
int mds_core_open(const struct mds_options *options, const struct mds_env *env, uint64_t seed,
                  uint64_t now_ns, struct mds **mds_out);

/* Ends it; clients must be gone. */
void mds_core_close(struct mds *mds);

/* Says what time it is, before anything else is called. */
void mds_time_set(struct mds *mds, uint64_t now_ns);

/* Does what became due. The next time is told by env.wake_at(). */
void mds_tick(struct mds *mds, uint64_t now_ns);

/* A client comes. Errors: -ENOMEM. */
int mds_client_open(struct mds *mds, void *user, struct mds_client **client_out);

/* It is gone: its handles are closed, its locks freed, its calls that wait answered. */
void mds_client_close(struct mds *mds, struct mds_client *client);

/*
 * Runs a request. Return: its status, with call->reply_bytes; or MDS_PARKED: env.complete() follows
 * with a copy of *@call.
 */
int mds_execute(struct mds *mds, struct mds_call *call);

/* Parks @call. Return: the parked call; NULL: too many wait. */
struct mds_parked *mds_park(struct mds *mds, const struct mds_call *call, enum mds_parked_why why,
                            struct base_list *list);

/* Ends a parked call with its reply. */
void mds_parked_complete(struct mds *mds, struct mds_parked *parked, int status);

/* mdt_store_options.committed: answers what waited for it; @user is the server. */
void mds_store_committed(void *user, uint64_t ticket);

/* Ends one whose changes are to be committed. */
void mds_parked_finish(struct mds *mds, struct mds_parked *parked, int status);

/* Something that calls may wait for changed: they run again soon. */
void mds_wake(struct mds *mds);

/* Commits what a call changed. Return: @rc; or MDS_PARKED: it is answered when that is done. */
int mds_call_end(struct mds *mds, const struct mds_call *call, int rc);

/* Runs what mds_wake() asked for. The adapter calls it when it is done with an event. */
void mds_wake_run(struct mds *mds);

/* ---- out.c, op.c: between reactors ---- */

/*
 * Runs a request of another reactor. Return: its status, with call->reply_bytes; or MDS_PARKED:
 * env.complete() follows.
 */
int mds_out_execute(struct mds *mds, struct mds_call *call);

/* The answer to env.out(). @op NULL: nobody waits. */
void mds_out_done(struct mds *mds, struct mds_op *op, int status, const void *body, uint32_t bytes);

/* An operation goes on in the next mds_wake_run(). */
void mds_op_ready(struct mds_op *op, int status);

/* Runs those that are ready. */
void mds_op_run(struct mds *mds);

/* ---- walk.c ---- */

enum mds_last {
    MDS_LAST_NAME,   /* an ordinary name */
    MDS_LAST_DOT,    /* "." */
    MDS_LAST_DOTDOT, /* ".." */
    MDS_LAST_NONE,   /* an empty path: the base */
};

enum mds_walk_mode {
    MDS_WALK_PARENT = 1u << 0, /* the name counts, not what it names: absent and remote are fine,
                                  and no symlink in the last place is followed */
    MDS_WALK_TOKEN = 1u << 2,  /* with the token: passes names that its holder marked */
    MDS_WALK_MAYBE = 1u << 1,  /* as for O_CREAT: may be absent, followed with MDS_FOLLOW */
};

struct mds_where {
    const struct fid *base;
    const char *path;
    uint32_t bytes;
    uint32_t flags; /* enum mds_flags */
    uint32_t uid, gid;
    uint16_t which; /* for the reply */
};

struct mds_place {
    enum mds_last last;
    bool has_slash;            /* after the last name */
    struct mdt_inode *dir;     /* NAME: the directory */
    const char *name;          /* NAME */
    uint32_t name_bytes;       /* NAME */
    struct mdt_dirent *dirent; /* NAME: NULL if there is none */
    struct mdt_inode *inode;   /* what it names; NULL: absent, or of another reactor */
};

/*
 * Walks. Return: 0 with *@place; a negative errno; or MDS_STOPPED, MDS_WAIT.
 */
int mds_walk(struct mds *mds, struct mds_call *call, const struct mds_where *where, uint32_t mode,
             struct mds_place *place);

/* Gives @inode the name of a place that is free. Errors: -ENOSPC. */
int mds_place_fill(struct mds *mds, const struct mds_place *place, struct mdt_inode *inode,
                   struct mdt_dirent **dirent_out);

/* Takes the name without a meaning yet: for an operation that marks it busy. Errors: -ENOSPC. */
int mds_place_hold(struct mds *mds, const struct mds_place *place, struct mdt_dirent **dirent_out);

/* Reads the head of a request: bounds and flags. Errors: -EINVAL, -ENAMETOOLONG. */
int mds_where_init(struct mds_where *where, const struct mds_call *call, uint32_t fixed_bytes,
                   uint32_t flags_allowed);

/* The same for the two paths of LINK and RENAME. */
int mds_where_init2(struct mds_where *from, struct mds_where *to, const struct mds_call *call,
                    uint32_t flags_allowed);

/* Writes a MOVED answer. Return: MDS_STOPPED. */
int mds_moved(struct mds *mds, struct mds_call *call, const struct fid *fid, uint32_t consumed,
              uint16_t which);

/* Whether (@uid, @gid) has all of @mask (4 read, 2 write, 1 execute). */
static inline bool
mds_permits(const struct mds_attr *attr, uint32_t uid, uint32_t gid, uint32_t mask)
{
    if (uid == 0) {
        return (mask & 1) == 0 || S_ISDIR(attr->mode) || (attr->mode & 0111) != 0;
    }
    uint32_t bits = attr->mode;

    if (uid == attr->uid) {
        bits >>= 6;
    } else if (gid == attr->gid) {
        bits >>= 3;
    }
    return (bits & mask) == mask;
}

/* Whether names may be made in a directory. Errors: -ENOENT it was removed; -EACCES. */
int mds_may_create_in(const struct mds_attr *dir, uint32_t uid, uint32_t gid);

/* The same by inode. */
static inline int
mds_may_create(const struct mdt_inode *dir, uint32_t uid, uint32_t gid)
{
    return mds_may_create_in(&dir->attr, uid, gid);
}

/* Whether the name of @attr's inode may be taken out of @dir. Errors: also -EPERM, sticky bit. */
int mds_may_delete(const struct mds_attr *dir, const struct mds_attr *attr, uint32_t uid,
                   uint32_t gid);

/* ---- name.c, rename.c: parts that are also asked for by other reactors ---- */

/* Whether @inode may have one more name. Errors: -EPERM, -ENOENT, -EMLINK. */
int mds_may_link(const struct mdt_inode *inode);

/* Gives it one. */
void mds_inode_link(struct mds *mds, struct mdt_inode *inode);

/* Whether the old name of a rename can be one. Errors: rename(2)'s. */
int mds_rename_source(const struct mds_place *from);

/* Whether the new one can, for a source of @type. */
int mds_rename_target(const struct mds_place *to, uint8_t type, uint32_t flags);

struct mds_rename_view {
    const struct mdt_inode *from_dir;
    const struct mds_attr *from;
    const struct mds_attr *to_dir;
    const struct mds_attr *to; /* NULL: there is none */
    bool is_same_dir;
    bool is_exchange;
};

/* Who may, and what may replace what; not whether it is empty. */
int mds_rename_permitted(const struct mds_rename_view *view, uint32_t uid, uint32_t gid);

/* ---- inode.c ---- */

/* Whether @fid is of this reactor. */
static inline bool
mds_is_own(const struct mds *mds, const struct fid *fid)
{
    return mds->reactors == 1 || fid_mds_owner(fid, mds->reactors) == mds->reactor;
}

/* A FID that never was. */
struct fid mds_fid_make(struct mds *mds);

/* How a new inode starts: FID, owner, times; gid and set-gid bit from @dir if that has the bit. */
void mds_attr_init(struct mds *mds, struct mds_attr *attr, const struct mdt_inode *dir,
                   uint32_t mode, uint32_t uid, uint32_t gid);

/* The layout of a new file in @dir, or of a directory's default. Errors: -EINVAL. */
int mds_layout_init(struct mds *mds, struct mds_attr *attr, const struct mdt_inode *dir,
                    uint32_t stripe_bytes, uint32_t stripe_count);

/* Copies what clients see of @inode. */
static inline void
mds_attr_get(const struct mdt_inode *inode, struct mds_attr *attr)
{
    *attr = inode->attr;
    if (inode->write_count > 0) {
        attr->flags |= MDS_ATTR_SIZE_ON_OST;
    }
}

/* Sets mtime and ctime of a directory whose names changed. */
void mds_dir_touch(struct mds *mds, struct mdt_inode *dir);

/*
 * One name less: a directory's is its last. Frees @inode if nobody has it open. @attr_out: what it
 * is, or was, after that.
 */
void mds_inode_unlink(struct mds *mds, struct mdt_inode *inode, struct mds_attr *attr_out);

/* Frees @inode if it has no names and is not open. */
void mds_inode_release(struct mds *mds, struct mdt_inode *inode);

/* Writes the reply of an operation on @inode. Return: 0. */
int mds_reply_attr(struct mds_call *call, const struct mdt_inode *inode);

/* ---- handle.c ---- */

/* Opens @inode. Return: NULL: too many are open. */
struct mds_handle *mds_handle_open(struct mds *mds, struct mds_client *client,
                                   struct mdt_inode *inode, uint32_t flags);

/* Closes; @has_written: bytes may be in the objects. The inode may go. */
void mds_handle_close(struct mds *mds, struct mds_handle *handle, bool has_written);

/* The handle of @client with that wire name, on @fid; NULL: none. */
struct mds_handle *mds_handle_find(struct mds *mds, const struct mds_client *client,
                                   uint64_t number, const struct fid *fid);

/* Its wire name. */
static inline uint64_t
mds_handle_number(const struct mds_handle *handle)
{
    return (uint64_t)handle->generation << 32 | handle->index;
}

/* ---- lock.c ---- */

/* Frees what @handle has locked. */
void mds_locks_close(struct mds *mds, struct mds_handle *handle);

/* Frees the (empty) lock state of an inode that goes. */
void mds_locks_drop(struct mds *mds, struct mdt_inode *inode);

/* Takes a waiting call out of its queue. */
void mds_append_forget(struct mds *mds, struct mds_parked *parked);

/* Ends append locks that were held too long, and calls that waited too long. */
void mds_append_tick(struct mds *mds);

/* ---- destroy.c ---- */

/* Makes the queues, one for each reactor of each OSS. Errors: -ENOMEM. */
int mds_destroy_open(struct mds *mds);

/* Forgets them. */
void mds_destroy_close(struct mds *mds);

/* Has the objects of a file that is gone destroyed, soon. */
void mds_destroy_file(struct mds *mds, const struct mds_attr *attr);

/* Sends what is due. */
void mds_destroy_tick(struct mds *mds);

/* The answer to env.destroy(): what was in flight is done, or is to be tried again. */
void mds_destroy_done(struct mds *mds, uint32_t index, int status);

/* ---- the requests, by file ---- */

/* Each runs a request of that kind. Return: as call_run() in core.c wants it: see enum mds_rc. */
int mds_getattr(struct mds *mds, struct mds_call *call); /* attr.c */
int mds_setattr(struct mds *mds, struct mds_call *call);
int mds_access(struct mds *mds, struct mds_call *call);
int mds_readlink(struct mds *mds, struct mds_call *call);
int mds_statfs(struct mds *mds, struct mds_call *call);
int mds_readdir(struct mds *mds, struct mds_call *call); /* readdir.c */
int mds_op_open(struct mds *mds, struct mds_call *call); /* open.c */
int mds_op_close(struct mds *mds, struct mds_call *call);
int mds_create(struct mds *mds, struct mds_call *call); /* name.c */
int mds_link(struct mds *mds, struct mds_call *call);
int mds_unlink(struct mds *mds, struct mds_call *call);
int mds_rename(struct mds *mds, struct mds_call *call); /* rename.c */
int mds_flock(struct mds *mds, struct mds_call *call);  /* lock.c */
int mds_append_lock(struct mds *mds, struct mds_call *call);
int mds_append_unlock(struct mds *mds, struct mds_call *call);

/*
 * What such a request says by itself is right, its head being so. Errors: the request's.
 */
int mds_setattr_validate(const struct mds_call *call);
int mds_open_validate(const struct mds_call *call);
int mds_create_validate(const struct mds_call *call);

/* null.c: validates any of them and answers out of thin air. */
int mds_null_execute(struct mds *mds, struct mds_call *call);

/* ---- check.c ---- */

/* Walks everything and asserts the invariants above. O(n): for tests. */
void mds_check(struct mds *mds);
