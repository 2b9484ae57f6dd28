/* SPDX-License-Identifier: MIT */
/*
 * See modules.h.  The head of a frame has one part that is copied as a whole, and another that user space may
 * see; its bytes are in kmalloc memory, all of which is used, or in whole pages, and clones share them.
 */
#include "modules.h"

#include <linux/bug.h>
#include <linux/build_bug.h>
#include <linux/cache.h>
#include <linux/cleanup.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/string.h>

#define FRAME_ROOM 128

/* Behind the bytes, wherever these end. */
struct frame_tail {
	refcount_t users;
	bool paged;
};

struct frame {
	struct frame *next;
	struct_group_tagged(frame_state, state, u32 mark; u16 protocol; u16 queue;
			    u8 address[6] __aligned(2););
	unsigned int length, room;
	u8 *head;
	char control[40];
	struct {
		u32 flags;
		DECLARE_FLEX_ARRAY(u8, behind);
	} last;
};

static struct kmem_cache *frame_cache __ro_after_init;

int __init frames_init(void)
{
	BUILD_BUG_ON(sizeof(struct frame_state) != sizeof_field(struct frame, state));
	BUILD_BUG_ON(offsetof(struct frame, mark) != offsetof(struct frame, state));
	BUILD_BUG_ON(offsetof(struct frame, last.behind) !=
		     sizeof_field(struct frame, last) + offsetof(struct frame, last));
	frame_cache = kmem_cache_create_usercopy(
		"frame", sizeof(struct frame), 0, SLAB_HWCACHE_ALIGN | SLAB_PANIC,
		offsetof(struct frame, control), sizeof_field(struct frame, control), NULL);
	return 0;
}

static struct frame_tail *tail_of(const struct frame *frame)
{
	return (struct frame_tail *)(frame->head + frame->room);
}

/* Rounds up to the size of the memory; *room is what the tail leaves of it. */
static void *new_head(size_t size, gfp_t gfp, unsigned int *room, bool *paged)
{
	size_t tail = ALIGN(sizeof(struct frame_tail), ARCH_SLAB_MINALIGN);
	size_t all = size_add(ALIGN(size, ARCH_SLAB_MINALIGN), tail);
	void *head;

	*paged = all > KMALLOC_MAX_CACHE_SIZE;
	if (*paged) {
		all = PAGE_ALIGN(all);
		head = alloc_pages_exact(all, gfp);
	} else {
		all = kmalloc_size_roundup(all);
		head = kmalloc(all, gfp);
	}
	*room = ALIGN_DOWN(all - tail, ARCH_SLAB_MINALIGN);
	return head;
}

struct frame *frame_new(unsigned int size, gfp_t gfp)
{
	struct frame *frame = kmem_cache_alloc_node(frame_cache, gfp, NUMA_NO_NODE);
	bool paged;

	if (!frame)
		return NULL;
	memset(frame, 0, offsetof(struct frame, control));
	frame->head = new_head(size, gfp, &frame->room, &paged);
	if (!frame->head) {
		kmem_cache_free(frame_cache, frame);
		return NULL;
	}
	memset_after(frame, 0, control);
	refcount_set(&tail_of(frame)->users, 1);
	tail_of(frame)->paged = paged;
	return frame;
}

unsigned int frame_room(const struct frame *frame)
{
	return frame->room;
}

void frame_mark(struct frame *frame, u32 mark, u16 protocol)
{
	frame->mark = mark;
	frame->protocol = protocol;
	memset(frame->address, (int)mark & 0xff, sizeof(frame->address));
}

bool frame_marked(const struct frame *frame, u32 mark, u16 protocol)
{
	return frame->mark == mark && frame->state.protocol == protocol &&
	       !memchr_inv(frame->address, (int)mark & 0xff, sizeof(frame->address));
}

u8 *frame_append(struct frame *frame, unsigned int bytes)
{
	u8 *at = frame->head + frame->length;

	if (WARN_ON_ONCE(bytes > frame->room - frame->length)) {
		mem_dump_obj(at);
		return NULL;
	}
	frame->length += bytes;
	return at;
}

/* The clone shares the bytes. */
struct frame *frame_clone(const struct frame *frame, gfp_t gfp)
{
	struct frame *clone = kmem_cache_alloc(frame_cache, gfp);

	if (!clone)
		return NULL;
	*clone = (struct frame){.head = frame->head, .length = frame->length, .room = frame->room};
	memcpy(&clone->state, &frame->state, sizeof(clone->state));
	refcount_inc(&tail_of(frame)->users);
	return clone;
}

static void put_head(struct frame *frame)
{
	struct frame_tail *tail = tail_of(frame);

	if (!refcount_dec_and_test(&tail->users))
		return;
	if (tail->paged)
		free_pages_exact(frame->head, PAGE_ALIGN(frame->room + sizeof(*tail)));
	else
		kfree(frame->head);
}

/* Gives a frame bytes of its own, with room for more; its clones keep the shared ones. */
int frame_unshare(struct frame *frame, unsigned int more, gfp_t gfp)
{
	struct frame own = *frame;
	bool paged;

	own.head = new_head(size_add(frame->length, more), gfp, &own.room, &paged);
	if (!own.head)
		return -ENOMEM;
	memcpy(own.head, frame->head, frame->length);
	refcount_set(&tail_of(&own)->users, 1);
	tail_of(&own)->paged = paged;
	put_head(frame);
	frame->head = own.head;
	frame->room = own.room;
	return 0;
}

u8 *frame_bytes(struct frame *frame, unsigned int *length)
{
	*length = frame->length;
	return frame->head;
}

void frame_free(struct frame *frame)
{
	if (!frame)
		return;
	put_head(frame);
	kmem_cache_free(frame_cache, frame);
}

void frames_exit(void)
{
	kmem_cache_destroy(frame_cache);
}
