/* SPDX-License-Identifier: MIT */
/* operators: what the C and the C++ halves of operator new share. */
#ifndef CPUSLAB_OPERATORS_H
#define CPUSLAB_OPERATORS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
#define NOEXCEPT noexcept
extern "C" {
#else
#define NOEXCEPT
#endif

/*
 * Allocates by malloc, or by aligned_alloc unless `alignment` is 0.  Where that fails: calls the new-handler
 * and retries until there is memory or no handler.  Without a handler it throws bad_alloc, or returns NULL if
 * `nothrow`.  Where no C++ runtime can be found, not even one loaded later, it aborts instead of throwing.
 */
void *operators_new(size_t size, size_t alignment, bool nothrow);

/*
 * The nothrow forms: by the form that throws, if a program has its own; else the same as above.  Returns NULL
 * when that, or the handler, throws.
 */
void *operators_new_nothrow(size_t size, size_t alignment, bool array) NOEXCEPT;

#ifdef __cplusplus
}
#else

#include "arch/arch.h"
#include "cpuslab/cpuslab.h"

/* Those that others are made of: new and new[], aligned and not, and the same of delete. */
#define OPERATORS_BASIC(each)                                                                                \
	each(_Znwm, void *, (size_t));                                                                       \
	each(_Znam, void *, (size_t));                                                                       \
	each(_ZnwmSt11align_val_t, void *, (size_t, size_t));                                                \
	each(_ZnamSt11align_val_t, void *, (size_t, size_t));                                                \
	each(_ZdlPv, void, (void *));                                                                        \
	each(_ZdaPv, void, (void *));                                                                        \
	each(_ZdlPvSt11align_val_t, void, (void *, size_t));                                                 \
	each(_ZdaPvSt11align_val_t, void, (void *, size_t))
#define OPERATORS_DECLARE(name, result, arguments)                                                           \
	CPUSLAB_API result name arguments;                                                                   \
	extern ARCH_INTERNAL result own_##name arguments
OPERATORS_BASIC(OPERATORS_DECLARE);
/*
 * And those by which other forms are served where nothing is replaced.  Without a C++ compiler there is
 * nothing that catches: the nothrow forms are then those of the program's C++ runtime, which call the basic
 * ones.
 */
#ifndef CPUSLAB_NO_CXX
#define OPERATORS_NOTHROW(each)                                                                              \
	each(_ZnwmRKSt9nothrow_t, void *, (size_t, const void *));                                           \
	each(_ZnwmSt11align_val_tRKSt9nothrow_t, void *, (size_t, size_t, const void *));
#else
#define OPERATORS_NOTHROW(each)
#endif
#define OPERATORS_SERVING(each) OPERATORS_NOTHROW(each) each(_ZdlPvm, void, (void *, size_t))
OPERATORS_SERVING(OPERATORS_DECLARE);

#endif
#endif
