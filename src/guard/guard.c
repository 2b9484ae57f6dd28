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
	SLACK = 0xcc,           /* of an object's pages what is not the object */
	ADDRESS_SPACE_PART = 8, /* of a limit on it that the pool may take */
	MAPPINGS_PART = 8,      /* of the mappings that the system lets a process have */
	SPREAD_MOST = 1024,     /* of the pages one in so many is chosen, unless the rate is higher */
};

/*
 * Ages of slots: 0 of one that was never used, n of the one that was freed as the n-th, and these.  OPEN: it
 * was freed, but the system has refused to take its pages, so that what is in it could still be reached.
 */
static const uint64_t IN_USE = UINT64_MAX, OPEN = UINT64_MAX - 1;

struct guard_state guard;
struct guard_slot *guard_slots;
static uint64_t *ages;
static uint64_t frees; /* how many there were */
static uint64_t live, pages, bytes, picked, refused, passed;
static uint64_t left_open; /* slots of that age; they count as live */

/* ---- the pool -------------------------------------------------------------------------------------- */

static size_t pool_bytes(size_t slots)
{
	return OS_PAGE_BYTES + slots * SLOT_STRIDE;
}

/* As many slots as are asked for and as the limits of the process leave room for. */
static size_t choose_slots(void)
{
	size_t slots = options.guard_slots, most = os_mappings_most() / MAPPINGS_PART;

	if (slots > most)
		slots = most;
	while (slots > 1 && pool_bytes(slots) > os_limit_address_space() / ADDRESS_SPACE_PART)
		slots /= 2;
	return slots;
}

/* All zero: a small block may have been something else before. */
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

/* One slot less counts as live; returns the number that none has. */
static unsigned claim_none(void)
{
	__atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
	return guard.slots;
}

/* Takes the slot that has been free for longest; guard.slots when half of them are in use. */
static unsigned claim(void)
{
	/*
	 * Acquire: of a slot that does not count any more the age is that of a free one, so that no more than
	 * half of them are ever in use.
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
		/* Half of them are free at any instant; but each may have been in use as it was looked at. */
		if (oldest == guard.slots)
			return claim_none();
		/* Another thread may have been quicker.  Acquire: what the thread that freed it did with it
		 * has been done. */
		if (__atomic_compare_exchange_n(&ages[oldest], &age, IN_USE, false, __ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED))
			return oldest;
	}
}

/* Makes a slot the last one to be used again. */
static void release(unsigned number)
{
	uint64_t age = __atomic_add_fetch(&frees, 1, __ATOMIC_RELAXED);

	/* Release: whoever claims it finds it as it was left. */
	__atomic_store_n(&ages[number], age, __ATOMIC_RELEASE);
	/*
	 * Not before that: a thread that stopped in between would have a slot that no longer counts, and
	 * others could have half of the slots beside it.  Release: who no longer counts it sees its age.
	 */
	__atomic_fetch_sub(&live, 1, __ATOMIC_RELEASE);
}

/* ---- where an object lies -------------------------------------------------------------------------- */

static size_t round_up(size_t size, size_t unit)
{
	return (size + unit - 1) & ~(unit - 1);
}

/* As near to an end of its slot as its alignment lets it be. */
static char *place_object(const struct guard_slot *slot, size_t alignment)
{
	uintptr_t start = (uintptr_t)slot_start((unsigned)(slot - guard_slots));

	return (char *)(pick_side() ? round_up(start, alignment)
				    : (start + SLOT_BYTES - slot->requested) & -alignment);
}

/* The pages of the object of a slot. */
struct span {
	char *start;
	size_t bytes;
};

static struct span span_of(const struct guard_slot *slot)
{
	size_t before = (uintptr_t)slot->object % OS_PAGE_BYTES;

	return (struct span){slot->object - before, round_up(before + slot->requested, OS_PAGE_BYTES)};
}

/* The slot whose object starts at an address, whatever has become of it; NULL for none. */
static struct guard_slot *slot_of(const void *object)
{
	struct guard_slot *slot = slot_near(object);

	return slot && slot->object == object ? slot : NULL;
}

/* Fills what is not the object. */
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
	/* All bytes are the first one's value when each equals the one after it. */
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

/* Makes a claimed slot that of an object; false when there is no memory. */
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
	return true;
}

/*
 * Takes the pages of a freed slot from everybody; its address space stays.  False where the system refuses.
 */
static bool vacate(unsigned number)
{
	struct span span = span_of(&guard_slots[number]);

	if (os_reserve_again(span.start, span.bytes) != 0) {
		__atomic_fetch_add(&left_open, 1, __ATOMIC_RELAXED);
		/* Release: whoever tries again finds the slot as it was left. */
		__atomic_store_n(&ages[number], OPEN, __ATOMIC_RELEASE);
		return false;
	}
	__atomic_fetch_sub(&pages, span.bytes / OS_PAGE_BYTES, __ATOMIC_RELAXED);
	release(number);
	return true;
}

/* Tries again with the slots that are open, as long as the system lets it. */
static void vacate_open(void)
{
	for (unsigned i = 0; i < guard.slots; i++) {
		uint64_t age = OPEN;

		/* One thread gets it. */
		if (!__atomic_compare_exchange_n(&ages[i], &age, IN_USE, false, __ATOMIC_ACQUIRE,
						 __ATOMIC_RELAXED))
			continue;
		__atomic_fetch_sub(&left_open, 1, __ATOMIC_RELAXED);
		if (!vacate(i))
			return;
	}
}

/* NULL where it comes to nothing. */
static void *alloc(size_t requested, size_t alignment, const void *owner)
{
	if (__atomic_load_n(&left_open, __ATOMIC_RELAXED))
		vacate_open();
	unsigned number = claim();

	if (number == guard.slots)
		return refuse();
	struct guard_slot *slot = &guard_slots[number];

	/* One byte of its own has what is asked for without any, so that it is an object like others. */
	if (!occupy(slot, requested ? requested : 1, alignment)) {
		release(number);
		return refuse();
	}
	fill_slack(slot);
	slot->owner = owner;
	slot->allocated = this_thread();
	__atomic_fetch_add(&picked, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&bytes, slot->requested, __ATOMIC_RELAXED);
	/* Release: who gets the object, by whatever way, finds its record whole. */
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

/* What is wrong with a free; NULL for nothing. */
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

	/* Of two threads that free it at once one gets it, and the other one is told. */
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

/* Takes back a slot from a thread that is not here, wherever it was; what it has made accessible is not
 * known. */
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
	/* Counted anew: that thread may have been between a slot's age and what is counted. */
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
