/* SPDX-License-Identifier: MIT */
#include "depot/ebb.h"

/* On a line of its own: every exchange of a magazine comes here. */
static struct {
	int64_t bytes;     /* out */
	int64_t high;      /* the most since the last halving */
	int64_t low;       /* what was out at that */
	int64_t from;      /* where the last fall began, if it was not passed over, nor in vain; else 0 */
	int64_t vain_from; /* where the last one in vain began */
	unsigned vain;     /* falls in vain of late */
	unsigned passing;  /* falls to pass over */
	bool falling, due, alone;
} tide __attribute__((aligned(64)));

#define GET(field)        __atomic_load_n(&tide.field, __ATOMIC_RELAXED)
#define SET(field, value) __atomic_store_n(&tide.field, value, __ATOMIC_RELAXED)

static void begin_fall(int64_t from)
{
	unsigned passing = GET(passing);
	bool passed = passing && from / 2 <= GET(vain_from);

	if (passed)
		SET(passing, passing - 1);
	SET(from, passed ? 0 : from);
	SET(falling, true);
}

/* The last fall was not to last. */
static void regret(int64_t from)
{
	unsigned vain = GET(vain);

	SET(passing, (1u << vain) - 1);
	SET(vain, vain < EBB_PASSED_LOG ? vain + 1 : vain);
	SET(vain_from, from);
	SET(from, 0);
}

void ebb_count_out(uint64_t counted)
{
	int64_t bytes = __atomic_add_fetch(&tide.bytes, (int64_t)counted, __ATOMIC_RELAXED);
	int64_t from = GET(from);

	if (bytes > GET(high))
		SET(high, bytes);
	/* The program is not at its end yet. */
	if (GET(alone))
		SET(alone, false);
	if (GET(falling) && bytes > 2 * GET(low) + EBB_LEAST)
		SET(falling, false);
	if (from && bytes > from / 4 && !GET(falling))
		regret(from);
}

void ebb_count_in(uint64_t counted)
{
	int64_t bytes = __atomic_sub_fetch(&tide.bytes, (int64_t)counted, __ATOMIC_RELAXED);
	int64_t high = GET(high);

	if (high < EBB_LEAST || bytes > high / 2)
		return;
	if (!GET(falling)) {
		if (high < EBB_FROM)
			return;
		begin_fall(high);
	}
	SET(high, bytes);
	SET(low, bytes);
	if (GET(from))
		SET(due, true);
}

bool ebb_is_due(void)
{
	return __builtin_expect(GET(due), 0);
}

void ebb_begin(void)
{
	/* In this order: an ebb that becomes due from here on is another one. */
	SET(due, false);
	SET(alone, true);
}

bool ebb_goes_alone(void)
{
	return __builtin_expect(GET(alone), 0);
}

void ebb_forget(void)
{
	static unsigned turns;
	unsigned vain = GET(vain);

	if (__atomic_add_fetch(&turns, 1, __ATOMIC_RELAXED) % EBB_FORGET || !vain)
		return;
	SET(vain, vain - 1);
	SET(passing, GET(passing) / 2);
}
