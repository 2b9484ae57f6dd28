/* SPDX-License-Identifier: MIT */
/*
 * C++'s operator new and delete, in C: the library depends on libc alone, and the operators are plain
 * functions with mangled names.  What needs C++ at run time, the new-handler, the throw and (in
 * operators_nothrow.cc) the catch, comes from the C++ runtime of a program that uses it, and is absent from
 * one that does not.
 *
 * Rules: C++17 [new.delete.single], [new.delete.array], [alloc.errors].
 */
#include "malloc/malloc.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>

#include "arch/arch.h"
#include "malloc/fast.h"
#include "malloc/operators.h"

typedef void (*new_handler)(void);
extern new_handler _ZSt15get_new_handlerv(void) __attribute__((weak));      /* std::get_new_handler */
extern _Noreturn void _ZSt17__throw_bad_allocv(void) __attribute__((weak)); /* std::__throw_bad_alloc */

/*
 * A program may start without a C++ runtime and later open a plugin that brings one: the names above then
 * stay null.  That runtime's own operator new, in the form that was called, tries this malloc again and
 * does the rest.  It is searched for among the libraries already loaded, and stays loaded from then on.
 */
extern __typeof__(dlsym) dlsym __attribute__((weak));

static __attribute__((noinline, cold)) void *find_later(const char *name)
{
	static const char runtimes[][sizeof "libstdc++.so.6"] = {"libstdc++.so.6", "libc++.so.1"};
	/* Not by name: linkers warn of dlopen in static programs. */
	void *(*opener)(const char *, int) =
		&dlsym ? (void *(*)(const char *, int))dlsym(RTLD_DEFAULT, "dlopen") : NULL;
	void *function = NULL;

	for (size_t i = 0; opener && !function && i < sizeof runtimes / sizeof *runtimes; i++) {
		void *runtime = opener(runtimes[i], RTLD_LAZY | RTLD_NOLOAD);

		function = runtime ? dlsym(runtime, name) : NULL;
	}
	return function;
}

static __attribute__((noinline, cold)) void *new_by_later(size_t size, size_t alignment)
{
	void *function = find_later(alignment ? "_ZnwmSt11align_val_t" : "_Znwm");

	if (!function)
		abort();
	return alignment ? ((void *(*)(size_t, size_t))function)(size, alignment)
			 : ((void *(*)(size_t))function)(size);
}

static __attribute__((noinline, cold)) void *new_nothrow_by_later(size_t size, size_t alignment)
{
	static const char tag; /* std::nothrow, which nobody reads */
	void *function = find_later(alignment ? "_ZnwmSt11align_val_tRKSt9nothrow_t" : "_ZnwmRKSt9nothrow_t");

	if (!function)
		return NULL;
	return alignment ? ((void *(*)(size_t, size_t, const void *))function)(size, alignment, &tag)
			 : ((void *(*)(size_t, const void *))function)(size, &tag);
}

/* A handler may throw through this function: nothing here needs unwinding. */
void *operators_new_again(size_t size, size_t alignment, bool nothrow)
{
	for (;;) {
		new_handler handler = &_ZSt15get_new_handlerv ? _ZSt15get_new_handlerv() : NULL;

		if (!handler) {
			if (!&_ZSt17__throw_bad_allocv)
				return nothrow ? new_nothrow_by_later(size, alignment)
					       : new_by_later(size, alignment);
			if (nothrow)
				return NULL;
			_ZSt17__throw_bad_allocv();
		}
		handler();
		void *object = alignment ? malloc_aligned(alignment, size) : malloc(size);

		if (object)
			return object;
	}
}

/*
 * The operators inline malloc's hit path: a call and a test of its result make a pair of new and delete a
 * sixth slower.
 */
static __attribute__((noinline)) void *new_missed(size_t size)
{
	void *object = malloc(size);

	return __builtin_expect(!object, 0) ? operators_new_again(size, 0, false) : object;
}

static __attribute__((noinline)) void *new_nothrow_missed(size_t size)
{
	void *object = malloc(size);

	return __builtin_expect(!object, 0) ? operators_new_nothrow(size, 0) : object;
}

#define OPERATOR(result, name, ...)                                                                          \
	EXPORT result name(__VA_ARGS__);                                                                     \
	EXPORT result name(__VA_ARGS__)
#define SAME_AS(function, name) extern EXPORT __typeof__(function)(name) __attribute__((alias(#function)))
#define UNUSED                  __attribute__((unused))

/* operator new and new[]: plain; nothrow; aligned; aligned nothrow. */
ARCH_FAST_PATH OPERATOR(void *, _Znwm, size_t size)
{
	void *object = malloc_fast(size);

	return __builtin_expect(object != NULL, 1) ? object : new_missed(size);
}
SAME_AS(_Znwm, _Znam);

ARCH_FAST_PATH OPERATOR(void *, _ZnwmRKSt9nothrow_t, size_t size, const void *tag UNUSED)
{
	void *object = malloc_fast(size);

	return __builtin_expect(object != NULL, 1) ? object : new_nothrow_missed(size);
}
SAME_AS(_ZnwmRKSt9nothrow_t, _ZnamRKSt9nothrow_t);

OPERATOR(void *, _ZnwmSt11align_val_t, size_t size, size_t alignment)
{
	void *object = malloc_aligned(alignment, size);

	return __builtin_expect(!object, 0) ? operators_new_again(size, alignment, false) : object;
}
SAME_AS(_ZnwmSt11align_val_t, _ZnamSt11align_val_t);

OPERATOR(void *, _ZnwmSt11align_val_tRKSt9nothrow_t, size_t size, size_t alignment, const void *tag UNUSED)
{
	void *object = malloc_aligned(alignment, size);

	return __builtin_expect(!object, 0) ? operators_new_nothrow(size, alignment) : object;
}
SAME_AS(_ZnwmSt11align_val_tRKSt9nothrow_t, _ZnamSt11align_val_tRKSt9nothrow_t);

/*
 * operator delete and delete[]: plain, aligned, nothrow, aligned nothrow; sized, sized aligned.  Each is a
 * jump, which costs nothing measurable.
 */
OPERATOR(void, _ZdlPv, void *object)
{
	free(object);
}
SAME_AS(_ZdlPv, _ZdaPv);

#define DELETE(name, ...)                                                                                    \
	OPERATOR(void, name, void *object, __VA_ARGS__)                                                      \
	{                                                                                                    \
		free(object);                                                                                \
	}
DELETE(_ZdlPvSt11align_val_t, size_t alignment UNUSED)
DELETE(_ZdlPvRKSt9nothrow_t, const void *tag UNUSED)
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, size_t alignment UNUSED, const void *tag UNUSED)
SAME_AS(_ZdlPvSt11align_val_t, _ZdaPvSt11align_val_t);
SAME_AS(_ZdlPvRKSt9nothrow_t, _ZdaPvRKSt9nothrow_t);
SAME_AS(_ZdlPvSt11align_val_tRKSt9nothrow_t, _ZdaPvSt11align_val_tRKSt9nothrow_t);

OPERATOR(void, _ZdlPvm, void *object, size_t size)
{
	free_sized(object, size);
}
SAME_AS(_ZdlPvm, _ZdaPvm);

OPERATOR(void, _ZdlPvmSt11align_val_t, void *object, size_t size, size_t alignment UNUSED)
{
	free_sized(object, size);
}
SAME_AS(_ZdlPvmSt11align_val_t, _ZdaPvmSt11align_val_t);
