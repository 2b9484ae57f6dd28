/* SPDX-License-Identifier: MIT */
/* linked/slab: slabs and lists, as the room's own files see them.  For the interface see linked.h. */
#ifndef CPUSLAB_LINKED_SLAB_H
#define CPUSLAB_LINKED_SLAB_H

#include "linked/linked.h"
#include "page/page.h"

/* What changes in one step: 16 bytes, aligned to 16. */
union linked_state {
	struct {
		uintptr_t list;    /* the free objects that are on no word and in no hand */
		uint16_t in_use;   /* objects below `threaded` that are not in that list */
		uint16_t threaded; /* objects from here on have never been linked, and count nowhere */
		uint16_t frozen;   /* the slab is on a word, or in a hand */
		uint16_t watched;  /* see is_watched; changed by who has the slab in hand, or the lock */
	};
	uint64_t pair[2];
} __attribute__((aligned(16)));

struct linked_slab {
	union linked_state state;
	char *base;
	struct linked_cache *cache;          /* NULL while a constructor makes its objects */
	struct linked_slab *next, *previous; /* in the cache's list, with its lock */
};

/* A frozen slab that no word has, and the list that came off its word.  No slab: nothing. */
struct linked_hand {
	struct linked_slab *slab;
	uintptr_t list;
};

static inline struct linked_slab *linked_slab_at(const void *address)
{
	uint32_t reference = __atomic_load_n(&page_front.slab_of[page_of(address)], __ATOMIC_ACQUIRE);

	return reference ? metadata_block(reference) : NULL;
}

/* Whether an object starts at an address of this slab. */
static inline bool linked_starts_object(const struct linked_cache *cache, const struct linked_slab *slab,
					uintptr_t address)
{
	uint64_t offset = address - (uintptr_t)slab->base;

	return offset <= cache->list.slab_mask && offset * cache->list.reciprocal < cache->list.reciprocal &&
	       offset < (uint64_t)slab->state.threaded * cache->stride;
}

/* All but the place among caches, for a word at `offset`; false when no slab could hold such an object. */
bool linked_init(struct linked_cache *cache, const struct linked_traits *traits, uint16_t offset);
/* What is in hand goes back to its slab, and the slab where it belongs. */
void linked_put_back(struct linked_cache *cache, struct linked_hand hand);
/* Gives empty slabs back to the page room. */
void linked_release_empty(struct linked_cache *cache);
/* With the lock, puts a slab into the list of partial ones. */
void linked_enlist(struct linked_cache *cache, struct linked_slab *slab);
/* The object after one in a list, or what the program has made of its link. */
uintptr_t linked_next(const struct linked_cache *cache, uintptr_t object);
/*
 * The same of a list that nobody else is at: stops the process where that is neither an object of the slab
 * nor the list's end.  `locked`: with the cache's lock, which is given up then.
 */
uintptr_t linked_checked_next(struct linked_cache *cache, const struct linked_slab *slab, uintptr_t object,
			      bool locked);

#endif
