/* SPDX-License-Identifier: MIT */
/*
 * schedules: stops a thread at each instruction of an operation in turn, lets another thread on the same CPU
 * do something that conflicts, and then lets the first go on.  Every instruction that the operation executes
 * is a stop, including those inside restartable sections.  Where the stopped thread holds a lock that the
 * other one needs, the other one waits, and goes on when the first has released it. x86-64 alone: elsewhere
 * the program's main() is here, and the test's own belongs into #ifdef __x86_64__.
 */
#ifndef CPUSLAB_TESTS_SCHEDULES_H
#define CPUSLAB_TESTS_SCHEDULES_H

#include "check.h"

#ifndef __x86_64__

int main(void)
{
	check_skip("debug registers are known here for x86-64 only");
}

#else

#include "still_clock.h" /* otherwise most steps would be spent in ticks */
#include "traced.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* A test's description; all of it but the names is called in the traced child. */
struct schedules {
	const char *const *operations; /* their names */
	unsigned conflicts;
	void (*begin)(void);
	void (*operate)(unsigned operation); /* runs the stopped code between two TRACED_TRAP() */
	void (*conflict)(unsigned kind);     /* run by the other thread */
	void (*check)(void);                 /* after both are done; restores the initial state */
};

struct schedules_count {
	unsigned stops, in_sections, waits;
};

static const struct schedules *schedules;

/* Shared by tracer and child. */
static struct schedules_shared {
	unsigned operation, conflict;
	bool stop;
	uint32_t command, begun, done; /* counts of the other thread's conflicts */
	pid_t other;
	unsigned long rounds;
} *schedules_shared;

/* For messages; NULL where the child may end. */
static const char *traced_doing(void)
{
	static char text[80];
	snprintf(text, sizeof text, "%s, conflict %u, round %lu",
		 schedules->operations[schedules_shared->operation], schedules_shared->conflict,
		 schedules_shared->rounds);
	return schedules_shared->stop ? NULL : text;
}

/* ---- the child -------------------------------------------------------------------------------------- */

static void schedules_futex(uint32_t *word, int operation, uint32_t value)
{
	(void)syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

static void *schedules_be_other(void *unused)
{
	struct schedules_shared *shared = schedules_shared;
	__atomic_store_n(&shared->other, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	for (uint32_t seen = 0;;) {
		while (__atomic_load_n(&shared->command, __ATOMIC_ACQUIRE) == seen)
			schedules_futex(&shared->command, FUTEX_WAIT, seen);
		__atomic_store_n(&shared->begun, ++seen, __ATOMIC_RELEASE);
		schedules->conflict(shared->conflict);
		__atomic_store_n(&shared->done, seen, __ATOMIC_RELEASE);
	}
	return unused;
}

__attribute__((noreturn)) static void schedules_be_traced(void)
{
	struct schedules_shared *shared = schedules_shared;
	CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
	check_pin();
	check_thread(schedules_be_other, NULL);
	while (!__atomic_load_n(&shared->other, __ATOMIC_ACQUIRE))
		sched_yield();
	schedules->begin();
	raise(SIGSTOP);
	while (!shared->stop) {
		schedules->operate(shared->operation);
		while (__atomic_load_n(&shared->done, __ATOMIC_ACQUIRE) !=
		       __atomic_load_n(&shared->command, __ATOMIC_ACQUIRE))
			sched_yield();
		schedules->check();
		shared->rounds++;
	}
	_exit(0);
}

/* ---- the tracer ------------------------------------------------------------------------------------- */

/* Whether the other thread sleeps in the middle of its conflict, waiting for a lock or for a child. */
static bool schedules_other_sleeps(void)
{
	const struct schedules_shared *shared = schedules_shared;
	char path[64], text[256];
	snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)child, (int)shared->other);
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
	CHECK(length > 0);
	close(file);
	text[length] = 0;
	const char *end = strrchr(text, ')');
	return end && end[2] == 'S' && __atomic_load_n(&shared->begun, __ATOMIC_ACQUIRE) == shared->command;
}

/* Lets the other thread run its conflict, until it is done or waits for the stopped one; true if it waits. */
static bool schedules_let_other(void)
{
	struct schedules_shared *shared = schedules_shared;
	__atomic_store_n(&shared->command, shared->command + 1, __ATOMIC_RELEASE);
	schedules_futex(&shared->command, FUTEX_WAKE, 1);
	while (__atomic_load_n(&shared->done, __ATOMIC_ACQUIRE) != shared->command) {
		if (schedules_other_sleeps() &&
		    __atomic_load_n(&shared->done, __ATOMIC_ACQUIRE) != shared->command)
			return true;
		sched_yield();
	}
	return false;
}

/* Every place of the program's text at which the operation stops when it is stepped through. */
extern const char text_start[] __asm__("__executable_start"), text_end[] __asm__("etext");
enum { SCHEDULES_TEXT_MOST = 4 << 20 };
static bool schedules_reached[SCHEDULES_TEXT_MOST];

static void schedules_note(uintptr_t at)
{
	if (at - (uintptr_t)text_start < (size_t)(text_end - text_start))
		schedules_reached[at - (uintptr_t)text_start] = true;
}

/* One round by single steps, with sections in one go: each byte of those may be a place. */
static void schedules_find_places(unsigned operation)
{
	CHECK((size_t)(text_end - text_start) < SCHEDULES_TEXT_MOST);
	memset(schedules_reached, 0, sizeof schedules_reached);
	schedules_shared->operation = operation;
	CHECK(go_on());
	for (;;) {
		CHECK(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0);
		CHECK(wait_trap());
		if (at_own_trap())
			return;
		const struct section *section = section_at(instruction_pointer());
		schedules_note(instruction_pointer());
		if (!section || cpuslab_vcpu_mode() == CPUSLAB_VCPU_THREAD_SLOT)
			continue;
		for (uint64_t at = section->start; at <= section->start + section->length; at++)
			schedules_note(at);
		step_over(section);
		schedules_note(instruction_pointer());
	}
}

/* One round that stops when the operation reaches the place for the n-th time; false if it does not. */
static bool schedules_stop_at(unsigned operation, uintptr_t place, unsigned visit, unsigned kind,
			      unsigned *waits)
{
	schedules_shared->operation = operation;
	CHECK(go_on());
	set_debug_register(0, place);
	set_debug_register(7, 1); /* execution, breakpoint 0 */
	bool hit = false;
	for (unsigned n = 0; n < visit; n++) {
		CHECK(go_on());
		hit = !at_own_trap();
		if (!hit)
			break;
	}
	set_debug_register(7, 0);
	if (!hit)
		return false;
	schedules_shared->conflict = kind;
	*waits += schedules_let_other();
	CHECK(go_on());
	return true;
}

/* Every conflict at one place; returns how many times the operation stopped there. */
static unsigned schedules_at_place(unsigned operation, uintptr_t place, unsigned visit, unsigned *waits)
{
	unsigned stops = 0;
	while (stops < schedules->conflicts && schedules_stop_at(operation, place, visit, stops, waits))
		stops++;
	return stops;
}

/* Starts the child. */
static void schedules_begin(const struct schedules *test)
{
	check_watchdog(100);
	free(malloc(1));
	schedules = test;
	schedules_shared = mmap(NULL, sizeof *schedules_shared, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(schedules_shared != MAP_FAILED);
	traced_begin(schedules_be_traced);
	printf("%s\n", check_mode());
}

/*
 * The step between the places used outside sections.  A sanitizer puts instructions between those of the
 * operation, which change nothing that the other thread sees: there every third of many places is used.
 */
static unsigned schedules_stride(void)
{
#ifdef TEST_SANITIZED
	enum { MANY = 300, THIRD = 3 };
	unsigned places = 0;
	for (size_t i = 0; i < (size_t)(text_end - text_start); i++)
		places += schedules_reached[i];
	return places > MANY && !check_soak() ? THIRD : 1;
#else
	return 1;
#endif
}

/* Each of these places of an operation, at its first visits, with each conflict. */
static struct schedules_count schedules_run(unsigned operation)
{
	unsigned visits = check_soak() ? 30 : 2, nth = 0;
	struct schedules_count count = {0};
	schedules_find_places(operation);
	unsigned stride = schedules_stride();
	for (size_t i = 0; i < (size_t)(text_end - text_start); i++) {
		uintptr_t place = (uintptr_t)text_start + i;
		unsigned stopped = schedules_reached[i];
		if (stopped && !section_at(place) && nth++ % stride != 0)
			continue;
		for (unsigned visit = 1; visit <= visits && stopped; visit++) {
			stopped = schedules_at_place(operation, place, visit, &count.waits);
			count.stops += stopped;
			count.in_sections += section_at(place) ? stopped : 0;
		}
	}
	printf("  %s: stopped %u times, %u of them in sections; the other had to wait %u times\n",
	       schedules->operations[operation], count.stops, count.in_sections, count.waits);
	return count;
}

/* Ends the child. */
static void schedules_end(void)
{
	schedules_shared->stop = true;
	while (go_on())
		;
}

#endif

#endif
