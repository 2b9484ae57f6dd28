/* SPDX-License-Identifier: MIT */
#include "malloc/large.h"

#include <assert.h>
#include <sys/single_threaded.h>

#include "check/corruption.h"
#include "magazine/magazine.h"
#include "malloc/large_checks.h"
#include "malloc/size_class.h"
#include "options/options.h"
#include "os/os.h"
#include "page/page.h"
#include "profile/dump.h"
#include "profile/profile.h"
#include "vcpu/vcpu.h"

enum {
	/* Beyond this alignment a run would leave too much of the heap's address space behind. */
	RUN_ALIGNMENT_MAX = 4 << 20,
	ADDRESS_BITS = 48 /* the most that a process has unless it asks for higher addresses */
};

static size_t pages_for(size_t bytes)
{
	return (bytes + PAGE_BYTES - 1) >> PAGE_SHIFT;
}

/* Converts an alignment to the page room's unit. */
static size_t alignment_in_pages(size_t alignment)
{
	return alignment > PAGE_BYTES ? alignment >> PAGE_SHIFT : 1;
}

/* ---- colours ----------------------------------------------------------------------------------------- */

/*
 * Objects that all began with a page would share a few sets of each cache with what a program reads at
 * strides of a page: a column of each of three matrices, or a field of each of many buffers.  So the objects
 * of malloc begin at one of COLOURS lines of their first page, as slabs do since Bonwick's.
 *
 * The colour is the number of the run's place, counted in its own length: runs that lie in a row differ, and
 * an object that takes the place of another of about its length begins as that one did, with lines that may
 * still be cached.  No object begins at the first two lines of a page, which some machines are slower at.
 *
 * Without a colour, at the first byte of the run, begin objects aligned to more than a line, those of up to
 * SIZE_CLASS_RUNS bytes, for which a page more would be much, those placed to grow, and debugged ones.
 */
enum {
	COLOURS = 16,
	COLOUR_BYTES = LARGE_ALIGNMENT, /* a line */
	COLOUR_FIRST = 2 * COLOUR_BYTES,
	/* What an object with a colour needs beside its bytes, whichever it is: large_granted() must know. */
	COLOUR_ROOM = COLOUR_FIRST + (COLOURS - 1) * COLOUR_BYTES,
};

static bool is_coloured(size_t size, size_t alignment)
{
	return size - SIZE_CLASS_RUNS - 1 < LARGE_RUN_MAX - SIZE_CLASS_RUNS && alignment <= COLOUR_BYTES &&
	       !large_is_checked();
}

static size_t room_for(size_t size, size_t alignment)
{
	return is_coloured(size, alignment) ? COLOUR_ROOM : 0;
}

/* Places an object in a run just allocated, of so many pages with the room for a colour; NULL for NULL. */
static inline void *place(void *run, size_t pages, size_t room)
{
	unsigned length_log2 = 63u - (unsigned)__builtin_clzl(pages);
	unsigned colour = (unsigned)(page_of(run) >> length_log2) % COLOURS;

	return run ? page_large_place(run, room ? COLOUR_FIRST + colour * COLOUR_BYTES : 0) : NULL;
}

/* For addresses in the first page of a large run. */
static bool is_placed_at(const void *address)
{
	return (uintptr_t)address % PAGE_BYTES == page_large_offset(address);
}

static size_t room_of(const void *object)
{
	return page_large_offset(object) ? COLOUR_ROOM : 0;
}

static void *run_of(const void *address)
{
	return (void *)((uintptr_t)address & ~(uintptr_t)(PAGE_BYTES - 1));
}

/* ---- calls ------------------------------------------------------------------------------------------- */

/* Calls that no size class served; for the counters of misses. */
static uint64_t allocs, frees;

void large_calls(uint64_t *alloc_calls, uint64_t *free_calls)
{
	page_standby_calls(alloc_calls, free_calls);
	*alloc_calls += __atomic_load_n(&allocs, __ATOMIC_RELAXED);
	*free_calls += __atomic_load_n(&frees, __ATOMIC_RELAXED);
}

void large_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("large.allocs", (uintptr_t)&allocs, sizeof allocs);
	show("large.frees", (uintptr_t)&frees, sizeof frees);
}

/* Stores plainly with one thread: a locked instruction would wait for the program's stores into its block. */
static void count(uint64_t *calls)
{
	if (__libc_single_threaded)
		__atomic_store_n(calls, *calls + 1, __ATOMIC_RELAXED);
	else
		__atomic_fetch_add(calls, 1, __ATOMIC_RELAXED);
}

static void *run_alloc(size_t size, size_t alignment, bool *zeroed)
{
	if (alignment > RUN_ALIGNMENT_MAX)
		return NULL;
	size_t room = room_for(size, alignment), pages = pages_for(size + room);

	return place(page_alloc(pages, alignment_in_pages(alignment), PAGE_LARGE, zeroed), pages, room);
}

/* Tries the place where the size belongs, then the other one, where alone a limit may leave room. */
static void *alloc_once(size_t size, size_t alignment, bool *zeroed)
{
	/* Between pages without access, at an address that is not used again soon. */
	if (huge_is_isolated())
		return huge_alloc(size, alignment, zeroed);
	void *object = size <= LARGE_RUN_MAX ? run_alloc(size, alignment, zeroed) : NULL;

	if (!object)
		/* No fewer bytes than large_granted() tells. */
		object = huge_alloc(size + room_for(size, alignment), alignment, zeroed);
	if (!object && size > LARGE_RUN_MAX)
		object = run_alloc(size, alignment, zeroed);
	return object;
}

/* Whether a retry can succeed: no emptied magazine makes room for more than can be mapped at all. */
static bool may_fit(size_t size)
{
	return size < 1ul << ADDRESS_BITS && size <= page_address_space_most();
}

/* Tries again after giving back everything that can be. */
static void *alloc_anywhere(size_t size, size_t alignment, bool *zeroed)
{
	void *object = alloc_once(size, alignment, zeroed);

	if (!object && may_fit(size)) {
		magazine_trim();
		object = alloc_once(size, alignment, zeroed);
	}
	return object;
}

/* A heap profile may sample the object. */
static void note_to_profile(void *object, size_t size)
{
	magazine_tick_profile();
	if (profile_is_on() && object && profile_allocated_large(object, size))
		profile_look();
}

/* Tells the checks, and a heap profile. */
static void note(void *object, size_t size)
{
	if (large_is_checked() && object)
		large_check_alloc(object, size, large_bytes(object));
	note_to_profile(object, size);
}

static void begin_alloc(size_t size)
{
	count(&allocs);
	magazine_tick();
	magazine_heap_tick(size >> PAGE_SHIFT);
}

/* Whether nothing looks at each object, so that objects may come and go without the page lock. */
static bool is_plain(void)
{
	return __builtin_expect(!large_is_checked() && !profile_is_on(), 1);
}

static void *alloc_again(size_t size, size_t alignment)
{
	size_t room = room_for(size, alignment), pages = pages_for(size + room);

	return is_plain() ? place(page_take_standby(pages, arch_id(vcpu_self)), pages, room) : NULL;
}

void *large_alloc_again(size_t size)
{
	return alloc_again(size, 1);
}

void *large_alloc(size_t size, size_t alignment, bool *zeroed)
{
	void *again = alignment <= PAGE_BYTES ? alloc_again(size, alignment) : NULL;

	if (again) {
		*zeroed = false;
		return again;
	}
	begin_alloc(size);
	if (large_is_checked() && large_check_fails())
		return NULL;
	void *object = alloc_anywhere(size, alignment, zeroed);

	note(object, size);
	return object;
}

void *large_try_alloc(size_t size, size_t alignment)
{
	bool zeroed, checked = large_is_checked();
	size_t room = room_for(size, alignment), pages = pages_for(size ? size + room : 1);

	count(&allocs);
	if (checked && (large_check_fails() || !large_checks_try_lock()))
		return NULL;
	void *object =
		place(page_try_alloc(pages, alignment_in_pages(alignment), PAGE_LARGE, &zeroed), pages, room);

	if (checked)
		large_checks_unlock(object);
	if (object && profile_is_on())
		(void)profile_allocated_large(object, size);
	return object;
}

void *large_alloc_to_grow(size_t size)
{
	bool zeroed;

	/* Isolation puts objects elsewhere, and checks look at them more closely. */
	if (huge_is_isolated() || large_is_checked())
		return large_alloc(size, 1, &zeroed);
	begin_alloc(size);
	size_t pages = pages_for(size);
	void *object = place(page_alloc_to_grow(pages, &zeroed), pages, 0);

	if (!object)
		object = alloc_anywhere(size, 1, &zeroed);
	note(object, size);
	return object;
}

void *large_alloc_mapping(size_t size)
{
	bool zeroed;

	/* Checked objects move by malloc instead. */
	assert(!large_is_checked());
	begin_alloc(size);
	void *object = huge_alloc(size, 1, &zeroed);

	/* New mappings may have reached a limit, with room left in the heap. */
	if (!object)
		object = alloc_anywhere(size, 1, &zeroed);
	note(object, size);
	return object;
}

bool large_free_again(void *object)
{
	if (!is_plain())
		return false;
	size_t pages = page_put_standby(object, arch_id(vcpu_self));

	if (__builtin_expect(pages >= MAGAZINE_MUCH, 0))
		magazine_large_freed(pages);
	return pages;
}

bool large_grow(void *object, size_t size)
{
	return page_is_heap(object) && page_id(object) == PAGE_LARGE && is_placed_at(object) && is_plain() &&
	       page_large_grow(object, pages_for(size + room_of(object)));
}

void large_free(void *object, size_t stated)
{
	count(&frees);
	magazine_tick();
	if (large_is_checked() && !large_check_free(object, stated))
		return;
	if (profile_is_on())
		profile_freed(object);
	if (!page_is_heap(object)) {
		if (!huge_free(object))
			corruption_abort(NULL, object, "free of a pointer that is not ours");
		magazine_large_freed(0);
		return;
	}
	switch (page_id(object)) {
	case PAGE_LARGE:
		if (!is_placed_at(object))
			corruption_abort("large", object, "free of a pointer into a large object");
		page_free(run_of(object), page_large_pages(object));
		magazine_large_freed(0);
		return;
	case PAGE_LARGE_TAIL:
		corruption_abort("large", object, "free of a pointer into a large object");
	default:
		corruption_abort(NULL, object,
				 "free of a pointer into no object (already free, or never ours)");
	}
}

size_t large_bytes(const void *object)
{
	if (!page_is_heap(object))
		return huge_bytes(object);
	if (page_id(object) == PAGE_LARGE && is_placed_at(object))
		return (page_large_pages(object) << PAGE_SHIFT) - room_of(object);
	return 0;
}

/* Returns the object that begins in a page, if it contains the address; else NULL. */
static void *object_in(char *page, const char *address)
{
	char *object = page;

	if (!page_is_heap(page))
		object = huge_in_page(page);
	else if (page_id(page) == PAGE_LARGE)
		object += page_large_offset(page);
	return object && (uintptr_t)address - (uintptr_t)object < large_bytes(object) ? object : NULL;
}

void *large_object_of(const void *address)
{
	void *object = object_in(run_of(address), address);

	/* An object's first 4096 bytes reach into the second page.  Any address may be asked for. */
	return object ? object : object_in((char *)((page_of(address) - 1) << PAGE_SHIFT), address);
}

size_t large_usable(const void *object)
{
	size_t bytes = large_bytes(object);

	return large_is_checked() && bytes ? large_check_usable(object, bytes) : bytes;
}

size_t large_granted(size_t size)
{
	size_t room = room_for(size, 1);

	return large_check_flags & CHECK_RED_ZONE ? size : (pages_for(size + room) << PAGE_SHIFT) - room;
}

/* Gives an object of the heap that cannot grow there a mapping, to which its pages move. */
static void *move_out(void *object, size_t size)
{
	size_t pages = page_large_pages(object);
	bool emptied;
	void *moved = huge_take_over(run_of(object), pages << PAGE_SHIFT, page_large_offset(object), size,
				     &emptied);

	if (moved)
		(emptied ? page_free_emptied : page_free)(run_of(object), pages);
	return moved;
}

static void *resize(void *object, size_t size)
{
	size_t bytes = large_bytes(object);

	if (!page_is_heap(object))
		return huge_resize(object, size);
	if (size <= LARGE_RUN_MAX && page_large_resize(object, pages_for(size + room_of(object))))
		return object;
	return bytes >= LARGE_MOVES_FROM && size > bytes && size <= PTRDIFF_MAX ? move_out(object, size)
										: NULL;
}

/* A checked object is another one after it has moved: the old one is freed, with all checks of a free. */
static void *resize_checked(void *object, size_t size)
{
	size_t bytes = large_bytes(object), before = large_check_requested(object, bytes);

	/* A run would stay where it is. */
	if (page_is_heap(object) || size <= SIZE_CLASS_MAX || large_check_flags & CHECK_FAIL ||
	    !large_check_free(object, SIZE_MAX))
		return NULL;
	void *resized = huge_resize(object, size);

	if (resized)
		large_check_alloc(resized, size, large_bytes(resized));
	else
		large_check_alloc(object, before, bytes);
	return resized;
}

void *large_resize(void *object, size_t size)
{
	/* An object that shrinks to a size class's size goes to that class. */
	if (size <= SIZE_CLASS_MAX / 2 && size < large_bytes(object))
		return NULL;
	/*
	 * To a profile the result is another object.  The old one ends first: an address that it leaves may
	 * be another thread's at once, with a sample of its own.
	 */
	struct profile_sample sample = {0};

	if (profile_is_on())
		sample = profile_set_aside(object);
	void *resized = large_is_checked() ? resize_checked(object, size) : resize(object, size);

	profile_put_back(sample, resized ? NULL : object);
	if (resized)
		note_to_profile(resized, size);
	return resized;
}
