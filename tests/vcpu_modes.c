/* SPDX-License-Identifier: MIT */
/*
 * vcpu_modes: in each mode an id has one area, a closed area does not change however many threads want it,
 * and a slot belongs to one thread at a time, also in forked children.
 *
 *   vcpu_modes load    areas are closed, looked at, emptied and opened under threads that use them
 *   vcpu_modes slots   slots come and go with threads
 *   vcpu_modes fork    a child makes threads before its first slow path, or is made by one without a slot
 *   vcpu_modes banks   areas of a later bank come when there is memory for them, and nobody waits for that
 *   vcpu_modes counts  a reused number does not carry over misses of the previous cache
 *   vcpu_modes late    a thread that begins while there is no memory gets its slot when there is some again
 *   vcpu_modes ended   the slot of a thread that could not give it back serves another; slots of live threads
 *                      do not
 */
#include "check.h"

#include <limits.h>

#include "linked/linked.h"
#include "magazine/magazine.h"
#include "process/process.h"
#include "page/layout.h"

enum { THREADS = 4, HELD = 300, SIZE = 512, MOST_CACHES = 1024 };

static struct cache test_cache, *const cache = &test_cache;
static bool stop;

struct object {
	struct object *self;
};

static struct object *take(void)
{
	struct object *object = magazine_alloc(&cache->offset);
	if (!object)
		object = magazine_alloc_missed(cache);
	CHECK(object && __atomic_exchange_n(&object->self, object, __ATOMIC_RELAXED) != object,
	      "%p was handed out twice", (void *)object);
	return object;
}

static void give(struct object *object)
{
	CHECK(__atomic_exchange_n(&object->self, NULL, __ATOMIC_RELAXED) == object);
	if (!magazine_free(&cache->offset, object))
		magazine_free_missed(cache, object);
}

/* ---- load ------------------------------------------------------------------------------------------ */

static uint64_t calls[THREADS];

static void *load(void *argument)
{
	struct object *held[HELD];
	uintptr_t number = (uintptr_t)argument;
	uint64_t random = number + 1;
	unsigned count = 0;
	if (number % 2 == 0)
		check_pin();
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		bool giving = check_below(&random, 2);
		for (size_t i = check_below(&random, HELD); i; i--) {
			if (giving && count)
				give(held[--count]);
			else if (!giving && count < HELD)
				held[count++] = take();
		}
		__atomic_fetch_add(&calls[number], 1, __ATOMIC_RELAXED);
	}
	while (count)
		give(held[--count]);
	return NULL;
}

/* While closed, no word of an area changes; and what is taken out of it stays out. */
static void look_into(unsigned id, bool empty)
{
	static uintptr_t copy[MOST_CACHES][3];
	unsigned caches = magazine_caches();
	CHECK(caches <= MOST_CACHES);
	if (!vcpu_close(id))
		return;
	CHECK(!vcpu_close(id));
	for (int look = 0; look < 4; look++) {
		for (unsigned number = 0; number < caches; number++) {
			const uintptr_t *now = vcpu_word(id, number);
			for (unsigned row = 0; row < 3 && now; row++) {
				CHECK(!look || now[row * VCPU_ROW] == copy[number][row],
				      "a word of a closed area changed: cache %u, row %u", number, row);
				copy[number][row] = now[row * VCPU_ROW];
			}
		}
		usleep(200);
	}
	uintptr_t *word = vcpu_word(id, cache->number);
	CHECK(word);
	if (empty && word[VCPU_ROW]) {
		struct magazine *spare = (struct magazine *)word[VCPU_ROW];
		CHECK(spare->self == magazine_end_mark(spare));
		word[VCPU_ROW] = 0;
		depot_put(&cache->depot, spare);
	}
	vcpu_reopen(id);
}

static void run_load(void)
{
	pthread_t threads[THREADS];
	uint64_t fences = vcpu_fences(), closed = 0;
	bool slots = cpuslab_vcpu_mode() == CPUSLAB_VCPU_THREAD_SLOT;
	for (uintptr_t i = 0; i < THREADS; i++)
		threads[i] = check_thread(load, (void *)i);
	for (int i = 0; i < THREADS; i++)
		while (!__atomic_load_n(&calls[i], __ATOMIC_RELAXED))
			usleep(100);
	for (unsigned long round = 0; round < check_rounds(60, 1000, 20); round++)
		for (unsigned id = 0; id < vcpu_ids(); id++)
			if (vcpu_word(id, cache->number)) {
				look_into(id, round % 2);
				closed++;
			}
	CHECK(closed && (slots || vcpu_fences() > fences));
	/* A slot of another thread can be closed where libc has registered that; the caller's own always. */
	if (slots) {
		unsigned refused = 0, own = arch_id(vcpu_self);
		for (unsigned id = 0; id < vcpu_ids(); id++) {
			bool done = vcpu_close(id);
			refused += !done;
			CHECK(done || id != own);
			if (done)
				vcpu_reopen(id);
		}
		CHECK(refused == (&__rseq_size && __rseq_size ? 0 : THREADS), "%u slots could not be closed",
		      refused);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		check_join(threads[i]);

	struct slab_statistics slabs;
	struct depot_statistics depot;
	slab_statistics(&cache->depot.slabs, &slabs);
	depot_statistics(&cache->depot, &depot);
	CHECK(slabs.allocated == magazine_objects_loaded(cache) + depot.objects,
	      "%llu objects allocated, %llu loaded, %llu in the depot", (unsigned long long)slabs.allocated,
	      (unsigned long long)magazine_objects_loaded(cache), (unsigned long long)depot.objects);
	magazine_trim();
	slab_statistics(&cache->depot.slabs, &slabs);
	CHECK(slabs.allocated == 0 && slabs.slabs == 0);
}

/* ---- slots ----------------------------------------------------------------------------------------- */

static pthread_barrier_t barrier;

static void *use_slot(void *all_at_once)
{
	give(take());
	uintptr_t id = arch_id(vcpu_self);
	CHECK(id < vcpu_ids() && vcpu_word((unsigned)id, cache->number));
	if (all_at_once) {
		pthread_barrier_wait(&barrier);
		give(take());
		CHECK(arch_id(vcpu_self) == id);
		pthread_barrier_wait(&barrier);
	}
	return (void *)id;
}

/* Slots that threads have at the same time are all different, and none is `mine`. */
static void check_distinct(unsigned mine)
{
	pthread_t threads[THREADS];
	uintptr_t ids[THREADS];
	CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
	for (int i = 0; i < THREADS; i++)
		threads[i] = check_thread(use_slot, (void *)1);
	for (int i = 0; i < THREADS; i++) {
		ids[i] = (uintptr_t)check_join(threads[i]);
		CHECK(ids[i] != mine, "a thread has the slot of another");
		for (int j = 0; j < i; j++)
			CHECK(ids[i] != ids[j], "two threads have slot %zu", (size_t)ids[i]);
	}
	pthread_barrier_destroy(&barrier);
}

static void run_slots(void)
{
	give(take());
	unsigned own = arch_id(vcpu_self);
	check_distinct(own);
	unsigned ids = vcpu_ids();
	CHECK(ids == THREADS + 1);
	/* Their slots are free again, and their magazines are there for the next thread. */
	uint64_t loaded = magazine_objects_loaded(cache);
	for (int i = 0; i < 20; i++)
		CHECK((uintptr_t)check_join(check_thread(use_slot, NULL)) != own);
	check_distinct(own);
	CHECK(vcpu_ids() == ids && magazine_objects_loaded(cache) == loaded);
	CHECK(arch_id(vcpu_self) == own);
}

/* ---- fork ------------------------------------------------------------------------------------------ */

static bool lingering;

static void *linger(void *unused)
{
	(void)unused;
	give(take());
	__atomic_store_n(&lingering, true, __ATOMIC_RELEASE);
	pause();
	return NULL;
}

static void *first_in_child(void *unused)
{
	/* Malloc's first step on a slow path; the first thread to get here repairs. */
	process_enter();
	return use_slot(unused);
}

static void in_child(void)
{
	unsigned own = arch_id(vcpu_self);
	bool untouched = *process_alive == 0;
	CHECK(untouched);
	pthread_t thread = check_thread(first_in_child, NULL);
	CHECK((uintptr_t)check_join(thread) != own, "the child's first thread has the slot of its maker");
	CHECK(*process_alive == 1);
	process_enter();
	give(take());
	CHECK(arch_id(vcpu_self) == own);
	check_distinct(own);
	/* The slots of the threads that stayed behind are free once the survivor has repaired. */
	unsigned ids = vcpu_ids();
	vcpu_bury_dead_slots();
	for (int i = 0; i < 3; i++)
		check_distinct(own);
	CHECK(vcpu_ids() == ids);
	for (unsigned id = 0; id < ids; id++)
		if (id != own) {
			CHECK(vcpu_close(id), "slot %u is still taken", id);
			vcpu_reopen(id);
		}
}

/* It has no slot, and no other thread of the child can tell which slots are unowned by now. */
static void *fork_without_slot(void *unused)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		check_watchdog(30);
		process_enter();
		give(take());
		for (unsigned id = 0; id < vcpu_ids(); id++)
			if (id != arch_id(vcpu_self)) {
				CHECK(vcpu_close(id), "slot %u is still taken", id);
				vcpu_reopen(id);
			}
		check_distinct(arch_id(vcpu_self));
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
	return unused;
}

static void run_fork(void)
{
	give(take());
	pthread_t thread = check_thread(linger, NULL);
	while (!__atomic_load_n(&lingering, __ATOMIC_ACQUIRE))
		usleep(100);
	for (int i = 0; i < 5; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			check_watchdog(30);
			in_child();
			/* And a grandchild. */
			pid_t grandchild = fork();
			if (grandchild == 0) {
				check_watchdog(30);
				in_child();
				_exit(0);
			}
			CHECK_EXITED(check_wait(grandchild), 0);
			_exit(0);
		}
		CHECK_EXITED(check_wait(child), 0);
	}
	check_join(check_thread(fork_without_slot, NULL));
	(void)thread;
}

/* ---- banks ----------------------------------------------------------------------------------------- */

static void use_linked(struct linked_cache *late)
{
	void *object = linked_alloc_missed(late);

	CHECK(object);
	linked_free_missed(late, object);
}

static void *use_late_cache(void *late)
{
	use_linked(late);
	return NULL;
}

static void run_banks(void)
{
	static struct linked_cache caches[VCPU_BANK_CACHES];
	const struct linked_traits traits = {.name = "many", .size = 64, .alignment = 8, .link = UINT32_MAX};
	struct linked_cache *late = &caches[VCPU_BANK_CACHES - 1];

	check_pin();
	give(take());
	for (unsigned i = 0; i < VCPU_BANK_CACHES; i++)
		CHECK(linked_create(&caches[i], &traits, NULL));
	CHECK(late->number >= VCPU_BANK_CACHES);

	/* Memory for a slab, but not for an area. */
	size_t planned = layout.metadata.planned;
	void *kept = metadata_alloc(METADATA_UNIT);

	layout.metadata.planned = layout.metadata.committed;
	while (metadata_alloc(VCPU_AREA_BYTES))
		;
	metadata_free(kept, METADATA_UNIT);
	use_linked(late);
	check_join(check_thread(use_late_cache, late));

	layout.metadata.planned = planned;
	use_linked(late);
	bool found = false;

	for (unsigned id = 0; id < vcpu_ids(); id++)
		found |= vcpu_word(id, late->number) != NULL;
	CHECK(found);
}

/* ---- late ------------------------------------------------------------------------------------------- */

static void *begin_without_memory(void *unused)
{
	enum { PAIRS = 1000 };
	size_t planned = layout.metadata.planned;

	layout.metadata.planned = layout.metadata.committed;
	while (metadata_alloc(VCPU_AREA_BYTES))
		;
	give(take());
	CHECK(arch_id(vcpu_self) >= vcpu_ids(), "a slot without memory");

	layout.metadata.planned = planned;
	give(take());
	CHECK(arch_id(vcpu_self) < vcpu_ids(), "no slot though there is memory");
	uint64_t before, after, frees;
	vcpu_misses(cache->number, &before, &frees);
	for (int i = 0; i < PAIRS; i++)
		give(take());
	vcpu_misses(cache->number, &after, &frees);
	CHECK(after - before < PAIRS / 100, "%llu misses", (unsigned long long)(after - before));
	return unused;
}

static void *begin(void *unused)
{
	give(take());
	return unused;
}

static void run_late(void)
{
	give(take());
	check_join(check_thread(begin_without_memory, NULL));
	/* And the next thread gets the slot. */
	unsigned ids = vcpu_ids();
	check_join(check_thread(begin, NULL));
	CHECK(vcpu_ids() == ids, "%u slots, and %u now", ids, vcpu_ids());
}

/* ---- ended ------------------------------------------------------------------------------------------ */

static pthread_key_t last_key;

/* Runs behind the library's own destructor: what is left to that in the last round, nobody does any more. */
static void come_by_last(void *rounds_left)
{
	if ((uintptr_t)rounds_left > 1)
		CHECK(pthread_setspecific(last_key, (char *)rounds_left - 1) == 0);
	else
		give(take());
}

static void *end_unnoticed(void *unused)
{
	CHECK(pthread_setspecific(last_key, (void *)PTHREAD_DESTRUCTOR_ITERATIONS) == 0);
	return unused;
}

static void test_ended(void)
{
	enum { ENDED = 200 };
	unsigned own = arch_id(vcpu_self);

	for (int i = 0; i < ENDED; i++) {
		check_join(check_thread(end_unnoticed, NULL));
		if (i % 20 == 0)
			check_distinct(own);
	}
	CHECK(arch_id(vcpu_self) == own);
	CHECK(vcpu_ids() < ENDED / 4, "%u slots", vcpu_ids());
}

static void *fork_and_end(void *unused)
{
	give(take());
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		check_watchdog(30);
		process_enter();
		/* The slot is this thread's own even before its first slow path in the child says so. */
		unsigned own = arch_id(vcpu_self);
		for (int i = 0; i < 40; i++)
			check_distinct(own);
		check_join(check_thread(first_in_child, NULL));
		test_ended();
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
	return unused;
}

static void run_ended(void)
{
	give(take());
	CHECK(pthread_key_create(&last_key, come_by_last) == 0);
	test_ended();
	check_join(check_thread(fork_and_end, NULL));
}

/* ---- counts ---------------------------------------------------------------------------------------- */

enum { MISSES = 50 };

/* On every vCPU that this thread can run on. */
static void *miss(void *argument)
{
	struct cache *missing = argument;
	cpu_set_t one;

	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(0, sizeof one, &one) != 0)
			continue;
		for (int i = 0; i < MISSES; i++)
			magazine_free_missed(missing, magazine_alloc_missed(missing));
	}
	return NULL;
}

static uint64_t misses_of(const struct cache *counted)
{
	uint64_t allocs, frees;

	vcpu_misses(counted->number, &allocs, &frees);
	return allocs + frees;
}

static uint64_t linked_misses(struct linked_cache *counted)
{
	struct linked_statistics statistics;

	linked_statistics(counted, &statistics);
	return statistics.alloc_misses + statistics.free_misses;
}

/* Three caches with the same number, one after the other. */
static void test_counts(void)
{
	static struct cache first, last;
	static struct linked_cache between;
	const struct slab_traits traits = {.name = "counted", .size = SIZE};
	const struct linked_traits linked = {
		.name = "counted", .size = SIZE, .alignment = 8, .link = UINT32_MAX};

	CHECK(magazine_create(&first, &traits, 0, NULL));
	check_join(check_thread(miss, &first));
	miss(&first);
	CHECK(misses_of(&first) >= 4 * MISSES && magazine_destroy(&first) == 0);

	CHECK(linked_create(&between, &linked, NULL) && between.number == first.number);
	CHECK(linked_misses(&between) == 0, "%llu misses", (unsigned long long)linked_misses(&between));
	for (int i = 0; i < MISSES; i++)
		use_linked(&between);
	CHECK(linked_misses(&between) >= MISSES && linked_destroy(&between));

	CHECK(magazine_create(&last, &traits, 0, NULL) && last.number == first.number);
	CHECK(misses_of(&last) == 0, "%llu misses", (unsigned long long)misses_of(&last));
	CHECK(magazine_destroy(&last) == 0);
	printf("number %u\n", first.number);
}

static void run_counts(void)
{
	unsigned number = 0;

	test_counts();
	/* And in a later bank. */
	while (number < VCPU_BANK_CACHES - 1)
		CHECK(vcpu_take_numbers(1, &number));
	test_counts();
}

int main(int argc, char **argv)
{
	const char *variant = argc > 1 ? argv[1] : "load";
	const char *asked = getenv("CPUSLAB_OPTIONS");
	check_watchdog(60);
	free(malloc(1));
	/* The mode in use is the requested one, as far as the system supports it. */
	enum cpuslab_vcpu_mode mode = cpuslab_vcpu_mode();
	if (asked && strstr(asked, "vcpu:slot"))
		CHECK(mode == CPUSLAB_VCPU_THREAD_SLOT);
	if (asked && strstr(asked, "vcpu:cpu_id"))
		CHECK(mode != CPUSLAB_VCPU_MM_CID);
	CHECK(arch_id(vcpu_self) < vcpu_ids());
	if (mode == CPUSLAB_VCPU_CPU_ID) {
		check_pin();
		CHECK(arch_id(vcpu_self) == (unsigned)sched_getcpu());
	}
	struct slab_traits traits = {.name = "test", .size = SIZE};
	CHECK(magazine_create(cache, &traits, 0, NULL));
	if (strcmp(variant, "load") == 0) {
		run_load();
		return 0;
	}
	if (strcmp(variant, "banks") == 0) {
		run_banks();
		return 0;
	}
	if (strcmp(variant, "counts") == 0) {
		run_counts();
		return 0;
	}
	if (mode != CPUSLAB_VCPU_THREAD_SLOT)
		check_skip("no slots (%s)", check_mode());
	if (strcmp(variant, "slots") == 0)
		run_slots();
	else if (strcmp(variant, "late") == 0)
		run_late();
	else if (strcmp(variant, "ended") == 0)
		run_ended();
	else
		run_fork();
	return 0;
}
