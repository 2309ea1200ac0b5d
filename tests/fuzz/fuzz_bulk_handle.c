/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hostile bulk handles and BULK_PORTAL messages, against engines over the stand-in for LNet.
 *
 * The input is a handle to check and to transfer with, then messages to an engine that has an
 * export and two transfers under way. What must hold: no memory error, no assertion, and exported
 * memory changes only where a message that names the export may write.
 */
#include "bulk/handle.h"
#include "tests/bulk/fake_lnet.h"

#include "base/assert.h"
#include "base/endian.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define MEMORY_BYTES 5000u

static struct lnet *contexts[2];
static struct lnet_peer *peers[2]; /* peers[i]: the other one, as i knows it */
static struct bulk *engines[2];
static struct bulk_export *export_;
static uint8_t handle[BULK_HANDLE_BYTES_MAX];
static uint32_t handle_bytes;
static char exported[MEMORY_BYTES];
static char local[2][MEMORY_BYTES];
static uint32_t done_count;
static uint64_t now_ns = 10000;

static void
on_done(struct bulk *bulk, const struct bulk_result *result, void *user)
{
    (void)bulk;
    (void)result;
    (void)user;
    done_count++;
}

static void
poll_all(uint32_t turns)
{
    for (uint32_t i = 0; i < turns; i++) {
        now_ns += 1000000;
        (void)lnet_poll(contexts[0], now_ns, 64);
        (void)lnet_poll(contexts[1], now_ns, 64);
    }
}

static void
open_once(void)
{
    const struct iovec iov = {.iov_base = exported, .iov_len = sizeof(exported)};

    if (contexts[0] != NULL) {
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        contexts[i] = fake_lnet_open(i, 1024);
    }
    for (uint32_t i = 0; i < 2; i++) {
        const struct bulk_options options = {.struct_bytes = sizeof(options),
                                             .exports_max = 64,
                                             .xfers_max = 64,
                                             .cache_entries_max = 16};
        const struct lnet_process process = {.pid = 1 - i};

        BASE_ASSERT(lnet_peer_get(contexts[i], &process, &peers[i]) == 0);
        BASE_ASSERT(bulk_open(contexts[i], &options, &engines[i]) == 0);
    }
    fake_faults.is_rma_refused = true; /* keys are the LND's to check */
    BASE_ASSERT(bulk_export(engines[1], peers[1], &iov, 1, LNET_ACCESS_READ | LNET_ACCESS_WRITE,
                            &export_) == 0);
    handle_bytes = bulk_export_pack(export_, handle, sizeof(handle));
}

/* Starts a transfer; returns whether it will end in on_done(). */
static bool
start(const void *with_handle, uint32_t with_bytes, enum bulk_op op, uint64_t offset_bytes,
      uint64_t length_bytes, struct bulk_xfer **xfer_out)
{
    const struct iovec iov[2] = {
        {.iov_base = local[0], .iov_len = MEMORY_BYTES},
        {.iov_base = local[1], .iov_len = MEMORY_BYTES},
    };
    const struct bulk_request request = {
        .op = op,
        .peer = peers[0],
        .handle = with_handle,
        .handle_bytes = with_bytes,
        .local = iov,
        .local_count = 2,
        .handle_offset_bytes = offset_bytes,
        .length_bytes = length_bytes,
        .deadline_ns = now_ns + 50000000,
        .done = on_done,
    };

    return bulk_transfer(engines[0], &request, xfer_out) == 0;
}

/* A message made of the input: ids that exist, mostly, and all else as it comes. */
static size_t
message(const uint8_t *at, size_t bytes, uint64_t export_id, const uint64_t xfer_ids[2])
{
    const size_t head_bytes = 28;

    if (bytes < head_bytes) {
        return bytes;
    }
    const uint32_t to = at[0] & 1;
    const uint64_t kind = (uint64_t)(at[1] & 3) << 62;
    uint64_t id = base_le64_load(at + 4);

    if ((at[1] & 4) != 0) {
        id = export_id;
    } else if ((at[1] & 16) != 0) {
        id = xfer_ids[id & 1];
    } else if ((at[1] & 8) != 0) {
        id = (id & 0xffff) < 64 ? id & 0xffff : export_id; /* a slot number */
    }
    const uint32_t data_bytes =
        (uint32_t)base_min_u64(base_le16_load(at + 2) % 1100, bytes - head_bytes);

    fake_inject(contexts[1 - to], peers[1 - to], kind | (id & ~(3ull << 62)),
                base_le64_load(at + 12), base_le64_load(at + 20), at + head_bytes, data_bytes);
    return head_bytes + data_bytes;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct bulk_xfer *pull = NULL;
    struct bulk_xfer *push = NULL;
    struct bulk_handle_head head;
    uint32_t started = 0;
    uint32_t own_bytes = 0;
    uint64_t length_bytes = 0;
    uint64_t export_id = 0;
    uint64_t xfer_ids[2];

    open_once();
    done_count = 0;
    if (bulk_handle_check(data, (uint32_t)bytes, &own_bytes, &length_bytes) == 0) {
        BASE_ASSERT(own_bytes <= bytes && length_bytes <= BULK_HANDLE_LENGTH_MAX);
        started += start(data, (uint32_t)bytes, BULK_PULL, 0, length_bytes, NULL);
        started += start(data, (uint32_t)bytes, BULK_PUSH, length_bytes / 2, 100, NULL);
    }
    BASE_ASSERT(bulk_handle_decode(handle, handle_bytes, &head) == 0);
    export_id = head.export_id;
    started += start(handle, handle_bytes, BULK_PULL, 1, MEMORY_BYTES - 1, &pull);
    xfer_ids[0] = fake_last_hdr_data(contexts[0]);
    started += start(handle, handle_bytes, BULK_PUSH, 0, MEMORY_BYTES, &push);
    xfer_ids[1] = fake_last_hdr_data(contexts[0]);
    while (bytes > 0) {
        const size_t used = message(data, bytes, export_id, xfer_ids);

        data += used;
        bytes -= used;
        if (used % 3 == 0) {
            poll_all(1);
        }
    }
    poll_all(100); /* beyond the deadlines */
    BASE_ASSERT(done_count == started);
    return 0;
}
