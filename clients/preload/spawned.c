/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hooks of posix_spawn() and posix_spawnp(). See spawned.h.
 *
 * Each of libc's two, and of their two predecessors for old programs, is a call of one function
 * with a constant that tells them apart. That function is found in their code.
 */
#include "clients/preload/spawned.h"

#include "clients/preload/hooks.h"

#include <dlfcn.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>

#define VERSION_NOW "GLIBC_2.15"
#define VERSION_OLD "GLIBC_2.2.5"
#define USE_PATH    1 /* libc's constants */
#define TRY_SHELL   2

typedef int (*spawn_fn)(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attributes, char *const argv[], char *const envp[],
                        int how);

__thread struct spawn *spawn_child FS_TLS;
static spawn_fn libc_spawn;

/* What the code at @entry calls with the constant @how; NULL if it is anything else. */
static spawn_fn
called_by(const uint8_t *entry, int how)
{
    /* sub $16,%rsp; push $how; call ...; add $24,%rsp; ret */
    static const uint8_t code[] = {0x48, 0x83, 0xec, 0x10, 0x6a, 0,    0xe8, 0,
                                   0,    0,    0,    0x48, 0x83, 0xc4, 0x18, 0xc3};
    int32_t distance = 0;

    if (entry == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof(code); i++) {
        const bool is_distance = i >= 7 && i < 11;

        if (!is_distance && entry[i] != (i == 5 ? how : code[i])) {
            return NULL;
        }
    }
    memcpy(&distance, entry + 7, sizeof(distance));
    return (spawn_fn)(uintptr_t)(entry + 11 + distance);
}

bool
spawn_init(void)
{
    static const struct {
        const char *name, *version;
        int how;
    } all[] = {{"posix_spawn", VERSION_NOW, 0},
               {"posix_spawnp", VERSION_NOW, USE_PATH},
               {"posix_spawn", VERSION_OLD, TRY_SHELL},
               {"posix_spawnp", VERSION_OLD, USE_PATH | TRY_SHELL}};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const spawn_fn found =
            called_by(dlvsym(RTLD_NEXT, all[i].name, all[i].version), all[i].how);

        if (found == NULL || (libc_spawn != NULL && found != libc_spawn)) {
            return false;
        }
        libc_spawn = found;
    }
    return true;
}

struct spawn *
spawn_if_child(void)
{
    return (pid_t)RAW(getpid, 0) != spawn_child->parent ? spawn_child : NULL;
}

static int
spawn_noted(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
            const posix_spawnattr_t *attributes, char *const argv[], char *const envp[], int how)
{
    const uint32_t room = files_spawn_room();
    const size_t bytes = sizeof(struct spawn) + room * sizeof(struct spawn_fd);
    struct spawn *spawn = (struct spawn *)RAW(mmap, NULL, bytes, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (spawn == MAP_FAILED) {
        return ENOMEM;
    }
    spawn->parent = (pid_t)RAW(getpid, 0);
    spawn->fd_room = room;
    files_spawn_begin(spawn);
    spawn_child = spawn;
    const int error = libc_spawn(pid, path, actions, attributes, argv, envp, how);
    spawn_child = NULL;
    files_spawn_end(spawn, error != 0);
    if (spawn->exec_memory != NULL) {
        (void)RAW(munmap, spawn->exec_memory, spawn->exec_bytes);
    }
    (void)RAW(munmap, spawn, bytes);
    return error;
}

int
hook_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const argv[], char *const envp[])
{
    return spawn_noted(pid, path, actions, attributes, argv, envp, 0);
}

int
hook_posix_spawnp(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                  const posix_spawnattr_t *attributes, char *const argv[], char *const envp[])
{
    return spawn_noted(pid, path, actions, attributes, argv, envp, USE_PATH);
}

int
hook_old_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                     const posix_spawnattr_t *attributes, char *const argv[], char *const envp[])
{
    return spawn_noted(pid, path, actions, attributes, argv, envp, TRY_SHELL);
}

int
hook_old_posix_spawnp(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                      const posix_spawnattr_t *attributes, char *const argv[], char *const envp[])
{
    return spawn_noted(pid, path, actions, attributes, argv, envp, USE_PATH | TRY_SHELL);
}
