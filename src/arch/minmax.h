/* SPDX-License-Identifier: MIT */
/*
 * minmax: the smaller and the larger of two numbers, each evaluated once, like the kernel's macros of these
 * names.  Neither number is cast, so that the compiler warns of one that the type may not hold.
 */
#ifndef CPUSLAB_MINMAX_H
#define CPUSLAB_MINMAX_H

#define min_t(type, a, b)                                                                                    \
	({                                                                                                   \
		const type min_one = (a), min_other = (b);                                                   \
		min_one < min_other ? min_one : min_other;                                                   \
	})

#define max_t(type, a, b)                                                                                    \
	({                                                                                                   \
		const type max_one = (a), max_other = (b);                                                   \
		max_one > max_other ? max_one : max_other;                                                   \
	})

#endif
