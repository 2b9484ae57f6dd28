/* SPDX-License-Identifier: MIT */
/* Kernel code that someone else builds against the installed library: C, and C++ as well. */
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/mempool.h>
#include <linux/slab.h>
#include <linux/string.h>

struct record {
	int number;
	char *name;
};

static struct kmem_cache *records;

static int __init module_init(void)
{
	records = KMEM_CACHE(record, SLAB_HWCACHE_ALIGN | SLAB_PANIC);
	return records ? 0 : -ENOMEM;
}

static struct record *new_record(const char *name)
{
	struct record *record = (struct record *)kmem_cache_zalloc(records, GFP_KERNEL);

	if (!record)
		return (struct record *)ERR_PTR(-ENOMEM);
	record->name = kstrdup(name, GFP_KERNEL);
	return record;
}

int main(void)
{
	struct record *record;
	mempool_t *pool;

	if (module_init())
		return 1;
	record = new_record(cpuslab_version());
	pool = mempool_create_slab_pool(3, records);
	if (IS_ERR(record) || record->number || !pool)
		return 1;
	printk("cpuslab %s serves malloc\n", record->name);
	mempool_destroy(pool);
	kfree(record->name);
	kmem_cache_free(records, record);
	kmem_cache_destroy(records);
	return 0;
}
