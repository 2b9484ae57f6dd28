/* SPDX-License-Identifier: MIT */
/*
 * corruption: runs each case (cases.h) in a process of its own, and says how that ended.
 *
 *   corruption           in each of cpuslab's three modes; fails where a mode lets pass what it must stop
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

static unsigned check_mode_stops(const struct mode *mode, int file)
{
	unsigned wrong = 0, stopped = 0;

	setenv("CPUSLAB_OPTIONS", mode->options, 1);
	setenv("CPUSLAB_DEBUG", mode->debug, 1);
	for (unsigned i = 0; i < corruption_count; i++) {
		enum outcome outcome = outcome_of(&corruptions[i], file);

		stopped += is_stopped(outcome);
		if ((!is_stopped(outcome) && !mode->may_pass(&corruptions[i], outcome)) ||
		    is_late(mode, &corruptions[i], outcome)) {
			printf("%s: %s: %s\n", mode->name, corruptions[i].name, outcome_names[outcome]);
			wrong++;
		}
	}
	printf("%s: %u of %u stopped\n", mode->name, stopped, corruption_count);
	return wrong;
}

int main(int argc, char **argv)
{
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
