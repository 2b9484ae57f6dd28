/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: BUG stops the program; WARN prints one line and returns its condition. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_BUG_H
#define CPUSLAB_LINUX_BUG_H

#include <linux/build_bug.h>
#include <linux/compiler.h>
#include <stdio.h>
#include <stdlib.h>

#define BUG()                                                                                                \
	do {                                                                                                 \
		fprintf(stderr, "BUG at %s:%d\n", __FILE__, __LINE__);                                       \
		abort();                                                                                     \
	} while (0)
#define BUG_ON(condition)                                                                                    \
	do {                                                                                                 \
		if (unlikely(condition))                                                                     \
			BUG();                                                                               \
	} while (0)

#define CPUSLAB_WARN_PLACE() fprintf(stderr, "WARNING at %s:%d\n", __FILE__, __LINE__)
#define CPUSLAB_WARN(condition, say)                                                                         \
	({                                                                                                   \
		int cpuslab_warned = !!(condition);                                                          \
		if (unlikely(cpuslab_warned))                                                                \
			say;                                                                                 \
		cpuslab_warned;                                                                              \
	})
/* Warns the first time only at each place in the program. */
#define CPUSLAB_WARN_ONCE(condition, say)                                                                    \
	({                                                                                                   \
		static int cpuslab_said;                                                                     \
		CPUSLAB_WARN(condition, if (!__atomic_exchange_n(&cpuslab_said, 1, __ATOMIC_RELAXED)) say);  \
	})

#define WARN_ON(condition)      CPUSLAB_WARN(condition, CPUSLAB_WARN_PLACE())
#define WARN_ON_ONCE(condition) CPUSLAB_WARN_ONCE(condition, CPUSLAB_WARN_PLACE())
/* With a text as for printk(), on a line of its own. */
#define WARN(condition, ...) CPUSLAB_WARN(condition, (CPUSLAB_WARN_PLACE(), fprintf(stderr, __VA_ARGS__)))
#define WARN_ONCE(condition, ...)                                                                            \
	CPUSLAB_WARN_ONCE(condition, (CPUSLAB_WARN_PLACE(), fprintf(stderr, __VA_ARGS__)))

#endif
