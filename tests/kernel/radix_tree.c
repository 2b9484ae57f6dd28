/* SPDX-License-Identifier: MIT */
/*
 * See radix_tree.h.  A node has three states: as constructed, all slots NULL (the state the cache keeps, so
 * that an insertion writes only what it needs); in a tree; and unlinked, but intact until every reader that
 * may have found it has gone.  Then it is restored to the constructed state.
 */
#include "radix_tree.h"

#include <linux/bug.h>
#include <linux/compiler.h>
#include <linux/err.h>
#include <linux/kernel.h>

#define RADIX_MASK     (RADIX_SLOTS - 1)
#define RADIX_LINK     1UL
#define RADIX_NO_OWNER ((struct radix_root *)0x100)

struct radix_node {
	u8 shift;  /* of the index, for this node's slots */
	u8 offset; /* in its parent */
	u16 count;
	struct radix_node *parent;
	/* Checked by readers: the tree of the node, and its part of the index range. */
	struct radix_root *owner;
	unsigned long base;
	struct rcu_head rcu;
	void __rcu *slots[RADIX_SLOTS];
	unsigned long tags[RADIX_TAGS];
};

static struct kmem_cache *node_cache;
long radix_nodes_live, radix_nodes_made;

/* ---- nodes --------------------------------------------------------------------------------------------- */

static void construct_node(void *object)
{
	struct radix_node *node = object;

	memset(node, 0, sizeof(*node));
	node->owner = RADIX_NO_OWNER;
	__atomic_fetch_add(&radix_nodes_made, 1, __ATOMIC_RELAXED);
}

int __init radix_tree_init(void)
{
	node_cache = kmem_cache_create("radix_node", sizeof(struct radix_node), 0,
				       SLAB_PANIC | SLAB_RECLAIM_ACCOUNT, construct_node);
	return node_cache ? 0 : -ENOMEM;
}

void radix_tree_exit(void)
{
	kmem_cache_destroy(node_cache);
}

static bool is_link(const void *entry)
{
	return (unsigned long)entry & RADIX_LINK;
}

static struct radix_node *node_of(void *entry)
{
	return (struct radix_node *)((unsigned long)entry & ~RADIX_LINK);
}

static void *link_to(struct radix_node *node)
{
	return (void *)((unsigned long)node | RADIX_LINK);
}

static unsigned long indexes_below(unsigned int shift)
{
	return shift + RADIX_SHIFT >= (unsigned int)BITS_PER_LONG ? ~0UL : (1UL << (shift + RADIX_SHIFT)) - 1;
}

static struct radix_node *new_node(struct radix_root *root, struct radix_node *parent, unsigned int shift,
				   unsigned long index)
{
	struct radix_node *node = kmem_cache_alloc(node_cache, root->gfp);

	if (!node)
		return NULL;
	/* Nobody but the constructor and free_unseen_node has written here since. */
	BUG_ON(node->owner != RADIX_NO_OWNER || node->count || node->slots[0] || node->slots[RADIX_MASK] ||
	       node->tags[0] || node->tags[1]);
	node->shift = (u8)shift;
	node->offset = (u8)(parent ? index >> parent->shift & RADIX_MASK : 0);
	node->parent = parent;
	node->owner = root;
	node->base = index & ~indexes_below(shift);
	__atomic_fetch_add(&radix_nodes_live, 1, __ATOMIC_RELAXED);
	return node;
}

static void free_unseen_node(struct rcu_head *head)
{
	struct radix_node *node = container_of(head, struct radix_node, rcu);

	/* As constructed: readers have gone, and the next owner relies on it. */
	memset(node->slots, 0, sizeof(node->slots));
	memset(node->tags, 0, sizeof(node->tags));
	node->count = 0;
	node->owner = RADIX_NO_OWNER;
	node->base = 0;
	__atomic_fetch_sub(&radix_nodes_live, 1, __ATOMIC_RELAXED);
	kmem_cache_free(node_cache, node);
}

static void free_when_unseen(struct radix_node *node)
{
	call_rcu(&node->rcu, free_unseen_node);
}

/*
 * A node that a reader finds must belong to this tree and be on the path to the index, whatever writers do.
 */
static void check_node(struct radix_root *root, struct radix_node *node, unsigned long index)
{
	BUG_ON(READ_ONCE(node->owner) != root);
	BUG_ON(READ_ONCE(node->base) != (index & ~indexes_below(node->shift)));
}

/* ---- tags ---------------------------------------------------------------------------------------------- */

static bool tag_is_set(struct radix_node *node, unsigned int tag, unsigned long offset)
{
	return READ_ONCE(node->tags[tag]) >> offset & 1;
}

static void set_tag(struct radix_node *node, unsigned int tag, unsigned long offset)
{
	WRITE_ONCE(node->tags[tag], node->tags[tag] | 1UL << offset);
}

static void clear_tag_upwards(struct radix_node *node, unsigned int tag, unsigned long offset)
{
	for (;;) {
		WRITE_ONCE(node->tags[tag], node->tags[tag] & ~(1UL << offset));
		if (node->tags[tag] || !node->parent)
			return;
		offset = node->offset;
		node = node->parent;
	}
}

/* ---- descent ------------------------------------------------------------------------------------------ */

/*
 * The lowest node on the path to an index, and in *offset the slot there; NULL when the tree has no such
 * node.
 */
static struct radix_node *find_lowest(struct radix_root *root, unsigned long index, unsigned long *offset)
{
	void *entry = rcu_dereference(root->entry);
	struct radix_node *node = NULL;

	if (!is_link(entry) || index & ~indexes_below(node_of(entry)->shift))
		return NULL;
	while (is_link(entry)) {
		node = node_of(entry);
		check_node(root, node, index);
		*offset = index >> node->shift & RADIX_MASK;
		if (!node->shift)
			return node;
		entry = rcu_dereference(node->slots[*offset]);
	}
	return NULL;
}

void *radix_lookup(struct radix_root *root, unsigned long index)
{
	unsigned long offset;
	struct radix_node *node = find_lowest(root, index, &offset);

	return node ? rcu_dereference(node->slots[offset]) : NULL;
}

/* ---- insertion ----------------------------------------------------------------------------------------- */

/* Adds nodes on top until the tree covers the index. */
static int reach(struct radix_root *root, unsigned long index)
{
	struct radix_node *top = node_of(root->entry), *node;
	unsigned int tag;

	if (!top) {
		unsigned int shift = 0;

		while (index & ~indexes_below(shift))
			shift += RADIX_SHIFT;
		node = new_node(root, NULL, shift, 0);
		if (!node)
			return -ENOMEM;
		rcu_assign_pointer(root->entry, link_to(node));
		return 0;
	}
	while (index & ~indexes_below(top->shift)) {
		node = new_node(root, NULL, top->shift + RADIX_SHIFT, 0);
		if (!node)
			return -ENOMEM;
		node->count = 1;
		RCU_INIT_POINTER(node->slots[0], link_to(top));
		for (tag = 0; tag < RADIX_TAGS; tag++)
			if (top->tags[tag])
				set_tag(node, tag, 0);
		top->parent = node;
		top->offset = 0;
		rcu_assign_pointer(root->entry, link_to(node));
		top = node;
	}
	return 0;
}

static void unlink_empty(struct radix_root *root, struct radix_node *node);

int radix_insert(struct radix_root *root, unsigned long index, void *item)
{
	struct radix_node *node, *child;
	unsigned long offset;
	int error = reach(root, index);

	BUG_ON(!item || is_link(item));
	node = node_of(root->entry);
	if (error) {
		if (node)
			unlink_empty(root, node);
		return error;
	}
	for (;;) {
		offset = index >> node->shift & RADIX_MASK;
		if (!node->shift)
			break;
		if (!node->slots[offset]) {
			child = new_node(root, node, node->shift - RADIX_SHIFT, index);
			if (!child) {
				unlink_empty(root, node);
				return -ENOMEM;
			}
			node->count++;
			rcu_assign_pointer(node->slots[offset], link_to(child));
		}
		node = node_of(node->slots[offset]);
	}
	if (node->slots[offset])
		return -EEXIST;
	node->count++;
	rcu_assign_pointer(node->slots[offset], item);
	return 0;
}

/* ---- deletion ------------------------------------------------------------------------------------------ */

/* Removes root nodes whose only child is in slot 0. */
static void lower_top(struct radix_root *root)
{
	struct radix_node *top = node_of(root->entry), *child;

	while (top && top->shift && top->count == 1 && top->slots[0]) {
		child = node_of(top->slots[0]);
		child->parent = NULL;
		rcu_assign_pointer(root->entry, link_to(child));
		/* A reader in `top` still finds the child there. */
		free_when_unseen(top);
		top = child;
	}
}

/* Removes empty nodes from the tree, from `node` upwards. */
static void unlink_empty(struct radix_root *root, struct radix_node *node)
{
	struct radix_node *parent;

	while (!node->count) {
		parent = node->parent;
		if (!parent) {
			RCU_INIT_POINTER(root->entry, NULL);
			free_when_unseen(node);
			return;
		}
		RCU_INIT_POINTER(parent->slots[node->offset], NULL);
		parent->count--;
		free_when_unseen(node);
		node = parent;
	}
	lower_top(root);
}

void *radix_delete(struct radix_root *root, unsigned long index)
{
	unsigned long offset;
	struct radix_node *node = find_lowest(root, index, &offset);
	void *item = node ? node->slots[offset] : NULL;
	unsigned int tag;

	if (!item)
		return NULL;
	for (tag = 0; tag < RADIX_TAGS; tag++)
		clear_tag_upwards(node, tag, offset);
	RCU_INIT_POINTER(node->slots[offset], NULL);
	node->count--;
	unlink_empty(root, node);
	return item;
}

void *radix_replace(struct radix_root *root, unsigned long index, void *item)
{
	unsigned long offset;
	struct radix_node *node = find_lowest(root, index, &offset);
	void *old = node ? node->slots[offset] : NULL;

	if (old)
		rcu_assign_pointer(node->slots[offset], item);
	return old;
}

/* ---- tags of items ------------------------------------------------------------------------------------- */

void radix_tag_set(struct radix_root *root, unsigned long index, unsigned int tag)
{
	unsigned long offset;
	struct radix_node *node = find_lowest(root, index, &offset);

	if (WARN_ON(!node || !node->slots[offset]))
		return;
	while (node) {
		set_tag(node, tag, offset);
		offset = node->offset;
		node = node->parent;
	}
}

void radix_tag_clear(struct radix_root *root, unsigned long index, unsigned int tag)
{
	unsigned long offset;
	struct radix_node *node = find_lowest(root, index, &offset);

	if (node)
		clear_tag_upwards(node, tag, offset);
}

bool radix_tag_get(struct radix_root *root, unsigned long index, unsigned int tag)
{
	unsigned long offset;
	struct radix_node *node = find_lowest(root, index, &offset);

	return node && tag_is_set(node, tag, offset);
}

/* ---- in order ------------------------------------------------------------------------------------------ */

/*
 * Collects the items below a node from *index on.  *index is where to continue; true when the node has no
 * more.
 */
static bool collect_below(struct radix_root *root, struct radix_node *node, unsigned long *index,
			  void **items, unsigned int *found, unsigned int max, int tag)
{
	unsigned long offset = *index >> node->shift & RADIX_MASK;

	check_node(root, node, *index);
	for (; offset < RADIX_SLOTS; offset++) {
		void *entry = rcu_dereference(node->slots[offset]);
		bool wanted = entry && (tag < 0 || tag_is_set(node, (unsigned int)tag, offset));

		/* The first index of this slot, unless the search starts inside it. */
		if ((*index >> node->shift & RADIX_MASK) != offset)
			*index = node->base | offset << node->shift;
		if (wanted && node->shift) {
			if (!collect_below(root, node_of(entry), index, items, found, max, tag))
				return false;
		} else if (wanted) {
			if (*found == max)
				return false;
			items[(*found)++] = entry;
		}
	}
	return true;
}

unsigned int radix_gang_lookup(struct radix_root *root, void **items, unsigned long first, unsigned int max,
			       int tag)
{
	void *entry = rcu_dereference(root->entry);
	unsigned int found = 0;

	if (is_link(entry) && !(first & ~indexes_below(node_of(entry)->shift)))
		collect_below(root, node_of(entry), &first, items, &found, max, tag);
	return found;
}
