/* SPDX-License-Identifier: MIT */
/*
 * depot: where magazines wait between the vCPUs and the slabs.
 *
 * A magazine is an array of pointers to free objects.  Each vCPU has one word for each cache, which points to
 * the top object of its loaded magazine, and beside it a spare magazine (magazine.h).  The depot of a cache
 * holds the magazines that no vCPU has.
 *
 * Owns all magazines, and for each cache stacks of filled and of empty ones, DEPOT_HOMES of each, and one of
 * leaving ones, which are on their way to the slabs.  A magazine has one owner at a time: a vCPU's word, a
 * vCPU's spare word, a depot's stack, or the thread that has it in hand.
 *
 * Called by the magazine room, from any thread, with magazines in hand.  Lock: depot.lock for the stacks,
 * held for a few instructions; never together with the slab cache's lock.
 *
 * How much waits.  At most as many objects as the tunables say; for malloc's classes that exceeds any likely
 * burst, since giving objects to the slabs and taking them back costs more than keeping them.  What was not
 * needed since the last look (depot_age) goes to the slabs.  There is a look at every tick, 100 ms apart at
 * least, and whenever the heap took many pages (page_wants_hoards).  In an ebb, when half of what the program
 * had has come back (ebb.h), what exceeds the objects that it still has goes, too.  At a tick and in an ebb
 * this goes in portions (depot_depart), lest a single free pay for all of it.
 *
 * Each waiting object also occupies a slot, which matters for small ones: a program that frees everything
 * would grow by that.  At first, therefore, small objects may wait up to a part of those allocated
 * (WAITING_PART), or as many as the empty magazines at hand can hold.  The rest go to the slabs; as many as
 * the program then has to take back from there may wait next time, as it has earned them.  Where there are
 * many objects, full magazines gather on the way to the slabs, so that only one call in a few takes long, and
 * are exchanged for empty ones at hand.
 *
 * Order.  LIFO: a small working set stays in the processor's caches, and nothing is cheaper.  A vCPU first
 * takes from its home what it left there itself, or vCPUs did whose ids differ by a multiple of DEPOT_HOMES;
 * only then what others left, whose CPUs were the last to write to these objects and to the magazine.
 *
 * But each round of frees and allocations in another order shuffles the objects a little more, for good, and
 * a working set larger than the processor's caches needs neighbours in memory to follow each other.  The
 * slabs hand objects out in order of address again.  So where more than SCATTERED_BYTES for each vCPU wait in
 * all depots, a full magazine of small objects that are scattered over pages (is_scattered) goes to the
 * slabs, and one whose objects follow each other, as where a program frees in the order in which it
 * allocated, waits.
 *
 * Size of magazines.  What the vCPUs hold is lost to the program, so a cache begins with small magazines.
 * They grow on misses, if either many times as many objects are in use as the vCPUs' magazines would hold, or
 * the misses are so frequent that they cost time (earns_more), and shrink when hardly any call misses.  So a
 * program that passes around a few objects of each of many sizes stays small, and one that fills and empties
 * a heap, or lives in a few classes, misses as rarely as possible.  A capacity that was asked for stays.
 *
 * The capacity may change at any time, by this rule and by the tunables.  A magazine keeps the capacity it
 * was made with.  One of another capacity is stale: when it comes back, filled or not, its objects go to the
 * slabs and it is freed.  If the capacity grew by itself, though, a smaller one that holds objects is used up
 * first.
 *
 * Watched objects.  A heap profile must see every allocation of certain objects.  Such an object has a mark:
 * NULL in the slot above it.  The pop that reads the mark misses, and the slow path removes both.  The choice
 * of watched objects changes now and then; all marks of a magazine are of one choice, and that choice did not
 * mark its other objects.
 *
 * Fork.  Each stack changes by one store of its head; depot_repair() counts again.  A child loses what the
 * parent's other threads had in hand: each at most two magazines on the slow path of an allocation or a free,
 * and one while it drains the depot, however many are leaving.
 */
#ifndef CPUSLAB_DEPOT_H
#define CPUSLAB_DEPOT_H

#include "slab/slab.h"

/*
 * slot[0] is NULL, slot[1] to slot[capacity] hold objects up to `count`, and slot[capacity + 1] is the end
 * mark: the magazine's own address with bit 0 set.  It tells a push that the magazine is full, and a slow
 * path which magazine a word points into.
 */
struct magazine {
	uint32_t next; /* on a depot's stack: metadata_reference of the next one, 0 for none */
	uint16_t capacity;
	uint16_t count;  /* valid only while the magazine is in hand or in a depot */
	uint16_t marks;  /* NULLs among the slots up to `count`: see "Watched objects" */
	uint16_t choice; /* stamp of the choice that the marks are of */
	uintptr_t self;  /* a second end mark, just below slot[0] */
	void *slot[];
};

/* Names and meanings are those of the kernel's SLAB. */
struct depot_tunables {
	uint32_t limit;        /* capacity of a magazine in objects, 1 to DEPOT_CAPACITY_MAX */
	uint32_t batchcount;   /* objects taken from the slabs at once, 1 to limit */
	uint32_t sharedfactor; /* times batchcount: objects that may wait, rounded up to whole magazines */
};

/* As many as fit the depot's first cache line. */
enum { DEPOT_HOMES = 3 };

struct depot {
	struct slab_cache slabs;

	/*
	 * All that an exchange of magazines writes, on one cache line: large objects need an exchange every
	 * few calls, and its cost is fetching lines from another CPU.
	 */
	struct cpuslab_spinlock lock __attribute__((aligned(64)));
	uint32_t filled_count, empty_count;
	uint32_t filled[DEPOT_HOMES], empty[DEPOT_HOMES]; /* by home; metadata_reference, 0 for none */
	uint64_t lock_acquires;
	uint64_t objects; /* in the filled and the leaving magazines */

	/* Mostly read. */
	uint16_t idle_ticks __attribute__((aligned(64))); /* consecutive ticks without a counted miss */
	bool served;  /* depot_take_filled() was called since the last look, which clears it without the lock
		       */
	bool shrunk;  /* capacity shrank since the last look: larger magazines are to leave the words, too */
	bool scarce;  /* at the last ebb the program had only a few times what the words can hold */
	bool departs; /* something is leaving, by portions */
	bool ebbs;    /* so are the objects beyond `stay` */
	uint16_t capacity; /* of new magazines, in objects; written under the lock, read without */
	uint16_t batch;    /* of a refill, in objects; likewise */
	uint16_t capacity_least, capacity_most; /* bounds of `capacity`; equal where one was asked for */
	uint32_t filled_low;                    /* low-water mark of filled_count since the last look */
	uint32_t filled_most;                   /* filled magazines that may wait by the tunables */
	uint32_t sharedfactor;
	uint32_t leaving; /* stack of magazines bound for the slabs, or if empty for the metadata */

	uint64_t leaving_objects; /* in the leaving magazines */
	uint64_t stay;            /* objects that may stay here during an ebb */
	uint64_t earned;          /* objects that may wait in any case, see "How much waits" */
	uint64_t most_in_use; /* high-water mark since the last tick of what the program and the words have */
	uint64_t refused;     /* objects sent to the slabs instead of waiting, and not asked for since */
	uint64_t refills, drains;
	uint32_t misses; /* recent ones, in units of DEPOT_MISSES; halved at each tick */
};

/* Objects in a magazine, at most: larger blocks of metadata are not reused. */
enum {
	DEPOT_CAPACITY_MAX = 500,
	DEPOT_MISSES = 64,    /* of a vCPU, counted at once */
	DEPOT_PORTION = 2000, /* objects that go to the slabs at once, give or take a magazine */
	DEPOT_SLAB_COST = 32, /* freeing a slab to the page room takes as long as so many objects */
	DEPOT_SCARCE = 16, /* see `scarce`: fewer objects in use than so many magazines for each vCPU hold */
	DEPOT_SHAREDFACTOR_MAX = UINT16_MAX, /* malloc's: practically no limit */
};

/* `capacity` of its magazines, 0 to choose by object size.  The other tunables are malloc's. */
void depot_init(struct depot *depot, const struct slab_traits *traits, uint16_t capacity);

/*
 * Sets the tunables; the capacity no longer adapts.  Returns whether it may differ from before; the caller
 * sees to magazines outside the depot.
 */
bool depot_tune(struct depot *depot, const struct depot_tunables *tunables);
/* The limit is the largest capacity that the cache may reach. */
struct depot_tunables depot_tunables(struct depot *depot);

/*
 * Takes a filled magazine and leaves an empty one (or none: NULL) in return.  NULL when there is no filled
 * one: the caller then calls depot_refill().
 */
struct magazine *depot_take_filled(struct depot *depot, struct magazine *empty);
/*
 * Leaves a filled magazine (or none: NULL) and takes an empty one, new if need be.  NULL when out of memory.
 */
struct magazine *depot_take_empty(struct depot *depot, struct magazine *filled);
/* Leaves a magazine, filled or not. */
void depot_put(struct depot *depot, struct magazine *magazine);
/* The same, but what would have to go to the slabs leaves by depot_depart(), which the caller arranges. */
void depot_put_to_leave(struct depot *depot, struct magazine *magazine);

/* Gives a magazine's objects to the slabs and frees the magazine. */
void depot_dissolve(struct depot *depot, struct magazine *magazine);

/* One object from the depot or the slabs without waiting for another thread; NULL where that cannot be. */
void *depot_try_alloc(struct depot *depot);

/*
 * Fills an empty magazine from the slabs: with 8 KiB of objects, but at least four and at most half a
 * magazine.  False when the system has no more memory.
 */
bool depot_refill(struct depot *depot, struct magazine *magazine);
/* Gives all objects of a magazine to the slabs.  Returns how many slabs went back to the page room. */
unsigned depot_drain(struct depot *depot, struct magazine *magazine);

/* Takes one object from the slabs, NULL when the system has no more memory; and gives one back. */
void *depot_alloc_one(struct depot *depot);
void depot_free_one(struct depot *depot, void *object);

/* After every DEPOT_MISSES missed allocations of a vCPU: the cache may have earned larger magazines. */
void depot_count_misses(struct depot *depot);
/*
 * At each tick: shrinks the magazines of a cache that has not missed for a while.  If that sets depot.shrunk,
 * the caller empties the words before depot_age().
 */
void depot_tick(struct depot *depot);
/*
 * Lets what was not needed since the last call leave by depot_depart(); returns how many objects are leaving.
 * Where pages are wanted, they go to the slabs at once; and if nobody allocated, so does what came since: a
 * cache whose objects are only freed needs them least of all.
 */
uint64_t depot_age(struct depot *depot, bool pages_wanted);
/*
 * In an ebb, with the words void: from now on no more objects wait here than the program has.  The others
 * leave by depot_depart().  Returns how many.
 */
uint64_t depot_ebb(struct depot *depot);
/* Drains what is leaving, up to `most` objects; returns how much of `most` is unused. */
uint64_t depot_depart(struct depot *depot, uint64_t most);
/* Drains and frees everything. */
void depot_empty(struct depot *depot);

struct depot_statistics {
	uint64_t filled, empty, objects, refills, drains, lock_acquires;
};
void depot_statistics(struct depot *depot, struct depot_statistics *statistics);
/* In a forked child: repairs what a dead thread left half done, or everything (`all`). */
static inline bool depot_is_torn(const struct depot *depot)
{
	return cpuslab_spin_is_locked(&depot->lock);
}

void depot_repair(struct depot *depot, bool all);

/* Whether the capacity never changes by itself: it was asked for, or the object size allows no other. */
static inline bool depot_has_one_capacity(const struct depot *depot)
{
	return __atomic_load_n(&depot->capacity_least, __ATOMIC_RELAXED) ==
	       __atomic_load_n(&depot->capacity_most, __ATOMIC_RELAXED);
}

/* Of a magazine in hand; see "Size of magazines". */
static inline bool depot_is_stale(const struct depot *depot, const struct magazine *magazine)
{
	unsigned capacity = __atomic_load_n(&depot->capacity, __ATOMIC_RELAXED);

	if (magazine->capacity >= capacity || !magazine->count)
		return magazine->capacity != capacity;
	return depot_has_one_capacity(depot);
}

/*
 * Takes the top object out of a magazine in hand that has one.  *marked tells whether it was marked (see
 * "Watched objects"); its mark is removed, too.
 */
static inline void *depot_pop_in_hand(struct magazine *magazine, bool *marked)
{
	*marked = !magazine->slot[magazine->count];
	if (*marked) {
		magazine->count--;
		magazine->marks--;
	}
	return magazine->slot[magazine->count--];
}

static inline uintptr_t magazine_end_mark(const struct magazine *magazine)
{
	return (uintptr_t)magazine | 1;
}

#endif
