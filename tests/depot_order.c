/* SPDX-License-Identifier: MIT */
/*
 * depot_order: putting the objects of magazines in order of address loses and duplicates none, whatever their
 * pages and however full the magazines; where it cannot be done, nothing changes.  And where objects flow
 * from vCPU to vCPU, a vCPU's spare reaches its word in order.
 *
 * Runs with a private slot for each thread, which makes each thread a vCPU of its own.
 */
#include "check.h"

#include "depot/order.h"
#include "magazine/magazine.h"
#include "page/page.h"

enum { MOST = 4, CAPACITY = 500, BASE = 1 << 30 };

/* Addresses that are never accessed. */
static struct magazine *magazines[MOST];
static void *before[MOST * CAPACITY], *after[MOST * CAPACITY];

static void make_magazines(void)
{
	for (int m = 0; m < MOST; m++) {
		magazines[m] = calloc(1, sizeof(struct magazine) + (CAPACITY + 2) * sizeof(void *));
		CHECK(magazines[m]);
		magazines[m]->capacity = CAPACITY;
	}
}

static void *object_at(uintptr_t page, unsigned unit)
{
	return (void *)(BASE + page * PAGE_BYTES + (uintptr_t)unit * ORDER_UNIT);
}

/* Lists the objects in the order in which they would be popped, one magazine after the other. */
static unsigned list_objects(void **list, unsigned count)
{
	unsigned listed = 0;

	for (unsigned m = 0; m < count; m++)
		for (unsigned i = magazines[m]->count; i; i--)
			list[listed++] = magazines[m]->slot[i];
	return listed;
}

static int compare(const void *one, const void *other)
{
	uintptr_t a = *(const uintptr_t *)one, b = *(const uintptr_t *)other;

	return (a > b) - (a < b);
}

static void shuffle(uint64_t *random, void **list, unsigned count)
{
	for (; count > 1; count--) {
		void **other = &list[check_random(random) % count], *object = *other;

		*other = list[count - 1];
		list[count - 1] = object;
	}
}

/*
 * Fills `count` magazines, not all completely, with objects from `pages` pages, `apart` pages from each
 * other.
 */
static unsigned fill(uint64_t *random, unsigned count, unsigned pages, uintptr_t apart)
{
	static void *pool[ORDER_PAGES * 4 * (PAGE_BYTES / ORDER_UNIT)];
	unsigned pooled = 0, filled = 0;

	for (unsigned page = 0; page < pages; page++)
		for (unsigned unit = 0; unit < PAGE_BYTES / ORDER_UNIT; unit++)
			pool[pooled++] = object_at(page * apart, unit);
	shuffle(random, pool, pooled);
	for (unsigned m = 0; m < count; m++) {
		unsigned most = (pooled - filled) / (count - m);

		magazines[m]->count =
			(uint16_t)(1 + check_random(random) % (most < CAPACITY ? most : CAPACITY));
		for (unsigned i = 1; i <= magazines[m]->count; i++)
			magazines[m]->slot[i] = pool[filled++];
	}
	return filled;
}

/* Adjacent pages, pages that hash to the same place, and the largest number of pages allowed. */
static void test_any(void)
{
	static const struct {
		unsigned pages;
		uintptr_t apart;
	} sets[] = {{4, 1},     {30, 1}, {ORDER_PAGES, 1}, {20, 256}, {ORDER_PAGES, 256}, {ORDER_PAGES, 255},
		    {50, 77777}};
	uint64_t random = 1;

	for (unsigned round = 0; round < 700; round++) {
		unsigned count = 1 + round / 7 % MOST;
		unsigned objects = fill(&random, count, sets[round % 7].pages, sets[round % 7].apart);

		CHECK(list_objects(before, count) == objects);
		CHECK(order_by_address(magazines, count));
		CHECK(list_objects(after, count) == objects);
		qsort(before, objects, sizeof *before, compare);
		CHECK(memcmp(before, after, objects * sizeof *before) == 0);
		for (unsigned m = 0; m < count; m++)
			CHECK(!order_is_missing(magazines[m]));
	}
}

static void check_unchanged(unsigned count)
{
	unsigned objects = list_objects(before, count);

	CHECK(!order_by_address(magazines, count));
	CHECK(list_objects(after, count) == objects && memcmp(before, after, objects * sizeof *before) == 0);
}

static void test_not(void)
{
	uint64_t random = 2;

	/* One page too many, at the very end. */
	for (unsigned m = 0; m < 2; m++) {
		magazines[m]->count = ORDER_PAGES / 2;
		for (unsigned i = 1; i <= magazines[m]->count; i++)
			magazines[m]->slot[i] = object_at((m * 1000 + i) * 7 % 1999, i);
	}
	CHECK(order_by_address(magazines, 2));
	magazines[1]->slot[++magazines[1]->count] = object_at(2222, 0);
	check_unchanged(2);
	/* One object twice, in one magazine or in two. */
	(void)fill(&random, 2, 8, 1);
	magazines[1]->count = CAPACITY;
	for (unsigned i = 1; i <= CAPACITY; i++)
		magazines[1]->slot[i] = object_at(9 + i % 3, i / 3);
	CHECK(order_by_address(magazines + 1, 1));
	magazines[1]->slot[7] = magazines[1]->slot[490];
	check_unchanged(2);
	magazines[1]->slot[7] = magazines[0]->slot[1];
	check_unchanged(2);
	/* A pointer that is no object: a program has freed an address in the middle of one. */
	magazines[1]->slot[7] = (char *)object_at(20, 3) + 8;
	check_unchanged(2);
}

static void test_missing(void)
{
	struct magazine *magazine = magazines[0];
	uint64_t random = 3;

	for (int up = 0; up < 2; up++) {
		magazine->count = CAPACITY;
		for (unsigned i = 1; i <= CAPACITY; i++)
			magazine->slot[i] = object_at(up ? 2 * i : 2000 - 2 * i, 0);
		CHECK(!order_is_missing(magazine));
	}
	shuffle(&random, &magazine->slot[1], CAPACITY);
	CHECK(order_is_missing(magazine));
	/* Nothing is known of the objects below the top. */
	qsort(&magazine->slot[CAPACITY - 49], 50, sizeof *magazine->slot, compare);
	CHECK(!order_is_missing(magazine));
	magazine->count = CAPACITY - 50;
	CHECK(order_is_missing(magazine));
	magazine->count = 10;
	CHECK(!order_is_missing(magazine));
	magazine->count = 0;
	CHECK(!order_is_missing(magazine));
}

/* ---- a spare ------------------------------------------------------------------------------------------- */

enum { EACH = 60, OBJECTS = 40 * EACH, STEP = 1003 /* coprime with OBJECTS */ };

static struct cache cache;

static void *take(void)
{
	void *object = magazine_alloc_at(cache.map, &cache.offset);

	return object ? object : magazine_alloc_missed(&cache);
}

static void give(void *object)
{
	if (!magazine_free_at(cache.map, &cache.offset, object))
		magazine_free_missed(&cache, object);
}

static bool spare_comes_in_order(bool flows)
{
	static void *objects[OBJECTS], *taken[EACH];
	bool ordered = true;

	CHECK(magazine_create(&cache, &(struct slab_traits){.name = "test", .size = 48}, EACH, NULL));
	for (unsigned i = 0; i < OBJECTS; i++)
		CHECK((objects[i] = take()));
	qsort(objects, OBJECTS, sizeof *objects, compare);
	/* A full magazine becomes the spare. */
	for (unsigned i = 0; i < OBJECTS; i++)
		give(objects[(uint64_t)i * STEP % OBJECTS]);
	__atomic_store_n(&cache.depot.flows, flows, __ATOMIC_RELAXED);
	/* First the objects of the word. */
	uint64_t exchanges = cache.depot.lock_acquires;
	unsigned word = 0;

	while (magazine_objects_loaded(&cache) > EACH) {
		CHECK((objects[word] = take()));
		word++;
	}
	for (unsigned i = 0; i < EACH; i++) {
		CHECK((taken[i] = take()));
		ordered &= i == 0 || taken[i] > taken[i - 1];
	}
	/* None came through the depot. */
	CHECK(cache.depot.lock_acquires - exchanges == (flows ? 2 : 0));
	for (unsigned i = 0; i < EACH; i++)
		give(taken[i]);
	while (word)
		give(objects[--word]);
	CHECK(magazine_destroy(&cache) == 0);
	return ordered;
}

int main(void)
{
	free(malloc(1));
	if (strcmp(check_mode(), "slot") != 0)
		return 77;
	make_magazines();
	test_any();
	test_not();
	test_missing();
	CHECK(!spare_comes_in_order(false));
	CHECK(spare_comes_in_order(true));
	for (int m = 0; m < MOST; m++)
		free(magazines[m]);
	return 0;
}
