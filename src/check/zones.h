/* SPDX-License-Identifier: MIT */
/*
 * check/zones: where the bytes of a debugged object lie, and what those that are not the program's must be.
 *
 *   slot                object                      requested    zone_end           slot_bytes - lead
 *   | left red zone      | the program's bytes       | right red  | padding          |
 *   |      lead          |                           | zone       |                  |
 *
 * The rules and the bytes are SLUB's.  Without red zones there is no lead, and what rounding adds to the
 * object counts as padding.
 *
 *   red zones   0xbb while the object is free, 0xcc while it is allocated
 *   object      0x6b while it is free, with 0xa5 as its last byte
 *   padding     0x5a
 *
 * Pure functions of their arguments: no state, no lock, callable from anywhere.
 */
#ifndef CPUSLAB_CHECK_ZONES_H
#define CPUSLAB_CHECK_ZONES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	ZONE_INACTIVE = 0xbb,
	ZONE_ACTIVE = 0xcc,
	ZONE_POISON = 0x6b,
	ZONE_POISON_END = 0xa5,
	ZONE_UNUSED = 0x5a,
};

struct zones {
	uint32_t object_bytes; /* the most that a program may use */
	uint32_t zone_end;     /* from the object to the end of its right red zone, or of its rounding */
	uint32_t slot_bytes;   /* from one slot to the next */
	uint32_t lead;         /* from a slot to its object */
	bool red, poison;      /* red zones; padding is filled */
	bool poison_object;    /* the object, too: nothing in it has to outlive a free */
};

/* `flags` of enum check_flags; `keeps_content` for objects whose bytes must survive a free. */
struct zones zones_plan(uint32_t bytes, uint32_t alignment, unsigned flags, bool keeps_content);

/* A stretch of bytes that are not all what they should be. */
struct zone_damage {
	const char *zone;           /* its name in a report */
	unsigned char *start;       /* of the zone */
	size_t bytes;               /* of the zone */
	unsigned char *first, *end; /* from the first wrong byte to behind the last one */
	unsigned char expected;
};

/*
 * Looks at everything in a slot that is not the program's, in the order of the report; stops at the first
 * zone that is damaged.  An allocated object has `requested` bytes of its own.  False when all is well.
 */
bool zones_damage(const struct zones *zones, unsigned char *object, bool allocated, uint32_t requested,
		  struct zone_damage *damage);

/* Makes a slot what zones_damage wants.  The bytes of an allocated object stay as they are. */
void zones_fill(const struct zones *zones, unsigned char *object, bool allocated, uint32_t requested);
/* Poisons the bytes of an object, if that is asked for. */
void zones_poison(const struct zones *zones, unsigned char *object, uint32_t bytes);
/* Restores one damaged zone. */
void zones_restore(const struct zone_damage *damage);

#endif
