/* SPDX-License-Identifier: MIT */
/*
 * Slab allocation in the kernel's own spelling (linux/slab.h), so that kernel sources compile in user space
 * unchanged: kmalloc and its family, kmem_cache_*, kfree_rcu; with gfp.h and mempool.h.  The folder that
 * `pkg-config --variable=kernel cpuslab` prints has <linux/slab.h> and a few of its neighbours on top of
 * them. docs/kmem.md lists the differences from the kernel.
 *
 * Every function does what the kernel's of the same name does, may be called from any thread, and is not
 * async-signal-safe. kmalloc's memory is malloc's: kfree() and free() both take either's, and the objects of
 * caches.  Functions that allocate return NULL when they cannot; freeing may wait for a lock that is held for
 * a few instructions, where the kernel's never does.
 *
 * kfree_rcu and SLAB_TYPESAFE_BY_RCU are built on liburcu.  To have them, define CPUSLAB_KMEM_RCU before
 * including this header (or with -D); the program then needs liburcu's headers and library.  A liburcu header
 * that is included first chooses the flavour, else <urcu.h> does.  Without CPUSLAB_KMEM_RCU, using either
 * does not compile.
 */
#ifndef CPUSLAB_KMEM_H
#define CPUSLAB_KMEM_H

#include <limits.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cpuslab/cache.h"
#include "cpuslab/gfp.h"
#include "cpuslab/mempool.h"

#ifdef CPUSLAB_KMEM_RCU
#ifndef URCU_API_MAP
#include <urcu.h>
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The library's functions behind the names below; `most` is the largest size allowed. */
CPUSLAB_API void *cpuslab_kmem_alloc(size_t size, size_t most, gfp_t flags);
CPUSLAB_API void *cpuslab_kmem_realloc(const void *object, size_t size, size_t most, gfp_t flags);

/* Whether the flags are those of most calls: the call may wait, and asks for nothing else. */
static inline bool cpuslab_kmem_is_plain(gfp_t flags)
{
	return (flags & (__GFP_DIRECT_RECLAIM | __GFP_ZERO | __GFP_NOFAIL)) == __GFP_DIRECT_RECLAIM;
}

/* ---- kmalloc ------------------------------------------------------------------------------------------- */

/* What an allocation of 0 bytes returns: not NULL, must not be accessed, may be freed. */
#define ZERO_SIZE_PTR            ((void *)16)
#define ZERO_OR_NULL_PTR(object) ((unsigned long)(object) <= (unsigned long)ZERO_SIZE_PTR)

#define KMALLOC_MAX_SIZE       (4ul << 20)
#define KMALLOC_MAX_CACHE_SIZE 8192ul
#define KMALLOC_MIN_SIZE       8
#define ARCH_KMALLOC_MINALIGN  8
#define ARCH_SLAB_MINALIGN     8

/*
 * Allocates `size` bytes, up to KMALLOC_MAX_SIZE, aligned to 8 and to the largest power of two that divides
 * the size.  Returns ZERO_SIZE_PTR for 0 bytes.
 */
static inline void *kmalloc(size_t size, gfp_t flags)
{
	if (size - 1 < PAGE_SIZE && cpuslab_kmem_is_plain(flags)) {
		void *object = malloc(size);

		/* malloc's objects have this alignment, unless a canary (hardened) makes them larger. */
		if (!((uintptr_t)object & ((size & -size) - 1)))
			return object;
		free(object);
	}
	return cpuslab_kmem_alloc(size, KMALLOC_MAX_SIZE, flags);
}

static inline void *kzalloc(size_t size, gfp_t flags)
{
	return kmalloc(size, flags | __GFP_ZERO);
}

/* Returns NULL when count * size overflows. */
static inline void *kmalloc_array(size_t count, size_t size, gfp_t flags)
{
	size_t bytes;

	return __builtin_mul_overflow(count, size, &bytes) ? NULL : kmalloc(bytes, flags);
}

static inline void *kcalloc(size_t count, size_t size, gfp_t flags)
{
	return kmalloc_array(count, size, flags | __GFP_ZERO);
}

static inline void *kmalloc_node(size_t size, gfp_t flags, int node)
{
	(void)node;
	return kmalloc(size, flags);
}

static inline void *kzalloc_node(size_t size, gfp_t flags, int node)
{
	return kmalloc_node(size, flags | __GFP_ZERO, node);
}

static inline void *kmalloc_array_node(size_t count, size_t size, gfp_t flags, int node)
{
	(void)node;
	return kmalloc_array(count, size, flags);
}

static inline void *kcalloc_node(size_t count, size_t size, gfp_t flags, int node)
{
	return kmalloc_array_node(count, size, flags | __GFP_ZERO, node);
}

/* Owners (CPUSLAB_DEBUG=U) and heap profiles record all callers anyway, so these two are plain kmalloc(). */
static inline void *kmalloc_track_caller(size_t size, gfp_t flags)
{
	return kmalloc(size, flags);
}

static inline void *kmalloc_node_track_caller(size_t size, gfp_t flags, int node)
{
	return kmalloc_node(size, flags, node);
}

/* Takes memory of kmalloc, kvmalloc, vmalloc or any cache. */
static inline void kfree(const void *object)
{
	if (!ZERO_OR_NULL_PTR(object))
		free((void *)(uintptr_t)object);
}

/* Returns the usable size of an object, at least what was asked for; 0 for NULL and ZERO_SIZE_PTR. */
static inline size_t ksize(const void *object)
{
	return ZERO_OR_NULL_PTR(object) ? 0 : malloc_usable_size((void *)(uintptr_t)object);
}

/*
 * Returns a lower bound of what ksize() reports for kmalloc(size), except of an object that the option guard
 * picks; sizes that kmalloc refuses come back unchanged.
 */
static inline size_t kmalloc_size_roundup(size_t size)
{
	size_t rounded = !size || size > KMALLOC_MAX_SIZE ? size : cpuslab_malloc_size(size);
	size_t pages = (size + PAGE_SIZE - 1) & PAGE_MASK;

	/* Large objects need more than their pages only where no power of two has to divide their address. */
	return rounded > pages && rounded % PAGE_SIZE ? pages : rounded;
}

/*
 * Returns a block of `size` bytes with the old block's content; the old block itself if it is large enough.
 * When memory is short, returns NULL and the old block stays.  Size 0 frees.  With __GFP_ZERO in every call
 * for a block, its new bytes are zero.
 */
static inline void *krealloc(const void *object, size_t size, gfp_t flags)
{
	return cpuslab_kmem_realloc(object, size, KMALLOC_MAX_SIZE, flags);
}

static inline void *krealloc_array(void *object, size_t count, size_t size, gfp_t flags)
{
	size_t bytes;

	return __builtin_mul_overflow(count, size, &bytes) ? NULL : krealloc(object, bytes, flags);
}

/*
 * As krealloc, and the result is aligned to a power of two up to a page, whether the block moves or not.  A
 * block that moves gets the rounded size, which gives it the alignment.
 */
static inline void *cpuslab_kmem_realloc_aligned(const void *object, size_t size, size_t align, size_t most,
						 gfp_t flags)
{
	size_t rounded = (size + align - 1) & ~(align - 1);
	void *moved;

	if (rounded < size)
		return NULL;
	if (!size || ZERO_OR_NULL_PTR(object) || !((uintptr_t)object & (align - 1)))
		return cpuslab_kmem_realloc(object, size > ksize(object) ? rounded : size, most, flags);
	moved = cpuslab_kmem_realloc(NULL, rounded, most, flags);
	if (moved) {
		memcpy(moved, object, ksize(object) < size ? ksize(object) : size);
		kfree(object);
	}
	return moved;
}

/* Since Linux 6.18.  `align` is a power of two up to PAGE_SIZE. */
static inline void *krealloc_node_align(const void *object, size_t size, unsigned long align, gfp_t flags,
					int node)
{
	(void)node;
	return cpuslab_kmem_realloc_aligned(object, size, align, KMALLOC_MAX_SIZE, flags);
}

static inline void *krealloc_node(const void *object, size_t size, gfp_t flags, int node)
{
	(void)node;
	return krealloc(object, size, flags);
}

/* As memset to zero, but the compiler does not remove it. */
static inline void memzero_explicit(void *object, size_t size)
{
	memset(object, 0, size);
	__asm__ __volatile__("" : : "r"(object) : "memory");
}

/* Clears the whole object before freeing it. */
static inline void kfree_sensitive(const void *object)
{
	if (ksize(object))
		memzero_explicit((void *)(uintptr_t)object, ksize(object));
	kfree(object);
}

/*
 * Since Linux 6.18: never waits, whatever the flags, of which only __GFP_ZERO counts; up to
 * KMALLOC_MAX_CACHE_SIZE bytes.  kfree_nolock() is kfree() here: not for signal handlers.
 */
static inline void *kmalloc_nolock(size_t size, gfp_t flags, int node)
{
	(void)node;
	return size > KMALLOC_MAX_CACHE_SIZE ? NULL : kmalloc(size, (flags & __GFP_ZERO) | __GFP_NOWARN);
}

static inline void kfree_nolock(const void *object)
{
	kfree(object);
}

static inline void kfree_bulk(size_t count, void **objects)
{
	for (size_t i = 0; i < count; i++)
		kfree(objects[i]);
}

/* ---- kvmalloc: the same, for sizes up to INT_MAX ------------------------------------------------------ */

static inline void *kvmalloc(size_t size, gfp_t flags)
{
	return cpuslab_kmem_alloc(size, INT_MAX, flags);
}

static inline void *kvzalloc(size_t size, gfp_t flags)
{
	return kvmalloc(size, flags | __GFP_ZERO);
}

static inline void *kvmalloc_array(size_t count, size_t size, gfp_t flags)
{
	size_t bytes;

	return __builtin_mul_overflow(count, size, &bytes) ? NULL : kvmalloc(bytes, flags);
}

static inline void *kvcalloc(size_t count, size_t size, gfp_t flags)
{
	return kvmalloc_array(count, size, flags | __GFP_ZERO);
}

static inline void *kvmalloc_node(size_t size, gfp_t flags, int node)
{
	(void)node;
	return kvmalloc(size, flags);
}

static inline void *kvzalloc_node(size_t size, gfp_t flags, int node)
{
	return kvmalloc_node(size, flags | __GFP_ZERO, node);
}

static inline void *kvmalloc_array_node(size_t count, size_t size, gfp_t flags, int node)
{
	(void)node;
	return kvmalloc_array(count, size, flags);
}

static inline void *kvcalloc_node(size_t count, size_t size, gfp_t flags, int node)
{
	return kvmalloc_array_node(count, size, flags | __GFP_ZERO, node);
}

static inline void *kvrealloc(const void *object, size_t size, gfp_t flags)
{
	return cpuslab_kmem_realloc(object, size, INT_MAX, flags);
}

static inline void *kvrealloc_node(const void *object, size_t size, gfp_t flags, int node)
{
	(void)node;
	return kvrealloc(object, size, flags);
}

static inline void *kvrealloc_node_align(const void *object, size_t size, unsigned long align, gfp_t flags,
					 int node)
{
	(void)node;
	return cpuslab_kmem_realloc_aligned(object, size, align, INT_MAX, flags);
}

static inline void kvfree(const void *object)
{
	kfree(object);
}

static inline void kvfree_sensitive(const void *object, size_t size)
{
	if (!ZERO_OR_NULL_PTR(object))
		memzero_explicit((void *)(uintptr_t)object, size);
	kvfree(object);
}

/* ---- vmalloc: whole pages, as many as there is memory for ---------------------------------------------- */

/* Returns NULL for 0 bytes. */
static inline void *__vmalloc(size_t size, gfp_t flags)
{
	size_t most = ~(size_t)0 >> 1;

	return size - 1 < most - PAGE_SIZE
		       ? cpuslab_kmem_alloc((size + PAGE_SIZE - 1) & PAGE_MASK, most, flags)
		       : NULL;
}

static inline void *vmalloc(size_t size)
{
	return __vmalloc(size, GFP_KERNEL);
}

static inline void *vzalloc(size_t size)
{
	return __vmalloc(size, GFP_KERNEL | __GFP_ZERO);
}

static inline void *vmalloc_node(size_t size, int node)
{
	(void)node;
	return vmalloc(size);
}

static inline void *vzalloc_node(size_t size, int node)
{
	(void)node;
	return vzalloc(size);
}

static inline void *__vmalloc_array(size_t count, size_t size, gfp_t flags)
{
	size_t bytes;

	return __builtin_mul_overflow(count, size, &bytes) ? NULL : __vmalloc(bytes, flags);
}

static inline void *vmalloc_array(size_t count, size_t size)
{
	return __vmalloc_array(count, size, GFP_KERNEL);
}

static inline void *vcalloc(size_t count, size_t size)
{
	return __vmalloc_array(count, size, GFP_KERNEL | __GFP_ZERO);
}

static inline void *vmalloc_huge(size_t size, gfp_t flags)
{
	return __vmalloc(size, flags);
}

/* Zeroed, since the kernel's may be mapped by programs. */
static inline void *vmalloc_user(size_t size)
{
	return vzalloc(size);
}

static inline void *vmalloc_32(size_t size)
{
	return vmalloc(size);
}

static inline void vfree(const void *object)
{
	kfree(object);
}

/*
 * Whole pages again.  When memory is short, returns NULL and the old ones stay.  Size 0 frees, and returns
 * NULL.
 */
static inline void *vrealloc(const void *object, size_t size, gfp_t flags)
{
	size_t most = ~(size_t)0 >> 1;

	if (size)
		return size < most - PAGE_SIZE
			       ? cpuslab_kmem_realloc(object, (size + PAGE_SIZE - 1) & PAGE_MASK, most, flags)
			       : NULL;
	vfree(object);
	return NULL;
}

/* Whether only vfree() may take it: never here, since kfree() takes everything. */
static inline bool is_vmalloc_addr(const void *object)
{
	(void)object;
	return false;
}

/* ---- buckets, since Linux 6.11 ------------------------------------------------------------------------- */

/*
 * A second set of kmalloc's caches, for objects whose sizes come from outside.  As in a kernel that is built
 * without them, creating one makes nothing and does not return NULL, and what is allocated from it is
 * kmalloc's.
 */
typedef struct kmem_cache *kmem_buckets[1];

static inline kmem_buckets *kmem_buckets_create(const char *name, unsigned int flags, unsigned int useroffset,
						unsigned int usersize, void (*ctor)(void *))
{
	(void)name, (void)flags, (void)useroffset, (void)usersize, (void)ctor;
	return (kmem_buckets *)ZERO_SIZE_PTR;
}

static inline void *kmem_buckets_alloc(kmem_buckets *buckets, size_t size, gfp_t flags)
{
	(void)buckets;
	return kmalloc(size, flags);
}

static inline void *kmem_buckets_alloc_track_caller(kmem_buckets *buckets, size_t size, gfp_t flags)
{
	return kmem_buckets_alloc(buckets, size, flags);
}

static inline void *kmem_buckets_valloc(kmem_buckets *buckets, size_t size, gfp_t flags)
{
	(void)buckets;
	return kvmalloc(size, flags);
}

/* ---- by type, since Linux 7.0 -------------------------------------------------------------------------- */

/*
 * kmalloc_obj(type), kmalloc_objs(type, count), and kmalloc_flex(type, member, count) for a struct with
 * `count` elements of its last member; a variable may stand for its type.  Each returns a pointer to the
 * type, and takes flags as an optional last argument (default GFP_KERNEL).
 */
#define kmalloc_obj(...)   CPUSLAB_KMEM_OBJ(kmalloc, __VA_ARGS__, GFP_KERNEL, )
#define kzalloc_obj(...)   CPUSLAB_KMEM_OBJ(kzalloc, __VA_ARGS__, GFP_KERNEL, )
#define kvmalloc_obj(...)  CPUSLAB_KMEM_OBJ(kvmalloc, __VA_ARGS__, GFP_KERNEL, )
#define kvzalloc_obj(...)  CPUSLAB_KMEM_OBJ(kvzalloc, __VA_ARGS__, GFP_KERNEL, )
#define kmalloc_objs(...)  CPUSLAB_KMEM_OBJS(kmalloc_array, __VA_ARGS__, GFP_KERNEL, )
#define kzalloc_objs(...)  CPUSLAB_KMEM_OBJS(kcalloc, __VA_ARGS__, GFP_KERNEL, )
#define kvmalloc_objs(...) CPUSLAB_KMEM_OBJS(kvmalloc_array, __VA_ARGS__, GFP_KERNEL, )
#define kvzalloc_objs(...) CPUSLAB_KMEM_OBJS(kvcalloc, __VA_ARGS__, GFP_KERNEL, )
#define kmalloc_flex(...)  CPUSLAB_KMEM_FLEX(kmalloc, __VA_ARGS__, GFP_KERNEL, )
#define kzalloc_flex(...)  CPUSLAB_KMEM_FLEX(kzalloc, __VA_ARGS__, GFP_KERNEL, )
#define kvmalloc_flex(...) CPUSLAB_KMEM_FLEX(kvmalloc, __VA_ARGS__, GFP_KERNEL, )
#define kvzalloc_flex(...) CPUSLAB_KMEM_FLEX(kvzalloc, __VA_ARGS__, GFP_KERNEL, )

#define CPUSLAB_KMEM_OBJ(allocate, type, flags, ...)                                                         \
	((__typeof__(type) *)allocate(sizeof(__typeof__(type)), flags))
#define CPUSLAB_KMEM_OBJS(allocate, type, count, flags, ...)                                                 \
	((__typeof__(type) *)allocate(count, sizeof(__typeof__(type)), flags))
#define CPUSLAB_KMEM_FLEX(allocate, type, member, count, flags, ...)                                         \
	((__typeof__(type) *)allocate(cpuslab_kmem_flex_bytes(sizeof(__typeof__(type)), count,               \
							      sizeof(*((__typeof__(type) *)0)->member)),     \
				      flags))

/* Returns SIZE_MAX, which no allocator has, when the sum overflows. */
static inline size_t cpuslab_kmem_flex_bytes(size_t base, size_t count, size_t size)
{
	size_t bytes;

	return __builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(bytes, base, &bytes)
		       ? ~(size_t)0
		       : bytes;
}

/* ---- copies -------------------------------------------------------------------------------------------- */

static inline void *kmemdup(const void *source, size_t size, gfp_t flags)
{
	void *copy = kmalloc(size, flags);

	return copy && size ? memcpy(copy, source, size) : copy;
}

static inline void *kmemdup_array(const void *source, size_t count, size_t size, gfp_t flags)
{
	size_t bytes;

	return __builtin_mul_overflow(count, size, &bytes) ? NULL : kmemdup(source, bytes, flags);
}

static inline void *kvmemdup(const void *source, size_t size, gfp_t flags)
{
	void *copy = kvmalloc(size, flags);

	return copy && size ? memcpy(copy, source, size) : copy;
}

/* Copies `length` bytes and adds a null character. */
static inline char *kmemdup_nul(const char *source, size_t length, gfp_t flags)
{
	char *copy = source ? (char *)kmalloc(length + 1, flags) : NULL;

	if (copy) {
		memcpy(copy, source, length);
		copy[length] = 0;
	}
	return copy;
}

/* Returns NULL for NULL. */
static inline char *kstrdup(const char *string, gfp_t flags)
{
	return string ? (char *)kmemdup(string, strlen(string) + 1, flags) : NULL;
}

/* Copies at most `most` characters of the string. */
static inline char *kstrndup(const char *string, size_t most, gfp_t flags)
{
	const char *end = string ? (const char *)memchr(string, 0, most) : NULL;

	return kmemdup_nul(string, end ? (size_t)(end - string) : most, flags);
}

/* ---- RCU ----------------------------------------------------------------------------------------------- */

#ifdef CPUSLAB_KMEM_RCU

/* Finds the object from the head inside it. */
static inline void cpuslab_kmem_free_rcu(struct rcu_head *head)
{
	void *object = cpuslab_object_of(head);

	/* Of none, the head itself: the report of that free names what was passed. */
	kvfree(object ? object : (void *)head);
}

struct cpuslab_kmem_deferred {
	struct rcu_head head;
	const void *object;
};

static inline void cpuslab_kmem_free_deferred(struct rcu_head *head)
{
	struct cpuslab_kmem_deferred *deferred = (struct cpuslab_kmem_deferred *)(void *)head;

	kvfree(deferred->object);
	kfree(deferred);
}

/*
 * Frees an object that has no rcu_head after a grace period; waits for one itself if there is no memory to
 * defer the free.
 */
static inline void kfree_rcu_mightsleep(const void *object)
{
	struct cpuslab_kmem_deferred *deferred;

	if (!object)
		return;
	deferred = (struct cpuslab_kmem_deferred *)kmalloc(sizeof *deferred, GFP_KERNEL);
	if (deferred) {
		deferred->object = object;
		call_rcu(&deferred->head, cpuslab_kmem_free_deferred);
	} else {
		synchronize_rcu();
		kvfree(object);
	}
}

/* Waits until everything deferred has been freed; must not be called by a reader. */
static inline void kvfree_rcu_barrier(void)
{
	rcu_barrier();
}

/*
 * kfree_rcu(object, member): `member` is its struct rcu_head, within the first 4096 bytes.  NULL is ignored.
 */
#define CPUSLAB_KFREE_RCU_MEMBER(object, member)                                                             \
	do {                                                                                                 \
		__typeof__(object) cpuslab_object = (object);                                                \
		enum { cpuslab_in_reach = 1 / (offsetof(__typeof__(*cpuslab_object), member) < 4096) };      \
		if (cpuslab_object)                                                                          \
			call_rcu(&cpuslab_object->member, cpuslab_kmem_free_rcu);                            \
	} while (0)

#else

#define CPUSLAB_KMEM_NEEDS_RCU "kfree_rcu and SLAB_TYPESAFE_BY_RCU need liburcu: define CPUSLAB_KMEM_RCU"
#ifdef __cplusplus
#define CPUSLAB_KMEM_NO_RCU                                                                                  \
	__extension__({                                                                                      \
		static_assert(sizeof(char[2]) == 1, CPUSLAB_KMEM_NEEDS_RCU);                                 \
		0u;                                                                                          \
	})
#else
#define CPUSLAB_KMEM_NO_RCU                                                                                  \
	((unsigned)sizeof(struct {                                                                           \
		_Static_assert(0, CPUSLAB_KMEM_NEEDS_RCU);                                                   \
		int none;                                                                                    \
	}))
#endif
#define kvfree_rcu_barrier()                     ((void)CPUSLAB_KMEM_NO_RCU)
#define kfree_rcu_mightsleep(object)             ((void)(object), (void)CPUSLAB_KMEM_NO_RCU)
#define CPUSLAB_KFREE_RCU_MEMBER(object, member) ((void)(object), (void)CPUSLAB_KMEM_NO_RCU)

#endif

/* Frees after a grace period: kfree_rcu(object, member), or kfree_rcu(object), which may wait. */
#define CPUSLAB_KFREE_RCU_ALONE(object)           kfree_rcu_mightsleep(object)
#define CPUSLAB_KFREE_RCU_CHOOSE(a, b, name, ...) name
#define kfree_rcu(...)                                                                                       \
	CPUSLAB_KFREE_RCU_CHOOSE(__VA_ARGS__, CPUSLAB_KFREE_RCU_MEMBER, CPUSLAB_KFREE_RCU_ALONE, )           \
	(__VA_ARGS__)
#define kvfree_rcu(...)               kfree_rcu(__VA_ARGS__)
#define kvfree_rcu_mightsleep(object) kfree_rcu_mightsleep(object)
/* In the kernel, for one cache's objects; here, for all. */
#define kvfree_rcu_barrier_on_cache(cache) ((void)(cache), kvfree_rcu_barrier())

/* ---- caches -------------------------------------------------------------------------------------------- */

struct kmem_cache; /* struct cpuslab_cache by another name */

typedef unsigned int slab_flags_t;

#define SLAB_CONSISTENCY_CHECKS ((slab_flags_t)CPUSLAB_CACHE_CONSISTENCY_CHECKS)
#define SLAB_RED_ZONE           ((slab_flags_t)CPUSLAB_CACHE_RED_ZONE)
#define SLAB_POISON             ((slab_flags_t)CPUSLAB_CACHE_POISON)
#define SLAB_STORE_USER         ((slab_flags_t)CPUSLAB_CACHE_STORE_USER)
#define SLAB_TRACE              ((slab_flags_t)CPUSLAB_CACHE_TRACE)
#define SLAB_HWCACHE_ALIGN      ((slab_flags_t)CPUSLAB_CACHE_HWCACHE_ALIGN)
#define SLAB_PANIC              ((slab_flags_t)CPUSLAB_CACHE_PANIC)
#define SLAB_NO_MERGE           ((slab_flags_t)CPUSLAB_CACHE_NO_MERGE)
#define SLAB_NOLEAKTRACE        ((slab_flags_t)CPUSLAB_CACHE_NO_MERGE)
#define SLAB_ACCOUNT            ((slab_flags_t)CPUSLAB_CACHE_ACCOUNT)
#define SLAB_RECLAIM_ACCOUNT    ((slab_flags_t)CPUSLAB_CACHE_RECLAIM_ACCOUNT)
#define SLAB_TEMPORARY          SLAB_RECLAIM_ACCOUNT
/* Zero, as in a kernel that is built without what they ask for. */
#define SLAB_CACHE_DMA     ((slab_flags_t)0)
#define SLAB_CACHE_DMA32   ((slab_flags_t)0)
#define SLAB_MEM_SPREAD    ((slab_flags_t)0)
#define SLAB_DEBUG_OBJECTS ((slab_flags_t)0)
#define SLAB_FAILSLAB      ((slab_flags_t)0)
#define SLAB_KASAN         ((slab_flags_t)0)
#define SLAB_SKIP_KFENCE   ((slab_flags_t)0)
#define SLAB_NO_USER_FLAGS ((slab_flags_t)0)
/*
 * Memory of the cache stays memory of objects of its type until the cache is destroyed, and
 * kmem_cache_destroy waits for readers to finish.
 */
#ifdef CPUSLAB_KMEM_RCU
#define SLAB_TYPESAFE_BY_RCU ((slab_flags_t)CPUSLAB_CACHE_TYPESAFE_BY_RCU)
#else
#define SLAB_TYPESAFE_BY_RCU ((slab_flags_t)CPUSLAB_KMEM_NO_RCU)
#endif

struct kmem_cache_args {
	unsigned int align;
	unsigned int useroffset; /* the part of an object that may be copied to user space: */
	unsigned int usersize;   /* nothing checks it here, but such a cache is not merged */
	unsigned int freeptr_offset;
	bool use_freeptr_offset;
	void (*ctor)(void *object);
	unsigned int sheaf_capacity; /* objects in a CPU's array; 0: chosen by the size */
};

CPUSLAB_API void *cpuslab_kmem_cache_alloc(struct kmem_cache *cache, gfp_t flags);
CPUSLAB_API int cpuslab_kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t count,
					      void **objects);

static inline struct kmem_cache *__kmem_cache_create_args(const char *name, unsigned int size,
							  struct kmem_cache_args *args, slab_flags_t flags)
{
	struct cpuslab_cache_args own;

	memset(&own, 0, sizeof own);
	own.name = name;
	own.size = size;
	own.align = args->align;
	own.constructor = args->ctor;
	own.flags = flags | (args->usersize ? (unsigned)CPUSLAB_CACHE_NO_MERGE : 0u);
	own.magazine_capacity = args->sheaf_capacity < (unsigned)CPUSLAB_CACHE_MAGAZINE_MAX
					? args->sheaf_capacity
					: (unsigned)CPUSLAB_CACHE_MAGAZINE_MAX;
	own.free_pointer_offset = args->freeptr_offset;
	own.use_free_pointer_offset = args->use_freeptr_offset;
	return (struct kmem_cache *)(void *)cpuslab_cache_create(&own);
}

static inline struct kmem_cache *__kmem_cache_default_args(const char *name, unsigned int size,
							   struct kmem_cache_args *args, slab_flags_t flags)
{
	struct kmem_cache_args none;

	memset(&none, 0, sizeof none);
	return __kmem_cache_create_args(name, size, args ? args : &none, flags);
}

static inline struct kmem_cache *kmem_cache_create_usercopy(const char *name, unsigned int size,
							    unsigned int align, slab_flags_t flags,
							    unsigned int useroffset, unsigned int usersize,
							    void (*ctor)(void *))
{
	struct kmem_cache_args args;

	memset(&args, 0, sizeof args);
	args.align = align;
	args.ctor = ctor;
	args.useroffset = useroffset;
	args.usersize = usersize;
	return __kmem_cache_create_args(name, size, &args, flags);
}

static inline struct kmem_cache *__kmem_cache_create(const char *name, unsigned int size, unsigned int align,
						     slab_flags_t flags, void (*ctor)(void *))
{
	return kmem_cache_create_usercopy(name, size, align, flags, 0, 0, ctor);
}

/*
 * Two forms: kmem_cache_create(name, size, align, flags, ctor), and since Linux 6.12 kmem_cache_create(name,
 * size, args, flags) with a struct kmem_cache_args, or NULL for none.  Returns NULL on failure; with
 * SLAB_PANIC, prints a message and aborts.
 */
#ifndef __cplusplus
#define kmem_cache_create(name, size, args, ...)                                                             \
	_Generic((args),                                                                                     \
		struct kmem_cache_args *: __kmem_cache_create_args,                                          \
		void *: __kmem_cache_default_args,                                                           \
		default: __kmem_cache_create)(name, size, args, __VA_ARGS__)
#endif

/*
 * A cache named after a struct, with its size and alignment. _USERCOPY: `member` is the part for user space.
 */
#define KMEM_CACHE(type, flags)                                                                              \
	__kmem_cache_create(#type, sizeof(struct type), __alignof__(struct type), flags, NULL)
#define KMEM_CACHE_USERCOPY(type, flags, member)                                                             \
	kmem_cache_create_usercopy(#type, sizeof(struct type), __alignof__(struct type), flags,              \
				   offsetof(struct type, member), sizeof(((struct type *)0)->member), NULL)

/*
 * If objects are still allocated, they are reported and the cache stays, as in the kernel.  With RCU it waits
 * for what kfree_rcu has deferred, and for the readers of a cache with SLAB_TYPESAFE_BY_RCU; must not be
 * called by a reader.
 */
static inline void kmem_cache_destroy(struct kmem_cache *cache)
{
	if (!cache)
		return;
#ifdef CPUSLAB_KMEM_RCU
	rcu_barrier();
	synchronize_rcu();
#endif
	(void)cpuslab_cache_destroy((struct cpuslab_cache *)(void *)cache);
}

static inline void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t flags)
{
	if (cpuslab_kmem_is_plain(flags))
		return cpuslab_cache_alloc((struct cpuslab_cache *)(void *)cache);
	return cpuslab_kmem_cache_alloc(cache, flags);
}

/* Not for a cache with a constructor: the zeros overwrite what it made. */
static inline void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t flags)
{
	return kmem_cache_alloc(cache, flags | __GFP_ZERO);
}

static inline void *kmem_cache_alloc_node(struct kmem_cache *cache, gfp_t flags, int node)
{
	(void)node;
	return kmem_cache_alloc(cache, flags);
}

struct list_lru;

/* The list serves the kernel's accounting; ignored here. */
static inline void *kmem_cache_alloc_lru(struct kmem_cache *cache, struct list_lru *lru, gfp_t flags)
{
	(void)lru;
	return kmem_cache_alloc(cache, flags);
}

/* Allocates `count` objects, or none: returns `count` or 0. */
static inline int kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t count, void **objects)
{
	return cpuslab_kmem_cache_alloc_bulk(cache, flags, count, objects);
}

static inline void kmem_cache_free(struct kmem_cache *cache, void *object)
{
	cpuslab_cache_free((struct cpuslab_cache *)(void *)cache, object);
}

/* Without a cache, frees objects of any cache. */
static inline void kmem_cache_free_bulk(struct kmem_cache *cache, size_t count, void **objects)
{
	if (cache)
		cpuslab_cache_free_bulk((struct cpuslab_cache *)(void *)cache, count, objects);
	else
		kfree_bulk(count, objects);
}

/*
 * Since Linux 6.18: a sheaf holds objects that are allocated in advance, so that taking them later cannot
 * fail.  Only one thread may use it at a time.
 */
struct slab_sheaf;

CPUSLAB_API struct slab_sheaf *cpuslab_kmem_sheaf_prefill(struct kmem_cache *cache, gfp_t flags,
							  unsigned int count);
CPUSLAB_API int cpuslab_kmem_sheaf_refill(struct kmem_cache *cache, gfp_t flags, struct slab_sheaf **sheaf,
					  unsigned int count);
CPUSLAB_API void cpuslab_kmem_sheaf_return(struct kmem_cache *cache, struct slab_sheaf *sheaf);
CPUSLAB_API void *cpuslab_kmem_sheaf_take(struct kmem_cache *cache, gfp_t flags, struct slab_sheaf *sheaf);
CPUSLAB_API unsigned int cpuslab_kmem_sheaf_size(const struct slab_sheaf *sheaf);

/* Returns a sheaf with at least `count` objects; NULL when memory is short. */
static inline struct slab_sheaf *kmem_cache_prefill_sheaf(struct kmem_cache *cache, gfp_t flags,
							  unsigned int count)
{
	return cpuslab_kmem_sheaf_prefill(cache, flags, count);
}

/*
 * Fills the sheaf to at least `count` objects.  Returns 0, and `*sheaf` may be another one; -ENOMEM, with
 * everything as it was; or -EINVAL if there is no sheaf.
 */
static inline int kmem_cache_refill_sheaf(struct kmem_cache *cache, gfp_t flags, struct slab_sheaf **sheaf,
					  unsigned int count)
{
	return cpuslab_kmem_sheaf_refill(cache, flags, sheaf, count);
}

/* Returns the remaining objects to the cache.  Never waits for memory, whatever the flags. */
static inline void kmem_cache_return_sheaf(struct kmem_cache *cache, gfp_t flags, struct slab_sheaf *sheaf)
{
	(void)flags;
	cpuslab_kmem_sheaf_return(cache, sheaf);
}

/*
 * Returns NULL if the sheaf is empty, without asking the cache. __GFP_ZERO counts here, and not at prefill.
 */
static inline void *kmem_cache_alloc_from_sheaf(struct kmem_cache *cache, gfp_t flags,
						struct slab_sheaf *sheaf)
{
	return cpuslab_kmem_sheaf_take(cache, flags, sheaf);
}

/* Returns the number of objects in it. */
static inline unsigned int kmem_cache_sheaf_size(struct slab_sheaf *sheaf)
{
	return cpuslab_kmem_sheaf_size(sheaf);
}

/* Returns 0 if no slabs are left. */
static inline int kmem_cache_shrink(struct kmem_cache *cache)
{
	return cpuslab_cache_shrink((struct cpuslab_cache *)(void *)cache);
}

static inline unsigned int kmem_cache_size(struct kmem_cache *cache)
{
	return (unsigned int)cpuslab_cache_size((struct cpuslab_cache *)(void *)cache);
}

/* Charges an object that was allocated without accounting; always succeeds here. */
static inline bool kmem_cache_charge(void *object, gfp_t flags)
{
	(void)object, (void)flags;
	return true;
}

/*
 * Prints on standard error, continuing the current line, which object an address lies in, as
 * cpuslab_object_of() finds it: its start, the offset of the address in it, and its size.  For any other
 * address prints nothing and returns false.
 */
static inline bool kmem_dump_obj(void *address)
{
	char *start = (char *)cpuslab_object_of(address);

	if (start)
		fprintf(stderr, " slab object start %p pointer offset %zu size %zu\n", (void *)start,
			(size_t)((char *)address - start), ksize(start));
	return start != NULL;
}

#ifdef __cplusplus
}

static inline struct kmem_cache *kmem_cache_create(const char *name, unsigned int size, unsigned int align,
						   slab_flags_t flags, void (*ctor)(void *))
{
	return __kmem_cache_create(name, size, align, flags, ctor);
}

static inline struct kmem_cache *kmem_cache_create(const char *name, unsigned int size,
						   struct kmem_cache_args *args, slab_flags_t flags)
{
	return __kmem_cache_default_args(name, size, args, flags);
}
#endif
#endif
