/* SPDX-License-Identifier: MIT */
/*
 * page_huge_forks: a child forked at any instruction of the code that gives mappings back to the system finds
 * each of them complete, with its own address and length, or not at all.
 *
 *   stranded    what the system did not take at first is given back: the child may get its address for
 *               another object
 *   retired     isolated, a freed mapping takes the place of another one, which goes
 *
 * The thread single-steps, and the handler of the trap forks.
 */
#include "check.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include "options/options.h"
#include "page/page.h"
#include "single_step.h"

#ifndef __x86_64__

int main(void)
{
	check_skip("single steps are known here for x86-64 only");
}

#else

/* ---- mappings: each is unmapped exactly as it was mapped ------------------------------------------- */

enum { MOST = 4096 };
static struct {
	char *address;
	size_t bytes;
} mapped[MOST];
static size_t mapped_end;
static bool refuses; /* the system does not take memory back */

void *mmap(void *hint, size_t bytes, int protection, int flags, int file, off_t offset)
{
	char *address = (char *)syscall(SYS_mmap, hint, bytes, protection, flags, file, offset);
	if (address != MAP_FAILED && !(flags & MAP_FIXED) && mapped_end < MOST) {
		mapped[mapped_end].address = address;
		mapped[mapped_end++].bytes = bytes;
	}
	return address;
}

static bool checks; /* that what is unmapped is what was mapped */
/* Single steps: from the next purge to the munmap() behind it, and behind the next munmap(). */
static bool steps_between, steps_behind;

int madvise(void *address, size_t bytes, int advice)
{
	int result = (int)syscall(SYS_madvise, address, bytes, advice);
	if (steps_between)
		step_from_here();
	return result;
}

int munmap(void *address, size_t bytes)
{
	if (steps_between)
		step_to_here();
	if (refuses) {
		errno = ENOMEM;
		return -1;
	}
	size_t i = mapped_end;
	while (i > 0 && mapped[i - 1].address != address)
		i--;
	CHECK(!checks || i > 0, "%p was never mapped", address);
	CHECK(!checks || mapped[i - 1].bytes == bytes, "%zu bytes of the %zu at %p are given back", bytes,
	      mapped[i - 1].bytes, address);
	if (i > 0)
		mapped[i - 1] = mapped[--mapped_end];
	int result = (int)syscall(SYS_munmap, address, bytes);
	if (steps_behind)
		step_from_here();
	return result;
}

/* ---- forks --------------------------------------------------------------------------------------------- */

static void (*live_on)(void);
static unsigned long forks;

static void on_trap(int signal_number)
{
	(void)signal_number;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		check_watchdog(60);
		page_repair(false);
		live_on();
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
	forks++;
}

static char *take(size_t pages)
{
	bool zeroed;
	char *object = huge_alloc(pages * PAGE_BYTES, 1, &zeroed);
	CHECK(object && huge_bytes(object) == pages * PAGE_BYTES, "%zu pages at %p, of which %zu are known",
	      pages, (void *)object, object ? huge_bytes(object) / PAGE_BYTES : 0);
	*object = 1;
	return object;
}

/* ---- stranded ------------------------------------------------------------------------------------------ */

enum { STRANDED_PAGES = 11, TRIES = 8 };
static char *stranded_at;

static void use_its_address(void)
{
	steps_behind = false;
	char *objects[TRIES];
	for (int i = 0; i < TRIES; i++)
		objects[i] = take(STRANDED_PAGES);
	huge_purge(true);
	for (int i = 0; i < TRIES; i++) {
		CHECK(msync(objects[i], PAGE_BYTES, MS_ASYNC) == 0, "%p is gone", (void *)objects[i]);
		CHECK(huge_bytes(objects[i]) == STRANDED_PAGES * PAGE_BYTES && *objects[i] == 1);
		CHECK(huge_free(objects[i]) && huge_bytes(objects[i]) == 0);
	}
}

static void test_stranded(void)
{
	options.decay = 0; /* nothing is cached */
	for (int i = 0; i < 3; i++)
		(void)take(1 + i);
	stranded_at = take(STRANDED_PAGES);
	refuses = true;
	CHECK(huge_free(stranded_at) && huge_bytes(stranded_at) == 0);
	CHECK(msync(stranded_at, PAGE_BYTES, MS_ASYNC) == 0);
	refuses = false;
	live_on = use_its_address;
	steps_behind = true;
	huge_purge(true);
	step_to_here();
	steps_behind = false;
	CHECK(msync(stranded_at, PAGE_BYTES, MS_ASYNC) != 0, "it is still there");
}

/* ---- retired ------------------------------------------------------------------------------------------- */

static void give_all_back(void)
{
	steps_between = false;
	checks = true;
	huge_purge(true);
}

static void test_retired(void)
{
	enum { PLACES = 256, FILL = 8 * PLACES };
	huge_isolate();
	/* Mappings of different lengths in about every place. */
	for (size_t i = 0; i < FILL; i++)
		CHECK(huge_free(take(1 + i % 200)));
	live_on = give_all_back;
	char *object = take(300);
	steps_between = true;
	CHECK(huge_free(object));
	step_to_here();
	steps_between = false;
	give_all_back();
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_trap};
	bool retires = argc > 1 && strcmp(argv[1], "retired") == 0;
	check_watchdog(100);
	free(malloc(1));
	CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
	if (retires)
		test_retired();
	else
		test_stranded();
	printf("%lu forks\n", forks);
	CHECK(forks > 20);
	return 0;
}

#endif
