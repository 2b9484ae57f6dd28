/* SPDX-License-Identifier: MIT */
/*
 * A data structure as kernel code has it (tests/kernel/radix_tree.c: a constructor cache, call_rcu,
 * GFP_NOWAIT) runs on <linux/slab.h>: first against a plain array, then with readers that must never find a
 * node or an item that has been freed or reused by another tree, while writers insert, replace and delete in
 * two trees that share the cache of nodes.
 */
#include "check.h"

#include "kernel/radix_tree.h"

#include <linux/bug.h>
#include <linux/kernel.h>
#include <linux/spinlock.h>

enum { DEAD = 0xdead };

struct item {
	unsigned long index;
	unsigned long tree;
	unsigned int state;
	struct rcu_head rcu;
};

static struct kmem_cache *items;

static struct item *new_item(unsigned long tree, unsigned long index)
{
	struct item *item = kmem_cache_alloc(items, GFP_KERNEL);

	CHECK(item);
	item->tree = tree;
	item->index = index;
	item->state = 1;
	return item;
}

static void kill_item(struct rcu_head *head)
{
	struct item *item = container_of(head, struct item, rcu);

	/* Seen by anybody who still reads it. */
	WRITE_ONCE(item->state, DEAD);
	WRITE_ONCE(item->index, ~0ul);
	kmem_cache_free(items, item);
}

/* ---- against a plain array ----------------------------------------------------------------------------- */

enum { PLAIN = 3000 };

/* Spread over all heights, several to a node. */
static unsigned long spread(size_t i)
{
	return i % 2 ? i : (unsigned long)i * 0x9e3779b97f4a7c15u >> (i % 60);
}

static int by_index(const void *a, const void *b)
{
	unsigned long x = (*(struct item *const *)a)->index, y = (*(struct item *const *)b)->index;

	return x < y ? -1 : x > y;
}

static void test_plain(void)
{
	static struct item *model[PLAIN], *sorted[PLAIN];
	static void *found[PLAIN];
	static bool tagged[PLAIN];
	struct radix_root root = RADIX_ROOT_INIT(GFP_KERNEL);
	uint64_t random = 3;

	for (int step = 0; step < 60000; step++) {
		size_t i = check_below(&random, PLAIN);
		unsigned long index = spread(i);

		switch (check_below(&random, 5)) {
		case 0:
		case 1:
			if (!model[i] && !radix_lookup(&root, index)) {
				model[i] = new_item(0, index);
				CHECK(radix_insert(&root, index, model[i]) == 0);
			} else {
				CHECK(radix_insert(&root, index, &random) == -EEXIST);
			}
			break;
		case 2:
			if (model[i]) {
				CHECK(radix_delete(&root, index) == model[i]);
				kmem_cache_free(items, model[i]);
				model[i] = NULL;
				tagged[i] = false;
				CHECK(!radix_lookup(&root, index) && !radix_tag_get(&root, index, 1));
			}
			break;
		case 3:
			if (model[i]) {
				struct item *item = new_item(0, index);

				CHECK(radix_replace(&root, index, item) == model[i]);
				kmem_cache_free(items, model[i]);
				model[i] = item;
			}
			break;
		default:
			if (model[i]) {
				tagged[i] = !tagged[i];
				(tagged[i] ? radix_tag_set : radix_tag_clear)(&root, index, 1);
			}
		}
		if (model[i])
			CHECK(radix_lookup(&root, index) == model[i] &&
			      radix_tag_get(&root, index, 1) == tagged[i] && !radix_tag_get(&root, index, 0));
	}
	for (int with_tag = 0; with_tag < 2; with_tag++) {
		unsigned count = 0;

		for (size_t i = 0; i < PLAIN; i++)
			if (model[i] && (!with_tag || tagged[i]))
				sorted[count++] = model[i];
		qsort(sorted, count, sizeof *sorted, by_index);
		CHECK(count > 100);
		CHECK(radix_gang_lookup(&root, found, 0, PLAIN, with_tag ? 1 : -1) == count);
		CHECK(memcmp(found, sorted, count * sizeof *sorted) == 0);
		CHECK(radix_gang_lookup(&root, found, sorted[count / 2]->index, 10, with_tag ? 1 : -1) == 10);
		CHECK(memcmp(found, sorted + count / 2, 10 * sizeof *sorted) == 0);
	}
	for (size_t i = 0; i < PLAIN; i++)
		if (model[i]) {
			CHECK(radix_delete(&root, spread(i)) == model[i]);
			kmem_cache_free(items, model[i]);
		}
	rcu_barrier();
	CHECK(!root.entry && radix_nodes_live == 0, "%ld nodes", radix_nodes_live);
}

/* ---- readers and writers ------------------------------------------------------------------------------- */

enum { TREES = 2, WRITERS = 2, READERS = 3, INDEXES = 4000 };
static struct radix_root trees[TREES] = {RADIX_ROOT_INIT(GFP_NOWAIT), RADIX_ROOT_INIT(GFP_NOWAIT)};
static DEFINE_SPINLOCK(lock_0);
static DEFINE_SPINLOCK(lock_1);
static spinlock_t *const locks[TREES] = {&lock_0, &lock_1};
static bool stop;
static unsigned long hits, refused;

/* Few enough that nodes come and go, at all heights. */
static unsigned long pick(uint64_t *random)
{
	unsigned long i = check_below(random, INDEXES);

	return i % 4 ? i * 3 : i << (6 * (i % 9));
}

static void change(uint64_t *random)
{
	unsigned long which = check_below(random, TREES), index = pick(random);
	struct radix_root *tree = &trees[which];
	struct item *item = check_below(random, 2) ? new_item(which, index) : NULL, *old = NULL;
	int error = 0;

	spin_lock(locks[which]);
	if (item) {
		old = radix_replace(tree, index, item);
		if (!old) {
			error = radix_insert(tree, index, item);
			/*
			 * As kernel code does it: no waiting under the lock, and another attempt if need be.
			 */
			if (error == -ENOMEM) {
				__atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
				kmem_cache_free(items, item);
				item = NULL;
			} else if (*random % 2) {
				radix_tag_set(tree, index, 0);
			}
		}
	} else {
		old = radix_delete(tree, index);
	}
	spin_unlock(locks[which]);
	CHECK(error == 0 || error == -ENOMEM);
	if (old && *random % 4 == 0)
		kfree_rcu(old, rcu);
	else if (old && *random % 64 == 1)
		kfree_rcu(old);
	else if (old)
		call_rcu(&old->rcu, kill_item);
}

static void *write_trees(void *argument)
{
	uint64_t random = (uint64_t)(uintptr_t)argument;

	rcu_register_thread();
	for (unsigned long i = 0; i < check_rounds(400000, 20000000, 500); i++)
		change(&random);
	rcu_unregister_thread();
	return NULL;
}

static void check_item(const struct item *item, unsigned long which, unsigned long index)
{
	CHECK(READ_ONCE(item->state) == 1, "an item of index %lu was freed", index);
	CHECK(item->tree == which && item->index == index, "found %lu of tree %lu, not %lu of %lu",
	      item->index, item->tree, index, which);
}

static void *read_trees(void *argument)
{
	uint64_t random = (uint64_t)(uintptr_t)argument;
	unsigned long own_hits = 0;

	rcu_register_thread();
	/*
	 * The trees are not empty at the end, so a reader that did not get to run before finds something
	 * then.
	 */
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) || !own_hits) {
		unsigned long which = check_below(&random, TREES), index = pick(&random), last = 0;
		struct item *item;
		void *gang[20];

		rcu_read_lock();
		item = radix_lookup(&trees[which], index);
		if (item) {
			check_item(item, which, index);
			/* Long enough for a writer to free it, if it could. */
			if (random % 256 == 0)
				sched_yield();
			check_item(item, which, index);
			own_hits++;
		}
		if (random % 16 == 0) {
			unsigned found =
				radix_gang_lookup(&trees[which], gang, index, 20, random % 32 ? -1 : 0);

			for (unsigned i = 0; i < found; i++) {
				item = gang[i];
				CHECK(item->index >= index && (!i || item->index > last));
				last = item->index;
				check_item(item, which, last);
			}
		}
		rcu_read_unlock();
	}
	rcu_unregister_thread();
	__atomic_fetch_add(&hits, own_hits, __ATOMIC_RELAXED);
	return NULL;
}

static void test_readers(void)
{
	pthread_t writers[WRITERS], readers[READERS];
	long made = radix_nodes_made;

	for (uintptr_t i = 0; i < READERS; i++)
		readers[i] = check_thread(read_trees, (void *)(i + 1));
	for (uintptr_t i = 0; i < WRITERS; i++)
		writers[i] = check_thread(write_trees, (void *)(i + 100));
	for (int i = 0; i < WRITERS; i++)
		check_join(writers[i]);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < READERS; i++)
		check_join(readers[i]);
	CHECK(hits > 0);
	printf("%lu items read, %lu insertions refused, %ld nodes constructed\n", hits, refused,
	       radix_nodes_made - made);

	for (unsigned long which = 0; which < TREES; which++)
		for (;;) {
			void *gang[100];
			unsigned found = radix_gang_lookup(&trees[which], gang, 0, 100, -1);

			for (unsigned i = 0; i < found; i++) {
				struct item *item = gang[i];

				CHECK(radix_delete(&trees[which], item->index) == item);
				kfree_rcu(item, rcu);
			}
			if (!found)
				break;
		}
	rcu_barrier();
	CHECK(radix_nodes_live == 0, "%ld nodes", radix_nodes_live);
}

int main(void)
{
	check_watchdog(110);
	rcu_register_thread();
	items = KMEM_CACHE(item, SLAB_NO_MERGE);
	CHECK(items && radix_tree_init() == 0);
	test_plain();
	test_readers();
	/* Nothing is left: a cache with objects would be reported, and stay. */
	radix_tree_exit();
	rcu_barrier();
	CHECK(cpuslab_cache_destroy((struct cpuslab_cache *)(void *)items) == 0);
	rcu_unregister_thread();
	return 0;
}
