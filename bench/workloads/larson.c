/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <string.h>

/*
 * After Larson and Krishnan: connections outlive the threads that serve them.  Each thread replaces random
 * objects of its part of a shared table for a while and ends; a new thread takes the part over, and frees
 * what its predecessor allocated.
 */
enum { SERVERS = 4, OBJECTS = 4000, STEPS = 20000 };

struct part {
	unsigned char *objects[OBJECTS];
	uint64_t random;
};

static uint64_t serve(unsigned index, void *context)
{
	struct part *part = (struct part *)context + index;
	uint64_t checksum = 0;
	for (unsigned i = 0; i < STEPS; i++) {
		unsigned slot = random_under(&part->random, OBJECTS);
		unsigned char *old = part->objects[slot];
		if (old) {
			checksum += old[0];
			heap_release(old);
		}
		size_t size = 8 + random_under(&part->random, 993);
		part->objects[slot] = heap_allocate(size);
		part->objects[slot][0] = (unsigned char)i;
		part->objects[slot][size - 1] = (unsigned char)i;
	}
	return checksum;
}

uint64_t workload_larson(unsigned scale)
{
	struct part *parts = heap_allocate(SERVERS * sizeof(*parts));
	uint64_t checksum = 0;
	memset(parts, 0, SERVERS * sizeof(*parts));
	for (unsigned i = 0; i < SERVERS; i++)
		parts[i].random = 70 + i;
	for (unsigned generation = 0; generation < 1 + 2 * scale; generation++)
		checksum = mix(checksum, threads_run(SERVERS, serve, parts));
	for (unsigned i = 0; i < SERVERS; i++)
		for (unsigned slot = 0; slot < OBJECTS; slot++)
			if (parts[i].objects[slot])
				heap_release(parts[i].objects[slot]);
	heap_release(parts);
	return checksum;
}
