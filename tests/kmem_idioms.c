/* SPDX-License-Identifier: MIT */
/*
 * More code that uses an allocator the way kernel code does (tests/kernel), in its current idioms: guards and
 * classes that end with their scope, reference counts, a zero-filled growing table, buckets, memory pools
 * under pressure, exact pages, groups of members.
 */
#include "check.h"

#include "kernel/modules.h"

#include <linux/err.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

enum { THREADS = 4 };

/* ---- sessions ------------------------------------------------------------------------------------------ */

static void *use_sessions(void *argument)
{
	enum { OPEN = 40 };
	struct session *open[OPEN] = {NULL};
	uint64_t random = 9 + (uintptr_t)argument;
	char secret[300];

	for (unsigned long i = check_rounds(20000, 500000, 200); i; i--) {
		unsigned at = (unsigned)check_below(&random, OPEN);
		size_t length = 1 + at * 7;

		memset(secret, (int)('a' + at % 26), length);
		if (!open[at]) {
			open[at] = session_open(secret, length);
			CHECK(!IS_ERR(open[at]) && session_notes(open[at]) == 0);
			CHECK(session_note(open[at], "opened") == 0);
			continue;
		}
		struct session *found = session_find(session_number(open[at]));

		CHECK(found == open[at] && session_knows(found, secret, length));
		CHECK(!session_knows(found, secret, length - 1) && session_notes(found) == 6);
		CHECK(session_close(session_number(found)) == 0);
		CHECK(session_knows(found, secret, length));
		session_put(found);
		session_put(open[at]);
		open[at] = NULL;
	}
	for (unsigned at = 0; at < OPEN; at++)
		if (open[at]) {
			CHECK(session_close(session_number(open[at])) == 0);
			session_put(open[at]);
		}
	return NULL;
}

static void test_sessions(void)
{
	CHECK(sessions_init() == 0);
	CHECK(PTR_ERR(session_open("", 5000)) == -E2BIG && PTR_ERR(session_find(0)) == -ENOENT);
	CHECK(session_close(3) == -ENOENT);
	check_threads(THREADS, use_sessions);
	sessions_exit();
}

/* ---- requests ------------------------------------------------------------------------------------------ */

enum { RESERVE = THREADS };

/* Each thread queues a request and serves what is queued, so that nobody waits for ever. */
static void *make_requests(void *argument)
{
	uintptr_t thread = (uintptr_t)argument;
	u64 sectors = 0;

	for (unsigned long i = check_rounds(20000, 500000, 200); i; i--) {
		size_t bytes;
		struct request *request = request_new(i);
		u8 *buffer = request_buffer(request, &bytes);

		CHECK(check_all_bytes(buffer, bytes, 0), "a buffer of the reserve is not clean");
		memset(buffer, (int)(1 + thread), bytes);
		request_queue(request);
		requests_serve(&sectors);
		if (i % 64 == 0)
			requests_press(i % 128);
	}
	requests_press(false);
	requests_serve(&sectors);
	return NULL;
}

/* With the allocators failing from the first call on, only the reserve's elements are available. */
static void test_reserve(void)
{
	struct request *requests[RESERVE + 3];
	u64 sectors = 0;
	long before = requests_refused();

	requests_press(true);
	for (int i = 0; i < RESERVE; i++)
		CHECK((requests[i] = request_new((u64)i)));
	CHECK(requests_refused() > before);
	for (int i = 0; i < RESERVE; i++)
		request_queue(requests[i]);
	CHECK(requests_serve(&sectors) == RESERVE && sectors == RESERVE * (RESERVE - 1) / 2);
	requests_press(false);
	CHECK(requests_reserve(RESERVE + 3) == 0);
	requests_press(true);
	for (int i = 0; i < RESERVE + 3; i++)
		request_queue(request_new(0));
	CHECK(requests_serve(&sectors) == RESERVE + 3);
	requests_press(false);
	CHECK(requests_reserve(RESERVE) == 0);
}

/* ---- frames -------------------------------------------------------------------------------------------- */

static void *use_frames(void *argument)
{
	uint64_t random = 17 + (uintptr_t)argument;

	for (unsigned long i = check_rounds(20000, 500000, 200); i; i--) {
		unsigned size = (unsigned)check_below(&random, i % 16 ? 3000 : 60000), length;
		gfp_t gfp = i % 2 ? GFP_KERNEL : GFP_NOWAIT;
		struct frame *frame = frame_new(size, gfp), *clone = frame ? frame_clone(frame, gfp) : NULL;

		if (gfp == GFP_NOWAIT && (!frame || !clone)) {
			frame_free(frame);
			continue;
		}
		CHECK(frame && clone && frame_room(frame) >= size);
		/* All the room there is. */
		size = frame_room(frame);
		memset(frame_append(frame, size), (int)i & 0xff, size);
		frame_mark(frame, (u32)i, 7);
		frame_free(clone);
		clone = frame_clone(frame, GFP_KERNEL);
		CHECK(clone && frame_marked(clone, (u32)i, 7));
		CHECK(frame_unshare(clone, 100, GFP_KERNEL) == 0 && frame_room(clone) >= size + 100);
		u8 *own = frame_bytes(clone, &length), *shared = frame_bytes(frame, &length);

		CHECK(own != shared && length == size && memcmp(own, shared, size) == 0);
		memset(frame_append(clone, 100), 0, 100);
		frame_free(frame);
		CHECK(check_all_bytes(own, size, (u8)i));
		frame_free(clone);
	}
	return NULL;
}

/* An append that does not fit reports where the frame's bytes lie. */
static void append_too_much(void *argument)
{
	(void)argument;
	struct frame *frame = frame_new(10, GFP_KERNEL);

	CHECK(!frame_append(frame, frame_room(frame) + 1));
	mem_dump_obj(NULL);
	mem_dump_obj(ZERO_SIZE_PTR);
	mem_dump_obj(&frame);
}

static void test_dump(void)
{
	char text[1024];

	CHECK_EXITED(check_child(append_too_much, NULL, text, sizeof text), 0);
	CHECK(strstr(text, "WARNING at ") && strstr(text, " slab object start 0x") &&
		      strstr(text, " pointer offset 0 size ") && strstr(text, " NULL pointer.\n") &&
		      strstr(text, " zero-size pointer.\n") && strstr(text, " non-slab memory.\n"),
	      "said: %s", text);
}

/* ---- the other names ----------------------------------------------------------------------------------- */

static void test_exact_pages(void)
{
	for (size_t size = 1; size <= PAGE_SIZE << MAX_PAGE_ORDER; size = size * 3 + 1) {
		char *pages = alloc_pages_exact(size, GFP_KERNEL | __GFP_ZERO);

		CHECK(pages && PAGE_ALIGNED(pages) && check_all_bytes(pages, size, 0));
		memset(pages, 1, PAGE_ALIGN(size));
		free_pages_exact(pages, size);
	}
	CHECK(!alloc_pages_exact(0, GFP_KERNEL) && !alloc_pages_exact(SIZE_MAX, GFP_KERNEL));
	CHECK(!alloc_pages_exact((PAGE_SIZE << MAX_PAGE_ORDER) + 1, GFP_KERNEL));
}

/* Always aligned, with its content kept and zeros behind that, whether it grows or shrinks. */
static void test_aligned_realloc(void)
{
	uint64_t random = 23;

	for (unsigned long i = check_rounds(20000, 500000, 300); i; i--) {
		size_t align = 1ul << check_below(&random, PAGE_SHIFT + 1);
		size_t from = 1 + check_below(&random, 3000), to = 1 + check_below(&random, 9000);
		char *object = kzalloc(from, GFP_KERNEL), *moved;

		CHECK(object);
		memset(object, 'x', from);
		moved = i % 2 ? krealloc_node_align(object, to, align, GFP_KERNEL | __GFP_ZERO, NUMA_NO_NODE)
			      : kvrealloc_node_align(object, to, align, GFP_KERNEL | __GFP_ZERO, 0);
		CHECK(moved && (uintptr_t)moved % align == 0 && ksize(moved) >= to);
		CHECK(check_all_bytes(moved, from < to ? from : to, 'x'));
		CHECK(from >= to || check_all_bytes(moved + from, to - from, 0));
		moved = krealloc(moved, 20000, GFP_KERNEL | __GFP_ZERO);
		CHECK(moved && check_all_bytes(moved + to, 20000 - to, 0), "%zu to %zu by %zu", from, to,
		      align);
		kfree(moved);
	}
	CHECK(krealloc_node_align(NULL, 0, 64, GFP_KERNEL, 0) == ZERO_SIZE_PTR);
	CHECK(krealloc_node_align(kmalloc(5, GFP_KERNEL), 0, 64, GFP_KERNEL, 0) == ZERO_SIZE_PTR);
	CHECK(!krealloc_node_align(NULL, SIZE_MAX, 64, GFP_KERNEL, 0));
	CHECK(!krealloc_node_align(NULL, KMALLOC_MAX_SIZE + 1, 64, GFP_KERNEL, 0));
}

static void test_other_names(void)
{
	kmem_buckets *buckets = kmem_buckets_create("buckets", SLAB_ACCOUNT, 0, 0, NULL);
	void *object = kmem_buckets_alloc(buckets, 128, GFP_KERNEL), *pages = vmalloc_user(5000);

	CHECK(buckets && object && IS_ALIGNED((uintptr_t)object, 128) && !is_vmalloc_addr(object));
	CHECK(kmem_cache_charge(object, GFP_KERNEL) && kmem_dump_obj(&pages) == false);
	kfree(object);
	object = kmem_buckets_valloc(buckets, 10 << 20, GFP_KERNEL);
	CHECK(object && check_all_bytes(pages, 5000, 0));
	kvfree(object);
	memset(pages, 'v', 5000);
	pages = vrealloc(pages, 50000, GFP_KERNEL);
	CHECK(pages && PAGE_ALIGNED(pages) && check_all_bytes(pages, 5000, 'v') &&
	      ksize(pages) >= 13 * PAGE_SIZE);
	CHECK(!vrealloc(pages, SIZE_MAX, GFP_KERNEL) && !vrealloc(pages, 0, GFP_KERNEL));
	vfree(vmalloc_huge(3 << 20, GFP_KERNEL));
	vfree(vmalloc_32(1));
	/* Scope-end cleanup recognises error pointers. */
	void *error __free(vfree) = ERR_PTR(-ENOMEM), *nothing __free(kfree_sensitive) = ERR_PTR(-EIO);
	void *page __free(free_page) = (void *)get_zeroed_page(GFP_KERNEL);

	CHECK(IS_ERR(error) && IS_ERR(nothing) && page);
}

int main(void)
{
	check_watchdog(100);
	test_sessions();
	CHECK(requests_init(RESERVE) == 0);
	test_reserve();
	check_threads(THREADS, make_requests);
	requests_exit();
	CHECK(frames_init() == 0);
	check_threads(THREADS, use_frames);
	test_dump();
	frames_exit();
	test_exact_pages();
	test_aligned_realloc();
	test_other_names();
	return 0;
}
