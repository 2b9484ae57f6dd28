/* SPDX-License-Identifier: MIT */
/* Which allocations are guarded. */
#include "guard/guard.h"
#include "guard/slot.h"
#include "options/options.h"

enum { TURN_MILLISECONDS = 250 };

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

bool guard_chooses(const void *object)
{
	uint64_t secret = __atomic_load_n(&guard.secret, __ATOMIC_RELAXED);

	return guard_is_on() && mix((uintptr_t)object / OS_PAGE_BYTES ^ secret) <= guard.page_bound;
}

static uint64_t draw(void)
{
	static uint64_t calls;

	return mix(__atomic_add_fetch(&calls, 0x9e3779b97f4a7c15u, __ATOMIC_RELAXED) ^
		   __atomic_load_n(&guard.secret, __ATOMIC_RELAXED));
}

bool guard_picks_freed(void)
{
	return draw() % options.guard < GUARD_SPREAD;
}

bool guard_picks_fresh(void)
{
	return draw() % options.guard == 0;
}

bool pick_side(void)
{
	return draw() & 1;
}

bool guard_turn(void)
{
	static uint64_t next;
	uint64_t now = os_milliseconds(), due = __atomic_load_n(&next, __ATOMIC_RELAXED);

	/* One thread turns; the others have the choice that was, or the one that comes. */
	if (now < due || !__atomic_compare_exchange_n(&next, &due, now + TURN_MILLISECONDS, false,
						      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return false;
	if (options.guard > 1)
		__atomic_store_n(&guard.secret, mix(guard.secret + now), __ATOMIC_RELAXED);
	return true;
}
