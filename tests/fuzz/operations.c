/* SPDX-License-Identifier: MIT */
/*
 * Sequences of calls, of malloc and the object caches, by two threads that take turns, against a shadow
 * model: what is allocated, its size, alignment and bytes.  Objects never overlap, keep their bytes, and come
 * back as the calls promise, also while the system gives no memory, and as time passes.  In the end nothing
 * is left.
 *
 * An input is a list of operations: a byte that chooses one (its highest bits choose the thread), and the
 * bytes that it consumes.  The vCPU mode, the options and the debugging come from the environment of the
 * process.
 */
#include "check.h"

#include <cpuslab/cache.h>
#include <semaphore.h>

#include "environment.h"

/* The library's malloc, under the names that CMakeLists.txt gives it. */
void *fuzzed_malloc(size_t size);
void *fuzzed_calloc(size_t count, size_t size);
void *fuzzed_realloc(void *object, size_t size);
void *fuzzed_reallocarray(void *object, size_t count, size_t size);
void *fuzzed_aligned_alloc(size_t alignment, size_t size);
void *fuzzed_memalign(size_t alignment, size_t size);
int fuzzed_posix_memalign(void **object, size_t alignment, size_t size);
void *fuzzed_valloc(size_t size);
void *fuzzed_pvalloc(size_t size);
size_t fuzzed_malloc_usable_size(void *object);
int fuzzed_malloc_trim(size_t pad);
int fuzzed_malloc_info(int options, FILE *stream);
struct mallinfo2 fuzzed_mallinfo2(void);
void fuzzed_free(void *object);
void fuzzed_free_sized(void *object, size_t size);
void fuzzed_free_aligned_sized(void *object, size_t alignment, size_t size);

enum {
	OBJECTS = 128,
	CACHES = 5,
	BULK = 40,
	OPERATIONS_MOST = 2000,
	LIVE_MOST = 64 << 20, /* bytes */
	WHOLE = 4096,         /* objects up to here are stamped as a whole, larger ones at both ends */
	CONSTRUCTED = 0xc5,
};

static struct object {
	char *start;
	size_t size, alignment;
	uint64_t seed;
	enum { UNSIZED, SIZED, ALIGNED } sized; /* which sized free may be used for it */
	int cache;                              /* -1: malloc's */
} objects[OBJECTS];

static struct known_cache {
	struct cpuslab_cache *cache;
	size_t size, alignment;
	bool constructed;
	enum cpuslab_engine engine;
	unsigned live;
} caches[CACHES];

static const uint8_t *input, *input_end;
static size_t live_bytes;
static uint64_t seeds;

static unsigned next_byte(void)
{
	return input < input_end ? *input++ : 0;
}

static unsigned next_short(void)
{
	unsigned low = next_byte();

	return low | next_byte() << 8;
}

/* Small sizes more often than large ones, and now and then an impossible one. */
static size_t next_size(void)
{
	unsigned kind = next_byte();
	size_t number = next_short();

	switch (kind % 16) {
	case 0:
		return number % 32;
	case 1:
		return number * 61;
	case 2:
		return number << 7;
	case 3:
		return kind < 64 ? SIZE_MAX - number : kind < 128 ? (size_t)PTRDIFF_MAX + 8 - number : number;
	case 4:
		/* Just around the borders of classes and pages. */
		return ((size_t)1 << number % 21) + (number >> 8) % 5 - 2;
	default:
		return number % 2048;
	}
}

static size_t next_alignment(void)
{
	return (size_t)1 << next_byte() % 22;
}

static bool is_modest(size_t size)
{
	return size <= LIVE_MOST && live_bytes + size <= LIVE_MOST;
}

/* ---- the model ------------------------------------------------------------------------------------- */

static struct object *pick(bool taken, int cache)
{
	unsigned from = next_byte();

	for (unsigned i = 0; i < OBJECTS; i++) {
		struct object *object = &objects[(from + i) % OBJECTS];

		if (!object->start != taken && (!taken || object->cache == cache))
			return object;
	}
	return NULL;
}

static struct object *pick_any(void)
{
	unsigned from = next_byte();

	for (unsigned i = 0; i < OBJECTS; i++)
		if (objects[(from + i) % OBJECTS].start)
			return &objects[(from + i) % OBJECTS];
	return NULL;
}

static bool is_constructed(const struct object *object)
{
	return object->cache >= 0 && caches[object->cache].constructed;
}

static void stamp(struct object *object)
{
	if (is_constructed(object))
		return;
	object->seed = ++seeds;
	if (object->size <= WHOLE) {
		check_stamp(object->start, object->size, object->seed);
		return;
	}
	check_stamp(object->start, WHOLE / 2, object->seed);
	check_stamp(object->start + object->size - WHOLE / 2, WHOLE / 2, ~object->seed);
}

static void verify(const struct object *object)
{
	if (is_constructed(object)) {
		CHECK(check_all_bytes(object->start, object->size, CONSTRUCTED));
	} else if (object->size <= WHOLE) {
		CHECK_STAMP(object->start, object->size, object->seed);
	} else {
		CHECK_STAMP(object->start, WHOLE / 2, object->seed);
		CHECK_STAMP(object->start + object->size - WHOLE / 2, WHOLE / 2, ~object->seed);
	}
}

static void verify_zeros(const char *start, size_t size)
{
	CHECK(check_all_bytes(start, size < WHOLE ? size : WHOLE, 0));
	CHECK(size <= WHOLE || check_all_bytes(start + size - WHOLE, WHOLE, 0));
	for (size_t at = 0; at < size; at += 1021)
		CHECK(start[at] == 0, "byte %zu of %zu is not zero", at, size);
}

/* Enters a call's result, which may be NULL.  `size` is the requested one. */
static void enter(struct object *object, void *start, size_t size, size_t alignment, int cache)
{
	if (!start) {
		CHECK(errno == ENOMEM, "errno is %d", errno);
		return;
	}
	CHECK((uintptr_t)start % alignment == 0, "%p is not aligned to %zu", start, alignment);
	*object = (struct object){
		.start = start, .size = size, .alignment = alignment, .cache = cache, .seed = 0};
	/* An object of size 0 may share its address with a neighbour that it does not overlap. */
	for (const struct object *other = objects; other < objects + OBJECTS; other++)
		CHECK(other == object || !other->start ||
			      (uintptr_t)start + (size ? size : 1) <= (uintptr_t)other->start ||
			      (uintptr_t)other->start + (other->size ? other->size : 1) <= (uintptr_t)start,
		      "%p of %zu bytes and %p of %zu overlap", start, size, (void *)other->start,
		      other->size);
	if (cache < 0)
		CHECK(fuzzed_malloc_usable_size(start) >= size);
	else
		caches[cache].live++;
	live_bytes += size;
	stamp(object);
}

/* Removes an object from the model, to be freed. */
static void *leave(struct object *object)
{
	void *start = object->start;

	verify(object);
	live_bytes -= object->size;
	if (object->cache >= 0)
		caches[object->cache].live--;
	object->start = NULL;
	return start;
}

/* ---- malloc's -------------------------------------------------------------------------------------- */

/* Of malloc, calloc or realloc. */
static void enter_sized(struct object *object, void *start, size_t size)
{
	enter(object, start, size, size < 16 ? 8 : 16, -1);
	if (start)
		object->sized = SIZED;
}

static void op_malloc(void)
{
	struct object *object = pick(false, -1);
	size_t size = next_size();

	if (object && (is_modest(size) || size > PTRDIFF_MAX))
		enter_sized(object, fuzzed_malloc(size), size);
}

static void op_calloc(void)
{
	struct object *object = pick(false, -1);
	size_t size = next_size(), count = next_byte() % 4 ? 1 : next_byte(), bytes;
	bool overflows = __builtin_mul_overflow(count, size, &bytes);

	if (!object || (!overflows && bytes <= PTRDIFF_MAX && !is_modest(bytes)))
		return;
	void *start = fuzzed_calloc(count, size);

	CHECK(!start || !overflows);
	if (start)
		verify_zeros(start, bytes);
	enter_sized(object, start, bytes);
}

static void op_realloc(void)
{
	struct object *object = pick(true, -1);
	size_t size = next_size();
	bool array = next_byte() % 2;

	if (!object || (!is_modest(size) && size <= PTRDIFF_MAX))
		return;
	struct object before = *object;

	verify(object);
	void *start =
		array ? fuzzed_reallocarray(object->start, 1, size) : fuzzed_realloc(object->start, size);

	if (!start && size) {
		CHECK(errno == ENOMEM);
		verify(object);
		return;
	}
	live_bytes -= before.size;
	object->start = NULL;
	if (!start)
		return;
	/* The common beginning has kept its content. */
	size_t kept = before.size < size ? before.size : size;

	CHECK_STAMP(start, kept < WHOLE / 2 ? kept : before.size > WHOLE ? WHOLE / 2 : kept, before.seed);
	if (before.size > WHOLE && size >= before.size)
		CHECK_STAMP((char *)start + before.size - WHOLE / 2, WHOLE / 2, ~before.seed);
	enter_sized(object, start, size);
}

static void op_aligned(void)
{
	struct object *object = pick(false, -1);
	size_t size = next_size(), alignment = next_alignment();
	void *start = NULL;
	int status = 0;

	if (!object || (!is_modest(size + alignment) && size <= PTRDIFF_MAX))
		return;
	unsigned how = next_byte() % 6;

	switch (how) {
	case 0:
		start = fuzzed_aligned_alloc(alignment, size);
		break;
	case 1:
		start = fuzzed_memalign(alignment, size);
		break;
	case 2:
		start = cpuslab_aligned_alloc_nowait(alignment, size);
		break;
	case 3:
		start = fuzzed_valloc(size);
		alignment = 4096;
		break;
	case 4:
		start = fuzzed_pvalloc(size);
		alignment = 4096;
		break;
	default:
		errno = 77;
		status = fuzzed_posix_memalign(&start, alignment, size);
		CHECK(errno == 77);
		if (alignment < sizeof(void *)) {
			CHECK(status == EINVAL && !start);
			return;
		}
		CHECK(status == (start ? 0 : ENOMEM));
		errno = status;
	}
	enter(object, start, size, alignment, -1);
	if (start && how == 0)
		object->sized = ALIGNED;
}

static void op_free(void)
{
	struct object *object = pick(true, -1);
	unsigned how = next_byte();

	errno = 77;
	if (!object) {
		fuzzed_free(NULL);
	} else {
		size_t size = object->size, alignment = object->alignment;
		void *start = leave(object);

		if (how % 4 == 0 && object->sized == SIZED)
			fuzzed_free_sized(start, size);
		else if (how % 4 == 0 && object->sized == ALIGNED)
			fuzzed_free_aligned_sized(start, alignment, size);
		else
			fuzzed_free(start);
	}
	CHECK(errno == 77);
}

static void op_look(void)
{
	const struct object *object = pick_any();

	if (!object || !object->size)
		return;
	verify(object);
	size_t offset = next_short() % (object->size < 4096 ? object->size : 4096);

	CHECK(cpuslab_object_of(object->start + offset) == object->start);
}

/* ---- caches' --------------------------------------------------------------------------------------- */

static void construct(void *object)
{
	/* The smallest size of any constructed cache here. */
	memset(object, CONSTRUCTED, 24);
}

static struct known_cache *pick_cache(bool taken)
{
	unsigned from = next_byte();

	for (unsigned i = 0; i < CACHES; i++)
		if (!caches[(from + i) % CACHES].cache != taken)
			return &caches[(from + i) % CACHES];
	return NULL;
}

static void op_create(void)
{
	static const unsigned flags[] = {
		CPUSLAB_CACHE_HWCACHE_ALIGN,      CPUSLAB_CACHE_TYPESAFE_BY_RCU, CPUSLAB_CACHE_NO_MERGE,
		CPUSLAB_CACHE_CONSISTENCY_CHECKS, CPUSLAB_CACHE_RED_ZONE,        CPUSLAB_CACHE_POISON,
		CPUSLAB_CACHE_STORE_USER,         CPUSLAB_CACHE_ACCOUNT,
	};
	struct known_cache *known = pick_cache(false);
	unsigned kind = next_byte(), chosen = next_byte();
	struct cpuslab_cache_args args = {
		.name = "fuzzed",
		.size = next_size(),
		.align = kind & 1 ? next_alignment() : 0,
		.engine = kind & 2 ? CPUSLAB_ENGINE_LINKED : CPUSLAB_ENGINE_MAGAZINE,
		.magazine_capacity = kind & 4 ? next_byte() % 16 : 0,
	};

	if (kind & 8)
		for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++)
			if (chosen & 1u << i)
				args.flags |= flags[i];
	if ((kind & 0x30) == 0x30) {
		args.constructor = construct;
		args.size = 24;
	} else if ((kind & 0x40) && args.size >= 8 && args.size <= CPUSLAB_CACHE_SIZE_MAX) {
		args.use_free_pointer_offset = 1;
		args.free_pointer_offset = (unsigned)(next_short() % (args.size - 7)) & ~7u;
	}
	if (!known)
		return;
	errno = 0;
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);
	bool valid =
		args.size > 0 && args.size <= CPUSLAB_CACHE_SIZE_MAX && args.align <= CPUSLAB_CACHE_ALIGN_MAX;

	CHECK(!cache || valid);
	CHECK(cache || (valid ? errno == ENOMEM : errno == EINVAL), "errno is %d, size %zu, align %zu", errno,
	      args.size, args.align);
	if (!cache)
		return;
	CHECK(cpuslab_cache_size(cache) == args.size && strcmp(cpuslab_cache_name(cache), "fuzzed") == 0);
	*known = (struct known_cache){
		.cache = cache,
		.size = args.size,
		.alignment = args.align > 8 ? args.align : 8,
		.constructed = args.constructor,
		.engine = args.engine,
	};
}

static void free_all_of(int cache)
{
	for (struct object *object = objects; object < objects + OBJECTS; object++)
		if (object->start && object->cache == cache)
			cpuslab_cache_free(caches[cache].cache, leave(object));
}

static void op_destroy(void)
{
	struct known_cache *known = pick_cache(true);

	if (!known)
		return;
	/* Destroying it is refused, with a report, while it has objects and shares no memory. */
	if (known->live && cpuslab_cache_aliases(known->cache) == 0) {
		environment_quiet = true;
		CHECK(cpuslab_cache_destroy(known->cache) == -1 && errno == EBUSY);
		environment_quiet = false;
	}
	free_all_of((int)(known - caches));
	CHECK(cpuslab_cache_destroy(known->cache) == 0);
	known->cache = NULL;
}

static void op_cache_alloc(void)
{
	struct known_cache *known = pick_cache(true);
	struct object *object = pick(false, -1);
	unsigned how = next_byte() % 8;

	if (!known || !object || !is_modest(known->size))
		return;
	void *start;

	if (how == 0) {
		errno = 0;
		start = cpuslab_cache_zalloc(known->cache);
		if (known->constructed) {
			CHECK(!start && errno == EINVAL);
			return;
		}
		if (start)
			verify_zeros(start, known->size);
	} else {
		start = how == 1 ? cpuslab_cache_alloc_nowait(known->cache)
				 : cpuslab_cache_alloc(known->cache);
	}
	enter(object, start, known->size, known->alignment, (int)(known - caches));
	if (start)
		verify(object);
}

static void op_cache_free(void)
{
	struct known_cache *known = pick_cache(true);
	struct object *object = known ? pick(true, (int)(known - caches)) : NULL;
	unsigned how = next_byte();

	if (!object)
		return;
	errno = 77;
	if (how % 8)
		cpuslab_cache_free(known->cache, leave(object));
	else
		fuzzed_free(leave(object));
	CHECK(errno == 77);
}

static void op_bulk_alloc(void)
{
	struct known_cache *known = pick_cache(true);
	size_t count = next_byte() % BULK, free = 0;
	void *starts[BULK];

	for (unsigned i = 0; i < OBJECTS; i++)
		free += !objects[i].start;
	if (!known || free < count || !is_modest(known->size * count))
		return;
	size_t got = cpuslab_cache_alloc_bulk(known->cache, count, starts);

	CHECK(got == count || (got == 0 && errno == ENOMEM));
	for (size_t i = 0; i < got; i++)
		enter(pick(false, -1), starts[i], known->size, known->alignment, (int)(known - caches));
}

static void op_bulk_free(void)
{
	struct known_cache *known = pick_cache(true);
	size_t count = next_byte() % BULK, have = 0;
	void *starts[BULK];

	if (!known)
		return;
	while (have < count && known->live)
		starts[have++] = leave(pick(true, (int)(known - caches)));
	cpuslab_cache_free_bulk(known->cache, have, starts);
}

static void op_tune(void)
{
	struct known_cache *known = pick_cache(true);
	struct cpuslab_cache_tunables tunables = {next_short() % 520, next_byte(), next_byte()};

	if (!known)
		return;
	errno = 0;
	int status = cpuslab_cache_set_tunables(known->cache, &tunables);
	bool valid = tunables.limit >= 1 && tunables.limit <= CPUSLAB_CACHE_MAGAZINE_MAX &&
		     tunables.batchcount >= 1 && tunables.batchcount <= tunables.limit;

	if (known->engine == CPUSLAB_ENGINE_MAGAZINE) {
		CHECK(status == (valid ? 0 : -1), "status %d, errno %d, limit %u, batchcount %u", status,
		      errno, tunables.limit, tunables.batchcount);
		struct cpuslab_cache_tunables now = cpuslab_cache_get_tunables(known->cache);

		CHECK(!valid || memcmp(&now, &tunables, sizeof now) == 0);
	}
}

static int count_cache(struct cpuslab_cache *cache, void *argument)
{
	*(unsigned *)argument += cpuslab_cache_name(cache)[0] == 'f';
	return 0;
}

static void op_report(void)
{
	static int nowhere = -1;
	unsigned known = 0, seen = 0;

	if (nowhere < 0)
		CHECK((nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC)) >= 0);
	for (unsigned i = 0; i < CACHES; i++)
		known += caches[i].cache != NULL;
	CHECK(cpuslab_cache_iterate(count_cache, &seen) == 0 && seen == known, "%u caches, and %u seen",
	      known, seen);
	CHECK(cpuslab_slabinfo(nowhere) == 0 && cpuslab_stats_json(nowhere) == 0);
	(void)fuzzed_mallinfo2();
	CHECK(cpuslab_validate(NULL) <= 0);
}

/* ---- what else happens ----------------------------------------------------------------------------- */

static void op_shrink(void)
{
	struct known_cache *known = pick_cache(true);

	if (known)
		(void)cpuslab_cache_shrink(known->cache);
}

static void op_trim(void)
{
	(void)fuzzed_malloc_trim(0);
}

static void op_time(void)
{
	environment_time += next_short();
}

static void op_no_memory(void)
{
	environment_succeeding = next_byte() % 16;
	environment_failing = next_byte() % 32;
}

static void (*const operations[])(void) = {
	op_malloc,     op_malloc,     op_malloc,      op_calloc,      op_realloc,     op_realloc,
	op_aligned,    op_free,       op_free,        op_free,        op_look,        op_create,
	op_create,     op_destroy,    op_cache_alloc, op_cache_alloc, op_cache_alloc, op_cache_free,
	op_cache_free, op_bulk_alloc, op_bulk_free,   op_tune,        op_report,      op_shrink,
	op_trim,       op_time,       op_no_memory,
};

/* ---- two threads, one at a time -------------------------------------------------------------------- */

static sem_t other_goes, other_has_gone;
static void (*for_other)(void);

static void pin(unsigned number)
{
	cpu_set_t all, one;
	unsigned cpu = 0, seen = 0;

	CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
	for (unsigned i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all) && seen++ <= number)
			cpu = i;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
}

static void wait_for(sem_t *semaphore)
{
	while (sem_wait(semaphore) != 0)
		CHECK(errno == EINTR);
}

static void *be_other(void *unused)
{
	pin(1);
	for (;;) {
		wait_for(&other_goes);
		for_other();
		CHECK(sem_post(&other_has_gone) == 0);
	}
	return unused;
}

static void begin(void)
{
	CHECK(sem_init(&other_goes, 0, 0) == 0 && sem_init(&other_has_gone, 0, 0) == 0);
	check_thread(be_other, NULL);
	pin(0);
	fuzzed_free(fuzzed_malloc(1));
}

static void run(void (*operation)(void), bool by_other)
{
	if (!by_other) {
		operation();
		return;
	}
	for_other = operation;
	CHECK(sem_post(&other_goes) == 0);
	wait_for(&other_has_gone);
}

/* The slot of a guarded object whose pages the system refused to take back stays in use for ever. */
static bool keeps_guarded(void)
{
	const char *chosen = getenv("CPUSLAB_OPTIONS");

	return environment_failed && chosen && strstr(chosen, "guard:");
}

static void end(void)
{
	environment_failing = 0;
	for (struct object *object = objects; object < objects + OBJECTS; object++)
		if (object->start && object->cache < 0)
			fuzzed_free(leave(object));
	for (int cache = 0; cache < CACHES; cache++)
		if (caches[cache].cache) {
			free_all_of(cache);
			CHECK(cpuslab_cache_destroy(caches[cache].cache) == 0);
			caches[cache].cache = NULL;
		}
	CHECK(live_bytes == 0);
	op_trim();
	run(op_trim, true);
	struct mallinfo2 info = fuzzed_mallinfo2();

	CHECK(info.uordblks == 0 && (info.hblkhd == 0 || keeps_guarded()), "%zu and %zu bytes are left",
	      info.uordblks, info.hblkhd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool begun;

	if (!begun)
		begin();
	begun = true;
	input = data;
	input_end = data + size;
	for (unsigned i = 0; input < input_end && i < OPERATIONS_MOST; i++) {
		unsigned chosen = next_byte();

		/* The other thread runs less often: a turn takes longer than most operations. */
		run(operations[chosen % 64 % (sizeof operations / sizeof *operations)], chosen >= 0xe0);
	}
	end();
	return 0;
}
