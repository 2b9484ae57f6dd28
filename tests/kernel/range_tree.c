/* SPDX-License-Identifier: MIT */
/*
 * See modules.h.  A B+ tree: before taking the lock, the writer fills a sheaf with as many nodes as the
 * change may need, so that nothing can fail under the lock.
 */
#include "modules.h"

#include <linux/bug.h>
#include <linux/cache.h>
#include <linux/err.h>
#include <linux/export.h>
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#define NODE_SLOTS 10

struct range_node {
	unsigned long starts[NODE_SLOTS]; /* the smallest index below each slot */
	void *slots[NODE_SLOTS];
	u8 used;
	bool leaf;
} __aligned(256);

struct range_tree {
	spinlock_t lock;
	struct range_node *root;
	unsigned int height;
};

static struct kmem_cache *range_node_cache __ro_after_init;

int __init range_tree_init(void)
{
	struct kmem_cache_args args = {
		.align = sizeof(struct range_node),
		.sheaf_capacity = 32,
	};

	BUILD_BUG_ON(!is_power_of_2(sizeof(struct range_node)) && sizeof(struct range_node) % 256);
	range_node_cache = kmem_cache_create("range_node", sizeof(struct range_node), &args, SLAB_PANIC);
	return range_node_cache ? 0 : -ENOMEM;
}

void range_tree_exit(void)
{
	kmem_cache_destroy(range_node_cache);
}

struct range_tree *range_tree_create(gfp_t gfp)
{
	struct range_tree *tree __free(kfree) = kmalloc_obj(*tree, gfp);

	if (!tree)
		return ERR_PTR(-ENOMEM);
	spin_lock_init(&tree->lock);
	tree->height = 1;
	tree->root = kmem_cache_zalloc(range_node_cache, gfp);
	if (!tree->root)
		return ERR_PTR(-ENOMEM);
	tree->root->leaf = true;
	return_ptr(tree);
}
EXPORT_SYMBOL_GPL(range_tree_create);

static void free_subtree(struct range_node *node)
{
	if (!node->leaf) {
		for (unsigned int i = 0; i < node->used; i++)
			free_subtree(node->slots[i]);
	}
	kmem_cache_free(range_node_cache, node);
}

void range_tree_destroy(struct range_tree *tree)
{
	free_subtree(tree->root);
	kfree_sensitive(tree);
}
EXPORT_SYMBOL_GPL(range_tree_destroy);

/* The last slot whose start is not larger; the first if all are larger. */
static unsigned int slot_of(const struct range_node *node, unsigned long index)
{
	unsigned int slot = node->used;

	while (slot > 1 && node->starts[slot - 1] > index)
		slot--;
	return slot ? slot - 1 : 0;
}

static void insert_at(struct range_node *node, unsigned int slot, unsigned long start, void *entry)
{
	unsigned int above = node->used - slot;

	WARN_ON_ONCE(node->used >= NODE_SLOTS);
	memmove(&node->starts[slot + 1], &node->starts[slot], array_size(above, sizeof(node->starts[0])));
	memmove(&node->slots[slot + 1], &node->slots[slot], array_size(above, sizeof(node->slots[0])));
	node->starts[slot] = start;
	node->slots[slot] = entry;
	node->used++;
}

/* Moves the upper half of a full node to a new one. */
static noinline struct range_node *split(struct range_node *node, struct slab_sheaf *sheaf)
{
	struct range_node *upper =
		kmem_cache_alloc_from_sheaf(range_node_cache, GFP_NOWAIT | __GFP_ZERO, sheaf);
	unsigned int half = node->used / 2;

	BUG_ON(!upper);
	upper->leaf = node->leaf;
	upper->used = node->used - half;
	memcpy(upper->starts, &node->starts[half], array_size(upper->used, sizeof(upper->starts[0])));
	memcpy(upper->slots, &node->slots[half], array_size(upper->used, sizeof(upper->slots[0])));
	node->used = half;
	return upper;
}

/*
 * Returns the node that the caller must insert behind `node` in its parent, if that was full and was split.
 */
static struct range_node *store_below(struct range_node *node, unsigned long index, void *entry,
				      struct slab_sheaf *sheaf)
{
	unsigned int slot = slot_of(node, index);
	struct range_node *upper = NULL, *into = node;

	if (node->leaf && node->used && node->starts[slot] == index) {
		node->slots[slot] = entry;
		return NULL;
	}
	if (!node->leaf) {
		struct range_node *below = store_below(node->slots[slot], index, entry, sheaf);

		node->starts[slot] = min(node->starts[slot], index);
		if (!below)
			return NULL;
		index = below->starts[0];
		entry = below;
	}
	if (node->used == NODE_SLOTS) {
		upper = split(node, sheaf);
		if (index >= upper->starts[0])
			into = upper;
	}
	slot = slot_of(into, index);
	if (into->used && into->starts[slot] <= index)
		slot++;
	insert_at(into, slot, index, entry);
	return upper;
}

static void grow(struct range_tree *tree, struct range_node *upper, struct slab_sheaf *sheaf)
{
	struct range_node *root =
		kmem_cache_alloc_from_sheaf(range_node_cache, GFP_NOWAIT | __GFP_ZERO, sheaf);

	BUG_ON(!root);
	insert_at(root, 0, tree->root->starts[0], tree->root);
	insert_at(root, 1, upper->starts[0], upper);
	tree->root = root;
	tree->height++;
}

int range_tree_store(struct range_tree *tree, unsigned long index, void *entry, gfp_t gfp)
{
	unsigned int needed = READ_ONCE(tree->height) + 1;
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(range_node_cache, gfp, needed);
	struct range_node *upper;

	if (!sheaf)
		return -ENOMEM;
	spin_lock(&tree->lock);
	/* The tree may have grown before we got the lock. */
	while (unlikely(tree->height + 1 > needed)) {
		needed = tree->height + 1;
		spin_unlock(&tree->lock);
		if (kmem_cache_refill_sheaf(range_node_cache, gfp, &sheaf, needed)) {
			kmem_cache_return_sheaf(range_node_cache, gfp, sheaf);
			return -ENOMEM;
		}
		spin_lock(&tree->lock);
	}
	upper = store_below(tree->root, index, entry, sheaf);
	if (upper)
		grow(tree, upper, sheaf);
	spin_unlock(&tree->lock);
	kmem_cache_return_sheaf(range_node_cache, gfp, sheaf);
	return 0;
}
EXPORT_SYMBOL_GPL(range_tree_store);

void *range_tree_load(struct range_tree *tree, unsigned long index)
{
	struct range_node *node;
	unsigned int slot;
	void *entry = NULL;

	spin_lock(&tree->lock);
	node = tree->root;
	while (!node->leaf)
		node = node->slots[slot_of(node, index)];
	slot = slot_of(node, index);
	if (node->used && node->starts[slot] == index)
		entry = node->slots[slot];
	spin_unlock(&tree->lock);
	return entry;
}
EXPORT_SYMBOL_GPL(range_tree_load);
