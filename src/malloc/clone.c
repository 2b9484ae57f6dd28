/* SPDX-License-Identifier: MIT */
/*
 * clone: libc's function, for children that run in their parent's memory.
 *
 * The kernel drops the registration for restartable sequences of a task that shares its maker's memory, and
 * libc registers only those that it makes itself.  So what such a task finds at the thread pointer decides:
 *
 *   its maker's, who is suspended (CLONE_VFORK)   the registration changes hands, as around vfork
 * (vcpu/vfork.c) its maker's, who runs on beside it            both do without a vCPU until the task has
 * ended: slow, and safe its own (CLONE_SETTLS)                        it registers its area before it begins
 *
 * A child with memory of its own needs none of this.  Signals are blocked from before the call until each of
 * the two tasks has its place, since a handler may allocate.
 *
 * Calls libc's clone by its other name, which is not in this library.  A task made by the bare system call
 * has no place here: it must not allocate while others do (docs/linking.md).
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "malloc/malloc.h"
#include "process/process.h"
#include "os/os.h"
#include "vcpu/vcpu.h"

#ifdef __GLIBC__ /* musl's function has no other name: what it makes must not allocate beside other threads  \
		  */

extern int __clone(int (*function)(void *), void *stack, int flags, void *argument, ...);

/* What the child needs, on its own stack: its maker may be gone by then. */
struct start {
	int (*function)(void *);
	void *argument;
	struct vcpu_handing handing; /* with CLONE_VFORK */
	sigset_t mask;               /* without */
	bool is_thread;              /* has a thread pointer of its own that libc could have made */
};

/* The arguments behind the fourth, of which callers pass those that their flags ask for. */
struct places {
	pid_t *parent;
	void *pointer;
	pid_t *child;
};

static int begin_suspending(void *started)
{
	const struct start *start = started;

	vcpu_end_handing(start->handing, true);
	return start->function(start->argument);
}

static int begin_beside(void *started)
{
	const struct start *start = started;

	if (start->is_thread)
		vcpu_begin_thread();
	os_signal_mask(&start->mask, NULL);
	return start->function(start->argument);
}

/* A thread pointer of libc's points at itself, in two of the first words; with another, nothing is touched.
 */
static bool is_thread_pointer(void *const *pointer)
{
#ifdef __x86_64__
	return pointer && pointer[0] == pointer && pointer[2] == pointer;
#else
	return pointer;
#endif
}

static int clone_suspending(struct start *start, int flags, const struct places *places)
{
	start->handing = vcpu_before_vfork();
	struct vcpu_handing handing = start->handing; /* the child may have overwritten its stack's top */
	int result = __clone(begin_suspending, start, flags, start, places->parent, places->pointer,
			     places->child);

	vcpu_end_handing(handing, false);
	return result;
}

static int clone_beside(struct start *start, int flags, struct places places)
{
	sigset_t all, mask;
	uint32_t *alive = NULL;

	memset(&all, 0xff, sizeof all);
	os_signal_mask(&all, &mask);
	start->mask = mask;
	if (flags & CLONE_SETTLS) {
		start->is_thread = is_thread_pointer(places.pointer);
	} else {
		/* The kernel can be told one word for each task. */
		alive = vcpu_share(!(flags & (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID)));
		if (alive) {
			flags |= CLONE_CHILD_CLEARTID;
			places.child = (pid_t *)alive;
		}
	}
	int result = __clone(begin_beside, start, flags, start, places.parent, places.pointer, places.child);

	if (result < 0 && alive)
		__atomic_store_n(alive, 0, __ATOMIC_RELEASE);
	os_signal_mask(&mask, NULL);
	return result;
}

EXPORT int clone(int (*function)(void *), void *stack, int flags, void *argument, ...)
{
	struct places places;
	va_list list;

	va_start(list, argument);
	places.parent = va_arg(list, pid_t *);
	places.pointer = va_arg(list, void *);
	places.child = va_arg(list, pid_t *);
	va_end(list);
	if (!(flags & CLONE_VM) || !function || !stack || !process_enter())
		return __clone(function, stack, flags, argument, places.parent, places.pointer, places.child);

	struct start *start = (struct start *)(((uintptr_t)stack - sizeof *start) & ~(uintptr_t)15);

	*start = (struct start){.function = function, .argument = argument};
	if (flags & CLONE_VFORK && !(flags & CLONE_SETTLS))
		return clone_suspending(start, flags, &places);
	return clone_beside(start, flags, places);
}

#endif
