/* SPDX-License-Identifier: MIT */
#include "page/layout.h"

#include "arch/minmax.h"
#include "options/options.h"
#include "page/block.h"
#include "page/metadata.h"
#include "page/omit.h"
#include "page/page.h"
#include "page/run.h"

struct layout layout;
bool layout_refused ARCH_SPARSE;
struct page_front page_front;
uint16_t *page_entries;

static enum { RESERVED, PIECEWISE } growth;
static bool in_hole;

/*
 * What the system refused when the last attempt failed: memory, or only addresses.  Where it refuses that
 * still, one call tells; where it does not, and attempts fail all the same, they become rare.
 */
static struct {
	size_t bytes;
	bool memory;
	unsigned failures, rests;
} lack ARCH_SPARSE;

enum { ADDRESS_BITS = 47 };
static const size_t GRAIN = LAYOUT_GRAIN;
static const size_t SMALLEST_PLAN = 8ul << 20;
/* Page numbers have 32 bits, and run.c doubles lengths. */
static const size_t LARGEST_PLAN = (1ul << 30) << PAGE_SHIFT;
/* PIECEWISE without a limit: beyond the lowest addresses, where other programs put heaps. */
static const size_t UNLIMITED_PLAN = 1ul << 40;
static const uintptr_t UNLIMITED_LOWEST = 32ul << 30, UNLIMITED_WIDTH = 8ul << 30;
/*
 * Distance from the heap: as much as one page of the processor's page tables covers, so that none covers
 * both.
 */
static const size_t HARDENED_GAP = 1ul << 30;
/* Holds a heap of the smallest plan and its tables, with the heap and the hole out of step with the grain. */
static const size_t SMALLEST_HOLE = 40ul << 20;
/* Attempts rest for at most so many calls: a page fault's time each, where an attempt takes a hundred. */
enum { RESTS_MOST = 63 };

/* How far beyond what is in use core dumps contain a region: see layout.h. */
static const size_t HEAP_SHOWN = 1ul << 20, TABLE_SHOWN = 128ul << 10;
enum { SHOWN_PART = 16 };

static size_t round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) & ~(unit - 1);
}

/*
 * Returns a number that varies between processes as much as the kernel's own placement of libraries and
 * stacks does: not at all where that is switched off.
 */
static uintptr_t placement_entropy(void)
{
	uintptr_t x = (uintptr_t)&layout ^ ((uintptr_t)__builtin_frame_address(0) << 16);

	x *= 0x9e3779b97f4a7c15u;
	return x ^ (x >> 29);
}

/* Where a heap may start: at `lowest` or above, by `width` at most. */
struct place {
	uintptr_t lowest, width;
};

/* Size of a page map for so many bytes of addresses. */
static size_t map_bytes(uintptr_t bytes)
{
	return (bytes >> PAGE_SHIFT) * sizeof(uint16_t);
}

/* Sizes of the regions beside a heap of `plan` bytes, with a page map for `mapped` bytes of addresses. */
struct sizes {
	size_t below_map; /* the vCPU table */
	size_t map, slab_of, runs, metadata, marks, pages, total;
};

static struct sizes sizes_for(size_t plan, uintptr_t mapped)
{
	struct sizes sizes = {
		.below_map = round_up(ARCH_TABLE_BYTES, PAGE_BYTES),
		.map = round_up(map_bytes(mapped), PAGE_BYTES),
		.slab_of = round_up((plan >> PAGE_SHIFT) * sizeof(uint32_t), PAGE_BYTES),
		.runs = round_up((plan >> PAGE_SHIFT) * sizeof(struct run), PAGE_BYTES),
		/*
		 * Descriptors take at most a 13th of the heap, except in a cache of 8-byte objects, which
		 * finds room for half a heap of them; areas and magazines have a floor.  The largest plans
		 * get no more than references can name.
		 */
		.metadata = min_t(size_t, round_up(plan / 8 + (8ul << 20), PAGE_BYTES),
				  (size_t)METADATA_UNIT << 32),
		.marks = options.hardened ? plan / PAGE_MARK_UNIT * sizeof(uint16_t) : 0,
	};
	sizes.pages = round_up((sizes.metadata >> PAGE_SHIFT) * sizeof(struct metadata_page), PAGE_BYTES);
	sizes.total = round_up(sizes.below_map + sizes.map + sizes.slab_of + sizes.runs + sizes.metadata +
				       sizes.marks + sizes.pages,
			       GRAIN);
	return sizes;
}

/* Where the hint was taken: reserves anywhere, but on the grain. */
static __attribute__((noinline, cold)) void *reserve_on_grain(size_t bytes)
{
	char *address = os_reserve(NULL, bytes + GRAIN);

	if (!address)
		return NULL;

	char *start = (char *)round_up((uintptr_t)address, GRAIN);

	if (start > address)
		os_unmap(address, (size_t)(start - address));
	os_unmap(start + bytes, (size_t)(address + GRAIN - start));
	return start;
}

static void *obtain(void *hint, size_t bytes)
{
	/* PIECEWISE, this is only a wish: growing the regions shows whether the stretch is free. */
	if (growth != RESERVED)
		return hint;

	char *address = os_reserve(hint, bytes);

	if (!address || (uintptr_t)address % GRAIN == 0)
		return address;
	os_unmap(address, bytes);
	return reserve_on_grain(bytes);
}

/*
 * Makes the vCPU table writable, and the page map readable from its first byte on: free(NULL) and frees of
 * foreign pointers read there.
 */
static bool open_tables(char *start, const struct sizes *sizes, size_t map_opened)
{
	if (growth == RESERVED)
		return os_commit(start, sizes->below_map) == 0 &&
		       os_show_zeros(start + sizes->below_map, sizes->map) == 0;
	return os_map_at(start, sizes->below_map + map_opened) != NULL;
}

/*
 * For all regions but the heap.  Where the system hands out huge pages unasked, the first touch of each
 * region would take 2 MiB for a program that needs a few pages.
 */
static void refuse_huge_pages(char *start, size_t bytes)
{
	(void)os_huge_pages(start, bytes, false);
}

static struct region region(char *base, size_t planned, size_t step)
{
	return (struct region){.base = base, .planned = planned, .step = (uint32_t)step};
}

/* REFUSED: no other hint would help. */
enum outcome { DONE, TAKEN, REFUSED };

static __attribute__((noinline, cold)) enum outcome give_up(char *heap, size_t plan, char *tables,
							    size_t total, size_t map_opened)
{
	lack.memory = tables;
	lack.bytes = ARCH_TABLE_BYTES;
	if (growth == PIECEWISE) {
		lack.bytes += map_opened;
		return TAKEN;
	}
	os_unmap(heap, plan);
	if (!tables)
		return TAKEN;
	os_unmap(tables, total);
	return REFUSED;
}

/* After the regions: `map` is the page map, which begins with the entry of the address `from`. */
static void set_front(char *map, uintptr_t from)
{
	uintptr_t heap = (uintptr_t)layout.heap.base;

	page_front.map = (uint16_t *)map;
	page_entries = (uint16_t *)map - (from >> PAGE_SHIFT);
	page_front.slab_of = (uint32_t *)layout.slab_of.base - (heap >> PAGE_SHIFT);
	page_front.marks = (uint16_t *)layout.marks.base - heap / PAGE_MARK_UNIT;
	page_front.metadata = layout.metadata.base;
	page_front.metadata_bytes = layout.metadata.planned;
}

static __attribute__((noinline)) enum outcome try_layout(size_t plan, struct place place, uintptr_t hint,
							 size_t step)
{
	char *heap = obtain((void *)hint, plan);

	if (!heap)
		return REFUSED;

	uintptr_t heap_end = (uintptr_t)heap + plan;
	uintptr_t highest = place.lowest + place.width;
	uintptr_t mapped = growth == PIECEWISE && heap_end < highest ? highest : heap_end;
	uintptr_t from = in_hole ? (uintptr_t)heap : 0;
	struct sizes sizes = sizes_for(plan, mapped - from);
	uintptr_t tables_hint = options.hardened ? heap_end + HARDENED_GAP : heap_end;
	char *tables = heap_end >> ADDRESS_BITS ? NULL : obtain((void *)tables_hint, sizes.total);

	/*
	 * The same amount wherever the heap starts: what a limit leaves for objects must not depend on
	 * chance.
	 */
	size_t map_below_heap = map_bytes((uintptr_t)heap - from);
	size_t map_opened = growth == RESERVED ? map_below_heap : map_bytes(highest);

	if (!tables || !open_tables(tables, &sizes, map_opened))
		return give_up(heap, plan, tables, sizes.total, map_opened);

	char *map = tables + sizes.below_map;
	char *slab_of = map + sizes.map;
	char *runs = slab_of + sizes.slab_of;
	char *pages = runs + sizes.runs;
	char *metadata = pages + sizes.pages;

	layout.heap = region(heap, plan, step);
	layout.map = region(map + map_below_heap, sizes.map - map_below_heap, PAGE_BYTES);
	layout.map.committed = map_opened - map_below_heap;
	layout.slab_of = region(slab_of, sizes.slab_of, PAGE_BYTES * 2);
	layout.runs = region(runs, sizes.runs, step / 16);
	layout.metadata = region(metadata, sizes.metadata, step / 4);
	layout.marks = region(metadata + sizes.metadata, sizes.marks, PAGE_BYTES * 2);
	layout.pages = region(pages, sizes.pages, PAGE_BYTES);

	if (growth == RESERVED) {
		refuse_huge_pages(tables, sizes.total);
		(void)os_dump(heap, plan, false);
		(void)os_dump(map, sizes.total - sizes.below_map, false);
	} else {
		(void)os_dump(map, map_opened, false);
	}
	block_init(growth == RESERVED);

	set_front(map, from);
	return DONE;
}

static bool forwards_admitted;

void layout_admit_forwards(bool admitted)
{
	forwards_admitted = admitted;
}

/* PIECEWISE, planned addresses may be anybody's by the time the heap would grow into them. */
void layout_open(void)
{
	size_t mapped = layout.map.committed / sizeof(uint16_t), usable = layout.heap.committed >> PAGE_SHIFT;
	size_t pages = growth == RESERVED ? layout.heap.planned >> PAGE_SHIFT
		       : mapped < usable  ? mapped
					  : usable;

	uintptr_t heap_page = page_of(layout.heap.base);

	/* Release: hardened mode reads these without checking whether the library has started. */
	__atomic_store_n(&page_front.end, heap_page + pages, __ATOMIC_RELEASE);
	/*
	 * At start, after `end`: with heap_page set and `end` still 0, every address above would count as the
	 * heap's.  With `end` alone all below it do, and the map can be read there.
	 */
	__atomic_store_n(&page_front.heap_page, heap_page, __ATOMIC_RELEASE);
	__atomic_store_n(&page_front.limit, options.hardened || in_hole ? 0 : page_front.end,
			 __ATOMIC_RELEASE);
	__atomic_store_n(&page_front.forward_limit, forwards_admitted ? page_front.limit : 0,
			 __ATOMIC_RELEASE);
}

/*
 * Places the heap low in the address space, away from programs, libraries and stacks: the page map starts at
 * address zero, so this keeps it small.
 */
static enum outcome try_low(size_t plan, struct place place, size_t step)
{
	uintptr_t entropy = placement_entropy();

	for (int attempt = 0; attempt < 4; attempt++) {
		uintptr_t hint = place.lowest + entropy / GRAIN % (place.width / GRAIN) * GRAIN;

		enum outcome outcome = try_layout(plan, place, hint, step);

		if (outcome != TAKEN)
			return outcome;
		entropy = entropy * 0x2545f4914f6cdd1du + 1;
		entropy ^= entropy >> 31;
	}
	return TAKEN;
}

/* Whether the system refuses, anywhere, what it refused before. */
static __attribute__((noinline, cold)) bool lacks(void)
{
	void *sample = lack.memory ? os_map(NULL, lack.bytes) : os_reserve(NULL, lack.bytes);

	if (sample)
		os_unmap(sample, lack.bytes);
	return !sample;
}

/* Rounds up to a power of two. */
static size_t plan_for(size_t bytes)
{
	if (bytes >= LARGEST_PLAN)
		return LARGEST_PLAN;
	return bytes <= SMALLEST_PLAN ? SMALLEST_PLAN : (size_t)1 << (64 - __builtin_clzl(bytes - 1));
}

/* Tries ever higher places, with ever larger page maps, while others are in the way. */
static __attribute__((noinline)) bool map_piecewise(size_t plan, struct place place, size_t step)
{
	growth = PIECEWISE;
	if (try_low(plan, place, step) == DONE)
		return true;
	if (lacks())
		return false;
	while ((place.lowest *= 2) >> 46 == 0) {
		place.width *= 2;
		if (try_low(plan, place, step) == DONE)
			return true;
	}
	lack.memory = false;
	return false;
}

static bool try_reserved(size_t plan)
{
	growth = RESERVED;
	return try_low(plan, (struct place){plan, plan}, 1ul << 20) == DONE;
}

/* Where addresses are short. */
static __attribute__((noinline, cold)) bool reserve_less(size_t plan)
{
	for (; !lack.memory && plan >= SMALLEST_PLAN; plan /= 2)
		if (try_reserved(plan))
			return true;
	return false;
}

/*
 * Under a limit every mapping counts.  Plan for all that the limit allows, low enough for the page map to
 * take a 128th of it, and map as the heap grows, in steps that waste another 64th at most.  The heap's place
 * follows the limit in small steps, so that a larger limit never leaves less than a smaller one.
 */
static __attribute__((noinline)) bool init_piecewise(size_t limit, size_t reserve)
{
	if (!reserve)
		limit = min_t(size_t, limit, os_limit_data());
	/* From this limit on, the page map of the unlimited plan is the smaller one. */
	if (!reserve && limit >= UNLIMITED_LOWEST / 8)
		return map_piecewise(UNLIMITED_PLAN, (struct place){UNLIMITED_LOWEST, UNLIMITED_WIDTH},
				     1ul << 20);

	size_t plan = plan_for(reserve && reserve < limit ? reserve : limit);
	size_t step = plan / 128 < 1ul << 16 ? 1ul << 16 : plan / 128 > 1ul << 20 ? 1ul << 20 : plan / 128;
	size_t used = limit < SMALLEST_PLAN ? SMALLEST_PLAN : limit < plan ? limit : plan;
	uintptr_t span = round_up(8 * used, GRAIN);

	return map_piecewise(plan, (struct place){span, span}, step);
}

static size_t address_space_most; /* 0 for no limit */

size_t page_address_space_most(void)
{
	return address_space_most ? address_space_most : SIZE_MAX;
}

static bool can_reserve(size_t bytes)
{
	void *sample = os_reserve(NULL, bytes);

	if (sample)
		os_unmap(sample, bytes);
	return sample;
}

/* Returns the length of the largest hole, but for an eighth; `most` if there is a larger one. */
static size_t largest_hole(size_t most)
{
	size_t hole = 0;

	for (size_t part = plan_for(most); part >= SMALLEST_PLAN && part >= hole / 8; part /= 2)
		if (hole + part <= most && can_reserve(hole + part))
			hole += part;
	return hole;
}

/*
 * Leaves room for the tables: metadata and records take less than an eighth of a heap, and 8 MiB, and each of
 * both parts may have to begin on the next grain.  Hardened mode reads the page map below the heap.
 */
static __attribute__((noinline, cold)) bool init_in_hole(size_t limit, size_t reserve)
{
	/* Under a limit others must have room too. */
	size_t most = min_t(size_t, reserve ? reserve : UNLIMITED_PLAN, limit / 4);
	size_t hole = options.hardened ? 0 : largest_hole(most);

	growth = RESERVED;
	in_hole = true;
	for (size_t plan = hole < SMALLEST_HOLE ? 0 : (hole - 3 * GRAIN) / 8 * 7 / GRAIN * GRAIN;
	     plan >= SMALLEST_PLAN; plan = plan / 2 / GRAIN * GRAIN)
		if (try_layout(plan, (struct place){0}, 0, 1ul << 20) == DONE)
			return true;
	in_hole = false;
	if (!lack.memory)
		lack.bytes = SMALLEST_HOLE;
	return false;
}

/* After an attempt that failed: whether to do without the next one. */
static __attribute__((noinline, cold)) bool rests(void)
{
	if (lacks()) {
		lack.failures = lack.rests = 0;
		return true;
	}
	if (lack.rests) {
		lack.rests--;
		return true;
	}
	lack.memory = false;
	/* In case that this attempt fails as well. */
	lack.rests = lack.failures;
	lack.failures = lack.failures < RESTS_MOST ? 2 * lack.failures + 1 : RESTS_MOST;
	return false;
}

/*
 * Asks for the limit only where it may have refused the plan: libc's malloc would not ask.  A smaller reserve
 * than usual may fit under a limit that leaves too little beside it.
 */
bool layout_init(void)
{
	enum { USUAL_SHIFT = 40 };

	if (lack.bytes && rests())
		return false;
	size_t reserve = os_reserving_costs() ? 0 : options.reserve, plan = plan_for(reserve);

	if (reserve >> USUAL_SHIFT) {
		if (try_reserved(plan))
			return true;
		if (lack.memory)
			return false;
	}

	size_t limit = os_limit_address_space();

	if (limit != SIZE_MAX)
		address_space_most = limit;
	if (limit != SIZE_MAX || !reserve ? init_piecewise(limit, reserve) : reserve_less(plan))
		return true;
	return !lack.memory && init_in_hole(limit, reserve);
}

/*
 * PIECEWISE, the system would have to be told of each piece that it is left out: that is worth it for the
 * page map, which is mapped at once.  The heap's and the other pieces are small, and so is what is not used
 * of them, but for the metadata's.
 */
static bool is_left_out(const struct region *region)
{
	return growth == RESERVED || region == &layout.map || region == &layout.metadata;
}

void region_show(struct region *region, size_t bytes)
{
	/* The heap's step is that of huge pages once it may have them: none lies across the end of what is
	 * shown. */
	const size_t step = region == &layout.heap ? max_t(size_t, HEAP_SHOWN, region->step) : TABLE_SHOWN;
	const size_t end = growth == RESERVED ? region->planned : region->committed;
	size_t shown = (size_t)region->shown << PAGE_SHIFT;
	/* The tables follow what the heap shows ahead, which is a part of what it really has. */
	size_t left_out = min_t(size_t, (size_t)omit_count * OMIT_BYTES, bytes);
	size_t ahead = region == &layout.heap       ? (bytes - left_out) / SHOWN_PART
		       : region == &layout.metadata ? bytes / SHOWN_PART
						    : 0;

	if (bytes <= shown)
		return;
	if (!is_left_out(region)) {
		region->shown = (uint32_t)(region->committed >> PAGE_SHIFT);
		return;
	}
	bytes = min_t(size_t, round_up(bytes + ahead, step), end);
	(void)os_dump(region->base + shown, bytes - shown, true);
	region->shown = (uint32_t)(bytes >> PAGE_SHIFT);
}

bool region_grow(struct region *region, size_t bytes)
{
	if (bytes <= region->committed)
		return true;
	if (bytes > region->planned)
		return false;

	/* Grow by an eighth, so that a heap of any size takes few steps. */
	size_t ahead = growth == RESERVED && region->committed / 8 > region->step ? region->committed / 8 : 0;
	size_t target = round_up(bytes + ahead, region->step);
	if (target > region->planned)
		target = region->planned;

	char *from = region->base + region->committed;
	size_t length = target - region->committed;

	/* The step is a convenience: where the system is short of memory, settle for the bytes asked for. */
	for (int attempt = 0; attempt < 2; attempt++) {
		if (growth == RESERVED ? os_commit(from, length) == 0 : os_map_at(from, length) != NULL) {
			region->committed += length;
			if (growth == PIECEWISE && region == &layout.metadata)
				(void)os_dump(from, length, false);
			return true;
		}
		length = round_up(bytes, PAGE_BYTES) - region->committed;
	}
	__atomic_store_n(&layout_refused, true, __ATOMIC_RELAXED);
	return false;
}

/*
 * Reserves the stretch anew rather than revoke access: with vm.overcommit_memory=2, all that could be written
 * counts as memory, and a stretch beside written pages would go on counting; and the system would merge it
 * with all that is reserved behind it, up to whose end a core dump would then extend.  Where both are refused
 * it stays usable, and unused.
 */
static void reserve_again(struct region *region, size_t from, size_t to)
{
	char *start = region->base + from;

	if (os_reserve_again(start, to - from) != 0) {
		(void)os_forbid(start, to - from);
		return;
	}
	if (region == &layout.heap)
		block_unadvised(from, to);
	else
		refuse_huge_pages(start, to - from);
	region->shown = min_t(uint32_t, region->shown, (uint32_t)(from >> PAGE_SHIFT));
}

void region_shrink(struct region *region, size_t bytes)
{
	size_t kept = round_up(bytes, PAGE_BYTES);

	size_t had = region->committed;

	if (kept >= had)
		return;
	/*
	 * First: a child forked in between takes these bounds for what is usable, and must not take a free of
	 * what somebody else maps there by then for the heap's.
	 */
	__atomic_store_n(&region->committed, kept, __ATOMIC_RELEASE);
	layout_open();
	if (growth == RESERVED) {
		reserve_again(region, kept, had);
	} else if (os_unmap(region->base + kept, had - kept) != 0) {
		region->committed = had;
		layout_open();
	} else {
		region->shown = min_t(uint32_t, region->shown, (uint32_t)(kept >> PAGE_SHIFT));
	}
}
