/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: attributes and hints for the compiler. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_COMPILER_H
#define CPUSLAB_LINUX_COMPILER_H

/*
 * The system's own headers may define any name that is a macro here, or will: <linux/stddef.h> has
 * __counted_by since Linux 6.6, and since updates of older ones.  Such headers come first where they belong
 * to a header of this folder, and each of these is a system header to the compiler, which then takes a second
 * definition without a word: the kernel's meaning is what kernel sources need.  Attributes, which are what
 * the system defines for its own structs, stay the system's, and are spelled as the kernel spells them, so
 * that even a later definition is the same.
 */
#include <linux/stddef.h>
#include <linux/types.h>

#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#endif
#ifndef unlikely
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif

#define READ_ONCE(value)                  __atomic_load_n(&(value), __ATOMIC_RELAXED)
#define WRITE_ONCE(value, stored)         __atomic_store_n(&(value), stored, __ATOMIC_RELAXED)
#define smp_mb()                          __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define smp_rmb()                         __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define smp_wmb()                         __atomic_thread_fence(__ATOMIC_RELEASE)
#define smp_load_acquire(address)         __atomic_load_n(address, __ATOMIC_ACQUIRE)
#define smp_store_release(address, value) __atomic_store_n(address, value, __ATOMIC_RELEASE)

/* A function in C++, whose standard library has a type of this name. */
#ifdef __cplusplus
#undef barrier
static inline void barrier(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}
#else
#define barrier() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#endif

/* For the kernel's static checkers. */
#ifndef __rcu
#define __rcu
#endif
#ifndef __user
#define __user
#endif
#ifndef __force
#define __force
#endif
#ifndef __iomem
#define __iomem
#endif
#ifndef __percpu
#define __percpu
#endif
#ifndef __acquires
#define __acquires(x)
#endif
#ifndef __releases
#define __releases(x)
#endif
#ifndef __must_hold
#define __must_hold(x)
#endif
#ifndef __counted_by
#define __counted_by(m)
#endif

#ifndef __always_inline
#define __always_inline inline __attribute__((__always_inline__))
#endif
#ifndef noinline
#define noinline __attribute__((__noinline__))
#endif
#ifndef noinline_for_stack
#define noinline_for_stack noinline
#endif
#ifndef __cold
#define __cold __attribute__((__cold__))
#endif
#if !defined(__weak) && !defined(__cplusplus) /* where <memory> has variables of this name */
#define __weak __attribute__((__weak__))
#endif
#ifndef __packed
#define __packed __attribute__((__packed__))
#endif
#ifndef __aligned
#define __aligned(x) __attribute__((__aligned__(x)))
#endif
#ifndef __must_check
#define __must_check __attribute__((__warn_unused_result__))
#endif
#ifndef __maybe_unused
#define __maybe_unused __attribute__((__unused__))
#endif
#ifndef __always_unused
#define __always_unused __attribute__((__unused__))
#endif
#ifndef __printf
#define __printf(a, b) __attribute__((__format__(printf, a, b)))
#endif
#ifndef fallthrough
#define fallthrough __attribute__((__fallthrough__))
#endif
/* Sections that the kernel keeps together in its image, or frees after boot. */
#ifndef __read_mostly
#define __read_mostly
#endif
#ifndef __ro_after_init
#define __ro_after_init
#endif
#if !defined(__init) && !defined(__cplusplus) /* where <numeric> has variables of this name */
#define __init
#endif
#ifndef __initdata
#define __initdata
#endif
#ifndef __initconst
#define __initconst
#endif
#ifndef __exit
#define __exit
#endif
/* Cache lines, and the unit that CPUs of different nodes do not share, are 64 bytes: linux/cache.h. */
#ifndef ____cacheline_aligned
#define ____cacheline_aligned __attribute__((__aligned__(64)))
#endif
#ifndef ____cacheline_aligned_in_smp
#define ____cacheline_aligned_in_smp ____cacheline_aligned
#endif
#ifndef ____cacheline_internodealigned_in_smp
#define ____cacheline_internodealigned_in_smp ____cacheline_aligned
#endif
#ifndef __cacheline_aligned
#define __cacheline_aligned ____cacheline_aligned
#endif
#ifndef __cacheline_aligned_in_smp
#define __cacheline_aligned_in_smp ____cacheline_aligned
#endif

#endif
