/* SPDX-License-Identifier: MIT */
/*
 * background: one thread that gives memory back, so that no call of the program's does, and so that memory
 * goes back while the program makes no calls.  With the option `background` alone.
 *
 * Owns the thread, its memory, and when it runs.  What it does there is the business of the rooms above,
 * which set it at start (background_begin).  Slow paths of theirs only leave a note (background_note): one
 * load, unless the thread sleeps.
 *
 * The word.  Everything that two threads tell each other here is one word, a futex:
 *
 *   NEVER    the option is off, or the system has refused the thread: callers give back memory themselves
 *   ABSENT   there is no thread yet: the first note makes one
 *   QUIET    the thread has begun a step, and no slow path has run since
 *   ASLEEP   nothing waits, or only time does: the next note wakes the thread
 *   SEEN     a slow path has run: the thread comes back within BACKGROUND_TICK, so nobody wakes it
 *   URGENT   memory is to go back now, because more waits than may
 *
 * The thread stores QUIET before each step, and exchanges QUIET for ASLEEP after it.  If a note came
 * meanwhile the exchange fails, and the next step follows soon.  A note never stores less than it finds, but
 * wakes whoever slept at the value that it replaced; the kernel compares the word once more before it lets
 * the thread sleep.  So no note is lost between a step's last look and the sleep.
 *
 * Which kind of thread.  It is made by the system call, not by pthread_create, which allocates, and which
 * anybody can replace.  So libc does not know it: pthread functions and debuggers' lists of pthreads do not
 * show it, a fork takes no lock for it, and the process ends when the program's own last thread has ended. It
 * has a thread pointer of its own, on which this library's thread-local variables lie, and calls nothing of
 * libc's.  It is registered for no restartable sequences and has no vCPU: it reaches words only from outside,
 * by closing areas (vcpu.h).  It blocks all signals, so that no handler runs on it.  libc's setuid and its
 * like change the credentials of those threads that libc knows: so this one gives up everything but the few
 * system calls that it needs (os_confine_thread), and where the system does not let it, ends at once.
 *
 * Never before main (src/malloc/start_main.c), never by a task that only shares the process's memory, and in
 * a forked child, which does not inherit it, not before a note comes there.  It ends with the process.
 *
 * Lock: none.  Called without locks, as making the thread takes system calls.
 */
#ifndef CPUSLAB_BACKGROUND_H
#define CPUSLAB_BACKGROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "arch/arch.h"

enum { BACKGROUND_TICK = 100 }; /* milliseconds between two steps while the program goes on */
enum { BACKGROUND_NO_TIMER = 0 };

enum background_word {
	BACKGROUND_ABSENT,
	BACKGROUND_QUIET,
	BACKGROUND_ASLEEP,
	BACKGROUND_SEEN,
	BACKGROUND_URGENT,
	BACKGROUND_NEVER
};
extern ARCH_INTERNAL uint32_t background_word;

struct background_work {
	void (*enter)(void); /* the thread's first call */
	/*
	 * Gives back what is due; `seen` tells whether a slow path has run since the last step.  Returns
	 * after how many milliseconds to come again if none runs, or BACKGROUND_NO_TIMER.
	 */
	unsigned (*step)(bool seen);
	intptr_t reach; /* an offset from the thread pointer that the thread uses besides its variables */
};

/* At the library's start, and in a forked child, where the option is on. */
void background_begin(const struct background_work *work);
void background_begin_child(void);
/* Between these calls no thread is made. */
void background_hold(void);
void background_release(void);

/* Whether the option is on and the system has not refused. */
static inline bool background_is_wanted(void)
{
	return __builtin_expect(__atomic_load_n(&background_word, __ATOMIC_RELAXED) != BACKGROUND_NEVER, 0);
}

/* Whether there is a thread: then callers give nothing back. */
static inline bool background_serves(void)
{
	uint32_t word = __atomic_load_n(&background_word, __ATOMIC_RELAXED);

	return __builtin_expect(word != BACKGROUND_NEVER && word != BACKGROUND_ABSENT, 0);
}

void background_rouse(uint32_t wanted);

/*
 * Tells the thread, which is made if there is none, that a slow path has run, or that memory is to go back
 * now. Does nothing where the thread is not wanted, or is the caller.
 */
static inline void background_note(bool urgent)
{
	uint32_t wanted = urgent ? BACKGROUND_URGENT : BACKGROUND_SEEN;

	if (__builtin_expect(__atomic_load_n(&background_word, __ATOMIC_RELAXED) < wanted, 0))
		background_rouse(wanted);
}

/* Names what a reader of this process's memory finds here (see report/root.h). */
void background_show(void (*show)(const char *name, uintptr_t value, size_t size));

#endif
