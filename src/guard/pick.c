/* SPDX-License-Identifier: MIT */
/* Which allocations are guarded. */
#include "guard/guard.h"
#include "guard/slot.h"

/*
 * Intercepting the frees into a chosen page takes a tenth of a microsecond: a few parts in a thousand at
 * most.
 */
enum { TURN_MILLISECONDS = 15, CHOSEN_PER_MILLISECOND = 32 };

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint64_t draw(void)
{
	static uint64_t calls;

	return mix(__atomic_add_fetch(&calls, 0x9e3779b97f4a7c15u, __ATOMIC_RELAXED) ^
		   __atomic_load_n(&guard.secret, __ATOMIC_RELAXED));
}

bool guard_picks_freed(void)
{
	return draw() % guard.rate < guard.spread;
}

unsigned guard_picks_fresh(void)
{
	return guard_goes_on() ? (unsigned)(draw() % guard.rate) : UINT32_MAX;
}

bool pick_side(void)
{
	return draw() & 1;
}

bool guard_turn(uint64_t now, size_t heap_pages)
{
	uint64_t due = __atomic_load_n(&guard.turn, __ATOMIC_RELAXED);
	uint64_t wait = TURN_MILLISECONDS + heap_pages / guard.spread / CHOSEN_PER_MILLISECOND;

	/* One thread takes the turn; the others see the old choice or the new one. */
	if (now < due || !__atomic_compare_exchange_n(&guard.turn, &due, now + wait, false, __ATOMIC_RELAXED,
						      __ATOMIC_RELAXED))
		return false;
	cost_credit(now);
	if (!guard_goes_on())
		return false;
	__atomic_store_n(&guard.secret, mix(guard.secret + now), __ATOMIC_RELAXED);
	__atomic_store_n(&guard.chosen, guard.secret % guard.spread, __ATOMIC_RELAXED);
	return true;
}
