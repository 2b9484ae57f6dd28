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
 * A child of clone() with CLONE_VM and CLONE_VFORK is the same case (malloc/clone.c).  posix_spawn, system
 * and popen make their children so inside libc, past both; its code in the child calls nothing of ours.
 */
#include "vcpu/vcpu.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <sys/types.h>
#include <unistd.h>

#include "os/os.h"

static void restore_mask(uint64_t bits)
{
	sigset_t mask;

	memset(&mask, 0, sizeof mask);
	memcpy(&mask, &bits, sizeof bits);
	os_signal_mask(&mask, NULL);
}

/*
 * What the second half must know is passed in two registers, which the kernel preserves for each of the two
 * tasks that return.  In memory, which they share, a child that itself calls vfork, or leaves by a jump,
 * would change it for its parent.
 */
__attribute__((used)) struct vcpu_handing vcpu_before_vfork(void)
{
	struct vcpu_handing handing = {0};
	sigset_t all, mask;

	if (__libc_single_threaded)
		return handing;
	if (vcpu_mode() == CPUSLAB_VCPU_THREAD_SLOT) {
		handing.done = (uintptr_t)vcpu_hand_slot();
		return handing;
	}
	/* The child is one more task on this pointer, which must not take the vCPU back. */
	if (vcpu_shares()) {
		handing.done = (uintptr_t)vcpu_share(true);
		return handing;
	}
	memset(&all, 0xff, sizeof all);
	os_signal_mask(&all, &mask);
	memcpy(&handing.mask, &mask, sizeof handing.mask);
	int flags = vcpu_unregister();

	/* If the thread was never registered, the child goes without, as everywhere else. */
	if (flags == VCPU_UNREGISTERED)
		restore_mask(handing.mask);
	else
		handing.done = 1 + (uint64_t)flags;
	return handing;
}

void vcpu_end_handing(struct vcpu_handing handing, bool is_child)
{
	if (handing.done > 1 + ARCH_RSEQ_REGISTER_SLICES) {
		if (!is_child)
			__atomic_store_n((uint32_t *)handing.done, 0, __ATOMIC_RELEASE);
	} else if (handing.done) {
		vcpu_register((int)handing.done - 1);
		restore_mask(handing.mask);
	}
}

#if ARCH_HAS_RSEQ

__attribute__((used)) long vcpu_after_vfork(long result, uint64_t done, uint64_t mask);

/* `result` is 0 in the child, the child's id or a negative errno in the parent. */
long vcpu_after_vfork(long result, uint64_t done, uint64_t mask)
{
	vcpu_end_handing((struct vcpu_handing){done, mask}, result == 0);
	if (result < 0) {
		errno = (int)-result;
		return -1;
	}
	return result;
}

extern __attribute__((visibility("default"))) pid_t vfork(void);
ARCH_DEFINE_VFORK(vcpu_before_vfork, vcpu_after_vfork);

#endif
