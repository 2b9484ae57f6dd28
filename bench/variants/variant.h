/* SPDX-License-Identifier: MIT */
/*
 * One variant: the engine's slow paths under the names from names.h, with the front of LINKED_FRONT;
 * VARIANT_TITLE is its name in tables.
 */
#include "linked/linked.c"

#include "variants.h"

static void *variant_allocate(void *cache)
{
	void *object = front_pop(cache);

	return __builtin_expect(object != NULL, 1) ? object : linked_alloc_missed(cache);
}

static void variant_release(void *cache, void *object)
{
	if (__builtin_expect(!front_push(cache, object), 0))
		linked_free_missed(cache, object);
}

static void *variant_create(size_t size)
{
	struct linked_traits traits = {
		.name = VARIANT_TITLE,
		.size = (uint32_t)size,
		.alignment = 8,
		.link = LINKED_ANYWHERE,
	};
	struct linked_cache *cache = metadata_alloc(sizeof *cache);
	uint16_t place = front_place();

	if (cache && linked_init(cache, &traits, place) && front_open(cache, place))
		return cache;
	if (cache)
		metadata_free(cache, sizeof *cache);
	front_leave_place(place);
	return NULL;
}

/* No other thread uses it. */
static bool variant_destroy(void *argument)
{
	struct linked_cache *cache = argument;

	for (unsigned id = 0; id < front_ids(); id++) {
		struct linked_hand hand = front_take_from(cache, id);

		if (hand.slab)
			linked_put_back(cache, hand);
	}
	linked_release_empty(cache);
	if (cache->slabs)
		return false;
	front_leave_place(cache->offset);
	metadata_free(cache, sizeof *cache);
	return true;
}

const struct variant VARIANT_JOIN(variant, VARIANT_NAME) = {
	.name = VARIANT_TITLE,
	.create = variant_create,
	.allocate = variant_allocate,
	.release = variant_release,
	.destroy = variant_destroy,
};
