/* SPDX-License-Identifier: MIT */
#include "guard/guard.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "check/stack.h"
#include "guard/slot.h"
#include "options/options.h"
#include "page/page.h"

enum {
	SLACK = 0xcc,           /* fills the part of an object's pages that is not the object */
	ADDRESS_SPACE_PART = 8, /* the pool's share of an address-space limit */
	MAPPINGS_PART = 8,      /* and of the mappings that a process may have */
	SPREAD_MOST = 1024,     /* one page in this many is chosen, unless RATE is smaller */
};

/*
 * Ages of slots: 0 if never used, n for the n-th free, and these.  OPEN: freed, but the system has refused
 * to take the pages, so that their contents are still accessible.
 */
static const uint64_t IN_USE = UINT64_MAX, OPEN = UINT64_MAX - 1;

struct guard_state guard;
struct guard_slot *guard_slots;
static uint64_t *ages;
static uint64_t frees; /* frees so far */
static uint64_t live, pages, bytes, picked, refused, passed;
static uint64_t left_open; /* slots of age OPEN; they count as live */

/* ---- the pool -------------------------------------------------------------------------------------- */

static size_t pool_bytes(size_t slots)
{
	return OS_PAGE_BYTES + slots * SLOT_STRIDE;
}

/* As many slots as requested, within the process's limits. */
static size_t choose_slots(void)
{
	size_t slots = options.guard_slots, most = os_mappings_most() / MAPPINGS_PART;

	if (slots > most)
		slots = most;
	while (slots > 1 && pool_bytes(slots) > os_limit_address_space() / ADDRESS_SPACE_PART)
		slots /= 2;
	return slots;
}

/* Returns zeroed memory: a small block may have been used before. */
static void *alloc_zeroed(size_t size)
{
	void *block = metadata_alloc(size);

	if (block && size <= METADATA_REUSED_MOST)
		memset(block, 0, size);
	return block;
}

static void make_pool(size_t slots)
{
	char *start = os_reserve(NULL, pool_bytes(slots));

	guard_slots = alloc_zeroed(slots * sizeof *guard_slots);
	ages = alloc_zeroed(slots * sizeof *ages);
	if (!start || !guard_slots || !ages) {
		if (start)
			os_unmap(start, pool_bytes(slots));
		return;
	}
	(void)os_dump(start, pool_bytes(slots), false);
	guard.start = (uintptr_t)start;
	guard.slots = (unsigned)slots;
	guard.rate = options.guard < UINT32_MAX ? (unsigned)options.guard : UINT32_MAX;
	guard.spread = SPREAD_MOST;
	while (guard.spread > guard.rate)
		guard.spread /= 2;
	guard.secret = os_random();
	guard.chosen = guard.secret % guard.spread;
	fault_watch();
	guard.bytes = pool_bytes(slots);
}

static __attribute__((noinline)) void begin(void)
{
	cost_begin();
	uint64_t start = guard_meter();
	size_t slots = choose_slots();

	if (slots >= 2)
		make_pool(slots);
	guard_charge(start);
}

void guard_begin(void)
{
	if (options.guard)
		begin();
}

/* Uncounts a slot counted as live; returns the number of no slot. */
static unsigned claim_none(void)
{
	__atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
	return guard.slots;
}

/* Claims the slot that has been free longest; returns guard.slots when half of them are in use. */
static unsigned claim(void)
{
	/*
	 * Acquire, with release(): once a slot is uncounted, its age is seen to be that of a free one, so
	 * that never more than half of them are in use.
	 */
	if (__atomic_add_fetch(&live, 1, __ATOMIC_ACQUIRE) > guard.slots / 2)
		return claim_none();
	for (;;) {
		unsigned oldest = guard.slots;
		uint64_t age = OPEN;

		for (unsigned i = 0; i < guard.slots; i++) {
			uint64_t found = __atomic_load_n(&ages[i], __ATOMIC_RELAXED);

			if (found < age) {
				age = found;
				oldest = i;
			}
		}
		/* Half are free at any instant, but each may have been in use when it was looked at. */
		if (oldest == guard.slots)
			return claim_none();
		/*
		 * Another thread may have been faster.  Acquire: the thread that freed the slot has
		 * finished with it.
		 */
		if (__atomic_compare_exchange_n(&ages[oldest], &age, IN_USE, false, __ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED))
			return oldest;
	}
}

/* Makes a slot the last one to be reused. */
static void release(unsigned number)
{
	uint64_t age = __atomic_add_fetch(&frees, 1, __ATOMIC_RELAXED);

	/* Release: the next claimer finds the slot as it was left. */
	__atomic_store_n(&ages[number], age, __ATOMIC_RELEASE);
	/*
	 * Only now: if this thread stopped in between, its slot would no longer count, and others could use
	 * half of the slots besides.  Release: a thread that sees the lower count sees the age.
	 */
	__atomic_fetch_sub(&live, 1, __ATOMIC_RELEASE);
}

/* ---- where an object lies -------------------------------------------------------------------------- */

static size_t round_up(size_t size, size_t unit)
{
	return (size + unit - 1) & ~(unit - 1);
}

/* Places an object as near to an end of its slot as its alignment allows. */
static char *place_object(const struct guard_slot *slot, size_t alignment)
{
	uintptr_t start = (uintptr_t)slot_start((unsigned)(slot - guard_slots));

	return (char *)(pick_side() ? round_up(start, alignment)
				    : (start + SLOT_BYTES - slot->requested) & -alignment);
}

/* The pages of a slot's object. */
struct span {
	char *start;
	size_t bytes;
};

static struct span span_of(const struct guard_slot *slot)
{
	size_t before = (uintptr_t)slot->object % OS_PAGE_BYTES;

	return (struct span){slot->object - before, round_up(before + slot->requested, OS_PAGE_BYTES)};
}

/* The slot whose object, in whatever state, starts at an address; NULL for none. */
static struct guard_slot *slot_of(const void *object)
{
	struct guard_slot *slot = slot_near(object);

	return slot && slot->object == object ? slot : NULL;
}

/* Fills the rest of the object's pages. */
static void fill_slack(const struct guard_slot *slot)
{
	struct span span = span_of(slot);
	char *end = slot->object + slot->requested;

	memset(span.start, SLACK, (size_t)(slot->object - span.start));
	memset(end, SLACK, (size_t)(span.start + span.bytes - end));
}

/* NULL for nowhere. */
static const char *first_changed(const char *start, const char *end)
{
	/* All bytes have the first one's value if each equals the next. */
	if (start == end || (*(const unsigned char *)start == SLACK &&
			     memcmp(start, start + 1, (size_t)(end - start) - 1) == 0))
		return NULL;
	while (*(const unsigned char *)start == SLACK)
		start++;
	return start;
}

/* ---- allocation and free --------------------------------------------------------------------------- */

static struct guard_owner this_thread(void)
{
	return (struct guard_owner){stack_capture(), os_thread_id(), os_milliseconds()};
}

static void *refuse(void)
{
	__atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* Gives a claimed slot to an object; false when there is no memory. */
static bool occupy(struct guard_slot *slot, size_t requested, size_t alignment)
{
	__atomic_store_n(&slot->state, GUARD_BUSY, __ATOMIC_RELAXED);
	slot->requested = requested;
	slot->reported = 0;
	slot->object = place_object(slot, alignment > GUARD_ALIGNMENT ? alignment : GUARD_ALIGNMENT);

	struct span span = span_of(slot);
	size_t used = span.bytes / OS_PAGE_BYTES;

	if (__atomic_add_fetch(&pages, used, __ATOMIC_RELAXED) > 2 * (uint64_t)guard.slots ||
	    os_commit(span.start, span.bytes) != 0) {
		__atomic_fetch_sub(&pages, used, __ATOMIC_RELAXED);
		__atomic_store_n(&slot->state, GUARD_UNUSED, __ATOMIC_RELEASE);
		return false;
	}
	(void)os_dump(span.start, span.bytes, true);
	return true;
}

/* Makes a freed slot's pages inaccessible, keeping the address space.  False where the system refuses. */
static bool vacate(unsigned number)
{
	struct span span = span_of(&guard_slots[number]);

	if (os_reserve_again(span.start, span.bytes) != 0) {
		__atomic_fetch_add(&left_open, 1, __ATOMIC_RELAXED);
		/* Release: the thread that retries finds the slot as it was left. */
		__atomic_store_n(&ages[number], OPEN, __ATOMIC_RELEASE);
		return false;
	}
	__atomic_fetch_sub(&pages, span.bytes / OS_PAGE_BYTES, __ATOMIC_RELAXED);
	release(number);
	return true;
}

/* Retries the slots that are OPEN, until the system refuses. */
static void vacate_open(void)
{
	for (unsigned i = 0; i < guard.slots; i++) {
		uint64_t age = OPEN;

		/* One thread gets the slot. */
		if (!__atomic_compare_exchange_n(&ages[i], &age, IN_USE, false, __ATOMIC_ACQUIRE,
						 __ATOMIC_RELAXED))
			continue;
		__atomic_fetch_sub(&left_open, 1, __ATOMIC_RELAXED);
		if (!vacate(i))
			return;
	}
}

/* NULL where this fails. */
static void *alloc(size_t requested, size_t alignment, const void *owner)
{
	if (__atomic_load_n(&left_open, __ATOMIC_RELAXED))
		vacate_open();
	unsigned number = claim();

	if (number == guard.slots)
		return refuse();
	struct guard_slot *slot = &guard_slots[number];

	/* An object of zero bytes gets one of its own, so that it is like others. */
	if (!occupy(slot, requested ? requested : 1, alignment)) {
		release(number);
		return refuse();
	}
	fill_slack(slot);
	slot->owner = owner;
	slot->allocated = this_thread();
	__atomic_fetch_add(&picked, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&bytes, slot->requested, __ATOMIC_RELAXED);
	/* Release: any thread that gets the object finds its record complete. */
	__atomic_store_n(&slot->state, GUARD_LIVE, __ATOMIC_RELEASE);
	fault_watch();
	return slot->object;
}

__attribute__((noinline)) void *guard_alloc(size_t requested, size_t alignment, const void *owner)
{
	bool fits = guard_fits(requested, alignment);

	if (!fits || !cost_take_pick()) {
		__atomic_fetch_add(fits ? &passed : &refused, 1, __ATOMIC_RELAXED);
		guard_charge_estimate();
		return NULL;
	}
	uint64_t start = guard_meter();
	void *object = alloc(requested, alignment, owner);

	guard_charge(start);
	return object;
}

/* Returns what is wrong with a free, or NULL. */
static const char *wrong_with(const struct guard_slot *slot, size_t stated)
{
	if (!slot)
		return "Invalid free";
	if (slot_state(slot) != GUARD_LIVE)
		return "Double free";
	return stated != SIZE_MAX && stated > slot->requested ? "Wrong size of a sized free" : NULL;
}

static void stop_unless_continuing(void)
{
	if (!options.debug_continue)
		abort();
}

static void check_slack(const struct guard_slot *slot)
{
	struct span span = span_of(slot);
	const char *before = first_changed(span.start, slot->object);
	const char *behind = first_changed(slot->object + slot->requested, span.start + span.bytes);

	if (!before && !behind)
		return;
	report_damage(slot, behind ? behind : before,
		      behind ? "Overflow, found at the free" : "Underflow, found at the free");
	stop_unless_continuing();
}

static void give_back(void *object, size_t stated)
{
	struct guard_slot *slot = slot_of(object);
	const char *wrong = wrong_with(slot, stated);
	uint32_t expected = GUARD_LIVE;

	/* Of two threads that free the object at once one wins; the other is reported. */
	if (!wrong && !__atomic_compare_exchange_n(&slot->state, &expected, GUARD_BUSY, false,
						   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		wrong = "Double free";
	if (wrong) {
		report_damage(slot ? slot : slot_near(object), object, wrong);
		stop_unless_continuing();
		return;
	}
	check_slack(slot);
	slot->freed = this_thread();
	__atomic_fetch_sub(&bytes, slot->requested, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->state, GUARD_FREED, __ATOMIC_RELEASE);
	(void)vacate((unsigned)(slot - guard_slots));
}

__attribute__((noinline)) void guard_free(void *object, size_t stated)
{
	uint64_t start = guard_meter();

	give_back(object, stated);
	guard_charge(start);
}

/* ---- forked children ------------------------------------------------------------------------------- */

/*
 * Takes back a slot from a thread that is not in the child, whatever it was doing; which pages it had made
 * accessible is unknown.
 */
static void take_from_nobody(unsigned number)
{
	struct guard_slot *slot = &guard_slots[number];

	if (os_reserve_again(slot_start(number), SLOT_BYTES) != 0)
		return;
	if (slot->state == GUARD_BUSY) {
		slot->state = GUARD_UNUSED;
		slot->object = NULL;
	}
	ages[number] = ++frees;
}

void guard_repair(void)
{
	if (!guard_is_on())
		return;
	cost_repair();
	/* Recounts: that thread may have been between a slot's age and the counts. */
	live = pages = bytes = left_open = 0;
	for (unsigned i = 0; i < guard.slots; i++) {
		const struct guard_slot *slot = &guard_slots[i];

		if (ages[i] == IN_USE && slot->state != GUARD_LIVE)
			take_from_nobody(i);
		if (ages[i] < OPEN)
			continue;
		live++;
		left_open += ages[i] == OPEN;
		pages += span_of(slot).bytes / OS_PAGE_BYTES;
		bytes += slot->state == GUARD_LIVE ? slot->requested : 0;
	}
}

/* ---- questions ------------------------------------------------------------------------------------- */

size_t guard_usable(const void *object)
{
	const struct guard_slot *slot = guard_contains(object) ? slot_of(object) : NULL;

	return slot && slot_state(slot) == GUARD_LIVE ? slot->requested : 0;
}

const void *guard_owner(const void *object)
{
	const struct guard_slot *slot = slot_of(object);

	return slot ? slot->owner : NULL;
}

unsigned guard_visit_live(const void *owner, void (*visit)(void *object, void *argument), void *argument)
{
	unsigned found = 0;

	for (const struct guard_slot *slot = guard_slots; slot < guard_slots + guard.slots; slot++) {
		if (slot_state(slot) != GUARD_LIVE || slot->owner != owner)
			continue;
		visit(slot->object, argument);
		found++;
	}
	return found;
}

void *guard_object_of(const void *address)
{
	const struct guard_slot *slot = guard_contains(address) ? slot_near(address) : NULL;

	if (!slot || slot_state(slot) != GUARD_LIVE ||
	    (uintptr_t)address - (uintptr_t)slot->object >= slot->requested)
		return NULL;
	return slot->object;
}

void guard_statistics(struct guard_statistics *statistics)
{
	*statistics = (struct guard_statistics){
		.picked = __atomic_load_n(&picked, __ATOMIC_RELAXED),
		.refused = __atomic_load_n(&refused, __ATOMIC_RELAXED),
		.passed = __atomic_load_n(&passed, __ATOMIC_RELAXED),
		.spent = __atomic_load_n(&guard_account.spent, __ATOMIC_RELAXED),
		.live = __atomic_load_n(&live, __ATOMIC_RELAXED),
		.bytes = __atomic_load_n(&bytes, __ATOMIC_RELAXED),
		.pages = __atomic_load_n(&pages, __ATOMIC_RELAXED),
		.slots = guard.slots,
	};
}

void guard_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("guard", (uintptr_t)&guard, sizeof guard);
	show("guard.slots", offsetof(struct guard_state, slots), sizeof guard.slots);
	show("guard.picked", (uintptr_t)&picked, sizeof picked);
	show("guard.refused", (uintptr_t)&refused, sizeof refused);
	show("guard.passed", (uintptr_t)&passed, sizeof passed);
	show("guard.spent", (uintptr_t)&guard_account.spent, sizeof guard_account.spent);
	show("guard.live", (uintptr_t)&live, sizeof live);
	show("guard.bytes", (uintptr_t)&bytes, sizeof bytes);
	show("guard.pages", (uintptr_t)&pages, sizeof pages);
}
