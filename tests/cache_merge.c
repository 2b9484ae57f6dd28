/* SPDX-License-Identifier: MIT */
/*
 * Caches that are alike share their memory, by the kernel's rules, and those that the rules forbid do not;
 * each keeps its own name and size; destroying one leaves the others unaffected.
 */
#include "check.h"

#include <cpuslab/cache.h>

static void construct(void *object)
{
	*(char *)object = 1;
}

static struct cpuslab_cache *create(struct cpuslab_cache_args args)
{
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);

	CHECK(cache, "%s", args.name);
	return cache;
}

static void destroy(struct cpuslab_cache *cache)
{
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

/* Only shared memory allows this: an object of one cache can be freed to the other. */
static bool share(struct cpuslab_cache *one, struct cpuslab_cache *other)
{
	bool alike = cpuslab_cache_aliases(one) == 1;

	CHECK(cpuslab_cache_aliases(other) == (alike ? 1u : 0u));
	if (alike) {
		void *object = cpuslab_cache_alloc(one);

		CHECK(object);
		cpuslab_cache_free(other, object);
	}
	return alike;
}

static bool merge(struct cpuslab_cache_args a, struct cpuslab_cache_args b)
{
	struct cpuslab_cache *one = create(a), *other = create(b);
	bool shared = share(one, other);

	destroy(one);
	destroy(other);

	/* In either order of creation. */
	other = create(b);
	one = create(a);
	CHECK(share(other, one) == shared);
	destroy(one);
	destroy(other);
	return shared;
}

#define ARGS(...)                                                                                            \
	(struct cpuslab_cache_args)                                                                          \
	{                                                                                                    \
		.name = "alike", __VA_ARGS__                                                                 \
	}

static void test_rules(void)
{
	struct cpuslab_cache_args plain = ARGS(.size = 1720);

	CHECK(merge(plain, plain));
	CHECK(merge(plain, ARGS(.size = 1713)));
	CHECK(merge(plain, ARGS(.size = 1720, .align = 8)));
	CHECK(merge(plain, ARGS(.size = 1720, .flags = CPUSLAB_CACHE_PANIC)));
	CHECK(merge(plain, ARGS(.size = 1720, .flags = 0, .engine = plain.engine)));
	/* The resulting engine counts, not the way it was requested. */
	CHECK(merge(plain, ARGS(.size = 1720, .engine = CPUSLAB_ENGINE_MAGAZINE)));
	CHECK(merge(ARGS(.size = 1720, .engine = CPUSLAB_ENGINE_MAGAZINE), plain));
	CHECK(!merge(plain, ARGS(.size = 1720, .engine = CPUSLAB_ENGINE_LINKED)));
	/* Less than a word may be wasted. */
	CHECK(!merge(plain, ARGS(.size = 1712)));
	CHECK(!merge(plain, ARGS(.size = 1721)));
	/* The alignment must suit both: 1728 is a multiple of 64, 1720 is not. */
	CHECK(merge(ARGS(.size = 1728), ARGS(.size = 1728, .align = 64)));
	CHECK(merge(ARGS(.size = 1728), ARGS(.size = 1700, .align = 64)));
	CHECK(merge(ARGS(.size = 1728), ARGS(.size = 1700, .flags = CPUSLAB_CACHE_HWCACHE_ALIGN)));
	CHECK(!merge(plain, ARGS(.size = 1720, .align = 64)));
	/* The same accounting. */
	CHECK(merge(ARGS(.size = 1720, .flags = CPUSLAB_CACHE_ACCOUNT),
		    ARGS(.size = 1720, .flags = CPUSLAB_CACHE_ACCOUNT)));
	CHECK(!merge(plain, ARGS(.size = 1720, .flags = CPUSLAB_CACHE_ACCOUNT)));
	CHECK(!merge(plain, ARGS(.size = 1720, .flags = CPUSLAB_CACHE_RECLAIM_ACCOUNT)));

	/* Not even with an identical cache. */
	struct cpuslab_cache_args never[] = {
		ARGS(.size = 1720, .constructor = construct),
		ARGS(.size = 1720, .flags = CPUSLAB_CACHE_NO_MERGE),
		ARGS(.size = 1720, .flags = CPUSLAB_CACHE_TYPESAFE_BY_RCU),
		ARGS(.size = 1720, .magazine_capacity = 20),
		ARGS(.size = 1720, .use_free_pointer_offset = 1),
	};

	for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
		CHECK(!merge(plain, never[i]), "%zu", i);
		CHECK(!merge(never[i], never[i]), "%zu", i);
	}
}

/* Above a page the alignment is the slab's; a slab made for a smaller one does not have it. */
static void test_large_alignment(void)
{
	struct cpuslab_cache *loose = create(ARGS(.size = 16384));
	struct cpuslab_cache *strict = create(ARGS(.size = 16384, .align = 16384));

	CHECK(cpuslab_cache_aliases(loose) == 0 && cpuslab_cache_aliases(strict) == 0);
	struct cpuslab_cache *third = create(ARGS(.size = 16384, .align = 16384));

	CHECK(cpuslab_cache_aliases(third) == 1);
	for (int i = 0; i < 20; i++)
		CHECK((uintptr_t)cpuslab_cache_alloc(i % 2 ? third : strict) % 16384 == 0);
	destroy(loose);
	destroy(strict);
	CHECK(cpuslab_cache_destroy(third) == -1);
}

struct seen {
	unsigned first, second;
};

static int visit(struct cpuslab_cache *cache, void *argument)
{
	struct seen *seen = argument;

	seen->first += strcmp(cpuslab_cache_name(cache), "first") == 0;
	seen->second += strcmp(cpuslab_cache_name(cache), "second") == 0;
	return 0;
}

/* How often a name starts a line of slabinfo. */
static unsigned lines_of(const char *name)
{
	static char text[1 << 18];
	FILE *file = tmpfile();
	unsigned lines = 0;

	CHECK(file && cpuslab_slabinfo(fileno(file)) == 0);
	rewind(file);
	while (fgets(text, sizeof text, file))
		lines += strncmp(text, name, strlen(name)) == 0 && text[strlen(name)] == ' ';
	fclose(file);
	return lines;
}

static void leak(void *argument)
{
	struct cpuslab_cache **caches = argument;

	CHECK(cpuslab_cache_alloc(caches[0]));
	/* No leak can be reported while another cache might own the object. */
	CHECK(cpuslab_cache_destroy(caches[0]) == 0);
	errno = 0;
	CHECK(cpuslab_cache_destroy(caches[1]) == -1 && errno == EBUSY);
}

static void test_names(void)
{
	struct cpuslab_cache *caches[2] = {
		create((struct cpuslab_cache_args){.name = "first", .size = 1801}),
		create((struct cpuslab_cache_args){.name = "second", .size = 1804})};
	struct seen seen = {0, 0};
	char text[512];

	CHECK(cpuslab_cache_aliases(caches[0]) == 1 && cpuslab_cache_aliases(caches[1]) == 1);
	CHECK(cpuslab_cache_size(caches[0]) == 1801 && cpuslab_cache_size(caches[1]) == 1804);
	CHECK(cpuslab_cache_iterate(visit, &seen) == 0 && seen.first == 1 && seen.second == 1);
	CHECK(lines_of("first") == 1 && lines_of("second") == 0);

	CHECK_EXITED(check_child(leak, caches, text, sizeof text), 0);
	CHECK(strstr(text, "second: ") && strstr(text, "still allocated"), "said: %s", text);

	char *object = cpuslab_cache_zalloc(caches[1]);

	CHECK(object && check_all_bytes(object, 1804, 0));
	check_stamp(object, 1804, 7);
	destroy(caches[0]);
	CHECK(cpuslab_cache_aliases(caches[1]) == 0);
	CHECK_STAMP(object, 1804, 7);
	CHECK(lines_of("first") == 1);

	/* A third one joins the memory of the first, which has been destroyed. */
	caches[0] = create((struct cpuslab_cache_args){.name = "third", .size = 1803});
	CHECK(cpuslab_cache_aliases(caches[0]) == 1);
	cpuslab_cache_free(caches[0], object);
	destroy(caches[1]);
	destroy(caches[0]);
	CHECK(lines_of("first") == 0);
}

/* Threads create, use and destroy alike caches: each finds its object as it left it. */
static void *come_and_go(void *argument)
{
	uint64_t random = (uint64_t)(uintptr_t)argument;

	for (unsigned long i = 0; i < check_rounds(3000, 200000, 100); i++) {
		size_t size = 1850 + check_below(&random, 5);
		struct cpuslab_cache *cache = create(ARGS(.size = size));
		void *object = cpuslab_cache_alloc(cache);

		check_stamp(object, size, i);
		CHECK(cpuslab_cache_size(cache) == size);
		CHECK_STAMP(object, size, i);
		cpuslab_cache_free(cache, object);
		destroy(cache);
	}
	return NULL;
}

static void test_threads(void)
{
	pthread_t threads[4];

	for (uintptr_t i = 0; i < 4; i++)
		threads[i] = check_thread(come_and_go, (void *)(i + 1));
	for (int i = 0; i < 4; i++)
		check_join(threads[i]);
	CHECK(lines_of("alike") == 1, "%u", lines_of("alike")); /* left by test_large_alignment */
}

static int run_apart(void)
{
	CHECK(!merge(ARGS(.size = 1720), ARGS(.size = 1720)));
	return 0;
}

int main(int argc, char **argv)
{
	check_watchdog(100);
	/* The second run, with merging disabled. */
	if (argc > 1 && strcmp(argv[1], "apart") == 0)
		return run_apart();
	test_rules();
	test_large_alignment();
	test_names();
	test_threads();

	setenv("CPUSLAB_OPTIONS", "merge:false", 1);
	execl("/proc/self/exe", argv[0], "apart", (char *)NULL);
	return 1;
}
