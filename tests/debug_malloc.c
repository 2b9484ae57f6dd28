/* SPDX-License-Identifier: MIT */
/*
 * CPUSLAB_DEBUG on malloc's classes: sizes, alignment and contents are as without it, an overflow by one byte
 * is found whichever function set the size, and `debug_continue` repairs and goes on.  Each case runs this
 * program once more, with an environment of its own.
 */
#include "check.h"

#include <spawn.h>

#include <cpuslab/cpuslab.h>

extern char **environ;
enum { LARGE = (1 << 20) + 100 };

static char text[256 << 10];

/* ---- right programs -------------------------------------------------------------------------------- */

static void use(void *object, size_t size, size_t alignment)
{
	CHECK(object && (uintptr_t)object % alignment == 0, "%zu bytes aligned to %zu at %p", size, alignment,
	      object);
	/* Larger than any class it is made of pages, and shrinking to as little as half happens in place. */
	CHECK(size > 128 << 10 || alignment > 4096 ? malloc_usable_size(object) >= size
						   : malloc_usable_size(object) == size,
	      "%zu bytes, usable %zu", size, malloc_usable_size(object));
	memset(object, 0xff, size);
}

static void run_right(void)
{
	static const size_t sizes[] = {0,    1,    15,   16,   17,    100,   112,   113,    1000,     1024,
				       1025, 4095, 4096, 4097, 30000, 32768, 40000, 100000, 256 << 10};

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		size_t size = sizes[i];
		unsigned char *object = malloc(size);

		use(object, size, 16);
		free(object);
		object = calloc(1, size);
		CHECK(check_all_bytes(object, size, 0));
		use(object, size, 16);
		/* Grow and shrink by steps that stay in place, move, or leave the class. */
		for (size_t other = size ? size : 1; other < 3 * size; other += other / 3 + 1) {
			object = realloc(object, other);
			CHECK(check_all_bytes(object, size, 0xff));
			use(object, other, 16);
		}
		for (size_t other = 3 * size; other > 1; other = other * 2 / 3) {
			object = realloc(object, other);
			CHECK(object && check_all_bytes(object, other < size ? other : size, 0xff));
			use(object, other, 16);
		}
		free(object);
		for (size_t alignment = 16; alignment <= 4096; alignment *= 2) {
			object = aligned_alloc(alignment, size);
			use(object, size, alignment);
			free_aligned_sized(object, alignment, size);
			CHECK(posix_memalign((void **)&object, alignment, size) == 0);
			use(object, size, alignment);
			free(object);
		}
		object = malloc(size);
		free_sized(object, size);
	}
	/* Too large for a class. */
	unsigned char *large = calloc(1, 1 << 20);

	CHECK(large && (large = realloc(large, 100)) && check_all_bytes(large, 100, 0));
	CHECK((large = realloc(large, 2 << 20)) && check_all_bytes(large, 100, 0));
	CHECK((large = realloc(large, LARGE)) && check_all_bytes(large, 100, 0));
	use(large, malloc_usable_size(large), 4096);
	CHECK(malloc_usable_size(large) == cpuslab_malloc_size(LARGE));
	free_sized(large, LARGE);
	large = aligned_alloc(1 << 20, LARGE);
	use(large, LARGE, 1 << 20);
	free_aligned_sized(large, 1 << 20, LARGE);
	/* Large by its alignment alone; realloc changes the recorded size, by however little. */
	large = aligned_alloc(1 << 20, 1749);
	use(large, 1749, 1 << 20);
	CHECK((large = realloc(large, 1700)) && check_all_bytes(large, 1700, 0xff));
	free_sized(large, 1700);
	CHECK(cpuslab_validate("malloc-*") == 0 && cpuslab_validate("malloc-112") == 0);
}

/* Without red zones a program may use all that malloc_usable_size() says, and realloc keeps it. */
static void run_usable(void)
{
	for (size_t size = 1; size <= 256 << 10; size += size / 5 + 1) {
		unsigned char *object = malloc(size);
		size_t usable = malloc_usable_size(object);

		memset(object, 0xff, usable);
		object = realloc(object, usable - (usable - size) / 2);
		CHECK(object && check_all_bytes(object, usable - (usable - size) / 2, 0xff),
		      "%zu bytes, usable %zu", size, usable);
		free(object);
	}
}

/* ---- wrong ones ------------------------------------------------------------------------------------ */

static void *volatile hidden;

static void *hide(void *object)
{
	hidden = object;
	return hidden;
}

static void run_overflow(void)
{
	char *object = hide(malloc(100));

	object[100] = 0;
	free(object);
}

/* Of a class that malloc has only where it is debugged; otherwise these are pages. */
static void run_wide_overflow(void)
{
	char *object = hide(malloc(200000));

	object[200000] = 0;
	free(object);
}

static void run_aligned_overflow(void)
{
	char *object = hide(aligned_alloc(256, 100));

	object[100] = 0;
	free(object);
}

static void run_calloc_overflow(void)
{
	char *object = hide(calloc(40000, 1));

	object[40000] = 1;
	free(object);
}

static void run_grown_overflow(void)
{
	char *object = hide(realloc(malloc(100), 110));

	object[110] = 0;
	free(object);
}

static void run_realloc_overflow(void)
{
	char *object = hide(malloc(100));

	object[101] = 0;
	free(realloc(object, 5000));
}

static void run_large_overflow(void)
{
	char *object = hide(malloc(LARGE));

	object[LARGE] = 0;
	free(object);
}

static void run_large_realloc_overflow(void)
{
	char *object = hide(malloc(LARGE));

	memset(object + LARGE, 1, 8);
	free(realloc(object, 2 * LARGE));
}

static void run_large_sized(void)
{
	free_sized(malloc(LARGE), LARGE - 1);
}

static void run_large_double(void)
{
	char *object = hide(malloc(LARGE));

	free(object);
	free(hidden);
}

static void run_large_inside(void)
{
	char *object = hide(malloc(LARGE));

	free(object + LARGE / 2);
	free(object + 1);
	free(object);
}

static void run_large_realloc_inside(void)
{
	char *object = hide(malloc(LARGE));

	object[LARGE / 2] = 1;
	char *other = hide(realloc(object + LARGE / 2, LARGE));

	CHECK(object[LARGE / 2] == 1 && malloc_usable_size(other) >= LARGE);
	memset(other, 2, LARGE);
	CHECK(object[LARGE / 2] == 1);
	free(other);
	free(object);
}

static void run_large_realloc_freed(void)
{
	free(hide(malloc(LARGE)));
	free(realloc(hidden, 200));
}

static void run_large_validate(void)
{
	char *object = hide(calloc(1, LARGE));

	object[LARGE + 9] = 1;
	CHECK(cpuslab_validate("malloc-large") == 1);
	CHECK(cpuslab_validate("malloc-large") == 0);
	free(object);
}

static void run_sized(void)
{
	free_sized(malloc(100), 99);
}

static void run_double(void)
{
	char *object = hide(malloc(100));

	free(object);
	free(hidden);
}

static void run_inside(void)
{
	free((char *)hide(malloc(100)) + 16);
}

static void run_after_free(void)
{
	char *object = hide(malloc(100));

	free(object);
	((char *)hidden)[20] = 1;
	CHECK(cpuslab_validate("malloc-112") == 1);
	CHECK(cpuslab_validate("malloc-112") == 0);
}

static void run_realloc_freed(void)
{
	free(hide(malloc(100)));
	CHECK(realloc(hidden, 200));
}

/* All of the above, in one process that continues. */
static void run_all(void)
{
	char *keep = malloc(100);

	strcpy(keep, "as it was");
	run_overflow();
	run_aligned_overflow();
	run_calloc_overflow();
	run_grown_overflow();
	run_realloc_overflow();
	run_large_overflow();
	run_large_realloc_overflow();
	run_large_sized();
	run_large_double();
	run_large_inside();
	run_large_realloc_inside();
	run_large_realloc_freed();
	run_large_validate();
	run_sized();
	run_double();
	run_inside();
	run_after_free();
	/* A free object that was written to is not handed out. */
	char *object = hide(malloc(100));

	free(object);
	((char *)hidden)[20] = 1;
	char *next = malloc(100);

	CHECK(next != hidden && next[20] == 0x6b);
	free(next);
	CHECK(strcmp(keep, "as it was") == 0);
	free(keep);
	CHECK(cpuslab_validate(NULL) == 0);
	run_right();
}

static void run_failing(void)
{
	unsigned failed = 0;

	for (int i = 0; i < 1000; i++) {
		errno = 0;
		void *object = malloc(48);

		CHECK(object || errno == ENOMEM);
		failed += !object;
		free(object);
		object = malloc(64);
		CHECK(object);
		free(object);
	}
	CHECK(failed == 100, "%u of 1000 failed", failed);
}

/*
 * 4096 bytes with zones would need a larger order, and get no zones; 33 bytes with zones fit a page as
 * before.
 */
static void run_order(void)
{
	char *object = hide(malloc(4096));

	CHECK(malloc_usable_size(object) == 4096);
	object[4096] = 0;
	free(object);
	CHECK(malloc_usable_size(object = malloc(33)) == 33);
	free(object);
	CHECK(cpuslab_validate(NULL) == 0);
}

static void run_hits(void)
{
	struct cpuslab_counters before, after;

	free(malloc(48));
	cpuslab_read_counters(&before);
	for (int i = 0; i < 1000; i++)
		free(malloc(48));
	cpuslab_read_counters(&after);
	CHECK(after.alloc_misses - before.alloc_misses < 20, "a class that nobody debugs misses");
	CHECK(malloc_usable_size(hide(malloc(100))) == 100);
}

/*
 * An object allocated without waiting has no record; a record of an earlier object there must not make its
 * free fail.
 */
static void run_nowait(void)
{
	for (int i = 0; i < 3; i++) {
		void *before = memset(malloc(LARGE), 1, LARGE);

		free(before);
		void *object = cpuslab_aligned_alloc_nowait(16, LARGE);

		CHECK(object == before);
		free(memset(object, 2, LARGE));
	}
}

static const struct run {
	const char *name;
	void (*function)(void);
	const char *debug, *options;
	const char *said; /* NULL: no output, and the program succeeds; else it is stopped */
	const char *also;
} runs[] = {
	{"right", run_right, "FZPU", "", NULL, NULL},
	{"right_poison", run_right, "FZP", "vcpu:slot", NULL, NULL},
	{"usable", run_usable, "FP", "", NULL, NULL},
	{"usable_zones", run_usable, "FZP", "", NULL, NULL},
	{"overflow", run_overflow, "FZ", "", "BUG malloc-112: Right Redzone overwritten", "requested=100"},
	{"overflow_owner", run_overflow, "FZU", "", "\nAllocated in ", "\nCall stack of thread "},
	{"aligned_overflow", run_aligned_overflow, "FZ", "", "BUG malloc-256: Right Redzone",
	 "requested=100"},
	{"calloc_overflow", run_calloc_overflow, "FZ", "", "BUG malloc-40960: Right Redzone", "0x1 instead"},
	{"grown_overflow", run_grown_overflow, "FZ", "", "BUG malloc-112: Right Redzone", "requested=110"},
	{"realloc_overflow", run_realloc_overflow, "FZ", "", "BUG malloc-112: Right Redzone", "Redzone"},
	{"large_overflow", run_large_overflow, "FZ", "", "BUG malloc-large: Right Redzone overwritten",
	 "requested=1048676"},
	{"large_owner", run_large_overflow, "FZU,malloc-large", "", "\nAllocated in ",
	 "\nCall stack of thread "},
	{"large_realloc_overflow", run_large_realloc_overflow, "FZ,malloc-*", "",
	 "BUG malloc-large: Right Redzone", "0x1 instead of 0xcc"},
	{"large_sized", run_large_sized, "F", "", "BUG malloc-large: Wrong size of a sized free",
	 "requested=1048676"},
	{"large_double", run_large_double, "FU", "", "BUG malloc-large: Object already free", "\nFreed in "},
	{"large_double_zones", run_large_double, "FZPU", "", "BUG malloc-large: Object already free",
	 "\nFreed in "},
	{"nowait", run_nowait, "F", "", NULL, NULL},
	{"nowait_owner", run_nowait, "FU", "", NULL, NULL},
	{"large_inside", run_large_inside, "FU", "", "BUG malloc-large: Invalid object pointer",
	 "\nAllocated in "},
	{"large_inside_zones", run_large_inside, "FZPU", "", "BUG malloc-large: Invalid object pointer",
	 "requested=1048676 allocated"},
	{"large_realloc_inside", run_large_realloc_inside, "FU", "",
	 "BUG malloc-large: Invalid object pointer", "\nAllocated in "},
	{"large_realloc_freed", run_large_realloc_freed, "FZPU", "", "BUG malloc-large: Object already free",
	 "\nFreed in "},
	{"large_unchecked", run_large_overflow, "FZ,malloc-112", "", NULL, NULL},
	{"sized", run_sized, "F", "", "BUG malloc-112: Wrong size of a sized free", "requested=100"},
	{"double", run_double, "FU", "", "BUG malloc-112: Object already free", "\nFreed in "},
	{"inside", run_inside, "F", "", "BUG malloc-112: Invalid object pointer", "allocated"},
	{"realloc_freed", run_realloc_freed, "F", "", "BUG malloc-112: Object already free", "free"},
	{"one_class", run_overflow, "FZ,malloc-112", "", "BUG malloc-112: Right Redzone", "stopping"},
	{"wide_class", run_wide_overflow, "FZ,malloc-212992", "", "BUG malloc-212992: Right Redzone",
	 "requested=200000"},
	{"wide_large", run_wide_overflow, "FZ,malloc-large", "", "BUG malloc-large: Right Redzone",
	 "requested=200000"},
	{"other_class", run_overflow, "FZ,malloc-128", "", NULL, NULL},
	{"hits", run_hits, "FZPU,malloc-112", "", NULL, NULL},
	{"order", run_order, "OFZ", "", NULL, NULL},
	{"failing", run_failing, "A,malloc-48", "failslab:10", NULL, NULL},
};

/* A SIGABRT handler may use and inspect the heap: the thread that stops a program holds no lock. */
static void on_abort(int number)
{
	void *small = malloc(100), *large = malloc(LARGE);

	(void)number;
	free(realloc(small, 5000));
	free(large);
	(void)cpuslab_validate(NULL);
	malloc_trim(0);
}

static int spawn(const char *name, const char *debug, const char *options)
{
	char debug_entry[128], options_entry[128];
	char *arguments[] = {"debug_malloc", (char *)name, NULL};
	char *environment[] = {debug_entry, options_entry, NULL};
	posix_spawn_file_actions_t actions;
	int ends[2];
	size_t length = 0;
	pid_t child;

	snprintf(debug_entry, sizeof debug_entry, "CPUSLAB_DEBUG=%s", debug);
	snprintf(options_entry, sizeof options_entry, "CPUSLAB_OPTIONS=%s", options);
	CHECK(pipe2(ends, O_CLOEXEC) == 0 && posix_spawn_file_actions_init(&actions) == 0);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
	CHECK(posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environment) == 0);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	for (ssize_t got; (got = read(ends[0], text + length, sizeof text - 1 - length)) > 0;)
		length += (size_t)got;
	text[length] = 0;
	close(ends[0]);
	return check_wait(child);
}

static void test_continue(void)
{
	static const char *const found[] = {
		"BUG malloc-112: Right Redzone overwritten",
		"BUG malloc-256: Right Redzone overwritten",
		"BUG malloc-40960: Right Redzone overwritten",
		"BUG malloc-112: Wrong size of a sized free",
		"BUG malloc-112: Object already free",
		"BUG malloc-112: Invalid object pointer",
		"BUG malloc-large: Right Redzone overwritten",
		"BUG malloc-large: Wrong size of a sized free",
		"BUG malloc-large: Object already free",
		"BUG malloc-large: Invalid object pointer",
		"FIX malloc-large: Restoring Right Redzone ",
		"BUG malloc-112: Poison overwritten",
		"FIX malloc-112: Restoring Poison ",
		"FIX malloc-112: Restoring Right Redzone ",
		" not freed\n",
	};
	int status = spawn("all", "FZP", "debug_continue:true");

	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%#x, said: %s", (unsigned)status, text);
	for (size_t i = 0; i < sizeof found / sizeof *found; i++)
		CHECK(strstr(text, found[i]), "not said: %s\nbut: %s", found[i], text);
}

int main(int count, char **arguments)
{
	check_watchdog(100);
	if (count > 1) {
		CHECK(signal(SIGABRT, on_abort) != SIG_ERR);
		if (strcmp(arguments[1], "all") == 0) {
			run_all();
			return 0;
		}
		for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
			if (strcmp(arguments[1], runs[i].name) == 0) {
				runs[i].function();
				return 0;
			}
		return 2;
	}
	for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
		const struct run *run = &runs[i];
		int status = spawn(run->name, run->debug, run->options);

		if (run->said)
			CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, run->said) &&
				      strstr(text, run->also),
			      "%s: %#x, said: %s", run->name, (unsigned)status, text);
		else
			CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0 && !text[0], "%s: %#x, said: %s",
			      run->name, (unsigned)status, text);
	}
	test_continue();
	return 0;
}
