/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Drives the ops table of the shm LND without LNet: what LNet would do, in as few lines as it
 * takes. An "end" is one interface with its run directory, the connections it was given, and
 * counts.
 */
#pragma once

#include "base/clock.h"
#include "lnet/lnd/shm/ni.h"
#include "lnet/lnd/shm/shm.h"
#include "tests/test.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define END_CONNS_MAX   80
#define END_PAYLOAD_MAX 9000
#define END_PATIENCE_NS UINT64_C(20000000000)

struct end;
typedef int (*end_recv_fn)(struct end *end, struct lnet_lnd_conn *conn, const struct lnet_hdr *hdr,
                           const void *payload);

struct end {
    struct lnet_lnd_ni *ni;
    struct lnet_process process;
    struct lnet_lnd_conn *conns[END_CONNS_MAX]; /* up */
    uint32_t conn_count;
    uint32_t accepted_count, up_count, down_count, writable_count, recv_count, done_count;
    int down_reason;
    int done_status;
    int accept_error;    /* answer of accepted() */
    struct lnet_hdr hdr; /* last message */
    uint8_t payload[END_PAYLOAD_MAX];
    end_recv_fn recv; /* instead of keeping the last message */
    uint64_t now_ns;  /* 0: the clock */
    char log[8192];
    void *user;
};

static inline struct end *
end_of(struct lnet_ni *ni)
{
    return (struct end *)(void *)ni;
}

static inline void
end_conn_add(struct end *end, struct lnet_lnd_conn *conn)
{
    assert_true(end->conn_count < END_CONNS_MAX);
    end->conns[end->conn_count++] = conn;
}

static inline void
end_conn_remove(struct end *end, const struct lnet_lnd_conn *conn)
{
    for (uint32_t i = 0; i < end->conn_count; i++) {
        if (end->conns[i] == conn) {
            end->conns[i] = end->conns[--end->conn_count];
            return;
        }
    }
}

static inline int
end_accepted(struct lnet_ni *ni, struct lnet_lnd_conn *conn)
{
    struct end *end = end_of(ni);

    if (end->accept_error != 0) {
        return end->accept_error;
    }
    conn->owner = end;
    end->accepted_count++;
    end_conn_add(end, conn);
    return 0;
}

static inline void
end_conn_up(struct lnet_ni *ni, struct lnet_lnd_conn *conn)
{
    struct end *end = end_of(ni);

    assert_ptr_equal(conn->owner, end);
    end->up_count++;
    end_conn_add(end, conn);
}

static inline void
end_conn_down(struct lnet_ni *ni, struct lnet_lnd_conn *conn, int reason)
{
    struct end *end = end_of(ni);

    end->down_count++;
    end->down_reason = reason;
    end_conn_remove(end, conn);
    lnet_lnd_shm.conn_close(conn);
}

static inline int
end_recv(struct lnet_ni *ni, struct lnet_lnd_conn *conn, const struct lnet_hdr *hdr,
         const void *payload)
{
    struct end *end = end_of(ni);

    end->recv_count++;
    if (end->recv != NULL) {
        return end->recv(end, conn, hdr, payload);
    }
    end->hdr = *hdr;
    if (hdr->type == LNET_MSG_PUT || hdr->type == LNET_MSG_REPLY) {
        (void)memcpy(end->payload, payload, hdr->length_bytes);
    }
    return 0;
}

static inline void
end_sent(struct lnet_ni *ni, struct lnet_lnd_conn *conn, uint32_t count)
{
    (void)ni;
    (void)conn;
    (void)count;
    fail_msg("sent() is never called: CAP_SENT");
}

static inline void
end_writable(struct lnet_ni *ni, struct lnet_lnd_conn *conn)
{
    (void)conn;
    end_of(ni)->writable_count++;
}

static const struct lnet_lnd_events end_events = {
    .accepted = end_accepted,
    .conn_up = end_conn_up,
    .conn_down = end_conn_down,
    .recv = end_recv,
    .sent = end_sent,
    .writable = end_writable,
};

static inline void
end_log(void *arg, int level, const char *text)
{
    struct end *end = arg;
    const size_t used = strlen(end->log);

    (void)level;
    (void)snprintf(end->log + used, sizeof(end->log) - used, "%s\n", text);
    if (getenv("SHM_TEST_LOG") != NULL) {
        (void)fprintf(stderr, "%d: %s\n", (int)getpid(), text);
    }
}

/* Opens @end with @options, whose address is also kept by the LND. Returns ni_open()'s word. */
static inline int
end_open_with(struct end *end, uint32_t pid, uint64_t timeout_ns, struct lnet_ni_options *options)
{
    static uint64_t incarnation;

    options->struct_bytes = sizeof(*options);
    const struct lnet_lnd_config config = {
        .options = options,
        .pid = pid,
        .incarnation = ++incarnation ^ (uint64_t)getpid() << 32,
        .connect_timeout_ns = timeout_ns,
        .log = end_log,
        .log_arg = end,
    };
    const int rc =
        lnet_lnd_shm.ni_open(&config, (struct lnet_ni *)(void *)end, &end_events, &end->ni);

    if (rc == 0) {
        end->process = (struct lnet_process){.nid = end->ni->nid, .pid = pid};
    }
    return rc;
}

static inline void
end_open(struct end *end, const char *run_dir, const char *address, uint32_t flags)
{
    struct lnet_ni_options options = {.address = address, .run_dir = run_dir, .flags = flags};
    const int rc = end_open_with(end, 0, UINT64_C(10000000000), &options);

    if (rc != 0) {
        fail_msg("ni_open: %d: %s", rc, end->log);
    }
}

static inline void
end_close(struct end *end)
{
    while (end->conn_count > 0) {
        lnet_lnd_shm.conn_close(end->conns[--end->conn_count]);
    }
    lnet_lnd_shm.ni_close(end->ni);
}

static inline uint64_t
end_now(const struct end *end)
{
    return end->now_ns != 0 ? end->now_ns : base_clock_now_ns();
}

static inline uint32_t
end_poll(struct end *end)
{
    return lnet_lnd_shm.poll(end->ni, end_now(end), 64);
}

/* Polls both until @condition, which is looked at after each turn. */
#define END_POLL_UNTIL(a, b, condition)                                            \
    do {                                                                           \
        const uint64_t end_limit = base_clock_now_ns() + END_PATIENCE_NS;          \
        while (!(condition)) {                                                     \
            (void)end_poll(a);                                                     \
            (void)end_poll(b);                                                     \
            if (base_clock_now_ns() > end_limit) {                                 \
                fail_msg("no progress: %s\n%s%s", #condition, (a)->log, (b)->log); \
            }                                                                      \
        }                                                                          \
    } while (0)

/* Connects @from to @to and polls until both know. */
static inline void
end_connect(struct end *from, struct end *to)
{
    struct lnet_lnd_conn *conn = NULL;
    const uint32_t up = from->up_count + 1;
    const uint32_t accepted = to->accepted_count + 1;

    assert_int_equal(lnet_lnd_shm.conn_open(from->ni, &to->process, from, &conn), 0);
    END_POLL_UNTIL(from, to, from->up_count == up && to->accepted_count == accepted);
}

static inline int
end_put(struct lnet_lnd_conn *conn, uint64_t match_bits, const void *data, uint32_t bytes)
{
    const struct lnet_hdr hdr = {
        .type = LNET_MSG_PUT, .portal = 5, .length_bytes = bytes, .match_bits = match_bits};
    const struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};

    return lnet_lnd_shm.send(conn, &hdr, &iov, 1);
}

/* A run directory of this test, below TMPDIR. */
static inline const char *
run_dir_make(void)
{
    static char path[64];

    (void)snprintf(path, sizeof(path), "/tmp/causeway-test-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

static inline uint32_t
run_dir_entries(const char *path)
{
    uint32_t count = 0;
    DIR *dir = opendir(path);

    assert_non_null(dir);
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        count += entry->d_name[0] != '.';
    }
    (void)closedir(dir);
    return count;
}

static inline void
run_dir_remove(const char *path)
{
    DIR *dir = opendir(path);

    assert_non_null(dir);
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        (void)unlinkat(dirfd(dir), entry->d_name, 0);
    }
    (void)closedir(dir);
    assert_int_equal(rmdir(path), 0);
}

/* Sleeps on the interface until it has work or @timeout_ms passed; then polls once. */
static inline void
end_sleep(struct end *end, int timeout_ms)
{
    if (lnet_lnd_shm.arm(end->ni) == 0) {
        struct pollfd wait = {.fd = lnet_lnd_shm.fd(end->ni), .events = POLLIN};

        (void)poll(&wait, 1, timeout_ms);
    }
    (void)end_poll(end);
}
