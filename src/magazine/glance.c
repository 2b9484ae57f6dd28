/* SPDX-License-Identifier: MIT */
/* Counts what lies on the words of vCPUs while others use them, without disturbing anybody. */
#include "magazine/words.h"

/*
 * Counts the objects below the top that a word in use points to.  The magazine may since have become other
 * metadata, so the search for the end mark has a bound of its own, or the end of metadata if that comes
 * first, and what it finds is checked.
 */
static unsigned glance(uintptr_t word)
{
	void *const *top = (void *const *)word;
	const uintptr_t end = (uintptr_t)page_front.metadata + metadata_end();

	for (unsigned above = 1; above <= DEPOT_CAPACITY_MAX + 1 && (uintptr_t)&top[above] < end; above++) {
		const void *slot = __atomic_load_n(&top[above], __ATOMIC_RELAXED);

		if (words_is_end_mark(slot)) {
			const struct magazine *magazine =
				(const struct magazine *)((uintptr_t)slot & ~(uintptr_t)1);

			if ((uintptr_t)magazine > end - sizeof *magazine)
				return 0;
			size_t count = (size_t)(top - &magazine->slot[0]) - magazine->marks;

			return count <= DEPOT_CAPACITY_MAX ? (unsigned)count : 0;
		}
	}
	return 0;
}

/*
 * Counts the objects that a spare has, or had; it, too, may have become other metadata, so this is checked.
 */
static unsigned glance_at_spare(uintptr_t spare)
{
	const struct magazine *magazine = (const struct magazine *)spare;
	unsigned count = __atomic_load_n(&magazine->count, __ATOMIC_RELAXED);
	unsigned marks = __atomic_load_n(&magazine->marks, __ATOMIC_RELAXED);

	return count <= DEPOT_CAPACITY_MAX && marks <= count ? count - marks : 0;
}

static uint64_t objects_on_words(unsigned number)
{
	uint64_t objects = 0;

	for (unsigned id = 0; id < vcpu_ids(); id++) {
		const uintptr_t *row = vcpu_word(id, number);

		if (!row)
			continue;
		uintptr_t word = __atomic_load_n(row, __ATOMIC_ACQUIRE);
		uintptr_t spare = __atomic_load_n(row + VCPU_ROW, __ATOMIC_ACQUIRE);

		if (word != vcpu_void && word != vcpu_closed)
			objects += glance(word);
		if (spare && spare != vcpu_closed)
			objects += glance_at_spare(spare);
	}
	return objects;
}

uint64_t magazine_objects_loaded(const struct cache *cache)
{
	uint64_t objects = objects_on_words(cache->number);

	return cache->returns_number ? objects + objects_on_words(cache->returns_number) : objects;
}
