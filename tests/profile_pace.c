/* SPDX-License-Identifier: MIT */
/*
 * profile_pace: a heap profile that is given too many samples takes fewer, and each sample stands for as many
 * objects as were as likely as it when it was taken: totals are right within the bounds of chance, which are
 * known exactly, though the interval changes all the time.  The seeds are fixed.
 */
#include "check.h"

#include <math.h>

#include "profile/format.h"
#include "profile/profile.h"

enum { ASKED = 16 << 10, OBJECTS = 400000, CHOICES = 40, TEXT_BYTES = 4 << 20 };

static char text[TEXT_BYTES];
static size_t text_length;

static void start(uint64_t interval)
{
	profile.wanted = interval;
	CHECK(profile_settle());
	profile.now.secret = 0x5eed;
}

static void pace_follows_the_clock(void)
{
	const uint64_t usual = PROFILE_INTERVAL, second = 1000000000;

	CHECK(profile_pace(usual, usual, 4096, second) == usual);
	CHECK(profile_pace(usual, usual, 4096, second / 16) == 16 * usual);
	CHECK(profile_pace(usual, usual, 4096, second / 2 + second / 4) == 2 * usual);
	CHECK(profile_pace(4 * usual, 4 * usual, 2 * 4096, second) == 8 * usual);
	/* By steps, since one look may be wrong; and not without end. */
	CHECK(profile_pace(usual, usual, 4096, 1) == 16 * usual);
	CHECK(profile_pace(usual, usual << 20, 4096, 1) == usual << 20);
	/* Back when there are much fewer than may be, and not below what was asked for. */
	CHECK(profile_pace(usual, 16 * usual, 4096, 7 * second) == 16 * usual);
	CHECK(profile_pace(usual, 16 * usual, 4096, 9 * second) == 4 * usual);
	CHECK(profile_pace(usual, 2 * usual, 0, 1000) == usual);
	/* Who asks for more has more; and without a clock nothing changes. */
	CHECK(profile_pace(usual / 2, usual / 2, 4096, 1) == usual / 2);
	CHECK(profile_pace(usual, 2 * usual, 4096, 0) == 2 * usual);
}

/* Objects and bytes, and the variance of what samples say of the bytes. */
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

/* An object of a cache comes this way where it is watched; a large one always. */
static void allocate(const void *object, size_t size)
{
	if (size > 32768)
		(void)profile_allocated_large(object, size);
	else if (profile_watches(profile_bound(size), object))
		profile_allocated(object, size);
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

/* As pprof and jeprof do it: what a line stands for, from its mean size and the one interval they know. */
static double as_readers_do(double samples, double bytes)
{
	return samples > 0 ? bytes / (1 - exp(-bytes / samples / ASKED)) : 0;
}

static void read_text(double *in_use, double *all)
{
	const struct profile_dump dump = {.sites = profile.tables->sites,
					  .site_count = PROFILE_SITES,
					  .interval = profile.last_interval,
					  .maps = "",
					  .put = put};

	*in_use = *all = 0;
	profile_write_text(&dump);
	for (const char *line = strchr(text, '\n'); line && line[1] != '\n'; line = strchr(line + 1, '\n')) {
		double counts[4];

		CHECK(sscanf(line, "%lf: %lf [%lf: %lf] @", &counts[0], &counts[1], &counts[2], &counts[3]) ==
		      4);
		*in_use += as_readers_do(counts[0], counts[1]);
		*all += as_readers_do(counts[2], counts[3]);
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

		if (n % (OBJECTS / CHOICES) == 0) {
			/* As at a turn: less is watched, or more; the choice before has no marks left. */
			profile.now.secret += 0x9e3779b97f4a7c15u;
			profile.now.interval = ASKED << check_below(&random, 4);
			profile.before = profile.now;
		}
		if (n % 1000 == 0)
			profile.widened = ASKED << check_below(&random, 6);
		profile.paced_samples = profile.samples; /* the clock is not asked */
		uint64_t interval = size <= 32768 && profile.widened < profile.now.interval
					    ? profile.now.interval
					    : profile.widened;

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
	/* What growth and a new high are found from: rounded down at each sample. */
	CHECK(fabs((double)profile.in_use - told_in_use) <= 2 * (double)profile.samples);
	check_estimate("allocated", told_all, &all);
	check_estimate("in use", told_in_use, &in_use);
	read_text(&text_in_use, &text_all);
	CHECK(fabs(text_all - told_all) < told_all / 200 &&
		      fabs(text_in_use - told_in_use) < told_in_use / 200,
	      "the text says %.0f and %.0f", text_all, text_in_use);
}

/* While a turn is under way marks of the choice before are met: each is a sample of its own choice. */
static void turns_are_right(void)
{
	enum { SIZE = 512 };
	const struct profile_choice one = {1, ASKED}, other = {2, ASKED << 3};
	struct sum all = {0};
	double told = 0;

	start(ASKED);
	for (unsigned n = 0; n < OBJECTS; n++) {
		const void *object = (const void *)((n + 1) * 0x1000ul);

		/* Marked by the one choice or by the other. */
		profile.now = n % 2 ? one : other;
		bool marked = profile_watches(profile_bound(SIZE), object);

		profile.now = other;
		profile.before = one;
		profile.widened = other.interval;
		profile.paced_samples = profile.samples;
		if (marked)
			profile_allocated(object, SIZE);
		add(&all, SIZE, n % 2 ? one.interval : other.interval);
		profile_freed(object);
	}
	for (unsigned i = 0; i < PROFILE_SITES; i++) {
		const struct profile_site *site = &profile.tables->sites[i];

		if (site->ready)
			told += (double)(site->allocated * SIZE) / profile_probability(SIZE, site->interval);
	}
	/* A few are watched by both, and taken for the new one's. */
	all.variance *= 2;
	check_estimate("during a turn", told, &all);
}

/* A program that does nothing else would have its stack walked at nearly every call. */
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
	totals_are_right();
	turns_are_right();
	samples_are_bounded();
	return 0;
}
