/* SPDX-License-Identifier: MIT */
/*
 * The records of large objects that are debugged: a process that frees at ever other addresses does not keep
 * one for each; those that were freed last are known as such, and those in use always.  Objects from 4 GiB
 * have none.  An allocation that must not wait gets nothing while another has the records.
 */
#include "check.h"

#include "check/request.h"
#include "malloc/large.h"
#include "malloc/large_checks.h"
#include "options/options.h"
#include "page/metadata.h"
#include "page/page.h"

enum { BYTES = 1 << 20, KEPT = 1024, LIVE = 100, ROUNDS = 20 * KEPT };

/* None of these addresses is accessed: nothing but consistency is checked. */
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

/* With the records' lock: in place of another thread, or of what a signal handler has interrupted. */
static void try_without_lock(uint32_t stack, uint32_t bytes, void *argument)
{
	(void)stack;
	(void)bytes;
	CHECK(!large_try_alloc(BYTES, 1), "it has the lock that is taken");
	++*(unsigned *)argument;
}

/*
 * One that waited for the lock would wait for ever here.  One that went on without it would get the address
 * of an object that was freed, and be taken for that when it is freed.
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
	/* In use, but freed once. */
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

	/* Refused, as freed before. */
	for (size_t back = 1; back < KEPT; back += 73)
		CHECK(!frees(next - back), "%zu ago", back);
	/* Not known any more: others have to say what is wrong. */
	CHECK(frees(next - 2 * KEPT));
	for (size_t live = 0; live < LIVE; live++)
		CHECK(frees(live) && !frees(live));

	/* One that is too large for a record is not taken for what was freed at its address before. */
	alloc(next);
	CHECK(frees(next));
	large_check_alloc(address(next), (size_t)5 << 30, (size_t)5 << 30);
	CHECK(frees(next), "taken for a freed one");
	next++;

	/* It is the last free of an address that counts. */
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

	/* A forked child knows the same. */
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
