/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MDS's requests and replies.
 *
 * Path walking. An operation names its object by a directory's FID and a path from there; the MDS
 * walks as far as it can and answers with one of enum mds_walk in the reply's head:
 *   DONE     the operation was executed (or failed: the status says how).
 *   MOVED    status 0, nothing executed: the walk came to a directory of another reactor. Ask
 *            fid_mds_owner(rep.fid) again with base = rep.fid and the path from rep.consumed on.
 *   SYMLINK  status 0, nothing executed: a symbolic link stands in the way: its target's text
 *            follows the fixed part, rep.fid is the directory that holds it, rep.consumed counts
 *            the bytes of path up to and with the link's name. The client splices and asks again
 *            (at most 40 times).
 *
 * A path is relative (no leading '/'); components are separated by one or more '/'; "." and ".."
 * are understood; ".." of the root is the root; it may end in '/', which then wants a directory. An
 * empty path names the base itself. Names have 1 to 255 bytes, any but '/' and NUL; longer:
 * -ENAMETOOLONG. The last component's symlink is followed only with MDS_FOLLOW.
 *
 * Permissions are checked for (uid, gid) of the request: owner, group, other bits; uid 0 passes.
 *
 * A request of a reactor that does not own the base gets -EREMOTE.
 *
 * Sizes. A file's size is its objects' as soon as MDS_ATTR_SIZE_ON_OST is set; else attr.size
 * counts (0, or a directory's or link's). The bit is set while the file is open for writing and for
 * good when a close or truncation said that there are bytes. Times: the newer ctime wins, with its
 * mtime.
 */
#pragma once

#include "ptlrpc/proto/fid.h"

#define MDS_NAME_BYTES_MAX 255u
#define MDS_PATH_BYTES_MAX 4095u
#define MDS_SYMLINKS_MAX   40u

/* Lustre's numbers where it has them; reint ops are 0x100 + Lustre's reint code. */
enum mds_opc {
    MDS_GETATTR = 33,
    MDS_CLOSE = 35,
    MDS_READDIR = 37, /* Lustre's READPAGE; 38 and 39 are ptlrpc's own */
    MDS_STATFS = 41,
    MDS_SYNC = 44,
    MDS_READLINK = 60,
    MDS_ACCESS = 61,
    MDS_FLOCK = 62,       /* fcntl byte-range locks, never waiting */
    MDS_APPEND_LOCK = 63, /* waits its turn: appends to a file of several stripes */
    MDS_APPEND_UNLOCK = 64,
    MDS_REINT_SETATTR = 0x101,
    MDS_REINT_CREATE = 0x102, /* mkdir, symlink, mknod (fifo, empty regular file) */
    MDS_REINT_LINK = 0x103,
    MDS_REINT_UNLINK = 0x104, /* unlink and rmdir */
    MDS_REINT_RENAME = 0x105,
    MDS_REINT_OPEN = 0x106,
};

enum mds_walk { MDS_WALK_DONE = 0, MDS_WALK_MOVED = 1, MDS_WALK_SYMLINK = 2 };

enum mds_flags {
    MDS_FOLLOW = 1u << 0,     /* follow a symlink in the last component */
    MDS_UNLINK_DIR = 1u << 1, /* UNLINK: rmdir, else unlink */
    MDS_RENAME_NOREPLACE = 1u << 2,
    MDS_RENAME_EXCHANGE = 1u << 3,
    MDS_WANT_DIR = 1u << 4, /* the object must be a directory: -ENOTDIR */
};

/* First in every request with a path. `base` and path; the path's bytes follow the op's fixed part.
 */
struct mds_req_head {
    struct fid base;     /*  0 */
    uint32_t uid;        /* 16 */
    uint32_t gid;        /* 20 */
    uint32_t flags;      /* 24 enum mds_flags */
    uint16_t path_bytes; /* 28 */
    uint16_t reserved;   /* 30 */
};
static_assert(sizeof(struct mds_req_head) == 32, "wire");

/* First in every reply to one. */
struct mds_rep_head {
    struct fid fid;      /*  0 MOVED, SYMLINK: where to go on; DONE: the object */
    uint16_t walk;       /* 16 enum mds_walk */
    uint16_t consumed;   /* 18 bytes of the path */
    uint16_t link_bytes; /* 20 SYMLINK: of text after the reply's fixed part (struct mds_rep_head
                            only) */
    uint16_t which;      /* 22 0: the first path, 1: the second (LINK, RENAME) */
};
static_assert(sizeof(struct mds_rep_head) == 24, "wire");

enum mds_attr_flags { MDS_ATTR_SIZE_ON_OST = 1u << 0 };

struct mds_attr {
    struct fid fid;   /*  0 */
    uint32_t mode;    /* 16 type and permissions, as st_mode */
    uint32_t nlink;   /* 20 */
    uint32_t uid;     /* 24 */
    uint32_t gid;     /* 28 */
    uint64_t size;    /* 32 */
    uint64_t blocks;  /* 40 of 512 bytes */
    int64_t atime_ns; /* 48 since 1970 */
    int64_t mtime_ns; /* 56 */
    int64_t ctime_ns; /* 64 */
    uint32_t flags;   /* 72 enum mds_attr_flags */
    uint32_t
        stripe_bytes; /* 76 file: of one stripe; directory: default for new files, 0: inherit */
    uint16_t stripe_count; /* 80 */
    uint16_t stripe_first; /* 82 OST index of stripe 0; stripe i is on (first + i) % ost_count */
    uint32_t rdev;         /* 84 */
};
static_assert(sizeof(struct mds_attr) == 88, "wire");

/* GETATTR, READLINK (reply: struct mds_rep_head, then link_bytes of text with walk DONE). */
struct mds_getattr_req {
    struct mds_req_head head;
};
struct mds_getattr_rep {
    struct mds_rep_head head;
    struct mds_attr attr;
};

/* ACCESS: -EACCES if not all of `mask` (R_OK 4, W_OK 2, X_OK 1; 0: exists). Reply: mds_getattr_rep.
 */
struct mds_access_req {
    struct mds_req_head head;
    uint32_t mask; /* 32 */
    uint32_t reserved;
};

enum mds_open_flags {
    MDS_OPEN_READ = 1u << 0,
    MDS_OPEN_WRITE = 1u << 1,
    MDS_OPEN_CREATE = 1u << 2,
    MDS_OPEN_EXCL = 1u << 3,
    MDS_OPEN_TRUNC = 1u << 4, /* the client punches the objects if attr has SIZE_ON_OST */
    MDS_OPEN_DIRECTORY = 1u << 5,
    MDS_OPEN_PATH = 1u << 6,   /* O_PATH: no permission on the object needed */
    MDS_OPEN_BY_FID = 1u << 7, /* a further handle on an object that may be unlinked (fork, exec) */
    MDS_OPEN_TMPFILE =
        1u << 8, /* O_TMPFILE: a nameless file in the directory that the path names */
};

/* OPEN. Reply: mds_open_rep. A handle is the client's until CLOSE or its death. */
struct mds_open_req {
    struct mds_req_head head;
    uint32_t open_flags;   /* 32 */
    uint32_t mode;         /* 36 permissions of a new file, umask applied */
    uint32_t stripe_bytes; /* 40 of a new file; 0: the directory's */
    uint16_t stripe_count; /* 44 0: the directory's; 0xffff: all OSTs */
    uint16_t reserved;     /* 46 */
};
struct mds_open_rep {
    struct mds_rep_head head;
    struct mds_attr attr;
    uint64_t handle;  /* 112 */
    uint32_t created; /* 120 1: by this request */
    uint32_t reserved;
};

enum mds_close_flags { MDS_CLOSE_WROTE = 1u << 0 };

/*
 * CLOSE: one struct or several, at most MDS_CLOSES_MAX. Reply: empty; the status is that of the
 * first that failed, and all are tried. The client need not wait for it, and may gather closes of
 * files that it has not written and not locked.
 */
#define MDS_CLOSES_MAX 64u
struct mds_close_req {
    struct fid fid;    /*  0 */
    uint64_t handle;   /* 16 */
    uint32_t flags;    /* 24 */
    uint32_t reserved; /* 28 */
    int64_t atime_ns;  /* 32 0: not read */
};

enum mds_setattr_valid {
    MDS_SET_MODE = 1u << 0,
    MDS_SET_UID = 1u << 1,
    MDS_SET_GID = 1u << 2,
    MDS_SET_SIZE = 1u << 3, /* the client punches the objects after the reply; sets SIZE_ON_OST if
                               the size is not 0 or it was set */
    MDS_SET_ATIME = 1u << 4,
    MDS_SET_MTIME = 1u << 5,
    MDS_SET_ATIME_NOW = 1u << 6,
    MDS_SET_MTIME_NOW = 1u << 7,
    MDS_SET_STRIPE = 1u << 8, /* of a directory: the default of files made in it from now on */
};

/* SETATTR. Reply: mds_getattr_rep with the new attributes. */
struct mds_setattr_req {
    struct mds_req_head head;
    uint32_t valid;        /* 32 */
    uint32_t mode;         /* 36 */
    uint32_t uid;          /* 40 */
    uint32_t gid;          /* 44 */
    uint64_t size;         /* 48 */
    int64_t atime_ns;      /* 56 */
    int64_t mtime_ns;      /* 64 */
    uint64_t handle;       /* 72 of an open for writing, which permits SIZE; 0: check permissions */
    uint32_t stripe_bytes; /* 80 */
    uint16_t stripe_count; /* 84 */
    uint16_t reserved;     /* 86 */
};

/* CREATE. The symlink's target follows the path. Reply: mds_getattr_rep. */
struct mds_create_req {
    struct mds_req_head head;
    uint32_t mode;         /* 32 type and permissions, umask applied */
    uint32_t rdev;         /* 36 */
    uint16_t target_bytes; /* 40 */
    uint16_t stripe_count; /* 42 of a directory: its default */
    uint32_t stripe_bytes; /* 44 */
};

/*
 * LINK and RENAME. head names the existing object, base2 and the second path (which follows the
 * first) the new name. Sent to the owner of head.base. Reply: mds_getattr_rep; for RENAME attr is
 * of a file that the rename unlinked (nlink 0 and fid), or zero.
 */
struct mds_rename_req {
    struct mds_req_head head;
    struct fid base2;     /* 32 */
    uint16_t path2_bytes; /* 48 */
    uint16_t reserved[3];
};

/* UNLINK. Reply: mds_getattr_rep, attr after the unlink (the MDS has the objects destroyed by
 * itself). */
struct mds_unlink_req {
    struct mds_req_head head;
};

/*
 * READDIR. head.base is the directory, path empty. Entries in an order that holds while others are
 * made and removed: what is there from beginning to end is seen exactly once. Cookie 0 begins; "."
 * and ".." come first. Each entry's own cookie continues after it.
 */
struct mds_readdir_req {
    struct mds_req_head head;
    uint64_t cookie;    /* 32 */
    uint64_t handle;    /* 40 of the open directory (works after rmdir too: empty) */
    uint32_t bytes_max; /* 48 of entries wanted at most */
    uint32_t reserved;
};
struct mds_readdir_rep {
    struct mds_rep_head head;
    uint32_t count;  /* 24 of entries that follow */
    uint32_t is_end; /* 28 */
};
struct mds_dirent {      /* each begins at a multiple of 8 */
    struct fid fid;      /*  0 */
    uint64_t cookie;     /* 16 */
    uint16_t type;       /* 24 DT_REG ... */
    uint16_t name_bytes; /* 26 the name follows, without NUL */
    uint32_t bytes;      /* 28 of the whole entry */
};
static_assert(sizeof(struct mds_dirent) == 32, "wire");

/* STATFS: request empty. */
struct mds_statfs_rep {
    uint64_t files;      /* 0 inodes in all */
    uint64_t files_free; /* 8 */
    uint64_t bytes;      /* 16 for metadata */
    uint64_t bytes_free; /* 24 */
};

enum mds_flock_type {
    MDS_LOCK_READ = 0,
    MDS_LOCK_WRITE = 1,
    MDS_LOCK_UNLOCK = 2,
    MDS_LOCK_TEST = 0x10
};

/* FLOCK. -EAGAIN: held by another. Reply: the same struct (TEST: what stands in the way, or
 * UNLOCK). */
struct mds_flock {
    struct fid fid;  /*  0 */
    uint64_t handle; /* 16 */
    uint64_t owner;  /* 24 the client's number of the process; unique within the client */
    uint64_t start;  /* 32 */
    uint64_t end;    /* 40 last byte; UINT64_MAX: to the end */
    uint32_t type;   /* 48 enum mds_flock_type */
    uint32_t pid;    /* 52 to show */
};

/* APPEND_LOCK, APPEND_UNLOCK. Reply: empty. Client death unlocks. */
struct mds_append_req {
    struct fid fid;
    uint64_t handle;
};

/* CONNECT: request data. Reply data: mds_connect_rep, then ost_count of mds_connect_ost. */
struct mds_connect_req {
    uint32_t version; /* MDS_PROTO_VERSION, else -EPROTO */
    uint32_t reserved;
};
#define MDS_PROTO_VERSION 1u
struct mds_connect_rep {
    uint32_t version;      /*  0 */
    uint32_t reactors;     /*  4 the MDS's: pids pid0 .. pid0 + reactors - 1 of its NID */
    uint32_t pid0;         /*  8 */
    uint32_t ost_count;    /* 12 at most 64 */
    struct fid root;       /* 16 */
    uint32_t stripe_bytes; /* 32 default layout */
    uint16_t stripe_count; /* 36 */
    uint16_t reserved;
};
struct mds_connect_ost {
    uint64_t nid;      /* 0 of the OSS */
    uint32_t pid0;     /* 8 */
    uint16_t reactors; /* 12 */
    uint16_t ost;      /* 14 index at that OSS (struct ost_object.ost) */
};
