/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: attributes and hints for the compiler. */
#ifndef CPUSLAB_LINUX_COMPILER_H
#define CPUSLAB_LINUX_COMPILER_H

#include <linux/types.h>

#ifndef likely
#define likely(condition)   __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)
#endif

#define READ_ONCE(value)                  __atomic_load_n(&(value), __ATOMIC_RELAXED)
#define WRITE_ONCE(value, stored)         __atomic_store_n(&(value), stored, __ATOMIC_RELAXED)
#define barrier()                         __atomic_signal_fence(__ATOMIC_SEQ_CST)
#define smp_mb()                          __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define smp_rmb()                         __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define smp_wmb()                         __atomic_thread_fence(__ATOMIC_RELEASE)
#define smp_load_acquire(address)         __atomic_load_n(address, __ATOMIC_ACQUIRE)
#define smp_store_release(address, value) __atomic_store_n(address, value, __ATOMIC_RELEASE)

/* For the kernel's static checkers. */
#define __rcu
#define __user
#define __force
#define __iomem
#define __percpu
#define __acquires(lock)
#define __releases(lock)
#define __must_hold(lock)
/* The system's own <linux/stddef.h> has it since Linux 6.6, and Debian 12's since an update. */
#ifndef __counted_by
#define __counted_by(member)
#endif

/* The C library defines some of these itself. */
#ifndef __always_inline
#define __always_inline inline __attribute__((__always_inline__))
#endif
#ifndef noinline
#define noinline __attribute__((__noinline__))
#endif
#define noinline_for_stack   noinline
#define __cold               __attribute__((__cold__))
#define __weak               __attribute__((__weak__))
#define __packed             __attribute__((packed))
#define __aligned(to)        __attribute__((aligned(to)))
#define __must_check         __attribute__((warn_unused_result))
#define __maybe_unused       __attribute__((unused))
#define __always_unused      __attribute__((unused))
#define __printf(at, values) __attribute__((format(printf, at, values)))
/* Sections that the kernel keeps together in its image, or frees after boot. */
#define __read_mostly
#define __ro_after_init
#define __init
#define __initdata
#define __initconst
#define __exit
/* Cache lines, and the unit that CPUs of different nodes do not share, are 64 bytes: linux/cache.h. */
#define ____cacheline_aligned                 __attribute__((aligned(64)))
#define ____cacheline_aligned_in_smp          ____cacheline_aligned
#define ____cacheline_internodealigned_in_smp ____cacheline_aligned
#define __cacheline_aligned                   ____cacheline_aligned
#define __cacheline_aligned_in_smp            ____cacheline_aligned
#ifndef fallthrough
#define fallthrough __attribute__((fallthrough))
#endif

#endif
