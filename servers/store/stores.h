/* SPDX-License-Identifier: BSD-3-Clause */
/* The OST stores of this build, for the registry. */
#pragma once

#include "servers/store_ost.h"

extern const struct ost_store_ops ost_store_mem;
extern const struct ost_store_ops ost_store_null;
