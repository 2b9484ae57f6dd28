/* SPDX-License-Identifier: MIT */
/*
 * kfree_rcu in both forms frees after a grace period and not before, from every kind of memory; a cache with
 * SLAB_TYPESAFE_BY_RCU keeps its objects' type while readers look at objects that may have been freed.
 */
#include "check.h"

#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <poll.h>

struct small {
	long before;
	struct rcu_head rcu;
	long value;
};

struct large {
	char before[3000];
	struct rcu_head rcu;
	char after[300000];
};

/* A thread that reads until it is told to leave. */
static pthread_barrier_t entered, leaving;

static void *read_long(void *argument)
{
	rcu_register_thread();
	rcu_read_lock();
	pthread_barrier_wait(&entered);
	pthread_barrier_wait(&leaving);
	rcu_read_unlock();
	rcu_unregister_thread();
	return argument;
}

static int is_small(struct cpuslab_cache *cache, void *argument)
{
	(void)argument;
	return strcmp(cpuslab_cache_name(cache), "small") == 0;
}

static void test_kfree_rcu(void)
{
	struct kmem_cache *cache = KMEM_CACHE(small, SLAB_NO_MERGE);
	struct small *one = kmem_cache_alloc(cache, GFP_KERNEL), *two = kmem_cache_alloc(cache, GFP_KERNEL);
	struct small *three = kmem_cache_alloc(cache, GFP_KERNEL), *nothing = NULL;
	struct large *large = kmalloc(sizeof *large, GFP_KERNEL), *huge = kvmalloc(80 << 20, GFP_KERNEL);
	struct small *plain = kmalloc(sizeof *plain, GFP_KERNEL);
	pthread_t reader;

	CHECK(one && two && three && large && huge && plain);
	pthread_barrier_init(&entered, NULL, 2);
	pthread_barrier_init(&leaving, NULL, 2);
	reader = check_thread(read_long, NULL);
	pthread_barrier_wait(&entered);

	one->value = two->value = three->value = 42;
	kfree_rcu(one, rcu);
	kfree_rcu(two);
	kfree_rcu_mightsleep(three);
	kvfree_rcu(large, rcu);
	kvfree_rcu(huge, rcu);
	kvfree_rcu_mightsleep(plain);
	kfree_rcu(nothing, rcu);
	kfree_rcu(nothing);

	CHECK(cpuslab_cache_iterate(is_small, NULL) == 1);
	/* The reader is still there, and so are the objects. */
	poll(NULL, 0, 50);
	CHECK(cpuslab_object_of(one) == one && cpuslab_object_of(two) == two &&
	      cpuslab_object_of(three) == three);
	CHECK(cpuslab_object_of(large) == large && cpuslab_object_of(huge) == huge);
	CHECK(one->value == 42 && two->value == 42 && three->value == 42);
	pthread_barrier_wait(&leaving);
	check_join(reader);
	/* It waits for deferred frees; otherwise the cache would remain, with three objects. */
	kmem_cache_destroy(cache);
	CHECK(cpuslab_cache_iterate(is_small, NULL) == 0);
	CHECK(!cpuslab_object_of(huge));
}

/* ---- typesafe ------------------------------------------------------------------------------------------ */

/*
 * The lock-free lookup of the kernel's comment on SLAB_TYPESAFE_BY_RCU: find, take a reference, check again.
 */
struct object {
	int references; /* constructed once; valid in a free object too: 0 */
	unsigned key;   /* of the slot that it is in */
	unsigned magic; /* constructed once */
};

enum { SLOTS = 64, MAGIC = 0x5afe, READERS = 3 };
static struct kmem_cache *objects;
static struct object *slots[SLOTS];
static bool stop;
static unsigned long recycled, found;

static void construct(void *memory)
{
	struct object *object = memory;

	object->references = 0;
	object->magic = MAGIC;
}

static bool get_unless_zero(struct object *object)
{
	int references = __atomic_load_n(&object->references, __ATOMIC_RELAXED);

	do
		if (!references)
			return false;
	while (!__atomic_compare_exchange_n(&object->references, &references, references + 1, true,
					    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
	return true;
}

static void put(struct object *object)
{
	if (__atomic_sub_fetch(&object->references, 1, __ATOMIC_ACQ_REL) == 0)
		kmem_cache_free(objects, object);
}

static void *look_up(void *argument)
{
	uint64_t random = (uint64_t)(uintptr_t)argument;

	rcu_register_thread();
	/*
	 * Half of the slots are filled at the end, so a reader that did not get to run before finds something
	 * then.
	 */
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) || !__atomic_load_n(&found, __ATOMIC_RELAXED)) {
		unsigned key = (unsigned)check_below(&random, SLOTS);
		struct object *object;

		rcu_read_lock();
		object = rcu_dereference(slots[key]);
		/* Free or not, it is an object of the type. */
		CHECK(!object || READ_ONCE(object->magic) == MAGIC, "memory of another type");
		if (object && get_unless_zero(object)) {
			if (READ_ONCE(object->key) == key)
				__atomic_fetch_add(&found, 1, __ATOMIC_RELAXED);
			else
				__atomic_fetch_add(&recycled, 1, __ATOMIC_RELAXED);
			put(object);
		}
		rcu_read_unlock();
	}
	rcu_unregister_thread();
	return NULL;
}

static void test_typesafe(void)
{
	pthread_t readers[READERS];
	uint64_t random = 11;

	objects = kmem_cache_create("typesafe", sizeof(struct object), 0, SLAB_TYPESAFE_BY_RCU, construct);
	CHECK(objects);
	for (uintptr_t i = 0; i < READERS; i++)
		readers[i] = check_thread(look_up, (void *)(i + 1));
	for (unsigned long i = 0; i < check_rounds(300000, 20000000, 2000); i++) {
		unsigned key = (unsigned)check_below(&random, SLOTS);
		struct object *object = slots[key];

		if (object) {
			RCU_INIT_POINTER(slots[key], NULL);
			/* Frees it at once, with readers still looking at it. */
			put(object);
		} else {
			object = kmem_cache_alloc(objects, i % 2 ? GFP_KERNEL : GFP_NOWAIT);
			if (!object)
				continue;
			CHECK(object->magic == MAGIC && object->references == 0);
			WRITE_ONCE(object->key, key);
			__atomic_store_n(&object->references, 1, __ATOMIC_RELEASE);
			rcu_assign_pointer(slots[key], object);
		}
		if (i % 1000 == 0) {
			/* None of its memory may go to the system, or to another cache. */
			kmem_cache_shrink(objects);
			kfree(kmalloc(64, GFP_KERNEL));
		}
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < READERS; i++)
		check_join(readers[i]);
	CHECK(found > 0);
	for (unsigned key = 0; key < SLOTS; key++)
		if (slots[key])
			put(slots[key]);
	kmem_cache_destroy(objects);
}

/*
 * A guard reads until its scope ends; a replaced object is free after the barrier, and its cache then empty.
 */
static void test_guards(void)
{
	struct kmem_cache *cache = KMEM_CACHE(small, SLAB_NO_MERGE);
	static struct small *shown;

	for (long i = 0; i < 100; i++) {
		struct small *made = kmem_cache_alloc(cache, GFP_KERNEL), *was;

		CHECK(made);
		made->value = i;
		was = rcu_replace_pointer(shown, made, true);
		CHECK(!was == !i);
		if (was)
			kfree_rcu(was, rcu);
		guard(rcu)();
		CHECK(rcu_dereference(shown)->value == i);
	}
	scoped_guard(rcu) CHECK(rcu_dereference(shown)->value == 99);
	kfree_rcu(rcu_replace_pointer(shown, NULL, true), rcu);
	kvfree_rcu_barrier_on_cache(cache);
	/* With thread slots they may be in the magazine of the thread that freed them. */
	CHECK(cpuslab_vcpu_mode() == CPUSLAB_VCPU_THREAD_SLOT || kmem_cache_shrink(cache) == 0,
	      "objects are left");
	kmem_cache_destroy(cache);
	CHECK(!cpuslab_cache_iterate(is_small, NULL));
}

int main(void)
{
	check_watchdog(60);
	rcu_register_thread();
	test_kfree_rcu();
	test_guards();
	test_typesafe();
	rcu_unregister_thread();
	return 0;
}
