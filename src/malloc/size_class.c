/* SPDX-License-Identifier: MIT */
#include "malloc/size_class.h"

#include <stdio.h>

#include "check/corruption.h"

struct malloc_front malloc_front;
struct cache size_classes[SIZE_CLASSES];

enum { NAME_BYTES = sizeof "malloc-262144" };

static struct checks *create_checks(const char *name, uint32_t bytes)
{
	/* As aligned as it is in a slab without zones: malloc_aligned() counts on it. */
	uint32_t alignment = bytes & -bytes;
	struct checks *checks = check_create(name, bytes, alignment < PAGE_BYTES ? alignment : PAGE_BYTES,
					     check_request_flags(name, 0), NULL, false);

	if (!checks)
		corruption_abort(name, NULL, "the system gives no memory to start with");
	return checks;
}

void size_class_init(void)
{
	static char names[SIZE_CLASSES][NAME_BYTES];

	for (unsigned index = 0; index < SIZE_CLASSES; index++) {
		uint32_t bytes = size_class_bytes(index);
		struct slab_traits traits = {.name = names[index], .size = bytes};

		snprintf(names[index], NAME_BYTES, "malloc-%u", bytes);
		if (check_request_flags(traits.name, 0)) {
			traits.checks = create_checks(traits.name, bytes);
			traits.size = traits.checks->zones.slot_bytes;
		}
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
