/* SPDX-License-Identifier: MIT */
/*
 * page_schedules: stops large runs that come, go and grow without the page lock at each instruction, while
 * another thread on the same CPU does something that conflicts (schedules.h).
 *
 *   page_schedules standby     a block that comes and goes (standby.h), while others come and go, while
 *                              runs that stand by are recalled, and while the process forks
 *   page_schedules pocket      blocks of many lengths that are freed into a vCPU's pocket and cut from it
 *                              (pocket.h), while others are, while it is emptied, and while the process forks
 *   page_schedules headroom    a run that grows (headroom.h), while others grow, while kept pages are
 *                              recalled, and while the process forks
 *   page_schedules steps       the heap's unused end goes back, while it grows, and while the process forks
 *
 * After each such schedule each page is in one run, every run has its length and its bytes, and a walk over
 * the heap agrees with the counts.  In the child of a fork as well, except for pages that the stopped thread
 * had in hand.
 */
#include "check.h"

#include "heap.h"
#include "process/process.h"
#include "page/headroom.h"
#include "page/pocket.h"

#include "schedules.h"

#ifdef __x86_64__

/* ---- runs whose pages carry their owner's mark ----------------------------------------------------- */

struct owned {
	char *run; /* stored last, and cleared first: a fork may come in between */
	size_t pages;
};

static void sign(const struct owned *owned, size_t from)
{
	for (size_t page = from; page < owned->pages; page++)
		*(volatile uint64_t *)(void *)(owned->run + page * PAGE_BYTES) =
			((uintptr_t)owned << 16) + page;
}

static void own_run(struct owned *owned, char *run, size_t pages)
{
	CHECK(run, "no memory");
	owned->pages = pages;
	owned->run = run;
	sign(owned, 0);
}

static void check_owned(const struct owned *owned)
{
	if (!owned->run)
		return;
	CHECK(page_large_pages(owned->run) >= owned->pages, "%zu pages of %zu", page_large_pages(owned->run),
	      owned->pages);
	for (size_t page = 0; page < owned->pages; page++)
		CHECK(*(volatile uint64_t *)(void *)(owned->run + page * PAGE_BYTES) ==
			      ((uintptr_t)owned << 16) + page,
		      "page %zu of %zu at %p is somebody else's", page, owned->pages, (void *)owned->run);
}

static char *disown(struct owned *owned)
{
	char *run = owned->run;
	check_owned(owned);
	owned->run = NULL;
	return run;
}

static void take(struct owned *owned, size_t pages)
{
	own_run(owned, malloc(pages * PAGE_BYTES), pages);
}

static void give(struct owned *owned)
{
	free(disown(owned));
}

static struct page_statistics statistics(void)
{
	struct page_statistics now;
	page_statistics(&now);
	return now;
}

/* Runs of the stopped thread, and of the other one. */
static struct owned own, theirs[8];
static size_t usual_runs; /* of the process, beside those */

/* Like a slab's: each page has its id. */
enum { SOME_SLAB = 40000 /* id of no cache */ };
static struct owned slab;

static void take_slab(size_t pages)
{
	bool zeroed;
	slab.pages = pages;
	CHECK((slab.run = page_alloc(pages, 1, SOME_SLAB, &zeroed)));
	sign(&slab, 0);
}

static void give_slab(void)
{
	char *run = slab.run;
	if (!run)
		return;
	slab.run = NULL;
	for (size_t page = 0; page < slab.pages; page++)
		CHECK(page_id(run + page * PAGE_BYTES) == SOME_SLAB, "page %zu of a slab has id %u", page,
		      page_id(run + page * PAGE_BYTES));
	page_free(run, slab.pages);
}

static void check_all(void)
{
	check_owned(&own);
	for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
		check_owned(&theirs[i]);
}

/*
 * The child begins in the middle of an operation of the parent's other thread.  It goes on with what it has,
 * and frees what that thread had; then again, with all of the room's lists and counts rebuilt.
 */
static void live_on(void)
{
	enum { MORE = 12, LONG = 90, SHORT = 7 };
	static struct owned more[MORE];
	for (int anew = 0; anew < 2; anew++) {
		bool zeroed;
		if (anew)
			page_repair(true);
		/* The first of them notices that it is in a child, and repairs. */
		for (size_t i = 0; i < MORE; i += 2) {
			take(&more[i], LONG);
			own_run(&more[i + 1], page_alloc(SHORT, 1, PAGE_LARGE, &zeroed), SHORT);
		}
		check_all();
		for (size_t i = 0; i < MORE; i += 2) {
			give(&more[i]);
			page_free(disown(&more[i + 1]), SHORT);
		}
		if (own.run) {
			size_t pages = page_large_pages(own.run);
			page_free(disown(&own), pages);
		}
		page_tick();
		struct page_statistics now = statistics();
		CHECK(now.large_pages <= now.used_pages && now.used_pages + now.dirty_pages <= now.heap_pages,
		      "%zu pages in large runs, %zu in use, %zu dirty, %zu in all", now.large_pages,
		      now.used_pages, now.dirty_pages, now.heap_pages);
		/* A pocket that the other thread was in is empty, and not locked for ever. */
		CHECK(pocket_pages() == 0, "%zu pages are left in pockets", pocket_pages());
	}
	check_all();
	heap_walk();
	_exit(0);
}

static void fork_off(void)
{
	pid_t forked = fork();
	CHECK(forked >= 0);
	if (forked == 0) {
		check_watchdog(60);
		live_on();
	}
	CHECK_EXITED(check_wait(forked), 0);
}

/* Checks all runs, and frees them but for theirs[0]. */
static void give_back(void)
{
	check_all();
	if (own.run)
		give(&own);
	for (size_t i = 1; i < sizeof theirs / sizeof *theirs; i++)
		if (theirs[i].run)
			give(&theirs[i]);
	give_slab();
}

/* ---- standby: a block that comes and goes ----------------------------------------------------------- */

enum { BLOCK_PAGES_HERE = 70, LEARN = 40 };

enum standby_operation { TAKE, PUT, TICK, STANDBY_OPERATIONS };
enum standby_conflict { PAIRS, KEEP, PUT_BEFORE, SERVE_SLABS, SERVE_OTHERS, STANDBY_FORK, STANDBY_CONFLICTS };
static const char *const standby_operations[] = {"take what stands by", "let it stand by", "tick"};

static void standby_begin(void)
{
	take(&theirs[0], BLOCK_PAGES_HERE);
	usual_runs = statistics().large_runs - 1;
}

static void standby_operate(unsigned operation)
{
	for (int i = 0; i < LEARN; i++)
		free(malloc(BLOCK_PAGES_HERE * PAGE_BYTES));
	size_t locks = statistics().lock_acquires;
	take(&own, BLOCK_PAGES_HERE);
	give(&own);
	CHECK(statistics().lock_acquires == locks + 1, "it does not stand by");
	switch ((enum standby_operation)operation) {
	case TAKE:
		TRACED_TRAP();
		own.run = malloc(BLOCK_PAGES_HERE * PAGE_BYTES);
		TRACED_TRAP();
		own_run(&own, own.run, BLOCK_PAGES_HERE);
		break;
	case PUT:
		take(&own, BLOCK_PAGES_HERE);
		char *run = disown(&own);
		TRACED_TRAP();
		free(run);
		TRACED_TRAP();
		break;
	case TICK:
		TRACED_TRAP();
		page_tick();
		TRACED_TRAP();
		break;
	case STANDBY_OPERATIONS:
		break;
	}
}

static void standby_conflict(unsigned kind)
{
	switch ((enum standby_conflict)kind) {
	case PAIRS:
		for (int i = 0; i < 2; i++) {
			take(&theirs[1], BLOCK_PAGES_HERE);
			give(&theirs[1]);
		}
		break;
	case KEEP:
		take(&theirs[1], BLOCK_PAGES_HERE);
		take(&theirs[2], BLOCK_PAGES_HERE);
		break;
	case PUT_BEFORE:
		/* The word is as before, except for its counter; another run is in it. */
		give(&theirs[0]);
		take(&theirs[0], BLOCK_PAGES_HERE);
		take(&theirs[1], BLOCK_PAGES_HERE);
		give(&theirs[0]);
		break;
	case SERVE_SLABS:
		page_tick();
		take_slab(BLOCK_PAGES_HERE);
		break;
	case SERVE_OTHERS:
		page_tick();
		for (size_t i = 1; i < 5; i++)
			take(&theirs[i], BLOCK_PAGES_HERE - 1);
		break;
	case STANDBY_FORK:
		fork_off();
		break;
	case STANDBY_CONFLICTS:
		break;
	}
}

static void standby_check(void)
{
	give_back();
	if (!theirs[0].run)
		take(&theirs[0], BLOCK_PAGES_HERE);
	/* Runs that stand by are freed. */
	page_tick();
	heap_walk();
	CHECK(statistics().large_runs == usual_runs + 1, "%zu runs", statistics().large_runs);
}

/* ---- pocket: blocks of many lengths that come and go ------------------------------------------------ */

enum { LIVE_PAGES = 300, SPARE_PAGES = 400, CUT_PAGES = 50, PUT_PAGES = 60, EARNED = 32 };

enum pocket_operation { CUT, EXCHANGE, JOIN, EMPTY, POCKET_OPERATIONS };
enum pocket_conflict { REPLACE, KEEP_TWO, EMPTY_IT, EMPTY_FOR_SLABS, POCKET_FORK, POCKET_CONFLICTS };
static const char *const pocket_operations[] = {"take what is there", "take what is not", "free", "tick"};

static void pocket_begin(void)
{
	take(&theirs[0], LIVE_PAGES);
	usual_runs = statistics().large_runs - 1;
}

/* Free pages in this vCPU's pocket, so that the next large run is cut from them. */
static void fill_pocket(void)
{
	for (unsigned tries = 0; tries < 8; tries++) {
		/* What the pocket is filled from. */
		take(&own, SPARE_PAGES);
		give(&own);
		run_lock();
		for (unsigned i = 0; i < EARNED; i++)
			pocket_waited();
		run_unlock();
		take(&own, PUT_PAGES);
		take(&theirs[1], PUT_PAGES);
		give(&theirs[1]);
		give(&own);
		take(&own, CUT_PAGES);
		size_t locks = statistics().lock_acquires;
		give(&own);
		take(&own, CUT_PAGES);
		/* At times a free goes the usual way, or there is more than what may be. */
		if (statistics().lock_acquires == locks + 1 && pocket_pages() > 0)
			return;
		give(&own);
		page_tick();
	}
	CHECK(false, "no pocket serves anybody");
}

static void pocket_operate(unsigned operation)
{
	size_t pages = CUT_PAGES;
	char *run;
	fill_pocket();
	switch ((enum pocket_operation)operation) {
	case EXCHANGE:
		pages = 2 * PUT_PAGES;
		/* fall through */
	case CUT:
		give(&own);
		own.pages = 0; /* none of its pages is signed yet */
		TRACED_TRAP();
		own.run = malloc(pages * PAGE_BYTES);
		TRACED_TRAP();
		own_run(&own, own.run, pages);
		break;
	case JOIN:
		run = disown(&own);
		TRACED_TRAP();
		free(run);
		TRACED_TRAP();
		break;
	case EMPTY:
		TRACED_TRAP();
		page_tick();
		TRACED_TRAP();
		break;
	case POCKET_OPERATIONS:
		break;
	}
}

static void pocket_conflict(unsigned kind)
{
	switch ((enum pocket_conflict)kind) {
	case REPLACE:
		for (size_t i = 0; i < 3; i++) {
			take(&theirs[1], CUT_PAGES - i);
			give(&theirs[1]);
		}
		break;
	case KEEP_TWO:
		take(&theirs[1], CUT_PAGES - 1);
		take(&theirs[2], CUT_PAGES + 1);
		give(&theirs[1]);
		take(&theirs[1], CUT_PAGES - 5);
		break;
	case EMPTY_IT:
		page_tick();
		break;
	case EMPTY_FOR_SLABS:
		page_tick();
		take_slab(CUT_PAGES);
		break;
	case POCKET_FORK:
		fork_off();
		break;
	case POCKET_CONFLICTS:
		break;
	}
}

static void pocket_check(void)
{
	give_back();
	page_tick();
	CHECK(pocket_pages() == 0);
	heap_walk();
	CHECK(statistics().large_runs == usual_runs + 1, "%zu runs", statistics().large_runs);
}

/* ---- headroom: a run that grows --------------------------------------------------------------------- */

enum { PAGES = 16, FRONT = 1, FRONT_LAST = 7 };

enum headroom_operation { GROW, GROW_TO_THE_END, RESIZE, RECALL, FREE, HEADROOM_OPERATIONS };
enum headroom_conflict { USE_ELSEWHERE, OTHERS_GROW, OTHERS_SHRINK, HEADROOM_FORK, HEADROOM_CONFLICTS };
static const char *const headroom_operations[] = {"grow", "grow to the end", "resize", "recall", "free"};

/* Runs with gaps behind them, enough to fill every place. */
static void headroom_begin(void)
{
	enum { SINGLES = 1024 };
	static char *singles[SINGLES];
	unsigned places = 0;
	bool zeroed;
	/* Each page has been a dirty run of its own: its stale record looks valid. */
	for (size_t i = 0; i < SINGLES; i++)
		CHECK((singles[i] = page_alloc(1, 1, SOME_SLAB, &zeroed)));
	for (size_t i = 0; i < SINGLES; i++)
		page_free(singles[i % 2 ? i - 1 : SINGLES - 1 - i], 1);
	for (size_t i = FRONT; i <= FRONT_LAST; i++) {
		char *run = page_alloc(4 * PAGES, 1, PAGE_LARGE, &zeroed);
		CHECK(run && page_large_resize(run, 2));
		own_run(&theirs[i], run, 2);
		places |= 1u << headroom_place((uint32_t)(page_of(run) - page_front.heap_page));
	}
	CHECK(places == (1u << HEADROOM_PLACES) - 1, "places %#x", places);
	usual_runs = statistics().large_runs;
}

static void headroom_operate(unsigned operation)
{
	bool zeroed, grown = false;
	size_t more = 3;
	own_run(&own, page_alloc_to_grow(PAGES, &zeroed), PAGES);
	size_t kept = headroom_pages();
	CHECK(kept > 4);
	switch ((enum headroom_operation)operation) {
	case GROW_TO_THE_END:
		more = kept;
		/* fall through */
	case GROW:
		TRACED_TRAP();
		grown = page_large_grow(own.run, PAGES + more);
		TRACED_TRAP();
		break;
	case RESIZE:
		more = kept + 1;
		TRACED_TRAP();
		grown = page_large_resize(own.run, PAGES + more);
		TRACED_TRAP();
		break;
	case RECALL:
		TRACED_TRAP();
		page_tick();
		TRACED_TRAP();
		break;
	case FREE:
		CHECK(page_large_grow(own.run, PAGES + 1));
		char *run = disown(&own);
		TRACED_TRAP();
		page_free(run, PAGES + 1);
		TRACED_TRAP();
		return;
	case HEADROOM_OPERATIONS:
		break;
	}
	if (grown) {
		own.pages += more;
		sign(&own, PAGES);
	}
	CHECK(page_large_pages(own.run) == own.pages, "%zu pages", page_large_pages(own.run));
}

static void grow_theirs(size_t by)
{
	for (size_t i = FRONT; i <= FRONT_LAST; i++)
		if (page_large_grow(theirs[i].run, theirs[i].pages + by) ||
		    page_large_resize(theirs[i].run, theirs[i].pages + by)) {
			theirs[i].pages += by;
			sign(&theirs[i], theirs[i].pages - by);
		}
}

static void headroom_conflict(unsigned kind)
{
	switch ((enum headroom_conflict)kind) {
	case USE_ELSEWHERE:
		/* More than the gaps hold, right behind the run. */
		page_tick();
		take_slab(5 * PAGES);
		break;
	case OTHERS_GROW:
		grow_theirs(1);
		grow_theirs(2);
		break;
	case OTHERS_SHRINK:
		grow_theirs(2);
		for (size_t i = FRONT; i <= FRONT_LAST; i++) {
			CHECK(page_large_resize(theirs[i].run, 1));
			theirs[i].pages = 1;
		}
		break;
	case HEADROOM_FORK:
		fork_off();
		break;
	case HEADROOM_CONFLICTS:
		break;
	}
}

static void headroom_check(void)
{
	check_all();
	if (own.run) {
		size_t pages = own.pages;
		page_free(disown(&own), pages);
	}
	give_slab();
	for (size_t i = FRONT; i <= FRONT_LAST; i++) {
		CHECK(page_large_pages(theirs[i].run) == theirs[i].pages);
		CHECK(page_large_resize(theirs[i].run, 2));
		theirs[i].pages = 2;
		sign(&theirs[i], 0);
	}
	page_tick();
	heap_walk();
	CHECK(statistics().large_runs == usual_runs, "%zu runs", statistics().large_runs);
}

/* ---- steps: unused memory at the heap's end goes back ----------------------------------------------- */

enum steps_operation { GIVE_BACK, STEPS_OPERATIONS };
enum steps_conflict { HEAP_GROWS, STEPS_FORK, STEPS_CONFLICTS };
static const char *const steps_operations[] = {"give back"};

static void steps_begin(void)
{
	usual_runs = statistics().large_runs;
}

/* More than the heap was granted. */
static void use_new_end(struct owned *owned)
{
	bool zeroed;
	size_t pages = page_heap_pages() + 1;
	own_run(owned, page_alloc(pages, 1, PAGE_LARGE, &zeroed), pages);
}

static void steps_operate(unsigned operation)
{
	static size_t pages = 16;
	bool zeroed;
	(void)operation;
	while (layout.heap.committed == page_heap_pages() << PAGE_SHIFT) {
		pages++;
		own_run(&own, page_alloc(pages, 1, PAGE_LARGE, &zeroed), pages);
		page_free(disown(&own), pages);
	}
	__atomic_store_n(&layout_refused, true, __ATOMIC_RELAXED);
	TRACED_TRAP();
	page_purge(true);
	TRACED_TRAP();
}

static void steps_conflict(unsigned kind)
{
	enum { MORE = 5 };
	bool zeroed;
	switch ((enum steps_conflict)kind) {
	case HEAP_GROWS:
		own_run(&theirs[0], page_alloc(MORE, 1, PAGE_LARGE, &zeroed), MORE);
		break;
	case STEPS_FORK:;
		pid_t forked = fork();
		CHECK(forked >= 0);
		if (forked == 0) {
			check_watchdog(60);
			/* Notices that it is in a child, and repairs. */
			take(&theirs[1], 90);
			use_new_end(&theirs[2]);
			live_on();
		}
		CHECK_EXITED(check_wait(forked), 0);
		break;
	case STEPS_CONFLICTS:
		break;
	}
}

static void steps_check(void)
{
	if (theirs[0].run)
		page_free(disown(&theirs[0]), theirs[0].pages);
	heap_walk();
	CHECK(statistics().large_runs == usual_runs, "%zu runs", statistics().large_runs);
}

int main(int argc, char **argv)
{
	static const struct schedules standby = {.operations = standby_operations,
						 .conflicts = STANDBY_CONFLICTS,
						 .begin = standby_begin,
						 .operate = standby_operate,
						 .conflict = standby_conflict,
						 .check = standby_check},
				      headroom = {.operations = headroom_operations,
						  .conflicts = HEADROOM_CONFLICTS,
						  .begin = headroom_begin,
						  .operate = headroom_operate,
						  .conflict = headroom_conflict,
						  .check = headroom_check};
	static const struct schedules steps = {.operations = steps_operations,
					       .conflicts = STEPS_CONFLICTS,
					       .begin = steps_begin,
					       .operate = steps_operate,
					       .conflict = steps_conflict,
					       .check = steps_check};
	static const struct schedules pocket = {.operations = pocket_operations,
						.conflicts = POCKET_CONFLICTS,
						.begin = pocket_begin,
						.operate = pocket_operate,
						.conflict = pocket_conflict,
						.check = pocket_check};
	const struct schedules *chosen = &standby;
	unsigned operations = STANDBY_OPERATIONS;
	if (argc > 1 && strcmp(argv[1], "headroom") == 0) {
		chosen = &headroom;
		operations = HEADROOM_OPERATIONS;
	} else if (argc > 1 && strcmp(argv[1], "pocket") == 0) {
		chosen = &pocket;
		operations = POCKET_OPERATIONS;
	} else if (argc > 1 && strcmp(argv[1], "steps") == 0) {
		chosen = &steps;
		operations = STEPS_OPERATIONS;
	}
	schedules_begin(chosen);
	for (unsigned operation = 0; operation < operations; operation++)
		CHECK(schedules_run(operation).stops >= 100);
	schedules_end();
	return 0;
}

#endif
