/* SPDX-License-Identifier: MIT */
/*
 * depot_ebbs: when a fall of the bytes that are out is due to be followed, whether frees go alone after it,
 * which falls are passed over, when that is forgotten, and when a fall is over.
 */
#include "check.h"

#include "depot/ebb.h"

/* The program itself has some, too. */
static const uint64_t HIGH = 1u << 30, MARGIN = 16u << 20;

/* Whether little was left at the last. */
static bool low;

/* An ebb that is due begins. */
static bool begins(void)
{
	bool due = ebb_is_due();
	if (due)
		low = ebb_begin();
	CHECK(!ebb_is_due());
	return due;
}

static void test_due(void)
{
	/* Small things never. */
	ebb_count_out(EBB_FROM / 2);
	ebb_count_in(EBB_FROM / 2);
	CHECK(!begins() && !ebb_goes_alone());
	ebb_count_out(HIGH);
	ebb_count_in(HIGH / 2 - MARGIN);
	CHECK(!begins(), "less than half has come back");
	ebb_count_in(2 * MARGIN);
	CHECK(ebb_is_due() && !ebb_goes_alone(), "half has");

	/* From its beginning frees go alone, until something goes out. */
	CHECK(begins() && ebb_goes_alone() && !ebb_is_far());
	ebb_count_in(HIGH / 4);
	CHECK(ebb_goes_alone() && begins() && ebb_goes_alone(), "half of the rest has");
	CHECK(!ebb_is_far());
	ebb_count_in(HIGH / 8);
	CHECK(begins() && ebb_is_far(), "an eighth is left");
	ebb_count_out(HIGH / 8 + 1);
	CHECK(!ebb_goes_alone());
	ebb_count_in(1);
	CHECK(!begins());
}

/* Falls from HIGH to a quarter in two steps; returns whether it was due, and rises to HIGH again. */
static bool falls(void)
{
	ebb_count_in(HIGH / 2 + MARGIN);
	bool due = begins();
	ebb_count_in(HIGH / 4);
	CHECK(begins() == due, "the second half is due as the first one");
	ebb_count_out(HIGH / 4 * 3 + MARGIN);
	return due;
}

/* After each fall in vain more of them are passed over, up to a bound. */
static void test_vain(void)
{
	ebb_count_out(HIGH / 4 * 3 + MARGIN);
	for (unsigned vain = 1; vain <= 3; vain++) {
		unsigned log = EBB_PASSED_LOG + (vain - 1) * EBB_MORE_LOG;
		unsigned passed = (1u << (log < EBB_MOST_LOG ? log : EBB_MOST_LOG)) - 1;
		for (unsigned i = 0; i < passed; i++)
			CHECK(!falls(), "fall %u after %u in vain", i, vain);
		CHECK(falls(), "the next after %u in vain", vain);
	}

	/* One from more than twice as high is another matter. */
	CHECK(!falls());
	ebb_count_out(3 * HIGH);
	ebb_count_in(2 * HIGH + HIGH / 2);
	CHECK(begins());
	ebb_count_in(HIGH / 2);
	CHECK(!begins());

	/* And it is forgotten, as time passes. */
	for (int i = 0; i < (EBB_MOST_LOG + 1) * EBB_FORGET; i++)
		ebb_forget();
	ebb_count_in(HIGH);
	CHECK(begins());
}

/* A fall is over when the program takes as much as it had left again, and a new one must be worth it. */
static void test_end(void)
{
	ebb_count_out(EBB_LEAST / 2);
	ebb_count_in(EBB_LEAST / 2);
	CHECK(!begins());
	ebb_count_out(EBB_FROM / 2);
	ebb_count_in(EBB_FROM / 2);
	CHECK(!begins(), "small things are no part of the great fall before");

	/* A rise to less than a quarter of where a fall began does not make it one in vain; a higher one
	 * does. */
	for (int i = 0; i < 4; i++) {
		ebb_count_out(HIGH / 8);
		ebb_count_in(HIGH / 8);
		CHECK(begins() == (i == 0), "fall %d of an eighth", i);
	}
}

/* What is large may bring one more, when little is out and nothing was taken since the last: once. */
static void test_repeated(void)
{
	for (int i = 0; i < (EBB_MOST_LOG + 1) * EBB_FORGET; i++)
		ebb_forget();
	ebb_count_out(HIGH);
	CHECK(!ebb_repeat());
	ebb_count_in(HIGH - 2 * EBB_LOW);
	CHECK(begins() && !ebb_repeat() && !begins(), "much is out");
	ebb_count_in(EBB_LOW + EBB_LOW / 2);
	CHECK(begins() && ebb_repeat() && begins() && !ebb_repeat() && !begins(), "little is");
	ebb_count_in(EBB_LOW / 8 * 3);
	CHECK(begins() && ebb_repeat() && begins() && !ebb_repeat(), "an ebb of its own, and another one");
	ebb_count_out(1);
	CHECK(!ebb_repeat());
	ebb_count_in(EBB_LOW / 8 + 1);
}

int main(void)
{
	check_watchdog(60);
	test_due();
	test_vain();
	test_end();
	test_repeated();
	printf("when ebbs are due\n");
	return 0;
}
