/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <string.h>

/*
 * The amount of live memory stays about the same while the sizes drift.  In each epoch objects of one size
 * band replace random older ones, and one in fifty lives on for good: memory that an allocator cannot reuse
 * for the next band, because a survivor pins it, is lost.
 */
enum { LIVE_BYTES = 24 << 20, SLOTS = 1 << 17, SURVIVORS = 1 << 15, EPOCHS = 24 };

struct object {
	uint32_t size;
	unsigned char bytes[];
};

static struct object *object_new(uint64_t *random, unsigned epoch)
{
	/* Bands of 32 bytes to 4 KiB, up and down. */
	size_t middle = (size_t)32 << (epoch % 14 < 7 ? epoch % 14 : 14 - epoch % 14);
	size_t size = middle + random_under(random, (unsigned)middle);
	struct object *object = heap_allocate(sizeof(*object) + size);
	object->size = (uint32_t)size;
	memset(object->bytes, (int)epoch, size);
	return object;
}

uint64_t workload_fragment(unsigned scale)
{
	struct object **slots = heap_allocate(SLOTS * sizeof(struct object *));
	struct object **survivors = heap_allocate(SURVIVORS * sizeof(struct object *));
	uint64_t random = 8, checksum = 0, live = 0;
	unsigned survived = 0;
	memset(slots, 0, SLOTS * sizeof(struct object *));
	for (unsigned epoch = 0; epoch < EPOCHS; epoch++)
		for (unsigned i = 0; i < 1800 * scale; i++) {
			unsigned slot = random_under(&random, SLOTS);
			struct object *old = slots[slot];
			slots[slot] = NULL;
			if (old) {
				checksum = mix(checksum, old->size + old->bytes[old->size / 2]);
				live -= old->size;
				if (survived < SURVIVORS && random_under(&random, 50) == 0)
					survivors[survived++] = old;
				else
					heap_release(old);
			}
			if (live < LIVE_BYTES) {
				slots[slot] = object_new(&random, epoch);
				live += slots[slot]->size;
			}
		}
	for (unsigned slot = 0; slot < SLOTS; slot++)
		if (slots[slot])
			heap_release(slots[slot]);
	for (unsigned i = 0; i < survived; i++)
		heap_release(survivors[i]);
	heap_release(slots);
	heap_release(survivors);
	return checksum;
}
