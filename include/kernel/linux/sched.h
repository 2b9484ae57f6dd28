/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: every thread can be preempted anywhere. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#include_next <linux/sched.h>
#ifndef CPUSLAB_LINUX_SCHED_H
#define CPUSLAB_LINUX_SCHED_H

/* Returns whether it gave up the CPU, which it need not do. */
static inline int cond_resched(void)
{
	return 0;
}

static inline int need_resched(void)
{
	return 0;
}

#endif
