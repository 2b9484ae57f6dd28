/* SPDX-License-Identifier: MIT */
/*
 * malloc_unreserved: with reserve:0 a program that lowers its own RLIMIT_AS, to little more than it uses,
 * goes on: its malloc and its other mappings share what the limit leaves, down to the last of it, and can use
 * it again afterwards.
 *
 *   malloc_unreserved limited     started by malloc_unreserved itself
 */
#include "load.h"

#include <sys/mman.h>
#include <sys/resource.h>

enum {
	KIB = 1 << 10,
	MIB = 1 << 20,
	LEFT = 64 * MIB,
	SMALL = 300,
	SOME = 20 * MIB / SMALL,
	STACK = 256 * KIB
};

struct block {
	struct block *next;
};

static struct block *blocks;

static size_t mapped(void)
{
	char text[128] = "";
	int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);

	CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0);
	close(file);
	return strtoul(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

static void limit_to(size_t bytes)
{
	struct rlimit limit = {bytes, RLIM_INFINITY};

	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* Allocates objects until memory ends; returns how many. */
static size_t take(size_t size, size_t most)
{
	for (size_t taken = 0; taken < most; taken++) {
		errno = 0;
		struct block *block = malloc(size);

		if (!block) {
			CHECK(errno == ENOMEM);
			return taken;
		}
		block->next = blocks;
		blocks = block;
		check_stamp(block + 1, size - sizeof *block, 7);
	}
	return most;
}

static void give_all(size_t size)
{
	while (blocks) {
		struct block *block = blocks;

		CHECK_STAMP(block + 1, size - sizeof *block, 7);
		blocks = block->next;
		free(block);
	}
}

static void expect_mapping(size_t bytes)
{
	void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(mapping != MAP_FAILED);
	CHECK(munmap(mapping, bytes) == 0);
}

static void *use_heap(void *unused)
{
	static struct load_objects objects[2];
	static unsigned next;
	struct load_objects *own = &objects[__atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % 2];
	uint64_t random = 5;

	for (int i = 0; i < 3000; i++)
		load_step(own, &random);
	load_release(own);
	return unused;
}

static void expect_threads(void)
{
	pthread_attr_t attributes;
	pthread_t threads[2];

	CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, STACK) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], &attributes, use_heap, NULL) == 0);
	for (int i = 0; i < 2; i++)
		check_join(threads[i]);
	CHECK(pthread_attr_destroy(&attributes) == 0);
}

static void expect_child(bool has_room)
{
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		check_watchdog(60);
		give_all(SMALL);
		CHECK(take(SMALL, SOME) == SOME);
		give_all(SMALL);
		if (has_room)
			expect_threads();
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
}

static void expect_large(void)
{
	char *object = malloc(300 * KIB);

	CHECK(object);
	check_stamp(object, 300 * KIB, 3);
	for (size_t size = MIB; size <= 16 * MIB; size *= 2) {
		object = realloc(object, size);
		CHECK(object, "%zu KiB", size / KIB);
		CHECK_STAMP(object, 300 * KIB, 3);
	}
	free(object);
}

static void live_within_limit(void)
{
	use_heap(NULL);
	size_t start = mapped();

	CHECK(start < 200ul * MIB, "%zu MiB of address space", start / MIB);
	limit_to(mapped() + LEFT);
	CHECK(take(SMALL, SOME) == SOME);
	expect_mapping(8 * MIB);
	expect_large();
	expect_threads();
	expect_child(true);

	/* Until everything is used up. */
	size_t more = take(SMALL, SIZE_MAX);

	CHECK((SOME + more) * SMALL > LEFT / 2, "%zu KiB of small objects", (SOME + more) * SMALL / KIB);
	CHECK(mmap(NULL, 8 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	/* Hardened mode never gives one class's memory to another. */
	expect_child(!check_hardened());
	give_all(SMALL);
	CHECK(take(SMALL, SOME) == SOME);
	if (!check_hardened())
		expect_threads();

	/* And under a larger limit. */
	limit_to(mapped() + LEFT);
	more = take(SMALL, 2 * SOME);
	CHECK(more == 2 * SOME);
	expect_mapping(8 * MIB);
	give_all(SMALL);
	limit_to(RLIM_INFINITY);
	CHECK(take(SMALL, 4 * SOME) == 4 * SOME);
	expect_large();
	give_all(SMALL);
	printf("%s: %zu MiB of address space at the start\n", check_mode(), start / MIB);
}

int main(int argc, char **argv)
{
	(void)argv;
	check_watchdog(100);
	if (!check_cpuslab())
		check_skip("another malloc");
	if (argc == 1) {
		check_again("reserve:0", "limited");
		check_again("reserve:0,vcpu:slot", "limited");
		check_again("reserve:0,hardened:1", "limited");
		check_again("reserve:0,huge_pages:always", "limited");
		return 0;
	}
	live_within_limit();
	return 0;
}
