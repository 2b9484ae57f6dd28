/* SPDX-License-Identifier: MIT */
/*
 * corruption: runs each case (cases.h) in a process of its own, and says how that ended.
 *
 *   corruption           in each of cpuslab's three modes; fails where a mode lets pass what it must stop, or
 *                        stops it at another time than promised
 *   corruption promises  these promises, as the rows of the table in docs/hardening.md
 *   corruption outcomes  one line for each case, in the environment that it is called in: NAME OUTCOME
 *   corruption NAME      one case, in this very process
 */
#include "cases.h"
#include "check.h"

#include <sys/mman.h>
#include <sys/resource.h>

enum stage { BEFORE, WRONG, AFTER };
static volatile enum stage *stage;

/* From best to worst; REPORT and FAULT occur at the wrong call or access itself. */
enum outcome { ABSENT, REPORT, FAULT, CLEARED, REPORT_LATER, FAULT_LATER, SILENT, BROKEN };
static const char *const outcome_names[] = {"-",           "report", "fault", "cleared", "report later",
					    "fault later", "silent", "broken"};

/* ---- in the case's process ------------------------------------------------------------------------- */

void wrong_begins(void)
{
	*stage = WRONG;
}

void wrong_ends(void)
{
	*stage = AFTER;
}

_Noreturn void end_as(enum ending ending)
{
	_exit((int)ending);
}

static void share_stage(int file)
{
	stage = mmap(NULL, sizeof *stage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(stage != MAP_FAILED);
}

/* The supervisor has passed the shared stage on standard input. */
static int run_case(const char *name)
{
	static const struct rlimit no_core;

	setrlimit(RLIMIT_CORE, &no_core);
	share_stage(STDIN_FILENO);
	alarm(20);
	for (unsigned i = 0; i < corruption_count; i++)
		if (strcmp(corruptions[i].name, name) == 0) {
			corruptions[i].commit();
			malloc_trim(0); /* the last chance of an allocator that defers its checks */
			_exit(ENDS_SILENTLY);
		}
	return 1;
}

/* ---- around it ------------------------------------------------------------------------------------- */

static enum outcome judge(int status)
{
	bool later = *stage == AFTER;

	if (*stage == BEFORE && !(WIFEXITED(status) && WEXITSTATUS(status) == ENDS_ABSENT))
		return BROKEN;
	if (WIFEXITED(status))
		switch (WEXITSTATUS(status)) {
		case ENDS_SILENTLY:
			return SILENT;
		case ENDS_CLEARED:
			return CLEARED;
		case ENDS_ABSENT:
			return ABSENT;
		default: /* an allocator that reports and exits */
			return later ? REPORT_LATER : REPORT;
		}
	if (WTERMSIG(status) == SIGABRT || WTERMSIG(status) == SIGTRAP || WTERMSIG(status) == SIGILL)
		return later ? REPORT_LATER : REPORT;
	if (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS)
		return later ? FAULT_LATER : FAULT;
	return BROKEN;
}

static enum outcome outcome_of(const struct corruption *corruption, int file)
{
	*stage = BEFORE;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		int nowhere = open("/dev/null", O_WRONLY);

		dup2(file, STDIN_FILENO);
		if (!getenv("CORRUPTION_SHOW"))
			dup2(nowhere, STDERR_FILENO);
		execl("/proc/self/exe", program_invocation_name, corruption->name, NULL);
		_exit(1);
	}
	return judge(check_wait(child));
}

/* ---- what each mode must stop ---------------------------------------------------------------------- */

struct mode {
	const char *name, *options, *debug;
	bool (*may_pass)(const struct corruption *corruption, enum outcome outcome);
};

static bool is_one_of(const char *name, const char *const *names)
{
	for (; *names; names++)
		if (strcmp(*names, name) == 0)
			return true;
	return false;
}

/* Double and invalid frees are found, at the latest when the object returns to its slab. */
static bool default_may_pass(const struct corruption *corruption, enum outcome outcome)
{
	static const char *const open[] = {"double_free_small_after_reuse", "usable_size_of_freed",
					   "usable_size_inside", NULL};

	(void)outcome;
	return (corruption->kind != DOUBLE_FREE && corruption->kind != INVALID_FREE) ||
	       is_one_of(corruption->name, open);
}

/* Everything is stopped; reads after a free return zeros at worst.  Wrong frees stop at the call. */
static bool hardened_may_pass(const struct corruption *corruption, enum outcome outcome)
{
	(void)corruption;
	return outcome == CLEARED;
}

/*
 * Undetected are errors about objects in use again, and size queries; everything else reads or writes out of
 * reach of the program's data.
 */
static bool debug_may_pass(const struct corruption *corruption, enum outcome outcome)
{
	static const char *const open[] = {"double_free_small_after_reuse",
					   "usable_size_of_freed",
					   "usable_size_inside",
					   "write_after_free_largest_class",
					   "free_aligned_sized_misaligned",
					   "read_from_zero_size",
					   NULL};

	return outcome == CLEARED || is_one_of(corruption->name, open);
}

/* ---- when ---------------------------------------------------------------------------------------------- */

enum when { AT_ONCE, DRAINED, AT_FREE, AT_REUSE, READS_ZERO, NEVER };
static const char *const when_names[] = {"at once",      "when drained", "at its free",
					 "before reuse", "reads zero",   "never"};

static const struct promise {
	const char *mistake;
	enum when in_default, hardened;
	const char *cases[10];
} promises[] = {
	{"free, realloc of what malloc never gave: static, on the stack, mapped, any number",
	 AT_ONCE,
	 AT_ONCE,
	 {"free_static", "free_stack", "free_code", "free_mapping", "free_uninitialised", "free_noncanonical",
	  "free_small_number", "realloc_of_static"}},
	{"free of the object that this vCPU freed last",
	 AT_ONCE,
	 AT_ONCE,
	 {"double_free_small", "double_free_medium", "double_free_pages", "double_free_aligned",
	  "double_free_calloc"}},
	{"free of an object of up to 128 KiB that was freed earlier",
	 DRAINED,
	 AT_ONCE,
	 {"double_free_small_another_between", "double_free_small_delayed", "double_free_medium_delayed"}},
	{"the same, of a larger one",
	 AT_ONCE,
	 AT_ONCE,
	 {"double_free_largest_class", "double_free_large", "double_free_large_another_between",
	  "double_free_large_delayed", "double_free_huge"}},
	{"free of a freed object after 3000 others came and went",
	 NEVER,
	 AT_ONCE,
	 {"double_free_small_after_reuse"}},
	{"free of an address inside an object of up to 128 KiB",
	 DRAINED,
	 AT_ONCE,
	 {"free_inside_small", "free_inside_medium", "free_inside_pages", "free_misaligned_small",
	  "free_misaligned_by_eight"}},
	{"the same, of a larger one",
	 AT_ONCE,
	 AT_ONCE,
	 {"free_inside_largest_class", "free_inside_large", "free_inside_large_near_end", "free_inside_huge",
	  "free_misaligned_large", "free_before_large"}},
	{"realloc that moves, of an address without the alignment of the object's size class",
	 AT_ONCE,
	 AT_ONCE,
	 {"realloc_inside"}},
	{"malloc_usable_size of what is no object",
	 NEVER,
	 AT_ONCE,
	 {"usable_size_of_freed", "usable_size_inside"}},
	{"free with another size or alignment than was asked for",
	 NEVER,
	 AT_ONCE,
	 {"free_sized_too_small", "free_sized_too_large", "free_sized_large", "sized_delete_too_small",
	  "sized_delete_too_large", "sized_delete_of_an_array", "free_aligned_sized_misaligned"}},
	{"write past the end or before the start, up to 256 KiB",
	 NEVER,
	 AT_FREE,
	 {"overflow_small_by_1", "overflow_full_by_8", "overflow_medium_by_8", "overflow_pages_by_1",
	  "overflow_largest_class_by_1", "overflow_aligned_by_1", "string_too_long_by_its_zero",
	  "underflow_small_by_1", "underflow_medium_by_8"}},
	{"the same, of a larger object, into another page",
	 NEVER,
	 AT_ONCE,
	 {"overflow_large_by_1", "overflow_large_by_8", "underflow_large_by_1", "underflow_large_by_8"}},
	{"write after the free, up to 256 KiB",
	 NEVER,
	 AT_REUSE,
	 {"write_after_free_small", "write_after_free_medium", "write_after_free_pages",
	  "write_after_free_largest_class", "write_after_free_delayed", "write_after_realloc"}},
	{"read after the free, up to 256 KiB",
	 NEVER,
	 READS_ZERO,
	 {"read_after_free_small", "read_after_free_medium", "read_after_free_largest_class"}},
	{"write or read after the free of a larger object",
	 NEVER,
	 AT_ONCE,
	 {"write_after_free_large", "write_after_free_huge", "read_after_free_large"}},
	{"write or read of an object of no bytes",
	 NEVER,
	 AT_ONCE,
	 {"write_to_zero_size", "read_from_zero_size"}},
};
enum { PROMISES = sizeof promises / sizeof *promises };

static bool is_when(enum when when, enum outcome outcome)
{
	switch (outcome) {
	case REPORT:
	case FAULT:
		return when == AT_ONCE;
	case REPORT_LATER:
	case FAULT_LATER:
		return when == DRAINED || when == AT_FREE || when == AT_REUSE;
	case CLEARED:
		return when == READS_ZERO;
	default:
		return when == NEVER || outcome == ABSENT;
	}
}

static const struct promise *promise_of(const char *name)
{
	for (unsigned i = 0; i < PROMISES; i++)
		if (is_one_of(name, promises[i].cases))
			return &promises[i];
	return NULL;
}

static void print_promises(void)
{
	for (unsigned i = 0; i < PROMISES; i++)
		printf("| %s | %s | %s |\n", promises[i].mistake, when_names[promises[i].in_default],
		       when_names[promises[i].hardened]);
}

static const struct mode modes[] = {
	{"default", "", "", default_may_pass},
	{"hardened", "hardened:1", "", hardened_may_pass},
	{"debug", "", "FZPU", debug_may_pass},
};

static bool is_stopped(enum outcome outcome)
{
	return outcome != SILENT && outcome != CLEARED && outcome != BROKEN;
}

/* A wrong free, which hardened and debugged modes stop at the call. */
static bool is_late(const struct mode *mode, const struct corruption *corruption, enum outcome outcome)
{
	bool is_free = corruption->kind == DOUBLE_FREE || corruption->kind == INVALID_FREE ||
		       corruption->kind == WRONG_SIZE;

	return mode == &modes[1] && is_free && outcome != REPORT;
}

/* Whether a case is stopped at another time than promised; debugging promises no time. */
static bool breaks_promise(const struct mode *mode, const struct corruption *corruption, enum outcome outcome)
{
	const struct promise *promise = promise_of(corruption->name);

	if (!promise || mode == &modes[2])
		return false;
	return !is_when(mode == &modes[0] ? promise->in_default : promise->hardened, outcome);
}

static unsigned check_mode_stops(const struct mode *mode, int file)
{
	unsigned wrong = 0, stopped = 0;

	setenv("CPUSLAB_OPTIONS", mode->options, 1);
	setenv("CPUSLAB_DEBUG", mode->debug, 1);
	for (unsigned i = 0; i < corruption_count; i++) {
		enum outcome outcome = outcome_of(&corruptions[i], file);

		stopped += is_stopped(outcome);
		if ((!is_stopped(outcome) && !mode->may_pass(&corruptions[i], outcome)) ||
		    is_late(mode, &corruptions[i], outcome) ||
		    breaks_promise(mode, &corruptions[i], outcome)) {
			printf("%s: %s: %s\n", mode->name, corruptions[i].name, outcome_names[outcome]);
			wrong++;
		}
	}
	printf("%s: %u of %u stopped\n", mode->name, stopped, corruption_count);
	return wrong;
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "promises") == 0) {
		print_promises();
		return 0;
	}
	if (argc > 1 && strcmp(argv[1], "outcomes") != 0)
		return run_case(argv[1]);

	int file = memfd_create("stage", MFD_CLOEXEC);
	unsigned wrong = 0;

	CHECK(file >= 0 && ftruncate(file, sizeof *stage) == 0);
	share_stage(file);
	if (argc > 1) {
		for (unsigned i = 0; i < corruption_count; i++)
			printf("%s %s\n", corruptions[i].name,
			       outcome_names[outcome_of(&corruptions[i], file)]);
		return 0;
	}
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
		wrong += check_mode_stops(&modes[i], file);
	return wrong != 0;
}
