/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared-memory LND: processes of one machine. See README.md. */
#pragma once

#include "lnet/lnd/lnd.h"

extern const struct lnet_lnd_ops lnet_lnd_shm;
