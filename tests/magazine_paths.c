/* SPDX-License-Identifier: MIT */
/*
 * magazine_paths: every path through the slow paths, one after the other, each recognised by what it leaves
 * in the word, the spare, the depot and the slabs; after each step every object is in exactly one place.
 *
 * The caches are the test's own, so that nothing else moves their magazines.
 */
#include "check.h"

#include "depot/ebb.h"
#include "magazine/magazine.h"
#include "os/os.h"
#include "page/page.h"

enum { CACHES = 3, MOST = 60000 };

static const uint32_t sizes[CACHES] = {64, 4096, 262144};
static const uint16_t capacities[CACHES] = {251, 27, 3};
static struct cache caches[CACHES];

/* The objects that the test holds, of the cache under test. */
static struct cache *cache;
static struct object {
	struct object *self;
} *out[MOST];
static unsigned out_count;

/* ---- where things are ------------------------------------------------------------------------------ */

static uintptr_t *words(void)
{
	uintptr_t *word = vcpu_word(arch_id(vcpu_self), cache->number);
	CHECK(word);
	return word;
}

static bool is_void(void)
{
	return words()[0] == vcpu_void;
}

static uint64_t loaded_count(void)
{
	return magazine_objects_loaded(cache);
}

static struct magazine *spare(void)
{
	return (struct magazine *)words()[VCPU_ROW];
}

static struct depot_statistics depot(void)
{
	struct depot_statistics now;
	depot_statistics(&cache->depot, &now);
	return now;
}

static uint64_t allocated(void)
{
	struct slab_statistics now;
	slab_statistics(&cache->depot.slabs, &now);
	return now.allocated;
}

/* Every object allocated from a slab is held by the program, in a magazine on some vCPU, or in the depot. */
static void check_sum(void)
{
	uint64_t sum = out_count + loaded_count() + depot().objects;
	CHECK(allocated() == sum, "%llu objects allocated, %u out, %llu loaded, %llu in the depot",
	      (unsigned long long)allocated(), out_count, (unsigned long long)loaded_count(),
	      (unsigned long long)depot().objects);
}

static uint64_t alloc_misses(void)
{
	uint64_t allocs, frees;
	vcpu_misses(cache->number, &allocs, &frees);
	return allocs;
}

static uint64_t free_misses(void)
{
	uint64_t allocs, frees;
	vcpu_misses(cache->number, &allocs, &frees);
	return frees;
}

static bool is_large(void)
{
	return cache->depot.slabs.traits.size >= MAGAZINE_SELDOM_BYTES;
}

/* ---- alloc and free -------------------------------------------------------------------------------- */

static void have(struct object *object)
{
	CHECK(object && slab_is_object(&cache->depot.slabs, object));
	CHECK(object->self != object, "%p was handed out twice", (void *)object);
	object->self = object;
	out[out_count++] = object;
}

static struct object *let_go(void)
{
	struct object *object = out[--out_count];
	CHECK(object->self == object);
	object->self = NULL;
	return object;
}

/* True on a hit. */
static bool take(void)
{
	struct object *object = magazine_alloc(&cache->offset);
	bool hit = object != NULL;
	have(hit ? object : magazine_alloc_missed(cache));
	return hit;
}

static bool give(void)
{
	struct object *object = let_go();
	bool hit = magazine_free(&cache->offset, object);
	if (!hit)
		magazine_free_missed(cache, object);
	return hit;
}

static unsigned take_while_hits(void)
{
	unsigned count = 0;
	struct object *object;
	while ((object = magazine_alloc(&cache->offset))) {
		have(object);
		count++;
	}
	return count;
}

static unsigned give_while_hits(void)
{
	for (unsigned count = 0;; count++) {
		struct object *object = out[out_count - 1];
		if (!magazine_free(&cache->offset, object))
			return count;
		object->self = NULL;
		out_count--;
	}
}

static void give_all(void)
{
	while (out_count)
		give();
	magazine_trim();
	CHECK(is_void() && !spare() && loaded_count() == 0);
	CHECK(depot().filled == 0 && depot().empty == 0 && allocated() == 0);
	check_sum();
}

/* ---- the first calls --------------------------------------------------------------------------------- */

/*
 * Initially no vCPU is sure to have an area: the first slow path creates it.  Large objects are exchanged
 * with the slabs singly, until they turn out to be needed often.
 */
static void test_first(void)
{
	for (unsigned misses = 0; is_large() && misses < MAGAZINE_SELDOM_MISSES; misses += 2) {
		CHECK(!take() && is_void() && allocated() == 1);
		CHECK(!give() && is_void() && !spare() && allocated() == 0 && depot().refills == 0);
	}
	CHECK(!take() && !is_void() && depot().refills == 1);
	CHECK(give() && allocated() == loaded_count() && loaded_count() > 0);
	check_sum();
}

/* ---- the paths ------------------------------------------------------------------------------------- */

/* Leaves the word void, and the loaded magazine in the depot. */
static void unload(void)
{
	unsigned id = arch_id(vcpu_self);
	CHECK(vcpu_close(id));
	void **top = (void **)words()[0], **end = top;
	CHECK(!is_void());
	while (!((uintptr_t)*end & 1))
		end++;
	struct magazine *magazine = (struct magazine *)((uintptr_t)*end & ~(uintptr_t)1);
	magazine->count = (uint16_t)(top - magazine->slot);
	words()[0] = vcpu_void;
	vcpu_reopen(id);
	depot_put(&cache->depot, magazine);
}

static void test_paths(void)
{
	const unsigned capacity = cache->depot.capacity;
	uint64_t misses = alloc_misses();
	give_all();

	/* Everything empty: a new magazine is filled from the slabs, and the caller gets one object of it. */
	uint64_t refills = depot().refills;
	CHECK(!take() && depot().refills == refills + 1 && alloc_misses() == misses + 1);
	CHECK(!is_void() && !spare() && depot().filled == 0 && depot().empty == 0);
	uint64_t batch = loaded_count() + 1;
	CHECK(allocated() == batch);
	check_sum();
	CHECK(take_while_hits() == batch - 1 && loaded_count() == 0 && !is_void());

	/* The magazine is empty: it is filled again. */
	uintptr_t word = words()[0];
	CHECK(!take() && depot().refills == refills + 2 && words()[0] == word + 8 * (batch - 1));
	CHECK(!spare() && depot().empty == 0);
	check_sum();

	/* Enough objects to fill some magazines. */
	while (out_count < 6 * capacity)
		take();
	take_while_hits();
	check_sum();
	/* Resets the count of pages taken before: after many of them idle memory goes back. */
	while (!page_wants_hoards()) {
		bool zeroed;
		void *run = page_alloc(64, 1, PAGE_SLAB, &zeroed);
		CHECK(run);
		page_free(run, 64);
	}

	/* Full: the loaded magazine becomes the spare, and an empty one is loaded. */
	word = words()[0];
	CHECK(give_while_hits() == capacity && loaded_count() == capacity);
	uint64_t frees = free_misses();
	CHECK(!give() && free_misses() == frees + 1);
	CHECK(spare() == (struct magazine *)(word - offsetof(struct magazine, slot)));
	CHECK(spare()->count == capacity && loaded_count() == capacity + 1);
	CHECK(depot().filled == 0);
	check_sum();

	/* Both full: the older one goes to the depot, in exchange for an empty one. */
	struct magazine *older = spare();
	CHECK(give_while_hits() == capacity - 1);
	CHECK(!give() && spare() && spare() != older && spare()->count == capacity);
	CHECK(depot().filled == 1 && depot().objects == capacity && loaded_count() == capacity + 1);
	check_sum();

	/* Empty, with a full spare: the two swap. */
	struct magazine *full = spare();
	CHECK(take_while_hits() == 1 && loaded_count() == capacity);
	refills = depot().refills;
	CHECK(!take() && words()[0] == (uintptr_t)&full->slot[capacity - 1]);
	CHECK(spare() && spare() != full && spare()->count == 0 && depot().filled == 1);
	check_sum();

	/* Full, with an empty spare: the two swap. */
	struct magazine *empty = spare();
	CHECK(give_while_hits() == 1 && !give());
	CHECK(spare() == full && full->count == capacity && words()[0] == (uintptr_t)&empty->slot[1]);
	CHECK(depot().filled == 1);
	check_sum();

	/* Both empty: one goes to the depot, in exchange for a filled one. */
	take_while_hits();
	CHECK(!take() && take_while_hits() == capacity - 1 && loaded_count() == 0);
	CHECK(!take() && words()[0] == (uintptr_t)&older->slot[capacity - 1]);
	CHECK(depot().filled == 0 && depot().empty == 1 && spare() && spare()->count == 0);
	CHECK(depot().refills == refills);
	check_sum();

	/* Everything empty: the spare stays where it is. */
	struct magazine *stays = spare();
	take_while_hits();
	CHECK(!take() && depot().refills == refills + 1 && spare() == stays && depot().empty == 1);
	check_sum();

	/* A free without a magazine: an empty one is found or made, and nothing goes to the slabs. */
	magazine_trim();
	CHECK(is_void() && !spare());
	CHECK(!give() && loaded_count() == 1 && depot().filled == 0);
	check_sum();
	uint64_t filled;
	/* The same with a filled spare, which stays. */
	do
		give();
	while (!spare());
	full = spare();
	CHECK(full->count == capacity);
	unload();
	CHECK(!give() && spare() == full && loaded_count() == capacity + 1u);
	check_sum();

	/* No magazine, an empty spare, and a filled one in the depot: the spare stays as well. */
	take_while_hits();
	CHECK(!take() && spare() && spare()->count == 0);
	empty = spare();
	unload();
	filled = depot().filled;
	uint64_t empties = depot().empty;
	CHECK(filled && !take() && !is_void());
	CHECK(spare() == empty && depot().filled == filled - 1 && depot().empty == empties);
	check_sum();
	give_all();
}

/* By the time statistics count a spare, another thread may have it, or it may be other metadata. */
static void test_counted_spare(void)
{
	const unsigned capacity = cache->depot.capacity;

	give_all();
	while (out_count < 3u * capacity)
		take();
	while (!spare() || !spare()->count)
		give();
	struct magazine *magazine = spare();
	uint16_t count = magazine->count, marks = magazine->marks;
	uint64_t loaded = loaded_count() - (uint64_t)(count - marks);

	magazine->marks = count;
	CHECK(loaded_count() == loaded);
	magazine->marks = (uint16_t)(count + 1);
	CHECK(loaded_count() == loaded, "%llu objects", (unsigned long long)loaded_count());
	magazine->marks = 0;
	magazine->count = UINT16_MAX;
	CHECK(loaded_count() == loaded, "%llu objects", (unsigned long long)loaded_count());
	magazine->count = count;
	magazine->marks = marks;
	check_sum();
	give_all();
}

/* A closed area: objects are exchanged directly with the slabs. */
static void test_closed(void)
{
	struct object *direct;
	give_all();
	take();
	unsigned id = arch_id(vcpu_self);
	uint64_t before = allocated(), loaded = loaded_count();
	uintptr_t word = words()[0];
	CHECK(vcpu_close(id));
	CHECK(!vcpu_close(id));
	CHECK(arch_peek(vcpu_self, page_front.map, cache->offset) == vcpu_closed);
	CHECK(!magazine_alloc(&cache->offset));
	have(direct = magazine_alloc_missed(cache));
	CHECK(allocated() == before + 1 && loaded_count() == loaded && words()[0] == word);
	check_sum();
	CHECK(!give());
	CHECK(allocated() == before && loaded_count() == loaded && words()[0] == word);
	CHECK(!slab_is_object(&cache->depot.slabs, direct));
	check_sum();
	vcpu_reopen(id);
	CHECK(give() && words()[0] == word + 8);
	check_sum();
	give_all();
}

/* A thread without an area, or one that migrates to a vCPU without an area. */
static void *begin_anew(void *unused)
{
	cpu_set_t every, one;
	unsigned seen = 0;
	(void)unused;
	CHECK(sched_getaffinity(0, sizeof every, &every) == 0);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &every))
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
		take();
		CHECK(!is_void() || is_large());
		check_sum();
		give();
		check_sum();
		seen++;
	}
	CHECK(seen);
	return NULL;
}

/* ---- a lost install -------------------------------------------------------------------------------- */

static struct {
	unsigned id;
	bool started, same;
	struct object *object;
} rival;

static void *lose(void *unused)
{
	(void)unused;
	check_pin();
	rival.same = arch_id(vcpu_self) == rival.id;
	__atomic_store_n(&rival.started, true, __ATOMIC_RELEASE);
	if (rival.same)
		rival.object = magazine_alloc_missed(cache);
	return NULL;
}

static bool is_waited_for(struct cpuslab_spinlock *lock)
{
	return __atomic_load_n(&lock->attention, __ATOMIC_ACQUIRE) & CPUSLAB_SPIN_PARKED;
}

/*
 * The other thread detaches nothing, and then waits for the depot's lock.  Meanwhile a magazine is installed
 * on the vCPU that they share: the one that the other thread brings must go to the depot.
 */
static void test_lost_install(void)
{
	give_all();
	cpu_set_t before;
	CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
	check_pin();
	struct magazine *ours = depot_take_empty(&cache->depot, NULL);
	CHECK(ours && depot_refill(&cache->depot, ours));
	unsigned count = ours->count;
	rival.id = arch_id(vcpu_self);
	rival.started = false;
	rival.object = NULL;
	uint64_t loaded = loaded_count();
	CHECK(is_void() && loaded == 0);

	cpuslab_spin_lock(&cache->depot.lock);
	pthread_t thread = check_thread(lose, NULL);
	while (!__atomic_load_n(&rival.started, __ATOMIC_ACQUIRE))
		usleep(100);
	if (rival.same) {
		while (!is_waited_for(&cache->depot.lock))
			usleep(100);
		CHECK(arch_replace(vcpu_self, page_front.map, cache->offset, vcpu_void,
				   (uintptr_t)&ours->slot[count]));
	}
	cpuslab_spin_unlock(&cache->depot.lock);
	check_join(thread);
	if (rival.same) {
		have(rival.object);
		CHECK(words()[0] == (uintptr_t)&ours->slot[count] && loaded_count() == count);
		CHECK(depot().filled + depot().empty == 1, "what could not be installed is not in the depot");
		check_sum();
	} else {
		/* Each thread has a vCPU of its own, so nobody can install one first. */
		CHECK(cpuslab_vcpu_mode() != CPUSLAB_VCPU_CPU_ID);
		depot_put(&cache->depot, ours);
	}
	give_all();
	CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
}

/* ---- time ------------------------------------------------------------------------------------------ */

static void pass_time(void)
{
	for (uint64_t end = os_milliseconds() + 110; os_milliseconds() < end;)
		usleep(5000);
	magazine_tick();
}

/* Words unused for two looks are emptied into the depot, and the depot into the slabs. */
static void test_idle(void)
{
	give_all();
	while (out_count < 4u * cache->depot.capacity)
		take();
	while (depot().filled == 0)
		give();
	CHECK(!is_void() && spare());
	pass_time();
	uint64_t filled = depot().filled;
	/* Used between two looks: it stays. */
	take();
	pass_time();
	take();
	pass_time();
	CHECK(!is_void() && loaded_count() > 0);
	check_sum();
	for (int i = 0; i < 2; i++)
		pass_time();
	CHECK(is_void() && !spare() && loaded_count() == 0);
	check_sum();
	for (int i = 0; i < 2; i++)
		pass_time();
	CHECK(depot().filled == 0 && filled, "%llu filled magazines wait for nobody",
	      (unsigned long long)depot().filled);
	CHECK(allocated() == out_count);
	give_all();
}

/* ---- errors ---------------------------------------------------------------------------------------- */

static void free_by_slow_path(void *object)
{
	magazine_free_missed(cache, object);
}

static void check_report(void *object, const char *expected)
{
	check_stopped(free_by_slow_path, object, expected);
}

static void test_errors(void)
{
	give_all();
	for (int i = 0; i < 3; i++)
		take();
	struct object *object = out[out_count - 1];
	CHECK(give());
	CHECK(!magazine_free(&cache->offset, object));
	check_report(object, "freed just before");
	/* With no magazine in which it could wait until that is drained: */
	magazine_trim();
	check_report(object, "not an allocated object");
	check_report((char *)out[0] + 16, "not an allocated object");
	check_report((char *)out[0] + 1, "not an allocated object");
	check_sum();
	give_all();
}

static void test_random(void)
{
	uint64_t random = 3;
	unsigned most = (16u << 20) / cache->depot.slabs.traits.size;
	most = most > MOST - 1 ? MOST - 1 : most;
	for (unsigned long round = 0; round < check_rounds(300, 10000, 50); round++) {
		bool giving = check_below(&random, 2);
		for (size_t i = check_below(&random, 2000); i; i--) {
			if (giving && out_count)
				give();
			else if (!giving && out_count < most)
				take();
		}
		if (check_below(&random, 50) == 0)
			magazine_trim();
		check_sum();
	}
	give_all();
}

int main(void)
{
	check_watchdog(90);
	/*
	 * As if other caches had so much out that no fall of these is an ebb, which would change what misses
	 * do.
	 */
	ebb_count_out(1ull << 40);
	free(malloc(1));
	for (unsigned i = 0; i < CACHES; i++) {
		struct slab_traits traits = {.name = "test", .size = sizes[i]};
		/* One fixed capacity: the content of a magazine is known at each step. */
		CHECK(magazine_create(&caches[i], &traits, capacities[i], NULL));
	}
	check_pin();
	free(malloc(1));
	for (cache = caches; cache < caches + CACHES; cache++) {
		CHECK(magazine_cache_number(cache->number) == cache);
		test_first();
		test_paths();
		test_counted_spare();
		test_closed();
		check_join(check_thread(begin_anew, NULL));
		test_lost_install();
		test_errors();
		test_random();
	}
	cache = &caches[0];
	test_idle();
	printf("%s\n", check_mode());
	return 0;
}
