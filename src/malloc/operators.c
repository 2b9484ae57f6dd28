/* SPDX-License-Identifier: MIT */
/*
 * C++'s operator new and delete, in C: the library depends on libc alone, and the operators are plain
 * functions with mangled names.  What needs C++ at run time, the new-handler, the throw and (in
 * operators_nothrow.cc) the catch, is in the C++ runtime of a program that uses it, and absent from one that
 * does not.
 *
 * Rules: C++17 [new.delete.single], [new.delete.array], [alloc.errors].
 */
#include "malloc/malloc.h"

#include <malloc.h>
#include <stdlib.h>

#include "malloc/operators.h"

typedef void (*new_handler)(void);
extern new_handler _ZSt15get_new_handlerv(void) __attribute__((weak));      /* std::get_new_handler */
extern _Noreturn void _ZSt17__throw_bad_allocv(void) __attribute__((weak)); /* std::__throw_bad_alloc */

/* A handler may throw: nothing here needs unwinding. */
void *operators_new_again(size_t size, size_t alignment, bool nothrow)
{
	for (;;) {
		new_handler handler = &_ZSt15get_new_handlerv ? _ZSt15get_new_handlerv() : NULL;

		if (!handler) {
			if (nothrow)
				return NULL;
			if (&_ZSt17__throw_bad_allocv)
				_ZSt17__throw_bad_allocv();
			abort();
		}
		handler();
		void *object = alignment ? malloc_aligned(alignment, size) : malloc(size);

		if (object)
			return object;
	}
}

#define NEW(name, allocate, failed, ...)                                                                     \
	EXPORT void *name(__VA_ARGS__);                                                                      \
	EXPORT void *name(__VA_ARGS__)                                                                       \
	{                                                                                                    \
		void *object = allocate;                                                                     \
                                                                                                             \
		return __builtin_expect(!object, 0) ? failed : object;                                       \
	}

#define THROW(alignment)   operators_new_again(size, alignment, false)
#define NOTHROW(alignment) operators_new_nothrow(size, alignment)

/* operator new(size_t), new[](size_t), and their nothrow and aligned forms */
NEW(_Znwm, malloc(size), THROW(0), size_t size)
NEW(_Znam, malloc(size), THROW(0), size_t size)
NEW(_ZnwmRKSt9nothrow_t, malloc(size), NOTHROW(0), size_t size, const void *tag __attribute__((unused)))
NEW(_ZnamRKSt9nothrow_t, malloc(size), NOTHROW(0), size_t size, const void *tag __attribute__((unused)))
NEW(_ZnwmSt11align_val_t, malloc_aligned(alignment, size), THROW(alignment), size_t size, size_t alignment)
NEW(_ZnamSt11align_val_t, malloc_aligned(alignment, size), THROW(alignment), size_t size, size_t alignment)
NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, malloc_aligned(alignment, size), NOTHROW(alignment), size_t size,
    size_t alignment, const void *tag __attribute__((unused)))
NEW(_ZnamSt11align_val_tRKSt9nothrow_t, malloc_aligned(alignment, size), NOTHROW(alignment), size_t size,
    size_t alignment, const void *tag __attribute__((unused)))

#define DELETE(name, ...)       DELETE_BY(free(object), name, ##__VA_ARGS__)
#define DELETE_SIZED(name, ...) DELETE_BY(free_sized(object, size), name, size_t size, ##__VA_ARGS__)
#define DELETE_BY(release, name, ...)                                                                        \
	EXPORT void name(void *object, ##__VA_ARGS__);                                                       \
	EXPORT void name(void *object, ##__VA_ARGS__)                                                        \
	{                                                                                                    \
		release;                                                                                     \
	}

/* operator delete and delete[], plain, sized, aligned, sized and aligned, nothrow, nothrow and aligned */
#define UNUSED __attribute__((unused))
DELETE(_ZdlPv)
DELETE(_ZdaPv)
DELETE_SIZED(_ZdlPvm)
DELETE_SIZED(_ZdaPvm)
DELETE(_ZdlPvSt11align_val_t, size_t alignment UNUSED)
DELETE(_ZdaPvSt11align_val_t, size_t alignment UNUSED)
DELETE_SIZED(_ZdlPvmSt11align_val_t, size_t alignment UNUSED)
DELETE_SIZED(_ZdaPvmSt11align_val_t, size_t alignment UNUSED)
DELETE(_ZdlPvRKSt9nothrow_t, const void *tag UNUSED)
DELETE(_ZdaPvRKSt9nothrow_t, const void *tag UNUSED)
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, size_t alignment UNUSED, const void *tag UNUSED)
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, size_t alignment UNUSED, const void *tag UNUSED)
