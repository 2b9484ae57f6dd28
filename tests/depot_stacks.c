/* SPDX-License-Identifier: MIT */
/*
 * depot_stacks: what the depot gives and takes in each exchange, what aging sends back to the slabs and what
 * it keeps, when nothing may wait, and that refilling and draining move each object once.
 */
#include "check.h"

#include <stddef.h>

#include "depot/depot.h"
#include "depot/ebb.h"
#include "page/page.h"
#include "vcpu/vcpu.h"

enum { ID = VCPU_BANK_CACHES - 1, MAGAZINES = 8 };

static struct depot depot;

static void start(uint32_t size)
{
	depot = (struct depot){.capacity = 0};
	depot_init(&depot, &(struct slab_traits){.name = "test", .size = size, .id = vcpu_offset(ID)}, 0);
	/* Any number of objects may wait, except where a test says that none have been earned yet. */
	depot.earned = UINT64_MAX / 2;
}

static struct depot_statistics statistics(void)
{
	struct depot_statistics now;
	depot_statistics(&depot, &now);
	return now;
}

static uint64_t allocated(void)
{
	struct slab_statistics now;
	slab_statistics(&depot.slabs, &now);
	return now.allocated;
}

/* Ages the depot, and drains all that is to leave. */
static uint64_t age(bool pages_wanted)
{
	uint64_t leaving = depot_age(&depot, pages_wanted);
	CHECK(depot_depart(&depot, UINT64_MAX) > 0 && !depot.departs);
	return leaving;
}

static void check_stacks(uint64_t filled, uint64_t empty, uint64_t objects)
{
	struct depot_statistics now = statistics();
	CHECK(now.filled == filled && now.empty == empty && now.objects == objects,
	      "%llu filled, %llu empty, %llu objects", (unsigned long long)now.filled,
	      (unsigned long long)now.empty, (unsigned long long)now.objects);
}

static void check_magazine(const struct magazine *magazine)
{
	CHECK(magazine->capacity == depot.capacity && magazine->count <= magazine->capacity);
	CHECK(magazine->slot[0] == NULL && magazine->self == magazine_end_mark(magazine));
	CHECK(magazine->slot[magazine->capacity + 1] == (void *)magazine_end_mark(magazine));
	for (unsigned i = 1; i <= magazine->capacity; i++)
		CHECK(((uintptr_t)magazine->slot[i] & 1) == 0, "an end mark at slot %u of %u", i,
		      magazine->capacity);
}

static struct magazine *new_empty(void)
{
	struct magazine *magazine = depot_take_empty(&depot, NULL);
	CHECK(magazine && magazine->count == 0);
	check_magazine(magazine);
	return magazine;
}

static struct magazine *new_filled(void)
{
	struct magazine *magazine = new_empty();
	uint64_t before = allocated();
	CHECK(depot_refill(&depot, magazine));
	check_magazine(magazine);
	CHECK(magazine->count && magazine->count <= (magazine->capacity + 1) / 2);
	CHECK(allocated() == before + magazine->count);
	for (unsigned i = 1; i <= magazine->count; i++) {
		CHECK(slab_is_object(&depot.slabs, magazine->slot[i]));
		memset(magazine->slot[i], 1, depot.slabs.traits.size);
	}
	return magazine;
}

static void test_capacity(uint32_t size)
{
	start(size);
	/* A magazine with its overhead fills a power-of-two block, and holds at least three objects. */
	size_t bytes = offsetof(struct magazine, slot) + (depot.capacity + 2u) * sizeof(void *);
	CHECK((bytes & (bytes - 1)) == 0 && bytes >= 64 && bytes <= 2048, "%zu bytes", bytes);
	CHECK(depot.capacity >= 3);
	check_stacks(0, 0, 0);

	struct magazine *magazine = new_filled();
	/* The lowest address is popped first. */
	for (unsigned i = 1; i < magazine->count; i++)
		CHECK((char *)magazine->slot[i] == (char *)magazine->slot[i + 1] + size ||
		      depot.slabs.objects < magazine->count);
	uint64_t drains = statistics().drains;
	depot_drain(&depot, magazine);
	CHECK(magazine->count == 0 && allocated() == 0 && statistics().drains == drains + 1);
	depot_put(&depot, magazine);
	check_stacks(0, 1, 0);
	depot_empty(&depot);
	check_stacks(0, 0, 0);
}

static void test_exchange(void)
{
	start(64);
	struct magazine *first = new_filled(), *second = new_filled();
	uint64_t each = first->count, refills = statistics().refills;
	CHECK(each == second->count && refills == 2);

	/* The depot is empty: nothing is taken, and the caller keeps its empty magazine. */
	struct magazine *empty = new_empty();
	CHECK(depot_take_filled(&depot, empty) == NULL);
	check_stacks(0, 0, 0);
	CHECK(depot_take_filled(&depot, NULL) == NULL);

	depot_put(&depot, first);
	depot_put(&depot, second);
	check_stacks(2, 0, 2 * each);
	/* LIFO: the last one in is the warmest. */
	CHECK(depot_take_filled(&depot, empty) == second);
	check_stacks(1, 1, each);
	CHECK(depot_take_filled(&depot, NULL) == first);
	check_stacks(0, 1, 0);
	CHECK(depot_take_empty(&depot, second) == empty);
	check_stacks(1, 0, each);
	/* No empty one is left: a new one is made. */
	struct magazine *another = depot_take_empty(&depot, first);
	CHECK(another && another != empty && another->count == 0);
	check_magazine(another);
	check_stacks(2, 0, 2 * each);
	depot_put(&depot, empty);
	depot_put(&depot, another);
	check_stacks(2, 2, 2 * each);
	CHECK(new_empty() == another);
	depot_put(&depot, another);
	CHECK(statistics().refills == refills && statistics().drains == 0 && allocated() == 2 * each);

	/* A magazine with a single object counts as filled. */
	struct magazine *one = new_empty();
	CHECK(slab_alloc_batch(&depot.slabs, &one->slot[1], 1) == 1);
	one->count = 1;
	depot_put(&depot, one);
	check_stacks(3, 1, 2 * each + 1);

	depot_empty(&depot);
	check_stacks(0, 0, 0);
	CHECK(allocated() == 0 && statistics().drains == 3);
	struct slab_statistics slabs;
	slab_statistics(&depot.slabs, &slabs);
	CHECK(slabs.slabs == 0);
}

static void test_aging(void)
{
	struct magazine *magazines[MAGAZINES];
	start(112);
	CHECK(!age(false));
	for (int i = 0; i < MAGAZINES; i++)
		magazines[i] = new_filled();
	uint64_t each = magazines[0]->count;
	for (int i = 0; i < MAGAZINES; i++)
		depot_put(&depot, magazines[i]);

	/* They arrived since the last look: none is old. */
	CHECK(!age(false));
	check_stacks(MAGAZINES, 0, MAGAZINES * each);
	/* Three were needed meanwhile, so five were not. */
	for (int i = 0; i < 3; i++)
		CHECK(depot_take_filled(&depot, NULL) == magazines[MAGAZINES - 1 - i]);
	for (int i = 0; i < 3; i++)
		depot_put(&depot, magazines[MAGAZINES - 1 - i]);
	CHECK(age(false));
	check_stacks(3, 0, 3 * each);
	CHECK(allocated() == 3 * each && statistics().drains == 5);
	/* First all three were needed, then none. */
	for (int i = 0; i < 3; i++)
		CHECK((magazines[i] = depot_take_filled(&depot, NULL)));
	CHECK(!depot_take_filled(&depot, NULL));
	for (int i = 0; i < 3; i++)
		depot_put(&depot, magazines[i]);
	CHECK(!age(false));
	check_stacks(3, 0, 3 * each);
	CHECK(age(false));
	check_stacks(0, 0, 0);
	CHECK(allocated() == 0 && !age(false));

	/* Where pages are wanted, recent magazines go too, unless the cache is allocating. */
	for (int i = 0; i < 3; i++)
		CHECK((magazines[i] = new_filled()));
	for (int i = 0; i < 3; i++)
		depot_put(&depot, magazines[i]);
	CHECK((magazines[2] = depot_take_filled(&depot, NULL)));
	depot_put(&depot, magazines[2]);
	CHECK(!age(true));
	check_stacks(3, 0, 3 * each);
	depot_put(&depot, new_filled());
	CHECK(age(true));
	check_stacks(0, 0, 0);
	CHECK(allocated() == 0 && !age(true));

	/* Of the empty ones a single one stays; the freed blocks are reused. */
	for (int i = 0; i < MAGAZINES; i++)
		magazines[i] = new_empty();
	for (int i = 0; i < MAGAZINES; i++)
		depot_put(&depot, magazines[i]);
	check_stacks(0, MAGAZINES, 0);
	CHECK(!age(false));
	check_stacks(0, 1, 0);
	struct page_statistics before, after;
	page_statistics(&before);
	for (int i = 0; i < MAGAZINES; i++)
		magazines[i] = new_empty();
	page_statistics(&after);
	CHECK(after.metadata_bytes == before.metadata_bytes);
	for (int i = 0; i < MAGAZINES; i++) {
		/* What its slots held before is not taken for an end mark. */
		for (unsigned slot = 1; slot <= magazines[i]->capacity; slot++)
			CHECK(magazines[i]->slot[slot] == NULL);
		depot_put(&depot, magazines[i]);
	}
	depot_empty(&depot);
	check_stacks(0, 0, 0);
}

/* An ebb, run to its end. */
static void ebb(void)
{
	(void)depot_ebb(&depot);
	CHECK(depot_depart(&depot, UINT64_MAX) > 0 && !depot.departs);
}

/* In an ebb no more objects stay than the program still has; and none where it has few. */
static void test_ebb(void)
{
	enum { FEW = 4, MOST = 256 };
	static struct magazine *magazines[MOST];
	start(64);
	for (int i = 0; i < FEW; i++)
		magazines[i] = new_filled();
	uint64_t each = magazines[0]->count;
	unsigned few = DEPOT_SCARCE * depot.capacity * (vcpu_areas() + 1) / (unsigned)each,
		 many = 2 * few + 2;
	CHECK(few > FEW && many <= MOST);
	for (unsigned i = FEW; i < many; i++)
		magazines[i] = new_filled();

	/* One more waits than is elsewhere. */
	for (unsigned i = 0; i < few; i++)
		depot_put(&depot, magazines[i]);
	ebb();
	check_stacks(few, 0, few * each);
	depot_put(&depot, magazines[few]);
	depot_put(&depot, magazines[few + 1]);
	ebb();
	check_stacks(few, depot.empty_count, few * each);
	CHECK(!depot.scarce && allocated() == 2 * few * each);

	while (many > few + 2 + FEW)
		depot_put(&depot, magazines[--many]);
	ebb();
	CHECK(depot.scarce && allocated() == FEW * each);
	check_stacks(0, depot.empty_count, 0);
	while (many > few + 2)
		depot_put(&depot, magazines[--many]);
	ebb();
	check_stacks(0, depot.empty_count, 0);
	CHECK(allocated() == 0 && depot.slabs.slabs == 0);
	/* Later requests are served from the slabs. */
	CHECK(!depot_take_filled(&depot, NULL));
	depot_empty(&depot);
}

/* A magazine that may not wait leaves with the rest, not in the call that puts it there. */
static void test_put_to_leave(void)
{
	enum { MANY = 64 };
	struct magazine *magazines[MANY];
	start(64);
	depot.earned = 0;
	for (int i = 0; i < MANY; i++)
		magazines[i] = new_filled();
	uint64_t before = allocated();
	for (int i = 0; i < MANY; i++)
		depot_put_to_leave(&depot, magazines[i]);
	CHECK(allocated() == before && depot.leaving && statistics().objects == before);
	CHECK(depot_ebb(&depot) == before);
	CHECK(depot_depart(&depot, UINT64_MAX) > 0 && allocated() == 0);
	/* An empty one just waits with the other empty ones. */
	depot_put_to_leave(&depot, new_empty());
	check_stacks(0, 1, 0);
	depot_empty(&depot);
}

/*
 * However much leaves, one call drains at most the requested number of objects plus one magazine, and the
 * last call finishes.
 */
static void test_portions(void)
{
	enum { MANY = 64, MOST = 500 };
	struct magazine *magazines[MANY];
	unsigned calls = 0;
	start(64);
	for (int i = 0; i < MANY; i++)
		magazines[i] = new_filled();
	for (int i = 0; i < MANY; i++)
		depot_put(&depot, magazines[i]);
	uint64_t before = allocated();
	CHECK(depot_ebb(&depot) == before);
	for (uint64_t now; depot_depart(&depot, MOST) == 0; calls++, before = now) {
		now = allocated();
		CHECK(before - now <= (uint64_t)MOST + depot.capacity, "%llu objects at once",
		      (unsigned long long)(before - now));
		CHECK(depot.departs && calls < 1000);
	}
	CHECK(calls > 1 && !depot.departs && allocated() == 0 && depot.slabs.slabs == 0);
	/* Empty slabs count too, since freeing each is a call into the page room. */
	CHECK(depot_depart(&depot, MOST) == MOST);
	depot_empty(&depot);
}

/*
 * With many small objects, those that have not earned to wait gather as well; at most a fraction of all
 * objects waits, however many have gathered and however many magazines are at hand.
 */
static void test_gathering_of_the_refused(void)
{
	enum { MANY = 1 << 17, BACK = 28 << 10, MOST = 1024 };
	static void *objects[MANY];
	static struct magazine *magazines[MOST];
	unsigned count = 0, calls = 0, draining = 0;
	start(64);
	depot.earned = 0;
	for (uint64_t back = 0; back < BACK; back += magazines[count++]->count)
		magazines[count] = new_filled();
	for (int i = 0; i < MANY; i++)
		CHECK(objects[i] = depot_alloc_one(&depot));
	uint64_t part = allocated() / 8;
	while (count) {
		uint64_t before = allocated();
		struct magazine *empty = depot_take_empty(&depot, magazines[--count]);
		uint64_t drained = before - allocated();
		CHECK(empty && !empty->count);
		depot_dissolve(&depot, empty);
		CHECK(drained <= (uint64_t)DEPOT_PORTION + depot.capacity);
		draining += drained > 0;
		calls++;
		CHECK(depot.leaving_objects <= (uint64_t)DEPOT_PORTION);
		CHECK(statistics().objects - depot.leaving_objects <= part + depot.capacity, "%llu of %llu",
		      (unsigned long long)statistics().objects, (unsigned long long)part);
	}
	CHECK(draining > 0 && draining <= (BACK - part) / DEPOT_PORTION + 1, "%u of %u calls drain", draining,
	      calls);
	for (int i = 0; i < MANY; i++)
		depot_free_one(&depot, objects[i]);
	depot_empty(&depot);
	CHECK(allocated() == 0);
}

/* Fills a magazine with objects each more than a page from the one before. */
static void scatter(struct magazine *magazine, void *const *objects, unsigned from, unsigned count)
{
	magazine->count = magazine->capacity;
	for (unsigned i = 1; i <= magazine->count; i++)
		magazine->slot[i] = objects[(from + i * 101) % count];
}

/*
 * While little waits, so does every full magazine; beyond a core's caches one whose objects are scattered
 * over pages goes to the slabs, and one whose objects follow each other waits.
 */
static void test_scattered(void)
{
	enum { MANY = 59 * 64, MOST = 4096 };
	static void *objects[MANY];
	static struct magazine *in_order[MOST];
	unsigned count = 0, n = 0;
	start(64);
	for (int i = 0; i < MANY; i++)
		CHECK(objects[i] = depot_alloc_one(&depot));
	/* Tests before this one have drained magazines that they had in hand. */
	for (int64_t bytes = ebb_waiting(); bytes < (int64_t)vcpu_areas() << 20; count++) {
		CHECK(count < MOST);
		in_order[count] = new_filled();
		bytes += in_order[count]->count * 64;
	}
	/* 101 and MANY have no divisor in common: each object comes to one magazine. */
	for (; n < 16; n++) {
		struct magazine *magazine = new_empty();
		scatter(magazine, objects, n * magazine->capacity * 101u % MANY, MANY);
		depot_put(&depot, magazine);
		CHECK(!statistics().drains && statistics().filled == n + 1);
	}
	for (unsigned i = 0; i < count; i++)
		depot_put(&depot, in_order[i]);
	CHECK(!statistics().drains && !depot.leaving && statistics().filled == n + count);
	for (; n < 32; n++) {
		struct magazine *magazine = new_empty();
		scatter(magazine, objects, n * magazine->capacity * 101u % MANY, MANY);
		depot_put(&depot, magazine);
		CHECK((statistics().drains || depot.leaving) && statistics().filled == 16 + count);
	}
	for (n *= depot.capacity; n < MANY; n++)
		depot_free_one(&depot, objects[(1 + n) * 101u % MANY]);
	depot_empty(&depot);
	CHECK(allocated() == 0);
}

/* The depot's lock was held at the fork: the counts are rebuilt from the stacks. */
static void test_repair(void)
{
	start(256);
	struct magazine *filled = new_filled();
	for (int i = 0; i < 3; i++)
		depot_put(&depot, new_filled());
	depot_put(&depot, filled);
	struct magazine *empties[2] = {new_empty(), new_empty()};
	depot_put(&depot, empties[0]);
	depot_put(&depot, empties[1]);
	uint64_t objects = statistics().objects;

	depot_repair(&depot, false);
	check_stacks(4, 2, objects);
	cpuslab_spin_lock(&depot.lock);
	depot.filled_count = 77;
	depot.empty_count = 0;
	depot.filled_low = 50;
	depot_repair(&depot, false);
	CHECK(!cpuslab_spin_is_locked(&depot.lock));
	check_stacks(4, 2, objects);
	CHECK(depot_take_filled(&depot, NULL) == filled);
	depot_put(&depot, filled);
	depot_empty(&depot);
	check_stacks(0, 0, 0);
	CHECK(allocated() == 0);
}

/*
 * An allocation that must not wait takes its object out of a waiting magazine, along with the mark above it.
 */
static void test_try_alloc(void)
{
	start(112);
	struct magazine *magazine = new_empty();
	CHECK(depot_refill(&depot, magazine));
	unsigned count = magazine->count;
	void *top = magazine->slot[count], *below = magazine->slot[count - 1];
	magazine->slot[++magazine->count] = NULL;
	magazine->marks = 1;
	depot_put(&depot, magazine);
	check_stacks(1, 0, count);
	CHECK(depot_try_alloc(&depot) == top);
	check_stacks(1, 0, count - 1);
	CHECK(depot_try_alloc(&depot) == below);
	check_stacks(1, 0, count - 2);
	void *objects[] = {top, below};
	slab_free_batch(&depot.slabs, objects, 2);
	while (statistics().objects) {
		void *object = depot_try_alloc(&depot);
		slab_free_batch(&depot.slabs, &object, 1);
	}
	check_stacks(0, 1, 0);
	depot_empty(&depot);
	CHECK(allocated() == 0);
}

static void expect_capacity(unsigned capacity)
{
	CHECK(depot.capacity == capacity, "%u, not %u", depot.capacity, capacity);
	CHECK(depot.batch > 0 && depot.batch <= (capacity + 1) / 2);
}

static void count_misses(unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		depot_count_misses(&depot);
}

/* Takes `count` magazines of objects, then returns all.  Returns how many objects wait afterwards. */
static uint64_t fall(unsigned count)
{
	static struct magazine *magazines[1024];
	CHECK(count <= sizeof magazines / sizeof *magazines);
	for (unsigned i = 0; i < count; i++) {
		magazines[i] = depot_take_filled(&depot, NULL);
		if (!magazines[i])
			magazines[i] = new_filled();
	}
	/* No empty magazines are at hand: each one returned has another made in exchange, as a free does. */
	depot_age(&depot, true);
	while (count) {
		struct magazine *empty = depot_take_empty(&depot, magazines[--count]);
		CHECK(empty && !empty->count);
		depot_dissolve(&depot, empty);
	}
	return statistics().objects;
}

/*
 * Of small objects a fraction may wait at first; a program that asks for the others again earns that they may
 * wait the next time, and one that does not earns nothing.
 */
static void test_earning(void)
{
	enum { MANY = 100 };
	start(32);
	depot.earned = 0;
	struct magazine *magazine = new_filled();
	uint64_t all = (uint64_t)MANY * magazine->count, waiting;
	depot_dissolve(&depot, magazine);

	waiting = fall(MANY);
	CHECK(waiting && waiting <= all / 4 && allocated() == waiting, "%llu of %llu",
	      (unsigned long long)waiting, (unsigned long long)all);
	/* As many again: by now all of them may wait. */
	CHECK(fall(MANY) == all && allocated() == all);
	CHECK(fall(MANY) == all);
	/* Twice as many: the additional ones have earned nothing. */
	waiting = fall(2 * MANY);
	CHECK(waiting >= all && waiting <= all + all / 4);
	depot_empty(&depot);
	CHECK(allocated() == 0);

	/* For large objects magazines cost little memory. */
	start(512);
	depot.earned = 0;
	magazine = new_filled();
	all = (uint64_t)MANY * magazine->count;
	depot_dissolve(&depot, magazine);
	CHECK(fall(MANY) == all);
	depot_empty(&depot);

	/* An explicit limit is respected. */
	start(32);
	depot.earned = 0;
	struct depot_tunables tunables = depot_tunables(&depot);
	tunables.sharedfactor = MANY * 2;
	depot_tune(&depot, &tunables);
	magazine = new_filled();
	all = (uint64_t)MANY * magazine->count;
	depot_dissolve(&depot, magazine);
	CHECK(fall(MANY) == all);
	depot_empty(&depot);
}

/* A program with few objects earns larger magazines by its misses alone: twice as many for twice the size. */
static void test_growth_by_misses(void)
{
	enum { SIZE = 256, MISSES = 27 * SIZE / 2 / DEPOT_MISSES };
	start(SIZE);
	expect_capacity(11);
	struct magazine *small = new_filled(), *empty = new_empty();
	uint64_t each = small->count;
	depot_put(&depot, new_empty());
	count_misses(MISSES - 1);
	expect_capacity(11);
	check_stacks(0, 1, 0);

	/* Empty magazines of the previous size are freed at once. */
	count_misses(1);
	expect_capacity(27);
	check_stacks(0, 0, 0);
	CHECK(depot_is_stale(&depot, empty));
	depot_put(&depot, empty);
	check_stacks(0, 0, 0);
	check_magazine(new_empty());
	/* Filled ones are used up first. */
	CHECK(!depot_is_stale(&depot, small));
	depot_put(&depot, small);
	check_stacks(1, 0, each);
	CHECK(depot_take_filled(&depot, NULL) == small && small->count == each);
	depot_put(&depot, small);
	while (statistics().objects) {
		void *object = depot_try_alloc(&depot);
		slab_free_batch(&depot.slabs, &object, 1);
	}
	check_stacks(0, 0, 0);
	CHECK(allocated() == 0);

	/* 59 objects are a little more than twice as many bytes. */
	count_misses(2 * MISSES);
	expect_capacity(27);
	/* Each tick halves the count of misses; then they are not enough. */
	depot_tick(&depot);
	count_misses(MISSES);
	expect_capacity(27);
	count_misses(2 * MISSES);
	expect_capacity(59);
	depot_empty(&depot);
}

/* A program with many objects earns larger magazines as soon as it misses at all. */
static void test_growth_by_plenty(void)
{
	static void *objects[1 << 16];
	start(64);
	while (depot.capacity < 500) {
		unsigned before = depot.capacity, next = before < 251 ? 2 * before + 5 : 500, taken = 0;
		/* The last step needs twice as many. */
		unsigned plenty = (next < 500 ? 4u : 8u) * next * vcpu_areas();
		CHECK(plenty <= sizeof(objects) / sizeof(objects[0]));
		while (taken < plenty - 1)
			CHECK(objects[taken++] = depot_alloc_one(&depot));
		count_misses(1);
		expect_capacity(before);
		CHECK(objects[taken++] = depot_alloc_one(&depot));
		count_misses(1);
		expect_capacity(next);
		while (taken)
			depot_free_one(&depot, objects[--taken]);
	}
	count_misses(10000);
	expect_capacity(500);
	depot_empty(&depot);
}

/*
 * With the largest magazines, no more of the program's objects count as few than with the largest that a
 * cache begins with.
 */
static void test_the_largest_counts_as_the_first(void)
{
	static void *objects[1 << 15];
	start(64);
	count_misses(10000);
	expect_capacity(500);
	unsigned many = DEPOT_SCARCE * 251 * vcpu_areas();
	CHECK(many <= sizeof(objects) / sizeof(objects[0]));
	for (unsigned i = 0; i < many; i++)
		CHECK(objects[i] = depot_alloc_one(&depot));
	depot_ebb(&depot);
	CHECK(!depot.scarce);
	depot_free_one(&depot, objects[--many]);
	depot_ebb(&depot);
	CHECK(depot.scarce);
	while (many)
		depot_free_one(&depot, objects[--many]);

	depot_empty(&depot);
	CHECK(allocated() == 0);
}

/* From the largest size down by the steps that led up, to the initial one. */
static void test_shrinking_from_the_largest(void)
{
	static const unsigned steps[] = {500, 251, 123, 59};
	start(64);
	count_misses(10000);
	for (unsigned i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		expect_capacity(steps[i]);
		for (int tick = 0; tick < 50 && !depot.shrunk; tick++)
			depot_tick(&depot);
		age(false);
	}
	expect_capacity(59);
	depot_empty(&depot);
}

/*
 * Eleven objects of up to 64 KiB, however many bytes that is; for larger objects the smallest possible
 * number.
 */
static void test_large_objects(void)
{
	static const struct {
		uint32_t size;
		uint16_t most;
	} expected[] = {{8192, 11}, {16384, 11}, {65536, 11}, {81920, 3}, {262144, 3}};
	for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
		start(expected[i].size);
		expect_capacity(3);
		while (depot.capacity < depot.capacity_most)
			count_misses(1000);
		expect_capacity(expected[i].most);
		depot_empty(&depot);
	}
}

/* Objects allocated and freed singly are counted in use exactly. */
static void test_plenty_alone(void)
{
	static void *objects[1 << 16];
	start(512);
	unsigned before = depot.capacity, next = 2 * before + 5, plenty = 4 * next * vcpu_areas(), taken = 0;
	CHECK(plenty + depot.batch <= sizeof(objects) / sizeof(objects[0]));
	while (taken < plenty) {
		CHECK(!depot_take_filled(&depot, NULL));
		struct magazine *magazine = new_empty();
		CHECK(depot_refill(&depot, magazine) && magazine->count == depot.batch);
		for (; magazine->count; magazine->count--)
			objects[taken++] = magazine->slot[magazine->count];
		depot_put(&depot, magazine);
	}
	while (taken)
		depot_free_one(&depot, objects[--taken]);
	count_misses(1);
	expect_capacity(before);

	while (taken < plenty - 1)
		CHECK(objects[taken++] = depot_alloc_one(&depot));
	count_misses(1);
	expect_capacity(before);
	CHECK(objects[taken++] = depot_alloc_one(&depot));
	count_misses(1);
	expect_capacity(next);
	while (taken)
		depot_free_one(&depot, objects[--taken]);

	/* So are those that leave with their magazine. */
	plenty = 4 * (2 * next + 5) * vcpu_areas();
	while (taken < plenty) {
		CHECK(!depot_take_filled(&depot, NULL));
		struct magazine *magazine = new_empty();
		CHECK(depot_refill(&depot, magazine));
		taken += magazine->count;
		depot_dissolve(&depot, magazine);
	}
	count_misses(1);
	expect_capacity(next);
	depot_empty(&depot);
	CHECK(allocated() == 0);
}

/* What waits in the depot does not count as in use, nor does an allocation that found nothing. */
static void test_nothing_had(void)
{
	start(512);
	unsigned before = depot.capacity, plenty = 4 * (2 * before + 5) * vcpu_areas(), taken = 0;

	/* Another thread has the slabs' lock: one object comes, with a slab of its own, and no more. */
	cpuslab_spin_lock(&depot.slabs.lock);
	void *object = depot_try_alloc(&depot);
	for (unsigned i = 0; i < 2 * plenty; i++)
		CHECK(!depot_try_alloc(&depot));
	cpuslab_spin_unlock(&depot.slabs.lock);
	CHECK(object);
	depot_free_one(&depot, object);
	while (taken < 2 * plenty) {
		struct magazine *magazine = new_filled();
		taken += magazine->count;
		depot_put(&depot, magazine);
		magazine = new_filled();
		depot_put(&depot, magazine);
		taken += magazine->count;
	}
	count_misses(1);
	expect_capacity(before);
	depot_empty(&depot);
	CHECK(allocated() == 0);
}

/* A cache that no longer misses gets smaller magazines, and the objects of larger ones go to the slabs. */
static void test_shrinking(void)
{
	start(512);
	count_misses(400);
	expect_capacity(59);
	for (int i = 0; i < 50; i++) {
		depot_tick(&depot);
		count_misses(1);
		CHECK(!depot.shrunk);
	}
	expect_capacity(59);
	depot_put(&depot, new_filled());
	struct magazine *in_hand = new_filled();
	for (int i = 0; i < 50 && !depot.shrunk; i++)
		depot_tick(&depot);
	CHECK(depot.shrunk);
	expect_capacity(27);
	age(false);
	CHECK(!depot.shrunk);
	check_stacks(0, 0, 0);
	CHECK(allocated() == in_hand->count && depot_is_stale(&depot, in_hand));
	depot_put(&depot, in_hand);
	check_stacks(0, 0, 0);
	CHECK(allocated() == 0);
	for (int i = 0; i < 50; i++)
		depot_tick(&depot);
	expect_capacity(3);
	depot_empty(&depot);
}

/* A size set explicitly, or required by hardened mode, does not change. */
static void test_one_capacity(void)
{
	start(512);
	CHECK(depot_tunables(&depot).limit == 251 && !depot_has_one_capacity(&depot));
	CHECK(depot_tune(&depot, &(struct depot_tunables){20, 7, 1}));
	CHECK(!depot_tune(&depot, &(struct depot_tunables){20, 7, 1}));
	count_misses(10000);
	for (int i = 0; i < 50; i++)
		depot_tick(&depot);
	CHECK(depot.capacity == 20 && depot.batch == 7 && depot_tunables(&depot).limit == 20 &&
	      depot_tunables(&depot).batchcount == 7);
	/* A smaller magazine with objects is as stale as an empty one. */
	struct magazine *magazine = new_filled();
	CHECK(depot_tune(&depot, &(struct depot_tunables){40, 7, 1}));
	CHECK(depot_is_stale(&depot, magazine));
	depot_put(&depot, magazine);
	check_stacks(0, 0, 0);
	CHECK(allocated() == 0);

	static const struct slab_traits hardened = {.name = "test", .size = 512, .hardened = true};
	depot_init(&depot, &hardened, 0);
	CHECK(depot_has_one_capacity(&depot) && depot.capacity == 251);
	depot_init(&depot, &(struct slab_traits){.name = "test", .size = 512}, 54);
	CHECK(depot_has_one_capacity(&depot) && depot.capacity == 54);
}

int main(void)
{
	static const uint32_t sizes[] = {16, 48, 112, 512, 1024, 5120, 32768, 131072, 262144};
	check_watchdog(60);
	check_pin(); /* each vCPU has slabs of its own to start with */
	free(malloc(1));
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		test_capacity(sizes[i]);
	test_exchange();
	test_ebb();
	test_put_to_leave();
	test_portions();
	test_gathering_of_the_refused();
	test_scattered();
	test_aging();
	test_try_alloc();
	test_repair();
	test_earning();
	test_growth_by_misses();
	test_growth_by_plenty();
	test_large_objects();
	test_plenty_alone();
	test_nothing_had();
	test_shrinking();
	test_the_largest_counts_as_the_first();
	test_shrinking_from_the_largest();
	test_one_capacity();
	return 0;
}
