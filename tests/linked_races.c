/* SPDX-License-Identifier: MIT */
/*
 * linked_races: another thread's free at every instruction of the linked engine's slow paths.  The operation
 * is single-stepped, and the handler of the k-th trap frees an object, as an intervening thread would; for k
 * = 1, 2, ... to the end of the operation.  Whatever the instant, no object is handed out twice, none is
 * lost, and a cache whose objects are all free gives all its memory back.
 *
 * With thread slots only: restartable sequences cannot be stepped through.  The intruder changes no word,
 * which no other thread could do in the middle of a section either.
 */
#include "check.h"

#include <sys/ucontext.h>

#include "linked/linked.h"
#include "linked/slab.h"
#include "os/os.h"
#include "single_step.h"

#ifndef __x86_64__

int main(void)
{
	check_skip("the trap flag is known here for x86-64 only");
}

#else

enum { SIZE = 1000, MOST = 64, EVERY = 60 };
/* Each instant is stepped to from the start, and most of the instructions are a sanitizer's checks. */
#ifdef TEST_SANITIZED
enum { STRIDE = 41 };
#else
enum { STRIDE = 11 };
#endif

static struct linked_cache cache;
static void *held[MOST]; /* objects that the program has; NULL for none */
static unsigned held_count;

static void *intruder_frees;
static unsigned long steps, intrude_at;
static bool intruded;

static void on_step(int signal_number, siginfo_t *info, void *context)
{
	ucontext_t *interrupted = context;

	(void)signal_number, (void)info;
	/* While the interrupted code holds the lock, the other thread would wait. */
	if (++steps < intrude_at || intruded || cpuslab_spin_is_locked(&cache.lock))
		return;
	intruded = true;
	interrupted->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG; /* one is enough */
	linked_free_missed(&cache, intruder_frees);
}

/* ---- the program --------------------------------------------------------------------------------------- */

static void keep(void *object)
{
	CHECK(object && held_count < MOST);
	for (unsigned i = 0; i < held_count; i++)
		CHECK(held[i] != object, "%p was handed out twice", object);
	check_stamp(object, SIZE, (uintptr_t)object);
	held[held_count++] = object;
}

static void *drop(unsigned i)
{
	void *object = held[i];

	CHECK(i < held_count);
	CHECK_STAMP(object, SIZE, (uintptr_t)object);
	held[i] = held[--held_count];
	return object;
}

static void take(void)
{
	void *object = linked_alloc(&cache);

	keep(object ? object : linked_alloc_missed(&cache));
}

/* Allocates until the word's slab is full, with no links left. */
static void fill(void)
{
	do
		take();
	while (held_count % cache.objects);
}

/* ---- the interrupted operations -------------------------------------------------------------------- */

static void *stepped_free, *stepped_alloc;

static void alloc_from_full(void)
{
	step_from_here();
	stepped_alloc = linked_alloc_missed(&cache);
	step_to_here();
}

static void free_into_full(void)
{
	step_from_here();
	linked_free_missed(&cache, stepped_free);
	step_to_here();
}

static void shrink(void)
{
	step_from_here();
	linked_shrink(&cache);
	step_to_here();
}

static const struct race {
	const char *name;
	void (*operation)(void);
	unsigned before; /* objects of the slab that the program keeps, including the intruder's */
	bool frees, thawed, partial;
} races[] = {
	/* The word's slab is full: is it abandoned, or has an object been freed? */
	{"alloc, the word's slab full", alloc_from_full, 8, false, false, false},
	/* Of a slab on no word: which of two frees is the first, and lists it? */
	{"free into a full slab", free_into_full, 8, true, true, false},
	/* And which is the last, and frees the slab? */
	{"free of the last but one", free_into_full, 2, true, true, true},
	/* A list goes back to its slab while another object is freed there. */
	{"shrink", shrink, 3, false, false, true},
	{"shrink, one object left", shrink, 1, false, false, true},
};

/* True if the operation had more than k instructions. */
static bool run(const struct race *race, unsigned long k)
{
	struct linked_traits traits = {.name = "race", .size = SIZE, .alignment = 8, .link = UINT32_MAX};
	unsigned objects;

	CHECK(linked_create(&cache, &traits, NULL));
	objects = cache.objects;
	/* Slabs are freed as soon as possible. */
	cache.min_partial = 0;
	CHECK(objects >= 8 && objects * 2 <= MOST);
	held_count = 0;
	fill();
	if (race->thawed) {
		/* The next slab takes the word. */
		take();
		void *other = drop(held_count - 1);

		CHECK(linked_free(&cache, other));
	}
	while (race->partial && held_count > race->before) {
		void *object = drop(0);

		if (!linked_free(&cache, object))
			linked_free_missed(&cache, object);
	}
	intruder_frees = drop(held_count - 1);
	stepped_free = race->frees ? drop(held_count - 1) : NULL;
	stepped_alloc = NULL;
	steps = 0;
	intruded = false;
	intrude_at = k;
	race->operation();
	bool in_time = intruded;

	if (!intruded)
		linked_free_missed(&cache, intruder_frees);
	if (stepped_alloc)
		keep(stepped_alloc);

	/* All free objects can be allocated before another slab is made. */
	struct linked_statistics now;

	linked_statistics(&cache, &now);
	CHECK(now.allocated == held_count, "%s, step %lu: %llu objects allocated, not %u", race->name, k,
	      (unsigned long long)now.allocated, held_count);
	uint32_t created = cache.created;

	for (uint64_t n = now.capacity - now.allocated; n; n--)
		take();
	CHECK(cache.created == created, "%s, step %lu: free objects were lost", race->name, k);
	while (held_count) {
		void *object = drop(held_count - 1);

		if (!linked_free(&cache, object))
			linked_free_missed(&cache, object);
	}
	linked_shrink(&cache);
	CHECK(cache.slabs == 0, "%s, step %lu: %u slabs are left", race->name, k, cache.slabs);
	CHECK(linked_destroy(&cache));
	return in_time;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};

	check_watchdog(200);
	free(malloc(1));
	if (cpuslab_vcpu_mode() != CPUSLAB_VCPU_THREAD_SLOT)
		check_skip("sections cannot be stepped through (%s)", check_mode());
	CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
	for (unsigned i = 0; i < sizeof races / sizeof *races; i++) {
		unsigned long k = 1, instants = 0; /* later on, not every one */

		while (run(&races[i], k))
			instants++, k += k < EVERY || check_soak() ? 1 : STRIDE;
		printf("  %s: %lu instants\n", races[i].name, instants);
		CHECK(instants > 50);
	}
	return 0;
}

#endif
