/* SPDX-License-Identifier: MIT */
/*
 * vfork for a process with restartable sequences.
 *
 * A vfork child runs on its parent's memory and thread pointer, beside the parent's other threads.  The
 * kernel does not pass the registration on (rseq(2)): the child's sections would never be aborted, and the
 * vCPU id that they read is the parent's, which by then may be another running thread's.  A child that
 * allocates could then take the same object as that thread.
 *
 * So the registration changes hands.  The parent unregisters before the call; the child registers the same
 * area; and once the child has left the memory by exec or exit, the parent registers again, which also
 * makes the kernel write fresh ids.  The area is never registered for two tasks at once.
 *
 * While the parent is unregistered, none of its sections may run: signals are blocked from before it
 * unregisters until it is registered again, in both tasks.
 *
 * A process with one thread needs none of this: parent and child take turns.  POSIX does not allow a vfork
 * child to allocate at all; these few system calls keep the heap whole even if it does.
 *
 * A program that makes such a child by the system call itself, clone with CLONE_VM, bypasses all this: that
 * child must not allocate while its parent has other threads.  posix_spawn, system and popen make their
 * children so, and libc's code in the child calls nothing of ours.
 */
#include "vcpu/vcpu.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <sys/types.h>
#include <unistd.h>

#include "os/os.h"

#if ARCH_HAS_RSEQ

/*
 * What the second half must know.  It is passed in two registers, which the kernel preserves for each of
 * the two tasks that return.  In memory, which they share, a child that itself calls vfork, or leaves by a
 * jump, would change it for its parent.
 */
struct handing_over {
	uint64_t done;
	uint64_t mask; /* the kernel's bits */
};

__attribute__((used)) struct handing_over vcpu_before_vfork(void);
__attribute__((used)) long vcpu_after_vfork(long result, uint64_t handed_over, uint64_t mask);

static void restore_mask(uint64_t bits)
{
	sigset_t mask;

	sigemptyset(&mask);
	memcpy(&mask, &bits, sizeof bits);
	os_signal_mask(&mask, NULL);
}

struct handing_over vcpu_before_vfork(void)
{
	struct handing_over handing = {0};
	void *area;
	uint32_t bytes;
	sigset_t all, mask;

	if (__libc_single_threaded || !vcpu_registration(&area, &bytes))
		return handing;
	sigfillset(&all);
	os_signal_mask(&all, &mask);
	memcpy(&handing.mask, &mask, sizeof handing.mask);
	/* Fails where the thread was never registered: the child then goes without, as everywhere else. */
	handing.done = os_rseq_unregister(area, bytes, ARCH_RSEQ_SIGNATURE) == 0;
	if (!handing.done)
		restore_mask(handing.mask);
	return handing;
}

/* `result` is 0 in the child, the child's id or a negative errno in the parent. */
long vcpu_after_vfork(long result, uint64_t handed_over, uint64_t mask)
{
	void *area;
	uint32_t bytes;

	if (handed_over && vcpu_registration(&area, &bytes)) {
		os_rseq_register(area, bytes, ARCH_RSEQ_SIGNATURE);
		restore_mask(mask);
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
