/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * causeway run - the front door: embedded servers, the preload library, and a program on them.
 *
 * The program finds the servers by three environment variables and a private run directory:
 * CAUSEWAY_MDS, CAUSEWAY_RUN_DIR, CAUSEWAY_PREFIX.
 *
 * Nothing is left behind. At the end, descendants that the command left are adopted
 * (PR_SET_CHILD_SUBREAPER) and ended, and the directory is removed. If this process is killed, a
 * *janitor*, which does nothing but wait for that, does the same: it finds the command and its
 * descendants by CAUSEWAY_RUN_DIR in their environment, as nothing else ties them together then.
 */
#include "tools/commands.h"

#include "base/assert.h"
#include "tools/host.h"
#include "tools/options.h"
#include "tools/report.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define END_WAIT_NS \
    UINT64_C(2000000000) /* for what the command left running, between TERM and KILL */

struct run {
    uint64_t reactors, osts, stripe_count, stripe_bytes, mem_bytes, prefault_bytes;
    uint64_t timeout_ns, ring_bytes;
    const char *store, *cpus, *prefix, *bulk_path, *rma_path, *json, *preload;
    FILE *json_file;
    bool no_lease, checksum, quiet, verbose;

    bool is_split;
    int reactor_cpus[HOST_REACTORS_MAX];
    cpu_set_t command_cpus;

    char dir[PATH_MAX];
    char preload_path[PATH_MAX];
    pid_t janitor;
    int janitor_socket; /* its end of the world: closed when this process ends */
    sigset_t signals;   /* the caller's mask, which the command gets back */
};

/* ---- the run directory and its janitor ---- */

static void
remove_dir(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *entry = NULL;

    if (dir != NULL) {
        while ((entry = readdir(dir)) !=
               NULL) { // NOLINT(concurrency-mt-unsafe): one thread per DIR
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
        (void)closedir(dir);
    }
    (void)rmdir(path);
}

/* Is @path the directory @prefix, or below it? */
static bool
is_below(const char *path, const char *prefix)
{
    const size_t length = strlen(prefix);

    return strncmp(path, prefix, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* Where the run directory will be, in run->dir; the command must not take it for one of ours. */
static int
choose_dir(struct run *run)
{
    const char *base = getenv("XDG_RUNTIME_DIR"); // NOLINT(concurrency-mt-unsafe): before threads
    uint32_t number = 0;

    if (base == NULL || base[0] != '/' || access(base, W_OK | X_OK) != 0 || strlen(base) > 60 ||
        is_below(base, run->prefix)) {
        base = "/tmp";
    }
    if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
        return -EIO;
    }
    (void)snprintf(run->dir, sizeof(run->dir), "%s/causeway-run-%08x", base, number);
    return is_below(run->dir, run->prefix) ? -EINVAL : 0;
}

/* Does process @pid have the @length bytes of @variable in its environment? */
static bool
has_variable(pid_t pid, const char *variable, size_t length)
{
    char path[64];
    char *text = NULL;
    size_t room = 0;
    bool is_found = false;

    (void)snprintf(path, sizeof(path), "/proc/%d/environ", pid);
    FILE *file = fopen(path, "re");
    while (!is_found && file != NULL) {
        const ssize_t got = getdelim(&text, &room, '\0', file);

        if (got < 0) {
            break;
        }
        is_found = strncmp(text, variable, length + 1) == 0;
    }
    free(text);
    if (file != NULL) {
        (void)fclose(file);
    }
    return is_found;
}

/* Signals all processes that have @variable in their environment; returns how many there are. */
static unsigned
signal_strays(const char *variable, int number)
{
    DIR *dir = opendir("/proc");
    const struct dirent *entry = NULL;
    unsigned count = 0;

    while (dir != NULL &&
           (entry = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe): one thread per DIR
        const long pid = strtol(entry->d_name, NULL, 10);

        if (pid <= 0 || pid == getpid()) {
            continue;
        }
        /* Opened before it is looked at, so that the number cannot become another process's. */
        const int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
        if (pidfd >= 0 && has_variable((pid_t)pid, variable, strlen(variable)) &&
            syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0) == 0) {
            count++;
        }
        if (pidfd >= 0) {
            (void)close(pidfd);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return count;
}

/* Ends what a killed run left running: TERM, and KILL when that does not help. */
static void
end_strays(const char *dir)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    const uint64_t start_ns = base_clock_now_ns();
    char variable[PATH_MAX + 32];
    uint64_t waited_ns = 0;

    (void)snprintf(variable, sizeof(variable), "CAUSEWAY_RUN_DIR=%s", dir);
    while (waited_ns < 2 * END_WAIT_NS &&
           signal_strays(variable, waited_ns < END_WAIT_NS ? SIGTERM : SIGKILL) > 0) {
        (void)nanosleep(&pause, NULL);
        waited_ns = base_clock_now_ns() - start_ns;
    }
}

static int
make_dir(struct run *run)
{
    if (mkdir(run->dir, 0700) != 0) {
        const int rc = -errno;

        (void)fprintf(stderr, "causeway run: cannot make %s: %s\n", run->dir, lnet_error_name(rc));
        return rc;
    }
    return 0;
}

_Noreturn static void
janitor_main(const char *dir, int socket_fd)
{
    char byte = 0;
    sigset_t all;

    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    (void)setsid(); /* what is sent to the group, such as Ctrl-C, is not meant for it */
    (void)prctl(PR_SET_NAME, "causeway-tidy");
    /* Nobody may wait for the end of a pipe that this one inherited. */
    if (socket_fd > 0) {
        (void)syscall(SYS_close_range, 0, socket_fd - 1, 0);
    }
    (void)syscall(SYS_close_range, socket_fd + 1, ~0u, 0);
    (void)send(socket_fd, "", 1, MSG_NOSIGNAL);
    /* A byte: all is tidy. The end: this one's parent was killed. */
    if (recv(socket_fd, &byte, 1, 0) != 1) {
        end_strays(dir);
        remove_dir(dir);
    }
    _exit(0);
}

/* Starts the janitor and waits until it is out of reach of what ends this process. */
static int
start_janitor(struct run *run)
{
    int ends[2];
    char byte = 0;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return -errno;
    }
    run->janitor = fork();
    if (run->janitor == 0) {
        (void)close(ends[1]);
        janitor_main(run->dir, ends[0]);
    }
    const int rc = run->janitor < 0 ? -errno : 0;
    (void)close(ends[0]);
    if (rc != 0 || recv(ends[1], &byte, 1, 0) != 1) {
        (void)close(ends[1]);
        return rc != 0 ? rc : -ECHILD;
    }
    run->janitor_socket = ends[1];
    return 0;
}

static void
end_janitor(struct run *run)
{
    remove_dir(run->dir);
    (void)send(run->janitor_socket, "", 1, MSG_NOSIGNAL); /* it may have been killed */
    (void)close(run->janitor_socket);
    (void)waitpid(run->janitor, NULL, 0);
}

/* ---- the command ---- */

/* Where the preload library is: as told, beside the build, or installed. */
static int
find_preload(struct run *run)
{
    static const char *const places[] = {"../clients/preload", "../lib/causeway", CAUSEWAY_LIBDIR};
    char exe[PATH_MAX];

    if (run->preload != NULL) {
        (void)snprintf(run->preload_path, sizeof(run->preload_path), "%s", run->preload);
        struct stat attr;

        if (stat(run->preload_path, &attr) != 0 || access(run->preload_path, R_OK) != 0) {
            return -errno;
        }
        return S_ISREG(attr.st_mode) ? 0 : -EINVAL;
    }
    const ssize_t length = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (length < 0) {
        return -errno;
    }
    exe[length] = '\0';
    *strrchr(exe, '/') = '\0';
    for (size_t i = 0; i < BASE_ARRAY_LEN(places); i++) {
        char path[2 * PATH_MAX];

        (void)snprintf(path, sizeof(path), "%s%s%s/libcauseway_preload.so",
                       places[i][0] == '/' ? "" : exe, places[i][0] == '/' ? "" : "/", places[i]);
        if (realpath(path, run->preload_path) != NULL) {
            return 0;
        }
    }
    return -ENOENT;
}

static char *
env_text(const char *name, const char *value, const char *more)
{
    char *text = NULL;

    if (asprintf(&text, "%s=%s%s%s", name, value, more != NULL ? ":" : "",
                 more != NULL ? more : "") < 0) {
        return NULL;
    }
    return text;
}

static bool
is_ours(const char *variable)
{
    static const char *const names[] = {
        "LD_PRELOAD=",         "CAUSEWAY_MDS=",        "CAUSEWAY_RUN_DIR=",
        "CAUSEWAY_PREFIX=",    "CAUSEWAY_NO_LEASE=",   "CAUSEWAY_CHECKSUM=",
        "CAUSEWAY_BULK_PATH=", "CAUSEWAY_TIMEOUT_MS=", "CAUSEWAY_RMA_PATH="};

    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        if (strncmp(variable, names[i], strlen(names[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* The environment of the command, or NULL without memory. */
static char **
make_environment(const struct run *run)
{
    size_t count = 0;
    size_t at = 0;
    char timeout[32];

    while (environ[count] != NULL) {
        count++;
    }
    char **env = calloc(count + 16, sizeof(*env));
    if (env == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        if (!is_ours(environ[i])) {
            env[at++] = environ[i];
        }
    }
    (void)snprintf(timeout, sizeof(timeout), "%llu", (unsigned long long)run->timeout_ns / 1000000);
    env[at++] = env_text("LD_PRELOAD", run->preload_path,
                         getenv("LD_PRELOAD")); // NOLINT(concurrency-mt-unsafe): environ is ours
    env[at++] = env_text("CAUSEWAY_MDS", "0-1@shm", NULL);
    env[at++] = env_text("CAUSEWAY_RUN_DIR", run->dir, NULL);
    env[at++] = env_text("CAUSEWAY_PREFIX", run->prefix, NULL);
    env[at++] = env_text("CAUSEWAY_TIMEOUT_MS", timeout, NULL);
    env[at++] = env_text("CAUSEWAY_BULK_PATH", run->bulk_path, NULL);
    env[at++] = env_text("CAUSEWAY_RMA_PATH", run->rma_path, NULL);
    if (run->no_lease) {
        env[at++] = env_text("CAUSEWAY_NO_LEASE", "1", NULL);
    }
    if (run->checksum) {
        env[at++] = env_text("CAUSEWAY_CHECKSUM", "1", NULL);
    }
    return env;
}

static pid_t
start_command(const struct run *run, char **argv, char **env)
{
    const pid_t parent = getpid();
    const pid_t child = fork();

    if (child != 0) {
        return child;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        _exit(1);
    }
    (void)sigprocmask(SIG_SETMASK, &run->signals, NULL);
    if (run->is_split) {
        (void)sched_setaffinity(0, sizeof(run->command_cpus), &run->command_cpus);
    }
    (void)execvpe(argv[0], argv, env);
    const int error = errno;
    (void)dprintf(STDERR_FILENO, "causeway run: %s: %s\n", argv[0], strerror(error));
    _exit(error == ENOENT ? 127 : 126);
}

/*
 * Waits for @child and passes signals on to it. The terminal's Ctrl-C reaches the command by
 * itself, as it is in the same process group; one sent to this process alone is passed on.
 */
static int
wait_command(pid_t child, const sigset_t *signals)
{
    for (;;) {
        int status = 0;
        siginfo_t info;
        const pid_t ended = waitpid(-1, &status, WNOHANG);

        if (ended == child) {
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        if (ended > 0) {
            continue; /* an adopted one */
        }
        const int number = sigwaitinfo(signals, &info);
        /* The terminal that hangs up tells the leader of the session only. */
        if (number > 0 && number != SIGCHLD && (info.si_code <= 0 || number == SIGHUP)) {
            (void)kill(child, number);
        }
    }
}

/* Signals every descendant; returns how many there are. Those adopted are our direct children. */
static unsigned
signal_children(pid_t except, int number)
{
    char path[64];
    unsigned count = 0;
    int pid = 0;

    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
    FILE *file = fopen(path, "re");
    while (file != NULL && fscanf(file, "%d", &pid) == 1) { // NOLINT(cert-err34-c): the kernel's
        if (pid != except) {
            count++;
            (void)kill(pid, number);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return count;
}

/* Ends what the command left running: TERM, and KILL when that does not help. */
static void
end_leftovers(pid_t janitor)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    const uint64_t start_ns = base_clock_now_ns();

    while (signal_children(janitor,
                           base_clock_now_ns() - start_ns < END_WAIT_NS ? SIGTERM : SIGKILL) > 0) {
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        (void)nanosleep(&pause, NULL);
    }
}

/* ---- all of it ---- */

/*
 * Gives the servers the last of the CPUs that we may use, and the command the others: neither waits
 * for the other to be scheduled, and what the servers cost shows apart. Returns 0, or -EINVAL said.
 */
static int
split_cpus(struct run *run)
{
    int left = 0;

    CPU_ZERO(&run->command_cpus);
    if (strcmp(run->cpus, "shared") == 0 ||
        sched_getaffinity(0, sizeof(run->command_cpus), &run->command_cpus) != 0) {
        return 0;
    }
    left = CPU_COUNT(&run->command_cpus);
    if ((uint64_t)left <= run->reactors) {
        if (strcmp(run->cpus, "auto") == 0) {
            return 0;
        }
        (void)fprintf(
            stderr,
            "causeway run: option 'cpus': split wants more than %d CPUs for %llu reactors "
            "and the command\n",
            left, (unsigned long long)run->reactors);
        return -EINVAL;
    }
    uint64_t reactor = run->reactors;
    for (unsigned cpu = CPU_SETSIZE - 1; reactor > 0; cpu--) {
        if (CPU_ISSET(cpu, &run->command_cpus)) {
            CPU_CLR(cpu, &run->command_cpus);
            run->reactor_cpus[--reactor] = (int)cpu;
        }
    }
    run->is_split = true;
    return 0;
}

static void
fill_servers(const struct run *run, struct mds_ost *osts, struct mds_options *mds,
             struct oss_options *oss, struct host_options *host)
{
    struct lnet_nid nid = {0};
    const int rc = lnet_nid_parse("1@shm", &nid);

    BASE_ASSERT(rc == 0);
    for (uint32_t i = 0; i < run->osts; i++) {
        osts[i] =
            (struct mds_ost){.nid = nid, .reactors = (uint16_t)run->reactors, .ost = (uint16_t)i};
    }
    *mds = (struct mds_options){.struct_bytes = sizeof(*mds),
                                .osts = osts,
                                .ost_count = (uint32_t)run->osts,
                                .stripe_bytes = (uint32_t)run->stripe_bytes,
                                .stripe_count = (uint32_t)run->stripe_count,
                                .store = run->store};
    *oss = (struct oss_options){.struct_bytes = sizeof(*oss),
                                .ost_count = (uint32_t)run->osts,
                                .store = run->store,
                                .bytes_max = run->mem_bytes / run->reactors,
                                .prefault_bytes = run->prefault_bytes / run->reactors,
                                .no_lease = run->no_lease};
    *host = (struct host_options){.name = "run",
                                  .net = "shm",
                                  .address = "1",
                                  .run_dir = run->dir,
                                  .reactors = (uint32_t)run->reactors,
                                  .ring_bytes = run->ring_bytes,
                                  .rma_path = run->rma_path,
                                  .timeout_ns = run->timeout_ns,
                                  .cpus = run->is_split ? run->reactor_cpus : NULL,
                                  .mds = mds,
                                  .oss = oss,
                                  .log_level = run->verbose ? LNET_LOG_DEBUG : LNET_LOG_WARN};
    for (int path = 0; path < BULK_PATH_COUNT; path++) {
        if (strcmp(bulk_path_name((enum bulk_path)path), run->bulk_path) == 0) {
            host->bulk_path = (uint32_t)path;
        }
    }
}

static void
say_results(const struct run *run, const struct host *host, const struct report_run *report)
{
    if (!run->quiet) {
        report_print(host, report, stderr);
    }
    if (run->json != NULL) {
        json_t *json = report_json(host, report);

        if (json_dumpf(json, run->json_file, JSON_INDENT(2)) != 0 || fclose(run->json_file) != 0) {
            (void)fprintf(stderr, "causeway run: cannot write %s\n", run->json);
        }
        json_decref(json);
    }
}

/* From here on signals wait until there is a command to pass them on to. */
static void
hold_signals(struct run *run, sigset_t *signals_out)
{
    sigset_t blocked;

    (void)sigemptyset(signals_out);
    (void)sigaddset(signals_out, SIGINT);
    (void)sigaddset(signals_out, SIGTERM);
    (void)sigaddset(signals_out, SIGHUP);
    (void)sigaddset(signals_out, SIGQUIT);
    (void)sigaddset(signals_out, SIGCHLD);
    blocked = *signals_out;
    (void)sigaddset(&blocked, SIGPIPE); /* a reader of stderr that is gone */
    (void)sigprocmask(SIG_BLOCK, &blocked, &run->signals);
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, there would be no status to wait for */
}

static int
run_on_servers(struct run *run, char **argv, const sigset_t *signals)
{
    struct mds_ost osts[64];
    struct mds_options mds;
    struct oss_options oss;
    struct host_options options;
    struct host *host = NULL;

    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);

    fill_servers(run, osts, &mds, &oss, &options);
    const int rc = host_start(&options, &host);
    if (rc != 0) {
        (void)fprintf(stderr, "causeway run: cannot start the servers: %s\n", lnet_error_name(rc));
        return 1;
    }
    char **env = make_environment(run);
    const uint64_t start_ns = base_clock_now_ns();
    const pid_t child = env != NULL ? start_command(run, argv, env) : -1;
    if (child < 0) {
        (void)fprintf(stderr, "causeway run: cannot start %s: %s\n", argv[0],
                      lnet_error_name(-errno));
        host_stop(host);
        host_free(host);
        return 1;
    }
    struct report_run report = {
        .command = argv[0], .store = run->store, .ost_count = (uint32_t)run->osts};
    report.exit_status = wait_command(child, signals);
    report.elapsed_ns = base_clock_now_ns() - start_ns;
    end_leftovers(run->janitor);
    host_stop(host);
    say_results(run, host, &report);
    host_free(host);
    return report.exit_status;
}

/* Checks the options' values, and decides what follows from them. */
static int
check_options(void *arg)
{
    struct run *run = arg;

    if (run->prefix[0] != '/' || run->prefix[1] == '\0' || strlen(run->prefix) > 200) {
        (void)fprintf(stderr, "causeway run: option 'prefix': '%s' is no absolute path below '/'\n",
                      run->prefix);
        return -EINVAL;
    }
    if (run->stripe_bytes % 65536 != 0) {
        (void)fprintf(stderr, "causeway run: option 'stripe-size': %llu is no multiple of 64k\n",
                      (unsigned long long)run->stripe_bytes);
        return -EINVAL;
    }
    if ((run->ring_bytes & (run->ring_bytes - 1)) != 0) {
        (void)fprintf(stderr, "causeway run: option 'ring-bytes': %llu is no power of two\n",
                      (unsigned long long)run->ring_bytes);
        return -EINVAL;
    }
    if (choose_dir(run) != 0) {
        (void)fprintf(stderr,
                      "causeway run: option 'prefix': '%s' would hide the run directory in /tmp; "
                      "set XDG_RUNTIME_DIR to a directory elsewhere\n",
                      run->prefix);
        return -EINVAL;
    }
    return split_cpus(run);
}

int
cmd_run(int argc, char **argv)
{
    struct run run = {.reactors = 1,
                      .osts = 1,
                      .stripe_count = 1,
                      .stripe_bytes = 1 << 20,
                      .prefault_bytes = UINT64_C(256) << 20,
                      .timeout_ns = UINT64_C(10000000000),
                      .ring_bytes = 65536,
                      .cpus = "auto",
                      .store = "mem",
                      .prefix = "/causeway",
                      .bulk_path = "auto",
                      .rma_path = "auto"};
    const char *config = NULL;
    const struct option_def options[] = {
        {"config", 'c', OPTION_TEXT, &config, 0, 0, NULL, "FILE", "read options from a YAML file"},
        {"reactors", 'R', OPTION_COUNT, &run.reactors, 1, HOST_REACTORS_MAX, NULL, "N",
         "server threads; each serves metadata and objects"},
        {"osts", 'o', OPTION_COUNT, &run.osts, 1, 64, NULL, "N", "object storage targets"},
        {"stripe-count", 0, OPTION_COUNT, &run.stripe_count, 1, 65535, NULL, "N",
         "OSTs that a new file is spread over; 65535: all"},
        {"stripe-size", 0, OPTION_SIZE, &run.stripe_bytes, 65536, UINT64_C(1) << 31, NULL, "SIZE",
         "bytes of a stripe, a multiple of 64k"},
        {"store", 's', OPTION_TEXT, &run.store, 0, 0, "mem|null", "NAME",
         "what keeps the data; null keeps nothing and shows the RPC ceiling"},
        {"prefix", 'p', OPTION_TEXT, &run.prefix, 0, 0, NULL, "PATH",
         "where the program sees the file system"},
        {"mem", 'm', OPTION_SIZE, &run.mem_bytes, 0, UINT64_C(1) << 44, NULL, "SIZE",
         "most memory for file data; 0: an eighth of the machine's per reactor"},
        {"prefault", 0, OPTION_SIZE, &run.prefault_bytes, 0, UINT64_C(1) << 40, NULL, "SIZE",
         "memory touched before the program starts"},
        {"bulk-path", 'b', OPTION_TEXT, &run.bulk_path, 0, 0, "auto|mapped|cma|staging", "PATH",
         "force how bulk data moves"},
        {"rma-path", 0, OPTION_TEXT, &run.rma_path, 0, 0, "auto|mapped|cma|none", "PATH",
         "what the shm LND may use"},
        {"no-lease", 0, OPTION_FLAG, &run.no_lease, 0, 0, NULL, NULL,
         "the servers make all copies"},
        {"checksum", 0, OPTION_FLAG, &run.checksum, 0, 0, NULL, NULL,
         "CRC32C over all file data, end to end"},
        {"ring-bytes", 0, OPTION_SIZE, &run.ring_bytes, 32768, 1 << 24, NULL, "SIZE",
         "of one direction of a connection"},
        {"timeout", 't', OPTION_SECONDS, &run.timeout_ns, 1000000, UINT64_C(3600000000000), NULL,
         "SECONDS", "of one try of a request"},
        {"cpus", 0, OPTION_TEXT, &run.cpus, 0, 0, "auto|split|shared", "HOW",
         "split: CPUs of their own for the servers, the others for CMD; auto: split if there are "
         "enough"},
        {"preload", 0, OPTION_TEXT, &run.preload, 0, 0, NULL, "FILE", "another preload library"},
        {"json", 'j', OPTION_TEXT, &run.json, 0, 0, NULL, "FILE", "write the summary as JSON too"},
        {"quiet", 'q', OPTION_FLAG, &run.quiet, 0, 0, NULL, NULL, "no summary"},
        {"verbose", 'v', OPTION_FLAG, &run.verbose, 0, 0, NULL, NULL, "say more in the log"},
    };
    const struct option_set set = {
        "causeway run",
        "[options] -- CMD [ARGS ...]",
        "Starts embedded in-memory servers, runs CMD so that it finds them as files below "
        "/causeway,\n"
        "passes its exit status on and says on stderr what happened. CMD may be mpirun.",
        "causeway run -- sh -c 'tar cf /causeway/etc.tar /etc && ls -l /causeway'",
        options,
        BASE_ARRAY_LEN(options),
        .has_late_options = false,
        .check = check_options,
        .check_arg = &run,
    };
    sigset_t signals;
    const int first = options_read(&set, argc, argv);

    if (first >= argc) {
        (void)fprintf(stderr, "causeway run: no command; see causeway run --help\n");
        return 2;
    }
    if (run.json != NULL && (run.json_file = fopen(run.json, "we")) == NULL) {
        (void)fprintf(stderr, "causeway run: option 'json': cannot write %s: %s\n", run.json,
                      lnet_error_name(-errno));
        return 2;
    }
    int rc = find_preload(&run);
    if (rc != 0) {
        (void)fprintf(stderr, "causeway run: %s (%s): build it, or name it with --preload\n",
                      run.preload != NULL ? run.preload : "libcauseway_preload.so not found",
                      lnet_error_name(rc));
        return run.preload != NULL ? 2 : 1;
    }
    hold_signals(&run, &signals);
    rc = start_janitor(&run);
    if (rc != 0) {
        (void)fprintf(stderr, "causeway run: cannot start: %s\n", lnet_error_name(rc));
        return 1;
    }
    const int status = make_dir(&run) == 0 ? run_on_servers(&run, argv + first, &signals) : 1;
    end_janitor(&run);
    return status;
}
