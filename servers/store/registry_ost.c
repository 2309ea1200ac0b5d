/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The OST stores of this build.
 */
#include "servers/store/stores.h"

#include "base/assert.h"

#include <string.h>

static const struct ost_store_ops *const stores[] = {&ost_store_mem, &ost_store_null};

const struct ost_store_ops *
ost_store_at(uint32_t index)
{
    return index < BASE_ARRAY_LEN(stores) ? stores[index] : NULL;
}

const struct ost_store_ops *
ost_store_find(const char *name)
{
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(stores); i++) {
        if (strcmp(stores[i]->name, name) == 0) {
            return stores[i];
        }
    }
    return NULL;
}
