/* SPDX-License-Identifier: MIT */
#include "malloc/size_class.h"

#include <stdio.h>

#include "check/corruption.h"

struct malloc_front malloc_front;
struct cache size_classes[SIZE_CLASSES];

enum { NAME_BYTES = sizeof "malloc-262144" };

void size_class_init(void)
{
	static char names[SIZE_CLASSES][NAME_BYTES];

	for (unsigned index = 0; index < SIZE_CLASSES; index++) {
		struct slab_traits traits = {.name = names[index], .size = size_class_bytes(index)};

		snprintf(names[index], NAME_BYTES, "malloc-%u", traits.size);
		if (!magazine_create(&size_classes[index], &traits, 0, NULL))
			corruption_abort(traits.name, NULL, "the system gives no memory to start with");
	}
	for (unsigned step = 0; step <= SIZE_CLASS_SMALL / SIZE_CLASS_STEP; step++)
		malloc_front.offset[step] = size_classes[size_class_index(step * SIZE_CLASS_STEP)].offset;
}

void size_class_open(void)
{
	__atomic_store_n(&malloc_front.small_limit, SIZE_CLASS_SMALL + 1, __ATOMIC_RELEASE);
}
