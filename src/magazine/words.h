/* SPDX-License-Identifier: MIT */
/*
 * magazine/words: magazines on the words of vCPUs and in their spares.  For the magazine room's own files.
 *
 * The calling thread's vCPU: what is on its words is taken off and put there by sections of arch.h, without a
 * lock.  In between a magazine is in the thread's hand, who may find itself on another vCPU by then.
 *
 * Other vCPUs: their words are emptied by plain stores, in an area that is closed (vcpu_drain, vcpu_close) or
 * that nobody uses, with the census lock.
 */
#ifndef CPUSLAB_MAGAZINE_WORDS_H
#define CPUSLAB_MAGAZINE_WORDS_H

#include "magazine/magazine.h"

/* A magazine that is in hand: where its top was when it was detached. */
struct hand {
	struct magazine *magazine; /* NULL: there was none */
	void **top;
};

/* A misaligned pointer that was freed into a magazine is odd as well, but no address of metadata. */
static inline bool words_is_end_mark(const void *slot)
{
	return ((uintptr_t)slot & 1) && metadata_contains(slot);
}

/* The magazine that a word which was taken off points into; its count becomes true. */
struct hand words_hand(uintptr_t word);

/*
 * Takes what is on this vCPU's word off it; VOID and CLOSED come back as they are.  Reading the word and
 * replacing it are two sections: what was read may belong to another vCPU, but the replacement succeeds only
 * on a word that still says the same, and only one word ever points into a magazine.
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

/* Loads a magazine into a word of this vCPU, or leaves it in the depot where the word is taken or closed. */
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
 * The magazine (or none: NULL) beside a word of this vCPU, and one to lie there, or in the depot where there
 * is one by now.
 */
struct magazine *words_take_spare(const struct cache *cache, uintptr_t word_offset);
void words_put_spare(struct cache *cache, uintptr_t word_offset, struct magazine *magazine);

/* Of any vCPU: whether anything is on a word or beside it. */
static inline bool words_hold_any(const uintptr_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED) != vcpu_void ||
	       __atomic_load_n(word + VCPU_ROW, __ATOMIC_RELAXED);
}

/* Moves what a cache has in a closed area, or where nobody else uses it, to its depot. */
void words_empty(struct cache *cache, uintptr_t *word,
		 void (*put)(struct depot *depot, struct magazine *magazine));

#endif
