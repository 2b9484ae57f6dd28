/* SPDX-License-Identifier: MIT */
/*
 * linked/front: what a vCPU keeps of a cache, one word.  The rest of the engine uses it only through these
 * functions, which `cpuslab bench engines` replaces to compare others.
 */
#ifndef CPUSLAB_LINKED_FRONT_H
#define CPUSLAB_LINKED_FRONT_H

#include "linked/slab.h"

/* What ends each list of a slab: an odd address in the slab, so that one number is both list and slab. */
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

static inline void front_count(const struct linked_cache *cache, uint64_t misses)
{
	vcpu_check_registration();
	vcpu_add(cache->map, cache->offset + 2 * VCPU_ROW_BYTES, misses);
}

/*
 * Takes the list off this vCPU's word.  Reading the word and replacing it are two critical sections, and the
 * thread may migrate in between.  But the replacement succeeds only on a word that still has the value read,
 * and the value is the whole list: so whichever vCPU's word it was, the list is now in hand.
 */
static inline struct linked_hand front_take(const struct linked_cache *cache)
{
	/* Calls for several objects count no misses: here they notice when a hindered thread no longer is. */
	if (arch_is_hindered())
		front_count(cache, 0);
	for (;;) {
		uintptr_t word = vcpu_peek(cache->map, cache->offset);

		if (word == vcpu_closed && vcpu_enter())
			continue;
		if (word == vcpu_void || word == vcpu_closed ||
		    arch_replace(vcpu_self, cache->map, cache->offset, word, vcpu_void))
			return front_hand(word);
	}
}

/* Puts the hand onto this vCPU's word; false when that is not void, or closed. */
static inline bool front_install(const struct linked_cache *cache, struct linked_hand hand)
{
	return arch_replace(vcpu_self, cache->map, cache->offset, vcpu_void, hand.list);
}

/* Whether the object being freed is the first of this vCPU's list. */
static inline bool front_has(const struct linked_cache *cache, const void *object)
{
	return arch_peek(vcpu_self, cache->map, cache->offset) == (uintptr_t)object;
}

#endif
