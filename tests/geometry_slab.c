/* SPDX-License-Identifier: MIT */
/*
 * SLAB's geometry: every row of the table in Linux commit a41adfaa23df ("slab: introduce byte sized index for
 * the freelist of a slab"), before and after; and what must hold for any size.
 */
#include "slab/geometry.h"

#include "check.h"

struct row {
	const char *name;
	uint32_t size, alignment, stride; /* requested; what it is rounded up to; as slabinfo prints it */
	bool early;                       /* made while the kernel starts */
	uint32_t before, after;           /* objects in a slab of one page */
	struct geometry_tunables tunables;
};

static const struct row rows[] = {
	{"kmalloc-512", 512, 64, 512, false, 8, 8, {54, 27}},
	{"kmalloc-256", 256, 64, 256, false, 15, 16, {120, 60}},
	{"kmalloc-192", 192, 64, 192, false, 20, 21, {120, 60}},
	{"kmalloc-96", 96, 64, 128, false, 31, 31, {120, 60}},
	{"kmalloc-64", 64, 64, 64, false, 60, 63, {120, 60}},
	{"kmalloc-128", 128, 64, 128, true, 31, 31, {120, 60}},
	{"kmalloc-32", 32, 32, 32, false, 113, 124, {120, 60}},
	{"kmem_cache", 192, 64, 192, true, 20, 21, {120, 60}},
};

static void check_row(const struct row *row, const struct geometry_slab_rule *rule, uint32_t objects)
{
	struct geometry_slab_rule own = *rule;

	own.early = row->early;
	struct geometry slab = geometry_slab(&own, row->size, row->alignment);

	CHECK(geometry_stride(row->size, row->alignment) == row->stride, "%s", row->name);
	CHECK(slab.bytes == 4096 && slab.objects == objects, "%s: %u objects in %u bytes, not %u", row->name,
	      slab.objects, slab.bytes, objects);
}

static void check_table(void)
{
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct geometry_tunables tunables = geometry_tunables(rows[i].stride);

		check_row(&rows[i], &geometry_slab_wide, rows[i].before);
		check_row(&rows[i], &geometry_slab_narrow, rows[i].after);
		CHECK(tunables.limit == rows[i].tunables.limit &&
			      tunables.batchcount == rows[i].tunables.batchcount,
		      "%s: tunables %u %u", rows[i].name, tunables.limit, tunables.batchcount);
	}
	CHECK(geometry_tunables(1024).limit == 54 && geometry_tunables(1025).limit == 24);
	CHECK(geometry_tunables(4097).limit == 8 && geometry_tunables(4097).batchcount == 4);
	CHECK(geometry_tunables(131073).limit == 1 && geometry_tunables(131073).batchcount == 1);
}

/* Half of the table depends on the threshold for an off-slab index, not on the index alone. */
static void check_threshold(void)
{
	struct geometry_slab_rule only_index = geometry_slab_narrow;

	only_index.outside_from = geometry_slab_wide.outside_from;
	CHECK(geometry_slab(&only_index, 256, 64).objects == 15);
	CHECK(geometry_slab(&geometry_slab_narrow, 256, 64).objects == 16);
	CHECK(!geometry_slab(&geometry_slab_narrow, 256, 64).index_inside);
	/* 21 objects of 192 bytes leave 64, which have room for their index after all. */
	CHECK(geometry_slab(&geometry_slab_narrow, 192, 64).index_inside);
	CHECK(geometry_slab(&geometry_slab_narrow, 192, 64).left_over == 0);
}

static void check_orders(void)
{
	struct geometry_slab_rule rule = geometry_slab_narrow;

	/* One object of 2560 would leave more than an eighth of a page; three of them in two pages leave
	 * less. */
	CHECK(geometry_slab(&rule, 2560, 64).bytes == 8192 && geometry_slab(&rule, 2560, 64).objects == 3);
	rule.reclaimable = true;
	CHECK(geometry_slab(&rule, 2560, 64).bytes == 4096);
	rule.reclaimable = false;
	CHECK(geometry_slab(&rule, 8192, 64).bytes == 8192);
	CHECK(geometry_slab(&rule, 4 << 20, 64).bytes == 4 << 20);
	CHECK(geometry_slab(&rule, (4 << 20) + 1, 64).objects == 0);
	/* 256 objects are one more than a byte can name. */
	rule.outside_from = 8;
	CHECK(geometry_slab(&rule, 16, 16).objects == 0);
	rule.index_bytes = 2;
	rule.outside_from = UINT32_MAX;
	CHECK(geometry_slab(&rule, 16, 16).objects == 227);
}

static void check_colours(void)
{
	struct geometry slab = {.left_over = 200};

	CHECK(geometry_slab_colours(&slab, 64, 8) == 3);
	CHECK(geometry_slab_colours(&slab, 64, 128) == 1);
	slab = geometry_slab(&geometry_slab_wide, 32, 32);
	/* 4096 − 113·32 − 480 */
	CHECK(slab.left_over == 0 && geometry_slab_colours(&slab, 64, 32) == 0);
}

/* For any size: all of a slab is accounted for, and one more object would not fit. */
static void check_any(const struct geometry_slab_rule *rule)
{
	for (uint32_t alignment = 8; alignment <= 256; alignment *= 2)
		for (uint32_t size = 24; size < 70000; size += size < 4096 ? 4 : 123) {
			struct geometry slab = geometry_slab(rule, size, alignment);
			uint32_t stride = geometry_stride(size, alignment);
			uint32_t room = slab.index_inside
						? geometry_stride(slab.objects * slab.index_bytes, alignment)
						: 0;
			uint32_t more =
				slab.index_inside
					? geometry_stride((slab.objects + 1) * slab.index_bytes, alignment)
					: 0;

			CHECK(slab.objects > 0, "size %u", size);
			CHECK(slab.objects * stride + room + slab.left_over == slab.bytes, "size %u", size);
			CHECK((slab.objects + 1) * stride + more > slab.bytes, "size %u alignment %u", size,
			      alignment);
		}
}

static void check_line_alignment(void)
{
	CHECK(geometry_line_alignment(100, 64) == 64);
	CHECK(geometry_line_alignment(33, 64) == 64);
	CHECK(geometry_line_alignment(32, 64) == 32);
	CHECK(geometry_line_alignment(17, 64) == 32);
	CHECK(geometry_line_alignment(8, 64) == 8);
	CHECK(geometry_line_alignment(1, 64) == 1);
}

int main(void)
{
	check_table();
	check_threshold();
	check_orders();
	check_colours();
	check_any(&geometry_slab_wide);
	check_any(&geometry_slab_narrow);
	check_line_alignment();
	return 0;
}
