/* SPDX-License-Identifier: MIT */
/*
 * One word in a slot of the thread's own.  The instructions are those of a restartable sequence, with a
 * registration that the kernel does not know: as no other thread uses the slot, nothing need restart.
 */
#ifndef CPUSLAB_BENCH_SLOT_FRONT_H
#define CPUSLAB_BENCH_SLOT_FRONT_H

#include "fronts.h"

#include <pthread.h>

enum { NO_SLOT = ARCH_VCPUS - 1 };

static __thread struct arch_rseq slot_own = {.mm_cid = NO_SLOT};
static uint8_t slot_taken[IDS_MOST];
static pthread_key_t slot_end;

static inline struct arch_self slot_self(void)
{
	const char *thread = __builtin_thread_pointer();

	return (struct arch_self){(const char *)&slot_own - thread, (const char *)&slot_own.mm_cid - thread};
}

static inline uintptr_t front_end(const struct linked_slab *slab)
{
	return (uintptr_t)slab->base | 1;
}

static inline bool front_is_end(uintptr_t list)
{
	return list & 1;
}

static inline struct linked_hand front_hand(uintptr_t list)
{
	if (list == vcpu_void || list == vcpu_closed)
		return (struct linked_hand){NULL, 0};
	return (struct linked_hand){linked_slab_at((const void *)list), list};
}

static inline void *front_pop(const struct linked_cache *cache)
{
	return arch_list_pop(slot_self(), cache->map, &cache->offset, &cache->list);
}

static inline bool front_push(const struct linked_cache *cache, void *object)
{
	return arch_list_push(slot_self(), cache->map, &cache->offset, &cache->list, object);
}

/* The slot's lists stay for the next thread that takes it. */
static inline void slot_leave(void *unused)
{
	(void)unused;
	__atomic_store_n(&slot_taken[slot_own.mm_cid], 0, __ATOMIC_RELEASE);
	slot_own.mm_cid = NO_SLOT;
}

static inline void slot_enter(void)
{
	if (slot_own.mm_cid != NO_SLOT)
		return;
	for (unsigned id = 0; id < front_ids(); id++)
		if (!__atomic_exchange_n(&slot_taken[id], 1, __ATOMIC_ACQUIRE)) {
			slot_own.mm_cid = id;
			pthread_setspecific(slot_end, &slot_own);
			return;
		}
}

static inline struct linked_hand front_take(const struct linked_cache *cache)
{
	slot_enter();
	uintptr_t list = arch_peek(slot_self(), cache->map, cache->offset);

	if (list != vcpu_closed)
		arch_replace(slot_self(), cache->map, cache->offset, list, vcpu_void);
	return front_hand(list);
}

static inline bool front_install(const struct linked_cache *cache, struct linked_hand hand)
{
	return arch_replace(slot_self(), cache->map, cache->offset, vcpu_void, hand.list);
}

static inline bool front_has(const struct linked_cache *cache, const void *object)
{
	return arch_peek(slot_self(), cache->map, cache->offset) == (uintptr_t)object;
}

static inline bool front_open(struct linked_cache *cache, uint16_t offset)
{
	static uintptr_t closed[PLACES * PLACE_BYTES / sizeof(uintptr_t)];

	if (!front_open_areas(cache, offset))
		return false;
	if (!front_areas.table[NO_SLOT] && pthread_key_create(&slot_end, slot_leave) != 0)
		return false;
	/* What threads without a slot use. */
	front_areas.table[NO_SLOT] = (uintptr_t)closed;
	*(uintptr_t *)front_place_of(cache, NO_SLOT) = vcpu_closed;
	for (unsigned id = 0; id < front_ids(); id++)
		*(uintptr_t *)front_place_of(cache, id) = vcpu_void;
	return true;
}

static inline struct linked_hand front_take_from(const struct linked_cache *cache, unsigned id)
{
	uintptr_t *word = front_place_of(cache, id), list = *word;

	*word = vcpu_void;
	return front_hand(list);
}

#endif
