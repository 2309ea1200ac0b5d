/* SPDX-License-Identifier: BSD-3-Clause */
/* Bulk handles on the wire: see handle.h. What bulk_handle_decode() reads comes from a peer. */
#include "bulk/handle.h"

#include "base/endian.h"

#include <errno.h>
#include <string.h>

static uint32_t
segment_stride(bool has_keys)
{
    return has_keys ? BULK_HANDLE_SEGMENT_KEY_BYTES : BULK_HANDLE_SEGMENT_BYTES;
}

uint32_t
bulk_handle_bytes(uint32_t segment_count, bool has_keys)
{
    return BULK_HANDLE_HEAD_BYTES + segment_count * segment_stride(has_keys);
}

int
bulk_handle_decode(const void *handle, uint32_t bytes, struct bulk_handle_head *head_out)
{
    const uint8_t *at = handle;

    if (bytes < BULK_HANDLE_HEAD_BYTES) {
        return -EPROTO;
    }
    const uint32_t flags = at[1];
    struct bulk_handle_head head = {
        .export_id = base_le64_load(at + 8),
        .segment_count = base_le16_load(at + 2),
        .has_keys = (flags & BULK_HANDLE_FLAG_KEYS) != 0,
    };

    if (at[0] != BULK_HANDLE_VERSION || (flags & ~BULK_HANDLE_FLAG_KEYS) != 0 ||
        base_le32_load(at + 4) != 0 || head.segment_count > BULK_SEGMENTS_MAX) {
        return -EPROTO;
    }
    head.handle_bytes = bulk_handle_bytes(head.segment_count, head.has_keys);
    if (head.handle_bytes > bytes) {
        return -EPROTO;
    }
    at += BULK_HANDLE_HEAD_BYTES;
    for (uint32_t i = 0; i < head.segment_count; i++, at += segment_stride(head.has_keys)) {
        const uint64_t length_bytes = base_le64_load(at);

        if (length_bytes == 0 || length_bytes > BULK_HANDLE_LENGTH_MAX - head.length_bytes) {
            return -EPROTO;
        }
        head.length_bytes += length_bytes;
    }
    *head_out = head;
    return 0;
}

void
bulk_handle_segment_get(const void *handle, const struct bulk_handle_head *head, uint32_t index,
                        struct bulk_handle_segment *segment_out)
{
    const uint8_t *at = (const uint8_t *)handle + BULK_HANDLE_HEAD_BYTES +
                        (size_t)index * segment_stride(head->has_keys);

    segment_out->length_bytes = base_le64_load(at);
    if (head->has_keys) {
        (void)memcpy(&segment_out->key, at + BULK_HANDLE_SEGMENT_BYTES, LNET_KEY_BYTES);
    }
}

void
bulk_handle_head_put(void *handle, uint64_t export_id, uint32_t segment_count, bool has_keys)
{
    uint8_t *at = handle;

    at[0] = BULK_HANDLE_VERSION;
    at[1] = has_keys ? BULK_HANDLE_FLAG_KEYS : 0;
    base_le16_store(at + 2, (uint16_t)segment_count);
    base_le32_store(at + 4, 0);
    base_le64_store(at + 8, export_id);
}

void
bulk_handle_segment_put(void *handle, uint32_t index, bool has_keys, uint64_t length_bytes,
                        const struct lnet_key *key)
{
    uint8_t *at =
        (uint8_t *)handle + BULK_HANDLE_HEAD_BYTES + (size_t)index * segment_stride(has_keys);

    base_le64_store(at, length_bytes);
    if (has_keys) {
        (void)memcpy(at + BULK_HANDLE_SEGMENT_BYTES, key, LNET_KEY_BYTES);
    }
}

int
bulk_handle_check(const void *handle, uint32_t bytes, uint32_t *handle_bytes_out,
                  uint64_t *length_bytes_out)
{
    struct bulk_handle_head head;
    const int rc = bulk_handle_decode(handle, bytes, &head);

    if (rc != 0) {
        return rc;
    }
    if (handle_bytes_out != NULL) {
        *handle_bytes_out = head.handle_bytes;
    }
    if (length_bytes_out != NULL) {
        *length_bytes_out = head.length_bytes;
    }
    return 0;
}
