/* SPDX-License-Identifier: MIT */
/*
 * The zones of a debugged object: every byte of a slot that is not the program's is watched and has exactly
 * one expected value, and objects are as large and as aligned as requested.
 */
#include "check.h"

#include "check/request.h"
#include "check/zones.h"

enum { SLOT_MOST = 32 << 10 };

static unsigned char memory[2 * SLOT_MOST] __attribute__((aligned(4096)));
static const unsigned flag_sets[] = {0, CHECK_RED_ZONE, CHECK_POISON, CHECK_RED_ZONE | CHECK_POISON};

/*
 * Changes each byte of the slot in turn: the change is found, named and repaired, or the byte is the
 * program's.
 */
static void try_each_byte(const struct zones *zones, bool allocated, uint32_t requested)
{
	unsigned char *object = memory + zones->lead;

	zones_fill(zones, object, allocated, requested);
	for (uint32_t i = 0; i < zones->slot_bytes; i++) {
		struct zone_damage damage;
		unsigned char *byte = memory + i, before = *byte;
		ptrdiff_t place = byte - object;
		bool own = place >= 0 && place < (ptrdiff_t)zones->object_bytes;
		bool watched = zones->red || zones->poison;

		if (own && allocated)
			watched = zones->red && place >= (ptrdiff_t)requested;
		else if (own)
			watched = zones->poison_object;
		else if (zones->red && !zones->poison)
			watched = place < (ptrdiff_t)zones->zone_end;
		CHECK(!zones_damage(zones, object, allocated, requested, &damage));
		*byte = (unsigned char)~before;
		CHECK(zones_damage(zones, object, allocated, requested, &damage) == watched,
		      "%u bytes, byte %td", zones->object_bytes, place);
		if (watched) {
			CHECK(damage.first == byte && damage.end == byte + 1 && damage.expected == before);
			CHECK(damage.start <= byte && byte < damage.start + damage.bytes);
			zones_restore(&damage);
		}
		*byte = before;
	}
}

static void test_size(uint32_t bytes, uint32_t alignment)
{
	for (size_t set = 0; set < sizeof flag_sets / sizeof *flag_sets; set++) {
		for (int keeps = 0; keeps < 2; keeps++) {
			struct zones zones = zones_plan(bytes, alignment, flag_sets[set], keeps);

			CHECK(zones.object_bytes == bytes && zones.slot_bytes <= SLOT_MOST);
			CHECK(zones.lead % alignment == 0 && zones.slot_bytes % alignment == 0);
			CHECK(zones.lead + zones.zone_end <= zones.slot_bytes && zones.zone_end >= bytes);
			/* Every object has a red zone on both sides. */
			CHECK(!zones.red || (zones.lead >= 8 && zones.zone_end > bytes));
			CHECK(zones.red == !!(flag_sets[set] & CHECK_RED_ZONE));
			CHECK(zones.poison_object == (!keeps && flag_sets[set] & CHECK_POISON));
			try_each_byte(&zones, false, 0);
			try_each_byte(&zones, true, bytes);
			try_each_byte(&zones, true, bytes / 2);
			try_each_byte(&zones, true, 0);
		}
	}
}

int main(void)
{
	check_watchdog(60);
	for (uint32_t bytes = 1; bytes <= 72; bytes++)
		test_size(bytes, 8);
	for (uint32_t alignment = 8; alignment <= 4096; alignment *= 2) {
		test_size(1, alignment);
		test_size(alignment, alignment);
	}
	test_size(100, 64);
	return 0;
}
