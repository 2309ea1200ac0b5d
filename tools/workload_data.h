/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data that say what they are: each 16 bytes of a file hold the signature of the run, the rank that
 * wrote them and their own offset, so that what is found in a wrong place tells where it belongs.
 *
 * The bytes depend on the offset in the file alone and not on how the file is cut into transfers.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct data_mark {
    uint32_t signature;
    uint32_t rank;
};

struct data_error {
    uint64_t count;        /* bytes that are not as they should be */
    uint64_t first_offset; /* of the first one, in the file */
    uint64_t expected;     /* the 8 bytes it lies in */
    uint64_t found;
};

/* Writes what @mark's file has in the @bytes from @offset on to @buffer. */
void data_fill(struct data_mark mark, uint64_t offset, void *buffer, size_t bytes);

/*
 * Compares, and adds what differs to @error (whose count tells whether a first one is known).
 * Returns how many bytes differ.
 */
uint64_t data_check(struct data_mark mark, uint64_t offset, const void *buffer, size_t bytes,
                    struct data_error *error);

/* Shuffles the numbers from 0 to @count - 1 into @order, the same for the same @seed. */
void data_shuffle(uint64_t *order, uint64_t count, uint64_t seed);
