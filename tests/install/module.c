/* SPDX-License-Identifier: MIT */
/* Kernel code built by somebody else against the installed library, as C and as C++. */
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/mempool.h>
#include <linux/slab.h>
#include <linux/string.h>

#ifdef __cplusplus
#define __init /* not the headers' there, since <numeric> has variables of this name */
#endif

struct record {
	int number;
	char *name;
};

struct packed {
	char count;
	int values[] __counted_by(count);
} __packed __aligned(1);

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
	const char *kept = kstrdup_const(name, GFP_KERNEL);

	record->name =
		kept ? kasprintf(GFP_KERNEL, "%s%c%u", kept, '-', (unsigned)sizeof(struct packed)) : NULL;
	kfree_const(kept);
	return record;
}

#ifndef __cplusplus
/* The result has the wider of both types. */
static bool compares(void)
{
	u32 narrow = 100;
	u64 wide = 1ull << 32;

	return min(narrow, wide) == 100 && max(narrow, wide) == wide && min(wide, narrow) == 100 &&
	       max(max(narrow, wide), min(narrow, wide)) == wide && clamp(narrow, 1u, wide) == 100 &&
	       clamp(wide, 1u, narrow) == 100 && clamp(narrow, 101u, wide) == 101;
}
#else
static bool compares(void)
{
	return true;
}
#endif

static bool rounds(void)
{
	return roundup(10, 3) == 12 && roundup(12, 3) == 12 && rounddown(11, 3) == 9 && is_power_of_2(1) &&
	       is_power_of_2(1ul << 40) && !is_power_of_2(0) && !is_power_of_2(6);
}

static bool copies(void)
{
	char text[4] = "xyz";

	if (strscpy(text, "four", sizeof(text)) != -E2BIG || strcmp(text, "fou") != 0 ||
	    strscpy(text, "six", sizeof(text)) != 3 || strcmp(text, "six") != 0 ||
	    strscpy(text, "", 1) != 0 || *text || strscpy(text, "a", 0) != -E2BIG ||
	    strcmp(text + 1, "ix") != 0)
		return false;
	return strscpy(text, "four") == -E2BIG && strcmp(text, "fou") == 0 && strscpy(text, "to") == 2 &&
	       strcmp(text, "to") == 0;
}

static int released;

DEFINE_FREE(
	record, struct record *, if (_T) {
		released++;
		kmem_cache_free(records, _T);
	})

/* Frees at the end of a scope, unless the pointer is kept. */
static struct record *scoped(bool kept)
{
	struct record *record __free(record) = (struct record *)kmem_cache_zalloc(records, GFP_KERNEL);
	char *text __free(kfree) = kstrdup("text", GFP_KERNEL);
	void *large __free(kvfree) = kvmalloc(100000, GFP_KERNEL);
	char *error __free(kfree) = (char *)ERR_CAST(ERR_PTR(-EIO));

	if (!record || !text || !large || PTR_ERR(error) != -EIO || !IS_ERR_VALUE(-EIO) || IS_ERR_VALUE(0))
		return NULL;
	if (kept)
		return_ptr(record);
	return NULL;
}

static bool cleans(void)
{
	if (scoped(false) || released != 1)
		return false;
	struct record *record = scoped(true);

	if (!record || released != 1)
		return false;
	kmem_cache_free(records, record);
	return true;
}

int main(void)
{
	struct record *record;
	mempool_t *pool;

	if (module_init() || !compares() || !rounds() || !copies() || !cleans())
		return 1;
	record = new_record(cpuslab_version());
	pool = mempool_create_slab_pool(3, records);
	if (IS_ERR(record) || record->number || !pool)
		return 1;
	char *end = strrchr(record->name, '-');

	if (!end || strcmp(end, "-1") != 0)
		return 1;
	*end = 0;
	printk("cpuslab %s serves malloc\n", record->name);
	mempool_destroy(pool);
	kfree(record->name);
	kmem_cache_free(records, record);
	kmem_cache_destroy(records);
	return 0;
}
