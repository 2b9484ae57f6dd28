/* SPDX-License-Identifier: MIT */
/*
 * hardened_pointers: in hardened mode every function that takes an object stops the program, with one line,
 * when it gets a pointer to what is no object: never allocated, freed, or inside one.  cpuslab_object_of()
 * alone answers for any address, and a query for NULL is none.
 */
#include "check.h"

#include <cpuslab/cache.h>
#include <cpuslab/cpuslab.h>
#include <malloc.h>
#include <sys/mman.h>

void free_sized(void *, size_t);
void free_aligned_sized(void *, size_t, size_t);

enum { SMALL = 100, MEDIUM = 3000, BLOCK = 50000, LARGE = 1 << 20, PAGE = 4096 };

/* Hidden from the compiler. */
static volatile uintptr_t hidden;

static void *hide(void *pointer)
{
	hidden = (uintptr_t)pointer;
	return (void *)hidden;
}

/* ---- pointers to no object -------------------------------------------------------------------------------
 */

static char in_data[64] __attribute__((aligned(16)));

static void *to_data(void)
{
	return in_data;
}

static void *to_stack(void)
{
	static char *address;
	char here[64] __attribute__((aligned(16)));

	address = hide(here);
	return address;
}

static void *to_code(void)
{
	return (void *)((uintptr_t)to_code & -(uintptr_t)16);
}

static void *to_mapping(void)
{
	return mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void *number(void)
{
	return (void *)(uintptr_t)1;
}

static void *noncanonical(void)
{
	return (void *)(uintptr_t)0x4141414141414140;
}

static void *highest(void)
{
	return (void *)(uintptr_t)-16;
}

static char *made(size_t size)
{
	char *object = malloc(size);

	CHECK(object);
	return object;
}

/* In the heap, behind the slab that a first object came from. */
static void *behind_slab(void)
{
	return made(SMALL) + 64 * PAGE;
}

static void *never_out(void)
{
	return made(16) + 4 * PAGE;
}

/* A mapping's own header or guard page. */
static void *before_large(void)
{
	return made(LARGE) - PAGE;
}

static void *freed(size_t size)
{
	void *object = hide(malloc(size));

	free(object);
	return hide(object);
}

static void *freed_small(void)
{
	return freed(SMALL);
}

static void *freed_medium(void)
{
	return freed(MEDIUM);
}

static void *freed_block(void)
{
	return freed(BLOCK);
}

static void *freed_large(void)
{
	return freed(LARGE);
}

static void *in_small(void)
{
	return made(SMALL) + 16;
}

static void *in_medium(void)
{
	return made(MEDIUM) + 1024;
}

static void *in_block(void)
{
	return made(BLOCK) + PAGE;
}

static void *in_large(void)
{
	return made(LARGE) + PAGE;
}

static void *misaligned(void)
{
	return made(SMALL) + 1;
}

static void *misaligned_block(void)
{
	return made(BLOCK) + 16;
}

static void *(*const pointers[])(void) = {
	to_data,     to_stack,  to_code,      to_mapping,  number,       noncanonical,     highest,
	behind_slab, never_out, before_large, freed_small, freed_medium, freed_block,      freed_large,
	in_small,    in_medium, in_block,     in_large,    misaligned,   misaligned_block,
};
enum { POINTERS = sizeof pointers / sizeof *pointers };

/* ---- functions that take an object -----------------------------------------------------------------------
 */

static struct cpuslab_cache *cache;

static void by_realloc(void *pointer)
{
	hide(realloc(pointer, 200));
}

static void by_realloc_larger(void *pointer)
{
	hide(realloc(pointer, 2 * LARGE));
}

static void by_realloc_to_nothing(void *pointer)
{
	hide(realloc(pointer, 0));
}

static void by_reallocarray(void *pointer)
{
	hide(reallocarray(pointer, 20, 10));
}

static void by_free_sized(void *pointer)
{
	free_sized(pointer, SMALL);
}

static void by_free_aligned_sized(void *pointer)
{
	free_aligned_sized(pointer, 16, SMALL);
}

static void by_usable_size(void *pointer)
{
	(void)malloc_usable_size(pointer);
}

static void by_cache_free(void *pointer)
{
	cpuslab_cache_free(cache, pointer);
}

static void by_cache_free_bulk(void *pointer)
{
	cpuslab_cache_free_bulk(cache, 1, &pointer);
}

static const struct taker {
	const char *name;
	void (*take)(void *pointer);
} takers[] = {
	{"free", free},
	{"realloc", by_realloc},
	{"realloc larger", by_realloc_larger},
	{"realloc to nothing", by_realloc_to_nothing},
	{"reallocarray", by_reallocarray},
	{"free_sized", by_free_sized},
	{"free_aligned_sized", by_free_aligned_sized},
	{"malloc_usable_size", by_usable_size},
	{"cpuslab_cache_free", by_cache_free},
	{"cpuslab_cache_free_bulk", by_cache_free_bulk},
};

struct mistake {
	const struct taker *taker;
	unsigned pointer;
};

static void make_mistake(void *argument)
{
	const struct mistake *mistake = argument;

	mistake->taker->take(hide(pointers[mistake->pointer]()));
}

static void test_mistakes(void)
{
	char text[2048];

	for (size_t i = 0; i < sizeof takers / sizeof *takers; i++)
		for (unsigned pointer = 0; pointer < POINTERS; pointer++) {
			struct mistake mistake = {&takers[i], pointer};
			int status = check_child(make_mistake, &mistake, text, sizeof text);

			CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strchr(text, '\n'),
			      "%s of pointer %u: wait status %#x, said: %s", takers[i].name, pointer,
			      (unsigned)status, text);
		}
}

/* ---- what is right ----------------------------------------------------------------------------------- */

/* Objects of no bytes, of which a guarded one has 16; debugging classes have tables of their own. */
static void test_nothing(void)
{
	for (unsigned i = 0; i < 100; i++) {
		void *nothing = malloc(0);

		CHECK(nothing && malloc_usable_size(nothing) <= 16 && cpuslab_object_of(nothing) == nothing);
		nothing = realloc(nothing, i);
		CHECK(nothing || i == 0);
		free(nothing);
	}
}

static void test_queries(void)
{
	CHECK(malloc_usable_size(NULL) == 0);
	for (unsigned pointer = 0; pointer < POINTERS; pointer++) {
		void *address = pointers[pointer](), *object = cpuslab_object_of(address);

		CHECK(!object || (object < address && malloc_usable_size(object) > 0), "pointer %u", pointer);
	}
}

int main(int count, char **arguments)
{
	(void)arguments;
	if (!check_hardened()) {
		check_again("hardened:1", NULL);
		check_again("hardened:1,guard:1,guard_second:0,guard_cost:0", "nothing");
		setenv("CPUSLAB_DEBUG", ",malloc-*", 1);
		check_again("hardened:1", "nothing");
		return 0;
	}
	check_watchdog(60);
	test_nothing();
	if (count > 1)
		return 0;
	cache = cpuslab_cache_create(&(struct cpuslab_cache_args){.name = "pointers", .size = SMALL});
	CHECK(cache);
	free(malloc(SMALL));
	test_queries();
	test_mistakes();
	return 0;
}
