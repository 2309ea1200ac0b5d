/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Property: whatever a client does on the wire, to the memory it shares with the servers and to the
 * descriptors it was given, the servers go on, serve the others meanwhile, and are idle and hold
 * nothing afterwards.
 *
 * Method: an MDS and an OSS in a child process, a hostile client in another, a well-behaved one in
 * a third that times its calls.
 */
#include "base/clock.h"
#include "base/prng.h"
#include "causeway/bulk.h"
#include "causeway/ptlrpc.h"
#include "lnet/lnd/shm/wire.h"
#include "ptlrpc/proto/hdr.h"
#include "ptlrpc/proto/mds.h"
#include "ptlrpc/proto/ost.h"
#include "tests/support/cluster.h"
#include "tests/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#define ATTACK_NS   UINT64_C(750000000)
#define PATIENCE_NS UINT64_C(20000000000)
#define CALL_NS_MAX UINT64_C(5000000000) /* of a well-behaved client; a hang is 10 s and more */
#define HALF_OPEN   10000
#define BODY_BYTES  8192u

static struct cluster *cluster;
static pid_t server;

/* ---- the hostile client -------------------------------------------------------------------- */

struct hostile {
    struct lnet *ctx;
    struct bulk *bulk;
    struct ptlrpc *rpc;
    struct ptlrpc_import *imports[2]; /* MDS, OSS */
    struct base_prng prng;
    uint64_t end_ns;
    unsigned char reply[BODY_BYTES]; /* the newest: handles and leases to be mutated */
    uint32_t reply_bytes;
};

static bool
hostile_poll(struct hostile *hostile)
{
    (void)lnet_poll(hostile->ctx, base_clock_now_ns(), 64);
    return base_clock_now_ns() < hostile->end_ns;
}

static void
hostile_open(struct hostile *hostile, uint64_t seed)
{
    const struct lnet_options lnet = {.struct_bytes = sizeof(lnet), .seed = seed};
    const struct lnet_ni_options ni = {
        .struct_bytes = sizeof(ni), .net = "shm", .run_dir = cluster_run_dir(cluster)};
    static const char *const targets[] = {"1@shm", "2@shm"};
    static const uint32_t portals[] = {PTLRPC_PORTAL_MDS, PTLRPC_PORTAL_OST};

    const struct mds_connect_req hello = {.version = MDS_PROTO_VERSION};

    *hostile = (struct hostile){.end_ns = base_clock_now_ns() + ATTACK_NS};
    base_prng_seed(&hostile->prng, seed);
    BASE_ASSERT(lnet_open(&lnet, &hostile->ctx) == 0);
    (void)lnet_poll(hostile->ctx, base_clock_now_ns(), 1);
    BASE_ASSERT(lnet_ni_add(hostile->ctx, &ni, NULL) == 0);
    BASE_ASSERT(bulk_open(hostile->ctx, NULL, &hostile->bulk) == 0);
    BASE_ASSERT(ptlrpc_open(hostile->ctx, hostile->bulk, NULL, &hostile->rpc) == 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct ptlrpc_import_options options = {.struct_bytes = sizeof(options),
                                                .portal = portals[i],
                                                .connect_data = &hello,
                                                .connect_data_bytes = sizeof(hello),
                                                .name = "hostile",
                                                .max_rpcs_in_flight = 64,
                                                .timeout_ns = UINT64_C(1000000000)};

        BASE_ASSERT(lnet_process_parse(targets[i], &options.target) == 0);
        BASE_ASSERT(ptlrpc_import_open(hostile->rpc, &options, &hostile->imports[i]) == 0);
    }
    while ((ptlrpc_import_state(hostile->imports[0]) != PTLRPC_IMP_FULL ||
            ptlrpc_import_state(hostile->imports[1]) != PTLRPC_IMP_FULL) &&
           hostile_poll(hostile)) {
    }
    BASE_ASSERT(ptlrpc_import_state(hostile->imports[0]) == PTLRPC_IMP_FULL);
    BASE_ASSERT(ptlrpc_import_state(hostile->imports[1]) == PTLRPC_IMP_FULL);
}

/* A number at some edge. */
static uint64_t
edge(struct hostile *hostile)
{
    static const uint64_t edges[] = {0,
                                     1,
                                     2,
                                     7,
                                     255,
                                     4095,
                                     4096,
                                     8192,
                                     65536,
                                     1u << 20,
                                     4u << 20,
                                     INT32_MAX,
                                     UINT32_MAX,
                                     UINT64_C(1) << 32,
                                     OST_OBJECT_BYTES_MAX,
                                     INT64_MAX,
                                     UINT64_C(1) << 63,
                                     UINT64_MAX - 4095,
                                     UINT64_MAX - 1,
                                     UINT64_MAX,
                                     FID_SEQ_FIRST};

    return edges[base_prng_below(&hostile->prng, BASE_ARRAY_LEN(edges))];
}

/* Fills @bytes with fields at their edges, noise, and pieces of what the servers said. */
static void
body_fill(struct hostile *hostile, unsigned char *body, uint32_t bytes)
{
    const uint64_t manner = base_prng_below(&hostile->prng, 4);

    (void)memset(body, 0, bytes);
    for (uint32_t at = 0; at < bytes; at += 4) {
        const uint64_t value =
            base_prng_below(&hostile->prng, 3) == 0 ? base_prng_u64(&hostile->prng) : edge(hostile);
        const uint32_t room = base_min_u32(bytes - at, base_prng_below(&hostile->prng, 2) ? 8 : 4);

        if (manner != 0 || base_prng_below(&hostile->prng, 4) == 0) {
            (void)memcpy(body + at, &value, room);
        }
    }
    if (manner == 1 && hostile->reply_bytes > 0) {
        const uint32_t from = (uint32_t)base_prng_below(&hostile->prng, hostile->reply_bytes);
        const uint32_t to = (uint32_t)base_prng_below(&hostile->prng, bytes + 1);

        (void)memcpy(body + to, hostile->reply + from,
                     base_min_u32(hostile->reply_bytes - from, bytes - to));
    }
}

static void
reply_keep(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes, void *user)
{
    struct hostile *hostile = user;

    (void)request;
    if (status == 0 && bytes > 0) {
        hostile->reply_bytes = base_min_u32(bytes, BODY_BYTES);
        (void)memcpy(hostile->reply, body, hostile->reply_bytes);
    }
}

/* A sound READ or WRITE with a real object, so that leases and bulk are reached. */
static uint32_t
io_fill(struct hostile *hostile, unsigned char *body, struct bulk_export **export_out)
{
    static unsigned char memory[1 << 20];
    const struct iovec iov = {memory, sizeof(memory)};
    struct ost_io_req req = {
        .object = {.fid = {FID_SEQ_FIRST, (uint32_t)base_prng_below(&hostile->prng, 3) + 1, 0}},
        .offset = base_prng_below(&hostile->prng, 4) == 0
                      ? edge(hostile)
                      : base_prng_below(&hostile->prng, 1 << 21),
        .length = base_prng_below(&hostile->prng, 4) == 0
                      ? edge(hostile)
                      : base_prng_below(&hostile->prng, 1 << 20),
        .flags = 1u << base_prng_below(&hostile->prng, 3),
    };

    *export_out = NULL;
    if ((req.flags & OST_F_BULK) != 0 &&
        bulk_export(hostile->bulk, ptlrpc_import_peer(hostile->imports[1]), &iov, 1,
                    LNET_ACCESS_READ | LNET_ACCESS_WRITE, export_out) == 0) {
        const uint32_t packed = bulk_export_pack(*export_out, body + sizeof(req), 512);

        req.handle_bytes = packed;
    }
    (void)memcpy(body, &req, sizeof(req));
    uint32_t bytes = sizeof(req) + req.handle_bytes;

    if (base_prng_below(&hostile->prng, 2) == 0) {
        const uint32_t at = (uint32_t)base_prng_below(&hostile->prng, bytes);

        body[at] ^= (unsigned char)(1u << base_prng_below(&hostile->prng, 8));
    }
    return bytes;
}

static void
request_hostile(struct hostile *hostile)
{
    static const uint16_t mds_opcs[] = {
        MDS_GETATTR,     MDS_CLOSE,        MDS_READDIR,       MDS_STATFS,
        MDS_SYNC,        MDS_READLINK,     MDS_ACCESS,        MDS_FLOCK,
        MDS_APPEND_LOCK, MDS_REINT_LINK,   MDS_REINT_SETATTR, MDS_REINT_CREATE,
        MDS_REINT_OPEN,  MDS_REINT_UNLINK, MDS_REINT_RENAME,  MDS_APPEND_UNLOCK};
    static const uint16_t ost_opcs[] = {OST_GETATTR, OST_SETATTR, OST_READ,   OST_WRITE,
                                        OST_CREATE,  OST_DESTROY, OST_PUNCH,  OST_STATFS,
                                        OST_SYNC,    OST_SEEK,    OST_COMMIT, OST_RELEASE};
    const uint32_t to = (uint32_t)base_prng_below(&hostile->prng, 2);
    uint16_t opc = to == 0 ? mds_opcs[base_prng_below(&hostile->prng, BASE_ARRAY_LEN(mds_opcs))]
                           : ost_opcs[base_prng_below(&hostile->prng, BASE_ARRAY_LEN(ost_opcs))];

    if (base_prng_below(&hostile->prng, 32) == 0) {
        opc = (uint16_t)base_prng_u64(&hostile->prng);
    }
    struct ptlrpc_request *request = ptlrpc_request_take(hostile->imports[to], opc);
    struct bulk_export *export_ = NULL;
    uint32_t bytes = (uint32_t)base_prng_below(&hostile->prng, 200);

    if (request == NULL) {
        return;
    }
    if ((opc == OST_READ || opc == OST_WRITE) && to == 1) {
        bytes = io_fill(hostile, ptlrpc_request_body(request), &export_);
    } else {
        if (base_prng_below(&hostile->prng, 16) == 0) {
            bytes = BODY_BYTES - (uint32_t)base_prng_below(&hostile->prng, 3);
        }
        body_fill(hostile, ptlrpc_request_body(request), bytes);
    }
    if (ptlrpc_request_send(request, bytes, reply_keep, hostile) != 0) {
        ptlrpc_request_drop(request);
    }
    if (export_ != NULL) {
        (void)bulk_export_close(export_, NULL, NULL); /* while the server may be copying */
    }
}

/* A message of LNet's, without ptlrpc: any portal, any bytes, or a header with one field wrong. */
static void
put_hostile(struct hostile *hostile)
{
    static unsigned char body[BODY_BYTES];
    static const uint32_t portals[] = {PTLRPC_PORTAL_MDS, PTLRPC_PORTAL_OST, PTLRPC_PORTAL_OUT,
                                       PTLRPC_PORTAL_CONTROL, PTLRPC_PORTAL_REPLY};
    uint32_t bytes = (uint32_t)base_prng_below(&hostile->prng, 400);
    struct lnet_target target = {
        .portal = base_prng_below(&hostile->prng, 8) == 0
                      ? (uint32_t)base_prng_below(&hostile->prng, LNET_PORTALS)
                      : portals[base_prng_below(&hostile->prng, BASE_ARRAY_LEN(portals))],
        .match_bits = edge(hostile),
        .hdr_data = base_prng_u64(&hostile->prng),
    };

    target.peer = ptlrpc_import_peer(hostile->imports[base_prng_below(&hostile->prng, 2)]);
    body_fill(hostile, body, bytes);
    if (bytes >= sizeof(struct ptlrpc_hdr) && base_prng_below(&hostile->prng, 8) != 0) {
        struct ptlrpc_hdr hdr;

        (void)memcpy(&hdr, body, sizeof(hdr));
        hdr.version = PTLRPC_HDR_VERSION;
        hdr.type = base_prng_below(&hostile->prng, 8) == 0 ? PTLRPC_HDR_REPLY : PTLRPC_HDR_REQUEST;
        hdr.opc = base_prng_below(&hostile->prng, 8) == 0
                      ? PTLRPC_OPC_PING
                      : (uint16_t)base_prng_below(&hostile->prng, 64);
        if (base_prng_below(&hostile->prng, 4) != 0) {
            hdr.u.request.body_bytes = bytes - (uint32_t)sizeof(hdr);
        }
        (void)memcpy(body, &hdr, sizeof(hdr));
    }
    (void)lnet_put_inline(hostile->ctx, &target, body, bytes);
}

static void
attack_with_messages(struct hostile *hostile)
{
    while (hostile_poll(hostile)) {
        for (uint32_t i = 0; i < 8; i++) {
            request_hostile(hostile);
            if (base_prng_below(&hostile->prng, 8) == 0) {
                put_hostile(hostile);
            }
        }
    }
}

/* Sends without ever reading what comes back, then says nothing for a while. */
static void
attack_by_flood(struct hostile *hostile)
{
    for (uint32_t i = 0; i < 5000; i++) {
        request_hostile(hostile);
        put_hostile(hostile);
    }
    /* The turn that gives them to the driver; then it is as if stopped. */
    (void)lnet_poll(hostile->ctx, base_clock_now_ns(), 1);
    (void)usleep(ATTACK_NS / 1000);
}

/*
 * Writes to the shared memory that is mapped here: rings, lines, regions. Not to the doorbells: a
 * peer of the same user can silence others with them (lnet/lnd/shm/README.md).
 */
static void
scribble(struct hostile *hostile)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");

    BASE_ASSERT(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        unsigned long first = 0;
        unsigned long last = 0;
        char access[8];

        if (strstr(line, "/memfd:causeway") == NULL || strstr(line, "-bells") != NULL ||
            sscanf(line, "%lx-%lx %7s", &first, &last, access) != 3 || access[1] != 'w') {
            continue;
        }
        for (uint32_t i = 0; i < 64; i++) {
            uint64_t *word = (uint64_t *)(first + (base_prng_below(&hostile->prng, last - first) &
                                                   ~UINT64_C(7)));

            __atomic_store_n(word,
                             base_prng_below(&hostile->prng, 2) == 0
                                 ? edge(hostile)
                                 : base_prng_u64(&hostile->prng),
                             __ATOMIC_RELAXED);
        }
    }
    (void)fclose(maps);
}

/* Our own layers assert on nothing that a peer writes, but may well on what we do to ourselves. */
static void
attack_through_memory(struct hostile *hostile)
{
    while (hostile_poll(hostile)) {
        for (uint32_t i = 0; i < 4; i++) {
            request_hostile(hostile);
        }
        scribble(hostile);
    }
}

/* Calls @fn for each of our descriptors. */
static void
descriptors_each(void (*fn)(int fd, const char *target))
{
    DIR *dir = opendir("/proc/self/fd");
    const struct dirent *entry = NULL;
    char target[256];

    BASE_ASSERT(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        const int fd = atoi(entry->d_name);
        const ssize_t length = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

        if (length > 0) {
            target[length] = '\0';
            fn(fd, target);
        }
    }
    (void)closedir(dir);
}

/* Seals, truncates and punches what it was given, and makes what must not block block. */
static void
descriptor_spoil(int fd, const char *target)
{
    if (strstr(target, "eventfd") != NULL) {
        const uint64_t full = UINT64_MAX - 1;
        uint64_t value = 0;

        (void)fcntl(fd, F_SETFL, O_NONBLOCK);
        (void)read(fd, &value, sizeof(value));
        (void)!write(fd, &full, sizeof(full));
        (void)fcntl(fd, F_SETFL, 0);
    } else if (strstr(target, "memfd:causeway") != NULL) {
        (void)fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SEAL);
        (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20);
        (void)!ftruncate(fd, 0);
    }
}

static void
descriptor_free(int fd, const char *target)
{
    if (strstr(target, "eventfd") != NULL) {
        (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    }
}

/* Asks, and sleeps so that the answer rings: all over again with full doorbells that block. */
static void
attack_through_descriptors(struct hostile *hostile)
{
    while (hostile_poll(hostile)) {
        descriptors_each(descriptor_spoil);
        for (uint32_t i = 0; i < 4; i++) {
            request_hostile(hostile);
        }
        (void)lnet_arm(hostile->ctx);
        (void)usleep(1000);
        descriptors_each(descriptor_free); /* so that our own poll does not block in turn */
    }
}

/* ---- without the layers -------------------------------------------------------------------- */

static int
raw_connect(const char *name)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    BASE_ASSERT(fd >= 0);
    (void)snprintf(un.sun_path, sizeof(un.sun_path), "%s/%s", cluster_run_dir(cluster), name);
    if (connect(fd, (const struct sockaddr *)&un, sizeof(un)) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static void
attack_by_connecting(struct hostile *hostile)
{
    static int fds[400];
    struct shm_wire wire = {.type = SHM_WIRE_HELLO,
                            .u.hello = {.incarnation = 1, .ring_bytes = 65536}};
    uint8_t bytes[SHM_WIRE_BYTES];

    (void)hostile;
    for (uint32_t i = 0; i < BASE_ARRAY_LEN(fds); i++) {
        fds[i] = -1;
    }
    for (uint32_t i = 0; i < HALF_OPEN; i++) {
        int *fd = &fds[i % BASE_ARRAY_LEN(fds)];

        if (*fd >= 0) {
            (void)close(*fd);
        }
        *fd = raw_connect(i % 2 == 0 ? "1@shm-0" : "2@shm-0");
        if (*fd >= 0 && i % 3 == 0) {
            shm_wire_encode(&wire, bytes);
            bytes[i % 16] ^= (uint8_t)(i >> 4); /* magic, version, type, count */
            (void)send(*fd, bytes, 1 + i % sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
}

/* ---- the others ---------------------------------------------------------------------------- */

/* A well-behaved client's answer: how long its slowest calls took. */
struct report {
    int rc;
    uint32_t calls;
    uint64_t p99_ns;
    uint64_t max_ns;
};

static int
call_all(struct causeway *fs, uint32_t i, uint8_t *data, size_t bytes)
{
    const struct iovec iov = {data, bytes};
    struct causeway_file *file = NULL;
    struct stat st;
    char name[32];

    (void)snprintf(name, sizeof(name), "good-%u", i % 16);
    int rc = causeway_open(fs, NULL, name, O_RDWR | O_CREAT, 0644, &file);

    if (rc != 0) {
        return rc;
    }
    (void)memset(data, (int)i, bytes);
    const ssize_t written = causeway_pwritev(file, &iov, 1, 0, NULL);

    if (written != (ssize_t)bytes) {
        rc = written < 0 ? (int)written : -EIO;
    }
    causeway_close(file);
    if (rc == 0) {
        rc = causeway_stat(fs, NULL, name, 0, &st);
    }
    return rc != 0 ? rc : causeway_unlink(fs, NULL, name);
}

static int
compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void
good_client(int fd, uint64_t duration_ns)
{
    static uint64_t times[1 << 20];
    static uint8_t data[65536];
    struct report report = {0};
    struct causeway *fs = NULL;
    const uint64_t begin_ns = base_clock_now_ns();

    report.rc = cluster_mount(cluster, NULL, &fs);
    while (report.rc == 0 && base_clock_now_ns() < begin_ns + duration_ns &&
           report.calls < BASE_ARRAY_LEN(times)) {
        const uint64_t start_ns = base_clock_now_ns();

        report.rc = call_all(fs, report.calls, data, sizeof(data));
        times[report.calls++] = base_clock_now_ns() - start_ns;
    }
    if (report.calls > 0) {
        qsort(times, report.calls, sizeof(times[0]), compare);
        report.p99_ns = times[report.calls - 1 - report.calls / 100];
        report.max_ns = times[report.calls - 1];
    }
    if (fs != NULL) {
        causeway_unmount(fs);
    }
    (void)!write(fd, &report, sizeof(report));
    _exit(0);
}

static uint64_t
server_cpu_ns(void)
{
    char path[64];
    char text[1024] = "";
    unsigned long user = 0;
    unsigned long kernel = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)server);
    FILE *file = fopen(path, "re");

    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    (void)fclose(file);
    assert_int_equal(sscanf(strrchr(text, ')') + 2,
                            "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel),
                     2);
    return (user + kernel) * (UINT64_C(1000000000) / (uint64_t)sysconf(_SC_CLK_TCK));
}

static uint32_t
server_descriptors(void)
{
    char path[64];
    char target[256];
    uint32_t count = 0;
    const struct dirent *entry = NULL;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)server);
    DIR *dir = opendir(path);

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        const ssize_t length = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

        target[length > 0 ? length : 0] = '\0';
        count += strstr(target, "memfd:") == NULL; /* stored data grows as it likes */
    }
    (void)closedir(dir);
    return count;
}

static pid_t
child_start(void)
{
    const pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)signal(SIGSEGV, SIG_DFL); /* cmocka's would go on with the tests here */
        (void)signal(SIGBUS, SIG_DFL);
    }
    return child;
}

/* What must be so after every attack. */
static void
attack_run(void (*attack)(struct hostile *hostile), bool has_layers, bool is_suicide)
{
    struct report report = {.rc = -EPIPE};
    int fds[2];
    int status = 0;

    assert_int_equal(cluster_fork(NULL, &cluster, &server), 0);
    assert_int_equal(pipe(fds), 0);
    pid_t good = child_start();

    if (good == 0) {
        good_client(fds[1], UINT64_C(50000000));
    }
    assert_int_equal(waitpid(good, &status, 0), good);
    assert_int_equal(read(fds[0], &report, sizeof(report)), sizeof(report));
    assert_int_equal(report.rc, 0);
    (void)usleep(50000);
    const uint32_t descriptors = server_descriptors();

    good = child_start();
    if (good == 0) {
        good_client(fds[1], 2 * ATTACK_NS);
    }
    for (uint64_t seed = 1; seed <= 3; seed++) {
        const pid_t bad = child_start();

        if (bad == 0) {
            struct hostile *hostile = calloc(1, sizeof(*hostile));

            if (is_suicide) {
                (void)freopen("/dev/null", "w", stderr);
            }
            if (has_layers) {
                hostile_open(hostile, seed);
                hostile->end_ns = base_clock_now_ns() + ATTACK_NS / 3;
            }
            attack(hostile);
            _exit(0); /* leases, exports and requests are left as they are */
        }
        const uint64_t deadline_ns = base_clock_now_ns() + PATIENCE_NS;

        while (waitpid(bad, &status, WNOHANG) == 0) {
            if (base_clock_now_ns() > deadline_ns) {
                (void)kill(bad, SIGKILL);
                (void)waitpid(bad, &status, 0);
                fail_msg("the hostile client hangs");
            }
            (void)usleep(1000);
        }
        if (!is_suicide && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
            fail_msg("the hostile client ended itself: %d", status);
        }
    }
    const uint64_t deadline_ns = base_clock_now_ns() + PATIENCE_NS;

    while (waitpid(good, &status, WNOHANG) == 0 && base_clock_now_ns() < deadline_ns) {
        (void)usleep(1000);
    }
    (void)kill(good, SIGKILL);
    assert_int_equal(waitpid(server, &status, WNOHANG), 0);
    (void)close(fds[1]);
    if (read(fds[0], &report, sizeof(report)) != sizeof(report)) {
        fail_msg("the well-behaved client hangs");
    }
    (void)close(fds[0]);
    if (report.rc != 0 || report.max_ns > CALL_NS_MAX) {
        fail_msg("the well-behaved client: %d after %u calls; p99 %llu us, max %llu us", report.rc,
                 report.calls, (unsigned long long)report.p99_ns / 1000,
                 (unsigned long long)report.max_ns / 1000);
    }
    print_message("# %u calls, p99 %llu us, max %llu us\n", report.calls,
                  (unsigned long long)report.p99_ns / 1000,
                  (unsigned long long)report.max_ns / 1000);
    for (int i = 0; i < 1000 && server_descriptors() != descriptors; i++) {
        (void)usleep(10000);
    }
    assert_int_equal(server_descriptors(), descriptors);
    const uint64_t cpu_ns = server_cpu_ns();

    (void)usleep(600000);
    assert_true(server_cpu_ns() - cpu_ns <= 30000000);
    cluster_stop(cluster);
}

static void
messages_of_every_kind(void **state)
{
    attack_run(attack_with_messages, true, false);
}

static void
floods_whose_replies_nobody_reads(void **state)
{
    attack_run(attack_by_flood, true, false);
}

static void
shared_memory_that_is_scribbled_into(void **state)
{
    attack_run(attack_through_memory, true, true);
}

static void
descriptors_that_are_turned_against_us(void **state)
{
    attack_run(attack_through_descriptors, true, false);
}

static void
half_open_connections_by_the_thousand(void **state)
{
    attack_run(attack_by_connecting, false, false);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(messages_of_every_kind),
    cmocka_unit_test(floods_whose_replies_nobody_reads),
    cmocka_unit_test(shared_memory_that_is_scribbled_into),
    cmocka_unit_test(descriptors_that_are_turned_against_us),
    cmocka_unit_test(half_open_connections_by_the_thousand),
};

TEST_MAIN(cases)
