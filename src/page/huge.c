/* SPDX-License-Identifier: MIT */
#include "page/page.h"

#include <errno.h>

#include "arch/arch.h"
#include "arch/minmax.h"
#include "cpuslab/lock.h"
#include "options/options.h"
#include "page/limit.h"
#include "page/block.h"
#include "page/move.h"

/*
 * Objects with a mapping of their own, found by address in an open-addressing hash table.
 *
 * An entry is two words: the address and the bytes mapped.  One store makes or drops it: the address is
 * stored last when an entry is made, and replaced by a tombstone first when it is dropped.  So a forked child
 * finds the table whole whatever the parent's other threads were doing.  A larger table replaces the old one
 * by a single store as well.
 *
 * A few freed mappings are cached, since mapping and touching them anew costs a page fault for each page.
 * They go back after the decay time or beyond the limit.
 *
 * Where the system refuses to unmap a range (see os_unmap), its memory is purged and its addresses stay in
 * the table as STRANDED: they belong to no object, and unmapping is retried from time to time.
 */
struct huge {
	uintptr_t address; /* where the object begins, in the first page */
	size_t bytes;      /* in whole pages; with STRANDED where no object lies there */
};

struct table {
	size_t slots; /* a power of two */
	struct huge huge[];
};

enum { CACHED = 8, TOMBSTONE = 1, STRANDED = 1 };

static struct cpuslab_spinlock huge_lock = CPUSLAB_SPINLOCK_INITIALIZER;
static struct table *table;
static size_t filled, live, mapped; /* slots taken (tombstones too), mappings, their bytes */
static size_t stranded;             /* stranded entries, which are in no count but `filled` */
static uint64_t strand_tried_at;    /* when unmapping them was last tried */
static struct cached {
	uintptr_t address;
	size_t bytes;
	uint64_t freed_at;
} cached[CACHED];
static size_t cached_bytes;
static bool behind; /* the last purge reached its bound before its end */

/* Returns the most bytes that freeing a mapping gives back besides its own. */
static size_t most_beside(size_t bytes)
{
	return ((size_t)PAGE_PURGE_MOST << PAGE_SHIFT) + 2 * bytes;
}

/*
 * Isolated, each mapping lies between two inaccessible pages.  A freed one is purged and made inaccessible,
 * and its address space is kept in a random place of this array until the next mapping that is put there
 * replaces it.
 */
enum { RETIRED = 256, RETIRED_MOST = 32 << 20 };

static struct retired {
	uintptr_t address;
	size_t bytes;
} retired[RETIRED] ARCH_SPARSE;

static size_t round_to_pages(size_t bytes)
{
	return (bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);
}

static size_t slot_of(const struct table *t, uintptr_t address)
{
	return (size_t)((address >> PAGE_SHIFT) * 0x9e3779b97f4a7c15u >> 20) & (t->slots - 1);
}

static char *start_of(uintptr_t address)
{
	return (char *)(address & ~(uintptr_t)(PAGE_BYTES - 1));
}

/* The mapping whose first page contains an address. */
static struct huge *find_page(uintptr_t address)
{
	/* No mapping has the first page, in which the values lie that the table itself uses. */
	if (!table || address < PAGE_BYTES)
		return NULL;
	for (size_t slot = slot_of(table, address);; slot = (slot + 1) & (table->slots - 1)) {
		struct huge *huge = &table->huge[slot];

		if (start_of(huge->address) == start_of(address))
			return huge->bytes & STRANDED ? NULL : huge;
		if (!huge->address)
			return NULL;
	}
}

static struct huge *find(uintptr_t address)
{
	struct huge *huge = find_page(address);

	return huge && huge->address == address ? huge : NULL;
}

/* Returns true when it took a slot that was never used. */
static bool put(struct table *t, uintptr_t address, size_t bytes)
{
	size_t slot = slot_of(t, address);

	while (t->huge[slot].address > TOMBSTONE)
		slot = (slot + 1) & (t->slots - 1);
	bool fresh = !t->huge[slot].address;

	t->huge[slot].bytes = bytes;
	__atomic_store_n(&t->huge[slot].address, address, __ATOMIC_RELEASE);
	return fresh;
}

static size_t table_bytes(size_t slots)
{
	return sizeof(struct table) + slots * sizeof(struct huge);
}

static bool make_room(void);

/* Unmaps a range, or enters it as stranded.  With the lock. */
static void give_back(void *address, size_t bytes)
{
	if (os_unmap(address, bytes) == 0)
		return;
	(void)os_purge(address, bytes);
	/*
	 * A former object finds the slot that it had.  For the ends of an aligned mapping and for cached
	 * ones, a table that cannot grow has its last quarter, at least 16 slots.
	 */
	if (!make_room() && (!table || filled + 1 >= table->slots))
		return;
	filled += put(table, (uintptr_t)address, bytes | STRANDED);
	stranded++;
}

/* Makes room for one more entry: the table is at most three quarters full, tombstones counted. */
static bool make_room(void)
{
	if (table && (filled + 1) * 4 <= table->slots * 3)
		return true;

	size_t slots = 64;
	while (slots < (live + stranded) * 4)
		slots *= 2;
	struct table *larger = os_map(NULL, round_to_pages(table_bytes(slots)));

	if (!larger)
		return false;
	larger->slots = slots;
	for (size_t slot = 0; table && slot < table->slots; slot++)
		if (table->huge[slot].address > TOMBSTONE)
			(void)put(larger, table->huge[slot].address, table->huge[slot].bytes);

	struct table *old = table;

	filled = live + stranded;
	__atomic_store_n(&table, larger, __ATOMIC_RELEASE);
	if (old)
		give_back(old, round_to_pages(table_bytes(old->slots)));
	return true;
}

/* The same as give_back(), without the lock held. */
static void lock_and_give_back(void *address, size_t bytes)
{
	if (os_unmap(address, bytes) == 0)
		return;
	cpuslab_spin_lock(&huge_lock);
	give_back(address, bytes);
	cpuslab_spin_unlock(&huge_lock);
}

/* Retries to unmap stranded ranges. */
static void give_back_stranded(void)
{
	cpuslab_spin_lock(&huge_lock);
	for (struct huge *huge = table->huge; stranded && huge < table->huge + table->slots; huge++) {
		if (huge->address <= TOMBSTONE || !(huge->bytes & STRANDED))
			continue;
		uintptr_t address = huge->address;

		/*
		 * Drop the entry first: to a child forked after it the range may already be somebody else's.
		 */
		__atomic_store_n(&huge->address, TOMBSTONE, __ATOMIC_RELEASE);
		if (os_unmap((void *)address, huge->bytes - STRANDED) != 0) {
			__atomic_store_n(&huge->address, address, __ATOMIC_RELEASE);
			break;
		}
		stranded--;
	}
	cpuslab_spin_unlock(&huge_lock);
}

static void drop(struct huge *huge)
{
	mapped -= huge->bytes;
	live--;
	__atomic_store_n(&huge->address, TOMBSTONE, __ATOMIC_RELEASE);
}

static bool enter(uintptr_t address, size_t bytes)
{
	if (!make_room())
		return false;

	/* A fork may have caught another thread's mapping on its way from here to elsewhere. */
	struct huge *left_behind = find_page(address);

	if (left_behind)
		drop(left_behind);
	filled += put(table, address, bytes);
	live++;
	mapped += bytes;
	return true;
}

/*
 * Takes the smallest cached mapping of at least `bytes` that wastes at most a quarter of itself.  With the
 * lock.
 */
static struct cached take_cached(size_t bytes, size_t alignment)
{
	struct cached *best = NULL;

	for (struct cached *c = cached; c < cached + CACHED; c++)
		if (c->address && c->bytes >= bytes && c->bytes - bytes <= c->bytes / 4 &&
		    (c->address & (alignment - 1)) == 0 && (!best || c->bytes < best->bytes))
			best = c;
	if (!best)
		return (struct cached){0};

	struct cached taken = *best;

	best->address = 0;
	cached_bytes -= taken.bytes;
	return taken;
}

/* Takes a mapping, or up to `most` bytes from its end, out of the cache.  With the lock. */
static struct cached expel(struct cached *c, size_t most)
{
	struct cached expelled = *c;

	if (c->bytes > most) {
		expelled.address += c->bytes - most;
		expelled.bytes = most;
		c->bytes -= most;
	} else {
		c->address = 0;
	}
	cached_bytes -= expelled.bytes;
	return expelled;
}

static bool isolated;

void huge_isolate(void)
{
	isolated = true;
}

bool huge_is_isolated(void)
{
	return isolated;
}

static size_t guard_bytes(void)
{
	return huge_is_isolated() ? PAGE_BYTES : 0;
}

static void unmap(uintptr_t address, size_t bytes)
{
	lock_and_give_back((char *)address - guard_bytes(), bytes + 2 * guard_bytes());
}

/* Makes a new mapping at an aligned address. */
static void *map_aligned(size_t bytes, size_t alignment)
{
	size_t guard = guard_bytes(), wanted = bytes + 2 * guard;
	size_t slack = alignment > PAGE_BYTES ? alignment : 0;

	if (!slack && !guard)
		return os_map(NULL, bytes);
	if (wanted + slack < bytes)
		return NULL;

	char *wide = guard ? os_reserve(NULL, wanted + slack) : os_map(NULL, wanted + slack);

	if (!wide)
		return NULL;
	char *start = (char *)(((uintptr_t)wide + guard + slack) & -(slack ? alignment : PAGE_BYTES));
	char *end = start + bytes + guard;

	if (start - guard > wide)
		lock_and_give_back(wide, (size_t)(start - guard - wide));
	if (wide + wanted + slack > end)
		lock_and_give_back(end, (size_t)(wide + wanted + slack - end));
	if (guard && os_commit(start, bytes) != 0) {
		unmap((uintptr_t)start, bytes);
		return NULL;
	}
	return start;
}

/* Empties a place and returns what lay there.  With the lock. */
static struct retired take_retired(struct retired *place)
{
	struct retired taken = *place;

	/*
	 * Cleared before anything else lies there: a fork in between must not pair it with another's length.
	 */
	__atomic_store_n(&place->address, 0, __ATOMIC_RELEASE);
	return taken;
}

/* Puts a freed mapping in a random place, and unmaps the one that lay there. */
static void retire(uintptr_t address, size_t bytes)
{
	struct retired leaving = {address, bytes};

	if (bytes <= RETIRED_MOST && os_forbid((void *)address, bytes) == 0) {
		struct retired *place = &retired[os_random() % RETIRED];

		(void)os_purge((void *)address, bytes);
		cpuslab_spin_lock(&huge_lock);
		leaving = take_retired(place);
		__atomic_store_n(&place->bytes, bytes, __ATOMIC_RELEASE);
		__atomic_store_n(&place->address, address, __ATOMIC_RELEASE);
		cpuslab_spin_unlock(&huge_lock);
	}
	if (leaving.address)
		unmap(leaving.address, leaving.bytes);
}

static void release_retired(void)
{
	for (struct retired *r = retired; r < retired + RETIRED; r++) {
		cpuslab_spin_lock(&huge_lock);
		struct retired leaving = take_retired(r);

		cpuslab_spin_unlock(&huge_lock);
		if (leaving.address)
			unmap(leaving.address, leaving.bytes);
	}
}

void *huge_alloc(size_t wanted, size_t alignment, bool *zeroed)
{
	size_t bytes = round_to_pages(wanted);

	if (limit_refuses(bytes >> PAGE_SHIFT))
		return NULL;
	cpuslab_spin_lock(&huge_lock);
	/* First, so that whatever is mapped below can be entered. */
	bool room = make_room();
	struct cached reused = room ? take_cached(bytes, alignment) : (struct cached){0};

	if (reused.address)
		(void)enter(reused.address, reused.bytes);
	cpuslab_spin_unlock(&huge_lock);
	if (!room)
		return NULL;
	*zeroed = !reused.address;
	if (reused.address)
		return (void *)reused.address;

	void *address = map_aligned(bytes, alignment);

	if (!address) {
		/* What the room hoards may be what is missing. */
		page_purge(true);
		address = map_aligned(bytes, alignment);
		if (!address)
			return NULL;
	}
	block_mapping(address, 0, bytes);
	cpuslab_spin_lock(&huge_lock);
	bool entered = enter((uintptr_t)address, bytes);

	cpuslab_spin_unlock(&huge_lock);
	if (!entered) {
		unmap((uintptr_t)address, bytes);
		return NULL;
	}
	return address;
}

size_t huge_bytes(const void *address)
{
	cpuslab_spin_lock(&huge_lock);
	struct huge *huge = find((uintptr_t)address);
	size_t bytes = huge ? huge->bytes - (uintptr_t)address % PAGE_BYTES : 0;

	cpuslab_spin_unlock(&huge_lock);
	return bytes;
}

void *huge_in_page(const void *address)
{
	cpuslab_spin_lock(&huge_lock);
	struct huge *huge = find_page((uintptr_t)address);
	void *object = huge ? (void *)huge->address : NULL;

	cpuslab_spin_unlock(&huge_lock);
	return object;
}

/* Bytes that may be cached, all in all. */
static size_t most_cached(void)
{
	size_t most = options.dirty;

	if (limit_is_set())
		most = min_t(size_t, most, cached_bytes + (limit_room() << PAGE_SHIFT));
	return most;
}

bool huge_free(void *address)
{
	uint64_t now = os_milliseconds();
	struct cached expelled = {0};

	cpuslab_spin_lock(&huge_lock);
	struct huge *huge = find((uintptr_t)address);

	if (!huge) {
		cpuslab_spin_unlock(&huge_lock);
		return false;
	}
	size_t bytes = huge->bytes;

	drop(huge);
	address = start_of((uintptr_t)address);
	if (huge_is_isolated()) {
		cpuslab_spin_unlock(&huge_lock);
		retire((uintptr_t)address, bytes);
		return true;
	}
	size_t most = most_cached();

	if (options.decay && bytes <= most) {
		/* Cache it, in place of the oldest where the cache is full or would hold too much. */
		struct cached *place = NULL;

		for (struct cached *c = cached; c < cached + CACHED; c++)
			if (!c->address)
				place = c;
		if (!place || cached_bytes + bytes > most) {
			for (struct cached *c = cached; c < cached + CACHED; c++)
				if (c->address &&
				    (!place || !place->address || c->freed_at < place->freed_at))
					place = c;
			if (place->address)
				expelled = expel(place, most_beside(bytes));
		}
		if (!place->address && cached_bytes + bytes <= most) {
			/*
			 * The address is stored last, and cleared first: a fork in between must not pair it
			 * with another's length.
			 */
			__atomic_store_n(&place->address, 0, __ATOMIC_RELEASE);
			place->bytes = bytes;
			place->freed_at = now;
			__atomic_store_n(&place->address, (uintptr_t)address, __ATOMIC_RELEASE);
			cached_bytes += bytes;
			address = NULL;
		}
	}
	cpuslab_spin_unlock(&huge_lock);
	if (expelled.address)
		lock_and_give_back((void *)expelled.address, expelled.bytes);
	if (address)
		lock_and_give_back(address, bytes);
	return true;
}

/*
 * Moves what came from the heap, and so may be several of the system's mappings, to a larger one.  NULL where
 * it would have to be copied: not with the lock held, which it is, since no other thread may be given the old
 * addresses before the table has forgotten them.
 */
static char *move_mapping(const struct huge *huge, size_t bytes)
{
	size_t old = huge->bytes;
	char *from = start_of(huge->address), *to = os_map(NULL, bytes);
	int error = to ? os_move(from, old, to, bytes, false) : 0;

	if (error == EFAULT)
		(void)move_pages(from, old, to, bytes, give_back);
	else if (error)
		give_back(to, bytes);
	return error && error != EFAULT ? NULL : to;
}

/*
 * Resizes an isolated mapping, at another place.  Where it lay is retired like what is freed, unless another
 * thread was given these addresses since the pages left them: then only the pages on both sides go back.
 */
static void *move_isolated(uintptr_t address, size_t bytes)
{
	char *to = map_aligned(bytes, PAGE_BYTES);

	if (!to)
		return NULL;
	cpuslab_spin_lock(&huge_lock);
	struct huge *huge = make_room() ? find(address) : NULL;
	size_t old = huge ? huge->bytes : 0;
	bool moved = huge && os_move((void *)address, old, to, bytes, false) == 0;

	if (moved) {
		drop(huge);
		(void)enter((uintptr_t)to, bytes);
	}
	cpuslab_spin_unlock(&huge_lock);
	if (!moved) {
		unmap((uintptr_t)to, bytes);
		return NULL;
	}
	block_mapping(to, old, bytes);
	if (old <= RETIRED_MOST && os_map_at((void *)address, old)) {
		retire(address, old);
	} else {
		lock_and_give_back((char *)address - PAGE_BYTES, PAGE_BYTES);
		lock_and_give_back((char *)address + old, PAGE_BYTES);
	}
	return to;
}

void *huge_resize(void *address, size_t wanted)
{
	size_t offset = (uintptr_t)address % PAGE_BYTES, bytes = round_to_pages(wanted + offset);

	if (limit_is_set() && bytes > huge_bytes(address) + offset &&
	    limit_exceeds((bytes - huge_bytes(address)) >> PAGE_SHIFT))
		return NULL;
	if (huge_is_isolated())
		return move_isolated((uintptr_t)address, bytes);
	cpuslab_spin_lock(&huge_lock);
	struct huge *huge = find((uintptr_t)address);

	if (!huge || !make_room()) {
		cpuslab_spin_unlock(&huge_lock);
		return NULL;
	}
	/*
	 * make_room() may have moved the entry.  The lock stays held while the mapping moves: no other thread
	 * may be given the old address before the table has forgotten it.
	 */
	huge = find((uintptr_t)address);
	size_t old = huge->bytes;
	char *start = start_of((uintptr_t)address), *moved = start;

	if (old != bytes)
		moved = os_remap(start, old, bytes);
	/* What came from the heap may be several of the system's mappings, which it does not move as one. */
	if (!moved && bytes > old)
		moved = move_mapping(huge, bytes);
	if (moved)
		block_mapping(moved, old, bytes);

	if (moved == start) {
		mapped += bytes - old;
		huge->bytes = bytes;
	} else if (moved) {
		drop(huge);
		enter((uintptr_t)moved + offset, bytes);
	}
	cpuslab_spin_unlock(&huge_lock);
	return moved ? moved + offset : NULL;
}

void *huge_take_over(void *run, size_t old, unsigned offset, size_t wanted, bool *emptied)
{
	size_t bytes = round_to_pages(wanted + offset);
	bool refused = bytes > old && limit_refuses((bytes - old) >> PAGE_SHIFT);
	char *to = refused ? NULL : os_map(NULL, bytes);

	if (!to)
		return NULL;
	block_mapping(to, 0, bytes);
	cpuslab_spin_lock(&huge_lock);
	bool entered = enter((uintptr_t)to + offset, bytes);

	cpuslab_spin_unlock(&huge_lock);
	if (!entered) {
		unmap((uintptr_t)to, bytes);
		return NULL;
	}
	*emptied = move_pages(run, old, to, bytes, NULL);
	return to + offset;
}

static __attribute__((noinline)) void purge_some(bool all)
{
	uint64_t now = os_milliseconds();

	if (__atomic_load_n(&stranded, __ATOMIC_RELAXED) &&
	    (all || os_elapsed(strand_tried_at, now) >= options.decay)) {
		strand_tried_at = now;
		give_back_stranded();
	}

	if (huge_is_isolated() && all)
		release_retired();

	size_t left = all ? SIZE_MAX : (size_t)PAGE_PURGE_MOST << PAGE_SHIFT;
	bool overdue = false;

	for (struct cached *c = cached; c < cached + CACHED; c++) {
		/* A glance without the lock, for the common case of nothing to do. */
		if (!__atomic_load_n(&c->address, __ATOMIC_RELAXED))
			continue;
		struct cached expelled = {0};

		cpuslab_spin_lock(&huge_lock);
		if (c->address && (all || os_elapsed(c->freed_at, now) >= options.decay)) {
			if (left)
				expelled = expel(c, left);
			overdue |= c->address != 0;
		}
		cpuslab_spin_unlock(&huge_lock);
		left -= expelled.bytes;
		if (expelled.address)
			lock_and_give_back((void *)expelled.address, expelled.bytes);
	}
	__atomic_store_n(&behind, overdue, __ATOMIC_RELAXED);
}

void huge_purge(bool all)
{
	/* Most programs have no such mapping. */
	if (__atomic_load_n(&table, __ATOMIC_RELAXED))
		purge_some(all);
}

bool huge_is_behind(void)
{
	return __atomic_load_n(&behind, __ATOMIC_RELAXED);
}

size_t huge_mapped(void)
{
	return __atomic_load_n(&mapped, __ATOMIC_RELAXED);
}

size_t huge_waiting(void)
{
	return __atomic_load_n(&cached_bytes, __ATOMIC_RELAXED) >> PAGE_SHIFT;
}

bool huge_is_torn(void)
{
	return cpuslab_spin_is_locked(&huge_lock);
}

void huge_repair(bool all)
{
	if (!huge_is_torn() && !all)
		return;
	cpuslab_spin_reset(&huge_lock);
	filled = live = mapped = stranded = 0;
	for (size_t slot = 0; table && slot < table->slots; slot++) {
		if (!table->huge[slot].address)
			continue;
		filled++;
		if (table->huge[slot].address <= TOMBSTONE)
			continue;
		if (table->huge[slot].bytes & STRANDED) {
			stranded++;
		} else {
			live++;
			mapped += table->huge[slot].bytes;
		}
	}
	cached_bytes = 0;
	for (struct cached *c = cached; c < cached + CACHED; c++)
		cached_bytes += c->address ? c->bytes : 0;
}

void huge_statistics(struct page_statistics *statistics)
{
	cpuslab_spin_lock(&huge_lock);
	statistics->huge_bytes = mapped;
	statistics->huge_mappings = live;
	statistics->huge_cached_bytes = cached_bytes;
	cpuslab_spin_unlock(&huge_lock);
}

void huge_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("huge.live", (uintptr_t)&live, sizeof live);
	show("huge.mapped", (uintptr_t)&mapped, sizeof mapped);
	show("huge.cached", (uintptr_t)&cached_bytes, sizeof cached_bytes);
	/*
	 * The current table: a count of slots, then as many pairs of address and bytes; bit 0 of the bytes is
	 * set where no object lies.
	 */
	show("huge.table", (uintptr_t)&table, sizeof(uintptr_t));
	/* Cached mappings: each starts with address and bytes. */
	show("huge.waiting", (uintptr_t)cached, sizeof cached);
	show("huge.waiting_each", 0, sizeof cached[0]);
}
