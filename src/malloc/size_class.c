/* SPDX-License-Identifier: MIT */
#include "malloc/size_class.h"

#include <stdio.h>

struct malloc_front malloc_front;
struct cache size_classes[SIZE_CLASSES];

static uint32_t describe(unsigned index, char name[SLAB_NAME])
{
	uint32_t bytes = size_class_bytes(index);

	snprintf(name, SLAB_NAME, "malloc-%u", bytes);
	return bytes;
}

void size_class_init(void)
{
	magazine_create_caches(size_classes, SIZE_CLASSES, describe);
	for (unsigned step = 0; step <= SIZE_CLASS_SMALL / SIZE_CLASS_STEP; step++)
		malloc_front.offset[step] = size_classes[size_class_index(step * SIZE_CLASS_STEP)].offset;
}

void size_class_open(void)
{
	__atomic_store_n(&malloc_front.small_limit, SIZE_CLASS_SMALL + 1, __ATOMIC_RELEASE);
}
