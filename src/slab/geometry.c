/* SPDX-License-Identifier: MIT */
#include "slab/geometry.h"

#include "arch/minmax.h"

/* Whether at most 1/parts of a slab would be left over. */
static bool is_tight(uint32_t bytes, uint32_t objects, uint32_t stride, uint32_t parts)
{
	return bytes - objects * stride <= bytes / parts;
}

uint32_t geometry_line_alignment(uint32_t size, uint32_t line)
{
	while (line > 1 && size <= line / 2)
		line /= 2;
	return line;
}

/* ---- SLAB ------------------------------------------------------------------------------------------ */

enum { PAGE = 4096, ORDER_BLOCK = 10 };

const struct geometry_slab_rule geometry_slab_wide = {
	.page_bytes = PAGE,
	.index_bytes = 4,
	.outside_from = PAGE / 8,
	.order_wanted = 1,
	.order_highest = ORDER_BLOCK,
};
const struct geometry_slab_rule geometry_slab_narrow = {
	.page_bytes = PAGE,
	.index_bytes = 1,
	.outside_from = PAGE / 32,
	.order_wanted = 1,
	.order_highest = ORDER_BLOCK,
};

/* Bytes of an index at the slab's start, rounded up so that the first object is aligned. */
static uint32_t index_room(const struct geometry *slab, uint32_t alignment)
{
	return geometry_stride(slab->objects * slab->index_bytes, alignment);
}

/* The slab of one order. */
static struct geometry slab_of_order(const struct geometry_slab_rule *rule, uint32_t order, uint32_t stride,
				     uint32_t alignment, bool inside)
{
	struct geometry slab = {
		.bytes = rule->page_bytes << order,
		.index_bytes = rule->index_bytes,
		.index_inside = inside,
	};

	if (inside) {
		slab.objects = slab.bytes / (stride + slab.index_bytes);
		/* That ignored the rounding of the index, which adds less than an object. */
		if (slab.objects && slab.bytes - slab.objects * stride < index_room(&slab, alignment))
			slab.objects--;
		slab.left_over = slab.bytes - slab.objects * stride - index_room(&slab, alignment);
	} else {
		slab.objects = slab.bytes / stride;
		slab.left_over = slab.bytes - slab.objects * stride;
	}
	return slab;
}

struct geometry geometry_slab(const struct geometry_slab_rule *rule, uint32_t size, uint32_t alignment)
{
	uint32_t stride = geometry_stride(size, alignment);
	bool inside = rule->early || size < rule->outside_from;
	/* The index must have a number for each object. */
	uint32_t most = rule->index_bytes >= 4 ? UINT32_MAX : (1u << 8 * rule->index_bytes) - 1;
	struct geometry chosen = {0};

	/* An index outside is itself an object of some cache.  Were it larger than this one's objects, it
	 * could need an index of its own. */
	if (!inside)
		most = min_t(uint32_t, most, stride / rule->index_bytes);
	for (uint32_t order = 0; order <= rule->order_highest; order++) {
		struct geometry slab = slab_of_order(rule, order, stride, alignment, inside);

		if (!slab.objects)
			continue;
		if (slab.objects > most)
			break;
		chosen = slab;
		if (rule->reclaimable || order >= rule->order_wanted || slab.left_over * 8 <= slab.bytes)
			break;
	}
	/* The left-over may have room for the index after all. */
	if (chosen.objects && !chosen.index_inside && chosen.left_over >= index_room(&chosen, alignment)) {
		chosen.index_inside = true;
		chosen.left_over -= index_room(&chosen, alignment);
	}
	return chosen;
}

uint32_t geometry_slab_colours(const struct geometry *geometry, uint32_t line, uint32_t alignment)
{
	return geometry->left_over / (alignment > line ? alignment : line);
}

struct geometry_tunables geometry_tunables(uint32_t size)
{
	uint32_t limit = size > 131072 ? 1 : size > 4096 ? 8 : size > 1024 ? 24 : size > 256 ? 54 : 120;

	return (struct geometry_tunables){limit, (limit + 1) / 2};
}

/* ---- SLUB ------------------------------------------------------------------------------------------ */

/* SLUB counts a slab's objects in 15 bits. */
enum { SLUB_OBJECTS_MAX = 32767 };

/* The smallest order whose block holds so many bytes. */
static uint32_t order_of(const struct geometry_slub_rule *rule, uint64_t bytes)
{
	uint32_t order = 0;

	while (((uint64_t)rule->page_bytes << order) < bytes)
		order++;
	return order;
}

static uint32_t bits(uint32_t x)
{
	return x ? 32 - (uint32_t)__builtin_clz(x) : 0;
}

static uint32_t choose_slub_order(const struct geometry_slub_rule *rule, uint32_t stride)
{
	/* Enough objects for every CPU, but no more than a slab of the highest order holds. */
	uint32_t wanted = 4 * (bits(rule->cpus) + 1);
	uint32_t possible = (rule->page_bytes << rule->order_highest) / stride;

	wanted = min_t(uint32_t, wanted, possible ? possible : 1);

	uint32_t lowest = order_of(rule, (uint64_t)wanted * stride);

	if (lowest < rule->order_lowest)
		lowest = rule->order_lowest;
	if ((rule->page_bytes << lowest) / stride > SLUB_OBJECTS_MAX)
		return order_of(rule, (uint64_t)stride * SLUB_OBJECTS_MAX) - 1;

	/* Less left-over is better; with the same, the smaller slab is. */
	for (uint32_t parts = 16; parts > 1; parts /= 2)
		for (uint32_t order = lowest; order <= rule->order_highest; order++) {
			uint32_t bytes = rule->page_bytes << order;

			if (is_tight(bytes, bytes / stride, stride, parts))
				return order;
		}
	return order_of(rule, stride);
}

struct geometry geometry_slub(const struct geometry_slub_rule *rule, uint32_t stride)
{
	uint32_t order = choose_slub_order(rule, stride);

	if (order > rule->order_block)
		return (struct geometry){0};

	uint32_t bytes = rule->page_bytes << order;

	return (struct geometry){
		.bytes = bytes,
		.objects = bytes / stride,
		.left_over = bytes % stride,
	};
}

/* ---- our own --------------------------------------------------------------------------------------- */

enum {
	/* A slab aims at this many objects and this size; larger objects have a slab each. */
	RUN_OBJECTS = 64,
	RUN_BYTES = 64 << 10,
	/* Below this, where objects share a cache line, a slab aims at what 256 of them fill: so neighbours
	 * come and go together. */
	RUN_SHARED_BELOW = 64,
	RUN_ALONE_FROM = 32 << 10,
	RUN_PARTS = 32,
	/* With smaller objects, a one-byte index would leave half a page unused. */
	RUN_NARROW_FROM = 16,
};

static uint32_t wanted_objects(uint32_t page_bytes, uint32_t stride)
{
	if (stride >= RUN_SHARED_BELOW)
		return min_t(uint32_t, RUN_BYTES / stride, RUN_OBJECTS);
	return min_t(uint32_t, (UINT8_MAX + 1) * stride / page_bytes * page_bytes / stride, UINT8_MAX);
}

struct geometry geometry_runs(uint32_t page_bytes, uint32_t stride)
{
	uint32_t bytes = geometry_stride(stride, page_bytes), objects = 1;

	if (stride < RUN_ALONE_FROM) {
		uint32_t wanted = wanted_objects(page_bytes, stride);

		for (;; bytes += page_bytes) {
			objects = bytes / stride;
			if (stride >= RUN_NARROW_FROM)
				objects = min_t(uint32_t, objects, UINT8_MAX);
			if (objects >= wanted && is_tight(bytes, objects, stride, RUN_PARTS))
				break;
			if (bytes >= 2 * RUN_BYTES)
				break;
		}
	}
	return (struct geometry){
		.bytes = bytes,
		.objects = objects,
		.index_bytes = geometry_index_bytes(objects),
		.left_over = bytes - objects * stride,
	};
}
