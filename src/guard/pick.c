/* SPDX-License-Identifier: MIT */
/* Which allocations are guarded. */
#include "guard/guard.h"
#include "guard/slot.h"

/* To find the chosen pages of a heap takes some nanoseconds for each page: a few parts in ten thousand. */
enum { TURN_MILLISECONDS = 15, PAGES_PER_MILLISECOND = 256 };

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
	return draw() % guard.rate < GUARD_SPREAD;
}

unsigned guard_picks_fresh(void)
{
	return (unsigned)(draw() % guard.rate);
}

bool pick_side(void)
{
	return draw() & 1;
}

bool guard_turn(size_t heap_pages)
{
	static uint64_t next;
	uint64_t now = os_milliseconds(), due = __atomic_load_n(&next, __ATOMIC_RELAXED);

	/* One thread turns; the others have the choice that was, or the one that comes. */
	if (now < due || !__atomic_compare_exchange_n(
				 &next, &due, now + TURN_MILLISECONDS + heap_pages / PAGES_PER_MILLISECOND,
				 false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return false;
	if (guard.rate > 1)
		__atomic_store_n(&guard.secret, mix(guard.secret + now), __ATOMIC_RELAXED);
	return true;
}
