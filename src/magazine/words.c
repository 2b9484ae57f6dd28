/* SPDX-License-Identifier: MIT */
#include "magazine/words.h"

static struct magazine *magazine_at(void **top)
{
	/* The usual case first: an empty magazine's top is slot[0], just above the header's own end mark. */
	uintptr_t header = (uintptr_t)top - offsetof(struct magazine, slot);

	if ((uintptr_t)top[-1] == (header | 1))
		return (struct magazine *)header;
	while (!words_is_end_mark(*top))
		top++;
	return (struct magazine *)((uintptr_t)*top & ~(uintptr_t)1);
}

struct hand words_hand(uintptr_t word)
{
	void **top = (void **)word;
	struct magazine *magazine = magazine_at(top);

	magazine->count = (uint16_t)(top - &magazine->slot[0]);
	return (struct hand){magazine, top};
}

uintptr_t words_take(const struct cache *cache, uintptr_t offset)
{
	for (;;) {
		uintptr_t word = vcpu_peek(cache->map, offset);

		if (word == vcpu_void || word == vcpu_closed ||
		    arch_replace(vcpu_self, cache->map, offset, word, vcpu_void))
			return word;
	}
}

/* A spare's word holds the magazine's address, 0 for none; the magazine's count is valid. */
struct magazine *words_take_spare(const struct cache *cache, uintptr_t word_offset)
{
	const uintptr_t offset = word_offset + VCPU_ROW_BYTES;

	for (;;) {
		uintptr_t word = vcpu_peek(cache->map, offset);

		if (!word || word == vcpu_closed)
			return NULL;
		if (arch_replace(vcpu_self, cache->map, offset, word, 0))
			return (struct magazine *)word;
	}
}

void words_put_spare(struct cache *cache, uintptr_t word_offset, struct magazine *magazine)
{
	if (magazine &&
	    !arch_replace(vcpu_self, cache->map, word_offset + VCPU_ROW_BYTES, 0, (uintptr_t)magazine))
		depot_put(&cache->depot, magazine);
}

void words_empty(struct cache *cache, uintptr_t *word,
		 void (*put)(struct depot *depot, struct magazine *magazine))
{
	uintptr_t *spare = word + VCPU_ROW;

	if (*word != vcpu_void && *word != vcpu_closed) {
		struct hand hand = words_hand(*word);

		/* The word first: a fork in between loses the magazine rather than having it twice. */
		__atomic_store_n(word, vcpu_void, __ATOMIC_RELEASE);
		put(&cache->depot, hand.magazine);
	}
	if (*spare && *spare != vcpu_closed) {
		struct magazine *magazine = (struct magazine *)*spare;

		__atomic_store_n(spare, 0, __ATOMIC_RELEASE);
		put(&cache->depot, magazine);
	}
}
