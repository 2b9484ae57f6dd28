/* SPDX-License-Identifier: MIT */
/*
 * check/object: the checks that every object of a debugged cache passes.
 *
 * A debugged cache has no magazines: its words stay VOID, so every call misses, and objects are taken from
 * the slabs and returned to them one by one.  Zones surround an object's bytes (zones.h).  What is known of
 * the object is its record, which lies with the slab's descriptor in metadata, out of reach of a program that
 * writes past its objects.
 *
 *   CHECK_IS_FREE    the zones are those of a free object; the slabs have it, or are about to
 *   CHECK_IS_OUT     the program has it
 *   CHECK_IS_BUSY    its bytes and its record are being changed, under the lock; in a forked child perhaps by
 *                    a thread that is not there: such an object is lost
 *   CHECK_IS_LOST    it was written to while it was free, and is never handed out again
 *
 * Called by the magazine room, from any thread.  Locks: checks.lock protects records and zones; the slabs'
 * lock (check_validate by way of slab_walk) and the text's are taken under it.  Constructors are called
 * without it.
 *
 * Damage is reported on standard error in one piece, in the order of SLUB's reports.  Then the process stops;
 * with the option debug_continue it repairs what can be repaired, and keeps the object out of use.
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

/* Which thread did something to an object, from where, and when. */
struct check_owner {
	uint32_t stack; /* its number in stack.h */
	uint32_t thread;
	uint32_t cpu;
	uint32_t when; /* milliseconds, modulo 49 days */
};

struct check_record {
	uint32_t state;
	uint32_t requested;                  /* bytes asked for, while it is out */
	struct check_owner allocated, freed; /* with CHECK_OWNER only */
};

struct checks {
	const char *name; /* owned by the caller */
	unsigned flags;
	struct zones zones;
	uint32_t record_bytes;
	void (*construct)(void *object);
	bool type_stable; /* a free object may be read */
	uint64_t calls;   /* for a cache whose allocations fail on purpose */
	uint64_t errors;  /* number reported so far */
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
 * Makes the checks of a cache of objects of `bytes` bytes; returns NULL when there is no memory.
 * `type_stable`: objects may be read after a free, so their bytes must survive it, as those of constructed
 * objects must.
 */
struct checks *check_create(const char *name, uint32_t bytes, uint32_t alignment, unsigned flags,
			    void (*construct)(void *), bool type_stable);
/* NULL is ignored. */
void check_destroy(struct checks *checks);

/* Makes a slot of a new slab, still private to the caller, that of a free object; calls the constructor. */
void check_prepare(struct checks *checks, unsigned char *slot, struct check_record *record);

/* Undoes this for a free slot whose memory leaves the cache. */
void check_release(struct checks *checks, unsigned char *slot);

/* Whether to fail this allocation: the cache has the flag A, and the option failslab says so. */
bool check_fails(struct checks *checks);

/*
 * Hands out a slot's object, `requested` bytes of which are the caller's; returns NULL when it must not be
 * used.
 */
void *check_alloc(struct checks *checks, const struct check_place *place, uint32_t requested);
/*
 * Takes an object back. `place` is NULL where the address lies in no slot of the cache; `stated` is the size
 * that the caller claims, or SIZE_MAX.  Returns false when the object must not go to the slabs.
 */
bool check_free(struct checks *checks, const struct check_place *place, void *object, size_t stated);
/* Checks as for a free, then gives the object `requested` bytes, at most as many as a slot has. */
void check_resize(struct checks *checks, const struct check_place *place, void *object, uint32_t requested);

/* Returns how many bytes of an allocated object the program may use. */
static inline uint32_t check_usable(const struct checks *checks, const struct check_record *record)
{
	return checks->flags & CHECK_RED_ZONE ? record->requested : checks->zones.object_bytes;
}

/* Returns a slot's object if it is out and contains the address; else NULL. */
void *check_object_of(const struct checks *checks, const struct check_place *place, const void *address);

/* Checks one slot, reports and repairs damage; returns whether there was any.  With the lock. */
bool check_validate(struct checks *checks, const struct check_place *place);
/*
 * Reports an object that is still allocated when its cache is destroyed.  With the lock, or with no other
 * thread there.
 */
void check_report_live(struct checks *checks, const struct check_place *place);

/* In a forked child. */
bool check_is_torn(const struct checks *checks);
void check_repair(struct checks *checks);

#endif
