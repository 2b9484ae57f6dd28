/* SPDX-License-Identifier: MIT */
/*
 * depot_homes: a vCPU takes back the magazines that it has left in a depot, the last one first, and another
 * vCPU's only when it has none there; depot_repair() counts all of them; the swing that makes a depot sort
 * scales with the number of vCPUs; and where many magazines pass from one vCPU to another, their objects are
 * put in order of address.
 *
 * Runs with a private slot for each thread, which makes each thread a vCPU of its own.
 */
#include "check.h"

#include "depot/depot.h"
#include "page/page.h"
#include "vcpu/vcpu.h"

enum { ID = VCPU_BANK_CACHES - 1, SIZE = 128 };

static struct depot depot;

static void start(void)
{
	depot_init(&depot, &(struct slab_traits){.name = "test", .size = SIZE, .id = vcpu_offset(ID)}, 0);
	/* Any number of objects may wait. */
	depot.earned = UINT64_MAX / 2;
}

static struct magazine *take_filled(void)
{
	return depot_take_filled(&depot, NULL);
}

static struct magazine *new_filled(void)
{
	struct magazine *magazine = depot_take_empty(&depot, NULL);

	CHECK(magazine && depot_refill(&depot, magazine));
	return magazine;
}

static void check_stacks(uint64_t filled, uint64_t empty, uint64_t objects)
{
	struct depot_statistics now;

	depot_statistics(&depot, &now);
	CHECK(now.filled == filled && now.empty == empty && now.objects == objects,
	      "%llu filled, %llu empty, %llu objects", (unsigned long long)now.filled,
	      (unsigned long long)now.empty, (unsigned long long)now.objects);
}

/* ---- another thread, which leaves the magazines it is given, and ends when given NULL ------------------ */

static struct {
	pthread_barrier_t turn;
	struct magazine *left;
} other;

static void *leave(void *unused)
{
	free(malloc(1)); /* gives it a slot */
	for (;;) {
		pthread_barrier_wait(&other.turn);
		if (!other.left)
			return unused;
		depot_put(&depot, other.left);
		pthread_barrier_wait(&other.turn);
	}
}

static void put_there(struct magazine *magazine)
{
	other.left = magazine;
	pthread_barrier_wait(&other.turn);
	if (magazine)
		pthread_barrier_wait(&other.turn);
}

/* ---- tests ------------------------------------------------------------------------------------------- */

static void test_filled(void)
{
	struct magazine *ours[2], *theirs[2];

	start();
	for (int i = 0; i < 2; i++) {
		ours[i] = new_filled();
		theirs[i] = new_filled();
	}
	uint64_t each = ours[0]->count;

	for (int i = 0; i < 2; i++) {
		depot_put(&depot, ours[i]);
		put_there(theirs[i]);
	}
	check_stacks(4, 0, 4 * each);
	CHECK(take_filled() == ours[1] && take_filled() == ours[0]);
	check_stacks(2, 0, 2 * each);
	CHECK(take_filled() == theirs[1]);
	/* An allocation that must not wait takes the top of the last magazine. */
	void *top = theirs[0]->slot[each];

	CHECK(depot_try_alloc(&depot) == top);
	check_stacks(1, 0, each - 1);
	slab_free_batch(&depot.slabs, &top, 1);
	CHECK(take_filled() == theirs[0] && !take_filled());
	check_stacks(0, 0, 0);
	for (int i = 0; i < 2; i++) {
		depot_put(&depot, ours[i]);
		put_there(theirs[i]);
	}
	/* Frees them all, whichever thread left them. */
	depot_empty(&depot);
	check_stacks(0, 0, 0);
	CHECK(depot.slabs.slabs == 0);
}

static void test_empty(void)
{
	struct magazine *ours, *theirs;

	start();
	ours = depot_take_empty(&depot, NULL);
	theirs = depot_take_empty(&depot, NULL);
	depot_put(&depot, ours);
	put_there(theirs);
	check_stacks(0, 2, 0);
	CHECK(depot_take_empty(&depot, NULL) == ours && depot_take_empty(&depot, NULL) == theirs);
	check_stacks(0, 0, 0);
	depot_put(&depot, ours);
	put_there(theirs);
	depot_empty(&depot);
	check_stacks(0, 0, 0);
}

/* As in a forked child: the counts are rebuilt from all stacks. */
static void test_repair(void)
{
	struct magazine *ours, *theirs, *empties[2];

	start();
	ours = new_filled();
	theirs = new_filled();
	for (int i = 0; i < 2; i++)
		empties[i] = depot_take_empty(&depot, NULL);
	uint64_t each = ours->count;

	depot_put(&depot, ours);
	depot_put(&depot, empties[0]);
	put_there(theirs);
	put_there(empties[1]);
	cpuslab_spin_lock(&depot.lock);
	depot.filled_count = depot.empty_count = 77;
	depot.objects = 1;
	depot_repair(&depot, false);
	check_stacks(2, 2, 2 * each);
	depot_empty(&depot);
	check_stacks(0, 0, 0);
}

static void swing(uint64_t bytes)
{
	enum { MOST = 16384 };
	static struct magazine *magazines[MOST];
	unsigned count = 0;

	for (uint64_t taken = 0; taken < bytes; taken += (uint64_t)magazines[count++]->count * SIZE) {
		CHECK(count < MOST);
		magazines[count] = take_filled();
		if (!magazines[count])
			magazines[count] = new_filled();
	}
	while (count)
		depot_put(&depot, magazines[--count]);
}

/* The threshold is 2 MiB for each vCPU. */
static void test_swing(void)
{
	enum { MIB = 1 << 20 };

	start();
	CHECK(vcpu_areas() > 1);
	swing((uint64_t)vcpu_areas() * MIB * 15 / 8);
	CHECK(!depot.sorts);
	swing((uint64_t)vcpu_areas() * MIB * 17 / 8);
	CHECK(depot.sorts);
	depot_empty(&depot);
}

/* ---- order of address -------------------------------------------------------------------------------- */

/* SPREAD objects of FLOW_BYTES lie in nearly as many pages as are put in order at a time; TOO_FAR in more. */
enum { LOTS = 6, EACH = 30, SCATTERED_OBJECTS = LOTS * EACH, FLOW = 16, FLOW_BYTES = 48 };
enum { SPREAD = SCATTERED_OBJECTS * 40, TOO_FAR = SCATTERED_OBJECTS * 300 };

static struct magazine *lots[LOTS];
static void *objects[1 << 16];

/* Takes `count` magazines that another vCPU has left. */
static void pass(unsigned count)
{
	struct magazine *magazine = new_filled();

	while (count--) {
		put_there(magazine);
		CHECK(take_filled() == magazine);
	}
	depot_dissolve(&depot, magazine);
}

static void start_flow(uint32_t size)
{
	depot_init(&depot, &(struct slab_traits){.name = "test", .size = size, .id = vcpu_offset(ID)}, EACH);
	depot.earned = UINT64_MAX / 2;
}

/*
 * Fills LOTS magazines so that no two successive objects lie in the same page or in adjacent ones.  Picks
 * them evenly from `from` objects in order of address.
 */
static void scatter(unsigned from)
{
	enum { STEP = 77 }; /* coprime with SCATTERED_OBJECTS */

	while (depot.slabs.allocated < from)
		CHECK(slab_alloc_batch(&depot.slabs, &objects[depot.slabs.allocated], 1) == 1);
	for (unsigned i = 1; i < from; i++)
		CHECK(objects[i] > objects[i - 1]);
	for (unsigned m = 0; m < LOTS; m++) {
		struct magazine *magazine = lots[m] = depot_take_empty(&depot, NULL);

		CHECK(magazine);
		while (magazine->count < EACH) {
			unsigned n = (m * EACH + magazine->count) * STEP % SCATTERED_OBJECTS;

			magazine->slot[++magazine->count] = objects[n * (from / SCATTERED_OBJECTS)];
		}
	}
}

/* Whether popping these magazines, one after the other, yields ascending addresses. */
static bool is_in_order(struct magazine *const *magazines, unsigned count)
{
	void *last = NULL;

	for (unsigned m = 0; m < count; m++)
		for (unsigned i = magazines[m]->count; i; i--) {
			if (magazines[m]->slot[i] <= last)
				return false;
			last = magazines[m]->slot[i];
		}
	return true;
}

static void end_flow(struct magazine *const *magazines, unsigned count, unsigned from)
{
	/* Each object is present exactly once, or its slab stops the program. */
	while (count--)
		depot_dissolve(&depot, magazines[count]);
	CHECK(depot.slabs.allocated == from - SCATTERED_OBJECTS);
	bool used[1 << 16] = {false};

	for (unsigned i = 0; i < SCATTERED_OBJECTS; i++)
		used[i * (from / SCATTERED_OBJECTS)] = true;
	for (unsigned i = 0; i < from; i++)
		if (!used[i])
			slab_free_batch(&depot.slabs, &objects[i], 1);
	depot_empty(&depot);
	CHECK(depot.slabs.slabs == 0);
}

static void take_lots(struct magazine **taken, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		CHECK((taken[i] = take_filled()));
	check_stacks(0, 0, 0);
}

/* Magazines are put in order DEPOT_ORDER_MOST at a time, as they are taken. */
static void test_order(void)
{
	struct magazine *taken[LOTS];

	start_flow(FLOW_BYTES);
	pass(FLOW);
	scatter(SPREAD);
	for (int i = 0; i < LOTS; i++)
		put_there(lots[i]);
	check_stacks(LOTS, 0, SCATTERED_OBJECTS);
	CHECK((taken[0] = take_filled()) == lots[LOTS - 1]);
	check_stacks(LOTS - 1, 0, SCATTERED_OBJECTS - EACH);
	CHECK(is_in_order(taken, 1));
	/* The others of the batch are ours by now: taking them neither counts as passed nor sorts again. */
	CHECK(depot.passed == FLOW + 1);
	for (unsigned i = 1; i < DEPOT_ORDER_MOST; i++)
		CHECK((taken[i] = take_filled()));
	CHECK(is_in_order(taken, DEPOT_ORDER_MOST) && !is_in_order(&lots[0], 1) && !is_in_order(&lots[1], 1));
	CHECK(depot.passed == FLOW + 1);
	take_lots(taken + DEPOT_ORDER_MOST, LOTS - DEPOT_ORDER_MOST);
	CHECK(is_in_order(taken + DEPOT_ORDER_MOST, LOTS - DEPOT_ORDER_MOST));
	end_flow(taken, LOTS, SPREAD);
}

/* Objects in too many pages are left as they are, and their magazines keep waiting. */
static void test_far(void)
{
	struct magazine *taken[LOTS];
	void *tops[LOTS];

	start_flow(FLOW_BYTES);
	pass(FLOW);
	scatter(TOO_FAR);
	for (int i = 0; i < LOTS; i++) {
		tops[i] = lots[i]->slot[EACH];
		put_there(lots[i]);
	}
	CHECK((taken[0] = take_filled()) == lots[LOTS - 1] && taken[0]->slot[EACH] == tops[LOTS - 1]);
	check_stacks(LOTS - 1, 0, SCATTERED_OBJECTS - EACH);
	/* These few alone would not lie in too many pages. */
	for (int i = LOTS - 2; i >= LOTS - DEPOT_ORDER_MOST; i--)
		CHECK(lots[i]->slot[EACH] == tops[i]);
	take_lots(taken + 1, LOTS - 1);
	end_flow(taken, LOTS, TOO_FAR);
}

/* Takes what another vCPU has left; returns whether it came in order. */
static bool comes_in_order(void)
{
	struct magazine *taken[LOTS];

	scatter(SPREAD);
	for (int i = 0; i < LOTS; i++)
		put_there(lots[i]);
	take_lots(taken, LOTS);
	bool ordered = is_in_order(taken, 1);

	end_flow(taken, LOTS, SPREAD);
	return ordered;
}

static void test_flow(void)
{
	struct magazine *taken[LOTS];

	/* With these, one less than a flow takes. */
	start_flow(FLOW_BYTES);
	pass(FLOW - LOTS - 1);
	CHECK(!comes_in_order() && !depot.flows);
	pass(1);
	CHECK(depot.flows && comes_in_order());
	/* Aging forgets a flow, by halves. */
	start_flow(FLOW_BYTES);
	pass(FLOW);
	(void)depot_age(&depot, false);
	CHECK(depot.flows);
	(void)depot_age(&depot, false);
	CHECK(!depot.flows && depot.passed == FLOW / 4 && !comes_in_order());
	depot_empty(&depot);
	/* A vCPU's own magazines make no flow. */
	start_flow(FLOW_BYTES);
	struct magazine *magazine = new_filled();

	for (unsigned i = 0; i < 10 * FLOW; i++) {
		depot_put(&depot, magazine);
		CHECK(take_filled() == magazine);
	}
	depot_dissolve(&depot, magazine);
	CHECK(!depot.flows && !depot.passed);
	depot_empty(&depot);
	/*
	 * Objects that fill a cache line gain nothing from neighbours; sizes that are no multiple of 16 may
	 * lie at odd addresses.
	 */
	start_flow(64);
	pass(2 * FLOW);
	CHECK(!depot.flows && depot.passed == 2 * FLOW && !comes_in_order());
	depot_empty(&depot);
	start_flow(FLOW_BYTES - 8);
	pass(2 * FLOW);
	CHECK(!depot.flows);
	depot_empty(&depot);
	/* Hardened caches are never put in order. */
	start_flow(FLOW_BYTES);
	depot.slabs.traits.hardened = true;
	pass(2 * FLOW);
	CHECK(!depot.flows);
	depot.slabs.traits.hardened = false;
	depot_empty(&depot);
	/* Objects handed over in order, ascending or descending, stay as they are. */
	start_flow(FLOW_BYTES);
	pass(FLOW);
	scatter(SPREAD);
	for (unsigned m = 0; m < LOTS; m++)
		for (unsigned i = 0; i < EACH; i++)
			lots[m]->slot[i + 1] = objects[(m * EACH + i) * (SPREAD / SCATTERED_OBJECTS)];
	for (int i = 0; i < LOTS; i++)
		put_there(lots[i]);
	take_lots(taken, LOTS);
	for (unsigned m = 0; m < LOTS; m++)
		CHECK(taken[m] == lots[LOTS - 1 - m] &&
		      taken[m]->slot[1] == objects[(LOTS - 1 - m) * EACH * (SPREAD / SCATTERED_OBJECTS)]);
	end_flow(taken, LOTS, SPREAD);
}

/*
 * Objects that a heap profile has chosen keep their place, and so does a magazine in which it may have chosen
 * some before.
 */
static void test_marked(void)
{
	struct magazine *taken[LOTS];

	for (int i = 0; i < 3; i++) {
		start_flow(FLOW_BYTES);
		pass(FLOW);
		scatter(SPREAD);
		struct magazine *marked = lots[i == 0 ? LOTS - 1 : LOTS - 3];
		void *lowest = marked->slot[1], *last = marked->slot[EACH];

		if (i < 2) {
			/* Replaces the top object by a mark. */
			slab_free_batch(&depot.slabs, &last, 1);
			marked->slot[EACH] = NULL;
			marked->marks = 1;
		} else {
			marked->choice = 1;
		}
		for (int m = 0; m < LOTS; m++)
			put_there(lots[m]);
		take_lots(taken, LOTS);
		if (i == 0) {
			CHECK(taken[0] == marked && is_in_order(taken + 1, DEPOT_ORDER_MOST));
			/* The marked one was taken alone; the next one brought others that wait. */
			CHECK(depot.passed == FLOW + 3);
		} else {
			CHECK(is_in_order(taken, 2) && taken[2] == marked);
			CHECK(is_in_order(taken + 2, 1) == (i == 2) && is_in_order(taken + 3, 3));
		}
		if (i < 2)
			CHECK(marked->slot[1] == lowest && !marked->slot[EACH]);
		end_flow(taken, LOTS, SPREAD);
	}
}

int main(void)
{
	check_watchdog(60);
	free(malloc(1));
	if (strcmp(check_mode(), "slot") != 0)
		return 77;
	CHECK(pthread_barrier_init(&other.turn, NULL, 2) == 0);
	pthread_t thread = check_thread(leave, NULL);

	test_filled();
	test_empty();
	test_repair();
	test_swing();
	test_order();
	test_far();
	test_flow();
	test_marked();
	put_there(NULL);
	check_join(thread);
	return 0;
}
