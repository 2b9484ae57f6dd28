/* SPDX-License-Identifier: MIT */
/*
 * linked_misses: a cache's missed calls, when all vCPUs together had more than one vCPU's counter can hold:
 * none counts as a call of the other kind, and none is forgotten.
 */
#include "two_vcpus.h"

#include "linked/linked.h"
#include "page/page.h"

int main(void)
{
	static const uint64_t allocs = 3ull << 30, frees = 5;
	static const struct linked_traits traits = {
		.name = "test", .size = 64, .alignment = 8, .link = LINKED_ANYWHERE};
	struct linked_cache *cache;
	struct linked_statistics statistics;
	unsigned areas = 0;
	check_watchdog(60);
	two_vcpus();
	cache = metadata_alloc(sizeof *cache);
	CHECK(cache && linked_create(cache, &traits, NULL));
	for (unsigned id = 0; id < vcpu_ids(); id++) {
		uintptr_t *word = vcpu_word(id, cache->number);
		if (word) {
			word[2 * VCPU_ROW] = allocs + frees * VCPU_MISSED_FREE;
			areas++;
		}
	}
	if (areas < 2)
		check_skip("one vCPU here");
	linked_statistics(cache, &statistics);
	CHECK(statistics.alloc_misses == areas * allocs, "%lu on %u", statistics.alloc_misses, areas);
	CHECK(statistics.free_misses == areas * frees, "%lu on %u", statistics.free_misses, areas);
	CHECK(linked_destroy(cache));
	metadata_free(cache, sizeof *cache);
	printf("%s\n", check_mode());
	return 0;
}
