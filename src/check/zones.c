/* SPDX-License-Identifier: MIT */
#include "check/zones.h"

#include <string.h>

#include "check/request.h"

enum { WORD = sizeof(void *) };

static uint32_t round_up(uint32_t bytes, uint32_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

struct zones zones_plan(uint32_t bytes, uint32_t alignment, unsigned flags, bool keeps_content)
{
	struct zones zones = {
		.object_bytes = bytes,
		.zone_end = round_up(bytes, WORD),
		.red = flags & CHECK_RED_ZONE,
		.poison = flags & CHECK_POISON,
		.poison_object = (flags & CHECK_POISON) && !keeps_content,
	};
	uint32_t end = zones.zone_end;

	if (zones.red) {
		/* At least one word, and another of padding to show how far an overrun goes. */
		if (zones.zone_end == bytes)
			zones.zone_end += WORD;
		end = zones.zone_end + WORD;
		zones.lead = round_up(WORD, alignment);
	}
	zones.slot_bytes = round_up(zones.lead + end, alignment);
	return zones;
}

/* ---- zones to check ---------------------------------------------------------------------------------- */

struct zone {
	const char *name;
	unsigned char *start;
	size_t bytes;
	unsigned char value;
};

enum { ZONES_MOST = 5 };

/* Lists a slot's zones in the order of their names in SLUB's reports; returns how many. */
static unsigned list(const struct zones *zones, unsigned char *object, bool allocated, uint32_t requested,
		     struct zone zone[ZONES_MOST])
{
	unsigned char red = allocated ? ZONE_ACTIVE : ZONE_INACTIVE;
	uint32_t bytes = zones->object_bytes, own = allocated ? requested : bytes;
	unsigned count = 0;

	if (zones->red) {
		zone[count++] = (struct zone){"Left Redzone", object - zones->lead, zones->lead, red};
		zone[count++] = (struct zone){"Right Redzone", object + own, zones->zone_end - own, red};
	} else if (zones->poison && zones->zone_end > bytes) {
		zone[count++] = (struct zone){"Alignment padding", object + bytes, zones->zone_end - bytes,
					      ZONE_UNUSED};
	}
	if (!allocated && zones->poison_object) {
		zone[count++] = (struct zone){"Poison", object, bytes - 1, ZONE_POISON};
		zone[count++] = (struct zone){"End Poison", object + bytes - 1, 1, ZONE_POISON_END};
	}
	if (zones->poison)
		zone[count++] = (struct zone){"Object padding", object + zones->zone_end,
					      zones->slot_bytes - zones->lead - zones->zone_end, ZONE_UNUSED};
	return count;
}

/* Returns the first byte that differs from `value`; NULL for none. */
static unsigned char *first_other(unsigned char *start, size_t bytes, unsigned char value)
{
	/* All bytes equal the first one's value when each equals its successor. */
	if (!bytes || (start[0] == value && memcmp(start, start + 1, bytes - 1) == 0))
		return NULL;
	while (*start == value)
		start++;
	return start;
}

bool zones_damage(const struct zones *zones, unsigned char *object, bool allocated, uint32_t requested,
		  struct zone_damage *damage)
{
	struct zone zone[ZONES_MOST];
	unsigned count = list(zones, object, allocated, requested, zone);

	for (unsigned i = 0; i < count; i++) {
		unsigned char *first = first_other(zone[i].start, zone[i].bytes, zone[i].value);

		if (!first)
			continue;
		unsigned char *end = zone[i].start + zone[i].bytes;

		while (end[-1] == zone[i].value)
			end--;
		*damage = (struct zone_damage){zone[i].name, zone[i].start, zone[i].bytes,
					       first,        end,           zone[i].value};
		return true;
	}
	return false;
}

void zones_poison(const struct zones *zones, unsigned char *object, uint32_t bytes)
{
	if (!zones->poison_object || !bytes)
		return;
	memset(object, ZONE_POISON, bytes - 1);
	object[bytes - 1] = ZONE_POISON_END;
}

void zones_fill(const struct zones *zones, unsigned char *object, bool allocated, uint32_t requested)
{
	struct zone zone[ZONES_MOST];
	unsigned count = list(zones, object, allocated, requested, zone);

	for (unsigned i = 0; i < count; i++)
		memset(zone[i].start, zone[i].value, zone[i].bytes);
}

void zones_restore(const struct zone_damage *damage)
{
	memset(damage->start, damage->expected, damage->bytes);
}
