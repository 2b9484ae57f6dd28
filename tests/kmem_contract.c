/* SPDX-License-Identifier: MIT */
/*
 * Each function of <cpuslab/kmem.h> and <cpuslab/gfp.h> does what the kernel says of the one it is named
 * after: sizes, alignment, zeros, errors, and both forms of kmem_cache_create.
 */
#include "check.h"

#include <errno.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

static const gfp_t kinds[] = {GFP_KERNEL, GFP_NOWAIT, GFP_ATOMIC, GFP_KERNEL | __GFP_NOFAIL, 0};
enum { KINDS = sizeof kinds / sizeof *kinds };

static size_t largest_divisor(size_t size)
{
	return size & -size;
}

/* ---- kmalloc ------------------------------------------------------------------------------------------- */

static void test_zero_size(void)
{
	CHECK(kmalloc(0, GFP_KERNEL) == ZERO_SIZE_PTR && kzalloc(0, GFP_NOWAIT) == ZERO_SIZE_PTR);
	CHECK(kmalloc_array(0, 8, GFP_KERNEL) == ZERO_SIZE_PTR && kvmalloc(0, GFP_KERNEL) == ZERO_SIZE_PTR);
	CHECK(ZERO_OR_NULL_PTR(NULL) && ZERO_OR_NULL_PTR(ZERO_SIZE_PTR));
	CHECK(ksize(NULL) == 0 && ksize(ZERO_SIZE_PTR) == 0 && kmalloc_size_roundup(0) == 0);
	kfree(NULL);
	kfree(ZERO_SIZE_PTR);
	kvfree(ZERO_SIZE_PTR);
	kfree_sensitive(ZERO_SIZE_PTR);
	kvfree_sensitive(ZERO_SIZE_PTR, 0);
	CHECK(kmemdup("", 0, GFP_KERNEL) == ZERO_SIZE_PTR);
}

static void test_size(size_t size, gfp_t flags)
{
	char *object = kmalloc(size, flags), *zeroed;
	size_t divisor = largest_divisor(size);

	CHECK(object && !ZERO_OR_NULL_PTR(object), "%zu bytes, flags %#x", size, flags);
	CHECK((uintptr_t)object % 8 == 0 && (uintptr_t)object % divisor == 0, "%p of %zu bytes", object,
	      size);
	CHECK(ksize(object) >= size && ksize(object) == malloc_usable_size(object));
	check_stamp(object, ksize(object), size);
	kfree(object);

	/* Mostly memory that was just freed. */
	zeroed = kzalloc(size, flags);
	CHECK(zeroed && (uintptr_t)zeroed % divisor == 0 && check_all_bytes(zeroed, ksize(zeroed), 0),
	      "%zu bytes, flags %#x", size, flags);
	check_stamp(zeroed, size, size);
	kfree_sensitive(zeroed);
}

static void test_sizes(void)
{
	for (unsigned kind = 0; kind < KINDS; kind++) {
		for (size_t size = 1; size <= 20000; size += size < 2000 ? 1 : 331)
			test_size(size, kinds[kind]);
		for (size_t size = 1; size <= KMALLOC_MAX_SIZE; size *= 2) {
			test_size(size, kinds[kind]);
			test_size(size * 3 / 4 ? size * 3 / 4 : 1, kinds[kind]);
		}
	}
	CHECK(!kmalloc(KMALLOC_MAX_SIZE + 1, GFP_KERNEL) && !kmalloc(SIZE_MAX, GFP_KERNEL));
	CHECK(!kzalloc(SIZE_MAX, GFP_NOWAIT));
	for (size_t size = 1; size < 100000; size += 97) {
		char *object = kmalloc(size, GFP_KERNEL);
		size_t rounded = kmalloc_size_roundup(size);

		CHECK(rounded >= size && (largest_divisor(size) > 4096 || rounded <= ksize(object)),
		      "%zu: %zu, %zu", size, rounded, ksize(object));
		kfree(object);
	}
	for (size_t size = 128 << 10; size <= KMALLOC_MAX_SIZE; size += size / 16 & ~63ul) {
		char *object = kmalloc(size, GFP_KERNEL), *aligned = kmalloc(size & PAGE_MASK, GFP_KERNEL);
		size_t rounded = kmalloc_size_roundup(size), pages = kmalloc_size_roundup(size & PAGE_MASK);

		CHECK(rounded >= size && rounded <= ksize(object), "%zu: %zu, %zu", size, rounded,
		      ksize(object));
		CHECK(pages >= (size & PAGE_MASK) && pages <= ksize(aligned), "%zu: %zu, %zu",
		      size & PAGE_MASK, pages, ksize(aligned));
		kfree(object);
		kfree(aligned);
	}
	CHECK(kmalloc_size_roundup(KMALLOC_MAX_SIZE + 1) == KMALLOC_MAX_SIZE + 1);
}

/* Not only for the first object in a slab. */
static void test_alignment(void)
{
	enum { OBJECTS = 8 };

	for (size_t size = 16; size <= 20000; size += 16)
		for (unsigned kind = 0; kind < KINDS; kind++) {
			void *objects[OBJECTS];

			for (int i = 0; i < OBJECTS; i++) {
				objects[i] = kmalloc(size, kinds[kind]);
				CHECK((uintptr_t)objects[i] % largest_divisor(size) == 0,
				      "%p of %zu bytes, flags %#x", objects[i], size, kinds[kind]);
				CHECK(kmalloc_size_roundup(size) <= ksize(objects[i]));
			}
			for (int i = 0; i < OBJECTS; i++)
				kfree(objects[i]);
		}
}

static void test_arrays(void)
{
	size_t huge = SIZE_MAX / 2 + 1;
	unsigned *array = kcalloc(100, sizeof *array, GFP_KERNEL);

	CHECK(array && check_all_bytes(array, ksize(array), 0));
	kfree(array);
	CHECK(!kmalloc_array(huge, 2, GFP_KERNEL) && !kcalloc(2, huge, GFP_KERNEL));
	CHECK(!kmalloc_array_node(huge, 3, GFP_KERNEL, 0) && !kcalloc_node(huge, 3, GFP_KERNEL, 0));
	CHECK(!kvmalloc_array(huge, 2, GFP_KERNEL) && !kvcalloc(huge, 2, GFP_KERNEL));
	CHECK(!krealloc_array(NULL, huge, 2, GFP_KERNEL) && !kmemdup_array("", huge, 2, GFP_KERNEL));

	char *node = kmalloc_node(100, GFP_KERNEL, NUMA_NO_NODE), *zeroed = kzalloc_node(100, GFP_KERNEL, 0);

	CHECK(node && zeroed && check_all_bytes(zeroed, 100, 0));
	kfree(node);
	kfree(zeroed);
	array = kmalloc_array_node(10, 4, GFP_KERNEL, 0);
	CHECK(array && ksize(array) >= 40);
	array = krealloc_array(array, 1000, 4, GFP_KERNEL);
	CHECK(array && ksize(array) >= 4000);
	kfree(array);
	array = kcalloc_node(10, 4, GFP_ATOMIC, 0);
	CHECK(array && check_all_bytes(array, 40, 0));
	kfree(array);
}

static void test_large(void)
{
	static const size_t sizes[] = {1, 5000, KMALLOC_MAX_SIZE + 1, 40ul << 20};

	for (unsigned i = 0; i < 4; i++) {
		char *object = kvmalloc(sizes[i], GFP_KERNEL), *zeroed = kvzalloc(sizes[i], GFP_KERNEL);
		char *node = kvmalloc_node(sizes[i], GFP_KERNEL, 0);
		char *copy;

		CHECK(object && zeroed && node);
		CHECK(check_all_bytes(zeroed, sizes[i], 0));
		check_stamp(object, sizes[i], i);
		copy = kvmemdup(object, sizes[i], GFP_KERNEL);
		CHECK(copy && copy != object);
		CHECK_STAMP(copy, sizes[i], i);
		copy = kvrealloc(copy, 2 * sizes[i], GFP_KERNEL);
		CHECK(copy && ksize(copy) >= 2 * sizes[i]);
		CHECK_STAMP(copy, sizes[i], i);
		kvfree(copy);
		kvfree_sensitive(object, sizes[i]);
		kvfree(zeroed);
		kvfree(node);
	}
	CHECK(!kvmalloc((size_t)INT_MAX + 1, GFP_KERNEL) && !kvmalloc(SIZE_MAX, GFP_KERNEL));
	char *node = kvzalloc_node(10, GFP_KERNEL, 0), *array = kvmalloc_array_node(10, 10, GFP_KERNEL, 0);
	char *zeroed = kvcalloc_node(10, 10, GFP_KERNEL, 0);

	CHECK(node && array && zeroed && check_all_bytes(node, 10, 0) && check_all_bytes(zeroed, 100, 0));
	kvfree(node);
	kvfree(array);
	kvfree(zeroed);
}

static size_t pages_in_memory(void)
{
	char text[100];
	int file = open("/proc/self/statm", O_RDONLY);
	ssize_t length = read(file, text, sizeof text - 1);

	CHECK(file >= 0 && length > 0);
	close(file);
	text[length] = '\0';
	return strtoul(strchr(text, ' '), NULL, 10);
}

/* What was never touched takes no memory when it moves, nor when it is known to be zero. */
static void test_sparse(gfp_t flags)
{
	const size_t size = 600ul << 20, step = 10ul << 20;
	size_t before = pages_in_memory();
	char *object = kvmalloc(size, flags);

	CHECK(object);
	for (size_t at = 0; at < size; at += step)
		object[at] = 7;
	void *behind = kvmalloc(size, flags);

	object = kvrealloc(object, 2 * size, flags);
	CHECK(object && (uintptr_t)object % PAGE_SIZE == 0 && ksize(object) >= 2 * size);
	for (size_t at = 0; at < size; at += step)
		CHECK(object[at] == 7 && !object[at + 1]);
	for (size_t at = size; flags & __GFP_ZERO && at < 2 * size; at += step - 1)
		CHECK(!object[at]);
	CHECK(pages_in_memory() < before + (16 << 20) / PAGE_SIZE, "%zu pages, %zu before", pages_in_memory(),
	      before);
	kvfree(object);
	kvfree(behind);
}

/* Whole pages; nothing for size 0. */
static void test_vmalloc(void)
{
	static const size_t sizes[] = {1, 100, 4096, 5000, 70000, KMALLOC_MAX_SIZE, 9ul << 20};

	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		char *object = vmalloc(sizes[i]), *zeroed = vzalloc(sizes[i]);
		char *node = vmalloc_node(sizes[i], 0), *flags = __vmalloc(sizes[i], GFP_NOFS | __GFP_ZERO);
		char *zeroed_node = vzalloc_node(sizes[i], NUMA_NO_NODE);

		CHECK(object && zeroed && node && flags && zeroed_node);
		CHECK(!offset_in_page(object) && !offset_in_page(zeroed) && !offset_in_page(node) &&
		      !offset_in_page(flags));
		CHECK(ksize(object) >= PAGE_ALIGN(sizes[i]) &&
		      check_all_bytes(zeroed, PAGE_ALIGN(sizes[i]), 0));
		CHECK(check_all_bytes(flags, sizes[i], 0) && check_all_bytes(zeroed_node, sizes[i], 0));
		memset(object, 1, PAGE_ALIGN(sizes[i]));
		vfree(object);
		kvfree(zeroed);
		vfree(node);
		vfree(flags);
		vfree(zeroed_node);
	}
	CHECK(!vmalloc(0) && !vzalloc(0) && !vmalloc(SIZE_MAX) && !vmalloc(SIZE_MAX / 2));
	CHECK(!vmalloc_array(SIZE_MAX / 2, 3) && !vcalloc(SIZE_MAX / 2, 3) && !vmalloc_array(0, 3));
	vfree(NULL);
	char *array = vmalloc_array(100, 100), *zeroed = vcalloc(100, 100);

	CHECK(array && zeroed && check_all_bytes(zeroed, 10000, 0));
	vfree(array);
	vfree(zeroed);
}

static const gfp_t for_ever = GFP_KERNEL | __GFP_NOFAIL;

/* Runs a process with a limit below what it requests, from its start on. */
static void begin_limited(void *argument)
{
	const struct rlimit limit = {512 << 20, 512 << 20};

	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	execl("/proc/self/exe", "kmem_contract", "limited", NULL);
	CHECK(false, "%p", argument);
}

static int run_limited(void)
{
	CHECK(!kvmalloc(INT_MAX, for_ever) && !kvzalloc(INT_MAX, for_ever) &&
	      !__vmalloc(1ul << 30, for_ever));
	char *object = kmalloc(100, for_ever);

	CHECK(object && !kvrealloc(object, INT_MAX, for_ever));
	kfree(object);

	enum { EACH = 1 << 20, MANY = 1024 };
	static void *objects[MANY];
	struct kmem_cache *cache = kmem_cache_create("large", EACH, 0, 0, NULL);

	/*
	 * In hardened mode a cache keeps its slabs, so the heap stays full, and a sheaf, which may wait for
	 * ever, would: its class has a slab before that.
	 */
	kvfree(kvmalloc(sizeof(objects) + 100, for_ever));
	/* Each object could be had, all of them cannot. */
	CHECK(cache && !kmem_cache_alloc_bulk(cache, for_ever, MANY, objects));
	CHECK(!kmem_cache_prefill_sheaf(cache, for_ever, MANY));
	kmem_cache_destroy(cache);
	return 0;
}

/* Impossible requests are refused, however long the caller would wait. */
static void test_never(void)
{
	char text[512];

	CHECK(!__vmalloc(1ul << 60, for_ever) && !__vmalloc(1ul << 60, for_ever | __GFP_ZERO));
	CHECK(!__vmalloc_array(1ul << 40, 1 << 20, for_ever));
	CHECK(!kmalloc(KMALLOC_MAX_SIZE + 1, for_ever) && !kvmalloc(INT_MAX + 1ul, for_ever));
	CHECK(!kvcalloc(1ul << 40, 1 << 20, for_ever) && !kvmalloc(1ul << 60, for_ever));
	CHECK_EXITED(check_child(begin_limited, NULL, text, sizeof text), 0);
}

/* ---- by type ------------------------------------------------------------------------------------------- */

struct flexible {
	int count;
	long values[];
};

static struct flexible *new_flexible(size_t count)
{
	return kzalloc_flex(struct flexible, values, count);
}

/* Each returns a pointer to its type, which the compiler checks here; flags may be omitted. */
static void test_typed(void)
{
	struct flexible *one = kmalloc_obj(*one), *two = kzalloc_obj(struct flexible, GFP_NOWAIT);
	long *three = kmalloc_objs(*three, 1000), *four = kzalloc_objs(long, 1000, GFP_ATOMIC);
	struct flexible *five = kmalloc_flex(*five, values, 10, GFP_KERNEL), *six = new_flexible(100);
	__auto_type seven = kvmalloc_obj(struct flexible);
	__auto_type eight = kvzalloc_obj(*one, GFP_KERNEL);
	long *nine = kvmalloc_objs(*nine, 1000000), *ten = kvzalloc_objs(long, 1000000);
	struct flexible *eleven = kvmalloc_flex(*eleven, values, 1000000);
	struct flexible *twelve = kvzalloc_flex(*twelve, values, 1000000, GFP_KERNEL);
	size_t count = 5;

	CHECK(one && two && three && four && five && six && seven && eight && nine && ten && eleven &&
	      twelve);
	CHECK(ksize(one) >= sizeof *one && ksize(one) < 64 && check_all_bytes(two, sizeof *two, 0));
	CHECK(ksize(three) >= 8000 && check_all_bytes(four, 8000, 0));
	CHECK(ksize(five) >= 88 && ksize(six) >= 808 && check_all_bytes(six, 808, 0));
	CHECK(check_all_bytes(eight, sizeof *eight, 0) && ksize(nine) >= 8000000);
	CHECK(check_all_bytes(ten, 8000000, 0) && ksize(eleven) >= 8000008 &&
	      check_all_bytes(twelve, 8000008, 0));
	void *all[] = {one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve};

	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		kvfree(all[i]);
	CHECK(!kmalloc_objs(long, SIZE_MAX / 4) && !kvzalloc_objs(long, SIZE_MAX / 4));
	CHECK(!kmalloc_flex(*five, values, SIZE_MAX / 8) && !kvmalloc_flex(*five, values, SIZE_MAX / 4));
	five = kmalloc_flex(*five, values, count++);
	CHECK(five && count == 6);
	kfree(five);
}

static void test_other_names(void)
{
	char *tracked = kmalloc_track_caller(100, GFP_KERNEL),
	     *node = kmalloc_node_track_caller(100, GFP_NOWAIT, 0);
	char *nolock = kmalloc_nolock(100, __GFP_ZERO | __GFP_ACCOUNT, NUMA_NO_NODE);

	CHECK(tracked && node && nolock && check_all_bytes(nolock, 100, 0));
	CHECK(!kmalloc_nolock(KMALLOC_MAX_CACHE_SIZE + 1, 0, 0) && kmalloc_nolock(0, 0, 0) == ZERO_SIZE_PTR);
	kfree(tracked);
	kfree(node);
	kfree_nolock(nolock);
	kfree_nolock(ZERO_SIZE_PTR);
	kfree_nolock(NULL);
}

static size_t resident_pages(void *object, size_t bytes)
{
	size_t pages = bytes / PAGE_SIZE, resident = 0;
	unsigned char *seen = malloc(pages);

	CHECK(seen && mincore(object, bytes, seen) == 0);
	for (size_t i = 0; i < pages; i++)
		resident += seen[i] & 1;
	free(seen);
	return resident;
}

/*
 * Beyond kmalloc's sizes only page alignment is promised, even for powers of two: no extra address space is
 * needed for alignment, and no fresh page is written.
 */
static void test_large_powers_of_two(void)
{
	enum { BYTES = 64 << 20, TRIES = 1000 };
	char *object = kvzalloc(BYTES, GFP_KERNEL);

	CHECK(object && (uintptr_t)object % PAGE_SIZE == 0);
	CHECK(check_debugged() || resident_pages(object, BYTES) < BYTES / PAGE_SIZE / 2, "%zu pages",
	      resident_pages(object, BYTES));
	CHECK(check_all_bytes(object, BYTES, 0));
	kvfree(object);
	object = NULL;
	/* It does not wait for a lock. */
	for (unsigned i = 0; i < TRIES && !object; i++)
		object = kvmalloc(BYTES, GFP_ATOMIC);
	CHECK(object && (uintptr_t)object % PAGE_SIZE == 0);
	kvfree(object);
	object = kvmalloc(KMALLOC_MAX_SIZE + 1, GFP_KERNEL);
	CHECK(object && (uintptr_t)object % PAGE_SIZE == 0);
	kvfree(object);
}

static void test_realloc(gfp_t flags)
{
	char *object = krealloc(NULL, 10, flags), *same;

	CHECK(object);
	size_t size = ksize(object);

	check_stamp(object, size, 1);
	same = krealloc(object, size, flags);
	CHECK(same == object && krealloc(object, 1, flags) == object);
	for (size_t more = size + 1; more < 3ul << 20; more = more * 2 + 1) {
		object = krealloc(object, more, flags);
		CHECK(object && ksize(object) >= more);
		CHECK_STAMP(object, size, 1);
	}
	/* It stays in place when it cannot grow. */
	CHECK(!krealloc(object, KMALLOC_MAX_SIZE + 1, flags));
	CHECK_STAMP(object, size, 1);
	CHECK(krealloc(object, 0, flags) == ZERO_SIZE_PTR);
	object = krealloc(ZERO_SIZE_PTR, 20, flags);
	CHECK(object && ksize(object) >= 20);
	kfree(object);
}

/* With __GFP_ZERO in each call every byte beyond what was written is zero, in whatever order sizes change. */
static void test_realloc_zeroed(void)
{
	uint64_t random = 5;
	unsigned char *object = kzalloc(1, GFP_KERNEL);
	size_t size = 1;

	for (int i = 0; i < 2000; i++) {
		size_t next = 1 + check_below(&random, i % 10 ? 300 : 70000);

		memset(object, 0xee, size);
		object = krealloc(object, next, GFP_KERNEL | __GFP_ZERO);
		CHECK(object);
		size_t kept = size < next ? size : next;

		CHECK(check_all_bytes(object, kept, 0xee));
		CHECK(check_all_bytes(object + kept, next - kept, 0), "from %zu to %zu bytes", size, next);
		size = next;
	}
	kfree(object);
}

static void test_copies(void)
{
	char *copy = kmemdup("abc\0def", 8, GFP_KERNEL);

	CHECK(copy && memcmp(copy, "abc\0def", 8) == 0);
	kfree(copy);
	copy = kmemdup_array("abcdef", 3, 2, GFP_KERNEL);
	CHECK(copy && memcmp(copy, "abcdef", 6) == 0);
	kfree(copy);
	copy = kmemdup_nul("abcdef", 3, GFP_KERNEL);
	CHECK(copy && strcmp(copy, "abc") == 0);
	kfree(copy);
	copy = kstrdup("a string", GFP_ATOMIC);
	CHECK(copy && strcmp(copy, "a string") == 0 && !kstrdup(NULL, GFP_KERNEL));
	kfree(copy);
	copy = kstrndup("a string", 3, GFP_KERNEL);
	CHECK(copy && strcmp(copy, "a s") == 0);
	kfree(copy);
	copy = kstrndup("a string", 300, GFP_KERNEL);
	CHECK(copy && strcmp(copy, "a string") == 0 && !kstrndup(NULL, 3, GFP_KERNEL));
	kfree(copy);
	/* Reads no byte beyond `most`. */
	char unterminated[2] = {'o', 'k'};

	copy = kstrndup(unterminated, 2, GFP_KERNEL);
	CHECK(copy && strcmp(copy, "ok") == 0);
	kfree(copy);
}

/* kfree_sensitive leaves nothing to be read, not even beyond the requested size. */
static void test_sensitive(void)
{
	struct kmem_cache *cache = kmem_cache_create("secrets", 64, 8, SLAB_NO_MERGE, NULL);
	char *secret = kmem_cache_alloc(cache, GFP_KERNEL);

	memset(secret, 's', 64);
	kfree_sensitive(secret);
	/* Zeroed, or poisoned since. */
	CHECK(check_debugged() ? !memchr(secret, 's', 64) : check_all_bytes(secret, 64, 0));
	kmem_cache_destroy(cache);
}

static void test_pages(void)
{
	for (unsigned order = 0; order <= MAX_PAGE_ORDER; order++) {
		size_t bytes = PAGE_SIZE << order;

		for (unsigned kind = 0; kind < KINDS; kind++) {
			struct page *page = alloc_pages(kinds[kind] | __GFP_ZERO, order);
			char *address = page_address(page);

			CHECK(page && (uintptr_t)address % bytes == 0 && check_all_bytes(address, bytes, 0));
			CHECK(virt_to_page(address) == page && virt_to_page(address + 4095) == page);
			memset(address, 0xff, bytes);
			__free_pages(page, order);
		}
		CHECK(get_order(bytes) == (int)order && get_order(bytes - 1) == (int)order);
	}
	CHECK(get_order(0) == 52 && get_order(ULONG_MAX) == 52 && get_order(ULONG_MAX / 2) == 51);
	CHECK(!alloc_pages(GFP_KERNEL, MAX_PAGE_ORDER + 1) && !__get_free_pages(GFP_KERNEL, 64));
	struct page *page = alloc_page(GFP_KERNEL), *node = alloc_pages_node(0, GFP_KERNEL, 1);
	unsigned long one = __get_free_page(GFP_KERNEL), two = __get_free_pages(GFP_KERNEL, 1);
	unsigned long zeroed = get_zeroed_page(GFP_ATOMIC);

	CHECK(page && node && one % 4096 == 0 && two % 8192 == 0 && zeroed);
	CHECK(check_all_bytes((void *)zeroed, 4096, 0));
	__free_page(page);
	__free_pages(node, 1);
	free_page(one);
	free_pages(two, 1);
	free_page(zeroed);
	CHECK(PAGE_ALIGN(4097ul) == 8192 && offset_in_page(4097) == 1);
}

/* ---- caches -------------------------------------------------------------------------------------------- */

struct thing {
	_Alignas(32) char name[40];
	int value;
};

/* ---- sheaves ------------------------------------------------------------------------------------------- */

static void take_all(struct kmem_cache *cache, struct slab_sheaf *sheaf, unsigned count, void **objects)
{
	for (unsigned i = 0; i < count; i++) {
		bool zeroed = i % 2;

		CHECK(kmem_cache_sheaf_size(sheaf) >= count - i);
		objects[i] = kmem_cache_alloc_from_sheaf(cache, zeroed ? GFP_NOWAIT | __GFP_ZERO : GFP_NOWAIT,
							 sheaf);
		CHECK(objects[i] && (!zeroed || check_all_bytes(objects[i], kmem_cache_size(cache), 0)));
		check_stamp(objects[i], kmem_cache_size(cache), i);
	}
}

/*
 * A sheaf yields as many objects as were requested, whatever happens in between, and no more; none is lost.
 */
static void test_sheaves(void)
{
	enum { MOST = 2000 };
	static void *objects[MOST];

	for (unsigned count = 1; count <= MOST; count = count * 3 + 1) {
		struct kmem_cache *cache = kmem_cache_create("sheaves", 200, 8, SLAB_NO_MERGE, NULL);
		struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL | __GFP_ZERO, count);

		CHECK(sheaf && kmem_cache_sheaf_size(sheaf) >= count);
		take_all(cache, sheaf, count, objects);
		while (kmem_cache_sheaf_size(sheaf))
			kmem_cache_free(cache, kmem_cache_alloc_from_sheaf(cache, GFP_NOWAIT, sheaf));
		CHECK(!kmem_cache_alloc_from_sheaf(cache, GFP_KERNEL, sheaf));
		for (unsigned i = 0; i < count; i++)
			CHECK_STAMP(objects[i], 200, i);
		kmem_cache_free_bulk(cache, count, objects);

		/* Refill beyond its capacity; its present objects stay. */
		CHECK(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &sheaf, count) == 0);
		CHECK(kmem_cache_sheaf_size(sheaf) >= count);
		CHECK(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &sheaf, 1) == 0);
		CHECK(kmem_cache_sheaf_size(sheaf) >= count);
		CHECK(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &sheaf, MOST) == 0);
		take_all(cache, sheaf, MOST / 2, objects);

		/* It cannot: nothing changes. */
		struct slab_sheaf *same = sheaf;
		unsigned left = kmem_cache_sheaf_size(sheaf);

		CHECK(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &same, UINT_MAX) == -ENOMEM);
		CHECK(same == sheaf && kmem_cache_sheaf_size(same) == left);
		CHECK(!kmem_cache_prefill_sheaf(cache, GFP_KERNEL, UINT_MAX));
		kmem_cache_return_sheaf(cache, GFP_NOWAIT, sheaf);
		kmem_cache_free_bulk(cache, MOST / 2, objects);
		/* No object is missing. */
		CHECK(cpuslab_cache_destroy((struct cpuslab_cache *)(void *)cache) == 0);
	}
	struct kmem_cache *cache = kmem_cache_create("sheaves", 200, 8, SLAB_NO_MERGE, NULL);
	struct slab_sheaf *empty = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 0), *none = NULL;

	CHECK(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &none, 1) == -EINVAL && !none);
	CHECK(kmem_cache_refill_sheaf(cache, GFP_KERNEL, NULL, 1) == -EINVAL);
	CHECK(empty && !kmem_cache_alloc_from_sheaf(cache, GFP_KERNEL, empty));
	kmem_cache_return_sheaf(cache, GFP_KERNEL, empty);
	CHECK(cpuslab_cache_destroy((struct cpuslab_cache *)(void *)cache) == 0);
}

static unsigned made;

static void make(void *object)
{
	made++;
	memset(object, 'm', 100);
}

static void check_cache(struct kmem_cache *cache, unsigned size, size_t align)
{
	void *objects[200];

	CHECK(cache && kmem_cache_size(cache) == size, "%u", kmem_cache_size(cache));
	for (unsigned i = 0; i < 200; i++) {
		gfp_t flags = kinds[i % KINDS];

		switch (i % 4) {
		case 0:
			objects[i] = kmem_cache_alloc(cache, flags);
			break;
		case 1:
			objects[i] = kmem_cache_zalloc(cache, flags);
			CHECK(objects[i] && check_all_bytes(objects[i], size, 0));
			break;
		case 2:
			objects[i] = kmem_cache_alloc_node(cache, flags, NUMA_NO_NODE);
			break;
		default:
			objects[i] = kmem_cache_alloc_lru(cache, NULL, flags);
		}
		CHECK(objects[i] && (uintptr_t)objects[i] % align == 0, "%p", objects[i]);
		check_stamp(objects[i], size, i);
	}
	for (unsigned i = 0; i < 200; i++) {
		CHECK_STAMP(objects[i], size, i);
		if (i % 2)
			kmem_cache_free(cache, objects[i]);
		else
			kfree(objects[i]);
	}
	for (unsigned kind = 0; kind < KINDS; kind++) {
		CHECK(kmem_cache_alloc_bulk(cache, kinds[kind] | __GFP_ZERO, 200, objects) == 200);
		for (unsigned i = 0; i < 200; i++) {
			CHECK(check_all_bytes(objects[i], size, 0));
			check_stamp(objects[i], size, i);
		}
		if (kind % 2)
			kmem_cache_free_bulk(cache, 200, objects);
		else
			kmem_cache_free_bulk(NULL, 200, objects);
	}
	CHECK(kmem_cache_shrink(cache) == 0);
	kmem_cache_destroy(cache);
}

static void test_create(void)
{
	struct kmem_cache_args args = {.align = 128};
	struct kmem_cache_args none = {0};

	check_cache(kmem_cache_create("five arguments", 100, 64, 0, NULL), 100, 64);
	check_cache(kmem_cache_create("five arguments", 100, 0, SLAB_HWCACHE_ALIGN | SLAB_PANIC, NULL), 100,
		    64);
	check_cache(kmem_cache_create("args", 100, &args, SLAB_ACCOUNT), 100, 128);
	check_cache(kmem_cache_create("args", 24, &none, SLAB_RECLAIM_ACCOUNT | SLAB_NOLEAKTRACE), 24, 8);
	check_cache(kmem_cache_create("args", 24, NULL, 0), 24, 8);
	check_cache(kmem_cache_create_usercopy("usercopy", 72, 8, 0, 8, 16, NULL), 72, 8);
	check_cache(KMEM_CACHE(thing, SLAB_HWCACHE_ALIGN), sizeof(struct thing), 32);
	check_cache(KMEM_CACHE_USERCOPY(thing, 0, name), sizeof(struct thing), 32);
	kmem_cache_destroy(NULL);

	CHECK(!kmem_cache_create(NULL, 8, 0, 0, NULL) && !kmem_cache_create("none", 0, 0, 0, NULL));
	CHECK(!kmem_cache_create("odd", 8, 24, 0, NULL) &&
	      !kmem_cache_create("large", (4u << 20) + 1, NULL, 0));
}

/* The capacity of a CPU's array; a region for user copies prevents merging. */
static void test_args(void)
{
	struct kmem_cache_args sheaf = {.sheaf_capacity = 33}, user = {.usersize = 8};
	struct kmem_cache *cache = kmem_cache_create("sheaf", 400, &sheaf, 0);
	struct kmem_cache *one, *other;

	CHECK(cache && cpuslab_cache_get_tunables((struct cpuslab_cache *)(void *)cache).limit == 33);
	kmem_cache_destroy(cache);

	one = kmem_cache_create("one", 1640, 8, 0, NULL);
	other = kmem_cache_create("other", 1640, 8, 0, NULL);
	/* Debugged and hardened caches do not share memory. */
	CHECK(cpuslab_cache_aliases((struct cpuslab_cache *)(void *)one) ==
	      !(check_debugged() || check_hardened()));
	kmem_cache_destroy(other);
	other = kmem_cache_create("other", 1640, &user, 0);
	CHECK(cpuslab_cache_aliases((struct cpuslab_cache *)(void *)one) == 0);
	kmem_cache_destroy(one);
	kmem_cache_destroy(other);
}

static void test_constructor(void)
{
	struct kmem_cache_args args = {.ctor = make};

	for (int form = 0; form < 2; form++) {
		struct kmem_cache *cache = form ? kmem_cache_create("made", 100, &args, 0)
						: kmem_cache_create("made", 100, 0, 0, make);
		char *object;

		made = 0;
		for (unsigned kind = 0; kind < KINDS; kind++)
			for (unsigned i = 0; i < 300; i++) {
				object = kmem_cache_alloc(cache, kinds[kind]);
				CHECK(object && check_all_bytes(object, 100, 'm'));
				if (i % 2)
					kmem_cache_free(cache, object);
				else
					/* Left for destroy to report. */
					object[0] = 'm';
			}
		/* Hardened mode does not reuse objects at once. */
		CHECK(made >= 150 * KINDS && made < 150 * KINDS + (check_hardened() ? 600 : 300),
		      "%u constructed", made);
		for (unsigned again = made, i = 0; i < 1000; i++) {
			object = kmem_cache_alloc(cache, GFP_KERNEL);
			kmem_cache_free(cache, object);
			CHECK(made == again);
		}
	}
}

static void destroy_leaky(void *argument)
{
	kmem_cache_destroy(argument);
}

static void test_leak(void)
{
	struct kmem_cache *cache = kmem_cache_create("leaky", 100, 0, SLAB_NO_MERGE, NULL);
	void *object = kmem_cache_alloc(cache, GFP_KERNEL);
	char text[512], expected[64];

	CHECK_EXITED(check_child(destroy_leaky, cache, text, sizeof text), 0);
	snprintf(expected, sizeof expected, "leaky: %p", object);
	CHECK(strstr(text, expected), "said: %s", text);
	kmem_cache_free(cache, object);
	kmem_cache_destroy(cache);
}

static void create_in_panic(void *argument)
{
	CHECK(!kmem_cache_create("needed", 0, 0, SLAB_PANIC, NULL));
	(void)argument;
}

static void test_panic(void)
{
	check_stopped(create_in_panic, NULL, "needed");
}

/* ---- from address to cache ---------------------------------------------------------------------------- */

static void test_object_of(void)
{
	static const size_t sizes[] = {8, 40, 100, 1000, 5000, 60000, 262144, 300000, 3ul << 20, 60ul << 20};

	for (unsigned i = 0; i < 10; i++) {
		char *object = kvmalloc(sizes[i], GFP_KERNEL);
		size_t reach = sizes[i] <= 4096 ? sizes[i] : 4096;

		CHECK(object);
		for (size_t at = 0; at < reach; at += 1 + reach / 1000)
			CHECK(cpuslab_object_of(object + at) == object, "byte %zu of %zu", at, sizes[i]);
		CHECK(cpuslab_object_of(object + reach - 1) == object);
		kvfree(object);
	}
	/* The largest objects possible: tests an address in the last byte. */
	struct kmem_cache *cache = kmem_cache_create("large", (4u << 20) - 8, 0, 0, NULL);
	char *objects[3];

	for (int i = 0; i < 3; i++) {
		objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
		CHECK(cpuslab_object_of(objects[i] + (4u << 20) - 9) == objects[i]);
	}
	for (int i = 0; i < 3; i++)
		kmem_cache_free(cache, objects[i]);
	kmem_cache_destroy(cache);
	char local = 0;

	CHECK(!cpuslab_object_of(&local) && !cpuslab_object_of(NULL) && !cpuslab_object_of((void *)4096));
}

static void test_sums(void)
{
	struct flexible {
		int count;
		long values[];
	} *flexible;

	CHECK(struct_size(flexible, values, 3) == sizeof *flexible + 3 * sizeof(long));
	CHECK(struct_size(flexible, values, SIZE_MAX / 4) == SIZE_MAX);
	CHECK(!kmalloc(struct_size(flexible, values, SIZE_MAX / 4), GFP_KERNEL));
	CHECK(gfpflags_allow_blocking(GFP_KERNEL) && gfpflags_allow_blocking(GFP_NOIO));
	CHECK(!gfpflags_allow_blocking(GFP_ATOMIC) && !gfpflags_allow_blocking(GFP_NOWAIT));
}

int main(int argc, char **argv)
{
	check_watchdog(100);
	if (argc > 1 && strcmp(argv[1], "limited") == 0)
		return run_limited();
	/* First: memory that is reused would have to be zeroed by writing. */
	test_large_powers_of_two();
	test_zero_size();
	test_sizes();
	test_alignment();
	test_arrays();
	test_large();
	if (!check_debugged()) {
		test_sparse(GFP_KERNEL);
		test_sparse(GFP_KERNEL | __GFP_ZERO);
	}
	test_vmalloc();
	test_never();
	test_typed();
	test_other_names();
	test_realloc(GFP_KERNEL);
	test_realloc(GFP_ATOMIC);
	test_realloc_zeroed();
	test_copies();
	test_sensitive();
	test_pages();
	test_create();
	test_args();
	test_sheaves();
	test_constructor();
	test_leak();
	test_panic();
	test_object_of();
	test_sums();
	return 0;
}
