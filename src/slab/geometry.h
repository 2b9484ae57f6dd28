/* SPDX-License-Identifier: MIT */
/*
 * slab/geometry: how many objects a slab has, how large it is, and where its index lies: three rules, as pure
 * functions of sizes.
 *
 *   geometry_slab   the kernel's SLAB allocator: an index of the free objects at the slab's start or in
 *                   memory of its own, slabs of 2^order pages, colours from what is left over
 *
 *   geometry_slub   the kernel's SLUB allocator: nothing but objects in a slab
 *
 *   geometry_runs   this library: slabs of any number of pages, the index always in metadata
 *
 * The two kernel rules are here for comparison, and to be right about what the kernel does: the tests hold
 * them against published figures and against the running kernel.
 *
 * Depends on nothing, changes nothing, allocates nothing: callable from anywhere.  Sizes in bytes.
 */
#ifndef CPUSLAB_GEOMETRY_H
#define CPUSLAB_GEOMETRY_H

#include <stdbool.h>
#include <stdint.h>

struct geometry {
	uint32_t bytes;       /* of a slab; 0 when no slab can hold an object */
	uint32_t objects;     /* in a slab */
	uint32_t index_bytes; /* of one entry of the index; 0 where the rule has none */
	bool index_inside;    /* the index lies in the slab, in front of the objects */
	uint32_t left_over;   /* bytes of a slab that are neither object nor index */
};

/* ---- what a cache asks for ------------------------------------------------------------------------- */

/* The distance between objects: the size rounded up to the alignment, a power of two. */
static inline uint32_t geometry_stride(uint32_t size, uint32_t alignment)
{
	return (size + alignment - 1) & ~(alignment - 1);
}

/*
 * The alignment that keeps an object from lying across more cache lines than it must: the line's, but half of
 * it, a quarter and so on as long as two objects share a line anyway.  `line` is a power of two.
 */
uint32_t geometry_line_alignment(uint32_t size, uint32_t line);

/* The bytes that one index entry takes in a slab of so many objects; all ones is not an index. */
static inline uint32_t geometry_index_bytes(uint32_t objects)
{
	return objects <= UINT8_MAX ? 1 : 2;
}

/* ---- SLAB ------------------------------------------------------------------------------------------ */

struct geometry_slab_rule {
	uint32_t page_bytes;
	uint32_t index_bytes;   /* 4 until Linux 3.14, then 1; 2 where pages are larger */
	uint32_t outside_from;  /* objects of this size or more have their index outside the slab */
	uint32_t order_wanted;  /* from here on more left-over is accepted than larger slabs would leave: 1 */
	uint32_t order_highest; /* the largest block that the kernel has */
	bool early;             /* a cache from before the index has anywhere else to lie */
	bool reclaimable;       /* slabs that come and go: the smallest that holds an object */
};

/* SLAB as it was before its index entries shrank to a byte, and after, on pages of 4096 bytes. */
extern const struct geometry_slab_rule geometry_slab_wide, geometry_slab_narrow;

/* `size` as it was asked for, `alignment` a power of two to which it is rounded up. */
struct geometry geometry_slab(const struct geometry_slab_rule *rule, uint32_t size, uint32_t alignment);

/* By how many cache lines (or alignments, if larger) SLAB can shift the objects of one slab against
 * another's. */
uint32_t geometry_slab_colours(const struct geometry *geometry, uint32_t line, uint32_t alignment);

/* SLAB's tunables for objects of a size: how many a CPU may keep, and how many it moves at a time. */
struct geometry_tunables {
	uint32_t limit, batchcount;
};
struct geometry_tunables geometry_tunables(uint32_t size);

/* ---- SLUB ------------------------------------------------------------------------------------------ */

struct geometry_slub_rule {
	uint32_t page_bytes;
	uint32_t cpus;          /* present ones; where that is one, the most there could be */
	uint32_t order_lowest;  /* slub_min_order: 0 */
	uint32_t order_highest; /* slub_max_order: 3 */
	uint32_t order_block;   /* the largest block that the kernel has: 10 */
};

/* `stride` is the distance between objects with all that SLUB adds to them: slab_size in /sys/kernel/slab. */
struct geometry geometry_slub(const struct geometry_slub_rule *rule, uint32_t stride);

/* ---- our own --------------------------------------------------------------------------------------- */

struct geometry geometry_runs(uint32_t page_bytes, uint32_t stride);

#endif
