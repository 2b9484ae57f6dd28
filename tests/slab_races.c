/* SPDX-License-Identifier: MIT */
/*
 * slab_races: several threads allocate from one slab cache and free each other's objects, in batches and
 * singly, waiting and not.  Every object has one owner at a time; slabs and counts add up at the end; and
 * most frees that leave a slab in its bin did without the cache's lock.
 */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "page/page.h"
#include "slab/slab.h"
#include "vcpu/vcpu.h"

enum { THREADS = 4, ID = VCPU_BANK_CACHES - 1, SHELF = 512, BATCH = 24 };

static struct slab_cache cache;
/* Where threads leave objects for each other: NULL, or an object that nobody else has. */
static void *shelf[SHELF];
static unsigned long rounds;

static void stamp(void *object)
{
	CHECK(__atomic_exchange_n((uint64_t *)object, (uintptr_t)object, __ATOMIC_RELAXED) == 0,
	      "object %p has two owners", object);
}

static void unstamp(void *object)
{
	CHECK(__atomic_exchange_n((uint64_t *)object, 0, __ATOMIC_RELAXED) == (uintptr_t)object,
	      "object %p is not what was left there", object);
}

static unsigned get(uint64_t *state, void **objects)
{
	unsigned count = 1 + (unsigned)check_below(state, BATCH);

	if (check_below(state, 4))
		return slab_alloc_batch(&cache, objects, count);
	objects[0] = slab_try_alloc(&cache);
	return objects[0] != NULL;
}

static void *run(void *argument)
{
	uint64_t state = (uintptr_t)argument;
	unsigned window = 0;

	for (unsigned long round = 0; round < rounds; round++) {
		void *objects[BATCH], *old[BATCH];
		unsigned count = get(&state, objects), freed = 0;

		/* Only a part of the shelf for a while, so that slabs fill and drain. */
		if (round % 64 == 0)
			window = (unsigned)check_below(&state, SHELF) + 1;
		for (unsigned i = 0; i < count; i++) {
			void **place = &shelf[check_below(&state, window)];

			stamp(objects[i]);
			old[freed] = __atomic_exchange_n(place, objects[i], __ATOMIC_ACQ_REL);
			freed += old[freed] != NULL;
		}
		for (unsigned i = 0; i < freed; i++)
			unstamp(old[i]);
		slab_free_batch(&cache, old, freed);
		if (round % 256 == 0)
			slab_cache_shrink(&cache);
	}
	return NULL;
}

static void clear_shelf(void)
{
	for (unsigned i = 0; i < SHELF; i++)
		if (shelf[i]) {
			CHECK(slab_is_object(&cache, shelf[i]));
			unstamp(shelf[i]);
			slab_free_batch(&cache, &shelf[i], 1);
			shelf[i] = NULL;
		}
}

static void zero(void *object)
{
	memset(object, 0, 8);
}

static void race(uint32_t size, bool type_stable)
{
	pthread_t threads[THREADS];
	struct slab_statistics now;
	unsigned left = 0;

	/* The constructor guarantees an initial stamp of 0. */
	slab_cache_init(&cache, &(struct slab_traits){.name = "test",
						      .size = size,
						      .id = vcpu_offset(ID),
						      .type_stable = type_stable,
						      .construct = zero});
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, run, (void *)(i + 1)) == 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);

	for (unsigned i = 0; i < SHELF; i++)
		left += shelf[i] != NULL;
	slab_statistics(&cache, &now);
	CHECK(now.allocated == left, "%llu objects are allocated, %u are known",
	      (unsigned long long)now.allocated, left);
	CHECK(now.created - now.freed == now.slabs);
	clear_shelf();
	slab_cache_shrink(&cache);
	slab_statistics(&cache, &now);
	CHECK(now.allocated == 0);
	CHECK(type_stable || now.slabs == 0, "%llu slabs of nothing", (unsigned long long)now.slabs);
	CHECK(slab_cache_close(&cache) == 0);
	slab_statistics(&cache, &now);
	CHECK(now.slabs == 0);
}

/* Objects of one large slab that never leaves its bin: counted, not timed. */
static void count_locks(void)
{
	enum { OBJECTS = 40 };
	void *objects[OBJECTS];
	struct slab_statistics before, after;

	slab_cache_init(&cache, &(struct slab_traits){.name = "test", .size = 16, .id = vcpu_offset(ID)});
	CHECK(cache.objects / SLAB_BINS > OBJECTS / 4);
	CHECK(slab_alloc_batch(&cache, objects, OBJECTS) == OBJECTS);
	slab_statistics(&cache, &before);
	for (unsigned i = 0; i < OBJECTS - 1; i++)
		slab_free_batch(&cache, &objects[i], 1);
	slab_statistics(&cache, &after);
	/* At most one for each bin that it passes. */
	CHECK(after.lock_acquires - before.lock_acquires <= SLAB_BINS, "%llu acquires for %u frees",
	      (unsigned long long)(after.lock_acquires - before.lock_acquires), OBJECTS - 1);
	slab_free_batch(&cache, &objects[OBJECTS - 1], 1);
	CHECK(slab_cache_close(&cache) == 0);
}

static struct slab_cache *find(uint16_t id)
{
	return id == cache.traits.id ? &cache : NULL;
}

/* As in a child forked by one thread while another holds the cache's lock, or changes slabs without it. */
static void repair(void)
{
	CHECK(slab_repair_begin(&cache, false));
	slab_repair_pages(find);
	CHECK(!cpuslab_spin_is_locked(&cache.lock) && !cache.unlocked);
}

/* An object of a slab that is made while another thread has the lock. */
static void *make_aside(void)
{
	cpuslab_spin_lock(&cache.lock);
	void *object = slab_try_alloc(&cache);
	CHECK(object && cache.made && !slab_try_alloc(&cache));
	cpuslab_spin_unlock(&cache.lock);
	return object;
}

/* Frees and repairs may meet such a slab before or after the cache has adopted it. */
static void test_made_aside(uint32_t size)
{
	struct slab_statistics now;

	for (unsigned how = 0; how < 4; how++) {
		slab_cache_init(&cache,
				&(struct slab_traits){.name = "test", .size = size, .id = vcpu_offset(ID)});
		void *object = make_aside();

		if (how & 1)
			slab_statistics(&cache, &now); /* adopts it */
		if (how & 2) {
			cpuslab_spin_lock(&cache.lock);
			repair();
		}
		CHECK(cache.allocated == 1 && slab_is_object(&cache, object));
		slab_free_batch(&cache, &object, 1);
		CHECK(!cache.made && cache.allocated == 0);
		slab_cache_shrink(&cache);
		CHECK(cache.slabs == 0 && cache.full_slabs == 0, "%u slabs, %u full", cache.slabs,
		      cache.full_slabs);
		CHECK(slab_cache_close(&cache) == 0);
	}
}

static size_t lock_offset;

static void note_lock(const char *name, uintptr_t value, size_t size)
{
	if (strcmp(name, "slab.lock") == 0 && size == sizeof(struct cpuslab_pagelock))
		lock_offset = value;
}

/* At the fork another thread was freeing into a slab. */
static void test_slab_lock_held(void)
{
	void *objects[3];

	slab_show(note_lock);
	CHECK(lock_offset);
	slab_cache_init(&cache, &(struct slab_traits){.name = "test", .size = 512, .id = vcpu_offset(ID)});
	CHECK(slab_alloc_batch(&cache, objects, 3) == 3);
	char *slab = metadata_block(page_front.slab_of[page_of(objects[0])]);
	struct cpuslab_pagelock *lock = (struct cpuslab_pagelock *)(slab + lock_offset);

	CHECK(!cpuslab_pagelock_is_locked(lock));
	cpuslab_pagelock_lock(lock);
	/* Other allocations do without that slab. */
	void *other = slab_try_alloc(&cache);

	CHECK(other && page_front.slab_of[page_of(other)] != page_front.slab_of[page_of(objects[0])]);
	cache.unlocked = 1;
	repair();
	CHECK(!cpuslab_pagelock_is_locked(lock) && cache.allocated == 4);
	CHECK(cache.slabs == 1 && cache.made);
	slab_free_batch(&cache, objects, 3);
	slab_free_batch(&cache, &other, 1);
	CHECK(slab_cache_close(&cache) == 0 && cache.slabs == 0);
}

static void *free_some(void *argument)
{
	void **objects = argument;
	unsigned count = 0;

	while (objects[count])
		count++;
	slab_free_batch(&cache, objects, count);
	return NULL;
}

/* Starts a thread that frees these objects, up to NULL; returns once it is counted and waits. */
static pthread_t start_waiting(void **objects, uint32_t unlocked)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, free_some, objects) == 0);
	while (__atomic_load_n(&cache.unlocked, __ATOMIC_ACQUIRE) != unlocked)
		sched_yield();
	usleep(20000);
	CHECK(slab_is_object(&cache, objects[0]), "freed by who should have waited");
	return thread;
}

/*
 * At the fork another thread was adopting such a slab, and a third one had just freed its only object: the
 * child has an empty slab.
 */
static void test_emptied_at_fork(void)
{
	pthread_t thread;

	slab_cache_init(&cache, &(struct slab_traits){.name = "test", .size = 512, .id = vcpu_offset(ID)});
	void *objects[] = {make_aside(), NULL};
	struct slab *made = cache.made;

	cpuslab_spin_lock(&cache.lock);
	CHECK(pthread_create(&thread, NULL, free_some, objects) == 0);
	while (slab_is_object(&cache, objects[0]))
		sched_yield();
	cache.made = NULL;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		repair();
		CHECK(cache.slabs == 1 && cache.allocated == 0, "%u slabs", cache.slabs);
		CHECK(slab_cache_close(&cache) == 0 && cache.slabs == 0);
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
	cache.made = made;
	cpuslab_spin_unlock(&cache.lock);
	pthread_join(thread, NULL);
	CHECK(slab_cache_close(&cache) == 0 && cache.slabs == 0);
}

/*
 * A batch takes all slabs at once where nobody else is using the cache, and then takes no slab's lock: it
 * does not even notice that this one is held.  Otherwise it takes the lock; and while a batch has all slabs
 * nobody else touches one.
 */
static void test_alone(void)
{
	enum { ALL = 60, FIRST = 30, SECOND = 20 };
	void *objects[ALL + 1], *rest[ALL - FIRST - SECOND + 1] = {NULL};
	pthread_t thread;

	slab_cache_init(&cache, &(struct slab_traits){.name = "test", .size = 16, .id = vcpu_offset(ID)});
	CHECK(slab_alloc_batch(&cache, objects, ALL) == ALL);
	char *slab = metadata_block(page_front.slab_of[page_of(objects[0])]);
	struct cpuslab_pagelock *lock = (struct cpuslab_pagelock *)(slab + lock_offset);

	cpuslab_pagelock_lock(lock);
	slab_free_batch(&cache, objects, FIRST);
	CHECK(cache.allocated == ALL - FIRST && !cache.unlocked && !cpuslab_spin_is_locked(&cache.lock));

	/* Another thread is counted. */
	memcpy(rest, &objects[FIRST + SECOND], sizeof rest - sizeof *rest);
	objects[FIRST + SECOND] = NULL;
	cache.unlocked = 1;
	thread = start_waiting(&objects[FIRST], 2);
	cpuslab_pagelock_unlock(lock);
	pthread_join(thread, NULL);
	CHECK(cache.allocated == ALL - FIRST - SECOND && cache.unlocked == 1);

	/* Another thread has all slabs. */
	cpuslab_spin_lock(&cache.lock);
	cache.unlocked = 1 | SLAB_ALONE;
	thread = start_waiting(rest, 2 | SLAB_ALONE);
	__atomic_fetch_and(&cache.unlocked, ~SLAB_ALONE, __ATOMIC_RELEASE);
	cpuslab_spin_unlock(&cache.lock);
	pthread_join(thread, NULL);
	CHECK(cache.allocated == 0 && cache.unlocked == 1);
	cache.unlocked = 0;
	CHECK(slab_cache_close(&cache) == 0 && cache.slabs == 0);
}

int main(void)
{
	static const uint32_t sizes[] = {16, 512, 2048, 20480};

	check_watchdog(100);
	rounds = check_rounds(40000, 4000000, 200);
	free(malloc(1));
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (int type_stable = 0; type_stable < 2; type_stable++)
			race(sizes[i], type_stable);
	test_slab_lock_held();
	test_alone();
	test_made_aside(64);
	test_made_aside(12288);
	test_emptied_at_fork();
	count_locks();
	return 0;
}
