/* SPDX-License-Identifier: MIT */
/* Drives lib/assoc_array.c of a kernel: objects by number, found, deleted, swept, and freed with the array.
 */
#include <linux/slab.h>
#include <linux/assoc_array.h>

enum { OBJECTS = 5000 };

struct object {
	unsigned long key;
	unsigned uses;
};

static unsigned long live;

/* The word of the key in which bit `level` lies. */
static unsigned long chunk(unsigned long key, int level)
{
	return level < BITS_PER_LONG ? key : 0;
}

static unsigned long get_key_chunk(const void *key, int level)
{
	return chunk(*(const unsigned long *)key, level);
}

static unsigned long get_object_key_chunk(const void *object, int level)
{
	return chunk(((const struct object *)object)->key, level);
}

static bool compare_object(const void *object, const void *key)
{
	return ((const struct object *)object)->key == *(const unsigned long *)key;
}

static int diff_objects(const void *object, const void *key)
{
	unsigned long differ = ((const struct object *)object)->key ^ *(const unsigned long *)key;

	return differ ? (int)__ffs(differ) : -1;
}

static void free_object(void *object)
{
	if (--((struct object *)object)->uses)
		return;
	kfree(object);
	live--;
}

static const struct assoc_array_ops ops = {
	.get_key_chunk = get_key_chunk,
	.get_object_key_chunk = get_object_key_chunk,
	.compare_object = compare_object,
	.diff_objects = diff_objects,
	.free_object = free_object,
};

static unsigned long key_of(unsigned long i)
{
	return i * 0x9e3779b97f4a7c15ul;
}

/* What is kept is in the new tree and, until that is freed, in the old one. */
static bool is_kept(void *object, void *unused)
{
	struct object *of = object;
	bool kept = of->key % 3 != 0;

	(void)unused;
	of->uses += kept;
	return kept;
}

int main(void)
{
	struct assoc_array array;

	assoc_array_init(&array);
	for (unsigned long i = 0; i < OBJECTS; i++) {
		struct object *object = kmalloc(sizeof *object, GFP_KERNEL);

		BUG_ON(!object);
		*object = (struct object){.key = key_of(i), .uses = 1};
		live++;
		struct assoc_array_edit *edit = assoc_array_insert(&array, &ops, &object->key, object);

		BUG_ON(IS_ERR_OR_NULL(edit));
		assoc_array_apply_edit(edit);
	}
	BUG_ON(array.nr_leaves_on_tree != OBJECTS);
	for (unsigned long i = 0; i < OBJECTS; i++) {
		unsigned long key = key_of(i);

		BUG_ON(!compare_object(assoc_array_find(&array, &ops, &key), &key));
		if (i % 2)
			continue;
		struct assoc_array_edit *edit = assoc_array_delete(&array, &ops, &key);

		BUG_ON(IS_ERR_OR_NULL(edit));
		assoc_array_apply_edit(edit);
		BUG_ON(assoc_array_find(&array, &ops, &key));
	}
	BUG_ON(array.nr_leaves_on_tree != OBJECTS / 2);
	BUG_ON(assoc_array_gc(&array, &ops, is_kept, NULL));
	rcu_barrier();
	BUG_ON(!live || live != array.nr_leaves_on_tree);
	assoc_array_destroy(&array, &ops);
	rcu_barrier();
	BUG_ON(live);
	return 0;
}
