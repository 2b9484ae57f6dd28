/* SPDX-License-Identifier: MIT */
/*
 * cache_hardened: what hardened mode promises of object caches, whichever engine was requested.  Each way to
 * break an object stops the process at the call that reveals it; what programs may rely on still holds.
 */
#include "check.h"

#include <cpuslab/cache.h>

#include "engine.h"
#include "still_clock.h" /* nothing that waits is taken back by age */

enum { SIZE = 56, SOME = 400, MAGIC = 0x6b };

static struct cpuslab_cache *cache, *other;
static char *object; /* allocated from the cache */
static void *churned[SOME];

static void construct(void *memory)
{
	memset(memory, MAGIC, SIZE);
}

static struct cpuslab_cache *create(const char *name, size_t size, void (*constructor)(void *),
				    unsigned flags)
{
	struct cpuslab_cache_args args = {
		.name = name, .size = size, .engine = engine, .constructor = constructor, .flags = flags};
	struct cpuslab_cache *made = cpuslab_cache_create(&args);

	CHECK(made);
	return made;
}

/* Hides a pointer from the compiler. */
static char *hidden(char *pointer)
{
	char *volatile same = pointer;

	return same;
}

/* Enough allocations and frees to bring every free object around. */
static void churn(void)
{
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < SOME; i++)
			churned[i] = cpuslab_cache_alloc(cache);
		for (int i = 0; i < SOME; i++)
			cpuslab_cache_free(cache, churned[i]);
	}
}

/* ---- what is wrong --------------------------------------------------------------------------------- */

static void free_twice(void)
{
	cpuslab_cache_free(cache, object);
	cpuslab_cache_free(cache, hidden(object));
}

static void free_twice_apart(void)
{
	cpuslab_cache_free(cache, object);
	churn();
	cpuslab_cache_free(cache, hidden(object));
}

static void free_twice_in_bulk(void)
{
	void *twice[] = {object, cpuslab_cache_alloc(cache), object};

	cpuslab_cache_free_bulk(cache, 3, twice);
}

static void free_twice_by_free(void)
{
	free(object);
	free(hidden(object));
}

static void *free_object(void *argument)
{
	cpuslab_cache_free(cache, argument);
	return NULL;
}

static void free_twice_by_two_threads(void)
{
	check_join(check_thread(free_object, object));
	cpuslab_cache_free(cache, hidden(object));
}

static void free_inside(void)
{
	cpuslab_cache_free(cache, hidden(object + 16));
}

static void free_misaligned(void)
{
	cpuslab_cache_free(cache, hidden(object + 1));
}

static void free_to_another(void)
{
	cpuslab_cache_free(other, hidden(object));
}

static void free_of_malloc(void)
{
	cpuslab_cache_free(cache, malloc(SIZE));
}

static void overflow_by_1(void)
{
	hidden(object)[SIZE] = 0;
	cpuslab_cache_free(cache, object);
}

static void overflow_by_8(void)
{
	memset(hidden(object) + SIZE, 0x41, 8);
	cpuslab_cache_free(cache, object);
}

static void overflow_of_a_free_object(void)
{
	cpuslab_cache_free(cache, object);
	hidden(object)[SIZE] = 0x41;
	churn();
}

static void write_after_free(void)
{
	cpuslab_cache_free(cache, object);
	hidden(object)[SIZE / 2] = 1;
	churn();
}

static void underflow_by_1(void)
{
	/* The bytes before an object are the end of another allocated one: no object is free. */
	void *all[SOME];

	CHECK(cpuslab_cache_alloc_bulk(cache, SOME, all) == SOME);
	for (int i = 0; i < SOME; i++)
		if ((uintptr_t)all[i] % 4096) /* else it may be the previous slab, or the page at its end */
			hidden(all[i])[-1] ^= 0x41;
	cpuslab_cache_free_bulk(cache, SOME, all);
}

static const struct wrong {
	const char *name, *said;
	void (*commit)(void);
	bool of_content; /* depends on content, which constructed and type-stable objects keep, so that nobody
			    can tell */
} wrongs[] = {
	{"twice", "already free", free_twice, false},
	{"twice apart", "already free", free_twice_apart, false},
	{"twice in bulk", "already free", free_twice_in_bulk, false},
	{"twice by free()", "already free", free_twice_by_free, false},
	{"twice by two threads", "already free", free_twice_by_two_threads, false},
	{"inside", "not the start", free_inside, false},
	{"misaligned", "not the start", free_misaligned, false},
	{"to another cache", "not an object of this cache", free_to_another, false},
	{"malloc's", "not an object of this cache", free_of_malloc, false},
	{"overflow by 1", "behind its end", overflow_by_1, false},
	{"overflow by 8", "behind its end", overflow_by_8, false},
	{"overflow while free", "while it was free", overflow_of_a_free_object, false},
	{"underflow by 1", "behind its end", underflow_by_1, false},
	{"write after free", "while it was free", write_after_free, true},
};

static void commit(void *argument)
{
	((const struct wrong *)argument)->commit();
}

static void test_wrongs(void (*constructor)(void *), unsigned flags)
{
	bool keeps_content = constructor || flags;

	cache = create("mine", SIZE, constructor, flags);
	other = create("other", SIZE, constructor, flags);
	object = cpuslab_cache_alloc(cache);
	for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
		const struct wrong *wrong = &wrongs[i];
		char text[512];

		if (wrong->of_content && keeps_content)
			continue;
		int status = check_child(commit, (void *)(uintptr_t)wrong, text, sizeof text);

		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, wrong->said),
		      "%s%s: %#x, said: %s", wrong->name, keeps_content ? ", content kept" : "",
		      (unsigned)status, text);
	}
	cpuslab_cache_free(cache, object);
	CHECK(cpuslab_cache_destroy(cache) == 0 && cpuslab_cache_destroy(other) == 0);
}

/* ---- what stays ------------------------------------------------------------------------------------ */

static void test_read_after_free(void)
{
	cache = create("plain", SIZE, NULL, 0);
	object = cpuslab_cache_alloc(cache);
	memset(object, 1, SIZE);
	cpuslab_cache_free(cache, object);
	CHECK(check_all_bytes(hidden(object), SIZE, 0));
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

/* Constructed and type-stable objects keep what the program left in them, even across a shrink. */
static void test_kept(void (*constructor)(void *), unsigned flags)
{
	cache = create("kept", SIZE, constructor, flags);
	for (int i = 0; i < SOME; i++) {
		churned[i] = cpuslab_cache_alloc(cache);
		CHECK(!constructor || check_all_bytes(churned[i], SIZE, MAGIC));
		memset(churned[i], MAGIC, SIZE);
	}
	for (int i = 1; i < SOME; i++)
		cpuslab_cache_free(cache, churned[i]);
	cpuslab_cache_shrink(cache);
	if (flags)
		for (int i = 0; i < SOME; i++)
			CHECK(check_all_bytes(churned[i], SIZE, MAGIC));
	for (int i = 1; constructor && i < SOME; i++)
		CHECK(check_all_bytes(churned[i] = cpuslab_cache_alloc(cache), SIZE, MAGIC));
	for (int i = 1; constructor && i < SOME; i++)
		cpuslab_cache_free(cache, churned[i]);
	cpuslab_cache_free(cache, churned[0]);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

/* An object just freed is not the next to be allocated, and new objects come in random order. */
static void test_order(void)
{
	unsigned ascending = 0, at_once = 0;

	check_pin();
	cache = create("order", SIZE, NULL, 0);
	for (int i = 0; i < SOME; i++) {
		churned[i] = cpuslab_cache_alloc(cache);
		ascending += i > 0 && (char *)churned[i] > (char *)churned[i - 1];
	}
	/* Of 399 steps half lead upwards, give or take ten standard deviations. */
	CHECK(ascending > SOME / 4 && ascending < SOME * 3 / 4, "%u of %d", ascending, SOME);
	for (int i = 0; i < SOME; i++) {
		cpuslab_cache_free(cache, churned[i]);
		object = cpuslab_cache_alloc(cache);
		at_once += object == churned[i];
		churned[i] = object;
	}
	CHECK(at_once == 0, "%u of %d", at_once, SOME);
	cpuslab_cache_free_bulk(cache, SOME, churned);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

/* ---- addresses ------------------------------------------------------------------------------------- */

static int by_address(const void *one, const void *two)
{
	uintptr_t first = *(const uintptr_t *)one, second = *(const uintptr_t *)two;

	return first < second ? -1 : first > second;
}

static void collect(struct cpuslab_cache *from, uintptr_t *pages)
{
	CHECK(cpuslab_cache_alloc_bulk(from, SOME, churned) == SOME);
	for (int i = 0; i < SOME; i++)
		pages[i] = (uintptr_t)churned[i] >> 12;
	cpuslab_cache_free_bulk(from, SOME, churned);
}

/*
 * A cache's pages never become another cache's, or malloc's: neither after a shrink nor after its
 * destruction.
 */
static void test_addresses(void)
{
	enum { CACHES = 40 };
	static uintptr_t pages[CACHES][SOME], all[CACHES * SOME];
	size_t count = 0;

	for (int i = 0; i < CACHES; i++) {
		cache = create("addresses", SIZE, i % 3 == 2 ? construct : NULL, 0);
		collect(cache, pages[i]);
		cpuslab_cache_shrink(cache);
		void *plain = malloc(SIZE);
		for (int j = 0; j < SOME; j++)
			CHECK(pages[i][j] != (uintptr_t)plain >> 12);
		free(plain);
		CHECK(cpuslab_cache_destroy(cache) == 0);
		qsort(pages[i], SOME, sizeof **pages, by_address);
		for (int j = 0; j < SOME; j++)
			if (!j || pages[i][j] != pages[i][j - 1])
				all[count++] = pages[i][j];
	}
	qsort(all, count, sizeof *all, by_address);
	for (size_t i = 1; i < count; i++)
		CHECK(all[i] != all[i - 1], "page %#zx belonged to two caches", all[i]);
}

static void touch(void *argument)
{
	*(volatile char *)argument = 1;
}

/* Accesses to the memory of a destroyed cache fault, and a free of it is detected. */
static void free_gone(void *argument)
{
	free(argument);
}

static void test_destroyed(void)
{
	char text[512];

	cache = create("gone", SIZE, NULL, 0);
	object = cpuslab_cache_alloc(cache);
	cpuslab_cache_free(cache, object);
	CHECK(cpuslab_cache_destroy(cache) == 0);
	int status = check_child(touch, hidden(object), text, sizeof text);

	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "%#x", (unsigned)status);
	check_stopped(free_gone, hidden(object), "into no object");
}

/* Address space of destroyed caches stays retired: caches that come and go leave some bookkeeping behind. */
static void test_churn_of_caches(void)
{
	enum { ROUNDS = 1000, MOST_EACH = 512 };
	size_t before = 0;

	for (int i = 0; i < 2 * ROUNDS; i++) {
		if (i == ROUNDS)
			before = check_resident();
		cache = create("churned", SIZE, NULL, 0);
		for (int j = 0; j < SOME; j++)
			churned[j] = memset(cpuslab_cache_alloc(cache), 1, SIZE);
		cpuslab_cache_free_bulk(cache, SOME, churned);
		CHECK(cpuslab_cache_destroy(cache) == 0);
	}
	size_t after = check_resident(), each = after > before ? (after - before) / ROUNDS : 0;

	printf("%zu resident bytes for a cache that is gone\n", each);
	CHECK(each < MOST_EACH, "%zu bytes", each);
}

int main(int argc, char **argv)
{
	engine_choose(argc, argv);
	if (!check_hardened()) {
		const char *mode = getenv("CPUSLAB_OPTIONS");
		char options[128];

		snprintf(options, sizeof options, "hardened:1,%s", mode ? mode : "");
		check_again(options, argc > 1 ? argv[1] : "magazine");
		return 0;
	}
	check_watchdog(100);
	test_wrongs(NULL, 0);
	test_wrongs(construct, 0);
	test_wrongs(NULL, CPUSLAB_CACHE_TYPESAFE_BY_RCU);
	test_read_after_free();
	test_kept(construct, 0);
	test_kept(NULL, CPUSLAB_CACHE_TYPESAFE_BY_RCU);
	test_order();
	test_addresses();
	test_destroyed();
	test_churn_of_caches();
	return 0;
}
