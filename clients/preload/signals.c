/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handlers of signals wait until their thread has left the client.
 *
 * A kernel runs no handler in the middle of its own file system, and a handler may write to a log,
 * close a descriptor or jump away. So each handler of the program is entered by way of ours. One
 * that comes while its thread is inside (fs_enter()) is queued to the thread again and blocked in
 * the mask that the kernel restores; fs_signals_deliver() unblocks it, and the kernel delivers it
 * by all its rules: masks, alternative stacks, restarting.
 *
 * Signals that say what the thread itself just did wrong are not put off.
 */
#include "clients/preload/hooks.h"

#include <dlfcn.h>
#include <string.h>
#include <ucontext.h>

#define SIGNALS        64
#define SIGSET_BYTES   8 /* the kernel's */
#define FIRST_INTERNAL 32
#define LAST_INTERNAL  33 /* libc's own */

typedef int (*sigaction_fn)(int number, const struct sigaction *action, struct sigaction *old);

/* What the program asked for. */
struct asked {
    _Atomic(uintptr_t) handler;
    atomic_int flags;
};

static struct asked asked[SIGNALS + 1];
static sigaction_fn libc_sigaction;

__thread volatile unsigned signals_interrupts FS_TLS;

static uint64_t
bit_of(int number)
{
    return UINT64_C(1) << (number - 1);
}

static bool
is_fault(int number)
{
    const uint64_t faults = (UINT64_C(1) << (SIGSEGV - 1)) | (UINT64_C(1) << (SIGBUS - 1)) |
                            (UINT64_C(1) << (SIGFPE - 1)) | (UINT64_C(1) << (SIGILL - 1)) |
                            (UINT64_C(1) << (SIGTRAP - 1)) | (UINT64_C(1) << (SIGSYS - 1)) |
                            (UINT64_C(1) << (SIGABRT - 1));

    return (bit_of(number) & faults) != 0;
}

/* Comes back when the thread leaves. Returns false if it cannot be queued. */
static bool
put_off(int number, siginfo_t *info, ucontext_t *context)
{
    uint64_t mask = 0;

    if (RAW(rt_tgsigqueueinfo, RAW(getpid, 0), RAW(gettid, 0), number, info) != 0) {
        return false;
    }
    /* The kernel's mask is the first bytes of libc's. */
    memcpy(&mask, &context->uc_sigmask, sizeof(mask));
    mask |= bit_of(number);
    memcpy(&context->uc_sigmask, &mask, sizeof(mask));
    fs_deferred |= bit_of(number);
    return true;
}

static void
trampoline(int number, siginfo_t *info, void *context)
{
    const int error = errno;
    const int flags = atomic_load(&asked[number].flags);

    if (fs_depth != 0) {
        /* Blocked here until the mask is restored, so that the one queued now does not nest. */
        if (put_off(number, info, context)) {
            errno = error;
            return;
        }
        errno = error;
    }
    const uintptr_t handler = atomic_load(&asked[number].handler);
    if ((flags & SA_RESTART) == 0) {
        signals_interrupts++;
    }
    if (((unsigned)flags & SA_RESETHAND) != 0) {
        const struct sigaction usual = {.sa_handler = SIG_DFL};

        (void)libc_sigaction(number, &usual, NULL);
    }
    if (((unsigned)flags & SA_NODEFER) != 0) {
        const uint64_t own = bit_of(number);

        (void)RAW(rt_sigprocmask, SIG_UNBLOCK, &own, NULL, SIGSET_BYTES);
    }
    ((void (*)(int, siginfo_t *, void *))handler)(number, info, context);
}

void
fs_signals_deliver(void)
{
    const int error = errno;
    const uint64_t deferred = fs_deferred;

    fs_deferred = 0;
    (void)RAW(rt_sigprocmask, SIG_UNBLOCK, &deferred, NULL, SIGSET_BYTES);
    errno = error;
}

bool
signals_init(void)
{
    libc_sigaction = (sigaction_fn)(uintptr_t)dlsym(RTLD_NEXT, "__libc_sigaction");
    return libc_sigaction != NULL;
}

int
hook_sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
    struct sigaction ours;

    if (number <= 0 || number > SIGNALS || (number >= FIRST_INTERNAL && number <= LAST_INTERNAL)) {
        return (int)hook_result(-EINVAL);
    }
    const uintptr_t handler_before = atomic_load(&asked[number].handler);
    const int flags_before = atomic_load(&asked[number].flags);
    if (action != NULL && action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN &&
        !is_fault(number)) {
        ours = *action;
        atomic_store(&asked[number].handler, (uintptr_t)action->sa_handler);
        atomic_store(&asked[number].flags, action->sa_flags);
        ours.sa_sigaction = trampoline;
        ours.sa_flags = (int)(((unsigned)action->sa_flags | SA_SIGINFO) & ~SA_RESETHAND &
                              ~(unsigned)SA_NODEFER);
        action = &ours;
    }
    const int rc = libc_sigaction(number, action, old);
    if (rc != 0 && action == &ours) {
        atomic_store(&asked[number].handler, handler_before);
        atomic_store(&asked[number].flags, flags_before);
    }
    if (rc == 0 && old != NULL && old->sa_sigaction == trampoline) {
        old->sa_handler = (void (*)(int))handler_before;
        old->sa_flags = flags_before;
    }
    return rc;
}
