/* SPDX-License-Identifier: MIT */
/*
 * system_call: libc's syscall(), for one number alone: a program unregisters a thread's restartable
 * sequences.
 *
 * The kernel then leaves 0 as the concurrency id, which is another thread's, so it must be replaced before
 * the thread allocates again.  There is no libc function for this call, so programs make it through
 * syscall().  All others go on to whoever defines that name next.
 *
 * Part of the shared library alone, like deepbind.c: a static program has libc's in the same file.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "arch/arch.h"
#include "malloc/malloc.h"
#include "os/os.h"
#include "vcpu/vcpu.h"

#if ARCH_HAS_RSEQ

extern CPUSLAB_API __typeof__(syscall) syscall;

typedef long caller(long number, long a, long b, long c, long d, long e, long f);

__attribute__((used, visibility("hidden"))) caller *system_call_next;
__attribute__((used, visibility("hidden"))) caller system_call_rseq;
__attribute__((used, visibility("hidden"))) long system_call_failed(long error);

long system_call_failed(long error)
{
	errno = (int)-error;
	return -1;
}

/* At the start, since a later first call may come from a signal handler, where nothing can be looked up. */
__attribute__((constructor)) static void find_next(void)
{
	system_call_next = (caller *)dlsym(RTLD_NEXT, "syscall");
}

long system_call_rseq(long number, long area, long bytes, long flags, long signature, long e, long f)
{
	enum { UNREGISTER = 1 };
	sigset_t all, mask;

	if (!system_call_next)
		find_next();
	memset(&all, 0xff, sizeof all);
	/* No handler may allocate with the kernel's id. */
	os_signal_mask(&all, &mask);
	long result = system_call_next(number, area, bytes, flags, signature, e, f);

	if (result == 0 && flags & UNREGISTER && vcpu_is_registered_at((void *)area))
		vcpu_forget_id();
	os_signal_mask(&mask, NULL);
	return result;
}

ARCH_DEFINE_SYSCALL(334, system_call_rseq, system_call_next, system_call_failed);

#endif
