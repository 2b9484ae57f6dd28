/* SPDX-License-Identifier: MIT */
/*
 * Our own geometry: for each size the slab is the smallest that holds enough objects and wastes at most a
 * 32nd, and it never has more objects than its index can name.  Objects that share a cache line are enough
 * when they fill as many pages as 256 of them would.
 */
#include "slab/geometry.h"

#include "check.h"

enum { PAGE = 4096, LINE = 64, TARGET = 64 << 10, MOST = 2 * TARGET };

static bool is_good(uint32_t bytes, uint32_t stride)
{
	uint32_t objects = bytes / stride > 255 ? 255 : bytes / stride;
	uint32_t wanted = TARGET / stride < 64 ? TARGET / stride : 64;
	bool many = stride >= LINE ? objects >= wanted : bytes / PAGE >= 256 * stride / PAGE;

	return many && bytes - objects * stride <= bytes / 32;
}

static void check_size(uint32_t stride)
{
	struct geometry slab = geometry_runs(PAGE, stride);
	uint32_t bytes = (stride + PAGE - 1) / PAGE * PAGE;

	CHECK(slab.bytes % PAGE == 0 && !slab.index_inside);
	CHECK(slab.left_over == slab.bytes - slab.objects * stride && slab.left_over < slab.bytes);
	if (stride >= TARGET / 2) {
		CHECK(slab.objects == 1 && slab.bytes == bytes, "size %u", stride);
		return;
	}
	while (bytes < MOST && !is_good(bytes, stride))
		bytes += PAGE;
	CHECK(slab.bytes == bytes, "size %u: %u bytes, not %u", stride, slab.bytes, bytes);
	CHECK(slab.objects == (bytes / stride > 255 ? 255 : bytes / stride));
	CHECK(slab.index_bytes == 1);
}

int main(void)
{
	for (uint32_t stride = 16; stride < 1 << 20; stride += 8)
		check_size(stride);

	/* Objects of eight bytes would be too many for a one-byte index. */
	struct geometry slab = geometry_runs(PAGE, 8);

	CHECK(slab.bytes == PAGE && slab.objects == 512 && slab.index_bytes == 2 && slab.left_over == 0);
	return 0;
}
