/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <string.h>

/*
 * Records are appended to segments; an index points to the newest of each key.  When most of a segment is
 * stale, its live records move to the head of the log and the segment is freed: buffers of one large size,
 * many small long-lived index nodes, and reads through copies.
 */
enum { SEGMENT = 256 << 10, SEGMENTS_MAX = 1024, KEYS = 40000 };

struct location {
	uint32_t segment, offset, size;
	uint64_t version;
};

struct segment {
	unsigned char *bytes;
	uint32_t used, live;
};

struct record {
	uint32_t key, size;
	uint64_t version;
};

struct store {
	struct segment segments[SEGMENTS_MAX];
	struct location *index[KEYS];
	unsigned head;
	uint64_t version;
};

static unsigned free_segment(const struct store *store)
{
	unsigned i = 0;
	while (store->segments[i].bytes)
		i++;
	return i;
}

static unsigned char *append(struct store *store, uint32_t key, uint32_t size, uint64_t version)
{
	struct segment *head = &store->segments[store->head];
	uint32_t whole = (uint32_t)sizeof(struct record) + ((size + 7) & ~7u);
	if (!head->bytes || head->used + whole > SEGMENT) {
		store->head = free_segment(store);
		head = &store->segments[store->head];
		*head = (struct segment){.bytes = heap_allocate(SEGMENT)};
	}
	struct record record = {key, size, version};
	memcpy(head->bytes + head->used, &record, sizeof(record));
	struct location *old = store->index[key], *now = heap_allocate(sizeof(*now));
	*now = (struct location){store->head, head->used, size, version};
	if (old) {
		struct segment *stale = &store->segments[old->segment];
		stale->live -= (uint32_t)sizeof(struct record) + ((old->size + 7) & ~7u);
		heap_release(old);
	}
	store->index[key] = now;
	unsigned char *value = head->bytes + head->used + sizeof(record);
	head->used += whole;
	head->live += whole;
	return value;
}

static void compact(struct store *store, unsigned victim)
{
	struct segment old = store->segments[victim];
	for (uint32_t at = 0; at < old.used;) {
		struct record record;
		memcpy(&record, old.bytes + at, sizeof(record));
		const struct location *newest = store->index[record.key];
		if (newest && newest->version == record.version && newest->segment == victim)
			memcpy(append(store, record.key, record.size, record.version),
			       old.bytes + at + sizeof(record), record.size);
		at += (uint32_t)sizeof(record) + ((record.size + 7) & ~7u);
	}
	store->segments[victim] = (struct segment){0};
	heap_release(old.bytes);
}

static void compact_stale(struct store *store)
{
	for (unsigned i = 0; i < SEGMENTS_MAX; i++) {
		const struct segment *s = &store->segments[i];
		if (s->bytes && i != store->head && s->live < s->used / 4)
			compact(store, i);
	}
}

static uint64_t read_value(const struct store *store, uint32_t key)
{
	const struct location *at = store->index[key];
	if (!at)
		return 0;
	unsigned char *copy = heap_allocate(at->size);
	memcpy(copy, store->segments[at->segment].bytes + at->offset + sizeof(struct record), at->size);
	uint64_t sum = copy[0] + copy[at->size - 1] + at->version;
	heap_release(copy);
	return sum;
}

uint64_t workload_log_store(unsigned scale)
{
	struct store *store = heap_allocate(sizeof(*store));
	memset(store, 0, sizeof(*store));
	uint64_t random = 4, checksum = 0;
	for (unsigned i = 0; i < 70000 * scale; i++) {
		uint32_t key = random_under(&random, KEYS);
		if (i % 3 == 0) {
			uint32_t size = (uint32_t)random_size(&random, 32, 7);
			memset(append(store, key, size, ++store->version), (int)(key + i), size);
		} else {
			checksum = mix(checksum, read_value(store, key));
		}
		if (i % 4096 == 0)
			compact_stale(store);
	}
	for (unsigned i = 0; i < SEGMENTS_MAX; i++)
		if (store->segments[i].bytes)
			heap_release(store->segments[i].bytes);
	for (unsigned key = 0; key < KEYS; key++)
		if (store->index[key])
			heap_release(store->index[key]);
	heap_release(store);
	return checksum;
}
