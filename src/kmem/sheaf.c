/* SPDX-License-Identifier: MIT */
/*
 * kmem/sheaf: the kernel's way to secure objects of a cache before taking a lock under which it cannot wait
 * for memory (lib/maple_tree.c fills one before it changes a tree).  In the kernel a sheaf is one of those in
 * front of a CPU; here it is an array beside them, filled and emptied by the cache's own magazines.
 */
#include <errno.h>

#include "kmem/kmem.h"
#include "page/sparse.h"

struct slab_sheaf {
	unsigned size, capacity;
	void *objects[];
};

static struct slab_sheaf *new_sheaf(unsigned count, gfp_t flags)
{
	size_t bytes = kmalloc_size_roundup(
		cpuslab_kmem_flex_bytes(sizeof(struct slab_sheaf), count, sizeof(void *)));
	struct slab_sheaf *sheaf = kvmalloc(bytes, flags);

	if (sheaf) {
		sheaf->size = 0;
		sheaf->capacity = (unsigned)((bytes - sizeof *sheaf) / sizeof(void *));
	}
	return sheaf;
}

/* Fills a sheaf up to `count` objects, for which it has room; on failure it keeps what it had. */
static bool fill(struct kmem_cache *cache, gfp_t flags, struct slab_sheaf *sheaf, unsigned count)
{
	if (sheaf->size >= count)
		return true;
	if (!kmem_cache_alloc_bulk(cache, flags, count - sheaf->size, sheaf->objects + sheaf->size))
		return false;
	sheaf->size = count;
	return true;
}

CPUSLAB_API struct slab_sheaf *cpuslab_kmem_sheaf_prefill(struct kmem_cache *cache, gfp_t flags,
							  unsigned count)
{
	/* Objects are zeroed as they are taken out. */
	flags &= ~__GFP_ZERO;
	struct slab_sheaf *sheaf = new_sheaf(count, flags);

	if (sheaf && !fill(cache, flags, sheaf, count)) {
		kvfree(sheaf);
		sheaf = NULL;
	}
	return sheaf;
}

CPUSLAB_API int cpuslab_kmem_sheaf_refill(struct kmem_cache *cache, gfp_t flags, struct slab_sheaf **sheaf,
					  unsigned count)
{
	struct slab_sheaf *old = sheaf ? *sheaf : NULL, *larger;

	if (!old)
		return -EINVAL;
	flags &= ~__GFP_ZERO;
	if (count <= old->capacity)
		return fill(cache, flags, old, count) ? 0 : -ENOMEM;
	/* Everything that can fail comes first. */
	larger = new_sheaf(count, flags);
	if (!larger)
		return -ENOMEM;
	memcpy(larger->objects, old->objects, old->size * sizeof(void *));
	larger->size = old->size;
	if (!fill(cache, flags, larger, count)) {
		kvfree(larger);
		return -ENOMEM;
	}
	kvfree(old);
	*sheaf = larger;
	return 0;
}

CPUSLAB_API void cpuslab_kmem_sheaf_return(struct kmem_cache *cache, struct slab_sheaf *sheaf)
{
	kmem_cache_free_bulk(cache, sheaf->size, sheaf->objects);
	kvfree(sheaf);
}

CPUSLAB_API void *cpuslab_kmem_sheaf_take(struct kmem_cache *cache, gfp_t flags, struct slab_sheaf *sheaf)
{
	void *object = sheaf->size ? sheaf->objects[--sheaf->size] : NULL;

	if (object && flags & __GFP_ZERO)
		sparse_zero(object, 0, kmem_cache_size(cache));
	return object;
}

CPUSLAB_API unsigned cpuslab_kmem_sheaf_size(const struct slab_sheaf *sheaf)
{
	return sheaf->size;
}
