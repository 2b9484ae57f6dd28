/* SPDX-License-Identifier: MIT */
#include "kmem/kmem.h"

#include <string.h>

#include "malloc/malloc.h"
#include "malloc/own.h"
#include "process/process.h"
#include "malloc/realloc.h"
#include "os/os.h"
#include "page/sparse.h"

/* Whether this process can ever have so many bytes. */
static bool may_be_had(size_t bytes)
{
	return bytes <= os_memory_most() && bytes <= os_limit_address_space();
}

bool kmem_tries_again(gfp_t flags, size_t bytes)
{
	enum { NAP = 1000000 }; /* nanoseconds */

	if (!(flags & __GFP_NOFAIL) || !gfpflags_allow_blocking(flags) || !may_be_had(bytes))
		return false;
	os_nap(NAP);
	return true;
}

/* ---- memory ------------------------------------------------------------------------------------------- */

/* Obtains an object of zeroes, also beyond the size, so that krealloc can grow into it. */
static void *obtain_zeroed(size_t alignment, size_t size, gfp_t flags)
{
	/* Fresh pages need not be zeroed. */
	bool may_wait = gfpflags_allow_blocking(flags);
	size_t zeroed = !may_wait ? 0 : alignment <= sizeof(void *) ? cpuslab_malloc_size(size) : size;
	char *object = may_wait ? malloc_aligned_zeroed(alignment, zeroed)
				: cpuslab_kmem_obtain(alignment, size, flags & ~(__GFP_ZERO | __GFP_NOFAIL));

	/* The object may be of a larger class. */
	if (object)
		sparse_zero(object, zeroed, own_malloc_usable_size(object));
	return object;
}

CPUSLAB_API void *cpuslab_kmem_obtain(size_t alignment, size_t size, gfp_t flags)
{
	void *object;

	do {
		if (flags & __GFP_ZERO)
			object = obtain_zeroed(alignment, size, flags);
		else if (gfpflags_allow_blocking(flags))
			object = own_aligned_alloc(alignment, size);
		else
			object = cpuslab_aligned_alloc_nowait(alignment, size);
	} while (!object && kmem_tries_again(flags, size));
	return object;
}

/*
 * Kmalloc's promise in the kernel: alignment to the largest power of two that divides the size.  Nearly every
 * size class keeps it by itself, unless a canary makes it larger.  What only kvmalloc gives is aligned to
 * pages.
 */
static size_t alignment_for(size_t size)
{
	size_t divisor = size & -size;

	process_enter();
	if (size > KMALLOC_MAX_SIZE)
		return PAGE_SIZE;
	return divisor > malloc_alignment(size) ? divisor : sizeof(void *);
}

CPUSLAB_API void *cpuslab_kmem_alloc(size_t size, size_t most, gfp_t flags)
{
	if (!size)
		return ZERO_SIZE_PTR;
	return size > most ? NULL : cpuslab_kmem_obtain(alignment_for(size), size, flags);
}

/*
 * What is larger than any kmalloc is aligned to pages, as it remains when its pages move.  NULL where it must
 * be copied.
 */
static void *resize_pages(void *object, size_t size, size_t most, gfp_t flags)
{
	if (size <= KMALLOC_MAX_SIZE || size > most || !gfpflags_allow_blocking(flags))
		return NULL;
	size_t usable = ksize(object);
	char *resized = realloc_in_pages(object, size);

	if (resized && flags & __GFP_ZERO)
		sparse_clear(resized + usable, ksize(resized) - usable);
	return resized;
}

CPUSLAB_API void *cpuslab_kmem_realloc(const void *object, size_t size, size_t most, gfp_t flags)
{
	if (!size) {
		kfree(object);
		return ZERO_SIZE_PTR;
	}
	size_t usable = ksize(object);

	if (size <= usable) {
		/* So that growing again finds zeroes. */
		if (flags & __GFP_ZERO)
			sparse_clear((char *)(uintptr_t)object + size, usable - size);
		return (void *)(uintptr_t)object;
	}
	void *moved = resize_pages((void *)(uintptr_t)object, size, most, flags);

	if (moved)
		return moved;
	moved = cpuslab_kmem_alloc(size, most, flags);
	if (moved && usable) {
		sparse_copy(moved, object, usable);
		kfree(object);
	}
	return moved;
}

/* ---- caches ------------------------------------------------------------------------------------------- */

CPUSLAB_API void *cpuslab_kmem_cache_alloc(struct kmem_cache *cache, gfp_t flags)
{
	struct cpuslab_cache *own = (struct cpuslab_cache *)cache;
	void *object;

	do
		object = gfpflags_allow_blocking(flags) ? cpuslab_cache_alloc(own)
							: cpuslab_cache_alloc_nowait(own);
	while (!object && kmem_tries_again(flags, cpuslab_cache_size(own)));
	if (object && flags & __GFP_ZERO)
		sparse_zero(object, 0, cpuslab_cache_size(own));
	return object;
}

static int alloc_each(struct kmem_cache *cache, gfp_t flags, size_t count, void **objects)
{
	for (size_t i = 0; i < count; i++) {
		objects[i] = cpuslab_kmem_cache_alloc(cache, flags);
		if (!objects[i]) {
			kmem_cache_free_bulk(cache, i, objects);
			return 0;
		}
	}
	return (int)count;
}

CPUSLAB_API int cpuslab_kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t count,
					      void **objects)
{
	struct cpuslab_cache *own = (struct cpuslab_cache *)cache;

	if (!gfpflags_allow_blocking(flags))
		return alloc_each(cache, flags, count, objects);
	while (cpuslab_cache_alloc_bulk(own, count, objects) != count)
		if (!kmem_tries_again(flags, cpuslab_kmem_flex_bytes(0, count, cpuslab_cache_size(own))))
			return 0;
	if (flags & __GFP_ZERO)
		for (size_t i = 0; i < count; i++)
			sparse_zero(objects[i], 0, cpuslab_cache_size(own));
	return (int)count;
}
