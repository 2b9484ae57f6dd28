/* SPDX-License-Identifier: MIT */
#include "malloc/size_class.h"

#include <string.h>

#include "check/corruption.h"
#include "options/options.h"

struct malloc_front malloc_front;
struct cache *size_class_made[SIZE_CLASSES];
struct cache size_class_nothing;
struct hardened hardened_front[SIZE_CLASS_SMALL / SIZE_CLASS_STEP + 1];

enum {
	NAME_BYTES = sizeof "malloc-262144",
	HOSTED_BYTES = 8 << 10 /* of a host's objects, magazines included: see "Hosts" */
};

static char names[SIZE_CLASSES_USUAL][NAME_BYTES];
static const char aligned_names[SIZE_CLASSES_ALIGNED][sizeof "malloc-aligned-262144"] = {
	"malloc-aligned-8192",  "malloc-aligned-16384",  "malloc-aligned-32768",
	"malloc-aligned-65536", "malloc-aligned-131072", "malloc-aligned-262144",
};
static bool missed_in_host[SIZE_CLASSES_USUAL]; /* while the host had HOSTED_BYTES */
static unsigned first_number; /* of the first class; the others follow.  Unused in hardened mode */

static __attribute__((noreturn, cold)) void refuse_to_start(const char *name)
{
	corruption_abort(name, NULL, "the system gives no memory to start with");
}

static const char *name_of(unsigned index)
{
	return index < SIZE_CLASSES_USUAL ? names[index] : aligned_names[index - SIZE_CLASSES_USUAL];
}

static struct slab_traits traits_of(unsigned index)
{
	return (struct slab_traits){
		.name = name_of(index),
		.size = size_class_bytes(index),
		.alignment = size_class_alignment(index) >> PAGE_SHIFT,
	};
}

static void add_checks(struct slab_traits *traits, unsigned index)
{
	/* Aligned as in a slab without zones: malloc_aligned() relies on it. */
	traits->checks = check_create(traits->name, traits->size, size_class_alignment(index),
				      check_request_flags(traits->name, 0), NULL, false);
	if (!traits->checks)
		refuse_to_start(traits->name);
	traits->size = traits->checks->zones.slot_bytes;
}

/* Whether each thread is a vCPU of its own. */
static bool uses_slots(void)
{
	return vcpu_mode() == CPUSLAB_VCPU_THREAD_SLOT;
}

/*
 * Returns the capacity of a hardened class's magazines: a freed object passes through at least two of them
 * before it is reused, and should still be in the CPU's caches then; but no fewer than a few objects, to
 * keep misses rare.  Each slot keeps up to four, and there may be thousands of slots: theirs are small.
 */
static uint16_t hardened_capacity_of(const struct slab_traits *traits)
{
	enum { BYTES = 8 << 10, MOST = 123, FEW = 16, FEW_BYTES = 32 << 10, LEAST = 3, SLOT_BYTES = 1 << 10 };
	uint32_t objects = (uses_slots() ? SLOT_BYTES : BYTES) / traits->size;

	if (!traits->hardened)
		return 0;
	if (objects < FEW && !uses_slots())
		objects = FEW_BYTES / traits->size < FEW ? FEW_BYTES / traits->size : FEW;
	return (uint16_t)(objects < LEAST ? LEAST : objects > MOST ? MOST : objects);
}

static void create_nothing(void)
{
	static const struct slab_traits traits = {
		.name = "malloc-0",
		.size = SIZE_CLASS_STEP,
		.hardened = true,
		.untouchable = true,
	};

	if (!magazine_create(&size_class_nothing, &traits, hardened_capacity_of(&traits), NULL))
		refuse_to_start(traits.name);
}

/*
 * By hand: the first use of snprintf makes some hundred KiB of libc resident, and is the only one in most
 * programs.
 */
static void write_name(char *name, uint32_t bytes)
{
	static const char stem[] = "malloc-";
	unsigned digits = 1;

	for (uint32_t rest = bytes / 10; rest; rest /= 10)
		digits++;
	memcpy(name, stem, sizeof stem - 1);
	for (char *digit = name + sizeof stem - 1 + digits; digits--; bytes /= 10)
		*--digit = (char)('0' + bytes % 10);
}

/* Points the sizes of one step at the word of a class. */
static void lead(unsigned step, unsigned index)
{
	__atomic_store_n(&malloc_front.offset[step], vcpu_offset(first_number + index), __ATOMIC_RELAXED);
}

static void enter(unsigned index, struct cache *cache)
{
	/* Release: a thread that finds the pointer may use the cache. */
	__atomic_store_n(&size_class_made[index], cache, __ATOMIC_RELEASE);
	if (options.hardened)
		return;
	/*
	 * A call that still reads its host's offset gets a large enough object, and all threads that come
	 * here store the same.
	 */
	for (unsigned step = 0; step <= SIZE_CLASS_SMALL / SIZE_CLASS_STEP; step++)
		if (size_class_index(step * SIZE_CLASS_STEP) == index)
			lead(step, index);
}

/* Where metadata is exhausted, magazines that wait in depots may have it. */
static __attribute__((noinline, cold)) struct cache *create_trimmed(unsigned index,
								    const struct slab_traits *traits)
{
	magazine_trim();
	return magazine_create_reserved(first_number + index, traits, true);
}

struct cache *size_class_make(unsigned index, bool waits)
{
	struct slab_traits traits = traits_of(index);
	struct cache *cache = magazine_create_reserved(first_number + index, &traits, waits);

	if (!cache && waits)
		cache = create_trimmed(index, &traits);
	if (cache)
		enter(index, cache);
	return cache;
}

/* The class of the next power of two, or of three of them. */
static __attribute__((noinline)) unsigned round_class_up(unsigned index)
{
	uint32_t bytes = size_class_bytes(index), part = bytes & -bytes;

	for (; bytes != part && bytes != 3 * part; part = bytes & -bytes)
		bytes += part;
	return size_class_index(bytes);
}

static unsigned host_of(unsigned index)
{
	return size_class_bytes(index) > SIZE_CLASS_SMALL ? index : round_class_up(index);
}

/* Returns whether a class has so few objects that it may serve others' sizes too. */
static bool is_small(const struct cache *cache)
{
	const struct slab_cache *slabs = &cache->depot.slabs;
	uint64_t objects = __atomic_load_n(&slabs->allocated, __ATOMIC_RELAXED);

	return objects * slabs->traits.size < HOSTED_BYTES;
}

/* Returns whether a size misses in its full host for the first time: there may be just an object or two. */
static bool may_be_few(unsigned index)
{
	return !__atomic_exchange_n(&missed_in_host[index], true, __ATOMIC_RELAXED);
}

struct cache *size_class_serving(unsigned index)
{
	unsigned host = host_of(index);

	if (host != index) {
		struct cache *cache = size_class(host);

		if (cache && !magazine_is_checked(cache) && (is_small(cache) || may_be_few(index)))
			return cache;
	}
	return size_class(index);
}

void size_class_make_all(void)
{
	for (unsigned index = 0; index < SIZE_CLASSES; index++)
		(void)size_class(index);
}

static void create_checked(unsigned index)
{
	struct slab_traits traits = traits_of(index);

	add_checks(&traits, index);
	struct cache *cache = magazine_create_reserved(first_number + index, &traits, true);

	if (!cache)
		refuse_to_start(traits.name);
	enter(index, cache);
}

static void create_hardened(unsigned index)
{
	struct slab_traits traits = traits_of(index);
	struct cache *cache = metadata_alloc(sizeof *cache);

	if (check_request_flags(traits.name, 0))
		add_checks(&traits, index);
	else
		traits.hardened = true;
	if (!cache || !magazine_create(cache, &traits, hardened_capacity_of(&traits), NULL))
		refuse_to_start(traits.name);
	if (traits.hardened)
		hardened_enter(cache);
	enter(index, cache);
}

/*
 * In hardened mode, the class that serves an index for good.  Each thread slot keeps freed objects of each
 * class that it uses, so slots do with fewer classes.  Beyond 128 KiB a mark could not count the slack.
 */
static unsigned hardened_host_of(unsigned index)
{
	enum { MOST = 128 << 10 };

	if (!uses_slots() || index >= SIZE_CLASSES_USUAL || size_class_bytes(index) > MOST)
		return index;
	unsigned host = round_class_up(index);
	bool alike = !check_request_flags(name_of(index), 0) && !check_request_flags(name_of(host), 0);

	return alike ? host : index;
}

/* Out of line, like open_hardened: few programs need it. */
static __attribute__((noinline)) void init_hardened(void)
{
	hardened_init();
	for (unsigned index = SIZE_CLASSES; index-- > 0;) {
		unsigned host = hardened_host_of(index);

		if (host == index)
			create_hardened(index);
		else
			enter(index, size_class_made[host]);
	}
	create_nothing();
}

void size_class_init(void)
{
	for (unsigned index = 0; index < SIZE_CLASSES_USUAL; index++)
		write_name(names[index], size_class_bytes(index));
	if (options.hardened) {
		init_hardened();
		return;
	}
	if (!magazine_reserve(SIZE_CLASSES, &first_number))
		refuse_to_start(names[0]);
	for (unsigned index = 0; index < SIZE_CLASSES; index++)
		if (check_request_flags(name_of(index), 0))
			create_checked(index);
	for (unsigned step = 0; step <= SIZE_CLASS_SMALL / SIZE_CLASS_STEP; step++) {
		unsigned index = size_class_index(step * SIZE_CLASS_STEP), host = host_of(index);

		/* Classes made by now are debugged: they neither have nor are hosts. */
		lead(step, size_class_made[index] || size_class_made[host] ? index : host);
	}
}

static __attribute__((noinline)) void open_hardened(void)
{
	for (unsigned step = 0; step <= SIZE_CLASS_SMALL / SIZE_CLASS_STEP; step++) {
		struct hardened *row = &hardened_front[step];
		const struct hardened *entered =
			hardened_of(size_class(size_class_index(step * SIZE_CLASS_STEP))->id);

		row->word = entered->word;
		row->returns = entered->returns;
		/* Release: pairs with the load in hardened_alloc. */
		__atomic_store_n(&row->bytes, entered->bytes, __ATOMIC_RELEASE);
	}
}

void size_class_open(bool all_ours)
{
	if (options.hardened) {
		open_hardened();
		return;
	}
	__atomic_store_n(&malloc_front.small_limit, SIZE_CLASS_SMALL + 1, __ATOMIC_RELEASE);
	if (all_ours)
		__atomic_store_n(&malloc_front.forward_limit, SIZE_CLASS_SMALL + 1, __ATOMIC_RELEASE);
}
