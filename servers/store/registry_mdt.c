/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of metadata stores, and `null`, which is no store at all: see servers/mds/null.c.
 */
#include "servers/store_mdt.h"

#include <string.h>

static const struct mdt_store_ops mdt_store_null = {
    .name = "null",
    .keeps_nothing = true,
};

static const struct mdt_store_ops *const stores[] = {&mdt_store_mem, &mdt_store_null};

const struct mdt_store_ops *
mdt_store_find(const char *name)
{
    for (size_t i = 0; i < BASE_ARRAY_LEN(stores); i++) {
        if (strcmp(stores[i]->name, name) == 0) {
            return stores[i];
        }
    }
    return NULL;
}
