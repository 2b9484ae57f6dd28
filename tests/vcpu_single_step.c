/* SPDX-License-Identifier: MIT */
/*
 * vcpu_single_step: stopping malloc and free at each of their instructions neither loses nor duplicates an
 * object.
 *
 *   vcpu_single_step steps         a traced child is single-stepped k instructions into an operation, then
 *                                  let go, for k = 1, 2, … past the end of the hit path, and at strides
 *                                  through the slow paths
 *   vcpu_single_step breakpoints   the child runs into a hardware breakpoint at every byte of every
 *                                  restartable section; those that are an instruction's first byte stop it
 *                                  there
 *
 * The kernel sends a thread that is stopped inside a section to the section's abort handler.  So stepping
 * never gets beyond a section's first instruction, again and again; only breakpoints reach the others.  Each
 * operation runs on a heap that the child checks afterwards: no object is handed out twice, and at the end
 * the allocator's own count of objects in use is what it was.
 */
#include "check.h"

#include <cpuslab/cache.h>

#include <sys/mman.h>

#ifndef __x86_64__

int main(void)
{
	check_skip("debug registers and rflags are known here for x86-64 only");
}

#else

#include "traced.h"

/* ---- the traced child ------------------------------------------------------------------------------ */

enum operation {
	HIT_ALLOC,
	HIT_FREE,
	MISS_ALLOC,
	MISS_FREE,
	CLASS,
	LARGE,
	RESIZE,
	SPARE,
	TRIM,
	LIST_ALLOC,
	LIST_FREE,
	LIST_MISS,
	OPERATIONS
};

static const char *const operation_names[] = {
	"malloc that hits", "free that hits", "malloc that misses", "free that misses", "a large class",
	"large block",      "realloc",        "spare magazines",    "malloc_trim",      "alloc from a list",
	"free to a list",   "lists that end",
};

/* Shared by tracer and child. */
static struct shared {
	enum operation operation;
	bool stop;
	uint64_t aborts, rounds;
	int mode;
} *shared;

enum { SIZE = 96, LIVE = 600, BATCH = 600 };

static uint64_t *live[LIVE];
static uint64_t *batch[BATCH];

static uint64_t *stamped(uint64_t **slot)
{
	uint64_t *object = malloc(SIZE);
	CHECK(object);
	for (size_t i = 0; i < SIZE / 8; i++)
		object[i] = (uint64_t)(uintptr_t)slot ^ i;
	return *slot = object;
}

static void verify(uint64_t **slot)
{
	for (size_t i = 0; i < SIZE / 8; i++)
		CHECK((*slot)[i] == ((uint64_t)(uintptr_t)slot ^ i), "%p has two owners", (void *)*slot);
}

static int by_address(const void *a, const void *b)
{
	uint64_t *const *x = a, *const *y = b;
	return *x < *y ? -1 : *x > *y;
}

/* Objects of a linked cache, stamped like the others. */
enum { LIST_LIVE = 40 };
static struct cpuslab_cache *lists;
static uint64_t *list_live[LIST_LIVE];

static uint64_t *list_stamped(uint64_t **slot)
{
	uint64_t *object = cpuslab_cache_alloc(lists);
	CHECK(object);
	for (size_t i = 0; i < SIZE / 8; i++)
		object[i] = (uint64_t)(uintptr_t)slot ^ i;
	return *slot = object;
}

static void make_lists(void)
{
	struct cpuslab_cache_args args = {.name = "lists", .size = SIZE, .engine = CPUSLAB_ENGINE_LINKED};
	CHECK((lists = cpuslab_cache_create(&args)));
	for (size_t i = 0; i < LIST_LIVE; i++)
		list_stamped(&list_live[i]);
}

static void check_lists(void)
{
	enum { MORE = 30 };
	uint64_t *more[MORE];
	for (size_t i = 0; i < MORE; i++)
		list_stamped(&more[i]);
	for (size_t i = 0; i < LIST_LIVE; i++)
		verify(&list_live[i]);
	for (size_t i = 0; i < MORE; i++) {
		verify(&more[i]);
		cpuslab_cache_free(lists, more[i]);
	}
}

/* Whatever the operation left behind, allocated objects are distinct, and live ones are untouched. */
static void check_heap(size_t count)
{
	static uint64_t *sorted[LIVE + BATCH];
	for (size_t i = 0; i < count; i++)
		stamped(&batch[i]);
	for (size_t i = 0; i < LIVE; i++)
		verify(&live[i]);
	memcpy(sorted, live, sizeof live);
	memcpy(sorted + LIVE, batch, count * sizeof *batch);
	qsort(sorted, LIVE + count, sizeof *sorted, by_address);
	for (size_t i = 1; i < LIVE + count; i++)
		CHECK(sorted[i - 1] != sorted[i], "%p was handed out twice", (void *)sorted[i]);
	for (size_t i = 0; i < count; i++) {
		verify(&batch[i]);
		free(batch[i]);
	}
}

static size_t in_use(void)
{
	struct mallinfo2 info = mallinfo2();
	return info.uordblks + info.hblkhd;
}

static void operate(enum operation operation)
{
	void *object = NULL;
	switch (operation) {
	case HIT_ALLOC:
		free(malloc(SIZE));
		TRACED_TRAP();
		object = malloc(SIZE);
		TRACED_TRAP();
		memset(object, 1, SIZE);
		free(object);
		break;
	case HIT_FREE:
		object = malloc(SIZE);
		memset(object, 1, SIZE);
		TRACED_TRAP();
		free(object);
		TRACED_TRAP();
		break;
	case MISS_ALLOC:
		malloc_trim(0);
		TRACED_TRAP();
		object = malloc(SIZE);
		TRACED_TRAP();
		memset(object, 1, SIZE);
		free(object);
		break;
	case MISS_FREE:
		for (size_t i = 0; i < BATCH; i++)
			stamped(&batch[i]);
		malloc_trim(0);
		TRACED_TRAP();
		free(batch[0]);
		TRACED_TRAP();
		for (size_t i = 1; i < BATCH; i++) {
			verify(&batch[i]);
			free(batch[i]);
		}
		break;
	case CLASS:
		free(malloc(20000));
		TRACED_TRAP();
		object = malloc(20000);
		free(object);
		TRACED_TRAP();
		break;
	case LARGE:
		TRACED_TRAP();
		object = malloc(1 << 20);
		free(object);
		TRACED_TRAP();
		break;
	case RESIZE:
		object = malloc(SIZE);
		check_stamp(object, SIZE, 4);
		TRACED_TRAP();
		object = realloc(object, 5 * SIZE);
		TRACED_TRAP();
		CHECK_STAMP(object, SIZE, 4);
		free(object);
		break;
	case SPARE:
		TRACED_TRAP();
		for (size_t i = 0; i < BATCH; i++)
			batch[i] = malloc(SIZE);
		for (size_t i = 0; i < BATCH; i++)
			free(batch[i]);
		TRACED_TRAP();
		break;
	case TRIM:
		for (size_t i = 0; i < BATCH; i++)
			stamped(&batch[i]);
		for (size_t i = 0; i < BATCH; i++)
			free(batch[i]);
		TRACED_TRAP();
		malloc_trim(0);
		TRACED_TRAP();
		break;
	case LIST_ALLOC:
		cpuslab_cache_free(lists, cpuslab_cache_alloc(lists));
		TRACED_TRAP();
		object = cpuslab_cache_alloc(lists);
		TRACED_TRAP();
		memset(object, 1, SIZE);
		cpuslab_cache_free(lists, object);
		break;
	case LIST_FREE:
		object = cpuslab_cache_alloc(lists);
		memset(object, 1, SIZE);
		TRACED_TRAP();
		cpuslab_cache_free(lists, object);
		TRACED_TRAP();
		break;
	case LIST_MISS:
		for (size_t i = 0; i < LIST_LIVE; i++) {
			verify(&list_live[i]);
			cpuslab_cache_free(lists, list_live[i]);
		}
		TRACED_TRAP();
		for (size_t i = 0; i < LIST_LIVE; i++)
			list_live[i] = cpuslab_cache_alloc(lists);
		for (size_t i = 0; i < LIST_LIVE; i++)
			cpuslab_cache_free(lists, list_live[i]);
		cpuslab_cache_shrink(lists);
		TRACED_TRAP();
		for (size_t i = 0; i < LIST_LIVE; i++)
			list_stamped(&list_live[i]);
		break;
	case OPERATIONS:
		break;
	}
}

__attribute__((noreturn)) static void be_traced(void)
{
	CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
	if (check_cpuslab())
		shared->mode = (int)cpuslab_vcpu_mode();
	for (size_t i = 0; i < LIVE; i++)
		stamped(&live[i]);
	make_lists();
	for (int operation = 0; operation < OPERATIONS; operation++)
		check_heap(BATCH);
	malloc_trim(0);
	size_t start = in_use();
	uint64_t aborts = check_counters().section_aborts;
	raise(SIGSTOP);
	while (!shared->stop) {
		operate(shared->operation);
		check_heap(16);
		check_lists();
		if (++shared->rounds % 64 == 0)
			check_heap(BATCH);
		shared->aborts = check_counters().section_aborts - aborts;
	}
	malloc_trim(0);
	size_t end = in_use();
	/* Nothing was lost: a lost object would stay in use for ever. */
	if (check_cpuslab())
		CHECK(end == start, "%zu bytes in use at the start, %zu at the end", start, end);
	_exit(0);
}

static const char *traced_doing(void)
{
	static char text[80];
	snprintf(text, sizeof text, "%s, round %llu", operation_names[shared->operation],
		 (unsigned long long)shared->rounds);
	return shared->stop ? NULL : text;
}

/* ---- the tracer ------------------------------------------------------------------------------------ */

/* Runs the operation once: to its first trap, then as `interrupt` directs, to its second trap. */
static bool one_round(enum operation operation, bool (*interrupt)(unsigned long), unsigned long argument)
{
	shared->operation = operation;
	CHECK(go_on()); /* the trap before the operation */
	bool interrupted = interrupt(argument);
	return interrupted;
}

/* The first steps exhaustively; then at strides coprime with any loop length. */
enum { EVERY = 150, STEPS = 6000 };

/* Where the operation was after each of its steps, and how often it had been there until then. */
static struct path {
	unsigned long steps;
	struct {
		uintptr_t at;
		unsigned visit;
	} step[STEPS];
} path;

static bool is_crossed(const struct section *section)
{
	return section && shared->mode != CPUSLAB_VCPU_THREAD_SLOT;
}

/* One more step; false at the operation's end. */
static bool step_once(void)
{
	CHECK(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0);
	CHECK(wait_trap());
	return !at_own_trap();
}

static void note_step(uintptr_t at)
{
	unsigned visit = 1;
	for (unsigned long i = path.steps; i && visit == 1; i--)
		if (path.step[i - 1].at == at)
			visit = path.step[i - 1].visit + 1;
	path.step[path.steps].at = at;
	path.step[path.steps++].visit = visit;
}

/* Steps through all of it, and goes through sections in one go. */
static bool find_path(unsigned long unused)
{
	(void)unused;
	path.steps = 0;
	while (path.steps < STEPS) {
		if (!step_once())
			return true;
		const struct section *section = section_at(instruction_pointer());
		if (is_crossed(section))
			step_over(section);
		note_step(instruction_pointer());
	}
	CHECK(go_on());
	return true;
}

static bool pass(unsigned long unused)
{
	(void)unused;
	return go_on();
}

/* Runs to where the operation was after so many steps, by a breakpoint; false if it ended before. */
static bool go_to_step(unsigned long steps)
{
	bool reached = true;
	set_debug_register(0, path.step[steps - 1].at);
	set_debug_register(7, 1); /* execution, breakpoint 0 */
	for (unsigned visit = path.step[steps - 1].visit; visit && reached; visit--) {
		CHECK(go_on());
		reached = !at_own_trap();
	}
	set_debug_register(7, 0);
	return reached;
}

/*
 * True if the operation had not ended after k steps: only the last of them is a step, a breakpoint leads to
 * it.
 */
static bool step(unsigned long k)
{
	if (k > 1 && !go_to_step(k - 1))
		return false;
	if (!step_once())
		return false;
	CHECK(go_on());
	return true;
}

/*
 * True if it was stopped there, if need be on a path found anew: a tick, or memory that stands by, leads
 * elsewhere.
 */
static bool stop_after(enum operation operation, unsigned long k)
{
	bool stopped = one_round(operation, step, k);
	if (!stopped && k < EVERY) {
		one_round(operation, find_path, 0);
		stopped = k <= path.steps && one_round(operation, step, k);
	}
	return stopped;
}

static void run_steps(void)
{
	enum { FIRST_ROUNDS = 20 /* memory comes, and stands by afterwards */ };
	for (int operation = 0; operation < OPERATIONS; operation++) {
		unsigned long k, interrupted = 0;
		unsigned long stride = check_soak() ? 7 : operation < MISS_ALLOC ? 97 : 211;
		for (unsigned i = 0; i < FIRST_ROUNDS; i++)
			one_round((enum operation)operation, pass, 0);
		one_round((enum operation)operation, find_path, 0);
		for (k = 1; k <= path.steps; k += k < EVERY ? 1 : stride)
			interrupted += stop_after((enum operation)operation, k);
		printf("  %s: stopped at %lu of %lu instructions\n", operation_names[operation], interrupted,
		       path.steps);
		CHECK(interrupted >= 4);
	}
}

/* True if the operation ran into the breakpoint; it may do so repeatedly until it is removed. */
static bool run_into(unsigned long address)
{
	set_debug_register(0, address);
	set_debug_register(7, 1); /* execution, breakpoint 0 */
	CHECK(go_on());
	bool hit = !at_own_trap() && instruction_pointer() == address;
	set_debug_register(7, 0);
	if (hit)
		CHECK(go_on());
	return hit;
}

static void run_breakpoints(void)
{
	size_t sections = first_section ? (size_t)(last_section - first_section) : 0, reached = 0;
	unsigned long stops = 0;
	if (!sections)
		check_skip("no restartable sections in this program");
	for (size_t i = 0; i < sections; i++) {
		const struct section *section = &first_section[i];
		CHECK(section->length > 0 && section->length < 256);
		/* The first instruction tells which operation executes this section. */
		unsigned long stopped = 0;
		for (int operation = 0; operation < OPERATIONS; operation++) {
			if (!one_round((enum operation)operation, run_into, section->start))
				continue;
			for (uint64_t at = section->start; at < section->start + section->length; at++)
				stopped += one_round((enum operation)operation, run_into, at);
			/* Also behind the commit, where nothing is undone any more. */
			one_round((enum operation)operation, run_into, section->start + section->length);
		}
		reached += stopped > 0;
		stops += stopped;
	}
	printf("  %zu of %zu sections reached, %lu stops inside them\n", reached, sections, stops);
	/* clang makes several copies of some sections, of which these operations use one. */
	CHECK(reached >= 10 && reached * 5 >= sections, "only %zu of %zu sections were reached", reached,
	      sections);
	if (shared->mode != CPUSLAB_VCPU_THREAD_SLOT)
		CHECK(shared->aborts >= stops, "%lu stops in sections, but only %llu aborts", stops,
		      (unsigned long long)shared->aborts);
}

int main(int argc, char **argv)
{
	const char *variant = argc > 1 ? argv[1] : "steps";
	bool steps = strcmp(variant, "steps") == 0;
	CHECK(steps || strcmp(variant, "breakpoints") == 0, "no variant '%s'", variant);
	check_watchdog(250);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	traced_begin(be_traced);
	if (steps)
		run_steps();
	else
		run_breakpoints();
	shared->stop = true;
	/* The child's last operation has two more traps to pass. */
	while (go_on())
		;
	printf("%s: %llu operations, %llu aborted sections\n", check_mode(),
	       (unsigned long long)shared->rounds, (unsigned long long)shared->aborts);
	return 0;
}

#endif
