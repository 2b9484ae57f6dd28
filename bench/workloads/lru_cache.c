/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <stdio.h>
#include <string.h>

/*
 * One shard for each thread, as in cache servers: a hash table of entries with separate key and value blocks,
 * bounded by bytes, with LRU eviction.  Requests are skewed: a few keys take most of them.
 */
enum { BUCKETS = 1 << 14, KEYS = 1 << 16, BYTES_MAX = 12 << 20 };

struct entry {
	struct entry *next_in_bucket, *newer, *older;
	char *key;
	unsigned char *value;
	size_t value_size;
	uint32_t hash;
};

struct cache {
	struct entry *buckets[BUCKETS];
	struct entry *newest, *oldest;
	size_t bytes;
};

static void unlink_use(struct cache *cache, struct entry *entry)
{
	*(entry->newer ? &entry->newer->older : &cache->newest) = entry->older;
	*(entry->older ? &entry->older->newer : &cache->oldest) = entry->newer;
}

static void link_newest(struct cache *cache, struct entry *entry)
{
	entry->newer = NULL;
	entry->older = cache->newest;
	*(cache->newest ? &cache->newest->newer : &cache->oldest) = entry;
	cache->newest = entry;
}

static void remove_entry(struct cache *cache, struct entry *entry)
{
	struct entry **at = &cache->buckets[entry->hash % BUCKETS];
	while (*at != entry)
		at = &(*at)->next_in_bucket;
	*at = entry->next_in_bucket;
	unlink_use(cache, entry);
	cache->bytes -= entry->value_size;
	heap_release(entry->value);
	heap_release(entry->key);
	heap_release(entry);
}

static struct entry *lookup(const struct cache *cache, const char *key, uint32_t hash)
{
	struct entry *entry = cache->buckets[hash % BUCKETS];
	while (entry && (entry->hash != hash || strcmp(entry->key, key) != 0))
		entry = entry->next_in_bucket;
	return entry;
}

static void insert(struct cache *cache, const char *key, uint32_t hash, size_t size, unsigned char fill)
{
	struct entry *entry = heap_allocate(sizeof(*entry));
	size_t key_size = strlen(key) + 1;
	*entry = (struct entry){
		.hash = hash, .value_size = size, .next_in_bucket = cache->buckets[hash % BUCKETS]};
	entry->key = heap_allocate(key_size);
	memcpy(entry->key, key, key_size);
	entry->value = heap_allocate(size);
	memset(entry->value, fill, size);
	cache->buckets[hash % BUCKETS] = entry;
	link_newest(cache, entry);
	cache->bytes += size;
	while (cache->bytes > BYTES_MAX)
		remove_entry(cache, cache->oldest);
}

static uint64_t serve(unsigned index, void *context)
{
	unsigned requests = 8000 * *(const unsigned *)context;
	struct cache *cache = heap_allocate(sizeof(*cache));
	memset(cache, 0, sizeof(*cache));
	uint64_t random = 100 + index, checksum = 0;
	for (unsigned i = 0; i < requests; i++) {
		char key[32];
		/* Squared twice: a few keys get most of the requests. */
		uint64_t r = random_next(&random) >> 32;
		r = r * r >> 32;
		unsigned number = (unsigned)((r * KEYS) >> 32);
		snprintf(key, sizeof(key), "object:%u:%u", number % 7, number);
		uint32_t hash = number * 2654435761u;
		struct entry *entry = lookup(cache, key, hash);
		if (entry) {
			checksum += entry->value[entry->value_size / 2] + entry->value_size;
			unlink_use(cache, entry);
			link_newest(cache, entry);
		} else {
			insert(cache, key, hash, random_size(&random, 32, 10), (unsigned char)number);
		}
		/* One request in sixteen deletes or rewrites the entry. */
		if (entry && i % 16 == 0)
			remove_entry(cache, entry);
	}
	while (cache->oldest)
		remove_entry(cache, cache->oldest);
	heap_release(cache);
	return checksum;
}

uint64_t workload_lru_cache(unsigned scale)
{
	/* Two shards on any machine: the checksum must not depend on the number of CPUs. */
	return threads_run(2, serve, &scale);
}
