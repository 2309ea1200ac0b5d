/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The metadata store: what the MDS keeps names and inodes in.
 *
 * One store serves one reactor. It hands out pointers to its inodes and names, which hold until the
 * MDS frees or removes them: the store is also the MDS's memory of what is open and locked, so that
 * a request costs no copying between the two.
 *
 * A store may be slow. get(), lookup() and scan() may answer -EINPROGRESS: what is wanted is being
 * fetched, and options.wake() will say that it is worth asking again. The MDS then runs the whole
 * request once more; it changes nothing before all it looks up is there. Changes themselves never
 * wait; commit() ends those of one request and may answer -EINPROGRESS: the reply waits until
 * committed() has passed the ticket.
 *
 * Rules for every store, numbered for the tests:
 *
 *   S1  what make() or insert() made is found by get(), lookup() and scan() at once
 *   S2  cookies of a directory grow with insertion and are never given again; a name keeps its own;
 *       cookie 0 to 2 are never given
 *   S3  scan() finds the names with the smallest cookies above the one given, in order, whether the
 *       name with that cookie is still there or not
 *   S4  a call that fails changes nothing
 *   S5  remove() and drop() never fail
 */
#pragma once

#include "base/assert.h"
#include "ptlrpc/proto/mds.h"
#include "servers/store/table.h"

#define MDT_COOKIE_FIRST 32u /* of the names of a directory */

struct mdt_store;
struct mdt_chunk;
struct mdt_locks;

enum mdt_state {
    MDT_LINKABLE = 1u << 0,  /* made nameless on purpose: may get a name though nlink is 0 */
    MDT_BUSY = 1u << 1,      /* takes part in an operation over two reactors */
    MDT_TIMES_SET = 1u << 2, /* mtime was set explicitly while it was open for writing */
};

/* A file, directory, symlink or fifo. The store's memory; who writes what is said beside it. */
struct mdt_inode {
    struct table_node node; /* the store's: by FID */
    struct mds_attr attr;   /* the MDS's, who calls changed() after it */
    /* The MDS's alone; zero when made, and not kept over a restart. */
    uint32_t open_count;
    uint32_t write_count; /* of them for writing */
    uint32_t state;       /* enum mdt_state */
    uint32_t busy_count;  /* directory: names in it that are busy */
    struct mdt_locks *locks;
    union {
        struct {
            struct fid parent; /* the MDS's, by changed() */
            /* The store's. */
            uint64_t entry_count;
            uint64_t hash;
            uint64_t cookie_next; /* above all given so far */
            struct mdt_chunk *first;
            struct mdt_chunk *last;
        } dir;
        struct { /* the store's */
            char *target;
            uint32_t bytes;
        } link;
    } u;
};

/* A name in a directory. The store's memory. */
struct mdt_dirent {
    struct table_node node;  /* by directory and name */
    struct mdt_inode *dir;   /* that holds it */
    struct mdt_inode *inode; /* that it names; NULL: of another reactor */
    uint64_t cookie;
    uint16_t name_bytes;
    uint8_t type;    /* DT_REG ... */
    uint8_t is_busy; /* the MDS's: takes part in an operation over two reactors */
    uint32_t reserved;
    struct fid fid;
    char name[]; /* without NUL */
};
static_assert(offsetof(struct mdt_dirent, name) == 64, "short names fit two lines");

struct mdt_store_options {
    uint64_t inodes_max;
    uint64_t bytes_max;
    uint64_t hash_seed;
    void (*wake)(void *user);                       /* ask again */
    void (*committed)(void *user, uint64_t ticket); /* all up to this one */
    void *user;
};

struct mdt_store_stats {
    uint64_t inodes;
    uint64_t directories;
    uint64_t bytes;      /* taken from the system */
    uint64_t bytes_used; /* of them in use */
};

/* What a new inode is. */
struct mdt_make {
    const struct mds_attr *attr;
    const struct fid *parent; /* directory */
    const char *target;       /* symlink */
    uint32_t target_bytes;
};

/* A name for a directory. */
struct mdt_name {
    const char *name;
    uint32_t bytes;
    uint8_t type;             /* without `inode`: DT_REG ... */
    struct mdt_inode *inode;  /* what it names; NULL: what fid and type say */
    const struct fid *fid;    /* without `inode` */
    struct mdt_dirent *reuse; /* a name of the same directory that the caller removes next, whose
                                 cookie it gets, so that a reader never meets a renamed entry twice;
                                 or NULL */
};

struct mdt_store_ops {
    const char *name;
    bool keeps_nothing; /* "null": no calls but open and close; the MDS answers by itself */

    /* Errors: -ENOMEM. */
    int (*open)(const struct mdt_store_options *options, struct mdt_store **store_out);
    void (*close)(struct mdt_store *store);

    /* Errors: -ESTALE no such inode; -EINPROGRESS. */
    int (*get)(struct mdt_store *store, const struct fid *fid, struct mdt_inode **inode_out);
    /* Errors: -ENOENT; -EINPROGRESS. */
    int (*lookup)(struct mdt_store *store, const struct mdt_inode *dir, const char *name,
                  uint32_t bytes, struct mdt_dirent **dirent_out);
    /* The next at most @max names; at least one. Errors: -ENOENT none above @cookie; -EINPROGRESS.
     */
    int (*scan)(struct mdt_store *store, const struct mdt_inode *dir, uint64_t cookie,
                struct mdt_dirent **dirents_out, uint32_t max, uint32_t *count_out);

    /* Makes an inode; attr.fid is new. Errors: -ENOSPC inodes_max or bytes_max. */
    int (*make)(struct mdt_store *store, const struct mdt_make *make, struct mdt_inode **inode_out);
    /* Forgets an inode without names; a directory is empty. */
    void (*drop)(struct mdt_store *store, struct mdt_inode *inode);
    /* Puts a name that is not there into @dir. Errors: -ENOSPC. */
    int (*insert)(struct mdt_store *store, struct mdt_inode *dir, const struct mdt_name *name,
                  struct mdt_dirent **dirent_out);
    void (*remove)(struct mdt_store *store, struct mdt_dirent *dirent);
    /* Makes a name mean something else; it keeps its cookie. */
    void (*retarget)(struct mdt_store *store, struct mdt_dirent *dirent, struct mdt_inode *inode,
                     const struct fid *fid, uint8_t type);
    /* attr or parent of @inode is not what it was. */
    void (*changed)(struct mdt_store *store, struct mdt_inode *inode);
    /* Ends a request's changes. Errors: -EINPROGRESS: wait for committed() of *@ticket_out. */
    int (*commit)(struct mdt_store *store, uint64_t *ticket_out);

    void (*stats)(const struct mdt_store *store, struct mdt_store_stats *stats_out);
    /* Walks all inodes, in no order: for checks. */
    void (*each)(struct mdt_store *store, void (*visit)(struct mdt_inode *inode, void *arg),
                 void *arg);
};

/* The store called @name, or NULL. */
const struct mdt_store_ops *mdt_store_find(const char *name);

extern const struct mdt_store_ops mdt_store_mem;
