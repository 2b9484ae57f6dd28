/* SPDX-License-Identifier: MIT */
/*
 * slab_lists: a slab cache hands out each object once, in address order while slabs are new and from the
 * fullest slab later on, keeps one empty slab, and stops the program at a free that its marks contradict.
 * For indexes of 8 bits and of 16.
 */
#include "check.h"

#include "heap.h"
#include "options/options.h"
#include "slab/slab.h"
#include "vcpu/vcpu.h"

enum { ID = VCPU_BANK_CACHES - 1, MOST = 4000, BATCH = 64 };

static uint64_t random_state = 11;

static void start(struct slab_cache *cache, uint32_t size)
{
	slab_cache_init(cache, &(struct slab_traits){.name = "test", .size = size, .id = vcpu_offset(ID)});
	CHECK(cache->traits.size == size && cache->objects >= 1 && cache->pages >= 1);
	CHECK((size_t)cache->objects * size <= (size_t)cache->pages * PAGE_BYTES);
	CHECK(cache->wide == (cache->objects > UINT8_MAX));
}

/* More objects in a slab than any size class of malloc has: 16-bit indexes. */
static void start_wide(struct slab_cache *cache, uint32_t size, uint16_t pages)
{
	start(cache, size);
	cache->pages = pages;
	cache->objects = (uint16_t)(pages * PAGE_BYTES / size);
	cache->bin_scale = ((uint64_t)SLAB_BINS << 32) / cache->objects + 1;
	cache->wide = true;
	CHECK(cache->objects > UINT8_MAX);
}

static struct slab_statistics statistics(struct slab_cache *cache)
{
	struct slab_statistics now;
	slab_statistics(cache, &now);
	CHECK(now.created - now.freed == now.slabs);
	CHECK(now.capacity == now.slabs * cache->objects && now.allocated <= now.capacity);
	return now;
}

static size_t used_pages(void)
{
	struct page_statistics now;
	page_statistics(&now);
	return now.used_pages;
}

/* Stamps an object with its owner at both ends. */
static void stamp(const struct slab_cache *cache, void *object, uint64_t number)
{
	*(uint64_t *)object = number;
	((uint64_t *)object)[cache->traits.size / 8 - 1] = ~number;
}

static void verify(const struct slab_cache *cache, const void *object, uint64_t number)
{
	CHECK(*(const uint64_t *)object == number, "object %p has two owners", object);
	CHECK(((const uint64_t *)object)[cache->traits.size / 8 - 1] == ~number, "object %p overlaps",
	      object);
}

static void take(struct slab_cache *cache, void **objects, unsigned count)
{
	CHECK(slab_alloc_batch(cache, objects, count) == count);
	for (unsigned i = 0; i < count; i++) {
		CHECK(objects[i] && (uintptr_t)objects[i] % 16 == 0);
		CHECK(slab_is_object(cache, objects[i]));
		CHECK(page_id(objects[i]) == cache->traits.id &&
		      page_id((char *)objects[i] + cache->traits.size - 1) == cache->traits.id);
	}
}

static void give(struct slab_cache *cache, void **objects, unsigned count)
{
	slab_free_batch(cache, objects, count);
	for (unsigned i = 0; i < count; i++)
		CHECK(!slab_is_object(cache, objects[i]));
}

/* Random batches in and out, against a list of what is out. */
static void test_random(struct slab_cache *cache)
{
	static struct {
		void *object;
		uint64_t number;
	} out[MOST];
	static uint64_t number;
	/* At most a few MiB are out. */
	unsigned most = (8u << 20) / cache->traits.size, count = 0;
	most = most > MOST ? MOST : most < 2 * BATCH ? 2 * BATCH : most;
	unsigned long rounds = check_rounds(400, 10000, 60);
	bool growing = true;
	for (unsigned long round = 0; round < rounds; round++) {
		void *objects[BATCH];
		unsigned batch = 1 + (unsigned)check_below(&random_state, BATCH);
		growing = round % 100 == 0 ? round % 200 == 0 : growing;
		if (check_below(&random_state, 4) < (growing ? 3 : 1) && count + batch <= most) {
			take(cache, objects, batch);
			for (unsigned i = 0; i < batch; i++) {
				out[count].object = objects[i];
				out[count].number = ++number;
				stamp(cache, objects[i], number);
				count++;
			}
		} else if (batch <= count) {
			for (unsigned i = 0; i < batch; i++) {
				unsigned which = (unsigned)check_below(&random_state, count);
				verify(cache, out[which].object, out[which].number);
				objects[i] = out[which].object;
				out[which] = out[--count];
			}
			give(cache, objects, batch);
		}
		CHECK(statistics(cache).allocated == count);
	}
	while (count--) {
		verify(cache, out[count].object, out[count].number);
		give(cache, &out[count].object, 1);
	}
	CHECK(statistics(cache).allocated == 0);
	CHECK(statistics(cache).slabs == (cache->objects > 1));
	slab_cache_shrink(cache);
	CHECK(statistics(cache).slabs == 0);
	slab_cache_shrink(cache);
	CHECK(statistics(cache).slabs == 0);
}

/* A new slab's objects, the lowest last, and no other addresses. */
static void test_order(struct slab_cache *cache)
{
	unsigned count = cache->objects < 250 ? cache->objects : 250;
	void *objects[256];
	size_t used = used_pages();
	/* In two parts: the second goes on where the first ended. */
	unsigned half = count / 2;
	if (half)
		take(cache, objects, half);
	take(cache, objects + half, count - half);
	CHECK(statistics(cache).slabs == 1 && used_pages() == used + cache->pages);
	char *base = half ? objects[half - 1] : objects[count - 1];
	CHECK((uintptr_t)base % PAGE_BYTES == 0);
	for (unsigned i = 0; i < count; i++) {
		unsigned place = i < half ? half - 1 - i : half + count - 1 - i;
		CHECK(objects[i] == base + (size_t)place * cache->traits.size, "object %u of %u bytes", i,
		      cache->traits.size);
		CHECK(!slab_is_object(cache, (char *)objects[i] + 1));
		CHECK(!slab_is_object(cache, (char *)objects[i] + cache->traits.size - 1));
		CHECK(cache->traits.size == 16 || !slab_is_object(cache, (char *)objects[i] + 16));
	}
	for (size_t page = 0; page < cache->pages; page++)
		CHECK(page_id(base + page * PAGE_BYTES) == cache->traits.id);
	/* Room behind the last object is no object. */
	char *behind = base + (size_t)cache->objects * cache->traits.size;
	if (behind < base + (size_t)cache->pages * PAGE_BYTES)
		CHECK(!slab_is_object(cache, behind));
	if (count < cache->objects)
		CHECK(!slab_is_object(cache, base + (size_t)count * cache->traits.size));
	give(cache, objects, count);
	/* An empty slab starts again from its lowest address. */
	if (cache->objects > 1) {
		CHECK(statistics(cache).slabs == 1);
		take(cache, objects, 1);
		CHECK(objects[0] == base && statistics(cache).created == 1);
		give(cache, objects, 1);
	}
	slab_cache_shrink(cache);
	CHECK(used_pages() == used);
}

/* The number of the slab that an object belongs to. */
static unsigned slab_of(const struct slab_cache *cache, char *const *bases, const void *object)
{
	for (unsigned i = 0;; i++)
		if ((size_t)((const char *)object - bases[i]) < (size_t)cache->pages * PAGE_BYTES)
			return i;
}

static void test_fullest_first(struct slab_cache *cache)
{
	enum { SLABS = 4 };
	unsigned each = cache->objects;
	char *bases[SLABS];
	void **objects = malloc(SLABS * each * sizeof *objects);
	for (unsigned slab = 0; slab < SLABS; slab++) {
		take(cache, objects + slab * each, each);
		bases[slab] = objects[slab * each + each - 1];
	}
	CHECK(statistics(cache).slabs == SLABS && cache->full_slabs == SLABS);
	/* Slab 2 keeps all but an eighth, slab 0 half, slab 3 a quarter, slab 1 one object. */
	unsigned kept[SLABS] = {each / 2, 1, each - each / 8, each / 4}, freed = 0;
	for (unsigned slab = 0; slab < SLABS; slab++) {
		give(cache, objects + slab * each + kept[slab], each - kept[slab]);
		freed += each - kept[slab];
	}
	CHECK(cache->full_slabs == 0);
	static const unsigned fullest_first[SLABS] = {2, 0, 3, 1};
	for (unsigned i = 0; i < SLABS; i++) {
		unsigned slab = fullest_first[i];
		for (unsigned n = kept[slab]; n < each; n++) {
			void **object = &objects[slab * each + n];
			take(cache, object, 1);
			CHECK(slab_of(cache, bases, *object) == slab, "object %u came from slab %u, not %u",
			      n, slab_of(cache, bases, *object), slab);
			freed--;
		}
		CHECK(cache->full_slabs == i + 1);
	}
	CHECK(freed == 0 && statistics(cache).slabs == SLABS);
	/* The first slab to become empty is kept, the next ones go. */
	for (unsigned slab = 0; slab < SLABS; slab++) {
		give(cache, objects + slab * each, each);
		CHECK(statistics(cache).slabs == SLABS - slab);
	}
	CHECK(statistics(cache).slabs == 1);
	slab_cache_shrink(cache);
	free(objects);
}

/* ---- errors ---------------------------------------------------------------------------------------- */

static struct slab_cache broken, other;

static void free_one(void *object)
{
	slab_free_batch(&broken, &object, 1);
}

static void free_twice_at_once(void *object)
{
	void *twice[2] = {object, object};
	slab_free_batch(&broken, twice, 2);
}

static void check_report(void (*function)(void *), void *object, const char *expected)
{
	char text[512], pointer[32];
	int status = check_child(function, object, text, sizeof text);
	snprintf(pointer, sizeof pointer, "%p", object);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%s: wait status %#x", expected,
	      (unsigned)status);
	CHECK(strncmp(text, "cpuslab: test: ", 15) == 0 && strstr(text, pointer) && strstr(text, expected),
	      "said: %s", text);
	CHECK(strchr(text, '\n') == text + strlen(text) - 1, "more than a line: %s", text);
}

static void test_errors(void)
{
	void *objects[3], *foreign;
	unsigned size = broken.traits.size;
	take(&broken, objects, 3);
	take(&other, &foreign, 1);
	char *low = objects[2];
	give(&broken, objects, 1); /* the highest */
	check_report(free_one, objects[0], "already free");
	check_report(free_twice_at_once, objects[1], "already free");
	check_report(free_one, low + 16, "not the start of an object");
	check_report(free_one, low + 1, "not the start of an object");
	check_report(free_one, low + size - 1, "not the start of an object");
	check_report(free_one, low + 3 * (size_t)size, "never allocated");
	if ((size_t)broken.objects * size < (size_t)broken.pages * PAGE_BYTES)
		check_report(free_one, low + (size_t)broken.objects * size, "not the start of an object");
	check_report(free_one, foreign, "another cache");
	/* A page without an owner. */
	bool zeroed;
	void *run = page_alloc(1, 1, PAGE_LARGE, &zeroed);
	check_report(free_one, run, "already free");
	page_free(run, 1);
	CHECK(statistics(&broken).allocated == 2 && slab_is_object(&broken, low));
	CHECK(!slab_is_object(&broken, foreign) && slab_is_object(&other, foreign));
	give(&broken, objects + 1, 2);
	give(&other, &foreign, 1);
	/* The whole slab is empty now, and its objects count as never allocated. */
	check_report(free_one, low, "never allocated");
	slab_cache_shrink(&broken);
	check_report(free_one, low, "already free");
	slab_cache_shrink(&other);
}

/* A batch for which memory does not suffice is as large as possible, and stored in the right place. */
static void be_full(void)
{
	static struct slab_cache cache;
	static void *objects[MOST + BATCH];
	unsigned count = 0, got;
	start(&cache, 5120);
	while ((got = slab_alloc_batch(&cache, objects + count, BATCH)) == BATCH) {
		count += got;
		CHECK(count < MOST);
	}
	count += got;
	CHECK(count > 100);
	for (unsigned i = 0; i < count; i++) {
		CHECK(slab_is_object(&cache, objects[i]), "object %u of %u: %p", i, count, objects[i]);
		stamp(&cache, objects[i], i);
	}
	CHECK(slab_alloc_batch(&cache, objects + count, BATCH) == 0);
	CHECK(statistics(&cache).allocated == count);
	for (unsigned i = 0; i < count; i++)
		verify(&cache, objects[i], i);
	/* Seven are freed, so a batch of eight then yields seven. */
	enum { BACK = 7 };
	void *back[BACK], *again[BACK + 1];
	for (unsigned i = 0; i < BACK; i++)
		back[i] = objects[i * (count / BACK)];
	slab_free_batch(&cache, back, BACK);
	CHECK(slab_alloc_batch(&cache, again, BACK + 1) == BACK);
	for (unsigned i = 0; i < BACK; i++) {
		unsigned found = 0;
		for (unsigned j = 0; j < BACK; j++)
			found += again[j] == back[i];
		CHECK(found == 1);
	}
	slab_free_batch(&cache, objects, count);
	CHECK(statistics(&cache).allocated == 0 && statistics(&cache).slabs == 1);
	CHECK(slab_alloc_batch(&cache, objects, BATCH) == BATCH);
}

/* Whether the next slab of a cache lies on the only resident pages, of which there are enough. */
static bool takes_resident(struct slab_cache *cache)
{
	enum { PAGES = 64 };
	static void *objects[MOST];
	bool zeroed;
	size_t all = page_heap_pages();
	page_purge(true);
	char *run = page_alloc(PAGES, 1, PAGE_LARGE, &zeroed), *end = page_alloc(all, 1, PAGE_LARGE, &zeroed);
	CHECK(run && end);
	page_free(run, PAGES);
	unsigned count = cache->slabs * cache->objects;
	CHECK(count + 1 <= MOST && cache->allocated == 0);
	take(cache, objects, count + 1);
	/* The object of the new slab comes first (slab_alloc_batch fills downwards). */
	bool resident = page_of(objects[0]) - page_of(run) < PAGES;
	give(cache, objects, count + 1);
	page_free(end, all);
	return resident;
}

static void construct(void *object)
{
	*(char *)object = 1;
}

/*
 * The first slab of a size leaves resident pages to others if it has many pages and several objects, of which
 * the program may need one.
 */
static void test_sparse(struct slab_cache *cache)
{
	static const struct {
		uint32_t size;
		bool sparse;
	} caches[] = {{64, false}, {448, false}, {1024, true}, {5120, true}, {16384, true}, {20480, false}};
	size_t decay = options.decay;
	options.decay = 1000000;
	for (size_t i = 0; i < sizeof caches / sizeof *caches; i++) {
		start(cache, caches[i].size);
		CHECK(takes_resident(cache) == !caches[i].sparse, "%u bytes", caches[i].size);
		CHECK(cache->slabs == 1);
		CHECK(takes_resident(cache), "the second slab of %u bytes", caches[i].size);
		CHECK(slab_cache_close(cache) == 0);
	}
	start(cache, 1024);
	cache->traits.construct = construct;
	CHECK(takes_resident(cache), "a slab whose objects are all written to");
	CHECK(slab_cache_close(cache) == 0);
	start(cache, 8192);
	cache->traits.alignment = 2;
	CHECK(takes_resident(cache), "an aligned slab");
	CHECK(slab_cache_close(cache) == 0);
	options.decay = decay;
}

int main(int argc, char **argv)
{
	(void)argv;
	static struct slab_cache cache;
	static const uint32_t sizes[] = {16,   32,   48,   80,   112,  128,   208,   256,   448,    896,
					 1024, 1408, 4096, 5120, 8192, 12288, 28672, 32768, 131072, 262144};
	check_watchdog(60);
	check_pin(); /* each vCPU has slabs of its own to start with */
	free(malloc(1));
	if (argc > 1) {
		be_full();
		return 0;
	}
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		start(&cache, sizes[i]);
		test_order(&cache);
		start(&cache, sizes[i]);
		test_random(&cache);
		if (cache.objects >= 16)
			test_fullest_first(&cache);
	}
	test_sparse(&cache);
	static const struct {
		uint32_t size;
		uint16_t pages;
	} wide[] = {{16, 1}, {16, 16}, {48, 40}, {1024, 70}};
	for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
		start_wide(&cache, wide[i].size, wide[i].pages);
		test_order(&cache);
		start_wide(&cache, wide[i].size, wide[i].pages);
		test_random(&cache);
		test_fullest_first(&cache);
	}

	start(&broken, 112);
	start(&other, 128);
	test_errors();
	start_wide(&broken, 32, 4);
	test_errors();
	heap_walk();

	check_again("reserve:8M", "full");
	return 0;
}
