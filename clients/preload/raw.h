/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel's own calls. libc's entry points lead to our hooks, so what is meant for the kernel
 * goes there by syscall(2).
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RAW(name, ...) syscall(SYS_##name, __VA_ARGS__)

/*
 * A call that may block stays a cancellation point, in libc's own way: asynchronous cancellation
 * around the system call, and only where there is more than one thread.
 */
#define RAW_CANCELLABLE(name, ...)                                                \
    __extension__({                                                               \
        long raw_rc_;                                                             \
        if (__libc_single_threaded) {                                             \
            raw_rc_ = RAW(name, __VA_ARGS__);                                     \
        } else {                                                                  \
            int raw_type_ = 0;                                                    \
            (void)pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &raw_type_); \
            raw_rc_ = RAW(name, __VA_ARGS__);                                     \
            (void)pthread_setcanceltype(raw_type_, NULL);                         \
        }                                                                         \
        raw_rc_;                                                                  \
    })
