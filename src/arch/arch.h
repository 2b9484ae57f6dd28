/* SPDX-License-Identifier: MIT */
/*
 * arch: what the processor offers, as a handful of named primitives.  Nothing outside this folder
 * contains asm, and nothing inside it knows what the primitives are used for.
 *
 * The front word.  Each (vCPU, cache) owns one 64-bit word in its vCPU's area: the address of the top-most
 * filled slot of the magazine that is loaded there.  The primitives change such a word with ONE store,
 * and only if the thread was not preempted, migrated or interrupted by a signal since it read its vCPU id:
 * otherwise the kernel sends it back to the start (restartable sequences, rseq(2)).  So a word belongs to
 * whoever runs on that vCPU, without a lock, and is consistent at every instant, also to fork.
 *
 *   slot[-1]  slot[0]=NULL  slot[1] ... slot[capacity]  slot[capacity+1]=END (bit 0 set)
 *                                  ^ word
 *
 *   pop   object = *word; miss if NULL; word -= 8
 *   push  miss if *word == object (freed twice); miss if word[1] has bit 0 set (full);
 *         word[1] = object; word += 8
 *
 * In the other engine (SLUB's) the word is a free list itself: the address of the first free object of one
 * slab, which holds the next one's, and so on to the END, the slab's own address with bit 0 set.  So the word
 * alone tells which slab it is about, also when nothing is left.  Links are stored XOR a secret and the
 * address that they are stored at.
 *
 *   list_pop   object = *word; miss if bit 0 set; word = link of object
 *   list_push  miss if the word's slab is not the object's, if object is the word (freed twice), or if it is
 *              not where an object starts; link of object = word; word = object
 *
 * Commit is the last instruction of each section.  Everything before it may be undone by simply starting
 * again: the slot above the word, which push writes before its commit, belongs to nobody; and the link that
 * list_push writes lies in the caller's own object.  list_pop reads a link that is no link any more only if
 * another thread has popped the object meanwhile, and then it never comes to its commit.
 */
#ifndef CPUSLAB_ARCH_H
#define CPUSLAB_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * How the sections find their vCPU's area: `map` points at the page map; the table of areas, indexed by
 * vCPU id, ends where the map begins, so that the fast path needs one base register for both.
 */
/*
 * More ids than a kernel has, and such a number that the table begins 1936 bytes into a page.  A load that
 * follows a store to the same place of another page waits for it: at a page's start, where the first object
 * of a slab has its link, the entries of the first vCPUs made a pair of calls take two and a half times as
 * long.
 */
enum { ARCH_VCPUS = 8192 + 270, ARCH_TABLE_BYTES = ARCH_VCPUS * 8 };
_Static_assert(-ARCH_TABLE_BYTES % 4096 + 4096 == 1936, "the table's place in its page");

/*
 * The thread's registration with the kernel, in the layout of struct rseq (linux/rseq.h).  The library's
 * own copy stands in where libc registered none: with the kernel behind it, or (thread slots) without.
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

/* How the free objects of a cache are linked.  Slabs are as large as they are aligned: a power of two. */
struct arch_list {
	uint64_t link;       /* from an object's start to where its link is stored */
	uint64_t secret;     /* that every link is stored with */
	uint64_t slab_mask;  /* bytes of a slab, less one */
	uint64_t reciprocal; /* 2^64 / stride, rounded up: offset * reciprocal < reciprocal if stride divides
				it */
};

enum { ARCH_RSEQ_SIGNATURE = 0x53053053 };

/* Distances from the thread pointer: to the struct rseq in force, and to the 32-bit vCPU id. */
struct arch_self {
	intptr_t rseq;
	intptr_t id;
};

/*
 * Data that several files share and no other library may see: without this the compiler would fetch its
 * address from a table before each use, because another library might define it too.
 */
#define ARCH_INTERNAL __attribute__((visibility("hidden")))

/*
 * For tables of which most programs touch little: they lie behind all other variables, which are neighbours
 * then, on few pages (cmake/layout.ld).
 */
#define ARCH_SPARSE __attribute__((section(".bss.sparse")))

/*
 * For functions of a few instructions: where such a one starts decides how many lines of decoded instructions
 * it takes, which makes a cycle or two in a pair of calls.
 */
#define ARCH_FAST_PATH __attribute__((aligned(64)))

/* Sections that were sent to their abort handler, all threads together. */
extern ARCH_INTERNAL uint64_t arch_section_aborts;

/*
 * From here on the compiler does not know what a variable holds, and makes no other code of the loop
 * around.
 */
#define ARCH_HIDE(variable) asm("" : "+r"(variable))

/* The least that arch_clear_wide and arch_is_clear_wide take. */
enum { ARCH_WIDE_BYTES = 64 };

/* Eight numbers of 16 bits, which SSE2 works on at once. */
enum { ARCH_LANES = 8 };
typedef uint16_t arch_lanes __attribute__((vector_size(ARCH_LANES * sizeof(uint16_t))));
typedef uint64_t arch_lanes_bits __attribute__((vector_size(ARCH_LANES * sizeof(uint16_t))));

/* CPUSLAB_GENERIC builds the portable code where there is a better one, for tests. */
#if defined(__x86_64__) && !defined(CPUSLAB_GENERIC)
#include "arch/x86_64.h"
#else
#include "arch/generic.h"
#endif

#endif
