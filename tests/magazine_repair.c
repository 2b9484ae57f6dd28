/* SPDX-License-Identifier: MIT */
/*
 * magazine_repair: a forked child can use the heap whatever the parent's other threads were in the middle of.
 *
 *   magazine_repair held    the locks of depot and slabs are held at the fork, or the vCPU's area is closed
 *   magazine_repair steps   a fork at each instruction of the slow paths of all rooms: the thread
 *                           single-steps, and the handler of the trap forks.  The child never returns to the
 *                           interrupted code, as if another thread had run it.  With thread slots only:
 *                           restartable sequences cannot be stepped through.
 *
 * What such a thread had in hand may be lost; nothing may be in two places, and every list and count must
 * agree with the marks.
 */
#include "check.h"

#include <sys/ucontext.h>

#include "heap.h"
#include "linked/linked.h"
#include "magazine/magazine.h"
#include "process/process.h"
#include "options/options.h"
#include "profile/profile.h"
#include "single_step.h"

enum { CACHES = 3, MOST = 2000, MAPPINGS = 60, RUNS = 8, UNIT = 40 << 10 };

static const uint32_t sizes[CACHES] = {112, 8192, 131072};
static struct cache caches[CACHES];

static struct object {
	struct object *self;
} *out[CACHES][MOST];
static unsigned out_count[CACHES];

/* The linked engine, too: small objects, large ones, and type-stable memory. */
enum { LINKED = 3, LINKED_MOST = 600, LINKED_ROUND = 150 };
static const struct linked_traits linked_traits[LINKED] = {
	{.name = "linked", .size = 200, .alignment = 8, .link = UINT32_MAX},
	{.name = "linked large", .size = 6000, .alignment = 8, .link = UINT32_MAX},
	{.name = "linked stable", .size = 72, .alignment = 8, .link = UINT32_MAX, .type_stable = true},
};
static struct linked_cache linked[LINKED];
static struct object *linked_out[LINKED][LINKED_MOST];
static unsigned linked_count[LINKED];

static struct mapping {
	char *address;
	size_t bytes;
} mappings[MAPPINGS];

static struct run_out {
	char *start;
	size_t pages;
} runs[RUNS];

/*
 * Time stands still unless the test advances it: single steps are slow, and the library would do little but
 * the work of ticks.
 */
static time_t seconds = 1000;

int clock_gettime(clockid_t clock, struct timespec *now)
{
	(void)clock;
	*now = (struct timespec){.tv_sec = seconds};
	return 0;
}

/* ---- single steps ---------------------------------------------------------------------------------- */

static bool stepping; /* the operation under way is to be stepped through */

/*
 * A fork may fall between any two stores of the test's own, too: the address is what counts, and is stored
 * last.
 */
static void publish_run(unsigned i, char *start, size_t pages)
{
	runs[i].pages = pages;
	__atomic_store_n(&runs[i].start, start, __ATOMIC_RELEASE);
}

static void publish_mapping(unsigned i, char *address, size_t bytes)
{
	mappings[i].bytes = bytes;
	__atomic_store_n(&mappings[i].address, address, __ATOMIC_RELEASE);
}

/* ---- the operations ------------------------------------------------------------------------------------ */

static void take(unsigned c)
{
	struct object *object = magazine_alloc(&caches[c].offset);
	if (!object) {
		if (stepping)
			step_from_here();
		object = magazine_alloc_missed(&caches[c]);
		step_to_here();
	}
	CHECK(object && object->self != object, "%p was handed out twice", (void *)object);
	object->self = object;
	out[c][out_count[c]] = object;
	__atomic_store_n(&out_count[c], out_count[c] + 1, __ATOMIC_RELEASE);
}

static void give(unsigned c)
{
	struct object *object = out[c][out_count[c] - 1];
	CHECK(object->self == object);
	__atomic_store_n(&out_count[c], out_count[c] - 1, __ATOMIC_RELEASE);
	object->self = NULL;
	if (!magazine_free(&caches[c].offset, object)) {
		if (stepping)
			step_from_here();
		magazine_free_missed(&caches[c], object);
		step_to_here();
	}
}

static void take_linked(unsigned c)
{
	struct object *object = linked_alloc(&linked[c]);
	if (!object) {
		if (stepping)
			step_from_here();
		object = linked_alloc_missed(&linked[c]);
		step_to_here();
	}
	CHECK(object && object->self != object, "%p was handed out twice", (void *)object);
	object->self = object;
	linked_out[c][linked_count[c]] = object;
	__atomic_store_n(&linked_count[c], linked_count[c] + 1, __ATOMIC_RELEASE);
}

/* Frees the first one taken, which is seldom in the word's slab. */
static void give_linked(unsigned c)
{
	struct object *object = linked_out[c][0];
	CHECK(object->self == object);
	object->self = NULL;
	unsigned count = linked_count[c];
	linked_out[c][0] = linked_out[c][count - 1];
	__atomic_store_n(&linked_count[c], count - 1, __ATOMIC_RELEASE);
	if (!linked_free(&linked[c], object)) {
		if (stepping)
			step_from_here();
		linked_free_missed(&linked[c], object);
		step_to_here();
	}
}

static void take_run(unsigned i, size_t pages)
{
	bool zeroed;
	char *start = page_alloc(pages, 1, PAGE_LARGE, &zeroed);
	CHECK(start);
	start[0] = start[pages * PAGE_BYTES - 1] = (char)(i + 1);
	publish_run(i, start, pages);
}

static void give_run(unsigned i)
{
	struct run_out run = runs[i];
	CHECK(run.start[0] == (char)(i + 1));
	runs[i].start = NULL;
	page_free(run.start, run.pages);
}

static void take_mapping(unsigned i, size_t bytes)
{
	bool zeroed;
	char *address = huge_alloc(bytes, 1, &zeroed);
	CHECK(address);
	size_t bytes_mapped = huge_bytes(address);
	address[0] = address[bytes_mapped - 1] = 1;
	publish_mapping(i, address, bytes_mapped);
}

static void give_mapping(unsigned i)
{
	char *address = mappings[i].address;
	mappings[i].address = NULL;
	CHECK(huge_free(address));
}

/* ---- what the child finds -------------------------------------------------------------------------- */

static void check_cache(unsigned c)
{
	struct slab_statistics slabs;
	struct depot_statistics depot;
	slab_statistics(&caches[c].depot.slabs, &slabs);
	depot_statistics(&caches[c].depot, &depot);
	uint64_t found = out_count[c] + magazine_objects_loaded(&caches[c]) + depot.objects;
	/*
	 * Missing objects were in the hand of the stopped thread: at most two magazines (depot.h), and the
	 * object being freed.
	 */
	CHECK(slabs.allocated >= found && slabs.allocated - found <= 2u * caches[c].depot.capacity_most + 1,
	      "cache %u: %llu objects allocated, but %llu found", c, (unsigned long long)slabs.allocated,
	      (unsigned long long)found);
	CHECK(slabs.capacity >= slabs.allocated);
}

static void check_linked(unsigned c)
{
	struct linked_statistics now;
	linked_statistics(&linked[c], &now);
	CHECK(now.allocated >= linked_count[c] && now.capacity >= now.allocated + now.hoarded,
	      "linked cache %u: %llu objects allocated of %llu, and %u are", c,
	      (unsigned long long)now.allocated, (unsigned long long)now.capacity, linked_count[c]);
}

/*
 * Every slab is in its cache's count, except for one that the thread was making or giving back; slabs of
 * linked caches are all counted.
 */
static void check_slab_pages(void)
{
	size_t found = 0, largest = 0, linked_found = 0, linked_pages = 0;
	for (unsigned number = 0; number < magazine_caches(); number++) {
		struct slab_statistics slabs;
		struct cache *cache = magazine_cache_number(number);
		if (!cache)
			continue;
		slab_statistics(&cache->depot.slabs, &slabs);
		found += slabs.slabs * cache->depot.slabs.pages;
		if (cache->depot.slabs.pages > largest)
			largest = cache->depot.slabs.pages;
	}
	for (unsigned c = 0; c < LINKED; c++)
		linked_found += linked[c].slabs * ((linked[c].list.slab_mask + 1) / PAGE_BYTES);
	for (size_t page = 0; page < page_heap_pages(); page++)
		linked_pages += heap_id(page) == PAGE_LINKED;
	CHECK(linked_pages == linked_found, "%zu pages of linked slabs, but %zu found", linked_pages,
	      linked_found);
	size_t pages = heap_walk().slab_pages - linked_pages;
	CHECK(pages >= found && pages - found <= largest, "%zu pages of slabs, but %zu found", pages, found);
}

static void survive_linked(void)
{
	for (unsigned c = 0; c < LINKED; c++) {
		check_linked(c);
		for (unsigned i = 0; i < 100 && linked_count[c] < LINKED_MOST; i++)
			take_linked(c);
		check_linked(c);
		while (linked_count[c])
			give_linked(c);
		check_linked(c);
	}
}

static bool making_bank;

static unsigned take_number(void)
{
	unsigned number;
	CHECK(vcpu_take_numbers(1, &number));
	return number;
}

/* Makes two more banks, one of which may be half made; each has a table of its own. */
static void survive_banks(void)
{
	unsigned number;
	do
		number = take_number();
	while (number < 3 * VCPU_BANK_CACHES);
	for (unsigned bank = 0; bank < 3; bank++)
		for (unsigned other = bank + 1; other <= 3; other++)
			CHECK(vcpu_map(bank * VCPU_BANK_CACHES) != vcpu_map(other * VCPU_BANK_CACHES),
			      "banks %u and %u have one table", bank, other);
	for (unsigned id = 0; id < vcpu_ids(); id++)
		if (vcpu_word(id, 0) && vcpu_word(id, number))
			CHECK(vcpu_word(id, number) != vcpu_word(id, number - VCPU_BANK_CACHES));
}

static void survive(void)
{
	stepping = false;
	check_watchdog(20);
	process_enter();
	CHECK(*process_alive == 1);
	check_slab_pages();
	for (unsigned c = 0; c < CACHES; c++) {
		unsigned more = caches[c].depot.capacity + 40u;
		check_cache(c);
		for (unsigned i = 0; i < more && out_count[c] < MOST; i++)
			take(c);
		check_cache(c);
		while (out_count[c])
			give(c);
		check_cache(c);
	}
	survive_linked();
	for (unsigned i = 0; i < RUNS; i++) {
		if (runs[i].start) {
			CHECK(page_large_pages(runs[i].start) == runs[i].pages);
			CHECK(runs[i].start[runs[i].pages > 1 ? runs[i].pages * PAGE_BYTES - 1 : 0] ==
				      (char)(i + 1) ||
			      runs[i].pages == 1);
			give_run(i);
		}
		take_run(i, 5);
	}
	for (unsigned i = 0; i < MAPPINGS; i++)
		if (mappings[i].address) {
			CHECK(huge_bytes(mappings[i].address) == mappings[i].bytes);
			CHECK(mappings[i].address[0] == 1 && mappings[i].address[mappings[i].bytes - 1] == 1);
			give_mapping(i);
		}
	/* Cached mappings are as long as recorded. */
	for (unsigned i = 0; i < 12; i++) {
		take_mapping(i, (i % 4 + 1) * UNIT);
		memset(mappings[i].address, 1, mappings[i].bytes);
	}
	heap_walk();
	for (unsigned i = 0; i < RUNS; i++)
		give_run(i);
	for (unsigned i = 0; i < 12; i++)
		give_mapping(i);
	magazine_trim();
	heap_walk();
	for (unsigned c = 0; c < CACHES; c++) {
		struct depot_statistics depot;
		depot_statistics(&caches[c].depot, &depot);
		CHECK(depot.filled == 0 && depot.empty == 0 && depot.objects == 0);
		CHECK(magazine_objects_loaded(&caches[c]) == 0);
		check_cache(c);
	}
	for (unsigned c = 0; c < LINKED; c++) {
		struct linked_statistics now;
		linked_statistics(&linked[c], &now);
		CHECK(now.hoarded == 0);
		check_linked(c);
	}
	struct page_statistics pages;
	page_statistics(&pages);
	CHECK(pages.huge_cached_bytes == 0 && pages.dirty_pages == 0);
	free(malloc(100));
	free(malloc(1 << 20));
	if (making_bank)
		survive_banks();
}

/* ---- locks held ------------------------------------------------------------------------------------ */

static void fork_and_survive(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		survive();
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
}

/* The lock was held, but nothing was half done: the child's list is as long as the parent's. */
static void check_lists_after_fork(unsigned c)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		uint32_t partial = linked[c].partial, slabs = linked[c].slabs;
		process_enter();
		CHECK(partial && linked[c].partial == partial && linked[c].slabs == slabs);
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
}

static struct linked_cache constructed;
static pid_t made_in_constructor;

/* Forks at the first object, while another thread takes the cache's lock. */
static void fork_in_constructor(void *object)
{
	*(char *)object = 1;
	if (made_in_constructor)
		return;
	cpuslab_spin_lock(&constructed.lock);
	made_in_constructor = fork();
	CHECK(made_in_constructor >= 0);
	if (made_in_constructor == 0) {
		made_in_constructor = getpid();
		process_enter();
		CHECK(!cpuslab_spin_is_locked(&constructed.lock));
	} else {
		cpuslab_spin_unlock(&constructed.lock);
	}
}

static void *allocate_constructed(void *unused)
{
	(void)unused;
	return linked_alloc_missed(&constructed);
}

/*
 * In the child the forking thread continues with its slab, and frees everything there was; a slab that
 * another thread was making belongs to nobody there, whatever becomes of the cache.
 */
static void test_fork_in_constructor(void)
{
	static const struct linked_traits traits = {.name = "constructed",
						    .size = 200,
						    .alignment = 8,
						    .link = UINT32_MAX,
						    .construct = fork_in_constructor};
	pid_t own = getpid();
	CHECK(linked_create(&constructed, &traits, NULL));
	void *object = linked_alloc_missed(&constructed);
	CHECK(object && *(char *)object == 1 && constructed.slabs == 1, "%u slabs", constructed.slabs);
	linked_free_missed(&constructed, object);
	CHECK(linked_destroy(&constructed));
	if (getpid() != own)
		_exit(0);
	CHECK_EXITED(check_wait(made_in_constructor), 0);
}

static bool waiting_in_constructor, goes_on;

static void wait_in_constructor(void *object)
{
	*(char *)object = 1;
	__atomic_store_n(&waiting_in_constructor, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&goes_on, __ATOMIC_ACQUIRE))
		usleep(100);
}

static void test_fork_beside_constructor(void)
{
	static const struct linked_traits traits = {.name = "constructed",
						    .size = 200,
						    .alignment = 8,
						    .link = UINT32_MAX,
						    .construct = wait_in_constructor};
	CHECK(linked_create(&constructed, &traits, NULL));
	pthread_t maker = check_thread(allocate_constructed, NULL);
	while (!__atomic_load_n(&waiting_in_constructor, __ATOMIC_ACQUIRE))
		usleep(100);
	cpuslab_spin_lock(&constructed.lock);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		process_enter();
		CHECK(linked_destroy(&constructed), "%u slabs", constructed.slabs);
		/* Nothing of it is read any more. */
		memset(&constructed, 0xff, sizeof constructed);
		cpuslab_spin_lock(&linked[0].lock);
		check_lists_after_fork(0);
		_exit(0);
	}
	cpuslab_spin_unlock(&constructed.lock);
	CHECK_EXITED(check_wait(child), 0);
	__atomic_store_n(&goes_on, true, __ATOMIC_RELEASE);
	linked_free_missed(&constructed, check_join(maker));
	CHECK(linked_destroy(&constructed));
}

static void run_held(void)
{
	check_pin();
	for (unsigned c = 0; c < CACHES; c++) {
		unsigned count = 2u * caches[c].depot.capacity + 5;
		for (unsigned i = 0; i < count; i++)
			take(c);
		for (unsigned i = 0; i < count - 3; i++)
			give(c);
	}
	for (unsigned i = 0; i < RUNS; i++)
		take_run(i, 3 + i);
	for (unsigned i = 0; i < MAPPINGS; i++)
		take_mapping(i, (i % 4 + 1) * UNIT);

	fork_and_survive();
	for (unsigned c = 0; c < CACHES; c++) {
		struct depot *depot = &caches[c].depot;
		cpuslab_spin_lock(&depot->lock);
		fork_and_survive();
		cpuslab_spin_lock(&depot->slabs.lock);
		fork_and_survive();
		cpuslab_spin_unlock(&depot->lock);
		fork_and_survive();
		cpuslab_spin_unlock(&depot->slabs.lock);
	}
	for (unsigned c = 0; c < LINKED; c++) {
		for (unsigned i = 0; i < LINKED_ROUND; i++)
			take_linked(c);
		for (unsigned i = 0; i < LINKED_ROUND / 2; i++)
			give_linked(c);
		cpuslab_spin_lock(&linked[c].lock);
		fork_and_survive();
		check_lists_after_fork(c);
		cpuslab_spin_unlock(&linked[c].lock);
		linked_begin_census();
		fork_and_survive();
		linked_end_census();
	}
	/* An area that was being drained is open again. */
	unsigned id = arch_id(vcpu_self);
	CHECK(vcpu_close(id));
	CHECK(arch_peek(vcpu_self, page_front.map, caches[0].offset) == vcpu_closed);
	fork_and_survive();
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		process_enter();
		CHECK(arch_peek(vcpu_self, page_front.map, caches[0].offset) != vcpu_closed);
		_exit(0);
	}
	CHECK_EXITED(check_wait(child), 0);
	vcpu_reopen(id);
	fork_and_survive();
	test_fork_in_constructor();
	test_fork_beside_constructor();
	survive();
}

/* ---- after each store ------------------------------------------------------------------------------ */

#ifdef __x86_64__

static void use_magazines(unsigned magazines, unsigned most)
{
	for (unsigned c = 0; c < CACHES; c++) {
		unsigned count = magazines * caches[c].depot.capacity;
		count = count > most ? most : count;
		for (unsigned i = 0; i < count; i++)
			take(c);
		for (unsigned i = 0; i < count; i++)
			give(c);
	}
}

static void use_objects(void)
{
	use_magazines(4, 700);
}

/* Leaves many magazines in the depots. */
static void fill_depots(void)
{
	use_magazines(5, MOST);
}

/* Allocates without waiting, from a waiting magazine. */
static void take_waiting(void)
{
	struct object *object = depot_try_alloc(&caches[0].depot);
	CHECK(object && object->self != object, "%p was handed out twice", (void *)object);
	object->self = object;
	out[0][out_count[0]] = object;
	__atomic_store_n(&out_count[0], out_count[0] + 1, __ATOMIC_RELEASE);
}

/*
 * Puts a mark above the top object of the magazine that take_waiting() takes from next; returns its number of
 * objects.
 */
static unsigned leave_marked(void)
{
	struct depot *depot = &caches[0].depot;
	struct magazine *magazine = depot_take_filled(depot, NULL);
	CHECK(magazine && magazine->count >= 3);
	slab_free_batch(&depot->slabs, &magazine->slot[magazine->count], 1);
	magazine->slot[magazine->count] = NULL;
	magazine->marks++;
	unsigned objects = magazine->count - magazine->marks;
	depot_put(depot, magazine);
	return objects;
}

/* Leaves a slab made while the lock was held, which the next holder of the lock adopts. */
static void leave_made(void)
{
	struct slab_cache *slabs = &caches[0].depot.slabs;
	cpuslab_spin_lock(&slabs->lock);
	struct object *object = slab_try_alloc(slabs);
	cpuslab_spin_unlock(&slabs->lock);
	CHECK(object && slabs->made);
	object->self = object;
	out[0][out_count[0]] = object;
	__atomic_store_n(&out_count[0], out_count[0] + 1, __ATOMIC_RELEASE);
}

static void adopt_made(void)
{
	struct slab_statistics now;
	slab_statistics(&caches[0].depot.slabs, &now);
	CHECK(!caches[0].depot.slabs.made);
}

static void use_linked(void)
{
	for (unsigned c = 0; c < LINKED; c++) {
		void *several[40];
		for (unsigned i = 0; i < LINKED_ROUND; i++)
			take_linked(c);
		for (unsigned i = 0; i < LINKED_ROUND - 20; i++)
			give_linked(c);
		if (stepping)
			step_from_here();
		CHECK(linked_alloc_several(&linked[c], several, 40) == 40);
		linked_free_several(&linked[c], several, 40);
		linked_shrink(&linked[c]);
		step_to_here();
		while (linked_count[c])
			give_linked(c);
	}
}

static void use_runs(void)
{
	for (unsigned i = 0; i < RUNS; i++)
		take_run(i, 3 + i);
	for (unsigned i = 0; i < RUNS; i += 2)
		give_run(i);
	for (unsigned i = 1; i < RUNS; i += 2) {
		/* Counts as lost while its size changes. */
		struct run_out run = runs[i];
		runs[i].start = NULL;
		(void)page_large_resize(run.start, run.pages + 2);
		CHECK(page_large_resize(run.start, 2));
		CHECK(page_large_resize(run.start, 1));
		publish_run(i, run.start, 1);
	}
	for (unsigned i = 1; i < RUNS; i += 2)
		give_run(i);
}

static void use_mappings(void)
{
	/* Enough for the table to grow, in sizes that replace each other in the cache. */
	for (unsigned i = 0; i < MAPPINGS; i++)
		take_mapping(i, (i % 4 + 1) * UNIT);
	for (unsigned i = 0; i < 4; i++) {
		struct mapping mapping = mappings[i];
		mappings[i].address = NULL;
		mapping.address = huge_resize(mapping.address, 5 * UNIT);
		CHECK(mapping.address);
		mapping.address[5 * UNIT - 1] = 1;
		publish_mapping(i, mapping.address, 5 * UNIT);
	}
	for (unsigned i = 0; i < MAPPINGS; i++)
		give_mapping(i);
	for (unsigned i = 0; i < 12; i++)
		take_mapping(i, (i % 4 + 1) * UNIT - 8192);
	for (unsigned i = 0; i < 12; i++)
		give_mapping(i);
}

extern const char text_start[] __asm__("__executable_start"), text_end[] __asm__("etext");

enum { TEXT_MOST = 2 << 20 };
static uint8_t visits[TEXT_MOST];
static unsigned long steps, forks;
static unsigned visits_wanted = 1;

/*
 * Whether an instruction writes memory other than the stack: behind one that cannot have changed anything no
 * fork is needed.  Recognises the stores that compilers use.
 */
static bool is_store(const uint8_t *code)
{
	while (*code == 0x66 || *code == 0xf0 || *code == 0xf2 || *code == 0xf3 || *code == 0x64 ||
	       (*code & 0xf0) == 0x40)
		code++;
	uint8_t opcode = *code++;
	if (opcode == 0xa4 || opcode == 0xa5 || opcode == 0xaa || opcode == 0xab)
		return true;
	bool stores = false;
	if (opcode == 0x0f) {
		opcode = *code++;
		stores = opcode == 0x11 || opcode == 0x13 || opcode == 0x17 || opcode == 0x29 ||
			 opcode == 0x7f || opcode == 0xd6 || opcode == 0xe7 || opcode == 0xb0 ||
			 opcode == 0xb1 || opcode == 0xc0 || opcode == 0xc1 || opcode == 0xab ||
			 opcode == 0xb3 || opcode == 0xba;
	} else {
		stores = (opcode < 0x40 && (opcode & 7) < 2 && opcode < 0x38) || opcode == 0x80 ||
			 opcode == 0x81 || opcode == 0x83 || (opcode >= 0x86 && opcode <= 0x89) ||
			 opcode == 0xc6 || opcode == 0xc7 || opcode == 0xd1 || opcode == 0xd3 ||
			 opcode == 0xc1 || opcode == 0xf6 || opcode == 0xf7 || opcode == 0xfe ||
			 opcode == 0xff;
	}
	uint8_t modrm = *code++;
	bool memory = modrm >> 6 != 3, on_stack = memory && (modrm & 7) == 4 && (*code & 7) == 4;
	return stores && memory && !on_stack;
}

static bool is_text(uintptr_t at)
{
	return at >= (uintptr_t)text_start && at < (uintptr_t)text_end &&
	       at - (uintptr_t)text_start < TEXT_MOST;
}

static void on_step(int signal_number, siginfo_t *info, void *context)
{
	const ucontext_t *interrupted = context;
	static uintptr_t before;
	uintptr_t at = (uintptr_t)interrupted->uc_mcontext.gregs[REG_RIP], done = before;
	int saved = errno;
	(void)signal_number, (void)info;
	steps++;
	before = at;
	if (!is_text(done) || !is_store((const uint8_t *)done))
		return;
	size_t offset = done - (uintptr_t)text_start;
	if (visits[offset] >= visits_wanted)
		return;
	visits[offset]++;
	forks++;
	pid_t child = _Fork();
	CHECK(child >= 0);
	if (child == 0) {
		survive();
		_exit(0);
	}
	int status = check_wait(child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0,
	      "forked after offset %#zx, the child ended with wait status %#x", offset, (unsigned)status);
	errno = saved;
}

/* From here on, stores already visited count again. */
static void forget_visits(void)
{
	memset(visits, 0, sizeof visits);
}

/* A new choice of what to watch walks over the heap and empties all magazines. */
static void turn_profile(void)
{
	__atomic_store_n(&profile.wanted, 64 << 10, __ATOMIC_RELEASE);
	magazine_tick_profile();
	__atomic_store_n(&profile.wanted, 0, __ATOMIC_RELEASE);
	magazine_settle_profile();
}

/* As in a child whose parent's other threads held all these locks, and had just begun a slab. */
static void repair(void)
{
	bool zeroed;
	char *begun = page_alloc(2, 1, PAGE_SLAB, &zeroed);

	CHECK(begun);
	for (unsigned c = 0; c < CACHES; c++) {
		cpuslab_spin_lock(&caches[c].depot.lock);
		cpuslab_spin_lock(&caches[c].depot.slabs.lock);
	}
	for (unsigned c = 0; c < LINKED; c++)
		cpuslab_spin_lock(&linked[c].lock);
	__atomic_store_n((uint32_t *)process_alive, 0, __ATOMIC_RELEASE);
	process_enter();
}

static void take_bank(void)
{
	CHECK(take_number() == VCPU_BANK_CACHES);
}

static void step_through(const char *name, void (*function)(void))
{
	unsigned long before = forks, steps_before = steps;
	stepping = true;
	/* Hits are not worth stepping: objects turn stepping on when they miss. */
	if (function != use_objects && function != use_linked)
		step_from_here();
	function();
	step_to_here();
	stepping = false;
	printf("  %s: %lu forks in %lu steps\n", name, forks - before, steps - steps_before);
}

static void run_steps(void)
{
	if (cpuslab_vcpu_mode() != CPUSLAB_VCPU_THREAD_SLOT)
		check_skip("sections cannot be stepped through (%s)", check_mode());
	visits_wanted = (unsigned)check_rounds(1, 10, 1);
	struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO | SA_RESTART};
	CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
	magazine_trim();
	step_through("objects", use_objects);
	step_through("linked objects", use_linked);
	step_through("runs", use_runs);
	step_through("mappings", use_mappings);
	/* The first tick looks at the words, and the second finds them unchanged. */
	fill_depots();
	use_linked();
	use_mappings();
	for (unsigned c = 0; c < LINKED; c++)
		take_linked(c);
	magazine_tick();
	seconds++;
	magazine_tick();
	seconds++;
	step_through("tick", magazine_tick);
	fill_depots();
	forget_visits();
	step_through("trim", magazine_trim);
	fill_depots();
	use_linked();
	forget_visits();
	step_through("repair", repair);
	fill_depots();
	step_through("profile", turn_profile);
	fill_depots();
	forget_visits();
	unsigned waiting = leave_marked();
	step_through("the first object of one that waits", take_waiting);
	while (--waiting > 1)
		take_waiting();
	forget_visits();
	step_through("its last one", take_waiting);
	forget_visits();
	step_through("a slab that is made without the lock", leave_made);
	forget_visits();
	step_through("a slab that was made without the lock", adopt_made);
	while (out_count[0])
		give(0);
	while (take_number() != VCPU_BANK_CACHES - 1)
		;
	making_bank = true;
	forget_visits();
	step_through("a bank", take_bank);
	CHECK(forks > 200, "only %lu forks in %lu steps", forks, steps);
	survive();
}

#else

static void run_steps(void)
{
	check_skip("the trap flag is known here for x86-64 only");
}

#endif

int main(int argc, char **argv)
{
	const char *variant = argc > 1 ? argv[1] : "held";
	bool in_steps = strcmp(variant, "steps") == 0;
	CHECK(in_steps || strcmp(variant, "held") == 0, "no variant '%s'", variant);
	free(malloc(1));
	/* Nothing goes back to the system by age. */
	options.decay = 1000000;
	for (unsigned i = 0; i < CACHES; i++) {
		struct slab_traits traits = {.name = "test", .size = sizes[i]};
		CHECK(magazine_create(&caches[i], &traits, 0, NULL));
	}
	for (unsigned i = 0; i < LINKED; i++)
		CHECK(linked_create(&linked[i], &linked_traits[i], NULL));
	check_watchdog(100);
	if (in_steps)
		run_steps();
	else
		run_held();
	return 0;
}
