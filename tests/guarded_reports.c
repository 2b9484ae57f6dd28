/* SPDX-License-Identifier: MIT */
/*
 * Each error that an object between guard pages reveals, and its report: what happened, where in the object,
 * and the stacks of the access, the allocation and the free.  And how faults that do not concern such an
 * object, or that the program wants to see as well, reach the program's own handler.
 */
#include "check.h"

#include <setjmp.h>
#include <sys/syscall.h>

#include <cpuslab/cache.h>

enum { SIZE = 100, ROUNDED = 112, PAGE = 4096 };

static char text[64 << 10];

static int run(void (*function)(void *), void *argument)
{
	return check_child(function, argument, text, sizeof text);
}

#define CHECK_SAID(expected)       CHECK(strstr(text, expected), "not said: %s\nbut: %s", expected, text)
#define CHECK_NOT_SAID(unexpected) CHECK(!strstr(text, unexpected), "said: %s", text)

static void killed_by(int status, int number)
{
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == number, "status %#x, said: %s", (unsigned)status,
	      text);
}

/* Counts the frames of the stack after a title. */
static unsigned frames_after(const char *title)
{
	const char *line = strstr(text, title);
	unsigned frames = 0;

	CHECK(line, "no '%s' in: %s", title, text);
	while ((line = strchr(line, '\n')) && strncmp(++line, "    ", 4) == 0)
		frames++;
	return frames;
}

static bool ends_its_pages(const char *object)
{
	return (uintptr_t)(object + ROUNDED) % PAGE == 0;
}

/* An object at the wanted end of its pages; both ends are equally likely. */
__attribute__((noinline)) static char *object_at(bool end)
{
	for (;;) {
		char *object = malloc(SIZE);

		CHECK(object);
		if (ends_its_pages(object) == end)
			return object;
		free(object);
	}
}

static volatile char sink;

/* An address outside the library's memory. */
__attribute__((noinline)) static volatile char *nowhere(uintptr_t address)
{
	volatile uintptr_t kept = address;

	return (volatile char *)kept;
}

/* ---- accesses -------------------------------------------------------------------------------------- */

struct access {
	bool end;   /* the end of its pages at which the object lies */
	bool freed; /* before the access */
	bool write;
	long offset;
	const char *expected;
};

static void do_access(void *argument)
{
	const struct access *access = argument;
	char *object = object_at(access->end);

	memset(object, 1, SIZE);
	if (access->freed)
		free(object);
	if (access->write)
		*(volatile char *)(object + access->offset) = 1;
	else
		sink = *(volatile char *)(object + access->offset);
}

static void accesses(void)
{
	static const struct access all[] = {
		{true, false, true, ROUNDED, "Overflow (write)"},
		{true, false, false, ROUNDED, "Overflow (read)"},
		{true, false, false, ROUNDED + PAGE - 1, "Overflow (read)"},
		{false, false, true, PAGE, "Overflow (write)"},
		{false, false, true, -1, "Underflow (write)"},
		{false, false, false, -8, "Underflow (read)"},
		{true, false, false, ROUNDED - PAGE - 1, "Underflow (read)"},
		{true, true, true, 0, "Use after free (write)"},
		{true, true, false, SIZE - 1, "Use after free (read)"},
		{false, true, false, 8, "Use after free (read)"},
		{false, true, true, SIZE, "Use after free (write)"},
	};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		char place[64];

		killed_by(run(do_access, (void *)&all[i]), SIGSEGV);
		CHECK_SAID(all[i].expected);
		snprintf(place, sizeof place, "is at offset %ld of an object of %d bytes at ", all[i].offset,
			 SIZE);
		CHECK_SAID(place);
		CHECK_SAID(all[i].freed ? ", freed" : ", in use");
		CHECK(frames_after("Call stack of thread ") >= 2, "%s", text);
		CHECK(frames_after("Allocated by thread ") >= 2, "%s", text);
		if (all[i].freed)
			CHECK(frames_after("Freed by thread ") >= 2, "%s", text);
		else
			CHECK_NOT_SAID("Freed by");
	}
}

/* ---- frees ----------------------------------------------------------------------------------------- */

extern void free_sized(void *object, size_t size) __attribute__((weak));

static void free_twice(void *unused)
{
	char *object = malloc(SIZE);

	(void)unused;
	free(object);
	free(object);
}

static void free_inside(void *unused)
{
	(void)unused;
	char *object = malloc(SIZE);
	free(object + 16);
}

static void free_nothing(void *unused)
{
	(void)unused;
	/* The guard page before an object. */
	free(object_at(false) - PAGE / 2);
}

static void free_too_large(void *unused)
{
	(void)unused;
	free_sized(malloc(SIZE), SIZE + 1);
}

static void free_after_overflow(void *unused)
{
	char *object = object_at(true);

	(void)unused;
	object[SIZE] = 0;
	free(object);
}

static void free_after_underflow(void *unused)
{
	char *object = object_at(true);

	(void)unused;
	*(object - 1) = 0;
	free(object);
}

static void resize_freed(void *unused)
{
	char *object = malloc(SIZE);

	(void)unused;
	free(object);
	sink = *(char *)realloc(object, 2 * SIZE);
}

static void frees(void)
{
	static const struct {
		void (*function)(void *);
		const char *expected;
	} all[] = {
		{free_twice, "Double free"},
		{free_inside, "Invalid free"},
		{free_nothing, "Invalid free"},
		{free_too_large, "Wrong size of a sized free"},
		{free_after_overflow, "Overflow, found at the free"},
		{free_after_underflow, "Underflow, found at the free"},
		{resize_freed, "realloc of a pointer"},
	};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		killed_by(run(all[i].function, NULL), SIGABRT);
		CHECK_SAID(all[i].expected);
		if (all[i].function != resize_freed)
			CHECK(frames_after("Allocated by thread ") >= 2, "%s", text);
	}
	run(free_twice, NULL);
	CHECK(frames_after("Freed by thread ") >= 2, "%s", text);
}

/* ---- the program's own handler --------------------------------------------------------------------- */

static sigjmp_buf resume;
static void *volatile fault_address;
static struct sigaction before;

static void leave(int number, siginfo_t *information, void *context)
{
	(void)number;
	(void)context;
	fault_address = information->si_addr;
	siglongjmp(resume, 1);
}

static void pass_on(int number, siginfo_t *information, void *context)
{
	static const char said[] = "passed on\n";

	CHECK(write(STDERR_FILENO, said, sizeof said - 1) > 0);
	if (before.sa_flags & SA_SIGINFO)
		before.sa_sigaction(number, information, context);
}

static void install(void (*handler)(int, siginfo_t *, void *))
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};

	CHECK(sigaction(SIGSEGV, &action, &before) == 0);
	/* The next picked object finds the program's handler. */
	free(malloc(SIZE));
}

/*
 * A handler that always leaves by a jump hears of every fault, guarded or not, with the fault's own address.
 */
static void handler_leaves(void *unused)
{
	char *volatile object = object_at(true);

	(void)unused;
	free(object);
	install(leave);
	for (int i = 0; i < 3; i++) {
		if (!sigsetjmp(resume, 1))
			sink = object[i];
		CHECK(fault_address == object + i);
		if (!sigsetjmp(resume, 1))
			sink = *nowhere(8 + i);
		CHECK(fault_address == nowhere(8 + i));
	}
}

/* A handler that calls the one it found, ours, does not get the same fault for ever. */
static void handler_passes_on(void *argument)
{
	char *object = object_at(true);

	install(pass_on);
	if (argument)
		free(object);
	else
		object = (char *)nowhere(16);
	sink = *(volatile char *)object;
}

static void say(int number, siginfo_t *information, void *context)
{
	static unsigned calls;

	(void)number;
	(void)information;
	(void)context;
	CHECK(write(STDERR_FILENO, "said\n", 5) > 0);
	if (++calls > 1)
		_exit(1);
}

/* A one-shot handler returns, and the same fault then ends the program. */
static void handler_once(void *argument)
{
	struct sigaction action = {.sa_sigaction = say, .sa_flags = SA_SIGINFO | (int)SA_RESETHAND};
	char *object = object_at(true);

	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	free(malloc(SIZE));
	if (argument)
		free(object);
	else
		object = (char *)nowhere(16);
	sink = *(volatile char *)object;
}

static void bad_pointer(void *unused)
{
	(void)unused;
	free(malloc(SIZE));
	sink = *nowhere(16);
}

static void sent_signal(void *argument)
{
	free(malloc(SIZE));
	if (argument) {
		signal(SIGSEGV, SIG_IGN);
		free(malloc(SIZE));
	}
	raise(SIGSEGV);
}

/* Carries the address of such an object, which has another meaning in a signal that was sent. */
static void sent_address(void *unused)
{
	char *object = object_at(true);
	siginfo_t information = {.si_signo = SIGSEGV, .si_code = SI_QUEUE};

	(void)unused;
	free(object);
	information.si_addr = object;
	CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), SIGSEGV, &information) == 0);
}

static void go_on(void *unused)
{
	char *object = object_at(true);

	(void)unused;
	free(object);
	object[0] = 1;
	object[1] = 1;
	free(object);
	CHECK(malloc(SIZE));
}

static unsigned count(const char *what)
{
	unsigned found = 0;

	for (const char *at = text; (at = strstr(at, what)); at++)
		found++;
	return found;
}

static void handlers(void)
{
	CHECK_EXITED(run(handler_leaves, NULL), 0);
	CHECK(count("BUG guarded: Use after free (read)") == 1, "%s", text);

	killed_by(run(handler_passes_on, (void *)1), SIGSEGV);
	CHECK(count("BUG guarded") == 1 && count("passed on") == 1, "%s", text);
	killed_by(run(handler_passes_on, NULL), SIGSEGV);
	CHECK(count("BUG guarded") == 0 && count("passed on") == 1, "%s", text);

	killed_by(run(handler_once, (void *)1), SIGSEGV);
	CHECK(count("BUG guarded") == 1 && count("said") == 1, "%s", text);
	killed_by(run(handler_once, NULL), SIGSEGV);
	CHECK(count("BUG guarded") == 0 && count("said") == 1, "%s", text);

	killed_by(run(bad_pointer, NULL), SIGSEGV);
	CHECK(!text[0], "%s", text);
	killed_by(run(sent_signal, NULL), SIGSEGV);
	CHECK_EXITED(run(sent_signal, (void *)1), 0);
	killed_by(run(sent_address, NULL), SIGSEGV);
	CHECK(!text[0], "%s", text);
}

/* ---- object caches --------------------------------------------------------------------------------- */

static struct cpuslab_cache *create_cache(const char *name, void (*constructor)(void *), size_t align)
{
	struct cpuslab_cache *cache = cpuslab_cache_create(&(struct cpuslab_cache_args){
		.name = name, .size = SIZE, .align = align, .constructor = constructor});

	CHECK(cache);
	return cache;
}

static void cache_written_past(void *unused)
{
	volatile char *object = cpuslab_cache_alloc(create_cache("guarded", NULL, 0));

	(void)unused;
	object[PAGE] = 1;
}

static void cache_read_after_free(void *unused)
{
	struct cpuslab_cache *cache = create_cache("guarded", NULL, 0);
	char *object = cpuslab_cache_alloc(cache);

	(void)unused;
	cpuslab_cache_free(cache, object);
	sink = *(volatile char *)object;
}

static void cache_freed_twice(void *unused)
{
	struct cpuslab_cache *cache = create_cache("guarded", NULL, 0);
	void *object = cpuslab_cache_alloc(cache);

	(void)unused;
	cpuslab_cache_free(cache, object);
	cpuslab_cache_free(cache, object);
}

static void cache_freed_inside(void *unused)
{
	struct cpuslab_cache *cache = create_cache("guarded", NULL, 0);

	(void)unused;
	cpuslab_cache_free(cache, (char *)cpuslab_cache_alloc(cache) + 8);
}

static void cache_freed_to_another(void *unused)
{
	struct cpuslab_cache *cache = create_cache("guarded", NULL, 0);

	(void)unused;
	cpuslab_cache_free(create_cache("another", NULL, 64), cpuslab_cache_alloc(cache));
}

static void cache_freed_from_malloc(void *unused)
{
	(void)unused;
	cpuslab_cache_free(create_cache("guarded", NULL, 0), malloc(SIZE));
}

/* Lies in the pool if its usable size is the requested one, which is no class's size. */
static bool is_guarded(void *object)
{
	return malloc_usable_size(object) == SIZE;
}

static void construct(void *object)
{
	memset(object, 0x5a, SIZE);
}

static void cache_kept_whole(void *unused)
{
	struct cpuslab_cache *plain = create_cache("plain", NULL, 0);
	struct cpuslab_cache *constructed = create_cache("constructed", construct, 0);
	struct cpuslab_cache *aligned = create_cache("aligned", NULL, 128);
	void *object = cpuslab_cache_alloc(plain);

	(void)unused;
	CHECK(is_guarded(object));
	CHECK(cpuslab_cache_destroy(plain) == -1 && errno == EBUSY);
	free(object);
	CHECK(cpuslab_cache_destroy(plain) == 0);
	for (unsigned i = 0; i < 100; i++) {
		object = cpuslab_cache_alloc(constructed);
		CHECK(!is_guarded(object) && check_all_bytes(object, SIZE, 0x5a));
		object = cpuslab_cache_alloc(aligned);
		CHECK((uintptr_t)object % 128 == 0);
	}
	void *objects[100];

	CHECK(cpuslab_cache_alloc_bulk(aligned, 100, objects) == 100);
	cpuslab_cache_free_bulk(aligned, 100, objects);
}

static void caches(void)
{
	static const struct {
		void (*function)(void *);
		int number;
		const char *expected;
	} all[] = {
		{cache_written_past, SIGSEGV, "Overflow (write)"},
		{cache_read_after_free, SIGSEGV, "Use after free (read)"},
		{cache_freed_twice, SIGABRT, "Double free"},
		{cache_freed_inside, SIGABRT, "Invalid free"},
		{cache_freed_to_another, SIGABRT, "free of a pointer that is not an object of this cache"},
		{cache_freed_from_malloc, SIGABRT, "free of a pointer that is not an object of this cache"},
	};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		killed_by(run(all[i].function, NULL), all[i].number);
		CHECK_SAID(all[i].expected);
	}
	CHECK_EXITED(run(cache_kept_whole, NULL), 0);
	CHECK_SAID("plain: 0x");
	CHECK_SAID("still allocated as its cache is destroyed");
}

int main(int argc, char **argv)
{
	if (argc == 1) {
		check_again("guard:1,guard_second:0,guard_cost:0", "stopping");
		check_again("guard:1,guard_second:0,guard_cost:0,vcpu:slot", "stopping");
		check_again("guard:1,guard_second:0,guard_cost:0,debug_continue:true", "going on");
		return 0;
	}
	if (strcmp(argv[1], "stopping") == 0) {
		accesses();
		frees();
		handlers();
		caches();
		return 0;
	}
	CHECK_EXITED(run(go_on, NULL), 0);
	CHECK(count("BUG guarded: Use after free (write)") == 1, "%s", text);
	CHECK(count("BUG guarded: Double free") == 1, "%s", text);
	return 0;
}
