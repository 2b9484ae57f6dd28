/* SPDX-License-Identifier: MIT */
/*
 * hardened: caches that check every object as it comes and goes, without a lock.
 *
 * A mark for each object, in metadata (slab/slab.h), tells whether the program has it.  So a free is judged
 * at once and exactly: by the mark of the address, and by the canary behind the program's bytes.  A free
 * object is all zero, which is checked when it is handed out again; where what the program left in it must
 * still be there (slab_keeps_content), its canary stays and is checked instead.
 *
 * Each vCPU has two words for such a cache: objects are popped from one and pushed onto the other
 * (magazine_return_missed), and a magazine is shuffled on its way from the second to the first.  That way is
 * the quarantine.
 *
 * In hardened mode the limits that admit calls to the fast paths of malloc and free are zero, as they are
 * before the library has started: each call comes here, and what is not hardened goes on from here.  A hit is
 * one function of some sixty instructions without a frame; all else is a tail call.
 *
 * Lock-free.  An object that was popped is the caller's alone, and so is its mark.  If two threads free the
 * same object at once, the exchange of the mark lets one through; with a single thread, a load and a store
 * suffice.
 */
#ifndef CPUSLAB_MAGAZINE_HARDENED_H
#define CPUSLAB_MAGAZINE_HARDENED_H

#include <sys/single_threaded.h>

#include "check/blank.h"
#include "magazine/magazine.h"

/*
 * Slack: the bytes of an object that are not the caller's.  At least the canary; at most what a mark can
 * count.
 */
enum { HARDENED_CANARY = 8, HARDENED_SLACK_MOST = UINT16_MAX };

/* What the functions below need to know of a cache whose objects are at most HARDENED_ROW bytes. */
enum { HARDENED_ROW = SLAB_MARKED_BY_ADDRESS };
struct hardened {
	uint32_t bytes;   /* of an object, canary included; 0 where no such cache has the word */
	uint16_t word;    /* offset of the word that allocations pop from */
	uint16_t returns; /* offset of the word that frees push onto */
};

/* Indexed by the page map entry of a cache's pages, divided by 8. */
extern ARCH_INTERNAL struct hardened hardened_by_id[VCPU_AREA_BYTES / 8];
extern ARCH_INTERNAL uint64_t hardened_secret[2];

/* Before the first hardened cache is created. */
void hardened_init(void);
/* For a new cache before its first use, unless it is untouchable. */
void hardened_enter(const struct cache *cache);

/* The cache's row; `bytes` is 0 for one that has none. */
static inline const struct hardened *hardened_of(uint16_t id)
{
	_Static_assert(sizeof *hardened_by_id == 8, "a row is as far from the next as their ids are");
	return (const struct hardened *)((const char *)hardened_by_id + id);
}

/*
 * The bytes of an object that belong to a caller who asks for `size`; more than that where a mark cannot
 * count the slack.
 */
static inline size_t hardened_requested(uint32_t bytes, size_t size)
{
	return bytes - size > HARDENED_SLACK_MOST ? bytes - HARDENED_SLACK_MOST : size;
}

/* Stop the program with a report of what is wrong. */
_Noreturn void hardened_stop_alloc(const void *object);
_Noreturn void hardened_stop_free(const void *object, unsigned slack, size_t stated);
/* Frees any object of a hardened cache. */
void hardened_free_any(struct cache *cache, void *object);
/* The same; false where the address lies in no slab of such a cache. */
bool hardened_free_unusual(void *object, size_t stated);
void hardened_return_missed(void *object);

/*
 * The canary.  Its first byte is not zero, so that the terminator of a string one byte too long changes it;
 * its second byte is zero, and ends a string that is read from there.
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
 * Whether the canary is intact, and so are the object's last bytes, which a write before the start of the
 * next object hits: they are the canary's end or zero.
 */
static inline bool hardened_is_sound(const void *object, uint32_t bytes, unsigned slack)
{
	uint64_t canary = hardened_canary(object), tail = 0;

	if (slack < 2 * HARDENED_CANARY)
		tail = canary >> 8 * (slack - HARDENED_CANARY);
	return *hardened_canary_at(object, bytes - slack) == canary &&
	       *hardened_canary_at(object, bytes - HARDENED_CANARY) == tail;
}

/* Makes a checked object one of which `requested` bytes are the caller's. */
static inline __attribute__((always_inline)) void *hardened_give(uint16_t *mark, uint32_t bytes, void *object,
								 size_t requested)
{
	__atomic_store_n(mark, (uint16_t)(bytes - requested), __ATOMIC_RELAXED);
	*hardened_canary_at(object, requested) = hardened_canary(object);
	return object;
}

/* The same for an object, of HARDENED_ROW bytes at most, just taken off a word. */
static inline __attribute__((always_inline)) void *hardened_hand_out(uint32_t bytes, void *object,
								     size_t requested)
{
	uint16_t *mark = page_mark(object);

	if (__builtin_expect(__atomic_load_n(mark, __ATOMIC_RELAXED) > SLAB_FREE_MOST, 0) ||
	    __builtin_expect(!blank_is(object, bytes), 0))
		hardened_stop_alloc(object);
	return hardened_give(mark, bytes, object, requested);
}

/*
 * Allocates an object of which `requested` bytes are the caller's, at least HARDENED_CANARY fewer than it
 * has; all of them are zero.  NULL on a miss.  Aborts if the object was written to while it was free.
 */
static inline __attribute__((always_inline)) void *hardened_alloc(const struct hardened *cache,
								  size_t requested)
{
	/* In one register: an address made of two would need another, and a store to save it. */
	ARCH_HIDE(cache);
	/* Acquire: a thread that finds a row also finds what the section needs. */
	uint32_t bytes = __atomic_load_n(&cache->bytes, __ATOMIC_ACQUIRE);
	void *object = __builtin_expect(bytes != 0, 1) ? magazine_alloc(&cache->word) : NULL;

	return __builtin_expect(object != NULL, 1) ? hardened_hand_out(bytes, object, requested) : NULL;
}

/* Checks the free of an object whose mark was `slack`. */
static inline __attribute__((always_inline)) void hardened_check_free(uint32_t bytes, const void *object,
								      unsigned slack, size_t stated)
{
	if (__builtin_expect(slack < HARDENED_CANARY, 0) ||
	    __builtin_expect((uintptr_t)object % PAGE_MARK_UNIT != 0, 0) ||
	    __builtin_expect(!hardened_is_sound(object, bytes, slack), 0) ||
	    (stated != SIZE_MAX && __builtin_expect(stated != bytes - slack, 0)))
		hardened_stop_free(object, slack, stated);
}

/* The same, and zeroes the object. */
static inline __attribute__((always_inline)) void hardened_take_back(uint32_t bytes, void *object,
								     unsigned slack, size_t stated)
{
	hardened_check_free(bytes, object, slack, stated);
	blank_fill(object, bytes - slack + HARDENED_CANARY);
}

/*
 * Takes the mark of an object that is being freed: if two threads free it at once, one of them finds
 * SLAB_BACK.  A locked instruction waits for all earlier stores, among them the zeroes of the last object: on
 * some processors up to a third of an allocation and its free, which a program of one thread need not pay.
 */
static inline unsigned hardened_exchange_mark(uint16_t *mark)
{
	if (__builtin_expect(!__libc_single_threaded, 0))
		return __atomic_exchange_n(mark, SLAB_BACK, __ATOMIC_ACQ_REL);
	unsigned was = __atomic_load_n(mark, __ATOMIC_RELAXED);

	__atomic_store_n(mark, SLAB_BACK, __ATOMIC_RELAXED);
	return was;
}

/* The row of the cache that an address belongs to; NULL where that may not be one in the table. */
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
 * Frees an object that hardened_find has a row for; the caller says that it has `stated` bytes, or SIZE_MAX
 * if it does not say.  Aborts where no object that the program has starts there, where its size is another,
 * and where the bytes behind it were written to.  False when there was no room for it: then
 * hardened_return_missed takes it.
 */
static inline __attribute__((always_inline)) bool hardened_free(const struct hardened *cache, void *object,
								size_t stated)
{
	uint32_t bytes = cache->bytes;

	hardened_take_back(bytes, object, hardened_exchange_mark(page_mark(object)), stated);
	return __builtin_expect(magazine_free(&cache->returns, object), 1);
}

/* Allocates from any hardened cache, by the slow path if need be; NULL when there is no memory. */
void *hardened_alloc_any(struct cache *cache, struct request request);
/* An object without bytes, from an untouchable cache. */
void *hardened_alloc_untouchable(struct cache *cache);
/* The same without waiting; see magazine_try_alloc_missed. */
void *hardened_try_alloc(struct cache *cache, size_t requested);
/*
 * Shuffles a magazine, so that objects freed one after the other are not allocated in that order again.  Not
 * one with marks, whose objects cannot move.
 */
void hardened_shuffle(struct magazine *magazine);
/* The number of an object's bytes that are the caller's, after the checks of a free. */
size_t hardened_judge(const struct cache *cache, const void *object);
/* Changes that number. */
void hardened_resize(const struct cache *cache, void *object, size_t requested);
/* Reads that number without checks; false where no allocated object starts. */
bool hardened_bytes(const struct cache *cache, const void *object, size_t *bytes);

#endif
