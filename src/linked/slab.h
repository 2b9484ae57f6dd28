/* SPDX-License-Identifier: MIT */
/* linked/slab: slabs and lists, for this room's files alone.  For the interface see linked.h. */
#ifndef CPUSLAB_LINKED_SLAB_H
#define CPUSLAB_LINKED_SLAB_H

#include "linked/linked.h"
#include "page/page.h"

/* A slab's state: replaced in one step of 16 bytes, and aligned to 16. */
union linked_state {
	struct {
		uintptr_t list;    /* the slab's own list: free objects on no word and in no hand */
		uint16_t in_use;   /* objects below `threaded` that are not in that list */
		uint16_t threaded; /* objects from here on were never linked, and count nowhere */
		uint16_t frozen;   /* the slab is on a word, or in a hand */
		uint16_t watched;  /* see is_watched; changed by the slab's hand, or with the lock */
	};
	uint64_t pair[2];
} __attribute__((aligned(16)));

struct linked_slab {
	union linked_state state;
	char *base;
	struct linked_cache *cache;          /* NULL while a constructor runs over its objects */
	struct linked_slab *next, *previous; /* in the cache's list; with its lock */
};

/* A frozen slab that is on no word, and the list that came off its word.  Slab NULL: empty hand. */
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

/* Initialises all but the cache's number, for a word at `offset`; false when no slab could hold an object. */
bool linked_init(struct linked_cache *cache, const struct linked_traits *traits, uint16_t offset);
/* Returns the list in hand to its slab, and the slab to the cache's list or the page room. */
void linked_put_back(struct linked_cache *cache, struct linked_hand hand);
/* Gives empty slabs back to the page room. */
void linked_release_empty(struct linked_cache *cache);
/* Appends a slab to the list of partial ones.  With the lock. */
void linked_enlist(struct linked_cache *cache, struct linked_slab *slab);
/* Returns the object after `object` in a list, or whatever the program has made of the link. */
uintptr_t linked_next(const struct linked_cache *cache, uintptr_t object);
/*
 * The same for a list that no other thread uses: aborts if the link is neither an object of the slab nor the
 * list's end.  `locked`: the caller has the cache's lock, which is released first.
 */
uintptr_t linked_checked_next(struct linked_cache *cache, const struct linked_slab *slab, uintptr_t object,
			      bool locked);

#endif
