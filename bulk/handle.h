/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A bulk handle on the wire: little-endian, any alignment.
 *
 *    0  u8   version (1)
 *    1  u8   flags (bit 0: segments have keys)
 *    2  u16  segment count, at most BULK_SEGMENTS_MAX
 *    4  u32  reserved, 0
 *    8  u64  export id, its match bits on BULK_PORTAL; the generation in it is the epoch
 *   16  per segment: u64 length, not 0; with keys: the 48 bytes of its lnet_key
 *
 * Segments without bytes are left out. The sum of the lengths is at most BULK_HANDLE_LENGTH_MAX, so
 * that no sum of an offset and a length within a handle overflows.
 */
#pragma once

#include "causeway/bulk.h"

#include <assert.h>

#define BULK_HANDLE_VERSION           1u
#define BULK_HANDLE_HEAD_BYTES        16u
#define BULK_HANDLE_SEGMENT_BYTES     8u
#define BULK_HANDLE_SEGMENT_KEY_BYTES (BULK_HANDLE_SEGMENT_BYTES + LNET_KEY_BYTES)
#define BULK_HANDLE_FLAG_KEYS         1u
#define BULK_HANDLE_LENGTH_MAX        (1ull << 62)

static_assert(BULK_HANDLE_HEAD_BYTES + BULK_SEGMENTS_MAX * BULK_HANDLE_SEGMENT_KEY_BYTES <=
                  BULK_HANDLE_BYTES_MAX,
              "the largest handle fits");

struct bulk_handle_segment {
    uint64_t length_bytes;
    struct lnet_key key;
};

struct bulk_handle_head {
    uint64_t export_id;
    uint64_t length_bytes; /* of all segments */
    uint32_t handle_bytes;
    uint32_t segment_count;
    bool has_keys;
};

/* Reads and checks a handle but for its keys. Errors: -EPROTO. */
int bulk_handle_decode(const void *handle, uint32_t bytes, struct bulk_handle_head *head_out);

/* Reads segment @index of a handle that was decoded; the key only if it has keys. */
void bulk_handle_segment_get(const void *handle, const struct bulk_handle_head *head,
                             uint32_t index, struct bulk_handle_segment *segment_out);

/* The size of a handle. */
uint32_t bulk_handle_bytes(uint32_t segment_count, bool has_keys);

/* Writes the head, and a segment. */
void bulk_handle_head_put(void *handle, uint64_t export_id, uint32_t segment_count, bool has_keys);
void bulk_handle_segment_put(void *handle, uint32_t index, bool has_keys, uint64_t length_bytes,
                             const struct lnet_key *key);
