/* SPDX-License-Identifier: MIT */
/*
 * What guarding may cost: an account of CPU time, and one of picks.
 *
 * Any thread adds costs as they arise: measured where they are large (taking or giving back an object,
 * choosing pages, the start), estimated where measuring would cost more than the work itself.  At each turn
 * the allowance grows by a share of the CPU time that the process has used since the last one.  Both sides
 * are CPU time: a program that sleeps saves nothing up, and a thread that waits for a CPU pays nothing.
 */
#include "arch/minmax.h"
#include "guard/guard.h"
#include "guard/slot.h"
#include "options/options.h"

enum {
	ESTIMATE = 100, /* nanoseconds of a slow path that guards nothing */
	WHOLE = 1000,   /* thousandths of the program's time */
	/*
	 * The most that is saved up, so that a long time without allocations is not followed by guarding
	 * all of them at once: nanoseconds, and a part of a second's picks.
	 */
	SAVED_COST = 500000,
	SAVED_PART = 16,
	SECOND_MOST = 1000000, /* picks; a higher option has no further effect */
};

struct guard_account guard_account;

/* What is allowed has been credited up to these times: CPU time in nanoseconds, and milliseconds. */
static uint64_t cost_credited, picks_credited;

static bool is_bounded(void)
{
	return guard_account.allowed != UINT64_MAX;
}

static uint64_t picks_in_second(void)
{
	return min_t(uint64_t, options.guard_second, SECOND_MOST);
}

static uint64_t saved_picks(void)
{
	uint64_t saved = picks_in_second() * GUARD_PICK / SAVED_PART;

	return saved > GUARD_PICK ? saved : GUARD_PICK;
}

void cost_begin(void)
{
	guard_account = (struct guard_account){
		/* Where the system does not tell CPU time there is nothing to compare the cost with. */
		.allowed = options.guard_cost && os_cpu_nanoseconds() ? 0 : UINT64_MAX,
		.granted = options.guard_second ? saved_picks() : UINT64_MAX,
	};
	cost_credited = 0;
	picks_credited = os_milliseconds();
}

uint64_t guard_meter(void)
{
	return is_bounded() ? os_thread_nanoseconds() : 0;
}

void guard_charge(uint64_t since)
{
	if (is_bounded())
		__atomic_fetch_add(&guard_account.spent, os_elapsed(since, os_thread_nanoseconds()),
				   __ATOMIC_RELAXED);
}

void guard_charge_estimate(void)
{
	if (is_bounded())
		__atomic_fetch_add(&guard_account.spent, ESTIMATE, __ATOMIC_RELAXED);
}

bool cost_take_pick(void)
{
	uint64_t taken = __atomic_load_n(&guard_account.taken, __ATOMIC_RELAXED);

	/* Several threads may see the last pick allowed; one of them gets it. */
	do
		if (!guard_goes_on())
			return false;
	while (!__atomic_compare_exchange_n(&guard_account.taken, &taken, taken + GUARD_PICK, false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return true;
}

/*
 * Claims the time since *credited; 0 where another thread claims it.  A thread overtaken after it read the
 * clock claims nothing, so that no time counts twice.
 */
static uint64_t claim_time(uint64_t *credited, uint64_t now)
{
	uint64_t then = __atomic_load_n(credited, __ATOMIC_RELAXED);

	if (now <= then ||
	    !__atomic_compare_exchange_n(credited, &then, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return 0;
	return now - then;
}

/* Two threads here at once may both extend the same old limit: one's credit is then lost. */
static void extend(uint64_t *limit, uint64_t by, uint64_t most)
{
	uint64_t before = __atomic_load_n(limit, __ATOMIC_RELAXED);

	__atomic_store_n(limit, min_t(uint64_t, before + by, most), __ATOMIC_RELAXED);
}

void cost_credit(uint64_t now)
{
	if (is_bounded()) {
		uint64_t share = min_t(uint64_t, options.guard_cost, WHOLE);

		extend(&guard_account.allowed,
		       claim_time(&cost_credited, os_cpu_nanoseconds()) / WHOLE * share,
		       __atomic_load_n(&guard_account.spent, __ATOMIC_RELAXED) + SAVED_COST);
	}
	if (options.guard_second)
		extend(&guard_account.granted, claim_time(&picks_credited, now) * picks_in_second(),
		       __atomic_load_n(&guard_account.taken, __ATOMIC_RELAXED) + saved_picks());
}

void cost_repair(void)
{
	if (!is_bounded())
		return;
	/* The child starts without CPU time, and without debt. */
	cost_credited = os_cpu_nanoseconds();
	guard_account.allowed = guard_account.spent;
}
