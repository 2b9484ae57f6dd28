/* SPDX-License-Identifier: MIT */
/*
 * hardened: caches whose every object is checked as it comes and goes, without a lock.
 *
 * What the program has is known from a mark for each object, in metadata (slab/slab.h), so that a pointer is
 * judged at the free itself, exactly: by the mark of the address, and by the canary that lies behind the
 * program's bytes.  A free object is all zero, which is looked at when it is handed out again; or, where what
 * the program left in it must be there again (slab_keeps_content), its canary stays and is looked at.
 *
 * Two words for each vCPU: objects are popped from one and pushed onto the other (magazine_return_missed),
 * and a magazine is shuffled on its way from the second to the first.  That way is the quarantine.
 *
 * In hardened mode the limits that admit calls to the fast paths of malloc and free are zero, as they are
 * before the library has started: each call comes here, and what is not hardened goes on from here.  A hit is
 * one function of some sixty instructions without a frame; whatever else there is to do is a tail call.
 *
 * Lock-free.  An object that was popped is the caller's alone, and so is its mark.  Of two threads that free
 * the same object at once, the exchange of the mark lets one through; where there is one thread, a load and a
 * store do.
 */
#ifndef CPUSLAB_MAGAZINE_HARDENED_H
#define CPUSLAB_MAGAZINE_HARDENED_H

#include <sys/single_threaded.h>

#include "check/blank.h"
#include "magazine/magazine.h"

/* What is not the caller's of an object: the canary at least; as much at most as a mark can count. */
enum { HARDENED_CANARY = 8, HARDENED_SLACK_MOST = UINT16_MAX };

/* What the functions below need of a cache whose objects are at most HARDENED_ROW bytes. */
enum { HARDENED_ROW = 4096 };
struct hardened {
	uint32_t bytes;   /* of its objects, canary included; 0 where no such cache has the word */
	uint16_t word;    /* offsets of the words that allocations pop from, */
	uint16_t returns; /* and that frees push onto */
};

/* By what the page map says of a cache's pages, which is a multiple of 8. */
extern ARCH_INTERNAL struct hardened hardened_by_id[VCPU_AREA_BYTES / 8];
extern ARCH_INTERNAL uint64_t hardened_secret[2];

/* Before the first hardened cache is created. */
void hardened_init(void);
/* Of a cache that was just created, unless it is untouchable, before it is used. */
void hardened_enter(const struct cache *cache);

/* The cache's row; `bytes` is 0 for one that has none. */
static inline const struct hardened *hardened_of(uint16_t id)
{
	_Static_assert(sizeof *hardened_by_id == 8, "a row is as far from the next as their ids are");
	return (const struct hardened *)((const char *)hardened_by_id + id);
}

/* The bytes of an object that are a caller's who asks for `size`: a mark counts no more than the rest. */
static inline size_t hardened_requested(uint32_t bytes, size_t size)
{
	return bytes - size > HARDENED_SLACK_MOST ? bytes - HARDENED_SLACK_MOST : size;
}

/* Misses, and what is wrong. */
_Noreturn void hardened_stop_alloc(const void *object);
_Noreturn void hardened_stop_free(const void *object, unsigned slack, size_t stated);
/* Frees any object of a hardened cache. */
void hardened_free_any(struct cache *cache, void *object);
/* The same; false where the address lies in no slab of one. */
bool hardened_free_unusual(void *object, size_t stated);
void hardened_return_missed(void *object);

/*
 * What lies behind the program's bytes.  The first byte is not zero, to be changed by the zero that ends a
 * string too long by one; the second one is, to end a string that is read from there.
 */
static inline uint64_t hardened_canary(const void *object)
{
	return (((uintptr_t)object ^ hardened_secret[0]) * hardened_secret[1]) << 16 | 0xa5;
}

typedef uint64_t hardened_word __attribute__((aligned(1), may_alias));

static inline hardened_word *hardened_canary_at(const void *object, size_t requested)
{
	return (hardened_word *)((uintptr_t)object + requested);
}

/*
 * Whether the canary is what it was, and the last bytes of the object are, which the next one may have been
 * written before: either the canary's end or zero.
 */
static inline bool hardened_is_sound(const void *object, uint32_t bytes, unsigned slack)
{
	uint64_t canary = hardened_canary(object), tail = 0;

	if (slack < 2 * HARDENED_CANARY)
		tail = canary >> 8 * (slack - HARDENED_CANARY);
	return *hardened_canary_at(object, bytes - slack) == canary &&
	       *hardened_canary_at(object, bytes - HARDENED_CANARY) == tail;
}

/*
 * Makes an object, which was just taken off a word, one of `requested` bytes; `fresh` ones, which were never
 * handed out, need not be looked at.
 */
static inline __attribute__((always_inline)) void *hardened_hand_out(uint32_t bytes, void *object,
								     size_t requested, bool fresh)
{
	uint16_t *mark = page_mark(object), was = __atomic_load_n(mark, __ATOMIC_RELAXED);

	if (__builtin_expect(was > SLAB_BACK, 0) ||
	    (!(fresh && was == SLAB_NEVER_OUT) && __builtin_expect(!blank_is(object, bytes), 0)))
		hardened_stop_alloc(object);
	__atomic_store_n(mark, (uint16_t)(bytes - requested), __ATOMIC_RELAXED);
	*hardened_canary_at(object, requested) = hardened_canary(object);
	return object;
}

/*
 * An object of which `requested` bytes are the caller's, at least HARDENED_CANARY fewer than it has; all of
 * them are zero.  NULL on a miss.  Aborts where it was written to while it was free.
 */
static inline __attribute__((always_inline)) void *hardened_alloc(const struct hardened *cache,
								  size_t requested)
{
	/* In one register: what an address made of two takes would be one more store, of a register saved. */
	ARCH_HIDE(cache);
	/* Acquire: whoever finds a row that was entered finds what the section needs. */
	uint32_t bytes = __atomic_load_n(&cache->bytes, __ATOMIC_ACQUIRE);
	void *object = __builtin_expect(bytes != 0, 1) ? magazine_alloc(&cache->word) : NULL;

	return __builtin_expect(object != NULL, 1) ? hardened_hand_out(bytes, object, requested, false)
						   : NULL;
}

/* The checks of a free, of an object whose mark was `slack`. */
static inline __attribute__((always_inline)) void hardened_check_free(uint32_t bytes, const void *object,
								      unsigned slack, size_t stated)
{
	if (__builtin_expect(slack < HARDENED_CANARY, 0) ||
	    __builtin_expect((uintptr_t)object % PAGE_MARK_UNIT != 0, 0) ||
	    __builtin_expect(!hardened_is_sound(object, bytes, slack), 0) ||
	    (stated != SIZE_MAX && __builtin_expect(stated != bytes - slack, 0)))
		hardened_stop_free(object, slack, stated);
}

/* The same; makes the object zero. */
static inline __attribute__((always_inline)) void hardened_take_back(uint32_t bytes, void *object,
								     unsigned slack, size_t stated)
{
	hardened_check_free(bytes, object, slack, stated);
	blank_fill(object, bytes - slack + HARDENED_CANARY);
}

/*
 * The race of two frees of one object: one of them finds SLAB_BACK.  A locked instruction waits until all
 * stores before it are done, the zeroes of the last object among them: up to a third of a pair, on some
 * processors, which a program of one thread need not pay.
 */
static inline unsigned hardened_exchange_mark(const void *object)
{
	uint16_t *mark = page_mark(object);

	if (__builtin_expect(!__libc_single_threaded, 0))
		return __atomic_exchange_n(mark, SLAB_BACK, __ATOMIC_ACQ_REL);
	unsigned was = __atomic_load_n(mark, __ATOMIC_RELAXED);

	__atomic_store_n(mark, SLAB_BACK, __ATOMIC_RELAXED);
	return was;
}

/* The row of the cache that an address belongs to; NULL where that may be none of those in the table. */
static inline __attribute__((always_inline)) const struct hardened *hardened_find(const void *object)
{
	uintptr_t page = page_of(object);

	/* Acquire, as in hardened_alloc. */
	if (__builtin_expect(page >= __atomic_load_n(&page_front.end, __ATOMIC_ACQUIRE), 0))
		return NULL;
	const struct hardened *cache = hardened_of(page_front.map[page]);

	return __builtin_expect(cache->bytes != 0, 1) ? cache : NULL;
}

/*
 * Frees an object that hardened_find has a row for, of which the caller says that it has so many bytes
 * (SIZE_MAX when it says nothing).  Aborts where no object that the program has starts there, where it has
 * another size, and where the bytes behind it were written to.  False when there was no room for it: then it
 * is for hardened_return_missed.
 */
static inline __attribute__((always_inline)) bool hardened_free(const struct hardened *cache, void *object,
								size_t stated)
{
	uint32_t bytes = cache->bytes;

	hardened_take_back(bytes, object, hardened_exchange_mark(object), stated);
	return __builtin_expect(magazine_free(&cache->returns, object), 1);
}

/* The same of any hardened cache, by the slow path if need be; NULL when there is no memory. */
void *hardened_alloc_any(struct cache *cache, struct request request);
/* An object without bytes, of a cache that is untouchable. */
void *hardened_alloc_untouchable(struct cache *cache);
/* The same without waiting; see magazine_try_alloc_missed. */
void *hardened_try_alloc(struct cache *cache, size_t requested);
/*
 * What was freed one after the other is not allocated in that order again.  Objects that have a mark above
 * them cannot move.
 */
void hardened_shuffle(struct magazine *magazine);
/* The caller's bytes of an object, after the checks of a free. */
size_t hardened_judge(const struct cache *cache, const void *object);
/* Changes how many they are. */
void hardened_resize(const struct cache *cache, void *object, size_t requested);
/* How many they are, without checks; false where no allocated object starts. */
bool hardened_bytes(const struct cache *cache, const void *object, size_t *bytes);

#endif
