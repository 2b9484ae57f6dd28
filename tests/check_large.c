/* SPDX-License-Identifier: MIT */
/*
 * The records of debugged large objects: a process that frees at ever new addresses does not keep a record of
 * each; the latest frees are recognised, live objects always.  Objects from 4 GiB have no record.  An
 * allocation that must not wait fails while another thread holds the records' lock.
 */
#include "check.h"

#include "check/request.h"
#include "malloc/large.h"
#include "malloc/large_checks.h"
#include "options/options.h"
#include "page/metadata.h"
#include "page/page.h"

enum { BYTES = 1 << 20, KEPT = 1024, LIVE = 100, ROUNDS = 20 * KEPT };

/* None of these addresses is accessed: only consistency is checked. */
static void *address(size_t number)
{
	return (void *)((number + 1) * 2 * BYTES);
}

static void alloc(size_t number)
{
	large_check_alloc(address(number), BYTES - 1, BYTES);
}

static bool frees(size_t number)
{
	return large_check_free(address(number), SIZE_MAX);
}

static bool is_known(size_t number)
{
	return large_check_usable(address(number), 0) == BYTES;
}

/* Holds the records' lock, as another thread would, or code that a signal handler has interrupted. */
static void try_without_lock(uint32_t stack, uint32_t bytes, void *argument)
{
	(void)stack;
	(void)bytes;
	CHECK(!large_try_alloc(BYTES, 1), "it has the lock that is taken");
	++*(unsigned *)argument;
}

/*
 * Waiting for the lock would never end here.  Proceeding without it would return an address that is recorded
 * as freed, and its free would be reported as a double free.
 */
static void check_lock_refused(size_t unused)
{
	unsigned tried = 0;
	void *first = large_try_alloc(BYTES, 1);

	CHECK(first);
	large_check_alloc(first, BYTES, BYTES);
	CHECK(large_check_free(first, SIZE_MAX) && !large_check_free(first, SIZE_MAX));
	page_free(first, BYTES / PAGE_BYTES);

	alloc(unused);
	struct page_statistics pages, after;

	page_statistics(&pages);
	(void)large_checks_visit_live(try_without_lock, &tried);
	CHECK(tried, "no object was visited");
	page_statistics(&after);
	CHECK(after.large_pages == pages.large_pages, "a refused one has pages");
	CHECK(frees(unused));

	void *again = large_try_alloc(BYTES, 1);

	CHECK(again == first, "the lock is not free, or other pages came back");
	CHECK(large_check_free(again, SIZE_MAX), "taken for the one before");
	page_free(again, BYTES / PAGE_BYTES);
}

int main(void)
{
	size_t next = LIVE, before = 0;

	options.debug_continue = true;
	page_init();
	large_check_flags = CHECK_CONSISTENCY;
	/* In use, but freed once before. */
	for (size_t live = 0; live < LIVE; live++) {
		alloc(live);
		CHECK(frees(live));
		alloc(live);
	}
	for (size_t round = 0; round < ROUNDS; round++, next++) {
		alloc(next);
		CHECK(is_known(next) && frees(next));
		if (round == KEPT + LIVE)
			before = metadata_bytes();
	}
	CHECK(metadata_bytes() == before, "%zu bytes for %zu", metadata_bytes(), before);
	for (size_t live = 0; live < LIVE; live++)
		CHECK(is_known(live));

	/* Refused as already freed. */
	for (size_t back = 1; back < KEPT; back += 73)
		CHECK(!frees(next - back), "%zu ago", back);
	/* No longer recorded: other checks must detect the error. */
	CHECK(frees(next - 2 * KEPT));
	for (size_t live = 0; live < LIVE; live++)
		CHECK(frees(live) && !frees(live));

	/* An object too large for a record is not mistaken for the one freed at its address before. */
	alloc(next);
	CHECK(frees(next));
	large_check_alloc(address(next), (size_t)5 << 30, (size_t)5 << 30);
	CHECK(frees(next), "taken for a freed one");
	next++;

	/* The last free of an address is the one that counts. */
	size_t comes_back = next;

	for (size_t round = 0; round < KEPT + KEPT / 2; round++, next++) {
		alloc(next);
		CHECK(frees(next));
		if (round == KEPT - 10) {
			alloc(comes_back);
			CHECK(frees(comes_back));
		}
	}
	CHECK(!frees(comes_back));

	/* A forked child has the same records. */
	large_checks_repair();
	CHECK(!frees(comes_back) && !frees(next - 1));
	for (size_t round = 0; round < 2 * KEPT; round++, next++) {
		alloc(next);
		CHECK(frees(next));
	}
	CHECK(frees(comes_back));
	CHECK(metadata_bytes() == before, "%zu bytes for %zu", metadata_bytes(), before);

	check_lock_refused(next);
	return 0;
}
