/* SPDX-License-Identifier: MIT */
/*
 * The pool of guarded objects: to the malloc family they are ordinary objects; the slot of a freed one is
 * reused as late as possible; memory and mappings are bounded; one in RATE is picked, of every size; threads
 * and forked children may do what they like, and a heap profile may run.
 */
#include "check.h"

#include <cpuslab/cache.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>

enum { PAGE = 4096, SLOTS = 64 };

/* A number of the "guarded" object in the statistics. */
static unsigned long guarded(const char *name)
{
	static char json[1 << 16];
	int file = memfd_create("statistics", 0);
	char key[32];

	CHECK(file >= 0 && cpuslab_stats_json(file) == 0);
	ssize_t length = pread(file, json, sizeof json - 1, 0);

	CHECK(length > 0);
	close(file);
	json[length] = 0;
	snprintf(key, sizeof key, "\"%s\": ", name);
	char *found = strstr(json, "\"guarded\"");

	CHECK(found && (found = strstr(found, key)));
	return strtoul(found + strlen(key), NULL, 10);
}

/* Returns a guarded object: nearly every allocation is, except where a magazine has no room for a mark. */
static char *alloc_guarded(size_t size)
{
	for (unsigned tries = 0; tries < 4; tries++) {
		unsigned long picked = guarded("picked");
		char *object = malloc(size);

		CHECK(object);
		if (guarded("picked") > picked)
			return object;
		free(object);
	}
	check_failed(__FILE__, __LINE__, "guarded", "no object of %zu bytes is", size);
}

enum { LARGEST = 256 << 10 };

struct behind {
	char *object;
	size_t size;
};

static void write_behind(void *argument)
{
	const struct behind *behind = argument;

	*(volatile char *)(behind->object + behind->size) = 1;
	free(behind->object);
}

/* Guarded, aligned as requested, and with exactly the requested size. */
static void aligned(size_t alignment, size_t size)
{
	unsigned long picked = guarded("picked");
	char *object = NULL;
	char text[4096];

	for (unsigned tries = 0; tries < 4 && guarded("picked") == picked; tries++) {
		free(object);
		object = aligned_alloc(alignment, size);
	}
	CHECK(guarded("picked") > picked, "no object of %zu bytes, aligned to %zu, is", size, alignment);
	CHECK(object && (uintptr_t)object % alignment == 0, "%zu for %zu", size, alignment);
	CHECK(malloc_usable_size(object) == size, "%zu of %zu", malloc_usable_size(object), size);
	CHECK(cpuslab_object_of(object + size - 1) == object);
	CHECK(check_all_bytes(object, size, 0));
	memset(object, 1, size);
	/* A write to the byte behind it is found at once, or at the free. */
	struct behind behind = {object, size};
	int status = check_child(write_behind, &behind, text, sizeof text);

	CHECK(WIFSIGNALED(status) && strstr(text, "Overflow"), "%zu for %zu: %s", size, alignment, text);
	free(object);
}

/* ---- the malloc family ----------------------------------------------------------------------------- */

static void family(void)
{
	/* Objects allocated while libraries were loaded may be among them. */
	unsigned long live = guarded("live"), bytes = guarded("bytes");

	for (size_t size = 0; size <= 256 << 10; size = size < 300 ? size + 1 : size * 3 / 2) {
		char *object = alloc_guarded(size);

		CHECK((uintptr_t)object % 16 == 0);
		CHECK(malloc_usable_size(object) == (size ? size : 1));
		CHECK(cpuslab_object_of(object) == object);
		CHECK(!size || cpuslab_object_of(object + size - 1) == object);
		check_stamp(object, size, size);
		char *larger = realloc(object, 2 * size + 1);

		CHECK_STAMP(larger, size, size);
		char *smaller = realloc(larger, size / 4 + 1);

		CHECK_STAMP(smaller, size < size / 4 + 1 ? size : size / 4 + 1, size);
		free(smaller);
		char *zeroed = calloc(size, 1);

		CHECK(check_all_bytes(zeroed, size, 0));
		free(zeroed);
	}
	for (size_t alignment = 16; alignment <= PAGE; alignment *= 2)
		for (size_t size = 1; size < 3 * PAGE; size += size / 3 + 1) {
			char *object = aligned_alloc(alignment, size);

			CHECK(object && (uintptr_t)object % alignment == 0, "%zu for %zu", size, alignment);
			memset(object, 1, size);
			free(object);
		}
	for (size_t alignment = 32; alignment <= LARGEST / 2; alignment *= 2) {
		size_t sizes[] = {alignment - 1, alignment, 3 * alignment - 5};

		for (unsigned i = 0; i < (alignment < PAGE ? 3 : 2); i++)
			aligned(alignment, sizes[i]);
	}
	CHECK(guarded("live") == live && guarded("bytes") == bytes);
}

/* An object of a cache aligned to more than a page, or to a fraction of one, has the cache's size. */
static void cache(size_t alignment, size_t size)
{
	const struct cpuslab_cache_args args = {.name = "aligned", .size = size, .align = alignment};
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);
	unsigned long picked = guarded("picked");

	CHECK(cache);
	for (unsigned i = 0; i < 8; i++) {
		char *object = cpuslab_cache_alloc(cache);

		CHECK(object && (uintptr_t)object % alignment == 0);
		check_stamp(object, size, i);
		CHECK_STAMP(object, size, i);
		cpuslab_cache_free(cache, object);
	}
	CHECK(guarded("picked") > picked, "no object of %zu bytes, aligned to %zu", size, alignment);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

/* ---- bounds ---------------------------------------------------------------------------------------- */

static unsigned mappings(void)
{
	static char maps[1 << 20];
	int file = open("/proc/self/maps", O_RDONLY);
	unsigned lines = 0;
	ssize_t got;

	while ((got = read(file, maps, sizeof maps)) > 0)
		for (ssize_t i = 0; i < got; i++)
			lines += maps[i] == '\n';
	close(file);
	return lines;
}

/* More than there are slots for: half of them are used, and the other requests get ordinary memory. */
static void exhaustion(void)
{
	static char *object[4 * SLOTS];
	unsigned before = mappings();
	unsigned long refused = guarded("refused"), live = guarded("live");

	for (unsigned i = 0; i < 4 * SLOTS; i++) {
		object[i] = malloc(100);
		CHECK(object[i]);
		check_stamp(object[i], 100, i);
	}
	CHECK(guarded("live") == SLOTS / 2);
	CHECK(guarded("refused") >= refused + 3 * SLOTS);
	CHECK(mappings() <= before + 2 * SLOTS + 8, "%u mappings, %u before", mappings(), before);
	for (unsigned i = 0; i < 4 * SLOTS; i++) {
		CHECK_STAMP(object[i], 100, i);
		free(object[i]);
	}
	CHECK(guarded("live") == live);

	/* The largest objects: at most two pages for each slot. */
	for (unsigned i = 0; i < SLOTS; i++)
		CHECK((object[i] = malloc(64 << 10)));
	CHECK(guarded("bytes") <= 2ul * SLOTS * PAGE && guarded("bytes") > SLOTS * PAGE);
	for (unsigned i = 0; i < SLOTS; i++)
		free(object[i]);
}

/* The slot that has been free for longest is used next. */
static void reuse(void)
{
	static char *place[SLOTS];
	const unsigned others = SLOTS - 1 - (unsigned)guarded("live");

	for (unsigned i = 0; i < 4 * SLOTS; i++) {
		/* As large as a slot, so that its address tells which slot it is. */
		char *now = alloc_guarded(256 << 10);

		for (unsigned j = 0; j < others; j++)
			CHECK(place[j] != now, "used again after %u others", i);
		memmove(place + 1, place, sizeof place - sizeof *place);
		place[0] = now;
		free(now);
	}
}

/* ---- the rate -------------------------------------------------------------------------------------- */

/* Objects reused over and over, in random order: one in 100 allocations, within a factor of two. */
static void rate(size_t size)
{
	enum { OBJECTS = 20000, RATE = 100 };
	static char *object[OBJECTS];
	const unsigned long rounds = check_rounds(1000000, 4000000, 100000);
	uint64_t random = 1 + size;

	for (unsigned i = 0; i < OBJECTS; i++)
		CHECK((object[i] = malloc(size)));

	unsigned long before = guarded("picked") + guarded("refused");

	for (unsigned long i = 0; i < rounds; i++) {
		size_t one = check_below(&random, OBJECTS);

		free(object[one]);
		CHECK((object[one] = malloc(size)));
	}
	unsigned long picked = guarded("picked") + guarded("refused") - before;

	CHECK(picked > rounds / RATE / 2 && picked < rounds / RATE * 2, "%lu of %lu, %zu bytes", picked,
	      rounds, size);
	for (unsigned i = 0; i < OBJECTS; i++)
		free(object[i]);
}

/* ---- a system that refuses ------------------------------------------------------------------------- */

enum { LEFT_OPEN = 20 };

/* Frees objects while this thread is refused any mapping; returns whether that could be arranged. */
static void *free_refused(void *argument)
{
	char **object = argument;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		return NULL;
	for (unsigned i = 0; i < LEFT_OPEN; i++)
		free(object[i]);
	return object;
}

/* A slot whose pages the system did not take is not reused until it does. */
static void refusal(void)
{
	char *object[LEFT_OPEN], *other[SLOTS];
	unsigned long live = guarded("live"), bytes = guarded("bytes");

	for (unsigned i = 0; i < LEFT_OPEN; i++)
		object[i] = alloc_guarded(100);
	if (!check_join(check_thread(free_refused, object))) {
		printf("no seccomp filters here: not shown where mappings are refused\n");
		return;
	}
	CHECK(guarded("live") >= live + LEFT_OPEN && guarded("bytes") < bytes + LEFT_OPEN * 100);
	/* The pool is used to its limit; no slot is handed out again before it was closed. */
	for (unsigned i = 0; i < SLOTS; i++)
		CHECK((other[i] = malloc(100)));
	CHECK(guarded("live") == SLOTS / 2);
	for (unsigned i = 0; i < SLOTS; i++)
		free(other[i]);
	/* Objects that libc keeps for its threads may be among them. */
	CHECK(guarded("live") <= live + 4, "%lu live, %lu before", guarded("live"), live);
}

/* ---- how many in a second -------------------------------------------------------------------------- */

static uint64_t milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* With ten in a second: one at once, and another each tenth of a second, however many could be picked. */
static void limit(void)
{
	enum { MANY = 1000 };
	static char *object[MANY];
	uint64_t start = milliseconds();
	unsigned long picked = 0;

	while (picked < 4) {
		/* More than a magazine holds: while guarding rests nothing else reaches a slow path. */
		for (unsigned i = 0; i < MANY; i++)
			CHECK((object[i] = malloc(100)));
		for (unsigned i = 0; i < MANY; i++)
			free(object[i]);
		picked = guarded("picked");
		CHECK(picked <= 2 + (milliseconds() - start + 63) / 100, "%lu", picked);
	}
	CHECK(guarded("passed") > 0);
}

/* ---- threads and children -------------------------------------------------------------------------- */

enum { THREADS = 4, HELD = 32 };

static char *exchange[HELD];

static void *trade(void *argument)
{
	uint64_t random = (uintptr_t)argument;
	const unsigned long rounds = check_rounds(3000, 400000, 500);

	for (unsigned long i = 0; i < rounds; i++) {
		size_t size = 8 + check_below(&random, 3000);
		char *object = malloc(size);

		CHECK(object);
		memcpy(object, &size, sizeof size);
		check_stamp(object + 8, size - 8, size);
		object = __atomic_exchange_n(&exchange[check_below(&random, HELD)], object, __ATOMIC_ACQ_REL);
		if (!object)
			continue;
		memcpy(&size, object, sizeof size);
		CHECK_STAMP(object + 8, size - 8, size);
		free(object);
	}
	return NULL;
}

static void trade_all(void)
{
	pthread_t thread[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		thread[i] = check_thread(trade, (void *)(i + 1));
	for (unsigned i = 0; i < THREADS; i++)
		check_join(thread[i]);
}

static void threads(void)
{
	trade_all();
	for (unsigned i = 0; i < HELD; i++)
		free(__atomic_exchange_n(&exchange[i], NULL, __ATOMIC_ACQ_REL));
	/* Objects that libc keeps for its threads may be among them. */
	CHECK(guarded("live") <= 4 * THREADS);
}

/* Forks while other threads allocate; each child frees what it finds, and allocates as much as it likes. */
static void children(void)
{
	pthread_t thread = check_thread(trade, (void *)7);
	const unsigned long rounds = check_rounds(20, 2000, 3);

	for (unsigned long i = 0; i < rounds; i++) {
		pid_t child = fork();

		CHECK(child >= 0);
		if (child == 0) {
			check_watchdog(30);
			trade((void *)(i + 1));
			_exit(0);
		}
		CHECK_EXITED(check_wait(child), 0);
	}
	check_join(thread);
}

/* ---- a fork while a thread takes or releases a slot --------------------------------------------------- */

static struct {
	char *object;  /* object to free; NULL for an allocation */
	int is_inside; /* the thread is in the middle of it */
	int may_go_on;
	int was_caught;
} caught;

/* Handles a refused system call: waits, and fails with ENOMEM. */
static void on_refused(int number, siginfo_t *information, void *context)
{
	ucontext_t *frame = context;

	(void)number;
	(void)information;
	__atomic_store_n(&caught.was_caught, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&caught.is_inside, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&caught.may_go_on, __ATOMIC_ACQUIRE))
		sched_yield();
#ifdef __x86_64__
	frame->uc_mcontext.gregs[REG_RAX] = -ENOMEM;
#else
	frame->uc_mcontext.regs[0] = -ENOMEM;
#endif
}

/* Takes or releases a slot, and is stopped where it maps or returns the slot's pages. */
static void *stop_inside(void *argument)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, caught.object ? SYS_mmap : SYS_mprotect, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0) {
		if (caught.object)
			free(caught.object);
		for (unsigned tries = 0; !caught.object && tries < 4 && !caught.was_caught; tries++)
			free(malloc(100));
	}
	__atomic_store_n(&caught.is_inside, 1, __ATOMIC_RELEASE);
	return argument;
}

/* The child has every slot that the parent's other thread had, to the last one. */
static void use_all_places(unsigned long live)
{
	char *object[2 * SLOTS];

	CHECK(guarded("live") == live, "%lu live, %lu in use", guarded("live"), live);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 2 * SLOTS; i++)
			object[i] = memset(malloc(100), 1, 100);
		CHECK(guarded("live") == SLOTS / 2);
		for (unsigned i = 0; i < 2 * SLOTS; i++)
			free(object[i]);
		CHECK(guarded("live") <= live);
	}
}

static void fork_amid(char *object)
{
	struct sigaction action = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO};
	memset(&caught, 0, sizeof caught);
	caught.object = object;
	CHECK(sigaction(SIGSYS, &action, NULL) == 0);
	pthread_t thread = check_thread(stop_inside, NULL);

	while (!__atomic_load_n(&caught.is_inside, __ATOMIC_ACQUIRE))
		sched_yield();
	if (caught.was_caught) {
		/* Without the slot in question. */
		unsigned long live = guarded("live") - 1;
		pid_t child = fork();

		CHECK(child >= 0);
		if (child == 0) {
			check_watchdog(30);
			use_all_places(live);
			_exit(0);
		}
		CHECK_EXITED(check_wait(child), 0);
	} else {
		printf("no seccomp filters here: not shown where a fork catches a thread\n");
	}
	__atomic_store_n(&caught.may_go_on, 1, __ATOMIC_RELEASE);
	check_join(thread);
}

/* A heap profile marks objects in magazines as well: each has one mark, whichever feature wants it. */
static void profiled(void)
{
	enum { ROUNDS = 20, OBJECTS = 2000 };
	static char *objects[OBJECTS];
	unsigned long picked = guarded("picked");

	for (size_t size = 16; size <= 1024; size *= 4)
		for (unsigned round = 0; round < ROUNDS; round++) {
			for (unsigned i = 0; i < OBJECTS; i++) {
				objects[i] = malloc(size);
				CHECK(objects[i], "%zu bytes", size);
				check_stamp(objects[i], size, i);
			}
			for (unsigned i = 0; i < OBJECTS; i++) {
				CHECK_STAMP(objects[i], size, i);
				free(objects[i]);
			}
		}
	CHECK(guarded("picked") > picked);
}

/* Destroying a cache with guarded and other objects in use names each remaining one. */
static void destroy_in_use(void *argument)
{
	struct cpuslab_cache *cache = argument;

	CHECK(cpuslab_cache_destroy(cache) == -1 && errno == EBUSY);
}

static void named(void)
{
	enum { OBJECTS = 300, LEFT = 100 };
	static char said[1 << 16];
	char *object[OBJECTS];
	const struct cpuslab_cache_args args = {
		.name = "named", .size = 200, .flags = CPUSLAB_CACHE_NO_MERGE};
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);
	unsigned long live = guarded("live");

	CHECK(cache);
	for (unsigned i = 0; i < OBJECTS; i++)
		CHECK((object[i] = cpuslab_cache_alloc(cache)));
	for (unsigned i = LEFT; i < OBJECTS; i++)
		cpuslab_cache_free(cache, object[i]);
	live = guarded("live") - live;
	CHECK(live > 0 && live < LEFT, "%lu of them guarded", live);
	CHECK_EXITED(check_child(destroy_in_use, cache, said, sizeof said), 0);
	for (unsigned i = 0; i < LEFT; i++) {
		char address[32];

		snprintf(address, sizeof address, "named: %p: still", (void *)object[i]);
		CHECK(strstr(said, address), "object %u", i);
	}
	destroy_in_use(cache);
	for (unsigned i = 0; i < LEFT; i++)
		cpuslab_cache_free(cache, object[i]);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	check_watchdog(100);
	if (argc == 1) {
		check_again("guard:1,guard_second:0,guard_cost:0,guard_slots:64", "pool");
		check_again("guard:1,guard_second:0,guard_cost:0,guard_slots:64,vcpu:slot", "pool");
		check_again("guard:100,guard_second:0,guard_cost:0,guard_slots:4096", "rate");
		check_again("guard:1,guard_second:10,guard_cost:0", "limit");
		check_again("guard:1,guard_second:0,guard_cost:0,guard_slots:64", "amid");
		check_again("guard:3,guard_second:0,guard_cost:0", "threads");
		check_again("guard:3,guard_second:0,guard_cost:0,vcpu:slot", "threads");
		check_again("guard:3,guard_second:0,guard_cost:0,profile:1K", "profiled");
	} else if (strcmp(what, "pool") == 0) {
		family();
		cache(16384, 10000);
		cache(64, 100);
		named();
		exhaustion();
		reuse();
		refusal();
	} else if (strcmp(what, "rate") == 0) {
		rate(1024);
		rate(2000);
	} else if (strcmp(what, "limit") == 0) {
		limit();
	} else if (strcmp(what, "profiled") == 0) {
		profiled();
	} else if (strcmp(what, "amid") == 0) {
		fork_amid(NULL);
		fork_amid(alloc_guarded(100));
	} else {
		threads();
		children();
	}
	return 0;
}
