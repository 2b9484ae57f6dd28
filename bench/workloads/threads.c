/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include "machine.h"

#include <pthread.h>
#include <stdlib.h>

struct member {
	pthread_t thread;
	uint64_t (*body)(unsigned index, void *context);
	void *context;
	unsigned index;
	uint64_t result;
};

static void *member_main(void *argument)
{
	struct member *m = argument;
	m->result = m->body(m->index, m->context);
	heap_thread_end();
	return NULL;
}

uint64_t threads_run(unsigned count, uint64_t (*body)(unsigned index, void *context), void *context)
{
	struct member members[256];
	uint64_t sum = 0;
	if (count > 256)
		abort();
	for (unsigned i = 0; i < count; i++) {
		members[i] = (struct member){.body = body, .context = context, .index = i};
		if (pthread_create(&members[i].thread, NULL, member_main, &members[i]) != 0)
			abort();
	}
	for (unsigned i = 0; i < count; i++) {
		pthread_join(members[i].thread, NULL);
		sum += members[i].result;
	}
	return sum;
}

unsigned threads_usual(void)
{
	unsigned cpus = machine_cpus();
	return cpus < 2 ? 2 : cpus > 64 ? 64 : cpus;
}
