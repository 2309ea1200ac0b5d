/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * FIDs: names of files and directories, never reused (Lustre's lu_fid).
 *
 * An MDS reactor makes FIDs in sequences of its own: seq = FID_SEQ_FIRST + its index + k * reactors
 * for k = 0, 1, ... So the owner of an inode is read off its FID.
 */
#pragma once

#include "ptlrpc/proto/hdr.h"

#include <stdbool.h>

struct fid {
    uint64_t seq; /*  0 */
    uint32_t oid; /*  8 grows from 1 within the sequence */
    uint32_t ver; /* 12 0 */
};
static_assert(sizeof(struct fid) == 16, "wire");

#define FID_SEQ_FIRST UINT64_C(0x200000400) /* Lustre's first normal sequence */
#define FID_ROOT      ((struct fid){FID_SEQ_FIRST, 1, 0})

/* Whether two name the same. */
static inline bool
fid_equal(const struct fid *a, const struct fid *b)
{
    return a->seq == b->seq && a->oid == b->oid && a->ver == b->ver;
}

/* Whether @fid names nothing. */
static inline bool
fid_is_zero(const struct fid *fid)
{
    return fid->seq == 0 && fid->oid == 0 && fid->ver == 0;
}

/* The MDS reactor that owns @fid, below @reactors. */
static inline uint32_t
fid_mds_owner(const struct fid *fid, uint32_t reactors)
{
    return (uint32_t)((fid->seq - FID_SEQ_FIRST) % reactors);
}

/* Mixes @fid; part of the protocol: it places objects on reactors. */
static inline uint64_t
fid_hash(const struct fid *fid)
{
    uint64_t hash =
        (fid->seq ^ ((uint64_t)fid->oid << 32) ^ fid->oid) * UINT64_C(0x9e3779b97f4a7c15);

    return hash ^ (hash >> 29);
}

/* A file's object of one stripe. */
struct ost_object {
    struct fid fid;  /*  0 of the file */
    uint32_t stripe; /* 16 index of the stripe in the file's layout */
    uint32_t ost;    /* 20 which OST of the server process */
};
static_assert(sizeof(struct ost_object) == 24, "wire");

/* The OSS reactor that owns @object, below @reactors. */
static inline uint32_t
ost_object_owner(const struct ost_object *object, uint32_t reactors)
{
    return (uint32_t)((fid_hash(&object->fid) >> 7) + object->stripe) % reactors;
}
