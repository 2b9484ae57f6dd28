/* SPDX-License-Identifier: MIT */
#include "depot/depot.h"

#include <assert.h>
#include <string.h>

#include "arch/probe.h"
#include "depot/ebb.h"
#include "depot/policy.h"
#include "guard/guard.h"
#include "options/options.h"
#include "page/page.h"
#include "profile/profile.h"
#include "vcpu/vcpu.h"

/* Blocks are powers of two; the header and two sentinels take five words of each. */
enum {
	SMALLEST_BLOCK = 64,
	OVERHEAD_WORDS = 5,
	APART_BYTES = 1 << 10, /* a hardened magazine's block is a multiple of it */
};

/*
 * In hardened mode a magazine stays with its vCPU, whose every call writes to it.  Blocks are spaced so that
 * the hardware prefetcher of one CPU does not pull the lines of another's magazine away from it.
 */
static size_t block_bytes(unsigned capacity)
{
	size_t bytes = (capacity + OVERHEAD_WORDS) * sizeof(void *);

	return options.hardened && vcpu_mode() != CPUSLAB_VCPU_THREAD_SLOT
		       ? (bytes + APART_BYTES - 1) & -(size_t)APART_BYTES
		       : bytes;
}

/* Does not quite fill the largest block, so that the largest capacity is a round number. */
static unsigned capacity_of(size_t block)
{
	unsigned capacity = (unsigned)(block / sizeof(void *) - OVERHEAD_WORDS);

	return capacity < DEPOT_CAPACITY_MAX ? capacity : DEPOT_CAPACITY_MAX;
}

static size_t block_of(unsigned capacity)
{
	return ((capacity + OVERHEAD_WORDS) * sizeof(void *) + SMALLEST_BLOCK - 1) & -(size_t)SMALLEST_BLOCK;
}

/*
 * The capacity of the largest block, `block` or smaller by a power of two, whose objects take at most
 * `bytes`; but at least 3.
 */
static uint16_t choose_capacity(uint32_t size, size_t bytes, size_t block)
{
	while (block > SMALLEST_BLOCK && (size_t)capacity_of(block) * size > bytes)
		block /= 2;
	return (uint16_t)capacity_of(block);
}

static size_t most_bytes(uint32_t size)
{
	size_t large = (size_t)MOST_LARGE * size;

	return large > MOST_BYTES && large <= MOST_LARGE_BYTES ? large : MOST_BYTES;
}

/* Half a magazine, but not much more memory at once than the program is likely to want soon. */
static uint16_t choose_batch(uint32_t size, unsigned capacity)
{
	unsigned batch = BATCH_BYTES / size, half = (capacity + 1u) / 2;

	if (batch < SMALLEST_BATCH)
		batch = SMALLEST_BATCH;
	return (uint16_t)(batch < half ? batch : half);
}

/* Rounds up to whole magazines, so that any factor but zero lets one wait. */
static void set_sharedfactor(struct depot *depot, uint32_t factor)
{
	uint64_t objects = (uint64_t)factor * depot->batch;

	depot->sharedfactor = factor;
	depot->filled_most = (uint32_t)((objects + depot->capacity - 1) / depot->capacity);
}

static void count_out(const struct depot *depot, unsigned objects)
{
	ebb_count_out((uint64_t)objects * depot->slabs.traits.size);
}

static void count_in(const struct depot *depot, unsigned objects)
{
	ebb_count_in((uint64_t)objects * depot->slabs.traits.size);
}

static void count_taken(const struct depot *depot, int64_t objects)
{
	ebb_count_taken(objects * depot->slabs.traits.size);
}

static void lock_depot(struct depot *depot)
{
	cpuslab_spin_lock(&depot->lock);
	depot->lock_acquires++;
}

/*
 * Push and pop change a stack by one store of its head: at whatever instant a fork comes, the stack is whole.
 */
static struct magazine *magazine_of(uint32_t reference)
{
	return reference ? metadata_block(reference) : NULL;
}

static void stack_push(uint32_t *head, struct magazine *magazine)
{
	magazine->next = *head;
	__atomic_store_n(head, metadata_reference(magazine), __ATOMIC_RELEASE);
}

static struct magazine *stack_pop(uint32_t *head)
{
	struct magazine *magazine = magazine_of(*head);

	if (magazine)
		__atomic_store_n(head, magazine->next, __ATOMIC_RELEASE);
	return magazine;
}

/*
 * Index of the stacks where this vCPU leaves magazines.  If the thread migrates meanwhile, that does no harm.
 */
static unsigned home_here(void)
{
	return (uint16_t)arch_id(vcpu_self) % DEPOT_HOMES;
}

/* The home stack, or if it is empty one that is not. */
static uint32_t *nearest(uint32_t *stacks)
{
	unsigned home = home_here();

	for (unsigned i = 0; !stacks[home] && i < DEPOT_HOMES; i++)
		if (stacks[i])
			return &stacks[i];
	return &stacks[home];
}

/* Out of line: its several callers are on pages that every program loads. */
static __attribute__((noinline)) struct magazine *pop_near(uint32_t *stacks)
{
	return stack_pop(nearest(stacks));
}

static __attribute__((noinline)) void push_near(uint32_t *stacks, struct magazine *magazine)
{
	stack_push(&stacks[home_here()], magazine);
}

static void push_filled(struct depot *depot, struct magazine *magazine)
{
	push_near(depot->filled, magazine);
	depot->filled_count++;
	depot->objects += magazine->count - magazine->marks;
}

/* Puts a magazine on its way to the slabs, or if empty to the metadata. */
static void push_leaving(struct depot *depot, struct magazine *magazine)
{
	stack_push(&depot->leaving, magazine);
	depot->leaving_objects += magazine->count - magazine->marks;
}

static __attribute__((noinline)) struct magazine *pop_filled(struct depot *depot)
{
	struct magazine *magazine = pop_near(depot->filled);

	if (!magazine)
		return NULL;
	depot->objects -= magazine->count - magazine->marks;
	if (--depot->filled_count < depot->filled_low)
		depot->filled_low = depot->filled_count;
	return magazine;
}

static struct magazine *pop_empty(struct depot *depot)
{
	struct magazine *magazine = pop_near(depot->empty);

	if (magazine)
		depot->empty_count--;
	return magazine;
}

static void push_empty(struct depot *depot, struct magazine *magazine)
{
	push_near(depot->empty, magazine);
	depot->empty_count++;
}

static struct magazine *new_magazine(const struct depot *depot)
{
	uint16_t capacity = __atomic_load_n(&depot->capacity, __ATOMIC_RELAXED);
	struct magazine *magazine = metadata_alloc(block_bytes(capacity));

	if (!magazine)
		return NULL;
	magazine->capacity = capacity;
	magazine->count = magazine->marks = magazine->choice = 0;
	magazine->self = magazine_end_mark(magazine);
	magazine->slot[0] = NULL;
	magazine->slot[capacity + 1] = (void *)magazine_end_mark(magazine);
	/* Fresh blocks read as zero, reused ones hold anything: the slots must hold no end mark. */
	memset(&magazine->slot[1], 0, capacity * sizeof magazine->slot[1]);
	return magazine;
}

static void free_magazine(struct magazine *magazine)
{
	metadata_free(magazine, block_bytes(magazine->capacity));
}

/* Objects that the program and the words have.  Without the lock: either count may be a moment old. */
static uint64_t in_use(const struct depot *depot)
{
	uint64_t allocated = __atomic_load_n(&depot->slabs.allocated, __ATOMIC_RELAXED),
		 waiting = __atomic_load_n(&depot->objects, __ATOMIC_RELAXED);

	return allocated > waiting ? allocated - waiting : 0;
}

/* Raises the high-water mark of the objects in use.  With the lock. */
static void note_use(struct depot *depot)
{
	uint64_t now = in_use(depot);

	if (now > depot->most_in_use)
		depot->most_in_use = now;
}

/*
 * The unit in which rules count magazines: at most what a cache may begin with.  Larger ones make misses
 * rarer, but do not change how many objects are many, nor let one refill take longer.
 */
static unsigned usual_capacity(const struct depot *depot)
{
	unsigned capacity = __atomic_load_n(&depot->capacity, __ATOMIC_RELAXED);

	return capacity < capacity_of(FIRST_BLOCK) ? capacity : capacity_of(FIRST_BLOCK);
}

/* Lets all but `keep` empty magazines leave.  With the lock. */
static void let_empty_leave(struct depot *depot, uint32_t keep)
{
	while (depot->empty_count > keep)
		push_leaving(depot, pop_empty(depot));
}

static uint16_t larger(unsigned capacity)
{
	return (uint16_t)capacity_of(2 * block_of(capacity));
}

static uint16_t smaller(unsigned capacity)
{
	return (uint16_t)capacity_of(block_of(capacity) / 2);
}

/* Sets one of the capacities that block sizes give.  With the lock, or before the depot is published. */
static void set_capacity(struct depot *depot, unsigned capacity)
{
	__atomic_store_n(&depot->capacity, (uint16_t)capacity, __ATOMIC_RELAXED);
	__atomic_store_n(&depot->batch, choose_batch(depot->slabs.traits.size, capacity), __ATOMIC_RELAXED);
	set_sharedfactor(depot, depot->sharedfactor);
	depot->misses = depot->idle_ticks = 0;
}

static size_t at_most_part(size_t bytes, unsigned part)
{
	size_t most = page_heap_most() / part;

	return bytes < most ? bytes : most;
}

/*
 * A hardened cache's magazines are its quarantine: their capacity is the largest that a cache may begin with.
 */
void depot_init(struct depot *depot, const struct slab_traits *traits, uint16_t capacity)
{
	assert(capacity <= DEPOT_CAPACITY_MAX);
	size_t bytes = at_most_part(most_bytes(traits->size), MOST_PART),
	       first_bytes = at_most_part(FIRST_BYTES, FIRST_PART);
	uint16_t most = capacity ? capacity
				 : choose_capacity(traits->size, bytes,
						   traits->hardened ? FIRST_BLOCK : LARGEST_BLOCK);
	uint16_t least =
		capacity || traits->hardened ? most : choose_capacity(traits->size, first_bytes, FIRST_BLOCK);

	*depot = (struct depot){.capacity_least = least, .capacity_most = most};
	depot->sharedfactor = DEPOT_SHAREDFACTOR_MAX;
	slab_cache_init(&depot->slabs, traits);
	set_capacity(depot, least);
}

/*
 * Whether full magazines that may not wait gather, for one call in a few to take them all to the slabs: where
 * a batch is but a small part of the objects allocated.
 */
static bool gathers(const struct depot *depot)
{
	return depot->sharedfactor == DEPOT_SHAREDFACTOR_MAX &&
	       __atomic_load_n(&depot->slabs.allocated, __ATOMIC_RELAXED) >=
		       (uint64_t)GATHERING_PART * DEPOT_PORTION;
}

/* Whether not all that the tunables allow may wait: of small objects, where nobody chose the tunables. */
static bool is_selective(const struct depot *depot)
{
	return depot->slabs.traits.size < BULKY && !depot->slabs.traits.hardened &&
	       depot->sharedfactor == DEPOT_SHAREDFACTOR_MAX;
}

static uint64_t waiting_objects(const struct depot *depot)
{
	return depot->objects - depot->leaving_objects;
}

/* Whether a filled magazine may wait although a new empty one must be made in return.  With the lock. */
static bool waits_for_more(struct depot *depot)
{
	uint64_t objects = waiting_objects(depot),
		 allocated = __atomic_load_n(&depot->slabs.allocated, __ATOMIC_RELAXED);

	if (!is_selective(depot) || objects < depot->earned || objects <= allocated / WAITING_PART)
		return true;
	depot->earned = objects;
	return false;
}

/* Counts objects taken from the slabs, some of which might have waited here, as earned.  With the lock. */
static void count_missed(struct depot *depot, uint64_t objects)
{
	if (objects > depot->refused)
		objects = depot->refused;
	depot->refused -= objects;
	depot->earned += objects;
}

/* Whether of the objects that a magazine hands out first some lie more than a page from their predecessor. */
static bool is_scattered(const struct magazine *magazine)
{
	unsigned count = magazine->count, apart = 0;

	if (count <= SCATTERED_LOOKS || magazine->marks)
		return false;
	for (unsigned i = count; i > count - SCATTERED_LOOKS; i--) {
		uintptr_t distance = (uintptr_t)magazine->slot[i] - (uintptr_t)magazine->slot[i - 1];

		apart += distance + PAGE_BYTES > 2 * PAGE_BYTES;
	}
	return apart >= SCATTERED_JUMPS;
}

/*
 * Whether a magazine goes to the slabs, which hand its objects out in order of address again: see "Order".
 * With the lock.
 */
static bool is_to_be_ordered(const struct depot *depot, const struct magazine *magazine)
{
	return is_selective(depot) && ebb_waiting() >= (int64_t)SCATTERED_BYTES * vcpu_areas() &&
	       is_scattered(magazine);
}

/* Whether a magazine may wait here.  With the lock. */
static bool has_room(const struct depot *depot, const struct magazine *magazine)
{
	if (depot_is_stale(depot, magazine))
		return false;
	return !magazine->count ||
	       (depot->filled_count < depot->filled_most && !is_to_be_ordered(depot, magazine));
}

/* Removes the marks, so that the slots hold objects only. */
static void drop_marks(struct magazine *magazine)
{
	unsigned kept = 0;

	for (unsigned i = 1; i <= magazine->count; i++)
		if (magazine->slot[i])
			magazine->slot[++kept] = magazine->slot[i];
	magazine->count = (uint16_t)kept;
	magazine->marks = 0;
}

unsigned depot_drain(struct depot *depot, struct magazine *magazine)
{
	if (magazine->marks)
		drop_marks(magazine);
	ARCH_PROBE("drain", (uintptr_t)depot->slabs.traits.name, magazine->count);
	unsigned slabs = slab_free_batch(&depot->slabs, &magazine->slot[1], magazine->count);

	count_taken(depot, -(int64_t)magazine->count);
	magazine->count = 0;
	__atomic_fetch_add(&depot->drains, 1, __ATOMIC_RELAXED);
	return slabs;
}

static bool has_leaving(const struct depot *depot)
{
	return __atomic_load_n(&depot->leaving, __ATOMIC_RELAXED);
}

/* Whether an emptied magazine may wait here for exchange with the next full one. */
static bool is_of_use(const struct depot *depot, const struct magazine *emptied)
{
	return (gathers(depot) || depot->ebbs) && !depot_is_stale(depot, emptied) &&
	       depot->empty_count < EMPTY_KEPT;
}

/* Pops a leaving magazine, or in an ebb a filled one beyond `stay`.  With the lock. */
static struct magazine *pop_unneeded(struct depot *depot)
{
	struct magazine *magazine = stack_pop(&depot->leaving);

	if (magazine) {
		depot->objects -= magazine->count - magazine->marks;
		depot->leaving_objects -= magazine->count - magazine->marks;
		return magazine;
	}
	return depot->ebbs && depot->objects > depot->stay ? pop_filled(depot) : NULL;
}

/*
 * Pops the next magazine to drain.  *emptied, drained before, is kept here if it is of use, and then set to
 * NULL.
 */
static struct magazine *pop_leaving(struct depot *depot, struct magazine **emptied)
{
	lock_depot(depot);
	struct magazine *magazine = pop_unneeded(depot);

	if (emptied && *emptied && is_of_use(depot, *emptied)) {
		push_empty(depot, *emptied);
		*emptied = NULL;
	}
	cpuslab_spin_unlock(&depot->lock);
	return magazine;
}

/*
 * Drains leaving magazines until that has cost *most objects, which it counts down.  Drains without the lock,
 * hence with one magazine in hand at a time: the others stay on the stack, where a forked child finds them
 * and drains them as they age.  Emptied magazines stay here where they are of use; the others are freed,
 * except that the last may be returned.
 */
static struct magazine *drain_leaving(struct depot *depot, uint64_t *most)
{
	struct magazine *emptied = NULL, *magazine;

	while (*most && (magazine = pop_leaving(depot, &emptied))) {
		uint64_t cost = magazine->count;

		if (emptied)
			free_magazine(emptied);
		if (magazine->count)
			cost += (uint64_t)DEPOT_SLAB_COST * depot_drain(depot, magazine);
		*most -= cost < *most ? cost : *most;
		emptied = magazine;
	}
	return emptied;
}

/* Drains everything that is leaving, and frees all these magazines. */
static __attribute__((noinline)) void see_off_leaving(struct depot *depot)
{
	struct magazine *magazine;

	while ((magazine = pop_leaving(depot, NULL))) {
		if (magazine->count)
			(void)depot_drain(depot, magazine);
		free_magazine(magazine);
	}
}

static void see_off(struct depot *depot)
{
	if (has_leaving(depot))
		see_off_leaving(depot);
}

/* What happens to a magazine that comes back. */
enum arrival {
	KEPT,     /* it waits */
	GATHERED, /* it waits for others, to go to the slabs with them */
	PLENTY_GATHERED,
	REFUSED /* it stays with the caller */
};

/* With the lock. */
static enum arrival arrive(struct depot *depot, struct magazine *magazine)
{
	if (has_room(depot, magazine) &&
	    (!magazine->count || (depot->empty_count && !gathers(depot)) || waits_for_more(depot))) {
		if (magazine->count)
			push_filled(depot, magazine);
		else
			push_empty(depot, magazine);
		return KEPT;
	}
	bool gathered = magazine->count && !depot_is_stale(depot, magazine) && gathers(depot);

	depot->refused += magazine->count - magazine->marks;
	if (!gathered)
		return REFUSED;
	depot->objects += magazine->count - magazine->marks;
	push_leaving(depot, magazine);
	return depot->leaving_objects + depot->capacity > DEPOT_PORTION ? PLENTY_GATHERED : GATHERED;
}

struct magazine *depot_take_filled(struct depot *depot, struct magazine *empty)
{
	lock_depot(depot);
	struct magazine *filled = pop_filled(depot);
	bool kept = filled && empty && has_room(depot, empty);

	if (!__atomic_load_n(&depot->served, __ATOMIC_RELAXED))
		__atomic_store_n(&depot->served, true, __ATOMIC_RELAXED);
	/* Without a filled one a refill from the slabs follows. */
	if (!filled)
		count_missed(depot, depot->batch);
	if (kept)
		push_empty(depot, empty);
	note_use(depot);
	cpuslab_spin_unlock(&depot->lock);
	if (filled)
		count_out(depot, (unsigned)filled->count - filled->marks);
	if (filled && empty && !kept)
		free_magazine(empty);
	return filled;
}

/* Drains a batch of what has gathered.  Returns an empty magazine, or NULL. */
static struct magazine *drain_batch(struct depot *depot)
{
	uint64_t most = DEPOT_PORTION;
	struct magazine *emptied = drain_leaving(depot, &most);

	if (!emptied || !depot_is_stale(depot, emptied))
		return emptied;
	free_magazine(emptied);
	return NULL;
}

struct magazine *depot_take_empty(struct depot *depot, struct magazine *filled)
{
	unsigned objects = filled ? filled->count - filled->marks : 0;

	lock_depot(depot);
	enum arrival arrival = filled ? arrive(depot, filled) : KEPT;
	struct magazine *empty = arrival == PLENTY_GATHERED ? NULL : pop_empty(depot);

	cpuslab_spin_unlock(&depot->lock);
	count_in(depot, objects);
	if (arrival == PLENTY_GATHERED)
		empty = drain_batch(depot);
	if (arrival == REFUSED) {
		(void)depot_drain(depot, filled);
		/* Now that it is empty, it is what the caller wants. */
		if (!empty && !depot_is_stale(depot, filled))
			return filled;
		free_magazine(filled);
	}
	return empty ? empty : new_magazine(depot);
}

void depot_put(struct depot *depot, struct magazine *magazine)
{
	unsigned objects = magazine->count - magazine->marks;

	lock_depot(depot);
	enum arrival arrival = arrive(depot, magazine);

	cpuslab_spin_unlock(&depot->lock);
	count_in(depot, objects);
	if (arrival == PLENTY_GATHERED)
		magazine = drain_batch(depot);
	if (arrival == REFUSED && magazine->count)
		(void)depot_drain(depot, magazine);
	if (arrival >= PLENTY_GATHERED && magazine)
		free_magazine(magazine);
}

void depot_put_to_leave(struct depot *depot, struct magazine *magazine)
{
	unsigned objects = magazine->count - magazine->marks;

	lock_depot(depot);
	if (arrive(depot, magazine) == REFUSED) {
		depot->objects += objects;
		push_leaving(depot, magazine);
	}
	cpuslab_spin_unlock(&depot->lock);
	count_in(depot, objects);
}

void depot_dissolve(struct depot *depot, struct magazine *magazine)
{
	unsigned objects = magazine->count - magazine->marks;

	if (magazine->count)
		(void)depot_drain(depot, magazine);
	count_in(depot, objects);
	free_magazine(magazine);
}

/*
 * Takes one object; a mark above it is dropped, which loses one sample.  The magazine is in hand meanwhile,
 * so that a forked child has all of it or nothing, never one with half-changed counts, or an empty one among
 * the filled.  With the lock.
 */
static void *pop_object(struct depot *depot)
{
	struct magazine *magazine = pop_filled(depot);

	if (!magazine)
		return NULL;
	bool marked;
	void *object = depot_pop_in_hand(magazine, &marked);

	if (magazine->count)
		push_filled(depot, magazine);
	else if (depot_is_stale(depot, magazine))
		push_leaving(depot, magazine);
	else
		push_empty(depot, magazine);
	return object;
}

void *depot_try_alloc(struct depot *depot)
{
	void *object = NULL;

	if (cpuslab_spin_trylock(&depot->lock)) {
		depot->lock_acquires++;
		object = pop_object(depot);
		cpuslab_spin_unlock(&depot->lock);
	}
	if (!object && (object = slab_try_alloc(&depot->slabs)))
		count_taken(depot, 1);
	if (object)
		count_out(depot, 1);
	return object;
}

void *depot_alloc_one(struct depot *depot)
{
	void *object;

	if (!slab_alloc_batch(&depot->slabs, &object, 1))
		return NULL;
	count_taken(depot, 1);
	count_out(depot, 1);
	return object;
}

void depot_free_one(struct depot *depot, void *object)
{
	slab_free_batch(&depot->slabs, &object, 1);
	count_taken(depot, -1);
	count_in(depot, 1);
}

bool depot_refill(struct depot *depot, struct magazine *magazine)
{
	unsigned batch = __atomic_load_n(&depot->batch, __ATOMIC_RELAXED);

	/* The magazine may be older than a change of the tunables. */
	if (batch > magazine->capacity)
		batch = magazine->capacity;

	assert(magazine->count == 0);
	magazine->count = (uint16_t)slab_alloc_batch(&depot->slabs, &magazine->slot[1], batch);
	__atomic_fetch_add(&depot->refills, 1, __ATOMIC_RELAXED);
	count_taken(depot, magazine->count);
	count_out(depot, magazine->count);
	ARCH_PROBE("refill", (uintptr_t)depot->slabs.traits.name, magazine->count);
	return magazine->count > 0;
}

/* Lets up to `filled` filled magazines and all but `keep` empty ones leave.  With the lock. */
static void let_leave(struct depot *depot, uint32_t filled, uint32_t keep)
{
	for (; filled > 0 && depot->filled_count; filled--) {
		push_leaving(depot, pop_near(depot->filled));
		depot->filled_count--;
	}
	let_empty_leave(depot, keep);
	depot->filled_low = depot->filled_count;
}

bool depot_tune(struct depot *depot, const struct depot_tunables *tunables)
{
	assert(tunables->batchcount > 0 && tunables->batchcount <= tunables->limit &&
	       tunables->limit <= DEPOT_CAPACITY_MAX);
	lock_depot(depot);
	bool resized = tunables->limit != depot->capacity || !depot_has_one_capacity(depot);

	__atomic_store_n(&depot->capacity_least, (uint16_t)tunables->limit, __ATOMIC_RELAXED);
	__atomic_store_n(&depot->capacity_most, (uint16_t)tunables->limit, __ATOMIC_RELAXED);
	__atomic_store_n(&depot->capacity, (uint16_t)tunables->limit, __ATOMIC_RELAXED);
	__atomic_store_n(&depot->batch, (uint16_t)tunables->batchcount, __ATOMIC_RELAXED);
	set_sharedfactor(depot, tunables->sharedfactor);
	uint32_t surplus =
		depot->filled_count > depot->filled_most ? depot->filled_count - depot->filled_most : 0;

	let_leave(depot, resized ? UINT32_MAX : surplus, resized ? 0 : 1);
	cpuslab_spin_unlock(&depot->lock);
	see_off(depot);
	return resized;
}

struct depot_tunables depot_tunables(struct depot *depot)
{
	lock_depot(depot);
	struct depot_tunables tunables = {depot->capacity_most, depot->batch, depot->sharedfactor};

	if (!depot_has_one_capacity(depot))
		tunables.batchcount = choose_batch(depot->slabs.traits.size, depot->capacity_most);

	cpuslab_spin_unlock(&depot->lock);
	return tunables;
}

/*
 * Larger magazines make misses rarer, but hold more objects that nobody uses.  There are two ways to earn
 * them: so many objects in use that those in all vCPUs' magazines are but a part of them, a smaller part
 * beyond the largest magazine that a cache begins with; or so many recent misses that they take a share of
 * the time, where twice the bytes need twice the misses.
 */
static bool earns_more(const struct depot *depot)
{
	if (depot->capacity >= depot->capacity_most)
		return false;
	uint32_t next = larger(depot->capacity);
	uint64_t bytes = (uint64_t)next * depot->slabs.traits.size;
	uint64_t plenty = next > capacity_of(FIRST_BLOCK) ? PLENTY_BEYOND_FIRST : PLENTY;

	return depot->most_in_use >= plenty * next * vcpu_areas() ||
	       (uint64_t)depot->misses * DEPOT_MISSES * BYTES_PER_MISS >= bytes;
}

void depot_count_misses(struct depot *depot)
{
	if (depot_has_one_capacity(depot))
		return;
	lock_depot(depot);
	depot->misses++;
	note_use(depot);
	if (earns_more(depot)) {
		set_capacity(depot, larger(depot->capacity));
		let_empty_leave(depot, 0);
	}
	cpuslab_spin_unlock(&depot->lock);
	see_off(depot);
}

void depot_tick(struct depot *depot)
{
	if (depot_has_one_capacity(depot))
		return;
	lock_depot(depot);
	if (depot->misses || depot->capacity == depot->capacity_least) {
		depot->idle_ticks = 0;
	} else if (++depot->idle_ticks == IDLE_TICKS) {
		set_capacity(depot, smaller(depot->capacity));
		depot->shrunk = true;
	}
	depot->misses /= 2;
	depot->most_in_use = in_use(depot);
	cpuslab_spin_unlock(&depot->lock);
}

/*
 * Returns how many filled magazines were not needed since the last look, and ends that period.  Without the
 * lock: what comes and goes meanwhile counts for the next one.
 */
static uint32_t end_look(struct depot *depot, bool pages_wanted)
{
	bool served = __atomic_exchange_n(&depot->served, false, __ATOMIC_RELAXED);

	if (depot->shrunk)
		return UINT32_MAX;
	return __atomic_load_n(pages_wanted && !served ? &depot->filled_count : &depot->filled_low,
			       __ATOMIC_RELAXED);
}

uint64_t depot_age(struct depot *depot, bool pages_wanted)
{
	/* A glance without the lock: most depots hold nothing. */
	uint32_t unneeded = end_look(depot, pages_wanted);

	if (!unneeded && !has_leaving(depot) && __atomic_load_n(&depot->empty_count, __ATOMIC_RELAXED) <= 1) {
		__atomic_store_n(&depot->filled_low, __atomic_load_n(&depot->filled_count, __ATOMIC_RELAXED),
				 __ATOMIC_RELAXED);
		return 0;
	}
	lock_depot(depot);
	let_leave(depot, unneeded, depot->shrunk ? 0 : 1);
	uint64_t leaving = depot->leaving_objects;

	if (!pages_wanted && has_leaving(depot))
		depot->departs = true;
	depot->shrunk = false;
	cpuslab_spin_unlock(&depot->lock);
	if (pages_wanted)
		see_off(depot);
	return leaving;
}

uint64_t depot_ebb(struct depot *depot)
{
	lock_depot(depot);
	uint64_t objects = depot->objects, elsewhere = in_use(depot);

	depot->scarce = elsewhere < (uint64_t)DEPOT_SCARCE * usual_capacity(depot) * vcpu_areas();
	depot->stay = depot->scarce ? 0 : elsewhere;
	depot->departs = depot->ebbs = true;
	cpuslab_spin_unlock(&depot->lock);
	return objects > depot->stay ? objects - depot->stay : 0;
}

/* Lets go of the few empty magazines that were kept during the ebb, all at once. */
static void end_departure(struct depot *depot)
{
	if (depot->ebbs) {
		lock_depot(depot);
		let_empty_leave(depot, depot->scarce ? 0 : 1);
		cpuslab_spin_unlock(&depot->lock);
		see_off(depot);
		if (!__atomic_load_n(&depot->slabs.allocated, __ATOMIC_RELAXED))
			slab_cache_shrink(&depot->slabs);
	}
	__atomic_store_n(&depot->ebbs, false, __ATOMIC_RELAXED);
	__atomic_store_n(&depot->departs, false, __ATOMIC_RELAXED);
}

uint64_t depot_depart(struct depot *depot, uint64_t most)
{
	if (!__atomic_load_n(&depot->departs, __ATOMIC_RELAXED))
		return most;
	struct magazine *emptied = drain_leaving(depot, &most);

	if (emptied)
		free_magazine(emptied);
	if (most)
		end_departure(depot);
	return most;
}

void depot_empty(struct depot *depot)
{
	lock_depot(depot);
	let_leave(depot, UINT32_MAX, 0);
	cpuslab_spin_unlock(&depot->lock);
	see_off(depot);
	slab_cache_shrink(&depot->slabs);
}

void depot_statistics(struct depot *depot, struct depot_statistics *statistics)
{
	lock_depot(depot);
	*statistics = (struct depot_statistics){
		.filled = depot->filled_count,
		.empty = depot->empty_count,
		.objects = depot->objects,
		.refills = depot->refills,
		.drains = depot->drains,
		.lock_acquires = depot->lock_acquires,
	};
	cpuslab_spin_unlock(&depot->lock);
}

static uint64_t objects_on_stack(uint32_t head, uint32_t *count)
{
	uint64_t objects = 0;

	for (struct magazine *magazine; (magazine = magazine_of(head)); head = magazine->next) {
		++*count;
		objects += magazine->count - magazine->marks;
	}
	return objects;
}

void depot_repair(struct depot *depot, bool all)
{
	uint32_t leaving = 0;

	if (!depot_is_torn(depot) && !all)
		return;
	cpuslab_spin_reset(&depot->lock);
	depot->filled_low = 0;
	depot->filled_count = depot->empty_count = 0;
	depot->objects = depot->leaving_objects = objects_on_stack(depot->leaving, &leaving);
	for (unsigned home = 0; home < DEPOT_HOMES; home++) {
		depot->objects += objects_on_stack(depot->filled[home], &depot->filled_count);
		(void)objects_on_stack(depot->empty[home], &depot->empty_count);
	}
}
