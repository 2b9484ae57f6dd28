/* SPDX-License-Identifier: MIT */
/*
 * For kernel sources in user space: minima and maxima.  The lower-case names without a type are for C only:
 * in C++ they would clash with the standard library's.
 */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_MINMAX_H
#define CPUSLAB_LINUX_MINMAX_H

/* clang-format off */
/*
 * Picks one of two by a comparison, each evaluated once; the number makes names unique when one is nested in
 * another.
 */
#define CPUSLAB_PICK(type_of_a, a, comparison, type_of_b, b, number)                                         \
	({                                                                                                   \
		type_of_a CPUSLAB_PASTE(cpuslab_pick_a_, number) = (type_of_a)(a);                                   \
		type_of_b CPUSLAB_PASTE(cpuslab_pick_b_, number) = (type_of_b)(b);                                   \
		CPUSLAB_PASTE(cpuslab_pick_a_, number)                                                               \
			comparison CPUSLAB_PASTE(cpuslab_pick_b_, number) ? CPUSLAB_PASTE(cpuslab_pick_a_, number)           \
								  : CPUSLAB_PASTE(cpuslab_pick_b_, number);          \
	})
/* clang-format on */
#define CPUSLAB_PASTE(a, b)  CPUSLAB_PASTE_(a, b)
#define CPUSLAB_PASTE_(a, b) a##b
#define CPUSLAB_PICK_NUMBERED(type_of_a, a, comparison, type_of_b, b, number)                                \
	CPUSLAB_PICK(type_of_a, a, comparison, type_of_b, b, number)

#define min_t(type, a, b)           CPUSLAB_PICK_NUMBERED(type, a, <, type, b, __COUNTER__)
#define max_t(type, a, b)           CPUSLAB_PICK_NUMBERED(type, a, >, type, b, __COUNTER__)
#define clamp_t(type, x, low, high) min_t(type, max_t(type, x, low), high)
#define clamp_val(x, low, high)     clamp_t(__typeof__(x), x, low, high)

/* For constants, with C's own conversions; <sys/param.h> defines them, too. */
#ifndef MIN
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#endif
#ifndef MAX
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#endif

#ifndef __cplusplus
/*
 * Each operand keeps its type, and the comparison converts them, as in the kernel since 6.7.  The kernel
 * refuses to mix signed and unsigned numbers; here that compiles, and compares them as unsigned.
 */
#define min(a, b)           CPUSLAB_PICK_NUMBERED(__typeof__(a), a, <, __typeof__(b), b, __COUNTER__)
#define max(a, b)           CPUSLAB_PICK_NUMBERED(__typeof__(a), a, >, __typeof__(b), b, __COUNTER__)
#define min3(a, b, c)       min(min(a, b), c)
#define max3(a, b, c)       max(max(a, b), c)
#define clamp(x, low, high) min(max(x, low), high)
/* Returns the smaller one that is not 0; 0 if both are. */
#define min_not_zero(a, b)                                                                                   \
	({                                                                                                   \
		__typeof__(a) cpuslab_some_a = (a);                                                          \
		__typeof__(b) cpuslab_some_b = (b);                                                          \
		!cpuslab_some_a || (cpuslab_some_b && cpuslab_some_b < cpuslab_some_a) ? cpuslab_some_b      \
										       : cpuslab_some_a;     \
	})
#define swap(a, b)                                                                                           \
	do {                                                                                                 \
		__typeof__(a) cpuslab_swapped = (a);                                                         \
		(a) = (b);                                                                                   \
		(b) = cpuslab_swapped;                                                                       \
	} while (0)
#endif

#endif
