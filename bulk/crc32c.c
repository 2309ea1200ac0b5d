/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CRC32C (Castagnoli, RFC 3720): x^32 polynomial 0x1edc6f41, reflected 0x82f63b78.
 *
 * By ISA-L where the build has it (three interleaved streams joined by carry-less products: memory
 * speed); else by the SSE4.2 instruction where the CPU has it; else by a table.
 */
#include "base/assert.h"
#include "base/endian.h"
#include "causeway/bulk.h"

#ifdef BULK_HAS_ISAL
#    include <isa-l/crc.h>

uint32_t
bulk_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    /* ISA-L takes an int of bytes, a pointer without const that it only reads, and no inversion. */
    unsigned char *at =
        (unsigned char *)(uintptr_t)data; /* NOLINT(performance-no-int-to-ptr): drops const */

    crc = ~crc;
    while (bytes > 0) {
        const size_t step = bytes < (1u << 30) ? bytes : 1u << 30;

        crc = crc32_iscsi(at, (int)step, crc);
        at += step;
        bytes -= step;
    }
    return ~crc;
}

#else

/* The CRC of each byte value; by nibbles, because 16 numbers can be checked by eye. */
static const uint32_t crc_nibble[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

static uint32_t
crc_by_table(uint32_t crc, const uint8_t *at, size_t bytes)
{
    for (; bytes > 0; bytes--, at++) {
        crc ^= *at;
        crc = crc_nibble[crc & 0xf] ^ (crc >> 4);
        crc = crc_nibble[crc & 0xf] ^ (crc >> 4);
    }
    return crc;
}

#    ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t
crc_by_sse42(uint32_t crc, const uint8_t *at, size_t bytes)
{
    uint64_t wide = crc;

    for (; bytes >= 8; bytes -= 8, at += 8) {
        wide = __builtin_ia32_crc32di(wide, base_le64_load(at));
    }
    for (; bytes > 0; bytes--, at++) {
        wide = __builtin_ia32_crc32qi((uint32_t)wide, *at);
    }
    return (uint32_t)wide;
}
#    endif

uint32_t
bulk_crc32c(uint32_t crc, const void *data, size_t bytes)
{
#    ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2")) {
        return ~crc_by_sse42(~crc, data, bytes);
    }
#    endif
    return ~crc_by_table(~crc, data, bytes);
}

#endif
