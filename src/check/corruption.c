/* SPDX-License-Identifier: MIT */
#include "check/corruption.h"

#include <stdio.h>
#include <stdlib.h>

#include "check/text.h"
#include "check/unwind.h"
#include "cpuslab/lock.h"
#include "options/options.h"
#include "os/os.h"

static __thread struct cpuslab_spinlock *locks_of_walks[2];

static void note_walk(struct cpuslab_spinlock *lock)
{
	locks_of_walks[locks_of_walks[0] != NULL] = lock;
}

void corruption_begin_walk(struct cpuslab_spinlock *lock)
{
	cpuslab_spin_lock(lock);
	note_walk(lock);
}

bool corruption_try_walk(struct cpuslab_spinlock *lock)
{
	if (!cpuslab_spin_trylock(lock))
		return false;
	note_walk(lock);
	return true;
}

void corruption_end_walk(struct cpuslab_spinlock *lock)
{
	locks_of_walks[locks_of_walks[0] != lock] = NULL;
	cpuslab_spin_unlock(lock);
}

static void give_up_walks(void)
{
	for (unsigned i = 0; i < 2; i++) {
		struct cpuslab_spinlock *lock = locks_of_walks[i];

		locks_of_walks[i] = NULL;
		if (lock)
			cpuslab_spin_unlock(lock);
	}
}

/*
 * Writes the callers' stack, innermost first, each line by itself: the report's buffer may be another
 * thread's, and this one's stack may be short.  Reads code, unwind tables and the stack, but not the heap.
 */
static __attribute__((noinline)) void write_callers(void)
{
	enum { CALLERS = 24 };
	uintptr_t frame[CALLERS];
	unsigned count = unwind_callers(frame, CALLERS);

	for (unsigned i = 0; i < count; i++) {
		char line[TEXT_LINE] = "    ";
		int length = 4 + text_code(line + 4, sizeof line - 5, frame[i]);

		if (length < 4)
			continue;
		if ((size_t)length > sizeof line - 2)
			length = sizeof line - 2;
		line[length] = '\n';
		os_write_error(line, (size_t)length + 1);
	}
}

_Noreturn void corruption_abort(const char *cache, const void *pointer, const char *what)
{
	char line[256];
	int length = snprintf(line, sizeof line, "cpuslab: %s: %p: %s (pid %d)\n", cache ? cache : "no cache",
			      pointer, what, (int)os_process_id());

	give_up_walks();
	if (length > 0)
		os_write_error(line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
	if (options.hardened)
		write_callers();
	abort();
}
