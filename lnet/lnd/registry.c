/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network drivers of this build. lo is first: every context has it.
 */
#include "lnet/lnd/lnd.h"
#include "lnet/lnd/lo/lo.h"
#include "lnet/lnd/shm/shm.h"

const struct lnet_lnd_ops *const lnet_lnds[] = {
    &lnet_lnd_lo,
    &lnet_lnd_shm,
    NULL,
};
