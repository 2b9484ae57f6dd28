/* SPDX-License-Identifier: MIT */
/*
 * malloc_unwind: a signal at any instruction of the library finds a stack that a profiler or a crash reporter
 * can unwind to main.  Calls of each kind are single-stepped, and the handler of the trap takes a backtrace
 * at every instruction that it has not seen yet.
 *
 * A trap within a restartable section sends the thread to the section's abort handler, for ever.  So where a
 * section is about to be announced to the kernel for the second time, that instruction is skipped: the first
 * pass leads through the abort handler, the second through the section, which nobody else disturbs here.
 */
#include "check.h"

#include <cpuslab/cache.h>
#include <execinfo.h>
#include <malloc.h>
#include <sys/ucontext.h>
#include <unistd.h>

#include "single_step.h"
#include "still_clock.h" /* else the library would do the work of a tick at every step */

#ifndef __x86_64__

int main(void)
{
	check_skip("the trap flag is known here for x86-64 only");
}

#else

enum { DEPTH = 64, PLACES = 1 << 16, OBJECTS = 120 };

/* The callers' part of the stack, above the function that is stepped through. */
static void *reference[DEPTH];
static int reference_depth;

static uintptr_t seen[PLACES]; /* a hash table of instructions */
static unsigned long steps, places, handlers;

/* Marks an instruction as seen; returns whether it was already. */
static bool see(uintptr_t at)
{
	size_t i = at * 0x9e3779b97f4a7c15u >> 48;

	for (; seen[i]; i = (i + 1) % PLACES)
		if (seen[i] == at)
			return true;
	CHECK(places < PLACES / 2);
	places++;
	seen[i] = at;
	return false;
}

/* The length of `mov %rcx, %fs:8(register)`, which announces a section; 0 for any other instruction. */
static unsigned announces(const uint8_t *code)
{
	enum { FS = 0x64, REX_W = 0x48, REX_B = 0x01, MOV = 0x89, RCX_TO_DISP8 = 0x48, BY_SIB = 4 };

	if (code[0] != FS || (code[1] & ~REX_B) != REX_W || code[2] != MOV || (code[3] & ~7) != RCX_TO_DISP8)
		return 0;
	unsigned sib = (code[3] & 7) == BY_SIB;

	return code[4 + sib] == 8 ? 5 + sib : 0;
}

static bool is_abort_handler(const uint8_t *code)
{
	static const uint8_t signature[] = {0x53, 0x30, 0x05, 0x53};

	/* Bytes before the first instructions of a segment may be unreadable. */
	return (uintptr_t)code % 4096 >= sizeof signature &&
	       memcmp(code - sizeof signature, signature, sizeof signature) == 0;
}

extern const char own_start[] __asm__("__executable_start"), own_end[] __asm__("etext");

/* The test's own code moves the stack pointer to set the trap flag, which no unwind table describes. */
static bool is_own(uintptr_t at)
{
	return at >= (uintptr_t)own_start && at < (uintptr_t)own_end;
}

static void check_backtrace(uintptr_t at)
{
	void *frames[DEPTH];
	int depth = backtrace(frames, DEPTH), shared = reference_depth - 1;
	bool same = depth > shared &&
		    memcmp(&frames[depth - shared], &reference[1], (size_t)shared * sizeof *frames) == 0;

	if (same)
		return;
	step_to_here();
	backtrace_symbols_fd((void *const[]){(void *)at}, 1, STDERR_FILENO);
	backtrace_symbols_fd(frames, depth, STDERR_FILENO);
	CHECK(same, "a stack of %d frames that do not lead to main", depth);
}

static void on_step(int signal_number, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	uintptr_t at = (uintptr_t)registers[REG_RIP];
	int saved = errno;

	(void)signal_number, (void)info;
	steps++;
	if (!see(at)) {
		handlers += is_abort_handler((const uint8_t *)at);
		if (!is_own(at))
			check_backtrace(at);
	} else {
		registers[REG_RIP] += announces((const uint8_t *)at);
	}
	errno = saved;
}

/* ---- what is stepped through ----------------------------------------------------------------------- */

static void *objects[OBJECTS];

static void use(size_t size, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		CHECK((objects[i] = malloc(size)));
	for (unsigned i = 0; i < count; i++)
		free(objects[i]);
}

static void use_small(void)
{
	use(100, 100);
	use(3000, 60);
}

static void use_large(void)
{
	use(100000, 2);
	use(1 << 20, 1);
	use(80 << 20, 1);
}

static void use_others(void)
{
	void *object = calloc(7, 100);

	CHECK(object && (object = realloc(object, 5000)) && (object = realloc(object, 200000)));
	free(object);
	CHECK((object = aligned_alloc(1024, 2048)));
	free(object);
}

static void use_cache(enum cpuslab_engine engine)
{
	const struct cpuslab_cache_args args = {
		.name = "unwind", .size = 200, .flags = CPUSLAB_CACHE_NO_MERGE, .engine = engine};
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);
	void *several[8];

	CHECK(cache);
	for (unsigned i = 0; i < OBJECTS; i++)
		CHECK((objects[i] = cpuslab_cache_alloc(cache)));
	for (unsigned i = 0; i < OBJECTS; i++)
		cpuslab_cache_free(cache, objects[i]);
	CHECK(cpuslab_cache_alloc_bulk(cache, 8, several) == 8);
	cpuslab_cache_free_bulk(cache, 8, several);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

static void use_magazines(void)
{
	use_cache(CPUSLAB_ENGINE_MAGAZINE);
}

static void use_lists(void)
{
	use_cache(CPUSLAB_ENGINE_LINKED);
}

static void trim(void)
{
	malloc_trim(0);
}

static pid_t vforked;

static void use_vfork(void)
{
	vforked = vfork();
	if (vforked == 0)
		_exit(0);
	CHECK(vforked > 0);
}

static __attribute__((noinline)) void step_through(const char *name, void (*function)(void))
{
	unsigned long steps_before = steps, places_before = places;

	reference_depth = backtrace(reference, DEPTH);
	CHECK(reference_depth > 2);
	step_from_here();
	function();
	step_to_here();
	printf("  %s: %lu places in %lu steps\n", name, places - places_before, steps - steps_before);
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO | SA_RESTART};

	check_watchdog(200);
	check_pin();
	/* Loads libgcc. */
	reference_depth = backtrace(reference, DEPTH);
	CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
	step_through("small objects", use_small);
	step_through("large ones", use_large);
	step_through("other calls", use_others);
	step_through("a cache of magazines", use_magazines);
	step_through("a cache of lists", use_lists);
	step_through("trim", trim);
	step_through("vfork", use_vfork);
	CHECK_EXITED(check_wait(vforked), 0);
	CHECK(!check_rseq() || check_debugged() || handlers >= 8, "only %lu abort handlers were seen",
	      handlers);
	printf("%s: %lu places, %lu abort handlers, in %lu steps\n", check_mode(), places, handlers, steps);
	return 0;
}

#endif
