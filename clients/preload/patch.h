/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leads libc's entry points to our hooks.
 *
 * Interposing symbols misses what libc calls by itself: stdio's reads and writes, opendir()'s open,
 * realpath()'s readlink. So the first bytes of the entry points themselves become a jump to the
 * hook. Whatever name a program or libc calls (open, open64, __open_2 by way of open) ends there.
 * The original is not needed any more, as each of these functions is one system call, which the
 * hook makes itself.
 */
#pragma once

#include <stddef.h>

struct patch {
    const char *name; /* of the symbol in libc */
    void *hook;
    const char *version; /* of the symbol; NULL: the default one */
};

/* libc's openat() for directory walks has no symbol. It stands behind this one. */
#define PATCH_OPENAT_UNNAMED "__openat64_nocancel"

/*
 * Patches all that libc has of @patches; a name that it lacks is left out, an address that two
 * names share is patched once. Before there are threads. Errors: -EOPNOTSUPP another processor;
 * -EACCES the text cannot be made writable; -ENOMEM; -ENOENT libc was not found.
 */
int patch_libc(const struct patch *patches, size_t count);
