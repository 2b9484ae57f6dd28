/* SPDX-License-Identifier: MIT */
/*
 * magazine/words: magazines on the words of vCPUs and in their spares.  For the magazine room's own files.
 *
 * The calling thread's vCPU: sections of arch.h take magazines off its words and put them there, without a
 * lock.  In between a magazine is in the hand of the thread, which may have migrated by then.
 *
 * Other vCPUs: plain stores empty their words, with the census lock, in an area that is closed (vcpu_drain,
 * vcpu_close) or that nobody uses.
 */
#ifndef CPUSLAB_MAGAZINE_WORDS_H
#define CPUSLAB_MAGAZINE_WORDS_H

#include "magazine/magazine.h"

/* A magazine in hand, and where its top was when it was detached. */
struct hand {
	struct magazine *magazine; /* NULL for none */
	void **top;
};

/* A misaligned pointer that was freed into a magazine is odd, too, but does not lead into metadata. */
static inline bool words_is_end_mark(const void *slot)
{
	return ((uintptr_t)slot & 1) && metadata_contains(slot);
}

/* The magazine that a taken word points into; sets its count. */
struct hand words_hand(uintptr_t word);

/*
 * Takes this vCPU's word, leaving VOID, and returns it; VOID and CLOSED come back as they are.  Reading and
 * replacing are two sections, so that the word read may be another vCPU's; but the replacement succeeds only
 * on a word that still holds the same value, and only one word ever points into a magazine.
 */
uintptr_t words_take(const struct cache *cache, uintptr_t offset);

/* *closed tells that the vCPU has no word to take from. */
static inline struct hand words_detach_from(const struct cache *cache, uintptr_t offset, bool *closed)
{
	uintptr_t word = words_take(cache, offset);

	*closed = word == vcpu_closed;
	if (word == vcpu_void || word == vcpu_closed)
		return (struct hand){NULL, NULL};
	return words_hand(word);
}

static inline struct hand words_detach(const struct cache *cache, bool *closed)
{
	return words_detach_from(cache, cache->offset, closed);
}

/* Loads a magazine into a word of this vCPU, or leaves it in the depot if the word is occupied or closed. */
static inline void words_install_at(struct cache *cache, uintptr_t offset, struct magazine *magazine)
{
	uintptr_t top = (uintptr_t)&magazine->slot[magazine->count];

	if (!arch_replace(vcpu_self, cache->map, offset, vcpu_void, top))
		depot_put(&cache->depot, magazine);
}

static inline void words_install(struct cache *cache, struct magazine *magazine)
{
	words_install_at(cache, cache->offset, magazine);
}

/*
 * Take the spare beside a word of this vCPU, NULL for none; and put a magazine there, or into the depot if
 * there is one by now.
 */
struct magazine *words_take_spare(const struct cache *cache, uintptr_t word_offset);
void words_put_spare(struct cache *cache, uintptr_t word_offset, struct magazine *magazine);

/* Whether a vCPU has anything on a word or beside it. */
static inline bool words_hold_any(const uintptr_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED) != vcpu_void ||
	       __atomic_load_n(word + VCPU_ROW, __ATOMIC_RELAXED);
}

/*
 * Hands what a cache has on a word and beside it to `put`, which moves it to the depot.  In a closed area, or
 * where nobody else uses the cache.
 */
void words_empty(struct cache *cache, uintptr_t *word,
		 void (*put)(struct depot *depot, struct magazine *magazine));

#endif
