/* SPDX-License-Identifier: MIT */
#include "check/annotate.h"

#include "arch/valgrind.h"

#define WEAK __attribute__((weak, visibility("default")))

WEAK void __asan_poison_memory_region(void const volatile *address, size_t bytes);
WEAK void __asan_unpoison_memory_region(void const volatile *address, size_t bytes);
WEAK void __tsan_acquire(void *address);
WEAK void __tsan_release(void *address);
WEAK void __tsan_ignore_thread_begin(void);
WEAK void __tsan_ignore_thread_end(void);
WEAK void __msan_allocated_memory(const volatile void *address, size_t bytes);
WEAK void __msan_unpoison(const volatile void *address, size_t bytes);

static bool on_valgrind(void)
{
	return arch_valgrind(ARCH_VALGRIND_RUNNING, 0, 0, 0, 0);
}

bool annotate_wanted(void)
{
	return __asan_poison_memory_region || __tsan_acquire || __msan_allocated_memory || on_valgrind();
}

void annotate_begin(void)
{
	if (__tsan_ignore_thread_begin)
		__tsan_ignore_thread_begin();
}

void annotate_end(void)
{
	if (__tsan_ignore_thread_end)
		__tsan_ignore_thread_end();
}

/* ---- order, for ThreadSanitizer -------------------------------------------------------------------- */

/* Memory that moves between caches is ordered through this address, whatever objects it is cut into. */
static char between_caches;

static void leave(void *place)
{
	if (__tsan_release)
		__tsan_release(place);
}

static void enter(void *place)
{
	if (__tsan_acquire)
		__tsan_acquire(place);
}

/* ---- access ---------------------------------------------------------------------------------------- */

static void close_object(const void *object, size_t bytes)
{
	if (__asan_poison_memory_region)
		__asan_poison_memory_region(object, bytes);
}

static void open_object(const void *object, size_t bytes)
{
	if (__asan_unpoison_memory_region)
		__asan_unpoison_memory_region(object, bytes);
}

void annotate_made(void *object, size_t bytes, bool readable)
{
	enter(&between_caches);
	leave(object);
	if (readable)
		return;
	close_object(object, bytes);
	arch_valgrind(ARCH_VALGRIND_NO_ACCESS, (uintptr_t)object, bytes, 0, 0);
}

void annotate_allocated(void *object, size_t bytes, bool kept)
{
	enter(object);
	open_object(object, bytes);
	arch_valgrind(ARCH_VALGRIND_BLOCK_ALLOCATED, (uintptr_t)object, bytes, 0, kept);
	if (__msan_allocated_memory && !kept)
		__msan_allocated_memory(object, bytes);
}

void annotate_cleared(void *object, size_t bytes)
{
	if (__msan_unpoison)
		__msan_unpoison(object, bytes);
}

void annotate_freed(void *object, size_t bytes, bool readable)
{
	leave(object);
	arch_valgrind(ARCH_VALGRIND_BLOCK_FREED, (uintptr_t)object, 0, 0, 0);
	if (readable)
		arch_valgrind(ARCH_VALGRIND_DEFINED, (uintptr_t)object, bytes, 0, 0);
	else
		close_object(object, bytes);
}

void annotate_gone(void *object, size_t bytes)
{
	enter(object);
	leave(&between_caches);
	open_object(object, bytes);
	arch_valgrind(ARCH_VALGRIND_DEFINED, (uintptr_t)object, bytes, 0, 0);
	if (__msan_unpoison)
		__msan_unpoison(object, bytes);
}
