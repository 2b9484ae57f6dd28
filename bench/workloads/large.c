/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <string.h>

enum { PAGE = 4096 };

/* Writes every page once, as a program that asks for such a block does. */
static uint64_t touch(unsigned char *block, size_t size, unsigned fill)
{
	for (size_t at = 0; at < size; at += PAGE)
		block[at] = (unsigned char)fill;
	return block[size / 2 & ~(size_t)(PAGE - 1)] + size;
}

/* A few blocks of 256 KiB to 64 MiB live at a time; large ones are rare, as in real programs. */
static uint64_t blocks(uint64_t *random, unsigned steps)
{
	enum { LIVE = 8 };
	unsigned char *block[LIVE] = {NULL};
	uint64_t checksum = 0;
	for (unsigned i = 0; i < steps; i++) {
		unsigned slot = random_under(random, LIVE);
		size_t size = random_size(random, 512 << 10, 7);
		if (block[slot])
			heap_release(block[slot]);
		block[slot] = heap_allocate(size);
		checksum = mix(checksum, touch(block[slot], size, i));
	}
	for (unsigned slot = 0; slot < LIVE; slot++)
		if (block[slot])
			heap_release(block[slot]);
	return checksum;
}

/* A vector of a few MiB that grows by half each time, and is then freed. */
static uint64_t growing_vector(unsigned limit)
{
	size_t capacity = 16;
	uint64_t *vector = heap_allocate(capacity * sizeof(*vector)), checksum = 0;
	for (size_t count = 0; count < limit; count++) {
		if (count == capacity) {
			capacity += capacity / 2;
			vector = heap_resize(vector, capacity * sizeof(*vector));
		}
		vector[count] = count;
	}
	for (size_t i = 0; i < limit; i += 1009)
		checksum += vector[i];
	heap_release(vector);
	return checksum;
}

/* An image passes through filters: each reads one buffer and writes a new one of about the same size. */
static uint64_t filters(unsigned frames)
{
	size_t width = 1000, height = 700, size = 3 * width * height;
	uint64_t checksum = 0;
	for (unsigned frame = 0; frame < frames; frame++) {
		unsigned char *image = heap_allocate(size);
		memset(image, (int)frame, size);
		for (unsigned filter = 0; filter < 4; filter++) {
			/* Each filter crops a border, so no two buffers have quite the same size. */
			size_t cropped = size - filter * 4 * PAGE;
			unsigned char *next = heap_allocate(cropped);
			memcpy(next, image, cropped);
			next[cropped / 2] = (unsigned char)(next[cropped / 2] + filter);
			heap_release(image);
			image = next;
		}
		checksum = mix(checksum, image[frame]);
		heap_release(image);
	}
	return checksum;
}

uint64_t workload_large(unsigned scale)
{
	uint64_t random = 9, checksum = blocks(&random, 16 * scale);
	for (unsigned i = 0; i < 1 + scale; i++)
		checksum = mix(checksum, growing_vector(400000 + 1000 * i));
	return mix(checksum, filters(1 + 2 * scale));
}
