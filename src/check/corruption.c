/* SPDX-License-Identifier: MIT */
#include "check/corruption.h"

#include <stdio.h>
#include <stdlib.h>

#include "cpuslab/lock.h"
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

_Noreturn void corruption_abort(const char *cache, const void *pointer, const char *what)
{
	char line[256];
	int length = snprintf(line, sizeof line, "cpuslab: %s: %p: %s (pid %d)\n", cache ? cache : "no cache",
			      pointer, what, (int)os_process_id());

	give_up_walks();
	if (length > 0)
		os_write_error(line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
	abort();
}
