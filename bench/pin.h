/* SPDX-License-Identifier: MIT */
/* pin: which CPU a thread runs on, of those that this process was given. */
#ifndef CPUSLAB_BENCH_PIN_H
#define CPUSLAB_BENCH_PIN_H

void pin_to_cpu(int cpu);

/* Before any pinning: from now on these are the CPUs that the process has at this moment. */
void pin_begin(void);
/*
 * To the place-th of them, and again from the first behind the last.  Where they cannot be told, as on a
 * system with more CPUs than a set holds, nothing changes.
 */
void pin_to_place(unsigned place);
/* To any of them. */
void pin_to_none(void);

#endif
