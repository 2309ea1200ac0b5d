/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fork(): the parent keeps the mount; the child lets go of its copy.
 *
 * What the child inherited are the parent's connections. It closes its descriptors of them and
 * unmaps their memory, and neither writes to the one nor shuts down the other, so that nobody
 * notices.
 */
#include "clients/lib/core.h"

#include <sched.h>

#define LOCK_TRIES 10000

void
causeway_fork_prepare(struct causeway *fs)
{
    /* Threads that spin let the lock go only for moments, which who sleeps on it would miss. */
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (pthread_mutex_trylock(&fs->mutex) == 0) {
            return;
        }
        (void)sched_yield();
    }
    (void)pthread_mutex_lock(&fs->mutex);
}

void
causeway_fork_parent(struct causeway *fs)
{
    (void)pthread_mutex_unlock(&fs->mutex);
}

void
causeway_fork_child(struct causeway *fs)
{
    if (fs == NULL) {
        return;
    }
    lnet_abandon(fs->ctx);
    client_mount_abandon(fs);
}
