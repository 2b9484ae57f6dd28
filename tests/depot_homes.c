/* SPDX-License-Identifier: MIT */
/*
 * depot_homes: a vCPU takes back the magazines that it has left in a depot, the last one first, and another
 * vCPU's only when it has none there; and depot_repair() counts all of them.
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
	put_there(NULL);
	check_join(thread);
	return 0;
}
