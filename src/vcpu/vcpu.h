/* SPDX-License-Identifier: MIT */
/*
 * vcpu: who am I, and which area is mine.
 *
 * A vCPU id is the kernel's concurrency id (mm_cid), else the CPU number, else a slot that belongs to one
 * thread at a time.  Each id that was ever used owns an area: pages of four rows of VCPU_ROW words,
 *
 *   words: what the fast path pops from and pushes to, one for each cache: a magazine's top, or a list's head
 *
 *   spares: the spare magazine, 0 for none and for lists
 *
 *   misses: allocations that missed, modulo 2^32, and frees in units of VCPU_MISSED_FREE; each time the
 * former begin anew there is a free too many, and sums over vCPUs fall (cpuslab_read_counters)
 *
 *   glimpses: what the word was when the last tick looked
 *
 * and cache number n has its word at vcpu_offset(n), the others one, two and three rows further on.
 *
 * An area has the words of VCPU_BANK_CACHES caches, so that the offset of a word fits an entry of the page
 * map. Where there are more caches, the next bank has a vCPU table and areas of its own; it comes into being
 * with its first cache.  What follows is true of each bank, and banks open and close together.
 *
 * The fast path finds its area through the vCPU table.  Two areas are special.  An id that has no area yet,
 * or whose area is being drained by another thread, has the CLOSED area in the table: its words look empty
 * to a pop and full to a push, and a slow path recognises them.  In a real area a word without a magazine is
 * VOID, which looks the same to the fast path.  So closing an area for everyone takes one store and a fence,
 * and the fast path knows nothing of it.
 *
 * Called by the rooms of the two engines.  Lock: vcpu_lock for making, closing and opening areas.  Lock-free:
 * the words, by the rules of arch.h; the table, which only ever goes between CLOSED and the one area of its
 * id.
 *
 * vfork.  The child runs on the parent's memory, but the kernel drops its registration for restartable
 * sequences: its sections would never abort, and the id that they read could by then be another thread's.
 * The library's own vfork (vfork.c) registers the child in the parent's place while that is suspended.
 */
#ifndef CPUSLAB_VCPU_H
#define CPUSLAB_VCPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/arch.h"
#include "cpuslab/cpuslab.h"

enum {
	VCPU_ROW = 128,                        /* words in a row */
	VCPU_ROW_BYTES = VCPU_ROW * 8,         /* from a word to its spare, and so on */
	VCPU_GROUP_BYTES = 4 * VCPU_ROW_BYTES, /* 128 caches */
	VCPU_GROUPS = 16,
	VCPU_AREA_BYTES = VCPU_GROUPS * VCPU_GROUP_BYTES,
	VCPU_BANK_CACHES = VCPU_GROUPS * VCPU_ROW,
	VCPU_BANKS = 32,
	VCPU_CACHES = VCPU_BANKS * VCPU_BANK_CACHES,
};
static const uint64_t VCPU_MISSED_FREE = 1ull << 32;

extern ARCH_INTERNAL struct arch_self vcpu_self;
extern ARCH_INTERNAL const uintptr_t vcpu_void, vcpu_closed; /* what such words hold */

/* Of a cache's word in the areas of its bank. */
static inline uint16_t vcpu_offset(unsigned cache)
{
	return (uint16_t)(cache % VCPU_BANK_CACHES / VCPU_ROW * VCPU_GROUP_BYTES + cache % VCPU_ROW * 8);
}

/* The cache of the first bank whose word is at an offset. */
static inline unsigned vcpu_cache(uint16_t offset)
{
	return offset / VCPU_GROUP_BYTES * VCPU_ROW + offset % VCPU_GROUP_BYTES / 8;
}

/*
 * Chooses the mode.  After page_init.  False when the system does not give the memory now: then it may be
 * called again.
 */
bool vcpu_init(void);
enum cpuslab_vcpu_mode vcpu_mode(void);

/* Slots of threads that a fork left behind become free.  Cheap when there was no fork. */
void vcpu_bury_dead_slots(void);

/*
 * The lowest number that no cache has, for a cache of either engine, with its words open and void; or that
 * many in a row, all of one bank.  False when there are VCPU_CACHES caches, or the system has no more memory.
 * Whoever gives a number back leaves its words void; what they have missed is forgotten, so that the next
 * cache counts from nothing.
 */
bool vcpu_take_numbers(unsigned count, unsigned *first);
void vcpu_give_number(unsigned number);

/* What the primitives of arch.h call `map`, for a number that was taken. */
const void *vcpu_map(unsigned cache);

/*
 * For a slow path that met the CLOSED area: gives the calling thread's vCPU an area if it has none.  False
 * when it cannot have one now (it is being drained, or the thread ends, or there is no memory); the caller
 * must then do without.
 */
bool vcpu_enter(void);

/*
 * Takes the areas of another (or the own) vCPU out of use: after it returns, no thread is in a section on
 * them and none will be until vcpu_reopen.  False when the id has no area, or the kernel offers no fence;
 * slots in use by other threads cannot be closed.
 */
bool vcpu_close(unsigned id);
void vcpu_reopen(unsigned id);

/*
 * Empties words with numbers from `first` to before `end`, on every vCPU that can be closed: those that
 * `wants` tells, to which `empty` then does it.  A vCPU is closed only where `wants` finds such a word from
 * outside, since that disturbs whoever runs there, and there is mostly no reason to; in the closed area it is
 * asked again from there on.  Both know which words are their own.  A few areas are closed at a time, after
 * one fence, which interrupts all CPUs of the process.
 */
void vcpu_drain(unsigned first, unsigned end, bool (*wants)(unsigned number, uintptr_t *word),
		void (*empty)(unsigned number, uintptr_t *word));

/* A cache's word in the area of an id, for glances from outside; NULL if there is none. */
uintptr_t *vcpu_word(unsigned id, unsigned cache);
/* How many allocations and frees of a cache have missed, as all vCPUs together count them. */
void vcpu_misses(unsigned cache, uint64_t *allocs, uint64_t *frees);
/* Ids are below this. */
unsigned vcpu_ids(void);
/* How many of them have an area. */
unsigned vcpu_areas(void);

/* Fences issued so far. */
uint64_t vcpu_fences(void);

/* Names what a reader of this process's memory needs to find every word (see report/root.h). */
void vcpu_show(void (*show)(const char *name, uintptr_t value, size_t size));

/* In a forked child. */
void vcpu_repair(void);

/*
 * Of a slow path without a lock, where there may be several threads: counts the calling one, once.  When such
 * a thread ends and at most one is left of them, what vcpu_when_alone has set is called in it, once its own
 * values' destructors (pthread_key_create) have run: without a lock, and maybe in a forked child that nobody
 * has repaired.  After a fork it may be called with one more left, and beside others that are at their
 * destructors; not at the end of a thread that first came by in the last round of its own.
 */
void vcpu_count_thread(void);
void vcpu_when_alone(void (*call)(void));

/*
 * The calling thread's registration for restartable sequences: the area, and the length with which it was
 * made, for vfork.c; false in modes that have none.
 */
bool vcpu_registration(void **area, uint32_t *bytes);

#endif
