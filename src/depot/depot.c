/* SPDX-License-Identifier: MIT */
#include "depot/depot.h"

#include <assert.h>

#include "page/page.h"

/* Blocks of powers of two, of which the header and the two sentinels take five words. */
enum {
	SMALLEST_BLOCK = 64,
	LARGEST_BLOCK = 2048,
	OVERHEAD_WORDS = 5,
	HOARD_BYTES = 64 << 10,
	BATCH_BYTES = 8 << 10,
	SMALLEST_BATCH = 4
};

static size_t block_bytes(unsigned capacity)
{
	return (capacity + OVERHEAD_WORDS) * sizeof(void *);
}

/* As many objects as make up HOARD_BYTES, but 3 at least: a magazine of one block or another. */
static uint16_t choose_capacity(uint32_t size)
{
	size_t block = LARGEST_BLOCK;

	while (block > SMALLEST_BLOCK && (block / sizeof(void *) - OVERHEAD_WORDS) * size > 2 * HOARD_BYTES)
		block /= 2;
	return (uint16_t)(block / sizeof(void *) - OVERHEAD_WORDS);
}

void depot_init(struct depot *depot, const struct slab_traits *traits, uint16_t capacity)
{
	assert(capacity <= DEPOT_CAPACITY_MAX);
	*depot = (struct depot){.capacity = capacity ? capacity : choose_capacity(traits->size)};
	slab_cache_init(&depot->slabs, traits);
}

static void lock_depot(struct depot *depot)
{
	cpuslab_spin_lock(&depot->lock);
	depot->lock_acquires++;
}

/* One store of the head each way: whatever instant a fork catches, the stack is whole. */
static void stack_push(struct magazine **head, struct magazine *magazine)
{
	magazine->next = *head;
	__atomic_store_n(head, magazine, __ATOMIC_RELEASE);
}

static struct magazine *stack_pop(struct magazine **head)
{
	struct magazine *magazine = *head;

	if (magazine)
		__atomic_store_n(head, magazine->next, __ATOMIC_RELEASE);
	return magazine;
}

static void push_filled(struct depot *depot, struct magazine *magazine)
{
	stack_push(&depot->filled, magazine);
	depot->filled_count++;
}

static struct magazine *pop_filled(struct depot *depot)
{
	struct magazine *magazine = stack_pop(&depot->filled);

	if (magazine && --depot->filled_count < depot->filled_low)
		depot->filled_low = depot->filled_count;
	return magazine;
}

static struct magazine *pop_empty(struct depot *depot)
{
	struct magazine *magazine = stack_pop(&depot->empty);

	if (magazine)
		depot->empty_count--;
	return magazine;
}

static void push_empty(struct depot *depot, struct magazine *magazine)
{
	stack_push(&depot->empty, magazine);
	depot->empty_count++;
}

static struct magazine *new_magazine(const struct depot *depot)
{
	struct magazine *magazine = metadata_alloc(block_bytes(depot->capacity));

	if (!magazine)
		return NULL;
	magazine->capacity = depot->capacity;
	magazine->count = 0;
	magazine->self = magazine_end_mark(magazine);
	magazine->slot[0] = NULL;
	magazine->slot[magazine->capacity + 1] = (void *)magazine_end_mark(magazine);
	/* A fresh block reads as zero, a reused one holds anything: no end mark may stand in the slots. */
	for (unsigned i = 1; i <= magazine->capacity; i++)
		magazine->slot[i] = NULL;
	return magazine;
}

static void free_magazine(struct magazine *magazine)
{
	metadata_free(magazine, block_bytes(magazine->capacity));
}

struct magazine *depot_take_filled(struct depot *depot, struct magazine *empty)
{
	lock_depot(depot);
	struct magazine *filled = pop_filled(depot);

	if (filled && empty)
		push_empty(depot, empty);
	cpuslab_spin_unlock(&depot->lock);
	return filled;
}

struct magazine *depot_take_empty(struct depot *depot, struct magazine *filled)
{
	lock_depot(depot);
	if (filled)
		push_filled(depot, filled);
	struct magazine *empty = pop_empty(depot);

	cpuslab_spin_unlock(&depot->lock);
	return empty ? empty : new_magazine(depot);
}

void depot_put(struct depot *depot, struct magazine *magazine)
{
	lock_depot(depot);
	if (magazine->count)
		push_filled(depot, magazine);
	else
		push_empty(depot, magazine);
	cpuslab_spin_unlock(&depot->lock);
}

bool depot_refill(struct depot *depot, struct magazine *magazine)
{
	/* Half of the magazine, but not much more memory at once than the program is likely to want soon. */
	unsigned batch = BATCH_BYTES / depot->slabs.traits.size;

	if (batch < SMALLEST_BATCH)
		batch = SMALLEST_BATCH;
	if (batch > (magazine->capacity + 1u) / 2)
		batch = (magazine->capacity + 1u) / 2;

	assert(magazine->count == 0);
	magazine->count = (uint16_t)slab_alloc_batch(&depot->slabs, &magazine->slot[1], batch);
	__atomic_fetch_add(&depot->refills, 1, __ATOMIC_RELAXED);
	return magazine->count > 0;
}

void depot_drain(struct depot *depot, struct magazine *magazine)
{
	slab_free_batch(&depot->slabs, &magazine->slot[1], magazine->count);
	magazine->count = 0;
	__atomic_fetch_add(&depot->drains, 1, __ATOMIC_RELAXED);
}

/* Takes `filled` filled magazines and all empty ones but `keep` off the stacks, and gives them back. */
static void give_back(struct depot *depot, uint32_t filled, uint32_t keep)
{
	struct magazine *taken = NULL;

	lock_depot(depot);
	while (filled-- > 0 && depot->filled)
		stack_push(&taken, pop_filled(depot));
	while (depot->empty_count > keep)
		stack_push(&taken, pop_empty(depot));
	depot->filled_low = depot->filled_count;
	cpuslab_spin_unlock(&depot->lock);

	while (taken) {
		struct magazine *magazine = stack_pop(&taken);

		if (magazine->count)
			depot_drain(depot, magazine);
		free_magazine(magazine);
	}
}

bool depot_age(struct depot *depot)
{
	/* A glance without the lock: most depots hold nothing. */
	uint32_t unneeded = __atomic_load_n(&depot->filled_low, __ATOMIC_RELAXED);

	if (!unneeded && __atomic_load_n(&depot->empty_count, __ATOMIC_RELAXED) <= 1) {
		__atomic_store_n(&depot->filled_low, __atomic_load_n(&depot->filled_count, __ATOMIC_RELAXED),
				 __ATOMIC_RELAXED);
		return false;
	}
	give_back(depot, unneeded, 1);
	return unneeded > 0;
}

void depot_empty(struct depot *depot)
{
	give_back(depot, UINT32_MAX, 0);
	slab_cache_shrink(&depot->slabs);
}

void depot_statistics(struct depot *depot, struct depot_statistics *statistics)
{
	lock_depot(depot);
	*statistics = (struct depot_statistics){
		.filled = depot->filled_count,
		.empty = depot->empty_count,
		.refills = depot->refills,
		.drains = depot->drains,
		.lock_acquires = depot->lock_acquires,
	};
	for (const struct magazine *magazine = depot->filled; magazine; magazine = magazine->next)
		statistics->objects += magazine->count;
	cpuslab_spin_unlock(&depot->lock);
}

void depot_repair(struct depot *depot)
{
	if (!cpuslab_spin_is_locked(&depot->lock))
		return;
	cpuslab_spin_reset(&depot->lock);
	depot->filled_count = depot->empty_count = depot->filled_low = 0;
	for (const struct magazine *magazine = depot->filled; magazine; magazine = magazine->next)
		depot->filled_count++;
	for (const struct magazine *magazine = depot->empty; magazine; magazine = magazine->next)
		depot->empty_count++;
}
