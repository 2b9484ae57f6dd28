/* SPDX-License-Identifier: MIT */
/*
 * What <cpuslab/cache.h> promises of each function: arguments, errors, alignment, bulk, destroy, and that
 * freeing a pointer that is not an object of the cache stops the process.
 */
#include "check.h"

#include <cpuslab/cache.h>

#include "engine.h"

static struct cpuslab_cache *create(const char *name, size_t size, size_t align, unsigned flags)
{
	struct cpuslab_cache_args args = {
		.name = name, .size = size, .align = align, .engine = engine, .flags = flags};
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);

	CHECK(cache, "%s of %zu bytes", name, size);
	return cache;
}

static void refuse(struct cpuslab_cache_args args, int error)
{
	errno = 0;
	CHECK(!cpuslab_cache_create(&args) && errno == error, "errno %d, not %d", errno, error);
}

static void construct(void *object)
{
	memset(object, 0x5a, 8);
}

static void test_arguments(void)
{
	char name[CPUSLAB_CACHE_NAME_MAX + 2];

	memset(name, 'n', sizeof name);
	name[sizeof name - 1] = 0;
	errno = 0;
	CHECK(!cpuslab_cache_create(NULL) && errno == EINVAL);
	refuse((struct cpuslab_cache_args){.size = 8}, EINVAL);
	refuse((struct cpuslab_cache_args){.name = "", .size = 8},
	       EINVAL); /* slabinfo's comment lines begin with it */
	refuse((struct cpuslab_cache_args){.name = "test"}, EINVAL);
	refuse((struct cpuslab_cache_args){.name = "test", .size = CPUSLAB_CACHE_SIZE_MAX + 1}, EINVAL);
	refuse((struct cpuslab_cache_args){.name = "test", .size = SIZE_MAX}, EINVAL);
	refuse((struct cpuslab_cache_args){.name = "test", .size = 8, .align = 24}, EINVAL);
	refuse((struct cpuslab_cache_args){.name = "test", .size = 8, .align = 2 * CPUSLAB_CACHE_ALIGN_MAX},
	       EINVAL);
	refuse((struct cpuslab_cache_args){.name = "test", .size = 8, .flags = 1u << 31}, EINVAL);
	refuse((struct cpuslab_cache_args){.name = "test", .size = 8, .engine = 9}, EINVAL);
	refuse((struct cpuslab_cache_args){.name = "test", .size = 8, .magazine_capacity = 501}, EINVAL);
	refuse((struct cpuslab_cache_args){.name = "test", .size = 8, .reserved = {0, 0, 0, 1}}, EINVAL);
	refuse(
		(struct cpuslab_cache_args){
			.name = "test", .size = 16, .free_pointer_offset = 16, .use_free_pointer_offset = 1},
		EINVAL);
	refuse((struct cpuslab_cache_args){.name = name, .size = 8}, ENAMETOOLONG);

	name[CPUSLAB_CACHE_NAME_MAX] = 0;
	struct cpuslab_cache *cache = create(name, 24, 0, CPUSLAB_CACHE_NO_MERGE);

	CHECK(cpuslab_cache_size(cache) == 24 && strcmp(cpuslab_cache_name(cache), name) == 0);
	CHECK(cpuslab_cache_name(cache) != name);
	CHECK(cpuslab_cache_destroy(cache) == 0 && cpuslab_cache_destroy(NULL) == 0);
}

/* Objects of a size keep their alignment and do not overlap, over several slabs. */
static void test_size(size_t size, size_t align, unsigned flags)
{
	enum { MOST = 1200 };
	static void *objects[MOST];
	struct cpuslab_cache *cache = create("sizes", size, align, flags);
	size_t fit =
		(6u << 20) / (size > align ? size : align); /* debugging writes up to the next multiple */
	unsigned count = fit < 6 ? 6 : fit < MOST ? (unsigned)fit : MOST;
	size_t expected = align ? align : 8;

	/* A cache line, or the fraction of one that holds the object. */
	if (flags & CPUSLAB_CACHE_HWCACHE_ALIGN) {
		size_t line = 64;

		while (line > 8 && size <= line / 2)
			line /= 2;
		expected = line > expected ? line : expected;
	}
	for (unsigned i = 0; i < count; i++) {
		objects[i] = i % 2 ? cpuslab_cache_alloc(cache) : cpuslab_cache_zalloc(cache);
		CHECK(objects[i] && (uintptr_t)objects[i] % expected == 0, "%p of %zu bytes aligned to %zu",
		      objects[i], size, expected);
		CHECK(i % 2 || check_all_bytes(objects[i], size, 0));
		CHECK(malloc_usable_size(objects[i]) >= size);
		check_stamp(objects[i], size, i);
	}
	for (unsigned i = 0; i < count; i++) {
		CHECK_STAMP(objects[i], size, i);
		if (i % 3)
			cpuslab_cache_free(cache, objects[i]);
		else
			free(objects[i]);
	}
	/* Reused memory is zeroed as well. */
	void *object = cpuslab_cache_zalloc(cache);

	CHECK(object && check_all_bytes(object, size, 0));
	cpuslab_cache_free(cache, object);
	cpuslab_cache_free(cache, NULL);
	CHECK(cpuslab_cache_shrink(cache) == 0);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

static void test_sizes(void)
{
	static const size_t sizes[] = {1,    7,     8,     9,     16,    24,     40,     63,   64,
				       65,   100,   192,   256,   700,   1000,   2048,   4096, 5000,
				       8192, 20000, 32768, 40000, 65536, 300000, 4 << 20};

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		test_size(sizes[i], 0, 0);
		test_size(sizes[i], 0, CPUSLAB_CACHE_HWCACHE_ALIGN);
	}
	for (size_t align = 1; align <= CPUSLAB_CACHE_ALIGN_MAX; align *= 2)
		test_size(align > 4096 ? 5000 : 48, align > 8 ? align : 8, 0);
}

static void test_bulk(unsigned capacity)
{
	enum { MOST = 3000 };
	static void *objects[MOST];
	struct cpuslab_cache_args args = {
		.name = "bulk", .size = 48, .engine = engine, .magazine_capacity = capacity};
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);

	CHECK(cache);
	for (size_t count = 0; count <= MOST; count = count * 3 / 2 + 1) {
		CHECK(cpuslab_cache_alloc_bulk(cache, count, objects) == count);
		for (size_t i = 0; i < count; i++)
			check_stamp(objects[i], 48, i);
		for (size_t i = 0; i < count; i++)
			CHECK_STAMP(objects[i], 48, i);
		cpuslab_cache_free_bulk(cache, count, objects);
	}
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

struct wrong {
	struct cpuslab_cache *cache;
	void *object;
	bool twice, bulk;
};

static void free_wrong(void *argument)
{
	const struct wrong *wrong = argument;
	void *objects[3] = {cpuslab_cache_alloc(wrong->cache), wrong->object,
			    cpuslab_cache_alloc(wrong->cache)};

	/* An object just freed is known to be free only to the CPU that freed it. */
	check_pin();
	if (wrong->bulk)
		cpuslab_cache_free_bulk(wrong->cache, 3, objects);
	else
		cpuslab_cache_free(wrong->cache, wrong->object);
	if (wrong->twice)
		cpuslab_cache_free(wrong->cache, wrong->object);
}

static void stops(struct wrong wrong, const char *expected)
{
	check_stopped(free_wrong, &wrong, expected);
}

static void test_wrong(void)
{
	struct cpuslab_cache *cache = create("mine", 64, 0, CPUSLAB_CACHE_NO_MERGE),
			     *other = create("other", 64, 0, CPUSLAB_CACHE_NO_MERGE);
	char *object = cpuslab_cache_alloc(cache), *foreign = cpuslab_cache_alloc(other);
	char *plain = malloc(64), *large = malloc(8 << 20), stack[64];

	for (int bulk = 0; bulk < 2; bulk++) {
		stops((struct wrong){cache, foreign, .bulk = bulk}, "mine");
		stops((struct wrong){cache, plain, .bulk = bulk}, "not an object of this cache");
		stops((struct wrong){cache, large, .bulk = bulk}, "not an object of this cache");
		stops((struct wrong){cache, stack, .bulk = bulk}, "not an object of this cache");
	}
	stops((struct wrong){cache, object, .twice = true}, check_debugged()   ? "Object already free"
							    : check_hardened() ? "already free"
									       : "freed just before");
	free(plain);
	free(large);
	cpuslab_cache_free(cache, object);
	cpuslab_cache_free(other, foreign);
	CHECK(cpuslab_cache_destroy(cache) == 0 && cpuslab_cache_destroy(other) == 0);
}

/* Stands for the destructors of a program that calls exit() when it is aborted. */
static void on_abort(int number)
{
	(void)number;
	CHECK(cpuslab_cache_destroy(create("another", 64, 0, CPUSLAB_CACHE_NO_MERGE)) == 0);
}

static void destroy_broken(void *cache)
{
	void *one = cpuslab_cache_alloc(cache), *other = cpuslab_cache_alloc(cache);

	CHECK(signal(SIGABRT, on_abort) != SIG_ERR);
	check_pin();
	cpuslab_cache_free(cache, one);
	cpuslab_cache_free(cache, other);
	cpuslab_cache_free(cache, one);
	cpuslab_cache_destroy(cache);
}

/* The last place where damage is found; no lock is held then. */
static void test_broken(void)
{
	struct cpuslab_cache *cache = create("broken", 64, 0, CPUSLAB_CACHE_NO_MERGE);

	check_stopped(destroy_broken, cache, "broken");
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

static void create_panicking(void *argument)
{
	CHECK(!cpuslab_cache_create(argument));
}

static void test_panic(void)
{
	struct cpuslab_cache_args args = {
		.name = "needed", .size = 8, .align = 3, .flags = CPUSLAB_CACHE_PANIC};

	check_stopped(create_panicking, &args, "needed");
}

/* Each remaining object is reported, and can still be used. */
enum { LEFT = 5 };
static void *left[LEFT];

static void destroy_used(void *argument)
{
	errno = 0;
	CHECK(cpuslab_cache_destroy(argument) == -1 && errno == EBUSY);
	for (int i = 0; i < LEFT; i++) {
		CHECK_STAMP(left[i], 200, (uint64_t)i);
		cpuslab_cache_free(argument, left[i]);
	}
	void *again = cpuslab_cache_alloc(argument);

	CHECK(again);
	cpuslab_cache_free(argument, again);
	CHECK(cpuslab_cache_destroy(argument) == 0);
}

static void test_destroy_used(void)
{
	struct cpuslab_cache *cache = create("left over", 200, 0, 0);
	void *objects[300];
	char text[4096], address[32];

	CHECK(cpuslab_cache_alloc_bulk(cache, 300, objects) == 300);
	for (int i = 0; i < LEFT; i++) {
		left[i] = objects[i * 60];
		check_stamp(left[i], 200, (uint64_t)i);
		objects[i * 60] = NULL;
	}
	for (int i = 0; i < 300; i++)
		cpuslab_cache_free(cache, objects[i]);
	CHECK_EXITED(check_child(destroy_used, cache, text, sizeof text), 0);
	unsigned lines = 0;

	for (const char *at = text; (at = strstr(at, "left over: ")); at++)
		lines++;
	CHECK(lines == LEFT, "%u lines: %s", lines, text);
	for (int i = 0; i < LEFT; i++) {
		snprintf(address, sizeof address, "%p: still", left[i]);
		CHECK(strstr(text, address), "%s not in %s", address, text);
		cpuslab_cache_free(cache, left[i]);
	}
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

static int count_tests(struct cpuslab_cache *cache, void *argument)
{
	*(int *)argument += strcmp(cpuslab_cache_name(cache), "visited") == 0;
	/* A visitor may use the caches. */
	void *object = cpuslab_cache_alloc(cache);

	CHECK(object);
	cpuslab_cache_free(cache, object);
	return 0;
}

static int stop_at_once(struct cpuslab_cache *cache, void *argument)
{
	*(struct cpuslab_cache **)argument = cache;
	return 7;
}

static void test_iterate(void)
{
	struct cpuslab_cache *caches[10], *first;
	int count = 0;

	for (int i = 0; i < 10; i++)
		caches[i] = create("visited", 32, 0, 0);
	CHECK(cpuslab_cache_iterate(count_tests, &count) == 0 && count == 10, "%d", count);
	CHECK(cpuslab_cache_iterate(stop_at_once, &first) == 7 && first);
	for (int i = 0; i < 10; i++)
		CHECK(cpuslab_cache_destroy(caches[i]) == 0);
	count = 0;
	CHECK(cpuslab_cache_iterate(count_tests, &count) == 0 && count == 0);
}

static void test_constructor_excludes_zeros(void)
{
	struct cpuslab_cache_args args = {
		.name = "constructed", .size = 8, .engine = engine, .constructor = construct};
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);

	CHECK(cache);
	errno = 0;
	CHECK(!cpuslab_cache_zalloc(cache) && errno == EINVAL);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

int main(int argc, char **argv)
{
	engine_choose(argc, argv);
	check_watchdog(100);
	test_arguments();
	test_sizes();
	test_bulk(0);
	test_bulk(1);
	test_bulk(500);
	test_wrong();
	test_broken();
	test_panic();
	test_destroy_used();
	test_iterate();
	test_constructor_excludes_zeros();
	return 0;
}
