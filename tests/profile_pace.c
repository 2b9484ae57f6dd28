/* SPDX-License-Identifier: MIT */
/*
 * profile_pace: a heap profile that gets too many samples takes fewer, and each sample stands for as many
 * objects as were equally likely when it was taken: totals are right within statistical bounds, which are
 * known exactly, although the interval changes all the time.  The seeds are fixed.
 */
#include "check.h"

#include <math.h>

#include "profile/format.h"
#include "profile/profile.h"

enum { ASKED = 16 << 10, OBJECTS = 400000, CHOICES = 40, TEXT_BYTES = 4 << 20 };

static char text[TEXT_BYTES];
static size_t text_length;

static void set_choice(const struct profile_choice *choice)
{
	profile_choices[profile.choice % PROFILE_CHOICES] = *choice;
}

static void start(uint64_t interval)
{
	profile.wanted = interval;
	CHECK(profile_settle());
	profile.secret = 0x5eed;
	set_choice(&(struct profile_choice){0x5eed * 0x9e3779b97f4a7c15u | 1, 0x5eed, interval});
}

static void pace_follows_the_clock(void)
{
	const uint64_t usual = PROFILE_INTERVAL, second = 1000000000;

	CHECK(profile_pace(usual, usual, 1024, second) == usual);
	CHECK(profile_pace(usual, usual, 1024, second / 16) == 16 * usual);
	CHECK(profile_pace(usual, usual, 1024, second / 2 + second / 4) == 2 * usual);
	CHECK(profile_pace(4 * usual, 4 * usual, 2 * 1024, second) == 8 * usual);
	/* By steps, since one look may be wrong; and bounded. */
	CHECK(profile_pace(usual, usual, 1024, 1) == 16 * usual);
	CHECK(profile_pace(usual, usual << 20, 1024, 1) == usual << 20);
	/* Returns when there are far fewer than allowed, but not below the requested interval. */
	CHECK(profile_pace(usual, 16 * usual, 1024, 7 * second) == 16 * usual);
	CHECK(profile_pace(usual, 16 * usual, 1024, 9 * second) == 4 * usual);
	CHECK(profile_pace(usual, 2 * usual, 0, 1000) == usual);
	/* A shorter request is respected; and without a clock nothing changes. */
	CHECK(profile_pace(usual / 2, usual / 2, 1024, 1) == usual / 2);
	CHECK(profile_pace(usual, 2 * usual, 1024, 0) == 2 * usual);
}

/* Up to the longest interval: otherwise small objects would never be samples, or stand for too many. */
static void probabilities_are_right(void)
{
	for (uint64_t interval = 1; interval <= (uint64_t)PROFILE_INTERVAL << 20; interval *= 2)
		for (size_t size = 16; size < 1 << 20; size *= 3) {
			double wanted = -expm1(-(double)size / (double)interval);
			double found = profile_probability(size, interval);

			CHECK(fabs(found - wanted) < 1e-6 * wanted, "%zu bytes of %lu: %g, not %g", size,
			      interval, found, wanted);
		}
}

/* Objects and bytes, and the variance of the estimate of the bytes. */
struct sum {
	double objects, bytes, variance;
};

static void add(struct sum *sum, size_t size, uint64_t interval)
{
	double p = profile_probability(size, interval), bytes = (double)size;

	sum->objects++;
	sum->bytes += bytes;
	sum->variance += bytes * bytes * (1 - p) / p;
}

/* A cache's object comes this way if it is watched; a large one always. */
static void allocate(const void *object, size_t size)
{
	if (size > 32768)
		(void)profile_allocated_large(object, size);
	else if (profile_watches(profile_choice(), profile_bound(profile_choice(), size), object))
		profile_allocated(profile_choice(), object, size);
}

static void check_estimate(const char *what, double estimate, const struct sum *sum)
{
	double deviation = sqrt(sum->variance);

	printf("%s: %.0f bytes, told as %.0f; the standard deviation is %.0f\n", what, sum->bytes, estimate,
	       deviation);
	CHECK(deviation < sum->bytes / 20, "too few samples to say anything");
	CHECK(fabs(estimate - sum->bytes) < 3.5 * deviation);
}

static void put(void *unused, const void *bytes, size_t length)
{
	(void)unused;
	CHECK(text_length + length < TEXT_BYTES);
	memcpy(text + text_length, bytes, length);
	text_length += length;
}

/*
 * The estimate of pprof and jeprof: what a line stands for, from its mean size and the only interval they
 * know.
 */
static double as_readers_do(double samples, double bytes)
{
	return samples > 0 ? bytes / (1 - exp(-bytes / samples / ASKED)) : 0;
}

static void read_text(double *in_use, double *all)
{
	static struct profile_counts counts[PROFILE_SITES];
	const struct profile_dump dump = {.sites = profile.tables->sites,
					  .counts = counts,
					  .site_count = PROFILE_SITES,
					  .interval = profile.last_interval,
					  .maps = "",
					  .put = put};

	*in_use = *all = 0;
	for (unsigned i = 0; i < PROFILE_SITES; i++)
		counts[i] = (struct profile_counts){dump.sites[i].allocated, dump.sites[i].freed};
	profile_write_text(&dump);
	for (const char *line = strchr(text, '\n'); line && line[1] != '\n'; line = strchr(line + 1, '\n')) {
		double told[4];

		CHECK(sscanf(line, "%lf: %lf [%lf: %lf] @", &told[0], &told[1], &told[2], &told[3]) == 4);
		*in_use += as_readers_do(told[0], told[1]);
		*all += as_readers_do(told[2], told[3]);
	}
}

static void totals_are_right(void)
{
	static const size_t sizes[] = {16, 48, 208, 960, 4096, 16384, 100000, 1 << 20};
	struct sum all = {0}, in_use = {0};
	double told_all = 0, told_in_use = 0, text_all, text_in_use;
	uint64_t random = 11;

	start(ASKED);
	for (unsigned n = 0; n < OBJECTS; n++) {
		size_t size = sizes[check_below(&random, 8) * check_below(&random, 8) / 7];
		const void *object = (const void *)((n + 1) * 0x200000ul);

		if (n % (OBJECTS / CHOICES) == 0)
			/* As at a turn: less is watched, or more. */
			set_choice(&(struct profile_choice){check_random(&random) | 1, check_random(&random),
							    ASKED << check_below(&random, 4)});
		if (n % 1000 == 0)
			profile.widened = ASKED << check_below(&random, 6);
		profile.paced_load = profile.samples; /* avoids asking the clock */
		uint64_t chosen = profile_choice()->interval;
		uint64_t interval = size <= 32768 && profile.widened < chosen ? chosen : profile.widened;

		allocate(object, size);
		add(&all, size, interval);
		if (check_below(&random, 3) == 0)
			add(&in_use, size, interval);
		else
			profile_freed(object);
	}
	for (unsigned i = 0; i < PROFILE_SITES; i++) {
		const struct profile_site *site = &profile.tables->sites[i];
		double scale = (double)site->size / profile_probability(site->size, site->interval);

		if (!site->ready)
			continue;
		told_all += (double)site->allocated * scale;
		told_in_use += (double)(site->allocated - site->freed) * scale;
	}
	CHECK(!profile.lost, "%lu samples lost", profile.lost);
	/* The sums that growth and new peaks are detected from, rounded down at each sample. */
	CHECK(fabs((double)profile.tables->bytes_in_use - told_in_use) <= 2 * (double)profile.samples);
	check_estimate("allocated", told_all, &all);
	check_estimate("in use", told_in_use, &in_use);
	read_text(&text_in_use, &text_all);
	CHECK(fabs(text_all - told_all) < told_all / 200 &&
		      fabs(text_in_use - told_in_use) < told_in_use / 200,
	      "the text says %.0f and %.0f", text_all, text_in_use);
}

/*
 * Marks of several choices exist, each a sample of its own choice; those of choices too old count for none.
 */
static void each_choice_counts(void)
{
	enum { SIZE = 512, KEPT = 8 };
	uint16_t stamps[KEPT];
	struct sum all = {0};
	uint64_t random = 3;
	double told = 0;

	start(ASKED);
	for (unsigned i = 0; i < KEPT; i++) {
		profile.widened = ASKED << i % 4;
		profile.paced_load = profile.samples;
		profile_turn();
		set_choice(&(struct profile_choice){check_random(&random) | 1, check_random(&random),
						    ASKED << i % 4});
		stamps[i] = profile_stamp();
	}
	profile.widened = ASKED;
	for (unsigned n = 0; n < OBJECTS; n++) {
		const struct profile_choice *choice = profile_choice_of(stamps[n % KEPT]);
		const void *object = (const void *)((n + 1) * 0x1000ul);

		CHECK(choice);
		profile.paced_load = profile.samples;
		if (profile_watches(choice, profile_bound(choice, SIZE), object))
			profile_allocated(choice, object, SIZE);
		add(&all, SIZE, choice->interval);
		profile_freed(object);
	}
	for (unsigned i = 0; i < PROFILE_SITES; i++) {
		const struct profile_site *site = &profile.tables->sites[i];

		if (site->ready)
			told += (double)(site->allocated * SIZE) / profile_probability(SIZE, site->interval);
	}
	check_estimate("by several choices", told, &all);
	for (unsigned i = KEPT; i < PROFILE_CHOICES; i++)
		profile_turn();
	CHECK(profile_choice_of(stamps[0]) && profile_choice_of(profile_stamp()) == profile_choice());
	profile_turn();
	CHECK(!profile_choice_of(stamps[0]) && profile_choice_of(stamps[1]));
	start(ASKED);
	CHECK(!profile_choice_of(stamps[1]) &&
	      !profile_choice_of((uint16_t)(profile_stamp() - PROFILE_CHOICES)));
}

/*
 * The number of watched objects in a slab has the mean and variance of independent draws, however slabs are
 * placed: over many choices, within statistical bounds.
 */
static void objects_are_independent(void)
{
	enum { SLABS = 16, EACH = 64, SIZE = 64, ROUNDS = 20000 };
	const double p = 1.0 / 64, count = SLABS * EACH, mean = count * p, variance = mean * (1 - p);
	double sum = 0, squares = 0;
	uint64_t random = 5;

	for (unsigned round = 0; round < ROUNDS; round++) {
		const struct profile_choice choice = {check_random(&random) | 1, check_random(&random),
						      ASKED};
		unsigned watched = 0;

		for (unsigned i = 0; i < SLABS * EACH; i++)
			watched += profile_watches(&choice, UINT64_MAX / 64,
						   (const void *)(0x7f0000000000ul + i / EACH * 0x200000ul +
								  i % EACH * (uint64_t)SIZE));
		sum += watched;
		squares += (watched - mean) * (watched - mean);
	}
	printf("%.3f of %.0f objects watched, %.3f expected; variance %.3f, %.3f of independent ones\n",
	       sum / ROUNDS, count, mean, squares / ROUNDS, variance);
	CHECK(fabs(sum / ROUNDS - mean) < 4 * sqrt(variance / ROUNDS));
	CHECK(squares / ROUNDS > variance / 2 && squares / ROUNDS < variance * 2);
}

/*
 * No choice is far off for objects in a row: neither one of many random ones, nor one whose factor maps every
 * q-th object to nearly the same place.  Chance stays below five and a half standard deviations in so few
 * trials.
 */
static void rows_are_independent(void)
{
	enum { ROW = 2000, CHANCES = 3000, LATTICES = 64 };
	static const uint64_t steps[] = {64, 512, 960, 4096};
	uint64_t random = 9;

	for (unsigned s = 0; s < sizeof(steps) / sizeof(steps[0]); s++) {
		const double p = profile_probability(steps[s], 16 * steps[s]), mean = ROW * p;
		const double deviation = sqrt(mean * (1 - p));
		const uint64_t bound = (uint64_t)(p * 0x1p64);
		double farthest = 0;

		for (unsigned round = 0; round < CHANCES; round++) {
			uint64_t step = round < LATTICES ? steps[s] * (round + 1) : 0;
			const struct profile_choice choice = {
				(step ? UINT64_MAX / step : check_random(&random)) | 1, check_random(&random),
				ASKED};
			double watched = 0;

			for (uint64_t i = 0; i < ROW; i++)
				watched += profile_watches(&choice, bound,
							   (const void *)(0x7f0000000000ul + i * steps[s]));
			if (fabs(watched - mean) > farthest)
				farthest = fabs(watched - mean);
		}
		printf("%.0f of %u objects %lu apart are watched, and %.1f standard deviations more or less "
		       "at most\n",
		       mean, ROW, steps[s], farthest / deviation);
		CHECK(farthest < 5.5 * deviation);
	}
}

/* Samples are not the only cost: so are frees of objects next to watched ones. */
static void visits_are_bounded(void)
{
	start(PROFILE_INTERVAL);
	for (unsigned n = 0; n < 4000 * PROFILE_VISITS; n++)
		profile_visited();
	profile_turn();
	CHECK(profile_choice()->interval > PROFILE_INTERVAL, "%lu visits change nothing", profile.visits);
	CHECK(!profile.samples);
}

/* Otherwise a program that does nothing but allocate would have its stack walked at nearly every call. */
static void samples_are_bounded(void)
{
	enum { CALLS = 2000000, LARGE = 1 << 20 };
	static char object;

	start(PROFILE_INTERVAL);
	for (unsigned n = 0; n < CALLS; n++) {
		(void)profile_allocated_large(&object, LARGE);
		profile_freed(&object);
	}
	printf("%lu samples of %u calls, the last with a mean of %lu bytes between them\n", profile.samples,
	       CALLS, profile.widened);
	CHECK(profile.samples > 0 && profile.samples < CALLS / 10);
	CHECK(profile.widened > PROFILE_INTERVAL);
}

int main(void)
{
	check_watchdog(60);
	pace_follows_the_clock();
	probabilities_are_right();
	totals_are_right();
	each_choice_counts();
	objects_are_independent();
	rows_are_independent();
	samples_are_bounded();
	visits_are_bounded();
	return 0;
}
