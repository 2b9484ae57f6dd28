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
enum { KEPT_UNITS = 64 };

static struct cpuslab_spinlock metadata_lock = CPUSLAB_SPINLOCK_INITIALIZER;
static void **kept[KEPT_UNITS + 1];
static size_t used;

void *metadata_alloc(size_t bytes)
{
	size_t units = (bytes + METADATA_UNIT - 1) / METADATA_UNIT;
	void **block = NULL;

	cpuslab_spin_lock(&metadata_lock);
	if (units <= KEPT_UNITS && kept[units]) {
		block = kept[units];
		__atomic_store_n(&kept[units], *block, __ATOMIC_RELEASE);
	} else {
		/* Unit 0 stays unused: reference 0 means none. */
		size_t start = used ? used : METADATA_UNIT, end = start + units * METADATA_UNIT;

		if (region_grow(&layout.metadata, end)) {
			__atomic_store_n(&used, end, __ATOMIC_RELEASE);
			block = (void **)(layout.metadata.base + start);
		}
	}
	cpuslab_spin_unlock(&metadata_lock);
	return block;
}

void metadata_free(void *address, size_t bytes)
{
	size_t units = (bytes + METADATA_UNIT - 1) / METADATA_UNIT;
	void **block = address;

	if (units > KEPT_UNITS)
		return;
	cpuslab_spin_lock(&metadata_lock);
	*block = kept[units];
	__atomic_store_n(&kept[units], block, __ATOMIC_RELEASE);
	cpuslab_spin_unlock(&metadata_lock);
}

void metadata_repair(void)
{
	if (cpuslab_spin_is_locked(&metadata_lock))
		cpuslab_spin_reset(&metadata_lock);
}

size_t metadata_bytes(void)
{
	return __atomic_load_n(&used, __ATOMIC_RELAXED);
}
