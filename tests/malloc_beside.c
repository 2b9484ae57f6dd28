/* SPDX-License-Identifier: MIT */
/*
 * malloc_beside: memory that malloc takes from the system beside a full heap does not cost other vCPUs their
 * magazines each time, and no memory of the heap is forgotten because of it.
 *
 *   malloc_beside [costs | back | short]     with a small `reserve`; started by malloc_beside itself
 */
#include "check.h"

#include <sys/resource.h>

#include "moved_clock.h"

enum { KIB = 1 << 10, HEAP = 8 << 20, SIZE = 5000, TIMES = 1000, KEPT = 100, SMALL_SIZES = 4 };

static const size_t small_sizes[SMALL_SIZES] = {24, 100, 500, 1000};

struct block {
	struct block *next;
};

static char *origin;         /* an object of the heap */
static struct block *blocks; /* in the heap */

static bool lies_in_heap(const void *object)
{
	return (size_t)((const char *)object - origin + HEAP) < 2 * HEAP;
}

/* Allocates until a block lies beside the heap. */
static size_t fill_heap(void)
{
	for (size_t count = 0;; count++) {
		struct block *block = malloc(SIZE);

		CHECK(block);
		/* Kept, lest the next one get it as well. */
		if (!lies_in_heap(block))
			return count;
		block->next = blocks;
		blocks = block;
	}
}

static void *take_block(void)
{
	struct block *block = blocks;

	blocks = block->next;
	return block;
}

/* They come from existing slabs, and return there when a magazine is emptied. */
static void use_small_ones(void)
{
	void *objects[SMALL_SIZES];

	for (int i = 0; i < SMALL_SIZES; i++) {
		objects[i] = malloc(small_sizes[i]);
		CHECK(objects[i]);
	}
	for (int i = 0; i < SMALL_SIZES; i++)
		free(objects[i]);
}

static void make_slabs(void)
{
	static void *objects[SMALL_SIZES][KEPT];

	for (int i = 0; i < SMALL_SIZES; i++)
		for (int j = 0; j < KEPT; j++)
			objects[i][j] = malloc(small_sizes[i]);
	for (int i = 0; i < SMALL_SIZES; i++)
		for (int j = 0; j < KEPT; j += 2)
			free(objects[i][j]);
}

/* The cost of `times` allocations beside the heap, each with some of other classes. */
static struct cpuslab_counters cost(unsigned times, void **objects)
{
	struct cpuslab_counters before = check_counters(), after;

	for (unsigned i = 0; i < times; i++) {
		objects[i] = malloc(SIZE);
		CHECK(objects[i] && !lies_in_heap(objects[i]));
		use_small_ones();
	}
	after = check_counters();
	return (struct cpuslab_counters){.fences = after.fences - before.fences,
					 .drains = after.drains - before.drains,
					 .refills = after.refills - before.refills};
}

static void expect_few_trims(void)
{
	static void *objects[TIMES];

	fill_heap();
	struct cpuslab_counters still = cost(TIMES, objects);

	/* One now and then, as time passes. */
	for (int i = 0; i < TIMES; i++)
		free(objects[i]);
	milliseconds += 1000;
	struct cpuslab_counters moved = cost(TIMES, objects);

	printf("%s: of %d beside the heap: %d fences, %d drains, %d refills; a second later %d, %d, %d\n",
	       check_mode(), TIMES, (int)still.fences, (int)still.drains, (int)still.refills,
	       (int)moved.fences, (int)moved.drains, (int)moved.refills);
	CHECK(still.fences + moved.fences <= 8);
	CHECK(still.drains + moved.drains <= 8 * 2 * SMALL_SIZES);
}

/* Blocks freed in the heap are reused before anything beside it. */
static void expect_back(void)
{
	size_t first = fill_heap();

	while (blocks)
		free(take_block());
	size_t second = fill_heap();

	CHECK(second >= first - first / 16, "%zu of %zu", second, first);
	/* For another class, to which hardened mode gives nothing: by the next trim at the latest. */
	if (check_hardened())
		return;
	while (blocks)
		free(take_block());
	milliseconds += 1000;
	void *other = malloc(3 * SIZE);

	CHECK(lies_in_heap(other));
	free(other);
}

static struct block *to_free; /* to be freed by the other thread */

static void *free_one(void *unused)
{
	struct block *block;

	while (!(block = __atomic_load_n(&to_free, __ATOMIC_ACQUIRE)))
		usleep(100);
	free(block);
	__atomic_store_n(&to_free, NULL, __ATOMIC_RELEASE);
	return unused;
}

/* Where nothing can be had beside the heap, an object that is free on another vCPU is found at once. */
static void expect_found(void)
{
	/* Before the heap is full, since the thread itself needs memory. */
	pthread_t thread = check_thread(free_one, NULL);

	fill_heap();
	__atomic_store_n(&to_free, take_block(), __ATOMIC_RELEASE);
	/* Without sleeping: otherwise its vCPU might be this one's. */
	while (__atomic_load_n(&to_free, __ATOMIC_ACQUIRE))
		;
	check_join(thread);

	struct rlimit was, none;

	CHECK(getrlimit(RLIMIT_AS, &was) == 0);
	none = was;
	none.rlim_cur = 1 << 20;
	CHECK(setrlimit(RLIMIT_AS, &none) == 0);
	struct block *found = malloc(SIZE), *more = malloc(SIZE);

	CHECK(setrlimit(RLIMIT_AS, &was) == 0);
	CHECK(found && lies_in_heap(found) && !more);
	free(found);
}

int main(int argc, char **argv)
{
	check_watchdog(60);
	if (!check_cpuslab())
		check_skip("another malloc");
	if (argc == 1) {
		const char *options[] = {"reserve:8M", "reserve:8M,hardened:1", "reserve:8M,vcpu:slot"};

		for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
			/* In hardened mode small objects go back elsewhere. */
			if (i != 1)
				check_again(options[i], "costs");
			check_again(options[i], "back");
			check_again(options[i], "short");
		}
		return 0;
	}
	origin = malloc(100);
	make_slabs();
	if (strcmp(argv[1], "costs") == 0)
		expect_few_trims();
	else if (strcmp(argv[1], "back") == 0)
		expect_back();
	else
		expect_found();
	return 0;
}
