/* SPDX-License-Identifier: MIT */
/*
 * depot_ebbs: when an ebb is due after a fall of the bytes that are out, whether a program only frees since
 * it began, which falls are passed over, when earlier falls are forgotten, and when a fall is over.
 */
#include "check.h"

#include "depot/ebb.h"

/* The margin covers what the program itself has out. */
static const uint64_t HIGH = 1u << 30, MARGIN = 16u << 20;

/* Whether little was left when the last ebb began. */
static bool low;

/* Begins an ebb if one is due; returns whether one was. */
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
	/* Small falls never count. */
	ebb_count_out(EBB_FROM / 2);
	ebb_count_in(EBB_FROM / 2);
	CHECK(!begins() && !ebb_goes_alone());
	ebb_count_out(HIGH);
	ebb_count_in(HIGH / 2 - MARGIN);
	CHECK(!begins(), "less than half has come back");
	ebb_count_in(2 * MARGIN);
	CHECK(ebb_is_due() && !ebb_goes_alone(), "half has");

	/* Once an ebb has begun, frees count as going alone until something is allocated. */
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

/* Falls from HIGH to a quarter in two steps, then rises to HIGH again; returns whether an ebb was due. */
static bool falls(void)
{
	ebb_count_in(HIGH / 2 + MARGIN);
	bool due = begins();
	ebb_count_in(HIGH / 4);
	CHECK(begins() == due, "the second half is due as the first one");
	ebb_count_out(HIGH / 4 * 3 + MARGIN);
	return due;
}

/* Each fall in vain lets more of the following ones be passed over, up to a bound. */
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

	/* A fall from more than twice as high is not passed over. */
	CHECK(!falls());
	ebb_count_out(3 * HIGH);
	ebb_count_in(2 * HIGH + HIGH / 2);
	CHECK(begins());
	ebb_count_in(HIGH / 2);
	CHECK(!begins());

	/* Falls in vain are forgotten as time passes. */
	for (int i = 0; i < (EBB_MOST_LOG + 1) * EBB_FORGET; i++)
		ebb_tick();
	ebb_count_in(HIGH);
	CHECK(begins());
}

/*
 * A fall is over when the program takes as much again as it had left, and a new one must be large enough to
 * count.
 */
static void test_end(void)
{
	ebb_count_out(EBB_LEAST / 2);
	ebb_count_in(EBB_LEAST / 2);
	CHECK(!begins());
	ebb_count_out(EBB_FROM / 2);
	ebb_count_in(EBB_FROM / 2);
	CHECK(!begins(), "small things are no part of the great fall before");

	/*
	 * A rise to less than a quarter of the height that a fall began at does not make that fall one in
	 * vain; a higher rise does.
	 */
	for (int i = 0; i < 4; i++) {
		ebb_count_out(HIGH / 8);
		ebb_count_in(HIGH / 8);
		CHECK(begins() == (i == 0), "fall %d of an eighth", i);
	}
}

/* A large fall may bring one more ebb, once, when little is out and nothing was taken since the last. */
static void test_repeated(void)
{
	for (int i = 0; i < (EBB_MOST_LOG + 1) * EBB_FORGET; i++)
		ebb_tick();
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
