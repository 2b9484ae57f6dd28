/* SPDX-License-Identifier: MIT */
/* C++ includes the kernel's spelling, and has both forms of kmem_cache_create. */
#include "check.h"

#include <linux/bug.h>
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/mempool.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

struct thing {
	int a;
	long b;
};

static void make(void *object)
{
	static_cast<thing *>(object)->a = 7;
}

int main()
{
	kmem_cache *five = kmem_cache_create("five", sizeof(thing), 0, 0, make);
	kmem_cache_args args{};
	args.align = 64;
	kmem_cache *four = kmem_cache_create("four", sizeof(thing), &args, SLAB_HWCACHE_ALIGN);
	kmem_cache *none = kmem_cache_create("none", 8, nullptr, 0);
	kmem_cache *macro = KMEM_CACHE(thing, SLAB_ACCOUNT);
	kmem_cache *user = KMEM_CACHE_USERCOPY(thing, 0, b);

	CHECK(five && four && none && macro && user);
	auto *object = static_cast<thing *>(kmem_cache_alloc(five, GFP_KERNEL));
	CHECK(object && object->a == 7);
	kmem_cache_free(five, object);
	void *aligned = kmem_cache_zalloc(four, GFP_ATOMIC);
	CHECK(aligned && reinterpret_cast<uintptr_t>(aligned) % 64 == 0);
	kfree(aligned);
	kmem_cache *caches[] = {five, four, none, macro, user};
	for (kmem_cache *cache : caches)
		kmem_cache_destroy(cache);

	mempool_t *pool = mempool_create_kmalloc_pool(2, 50);
	CHECK(pool && !IS_ERR_OR_NULL(pool));
	void *element = mempool_alloc(pool, GFP_KERNEL);
	mempool_free(element, pool);
	mempool_destroy(pool);

	DEFINE_SPINLOCK(lock);
	spin_lock(&lock);
	CHECK(!spin_trylock(&lock));
	spin_unlock(&lock);
	CHECK(container_of(&object->b, thing, b) == object);
	CHECK(PTR_ERR(ERR_PTR(-12)) == -12 && IS_ERR(ERR_PTR(-1)));
	WARN_ON(false);
	return 0;
}
