/* SPDX-License-Identifier: MIT */
/* pin: which of this process's CPUs a thread runs on. */
#ifndef CPUSLAB_BENCH_PIN_H
#define CPUSLAB_BENCH_PIN_H

void pin_to_cpu(int cpu);

/* Records the CPUs that the process has now; must be called before any pinning. */
void pin_begin(void);
/*
 * Pins to CPU number `place` of these, wrapping around.  If they are unknown, as on a system with more CPUs
 * than a set holds, does nothing.
 */
void pin_to_place(unsigned place);
/* Allows all of them again. */
void pin_to_none(void);

#endif
