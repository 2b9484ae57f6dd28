/* SPDX-License-Identifier: MIT */
/*
 * check/object: the checks that each object of a debugged cache goes through.
 *
 * A debugged cache has no magazines: its words stay VOID, so that every call misses, and each object is taken
 * from and given to the slabs by itself.  Around its bytes lie zones (zones.h); what is known of it, its
 * record, lies with the slab's descriptor in metadata, where a program that writes past its objects does not
 * reach.
 *
 *   CHECK_IS_FREE    the zones are those of a free object; it is the slabs', or on its way there
 *   CHECK_IS_OUT     the program has it
 *   CHECK_IS_BUSY    its bytes and its record are being changed, under the lock; in a forked child perhaps
 *                    by a thread that is not there: such an object is lost
 *   CHECK_IS_LOST    it was written to while it was free, and is never handed out again
 *
 * Called by the magazine room, from any thread.  Lock: checks.lock for records and zones; under it the
 * slabs' lock (check_validate by way of slab_walk) and the text's.  Constructors are called without it.
 *
 * What is wrong is reported on standard error in one piece, in the order of SLUB's reports.  Then the process
 * stops; or, with the option debug_continue, what can be repaired is, and the object in question is kept out
 * of use.
 */
#ifndef CPUSLAB_CHECK_OBJECT_H
#define CPUSLAB_CHECK_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/request.h"
#include "check/zones.h"
#include "cpuslab/lock.h"

enum check_state { CHECK_IS_FREE, CHECK_IS_OUT, CHECK_IS_BUSY, CHECK_IS_LOST };

/* Who did something with an object, and when. */
struct check_owner {
	uint32_t stack; /* a number of stack.h */
	uint32_t thread;
	uint32_t cpu;
	uint32_t when; /* milliseconds, of the last 49 days */
};

struct check_record {
	uint32_t state;
	uint32_t requested;                  /* bytes that were asked for, while it is out */
	struct check_owner allocated, freed; /* with CHECK_OWNER alone */
};

struct checks {
	const char *name; /* stays the caller's */
	unsigned flags;
	struct zones zones;
	uint32_t record_bytes;
	void (*construct)(void *object);
	bool type_stable; /* a free object may be looked at */
	uint64_t calls;   /* of a cache whose allocations fail on purpose */
	uint64_t errors;  /* reported so far */
	struct cpuslab_spinlock lock;
};

/* A slot and what belongs to it. */
struct check_place {
	unsigned char *slot;
	struct check_record *record;
	const void *slab; /* its first byte */
	unsigned objects, used;
};

/*
 * Checks for a cache of objects of so many bytes; NULL when there is no memory.  `type_stable` for objects
 * that may be looked at after a free, so that their bytes must survive it; as constructed ones' must.
 */
struct checks *check_create(const char *name, uint32_t bytes, uint32_t alignment, unsigned flags,
			    void (*construct)(void *), bool type_stable);
/* NULL is ignored. */
void check_destroy(struct checks *checks);

/* Makes a slot of a new slab, which nobody else knows yet, that of a free object; calls the constructor. */
void check_prepare(struct checks *checks, unsigned char *slot, struct check_record *record);

/* Undoes that to a free slot, whose memory leaves the cache. */
void check_release(struct checks *checks, unsigned char *slot);

/* Whether this allocation is to fail, because the cache has the flag A and the option failslab says so. */
bool check_fails(struct checks *checks);

/* Hands out a slot's object, of which `requested` bytes are the caller's; NULL when it must not be used. */
void *check_alloc(struct checks *checks, const struct check_place *place, uint32_t requested);
/*
 * Takes an object back.  `place` is NULL where the address lies in no slot of the cache.  `stated` is what
 * the caller says its size is, SIZE_MAX for nothing.  False when it must not go to the slabs.
 */
bool check_free(struct checks *checks, const struct check_place *place, void *object, size_t stated);
/* The same checks without a free, then the object has `requested` bytes, at most as many as a slot has. */
void check_resize(struct checks *checks, const struct check_place *place, void *object, uint32_t requested);

/* Bytes that the program may use at an object that is out. */
static inline uint32_t check_usable(const struct checks *checks, const struct check_record *record)
{
	return checks->flags & CHECK_RED_ZONE ? record->requested : checks->zones.object_bytes;
}

/* The object of a slot, if it is out and the address lies in it; else NULL. */
void *check_object_of(const struct checks *checks, const struct check_place *place, const void *address);

/* Looks at one slot; with the lock.  Reports and repairs what is damaged; true if anything was. */
bool check_validate(struct checks *checks, const struct check_place *place);
/*
 * Reports an object that is still out as its cache is destroyed.  With the lock, or with nobody else there.
 */
void check_report_live(struct checks *checks, const struct check_place *place);

/* In a forked child. */
void check_repair(struct checks *checks);

#endif
