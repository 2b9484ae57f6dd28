/* SPDX-License-Identifier: MIT */
/*
 * slab_hollow: pages of a partial slab in which no object is allocated go back to the system, pages with an
 * allocated object never do; they read as zero when they are used again.  System calls are counted here, and
 * may fail: madvise is this program's.
 */
#include "check.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include "page/page.h"
#include "slab/descriptor.h"
#include "slab/slab.h"
#include "vcpu/vcpu.h"

enum { ID = VCPU_BANK_CACHES - 1, SLABS = 64, EACH_MOST = 255, MOST = SLABS * EACH_MOST };

static struct slab_cache cache;
static void *objects[MOST];
static unsigned count;
static size_t calls, given_back;
static bool refuses;

int madvise(void *address, size_t bytes, int advice)
{
	if (advice == MADV_DONTNEED) {
		__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
		if (__atomic_load_n(&refuses, __ATOMIC_RELAXED)) {
			errno = EINVAL;
			return -1;
		}
		__atomic_fetch_add(&given_back, bytes, __ATOMIC_RELAXED);
	}
	return (int)syscall(SYS_madvise, address, bytes, advice);
}

static void start(const struct slab_traits *traits)
{
	struct slab_traits own = *traits;

	own.name = "test";
	own.id = vcpu_offset(ID);
	slab_cache_init(&cache, &own);
}

static uint64_t hollow_pages(void)
{
	struct slab_statistics now;

	slab_statistics(&cache, &now);
	return now.hollow;
}

static bool is_resident(const void *address)
{
	unsigned char in;

	CHECK(mincore((void *)((uintptr_t)address & -(uintptr_t)PAGE_BYTES), PAGE_BYTES, &in) == 0);
	return in & 1;
}

/* Content of object number i while it is allocated. */
static uint8_t content_of(unsigned i)
{
	return (uint8_t)(i % 251 + 1);
}

/* Allocates objects until so many slabs are full, and writes to all of them. */
static void fill(unsigned slabs)
{
	unsigned wanted = slabs * cache.objects;

	CHECK(wanted <= MOST && count < wanted);
	unsigned from = count;

	for (unsigned got; count < wanted; count += got) /* with a constructor, a slab's worth at a time */
		CHECK((got = slab_alloc_batch(&cache, objects + count, wanted - count)));
	for (unsigned i = from; i < count; i++)
		memset(objects[i], content_of(i), cache.traits.size);
}

/* Frees all objects but each `keep`th; 0 frees all.  Survivors are objects[0..count). */
static void thin_out(unsigned keep)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < count; i++)
		if (keep && i % keep == keep / 2) {
			memset(objects[i], content_of(kept), cache.traits.size);
			objects[kept++] = objects[i];
		} else {
			slab_free_batch(&cache, &objects[i], 1);
		}
	count = kept;
}

static void expect_survivors(void)
{
	for (unsigned i = 0; i < count; i++)
		CHECK(check_all_bytes(objects[i], cache.traits.size, content_of(i)), "object %u of %u", i,
		      count);
}

/* Pages of the survivors' slabs, and how many of them hold a survivor. */
static void count_pages(size_t *all, size_t *held)
{
	static uintptr_t seen[MOST * 2];
	size_t slabs = 0, pages = 0;

	for (unsigned i = 0; i < count; i++) {
		uint32_t slab = page_front.slab_of[page_of(objects[i])];
		uintptr_t first = page_of(objects[i]);
		uintptr_t last = page_of((char *)objects[i] + cache.traits.size - 1);
		bool known = false;

		for (unsigned n = 0; n < i && !known; n++)
			known = page_front.slab_of[page_of(objects[n])] == slab;
		slabs += !known;
		for (uintptr_t page = first; page <= last; page++) {
			bool found = false;

			for (size_t n = 0; n < pages && !found; n++)
				found = seen[n] == page;
			if (!found)
				seen[pages++] = page;
		}
	}
	*all = slabs * cache.pages;
	*held = pages;
}

static void end(void)
{
	thin_out(0);
	CHECK(slab_cache_close(&cache) == 0);
	CHECK(cache.hollow == 0);
}

/* ---- tests ----------------------------------------------------------------------------------------- */

/* Exactly the pages without a survivor go, once; objects allocated there again read as zero. */
static void test_exactly(uint32_t size, unsigned keep)
{
	struct page_statistics before, after;
	size_t all, held;

	start(&(struct slab_traits){.size = size});
	fill(SLABS / 2);
	thin_out(keep);
	count_pages(&all, &held);
	CHECK(held < all);
	page_statistics(&before);
	given_back = 0;
	CHECK(slab_hollow(&cache, SLAB_HOLLOW_ALL, SIZE_MAX) >= all - held);
	page_statistics(&after);
	CHECK(given_back == (all - held) * PAGE_BYTES, "%zu of %zu pages went, and %zu are held",
	      given_back / PAGE_BYTES, all, held);
	CHECK(hollow_pages() == all - held);
	CHECK(after.used_pages == before.used_pages);
	CHECK(after.purged_pages_total == before.purged_pages_total + all - held);
	expect_survivors();
	calls = 0;
	CHECK(slab_hollow(&cache, SLAB_HOLLOW_ALL, SIZE_MAX) == 0 && calls == 0);

	unsigned survivors = count, was_hollow = 0, resident = 0;

	/* In all existing slabs, without a write to any of them before all have been looked at. */
	count += slab_alloc_batch(&cache, objects + count,
				  (unsigned)(all / cache.pages) * cache.objects - count);
	for (unsigned i = survivors; i < count; i++) {
		char *object = objects[i];

		if (is_resident(object) || is_resident(object + size - 1)) {
			resident++;
		} else {
			was_hollow++;
			CHECK(check_all_bytes(object, size, 0));
		}
	}
	CHECK(was_hollow > 0 && hollow_pages() == 0, "%u objects of %u, %llu pages", was_hollow, resident,
	      (unsigned long long)hollow_pages());
	for (unsigned i = survivors; i < count; i++)
		memset(objects[i], content_of(i), size);
	expect_survivors();
	end();
}

/* Pages needed since the last look stay; others go, those of sparse slabs only as the heap grows. */
static void test_need(void)
{
	start(&(struct slab_traits){.size = 512});
	fill(SLABS);
	thin_out(64);
	CHECK(slab_hollow(&cache, SLAB_HOLLOW_UNNEEDED, SIZE_MAX) == 0, "all was needed since the start");

	unsigned survivors = count;

	fill(SLABS / 2);
	for (; count > survivors; count--)
		slab_free_batch(&cache, &objects[count - 1], 1);
	given_back = 0;
	CHECK(slab_hollow(&cache, SLAB_HOLLOW_UNNEEDED, SIZE_MAX) > 0);
	size_t half = SLABS / 2 * cache.pages * PAGE_BYTES;
	CHECK(given_back > half / 2 && given_back <= half + cache.pages * PAGE_BYTES, "%zu of %zu bytes",
	      given_back, 2 * half);
	expect_survivors();
	end();
}

/* In an ebb as many free objects stay as are allocated, and not more of them than counts as many. */
static void test_ebb(void)
{
	start(&(struct slab_traits){.size = 512});
	fill(SLABS);
	thin_out(2);
	CHECK(slab_hollow(&cache, SLAB_HOLLOW_EBB, SIZE_MAX) == 0, "half of them stay");
	thin_out(16);

	size_t bytes = (size_t)SLABS * cache.pages * PAGE_BYTES, least = bytes - 2 * bytes / 32;
	size_t all, held, wanted;

	count_pages(&all, &held);
	wanted = (all - held) * PAGE_BYTES;
	given_back = 0;
	CHECK(slab_hollow(&cache, SLAB_HOLLOW_EBB, SIZE_MAX) > 0);
	CHECK(given_back <= least && given_back >= (wanted < least ? wanted : least) - PAGE_BYTES,
	      "%zu bytes of %zu without an object", given_back, wanted);
	calls = 0;
	CHECK(slab_hollow(&cache, SLAB_HOLLOW_EBB, SIZE_MAX) == 0 && calls == 0);
	expect_survivors();
	end();
}

/* An ebb's complete work, as the magazine room requests it: by portions, until one finds less. */
static void follow_ebb(void)
{
	enum { PORTION = 128 };

	given_back = 0;
	while (slab_hollow(&cache, SLAB_HOLLOW_EBB, PORTION) >= PORTION)
		;
}

/*
 * In an ebb, a look skips slabs in which an earlier one found nothing, as long as no object comes or goes: a
 * fall has many portions, each of which walks.
 */
static void test_passes(void)
{
	start(&(struct slab_traits){.size = 512});
	fill(SLABS);
	thin_out(cache.objects / 4u);
	for (unsigned i = 0; i < count; i++) {
		struct slab *slab = slab_of_object(objects[i]);

		slab->looked = (uint8_t)slab->in_use;
	}
	CHECK(slab_hollow(&cache, SLAB_HOLLOW_EBB, SIZE_MAX) == 0);

	/* One of them has one object fewer in use. */
	const struct slab *fewer = slab_of_object(objects[--count]);
	size_t in_it = 0;

	slab_free_batch(&cache, &objects[count], 1);
	for (unsigned i = 0; i < count; i++)
		in_it += slab_of_object(objects[i]) == fewer;
	CHECK(in_it > 0 && in_it == fewer->in_use);
	given_back = 0;
	CHECK(slab_hollow(&cache, SLAB_HOLLOW_EBB, SIZE_MAX) > 0);
	CHECK(given_back == (cache.pages - in_it) * PAGE_BYTES);

	CHECK(slab_hollow(&cache, SLAB_HOLLOW_ALL, SIZE_MAX) > 0);
	expect_survivors();
	end();
}

/*
 * A slab that was looked at, filled and emptied to its previous number of objects is in the same state as
 * before the look, whether its pages had been given back or, behind those in use, never touched.
 */
static void test_again(void)
{
	size_t all, held;

	page_purge(true); /* so that new memory was never touched */
	start(&(struct slab_traits){.size = 512});
	fill(SLABS - 1);
	CHECK(slab_alloc_batch(&cache, objects + count, 1) == 1);
	void *first = objects[count];
	struct slab *fresh = slab_of_object(first);

	CHECK(fresh->in_use == 1 && fresh->bump == 1);
	thin_out(64);
	objects[count] = memset(first, content_of(count), 512);
	count++;
	count_pages(&all, &held);
	follow_ebb();
	CHECK(hollow_pages() + cache.pages - 1 == all - held && fresh->in_use == 1);

	unsigned survivors = count;

	for (unsigned round = 0; round < 3; round++) {
		fill(SLABS);
		CHECK(hollow_pages() == 0);
		for (; count > survivors; count--)
			slab_free_batch(&cache, &objects[count - 1], 1);
		follow_ebb();
		CHECK(given_back == (all - held) * PAGE_BYTES, "%zu of %zu pages in round %u",
		      given_back / PAGE_BYTES, all - held, round);
		CHECK(fresh->in_use == 1 && !is_resident((char *)first + PAGE_BYTES));
		expect_survivors();
	}
	end();
}

/* An ebb finds what it can though an earlier one found nothing among as many objects in other places. */
static void test_elsewhere(void)
{
	start(&(struct slab_traits){.size = 512});
	fill(SLABS);
	thin_out(8);
	CHECK(count == SLABS * cache.objects / 8);
	follow_ebb();
	size_t found = given_back;

	CHECK(found == 0);
	fill(SLABS);
	unsigned kept = 0;

	for (unsigned i = 0; i < count; i++) {
		char *object = objects[i];

		if ((size_t)(object - slab_of_object(object)->base) < cache.pages * (size_t)PAGE_BYTES / 8)
			objects[kept++] = object;
		else
			slab_free_batch(&cache, &objects[i], 1);
	}
	CHECK(kept == SLABS * cache.objects / 8);
	count = kept;
	for (unsigned i = 0; i < count; i++)
		memset(objects[i], content_of(i), 512);
	follow_ebb();
	CHECK(given_back >= SLABS * cache.pages / 8 * 6 * (size_t)PAGE_BYTES, "%zu pages",
	      given_back / PAGE_BYTES);
	expect_survivors();
	end();
}

/* However much there is, a call is bounded in pages and in system calls, and the next ones go on. */
static void test_bounds(void)
{
	enum { BOUND = 64 };
	size_t all, held, sum = 0;

	start(&(struct slab_traits){.size = 1024});
	fill(SLABS);
	thin_out(32);
	count_pages(&all, &held);
	for (unsigned rounds = 0; sum < (all - held) * PAGE_BYTES; rounds++, sum += given_back) {
		CHECK(rounds < SLABS * 16);
		calls = given_back = 0;
		(void)slab_hollow(&cache, SLAB_HOLLOW_ALL, BOUND);
		CHECK(given_back > 0 && given_back <= (size_t)(BOUND + cache.pages) * PAGE_BYTES);
		CHECK(calls <= BOUND / SLAB_HOLLOW_RUN, "%zu calls", calls);
	}
	CHECK(sum == (all - held) * PAGE_BYTES && hollow_pages() == all - held);
	expect_survivors();
	end();
}

/* The system may refuse, as it does for locked memory: it is asked once, and nothing is lost. */
static void test_refused(void)
{
	start(&(struct slab_traits){.size = 512});
	fill(SLABS);
	thin_out(64);
	calls = 0;
	refuses = true;
	(void)slab_hollow(&cache, SLAB_HOLLOW_ALL, SIZE_MAX);
	CHECK(calls == 1 && hollow_pages() == 0, "%zu calls", calls);
	(void)slab_hollow(&cache, SLAB_HOLLOW_UNNEEDED, SIZE_MAX); /* a look */
	calls = 0;
	for (int i = 0; i < 10; i++)
		(void)slab_hollow(&cache, SLAB_HOLLOW_UNNEEDED, SIZE_MAX);
	CHECK(calls == 1, "%zu calls", calls);
	refuses = false;
	CHECK(slab_hollow(&cache, SLAB_HOLLOW_ALL, SIZE_MAX) > 0);
	expect_survivors();
	end();
}

/* A slab that becomes empty takes its hollow pages with it, and an empty slab that is kept still has them. */
static void test_empty(void)
{
	struct page_statistics before, after;

	page_purge(true); /* so that new memory was never touched */
	start(&(struct slab_traits){.size = 512});
	page_statistics(&before);
	fill(2);
	thin_out(64);
	CHECK(slab_hollow(&cache, SLAB_HOLLOW_ALL, SIZE_MAX) > 0 && hollow_pages() > 0);
	thin_out(0);
	CHECK(hollow_pages() > 0 && hollow_pages() < cache.pages, "%llu pages of the slab that is kept",
	      (unsigned long long)hollow_pages());
	fill(1);
	CHECK(hollow_pages() == 0);
	/* All pages of a slab that is used again have been touched. */
	thin_out(0);
	CHECK((count = slab_alloc_batch(&cache, objects, 1)) == 1);
	memset(objects[0], content_of(0), cache.traits.size);
	(void)slab_hollow(&cache, SLAB_HOLLOW_ALL, SIZE_MAX);
	CHECK(hollow_pages() == cache.pages - 1u && !is_resident((char *)objects[0] + PAGE_BYTES));
	expect_survivors();
	end();
	page_statistics(&after);
	CHECK(after.used_pages == before.used_pages);
}

static void construct(void *object)
{
	memset(object, 7, 512);
}

/* Where objects keep their content, or a slab is a single page, nothing goes. */
static void test_never(void)
{
	const struct slab_traits kinds[] = {
		{.size = 512, .construct = construct},
		{.size = 512, .type_stable = true},
		{.size = 16},
		{.size = 64 << 10},
	};

	for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
		start(&kinds[kind]);
		fill(8);
		thin_out(64);
		calls = 0;
		CHECK(slab_hollow(&cache, SLAB_HOLLOW_ALL, SIZE_MAX) == 0 && calls == 0, "kind %u", kind);
		expect_survivors();
		end();
	}
}

/* ---- while others allocate and free ---------------------------------------------------------------- */

enum { THREADS = 3, HELD = 2000, ROUNDS = 1500, BATCH = 24, WALKS = 30 };
static bool over;
static unsigned walks; /* that gave something back */

/* Each object holds its own address and its holder, at both ends, as long as it is held. */
static void sign(void *object, uintptr_t holder)
{
	uintptr_t *words = object;

	words[0] = words[cache.traits.size / sizeof *words - 1] = (uintptr_t)object ^ holder;
}

static void expect_signed(const void *object, uintptr_t holder)
{
	const uintptr_t *words = object;

	CHECK(words[0] == ((uintptr_t)object ^ holder) &&
		      words[cache.traits.size / sizeof *words - 1] == words[0],
	      "an object lost what it held");
}

static void *come_and_go(void *argument)
{
	uintptr_t holder = (uintptr_t)argument;
	uint64_t state = holder;
	void *held[HELD], *batch[BATCH];
	unsigned have = 0;

	for (unsigned round = 0; round < ROUNDS || __atomic_load_n(&walks, __ATOMIC_RELAXED) < WALKS;
	     round++) {
		/* Up and down, so that slabs are filled and thinned out. */
		unsigned wanted = round / 100 % 2 ? HELD / 16 : HELD - BATCH;

		if (have < wanted) {
			unsigned got = slab_alloc_batch(&cache, batch, BATCH);

			CHECK(got > 0);
			for (unsigned i = 0; i < got; i++) {
				sign(batch[i], holder);
				held[have++] = batch[i];
			}
		} else {
			unsigned n = 0;

			for (; n < BATCH && have > 0; n++) {
				unsigned at = (unsigned)check_below(&state, have);

				expect_signed(held[at], holder);
				batch[n] = held[at];
				held[at] = held[--have];
			}
			slab_free_batch(&cache, batch, n);
		}
	}
	for (unsigned i = 0; i < have; i++)
		expect_signed(held[i], holder);
	slab_free_batch(&cache, held, have);
	return NULL;
}

static void *hollow_out(void *unused)
{
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
		if (slab_hollow(&cache, SLAB_HOLLOW_ALL, SIZE_MAX))
			__atomic_fetch_add(&walks, 1, __ATOMIC_RELAXED);
	return unused;
}

static void test_race(uint32_t size)
{
	pthread_t threads[THREADS];

	start(&(struct slab_traits){.size = size});
	over = false;
	walks = 0;
	pthread_t hollower = check_thread(hollow_out, NULL);

	for (uintptr_t i = 0; i < THREADS; i++)
		threads[i] = check_thread(come_and_go, (void *)(i + 1));
	for (unsigned i = 0; i < THREADS; i++)
		check_join(threads[i]);
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	check_join(hollower);
	CHECK(slab_cache_close(&cache) == 0 && cache.hollow == 0);
}

int main(void)
{
	check_watchdog(100);
	free(malloc(1));
	for (uint32_t size = 176; size <= 8192; size += size / 2 & -16u) {
		test_exactly(size, 97);
		test_exactly(size, 31);
	}
	test_need();
	test_ebb();
	test_passes();
	test_again();
	test_elsewhere();
	test_bounds();
	test_refused();
	test_empty();
	test_never();
	test_race(512);
	test_race(1920);
	return 0;
}
