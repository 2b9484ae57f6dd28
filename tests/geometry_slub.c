/* SPDX-License-Identifier: MIT */
/*
 * SLUB's geometry, judged by the running kernel: for every cache that /sys/kernel/slab shows, geometry_slub()
 * must yield the order and the number of objects that the kernel chose.
 */
#include "slab/geometry.h"

#include <dirent.h>

#include "check.h"

#define SYSTEM "/sys/kernel/slab"

/* Reads one number of a cache; false when it cannot be read. */
static bool read_number(const char *cache, const char *what, uint32_t *number)
{
	char path[512], text[64];

	snprintf(path, sizeof path, SYSTEM "/%s/%s", cache, what);
	int file = open(path, O_RDONLY | O_CLOEXEC);

	if (file < 0)
		return false;
	ssize_t length = read(file, text, sizeof text - 1);

	close(file);
	if (length <= 0)
		return false;
	text[length] = 0;
	*number = (uint32_t)strtoul(text, NULL, 10);
	return true;
}

/* The number of CPUs in a list such as "0-3,8-11", or one more than the highest. */
static uint32_t read_cpus(const char *path, bool highest)
{
	char text[4096];
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
	uint32_t count = 0, end = 0;

	if (file >= 0)
		close(file);
	if (length <= 0)
		return 0;
	text[length] = 0;
	for (char *at = text; *at >= '0' && *at <= '9';) {
		uint32_t first = (uint32_t)strtoul(at, &at, 10);
		uint32_t last = *at == '-' ? (uint32_t)strtoul(at + 1, &at, 10) : first;

		count += last - first + 1;
		end = last + 1;
		at += *at == ',';
	}
	return highest ? end : count;
}

/* The kernel counts present CPUs, but where that is only one, possible CPUs. */
static uint32_t kernel_cpus(void)
{
	uint32_t present = read_cpus("/sys/devices/system/cpu/present", false);

	return present > 1 ? present : read_cpus("/sys/devices/system/cpu/possible", true);
}

/* The value on the kernel's command line, else `otherwise`. */
static uint32_t command_line(const char *name, const char *older_name, uint32_t otherwise)
{
	char text[8192];
	int file = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);

	if (file >= 0)
		close(file);
	if (length <= 0)
		return otherwise;
	text[length] = 0;
	for (char *rest, *word = strtok_r(text, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
		char *value = strchr(word, '=');

		if (!value)
			continue;
		*value = 0;
		if (strcmp(word, name) == 0 || strcmp(word, older_name) == 0)
			otherwise = (uint32_t)strtoul(value + 1, NULL, 10);
	}
	return otherwise;
}

/* What can be checked without asking a kernel. */
static void check_arithmetic(void)
{
	struct geometry_slub_rule rule = {
		.page_bytes = 4096, .cpus = 2, .order_highest = 3, .order_block = 10};
	struct geometry slab;

	/* Two CPUs: at least 12 objects. */
	slab = geometry_slub(&rule, 8);
	CHECK(slab.bytes == 4096 && slab.objects == 512);
	slab = geometry_slub(&rule, 512);
	CHECK(slab.bytes == 8192 && slab.objects == 16);
	/* 12·700 need 16 KiB, where 23 objects leave less than a sixteenth. */
	slab = geometry_slub(&rule, 700);
	CHECK(slab.bytes == 16384 && slab.objects == 23 && slab.left_over == 284);
	slab = geometry_slub(&rule, 8192);
	CHECK(slab.bytes == 32768 && slab.objects == 4);
	/* Nothing up to order 3 holds it. */
	slab = geometry_slub(&rule, 40000);
	CHECK(slab.bytes == 65536 && slab.objects == 1);
	slab = geometry_slub(&rule, 8 << 20);
	CHECK(slab.objects == 0);
	/* 16 CPUs raise the minimum: 24 objects. */
	rule.cpus = 16;
	slab = geometry_slub(&rule, 512);
	CHECK(slab.bytes == 16384);
	rule.order_lowest = 3;
	slab = geometry_slub(&rule, 512);
	CHECK(slab.bytes == 32768);
	/* A slab counts objects in 15 bits. */
	rule.order_lowest = 8;
	slab = geometry_slub(&rule, 8);
	CHECK(slab.objects <= 32767 && slab.objects * 2 > 32767);
}

static unsigned check_kernel(const struct geometry_slub_rule *rule)
{
	DIR *folder = opendir(SYSTEM);
	unsigned compared = 0;

	if (!folder)
		return 0;
	for (struct dirent *entry; (entry = readdir(folder));) {
		uint32_t object_size, stride, alignment, objects, order;

		/* A link is an alias of a cache that is listed under its own name. */
		if (entry->d_name[0] == '.' || entry->d_type == DT_LNK)
			continue;
		if (!read_number(entry->d_name, "object_size", &object_size) ||
		    !read_number(entry->d_name, "slab_size", &stride) ||
		    !read_number(entry->d_name, "align", &alignment) ||
		    !read_number(entry->d_name, "objs_per_slab", &objects) ||
		    !read_number(entry->d_name, "order", &order))
			continue;
		struct geometry slab = geometry_slub(rule, stride);

		CHECK(slab.bytes == rule->page_bytes << order && slab.objects == objects,
		      "%s of %u bytes: %u objects in %u bytes, the kernel has %u in order %u", entry->d_name,
		      stride, slab.objects, slab.bytes, objects, order);
		CHECK(stride >= geometry_stride(object_size, alignment ? alignment : 1) &&
			      stride == geometry_stride(stride, alignment ? alignment : 1),
		      "%s: objects of %u bytes aligned to %u lie %u apart", entry->d_name, object_size,
		      alignment, stride);
		compared++;
	}
	closedir(folder);
	return compared;
}

int main(void)
{
	check_arithmetic();

	struct geometry_slub_rule rule = {
		.page_bytes = (uint32_t)sysconf(_SC_PAGESIZE),
		.cpus = kernel_cpus(),
		.order_lowest = command_line("slab_min_order", "slub_min_order", 0),
		.order_highest = command_line("slab_max_order", "slub_max_order", 3),
		.order_block = 10,
	};
	unsigned compared = rule.cpus ? check_kernel(&rule) : 0;

	if (!compared)
		check_skip("the kernel does not show its caches in " SYSTEM);
	printf("%u caches of the running kernel\n", compared);
	return 0;
}
