/* SPDX-License-Identifier: MIT */
/*
 * A front of two words that change together: the list and a transaction id, which every change advances, so
 * that a thread that was elsewhere in between notices (ABA).  PAIR_REPLACE says how.
 */
#ifndef CPUSLAB_BENCH_PAIR_FRONT_H
#define CPUSLAB_BENCH_PAIR_FRONT_H

#include "fronts.h"

struct pair_front {
	uint64_t pair[2]; /* list; transaction id */
	struct cpuslab_spinlock lock;
} __attribute__((aligned(PLACE_BYTES)));

/* Defined by the including file: stores `desired` if the pair is `expected`. */
static inline bool pair_replace(struct pair_front *front, const uint64_t expected[2],
				const uint64_t desired[2]);

/* Reads the id first: if the list has changed by the time it is read, so has the id. */
static inline struct pair_front *pair_read(const struct linked_cache *cache, uint64_t pair[2])
{
	struct pair_front *front = front_place_of(cache, arch_id(vcpu_self));

	pair[1] = __atomic_load_n(&front->pair[1], __ATOMIC_ACQUIRE);
	pair[0] = __atomic_load_n(&front->pair[0], __ATOMIC_ACQUIRE);
	return front;
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
	if (list == vcpu_void)
		return (struct linked_hand){NULL, 0};
	return (struct linked_hand){linked_slab_at((const void *)list), list};
}

/* The link may be read from an object that another thread owns by now: then the exchange fails. */
static inline void *front_pop(const struct linked_cache *cache)
{
	uint64_t old[2], new[2];
	struct pair_front *front;

	do {
		front = pair_read(cache, old);
		if (front_is_end(old[0]))
			return NULL;
		uintptr_t at = old[0] + cache->list.link;

		new[0] = __atomic_load_n((const uintptr_t *)at, __ATOMIC_RELAXED) ^ at ^ cache->list.secret;
		new[1] = old[1] + 1;
		if (__builtin_expect((new[0] ^ old[0]) > cache->list.slab_mask, 0) &&
		    __atomic_load_n(&front->pair[1], __ATOMIC_ACQUIRE) == old[1])
			return NULL;
	} while (!pair_replace(front, old, new));
	return (void *)old[0];
}

static inline bool front_push(const struct linked_cache *cache, void *object)
{
	uint64_t old[2], new[2];
	struct pair_front *front;

	do {
		front = pair_read(cache, old);
		if (!front_accepts(cache, old[0], (uintptr_t)object))
			return false;
		front_link(cache, (uintptr_t)object, old[0]);
		new[0] = (uintptr_t)object;
		new[1] = old[1] + 1;
	} while (!pair_replace(front, old, new));
	return true;
}

static inline struct linked_hand front_take(const struct linked_cache *cache)
{
	uint64_t old[2], new[2];
	struct pair_front *front;

	do {
		front = pair_read(cache, old);
		new[0] = vcpu_void;
		new[1] = old[1] + 1;
	} while (!pair_replace(front, old, new));
	return front_hand(old[0]);
}

static inline bool front_install(const struct linked_cache *cache, struct linked_hand hand)
{
	uint64_t old[2], new[2];
	struct pair_front *front;

	do {
		front = pair_read(cache, old);
		if (old[0] != vcpu_void)
			return false;
		new[0] = hand.list;
		new[1] = old[1] + 1;
	} while (!pair_replace(front, old, new));
	return true;
}

static inline bool front_has(const struct linked_cache *cache, const void *object)
{
	uint64_t pair[2];

	pair_read(cache, pair);
	return pair[0] == (uintptr_t)object;
}

static inline bool front_open(struct linked_cache *cache, uint16_t offset)
{
	if (!front_open_areas(cache, offset))
		return false;
	for (unsigned id = 0; id < front_ids(); id++)
		*(struct pair_front *)front_place_of(cache, id) = (struct pair_front){.pair = {vcpu_void, 0}};
	return true;
}

static inline struct linked_hand front_take_from(const struct linked_cache *cache, unsigned id)
{
	struct pair_front *front = front_place_of(cache, id);
	uintptr_t list = front->pair[0];

	front->pair[0] = vcpu_void;
	return front_hand(list);
}

#endif
