/* SPDX-License-Identifier: MIT */
/* The library's own front, as a variant, so that the calling side is the same for all. */
#define VARIANT_NAME rseq
#include "names.h"

#include "linked/front.h"

static inline bool front_push(const struct linked_cache *cache, void *object)
{
	return linked_free(cache, object);
}

static inline unsigned front_ids(void)
{
	return vcpu_ids();
}

/* Returns the offset of a cache number's word; the first bank has more than will ever be needed here. */
static inline uint16_t front_place(void)
{
	unsigned number;

	return vcpu_take_numbers(1, &number) && number < VCPU_BANK_CACHES ? vcpu_offset(number) : 0;
}

static inline void front_leave_place(uint16_t offset)
{
	if (offset)
		vcpu_give_number(vcpu_cache(offset));
}

static inline bool front_open(struct linked_cache *cache, uint16_t offset)
{
	cache->number = vcpu_cache(offset);
	cache->map = vcpu_map(cache->number);
	return offset;
}

static inline struct linked_hand front_take_from(const struct linked_cache *cache, unsigned id)
{
	uintptr_t *word = vcpu_word(id, cache->number);

	return word ? front_hand(__atomic_exchange_n(word, vcpu_void, __ATOMIC_RELAXED))
		    : (struct linked_hand){NULL, 0};
}

#define VARIANT_TITLE "rseq"
#include "variant.h"
