/* SPDX-License-Identifier: MIT */
#include "inspect/view.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

static bool fits(const char *name, char *const *patterns, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (fnmatch(patterns[i], name, 0) == 0)
			return true;
	return count == 0;
}

/* A pattern also selects a cache by the name of any other that shares its memory. */
static bool selected(const struct census *census, size_t index, char *const *patterns, size_t count)
{
	if (fits(census->caches[index].name, patterns, count))
		return true;
	const struct census_handle *own = &census->handles[census->caches[index].first_handle];

	for (size_t h = 0; h < census->caches[index].named; h++)
		if (fits(own[h].name, patterns, count))
			return true;
	return false;
}

void view_select(struct view *view, const struct census *census, const struct target *target,
		 char *const *patterns, size_t pattern_count, bool empty)
{
	size_t *order = reallocarray(view->order, census->cache_count + 1, sizeof(*order));

	if (!order) {
		perror("cpuslab");
		exit(1);
	}
	*view = (struct view){census, target, order, 0};
	for (size_t i = 0; i < census->cache_count; i++)
		if ((empty || census->caches[i].slabs) && selected(census, i, patterns, pattern_count))
			order[view->count++] = i;
}

static const struct census_cache *sorted_caches;
static enum sorting sorted_by;
static bool sorted_inverted;

static uint64_t key(const struct census_cache *cache)
{
	switch (sorted_by) {
	case SORT_SIZE:
		return census_space(cache);
	case SORT_LOSS:
		return census_loss(cache);
	case SORT_ACTIVITY:
		return cache->alloc_misses + cache->free_misses + cache->refills + cache->drains;
	case SORT_PARTIAL:
		return census_partial(cache);
	case SORT_OBJECTS:
		return cache->objects;
	case SORT_OBJECT_SIZE:
		return cache->size;
	case SORT_PER_SLAB:
		return cache->per_slab;
	case SORT_SLABS:
		return cache->slabs;
	case SORT_ACTIVE:
		return cache->live;
	case SORT_HOARDED:
		return cache->in_vcpus + cache->in_depot;
	case SORT_USE:
		return cache->objects ? cache->live * 1000 / cache->objects : 0;
	case SORT_NONE:
	case SORT_NAME:
		break;
	}
	return 0;
}

static int compare(const void *one, const void *other)
{
	const struct census_cache *a = &sorted_caches[*(const size_t *)one];
	const struct census_cache *b = &sorted_caches[*(const size_t *)other];
	uint64_t left = key(a), right = key(b);
	/* Largest first; names from A to Z; ties by number. */
	int order = (left < right) - (left > right);

	if (!order && sorted_by == SORT_NAME)
		order = strverscmp(a->name, b->name);
	if (!order)
		order = (a->number > b->number) - (a->number < b->number);
	return sorted_inverted ? -order : order;
}

void view_sort(struct view *view, enum sorting sorting, bool inverted)
{
	sorted_caches = view->census->caches;
	sorted_by = sorting;
	sorted_inverted = inverted;
	qsort(view->order, view->count, sizeof(*view->order), compare);
}
