/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A metadata server of one or more reactors without a network, and a client of it.
 *
 * Requests run in the caller; what the cores send to each other lies in a bag from which the rig
 * delivers in an order drawn from its seed. The client splices symlinks and follows MOVED answers
 * as a real one does. Time moves when the test says so, and 1 us with each request.
 */
#pragma once

#include "base/prng.h"
#include "servers/mds/mds.h"

#define RIG_REACTORS_MAX 8u
#define RIG_CLIENTS_MAX  8u
#define RIG_REPLY_BYTES  8448u
#define RIG_CALLS_MAX    64u
#define RIG_WALL_NS      UINT64_C(1700000000000000000)

/* A request under way. */
struct rig_call {
    bool is_used;
    bool is_done;
    int status;
    struct rig *rig;
    uint32_t reactor;
    struct mds_call call;
    uint64_t body[1200];
    uint64_t reply[RIG_REPLY_BYTES / 8];
};

struct rig_message; /* between cores */

struct rig {
    uint32_t reactors;
    uint32_t client; /* that asks next */
    uint32_t uid, gid;
    uint64_t now_ns;
    struct mds *mds[RIG_REACTORS_MAX];
    struct mds_client *clients[RIG_CLIENTS_MAX][RIG_REACTORS_MAX];
    uint64_t deadline_ns[RIG_REACTORS_MAX];
    struct base_prng prng;
    struct rig_message **bag;
    uint32_t bag_count, bag_max;
    struct rig_call *calls;
    uint64_t slow_seen[1024]; /* bits */
    uint64_t slow_tickets[RIG_REACTORS_MAX];
    bool is_slow_wanted[RIG_REACTORS_MAX];
    uint64_t destroyed;   /* objects */
    uint32_t destroy_rc;  /* what env.destroy says, negated */
    bool is_destroy_slow; /* answers come from rig_pump() */
    const char *store;
    bool is_slow; /* the store fetches what it is asked for the first time, and commits, later */
    uint64_t inodes_max;
    uint32_t osts;

    /* The last reply. */
    uint64_t reply[RIG_REPLY_BYTES / 8];
    uint32_t reply_bytes;
    uint32_t reactor; /* that gave it */
    struct mds_attr attr;
    uint64_t handle;
    uint32_t created;
};

struct rig_text {
    struct fid base;
    char path[2 * MDS_PATH_BYTES_MAX + 2];
    uint32_t bytes;
};

/* What a client does for one call of POSIX: as many requests as the path needs. */
struct rig_task {
    bool is_done;
    int status;
    uint16_t opc;
    uint32_t hops, links;
    struct rig_call *call;
    uint32_t fixed_bytes;
    uint64_t fixed[16];
    const void *tail;
    uint32_t tail_bytes;
    struct mds_open_rep opened; /* the last reply's first bytes */
    struct rig_text text[2];
    struct rig_text first[2];
};

/* Opens. Set store, is_slow, inodes_max, osts before it in a zeroed rig; 0 clients are connected.
 */
void rig_open(struct rig *rig, uint32_t reactors, uint64_t seed);
/* Closes, after the invariants were checked. */
void rig_close(struct rig *rig);
/* Lets client @index come. */
void rig_connect(struct rig *rig, uint32_t index);
/* Lets it die. */
void rig_kill(struct rig *rig, uint32_t index);
/* Moves time and does what is due. */
void rig_time(struct rig *rig, uint64_t delta_ns);
/* Delivers messages between cores, at most @count; true: there are more. */
bool rig_pump(struct rig *rig, uint32_t count);
/* Checks the invariants of all cores. */
void rig_check(struct rig *rig);

/* Begins one request at one reactor, as it is. */
struct rig_call *rig_begin(struct rig *rig, uint32_t reactor, uint16_t opc, const void *body,
                           uint32_t bytes);
/* Takes its end, which must have come. */
int rig_end(struct rig *rig, struct rig_call *call);
/* Both, with pumping in between. */
int rig_raw(struct rig *rig, uint32_t reactor, uint16_t opc, const void *body, uint32_t bytes);

/* Begins a task; the arguments are those of rig_do(). @tail must stay. */
void rig_task_begin(struct rig *rig, struct rig_task *task, uint16_t opc, const void *fixed,
                    uint32_t fixed_bytes, const struct fid *base, const char *path,
                    const struct fid *base2, const char *path2, const void *tail,
                    uint32_t tail_bytes);
/* Goes on if the request's answer is here. Return: whether the task is done. */
bool rig_task_step(struct rig *rig, struct rig_task *task);

/*
 * A request with one or two paths, like a client: @fixed (its base, uid, gid and path sizes are
 * filled in), then the paths, then @tail. @base NULL: the root.
 */
int rig_do(struct rig *rig, uint16_t opc, const void *fixed, uint32_t fixed_bytes,
           const struct fid *base, const char *path, const struct fid *base2, const char *path2,
           const void *tail, uint32_t tail_bytes);

/* The calls of POSIX. attr, handle and reply of the rig tell more. */
int rig_stat(struct rig *rig, const char *path);
int rig_lstat(struct rig *rig, const char *path);
int rig_stat_fid(struct rig *rig, const struct fid *fid);
int rig_mkdir(struct rig *rig, const char *path, uint32_t mode);
int rig_mknod(struct rig *rig, const char *path, uint32_t mode);
int rig_symlink(struct rig *rig, const char *target, const char *path);
int rig_readlink(struct rig *rig, const char *path);
int rig_link(struct rig *rig, const char *from, const char *to);
int rig_unlink(struct rig *rig, const char *path);
int rig_rmdir(struct rig *rig, const char *path);
int rig_rename(struct rig *rig, const char *from, const char *to, uint32_t flags);
int rig_open_file(struct rig *rig, const char *path, uint32_t open_flags, uint32_t flags,
                  uint32_t mode);
int rig_open_fid(struct rig *rig, const struct fid *fid, uint32_t open_flags);
int rig_close_file(struct rig *rig, const struct fid *fid, uint64_t handle, uint32_t flags);
int rig_setattr(struct rig *rig, const char *path, const struct mds_setattr_req *set);
int rig_chmod(struct rig *rig, const char *path, uint32_t mode);
int rig_access(struct rig *rig, const char *path, uint32_t mask);
/* Makes an empty file and closes it. */
int rig_creat(struct rig *rig, const char *path);
/*
 * Reads a directory from a cookie; calls @each for every entry. @batch_bytes: of one request.
 * Return: 0 at the end, or an error.
 */
int rig_readdir(struct rig *rig, const struct fid *dir, uint64_t handle, uint64_t cookie,
                uint32_t batch_bytes, void (*each)(const struct mds_dirent *entry, void *arg),
                void *arg);
int rig_flock(struct rig *rig, const struct fid *fid, uint64_t handle, uint64_t owner,
              uint64_t start, uint64_t end, uint32_t type);
