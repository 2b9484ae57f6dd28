/* SPDX-License-Identifier: MIT */
#include "check/annotate.h"
#include "check/object.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "check/stack.h"
#include "check/text.h"
#include "options/options.h"
#include "os/os.h"
#include "page/page.h"

/* ---- checks of a cache ----------------------------------------------------------------------------- */

/* Returns the order of the smallest power of two of pages that holds `bytes`. */
static unsigned order_of(uint32_t bytes)
{
	unsigned order = 0;

	while ((uint64_t)PAGE_BYTES << order < bytes)
		order++;
	return order;
}

struct checks *check_create(const char *name, uint32_t bytes, uint32_t alignment, unsigned flags,
			    void (*construct)(void *), bool type_stable)
{
	struct checks *checks = metadata_alloc(sizeof *checks);

	if (!checks)
		return NULL;
	struct zones zones = zones_plan(bytes, alignment, flags, construct || type_stable);

	if (check_request_keeps_order() && order_of(zones.slot_bytes) > order_of(bytes)) {
		flags &= ~(unsigned)CHECK_SPACE;
		zones = zones_plan(bytes, alignment, flags, construct || type_stable);
	}
	*checks = (struct checks){
		.name = name,
		.flags = flags,
		.zones = zones,
		.record_bytes = flags & CHECK_OWNER ? sizeof(struct check_record)
						    : offsetof(struct check_record, allocated),
		.construct = construct,
		.type_stable = type_stable,
		.lock = CPUSLAB_SPINLOCK_INITIALIZER,
	};
	return checks;
}

void check_destroy(struct checks *checks)
{
	if (checks)
		metadata_free(checks, sizeof *checks);
}

bool check_is_torn(const struct checks *checks)
{
	return cpuslab_spin_is_locked(&checks->lock);
}

void check_repair(struct checks *checks)
{
	cpuslab_spin_reset(&checks->lock);
}

static unsigned char *object_of(const struct checks *checks, const struct check_place *place)
{
	return place->slot + checks->zones.lead;
}

/* Whether free objects are read: by the program, or by the checks for their fill. */
static bool is_readable(const struct checks *checks)
{
	return checks->type_stable || checks->flags & (CHECK_RED_ZONE | CHECK_POISON);
}

void check_prepare(struct checks *checks, unsigned char *slot, struct check_record *record)
{
	memset(record, 0, checks->record_bytes);
	zones_fill(&checks->zones, slot + checks->zones.lead, false, 0);
	if (checks->construct)
		checks->construct(slot + checks->zones.lead);
	if (checks->flags & CHECK_ANNOTATE)
		annotate_made(slot + checks->zones.lead, checks->zones.object_bytes, is_readable(checks));
}

void check_release(struct checks *checks, unsigned char *slot)
{
	if (checks->flags & CHECK_ANNOTATE)
		annotate_gone(slot + checks->zones.lead, checks->zones.object_bytes);
}

/* Changes the state; other threads and a forked child see the change in order with what it is about. */
static void set_state(struct check_record *record, enum check_state state)
{
	__atomic_store_n(&record->state, state, __ATOMIC_RELEASE);
}

bool check_fails(struct checks *checks)
{
	return checks->flags & CHECK_FAIL && options.failslab &&
	       __atomic_add_fetch(&checks->calls, 1, __ATOMIC_RELAXED) % options.failslab == 0;
}

/* ---- owners ---------------------------------------------------------------------------------------- */

static struct check_owner this_thread(const struct checks *checks)
{
	if (!(checks->flags & CHECK_OWNER))
		return (struct check_owner){0};
	return (struct check_owner){
		.stack = stack_capture(),
		.thread = os_thread_id(),
		.cpu = os_cpu(),
		.when = (uint32_t)os_milliseconds(),
	};
}

static void add_owner(const char *what, const struct check_owner *owner)
{
	unsigned count;
	const uintptr_t *frame = stack_frames(owner->stack, &count);

	if (!owner->thread)
		return;
	text_add("%s ", what);
	if (count)
		text_add_code(frame[0]);
	else
		text_add("an unknown place");
	text_add(" age=%u ms cpu=%u pid=%u\n", (uint32_t)os_milliseconds() - owner->when, owner->cpu,
		 owner->thread);
	stack_report(owner->stack);
}

static void add_owners(const struct checks *checks, const struct check_record *record)
{
	if (!(checks->flags & CHECK_OWNER))
		return;
	add_owner("Allocated in", &record->allocated);
	add_owner("Freed in", &record->freed);
}

/* ---- reports --------------------------------------------------------------------------------------- */

static const char *state_name(const struct check_record *record)
{
	switch (record->state) {
	case CHECK_IS_FREE:
		return "free";
	case CHECK_IS_OUT:
		return "allocated";
	default:
		return "lost";
	}
}

static void begin_report(const struct checks *checks, const char *what)
{
	static const char rule[] =
		"==============================================================================";

	text_begin();
	text_add("%s\nBUG %s: %s (pid %d)\n%.*s\n\n", rule, checks->name, what, (int)os_process_id(),
		 (int)sizeof rule - 1,
		 "------------------------------------------------------------------------------");
}

static uint32_t at_most(uint32_t bytes, uint32_t most)
{
	return bytes < most ? bytes : most;
}

/* Adds the bytes of a slot; of long zones those next to the object. */
static void add_zones(const struct zones *zones, const unsigned char *object, const unsigned char *slab)
{
	enum { BEFORE = 16, ZONE_SHOWN = 64 };
	const unsigned char *slot = object - zones->lead, *end = slot + zones->slot_bytes;
	uint32_t bytes = zones->object_bytes, red = at_most(zones->lead, ZONE_SHOWN);
	const unsigned char *padding = object + (zones->red ? zones->zone_end : bytes);

	text_add_bytes("Redzone", object - red, red);
	if (slot >= slab + BEFORE)
		text_add_bytes("Bytes b4", slot - BEFORE, BEFORE);
	text_add_bytes("Object", object, at_most(bytes, PAGE_BYTES));
	if (zones->red)
		text_add_bytes("Redzone", object + bytes, at_most(zones->zone_end - bytes, ZONE_SHOWN));
	text_add_bytes("Padding", padding, at_most((uint32_t)(end - padding), ZONE_SHOWN));
}

/* Adds what is known of a slot: owners, slab, object, bytes. */
static void add_place(const struct checks *checks, const struct check_place *place)
{
	const struct zones *zones = &checks->zones;
	const unsigned char *object = object_of(checks, place), *slab = place->slab;

	add_owners(checks, place->record);
	text_add("Slab %p objects=%u used=%u slot=%u\n", place->slab, place->objects, place->used,
		 zones->slot_bytes);
	text_add("Object %p @offset=%zu size=%u", (const void *)object, (size_t)(object - slab),
		 zones->object_bytes);
	if (place->record->state == CHECK_IS_OUT)
		text_add(" requested=%u", place->record->requested);
	text_add(" %s\n\n", state_name(place->record));

	add_zones(zones, object, slab);
}

/* Adds where the calling thread is. */
static void add_culprit(const struct checks *checks)
{
	if (!(checks->flags & CHECK_OWNER))
		return;
	text_add("\nCall stack of thread %u:\n", os_thread_id());
	stack_report(stack_capture());
}

static void end_report(struct checks *checks)
{
	checks->errors++;
	text_add("\n");
	text_end();
}

static void report_object(struct checks *checks, const struct check_place *place, const void *object,
			  const char *what)
{
	begin_report(checks, what);
	text_add("%p was to be freed\n", object);
	if (place)
		add_place(checks, place);
	add_culprit(checks);
	if (options.debug_continue)
		text_add("FIX %s: Object at %p not freed\n", checks->name, object);
	end_report(checks);
}

/* Reports and restores every damaged zone of a slot, one after the other; returns whether there was any. */
static bool restore(struct checks *checks, const struct check_place *place, bool allocated, bool on_demand)
{
	unsigned char *object = object_of(checks, place);
	struct zone_damage damage;
	bool any = false;

	while (zones_damage(&checks->zones, object, allocated, place->record->requested, &damage)) {
		char what[48];

		stpcpy(stpcpy(what, damage.zone), " overwritten");
		begin_report(checks, what);
		text_add("%p-%p @offset=%zu. First byte 0x%x instead of 0x%x\n", (void *)damage.first,
			 (void *)(damage.end - 1),
			 (size_t)(damage.first - (const unsigned char *)place->slab), *damage.first,
			 damage.expected);
		add_place(checks, place);
		if (!on_demand)
			add_culprit(checks);
		if (on_demand || options.debug_continue)
			text_add("FIX %s: Restoring %s %p-%p=0x%x\n", checks->name, damage.zone,
				 (void *)damage.first, (void *)(damage.end - 1), damage.expected);
		end_report(checks);
		zones_restore(&damage);
		any = true;
	}
	return any;
}

/*
 * Stops the process after a call that found damage, unless debug_continue is set.  Called without locks,
 * since a handler of SIGABRT may allocate.
 */
static void stop_unless_continuing(const struct checks *checks)
{
	if (options.debug_continue)
		return;
	text_begin();
	text_add("cpuslab: %s: stopping; CPUSLAB_OPTIONS=debug_continue:true goes on (pid %d)\n",
		 checks->name, (int)os_process_id());
	text_end();
	abort();
}

static void trace(const struct checks *checks, const char *what, const void *object, uint32_t bytes,
		  const struct check_place *place)
{
	if (!(checks->flags & CHECK_TRACE))
		return;
	text_begin();
	text_add("TRACE %s %s %p size=%u inuse=%u\n", checks->name, what, object, bytes, place->used);
	stack_report(stack_capture());
	text_end();
}

/* ---- allocation and free --------------------------------------------------------------------------- */

void *check_alloc(struct checks *checks, const struct check_place *place, uint32_t requested)
{
	struct check_record *record = place->record;
	unsigned char *object = object_of(checks, place);
	struct check_owner owner = this_thread(checks);

	assert(requested <= checks->zones.object_bytes);
	cpuslab_spin_lock(&checks->lock);
	assert(record->state == CHECK_IS_FREE);
	if (checks->flags & CHECK_CONSISTENCY && restore(checks, place, false, false)) {
		set_state(record, CHECK_IS_LOST);
		cpuslab_spin_unlock(&checks->lock);
		stop_unless_continuing(checks);
		return NULL;
	}
	set_state(record, CHECK_IS_BUSY);
	record->requested = requested;
	if (checks->flags & CHECK_OWNER)
		record->allocated = owner;
	zones_fill(&checks->zones, object, true, requested);
	zones_poison(&checks->zones, object, requested);
	set_state(record, CHECK_IS_OUT);
	cpuslab_spin_unlock(&checks->lock);
	if (checks->flags & CHECK_ANNOTATE)
		annotate_allocated(object, requested, checks->construct || checks->type_stable);
	trace(checks, "alloc", object, requested, place);
	return object;
}

/*
 * Returns what is wrong with a pointer to be freed or resized, before any byte of it is read; NULL if
 * nothing.
 */
static const char *wrong_with(const struct checks *checks, const struct check_place *place,
			      const void *object)
{
	if (!place || object != object_of(checks, place))
		return "Invalid object pointer";
	switch (place->record->state) {
	case CHECK_IS_OUT:
		return NULL;
	case CHECK_IS_FREE:
		return "Object already free";
	default:
		return "Object not in use";
	}
}

/* Whether the object is as it should be; reports what is not.  With the lock. */
static bool is_sound(struct checks *checks, const struct check_place *place, const void *object,
		     size_t stated)
{
	const char *wrong = wrong_with(checks, place, object);

	if (!wrong && stated != SIZE_MAX && stated != place->record->requested)
		wrong = "Wrong size of a sized free";
	if (wrong) {
		report_object(checks, place, object, wrong);
		return false;
	}
	if (checks->flags & CHECK_CONSISTENCY && restore(checks, place, true, false)) {
		/* What else was overwritten is unknown. */
		set_state(place->record, CHECK_IS_LOST);
		return false;
	}
	return true;
}

bool check_free(struct checks *checks, const struct check_place *place, void *object, size_t stated)
{
	struct check_owner owner = this_thread(checks);
	uint32_t requested = 0;

	cpuslab_spin_lock(&checks->lock);
	bool sound = is_sound(checks, place, object, stated);

	if (sound) {
		struct check_record *record = place->record;

		requested = record->requested;
		set_state(record, CHECK_IS_BUSY);
		if (checks->flags & CHECK_OWNER)
			record->freed = owner;
		zones_fill(&checks->zones, object, false, 0);
		set_state(record, CHECK_IS_FREE);
	}
	cpuslab_spin_unlock(&checks->lock);
	if (sound)
		trace(checks, "free", object, requested, place);
	else
		stop_unless_continuing(checks);
	if (sound && checks->flags & CHECK_ANNOTATE)
		annotate_freed(object, requested, is_readable(checks));
	return sound;
}

void check_resize(struct checks *checks, const struct check_place *place, void *object, uint32_t requested)
{
	assert(requested <= checks->zones.object_bytes);
	cpuslab_spin_lock(&checks->lock);
	bool sound = is_sound(checks, place, object, SIZE_MAX);

	if (sound) {
		struct check_record *record = place->record;
		/*
		 * Keeps what the program may have written, without red zones even beyond what it had asked
		 * for.
		 */
		uint32_t before = check_usable(checks, record);

		set_state(record, CHECK_IS_BUSY);
		record->requested = requested;
		zones_fill(&checks->zones, object, true, requested);
		if (requested > before)
			zones_poison(&checks->zones, (unsigned char *)object + before, requested - before);
		set_state(record, CHECK_IS_OUT);
	}
	cpuslab_spin_unlock(&checks->lock);
	if (!sound)
		stop_unless_continuing(checks);
}

void *check_object_of(const struct checks *checks, const struct check_place *place, const void *address)
{
	unsigned char *object = object_of(checks, place);
	bool inside = (uintptr_t)address - (uintptr_t)object < checks->zones.object_bytes;

	return inside && place->record->state == CHECK_IS_OUT ? object : NULL;
}

/* ---- on demand ------------------------------------------------------------------------------------- */

bool check_validate(struct checks *checks, const struct check_place *place)
{
	uint32_t state = place->record->state;

	if (state != CHECK_IS_FREE && state != CHECK_IS_OUT)
		return false;
	return restore(checks, place, state == CHECK_IS_OUT, true);
}

void check_report_live(struct checks *checks, const struct check_place *place)
{
	const unsigned char *object = object_of(checks, place);

	text_begin();
	text_add("cpuslab: %s: %p: still allocated as its cache is destroyed\n", checks->name,
		 (const void *)object);
	add_owners(checks, place->record);
	text_end();
}
