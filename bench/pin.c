/* SPDX-License-Identifier: MIT */
#include "pin.h"

#include <sched.h>

static cpu_set_t given; /* empty if unknown */

void pin_to_cpu(int cpu)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

void pin_begin(void)
{
	if (sched_getaffinity(0, sizeof(given), &given) != 0)
		CPU_ZERO(&given);
}

void pin_to_place(unsigned place)
{
	unsigned count = (unsigned)CPU_COUNT(&given);
	if (!count)
		return;
	place %= count;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &given) && place-- == 0) {
			pin_to_cpu(cpu);
			return;
		}
}

void pin_to_none(void)
{
	sched_setaffinity(0, sizeof(given), &given);
}
