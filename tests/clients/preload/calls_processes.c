/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes: fork, exec and spawn, with what they hand on.
 */
#include "tests/clients/preload/calls.h"

#include <limits.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static int
wait_for(pid_t child)
{
    int status = -1;

    if (child <= 0 || waitpid(child, &status, 0) != child) {
        return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void
forks(void)
{
    const int fd = open(at("forked"), O_CREAT | O_RDWR, 0600);

    SAY(write(fd, "1", 1));
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        (void)!write(fd, "2", 1);
        make_file("by child", "child");
        _exit(write(fd, "3", 1) == 1 ? 7 : 8);
    }
    printf("child: %d\n", wait_for(child));
    SAY(write(fd, "4", 1));
    say_file("forked");
    say_file("by child");
    fflush(stdout);
    const pid_t vforked = vfork();
    if (vforked == 0) {
        execlp("sh", "sh", "-c", "exit 5", NULL);
        _exit(6);
    }
    printf("vfork: %d\n", wait_for(vforked));
    close(fd);
}

/* Runs a shell with the descriptor @fd as its 9. */
static int
run_shell(const char *script, int fd)
{
    fflush(stdout);
    const pid_t child = fork();

    if (child == 0) {
        if (fd >= 0 && fd != 9) {
            dup2(fd, 9);
        }
        execl("/bin/sh", "sh", "-c", script, NULL);
        _exit(127);
    }
    return wait_for(child);
}

static void
inherited(void)
{
    const int fd = open(at("inherited"), O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0600);

    SAY(write(fd, "from here, ", 11));
    printf("%d\n", run_shell("echo from a shell >&9; echo again >&9", fd));
    SAY(write(fd, "and here", 8));
    say_file("inherited");
    close(fd);
    const int in = open(at("inherited"), O_RDONLY);
    SAY(lseek(in, 5, SEEK_SET));
    printf("%d\n", run_shell("dd bs=1 count=4 <&9 2>/dev/null; echo", in));
    SAY(lseek(in, 0, SEEK_CUR));
    close(in);
    /* One that exec closes. */
    const int shut = open(at("inherited"), O_RDONLY | O_CLOEXEC);
    char script[64];
    snprintf(script, sizeof(script), "test -e /proc/self/fd/%d; echo $?", shut);
    printf("%d\n", run_shell(script, -1));
    close(shut);
    mkdir(at("place"), 0700);
    SAY(chdir(at("place")));
    printf("%d\n", run_shell("echo made > here; pwd | sed 's,.*/,,'; cd ..; ls", -1));
    SAY(chdir("/"));
    say_file("place/here");
}

static void
programs(void)
{
    char command[1200];

    make_file("script", "#!/bin/sh\necho script \"$@\"\nexit 4\n");
    chmod(at("script"), 0755);
    make_file("plain", "echo plain\n");
    chmod(at("plain"), 0755);
    make_file("not", "#!/bin/sh\n");
    snprintf(command, sizeof(command), "cp /bin/echo %s && chmod 755 %s", at("echo"), at("echo"));
    (void)!system(command);
    snprintf(command, sizeof(command), "#!%s -x \n", at("script"));
    make_file("second", command);
    chmod(at("second"), 0755);
    snprintf(command, sizeof(command), "#!%s\n", at("loop"));
    make_file("loop", command);
    chmod(at("loop"), 0755);
    snprintf(command, sizeof(command), "%s one 'two three'; echo $?; %s a; echo $?; %s; echo $?",
             at("script"), at("echo"), at("plain"));
    printf("%d\n", run_shell(command, -1));
    snprintf(command, sizeof(command), "cd %s; ./script x; ./echo y; PATH=$PWD:$PATH; echo z",
             at(""));
    printf("%d\n", run_shell(command, -1));

    static const char *const names[] = {"script", "plain",   "not",   "echo",  "second",
                                        "loop",   "missing", "place", "echo/x"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char *const args[] = {(char *)(uintptr_t) "name", (char *)(uintptr_t) "arg", NULL};

        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            execv(at(names[i]), args);
            printf("%s\n", strerrorname_np(errno));
            fflush(stdout);
            _exit(9);
        }
        printf("exec %s: %d\n", names[i], wait_for(child));
        fflush(stdout);
        const pid_t by_fd = fork();
        if (by_fd == 0) {
            const int fd = open(at(names[i]), O_RDONLY);

            fexecve(fd, args, environ);
            printf("%s\n", strerrorname_np(errno));
            fflush(stdout);
            _exit(9);
        }
        printf("fexecve %s: %d\n", names[i], wait_for(by_fd));
        pid_t spawned = -1;
        fflush(stdout);
        const int error = posix_spawn(&spawned, at(names[i]), NULL, NULL, args, environ);
        printf("spawn %s: %s, %d\n", names[i], error == 0 ? "0" : strerrorname_np(error),
               error == 0 ? wait_for(spawned) : 0);
    }
}

/* A script outside whose interpreter is on Causeway. */
static void
interpreter(void)
{
    char template[] = "/tmp/causeway-script-XXXXXX";
    char text[600];
    const int fd = mkstemp(template);

    snprintf(text, sizeof(text), "#!%s interpreted\n", at("echo"));
    (void)!write(fd, text, strlen(text));
    (void)!fchmod(fd, 0755);
    close(fd);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        execl(template, "name", NULL);
        _exit(9);
    }
    /* Says its own, changing path. */
    printf("interpreter: %d\n", wait_for(child) == 0);
    unlink(template);
}

static void
spawns(void)
{
    posix_spawn_file_actions_t actions;
    pid_t child = -1;
    char *const args[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c",
                          (char *)(uintptr_t) "read line; echo got $line; pwd | sed 's,.*/,,' >&2; "
                                              "test -e /proc/self/fd/33; echo $? >&2",
                          NULL};

    make_file("in", "the input\n");
    mkdir(at("where"), 0700);
    const int extra = open(at("in"), O_RDONLY);
    dup2(extra, 33);
    const int errors = open(at("errors"), O_CREAT | O_RDWR, 0600);
    const int before = open(at("in"), O_RDONLY);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, at("in"), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, at("out"), O_CREAT | O_WRONLY, 0644);
    posix_spawn_file_actions_adddup2(&actions, errors, 2);
    posix_spawn_file_actions_addclose(&actions, 33);
    posix_spawn_file_actions_addchdir_np(&actions, at("where"));
    fflush(stdout);
    ERROR(posix_spawnp(&child, "sh", &actions, NULL, args, environ));
    printf("%d\n", wait_for(child));
    say_file("out");
    say_file("errors");
    SAY(lseek(errors, 0, SEEK_CUR) > 0);
    char text[16] = "";
    SAY(read(extra, text, 3));
    SAY(read(33, text, 3));
    SAY(read(before, text, 3));
    printf("%s\n", text);
    char cwd[PATH_MAX];
    say_text("here", getcwd(cwd, sizeof(cwd)));
    posix_spawn_file_actions_destroy(&actions);

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, at("missing"), O_RDONLY, 0);
    ERROR(posix_spawn(&child, "/bin/true", &actions, NULL, args, environ));
    posix_spawn_file_actions_destroy(&actions);
    ERROR(posix_spawnp(&child, "no-such-program", NULL, NULL, args, environ));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, errors, 1);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    fflush(stdout);
    ERROR(posix_spawnp(&child, "sh", &actions, NULL,
                       (char *const[]){(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c",
                                       (char *)(uintptr_t) "echo closed from three", NULL},
                       environ));
    printf("%d\n", wait_for(child));
    say_file("errors");
    posix_spawn_file_actions_destroy(&actions);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, at("where"));
    posix_spawn_file_actions_addopen(&actions, 1, "relative", O_CREAT | O_WRONLY, 0644);
    fflush(stdout);
    ERROR(posix_spawnp(&child, "pwd", &actions, NULL,
                       (char *const[]){(char *)(uintptr_t) "pwd", NULL}, environ));
    printf("%d\n", wait_for(child));
    SAY(access(at("where/relative"), F_OK));
    posix_spawn_file_actions_destroy(&actions);
    close(extra);
    close(33);
    close(errors);
    close(before);
}

/* The environment that a program makes for another may lack everything. */
static void
environments(void)
{
    char command[600];
    char *const args[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", command, NULL};
    char *const nothing[] = {NULL};
    char *const other[] = {(char *)(uintptr_t) "LD_PRELOAD=/no/such/library.so",
                           (char *)(uintptr_t) "PATH=/usr/bin:/bin", NULL};

    make_file("env", "found");
    snprintf(command, sizeof(command), "/bin/cat %s 2>/dev/null; echo", at("env"));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execve("/bin/sh", args, nothing);
        _exit(9);
    }
    printf("empty: %d\n", wait_for(child));
    fflush(stdout);
    child = fork();
    if (child == 0) {
        const int null = open("/dev/null", O_WRONLY);

        dup2(null, 2); /* the linker's complaint */
        execve("/bin/sh", args, other);
        _exit(9);
    }
    printf("another: %d\n", wait_for(child));
    char **large = calloc(3002, sizeof(char *));
    for (int i = 0; i < 3000; i++) {
        large[i] = (char *)(uintptr_t) "A=b";
    }
    SAY(chdir(top));
    fflush(stdout);
    child = fork();
    if (child == 0) {
        execle("/bin/cat", "cat", "env", NULL, large);
        _exit(9);
    }
    printf("\nlarge: %d\n", wait_for(child));
    free(large);
    SAY(chdir("/"));
}

void
part_processes(void)
{
    forks();
    inherited();
    programs();
    interpreter();
    spawns();
    environments();
    char command[600];
    snprintf(command, sizeof(command), "echo system > %s", at("system"));
    SAY(system(command));
    say_file("system");
}
