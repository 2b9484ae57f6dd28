/* SPDX-License-Identifier: MIT */
/*
 * profile_dumps: other threads go on while one writes the process's own profile.  Here a handler stands for
 * them: it runs between the writer's instructions, from when the writer has collected the sites, and counts
 * as they do.  An object that moves between sites meanwhile, even to a new one, counts once; and even if that
 * never ends, no site has more frees than allocations.
 */
#include "check.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "profile/dump.h"
#include "profile/profile.h"
#include "single_step.h"

#ifndef __x86_64__

int main(void)
{
	check_skip("the trap flag is known here for x86-64 only");
}

#else

enum { FIRST = 0, LAST = PROFILE_SITES - 1, PAGE = 4096, STEPS = 256, MANY = 4096 };

static void (*between)(void);
static unsigned long steps, last_step;

static struct profile_site *site(unsigned number)
{
	return &profile.tables->sites[number];
}

static void set_last_page(int access)
{
	CHECK(mprotect((void *)((uintptr_t)&site(LAST)->ready & -(uintptr_t)PAGE), PAGE, access) == 0);
}

static void on_fault(int signal, siginfo_t *information, void *context)
{
	(void)signal, (void)information;
	set_last_page(PROT_READ | PROT_WRITE);
	((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void on_step(int signal, siginfo_t *information, void *context)
{
	(void)signal, (void)information;
	between();
	if (++steps == last_step)
		((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

static void begin(unsigned number, uint64_t allocated, uint64_t freed)
{
	*site(number) = (struct profile_site){.hash = number + 1,
					      .ready = allocated != 0,
					      .frame_count = 1,
					      .size = 64,
					      .interval = 1,
					      .allocated = allocated,
					      .freed = freed,
					      .frames = {0x1000}};
	profile.samples += allocated;
}

static void add(uint64_t *count)
{
	__atomic_fetch_add(count, 1, __ATOMIC_RELEASE);
}

/* Returns what the first line reports as in use, with `work` run between so many instructions. */
static unsigned long dump(unsigned long to_step, void (*work)(void))
{
	static int file = -1;
	char line[256] = "";
	unsigned long in_use;

	if (file < 0)
		file = memfd_create("profile", MFD_CLOEXEC);
	CHECK(file >= 0 && ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0);
	between = work;
	steps = 0;
	last_step = to_step;
	set_last_page(PROT_NONE);
	CHECK(profile_dump(file, false) == 0);
	CHECK(steps == last_step, "%lu steps", steps);
	CHECK(pread(file, line, sizeof(line) - 1, 0) > 0);
	CHECK(sscanf(line, "heap profile: %lu:", &in_use) == 1, "the first line is %s", line);
	return in_use;
}

static void move(void)
{
	if (steps + 1 != last_step)
		return;
	add(&profile.samples);
	__atomic_store_n(&site(LAST)->ready, 1, __ATOMIC_RELEASE);
	add(&site(LAST)->allocated);
	add(&site(FIRST)->freed);
}

static void come_and_go(void)
{
	add(&site(FIRST)->allocated);
	add(&site(FIRST)->freed);
}

int main(void)
{
	const struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	const struct sigaction step = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
	unsigned long in_use;

	check_watchdog(300);
	CHECK(sigaction(SIGSEGV, &fault, NULL) == 0 && sigaction(SIGTRAP, &step, NULL) == 0);
	profile.wanted = 1;
	CHECK(profile_settle());

	for (unsigned new = 0; new < 2; new ++)
		for (unsigned long when = 1; when < STEPS; when++) {
			profile.samples = 0;
			begin(FIRST, 7, 2);
			begin(LAST, new ? 0 : 4, new ? 0 : 4);
			in_use = dump(when, move);
			CHECK(in_use == 5, "%lu samples in use, and 5 at each moment; %s, at step %lu",
			      in_use, new ? "to a new site" : "to another site", when);
		}

	profile.samples = 0;
	begin(FIRST, 7, 2);
	begin(LAST, 4, 4);
	in_use = dump(MANY, come_and_go);
	CHECK(in_use >= 5 && in_use < 5 + 64, "%lu samples in use, and 5 or 6 at each moment", in_use);
	return 0;
}

#endif
