/* SPDX-License-Identifier: MIT */
/*
 * malloc_contract: what C23, POSIX and glibc's manual promise of the malloc family, one function for each
 * promise.
 *
 * Where other allocators differ among themselves (waste, mallinfo, malloc_info) the promise is cpuslab's own,
 * and is tested where every function of the family comes from the same object as malloc.
 */
#include "check.h"

#include <dlfcn.h>
#include <stdalign.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* mallinfo: deprecated by glibc, promised by us  \
							    */

enum { KIB = 1 << 10, MIB = 1 << 20 };

void free_sized(void *, size_t) __attribute__((weak));
void free_aligned_sized(void *, size_t, size_t) __attribute__((weak));

/* Hidden from the compiler, which would warn of impossible sizes, or fold the call. */
static volatile size_t too_large = (size_t)PTRDIFF_MAX + 1;
static volatile size_t hopeless = SIZE_MAX;

/* One size of each kind: classes, their borders, page runs, mappings. */
static const size_t kinds[] = {
	1,       8,       16,          17,          100,      128,          129,      500,
	1024,    1025,    4000,        4096,        5000,     16384,        40000,    65536,
	100000,  131072,  200000,      262144,      262145,   300000,       1 * MIB,  1 * MIB + 1,
	2 * MIB, 3000000, 4 * MIB + 5, 9 * MIB - 1, 16 * MIB, 33 * MIB + 7, 64 * MIB,
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Valgrind's shadow memory makes the largest kinds slow, and they show nothing that the others do not. */
static unsigned kind_count(void)
{
	unsigned count = KINDS;
	while (check_valgrind() && kinds[count - 1] > 4 * MIB)
		count--;
	return count;
}

static void check_aligned(const void *object, size_t alignment, size_t size)
{
	CHECK(object, "%zu bytes aligned to %zu", size, alignment);
	CHECK((uintptr_t)object % alignment == 0, "%p of %zu bytes is not aligned to %zu", object, size,
	      alignment);
}

static void refuses(void *object, int error)
{
	int seen = errno;
	CHECK(!object && seen == error, "got %p and errno %d, not NULL and %d", object, seen, error);
	errno = 0;
}

static void zero_sizes_give_distinct_objects(void)
{
	void *objects[100];
	for (int i = 0; i < 100; i++) {
		objects[i] = i % 3 == 0 ? malloc(0) : i % 3 == 1 ? calloc(i % 2, 0) : realloc(NULL, 0);
		check_aligned(objects[i], 16, 0);
		for (int j = 0; j < i; j++)
			CHECK(objects[i] != objects[j]);
	}
	for (int i = 0; i < 100; i++)
		free(objects[i]);
}

static void every_size_is_aligned_to_16(void)
{
	for (size_t size = 0; size <= 5000; size++) {
		void *objects[4] = {malloc(size), calloc(1, size), malloc(size),
				    realloc(malloc(1), size | 1)};
		for (int i = 0; i < 4; i++) {
			check_aligned(objects[i], 16, size);
			CHECK(malloc_usable_size(objects[i]) >= size);
			memset(objects[i], i, malloc_usable_size(objects[i]));
		}
		for (int i = 0; i < 4; i++) {
			CHECK(check_all_bytes(objects[i], malloc_usable_size(objects[i]), (uint8_t)i),
			      "objects of %zu bytes overlap", size);
			free(objects[i]);
		}
	}
	for (size_t size = 5001; size <= (check_valgrind() ? 4 * MIB : 64 * MIB); size += size / 9) {
		void *object = malloc(size);
		check_aligned(object, 16, size);
		memset(object, 1, size);
		free(object);
	}
}

static void usable_bytes_are_usable(void)
{
	CHECK(malloc_usable_size(NULL) == 0);
	for (unsigned i = 0; i < kind_count(); i++) {
		enum { COUNT = 3 };
		void *objects[COUNT];
		size_t usable[COUNT];
		for (unsigned j = 0; j < COUNT; j++) {
			objects[j] = malloc(kinds[i]);
			CHECK(objects[j]);
			usable[j] = malloc_usable_size(objects[j]);
			CHECK(usable[j] >= kinds[i], "%zu usable of %zu", usable[j], kinds[i]);
			check_stamp(objects[j], usable[j], j + kinds[i]);
		}
		for (unsigned j = 0; j < COUNT; j++) {
			CHECK_STAMP(objects[j], usable[j], j + kinds[i]);
			CHECK(malloc_usable_size(objects[j]) == usable[j]);
			free(objects[j]);
		}
	}
}

/* A program that has more than a few objects of a size up to 1 KiB gets the class that suits it. */
static void waste_of_many(size_t size)
{
	enum { MANY = 1200, BYTES = 128 * KIB };
	static void *objects[MANY];
	unsigned many = 0;
	while (many < MANY && many * size < BYTES)
		CHECK((objects[many++] = malloc(size)));
	size_t usable = malloc_usable_size(objects[many - 1]);
	CHECK(size <= 128 ? usable <= (size + 15) / 16 * 16 : (usable - size) * 8 <= size,
	      "%zu bytes take %zu", size, usable);
	while (many)
		free(objects[--many]);
}

static void waste_is_at_most_an_eighth(void)
{
	if (!check_cpuslab())
		return;
	for (size_t size = 129; size <= 256 * KIB; size += check_valgrind() ? 61 : 1) {
		void *object = malloc(size);
		size_t usable = malloc_usable_size(object);
		CHECK((usable - size) * (size > 1024 ? 8 : 2) <= size, "%zu bytes take %zu", size, usable);
		free(object);
	}
	for (size_t size = 1; size <= 1024; size += size < 128 ? 1 : 16)
		waste_of_many(size);
}

static void calloc_is_zero_over_dirty_memory(void)
{
	for (unsigned i = 0; i < kind_count(); i++)
		for (int round = 0; round < (kinds[i] > MIB ? 2 : 12); round++) {
			enum { COUNT = 4 };
			uint8_t *objects[COUNT];
			for (int j = 0; j < COUNT; j++) {
				size_t count = j % 2 ? kinds[i] : 1, size = j % 2 ? 1 : kinds[i];
				objects[j] = calloc(count, size);
				CHECK(objects[j]);
				CHECK(check_all_bytes(objects[j], kinds[i], 0),
				      "calloc of %zu bytes is not zero", kinds[i]);
				memset(objects[j], 0xa5, malloc_usable_size(objects[j]));
			}
			for (int j = 0; j < COUNT; j++)
				free(objects[j]);
			void *dirty = malloc(kinds[i]);
			memset(dirty, 0x5a, malloc_usable_size(dirty));
			free(dirty);
		}
}

static void products_that_overflow_are_refused(void)
{
	volatile size_t half = SIZE_MAX / 2 + 1, root = (size_t)1 << 32, three = SIZE_MAX / 3 + 1;
	const struct {
		size_t count, size;
	} products[] = {{half, 2},        {2, half},     {root, root}, {three, 3}, {hopeless, hopeless},
			{root + 1, root}, {hopeless, 16}};
	void *kept = malloc(77);
	check_stamp(kept, 77, 5);
	errno = 0;
	for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
		refuses(calloc(products[i].count, products[i].size), ENOMEM);
		refuses(reallocarray(kept, products[i].count, products[i].size), ENOMEM);
		refuses(reallocarray(NULL, products[i].count, products[i].size), ENOMEM);
		CHECK_STAMP(kept, 77, 5);
	}
	kept = reallocarray(kept, 100, 10);
	CHECK(kept && malloc_usable_size(kept) >= 1000);
	CHECK_STAMP(kept, 77, 5);
	free(kept);
}

static void sizes_beyond_ptrdiff_max_are_refused(void)
{
	void *kept = malloc(100), *untouched = &kept;
	check_stamp(kept, 100, 1);
	errno = 0;
	for (int i = 0; i < 4; i++) {
		size_t size = i == 0   ? too_large
			      : i == 1 ? hopeless
			      : i == 2 ? hopeless - 4096
				       : too_large - 1;
		refuses(malloc(size), ENOMEM);
		refuses(calloc(1, size), ENOMEM);
		refuses(calloc(size, 1), ENOMEM);
		refuses(realloc(NULL, size), ENOMEM);
		refuses(realloc(kept, size), ENOMEM);
		CHECK_STAMP(kept, 100, 1);
		refuses(aligned_alloc(64, size), ENOMEM);
		refuses(memalign(4096, size), ENOMEM);
		refuses(valloc(size), ENOMEM);
		refuses(pvalloc(size), ENOMEM);
		void *object = untouched;
		CHECK(posix_memalign(&object, 64, size) == ENOMEM && object == untouched);
		errno = 0;
	}
	free(kept);
	void *large = malloc(5 * MIB);
	check_stamp(large, 5 * MIB, 2);
	errno = 0;
	refuses(realloc(large, too_large), ENOMEM);
	CHECK_STAMP(large, 5 * MIB, 2);
	free(large);
}

/* realloc(p, 0) frees p and returns NULL, as glibc does: a leak would show here. */
static void realloc_to_nothing_frees(void)
{
	for (unsigned round = 0; round < 2; round++) {
		size_t size = round ? 3 * MIB : 2000, count = round ? 2000 : 200000;
		if (check_valgrind())
			count /= 100;
		size_t before = 0;
		for (size_t i = 0; i < count; i++) {
			if (i == count / 10)
				before = check_resident();
			char *object = malloc(size);
			CHECK(object);
			memset(object, 1, 4096 < size ? 4096 : size);
			CHECK(!realloc(object, 0));
		}
		if (!check_valgrind())
			CHECK(check_resident() < before + 4 * MIB,
			      "realloc(p, 0) leaks: %zu then %zu bytes resident", before, check_resident());
	}
	void *object = realloc(NULL, 0);
	CHECK(object);
	free(object);
}

static void realloc_step(void *object, size_t from, size_t to)
{
	check_stamp(object, from, from ^ to);
	uint8_t *moved = realloc(object, to);
	check_aligned(moved, 16, to);
	size_t kept = from < to ? from : to;
	CHECK(malloc_usable_size(moved) >= to);
	CHECK_STAMP(moved, kept, from ^ to);
	memset(moved, 0xee, to);
	free(moved);
}

/* Sizes are exact to the byte: CPUSLAB_DEBUG and hardened mode guard what is behind an object's last byte. */
static bool sizes_are_exact(void)
{
	void *object = malloc(17);
	bool exact = malloc_usable_size(object) == 17;
	free(object);
	return exact;
}

static void realloc_keeps_content_across_borders(void)
{
	size_t border = 0;
	bool few = check_cpuslab() && !sizes_are_exact();
	while (border < 300 * KIB) {
		void *object = malloc(border + 1);
		size_t next = malloc_usable_size(object);
		free(object);
		CHECK(next > border);
		/* Where every byte is a border, or every 16th (glibc), a selection of them is enough. */
		border = few ? next : next + next / 256 * 16;
		realloc_step(malloc(border), border, border + 1);
		realloc_step(malloc(border + 1), border + 1, border);
		realloc_step(malloc(border), border, border);
		realloc_step(malloc(border), border, border / 2 + 1);
		realloc_step(malloc(border), border, 2 * border + 1);
	}
	for (unsigned i = 0; i < kind_count(); i++)
		for (unsigned j = 0; j < kind_count(); j++)
			if (kinds[i] + kinds[j] <= 12 * MIB || i == j || j == i + 1 || i == j + 1)
				realloc_step(malloc(kinds[i]), kinds[i], kinds[j]);
	/* Aligned objects may be passed to realloc; only the content is promised to survive. */
	for (size_t alignment = 32; alignment <= MIB; alignment *= 2) {
		realloc_step(memalign(alignment, 5000), 5000, 6000000);
		realloc_step(memalign(alignment, 700000), 700000, 10);
		realloc_step(memalign(alignment, 100), 100, 200);
	}
	/* Growing and shrinking in small steps, as buffers do. */
	size_t size = 1, stop = check_valgrind() ? 300 * KIB : 12 * MIB;
	uint8_t *buffer = malloc(1);
	buffer[0] = check_stamp_byte(9, 0);
	while (size < stop) {
		size_t more = size + size / 7 + 1;
		buffer = realloc(buffer, more);
		CHECK(buffer);
		for (; size < more; size++)
			buffer[size] = check_stamp_byte(9, size);
	}
	while (size > 1) {
		CHECK_STAMP(buffer, size, 9);
		size -= size / 3 + 1 < size ? size / 3 + 1 : size - 1;
		buffer = realloc(buffer, size);
		CHECK(buffer);
	}
	free(buffer);
}

/* Many neighbours, so that a large block that grows or moves into another one is noticed. */
static void large_reallocs_respect_neighbours(void)
{
	enum { COUNT = 40 };
	uint8_t *blocks[COUNT];
	size_t sizes[COUNT];
	uint64_t random = 77;
	for (int i = 0; i < COUNT; i++) {
		sizes[i] = 200 * KIB + check_below(&random, 600 * KIB);
		blocks[i] = malloc(sizes[i]);
		CHECK(blocks[i]);
		check_stamp(blocks[i], sizes[i], (uint64_t)i);
	}
	for (unsigned long round = check_rounds(400, 20000, 20); round; round--) {
		size_t i = check_below(&random, COUNT);
		size_t size = round % 5 == 0
				      ? 100 + check_below(&random, 100 * KIB)
				      : 200 * KIB + check_below(&random, round % 7 ? 800 * KIB : 6 * MIB);
		blocks[i] = realloc(blocks[i], size);
		CHECK(blocks[i]);
		CHECK_STAMP(blocks[i], size < sizes[i] ? size : sizes[i], i);
		sizes[i] = size;
		check_stamp(blocks[i], size, i);
	}
	for (int i = 0; i < COUNT; i++) {
		CHECK_STAMP(blocks[i], sizes[i], (uint64_t)i);
		free(blocks[i]);
	}
}

static void odd_alignments_are_refused(void)
{
	static char mark;
	volatile size_t odd[] = {0, 3, 12, 24, 40, 100, 4095, hopeless, (size_t)PTRDIFF_MAX};
	for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
		void *object = &mark;
		CHECK(posix_memalign(&object, odd[i], 100) == EINVAL, "alignment %zu", odd[i]);
		CHECK(object == &mark, "posix_memalign touched its argument");
		/* C17 and glibc from 2.38; before, glibc rounded the alignment up. */
		if (check_cpuslab()) {
			errno = 0;
			refuses(aligned_alloc(odd[i], 128), EINVAL);
		}
	}
	for (size_t alignment = 1; alignment < sizeof(void *); alignment *= 2) {
		void *object = &mark;
		CHECK(posix_memalign(&object, alignment, 100) == EINVAL && object == &mark);
	}
}

static void every_small_size_has_every_alignment(void)
{
	for (size_t alignment = 32; alignment <= 2048; alignment *= 2)
		for (size_t size = 0; size <= 2048; size += 1 + size / 256) {
			void *objects[3] = {aligned_alloc(alignment, size), memalign(alignment, size)};
			CHECK(posix_memalign(&objects[2], alignment, size) == 0);
			for (unsigned i = 0; i < 3; i++) {
				check_aligned(objects[i], alignment, size);
				CHECK(malloc_usable_size(objects[i]) >= size);
				check_stamp(objects[i], size, i);
			}
			for (unsigned i = 0; i < 3; i++) {
				CHECK_STAMP(objects[i], size, i);
				free(objects[i]);
			}
		}
}

static void every_alignment_works(void)
{
	static const size_t sizes[] = {0, 1, 16, 100, 1000, 4096, 5000, 70000, 300000, MIB + 1, 3 * MIB};
	size_t largest = check_valgrind() ? MIB : (size_t)1 << 30;
	for (size_t alignment = 1; alignment <= largest; alignment *= 2)
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
			size_t size = sizes[i];
			void *objects[4] = {aligned_alloc(alignment, size), memalign(alignment, size), NULL,
					    NULL};
			if (alignment >= sizeof(void *))
				CHECK(posix_memalign(&objects[2], alignment, size) == 0);
			else
				objects[2] = malloc(size);
			objects[3] = malloc(size);
			for (unsigned j = 0; j < 4; j++) {
				check_aligned(objects[j], j < 3 ? alignment : 16, size);
				CHECK(malloc_usable_size(objects[j]) >= size, "%zu of %zu aligned to %zu",
				      malloc_usable_size(objects[j]), size, alignment);
				check_stamp(objects[j], size, alignment + j);
			}
			for (unsigned j = 0; j < 4; j++)
				CHECK_STAMP(objects[j], size, alignment + j);
			for (int j = 0; j < 4; j++)
				free(objects[j]);
		}
	/* Aligned objects of one class side by side, and their memory reused. */
	for (size_t alignment = 32; alignment <= (check_valgrind() ? 8 : 64) * KIB; alignment *= 2) {
		void *objects[64];
		for (unsigned round = 0; round < 3; round++) {
			for (unsigned i = 0; i < 64; i++) {
				size_t size = 1 + i * alignment / 5;
				objects[i] = aligned_alloc(alignment, size);
				check_aligned(objects[i], alignment, size);
				check_stamp(objects[i], size, i);
			}
			for (unsigned i = 0; i < 64; i++) {
				CHECK_STAMP(objects[i], 1 + i * alignment / 5, i);
				free(objects[i]);
			}
		}
	}
	/* And objects about as large as their alignment. */
	for (size_t alignment = 4 * KIB; alignment <= 512 * KIB; alignment *= 2) {
		void *objects[16];
		for (unsigned i = 0; i < 16; i++) {
			objects[i] = aligned_alloc(alignment, alignment - i);
			check_aligned(objects[i], alignment, alignment - i);
			check_stamp(objects[i], alignment - i, i);
		}
		for (unsigned i = 0; i < 16; i++) {
			CHECK_STAMP(objects[i], alignment - i, i);
			free(objects[i]);
		}
	}
}

static void page_allocations(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	static const size_t sizes[] = {0, 1, 100, 4095, 4096, 4097, 100000, 3 * MIB};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		void *by_valloc = valloc(sizes[i]), *by_pvalloc = pvalloc(sizes[i]);
		check_aligned(by_valloc, page, sizes[i]);
		check_aligned(by_pvalloc, page, sizes[i]);
		size_t rounded = (sizes[i] + page - 1) / page * page;
		CHECK(malloc_usable_size(by_valloc) >= sizes[i]);
		CHECK(malloc_usable_size(by_pvalloc) >= rounded, "pvalloc(%zu) gave %zu", sizes[i],
		      malloc_usable_size(by_pvalloc));
		memset(by_valloc, 1, sizes[i]);
		memset(by_pvalloc, 2, rounded);
		CHECK(check_all_bytes(by_valloc, sizes[i], 1));
		free(by_valloc);
		free(by_pvalloc);
	}
	errno = 0;
	refuses(pvalloc(hopeless), ENOMEM); /* rounding up to a page must not wrap to zero */
	refuses(pvalloc(hopeless - page + 2), ENOMEM);
}

static void free_keeps_errno(void)
{
	errno = 4321;
	free(NULL);
	CHECK(errno == 4321);
	for (unsigned i = 0; i < kind_count(); i++) {
		void *objects[20];
		for (int j = 0; j < 20; j++)
			objects[j] = j < 4 || kinds[i] < MIB ? malloc(kinds[i]) : NULL;
		for (int j = 0; j < 20; j++) {
			errno = 4321 + j;
			free(objects[j]);
			CHECK(errno == 4321 + j, "free of %zu bytes", kinds[i]);
		}
	}
	if (check_cpuslab()) { /* glibc 2.36 has no such promise for realloc and its kin when they succeed */
		errno = 4321;
		void *object = realloc(malloc(10), 5 * MIB);
		free(object);
		CHECK(object && errno == 4321);
	}
}

/* So that a program may look at errno after a call that succeeded. */
static void success_keeps_errno(void)
{
	if (!check_cpuslab())
		return;
	for (unsigned i = 0; kinds[i] <= 4 * MIB; i++) {
		size_t size = kinds[i];
		void *object = NULL;
		errno = 4321;
		free(malloc(size));
		free(calloc(2, size / 2 + 1));
		free(aligned_alloc(64, size));
		free(memalign(16384, size));
		free(valloc(size));
		free(pvalloc(size));
		CHECK(posix_memalign(&object, 256, size) == 0);
		CHECK(malloc_usable_size(object) >= size);
		CHECK((object = realloc(object, 2 * size)) &&
		      (object = reallocarray(object, 1, size / 3 + 1)));
		CHECK(!realloc(object, 0));
		malloc_trim(0);
		CHECK(mallinfo2().arena > 0 && mallopt(M_MMAP_MAX, 7) == 1);
		CHECK(errno == 4321, "errno is %d after %zu bytes", errno, size);
	}
}

static void sized_frees_free(void)
{
	if (!free_sized || !free_aligned_sized) {
		CHECK(!check_cpuslab(), "free_sized and free_aligned_sized are missing");
		return;
	}
	free_sized(NULL, 10);
	free_aligned_sized(NULL, 16, 10);
	size_t before = 0;
	for (unsigned round = 0; round < 20; round++) {
		if (round == 10)
			before = check_resident();
		for (unsigned i = 0; i < kind_count(); i++) {
			errno = 99;
			void *object = malloc(kinds[i]);
			memset(object, 1, 1);
			free_sized(object, kinds[i]);
			object = aligned_alloc(256, kinds[i]);
			memset(object, 1, 1);
			free_aligned_sized(object, 256, kinds[i]);
			object = aligned_alloc(64 * KIB, kinds[i]);
			free_aligned_sized(object, 64 * KIB, kinds[i]);
			CHECK(errno == 99);
		}
	}
	CHECK(check_resident() < before + 16 * MIB, "sized frees leak");
}

/* ---- statistics and tuning ------------------------------------------------------------------------- */

/* mallinfo and its kin come from the same object as malloc; an allocator that lacks them leaves glibc's. */
static bool whole_family(void)
{
	Dl_info allocator, other;
	if (!dladdr((void *)(uintptr_t)malloc, &allocator))
		return false;
	void *const family[] = {
		(void *)(uintptr_t)mallinfo2,
		(void *)(uintptr_t)mallinfo,
		(void *)(uintptr_t)malloc_info,
		(void *)(uintptr_t)malloc_stats,
		(void *)(uintptr_t)mallopt,
		(void *)(uintptr_t)malloc_trim,
		(void *)(uintptr_t)valloc,
		(void *)(uintptr_t)pvalloc,
		(void *)(uintptr_t)memalign,
		(void *)(uintptr_t)aligned_alloc,
		(void *)(uintptr_t)posix_memalign,
		(void *)(uintptr_t)reallocarray,
		(void *)(uintptr_t)malloc_usable_size,
	};
	for (size_t i = 0; i < sizeof family / sizeof *family; i++)
		if (!dladdr(family[i], &other) || other.dli_fbase != allocator.dli_fbase) {
			CHECK(!check_cpuslab(), "member %zu of the family comes from %s", i, other.dli_fname);
			return false;
		}
	return true;
}

static size_t in_use(void)
{
	struct mallinfo2 info = mallinfo2();
	return info.uordblks + info.hblkhd;
}

static void mallinfo_follows_allocations(void)
{
	enum { SMALL = 10000, LARGE = 4 };
	static void *small[SMALL], *large[LARGE];
	size_t start = in_use();
	for (int i = 0; i < SMALL; i++)
		CHECK((small[i] = malloc(1000)));
	size_t with_small = in_use();
	CHECK(with_small >= start + SMALL * 1000 * 95 / 100, "10 MB allocated, mallinfo2 says %zu to %zu",
	      start, with_small);
	CHECK(with_small <= start + SMALL * 1000 * 125 / 100, "10 MB allocated, mallinfo2 says %zu to %zu",
	      start, with_small);
	for (int i = 0; i < LARGE; i++)
		CHECK((large[i] = malloc(8 * MIB)));
	size_t with_large = in_use();
	CHECK(with_large >= with_small + LARGE * 8 * MIB, "%zu to %zu", with_small, with_large);
	struct mallinfo narrow = mallinfo();
	CHECK((size_t)narrow.uordblks + (size_t)narrow.hblkhd >= (size_t)SMALL * 950 + LARGE * 8 * MIB);
	for (int i = 0; i < SMALL; i++)
		free(small[i]);
	for (int i = 0; i < LARGE; i++)
		free(large[i]);
	size_t end = in_use();
	CHECK(end <= start + MIB, "after every free mallinfo2 says %zu, at the start %zu", end, start);
}

/* Well-formed: one root element, every element closed in order, quoted attributes, no stray '<' or '&'. */
static void check_xml(const char *text)
{
	char open[32][64];
	unsigned depth = 0, roots = 0;
	for (const char *at = text; *at;) {
		if (*at != '<') {
			CHECK(*at != '>', "stray > at: %.40s", at);
			CHECK(depth || strchr(" \t\r\n", *at), "text outside the root element: %.40s", at);
			if (*at == '&')
				CHECK(strncmp(at, "&lt;", 4) == 0 || strncmp(at, "&gt;", 4) == 0 ||
					      strncmp(at, "&amp;", 5) == 0,
				      "%.40s", at);
			at++;
			continue;
		}
		const char *end = at;
		for (char quote = 0; *end && (quote || *end != '>'); end++) {
			if (quote ? *end == quote : *end == '"' || *end == '\'')
				quote = quote ? 0 : *end;
			CHECK(end == at || quote || *end != '<', "< inside a tag: %.40s", at);
		}
		CHECK(*end == '>', "unfinished tag: %.40s", at);
		if (at[1] == '?' || at[1] == '!') {
			CHECK(!depth && !roots, "declaration after the root began: %.40s", at);
			at = end + 1;
			continue;
		}
		bool closes = at[1] == '/', empty = end[-1] == '/';
		const char *name = at + 1 + closes;
		size_t length = strcspn(name, " \t\r\n/>");
		CHECK(length > 0 && length < sizeof open[0], "%.40s", at);
		if (closes) {
			CHECK(depth > 0, "closed but never opened: %.40s", at);
			depth--;
			CHECK(strlen(open[depth]) == length && strncmp(open[depth], name, length) == 0,
			      "<%s> closed by %.40s", open[depth], at);
		} else {
			if (depth == 0)
				roots++;
			for (const char *equals = strchr(name, '='); equals && equals < end;
			     equals = strchr(equals, '=')) {
				char quote = *++equals;
				CHECK(quote == '"' || quote == '\'', "attribute without quotes: %.60s", at);
				equals = strchr(equals + 1, quote) + 1;
			}
			if (!empty) {
				CHECK(depth < 32);
				memcpy(open[depth], name, length);
				open[depth++][length] = 0;
			}
		}
		at = end + 1;
	}
	CHECK(depth == 0 && roots == 1, "%u open elements, %u roots", depth, roots);
}

static void malloc_info_is_xml(void)
{
	void *kept[3] = {malloc(100), malloc(100000), malloc(9 * MIB)};
	char *text = NULL;
	size_t length = 0;
	FILE *stream = open_memstream(&text, &length);
	CHECK(stream);
	CHECK(malloc_info(1, stream) != 0, "options other than 0 are refused");
	CHECK(malloc_info(0, stream) == 0);
	CHECK(fclose(stream) == 0);
	CHECK(length > 20 && strstr(text, "<malloc"), "%s", text);
	check_xml(text);
	free(text);
	for (int i = 0; i < 3; i++)
		free(kept[i]);
}

static void print_stats(void *unused)
{
	(void)unused;
	malloc_stats();
}

static void malloc_stats_prints(void)
{
	char text[16384];
	CHECK_EXITED(check_child(print_stats, NULL, text, sizeof text), 0);
	CHECK(strchr(text, '\n') && strpbrk(text, "0123456789"), "malloc_stats printed '%s'", text);
}

static void tune(void *unused)
{
	static const int parameters[][2] = {
		{M_TRIM_THRESHOLD, 1 << 20},
		{M_TOP_PAD, 4096},
		{M_MMAP_THRESHOLD, 1 << 20},
		{M_MMAP_MAX, 1000},
		{M_MXFAST, 64},
		{M_ARENA_TEST, 2},
		{M_ARENA_MAX, 1},
		{M_CHECK_ACTION, 3},
		{M_PERTURB, 0},
		{M_PERTURB, 0x5a},
		{M_MXFAST, 0},
		{M_MXFAST, 160},
		{M_TRIM_THRESHOLD, -1},
		{-1000, 7},
	};
	(void)unused;
	CHECK(mallopt(M_MXFAST, 161) == 0 && mallopt(M_MXFAST, -1) == 0,
	      "the largest fast bin has 160 bytes");
	for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++)
		CHECK(mallopt(parameters[i][0], parameters[i][1]) == 1, "mallopt(%d, %d)", parameters[i][0],
		      parameters[i][1]);
	free(malloc(1000));
}

static void mallopt_accepts(void)
{
	char text[1024];
	CHECK_EXITED(check_child(tune, NULL, text, sizeof text), 0);
	CHECK(!*text, "mallopt printed '%s'", text);
}

static void malloc_trim_keeps_what_lives(void)
{
	enum { COUNT = 3000 };
	static void *objects[COUNT];
	uint64_t random = 3;
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < COUNT; i++) {
			size_t size = i % 50 == 0 ? 20000 + check_below(&random, 200000)
						  : 8 + check_below(&random, 2000);
			objects[i] = malloc(size);
			CHECK(objects[i]);
			memcpy(objects[i], &size, sizeof size);
			check_stamp((char *)objects[i] + sizeof size, size - sizeof size, i);
		}
		for (unsigned i = round; i < COUNT; i += 3) {
			free(objects[i]);
			objects[i] = NULL;
		}
		int trimmed = malloc_trim(round == 1 ? 1 << 20 : 0);
		CHECK(trimmed == 0 || trimmed == 1);
		for (unsigned i = 0; i < COUNT; i++)
			if (objects[i]) {
				size_t size;
				memcpy(&size, objects[i], sizeof size);
				CHECK_STAMP((char *)objects[i] + sizeof size, size - sizeof size, i);
				free(objects[i]);
			}
	}
	malloc_trim(0);
	malloc_trim(0);
}

int main(void)
{
	check_watchdog(120);
	bool family = whole_family();
	/* First, while little is in use: its margins are absolute. */
	if (family)
		mallinfo_follows_allocations();
	zero_sizes_give_distinct_objects();
	every_size_is_aligned_to_16();
	usable_bytes_are_usable();
	waste_is_at_most_an_eighth();
	calloc_is_zero_over_dirty_memory();
	products_that_overflow_are_refused();
	sizes_beyond_ptrdiff_max_are_refused();
	realloc_to_nothing_frees();
	realloc_keeps_content_across_borders();
	large_reallocs_respect_neighbours();
	odd_alignments_are_refused();
	every_small_size_has_every_alignment();
	every_alignment_works();
	page_allocations();
	free_keeps_errno();
	success_keeps_errno();
	sized_frees_free();
	malloc_trim_keeps_what_lives();
	if (family) {
		malloc_info_is_xml();
		malloc_stats_prints();
		mallopt_accepts();
	}
	printf("%s: kept\n", check_mode());
	return 0;
}
