/* SPDX-License-Identifier: MIT */
/*
 * malloc_limits: under RLIMIT_AS and RLIMIT_DATA a process starts, gets most of what the limit leaves, is
 * told ENOMEM at the end of it, and goes on as before once it has freed memory.
 *
 * The limit must hold from the first instruction on, so each case starts this program anew:
 *   malloc_limits fill <as|data> <bytes> <kind>
 * `malloc_limits small` stops at limits of 16 MiB.
 */
#include "check.h"

#include <sys/resource.h>

enum { KIB = 1 << 10, MIB = 1 << 20, STACK = 64 * KIB, FILLERS = 8 };

/* What a case allocates: objects of one size, or of many; by one thread or by several. */
static const struct kind {
	const char *name;
	size_t size; /* 0: random sizes */
	unsigned threads;
} kinds[] = {
	{"100", 100, 0},         {"1000", 1000, 0}, {"10000", 10000, 0},        {"300000", 300000, 0},
	{"3000000", 3000000, 0}, {"mixed", 0, 0},   {"threads", 1000, FILLERS}, {"mixed-threads", 0, FILLERS},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const size_t limits[] = {8 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB};
enum { LIMITS = sizeof limits / sizeof *limits };

struct block {
	struct block *next;
	size_t size;
};

struct filler {
	const struct kind *kind;
	struct block *blocks;
	size_t payload, largest;
	uint64_t random;
};

static size_t next_size(struct filler *filler)
{
	if (filler->kind->size)
		return filler->kind->size;
	size_t dice = check_below(&filler->random, 1000);
	size_t bound = dice < 900 ? 2000 : dice < 995 ? 60000 : (size_t)2 * MIB;
	return sizeof(struct block) + 1 +
	       check_below(&filler->random, bound < filler->largest ? bound : filler->largest);
}

/*
 * Fills until nothing more fits: with mixed sizes, the refusal of a large one leaves room for smaller ones.
 */
static void *fill(void *argument)
{
	struct filler *filler = argument;
	filler->largest = (size_t)2 * MIB;
	for (;;) {
		size_t size = next_size(filler);
		errno = 0;
		struct block *block = malloc(size);
		if (!block) {
			CHECK(errno == ENOMEM);
			if (filler->kind->size || filler->largest < 64)
				return NULL;
			filler->largest = size / 2;
			continue;
		}
		*block = (struct block){filler->blocks, size};
		((char *)block)[size - 1] = 1;
		filler->blocks = block;
		filler->payload += size;
	}
}

static void empty(struct filler *filler)
{
	while (filler->blocks) {
		struct block *block = filler->blocks;
		CHECK(block->size >= sizeof *block && ((char *)block)[block->size - 1] == 1);
		filler->blocks = block->next;
		filler->payload -= block->size;
		free(block);
	}
	CHECK(filler->payload == 0);
}

/* With nothing left, every function says so and leaves existing objects alone. */
static void refuse(struct block *block, size_t limit)
{
	static char mark;
	size_t head = block->size < 4096 ? block->size - sizeof *block : 4096;
	check_stamp(block + 1, head - 1, 3);
	errno = 0;
	CHECK(!realloc(block, limit) && errno == ENOMEM);
	errno = 0;
	CHECK(!calloc(limit / 16, 16) && errno == ENOMEM);
	errno = 0;
	CHECK(!aligned_alloc(4096, limit) && errno == ENOMEM);
	void *untouched = &mark;
	CHECK(posix_memalign(&untouched, 64, limit) == ENOMEM && untouched == &mark);
	CHECK_STAMP(block + 1, head - 1, 3);
}

/* All threads first: their stacks count towards the limit too. */
static size_t fill_all(struct filler *fillers, unsigned threads)
{
	if (!threads) {
		fill(fillers);
		return fillers->payload;
	}
	pthread_t ids[FILLERS];
	pthread_attr_t attributes;
	size_t payload = 0;
	CHECK(pthread_attr_init(&attributes) == 0);
	CHECK(pthread_attr_setstacksize(&attributes, STACK) == 0);
	unsigned started = 0;
	while (started < threads && pthread_create(&ids[started], &attributes, fill, &fillers[started]) == 0)
		started++;
	CHECK(started > 0, "no thread could be made");
	for (unsigned i = 0; i < started; i++) {
		check_join(ids[i]);
		payload += fillers[i].payload;
	}
	CHECK(pthread_attr_destroy(&attributes) == 0);
	return payload;
}

static int fill_case(size_t limit, const char *name)
{
	static struct filler fillers[FILLERS];
	const struct kind *kind = kinds;
	while (strcmp(kind->name, name) != 0)
		CHECK(++kind < kinds + KINDS);
	for (unsigned i = 0; i < FILLERS; i++)
		fillers[i] = (struct filler){kind, NULL, 0, 0, 17 + i};
	unsigned count = kind->threads ? kind->threads : 1;

	size_t first = fill_all(fillers, kind->threads);
	/*
	 * Below 64 MiB the program's own mappings are a considerable part of the limit; with threads glibc,
	 * for comparison, gets a fifth.  In mode slot each thread keeps magazines of each class it has used,
	 * which nobody takes from it, and 64 KiB of words: with all sizes little is left of the smallest
	 * limit.
	 */
	bool slots = kind->threads && !kind->size && strcmp(check_mode(), "slot") == 0;
	size_t part = limit >= 64 * MIB ? 2 : slots ? 64 : 16;
	if (check_cpuslab() || !kind->threads)
		CHECK(first >= limit / part, "%s: %zu KiB of payload under a limit of %zu MiB", name,
		      first / KIB, limit / MIB);
	for (unsigned i = 0; i < count; i++)
		if (fillers[i].blocks && fillers[i].blocks->size > 2 * sizeof(struct block)) {
			struct block *block = fillers[i].blocks;
			refuse(block, limit);
			((char *)block)[block->size - 1] = 1;
			break;
		}
	for (unsigned i = 0; i < count; i++)
		empty(&fillers[i]);
	size_t second = fill_all(fillers, kind->threads);
	/*
	 * Small limits leave little beside what threads and size classes keep for themselves, which varies.
	 */
	if (check_cpuslab() || !kind->threads)
		CHECK(second >= first / 100 *
					(limit >= 64 * MIB ? 80
					 : slots           ? 5
							   : 25),
		      "%s: first %zu KiB, after freeing all of it only %zu KiB", name, first / KIB,
		      second / KIB);
	for (unsigned i = 0; i < count; i++)
		empty(&fillers[i]);
	/* Also with other sizes than the one that filled it. */
	if (limit >= 16 * MIB && (check_cpuslab() || !kind->threads))
		for (size_t size = 10; size < limit / 8; size *= 3) {
			void *object = malloc(size);
			CHECK(object, "%s: %zu bytes after everything was freed, limit %zu MiB", name, size,
			      limit / MIB);
			memset(object, 1, size);
			free(object);
		}
	if (getenv("CPUSLAB_TEST_VERBOSE"))
		printf("  %s: %zu KiB, then %zu KiB of %zu KiB\n", name, first / KIB, second / KIB,
		       limit / KIB);
	return 0;
}

static void limited(int resource, size_t limit, const char *kind)
{
	char bytes[32];
	snprintf(bytes, sizeof bytes, "%zu", limit);
	fflush(NULL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct rlimit bound = {limit, limit};
		CHECK(setrlimit((__rlimit_resource_t)resource, &bound) == 0);
		execl("/proc/self/exe", "malloc_limits", "fill", resource == RLIMIT_AS ? "as" : "data", bytes,
		      kind, NULL);
		_exit(127);
	}
	int status = check_wait(child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "RLIMIT_%s %zu MiB, %s: wait status %#x",
	      resource == RLIMIT_AS ? "AS" : "DATA", limit / MIB, kind, (unsigned)status);
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "fill") == 0) {
		alarm(60);
		return fill_case(strtoul(argv[3], NULL, 10), argv[4]);
	}
	size_t largest = argc == 2 && strcmp(argv[1], "small") == 0 ? 16 * MIB : SIZE_MAX;
	unsigned cases = 0;
	for (int data = 0; data < 2; data++)
		for (size_t i = 0; i < LIMITS && limits[i] <= largest; i++)
			for (size_t kind = 0; kind < KINDS; kind++) {
				/* A GiB is filled for a few kinds only: the others behave as at 256 MiB. */
				if (limits[i] > 256 * MIB && !check_soak() && kind != 1 && kind != 4)
					continue;
				limited(data ? RLIMIT_DATA : RLIMIT_AS, limits[i], kinds[kind].name);
				cases++;
			}
	printf("%s: %u cases\n", check_mode(), cases);
	return 0;
}
