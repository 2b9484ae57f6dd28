/* SPDX-License-Identifier: MIT */
/*
 * vcpu: which vCPU the calling thread runs on, and which area belongs to it.
 *
 * A vCPU id is the kernel's concurrency id (mm_cid), else the CPU number, else a slot owned by one thread
 * at a time.  Each id ever used has an area of pages, in groups of four rows of VCPU_ROW words:
 *
 *   words     what the fast path pops from and pushes to, one for each cache: the top of the loaded magazine,
 *             or the head of a list
 *   spares    the vCPU's spare magazine; 0 for none, and for lists
 *   misses    missed allocations, modulo 2^32, plus missed frees in units of VCPU_MISSED_FREE.  Each wrap of
 *             the former counts a free too many, and sums over vCPUs fall (cpuslab_read_counters)
 *   glimpses  the word as the last tick (magazine_tick) saw it
 *
 * The word of cache number n is at vcpu_offset(n); its entries in the other rows are one, two and three
 * rows further on.
 *
 * An area has the words of VCPU_BANK_CACHES caches, so that a word's offset fits an entry of the page map.
 * Further caches live in further banks, each with a vCPU table and areas of its own, made with its first
 * cache.  What follows is true of each bank, and banks open and close together.
 *
 * The fast path finds its area through the vCPU table.  An id that has no area yet, or whose area another
 * thread is draining, has the CLOSED area in the table: its words look empty to a pop and full to a push,
 * and slow paths recognise them.  In a real area a word without a magazine is VOID, which looks the same to
 * the fast path.  So closing an area for everyone takes one store and a fence, and costs the fast path
 * nothing.
 *
 * Called by the rooms of the two engines.  Lock: vcpu_lock, for making, closing and opening areas.
 * Lock-free: the words, by the rules of arch.h; the table, whose entries only alternate between CLOSED and
 * the one area of their id.
 *
 * vfork.  The child runs on the parent's memory, but the kernel drops its registration for restartable
 * sequences: its sections would never abort, and the id that they read could by then be another thread's.
 * The library's own vfork (vfork.c) registers the child in the parent's place while the parent is
 * suspended.
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
	VCPU_ROW_BYTES = VCPU_ROW * 8,         /* distance from a word to its spare, and so on */
	VCPU_GROUP_BYTES = 4 * VCPU_ROW_BYTES, /* 128 caches */
	VCPU_GROUPS = 16,
	VCPU_AREA_BYTES = VCPU_GROUPS * VCPU_GROUP_BYTES,
	VCPU_BANK_CACHES = VCPU_GROUPS * VCPU_ROW,
	VCPU_BANKS = 32,
	VCPU_CACHES = VCPU_BANKS * VCPU_BANK_CACHES,
};
static const uint64_t VCPU_MISSED_FREE = 1ull << 32;

extern ARCH_INTERNAL struct arch_self vcpu_self;
extern ARCH_INTERNAL const uintptr_t vcpu_void, vcpu_closed; /* the values of such words */

/* Returns the offset of a cache's word in the areas of its bank. */
static inline uint16_t vcpu_offset(unsigned cache)
{
	return (uint16_t)(cache % VCPU_BANK_CACHES / VCPU_ROW * VCPU_GROUP_BYTES + cache % VCPU_ROW * 8);
}

/* Returns the cache of the first bank whose word is at `offset`. */
static inline unsigned vcpu_cache(uint16_t offset)
{
	return offset / VCPU_GROUP_BYTES * VCPU_ROW + offset % VCPU_GROUP_BYTES / 8;
}

/* Makes the system calls that vcpu_init would need, once the options are known. */
void vcpu_prepare(void);
/*
 * Chooses the mode.  Call after page_init.  False when the system has no memory now; may be called again
 * then.
 */
bool vcpu_init(void);
enum cpuslab_vcpu_mode vcpu_mode(void);
/* Why each thread has a slot of its own, in brackets after a space; empty in other modes. */
__attribute__((pure, cold)) const char *vcpu_why_slots(void);

/* Frees the slots of threads that a fork left behind.  Cheap when there was no fork. */
void vcpu_bury_dead_slots(void);

/*
 * Takes the lowest free number for a cache of either engine, with its words open and void, or `count`
 * consecutive ones of one bank.  False when there are VCPU_CACHES caches already, or no memory.  Words must
 * be void again when their number is given back; their miss counts are then cleared, so that the next cache
 * starts at zero.
 */
bool vcpu_take_numbers(unsigned count, unsigned *first);
void vcpu_give_number(unsigned number);

/* The `map` argument of arch.h's primitives for a number that is taken. */
const void *vcpu_map(unsigned cache);

/*
 * Reads a word of this vCPU, as arch_peek.  CLOSED, too, for a thread that is hindered (arch.h): it could not
 * replace the word, and so does without, as where the vCPU is closed.
 */
static inline uintptr_t vcpu_peek(const void *map, uintptr_t offset)
{
	return arch_is_hindered() ? vcpu_closed : arch_peek(vcpu_self, map, offset);
}

/*
 * Adds to a word of this vCPU, as arch_add.  Out of line: its section's tables, of which each inlined copy
 * would have its own, lie on a page that every program touches.
 */
void vcpu_add(const void *map, uintptr_t offset, uint64_t amount);

/*
 * For a slow path that met the CLOSED area: gives the calling thread's vCPU an area if it has none.  False
 * when it cannot have one now (it is being drained, the thread is ending or hindered, or there is no
 * memory); the caller must then do without.
 */
bool vcpu_enter(void);

/*
 * Closes the areas of another (or the own) vCPU: after it returns, no thread is in a section on them, and
 * none will be until vcpu_reopen.  False when the id has no area or the kernel offers no fence, and of a slot
 * of another thread that libc has not registered.
 */
bool vcpu_close(unsigned id);
void vcpu_reopen(unsigned id);

/*
 * Calls `empty` on the words numbered `first` to before `end` that `wants` accepts, on every vCPU that can
 * be closed.  Closing disturbs whichever thread runs there and is mostly unnecessary, so a vCPU is closed
 * only where `wants` finds such a word from outside; in the closed area it is asked again from that word
 * on.  Both callbacks recognise the words that are theirs.  A few areas are closed at a time, after one
 * fence, which interrupts all CPUs of the process.
 */
void vcpu_drain(unsigned first, unsigned end, bool (*wants)(unsigned number, uintptr_t *word),
		void (*empty)(unsigned number, uintptr_t *word));

/* A cache's word in the area of an id, for looks from outside; NULL if the id has no area. */
uintptr_t *vcpu_word(unsigned id, unsigned cache);
/* Missed allocations and frees of a cache, summed over all vCPUs. */
void vcpu_misses(unsigned cache, uint64_t *allocs, uint64_t *frees);
/* All ids are below this. */
unsigned vcpu_ids(void);
/* The number of ids that have an area. */
unsigned vcpu_areas(void);

/* Fences issued so far. */
uint64_t vcpu_fences(void);

/* Names what an outside reader of this process's memory needs to find every word (see report/root.h). */
void vcpu_show(void (*show)(const char *name, uintptr_t value, size_t size));

/* In a forked child: threads of the parent are no longer counted, nor have they slots. */
void vcpu_begin_child(void);
/* In a forked child. */
bool vcpu_is_torn(void);
void vcpu_repair(void);

/*
 * Counts the calling thread, once; for a slow path without a lock, where there may be several threads.
 * When a counted thread ends and at most one is left, it calls the function set by vcpu_when_alone, after
 * its own values' destructors (pthread_key_create) have run: without a lock, and maybe in a forked child
 * that is not repaired yet.  After a fork the call may come with one more thread left, and beside others
 * that run their destructors.  It does not come at the end of a thread first counted in its last round of
 * destructors.
 */
void vcpu_count_thread(void);
void vcpu_when_alone(void (*call)(void));

/*
 * For vfork.c and clone.c.  Ends the calling thread's registration for restartable sequences, and returns
 * what vcpu_register() needs to restore it: the flags, or VCPU_UNREGISTERED where there is none.  In between
 * the thread has no id, and its sections miss.  Signals must be blocked meanwhile.
 */
enum { VCPU_UNREGISTERED = -1 };
int vcpu_unregister(void);
void vcpu_register(int flags);
/*
 * With thread slots, before a vfork: keeps others from closing the caller's slot.  Returns the word to clear
 * once the child has left the memory; NULL for none.
 */
uint32_t *vcpu_hand_slot(void);
/*
 * Takes its id from a thread whose area is not registered any more.  As an area is unregistered, the kernel
 * stores -1 for the CPU, with which all sections miss, but 0 for the concurrency id, which is another
 * thread's.
 */
void vcpu_forget_id(void);
/* Whether the calling thread's area lies at an address. */
bool vcpu_is_registered_at(const void *area);

void vcpu_lost(void);

/*
 * For the beginning of a slow path: whether the program has taken the thread's registration away by a system
 * call that the library does not see.  Then the thread goes on without an id.
 */
static inline void vcpu_check_registration(void)
{
	const struct arch_rseq *rseq =
		(const struct arch_rseq *)((const char *)__builtin_thread_pointer() + vcpu_self.rseq);

	if (__builtin_expect((int32_t)rseq->cpu_id < 0 && (int32_t)rseq->mm_cid >= 0, 0))
		vcpu_lost();
}

/*
 * Before a task is made that runs on the calling thread's pointer beside it: both do without a vCPU until the
 * task has ended.  Returns the word that the kernel must clear then; NULL, for ever, where there is none or
 * nobody is `told`.  The caller clears the word itself where no task was made.  With signals blocked.
 */
uint32_t *vcpu_share(bool told);
/* Whether such a task is left. */
bool vcpu_shares(void);
/*
 * Begins a thread of the library's own, on a thread pointer that libc does not know: it has no vCPU, and
 * takes none.
 */
void vcpu_begin_apart(void);
/* Begins a thread made by hand, whose memory at the thread pointer may be a copy of another thread's. */
void vcpu_begin_thread(void);

/*
 * vfork.c: around a call that makes a task on the calling thread's pointer and memory, and suspends the
 * caller, the registration changes hands.  vcpu_end_handing() is called by either after it.
 */
struct vcpu_handing {
	uint64_t done; /* 0; the registration's flags and 1; or the address of a word as vcpu_share's */
	uint64_t mask; /* the signal mask's bits, as the kernel has them */
};
struct vcpu_handing vcpu_before_vfork(void);
void vcpu_end_handing(struct vcpu_handing handing, bool is_child);

#endif
