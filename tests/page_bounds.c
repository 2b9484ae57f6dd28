/* SPDX-License-Identifier: MIT */
/*
 * page_bounds: however much is overdue, one call gives back no more than its bound, in bytes and in system
 * calls, and the following calls go on until nothing is.  System calls are counted here: madvise, munmap and
 * syscall are this program's.
 */
#include "check.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include "magazine/magazine.h"
#include "options/options.h"
#include "page/page.h"

enum { MIB = 1 << 20, MOST = PAGE_PURGE_MOST * PAGE_BYTES, BLOCK = 2 * MIB };

static size_t given_back, calls;

int madvise(void *address, size_t bytes, int advice)
{
	if (advice == MADV_DONTNEED) {
		given_back += bytes;
		calls++;
	}
	return (int)syscall(SYS_madvise, address, bytes, advice);
}

int munmap(void *address, size_t bytes)
{
	given_back += bytes;
	calls++;
	return (int)syscall(SYS_munmap, address, bytes);
}

static void begin(void)
{
	given_back = calls = 0;
}

/* Checks what has been given back since begin(), by a call that itself took or freed `own` bytes. */
static void expect_bounded(const char *what, size_t own)
{
	size_t most = MOST + 2 * own;
	CHECK(given_back < most + BLOCK, "%s gave back %zu bytes, and %zu is the most", what, given_back,
	      most);
	CHECK(calls <= most / (PAGE_PURGE_RUN * PAGE_BYTES), "%s gave back %zu bytes by %zu calls", what,
	      given_back, calls);
}

/* Ticks until nothing is overdue; returns how much they gave back together. */
static size_t catch_up(void)
{
	size_t sum = 0;
	for (unsigned ticks = 0; page_is_behind(); ticks++) {
		begin();
		page_purge(false);
		expect_bounded("a tick", 0);
		CHECK(given_back > 0 && ticks < 10000);
		sum += given_back;
	}
	return sum;
}

/* Runs that are no large objects: a decrease of those is an ebb, which is tested last. */
enum { PARTS = 1024, SLAB = PAGE_ID_RESERVED };
static char *parts[PARTS], *between[PARTS];

/* Written runs, each followed by a page that keeps it apart from the next. */
static void allocate(unsigned count, size_t pages)
{
	bool zeroed;
	for (unsigned i = 0; i < count; i++) {
		CHECK((parts[i] = page_alloc(pages, 1, SLAB, &zeroed)));
		memset(parts[i], 1, pages * PAGE_BYTES);
		CHECK((between[i] = page_alloc(1, 1, SLAB, &zeroed)));
	}
}

static void free_parts(unsigned count, size_t pages)
{
	for (unsigned i = 0; i < count; i++) {
		begin();
		page_free(parts[i], pages);
		expect_bounded("a free", pages * PAGE_BYTES);
	}
}

static void free_between(unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		page_free(between[i], 1);
	page_purge(true);
}

static size_t dirty_bytes(void)
{
	struct page_statistics now;
	page_statistics(&now);
	return now.dirty_pages * PAGE_BYTES;
}

static void wait_for_decay(void)
{
	for (uint64_t end = os_milliseconds() + options.decay + 1; os_milliseconds() <= end;)
		usleep(1000);
}

/* All dirty memory grows old at once: few large runs, and many small ones. */
static void test_age(unsigned count, size_t pages)
{
	allocate(count, pages);
	options.decay = 1000000;
	free_parts(count, pages);
	size_t dirty = dirty_bytes();
	CHECK(dirty >= count * pages * PAGE_BYTES);
	options.decay = 20;
	wait_for_decay();
	begin();
	page_purge(false);
	expect_bounded("the first tick", 0);
	CHECK(given_back > 0 && page_is_behind());
	size_t sum = given_back;
	sum += catch_up();
	CHECK(sum == dirty, "%zu of %zu dirty bytes were given back", sum, dirty);
	CHECK(dirty_bytes() == 0);
	for (unsigned i = 0; i < count; i++)
		CHECK(check_all_bytes(parts[i], pages * PAGE_BYTES, 0));
	options.decay = 1000000;
	free_between(count);
}

/* The rest of a partly purged run keeps its age: it goes before what was freed meanwhile. */
static void test_order(void)
{
	enum { PAGES = 3 * PAGE_PURGE_MOST, YOUNG = 100 };
	bool zeroed;
	allocate(1, PAGES);
	char *young = page_alloc(YOUNG, 1, SLAB, &zeroed);
	CHECK(young);
	memset(young, 1, YOUNG * PAGE_BYTES);
	options.decay = 1000000;
	page_free(parts[0], PAGES);
	options.decay = 500;
	wait_for_decay();
	uint64_t then = os_milliseconds();
	page_free(young, YOUNG);
	CHECK(page_is_behind());
	(void)catch_up();
	CHECK(check_all_bytes(parts[0], PAGES * PAGE_BYTES, 0));
	/* Unless this took a long time after all. */
	CHECK(dirty_bytes() == YOUNG * PAGE_BYTES || os_milliseconds() - then >= options.decay,
	      "%zu dirty bytes are left", dirty_bytes());
	options.decay = 1000000;
	free_between(1);
}

/* Memory that cannot serve a request must make room for it: in proportion to the request. */
static void test_amount(void)
{
	enum { COUNT = 512, PAGES = 32 };
	bool zeroed;
	allocate(COUNT, PAGES);
	free_parts(COUNT, PAGES);
	begin();
	char *whole = page_alloc(COUNT * PAGES / 4, 1, SLAB, &zeroed);
	CHECK(whole);
	expect_bounded("an allocation", COUNT * PAGES / 4 * PAGE_BYTES);
	/* Until the program's past no longer counts. */
	for (int i = 0; i < 64; i++) {
		begin();
		page_tick();
		expect_bounded("a tick", 0);
	}
	CHECK(dirty_bytes() <= 2 * MIB, "%zu dirty bytes stay", dirty_bytes());
	page_free(whole, COUNT * PAGES / 4);
	free_between(COUNT);
}

enum { LARGE = 64, FALLS = 100 };
static struct {
	char *run;
	size_t pages;
} large[LARGE];
static uint64_t random_state = 3;

static void take_large(unsigned i, size_t pages)
{
	bool zeroed;
	CHECK((large[i].run = page_alloc(pages, 1, PAGE_LARGE, &zeroed)));
	memset(large[i].run, 1, pages * PAGE_BYTES);
	large[i].pages = pages;
}

static void free_large(unsigned i)
{
	size_t own = large[i].pages * PAGE_BYTES;
	struct page_statistics before, after;
	page_statistics(&before);
	begin();
	page_free(large[i].run, large[i].pages);
	page_statistics(&after);
	CHECK(after.large_runs == before.large_runs - 1);
	expect_bounded("a free of a large object", after.large_runs ? own : 2 * own);
}

/* From 256 KiB to 4 MiB. */
static void rise(void)
{
	for (unsigned i = 0; i < LARGE; i++)
		take_large(i, 64 + check_below(&random_state, 961));
}

/* In random order; returns how much the frees gave back. */
static size_t fall(void)
{
	size_t sum = 0;
	for (unsigned left = LARGE; left; left--) {
		unsigned i = (unsigned)check_below(&random_state, left);
		free_large(i);
		sum += given_back;
		large[i] = large[left - 1];
	}
	return sum;
}

/* Lets time pass, until falls in vain are forgotten. */
static void forget_falls(void)
{
	for (int i = 0; i < 1000; i++)
		page_tick();
}

/*
 * When the last large objects are freed, their memory goes back, by those frees alone.  A program that takes
 * as much again, over and over, pays for that twice in a hundred times.
 */
static void test_ebbs(void)
{
	for (unsigned i = 0; i < FALLS; i++) {
		bool followed = i == 0 || i == 16;
		rise();
		size_t sum = fall(), dirty = dirty_bytes();
		CHECK((sum > 0) == followed, "fall %u gave back %zu bytes", i, sum);
		CHECK((dirty <= MIB) == followed, "%zu dirty bytes stay after fall %u", dirty, i);
	}
	forget_falls();
	rise();
	(void)fall();
	CHECK(dirty_bytes() <= MIB, "%zu dirty bytes stay", dirty_bytes());

	/* Nor is a fall in vain if the program did without the memory for the decay time. */
	options.decay = 20;
	wait_for_decay();
	rise();
	options.decay = 1000000;
	(void)fall();
	CHECK(dirty_bytes() <= MIB, "%zu dirty bytes stay of the second", dirty_bytes());
}

/* The largest object is replaced, over and over; then all objects are freed, or the only one is. */
static void test_replaced(void)
{
	enum { PAGES = 4096 };
	take_large(0, PAGES / 8);
	take_large(1, PAGES);
	forget_falls();
	for (int i = 0; i < 40; i++) {
		free_large(1);
		CHECK(given_back == 0, "%zu bytes at replacement %d", given_back, i);
		take_large(1, PAGES);
	}
	free_large(0);
	free_large(1);
	CHECK(dirty_bytes() <= MIB, "%zu dirty bytes stay", dirty_bytes());
	take_large(0, PAGES);
	forget_falls();
	free_large(0);
	CHECK(dirty_bytes() <= MIB, "%zu dirty bytes stay of one", dirty_bytes());
}

/* The memory of objects freed one by one goes with the last: there may be no further call. */
static void test_last(void)
{
	enum { COUNT = 4, PAGES = 8 * MIB / PAGE_BYTES };
	for (unsigned i = 0; i < COUNT; i++)
		take_large(i, PAGES);
	forget_falls();
	for (unsigned i = 0; i < COUNT - 1; i++) {
		free_large(i);
		CHECK(given_back == 0, "%zu bytes at free %u", given_back, i);
		/* Each free is the only one since an object was allocated or has grown: no ebb. */
		CHECK(page_large_resize(large[COUNT - 1].run, ++large[COUNT - 1].pages));
	}
	free_large(COUNT - 1);
	CHECK(dirty_bytes() <= MIB, "%zu dirty bytes stay", dirty_bytes());
}

/* Separate mappings, which are given back from their ends. */
static void test_mappings(void)
{
	enum { COUNT = 3, BYTES = 41 * MIB + 3 * PAGE_BYTES };
	char *mappings[COUNT];
	struct page_statistics now;
	bool zeroed;
	for (int i = 0; i < COUNT; i++) {
		mappings[i] = huge_alloc(BYTES, 1, &zeroed);
		CHECK(mappings[i]);
		memset(mappings[i], 1, BYTES);
	}
	begin();
	for (int i = 0; i < COUNT; i++)
		CHECK(huge_free(mappings[i]));
	CHECK(given_back == 0);
	/* Partly gone, and still good for requests that fit. */
	options.decay = 20;
	wait_for_decay();
	begin();
	huge_purge(false);
	CHECK(given_back == MOST && calls == 1, "%zu bytes by %zu calls", given_back, calls);
	CHECK(huge_is_behind());
	options.decay = 1000000;
	page_statistics(&now);
	CHECK(now.huge_cached_bytes == COUNT * BYTES - MOST);
	char *shorter = huge_alloc(BYTES - MOST, 1, &zeroed);
	CHECK(shorter && !zeroed && huge_bytes(shorter) == BYTES - MOST);
	CHECK(check_all_bytes(shorter, BYTES - MOST, 1));
	CHECK(huge_free(shorter));

	/*
	 * A small mapping, for which there is no room, purges no more of a large one than its own size
	 * allows.
	 */
	options.dirty = COUNT * BYTES - MOST;
	char *small = huge_alloc(MIB, 1, &zeroed);
	CHECK(small);
	begin();
	CHECK(huge_free(small));
	CHECK(given_back <= MOST + 3 * MIB && calls <= 2, "%zu bytes by %zu calls", given_back, calls);
	options.dirty = SIZE_MAX;

	options.decay = 20;
	wait_for_decay();
	size_t sum = 0;
	huge_purge(false);
	for (page_statistics(&now); huge_is_behind(); page_statistics(&now)) {
		begin();
		huge_purge(false);
		CHECK(given_back > 0 && given_back <= MOST && calls <= 2);
		sum += given_back;
	}
	CHECK(now.huge_cached_bytes == 0 && sum > BYTES);
	options.decay = 1000000;
}

/* In an ebb pages of slabs wait for a call that gives several of them back together. */
static void test_gathering(void)
{
	enum { COUNT = 512, PAGES = 4 };
	bool zeroed;
	allocate(COUNT, PAGES);
	char *held = page_alloc(COUNT * PAGES / 2, 1, SLAB, &zeroed);
	CHECK(held);
	memset(held, 1, COUNT * PAGES / 2 * PAGE_BYTES);
	page_ebb(true);
	page_purge(false);
	begin();
	for (unsigned i = 0; i < COUNT; i++)
		page_free(parts[i], PAGES);
	CHECK(calls == 0, "%zu system calls by frees", calls);
	CHECK(page_is_behind());
	size_t sum = catch_up(), used = (COUNT * PAGES / 2 + COUNT) * PAGE_BYTES;
	CHECK(sum > 0 && dirty_bytes() <= used + used / 4, "%zu dirty bytes stay of %zu in use",
	      dirty_bytes(), used);
	page_free(held, COUNT * PAGES / 2);
	free_between(COUNT);
}

int main(void)
{
	check_watchdog(60);
	free(malloc(1));
	magazine_trim();
	test_gathering();
	options.dirty = SIZE_MAX;
	test_age(8, 2500);
	test_age(PARTS, 3);
	/* Locked memory does not go back; what comes before it does. */
	static _Alignas(PAGE_BYTES) char pages[2][PAGE_BYTES] = {{1}, {1}};
	struct os_range ranges[] = {{pages[0], PAGE_BYTES}, {pages[1], PAGE_BYTES}};
	if (mlock(pages[1], PAGE_BYTES) == 0) {
		CHECK(os_purge_several(ranges, 2) == 1);
		CHECK(munlock(pages[1], PAGE_BYTES) == 0);
	}
	CHECK(os_purge_several(ranges, 2) == 2);
	test_order();
	test_amount();
	test_ebbs();
	test_replaced();
	test_last();
	test_mappings();
	return 0;
}
