/* SPDX-License-Identifier: MIT */
/*
 * arch_primitives: pop, push, their list counterparts, peek, replace and add on a hand-made table, areas and
 * magazine, with a registration that the kernel does not know of, as thread slots use.  After each call every
 * word and every slot holds exactly what arch.h says.
 */
#include "check.h"

#include <stddef.h>

#include "arch/arch.h"

enum { CAPACITY = 5, AREA_WORDS = 8192, LAST_OFFSET = (AREA_WORDS - 1) * 8, CANARY = 0x5a };

/* The table of areas ends where the map begins. */
static struct {
	uintptr_t table[ARCH_VCPUS];
	uint16_t map[4];
} front;

static uintptr_t areas[2][AREA_WORDS];
static __thread struct arch_rseq registration;
static struct arch_self self;

static struct {
	uintptr_t before;
	void *slot[CAPACITY + 2]; /* slot[0] is NULL, the last one the end mark */
	uintptr_t after;
} magazine;

static uintptr_t end_mark(void)
{
	return (uintptr_t)&magazine | 1;
}

static void *object(unsigned number)
{
	static char objects[16][16] __attribute__((aligned(16)));
	return objects[number];
}

static void set_up(void)
{
	memset(areas, CANARY, sizeof areas);
	memset(&registration, 0, sizeof registration);
	memset(&magazine, CANARY, sizeof magazine);
	magazine.slot[0] = NULL;
	for (unsigned i = 1; i <= CAPACITY; i++)
		magazine.slot[i] = NULL;
	magazine.slot[CAPACITY + 1] = (void *)end_mark();
	memset(front.table, 0, sizeof front.table);
}

/* Checks that all words but one of one area, and the magazine's surroundings, are untouched. */
static void check_surroundings(unsigned area, size_t offset)
{
	uintptr_t canary;
	memset(&canary, CANARY, sizeof canary);
	for (unsigned a = 0; a < 2; a++)
		for (size_t i = 0; i < AREA_WORDS; i++)
			if (a != area || i != offset / 8)
				CHECK(areas[a][i] == canary, "word %zu of area %u", i, a);
	CHECK(magazine.before == canary && magazine.after == canary);
	CHECK(magazine.slot[0] == NULL && magazine.slot[CAPACITY + 1] == (void *)end_mark());
}

/* A section writes rseq_cs and no other field of the registration: the kernel may kill a process for less. */
static void check_registration(uint32_t cpu_id, uint32_t mm_cid)
{
	CHECK(registration.cpu_id_start == 0 && registration.flags == 0 && registration.node_id == 0 &&
	      registration.padding == 0);
	CHECK(registration.cpu_id == cpu_id && registration.mm_cid == mm_cid);
	CHECK(!ARCH_HAS_RSEQ || registration.rseq_cs != 0);
}

static void test_magazine(uint32_t id, uint16_t offset)
{
	set_up();
	registration.mm_cid = id;
	front.table[id] = (uintptr_t)areas[0];
	uintptr_t *word = &areas[0][offset / 8];
	*word = (uintptr_t)&magazine.slot[0];

	CHECK(arch_id(self) == id);
	/* Empty. */
	CHECK(arch_pop(self, front.map, &offset) == NULL);
	CHECK(*word == (uintptr_t)&magazine.slot[0]);
	/* The top of an empty magazine is NULL. */
	CHECK(!arch_push(self, front.map, &offset, NULL));

	/* Fill it. */
	for (unsigned n = 1; n <= CAPACITY; n++) {
		CHECK(arch_push(self, front.map, &offset, object(n)));
		CHECK(*word == (uintptr_t)&magazine.slot[n]);
		CHECK(arch_peek(self, front.map, offset) == *word);
		for (unsigned i = 1; i <= CAPACITY; i++)
			CHECK(magazine.slot[i] == (i <= n ? object(i) : NULL));
		/* The same object again is refused, but only while it is on top. */
		CHECK(!arch_push(self, front.map, &offset, object(n)));
		CHECK(*word == (uintptr_t)&magazine.slot[n]);
	}
	CHECK(!arch_push(self, front.map, &offset, object(7)));
	CHECK(*word == (uintptr_t)&magazine.slot[CAPACITY] && magazine.slot[CAPACITY] == object(CAPACITY));
	check_surroundings(0, offset);

	/* Empty it; the slots above the top keep their values. */
	for (unsigned n = CAPACITY; n >= 1; n--) {
		CHECK(arch_pop(self, front.map, &offset) == object(n));
		CHECK(*word == (uintptr_t)&magazine.slot[n - 1]);
		for (unsigned i = 1; i <= CAPACITY; i++)
			CHECK(magazine.slot[i] == object(i));
	}
	CHECK(arch_pop(self, front.map, &offset) == NULL && *word == (uintptr_t)&magazine.slot[0]);
	check_surroundings(0, offset);
	check_registration(0, id);
}

static void test_odd_contents(void)
{
	uint16_t offset = 64;
	set_up();
	front.table[0] = (uintptr_t)areas[0];
	uintptr_t *word = &areas[0][offset / 8];

	/* A NULL below the top: the objects above it come out, then pop stops. */
	for (unsigned i = 1; i <= CAPACITY; i++)
		magazine.slot[i] = i == 2 ? NULL : object(i);
	*word = (uintptr_t)&magazine.slot[3];
	CHECK(arch_pop(self, front.map, &offset) == object(3));
	CHECK(arch_pop(self, front.map, &offset) == NULL);
	CHECK(*word == (uintptr_t)&magazine.slot[2]);

	/*
	 * A misaligned pointer is an object like any other, but in the slot above the top it looks like the
	 * end mark.
	 */
	*word = (uintptr_t)&magazine.slot[0];
	void *odd = (char *)object(4) + 1;
	CHECK(arch_push(self, front.map, &offset, odd));
	CHECK(magazine.slot[1] == odd && *word == (uintptr_t)&magazine.slot[1]);
	CHECK(arch_pop(self, front.map, &offset) == odd);
	CHECK(!arch_push(self, front.map, &offset, object(4)));
	CHECK(*word == (uintptr_t)&magazine.slot[0] && magazine.slot[1] == odd);
	check_surroundings(0, offset);
}

static void test_void_words(void)
{
	/* In read-only memory: a primitive that wrote there would fault. */
	static const uintptr_t void_slots[2] = {0, 1};
	uint16_t offset = 8;
	set_up();
	front.table[0] = (uintptr_t)areas[0];
	areas[0][1] = (uintptr_t)void_slots;
	CHECK(arch_pop(self, front.map, &offset) == NULL);
	CHECK(!arch_push(self, front.map, &offset, object(1)));
	CHECK(!arch_push(self, front.map, &offset, NULL));
	CHECK(areas[0][1] == (uintptr_t)void_slots);
	check_surroundings(0, offset);
}

/* Two adjacent slabs whose stride is no power of two. */
enum { SLAB = 4096, STRIDE = 48, LINK = 8 };
static char slabs[2][SLAB] __attribute__((aligned(SLAB)));
static const struct arch_list list = {
	.link = LINK,
	.secret = 0x123456789abcdef0,
	.slab_mask = SLAB - 1,
	.reciprocal = UINT64_MAX / STRIDE + 1,
};

static void *volatile nothing; /* NULL, hidden from the compiler */

static char *in_slab(unsigned slab, unsigned number)
{
	return slabs[slab] + (size_t)number * STRIDE;
}

static uintptr_t link_of(const char *at)
{
	uintptr_t link;
	memcpy(&link, at + LINK, sizeof link);
	return link ^ (uintptr_t)(at + LINK) ^ list.secret;
}

/* Nothing of an object changes but its link. */
static void check_slab_surroundings(void)
{
	for (unsigned slab = 0; slab < 2; slab++)
		for (unsigned i = 0; i < SLAB; i++)
			if (i % STRIDE < LINK || i % STRIDE >= LINK + 8)
				CHECK(slabs[slab][i] == CANARY, "byte %u of slab %u", i, slab);
}

static void test_list(uint32_t id, uint16_t offset)
{
	enum { FEW = 5 };
	set_up();
	memset(slabs, CANARY, sizeof slabs);
	registration.mm_cid = id;
	front.table[id] = (uintptr_t)areas[0];
	uintptr_t *word = &areas[0][offset / 8], end = (uintptr_t)slabs[0] | 1;
	*word = end;

	/* Nothing is left, yet the word still tells which slab's objects it accepts. */
	CHECK(arch_list_pop(self, front.map, &offset, &list) == NULL && *word == end);
	CHECK(!arch_list_push(self, front.map, &offset, &list, in_slab(1, 3)) && *word == end);
	CHECK(!arch_list_push(self, front.map, &offset, &list, nothing) && *word == end);
	/* In the slab, but not at the start of an object. */
	for (unsigned wrong = 1; wrong < STRIDE; wrong++)
		CHECK(!arch_list_push(self, front.map, &offset, &list, in_slab(0, 2) + wrong));
	CHECK(*word == end);

	/* Includes the slab's first object, whose address differs from the end mark by one bit. */
	for (unsigned n = 0; n < FEW; n++) {
		uintptr_t before = *word;
		CHECK(arch_list_push(self, front.map, &offset, &list, in_slab(0, n)));
		CHECK(*word == (uintptr_t)in_slab(0, n) && link_of(in_slab(0, n)) == before);
		/* The same object again, and an object of another slab. */
		CHECK(!arch_list_push(self, front.map, &offset, &list, in_slab(0, n)));
		CHECK(!arch_list_push(self, front.map, &offset, &list, in_slab(1, n)));
		CHECK(*word == (uintptr_t)in_slab(0, n) && link_of(in_slab(0, n)) == before);
	}
	check_surroundings(0, offset);
	check_slab_surroundings();
	for (unsigned n = FEW; n-- > 0;) {
		CHECK(arch_list_pop(self, front.map, &offset, &list) == in_slab(0, n));
		CHECK(*word == (n ? (uintptr_t)in_slab(0, n - 1) : end));
	}
	CHECK(arch_list_pop(self, front.map, &offset, &list) == NULL && *word == end);

	/* A link that leads out of the slab is not followed. */
	CHECK(arch_list_push(self, front.map, &offset, &list, in_slab(0, 1)));
	memset(in_slab(0, 1) + LINK, 0, 8);
	CHECK(arch_list_pop(self, front.map, &offset, &list) == NULL);
	CHECK(*word == (uintptr_t)in_slab(0, 1));
	check_surroundings(0, offset);
	check_slab_surroundings();
	check_registration(0, id);
}

/* A void list word is odd and not the address of a slab. */
static void test_void_lists(void)
{
	static const char void_slots[32] __attribute__((aligned(32))) = {[9] = 1};
	uint16_t offset = 8;
	set_up();
	front.table[0] = (uintptr_t)areas[0];
	areas[0][1] = (uintptr_t)&void_slots[1];
	CHECK(arch_list_pop(self, front.map, &offset, &list) == NULL);
	CHECK(!arch_list_push(self, front.map, &offset, &list, in_slab(0, 1)));
	CHECK(!arch_list_push(self, front.map, &offset, &list, nothing));
	/* The other engine sees it as both empty and full. */
	CHECK(arch_pop(self, front.map, &offset) == NULL);
	CHECK(!arch_push(self, front.map, &offset, object(1)));
	CHECK(!arch_push(self, front.map, &offset, NULL));
	CHECK(areas[0][1] == (uintptr_t)&void_slots[1]);
	check_surroundings(0, offset);
}

static void test_pair(void)
{
#if ARCH_HAS_PAIR
	static uint64_t pair[4] __attribute__((aligned(16))) = {1, 2, 3, 4};
	const uint64_t wrong[][2] = {{1, 3}, {2, 2}, {2, 1}, {1 + (1ul << 32), 2}};
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
		CHECK(!arch_replace_pair(pair, wrong[i], (const uint64_t[]){7, 8}));
	CHECK(pair[0] == 1 && pair[1] == 2);
	CHECK(arch_replace_pair(pair, (const uint64_t[]){1, 2}, (const uint64_t[]){UINT64_MAX, 8}));
	CHECK(pair[0] == UINT64_MAX && pair[1] == 8 && pair[2] == 3 && pair[3] == 4);
#endif
}

static void test_words(uint32_t id, size_t offset)
{
	set_up();
	registration.mm_cid = id;
	front.table[id] = (uintptr_t)areas[1];
	uintptr_t *word = &areas[1][offset / 8];
	*word = 1000;
	CHECK(arch_peek(self, front.map, offset) == 1000);
	CHECK(!arch_replace(self, front.map, offset, 1001, 5) && *word == 1000);
	/* All 64 bits are compared. */
	CHECK(!arch_replace(self, front.map, offset, 1000 + (1ul << 32), 5) && *word == 1000);
	CHECK(arch_replace(self, front.map, offset, 1000, UINTPTR_MAX) && *word == UINTPTR_MAX);
	CHECK(arch_replace(self, front.map, offset, UINTPTR_MAX, 0) && *word == 0);
	CHECK(arch_replace(self, front.map, offset, 0, 0) && *word == 0);
	CHECK(arch_add(self, front.map, offset, 1));
	CHECK(*word == 1);
	CHECK(arch_add(self, front.map, offset, 1ull << 32));
	CHECK(*word == (1ull << 32) + 1);
	CHECK(arch_add(self, front.map, offset, (uint64_t)-1));
	CHECK(*word == 1ull << 32);
	check_surroundings(1, offset);
	check_registration(0, id);
}

/* Each call reads the id anew, through `self`. */
static void test_ids(void)
{
	uint16_t offset = 16;
	struct arch_self by_cpu = self;
	by_cpu.id = self.id - (intptr_t)offsetof(struct arch_rseq, mm_cid) +
		    (intptr_t)offsetof(struct arch_rseq, cpu_id);
	set_up();
	front.table[3] = (uintptr_t)areas[0];
	front.table[4] = (uintptr_t)areas[1];
	areas[0][2] = 30;
	areas[1][2] = 40;
	registration.cpu_id = 4;
	registration.mm_cid = 3;
	CHECK(arch_peek(self, front.map, offset) == 30 && arch_peek(by_cpu, front.map, offset) == 40);
	CHECK(arch_add(by_cpu, front.map, offset, 2));
	CHECK(areas[0][2] == 30 && areas[1][2] == 42);
	CHECK(arch_replace(self, front.map, offset, 30, 31) && areas[0][2] == 31 && areas[1][2] == 42);
	registration.mm_cid = 4;
	CHECK(arch_peek(self, front.map, offset) == 42);
	check_registration(4, 4);
}

/* check_below(): extremes of the random bits, and an even distribution in between. */
static void test_below(void)
{
	enum { COUNT = 100, ROUNDS = 64 << 10 };
	static unsigned seen[ARCH_LANES][COUNT];
	uint64_t state = 1;
	arch_lanes least = arch_below(0, 0, COUNT), largest = arch_below(UINT64_MAX, UINT64_MAX, COUNT);

	for (unsigned i = 0; i < ARCH_LANES; i++)
		CHECK(least[i] == 0 && largest[i] == COUNT - i - 1);
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t bits[2];

		for (unsigned k = 0; k < 2; k++) {
			state = state * 6364136223846793005u + 1442695040888963407u;
			bits[k] = state ^ state >> 29;
		}
		arch_lanes below = arch_below(bits[0], bits[1], COUNT);

		for (unsigned i = 0; i < ARCH_LANES; i++) {
			CHECK(below[i] < COUNT - i);
			seen[i][below[i]]++;
		}
	}
	for (unsigned i = 0; i < ARCH_LANES; i++)
		for (unsigned k = 0; k < COUNT - i; k++)
			CHECK(seen[i][k] > ROUNDS / COUNT / 2 && seen[i][k] < 2 * ROUNDS / COUNT,
			      "%u of %u: %u", k, i, seen[i][k]);
}

#if ARCH_HAS_WIDE
/* As in a program compiled for AVX, whose compiler keeps values in whole registers. */
__attribute__((target("avx2"), noinline, flatten)) static bool keeps_upper_halves(const void *zeros,
										  size_t bytes)
{
	typedef uint64_t whole __attribute__((vector_size(32)));
	whole kept = {1, 2, 3, 4};
	asm volatile("" : "+x"(kept));
	bool clear = arch_is_clear_wide(zeros, bytes);
	asm volatile("" : "+x"(kept));
	return clear && kept[0] == 1 && kept[1] == 2 && kept[2] == 3 && kept[3] == 4;
}

static void test_wide_registers(void)
{
	static const char zeros[256];
	if (arch_finds_wide())
		for (size_t bytes = ARCH_WIDE_BYTES; bytes <= sizeof zeros; bytes *= 2)
			CHECK(keeps_upper_halves(zeros, bytes), "%zu bytes", bytes);
}
#else
static void test_wide_registers(void)
{
}
#endif

int main(void)
{
	const char *thread = __builtin_thread_pointer();
	self.rseq = (const char *)&registration - thread;
	self.id = (const char *)&registration.mm_cid - thread;

	static const uint32_t ids[] = {0, 1, 1000, ARCH_VCPUS - 1};
	for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
		test_magazine(ids[i], 0);
		test_magazine(ids[i], 64);
		test_magazine(ids[i], LAST_OFFSET);
		test_list(ids[i], 0);
		test_list(ids[i], LAST_OFFSET);
		test_words(ids[i], 0);
		test_words(ids[i], LAST_OFFSET);
	}
	test_odd_contents();
	test_void_words();
	test_void_lists();
	test_pair();
	test_ids();
	test_below();
	test_wide_registers();
	return 0;
}
