/* SPDX-License-Identifier: MIT */
#include "report/statistics.h"

#include <string.h>

#include "arch/arch.h"
#include "cpuslab/cpuslab.h"
#include "linked/linked.h"

static void describe(struct cache *cache, struct cache_report *report)
{
	struct depot_statistics depot;
	struct slab_statistics slabs;
	uint64_t loaded = magazine_objects_loaded(cache);

	depot_statistics(&cache->depot, &depot);
	slab_statistics(&cache->depot.slabs, &slabs);

	uint64_t hoarded = loaded + depot.objects;

	*report = (struct cache_report){
		.size = cache->depot.slabs.traits.size,
		.object_bytes = magazine_object_bytes(cache),
		.objects_per_slab = cache->depot.slabs.objects,
		.pages_per_slab = cache->depot.slabs.pages,
		.tunables = depot_tunables(&cache->depot),
		/* The two counts are of different instants; the difference must not wrap. */
		.live = slabs.allocated > hoarded ? slabs.allocated - hoarded : 0,
		.hoarded = hoarded,
		.total = slabs.capacity,
		.in_depot = depot.objects,
		.slabs = slabs.slabs,
		.slabs_empty = slabs.kept_empty,
		.slabs_created = slabs.created,
		.slabs_freed = slabs.freed,
		.refills = depot.refills,
		.drains = depot.drains,
		.lock_acquires = depot.lock_acquires + slabs.lock_acquires,
	};
	strncpy(report->name, cache->depot.slabs.traits.name, REPORT_NAME - 1);
	vcpu_misses(cache->number, &report->alloc_misses, &report->free_misses);
}

static void describe_linked(struct linked_cache *cache, struct cache_report *report)
{
	struct linked_statistics statistics;

	linked_statistics(cache, &statistics);
	*report = (struct cache_report){
		.size = cache->stride,
		.object_bytes = cache->usable,
		.objects_per_slab = cache->objects,
		.pages_per_slab = (uint32_t)((cache->list.slab_mask + 1) >> PAGE_SHIFT),
		.live = statistics.allocated,
		.hoarded = statistics.hoarded,
		.total = statistics.capacity,
		.slabs = statistics.slabs,
		.slabs_created = statistics.created,
		.slabs_freed = statistics.freed,
		.lock_acquires = statistics.lock_acquires,
		.alloc_misses = statistics.alloc_misses,
		.free_misses = statistics.free_misses,
	};
	strncpy(report->name, cache->name, REPORT_NAME - 1);
}

/* Reports the linked cache of a number, if there is one. */
static bool report_linked(unsigned number, struct cache_report *report)
{
	linked_begin_census();
	struct linked_cache *cache = linked_cache_number(number);

	if (cache)
		describe_linked(cache, report);
	linked_end_census();
	return cache;
}

bool report_cache(unsigned *next, struct cache_report *report)
{
	bool found = false;

	magazine_begin_census();
	while (!found && (*next < magazine_caches() || *next < linked_caches())) {
		unsigned number = (*next)++;
		struct cache *cache = magazine_cache_number(number);

		if (cache)
			describe(cache, report);
		found = cache || report_linked(number, report);
	}
	magazine_end_census();
	return found;
}

void report_all(struct report *report)
{
	struct cache_report cache;

	*report = (struct report){0};
	page_statistics(&report->pages);
	guard_statistics(&report->guarded);
	report->lock_acquires = report->pages.lock_acquires;
	for (unsigned next = 0; report_cache(&next, &cache);) {
		report->live_bytes += cache.live * cache.object_bytes;
		report->hoarded_bytes += cache.hoarded * cache.size;
		report->slab_bytes += cache.slabs * cache.pages_per_slab * PAGE_BYTES;
		report->alloc_misses += cache.alloc_misses;
		report->free_misses += cache.free_misses;
		report->refills += cache.refills;
		report->drains += cache.drains;
		report->slabs_created += cache.slabs_created;
		report->slabs_freed += cache.slabs_freed;
		report->lock_acquires += cache.lock_acquires;
	}
}
