/* SPDX-License-Identifier: MIT */
/*
 * check/zones: where the bytes of a debugged object lie, and what those that are not the program's must
 * contain.
 *
 *   slot                object                      requested    zone_end           slot_bytes - lead
 *   | left red zone      | the program's bytes       | right red  | padding          |
 *   |      lead          |                           | zone       |                  |
 *
 * Layout and byte values are SLUB's.  Without red zones there is no lead, and what rounding adds to the
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
	uint32_t object_bytes; /* most that a program may use */
	uint32_t zone_end;   /* offset from the object to the end of its right red zone, or of its rounding */
	uint32_t slot_bytes; /* distance between slots */
	uint32_t lead;       /* offset of the object in its slot */
	bool red, poison;    /* has red zones; padding is filled */
	bool poison_object;  /* the object is filled too: nothing in it must outlive a free */
};

/* `flags` are of enum check_flags; `keeps_content`: objects' bytes must survive a free. */
struct zones zones_plan(uint32_t bytes, uint32_t alignment, unsigned flags, bool keeps_content);

/* A zone whose bytes are not all as they should be. */
struct zone_damage {
	const char *zone;           /* its name in a report */
	unsigned char *start;       /* of the zone */
	size_t bytes;               /* of the zone */
	unsigned char *first, *end; /* from the first wrong byte to past the last one */
	unsigned char expected;
};

/*
 * Checks everything in a slot that is not the program's, in the order of the report, and stops at the first
 * damaged zone.  An allocated object has `requested` bytes of its own.  Returns false when all is well.
 */
bool zones_damage(const struct zones *zones, unsigned char *object, bool allocated, uint32_t requested,
		  struct zone_damage *damage);

/* Fills a slot as zones_damage() expects it.  Leaves the bytes of an allocated object alone. */
void zones_fill(const struct zones *zones, unsigned char *object, bool allocated, uint32_t requested);
/* Poisons an object's bytes, if asked for. */
void zones_poison(const struct zones *zones, unsigned char *object, uint32_t bytes);
/* Restores one damaged zone. */
void zones_restore(const struct zone_damage *damage);

#endif
