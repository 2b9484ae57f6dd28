/* SPDX-License-Identifier: MIT */
/*
 * depot: where magazines wait between the vCPUs and the slabs.
 *
 * Owns magazines and, for each cache, a stack of filled and a stack of empty ones.  A magazine has one owner
 * at a time: a vCPU's word (loaded), a vCPU's spare word, a depot's stack, or the thread that has it in hand.
 *
 * Called by the magazine room, from any thread, with magazines in hand.  Lock: depot.lock for the stacks,
 * held for a few instructions; never together with the slab cache's lock.
 *
 * How much may wait here?  As many objects as the tunables say: for malloc's classes that limits no burst
 * that is likely, since giving objects to slabs and taking them back costs more than keeping them.  And what
 * has not been needed since the last look goes to the slabs: at every tick (depot_age), and whenever many
 * pages were taken (see page_wants_hoards); and in an ebb (ebb.h) what is more than the
 * program still has of it. At a tick and in an ebb it goes in portions (depot_depart), lest somebody's free
 * wait for all of it.
 *
 * What waits takes a pointer for each object besides, which of small ones is a part of them: a program that
 * frees what it had would grow by that.  So of these no more wait at first than a part of those that there
 * are (WAITING_PART), but as many as the magazines at hand can hold.  The others go to the slabs, and as many
 * as the program then has to take from the slabs again may wait the next time: it has earned them.  Where
 * there are many they gather on the way there, so that one call in a few takes long, and take the magazines
 * at hand.
 *
 * In what order?  What was freed last is taken first: so a small working set stays in the processor's caches,
 * and nothing is cheaper.  A vCPU first takes what was left here by itself, or by one of those whose ids
 * differ by a multiple of DEPOT_HOMES, and only then what others did: they have written to these objects, and
 * to the magazine, last.
 *
 * But each round of frees and allocations mixes the order of the objects a little, for ever, and a working
 * set that is larger than those caches needs its neighbours.  So a depot counts by how much its level swings:
 * the objects that the program gives and takes, wherever they are kept.  Where small objects swing by more
 * than SWING_BYTES for each vCPU, or more of them than SWING_OBJECTS, whose magazines take half as much as
 * the smallest of them do, nothing waits: full magazines go to the slabs, a few at a time so that one call in
 * a few takes long, and what comes from there lies together, by whole magazines.  Slabs that come to be empty
 * are kept for the next rise, a few MiB of them, unless pages are wanted elsewhere or an ebb is followed.
 * While one depot swings so far, all together need more than those caches hold, and others go along that
 * swing by a small part of it (SWING_ALONG).  It ends when the level has swung less than half as far between
 * two ticks.
 *
 * Where objects go from vCPU to vCPU, as in a chain of threads, this order is the program's own: each object
 * that it looks at has lines that another CPU wrote to, and a processor fetches the next ones ahead only
 * where they follow each other; of small ones two share a line, which then comes but once.  The slabs would
 * bring the order back, but for each object that costs more than it wins.  So where magazines often go to
 * another vCPU than the one that left them, one that is taken is looked at, and if its objects are scattered,
 * they are put in order of address together with those of a few that wait (order.h).  So is a vCPU's spare,
 * since threads that free and threads that allocate may take turns on one vCPU, and hardly come here. Whoever
 * hands objects over in order pays for no more than that look.
 *
 * How large is a magazine?  What the vCPUs hold is lost to the program, so a cache begins with small ones,
 * and gets larger ones where it misses, if either there are many times as many objects in use, or it misses
 * so often that it takes time (earns_more).  It loses them again when it hardly misses any more.  So a
 * program that passes a few objects of each of many sizes around stays small, and one that fills and empties
 * a heap, or lives in a few classes, misses as rarely as can be.  A capacity that somebody asked for stays.
 *
 * The capacity changes at any time, by this and by the tunables.  A magazine keeps the one it was made with.
 * One of another capacity is stale, and when it comes back, filled or not, its objects go to the slabs and it
 * is freed; but what a smaller one holds when the capacity grew by itself is used up first.
 *
 * Watched objects.  A heap profile wants to know of some objects whenever they are allocated.  Such an object
 * has NULL in the slot above it: the pop that comes there misses, and the slow path takes both.  What is
 * watched is chosen anew now and then; all marks of a magazine are of one choice, and so is it that its other
 * objects have none.
 *
 * Fork: the stacks change by one store of their head; depot_repair() counts again.  A child loses what the
 * parent's other threads had in hand: each at most two magazines on the slow path of an allocation or a free,
 * DEPOT_ORDER_MOST where it puts them in order, and one while it drains the depot, however many leave it.
 */
#ifndef CPUSLAB_DEPOT_H
#define CPUSLAB_DEPOT_H

#include "slab/slab.h"

/*
 *   slot[0] is NULL, slot[1] to slot[capacity] hold objects up to `count`, and slot[capacity + 1] holds the
 *   magazine's own address with bit 0 set: the end mark, which tells a push that the magazine is full, and a
 *   slow path which magazine a word points into.
 */
struct magazine {
	uint32_t next; /* in a depot's stack: metadata_reference, 0 for none */
	uint16_t capacity;
	uint16_t count;  /* true only while the magazine is in hand or in a depot */
	uint16_t marks;  /* of the slots up to `count`, those that hold NULL: see "Watched objects" */
	uint16_t choice; /* of what a profile watches: the one that the marks are of, see "Watched objects" */
	uintptr_t self;  /* the end mark once more, just below slot[0] */
	void *slot[];
};

/* The names and meanings are those of the kernel's SLAB. */
struct depot_tunables {
	uint32_t limit;        /* objects in a magazine, 1 to DEPOT_CAPACITY_MAX */
	uint32_t batchcount;   /* objects taken from the slabs at a time, 1 to limit */
	uint32_t sharedfactor; /* the depot holds so many times batchcount objects, in whole magazines */
};

/* As many as the depot's first line has room for. */
enum { DEPOT_HOMES = 3 };

struct depot {
	struct slab_cache slabs;

	/*
	 * All that each exchange of a magazine writes, on one line: with large objects there is one for every
	 * few of them, and what it takes is to get its lines from another CPU.
	 */
	struct cpuslab_spinlock lock __attribute__((aligned(64)));
	uint32_t filled_count, empty_count;
	uint32_t filled[DEPOT_HOMES], empty[DEPOT_HOMES]; /* metadata_reference; 0 for none */
	uint32_t passed; /* filled magazines that others had left; half of them are forgotten at each tick */
	uint64_t lock_acquires;
	uint64_t objects; /* in the filled magazines and those that leave */
	int64_t level;    /* objects that came, less those that went */

	/* What is mostly read. */
	uint16_t idle_ticks __attribute__((aligned(64))); /* without a miss counted, one after the other */
	bool served;       /* a magazine, or a miss, since the last look; without the lock */
	bool shrunk;       /* since the last look: what is of the size before is to leave the words, too */
	bool scarce;       /* the program had but a few times what the words can hold, at the last ebb */
	bool departs;      /* something leaves, and is due to go, a portion at a time */
	bool ebbs;         /* so is what is more than may stay, and spare slabs */
	bool sorts;        /* the level rose by more than swing_most: full magazines go to the slabs */
	bool flows;        /* many objects of it go from vCPU to vCPU; without the lock */
	uint16_t capacity; /* of this cache's magazines, in objects; written with the lock, read without */
	uint16_t batch;    /* of a refill; the same */
	uint16_t capacity_least, capacity_most; /* what it may be; the same where somebody asked for it */
	uint32_t filled_low;                    /* the fewest since the last look */
	uint32_t filled_most;                   /* what the tunables let wait here */
	uint32_t sharedfactor;
	uint32_t leaving;  /* for the slabs, and for the metadata where they are empty; as `filled` */
	int64_t level_low; /* the least since the last look */
	int64_t swing;     /* by how much it rose at most since then, from the least before */
	int64_t swing_most;

	uint64_t leaving_objects; /* in those that leave */
	uint64_t stay;            /* so many of them may, while it ebbs */
	uint64_t earned;          /* so many objects may wait in any case: see "How much may wait here?" */
	uint64_t refused;         /* objects that went to the slabs instead, and were not asked for since */
	uint64_t refills, drains;
	uint32_t misses; /* lately, by DEPOT_MISSES; half of them are forgotten at each tick */
	int64_t alone;   /* objects that came past the level, less those that went so; without the lock */
};

/* Magazines of at most this many objects: larger blocks of metadata are not reused. */
enum {
	DEPOT_CAPACITY_MAX = 500,
	DEPOT_MISSES = 64,    /* of a vCPU, that count at once */
	DEPOT_PORTION = 2000, /* objects that go to the slabs at a time, and little more */
	DEPOT_SLAB_COST = 32, /* a slab that this gives to the page room takes as long as so many */
	DEPOT_ORDER_MOST = 4, /* magazines that are put in order of address at a time */
	DEPOT_SCARCE = 16,    /* magazines on each vCPU: of fewer objects in use, see scarce */
	DEPOT_SHAREDFACTOR_MAX = UINT16_MAX, /* malloc's: as good as no limit */
};

/* `capacity` of its magazines; 0 for what suits the size.  The other tunables are malloc's. */
void depot_init(struct depot *depot, const struct slab_traits *traits, uint16_t capacity);

/*
 * Whoever asks for a capacity gets it, from now on.  Returns whether it may be another than before; the
 * caller sees to magazines that are not in the depot.
 */
bool depot_tune(struct depot *depot, const struct depot_tunables *tunables);
/* The limit is the largest capacity that there may be. */
struct depot_tunables depot_tunables(struct depot *depot);

/*
 * Takes a filled magazine, and in return leaves an empty one (or none: NULL); NULL when there is none: then
 * depot_refill() follows, or depot_refused(), where nothing is to be had.
 */
struct magazine *depot_take_filled(struct depot *depot, struct magazine *empty);
/*
 * Where depot_flows(), before a filled magazine that the caller has comes to a word: puts its objects in
 * order of address, and those of some that wait, if they are scattered.  All of them are in hand meanwhile,
 * so that nobody waits for it with the depot's lock; one that gets stale by then waits here until it is
 * taken.
 */
void depot_put_in_order(struct depot *depot, struct magazine *filled);
/* Leaves a filled magazine (or none: NULL), and takes an empty one, new if need be; NULL: out of memory. */
struct magazine *depot_take_empty(struct depot *depot, struct magazine *filled);
/* Leaves a magazine, filled or not. */
void depot_put(struct depot *depot, struct magazine *magazine);
/* The same, but what would have to go to the slabs leaves by depot_depart(), which the caller sees to. */
void depot_put_to_leave(struct depot *depot, struct magazine *magazine);

/* Frees a magazine, whose objects go to the slabs. */
void depot_dissolve(struct depot *depot, struct magazine *magazine);

/* One object without waiting for another thread, from here or from the slabs; NULL where that cannot be. */
void *depot_try_alloc(struct depot *depot);

/*
 * Fills an empty magazine from the slabs: with 8 KiB of objects, but four at least and half of it at most; or
 * whole while full ones go to the slabs, but for what marks may need (see "Watched objects").  False when the
 * system has no more memory.
 */
bool depot_refill(struct depot *depot, struct magazine *magazine);
/* After depot_take_filled() and no refill: the program has not got what it asked for. */
void depot_refused(struct depot *depot);
/* Gives all objects of a magazine to the slabs; returns how many slabs that gave to the page room. */
unsigned depot_drain(struct depot *depot, struct magazine *magazine);

/* One object from the slabs; NULL when the system has no more memory.  And one to the slabs. */
void *depot_alloc_one(struct depot *depot);
void depot_free_one(struct depot *depot, void *object);

/* After each DEPOT_MISSES allocations that missed on a vCPU: the cache may have earned larger magazines. */
void depot_count_misses(struct depot *depot);
/*
 * At each tick: a cache that has not missed for a while gets smaller magazines.  Where depot.shrunk tells
 * that, the caller empties the words before depot_age().
 */
void depot_tick(struct depot *depot);
/*
 * What was not needed since the last call leaves by depot_depart(); returns how many objects.  Where pages
 * are wanted, that is also what came since, if nobody allocated: a cache whose objects are only freed needs
 * them least of all; and it goes at once.
 */
uint64_t depot_age(struct depot *depot, bool pages_wanted);
/*
 * In an ebb, with the words void: no more objects wait here from now on than the program has.  The others
 * leave by depot_depart().  Returns how many.
 */
uint64_t depot_ebb(struct depot *depot);
/* Drains what leaves, up to `most` objects; returns how many are left of these. */
uint64_t depot_depart(struct depot *depot, uint64_t most);
/* Drains and frees everything. */
void depot_empty(struct depot *depot);

struct depot_statistics {
	uint64_t filled, empty, objects, refills, drains, lock_acquires;
};
void depot_statistics(struct depot *depot, struct depot_statistics *statistics);
/* In a forked child: what a dead thread left half done, or all of it. */
void depot_repair(struct depot *depot, bool all);

static inline bool depot_flows(const struct depot *depot)
{
	return __atomic_load_n(&depot->flows, __ATOMIC_RELAXED);
}

/* Whether somebody has asked for this capacity, or there is no other for its size. */
static inline bool depot_has_one_capacity(const struct depot *depot)
{
	return __atomic_load_n(&depot->capacity_least, __ATOMIC_RELAXED) ==
	       __atomic_load_n(&depot->capacity_most, __ATOMIC_RELAXED);
}

/* Of a magazine in hand.  See "How large is a magazine?" */
static inline bool depot_is_stale(const struct depot *depot, const struct magazine *magazine)
{
	unsigned capacity = __atomic_load_n(&depot->capacity, __ATOMIC_RELAXED);

	if (magazine->capacity >= capacity || !magazine->count)
		return magazine->capacity != capacity;
	return depot_has_one_capacity(depot);
}

/*
 * Takes the top object out of a magazine in hand that has one.  *marked: whether it was marked (see "Watched
 * objects"); the mark goes with it.
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
