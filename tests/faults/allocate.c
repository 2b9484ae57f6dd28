/* SPDX-License-Identifier: MIT */
/*
 * allocate: each system call of the library fails, one after the other, under a program that uses all of it.
 *
 *   allocate once       the k-th call alone fails, for k = 1, 2, ... until the work makes no more calls
 *   allocate row COUNT  the k-th and the COUNT - 1 after it
 *   allocate start      the same from the first call of the process on: the library may not even start
 *   allocate full       all calls fail while the heap is full: a refusal costs nothing, however many there
 * are allocate classes    all calls fail, and metadata is used up, when size classes are first needed
 *
 * Whatever fails, an allocation returns a whole object or NULL with ENOMEM; allocated objects stay intact and
 * can be freed; and once the system gives memory again, all work succeeds.  After that nothing is in use, and
 * no more address space is taken than by work in which no call ever failed.
 */
#include "check.h"

#include <cpuslab/cache.h>

#include <limits.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "floor.h"

enum { KIB = 1 << 10, MIB = 1 << 20, SLOTS = 60, THREADS = 3, BULK = 24, STACK = 64 * KIB };

static bool strict; /* no call fails, so that no allocation may be refused */

static void expect_refusal(const char *what, size_t size)
{
	int error = errno;

	CHECK(!strict, "%s of %zu bytes was refused though nothing fails", what, size);
	CHECK(faults_made() > 0, "%s of %zu bytes was refused before anything failed", what, size);
	CHECK(error == ENOMEM, "%s of %zu bytes: errno %d", what, size, error);
	errno = 0;
}

/* ---- malloc ---------------------------------------------------------------------------------------- */

struct block {
	unsigned char *memory;
	size_t size;
};

static size_t size_of(uint64_t *random)
{
	size_t dice = check_below(random, 100);
	size_t bound = dice < 70 ? 1000 : dice < 90 ? 30 * KIB : dice < 98 ? 900 * KIB : 40 * MIB;

	return 1 + check_below(random, bound);
}

/* Stamps the first and the last bytes; large objects are many. */
static void stamp(const struct block *block)
{
	size_t head = block->size < 256 ? block->size : 256;

	check_stamp(block->memory, head, block->size);
	block->memory[block->size - 1] = check_stamp_byte(block->size, head - 1);
}

static void verify(const struct block *block, size_t size)
{
	size_t head = size < 256 ? size : 256;

	/* The last byte of a block no longer than its head is stamped separately. */
	CHECK_STAMP(block->memory, head == size ? head - 1 : head, block->size);
}

static void *obtain(struct block *block, size_t size, size_t dice)
{
	void *object;

	errno = 0;
	switch (dice) {
	case 0:
		object = calloc(1, size);
		if (object)
			CHECK(check_all_bytes(object, size < 4 * KIB ? size : 4 * KIB, 0) &&
			      !((char *)object)[size - 1]);
		return object;
	case 1:
		object = aligned_alloc(512, size);
		CHECK((uintptr_t)object % 512 == 0);
		return object;
	case 2:
		object = block;
		int error = posix_memalign(&object, 8 * MIB, size);
		CHECK(error ? error == ENOMEM && object == block : (uintptr_t)object % (8 * MIB) == 0);
		errno = error;
		return error ? NULL : object;
	default:
		return malloc(size);
	}
}

static void work_on(struct block *block, uint64_t *random)
{
	size_t size = size_of(random), dice = check_below(random, 10);

	if (!block->memory) {
		block->memory = obtain(block, size, dice);
		if (!block->memory) {
			expect_refusal("an allocation", size);
			return;
		}
		block->size = size;
		stamp(block);
		return;
	}
	verify(block, block->size);
	if (dice < 4) {
		errno = 0;
		struct block resized = {realloc(block->memory, size), block->size};
		if (resized.memory) {
			verify(&resized, size < block->size ? size : block->size);
			*block = (struct block){resized.memory, size};
			stamp(block);
		} else {
			expect_refusal("realloc", size);
			verify(block, block->size);
		}
		return;
	}
	errno = 77;
	free(block->memory);
	CHECK(errno == 77, "free changed errno");
	block->memory = NULL;
}

static void *work_with_malloc(void *seed)
{
	struct block blocks[SLOTS] = {{NULL, 0}};
	uint64_t random = 3 + (uintptr_t)seed;

	for (unsigned long i = check_rounds(250, 2500, 100); i; i--)
		work_on(&blocks[check_below(&random, SLOTS)], &random);
	if (!seed)
		malloc_trim(0);
	for (struct block *block = blocks; block < blocks + SLOTS; block++) {
		if (block->memory)
			verify(block, block->size);
		free(block->memory);
	}
	return NULL;
}

/* ---- paths without the page lock ---------------------------------------------------------------------- */

/* Allocates and frees a block of one length by turns, until its run stands by and is then reused as such. */
static void come_and_go(void)
{
	enum { BYTES = 300 * KIB, TURNS = 60 };

	for (int i = 0; i < TURNS; i++) {
		errno = 0;
		struct block block = {malloc(BYTES), BYTES};
		if (!block.memory) {
			expect_refusal("a block", BYTES);
			continue;
		}
		stamp(&block);
		verify(&block, BYTES);
		free(block.memory);
	}
}

/*
 * Grows a vector into the pages kept behind it, far enough for the page room to need more tables.  Returns
 * the largest number of pages kept.
 */
static unsigned long grow_vector(void)
{
	struct block vector = {NULL, 0};
	unsigned long kept = 0;

	for (size_t size = 40 * KIB; size < 12 * MIB; size += size / 16) {
		struct faults_reached reached;
		errno = 0;
		unsigned char *longer = realloc(vector.memory, size);
		if (!longer) {
			expect_refusal("a longer vector", size);
			continue;
		}
		vector.memory = longer;
		if (vector.size)
			verify(&vector, vector.size);
		vector.size = size;
		stamp(&vector);
		faults_reached(&reached);
		kept = reached.kept > kept ? reached.kept : kept;
	}
	free(vector.memory);
	return kept;
}

/*
 * False where every object is checked (debugged or profiled), or where memory goes back at once, so that no
 * run stands by.
 */
static bool goes_without_lock(void)
{
	const char *options = getenv("CPUSLAB_OPTIONS");

	return !check_debugged() && !(options && (strstr(options, "profile") || strstr(options, "decay:0")));
}

/* Time while the clock stands still. */
static struct timespec stands_at;
static bool stands;

int clock_gettime(clockid_t clock, struct timespec *now)
{
	if (!stands)
		return (int)syscall(SYS_clock_gettime, clock, now);
	*now = stands_at;
	return 0;
}

/* Without ticks, which take back runs that stand by and pages that are kept. */
static void work_with_runs(void)
{
	struct faults_reached before, after;

	CHECK(clock_gettime(CLOCK_MONOTONIC_COARSE, &stands_at) == 0);
	stands = true;
	faults_reached(&before);
	come_and_go();
	unsigned long kept = grow_vector();
	faults_reached(&after);
	stands = false;
	if (strict && goes_without_lock())
		CHECK(after.standby > before.standby + 10 && kept > 4,
		      "%lu runs stood by, %lu pages were kept", after.standby - before.standby, kept);
}

/* Threads share what they free: producers are not consumers. */
static struct block shared[SLOTS];

static void *produce(void *unused)
{
	uint64_t random = 9;

	(void)unused;
	for (struct block *block = shared; block < shared + SLOTS; block++) {
		block->size = 1 + check_below(&random, 4 * KIB);
		errno = 0;
		block->memory = malloc(block->size);
		if (block->memory)
			stamp(block);
		else
			expect_refusal("an allocation", block->size);
	}
	return NULL;
}

static void consume(void)
{
	for (struct block *block = shared; block < shared + SLOTS; block++) {
		if (block->memory)
			verify(block, block->size);
		free(block->memory);
		block->memory = NULL;
	}
}

/* Runs a thread on a stack of the test's own; where libc cannot create one, the work is done here. */
static void run_thread(void *(*function)(void *), void *argument, unsigned number)
{
	static char stacks[THREADS][STACK] __attribute__((aligned(4096)));
	pthread_attr_t attributes;
	pthread_t thread;

	CHECK(pthread_attr_init(&attributes) == 0);
	CHECK(pthread_attr_setstack(&attributes, stacks[number], STACK) == 0);
	if (pthread_create(&thread, &attributes, function, argument) == 0) {
		check_join(thread);
	} else {
		CHECK(!strict && faults_made() > 0);
		function(argument);
	}
	CHECK(pthread_attr_destroy(&attributes) == 0);
}

/* ---- caches ---------------------------------------------------------------------------------------- */

static void construct(void *object)
{
	memset(object, 0x5c, 100);
}

static void work_with_cache(struct cpuslab_cache *cache, bool constructed)
{
	void *objects[3 * BULK];
	size_t count = 0, size = cpuslab_cache_size(cache);

	for (int round = 0; round < BULK; round++) {
		errno = 0;
		objects[count] = round % 3 ? cpuslab_cache_alloc(cache) : cpuslab_cache_alloc_nowait(cache);
		if (!objects[count]) {
			if (round % 3) /* otherwise it may be refused at any time */
				expect_refusal("an object", size);
			continue;
		}
		if (constructed)
			CHECK(check_all_bytes(objects[count], 100, 0x5c));
		else
			check_stamp(objects[count], size, count);
		count++;
	}
	errno = 0;
	size_t bulk = cpuslab_cache_alloc_bulk(cache, BULK, objects + count);
	if (!bulk)
		expect_refusal("a bulk", BULK * size);
	for (size_t end = count + bulk; count < end; count++)
		if (!constructed)
			check_stamp(objects[count], size, count);
	for (size_t i = 0; i < count; i++)
		if (constructed)
			CHECK(check_all_bytes(objects[i], 100, 0x5c));
		else
			CHECK_STAMP(objects[i], size, i);
	for (size_t i = 0; i < count / 2; i++)
		cpuslab_cache_free(cache, objects[i]);
	cpuslab_cache_free_bulk(cache, count - count / 2, objects + count / 2);
	cpuslab_cache_shrink(cache);
}

static void work_with_caches(void)
{
	static const struct {
		size_t size;
		enum cpuslab_engine engine;
		bool constructed;
	} kinds[] = {{200, CPUSLAB_ENGINE_MAGAZINE, false},
		     {9000, CPUSLAB_ENGINE_MAGAZINE, true},
		     {120, CPUSLAB_ENGINE_LINKED, false},
		     {3000, CPUSLAB_ENGINE_LINKED, true}};

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		const struct cpuslab_cache_args args = {
			.name = "faults",
			.size = kinds[i].size,
			.engine = kinds[i].engine,
			.constructor = kinds[i].constructed ? construct : NULL,
		};
		errno = 0;
		struct cpuslab_cache *cache = cpuslab_cache_create(&args);
		if (!cache) {
			expect_refusal("a cache", 0);
			continue;
		}
		work_with_cache(cache, kinds[i].constructed);
		CHECK(cpuslab_cache_destroy(cache) == 0, "objects of the cache are lost");
	}
}

/* ---- all of it ------------------------------------------------------------------------------------- */

static void child_of_work(void)
{
	check_watchdog(30);
	work_with_malloc(NULL);
	_exit(0);
}

static void work(void)
{
	work_with_malloc(NULL);
	run_thread(work_with_malloc, (void *)1, 0);
	run_thread(produce, NULL, 1);
	consume();
	work_with_runs();
	work_with_caches();
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		child_of_work();
	CHECK_EXITED(check_wait(child), 0);
	struct cpuslab_counters counters;
	cpuslab_read_counters(&counters);
	malloc_trim(0);
}

struct usage {
	size_t used;
	long mapped;
	unsigned long pages;
};

static struct usage settle(void)
{
	malloc_trim(0);
	struct mallinfo2 info = mallinfo2();
	return (struct usage){info.uordblks + info.hblkhd, faults_mapped(), faults_heap_pages()};
}

/* In a process of its own: first work during which calls fail, then work during which none does. */
static void case_of(unsigned long k, unsigned long count, const struct usage *before, bool *over)
{
	struct faults_reached first, last;

	faults_reached(&first);
	faults_plan(k, count);
	work();
	*over = faults_made() == 0;
	faults_reached(&last);
	/* Classes were made while calls failed.  In debug mode all exist from the start. */
	CHECK(check_debugged() || last.classes > first.classes + 20, "%lu classes at first, %lu at last",
	      first.classes, last.classes);
	faults_plan(0, 0);
	strict = true;
	work();
	struct usage after = settle();
	if (getenv("CPUSLAB_TEST_VERBOSE"))
		dprintf(1, "k %lu: %lu calls, %zu bytes of metadata\n", k, faults_calls(), faults_metadata());
	if (!before)
		return;
	CHECK(after.used == before->used, "%zu bytes were in use, and %zu are now", before->used, after.used);
	CHECK(after.mapped <= before->mapped, "%ld bytes were mapped, and %ld are now", before->mapped,
	      after.mapped);
	CHECK(after.pages <= before->pages, "%lu pages were in use, and %lu are now", before->pages,
	      after.pages);
}

static struct shared_result {
	bool over;
	struct usage usage;
} *result;

static void run_case(unsigned long k, unsigned long count, const struct usage *before)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		check_watchdog(60);
		case_of(k, count, before, &result->over);
		result->usage = settle();
		_exit(0);
	}
	int status = check_wait(child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "calls %lu to %lu failed: wait status %#x", k,
	      k + count - 1, (unsigned)status);
}

/* The address space that work takes varies with where its threads ran: the maximum of a few runs. */
static struct usage usage_without_faults(void)
{
	struct usage most = {0, 0, 0};

	for (int i = 0; i < 3; i++) {
		run_case(1, 0, NULL);
		most.used = result->usage.used;
		if (result->usage.mapped > most.mapped)
			most.mapped = result->usage.mapped;
		if (result->usage.pages > most.pages)
			most.pages = result->usage.pages;
	}
	return most;
}

static unsigned long sweep(unsigned long count, unsigned long stride)
{
	/* Started here, so that all children have the same layout. */
	free(malloc(1));
	struct usage before = usage_without_faults();
	unsigned long k = 1;

	for (result->over = false; !result->over; k += stride)
		run_case(k, count, &before);
	return k;
}

/* ---- from the start -------------------------------------------------------------------------------- */

static void start_case(unsigned long k, unsigned long count)
{
	char plan[64];
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		snprintf(plan, sizeof plan, "%lu,%lu", k, count);
		setenv("CPUSLAB_FAULTS", plan, 1);
		execl("/proc/self/exe", "allocate", "started", NULL);
		_exit(9);
	}
	int status = check_wait(child);
	CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2),
	      "calls %lu to %lu from the start failed: wait status %#x", k, k + count - 1, (unsigned)status);
	result->over = WEXITSTATUS(status) == 2;
}

/* Exits with 2 when no call failed. */
static int started(void)
{
	void *objects[50] = {NULL};

	check_watchdog(30);
	for (size_t i = 0; i < 50; i++) {
		errno = 0;
		objects[i] = i % 3 == 0   ? malloc(100)
			     : i % 3 == 1 ? calloc(1, 50000)
					  : aligned_alloc(64, 100);
		if (!objects[i])
			expect_refusal("an allocation", i);
	}
	bool over = faults_made() == 0;
	faults_plan(0, 0);
	for (size_t i = 0; i < 50; i++)
		free(objects[i]);
	free(NULL);
	strict = true;
	work();
	return over ? 2 : 0;
}

static unsigned long sweep_start(unsigned long count)
{
	unsigned long k = 1;

	for (result->over = false; !result->over; k++)
		start_case(k, count);
	return k;
}

/* Nothing is in use beyond what other libraries had in use at first. */
static void expect_usage(const struct usage *before)
{
	struct usage after = settle();

	CHECK(after.used == before->used && after.pages <= before->pages,
	      "%zu bytes and %lu pages were in use, and %zu and %lu are now", before->used, before->pages,
	      after.used, after.pages);
}

/* ---- a heap that is full ----------------------------------------------------------------------------- */

static void ask_in_vain(void)
{
	static const size_t sizes[] = {100, 1000, 3000, 30000, 300 * KIB};

	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		errno = 0;
		void *object = malloc(sizes[i]);
		if (!object)
			expect_refusal("an object", sizes[i]);
		free(object);
	}
}

static void refuse_often(void)
{
	struct link {
		struct link *next;
	} *links = NULL, *link;

	/* Starts the library, with a little memory available. */
	free(malloc(1));
	const struct usage before = settle();

	faults_plan(1, ULONG_MAX);
	/* Metadata is left when the heap is full: each class fails at most once. */
	for (size_t size = 64 * KIB; size >= 1 * KIB; size /= 2)
		for (errno = 0; (link = malloc(size)); links = link)
			link->next = links;
	CHECK(links);
	ask_in_vain();
	size_t metadata = faults_metadata();
	unsigned long calls = faults_calls();

	for (unsigned i = 0; i < 10000; i++)
		ask_in_vain();
	unsigned long refused = faults_calls() - calls;

	/* So many misses do not earn larger magazines, either. */
	CHECK(faults_metadata() == metadata, "refusals took %zu bytes of metadata",
	      faults_metadata() - metadata);
	CHECK(refused > 1000, "%lu calls were refused", refused);
	while ((link = links)) {
		links = link->next;
		free(link);
	}
	faults_plan(0, 0);
	strict = true;
	work();
	expect_usage(&before);
	printf("%s: %lu calls refused\n", check_mode(), refused);
}

/* ---- classes that cannot be made --------------------------------------------------------------------- */

enum { CACHES = 2000 };
static struct cpuslab_cache *caches[CACHES];

/* Creates caches that nobody uses, until there is no metadata for another; returns how many. */
static unsigned use_metadata_up(void)
{
	unsigned count = 0;
	struct cpuslab_cache_args args = {.name = "full", .size = 500};

	/* Each with memory of its own. */
	for (args.constructor = construct; count < CACHES; count++)
		if (!(caches[count] = cpuslab_cache_create(&args)))
			break;
	CHECK(count < CACHES && errno == ENOMEM);
	return count;
}

/* Allocates one size of each class, and more: every function refuses it, or it is served. */
static unsigned ask_for_classes(unsigned char *small)
{
	unsigned refused = 0;

	for (size_t size = 16; size < 200 * KIB; size += size / 16 + 1) {
		struct block resized = {NULL, size};
		void *objects[4];

		for (unsigned way = 0; way < 4; way++) {
			errno = 0;
			objects[way] = way == 0   ? malloc(size)
				       : way == 1 ? calloc(size, 1)
				       : way == 2 ? aligned_alloc(32, size)
						  : cpuslab_aligned_alloc_nowait(1, size);
			if (!objects[way])
				expect_refusal("an object of a new class", size);
			refused += !objects[way];
		}
		errno = 0;
		resized.memory = realloc(small, size);
		if (resized.memory) {
			CHECK_STAMP(resized.memory, 16, 5);
			small = resized.memory;
		} else {
			expect_refusal("realloc", size);
			CHECK_STAMP(small, 16, 5);
		}
		for (unsigned way = 0; way < 4; way++)
			free(objects[way]);
	}
	free(small);
	return refused;
}

static unsigned char *stamped_block(void)
{
	unsigned char *small = malloc(16);

	CHECK(small);
	check_stamp(small, 16, 5);
	return small;
}

static void refuse_classes(void)
{
	const struct usage before = settle();
	struct faults_reached first, last;
	unsigned char *small = stamped_block();

	faults_plan(1, ULONG_MAX);
	unsigned count = use_metadata_up();
	faults_reached(&first);
	unsigned refused = ask_for_classes(small);
	faults_reached(&last);
	faults_plan(0, 0);
	/* Few classes existed before or could still be made. */
	CHECK(last.classes < first.classes + 10 && refused > 100, "%lu classes, then %lu; %u refusals",
	      first.classes, last.classes, refused);
	strict = true;
	small = stamped_block();
	CHECK(ask_for_classes(small) == 0);
	faults_reached(&last);
	CHECK(last.classes > first.classes + 20, "%lu classes, then %lu", first.classes, last.classes);
	while (count--)
		CHECK(cpuslab_cache_destroy(caches[count]) == 0);
	work();
	expect_usage(&before);
	printf("%s: %u refusals\n", check_mode(), refused);
}

int main(int argc, char **argv)
{
	const char *variant = argc > 1 ? argv[1] : "";

	if (strcmp(variant, "started") == 0)
		return started();
	bool full = strcmp(variant, "full") == 0;
	if (full || strcmp(variant, "classes") == 0) {
		check_watchdog(60);
		(full ? refuse_often : refuse_classes)();
		return 0;
	}
	result = mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(result != MAP_FAILED);
	unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
	unsigned long stride = check_soak() || argc <= 3 ? 1 : strtoul(argv[3], NULL, 10);
	unsigned long cases = strcmp(variant, "start") == 0 ? sweep_start(count) : sweep(count, stride);
	printf("%s: %lu calls, each of them failed\n", check_mode(), cases);
	return 0;
}
