/* SPDX-License-Identifier: MIT */
#include "inspect/census.h"
#include "inspect/bounds.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { ATTEMPTS = 8, CACHES_MAX = 1 << 17, VCPUS_MAX = 1 << 14, MAGAZINE_MAX = 500 };
/* Per memory, and in total; a list may lead around in a circle. */
enum { HANDLES_MAX = 4096, HANDLES_ALL = 1 << 17 };
/* Bounds the output as well: what one cache has on one vCPU may be a line of it. */
enum { CELLS_MAX = 1 << 25 };

/* Regions in the order in which the library lists them. */
enum { HEAP, MAP, SLAB_OF, RUNS, METADATA, REGIONS };

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void *array(void *old, size_t count, size_t bytes)
{
	void *grown = reallocarray(old, count ? count : 1, bytes);

	if (!grown)
		bounds_no_room();
	return grown;
}

/* ---- caches -------------------------------------------------------------------------------------------- */

static void understand(struct census_cache *cache, const struct target *target, const char *raw)
{
	const struct target_fields *at = &target->at;
#define MEMBER(field) target_member(raw, &at->field)
	cache->number = (uint32_t)MEMBER(cache_number);
	cache->owner = MEMBER(cache_owner);
	cache->size = (uint32_t)MEMBER(cache_size);
	cache->alignment = (uint32_t)MEMBER(cache_alignment);
	cache->constructed = MEMBER(cache_construct) != 0;
	cache->type_stable = MEMBER(cache_type_stable) != 0;
	cache->per_slab = (uint32_t)MEMBER(cache_objects);
	cache->pages_per_slab = (uint32_t)MEMBER(cache_pages);
	cache->capacity = (uint32_t)MEMBER(depot_capacity);
	cache->batch = (uint32_t)MEMBER(depot_batch);
	cache->sharedfactor = (uint32_t)MEMBER(depot_sharedfactor);
	cache->slabs = MEMBER(cache_slab_count);
	cache->full_slabs = MEMBER(cache_full_slabs);
	cache->empty_slabs = MEMBER(cache_empty) != 0;
	cache->created = MEMBER(cache_created);
	cache->freed = MEMBER(cache_freed);
	cache->allocated = MEMBER(cache_allocated);
	cache->in_depot = MEMBER(depot_objects);
	cache->depot_filled = MEMBER(depot_filled);
	cache->depot_empty = MEMBER(depot_empty);
	cache->refills = MEMBER(depot_refills);
	cache->drains = MEMBER(depot_drains);
	cache->locks = MEMBER(cache_slab_locks) + MEMBER(depot_locks);
#undef MEMBER
	cache->object_size = cache->size;
	cache->objects = cache->slabs * cache->per_slab;
}

/*
 * Copies all caches until two copies in a row are equal.  Every change under a cache's locks counts an
 * acquisition, so equal copies mean that nothing happened in between.
 */
static void read_caches(struct census *census, const struct target *target, const uint64_t *addresses)
{
	size_t count = census->cache_count, bytes = target->at.cache.size;
	char *copies = array(NULL, 2 * count, bytes);
	struct target_piece *pieces = array(NULL, 2 * count, sizeof(*pieces));
	bool *settled = array(NULL, count, sizeof(*settled));
	size_t unsettled = count;

	memset(settled, 0, count * sizeof(*settled));
	for (int attempt = 0; attempt < ATTEMPTS && unsettled; attempt++) {
		size_t asked = 0;

		/* Both copies close together, to keep the window for changes between them short. */
		for (size_t i = 0; i < count; i++)
			for (size_t copy = 0; !settled[i] && copy < 2; copy++)
				pieces[asked++] = (struct target_piece){
					addresses[i], copies + (2 * i + copy) * bytes, bytes, false};
		target_gather(target, pieces, asked);
		asked = 0;
		for (size_t i = 0; i < count; i++) {
			if (settled[i])
				continue;
			const struct target_piece *piece = &pieces[asked];

			asked += 2;
			if (!piece[0].read || !piece[1].read)
				memset(piece[0].buffer, 0, bytes);
			else if (memcmp(piece[0].buffer, piece[1].buffer, bytes) != 0)
				continue;
			settled[i] = true;
			unsettled--;
		}
	}
	census->unsettled = unsettled;
	for (size_t i = 0; i < count; i++) {
		census->caches[i] = (struct census_cache){.address = addresses[i]};
		understand(&census->caches[i], target, copies + 2 * i * bytes);
	}

	/* The names last: 128 bytes each, or up to the end of a page, and then the rest. */
	for (int part = 0; part < 2; part++) {
		size_t asked = 0;

		for (size_t i = 0; i < count; i++) {
			struct census_cache *cache = &census->caches[i];
			size_t have = strnlen(cache->name, CENSUS_NAME - 1);
			uint64_t name = target_member(copies + 2 * i * bytes, &target->at.cache_name);
			size_t length = CENSUS_NAME - 1 - have;
			size_t to_end = CENSUS_PAGE - (name + have) % CENSUS_PAGE;

			if (!name || (part && (!have || (name + have) % CENSUS_PAGE)))
				continue;
			pieces[asked++] = (struct target_piece){name + have, cache->name + have,
								length < to_end ? length : to_end, false};
		}
		target_gather(target, pieces, asked);
	}
	free(settled);
	free(pieces);
	free(copies);
}

/* ---- handles ------------------------------------------------------------------------------------------- */

/*
 * Sorts the handles by cache, each cache's in the order in which they were read, and gives each cache its
 * own.
 */
static void group_handles(struct census *census)
{
	struct census_handle *grouped = array(NULL, census->handle_count, sizeof(*grouped));
	size_t next = 0;

	for (size_t h = 0; h < census->handle_count; h++) {
		struct census_cache *cache = &census->caches[census->handles[h].cache];

		if (!cache->named++ || census->handles[h].size > cache->object_size)
			cache->object_size = census->handles[h].size;
	}
	for (size_t c = 0; c < census->cache_count; c++) {
		struct census_cache *cache = &census->caches[c];

		cache->first_handle = next;
		next += cache->named;
		if (cache->named)
			cache->aliases = cache->named - 1;
	}
	for (size_t h = 0; h < census->handle_count; h++)
		grouped[census->caches[census->handles[h].cache].first_handle++] = census->handles[h];
	for (size_t c = 0; c < census->cache_count; c++)
		census->caches[c].first_handle -= census->caches[c].named;
	free(census->handles);
	census->handles = grouped;
}

/*
 * Reads the handles of all memories, one from each list at a time, as the lists are spread over the target.
 */
static void read_handles(struct census *census, const struct target *target)
{
	const struct target_fields *at = &target->at;
	size_t head = at->handle_name.value, bytes = head + CENSUS_NAME, active = census->cache_count;
	struct target_piece *pieces = array(NULL, 2 * active, sizeof(*pieces));
	uint64_t *next = array(NULL, active, sizeof(*next));
	char *raw = array(NULL, active, bytes);
	size_t capacity = 0, asked = 0;

	memset(next, 0, active * sizeof(*next));
	for (size_t c = 0; c < active; c++) {
		struct census_cache *cache = &census->caches[c];

		if (!cache->owner)
			continue;
		pieces[asked++] = (struct target_piece){cache->owner + at->memory_handles.value, &next[c],
							sizeof(next[c]), false};
		pieces[asked++] = (struct target_piece){cache->owner + at->memory_shareable.value,
							&cache->shareable, sizeof(cache->shareable), false};
	}
	target_gather(target, pieces, asked);
	census->handle_count = 0;
	for (int round = 0; round < HANDLES_MAX && asked && census->handle_count < HANDLES_ALL; round++) {
		asked = 0;
		for (size_t c = 0; c < active; c++) {
			size_t to_end = CENSUS_PAGE - next[c] % CENSUS_PAGE;
			size_t whole = bytes - 1;

			if (!next[c])
				continue;
			memset(raw + c * bytes, 0, bytes);
			/* In two pieces, because a handle is as long as its name. */
			pieces[asked++] = (struct target_piece){next[c], raw + c * bytes,
								whole < to_end ? whole : to_end, false};
			if (whole > to_end)
				pieces[asked++] = (struct target_piece){
					next[c] + to_end, raw + c * bytes + to_end, whole - to_end, false};
		}
		target_gather(target, pieces, asked);
		for (size_t c = 0; c < active; c++) {
			if (!next[c])
				continue;
			if (census->handle_count == capacity) {
				capacity = capacity ? 2 * capacity : active + 1;
				census->handles = array(census->handles, capacity, sizeof(*census->handles));
			}
			struct census_handle *handle = &census->handles[census->handle_count++];

			handle->cache = c;
			handle->size = (uint32_t)target_member(raw + c * bytes, &at->handle_size);
			memcpy(handle->name, raw + c * bytes + head, CENSUS_NAME);
			target_clean_name(handle->name);
			next[c] = target_member(raw + c * bytes, &at->handle_next);
		}
	}
	free(raw);
	free(next);
	free(pieces);
	group_handles(census);
}

/* Drops handles that came or went while they were read. */
static void drop_strays(struct census *census)
{
	size_t kept = 0;

	for (size_t i = 0; i < census->cache_count; i++) {
		struct census_cache *cache = &census->caches[i];

		if (!cache->size || !cache->per_slab || cache->per_slab > UINT16_MAX ||
		    !cache->pages_per_slab || cache->capacity > MAGAZINE_MAX)
			continue;
		target_clean_name(cache->name);
		census->caches[kept++] = *cache;
	}
	census->cache_count = kept;
}

/* ---- caches of the linked engine ------------------------------------------------------------------- */

static void understand_linked(struct census_cache *cache, const struct target *target, const char *raw)
{
	const struct target_fields *at = &target->at;
#define MEMBER(field) target_member(raw, &at->field)
	cache->linked = true;
	cache->number = (uint32_t)MEMBER(linked_number);
	cache->owner = MEMBER(linked_owner);
	cache->object_size = cache->size = (uint32_t)MEMBER(linked_stride);
	cache->constructed = MEMBER(linked_construct) != 0;
	cache->type_stable = MEMBER(linked_type_stable) != 0;
	cache->per_slab = (uint32_t)MEMBER(linked_objects);
	cache->pages_per_slab = (uint32_t)((MEMBER(linked_slab_mask) + 1) / CENSUS_PAGE);
	cache->batch = (uint32_t)MEMBER(linked_batch);
	cache->link = MEMBER(linked_link);
	cache->secret = MEMBER(linked_secret);
	cache->slabs = MEMBER(linked_slab_count);
	cache->created = MEMBER(linked_created);
	cache->freed = MEMBER(linked_freed);
	cache->locks = MEMBER(linked_locks);
#undef MEMBER
	cache->objects = cache->slabs * cache->per_slab;
}

static int by_number(const void *one, const void *other)
{
	const struct census_cache *a = one, *b = other;

	return (a->number > b->number) - (a->number < b->number);
}

/* Where a cache's structure lies, and the cache's index. */
struct place {
	uint64_t address;
	size_t cache;
};

static int by_place(const void *one, const void *other)
{
	const struct place *a = one, *b = other;

	return (a->address > b->address) - (a->address < b->address);
}

/*
 * The two engines' descriptors differ; the page map tells which kind a page's is.  The descriptor of a slab
 * that came or went meanwhile may name any cache, but not one of the other engine.
 */
bool census_read_slabs(const struct census *census, const struct target *target, uint64_t first, size_t count,
		       struct census_slab *slabs)
{
	enum { DESCRIPTOR_MOST = 256 };
	static uint16_t ids[CENSUS_PAGES_AT_ONCE];
	static uint32_t references[CENSUS_PAGES_AT_ONCE];
	static struct target_piece pieces[CENSUS_PAGES_AT_ONCE];
	static char descriptors[CENSUS_PAGES_AT_ONCE][DESCRIPTOR_MOST];
	const struct target_fields *at = &target->at;
	uint64_t map, slab_of, metadata, page = census->heap_start / CENSUS_PAGE + first;
	size_t asked = 0;

	if (at->slab.size > DESCRIPTOR_MOST || at->linked_slab.size > DESCRIPTOR_MOST ||
	    !target_read(target, at->page_entries.value, &map, sizeof(map)) ||
	    !target_read(target, at->page_front.value + at->front_slab_of.value, &slab_of, sizeof(slab_of)) ||
	    !target_read(target, at->page_front.value + at->front_metadata.value, &metadata,
			 sizeof(metadata)) ||
	    !target_read(target, map + page * sizeof(*ids), ids, count * sizeof(*ids)) ||
	    !target_read(target, slab_of + page * sizeof(*references), references,
			 count * sizeof(*references)))
		return false;
	for (size_t i = 0; i < count; i++)
		if (ids[i] >= at->page_id_slab.value && references[i])
			pieces[asked++] = (struct target_piece){
				metadata + references[i] * 64ul, descriptors[i],
				ids[i] == at->page_id_linked.value ? at->linked_slab.size : at->slab.size,
				false};
	target_gather(target, pieces, asked);

	struct place *places = array(NULL, census->cache_count, sizeof(*places));

	for (size_t c = 0; c < census->cache_count; c++)
		places[c] = (struct place){census->caches[c].address, c};
	qsort(places, census->cache_count, sizeof(*places), by_place);
	memset(slabs, 0, count * sizeof(*slabs));
	for (size_t p = 0; p < asked; p++) {
		const char *raw = pieces[p].buffer;
		size_t i = (size_t)(raw - descriptors[0]) / DESCRIPTOR_MOST;
		bool linked = ids[i] == at->page_id_linked.value;
		const struct place wanted = {linked ? target_member(raw, &at->linked_slab_cache)
						    : target_member(raw, &at->slab_cache) -
							      at->cache_slabs.value,
					     0};
		const struct place *place =
			bsearch(&wanted, places, census->cache_count, sizeof(*places), by_place);

		if (pieces[p].read && place && census->caches[place->cache].linked == linked)
			slabs[i] = (struct census_slab){
				&census->caches[place->cache],
				target_member(raw, linked ? &at->linked_slab_base : &at->slab_base),
				(uint32_t)target_member(raw,
							linked ? &at->linked_slab_in_use : &at->slab_in_use)};
	}
	free(places);
	return true;
}

/* Reads the first page of the heap, and the number of pages up to the highest ever used. */
static bool read_heap(struct census *census, const struct target *target)
{
	const struct target_fields *at = &target->at;
	char regions[1024];

	if (at->page_regions.size > sizeof(regions) || REGIONS * at->region.size > at->page_regions.size ||
	    !target_read(target, at->page_regions.value, regions, at->page_regions.size) ||
	    !target_variable(target, &at->page_top, &census->heap_pages))
		return false;
	census->heap_start = target_member(regions + HEAP * at->region.size, &at->region_base);
	return true;
}

/*
 * Objects in use are counted in each slab, so all slabs are read.  Those on the vCPUs' words are part of
 * them, and are counted with the words.
 */
static void count_linked(struct census *census, const struct target *target)
{
	struct census_slab *slabs = array(NULL, CENSUS_PAGES_AT_ONCE, sizeof(*slabs));
	uint64_t count;

	if (!read_heap(census, target))
		census->heap_pages = 0;
	for (uint64_t page = 0; page < census->heap_pages; page += count) {
		count = census->heap_pages - page;
		if (count > CENSUS_PAGES_AT_ONCE)
			count = CENSUS_PAGES_AT_ONCE;
		if (!census_read_slabs(census, target, page, count, slabs))
			break;
		for (size_t i = 0; i < count; i++) {
			/* Once for each slab: at its first page. */
			if (!slabs[i].cache || !slabs[i].cache->linked ||
			    slabs[i].start != census->heap_start + (page + i) * CENSUS_PAGE)
				continue;
			struct census_cache *cache = &census->caches[slabs[i].cache - census->caches];

			cache->allocated += slabs[i].in_use;
			cache->full_slabs += slabs[i].in_use == cache->per_slab;
		}
	}
	for (size_t c = 0; c < census->cache_count; c++)
		if (census->caches[c].linked && census->caches[c].allocated > census->caches[c].objects)
			census->caches[c].allocated = census->caches[c].objects;
	free(slabs);
}

/* Adds the linked caches to the others. */
static void find_linked(struct census *census, const struct target *target)
{
	const struct target_fields *at = &target->at;
	size_t first = census->cache_count, bytes = at->linked.size, asked = 0;
	uint64_t count;

	if (!target_variable(target, &at->linked_cache_count, &count) || !count || count > CACHES_MAX)
		return;
	uint64_t *addresses = array(NULL, count, sizeof(*addresses));
	char *copies = array(NULL, count, bytes);
	struct target_piece *pieces = array(NULL, count, sizeof(*pieces));

	if (target_read(target, at->linked_caches.value, addresses, count * sizeof(*addresses)))
		for (size_t i = 0; i < count; i++)
			if (addresses[i])
				pieces[asked++] =
					(struct target_piece){addresses[i], copies + i * bytes, bytes, false};
	target_gather(target, pieces, asked);
	census->caches = array(census->caches, first + asked, sizeof(*census->caches));
	for (size_t i = 0; i < asked; i++) {
		struct census_cache *cache = &census->caches[census->cache_count];

		if (!pieces[i].read)
			continue;
		*cache = (struct census_cache){.address = pieces[i].address};
		understand_linked(cache, target, pieces[i].buffer);
		uint64_t name = target_member(pieces[i].buffer, &at->linked_name);
		size_t to_end = CENSUS_PAGE - name % CENSUS_PAGE, length = CENSUS_NAME - 1;

		if (target_read(target, name, cache->name, length < to_end ? length : to_end))
			census->cache_count++;
	}
	if (census->cache_count > first) {
		count_linked(census, target);
		drop_strays(census);
		qsort(census->caches, census->cache_count, sizeof(*census->caches), by_number);
	}
	free(pieces);
	free(copies);
	free(addresses);
}

static bool find_caches(struct census *census, const struct target *target)
{
	uint64_t count;

	if (!target_variable(target, &target->at.cache_count, &count) || count > CACHES_MAX)
		return false;
	uint64_t *addresses = array(NULL, count, sizeof(*addresses));
	bool read = target_read(target, target->at.caches.value, addresses, count * sizeof(*addresses));

	census->cache_count = 0;
	for (size_t i = 0; read && i < count; i++)
		if (addresses[i])
			addresses[census->cache_count++] = addresses[i];
	if (read) {
		census->caches = array(census->caches, census->cache_count, sizeof(*census->caches));
		read_caches(census, target, addresses);
		drop_strays(census);
		find_linked(census, target);
		census->handle_count = 0;
		if (target->at.memory_handles.size)
			read_handles(census, target);
	}
	free(addresses);
	return read;
}

/* ---- vCPUs --------------------------------------------------------------------------------------------- */

/* One bank's area of one vCPU, with the words of the bank's caches. */
struct area {
	uint32_t vcpu, bank;
	char *words;
};

static bool is_magazine(const struct target *target, uint64_t word)
{
	return word && word != target->at.vcpu_void.value && word != target->at.vcpu_closed.value;
}

/* Returns the offset of a cache's word in its area. */
static size_t word_offset(const struct target *target, uint32_t number)
{
	uint32_t row = (uint32_t)target->at.area_row.value;
	uint32_t place = number % (uint32_t)target->at.area_bank_caches.value;

	return place / row * target->at.area_group_bytes.value + place % row * sizeof(uint64_t);
}

/*
 * Finds the loaded magazine, and returns how many of its slots are in use, from the slots above the word: the
 * one after the last holds the magazine's own address with bit 0 set.  Without such a slot, 0 for both.
 */
static uint16_t slots_below(const uint64_t *slots, size_t count, uint64_t word, uint64_t first_slot,
			    uint64_t *magazine)
{
	for (size_t above = 0; above < count; above++) {
		uint64_t bottom = (slots[above] & ~1ul) + first_slot;

		if ((slots[above] & 1) && bottom <= word &&
		    word - bottom <= MAGAZINE_MAX * sizeof(uint64_t)) {
			*magazine = slots[above] & ~1ul;
			return (uint16_t)((word - bottom) / sizeof(uint64_t));
		}
	}
	*magazine = 0;
	return 0;
}

struct pending {
	struct census_cell *cell;
	struct census_cache *cache;
	uint64_t word;
	uint64_t *slots;
};

/* As slots_below.  A magazine made before its cache's limit was lowered has more slots than were read. */
static uint16_t slots_loaded(const struct target *target, const struct pending *pending, uint64_t *magazine)
{
	uint64_t all[MAGAZINE_MAX + 2], first_slot = target->at.magazine_slot.value;
	uint16_t slots = slots_below(pending->slots, pending->cache->capacity + 2, pending->word, first_slot,
				     magazine);

	if (*magazine || !target_read(target, pending->word, all, sizeof(all)))
		return slots;
	return slots_below(all, MAGAZINE_MAX + 2, pending->word, first_slot, magazine);
}

/* Counts the objects of linked caches' lists, one of each list at a time.  A list ends in an odd address. */
static void follow_lists(const struct target *target, struct pending *lists, size_t count,
			 struct target_piece *pieces)
{
	uint64_t *links = array(NULL, count, sizeof(*links));

	while (count) {
		size_t going = 0;

		for (size_t i = 0; i < count; i++)
			if (!(lists[i].word & 1) && lists[i].cell->loaded < lists[i].cache->per_slab)
				lists[going++] = lists[i];
		count = going;
		for (size_t i = 0; i < count; i++)
			pieces[i] = (struct target_piece){lists[i].word + lists[i].cache->link, &links[i],
							  sizeof(*links), false};
		target_gather(target, pieces, count);
		for (size_t i = 0; i < count; i++) {
			uint64_t at = lists[i].word + lists[i].cache->link;

			lists[i].cell->loaded = (uint16_t)(lists[i].cell->loaded + pieces[i].read);
			lists[i].word = pieces[i].read ? links[i] ^ at ^ lists[i].cache->secret : 1;
		}
	}
	free(links);
}

/* Some of the slots counted so far contain no object but the mark of a watched one. */
static void subtract_marks(const struct target *target, struct target_piece *pieces, uint16_t **counts,
			   size_t count)
{
	uint16_t *marks = array(NULL, count, sizeof(*marks));

	for (size_t i = 0; i < count; i++) {
		pieces[i].address += target->at.magazine_marks.value;
		pieces[i].buffer = &marks[i];
		pieces[i].bytes = sizeof(*marks);
	}
	target_gather(target, pieces, count);
	for (size_t i = 0; i < count; i++)
		if (pieces[i].read && marks[i] <= *counts[i])
			*counts[i] = (uint16_t)(*counts[i] - marks[i]);
	free(marks);
}

/* Counts the words and spares that lead to something to read. */
static size_t count_words(const struct census *census, const struct target *target, const struct area *areas,
			  size_t area_count)
{
	size_t row = target->at.area_row_bytes.value, bank_caches = target->at.area_bank_caches.value;
	size_t words = 0;

	for (size_t a = 0; a < area_count; a++)
		for (size_t c = 0; c < census->cache_count; c++) {
			uint64_t word, spare;

			if (census->caches[c].number / bank_caches != areas[a].bank)
				continue;
			const char *at = areas[a].words + word_offset(target, census->caches[c].number);

			memcpy(&word, at, sizeof(word));
			memcpy(&spare, at + row, sizeof(spare));
			words += is_magazine(target, word) + is_magazine(target, spare);
		}
	return words;
}

static void count_magazines(struct census *census, const struct target *target, const struct area *areas,
			    size_t area_count)
{
	size_t row = target->at.area_row_bytes.value, bank_caches = target->at.area_bank_caches.value;
	size_t words = count_words(census, target, areas, area_count), loaded = 0, slots = 0, asked = 0;
	struct target_piece *pieces = array(NULL, words, sizeof(*pieces));
	struct pending *pending = array(NULL, words, sizeof(*pending));
	struct pending *lists = array(NULL, words, sizeof(*lists));
	uint16_t **counts = array(NULL, words, sizeof(*counts));
	size_t list_count = 0;

	for (size_t a = 0; a < area_count; a++)
		for (size_t c = 0; c < census->cache_count; c++) {
			struct census_cache *cache = &census->caches[c];
			struct census_cell *cell = &census->cells[c * census->vcpus + areas[a].vcpu];
			uint64_t word, spare, misses;

			if (cache->number / bank_caches != areas[a].bank)
				continue;
			const char *at = areas[a].words + word_offset(target, cache->number);

			memcpy(&word, at, sizeof(word));
			memcpy(&spare, at + row, sizeof(spare));
			memcpy(&misses, at + 2 * row, sizeof(misses));
			cell->alloc_misses = (uint32_t)misses;
			cell->free_misses = (uint32_t)(misses >> 32);
			if (cache->linked) {
				if (is_magazine(target, word))
					lists[list_count++] = (struct pending){cell, cache, word, NULL};
				continue;
			}
			if (is_magazine(target, spare))
				pieces[asked++] =
					(struct target_piece){spare + target->at.magazine_count.value,
							      &cell->spare, sizeof(cell->spare), false};
			if (is_magazine(target, word)) {
				pending[loaded++] = (struct pending){cell, cache, word, NULL};
				slots += cache->capacity + 2;
			}
		}
	uint64_t *slot = array(NULL, slots, sizeof(*slot)), *next = slot;
	size_t first_loaded = asked;

	for (size_t i = 0; i < loaded; i++) {
		size_t length = pending[i].cache->capacity + 2;

		pending[i].slots = next;
		pieces[asked++] = (struct target_piece){pending[i].word, next, length * sizeof(*slot), false};
		next += length;
	}
	memset(slot, 0, slots * sizeof(*slot));
	target_gather(target, pieces, asked);
	/* If a magazine went elsewhere meanwhile, anything may be in its place. */
	for (size_t i = 0; i < first_loaded; i++) {
		struct census_cell *cell =
			(void *)((char *)pieces[i].buffer - offsetof(struct census_cell, spare));
		size_t c = (size_t)(cell - census->cells) / census->vcpus;

		if (!pieces[i].read || cell->spare > census->caches[c].capacity)
			cell->spare = 0;
		counts[i] = &cell->spare;
		pieces[i].address -= target->at.magazine_count.value;
	}
	for (size_t i = 0; i < loaded; i++) {
		uint16_t *count = counts[first_loaded + i] = &pending[i].cell->loaded;

		*count = slots_loaded(target, &pending[i], &pieces[first_loaded + i].address);
	}
	subtract_marks(target, pieces, counts, first_loaded + loaded);
	follow_lists(target, lists, list_count, pieces);
	free(counts);
	free(slot);
	free(lists);
	free(pending);
	free(pieces);
}

static void read_why_slots(struct census *census, const struct target *target)
{
	const struct root_field *text = &target->at.vcpu_why_slots;

	memset(census->why_slots, 0, sizeof(census->why_slots));
	if (text->size >= sizeof(census->why_slots) ||
	    !target_read(target, text->value, census->why_slots, text->size))
		memset(census->why_slots, 0, sizeof(census->why_slots));
	target_clean_name(census->why_slots);
}

static bool find_vcpus(struct census *census, const struct target *target)
{
	static const char *const modes[] = {"slot", "cpu_id", "mm_cid"};
	uint64_t mode, ids, banks;

	if (!target_variable(target, &target->at.vcpu_mode, &mode) ||
	    !target_variable(target, &target->at.vcpu_ids, &ids) ||
	    !target_variable(target, &target->at.vcpu_bank_count, &banks) || ids > VCPUS_MAX || banks > 64)
		return false;
	census->mode = mode < 3 ? modes[mode] : "unknown";
	read_why_slots(census, target);

	/* Only ids up to the highest with an area: many more are possible than used. */
	size_t entries = banks * ids, area_count = 0, area_bytes = target->at.area.size;
	uint64_t *addresses = array(NULL, entries, sizeof(*addresses));
	char *bank = array(NULL, banks, target->at.vcpu_banks.size);
	struct area *areas;
	struct target_piece *pieces = array(NULL, entries, sizeof(*pieces));
	bool read =
		target_read(target, target->at.vcpu_banks.value, bank, banks * target->at.vcpu_banks.size);

	for (size_t b = 0; read && b < banks; b++)
		read = target_read(
			target, target_member(bank + b * target->at.vcpu_banks.size, &target->at.bank_areas),
			addresses + b * ids, ids * sizeof(*addresses));
	census->vcpus = 0;
	for (size_t i = 0; read && i < entries; i++)
		if (addresses[i]) {
			area_count++;
			if (i % ids >= census->vcpus)
				census->vcpus = (uint32_t)(i % ids) + 1;
		}
	areas = array(NULL, area_count, sizeof(*areas));
	char *words = array(NULL, area_count, area_bytes);

	area_count = 0;
	for (size_t i = 0; read && i < entries; i++)
		if (addresses[i]) {
			struct area *area = &areas[area_count];

			*area = (struct area){(uint32_t)(i % ids), (uint32_t)(i / ids),
					      words + area_count * area_bytes};
			pieces[area_count++] =
				(struct target_piece){addresses[i], area->words, area_bytes, false};
		}
	target_gather(target, pieces, area_count);
	for (size_t i = 0; i < area_count; i++)
		if (!pieces[i].read)
			memset(areas[i].words, 0, area_bytes);
	if (census->cache_count * census->vcpus > CELLS_MAX)
		bounds_no_room();
	census->cells = array(census->cells, census->cache_count * census->vcpus, sizeof(*census->cells));
	memset(census->cells, 0, census->cache_count * census->vcpus * sizeof(*census->cells));
	if (read)
		count_magazines(census, target, areas, area_count);
	free(words);
	free(areas);
	free(pieces);
	free(bank);
	free(addresses);
	return read;
}

/* ---- pages --------------------------------------------------------------------------------------------- */

static void count_standby(struct census *census, const struct target *target, const uint64_t *words,
			  size_t count)
{
	const struct target_fields *at = &target->at;

	for (size_t i = 0; i < count; i++) {
		uint64_t turns = words[i] & ((1ull << at->standby_turns_bits.value) - 1);
		uint64_t pages = words[i] >> at->standby_turns_bits.value &
				 ((1ull << at->standby_pages_bits.value) - 1);

		/* Excludes runs that came to standby after the others were counted. */
		census->large_allocs += minus(turns, pages != 0);
		census->large_frees += turns;
		census->large_runs = minus(census->large_runs, pages != 0);
		census->large_pages = minus(census->large_pages, pages);
		census->dirty_pages += pages;
	}
}

/* Large runs on standby are free; the allocations they serve are counted with them. */
static bool read_standby(struct census *census, const struct target *target)
{
	const struct target_fields *at = &target->at;
	size_t count = at->standby_words.size / sizeof(uint64_t);
	uint64_t *words = array(NULL, count, sizeof(*words)), before[2];
	bool read = at->standby_before.size == sizeof(before) &&
		    target_read(target, at->standby_words.value, words, count * sizeof(*words)) &&
		    target_read(target, at->standby_before.value, before, sizeof(before));

	if (read) {
		census->large_allocs += before[0];
		census->large_frees += before[1];
		count_standby(census, target, words, count);
	}
	free(words);
	return read;
}

/* Each pocket begins with three counts: its pages are free, and only it counts the runs that it serves. */
static bool read_pockets(struct census *census, const struct target *target)
{
	const struct target_fields *at = &target->at;

	for (size_t from = 0; at->pocket.size && from < at->pocket_each.size; from += at->pocket.size) {
		uint64_t counts[3]; /* takes, puts, pages */

		if (!target_read(target, at->pocket_each.value + from, counts, sizeof(counts)))
			return false;
		census->large_allocs += counts[0];
		census->large_frees += counts[1];
		census->large_runs += counts[0] - counts[1];
		census->large_pages = minus(census->large_pages, counts[2]);
		census->dirty_pages += counts[2];
	}
	return true;
}

/* Pages kept for a run to grow into are free; those that it has grown into are in no count yet. */
static bool read_headroom(struct census *census, const struct target *target)
{
	const struct target_fields *at = &target->at;
	uint64_t words[16];
	uint32_t kept[16];
	size_t count = at->headroom_words.size / sizeof(words[0]);

	if (at->headroom_words.size > sizeof(words) || at->headroom_kept.size != count * sizeof(kept[0]) ||
	    !target_read(target, at->headroom_words.value, words, at->headroom_words.size) ||
	    !target_read(target, at->headroom_kept.value, kept, at->headroom_kept.size))
		return false;
	for (size_t i = 0; i < count; i++) {
		uint32_t pages = (uint32_t)words[i] >> at->headroom_pages_shift.value;

		if (!words[i])
			continue;
		census->large_pages += minus(kept[i], pages);
		*(words[i] & 1 ? &census->clean_pages : &census->dirty_pages) += pages;
	}
	return true;
}

/* The number of slots is a member of a variable; the rest are variables. */
static bool read_guarded(struct census *census, const struct target *target)
{
	const struct target_fields *at = &target->at;
	const struct root_field slots = {.value = at->guard.value + at->guard_slots.value,
					 .size = at->guard_slots.size};

	return target_variable(target, &slots, &census->guarded.slots) &&
	       target_variable(target, &at->guard_picked, &census->guarded.picked) &&
	       target_variable(target, &at->guard_refused, &census->guarded.refused) &&
	       target_variable(target, &at->guard_passed, &census->guarded.passed) &&
	       target_variable(target, &at->guard_spent, &census->guarded.nanoseconds) &&
	       target_variable(target, &at->guard_live, &census->guarded.live) &&
	       target_variable(target, &at->guard_bytes, &census->guarded.bytes);
}

static bool read_pages(struct census *census, const struct target *target)
{
	const struct target_fields *at = &target->at;
	uint64_t free_pages[2];
	char regions[1024];
	bool read = at->page_regions.size <= sizeof(regions) && at->page_free.size == sizeof(free_pages) &&
		    REGIONS * at->region.size <= at->page_regions.size &&
		    target_read(target, at->page_regions.value, regions, at->page_regions.size) &&
		    target_read(target, at->page_free.value, free_pages, sizeof(free_pages)) &&
		    target_variable(target, &at->page_top, &census->heap_pages) &&
		    target_variable(target, &at->page_in_transit, &census->transit_pages) &&
		    target_variable(target, &at->page_large, &census->large_pages) &&
		    target_variable(target, &at->page_large_runs, &census->large_runs) &&
		    target_variable(target, &at->page_purged, &census->purged) &&
		    target_variable(target, &at->metadata_used, &census->metadata_used) &&
		    target_variable(target, &at->huge_live, &census->huge_mappings) &&
		    target_variable(target, &at->huge_mapped, &census->huge_bytes) &&
		    target_variable(target, &at->huge_cached, &census->huge_cached) &&
		    target_variable(target, &at->large_allocs, &census->large_allocs) &&
		    target_variable(target, &at->large_frees, &census->large_frees) &&
		    target_variable(target, &at->vcpu_fences, &census->fences) &&
		    target_variable(target, &at->arch_aborts, &census->aborts);

	if (!read || (at->background_thread.size &&
		      !target_variable(target, &at->background_thread, &census->background)))
		return false;
	census->clean_pages = free_pages[0];
	census->dirty_pages = free_pages[1];
	census->purged *= CENSUS_PAGE;
	if (!read_standby(census, target) || !read_pockets(census, target) ||
	    !read_headroom(census, target) || !read_guarded(census, target))
		return false;
	uint64_t committed[REGIONS];

	for (unsigned i = 0; i < REGIONS; i++)
		committed[i] = target_member(regions + i * at->region.size, &at->region_committed);
	census->metadata_end =
		target_member(regions + METADATA * at->region.size, &at->region_base) + committed[METADATA];
	census->heap_start = target_member(regions + HEAP * at->region.size, &at->region_base);
	/* What is used was read a little later, and may have grown. */
	census->heap_committed = larger(committed[HEAP], census->heap_pages * CENSUS_PAGE);
	census->metadata_committed = larger(committed[METADATA], census->metadata_used);
	/* The vCPU table, and the page map's part for addresses below the heap, precede the map's region. */
	uint64_t map;

	if (!target_read(target, at->page_front.value + at->front_map.value, &map, sizeof(map)))
		return false;
	uint64_t table = (at->page_table_bytes.value + CENSUS_PAGE - 1) / CENSUS_PAGE * CENSUS_PAGE;

	census->tables_start = map - table;
	census->tables_committed = table + committed[MAP] + committed[SLAB_OF] + committed[RUNS];
	return true;
}

/* ---- what is resident ---------------------------------------------------------------------------------- */

struct huge {
	uint64_t address, bytes;
};

static int by_address(const void *one, const void *other)
{
	const struct huge *a = one, *b = other;

	return (a->address > b->address) - (a->address < b->address);
}

/* Reads the mappings that are huge objects, and those waiting to be one again, sorted by address. */
static size_t read_huge(const struct target *target, struct huge **mappings)
{
	const struct target_fields *at = &target->at;
	uint64_t table, slots = 0;
	size_t waiting = at->huge_waiting.size / at->huge_waiting_each.size, count = 0;
	char *raw = array(NULL, waiting, at->huge_waiting_each.size);

	if (target_variable(target, &at->huge_table, &table) && table &&
	    (!target_read(target, table, &slots, sizeof(slots)) || slots > 1ul << 26))
		slots = 0;
	struct huge *all = array(NULL, slots + waiting, sizeof(*all));

	if (!target_read(target, table + sizeof(slots), all, slots * sizeof(*all)))
		slots = 0;
	for (size_t i = 0; i < slots; i++)
		if (all[i].address > 1 && all[i].bytes) {
			all[count] = all[i];
			all[count++].bytes &= ~1ul; /* set if the system refused to take it back */
		}
	if (target_read(target, at->huge_waiting.value, raw, at->huge_waiting.size))
		for (size_t i = 0; i < waiting; i++) {
			struct huge one;

			memcpy(&one, raw + i * at->huge_waiting_each.size, sizeof(one));
			if (one.address)
				all[count++] = one;
		}
	qsort(all, count, sizeof(*all), by_address);
	free(raw);
	*mappings = all;
	return count;
}

/* Returns how many bytes of [start, end) such mappings cover. */
static uint64_t covered(const struct huge *mappings, size_t count, uint64_t start, uint64_t end)
{
	uint64_t bytes = 0;
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (mappings[middle].address + mappings[middle].bytes <= start)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < count && mappings[low].address < end; low++) {
		uint64_t from = mappings[low].address > start ? mappings[low].address : start;
		uint64_t to = mappings[low].address + mappings[low].bytes;

		bytes += (to < end ? to : end) - from;
	}
	return bytes;
}

bool census_residents(struct census *census, const struct target *target)
{
	char path[64], line[4096 + 128];
	unsigned long start = 0, end = 0, kilobytes;
	uint64_t heap_end = census->heap_start + census->heap_committed;
	struct huge *mappings;

	census->residents_known = false;
	census->resident = census->resident_metadata = census->resident_huge = 0;
	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)target->thread);
	FILE *smaps = fopen(path, "re");

	if (!smaps && errno == ENOMEM)
		bounds_no_room();
	if (!smaps)
		return false;
	bounds_look(target->pid);
	size_t count = read_huge(target, &mappings);

	while (fgets(line, sizeof(line), smaps)) {
		if (sscanf(line, "%lx-%lx %*4s", &start, &end) == 2 && strchr(line, '-') < strchr(line, ' '))
			continue;
		if (sscanf(line, "Rss: %lu kB", &kilobytes) != 1)
			continue;
		uint64_t bytes = (uint64_t)kilobytes << 10;

		census->residents_known = true;
		if (start >= census->heap_start && start < heap_end) {
			census->resident += bytes;
		} else if (start >= census->tables_start && start < census->metadata_end) {
			census->resident_metadata += bytes;
		} else {
			uint64_t huge = covered(mappings, count, start, end);

			census->resident_huge += bytes < huge ? bytes : huge;
		}
	}
	bounds_done();
	fclose(smaps);
	free(mappings);
	return census->residents_known;
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

uint64_t census_space(const struct census_cache *cache)
{
	return cache->slabs * cache->pages_per_slab * CENSUS_PAGE;
}

uint64_t census_loss(const struct census_cache *cache)
{
	return minus(census_space(cache), cache->live * cache->size);
}

uint64_t census_partial(const struct census_cache *cache)
{
	return minus(cache->slabs, cache->full_slabs + cache->empty_slabs);
}

static void add_up(struct census *census)
{
	census->live_bytes = census->vcpu_bytes = census->depot_bytes = 0;
	census->free_bytes = census->slack_bytes = census->slab_bytes = 0;
	for (size_t c = 0; c < census->cache_count; c++) {
		struct census_cache *cache = &census->caches[c];

		for (uint32_t v = 0; v < census->vcpus; v++) {
			const struct census_cell *cell = &census->cells[c * census->vcpus + v];

			cache->in_vcpus += cell->loaded + cell->spare;
			cache->alloc_misses += cell->alloc_misses;
			cache->free_misses += cell->free_misses;
		}
		/*
		 * Read after the slabs: a magazine that has just been filled can seem to hold more than was
		 * taken.
		 */
		if (cache->in_depot > cache->allocated)
			cache->in_depot = cache->allocated;
		if (cache->in_vcpus > cache->allocated - cache->in_depot)
			cache->in_vcpus = cache->allocated - cache->in_depot;
		cache->live = cache->allocated - cache->in_depot - cache->in_vcpus;

		census->live_bytes += cache->live * cache->size;
		census->vcpu_bytes += cache->in_vcpus * cache->size;
		census->depot_bytes += cache->in_depot * cache->size;
		census->free_bytes += minus(cache->objects, cache->allocated) * cache->size;
		census->slab_bytes += census_space(cache);
		census->slack_bytes += census_space(cache) - cache->objects * cache->size;
	}
}

/*
 * Pages are counted after slabs, so those of a slab that went back in between are counted as free, too.  They
 * still count as the slab's here: all other categories share what slabs leave, and what went back last is
 * free and resident.
 */
static void settle_pages(struct census *census)
{
	uint64_t *const others[] = {&census->large_pages, &census->transit_pages, &census->clean_pages,
				    &census->dirty_pages};
	uint64_t room = minus(census->heap_pages, census->slab_bytes / CENSUS_PAGE);

	census->slab_pages = census->heap_pages;
	for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		if (*others[i] > room)
			*others[i] = room;
		room -= *others[i];
		census->slab_pages -= *others[i];
	}
}

void census_parts(const struct census *census, struct census_part parts[static CENSUS_PARTS])
{
	uint64_t heap_used = census->heap_pages * CENSUS_PAGE;
	uint64_t pages = CENSUS_PAGE;
	const struct census_part all[CENSUS_PARTS] = {
		{"live", "objects of caches that the program has", census->live_bytes},
		{"large", "objects of pages of their own", census->large_pages * pages},
		{"huge", "objects of mappings of their own", census->huge_bytes},
		{"vcpu", "free objects in magazines of vCPUs", census->vcpu_bytes},
		{"depot", "free objects in depots", census->depot_bytes},
		{"free", "free objects in slabs", census->free_bytes},
		{"slack", "ends of slabs too short for an object", census->slack_bytes},
		/* Slabs on the way between the page layer and their cache. */
		{"moving", "pages on the way from one state to another",
		 census->slab_pages * pages - census->slab_bytes + census->transit_pages * pages},
		{"dirty", "free pages that are still resident", census->dirty_pages * pages},
		{"returned", "free pages that went back to the system", census->clean_pages * pages},
		{"unused", "mapped, and not used yet",
		 census->heap_committed - heap_used + census->metadata_committed - census->metadata_used},
		{"cached", "mappings that wait to be used again", census->huge_cached},
		{"metadata", "descriptors, magazines, vCPU areas and tables",
		 census->metadata_used + census->tables_committed},
		{NULL, NULL, 0},
	};
	memcpy(parts, all, sizeof(all));
}

uint64_t census_mapped(const struct census *census)
{
	return census->heap_committed + census->metadata_committed + census->tables_committed +
	       census->huge_bytes + census->huge_cached;
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

/* Returns how often this thread has yielded or lost its CPU. */
static long count_interruptions(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_THREAD, &usage) != 0)
		return 0;
	return usage.ru_nvcsw + usage.ru_nivcsw;
}

/* Of all threads that the target has or had. */
static bool read_cpu_time(const struct target *target, struct timespec *time)
{
	clockid_t clock;

	return clock_getcpuclockid(target->pid, &clock) == 0 && clock_gettime(clock, time) == 0;
}

enum target_status census_take(struct census *census, struct target *target)
{
	enum { READINGS = 4 };
	bool whole = true;

	census->interrupted = true;
	bounds_look(target->pid);
	for (int reading = 0; whole && census->interrupted && reading < READINGS; reading++) {
		long before = count_interruptions();

		clock_gettime(CLOCK_MONOTONIC, &census->when);
		census->cpu_known = read_cpu_time(target, &census->cpu_when);
		whole = find_caches(census, target) && find_vcpus(census, target) &&
			read_pages(census, target);
		census->cpu_known = census->cpu_known && read_cpu_time(target, &census->cpu_until);
		clock_gettime(CLOCK_MONOTONIC, &census->until);
		census->interrupted = count_interruptions() != before;
	}
	enum target_status status = target_check(target);

	bounds_done();
	if (status != TARGET_READY)
		return status;
	if (!whole) {
		snprintf(target->trouble, sizeof(target->trouble), "its memory cannot be made sense of");
		return TARGET_CHANGED;
	}
	add_up(census);
	settle_pages(census);
	return TARGET_READY;
}

bool census_open(struct census *census, struct target *target, const char *command, const char *text)
{
	*census = (struct census){0};
	if (!target_open(target, command, text))
		return false;
	if (census_take(census, target) == TARGET_READY)
		return true;
	fprintf(stderr, "%s: process %d: %s\n", command, (int)target->pid, target->trouble);
	census_free(census);
	target_detach(target);
	return false;
}

void census_free(struct census *census)
{
	free(census->caches);
	free(census->cells);
	free(census->handles);
	*census = (struct census){0};
}
