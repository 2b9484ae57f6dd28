/* SPDX-License-Identifier: MIT */
/*
 * malloc_errors: a wrong free stops the process with one line that names the pointer, and for objects of a
 * cache the object size; a correct program prints nothing at all.  A crash reporter works in the handler of
 * SIGABRT then: it can take a backtrace, allocate objects of all sizes, and call malloc_trim and malloc_info.
 */
#include "check.h"

#include <execinfo.h>
#include <malloc.h>
#include <sys/mman.h>

enum { OTHERS = 5000 };

static volatile int sink;
static void *others[OTHERS];

struct error {
	const char *name;
	size_t size;      /* of the object that the error is about */
	ptrdiff_t offset; /* from its start to the pointer that is freed */
	enum {
		ONCE,
		TWICE_IN_A_ROW,
		TWICE_APART,
		TWICE_TRIMMED,
		FOREIGN_STATIC,
		FOREIGN_STACK,
		FOREIGN_CODE,
		FOREIGN_MAP,
		REALLOC
	} what;
};

/* Written by the child, read by the parent, which looks for both in the child's output. */
static struct report {
	void *pointer;
	size_t usable;
} *report;

static void free_hidden(void *volatile pointer)
{
	free(pointer);
}

static void churn(size_t size, void *twice)
{
	for (int i = 0; i < OTHERS; i++)
		others[i] = malloc(size);
	free_hidden(twice);
	for (int i = 0; i < OTHERS; i++)
		free(others[i]);
}

static void commit(void *argument)
{
	const struct error *error = argument;
	static int static_object[64];
	int stack_object[64] = {0};
	char *object = malloc(error->size), *other;
	CHECK(object);
	memset(object, 1, error->size);
	report->usable = malloc_usable_size(object);
	report->pointer = object + error->offset;
	switch (error->what) {
	case ONCE:
		free_hidden(object + error->offset);
		break;
	case TWICE_IN_A_ROW:
		free_hidden(object);
		free_hidden(object);
		break;
	case TWICE_APART:
		churn(error->size, object);
		churn(error->size / 2 + 1, NULL);
		if (error->size < 100000)
			for (int i = 0; i < OTHERS; i++)
				others[i] = malloc(error->size);
		free_hidden(object);
		if (error->size < 100000)
			for (int i = 0; i < OTHERS; i++)
				free(others[i]);
		break;
	case TWICE_TRIMMED:
		/* With another one in between, so that malloc_trim finds it. */
		other = malloc(error->size);
		free_hidden(object);
		free_hidden(other);
		free_hidden(object);
		break;
	case FOREIGN_STATIC:
		report->pointer = static_object + 4;
		free_hidden(static_object + 4);
		break;
	case FOREIGN_STACK:
		report->pointer = stack_object + 4;
		free_hidden(stack_object + 4);
		break;
	case FOREIGN_CODE:
		report->pointer = (void *)((uintptr_t)commit & ~(uintptr_t)15);
		free_hidden(report->pointer);
		break;
	case FOREIGN_MAP:
		report->pointer =
			mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		free_hidden(report->pointer);
		break;
	case REALLOC:
		report->pointer = static_object + 8;
		sink = realloc(static_object + 8, 10) == NULL;
		break;
	}
	malloc_trim(0); /* drains every magazine into its slab: the last chance to notice */
}

/* The same allocations and frees, each once. */
static void behave(void *argument)
{
	static const size_t sizes[] = {16, 100, 1000, 5000, 100000, 300000, 5 << 20};
	(void)argument;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		char *object = malloc(sizes[i]);
		memset(object, 1, sizes[i]);
		churn(sizes[i] < 5000 ? sizes[i] : 100, object);
		churn(sizes[i] < 5000 ? sizes[i] / 2 + 1 : 64, NULL);
		malloc_trim(0);
		free(realloc(malloc(sizes[i]), 2 * sizes[i]));
	}
	malloc_trim(0);
	exit(0);
}

enum { REPORTED = 9 };

/* Takes every lock that the library could have held when it stopped the program. */
static void report_crash(int signal_number)
{
	static const size_t sizes[] = {16, 100, 112, 1000, 3000, 5000, 100000, 300000, 5 << 20, 50 << 20};
	void *frames[64], *objects[sizeof sizes / sizeof *sizes];

	(void)signal_number;
	/* Its first call loads libgcc, which allocates. */
	int depth = backtrace(frames, 64);
	CHECK(depth > 4, "a backtrace of %d frames", depth);
	free(backtrace_symbols(frames, depth));
	for (int round = 0; round < 300; round++) {
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
			objects[i] = malloc(sizes[i]);
			CHECK(objects[i]);
			*(volatile char *)objects[i] = 1;
		}
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
			free(objects[i]);
	}
	malloc_trim(0);
	FILE *nowhere = fopen("/dev/null", "w");
	CHECK(nowhere && malloc_info(0, nowhere) == 0);
	fclose(nowhere);
	_exit(REPORTED);
}

static void commit_and_report(void *argument)
{
	check_watchdog(60);
	CHECK(signal(SIGABRT, report_crash) != SIG_ERR);
	commit(argument);
}

static struct error errors[] = {
	{"a static object", 100, 0, FOREIGN_STATIC},
	{"a stack object", 100, 0, FOREIGN_STACK},
	{"a function", 100, 0, FOREIGN_CODE},
	{"somebody's mapping", 100, 0, FOREIGN_MAP},
	{"realloc of a static object", 100, 0, REALLOC},
	{"16 bytes twice", 16, 0, TWICE_IN_A_ROW},
	{"100 bytes twice", 100, 0, TWICE_IN_A_ROW},
	{"1000 bytes twice", 1000, 0, TWICE_IN_A_ROW},
	{"5000 bytes twice", 5000, 0, TWICE_IN_A_ROW},
	{"20000 bytes twice", 20000, 0, TWICE_IN_A_ROW},
	{"100000 bytes twice", 100000, 0, TWICE_IN_A_ROW},
	{"300000 bytes twice", 300000, 0, TWICE_IN_A_ROW},
	{"5 MiB twice", 5 << 20, 0, TWICE_IN_A_ROW},
	{"50 MiB twice", 50 << 20, 0, TWICE_IN_A_ROW},
	{"16 bytes twice, others between", 16, 0, TWICE_APART},
	{"100 bytes twice, others between", 100, 0, TWICE_APART},
	{"1000 bytes twice, others between", 1000, 0, TWICE_APART},
	{"3000 bytes twice, others between", 3000, 0, TWICE_APART},
	{"100 bytes twice, one between", 100, 0, TWICE_TRIMMED},
	{"3000 bytes twice, one between", 3000, 0, TWICE_TRIMMED},
	{"inside a 40 MiB mapping", 40 << 20, 1 << 20, ONCE},
	{"inside a 3 MiB block", 3 << 20, 4096, ONCE},
	{"inside a 300000-byte block", 300000, 64, ONCE},
	{"inside a 300000-byte block, a page on", 300000, 8192, ONCE},
	{"inside a 1000-byte object", 1000, 16, ONCE},
	{"inside a 100-byte object", 100, 32, ONCE},
	{"misaligned in a 100-byte object", 100, 1, ONCE},
	{"misaligned in a 5000-byte object", 5000, 4, ONCE},
	{"misaligned in a 300000-byte block", 300000, 1, ONCE},
};

static void check_report(const struct error *error, bool stopped, int status, const char *text)
{
	char pointer[32], size[32];
	CHECK(stopped, "freeing %s: wait status %#x, stderr '%s'", error->name, (unsigned)status, text);
	const char *end = strchr(text, '\n');
	/* A debugged object gets a long report, unless its slab has gone with its last object. */
	bool long_report = check_debugged() && strstr(text, "\nBUG malloc-");
	CHECK(end && (end[1] == 0 || long_report), "freeing %s: not one line: '%s'", error->name, text);
	snprintf(pointer, sizeof pointer, "%p", report->pointer);
	CHECK(strstr(text, pointer), "freeing %s: '%s' does not name %s", error->name, text, pointer);
	/*
	 * By now its pages may serve another cache, if others came in between; those of a large object may
	 * serve none.
	 */
	if (error->what < FOREIGN_STATIC && error->what != TWICE_APART && error->size < 50000 &&
	    !check_debugged()) {
		snprintf(size, sizeof size, "%zu", report->usable);
		CHECK(strstr(text, size), "freeing %s: '%s' does not name the cache of %s-byte objects",
		      error->name, text, size);
	}
}

int main(int argc, char **argv)
{
	char text[4096];
	report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(report != MAP_FAILED);
	int status = check_child(behave, NULL, text, sizeof text);
	CHECK_EXITED(status, 0);
	CHECK(!*text, "a right program printed '%s'", text);
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		if (argc > 1 && strcmp(argv[1], errors[i].name) != 0)
			continue;
		status = check_child(commit, &errors[i], text, sizeof text);
		if (argc > 1)
			fprintf(stderr, "%s", text);
		check_report(&errors[i], WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, status, text);
		status = check_child(commit_and_report, &errors[i], text, sizeof text);
		check_report(&errors[i], WIFEXITED(status) && WEXITSTATUS(status) == REPORTED, status, text);
	}
	printf("%s: %zu errors reported\n", check_mode(), sizeof errors / sizeof *errors);
	return 0;
}
