/* SPDX-License-Identifier: MIT */
#include "page/page.h"

#include "cpuslab/lock.h"
#include "page/layout.h"
#include "page/metadata.h"

/*
 * Blocks in multiples of METADATA_UNIT, cut from the region's end and kept by size when they come back.
 * A free block's first word links to the next one; taking and giving each commit by one store of the list's
 * head, so that a forked child finds the lists whole even if the lock was held.
 */
enum {
	KEPT_UNITS = METADATA_REUSED_MOST / METADATA_UNIT,
	FLOOR = 128 << 10,
	POPULATE_FROM = 512 << 10,
	POPULATE_BYTES = 64 << 10
};

static struct cpuslab_spinlock metadata_lock = CPUSLAB_SPINLOCK_INITIALIZER;
static void **kept[KEPT_UNITS + 1];
static size_t used;
static size_t provided;  /* bytes that are for small blocks, as far as the heap's size has asked for them */
static size_t large;     /* bytes in blocks that are never reused */
static size_t populated; /* up to here pages are there, or were left to be touched */

static void keep(void **block, size_t units)
{
	*block = kept[units];
	__atomic_store_n(&kept[units], block, __ATOMIC_RELEASE);
}

/* When the system gives no more: the front of a larger block that came back.  With the lock. */
static void **split_kept(size_t units)
{
	for (size_t larger = units + 1; larger <= KEPT_UNITS; larger++) {
		void **block = kept[larger];

		if (block) {
			__atomic_store_n(&kept[larger], *block, __ATOMIC_RELEASE);
			keep(block + units * METADATA_UNIT / sizeof *block, larger - units);
			return block;
		}
	}
	return NULL;
}

/*
 * A new magazine is written whole, in the middle of somebody's free: the page fault would be most of what
 * that call takes.  So where programs have had many small blocks, the pages of the next ones come a few at a
 * time, and one call in several pays.  What is large is not always used whole, and small programs should stay
 * small.
 */
static void populate_for(size_t start, size_t end)
{
	size_t from = (start + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);
	size_t to = (end + POPULATE_BYTES - 1) & ~(size_t)(POPULATE_BYTES - 1);

	if (end <= populated || start < POPULATE_FROM)
		return;
	if (end - start > KEPT_UNITS * METADATA_UNIT || to > layout.metadata.committed) {
		populated = end;
		return;
	}
	if (from < populated)
		from = populated;
	(void)os_populate(layout.metadata.base + from, to - from);
	populated = to;
}

/*
 * What vCPU areas take comes on top of what was provided: a program with a thread slot for each of many
 * threads would find none left, when the heap has taken all the rest, for the descriptors of its last slabs.
 */
static bool add_large(size_t bytes)
{
	if (!region_grow(&layout.metadata, provided + large + bytes))
		return false;
	large += bytes;
	return true;
}

/* With the lock. */
static void **alloc_locked(size_t units)
{
	if (units <= KEPT_UNITS && kept[units]) {
		void **block = kept[units];

		__atomic_store_n(&kept[units], *block, __ATOMIC_RELEASE);
		return block;
	}
	/* Unit 0 stays unused: reference 0 means none. */
	size_t bytes = units * METADATA_UNIT, start = used ? used : METADATA_UNIT, end = start + bytes;

	if (!region_grow(&layout.metadata, end) || (units > KEPT_UNITS && !add_large(bytes)))
		return split_kept(units);
	populate_for(start, end);
	__atomic_store_n(&used, end, __ATOMIC_RELEASE);
	return (void **)(layout.metadata.base + start);
}

static size_t units_for(size_t bytes)
{
	return (bytes + METADATA_UNIT - 1) / METADATA_UNIT;
}

void *metadata_alloc(size_t bytes)
{
	cpuslab_spin_lock(&metadata_lock);
	void *block = alloc_locked(units_for(bytes));

	cpuslab_spin_unlock(&metadata_lock);
	return block;
}

void *metadata_try_alloc(size_t bytes)
{
	if (!cpuslab_spin_trylock(&metadata_lock))
		return NULL;
	void *block = alloc_locked(units_for(bytes));

	cpuslab_spin_unlock(&metadata_lock);
	return block;
}

void metadata_free(void *address, size_t bytes)
{
	size_t units = units_for(bytes);
	void **block = address;

	if (units > KEPT_UNITS)
		return;
	cpuslab_spin_lock(&metadata_lock);
	keep(block, units);
	cpuslab_spin_unlock(&metadata_lock);
}

bool metadata_provide(size_t heap_bytes)
{
	/* A slab of the smallest objects has a descriptor of a 13th of its size; most have far less. */
	size_t bytes = FLOOR + heap_bytes / 32;

	cpuslab_spin_lock(&metadata_lock);
	bool grown = region_grow(&layout.metadata, large + bytes);

	if (grown && bytes > provided)
		provided = bytes;
	cpuslab_spin_unlock(&metadata_lock);
	return grown;
}

void metadata_repair(void)
{
	if (cpuslab_spin_is_locked(&metadata_lock))
		cpuslab_spin_reset(&metadata_lock);
}

void metadata_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("metadata.used", (uintptr_t)&used, sizeof used);
}

size_t metadata_bytes(void)
{
	return __atomic_load_n(&used, __ATOMIC_RELAXED);
}
