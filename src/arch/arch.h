/* SPDX-License-Identifier: MIT */
/*
 * arch: what the processor offers, as a handful of named primitives.  Nothing outside this folder contains
 * asm, and nothing inside it knows what the primitives are used for.
 *
 * The word.  Each (vCPU, cache) owns one 64-bit word in its vCPU's area: the address of the top-most filled
 * slot of the magazine, an array of objects, that is loaded there.  The primitives change a word with ONE
 * store, which takes place only if the thread was not preempted, migrated or interrupted by a signal since
 * it read its vCPU id: otherwise the kernel sends it back to the start (restartable sequences, rseq(2)).
 * So a word belongs to whichever thread runs on that vCPU, without a lock, and is consistent at every
 * instant, also for fork.
 *
 *   slot[-1]  slot[0]=NULL  slot[1] ... slot[capacity]  slot[capacity+1]=END (bit 0 set)
 *                                  ^ word
 *
 *   pop   object = *word; miss if NULL; word -= 8
 *   push  miss if *word == object (double free); miss if word[1] has bit 0 set (full);
 *         word[1] = object; word += 8
 *
 * In the linked engine (SLUB's) the word is the head of a free list of one slab: the address of the first
 * free object, which holds the link to the next, down to the END, the slab's own address with bit 0 set.
 * So the word alone identifies its slab, even when the list is empty.  Links are stored XOR a secret XOR
 * the address that they are stored at.
 *
 *   list_pop   object = *word; miss if bit 0 set; word = link of object
 *   list_push  miss if the word's slab is not the object's, if object is the word (double free), or if it
 *              does not start where an object can; link of object = word; word = object
 *
 * The commit is the last instruction of each section, and everything before it can be undone by restarting:
 * the slot above the word, which push writes before its commit, belongs to nobody, and the link that
 * list_push writes lies in the caller's own object.  list_pop may read a stale link only if another thread
 * has popped the object meanwhile, and then it never reaches its commit.
 */
#ifndef CPUSLAB_ARCH_H
#define CPUSLAB_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * How a section finds its vCPU's area: `map` points at the page map, and the table of areas, indexed by
 * vCPU id, ends where the map begins, so that the fast path needs one base register for both.
 */
/*
 * More ids than a kernel has; the odd number makes the table begin 1936 bytes into a page.  A load is held
 * up by an earlier store at the same offset of another page (4 KiB aliasing): with the table at the start
 * of a page, where the first object of a slab has its link, a pair of calls on the first vCPUs took two and
 * a half times as long.
 */
enum { ARCH_VCPUS = 8192 + 270, ARCH_TABLE_BYTES = ARCH_VCPUS * 8 };
/*
 * Ids are signed: the kernel leaves a negative one, -1 or -2, where an area is not registered (any more). The
 * table has entries for these too, before its start; they lead to no vCPU's area.
 */
enum { ARCH_NO_VCPUS = 2 };
_Static_assert(-ARCH_TABLE_BYTES % 4096 + 4096 == 1936, "the table's place in its page");

/*
 * The thread's registration with the kernel, in the layout of struct rseq (linux/rseq.h).  The library's
 * own copy is used where libc registered none: registered with the kernel, or, for thread slots, without
 * it.
 */
struct arch_rseq {
	uint32_t cpu_id_start;
	uint32_t cpu_id;
	uint64_t rseq_cs;
	uint32_t flags;
	uint32_t node_id;
	uint32_t mm_cid;
	uint32_t padding;
} __attribute__((aligned(32)));

/*
 * How the free objects of a cache are linked.  A slab's size is a power of two, and slabs are aligned to
 * it.  An offset is a multiple of the stride iff offset * reciprocal < reciprocal.
 */
struct arch_list {
	uint64_t link;       /* from an object's start to its link */
	uint64_t secret;     /* XORed into every stored link */
	uint64_t slab_mask;  /* bytes of a slab, less one */
	uint64_t reciprocal; /* 2^64 / stride, rounded up */
};

enum {
	ARCH_RSEQ_SIGNATURE = 0x53053053,
	ARCH_RSEQ_SLICES_ON = 1 << 5,       /* in `flags`, since Linux 7.0: time slices are extended */
	ARCH_RSEQ_REGISTER_SLICES = 1 << 1, /* the flag of a registration that asks for that */
};

/* Offsets from the thread pointer: of the struct rseq in use, and of the 32-bit vCPU id. */
struct arch_self {
	intptr_t rseq;
	intptr_t id;
};

/*
 * For data shared by several files but by no other library: without it the compiler would load the address
 * from the GOT before each use, since another library might define the symbol too.
 */
#define ARCH_INTERNAL __attribute__((visibility("hidden")))

/*
 * For tables of which most programs touch little: they lie behind all other variables, which thus share few
 * pages (cmake/layout.ld).
 */
#define ARCH_SPARSE __attribute__((section(".bss.sparse")))

/*
 * For functions of a few instructions: their alignment decides how many lines of the decoded-instruction
 * cache they take, which is worth a cycle or two per pair of calls.
 */
#define ARCH_FAST_PATH __attribute__((aligned(64)))

/* Sections aborted so far, in all threads. */
extern ARCH_INTERNAL uint64_t arch_section_aborts;

/*
 * Sections of the calling thread aborted since arch_add last succeeded, which slow paths begin with.  A
 * thread that is single-stepped, as debuggers do for software watchpoints, is aborted at the first
 * instruction of every section for ever.  So from ARCH_ABORTS_MOST aborts on the thread is hindered: the next
 * abort ends its section as a miss instead of restarting it, and a slow path must do without the vCPU's
 * words, as it does where they are closed.  Words are neither read nor written by a section that ends so,
 * hence nobody else needs to know.  A thread that only happened to be preempted that often takes one slow
 * path too many, whose arch_add then sets the count back.
 *
 * The number is a compromise without a sharp optimum: each abort of a stepped thread costs it five steps,
 * once; each preemption of any other thread adds 1/8 of a slow path of some 60 instructions.
 */
enum { ARCH_ABORTS_MOST = 8 };
extern ARCH_INTERNAL __thread uint32_t arch_aborts_in_row;

/*
 * Hides a variable's value from the compiler from here on, so that it does not transform the surrounding
 * loop.
 */
#define ARCH_HIDE(variable) asm("" : "+r"(variable))

/* The smallest size that arch_clear_wide and arch_is_clear_wide accept. */
enum { ARCH_WIDE_BYTES = 64 };

/* Eight 16-bit numbers, the width of an SSE2 register. */
enum { ARCH_LANES = 8 };
typedef uint16_t arch_lanes __attribute__((vector_size(ARCH_LANES * sizeof(uint16_t))));
typedef uint64_t arch_lanes_bits __attribute__((vector_size(ARCH_LANES * sizeof(uint16_t))));

/* Whether sections of the calling thread do not end.  A signal handler's slow path may change the answer. */
static inline bool arch_is_hindered(void)
{
	return *(const volatile uint32_t *)&arch_aborts_in_row >= ARCH_ABORTS_MOST;
}

/* CPUSLAB_GENERIC selects the portable code on any architecture, for tests. */
#if defined(__x86_64__) && !defined(CPUSLAB_GENERIC)
#include "arch/x86_64.h"
#else
#include "arch/generic.h"
#endif

#endif
