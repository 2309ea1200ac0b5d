/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program outside the tree, in the common part of C11 and C++17: two contexts, one message over
 * shared memory. Prints what came.
 */
#define _POSIX_C_SOURCE 200809L

#include <causeway/bulk.h>
#include <causeway/client.h>
#include <causeway/lnet.h>
#include <causeway/ptlrpc.h>
#include <causeway/server.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

#define PORTAL 5

static char text[64];

static uint64_t
now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void
on_put(struct lnet *ctx, const struct lnet_event *event)
{
    (void)ctx;
    if (event->type == LNET_EV_PUT && event->moved_bytes < sizeof(text)) {
        memcpy(text, event->data, event->moved_bytes);
    }
}

static struct lnet *
open_context(const char *run_dir, const char *address, uint32_t pid)
{
    struct lnet *ctx = NULL;
    struct lnet_options options;
    struct lnet_ni_options ni;

    memset(&options, 0, sizeof(options));
    options.struct_bytes = sizeof(options);
    options.pid = pid;
    options.seed = pid + 1;
    memset(&ni, 0, sizeof(ni));
    ni.struct_bytes = sizeof(ni);
    ni.net = "shm";
    ni.address = address;
    ni.run_dir = run_dir;
    if (lnet_open(&options, &ctx) != 0) {
        return NULL;
    }
    (void)lnet_poll(ctx, now_ns(), 1);
    return lnet_ni_add(ctx, &ni, NULL) == 0 ? ctx : NULL;
}

int
main(int argc, char **argv)
{
    struct lnet *server = argc > 1 ? open_context(argv[1], "1", 0) : NULL;
    struct lnet *client = argc > 1 ? open_context(argv[1], "2", 0) : NULL;
    struct lnet_match match;
    struct lnet_md md;
    struct lnet_md_handle handle;
    struct lnet_process process;
    struct lnet_target target;
    const uint64_t end_ns = now_ns() + 5000000000u;

    if (server == NULL || client == NULL) {
        (void)fprintf(stderr, "no context\n");
        return 1;
    }
    memset(&match, 0, sizeof(match));
    match.portal = PORTAL;
    match.from.nid.value = LNET_NID_ANY;
    match.from.pid = LNET_PID_ANY;
    match.ignore_bits = UINT64_MAX;
    memset(&md, 0, sizeof(md));
    md.length_bytes = sizeof(text);
    md.options = LNET_MD_OP_PUT | LNET_MD_PEEK;
    md.threshold = -1;
    md.handler = on_put;
    memset(&target, 0, sizeof(target));
    target.portal = PORTAL;
    if (lnet_md_attach(server, &match, &md, &handle) != 0 ||
        lnet_process_parse("0-1@shm", &process) != 0 ||
        lnet_peer_get(client, &process, &target.peer) != 0 ||
        lnet_put_inline(client, &target, "hello", 6) != 0) {
        (void)fprintf(stderr, "cannot send\n");
        return 1;
    }
    while (text[0] == '\0' && now_ns() < end_ns) {
        (void)lnet_poll(client, now_ns(), 16);
        (void)lnet_poll(server, now_ns(), 16);
    }
    lnet_peer_put(target.peer);
    lnet_close(client);
    lnet_close(server);
    (void)printf("%s %s\n", text, lnet_error_name(0));
    return strcmp(text, "hello") == 0 ? 0 : 1;
}
