/* SPDX-License-Identifier: MIT */
/*
 * C++'s operator new and delete, in C: the library depends on libc alone, and the operators are plain
 * functions with mangled names.  What needs C++ at run time, the new-handler, the throw and (in
 * operators_nothrow.cc) the catch, comes from the C++ runtime of a program that uses it, and is absent from
 * one that does not.
 *
 * A program may replace some of them, and each of the others then calls the one that the standard names:
 * new[] calls new, nothrow forms call the same without, sized delete calls delete, delete[] calls delete, and
 * new and delete call malloc, aligned_alloc and free.  Here each is called by its public name, which leads to
 * the program's function; as long as nothing is replaced only misses come to that (replaced.h).
 *
 * Rules: C++17 [new.delete.single], [new.delete.array], [alloc.errors].
 */
#include "malloc/malloc.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "arch/arch.h"
#include "malloc/fast.h"
#include "malloc/operators.h"
#include "malloc/own.h"
#include "malloc/replaced.h"

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

/* Of the program's aligned_alloc, which may insist on what C11 says: no size but multiples of the alignment.
 */
static void *alloc_aligned(size_t size, size_t alignment)
{
	size_t rounded = (size + alignment - 1) & -alignment;

	if (!replaced_aligned_alloc())
		return malloc_aligned(alignment, size);
	if (alignment < sizeof(void *))
		return malloc(size);
	return rounded >= size ? aligned_alloc(alignment, rounded) : malloc_failed();
}

/* Alignment 0 is malloc's own. */
static void *alloc(size_t size, size_t alignment)
{
	return alignment ? alloc_aligned(size, alignment) : malloc(size);
}

/* A handler may throw through this function: nothing here needs unwinding. */
void *operators_new(size_t size, size_t alignment, bool nothrow)
{
	void *object;

	while (!(object = alloc(size, alignment))) {
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
	}
	return object;
}

#define OPERATOR(result, name, ...)                                                                          \
	REPLACEABLE result name(__VA_ARGS__);                                                                \
	REPLACEABLE result name(__VA_ARGS__)
#define UNUSED __attribute__((unused))

/*
 * operator new and new[]: plain; nothrow; aligned; aligned nothrow.
 *
 * They inline malloc's hit path: a call and a test of its result make a pair of new and delete a sixth
 * slower.
 */
static __attribute__((noinline)) void *new_missed(size_t size)
{
	return operators_new(size, 0, false);
}

static __attribute__((noinline)) void *new_aligned_missed(size_t size, size_t alignment)
{
	return operators_new(size, alignment, false);
}

ARCH_FAST_PATH OPERATOR(void *, _Znwm, size_t size)
{
	void *object = forwarding_malloc_fast(size);

	return __builtin_expect(object != NULL, 1) ? object : new_missed(size);
}

ARCH_FAST_PATH OPERATOR(void *, _Znam, size_t size)
{
	void *object = forwarding_malloc_fast(size);

	return __builtin_expect(object != NULL, 1) ? object : _Znwm(size);
}

#ifndef CPUSLAB_NO_CXX
ARCH_FAST_PATH OPERATOR(void *, _ZnwmRKSt9nothrow_t, size_t size, const void *tag UNUSED)
{
	void *object = forwarding_malloc_fast(size);

	return __builtin_expect(object != NULL, 1) ? object : operators_new_nothrow(size, 0, false);
}

OPERATOR(void *, _ZnamRKSt9nothrow_t, size_t size, const void *tag)
{
	return __builtin_expect(forwards_fast(), 1) ? own__ZnwmRKSt9nothrow_t(size, tag)
						    : operators_new_nothrow(size, 0, true);
}
#endif

OPERATOR(void *, _ZnwmSt11align_val_t, size_t size, size_t alignment)
{
	void *object = __builtin_expect(forwards_fast(), 1) ? malloc_aligned(alignment, size) : NULL;

	return __builtin_expect(object != NULL, 1) ? object : new_aligned_missed(size, alignment);
}

OPERATOR(void *, _ZnamSt11align_val_t, size_t size, size_t alignment)
{
	return _ZnwmSt11align_val_t(size, alignment);
}

#ifndef CPUSLAB_NO_CXX
OPERATOR(void *, _ZnwmSt11align_val_tRKSt9nothrow_t, size_t size, size_t alignment, const void *tag UNUSED)
{
	void *object = __builtin_expect(forwards_fast(), 1) ? malloc_aligned(alignment, size) : NULL;

	return __builtin_expect(object != NULL, 1) ? object : operators_new_nothrow(size, alignment, false);
}

OPERATOR(void *, _ZnamSt11align_val_tRKSt9nothrow_t, size_t size, size_t alignment, const void *tag)
{
	return __builtin_expect(forwards_fast(), 1)
		       ? own__ZnwmSt11align_val_tRKSt9nothrow_t(size, alignment, tag)
		       : operators_new_nothrow(size, alignment, true);
}
#endif

/*
 * operator delete and delete[]: plain, nothrow, aligned, aligned nothrow; sized, sized aligned.
 *
 * Each is a jump or two to free, which cost nothing measurable; but the sized one, which compilers call most,
 * has free's hit path inlined.
 */
OPERATOR(void, _ZdlPv, void *object)
{
	free(object);
}

OPERATOR(void, _ZdlPvSt11align_val_t, void *object, size_t alignment UNUSED)
{
	free(object);
}

#define DELETE(name, basic, ...)                                                                             \
	OPERATOR(void, name, void *object, __VA_ARGS__)                                                      \
	{                                                                                                    \
		basic;                                                                                       \
	}
OPERATOR(void, _ZdaPv, void *object)
{
	_ZdlPv(object);
}
DELETE(_ZdlPvRKSt9nothrow_t, _ZdlPv(object), const void *tag UNUSED)
DELETE(_ZdaPvRKSt9nothrow_t, _ZdaPv(object), const void *tag UNUSED)
DELETE(_ZdaPvSt11align_val_t, _ZdlPvSt11align_val_t(object, alignment), size_t alignment)
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, _ZdlPvSt11align_val_t(object, alignment), size_t alignment,
       const void *tag UNUSED)
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, _ZdaPvSt11align_val_t(object, alignment), size_t alignment,
       const void *tag UNUSED)

/*
 * Where nothing is replaced, a debugged or hardened object's size is compared with the caller's.  The slow
 * half is apart, so that the fast one needs no stack.
 */
static __attribute__((noinline)) void delete_sized_missed(void *object, size_t size)
{
	if (replaced_any())
		_ZdlPv(object);
	else
		malloc_free_sized_missed(object, size);
}

ARCH_FAST_PATH OPERATOR(void, _ZdlPvm, void *object, size_t size)
{
	if (!forwarding_free_fast(object))
		delete_sized_missed(object, size);
}

/* The others by the same path, if it is open. */
#define DELETE_SIZED(name, basic, ...)                                                                       \
	OPERATOR(void, name, void *object, __VA_ARGS__)                                                      \
	{                                                                                                    \
		if (__builtin_expect(!forwards_fast(), 0) && replaced_any())                                 \
			basic;                                                                               \
		else                                                                                         \
			own__ZdlPvm(object, size);                                                           \
	}
DELETE_SIZED(_ZdaPvm, _ZdaPv(object), size_t size)
DELETE_SIZED(_ZdlPvmSt11align_val_t, _ZdlPvSt11align_val_t(object, alignment), size_t size, size_t alignment)
DELETE_SIZED(_ZdaPvmSt11align_val_t, _ZdaPvSt11align_val_t(object, alignment), size_t size, size_t alignment)

#define OWN_OPERATOR(name, result, arguments) OWN(name)
OPERATORS_BASIC(OWN_OPERATOR);
OPERATORS_SERVING(OWN_OPERATOR);
