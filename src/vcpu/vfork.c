/* SPDX-License-Identifier: MIT */
/*
 * vfork for a process with restartable sequences.
 *
 * A vfork child runs on its parent's memory and thread pointer, beside the parent's other threads.  The
 * kernel does not pass the registration on (rseq(2)): the child's sections would never be aborted, and the
 * vCPU id that they read is the parent's, which by then may be another running thread's.  A child that
 * allocates could then take the same object as that thread.
 *
 * So the registration changes hands.  The parent gives its own up before the call, the child makes one on the
 * same area, and when the parent runs again (the child has left the memory by exec or exit) it makes its own
 * anew, which also has the kernel write fresh ids.  At no time do two tasks have the area registered.
 *
 * While the parent has none, no section may run on it: signals are blocked from before it is given up until
 * it is back, in each of the two.
 *
 * A process with one thread needs none of this: parent and child take turns.  POSIX allows a vfork child no
 * allocation at all; this costs a few system calls, and the heap stays whole all the same.
 *
 * A program that makes such a child by the system call itself, clone with CLONE_VM, comes past all this: a
 * child of that kind must not allocate while its parent has other threads.  posix_spawn, system and popen are
 * made so, and libc's child calls nothing of ours.
 */
#include "vcpu/vcpu.h"

#include <errno.h>
#include <signal.h>
#include <sys/single_threaded.h>
#include <sys/types.h>
#include <unistd.h>

#include "os/os.h"

#if ARCH_HAS_RSEQ

/*
 * Of the calling thread, and of its child meanwhile, which may call vfork, too, in the same memory.  What is
 * nested deeper than this goes without.
 */
enum { NESTED_MOST = 2 };

static __thread struct {
	unsigned depth;
	struct {
		bool handed_over;
		sigset_t mask;
	} nested[NESTED_MOST];
} vfork_state;

__attribute__((used)) void vcpu_before_vfork(void);
__attribute__((used)) long vcpu_after_vfork(long result);

void vcpu_before_vfork(void)
{
	unsigned depth = vfork_state.depth++;
	void *area;
	uint32_t bytes;
	sigset_t all, mask;

	if (depth >= NESTED_MOST)
		return;
	vfork_state.nested[depth].handed_over = false;
	if (__libc_single_threaded || !vcpu_registration(&area, &bytes))
		return;
	sigfillset(&all);
	os_signal_mask(&all, &mask);
	vfork_state.nested[depth].mask = mask;
	/* Fails where the thread never registered: then the child goes without, as everywhere else. */
	vfork_state.nested[depth].handed_over = os_rseq_unregister(area, bytes, ARCH_RSEQ_SIGNATURE) == 0;
	if (!vfork_state.nested[depth].handed_over)
		os_signal_mask(&mask, NULL);
}

/* In the child with 0, in the parent with the child's id or a negative errno. */
long vcpu_after_vfork(long result)
{
	unsigned depth = vfork_state.depth - 1;
	void *area;
	uint32_t bytes;

	/* The child never comes back here from the call that the parent comes back from. */
	if (result != 0)
		vfork_state.depth = depth;
	if (depth < NESTED_MOST && vfork_state.nested[depth].handed_over &&
	    vcpu_registration(&area, &bytes)) {
		sigset_t mask = vfork_state.nested[depth].mask;

		os_rseq_register(area, bytes, ARCH_RSEQ_SIGNATURE);
		os_signal_mask(&mask, NULL);
	}
	if (result < 0) {
		errno = (int)-result;
		return -1;
	}
	return result;
}

extern __attribute__((visibility("default"))) pid_t vfork(void);
ARCH_DEFINE_VFORK(vcpu_before_vfork, vcpu_after_vfork);

#endif
