/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of lnet that ptlrpc uses, as a world of contexts in one process.
 *
 * Time stands still but when a test moves it. Messages travel in order between each two contexts
 * and arrive when the receiver polls; a test may look at each, drop, copy or hold it. Linked in
 * place of the lnet library.
 */
#pragma once

#include "causeway/lnet.h"

#define FAKE_CONTEXTS_MAX 16

struct fake_message {
    struct lnet *from;
    struct lnet *to;
    uint32_t portal;
    uint32_t bytes;
    uint64_t match_bits;
    unsigned char *data; /* may be changed by the filter */
};

enum fake_verdict { FAKE_PASS, FAKE_DROP, FAKE_TWICE };

struct fake_world {
    struct lnet *contexts[FAKE_CONTEXTS_MAX];
    uint64_t now_ns;
    uint64_t stamp_ns; /* lnet_stamp(): now_ns and what a test adds */
    /* Asked about each message that is sent. NULL: all pass. */
    enum fake_verdict (*filter)(struct fake_message *message, void *arg);
    void *filter_arg;
    uint32_t queue_max; /* undelivered messages to one context before -EAGAIN; 0: no bound */
    uint64_t put_bytes_max;
    uint64_t sent_count, lost_count;
};

/* A context with @pid in @world; its address is (0@shm, pid). Frees with lnet_close(). */
struct lnet *fake_open(struct fake_world *world, uint32_t pid);

/* The address of a context. */
struct lnet_process fake_process(uint32_t pid);

/* Breaks the connection between @a and @b: what is under way is lost, both are told @status. */
void fake_cut(struct lnet *a, struct lnet *b, int status);

/* @ctx is a process that died: its connections break, new ones are refused, nothing reaches it. */
void fake_kill(struct lnet *ctx);

/* Another process has the address of the dead @ctx: connections are taken again. */
void fake_revive(struct lnet *ctx);

/* Polls every living context until nothing moves, at the present time. */
void fake_settle(struct fake_world *world);

/* Moves the time by @ns in @steps steps, settling after each. */
void fake_pass(struct fake_world *world, uint64_t ns, uint32_t steps);

/* Puts @bytes raw bytes from @from to @portal of @to, past every layer. */
void fake_inject(struct lnet *from, struct lnet *to, uint32_t portal, uint64_t match_bits,
                 const void *data, uint32_t bytes);

/* References that the users of @ctx hold on peers. */
uint32_t fake_peer_references(const struct lnet *ctx);
