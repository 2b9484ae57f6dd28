/* SPDX-License-Identifier: MIT */
#include "page/block.h"

#include "options/options.h"
#include "os/os.h"
#include "page/allowance.h"
#include "page/layout.h"
#include "page/page.h"

/* Random pages of an object to look at, and the share of pages that may be untouched: one in SPARSE. */
enum { OBJECT_LOOKS = 16, SPARSE = 8, FREES_PER_LOOK = 256 };

/*
 * How many times a program must write a whole block to gain what making it huge costs when it is resident:
 * 0.2 ms, against 1.5 us saved each time.
 */
enum { PASSES = 128 };

/*
 * One dear block loses what six cheap ones gain, and the next are unlikely to be better.  So DEAR_BLOCKS go
 * without advice after it; after each further one twice as many as the last time and DEAR_BLOCKS more, up to
 * DEAR_MOST; after a cheap one half as many.
 */
enum { DEAR_BLOCKS = 15, DEAR_MOST = 1023 };

/*
 * A cheap touch takes 0.2 ms, a dear one 4.5.  The coarse clock goes on by 1 to 10 ms at a time, and counts
 * the time in which another program has the CPU: so one touch alone proves nothing.
 */
uint64_t block_dear = 2;

/*
 * State of each block of the heap; the array exists from the first block that is advised.  A BROKEN block
 * lost its advice when a part of it was purged, until it is purged whole; a DEAR one for what it would cost,
 * until it becomes part of a large object.
 */
enum advice { PLAIN, ADVISED, BROKEN, DEAR };

static uint8_t *advice;

/*
 * Where advice changes, the system splits its mapping, and a process may have only 65530 mappings.  Beyond
 * this many pieces, blocks keep the advice that they have.
 */
enum { SMALL_BLOCKS = BLOCK_SMALL_HEAP / BLOCK_BYTES, PIECES_MOST = 4096 };

static size_t seen;            /* bytes of the heap already decided on */
static struct blocks ahead;    /* blocks among them to advise when they come into use */
static long pieces;            /* upper bound on the pieces that advice has cut the heap into */
static bool suspected;         /* the last timed touch seemed dear */
static uint32_t dear_wait;     /* blocks to go without advice after the last timed one */
static uint32_t dear_left;     /* how many of them are still to come */
static uint32_t filled_pages;  /* length of the largest large object known to be filled */
static uint32_t looks_skipped; /* frees of objects not known to be filled still to pass unchecked */

static char *address_of(uint32_t block)
{
	return layout.heap.base + (size_t)block * BLOCK_BYTES;
}

/* Advises a stretch of the reserved heap in which nothing has been used yet. */
static void initial_advice(size_t from, size_t to)
{
	if (options.huge_pages == OPTION_HUGE_PAGES_AUTO && to > BLOCK_SMALL_HEAP)
		to = BLOCK_SMALL_HEAP;
	if (from < to)
		(void)os_huge_pages(layout.heap.base + from, to - from,
				    options.huge_pages == OPTION_HUGE_PAGES_ALWAYS);
}

void block_init(bool reserved)
{
	struct region *heap = &layout.heap;

	/* A partly usable block cannot be huge. */
	if (options.huge_pages == OPTION_HUGE_PAGES_ALWAYS)
		heap->step = BLOCK_BYTES;
	if (reserved)
		initial_advice(0, heap->planned);
	if (options.huge_pages == OPTION_HUGE_PAGES_AUTO)
		seen = heap->planned < BLOCK_SMALL_HEAP ? heap->planned : BLOCK_SMALL_HEAP;
	else
		seen = reserved ? heap->planned : 0;
}

/* Whether the program has written to a page: it holds something beside zeros. */
static bool is_written(const char *page)
{
	const uint64_t *word = (const uint64_t *)page, *end = (const uint64_t *)(page + PAGE_BYTES);

	while (word < end && !*word)
		word++;
	return word < end;
}

/*
 * Whether a program has written to nearly all pages of an object that is in the library's hands.  Asking the
 * system which pages are resident would be a system call that a sandbox may punish.  A page full of zeros
 * counts as untouched: it may stay an ordinary one.
 */
static bool is_dense(const char *base, size_t pages)
{
	unsigned missing = 0;
	uint64_t place = pages;

	for (unsigned i = 0; i < OBJECT_LOOKS && missing <= OBJECT_LOOKS / SPARSE; i++) {
		place = place * 0x5851f42d4c957f2du + 0x14057b7ef767814fu;
		missing += !is_written(base + ((size_t)((place >> 32) * pages >> 32) << PAGE_SHIFT));
	}
	return missing <= OBJECT_LOOKS / SPARSE;
}

/* Makes the array of block states, which must exist before any block is advised. */
static bool has_advice(void)
{
	size_t bytes = layout.heap.planned / BLOCK_BYTES;

	/* Larger than a small heap needs: the array must be fresh, zeroed metadata, not a reused block. */
	if (bytes <= METADATA_REUSED_MOST)
		bytes = METADATA_REUSED_MOST + 1;
	/*
	 * Only tried, since callers that must not wait come here too.  On failure the next block asks again.
	 */
	if (!advice)
		__atomic_store_n(&advice, metadata_try_alloc(bytes), __ATOMIC_RELEASE);
	return advice;
}

/* Counts the places where advice changes, from the block before these to the one behind them. */
static long edges(uint32_t block, uint32_t count)
{
	uint32_t blocks = (uint32_t)(layout.heap.planned / BLOCK_BYTES);
	uint32_t end = block + count < blocks ? block + count : blocks - 1;
	long found = 0;

	for (uint32_t i = block ? block : 1; i <= end; i++)
		found += __atomic_load_n(&advice[i], __ATOMIC_RELAXED) !=
			 __atomic_load_n(&advice[i - 1], __ATOMIC_RELAXED);
	return found;
}

/* Changes the advice of blocks that share one state.  Pieces in the heap's beginning are too few to count. */
static void advise(uint32_t block, uint32_t count, enum advice what)
{
	bool was_broken = advice[block] == BROKEN, counts = block >= SMALL_BLOCKS;

	if (counts && !was_broken && __atomic_load_n(&pieces, __ATOMIC_RELAXED) >= PIECES_MOST)
		return;

	long before = edges(block, count);

	if (os_huge_pages(address_of(block), (size_t)count * BLOCK_BYTES, what == ADVISED) != 0)
		return;
	for (uint32_t i = block; i < block + count; i++)
		__atomic_store_n(&advice[i], (uint8_t)what, __ATOMIC_RELAXED);
	if (counts)
		__atomic_fetch_add(&pieces, edges(block, count) - before, __ATOMIC_RELAXED);
}

/* ---- what a huge page costs ---------------------------------------------------------------------------- */

/* Whether to try these blocks.  If two threads race, here or in note_touch(), either result will do. */
static bool is_worth_trying(uint32_t count)
{
	uint32_t left = __atomic_load_n(&dear_left, __ATOMIC_RELAXED);

	if (left)
		__atomic_store_n(&dear_left, left > count ? left - count : 0, __ATOMIC_RELAXED);
	return !left;
}

static void note_touch(bool dear)
{
	uint32_t wait = __atomic_load_n(&dear_wait, __ATOMIC_RELAXED);
	bool twice = __atomic_exchange_n(&suspected, dear, __ATOMIC_RELAXED) && dear;

	wait = twice ? 2 * wait + DEAR_BLOCKS : dear ? wait : wait / 2;
	if (wait > DEAR_MOST)
		wait = DEAR_MOST;
	__atomic_store_n(&dear_wait, wait, __ATOMIC_RELAXED);
	__atomic_store_n(&dear_left, wait, __ATOMIC_RELAXED);
}

/* Touches the block by writing a zero, which its first byte holds anyway. */
static bool is_dear_to_touch(uint32_t block)
{
	uint64_t start = os_milliseconds();

	*(volatile char *)address_of(block) = 0;

	bool dear = os_elapsed(start, os_milliseconds()) >= block_dear;

	note_touch(dear);
	return dear;
}

void block_prove(struct blocks blocks)
{
	if (blocks.count && is_dear_to_touch(blocks.first) && blocks.count > 1)
		advise(blocks.first + 1, blocks.count - 1, DEAR);
}

/* ---- growth of the heap -------------------------------------------------------------------------------- */

/* Chooses the blocks to advise in a heap of which the pages below `top` have been used. */
static __attribute__((noinline)) void plan_growth(uint32_t top)
{
	struct region *heap = &layout.heap;
	size_t used = (size_t)top << PAGE_SHIFT, from = seen > used ? seen : used;
	uint32_t first = (uint32_t)((from + BLOCK_BYTES - 1) / BLOCK_BYTES);
	uint32_t end = (uint32_t)(heap->committed / BLOCK_BYTES), count = end > first ? end - first : 0;

	heap->step = BLOCK_BYTES;
	seen = heap->committed;
	/* The existing heap speaks for as much again, not for the whole of a far larger request. */
	if (count > top / BLOCK_PAGES)
		count = top / BLOCK_PAGES;
	if (!count || !allowance_is_resident(top - top / SPARSE) || !has_advice())
		return;
	/* One request may need the last of the earlier blocks together with these. */
	if (ahead.first + ahead.count != first)
		ahead = (struct blocks){first, 0};
	ahead.count += count;
}

static void decide_growth(uint32_t top)
{
	struct region *heap = &layout.heap;

	if (options.huge_pages != OPTION_HUGE_PAGES_AUTO) {
		/* Piece by piece, as it is mapped. */
		(void)os_huge_pages(heap->base + seen, heap->committed - seen,
				    options.huge_pages == OPTION_HUGE_PAGES_ALWAYS);
		seen = heap->committed;
		return;
	}
	plan_growth(top);
}

struct blocks block_heap_grown(uint32_t top, uint32_t end)
{
	if (layout.heap.committed > seen)
		decide_growth(top);

	uint32_t used = (end + BLOCK_PAGES - 1) / BLOCK_PAGES;
	struct blocks next = ahead;

	if (!next.count || used <= next.first)
		return (struct blocks){0};
	if (next.count > used - next.first)
		next.count = used - next.first;
	ahead.first += next.count;
	ahead.count -= next.count;
	if (!is_worth_trying(next.count))
		return (struct blocks){0};
	advise(next.first, next.count, ADVISED);
	return next;
}

/* Returns the end of the blocks from `block` on that share its state. */
static uint32_t alike_end(uint32_t block, uint32_t end)
{
	uint32_t next = block + 1;

	while (next < end && advice[next] == advice[block])
		next++;
	return next;
}

void block_unadvised(size_t from, size_t to)
{
	uint32_t block = (uint32_t)(from / BLOCK_BYTES),
		 end = (uint32_t)((to + BLOCK_BYTES - 1) / BLOCK_BYTES);

	initial_advice(from, to);
	if (!advice)
		return;
	for (uint32_t next; block < end; block = next) {
		next = alike_end(block, end);
		if (advice[block] != PLAIN)
			(void)os_huge_pages(address_of(block), (size_t)(next - block) * BLOCK_BYTES,
					    advice[block] == ADVISED);
	}
}

void block_heap_shrunk(void)
{
	/* Where nothing is reserved, what is mapped there again has no advice. */
	if (options.huge_pages != OPTION_HUGE_PAGES_AUTO && seen < layout.heap.planned &&
	    seen > layout.heap.committed)
		seen = layout.heap.committed;
}

bool block_was_advised(uint32_t block)
{
	return options.huge_pages == OPTION_HUGE_PAGES_ALWAYS ||
	       (advice && (advice[block] == ADVISED || advice[block] == BROKEN));
}

/* ---- large objects ------------------------------------------------------------------------------------- */

/* Counts the blocks that lie wholly in a run; the first is stored in *block. */
static uint32_t whole_blocks(uint32_t first, uint32_t pages, uint32_t *block)
{
	uint32_t end = (first + pages) / BLOCK_PAGES;

	*block = (first + BLOCK_PAGES - 1) / BLOCK_PAGES;
	return end > *block ? end - *block : 0;
}

static bool is_filled(uint32_t first, uint32_t pages)
{
	return is_dense(layout.heap.base + ((size_t)first << PAGE_SHIFT), pages);
}

/* Changes those of `count` blocks that are advised, or those that are not. */
static void advise_all(uint32_t block, uint32_t count, enum advice what, bool was_advised)
{
	for (uint32_t end = block + count, next; block < end; block = next) {
		next = alike_end(block, end);
		if ((advice[block] == ADVISED) == was_advised)
			advise(block, next - block, what);
	}
}

struct blocks block_large(uint32_t first, uint32_t pages)
{
	uint32_t block, whole = whole_blocks(first, pages, &block);

	if (!whole || options.huge_pages != OPTION_HUGE_PAGES_AUTO)
		return (struct blocks){0};
	if (pages / 2 > filled_pages || !has_advice())
		return (struct blocks){0};
	if (!is_worth_trying(whole)) {
		advise_all(block, whole, DEAR, true);
		return (struct blocks){0};
	}
	advise_all(block, whole, ADVISED, false);
	return (struct blocks){block, whole};
}

bool block_reused(uint32_t first, uint32_t pages)
{
	static uint32_t passes; /* over ordinary blocks since some were last made huge */
	uint32_t block, whole = whole_blocks(first, pages, &block), ordinary = 0;

	if (!whole || options.huge_pages != OPTION_HUGE_PAGES_AUTO ||
	    pages / 2 > __atomic_load_n(&filled_pages, __ATOMIC_RELAXED) || !has_advice())
		return false;
	for (uint32_t i = block; i < block + whole; i++)
		ordinary += advice[i] != ADVISED;
	passes += ordinary;
	if (!ordinary || passes < PASSES * ordinary)
		return false;
	passes = 0;
	return is_worth_trying(ordinary);
}

static void renew(uint32_t block, uint32_t count)
{
	for (uint32_t end = block + count, next; block < end; block = next) {
		next = alike_end(block, end);
		if (advice[block] == ADVISED)
			continue;
		advise(block, next - block, ADVISED);
		/* If the system refused the advice, the pages may as well stay. */
		if (advice[block] == ADVISED)
			(void)os_purge(address_of(block), (size_t)(next - block) * BLOCK_BYTES);
	}
}

void block_renew(uint32_t first, uint32_t pages)
{
	uint32_t block, whole = whole_blocks(first, pages, &block), end = block + whole;

	while (block < end && advice[block] == ADVISED)
		block++;
	if (block == end)
		return;
	renew(block, 1);
	if (!is_dear_to_touch(block))
		renew(block + 1, end - block - 1);
}

/*
 * Whether to look at this object as it is freed: the looks take longer than the free itself.  Where they tell
 * nothing new they are rare: one free in FREES_PER_LOOK where such objects are known to be filled, and ever
 * rarer, down to that, where they are found not to be.  If two threads race, either result will do.
 */
static bool is_worth_looks(bool known)
{
	static uint32_t known_frees;
	uint32_t skip = __atomic_load_n(&looks_skipped, __ATOMIC_RELAXED);

	if (known)
		return __atomic_fetch_add(&known_frees, 1, __ATOMIC_RELAXED) % FREES_PER_LOOK == 0;
	if (skip)
		__atomic_store_n(&looks_skipped, skip - 1, __ATOMIC_RELAXED);
	return !skip;
}

static void note_looks(bool filled)
{
	static uint32_t next; /* 0 for the first that finds nothing, then 1, 3, 7, ... */
	uint32_t skip = filled ? 0 : __atomic_load_n(&next, __ATOMIC_RELAXED);

	if (skip > FREES_PER_LOOK)
		skip = FREES_PER_LOOK;
	__atomic_store_n(&looks_skipped, skip, __ATOMIC_RELAXED);
	__atomic_store_n(&next, filled ? 0 : 2 * skip + 1, __ATOMIC_RELAXED);
}

void block_large_freed(uint32_t first, uint32_t pages)
{
	if (options.huge_pages != OPTION_HUGE_PAGES_AUTO || pages < BLOCK_PAGES)
		return;

	uint32_t filled = __atomic_load_n(&filled_pages, __ATOMIC_RELAXED);

	if (!is_worth_looks(pages <= filled))
		return;

	bool dense = is_filled(first, pages);

	note_looks(dense);
	if (dense ? pages > filled : pages / 2 <= filled)
		__atomic_store_n(&filled_pages, dense ? pages : pages / 4, __ATOMIC_RELAXED);
}

uint32_t block_surplus(uint32_t *first, uint32_t pages, uint32_t surplus)
{
	uint32_t block, whole = whole_blocks(*first, pages, &block);

	if (!advice || !whole || advice[block] != ADVISED)
		return surplus;

	uint32_t wanted = (surplus + BLOCK_PAGES - 1) / BLOCK_PAGES;

	*first = block * BLOCK_PAGES;
	return (wanted < whole ? wanted : whole) * BLOCK_PAGES;
}

void block_purge(uint32_t first, uint32_t pages)
{
	const uint8_t *known = __atomic_load_n(&advice, __ATOMIC_ACQUIRE);
	uint32_t whole_first, whole = whole_blocks(first, pages, &whole_first);

	if (!known)
		return;
	for (uint32_t block = first / BLOCK_PAGES, next; block * BLOCK_PAGES < first + pages; block = next) {
		bool keeps = block - whole_first < whole && block >= SMALL_BLOCKS;
		uint8_t is = __atomic_load_n(&known[block], __ATOMIC_RELAXED);

		/*
		 * Groups blocks that lie wholly in the run, without mixing those of the heap's beginning with
		 * those behind it.
		 */
		for (next = block + 1; block - whole_first < whole && next - whole_first < whole &&
				       next != SMALL_BLOCKS &&
				       __atomic_load_n(&known[next], __ATOMIC_RELAXED) == is;)
			next++;
		/* Another thread may do the same for its part of the block; the result is the same. */
		if (is == (keeps ? BROKEN : ADVISED))
			advise(block, next - block, keeps ? ADVISED : BROKEN);
	}
}

void block_mapping(void *address, size_t old_bytes, size_t bytes)
{
	/* Advice given once stays when the mapping moves and grows. */
	if (options.huge_pages != OPTION_HUGE_PAGES_AUTO) {
		if (!old_bytes)
			(void)os_huge_pages(address, bytes, options.huge_pages == OPTION_HUGE_PAGES_ALWAYS);
		return;
	}
	/* Looks at each doubling. */
	size_t half = (size_t)1 << (63 - __builtin_clzl(bytes));

	if (old_bytes && bytes >= BLOCK_SMALL_HEAP && old_bytes < half &&
	    is_dense(address, old_bytes >> PAGE_SHIFT) &&
	    is_worth_trying((uint32_t)((bytes - old_bytes) / BLOCK_BYTES)))
		(void)os_huge_pages(address, bytes, true);
}
