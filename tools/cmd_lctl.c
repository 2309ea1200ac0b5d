/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * causeway lctl - ping a server and look into it while it runs.
 *
 * A context of its own asks: LNet's ping, or the control service for the rest.
 */
#include "tools/commands.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/wait.h"
#include "tools/control.h"
#include "tools/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The asking side, and the answer as it comes in. */
struct asker {
    struct lnet *ctx;
    struct bulk *bulk;
    struct ptlrpc *rpc;
    struct ptlrpc_import *import;
    char *text;
    uint32_t have_bytes;
    bool is_done;
    int status;
    uint64_t now_ns;
    struct lnet_ping_reply ping;
};

static void
log_line(void *arg, int level, const char *subsystem, const char *text)
{
    (void)arg;
    (void)level;
    (void)fprintf(stderr, "causeway lctl: %s: %s\n", subsystem, text);
}

static int
arm(void *arg)
{
    return lnet_arm(arg);
}

/* Polls until the answer is there or @deadline_ns. */
static int
wait_done(struct asker *asker, uint64_t deadline_ns)
{
    struct base_wait wait;

    base_wait_init(&wait, NULL);
    base_wait_begin(&wait, base_clock_now_ns());
    while (!asker->is_done) {
        asker->now_ns = base_clock_now_ns();
        if (asker->now_ns > deadline_ns) {
            return -ETIMEDOUT;
        }
        if (lnet_poll(asker->ctx, asker->now_ns, 64) == 0 && !asker->is_done) {
            const uint64_t next_ns = BASE_MIN(lnet_next_deadline(asker->ctx), deadline_ns);

            (void)base_wait_step(&wait, lnet_fd(asker->ctx), arm, asker->ctx, asker->now_ns,
                                 next_ns);
        }
    }
    return asker->status;
}

static void
ping_done(struct lnet *ctx, int status, const struct lnet_ping_reply *reply, void *user)
{
    struct asker *asker = user;

    (void)ctx;
    asker->status = status;
    asker->is_done = true;
    if (status == 0) {
        asker->ping = *reply;
    }
}

static void
piece_done(struct ptlrpc_request *request, int status, const void *body, uint32_t bytes, void *user)
{
    struct asker *asker = user;
    const struct control_get_rep *rep = body;

    (void)request;
    asker->is_done = true;
    asker->status = status;
    if (status != 0) {
        return;
    }
    if (bytes < sizeof(*rep) || rep->piece_bytes > bytes - sizeof(*rep) ||
        rep->piece_bytes > rep->text_bytes - asker->have_bytes || rep->text_bytes > (64u << 20)) {
        asker->status = -EPROTO;
        return;
    }
    if (asker->text == NULL) {
        asker->text = calloc(1, (size_t)rep->text_bytes + 1);
    }
    if (asker->text == NULL) {
        asker->status = -ENOMEM;
        return;
    }
    memcpy(asker->text + asker->have_bytes, rep + 1, rep->piece_bytes);
    asker->have_bytes += rep->piece_bytes;
    asker->status = asker->have_bytes < rep->text_bytes ? 1 : 0;
}

static int
open_asker(struct asker *asker, const char *net, const char *run_dir)
{
    const struct lnet_options lnet = {.struct_bytes = sizeof(lnet),
                                      .seed = base_clock_now_ns(),
                                      .log = log_line,
                                      .log_level = LNET_LOG_WARN};
    const struct lnet_ni_options ni = {
        .struct_bytes = sizeof(ni), .net = net, .run_dir = run_dir, .flags = LNET_NI_CONNECT_ONLY};
    int rc = lnet_open(&lnet, &asker->ctx);

    if (rc == 0) {
        (void)lnet_poll(asker->ctx, base_clock_now_ns(), 1);
        rc = lnet_ni_add(asker->ctx, &ni, NULL);
    }
    if (rc == 0) {
        rc = bulk_open(asker->ctx, NULL, &asker->bulk);
    }
    if (rc == 0) {
        rc = ptlrpc_open(asker->ctx, asker->bulk, NULL, &asker->rpc);
    }
    return rc;
}

static void
close_asker(struct asker *asker)
{
    if (asker->rpc != NULL) {
        ptlrpc_close(asker->rpc);
    }
    if (asker->bulk != NULL) {
        bulk_close(asker->bulk);
    }
    lnet_close(asker->ctx);
    free(asker->text);
}

static int
ask_text(struct asker *asker, const struct lnet_process *target, enum control_subject subject,
         uint64_t timeout_ns)
{
    const struct ptlrpc_import_options options = {.struct_bytes = sizeof(options),
                                                  .portal = CONTROL_PORTAL,
                                                  .target = *target,
                                                  .name = "control",
                                                  .timeout_ns = timeout_ns,
                                                  .tries_max = 1};
    int rc = ptlrpc_import_open(asker->rpc, &options, &asker->import);

    while (rc == 0) {
        struct ptlrpc_request *request = ptlrpc_request_take(asker->import, CONTROL_GET);
        struct control_get_req *req = request != NULL ? ptlrpc_request_body(request) : NULL;

        if (req == NULL) {
            return -EAGAIN;
        }
        req->subject = subject;
        req->offset = asker->have_bytes;
        asker->is_done = false;
        rc = ptlrpc_request_send(request, sizeof(*req), piece_done, asker);
        if (rc == 0) {
            rc = wait_done(asker, base_clock_now_ns() + timeout_ns);
        }
        if (rc == 0) {
            return 0;
        }
        rc = rc == 1 ? 0 : rc; /* 1: another piece is to come */
    }
    return rc;
}

static int
lctl_ping(struct asker *asker, const struct lnet_process *target, uint64_t timeout_ns, bool json)
{
    char text[LNET_PROC_TEXT_MAX];
    const uint64_t start_ns = base_clock_now_ns();
    int rc = lnet_ping(asker->ctx, target, start_ns + timeout_ns, ping_done, asker);

    if (rc == 0) {
        rc = wait_done(asker, start_ns + timeout_ns);
    }
    if (rc != 0) {
        return rc;
    }
    const uint64_t took_ns = base_clock_now_ns() - start_ns;
    json_t *nids = json_array();
    for (uint32_t i = 0; i < BASE_MIN(asker->ping.nid_count, BASE_ARRAY_LEN(asker->ping.nids));
         i++) {
        char nid[LNET_NID_TEXT_MAX];

        (void)json_array_append_new(nids, json_string(lnet_nid_format(asker->ping.nids[i], nid)));
        if (!json) {
            (void)printf("%u-%s\n", asker->ping.pid, nid);
        }
    }
    if (json) {
        json_t *answer = json_pack("{s:s, s:I, s:o}", "process", lnet_process_format(target, text),
                                   "connect_and_ping_ns", (json_int_t)took_ns, "nids", nids);

        (void)json_dumpf(answer, stdout, JSON_INDENT(2));
        (void)printf("\n");
        json_decref(answer);
    } else {
        (void)printf("# %s answered in %.1f us, connecting included\n",
                     lnet_process_format(target, text), (double)took_ns / 1e3);
        json_decref(nids);
    }
    return 0;
}

/* ---- tables ---- */

static json_int_t
integer_at(const json_t *json, const char *key)
{
    return json_integer_value(json_object_get(json, key));
}

static void
print_credit(const json_t *json, const char *key)
{
    const json_t *credits = json_object_get(json, key);

    (void)printf(" %6lld %6lld", (long long)integer_at(credits, "available_count"),
                 (long long)integer_at(credits, "min_count"));
}

static void
print_traffic(const json_t *json)
{
    const json_t *counters = json_object_get(json, "counters");

    (void)printf(" %10lld %13lld %10lld %13lld %6lld\n",
                 (long long)integer_at(counters, "send_count"),
                 (long long)integer_at(counters, "send_bytes"),
                 (long long)integer_at(counters, "recv_count"),
                 (long long)integer_at(counters, "recv_bytes"),
                 (long long)integer_at(counters, "drop_count"));
}

static void
print_rows(const json_t *rows, const char *name)
{
    const json_t *row = NULL;
    size_t i = 0;

    (void)printf("%-20s %-10s %6s %6s %10s %13s %10s %13s %6s\n", name, "state", "tx cr", "min",
                 "sent", "bytes", "received", "bytes", "drops");
    json_array_foreach(rows, i, row)
    {
        const char *state = json_string_value(json_object_get(row, "state"));

        (void)printf("%-20s %-10s", json_string_value(json_object_get(row, name)),
                     state != NULL ? state
                                   : (json_is_true(json_object_get(row, "is_up")) ? "up" : "down"));
        print_credit(row, "tx_credits");
        print_traffic(row);
    }
}

static void
print_services(const json_t *services)
{
    const json_t *service = NULL;
    size_t i = 0;

    json_array_foreach(services, i, service)
    {
        const char *name = NULL;
        json_t *op = NULL;

        (void)printf("%s: %lld clients, %lld requests, %lld refused, %lld at once at most\n",
                     json_string_value(json_object_get(service, "name")),
                     (long long)integer_at(service, "export_count"),
                     (long long)integer_at(service, "req_count"),
                     (long long)integer_at(service, "refused_count"),
                     (long long)integer_at(service, "req_active_max_count"));
        (void)printf("  %-18s %10s %8s %14s %12s %12s\n", "op", "count", "errors", "bytes",
                     "p50 us", "p99 us");
        json_object_foreach(json_object_get(service, "ops"), name, op)
        {
            const json_t *trip = json_object_get(op, "round_trip");

            (void)printf(
                "  %-18s %10lld %8lld %14lld %12.1f %12.1f\n", name,
                (long long)integer_at(op, "count"), (long long)integer_at(op, "error_count"),
                (long long)integer_at(op, "moved_bytes"), (double)integer_at(trip, "p50_ns") / 1e3,
                (double)integer_at(trip, "p99_ns") / 1e3);
        }
    }
}

static void
print_params(json_t *params)
{
    const char *name = NULL;
    json_t *value = NULL;

    json_object_foreach(params, name, value)
    {
        if (json_is_string(value)) {
            (void)printf("%-26s %s\n", name, json_string_value(value));
        } else {
            (void)printf("%-26s %lld\n", name, (long long)json_integer_value(value));
        }
    }
}

static int
show(struct asker *asker, enum control_subject subject, bool json)
{
    json_t *answer = json_loads(asker->text, JSON_REJECT_DUPLICATES, NULL);

    if (answer == NULL) {
        return -EPROTO;
    }
    if (json) {
        (void)json_dumpf(answer, stdout, JSON_INDENT(2));
        (void)printf("\n");
    } else {
        switch (subject) {
        case CONTROL_NIS:
            print_rows(answer, "nid");
            break;
        case CONTROL_PEERS:
            print_rows(answer, "process");
            break;
        case CONTROL_STATS:
            print_services(answer);
            break;
        case CONTROL_PARAMS:
            print_params(answer);
            break;
        }
    }
    json_decref(answer);
    return 0;
}

int
cmd_lctl(int argc, char **argv)
{
    static const struct {
        const char *verb;
        enum control_subject subject;
    } verbs[] = {{"nis", CONTROL_NIS},
                 {"peers", CONTROL_PEERS},
                 {"stats", CONTROL_STATS},
                 {"params", CONTROL_PARAMS}};
    const char *run_dir = NULL;
    uint64_t timeout_ns = UINT64_C(5000000000);
    bool json = false;
    const struct option_def options[] = {
        {"run-dir", 0, OPTION_TEXT, &run_dir, 0, 0, NULL, "DIR",
         "directory of the shm rendezvous sockets; default per user"},
        {"timeout", 't', OPTION_SECONDS, &timeout_ns, 1000000, UINT64_C(3600000000000), NULL,
         "SECONDS", "how long to wait for the answer"},
        {"json", 'j', OPTION_FLAG, &json, 0, 0, NULL, NULL, "print JSON"},
    };
    const struct option_set set = {
        "causeway lctl",
        "[options] ping|nis|peers|stats|params [PID-]NID",
        "Asks a running server: `ping` for its NIDs, `nis` for interfaces, `peers` for\n"
        "connections and credits, `stats` for requests by op, `params` for limits and options.",
        "causeway lctl ping 0-1@shm",
        options,
        BASE_ARRAY_LEN(options),
        .has_late_options = true,
    };
    struct asker asker = {0};
    struct lnet_process target;
    enum control_subject subject = 0;
    const int first = options_read(&set, argc, argv);

    if (argc - first != 2) {
        (void)fprintf(stderr,
                      "causeway lctl: wants a verb and an address; see causeway lctl --help\n");
        return 2;
    }
    for (size_t i = 0; i < BASE_ARRAY_LEN(verbs); i++) {
        if (strcmp(argv[first], verbs[i].verb) == 0) {
            subject = verbs[i].subject;
        }
    }
    if (subject == 0 && strcmp(argv[first], "ping") != 0) {
        (void)fprintf(stderr,
                      "causeway lctl: unknown verb '%s' (ping, nis, peers, stats, params)\n",
                      argv[first]);
        return 2;
    }
    if (lnet_process_parse(argv[first + 1], &target) != 0) {
        (void)fprintf(stderr, "causeway lctl: '%s' is no address (such as 1@shm or 0-1@shm)\n",
                      argv[first + 1]);
        return 2;
    }
    int rc = open_asker(&asker, strchr(argv[first + 1], '@') + 1, run_dir);
    if (rc == 0 && subject == 0) {
        rc = lctl_ping(&asker, &target, timeout_ns, json);
    } else if (rc == 0) {
        rc = ask_text(&asker, &target, subject, timeout_ns);
        rc = rc == 0 ? show(&asker, subject, json) : rc;
    }
    close_asker(&asker);
    if (rc != 0) {
        (void)fprintf(stderr, "causeway lctl: %s %s: %s\n", argv[first], argv[first + 1],
                      lnet_error_name(rc));
        return 1;
    }
    return 0;
}
