/* SPDX-License-Identifier: MIT */
/*
 * linked/front: what a vCPU keeps of a cache: one word.  Everything else of the engine knows the front only
 * through these functions, which `cpuslab bench engines` replaces by others to compare them.
 */
#ifndef CPUSLAB_LINKED_FRONT_H
#define CPUSLAB_LINKED_FRONT_H

#include "linked/slab.h"

/* The end of every list of a slab: an odd address in it, so that list and slab are one number. */
static inline uintptr_t front_end(const struct linked_slab *slab)
{
	return (uintptr_t)slab->base | 1;
}

static inline bool front_is_end(uintptr_t list)
{
	return list & 1;
}

static inline struct linked_hand front_hand(uintptr_t word)
{
	if (word == vcpu_void || word == vcpu_closed)
		return (struct linked_hand){NULL, 0};
	return (struct linked_hand){linked_slab_at((const void *)word), word};
}

static inline void *front_pop(const struct linked_cache *cache)
{
	return linked_alloc(cache);
}

/*
 * Takes what is on this vCPU's word off it.  Reading the word and replacing it are two sections: what was
 * read may belong to another vCPU, but the replacement succeeds only on a word that still says the same, and
 * a list is all in its word: whichever vCPU had it, now it is in hand.
 */
static inline struct linked_hand front_take(const struct linked_cache *cache)
{
	for (;;) {
		uintptr_t word = arch_peek(vcpu_self, cache->map, cache->offset);

		if (word == vcpu_closed && vcpu_enter())
			continue;
		if (word == vcpu_void || word == vcpu_closed ||
		    arch_replace(vcpu_self, cache->map, cache->offset, word, vcpu_void))
			return front_hand(word);
	}
}

/* Puts what is in hand onto this vCPU's word; false when that has something, or is closed. */
static inline bool front_install(const struct linked_cache *cache, struct linked_hand hand)
{
	return arch_replace(vcpu_self, cache->map, cache->offset, vcpu_void, hand.list);
}

/* Whether the object that is being freed is the first of this vCPU's list. */
static inline bool front_has(const struct linked_cache *cache, const void *object)
{
	return arch_peek(vcpu_self, cache->map, cache->offset) == (uintptr_t)object;
}

static inline void front_count(const struct linked_cache *cache, uint64_t misses)
{
	arch_add(vcpu_self, cache->map, cache->offset + 2 * VCPU_ROW_BYTES, misses);
}

#endif
