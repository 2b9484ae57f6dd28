/* SPDX-License-Identifier: MIT */
/*
 * guard_schedules: stops the free, and the allocation, of a guarded object at each instruction, while another
 * thread on the same CPU allocates guarded objects (schedules.h).
 *
 * Half of the slots may be in use, and all of these but one are.  So the other thread gets a guarded object
 * only while the stopped one has none, in the slot that has been free for longest: objects that it allocates
 * and frees one after the other each get another slot, until it has used every free one.
 */
#include "check.h"

#include "guard/guard.h"
#include "guard/slot.h"

#include "schedules.h"

#ifdef __x86_64__

enum { SIZE = 100, AT_END = SLOT_BYTES - 112, TRIES = 8, SLOTS = 16, FREE_SLOTS = SLOTS / 2 + 1 };
enum operation { FREE, ALLOCATE, OPERATIONS };
static const char *const operation_names[] = {"free", "allocate"};

static char *own, *others[SLOTS];
static unsigned long *all_in_turn; /* how often the other thread has used all free slots in turn */

/* First byte of the slot of a guarded object; NULL for an ordinary object. */
static char *slot_of_object(char *object)
{
	if (!object || !guard_contains(object))
		return NULL;
	return (uintptr_t)object % OS_PAGE_BYTES ? object - AT_END : object;
}

/* Returns a guarded object if there is a slot: nearly every allocation is guarded. */
static char *allocate(void)
{
	char *object = NULL;

	for (unsigned tries = 0; tries < TRIES && !slot_of_object(object); tries++) {
		free(object);
		object = malloc(SIZE);
		CHECK(object);
	}
	return object;
}

static uint64_t live(void)
{
	struct guard_statistics statistics;

	guard_statistics(&statistics);
	return statistics.live;
}

static void begin(void)
{
	CHECK(guard_is_on() && guard.slots == SLOTS);
	/* Libc may have some. */
	for (unsigned i = 0; live() < SLOTS / 2 - 1; i++) {
		CHECK(i < SLOTS);
		others[i] = allocate();
	}
}

static void operate(unsigned operation)
{
	if (operation == FREE && !slot_of_object(own)) {
		free(own);
		own = allocate();
		CHECK(slot_of_object(own), "no object is guarded");
	} else if (operation == ALLOCATE) {
		free(own);
		own = NULL;
	}
	TRACED_TRAP();
	if (operation == FREE) {
		free(own);
		own = NULL;
	} else {
		own = malloc(SIZE);
	}
	TRACED_TRAP();
}

static void conflict(unsigned kind)
{
	char *slots[FREE_SLOTS];

	(void)kind;
	for (unsigned i = 0; i < FREE_SLOTS; i++) {
		char *object = allocate();

		slots[i] = slot_of_object(object);
		free(object);
		if (!slots[i]) {
			CHECK(i == 0, "no slot after %u of %u", i, FREE_SLOTS);
			return;
		}
		for (unsigned j = 0; j < i; j++)
			CHECK(slots[j] != slots[i],
			      "%u of %u slots are in turn: one is in use and does not count", i, FREE_SLOTS);
	}
	++*all_in_turn;
}

static void check_round(void)
{
	CHECK(live() == SLOTS / 2 - 1 + (slot_of_object(own) != NULL), "%lu live", live());
}

int main(int argc, char **argv)
{
	static const struct schedules test = {.operations = operation_names,
					      .conflicts = 1,
					      .begin = begin,
					      .operate = operate,
					      .conflict = conflict,
					      .check = check_round};

	(void)argv;
	if (argc == 1) {
		check_again("guard:1,guard_second:0,guard_cost:0,guard_slots:16", "stepped");
		return 0;
	}
	all_in_turn =
		mmap(NULL, sizeof *all_in_turn, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(all_in_turn != MAP_FAILED);
	schedules_begin(&test);
	for (unsigned operation = 0; operation < OPERATIONS; operation++) {
		unsigned long before = *all_in_turn;

		CHECK(schedules_run(operation).stops >= 100);
		CHECK(*all_in_turn > before + 3, "all slots in turn %lu times", *all_in_turn - before);
	}
	schedules_end();
	return 0;
}

#endif
