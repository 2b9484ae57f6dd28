/* SPDX-License-Identifier: MIT */
/*
 * slab_home: a slab's untouched objects go to the vCPU that made it, returned ones to any vCPU; also where
 * other vCPUs have many slabs, and where the system has no memory for another.  In hardened mode all of a
 * slab's objects count as untouched until it has been full once.
 *
 * Runs with a private slot for each thread, which makes each thread a vCPU of its own.
 */
#include "check.h"

#include "page/page.h"
#include "slab/slab.h"
#include "vcpu/vcpu.h"

enum { ID = VCPU_BANK_CACHES - 1, SIZE = 64, SOME = 8, PASSED_OVER = 64 };

static struct slab_cache cache;

static void start(uint32_t size)
{
	slab_cache_init(&cache, &(struct slab_traits){.name = "test", .size = size, .id = vcpu_offset(ID)});
}

static uint64_t slabs(void)
{
	struct slab_statistics now;

	slab_statistics(&cache, &now);
	return now.slabs;
}

static bool in_one_slab(const void *object, const void *other)
{
	return page_front.slab_of[page_of(object)] == page_front.slab_of[page_of(other)];
}

/* ---- another thread, which lives as long as it is needed ------------------------------------------- */

struct other {
	pthread_t thread;
	pthread_barrier_t turn;
	void **objects;
	unsigned count;
	bool over;
};

static void *obey(void *argument)
{
	struct other *other = argument;

	free(malloc(1)); /* gives it a slot */
	for (;;) {
		pthread_barrier_wait(&other->turn);
		if (other->over)
			return NULL;
		other->count = slab_alloc_batch(&cache, other->objects, other->count);
		pthread_barrier_wait(&other->turn);
	}
}

static void begin(struct other *other)
{
	other->over = false;
	CHECK(pthread_barrier_init(&other->turn, NULL, 2) == 0);
	other->thread = check_thread(obey, other);
}

/* Makes it allocate objects; returns how many it got. */
static unsigned take(struct other *other, void **objects, unsigned count)
{
	other->objects = objects;
	other->count = count;
	pthread_barrier_wait(&other->turn);
	pthread_barrier_wait(&other->turn);
	return other->count;
}

static void end(struct other *other)
{
	other->over = true;
	pthread_barrier_wait(&other->turn);
	check_join(other->thread);
	CHECK(pthread_barrier_destroy(&other->turn) == 0);
}

/* ---- tests ----------------------------------------------------------------------------------------- */

static void test_apart(struct other *other)
{
	void *ours[UINT8_MAX], *theirs[UINT8_MAX], *one;

	start(SIZE);
	/* By turns, and yet each has a slab of its own, from its start on and without a gap. */
	for (unsigned i = 0; i < 4 * SOME; i += SOME) {
		CHECK(slab_alloc_batch(&cache, ours + i, SOME) == SOME);
		CHECK(take(other, theirs + i, SOME) == SOME);
		CHECK(slabs() == 2 && !in_one_slab(ours[i], theirs[i]));
		for (unsigned n = 0; n < SOME; n++) {
			CHECK(ours[i + n] == (char *)ours[SOME - 1] + (i + SOME - 1 - n) * SIZE);
			CHECK(theirs[i + n] == (char *)theirs[SOME - 1] + (i + SOME - 1 - n) * SIZE);
		}
	}
	/* An object returned to another vCPU's slab that has untouched objects is that vCPU's as well. */
	slab_free_batch(&cache, theirs, SOME);
	CHECK(slab_alloc_batch(&cache, &one, 1) == 1 && in_one_slab(one, ours[0]));
	slab_free_batch(&cache, &one, 1);
	/* In a slab without untouched objects it is anyone's. */
	unsigned rest = cache.objects - 3u * SOME;

	CHECK(take(other, theirs + 4 * SOME, rest) == rest && slabs() == 2);
	slab_free_batch(&cache, theirs + SOME, 1);
	CHECK(slab_alloc_batch(&cache, &one, 1) == 1 && one == theirs[SOME]);
	slab_free_batch(&cache, &one, 1);
	slab_free_batch(&cache, theirs + SOME + 1, 3 * SOME - 1 + rest);
	slab_free_batch(&cache, ours, 4 * SOME);
	CHECK(slab_cache_close(&cache) == 0);
}

/* A kept empty slab becomes the property of the vCPU that takes it. */
static void test_empty(struct other *other)
{
	void *ours, *theirs;

	start(SIZE);
	CHECK(slab_alloc_batch(&cache, &ours, 1) == 1);
	slab_free_batch(&cache, &ours, 1);
	CHECK(take(other, &theirs, 1) == 1 && theirs == ours && slabs() == 1);
	CHECK(slab_alloc_batch(&cache, &ours, 1) == 1 && slabs() == 2);
	slab_free_batch(&cache, &ours, 1);
	slab_free_batch(&cache, &theirs, 1);
	CHECK(slab_cache_close(&cache) == 0);
}

/* A thread looks at only a limited number of slabs of others. */
static void test_crowd(void)
{
	static struct other crowd[PASSED_OVER + 4];
	static void *objects[PASSED_OVER + 4];
	enum { CROWD = sizeof crowd / sizeof *crowd };

	start(SIZE);
	for (unsigned i = 0; i < CROWD; i++) {
		begin(&crowd[i]);
		CHECK(take(&crowd[i], &objects[i], 1) == 1);
		CHECK(slabs() == (i < PASSED_OVER ? i + 1 : PASSED_OVER + 1), "%llu slabs after %u threads",
		      (unsigned long long)slabs(), i + 1);
	}
	for (unsigned i = 0; i < CROWD; i++)
		end(&crowd[i]);
	slab_free_batch(&cache, objects, CROWD);
	CHECK(slab_cache_close(&cache) == 0);
}

/* With 8 MiB for the heap, where the other vCPU has all slabs but one object of the last. */
static void be_full(void)
{
	enum { LARGE = 5120, MOST = 2000 };
	static void *theirs[MOST];
	struct other other;
	unsigned count = 0;
	void *ours;

	begin(&other);
	start(LARGE);
	const unsigned each = cache.objects;

	while (take(&other, theirs + count, each) == each) {
		count += each;
		CHECK(count + each <= MOST);
	}
	CHECK(count > 2 * each && other.count == 0);
	CHECK(slab_alloc_batch(&cache, &ours, 1) == 0);
	/* The slab that they filled last is empty, and so has untouched objects again. */
	count -= each;
	slab_free_batch(&cache, theirs + count, each);
	CHECK(take(&other, theirs + count, 1) == 1);
	CHECK(slab_alloc_batch(&cache, &ours, 1) == 1 && in_one_slab(ours, theirs[count]));
	end(&other);
}

/*
 * In hardened mode a slab's objects are handed out in random order, so two vCPUs would share the cache lines
 * of its marks.
 */
static void be_hardened(void)
{
	enum { MOST = 1024 };
	void *ours[MOST], *theirs[MOST], *one;
	struct other other;

	begin(&other);
	slab_cache_init(
		&cache,
		&(struct slab_traits){.name = "test", .size = SIZE, .id = vcpu_offset(ID), .hardened = true});
	CHECK(cache.objects <= MOST);
	for (unsigned i = 0; i < 4 * SOME; i += SOME) {
		CHECK(slab_alloc_batch(&cache, ours + i, SOME) == SOME);
		CHECK(take(&other, theirs + i, SOME) == SOME);
		for (unsigned n = i; n < i + SOME; n++)
			CHECK(in_one_slab(ours[n], ours[0]) && in_one_slab(theirs[n], theirs[0]));
		CHECK(slabs() == 2 && !in_one_slab(ours[0], theirs[0]));
	}
	slab_free_batch(&cache, theirs, SOME);
	CHECK(slab_alloc_batch(&cache, &one, 1) == 1 && in_one_slab(one, ours[0]));
	/* Once the other vCPU's slab has been full, objects returned to it are anyone's. */
	unsigned rest = cache.objects - 3u * SOME;

	CHECK(take(&other, theirs + 4 * SOME, rest) == rest && slabs() == 2);
	slab_free_batch(&cache, theirs + SOME, 1);
	CHECK(slab_alloc_batch(&cache, &one, 1) == 1 && one == theirs[SOME]);
	end(&other);
}

int main(int argc, char **argv)
{
	struct other other;

	check_watchdog(60);
	free(malloc(1));
	if (strcmp(check_mode(), "slot") != 0)
		return 77;
	if (argc > 1) {
		if (strcmp(argv[1], "full") == 0)
			be_full();
		else
			be_hardened();
		return 0;
	}
	begin(&other);
	test_apart(&other);
	test_empty(&other);
	end(&other);
	test_crowd();
	check_again("vcpu:slot,reserve:8M", "full");
	check_again("vcpu:slot,hardened:1", "hardened");
	return 0;
}
