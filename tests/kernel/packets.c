/* SPDX-License-Identifier: MIT */
/* See modules.h.  Several packets may share one payload; each thread has some packets in reserve. */
#include "modules.h"

#include <linux/atomic.h>
#include <linux/cache.h>
#include <linux/export.h>
#include <linux/kernel.h>
#include <linux/refcount.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#define SMALL_PAYLOAD ALIGN(700, SMP_CACHE_BYTES)
#define RESERVE       40
#define PORTION       10

struct payload {
	atomic_t sharers;
	u8 bytes[] ____cacheline_aligned_in_smp;
};

struct packet {
	refcount_t users;
	unsigned int length, room;
	struct payload *payload;
};

static struct kmem_cache *packet_cache __ro_after_init;
static struct kmem_cache *small_payload_cache __ro_after_init;

/* Exchanged with the cache in batches. */
static _Thread_local struct {
	unsigned int filled;
	void *packets[RESERVE];
} reserve;

int __init packets_init(void)
{
	packet_cache = KMEM_CACHE(packet, SLAB_HWCACHE_ALIGN | SLAB_PANIC);
	small_payload_cache = kmem_cache_create_usercopy(
		"small_payload", SMALL_PAYLOAD, 0, SLAB_HWCACHE_ALIGN | SLAB_PANIC, sizeof(struct payload),
		SMALL_PAYLOAD - sizeof(struct payload), NULL);
	return 0;
}

static struct packet *take_packet(gfp_t gfp)
{
	if (!reserve.filled &&
	    kmem_cache_alloc_bulk(packet_cache, gfp | __GFP_NOWARN, PORTION, reserve.packets))
		reserve.filled = PORTION;
	return likely(reserve.filled) ? reserve.packets[--reserve.filled] : NULL;
}

static void leave_packet(struct packet *packet)
{
	if (unlikely(reserve.filled == RESERVE)) {
		reserve.filled -= PORTION;
		kmem_cache_free_bulk(packet_cache, PORTION, &reserve.packets[reserve.filled]);
	}
	reserve.packets[reserve.filled++] = packet;
}

/* From a cache or from kmalloc, which kfree() tells apart; *room is the number of bytes for the packet. */
static struct payload *new_payload(unsigned int length, unsigned int *room, gfp_t gfp)
{
	size_t bytes = struct_size_t(struct payload, bytes, L1_CACHE_ALIGN(length));
	struct payload *payload;

	if (bytes > SMALL_PAYLOAD) {
		bytes = kmalloc_size_roundup(bytes);
		payload = kmalloc_node_track_caller(bytes, gfp, NUMA_NO_NODE);
	} else {
		bytes = SMALL_PAYLOAD;
		payload = kmem_cache_alloc_node(small_payload_cache, gfp, NUMA_NO_NODE);
	}
	if (payload)
		atomic_set(&payload->sharers, 1);
	*room = (unsigned int)round_down(bytes - sizeof(*payload), SMP_CACHE_BYTES);
	return payload;
}

/* A packet that takes over one reference to the payload. */
static struct packet *with_payload(struct packet *packet, struct payload *payload, unsigned int length,
				   unsigned int room)
{
	refcount_set(&packet->users, 1);
	packet->payload = payload;
	packet->length = length;
	packet->room = room;
	return packet;
}

struct packet *packet_new(unsigned int length, gfp_t gfp)
{
	struct payload *payload;
	struct packet *packet;
	unsigned int room;

	if (WARN_ON_ONCE(length > SZ_1M))
		return NULL;
	payload = new_payload(length, &room, gfp);
	packet = payload ? take_packet(gfp) : NULL;
	if (packet)
		return with_payload(packet, payload, length, room);
	kfree(payload);
	return NULL;
}
EXPORT_SYMBOL(packet_new);

struct packet *packet_share(struct packet *packet, gfp_t gfp)
{
	struct packet *other = take_packet(gfp);

	if (!other)
		return NULL;
	atomic_inc(&packet->payload->sharers);
	return with_payload(other, packet->payload, packet->length, packet->room);
}
EXPORT_SYMBOL(packet_share);

struct packet *packet_hold(struct packet *packet)
{
	refcount_inc(&packet->users);
	return packet;
}
EXPORT_SYMBOL(packet_hold);

void packet_drop(struct packet *packet)
{
	if (packet && refcount_dec_and_test(&packet->users)) {
		if (atomic_dec_and_test(&packet->payload->sharers))
			kfree(packet->payload);
		leave_packet(packet);
	}
}
EXPORT_SYMBOL(packet_drop);

u8 *packet_bytes(struct packet *packet)
{
	return packet->payload->bytes;
}
EXPORT_SYMBOL(packet_bytes);

unsigned int packet_room(const struct packet *packet)
{
	return packet->room;
}
EXPORT_SYMBOL(packet_room);

/* Frees a thread's reserve when it ends. */
void packets_flush(void)
{
	kmem_cache_free_bulk(packet_cache, reserve.filled, reserve.packets);
	reserve.filled = 0;
}

void packets_exit(void)
{
	packets_flush();
	kmem_cache_destroy(small_payload_cache);
	kmem_cache_destroy(packet_cache);
}
