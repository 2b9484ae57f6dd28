/* SPDX-License-Identifier: MIT */
/*
 * For kernel sources in user space: numbers that several threads change.  As in the kernel, an operation that
 * returns a value is fully ordered, unless its name says _relaxed, _acquire or _release; one that returns
 * nothing is unordered.
 */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_ATOMIC_H
#define CPUSLAB_LINUX_ATOMIC_H

#include <linux/compiler.h>
#include <linux/types.h>

/*
 * C's memory order lets plain accesses around a read-modify-write pass each other through it, where it is not
 * a single instruction; on x86-64 it is one locked instruction, which nothing passes.
 */
#ifdef __x86_64__
#define CPUSLAB_FULL_ORDER() barrier()
#else
#define CPUSLAB_FULL_ORDER() smp_mb()
#endif

/* clang-format off */
#define ATOMIC_INIT(value)      {(value)}
#define ATOMIC_LONG_INIT(value) {(value)}
#define ATOMIC64_INIT(value)    {(value)}
/* clang-format on */

#define CPUSLAB_ATOMIC(name, type, number)                                                                   \
	typedef struct {                                                                                     \
		number counter;                                                                              \
	} type;                                                                                              \
                                                                                                             \
	static inline number name##_read(const type *v)                                                      \
	{                                                                                                    \
		return READ_ONCE(v->counter);                                                                \
	}                                                                                                    \
	static inline number name##_read_acquire(const type *v)                                              \
	{                                                                                                    \
		return smp_load_acquire(&v->counter);                                                        \
	}                                                                                                    \
	static inline void name##_set(type *v, number value)                                                 \
	{                                                                                                    \
		WRITE_ONCE(v->counter, value);                                                               \
	}                                                                                                    \
	static inline void name##_set_release(type *v, number value)                                         \
	{                                                                                                    \
		smp_store_release(&v->counter, value);                                                       \
	}                                                                                                    \
	static inline void name##_add(number value, type *v)                                                 \
	{                                                                                                    \
		__atomic_fetch_add(&v->counter, value, __ATOMIC_RELAXED);                                    \
	}                                                                                                    \
	static inline void name##_sub(number value, type *v)                                                 \
	{                                                                                                    \
		__atomic_fetch_sub(&v->counter, value, __ATOMIC_RELAXED);                                    \
	}                                                                                                    \
	static inline void name##_inc(type *v)                                                               \
	{                                                                                                    \
		name##_add(1, v);                                                                            \
	}                                                                                                    \
	static inline void name##_dec(type *v)                                                               \
	{                                                                                                    \
		name##_sub(1, v);                                                                            \
	}                                                                                                    \
	static inline number name##_fetch_add(number value, type *v)                                         \
	{                                                                                                    \
		number result;                                                                               \
                                                                                                             \
		CPUSLAB_FULL_ORDER();                                                                        \
		result = __atomic_fetch_add(&v->counter, value, __ATOMIC_SEQ_CST);                           \
		CPUSLAB_FULL_ORDER();                                                                        \
		return result;                                                                               \
	}                                                                                                    \
	static inline number name##_add_return(number value, type *v)                                        \
	{                                                                                                    \
		number result;                                                                               \
                                                                                                             \
		CPUSLAB_FULL_ORDER();                                                                        \
		result = __atomic_add_fetch(&v->counter, value, __ATOMIC_SEQ_CST);                           \
		CPUSLAB_FULL_ORDER();                                                                        \
		return result;                                                                               \
	}                                                                                                    \
	static inline number name##_sub_return(number value, type *v)                                        \
	{                                                                                                    \
		number result;                                                                               \
                                                                                                             \
		CPUSLAB_FULL_ORDER();                                                                        \
		result = __atomic_sub_fetch(&v->counter, value, __ATOMIC_SEQ_CST);                           \
		CPUSLAB_FULL_ORDER();                                                                        \
		return result;                                                                               \
	}                                                                                                    \
	static inline number name##_inc_return(type *v)                                                      \
	{                                                                                                    \
		return name##_add_return(1, v);                                                              \
	}                                                                                                    \
	static inline number name##_dec_return(type *v)                                                      \
	{                                                                                                    \
		return name##_sub_return(1, v);                                                              \
	}                                                                                                    \
	/* Returns whether it is 0 now. */                                                                   \
	static inline bool name##_dec_and_test(type *v)                                                      \
	{                                                                                                    \
		return name##_dec_return(v) == 0;                                                            \
	}                                                                                                    \
	static inline number name##_xchg(type *v, number value)                                              \
	{                                                                                                    \
		number result;                                                                               \
                                                                                                             \
		CPUSLAB_FULL_ORDER();                                                                        \
		result = __atomic_exchange_n(&v->counter, value, __ATOMIC_SEQ_CST);                          \
		CPUSLAB_FULL_ORDER();                                                                        \
		return result;                                                                               \
	}                                                                                                    \
	/* Returns the old value. */                                                                         \
	static inline number name##_cmpxchg(type *v, number expected, number value)                          \
	{                                                                                                    \
		CPUSLAB_FULL_ORDER();                                                                        \
		__atomic_compare_exchange_n(&v->counter, &expected, value, false, __ATOMIC_SEQ_CST,          \
					    __ATOMIC_SEQ_CST);                                               \
		CPUSLAB_FULL_ORDER();                                                                        \
		return expected;                                                                             \
	}                                                                                                    \
	/* Adds unless the value is `unless`; returns whether it added. */                                   \
	static inline bool name##_add_unless(type *v, number value, number unless)                           \
	{                                                                                                    \
		number was = name##_read(v);                                                                 \
                                                                                                             \
		CPUSLAB_FULL_ORDER();                                                                        \
		while (was != unless && !__atomic_compare_exchange_n(&v->counter, &was, was + value, false,  \
								     __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))    \
			;                                                                                    \
		CPUSLAB_FULL_ORDER();                                                                        \
		return was != unless;                                                                        \
	}                                                                                                    \
	static inline bool name##_inc_not_zero(type *v)                                                      \
	{                                                                                                    \
		return name##_add_unless(v, 1, 0);                                                           \
	}

CPUSLAB_ATOMIC(atomic, atomic_t, int)
CPUSLAB_ATOMIC(atomic_long, atomic_long_t, long)
CPUSLAB_ATOMIC(atomic64, atomic64_t, s64)

#endif
