/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Something whose event is to be delivered by a later lnet_poll(): an operation or an MD.
 */
#pragma once

#include "base/list.h"

struct lnet_pending {
    struct base_list link; /* in lnet.pendings, or alone */
    bool is_op;            /* in a struct lnet_op, else in a struct lnet_entry */
};
