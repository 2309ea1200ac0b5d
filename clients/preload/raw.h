/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel's own calls. libc's entry points lead to our hooks, syscall(2) among them, so what is
 * meant for the kernel is called from here.
 */
#pragma once

#include "clients/preload/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)

/* The value, or a negative errno. Without the kernel's SA_RESTART nothing is restarted. */
static inline long
raw_call(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long rc = 0;

    __asm__ volatile("syscall"
                     : "=a"(rc)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return rc;
}

#else /* nothing is patched, so nothing leads here by way of libc */

/* The same by way of libc. */
static inline long
raw_call(long number, long a, long b, long c, long d, long e, long f)
{
    const long rc = syscall(number, a, b, c, d, e, f);

    return rc == -1 ? -errno : rc;
}

#endif

/* The value, or -1 and errno. */
static inline long
raw_result(long rc)
{
    if (__builtin_expect((unsigned long)rc > -4096UL, 0)) {
        errno = (int)-rc;
        return -1;
    }
    return rc;
}

#define RAW_6(number, a, b, c, d, e, f, ...) \
    raw_result(raw_call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)))
#define RAW(name, ...) RAW_6(SYS_##name, __VA_ARGS__, 0, 0, 0, 0, 0, 0)

/*
 * A call that may block stays a cancellation point, in libc's own way: asynchronous cancellation
 * around the system call, and only where there is more than one thread. The client's own calls are
 * none: a thread that ended there would leave the mount locked.
 */
#define RAW_CANCELLABLE(name, ...)                                                \
    __extension__({                                                               \
        long raw_rc_;                                                             \
        if (__libc_single_threaded || fs_depth != 0) {                            \
            raw_rc_ = RAW(name, __VA_ARGS__);                                     \
        } else {                                                                  \
            int raw_type_ = 0;                                                    \
            (void)pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &raw_type_); \
            raw_rc_ = RAW(name, __VA_ARGS__);                                     \
            (void)pthread_setcanceltype(raw_type_, NULL);                         \
        }                                                                         \
        raw_rc_;                                                                  \
    })
