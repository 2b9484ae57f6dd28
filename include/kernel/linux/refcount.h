/* SPDX-License-Identifier: MIT */
/*
 * For kernel sources in user space: reference counts.  As in the kernel, a count that goes wrong warns, once
 * for each kind of fault in a source file, and saturates, so that it cannot reach 0 again: the object is
 * leaked rather than freed in use.
 */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_REFCOUNT_H
#define CPUSLAB_LINUX_REFCOUNT_H

#include <limits.h>
#include <linux/atomic.h>
#include <linux/bug.h>

typedef struct {
	atomic_t refs;
} refcount_t;

#define REFCOUNT_INIT(value)                                                                                 \
	{                                                                                                    \
		ATOMIC_INIT(value)                                                                           \
	}
#define REFCOUNT_SATURATED (INT_MIN / 2)

static inline void refcount_set(refcount_t *count, int value)
{
	atomic_set(&count->refs, value);
}

static inline unsigned int refcount_read(const refcount_t *count)
{
	return (unsigned int)atomic_read(&count->refs);
}

/* Each kind of fault has a function of its own, so that reporting one does not silence another. */
#define CPUSLAB_REFCOUNT_FAULT(kind, text)                                                                   \
	static inline __cold void cpuslab_refcount_##kind(refcount_t *count)                                 \
	{                                                                                                    \
		refcount_set(count, REFCOUNT_SATURATED);                                                     \
		(void)WARN_ONCE(1, "refcount_t: " text "\n");                                                \
	}
CPUSLAB_REFCOUNT_FAULT(saturated, "saturated; the object is leaked")
CPUSLAB_REFCOUNT_FAULT(from_zero, "addition on 0; use after free")
CPUSLAB_REFCOUNT_FAULT(underflow, "underflow; use after free")

static inline void refcount_inc(refcount_t *count)
{
	int was = __atomic_fetch_add(&count->refs.counter, 1, __ATOMIC_RELAXED);

	if (unlikely(!was))
		cpuslab_refcount_from_zero(count);
	else if (unlikely(was < 0 || was == INT_MAX))
		cpuslab_refcount_saturated(count);
}

/* For an object that may be found while it is being freed. */
static inline __must_check bool refcount_inc_not_zero(refcount_t *count)
{
	int was = atomic_read(&count->refs);

	do {
		if (!was)
			return false;
	} while (!__atomic_compare_exchange_n(&count->refs.counter, &was, (int)((unsigned int)was + 1), true,
					      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	if (unlikely(was < 0 || was == INT_MAX))
		cpuslab_refcount_saturated(count);
	return true;
}

/* Returns whether this was the last; then all that the other users did to the object is visible. */
static inline __must_check bool refcount_dec_and_test(refcount_t *count)
{
	int was = __atomic_fetch_sub(&count->refs.counter, 1, __ATOMIC_RELEASE);

	if (was == 1) {
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		return true;
	}
	if (unlikely(was <= 0))
		cpuslab_refcount_underflow(count);
	return false;
}

#endif
