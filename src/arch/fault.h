/* SPDX-License-Identifier: MIT */
/* arch/fault: what the machine tells a signal handler about a fault. */
#ifndef CPUSLAB_ARCH_FAULT_H
#define CPUSLAB_ARCH_FAULT_H

#include <signal.h>
#include <ucontext.h>

/* Returns 1 for a write, 0 for a read, -1 where unknown.  `context` is what an SA_SIGINFO handler gets. */
static inline int arch_fault_writes(const void *context)
{
#if defined(__x86_64__)
	enum { ERROR_WRITE = 2 };

	return ((const ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & ERROR_WRITE ? 1 : 0;
#else
	(void)context;
	return -1;
#endif
}

#endif
