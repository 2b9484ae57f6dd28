/* SPDX-License-Identifier: MIT */
/*
 * slab/geometry: a slab's size, how many objects it holds, and where its index lies: three rules, as pure
 * functions of sizes.
 *
 *   geometry_slab   the kernel's SLAB allocator: slabs of 2^order pages, an index of the free objects at the
 *                   slab's start or in memory of its own, and colours from what is left over
 *
 *   geometry_slub   the kernel's SLUB allocator: slabs of 2^order pages, with nothing but objects
 *
 *   geometry_runs   this library: slabs of any number of pages, with the index in metadata
 *
 * The kernel's rules serve comparison and the linked engine; the tests check them against published figures
 * and the running kernel.
 *
 * Depends on nothing, changes nothing, allocates nothing: callable from anywhere.  Sizes in bytes.
 */
#ifndef CPUSLAB_GEOMETRY_H
#define CPUSLAB_GEOMETRY_H

#include <stdbool.h>
#include <stdint.h>

struct geometry {
	uint32_t bytes;       /* per slab; 0 when no slab can hold an object */
	uint32_t objects;     /* per slab */
	uint32_t index_bytes; /* per entry of the index; 0 where the rule has none */
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
 * The alignment with which an object spans no more cache lines than it must: that of a line, halved for as
 * long as two objects share one anyway.  `line` is a power of two.
 */
uint32_t geometry_line_alignment(uint32_t size, uint32_t line);

/*
 * Defined as uint32_t, every index entry has four bytes, as in SLAB until Linux 3.14: for
 * scripts/index-width, which measures what the narrow ones are worth.
 */
#ifdef CPUSLAB_INDEX
typedef CPUSLAB_INDEX geometry_wide_index;
enum { GEOMETRY_NARROW_MOST = 0 };
#else
typedef uint16_t geometry_wide_index;
enum { GEOMETRY_NARROW_MOST = UINT8_MAX };
#endif

/* Bytes of an index entry in a slab of so many objects.  All ones is not an index. */
static inline uint32_t geometry_index_bytes(uint32_t objects)
{
	return objects <= GEOMETRY_NARROW_MOST ? 1 : sizeof(geometry_wide_index);
}

/* ---- SLAB ------------------------------------------------------------------------------------------ */

struct geometry_slab_rule {
	uint32_t page_bytes;
	uint32_t index_bytes;   /* 4 until Linux 3.14, then 1; 2 where pages are larger */
	uint32_t outside_from;  /* size from which on objects have their index outside the slab */
	uint32_t order_wanted;  /* order from which on any left-over is accepted: 1 */
	uint32_t order_highest; /* the largest block that the kernel has */
	bool early;             /* created before its index could lie outside */
	bool reclaimable;       /* slabs come and go: the smallest that holds an object */
};

/* SLAB before and after its index entries shrank to a byte, on pages of 4096 bytes. */
extern const struct geometry_slab_rule geometry_slab_wide, geometry_slab_narrow;

/* `size` is what was asked for; it is rounded up to `alignment`, a power of two. */
struct geometry geometry_slab(const struct geometry_slab_rule *rule, uint32_t size, uint32_t alignment);

/* By how many cache lines (or alignments, if larger) SLAB can shift one slab's objects against another's. */
uint32_t geometry_slab_colours(const struct geometry *geometry, uint32_t line, uint32_t alignment);

/* SLAB's tunables for a size: how many objects a CPU may keep, and how many it moves at a time. */
struct geometry_tunables {
	uint32_t limit, batchcount;
};
struct geometry_tunables geometry_tunables(uint32_t size);

/* ---- SLUB ------------------------------------------------------------------------------------------ */

struct geometry_slub_rule {
	uint32_t page_bytes;
	uint32_t cpus;          /* present ones; possible ones if only one is present */
	uint32_t order_lowest;  /* slub_min_order: 0 */
	uint32_t order_highest; /* slub_max_order: 3 */
	uint32_t order_block;   /* the largest block that the kernel has: 10 */
};

/* `stride` is the distance between objects with all that SLUB adds: slab_size in /sys/kernel/slab. */
struct geometry geometry_slub(const struct geometry_slub_rule *rule, uint32_t stride);

/* ---- our own --------------------------------------------------------------------------------------- */

struct geometry geometry_runs(uint32_t page_bytes, uint32_t stride);

#endif
