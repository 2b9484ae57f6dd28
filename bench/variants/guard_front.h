/* SPDX-License-Identifier: MIT */
/*
 * Before seed 001: a list that ends in 0, and so needs a field beside it to name its slab.  No single store
 * changes both, so a guard must keep other threads off the vCPU in the meantime: the kernel disables
 * preemption; here a restartable sequence takes a word of the vCPU and a store gives it back, the cheapest
 * way a program has.
 *
 * A free guard holds its area's address, so that whoever takes it knows on which vCPU that was.
 */
#ifndef CPUSLAB_BENCH_GUARD_FRONT_H
#define CPUSLAB_BENCH_GUARD_FRONT_H

#include <sched.h>

#include "fronts.h"

enum { GUARD_OFFSET = (PLACES - 1) * PLACE_BYTES };

struct guard_front {
	uintptr_t list;
	struct linked_slab *slab;
};

static inline uintptr_t guard_enter(void)
{
	for (unsigned tries = 1;; tries++) {
		uintptr_t area = arch_peek(vcpu_self, front_map(), GUARD_OFFSET);

		if (!(area & 1) && arch_replace(vcpu_self, front_map(), GUARD_OFFSET, area, area | 1))
			return area;
		/* Its holder was preempted, or this thread has migrated to another vCPU. */
		if (tries % 16 == 0)
			sched_yield();
	}
}

static inline void guard_leave(uintptr_t area)
{
	__atomic_store_n((uintptr_t *)(area + GUARD_OFFSET), area, __ATOMIC_RELEASE);
}

static inline struct guard_front *guard_front(const struct linked_cache *cache, uintptr_t area)
{
	return (struct guard_front *)(area + cache->offset);
}

static inline uintptr_t front_end(const struct linked_slab *slab)
{
	(void)slab;
	return 0;
}

static inline bool front_is_end(uintptr_t list)
{
	return !list;
}

static inline void *front_pop(const struct linked_cache *cache)
{
	uintptr_t area = guard_enter();
	struct guard_front *front = guard_front(cache, area);
	uintptr_t object = front->list;

	if (object) {
		uintptr_t at = object + cache->list.link,
			  next = *(const uintptr_t *)at ^ at ^ cache->list.secret;

		if (__builtin_expect(next && (next ^ object) > cache->list.slab_mask, 0))
			object = 0;
		else
			front->list = next;
	}
	guard_leave(area);
	return (void *)object;
}

static inline bool front_push(const struct linked_cache *cache, void *pointer)
{
	uintptr_t object = (uintptr_t)pointer, area = guard_enter();
	struct guard_front *front = guard_front(cache, area);
	bool accepted = page_is_heap(pointer) && linked_slab_at(pointer) == front->slab && front->slab &&
			object != front->list &&
			(object & cache->list.slab_mask) * cache->list.reciprocal < cache->list.reciprocal;

	if (accepted) {
		front_link(cache, object, front->list);
		front->list = object;
	}
	guard_leave(area);
	return accepted;
}

static inline struct linked_hand front_take(const struct linked_cache *cache)
{
	uintptr_t area = guard_enter();
	struct guard_front *front = guard_front(cache, area);
	struct linked_hand hand = {front->slab, front->list};

	*front = (struct guard_front){0, NULL};
	guard_leave(area);
	return hand;
}

static inline bool front_install(const struct linked_cache *cache, struct linked_hand hand)
{
	uintptr_t area = guard_enter();
	struct guard_front *front = guard_front(cache, area);
	bool vacant = !front->slab;

	if (vacant)
		*front = (struct guard_front){hand.list, hand.slab};
	guard_leave(area);
	return vacant;
}

static inline bool front_has(const struct linked_cache *cache, const void *object)
{
	uintptr_t area = guard_enter();
	bool has = guard_front(cache, area)->list == (uintptr_t)object;

	guard_leave(area);
	return has;
}

static inline bool front_open(struct linked_cache *cache, uint16_t offset)
{
	/* The last place is reserved for the guards. */
	if (offset == GUARD_OFFSET || !front_open_areas(cache, offset))
		return false;
	for (unsigned id = 0; id < front_ids(); id++) {
		uintptr_t area = front_areas.table[id], none = 0;

		*(struct guard_front *)front_place_of(cache, id) = (struct guard_front){0, NULL};
		__atomic_compare_exchange_n((uintptr_t *)(area + GUARD_OFFSET), &none, area, false,
					    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	}
	return true;
}

static inline struct linked_hand front_take_from(const struct linked_cache *cache, unsigned id)
{
	struct guard_front *front = front_place_of(cache, id);
	struct linked_hand hand = {front->slab, front->list};

	*front = (struct guard_front){0, NULL};
	return hand;
}

#endif
