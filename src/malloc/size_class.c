/* SPDX-License-Identifier: MIT */
#include "malloc/size_class.h"

#include <string.h>

#include "check/corruption.h"
#include "options/options.h"

struct malloc_front malloc_front;
struct cache size_classes[SIZE_CLASSES];
struct cache size_class_nothing;
struct hardened hardened_front[SIZE_CLASS_SMALL / SIZE_CLASS_STEP + 1];

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

/*
 * Of a hardened class's magazines: what was freed lies in two of them at least before it comes back, and
 * should still be in the processor's caches then.
 */
static uint16_t capacity_of(const struct slab_traits *traits)
{
	enum { BYTES = 8 << 10, MOST = 123, LEAST = 3 };
	uint32_t objects = BYTES / traits->size;

	if (!traits->hardened)
		return 0;
	return (uint16_t)(objects < LEAST ? LEAST : objects > MOST ? MOST : objects);
}

static void create_nothing(void)
{
	static const struct slab_traits traits = {
		.name = "malloc-0",
		.size = SIZE_CLASS_STEP,
		.hardened = true,
		.untouchable = true,
	};

	if (!magazine_create(&size_class_nothing, &traits, capacity_of(&traits), NULL))
		corruption_abort(traits.name, NULL, "the system gives no memory to start with");
}

/* By hand: the first use of snprintf makes some hundred KiB of libc resident, and most programs have no
 * other. */
static void write_name(char *name, uint32_t bytes)
{
	static const char stem[] = "malloc-";
	unsigned digits = 1;

	for (uint32_t rest = bytes / 10; rest; rest /= 10)
		digits++;
	memcpy(name, stem, sizeof stem - 1);
	for (char *digit = name + sizeof stem - 1 + digits; digits--; bytes /= 10)
		*--digit = (char)('0' + bytes % 10);
}

void size_class_init(void)
{
	static char names[SIZE_CLASSES][NAME_BYTES];

	if (options.hardened)
		hardened_init();
	for (unsigned index = 0; index < SIZE_CLASSES; index++) {
		uint32_t bytes = size_class_bytes(index);
		struct slab_traits traits = {.name = names[index], .size = bytes};

		write_name(names[index], bytes);
		if (check_request_flags(traits.name, 0)) {
			traits.checks = create_checks(traits.name, bytes);
			traits.size = traits.checks->zones.slot_bytes;
		} else {
			traits.hardened = options.hardened;
		}
		if (!magazine_create(&size_classes[index], &traits, capacity_of(&traits), NULL))
			corruption_abort(traits.name, NULL, "the system gives no memory to start with");
		if (traits.hardened)
			hardened_enter(&size_classes[index]);
	}
	for (unsigned step = 0; step <= SIZE_CLASS_SMALL / SIZE_CLASS_STEP; step++)
		malloc_front.offset[step] = size_classes[size_class_index(step * SIZE_CLASS_STEP)].offset;
	if (options.hardened)
		create_nothing();
}

static void open_hardened(void)
{
	for (unsigned step = 0; step <= SIZE_CLASS_SMALL / SIZE_CLASS_STEP; step++) {
		struct hardened *row = &hardened_front[step];
		const struct hardened *entered =
			hardened_of(size_classes[size_class_index(step * SIZE_CLASS_STEP)].id);

		row->word = entered->word;
		row->returns = entered->returns;
		/* Release: see hardened_alloc. */
		__atomic_store_n(&row->bytes, entered->bytes, __ATOMIC_RELEASE);
	}
}

void size_class_open(void)
{
	if (options.hardened) {
		open_hardened();
		return;
	}
	__atomic_store_n(&malloc_front.small_limit, SIZE_CLASS_SMALL + 1, __ATOMIC_RELEASE);
}
