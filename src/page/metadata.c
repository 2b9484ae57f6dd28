/* SPDX-License-Identifier: MIT */
#include "page/page.h"

#include <assert.h>
#include <string.h>

#include "arch/probe.h"
#include "cpuslab/lock.h"
#include "options/options.h"
#include "page/layout.h"
#include "page/metadata.h"

/*
 * Blocks of up to a page are cut from pages in units, and none crosses a page boundary.  Which units of a
 * page are free is kept in a record beside it (struct metadata_page), never in the free units: so blocks of
 * all sizes reuse what others have freed, and an empty page can go back to the system.  Pages with free units
 * are in lists by the longest row of these, and the fullest page that will do serves first, so that the
 * others become empty.
 *
 * Larger blocks are cut from the region's end and never reused.
 *
 * Readers of freed blocks, which may read as zero by now.  First, a restartable section that has loaded a
 * word and reads a slot of the magazine that it led to.  That magazine left the word by another section on
 * this vCPU, or behind a fence: the reading section is aborted before it stores anything, whatever it read.
 * Second, readers of other vCPUs' words (magazine/glance.c), and of another process's: a magazine without an
 * end mark, or of no objects, counts as none.  Third, the free of a pointer whose slab has gone, which found
 * the slab's descriptor in slab_of just before: a freed descriptor belongs to no cache, which is what free
 * checks first.  The region stays mapped, so that all of them read something.
 *
 * Fork.  The set of free units changes by one store for each block; the lists follow from it
 * (metadata_repair).
 */
enum {
	FLOOR = 128 << 10,
	POPULATE_FROM = 512 << 10,
	POPULATE_BYTES = 64 << 10,
	POPULATE_PAGES = POPULATE_BYTES >> PAGE_SHIFT,
	/* Lists by longest row of free units: none for 0, list 1 for 1, 2 for 2 to 3, 3 for 4 to 7 ... */
	IN_NO_LIST = 0,
	IDLE = 7,  /* all units are free */
	GIVEN = 8, /* and the page is the system's until it is touched */
	LISTS,
	LOOKS = 8,
	IDLE_KEPT = 8,   /* pages that may always stay idle */
	GATHERED = 16,   /* pages that accumulate in an ebb before a purge */
	GIVEN_MOST = 4,  /* ranges at a time, each a system call */
	OMITTED_ROW = 16 /* pages that core dumps leave out together */
};
_Static_assert(METADATA_UNIT *METADATA_PAGE_UNITS == PAGE_BYTES, "a bit for each unit");
_Static_assert((int)METADATA_REUSED_MOST == PAGE_BYTES, "what is larger is in no list");

static const uint64_t ALL = ~(uint64_t)0;

static struct cpuslab_spinlock metadata_lock = CPUSLAB_SPINLOCK_INITIALIZER;
/*
 * Pages count from the region's start; the first one has no units in any list, so that reference 0 and page 0
 * mean none.
 */
static struct metadata_page near_pages[METADATA_NEAR_PAGES];
static uint32_t heads[LISTS];
static size_t end;        /* bytes of the region that blocks and pages were cut from */
static size_t used;       /* bytes among them that were not given back */
static size_t provided;   /* bytes meant for small blocks, as the heap's size has asked for them */
static size_t large;      /* bytes in blocks that are never reused */
static size_t populated;  /* up to here pages are resident, or were left to be touched */
static uint32_t idle;     /* number of idle pages */
static uint32_t idle_low; /* fewest idle pages since the last look */
static uint32_t overdue;  /* idle pages that were not needed between two looks */
static bool ebbing;       /* set by metadata_ebb() until a page is taken */
static char *lasting;     /* what the next lasting blocks are cut from, from its end */
static size_t lasting_bytes;
static size_t lasting_block; /* size of the next such stretch */

/* Static, so that a forked child finds the pages that were on their way to the system. */
static struct giving {
	unsigned count, given; /* number of ranges, and of those that the system took */
	struct os_range ranges[OS_RANGES];
} giving ARCH_SPARSE;

/* Most programs need near pages only; noinline, since the call takes less code than the body. */
static __attribute__((noinline)) struct metadata_page *page_at(uint32_t number)
{
	return number < METADATA_NEAR_PAGES
		       ? &near_pages[number]
		       : (struct metadata_page *)layout.pages.base + (number - METADATA_NEAR_PAGES);
}

static uint32_t page_count(void)
{
	return (uint32_t)(end >> PAGE_SHIFT);
}

static uint32_t page_number(const void *address)
{
	return (uint32_t)((size_t)((const char *)address - layout.metadata.base) >> PAGE_SHIFT);
}

static char *address_of(uint32_t number)
{
	return layout.metadata.base + ((size_t)number << PAGE_SHIFT);
}

/* ---- lists: with the lock ------------------------------------------------------------------------------ */

/* Returns 1 + log2 of the longest row of free units; 0 if none is free. */
static __attribute__((noinline)) unsigned list_for(uint64_t free)
{
	unsigned list = IN_NO_LIST;

	/* Round n leaves bit i set if 2^n units from unit i on are free. */
	while (free) {
		if (++list == IDLE)
			break;
		free &= free >> (1u << (list - 1));
	}
	return list;
}

static unsigned list_of(const struct metadata_page *page)
{
	return page->given ? GIVEN : list_for(page->free);
}

static void leave(const struct metadata_page *page, unsigned list)
{
	if (page->next)
		page_at(page->next)->previous = page->previous;
	if (page->previous)
		page_at(page->previous)->next = page->next;
	else
		heads[list] = page->next;
}

static void enter(struct metadata_page *page, uint32_t number, unsigned list)
{
	uint32_t next = heads[list];

	page->next = next;
	page->previous = 0;
	if (next)
		page_at(next)->previous = number & (UINT32_MAX >> 2);
	heads[list] = number;
}

/* Sets which units of a page are free, and whether the page is the system's. */
static __attribute__((noinline)) void set_free(uint32_t number, uint64_t free, bool given)
{
	struct metadata_page *page = page_at(number);
	unsigned from = list_of(page), to = given ? GIVEN : list_for(free);

	/*
	 * One store, so a fork at any instant finds it whole; the lock is held, so the child rebuilds the
	 * lists.
	 */
	__atomic_store_n(&page->free, free, __ATOMIC_RELEASE);
	page->given = given;
	if (from == to)
		return;
	if (from)
		leave(page, from);
	if (to)
		enter(page, number, to);
	idle += (to == IDLE) - (from == IDLE);
	if (idle < idle_low)
		idle_low = idle;
	if (from == GIVEN || to == GIVEN)
		__atomic_store_n(&used, from == GIVEN ? used + PAGE_BYTES : used - PAGE_BYTES,
				 __ATOMIC_RELAXED);
}

static uint64_t units_from(unsigned first, unsigned units)
{
	return ALL >> (METADATA_PAGE_UNITS - units) << first;
}

/* Returns a bit for each unit at which a row of `units` free ones starts. */
static uint64_t starts(uint64_t free, unsigned units)
{
	for (unsigned row = 1, more; row < units; row += more) {
		more = row < units - row ? row : units - row;
		free &= free >> more;
	}
	return free;
}

/* Returns a page with a row of `units` free units; 0 for none. */
static uint32_t find(unsigned units)
{
	unsigned list = 32 - (unsigned)__builtin_clz(units);
	uint32_t number = heads[list];

	for (unsigned looks = LOOKS; number && looks; looks--, number = page_at(number)->next)
		if (starts(page_at(number)->free, units))
			return number;
	while (++list < LISTS)
		if (heads[list])
			return heads[list];
	return 0;
}

/* ---- blocks -------------------------------------------------------------------------------------------- */

/* Sets whether core dumps leave out a row of pages. */
static void omit(uint32_t row, bool out)
{
	if (os_dump(address_of(row), (size_t)OMITTED_ROW << PAGE_SHIFT, !out) != 0)
		return;
	for (uint32_t number = row; number < row + OMITTED_ROW; number++)
		page_at(number)->omitted = out;
}

/* Leaves out the rows of these pages, just given, in which all are. */
static void omit_given(uint32_t first, uint32_t pages)
{
	for (uint32_t row = first - first % OMITTED_ROW; row < first + pages; row += OMITTED_ROW) {
		uint32_t number = row;

		while (number < row + OMITTED_ROW && number < page_count() && page_at(number)->given)
			number++;
		if (number == row + OMITTED_ROW && !page_at(row)->omitted)
			omit(row, true);
	}
}

/*
 * Populates the pages of the next blocks a few at a time.  A new magazine is written whole, in the middle of
 * a free, and the page fault would be most of what that call takes; this way one call in several pays.  Only
 * where programs have had many small blocks: small programs should stay small, and large blocks are not
 * always used whole.
 */
static __attribute__((noinline)) void populate_for(size_t from, size_t bytes)
{
	size_t to = (from + bytes + POPULATE_BYTES - 1) & ~(size_t)(POPULATE_BYTES - 1);

	if (from + bytes <= populated || from < POPULATE_FROM)
		return;
	if (bytes > PAGE_BYTES || to > layout.metadata.committed) {
		populated = from + bytes;
		return;
	}
	if (from < populated)
		from = populated;
	(void)os_populate(layout.metadata.base + from, to - from);
	populated = to;
}

/* The same for a page that was given back, and for those like it behind it. */
static __attribute__((noinline)) void return_given(uint32_t first)
{
	uint32_t last = first;

	ebbing = false;
	if (page_at(first)->omitted)
		omit(first - first % OMITTED_ROW, false);
	if ((size_t)first << PAGE_SHIFT < POPULATE_FROM)
		return;
	do
		set_free(last, ALL, false);
	while (++last % POPULATE_PAGES && last < page_count() && page_at(last)->given);
	if (last - first > 1)
		(void)os_populate(address_of(first), (size_t)(last - first) << PAGE_SHIFT);
}

/* Makes `bytes` of the region usable, together with their pages' records. */
static __attribute__((noinline)) bool grow(size_t bytes)
{
	size_t pages = (bytes + PAGE_BYTES - 1) >> PAGE_SHIFT;

	if (pages > METADATA_NEAR_PAGES &&
	    !region_grow(&layout.pages, (pages - METADATA_NEAR_PAGES) * sizeof(struct metadata_page)))
		return false;
	return region_grow(&layout.metadata, bytes);
}

/* Sets the region's end, up to which core dumps contain it with its pages' records. */
static void set_end(size_t bytes)
{
	size_t pages = (bytes + PAGE_BYTES - 1) >> PAGE_SHIFT;

	region_show(&layout.metadata, bytes);
	if (pages > METADATA_NEAR_PAGES)
		region_show(&layout.pages, (pages - METADATA_NEAR_PAGES) * sizeof(struct metadata_page));
	__atomic_store_n(&end, bytes, __ATOMIC_RELEASE);
}

/* Adds the rest of the page at the region's end, or the next one; returns 0 when the system has no more. */
static uint32_t add_page(void)
{
	size_t start = end < PAGE_BYTES ? PAGE_BYTES : end;
	uint32_t number = (uint32_t)(start >> PAGE_SHIFT);
	size_t stop = (size_t)(number + 1) << PAGE_SHIFT;

	if (!grow(stop))
		return 0;
	populate_for(start, stop - start);
	__atomic_store_n(&used, used + stop - end, __ATOMIC_RELAXED);
	set_end(stop);
	ebbing = false;
	set_free(number, ALL << start % PAGE_BYTES / METADATA_UNIT, false);
	return number;
}

/* For up to a page. */
static void *alloc_small(unsigned units)
{
	uint32_t number = find(units);

	while (!number) {
		/* The rest of the last page may be too little. */
		if (!add_page())
			return NULL;
		number = find(units);
	}
	if (page_at(number)->given)
		return_given(number);

	uint64_t free = page_at(number)->free;
	unsigned first = (unsigned)__builtin_ctzl(starts(free, units));

	set_free(number, free & ~(units_from(first, units)), false);
	return address_of(number) + first * METADATA_UNIT;
}

/*
 * vCPU areas come on top of what was provided for small blocks: otherwise a program with a thread slot for
 * each of many threads would find no room for the descriptors of its last slabs once the heap has taken all
 * the rest.
 */
static void *alloc_large(size_t bytes)
{
	size_t start = end ? end : METADATA_UNIT;

	if (!grow(start + bytes) || !grow(provided + large + bytes))
		return NULL;
	large += bytes;
	populate_for(start, bytes);
	__atomic_store_n(&used, used + start + bytes - end, __ATOMIC_RELAXED);
	set_end(start + bytes);
	return layout.metadata.base + start;
}

static size_t units_for(size_t bytes)
{
	return (bytes + METADATA_UNIT - 1) / METADATA_UNIT;
}

/* With the lock. */
static void *alloc_locked(size_t bytes)
{
	size_t units = units_for(bytes);

	return units <= METADATA_PAGE_UNITS ? alloc_small((unsigned)units)
					    : alloc_large(units * METADATA_UNIT);
}

void *metadata_alloc(size_t bytes)
{
	cpuslab_spin_lock(&metadata_lock);
	void *block = alloc_locked(bytes);

	cpuslab_spin_unlock(&metadata_lock);
	return block;
}

/* For up to a page.  With the lock. */
static void free_locked(void *block, size_t bytes)
{
	size_t at = (size_t)((char *)block - layout.metadata.base);
	uint64_t freed = units_from((unsigned)(at % PAGE_BYTES / METADATA_UNIT), (unsigned)units_for(bytes));
	uint32_t number = (uint32_t)(at >> PAGE_SHIFT);

	assert(!(page_at(number)->free & freed));
	set_free(number, page_at(number)->free | freed, false);
}

/*
 * Cuts lasting blocks from stretches of which each is twice as large as the one before, up to a page, so that
 * where few are asked for little lies unused.
 */
static void *alloc_lasting(size_t bytes)
{
	size_t size = units_for(bytes) * METADATA_UNIT;

	if (lasting_bytes < size) {
		size_t several = lasting_block > size ? lasting_block : size;
		several -= several % size;
		char *block = alloc_locked(several);

		if (!block)
			return alloc_locked(size);
		if (lasting_bytes)
			free_locked(lasting, lasting_bytes);
		lasting = block;
		lasting_bytes = several;
		lasting_block = 2 * several < PAGE_BYTES ? 2 * several : PAGE_BYTES;
	}
	lasting_bytes -= size;
	return lasting + lasting_bytes;
}

void *metadata_alloc_lasting(size_t bytes, bool waits)
{
	if (waits)
		cpuslab_spin_lock(&metadata_lock);
	else if (!cpuslab_spin_trylock(&metadata_lock))
		return NULL;
	void *block = alloc_lasting(bytes);

	cpuslab_spin_unlock(&metadata_lock);
	return block;
}

void *metadata_try_alloc(size_t bytes)
{
	if (!cpuslab_spin_trylock(&metadata_lock))
		return NULL;
	void *block = alloc_locked(bytes);

	cpuslab_spin_unlock(&metadata_lock);
	return block;
}

void metadata_free(void *block, size_t bytes)
{
	if (units_for(bytes) > METADATA_PAGE_UNITS)
		return;
	cpuslab_spin_lock(&metadata_lock);
	free_locked(block, bytes);
	cpuslab_spin_unlock(&metadata_lock);
}

size_t metadata_end(void)
{
	return __atomic_load_n(&end, __ATOMIC_ACQUIRE);
}

/* With the lock. */
static bool provide_locked(size_t heap_bytes)
{
	/*
	 * A slab of 16-byte objects has a descriptor of a 13th of its size; most need far less.  Only in a
	 * cache of 8-byte objects is it a quarter: a heap full of them has too little.
	 */
	size_t bytes = FLOOR + heap_bytes / 32;
	bool grown = grow(large + bytes);

	if (grown && bytes > provided)
		provided = bytes;
	return grown;
}

bool metadata_provide(size_t heap_bytes)
{
	cpuslab_spin_lock(&metadata_lock);
	bool grown = provide_locked(heap_bytes);

	cpuslab_spin_unlock(&metadata_lock);
	return grown;
}

bool metadata_try_provide(size_t heap_bytes)
{
	if (!cpuslab_spin_trylock(&metadata_lock))
		return false;
	bool grown = provide_locked(heap_bytes);

	cpuslab_spin_unlock(&metadata_lock);
	return grown;
}

void metadata_shrink(void)
{
	cpuslab_spin_lock(&metadata_lock);
	region_shrink(&layout.metadata, end > provided + large ? end : provided + large);
	if (populated > layout.metadata.committed)
		populated = layout.metadata.committed;
	cpuslab_spin_unlock(&metadata_lock);
}

/* ---- what goes back to the system ---------------------------------------------------------------------- */

/* Returns how many idle pages are too many.  A stale answer does no harm. */
static uint32_t surplus(void)
{
	uint32_t are = __atomic_load_n(&idle, __ATOMIC_RELAXED);
	uint32_t old = __atomic_load_n(&overdue, __ATOMIC_RELAXED);
	uint32_t many = __atomic_load_n(&ebbing, __ATOMIC_RELAXED) && are > IDLE_KEPT ? are - IDLE_KEPT : 0;

	if (old > are)
		old = are;
	return old > many ? old : many;
}

/* Takes up to `most` idle pages in a row, which are then the caller's as if allocated.  With the lock. */
static struct os_range take_idle(uint32_t most)
{
	uint32_t first = heads[IDLE], next = first;

	do
		set_free(next++, 0, false);
	while (next - first < most && next < page_count() && list_of(page_at(next)) == IDLE);
	while (next - first < most && list_of(page_at(first - 1)) == IDLE)
		set_free(--first, 0, false);
	overdue -= next - first < overdue ? next - first : overdue;
	return (struct os_range){address_of(first), (size_t)(next - first) << PAGE_SHIFT};
}

/* Takes up to `most` pages, but none while another thread gives some back.  With the lock. */
static bool take_surplus(bool all, uint32_t *most)
{
	unsigned ranges = all ? OS_RANGES : GIVEN_MOST;
	uint32_t left;

	if (giving.count)
		return false;
	while (giving.count < ranges && *most && (left = all ? idle : surplus())) {
		struct os_range range = take_idle(left < *most ? left : *most);

		*most -= (uint32_t)(range.bytes >> PAGE_SHIFT);
		giving.ranges[giving.count] = range;
		giving.count++;
	}
	return giving.count;
}

/*
 * Puts the pages back.  What the system refused, such as locked memory, stays until the next ebb.  With the
 * lock.
 */
static bool put_given(void)
{
	bool refused = giving.given < giving.count;

	for (unsigned i = 0; i < giving.count; i++) {
		uint32_t first = page_number(giving.ranges[i].address);

		for (uint32_t page = 0; page < giving.ranges[i].bytes >> PAGE_SHIFT; page++)
			set_free(first + page, ALL, i < giving.given);
		if (i < giving.given)
			omit_given(first, (uint32_t)(giving.ranges[i].bytes >> PAGE_SHIFT));
	}
	giving.count = giving.given = 0;
	if (refused) {
		ebbing = false;
		overdue = 0;
	}
	return !refused;
}

void metadata_purge(bool all)
{
	/* A bound, since other threads may free pages faster than these go. */
	uint32_t most = page_count();
	bool more = true;

	while (more) {
		cpuslab_spin_lock(&metadata_lock);
		more = take_surplus(all, &most);
		cpuslab_spin_unlock(&metadata_lock);
		if (!more)
			return;
		giving.given = os_purge_several(giving.ranges, giving.count);
		for (unsigned i = 0; i < giving.given; i++)
			ARCH_PROBE("purge", (uintptr_t)giving.ranges[i].address, giving.ranges[i].bytes);
		cpuslab_spin_lock(&metadata_lock);
		more = put_given() && all;
		cpuslab_spin_unlock(&metadata_lock);
	}
}

bool metadata_is_behind(void)
{
	uint32_t gathered = __atomic_load_n(&ebbing, __ATOMIC_RELAXED) ? GATHERED : 0;

	return surplus() > gathered;
}

bool metadata_is_due(void)
{
	return surplus() > 0;
}

void metadata_ebb(void)
{
	cpuslab_spin_lock(&metadata_lock);
	ebbing = true;
	cpuslab_spin_unlock(&metadata_lock);
}

/* Looks are the decay time apart: pages that were idle throughout are not needed. */
void metadata_tick(void)
{
	static uint64_t last;
	uint64_t now = os_milliseconds();

	cpuslab_spin_lock(&metadata_lock);
	if (os_elapsed(last, now) >= options.decay) {
		last = now;
		overdue = idle_low > IDLE_KEPT ? idle_low - IDLE_KEPT : 0;
		idle_low = idle;
	}
	cpuslab_spin_unlock(&metadata_lock);
}

/* ---- fork ---------------------------------------------------------------------------------------------- */

bool metadata_is_torn(void)
{
	return cpuslab_spin_is_locked(&metadata_lock) || giving.count;
}

/*
 * Rebuilds lists and counts from which units are free.  Pages on their way to the system count as idle, for
 * all that is known; a range that was just being taken for that is lost to the child.
 */
void metadata_repair(bool all)
{
	size_t given = 0;

	if (!metadata_is_torn() && !all)
		return;
	cpuslab_spin_reset(&metadata_lock);
	lasting_bytes = 0; /* the stretch may be free already */
	memset(heads, 0, sizeof heads);
	idle = 0;
	/* Each page's free units stay as they are: a child of this child may have to rebuild again. */
	for (uint32_t number = 1; number < page_count(); number++) {
		struct metadata_page *page = page_at(number);

		page->given &= page->free == ALL;
		unsigned list = list_of(page);

		if (list)
			enter(page, number, list);
		idle += list == IDLE;
		given += list == GIVEN;
	}
	used = end - (given << PAGE_SHIFT);
	giving.given = 0;
	(void)put_given();
	idle_low = idle;
}

void metadata_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("metadata.used", (uintptr_t)&used, sizeof used);
}

size_t metadata_bytes(void)
{
	return __atomic_load_n(&used, __ATOMIC_RELAXED);
}
