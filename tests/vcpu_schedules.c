/* SPDX-License-Identifier: MIT */
/*
 * vcpu_schedules: a thread is stopped at each instruction of an operation, fast paths and slow ones, in turn;
 * another thread, on the same CPU, does something that conflicts; and the first goes on.  Every instruction
 * that the operation executes is a place to stop, those inside restartable sections too.
 *
 *   vcpu_schedules malloc | magazine | linked     on malloc's own class, or on an object cache of either
 * engine
 *
 * Where the stopped thread holds a lock that the other one needs, the other one waits, and goes on when the
 * first has. After each such schedule nothing is under way, and everything must add up: each object has one
 * owner and its bytes, and the allocator's count of allocated objects is what program, words, spares and
 * depot have.
 */
#include "check.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "cache/cache.h"
#include "magazine/magazine.h"
#include "malloc/size_class.h"

#ifndef __x86_64__

int main(void)
{
	check_skip("debug registers are known here for x86-64 only");
}

#else

#include "traced.h"

enum operation { HIT_ALLOC, HIT_FREE, REFILL, DRAIN, EXCHANGE, BULK, SHRINK, OPERATIONS };
enum conflict { EXHAUST, FREE_REMOTE, SHRINK_ALL, CONFLICTS };
static const char *const operation_names[] = {
	"alloc that hits", "free that hits", "refill", "drain", "exchange", "bulk", "shrink",
};

/* Time stands still: single steps are slow, and ticks would be most of what is stepped through. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
	(void)clock;
	*now = (struct timespec){.tv_sec = 1000};
	return 0;
}

/* What tracer and child tell each other. */
static struct shared {
	enum operation operation;
	enum conflict conflict;
	bool stop;
	uint32_t command, begun, done; /* counts of the other thread's conflicts */
	pid_t other;
	unsigned long rounds;
} *shared;

/* ---- what is tested -------------------------------------------------------------------------------- */

enum { CAPACITY = 4, POOL = 11, OWN = 24, STAMPED = 96 };

/* Four objects fill a slab of the linked engine, so that some are full. */
static size_t object_bytes = STAMPED;

static struct cpuslab_cache *cache; /* NULL: malloc's class */

static void *take(void)
{
	return cache ? cpuslab_cache_alloc(cache) : malloc(object_bytes);
}

static void give(void *object)
{
	if (cache)
		cpuslab_cache_free(cache, object);
	else
		free(object);
}

static void shrink(void)
{
	if (cache)
		(void)cpuslab_cache_shrink(cache);
	else
		magazine_shrink(size_class(size_class_index(object_bytes)));
}

/* Objects that the program has, as the allocator counts them. */
static uint64_t allocated(void)
{
	struct slab_statistics slabs;
	struct depot_statistics depot;
	if (cache && cache->memory->engine == CPUSLAB_ENGINE_LINKED) {
		struct linked_statistics linked;
		linked_statistics(cache_linked(cache->memory), &linked);
		return linked.allocated;
	}
	struct cache *magazines = cache ? &cache->memory->cache : size_class(size_class_index(object_bytes));
	slab_statistics(&magazines->depot.slabs, &slabs);
	depot_statistics(&magazines->depot, &depot);
	return slabs.allocated - depot.objects - magazine_objects_loaded(magazines);
}

/* ---- the child: objects with stamps ---------------------------------------------------------------- */

static void *pool[POOL]; /* the other thread's to free */
static void *own[OWN];
static uint64_t others; /* allocated objects that are not the test's */

static void fill(void **slot)
{
	*slot = take();
	CHECK(*slot);
	check_stamp(*slot, STAMPED, (uintptr_t)slot);
}

static void empty(void **slot)
{
	void *object = *slot;
	CHECK_STAMP(object, STAMPED, (uintptr_t)slot);
	memset(object, 0, STAMPED);
	*slot = NULL;
	give(object);
}

static void fill_own(size_t count)
{
	for (size_t i = 0; i < count; i++)
		fill(&own[i]);
}

static void empty_own(size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (own[i])
			empty(&own[i]);
}

static void check_everything(void)
{
	uint64_t live = 0;
	for (size_t i = 0; i < POOL + OWN; i++) {
		void **slot = i < POOL ? &pool[i] : &own[i - POOL];
		if (!*slot)
			continue;
		live++;
		CHECK_STAMP(*slot, STAMPED, (uintptr_t)slot);
	}
	CHECK(allocated() == live + others, "%s, conflict %d: %llu objects by count, and %llu are",
	      operation_names[shared->operation], (int)shared->conflict,
	      (unsigned long long)(allocated() - others), (unsigned long long)live);
}

/* ---- the child's other thread ---------------------------------------------------------------------- */

static void conflict(enum conflict kind)
{
	enum { MORE = 3 * CAPACITY };
	static void *more[MORE];
	switch (kind) {
	case EXHAUST:
		for (size_t i = 0; i < MORE; i++)
			fill(&more[i]);
		for (size_t i = 0; i < MORE; i++)
			empty(&more[i]);
		break;
	case FREE_REMOTE:
		for (size_t i = 0; i < POOL; i++)
			empty(&pool[i]);
		for (size_t i = 0; i < POOL; i++)
			fill(&pool[i]);
		break;
	case SHRINK_ALL:
		shrink();
		fill(&more[0]);
		empty(&more[0]);
		shrink();
		break;
	case CONFLICTS:
		break;
	}
}

static void futex(uint32_t *word, int operation, uint32_t value)
{
	(void)syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

static void *be_other(void *unused)
{
	__atomic_store_n(&shared->other, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	for (uint32_t seen = 0;;) {
		while (__atomic_load_n(&shared->command, __ATOMIC_ACQUIRE) == seen)
			futex(&shared->command, FUTEX_WAIT, seen);
		__atomic_store_n(&shared->begun, ++seen, __ATOMIC_RELEASE);
		conflict(shared->conflict);
		__atomic_store_n(&shared->done, seen, __ATOMIC_RELEASE);
	}
	return unused;
}

static void wait_for_other(void)
{
	while (__atomic_load_n(&shared->done, __ATOMIC_ACQUIRE) !=
	       __atomic_load_n(&shared->command, __ATOMIC_ACQUIRE))
		sched_yield();
}

/* ---- the child's traced thread --------------------------------------------------------------------- */

static void operate(enum operation operation)
{
	switch (operation) {
	case HIT_ALLOC:
		fill_own(1);
		empty_own(1);
		TRACED_TRAP();
		own[0] = take();
		TRACED_TRAP();
		check_stamp(own[0], STAMPED, (uintptr_t)&own[0]);
		break;
	case HIT_FREE:
		fill_own(1);
		TRACED_TRAP();
		empty_own(1);
		TRACED_TRAP();
		break;
	case REFILL:
		shrink();
		TRACED_TRAP();
		own[0] = take();
		TRACED_TRAP();
		check_stamp(own[0], STAMPED, (uintptr_t)&own[0]);
		break;
	case DRAIN:
		/* The first free finds no magazine, or another slab. */
		fill_own(OWN);
		shrink();
		TRACED_TRAP();
		empty_own(2);
		TRACED_TRAP();
		break;
	case EXCHANGE:
		TRACED_TRAP();
		fill_own(OWN);
		empty_own(OWN);
		TRACED_TRAP();
		break;
	case BULK:
		TRACED_TRAP();
		if (cache) {
			CHECK(cpuslab_cache_alloc_bulk(cache, OWN, own) == OWN);
			for (size_t i = 0; i < OWN; i++)
				check_stamp(own[i], STAMPED, (uintptr_t)&own[i]);
			cpuslab_cache_free_bulk(cache, OWN, own);
			memset(own, 0, sizeof own);
		}
		TRACED_TRAP();
		break;
	case SHRINK:
		fill_own(OWN);
		empty_own(OWN - 3);
		TRACED_TRAP();
		shrink();
		TRACED_TRAP();
		break;
	case OPERATIONS:
		break;
	}
}

__attribute__((noreturn)) static void be_traced(void)
{
	CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
	check_pin();
	check_thread(be_other, NULL);
	while (!__atomic_load_n(&shared->other, __ATOMIC_ACQUIRE))
		sched_yield();
	for (size_t i = 0; i < POOL; i++)
		fill(&pool[i]);
	others = 0;
	others = allocated() - POOL;
	raise(SIGSTOP);
	while (!shared->stop) {
		operate(shared->operation);
		wait_for_other();
		check_everything();
		empty_own(OWN);
		check_everything();
		shared->rounds++;
	}
	_exit(0);
}

/* ---- the tracer ------------------------------------------------------------------------------------ */

static const char *traced_doing(void)
{
	static char text[80];
	snprintf(text, sizeof text, "%s, conflict %d, round %lu", operation_names[shared->operation],
		 (int)shared->conflict, shared->rounds);
	return shared->stop ? NULL : text;
}

/* Whether the other thread sleeps in the middle of its conflict: it waits for a lock. */
static bool other_sleeps(void)
{
	char path[64], text[256];
	snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)child, (int)shared->other);
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
	CHECK(length > 0);
	close(file);
	text[length] = 0;
	const char *end = strrchr(text, ')');
	return end && end[2] == 'S' && __atomic_load_n(&shared->begun, __ATOMIC_ACQUIRE) == shared->command;
}

/* Lets the other thread do its conflict, until it has or waits for the stopped one; true if it waits. */
static bool let_other(void)
{
	__atomic_store_n(&shared->command, shared->command + 1, __ATOMIC_RELEASE);
	futex(&shared->command, FUTEX_WAKE, 1);
	while (__atomic_load_n(&shared->done, __ATOMIC_ACQUIRE) != shared->command) {
		if (other_sleeps() && __atomic_load_n(&shared->done, __ATOMIC_ACQUIRE) != shared->command)
			return true;
		sched_yield();
	}
	return false;
}

/* Every place of the program's text at which the operation stops when it is stepped through. */
extern const char text_start[] __asm__("__executable_start"), text_end[] __asm__("etext");
enum { TEXT_MOST = 4 << 20 };
static bool reached[TEXT_MOST];

static void note(uintptr_t at)
{
	if (at - (uintptr_t)text_start < (size_t)(text_end - text_start))
		reached[at - (uintptr_t)text_start] = true;
}

/* One round by single steps, and sections in one go: of these each byte may be a place. */
static void find_places(enum operation operation)
{
	CHECK((size_t)(text_end - text_start) < TEXT_MOST);
	memset(reached, 0, sizeof reached);
	shared->operation = operation;
	CHECK(go_on());
	for (;;) {
		CHECK(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0);
		CHECK(wait_trap());
		if (at_own_trap())
			return;
		const struct section *section = section_at(instruction_pointer());
		note(instruction_pointer());
		if (!section || cpuslab_vcpu_mode() == CPUSLAB_VCPU_THREAD_SLOT)
			continue;
		for (uint64_t at = section->start; at <= section->start + section->length; at++)
			note(at);
		step_over(section);
		note(instruction_pointer());
	}
}

/* One round that stops at the place when it comes there for the n-th time; false when it does not. */
static bool stop_at(enum operation operation, uintptr_t place, unsigned visit, unsigned *waits)
{
	shared->operation = operation;
	CHECK(go_on());
	set_debug_register(0, place);
	set_debug_register(7, 1); /* execution, breakpoint 0 */
	bool hit = false;
	for (unsigned n = 0; n < visit; n++) {
		CHECK(go_on());
		hit = !at_own_trap();
		if (!hit)
			break;
	}
	set_debug_register(7, 0);
	if (!hit)
		return false;
	*waits += let_other();
	CHECK(go_on());
	return true;
}

/* Every conflict at one place; how many times the operation stopped there. */
static unsigned run_place(enum operation operation, uintptr_t place, unsigned visit, unsigned *waits)
{
	unsigned stops = 0;
	for (int kind = 0; kind < CONFLICTS; kind++) {
		shared->conflict = (enum conflict)kind;
		if (!stop_at(operation, place, visit, waits))
			break;
		stops++;
	}
	return stops;
}

static void run(enum operation operation)
{
	unsigned visits = check_soak() ? 30 : 2, stops = 0, waits = 0, in_sections = 0;
	find_places(operation);
	for (size_t i = 0; i < (size_t)(text_end - text_start); i++) {
		uintptr_t place = (uintptr_t)text_start + i;
		unsigned stopped = reached[i];
		for (unsigned visit = 1; visit <= visits && stopped; visit++) {
			stopped = run_place(operation, place, visit, &waits);
			stops += stopped;
			in_sections += section_at(place) ? stopped : 0;
		}
	}
	printf("  %s: stopped %u times, %u of them in sections; the other had to wait %u times\n",
	       operation_names[operation], stops, in_sections, waits);
	/* malloc has no bulk calls. */
	CHECK(stops >= 4 && (in_sections || (operation == BULK && !cache) || operation == SHRINK));
}

int main(int argc, char **argv)
{
	const char *variant = argc > 1 ? argv[1] : "malloc";
	struct cpuslab_cache_args args = {.name = "schedules",
					  .size = object_bytes,
					  .flags = CPUSLAB_CACHE_NO_MERGE,
					  .magazine_capacity = CAPACITY};
	check_watchdog(100);
	free(malloc(1));
	if (strcmp(variant, "malloc") != 0) {
		bool linked = strcmp(variant, "linked") == 0;
		CHECK(linked || strcmp(variant, "magazine") == 0, "no variant '%s'", variant);
		if (linked)
			args.size = object_bytes = 8192;
		args.engine = linked ? CPUSLAB_ENGINE_LINKED : CPUSLAB_ENGINE_MAGAZINE;
		CHECK((cache = cpuslab_cache_create(&args)));
	}
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	traced_begin(be_traced);
	printf("%s\n", check_mode());
	for (int operation = 0; operation < OPERATIONS; operation++)
		run((enum operation)operation);
	shared->stop = true;
	while (go_on())
		;
	return 0;
}

#endif
