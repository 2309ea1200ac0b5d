/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The OSS's requests and replies.
 *
 * An object is made by its first write (or CREATE) and reads as zeros where nothing was written.
 * Objects are owned by reactors: ost_object_owner(); another reactor answers -EREMOTE.
 *
 * Who copies. The client says in a READ or WRITE what it can do, the server picks:
 *   inline  up to OST_INLINE_BYTES_MAX bytes travel in the request or reply.
 *   bulk    the client exported its memory; the server pulls or pushes before it replies.
 *   lease   the server lends its own memory: the reply has a bulk handle and a lease. The client
 *           pulls (READ) and gives the lease back by RELEASE, or pushes (WRITE) and then sends
 *           COMMIT, which makes the bytes part of the object. Leases end with the client's export,
 *           or when they are 30 s old: -ESTALE from then on, the client begins again. Lent memory
 *           is not given to anybody else before the lease ends. -EAGAIN: nothing was lent and no
 *           other way was offered.
 * A WRITE names one of INLINE and BULK at most, as only one thing can follow; a READ any.
 */
#pragma once

#include "ptlrpc/proto/fid.h"

#define OST_INLINE_BYTES_MAX 8192u
#define OST_IO_BYTES_MAX     (UINT64_C(1) << 32)          /* of one READ or WRITE */
#define OST_LEASE_BYTES_MAX  (UINT64_C(4) << 20)          /* of one lease */
#define OST_OBJECT_BYTES_MAX (INT64_MAX & ~INT64_C(4095)) /* beyond: -EFBIG */

/* Lustre's numbers where it has them. */
enum ost_opc {
    OST_GETATTR = 1,
    OST_SETATTR = 2,
    OST_READ = 3,
    OST_WRITE = 4,
    OST_CREATE = 5,
    OST_DESTROY = 6,
    OST_PUNCH = 10,
    OST_STATFS = 13,
    OST_SYNC = 16,
    OST_SEEK = 24,    /* SEEK_DATA, SEEK_HOLE */
    OST_COMMIT = 25,  /* ends a WRITE lease with its bytes */
    OST_RELEASE = 26, /* ends leases without */
};

enum ost_flags {
    OST_F_INLINE = 1u << 0, /* request: data may be (READ) or is (WRITE) inline; reply: is inline */
    OST_F_BULK = 1u << 1,   /* request: a handle follows; reply: it was used */
    OST_F_LEASE = 1u << 2,  /* request: a lease is welcome; reply: here it is */
    OST_F_APPEND = 1u << 3, /* WRITE: at the object's end, atomically; the reply tells where */
    OST_F_CRC = 1u << 4,    /* crc32c is set and to be checked: -EBADMSG */
    OST_F_SYNC = 1u << 5,   /* WRITE, COMMIT: stable before the reply */
};

/* How the client made the copies of leases; for the statistics only. */
struct ost_copies {
    uint64_t ns;    /*  0 that they took */
    uint64_t bytes; /*  8 */
    uint32_t count; /* 16 of copies */
    uint32_t path;  /* 20 enum bulk_path that they went */
};
static_assert(sizeof(struct ost_copies) == 24, "wire");

struct ost_attr {
    uint64_t size;    /*  0 */
    uint64_t blocks;  /*  8 of 512 bytes */
    int64_t mtime_ns; /* 16 of the last write or punch; 0: never written */
    int64_t ctime_ns; /* 24 */
};
static_assert(sizeof(struct ost_attr) == 32, "wire");

/* READ and WRITE. WRITE inline: the data follows; bulk: the handle follows. */
struct ost_io_req {
    struct ost_object object; /*  0 */
    uint64_t offset;          /* 24 in the object */
    uint64_t length;          /* 32 */
    uint32_t flags;           /* 40 enum ost_flags */
    uint32_t crc32c;          /* 44 */
    uint32_t handle_bytes;    /* 48 */
    uint32_t reserved;        /* 52 */
};
static_assert(sizeof(struct ost_io_req) == 56, "wire");

/*
 * Reply of READ, WRITE and COMMIT. Then the inline data or the lease's bulk handle. READ: length is
 * short only at the object's end. A WRITE that found no space for all has a short length (-ENOSPC
 * if none).
 */
struct ost_io_rep {
    uint64_t length;       /*  0 moved, or lent */
    uint64_t offset;       /*  8 where (APPEND) */
    uint64_t lease;        /* 16 0: none */
    uint32_t flags;        /* 24 */
    uint32_t crc32c;       /* 28 */
    uint32_t handle_bytes; /* 32 */
    uint32_t reserved;     /* 36 */
    struct ost_attr attr;  /* 40 after the operation */
};
static_assert(sizeof(struct ost_io_rep) == 72, "wire");

/* COMMIT: of a WRITE lease, its first `length` bytes. Reply: ost_io_rep. */
struct ost_commit_req {
    struct ost_object object; /*  0 */
    uint64_t lease;           /* 24 */
    uint64_t length;          /* 32 */
    uint32_t flags;           /* 40 OST_F_SYNC, OST_F_CRC */
    uint32_t crc32c;          /* 44 */
    struct ost_copies copies; /* 48 */
};

/* RELEASE: count leases follow (u64 each). Reply: empty. Unknown ones are ignored. */
struct ost_release_req {
    uint32_t count;           /* 0 */
    uint32_t reserved;        /* 4 */
    struct ost_copies copies; /* 8 of all of them */
};

/* GETATTR, CREATE, SYNC. Reply: ost_attr (an object that never was: all zero). */
struct ost_object_req {
    struct ost_object object;
};

/* SETATTR: set the times of an object. Reply: ost_attr. */
struct ost_setattr_req {
    struct ost_object object; /* 0 */
    int64_t mtime_ns;         /* 24 */
    int64_t ctime_ns;         /* 32 */
};

/* DESTROY: count objects follow. Idempotent. Reply: empty. */
struct ost_destroy_req {
    uint32_t count; /* at most 256 */
    uint32_t reserved;
};

/* PUNCH: free [start, end); end UINT64_MAX: truncate to start, growing with a hole if it is
 * shorter. */
struct ost_punch_req {
    struct ost_object object; /*  0 */
    uint64_t start;           /* 24 */
    uint64_t end;             /* 32 */
};

/* SEEK: whence SEEK_DATA or SEEK_HOLE. Reply: u64 offset; -ENXIO past the end. */
struct ost_seek_req {
    struct ost_object object; /*  0 */
    uint64_t offset;          /* 24 */
    uint32_t whence;          /* 32 */
    uint32_t reserved;
};

/* STATFS of one OST. */
struct ost_statfs_req {
    uint32_t ost;
    uint32_t reserved;
};
struct ost_statfs_rep {
    uint64_t bytes;       /*  0 */
    uint64_t bytes_free;  /*  8 */
    uint64_t objects;     /* 16 in use */
    uint64_t objects_max; /* 24 */
};
