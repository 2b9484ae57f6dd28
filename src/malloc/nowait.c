/* SPDX-License-Identifier: MIT */
/* malloc for callers that must not wait for another thread. */
#include <errno.h>
#include <stdbool.h>

#include "malloc/large.h"
#include "malloc/malloc.h"
#include "process/process.h"
#include "malloc/size_class.h"
#include "options/options.h"

static void *from_class(unsigned index, size_t size)
{
	struct cache *cache = __atomic_load_n(&size_class_made[index], __ATOMIC_ACQUIRE);

	if (!cache)
		cache = size_class_make(index, false);
	if (!cache)
		return NULL;
	if (magazine_is_hardened(cache))
		return hardened_try_alloc(cache, size);
	void *object = magazine_alloc(&cache->offset);

	if (object)
		return object;
	return magazine_is_checked(cache) ? magazine_alloc_checked(cache, size)
					  : magazine_try_alloc_missed(cache);
}

EXPORT void *cpuslab_aligned_alloc_nowait(size_t alignment, size_t size)
{
	void *object = NULL;

	if (!alignment || alignment & (alignment - 1)) {
		errno = EINVAL;
		return NULL;
	}
	if (!process_enter()) {
		errno = ENOMEM;
		return NULL;
	}
	size_t room = options.hardened ? HARDENED_CANARY : 0;
	unsigned index = size <= SIZE_CLASS_MAX ? size_class_aligned(alignment, size + room) : SIZE_CLASSES;

	if (index < SIZE_CLASSES)
		object = from_class(index, size);
	else if (size <= PTRDIFF_MAX && alignment <= PTRDIFF_MAX)
		object = large_try_alloc(size, alignment);
	if (!object)
		errno = ENOMEM;
	return object;
}
