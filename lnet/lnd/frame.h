/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The compact frame of a message, shared by every LND but tcp (which speaks socklnd's).
 *
 * 40 bytes, little-endian. Source and destination are the connection's, so they are not in it:
 *
 *    0  u8   version (high 4 bits: 1) and type (low 4 bits)
 *    1  u8   flags
 *    2  u16  portal
 *    4  u32  length_bytes
 *    8  u64  match_bits
 *   16  u64  hdr_data
 *   24  u64  md_cookie
 *   32  u64  offset_bytes
 *
 * Payload follows. With an 8-byte slot prefix an 8-byte PUT takes one cache line.
 */
#pragma once

#include "base/endian.h"
#include "lnet/lnd/lnd.h"

#include <errno.h>

#define LNET_FRAME_BYTES   40u
#define LNET_FRAME_VERSION 1u

/* Writes @hdr at @frame. */
static inline void
lnet_frame_encode(const struct lnet_hdr *hdr, void *frame)
{
    uint8_t *at = (uint8_t *)frame;

    at[0] = (uint8_t)((LNET_FRAME_VERSION << 4) | hdr->type);
    at[1] = hdr->flags;
    base_le16_store(at + 2, hdr->portal);
    base_le32_store(at + 4, hdr->length_bytes);
    base_le64_store(at + 8, hdr->match_bits);
    base_le64_store(at + 16, hdr->hdr_data);
    base_le64_store(at + 24, hdr->md_cookie);
    base_le64_store(at + 32, hdr->offset_bytes);
}

/*
 * Reads a frame that is LND-owned memory or is read once per field (shared memory): the caller uses
 * *hdr_out only. @message_bytes is what the LND received, frame included; @eager_bytes_max its
 * limit.
 *
 * Returns 0 or -EPROTO (version, type, flags, portal, or lengths that disagree).
 */
static inline int
lnet_frame_decode(const void *frame, uint64_t message_bytes, uint32_t eager_bytes_max,
                  struct lnet_hdr *hdr_out)
{
    const uint8_t *at = (const uint8_t *)frame;
    uint64_t payload_bytes = 0;

    if (message_bytes < LNET_FRAME_BYTES) {
        return -EPROTO;
    }
    const uint8_t first = *(const volatile uint8_t *)at;

    hdr_out->type = first & 0xf;
    hdr_out->flags = *(const volatile uint8_t *)(at + 1);
    hdr_out->portal = base_le16_load(at + 2);
    hdr_out->length_bytes = base_le32_load(at + 4);
    hdr_out->match_bits = base_le64_load(at + 8);
    hdr_out->hdr_data = base_le64_load(at + 16);
    hdr_out->md_cookie = base_le64_load(at + 24);
    hdr_out->offset_bytes = base_le64_load(at + 32);
    /* The copies above must not be read again from memory that a peer may change meanwhile. */
    __asm__ volatile("" ::: "memory");

    if ((first >> 4) != LNET_FRAME_VERSION || hdr_out->type > LNET_MSG_REPLY ||
        hdr_out->portal >= LNET_PORTALS || (hdr_out->flags & ~(unsigned)LNET_PUT_ACK) != 0) {
        return -EPROTO;
    }
    if (hdr_out->type == LNET_MSG_PUT || hdr_out->type == LNET_MSG_REPLY) {
        payload_bytes = hdr_out->length_bytes;
    }
    if (payload_bytes > eager_bytes_max || message_bytes != LNET_FRAME_BYTES + payload_bytes) {
        return -EPROTO;
    }
    return 0;
}
