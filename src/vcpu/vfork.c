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
 */
#include "vcpu/vcpu.h"

#include <errno.h>
#include <signal.h>
#include <sys/single_threaded.h>
#include <sys/types.h>
#include <unistd.h>

#include "os/os.h"

#if ARCH_HAS_RSEQ

/* Of the calling thread, and of its child meanwhile. */
static __thread struct {
	bool handed_over;
	sigset_t mask;
} vfork_state;

__attribute__((used)) void vcpu_before_vfork(void);
__attribute__((used)) long vcpu_after_vfork(long result);

void vcpu_before_vfork(void)
{
	void *area;
	uint32_t bytes;
	sigset_t all;

	vfork_state.handed_over = false;
	if (__libc_single_threaded || !vcpu_registration(&area, &bytes))
		return;
	sigfillset(&all);
	os_signal_mask(&all, &vfork_state.mask);
	/* Fails where the thread never registered: then the child goes without, as everywhere else. */
	vfork_state.handed_over = os_rseq_unregister(area, bytes, ARCH_RSEQ_SIGNATURE) == 0;
	if (!vfork_state.handed_over)
		os_signal_mask(&vfork_state.mask, NULL);
}

/* In the child with 0, in the parent with the child's id or a negative errno. */
long vcpu_after_vfork(long result)
{
	void *area;
	uint32_t bytes;

	if (vfork_state.handed_over && vcpu_registration(&area, &bytes)) {
		sigset_t mask = vfork_state.mask;

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
