/* SPDX-License-Identifier: MIT */
/*
 * profile: which calls allocated what is in use, by samples.
 *
 * Objects are sampled, not calls.  While a profile runs, each object of a cache is WATCHED with a probability
 * that follows from its size and the mean interval, by a hash of its address with a number that changes.
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
 * How a watched object comes to the slow path each time is the engines' business.  In a magazine NULL stands
 * above it, and its page's map entry leads to a word that is always void; a slab of the linked engine that
 * has one is never put on a word; and what is debugged, or has magazines too small for a mark, has a void
 * word as long as the profile runs.
 *
 * Owns the samples: a table of sites (stack and size, with counts), and one of the watched objects in use.
 * Both are mapped when the first profile starts and stay, so that a reader from outside finds them.
 *
 * Called from slow paths by any thread, in signal handlers and forked children too: no lock, no allocation.
 * Lock-free: a site is claimed by a compare-and-exchange of its hash and is readable when its frames are; an
 * object's entry likewise.
 */
#ifndef CPUSLAB_PROFILE_ROOM_H
#define CPUSLAB_PROFILE_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/arch.h"

enum {
	PROFILE_FRAMES = 60,
	PROFILE_SITES = 1 << 14,
	PROFILE_OBJECTS = 1 << 18,
	PROFILE_COUNTERS = 1 << 13,
	PROFILE_PLACES = 4,  /* entries in a cache line, where an object's is looked for first */
	PROFILE_WINDOW = 16, /* places in which it may lie */
};

/* Read from outside, too: see tools/profile.c. */
struct profile_site {
	uint64_t hash; /* of frames and size; 0: free */
	uint32_t ready;
	uint32_t frame_count;
	uint64_t size;                   /* bytes of one object */
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
};

struct profile_state {
	uint64_t interval;      /* mean bytes between samples; 0: no profile runs */
	uint64_t last_interval; /* of the profile that runs, or ran last */
	uint64_t wanted; /* what `interval` is to be; written by whoever wants it, in this process or from
			    outside */
	uint64_t secret;
	uint64_t in_use; /* bytes, estimated */
	uint64_t lost;   /* samples for which there was no room */
	uint64_t reach;  /* places that hold any object's entry so far */
	uint64_t choice; /* counts the choices of what is watched; changes after `secret` */
	struct profile_tables *tables;
};
extern ARCH_INTERNAL struct profile_state profile;

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

/* Makes another choice of what is watched. */
void profile_turn(void);

/* The bound for profile_watches of objects of a size: 2^64 times the probability. */
uint64_t profile_bound(size_t size);
static inline bool profile_watches(uint64_t bound, const void *object)
{
	uint64_t x = ((uintptr_t)object ^ profile.secret) * 0x9e3779b97f4a7c15u;

	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93u;
	x ^= x >> 32;
	return x < bound;
}
/* For objects that are made by the call: whether this one is a sample. */
bool profile_chooses(size_t size);

/* Notes that the caller's caller gets a sampled object. */
void profile_allocated(const void *object, size_t size);
/* Notes that an object is freed, if it was sampled. */
void profile_freed(const void *object);

/* Whether an object is a sample that is in use. */
bool profile_has(const void *object);

/* Names all this for a reader of this process's memory (see report/root.h). */
void profile_show(void (*show)(const char *name, uintptr_t value, size_t size));

#endif
