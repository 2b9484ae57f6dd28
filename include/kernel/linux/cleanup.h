/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: pointers that are freed where their scope ends. */
#ifndef CPUSLAB_LINUX_CLEANUP_H
#define CPUSLAB_LINUX_CLEANUP_H

#include <linux/compiler.h>

#define __cleanup(function) __attribute__((cleanup(function)))

/* `release` is a statement about _T, the variable's value at the end. */
#define DEFINE_FREE(name, type, release)                                                                     \
	static inline __maybe_unused void __free_##name(void *place)                                         \
	{                                                                                                    \
		type _T = *(type *)place;                                                                    \
		release;                                                                                     \
	}
#define __free(name) __cleanup(__free_##name)

/* The variable's value, which is not freed. */
#define no_free_ptr(pointer)                                                                                 \
	({                                                                                                   \
		__typeof__(pointer) *cpuslab_place = &(pointer), cpuslab_kept = *cpuslab_place;              \
		*cpuslab_place = NULL;                                                                       \
		cpuslab_kept;                                                                                \
	})
#define return_ptr(pointer) return no_free_ptr(pointer)

#endif
