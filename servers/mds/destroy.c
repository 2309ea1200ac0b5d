/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Destruction of the objects of files that are gone.
 *
 * For each reactor of each OSS there is a ring of objects. What is in it is sent when a batch is
 * full or the oldest has waited MDS_DESTROY_NS, one batch at a time; a batch that failed is sent
 * again (DESTROY is idempotent). Nobody waits for any of it. A ring that is full forgets: the space
 * is lost until the OSS starts anew, and counted.
 */
#include "servers/mds/mds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RING_FIRST 512u
#define RETRY_NS   UINT64_C(1000000000)

int
mds_destroy_open(struct mds *mds)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < mds->ost_count; i++) {
        count += mds->osts[i].reactors;
    }
    mds->targets = calloc(base_max_u32(count, 1), sizeof(*mds->targets));
    if (mds->targets == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < mds->ost_count; i++) {
        const struct mds_ost *ost = &mds->osts[i];
        uint32_t same = 0;

        while (mds->osts[same].nid.value != ost->nid.value || mds->osts[same].pid0 != ost->pid0) {
            same++; /* at most i */
        }
        if (same < i) {
            mds->target_first[i] = mds->target_first[same];
            continue;
        }
        mds->target_first[i] = mds->target_count;
        for (uint32_t k = 0; k < ost->reactors; k++) {
            mds->targets[mds->target_count++] = (struct mds_destroy_target){
                .process = {.nid = ost->nid, .pid = ost->pid0 + k},
                .mds = mds,
            };
        }
    }
    return 0;
}

void
mds_destroy_close(struct mds *mds)
{
    for (uint32_t i = 0; i < mds->target_count; i++) {
        free(mds->targets[i].objects);
    }
    free(mds->targets);
}

/* Doubles a full ring. */
static bool
ring_grow(struct mds_destroy_target *target)
{
    const uint32_t size = target->size == 0 ? RING_FIRST : target->size * 2;

    if (size > MDS_DESTROYS_MAX) {
        return false;
    }
    struct ost_object *objects = malloc(size * sizeof(*objects));

    if (objects == NULL) {
        return false;
    }
    for (uint32_t i = target->head; i != target->tail; i++) {
        objects[i & (size - 1)] = target->objects[i & (target->size - 1)];
    }
    free(target->objects);
    target->objects = objects;
    target->size = size;
    return true;
}

/* Sends a batch if one is due. */
static void
target_send(struct mds *mds, uint32_t index)
{
    struct mds_destroy_target *target = &mds->targets[index];
    struct ost_object batch[MDS_DESTROY_BATCH];
    const uint32_t count = base_min_u32(target->tail - target->head, MDS_DESTROY_BATCH);

    if (count == 0 || target->in_flight > 0 || mds->now_ns < target->retry_ns) {
        return;
    }
    if (count < MDS_DESTROY_BATCH && mds->now_ns - target->since_ns < MDS_DESTROY_NS) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        batch[i] = target->objects[(target->head + i) & (target->size - 1)];
    }
    target->in_flight = count;
    if (mds->env.destroy(mds, index, batch, count) != 0) {
        target->in_flight = 0;
        target->retry_ns = mds->now_ns + RETRY_NS;
    }
}

/* When the target is to be looked at again; UINT64_MAX: when an answer comes. */
static uint64_t
target_deadline(const struct mds_destroy_target *target)
{
    if (target->head == target->tail || target->in_flight > 0) {
        return UINT64_MAX;
    }
    return base_max_u64(target->retry_ns, target->since_ns + MDS_DESTROY_NS);
}

static void
target_push(struct mds *mds, uint32_t index, const struct ost_object *object)
{
    struct mds_destroy_target *target = &mds->targets[index];

    if (target->tail - target->head == target->size && !ring_grow(target)) {
        mds->counters.destroys_lost++;
        return;
    }
    if (target->tail - target->head == target->in_flight) {
        target->since_ns = mds->now_ns;
    }
    target->objects[target->tail & (target->size - 1)] = *object;
    target->tail++;
    mds->counters.destroys_queued++;
    if (target->tail - target->head - target->in_flight == 1) {
        mds->env.wake_at(mds, target_deadline(target));
    }
    target_send(mds, index);
}

void
mds_destroy_file(struct mds *mds, const struct mds_attr *attr)
{
    if (mds->ost_count == 0) {
        return;
    }
    for (uint32_t i = 0; i < attr->stripe_count; i++) {
        const uint32_t ost = (attr->stripe_first + i) % mds->ost_count;
        const struct ost_object object = {
            .fid = attr->fid,
            .stripe = i,
            .ost = mds->osts[ost].ost,
        };

        target_push(mds,
                    mds->target_first[ost] + ost_object_owner(&object, mds->osts[ost].reactors),
                    &object);
    }
}

void
mds_destroy_tick(struct mds *mds)
{
    for (uint32_t i = 0; i < mds->target_count; i++) {
        target_send(mds, i);
        mds->env.wake_at(mds, target_deadline(&mds->targets[i]));
    }
}

void
mds_destroy_done(struct mds *mds, uint32_t index, int status)
{
    struct mds_destroy_target *target = &mds->targets[index];

    if (status == 0) {
        target->head += target->in_flight;
        mds->counters.destroys_done += target->in_flight;
    } else {
        target->retry_ns = mds->now_ns + RETRY_NS;
    }
    target->in_flight = 0;
    target->since_ns = mds->now_ns; /* of those behind: at most one more MDS_DESTROY_NS */
    target_send(mds, index);
    mds->env.wake_at(mds, target_deadline(target));
}
