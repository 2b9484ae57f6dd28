/* SPDX-License-Identifier: MIT */
/*
 * A radix tree as kernel code would have it: pointers by unsigned long index, with two tags for each,
 * lock-free readers under RCU, writers under the caller's lock.  It includes nothing but linux/ headers.
 */
#ifndef RADIX_TREE_H
#define RADIX_TREE_H

#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/types.h>

#define RADIX_SHIFT 6
#define RADIX_SLOTS (1UL << RADIX_SHIFT)
#define RADIX_TAGS  2

struct radix_node;

struct radix_root {
	gfp_t gfp; /* for nodes that an insertion needs */
	void __rcu *entry;
};

#define RADIX_ROOT_INIT(mask)                                                                                \
	{                                                                                                    \
		.gfp = (mask), .entry = NULL                                                                 \
	}

/* Called before any tree is used, and after all are empty. */
int __init radix_tree_init(void);
void radix_tree_exit(void);

/* Under the caller's lock.  0, -EEXIST or -ENOMEM; items are aligned to 2. */
int radix_insert(struct radix_root *root, unsigned long index, void *item);
/* Returns the item, or NULL if there is none. */
void *radix_delete(struct radix_root *root, unsigned long index);
void *radix_replace(struct radix_root *root, unsigned long index, void *item);
void radix_tag_set(struct radix_root *root, unsigned long index, unsigned int tag);
void radix_tag_clear(struct radix_root *root, unsigned long index, unsigned int tag);

/* Under the caller's lock, or rcu_read_lock(). */
void *radix_lookup(struct radix_root *root, unsigned long index);
bool radix_tag_get(struct radix_root *root, unsigned long index, unsigned int tag);
/* Returns up to `max` items from an index on, in order; `tag` < 0: all, else those with the tag. */
unsigned int radix_gang_lookup(struct radix_root *root, void **items, unsigned long first, unsigned int max,
			       int tag);

/* For tests: nodes that are not in the cache, and how often the constructor ran. */
extern long radix_nodes_live, radix_nodes_made;

#endif
