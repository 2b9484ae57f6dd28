/* SPDX-License-Identifier: MIT */
#include "page/standby.h"

#include "options/options.h"
#include "page/handover.h"
#include "page/layout.h"
#include "page/page.h"
#include "page/pocket.h"
#include "page/run.h"

enum {
	WORDS = 8,
	VCPUS = 8,   /* with words of their own; vCPUs beyond that share them */
	EARNED = 32, /* turns; later than block.h has learnt about a size from its first frees */
	TURNS = 1024,
	PAGES_BITS = 20,
	TURNS_BITS = 12,
};

/* One per vCPU and place.  From bit 0: puts since it was cleared; the run's pages; its first page. */
static uint64_t words[VCPUS][WORDS] __attribute__((aligned(64)));
/* The one length that the words of a place are for; 0 for none. */
static uint32_t expected[WORDS] __attribute__((aligned(8))); /* no more: variables fill their page */
/* Whether any length ever was expected: until then all words are empty. */
static bool used;

static unsigned place_of(size_t pages)
{
	return (unsigned)(pages * 0x9e3779b97f4a7c15u >> 61);
}

static uint64_t turns_of(uint64_t word)
{
	return word & ((1u << TURNS_BITS) - 1);
}

static uint32_t pages_of(uint64_t word)
{
	return (uint32_t)(word >> TURNS_BITS) & ((1u << PAGES_BITS) - 1);
}

static uint32_t first_of(uint64_t word)
{
	return (uint32_t)(word >> (TURNS_BITS + PAGES_BITS));
}

static inline __attribute__((always_inline)) void *take(uint64_t *word, size_t pages)
{
	uint64_t held = handover_look(word);

	/*
	 * The word holds the length, too: whatever came and went since the look, this takes exactly `pages`
	 * pages.
	 */
	if (pages_of(held) != pages || !handover_exchange(word, held, turns_of(held)))
		return NULL;
	/* Until this mark a second free of the run finds no object. */
	handover_mark(first_of(held), PAGE_LARGE);
	return layout.heap.base + ((size_t)first_of(held) << PAGE_SHIFT);
}

static bool is_expected(unsigned place, size_t pages)
{
	return __atomic_load_n(&expected[place], __ATOMIC_RELAXED) == pages;
}

/* A block that one thread allocates may be freed by another. */
static __attribute__((noinline)) void *take_from_others(unsigned place, size_t pages, unsigned vcpu)
{
	void *run = NULL;

	for (unsigned i = 1; !run && i < VCPUS && is_expected(place, pages); i++)
		run = take(&words[(vcpu + i) % VCPUS][place], pages);
	return run;
}

void *page_take_standby(size_t pages, unsigned vcpu)
{
	unsigned place = place_of(pages);

	if (__builtin_expect(!pages, 0))
		return NULL;
	void *run = take(&words[vcpu % VCPUS][place], pages);

	if (__builtin_expect(run != NULL, 1))
		return run;
	run = take_from_others(place, pages, vcpu);
	return run || !__atomic_load_n(&pocket_open, __ATOMIC_RELAXED) ? run : pocket_take(pages, vcpu);
}

size_t page_put_standby(void *object, unsigned vcpu)
{
	uint32_t first = (uint32_t)(page_of(object) - page_front.heap_page);
	const struct run *run = (const struct run *)layout.runs.base + first;
	size_t pages = run->pages;

	if (__builtin_expect(run->offset != (uintptr_t)object % PAGE_BYTES, 0))
		return 0;
	unsigned place = place_of(pages);
	uint64_t *word = &words[vcpu % VCPUS][place], held = handover_look(word);

	if (!is_expected(place, pages) || held >= TURNS)
		return __atomic_load_n(&pocket_open, __ATOMIC_RELAXED) && pocket_put(first, pages, vcpu)
			       ? pages
			       : 0;
	/* Before the exchange: from the word any thread may take it. */
	handover_mark(first, PAGE_TRANSIT);
	if (handover_exchange(word, held, ((uint64_t)first << PAGES_BITS | pages) << TURNS_BITS | (held + 1)))
		return pages;
	handover_mark(first, PAGE_LARGE);
	return 0;
}

/* What is known about a place's length. */
static struct lesson {
	uint32_t pages; /* length of the last run freed the usual way */
	uint32_t turns; /* frees in succession that were followed by an allocation of this length */
	bool freed;
	bool asked; /* this length was asked for since the last tick */
} lessons[WORDS] __attribute__((aligned(8)));

/* Counts of words that were cleared. */
static struct {
	uint64_t takes, puts;
} before;

/* Empties a word, adds its turns to the counts, and returns it with the run that it may hold. */
static uint64_t clear(unsigned vcpu, unsigned place)
{
	uint64_t word = __atomic_exchange_n(&words[vcpu][place], 0, __ATOMIC_ACQ_REL);
	uint64_t puts = turns_of(word), takes = puts - (pages_of(word) != 0);

	lessons[place].asked |= takes > 0;
	__atomic_fetch_add(&before.puts, puts, __ATOMIC_RELAXED);
	__atomic_fetch_add(&before.takes, takes, __ATOMIC_RELAXED);
	return word;
}

static void expect(unsigned place, uint32_t pages)
{
	used |= pages != 0;
	__atomic_store_n(&expected[place], pages, __ATOMIC_RELAXED);
}

void standby_freed(uint32_t pages)
{
	unsigned place = place_of(pages);
	struct lesson *lesson = &lessons[place];

	if (lesson->pages != pages) {
		*lesson = (struct lesson){.pages = pages};
		expect(place, 0);
	}
	lesson->freed = true;
	if (!is_expected(place, pages))
		return;
	/* The turns were used up: the next run may go on standby again. */
	for (unsigned vcpu = 0; vcpu < VCPUS; vcpu++)
		if (handover_look(&words[vcpu][place]) == TURNS)
			(void)clear(vcpu, place);
}

void standby_taken(uint32_t pages)
{
	unsigned place = place_of(pages);
	struct lesson *lesson = &lessons[place];

	if (lesson->pages != pages)
		return;
	lesson->asked = true;
	lesson->turns = lesson->freed ? lesson->turns + 1 : 0;
	lesson->freed = false;
	/* Not if freed memory is to go back at once (decay:0), or is not to be used again soon. */
	if (lesson->turns == EARNED && options.decay && pages <= options.dirty >> PAGE_SHIFT &&
	    pages < 1u << PAGES_BITS && !huge_is_isolated())
		expect(place, pages);
}

uint32_t standby_recall(uint32_t *first)
{
	for (unsigned i = 0; used && i < VCPUS * WORDS; i++) {
		unsigned vcpu = i / WORDS, place = i % WORDS;

		if (!pages_of(handover_look(&words[vcpu][place])))
			continue;

		uint64_t word = clear(vcpu, place);

		*first = first_of(word);
		/* Another thread may have taken the run first. */
		if (pages_of(word))
			return pages_of(word);
	}
	return 0;
}

size_t standby_pages(size_t *runs)
{
	size_t pages = 0;

	*runs = 0;
	for (unsigned i = 0; used && i < VCPUS * WORDS; i++) {
		uint32_t here = pages_of(handover_look(&words[i / WORDS][i % WORDS]));

		pages += here;
		*runs += here != 0;
	}
	return pages;
}

void standby_forget(void)
{
	for (unsigned place = 0; place < WORDS; place++) {
		struct lesson *lesson = &lessons[place];

		if (!lesson->asked) {
			lesson->turns = 0;
			expect(place, 0);
		}
		lesson->asked = false;
	}
}

void standby_forget_all(void)
{
	for (unsigned place = 0; place < WORDS; place++) {
		lessons[place] = (struct lesson){0};
		expect(place, 0);
	}
}

void standby_repair(void)
{
	for (unsigned i = 0; i < VCPUS * WORDS; i++)
		(void)clear(i / WORDS, i % WORDS);
}

void page_standby_calls(uint64_t *takes, uint64_t *puts)
{
	uint64_t taken, put;

	pocket_calls(&taken, &put);
	taken += __atomic_load_n(&before.takes, __ATOMIC_RELAXED);
	put += __atomic_load_n(&before.puts, __ATOMIC_RELAXED);

	for (unsigned i = 0; i < VCPUS * WORDS; i++) {
		uint64_t word = handover_look(&words[i / WORDS][i % WORDS]);

		put += turns_of(word);
		taken += turns_of(word) - (pages_of(word) != 0);
	}
	*takes = taken;
	*puts = put;
}

void standby_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("standby.words", (uintptr_t)words, sizeof words);
	show("standby.turns_bits", TURNS_BITS, 0);
	show("standby.pages_bits", PAGES_BITS, 0);
	/* Two counts, to be added to those in the words: takes, puts. */
	show("standby.before", (uintptr_t)&before, sizeof before);
}
