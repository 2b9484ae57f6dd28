/* SPDX-License-Identifier: MIT */
/*
 * linked_paths: the states of slabs, words and lists of the linked engine, step by step: what freezes and
 * thaws a slab, lists it, and gives it back; geometry and links; the treatment of idle, closed and foreign
 * words; and the reports about broken lists.
 *
 * It runs pinned to a CPU, with one thread except where stated.
 */
#include "check.h"

#include <cpuslab/cache.h>

#include "heap.h"
#include "linked/linked.h"
#include "linked/slab.h"
#include "magazine/magazine.h"
#include "options/options.h"
#include "slab/geometry.h"

enum { SIZE = 256, MOST = 4000 };

static struct linked_cache *cache;
static void *objects[MOST];
static const struct linked_traits plain = {
	.name = "test", .size = SIZE, .alignment = 8, .link = LINKED_ANYWHERE};

static struct linked_cache *create(struct linked_traits traits)
{
	struct linked_cache *made = metadata_alloc(sizeof *made);

	CHECK(made && linked_create(made, &traits, NULL));
	return made;
}

static void destroy(struct linked_cache *made)
{
	CHECK(linked_destroy(made));
	metadata_free(made, sizeof *made);
}

static void *take(void)
{
	void *object = linked_alloc(cache);

	object = object ? object : linked_alloc_missed(cache);
	CHECK(object);
	return object;
}

static void give(void *object)
{
	if (!linked_free(cache, object))
		linked_free_missed(cache, object);
}

static uintptr_t word(void)
{
	return arch_peek(vcpu_self, cache->map, cache->offset);
}

static const struct linked_slab *slab_of(const void *object)
{
	return linked_slab_at(object);
}

static struct linked_statistics statistics(void)
{
	struct linked_statistics now;

	linked_statistics(cache, &now);
	return now;
}

/* ---- one slab after another ------------------------------------------------------------------------ */

static void test_word(void)
{
	cache = create(plain);
	CHECK(word() == vcpu_void && cache->slabs == 0);
	char *first = take();
	const struct linked_slab *slab = slab_of(first);

	/* Lowest address first; the word is the next object, and the slab is frozen. */
	CHECK(first == slab->base && slab->state.frozen && slab->cache == cache);
	CHECK(word() == (uintptr_t)first + SIZE && cache->slabs == 1 && cache->partial == 0);
	for (unsigned i = 1; i < cache->objects; i++)
		CHECK(take() == first + (size_t)i * SIZE);
	/* No object is left, and the word still names the slab. */
	CHECK(word() == ((uintptr_t)first | 1) && slab->state.in_use == cache->objects);

	/* Frees go to the word's slab, LIFO. */
	give(first + 2 * SIZE);
	give(first);
	CHECK(word() == (uintptr_t)first && take() == first && take() == first + 2 * SIZE);
	CHECK(slab->state.list == ((uintptr_t)first | 1));

	/* The next slab; the first one thaws and is in no list until one of its objects is freed. */
	char *second = take();

	CHECK(slab_of(second) != slab && !slab->state.frozen && cache->slabs == 2 && cache->partial == 0);
	give(first + SIZE);
	CHECK(cache->partial == 1 && cache->first == slab && slab->state.list == (uintptr_t)first + SIZE);
	CHECK(slab->state.in_use == cache->objects - 1u && word() == (uintptr_t)second + SIZE);
	give(first + 3 * SIZE);
	CHECK(cache->partial == 1 && slab->state.in_use == cache->objects - 2u);

	/* When the second one is used up, the first is frozen again, with its list. */
	for (unsigned i = 1; i < cache->objects; i++)
		CHECK(take() == second + (size_t)i * SIZE);
	CHECK(take() == first + 3 * SIZE && slab->state.frozen && cache->partial == 0);
	CHECK(take() == first + SIZE && word() == ((uintptr_t)first | 1));
	CHECK(cache->slabs == 2 && statistics().allocated == 2ull * cache->objects);
	for (unsigned i = 0; i < cache->objects; i++) {
		give(first + (size_t)i * SIZE);
		give(second + (size_t)i * SIZE);
	}
	CHECK(statistics().allocated == 0 && statistics().hoarded == cache->objects);
	destroy(cache);
}

/* Objects that others free into a frozen slab wait in its own list until the word has none left. */
static void *free_all(void *argument)
{
	unsigned *count = argument;

	for (unsigned i = 0; i < *count; i++)
		linked_free_missed(cache, objects[i]);
	return NULL;
}

static void test_foreign_frees(void)
{
	cache = create(plain);
	unsigned count = cache->objects;

	for (unsigned i = 0; i < count; i++)
		objects[i] = take();
	const struct linked_slab *slab = slab_of(objects[0]);

	check_join(check_thread(free_all, &count));
	CHECK(slab->state.frozen && slab->state.in_use == 0 && cache->partial == 0);
	CHECK(word() == ((uintptr_t)slab->base | 1));
	uint32_t acquires = cache->lock_acquires;

	/* Taken as a whole, LIFO, without the cache's lock. */
	for (unsigned i = count; i-- > 0;)
		CHECK(take() == objects[i]);
	CHECK(cache->lock_acquires == acquires && slab->state.in_use == count && cache->slabs == 1);
	for (unsigned i = 0; i < count; i++)
		give(objects[i]);
	destroy(cache);
}

/*
 * A slab that becomes empty is freed if there are as many partial ones as the rule says, itself included, as
 * in the kernel.
 */
static void test_min_partial(void)
{
	static const struct {
		uint32_t size, kept;
	} rows[] = {{8, 5}, {1024, 5}, {4096, 6}, {65536, 8}, {1 << 20, 10}, {2 << 20, 10}};

	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct linked_traits traits = plain;

		traits.size = rows[i].size;
		cache = create(traits);
		CHECK(cache->min_partial == rows[i].kept, "%u bytes: %u", traits.size, cache->min_partial);
		unsigned count = cache->objects * (rows[i].kept + 4u);

		if (count < MOST && traits.size < 100000) {
			for (unsigned n = 0; n < count; n++)
				objects[n] = take();
			CHECK(cache->slabs == rows[i].kept + 4u);
			for (unsigned n = 0; n < count; n++)
				give(objects[n]);
			/* A slab of one object reaches the list and the check at once. */
			unsigned kept = rows[i].kept - (cache->objects > 1);

			/* Plus the one on the word. */
			CHECK(cache->partial == kept && cache->slabs == kept + 1 &&
				      cache->freed == rows[i].kept + 3 - kept,
			      "%u bytes: %u slabs, %u partial", traits.size, cache->slabs, cache->partial);
			linked_shrink(cache);
			CHECK(cache->slabs == 0 && word() == vcpu_void);
		}
		destroy(cache);
	}
}

static void construct(void *object)
{
	memset(object, 0x33, SIZE);
}

static void test_geometry(void)
{
	for (uint32_t size = 1; size < 40000; size += size / 3 + 1)
		for (unsigned kept = 0; kept < 2; kept++) {
			struct linked_traits traits = plain;
			struct geometry_slub_rule rule = {
				.page_bytes = 4096, .cpus = os_cpus(), .order_highest = 3, .order_block = 10};

			traits.size = size;
			traits.type_stable = kept;
			cache = create(traits);
			struct geometry geometry = geometry_slub(&rule, cache->stride);

			CHECK(cache->objects == geometry.objects &&
			      cache->list.slab_mask + 1 == geometry.bytes);
			CHECK(cache->stride % 8 == 0 && cache->stride >= size && cache->usable >= size);
			CHECK(cache->list.link + 8 <= cache->stride && cache->list.link % 8 == 0);
			CHECK(kept ? cache->list.link >= size : cache->stride < size + 8, "%u bytes", size);
			char *object = take();

			CHECK((uintptr_t)slab_of(object)->base % geometry.bytes == 0);
			give(object);
			destroy(cache);
		}
	struct linked_traits traits = plain;

	traits.link = 120;
	traits.construct = construct;
	cache = create(traits);
	CHECK(cache->list.link == 120 && cache->stride == SIZE);
	char *object = take();

	give(object);
	CHECK(check_all_bytes(object, 120, 0x33) && check_all_bytes(object + 128, SIZE - 128, 0x33));
	CHECK(!check_all_bytes(object + 120, 8, 0x33));
	destroy(cache);
}

/* Links do not reveal addresses. */
static void test_obfuscation(void)
{
	cache = create(plain);
	char *first = take(), *second = take();
	uint64_t links[2];

	give(second);
	give(first);
	memcpy(&links[0], first + cache->list.link, 8);
	memcpy(&links[1], second + cache->list.link, 8);
	CHECK(linked_next(cache, (uintptr_t)first) == (uintptr_t)second);
	for (int i = 0; i < 2; i++)
		CHECK(links[i] >> 32 != (uintptr_t)first >> 32 && cache->list.secret);
	/* The same list in another place looks different. */
	CHECK((links[0] ^ links[1]) != ((uintptr_t)second ^ linked_next(cache, (uintptr_t)second)));
	destroy(cache);
}

static void test_shuffle(void)
{
	struct linked_traits traits = plain;
	bool seen[512] = {0};
	unsigned in_order = 0;

	traits.size = 8;
	options.shuffle = true;
	cache = create(traits);
	options.shuffle = false;
	CHECK(cache->objects == 512 && cache->batch == 512);
	options.shuffle = true;
	char *base = NULL, *before = NULL;

	for (unsigned i = 0; i < 512; i++) {
		char *object = take();

		base = slab_of(object)->base;
		CHECK(!seen[(object - base) / 8]);
		seen[(object - base) / 8] = true;
		in_order += before && object == before + 8;
		before = object;
	}
	CHECK(in_order < 20, "%u of 511 in order", in_order);
	options.shuffle = false;
	for (unsigned i = 0; i < 512; i++)
		give(base + (size_t)i * 8);
	destroy(cache);
}

/* ---- words of other vCPUs ------------------------------------------------------------------------------ */

static void test_reclaim(void)
{
	cache = create(plain);
	void *object = take();

	/* The first look sees that it was in use, the second that it was not. */
	linked_reclaim(false);
	CHECK(word() != vcpu_void);
	give(object);
	linked_reclaim(false);
	CHECK(word() != vcpu_void);
	linked_reclaim(false);
	CHECK(word() == vcpu_void && cache->slabs == 1 && cache->partial == 1);
	/* And a cache unused since then keeps no empty slab. */
	linked_reclaim(false);
	linked_reclaim(false);
	CHECK(cache->slabs == 0);
	object = take();
	linked_reclaim(true);
	CHECK(word() == vcpu_void && cache->slabs == 1 && statistics().allocated == 1);
	give(object);
	CHECK(cache->slabs == 1);
	destroy(cache);
}

static void test_closed(void)
{
	unsigned id = arch_id(vcpu_self);

	cache = create(plain);
	void *object = take();
	const struct linked_slab *slab = slab_of(object);

	CHECK(vcpu_close(id));
	CHECK(word() == vcpu_closed && !linked_alloc(cache));
	void *other = take();

	/* Nothing stays on a closed word: its slab is partial again. */
	CHECK(slab_of(other) != slab && !slab_of(other)->state.frozen && cache->partial == 1);
	give(object);
	CHECK(slab->state.frozen && slab->state.list == (uintptr_t)object);
	vcpu_reopen(id);
	CHECK(word() == (uintptr_t)object + SIZE);
	give(other);
	destroy(cache);
}

static void test_bulk(void)
{
	cache = create(plain);
	for (size_t count = 0; count < MOST; count = count * 2 + 3) {
		CHECK(linked_alloc_several(cache, objects, count) == count);
		CHECK(statistics().allocated == count);
		for (size_t i = 0; i < count; i++)
			check_stamp(objects[i], SIZE, i);
		/*
		 * For odd counts some are swapped, so that both neighbours and objects far apart follow each
		 * other.
		 */
		for (size_t i = 0; count % 2 && i + 1 < count; i += 3) {
			void *swapped = objects[i];

			objects[i] = objects[count - 1 - i];
			objects[count - 1 - i] = swapped;
		}
		linked_free_several(cache, objects, count);
		CHECK(statistics().allocated == 0);
	}
	linked_shrink(cache);
	CHECK(cache->slabs == 0);
	destroy(cache);
}

/*
 * The overhead of a cache with one object, beside the object's slab: its handle, what is behind it, the
 * slab's descriptor, and four words for each vCPU.
 */
static void test_metadata(void)
{
	enum { CACHES = 1000 };
	static struct cpuslab_cache *many[CACHES];
	static void *one[CACHES];
	struct page_statistics before, after;
	unsigned vcpus = (unsigned)sysconf(_SC_NPROCESSORS_CONF); /* the test itself is pinned to one */

	page_statistics(&before);
	for (unsigned i = 0; i < CACHES; i++) {
		char name[16];
		struct cpuslab_cache_args args = {.name = name,
						  .size = 96,
						  .engine = CPUSLAB_ENGINE_LINKED,
						  .flags = CPUSLAB_CACHE_NO_MERGE};

		snprintf(name, sizeof name, "cache-%u", i);
		CHECK((many[i] = cpuslab_cache_create(&args)));
		CHECK((one[i] = cpuslab_cache_alloc(many[i])));
	}
	page_statistics(&after);
	size_t each =
		(after.metadata_bytes - before.metadata_bytes) / CACHES / vcpus + VCPU_GROUP_BYTES / VCPU_ROW;

	printf("%zu bytes of metadata for each of %u vCPUs and cache\n", each, vcpus);
	CHECK(vcpus < 2 || each < 200);
	for (unsigned i = 0; i < CACHES; i++) {
		cpuslab_cache_free(many[i], one[i]);
		CHECK(cpuslab_cache_destroy(many[i]) == 0);
	}
}

static unsigned visited;

static void visit(void *object, void *argument)
{
	(void)argument;
	CHECK(object == objects[visited]);
	visited++;
}

/* A report looks at a word's slab without the lock: by then its descriptor may have been reused. */
static void test_statistics(void)
{
	cache = create(plain);
	void *object = take();
	struct linked_slab *slab = linked_slab_at(object);
	uint16_t in_use = slab->state.in_use;

	CHECK(statistics().allocated == 1);
	slab->state.in_use = UINT16_MAX;
	CHECK(statistics().allocated == 1, "%llu", (unsigned long long)statistics().allocated);
	slab->state.in_use = in_use;
	give(object);
	destroy(cache);
}

static void test_visit(void)
{
	cache = create(plain);
	unsigned count = 3u * cache->objects, kept = 0;

	for (unsigned i = 0; i < count; i++)
		objects[i] = take();
	for (unsigned i = 0; i < count; i++) {
		if (i % 7 == 3)
			objects[kept++] = objects[i];
		else
			give(objects[i]);
	}
	CHECK(!linked_destroy(cache));
	/* The cache works as before, and the remaining objects are known. */
	visited = 0;
	linked_visit_objects(cache, visit, NULL);
	CHECK(visited == kept, "%u of %u", visited, kept);
	give(take());
	while (kept)
		give(objects[--kept]);
	destroy(cache);
}

static void visit_any(void *object, void *argument)
{
	(void)object;
	(void)argument;
}

/* ---- broken lists -------------------------------------------------------------------------------------- */

static void free_twice(void *argument)
{
	give(argument);
	give(argument);
}

static void free_twice_between(void *argument)
{
	void *other = take();

	give(argument);
	give(other);
	give(argument);
	linked_shrink(cache);
}

static void free_inside(void *argument)
{
	give((char *)argument + 8);
}

static void overwrite(void *argument)
{
	give(argument);
	memset(argument, 0x41, SIZE);
	take();
	take();
}

static void overwrite_idle(void *argument)
{
	give(argument);
	memset(argument, 0x41, SIZE);
	linked_shrink(cache);
}

static void overwrite_listed(void *argument)
{
	take(); /* keeps the slab alive */
	give(argument);
	linked_shrink(cache);
	memset(argument, 0x41, SIZE);
	linked_try_alloc_missed(cache);
}

/* Objects of a full slab that is on no word: frees go to the slab's own list. */
static char **take_full(void)
{
	static char *full[MOST];
	unsigned count = 2u * cache->objects;

	for (unsigned i = 0; i < count; i++)
		full[i] = take();
	return full;
}

/* Creates a cycle in that list, which only the walk over allocated objects follows. */
static void free_twice_and_visit(void *argument)
{
	char **full = take_full();

	give(full[3]);
	give(full[5]);
	give(full[3]);
	(void)argument;
	if (!linked_destroy(cache))
		linked_visit_objects(cache, visit_any, NULL);
}

/*
 * The same, but now the counts say that the slab is empty, though the program still has an object of it: it
 * must not be freed.
 */
static void free_twice_and_release(void *argument)
{
	char **full = take_full();

	give(full[3]);
	give(full[5]);
	give(full[3]);
	for (unsigned i = 0; i < cache->objects - 1u; i++)
		if (i != 3 && i != 5 && i != 7)
			give(full[i]);
	give(argument);
	linked_shrink(cache);
}

/* In a bulk free one object occurs twice, at any two positions, and with the slab in any state. */
static void free_twice_at_once(char **of, unsigned first, unsigned second)
{
	void *several[6];

	for (unsigned i = 0; i < 6; i++)
		several[i] = of[i];
	several[second] = several[first];
	linked_free_several(cache, several, 6);
}

static void free_first_twice_at_once(void *argument)
{
	(void)argument;
	free_twice_at_once(take_full(), 0, 3);
}

static void free_last_twice_at_once(void *argument)
{
	(void)argument;
	free_twice_at_once(take_full(), 2, 5);
}

static void free_neighbours_twice_at_once(void *argument)
{
	(void)argument;
	free_twice_at_once(take_full(), 3, 4);
}

static void free_twice_at_once_in_hand(void *argument)
{
	char *mine[6];

	for (unsigned i = 0; i < 6; i++)
		mine[i] = take();
	(void)argument;
	free_twice_at_once(mine, 1, 3);
}

static void overwrite_and_visit(void *argument)
{
	char **full = take_full();

	give(full[3]);
	give(full[5]);
	memset(full[5], 0x41, SIZE);
	(void)argument;
	if (!linked_destroy(cache))
		linked_visit_objects(cache, visit_any, NULL);
}

/* Points into the middle of another object: the fast path lets that pass, the next slow path does not. */
static void lead_inside(void *argument)
{
	char *other = take();

	give(other);
	give(argument);
	*(uintptr_t *)((char *)argument + cache->list.link) ^= 8;
	linked_alloc(cache);
}

static void lead_inside_and_drain(void *argument)
{
	lead_inside(argument);
	linked_shrink(cache);
}

static void lead_inside_and_take(void *argument)
{
	lead_inside(argument);
	linked_alloc_missed(cache);
}

static void free_foreign(void *argument)
{
	(void)argument;
	give(metadata_alloc(64));
}

/* An abort handler may allocate and query anything: no lock is held. */
static void on_abort(int number)
{
	struct linked_statistics now;
	(void)number;
	linked_statistics(cache, &now);
	linked_begin_census();
	linked_end_census();
}

static void test_broken(void)
{
	static const struct {
		void (*what)(void *object);
		const char *said;
	} rows[] = {
		{free_twice, "freed just before"},
		{free_twice_between, "freed twice"},
		{free_inside, "not the start"},
		{overwrite, "its link is gone"},
		{overwrite_idle, "its link is gone"},
		{overwrite_listed, "its link is gone"},
		{free_twice_and_visit, "freed twice"},
		{free_twice_and_release, "freed twice, or written to"},
		{free_first_twice_at_once, "freed twice"},
		{free_last_twice_at_once, "freed twice"},
		{free_neighbours_twice_at_once, "freed twice"},
		{free_twice_at_once_in_hand, "freed twice"},
		{overwrite_and_visit, "its link is gone"},
		{lead_inside_and_drain, "its link led here"},
		{lead_inside_and_take, "its link led here"},
		{free_foreign, "not an object of this cache"},
	};

	cache = create(plain);
	void *object = take();

	struct sigaction action = {.sa_handler = on_abort}, before;

	CHECK(sigaction(SIGABRT, &action, &before) == 0);
	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++)
		check_stopped(rows[i].what, object, rows[i].said);
	CHECK(sigaction(SIGABRT, &before, NULL) == 0);
	give(object);
	destroy(cache);
}

int main(void)
{
	check_watchdog(60);
	check_pin();
	free(malloc(1));
	test_word();
	test_foreign_frees();
	test_min_partial();
	test_geometry();
	test_obfuscation();
	test_shuffle();
	test_reclaim();
	test_closed();
	test_bulk();
	test_statistics();
	test_visit();
	test_metadata();
	test_broken();
	magazine_trim();
	heap_walk();
	return 0;
}
