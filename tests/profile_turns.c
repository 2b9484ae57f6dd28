/* SPDX-License-Identifier: MIT */
/*
 * profile_turns: the choice of what is watched changes all the time, while objects wait in magazines with the
 * marks of earlier choices.  The samples' estimates of all allocations and of those in use stay right within
 * statistical bounds, whose variance the test computes along the way; and each sample's free is seen.
 *
 * An object's fate is one draw for all its allocations under one choice.  Their number is kept in the object,
 * which nobody else writes to.
 */
#include "check.h"

#include <math.h>

#include "magazine/magazine.h"
#include "os/os.h"
#include "profile/format.h"
#include "profile/profile.h"

enum { SIZE = 192, HELD = 3000, ROUNDS = 4000, STEPS = 100 };

struct object {
	uint64_t turn, count;
};

static struct cache cache;
static struct object *held[HELD];
static unsigned held_count;
static double variance, allocations;

static void take(void)
{
	struct object *object = magazine_alloc(&cache.offset);

	if (!object)
		object = magazine_alloc_missed(&cache);
	CHECK(object);
	if (object->turn != profile.choice)
		*object = (struct object){profile.choice, 0};
	object->count++;
	allocations++;
	variance += 2 * (double)object->count - 1;
	held[held_count++] = object;
}

/* Mostly one of those taken last, so that addresses are reused over and over. */
static void give(uint64_t *random)
{
	unsigned i = held_count - 1 - (unsigned)check_below(random, held_count < 40 ? held_count : 40);
	struct object *object = held[i];

	held[i] = held[--held_count];
	/* Like malloc's free: the page map's entry leads to the word. */
	if (!magazine_free(&page_front.map[page_of(object)], object))
		magazine_free_missed(&cache, object);
}

static void count_samples(double *all, double *in_use)
{
	double scale = 1 / profile_probability(SIZE, profile.last_interval);

	*all = *in_use = 0;
	for (unsigned i = 0; i < PROFILE_SITES; i++) {
		const struct profile_site *site = &profile.tables->sites[i];

		if (!site->ready || site->size != SIZE)
			continue;
		*all += (double)site->allocated * scale;
		*in_use += (double)(site->allocated - site->freed) * scale;
	}
}

static void check_estimate(const char *what, double told, double true_count, double deviation)
{
	printf("%s: %.0f, told as %.0f; the standard deviation is %.0f\n", what, true_count, told, deviation);
	CHECK(fabs(told - true_count) < 6 * deviation);
}

static void start(uint64_t interval)
{
	__atomic_store_n(&profile.wanted, 0, __ATOMIC_RELEASE);
	magazine_settle_profile();
	__atomic_store_n(&profile.wanted, interval, __ATOMIC_RELEASE);
	magazine_settle_profile();
	variance = allocations = 0;
}

static void test_interval(uint64_t interval)
{
	const double p = profile_probability(SIZE, interval), each = (1 - p) / p;
	uint64_t random = 17;
	double all, in_use;

	start(interval);
	for (unsigned round = 0; round < ROUNDS; round++) {
		/* Now and then far up or down, through the depot. */
		unsigned far = round % 50 ? 1 : 8;
		bool up = check_below(&random, HELD) > held_count;

		for (unsigned step = 0; step < far * STEPS; step++)
			if (check_below(&random, 10) < (up ? 6 : 4) ? held_count < HELD : !held_count)
				take();
			else
				give(&random);
		if (check_below(&random, 3))
			magazine_turn_profile(os_milliseconds());
	}
	count_samples(&all, &in_use);
	CHECK(!profile.lost);
	check_estimate("allocations", all, allocations, sqrt(variance * each));
	check_estimate("in use", in_use, held_count, sqrt(held_count * each));
	while (held_count)
		give(&random);
	count_samples(&all, &in_use);
	CHECK(in_use == 0, "%.0f samples of what is free", in_use * p);
}

int main(void)
{
	const struct slab_traits traits = {.name = "turns", .size = SIZE};

	check_watchdog(60);
	free(malloc(1));
	CHECK(magazine_create(&cache, &traits, 0, NULL));
	/* Watched objects in nearly every page; and in few pages. */
	test_interval(512);
	test_interval(8192);
	return 0;
}
