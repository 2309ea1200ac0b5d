/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the reactors of one MDS ask each other, on PTLRPC_PORTAL_OUT. Private: its ends are always
 * of one process and version.
 *
 * An operation over two or more reactors has a coordinator, the reactor that got the client's
 * request. It marks the names that take part busy, asks the others, and changes its own part when
 * they have done theirs. Requests that meet a busy name wait at home, holding nothing.
 *
 * Nothing deadlocks, because
 *   - no request of this portal waits (what is busy is -EAGAIN, and the coordinator lets go of all
 *     it holds and begins again a little later), but for the token;
 *   - the token is asked for before anything is marked. Whoever has it is the only one that moves a
 *     directory to another place, or anything between reactors. So the way up from a directory
 *     to the root holds still, and "into its own subtree" can be checked.
 */
#pragma once

#include "servers/mds/mds.h"

#define MDS_BUSY       1u /* of a name: taking part in an operation */
#define MDS_BUSY_TOKEN 2u /* in that of whoever has the token */

enum out_opc {
    OUT_MAKE_DIR = 0x300, /* attr, fid2 = parent: makes the inode. Reply: attr */
    OUT_UNLINK,           /* fid: one name less, if allowed. Reply: attr */
    OUT_INSERT,           /* fid2, path: a name for fid of type, for LINK. Reply: walk */
    OUT_STAT,             /* fid. Reply: attr */
    OUT_READLINK,         /* fid. Reply: text */
    OUT_MOVED,            /* fid: ctime; fid2 its parent now, unless zero */
    OUT_ANCESTOR,         /* fid: is fid2 above it? Reply: answer, and fid to go on from */
    OUT_TOKEN,            /* waits its turn */
    OUT_TOKEN_FREE,
    OUT_PREPARE, /* fid2, path: find the target of a rename, mark it. Reply: walk and more */
    OUT_COMMIT,  /* what was prepared names fid of type now */
    OUT_RELEASE, /* what was prepared is busy no more; and gone, if it never got a meaning */
};

enum out_flags {
    OUT_IS_DIR = 1u << 0,     /* UNLINK: a directory; PREPARE: the source is one */
    OUT_STICKY = 1u << 1,     /* UNLINK: only for the owner of it or of its directory (dir_uid) */
    OUT_NOREPLACE = 1u << 2,  /* PREPARE */
    OUT_EXCHANGE = 1u << 3,   /* PREPARE, COMMIT */
    OUT_VICTIM_DIR = 1u << 4, /* COMMIT: what it named was a directory */
    OUT_CHECK = 1u << 5,      /* INSERT, PREPARE: it cannot be, but is the target's path right? */
};

struct out_req {
    struct fid fid;
    struct fid fid2;
    uint32_t uid, gid;
    uint32_t dir_uid;
    uint32_t flags; /* enum out_flags */
    uint16_t path_bytes;
    uint8_t type; /* DT_REG ... */
    uint8_t reserved;
    uint32_t reserved2;
    struct mds_attr attr; /* MAKE_DIR */
    /* the path follows */
};

enum out_answer { OUT_NO, OUT_YES, OUT_GO_ON };

struct out_rep {
    struct fid
        fid; /* ANCESTOR: go on here; PREPARE: what the name means; MOVED, SYMLINK: the walk's */
    uint16_t walk; /* INSERT, PREPARE: enum mds_walk */
    uint16_t consumed;
    uint16_t text_bytes;
    uint8_t type;         /* PREPARE: of what the name means; DT_UNKNOWN: it is new */
    uint8_t answer;       /* ANCESTOR */
    struct mds_attr attr; /* UNLINK, STAT, MAKE_DIR; PREPARE: of the directory */
    /* text follows */
};

#define OUT_TEXT_BYTES_MAX 4096u

/* An operation over several reactors, at its coordinator. */
struct mds_op {
    struct base_list link; /* of mds.ready, when an answer is here */
    struct mds *mds;
    struct mds_parked *parked;       /* the client's request */
    void (*next)(struct mds_op *op); /* what to do with the answer */
    struct mdt_inode *dir;           /* of the busy name here; NULL: none is marked */
    struct mdt_dirent *dirent;
    struct mdt_inode *inode; /* LINK: held; NULL: only checking */
    int status;              /* the answer */
    bool has_token;
    bool is_prepared;
    bool is_same_dir;
    bool was_linkable;
    uint32_t to_reactor; /* RENAME: of the target's directory */
    int end_status;      /* RENAME: the reply's, when all is let go */
    bool is_retry;       /* RENAME: run it again when all is let go */
    uint8_t to_type;
    struct fid to_fid; /* what the target's name meant */
    struct fid climb;  /* OUT_ANCESTOR: where it is */
    bool is_exchange;
    struct fid from_dir;
    struct mds_rep_head stop; /* the reply, but for the text of a symlink */
    struct mds_attr from_attr;
    struct mds_attr to_attr;
    struct mds_attr to_dir_attr;
    union {
        struct out_rep rep;
        uint64_t room[(sizeof(struct out_rep) + OUT_TEXT_BYTES_MAX) / 8];
    } u;
};

/* Begins an operation for @call, which is parked. Return: NULL: too many. */
struct mds_op *mds_op_begin(struct mds *mds, const struct mds_call *call);

/* Asks @reactor (may be this one); op->next() follows. */
void mds_op_ask(struct mds_op *op, uint32_t reactor, enum out_opc opc, const struct out_req *req,
                const char *path, void (*next)(struct mds_op *op));

/* Asks without waiting for the answer. */
void mds_op_tell(struct mds_op *op, uint32_t reactor, enum out_opc opc, const struct out_req *req);

/* Ends it with a status; the reply's bytes are in parked->call. */
void mds_op_end(struct mds_op *op, int status);

/* Ends it by running the request from its beginning, a moment later. */
void mds_op_again(struct mds_op *op);

/*
 * The second path stopped at a symlink or another reactor, as the answer (INSERT, PREPARE) says:
 * that is the client's reply. Return: true: the symlink's text is asked for, @next gets it and uses
 * op->stop; false: the reply is written.
 */
bool mds_op_stop_needs_text(struct mds_op *op, void (*next)(struct mds_op *op));

/* Writes that reply. */
void mds_op_reply_stop(struct mds_op *op, const struct mds_rep_head *stop, const char *text,
                       uint32_t text_bytes);

/* Marks the operation's name here. */
void mds_op_mark(struct mds_op *op, struct mdt_inode *dir, struct mdt_dirent *dirent, uint8_t busy);

/* Lets go of it. */
void mds_op_unmark(struct mds_op *op);

/* Which reactor a new directory shall live on. */
uint32_t mds_place_of(const struct mds *mds, const struct fid *parent, const char *name,
                      uint32_t bytes);

/* The requests that have parts elsewhere. Return: MDS_PARKED, or an error. */
int mds_remote_mkdir(struct mds *mds, struct mds_call *call, const struct mds_place *place,
                     const struct mds_attr *attr, uint32_t reactor);
int mds_remote_unlink(struct mds *mds, struct mds_call *call, const struct mds_place *place,
                      const struct mds_where *where);
int mds_remote_link(struct mds *mds, struct mds_call *call, struct mdt_inode *inode,
                    const struct mds_where *to);
int mds_remote_rename(struct mds *mds, struct mds_call *call);
int mds_remote_symlink(struct mds *mds, struct mds_call *call); /* mds.away says which */
