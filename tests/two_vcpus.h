/* SPDX-License-Identifier: MIT */
/*
 * two_vcpus: brings a process to two vCPUs.  Two threads that run at the same time are on two, however vCPUs
 * are numbered; a machine with one CPU may end up with one.
 */
#ifndef CPUSLAB_TESTS_TWO_VCPUS_H
#define CPUSLAB_TESTS_TWO_VCPUS_H

#include "check.h"

#include "vcpu/vcpu.h"

static bool two_vcpus_stop;

static void *two_vcpus_stay(void *unused)
{
	while (!__atomic_load_n(&two_vcpus_stop, __ATOMIC_RELAXED))
		free(malloc(100 + check_mode()[0] % 2));
	return unused;
}

static void two_vcpus(void)
{
	pthread_t other = check_thread(two_vcpus_stay, NULL);

	for (int i = 0; i < 10000 && vcpu_areas() < 2; i++) {
		free(malloc(1000));
		usleep(100);
		for (int spin = 0; spin < 100000; spin++)
			free(malloc((size_t)(16 + spin % 1000)));
	}
	__atomic_store_n(&two_vcpus_stop, true, __ATOMIC_RELAXED);
	check_join(other);
}

#endif
