/* SPDX-License-Identifier: MIT */
/*
 * profile: which calls allocated what is in use, by samples.
 *
 * Objects are sampled, not calls.  While a profile runs, each object of a cache is WATCHED with a probability
 * that follows from its size and the mean interval, by a hash of its address with numbers that change.
 * Whenever a watched object is allocated the caller's stack is noted, whenever it is freed that is noted; and
 * the other objects cost nothing.  An address says nothing about who will get it, so that every sample stands
 * for 1/p objects, of those in use as of those ever allocated.  The choice changes some times a second: what
 * is allocated over and over at few addresses would else be seen all the time or never, which is right on
 * average, and of no use in one profile.
 *
 * Why not every n-th byte allocated?  Nothing counts on the fast path.  And what the slow path sees is not a
 * fair choice: it sees who went deepest into a magazine, which of two callers that take turns is always the
 * same one.
 *
 * A new choice costs a walk of the heap, and nothing else has to be done at that moment.  Objects that wait
 * to be allocated keep the marks of the choice that was in force as they were freed, whatever has been chosen
 * since: who finds a mark must know its choice, so that the last PROFILE_CHOICES of them are kept.
 *
 * The cost is bounded.  When samples come too fast for the CPU time that passes, the interval is widened: at
 * once, by a coin for each watched object that is allocated; and at the next choice, by watching fewer.  So
 * it is when too many objects are freed that merely have a watched one in their page (VISITS).  Both depend
 * on what was seen before alone, so that an object's chance is known when it is allocated.  Its sample is
 * kept under the interval that was in force, and stands for as many objects as that says.  The time of the
 * next choice must not depend on samples: a choice that happens to watch a busy address would end early, and
 * one that happens to miss it go on.
 *
 * How a watched object comes to the slow path each time is the engines' business.  In a magazine NULL stands
 * above it, and its page's map entry leads to a word that is always void; a slab of the linked engine that
 * has one is never put on a word; and what is debugged, or has magazines too small for a mark, has a void
 * word as long as the profile runs.
 *
 * Owns the samples: a table of sites (stack and size, with counts), and one of the watched objects in use.
 * Both are mapped when the first profile starts and stay, so that a reader from outside finds them.  The next
 * profile has other ones, and the one after it these again, unless a thread still is in them.
 *
 * Called from slow paths by any thread, in signal handlers and forked children too: no lock, no allocation.
 * Lock-free: a site is claimed by a compare-and-exchange of its hash and is readable when its frames are; an
 * object's entry likewise.  Who writes into tables counts itself in first, and then looks whether they are
 * still the profile's; who would empty them has taken them from the profile first, and then looks at the
 * count.  Of the two one sees the other.
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
	PROFILE_PLACES = 4,           /* entries in a cache line, where an object's is looked for first */
	PROFILE_WINDOW = 16,          /* places in which it may lie */
	PROFILE_INTERVAL = 512 << 10, /* bytes, unless somebody asks for another */
	PROFILE_CHOICES = 256,        /* a power of two */
	PROFILE_VISITS = 32,          /* so many cost as much as a sample */
};

/* Read from outside, too: see tools/profile.c. */
struct profile_site {
	uint64_t hash; /* of frames, size and interval; 0: free */
	uint32_t ready;
	uint32_t frame_count;
	uint64_t size;                   /* bytes of one object */
	uint64_t interval;               /* bytes between samples, when these were taken */
	uint64_t allocated, freed;       /* samples */
	uint64_t frames[PROFILE_FRAMES]; /* return addresses, the innermost first */
};

struct profile_object {
	uintptr_t address; /* 0: free, 1: being made */
	uint64_t site;     /* index */
};

struct profile_tables {
	struct profile_site sites[PROFILE_SITES];
	struct profile_object objects[PROFILE_OBJECTS] __attribute__((aligned(64)));
	/* Objects in use whose addresses lead to the same counter: 0 says soon that one is not there. */
	uint32_t in_use[PROFILE_COUNTERS];
	/* From here on a page that is never given back. */
	uint64_t bytes_in_use __attribute__((aligned(OS_PAGE_BYTES))); /* estimated */
	/* Threads in here.  One that a child of a fork has lost costs it these tables. */
	uint32_t users;
};

/*
 * Which objects are watched: those whose address, times `factor` plus `offset`, and mixed, comes out below a
 * bound.  Two objects are watched independently of each other, as nearly as matters (Dietzfelbinger,
 * "Universal hashing and k-wise independent random variables via integer arithmetic without primes", STACS
 * 1996), and so are many that lie in a row because of the mixing (profile_watches).
 */
struct profile_choice {
	uint64_t factor, offset;
	uint64_t interval; /* mean bytes between samples */
};

struct profile_state {
	uint64_t interval;      /* mean bytes between samples, as asked for; 0: no profile runs */
	uint64_t last_interval; /* of the profile that runs, or ran last */
	uint64_t wanted;     /* what `interval` is to be; written by whoever wants it, in this process or from
				outside */
	uint64_t widened;    /* the interval in force, at least that of the choice */
	uint64_t samples;    /* so far */
	uint64_t visits;     /* frees that came to a slow path because of them; some are missed */
	uint64_t paced_load; /* what both were, as samples, when the pace was looked at */
	uint64_t paced_at;   /* CPU time of the process then, in nanoseconds */
	uint64_t lost;       /* samples for which there was no room */
	uint64_t reach;      /* places that hold any object's entry so far */
	uint64_t choice;     /* number of the one in force; changes after what it stands for */
	uint64_t secret;     /* what random numbers are made from */
	struct profile_tables *tables, *retired; /* of this profile, and of the one before */
};
extern ARCH_INTERNAL struct profile_state profile;
/* By the number's remainder.  Not beside the state, which every program asks whether there is a profile. */
extern ARCH_INTERNAL struct profile_choice profile_choices[PROFILE_CHOICES];

static inline bool profile_is_on(void)
{
	return __builtin_expect(__atomic_load_n(&profile.interval, __ATOMIC_RELAXED) != 0, 0);
}

/* Whether somebody wants a profile to start or to end. */
static inline bool profile_is_due(void)
{
	return __builtin_expect(__atomic_load_n(&profile.wanted, __ATOMIC_RELAXED) !=
					__atomic_load_n(&profile.interval, __ATOMIC_RELAXED),
				0);
}

/*
 * Does what is wanted: starts a profile with empty tables, or ends one, whose samples stay.  True when one
 * has started: the room above must then see that watched objects come to its slow paths.
 */
bool profile_settle(void);
/* How many starts there was no memory for. */
uint64_t profile_refused(void);

/* Makes another choice of what is watched: so many objects as the pace of samples allows. */
void profile_turn(void);
/* In a forked child. */
void profile_repair(void);

/* What is kept of the number of a choice beside what is marked by it: here, of the choice in force.  Acquire:
 * whoever sees a number sees the choice. */
static inline uint16_t profile_stamp(void)
{
	return (uint16_t)__atomic_load_n(&profile.choice, __ATOMIC_ACQUIRE);
}

/* The choice of a stamp that was just read. */
static inline const struct profile_choice *profile_choice_at(uint16_t stamp)
{
	return &profile_choices[stamp % PROFILE_CHOICES];
}

/* The choice of any stamp; NULL if it is too old, or of another profile. */
static inline const struct profile_choice *profile_choice_of(uint16_t stamp)
{
	uint16_t age = (uint16_t)(profile_stamp() - stamp);

	return age < PROFILE_CHOICES ? profile_choice_at(stamp) : NULL;
}

/* The choice in force. */
static inline const struct profile_choice *profile_choice(void)
{
	return profile_choice_at(profile_stamp());
}

/*
 * What the interval in force becomes after `samples`, with the visits, in `nanoseconds` of CPU time.  They
 * have some thousandths of the time; an interval that is smaller than usual is kept, whatever it costs.
 */
uint64_t profile_pace(uint64_t asked, uint64_t widened, uint64_t samples, uint64_t nanoseconds);

/* The bound for profile_watches of objects of a size: 2^64 times the probability. */
uint64_t profile_bound(const struct profile_choice *choice, size_t size);
/*
 * Objects of a slab lie in a row.  One multiplication leaves them in one: where the step times the factor is
 * nearly a q-th of 2^64, every q-th object is watched, or none.  That is right on average, and so is the
 * variance, but now and then a choice is wrong by half or by ten times.  So the high bits go into the low
 * ones before these decide.
 */
static inline bool profile_watches(const struct profile_choice *choice, uint64_t bound, const void *object)
{
	uint64_t place = (uintptr_t)object * choice->factor + choice->offset;

	return (place ^ place >> 32) * 0x9e3779b97f4a7c15u < bound;
}

/* Notes that the caller's caller gets an object that a choice watches, if the interval in force lets it be a
 * sample. */
void profile_allocated(const struct profile_choice *choice, const void *object, size_t size);
/* The same for one that no choice knows: each call decides anew.  True when it is a sample. */
bool profile_allocated_large(const void *object, size_t size);
/* Counts a free that is on a slow path because its object may be a sample. */
static inline void profile_visited(void)
{
	/* Two at once may count as one: no more than the pace hangs on it. */
	__atomic_store_n(&profile.visits, __atomic_load_n(&profile.visits, __ATOMIC_RELAXED) + 1,
			 __ATOMIC_RELAXED);
}

/* Notes that an object is freed, if it was sampled. */
void profile_freed(const void *object);

/*
 * The same of one that may turn out to stay, as it is about to be resized: then profile_put_back is told of
 * it, and else of NULL, in any case and soon: no profile uses the tables anew before.
 */
struct profile_sample {
	struct profile_tables *tables; /* NULL: the object is none */
	uint64_t site;
};
struct profile_sample profile_set_aside(const void *object);
void profile_put_back(struct profile_sample sample, const void *object);

/*
 * The tables of the profile that runs, or ran last, NULL for none: until they are left no other profile is
 * noted in them.
 */
struct profile_tables *profile_enter_tables(void);
void profile_leave_tables(struct profile_tables *tables);

/* Whether an object is a sample that is in use. */
bool profile_has(const void *object);

/* Names all this for a reader of this process's memory (see report/root.h). */
void profile_show(void (*show)(const char *name, uintptr_t value, size_t size));

#endif
