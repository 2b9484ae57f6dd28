/* SPDX-License-Identifier: MIT */
#include "cache/cache.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "arch/arch.h"
#include "check/annotate.h"
#include "check/corruption.h"
#include "guard/guard.h"
#include "magazine/hardened.h"
#include "process/process.h"
#include "options/options.h"
#include "page/sparse.h"
#include "report/root.h"
#include "slab/geometry.h"

#define likely(condition)   __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

enum {
	SMALLEST_ALIGNMENT = 8,
	CACHE_LINE = 64,
	/* Caches with a flag of the first set share no memory; of the second, only with their like. */
	NEVER_MERGE = CPUSLAB_CACHE_NO_MERGE | CPUSLAB_CACHE_TYPESAFE_BY_RCU | CHECK_ALL,
	MERGE_SAME = CPUSLAB_CACHE_ACCOUNT | CPUSLAB_CACHE_RECLAIM_ACCOUNT,
	KNOWN_FLAGS = CPUSLAB_CACHE_HWCACHE_ALIGN | CPUSLAB_CACHE_PANIC |
		      (NEVER_MERGE & ~(CHECK_FAIL | CHECK_ANNOTATE)) | MERGE_SAME,
	ID_OF_NO_PAGE = 1, /* ids in the page map are multiples of 8 */
	CHAINS = 256,      /* of shareable memories, hashed by stride */
};

_Static_assert((int)CPUSLAB_CACHE_MAGAZINE_MAX <= (int)DEPOT_CAPACITY_MAX,
	       "a magazine of the largest capacity");

_Static_assert((CACHE_MEMORY_HEAD + offsetof(struct linked_cache, lock)) % CACHE_LINE == 0,
	       "what frees write is apart from what they read");

/* ---- create ------------------------------------------------------------------------------------------- */

static bool is_power_of_two(size_t x)
{
	return x && !(x & (x - 1));
}

/* Returns 0, or the errno that says what is wrong. */
static int check_arguments(const struct cpuslab_cache_args *args)
{
	static const uint64_t zero[sizeof args->reserved / sizeof *args->reserved];

	if (!args || !args->name || !*args->name || args->size == 0 || args->size > CPUSLAB_CACHE_SIZE_MAX)
		return EINVAL;
	if (args->align && (!is_power_of_two(args->align) || args->align > CPUSLAB_CACHE_ALIGN_MAX))
		return EINVAL;
	if (args->flags & ~(unsigned)KNOWN_FLAGS || args->engine > CPUSLAB_ENGINE_LINKED ||
	    args->magazine_capacity > CPUSLAB_CACHE_MAGAZINE_MAX ||
	    memcmp(args->reserved, zero, sizeof zero) != 0)
		return EINVAL;
	if (args->use_free_pointer_offset &&
	    (args->free_pointer_offset % sizeof(void *) || args->size < sizeof(void *) ||
	     args->free_pointer_offset > args->size - sizeof(void *)))
		return EINVAL;
	if (strlen(args->name) > CPUSLAB_CACHE_NAME_MAX)
		return ENAMETOOLONG;
	return 0;
}

static uint32_t choose_alignment(const struct cpuslab_cache_args *args)
{
	uint32_t alignment = SMALLEST_ALIGNMENT;

	if (args->flags & CPUSLAB_CACHE_HWCACHE_ALIGN) {
		uint32_t line = geometry_line_alignment((uint32_t)args->size, CACHE_LINE);

		alignment = line > alignment ? line : alignment;
	}
	return args->align > alignment ? (uint32_t)args->align : alignment;
}

static struct slab_traits traits_for(const struct cpuslab_cache_args *args)
{
	uint32_t alignment = choose_alignment(args);

	return (struct slab_traits){
		.size = geometry_stride((uint32_t)args->size, alignment),
		.alignment = alignment >> PAGE_SHIFT,
		.type_stable = args->flags & CPUSLAB_CACHE_TYPESAFE_BY_RCU,
		.construct = args->constructor,
	};
}

/*
 * SLAB's rule (enable_cpucache in mm/slab.c), except for sharedfactor: with several CPUs SLAB lets 8 batches
 * wait.  Here that made bursts of 10,000 objects two to twenty times slower; unneeded objects leave by age.
 */
static struct depot_tunables tunables_for(const struct cpuslab_cache_args *args, uint32_t stride)
{
	uint32_t limit = args->magazine_capacity ? args->magazine_capacity : geometry_tunables(stride).limit;

	return (struct depot_tunables){
		.limit = limit,
		.batchcount = (limit + 1) / 2,
		.sharedfactor = DEPOT_SHAREDFACTOR_MAX,
	};
}

/* Hardens a cache: each object gets a canary, and whole units of the marks. */
static void harden(struct slab_traits *traits, const struct cpuslab_cache_args *args)
{
	uint32_t alignment = choose_alignment(args);

	traits->hardened = true;
	traits->size = geometry_stride((uint32_t)args->size + HARDENED_CANARY,
				       alignment > PAGE_MARK_UNIT ? alignment : PAGE_MARK_UNIT);
}

/* Turns bare objects into slots with zones, for the checks, which also construct them. */
static bool debug(struct slab_traits *traits, const struct cpuslab_cache_args *args)
{
	traits->checks = check_create(traits->name, (uint32_t)args->size, choose_alignment(args),
				      args->flags & CHECK_ALL, traits->construct, traits->type_stable);
	if (!traits->checks)
		return false;
	traits->size = traits->checks->zones.slot_bytes;
	traits->construct = NULL;
	return true;
}

static bool create_magazine(struct cache_memory *memory, const struct cpuslab_cache_args *args,
			    struct slab_traits *traits)
{
	struct depot_tunables tunables = tunables_for(args, traits->size);

	if (args->flags & CHECK_ALL) {
		if (!debug(traits, args))
			return false;
	} else if (options.hardened) {
		harden(traits, args);
	}
	if (!magazine_create(&memory->cache, traits, 0, memory)) {
		check_destroy(traits->checks);
		return false;
	}
	depot_tune(&memory->cache.depot, &tunables);
	return true;
}

static bool create_linked(struct cache_memory *memory, const struct cpuslab_cache_args *args)
{
	struct linked_traits traits = {
		.name = memory->name,
		.size = (uint32_t)args->size,
		.alignment = choose_alignment(args),
		.link = args->use_free_pointer_offset ? args->free_pointer_offset : LINKED_ANYWHERE,
		.type_stable = args->flags & CPUSLAB_CACHE_TYPESAFE_BY_RCU,
		.construct = args->constructor,
	};

	return linked_create(cache_linked(memory), &traits, memory);
}

static struct cache_memory *create_memory(const struct cpuslab_cache_args *args, struct slab_traits traits)
{
	bool is_linked = args->engine == CPUSLAB_ENGINE_LINKED;
	size_t name_bytes = strlen(args->name) + 1,
	       engine_end = is_linked ? CACHE_MEMORY_HEAD + sizeof(struct linked_cache)
				      : offsetof(struct cache_memory, cache) + sizeof(struct cache);
	uint32_t bytes = (uint32_t)(engine_end + name_bytes);
	struct cache_memory *memory = metadata_alloc(bytes);

	if (!memory)
		return NULL;
	memory->handles = NULL;
	memory->next_alike = NULL;
	memory->flags = args->flags & MERGE_SAME;
	memory->bytes = bytes;
	memory->stride = traits.size;
	memory->shareable = false;
	memory->engine = (uint8_t)args->engine;
	memory->name = memcpy((char *)memory + engine_end, args->name, name_bytes);
	traits.name = memory->name;
	if (!(is_linked ? create_linked(memory, args) : create_magazine(memory, args, &traits))) {
		metadata_free(memory, bytes);
		return NULL;
	}
	return memory;
}

static void destroy_memory(struct cache_memory *memory)
{
	if (memory->engine != CPUSLAB_ENGINE_LINKED)
		check_destroy(memory->cache.depot.slabs.traits.checks);
	metadata_free(memory, memory->bytes);
}

/* Creates a handle that is in no list yet. */
static struct cpuslab_cache *create_handle(const struct cpuslab_cache_args *args)
{
	size_t name_bytes = strlen(args->name) + 1;
	uint32_t bytes = (uint32_t)(sizeof(struct cpuslab_cache) + name_bytes);
	struct cpuslab_cache *cache = metadata_alloc(bytes);

	if (!cache)
		return NULL;
	cache->constructor = args->constructor;
	cache->size = (uint32_t)args->size;
	cache->bytes = bytes;
	cache->alignment_log = (uint8_t)__builtin_ctz(choose_alignment(args));
	memcpy(cache->name, args->name, name_bytes);
	return cache;
}

static void destroy_handle(struct cpuslab_cache *cache)
{
	metadata_free(cache, cache->bytes);
}

static void enter_memory(struct cpuslab_cache *cache, struct cache_memory *memory)
{
	cache->is_linked = memory->engine == CPUSLAB_ENGINE_LINKED;
	if (cache->is_linked) {
		cache->id = ID_OF_NO_PAGE;
	} else if (magazine_is_hardened(&memory->cache)) {
		/* A word that is always void, so that each call takes a slow path. */
		cache->map = page_front.map;
		cache->offset = PAGE_FREE;
		cache->id = ID_OF_NO_PAGE;
	} else {
		cache->map = memory->cache.map;
		cache->offset = memory->cache.offset;
		cache->id = memory->cache.id;
	}
	cache->memory = memory;
	cache->next = memory->handles;
	__atomic_store_n(&memory->handles, cache, __ATOMIC_RELEASE);
}

static void leave_memory(struct cpuslab_cache *cache)
{
	struct cpuslab_cache **link = &cache->memory->handles;

	while (*link != cache)
		link = &(*link)->next;
	__atomic_store_n(link, cache->next, __ATOMIC_RELEASE);
}

/* ---- merging ------------------------------------------------------------------------------------------ */

/*
 * The kernel's rules (find_mergeable and slab_unmergeable in mm/slab_common.c).  There, fewer bytes than a
 * word may be left over behind the smaller object, and the larger stride must be a multiple of the smaller
 * one's alignment.  Here all strides are multiples of a word, so this means: equal strides.
 */
static struct cache_memory *shareable[CHAINS] ARCH_SPARSE; /* with magazine_keep_caches() */

static struct cache_memory **chain_of(uint32_t stride)
{
	return &shareable[stride / SMALLEST_ALIGNMENT % CHAINS];
}

/* A cache whose creator asked for something particular shares with none. */
static bool may_share(const struct cpuslab_cache_args *args)
{
	return options.merge && !options.hardened && !args->constructor && !(args->flags & NEVER_MERGE) &&
	       !args->magazine_capacity && !args->use_free_pointer_offset;
}

static struct cache_memory *find_alike(const struct cpuslab_cache_args *args,
				       const struct slab_traits *traits)
{
	for (struct cache_memory *memory = *chain_of(traits->size); memory; memory = memory->next_alike) {
		/* Linked slabs are aligned to their size, so there an equal stride is enough. */
		if (memory->engine == args->engine && memory->stride == traits->size &&
		    memory->flags == (args->flags & MERGE_SAME) &&
		    (args->engine == CPUSLAB_ENGINE_LINKED ||
		     memory->cache.depot.slabs.traits.alignment >= traits->alignment))
			return memory;
	}
	return NULL;
}

static void offer_memory(struct cache_memory *memory)
{
	struct cache_memory **chain = chain_of(memory->stride);

	memory->next_alike = *chain;
	__atomic_store_n(chain, memory, __ATOMIC_RELEASE);
}

static void withdraw_memory(struct cache_memory *memory)
{
	struct cache_memory **link = chain_of(memory->stride);

	while (*link != memory)
		link = &(*link)->next_alike;
	__atomic_store_n(link, memory->next_alike, __ATOMIC_RELEASE);
}

static struct cache_memory *find_or_create_memory(const struct cpuslab_cache_args *args)
{
	struct slab_traits traits = traits_for(args);
	bool share = may_share(args);
	struct cache_memory *memory = share ? find_alike(args, &traits) : NULL;

	if (memory)
		return memory;
	memory = create_memory(args, traits);
	if (memory && share) {
		memory->shareable = true;
		offer_memory(memory);
	}
	return memory;
}

/* Describes memories and handles to readers of this process's memory.  With magazine_keep_caches(). */
static void show_room(void)
{
	static bool shown;

	if (shown)
		return;
	shown = true;
	root_show("memory.handles", offsetof(struct cache_memory, handles), sizeof(struct cpuslab_cache *));
	root_show("memory.flags", offsetof(struct cache_memory, flags), sizeof(uint32_t));
	root_show("memory.shareable", offsetof(struct cache_memory, shareable), sizeof(bool));
	root_show("handle.size", offsetof(struct cpuslab_cache, size), sizeof(uint32_t));
	root_show("handle.next", offsetof(struct cpuslab_cache, next), sizeof(struct cpuslab_cache *));
	root_show("handle.name", offsetof(struct cpuslab_cache, name), CPUSLAB_CACHE_NAME_MAX + 1);
}

/*
 * Decides flags and engine.  A debugged cache needs no engine: its objects pass through the checks to and
 * from the slabs.  A hardened one must have no links in free objects.  Afterwards the engine is never
 * DEFAULT.
 */
static struct cpuslab_cache_args with_request(const struct cpuslab_cache_args *args)
{
	struct cpuslab_cache_args own = *args;

	own.flags = check_request_flags(own.name, own.flags);
	if (annotate_wanted())
		own.flags |= CHECK_ANNOTATE;
	if (own.engine == CPUSLAB_ENGINE_DEFAULT || own.flags & CHECK_ALL || options.hardened)
		own.engine = CPUSLAB_ENGINE_MAGAZINE;
	return own;
}

static struct cpuslab_cache *create(const struct cpuslab_cache_args *asked)
{
	struct cpuslab_cache_args own = with_request(asked), *args = &own;
	struct cpuslab_cache *cache = create_handle(args);

	if (!cache)
		return NULL;
	magazine_keep_caches();
	show_room();
	struct cache_memory *memory = find_or_create_memory(args);

	if (memory)
		enter_memory(cache, memory);
	magazine_let_caches_go();
	if (!memory) {
		destroy_handle(cache);
		return NULL;
	}
	return cache;
}

CPUSLAB_API struct cpuslab_cache *cpuslab_cache_create(const struct cpuslab_cache_args *args)
{
	int error = check_arguments(args);
	struct cpuslab_cache *cache = NULL;

	if (!error) {
		annotate_begin();
		cache = process_enter() ? create(args) : NULL;
		annotate_end();
		error = cache ? 0 : ENOMEM;
	}
	if (likely(cache))
		return cache;
	if (args && args->flags & CPUSLAB_CACHE_PANIC)
		corruption_abort(args->name, NULL,
				 error == ENOMEM
					 ? "no memory for a cache that the program cannot do without"
					 : "bad arguments for a cache that the program cannot do without");
	errno = error;
	return NULL;
}

/* ---- destroy ------------------------------------------------------------------------------------------ */

static void report_live(void *object, void *argument)
{
	const struct cpuslab_cache *cache = argument;
	char line[CPUSLAB_CACHE_NAME_MAX + 128];
	int length =
		snprintf(line, sizeof line, "cpuslab: %s: %p: still allocated as its cache is destroyed\n",
			 cache->name, object);

	if (length > 0)
		os_write_error(line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}

/* Destroys the engine's cache; if objects are still allocated, reports them and returns false. */
static bool close_memory(struct cache_memory *memory, struct cpuslab_cache *last)
{
	if (last->is_linked) {
		if (linked_destroy(cache_linked(memory)))
			return true;
		linked_visit_objects(cache_linked(memory), report_live, last);
		return false;
	}
	bool is_checked = magazine_is_checked(&memory->cache);

	if (is_checked)
		magazine_release_lost(&memory->cache);
	/* The slabs do not know of guarded objects. */
	if (guard_is_on() && guard_visit_live(&memory->cache, report_live, last))
		magazine_gather(&memory->cache);
	else if (!magazine_destroy(&memory->cache))
		return true;
	if (is_checked)
		magazine_report_live(&memory->cache);
	else
		slab_visit_objects(&memory->cache.depot.slabs, report_live, last);
	return false;
}

/* Destroys a cache; if objects are still allocated, reports them, leaves all as it was, returns false. */
static bool destroy(struct cpuslab_cache *cache)
{
	struct cache_memory *memory = cache->memory;

	if (memory->handles != cache || cache->next) {
		/* Nobody can tell whose the objects are. */
		leave_memory(cache);
		destroy_handle(cache);
		return true;
	}
	/* First, so that a child forked meanwhile does not share a memory that is half gone. */
	if (memory->shareable)
		withdraw_memory(memory);
	if (!close_memory(memory, cache)) {
		if (memory->shareable)
			offer_memory(memory);
		return false;
	}
	destroy_memory(memory);
	destroy_handle(cache);
	return true;
}

CPUSLAB_API int cpuslab_cache_destroy(struct cpuslab_cache *cache)
{
	if (!cache)
		return 0;
	process_enter();
	annotate_begin();
	magazine_keep_caches();
	bool destroyed = destroy(cache);

	magazine_let_caches_go();
	annotate_end();
	if (destroyed)
		return 0;
	errno = EBUSY;
	return -1;
}

CPUSLAB_API int cpuslab_cache_shrink(struct cpuslab_cache *cache)
{
	struct slab_statistics statistics;

	process_enter();
	if (cache->is_linked) {
		linked_shrink(cache_linked(cache->memory));
		return __atomic_load_n(&cache_linked(cache->memory)->slabs, __ATOMIC_RELAXED) != 0;
	}
	magazine_shrink(&cache->memory->cache);
	slab_statistics(&cache->memory->cache.depot.slabs, &statistics);
	return statistics.slabs != statistics.purged;
}

/* ---- tunables ----------------------------------------------------------------------------------------- */

CPUSLAB_API int cpuslab_cache_set_tunables(struct cpuslab_cache *cache,
					   const struct cpuslab_cache_tunables *tunables)
{
	struct depot_tunables wanted = {tunables->limit, tunables->batchcount, tunables->sharedfactor};

	if (wanted.limit > CPUSLAB_CACHE_MAGAZINE_MAX || wanted.batchcount < 1 ||
	    wanted.batchcount > wanted.limit || wanted.sharedfactor > DEPOT_SHAREDFACTOR_MAX) {
		errno = EINVAL;
		return -1;
	}
	if (cache->is_linked) {
		errno = ENOTSUP;
		return -1;
	}
	process_enter();
	magazine_tune(&cache->memory->cache, &wanted);
	return 0;
}

CPUSLAB_API struct cpuslab_cache_tunables cpuslab_cache_get_tunables(const struct cpuslab_cache *cache)
{
	process_enter();
	if (cache->is_linked)
		return (struct cpuslab_cache_tunables){0, 0, 0};
	struct depot_tunables tunables = depot_tunables(&cache->memory->cache.depot);

	return (struct cpuslab_cache_tunables){tunables.limit, tunables.batchcount, tunables.sharedfactor};
}

/* ---- one object --------------------------------------------------------------------------------------- */

static void *alloc_linked_missed(struct linked_cache *cache)
{
	magazine_tick();
	magazine_tick_profile();
	void *object = linked_alloc_missed(cache);

	if (likely(object))
		return object;
	magazine_trim();
	return linked_alloc_missed(cache);
}

static struct request request_of(const struct cpuslab_cache *cache, size_t bytes)
{
	return (struct request){(uint32_t)bytes, 1u << cache->alignment_log};
}

static void *alloc_magazine_missed(struct cpuslab_cache *cache)
{
	return magazine_alloc_requested(&cache->memory->cache, request_of(cache, cache->size));
}

static size_t requested_of(const struct cpuslab_cache *cache)
{
	return hardened_requested(magazine_object_bytes(&cache->memory->cache), cache->size);
}

static void *alloc_hardened(struct cpuslab_cache *cache)
{
	return hardened_alloc_any(&cache->memory->cache, request_of(cache, requested_of(cache)));
}

static void *alloc_missed(struct cpuslab_cache *cache)
{
	if (cache->is_linked)
		return alloc_linked_missed(cache_linked(cache->memory));
	return magazine_is_hardened(&cache->memory->cache) ? alloc_hardened(cache)
							   : alloc_magazine_missed(cache);
}

static __attribute__((noinline)) void *alloc_slow(struct cpuslab_cache *cache)
{
	process_enter();
	void *object = alloc_missed(cache);

	if (unlikely(!object))
		errno = ENOMEM;
	return object;
}

ARCH_FAST_PATH CPUSLAB_API void *cpuslab_cache_alloc(struct cpuslab_cache *cache)
{
	void *object = likely(!cache->is_linked) ? magazine_alloc_at(cache->map, &cache->offset)
						 : linked_alloc(cache_linked(cache->memory));

	return likely(object) ? object : alloc_slow(cache);
}

static void *try_alloc_missed(struct cpuslab_cache *cache)
{
	if (cache->is_linked)
		return linked_try_alloc_missed(cache_linked(cache->memory));
	return magazine_is_hardened(&cache->memory->cache)
		       ? hardened_try_alloc(&cache->memory->cache, requested_of(cache))
		       : magazine_try_alloc_missed(&cache->memory->cache);
}

static void *try_alloc_slow(struct cpuslab_cache *cache)
{
	process_enter();
	void *object = try_alloc_missed(cache);

	if (!object)
		errno = ENOMEM;
	return object;
}

CPUSLAB_API void *cpuslab_cache_alloc_nowait(struct cpuslab_cache *cache)
{
	void *object = cache->is_linked ? linked_alloc(cache_linked(cache->memory))
					: magazine_alloc_at(cache->map, &cache->offset);

	return likely(object) ? object : try_alloc_slow(cache);
}

CPUSLAB_API void *cpuslab_cache_zalloc(struct cpuslab_cache *cache)
{
	if (unlikely(cache->constructor)) {
		errno = EINVAL;
		return NULL;
	}
	void *object = cpuslab_cache_alloc(cache);

	if (unlikely(!object))
		return NULL;
	sparse_zero(object, 0, cache->size);
	annotate_cleared(object, cache->size);
	return object;
}

/* Whether the page map says that a slab of this cache, or of another without an id of its own, lies there. */
static inline bool is_marked(const struct cpuslab_cache *cache, const void *object)
{
	uintptr_t page = page_of(object);

	return likely(page < page_front.limit) && likely(page_front.map[page] == cache->id);
}

/* Everything but a hit: NULL, misses, and objects that are not this cache's. */
static __attribute__((noinline)) void free_slow(struct cpuslab_cache *cache, void *object)
{
	if (!object)
		return;
	process_enter();
	if (cache->is_linked) {
		linked_free_missed(cache_linked(cache->memory), object);
		return;
	}
	bool is_guarded = guard_contains(object);
	const void *owner = is_guarded ? guard_owner(object) : magazine_cache(object);

	if (owner != &cache->memory->cache && (owner || !is_guarded))
		corruption_abort(cache->name, object,
				 "free of a pointer that is not an object of this cache");
	if (is_guarded)
		guard_free(object, SIZE_MAX);
	else if (magazine_is_hardened(&cache->memory->cache))
		hardened_free_any(&cache->memory->cache, object);
	else
		magazine_free_missed(&cache->memory->cache, object);
}

ARCH_FAST_PATH CPUSLAB_API void cpuslab_cache_free(struct cpuslab_cache *cache, void *object)
{
	/*
	 * A magazine takes any pointer, so the page map must tell whose page it is.  No page has the id of a
	 * linked cache's handle; there the word itself tells.
	 */
	if (likely(is_marked(cache, object))) {
		if (likely(magazine_free_at(cache->map, &cache->offset, object)))
			return;
	} else if (cache->is_linked && likely(linked_free(cache_linked(cache->memory), object))) {
		return;
	}
	free_slow(cache, object);
}

/* ---- several ------------------------------------------------------------------------------------------ */

static unsigned at_most(size_t count)
{
	return count < CPUSLAB_CACHE_MAGAZINE_MAX ? (unsigned)count : CPUSLAB_CACHE_MAGAZINE_MAX;
}

static size_t alloc_bulk_linked(struct linked_cache *cache, size_t count, void **objects)
{
	/* The program may never enter another slow path. */
	magazine_tick();
	magazine_tick_profile();
	size_t taken = linked_alloc_several(cache, objects, count);

	if (unlikely(taken < count)) {
		magazine_trim();
		taken += linked_alloc_several(cache, objects + taken, count - taken);
	}
	if (likely(taken == count))
		return count;
	linked_free_several(cache, objects, taken);
	errno = ENOMEM;
	return 0;
}

CPUSLAB_API size_t cpuslab_cache_alloc_bulk(struct cpuslab_cache *cache, size_t count, void **objects)
{
	size_t taken = 0;

	process_enter();
	if (cache->is_linked)
		return alloc_bulk_linked(cache_linked(cache->memory), count, objects);
	for (;;) {
		/* Hardened objects come and go one by one. */
		if (cache->id != ID_OF_NO_PAGE)
			taken += magazine_alloc_several(&cache->memory->cache, objects + taken,
							at_most(count - taken));
		if (taken == count)
			return count;
		/* The slow path loads another magazine, from which the next round takes. */
		void *object = alloc_slow(cache);

		if (!object) {
			cpuslab_cache_free_bulk(cache, taken, objects);
			return 0;
		}
		objects[taken++] = object;
	}
}

CPUSLAB_API void cpuslab_cache_free_bulk(struct cpuslab_cache *cache, size_t count, void *const *objects)
{
	size_t given = 0, marked = 0;

	process_enter();
	if (cache->is_linked) {
		linked_free_several(cache_linked(cache->memory), objects, count);
		return;
	}
	while (given < count) {
		while (marked < count && is_marked(cache, objects[marked]))
			marked++;
		if (marked > given)
			given += magazine_free_several(&cache->memory->cache, objects + given,
						       at_most(marked - given));
		/* The one that did not fit, or is no object of this cache. */
		if (given < count)
			free_slow(cache, objects[given++]);
		if (marked < given)
			marked = given;
	}
}

/* ---- debugging ---------------------------------------------------------------------------------------- */

CPUSLAB_API size_t cpuslab_cache_validate(struct cpuslab_cache *cache)
{
	process_enter();
	return cache->is_linked ? 0 : magazine_validate(&cache->memory->cache);
}

/* ---- queries ------------------------------------------------------------------------------------------ */

CPUSLAB_API size_t cpuslab_cache_size(const struct cpuslab_cache *cache)
{
	return cache->size;
}

CPUSLAB_API const char *cpuslab_cache_name(const struct cpuslab_cache *cache)
{
	return cache->name;
}

CPUSLAB_API unsigned cpuslab_cache_aliases(const struct cpuslab_cache *cache)
{
	unsigned handles = 0;

	process_enter();
	magazine_keep_caches();
	for (const struct cpuslab_cache *other = cache->memory->handles; other; other = other->next)
		handles++;
	magazine_let_caches_go();
	return handles - 1;
}

/* Returns NULL for a number without a cache, and for malloc's caches. */
static const struct cache_memory *memory_of_number(unsigned number)
{
	const struct cache *cache = magazine_cache_number(number);
	const struct linked_cache *linked = linked_cache_number(number);

	return cache ? cache->owner : linked ? linked->owner : NULL;
}

static int visit_handles(const struct cache_memory *memory,
			 int (*visit)(struct cpuslab_cache *cache, void *argument), void *argument)
{
	int result = 0;

	for (struct cpuslab_cache *cache = memory->handles; cache && !result; cache = cache->next)
		result = visit(cache, argument);
	return result;
}

CPUSLAB_API int cpuslab_cache_iterate(int (*visit)(struct cpuslab_cache *cache, void *argument),
				      void *argument)
{
	int result = 0;

	process_enter();
	magazine_keep_caches();
	for (unsigned number = 0; (number < magazine_caches() || number < linked_caches()) && !result;
	     number++) {
		const struct cache_memory *memory = memory_of_number(number);

		if (memory)
			result = visit_handles(memory, visit, argument);
	}
	magazine_let_caches_go();
	return result;
}
