/* SPDX-License-Identifier: MIT */
/*
 * guard_cost: guarded sampling takes no more than its share of the program's CPU time, from the start on,
 * saves up little, and rests when it has taken too much; and picks no more objects in a second than
 * configured.
 *
 * The clocks stand still but where the test moves them.  Each reading of a thread's CPU time advances it, so
 * that whatever is measured has cost COST.
 */
#include "check.h"

#include "guard/guard.h"
#include "guard/slot.h"
#include "options/options.h"

enum { COST = 10000, ESTIMATE = 100, SHARE = 5, SECOND = 1000000000, SAVED = 500000 };

static uint64_t milliseconds = 100000, process_time, thread_time;
static unsigned long looks_at_thread;
static bool clocks_fail;
static void (*overtaking)(void); /* what another thread does, once, before a clock reading is used */

int clock_gettime(clockid_t clock, struct timespec *now)
{
	uint64_t time = milliseconds * 1000000;

	if (clock == CLOCK_PROCESS_CPUTIME_ID) {
		time = process_time;
	} else if (clock == CLOCK_THREAD_CPUTIME_ID) {
		time = thread_time += COST;
		looks_at_thread++;
	}
	*now = (struct timespec){(time_t)(time / SECOND), (long)(time % SECOND)};
	void (*other)(void) = overtaking;
	overtaking = NULL;
	if (other)
		other();
	if (!clocks_fail || clock == CLOCK_MONOTONIC_COARSE)
		return 0;
	errno = EPERM;
	return -1;
}

static struct guard_statistics statistics(void)
{
	struct guard_statistics now;

	guard_statistics(&now);
	return now;
}

/* Gives each test a pool and an account of its own; with a rate of 1 each page is chosen. */
static void begin(uint64_t cost, uint64_t second)
{
	options.guard = 1;
	options.guard_slots = 64;
	options.guard_cost = cost;
	options.guard_second = second;
	process_time = SECOND;
	guard.bytes = 0;
	guard_begin();
	if (!guard_is_on())
		check_skip("no room for a pool");
}

/* Successful picks, up to `most`; each costs twice COST. */
static unsigned pick(unsigned most)
{
	for (unsigned i = 0; i < most; i++) {
		void *object = guard_alloc(100, 1, &statistics);

		if (!object)
			return i;
		guard_free(object, SIZE_MAX);
	}
	return most;
}

/* Whether guarding goes on after a turn, which is due. */
static bool turn(void)
{
	milliseconds += 15;
	CHECK(guard_is_due(milliseconds));
	bool goes_on = guard_turn(milliseconds, 1);

	CHECK(!guard_is_due(milliseconds) && !guard_turn(milliseconds, 1));
	CHECK(goes_on == guard_goes_on());
	return goes_on;
}

/* Picks are limited exactly to what the program's time pays for, plus what was left. */
static void share_is_kept(void)
{
	static const char object[1];

	begin(SHARE, 0);
	CHECK(statistics().spent == COST, "the start is paid for, too");
	/* Nothing was credited. */
	CHECK(!guard_goes_on() && !guard_chooses(object) && guard_picks_fresh() == UINT32_MAX);
	CHECK(pick(10) == 0 && statistics().passed == 1 && statistics().spent == COST + ESTIMATE);

	process_time = (uint64_t)(COST + ESTIMATE) * 1000 / SHARE - 1000;
	CHECK(!turn());
	process_time += 1000;
	CHECK(turn() && guard_chooses(object) && guard_picks_fresh() == 0);
	/* The pick that crosses the bound is the last: guarding owes all that it cost. */
	CHECK(pick(10) == 1 && !guard_chooses(object));
	process_time += 2ull * COST * 1000 / SHARE;
	CHECK(!turn(), "it has not paid for what was passed by");
	process_time += (uint64_t)ESTIMATE * 1000 / SHARE;
	CHECK(turn() && pick(10) == 1);

	/* Over many turns of a busy program, starting without debt: the share, and not more. */
	process_time += 3ull * COST * 1000 / SHARE;
	CHECK(turn());
	uint64_t spent = statistics().spent, from = process_time;
	unsigned picked = 0;

	for (unsigned i = 0; i < 1000; i++) {
		process_time += 15000000;
		(void)turn();
		picked += pick(1000);
	}
	uint64_t may = (process_time - from) * SHARE / 1000;

	spent = statistics().spent - spent;
	CHECK(spent >= may - 2ul * COST && spent <= may + 4ul * COST, "%lu of %lu", spent, may);
	CHECK(picked >= may / (2 * COST) - may / (2 * COST) / 50);
}

/* A sleeping program earns nothing; one that allocated nothing for an hour earns only a little at once. */
static void little_is_saved(void)
{
	begin(SHARE, 0);
	milliseconds += 3600 * 1000;
	process_time = 0;
	CHECK(!turn());
	process_time += 3600ull * SECOND;
	CHECK(turn());
	CHECK(pick(1000) == SAVED / (2 * COST) + 1);
	CHECK(!guard_goes_on());
}

static void credit_again(void)
{
	process_time += 1000000;
	cost_credit(milliseconds);
	process_time -= 500000;
}

/* Time credited by another thread, which read the clock later, is not credited again. */
static void no_time_counts_twice(void)
{
	begin(SHARE, 0);
	process_time = SECOND;
	cost_credit(milliseconds);
	guard_account.allowed = guard_account.spent;
	uint64_t allowed = guard_account.allowed;

	/* This thread holds the older reading; the other one has credited a millisecond since. */
	overtaking = credit_again;
	cost_credit(milliseconds);
	CHECK(!overtaking && guard_account.allowed == allowed + 1000000 / 1000 * SHARE);
	/* A clock that went back, as that of a vfork()ed child does, neither takes nor gives credit. */
	process_time = 0;
	cost_credit(milliseconds);
	process_time = SECOND + 1000000;
	cost_credit(milliseconds);
	CHECK(guard_account.allowed == allowed + 1000000 / 1000 * SHARE);
}

/* A forked child's CPU time starts at zero, and it owes nothing. */
static void children_begin_anew(void)
{
	begin(SHARE, 0);
	process_time = 3600ull * SECOND;
	CHECK(turn());
	while (pick(1))
		;
	CHECK(!turn());
	process_time = 1000;
	guard_repair();
	CHECK(guard_goes_on() && pick(10) == 1);
	process_time += (2ull * COST + ESTIMATE) * 1000 / SHARE;
	CHECK(turn() && pick(10) == 1);
}

static void no_bound(void)
{
	begin(0, 0);
	unsigned long looks = looks_at_thread;

	CHECK(pick(1000) == 1000);
	CHECK(looks_at_thread == looks && statistics().spent == 0, "nothing is measured");

	/* Nor is there any credit where the system does not tell CPU time. */
	clocks_fail = true;
	begin(SHARE, 0);
	guard_charge_estimate();
	CHECK(pick(1000) == 1000);
	clocks_fail = false;
	/* All of the program's time is the highest share that can be configured. */
	begin(UINT64_MAX, UINT64_MAX);
	CHECK(turn() && pick(1000) == SAVED / (2 * COST) + 1);
}

static void picks_in_a_second(void)
{
	begin(0, 10);
	CHECK(pick(10) == 1 && !guard_goes_on());
	unsigned picked = 0;

	for (unsigned i = 1; i <= 1000; i++) {
		(void)turn();
		picked += pick(10);
		CHECK(picked <= i * 15 / 100, "%u in %u ms", picked, i * 15);
	}
	/* Credit beyond one pick per turn is not saved: seven turns for each pick. */
	CHECK(picked >= 1000 / 7);
	milliseconds += 3600 * 1000;
	CHECK(turn() && pick(10) == 1);
	begin(0, 1000);
	milliseconds += 3600 * 1000;
	CHECK(turn() && pick(1000) == 1000 / 16);
}

/* ---- several threads ------------------------------------------------------------------------------- */

enum { THREADS = 4, TRIES = 2000 };

static void *take(void *argument)
{
	uintptr_t got = 0;

	(void)argument;
	for (unsigned i = 0; i < TRIES; i++)
		got += cost_take_pick();
	return (void *)got;
}

/* However many threads compete for the last pick allowed, one gets it. */
static void threads_share_picks(void)
{
	for (unsigned round = 0; round < check_rounds(200, 20000, 10); round++) {
		pthread_t thread[THREADS];
		uintptr_t got = 0;

		begin(0, 16 * TRIES);
		for (unsigned i = 0; i < THREADS; i++)
			thread[i] = check_thread(take, NULL);
		for (unsigned i = 0; i < THREADS; i++)
			got += (uintptr_t)check_join(thread[i]);
		/* Objects that libc allocates for its threads may be picked, too. */
		CHECK(guard_account.taken == guard_account.granted);
		CHECK(got <= TRIES && got >= TRIES - 16 * THREADS, "%lu of %u", got, TRIES);
	}
}

int main(void)
{
	check_watchdog(60);
	free(malloc(1)); /* starts the library */
	share_is_kept();
	little_is_saved();
	no_time_counts_twice();
	children_begin_anew();
	no_bound();
	picks_in_a_second();
	threads_share_picks();
	return 0;
}
