/* SPDX-License-Identifier: MIT */
/*
 * malloc_mappings: a process with as many mappings as the system allows (vm.max_map_count) keeps what it has
 * allocated, can free it, gets more where that needs no mapping, is told ENOMEM where it does, and can fork.
 * When mappings are available again, everything works as before.
 */
#include "load.h"

#include <sys/mman.h>

enum { KIB = 1 << 10, MIB = 1 << 20, COUNT = 2000, ROOM = 20, STACK = 256 * KIB };

static const size_t huge = (size_t)2 << 30;
static size_t page, mapping_count;
static char **mappings; /* each of two pages, the first of them readable */

static size_t mappings_most(void)
{
	char text[32] = "";
	int file = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
	if (file < 0 || read(file, text, sizeof text - 1) <= 0)
		check_skip("no /proc/sys/vm/max_map_count here");
	close(file);
	return strtoul(text, NULL, 10);
}

/* Neighbours differ in protection, so that the system cannot merge them. */
static void take_all_mappings(void)
{
	size_t most = mappings_most();
	if (most > 1000000)
		check_skip("a process may have %zu mappings here", most);
	mappings = mmap(NULL, most * sizeof *mappings, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(mappings != MAP_FAILED);
	for (;;) {
		char *pair = mmap(NULL, 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (pair == MAP_FAILED)
			break;
		mappings[mapping_count++] = pair;
		if (mprotect(pair, page, PROT_READ) != 0)
			break;
	}
	CHECK(errno == ENOMEM && mapping_count > most / 4, "%zu mappings of %zu, errno %d", mapping_count,
	      most, errno);
}

static void give_mappings_back(size_t count)
{
	while (count-- && mapping_count)
		CHECK(munmap(mappings[--mapping_count], 2 * page) == 0);
}

struct block {
	char *memory;
	size_t size;
};
static struct block blocks[COUNT];

/* Sizes of all kinds: classes, page runs. */
static size_t size_of(size_t number)
{
	return number % 100 == 99 ? 300 * KIB + number : number % 10 == 9 ? 5000 + number * 7 : 1 + number;
}

/* Allocates every second block; returns how many succeeded. */
static size_t fill(size_t from)
{
	size_t filled = 0;
	for (size_t i = from; i < COUNT; i += 2) {
		struct block *block = &blocks[i];
		CHECK(!block->memory);
		errno = 0;
		block->size = size_of(i);
		block->memory = malloc(block->size);
		if (block->memory)
			check_stamp(block->memory, block->size, i);
		else
			CHECK(errno == ENOMEM);
		filled += block->memory != NULL;
	}
	return filled;
}

static void verify_and_empty(size_t from)
{
	for (size_t i = from; i < COUNT; i += 2) {
		if (blocks[i].memory)
			CHECK_STAMP(blocks[i].memory, blocks[i].size, i);
		free(blocks[i].memory);
		blocks[i].memory = NULL;
	}
}

static void *use_heap(void *unused)
{
	static struct load_objects objects;
	uint64_t random = 5;
	for (int i = 0; i < 2000; i++)
		load_step(&objects, &random);
	load_release(&objects);
	return unused;
}

static void check_thread_works(void)
{
	static char stack[STACK] __attribute__((aligned(4096)));
	pthread_attr_t attributes;
	pthread_t thread;
	CHECK(pthread_attr_init(&attributes) == 0);
	CHECK(pthread_attr_setstack(&attributes, stack, sizeof stack) == 0);
	CHECK(pthread_create(&thread, &attributes, use_heap, NULL) == 0);
	check_join(thread);
	CHECK(pthread_attr_destroy(&attributes) == 0);
}

static void check_child_works(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		check_watchdog(60);
		verify_and_empty(0);
		CHECK(fill(0) == COUNT / 2);
		verify_and_empty(0);
		use_heap(NULL);
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
}

/* Requests more than the heap has room for: they succeed or fail. */
static void check_growth(void)
{
	enum { MORE = 64 };
	char *more[MORE];
	for (size_t i = 0; i < MORE; i++) {
		errno = 0;
		more[i] = malloc(MIB);
		CHECK(more[i] || errno == ENOMEM);
		if (more[i])
			memset(more[i], 7, MIB);
	}
	errno = 0;
	char *mapping = malloc(huge);
	CHECK(mapping || errno == ENOMEM);
	free(mapping);
	for (size_t i = 0; i < MORE; i++) {
		CHECK(!more[i] || check_all_bytes(more[i], MIB, 7));
		free(more[i]);
	}
}

int main(void)
{
	check_watchdog(100);
	page = (size_t)sysconf(_SC_PAGESIZE);
	/* The heap has had room for all of it once. */
	CHECK(fill(0) == COUNT / 2 && fill(1) == COUNT / 2);
	verify_and_empty(1);
	char *mapping = malloc(huge);
	CHECK(mapping);
	mapping[0] = mapping[huge - 1] = 3;
	use_heap(NULL);

	take_all_mappings();
	size_t filled = fill(1);
	if (check_cpuslab())
		CHECK(filled == COUNT / 2, "%zu of %d objects, where no new mapping is needed", filled,
		      COUNT / 2);
	check_growth();
	check_child_works();
	verify_and_empty(1);
	malloc_trim(0);
	check_thread_works();
	/*
	 * It may lie inside one mapping with others: its memory is freed whether or not the mapping can be
	 * split.
	 */
	CHECK(mapping[0] == 3 && mapping[huge - 1] == 3);
	free(mapping);
	fill(1);
	verify_and_empty(0);
	verify_and_empty(1);
	malloc_trim(0);

	/* One at a time, right at the limit. */
	for (int i = 0; i < ROOM; i++) {
		give_mappings_back(1);
		fill(0);
		check_growth();
		verify_and_empty(0);
	}
	give_mappings_back(SIZE_MAX);
	CHECK(fill(0) == COUNT / 2 && fill(1) == COUNT / 2);
	mapping = malloc(huge);
	CHECK(mapping);
	free(mapping);
	check_child_works();
	verify_and_empty(0);
	verify_and_empty(1);
	check_thread_works();
	printf("%s: without mappings %zu of %d objects\n", check_mode(), filled, COUNT / 2);
	return 0;
}
