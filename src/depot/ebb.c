/* SPDX-License-Identifier: MIT */
#include "depot/ebb.h"

/* On a cache line of its own: every exchange of a magazine writes here. */
static struct {
	int64_t bytes; /* that are out */
	struct tide tide;
	bool due, alone, repeated;
} objects __attribute__((aligned(64))) = {
	.tide = {.passed_log = EBB_PASSED_LOG, .more_log = EBB_MORE_LOG, .most_log = EBB_MOST_LOG},
};

/* Bytes out of the slabs: those that are out, and those that wait in depots. */
static int64_t taken;

#define GET(field)        __atomic_load_n(&objects.field, __ATOMIC_RELAXED)
#define SET(field, value) __atomic_store_n(&objects.field, value, __ATOMIC_RELAXED)

void ebb_count_out(uint64_t counted)
{
	int64_t bytes = __atomic_add_fetch(&objects.bytes, (int64_t)counted, __ATOMIC_RELAXED);

	/* The program goes on. */
	if (GET(alone))
		SET(alone, false);
	tide_rose(&objects.tide, bytes);
}

void ebb_count_in(uint64_t counted)
{
	int64_t bytes = __atomic_sub_fetch(&objects.bytes, (int64_t)counted, __ATOMIC_RELAXED);

	if (tide_fell(&objects.tide, bytes)) {
		SET(repeated, false);
		SET(due, true);
	}
}

void ebb_count_taken(int64_t counted)
{
	__atomic_fetch_add(&taken, counted, __ATOMIC_RELAXED);
}

int64_t ebb_waiting(void)
{
	return __atomic_load_n(&taken, __ATOMIC_RELAXED) - GET(bytes);
}

bool ebb_is_due(void)
{
	return __builtin_expect(GET(due), 0);
}

bool ebb_begin(void)
{
	/* In this order: what makes `due` true from here on is another ebb. */
	SET(due, false);
	SET(alone, true);
	return GET(bytes) <= EBB_LOW;
}

bool ebb_repeat(void)
{
	if (!GET(alone) || GET(repeated) || GET(bytes) > EBB_LOW)
		return false;
	SET(repeated, true);
	SET(due, true);
	return true;
}

bool ebb_is_far(void)
{
	return GET(bytes) <= GET(tide.from) / EBB_FAR;
}

bool ebb_goes_alone(void)
{
	return __builtin_expect(GET(alone), 0);
}

bool ebb_may_last(void)
{
	return __builtin_expect(GET(tide.passed), 0);
}

bool ebb_has_halved(void)
{
	if (__builtin_expect(!GET(tide.halved), 1))
		return false;
	SET(tide.halved, false);
	return true;
}

void ebb_tick(void)
{
	static unsigned turns;

	if (tide_lasts(&objects.tide))
		SET(due, true);
	if (__atomic_add_fetch(&turns, 1, __ATOMIC_RELAXED) % EBB_FORGET == 0)
		tide_forget(&objects.tide);
}
