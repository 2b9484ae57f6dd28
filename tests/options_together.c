/* SPDX-License-Identifier: MIT */
/*
 * options_together: combinations of options that nobody has thought of.  Each run, with a seed of its own,
 * sets some options of the table, to usual and to extreme values, and CPUSLAB_DEBUG's flags for some classes;
 * under them threads allocate in every way, write to all that malloc_usable_size() reports, verify every
 * byte, free what others allocated, use object caches of both engines, and fork.  Content must stay intact,
 * nothing may be printed, and the caches must be empty in the end.
 *
 *   options_together SEED    that run alone
 */
#include "check.h"

#include <cpuslab/cache.h>
#include <cpuslab/profile.h>
#include <sys/time.h>

enum { SLOTS = 300, THREADS = 3, CACHES = 8, STEPS = 800, SEEDS = 30 };

/* ---- the settings ------------------------------------------------------------------------------------ */

/* Values for each kind of option in options.def. */
static const char *const FLAG[] = {"true"};
static const char *const COUNT[] = {"0", "1", "2", "20", "5000", "1000000"};
static const char *const BYTES[] = {"0", "100", "64K", "1M", "64M", "1G"};
static const char *const MILLISECONDS[] = {"0", "1", "20", "1000", "4000000000"};
static const char *const VCPU_MODE[] = {"auto", "mm_cid", "cpu_id", "slot"};
static const char *const HUGE_PAGES[] = {"auto", "always", "never"};
static const char *const LIMIT[] = {"0", "1G", "memory.high"};
static const char *const SIGNAL[] = {"0"};

static const struct option {
	const char *name;
	const char *const *values;
	size_t count;
} table[] = {
#define OPTION(name, kind, initial, text) {#name, kind, sizeof kind / sizeof *kind},
#include "options/options.def"
#undef OPTION
};

/* Excludes options that make a program write something, and heaps too small for the work. */
static bool is_silent(const struct option *option)
{
	return !strstr(option->name, "at_exit") && strncmp(option->name, "profile_", 8) != 0 &&
	       strcmp(option->name, "reserve") != 0;
}

static void draw_options(uint64_t *random, char *text, size_t size)
{
	int used = snprintf(text, size, "reserve:%dG", 1 << check_below(random, 12));

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (is_silent(&table[i]) && check_below(random, 4) == 0)
			used += snprintf(text + used, size - (size_t)used, ",%s:%s", table[i].name,
					 table[i].values[check_below(random, table[i].count)]);
}

/* Neither T, which writes, nor A, with which an allocation may fail. */
static void draw_debug(uint64_t *random, char *text, size_t size)
{
	static const char *const names[] = {"", ",malloc-*", ",malloc-large", ",together*", ",malloc-1*,*"};
	size_t used = 0;

	for (const char *flag = "FZPUO"; *flag && size > 2; flag++)
		if (check_below(random, 2))
			text[used++] = *flag;
	snprintf(text + used, size - used, "%s", names[check_below(random, sizeof names / sizeof *names)]);
}

/* ---- the work under them ----------------------------------------------------------------------------- */

static struct slot {
	bool taken; /* a thread is using it */
	unsigned char *memory;
	size_t size, requested; /* stamped bytes, and the size requested */
	uint64_t seed;
	struct cpuslab_cache *cache; /* NULL: malloc's */
	bool aligned;
} slots[SLOTS];

static struct cpuslab_cache *caches[CACHES];

static size_t draw_size(uint64_t *random)
{
	static const size_t most[] = {100, 700, 700, 9000, 70000, 400000};
	size_t size = check_below(random, most[check_below(random, sizeof most / sizeof *most)]);

	return check_below(random, 100) ? size : size * 8;
}

static void create_caches(uint64_t *random)
{
	for (unsigned i = 0; i < CACHES; i++) {
		struct cpuslab_cache_args wanted = {
			.name = "together",
			.size = 1 + check_below(random, i < 5 ? 600 : 20000),
			.align = check_below(random, 2) ? (size_t)8 << check_below(random, 6) : 0,
			.engine = i % 2 ? CPUSLAB_ENGINE_LINKED : CPUSLAB_ENGINE_MAGAZINE,
			.flags = check_below(random, 4) ? 0 : (unsigned)CPUSLAB_CACHE_NO_MERGE,
		};

		CHECK(caches[i] = cpuslab_cache_create(&wanted));
	}
}

static void acquire(struct slot *slot, uint64_t *random)
{
	size_t size = draw_size(random), alignment = 1;

	slot->cache = NULL;
	slot->aligned = false;
	switch (check_below(random, 8)) {
	case 0:
		slot->memory = calloc(1, size);
		CHECK(slot->memory && check_all_bytes(slot->memory, size, 0));
		break;
	case 1:
		alignment = (size_t)16 << check_below(random, 10);
		slot->memory = aligned_alloc(alignment, size);
		slot->aligned = true;
		break;
	case 2:
	case 3:
		slot->cache = caches[check_below(random, CACHES)];
		size = cpuslab_cache_size(slot->cache);
		slot->memory = cpuslab_cache_alloc(slot->cache);
		break;
	default:
		slot->memory = malloc(size);
	}
	CHECK(slot->memory && (uintptr_t)slot->memory % alignment == 0, "%zu bytes", size);
	slot->requested = size;
	slot->size = !slot->cache && check_below(random, 4) == 0 ? malloc_usable_size(slot->memory) : size;
	CHECK(slot->size >= size);
	slot->seed = check_random(random);
	check_stamp(slot->memory, slot->size, slot->seed);
}

static void release(struct slot *slot, uint64_t *random)
{
	CHECK_STAMP(slot->memory, slot->size, slot->seed);
	if (slot->cache && check_below(random, 2))
		cpuslab_cache_free(slot->cache, slot->memory);
	else if (!slot->cache && !slot->aligned && check_below(random, 2))
		free_sized(slot->memory, slot->requested);
	else
		free(slot->memory);
	slot->memory = NULL;
}

static void resize(struct slot *slot, uint64_t *random)
{
	/* Often a small change, so that it stays in place. */
	size_t size = 1 + (check_below(random, 2) ? draw_size(random) : slot->size - slot->size / 8);
	size_t kept = size < slot->size ? size : slot->size;

	CHECK_STAMP(slot->memory, slot->size, slot->seed);
	slot->memory = realloc(slot->memory, size);
	CHECK(slot->memory, "%zu bytes", size);
	CHECK_STAMP(slot->memory, kept, slot->seed);
	slot->size = slot->requested = size;
	slot->aligned = false;
	check_stamp(slot->memory, size, slot->seed);
}

/* A forked child skips slots that its parent's other threads were using. */
static void step(uint64_t *random)
{
	struct slot *slot = &slots[check_below(random, SLOTS)];

	if (__atomic_exchange_n(&slot->taken, true, __ATOMIC_ACQUIRE))
		return;
	if (!slot->memory)
		acquire(slot, random);
	else if (!slot->cache && check_below(random, 3) == 0)
		resize(slot, random);
	else
		release(slot, random);
	__atomic_store_n(&slot->taken, false, __ATOMIC_RELEASE);
}

static void fork_once(uint64_t *random)
{
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		check_watchdog(60);
		for (unsigned i = 0; i < 60; i++)
			step(random);
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
}

static void *work(void *seed)
{
	uint64_t random = (uintptr_t)seed;

	for (unsigned i = 0; i < STEPS; i++) {
		step(&random);
		if (check_below(&random, STEPS) == 0)
			fork_once(&random);
		if (check_below(&random, STEPS / 4) == 0)
			malloc_trim(0);
		if (check_below(&random, STEPS / 2) == 0)
			CHECK(cpuslab_validate(NULL) <= 0);
		if (check_below(&random, STEPS / 2) == 0)
			CHECK(cpuslab_profile_start(1 + check_below(&random, 1 << 16)) == 0);
		if (check_below(&random, STEPS / 2) == 0)
			cpuslab_profile_stop();
	}
	return NULL;
}

static void on_timer(int number)
{
	(void)number;
}

static void run(uint64_t random)
{
	pthread_t threads[THREADS];
	struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};

	if (check_below(&random, 4) == 0)
		check_pin();
	CHECK(signal(SIGVTALRM, on_timer) != SIG_ERR);
	if (check_below(&random, 2))
		CHECK(setitimer(ITIMER_VIRTUAL, &often, NULL) == 0);
	create_caches(&random);
	for (unsigned burst = 0; burst < 2; burst++) {
		for (unsigned i = 0; i < THREADS; i++)
			threads[i] = check_thread(work, (void *)(uintptr_t)(check_random(&random) | 1));
		for (unsigned i = 0; i < THREADS; i++)
			check_join(threads[i]);
		for (unsigned i = 0; i < SLOTS; i++)
			if (slots[i].memory)
				release(&slots[i], &random);
	}
	CHECK(setitimer(ITIMER_VIRTUAL, &never, NULL) == 0);
	CHECK(cpuslab_validate(NULL) <= 0);
	for (unsigned i = 0; i < CACHES; i++)
		CHECK(cpuslab_cache_destroy(caches[i]) == 0);
}

/* ---- the runs ---------------------------------------------------------------------------------------- */

struct variables {
	char options[800], debug[64], seed[32];
};

static void begin(void *argument)
{
	const struct variables *variables = argument;

	setenv("CPUSLAB_OPTIONS", variables->options, 1);
	if (variables->debug[0])
		setenv("CPUSLAB_DEBUG", variables->debug, 1);
	execl("/proc/self/exe", program_invocation_name, "run", variables->seed, NULL);
	_exit(1);
}

static void run_seed(uint64_t seed)
{
	uint64_t random = seed * 0x9e3779b97f4a7c15u | 1;
	struct variables variables = {.debug = ""};
	char said[4096];

	draw_options(&random, variables.options, sizeof variables.options);
	if (check_below(&random, 2))
		draw_debug(&random, variables.debug, sizeof variables.debug);
	snprintf(variables.seed, sizeof variables.seed, "%llu", (unsigned long long)check_random(&random));

	int status = check_child(begin, &variables, said, sizeof said);

	CHECK(status == 0 && !said[0], "seed %llu, %s, CPUSLAB_DEBUG=%s: wait status %#x, said: %.200s",
	      (unsigned long long)seed, variables.options, variables.debug, (unsigned)status, said);
}

int main(int count, char **arguments)
{
	unsigned long seeds = check_rounds(SEEDS, 100ul * SEEDS, 2);

	check_watchdog(120);
	if (count > 2)
		run(strtoull(arguments[2], NULL, 0));
	else if (count > 1)
		run_seed(strtoull(arguments[1], NULL, 0));
	else
		for (uint64_t seed = 1; seed <= seeds; seed++)
			run_seed(seed);
	return 0;
}
