/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: BUG stops the program, WARN says one line. */
#ifndef CPUSLAB_LINUX_BUG_H
#define CPUSLAB_LINUX_BUG_H

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

#define WARN_ON(condition)                                                                                   \
	({                                                                                                   \
		int warned_ = !!(condition);                                                                 \
		if (unlikely(warned_))                                                                       \
			fprintf(stderr, "WARNING at %s:%d\n", __FILE__, __LINE__);                           \
		warned_;                                                                                     \
	})
#define WARN_ON_ONCE(condition)                                                                              \
	({                                                                                                   \
		static int said_;                                                                            \
		int warned_ = !!(condition);                                                                 \
		if (unlikely(warned_) && !__atomic_exchange_n(&said_, 1, __ATOMIC_RELAXED))                  \
			fprintf(stderr, "WARNING at %s:%d\n", __FILE__, __LINE__);                           \
		warned_;                                                                                     \
	})

#ifdef __cplusplus
#define BUILD_BUG_ON(condition) static_assert(!(condition), #condition)
#else
#define BUILD_BUG_ON(condition) _Static_assert(!(condition), #condition)
#endif

#endif
