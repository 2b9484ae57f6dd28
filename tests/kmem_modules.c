/* SPDX-License-Identifier: MIT */
/*
 * Code that uses an allocator the way kernel code does (tests/kernel), compiled like the kernel, runs on
 * include/kernel: a map whose nodes come from sheaves, a cache of names that can be shrunk, packets in bulk,
 * transfers from memory pools; each by several threads at once, and without a leak at the end.
 */
#include "check.h"

#include "kernel/modules.h"

#include <linux/err.h>
#include <linux/mm.h>

enum { THREADS = 4 };

/* ---- the map ------------------------------------------------------------------------------------------- */

enum { INDEXES = 20000 };
static struct range_tree *tree;

static unsigned long index_of(uintptr_t thread, unsigned long i)
{
	/* Ascending, descending, and scattered. */
	unsigned long own = thread % 3 == 0 ? i : thread % 3 == 1 ? INDEXES - i : i * 7919 % INDEXES;

	return own * THREADS + thread;
}

static void *entry_of(unsigned long index)
{
	return (void *)(index * 2 + 1);
}

static void *store(void *argument)
{
	uintptr_t thread = (uintptr_t)argument;
	unsigned long count = check_rounds(INDEXES, INDEXES, 500);

	for (unsigned long i = 0; i < count; i++) {
		unsigned long index = index_of(thread, i);

		CHECK(range_tree_store(tree, index, NULL, GFP_KERNEL) == 0);
		CHECK(!range_tree_load(tree, index));
		CHECK(range_tree_store(tree, index, entry_of(index), GFP_KERNEL) == 0);
	}
	for (unsigned long i = 0; i < count; i++)
		CHECK(range_tree_load(tree, index_of(thread, i)) == entry_of(index_of(thread, i)));
	return NULL;
}

static void test_map(void)
{
	CHECK(range_tree_init() == 0);
	tree = range_tree_create(GFP_KERNEL);
	CHECK(!IS_ERR(tree));
	check_threads(THREADS, store);
	CHECK(!range_tree_load(tree, (INDEXES + 1ul) * THREADS));
	range_tree_destroy(tree);
	range_tree_exit();
}

/* ---- names --------------------------------------------------------------------------------------------- */

static void text_of(unsigned number, char *text, size_t size)
{
	snprintf(text, size, number % 3 ? "%u" : "%u is a text that does not fit into what a name has for it",
		 number);
}

static void *look_up(void *argument)
{
	uint64_t random = 7 + (uintptr_t)argument;

	for (unsigned long i = check_rounds(30000, 1000000, 300); i; i--) {
		unsigned number = (unsigned)check_below(&random, 3000);
		char text[100];

		text_of(number, text, sizeof text);
		struct name *found = name_get(text), *again = name_get(text);

		CHECK(found && found == again && strcmp(name_text(found), text) == 0);
		name_put(found);
		CHECK(strcmp(name_text(again), text) == 0);
		name_put(again);
		if (i % 500 == 0)
			names_shrink(700);
	}
	return NULL;
}

static void test_names(void)
{
	CHECK(names_init() == 0);
	check_threads(THREADS, look_up);
	struct name *kept = name_get("kept");

	CHECK(kept && names_shrink(ULONG_MAX) > 0 && strcmp(name_text(kept), "kept") == 0);
	name_put(kept);
	CHECK(names_shrink(ULONG_MAX) == 1);
	names_exit();
}

/* ---- packets ------------------------------------------------------------------------------------------- */

enum { QUEUE = 300 };
static struct {
	struct cpuslab_spinlock lock;
	struct packet *packets[QUEUE];
} queue;

static void *pass_packets(void *argument)
{
	uint64_t random = 3 + (uintptr_t)argument;

	for (unsigned long i = check_rounds(100000, 3000000, 500); i; i--) {
		unsigned size = i % 10 ? 1 + (unsigned)check_below(&random, 500) : 3000, at;
		struct packet *packet = packet_new(size, i % 2 ? GFP_KERNEL : GFP_ATOMIC), *shared;

		/* An allocation that must not wait may fail. */
		if (!packet && i % 2 == 0)
			continue;
		CHECK(packet && packet_room(packet) >= size);
		memset(packet_bytes(packet), (int)size & 0xff, size);
		packet_bytes(packet)[0] = 'p';
		shared = packet_share(packet_hold(packet), GFP_KERNEL);
		CHECK(shared && packet_bytes(shared) == packet_bytes(packet));
		packet_drop(packet);
		packet_drop(packet);
		CHECK(*packet_bytes(shared) == 'p' &&
		      (size == 1 || packet_bytes(shared)[size - 1] == (u8)size));
		/* Another thread will free it. */
		at = (unsigned)check_below(&random, QUEUE);
		cpuslab_spin_lock(&queue.lock);
		struct packet *other = queue.packets[at];

		queue.packets[at] = shared;
		cpuslab_spin_unlock(&queue.lock);
		CHECK(!other || *packet_bytes(other) == 'p');
		packet_drop(other);
	}
	packets_flush();
	return NULL;
}

/* ---- transfers ----------------------------------------------------------------------------------------- */

static _Thread_local unsigned long pages, sum;

static void fill_page(struct page *page)
{
	memset(page_address(page), (int)++pages & 0xff, PAGE_SIZE);
}

static void check_page(struct page *page)
{
	unsigned char *bytes = page_address(page);

	CHECK(check_all_bytes(bytes, PAGE_SIZE, ++sum & 0xff));
}

static void *transfer_pages(void *argument)
{
	uint64_t random = 5 + (uintptr_t)argument;

	for (unsigned long i = check_rounds(3000, 100000, 50); i; i--) {
		unsigned segments = 1 + (unsigned)check_below(&random, i % 8 ? 20 : 256);
		struct transfer *transfer = transfer_new(segments, GFP_NOIO);

		CHECK(transfer && transfer_fill(transfer) == 0);
		pages = sum = i;
		transfer_visit(transfer, fill_page);
		transfer_visit(transfer, check_page);
		CHECK(pages == sum && pages - i >= segments);
		transfer_put(transfer);
	}
	return NULL;
}

/* ---- all ----------------------------------------------------------------------------------------------- */

static int is_ours(struct cpuslab_cache *cache, void *argument)
{
	static const char *const names[] = {"range_node",    "name",     "subject",    "packet",
					    "small_payload", "transfer", "segments-16"};

	(void)argument;
	/* A cache with objects would have stayed. */
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		CHECK(strcmp(cpuslab_cache_name(cache), names[i]) != 0, "%s is still there", names[i]);
	return 0;
}

int main(void)
{
	check_watchdog(100);
	test_map();
	test_names();
	CHECK(packets_init() == 0);
	cpuslab_spin_init(&queue.lock, 0);
	check_threads(THREADS, pass_packets);
	for (int i = 0; i < QUEUE; i++)
		packet_drop(queue.packets[i]);
	packets_exit();
	CHECK(transfers_init() == 0);
	check_threads(THREADS, transfer_pages);
	transfers_exit();
	cpuslab_cache_iterate(is_ours, NULL);
	return 0;
}
