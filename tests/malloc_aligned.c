/* SPDX-License-Identifier: MIT */
/*
 * malloc_aligned: what the aligned functions do with every kind of alignment and size.  The rules:
 *
 *   posix_memalign  POSIX.1-2017: EINVAL where the alignment is not a power of two or no multiple of a
 * pointer's size, else ENOMEM; errno is not its business.  glibc leaves the pointer alone then aligned_alloc
 * C17 7.22.3.1: an alignment that is not valid gives a null pointer; EINVAL, as in glibc since 2.38 (its
 * manual, "Allocating Aligned Memory Blocks").  Any size will do: DR 460 memalign        glibc's manual and
 * malloc.c: the alignment is rounded up to a power of two; EINVAL where there is none, above 2^63.  No object
 * is aligned to 2^63 itself: ENOMEM (glibc's malloc/tst-malloc-too-large.c) valloc, pvalloc glibc's manual:
 * aligned to a page; pvalloc rounds the size up to pages, ENOMEM where that overflows
 *
 * Where the alignment and the size are both wrong, the alignment is.  A call that succeeds keeps errno.
 */
#include "check.h"

enum { UNTOUCHED = 4711 };

static const size_t page = 4096;
static const size_t half = (size_t)1 << 63;
static const size_t alignments[] = {
	0,
	1,
	2,
	3,
	4,
	5,
	7,
	8,
	12,
	16,
	17,
	24,
	32,
	33,
	48,
	64,
	100,
	4095,
	4096,
	4097,
	6144,
	1 << 20,
	(1 << 20) + 1,
	3 << 20,
	(size_t)1 << 31,
	(size_t)1 << 61,
	(size_t)1 << 62,
	((size_t)1 << 62) + 1,
	(size_t)3 << 61,
	half - 1,
	half,
	half + 1,
	(size_t)3 << 62,
	-(size_t)4096,
	-(size_t)16,
	SIZE_MAX - 1,
	SIZE_MAX,
};
static const size_t sizes[] = {
	0,
	1,
	15,
	16,
	100,
	4096,
	4097,
	300000,
	(size_t)1 << 62,
	PTRDIFF_MAX - 4096,
	PTRDIFF_MAX - 1,
	PTRDIFF_MAX,
	half,
	half + 1,
	-(size_t)4097,
	-(size_t)4096,
	-(size_t)4095,
	SIZE_MAX - 1,
	SIZE_MAX,
};

static bool is_power_of_two(size_t x)
{
	return x && !(x & (x - 1));
}

/* 0 where memory can be had, else ENOMEM. */
static int expected_of(size_t alignment, size_t size)
{
	return alignment > (size_t)1 << 60 || size > (size_t)1 << 60 ? ENOMEM : 0;
}

/* Checks the result of a call that should have set errno to `expected`, and frees it. */
static void judge(void *object, int expected, const char *function, size_t alignment, size_t size)
{
	int error = errno;

	CHECK(error == (expected ? expected : UNTOUCHED) && !object == !!expected,
	      "%s(%#zx, %#zx): %p, errno %d, but %d expected", function, alignment, size, object, error,
	      expected);
	if (!object)
		return;
	CHECK((uintptr_t)object % (alignment < 16 ? 16 : alignment) == 0, "%s(%#zx, %#zx): %p", function,
	      alignment, size, object);
	CHECK(malloc_usable_size(object) >= size);
	memset(object, 0x5a, size);
	free(object);
}

static void check_memalign(size_t alignment, size_t size)
{
	size_t rounded = 1;

	while (rounded < alignment && rounded < half)
		rounded *= 2;
	errno = UNTOUCHED;
	void *object = memalign(alignment, size);

	judge(object, alignment > half ? EINVAL : expected_of(rounded, size), "memalign", rounded, size);
}

static void check_aligned_alloc(size_t alignment, size_t size)
{
	if (!is_power_of_two(alignment) && !check_cpuslab())
		return; /* glibc before 2.38 rounds the alignment up */
	errno = UNTOUCHED;
	void *object = aligned_alloc(alignment, size);

	judge(object, is_power_of_two(alignment) ? expected_of(alignment, size) : EINVAL, "aligned_alloc",
	      alignment, size);
}

static void check_posix_memalign(size_t alignment, size_t size)
{
	static char mark;
	void *object = &mark;
	int expected = is_power_of_two(alignment) && alignment % sizeof(void *) == 0
			       ? expected_of(alignment, size)
			       : EINVAL;

	errno = UNTOUCHED;
	int result = posix_memalign(&object, alignment, size);

	CHECK(result == expected, "posix_memalign(%#zx, %#zx): %d, but %d expected", alignment, size, result,
	      expected);
	CHECK(!result || object == &mark, "posix_memalign touched its argument");
	if (check_cpuslab() || !result)
		CHECK(errno == UNTOUCHED);
	errno = result ? result : UNTOUCHED;
	judge(result ? NULL : object, expected, "posix_memalign", alignment, size);
}

static void check_pages(size_t size)
{
	size_t rounded = (size + page - 1) & -page;

	errno = UNTOUCHED;
	void *object = valloc(size);

	judge(object, expected_of(page, size), "valloc", page, size);
	errno = UNTOUCHED;
	object = pvalloc(size);
	judge(object, rounded < size ? ENOMEM : expected_of(page, rounded), "pvalloc", page,
	      rounded < size ? size : rounded);
}

int main(void)
{
	for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
		volatile size_t size = sizes[j];

		for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
			volatile size_t alignment = alignments[i];

			check_memalign(alignment, size);
			check_aligned_alloc(alignment, size);
			check_posix_memalign(alignment, size);
		}
		check_pages(size);
	}
	return 0;
}
