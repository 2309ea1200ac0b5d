/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lo: a context's messages to itself.
 */
#pragma once

#include "lnet/lnd/lnd.h"

extern const struct lnet_lnd_ops lnet_lnd_lo;
