/* SPDX-License-Identifier: MIT */
/*
 * profile: finds, by sampling, which calls allocated the objects in use.
 *
 * Objects are sampled, not calls.  While a profile runs, each object of a cache is WATCHED with a probability
 * that follows from its size and the mean interval; a hash of its address with changing numbers (a choice)
 * decides.  Every allocation of a watched object records the caller's stack, every free of it is recorded
 * too, and other objects cost nothing.  An address says nothing about who will get it, so every sample stands
 * for 1/p objects, among those in use as among those ever allocated.  The choice changes some times a second:
 * otherwise what is allocated over and over at few addresses would be seen every time or never, which is
 * right on average but useless in one profile.
 *
 * Not every n-th byte allocated.  Nothing counts on the fast path, and what the slow path sees is a biased
 * sample: the calls that went deepest into a magazine, and of two callers that take turns these are always
 * the same one's.
 *
 * Choices.  A new choice costs a walk of the heap, and nothing else has to be done at that moment.  Objects
 * that wait to be allocated keep the marks of the choice in force when they were freed.  A slow path that
 * finds a mark must know its choice, so the last PROFILE_CHOICES of them are kept.
 *
 * Bounded cost.  When samples come too fast for the CPU time that passes, the interval is widened: at once,
 * by a random draw for each watched object that is allocated; and at the next choice, by watching fewer.  The
 * same happens when too many objects are freed that merely share a page with a watched one (PROFILE_VISITS).
 * Both depend only on what was seen before, so an object's probability is known when it is allocated.  Its
 * sample is kept under the interval then in force, and stands for the corresponding number of objects.  The
 * time of the next choice must not depend on samples: a choice that happens to watch a busy address would end
 * early, and one that happens to miss it would last.
 *
 * Reaching the slow path.  The engines make every call for a watched object miss.  In a magazine NULL stands
 * above the object, and its page's map entry leads to a word that is always void; a slab of the linked engine
 * with a watched object is never put on a word; debugged caches, and those with magazines too small for a
 * mark, have a void word while the profile runs.
 *
 * Owns the samples: a table of sites (stack and size, with counts), and one of the watched objects in use.
 * Both are mapped when the first profile starts and stay, so that a reader from outside finds them.  The next
 * profile gets another pair, and the one after it the first pair again, unless a thread is still in it.
 *
 * Called from slow paths by any thread, in signal handlers and forked children too: no lock, no allocation.
 * Lock-free: a site is claimed by a compare-and-exchange of its hash and readable once its frames are; an
 * object's entry likewise.  A thread that writes into tables first counts itself in, then checks that they
 * are still the profile's; a thread that empties tables first takes them from the profile, then checks the
 * count.  At least one of the two sees the other.
 */
#ifndef CPUSLAB_PROFILE_ROOM_H
#define CPUSLAB_PROFILE_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/arch.h"
#include "os/os.h"

enum {
	PROFILE_FRAMES = 60,
	PROFILE_SITES = 1 << 14,
	PROFILE_OBJECTS = 1 << 18,
	PROFILE_COUNTERS = 1 << 13,
	PROFILE_PLACES = 4,           /* entries in a cache line, where an object is looked up first */
	PROFILE_WINDOW = 16,          /* places in which its entry may lie */
	PROFILE_INTERVAL = 512 << 10, /* default, in bytes */
	PROFILE_CHOICES = 256,        /* a power of two */
	PROFILE_VISITS = 32,          /* visits that cost as much as a sample */
};

/* Also read from outside: see tools/profile.c. */
struct profile_site {
	uint64_t hash; /* of frames, size and interval; 0: free */
	uint32_t ready;
	uint32_t frame_count;
	uint64_t size;                   /* bytes of one object */
	uint64_t interval;               /* bytes between samples when these were taken */
	uint64_t allocated, freed;       /* samples */
	uint64_t frames[PROFILE_FRAMES]; /* return addresses, innermost first */
};

struct profile_object {
	uintptr_t address; /* 0: free, 1: being made */
	uint64_t site;     /* index */
};

struct profile_tables {
	struct profile_site sites[PROFILE_SITES];
	struct profile_object objects[PROFILE_OBJECTS] __attribute__((aligned(64)));
	/* Objects in use whose addresses share the counter: 0 tells quickly that an object is not there. */
	uint32_t in_use[PROFILE_COUNTERS];
	/* This page, from here on, is never given back. */
	uint64_t bytes_in_use __attribute__((aligned(OS_PAGE_BYTES))); /* estimated */
	/* Threads inside.  One that a forked child does not have costs the child these tables. */
	uint32_t users;
};

/*
 * Which objects are watched: those whose address, times `factor` plus `offset`, then mixed, is below a bound.
 * Two objects are watched independently of each other, as nearly as matters (Dietzfelbinger, "Universal
 * hashing and k-wise independent random variables via integer arithmetic without primes", STACS 1996), and
 * thanks to the mixing so are many in a row (profile_watches).
 */
struct profile_choice {
	uint64_t factor, offset;
	uint64_t interval; /* mean bytes between samples */
};

struct profile_state {
	uint64_t interval;      /* mean bytes between samples as asked for; 0: no profile runs */
	uint64_t last_interval; /* of the current profile, or else the last one */
	uint64_t wanted;        /* desired value of `interval`; written by any thread, or from outside */
	uint64_t widened;       /* interval in force, at least the choice's */
	uint64_t samples;       /* so far */
	uint64_t visits;        /* frees that took a slow path because of the profile; some are missed */
	uint64_t paced_load;    /* both, in samples, when the pace was last checked */
	uint64_t paced_at;      /* the process's CPU time then, in nanoseconds */
	uint64_t lost;          /* samples for which there was no room */
	uint64_t reach;         /* how far from its first place any entry lies, at most */
	uint64_t choice;        /* number of the choice in force; stored after its contents */
	uint64_t secret;        /* seed of random numbers */
	struct profile_tables *tables, *retired; /* of this profile, and of the previous one */
};
extern ARCH_INTERNAL struct profile_state profile;
/*
 * Indexed by the number's remainder.  Apart from the state, which every program reads to ask whether a
 * profile runs.
 */
extern ARCH_INTERNAL struct profile_choice profile_choices[PROFILE_CHOICES];

static inline bool profile_is_on(void)
{
	return __builtin_expect(__atomic_load_n(&profile.interval, __ATOMIC_RELAXED) != 0, 0);
}

/* Whether a profile is to start or to end. */
static inline bool profile_is_due(void)
{
	return __builtin_expect(__atomic_load_n(&profile.wanted, __ATOMIC_RELAXED) !=
					__atomic_load_n(&profile.interval, __ATOMIC_RELAXED),
				0);
}

/*
 * Does what is wanted: starts a profile with empty tables, or ends one, whose samples stay.  Returns true
 * when one has started: the room above must then make watched objects reach its slow paths.
 */
bool profile_settle(void);
/* Returns how many starts failed for lack of memory. */
uint64_t profile_refused(void);

/* Makes a new choice, which watches as many objects as the pace of samples allows. */
void profile_turn(void);
/* In a forked child. */
bool profile_is_torn(void);
void profile_repair(void);

/*
 * Returns the stamp of the choice in force: the part of its number that is stored beside its marks.  Acquire:
 * the choice is visible to a thread that sees its number.
 */
static inline uint16_t profile_stamp(void)
{
	return (uint16_t)__atomic_load_n(&profile.choice, __ATOMIC_ACQUIRE);
}

/* Returns the choice of a stamp that was just read. */
static inline const struct profile_choice *profile_choice_at(uint16_t stamp)
{
	return &profile_choices[stamp % PROFILE_CHOICES];
}

/* Returns the choice of any stamp; NULL if it is too old, or of another profile. */
static inline const struct profile_choice *profile_choice_of(uint16_t stamp)
{
	uint16_t age = (uint16_t)(profile_stamp() - stamp);

	return age < PROFILE_CHOICES ? profile_choice_at(stamp) : NULL;
}

/* Returns the choice in force. */
static inline const struct profile_choice *profile_choice(void)
{
	return profile_choice_at(profile_stamp());
}

/*
 * Returns the new interval in force after `samples`, visits included, in `nanoseconds` of CPU time.  Samples
 * may take some thousandths of the time; an interval below the default is kept, whatever it costs.
 */
uint64_t profile_pace(uint64_t asked, uint64_t widened, uint64_t samples, uint64_t nanoseconds);

/* Returns the bound of profile_watches() for objects of a size: 2^64 times the probability. */
uint64_t profile_bound(const struct profile_choice *choice, size_t size);
/*
 * Whether a choice watches an object.  Objects of a slab lie in a row, and one multiplication keeps them so:
 * where the step times the factor is nearly a q-th of 2^64, every q-th object would be watched, or none.
 * Mean and variance are right even then, but now and then a choice is off by half or by a factor of ten.  So
 * the high bits are mixed into the low ones before these decide.
 */
static inline bool profile_watches(const struct profile_choice *choice, uint64_t bound, const void *object)
{
	uint64_t place = (uintptr_t)object * choice->factor + choice->offset;

	return (place ^ place >> 32) * 0x9e3779b97f4a7c15u < bound;
}

/*
 * Records that the caller's caller gets an object that a choice watches, if the interval in force makes it a
 * sample.
 */
void profile_allocated(const struct profile_choice *choice, const void *object, size_t size);
/* The same for an object without a choice: each call decides anew.  Returns true when it is a sample. */
bool profile_allocated_large(const void *object, size_t size);
/* Counts a free that took a slow path because its object may be a sample. */
static inline void profile_visited(void)
{
	/* Two concurrent increments may count as one: only the pace depends on it. */
	__atomic_store_n(&profile.visits, __atomic_load_n(&profile.visits, __ATOMIC_RELAXED) + 1,
			 __ATOMIC_RELAXED);
}

/* Records that an object is freed, if it was sampled. */
void profile_freed(const void *object);

/*
 * The same for an object about to be resized, which may stay where it is.  profile_put_back() must follow
 * soon, with the object if it stayed and with NULL otherwise: until then no profile reuses the tables.
 */
struct profile_sample {
	struct profile_tables *tables; /* NULL: the object is no sample */
	uint64_t site;
};
struct profile_sample profile_set_aside(const void *object);
void profile_put_back(struct profile_sample sample, const void *object);

/*
 * Returns the tables of the current profile, or else of the last one; NULL for none.  Until they are left, no
 * other profile uses them.
 */
struct profile_tables *profile_enter_tables(void);
void profile_leave_tables(struct profile_tables *tables);

/* Whether an object is a sample in use. */
bool profile_has(const void *object);

/* Names this for a reader of this process's memory (see report/root.h). */
void profile_show(void (*show)(const char *name, uintptr_t value, size_t size));

#endif
